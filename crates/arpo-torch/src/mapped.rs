//! Files as memory: a checkpoint of many gigabytes is read page by page as its tensors are made.

use memmap2::Mmap;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

/// A file's bytes.
#[derive(Debug)]
pub struct MappedFile(Mmap);

impl MappedFile {
    /// Maps a file for reading. If another process shortens it while it is mapped, reading the lost part ends this
    /// process; checkpoints are written under another name and renamed, so ours never shrink in place.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        // SAFETY: the mapping is private and read-only; the one way to misuse it is named above.
        unsafe { Mmap::map(&file) }.map(Self)
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
