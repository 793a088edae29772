//! The browser's tabs and the address of the active one.

use super::fields::Fields;
use super::{Context, GetterEntry, getter};
use crate::error::GetterError;
use crate::guest::{Browser, Command, Tab};
use crate::state::State;
use crate::text::url::{Address, unquote};
use crate::xml::parse;
use serde_json::{Map, Value, json};
use std::time::Duration;

pub(super) const GETTERS: &[GetterEntry] = &[
    getter("active_tab_url_parse", active_tab_url_parse),
    getter("active_url_from_accessTree", active_url_from_access_tree),
    getter("macys_product_url_parse", macys_product_url_parse),
    getter("open_tabs_info", open_tabs_info),
    getter("url_dashPart", url_dash_part),
    getter("url_path_parse", macys_product_url_parse),
];

/// The browser with its tabs; started if it does not respond, as the original does.
pub(super) fn connected<'a>(context: &Context<'a>) -> Result<(&'a dyn Browser, Vec<Tab>), GetterError> {
    let browser = context.guest.browser();
    if let Ok(tabs) = browser.tabs() {
        return Ok((browser, tabs));
    }
    context.guest.launch(&Command::words(&["google-chrome", "--remote-debugging-port=1337"]))?;
    context.guest.pause(Duration::from_secs(5));
    Ok((browser, browser.tabs()?))
}

/// Title and address of each tab; empty without a browser.
fn open_tabs_info(context: &Context<'_>, _: &Fields<'_>) -> Result<State, GetterError> {
    let tabs = connected(context).map(|(_, tabs)| tabs).unwrap_or_default();
    Ok(State::Json(tabs.iter().map(|tab| json!({"title": tab.title, "url": tab.url})).collect()))
}

/// What the address bar shows, with a prefix, since the bar leaves the scheme out.
pub(super) fn active_url(context: &Context<'_>, fields: &Fields<'_>) -> Result<Option<String>, GetterError> {
    let Some(tree) = context.guest.accessibility_tree()? else { return Ok(None) };
    let document = parse(&tree).map_err(|error| GetterError::Raises(error.to_string()))?;
    let is_browser = |node: &roxmltree::Node<'_, '_>| {
        node.tag_name().name() == "application"
            && matches!(node.attribute("name"), Some("Google Chrome" | "Chromium"))
    };
    let browsers = document.descendants().filter(is_browser);
    let is_bar = |node: &roxmltree::Node<'_, '_>| {
        node.tag_name().name() == "entry" && node.attribute("name") == Some("Address and search bar")
    };
    let bars: Vec<Option<&str>> =
        browsers.flat_map(|node| node.descendants()).filter(is_bar).map(|node| node.text()).collect();
    let prefix = fields.get("goto_prefix").and_then(Value::as_str).unwrap_or("https://");
    let last_is_full = bars.last().copied().flatten().is_some_and(|text| !text.is_empty());
    Ok(bars.first().filter(|_| last_is_full).map(|first| format!("{prefix}{}", first.unwrap_or("None"))))
}

fn active_url_from_access_tree(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    Ok(active_url(context, fields)?.map(Value::String).into())
}

/// Values of the active address' query, by key.
fn active_tab_url_parse(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    let Some(url) = active_url(context, fields)? else { return Ok(State::Null) };
    let address = Address::parse(&url);
    let keys =
        fields.value("parse_keys")?.as_array().ok_or_else(|| fields.wrong("parse_keys is not a list"))?;
    let mut values: Map<String, Value> = Map::new();
    for key in keys.iter().filter_map(Value::as_str) {
        values.insert(key.to_owned(), address.query_value(key).into());
    }
    for (old, new) in fields.entries("replace") {
        let value = values.remove(old).ok_or_else(|| GetterError::Raises(format!("no key {old}")))?;
        values.insert(new.as_str().unwrap_or_default().to_owned(), value);
    }
    if fields.flag("split_list") {
        for value in values.values_mut() {
            *value = value.as_str().unwrap_or_default().split(',').map(Value::from).collect();
        }
    }
    Ok(State::Json(Value::Object(values)))
}

/// A piece of the active address between slashes; negative counts from the end.
fn url_dash_part(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    let Some(url) = active_url(context, fields)? else { return Ok(State::Null) };
    let parts: Vec<&str> = url.split('/').collect();
    let index = fields.whole("partIndex")?;
    let at = if index < 0 { index + parts.len() as i64 } else { index };
    let Some(part) = usize::try_from(at).ok().and_then(|at| parts.get(at)) else { return Ok(State::Null) };
    let part = if fields.flag("needDeleteId") { part.split('?').next().unwrap_or_default() } else { part };
    match fields.text("returnType")? {
        "string" => Ok(State::Json(part.into())),
        "json" => {
            let mut object = Map::new();
            object.insert(fields.text("key")?.to_owned(), part.into());
            Ok(State::Json(Value::Object(object)))
        }
        _ => Ok(State::Null),
    }
}

/// The filters of a shop's address: a piece of names and a piece of values, with commas.
fn macys_product_url_parse(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    let Some(url) = active_url(context, fields)? else { return Ok(State::Null) };
    let path = unquote(&Address::parse(&url).path);
    let pieces: Vec<&str> = path.trim_matches('/').split('/').collect();
    let pair = pieces.windows(2).find(|pair| pair.iter().all(|piece| piece.contains(',')));
    let split = |piece: &str| piece.split(',').map(|part| part.trim().to_owned()).collect::<Vec<_>>();
    let filters: Vec<(String, String)> =
        pair.map(|pair| split(pair[0]).into_iter().zip(split(pair[1])).collect()).unwrap_or_default();
    let filter =
        |name: &str| filters.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let is_one_of = |name: &str, values: &[&str]| {
        filters.iter().any(|(key, value)| key == name && values.contains(&value.as_str()))
    };
    let only_if = |truth: bool| if truth { Value::Bool(true) } else { Value::Null };
    let mut result = Map::new();
    result.insert("mens_clothing".into(), only_if(path.contains("mens-clothing")));
    let shirts = path.contains("shirts") || is_one_of("Product_department", &["shirts", "Shirts", "Shirt"]);
    result.insert("shirts".into(), only_if(shirts));
    let short =
        path.contains("short-sleeve") || is_one_of("Sleeve_length", &["short-sleeve", "Short Sleeve"]);
    result.insert("short_sleeve".into(), only_if(short));
    for key in fields.value("parse_keys")?.as_array().into_iter().flatten().filter_map(Value::as_str) {
        if key == "Price_discount_range" {
            let ranges: Vec<&str> = filter(key).unwrap_or_default().split('|').map(str::trim).collect();
            let has = |part: &str| ranges.contains(&part);
            let half = has("50_PERCENT_ off & more")
                && !has("30_PERCENT_ off & more")
                && !has("20_PERCENT_ off & more");
            result.insert(
                key.into(),
                json!(if half { "50_PERCENT_ off & more" } else { "not_50_PERCENT_ off & more" }),
            );
        } else if let Some(value) = filter(key) {
            result.insert(key.into(), if value.is_empty() { Value::Null } else { value.into() });
        } else if key == "Men_regular_size_t" {
            result.insert(key.into(), Value::Null);
        }
    }
    Ok(State::Json(Value::Object(result)))
}
