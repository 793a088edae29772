//! The one getter that navigates a site itself, for a task on recreation.gov.

use super::fields::Fields;
use super::pages::texts;
use super::tabs::connected;
use super::{Context, State};
use crate::error::GetterError;
use crate::guest::{Browser, Tab, quoted};
use arpo_core::generation::Generation;
use serde_json::{Map, Value, json};
use std::time::Duration;

const SITE: &str = "https://www.recreation.gov/";

/// The result of a search on the site, by class; the expected value of a task. Verified: a failure is a value that
/// its metric knows and scores 0.
pub(super) fn goto_recreation_page_and_get_html_content(
    context: &Context<'_>,
    fields: &Fields<'_>,
) -> Result<State, GetterError> {
    let class = fields.text("class")?;
    let found = search(context).map(|(browser, tab)| {
        let texts = texts(browser, &tab.id, &format!(".{class}"));
        let index = fields.get("order").map_or(Ok(0), |_| fields.whole("order"));
        index.ok().and_then(|index| texts.get(usize::try_from(index).ok()?).cloned())
    });
    let value = match (found, context.generation) {
        (Ok(Some(text)), _) => Value::String(text),
        (Ok(None) | Err(_), Generation::Verified) => json!("__EVALUATION_FAILED__"),
        (Ok(None), Generation::ArpoEra) => {
            return Err(GetterError::Raises(format!("no element of class {class}")));
        }
        (Err(error), Generation::ArpoEra) => return Err(error),
    };
    let mut expected = Map::new();
    expected.insert(class.to_owned(), value);
    Ok(State::Json(json!({"expected": expected})))
}

fn search<'a>(context: &Context<'a>) -> Result<(&'a dyn Browser, Tab), GetterError> {
    let (word, wait_s) = match context.generation {
        Generation::ArpoEra => ("Albion Basin", 2),
        Generation::Verified => ("Diamond", 10),
    };
    let (browser, _) = connected(context)?;
    let page = browser.open(SITE)?;
    browser.evaluate(&page.id, &format!("{FILL}('input#hero-search-input', {})", quoted(word)))?;
    browser.evaluate(&page.id, &format!("{CLICK}('button.nav-search-button')"))?;
    context.guest.pause(Duration::from_secs(wait_s));
    let before: Vec<String> = browser.tabs()?.into_iter().map(|tab| tab.id).collect();
    browser.evaluate(&page.id, &format!("{CLICK}('.search-result-highlight--success')"))?;
    context.guest.pause(Duration::from_secs(wait_s));
    let opened = browser.tabs()?.into_iter().find(|tab| !before.contains(&tab.id));
    let opened = opened.ok_or_else(|| GetterError::Raises("the result opened no tab".into()))?;
    // Without the button, the page is taken as it is.
    let _ = browser.evaluate(&opened.id, &format!("{CLICK}('button.next-available')"));
    context.guest.pause(Duration::from_secs(2));
    Ok((browser, opened))
}

/// Sets a field's value as a person's typing would, so that the page's own code sees it.
const FILL: &str = "((selector, text) => { const field = document.querySelector(selector); \
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(field, text); \
    field.dispatchEvent(new Event('input', {bubbles: true})); return true; })";
const CLICK: &str = "(selector => { document.querySelector(selector).click(); return true; })";
