//! Every metric scores what OSWorld's own evaluators score.

use crate::videos::MotionJpeg;
use arpo_core::generation::Generation;
use arpo_osworld::metrics::{self, Settings};
use arpo_osworld::score::{Case, score_case};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

pub(crate) fn cases() -> Vec<(Case, Value)> {
    cases_of("cases.json")
}

/// Pages, books, YAML, PDF images, videos.
pub(crate) fn media_cases() -> Vec<(Case, Value)> {
    cases_of("media_cases.json")
}

fn cases_of(file: &str) -> Vec<(Case, Value)> {
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    let entries: Vec<Value> = serde_json::from_str(&text).unwrap();
    let split = |mut entry: Value| {
        let fields = entry.as_object_mut().unwrap();
        let wanted: serde_json::Map<String, Value> = ["arpo_era", "verified"]
            .iter()
            .map(|key| ((*key).to_owned(), fields.remove(*key).unwrap()))
            .collect();
        (serde_json::from_value(entry).unwrap(), Value::Object(wanted))
    };
    entries.into_iter().map(split).collect()
}

/// Compares the scores of both generations with OSWorld's, and counts them.
fn compare(cases: &[(Case, Value)], tolerance: f64) -> usize {
    let mut wrong = Vec::new();
    let mut compared = 0;
    for (generation, key) in [(Generation::ArpoEra, "arpo_era"), (Generation::Verified, "verified")] {
        let settings = Settings { generation, sandbox: Some(&MotionJpeg) };
        for (case, wanted) in cases {
            let scored = score_case(case, &folder(), &settings);
            let agrees = match &wanted[key] {
                Value::Null => continue,
                Value::String(_) => scored.error.as_deref().is_some_and(|error| error.starts_with("raises")),
                number => {
                    scored.error.is_none() && (scored.score - number.as_f64().unwrap()).abs() < tolerance
                }
            };
            compared += 1;
            if !agrees {
                wrong.push(format!("{key} {case:?}: {scored:?}, not {}", wanted[key]));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {compared}:\n{}", wrong.len(), wrong.join("\n"));
    compared
}

#[test]
fn scores_are_osworld_s() {
    let files = ["cases.json", "more_cases.json", "media_cases.json"];
    let cases: Vec<(Case, Value)> = files.into_iter().flat_map(cases_of).collect();
    assert!(compare(&cases, 1e-6) > 6000);
}

#[test]
fn scores_of_files_that_libreoffice_saved_are_osworld_s() {
    assert!(compare(&cases_of("office_cases.json"), 1e-6) > 1500);
}

/// Resampled sound differs in the last digits.
#[test]
fn scores_of_recordings_are_osworld_s() {
    assert!(compare(&cases_of("sound_cases.json"), 1e-3) > 300);
}

#[test]
fn the_cases_hold_both_outcomes_of_a_metric() {
    let mut outcomes: BTreeMap<String, (bool, bool)> = BTreeMap::new();
    // OSWorld's reader of images is a model: it is not run where cases are made
    let media = media_cases().into_iter().filter(|(case, _)| case.func != "compare_image_text");
    for (case, wanted) in cases().into_iter().chain(media) {
        let entry = outcomes.entry(case.func).or_default();
        for score in wanted.as_object().unwrap().values().filter_map(Value::as_f64) {
            entry.0 |= score > 0.5;
            entry.1 |= score < 0.5;
        }
    }
    let lopsided: Vec<&String> =
        outcomes.iter().filter(|(_, outcome)| **outcome != (true, true)).map(|(func, _)| func).collect();
    assert!(lopsided.is_empty(), "{lopsided:?}");
    assert!(outcomes.len() >= 60);
    assert!(outcomes.keys().all(|func| metrics::find(func).is_some()));
}

#[test]
fn an_unknown_metric_is_named() {
    let error = metrics::score(
        "no_such",
        &arpo_osworld::state::State::Null,
        None,
        &serde_json::Map::new(),
        &Settings::default(),
    );
    assert_eq!(error.unwrap_err().to_string(), "no metric is called \"no_such\"");
}
