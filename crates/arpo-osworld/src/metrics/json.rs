//! Metrics on JSON: objects compared by key, paths into a file, rows of a table, a query on a database.

use super::call::{text, yes};
use super::{Call, Metric, Score, metric};
use crate::error::MetricError;
use crate::state::State;
use crate::text::{python, value_rule, yaml};
use serde_json::{Map, Value};

pub(super) const METRICS: &[Metric] = &[
    metric("check_direct_json_object", check_direct_json_object),
    metric("check_json", check_json),
    metric("is_included_all_json_objects", is_included_all_json_objects),
    metric("run_sqlite3", run_sqlite3),
];

/// Each key of `expected` has the same value in the result, or with `expect_in_result` holds it.
///
/// A text result has its single quotes made double before it is read. Verified: an expected value that says the
/// evaluation failed gives 0; `ignore_list_order` among the expected keys sorts every value; and one text may
/// stand for a list of one.
fn check_direct_json_object(call: &Call<'_>) -> Score {
    let parsed;
    let result = match call.result.json()? {
        Value::String(text) => {
            let text = python::strip(text).replace('\'', "\"");
            parsed = serde_json::from_str(&text)
                .map_err(|error| MetricError::raises(format!("not JSON: {error}")))?;
            &parsed
        }
        other => other,
    };
    if result.is_null() {
        return Ok(0.0);
    }
    let rule = call.rule()?;
    let (Some(Value::Object(expected)), Value::Object(result)) = (rule.get("expected"), result) else {
        return Ok(0.0);
    };
    let later = !call.is_arpo_era();
    if later && expected.values().any(|value| value == "__EVALUATION_FAILED__") {
        return Ok(0.0);
    }
    let holds = if rule.get("expect_in_result").is_some_and(python::truthy) {
        expected.iter().all(|(key, wanted)| is_held(result.get(key), wanted, later))
    } else if later && expected.get("ignore_list_order").is_some_and(python::truthy) {
        same_unordered(expected, result)
    } else {
        let found = |key: &str| result.get(key).unwrap_or(&Value::Null);
        expected.iter().all(|(key, wanted)| python::equal(wanted, found(key)))
    };
    Ok(yes(holds))
}

fn is_held(found: Option<&Value>, wanted: &Value, later: bool) -> bool {
    match (wanted, found) {
        (Value::Array(wanted), Some(Value::Array(found))) => {
            wanted.iter().any(|one| found.iter().any(|other| python::equal(one, other)))
        }
        (Value::Array(wanted), Some(found @ Value::String(_))) => later && wanted.contains(found),
        (Value::String(_), Some(found)) => python::contains(found, wanted).unwrap_or(false),
        _ => false,
    }
}

/// Every value sorted, the flag's own too: sorting `true` raises, which the original scores 0.
fn same_unordered(expected: &Map<String, Value>, result: &Map<String, Value>) -> bool {
    let sorted = |value: Option<&Value>| {
        let mut texts: Vec<String> = match value? {
            Value::Array(items) => {
                items.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<_>>()?
            }
            Value::String(text) => text.chars().map(String::from).collect(),
            _ => return None,
        };
        texts.sort_unstable();
        Some(texts)
    };
    expected.iter().all(|(key, wanted)| match (sorted(Some(wanted)), sorted(result.get(key))) {
        (Some(wanted), Some(found)) => wanted == found,
        _ => false,
    })
}

/// Values at paths of a JSON or YAML file meet their rules, those under `unexpect` do not.
///
/// ARPO era: a file that cannot be read raises; Verified: it scores 0, and so does an empty one of YAML.
fn check_json(call: &Call<'_>) -> Score {
    if call.result.is_none() {
        return Ok(0.0);
    }
    let is_yaml = call.flag("is_yaml", false);
    let parse = if is_yaml { yaml::parse } else { python::parse_json };
    let data = match call.result.text().and_then(|text| parse(&text)) {
        Ok(Value::Null) if is_yaml && !call.is_arpo_era() => return Ok(0.0),
        Ok(data) => data,
        Err(_) if !call.is_arpo_era() => return Ok(0.0),
        Err(error) => return Err(error),
    };
    match rules_hold(call, &data) {
        Err(_) if !call.is_arpo_era() => Ok(0.0),
        other => other.map(yes),
    }
}

fn rules_hold(call: &Call<'_>, data: &Value) -> Result<bool, MetricError> {
    let mut holds = true;
    for rule in call.rule_list("expect")? {
        match at_path(call, data, rule)? {
            Some(value) => holds = holds && value_rule::meets(&value, rule)?,
            None => return Ok(false),
        }
    }
    for rule in call.rule_list("unexpect")? {
        let value = at_path(call, data, rule)?.unwrap_or(Value::Null);
        holds = holds && !value_rule::meets(&value, rule)?;
    }
    Ok(holds)
}

/// The value at the keys of a rule. ARPO era: a key into something that has no keys raises; Verified: there is no value.
fn at_path(call: &Call<'_>, data: &Value, rule: &Value) -> Result<Option<Value>, MetricError> {
    let keys = rule["key"].as_array().ok_or_else(|| MetricError::raises("a rule without a key"))?;
    let mut value = data.clone();
    for key in keys {
        let at = |count: usize| {
            let index = key.as_i64()?;
            usize::try_from(if index < 0 { index + count as i64 } else { index }).ok()
        };
        let outside = || MetricError::raises(format!("{key} is outside of the list"));
        let next = match &value {
            Value::Object(entries) => key.as_str().and_then(|key| entries.get(key)).cloned(),
            Value::Array(items) if key.is_i64() => {
                Some(at(items.len()).and_then(|at| items.get(at)).cloned().ok_or_else(outside)?)
            }
            Value::String(text) if key.is_i64() => {
                let letter = at(text.chars().count()).and_then(|at| text.chars().nth(at));
                Some(Value::String(letter.ok_or_else(outside)?.into()))
            }
            _ if call.is_arpo_era() => return Err(MetricError::raises(format!("{value} has no key {key}"))),
            _ => None,
        };
        match next {
            Some(next) => value = next,
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

/// Every entry of the first file is in the second.
fn is_included_all_json_objects(call: &Call<'_>) -> Score {
    if call.lacks_a_file()? {
        return Ok(0.0);
    }
    let read = |state: &State| -> Result<Map<String, Value>, MetricError> {
        serde_json::from_str(&state.text()?)
            .map_err(|error| MetricError::raises(format!("not a JSON object: {error}")))
    };
    let (gold, found) = (read(call.result)?, read(call.expected()?)?);
    Ok(yes(gold.iter().all(|(key, value)| found.get(key).is_some_and(|other| python::equal(value, other)))))
}

/// The first column of the first row of a query, as a number; nothing is 0.
///
/// A missing file is an empty database, as the original's `connect` makes one, so that the query then raises.
fn run_sqlite3(call: &Call<'_>) -> Score {
    let bytes: &[u8] = match call.result {
        State::File(database) => &database.bytes,
        State::Absent(_) => &[],
        _ => return Err(MetricError::raises("a file is needed and there is none")),
    };
    let rows = crate::database::rows(bytes, text(call.rule_field("sql")?)?).map_err(MetricError::raises)?;
    match rows.first().and_then(|row| row.first()) {
        None => Err(MetricError::raises("no row")),
        Some(Value::String(text)) if !text.is_empty() => {
            python::parse_float(text).ok_or_else(|| MetricError::raises(format!("{text:?} is not a number")))
        }
        Some(value) => Ok(python::number(value).unwrap_or(0.0)),
    }
}
