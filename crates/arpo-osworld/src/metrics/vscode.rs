//! Metrics on Visual Studio Code's files, and the check by a Python test file.

use super::call::yes;
use super::{Call, Metric, Score, metric};
use crate::error::MetricError;
use crate::state::{FileState, State};
use crate::text::python;
use serde_json::Value;

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

/// Every expected setting has its value. ARPO era: a file that is not a JSON object raises; Verified: one that is not JSON
/// scores 0, and a list or a text raises where it holds the name of a setting.
fn check_json_settings(call: &Call<'_>) -> Score {
    if call.result.is_falsy() {
        return Ok(0.0);
    }
    let expected = call.rule_field("expected")?;
    let expected = expected.as_object().ok_or_else(|| MetricError::raises("expected is not an object"))?;
    let found = match call.result.text().and_then(|text| python::parse_json(&text)) {
        Ok(found) => found,
        Err(_) if !call.is_arpo_era() => return Ok(0.0),
        Err(error) => return Err(error),
    };
    let Value::Object(found) = &found else {
        if call.is_arpo_era() {
            return Err(MetricError::raises("not a JSON object"));
        }
        for key in expected.keys() {
            if python::contains(&found, &Value::String(key.clone()))? {
                return Err(MetricError::raises("the settings are not a JSON object"));
            }
        }
        return Ok(yes(expected.is_empty()));
    };
    Ok(yes(expected
        .iter()
        .all(|(key, value)| found.get(key).is_some_and(|other| python::equal(other, value)))))
}

/// The file's text is the expected text.
fn compare_config(call: &Call<'_>) -> Score {
    if call.result.is_falsy() {
        return Ok(0.0);
    }
    Ok(yes(call.result.text()? == call.rule_text("expected")?))
}

/// Equal to the rule's `expected`.
fn compare_answer(call: &Call<'_>) -> Score {
    if call.result.is_falsy() {
        return Ok(0.0);
    }
    Ok(yes(python::equal(call.result.json()?, call.rule_field("expected")?)))
}

/// The result of a function of a Python test file, run where the settings say. What it raises scores 0.
fn check_python_file_by_test_suite(call: &Call<'_>) -> Score {
    let State::File(test) = call.expected()? else { return Ok(0.0) };
    let Some(sandbox) = call.settings.sandbox else {
        let problem = "a test in Python runs inside a desktop, and there is none here";
        return Err(MetricError::Unsupported(problem.into()));
    };
    let function = call.options.get("test_function_name").and_then(Value::as_str).unwrap_or("test");
    let states = call.result.each().iter();
    let files: Vec<&FileState> =
        states.filter_map(|state| if let State::File(file) = state { Some(file) } else { None }).collect();
    sandbox.run_test(test, &files, function)
}
