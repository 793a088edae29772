//! The steps of a Google account: what its Drive holds at the start, and the login in the desktop's browser.

use super::run::{Failure, Preparation};
use super::{list, optional_text, text};
use crate::google::{self, ADDRESS, DRIVE_SETTINGS, Drive, FOLDER, GoogleError};
use serde_json::{Map, Value};

/// One change of a Drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriveOperation {
    /// Removes what a query finds, or everything: for good, or into the trash.
    Delete {
        /// The query; empty for everything.
        query: String,
        /// Whether it can be restored.
        into_trash: bool,
    },
    /// Makes folders, each in the one before, as far as they are not there.
    MakeFolders(Vec<String>),
    /// Puts a file of the internet there; the last part of the path is its name.
    Upload {
        /// Where the file comes from.
        url: String,
        /// Where it goes.
        path: Vec<String>,
    },
}

/// The settings file of a `googledrive` step and its operations.
pub(super) fn parse_drive(fields: &Map<String, Value>) -> Result<(String, Vec<DriveOperation>), String> {
    let settings = optional_text(fields, "settings_file")?.unwrap_or_else(|| DRIVE_SETTINGS.into());
    let (names, arguments) = (list(fields, "operation")?, list(fields, "args")?);
    if names.len() != arguments.len() {
        return Err(format!("args has {} entries for {} operations", arguments.len(), names.len()));
    }
    let operations = names.iter().zip(arguments).map(|(name, arguments)| {
        let arguments = arguments.as_object().ok_or_else(|| format!("args holds {arguments}"))?;
        operation(name, arguments)
    });
    Ok((settings, operations.collect::<Result<_, _>>()?))
}

fn operation(name: &Value, arguments: &Map<String, Value>) -> Result<DriveOperation, String> {
    match name.as_str() {
        Some("delete") => Ok(DriveOperation::Delete {
            query: optional_text(arguments, "query")?.unwrap_or_default().trim().to_owned(),
            into_trash: arguments.get("trash").is_some_and(crate::text::python::truthy),
        }),
        Some("mkdirs") => Ok(DriveOperation::MakeFolders(path(arguments)?)),
        Some("upload") => Ok(DriveOperation::Upload { url: text(arguments, "url")?, path: path(arguments)? }),
        _ => Err(format!("operation holds {name}, \"delete\", \"mkdirs\" or \"upload\" is wanted")),
    }
}

/// One name, or several inside each other.
fn path(arguments: &Map<String, Value>) -> Result<Vec<String>, String> {
    if let Some(Value::String(name)) = arguments.get("path") {
        return Ok(vec![name.clone()]);
    }
    let names = super::texts(arguments, "path")?;
    if names.is_empty() { Err("path is empty".into()) } else { Ok(names) }
}

/// The settings file of a `login` step.
pub(super) fn parse_login(fields: &Map<String, Value>) -> Result<String, String> {
    let platform = text(fields, "platform")?;
    if platform != "googledrive" {
        return Err(format!("platform is {platform:?}, \"googledrive\" is wanted"));
    }
    text(fields, "settings_file")
}

impl From<GoogleError> for Failure {
    fn from(error: GoogleError) -> Self {
        match error {
            // a later episode may have better luck
            GoogleError::Late { .. } | GoogleError::Busy { .. } | GoogleError::Unreachable { .. } => {
                Self::Lost(error.to_string())
            }
            GoogleError::Settings { .. }
            | GoogleError::Rejected { .. }
            | GoogleError::Refused { .. }
            | GoogleError::TooLarge { .. }
            | GoogleError::Login(_) => Self::Fatal(error.to_string()),
        }
    }
}

impl Preparation<'_> {
    pub(super) fn change_drive(&self, settings: &str, operations: &[DriveOperation]) -> Result<(), Failure> {
        let drive = Drive::open(self.accounts, settings, self.deadline)?;
        for operation in operations {
            match operation {
                DriveOperation::Delete { query, into_trash } => remove_all(&drive, query, *into_trash)?,
                DriveOperation::MakeFolders(path) => drop(drive.folder(path)?),
                DriveOperation::Upload { url, path } => {
                    let Some((name, folders)) = path.split_last() else { continue };
                    let content = self.cache.obtain(self.task, url, name, self.deadline)?;
                    drive.upload(name, &drive.folder(folders)?, &content)?;
                }
            }
        }
        Ok(())
    }

    /// Opens Google Drive in a new tab, where the login is asked for.
    pub(super) fn log_in(&self, settings: &str) -> Result<(), Failure> {
        let login = self.accounts.login(settings)?;
        self.tabs()?;
        // without the page there is no account, so that even the ARPO era does not go on
        let tab = self.guest.browser().open(ADDRESS).map_err(|error| match Failure::from(error) {
            Failure::Refused(problem) => Failure::Fatal(problem),
            other => other,
        })?;
        Ok(google::log_in(self.guest, &tab.id, &login, self.deadline)?)
    }
}

/// Files before folders, so that nothing is removed that a folder took along. All are looked for first.
fn remove_all(drive: &Drive<'_>, query: &str, into_trash: bool) -> Result<(), GoogleError> {
    let of_kind = |sign: &str| {
        let kind = format!("mimeType {sign} '{FOLDER}'");
        drive.find(&if query.is_empty() { kind } else { format!("( {query} ) and {kind}") })
    };
    let (files, folders) = (of_kind("!=")?, of_kind("=")?);
    files.iter().chain(&folders).try_for_each(|file| drive.remove(file, into_trash))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parsed(fields: Value) -> Result<(String, Vec<DriveOperation>), String> {
        let Value::Object(fields) = fields else { panic!("fields are an object") };
        parse_drive(&fields)
    }

    #[test]
    fn operations_have_their_arguments() {
        let (settings, operations) = parsed(json!({
            "operation": ["delete", "mkdirs", "upload"],
            "args": [{}, {"path": "a"}, {"url": "https://a.org/x", "path": ["a", "x.pdf"]}]
        }))
        .unwrap();
        assert_eq!(settings, DRIVE_SETTINGS);
        let wanted = [
            DriveOperation::Delete { query: String::new(), into_trash: false },
            DriveOperation::MakeFolders(vec!["a".into()]),
            DriveOperation::Upload { url: "https://a.org/x".into(), path: vec!["a".into(), "x.pdf".into()] },
        ];
        assert_eq!(operations, wanted);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (fields, problem) in [
            (json!({"operation": ["delete"], "args": []}), "args has 0 entries for 1 operations"),
            (
                json!({"operation": ["copy"], "args": [{}]}),
                "operation holds \"copy\", \"delete\", \"mkdirs\" or \"upload\" is wanted",
            ),
            (json!({"operation": ["mkdirs"], "args": [{"path": []}]}), "path is empty"),
            (json!({"operation": ["upload"], "args": [{"path": "a"}]}), "url is missing"),
            (json!({"args": []}), "operation is missing or not a list"),
        ] {
            assert_eq!(parsed(fields).unwrap_err(), problem);
        }
        let login = |fields: Value| parse_login(fields.as_object().unwrap());
        let wrong = login(json!({"platform": "mail", "settings_file": "a"})).unwrap_err();
        assert_eq!(wrong, "platform is \"mail\", \"googledrive\" is wanted");
        assert_eq!(login(json!({"platform": "googledrive"})).unwrap_err(), "settings_file is missing");
    }
}
