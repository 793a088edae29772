//! Metrics on the accessibility tree.

use super::call::text;
use super::{Call, Metric, Score, metric};
use crate::error::MetricError;
use crate::selector::{Namespaces, by_css, by_xpath};
use crate::text::{python, similarity};
use crate::xml::parse;
use serde_json::Value;

pub(super) const METRICS: &[Metric] = &[metric("check_accessibility_tree", check_accessibility_tree)];

/// Prefixes of selectors. OSWorld's first servers had other namespaces, which the ARPO era's evaluators still know.
const NAMESPACES: Namespaces<'_> = &[
    ("st", &["https://accessibility.ubuntu.example.org/ns/state", "uri:deskat:state.at-spi.gnome.org"]),
    (
        "attr",
        &["https://accessibility.ubuntu.example.org/ns/attributes", "uri:deskat:attributes.at-spi.gnome.org"],
    ),
    (
        "cp",
        &["https://accessibility.ubuntu.example.org/ns/component", "uri:deskat:component.at-spi.gnome.org"],
    ),
    (
        "doc",
        &["https://accessibility.ubuntu.example.org/ns/document", "uri:deskat:document.at-spi.gnome.org"],
    ),
    (
        "docattr",
        &[
            "https://accessibility.ubuntu.example.org/ns/document/attributes",
            "uri:deskat:attributes.document.at-spi.gnome.org",
        ],
    ),
    ("txt", &["https://accessibility.ubuntu.example.org/ns/text", "uri:deskat:text.at-spi.gnome.org"]),
    ("val", &["https://accessibility.ubuntu.example.org/ns/value", "uri:deskat:value.at-spi.gnome.org"]),
    ("act", &["https://accessibility.ubuntu.example.org/ns/action", "uri:deskat:action.at-spi.gnome.org"]),
];

/// Every rule chooses an element; with a text, the product over the rules of how alike the best element's text is.
fn check_accessibility_tree(call: &Call<'_>) -> Score {
    let tree = text(call.result.json()?)?;
    let document = parse(tree)?;
    let rules = call.rule()?.as_array().ok_or_else(|| MetricError::raises("the rules are not a list"))?;
    let mut score = 1.0;
    for rule in rules {
        let elements = if let Some(path) = rule.get("xpath") {
            by_xpath(&document, text(path)?, NAMESPACES)?
        } else {
            let selectors = rule.get("selectors").and_then(Value::as_array);
            let selectors = selectors.ok_or_else(|| MetricError::raises("a rule without selectors"))?;
            let selectors: Vec<&str> = selectors.iter().map(text).collect::<Result<_, _>>()?;
            by_css(&document, &selectors.join(", "), NAMESPACES)?
        };
        if elements.is_empty() {
            return Ok(0.0);
        }
        let Some(wanted) = rule.get("text") else { continue };
        let (wanted, exact) =
            (text(wanted)?, rule.get("exact").ok_or_else(|| MetricError::raises("no exact"))?);
        let likeness = |found: Option<&str>| match (found, python::truthy(exact)) {
            (Some(found), true) => f64::from(u8::from(found == wanted)),
            (Some(found), false) => similarity::ratio(wanted, found) / 100.0,
            (None, _) => 0.0,
        };
        score *= elements.iter().map(|node| likeness(node.text())).fold(0.0, f64::max);
    }
    Ok(score)
}
