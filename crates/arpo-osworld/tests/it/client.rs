//! The client of a guest, against a server of this test on this host.

use crate::server::serve;
use arpo_osworld::error::GuestError;
use arpo_osworld::guest::http::{HttpGuest, Ports, RetryPolicy};
use arpo_osworld::guest::{Command, Guest};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn guest(responses: &[(&'static str, u16, &str)]) -> (HttpGuest, Arc<Mutex<Vec<String>>>) {
    let responses = responses.iter().map(|(path, status, body)| (*path, *status, body.as_bytes().to_vec()));
    let (port, seen) = serve(responses.collect());
    let retry = RetryPolicy { tries: 1, interval: Duration::ZERO, ..RetryPolicy::default() };
    let ports = Ports { server: port, ..Ports::default() };
    (HttpGuest::new("127.0.0.1", ports, retry, Some("secret".into())), seen)
}

#[test]
fn calls_have_osworld_s_shapes() {
    let (guest, seen) = guest(&[
        ("/execute", 200, r#"{"status": "success", "output": "hi\n", "error": "", "returncode": 0}"#),
        ("/file", 200, "content"),
        ("/accessibility", 200, r#"{"AT": "<a/>"}"#),
        ("/setup/upload", 200, "File Uploaded"),
        ("/setup/open_file", 404, "File not found"),
    ]);
    assert_eq!(guest.run(&Command::words(&["echo", "hi"])).unwrap().unwrap().stdout, "hi\n");
    assert_eq!(guest.read_file("~/a b").unwrap().unwrap(), b"content");
    assert_eq!(guest.accessibility_tree().unwrap().unwrap(), "<a/>");
    guest.write_file("/home/user/x", b"12").unwrap();
    assert!(matches!(guest.open_file("/none"), Err(GuestError::Refused { status: 404, .. })));
    assert_eq!(guest.terminal_output().unwrap(), None);
    let requests = seen.lock().unwrap();
    assert!(requests[0].contains(r#"{"command":["echo","hi"],"shell":false}"#));
    assert!(requests[0].to_lowercase().contains("authorization: bearer secret"));
    assert!(
        requests[1].contains("file_path=%7E%2Fa+b")
            || requests[1].contains("file_path=~%2Fa+b")
            || requests[1].contains("file_path=~%2Fa%20b"),
        "{}",
        requests[1]
    );
    assert!(requests[3].contains("name=\"file_data\""));
}

#[test]
fn no_response_is_an_error() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let retry = RetryPolicy { tries: 2, interval: Duration::ZERO, ..RetryPolicy::default() };
    let guest = HttpGuest::new("127.0.0.1", Ports { server: port, chromium: port, vlc: port }, retry, None);
    assert!(matches!(guest.read_file("/a"), Err(GuestError::Unreachable { .. })));
    assert!(guest.browser().tabs().is_err());
    assert!(guest.vlc_status().is_err());
}
