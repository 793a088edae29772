//! The tasks of a run: which come next, and the sets that the agent is evaluated on.

use super::state::RunState;
use crate::TrainError;
use arpo_core::config::{Config, EvaluateWhen};
use arpo_core::endless::{visited, visited_by};
use arpo_core::task::{Task, TaskId};
use arpo_env::tasks::Suite;
use arpo_suite::task_lists;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A set of tasks that the agent is evaluated on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskSet {
    /// Tasks that are trained on.
    Training,
    /// Other tasks of the same templates.
    Unseen,
    /// Tasks of other templates.
    HeldOut,
}

impl TaskSet {
    /// In the order of the plot.
    pub(super) const ALL: [Self; 3] = [Self::Training, Self::Unseen, Self::HeldOut];

    /// Its name in metrics, events and tables.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::Unseen => "unseen",
            Self::HeldOut => "held_out",
        }
    }

    /// Its name in the legend of the plot.
    pub(super) fn legend(self) -> &'static str {
        match self {
            Self::Training => "training tasks",
            Self::Unseen => "unseen tasks",
            Self::HeldOut => "held-out templates",
        }
    }

    /// The number of its evaluation after this many iterations. The numbers are distinct, so that no two evaluations share
    /// random streams.
    pub(super) fn evaluation_number(self, iteration: u64) -> u64 {
        const UNSEEN: u64 = 1 << 39;
        match self {
            Self::Training => iteration << 1,
            Self::HeldOut => iteration << 1 | 1,
            Self::Unseen => UNSEEN | iteration,
        }
    }
}

/// The tasks of a run.
#[derive(Debug)]
pub(super) struct TaskSets {
    /// Tasks by name.
    listed: BTreeMap<TaskId, Arc<Task>>,
    /// Generates tasks on demand.
    templates: Option<Suite>,
    /// The sets that the agent is evaluated on, and when. The first set selects the best model.
    evaluated: Vec<(TaskSet, EvaluateWhen, Vec<Arc<Task>>)>,
}

impl TaskSets {
    /// The tasks of a configuration.
    pub(super) fn new(config: &Config) -> Result<Self, TrainError> {
        let generated = config.tasks.are_generated();
        let listed = if generated { vec![] } else { task_lists::training_tasks(config)? };
        let nothing_trained = config.tasks.endless && config.tasks.generated == 0;
        let mut training =
            if nothing_trained { vec![] } else { task_lists::evaluated_training_tasks(config)? };
        training.sort_by(|one, other| one.id.cmp(&other.id));
        training.dedup_by(|one, other| one.id == other.id);
        let unseen = if config.evaluation.unseen == EvaluateWhen::Never {
            vec![]
        } else {
            task_lists::unseen_tasks(config)?
        };
        let mut evaluated = vec![
            (TaskSet::Training, EvaluateWhen::Always, training),
            (TaskSet::Unseen, config.evaluation.unseen, unseen),
            (TaskSet::HeldOut, config.evaluation.held_out, task_lists::held_out_tasks(config)?),
        ];
        if config.evaluation.selects_by_unseen(&config.tasks) {
            evaluated.swap(0, 1);
        }
        evaluated.retain(|(_, _, tasks)| !tasks.is_empty());
        let templates = if generated { arpo_suite::source(config)?.templates() } else { None };
        let listed = listed.into_iter().map(|task| (task.id.clone(), task)).collect();
        Ok(Self { listed, templates, evaluated })
    }

    /// The state of a new run.
    pub(super) fn first_state(&self, config: &Config) -> Result<RunState, TrainError> {
        let names = match self.templates {
            Some(_) if config.tasks.endless => vec![],
            Some(_) => task_lists::generated_names(config)?,
            None => self.listed.keys().cloned().collect(),
        };
        Ok(RunState::new(names, config.seed))
    }

    /// Number of training tasks; 0 if every visit has a new one.
    pub(super) fn count(&self, config: &Config) -> usize {
        match self.templates {
            Some(_) if config.tasks.endless => 0,
            Some(_) => config.tasks.generated,
            None => self.listed.len(),
        }
    }

    /// An error if a resumed run draws tasks that its configuration does not have.
    pub(super) fn check(&self, state: &RunState) -> Result<(), TrainError> {
        match state.sampler.tasks().iter().find(|id| self.get(id).is_none()) {
            None => Ok(()),
            Some(id) => Err(TrainError::Configuration(format!(
                "this run trains on {id}, which is not among the tasks of its configuration: expected the tasks that it \
                 began with (OSWorld's were called by their ids alone before, now `domain/id`: begin a new run with the \
                 best model as `model.base`)"
            ))),
        }
    }

