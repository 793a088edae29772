//! The client of a guest, against a server of this test on this host.

use arpo_osworld::error::GuestError;
use arpo_osworld::guest::http::{HttpGuest, Patience, Ports};
use arpo_osworld::guest::{Command, Guest};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Answers each request with the first of the answers whose path it has, and keeps the requests.
fn serve(answers: &'static [(&'static str, u16, &'static str)]) -> (HttpGuest, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = seen.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            let mut buffer = [0; 4096];
            loop {
                let count = stream.read(&mut buffer).unwrap();
                request.extend_from_slice(&buffer[..count]);
                let text = String::from_utf8_lossy(&request).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let length = head
                    .to_lowercase()
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
                if count == 0 || body.len() >= length.unwrap_or(0) {
                    break;
                }
            }
            let text = String::from_utf8_lossy(&request).into_owned();
            let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
            kept.lock().unwrap().push(text);
            let answer = answers.iter().find(|(known, ..)| *known == path);
            let (status, body) = answer.map_or((404, "none"), |(_, status, body)| (*status, *body));
            let _ = write!(
                stream,
                "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    let patience = Patience { tries: 1, interval: Duration::ZERO, ..Patience::default() };
    let guest = HttpGuest::new(
        "127.0.0.1",
        Ports { server: port, ..Ports::default() },
        patience,
        Some("secret".into()),
    );
    (guest, seen)
}

#[test]
fn calls_have_osworld_s_shapes() {
    let (guest, seen) = serve(&[
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
fn no_answer_is_an_error() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let patience = Patience { tries: 2, interval: Duration::ZERO, ..Patience::default() };
    let guest =
        HttpGuest::new("127.0.0.1", Ports { server: port, chromium: port, vlc: port }, patience, None);
    assert!(matches!(guest.read_file("/a"), Err(GuestError::Unreachable { .. })));
    assert!(guest.browser().tabs().is_err());
    assert!(guest.vlc_status().is_err());
}
