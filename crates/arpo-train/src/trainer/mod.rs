//! `arpo train`: collect, learn, judge, save, and again.
//!
//! | to change | look in |
//! |---|---|
//! | what a run is made of | [`setup`] |
//! | which tasks it trains on and is evaluated on | `task_lists`, `task_sets` |
//! | what it remembers | [`state`] |
//! | who plays, and when | `player` |
//! | how an agent is judged | [`evaluation`], [`evaluation_files`] |
//! | what it leaves in `metrics.jsonl` | `line` |
//! | one iteration | `iteration` |

pub mod evaluation;
pub mod evaluation_files;
mod iteration;
mod line;
pub mod osworld;
mod player;
pub mod setup;
pub mod state;
mod task_lists;
mod task_sets;

use crate::TrainError;
use crate::agent::Agent;
use crate::base_model;
use crate::memory::guarded;
use crate::memory_plan::{MemoryPlan, Work};
use crate::run::checkpoints::{Latest, NewCheckpoint};
use crate::run::events::{Best, Notice, RunEnded, RunEvent, RunStarted};
use crate::run::folder::config_changes;
use crate::run::metrics::{self, MetricsLog};
use crate::run::resume::may_change;
use crate::run::stop::StopSwitch;
use crate::run::training_state::{Learnt, MODEL, load_training};
use crate::run::{RunFolder, Start};
use crate::screens::Screens;
use arpo_chart::{Chart, Series};
use arpo_core::config::{CollectMode, Config, Layer, OptimiserConfig, resolve};
use arpo_core::task::TaskId;
use arpo_engine::KnownFeatures;
use arpo_env::faults::{Fault, FaultCounts};
use arpo_model::checkpoint::Weights;
use arpo_model::checkpoint::layout::ParameterLayout;
use arpo_model::config::ModelConfig;
use arpo_model::learner::Learner;
use arpo_model::learner::adamw::AdamW;
use arpo_model::learner::step::Updater;
use arpo_torch::kernels;
use iteration::{Pending, Played};
use player::Player;
use setup::Loaded;
use state::RunState;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use task_sets::{TaskSet, TaskSets};
use tch::{Device, Tensor};

/// What is done before the first iteration, and what would help.
const MAKING_ROOM: &str = "making room to learn";
const NOTHING_ELSE: &str = "nothing else on the device";

/// A run under way.
pub struct Trainer<'a> {
    config: &'a Config,
    folder: &'a RunFolder,
    stop: &'a StopSwitch,
    tell: &'a mut dyn FnMut(RunEvent),
    dimensions: ModelConfig,
    side_files: BTreeMap<String, Vec<u8>>,
    agent: Arc<Agent>,
    tasks: TaskSets,
    updater: Updater,
    reference: Option<Learner>,
    /// What the player makes of screens, if the vision tower is not trained.
    features: Option<KnownFeatures>,
    player: Player,
    faults: Arc<FaultCounts>,
    /// Those that a line of metrics has told of.
    faults_told: BTreeMap<Fault, u64>,
    state: RunState,
    screens: Screens,
    metrics: MetricsLog,
    /// Plans that are being played, oldest first.
    pending: VecDeque<Pending>,
    /// What came for a later iteration while an earlier one was waited for.
    early: VecDeque<(u64, Played)>,
    resumed_at: Option<u64>,
    /// Iterations behind the newest checkpoint.
    saved_at: Option<u64>,
    /// Tasks that cannot be played and were told of.
    unplayable: BTreeSet<TaskId>,
    /// Memory of the device that is not to be used.
    #[expect(dead_code, reason = "held, not looked at")]
    held_back: Option<Tensor>,
    plan: MemoryPlan,
    began: Instant,
}

/// Trains as the configuration says, in a folder, until the end or until it is asked to stop.
pub fn train(
    config: &Config,
    folder: &RunFolder,
    start: Start,
    stop: &StopSwitch,
    tell: &mut dyn FnMut(RunEvent),
) -> Result<RunEnded, TrainError> {
    let mut trainer = Trainer::new(config, folder, start, stop, tell)?;
    trainer.announce();
    let interrupted = match trainer.iterate_to_the_end() {
        Err(TrainError::Interrupted) => true,
        other => other.map(|()| false)?,
    };
    if interrupted {
        trainer.save_where_it_stands()?;
    }
    stop.at_stake("");
    if let Err(error) = trainer.player.close() {
        (trainer.tell)(RunEvent::Notice(Notice { message: error.to_string() }));
    }
    let curve = trainer.draw_curve()?;
    let ended = trainer.ended(interrupted, curve);
    (trainer.tell)(RunEvent::RunEnded(ended.clone()));
    Ok(ended)
}

