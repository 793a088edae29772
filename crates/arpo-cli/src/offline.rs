//! `arpo offline`: learning from episodes that `arpo rollout` collected.

use crate::Failure;
use crate::config::Layers;
use arpo_core::config::OptimiserConfig;
use arpo_core::trajectory::Trajectory;
use arpo_model::checkpoint;
use arpo_model::checkpoint::layout::ParameterLayout;
use arpo_model::learner::adamw::AdamW;
use arpo_model::learner::step::Updater;
use arpo_train::base_model;
use arpo_train::layout::Layout;
use arpo_train::memory::guarded;
use arpo_train::memory_plan::Work;
use arpo_train::offline::{Method, Offline};
use arpo_train::run::{RunFolder, Start, episodes};
use arpo_train::trainer::setup::{self, Loaded};
use clap::{Args, ValueEnum};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// What `arpo offline` takes.
#[derive(Args)]
pub(crate) struct OfflineArguments {
    #[command(flatten)]
    layers: Layers,
    /// How to learn
    #[arg(long, value_enum)]
    method: MethodName,
    /// The folder that `arpo rollout` filled
    #[arg(long, value_name = "FOLDER")]
    data: PathBuf,
    /// The new folder for the model
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MethodName {
    /// Imitate the successes
    Rejection,
    /// Prefer a success over a failure of the same task
    Dpo,
    /// Successes are desirable, failures undesirable
    Kto,
}

pub(crate) fn run(arguments: &OfflineArguments, out: &mut impl Write) -> Result<(), Failure> {
    let config = arguments.layers.resolve()?;
    let (trajectories, screens) = episodes::read(&arguments.data).map_err(Failure::failed)?;
    let trajectories: Vec<Arc<Trajectory>> = trajectories.into_iter().map(Arc::new).collect();
    let folder = RunFolder::start(&arguments.out, Start::New).map_err(Failure::failed)?;
    folder.write_config(&config.to_toml()).map_err(Failure::failed)?;
    let dimensions = base_model::dimensions(&config.model.base).map_err(Failure::failed)?;
    let plan = setup::checked_memory(&config, &dimensions, Work::Training).map_err(Failure::failed)?;
    let Loaded { weights, side_files, agent, .. } = setup::load(&config).map_err(Failure::failed)?;
    let trained = |layout: &ParameterLayout| !(config.model.freeze_vision && layout.is_vision());
    let weights = weights.with_gradients(trained);
    let moments = plan.moments;
    let optimiser = AdamW::new(&weights, OptimiserConfig { moments, ..config.optimiser.clone() });
    let learner = setup::learner(&config, &dimensions, weights, &agent);
    let mut updater = Updater::new(learner, optimiser, Some(folder.incidents()));
    let layout = Layout {
        screens: &screens,
        processor: &agent.processor,
        features: None,
        micro_batch_tokens: config.model.micro_batch_tokens,
    };
    let method = match arguments.method {
        MethodName::Rejection => Method::Rejection,
        MethodName::Dpo => Method::Dpo,
        MethodName::Kto => Method::Kto,
    };
    let offline = Offline::new(method, &trajectories, &updater, &layout, agent.image_token, &config)
        .map_err(Failure::failed)?;
    for number in 1..=config.offline.epochs {
        let less = "a smaller `model.activation_gib` or `model.memory_gib`";
        let epoch = guarded("learning", less, || offline.epoch(number, &mut updater, &layout));
        let epoch = epoch.map_err(Failure::failed)?;
        writeln!(
            out,
            "epoch {number}/{}: loss {:.4}, gradient {:.3}, {} updates",
            config.offline.epochs, epoch.loss, epoch.gradient_norm, epoch.updates
        )?;
        out.flush()?;
    }
    let model = folder.path().join("model");
    let weights = updater.learner().model().weights();
    checkpoint::save(&model, &dimensions, weights, &side_files).map_err(Failure::failed)?;
    writeln!(out, "written: {}", model.display())?;
    Ok(())
}
