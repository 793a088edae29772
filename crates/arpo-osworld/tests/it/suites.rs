//! Folders of task files and lists: read strictly, and what is missing is named.

use arpo_osworld::coverage;
use arpo_osworld::google::Accounts;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

fn write(folder: &Path, domain: &str, id: &str, evaluator: &Value) {
    let path = folder.join("examples").join(domain);
    fs::create_dir_all(&path).unwrap();
    let task = json!({"id": id, "instruction": "do", "config": [{"type": "sleep", "parameters": {"seconds": 1}}], "evaluator": evaluator});
    fs::write(path.join(format!("{id}.json")), task.to_string()).unwrap();
}

fn suite() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let rule = json!({"type": "rule", "rules": {}});
    write(folder.path(), "os", "good", &json!({"func": "exact_match", "result": rule, "expected": rule}));
    write(folder.path(), "os", "hopeless", &json!({"func": "infeasible"}));
    write(
        folder.path(),
        "vlc",
        "odd",
        &json!({"func": "no_such_metric", "result": {"type": "no_such_getter"}}),
    );
    folder
}

#[test]
fn coverage_counts_and_names() {
    let folder = suite();
    let coverage = coverage::of_folder(folder.path(), None, &Accounts::default()).unwrap();
    assert_eq!((coverage.covered, coverage.total), (2, 3));
    let missing: Vec<&str> = coverage.missing.keys().map(String::as_str).collect();
    assert_eq!(missing, ["getter no_such_getter", "metric no_such_metric"]);
    let printed = coverage.to_string();
    assert!(printed.contains("os                            2      2"), "{printed}");
    assert_eq!(serde_json::to_value(&coverage).unwrap()["covered"], 2);
}

#[test]
fn a_suite_with_an_unknown_metric_does_not_load() {
    let folder = suite();
    let error = coverage::load_runnable(folder.path(), None, &Accounts::default()).unwrap_err().to_string();
    assert_eq!(
        error,
        "task vlc/odd needs what is missing here: getter no_such_getter, metric no_such_metric"
    );
    let list = folder.path().join("list.json");
    fs::write(&list, r#"{"os": ["hopeless", "good"]}"#).unwrap();
    let tasks = coverage::load_runnable(folder.path(), Some(&list), &Accounts::default()).unwrap();
    assert_eq!(tasks.iter().map(|task| task.task.id.as_str()).collect::<Vec<_>>(), ["hopeless", "good"]);
}

#[test]
fn lists_of_every_kind_and_what_is_wrong_with_them() {
    let folder = suite();
    let list = folder.path().join("list.json");
    fs::write(&list, r#"[{"domain": "os", "id": "good", "func": []}]"#).unwrap();
    assert_eq!(coverage::of_folder(folder.path(), Some(&list), &Accounts::default()).unwrap().total, 1);
    fs::write(&list, "# by hand\nos/good\n").unwrap();
    assert_eq!(coverage::of_folder(folder.path(), Some(&list), &Accounts::default()).unwrap().total, 1);
    for (text, part) in [
        ("[{}]", "entry 0: domain"),
        ("5", "lines of domain/id"),
        ("{", "not JSON"),
        (r#"{"os": ["gone"]}"#, "gone.json"),
    ] {
        fs::write(&list, text).unwrap();
        let error =
            coverage::of_folder(folder.path(), Some(&list), &Accounts::default()).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn an_id_may_be_that_of_another_domain_but_not_twice_in_one() {
    let folder = suite();
    write(folder.path(), "vlc", "good", &json!({"func": "infeasible"}));
    assert_eq!(coverage::of_folder(folder.path(), None, &Accounts::default()).unwrap().total, 4);
    let path = folder.path().join("examples/os");
    fs::copy(path.join("good.json"), path.join("copy.json")).unwrap();
    let error = coverage::of_folder(folder.path(), None, &Accounts::default()).unwrap_err().to_string();
    assert!(error.ends_with("two files have the id os/good"), "{error}");
}

#[test]
fn the_documentation_names_every_function() {
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/osworld-evaluators.md"))
            .unwrap();
    let metrics =
        arpo_osworld::metrics::TABLES.iter().flat_map(|(_, table)| table.iter().map(|metric| metric.name));
    let getters =
        arpo_osworld::getters::TABLES.iter().flat_map(|(_, table)| table.iter().map(|getter| getter.name));
    let steps = arpo_osworld::setup::STEPS.iter().copied();
    let unnamed: Vec<&str> =
        metrics.chain(getters).chain(steps).filter(|name| !text.contains(&format!("`{name}`"))).collect();
    assert!(unnamed.is_empty(), "{unnamed:?}");
}
