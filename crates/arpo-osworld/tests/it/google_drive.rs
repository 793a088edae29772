//! The user's Google Drive, before an episode and at its end.

use crate::fake_google::{FakeGoogle, GOOD, SETTINGS, file};
use crate::fake_guest::FakeGuest;
use crate::setup::prepare_with;
use arpo_core::generation::Generation;
use arpo_osworld::download::{Cache, Sources};
use arpo_osworld::error::{GetterError, SetupError};
use arpo_osworld::getters::{self, Context};
use arpo_osworld::google::Accounts;
use arpo_osworld::setup::Prepared;
use arpo_osworld::state::{FileState, State};
use arpo_osworld::task::Getter;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::fs;
use std::time::{Duration, Instant};

const TOKEN: &str =
    "POST /token grant_type=refresh_token&client_id=program&client_secret=its+secret&refresh_token=";

pub(crate) fn prepare(guest: &FakeGuest, accounts: &Accounts, steps: &Value) -> Result<Prepared, SetupError> {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path(), Sources { offline: true, ..Sources::default() }).unwrap();
    prepare_with(&cache, guest, accounts, Generation::ArpoEra, steps, Duration::from_mins(1))
}

/// The state of a `googledrive_file`, and what was noted.
pub(crate) fn get(accounts: &Accounts, fields: Value) -> (Result<State, GetterError>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path(), Sources { offline: true, ..Sources::default() }).unwrap();
    let context = Context {
        guest: &FakeGuest::default(),
        cache: &cache,
        accounts,
        task: "t",
        generation: Generation::ArpoEra,
        now: "2025-05-15T12:00:00[UTC]".parse().unwrap(),
        deadline: Instant::now() + Duration::from_mins(1),
        notes: RefCell::default(),
    };
    let Value::Object(fields) = fields else { panic!("fields are an object") };
    let state = getters::get(&context, &Getter { kind: "googledrive_file".into(), fields });
    (state, context.notes.into_inner())
}

pub(crate) fn content(name: &str) -> State {
    State::File(FileState::new(name, *b"the content"))
}

#[test]
fn a_drive_is_prepared() {
    let files = "( title = 'a' or title = 'b' ) and mimeType != 'application/vnd.google-apps.folder'";
    let folders = "( title = 'a' or title = 'b' ) and mimeType = 'application/vnd.google-apps.folder'";
    let outer = "'root' in parents and title = 'outer' and mimeType = 'application/vnd.google-apps.folder' and trashed = false";
    let inner = "'outer' in parents and title = 'in \"n\\\\er' and mimeType = 'application/vnd.google-apps.folder' and trashed = false";
    let three = vec![file("one", None), file("gone", None), file("three", None)];
    let google = FakeGoogle::new(
        GOOD,
        &[
            (files, three),
            (folders, vec![file("d", Some("folder"))]),
            (outer, vec![file("outer", Some("folder"))]),
        ],
    );
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("invoice"), "an invoice").unwrap();
    let url = format!("file://{}/invoice", folder.path().display());
    let steps = json!([["googledrive", {
        "settings_file": SETTINGS,
        "operation": ["delete", "mkdirs", "upload"],
        "args": [
            {"query": "title = 'a' or title = 'b'", "trash": false},
            {"path": ["outer", "in \"n\\er"]},
            {"url": url, "path": ["invoice.pdf"]}
        ]
    }]]);
    prepare(&FakeGuest::default(), google.accounts(), &steps).unwrap();
    let list = |query: &str| format!("GET /drive/v2/files?q={query}");
    let wanted = [
        format!("{TOKEN}{GOOD}"),
        list(files),
        // a second page
        list(files),
        list(folders),
        "DELETE /drive/v2/files/one".into(),
        "DELETE /drive/v2/files/gone".into(),
        "DELETE /drive/v2/files/three".into(),
        "DELETE /drive/v2/files/d".into(),
        list(outer),
        list(inner),
        "POST /drive/v2/files {\"title\":\"in \\\"n\\\\er\",\"parents\":[{\"id\":\"outer\"}],\"mimeType\":\"application/vnd.google-apps.folder\"}".into(),
        "POST /upload/drive/v2/files?uploadType=resumable {\"title\":\"invoice.pdf\",\"mimeType\":\"application/pdf\"}".into(),
        "PUT /session an invoice".into(),
    ];
    assert_eq!(google.calls(), wanted);
}

#[test]
fn files_go_into_the_trash_or_for_good() {
    let files = "mimeType != 'application/vnd.google-apps.folder'";
    let google = FakeGoogle::new(GOOD, &[(files, vec![file("one", None)])]);
    let delete =
        |trash: bool| json!([["googledrive", {"operation": ["delete"], "args": [{"trash": trash}]}]]);
    prepare(&FakeGuest::default(), google.accounts(), &delete(true)).unwrap();
    assert_eq!(google.calls().last().unwrap(), "POST /drive/v2/files/one/trash");
    let google = FakeGoogle::new(GOOD, &[(files, vec![file("locked", None)])]);
    let error = prepare(&FakeGuest::default(), google.accounts(), &delete(false)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "set-up step 0 (googledrive): Google Drive: remove locked: status 403: The user does not have sufficient permissions"
    );
}

