//! `arpo train`: collect, learn, evaluate, save, repeat. The trainer coordinates three ports (environments, rollout
//! policy, learner) and does not depend on their implementations.
//!
//! | to change | look in |
//! |---|---|
//! | how a configuration becomes running parts | [`parts`], [`setup`] |
//! | which tasks a run trains on and is evaluated on | `task_sets` |
//! | the ranks of a learner that is several processes | [`ranks`] |
//! | its saved state | [`state`] |
//! | the rollout worker's thread | `rollout_worker` |
//! | how an agent is evaluated | [`evaluation`] |
//! | what a resumed run does with another configuration | `changes` |
//! | its lines in `metrics.jsonl` | `metrics_line` |
//! | one iteration | `iteration`, `collecting`, `evaluation::in_training` |
//! | what of it is recorded for viewers | `handover` |

mod changes;
mod collecting;
pub mod evaluation;
mod handover;
mod iteration;
mod metrics_line;
pub mod parts;
pub mod ranks;
mod rollout_worker;
mod seeding;
pub mod setup;
pub mod state;
mod task_sets;

use crate::TrainError;
use crate::learner::Learner;
use crate::memory_plan::MemoryPlan;
use crate::run::about::{Machine, RunAbout};
use crate::run::checkpoints::{Latest, NewCheckpoint};
use crate::run::events::{Best, Notice, RunEnded, RunEvent, RunStarted};
use crate::run::metrics::{self, MetricsLog};
use crate::run::notices::Notices;
use crate::run::recording::status::Phase;
use crate::run::recording::{Recorder, Recording};
use crate::run::stop::StopSwitch;
use crate::run::training_state::load_state;
use crate::run::{RunFolder, Start};
use crate::screens::Screens;
use arpo_chart::{Chart, Series};
use arpo_core::config::{CollectMode, Config};
use arpo_core::loss::{Objective, RatioLevel};
use arpo_core::task::TaskId;
use arpo_env::faults::{Fault, FaultCounts};
use arpo_torch::driver;
use collecting::{CollectedIteration, Pending};
use handover::HandedOver;
use parts::Parts;
use rollout_worker::{RolloutWorker, WorkerOptions};
use state::RunState;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use task_sets::{TaskSet, TaskSets};

/// A training run.
pub struct Trainer<'a> {
    config: &'a Config,
    folder: &'a RunFolder,
    stop: &'a StopSwitch,
    observer: &'a mut dyn FnMut(RunEvent),
    tasks: TaskSets,
    learner: Box<dyn Learner>,
    worker: RolloutWorker,
    faults: Arc<FaultCounts>,
    /// Faults already reported in the metrics.
    faults_reported: BTreeMap<Fault, u64>,
    state: RunState,
    screens: Screens,
    metrics: MetricsLog,
    /// Iterations that are being collected, oldest first.
    pending: VecDeque<Pending>,
    /// Later iterations whose collection ended before an earlier one's.
    finished_ahead: VecDeque<(u64, CollectedIteration)>,
    resumed_at: Option<u64>,
    /// Iterations done at the newest checkpoint.
    saved_at: Option<u64>,
    /// Tasks that cannot be set up or evaluated and have been reported.
    unplayable: BTreeSet<TaskId>,
    plan: MemoryPlan,
    /// Records the run for viewers.
    recorder: Recorder,
    /// The episodes of the current iteration that were handed to it.
    handed_over: HandedOver,
    began: Instant,
}

/// Trains in a folder, as configured, until the end or until a stop is requested. The observer is called on this thread; what
/// other threads have to say in the meantime goes to the notices.
pub fn train(
    config: &Config,
    folder: &RunFolder,
    start: Start,
    stop: &StopSwitch,
    notices: &Notices,
    observer: &mut dyn FnMut(RunEvent),
) -> Result<RunEnded, TrainError> {
    Trainer::new(config, folder, start, stop, notices, observer)?.run()
}

/// The same for a new run with the given parts.
pub fn train_with(
    parts: Parts,
    config: &Config,
    folder: &RunFolder,
    stop: &StopSwitch,
    observer: &mut dyn FnMut(RunEvent),
) -> Result<RunEnded, TrainError> {
    let tasks = TaskSets::new(config)?;
    let state = first_state(&tasks, folder, config, observer)?;
    folder.write_config(&config.to_toml())?;
    Trainer::with_parts(config, folder, tasks, state, parts, stop, observer)?.run()
}

/// The state of a new run, with what its replay buffer begins with.
fn first_state(
    tasks: &TaskSets,
    folder: &RunFolder,
    config: &Config,
    observer: &mut dyn FnMut(RunEvent),
) -> Result<RunState, TrainError> {
    let mut state = tasks.first_state(config)?;
    if let Some(message) = seeding::seed(&mut state, folder, config)? {
        observer(RunEvent::Notice(Notice { message }));
    }
    Ok(state)
}

