//! A display for one test, with a client on it that sees what arrives.

use std::io::{BufRead, BufReader, ErrorKind};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use x11rb::connection::Connection;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{ConnectionExt, CreateWindowAux, EventMask, InputFocus, WindowClass};
use x11rb::rust_connection::RustConnection;

/// An X server of its own, ended when dropped.
pub(crate) struct Display {
    server: Child,
    pub(crate) name: String,
}

pub(crate) const WIDTH: u16 = 640;
pub(crate) const HEIGHT: u16 = 480;

impl Display {
    /// Starts one on a free number; none, with a message, where there is no Xvfb.
    pub(crate) fn start() -> Option<Self> {
        let started = Command::new("Xvfb")
            .args(["-displayfd", "1", "-screen", "0", &format!("{WIDTH}x{HEIGHT}x24"), "-nolisten", "tcp"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut server = match started {
            Ok(server) => server,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                eprintln!("skipped: Xvfb is not installed");
                return None;
            }
            Err(error) => panic!("Xvfb: {error}"),
        };
        let mut number = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut number).unwrap();
        Some(Self { server, name: format!(":{}", number.trim()) })
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A full-screen window with the keyboard focus that records events.
pub(crate) struct Witness {
    pub(crate) x: RustConnection,
    pub(crate) root: u32,
    pub(crate) window: u32,
}

impl Witness {
    pub(crate) fn new(display: &Display) -> Self {
        let (x, screen) = RustConnection::connect(Some(&display.name)).unwrap();
        let root = x.setup().roots[screen].root;
        let window = x.generate_id().unwrap();
        let events = EventMask::KEY_PRESS
            | EventMask::KEY_RELEASE
            | EventMask::BUTTON_PRESS
            | EventMask::BUTTON_RELEASE
            | EventMask::POINTER_MOTION
            | EventMask::EXPOSURE;
        let look = CreateWindowAux::new().event_mask(events).background_pixel(0x0012_3456);
        x.create_window(0, window, root, 0, 0, WIDTH, HEIGHT, 0, WindowClass::INPUT_OUTPUT, 0, &look)
            .unwrap();
        x.map_window(window).unwrap();
        let witness = Self { x, root, window };
        witness.wait("to be shown", |event| matches!(event, Event::Expose(_)).then_some(()));
        witness.x.set_input_focus(InputFocus::PARENT, window, x11rb::CURRENT_TIME).unwrap();
        witness.x.get_input_focus().unwrap().reply().unwrap();
        witness
    }

    /// Waits for something to arrive.
    pub(crate) fn wait<T>(&self, what: &str, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
        self.x.flush().unwrap();
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) {
            match self.x.poll_for_event().unwrap() {
                Some(event) => {
                    if let Some(found) = wanted(&event) {
                        return found;
                    }
                }
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        }
        panic!("timed out waiting {what}");
    }

    /// All that has arrived by now.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.x.get_input_focus().unwrap().reply().unwrap();
        std::iter::from_fn(|| self.x.poll_for_event().unwrap()).collect()
    }
}
