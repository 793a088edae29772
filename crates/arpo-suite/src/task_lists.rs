//! The tasks of a configuration: those to train on, unseen ones of the same templates, held-out ones.

use crate::SuiteError;
use crate::{EnvironmentSource, source};
use arpo_core::config::Config;
use arpo_core::endless::visited;
use arpo_core::task::{Task, TaskId};
use arpo_env::tasks::generated::UNSEEN_TASKS;
use arpo_env::tasks::{Suite, is_same_task};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::sync::Arc;

/// The tasks to train on: those of `tasks.only`, generated ones, the suite's or the user's own. Of those that are not generated,
/// the ones of `tasks.list`, or `tasks.count` of them with the applications in turn. For an endless run, the first ones.
pub fn training_tasks(config: &Config) -> Result<Vec<Arc<Task>>, SuiteError> {
    if config.tasks.are_generated() {
        return generate(config, &generated_names(config)?);
    }
    let source = source(config)?;
    let all = source.tasks()?;
    let tasks: Vec<Arc<Task>> = if config.tasks.list.is_empty() || source.is_listed() {
        all.into_iter().map(Arc::new).collect()
    } else {
        listed(config, source.as_ref(), &all)?
    };
    let is_chosen = config.tasks.only.is_empty() || source.is_listed();
    let tasks = if is_chosen { tasks } else { only(config, source.as_ref(), tasks)? };
    let (wanted, available) = (config.tasks.count, tasks.len());
    if wanted > available {
        return Err(SuiteError::Configuration(format!(
            "`tasks.count` = {wanted}: there are {available} training tasks"
        )));
    }
    Ok(if wanted == 0 { tasks } else { round_robin(tasks, wanted) })
}

/// The tasks of `tasks.only`: given or generated ones.
fn only(
    config: &Config,
    source: &dyn EnvironmentSource,
    mut tasks: Vec<Arc<Task>>,
) -> Result<Vec<Arc<Task>>, SuiteError> {
    let templates = source.templates();
    for name in &config.tasks.only {
        let id = name.split_once('/').map_or(name.as_str(), |(_, id)| id);
        let generated = templates.and_then(|suite| suite.generated_by_name(id));
        if let Some(task) = generated.filter(|task| tasks.iter().all(|known| known.id != task.id)) {
            tasks.push(Arc::new(task));
        }
    }
    let names = tasks.iter().map(|task| (task.application.as_str(), task.id.as_str()));
    let chosen = chosen_by(&config.tasks.only, names)?;
    Ok(tasks.into_iter().zip(chosen).filter_map(|(task, is_chosen)| is_chosen.then_some(task)).collect())
}

/// Which of the tasks, given by application and id, `tasks.only` names; an error if it names something else.
pub(crate) fn chosen_by<'a>(
    only: &[String],
    names: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<Vec<bool>, SuiteError> {
    let mut unknown: BTreeSet<&str> = only.iter().map(String::as_str).collect();
    let mut is_chosen = |(application, id): (&str, &str)| {
        let whole = format!("{application}/{id}");
        // both are names of it, and both may have been given
        let by_id = unknown.remove(id) || only.iter().any(|name| name == id);
        let by_both = unknown.remove(whole.as_str()) || only.contains(&whole);
        by_id || by_both
    };
    let chosen: Vec<bool> = names.map(&mut is_chosen).collect();
    match unknown.first() {
        None => Ok(chosen),
        Some(name) => Err(SuiteError::Configuration(format!(
            "`tasks.only`: no task is called {name:?}: expected an id or application/id of the tasks"
        ))),
    }
}

/// Names of the generated tasks: all of them, or the first of an endless run.
pub fn generated_names(config: &Config) -> Result<Vec<TaskId>, SuiteError> {
    let count = config.tasks.generated as u64;
    if count == 0 {
        let problem =
            "`tasks.endless` = true has no list of tasks: expected `tasks.generated` = how many of the first";
        return Err(SuiteError::Configuration(problem.into()));
    }
    let numbers = if config.tasks.endless { visited(config.seed, 0..count) } else { (0..count).collect() };
    let suite = templates(config)?;
    Ok(numbers.into_iter().map(|number| TaskId::new(suite.generated_name(number))).collect())
}