    /// A task by its name.
    pub(super) fn get(&self, id: &TaskId) -> Option<Arc<Task>> {
        match self.templates {
            Some(suite) => suite.generated_by_name(id.as_str()).map(Arc::new),
            None => self.listed.get(id).map(Arc::clone),
        }
    }

    /// A task by its name, be it trained on or only evaluated.
    pub(super) fn find(&self, id: &TaskId) -> Option<Arc<Task>> {
        let evaluated = || self.evaluated.iter().flat_map(|(_, _, tasks)| tasks).find(|task| task.id == *id);
        self.get(id).or_else(|| evaluated().map(Arc::clone))
    }

    /// The template of a training task; its application if it has none.
    pub(super) fn template(&self, id: &TaskId) -> String {
        let of_suite = Suite::ALL.into_iter().find_map(|suite| suite.template_of(id.as_str()));
        let application = || self.get(id).map(|task| task.application.clone());
        of_suite.or_else(application).unwrap_or_default()
    }

    /// The tasks of the next groups.
    pub(super) fn draw(&self, state: &mut RunState, config: &Config) -> Vec<TaskId> {
        let count = config.collect.tasks;
        let sampling = &config.task_sampling;
        let RunState { templates, sampler, visits, .. } = state;
        // there may be thousands of generated tasks, and the names of one template differ in their end only
        let known: RefCell<HashMap<String, f64>> = RefCell::default();
        let weight = |id: &TaskId| {
            let front = id.as_str().rsplit_once('-').filter(|_| self.templates.is_some());
            let alike = front.map_or(id.as_str(), |(front, _)| front).to_owned();
            let found = || templates.weight(&self.template(id), sampling);
            *known.borrow_mut().entry(alike).or_insert_with(found)
        };
        match self.templates {
            Some(suite) if config.tasks.endless && sampling.weighs_templates() => {
                let name = |number| TaskId::new(suite.generated_name(number));
                let (numbers, end) = visited_by(config.seed, *visits, count, |number| weight(&name(number)));
                *visits = end;
                numbers.into_iter().map(name).collect()
            }
            Some(suite) if config.tasks.endless => {
                let drawn = *visits..*visits + count as u64;
                *visits = drawn.end;
                let numbers = visited(config.seed, drawn).into_iter();
                numbers.map(|number| TaskId::new(suite.generated_name(number))).collect()
            }
            _ if sampling.weighs_templates() => sampler.next_batch_by(count, weight),
            _ => sampler.next_batch(count, sampling),
        }
    }

