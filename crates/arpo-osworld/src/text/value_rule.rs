//! OSWorld's rule for one value: `{"method": ..., "ref": ...}`.

use crate::error::MetricError;
use crate::sheet::range::Ranges;
use crate::text::pattern::Pattern;
use crate::text::python;
use serde_json::Value;
use std::cmp::Ordering;

/// Whether a value meets a rule.
pub fn meets(value: &Value, rule: &Value) -> Result<bool, MetricError> {
    let method =
        rule["method"].as_str().ok_or_else(|| MetricError::raises(format!("rule {rule} has no method")))?;
    let reference = rule.get("ref").ok_or_else(|| MetricError::raises(format!("rule {rule} has no ref")))?;
    if method.starts_with("re") {
        let flags: Vec<&str> = method.split('.').skip(1).collect();
        return Pattern::new(text(reference)?, &flags)?.is_in(text(value)?);
    }
    match method {
        "eq" => Ok(python::equal(value, reference)),
        "ne" => Ok(!python::equal(value, reference)),
        "le" => Ok(order(value, reference)?.is_le()),
        "lt" => Ok(order(value, reference)?.is_lt()),
        "ge" => Ok(order(value, reference)?.is_ge()),
        "gt" => Ok(order(value, reference)?.is_gt()),
        "spreadsheet_range" => {
            let limit = |index: usize| Ranges::parse(text(&reference[index])?);
            let ranges = Ranges::parse(text(value)?)?;
            Ok(ranges.hold(&limit(0)?) && limit(1)?.hold(&ranges))
        }
        "str_list_eq" | "str_set_eq" => {
            let mut found: Vec<&str> = text(value)?.trim_matches(['"', '\'']).split(',').collect();
            let wanted = reference.as_array().ok_or_else(|| wrong(reference, "a list"))?;
            let mut wanted: Vec<&str> = wanted.iter().map(text).collect::<Result<_, _>>()?;
            if method == "str_set_eq" {
                for list in [&mut found, &mut wanted] {
                    list.sort_unstable();
                    list.dedup();
                }
            }
            Ok(found == wanted)
        }
        _ => match (method.strip_prefix("approx"), method.strip_prefix("range.")) {
            (Some(limit), _) => approximately(value, reference, limit.trim_start_matches(':')),
            (_, Some(ends)) => {
                let ends: Vec<char> = ends.chars().collect();
                let below = |end: Option<&char>, order: Ordering| match end {
                    Some('e') => Ok(order.is_le()),
                    Some('t') => Ok(order.is_lt()),
                    _ => Err(MetricError::raises(format!("no such method: {method}"))),
                };
                let above_low = below(ends.first(), order(&reference[0], value)?)?;
                Ok(above_low && below(ends.get(1), order(value, &reference[1])?)?)
            }
            _ => Err(MetricError::raises(format!("no such method: {method}"))),
        },
    }
}

/// `approx:T`: what is not a number is simply not near.
fn approximately(value: &Value, reference: &Value, limit: &str) -> Result<bool, MetricError> {
    let limit = python::parse_float(limit).ok_or_else(|| MetricError::raises("approx without a limit"))?;
    let reference = python::number(reference).ok_or_else(|| wrong(reference, "a number"))?;
    let value = match value {
        Value::String(text) => python::parse_float(text),
        other => python::number(other),
    };
    Ok(value.is_some_and(|value| (value - reference).abs() <= limit))
}

fn order(a: &Value, b: &Value) -> Result<Ordering, MetricError> {
    if let (Value::String(a), Value::String(b)) = (a, b) {
        return Ok(a.cmp(b));
    }
    let (Some(x), Some(y)) = (python::number(a), python::number(b)) else {
        return Err(MetricError::raises(format!("{a} and {b} have no order")));
    };
    Ok(x.total_cmp(&y))
}

fn text(value: &Value) -> Result<&str, MetricError> {
    value.as_str().ok_or_else(|| wrong(value, "text"))
}

fn wrong(value: &Value, wanted: &str) -> MetricError {
    MetricError::raises(format!("{value} is not {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[expect(clippy::needless_pass_by_value, reason = "a test reads better with values")]
    fn holds(value: Value, method: &str, reference: Value) -> bool {
        meets(&value, &json!({"method": method, "ref": reference})).unwrap()
    }

    #[test]
    fn each_method_says_yes_and_no() {
        assert!(holds(json!(5.0), "eq", json!(5)) && !holds(json!("5"), "eq", json!(5)));
        assert!(holds(json!(4), "lt", json!(5)) && !holds(json!(5), "lt", json!(5)));
        assert!(
            holds(json!("191.6670"), "approx:0.001", json!(191.6667))
                && !holds(json!(null), "approx:0.1", json!(0))
        );
        assert!(holds(json!("a\nb"), "re.S", json!("a.b")) && !holds(json!("a\nb"), "re", json!("a.b")));
        assert!(holds(json!(2), "range.te", json!([0, 2])) && !holds(json!(0), "range.te", json!([0, 2])));
        assert!(holds(json!("\"b,a\""), "str_set_eq", json!(["a", "b"])));
        assert!(!holds(json!("b,a"), "str_list_eq", json!(["a", "b"])));
        assert!(holds(json!("D2:D29"), "spreadsheet_range", json!(["D2:D20", "D1:D1048576"])));
        assert!(!holds(json!("D2:D19"), "spreadsheet_range", json!(["D2:D20", "D1:D1048576"])));
    }

    #[test]
    fn what_python_would_raise_is_an_error() {
        assert!(meets(&json!("a"), &json!({"method": "lt", "ref": 1})).is_err());
        assert!(meets(&json!(1), &json!({"method": "nearly", "ref": 1})).is_err());
        assert!(meets(&json!(1), &json!({"ref": 1})).is_err());
    }
}
