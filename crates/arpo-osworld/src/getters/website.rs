//! What a page of the internet says at the time of the evaluation, or what it said when the task was written.

use super::fields::Fields;
use super::tabs::connected;
use super::{Context, State};
use crate::error::GetterError;
use crate::guest::{Browser, Tab, quoted};
use serde_json::Value;
use std::time::{Duration, Instant};

/// An element is waited for so long.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(500);

/// Texts and attributes of elements of a page, in order; if one is not found, all are the task's `backups`.
pub(super) fn info_from_website(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    let url = fields.text("url")?;
    let infos: &[Value] = match fields.get("infos") {
        None => &[],
        Some(Value::Array(infos)) => infos.as_slice(),
        Some(other) => return Err(fields.wrong(format!("infos is {other}, not a list"))),
    };
    let found = visit(context, url, infos);
    Ok(found.map_or_else(|_| fields.get("backups").cloned().into(), |found| State::Json(found.into())))
}

fn visit(context: &Context<'_>, url: &str, infos: &[Value]) -> Result<Vec<Value>, GetterError> {
    let (browser, _) = connected(context)?;
    let mut visitor = Visitor { context, browser, tab: browser.open(url)? };
    let mut found = Vec::with_capacity(infos.len());
    for info in infos {
        if visitor.evaluate("location.href")? != url {
            visitor.tab = browser.open(url)?;
        }
        let attribute = || -> Result<String, GetterError> {
            let name = info["attribute"].as_str();
            let name = name.ok_or_else(|| GetterError::Raises(format!("{info} names no attribute")))?;
            Ok(format!("one.getAttribute({})", quoted(name)))
        };
        let (what, is_clicked) = match info["action"].as_str().unwrap_or("inner_text") {
            "inner_text" => ("one.innerText".to_owned(), false),
            "attribute" => (attribute()?, false),
            "click_and_inner_text" => ("one.innerText".to_owned(), true),
            "click_and_attribute" => (attribute()?, true),
            other => return Err(GetterError::Raises(format!("no such action: {other}"))),
        };
        let selectors: Vec<&str> = match (&info["selector"], is_clicked) {
            (Value::String(selector), false) => vec![selector],
            (Value::Array(selectors), true) => selectors.iter().filter_map(Value::as_str).collect(),
            (other, _) => return Err(GetterError::Raises(format!("no selector: {other}"))),
        };
        let Some((last, clicked)) = selectors.split_last() else { continue };
        for selector in clicked {
            visitor.ask(selector, "(one.click(), true)")?;
            visitor.wait_for("document.readyState === 'complete' || null")?;
        }
        found.push(visitor.ask(last, &what)?);
    }
    Ok(found)
}

struct Visitor<'a> {
    context: &'a Context<'a>,
    browser: &'a dyn Browser,
    tab: Tab,
}

impl Visitor<'_> {
    fn evaluate(&self, script: &str) -> Result<Value, GetterError> {
        Ok(self.browser.evaluate(&self.tab.id, script)?)
    }

    /// What an expression makes of the element that a selector finds, once there is one.
    fn ask(&self, selector: &str, what: &str) -> Result<Value, GetterError> {
        let script =
            format!("(one => one && {{value: {what}}})(document.querySelector({}))", quoted(selector));
        Ok(self.wait_for(&script)?["value"].clone())
    }

    /// The value of an expression, once it is not null and no error.
    fn wait_for(&self, script: &str) -> Result<Value, GetterError> {
        let end = self.context.deadline.min(Instant::now() + PATIENCE);
        let mut waited = Duration::ZERO;
        loop {
            // a page that is just being left, as after a click, refuses
            let value = self.evaluate(script);
            if !matches!(value, Ok(Value::Null) | Err(_)) {
                return value;
            }
            // the pauses count, too: a guest may take none
            if Instant::now() >= end || waited >= PATIENCE {
                return value.and_then(|_| Err(GetterError::Raises(format!("no element: {script}"))));
            }
            self.context.guest.pause(POLL);
            waited += POLL;
        }
    }
}
