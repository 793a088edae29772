//! Tasks: templates with seeds, the listed suites, and the worlds they run in.

mod auxiliary;
mod builder;
pub mod custom;
mod devices;
mod files;
pub mod generated;
pub mod invented;
mod office;
pub mod vocabulary;
mod wordings;
pub(crate) mod words;
pub(crate) mod worlds;

use crate::look::ScreenOptions;
use arpo_core::task::Task;
pub use builder::Variation;
use builder::{TaskBuilder, Template};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// A set of tasks and the screen they are meant for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Suite {
    /// Small screen, small vocabulary.
    Pocket,
    /// Windows, natural English.
    Desktop,
}

/// A split of a suite's listed tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// 128 tasks to train on.
    Train,
    /// 64 tasks of other templates and with other names, to test on.
    HeldOut,
}

impl Split {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Train, Self::HeldOut];

    fn count(self) -> usize {
        match self {
            Self::Train => 128,
            Self::HeldOut => 64,
        }
    }

    /// Its name on the command line.
    pub fn key(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::HeldOut => "held-out",
        }
    }

    fn templates(self) -> Vec<&'static Template> {
        let groups = match self {
            Self::Train => [devices::TRAINING, files::TRAINING, office::TRAINING],
            Self::HeldOut => [devices::HELD_OUT, files::HELD_OUT, office::HELD_OUT],
        };
        groups.into_iter().flatten().collect()
    }
}

/// Seeds of tasks beyond the listed ones start here.
const FURTHER_SEEDS: u64 = 1 << 32;

/// From the first seed of a further task to that of the next.
const FURTHER_SEEDS_APART: u64 = 64;

impl Suite {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Pocket, Self::Desktop];

    /// Its name on the command line.
    pub fn key(self) -> &'static str {
        match self {
            Self::Pocket => "pocket",
            Self::Desktop => "desktop",
        }
    }

    /// The screen it is meant for.
    pub fn screen(self) -> ScreenOptions {
        match self {
            Self::Pocket => ScreenOptions::pocket(),
            Self::Desktop => ScreenOptions::desktop(640, 480),
        }
    }

    /// The text of a task file, as it is shipped.
    fn shipped(self, split: Split) -> &'static str {
        match (self, split) {
            (Self::Pocket, Split::Train) => include_str!("../../tasks/pocket-train.json"),
            (Self::Pocket, Split::HeldOut) => include_str!("../../tasks/pocket-held-out.json"),
            (Self::Desktop, Split::Train) => include_str!("../../tasks/desktop-train.json"),
            (Self::Desktop, Split::HeldOut) => include_str!("../../tasks/desktop-held-out.json"),
        }
    }

    /// The listed tasks.
    pub fn tasks(self, split: Split) -> &'static [Task] {
        static LISTED: [OnceLock<Vec<Task>>; 4] = [const { OnceLock::new() }; 4];
        let index = usize::from(self == Self::Desktop) * 2 + usize::from(split == Split::HeldOut);
        LISTED[index]
            .get_or_init(|| parse(self.shipped(split)).expect("the shipped task files are read in tests"))
    }

    /// All 192 listed tasks.
    pub fn all_tasks(self) -> impl Iterator<Item = &'static Task> {
        self.tasks(Split::Train).iter().chain(self.tasks(Split::HeldOut))
    }

    /// The listed tasks regenerated from their templates, as the text of a task file.
    pub fn listing(self, split: Split) -> String {
        let lines: Vec<String> = self
            .make_listed(split)
            .iter()
            .map(|task| serde_json::to_string(task).expect("tasks are plain data"))
            .collect();
        format!("[\n{}\n]\n", lines.join(",\n"))
    }

    /// The templates in turn, each with its next seed, until there are enough tasks with distinct instructions.
    fn make_listed(self, split: Split) -> Vec<Task> {
        let templates = split.templates();
        let mut tasks: Vec<Task> = Vec::new();
        let mut asked = BTreeSet::new();
        for round in 0.. {
            for template in &templates {
                let application = template.app;
                let id = format!("{}-{application}-{}-{round}", self.key(), template.name);
                let task = (0..8)
                    .map(|retry| {
                        self.make(template, split, template_seed(template, round * 8 + retry), id.clone())
                    })
                    .find(|task| !asked.contains(&task.instruction));
                if let Some(task) = task {
                    asked.insert(task.instruction.clone());
                    tasks.push(task);
                }
                if tasks.len() == split.count() {
                    return tasks;
                }
            }
        }
        tasks
    }

    fn make(self, template: &Template, split: Split, seed: u64, id: String) -> Task {
        let held_out = split == Split::HeldOut;
        TaskBuilder::build(template, self == Self::Pocket, held_out, seed, id, Variation::default())
    }

    /// Names of the training templates: `files-rename`.
    pub fn templates(self) -> Vec<String> {
        Split::Train.templates().into_iter().map(template_name).collect()
    }

    /// The `index`-th task beyond the listed ones, of the training templates in turn: an endless supply for
    /// supervised training. A task equal to a listed one is never made.
    pub fn further_task(self, index: u64) -> Task {
        let templates = Split::Train.templates();
        let template = templates[(index % templates.len() as u64) as usize];
        self.further(template, index)
    }

    /// The `index`-th further task of one template, or none if there is no template of that name.
    pub fn further_task_of(self, name: &str, index: u64) -> Option<Task> {
        let wanted = |template: &&Template| template_name(template) == name;
        Some(self.further(Split::Train.templates().into_iter().find(wanted)?, index))
    }

    fn further(self, template: &Template, index: u64) -> Task {
        let id = format!("{}-{}-{}-further-{index}", self.key(), template.app, template.name);
        let make = |retry: u64| {
            let seed = FURTHER_SEEDS + index.wrapping_mul(FURTHER_SEEDS_APART) + retry;
            self.make(template, Split::Train, template_seed(template, seed), id.clone())
        };
        let mut task = make(0);
        for retry in 1.. {
            if !self.is_listed(&task) {
                break;
            }
            task = make(retry);
        }
        task
    }

    /// Whether a listed task is the same, apart from its name.
    fn is_listed(self, task: &Task) -> bool {
        self.all_tasks().any(|listed| is_same_task(listed, task))
    }
}

/// Whether two tasks have the same instruction, set-up and evaluator, whatever their names.
pub fn is_same_task(one: &Task, other: &Task) -> bool {
    (&one.instruction, &one.setup, &one.evaluator) == (&other.instruction, &other.setup, &other.evaluator)
}

fn template_name(template: &Template) -> String {
    format!("{}-{}", template.app, template.name)
}

/// Every template has its own random stream, even where two share a name.
fn template_seed(template: &Template, seed: u64) -> u64 {
    crate::look::seeded_hash(seed, &template_name(template))
}

/// A listed task by its name, and the suite it belongs to.
pub fn find(id: &str) -> Option<(Suite, &'static Task)> {
    Suite::ALL
        .into_iter()
        .find_map(|suite| Some((suite, suite.all_tasks().find(|task| task.id.as_str() == id)?)))
}

/// Reads a task file: a list of tasks.
pub fn parse(text: &str) -> Result<Vec<Task>, serde_json::Error> {
    serde_json::from_str(text)
}

/// The file a listing is shipped in, from the crate's folder.
pub fn listing_path(suite: Suite, split: Split) -> String {
    format!("tasks/{}-{}.json", suite.key(), split.key())
}
