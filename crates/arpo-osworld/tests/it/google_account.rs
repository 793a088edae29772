//! The user's Google account: the login in the desktop's browser, its settings files, and what is said without them.

use crate::fake_google::{GOOD, SETTINGS, write_settings};
use crate::fake_guest::FakeGuest;
use crate::google_drive::prepare;
use arpo_osworld::coverage;
use arpo_osworld::error::SetupError;
use arpo_osworld::fetch;
use arpo_osworld::google::Accounts;
use arpo_osworld::needs::{self, Need};
use arpo_osworld::setup::Prepared;
use arpo_osworld::task::suite::SuiteTask;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const LOGIN: &str = "evaluation_examples/settings/google/settings.json";
/// What the expressions of a login contain that goes well.
const FILLED_IN: [&str; 5] =
    ["type='email'", "#identifierNext", "type='password'", "#passwordNext", "location.hostname ==="];

fn log_in(guest: &FakeGuest) -> Result<Prepared, SetupError> {
    let folder = tempfile::tempdir().unwrap();
    write_settings(folder.path(), GOOD, "http://127.0.0.1:9/token");
    let steps = json!([["login", {"settings_file": LOGIN, "platform": "googledrive"}]]);
    prepare(guest, &Accounts::new(folder.path()), &steps)
}

#[test]
fn the_login_page_is_filled_in() {
    let mut guest = FakeGuest::default();
    for part in FILLED_IN {
        guest.pages.insert(part.into(), json!(true));
    }
    // while the page with the password comes, there is no page
    guest.fails_once.set(Some("type='password'"));
    log_in(&guest).unwrap();
    assert_eq!(guest.log(), ["tabs ", "open tab https://drive.google.com/drive/my-drive", "pause 0.5"]);
    let scripts = guest.scripts.borrow();
    let wanted = [
        ("set.call(one, \"somebody@example.org\")", "input[type='email']"),
        ("one.click()", "#identifierNext > div > button"),
        ("set.call(one, \"a \\\"secret\\\"\")", "input[type='password']"),
        ("set.call(one, \"a \\\"secret\\\"\")", "input[type='password']"),
        ("one.click()", "#passwordNext > div > button"),
        ("location.hostname === 'drive.google.com'", ""),
    ];
    assert_eq!(scripts.len(), wanted.len(), "{scripts:?}");
    for (script, (action, selector)) in scripts.iter().zip(wanted) {
        assert!(script.contains(action) && script.contains(selector), "{script}");
    }
}