    /// The sets of an evaluation; the first one selects the best model.
    pub(super) fn evaluated(&self, at_an_end: bool) -> Vec<(TaskSet, Vec<Arc<Task>>)> {
        let due = |when: EvaluateWhen| match when {
            EvaluateWhen::Always => true,
            EvaluateWhen::Ends => at_an_end,
            EvaluateWhen::Never => false,
        };
        let due = self.evaluated.iter().filter(|(_, when, _)| due(*when));
        due.map(|(set, _, tasks)| (*set, tasks.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arpo_core::config::{Layer, resolve};
    use std::collections::BTreeSet;

    fn config(settings: &[&str]) -> Config {
        let mut layers = vec![Layer::preset("quick").unwrap()];
        layers.extend(settings.iter().map(|setting| Layer::set(setting).unwrap()));
        resolve(&layers).unwrap()
    }

    fn sets(config: &Config, at_an_end: bool) -> Vec<(&'static str, usize)> {
        let tasks = TaskSets::new(config).unwrap();
        tasks.evaluated(at_an_end).iter().map(|(set, tasks)| (set.key(), tasks.len())).collect()
    }

    /// The first set selects the best model.
    #[test]
    fn sets_and_when_they_are_due() {
        let all = [("unseen", 64), ("training", 64), ("held_out", 64)];
        assert_eq!(sets(&config(&[]), true), all);
        assert_eq!(sets(&config(&[]), false), all[..2]);
        let ends = config(&["evaluation.unseen=\"ends\""]);
        assert_eq!(sets(&ends, true), [("training", 64), ("unseen", 64), ("held_out", 64)]);
        assert_eq!(sets(&ends, false), [("training", 64)]);
        let nothing_trained = config(&["tasks.endless=true", "tasks.generated=0"]);
        assert_eq!(sets(&nothing_trained, true), [("unseen", 64), ("held_out", 64)]);
        let never = config(&["tasks.list=\"quick\"", "evaluation.unseen=\"never\"", "evaluation.tasks=5"]);
        assert_eq!(sets(&never, true), [("training", 5), ("held_out", 64)]);
    }

    /// Numbers from before unseen tasks existed stay the same, and all numbers are distinct.
    #[test]
    fn evaluations_have_distinct_numbers() {
        assert_eq!((TaskSet::Training.evaluation_number(7), TaskSet::HeldOut.evaluation_number(7)), (14, 15));
        let iterations = [0, 1, 2, 3, 899, 1 << 20];
        let numbers = iterations.map(|iteration| TaskSet::ALL.map(|set| set.evaluation_number(iteration)));
        assert_eq!(numbers.iter().flatten().collect::<BTreeSet<_>>().len(), 3 * iterations.len());
    }

    #[test]
    fn trained_tasks_are_evaluated_on_a_sample_of_all_templates() {
        let tasks = TaskSets::new(&config(&[])).unwrap();
        let (_, sample) = &tasks.evaluated(true)[1];
        let suite = Suite::Pocket;
        let templates: BTreeSet<_> = sample.iter().map(|task| suite.template_of(task.id.as_str())).collect();
        assert_eq!(templates.len(), suite.templates().len());
        assert!(sample.iter().all(|task| tasks.get(&task.id).as_ref() == Some(task)));
        assert_eq!(tasks.get(&TaskId::new("pocket-files-rename-0")), None);
    }

    #[test]
    fn a_saved_state_draws_the_same_tasks() {
        let shuffled = "task_sampling.order=\"shuffled\"";
        for settings in [
            &["tasks.generated=20"][..],
            &["tasks.endless=true"],
            &["tasks.generated=20", shuffled],
            &["tasks.endless=true", shuffled],
        ] {
            let config = config(settings);
            let tasks = TaskSets::new(&config).unwrap();
            let mut state = tasks.first_state(&config).unwrap();
            for _ in 0..6 {
                let saved = serde_json::to_string(&state).unwrap();
                let mut resumed: RunState = serde_json::from_str(&saved).unwrap();
                let drawn = tasks.draw(&mut state, &config);
                assert_eq!(drawn.len(), 8);
                assert!(drawn.iter().all(|id| tasks.get(id).is_some()), "{drawn:?}");
                assert_eq!(tasks.draw(&mut resumed, &config), drawn);
                assert_eq!(resumed, state);
                for id in &drawn {
                    state.templates.record(
                        &tasks.template(id),
                        id.as_str().contains("mail"),
                        &config.task_sampling,
                    );
                }
            }
        }
    }

    /// Templates that are always solved are left out of an endless run and of one with a fixed number of tasks.
    #[test]
    fn solved_templates_are_drawn_rarely() {
        for tasks in ["tasks.endless=true", "tasks.generated=1024"] {
            let config = config(&[tasks, "task_sampling.window=32", "task_sampling.solved_weight=0"]);
            let sets = TaskSets::new(&config).unwrap();
            let mut state = sets.first_state(&config).unwrap();
            let all = Suite::Pocket.templates();
            let (wanted, solved) = all.split_at(all.len() / 2);
            for template in solved {
                (0..32).for_each(|_| state.templates.record(template, true, &config.task_sampling));
            }
            let drawn: Vec<TaskId> = (0..8).flat_map(|_| sets.draw(&mut state, &config)).collect();
            assert!(drawn.iter().all(|id| wanted.contains(&sets.template(id))), "{tasks}: {drawn:?}");
        }
    }

    /// The training tasks that an endless run is evaluated on are those it visits first.
    #[test]
    fn an_endless_run_trains_on_what_it_is_evaluated_on() {
        let config = config(&["tasks.endless=true", "tasks.generated=16", "seed=5"]);
        let tasks = TaskSets::new(&config).unwrap();
        let mut state = tasks.first_state(&config).unwrap();
        let visited: BTreeSet<TaskId> = (0..2).flat_map(|_| tasks.draw(&mut state, &config)).collect();
        let (set, trained) = &tasks.evaluated(false)[1];
        assert_eq!(*set, TaskSet::Training);
        assert_eq!(trained.iter().map(|task| task.id.clone()).collect::<BTreeSet<_>>(), visited);
    }
}
