//! Tasks beyond the listed ones, by number: as many as a run wants to train on, and unseen ones that no run trains on.
//!
//! A task follows from its name alone, in every run and on every machine: `pocket-files-rename-g000123` is generated
//! task 123, the training templates taking turns; `pocket-files-rename-u000001` is the second unseen task of its
//! template. Each kind has its own seeds, and no generated task equals a listed one or one of the unseen tasks of all
//! templates. Templates with few distinct tasks repeat them under new names.

use super::{Split, Suite, Template, is_same_task, template_name, template_seed};
use arpo_core::task::Task;
use std::sync::OnceLock;

/// Unseen tasks that an agent is evaluated on.
pub const UNSEEN_TASKS: usize = 64;

/// Upper bound of the numbers of generated tasks; it keeps the seeds of the kinds apart.
pub const MAX_GENERATED: u64 = 1 << 48;

const GENERATED_SEEDS: u64 = 1 << 60;
const UNSEEN_SEEDS: u64 = 1 << 61;

/// Seeds per number: they are tried in turn until the task is acceptable.
const TRIES: u64 = 1 << 12;

impl Suite {
    /// The generated task of a number below [`MAX_GENERATED`].
    pub fn generated_task(self, number: u64) -> Task {
        let template = template_of_number(number);
        let wanted = |task: &Task| {
            !self.is_listed(task) && !self.unseen_tasks().iter().any(|unseen| is_same_task(unseen, task))
        };
        self.first_wanted(template, GENERATED_SEEDS, number, &self.generated_name(number), wanted)
            .expect("every training template has tasks beyond the listed and the unseen ones: see the tests")
    }

    /// The name of the generated task of a number, without making it.
    pub fn generated_name(self, number: u64) -> String {
        format!("{}-{}-g{number:06}", self.key(), template_name(template_of_number(number)))
    }

    /// The generated task of a name; none if no generated task has it.
    pub fn generated_by_name(self, name: &str) -> Option<Task> {
        let (_, number) = name.rsplit_once("-g")?;
        let number = number.parse().ok().filter(|number| *number < MAX_GENERATED)?;
        (self.generated_name(number) == name).then(|| self.generated_task(number))
    }

    /// The unseen tasks of all training templates, which take turns.
    pub fn unseen_tasks(self) -> &'static [Task] {
        static UNSEEN: [OnceLock<Vec<Task>>; 2] = [const { OnceLock::new() }; 2];
        UNSEEN[usize::from(self == Self::Desktop)].get_or_init(|| self.unseen_tasks_of(|_| true, |_| false))
    }

    /// The unseen tasks of the chosen training templates, which take turns, without known tasks: fewer than
    /// [`UNSEEN_TASKS`] only if these templates have no more.
    pub fn unseen_tasks_of(
        self,
        is_chosen: impl Fn(&str) -> bool,
        is_known: impl Fn(&Task) -> bool,
    ) -> Vec<Task> {
        let templates = Split::Train.templates().into_iter();
        let mut made: Vec<(&Template, Vec<Task>)> = templates
            .filter(|template| is_chosen(&template_name(template)))
            .map(|template| (template, Vec::new()))
            .collect();
        let mut unseen = Vec::new();
        for round in 1..=UNSEEN_TASKS {
            made.retain_mut(|(template, tasks)| self.make_unseen(template, tasks, round));
            let new = made.iter().filter_map(|(_, tasks)| tasks.last()).filter(|task| !is_known(task));
            unseen.extend(new.take(UNSEEN_TASKS - unseen.len()).cloned());
            if unseen.len() == UNSEEN_TASKS {
                break;
            }
        }
        unseen
    }

    /// The unseen task of a name; none if no unseen task has it.
    pub fn unseen_by_name(self, name: &str) -> Option<Task> {
        let (_, number) = name.rsplit_once("-u")?;
        let number = number.parse().ok().filter(|number| *number < UNSEEN_TASKS)?;
        let of_name = |template: &&Template| self.unseen_name(template, number) == name;
        let template = Split::Train.templates().into_iter().find(of_name)?;
        let mut tasks = Vec::new();
        self.make_unseen(template, &mut tasks, number + 1).then(|| tasks.pop()).flatten()
    }

    fn unseen_name(self, template: &Template, number: usize) -> String {
        format!("{}-{}-u{number:06}", self.key(), template_name(template))
    }

    /// Makes distinct unseen tasks of a template until there are `count`; false if it has fewer.
    fn make_unseen(self, template: &Template, tasks: &mut Vec<Task>, count: usize) -> bool {
        while tasks.len() < count {
            let number = tasks.len();
            let new =
                |task: &Task| !self.is_listed(task) && !tasks.iter().any(|other| is_same_task(other, task));
            let name = self.unseen_name(template, number);
            match self.first_wanted(template, UNSEEN_SEEDS, number as u64, &name, new) {
                Some(task) => tasks.push(task),
                None => return false,
            }
        }
        true
    }

    fn first_wanted(
        self,
        template: &Template,
        seeds: u64,
        number: u64,
        name: &str,
        is_wanted: impl Fn(&Task) -> bool,
    ) -> Option<Task> {
        let first = seeds + number * TRIES;
        (first..first + TRIES)
            .map(|seed| self.make(template, Split::Train, template_seed(template, seed), name.to_owned()))
            .find(is_wanted)
    }

    /// The training template of a listed, generated or unseen task, by the task's name: `files-rename`.
    pub fn template_of(self, name: &str) -> Option<String> {
        let (front, _) = name.strip_prefix(self.key())?.strip_prefix('-')?.rsplit_once('-')?;
        self.templates().into_iter().find(|template| template == front)
    }
}

fn template_of_number(number: u64) -> &'static Template {
    let templates = Split::Train.templates();
    templates[(number % templates.len() as u64) as usize]
}

/// A generated or an unseen task by its name, and the suite it belongs to.
pub fn find(name: &str) -> Option<(Suite, Task)> {
    Suite::ALL.into_iter().find_map(|suite| {
        Some((suite, suite.generated_by_name(name).or_else(|| suite.unseen_by_name(name))?))
    })
}
