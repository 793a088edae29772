//! `arpo bench vision`: the vision tower's forward pass, as the rollout engine runs it.

use super::{ModelName, compute_kind, timed, warn_without_kernels, write_json};
use crate::Failure;
use crate::device::DeviceName;
use arpo_model::checkpoint::Weights;
use arpo_model::model::Model;
use clap::Args;
use serde::Serialize;
use std::io::Write;
use tch::{Kind, Tensor};

/// The arguments of `arpo bench vision`.
#[derive(Args)]
pub(crate) struct VisionArguments {
    /// The device
    #[arg(long, value_enum, default_value = "cpu")]
    device: DeviceName,
    /// The model's shapes
    #[arg(long, value_enum, default_value = "pocket")]
    model: ModelName,
    /// Screenshots per batch
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8])]
    pictures: Vec<usize>,
    /// Measured passes, after one warm-up
    #[arg(long, default_value_t = 5)]
    passes: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    pictures: usize,
    patches: usize,
    seconds: f64,
    milliseconds_per_picture: f64,
}

pub(crate) fn run(arguments: &VisionArguments, out: &mut impl Write) -> Result<(), Failure> {
    let device = arguments.device.device()?;
    let (config, grid) = (arguments.model.config(), arguments.model.grid());
    let patch_values = config.vision.patch_values();
    let weights = Weights::random(&config, compute_kind(device), device);
    warn_without_kernels(weights.kernels());
    let model = Model::new(config, weights);
    let mut reports = Vec::new();
    for &pictures in &arguments.pictures {
        let grids = vec![grid; pictures];
        let patches = grid.patches() * pictures;
        let pixels = Tensor::randn([patches as i64, patch_values], (Kind::Float, device));
        let pass = || timed(device, || tch::no_grad(|| model.vision().forward(&pixels, &grids))).1;
        pass();
        let seconds = (0..arguments.passes).map(|_| pass()).sum::<f64>() / arguments.passes as f64;
        let milliseconds_per_picture = seconds * 1000.0 / pictures as f64;
        reports.push(Report { pictures, patches, seconds, milliseconds_per_picture });
    }
    if arguments.json {
        return write_json(&reports, out);
    }
    for Report { pictures, patches, seconds, milliseconds_per_picture } in reports {
        writeln!(
            out,
            "{pictures:3} screenshots, {patches:7} patches: {seconds:8.4} s, {milliseconds_per_picture:8.2} ms each"
        )?;
    }
    Ok(())
}
