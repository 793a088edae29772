//! `arpo offline`: offline training on episodes that `arpo rollout` collected.

use crate::Failure;
use crate::config::Layers;
use crate::resume::resume_or_start;
use crate::show::UpdateProgress;
use arpo_core::config::{Config, OptimiserConfig};
use arpo_core::trajectory::Trajectory;
use arpo_model::checkpoint;
use arpo_model::checkpoint::layout::ParameterLayout;
use arpo_model::training::adamw::AdamW;
use arpo_model::training::step::Updater;
use arpo_train::TrainError;
use arpo_train::base_model;
use arpo_train::learner::{Learner, LocalLearner};
use arpo_train::memory::guarded;
use arpo_train::memory_plan::Work;
use arpo_train::offline::{Method, Offline};
use arpo_train::run::checkpoints::NewCheckpoint;
use arpo_train::run::stop::StopSwitch;
use arpo_train::run::training_state::{RestoredModel, load_model, load_state};
use arpo_train::run::{RunFolder, episodes};
use arpo_train::trainer::setup::{self, Loaded};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// The arguments of `arpo offline`.
#[derive(Args)]
pub(crate) struct OfflineArguments {
    #[command(flatten)]
    layers: Layers,
    /// The method
    #[arg(long, value_enum)]
    method: MethodName,
    /// The folder written by `arpo rollout`
    #[arg(long, value_name = "FOLDER")]
    data: PathBuf,
    /// The folder for the model
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Resume the run in --out after its last complete epoch, with the configuration stored there
    #[arg(long)]
    resume: bool,
    /// Print only problems and the result, no progress
    #[arg(long)]
    quiet: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MethodName {
    /// Rejection sampling: supervised training on the successes
    Rejection,
    /// DPO: prefer a success over a failure of the same task
    Dpo,
    /// KTO: successes are desirable, failures undesirable
    Kto,
}

/// The state in a checkpoint.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfflineState {
    epochs: usize,
}

/// Stores method and data in the folder; a resumed run must use the same.
fn check_same_inputs(arguments: &OfflineArguments, folder: &RunFolder) -> Result<(), Failure> {
    const FILE: &str = "offline.json";
    let data = arguments.data.canonicalize().unwrap_or_else(|_| arguments.data.clone());
    let method = arguments.method.to_possible_value().map(|name| name.get_name().to_owned());
    let is = json!({"method": method, "data": data});
    match std::fs::read_to_string(folder.path().join(FILE)) {
        Ok(text) if serde_json::from_str::<Value>(&text).ok().as_ref() != Some(&is) => {
            Err(Failure::usage(format!(
                "--resume: {} was started with {}: expected the same --data and --method",
                folder.path().display(),
                text.trim()
            )))
        }
        Ok(_) => Ok(()),
        Err(_) => {
            let text = format!("{is}\n");
            folder.write_file(FILE, text.as_bytes()).map(drop).map_err(Failure::failed)
        }
    }
}

/// More ranks would be planned for, and never come.
fn check_ranks(config: &Config) -> Result<(), Failure> {
    match config.learn.ranks {
        1 => Ok(()),
        ranks => Err(Failure::usage(format!(
            "`learn.ranks` = {ranks}: expected 1, because offline training runs in one process"
        ))),
    }
}

