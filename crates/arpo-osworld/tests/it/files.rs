//! Files of tasks ahead of a run, and archives as results.

use arpo_osworld::download::{Cache, Fetch, Fetched, Sources};
use arpo_osworld::fetch;
use arpo_osworld::google::Accounts;
use arpo_osworld::metrics::{self, Settings};
use arpo_osworld::needs::{self, Need};
use arpo_osworld::state::{FileState, State};
use arpo_osworld::task::suite::SuiteTask;
use serde_json::{Map, Value, json};
use std::io::{Cursor, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Serves addresses that end with `good`, and counts.
#[derive(Default)]
struct Counting(Mutex<Vec<String>>);

impl Fetch for Counting {
    fn fetch(&self, url: &str, _: u64, _: Duration) -> Result<Fetched, String> {
        self.0.lock().unwrap().push(url.to_owned());
        let status = if url.ends_with("good") { 200 } else { 404 };
        Ok(Fetched { status, length: Some(3), body: Box::new(Cursor::new(b"yes".to_vec())) })
    }
}

fn task(value: &Value) -> SuiteTask {
    SuiteTask::parse("os", value.to_string()).unwrap()
}

fn with_files() -> SuiteTask {
    let file = |url: &str| json!({"url": url, "path": "/home/user/a.txt"});
    task(&json!({
        "id": "t", "instruction": "do",
        "config": [{"type": "download", "parameters": {"files": [file("http://x/good"), file("http://x/bad")]}}],
        "evaluator": {
            "func": "compare_text_file", "result": {"type": "vm_file", "path": "a", "dest": "a"},
            "expected": {"type": "cloud_file", "multi": true, "path": ["http://y/good"], "dest": ["gold.txt"]}
        }
    }))
}

#[test]
fn files_are_fetched_once_and_what_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let server = Arc::new(Counting::default());
    let sources = Sources { tries: 1, ..Sources::default() };
    let cache = Cache::with_fetch(folder.path(), sources, server.clone()).unwrap();
    let tasks = [with_files()];
    let mut seen = Vec::new();
    let missing = fetch::obtain_all(&cache, &tasks, Duration::from_secs(9), |number, all, file, is_there| {
        seen.push((number, all, file.is_gold, is_there));
    });
    assert_eq!(seen, [(1, 3, false, true), (2, 3, false, false), (3, 3, true, true)]);
    assert_eq!(
        (missing.len(), missing[0].task.as_str(), missing[0].url.as_str()),
        (1, "os/t", "http://x/bad")
    );
    assert!(missing[0].problem.contains("status 404"), "{}", missing[0].problem);
    fetch::obtain_all(&cache, &tasks, Duration::from_secs(9), |_, _, _, _| {});
    assert_eq!(server.0.lock().unwrap().iter().filter(|url| url.ends_with("good")).count(), 2);
}

#[test]
fn every_task_says_what_it_needs() {
    let plain = json!({"func": "exact_match", "result": {"type": "rule", "rules": {}}, "expected": {"type": "rule", "rules": {}}});
    let none = Accounts::new("/nowhere");
    let of = |config: Value, evaluator: &Value| {
        let task = json!({"id": "t", "instruction": "do", "config": config, "evaluator": evaluator});
        needs::of(&self::task(&task), &none)
    };
    assert_eq!(of(json!([]), &plain).need, Need::Nothing);
    assert_eq!(needs::of(&with_files(), &none).files, 3);
    let tabs = json!([{"type": "chrome_open_tabs", "parameters": {"urls_to_open": ["https://a.com"]}}]);
    let web = of(tabs, &plain);
    assert_eq!((web.need, web.why.as_str()), (Need::Internet, "it opens https://a.com"));
    let dance = of(json!([{"type": "dance", "parameters": {}}]), &plain);
    assert_eq!((dance.need, dance.why.as_str()), (Need::NotImplemented, "step dance"));
    let odd = of(json!([]), &json!({"func": "no_such", "result": {"type": "rule", "rules": {}}}));
    assert_eq!((odd.need, odd.why.as_str()), (Need::NotImplemented, "metric no_such"));
    let page = json!({"func": "literal_match", "result": {"type": "rule", "rules": {}}, "expected": {"type": "info_from_website", "url": "https://a.org"}});
    let read = of(json!([]), &page);
    assert_eq!(
        (read.need, read.why.as_str()),
        (Need::Internet, "its evaluator reads a page (info_from_website)")
    );
    let image = json!({"func": "compare_image_text", "result": {"type": "rule", "rules": {}}, "expected": {"type": "rule", "rules": {}}});
    let image = task(&json!({"id": "t", "instruction": "do", "evaluator": image}));
    assert_eq!(needs::of_on(&image, &none, |_| true).need, Need::Nothing);
    let without = needs::of_on(&image, &none, |_| false);
    let why = "tesseract is not installed on this host, or not completely; on Debian: apt-get install tesseract-ocr tesseract-ocr-eng";
    assert_eq!((without.need, without.why.as_str()), (Need::Program, why));
    let code = json!({"id": "t", "instruction": "do", "related_apps": ["vscode"], "evaluator": plain});
    assert_eq!(needs::of(&task(&code), &none).need, Need::VirtualMachine);
}

