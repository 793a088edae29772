//! Metrics on text files: lines that match, rows of a CSV, files that are equal or alike.

use super::call::{text, yes};
use super::{Call, Metric, Score, metric};
use crate::error::MetricError;
use crate::state::State;
use crate::text::pattern::Pattern;
use crate::text::{python, similarity};
use serde_json::Value;

pub(super) const METRICS: &[Metric] = &[
    metric("check_csv", check_csv),
    metric("check_line_number", check_line_number),
    metric("check_list", check_list),
    metric("compare_csv", compare_csv),
    metric("compare_python_pure_text", compare_python_pure_text),
    metric("compare_result_files", compare_result_files),
    metric("compare_terminal_and_txt", compare_terminal_and_txt),
    metric("compare_text_file", compare_text_file),
    metric("diff_text_file", diff_text_file),
    metric("file_contains", file_contains),
];

/// Every pattern of `expect` is found in some line, none of `unexpect` in any.
fn check_list(call: &Call<'_>) -> Score {
    if call.result.is_none() {
        return Ok(0.0);
    }
    let patterns = |name: &str| -> Result<Vec<Pattern>, MetricError> {
        call.rule_list(name)?.iter().map(|one| Pattern::new(text(one)?, &[])).collect()
    };
    let (expected, unexpected) = (patterns("expect")?, patterns("unexpect")?);
    let content = call.result.text()?;
    let mut found = vec![false; expected.len()];
    let mut clean = true;
    for line in python::file_lines(&content) {
        for (found, pattern) in found.iter_mut().zip(&expected) {
            *found = *found || pattern.is_in(line)?;
        }
        for pattern in &unexpected {
            clean = clean && !pattern.is_in(line)?;
        }
    }
    Ok(yes(clean && found.into_iter().all(|one| one)))
}

/// Every record of `expect` is part of some row, none of `unexpect` of any.
fn check_csv(call: &Call<'_>) -> Score {
    if call.result.is_none() {
        return Ok(0.0);
    }
    let content = call.result.text()?;
    // An empty first line names no columns.
    let is_named = !content.starts_with('\n');
    let mut reader =
        csv::ReaderBuilder::new().flexible(true).has_headers(is_named).from_reader(content.as_bytes());
    let broken = |error: csv::Error| MetricError::raises(format!("not CSV: {error}"));
    let mut header: Vec<String> = if is_named {
        reader.headers().map_err(broken)?.iter().map(str::to_owned).collect()
    } else {
        Vec::new()
    };
    // Python leaves a mark of the byte order in the first name.
    if let (true, Some(first)) = (content.starts_with('\u{feff}'), header.first_mut()) {
        first.insert(0, '\u{feff}');
    }
    let (expected, unexpected) = (call.rule_list("expect")?, call.rule_list("unexpect")?);
    let mut found = vec![false; expected.len()];
    let mut clean = true;
    for row in reader.records() {
        let row = row.map_err(broken)?;
        let is_part = |record: &Value| {
            // A row that is too short has nothing in its last columns.
            let cell = |key: &str| header.iter().rposition(|name| name == key).map(|at| row.get(at));
            let entries = record.as_object().into_iter().flatten();
            entries.into_iter().all(|(key, value)| match cell(key) {
                Some(Some(cell)) => value == cell,
                Some(None) => value.is_null(),
                None => false,
            })
        };
        for (found, record) in found.iter_mut().zip(expected) {
            *found = *found || is_part(record);
        }
        clean = clean && !unexpected.iter().any(is_part);
    }
    Ok(yes(clean && found.into_iter().all(|one| one)))
}

/// The same lines. Verified: any of several expected files, and any encoding.
fn compare_csv(call: &Call<'_>) -> Score {
    if call.result.is_none() {
        return Ok(0.0);
    }
    let (strict, ignore_case) = (call.flag("strict", true), call.flag("ignore_case", false));
    let lines = |state: &State| -> Result<Vec<String>, MetricError> {
        let content = if call.is_arpo_era() { state.text()? } else { lenient_text(state)? };
        let lines = python::split_lines(&content).into_iter();
        let lines = lines.map(|line| if strict { line } else { python::strip(line) });
        Ok(lines.map(|line| if ignore_case { line.to_lowercase() } else { line.to_owned() }).collect())
    };
    let result = match lines(call.result) {
        Ok(result) => result,
        Err(_) if !call.is_arpo_era() => return Ok(0.0),
        Err(error) => return Err(error),
    };
    if call.is_arpo_era() {
        return Ok(yes(result == lines(call.expected()?)?));
    }
    Ok(yes(call.expected()?.each().iter().any(|one| lines(one).is_ok_and(|expected| result == expected))))
}