#[test]
fn a_login_page_that_asks_for_more_is_an_error() {
    let mut guest = FakeGuest::default();
    for part in ["type='email'", "#identifierNext"] {
        guest.pages.insert(part.into(), json!(true));
    }
    let place = json!(["accounts.google.com/v3/signin/challenge/ipp", "Verify it's you"]);
    guest.pages.insert("document.title".into(), place);
    let error = log_in(&guest).unwrap_err();
    assert!(matches!(error, SetupError::Failed { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "set-up step 0 (login): the login at Google: no field for the password within 20 s at \
         accounts.google.com/v3/signin/challenge/ipp (\"Verify it's you\"); expected an account that asks for nothing but \
         its password, and whose password is right"
    );
}

/// The page may be gone before the browser answers; a second click would be one on another page.
#[test]
fn a_click_that_leaves_the_page_is_not_repeated() {
    let mut guest = FakeGuest::default();
    for part in FILLED_IN {
        guest.pages.insert(part.into(), json!(true));
    }
    guest.fails_once.set(Some("#passwordNext"));
    log_in(&guest).unwrap();
    let clicks = guest.scripts.borrow().iter().filter(|script| script.contains("#passwordNext")).count();
    assert_eq!(clicks, 1);
}

#[test]
fn a_wrong_password_is_named_as_a_cause() {
    let mut guest = FakeGuest::default();
    for part in &FILLED_IN[..4] {
        guest.pages.insert((*part).into(), json!(true));
    }
    guest
        .pages
        .insert("document.title".into(), json!(["accounts.google.com/v3/signin/challenge/pwd", "Sign in"]));
    let error = log_in(&guest).unwrap_err().to_string();
    assert!(
        error.contains("no page after the login within 20 s at accounts.google.com/v3/signin"),
        "{error}"
    );
    assert!(error.ends_with("whose password is right"), "{error}");
}

/// Without the account an agent could only fail, so that the ARPO era does not go on, either.
#[test]
fn a_browser_that_refuses_the_page_ends_the_set_up() {
    let guest = FakeGuest { refuses: vec!["open tab"], ..FakeGuest::default() };
    let error = log_in(&guest).unwrap_err();
    assert!(matches!(error, SetupError::Failed { .. }), "{error:?}");
    let guest = FakeGuest { dead: true, ..FakeGuest::default() };
    let error = log_in(&guest).unwrap_err();
    assert!(matches!(error, SetupError::Lost { .. }), "{error:?}");
}

fn task() -> SuiteTask {
    let task = json!({
        "id": "t", "instruction": "do",
        "config": [
            {"type": "googledrive", "parameters": {"settings_file": SETTINGS, "operation": ["upload"],
                "args": [{"url": "https://a.org/x", "path": ["a", "x.pdf"]}]}},
            {"type": "login", "parameters": {"settings_file": LOGIN, "platform": "googledrive"}}
        ],
        "evaluator": {"func": "compare_pdfs", "result": {"type": "googledrive_file", "path": ["x.pdf"], "dest": "x.pdf"},
            "expected": {"type": "cloud_file", "path": "https://a.org/y", "dest": "y.pdf"}}
    });
    SuiteTask::parse("multi_apps", task.to_string()).unwrap()
}

#[test]
fn with_credentials_a_task_is_judged_and_without_they_are_named() {
    let folder = tempfile::tempdir().unwrap();
    write_settings(folder.path(), GOOD, "https://a.org/token");
    let with = coverage::of_tasks(&[task()], &Accounts::new(folder.path()));
    assert_eq!((with.covered, with.missing.len()), (1, 0), "{with}");
    let needs = needs::of(&task(), &Accounts::new(folder.path()));
    assert_eq!((needs.need, needs.why.as_str()), (Need::Internet, "it uses Google Drive"));
    assert_eq!(needs.files, 2, "what is uploaded and what it is compared with");
    assert_eq!(fetch::needed(&task().task)[0].name, "x.pdf");

    let nowhere = Accounts::beside(Path::new("/nowhere/examples"));
    let login = "/nowhere/settings/google/settings.json: no such file: expected an object with `email` and `password` of a \
                 Google account";
    let drive = "/nowhere/settings/googledrive/settings.yml: no such file: expected settings of PyDrive with \
                 `save_credentials_file`";
    let without = needs::of(&task(), &nowhere);
    assert_eq!((without.need, without.why), (Need::Credentials, format!("{login}; {drive}")));
    let lacking = coverage::of_tasks(&[task()], &nowhere);
    let files = ["google/settings.json", "googledrive/settings.yml"];
    let counted = files.map(|file| (format!("credentials /nowhere/settings/{file}"), 1));
    assert_eq!(lacking.missing, BTreeMap::from(counted));
    let printed = lacking.to_string();
    assert!(printed.contains("needs credentials: 1\n  multi_apps/t (2 files): /nowhere"), "{printed}");
    let error = coverage::runnable(vec![task()], &nowhere).unwrap_err().to_string();
    assert_eq!(
        error,
        format!("task multi_apps/t needs what is missing here: credentials {login}, credentials {drive}")
    );
}

#[test]
fn what_is_wrong_with_a_settings_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let accounts = Accounts::new(folder.path());
    let task = task().task;
    for (name, content, problem) in [
        (
            "google/settings.json",
            "{\"email\": \"a\", \"password\": 5}",
            "`password` is missing or not a text",
        ),
        ("google/settings.json", "{", "not JSON"),
        ("googledrive/settings.yml", "save_credentials: False\n", "`save_credentials_file` is missing"),
        ("googledrive/settings.yml", "- a\n", "expected settings of PyDrive"),
        ("googledrive/settings.yml", "a: [", "not YAML"),
        (
            "googledrive/credentials.json",
            "{\"client_id\": \"a\"}",
            "`client_secret` is missing or not a text",
        ),
        ("googledrive/credentials.json", "{\"invalid\": true}", "PyDrive found them invalid"),
    ] {
        write_settings(folder.path(), GOOD, "https://a.org/token");
        assert!(accounts.problems(&task).is_empty());
        fs::write(folder.path().join(name), content).unwrap();
        let found: Vec<String> = accounts.problems(&task).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 1, "{content}: {found:?}");
        assert!(found[0].contains(name) && found[0].contains(problem), "{content}: {found:?}");
    }
    // a file that is not of OSWorld's folder lies beside the settings that name it
    write_settings(folder.path(), GOOD, "https://a.org/token");
    fs::write(folder.path().join("googledrive/settings.yml"), "save_credentials_file: mine.json\n").unwrap();
    let tokens = folder.path().join("googledrive/credentials.json");
    fs::rename(tokens, folder.path().join("googledrive/mine.json")).unwrap();
    assert!(accounts.problems(&task).is_empty());
}