/// Generates the tasks of these names.
fn generate(config: &Config, names: &[TaskId]) -> Result<Vec<Arc<Task>>, SuiteError> {
    let suite = templates(config)?;
    let tasks = names.iter().filter_map(|name| suite.generated_by_name(name.as_str()));
    Ok(tasks.map(Arc::new).collect())
}

fn templates(config: &Config) -> Result<Suite, SuiteError> {
    let problem = "`tasks.suite` = \"osworld\" has no templates: expected \"pocket\" or \"desktop\"";
    source(config)?.templates().ok_or_else(|| SuiteError::Configuration(problem.into()))
}

/// The training tasks that an agent is evaluated on: `evaluation.tasks` of them, spread evenly over their names and so over
/// their templates.
pub fn evaluated_training_tasks(config: &Config) -> Result<Vec<Arc<Task>>, SuiteError> {
    let wanted = config.evaluation.tasks;
    if config.tasks.are_generated() {
        let wanted = if wanted == 0 { UNSEEN_TASKS } else { wanted };
        // only these need to be generated
        let mut names = generated_names(config)?;
        names.sort();
        return generate(config, &evenly_spaced(names, wanted));
    }
    let mut tasks = training_tasks(config)?;
    if wanted > 0 {
        tasks.sort_by(|one, other| one.id.cmp(&other.id));
    }
    Ok(evenly_spaced(tasks, wanted))
}

/// `wanted` items, evenly spaced; all of them if `wanted` is 0 or there are not more.
fn evenly_spaced<T: Clone>(all: Vec<T>, wanted: usize) -> Vec<T> {
    if wanted == 0 || wanted >= all.len() {
        return all;
    }
    (0..wanted).map(|number| all[number * all.len() / wanted].clone()).collect()
}

/// `wanted` tasks, with the applications in turn.
fn round_robin(tasks: Vec<Arc<Task>>, wanted: usize) -> Vec<Arc<Task>> {
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

/// The unseen tasks of the templates that are trained on; none for OSWorld and for the user's own tasks, which have no
/// known templates.
pub fn unseen_tasks(config: &Config) -> Result<Vec<Arc<Task>>, SuiteError> {
    let Some(suite) = source(config)?.templates() else { return Ok(vec![]) };
    if config.tasks.are_generated() {
        return Ok(suite.unseen_tasks().iter().map(|task| Arc::new(task.clone())).collect());
    }
    let trained = training_tasks(config)?;
    let templates: BTreeSet<String> =
        trained.iter().filter_map(|task| suite.template_of(task.id.as_str())).collect();
    let is_trained = |unseen: &Task| trained.iter().any(|task| is_same_task(task, unseen));
    let unseen = suite.unseen_tasks_of(|template| templates.contains(template), is_trained);
    Ok(unseen.into_iter().map(Arc::new).collect())
}

/// The tasks of other templates, which are never trained on.
pub fn held_out_tasks(config: &Config) -> Result<Vec<Arc<Task>>, SuiteError> {
    Ok(source(config)?.held_out().into_iter().map(Arc::new).collect())
}

/// The embedded task list.
const QUICK_LIST: (&str, &str) = ("quick", include_str!("../../../configs/quick-tasks.txt"));

/// The tasks that `tasks.list` names: given or generated ones.
fn listed(
    config: &Config,
    source: &dyn EnvironmentSource,
    all: &[Task],
) -> Result<Vec<Arc<Task>>, SuiteError> {
    let path = config.tasks.list.as_str();
    let text = if path == QUICK_LIST.0 {
        QUICK_LIST.1.to_owned()
    } else {
        fs::read_to_string(path)
            .map_err(|error| SuiteError::Configuration(format!("`tasks.list` = {path:?}: {error}")))?
    };
    let templates = source.templates();
    let names = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    names
        .map(|name| {
            let task = all.iter().find(|task| task.id.as_str() == name).cloned();
            let task = task.or_else(|| templates?.generated_by_name(name));
            task.map(Arc::new).ok_or_else(|| {
                SuiteError::Configuration(format!("{path}: {name:?} is not one of the training tasks"))
            })
        })
        .collect()
}
