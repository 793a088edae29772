//! Scripted policies: the oracle, a random one and a clumsy one; and running a whole episode with any of them.

use crate::embedded::EmbeddedDesktop;
use crate::environment::{Environment, EnvironmentError};
use crate::oracle::Oracle;
use arpo_core::action::{Action, Direction, ModelBox};
use arpo_core::random::{Purpose, stream};
use arpo_core::task::Task;
use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use std::time::{Duration, Instant};

/// Probability of a mistake before each action of the clumsy policy, for every stated score.
pub const CLUMSINESS: f64 = 0.1;

/// A scripted policy.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a handful live at a time")]
pub enum Scripted {
    /// Solves tasks.
    Oracle(Oracle),
    /// Clicks, types, scrolls and presses keys anywhere.
    Random(RandomPolicy),
    /// The oracle, with mistakes.
    Clumsy(ClumsyPolicy),
}

impl Scripted {
    /// The oracle without detours.
    pub fn oracle() -> Self {
        Self::Oracle(Oracle::new())
    }

    /// The random policy.
    pub fn random(seed: u64) -> Self {
        Self::Random(RandomPolicy { rng: stream(seed, Purpose::Environment, 2, 0) })
    }

    /// The clumsy policy: before an action it does something else with this probability.
    pub fn clumsy(seed: u64, mistakes: f64) -> Self {
        let rng = stream(seed, Purpose::Environment, 3, 0);
        Self::Clumsy(ClumsyPolicy { oracle: Oracle::new(), mistakes, rng })
    }

    /// The next action.
    pub fn next_action(&mut self, environment: &EmbeddedDesktop) -> Action {
        match self {
            Self::Oracle(oracle) => oracle.next_action(environment),
            Self::Random(random) => random.next_action(environment),
            Self::Clumsy(clumsy) => clumsy.next_action(environment),
        }
    }
}

/// Acts at random: any point, any key, a few words.
#[derive(Debug)]
pub struct RandomPolicy {
    rng: ChaCha8Rng,
}

const RANDOM_WORDS: [&str; 4] = ["a", "7", "red", "hello"];
const RANDOM_KEYS: [&str; 6] = ["enter", "tab", "escape", "backspace", "delete", "down"];

impl RandomPolicy {
    fn next_action(&mut self, environment: &EmbeddedDesktop) -> Action {
        let rng = &mut self.rng;
        let (width, height) = (environment.options().width, environment.options().height);
        let mut point = || {
            let (x, y) = (rng.random_range(0..width), rng.random_range(0..height));
            ModelBox::point(f64::from(x), f64::from(y))
        };
        let (start_box, end_box) = (point(), point());
        match rng.random_range(0..200) {
            0..120 => Action::Click { start_box },
            120..130 => Action::LeftDouble { start_box },
            130..140 => Action::RightSingle { start_box },
            140..150 => Action::Drag { start_box, end_box },
            150..160 => Action::Scroll { start_box: Some(start_box), direction: Direction::Down },
            160..180 => {
                let word = RANDOM_WORDS.choose(rng).copied().unwrap_or_default();
                Action::Type { content: word.into() }
            }
            180..194 => {
                let key = RANDOM_KEYS.choose(rng).copied().unwrap_or_default();
                Action::Press { key: key.into() }
            }
            194..199 => Action::Finished { content: None },
            _ => Action::CallUser {},
        }
    }
}

/// The oracle, but now and then it uses a random widget instead.
#[derive(Debug)]
pub struct ClumsyPolicy {
    oracle: Oracle,
    mistakes: f64,
    rng: ChaCha8Rng,
}

impl ClumsyPolicy {
    fn next_action(&mut self, environment: &EmbeddedDesktop) -> Action {
        if !self.rng.random_bool(self.mistakes) {
            return self.oracle.next_action(environment);
        }
        let widgets = environment.widgets();
        let clickable: Vec<_> = widgets.iter().filter(|widget| widget.is_clickable()).collect();
        match (clickable.choose(&mut self.rng), self.rng.random_range(0..6)) {
            (_, 0) => Action::Finished { content: None },
            (Some(widget), _) => {
                let (x, y) = widget.centre();
                Action::Click { start_box: ModelBox::point(x, y) }
            }
            (None, _) => Action::Wait {},
        }
    }
}

/// Score and actions of an episode.
#[derive(Debug, Clone, PartialEq)]
pub struct EpisodeResult {
    /// How well the task was done.
    pub score: f64,
    /// The actions taken.
    pub actions: Vec<Action>,
}

/// Time limit of a call to the embedded desktop, in seconds; it takes milliseconds.
const CALL_SECS: u64 = 60;

/// Runs an episode until the policy ends it or the step limit is reached.
pub fn run_episode(
    environment: &mut EmbeddedDesktop,
    task: &Task,
    seed: u64,
    policy: &mut Scripted,
    max_steps: usize,
) -> Result<EpisodeResult, EnvironmentError> {
    let deadline = || Instant::now() + Duration::from_secs(CALL_SECS);
    environment.reset(task, seed, deadline())?;
    let mut actions = Vec::new();
    while actions.len() < max_steps {
        let action = policy.next_action(environment);
        let stepped = environment.step(&action, deadline())?;
        actions.push(action);
        if stepped.terminated || stepped.truncated {
            break;
        }
    }
    Ok(EpisodeResult { score: environment.evaluate(deadline())?, actions })
}