/// UTF-8, or else Latin-1, which accepts any bytes.
pub(super) fn lenient_text(state: &State) -> Result<String, MetricError> {
    let bytes = &state.file()?.bytes;
    Ok(python::decode(bytes).unwrap_or_else(|_| {
        let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
        python::universal_newlines(&text)
    }))
}

/// The same text; blanks and case may be ignored.
fn compare_text_file(call: &Call<'_>) -> Score {
    if call.result.is_falsy() {
        return Ok(0.0);
    }
    let (ignore_blanks, ignore_case) = (call.flag("ignore_blanks", false), call.flag("ignore_case", false));
    let read = |state: &State| -> Result<String, MetricError> {
        let content = state.text()?;
        let content = if ignore_blanks { python::collapse_space(&content) } else { content };
        Ok(if ignore_case { content.to_lowercase() } else { content })
    };
    Ok(yes(read(call.result)? == read(call.expected()?)?))
}

/// How alike the lines are.
fn diff_text_file(call: &Call<'_>) -> Score {
    if call.result.is_none() {
        return Ok(0.0);
    }
    let (result, expected) = (call.result.text()?, call.expected()?.text()?);
    Ok(similarity::sequence_ratio(&python::split_lines(&result), &python::split_lines(&expected)))
}

/// All the texts are in the file.
fn file_contains(call: &Call<'_>) -> Score {
    let Ok(content) = call.result.text() else { return Ok(0.0) };
    let wanted = call.rule_list("expected").unwrap_or_default();
    Ok(yes(wanted.iter().all(|part| part.as_str().is_some_and(|part| content.contains(part)))))
}

/// How many lines hold a time of day.
fn check_line_number(call: &Call<'_>) -> Score {
    let Ok(content) = call.result.text() else { return Ok(0.0) };
    let time = Pattern::new(r"([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)", &[])?;
    let mut count = 0_i64;
    for line in python::file_lines(&content) {
        count += i64::from(time.is_in(line)?);
    }
    let wanted = match call.rule_field("expected")? {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_i64(),
    };
    Ok(yes(wanted == Some(count)))
}

/// A text file holds what the terminal shows.
fn compare_terminal_and_txt(call: &Call<'_>) -> Score {
    if call.lacks_a_file()? {
        return Ok(0.0);
    }
    Ok(yes(text(call.expected()?.json()?)? == call.result.text()?))
}

/// The same number, or the number somewhere in the text; else the same text.
fn compare_result_files(call: &Call<'_>) -> Score {
    if call.lacks_a_file()? {
        return Ok(0.0);
    }
    let (source, target) = (call.result.text()?, call.expected()?.text()?);
    let (source, target) = (python::strip(&source), python::strip(&target));
    let Some(number) = python::parse_float(target) else { return Ok(yes(source == target)) };
    if source.contains(target) {
        return Ok(1.0);
    }
    Ok(yes(python::parse_float(source).is_some_and(|other| (other - number).abs() < 1e-4)))
}

/// The same program text. ARPO era: whatever its white space; Verified: without empty lines, tabs as four columns,
/// and without first lines that name the interpreter or the encoding.
fn compare_python_pure_text(call: &Call<'_>) -> Score {
    if call.lacks_a_file()? {
        return Ok(0.0);
    }
    if call.is_arpo_era() {
        let squeezed = |text: String| python::words(&text).collect::<String>();
        return Ok(yes(squeezed(call.result.text()?) == squeezed(call.expected()?.text()?)));
    }
    match (call.result.text(), call.expected()?.text()) {
        (Ok(result), Ok(expected)) => Ok(yes(program_lines(&result) == program_lines(&expected))),
        _ => Ok(0.0),
    }
}

fn program_lines(text: &str) -> Vec<String> {
    let lines = python::split_lines(text);
    let is_header = |line: &&str| {
        let line = python::strip(line);
        ["#!", "# -*- coding:", "# coding:", "# coding="].iter().any(|start| line.starts_with(start))
    };
    let headers = lines.iter().take(3).take_while(|line| is_header(line)).count();
    let kept = lines[headers..].iter().filter(|line| !python::strip(line).is_empty());
    kept.map(|line| expand_tabs(line).trim_end_matches(python::is_space).to_owned()).collect()
}

fn expand_tabs(line: &str) -> String {
    let mut out = String::new();
    let mut column = 0;
    for letter in line.chars() {
        if letter == '\t' {
            let width = 4 - column % 4;
            out.extend(std::iter::repeat_n(' ', width));
            column += width;
        } else {
            out.push(letter);
            column += 1;
        }
    }
    out
}
