//! The builder that templates make tasks with: random draws, set-up steps, conditions and the instruction.

use crate::evaluator::{Condition, Evaluator, pointer};
use crate::setup::{Step, WorldName};
use crate::tasks::words::{Words, words};
use crate::tasks::{invented, wordings};
use crate::world::App;
use arpo_core::random::{Purpose, stream};
use arpo_core::task::{Task, TaskId};
use rand::RngExt;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

/// A task under construction.
#[derive(Debug)]
pub(crate) struct TaskBuilder {
    pub(crate) rng: ChaCha8Rng,
    pub(crate) words: &'static Words,
    pub(crate) pocket: bool,
    held_out: bool,
    variation: Variation,
    setup: Vec<Step>,
    evaluator: Evaluator,
    instruction: String,
}

/// A task template.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) name: &'static str,
    pub(crate) app: App,
    pub(crate) make: fn(&mut TaskBuilder),
}

/// What supervised training varies of a task besides its seed. The default is a task as listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Variation {
    /// The dictionary of invented names in place of the suite's lists, below [`DICTIONARIES`](invented::DICTIONARIES).
    pub dictionary: Option<u16>,
    /// Other words in the instruction, where the suite has one phrase for it.
    pub reworded: bool,
}

impl TaskBuilder {
    fn new(pocket: bool, held_out: bool, seed: u64, variation: Variation) -> Self {
        let rng = stream(seed, Purpose::Tasks, u64::from(pocket), u64::from(held_out));
        let words = match variation.dictionary {
            Some(number) => invented::dictionary(pocket, number).expect("numbers are below DICTIONARIES"),
            None => words(pocket),
        };
        let (setup, evaluator, instruction) = (Vec::new(), Evaluator::default(), String::new());
        Self { rng, words, pocket, held_out, variation, setup, evaluator, instruction }
    }

    /// The task of a template and a seed.
    pub(crate) fn build(
        template: &Template,
        pocket: bool,
        held_out: bool,
        seed: u64,
        id: String,
        variation: Variation,
    ) -> Task {
        let mut builder = Self::new(pocket, held_out, seed, variation);
        (template.make)(&mut builder);
        builder.finish(template.app, id)
    }

    /// Two tasks in one, for supervised training; none if they get in each other's way.
    pub(crate) fn build_both(
        templates: [&Template; 2],
        pocket: bool,
        seed: u64,
        id: String,
        variation: Variation,
    ) -> Option<Task> {
        let mut builder = Self::new(pocket, false, seed, variation);
        let [first, second] = templates.map(|template| {
            (template.make)(&mut builder);
            let setup = std::mem::take(&mut builder.setup);
            let evaluator = std::mem::take(&mut builder.evaluator);
            (setup, evaluator, std::mem::take(&mut builder.instruction))
        });
        // something infeasible is not half of a task, and opening an application is done on the way
        let is_half = |part: &Part| !part.1.infeasible && part.1.front().is_none();
        if !is_half(&first) || !is_half(&second) || !is_independent(&first, &second) {
            return None;
        }
        builder.setup = first.0;
        builder.setup.extend(second.0);
        builder.evaluator.conditions = [first.1.conditions, second.1.conditions].concat();
        builder.evaluator.partial = true;
        let between = match (pocket, variation.reworded) {
            (true, true) => builder.any(&[" and ", " then ", " and then "]),
            (true, false) => " and ",
            (false, _) => " ",
        };
        builder.instruction = format!("{}{between}{}", first.2, second.2);
        Some(builder.finish(templates[0].app, id))
    }

    fn finish(mut self, app: App, id: String) -> Task {
        self.initial_windows(app);
        if let Some(number) = self.variation.dictionary {
            // first, because it replaces the world that the other steps change
            self.setup.insert(0, Step::World { name: WorldName::Invented(number) });
        }
        Task {
            id: TaskId::new(id),
            instruction: self.instruction,
            application: self.evaluator.front().unwrap_or(app).key().to_owned(),
            setup: serde_json::to_value(self.setup).expect("steps are plain data"),
            evaluator: serde_json::to_value(self.evaluator).expect("conditions are plain data"),
        }
    }

    /// Adds what is open at the start: often the application itself, sometimes a message over everything.
    fn initial_windows(&mut self, app: App) {
        let mut opened = std::mem::take(&mut self.setup);
        if !self.pocket {
            opened.insert(0, Step::Clutter {});
        }
        if let Some(wanted) = self.evaluator.front() {
            // another window must be in front, or the task would be done at the start
            if let Some(application) =
                App::ALL.into_iter().find(|other| *other != wanted).filter(|_| !self.pocket)
            {
                opened.push(Step::Open { application });
            }
        } else if self.rng.random_bool(0.6) {
            opened.push(Step::Open { application: app });
        }
        if self.rng.random_bool(0.12) {
            let text = self.any(self.words.notices).to_owned();
            opened.push(Step::Notice { text });
        }
        self.setup = opened;
    }

