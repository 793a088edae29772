//! How the final state is scored: conditions on the state, never on the route.
//!
//! A task's evaluator is JSON: conditions that point into the world, and that nothing else may have changed unless
//! the task allows it. The same conditions, applied to the world as it was set up, give the world that the oracle
//! works towards.

use crate::desktop::Desktop;
use crate::environment::EnvironmentError;
use crate::world::{App, World};
use arpo_core::task::Task;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How an episode ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The agent called `finished()`.
    Finished,
    /// The agent gave up.
    GaveUp,
}

/// The evaluator of a task file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Evaluator {
    /// What must hold at the end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The score is the fraction of conditions that hold, instead of all or nothing.
    #[serde(skip_serializing_if = "is_false")]
    pub partial: bool,
    /// What the conditions do not name may change, too.
    #[serde(skip_serializing_if = "is_false")]
    pub others_may_change: bool,
    /// The task is infeasible: the right response is to call the user and change nothing.
    #[serde(skip_serializing_if = "is_false")]
    pub infeasible: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(value: &bool) -> bool {
    !value
}

/// One thing that must hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Condition {
    /// The path holds this value.
    Equals {
        /// A JSON pointer into the world: `/settings/Wifi/on`.
        path: String,
        /// What it must hold.
        value: Value,
    },
    /// There is nothing at the path.
    Absent {
        /// A JSON pointer into the world.
        path: String,
    },
    /// An application's window is in front.
    Open {
        /// Which.
        application: App,
    },
}

impl Evaluator {
    /// The evaluator of a task.
    pub fn of(task: &Task) -> Result<Self, EnvironmentError> {
        let bad = |reason: String| EnvironmentError::BadTask { task: task.id.to_string(), reason };
        let evaluator: Self = serde_json::from_value(task.evaluator.clone())
            .map_err(|error| bad(format!("evaluator: {error}")))?;
        if evaluator.conditions.is_empty() != evaluator.infeasible {
            return Err(bad("evaluator: either conditions or \"infeasible\": true".into()));
        }
        Ok(evaluator)
    }

    /// The score of a final state.
    pub fn score(&self, start: &World, desktop: &Desktop, ending: Option<Ending>) -> f64 {
        let gave_up = ending == Some(Ending::GaveUp);
        if self.infeasible {
            return f64::from(gave_up && desktop.world == *start);
        }
        if gave_up {
            return 0.0;
        }
        let (before, after) = (to_json(start), to_json(&desktop.world));
        if !self.others_may_change && self.without_named(before) != self.without_named(after.clone()) {
            return 0.0;
        }
        let held = self.conditions.iter().filter(|condition| condition.holds(&after, desktop)).count();
        if self.partial || held == self.conditions.len() {
            held as f64 / self.conditions.len() as f64
        } else {
            0.0
        }
    }

    /// The world without everything that the conditions name.
    fn without_named(&self, mut world: Value) -> Value {
        for condition in &self.conditions {
            if let Condition::Equals { path, .. } | Condition::Absent { path } = condition {
                remove(&mut world, path);
            }
        }
        world
    }

    /// The target world; none where the conditions do not yield a valid world.
    pub fn target(&self, start: &World) -> Option<World> {
        let mut world = to_json(start);
        for condition in &self.conditions {
            match condition {
                Condition::Equals { path, value } => set(&mut world, path, value.clone()).ok()?,
                Condition::Absent { path } => remove(&mut world, path),
                Condition::Open { .. } => {}
            }
        }
        serde_json::from_value(world).ok()
    }

    /// The application that must be in front at the end.
    pub fn front(&self) -> Option<App> {
        self.conditions.iter().find_map(|condition| match condition {
            Condition::Open { application } => Some(*application),
            _ => None,
        })
    }
}

impl Condition {
    fn holds(&self, world: &Value, desktop: &Desktop) -> bool {
        match self {
            Self::Equals { path, value } => find(world, path) == Some(value),
            Self::Absent { path } => find(world, path).is_none(),
            Self::Open { application } => desktop.front() == Some(*application),
        }
    }
}

/// The world's JSON form.
pub(crate) fn to_json(world: &World) -> Value {
    serde_json::to_value(world).expect("the world is plain data with string keys")
}

/// Sets are lists in JSON; their members are named by their text: `/folders/docs`.
fn find<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let mut here = value;
    for step in steps(path) {
        here = match here {
            Value::Object(map) => map.get(&step)?,
            Value::Array(list) => list.iter().find(|member| member.as_str() == Some(&step))?,
            _ => return None,
        };
    }
    Some(here)
}

fn steps(path: &str) -> Vec<String> {
    path.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect()
}

/// A JSON pointer of names.
pub(crate) fn pointer(names: &[&str]) -> String {
    let escaped = |name: &&str| name.replace('~', "~0").replace('/', "~1");
    let steps: Vec<String> = names.iter().map(escaped).collect();
    format!("/{}", steps.join("/"))
}

/// Sets a value at a path; a member of a set is added by its own text.
pub(crate) fn set(world: &mut Value, path: &str, value: Value) -> Result<(), String> {
    let mut steps = steps(path);
    let last = steps.pop().ok_or("the path is empty")?;
    let mut here = world;
    for step in steps {
        here = match here {
            Value::Object(map) => map.entry(step).or_insert_with(|| Value::Object(Map::new())),
            _ => return Err(format!("{path} leads through something that holds no names")),
        };
    }
    match here {
        Value::Object(map) => {
            map.insert(last, value);
        }
        Value::Array(list) => {
            let member = Value::String(last);
            if value != member {
                return Err(format!("{path} is a member of a list: its value is its own name"));
            }
            if !list.contains(&member) {
                list.push(member);
            }
        }
        _ => return Err(format!("{path} leads through something that holds no names")),
    }
    Ok(())
}

/// Removes what is at a path, if anything.
pub(crate) fn remove(world: &mut Value, path: &str) {
    let mut steps = steps(path);
    let Some(last) = steps.pop() else { return };
    let mut here = world;
    for step in steps {
        let Some(inner) = here.get_mut(&step) else { return };
        here = inner;
    }
    match here {
        Value::Object(map) => {
            map.shift_remove(&last);
        }
        Value::Array(list) => list.retain(|member| member.as_str() != Some(&last)),
        _ => {}
    }
}
