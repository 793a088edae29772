//! Custom tasks of a user, read from JSON files and set up once to validate them.

use super::parse;
use crate::embedded::EmbeddedDesktop;
use crate::environment::Environment;
use crate::look::ScreenOptions;
use arpo_core::task::Task;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time limit of the trial set-up of a task.
const SET_UP: Duration = Duration::from_secs(10);

/// The tasks of a file, or of the JSON files of a folder by name. Every task is set up once on this screen; an error
/// names the file and the task.
pub fn read(path: &Path, screen: ScreenOptions) -> Result<Vec<Task>, String> {
    let mut environment = EmbeddedDesktop::new(screen).map_err(|error| error.to_string())?;
    let mut tasks = Vec::new();
    let mut names = BTreeSet::new();
    for file in files(path).map_err(|error| format!("{}: {error}", path.display()))? {
        let wrong = |problem: String| format!("{}: {problem}", file.display());
        let text = fs::read_to_string(&file).map_err(|error| wrong(error.to_string()))?;
        for task in parse(&text).map_err(|error| wrong(format!("expected a list of tasks: {error}")))? {
            let deadline = Instant::now() + SET_UP;
            environment.reset(&task, 0, deadline).map_err(|error| wrong(error.to_string()))?;
            if !names.insert(task.id.clone()) {
                return Err(wrong(format!("task {}: the name is taken by another task", task.id)));
            }
            tasks.push(task);
        }
    }
    Ok(tasks)
}

/// A file, or the JSON files of a folder by name.
fn files(path: &Path) -> Result<Vec<PathBuf>, String> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut files: Vec<PathBuf> = entries.map_err(|error| error.to_string())?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    if files.is_empty() { Err("the folder has no .json file".to_owned()) } else { Ok(files) }
}
