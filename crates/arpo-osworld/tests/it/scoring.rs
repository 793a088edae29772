//! How checks make a score: giving up, one check, all of several, any of several.

use arpo_osworld::error::GetterError;
use arpo_osworld::evaluate::score_checks;
use arpo_osworld::metrics::Settings;
use arpo_osworld::state::State;
use arpo_osworld::task::{Getter, TaskFile};
use serde_json::{Value, json};

fn task(evaluator: &Value) -> TaskFile {
    TaskFile::parse(&json!({"id": "a", "instruction": "do", "evaluator": evaluator}).to_string()).unwrap()
}

/// A getter `rule` gives its rules, `lost` a missing file, `broken` raises.
fn get(getter: &Getter) -> Result<State, GetterError> {
    match getter.kind.as_str() {
        "rule" => Ok(State::from(getter.fields["rules"].clone())),
        "lost" => Err(GetterError::NotFound("x".into())),
        _ => Err(GetterError::Raises("x".into())),
    }
}

fn score(evaluator: &Value, gave_up: bool) -> f64 {
    score_checks(&task(evaluator), gave_up, &Settings::default(), get).unwrap()
}

fn is(score: f64, wanted: f64) -> bool {
    (score - wanted).abs() < 1e-12
}

fn alike(texts: &[&str], conj: &str) -> Value {
    let rule = |value: Value| json!({"type": "rule", "rules": value});
    json!({
        "func": vec!["fuzzy_match"; texts.len()], "conj": conj,
        "result": texts.iter().map(|text| rule(json!(text))).collect::<Vec<_>>(),
        "expected": texts.iter().map(|_| rule(json!({"expected": "abcd"}))).collect::<Vec<_>>()
    })
}

#[test]
fn giving_up_is_right_only_where_nothing_can_be_done() {
    let infeasible = json!({"func": "infeasible"});
    assert!(is(score(&infeasible, true), 1.0) && is(score(&infeasible, false), 0.0));
    let feasible = json!({"func": "exact_match", "result": {"type": "rule", "rules": "x"}, "expected": {"type": "rule", "rules": {"expected": "x"}}});
    assert!(is(score(&feasible, false), 1.0) && is(score(&feasible, true), 0.0));
}

#[test]
fn all_is_the_mean_unless_one_is_zero() {
    assert!(is(score(&alike(&["abcd", "ab"], "and"), false), f64::midpoint(1.0, 4.0 / 6.0)));
    assert!(is(score(&alike(&["abcd", "zz"], "and"), false), 0.0));
}

#[test]
fn any_is_the_largest() {
    assert!(is(score(&alike(&["ab", "zz"], "or"), false), 4.0 / 6.0));
    assert!(is(score(&alike(&["zz", "abcd", "ab"], "or"), false), 1.0));
}

#[test]
fn a_missing_file_is_zero_but_an_exception_is_not() {
    let with = |kind: &str| json!({"func": "exact_match", "result": {"type": kind}, "expected": {"type": "rule", "rules": {"expected": "x"}}});
    assert!(is(score(&with("lost"), false), 0.0));
    let error = score_checks(&task(&with("broken")), false, &Settings::default(), get).unwrap_err();
    assert!(error.counts_as_zero());
    let unknown = json!({"func": "no_such", "result": {"type": "rule", "rules": 1}});
    assert!(!score_checks(&task(&unknown), false, &Settings::default(), get).unwrap_err().counts_as_zero());
}
