//! Metrics on the browser: tabs, addresses, bookmarks, cookies, history, settings.

use super::call::{text, yes};
use super::{Call, Metric, Score, metric};
use crate::error::MetricError;
use crate::state::State;
use crate::text::pattern;
use crate::text::python;
use crate::text::url::{Address, same_address};
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) const METRICS: &[Metric] = &[
    metric("check_enabled_experiments", check_enabled_experiments),
    metric("check_font_size", check_font_size),
    metric("check_history_deleted", check_history_deleted),
    metric("is_added_to_steam_cart", is_added_to_steam_cart),
    metric("is_cookie_deleted", is_cookie_deleted),
    metric("is_expected_active_tab", is_expected_active_tab),
    metric("is_expected_active_tab_approximate", is_expected_active_tab_approximate),
    metric("is_expected_bookmarks", is_expected_bookmarks),
    metric("is_expected_installed_extensions", is_expected_installed_extensions),
    metric("is_expected_search_query", is_expected_search_query),
    metric("is_expected_tabs", is_expected_tabs),
    metric("is_expected_url_pattern_match", is_expected_url_pattern_match),
    metric("is_shortcut_on_desktop", is_shortcut_on_desktop),
];

/// The address of a tab: a text, or an object with `url`.
fn address_of(state: &State) -> Result<Option<&str>, MetricError> {
    match state.json()? {
        Value::Object(tab) => Ok(tab.get("url").and_then(Value::as_str)),
        other => text(other).map(Some),
    }
}

fn is_expected_active_tab(call: &Call<'_>) -> Score {
    if call.result.is_falsy() || call.rule_text("type")? != "url" {
        return Ok(0.0);
    }
    let wanted = call.rule_text("url")?;
    let found = address_of(call.result)?;
    Ok(yes(found.is_some_and(|found| same_address(wanted, found, call.settings.generation))))
}

/// Verified: the same address, queries aside, letter by letter.
fn is_expected_active_tab_approximate(call: &Call<'_>) -> Score {
    if call.result.is_falsy() || call.rule_text("type")? != "url" {
        return Ok(0.0);
    }
    let plain = |url: &str| Address { query: String::new(), ..Address::parse(url) };
    let found = address_of(call.result)?.ok_or_else(|| MetricError::raises("a tab without an address"))?;
    Ok(yes(plain(call.rule_text("url")?) == plain(found)))
}

/// Every pattern is found in the address.
fn is_expected_url_pattern_match(call: &Call<'_>) -> Score {
    if call.result.is_falsy() {
        return Ok(0.0);
    }
    // An address that is no text raises only where there is a pattern to look for.
    let found = match call.result.json()? {
        Value::Object(tab) => match tab.get("url") {
            None if call.is_arpo_era() => return Err(MetricError::raises("a tab without an address")),
            None => return Ok(0.0),
            Some(url) => url,
        },
        other if call.is_arpo_era() || other.is_string() => other,
        _ => return Ok(0.0),
    };
    let letters: Vec<Value>;
    let patterns = match call.rule_field("expected")? {
        Value::Array(patterns) => patterns,
        // Python takes a text for a list of its letters.
        Value::String(all) => {
            letters = all.chars().map(|letter| Value::String(letter.into())).collect();
            &letters
        }
        other => return Err(MetricError::raises(format!("expected is {other}, not a list"))),
    };
    for one in patterns {
        if !pattern::found(text(one)?, text(found)?)? {
            return Ok(0.0);
        }
    }
    Ok(1.0)
}

/// As many tabs as expected, and for each expected address one that has it.
fn is_expected_tabs(call: &Call<'_>) -> Score {
    if (!call.is_arpo_era() && call.result.is_falsy()) || call.rule_text("type")? != "url" {
        return Ok(0.0);
    }
    let tabs = call.result.json()?.as_array().ok_or_else(|| MetricError::raises("no list of tabs"))?;
    let found: Vec<&str> = tabs.iter().map(|tab| text(&tab["url"])).collect::<Result<_, _>>()?;
    let wanted: Vec<&str> = call.rule_list("urls")?.iter().map(text).collect::<Result<_, _>>()?;
    let is_open = |url: &&str| found.iter().any(|other| same_address(url, other, call.settings.generation));
    Ok(yes(found.len() == wanted.len() && wanted.iter().all(is_open)))
}

fn is_expected_search_query(call: &Call<'_>) -> Score {
    if !call.is_arpo_era() && call.result.is_falsy() {
        return Ok(0.0);
    }
    let url = text(&call.result.json()?["url"])?;
    Ok(yes(pattern::found(text(&call.rule_field("expect")?["pattern"])?, url)?))
}

/// All expected extensions are among the installed ones.
fn is_expected_installed_extensions(call: &Call<'_>) -> Score {
    if !call.is_arpo_era() && call.result.is_falsy() {
        return Ok(0.0);
    }
    let installed =
        call.result.json()?.as_array().ok_or_else(|| MetricError::raises("no list of extensions"))?;
    Ok(yes(call.rule_list("expected")?.iter().all(|one| installed.contains(one))))
}

