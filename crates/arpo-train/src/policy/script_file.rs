//! Tasks solved by hand: a JSON file with the responses of each task, in order.
//!
//! `{"task": ["click(start_box='(100,200)')", {"wait": "changed"}, "Thought: ...\nAction: hotkey(key='ctrl s')", ...]}`.
//! Coordinates are pixels of the screen. A response without `Action:` is the action alone. After the last response the agent
//! finishes; in a task with an empty list it does nothing. A task of a domain may be named by `domain/id` or by the id alone.
//!
//! `{"wait": "changed"}` is `wait()` until the response before it has had a visible effect: until the screen differs from the one
//! before that response, and has come to rest. So a script does not depend on the speed of the machine.

use crate::TrainError;
use crate::episode::{EpisodeScreen, History};
use crate::policy::ScriptedPolicy;
use arpo_agent::parse::parse;
use arpo_core::task::Task;
use arpo_core::trajectory::EpisodeId;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const FINISHED: &str = "Action: finished(content='')";
const WAIT: &str = "Action: wait()";

/// A script goes on after this many waits, whatever the screen shows.
const MOST_WAITS: usize = 60;

/// A response has had a visible effect if more pixels than this have changed: those of a tick in a box are more.
const UNSEEN_PIXELS: u32 = 16;

/// Changes in a bar of at most this width are a caret that blinks.
const CARET_WIDTH: u32 = 3;

/// A screen rests while at most this share of its pixels changes in a turn: a clock goes on, and so does a progress bar.
const AT_REST: f64 = 0.0005;

/// A step of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ScriptStep {
    Response(String),
    WaitForChange,
}

/// The steps of each task, by task id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptFile {
    steps: BTreeMap<String, Vec<ScriptStep>>,
}

