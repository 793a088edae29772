//! Metrics on a value: equality, containment, likeness, and what the operating system's commands print.

use super::call::{text, yes};
use super::{Call, Metric, Score, metric};
use crate::error::MetricError;
use crate::state::State;
use crate::text::{python, similarity};
use serde_json::Value;

pub(super) const METRICS: &[Metric] = &[
    metric("check_gnome_favorite_apps", check_gnome_favorite_apps),
    metric("check_include_exclude", check_include_exclude),
    metric("check_moved_jpgs", check_moved_jpgs),
    metric("check_text_enlarged", check_text_enlarged),
    metric("compare_time_in_speedtest_results", compare_time_in_speedtest_results),
    metric("exact_match", exact_match),
    metric("fuzzy_match", fuzzy_match),
    metric("is_extension_installed", is_extension_installed),
    metric("is_in_list", is_in_list),
    metric("is_in_vm_clickboard", is_in_vm_clickboard),
    metric("is_utc_0", is_utc_0),
    metric("literal_match", literal_match),
    metric("match_in_list", match_in_list),
];

/// All of `include` in the text and none of `exclude`.
fn check_include_exclude(call: &Call<'_>) -> Score {
    if call.result.is_none() {
        return Ok(0.0);
    }
    let result = call.result.json()?;
    for part in call.rule_list("include")? {
        if !python::contains(result, part)? {
            return Ok(0.0);
        }
    }
    for part in call.rule_list("exclude")? {
        if python::contains(result, part)? {
            return Ok(0.0);
        }
    }
    Ok(1.0)
}

/// Equal to the rule's `expected`. A file is compared by its path, which nobody expects.
fn exact_match(call: &Call<'_>) -> Score {
    let expected = call.rule_field("expected")?;
    Ok(yes(call.result.json().is_ok_and(|result| python::equal(result, expected))))
}

/// One of the rule's `expected`.
fn match_in_list(call: &Call<'_>) -> Score {
    Ok(yes(python::contains(call.rule_field("expected")?, call.result.json()?)?))
}

/// The rule's `expected` is in the result.
fn is_in_list(call: &Call<'_>) -> Score {
    Ok(yes(python::contains(call.result.json()?, call.rule_field("expected")?)?))
}

/// Equal as texts (`type` str) or as lists of texts (`type` list).
fn literal_match(call: &Call<'_>) -> Score {
    let ignore_case = call.flag("ignore_case", false);
    let written = |value: &Value| {
        let text = python::to_text(value);
        if ignore_case { text.to_lowercase() } else { text }
    };
    let (result, expected) = (call.result.json()?, call.rule()?);
    match call.options.get("type").and_then(Value::as_str).unwrap_or("str") {
        "str" => Ok(yes(written(result) == written(expected))),
        "list" => {
            let (Value::Array(result), Value::Array(expected)) = (result, expected) else { return Ok(0.0) };
            let same = result.len() == expected.len()
                && result.iter().zip(expected).all(|(a, b)| written(a) == written(b));
            Ok(yes(same))
        }
        other => Err(MetricError::raises(format!("type {other} is not supported"))),
    }
}

/// How alike the texts are.
fn fuzzy_match(call: &Call<'_>) -> Score {
    Ok(similarity::ratio(text(call.result.json()?)?, call.rule_text("expected")?) / 100.0)
}

/// A text that does or does not hold another.
fn is_extension_installed(call: &Call<'_>) -> Score {
    let holds = python::contains(call.result.json()?, call.rule_field("expected")?)?;
    match call.rule_text("type")? {
        "contain" => Ok(yes(holds)),
        "not_contain" => Ok(yes(!holds)),
        other => Err(MetricError::raises(format!("type {other} is not supported"))),
    }
}

/// The same applications, in any order; the result is a Python list as `gsettings` prints it.
fn check_gnome_favorite_apps(call: &Call<'_>) -> Score {
    let printed = text(call.result.json()?)?;
    let apps =
        quoted_items(printed).ok_or_else(|| MetricError::raises(format!("{printed:?} is not a list")))?;
    Ok(yes(same_set(&apps, call.rule_list("expected")?)))
}

