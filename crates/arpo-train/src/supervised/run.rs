//! A supervised run, new or resumed: learn, evaluate, save.

use super::evaluation::{Counts, Evaluation, evaluate};
use super::names::{Names, NamesKnown};
use super::{SupervisedOptions, batches, fresh, makers, update};
use crate::TrainError;
use crate::agent::Agent;
use crate::policy::engine::ResponseOptions;
use crate::policy::{EnginePolicy, RolloutPolicy, WeightUpdate};
use crate::run::checkpoints::{Latest, NewCheckpoint};
use crate::run::stop::StopSwitch;
use crate::run::training_state::{RestoredModel, TrainedModel, load_model, load_state};
use crate::run::{RunFolder, Start};
use arpo_core::config::OptimiserConfig;
use arpo_core::statistics::Success;
use arpo_core::trajectory::PolicyVersion;
use arpo_engine::{Engine, EngineOptions};
use arpo_model::checkpoint::{self, Weights};
use arpo_model::config::ModelConfig;
use arpo_model::model::Model;
use arpo_model::training::PassOptions;
use arpo_model::training::adamw::AdamW;
use arpo_model::training::step::Updater;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tch::{Device, Kind};

/// When a run is evaluated, saved and stopped.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// Updates between evaluations; the run is saved at each evaluation.
    pub every: u64,
    /// Further tasks of the training templates in an evaluation.
    pub tasks: usize,
    /// Tasks of the held-out templates in an evaluation.
    pub held_out_tasks: usize,
    /// Stop at the first evaluation with at least this success on further tasks ...
    pub until: Option<f64>,
    /// ... and this on held-out tasks, where both are given.
    pub until_held_out: Option<f64>,
    /// Stop after this time.
    pub limit: Option<Duration>,
}

/// The state of a run besides weights and optimiser.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SupervisedState {
    updates: u64,
    seconds: f64,
    /// An evaluation that was stopped is still owed: the mean loss that it would have reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owed_loss: Option<f64>,
}

/// An event of a supervised run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum SupervisedEvent {
    /// The run starts or resumes.
    Started {
        /// Trained parameters.
        parameters: i64,
        /// Updates made before.
        updates: u64,
    },
    /// A message for the user: a damaged checkpoint, for example.
    Notice {
        /// One line.
        message: String,
    },
    /// An update was made.
    Updated {
        /// Updates made.
        updates: u64,
        /// Minus the mean log-probability of the demonstrated tokens, or of what image tokens show in updates on letters.
        loss: f64,
    },
    /// The model was evaluated, and the run saved.
    Evaluated {
        /// Updates made.
        updates: u64,
        /// Seconds of training, those before a resume included.
        seconds: f64,
        /// Seconds that the learner waited for demonstrations since the last evaluation: more cores would save them.
        waited_seconds: f64,
        /// Seconds that this evaluation and the saving took.
        evaluation_seconds: f64,
        /// Mean loss since the last time.
        loss: f64,
        /// On tasks that are in no demonstration; `None` before the phase with episodes.
        success: Option<Success>,
        /// The same by application.
        applications: BTreeMap<String, f64>,
        /// On tasks of the held-out templates.
        held_out: Option<Success>,
        /// How well it knows names on the screen that are in no demonstration.
        names: Option<NamesKnown>,
    },
}

impl Schedule {
    /// Whether an evaluation is good enough to stop.
    fn is_reached(&self, evaluation: &Evaluation) -> bool {
        let held_out = evaluation.held_out.map(|held_out| held_out.mean);
        let goals = [(self.until, Some(evaluation.further.mean)), (self.until_held_out, held_out)];
        let given = goals.iter().any(|(goal, _)| goal.is_some());
        given
            && goals.iter().all(|(goal, mean)| goal.is_none_or(|goal| mean.is_some_and(|mean| mean >= goal)))
    }
}

struct Run {
    config: ModelConfig,
    side_files: BTreeMap<String, Vec<u8>>,
    updater: Updater,
    policy: EnginePolicy,
    state: SupervisedState,
}

