//! Files of the guest: given, taken, fetched and listed.

use super::answer::{Answer, OpenFile};
use super::body::{FormBody, JsonBody};
use super::{Answered, Guest, Shared, apart, home};
use crate::command::run::in_python;
use crate::command::words::expanded;
use axum::extract::multipart::{Field, MultipartError};
use axum::extract::{Multipart, State};
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// How deep folders are listed. Links are followed, as by OSWorld, and may lead in circles.
const DEEPEST: usize = 40;
const DOWNLOAD_TRIES: u32 = 3;
const DOWNLOAD_LIMIT: Duration = Duration::from_mins(5);

fn path_of(text: &str) -> PathBuf {
    PathBuf::from(expanded(text, &home(), |name| env::var(name).ok()))
}

/// `/file`: a file of the guest.
pub async fn file(State(guest): Shared, form: FormBody) -> Answered {
    let Some(path) = form.get("file_path").map(path_of) else {
        return Ok(Answer::error(StatusCode::BAD_REQUEST, "file_path is required"));
    };
    match OpenFile::open(&path).await {
        Ok(file) => Ok(Answer::File(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(Answer::error(StatusCode::NOT_FOUND, "File not found"))
        }
        Err(error) => {
            let problem = in_python(&error, &path.to_string_lossy());
            Ok(if guest.is_verified() {
                let said = format!("Failed to serve file: {problem}");
                Answer::error(StatusCode::INTERNAL_SERVER_ERROR, said)
            } else {
                Answer::uncaught(problem)
            })
        }
    }
}

/// `/setup/upload`: a file for the guest, written as it comes.
pub async fn upload(
    State(guest): Shared,
    parts: Result<Multipart, axum::extract::multipart::MultipartRejection>,
) -> Answered {
    let required = || Answer::error(StatusCode::BAD_REQUEST, "file_path and file_data are required");
    let Ok(mut parts) = parts else { return Err(required()) };
    let unread = |error: MultipartError| super::body::bad_request(&error.to_string());
    let mut path = None;
    // a file that comes before its place is known
    let mut waiting = None;
    let mut written = None;
    while let Some(part) = parts.next_field().await.map_err(unread)? {
        match part.name() {
            Some("file_path") if part.file_name().is_none() => {
                path = Some(path_of(&part.text().await.map_err(unread)?));
            }
            Some("file_data") => {
                if let Some(path) = &path {
                    written = Some(write(&guest, path, part).await?);
                } else {
                    let file = apart(tempfile::NamedTempFile::new).await?.map_err(Answer::uncaught)?;
                    write(&guest, file.path(), part).await?;
                    waiting = Some(file);
                }
            }
            _ => {}
        }
    }
    if let (Some(file), Some(path)) = (waiting, &path) {
        let to = path.clone();
        let copied = apart(move || fs::copy(file.path(), to)).await?;
        written = Some(copied.map_err(|error| not_written(&guest, path, &error))?);
    }
    let bytes = written.ok_or_else(required)?;
    let said =
        if guest.is_verified() { format!("File Uploaded: {bytes} bytes") } else { "File Uploaded".into() };
    Ok(Answer::words(said))
}

/// Writes a part of a request to a file; how many bytes it was.
async fn write(guest: &Guest, path: &Path, mut part: Field<'_>) -> Result<u64, Answer> {
    let failed = |error: io::Error| not_written(guest, path, &error);
    if guest.is_verified()
        && let Some(parent) = path.parent()
    {
        tokio::fs::create_dir_all(parent).await.map_err(failed)?;
    }
    let mut file = tokio::fs::File::create(path).await.map_err(failed)?;
    let mut bytes = 0;
    let done = loop {
        match part.chunk().await.map_err(io::Error::other) {
            Ok(None) => break file.flush().await,
            Ok(Some(chunk)) => {
                bytes += chunk.len() as u64;
                if let Err(error) = file.write_all(&chunk).await {
                    break Err(error);
                }
            }
            Err(error) => break Err(error),
        }
    };
    if let Err(error) = done {
        if guest.is_verified() {
            // half a file is worse than none; if it cannot go either, the first error is the one to tell
            let _ = tokio::fs::remove_file(path).await;
        }
        return Err(failed(error));
    }
    Ok(bytes)
}

fn not_written(guest: &Guest, path: &Path, error: &io::Error) -> Answer {
    let problem = in_python(error, &path.to_string_lossy());
    if guest.is_verified() {
        Answer::error(StatusCode::INTERNAL_SERVER_ERROR, format!("Failed to upload file: {problem}"))
    } else {
        Answer::uncaught(problem)
    }
}

/// `/desktop_path`: where the files on the desktop are.
pub async fn desktop_path() -> Answer {
    let path = Path::new(&home()).join("Desktop");
    if path.exists() {
        Answer::json(json!({"desktop_path": path.to_string_lossy()}))
    } else {
        Answer::error(StatusCode::NOT_FOUND, "Unsupported operating system or desktop path not found")
    }
}

/// `/list_directory`: a folder with all that is in it.
pub async fn list_directory(JsonBody(request): JsonBody) -> Answered {
    let bad = |said: &str| Answer::error(StatusCode::BAD_REQUEST, said);
    let Some(path) = request.get("path").and_then(Value::as_str) else {
        return Err(bad("Missing 'path' parameter"));
    };
    let path = PathBuf::from(path);
    let tree = apart(move || path.is_dir().then(|| listed(&path, DEEPEST))).await?;
    let tree = tree.ok_or_else(|| bad("The provided path is not a directory"))?;
    Ok(Answer::json(json!({"directory_tree": tree})))
}

/// A folder as a tree, in the order of names. One that cannot be read is an error in its place.
fn listed(folder: &Path, depth: usize) -> Value {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let read = || {
        if depth == 0 {
            return Err(rustix::io::Errno::LOOP.into());
        }
        let paths = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
        let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        Ok(paths)
    };
    match read() {
        Ok(paths) => {
            let node = |path: &PathBuf| {
                if path.is_dir() {
                    listed(path, depth - 1)
                } else {
                    json!({"type": "file", "name": name(path)})
                }
            };
            let children: Vec<Value> = paths.iter().map(node).collect();
            json!({"type": "directory", "name": name(folder), "children": children})
        }
        Err(error) => json!({"error": in_python(&error, &folder.to_string_lossy())}),
    }
}

/// `/setup/download_file`: a file from elsewhere.
pub async fn download_file(State(guest): Shared, JsonBody(request): JsonBody) -> Answered {
    let text = |name: &str| request.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let (Some(url), Some(path)) = (text("url").map(str::to_owned), text("path").map(path_of)) else {
        return Ok(Answer::Words(StatusCode::BAD_REQUEST, "Path or URL not supplied!".into()));
    };
    let checks_length = guest.is_verified();
    let done = apart(move || {
        let mut last = String::new();
        for _ in 0..DOWNLOAD_TRIES {
            match download(&url, &path, checks_length) {
                Ok(()) => return Ok(()),
                Err(error) => last = error,
            }
        }
        Err(format!("Failed to download {url}. No retries left. Error: {last}"))
    });
    Ok(match done.await? {
        Ok(()) => Answer::words("File downloaded successfully"),
        Err(said) => Answer::Words(StatusCode::INTERNAL_SERVER_ERROR, said),
    })
}

fn download(url: &str, path: &Path, checks_length: bool) -> Result<(), String> {
    let agent = ureq::Agent::config_builder().timeout_global(Some(DOWNLOAD_LIMIT)).build().new_agent();
    let mut response = agent.get(url).call().map_err(|error| error.to_string())?;
    let length = response.body().content_length();
    let write = |body: &mut ureq::Body| {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        io::copy(&mut body.as_reader(), &mut fs::File::create(path)?)
    };
    let bytes = write(response.body_mut()).map_err(|error| error.to_string())?;
    match length {
        Some(length) if checks_length && length != bytes => {
            // half a file is worse than none; what is to be told is that it was half
            let _ = fs::remove_file(path);
            Err(format!("{bytes} of {length} bytes came"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_listed_with_all_that_is_in_them() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("b/c")).unwrap();
        fs::write(folder.path().join("b/d.txt"), "").unwrap();
        fs::write(folder.path().join("a"), "").unwrap();
        let tree = listed(&folder.path().join("b"), DEEPEST);
        assert_eq!(
            tree,
            json!({"type": "directory", "name": "b", "children": [
                {"type": "directory", "name": "c", "children": []},
                {"type": "file", "name": "d.txt"},
            ]})
        );
        assert_eq!(
            listed(&folder.path().join("b"), 1)["children"][0]["error"].as_str().map(|_| ()),
            Some(())
        );
    }
}
