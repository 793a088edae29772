//! Pages in the browser: titles, texts, values of fields, a PDF print.

use super::fields::Fields;
use super::recreation::goto_recreation_page_and_get_html_content;
use super::tabs::{active_url, connected};
use super::website::info_from_website;
use super::{Context, GetterEntry, getter};
use crate::error::GetterError;
use crate::guest::{Browser, Tab, quoted};
use crate::state::{FileState, State};
use crate::text::url::unquote;
use arpo_core::generation::Generation;
use serde_json::{Map, Value, json};
use std::time::Duration;

pub(super) const GETTERS: &[GetterEntry] = &[
    getter("active_tab_html_parse", active_tab_html_parse),
    getter("active_tab_info", active_tab_info),
    getter("gotoRecreationPage_and_get_html_content", goto_recreation_page_and_get_html_content),
    getter("info_from_website", info_from_website),
    getter("page_info", page_info),
    getter("pdf_from_url", pdf_from_url),
];

const PAGE: &str =
    "({title: document.title, url: location.href, content: document.documentElement.outerHTML})";

/// The active address opened once more in a new tab: title, address, content.
fn active_tab_info(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    let Some(url) = active_url(context, fields)? else { return Ok(State::Null) };
    let browser = context.guest.browser();
    let Ok(tab) = browser.open(&url) else { return Ok(State::Null) };
    Ok(browser.evaluate(&tab.id, PAGE).ok().into())
}

fn page_info(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    let url = fields.text("url")?;
    let (browser, _) = connected(context)?;
    let page = browser.open(url).and_then(|tab| browser.evaluate(&tab.id, PAGE));
    Ok(State::Json(page.unwrap_or_else(|_| json!({"title": "Connection failed", "url": url, "content": ""}))))
}

/// A page printed. What cannot be printed is an empty document, as Verified's getter makes one.
fn pdf_from_url(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    let (url, name) = (fields.text("path")?, super::files::base_name(fields.text("dest")?));
    let (browser, _) = connected(context)?;
    let printed = browser.open(url).and_then(|tab| {
        context.guest.pause(Duration::from_secs(3));
        browser.pdf(&tab.id)
    });
    let content = match (printed, context.generation) {
        (Ok(content), _) => content,
        (Err(_), Generation::Verified) => b"%PDF-1.4\n%EOF\n".to_vec(),
        (Err(error), Generation::ArpoEra) => return Err(error.into()),
    };
    Ok(State::File(FileState::new(name, content)))
}

/// The texts of all elements a selector finds.
pub(super) fn texts(browser: &dyn Browser, tab: &str, selector: &str) -> Vec<String> {
    let script = format!(
        "Array.from(document.querySelectorAll({})).map(one => (one.textContent || '').trim())",
        quoted(selector)
    );
    let found = browser.evaluate(tab, &script).unwrap_or(Value::Null);
    found.as_array().into_iter().flatten().filter_map(|one| one.as_str().map(str::to_owned)).collect()
}

/// The tab with the active address, percent signs resolved; Verified: and slashes at the end aside.
fn active_tab(context: &Context<'_>, tabs: Vec<Tab>, url: &str) -> Option<Tab> {
    let plain = |url: &str| match context.generation {
        Generation::ArpoEra => unquote(url),
        Generation::Verified => unquote(url).trim_end_matches('/').to_owned(),
    };
    tabs.into_iter().find(|tab| plain(&tab.url) == plain(url))
}

/// Texts of elements of the active tab, by class, label or path, under the names the task file gives.
///
/// ARPO era: what is not found is left out; Verified: it is an empty text.
fn active_tab_html_parse(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    let Some(url) = active_url(context, fields)? else { return Ok(State::Null) };
    let (browser, tabs) = connected(context)?;
    let Some(tab) = active_tab(context, tabs, &url) else { return Ok(State::Json(json!({}))) };
    let mut found = Found { values: Map::new(), keep_empty: context.generation == Generation::Verified };
    let evaluate = |script: String| {
        browser
            .evaluate(&tab.id, &script)
            .ok()
            .and_then(|value| value.as_str().map(|text| text.trim().to_owned()))
    };
    match fields.text("category")? {
        "class" => by_class(browser, &tab, fields, &mut found),
        "label" => {
            for (label, key) in fields.entries("labelObject") {
                found.put(key, evaluate(format!("{LABEL}({})", quoted(label))));
            }
        }
        "xpath" => {
            for (path, key) in fields.entries("xpathObject") {
                found
                    .put(key, evaluate(format!("{AT_PATH}({}, one => one.textContent || '')", quoted(path))));
            }
        }
        "input" => {
            for (path, key) in fields.entries("inputObject") {
                found.put(key, evaluate(format!("{AT_PATH}({}, one => one.value || '')", quoted(path))));
            }
        }
        "class&url" => by_class_and_url(browser, &tab, fields, &mut found),
        other => return Err(fields.wrong(format!("category {other} is not known"))),
    }
    Ok(State::Json(Value::Object(found.values)))
}

