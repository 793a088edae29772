//! How a desktop is set up: the world of a seed, then the steps of the task.

use crate::desktop::Desktop;
use crate::environment::EnvironmentError;
use crate::evaluator::{remove, set, to_json};
use crate::look::{Look, seeded_hash};
use crate::tasks::words::words;
use crate::tasks::{invented, worlds};
use crate::world::{App, World, split_path};
use arpo_core::task::Task;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One step of a task's set-up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// Starts from a world; without this step it is the one sampled for the screen's profile.
    World {
        /// `drawn`, `empty`, or `{"invented": N}`.
        name: WorldName,
    },
    /// Puts a value somewhere.
    Set {
        /// A JSON pointer into the world.
        path: String,
        /// What.
        value: Value,
    },
    /// Removes something.
    Remove {
        /// A JSON pointer into the world.
        path: String,
    },
    /// Writes a file, and makes its folder.
    WriteFile {
        /// `name`, or `folder/name`.
        path: String,
        /// What it holds.
        content: String,
    },
    /// Opens an application, over those already open.
    Open {
        /// Which.
        application: App,
    },
    /// Opens a file in the editor.
    OpenFile {
        /// Which.
        path: String,
    },
    /// Shows a message over everything.
    Notice {
        /// Its text.
        text: String,
    },
    /// Opens windows that the task does not need, where windows can overlap.
    Clutter {},
}

/// A world to start from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorldName {
    /// Files, messages and the rest sampled from the seed.
    Drawn,
    /// Nothing at all.
    Empty,
    /// Sampled from the seed with the names of a dictionary, see [`invented::DICTIONARIES`].
    Invented(u16),
}

/// The desktop at the start of an episode.
pub(crate) fn prepare(task: &Task, look: Look, seed: u64) -> Result<Desktop, EnvironmentError> {
    let bad = |reason: String| EnvironmentError::BadTask { task: task.id.to_string(), reason };
    let steps: Vec<Step> = match &task.setup {
        Value::Null => Vec::new(),
        setup => serde_json::from_value(setup.clone()).map_err(|error| bad(format!("config: {error}")))?,
    };
    let world = worlds::sample(look.pocket(), words(look.pocket()), seed);
    let mut desktop = Desktop::new(world, look);
    for step in steps {
        apply(&mut desktop, step, seed).map_err(|error| bad(format!("config: {error}")))?;
    }
    Ok(desktop)
}

fn apply(desktop: &mut Desktop, step: Step, seed: u64) -> Result<(), String> {
    match step {
        Step::World { name } => {
            let pocket = desktop.look.pocket();
            desktop.world = match name {
                WorldName::Drawn => worlds::sample(pocket, words(pocket), seed),
                WorldName::Empty => World::default(),
                WorldName::Invented(number) => {
                    worlds::sample(pocket, invented::dictionary(pocket, number)?, seed)
                }
            };
        }
        Step::Set { path, value } => edit(desktop, |world| set(world, &path, value))?,
        Step::Remove { path } => edit(desktop, |world| {
            remove(world, &path);
            Ok(())
        })?,
        Step::WriteFile { path, content } => {
            let folder = split_path(&path).0;
            if !folder.is_empty() {
                desktop.world.folders.insert(folder.to_owned());
            }
            desktop.world.files.insert(path, content);
        }
        Step::Open { application } => desktop.open(application),
        Step::OpenFile { path } => {
            if !desktop.world.files.contains_key(&path) {
                return Err(format!("there is no file {path}"));
            }
            crate::apps::editor::load(desktop, &path);
            desktop.open(App::Editor);
        }
        Step::Notice { text } => desktop.session.notice = Some(text),
        Step::Clutter {} => {
            if !desktop.look.pocket() && desktop.look.order.is_some() {
                let mut apps = App::ALL;
                apps.sort_by_key(|app| seeded_hash(seed, &format!("clutter {app}")));
                for app in &apps[..(seeded_hash(seed, "clutter") % 4) as usize] {
                    desktop.open(*app);
                }
            }
        }
    }
    Ok(())
}

/// Changes the world in its JSON form.
fn edit(desktop: &mut Desktop, change: impl FnOnce(&mut Value) -> Result<(), String>) -> Result<(), String> {
    let mut world = to_json(&desktop.world);
    change(&mut world)?;
    desktop.world = serde_json::from_value(world).map_err(|error| error.to_string())?;
    Ok(())
}
