//! The contract as a check for any environment: reset, steps, the end, deadlines, bad actions.
//!
//! A violation is returned as a message, so that the test of any environment, in this crate or another, is one call.

use crate::environment::{Environment, EnvironmentError, Screen};
use arpo_core::action::{Action, Direction, ModelBox, MouseButton};
use arpo_core::task::Task;
use std::time::{Duration, Instant};

/// What an environment is checked against.
#[derive(Debug, Clone)]
pub struct Conformance {
    /// A task it can set up.
    pub task: Task,
    /// Another one.
    pub other_task: Task,
    /// Longest time of one call.
    pub call: Duration,
}

/// More characters than anyone types in one action.
const TOO_MANY_CHARACTERS: usize = 100_000;

impl Conformance {
    /// Checks everything, on new environments; the error says what is violated.
    pub fn check<E: Environment>(&self, mut make: impl FnMut() -> E) -> Result<(), String> {
        self.nothing_before_reset(&mut make())?;
        self.every_action_is_accepted(&mut make())?;
        self.bad_actions_are_harmless(&mut make())?;
        self.ending_actions_terminate(&mut make())?;
        self.deadlines_hold(&mut make())?;
        let mut environment = make();
        if environment.is_deterministic() {
            self.runs_are_repeatable(&mut environment, &mut make())?;
        }
        Ok(())
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.call
    }

    fn reset(&self, environment: &mut impl Environment, task: &Task) -> Result<Screen, String> {
        let screen =
            environment.reset(task, 1, self.deadline()).map_err(|error| format!("reset: {error}"))?;
        if screen.size().0 == 0 || screen.size().1 == 0 {
            return Err("reset: the screen has no pixels".into());
        }
        Ok(screen)
    }

    fn score(&self, environment: &mut impl Environment) -> Result<f64, String> {
        let score = environment.evaluate(self.deadline()).map_err(|error| format!("evaluate: {error}"))?;
        if (0.0..=1.0).contains(&score) { Ok(score) } else { Err(format!("evaluate: a score of {score}")) }
    }

    fn nothing_before_reset(&self, environment: &mut impl Environment) -> Result<(), String> {
        let stepped = environment.step(&Action::Wait {}, self.deadline());
        if stepped != Err(EnvironmentError::NoEpisode) {
            return Err(format!("a step before the first reset gave {stepped:?}"));
        }
        let score = environment.evaluate(self.deadline());
        if score != Err(EnvironmentError::NoEpisode) {
            return Err(format!("evaluation before the first reset gave {score:?}"));
        }
        Ok(())
    }

    /// Takes actions that do not end an episode, and checks every result.
    fn take(&self, environment: &mut impl Environment, actions: &[Action]) -> Result<Vec<Screen>, String> {
        let first = self.reset(environment, &self.task)?;
        let mut screens = Vec::new();
        for action in actions {
            let name = format!("{action:?}").chars().take(80).collect::<String>();
            let stepped =
                environment.step(action, self.deadline()).map_err(|error| format!("{name}: {error}"))?;
            if stepped.terminated || stepped.truncated {
                return Err(format!("{name} ended the episode"));
            }
            if stepped.screen.size() != first.size() {
                return Err(format!("{name} changed the size of the screen"));
            }
            screens.push(stepped.screen);
        }
        self.score(environment)?;
        Ok(screens)
    }

    fn every_action_is_accepted(&self, environment: &mut impl Environment) -> Result<(), String> {
        self.take(environment, &usual_actions()).map(|_| ())
    }

    fn bad_actions_are_harmless(&self, environment: &mut impl Environment) -> Result<(), String> {
        self.take(environment, &bad_actions())?;
        if environment.is_deterministic() {
            let before = self.reset(environment, &self.task)?;
            let actions = empty_actions();
            let after = self.take(environment, &actions)?;
            if let Some((action, _)) = actions.iter().zip(&after).find(|(_, screen)| **screen != before) {
                return Err(format!("{action:?} changed the screen"));
            }
        }
        // and the environment still works
        self.take(environment, &usual_actions()).map(|_| ())
    }

    fn ending_actions_terminate(&self, environment: &mut impl Environment) -> Result<(), String> {
        for ending in [
            Action::Finished { content: None },
            Action::CallUser {},
            Action::Infeasible {},
            Action::ErrorEnv {},
        ] {
            self.reset(environment, &self.task)?;
            let stepped = environment.step(&ending, self.deadline()).map_err(|error| error.to_string())?;
            if !stepped.terminated || stepped.truncated {
                return Err(format!("{ending:?} did not end the episode"));
            }
            let score = self.score(environment)?;
            let after = environment.step(&Action::Wait {}, self.deadline());
            if after != Err(EnvironmentError::NoEpisode) {
                return Err(format!("a step after {ending:?} gave {after:?}"));
            }
            if (self.score(environment)? - score).abs() > 0.0 {
                return Err("evaluating twice gave two scores".into());
            }
        }
        // in the middle of an episode, and another task
        self.take(environment, &usual_actions())?;
        self.reset(environment, &self.other_task)?;
        self.score(environment).map(|_| ())
    }

    fn deadlines_hold(&self, environment: &mut impl Environment) -> Result<(), String> {
        let passed =
            Instant::now().checked_sub(Duration::from_millis(1)).ok_or("the clock has just begun")?;
        let is_deadline = |error: &EnvironmentError| matches!(error, EnvironmentError::Deadline { .. });
        if !environment.reset(&self.task, 1, passed).as_ref().is_err_and(is_deadline) {
            return Err("a reset after its deadline did not return a deadline error".into());
        }
        self.reset(environment, &self.task)?;
        if !environment.step(&Action::Wait {}, passed).as_ref().is_err_and(is_deadline) {
            return Err("a step after its deadline did not return a deadline error".into());
        }
        if !environment.evaluate(passed).as_ref().is_err_and(is_deadline) {
            return Err("an evaluation after its deadline did not return a deadline error".into());
        }
        self.take(environment, &usual_actions()).map(|_| ())
    }