impl<'a> Trainer<'a> {
    fn new(
        config: &'a Config,
        folder: &'a RunFolder,
        start: Start,
        stop: &'a StopSwitch,
        notices: &Notices,
        observer: &'a mut dyn FnMut(RunEvent),
    ) -> Result<Self, TrainError> {
        let began = Instant::now();
        let tasks = TaskSets::new(config)?;
        let latest = if start == Start::Resume { folder.resume_point()? } else { Latest::default() };
        for message in latest.skipped {
            observer(RunEvent::Notice(Notice { message }));
        }
        let mut state = match &latest.checkpoint {
            None => first_state(&tasks, folder, config, observer)?,
            Some(checkpoint) => load_state::<RunState>(&checkpoint.path)?,
        };
        tasks.check(&state)?;
        state.replay.check().map_err(|error| TrainError::Io(error.to_string()))?;
        let changes = match start {
            // a folder without a configuration is no run, and could be neither watched nor resumed
            Start::New => {
                folder.write_config(&config.to_toml())?;
                vec![]
            }
            Start::Resume => changes::apply(config, folder, &mut state, observer)?,
        };
        let checkpoint = latest.checkpoint.as_ref();
        let checkpoint_path = checkpoint.map(|one| one.path.as_path());
        let parts = Parts::local(config, checkpoint_path, &state, folder, stop, notices)?;
        if start == Start::Resume {
            // only now: a configuration that does not work would be in the way of every later resume
            folder.write_changes(state.iteration, &changes)?;
            folder.write_config(&config.to_toml())?;
        }
        evaluation::files::remove_after(folder, state.iteration)?;
        let resumed_at = checkpoint.map(|checkpoint| checkpoint.step);
        let mut trainer = Self::with_parts(config, folder, tasks, state, parts, stop, observer)?;
        (trainer.resumed_at, trainer.saved_at, trainer.began) = (resumed_at, resumed_at, began);
        Ok(trainer)
    }

    /// A run in this state, with these parts.
    fn with_parts(
        config: &'a Config,
        folder: &'a RunFolder,
        tasks: TaskSets,
        state: RunState,
        parts: Parts,
        stop: &'a StopSwitch,
        observer: &'a mut dyn FnMut(RunEvent),
    ) -> Result<Self, TrainError> {
        let Parts { collector, faults, policy, learner, plan, decode } = parts;
        let board = collector.board();
        let options = WorkerOptions {
            temperature: config.collect.temperature,
            releases_memory: config.collect.mode == CollectMode::Synchronous,
        };
        let budget = (config.replay.screens_gib * f64::from(1 << 30)) as usize;
        let worker = RolloutWorker::start(collector, policy, options, stop)?;
        let metrics = folder.metrics_at(state.metrics)?;
        // last: a run that cannot start leaves no record of one
        let recorder = Recorder::start(Recording {
            folder,
            config: &config.logging,
            about: about(config, learner.as_ref()),
            resumed: state.resumed(),
            decode,
            board,
        });
        Ok(Self {
            config,
            folder,
            stop,
            observer,
            tasks,
            learner,
            worker,
            faults,
            faults_reported: BTreeMap::new(),
            screens: Screens::with_store(Arc::clone(folder.screens()), budget),
            metrics,
            state,
            pending: VecDeque::new(),
            finished_ahead: VecDeque::new(),
            resumed_at: None,
            saved_at: None,
            unplayable: BTreeSet::new(),
            plan,
            recorder,
            handed_over: vec![],
            began: Instant::now(),
        })
    }

    fn run(mut self) -> Result<RunEnded, TrainError> {
        let ended = self.run_to_the_end();
        if let Err(error) = &ended {
            self.recorder.close(&format!("failed: {error}"));
        }
        ended
    }

    fn run_to_the_end(&mut self) -> Result<RunEnded, TrainError> {
        self.announce();
        let interrupted = match self.iterate_to_the_end() {
            Err(TrainError::Interrupted) => true,
            other => other.map(|()| false)?,
        };
        if interrupted {
            self.save_unfinished()?;
        }
        self.stop.at_stake("");
        if let Err(error) = self.worker.close() {
            (self.observer)(RunEvent::Notice(Notice { message: error.to_string() }));
        }
        let curve = self.draw_curve().unwrap_or_else(|error| {
            (self.observer)(RunEvent::Notice(Notice { message: error.to_string() }));
            None
        });
        for message in self.recorder.close(if interrupted { "stopped" } else { "finished" }) {
            (self.observer)(RunEvent::Notice(Notice { message }));
        }
        let ended = self.ended(interrupted, curve);
        (self.observer)(RunEvent::RunEnded(ended.clone()));
        Ok(ended)
    }

