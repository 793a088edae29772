//! The trainer coordinates its three ports without a tensor: fakes stand in for desktops, policy and learner.

use crate::run_folder::Temporary;
use crate::toy::{Behaviour, factory, options, policy};
use arpo_agent::geometry::Size;
use arpo_core::config::{Config, Layer, Order, resolve};
use arpo_core::trajectory::{PolicyVersion, Trajectory};
use arpo_train::TrainError;
use arpo_train::collect::Collector;
use arpo_train::episode::{History, TranscriptSlice};
use arpo_train::learner::{Learner, LearnerInfo, LossOfSpan, Scorer, TrainedSpan, UpdateReport};
use arpo_train::memory_plan::{DeviceMemory, MemoryPlan, Work};
use arpo_train::policy::{
    GenerationRequest, Policy, RequestId, Response, RolloutPolicy, ScriptedPolicy, WeightUpdate,
};
use arpo_train::run::events::RunEvent;
use arpo_train::run::stop::StopSwitch;
use arpo_train::run::{RunFolder, Start};
use arpo_train::screens::Screens;
use arpo_train::trainer::parts::Parts;
use arpo_train::trainer::train_with;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What the trainer did, in order.
pub(crate) type Log = Arc<Mutex<Vec<String>>>;

fn note(log: &Log, what: impl Into<String>) {
    log.lock().unwrap().push(what.into());
}

/// A script that can be given new weights.
struct FakePolicy {
    script: ScriptedPolicy,
    version: PolicyVersion,
    log: Log,
}

impl Policy for FakePolicy {
    fn submit(&mut self, request: GenerationRequest) -> Result<(), TrainError> {
        self.script.submit(request)
    }

    fn pending(&self) -> usize {
        self.script.pending()
    }

    fn step(&mut self) -> Result<Vec<(RequestId, Response)>, TrainError> {
        let version = self.version;
        let responses = self.script.step()?.into_iter();
        Ok(responses.map(|(id, response)| (id, Response { version, ..response })).collect())
    }

    fn cancel_all(&mut self) {
        self.script.cancel_all();
    }

    fn version(&self) -> PolicyVersion {
        self.version
    }

    fn transcript(&self, history: &History) -> Result<Vec<TranscriptSlice>, TrainError> {
        self.script.transcript(history)
    }
}

impl RolloutPolicy for FakePolicy {
    fn publish(&mut self, _: WeightUpdate, version: PolicyVersion) -> Result<(), TrainError> {
        note(&self.log, format!("sample with {}", version.0));
        self.version = version;
        Ok(())
    }

    fn set_temperature(&mut self, temperature: f64) {
        note(&self.log, format!("at temperature {temperature}"));
    }

    fn release_memory(&mut self) -> Result<(), TrainError> {
        note(&self.log, "release memory");
        Ok(())
    }
}

/// Calls the loss function for every trajectory and learns nothing.
struct FakeLearner(Log);

impl Learner for FakeLearner {
    fn info(&self) -> LearnerInfo {
        LearnerInfo { parameters: 7, device: "nowhere".into(), notices: vec!["slow".into()] }
    }

    fn log_probs(
        &mut self,
        _: Scorer,
        trajectories: &[&Trajectory],
        _: &Screens,
    ) -> Result<Vec<Vec<f32>>, TrainError> {
        Ok(trajectories.iter().map(|one| vec![-1.0; one.trained_tokens()]).collect())
    }

    fn update(
        &mut self,
        trajectories: &[&Trajectory],
        screens: &Screens,
        _: f64,
        loss: &mut LossOfSpan,
    ) -> Result<UpdateReport, TrainError> {
        let mut sum = 0.0;
        for (number, trajectory) in trajectories.iter().enumerate() {
            // the screenshots to train on are available
            assert_eq!(screens.of(&trajectory.steps)?.len(), trajectory.steps.len());
            let trained = 0..trajectory.trained_tokens();
            let logp = vec![-1.0; trained.len()];
            let one = loss(&TrainedSpan { trajectory: number, trained }, &logp);
            assert_eq!(one.coefficients.len(), logp.len());
            sum += one.value;
        }
        note(&self.0, "update");
        Ok(UpdateReport { loss: sum, gradient_norm: Some(1.0), applied: true, entropy: vec![0.5] })
    }

    fn weights(&self) -> WeightUpdate {
        WeightUpdate::InPlace
    }

    fn skipped(&self) -> u64 {
        0
    }

    fn save(&self, checkpoint: &Path) -> Result<(), TrainError> {
        fs::create_dir(checkpoint.join("model")).unwrap();
        fs::write(checkpoint.join("model/weights"), "fake").unwrap();
        Ok(())
    }
}