/// The innermost element that shows a text, ignoring case.
const LABEL: &str = "(label => { const plain = text => (text || '').replace(/\\s+/g, ' ').trim().toLowerCase(); \
    const all = Array.from(document.querySelectorAll('body *')).filter(one => plain(one.textContent).includes(plain(label))); \
    const one = all.find(one => !Array.from(one.children).some(child => plain(child.textContent).includes(plain(label)))); \
    return one ? one.textContent : null; })";
/// A property of the first element at an XPath.
const AT_PATH: &str = "((path, read) => { const one = document.evaluate(path, document, null, \
    XPathResult.FIRST_ORDERED_NODE_TYPE, null).singleNodeValue; return one ? read(one) : null; })";

struct Found {
    values: Map<String, Value>,
    keep_empty: bool,
}

impl Found {
    fn put(&mut self, key: &Value, value: Option<String>) {
        let key = key.as_str().unwrap_or_default().to_owned();
        match value {
            Some(value) => drop(self.values.insert(key, value.into())),
            None if self.keep_empty => drop(self.values.insert(key, "".into())),
            None => {}
        }
    }

    fn put_each(&mut self, indices: &Value, texts: &[String]) {
        for (index, key) in indices.as_object().into_iter().flatten() {
            let text = index.parse::<usize>().ok().and_then(|index| texts.get(index)).cloned();
            self.put(key, text);
        }
    }
}

fn by_class(browser: &dyn Browser, tab: &Tab, fields: &Fields<'_>, found: &mut Found) {
    for (class, indices) in fields.entries("class_multiObject") {
        found.put_each(indices, &texts(browser, &tab.id, &format!(".{class}")));
    }
    for (class, indices) in fields.entries("class_multiObject_child") {
        let script = format!(
            "Array.from((document.querySelector({}) || {{childNodes: []}}).childNodes).filter(one => one.nodeType === 3)\
             .map(one => one.textContent.trim()).filter(Boolean)",
            quoted(&format!(".{class}"))
        );
        let own = browser.evaluate(&tab.id, &script).unwrap_or(Value::Null);
        let own: Vec<String> =
            own.as_array().into_iter().flatten().filter_map(|one| one.as_str().map(str::to_owned)).collect();
        found.put_each(indices, &own);
    }
    for (class, indices) in fields.entries("class_multiObject_only_child") {
        found.put_each(indices, &texts(browser, &tab.id, &format!(".{class} h3")));
    }
    for (class, wanted) in fields.entries("class_multiObject_search_exist") {
        let texts = texts(browser, &tab.id, &format!(".{class}"));
        let wanted: Vec<&str> = wanted.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for one in wanted.iter().filter(|one| **one != "is_other_exist") {
            found.values.insert((*one).to_owned(), texts.iter().any(|text| text == one).into());
        }
        if wanted.contains(&"is_other_exist") {
            let others = texts.iter().any(|text| !wanted.contains(&text.as_str()));
            found.values.insert("is_other_exist".into(), others.into());
        }
    }
    for (class, key) in fields.entries("class_singleObject") {
        found.put(key, texts(browser, &tab.id, &format!(".{class}")).into_iter().next());
    }
}

fn by_class_and_url(browser: &dyn Browser, tab: &Tab, fields: &Fields<'_>, found: &mut Found) {
    for (name, ending) in [("class_multiObject", ""), ("class_multiObject_li", " li.catAllProducts span")] {
        for (class, wanted) in fields.entries(name) {
            let texts: Vec<String> = texts(browser, &tab.id, &format!(".{class}{ending}"))
                .iter()
                .map(|text| text.to_lowercase())
                .collect();
            let wanted: Vec<String> = wanted
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|one| Some(one.as_str()?.to_lowercase()))
                .collect();
            for one in wanted.iter().filter(|one| texts.contains(one)) {
                found.values.insert(one.clone(), true.into());
            }
            let other = texts.iter().any(|text| wanted.iter().all(|one| !one.contains(text.as_str())));
            if other {
                found.values.insert("is_other_exist".into(), true.into());
            }
            found.values.entry("is_other_exist").or_insert(false.into());
        }
    }
    let url = tab.url.to_lowercase();
    let listed = fields
        .get("url_include_expected")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    for key in listed.map(str::to_lowercase) {
        let holds = url.contains(&key);
        found.values.entry(key).or_insert(holds.into());
    }
    for (key, name) in fields.entries("url_include_expected_multichoice") {
        let name = name.as_str().unwrap_or_default().to_lowercase();
        found.values.entry(name).or_insert(url.contains(&key.to_lowercase()).into());
    }
}
