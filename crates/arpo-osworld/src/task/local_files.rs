//! Files beside a task: a task of one's own names its set-up files and golds by paths relative to its own file, or by
//! `file://`. They become addresses that do not depend on the working folder.

use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// How the address of a file of this host begins.
const SCHEME: &str = "file://";

/// The file of this host that an address names, if it names one.
pub fn local_path(address: &str) -> Option<PathBuf> {
    let path = address.strip_prefix(SCHEME)?;
    // as browsers write it: file://localhost/a%20b
    let path = path.strip_prefix("localhost").filter(|rest| rest.starts_with('/')).unwrap_or(path);
    let decoded = percent_encoding::percent_decode_str(path).decode_utf8_lossy();
    Some(PathBuf::from(decoded.as_ref()))
}

/// The text of a task file with the files beside it named absolutely; the text itself if there are none.
pub(super) fn resolved(text: String, folder: &Path) -> String {
    let Ok(mut task) = serde_json::from_str::<Value>(&text) else { return text };
    let before = task.clone();
    resolve_steps(task.get_mut("config"), folder);
    if let Some(evaluator) = task.get_mut("evaluator") {
        resolve_steps(evaluator.get_mut("postconfig"), folder);
        for side in ["result", "expected"] {
            match evaluator.get_mut(side) {
                Some(Value::Array(getters)) => getters.iter_mut().for_each(|one| resolve_getter(one, folder)),
                Some(one) => resolve_getter(one, folder),
                None => {}
            }
        }
    }
    if task == before { text } else { task.to_string() }
}

fn resolve_steps(steps: Option<&mut Value>, folder: &Path) {
    for step in steps.and_then(Value::as_array_mut).into_iter().flatten() {
        let (list, field) = match step.get("type").and_then(Value::as_str) {
            Some("download") => ("/parameters/files", "url"),
            Some("upload_file") => ("/parameters/files", "local_path"),
            Some("googledrive") => ("/parameters/args", "url"),
            _ => continue,
        };
        let files = step.pointer_mut(list).and_then(Value::as_array_mut);
        for file in files.into_iter().flatten() {
            if let Some(Value::String(name)) = file.get_mut(field) {
                resolve(name, folder, field == "url");
            }
        }
    }
}

/// A gold of a `cloud_file`, or several.
fn resolve_getter(getter: &mut Value, folder: &Path) {
    let Some(fields) = getter.as_object_mut().filter(|fields| is_cloud_file(fields)) else { return };
    match fields.get_mut("path") {
        Some(Value::String(name)) => resolve(name, folder, true),
        Some(Value::Array(names)) => {
            for name in names {
                if let Value::String(name) = name {
                    resolve(name, folder, true);
                }
            }
        }
        _ => {}
    }
}

fn is_cloud_file(fields: &Map<String, Value>) -> bool {
    fields.get("type").and_then(Value::as_str) == Some("cloud_file")
}

/// A name that is no address and not absolute is a file beside the task, as an address or as a path. A path that does not
/// exist there stays: OSWorld's own uploads are relative to the working folder.
fn resolve(name: &mut String, folder: &Path, as_address: bool) {
    if name.contains("://") {
        return;
    }
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let path = folder.join(&*name);
    if as_address {
        // an address is decoded again
        *name = format!("{SCHEME}{}", path.display().to_string().replace('%', "%25"));
    } else if path.exists() {
        *name = path.display().to_string();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn files_beside_a_task_are_found_from_anywhere() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("here.txt"), "x").unwrap();
        let task = json!({
            "config": [
                {"type": "download", "parameters": {"files": [
                    {"url": "a.xlsx", "path": "/home/user/a.xlsx"}, {"url": "https://host/b", "path": "b"}]}},
                {"type": "upload_file", "parameters": {"files": [
                    {"local_path": "here.txt", "path": "c"}, {"local_path": "elsewhere.txt", "path": "d"}]}},
                {"type": "googledrive", "parameters": {"operation": ["delete", "upload"], "args": [
                    {"query": ""}, {"url": "e.pdf", "path": ["e.pdf"]}]}}
            ],
            "evaluator": {"func": ["f", "g"], "result": [{"type": "vm_file", "path": "r"}, null],
                "expected": [{"type": "cloud_file", "path": ["gold.xlsx", "file:///x/y"]}, {"type": "rule"}]}
        });
        let text = resolved(task.to_string(), folder.path());
        let task: Value = serde_json::from_str(&text).unwrap();
        let here = folder.path().display();
        let files = |step: usize| task["config"][step]["parameters"]["files"].clone();
        assert_eq!(files(0)[0]["url"], format!("file://{here}/a.xlsx"));
        assert_eq!(files(0)[1]["url"], "https://host/b");
        assert_eq!(files(1)[0]["local_path"], format!("{here}/here.txt"));
        assert_eq!(files(1)[1]["local_path"], "elsewhere.txt");
        let uploaded = &task["config"][2]["parameters"]["args"][1];
        assert_eq!(*uploaded, json!({"url": format!("file://{here}/e.pdf"), "path": ["e.pdf"]}));
        assert_eq!(task["evaluator"]["result"][0]["path"], "r");
        let golds = json!([format!("file://{here}/gold.xlsx"), "file:///x/y"]);
        assert_eq!(task["evaluator"]["expected"][0]["path"], golds);
        // a task without such files stays as it is written
        let plain = "{ \"config\": [] }".to_owned();
        assert_eq!(resolved(plain.clone(), folder.path()), plain);
    }

    #[test]
    fn an_address_of_this_host_is_a_path() {
        assert_eq!(local_path("file:///a%20b/c"), Some("/a b/c".into()));
        assert_eq!(local_path("file://localhost/c"), Some("/c".into()));
        assert_eq!(local_path("https://host/c"), None);
    }
}