impl ScriptFile {
    /// Reads a file; an error if a response in it cannot be parsed.
    pub fn read(path: &Path) -> Result<Self, TrainError> {
        let wrong = |problem: String| TrainError::Configuration(format!("{}: {problem}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        Self::parse(&text).map_err(wrong)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let scripts: BTreeMap<String, Vec<Value>> = serde_json::from_str(text)
            .map_err(|error| format!("{error}; expected {{\"task id\": [\"response\", ...]}}"))?;
        let mut steps = BTreeMap::new();
        for (task, script) in scripts {
            let step = |(number, value): (usize, Value)| {
                step_of(value).map_err(|problem| format!("task {task}, response {}: {problem}", number + 1))
            };
            let script = script.into_iter().enumerate().map(step).collect::<Result<Vec<_>, _>>()?;
            steps.insert(task, script);
        }
        Ok(Self { steps })
    }

    /// The tasks that it names.
    pub fn tasks(&self) -> Vec<String> {
        self.steps.keys().cloned().collect()
    }

    /// The policy that responds with these scripts; an error if one of the tasks has none.
    pub fn policy(self, tasks: &[Arc<Task>]) -> Result<ScriptedPolicy, TrainError> {
        let without: Vec<&str> =
            tasks.iter().map(|task| task.id.as_str()).filter(|name| self.script(name).is_none()).collect();
        if !without.is_empty() {
            return Err(TrainError::Configuration(format!(
                "no script for {}: expected a list of responses, or an empty list to do nothing",
                without.join(", ")
            )));
        }
        let mut players = Players { file: self, players: HashMap::new() };
        Ok(ScriptedPolicy::new(move |history: &History| players.next(history), Duration::ZERO))
    }

    /// The steps of a task; those of the full name come first.
    fn script(&self, name: &str) -> Option<&Vec<ScriptStep>> {
        let id = name.rsplit_once('/').map_or(name, |(_, id)| id);
        self.steps.get(name).or_else(|| self.steps.get(id))
    }
}

fn step_of(value: Value) -> Result<ScriptStep, String> {
    match value {
        Value::String(mut response) => {
            if !response.contains("Action:") {
                response = format!("Action: {response}");
            }
            parse(&response).map_err(|error| error.to_string())?;
            Ok(ScriptStep::Response(response))
        }
        value if value == json!({"wait": "changed"}) => Ok(ScriptStep::WaitForChange),
        other => Err(format!("{other}: expected a response, or {{\"wait\": \"changed\"}}")),
    }
}

/// The episodes that are being played.
struct Players {
    file: ScriptFile,
    players: HashMap<EpisodeId, Player>,
}

impl Players {
    /// The next response of an episode.
    fn next(&mut self, history: &History) -> Result<String, TrainError> {
        let plan = &history.plan;
        if history.responses.is_empty() {
            self.players.remove(&plan.id);
        }
        let script = self.file.script(plan.task.id.as_str()).map(Vec::as_slice).unwrap_or_default();
        let player = self.players.entry(plan.id.clone()).or_default();
        let response = player.next(script, &history.screens)?;
        if response == FINISHED {
            self.players.remove(&plan.id);
        }
        Ok(response)
    }
}

/// Where an episode is in its script.
#[derive(Default)]
struct Player {
    /// The next step.
    at: usize,
    /// Waits of the current step.
    waits: usize,
    /// The screen before the last response that was no wait for a change.
    before: Option<EpisodeScreen>,
}

impl Player {
    /// The next response of an episode with these screens.
    fn next(&mut self, script: &[ScriptStep], screens: &[EpisodeScreen]) -> Result<String, TrainError> {
        while let Some(step) = script.get(self.at) {
            match step {
                ScriptStep::Response(response) => {
                    (self.at, self.waits) = (self.at + 1, 0);
                    self.before = screens.last().cloned();
                    return Ok(response.clone());
                }
                ScriptStep::WaitForChange if self.waits < MOST_WAITS && !self.has_changed(screens)? => {
                    self.waits += 1;
                    return Ok(WAIT.to_owned());
                }
                ScriptStep::WaitForChange => (self.at, self.waits) = (self.at + 1, 0),
            }
        }
        Ok(FINISHED.to_owned())
    }

    /// Whether the screen has changed since the last response and has come to rest.
    fn has_changed(&self, screens: &[EpisodeScreen]) -> Result<bool, TrainError> {
        let [.., earlier, last] = screens else { return Ok(false) };
        let is_effect = match &self.before {
            None => true,
            Some(before) => Difference::between(before, last)?.is_effect(),
        };
        Ok(is_effect && Difference::between(earlier, last)?.is_rest())
    }
}

/// What differs between two screens.
struct Difference {
    pixels: u32,
    /// Of the narrowest bar that holds them.
    width: u32,
    /// Their share of all pixels.
    share: f64,
}

impl Difference {
    fn between(one: &EpisodeScreen, other: &EpisodeScreen) -> Result<Self, TrainError> {
        if one.digest() == other.digest() {
            return Ok(Self { pixels: 0, width: 0, share: 0.0 });
        }
        if one.size() != other.size() {
            return Ok(Self { pixels: u32::MAX, width: u32::MAX, share: 1.0 });
        }
        let (one, other) = (one.image()?, other.image()?);
        let (mut pixels, mut first, mut last) = (0_u32, u32::MAX, 0_u32);
        for ((x, _, one), other) in one.enumerate_pixels().zip(other.pixels()) {
            if one != other {
                (pixels, first, last) = (pixels + 1, first.min(x), last.max(x));
            }
        }
        let share = f64::from(pixels) / (f64::from(one.width()) * f64::from(one.height()));
        Ok(Self { pixels, width: (last + 1).saturating_sub(first), share })
    }

    /// Whether it is the effect of a response.
    fn is_effect(&self) -> bool {
        self.pixels > UNSEEN_PIXELS && self.width > CARET_WIDTH
    }

    /// Whether the screen rests between the two.
    fn is_rest(&self) -> bool {
        self.share <= AT_REST
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::EpisodePlan;
    use crate::policy::Response;
    use arpo_core::task::TaskId;
    use arpo_core::trajectory::PolicyVersion;
    use image::{Rgb, RgbImage};

    #[test]
    fn unparsable_responses_are_found_when_the_file_is_read() {
        let file = ScriptFile::parse(r#"{"a": ["click(start_box='(1,2)')"], "b": [{"wait": "changed"}]}"#);
        let steps = file.unwrap().steps;
        assert_eq!(steps["a"], [ScriptStep::Response("Action: click(start_box='(1,2)')".into())]);
        assert_eq!(steps["b"], [ScriptStep::WaitForChange]);
        let problem = |text| ScriptFile::parse(text).unwrap_err();
        assert!(problem(r#"{"a": ["wait()", "click("]}"#).starts_with("task a, response 2: "));
        assert!(problem(r#"{"a": [{"wait": "long"}]}"#).contains("expected a response, or {\"wait\""));
        assert!(problem("[]").contains("expected {\"task id\""));
    }

    #[test]
    fn a_script_is_found_by_domain_and_id_or_by_the_id() {
        let file = ScriptFile::parse(r#"{"os/a": ["wait()"], "a": [], "b": ["wait()", "wait()"]}"#).unwrap();
        let length = |name| file.script(name).map(Vec::len);
        assert_eq!((length("os/a"), length("vlc/a"), length("vlc/b")), (Some(1), Some(0), Some(2)));
        assert_eq!(length("os/c"), None);
    }

    /// A screen of 100x100 pixels of which the first rows are white, and so many pixels of a caret.
    fn screen(rows: u32, caret: u32) -> EpisodeScreen {
        let pixel = |x, y| if y < rows || (y == 99 && x < caret) { Rgb([255; 3]) } else { Rgb([0; 3]) };
        EpisodeScreen::new(Arc::new(RgbImage::from_fn(100, 100, pixel)), None)
    }

    #[test]
    fn a_wait_ends_when_the_screen_has_changed_and_rests() {
        let file = ScriptFile::parse(r#"{"a": ["hotkey(key='a')", {"wait": "changed"}, "hotkey(key='b')"]}"#);
        let (script, mut player) = (file.unwrap().steps["a"].clone(), Player::default());
        let mut screens = vec![];
        let mut next = |screen| {
            screens.push(screen);
            player.next(&script, &screens).unwrap()
        };
        let (pressed, then) = ("Action: hotkey(key='a')", "Action: hotkey(key='b')");
        assert_eq!(next(screen(0, 0)), pressed);
        assert_eq!(next(screen(0, 4)), WAIT, "only a caret has changed");
        assert_eq!(next(screen(0, 4)), WAIT);
        assert_eq!(next(screen(10, 4)), WAIT, "a window is opening");
        assert_eq!(next(screen(20, 4)), WAIT);
        assert_eq!(next(screen(20, 0)), then, "it is open");
        assert_eq!(next(screen(20, 0)), FINISHED);
    }

    #[test]
    fn a_wait_without_a_change_has_an_end() {
        let script = [ScriptStep::Response("Action: hotkey(key='a')".into()), ScriptStep::WaitForChange];
        let (mut player, screens) = (Player::default(), [screen(0, 0), screen(0, 0)]);
        let responses: Vec<String> =
            (0..MOST_WAITS + 2).map(|_| player.next(&script, &screens).unwrap()).collect();
        assert_eq!(responses.iter().filter(|response| *response == WAIT).count(), MOST_WAITS);
        assert_eq!(responses.last().map(String::as_str), Some(FINISHED));
    }

    /// A screen of 100x100 pixels with a white rectangle of this size.
    fn rectangle(width: u32, height: u32) -> EpisodeScreen {
        let inside = |x: u32, y: u32| (10..10 + width).contains(&x) && (10..10 + height).contains(&y);
        let pixel = |x, y| if inside(x, y) { Rgb([255; 3]) } else { Rgb([0; 3]) };
        EpisodeScreen::new(Arc::new(RgbImage::from_fn(100, 100, pixel)), None)
    }

    #[test]
    fn a_tick_in_a_box_is_a_change_and_a_caret_is_none() {
        let effect = |width, height| {
            let difference = Difference::between(&rectangle(0, 0), &rectangle(width, height)).unwrap();
            difference.is_effect()
        };
        assert!(effect(6, 6) && effect(4, 5));
        assert!(!effect(4, 4) && !effect(2, 20) && !effect(3, 60) && !effect(0, 0));
        let script = [ScriptStep::Response("Action: hotkey(key='a')".into()), ScriptStep::WaitForChange];
        let (mut player, mut screens) = (Player::default(), vec![]);
        let mut next = |screen| {
            screens.push(screen);
            player.next(&script, &screens).unwrap()
        };
        next(rectangle(0, 0));
        assert_eq!(next(rectangle(2, 20)), WAIT, "a caret");
        assert_eq!(next(rectangle(6, 6)), WAIT, "it may change further");
        assert_eq!(next(rectangle(6, 6)), FINISHED, "ticked");
    }

    #[test]
    fn episodes_that_have_finished_are_forgotten() {
        let file = ScriptFile::parse(r#"{"t": ["wait()"]}"#).unwrap();
        let mut players = Players { file, players: HashMap::new() };
        let task = Arc::new(Task {
            id: TaskId::new("t"),
            instruction: String::new(),
            application: String::new(),
            setup: Value::Null,
            evaluator: Value::Null,
        });
        let plan = |index| EpisodePlan {
            id: EpisodeId::new(0, &task.id, index),
            task: Arc::clone(&task),
            world_seed: 0,
            sampling_seed: 0,
            max_steps: 4,
            hint: None,
        };
        let history = |index| History {
            plan: Arc::new(plan(index)),
            screens: vec![rectangle(0, 0)],
            responses: vec![],
        };
        let [first, second] = [0, 1].map(history);
        assert_eq!(players.next(&first).unwrap(), WAIT);
        assert_eq!(players.next(&second).unwrap(), WAIT);
        assert_eq!(players.players.len(), 2);
        let version = PolicyVersion(0);
        let response = Response { text: WAIT.into(), tokens: vec![], logp: vec![], complete: true, version };
        let later = History { responses: vec![Arc::new(response)], ..first };
        assert_eq!(players.next(&later).unwrap(), FINISHED);
        assert_eq!(players.players.into_keys().collect::<Vec<_>>(), std::slice::from_ref(&second.plan.id));
    }
}
