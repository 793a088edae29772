//! `metrics.jsonl`: one JSON object per iteration. A resumed run truncates the file to the position of its checkpoint, so
//! that it ends with the same file as an uninterrupted run.

use super::RunError;
use serde::Serialize;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The file, open for the next line.
#[derive(Debug)]
pub struct MetricsLog {
    path: PathBuf,
    file: File,
    position: u64,
}

impl MetricsLog {
    /// Opens or creates the file and truncates it to a position.
    pub(super) fn open_at(path: &Path, position: u64) -> Result<Self, RunError> {
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = opened.map_err(RunError::io(path, "opened"))?;
        let length = file.metadata().map_err(RunError::io(path, "read"))?.len();
        if length < position {
            return Err(RunError::file(
                path,
                format!("has {length} bytes: expected at least the {position} of the checkpoint"),
            ));
        }
        if position > 0 {
            let mut last = [0];
            file.seek(SeekFrom::Start(position - 1))
                .and_then(|_| file.read_exact(&mut last))
                .map_err(RunError::io(path, "read"))?;
            if last != *b"\n" {
                return Err(RunError::file(path, format!("expected a line to end at byte {position}")));
            }
        }
        if length > position {
            file.set_len(position).map_err(RunError::io(path, "cut back"))?;
        }
        file.seek(SeekFrom::Start(position)).map_err(RunError::io(path, "read"))?;
        Ok(Self { path: path.to_path_buf(), file, position })
    }

    /// Adds a line. If it cannot be written, the file stays as it was.
    pub fn append(&mut self, line: &impl Serialize) -> Result<(), RunError> {
        let wrong = |error| RunError::file(&self.path, format!("a line cannot be written: {error}"));
        let mut bytes = serde_json::to_vec(line).map_err(wrong)?;
        bytes.push(b'\n');
        if let Err(error) = self.file.write_all(&bytes).and_then(|()| self.file.flush()) {
            let _ = self.file.set_len(self.position);
            let _ = self.file.seek(SeekFrom::Start(self.position));
            return Err(RunError::io(&self.path, "written")(error));
        }
        self.position += bytes.len() as u64;
        Ok(())
    }

    /// Where the next line begins; saved in checkpoints.
    pub fn position(&self) -> u64 {
        self.position
    }
}

/// Bytes of a file up to the end of its last whole line.
pub fn whole_lines(path: &Path) -> Result<u64, RunError> {
    whole(path).map(|lines| lines.len() as u64)
}

/// The whole lines of a file, without the one that an active run has half written.
fn whole(path: &Path) -> Result<Vec<u8>, RunError> {
    let mut bytes = fs::read(path).map_err(RunError::io(path, "read"))?;
    bytes.truncate(bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1));
    Ok(bytes)
}

/// The lines of a file. A line that is not JSON is an error, unlike for a viewer: results are computed from these.
pub fn read(path: &Path) -> Result<Vec<Value>, RunError> {
    whole(path)?
        .split(|&byte| byte == b'\n')
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(|(number, line)| {
            serde_json::from_slice(line)
                .map_err(|error| RunError::file(path, format!("line {}: not JSON: {error}", number + 1)))
        })
        .collect()
}