/// Trains; returns the path of the model. A run that was stopped is saved without a further evaluation and has no model:
/// [`TrainError::Interrupted`]. If an evaluation was due, the resumed run begins with it.
pub fn train(
    options: &SupervisedOptions,
    schedule: &Schedule,
    folder: &RunFolder,
    start: Start,
    device: Device,
    stop: &StopSwitch,
    observer: &mut dyn FnMut(SupervisedEvent),
) -> Result<PathBuf, TrainError> {
    if device != Device::Cpu {
        // TF32 is accurate enough for training and several times as fast
        arpo_torch::shim::allow_tf32().map_err(TrainError::Internal)?;
    }
    let (mut run, agent) = Run::start(options, folder, start, device, observer)?;
    let first = run.state.updates;
    observer(SupervisedEvent::Started {
        parameters: run.updater.trainable().model().weights().count(),
        updates: first,
    });
    let names = Names::new(&agent, options)?;
    let began = Instant::now();
    let seconds_before = run.state.seconds;
    let mut prepared = batches(&agent, options, first, makers());
    let owed = run.state.owed_loss.take();
    let mut losses: Vec<f64> = owed.into_iter().collect();
    let mut waited = Duration::ZERO;
    stop.at_stake(everything_since(first));
    // an owed evaluation comes before the next update
    for number in owed.map(|_| None).into_iter().chain((first..options.updates).map(Some)) {
        if let Some(number) = number {
            let asked = Instant::now();
            let batch = prepared
                .next()
                .ok_or_else(|| TrainError::Internal("no thread makes demonstrations any more".into()))??;
            waited += asked.elapsed();
            let loss = update(&mut run.updater, options, number, &batch)?;
            losses.push(loss);
            let (updates, seconds) = (number + 1, seconds_before + began.elapsed().as_secs_f64());
            run.state = SupervisedState { updates, seconds, owed_loss: None };
            observer(SupervisedEvent::Updated { updates, loss });
        }
        let updates = run.state.updates;
        let over = updates == options.updates
            || schedule.limit.is_some_and(|limit| run.state.seconds >= limit.as_secs_f64());
        let due = over || number.is_none() || updates.is_multiple_of(schedule.every);
        if !due && !stop.requested() {
            continue;
        }
        let updated = Instant::now();
        let evaluated = match run.evaluate(options, schedule, stop) {
            Err(TrainError::Interrupted) => {
                run.state.owed_loss = due.then(|| crate::batch::mean(losses.iter().copied()));
                run.save(folder)?;
                return Err(TrainError::Interrupted);
            }
            evaluated => evaluated?,
        };
        let known = names.known(&agent, run.updater.trainable())?;
        run.save(folder)?;
        stop.at_stake(everything_since(updates));
        let reached = evaluated.as_ref().is_some_and(|evaluation| schedule.is_reached(evaluation));
        let (success, held_out, applications) = match evaluated {
            Some(Evaluation { further, applications, held_out }) => (Some(further), held_out, applications),
            None => (None, None, BTreeMap::new()),
        };
        observer(SupervisedEvent::Evaluated {
            updates,
            seconds: run.state.seconds,
            waited_seconds: std::mem::take(&mut waited).as_secs_f64(),
            evaluation_seconds: updated.elapsed().as_secs_f64(),
            loss: crate::batch::mean(losses.drain(..)),
            success,
            applications,
            held_out,
            names: known,
        });
        if over || reached {
            break;
        }
    }
    stop.at_stake("");
    // f16 for distribution: half the size, and as good
    let weights = run.updater.masters().to_kind(Kind::Half);
    let model = folder.path().join("model");
    if model.exists() {
        std::fs::remove_dir_all(&model)
            .map_err(|error| TrainError::Io(format!("{}: {error}", model.display())))?;
    }
    checkpoint::save(&model, &run.config, &weights, &run.side_files)?;
    Ok(model)
}

/// What would be lost without the checkpoint that a stop writes.
fn everything_since(update: u64) -> String {
    match update {
        0 => "everything since the beginning".into(),
        update => format!("everything since the checkpoint of update {update}"),
    }
}

impl Run {
    fn start(
        options: &SupervisedOptions,
        folder: &RunFolder,
        start: Start,
        device: Device,
        notice: &mut dyn FnMut(SupervisedEvent),
    ) -> Result<(Self, Arc<Agent>), TrainError> {
        let optimiser = OptimiserConfig {
            beta2: 0.95,
            weight_decay: 0.01,
            max_grad_norm: 1.0,
            ..OptimiserConfig::default()
        };
        let latest = if start == Start::Resume { folder.resume_point()? } else { Latest::default() };
        for message in latest.skipped {
            notice(SupervisedEvent::Notice { message });
        }
        let latest = latest.checkpoint;
        let (config, side_files, weights, optimiser, state) = if let Some(checkpoint) = latest {
            let state: SupervisedState = load_state(&checkpoint.path)?;
            let restored = load_model(&checkpoint.path, (Kind::Float, device), |_| true, optimiser)?;
            let RestoredModel { config, side_files, weights, optimiser } = restored;
            (config, side_files, weights, optimiser, state)
        } else {
            let (config, side_files, weights) = fresh::starting_model(options, device)?;
            let weights = weights.with_gradients(|_| true);
            let optimiser = AdamW::new(&weights, optimiser);
            (config, side_files, weights, optimiser, SupervisedState::default())
        };
        let agent = Arc::new(Agent::new(&config, &side_files, folder.path(), options.family.style())?);
        let on_a_cpu = device == Device::Cpu;
        let pass_options = PassOptions {
            temperature: 1.0,
            forbidden: agent.forbidden.clone(),
            activation_bytes: if on_a_cpu { 2 << 30 } else { 60 << 30 },
            logit_rows: 1 << 16,
            // equally long sequences are attended to in one call: fewer lengths keep a GPU busier than padding costs
            pad_to_multiple: if on_a_cpu { 16 } else { options.padding_on_a_gpu() },
            share_prefixes: false,
        };
        let incidents = Some(folder.incidents());
        let updater = options.precision.updater(&config, weights, optimiser, pass_options, incidents);
        let learnt = updater.trainable().model().weights();
        let policy = policy(&config, learnt, &agent, options.family.max_tokens(), device);
        Ok((Self { config, side_files, updater, policy, state }, agent))
    }

