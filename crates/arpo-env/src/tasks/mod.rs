//! Tasks: templates with seeds, the listed suites, and the worlds they play in.

mod devices;
mod files;
pub mod generated;
mod maker;
mod office;
pub mod own;
pub mod vocabulary;
pub(crate) mod words;
pub(crate) mod worlds;

use crate::look::ScreenOptions;
use arpo_core::task::Task;
use maker::{Maker, Template};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// A set of tasks and the screen they are meant for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Suite {
    /// Small screen, few words.
    Pocket,
    /// Windows, natural English.
    Desktop,
}

/// Which of a suite's listed tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// 128 tasks to train on.
    Train,
    /// 64 tasks of other templates and with other names, to test on.
    HeldOut,
}

impl Part {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Train, Self::HeldOut];

    fn count(self) -> usize {
        match self {
            Self::Train => 128,
            Self::HeldOut => 64,
        }
    }

    /// As the command line names it.
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

impl Suite {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Pocket, Self::Desktop];

    /// As the command line names it.
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
    fn shipped(self, part: Part) -> &'static str {
        match (self, part) {
            (Self::Pocket, Part::Train) => include_str!("../../tasks/pocket-train.json"),
            (Self::Pocket, Part::HeldOut) => include_str!("../../tasks/pocket-held-out.json"),
            (Self::Desktop, Part::Train) => include_str!("../../tasks/desktop-train.json"),
            (Self::Desktop, Part::HeldOut) => include_str!("../../tasks/desktop-held-out.json"),
        }
    }

    /// The listed tasks.
    pub fn tasks(self, part: Part) -> &'static [Task] {
        static LISTED: [OnceLock<Vec<Task>>; 4] = [const { OnceLock::new() }; 4];
        let index = usize::from(self == Self::Desktop) * 2 + usize::from(part == Part::HeldOut);
        LISTED[index]
            .get_or_init(|| parse(self.shipped(part)).expect("the shipped task files are read in tests"))
    }

    /// All 192 listed tasks.
    pub fn all_tasks(self) -> impl Iterator<Item = &'static Task> {
        self.tasks(Part::Train).iter().chain(self.tasks(Part::HeldOut))
    }

    /// The listed tasks made anew by their templates, as the text of a task file.
    pub fn listing(self, part: Part) -> String {
        let lines: Vec<String> = self
            .make_listed(part)
            .iter()
            .map(|task| serde_json::to_string(task).expect("tasks are plain data"))
            .collect();
        format!("[\n{}\n]\n", lines.join(",\n"))
    }

    /// The templates in turn, each with its next seed, until there are enough tasks that ask for different things.
    fn make_listed(self, part: Part) -> Vec<Task> {
        let templates = part.templates();
        let mut tasks: Vec<Task> = Vec::new();
        let mut asked = BTreeSet::new();
        for round in 0.. {
            for template in &templates {
                let application = template.app;
                let id = format!("{}-{application}-{}-{round}", self.key(), template.name);
                let task = (0..8)
                    .map(|retry| {
                        self.make(template, part, mixed_seed(template, round * 8 + retry), id.clone())
                    })
                    .find(|task| !asked.contains(&task.instruction));
                if let Some(task) = task {
                    asked.insert(task.instruction.clone());
                    tasks.push(task);
                }
                if tasks.len() == part.count() {
                    return tasks;
                }
            }
        }
        tasks
    }

    fn make(self, template: &Template, part: Part, seed: u64, id: String) -> Task {
        Maker::task(template, self == Self::Pocket, part == Part::HeldOut, seed, id)
    }

    /// Names of the training templates: `files-rename`.
    pub fn templates(self) -> Vec<String> {
        Part::Train.templates().into_iter().map(template_name).collect()
    }

    /// The `index`-th task beyond the listed ones, of the training templates in turn: endless material for
    /// supervised training. What a listed task asks for in the same surroundings is never made.
    pub fn further_task(self, index: u64) -> Task {
        let templates = Part::Train.templates();
        let template = templates[(index % templates.len() as u64) as usize];
        self.further(template, index)
    }

    /// The `index`-th further task of one template, or none if there is no template of that name.
    pub fn further_task_of(self, name: &str, index: u64) -> Option<Task> {
        let wanted = |template: &&Template| template_name(template) == name;
        Some(self.further(Part::Train.templates().into_iter().find(wanted)?, index))
    }

    fn further(self, template: &Template, index: u64) -> Task {
        let id = format!("{}-{}-{}-further-{index}", self.key(), template.app, template.name);
        let make = |retry: u64| {
            let seed = FURTHER_SEEDS + index.wrapping_mul(64) + retry;
            self.make(template, Part::Train, mixed_seed(template, seed), id.clone())
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

    /// Whether a listed task asks for the same in the same surroundings.
    fn is_listed(self, task: &Task) -> bool {
        self.all_tasks().any(|listed| coincide(listed, task))
    }
}

/// Whether two tasks, whatever their names, ask for the same in the same surroundings.
pub fn coincide(one: &Task, other: &Task) -> bool {
    (&one.instruction, &one.setup, &one.evaluator) == (&other.instruction, &other.setup, &other.evaluator)
}

fn template_name(template: &Template) -> String {
    format!("{}-{}", template.app, template.name)
}

/// Templates draw from streams of their own, also where they share a name.
fn mixed_seed(template: &Template, seed: u64) -> u64 {
    crate::look::mixed(seed, &template_name(template))
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
pub fn listing_path(suite: Suite, part: Part) -> String {
    format!("tasks/{}-{}.json", suite.key(), part.key())
}