fn score(func: &str, result: &State, expected: &State, options: &Value) -> Result<f64, String> {
    let options: Map<String, Value> = options.as_object().unwrap().clone();
    metrics::score(func, result, Some(expected), &options, &Settings::default())
        .map_err(|error| error.to_string())
}

fn zip(name: &str, parts: &[(&str, &str)]) -> State {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in parts {
        writer.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(content.as_bytes()).unwrap();
    }
    State::File(FileState::new(name, writer.finish().unwrap().into_inner()))
}

/// A tar archive in gzip, with plain headers.
fn tar_gz(name: &str, parts: &[(&str, &str)]) -> State {
    let mut archive = Vec::new();
    for (path, content) in parts {
        let mut header = [0_u8; 512];
        header[..path.len()].copy_from_slice(path.as_bytes());
        header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        header[156] = b'0';
        archive.extend_from_slice(&header);
        archive.extend_from_slice(content.as_bytes());
        archive.resize(archive.len().div_ceil(512) * 512, 0);
    }
    archive.resize(archive.len() + 1024, 0);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&archive).unwrap();
    State::File(FileState::new(name, packed.finish().unwrap()))
}

#[test]
fn archives_are_compared_file_by_file() {
    let gold = || zip("gold.zip", &[("d/a.txt", "one"), ("d/b.txt", "two"), ("other", "x")]);
    let is = |score: Result<f64, String>, wanted: f64| (score.unwrap() - wanted).abs() < 1e-12;
    let inside = json!({"file_path": "d", "file_type": "text"});
    let packed = |b: &str| tar_gz("a.tar.gz", &[("d/a.txt", "one"), ("d/b.txt", b)]);
    assert!(is(score("compare_archive", &packed("two"), &gold(), &inside), 1.0));
    assert!(is(score("compare_archive", &packed("2"), &gold(), &inside), 0.5));
    assert!(is(score("compare_archive", &zip("a.zip", &[("d/a.txt", "one")]), &gold(), &inside), 0.0));
    assert!(is(score("compare_archive", &State::Null, &gold(), &inside), 0.0));
    assert!(
        score("compare_archive", &gold(), &gold(), &json!({"file_path": "no"}))
            .unwrap_err()
            .starts_with("raises")
    );
    let broken = || State::File(FileState::new("a.zip", b"no".to_vec()));
    assert!(score("compare_archive", &broken(), &gold(), &inside).unwrap_err().starts_with("raises"));

    assert!(is(score("compare_zip_files", &gold(), &gold(), &json!({})), 1.0));
    let other = |content: &str| zip("a.zip", &[("d/a.txt", "one"), ("d/b.txt", content), ("other", "x")]);
    assert!(is(score("compare_zip_files", &other("2"), &gold(), &json!({})), 0.0));
    assert!(is(score("compare_zip_files", &zip("a.zip", &[("other", "x")]), &gold(), &json!({})), 0.0));
}

#[test]
fn the_accessibility_tree_is_searched_by_selectors_and_paths() {
    let tree = r#"<desktop-frame xmlns:attr="https://accessibility.ubuntu.example.org/ns/attributes">
        <application name="Thunderbird"><page-tab-list attr:id="tabs"><page-tab name="About Profiles">Profiles</page-tab>
        </page-tab-list></application></desktop-frame>"#;
    let check = |rules: Value| {
        score("check_accessibility_tree", &State::Json(json!(tree)), &State::Json(rules), &json!({})).unwrap()
    };
    let tab =
        "application[name=Thunderbird] page-tab-list[attr|id=\"tabs\"]>page-tab[name=\"About Profiles\"]";
    assert!(check(json!([{"selectors": [tab]}])) > 0.5);
    assert!(check(json!([{"selectors": [tab]}, {"selectors": ["page-tab[name=Other]"]}])) < 0.5);
    assert!(
        check(json!([{"xpath": "//application[@name='Thunderbird']//*[contains(@name, 'Profiles')]"}])) > 0.5
    );
    let text = |text: &str, exact: bool| check(json!([{"selectors": [tab], "text": text, "exact": exact}]));
    assert!(
        text("Profiles", true) > 0.5
            && text("Profile", true) < 0.5
            && (0.9..1.0).contains(&text("Profile", false))
    );
}
