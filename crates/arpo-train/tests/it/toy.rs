//! A desktop that does what a test says, and what is collected on it.

use arpo_core::action::Action;
use arpo_core::config::Order;
use arpo_core::task::{Task, TaskId};
use arpo_core::trajectory::Trajectory;
use arpo_env::environment::{Environment, EnvironmentError, Screen, Stepped, ends_episode};
use arpo_train::TrainError;
use arpo_train::collect::{CollectOptions, Collected, Collector, DesktopFactory, GroupPlan, PlanOptions};
use arpo_train::episode::History;
use arpo_train::policy::ScriptedPolicy;
use image::{Rgb, RgbImage};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A call that is about to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Occasion {
    pub(crate) place: usize,
    pub(crate) call: &'static str,
    pub(crate) task: String,
    pub(crate) seed: u64,
    pub(crate) steps: u8,
}

/// What happens then.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Deed {
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

pub(crate) type Rule = dyn Fn(&Occasion) -> Deed + Send + Sync;

struct Toy {
    rule: Arc<Rule>,
    now: Occasion,
}

impl Toy {
    fn deed(&mut self, call: &'static str) -> Result<Deed, EnvironmentError> {
        self.now.call = call;
        let deed = (self.rule)(&self.now);
        match deed {
            Deed::After(time) => sleep(time),
            Deed::Hang => sleep(Duration::from_hours(1)),
            Deed::Break => return Err(EnvironmentError::Broken { reason: "as the test says".into() }),
            Deed::Panic => panic!("as the test says"),
            Deed::BadTask => {
                return Err(EnvironmentError::BadTask {
                    task: self.now.task.clone(),
                    reason: "silly".into(),
                });
            }
            Deed::Well | Deed::Black | Deed::Small | Deed::BadScore => {}
        }
        Ok(deed)
    }

    fn screen(&self, deed: Deed) -> Screen {
        let grey = (self.now.seed % 100) as u8 + 2 * self.now.steps + 1;
        let image = match deed {
            Deed::Black => RgbImage::new(8, 6),
            Deed::Small => RgbImage::from_pixel(8, 3, Rgb([grey; 3])),
            _ => RgbImage::from_pixel(8, 6, Rgb([grey; 3])),
        };
        Screen { image: Arc::new(image) }
    }
}

impl Environment for Toy {
    fn reset(&mut self, task: &Task, seed: u64, _: Instant) -> Result<Screen, EnvironmentError> {
        (self.now.task, self.now.seed, self.now.steps) = (task.id.to_string(), seed, 0);
        let deed = self.deed("reset")?;
        Ok(self.screen(deed))
    }

    fn step(&mut self, action: &Action, _: Instant) -> Result<Stepped, EnvironmentError> {
        let deed = self.deed("step")?;
        self.now.steps += 1;
        Ok(Stepped { screen: self.screen(deed), terminated: ends_episode(action), truncated: false })
    }

    fn evaluate(&mut self, _: Instant) -> Result<f64, EnvironmentError> {
        let deed = self.deed("evaluate")?;
        Ok(if matches!(deed, Deed::BadScore) { f64::NAN } else { (self.now.seed % 2) as f64 })
    }

    fn screen_size(&self) -> Option<(u32, u32)> {
        Some((8, 6))
    }
}

pub(crate) fn factory(rule: impl Fn(&Occasion) -> Deed + Send + Sync + 'static) -> Arc<DesktopFactory> {
    let rule: Arc<Rule> = Arc::new(rule);
    Arc::new(move |place| {
        let now = Occasion { place, call: "start", task: String::new(), seed: 0, steps: 0 };
        let mut toy = Toy { rule: Arc::clone(&rule), now };
        toy.deed("start")?;
        Ok(Box::new(toy))
    })
}

/// Generous, so that only what never ends is late; a test with hangs sets its own.
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
        judge_unparsable: false,
    }
}

/// Groups of this size, with tasks `task 0`, `task 1`, ...
pub(crate) fn groups(count: usize, group_size: usize, refills: usize) -> Vec<GroupPlan> {
    let plan = PlanOptions { seed: 5, iteration: 2, group_size, refills, max_steps: 5 };
    let task = |number: usize| Task {
        id: TaskId::new(format!("task {number}")),
        instruction: format!("do {number}"),
        application: String::new(),
        setup: serde_json::Value::Null,
        evaluator: serde_json::Value::Null,
    };
    (0..count).map(|number| GroupPlan::new(Arc::new(task(number)), number, &plan)).collect()
}

/// Waits for a while that its seed says, then finishes, or says nothing that is an action, or goes on for ever.
pub(crate) fn policy() -> ScriptedPolicy {
    let script = |history: &History| -> Result<String, TrainError> {
        let (turn, seed) = (history.answers.len() as u64, history.plan.sampling_seed);
        let last = history.screens.last().map_or(0, |screen| screen.image.get_pixel(0, 0)[0]);
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
    factory: Arc<DesktopFactory>,
    desktops: usize,
    options: CollectOptions,
    groups: Vec<GroupPlan>,
) -> Result<Collected, TrainError> {
    Collector::new(factory, desktops, options).collect(&mut policy(), groups, &mut |_| {})
}

pub(crate) fn trajectories(collected: &Collected) -> Vec<Vec<Trajectory>> {
    let episodes = |episodes: &[arpo_train::episode::PlayedEpisode]| {
        episodes.iter().map(|one| one.trajectory.clone()).collect()
    };
    collected.groups.iter().map(|group| episodes(&group.episodes)).collect()
}