/// Tells and writes down what a configuration has otherwise than the one a run began with. What is left of an iteration was
/// planned with that one, so it is learnt from no further if results change.
fn changed(
    config: &Config,
    folder: &RunFolder,
    mut state: RunState,
    tell: &mut dyn FnMut(RunEvent),
) -> Result<RunState, TrainError> {
    let stored = folder.config()?.unwrap_or_default();
    let was = Layer::toml("config.toml", &stored).and_then(|layer| resolve(&[layer]));
    let was = was.map_err(|error| TrainError::Options(error.to_string()))?;
    let changes = config_changes(&was.to_toml(), &config.to_toml());
    for change in &changes {
        tell(RunEvent::Notice(Notice { message: change.in_words() }));
    }
    folder.write_changes(state.iteration, &changes)?;
    if changes.iter().any(|change| !may_change(&change.key))
        && let Some(unfinished) = &mut state.unfinished
    {
        let message = format!("what was left of iteration {} is not learnt from", state.iteration + 1);
        tell(RunEvent::Notice(Notice { message }));
        unfinished.samples.clear();
    }
    Ok(state)
}

impl<'a> Trainer<'a> {
    fn new(
        config: &'a Config,
        folder: &'a RunFolder,
        start: Start,
        stop: &'a StopSwitch,
        tell: &'a mut dyn FnMut(RunEvent),
    ) -> Result<Self, TrainError> {
        let began = Instant::now();
        let tasks = TaskSets::new(config)?;
        let latest = if start == Start::Resume { folder.resume_point()? } else { Latest::default() };
        for message in latest.skipped {
            tell(RunEvent::Notice(Notice { message }));
        }
        // a checkpoint knows its model: the base need not be there any more
        let dimensions = match &latest.checkpoint {
            Some(checkpoint) => arpo_model::config::read(&checkpoint.path.join(MODEL))?,
            None => base_model::dimensions(&config.model.base)?,
        };
        let plan = setup::checked_memory(config, &dimensions, Work::Training)?;
        let held_back = setup::held_back(config, setup::place(config)?.1)?;
        let optimiser_config = OptimiserConfig { moments: plan.moments, ..config.optimiser.clone() };
        let trained = |layout: &ParameterLayout| !(config.model.freeze_vision && layout.is_vision());
        let (loaded, optimiser, state) = match &latest.checkpoint {
            None => {
                let loaded = setup::load(config)?;
                let (weights, optimiser) = guarded(MAKING_ROOM, NOTHING_ELSE, || {
                    let weights = loaded.weights.with_gradients(trained);
                    let optimiser = AdamW::new(&weights, optimiser_config);
                    Ok((weights, optimiser))
                })?;
                let loaded = Loaded { weights, ..loaded };
                let state = tasks.first_state(config)?;
                (loaded, optimiser, state)
            }
            Some(checkpoint) => {
                let place = setup::place(config)?;
                let restored = load_training::<RunState>(&checkpoint.path, place, trained, optimiser_config)?;
                restored.state.replay.check().map_err(|error| TrainError::Options(error.to_string()))?;
                let agent = Arc::new(setup::agent(config, &restored.config, &restored.side_files)?);
                let loaded = Loaded {
                    config: restored.config,
                    weights: restored.weights,
                    side_files: restored.side_files,
                    agent,
                };
                (loaded, restored.optimiser, restored.state)
            }
        };
        let state = if start == Start::Resume { changed(config, folder, state, tell)? } else { state };
        folder.write_config(&config.to_toml())?;
        evaluation_files::forget_after(folder, state.iteration)?;
        if stop.asked() {
            return Err(TrainError::Interrupted);
        }
        let Loaded { config: dimensions, weights, side_files, agent } = loaded;
        let side_files = setup::side_files_of(config, side_files);
        let shares = config.collect.mode == CollectMode::Synchronous;
        let played_with = if shares { weights.share() } else { weights.to_kind(weights.kind()) };
        let policy = setup::policy_within(&plan, config, &dimensions, &played_with, &agent, state.version());
        let features = config.model.freeze_vision.then(|| policy.engine().features());
        let faults = Arc::new(FaultCounts::default());
        let player = Player::start(setup::collector(config, &faults)?, policy, shares, stop)?;
        let reference = setup::reference(config, &agent)?;
        let learner = setup::learner(config, &dimensions, weights, &agent);
        Ok(Self {
            config,
            folder,
            stop,
            tell,
            dimensions,
            side_files,
            agent,
            tasks,
            updater: Updater::new(learner, optimiser, Some(folder.incidents())).with_skipped(state.skipped),
            reference,
            features,
            player,
            faults,
            faults_told: BTreeMap::new(),
            screens: Screens::with_store(
                Arc::clone(folder.screens()),
                (config.replay.screens_gib * f64::from(1 << 30)) as usize,
            ),
            metrics: folder.metrics_at(state.metrics)?,
            pending: VecDeque::new(),
            early: VecDeque::new(),
            held_back,
            plan,
            resumed_at: latest.checkpoint.as_ref().map(|checkpoint| checkpoint.step),
            saved_at: latest.checkpoint.map(|checkpoint| checkpoint.step),
            unplayable: BTreeSet::new(),
            state,
            began,
        })
    }

