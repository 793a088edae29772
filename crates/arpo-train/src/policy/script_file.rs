//! Tasks solved by hand: a JSON file with the responses of each task, in order.
//!
//! `{"task": ["click(start_box='(100,200)')", "Thought: ...\nAction: hotkey(key='ctrl s')", ...]}`. Coordinates are
//! pixels of the screen. A response without `Action:` is the action alone. After the last response the agent finishes; in
//! a task with an empty list it does nothing. A task of a domain may be named by `domain/id` or by the id alone.

use crate::TrainError;
use crate::episode::History;
use crate::policy::ScriptedPolicy;
use arpo_agent::parse::parse;
use arpo_core::task::Task;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const FINISHED: &str = "Action: finished(content='')";

/// The responses of each task, by task id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptFile {
    responses: BTreeMap<String, Vec<String>>,
}

impl ScriptFile {
    /// Reads a file; an error if a response in it cannot be parsed.
    pub fn read(path: &Path) -> Result<Self, TrainError> {
        let wrong = |problem: String| TrainError::Configuration(format!("{}: {problem}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        Self::parse(&text).map_err(wrong)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut responses: BTreeMap<String, Vec<String>> = serde_json::from_str(text)
            .map_err(|error| format!("{error}; expected {{\"task id\": [\"response\", ...]}}"))?;
        for (task, script) in &mut responses {
            for (number, response) in script.iter_mut().enumerate() {
                if !response.contains("Action:") {
                    *response = format!("Action: {response}");
                }
                parse(response).map_err(|error| format!("task {task}, response {}: {error}", number + 1))?;
            }
        }
        Ok(Self { responses })
    }

    /// The tasks that it names.
    pub fn tasks(&self) -> Vec<String> {
        self.responses.keys().cloned().collect()
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
        Ok(ScriptedPolicy::new(move |history| Ok(self.next(history)), Duration::ZERO))
    }

    /// The responses of a task; those of the full name come first.
    fn script(&self, name: &str) -> Option<&Vec<String>> {
        let id = name.rsplit_once('/').map_or(name, |(_, id)| id);
        self.responses.get(name).or_else(|| self.responses.get(id))
    }

    fn next(&self, history: &History) -> String {
        self.script(history.plan.task.id.as_str())
            .and_then(|script| script.get(history.responses.len()))
            .map_or(FINISHED, String::as_str)
            .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unparsable_responses_are_found_when_the_file_is_read() {
        let file = ScriptFile::parse(r#"{"a": ["click(start_box='(1,2)')"], "b": []}"#).unwrap();
        assert_eq!(file.responses["a"], ["Action: click(start_box='(1,2)')"]);
        let problem = |text| ScriptFile::parse(text).unwrap_err();
        assert!(problem(r#"{"a": ["wait()", "click("]}"#).starts_with("task a, response 2: "));
        assert!(problem("[]").contains("expected {\"task id\""));
    }

    #[test]
    fn a_script_is_found_by_domain_and_id_or_by_the_id() {
        let file = ScriptFile::parse(r#"{"os/a": ["wait()"], "a": [], "b": ["wait()", "wait()"]}"#).unwrap();
        let length = |name| file.script(name).map(Vec::len);
        assert_eq!((length("os/a"), length("vlc/a"), length("vlc/b")), (Some(1), Some(0), Some(2)));
        assert_eq!(length("os/c"), None);
    }
}
