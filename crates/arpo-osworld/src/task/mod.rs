//! A task file of OSWorld, both generations, read strictly: errors name the field.

pub mod evaluator;
pub mod local_files;
pub mod suite;

pub use evaluator::{Check, Conjunction, Evaluator, Getter};

use arpo_core::generation::Generation;
use serde_json::{Map, Value};

/// A step that prepares the desktop, before the episode or before its evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Its type.
    pub kind: String,
    /// What it takes.
    pub parameters: Map<String, Value>,
}

/// One task file.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskFile {
    /// Unique in the suite.
    pub id: String,
    /// The virtual machine's snapshot; docker ignores it.
    pub snapshot: String,
    /// What the user asks for.
    pub instruction: String,
    /// Where the task comes from.
    pub source: Vec<String>,
    /// Steps before the episode.
    pub config: Vec<Step>,
    /// A folder of recorded steps, not used.
    pub trajectory: String,
    /// The applications it is about.
    pub related_apps: Vec<String>,
    /// How the final state is evaluated.
    pub evaluator: Evaluator,
    /// Verified: the guest's browser goes through a proxy.
    pub proxy: bool,
    /// Verified: needs an address that does not change.
    pub fixed_ip: bool,
    /// Verified: how likely the outside world changes the answer.
    pub possibility_of_env_change: String,
    /// Verified: a remark for the annotator.
    pub hint: String,
    /// Which generation it was written for: files with `proxy` are Verified.
    pub generation: Generation,
}

impl TaskFile {
    /// Reads a task from the text of its file.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
        let Value::Object(mut fields) = value else { return Err("not a JSON object".into()) };
        let evaluator = fields.remove("evaluator").ok_or("field evaluator is missing")?;
        let generation =
            if fields.contains_key("proxy") { Generation::Verified } else { Generation::ArpoEra };
        let task = Self {
            id: required_text(&mut fields, "id")?,
            snapshot: text_field(&mut fields, "snapshot")?,
            instruction: required_text(&mut fields, "instruction")?,
            source: texts(&mut fields, "source")?,
            config: steps(fields.remove("config"), "config")?,
            trajectory: text_field(&mut fields, "trajectory")?,
            related_apps: texts(&mut fields, "related_apps")?,
            evaluator: Evaluator::parse(evaluator)?,
            proxy: truth(&mut fields, "proxy")?,
            fixed_ip: truth(&mut fields, "fixed_ip")?,
            possibility_of_env_change: text_field(&mut fields, "possibility_of_env_change")?,
            hint: text_field(&mut fields, "hint")?,
            generation,
        };
        truth(&mut fields, "env_may_change")?;
        match fields.keys().next() {
            Some(unknown) => Err(format!("unknown field {unknown}")),
            None => Ok(task),
        }
    }
}

/// A list of steps; absent or null is none.
fn steps(value: Option<Value>, field: &str) -> Result<Vec<Step>, String> {
    let items = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(other) => return Err(format!("{field}: a list of steps is wanted, not {other}")),
    };
    let step = |(index, item): (usize, Value)| {
        let path = format!("{field}[{index}]");
        let Value::Object(mut fields) = item else { return Err(format!("{path}: not an object")) };
        let kind = required_text(&mut fields, "type").map_err(|error| format!("{path}: {error}"))?;
        let parameters = match fields.remove("parameters") {
            None => Map::new(),
            Some(Value::Object(parameters)) => parameters,
            Some(other) => return Err(format!("{path}: parameters are {other}, not an object")),
        };
        match fields.keys().next() {
            Some(unknown) => Err(format!("{path}: unknown field {unknown}")),
            None => Ok(Step { kind, parameters }),
        }
    };
    items.into_iter().enumerate().map(step).collect()
}

fn required_text(fields: &mut Map<String, Value>, name: &str) -> Result<String, String> {
    match fields.remove(name) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text),
        Some(other) => Err(format!("field {name} is {other}, text is wanted")),
        None => Err(format!("field {name} is missing")),
    }
}

fn text_field(fields: &mut Map<String, Value>, name: &str) -> Result<String, String> {
    match fields.remove(name) {
        Some(Value::String(text)) => Ok(text),
        Some(Value::Null) | None => Ok(String::new()),
        Some(other) => Err(format!("field {name} is {other}, text is wanted")),
    }
}

fn texts(fields: &mut Map<String, Value>, name: &str) -> Result<Vec<String>, String> {
    let wrong = |value: &Value| format!("field {name} holds {value}, text is wanted");
    match fields.remove(name) {
        Some(Value::String(text)) => Ok(vec![text]),
        Some(Value::Array(items)) => {
            items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(|| wrong(item))).collect()
        }
        Some(Value::Null) | None => Ok(Vec::new()),
        Some(other) => Err(wrong(&other)),
    }
}

fn truth(fields: &mut Map<String, Value>, name: &str) -> Result<bool, String> {
    match fields.remove(name) {
        Some(Value::Bool(truth)) => Ok(truth),
        Some(Value::Null) | None => Ok(false),
        Some(other) => Err(format!("field {name} is {other}, true or false is wanted")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn task() -> Value {
        json!({
            "id": "a", "snapshot": "chrome", "instruction": "do", "source": "web", "trajectory": "t/",
            "related_apps": ["chrome"], "config": [{"type": "sleep", "parameters": {"seconds": 1}}],
            "evaluator": {"func": "infeasible"}
        })
    }

    fn error_with(change: impl Fn(&mut Value)) -> String {
        let mut value = task();
        change(&mut value);
        TaskFile::parse(&value.to_string()).unwrap_err()
    }

    #[test]
    fn both_generations_are_distinguished() {
        let mut value = task();
        let old = TaskFile::parse(&value.to_string()).unwrap();
        assert_eq!((old.generation, old.config[0].kind.as_str()), (Generation::ArpoEra, "sleep"));
        value["proxy"] = json!(true);
        let new = TaskFile::parse(&value.to_string()).unwrap();
        assert!(new.proxy && new.generation == Generation::Verified);
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(error_with(|task| drop(task["id"].take())), "field id is null, text is wanted");
        assert!(error_with(|task| task["colour"] = json!(1)).contains("unknown field colour"));
        assert!(
            error_with(|task| task["config"][0]["type"] = json!(5)).starts_with("config[0]: field type is 5")
        );
        assert!(error_with(|task| task["config"] = json!("x")).contains("a list of steps"));
        assert!(error_with(|task| task["evaluator"] = json!({})).contains("func"));
        assert!(TaskFile::parse("{").unwrap_err().starts_with("not JSON"));
    }
}
