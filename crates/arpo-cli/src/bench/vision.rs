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
    #[arg(long, alias = "pictures", value_delimiter = ',', default_values_t = [1, 8])]
    screenshots: Vec<usize>,
    /// Measured passes, after one warm-up
    #[arg(long, default_value_t = 5)]
    passes: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    screenshots: usize,
    patches: usize,
    seconds: f64,
    milliseconds_per_screenshot: f64,
}

pub(crate) fn run(arguments: &VisionArguments, out: &mut impl Write) -> Result<(), Failure> {
    let device = arguments.device.device()?;
    let (config, grid) = (arguments.model.config(), arguments.model.grid());
    let patch_values = config.vision.patch_values();
    let weights = Weights::random(&config, compute_kind(device), device);
    warn_without_kernels(weights.kernels());
    let model = Model::new(config, weights);
    let mut reports = Vec::new();
    for &screenshots in &arguments.screenshots {
        let grids = vec![grid; screenshots];
        let patches = grid.patches() * screenshots;
        let pixels = Tensor::randn([patches as i64, patch_values], (Kind::Float, device));
        let pass = || timed(device, || tch::no_grad(|| model.vision().forward(&pixels, &grids))).1;
        pass();
        let seconds = (0..arguments.passes).map(|_| pass()).sum::<f64>() / arguments.passes as f64;
        let milliseconds_per_screenshot = seconds * 1000.0 / screenshots as f64;
        reports.push(Report { screenshots, patches, seconds, milliseconds_per_screenshot });
    }
    if arguments.json {
        return write_json(&reports, out);
    }
    for Report { screenshots, patches, seconds, milliseconds_per_screenshot } in reports {
        writeln!(
            out,
            "{screenshots:3} screenshots, {patches:7} patches: {seconds:8.4} s, {milliseconds_per_screenshot:8.2} ms each"
        )?;
    }
    Ok(())
}
