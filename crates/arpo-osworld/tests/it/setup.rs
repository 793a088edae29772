//! Set-up steps become calls to the guest, in their order.

use crate::fake_guest::FakeGuest;
use arpo_core::generation::Generation;
use arpo_osworld::download::{Cache, Fetch, Fetched, Sources};
use arpo_osworld::error::SetupError;
use arpo_osworld::google::Accounts;
use arpo_osworld::guest::{Output, Tab};
use arpo_osworld::setup::{Preparation, Prepared, run};
use arpo_osworld::task::Step;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn prepare(
    guest: &FakeGuest,
    folder: &Path,
    generation: Generation,
    steps: &Value,
) -> Result<Prepared, SetupError> {
    let cache = Cache::new(folder, Sources { offline: true, ..Sources::default() }).unwrap();
    prepare_with(&cache, guest, &Accounts::default(), generation, steps, Duration::from_mins(1))
}

pub(crate) fn prepare_with(
    cache: &Cache,
    guest: &FakeGuest,
    accounts: &Accounts,
    generation: Generation,
    steps: &Value,
    limit: Duration,
) -> Result<Prepared, SetupError> {
    let step = |value: &Value| Step {
        kind: value[0].as_str().unwrap().into(),
        parameters: value[1].as_object().unwrap().clone(),
    };
    let steps: Vec<Step> = steps.as_array().unwrap().iter().map(step).collect();
    let now = "2025-05-15T12:00:00Z".parse().unwrap();
    let preparation = Preparation {
        guest,
        cache,
        accounts,
        task: "t",
        generation,
        proxy: true,
        password: "secret",
        screen: (1920, 1080),
        now,
        deadline: Instant::now() + limit,
    };
    run(&preparation, &steps)
}

#[test]
fn steps_run_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path(), Sources::default()).unwrap();
    let cached = cache.path("t", "https://a.org/x", "/home/user/x.txt");
    std::fs::create_dir_all(cached.parent().unwrap()).unwrap();
    std::fs::write(&cached, "12345").unwrap();
    let mut guest = FakeGuest::default();
    guest.outputs.insert("sudo".into(), Output { stdout: "done".into(), ..Output::default() });
    let steps = json!([
        ["download", {"files": [{"url": "https://a.org/x", "path": "/home/user/x.txt"}]}],
        ["launch", {"command": "google-chrome --flag"}],
        ["execute", {"command": ["sudo", "{CLIENT_PASSWORD}", "{SCREEN_WIDTH_HALF}"], "stdout": "out.txt"}],
        ["open", {"path": "/home/user/x.txt"}],
        ["activate_window", {"window_name": "x", "strict": true}],
        ["sleep", {"seconds": 0.5}],
        ["close_window", {"window_name": "x"}]
    ]);
    prepare(&guest, folder.path(), Generation::Verified, &steps).unwrap();
    let log = [
        "write /home/user/x.txt 5 bytes",
        "launch [\"google-chrome\",\"--flag\",\"--proxy-server=http://127.0.0.1:18888\"]",
        "run [\"sudo\",\"secret\",\"960\"]",
        "open /home/user/x.txt",
        "activate x",
        "pause 0.5",
        "close x",
    ];
    assert_eq!(guest.log(), log);
    assert_eq!(std::fs::read_to_string(folder.path().join("t/out.txt")).unwrap(), "done");
}

#[test]
fn a_refusal_ends_only_verified_s_set_up() {
    let folder = tempfile::tempdir().unwrap();
    let guest = FakeGuest { refuses: vec!["open"], ..FakeGuest::default() };
    let steps = json!([["open", {"path": "/a"}], ["sleep", {"seconds": 1}]]);
    let early = prepare(&guest, folder.path(), Generation::ArpoEra, &steps).unwrap();
    assert_eq!(early.refused.len(), 1);
    assert!(guest.log().contains(&"pause 1".to_owned()));
    let later = prepare(&guest, folder.path(), Generation::Verified, &steps).unwrap_err();
    assert!(later.to_string().starts_with("set-up step 0 (open): open: status 500"), "{later}");
    let dead = FakeGuest { dead: true, ..FakeGuest::default() };
    assert!(prepare(&dead, folder.path(), Generation::ArpoEra, &steps).is_err());
}

