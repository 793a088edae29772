//! Metrics by name: pure functions from a state, what is expected and options to a score.
//!
//! Each file holds a domain and its own table; [`find`] looks through all of them. A metric that is not in a
//! table is an error that names it.

#![expect(clippy::unnecessary_wraps, reason = "every metric has the table's signature")]

mod accessibility;
mod archive;
mod call;
mod chrome;
mod deck_compare;
mod docs;
mod general;
mod gimp;
mod html;
mod image;
mod json;
mod lines;
mod music;
mod pdf;
mod registry;
mod slides;
mod table;
mod thunderbird;
mod video;
mod vlc;
mod vscode;

pub use call::{Call, Score, Settings};

use crate::error::MetricError;
use crate::state::State;
use serde_json::{Map, Value};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A metric with its name in task files.
pub struct Metric {
    /// The name.
    pub name: &'static str,
    /// What it does.
    pub function: fn(&Call<'_>) -> Score,
}

/// A row of a table.
const fn metric(name: &'static str, function: fn(&Call<'_>) -> Score) -> Metric {
    Metric { name, function }
}

/// Every table with the name of its domain.
pub const TABLES: &[(&str, &[Metric])] = &[
    ("accessibility", accessibility::METRICS),
    ("archive", archive::METRICS),
    ("chrome", chrome::METRICS),
    ("docs", docs::METRICS),
    ("general", general::METRICS),
    ("gimp", gimp::METRICS),
    ("html", html::METRICS),
    ("image", image::METRICS),
    ("json", json::METRICS),
    ("lines", lines::METRICS),
    ("music", music::METRICS),
    ("pdf", pdf::METRICS),
    ("slides", slides::METRICS),
    ("table", table::METRICS),
    ("thunderbird", thunderbird::METRICS),
    ("video", video::METRICS),
    ("vlc", vlc::METRICS),
    ("vscode", vscode::METRICS),
];

/// The name for an infeasible task; it is scored by the last action, not by a metric.
pub const INFEASIBLE: &str = "infeasible";

/// The metric of a name.
pub fn find(name: &str) -> Option<&'static Metric> {
    TABLES.iter().flat_map(|(_, metrics)| metrics.iter()).find(|metric| metric.name == name)
}

/// The score of one metric.
///
/// If a third-party decoder panics on a damaged file, that is an error of the file, not the end of the run.
pub fn score(
    name: &str,
    result: &State,
    expected: Option<&State>,
    options: &Map<String, Value>,
    settings: &Settings<'_>,
) -> Score {
    let metric = find(name).ok_or_else(|| MetricError::Unknown(name.to_owned()))?;
    let call = Call { result, expected, options, settings };
    catch_unwind(AssertUnwindSafe(|| (metric.function)(&call)))
        .unwrap_or_else(|_| Err(MetricError::raises(format!("{name} cannot read the file"))))
}
