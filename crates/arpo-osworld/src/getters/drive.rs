//! Files of the user's Google Drive.

use super::fields::Fields;
use super::files::base_name;
use super::{Context, GetterEntry, getter};
use crate::error::GetterError;
use crate::google::{DRIVE_SETTINGS, Drive, DriveFile, FOLDER, GoogleError, escaped};
use crate::guest::http::FILE_LIMIT_BYTES;
use crate::state::{FileState, State};
use serde_json::Value;

pub(super) const GETTERS: &[GetterEntry] = &[getter("googledrive_file", googledrive_file)];

/// A file by its path or by a query for each part of it; or several. What is not there is none, with a note.
fn googledrive_file(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    let settings = fields.get("settings_file").and_then(Value::as_str).unwrap_or(DRIVE_SETTINGS);
    let name =
        ["query", "path", "query_list", "path_list"].into_iter().find(|name| fields.get(name).is_some());
    let name = name.ok_or_else(|| fields.wrong("path, query, path_list or query_list is missing"))?;
    let (is_path, is_list) = (name.starts_with("path"), name.ends_with("_list"));
    let (places, dest) = (fields.value(name)?, fields.value("dest")?);
    let (places, dests) = if is_list {
        let both =
            places.as_array().zip(dest.as_array()).filter(|(places, dests)| places.len() == dests.len());
        both.ok_or_else(|| fields.wrong(format!("{name} and dest are not lists of the same length")))
            .map(|(places, dests)| (places.as_slice(), dests.as_slice()))?
    } else {
        (std::slice::from_ref(places), std::slice::from_ref(dest))
    };
    let files = places.iter().zip(dests).map(|(place, dest)| wanted(fields, place, dest, is_path));
    let files: Vec<Wanted> = files.collect::<Result<_, _>>()?;
    let drive = Drive::open(context.accounts, settings, context.deadline)?;
    let states = files.iter().map(|file| file.fetch(context, &drive));
    let mut states: Vec<State> = states.collect::<Result<_, _>>()?;
    Ok(if is_list { State::Many(states) } else { states.pop().unwrap_or(State::Null) })
}

/// A file to fetch.
struct Wanted {
    /// For each part of its path, outermost first.
    queries: Vec<String>,
    /// For notes.
    described: String,
    /// Its name for the metric.
    name: String,
}

fn wanted(fields: &Fields<'_>, place: &Value, dest: &Value, is_path: bool) -> Result<Wanted, GetterError> {
    let wrong = || fields.wrong(format!("{place} is not a list of texts"));
    let parts = match place {
        Value::String(part) => vec![part.as_str()],
        Value::Array(parts) => {
            parts.iter().map(Value::as_str).collect::<Option<Vec<&str>>>().ok_or_else(wrong)?
        }
        _ => return Err(wrong()),
    };
    let name = dest.as_str().ok_or_else(|| fields.wrong(format!("dest holds {dest}, not text")))?;
    let queries =
        if is_path { path_queries(&parts) } else { parts.iter().map(|&part| part.into()).collect() };
    let described = parts.join(if is_path { "/" } else { ", then " });
    Ok(Wanted { queries, described, name: base_name(name).to_owned() })
}

/// Folders, then the file.
fn path_queries(parts: &[&str]) -> Vec<String> {
    let query = |(at, part): (usize, &&str)| {
        let kind = if at + 1 < parts.len() { format!(" and mimeType = '{FOLDER}'") } else { String::new() };
        format!("title = '{}'{kind} and trashed = false", escaped(part))
    };
    parts.iter().enumerate().map(query).collect()
}

impl Wanted {
    /// The file. What an agent can cause, a file that is missing, too large or a document of Google's own, is none, as with
    /// OSWorld's getter; credentials that are not accepted or not sufficient and a network that fails are errors, and no score.
    fn fetch(&self, context: &Context<'_>, drive: &Drive<'_>) -> Result<State, GetterError> {
        let nothing = |why: String| {
            context.notes.borrow_mut().push(why);
            Ok(State::Null)
        };
        match self.content(drive) {
            Ok(Ok(content)) => Ok(State::File(FileState::new(self.name.clone(), content))),
            Ok(Err(why)) => nothing(why),
            Err(error @ GoogleError::TooLarge { .. }) => nothing(error.to_string()),
            Err(error) => Err(error.into()),
        }
    }

    /// The content, or why there is none.
    fn content(&self, drive: &Drive<'_>) -> Result<Result<Vec<u8>, String>, GoogleError> {
        let described = &self.described;
        let mut found: Option<DriveFile> = None;
        for query in &self.queries {
            let parent = found.as_ref().map_or("root", |file| file.id.as_str());
            let files = match drive.find(&format!("( {query} ) and '{parent}' in parents")) {
                // a query that Google does not understand
                Err(error @ GoogleError::Refused { status: 400, .. }) => return Ok(Err(error.to_string())),
                files => files?,
            };
            // of several with the same name the first counts, as in OSWorld
            found = files.into_iter().next();
            if found.is_none() {
                break;
            }
        }
        let Some(file) = found else { return Ok(Err(format!("Google Drive has no file {described}"))) };
        if !file.has_content {
            let kind = &file.mime_type;
            return Ok(Err(format!("{described} in Google Drive is no file that can be read, but {kind}")));
        }
        match drive.download(&file, FILE_LIMIT_BYTES) {
            // the account may list files, so that this one is the reason: Google took it for malware, or it is gone
            Err(error @ GoogleError::Refused { status: 403 | 404, .. }) => Ok(Err(error.to_string())),
            content => content.map(Ok),
        }
    }
}
