//! Archives as Python's `shutil.unpack_archive` takes them: zip, tar, and tar in gzip, by the ending of their name.

use crate::error::MetricError;
use crate::package::Package;
use crate::state::FileState;
use flate2::read::MultiGzDecoder;
use std::collections::BTreeMap;
use std::io::Read;

/// What an archive may unpack to, and no more.
const SIZE_LIMIT_BYTES: u64 = 512 << 20;
const BLOCK: usize = 512;

/// The files of an archive by their paths; folders are `None`.
pub struct Archive(BTreeMap<String, Option<Vec<u8>>>);

impl Archive {
    /// Unpacks an archive in memory.
    pub fn open(file: &FileState) -> Result<Self, MetricError> {
        let ends = |endings: &[&str]| endings.iter().any(|ending| file.name.to_lowercase().ends_with(ending));
        if ends(&[".zip"]) {
            return Self::zip(file);
        }
        if ends(&[".tar"]) {
            return Self::tar(&file.bytes);
        }
        if ends(&[".tar.gz", ".tgz"]) {
            let mut unpacked = Vec::new();
            let limited = MultiGzDecoder::new(&file.bytes[..]).take(SIZE_LIMIT_BYTES + 1);
            let size = { limited }
                .read_to_end(&mut unpacked)
                .map_err(|error| MetricError::raises(format!("not gzip: {error}")))?;
            if size as u64 > SIZE_LIMIT_BYTES {
                return Err(MetricError::raises("an archive too large to unpack"));
            }
            return Self::tar(&unpacked);
        }
        if ends(&[".tar.bz2", ".tbz2", ".tar.xz", ".txz"]) {
            return Err(MetricError::Unsupported(format!(
                "the archive {}: expected zip, tar or tar.gz",
                file.name
            )));
        }
        Err(MetricError::raises(format!("{} is not an archive by its name", file.name)))
    }

    fn zip(file: &FileState) -> Result<Self, MetricError> {
        let package = Package::open(&file.bytes)?;
        let (mut files, mut size) = (BTreeMap::new(), 0);
        for name in package.names() {
            // the original leaves out what would lie outside of the folder
            if name.starts_with('/') || name.contains("..") {
                continue;
            }
            if name.ends_with('/') {
                files.insert(name.trim_end_matches('/').to_owned(), None);
                continue;
            }
            let content = package.read(name)?;
            size += content.len() as u64;
            if size > SIZE_LIMIT_BYTES {
                return Err(MetricError::raises("an archive too large to unpack"));
            }
            files.insert(name.clone(), Some(content));
        }
        Ok(Self(files))
    }

    /// Plain, GNU and POSIX headers; links and devices are left out.
    fn tar(bytes: &[u8]) -> Result<Self, MetricError> {
        let broken = || MetricError::raises("not a tar archive");
        let (mut files, mut at, mut long_name) = (BTreeMap::new(), 0, None);
        while let Some(header) = bytes.get(at..at + BLOCK).filter(|header| header[0] != 0) {
            let field = |from: usize, to: usize| {
                let field = &header[from..to];
                let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
                String::from_utf8_lossy(&field[..end]).into_owned()
            };
            let size = usize::from_str_radix(field(124, 136).trim(), 8).map_err(|_| broken())?;
            let content = bytes.get(at + BLOCK..).and_then(|rest| rest.get(..size)).ok_or_else(broken)?;
            at += BLOCK + size.div_ceil(BLOCK) * BLOCK;
            let prefix = if &header[257..262] == b"ustar" { field(345, 500) } else { String::new() };
            let plain = if prefix.is_empty() { field(0, 100) } else { format!("{prefix}/{}", field(0, 100)) };
            let name = |long: &mut Option<String>| {
                let name = long.take().unwrap_or_else(|| plain.clone());
                name.trim_start_matches("./").trim_end_matches('/').to_owned()
            };
            match header[156] {
                b'L' => long_name = Some(String::from_utf8_lossy(content).trim_end_matches('\0').to_owned()),
                b'x' => long_name = posix_path(content).or(long_name),
                b'0' | 0 => drop(files.insert(name(&mut long_name), Some(content.to_vec()))),
                b'5' => drop(files.insert(name(&mut long_name), None)),
                _ => long_name = None,
            }
        }
        if files.is_empty() && bytes.len() < BLOCK {
            return Err(broken());
        }
        Ok(Self(files))
    }

    /// What a folder of it holds, by name; folders are `None`.
    pub fn listed(self, folder: &str) -> Result<BTreeMap<String, Option<Vec<u8>>>, MetricError> {
        let folder = folder.trim_matches('/');
        let (mut listed, mut is_there) = (BTreeMap::new(), folder.is_empty());
        for (path, content) in self.0 {
            is_there |= path == folder;
            let inside = if folder.is_empty() {
                path.as_str()
            } else {
                let Some(inside) = path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')) else {
                    continue;
                };
                is_there = true;
                inside
            };
            match inside.split_once('/') {
                _ if inside.is_empty() => {}
                Some((name, _)) => drop(listed.entry(name.to_owned()).or_insert(None)),
                None => drop(listed.insert(inside.to_owned(), content)),
            }
        }
        if is_there {
            Ok(listed)
        } else {
            Err(MetricError::raises(format!("no folder {folder:?} in the archive")))
        }
    }
}

/// The path in an extended header: lines of `length key=value`.
fn posix_path(content: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(content);
    let path = text.lines().find_map(|line| line.split_once(' ')?.1.strip_prefix("path="))?;
    Some(path.to_owned())
}