    /// One of several.
    pub(crate) fn any<T: Copy>(&mut self, from: &[T]) -> T {
        *from.choose(&mut self.rng).expect("word lists are not empty")
    }

    /// Distinct names, from the part of the list reserved for training or for held-out tasks.
    pub(crate) fn names<const N: usize>(&mut self, from: &'static [&'static str]) -> [&'static str; N] {
        let middle = (from.len() * 2 / 3).clamp(N, from.len() - N.min(from.len()));
        let part =
            if self.held_out && from.len() - middle >= N { &from[middle..] } else { &from[..middle.max(N)] };
        let mut names = part.to_vec();
        names.shuffle(&mut self.rng);
        std::array::from_fn(|index| names[index])
    }

    /// Sets the instruction, with `{0}`, `{1}`, ... replaced; in the desktop suite one of several phrasings, in a reworded
    /// pocket task the phrase in other words.
    pub(crate) fn instruct(&mut self, pocket: &str, desktop: &[&str], with: &[&str]) {
        let mut instruction = if self.pocket && self.variation.reworded {
            wordings::reword(pocket, &mut self.rng)
        } else if self.pocket {
            pocket.to_owned()
        } else {
            self.any(desktop).to_owned()
        };
        for (index, word) in with.iter().enumerate() {
            instruction = instruction.replace(&format!("{{{index}}}"), word);
        }
        self.instruction = instruction;
    }

    /// Puts something into the world before the start.
    pub(crate) fn given(&mut self, names: &[&str], value: impl Into<Value>) {
        self.setup.push(Step::Set { path: pointer(names), value: value.into() });
    }

    /// Takes something out of the world before the start.
    pub(crate) fn without(&mut self, names: &[&str]) {
        self.setup.push(Step::Remove { path: pointer(names) });
    }

    /// Writes a file before the start.
    pub(crate) fn file(&mut self, path: &str, content: &str) {
        self.setup.push(Step::WriteFile { path: path.to_owned(), content: content.to_owned() });
    }

    /// What must be there at the end.
    pub(crate) fn goal(&mut self, names: &[&str], value: impl Into<Value>) {
        self.evaluator.conditions.push(Condition::Equals { path: pointer(names), value: value.into() });
    }

    /// What must be gone at the end.
    pub(crate) fn gone(&mut self, names: &[&str]) {
        self.evaluator.conditions.push(Condition::Absent { path: pointer(names) });
    }

    /// The window that must be in front at the end.
    pub(crate) fn in_front(&mut self, application: App) {
        self.evaluator.conditions.push(Condition::Open { application });
    }

    /// Each condition counts for a part of the score.
    pub(crate) fn partial(&mut self) {
        self.evaluator.partial = true;
    }

    /// Marks the task as infeasible.
    pub(crate) fn infeasible(&mut self) {
        self.evaluator.infeasible = true;
    }
}

/// Set-up, evaluator and instruction of a task.
type Part = (Vec<Step>, Evaluator, String);

/// Whether two tasks fit in one world: neither sets up or asks for what the other one does, except by the same step.
fn is_independent(one: &Part, other: &Part) -> bool {
    let goals = |part: &Part| -> Vec<String> { part.1.conditions.iter().filter_map(goal_path).collect() };
    let (goals_of_one, goals_of_other) = (goals(one), goals(other));
    let steps_apart = |part: &Part, against: &Part, goals: &[String]| {
        let own = part.0.iter().filter(|step| !against.0.contains(step)).filter_map(step_path);
        let places: Vec<String> =
            against.0.iter().filter_map(step_path).chain(goals.iter().cloned()).collect();
        own.collect::<Vec<_>>().iter().all(|path| places.iter().all(|place| !is_within(path, place)))
    };
    let goals_apart =
        goals_of_one.iter().all(|goal| goals_of_other.iter().all(|place| !is_within(goal, place)));
    goals_apart && steps_apart(one, other, &goals_of_other) && steps_apart(other, one, &goals_of_one)
}

/// The place in the world that a condition is about.
fn goal_path(condition: &Condition) -> Option<String> {
    match condition {
        Condition::Equals { path, .. } | Condition::Absent { path } => Some(path.clone()),
        Condition::Open { .. } => None,
    }
}

/// The place in the world that a step changes.
fn step_path(step: &Step) -> Option<String> {
    match step {
        Step::Set { path, .. } | Step::Remove { path } => Some(path.clone()),
        Step::WriteFile { path, .. } => Some(pointer(&["files", path])),
        _ => None,
    }
}

/// Whether one place is the other, or lies inside it.
fn is_within(one: &str, other: &str) -> bool {
    let inside = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    inside(one, other) || inside(other, one)
}