    /// `None` before the phase with episodes; [`TrainError::Interrupted`] if a stop was requested before its end.
    fn evaluate(
        &mut self,
        options: &SupervisedOptions,
        schedule: &Schedule,
        stop: &StopSwitch,
    ) -> Result<Option<Evaluation>, TrainError> {
        if stop.requested() {
            return Err(TrainError::Interrupted);
        }
        if self.state.updates <= options.first_on_episodes() {
            return Ok(None);
        }
        self.policy.publish(WeightUpdate::InPlace, PolicyVersion(self.state.updates))?;
        let counts = Counts { further: schedule.tasks, held_out: schedule.held_out_tasks };
        evaluate(&mut self.policy, options, counts, stop).map(Some)
    }

    fn save(&self, folder: &RunFolder) -> Result<(), TrainError> {
        let new = NewCheckpoint { step: self.state.updates, best: false, screens: &BTreeSet::new(), keep: 2 };
        let model = TrainedModel {
            config: &self.config,
            weights: self.updater.masters(),
            side_files: &self.side_files,
            optimiser: self.updater.optimiser(),
        };
        folder.save_training(new, |folder| model.save(folder), &self.state)?;
        Ok(())
    }
}

fn policy(
    config: &ModelConfig,
    weights: &Weights,
    agent: &Arc<Agent>,
    max_tokens: usize,
    device: Device,
) -> EnginePolicy {
    let options = EngineOptions {
        // 64 desktop episodes of 15 screenshots are 400 000 tokens of 4 KiB
        cache_bytes: if device == Device::Cpu { 512 << 20 } else { 4 << 30 },
        feature_bytes: 64 << 20,
        frozen_vision: false,
        page_tokens: 16,
        max_running: 256,
        max_prefill_tokens: 1 << 15,
        forbidden: agent.forbidden.clone(),
    };
    let model = Model::new(config.clone(), weights.share());
    let engine = Engine::new(model, agent.processor.clone(), options, PolicyVersion(0));
    let responses = ResponseOptions { temperature: 1.0, max_tokens };
    EnginePolicy::new(engine, PolicyVersion(0), Arc::clone(agent), responses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervised::{Reading, test_options};

    #[test]
    fn an_evaluation_that_was_stopped_is_made_up_once() {
        let path = std::env::temp_dir().join(format!("arpo-owed-evaluation-{}", std::process::id()));
        let options =
            SupervisedOptions { grounding_updates: 2, screens: 4, ..test_options(Reading::default()) };
        let (until, until_held_out, limit) = (None, None, None);
        let schedule = Schedule { every: 1, tasks: 1, held_out_tasks: 0, until, until_held_out, limit };
        let stopped_after = |update: u64, start: Start| {
            let folder = RunFolder::start(&path, start).unwrap();
            folder.write_config(&options.to_toml()).unwrap();
            let (stop, mut updated, mut evaluated) = (StopSwitch::default(), vec![], vec![]);
            let mut observer = |event: SupervisedEvent| match event {
                SupervisedEvent::Updated { updates, loss } => {
                    updated.push((updates, loss));
                    if updates == update {
                        stop.request();
                    }
                }
                SupervisedEvent::Evaluated { updates, loss, .. } => evaluated.push((updates, loss)),
                _ => {}
            };
            let ended = train(&options, &schedule, &folder, start, Device::Cpu, &stop, &mut observer);
            assert_eq!(matches!(ended, Err(TrainError::Interrupted)), stop.requested(), "{ended:?}");
            (updated, evaluated)
        };
        let (first, evaluated) = stopped_after(1, Start::New);
        assert!(first.len() == 1 && evaluated.is_empty(), "{evaluated:?}");
        let (second, evaluated) = stopped_after(2, Start::Resume);
        assert_eq!((second.len(), evaluated), (1, first));
        assert_eq!(stopped_after(0, Start::Resume), (vec![], second));
        assert_eq!(stopped_after(0, Start::Resume), (vec![], vec![]));
        std::fs::remove_dir_all(path).unwrap();
    }
}
