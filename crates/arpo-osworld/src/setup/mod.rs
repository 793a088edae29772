//! The steps that prepare a desktop, before an episode and before its evaluation.

mod google;
mod run;

pub use google::DriveOperation;
pub use run::{Preparation, Prepared, run};

use crate::guest::{Command, Window};
use crate::task::Step;
use serde_json::{Map, Value};
use std::time::Duration;

/// A parsed step.
#[derive(Debug, Clone, PartialEq)]
pub enum SetupStep {
    /// Files of the internet put into the guest: address and path of each.
    Download(Vec<(String, String)>),
    /// Files of this host put into the guest: local path and path of each.
    UploadFile(Vec<(String, String)>),
    /// A program started.
    Launch(Command),
    /// A command run to its end.
    Execute {
        /// The command.
        command: Command,
        /// Where its output is stored in the task's folder.
        stdout: Option<String>,
        /// Where its errors are.
        stderr: Option<String>,
        /// Repeated until one of these conditions holds.
        until: Until,
    },
    /// A file opened with its application.
    Open(String),
    /// A window brought to the front.
    ActivateWindow(Window),
    /// A window closed.
    CloseWindow(Window),
    /// A pause.
    Sleep(Duration),
    /// A wallpaper set.
    ChangeWallpaper(String),
    /// Addresses opened in the browser.
    ChromeOpenTabs(Vec<String>),
    /// Addresses closed there.
    ChromeCloseTabs(Vec<String>),
    /// Visits put into the browser's history: address, title, how long ago.
    UpdateBrowseHistory(Vec<(String, String, Duration)>),
    /// The user's Google Drive changed.
    GoogleDrive {
        /// The file that names its account.
        settings: String,
        /// What is changed, in order.
        operations: Vec<DriveOperation>,
    },
    /// The browser logged in at Google, with the account of this settings file.
    Login(String),
}

/// When a repeated command may stop; without conditions, at once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Until {
    /// Its exit status.
    pub returncode: Option<i64>,
    /// A part of its output.
    pub stdout: Option<String>,
    /// A part of its errors.
    pub stderr: Option<String>,
}

/// The types of steps.
pub const STEPS: &[&str] = &[
    "activate_window",
    "change_wallpaper",
    "chrome_close_tabs",
    "chrome_open_tabs",
    "close_window",
    "command",
    "download",
    "execute",
    "googledrive",
    "launch",
    "login",
    "open",
    "sleep",
    "update_browse_history",
    "upload_file",
];

impl SetupStep {
    /// Reads a step.
    pub fn parse(step: &Step) -> Result<Self, String> {
        let fields = &step.parameters;
        let step = match step.kind.as_str() {
            "download" => Self::Download(pairs(fields, "files", "url")?),
            "upload_file" => Self::UploadFile(pairs(fields, "files", "local_path")?),
            "launch" => Self::Launch(words_of(Command::parse(fields)?)),
            "execute" | "command" => {
                let name = |key: &str| optional_text(fields, key);
                let until = fields.get("until").and_then(Value::as_object);
                Self::Execute {
                    command: Command::parse(fields)?,
                    stdout: name("stdout")?,
                    stderr: name("stderr")?,
                    until: until_of(until)?,
                }
            }
            "open" => Self::Open(text(fields, "path")?),
            "activate_window" => Self::ActivateWindow(window(fields)?),
            "close_window" => Self::CloseWindow(window(fields)?),
            "sleep" => {
                let seconds = fields
                    .get("seconds")
                    .and_then(Value::as_f64)
                    .filter(|seconds| (0.0..86_400.0).contains(seconds));
                Self::Sleep(Duration::from_secs_f64(seconds.ok_or("seconds is missing or not a time")?))
            }
            "change_wallpaper" => Self::ChangeWallpaper(text(fields, "path")?),
            "chrome_open_tabs" => Self::ChromeOpenTabs(texts(fields, "urls_to_open")?),
            "chrome_close_tabs" => Self::ChromeCloseTabs(texts(fields, "urls_to_close")?),
            "update_browse_history" => Self::UpdateBrowseHistory(visits(fields)?),
            "googledrive" => {
                let (settings, operations) = google::parse_drive(fields)?;
                Self::GoogleDrive { settings, operations }
            }
            "login" => Self::Login(google::parse_login(fields)?),
            other => return Err(format!("no set-up step is called {other:?}")),
        };
        Ok(step)
    }
}

/// A command line without a shell is split at whitespace.
fn words_of(command: Command) -> Command {
    match &command.line {
        crate::guest::CommandLine::Text(text) if !command.shell => {
            Command::words(&text.split_whitespace().collect::<Vec<_>>())
        }
        _ => command,
    }
}

fn text(fields: &Map<String, Value>, name: &str) -> Result<String, String> {
    match fields.get(name) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        Some(other) => Err(format!("{name} is {other}, text is wanted")),
        None => Err(format!("{name} is missing")),
    }
}

fn optional_text(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok((!text.is_empty()).then(|| text.clone())),
        Some(other) => Err(format!("{name} is {other}, text is wanted")),
    }
}

fn list<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<&'a [Value], String> {
    fields
        .get(name)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .ok_or_else(|| format!("{name} is missing or not a list"))
}

fn texts(fields: &Map<String, Value>, name: &str) -> Result<Vec<String>, String> {
    let one = |item: &Value| item.as_str().map(str::to_owned).ok_or_else(|| format!("{name} holds {item}"));
    list(fields, name)?.iter().map(one).collect()
}

fn pairs(fields: &Map<String, Value>, name: &str, source: &str) -> Result<Vec<(String, String)>, String> {
    let entry = |item: &Value| {
        let item = item.as_object().ok_or_else(|| format!("{name} holds {item}"))?;
        Ok((text(item, source)?, text(item, "path")?))
    };
    list(fields, name)?.iter().map(entry).collect()
}

fn window(fields: &Map<String, Value>) -> Result<Window, String> {
    let flag = |name: &str| fields.get(name).is_some_and(crate::text::python::truthy);
    Ok(Window { name: text(fields, "window_name")?, strict: flag("strict"), by_class: flag("by_class") })
}

fn until_of(fields: Option<&Map<String, Value>>) -> Result<Until, String> {
    let Some(fields) = fields else { return Ok(Until::default()) };
    Ok(Until {
        returncode: fields.get("returncode").and_then(Value::as_i64),
        stdout: optional_text(fields, "stdout")?,
        stderr: optional_text(fields, "stderr")?,
    })
}

fn visits(fields: &Map<String, Value>) -> Result<Vec<(String, String, Duration)>, String> {
    let visit = |item: &Value| {
        let item = item.as_object().ok_or_else(|| format!("history holds {item}"))?;
        let ago = item
            .get("visit_time_from_now_in_seconds")
            .and_then(Value::as_f64)
            .filter(|ago| (0.0..1e9).contains(ago));
        Ok((
            text(item, "url")?,
            text(item, "title")?,
            Duration::from_secs_f64(ago.ok_or("a visit without its time")?),
        ))
    };
    list(fields, "history")?.iter().map(visit).collect()
}
