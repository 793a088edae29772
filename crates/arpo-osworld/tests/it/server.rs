//! A web server of this test on this host.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A response.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The header `Location`.
    pub(crate) location: Option<String>,
    pub(crate) body: Vec<u8>,
    /// Nothing of it is sent: the connection ends.
    pub(crate) is_dropped: bool,
}

impl Answer {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, location: None, body: body.into(), is_dropped: false }
    }

    /// A connection that ends without a response.
    pub(crate) fn none() -> Self {
        Self { is_dropped: true, ..Self::new(0, "") }
    }
}

/// Answers each request with the first response of its path, and keeps the requests.
pub(crate) fn serve(responses: Vec<(&'static str, u16, Vec<u8>)>) -> (u16, Arc<Mutex<Vec<String>>>) {
    serve_by(move |request| {
        let path = request.split(' ').nth(1).unwrap_or_default();
        let response = responses.iter().find(|(known, ..)| *known == path);
        response
            .map_or_else(|| Answer::new(404, "none"), |(_, status, body)| Answer::new(*status, body.clone()))
    })
}

/// Answers each request with what a function says, and keeps the requests.
pub(crate) fn serve_by(respond: impl Fn(&str) -> Answer + Send + 'static) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = seen.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let request = read(&mut stream);
            kept.lock().unwrap().push(request.clone());
            let Answer { status, location, body, is_dropped } = respond(&request);
            if is_dropped {
                continue;
            }
            let location = location.map(|place| format!("Location: {place}\r\n")).unwrap_or_default();
            let head = format!(
                "HTTP/1.1 {status} X\r\n{location}Content-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
        }
    });
    (port, seen)
}

fn read(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).unwrap();
        request.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&request).into_owned();
        if count == 0 {
            return text;
        }
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head
            .to_lowercase()
            .lines()
            .find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        if body.len() >= length.unwrap_or(0) {
            return text;
        }
    }
}