pub(crate) fn config() -> Config {
    let settings = [
        "iterations=3",
        "tasks.list=quick",
        "tasks.count=4",
        "task_sampling.order=\"shuffled\"",
        "effort.informative_groups=0",
        "collect.tasks=2",
        "collect.group_size=4",
        "collect.desktops=3",
        "collect.max_steps=5",
        "optimiser.batch=\"all\"",
        "optimiser.trajectories_per_update=4",
        "effort.solved_rollouts=0",
        "evaluation.every=2",
        "evaluation.samples=1",
        "evaluation.unseen=\"never\"",
        "evaluation.held_out=\"never\"",
        "checkpoints.every=1",
    ];
    let set = settings.iter().map(|setting| Layer::set(setting).unwrap());
    resolve(&[vec![Layer::preset("quick").unwrap()], set.collect()].concat()).unwrap()
}

pub(crate) fn parts(config: &Config, log: &Log) -> Parts {
    let screen = Size { width: 8, height: 6 };
    let model = arpo_model::config::pocket();
    Parts {
        collector: Collector::new(
            factory(|_| Behaviour::Well),
            config.collect.desktops,
            options(Order::Rounds),
        ),
        faults: Arc::default(),
        policy: Box::new(FakePolicy { script: policy(), version: PolicyVersion(0), log: Arc::clone(log) }),
        learner: Box::new(FakeLearner(Arc::clone(log))),
        plan: MemoryPlan::new(&model, config, screen, DeviceMemory::Cpu(None), Work::Training),
        // a script's tokens are the bytes of its text
        decode: Arc::new(|tokens| String::from_utf8(tokens.iter().map(|&token| token as u8).collect()).ok()),
    }
}

#[test]
fn a_run_samples_learns_evaluates_and_saves_in_turn() {
    let temporary = Temporary::new("coordinator");
    let folder = RunFolder::start(&temporary.run(), Start::New).unwrap();
    let (config, log) = (config(), Log::default());
    let mut events = vec![];
    let ended = train_with(parts(&config, &log), &config, &folder, &StopSwitch::default(), &mut |event| {
        events.push(event);
    })
    .unwrap();
    assert_eq!((ended.iterations, ended.interrupted), (3, false));
    let sampled = |version: u64, temperature: f64| {
        [format!("sample with {version}"), format!("at temperature {temperature}"), "release memory".into()]
    };
    let (training, evaluation) = (config.collect.temperature, config.evaluation.temperature);
    // two groups of four, four per update; evaluated before the first, after the second and at the end
    let updates = ["update".to_owned(), "update".to_owned()];
    let expected = [
        sampled(0, evaluation).as_slice(),
        &sampled(0, training),
        &updates,
        &sampled(1, training),
        &updates,
        &sampled(2, evaluation),
        &sampled(2, training),
        &updates,
        &sampled(3, evaluation),
    ]
    .concat();
    assert_eq!(*log.lock().unwrap(), expected);
    let notices = events.iter().filter(|event| matches!(event, RunEvent::Notice(_))).count();
    assert_eq!(notices, 1);
    let metrics = fs::read_to_string(folder.metrics_file()).unwrap();
    assert_eq!(metrics.lines().count(), 4);
    let saved = folder.checkpoints().join("step-000003/model/weights");
    assert_eq!(fs::read_to_string(saved).unwrap(), "fake");
}

/// With a stop requested before the start, the run ends at once and can be resumed.
#[test]
fn a_stop_request_ends_the_run_at_once() {
    let temporary = Temporary::new("coordinator-stopped");
    let folder = RunFolder::start(&temporary.run(), Start::New).unwrap();
    let (config, log, stop) = (config(), Log::default(), StopSwitch::default());
    stop.request();
    let ended = train_with(parts(&config, &log), &config, &folder, &stop, &mut |_| {}).unwrap();
    assert!(ended.interrupted && ended.iterations == 0);
    assert!(!log.lock().unwrap().contains(&"update".to_owned()));
}

/// Two rollouts of each group come first; the other two follow where one of the first was unparsable and the other was not.
#[test]
fn groups_go_on_only_if_their_first_rollouts_differ() {
    let temporary = Temporary::new("coordinator-probes");
    let folder = RunFolder::start(&temporary.run(), Start::New).unwrap();
    let mut config = config();
    (config.iterations, config.evaluation.every) = (12, 0);
    (config.effort.probe_rollouts, config.reward.format_weight) = (2, 0.5);
    train_with(parts(&config, &Log::default()), &config, &folder, &StopSwitch::default(), &mut |_| {})
        .unwrap();
    let metrics = fs::read_to_string(folder.metrics_file()).unwrap();
    let mut went_on = 0;
    for line in metrics.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()) {
        let spread = line["groups/spread"].as_u64().unwrap();
        assert_eq!(line["collect/episodes"].as_u64(), Some(4 + 2 * spread), "{line}");
        went_on += spread;
    }
    assert!((1..24).contains(&went_on), "{went_on} of 24 groups");
}