    fn runs_are_repeatable<E: Environment>(&self, one: &mut E, other: &mut E) -> Result<(), String> {
        let first = (self.reset(one, &self.task)?, self.take(one, &usual_actions())?, self.score(one)?);
        // an episode of another task between them must leave no trace
        self.reset(one, &self.other_task)?;
        let again = (self.reset(one, &self.task)?, self.take(one, &usual_actions())?, self.score(one)?);
        let elsewhere =
            (self.reset(other, &self.task)?, self.take(other, &usual_actions())?, self.score(other)?);
        if first == again && first == elsewhere {
            Ok(())
        } else {
            Err("the same task, seed and actions gave different pixels or scores".into())
        }
    }
}

/// One of each, for any screen of at least 100x100 pixels.
fn usual_actions() -> Vec<Action> {
    let at = |x: f64, y: f64| ModelBox::point(x, y);
    let key = |name: &str| name.to_owned();
    vec![
        Action::Click { start_box: at(30.0, 40.0) },
        Action::LeftDouble { start_box: at(80.0, 50.0) },
        Action::RightSingle { start_box: at(30.0, 75.0) },
        Action::Hover { start_box: at(90.0, 90.0) },
        Action::Drag { start_box: at(20.0, 20.0), end_box: at(80.0, 60.0) },
        Action::Select { start_box: at(20.0, 50.0), end_box: at(90.0, 50.0) },
        Action::Scroll { start_box: Some(at(50.0, 50.0)), direction: Direction::Down },
        Action::Scroll { start_box: None, direction: Direction::Up },
        Action::Scroll { start_box: Some(at(50.0, 50.0)), direction: Direction::Left },
        Action::Scroll { start_box: Some(at(50.0, 50.0)), direction: Direction::Right },
        Action::Hotkey { keys: vec![key("ctrl"), key("a")] },
        Action::Press { key: key("tab") },
        Action::Keydown { key: key("shift") },
        Action::Keyup { key: key("shift") },
        Action::Type { content: "héllo wörld".into() },
        Action::Type { content: "two\nlines\n".into() },
        Action::Wait {},
        Action::Press { key: key("escape") },
    ]
}

/// Actions without effect: points off the screen, keys that do not exist.
fn empty_actions() -> Vec<Action> {
    let off_screen = [(-5.0, 10.0), (10.0, 1e9), (f64::NAN, 1.0)].map(|(x, y)| ModelBox::point(x, y));
    let mut actions: Vec<Action> = off_screen.map(|start_box| Action::Click { start_box }).into();
    actions.extend(["", "hyperspace"].map(|key| Action::Press { key: key.into() }));
    actions.extend([
        Action::Hotkey { keys: vec![] },
        Action::Type { content: String::new() },
        Action::Other { name: "teleport".into(), arguments: vec![] },
        Action::Wait {},
    ]);
    actions
}

/// Actions that a model may generate and that must do no harm.
fn bad_actions() -> Vec<Action> {
    let mut actions = Vec::new();
    for (x, y) in
        [(-5.0, 10.0), (10.0, 1e9), (1e300, -1e300), (f64::NAN, 1.0), (f64::INFINITY, f64::NEG_INFINITY)]
    {
        let start_box = ModelBox::point(x, y);
        actions.push(Action::Click { start_box });
        actions.push(Action::RightSingle { start_box });
        actions.push(Action::Drag { start_box: ModelBox::point(10.0, 10.0), end_box: start_box });
        actions.push(Action::Scroll { start_box: Some(start_box), direction: Direction::Down });
        actions.push(Action::Hover { start_box });
        actions.push(Action::LeftTriple { start_box });
        actions.push(Action::MiddleSingle { start_box });
        actions.push(Action::DragTo { end_box: start_box, seconds: 0.5 });
    }
    for clicks in [f64::NAN, f64::INFINITY, -1e300, 0.3, 0.0] {
        actions.push(Action::Wheel { clicks, horizontal: false });
        actions.push(Action::Wheel { clicks, horizontal: true });
    }
    let unknown = || "hyperspace".to_owned();
    actions.extend([
        Action::Hotkey { keys: vec![] },
        Action::Hotkey { keys: vec!["ctrl".into(), unknown()] },
        Action::Hotkey { keys: vec![unknown(); 100] },
        Action::Press { key: String::new() },
        Action::Press { key: unknown() },
        Action::Keydown { key: unknown() },
        Action::Keyup { key: unknown() },
        Action::Type { content: String::new() },
        Action::Type { content: "x".repeat(TOO_MANY_CHARACTERS) },
        Action::Type { content: "\n".repeat(TOO_MANY_CHARACTERS) },
        Action::Type { content: "a\n".repeat(TOO_MANY_CHARACTERS / 2) },
        Action::ClickHere { button: MouseButton::Middle, times: 3 },
        Action::TypeVerbatim { text: String::new() },
        Action::TypeVerbatim { text: "a\n".repeat(TOO_MANY_CHARACTERS / 2) },
        Action::Type { content: "\u{0}\u{7}\u{202e}\u{1f600}漢字".into() },
        Action::Other { name: "teleport".into(), arguments: vec![("to".into(), "moon".into())] },
    ]);
    actions
}