#[test]
fn all_steps_are_read_before_one_runs() {
    let folder = tempfile::tempdir().unwrap();
    let guest = FakeGuest::default();
    let steps = json!([["sleep", {"seconds": 1}], ["dance", {}]]);
    let error = prepare(&guest, folder.path(), Generation::ArpoEra, &steps).unwrap_err();
    assert_eq!(error.to_string(), "set-up step 1: no set-up step is called \"dance\"");
    assert!(guest.log().is_empty());
    for (kind, fields) in [
        ("sleep", json!({"seconds": "long"})),
        ("launch", json!({})),
        ("download", json!({"files": [{}]})),
        ("open", json!({"path": 5})),
    ] {
        assert!(
            prepare(&guest, folder.path(), Generation::ArpoEra, &json!([[kind, fields]])).is_err(),
            "{kind}"
        );
    }
}

#[test]
fn a_missing_download_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let steps = json!([["download", {"files": [{"url": "https://a.org/x", "path": "/home/user/x.txt"}]}]]);
    let error =
        prepare(&FakeGuest::default(), folder.path(), Generation::ArpoEra, &steps).unwrap_err().to_string();
    assert!(error.contains("offline: https://a.org/x") && error.ends_with("_x.txt"), "{error}");
}

/// A server that answers after the deadline.
struct Late;

impl Fetch for Late {
    fn fetch(&self, _: &str, _: u64, limit: Duration) -> Result<Fetched, String> {
        std::thread::sleep(limit);
        Err("timeout".into())
    }
}

/// Another desktop may find it: the task is not to blame.
#[test]
fn a_late_download_is_not_the_tasks_fault() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::with_fetch(folder.path(), Sources::default(), Arc::new(Late)).unwrap();
    let steps = json!([["download", {"files": [{"url": "https://a.org/x", "path": "/home/user/x.txt"}]}]]);
    let began = Instant::now();
    let limit = Duration::from_millis(200);
    let (guest, accounts) = (FakeGuest::default(), Accounts::default());
    let error = prepare_with(&cache, &guest, &accounts, Generation::Verified, &steps, limit).unwrap_err();
    assert!(matches!(error, SetupError::Lost { index: 0, .. }), "{error:?}");
    assert!(error.to_string().contains("was not there by the deadline"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[test]
fn tabs_open_and_the_first_one_closes() {
    let folder = tempfile::tempdir().unwrap();
    let guest = FakeGuest::default();
    guest.tabs.borrow_mut().push(Tab {
        id: "old".into(),
        title: String::new(),
        url: "chrome://newtab/".into(),
    });
    let steps = json!([["chrome_open_tabs", {"urls_to_open": ["https://a.com", "https://b.com"]}], ["chrome_close_tabs", {"urls_to_close": ["https://www.b.com/"]}]]);
    prepare(&guest, folder.path(), Generation::ArpoEra, &steps).unwrap();
    let urls: Vec<String> = guest.tabs.borrow().iter().map(|tab| tab.url.clone()).collect();
    assert_eq!(urls, ["https://a.com"]);
}

#[test]
fn a_command_is_repeated_until_it_is_enough() {
    let folder = tempfile::tempdir().unwrap();
    let mut guest = FakeGuest::default();
    guest
        .outputs
        .insert("poll".into(), Output { stdout: "not yet".into(), returncode: 1, ..Output::default() });
    let steps = json!([["execute", {"command": ["poll"], "until": {"returncode": 0}}]]);
    prepare(&guest, folder.path(), Generation::ArpoEra, &steps).unwrap();
    assert_eq!(guest.log().iter().filter(|line| line.starts_with("run")).count(), 5);
    let met = json!([["execute", {"command": ["poll"], "until": {"stdout": "yet"}}]]);
    prepare(&guest, folder.path(), Generation::ArpoEra, &met).unwrap();
    assert_eq!(guest.log().iter().filter(|line| line.starts_with("run")).count(), 6);
}
