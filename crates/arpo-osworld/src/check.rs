//! What is wrong with a task file, as far as that can be said without a desktop.

use crate::coverage::{programs, unimplemented};
use crate::google::Accounts;
use crate::host::Program;
use crate::setup::{DriveOperation, SetupStep};
use crate::task::local_files::local_path;
use crate::task::{Getter, Step, TaskFile};
use serde_json::Value;
use std::path::Path;

/// Every problem of a task, one line each: what is not implemented, programs of this host that are not installed, credentials of
/// accounts that are missing, steps that cannot be read, files that are not there.
pub fn problems(task: &TaskFile, accounts: &Accounts) -> Vec<String> {
    problems_on(task, accounts, Program::is_installed)
}

/// The problems of a task on a host with some programs.
fn problems_on(task: &TaskFile, accounts: &Accounts, is_installed: impl Fn(Program) -> bool) -> Vec<String> {
    let unimplemented = unimplemented(task).into_iter().map(|what| format!("{what} is not implemented"));
    let absent = programs(task).filter(|program| !is_installed(*program));
    let mut problems: Vec<String> =
        unimplemented.chain(absent.map(|program| program.missing().to_string())).collect();
    problems.extend(accounts.problems(task).iter().map(|problem| format!("Google credentials: {problem}")));
    for (field, steps) in [("config", &task.config), ("evaluator.postconfig", &task.evaluator.postconfig)] {
        for (index, step) in steps.iter().enumerate() {
            let at = |problem: String| format!("{field}[{index}] ({}): {problem}", step.kind);
            problems.extend(step_problems(step).into_iter().map(at));
        }
    }
    for (index, check) in task.evaluator.checks.iter().enumerate() {
        for (side, getter) in [("result", &check.result), ("expected", &check.expected)] {
            let files = getter.iter().flat_map(cloud_files).filter_map(missing_file);
            problems.extend(files.map(|problem| format!("evaluator.{side} of check {index}: {problem}")));
        }
    }
    problems
}

fn step_problems(step: &Step) -> Vec<String> {
    match SetupStep::parse(step) {
        // said above
        Err(_) if !crate::setup::STEPS.contains(&step.kind.as_str()) => vec![],
        Err(problem) => vec![problem],
        Ok(SetupStep::Download(files)) => files.iter().filter_map(|(url, _)| missing_file(url)).collect(),
        Ok(SetupStep::UploadFile(files)) => {
            let missing = files.iter().filter(|(local, _)| !Path::new(local).is_file());
            missing.map(|(local, _)| format!("no file {local}")).collect()
        }
        Ok(SetupStep::GoogleDrive { operations, .. }) => {
            let url = |operation: &DriveOperation| match operation {
                DriveOperation::Upload { url, .. } => missing_file(url),
                DriveOperation::Delete { .. } | DriveOperation::MakeFolders(_) => None,
            };
            operations.iter().filter_map(url).collect()
        }
        Ok(_) => vec![],
    }
}

/// The addresses of a `cloud_file`.
fn cloud_files(getter: &Getter) -> Vec<&str> {
    match getter.fields.get("path") {
        Some(Value::String(path)) if getter.kind == "cloud_file" => vec![path],
        Some(Value::Array(paths)) if getter.kind == "cloud_file" => {
            paths.iter().filter_map(Value::as_str).collect()
        }
        _ => vec![],
    }
}

fn missing_file(url: &str) -> Option<String> {
    let path = local_path(url)?;
    (!path.is_file()).then(|| format!("no file {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_problem_is_named() {
        let task = json!({
            "id": "a", "instruction": "do",
            "config": [
                {"type": "download", "parameters": {"files": [{"url": "file:///nowhere/a", "path": "/a"}]}},
                {"type": "open", "parameters": {}},
                {"type": "dance", "parameters": {}},
                {"type": "upload_file", "parameters": {"files": [{"local_path": "/nowhere/b", "path": "/b"}]}}
            ],
            "evaluator": {"func": "exact_match", "result": {"type": "vm_file", "path": "/a", "dest": "a"},
                "expected": {"type": "cloud_file", "path": "file:///nowhere/c", "dest": "c"}}
        });
        let task = TaskFile::parse(&task.to_string()).unwrap();
        assert_eq!(
            problems(&task, &Accounts::default()),
            [
                "step dance is not implemented",
                "config[0] (download): no file /nowhere/a",
                "config[1] (open): path is missing",
                "config[3] (upload_file): no file /nowhere/b",
                "evaluator.expected of check 0: no file /nowhere/c",
            ]
        );
    }

    #[test]
    fn a_program_that_is_not_installed_is_not_called_unimplemented() {
        let task = json!({"id": "a", "instruction": "do", "evaluator": {"func": "compare_image_text",
            "result": {"type": "vm_file", "path": "/a", "dest": "a"},
            "expected": {"type": "rule", "rules": {"type": "text", "text": "a"}}}});
        let task = TaskFile::parse(&task.to_string()).unwrap();
        assert_eq!(problems_on(&task, &Accounts::default(), |_| true), Vec::<String>::new());
        assert_eq!(
            problems_on(&task, &Accounts::default(), |_| false),
            [
                "tesseract is not installed on this host, or not completely; on Debian: apt-get install tesseract-ocr tesseract-ocr-eng"
            ]
        );
    }

    #[test]
    fn an_account_without_credentials_is_named() {
        let task = json!({"id": "a", "instruction": "do", "evaluator": {"func": "infeasible"}, "config": [
            {"type": "googledrive", "parameters": {"operation": ["upload"],
                "args": [{"url": "file:///nowhere/a.pdf", "path": "a.pdf"}]}}]});
        let task = TaskFile::parse(&task.to_string()).unwrap();
        assert_eq!(
            problems(&task, &Accounts::new("/nowhere")),
            [
                "Google credentials: /nowhere/googledrive/settings.yml: no such file: expected settings of PyDrive with \
                 `save_credentials_file`",
                "config[0] (googledrive): no file /nowhere/a.pdf",
            ]
        );
    }
}
