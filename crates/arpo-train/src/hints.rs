//! Hints for guided rollouts: a plan for each task, which the agent reads beside the instruction while it acts.
//!
//! The plan is the oracle's, in the agent's own action format, or a user's text. It is in no stored episode: what is kept
//! of a guided rollout is as if the agent had found the way by itself (see [`EpisodePlan::hint`]).

use crate::TrainError;
use crate::agent::Agent;
use crate::collect::GroupPlan;
use crate::demonstrations::{OracleEpisode, oracle_episode_of, response_text};
use crate::episode::EpisodePlan;
use arpo_agent::geometry::Size;
use arpo_core::config::Config;
use arpo_core::task::Task;
use arpo_env::embedded::EmbeddedDesktop;
use arpo_suite::embedded;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Where hints come from.
#[derive(Debug)]
pub enum Hints {
    /// What the oracle does on this desktop.
    Oracle(Box<EmbeddedDesktop>),
    /// Plans by task id.
    Plans(BTreeMap<String, String>),
}

impl Hints {
    /// The oracle's, on the embedded desktop of a configuration.
    pub fn oracle(config: &Config) -> Result<Self, TrainError> {
        let suite = embedded::suite(config)?;
        Ok(Self::Oracle(Box::new(EmbeddedDesktop::new(embedded::screen(config, suite)?)?)))
    }

    /// A user's: a JSON file `{"task id": "plan", ...}`.
    pub fn read(path: &Path) -> Result<Self, TrainError> {
        let wrong = |problem: String| TrainError::Configuration(format!("{}: {problem}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        Self::parse(&text).map_err(wrong)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let plans = serde_json::from_str(text)
            .map_err(|error| format!("{error}; expected {{\"task id\": \"plan\", ...}}"))?;
        Ok(Self::Plans(plans))
    }

    /// An error if one of the tasks has no hint.
    pub fn check(&self, tasks: &[Arc<Task>]) -> Result<(), TrainError> {
        let Self::Plans(plans) = self else { return Ok(()) };
        let has_none =
            |task: &&Arc<Task>| plans.get(task.id.as_str()).is_none_or(|plan| plan.trim().is_empty());
        let without: Vec<&str> = tasks.iter().filter(has_none).map(|task| task.id.as_str()).collect();
        match without.as_slice() {
            [] => Ok(()),
            [first, ..] => Err(TrainError::Configuration(format!(
                "{} of {} tasks have no plan, the first of them {first}: expected one for every task",
                without.len(),
                tasks.len()
            ))),
        }
    }

    /// Gives the episodes of a group their hints.
    pub fn give(&mut self, agent: &Agent, group: &mut GroupPlan) -> Result<(), TrainError> {
        // the members of a group often share a world, and so the way through it
        let mut known: BTreeMap<u64, Arc<str>> = BTreeMap::new();
        for episode in group.episodes.iter_mut().chain(&mut group.refills) {
            let world = episode.world_seed & EpisodePlan::WORLD;
            let hint = match known.get(&world) {
                Some(hint) => Arc::clone(hint),
                None => self.hint(agent, &episode.task, world)?,
            };
            episode.hint = Some(Arc::clone(&hint));
            known.insert(world, hint);
        }
        Ok(())
    }

    fn hint(&mut self, agent: &Agent, task: &Task, world: u64) -> Result<Arc<str>, TrainError> {
        match self {
            Self::Oracle(desktop) => {
                let OracleEpisode { screens, actions, .. } = oracle_episode_of(desktop, task, world)?;
                let step = |(number, (action, screen)): (usize, (_, &Arc<image::RgbImage>))| {
                    let size = Size { width: screen.width(), height: screen.height() };
                    format!("{}. {}", number + 1, response_text(agent.style.format, action, size))
                };
                let steps: Vec<String> = actions.iter().zip(&screens).enumerate().map(step).collect();
                Ok(steps.join("\n").into())
            }
            Self::Plans(plans) => {
                let plan = plans.get(task.id.as_str()).map_or("", |plan| plan.trim());
                Ok(plan.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arpo_core::task::TaskId;

    #[test]
    fn every_task_needs_a_plan() {
        let task = |name: &str| {
            Arc::new(Task {
                id: TaskId::new(name),
                instruction: String::new(),
                application: String::new(),
                setup: serde_json::Value::Null,
                evaluator: serde_json::Value::Null,
            })
        };
        let plans = [("a", "click there"), ("b", " ")].map(|(id, plan)| (id.to_owned(), plan.to_owned()));
        let hints = Hints::Plans(plans.into());
        assert!(hints.check(&[task("a")]).is_ok());
        let problem = hints.check(&["a", "b", "c"].map(task)).unwrap_err().to_string();
        assert_eq!(problem, "2 of 3 tasks have no plan, the first of them b: expected one for every task");
    }

    #[test]
    fn a_file_holds_a_plan_by_task() {
        assert!(
            matches!(Hints::parse(r#"{"a": "click there"}"#), Ok(Hints::Plans(plans)) if plans["a"] == "click there")
        );
        let problem = Hints::parse("[1]").unwrap_err();
        assert!(problem.ends_with("expected {\"task id\": \"plan\", ...}"), "{problem}");
    }
}
