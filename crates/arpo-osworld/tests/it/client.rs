//! The client of a guest, against a server of this test on this host.

use crate::server::serve;
use arpo_osworld::error::GuestError;
use arpo_osworld::guest::http::{HttpGuest, Ports, RetryPolicy};
use arpo_osworld::guest::{Command, Guest};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

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

#[test]
fn a_file_beyond_the_limit_is_not_read() {
    let (mut guest, _) = guest(&[("/file", 200, "12345"), ("/wallpaper", 200, "12345")]);
    guest.set_file_limit(5);
    assert_eq!(guest.read_file("/a").unwrap().unwrap(), b"12345");
    guest.set_file_limit(4);
    let error = guest.read_file("/home/user/a").unwrap_err();
    assert!(matches!(error, GuestError::TooLarge { limit_bytes: 4, .. }));
    let text = error.to_string();
    assert!(text.contains("/home/user/a") && text.contains("max_file_mib"), "{text}");
    assert!(matches!(guest.wallpaper(), Err(GuestError::TooLarge { limit_bytes: 4, .. })));
}

#[test]
fn a_silent_guest_is_given_up_when_somebody_knows_why() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let retry = RetryPolicy { tries: 3, interval: Duration::from_mins(1), ..RetryPolicy::default() };
    let ports = Ports { server: port, ..Ports::default() };
    let guest = HttpGuest::new("127.0.0.1", ports, retry, None).asking(|| Some("exit code 137".into()));
    let begun = Instant::now();
    let error = guest.read_file("/a").unwrap_err().to_string();
    assert!(error.contains("exit code 137"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10), "it was tried again");
}
