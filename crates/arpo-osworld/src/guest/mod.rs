//! A guest: a desktop with OSWorld's server in it, as set-up steps and getters use it.
//!
//! A refusal is `None` where OSWorld's controller would return `None`; a guest that does not respond at all is an
//! error, so that a dead desktop is never mistaken for a wrong result.

pub mod cdp;
pub mod http;
mod screen;

use crate::error::GuestError;
use serde_json::{Value, json};
use std::time::Duration;

/// A command line as task files give it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// One text, or words.
    pub line: CommandLine,
    /// Whether a shell reads it.
    pub shell: bool,
}

/// One text, or words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandLine {
    /// As typed.
    Text(String),
    /// Word by word.
    Words(Vec<String>),
}

impl Command {
    /// A command of words, without a shell.
    pub fn words(words: &[&str]) -> Self {
        Self { line: CommandLine::Words(words.iter().map(|word| (*word).to_owned()).collect()), shell: false }
    }

    /// The command of a task file's `command` and `shell`.
    pub fn parse(fields: &serde_json::Map<String, Value>) -> Result<Self, String> {
        let shell = fields.get("shell").is_some_and(crate::text::python::truthy);
        let line = match fields.get("command") {
            Some(Value::String(text)) if !text.is_empty() => CommandLine::Text(text.clone()),
            Some(Value::Array(words)) if !words.is_empty() => {
                let words = words.iter().map(|word| {
                    word.as_str().map(str::to_owned).ok_or_else(|| format!("command holds {word}"))
                });
                CommandLine::Words(words.collect::<Result<_, _>>()?)
            }
            Some(other) => return Err(format!("command is {other}")),
            None => return Err("command is missing".into()),
        };
        Ok(Self { line, shell })
    }

    /// The body the server reads.
    pub fn body(&self) -> Value {
        match &self.line {
            CommandLine::Text(text) => json!({"command": text, "shell": self.shell}),
            CommandLine::Words(words) => json!({"command": words, "shell": self.shell}),
        }
    }

    /// Applies a function to every text of it.
    #[must_use]
    pub fn map(&self, change: impl Fn(&str) -> String) -> Self {
        let line = match &self.line {
            CommandLine::Text(text) => CommandLine::Text(change(text)),
            CommandLine::Words(words) => CommandLine::Words(words.iter().map(|word| change(word)).collect()),
        };
        Self { line, shell: self.shell }
    }
}

/// What a command printed and how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Output {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Its exit status.
    pub returncode: i64,
}

/// Which window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Its title or class.
    pub name: String,
    /// The exact title or class.
    pub strict: bool,
    /// The class, not the title.
    pub by_class: bool,
}

/// A tab of the browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tab {
    /// The browser's name for it.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Its address.
    pub url: String,
}

/// The browser of a guest, through its debugging port.
pub trait Browser {
    /// The tabs that are open.
    fn tabs(&self) -> Result<Vec<Tab>, GuestError>;
    /// Opens an address in a new tab and waits for it to load, up to the browser's limit; a timeout is not an error.
    fn open(&self, url: &str) -> Result<Tab, GuestError>;
    /// Closes a tab.
    fn close(&self, id: &str) -> Result<(), GuestError>;
    /// The value of an expression in a tab.
    fn evaluate(&self, id: &str, expression: &str) -> Result<Value, GuestError>;
    /// A tab's page as a PDF.
    fn pdf(&self, id: &str) -> Result<Vec<u8>, GuestError>;
}

/// A text as a literal of an expression.
pub(crate) fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

/// A desktop that can be set up and inspected.
pub trait Guest {
    /// Runs a command and waits for it; none if the guest refused.
    fn run(&self, command: &Command) -> Result<Option<Output>, GuestError>;
    /// Starts a command.
    fn launch(&self, command: &Command) -> Result<(), GuestError>;
    /// A file's content; none if there is none. `~` and `$NAME` are the guest's.
    fn read_file(&self, path: &str) -> Result<Option<Vec<u8>>, GuestError>;
    /// Writes a file.
    fn write_file(&self, path: &str, content: &[u8]) -> Result<(), GuestError>;
    /// Opens a file with its application.
    fn open_file(&self, path: &str) -> Result<(), GuestError>;
    /// Brings a window to the front.
    fn activate_window(&self, window: &Window) -> Result<(), GuestError>;
    /// Closes a window.
    fn close_window(&self, window: &Window) -> Result<(), GuestError>;
    /// Sets the wallpaper.
    fn change_wallpaper(&self, path: &str) -> Result<(), GuestError>;
    /// The accessibility tree as XML.
    fn accessibility_tree(&self) -> Result<Option<String>, GuestError>;
    /// The text of the active terminal.
    fn terminal_output(&self) -> Result<Option<String>, GuestError>;
    /// `{"width", "height"}` of the screen.
    fn screen_size(&self) -> Result<Option<Value>, GuestError>;
    /// `{"width", "height"}` of a window by its class.
    fn window_size(&self, class: &str) -> Result<Option<Value>, GuestError>;
    /// The wallpaper's file.
    fn wallpaper(&self) -> Result<Option<Vec<u8>>, GuestError>;
    /// The folder of the desktop.
    fn desktop_path(&self) -> Result<Option<String>, GuestError>;
    /// A folder's tree.
    fn list_directory(&self, path: &str) -> Result<Option<Value>, GuestError>;
    /// VLC's status as XML, from its web interface.
    fn vlc_status(&self) -> Result<Option<Vec<u8>>, GuestError>;
    /// Its browser.
    fn browser(&self) -> &dyn Browser;
    /// Waits.
    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}
