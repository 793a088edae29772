//! The cache of files that tasks need: fetched once and atomically, shared by all desktops of a host.
//!
//! A file lies at `<root>/<task id>/<uuid5 of its address>_<name>`: the two generations of tasks have the same ids and names
//! at different addresses. OSWorld does so for files of the set-up and leaves the address out for those of the
//! evaluators; such a file of an existing cache is read, and never written. A download resumes where it stopped, is
//! checked (its length, its checksum where one is known, no web page instead of a file) and is renamed into place;
//! desktops that want the same file at the same time wait for each other. Nobody waits beyond the deadline of the call that
//! needs the file; what has come by then stays, and the next call continues it. Offline, a missing file is an error that
//! says where it should be. A file of this host (`file://`) is read where it lies.

use crate::error::DownloadError;
use crate::task::local_files::local_path;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uuid::Uuid;

/// The file of known checksums in the cache: `{"address": "sha256 in hex"}`.
pub const CHECKSUMS_FILE: &str = "checksums.json";

/// Where most addresses of Verified's tasks point to; a mirror takes its place.
const HUGGING_FACE: &str = "https://huggingface.co";

/// How often somebody who waits for another's download looks again.
const LOCK_POLL: Duration = Duration::from_millis(50);

/// How files are fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    /// Nothing is fetched.
    pub offline: bool,
    /// Takes the place of `https://huggingface.co`.
    pub mirror: Option<String>,
    /// Attempts of a download.
    pub tries: u32,
    /// Timeout of one attempt.
    pub limit: Duration,
}

impl Default for Sources {
    fn default() -> Self {
        Self { offline: false, mirror: None, tries: 3, limit: Duration::from_mins(5) }
    }
}

/// A server's response.
pub struct Fetched {
    /// 200 for the whole file, 206 for the rest of it.
    pub status: u16,
    /// Bytes of the body, if the server said so.
    pub length: Option<u64>,
    /// The body.
    pub body: Box<dyn Read>,
}

/// Fetches the rest of a file.
pub trait Fetch: Send + Sync {
    /// Requests the bytes from `offset` on.
    fn fetch(&self, url: &str, offset: u64, limit: Duration) -> Result<Fetched, String>;
}

/// The internet.
pub struct Internet(ureq::Agent);

impl Default for Internet {
    fn default() -> Self {
        Self(ureq::Agent::config_builder().http_status_as_error(false).build().new_agent())
    }
}

impl Fetch for Internet {
    fn fetch(&self, url: &str, offset: u64, limit: Duration) -> Result<Fetched, String> {
        let mut request = self.0.get(url).config().timeout_global(Some(limit)).build();
        if offset > 0 {
            request = request.header("Range", format!("bytes={offset}-"));
        }
        let response = request.call().map_err(|error| error.to_string())?;
        let (status, length) = (response.status().as_u16(), response.body().content_length());
        Ok(Fetched { status, length, body: Box::new(response.into_body().into_reader()) })
    }
}

/// A cache in a folder.
pub struct Cache {
    root: PathBuf,
    sources: Sources,
    fetch: Arc<dyn Fetch>,
    checksums: Arc<BTreeMap<String, String>>,
    /// Output of one desktop's commands, where several run the same task at once.
    outputs: Option<TempDir>,
}

impl Cache {
    /// A cache over the internet. Known checksums are read from its folder.
    pub fn new(root: impl Into<PathBuf>, sources: Sources) -> Result<Self, DownloadError> {
        Self::with_fetch(root, sources, Arc::new(Internet::default()))
    }

