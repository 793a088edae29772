//! A desktop whose behaviour a test defines, and helpers for collecting on it.

use arpo_core::action::Action;
use arpo_core::config::Order;
use arpo_core::task::{Task, TaskId};
use arpo_core::trajectory::Trajectory;
use arpo_env::environment::{Environment, EnvironmentError, Screen, StepResult, ends_episode};
use arpo_suite::EnvironmentSource;
use arpo_train::TrainError;
use arpo_train::collect::{CollectOptions, Collected, Collector, GroupPlan, GroupSize, Planner, Worlds};
use arpo_train::episode::History;
use arpo_train::policy::ScriptedPolicy;
use image::{Rgb, RgbImage};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A call that is about to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallContext {
    pub(crate) slot: usize,
    pub(crate) call: &'static str,
    pub(crate) task: String,
    pub(crate) seed: u64,
    pub(crate) steps: u8,
}

/// How a desktop behaves in a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Behaviour {
    Well,
    After(Duration),
    Hang,
    Break,
    Panic,
    Black,
    Small,
    BadTask,
    BadScore,
}

pub(crate) type Rule = dyn Fn(&CallContext) -> Behaviour + Send + Sync;

struct Toy {
    rule: Arc<Rule>,
    now: CallContext,
}

impl Toy {
    fn behaviour(&mut self, call: &'static str) -> Result<Behaviour, EnvironmentError> {
        self.now.call = call;
        let behaviour = (self.rule)(&self.now);
        match behaviour {
            Behaviour::After(time) => sleep(time),
            Behaviour::Hang => sleep(Duration::from_hours(1)),
            Behaviour::Break => return Err(EnvironmentError::Broken { reason: "as the test says".into() }),
            Behaviour::Panic => panic!("as the test says"),
            Behaviour::BadTask => {
                return Err(EnvironmentError::BadTask {
                    task: self.now.task.clone(),
                    reason: "silly".into(),
                });
            }
            Behaviour::Well | Behaviour::Black | Behaviour::Small | Behaviour::BadScore => {}
        }
        Ok(behaviour)
    }

    fn screen(&self, behaviour: Behaviour) -> Screen {
        let grey = (self.now.seed % 100) as u8 + 2 * self.now.steps + 1;
        let image = match behaviour {
            Behaviour::Black => RgbImage::new(8, 6),
            Behaviour::Small => RgbImage::from_pixel(8, 3, Rgb([grey; 3])),
            _ => RgbImage::from_pixel(8, 6, Rgb([grey; 3])),
        };
        Screen::new(image)
    }
}

impl Environment for Toy {
    fn reset(&mut self, task: &Task, seed: u64, _: Instant) -> Result<Screen, EnvironmentError> {
        (self.now.task, self.now.seed, self.now.steps) = (task.id.to_string(), seed, 0);
        let behaviour = self.behaviour("reset")?;
        Ok(self.screen(behaviour))
    }

    fn step(&mut self, action: &Action, _: Instant) -> Result<StepResult, EnvironmentError> {
        let behaviour = self.behaviour("step")?;
        self.now.steps += 1;
        Ok(StepResult { screen: self.screen(behaviour), terminated: ends_episode(action), truncated: false })
    }

    fn evaluate(&mut self, _: Instant) -> Result<f64, EnvironmentError> {
        let behaviour = self.behaviour("evaluate")?;
        Ok(if matches!(behaviour, Behaviour::BadScore) { f64::NAN } else { (self.now.seed % 2) as f64 })
    }

    fn screen_size(&self) -> Option<(u32, u32)> {
        Some((8, 6))
    }
}

pub(crate) fn factory(
    rule: impl Fn(&CallContext) -> Behaviour + Send + Sync + 'static,
) -> Arc<dyn EnvironmentSource> {
    let rule: Arc<Rule> = Arc::new(rule);
    Arc::new(move |slot| {
        let now = CallContext { slot, call: "start", task: String::new(), seed: 0, steps: 0 };
        let mut toy = Toy { rule: Arc::clone(&rule), now };
        toy.behaviour("start")?;
        Ok(Box::new(toy) as Box<dyn Environment>)
    })
}

/// Generous deadlines, so that only a call that hangs overruns; a test with hangs sets its own.
pub(crate) fn options(order: Order) -> CollectOptions {
    let minute = Duration::from_mins(1);
    CollectOptions {
        order,
        running: None,
        start: minute,
        reset: minute,
        step: minute,
        evaluate: minute,
        back_off: Duration::from_millis(1),
        quarantine_after: 3,
        evaluate_unparsable: false,
        keep_screens: true,
    }
}

/// Groups of this size, with tasks `task 0`, `task 1`, ...
pub(crate) fn groups(count: usize, group_size: usize, refills: usize) -> Vec<GroupPlan> {
    let planner = Planner { seed: 5, step: 2, worlds: Worlds::Own, faulty: false };
    let size = GroupSize::new(group_size, refills, 5);
    let task = |number: usize| Task {
        id: TaskId::new(format!("task {number}")),
        instruction: format!("do {number}"),
        application: String::new(),
        setup: serde_json::Value::Null,
        evaluator: serde_json::Value::Null,
    };
    (0..count).map(|number| planner.group(&Arc::new(task(number)), number as u64, size)).collect()
}

/// Depending on its seed, waits for some turns and then finishes, responds without an action, or never finishes.
pub(crate) fn policy() -> ScriptedPolicy {
    let script = |history: &History| -> Result<String, TrainError> {
        let (turn, seed) = (history.responses.len() as u64, history.plan.sampling_seed);
        let last = history.screens.last().map_or(0, |screen| screen.image().unwrap().get_pixel(0, 0)[0]);
        Ok(match seed % 8 {
            7 if turn == 1 => format!("what is {last}?"),
            6 => "Action: wait()\n\nwait()".into(),
            end if turn >= end => "Action: finished()".into(),
            _ => format!("Thought: {last}\nAction: wait()"),
        })
    };
    ScriptedPolicy::new(script, Duration::ZERO)
}

pub(crate) fn collect(
    factory: Arc<dyn EnvironmentSource>,
    desktops: usize,
    options: CollectOptions,
    groups: Vec<GroupPlan>,
) -> Result<Collected, TrainError> {
    Collector::new(factory, desktops, options).collect(&mut policy(), groups, &mut |_| {})
}

pub(crate) fn trajectories(collected: &Collected) -> Vec<Vec<Trajectory>> {
    let episodes = |episodes: &[arpo_train::episode::CompletedEpisode]| {
        episodes.iter().map(|one| one.trajectory.clone()).collect()
    };
    collected.groups.iter().map(|group| episodes(&group.episodes)).collect()
}
