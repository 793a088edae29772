//! A folder of task files, and lists that choose from it.
//!
//! A folder is `examples/<domain>/<id>.json`, what is inside `examples`, or a folder of task files of one's own. A list is OSWorld's
//! `{"domain": ["id", ...]}`, an array of `{"domain": ..., "id": ...}`, or lines of `domain/id`.

use super::TaskFile;
use super::local_files::resolved;
use crate::error::TaskError;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A task with its domain.
#[derive(Debug, Clone, PartialEq)]
pub struct SuiteTask {
    /// The folder it is in: `chrome`, `gimp`, ...
    pub domain: String,
    /// The task.
    pub task: TaskFile,
    /// The text of its file, for a host that does not have it.
    pub text: String,
}

impl SuiteTask {
    /// A task from the text of its file.
    pub fn parse(domain: impl Into<String>, text: String) -> Result<Self, String> {
        Ok(Self { domain: domain.into(), task: TaskFile::parse(&text)?, text })
    }

    /// Its name, `domain/id`: an id alone may occur in several domains.
    pub fn name(&self) -> String {
        format!("{}/{}", self.domain, self.task.id)
    }
}

/// Reads every task of a folder, or those of a list, in the list's order.
pub fn load(folder: &Path, list: Option<&Path>) -> Result<Vec<SuiteTask>, TaskError> {
    if let Some(list) = list {
        return load_chosen(folder, read_list(list)?);
    }
    let root = root_of(folder);
    let mut tasks = own_tasks(&root)?;
    let has_own = !tasks.is_empty();
    for domain in sorted(&root)?.into_iter().filter(|path| path.is_dir()) {
        let name = domain.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        for file in sorted(&domain)?.into_iter().filter(|path| is_json(path)) {
            // beside tasks of one's own, a folder may hold files that they use
            if !has_own || is_task(&read(&file)?) {
                tasks.push(parse(&file, name.clone())?);
            }
        }
    }
    if tasks.is_empty() {
        return Err(TaskError::File {
            path: root,
            problem: "no task files in it or in folders of it".into(),
        });
    }
    let mut names = BTreeSet::new();
    match tasks.iter().map(SuiteTask::name).find(|name| !names.insert(name.clone())) {
        Some(name) => Err(TaskError::File { path: root, problem: format!("two files have the id {name}") }),
        None => Ok(tasks),
    }
}

/// The domain of a task that is in no domain's folder and names no application.
const OWN: &str = "own";

/// The task files directly in a folder; their domain is the first application that they are about. Other JSON files, such
/// as lists, have no evaluator.
fn own_tasks(root: &Path) -> Result<Vec<SuiteTask>, TaskError> {
    let mut tasks = Vec::new();
    for path in sorted(root)?.into_iter().filter(|path| is_json(path)) {
        if is_task(&read(&path)?) {
            tasks.push(read_file(&path)?);
        }
    }
    Ok(tasks)
}

fn is_task(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|value| value.get("evaluator").is_some())
}

/// Reads one task file; its domain is the first application that it is about.
pub fn read_file(path: &Path) -> Result<SuiteTask, TaskError> {
    let mut task = parse(path, OWN.into())?;
    if let Some(application) = task.task.related_apps.first() {
        task.domain = application.replace('/', "-");
    }
    Ok(task)
}

fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "json")
}

/// Whether a folder has the files of any of these domains and ids.
pub fn has_any(folder: &Path, chosen: &[(String, String)]) -> bool {
    let root = root_of(folder);
    chosen.iter().any(|(domain, id)| root.join(domain).join(format!("{id}.json")).is_file())
}

/// Reads the tasks of these domains and ids.
pub fn load_chosen(folder: &Path, chosen: Vec<(String, String)>) -> Result<Vec<SuiteTask>, TaskError> {
    let root = root_of(folder);
    chosen.into_iter().map(|(domain, id)| read_task(&root, domain, &id)).collect()
}

fn root_of(folder: &Path) -> PathBuf {
    let root = folder.join("examples");
    if root.is_dir() { root } else { folder.to_path_buf() }
}

/// The domains and ids of a list, in its order.
pub fn read_list(path: &Path) -> Result<Vec<(String, String)>, TaskError> {
    parse_list(&read(path)?).map_err(|problem| TaskError::File { path: path.to_path_buf(), problem })
}

/// The same from its text.
pub fn parse_list(text: &str) -> Result<Vec<(String, String)>, String> {
    if !text.trim_start().starts_with(['{', '[']) {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let parts = |line: &str| match line.split_once('/') {
            Some((domain, id)) => Ok((domain.to_owned(), id.to_owned())),
            None => Err(format!("{line:?}: expected JSON, or lines of domain/id")),
        };
        return lines.map(parts).collect();
    }
    let value: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    let mut chosen = Vec::new();
    match value {
        Value::Object(domains) => {
            for (domain, ids) in domains {
                let ids: Vec<String> =
                    serde_json::from_value(ids).map_err(|error| format!("domain {domain}: {error}"))?;
                chosen.extend(ids.into_iter().map(|id| (domain.clone(), id)));
            }
        }
        Value::Array(entries) => {
            for (index, entry) in entries.iter().enumerate() {
                let field = |name: &str| {
                    let text = entry[name].as_str().map(str::to_owned);
                    text.ok_or_else(|| format!("entry {index}: {name} is missing or not text"))
                };
                chosen.push((field("domain")?, field("id")?));
            }
        }
        _ => return Err("neither domains with ids nor a list of tasks".into()),
    }
    Ok(chosen)
}

fn read_task(root: &Path, domain: String, id: &str) -> Result<SuiteTask, TaskError> {
    parse(&root.join(&domain).join(format!("{id}.json")), domain)
}

fn parse(path: &Path, domain: String) -> Result<SuiteTask, TaskError> {
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    let parsed = SuiteTask::parse(domain, resolved(read(path)?, folder));
    parsed.map_err(|problem| TaskError::File { path: path.to_path_buf(), problem })
}

fn read(path: &Path) -> Result<String, TaskError> {
    fs::read_to_string(path).map_err(|error| TaskError::Io { path: path.to_path_buf(), error })
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>, TaskError> {
    let failed = |error| TaskError::Io { path: folder.to_path_buf(), error };
    let mut paths = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        paths.insert(entry.file_name(), entry.path());
    }
    Ok(paths.into_values().collect())
}
