//! Files of the guest: downloaded, uploaded, fetched from a URL and listed.

use super::body::{FormBody, JsonBody};
use super::response::{HttpResponse, OpenFile};
use super::{Guest, HandlerResult, Shared, home, run_blocking};
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
const MAX_DEPTH: usize = 40;
const DOWNLOAD_TRIES: u32 = 3;
const DOWNLOAD_LIMIT: Duration = Duration::from_mins(5);

fn path_of(text: &str) -> PathBuf {
    PathBuf::from(expanded(text, &home(), |name| env::var(name).ok()))
}

/// `/file`: a file of the guest.
pub async fn file(State(guest): Shared, form: FormBody) -> HandlerResult {
    let Some(path) = form.get("file_path").map(path_of) else {
        return Ok(HttpResponse::error(StatusCode::BAD_REQUEST, "file_path is required"));
    };
    match OpenFile::open(&path).await {
        Ok(file) => Ok(HttpResponse::File(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(HttpResponse::error(StatusCode::NOT_FOUND, "File not found"))
        }
        Err(error) => {
            let problem = in_python(&error, &path.to_string_lossy());
            Ok(if guest.is_verified() {
                let message = format!("Failed to serve file: {problem}");
                HttpResponse::error(StatusCode::INTERNAL_SERVER_ERROR, message)
            } else {
                HttpResponse::uncaught(problem)
            })
        }
    }
}

/// `/setup/upload`: a file for the guest, written as it arrives.
pub async fn upload(
    State(guest): Shared,
    parts: Result<Multipart, axum::extract::multipart::MultipartRejection>,
) -> HandlerResult {
    let required = || HttpResponse::error(StatusCode::BAD_REQUEST, "file_path and file_data are required");
    let Ok(mut parts) = parts else { return Err(required()) };
    let unread = |error: MultipartError| super::body::bad_request(&error.to_string());
    let mut path = None;
    // a file that arrives before its path
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
                    let file =
                        run_blocking(tempfile::NamedTempFile::new).await?.map_err(HttpResponse::uncaught)?;
                    write(&guest, file.path(), part).await?;
                    waiting = Some(file);
                }
            }
            _ => {}
        }
    }
    if let (Some(file), Some(path)) = (waiting, &path) {
        let to = path.clone();
        let copied = run_blocking(move || fs::copy(file.path(), to)).await?;
        written = Some(copied.map_err(|error| not_written(&guest, path, &error))?);
    }
    let bytes = written.ok_or_else(required)?;
    let message =
        if guest.is_verified() { format!("File Uploaded: {bytes} bytes") } else { "File Uploaded".into() };
    Ok(HttpResponse::text(message))
}

/// Writes a part of a request to a file; returns its size in bytes.
async fn write(guest: &Guest, path: &Path, mut part: Field<'_>) -> Result<u64, HttpResponse> {
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
            // a partial file is worse than none; if it cannot be removed either, report the first error
            let _ = tokio::fs::remove_file(path).await;
        }
        return Err(failed(error));
    }
    Ok(bytes)
}

fn not_written(guest: &Guest, path: &Path, error: &io::Error) -> HttpResponse {
    let problem = in_python(error, &path.to_string_lossy());
    if guest.is_verified() {
        HttpResponse::error(StatusCode::INTERNAL_SERVER_ERROR, format!("Failed to upload file: {problem}"))
    } else {
        HttpResponse::uncaught(problem)
    }
}

/// `/desktop_path`: where the files on the desktop are.
pub async fn desktop_path() -> HttpResponse {
    let path = Path::new(&home()).join("Desktop");
    if path.exists() {
        HttpResponse::json(json!({"desktop_path": path.to_string_lossy()}))
    } else {
        HttpResponse::error(StatusCode::NOT_FOUND, "Unsupported operating system or desktop path not found")
    }
}

/// `/list_directory`: a folder with all that is in it.
pub async fn list_directory(JsonBody(request): JsonBody) -> HandlerResult {
    let bad = |message: &str| HttpResponse::error(StatusCode::BAD_REQUEST, message);
    let Some(path) = request.get("path").and_then(Value::as_str) else {
        return Err(bad("Missing 'path' parameter"));
    };
    let path = PathBuf::from(path);
    let tree = run_blocking(move || path.is_dir().then(|| listed(&path, MAX_DEPTH))).await?;
    let tree = tree.ok_or_else(|| bad("The provided path is not a directory"))?;
    Ok(HttpResponse::json(json!({"directory_tree": tree})))
}

/// A folder as a tree, in the order of names. A folder that cannot be read becomes an error node.
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

/// `/setup/download_file`: a file from a URL.
pub async fn download_file(State(guest): Shared, JsonBody(request): JsonBody) -> HandlerResult {
    let text = |name: &str| request.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let (Some(url), Some(path)) = (text("url").map(str::to_owned), text("path").map(path_of)) else {
        return Ok(HttpResponse::Text(StatusCode::BAD_REQUEST, "Path or URL not supplied!".into()));
    };
    let checks_length = guest.is_verified();
    let done = run_blocking(move || {
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
        Ok(()) => HttpResponse::text("File downloaded successfully"),
        Err(message) => HttpResponse::Text(StatusCode::INTERNAL_SERVER_ERROR, message),
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
            // a partial file is worse than none; report that it was partial
            let _ = fs::remove_file(path);
            Err(format!("received {bytes} of {length} bytes"))
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
        let tree = listed(&folder.path().join("b"), MAX_DEPTH);
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
