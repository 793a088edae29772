//! Reads the lines of a file that grows, each once, as soon as it is whole.

use crate::TrackError;
use serde_json::Value;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Bytes that are read at once; a longer line is read in several passes.
const CHUNK: u64 = 4 << 20;

/// A file of JSON lines and how far it was read.
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    position: u64,
    /// The beginning of a line that is not whole yet.
    rest: Vec<u8>,
    /// Lines that are not JSON.
    pub bad: usize,
}

impl JsonLines {
    /// From the beginning of a file, which need not exist yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_path_buf(), position: 0, rest: vec![], bad: 0 }
    }

    /// Some of the lines that are new; none if all were read. Lines that are not JSON are skipped and counted.
    pub fn more(&mut self) -> Result<Vec<Value>, TrackError> {
        let mut file = match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(vec![]),
            file => file.map_err(TrackError::io(self.path.display()))?,
        };
        let length = file.metadata().map_err(TrackError::io(self.path.display()))?.len();
        if length < self.position {
            // a run that resumes cuts its files: from the beginning again
            self.position = 0;
            self.rest.clear();
        }
        let read = file.seek(SeekFrom::Start(self.position));
        let mut bytes = std::mem::take(&mut self.rest);
        let before = bytes.len();
        read.and_then(|_| file.take(CHUNK).read_to_end(&mut bytes))
            .map_err(TrackError::io(self.path.display()))?;
        self.position += (bytes.len() - before) as u64;
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        self.rest = bytes.split_off(whole);
        let mut lines = vec![];
        for line in bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(line) => lines.push(line),
                Err(_) => self.bad += 1,
            }
        }
        if lines.is_empty() && bytes.len() + self.rest.len() > before && self.position < length {
            return self.more();
        }
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;

    #[test]
    fn lines_come_once_and_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.jsonl");
        let mut lines = JsonLines::new(&path);
        assert!(lines.more().unwrap().is_empty(), "no file yet");
        fs::write(&path, "{\"a\": 1}\n{\"a\": ").unwrap();
        assert_eq!(lines.more().unwrap(), [json!({"a": 1})]);
        assert!(lines.more().unwrap().is_empty());
        fs::write(&path, "{\"a\": 1}\n{\"a\": 2}\nnonsense\n\n{\"a\": 3}\n").unwrap();
        assert_eq!(lines.more().unwrap(), [json!({"a": 2}), json!({"a": 3})]);
        assert_eq!(lines.bad, 1);
        // a resumed run has cut it
        fs::write(&path, "{\"a\": 9}\n").unwrap();
        assert_eq!(lines.more().unwrap(), [json!({"a": 9})]);
    }

    #[test]
    fn a_long_line_is_read_in_parts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.jsonl");
        let long = "x".repeat(CHUNK as usize * 2);
        fs::write(&path, format!("{}\n{}\n", json!({"text": long}), json!(7))).unwrap();
        let mut lines = JsonLines::new(&path);
        let mut all = vec![];
        while all.len() < 2 {
            let more = lines.more().unwrap();
            assert!(!more.is_empty());
            all.extend(more);
        }
        assert_eq!((all[0]["text"].as_str().unwrap().len(), &all[1]), (long.len(), &json!(7)));
    }
}