    fn weights(&self) -> &Weights {
        self.updater.learner().model().weights()
    }

    fn announce(&mut self) {
        let started = RunStarted {
            folder: self.folder.path().to_path_buf(),
            resumed_at: self.resumed_at,
            iterations: self.config.iterations,
            method: self.method(),
            parameters: self.weights().count() as u64,
            device: format!("{:?}", self.updater.learner().model().device()).to_lowercase(),
            tasks: self.tasks.count(self.config),
            desktops: self.config.collect.desktops,
            seed: self.config.seed,
        };
        (self.tell)(RunEvent::RunStarted(started));
        if self.updater.learner().model().device() != Device::Cpu
            && let Some(message) = kernels::slower()
        {
            (self.tell)(RunEvent::Notice(Notice { message }));
        }
    }

    fn iterate_to_the_end(&mut self) -> Result<(), TrainError> {
        self.judge_before_the_first()?;
        while self.state.iteration < self.config.iterations {
            if self.stop.asked() {
                return Err(TrainError::Interrupted);
            }
            self.say_what_is_at_stake();
            self.iterate()?;
        }
        Ok(())
    }

    fn say_what_is_at_stake(&self) {
        let since = self.saved_at.map_or("the beginning".to_owned(), |step| format!("iteration {step}"));
        self.stop.at_stake(format!("everything since the checkpoint of {since}"));
    }

    /// Saves a run that was stopped, unless that is done or there is nothing yet.
    fn save_where_it_stands(&mut self) -> Result<(), TrainError> {
        let begun = self.state.evaluations.count > 0 || self.state.iteration > 0;
        let moved = self.saved_at != Some(self.state.iteration) || self.state.unfinished.is_some();
        if moved && (begun || self.state.unfinished.is_some()) {
            self.say_what_is_at_stake();
            // an update that was given up may have been counted, and will be again
            let skipped = self.state.unfinished.as_ref().map_or(0, |iteration| iteration.updates.skipped());
            self.state.skipped += skipped as u64;
            self.save(false)?;
        }
        Ok(())
    }

    /// Writes a checkpoint.
    fn save(&mut self, best: bool) -> Result<PathBuf, TrainError> {
        self.state.metrics = self.metrics.position();
        let screens = self.state.save_screens(&self.screens, self.folder.screens())?;
        let new = NewCheckpoint {
            step: self.state.iteration,
            best,
            screens: &screens,
            keep: self.config.checkpoints.keep,
        };
        let learnt = Learnt {
            config: &self.dimensions,
            weights: self.updater.learner().model().weights(),
            side_files: &self.side_files,
            optimiser: self.updater.optimiser(),
        };
        let path = self.folder.save_training(new, learnt, &self.state)?;
        self.saved_at = Some(self.state.iteration);
        Ok(path)
    }

    /// Success over iterations as a picture; none if nothing was evaluated.
    fn draw_curve(&self) -> Result<Option<PathBuf>, TrainError> {
        if self.state.evaluations.count < 2 {
            return Ok(None);
        }
        let lines = metrics::read(&self.folder.metrics_file())?;
        let curve = |set: TaskSet| {
            let key = format!("evaluation/{}", set.key());
            let (low, high) = (format!("{key}/low"), format!("{key}/high"));
            Series::of_metrics_with_band(set.words(), &lines, "iteration", &key, (&low, &high))
        };
        let series = TaskSet::ALL.map(curve).into_iter().filter(|series| !series.points.is_empty()).collect();
        let title = format!("{}, seed {}", self.method(), self.config.seed);
        Ok(Some(self.folder.write_file("curve.png", &Chart::of_success(&title, series).png())?))
    }

    fn method(&self) -> String {
        let replays = self.config.replay.enabled && !self.config.tasks.endless;
        let replay = if replays { "ARPO (GRPO with replay)" } else { "GRPO" };
        let mode = match self.config.collect.mode {
            CollectMode::Synchronous => "",
            CollectMode::Overlapped => ", overlapped",
        };
        format!("{replay}{mode}")
    }

    fn ended(&self, interrupted: bool, curve: Option<PathBuf>) -> RunEnded {
        let mut written = vec![
            ("metrics".to_owned(), self.folder.metrics_file()),
            ("checkpoints".to_owned(), self.folder.checkpoints()),
        ];
        if self.folder.best().exists() {
            written.push(("best model".to_owned(), self.folder.best().join("model")));
        }
        written.extend(curve.map(|path| ("curve".to_owned(), path)));
        RunEnded {
            iterations: self.state.iteration,
            of: self.config.iterations,
            seconds: self.began.elapsed().as_secs_f64(),
            interrupted,
            first: self.state.evaluations.first.clone(),
            last: self.state.evaluations.last.clone(),
            best: self.state.evaluations.best.clone().map(|(iteration, suites)| Best { iteration, suites }),
            episodes: self.state.episodes,
            environment_errors: self.state.environment_errors,
            unplayable: self.unplayable.iter().cloned().collect(),
            written,
        }
    }
}