    fn announce(&mut self) {
        let info = self.learner.info();
        let started = RunStarted {
            folder: self.folder.path().to_path_buf(),
            resumed_at: self.resumed_at,
            iterations: self.config.iterations,
            method: method(self.config),
            parameters: info.parameters,
            device: info.device,
            tasks: self.tasks.count(self.config),
            desktops: self.config.collect.desktops,
            seed: self.config.seed,
        };
        (self.observer)(RunEvent::RunStarted(started));
        for message in info.notices {
            (self.observer)(RunEvent::Notice(Notice { message }));
        }
    }

    fn iterate_to_the_end(&mut self) -> Result<(), TrainError> {
        self.evaluate_before_training()?;
        while self.state.iteration < self.config.iterations {
            if self.stop.requested() {
                return Err(TrainError::Interrupted);
            }
            self.update_at_stake();
            self.iterate()?;
        }
        Ok(())
    }

    /// Tells the user what the recorder has to say.
    fn pass_on_notices(&mut self) {
        for message in self.recorder.notices() {
            (self.observer)(RunEvent::Notice(Notice { message }));
        }
    }

    fn update_at_stake(&self) {
        let since = self.saved_at.map_or("the beginning".to_owned(), |step| format!("iteration {step}"));
        self.stop.at_stake(format!("everything since the checkpoint of {since}"));
    }

    /// Saves a stopped run, unless it is already saved or has not begun.
    fn save_unfinished(&mut self) -> Result<(), TrainError> {
        let unsaved = self.saved_at != Some(self.state.iteration) || self.state.unfinished.is_some();
        if unsaved && self.state.resumed().is_some() {
            self.update_at_stake();
            // not `learner.skipped()`: an interrupted update may be counted there, and is counted again when repeated
            let skipped = self.state.unfinished.as_ref().map_or(0, |iteration| iteration.updates.skipped());
            self.state.skipped += skipped as u64;
            self.save(false)?;
        }
        Ok(())
    }

    /// Writes a checkpoint.
    fn save(&mut self, best: bool) -> Result<PathBuf, TrainError> {
        self.state.metrics = self.metrics.position();
        self.recorder.phase(Phase::Save, self.state.iteration, 0);
        let screens = self.state.save_screens(&self.screens, self.folder.screens())?;
        let new = NewCheckpoint {
            step: self.state.iteration,
            best,
            screens: &screens,
            keep: self.config.checkpoints.keep,
        };
        let learner = &self.learner;
        let path = self.folder.save_training(new, |folder| learner.save(folder), &self.state)?;
        self.saved_at = Some(self.state.iteration);
        Ok(path)
    }

    /// Plots success over iterations; `None` with fewer than two evaluations.
    fn draw_curve(&self) -> Result<Option<PathBuf>, TrainError> {
        if self.state.evaluations.count < 2 {
            return Ok(None);
        }
        let lines = metrics::read(&self.folder.metrics_file())?;
        let curve = |set: TaskSet| {
            let key = format!("evaluation/{}", set.key());
            let (low, high) = (format!("{key}/low"), format!("{key}/high"));
            Series::of_metrics_with_band(set.legend(), &lines, "iteration", &key, (&low, &high))
        };
        let series = TaskSet::ALL.map(curve).into_iter().filter(|series| !series.points.is_empty()).collect();
        let title = format!("{}, seed {}", method(self.config), self.config.seed);
        Ok(Some(self.folder.write_file("curve.png", &Chart::of_success(&title, series).png())?))
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

/// The method, as text.
fn method(config: &Config) -> String {
    let loss = match (config.loss.objective, config.loss.ratio) {
        (Objective::SoftGate, _) => "SAPO",
        (Objective::Clip, RatioLevel::Token) => "GRPO",
        (Objective::Clip, RatioLevel::Turn | RatioLevel::Trajectory) => "GSPO",
    };
    let replays = config.replay.enabled && !config.tasks.endless;
    let replay = match (loss, replays) {
        ("GRPO", true) => "ARPO (GRPO with replay)".to_owned(),
        (loss, true) => format!("{loss} with replay"),
        (loss, false) => loss.to_owned(),
    };
    let steps = if config.advantage.step_weight > 0.0 { ", step advantages" } else { "" };
    let mode = match config.collect.mode {
        CollectMode::Synchronous => "",
        CollectMode::Overlapped => ", overlapped",
    };
    format!("{replay}{steps}{mode}")
}

/// What a run is, for the record.
fn about(config: &Config, learner: &dyn Learner) -> RunAbout {
    let info = learner.info();
    let gpu = || Some(driver::query().ok()?.devices.first()?.name.clone());
    let machine = Machine::this(if info.device.to_lowercase().contains("cuda") { gpu() } else { None });
    RunAbout {
        arpo: env!("CARGO_PKG_VERSION").to_owned(),
        iterations: config.iterations,
        method: method(config),
        parameters: info.parameters,
        device: info.device,
        machine,
        seed: config.seed,
        ..RunAbout::default()
    }
}
