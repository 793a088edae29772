//! The settings files that OSWorld keeps a Google account in: `google/settings.json` with its e-mail address and password, and
//! `googledrive/settings.yml` in the form of `PyDrive`, which names the file of the tokens.

use super::{GoogleError, Tokens};
use crate::error::MetricError;
use crate::task::TaskFile;
use crate::text::yaml;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder of these files in OSWorld's repository, as its task and settings files name it.
const ORIGINAL_FOLDER: &str = "evaluation_examples/settings";
/// The settings of Google Drive where a task names none.
pub const DRIVE_SETTINGS: &str = "evaluation_examples/settings/googledrive/settings.yml";

/// The user's own accounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accounts {
    folder: PathBuf,
    services: Services,
}

/// Where Google's services are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Services {
    /// Google Drive, version 2: the queries of task files are written for it.
    pub drive: String,
    /// Uploads to it.
    pub upload: String,
    /// Between attempts of a request.
    pub pause: Duration,
}

impl Default for Services {
    fn default() -> Self {
        Self {
            drive: "https://www.googleapis.com/drive/v2".into(),
            upload: "https://www.googleapis.com/upload/drive/v2".into(),
            pause: Duration::from_secs(2),
        }
    }
}

impl Default for Accounts {
    fn default() -> Self {
        Self::new(ORIGINAL_FOLDER)
    }
}

/// Whom the desktop's browser logs in as.
pub struct Login {
    /// The e-mail address.
    pub email: String,
    pub(super) password: String,
}

impl Accounts {
    /// The accounts in a folder of settings files.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), services: Services::default() }
    }

    /// The accounts beside a folder of task files: OSWorld has `settings` beside `examples`.
    pub fn beside(tasks: &Path) -> Self {
        let folder = if tasks.ends_with("examples") { tasks.parent().unwrap_or(tasks) } else { tasks };
        Self::new(folder.join("settings"))
    }

    /// The same with Google's services elsewhere.
    #[must_use]
    pub fn with_services(self, services: Services) -> Self {
        Self { services, ..self }
    }

    pub(super) fn services(&self) -> &Services {
        &self.services
    }

    /// The account that a settings file of `login` names.
    pub fn login(&self, file: &str) -> Result<Login, GoogleError> {
        let path = self.path(file, &self.folder);
        let what = "expected an object with `email` and `password` of a Google account";
        let fields = object(&path, what)?;
        Ok(Login { email: text(&fields, "email", &path)?, password: text(&fields, "password", &path)? })
    }

    /// The tokens that settings of Google Drive name.
    pub fn tokens(&self, file: &str) -> Result<Tokens, GoogleError> {
        let settings_path = self.path(file, &self.folder);
        let content = read(&settings_path, "expected settings of PyDrive with `save_credentials_file`")?;
        let wrong = |problem: String| GoogleError::Settings { path: settings_path.clone(), problem };
        let settings = match yaml::parse(&content) {
            Ok(Value::Object(settings)) => settings,
            Ok(_) => return Err(wrong("expected settings of PyDrive with `save_credentials_file`".into())),
            Err(MetricError::Raises(problem)) => return Err(wrong(problem)),
            Err(error) => return Err(wrong(error.to_string())),
        };
        let saved = text(&settings, "save_credentials_file", &settings_path)?;
        let beside = settings_path.parent().unwrap_or(Path::new(""));
        let path = self.path(&saved, beside);
        let fields = object(&path, "expected the tokens that PyDrive stores there when somebody logs in")?;
        if fields.get("invalid").and_then(Value::as_bool) == Some(true) {
            let problem = "PyDrive found them invalid".into();
            return Err(GoogleError::Rejected { path, problem });
        }
        Ok(Tokens {
            client_id: text(&fields, "client_id", &path)?,
            client_secret: text(&fields, "client_secret", &path)?,
            refresh_token: text(&fields, "refresh_token", &path)?,
            token_uri: text(&fields, "token_uri", &path)?,
            path,
        })
    }

    /// What is wrong with the settings files that a task needs, one entry for each file.
    pub fn problems(&self, task: &TaskFile) -> Vec<GoogleError> {
        let problem = |file: &SettingsFile| match file {
            SettingsFile::Login(file) => self.login(file).err(),
            SettingsFile::Drive(file) => self.tokens(file).err(),
        };
        needed(task).iter().filter_map(problem).collect()
    }

    /// Where a file is. One of OSWorld's folder is in this one. Other names are relative to `beside`: in task files to this folder,
    /// in settings to theirs.
    fn path(&self, name: &str, beside: &Path) -> PathBuf {
        match Path::new(name).strip_prefix(ORIGINAL_FOLDER) {
            Ok(rest) => self.folder.join(rest),
            Err(_) => beside.join(name),
        }
    }
}

/// A settings file that a task names.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum SettingsFile {
    Login(String),
    Drive(String),
}

/// Whether a task needs a Google account.
pub fn is_used_by(task: &TaskFile) -> bool {
    !needed(task).is_empty()
}

fn needed(task: &TaskFile) -> BTreeSet<SettingsFile> {
    let file =
        |fields: &Map<String, Value>| fields.get("settings_file").and_then(Value::as_str).map(str::to_owned);
    let drive = |fields: &Map<String, Value>| {
        SettingsFile::Drive(file(fields).unwrap_or_else(|| DRIVE_SETTINGS.into()))
    };
    let steps = task.config.iter().chain(&task.evaluator.postconfig);
    let of_steps = steps.filter_map(|step| match step.kind.as_str() {
        // without its file the step is wrong, which is said elsewhere
        "login" => file(&step.parameters).map(SettingsFile::Login),
        "googledrive" => Some(drive(&step.parameters)),
        _ => None,
    });
    let getters = task.evaluator.checks.iter().flat_map(|check| check.result.iter().chain(&check.expected));
    let of_getters =
        getters.filter(|getter| getter.kind == "googledrive_file").map(|getter| drive(&getter.fields));
    of_steps.chain(of_getters).collect()
}

fn read(path: &Path, expected: &str) -> Result<String, GoogleError> {
    fs::read_to_string(path).map_err(|error| {
        let problem = match error.kind() {
            ErrorKind::NotFound => format!("no such file: {expected}"),
            _ => error.to_string(),
        };
        GoogleError::Settings { path: path.to_owned(), problem }
    })
}

fn object(path: &Path, expected: &str) -> Result<Map<String, Value>, GoogleError> {
    let wrong = |problem: String| GoogleError::Settings { path: path.to_owned(), problem };
    match serde_json::from_str(&read(path, expected)?) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(wrong(expected.into())),
        Err(error) => Err(wrong(format!("not JSON: {error}"))),
    }
}

/// A text; what is there instead is not shown, since it may be a secret.
fn text(fields: &Map<String, Value>, name: &str, path: &Path) -> Result<String, GoogleError> {
    let found = fields.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    found.map(str::to_owned).ok_or_else(|| GoogleError::Settings {
        path: path.to_owned(),
        problem: format!("`{name}` is missing or not a text"),
    })
}