#[test]
fn a_file_is_found_by_its_path_or_by_queries() {
    let meetings = "( title = 'meetings' and mimeType = 'application/vnd.google-apps.folder' and trashed = false ) and 'root' in parents";
    let agenda = "( title = 'Agenda \\'1\\'.pdf' and trashed = false ) and 'm' in parents";
    let google = FakeGoogle::new(
        GOOD,
        &[(meetings, vec![file("m", Some("folder"))]), (agenda, vec![file("f", None), file("other", None)])],
    );
    let path = json!({"settings_file": SETTINGS, "path": ["meetings", "Agenda '1'.pdf"], "dest": "a.pdf"});
    assert_eq!(get(google.accounts(), path), (Ok(content("a.pdf")), vec![]));
    let calls = google.calls();
    assert_eq!(calls[1..3], [meetings, agenda].map(|query| format!("GET /drive/v2/files?q={query}")));
    assert_eq!(calls[3], "GET /drive/v2/files/f?alt=media");
    // queries are taken as they are
    let google =
        FakeGoogle::new(GOOD, &[("( title contains 'a' ) and 'root' in parents", vec![file("f", None)])]);
    let query = json!({"query": ["title contains 'a'"], "dest": "b.pdf"});
    assert_eq!(get(google.accounts(), query), (Ok(content("b.pdf")), vec![]));
}

#[test]
fn what_is_not_there_is_none_with_a_note() {
    let one = "( title = 'one.pdf' and trashed = false ) and 'root' in parents";
    let document = "( title = 'report' and trashed = false ) and 'root' in parents";
    let large = "( title = 'large' and trashed = false ) and 'root' in parents";
    let google = FakeGoogle::new(
        GOOD,
        &[
            (one, vec![file("one", None)]),
            (document, vec![file("d", Some("document"))]),
            (large, vec![file("large", None)]),
        ],
    );
    let paths =
        json!({"path_list": [["one.pdf"], ["two.pdf"], ["a", "b"]], "dest": ["1.pdf", "2.pdf", "3.pdf"]});
    let (state, notes) = get(google.accounts(), paths);
    assert_eq!(state, Ok(State::Many(vec![content("1.pdf"), State::Null, State::Null])));
    assert_eq!(notes, ["Google Drive has no file two.pdf", "Google Drive has no file a/b"]);
    for (fields, note) in [
        (
            json!({"path": ["report"], "dest": "r.docx"}),
            "report in Google Drive is no file that can be read, but application/vnd.google-apps.document",
        ),
        (
            json!({"path": ["large"], "dest": "l"}),
            "Google Drive: read large: more than 64 MiB, the limit of a file that is judged",
        ),
        (
            json!({"query": ["wrong"], "dest": "w"}),
            "Google Drive: find ( wrong ) and 'root' in parents: status 400: Invalid query",
        ),
    ] {
        let (state, notes) = get(google.accounts(), fields);
        assert_eq!((state, notes), (Ok(State::Null), vec![note.to_owned()]));
    }
}

#[test]
fn wrong_parameters_of_the_getter_are_named() {
    let accounts = Accounts::new("/nowhere");
    for (fields, problem) in [
        (json!({"dest": "a"}), "path, query, path_list or query_list is missing"),
        (json!({"path": ["a"]}), "dest is missing"),
        (json!({"path": [5], "dest": "a"}), "[5] is not a list of texts"),
        (
            json!({"path_list": [["a"]], "dest": ["a", "b"]}),
            "path_list and dest are not lists of the same length",
        ),
    ] {
        let error = get(&accounts, fields).0.unwrap_err().to_string();
        assert_eq!(error, format!("getter googledrive_file: {problem}"));
    }
}

/// Neither a score of 0 nor a secret in the message.
#[test]
fn credentials_that_have_expired_are_said_to_have() {
    let google = FakeGoogle::new("expired", &[]);
    let told = format!(
        "{}: Google does not accept these credentials: Token has been expired or revoked.; delete the file and log in once \
         more with PyDrive",
        google.folder().join("googledrive/credentials.json").display()
    );
    let steps = json!([["googledrive", {"operation": ["delete"], "args": [{}]}]]);
    let error = prepare(&FakeGuest::default(), google.accounts(), &steps).unwrap_err();
    assert!(matches!(error, SetupError::Failed { .. }), "{error:?}");
    assert_eq!(error.to_string(), format!("set-up step 0 (googledrive): {told}"));
    let (state, notes) = get(google.accounts(), json!({"path": ["a"], "dest": "a"}));
    assert_eq!((state.unwrap_err().to_string(), notes), (told, vec![]));
    assert_eq!(google.calls(), [format!("{TOKEN}expired"), format!("{TOKEN}expired")]);
}

#[test]
fn a_deadline_that_has_passed_ends_it() {
    let google = FakeGoogle::new(GOOD, &[]);
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path(), Sources::default()).unwrap();
    let steps = json!([["googledrive", {"operation": ["delete"], "args": [{}]}]]);
    let (guest, accounts) = (FakeGuest::default(), google.accounts());
    let late =
        prepare_with(&cache, &guest, accounts, Generation::Verified, &steps, Duration::ZERO).unwrap_err();
    assert!(matches!(late, SetupError::Lost { .. }), "{late:?}");
    assert!(late.to_string().ends_with("Google: a new access token: not done by the deadline"), "{late}");
    assert!(google.calls().is_empty());
}
