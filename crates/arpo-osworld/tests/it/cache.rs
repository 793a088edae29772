//! Downloads: whole or not at all, continued, checked, once for all who want them.

use arpo_osworld::download::{Cache, Fetch, Fetched, Sources};
use arpo_osworld::error::DownloadError;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const CONTENT: &[u8] = b"the whole of the file";

/// A server that breaks off after a number of bytes, with or without support for ranges.
struct Server {
    calls: Arc<AtomicUsize>,
    breaks_after: usize,
    knows_ranges: bool,
}

struct Breaking(Vec<u8>, bool);

impl Read for Breaking {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return if self.1 { Err(io::Error::other("cut")) } else { Ok(0) };
        }
        let count = self.0.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.0[..count]);
        self.0.drain(..count);
        Ok(count)
    }
}

impl Fetch for Server {
    fn fetch(&self, url: &str, offset: u64, _: Duration) -> Result<Fetched, String> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let whole = |status, length, body: &[u8]| Fetched {
            status,
            length,
            body: Box::new(io::Cursor::new(body.to_vec())),
        };
        match url.rsplit('/').next() {
            Some("none") => return Ok(whole(404, None, b"")),
            Some("page") => return Ok(whole(200, None, b"\n<!DOCTYPE html><title>Sign in</title>")),
            Some("short") => return Ok(whole(200, Some(100), CONTENT)),
            Some("other") => return Ok(whole(200, Some(5), b"other")),
            _ => {}
        }
        let from = if self.knows_ranges { offset as usize } else { 0 };
        let rest = &CONTENT[from..];
        let is_cut = rest.len() > self.breaks_after;
        let part = rest[..rest.len().min(self.breaks_after)].to_vec();
        let status = if from > 0 { 206 } else { 200 };
        Ok(Fetched { status, length: None, body: Box::new(Breaking(part, is_cut)) })
    }
}

fn cache(folder: &std::path::Path, breaks_after: usize, knows_ranges: bool) -> (Cache, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let server = Server { calls: calls.clone(), breaks_after, knows_ranges };
    (Cache::with_fetch(folder, Sources::default(), Arc::new(server)).unwrap(), calls)
}

/// A deadline that nothing here reaches.
fn soon() -> Instant {
    Instant::now() + Duration::from_mins(1)
}

#[test]
fn a_broken_download_is_continued() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, calls) = cache(folder.path(), 8, true);
    assert_eq!(cache.obtain("t", "https://a.org/x", "x", soon()).unwrap(), CONTENT);
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    assert_eq!(cache.obtain("t", "https://a.org/x", "x", soon()).unwrap(), CONTENT);
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

#[test]
fn what_never_comes_whole_is_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, _) = cache(folder.path(), 8, false);
    assert!(matches!(cache.obtain("t", "https://a.org/x", "x", soon()), Err(DownloadError::Fetch { .. })));
    assert!(!cache.path("t", "https://a.org/x", "x").exists());
    let error = cache.obtain("t", "https://a.org/none", "y", soon()).unwrap_err();
    assert_eq!(error.to_string(), "https://a.org/none: status 404");
}

#[test]
fn sums_are_checked_also_of_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let sums = serde_json::json!({"https://a.org/x": "00".repeat(32)});
    std::fs::write(folder.path().join("checksums.json"), sums.to_string()).unwrap();
    let (cache, _) = cache(folder.path(), 100, true);
    let path = cache.path("t", "https://a.org/x", "x");
    assert!(matches!(cache.obtain("t", "https://a.org/x", "x", soon()), Err(DownloadError::Checksum { .. })));
    assert!(!path.exists());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, CONTENT).unwrap();
    assert!(matches!(cache.obtain("t", "https://a.org/x", "x", soon()), Err(DownloadError::Checksum { .. })));
}

