//! `arpo bench sums`: gradients of many micro-batches, added up in the type they are kept in, beside their sums in f32.

use super::episode::MadeEpisode;
use super::{ModelName, number_kind, write_json};
use crate::Failure;
use crate::device::DeviceName;
use arpo_model::checkpoint::Weights;
use arpo_model::learner::{Learner, LearnerOptions, MicroBatch};
use arpo_model::model::Model;
use clap::Args;
use serde::Serialize;
use std::io::Write;
use tch::{Kind, Tensor};

/// What `arpo bench sums` takes.
#[derive(Args)]
pub(crate) struct SumsArguments {
    /// Where to compute
    #[arg(long, value_enum, default_value = "cpu")]
    device: DeviceName,
    /// Whose widths
    #[arg(long, value_enum, default_value = "pocket")]
    model: ModelName,
    /// Of its layers so many, and of its vision tower's blocks
    #[arg(long, default_value_t = 2)]
    layers: usize,
    /// Micro-batches in the update, an episode each
    #[arg(long, default_value_t = 64)]
    micro_batches: u32,
    /// Screenshots in an episode
    #[arg(long, default_value_t = 2)]
    pictures: usize,
    /// In bf16 also on a CPU
    #[arg(long)]
    bf16: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A gradient's distance from its sum in f32, as a part of that sum's norm.
#[derive(Serialize)]
struct Row {
    name: String,
    error: f64,
}

pub(crate) fn run(arguments: &SumsArguments, out: &mut impl Write) -> Result<(), Failure> {
    let device = arguments.device.device()?;
    let kind = if arguments.bf16 { Kind::BFloat16 } else { number_kind(device) };
    let mut config = arguments.model.config();
    config.text.layers = arguments.layers.min(config.text.layers);
    config.vision.blocks = arguments.layers.min(config.vision.blocks);
    config.vision.full_attention = vec![config.vision.blocks - 1];
    let weights = Weights::fresh(&config, kind, device);
    let learner = |weights: Weights| {
        let options = LearnerOptions {
            temperature: 1.0,
            forbidden: vec![],
            activation_bytes: 8 << 30,
            logit_rows: 512,
            length_step: 1,
            share_beginnings: false,
        };
        Learner::new(Model::new(config.clone(), weights), options)
    };
    // the same weights twice: one adds up, the other says each micro-batch's gradient alone
    let together = learner(weights.share().with_gradients(|_| true));
    let alone = learner(weights.with_gradients(|_| true));
    let mut sums: Vec<Tensor> = vec![];
    for number in 0..arguments.micro_batches {
        let grid = arguments.model.grid();
        let made = MadeEpisode::of_words(&config, grid, arguments.pictures, number * 104_729, device);
        let episodes = [made.episode()];
        let batch = MicroBatch { episodes: &episodes, pictures: &made.pictures };
        // half of the episodes failed
        let sign = if number % 2 == 0 { 1.0 } else { -0.8 };
        let coefficients: Vec<Vec<f32>> =
            made.coefficients().iter().map(|all| all.iter().map(|one| one * sign).collect()).collect();
        alone.model().weights().zero_gradients();
        for learner in [&together, &alone] {
            let pass = learner.forward(batch).map_err(Failure::failed)?;
            pass.backward(&coefficients).map_err(Failure::failed)?;
        }
        for (place, (_, _, gradient)) in alone.model().weights().trained().enumerate() {
            let wide = gradient.to_kind(Kind::Float);
            match sums.get_mut(place) {
                Some(sum) => drop(sum.g_add_(&wide)),
                None => sums.push(wide.copy()),
            }
        }
    }
    let mut rows: Vec<Row> = vec![];
    for ((layout, _, gradient), sum) in together.model().weights().trained().zip(&sums) {
        rows.push(Row { name: layout.name.clone(), error: apart(gradient, sum) });
        if layout.name == "text.embed" {
            // what opens and closes every picture is the most frequent word
            let row = |tensor: &Tensor| tensor.get(i64::from(config.vision_end_token));
            rows.push(Row {
                name: "text.embed, most frequent".into(),
                error: apart(&row(gradient), &row(sum)),
            });
        }
    }
    rows.sort_by(|a, b| b.error.total_cmp(&a.error));
    if arguments.json {
        return write_json(&rows, out);
    }
    let mean = rows.iter().map(|row| row.error).sum::<f64>() / rows.len() as f64;
    writeln!(
        out,
        "{} micro-batches added up in {kind:?}: mean error {mean:.5} of the norm",
        arguments.micro_batches
    )?;
    for Row { name, error } in rows.iter().take(20) {
        writeln!(out, "  {name:<32} {error:9.5}")?;
    }
    Ok(())
}

fn apart(gradient: &Tensor, sum: &Tensor) -> f64 {
    let norm = |tensor: &Tensor| tensor.norm_scalaropt_dtype(2, Kind::Float).double_value(&[]);
    let whole = norm(sum);
    if whole == 0.0 { 0.0 } else { norm(&(gradient.to_kind(Kind::Float) - sum)) / whole }
}
