//! Metrics on the tags of music files.

use super::call::yes;
use super::{Call, Metric, Score, metric};
use crate::error::MetricError;
use crate::id3::Tags;
use crate::text::value_rule;
use serde_json::Value;

pub(super) const METRICS: &[Metric] = &[metric("check_mp3_meta", check_mp3_meta)];

/// Every tag of the rules meets its rule; several values of a tag are joined by commas, and a missing one is empty.
fn check_mp3_meta(call: &Call<'_>) -> Score {
    if call.result.is_none() {
        return Ok(0.0);
    }
    let tags = Tags::read(&call.result.file()?.bytes)?;
    let rules = call.rule()?.as_object().ok_or_else(|| MetricError::raises("the rules are not an object"))?;
    let mut holds = true;
    for (name, rule) in rules {
        let value = tags.named(name).map(|values| values.join(",")).unwrap_or_default();
        holds = holds && value_rule::meets(&Value::String(value), rule)?;
    }
    Ok(yes(holds))
}
