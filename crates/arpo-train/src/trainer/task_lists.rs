//! Which tasks a configuration means: those to train on, the unseen ones of their templates, the held-out ones.

use super::osworld;
use super::setup::{screen, suite};
use crate::TrainError;
use arpo_core::config::{Config, SuiteChoice};
use arpo_core::endless::visited;
use arpo_core::task::{Task, TaskId};
use arpo_env::tasks::{Part, Suite, coincide, own};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// The tasks to train on: generated ones, the suite's or the user's own; of those that are not generated the ones of a
/// list, or so many of them, the applications taking turns. Of an endless run, the first ones.
pub fn training_tasks(config: &Config) -> Result<Vec<Arc<Task>>, TrainError> {
    if config.tasks.are_generated() {
        return made(config, &generated_names(config)?);
    }
    let own;
    let all = if config.tasks.suite == SuiteChoice::Osworld {
        own = osworld::tasks(config)?;
        &own
    } else if config.tasks.files.is_empty() {
        embedded_suite(config)?.tasks(Part::Train)
    } else {
        own = own::read(Path::new(&config.tasks.files), screen(config)?)
            .map_err(|problem| TrainError::Options(format!("`tasks.files`: {problem}")))?;
        &own
    };
    let chosen = config.tasks.list.is_empty() || config.tasks.suite == SuiteChoice::Osworld;
    let tasks: Vec<Arc<Task>> =
        if chosen { all.iter().map(|task| Arc::new(task.clone())).collect() } else { listed(config, all)? };
    let (wanted, there) = (config.tasks.count, tasks.len());
    if wanted > there {
        return Err(TrainError::Options(format!(
            "`tasks.count` = {wanted}: there are {there} training tasks"
        )));
    }
    Ok(if wanted == 0 { tasks } else { spread(tasks, wanted) })
}

/// Names of the generated tasks: all that there are, or the first of an endless run.
pub(super) fn generated_names(config: &Config) -> Result<Vec<TaskId>, TrainError> {
    let count = config.tasks.generated as u64;
    if count == 0 {
        let problem =
            "`tasks.endless` = true has no list of tasks: expected `tasks.generated` = how many of the first";
        return Err(TrainError::Options(problem.into()));
    }
    let numbers = if config.tasks.endless { visited(config.seed, 0..count) } else { (0..count).collect() };
    let suite = embedded_suite(config)?;
    Ok(numbers.into_iter().map(|number| TaskId::new(suite.generated_name(number))).collect())
}

/// The generated tasks of these names.
fn made(config: &Config, names: &[TaskId]) -> Result<Vec<Arc<Task>>, TrainError> {
    let suite = embedded_suite(config)?;
    let made = names.iter().filter_map(|name| suite.generated_by_name(name.as_str()));
    Ok(made.map(Arc::new).collect())
}

fn embedded_suite(config: &Config) -> Result<Suite, TrainError> {
    let problem = "`tasks.suite` = \"osworld\" has no templates: expected \"pocket\" or \"desktop\"";
    suite(config).ok_or_else(|| TrainError::Options(problem.into()))
}

/// The training tasks that an agent is evaluated on: all, or `evaluation.tasks` of them, spread evenly over their names
/// and so over their templates.
pub fn evaluated_training_tasks(config: &Config) -> Result<Vec<Arc<Task>>, TrainError> {
    let wanted = config.evaluation.tasks;
    if config.tasks.are_generated() {
        // the others need not be made
        let mut names = generated_names(config)?;
        names.sort();
        return made(config, &evenly(names, wanted));
    }
    let mut tasks = training_tasks(config)?;
    if wanted > 0 {
        tasks.sort_by(|one, other| one.id.cmp(&other.id));
    }
    Ok(evenly(tasks, wanted))
}

/// So many of them, evenly spread; all if that is 0 or there are no more.
fn evenly<T: Clone>(all: Vec<T>, wanted: usize) -> Vec<T> {
    if wanted == 0 || wanted >= all.len() {
        return all;
    }
    (0..wanted).map(|place| all[place * all.len() / wanted].clone()).collect()
}

/// So many of the tasks, the applications taking turns.
fn spread(tasks: Vec<Arc<Task>>, wanted: usize) -> Vec<Arc<Task>> {
    let mut queues: BTreeMap<String, VecDeque<Arc<Task>>> = BTreeMap::new();
    for task in tasks {
        queues.entry(task.application.clone()).or_default().push_back(task);
    }
    let mut chosen = Vec::with_capacity(wanted);
    while chosen.len() < wanted {
        chosen.extend(queues.values_mut().filter_map(VecDeque::pop_front));
    }
    chosen.truncate(wanted);
    chosen
}

/// The unseen tasks of the templates that are trained on; none of OSWorld and of the user's own tasks, whose templates
/// nobody knows.
pub fn unseen_tasks(config: &Config) -> Result<Vec<Arc<Task>>, TrainError> {
    let Some(suite) = suite(config).filter(|_| config.tasks.files.is_empty()) else { return Ok(vec![]) };
    if config.tasks.are_generated() {
        return Ok(suite.unseen_tasks().iter().map(|task| Arc::new(task.clone())).collect());
    }
    let trained = training_tasks(config)?;
    let templates: BTreeSet<String> =
        trained.iter().filter_map(|task| suite.template_of(task.id.as_str())).collect();
    let is_trained = |unseen: &Task| trained.iter().any(|task| coincide(task, unseen));
    let unseen = suite.unseen_tasks_of(|template| templates.contains(template), is_trained);
    Ok(unseen.into_iter().map(Arc::new).collect())
}

/// The tasks of other templates, which are never trained on.
pub fn held_out_tasks(config: &Config) -> Vec<Arc<Task>> {
    let tasks = suite(config).map_or(&[][..], |suite| suite.tasks(Part::HeldOut));
    tasks.iter().map(|task| Arc::new(task.clone())).collect()
}

/// The list that the program carries.
const QUICK_LIST: (&str, &str) = ("quick", include_str!("../../../../configs/quick-tasks.txt"));

/// The tasks that `tasks.list` names: of those given, or generated ones.
fn listed(config: &Config, all: &[Task]) -> Result<Vec<Arc<Task>>, TrainError> {
    let path = config.tasks.list.as_str();
    let text = if path == QUICK_LIST.0 {
        QUICK_LIST.1.to_owned()
    } else {
        fs::read_to_string(path)
            .map_err(|error| TrainError::Options(format!("`tasks.list` = {path:?}: {error}")))?
    };
    let suite = suite(config).filter(|_| config.tasks.files.is_empty());
    let names = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    names
        .map(|name| {
            let task = all.iter().find(|task| task.id.as_str() == name).cloned();
            let task = task.or_else(|| suite?.generated_by_name(name));
            task.map(Arc::new)
                .ok_or_else(|| TrainError::Options(format!("{path}: {name:?} is none of the training tasks")))
        })
        .collect()
}
