//! TensorBoard: an event file in the folder `tensorboard/` of the run. It is written from the beginning by every process that
//! logs the run, and replaces the file of an earlier one, so nothing is in it twice.

use crate::event::{Event, png_size, version};
use crate::news::{Episode, Metrics, News};
use crate::records::record;
use crate::{Ending, TrackError, Tracker};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// How the name of an event file ends if this program wrote it.
const OURS: &str = ".arpo";

/// An event file.
#[derive(Debug)]
pub struct TensorBoard {
    path: PathBuf,
    file: File,
}

impl TensorBoard {
    /// A new file, which begins with the configuration as a text. Files that this program wrote before are removed.
    pub fn new(run: &Path) -> Result<Self, TrackError> {
        let folder = run.join("tensorboard");
        fs::create_dir_all(&folder).map_err(TrackError::io(folder.display()))?;
        for entry in fs::read_dir(&folder).map_err(TrackError::io(folder.display()))?.flatten() {
            if entry.file_name().to_string_lossy().ends_with(OURS) {
                fs::remove_file(entry.path()).map_err(TrackError::io(entry.path().display()))?;
            }
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = if host.trim().is_empty() { "host" } else { host.trim() };
        let (seconds, process) = (time.as_secs(), std::process::id());
        let path = folder.join(format!("events.out.tfevents.{seconds}.{host}.{process}{OURS}"));
        let file = File::create(&path).map_err(TrackError::io(path.display()))?;
        let mut board = Self { path, file };
        board.write(&version(time.as_secs_f64()))?;
        if let Ok(config) = fs::read_to_string(run.join("config.toml")) {
            let shown: String = config.lines().flat_map(|line| ["    ", line, "\n"]).collect();
            board.write(&Event::new(time.as_secs_f64(), 0).text("configuration", &shown).encoded())?;
        }
        Ok(board)
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write(&mut self, event: &[u8]) -> Result<(), TrackError> {
        self.file.write_all(&record(event)).map_err(TrackError::io(self.path.display()))
    }
}

/// The event of a line of metrics.
fn scalars(metrics: &Metrics) -> Event {
    let event = Event::new(metrics.time, metrics.iteration);
    metrics.values.iter().fold(event, |event, (name, value)| event.scalar(name, *value as f32))
}

/// The event of an episode.
fn shown(episode: &Episode) -> Event {
    let tag = format!("episodes/{}", episode.name);
    let event = Event::new(episode.time, episode.iteration).text(&tag, &episode.text);
    // the file may have been removed meanwhile
    let png = episode.screen.as_ref().and_then(|path| fs::read(path).ok());
    match png.as_ref().and_then(|png| Some((png, png_size(png)?))) {
        Some((png, size)) => event.image(&tag, png, size),
        None => event,
    }
}

impl Tracker for TensorBoard {
    fn name(&self) -> &'static str {
        "tensorboard"
    }

    fn log(&mut self, news: &News) -> Result<(), TrackError> {
        let events = news.metrics.iter().map(scalars).chain(news.episodes.iter().map(shown));
        for event in events.filter(|event| !event.is_empty()) {
            self.write(&event.encoded())?;
        }
        Ok(())
    }

    fn end(&mut self, _: Ending) -> Result<(), TrackError> {
        self.file.sync_all().map_err(TrackError::io(self.path.display()))
    }
}
