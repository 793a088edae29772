//! Metrics on Thunderbird's files: preferences, filters, folders.

use super::call::yes;
use super::{Call, Metric, Score, metric};
use crate::error::MetricError;
use crate::state::State;
use crate::text::{python, value_rule};
use serde_json::{Map, Value};

pub(super) const METRICS: &[Metric] = &[
    metric("check_thunderbird_filter", check_thunderbird_filter),
    metric("check_thunderbird_folder", check_thunderbird_folder),
    metric("check_thunderbird_prefs", check_thunderbird_prefs),
];

/// Preferences meet their rules, those under `unexpect` do not; the last line of a key decides.
fn check_thunderbird_prefs(call: &Call<'_>) -> Score {
    if call.result.is_none() {
        return Ok(0.0);
    }
    let rule = call.rule()?;
    let empty = Map::new();
    let rules = |name: &str| rule.get(name).and_then(Value::as_object).unwrap_or(&empty);
    let (expected, unexpected) = (rules("expect"), rules("unexpect"));
    let mut met: Map<String, Value> = expected.keys().map(|key| (key.clone(), Value::Bool(false))).collect();
    let mut clean = true;
    for line in python::file_lines(&call.result.text()?) {
        let Some((key, value)) = preference(python::strip(line)) else { continue };
        let value: Value =
            serde_json::from_str(value).map_err(|error| MetricError::raises(format!("{key}: {error}")))?;
        if let Some(rule) = expected.get(key) {
            met.insert(key.to_owned(), Value::Bool(value_rule::meets(&value, rule)?));
        } else if let Some(rule) = unexpected.get(key) {
            clean = clean && !value_rule::meets(&value, rule)?;
        }
    }
    Ok(yes(clean && met.values().all(|met| *met == Value::Bool(true))))
}

/// The key and the value of `user_pref("key", value);`.
fn preference(line: &str) -> Option<(&str, &str)> {
    let inside = line.strip_prefix("user_pref(\"")?.strip_suffix(");")?;
    let (key, value) = inside.split_once("\", ")?;
    (!key.is_empty() && !value.is_empty()).then_some((key, value))
}

/// Every record of `expect` is part of some filter, none of `unexpect` of any.
fn check_thunderbird_filter(call: &Call<'_>) -> Score {
    if call.result.is_none() {
        return Ok(0.0);
    }
    let filters = filters(&call.result.text()?)?;
    let is_part = |record: &Value, filter: &Map<String, Value>| {
        record
            .as_object()
            .into_iter()
            .flatten()
            .all(|(key, value)| filter.get(key).is_some_and(|other| python::equal(other, value)))
    };
    let in_some = |record: &Value| filters.iter().any(|filter| is_part(record, filter));
    Ok(yes(call.rule_list("expect")?.iter().all(in_some) && !call.rule_list("unexpect")?.iter().any(in_some)))
}

/// The filters of `msgFilterRules.dat`: a filter begins with its name and ends with its conditions.
fn filters(content: &str) -> Result<Vec<Map<String, Value>>, MetricError> {
    let mut filters = Vec::new();
    let mut filter: Option<Map<String, Value>> = None;
    for line in python::file_lines(content) {
        let Some((key, rest)) = line.split_once('=') else { continue };
        // The original cuts one letter before and two after the value: the quotes and the line's end.
        let letters: Vec<char> = rest.chars().collect();
        let value: String =
            letters.get(1..letters.len().saturating_sub(2)).unwrap_or_default().iter().collect();
        let value = value.replace("\\\"", "\"").replace("\\\\", "\\");
        if key == "name" {
            filter = Some(Map::new());
        }
        if !["name", "enabled", "type", "action", "actionValue", "condition"].contains(&key) {
            continue;
        }
        let filter = filter.as_mut().ok_or_else(|| MetricError::raises("a filter without a name"))?;
        if key == "condition" {
            filter.insert(key.into(), conditions(&value)?.into());
            filters.push(filter.clone());
        } else {
            filter.insert(key.into(), value.into());
        }
    }
    Ok(filters)
}

/// `AND (subject,contains,x)` and the like, or `ALL`, one after the other.
fn conditions(text: &str) -> Result<Vec<String>, MetricError> {
    let pattern = r#"\b(?:AND|OR) \((?:[\w ]+),(?:[\w ']+),(?:"(?:(?:[^"]|")+)"|(?:[^)]+))\)|\bALL\b"#;
    let pattern = fancy_regex::Regex::new(pattern).map_err(|error| MetricError::raises(error.to_string()))?;
    let found = pattern.find_iter(text).map(|one| one.map(|one| one.as_str().to_owned()));
    found.collect::<Result<_, _>>().map_err(|error| MetricError::raises(error.to_string()))
}

/// Folders compared. The original skips every message that is not empty, so that any two valid folders are equal: it
/// only compares whether there is an empty message.
fn check_thunderbird_folder(call: &Call<'_>) -> Score {
    let read = |state: &State| -> Result<bool, MetricError> {
        let content = state.text()?;
        Ok(python::strip(&content).split("FROM - ").any(|message| python::strip(message).is_empty()))
    };
    let expected = call.expected()?;
    for (result, expected) in call.result.each().iter().zip(expected.each()) {
        if result.is_none() || read(result)? != read(expected)? {
            return Ok(0.0);
        }
    }
    Ok(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn filters_are_read() {
        let content = "version=\"9\"\nname=\"a \\\"b\\\"\"\nenabled=\"yes\"\ncondition=\"AND (subject,contains,x) OR (from,is,\\\"y z\\\")\"\n";
        let filters = filters(content).unwrap();
        assert_eq!(filters.len(), 1);
        assert_eq!(filters[0]["name"], json!("a \"b\""));
        assert_eq!(filters[0]["condition"], json!(["AND (subject,contains,x)", "OR (from,is,\"y z\")"]));
    }

    #[test]
    fn preferences_are_read() {
        assert_eq!(preference("user_pref(\"a.b\", true);"), Some(("a.b", "true")));
        assert_eq!(preference("// user_pref"), None);
    }
}
