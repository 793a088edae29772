//! The screen, the pointer, the keyboard and the windows, through the X server directly, without external tools.
//!
//! | to change | look in |
//! |---|---|
//! | how the screen is read | [`capture`] |
//! | how pixels become an image with the pointer | [`pixels`] |
//! | how effects become X events | [`input`] |
//! | how text is copied | [`clipboard`] |
//! | where a character is on the keyboard | [`keyboard`] |
//! | what pyautogui calls keys | [`keysyms`] |
//! | listing and activating windows | [`windows`] |

pub mod capture;
pub mod clipboard;
pub mod input;
pub mod keyboard;
pub mod keysyms;
pub mod pixels;
pub mod windows;

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use x11rb::connection::Connection as _;
use x11rb::errors::{ConnectionError, ReplyError, ReplyOrIdError};
use x11rb::protocol::xproto::{ConnectionExt as _, Screen};
use x11rb::rust_connection::RustConnection;

/// A failure of the X server.
#[derive(Debug, thiserror::Error)]
pub enum XError {
    /// There is no server, or it refuses the connection.
    #[error("the display {display} cannot be opened: {problem}")]
    Unopened {
        /// Its name.
        display: String,
        /// What went wrong.
        problem: String,
    },
    /// It returned an error, or went away.
    #[error("the X server: {0}")]
    Failed(String),
}

impl XError {
    fn failed(problem: &dyn Display) -> Self {
        Self::Failed(problem.to_string())
    }
}

impl From<ConnectionError> for XError {
    fn from(error: ConnectionError) -> Self {
        Self::failed(&error)
    }
}

impl From<ReplyError> for XError {
    fn from(error: ReplyError) -> Self {
        Self::failed(&error)
    }
}

impl From<ReplyOrIdError> for XError {
    fn from(error: ReplyOrIdError) -> Self {
        Self::failed(&error)
    }
}

/// A connection to a display. Each component has its own, so that slow typing does not delay a screenshot.
#[derive(Debug)]
pub struct Connection {
    x: RustConnection,
    screen: usize,
}

impl Connection {
    /// Connects.
    pub fn open(display: &str) -> Result<Self, XError> {
        let (x, screen) = RustConnection::connect(Some(display))
            .map_err(|error| XError::Unopened { display: display.to_owned(), problem: error.to_string() })?;
        Ok(Self { x, screen })
    }

    fn screen(&self) -> &Screen {
        &self.x.setup().roots[self.screen]
    }

    fn root(&self) -> u32 {
        self.screen().root
    }

    /// How wide and high the screen is now; it may have been resized since the connection was made.
    pub fn size(&self) -> Result<(u16, u16), XError> {
        let geometry = self.x.get_geometry(self.root())?.reply()?;
        Ok((geometry.width, geometry.height))
    }

    /// Where the pointer is.
    pub fn pointer(&self) -> Result<(i16, i16), XError> {
        let pointer = self.x.query_pointer(self.root())?.reply()?;
        Ok((pointer.root_x, pointer.root_y))
    }

    /// Waits until the server has handled everything sent so far.
    fn sync(&self) -> Result<(), XError> {
        self.x.get_input_focus()?.reply()?;
        Ok(())
    }
}

/// A component with a connection: opened on first use, and again after a failure, since a session may restart its X
/// server.
pub struct LazyConnection<T> {
    display: String,
    open: fn(&str) -> Result<T, XError>,
    opened: Mutex<Option<T>>,
}

impl<T> LazyConnection<T> {
    /// Nothing is opened yet.
    pub fn new(display: &str, open: fn(&str) -> Result<T, XError>) -> Self {
        Self { display: display.to_owned(), open, opened: Mutex::new(None) }
    }

    /// Works with it, one caller at a time.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> Result<R, XError>) -> Result<R, XError> {
        // after a panic the state may be inconsistent: reconnect
        let mut connection = self.opened.lock().unwrap_or_else(|poisoned| {
            let mut connection = PoisonError::into_inner(poisoned);
            *connection = None;
            connection
        });
        let opened = match connection.take() {
            Some(opened) => opened,
            None => (self.open)(&self.display)?,
        };
        let done = work(connection.insert(opened));
        if done.is_err() {
            *connection = None;
        }
        done
    }
}
