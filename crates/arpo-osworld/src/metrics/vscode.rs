//! Metrics on Visual Studio Code's files, and the check by a Python test file.

use super::call::{Settings, yes};
use super::{Call, Metric, Score, metric};
use crate::error::MetricError;
use crate::state::{FileState, State};
use crate::text::python;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(super) const METRICS: &[Metric] = &[
    metric("check_json_keybindings", check_json_keybindings),
    metric("check_json_settings", check_json_settings),
    metric("check_python_file_by_test_suite", check_python_file_by_test_suite),
    metric("compare_answer", compare_answer),
    metric("compare_config", compare_config),
];

/// The file is a list that has the expected entry; a first line that is not JSON (a comment) may be skipped.
fn check_json_keybindings(call: &Call<'_>) -> Score {
    let Ok(content) = call.result.text() else { return Ok(0.0) };
    let after_first_line = content.split_once('\n').map_or("", |(_, rest)| rest);
    let lists = [content.as_str(), after_first_line]
        .into_iter()
        .filter_map(|text| serde_json::from_str::<Vec<Value>>(text).ok());
    let expected = call.rule_field("expected")?;
    Ok(yes(lists.take(1).any(|list| list.iter().any(|entry| python::equal(entry, expected)))))
}

/// Every expected setting has its value. ARPO era: a file that is not a JSON object raises; Verified: it scores 0.
fn check_json_settings(call: &Call<'_>) -> Score {
    if call.result.is_falsy() {
        return Ok(0.0);
    }
    let expected = call.rule_field("expected")?;
    let expected = expected.as_object().ok_or_else(|| MetricError::raises("expected is not an object"))?;
    let read = || -> Result<serde_json::Map<String, Value>, MetricError> {
        serde_json::from_str(&call.result.text()?)
            .map_err(|error| MetricError::raises(format!("not a JSON object: {error}")))
    };
    let found = match read() {
        Ok(found) => found,
        Err(_) if !call.is_arpo_era() => return Ok(0.0),
        Err(error) => return Err(error),
    };
    Ok(yes(expected
        .iter()
        .all(|(key, value)| found.get(key).is_some_and(|other| python::equal(other, value)))))
}

/// The file's text is the expected text. Verified: a JSON object that has all the expected one's entries will do,
/// and with `containment_ok` so will a text that holds the expected one.
fn compare_config(call: &Call<'_>) -> Score {
    if call.result.is_falsy() {
        return Ok(0.0);
    }
    let found = call.result.text()?;
    let expected = call.rule_text("expected")?;
    if found == expected {
        return Ok(1.0);
    }
    if call.is_arpo_era() {
        return Ok(0.0);
    }
    let object = |text: &str| serde_json::from_str::<serde_json::Map<String, Value>>(text).ok();
    if let (Some(found), Some(expected)) = (object(&found), object(expected)) {
        let holds = expected
            .iter()
            .all(|(key, value)| found.get(key).is_some_and(|other| python::equal(other, value)));
        return Ok(yes(holds));
    }
    Ok(yes(call.flag("containment_ok", false) && found.contains(python::strip(expected))))
}

/// Equal to the rule's `expected`.
fn compare_answer(call: &Call<'_>) -> Score {
    if call.result.is_falsy() {
        return Ok(0.0);
    }
    Ok(yes(python::equal(call.result.json()?, call.rule_field("expected")?)))
}

const TEST_LIMIT: Duration = Duration::from_secs(30);
/// Loads the test file beside the agent's files and prints the result of its function.
const RUN_TEST: &str = "import importlib.util, sys
sys.path.insert(0, '.')
spec = importlib.util.spec_from_file_location('checked', sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
answer = getattr(module, sys.argv[2])()
print('\\nscore', max(0.0, min(1.0, float(answer))) if isinstance(answer, (bool, int, float)) else float(bool(answer)))
";

/// The result of a function of a Python test file, in its own process with a time limit.
fn check_python_file_by_test_suite(call: &Call<'_>) -> Score {
    let State::File(test) = call.expected()? else { return Ok(0.0) };
    let Some(interpreter) = python_of(call.settings) else {
        return Err(MetricError::Unsupported(
            "a check by a Python file, without a Python that may run it".into(),
        ));
    };
    let function = call.options.get("test_function_name").and_then(Value::as_str).unwrap_or("test");
    let failed = |error: &dyn std::fmt::Display| MetricError::raises(format!("test file: {error}"));
    let folder = tempfile::tempdir().map_err(|error| failed(&error))?;
    let files = call
        .result
        .each()
        .iter()
        .filter_map(|state| if let State::File(file) = state { Some(file) } else { None });
    for file in files.chain([test]) {
        write_beside(folder.path(), file).map_err(|error| failed(&error))?;
    }
    run_test(interpreter, folder.path(), &test.name, function).map_err(|error| failed(&error))
}

fn python_of(settings: &Settings) -> Option<&Path> {
    settings.python.as_deref()
}

fn write_beside(folder: &Path, file: &FileState) -> std::io::Result<()> {
    for (name, bytes) in file.siblings.iter().chain([(&file.name, &file.bytes)]) {
        let name = Path::new(name).file_name().unwrap_or_default();
        fs::write(folder.join(name), bytes)?;
    }
    Ok(())
}

fn run_test(interpreter: &Path, folder: &Path, file: &str, function: &str) -> std::io::Result<f64> {
    let mut child = Command::new(interpreter)
        .args(["-c", RUN_TEST, file, function])
        .current_dir(folder)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let Some(mut output) = child.stdout.take() else { return Ok(0.0) };
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        output.by_ref().take(1 << 20).read_to_string(&mut text).map(|_| text)
    });
    let start = Instant::now();
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if start.elapsed() > TEST_LIMIT => {
                child.kill()?;
                child.wait()?;
                return Ok(0.0);
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let text = reader.join().ok().and_then(Result::ok).unwrap_or_default();
    let printed = text.lines().rev().find_map(|line| line.strip_prefix("score ")?.parse().ok());
    Ok(if status.success() { printed.unwrap_or(0.0) } else { 0.0 })
}
