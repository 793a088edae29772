//! Google Drive, as far as tasks use it: files are found, made, removed and read.

use super::client::{Client, Payload, Request, TEXT_LIMIT_BYTES};
use super::{Accounts, GoogleError};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};
use std::time::Instant;

/// The type of folders.
pub const FOLDER: &str = "application/vnd.google-apps.folder";
/// The folder that everything is in.
const ROOT: &str = "root";
/// Files of one response, and responses to one query.
const PAGE_FILES: usize = 1000;
const MOST_PAGES: usize = 100;
/// What a list says of each file.
const LIST_FIELDS: &str = "nextPageToken,items(id,title,mimeType,downloadUrl)";

/// A file or folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveFile {
    /// Google's name for it.
    pub id: String,
    /// Its name, which others may have, too.
    pub title: String,
    /// Its type.
    pub mime_type: String,
    /// Whether it has content. Google's own documents have none; they can only be converted.
    pub has_content: bool,
}

/// The Drive of an account.
pub struct Drive<'a> {
    accounts: &'a Accounts,
    client: Client,
    token: String,
    deadline: Instant,
}

impl<'a> Drive<'a> {
    /// The Drive of the account that a settings file names. Nothing is waited for beyond the deadline.
    pub fn open(accounts: &'a Accounts, settings: &str, deadline: Instant) -> Result<Self, GoogleError> {
        let client = Client::new(accounts.services().pause);
        let token = accounts.tokens(settings)?.access_token(&client, deadline)?;
        Ok(Self { accounts, client, token, deadline })
    }

    /// What a query finds, in Google's order.
    pub fn find(&self, query: &str) -> Result<Vec<DriveFile>, GoogleError> {
        let call = format!("find {query}");
        let (query, fields) = (encoded(query), encoded(LIST_FIELDS));
        let mut found = Vec::new();
        let mut page = String::new();
        for _ in 0..MOST_PAGES {
            let path = format!("/files?q={query}&maxResults={PAGE_FILES}&fields={fields}{page}");
            let body = self.drive(&call, &path, Payload::Get, TEXT_LIMIT_BYTES)?;
            let value = parsed(&call, &body)?;
            found.extend(value["items"].as_array().into_iter().flatten().filter_map(file));
            match value["nextPageToken"].as_str() {
                Some(next) => page = format!("&pageToken={}", encoded(next)),
                None => return Ok(found),
            }
        }
        let problem = format!("more than {} files", MOST_PAGES * PAGE_FILES);
        Err(GoogleError::Unreachable { call, problem })
    }

    /// The id of the folder at a path, which is made as far as it is not there.
    pub fn folder(&self, path: &[String]) -> Result<String, GoogleError> {
        let mut parent = ROOT.to_owned();
        for title in path {
            let query = format!(
                "'{parent}' in parents and title = '{}' and mimeType = '{FOLDER}' and trashed = false",
                escaped(title)
            );
            parent = match self.find(&query)?.into_iter().next() {
                Some(folder) => folder.id,
                None => self.create_folder(title, &parent)?,
            };
        }
        Ok(parent)
    }

    fn create_folder(&self, title: &str, parent: &str) -> Result<String, GoogleError> {
        let call = format!("make the folder {title}");
        let mut folder = metadata(title, parent);
        folder.insert("mimeType".into(), FOLDER.into());
        let body = self.drive(&call, "/files", Payload::Create(&Value::Object(folder)), TEXT_LIMIT_BYTES)?;
        let id = parsed(&call, &body)?["id"].as_str().map(str::to_owned);
        id.ok_or_else(|| GoogleError::Unreachable { call, problem: "the response has no id".into() })
    }

    /// Removes a file, or a folder with everything in it; one that is already gone is removed.
    pub fn remove(&self, file: &DriveFile, into_trash: bool) -> Result<(), GoogleError> {
        let call = format!("remove {}", file.title);
        let (suffix, payload) = if into_trash { ("/trash", Payload::Post) } else { ("", Payload::Delete) };
        let path = format!("/files/{}{suffix}", encoded(&file.id));
        match self.drive(&call, &path, payload, TEXT_LIMIT_BYTES) {
            // it was in a folder that was removed before
            Err(GoogleError::Refused { status: 404, .. }) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Puts a file into a folder: first what it is, then its content at the address that Google gives for it.
    pub fn upload(&self, title: &str, folder: &str, content: &[u8]) -> Result<(), GoogleError> {
        let call = format!("upload {title}");
        let mut file = metadata(title, folder);
        if let Some(kind) = kind_of(title) {
            file.insert("mimeType".into(), kind.into());
        }
        let file = Value::Object(file);
        let address = format!("{}/files?uploadType=resumable", self.accounts.services().upload);
        let request = Request {
            call: &call,
            url: &address,
            token: Some(&self.token),
            payload: Payload::PostJson(&file),
            limit_bytes: TEXT_LIMIT_BYTES,
        };
        let response = self.client.send(&request, self.deadline)?;
        let place = response.location.clone();
        response.accepted(&call)?;
        let place = place.ok_or_else(|| GoogleError::Unreachable {
            call: call.clone(),
            problem: "the response has no address for the content".into(),
        })?;
        // the address itself authorises the upload
        let request = Request { url: &place, token: None, payload: Payload::Put(content), ..request };
        self.client.send(&request, self.deadline)?.accepted(&call).map(drop)
    }

    /// The content of a file, up to a limit.
    pub fn download(&self, file: &DriveFile, limit_bytes: u64) -> Result<Vec<u8>, GoogleError> {
        let path = format!("/files/{}?alt=media", encoded(&file.id));
        self.drive(&format!("read {}", file.title), &path, Payload::GetFile, limit_bytes)
    }

    fn drive(
        &self,
        call: &str,
        path: &str,
        payload: Payload<'_>,
        limit_bytes: u64,
    ) -> Result<Vec<u8>, GoogleError> {
        let url = format!("{}{path}", self.accounts.services().drive);
        let request = Request { call, url: &url, token: Some(&self.token), payload, limit_bytes };
        self.client.send(&request, self.deadline)?.accepted(call)
    }
}

/// A text inside the single quotes of a query.
pub fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\'', "\\'")
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn parsed(call: &str, body: &[u8]) -> Result<Value, GoogleError> {
    serde_json::from_slice(body)
        .map_err(|error| GoogleError::Unreachable { call: call.to_owned(), problem: error.to_string() })
}

fn file(value: &Value) -> Option<DriveFile> {
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    Some(DriveFile {
        id: text("id")?,
        title: text("title").unwrap_or_default(),
        mime_type: text("mimeType").unwrap_or_default(),
        has_content: value["downloadUrl"].is_string(),
    })
}

/// What Google is told of a new file; without a parent it is in the root.
fn metadata(title: &str, parent: &str) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("title".into(), title.into());
    if parent != ROOT {
        fields.insert("parents".into(), json!([{"id": parent}]));
    }
    fields
}

/// The type of a file by its name, so that Drive shows it; Google finds out the others.
fn kind_of(title: &str) -> Option<&'static str> {
    Some(match title.rsplit_once('.')?.1.to_ascii_lowercase().as_str() {
        "pdf" => "application/pdf",
        "docx" => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "xlsx" => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "pptx" => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "csv" => "text/csv",
        "txt" => "text/plain",
        _ => return None,
    })
}
