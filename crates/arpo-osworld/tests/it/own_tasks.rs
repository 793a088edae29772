//! Tasks of one's own: the examples of `docs/own-tasks.md`, and a folder of task files without domains.

use arpo_core::generation::Generation;
use arpo_osworld::check::problems;
use arpo_osworld::download::{Cache, Sources};
use arpo_osworld::evaluate::score_checks;
use arpo_osworld::google::Accounts;
use arpo_osworld::metrics::Settings;
use arpo_osworld::state::{FileState, State};
use arpo_osworld::task::Getter;
use arpo_osworld::task::suite::{self, SuiteTask};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/own-tasks")
}

fn example(id: &str) -> SuiteTask {
    suite::load(&examples(), None).unwrap().into_iter().find(|task| task.task.id == id).unwrap()
}

#[test]
fn a_folder_of_tasks_needs_no_domains_and_no_list() {
    let tasks = suite::load(&examples(), None).unwrap();
    let found: Vec<(&str, &str)> =
        tasks.iter().map(|task| (task.domain.as_str(), task.task.id.as_str())).collect();
    let wanted = [
        ("libreoffice_calc", "calc-total"),
        ("chrome", "chromium-page"),
        ("gimp", "gimp-mirror"),
        ("os", "terminal-note"),
        ("vlc", "vlc-play"),
        ("libreoffice_writer", "writer-closing"),
    ];
    assert_eq!(found, wanted);
    for task in &tasks {
        assert_eq!(problems(&task.task, &Accounts::default()), Vec::<String>::new(), "{}", task.task.id);
    }
}

#[test]
fn json_files_that_tasks_use_are_no_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let task = fs::read_to_string(examples().join("terminal-note.json")).unwrap();
    fs::create_dir(folder.path().join("files")).unwrap();
    fs::write(folder.path().join("files/settings.json"), "{\"zoom\": 2}").unwrap();
    // a folder of domains has nothing but tasks
    let text = suite::load(folder.path(), None).unwrap_err().to_string();
    assert!(text.contains("settings.json"), "{text}");
    fs::write(folder.path().join("terminal-note.json"), &task).unwrap();
    assert_eq!(suite::load(folder.path(), None).unwrap().len(), 1);
    fs::write(folder.path().join("files/another.json"), &task).unwrap();
    assert_eq!(suite::load(folder.path(), None).unwrap().len(), 2);
}

/// The score of an example with a file of the examples as the result; golds come through the cache, offline.
fn score(id: &str, result: &str) -> f64 {
    let SuiteTask { task, .. } = example(id);
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path(), Sources { offline: true, ..Sources::default() }).unwrap();
    let get = |getter: &Getter| {
        let name = getter.fields["dest"].as_str().unwrap();
        let bytes = match getter.kind.as_str() {
            "vm_file" => fs::read(examples().join("files").join(result)).unwrap(),
            "cloud_file" => {
                let url = getter.fields["path"].as_str().unwrap();
                cache.obtain_for_evaluator(id, url, name, Instant::now() + Duration::from_secs(5))?
            }
            other => panic!("{other}"),
        };
        Ok(State::File(FileState::new(name, bytes)))
    };
    let settings = Settings { generation: Generation::ArpoEra, ..Settings::default() };
    score_checks(&task, false, &settings, get).unwrap()
}

#[test]
fn golds_beside_a_task_score_1_and_what_it_starts_with_scores_0() {
    for (id, gold, start) in [
        ("calc-total", "sales-gold.xlsx", "sales.xlsx"),
        ("writer-closing", "letter-gold.docx", "letter.docx"),
    ] {
        assert_eq!((score(id, gold), score(id, start)), (1.0, 0.0), "{id}");
    }
    assert!(score("gimp-mirror", "flag.png") < f64::EPSILON, "not mirrored");
}