/// The same name of the same task at two addresses, as the two generations of tasks have it.
#[test]
fn another_address_is_another_file() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, _) = cache(folder.path(), 100, true);
    assert_eq!(cache.obtain("t", "https://a.org/x", "gold.xlsx", soon()).unwrap(), CONTENT);
    assert_eq!(cache.obtain("t", "https://a.org/other", "gold.xlsx", soon()).unwrap(), b"other");
    assert_eq!(cache.obtain("t", "https://a.org/x", "gold.xlsx", soon()).unwrap(), CONTENT);
}

#[test]
fn a_cache_of_osworld_is_read_and_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, calls) = cache(folder.path(), 100, true);
    let original = folder.path().join("t/gold.xlsx");
    std::fs::create_dir_all(original.parent().unwrap()).unwrap();
    std::fs::write(&original, b"from OSWorld").unwrap();
    assert_eq!(
        cache.obtain_for_evaluator("t", "https://a.org/x", "gold.xlsx", soon()).unwrap(),
        b"from OSWorld"
    );
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    // in the set-up it would be what an agent made of the file
    assert_eq!(cache.obtain("t", "https://a.org/x", "gold.xlsx", soon()).unwrap(), CONTENT);
}

#[test]
fn a_web_page_or_half_a_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, _) = cache(folder.path(), 100, true);
    let error = cache.obtain("t", "https://a.org/page", "gold.xlsx", soon()).unwrap_err().to_string();
    assert!(error.contains("a web page instead of gold.xlsx"), "{error}");
    assert!(cache.obtain("t", "https://a.org/page", "index.html", soon()).is_ok());
    let error = cache.obtain("t", "https://a.org/short", "gold.xlsx", soon()).unwrap_err();
    assert_eq!(error.to_string(), "https://a.org/short: 21 bytes instead of 100");
    assert!(!cache.path("t", "https://a.org/short", "gold.xlsx").exists());
}

#[test]
fn many_desktops_fetch_a_file_once() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, calls) = cache(folder.path(), 100, true);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let content = cache.obtain("t", "https://a.org/x", "x", soon()).unwrap();
                assert_eq!(content, CONTENT);
            });
        }
    });
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

/// A server that takes as long as it is allowed to.
struct Slow;

impl Fetch for Slow {
    fn fetch(&self, _: &str, _: u64, limit: Duration) -> Result<Fetched, String> {
        std::thread::sleep(limit);
        Err("timeout".into())
    }
}

/// Neither for the server nor for another desktop that fetches the same file.
#[test]
fn nobody_waits_beyond_the_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::with_fetch(folder.path(), Sources::default(), Arc::new(Slow)).unwrap();
    let limit = Duration::from_millis(300);
    let problem = || {
        let began = Instant::now();
        let error = cache.obtain("t", "https://a.org/x", "x", began + limit).unwrap_err().to_string();
        assert!(began.elapsed() >= limit && began.elapsed() < Duration::from_secs(30));
        let start = "https://a.org/x was not there by the deadline: ";
        error.strip_prefix(start).unwrap_or_else(|| panic!("{error}")).to_owned()
    };
    assert_eq!(problem(), "0 bytes are there; the last attempt: timeout");
    let lock = std::fs::File::open(folder.path().join(".locks").join(UUID5)).unwrap();
    lock.lock().unwrap();
    assert_eq!(problem(), "another desktop is still fetching it");
}

#[test]
fn names_stay_in_their_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, _) = cache(folder.path(), 100, true);
    assert!(
        cache.path("../../etc", "https://a.org/x", "../../passwd").starts_with(folder.path().join("etc"))
    );
    // Python: uuid.uuid5(uuid.NAMESPACE_URL, "https://a.org/x").
    let path = cache.path("t", "https://a.org/x", "/home/user/b.txt");
    assert_eq!(path.file_name().unwrap().to_str().unwrap(), format!("{UUID5}_b.txt"));
}

const UUID5: &str = "e7ea042f-1037-5ea2-afd7-ac0e853f4ce7";