pub(crate) fn run(arguments: &OfflineArguments, out: &mut impl Write) -> Result<(), Failure> {
    if !arguments.resume {
        // before there is a folder
        check_ranks(&arguments.layers.resolve()?)?;
    }
    let (trajectories, screens) = episodes::read(&arguments.data).map_err(Failure::usage)?;
    let trajectories: Vec<Arc<Trajectory>> = trajectories.into_iter().map(Arc::new).collect();
    let (folder, config) =
        resume_or_start(&arguments.out, &arguments.layers, arguments.resume, Work::Training)?;
    check_ranks(&config)?;
    check_same_inputs(arguments, &folder)?;
    let stop = StopSwitch::listening().map_err(Failure::failed)?;
    stop.at_stake("the current epoch");
    let dimensions = base_model::dimensions(&config.model.base).map_err(Failure::of)?;
    let plan = setup::checked_memory(&config, &dimensions, Work::Training).map_err(Failure::of)?;
    let Loaded { weights, side_files, agent, .. } = setup::load(&config).map_err(Failure::of)?;
    let trained = |layout: &ParameterLayout| !(config.model.freeze_vision && layout.is_vision());
    let side_files = setup::side_files_of(&config, side_files);
    let optimiser_config = OptimiserConfig { moments: plan.moments, ..config.optimiser.clone() };
    let learner_of = |weights, optimiser| {
        let model = setup::trainable_model(&config, &dimensions, weights, &agent);
        let updater = Updater::new(model, optimiser, Some(folder.incidents()));
        LocalLearner::new(updater, agent.processor.clone(), config.model.micro_batch_tokens)
            .stopped_by(stop.clone())
            .with_side_files(side_files.clone())
    };
    let (alone, less) =
        ("nothing else on the device", "a smaller `model.activation_gib` or `model.memory_gib`");
    let allocated = guarded("allocating gradients and moments", alone, || {
        let weights = weights.with_gradients(trained);
        let optimiser = AdamW::new(&weights, optimiser_config.clone());
        Ok(learner_of(weights, optimiser))
    });
    let mut base = allocated.map_err(Failure::of)?;
    let method = match arguments.method {
        MethodName::Rejection => Method::Rejection,
        MethodName::Dpo => Method::Dpo,
        MethodName::Kto => Method::Kto,
    };
    // the base model is the reference, also after a resume from a checkpoint
    let offline = guarded("scoring the episodes", less, || {
        Offline::new(method, &trajectories, &mut base, &screens, agent.image_token, &config)
    });
    let offline = offline.map_err(Failure::of)?;
    let (mut learner, done) = match folder.resume_point().map_err(Failure::failed)?.checkpoint {
        None => (base, 0),
        Some(found) => {
            // the plan has memory for one model
            drop(base);
            let state: OfflineState = load_state(&found.path).map_err(Failure::failed)?;
            let dtype_and_device = setup::dtype_and_device(&config).map_err(Failure::of)?;
            let restored = guarded("loading the checkpoint", alone, || {
                load_model(&found.path, dtype_and_device, trained, optimiser_config)
            });
            let RestoredModel { weights, optimiser, .. } = restored.map_err(Failure::of)?;
            (learner_of(weights, optimiser), state.epochs)
        }
    };
    let epochs = config.offline.epochs;
    for number in done + 1..=epochs {
        let bar = UpdateProgress::new(number, epochs, arguments.quiet);
        let mut progress = |made: usize, all: usize| bar.set(made, all);
        let epoch =
            guarded("learning", less, || offline.epoch(number, &mut learner, &screens, &mut progress));
        drop(bar);
        let epoch = match epoch {
            Err(TrainError::Interrupted) => {
                let message = format!("stopped after {} of {epochs} epochs; --resume continues", number - 1);
                return Err(Failure::Stopped(Some(message)));
            }
            epoch => epoch.map_err(Failure::of)?,
        };
        let new = NewCheckpoint { step: number as u64, best: false, screens: &BTreeSet::new(), keep: 1 };
        folder
            .save_training(new, |checkpoint| learner.save(checkpoint), &OfflineState { epochs: number })
            .map_err(Failure::failed)?;
        writeln!(
            out,
            "epoch {number}/{epochs}: loss {:.4}, gradient {:.3}, {} updates",
            epoch.loss, epoch.gradient_norm, epoch.updates
        )?;
        out.flush()?;
    }
    let model = folder.path().join("model");
    if !model.exists() {
        let weights = learner.updater().trainable().model().weights();
        checkpoint::save(&model, &dimensions, weights, &side_files).map_err(Failure::failed)?;
    }
    writeln!(out, "written: {}", model.display())?;
    Ok(())
}
