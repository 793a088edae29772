//! What a Google that is busy, or refuses, makes of requests, set-ups and scores.

use crate::fake_google::{FakeGoogle, Fault, PASSING, file};
use crate::fake_guest::FakeGuest;
use crate::google_drive::{content, get, prepare};
use arpo_osworld::error::{GetterError, SetupError};
use arpo_osworld::google::GoogleError;
use arpo_osworld::state::State;
use serde_json::{Value, json};

const FILES: &str = "mimeType != 'application/vnd.google-apps.folder'";
const NOTES: &str = "( title = 'notes' and trashed = false ) and 'root' in parents";

const TOKEN: &str = "POST /token";
const FIND: &str = "GET /drive/v2/files?q=";
const READ: &str = "GET /drive/v2/files/f?alt=media";
const REMOVE: &str = "DELETE /drive/v2/files/one";
const MAKE_FOLDER: &str = "POST /drive/v2/files ";
const OPEN_UPLOAD: &str = "POST /upload/drive/v2/files";
const UPLOAD: &str = "PUT /session";

/// A Drive that fails, after a set-up that removes a file, makes a folder and uploads a file.
fn set_up(beginning: &'static str, fault: Fault, times: usize) -> (FakeGoogle, Result<(), SetupError>) {
    let google = FakeGoogle::failing(&[(FILES, vec![file("one", None)])], beginning, fault, times);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), "a text").unwrap();
    let url = format!("file://{}/a", folder.path().display());
    let steps = json!([["googledrive", {
        "operation": ["delete", "mkdirs", "upload"],
        "args": [{}, {"path": "new"}, {"url": url, "path": ["a.txt"]}]
    }]]);
    let prepared = prepare(&FakeGuest::default(), google.accounts(), &steps).map(drop);
    (google, prepared)
}

fn notes() -> Value {
    json!({"path": ["notes"], "dest": "notes"})
}

fn failing_notes(beginning: &'static str, fault: Fault, times: usize) -> FakeGoogle {
    FakeGoogle::failing(&[(NOTES, vec![file("f", None)])], beginning, fault, times)
}

#[test]
fn requests_that_make_no_file_are_tried_three_times() {
    for fault in PASSING {
        for request in [TOKEN, FIND, REMOVE, OPEN_UPLOAD] {
            let (plain, _) = set_up(request, fault, 0);
            let (google, prepared) = set_up(request, fault, 2);
            prepared.unwrap();
            assert_eq!(google.count(request), plain.count(request) + 2, "{request} {fault:?}");
            assert_eq!(google.count(UPLOAD), 1);
            let (google, prepared) = set_up(request, fault, usize::MAX);
            assert!(matches!(prepared, Err(SetupError::Lost { .. })), "{request} {fault:?}: {prepared:?}");
            assert_eq!(google.count(request), 3, "{request} {fault:?}");
        }
        let google = failing_notes(READ, fault, 2);
        assert_eq!(get(google.accounts(), notes()), (Ok(content("notes")), vec![]));
        assert_eq!(google.count(READ), 3, "{fault:?}");
    }
}

/// A file that is made twice is there twice.
#[test]
fn requests_that_make_a_file_are_sent_once() {
    for fault in PASSING {
        for request in [MAKE_FOLDER, UPLOAD] {
            let (google, prepared) = set_up(request, fault, 1);
            assert!(matches!(prepared, Err(SetupError::Lost { .. })), "{request} {fault:?}: {prepared:?}");
            assert_eq!(google.count(request), 1, "{request} {fault:?}");
        }
    }
}

#[test]
fn a_refusal_that_patience_does_not_change_is_an_error_of_the_task() {
    for request in [TOKEN, FIND, REMOVE, MAKE_FOLDER, OPEN_UPLOAD, UPLOAD] {
        let (google, prepared) = set_up(request, Fault::Status(403), usize::MAX);
        let error = prepared.unwrap_err();
        assert!(matches!(error, SetupError::Failed { .. }), "{request}: {error:?}");
        // the credentials are as good as before
        assert!(error.to_string().ends_with("status 403: of this test"), "{error}");
        assert_eq!(google.count(request), 1, "{request}");
    }
}

/// What an agent cannot cause is no score of 0.
#[test]
fn only_a_file_that_cannot_be_read_is_none() {
    for fault in PASSING {
        for request in [TOKEN, FIND, READ] {
            let google = failing_notes(request, fault, usize::MAX);
            let (state, noted) = get(google.accounts(), notes());
            assert!(state.is_err() && noted.is_empty(), "{request} {fault:?}: {state:?}");
        }
    }
    for status in [403, 404] {
        let google = failing_notes(FIND, Fault::Status(status), usize::MAX);
        let refused =
            GoogleError::Refused { call: format!("find {NOTES}"), status, problem: "of this test".into() };
        assert_eq!(get(google.accounts(), notes()), (Err(GetterError::Google(refused)), vec![]));
        let google = failing_notes(READ, Fault::Status(status), usize::MAX);
        let note = format!("Google Drive: read f: status {status}: of this test");
        assert_eq!(get(google.accounts(), notes()), (Ok(State::Null), vec![note]));
    }
}
