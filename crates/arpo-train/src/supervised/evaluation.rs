//! Evaluating a base model while it is trained: further tasks of the training templates, which are in no demonstration, and
//! tasks of the held-out templates.

use super::SupervisedOptions;
use crate::TrainError;
use crate::collect::{CollectOptions, Collector, GroupPlan};
use crate::episode::EpisodePlan;
use crate::policy::EnginePolicy;
use crate::run::stop::StopSwitch;
use arpo_core::config::Config;
use arpo_core::statistics::{Success, success};
use arpo_core::task::Task;
use arpo_core::trajectory::EpisodeId;
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::environment::Environment;
use arpo_env::tasks::{Split, Suite};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most desktops of an evaluation.
const DESKTOPS: usize = 64;

/// How many tasks of each kind are evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) further: usize,
    pub(super) held_out: usize,
}

/// The outcome of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Evaluation {
    /// On further tasks of the training templates.
    pub(super) further: Success,
    /// The same by application.
    pub(super) applications: BTreeMap<String, f64>,
    /// On tasks of the held-out templates, unless none was wanted.
    pub(super) held_out: Option<Success>,
}

/// Evaluates the agent with one rollout of each task; [`TrainError::Interrupted`] once the switch is on.
pub(super) fn evaluate(
    policy: &mut EnginePolicy,
    options: &SupervisedOptions,
    counts: Counts,
    stop: &StopSwitch,
) -> Result<Evaluation, TrainError> {
    let suite = options.suite;
    let further = (0..counts.further as u64).map(|number| (suite.further_task(number), number));
    let held_out = held_out_tasks(suite).take(counts.held_out);
    let plans: Vec<GroupPlan> =
        further.chain(held_out).map(|(task, number)| plan(task, number, options.max_steps)).collect();
    let applications: Vec<String> = plans.iter().map(|plan| plan.task.application.clone()).collect();
    let factory = move |_| Ok(Box::new(EmbeddedDesktop::new(suite.screen())?) as Box<dyn Environment>);
    let collect = CollectOptions::from(&Config::default());
    let mut collector =
        Collector::new(Arc::new(factory), plans.len().min(DESKTOPS), collect).stopped_by(stop.clone());
    let collected = collector.collect(policy, plans, &mut |_| {})?;
    let scores: Vec<Vec<f64>> = collected
        .groups
        .into_iter()
        .map(|group| group.episodes.iter().map(|episode| episode.trajectory.score).collect())
        .collect();
    let (further, held_out) = scores.split_at(counts.further.min(scores.len()));
    let mut by_application: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (application, scores) in applications.into_iter().zip(further) {
        by_application.entry(application).or_default().extend(scores);
    }
    Ok(Evaluation {
        further: success(&further.concat()),
        applications: by_application
            .into_iter()
            .map(|(name, scores)| (name, success(&scores).mean))
            .collect(),
        held_out: (!held_out.is_empty()).then(|| success(&held_out.concat())),
    })
}

/// The held-out tasks over and over, each time in other worlds.
fn held_out_tasks(suite: Suite) -> impl Iterator<Item = (Task, u64)> {
    suite.tasks(Split::HeldOut).iter().cloned().cycle().zip(0..)
}

fn plan(task: Task, number: u64, max_steps: usize) -> GroupPlan {
    let task = Arc::new(task);
    let id = EpisodeId::new(0, &task.id, number as usize);
    let episode = EpisodePlan {
        id,
        task: Arc::clone(&task),
        world_seed: number,
        sampling_seed: number,
        max_steps,
        hint: None,
    };
    GroupPlan { task, episodes: vec![episode], refills: vec![] }
}
