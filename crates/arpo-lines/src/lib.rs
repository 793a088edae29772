//! Files of JSON lines that grow while they are read: every line once, in chunks, never the whole file at a time.
//!
//! A line that is not yet complete stays for the next time. A file that was cut back, as a resumed run cuts its metrics
//! back, is read again from its start. What a line means is the reader's business: viewers and trackers follow the same files
//! with different eyes.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

const CHUNK_BYTES: usize = 1 << 18;
/// Longer lines are skipped and counted as bad: no reader may need memory without a bound.
const MAX_LINE_BYTES: usize = 64 << 20;
/// The end of what was read, by which a file that was cut back and has grown again is recognised.
const TAIL_BYTES: usize = 256;

/// What has happened to a file since the last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// No new line.
    None,
    /// New lines at its end.
    Appended,
    /// It was cut back or replaced: everything was read again.
    Restarted,
}

/// A file of JSON lines, and how far it has been read.
#[derive(Debug, Clone)]
pub struct LineFile {
    path: PathBuf,
    position: u64,
    /// The last bytes before the position.
    tail: Vec<u8>,
    bad: u64,
    length: u64,
}

impl LineFile {
    /// A file that need not exist yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_path_buf(), position: 0, tail: vec![], bad: 0, length: 0 }
    }

    /// Lines that could not be used.
    pub fn bad(&self) -> u64 {
        self.bad
    }

    /// Bytes behind the last whole line: a line that is being written, or that never was finished.
    pub fn unfinished_bytes(&self) -> u64 {
        self.length.saturating_sub(self.position)
    }

    /// Gives every new line to `take`, with the byte where it begins; `take` says whether it could be used. `restart` is called
    /// before the lines of a file that begins anew. A file that does not exist has no lines.
    pub fn follow(
        &mut self,
        mut restart: impl FnMut(),
        mut take: impl FnMut(u64, &[u8]) -> bool,
    ) -> io::Result<Growth> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let known = self.position > 0;
                *self = Self::new(&self.path);
                if known {
                    restart();
                }
                return Ok(if known { Growth::Restarted } else { Growth::None });
            }
            Err(error) => return Err(error),
        };
        let length = file.metadata()?.len();
        if length == self.length && length == self.position {
            return Ok(Growth::None);
        }
        let restarted = length < self.position || !self.continues(&mut file)?;
        if restarted {
            *self = Self::new(&self.path);
            restart();
        }
        self.length = length;
        file.seek(SeekFrom::Start(self.position))?;
        let before = self.position;
        self.read_lines(&mut file.take(length - self.position), &mut take)?;
        Ok(match (restarted, self.position > before) {
            (true, _) => Growth::Restarted,
            (false, true) => Growth::Appended,
            (false, false) => Growth::None,
        })
    }

    /// Whether the bytes before the position are still those that were read.
    fn continues(&self, file: &mut File) -> io::Result<bool> {
        let mut found = vec![0; self.tail.len()];
        file.seek(SeekFrom::Start(self.position - self.tail.len() as u64))?;
        file.read_exact(&mut found)?;
        Ok(found == self.tail)
    }

    fn read_lines(
        &mut self,
        file: &mut impl Read,
        take: &mut impl FnMut(u64, &[u8]) -> bool,
    ) -> io::Result<()> {
        let (mut open, mut chunk) = (Vec::new(), vec![0; CHUNK_BYTES]);
        // of a line that is too long only its length is kept
        let mut skipped = 0_u64;
        loop {
            let count = file.read(&mut chunk)?;
            if count == 0 {
                return Ok(());
            }
            let mut rest = &chunk[..count];
            while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
                open.extend_from_slice(&rest[..end]);
                rest = &rest[end + 1..];
                let too_long = skipped > 0;
                let usable =
                    !too_long && (open.iter().all(u8::is_ascii_whitespace) || take(self.position, &open));
                self.bad += u64::from(!usable);
                self.position += skipped + open.len() as u64 + 1;
                open.push(b'\n');
                self.tail = open[open.len().saturating_sub(TAIL_BYTES)..].to_vec();
                (skipped, open) = (0, Vec::new());
            }
            open.extend_from_slice(rest);
            if open.len() > MAX_LINE_BYTES {
                skipped += open.len() as u64;
                open.clear();
            }
        }
    }
}

/// One line of a file: `length` bytes from `offset` on.
pub fn line_at(path: &Path, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    if length > MAX_LINE_BYTES as u64 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a line of {length} bytes")));
    }
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut line = vec![0; length as usize];
    file.read_exact(&mut line)?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    fn read(file: &mut LineFile) -> (Growth, Vec<(u64, String)>) {
        let mut lines = vec![];
        let growth = file
            .follow(
                || {},
                |offset, line| {
                    let text = String::from_utf8_lossy(line).into_owned();
                    let good = text.starts_with('{');
                    lines.push((offset, text));
                    good
                },
            )
            .unwrap();
        (growth, lines)
    }

    fn append(path: &Path, text: &str) {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn lines_come_once_and_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let mut file = LineFile::new(&path);
        assert_eq!(read(&mut file), (Growth::None, vec![]));
        append(&path, "{1}\nbroken\n{2");
        assert_eq!(read(&mut file), (Growth::Appended, vec![(0, "{1}".into()), (4, "broken".into())]));
        assert_eq!((file.bad(), file.unfinished_bytes()), (1, 2));
        append(&path, "2}\n\n");
        assert_eq!(read(&mut file), (Growth::Appended, vec![(11, "{22}".into())]));
        assert_eq!(read(&mut file), (Growth::None, vec![]));
        assert_eq!(line_at(&path, 11, 4).unwrap(), b"{22}");
        assert_eq!(file.bad(), 1, "an empty line is not a bad one");
    }

    #[test]
    fn a_file_that_was_cut_back_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let mut file = LineFile::new(&path);
        append(&path, "{1}\n{2}\n{3}\n");
        read(&mut file);
        // shorter
        fs::write(&path, "{1}\n").unwrap();
        assert_eq!(read(&mut file), (Growth::Restarted, vec![(0, "{1}".into())]));
        // longer, but not a continuation
        fs::write(&path, "{4}\n{5}\n").unwrap();
        assert_eq!(read(&mut file).0, Growth::Restarted);
        fs::remove_file(&path).unwrap();
        assert_eq!(read(&mut file), (Growth::Restarted, vec![]));
    }

    #[test]
    fn lines_across_chunks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let long = format!("{{{}}}", "x".repeat(CHUNK_BYTES * 2));
        append(&path, &format!("{long}\n{{2}}\n"));
        let (_, lines) = read(&mut LineFile::new(&path));
        assert_eq!((lines.len(), lines[0].1 == long, lines[1].0), (2, true, long.len() as u64 + 1));
    }
}