    /// A cache with another fetcher.
    pub fn with_fetch(
        root: impl Into<PathBuf>,
        sources: Sources,
        fetch: Arc<dyn Fetch>,
    ) -> Result<Self, DownloadError> {
        let root = root.into();
        let path = root.join(CHECKSUMS_FILE);
        let broken = |problem: String| DownloadError::Cache { path: path.clone(), problem };
        let checksums = match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(broken(error.to_string())),
        };
        Ok(Self { root, sources, fetch, checksums: Arc::new(checksums), outputs: None })
    }

    /// The same cache for one desktop, with its own folder for the output of its commands.
    pub fn for_desktop(&self) -> io::Result<Self> {
        Ok(Self {
            root: self.root.clone(),
            sources: self.sources.clone(),
            fetch: Arc::clone(&self.fetch),
            checksums: Arc::clone(&self.checksums),
            outputs: Some(tempfile::tempdir()?),
        })
    }

    /// The folder of a task.
    pub fn task_folder(&self, task: &str) -> PathBuf {
        self.root.join(plain_name(task))
    }

    /// Where a download lies: `<uuid5 of the address>_<name>`.
    pub fn path(&self, task: &str, url: &str, name: &str) -> PathBuf {
        let id = Uuid::new_v5(&Uuid::NAMESPACE_URL, url.as_bytes());
        self.task_folder(task).join(format!("{id}_{}", plain_name(name)))
    }

    /// Where OSWorld keeps an evaluator's download, whatever its address.
    fn original_path(&self, task: &str, name: &str) -> PathBuf {
        self.task_folder(task).join(plain_name(name))
    }

    /// Where a command's output lies: the desktop's own folder, or the task's.
    pub fn output_path(&self, task: &str, name: &str) -> PathBuf {
        match &self.outputs {
            Some(folder) => folder.path().join(plain_name(name)),
            None => self.original_path(task, name),
        }
    }

    /// The same for a file of an evaluator: where OSWorld's cache has it, it is read from there. Not for files of the set-up:
    /// OSWorld keeps what it fetched from the guest under the same names.
    pub fn obtain_for_evaluator(
        &self,
        task: &str,
        url: &str,
        name: &str,
        deadline: Instant,
    ) -> Result<Vec<u8>, DownloadError> {
        let original = self.original_path(task, name);
        let is_local = local_path(url).is_some();
        if is_local || self.path(task, url, name).exists() || !original.is_file() {
            return self.obtain(task, url, name, deadline);
        }
        let content = fs::read(&original)
            .map_err(|error| DownloadError::Cache { path: original, problem: error.to_string() })?;
        self.check(url, name, &content).map(|()| content)
    }

    /// The content of a file that a task calls `name`, fetched if missing. An error if it is not what it should be, or not
    /// there by the deadline.
    pub fn obtain(
        &self,
        task: &str,
        url: &str,
        name: &str,
        deadline: Instant,
    ) -> Result<Vec<u8>, DownloadError> {
        if let Some(path) = local_path(url) {
            return fs::read(&path)
                .map_err(|error| DownloadError::Cache { path, problem: error.to_string() });
        }
        let path = self.path(task, url, name);
        let broken =
            |error: io::Error| DownloadError::Cache { path: path.clone(), problem: error.to_string() };
        if !path.exists() {
            if self.sources.offline {
                return Err(DownloadError::Offline { url: url.to_owned(), path });
            }
            fs::create_dir_all(self.task_folder(task)).map_err(broken)?;
            let lock = self.lock(url, deadline).map_err(broken)?.ok_or_else(|| DownloadError::Late {
                url: url.to_owned(),
                problem: "another desktop is still fetching it".into(),
            })?;
            if !path.exists() {
                self.download(url, name, &path, deadline)?;
            }
            drop(lock);
        }
        let content = fs::read(&path).map_err(broken)?;
        self.check(url, name, &content).map(|()| content)
    }

    /// Held while a file is fetched; `None` if somebody else holds it until the deadline. The lock files stay: to remove one
    /// would let two in at once.
    fn lock(&self, url: &str, deadline: Instant) -> io::Result<Option<File>> {
        let folder = self.root.join(".locks");
        fs::create_dir_all(&folder)?;
        let file = File::create(folder.join(Uuid::new_v5(&Uuid::NAMESPACE_URL, url.as_bytes()).to_string()))?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(LOCK_POLL.min(left));
        }
    }

    fn check(&self, url: &str, name: &str, content: &[u8]) -> Result<(), DownloadError> {
        if is_web_page(content) && !may_be_web_page(name) {
            let problem =
                format!("a web page instead of {name}: the file has moved, or the server asks for a login");
            return Err(DownloadError::Fetch { url: url.to_owned(), problem });
        }
        let Some(wanted) = self.checksums.get(url) else { return Ok(()) };
        let found = hex(&Sha256::digest(content));
        if found.eq_ignore_ascii_case(wanted) {
            return Ok(());
        }
        Err(DownloadError::Checksum { url: url.to_owned(), found, wanted: wanted.clone() })
    }

    fn download(&self, url: &str, name: &str, path: &Path, deadline: Instant) -> Result<(), DownloadError> {
        let part = beside(path, "part");
        let mut problem = String::new();
        for _ in 0..self.sources.tries.max(1) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            match self.attempt(url, &part, self.sources.limit.min(left)) {
                Ok(()) => {
                    let broken = |error: io::Error| DownloadError::Cache {
                        path: part.clone(),
                        problem: error.to_string(),
                    };
                    if let Err(error) = self.check(url, name, &fs::read(&part).map_err(broken)?) {
                        // A wrong file must not be resumed.
                        fs::remove_file(&part).map_err(broken)?;
                        return Err(error);
                    }
                    return fs::rename(&part, path).map_err(broken);
                }
                Err(error) => problem = error,
            }
        }
        let url = url.to_owned();
        if Instant::now() < deadline {
            return Err(DownloadError::Fetch { url, problem });
        }
        let fetched = fs::metadata(&part).map_or(0, |file| file.len());
        let last = if problem.is_empty() { String::new() } else { format!("; the last attempt: {problem}") };
        Err(DownloadError::Late { url, problem: format!("{fetched} bytes are there{last}") })
    }

    fn attempt(&self, url: &str, part: &Path, limit: Duration) -> Result<(), String> {
        let mirrored = match &self.sources.mirror {
            Some(mirror) if url.starts_with(HUGGING_FACE) => {
                format!("{}{}", mirror.trim_end_matches('/'), &url[HUGGING_FACE.len()..])
            }
            _ => url.to_owned(),
        };
        let offset = fs::metadata(part).map_or(0, |file| file.len());
        let Fetched { status, length, mut body } = self.fetch.fetch(&mirrored, offset, limit)?;
        let mut file = match status {
            206 => OpenOptions::new().append(true).open(part),
            200 => File::create(part),
            416 => {
                fs::remove_file(part).map_err(|error| error.to_string())?;
                return Err("the server has less than the partial file; starting again".into());
            }
            other => return Err(format!("status {other}")),
        }
        .map_err(|error| error.to_string())?;
        let copied = io::copy(&mut body, &mut file).map_err(|error| error.to_string())?;
        if length.is_some_and(|length| length != copied) {
            return Err(format!("{copied} bytes instead of {}", length.unwrap_or_default()));
        }
        file.flush().and_then(|()| file.sync_all()).map_err(|error| error.to_string())
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// It starts as HTML does.
fn is_web_page(content: &[u8]) -> bool {
    let start = String::from_utf8_lossy(&content[..content.len().min(512)])
        .trim_start_matches('\u{feff}')
        .to_lowercase();
    let start = start.trim_start();
    start.starts_with("<!doctype html") || start.starts_with("<html")
}

/// Names of files that may be web pages, or whose kind is not known.
fn may_be_web_page(name: &str) -> bool {
    const NEVER: [&str; 31] = [
        "xlsx", "xls", "ods", "csv", "docx", "doc", "odt", "pptx", "ppt", "odp", "pdf", "zip", "gz", "tar",
        "png", "jpg", "jpeg", "gif", "bmp", "svg", "xcf", "mp3", "mp4", "wav", "m4a", "avi", "json", "py",
        "sqlite", "db", "epub",
    ];
    let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_lowercase());
    !extension.is_some_and(|extension| NEVER.contains(&extension.as_str()))
}

/// The last part of a path: names come from task files and must stay in their folder.
fn plain_name(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or_default();
    if matches!(last, "" | "." | "..") { "unnamed".into() } else { last.to_owned() }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(ending);
    path.with_file_name(name)
}
