//! `arpo bench sums`: gradient accumulation over many micro-batches in the gradients' data type, against sums in f32.

use super::episode::SyntheticEpisode;
use super::{ModelName, compute_kind, write_json};
use crate::Failure;
use crate::device::DeviceName;
use arpo_model::checkpoint::Weights;
use arpo_model::model::Model;
use arpo_model::training::{MicroBatch, PassOptions, TrainableModel};
use clap::Args;
use serde::Serialize;
use std::io::Write;
use tch::{Kind, Tensor};

/// The arguments of `arpo bench sums`.
#[derive(Args)]
pub(crate) struct SumsArguments {
    /// The device
    #[arg(long, value_enum, default_value = "cpu")]
    device: DeviceName,
    /// The model's widths
    #[arg(long, value_enum, default_value = "pocket")]
    model: ModelName,
    /// Number of its layers, and of its vision tower's blocks
    #[arg(long, default_value_t = 2)]
    layers: usize,
    /// Micro-batches in the update, one episode each
    #[arg(long, default_value_t = 64)]
    micro_batches: u32,
    /// Screenshots per episode
    #[arg(long, alias = "pictures", default_value_t = 2)]
    screenshots: usize,
    /// Use bf16 also on a CPU
    #[arg(long)]
    bf16: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The distance of a gradient from its sum in f32, relative to that sum's norm.
#[derive(Serialize)]
struct Row {
    name: String,
    error: f64,
}

pub(crate) fn run(arguments: &SumsArguments, out: &mut impl Write) -> Result<(), Failure> {
    let device = arguments.device.device()?;
    let kind = if arguments.bf16 { Kind::BFloat16 } else { compute_kind(device) };
    let mut config = arguments.model.config();
    config.text.layers = arguments.layers.min(config.text.layers);
    config.vision.blocks = arguments.layers.min(config.vision.blocks);
    if let Some(windows) = &mut config.vision.windows {
        windows.full_attention = vec![config.vision.blocks - 1];
    }
    let weights = Weights::from_scratch(&config, kind, device);
    let trainable = |weights: Weights| {
        let options = PassOptions {
            temperature: 1.0,
            forbidden: vec![],
            activation_bytes: 8 << 30,
            logit_rows: 512,
            pad_to_multiple: 1,
            share_prefixes: false,
        };
        TrainableModel::new(Model::new(config.clone(), weights), options)
    };
    // the same weights twice: one accumulates, the other computes each micro-batch's gradient alone
    let together = trainable(weights.share().with_gradients(|_| true));
    let alone = trainable(weights.with_gradients(|_| true));
    let mut sums: Vec<Tensor> = vec![];
    for number in 0..arguments.micro_batches {
        let grid = arguments.model.grid();
        let synthetic = SyntheticEpisode::with_first_token(
            &config,
            grid,
            arguments.screenshots,
            number * 104_729,
            device,
        );
        let episodes = [synthetic.episode()];
        let batch = MicroBatch { sequences: &episodes, images: &synthetic.images };
        // half of the episodes count as failed
        let sign = if number % 2 == 0 { 1.0 } else { -0.8 };
        let coefficients: Vec<Vec<f32>> =
            synthetic.coefficients().iter().map(|all| all.iter().map(|one| one * sign).collect()).collect();
        alone.model().weights().zero_gradients();
        for trainable in [&together, &alone] {
            let pass = trainable.forward(batch).map_err(Failure::failed)?;
            pass.backward(&coefficients).map_err(Failure::failed)?;
        }
        for (index, (_, _, gradient)) in alone.model().weights().trained().enumerate() {
            let gradient_f32 = gradient.to_kind(Kind::Float);
            match sums.get_mut(index) {
                Some(sum) => drop(sum.g_add_(&gradient_f32)),
                None => sums.push(gradient_f32.copy()),
            }
        }
    }
    let mut rows: Vec<Row> = vec![];
    for ((layout, _, gradient), sum) in together.model().weights().trained().zip(&sums) {
        rows.push(Row { name: layout.name.clone(), error: relative_error(gradient, sum) });
        if layout.name == "text.embed" {
            // the token that closes every image is the most frequent one
            let row = |tensor: &Tensor| tensor.get(i64::from(config.vision_end_token));
            rows.push(Row {
                name: "text.embed, most frequent".into(),
                error: relative_error(&row(gradient), &row(sum)),
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
        "{} micro-batches accumulated in {kind:?}: mean relative error {mean:.5}",
        arguments.micro_batches
    )?;
    for Row { name, error } in rows.iter().take(20) {
        writeln!(out, "  {name:<32} {error:9.5}")?;
    }
    Ok(())
}

fn relative_error(gradient: &Tensor, sum: &Tensor) -> f64 {
    let norm = |tensor: &Tensor| tensor.norm_scalaropt_dtype(2, Kind::Float).double_value(&[]);
    let whole = norm(sum);
    if whole == 0.0 { 0.0 } else { norm(&(gradient.to_kind(Kind::Float) - sum)) / whole }
}