/// Bookmarks of the bar: names of folders, addresses, or the addresses in the folder of liked authors.
fn is_expected_bookmarks(call: &Call<'_>) -> Score {
    if call.result.is_falsy() {
        return Ok(0.0);
    }
    let bar = &call.result.json()?["bookmark_bar"]["children"];
    let bar = bar.as_array().ok_or_else(|| MetricError::raises("no bookmark bar"))?;
    let named = |entries: &[Value], kind: &str, field: &str| -> BTreeSet<String> {
        let chosen = entries.iter().filter(|entry| entry["type"] == kind);
        chosen.filter_map(|entry| entry[field].as_str().map(str::to_owned)).collect()
    };
    let set = |items: &[Value]| items.iter().map(python::to_text).collect::<BTreeSet<String>>();
    match call.rule_text("type")? {
        "bookmark_bar_folders_names" => {
            Ok(yes(named(bar, "folder", "name") == set(call.rule_list("names")?)))
        }
        "bookmark_bar_websites_urls" => Ok(yes(named(bar, "url", "url") == set(call.rule_list("urls")?))),
        "liked_authors_websites_urls" => {
            let folder =
                bar.iter().find(|entry| entry["type"] == "folder" && entry["name"] == "Liked Authors");
            let Some(children) = folder.and_then(|folder| folder["children"].as_array()) else {
                return Ok(0.0);
            };
            Ok(yes(is_a_choice(&named(children, "url", "url"), call.rule_list("urls")?)))
        }
        other => Err(MetricError::raises(format!("type {other} is not supported"))),
    }
}

/// Whether choosing one of each entry can make this set.
fn is_a_choice(found: &BTreeSet<String>, choices: &[Value]) -> bool {
    fn choose(found: &BTreeSet<String>, choices: &[Value], chosen: &mut BTreeSet<String>) -> bool {
        let Some((first, rest)) = choices.split_first() else { return chosen == found };
        let one = std::slice::from_ref(first);
        let options = first.as_array().map_or(one, Vec::as_slice);
        options.iter().filter_map(Value::as_str).any(|url| {
            if !found.contains(url) {
                return false;
            }
            let is_new = chosen.insert(url.to_owned());
            let fits = choose(found, rest, chosen);
            if is_new {
                chosen.remove(url);
            }
            fits
        })
    }
    choose(found, choices, &mut BTreeSet::new())
}

/// No cookie of the domains is left. In the ARPO era `www.amazon.com` is not `.amazon.com`.
fn is_cookie_deleted(call: &Call<'_>) -> Score {
    no_row(call, "domains", 1, |domain, cookie| same_address(domain, cookie, call.settings.generation))
}

/// No visited address holds one of the words.
fn check_history_deleted(call: &Call<'_>) -> Score {
    no_row(call, "keywords", 0, |keyword, url| url.contains(keyword))
}

/// No row's column matches one of the rule's entries.
fn no_row(call: &Call<'_>, kind: &str, column: usize, matches: impl Fn(&str, &str) -> bool) -> Score {
    if call.rule_text("type")? != kind {
        return Err(MetricError::raises("the rule's type is not supported"));
    }
    let rows = call.result.json()?.as_array().ok_or_else(|| MetricError::raises("no rows"))?;
    for wanted in call.rule_list(kind)? {
        for row in rows {
            if matches(text(wanted)?, text(&row[column])?) {
                return Ok(0.0);
            }
        }
    }
    Ok(1.0)
}

/// The experiments that are on, in order, whatever their variants.
fn check_enabled_experiments(call: &Call<'_>) -> Score {
    let found =
        call.result.json()?.as_array().ok_or_else(|| MetricError::raises("no list of experiments"))?;
    if call.rule_text("type")? != "names" {
        return Err(MetricError::raises("the rule's type is not supported"));
    }
    let names: Vec<Value> = found
        .iter()
        .map(|one| Ok(text(one)?.split('@').next().unwrap_or_default().into()))
        .collect::<Result<_, MetricError>>()?;
    Ok(yes(names == call.rule_list("names")?))
}

fn check_font_size(call: &Call<'_>) -> Score {
    let size = call
        .result
        .json()?
        .get("default_font_size")
        .ok_or_else(|| MetricError::raises("no default_font_size"))?;
    match call.rule_text("type")? {
        "value" => Ok(yes(python::equal(size, call.rule_field("value")?))),
        "range" => {
            let number =
                |value: &Value| python::number(value).ok_or_else(|| MetricError::raises("no number"));
            let size = number(size)?;
            Ok(yes(number(call.rule_field("min")?)? < size && size < number(call.rule_field("max")?)?))
        }
        other => Err(MetricError::raises(format!("type {other} is not supported"))),
    }
}

/// Some shortcut has the name; Verified: or the command.
fn is_shortcut_on_desktop(call: &Call<'_>) -> Score {
    let shortcuts = call.result.json()?.as_object().ok_or_else(|| MetricError::raises("no shortcuts"))?;
    let line = match call.rule_text("type")? {
        "name" => format!("Name={}\n", call.rule_text("name")?),
        "exec" if !call.is_arpo_era() => format!("Exec={}\n", call.rule_text("exec")?),
        other => return Err(MetricError::raises(format!("type {other} is not supported"))),
    };
    Ok(yes(shortcuts.values().any(|content| content.as_str().is_some_and(|content| content.contains(&line)))))
}

/// The page names every item.
fn is_added_to_steam_cart(call: &Call<'_>) -> Score {
    let content = &call.result.json()?["content"];
    for item in call.rule_list("items")? {
        if !python::contains(content, item)? {
            return Ok(0.0);
        }
    }
    Ok(1.0)
}
