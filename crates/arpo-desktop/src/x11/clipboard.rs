//! The clipboard: a program that owns it must live as long as its text, so xclip keeps it, as pyperclip lets it do.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Time for xclip to take the text and go to the background.
const LIMIT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);

/// Puts a text into the clipboard of a display.
pub fn copy(display: &str, text: &str, deadline: Instant) -> Result<(), String> {
    let failed = |problem: &dyn std::fmt::Display| format!("pyperclip.copy: xclip: {problem}");
    let mut command = Command::new("xclip");
    command.args(["-selection", "clipboard", "-in"]).env("DISPLAY", display);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = piped.spawn().map_err(|error| failed(&error))?;
    // A pipe holds 64 KiB: to write more waits for xclip, which may never read. Killing xclip ends the thread.
    let (input, text) = (child.stdin.take(), text.to_owned());
    let (sender, written) = mpsc::channel();
    thread::spawn(move || {
        // nobody listens after the deadline
        let _ = sender.send(input.map_or(Ok(()), |mut input| input.write_all(text.as_bytes())));
    });
    let deadline = deadline.min(Instant::now() + LIMIT);
    loop {
        match child.try_wait().map_err(|error| failed(&error))? {
            Some(status) if status.success() => {
                let left = deadline.saturating_duration_since(Instant::now());
                let written = written.recv_timeout(left).map_err(|error| failed(&error))?;
                return written.map_err(|error| failed(&error));
            }
            Some(status) => return Err(failed(&status)),
            None if Instant::now() < deadline => thread::sleep(POLL),
            None => {
                // whether it could be killed does not change the outcome
                let _ = child.kill().and_then(|()| child.wait());
                return Err(failed(&"no answer"));
            }
        }
    }
}