/// The items of `['a', "b"]`, or of the empty list `[]` and its typed form `@as []`.
fn quoted_items(printed: &str) -> Option<Vec<String>> {
    let mut rest = python::strip(printed).strip_prefix('[')?.strip_suffix(']')?;
    let mut items = Vec::new();
    loop {
        rest = rest.trim_start_matches(|letter| python::is_space(letter) || letter == ',');
        if rest.is_empty() {
            return Some(items);
        }
        let quote = rest.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
        let (item, after) = rest[1..].split_once(quote)?;
        items.push(item.to_owned());
        rest = after;
    }
}

/// Same number and same set.
fn same_set(found: &[String], wanted: &[Value]) -> bool {
    found.len() == wanted.len()
        && wanted.iter().all(|one| found.iter().any(|item| one == item))
        && found.iter().all(|item| wanted.iter().any(|one| one == item))
}

/// The names in a folder's tree.
fn check_moved_jpgs(call: &Call<'_>) -> Score {
    let tree = call.result.json()?;
    let children = tree["children"].as_array().ok_or_else(|| MetricError::raises("no folder tree"))?;
    let names: Vec<String> =
        children.iter().map(|node| text(&node["name"]).map(str::to_owned)).collect::<Result<_, _>>()?;
    Ok(yes(same_set(&names, call.rule_list("expected")?)))
}

/// The fourth line of `timedatectl` ends in `+0000)`.
fn is_utc_0(call: &Call<'_>) -> Score {
    let printed = text(call.result.json()?)?;
    let line = printed.split('\n').nth(3).ok_or_else(|| MetricError::raises("fewer than four lines"))?;
    Ok(yes(line.ends_with("+0000)")))
}

/// A scaling factor above 1.
fn check_text_enlarged(call: &Call<'_>) -> Score {
    let printed = call.result.json()?;
    let factor = printed.as_str().map_or_else(|| python::number(printed), python::parse_float);
    Ok(yes(factor.ok_or_else(|| MetricError::raises(format!("{printed} is not a number")))? > 1.0))
}

/// The time in the second column of a speed test's second line is less than so many minutes from now, on this host's clock.
fn compare_time_in_speedtest_results(call: &Call<'_>) -> Score {
    if call.result.is_falsy() {
        return Ok(0.0);
    }
    let minutes = |text: &str| -> Option<i64> {
        let (hours, minutes) = text.split_once(':')?;
        Some(hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?)
    };
    let limit = match call.expected()?.json()? {
        Value::String(text) => text.trim().parse::<i64>().ok(),
        other => other.as_i64(),
    };
    let near = || {
        let content = call.result.text().ok()?;
        let date = content.lines().nth(1)?.split(',').nth(1)?.to_owned();
        let start = date.char_indices().rev().nth(4).map_or(0, |(at, _)| at);
        let now = jiff::Zoned::now();
        let now = i64::from(now.hour()) * 60 + i64::from(now.minute());
        Some((minutes(&date[start..])? - now).abs() < limit?)
    };
    Ok(yes(near().unwrap_or(false)))
}

/// The rule comes first here: task files give it as the result and the clipboard as what is expected.
fn is_in_vm_clickboard(call: &Call<'_>) -> Score {
    let State::Json(rule) = call.result else { return Err(MetricError::raises("no rule")) };
    let clipboard = call.expected()?.json()?;
    let wanted = rule.get("expected").ok_or_else(|| MetricError::raises("the rule has no expected"))?;
    match wanted {
        Value::Array(parts) => {
            for part in parts {
                if !python::contains(clipboard, part)? {
                    return Ok(0.0);
                }
            }
            Ok(1.0)
        }
        part => Ok(yes(python::contains(clipboard, part)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_lists_are_read() {
        assert_eq!(quoted_items("['a.desktop', \"b\"]\n"), Some(vec!["a.desktop".into(), "b".into()]));
        assert_eq!(quoted_items("[]"), Some(vec![]));
        assert_eq!(quoted_items("__import__('os')"), None);
        assert_eq!(quoted_items("['a"), None);
    }
}
