//! Metrics on GIMP's settings files.

use super::call::text;
use super::{Call, Metric, Score, metric};
use crate::error::MetricError;
use crate::text::python;
use serde_json::Value;

pub(super) const METRICS: &[Metric] = &[metric("check_config_status", check_config_status)];

/// A line `(key ... value)`, its first word or two and its last as the rule says.
///
/// A line of blanks before the match raises, as the original takes the first word of every line.
fn check_config_status(call: &Call<'_>) -> Score {
    if call.result.is_none() {
        return Ok(0.0);
    }
    let content = call.result.text()?;
    let (key, value) = (call.rule_field("key")?, call.rule_field("value")?);
    let keys: Vec<&str> = match key {
        Value::String(key) => vec![key],
        Value::Array(keys) if keys.len() == 2 => keys.iter().map(text).collect::<Result<_, _>>()?,
        _ => return Ok(0.0),
    };
    for line in python::file_lines(&content).filter(|line| !line.starts_with('#') && *line != "\n") {
        let bare = python::strip(line).trim_start_matches('(').trim_end_matches([')', '\n']);
        let words: Vec<&str> = python::words(bare).collect();
        let word = |at: usize| words.get(at).ok_or_else(|| MetricError::raises("a line without words"));
        let mut matches = *word(0)? == keys[0];
        if let (true, Some(second)) = (matches, keys.get(1)) {
            matches = word(1)? == second;
        }
        if matches && words.last().is_some_and(|last| value == last) {
            return Ok(1.0);
        }
    }
    Ok(0.0)
}
