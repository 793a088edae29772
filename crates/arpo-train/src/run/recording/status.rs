//! `status.json` and `live/`: what the run and its desktops are doing now.
//!
//! Written at most twice a second, and thumbnails of a bounded number of desktops in that time, so that a run with a
//! thousand desktops pays no more for it than one with eight.

use crate::collect::board::{Board, DesktopNow, DesktopState};
use crate::episode::EpisodeScreen;
use crate::run::RunError;
use crate::run::about::unix_time;
use crate::run::durable::{make_folder, replace_file};
use arpo_env::environment::encode_png;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Shortest time between two writes of the state.
const EVERY: Duration = Duration::from_millis(500);

/// An unchanged state is written again after this time, so that a reader sees that the run is alive.
const UNCHANGED: Duration = Duration::from_secs(5);

/// Shortest time between two thumbnails of a desktop.
const THUMBNAIL_EVERY: Duration = Duration::from_secs(2);

/// Most thumbnails at once.
const THUMBNAILS: usize = 2;

/// Most pixels of a thumbnail in width.
const THUMBNAIL_WIDTH: u32 = 480;

/// What a run is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It collects episodes.
    #[default]
    Collect,
    /// It makes updates.
    Learn,
    /// It evaluates the agent.
    Evaluate,
    /// It writes a checkpoint.
    Save,
    /// It has ended.
    Ended,
}

/// How far a run has come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// What it is doing.
    pub phase: Phase,
    /// The iteration, from 1; in an evaluation, the one after which it is.
    pub iteration: u64,
    /// Episodes that have ended in this phase.
    pub finished: usize,
    /// Episodes of this phase.
    pub total: usize,
    /// Of those that have ended, the successes.
    pub successes: usize,
}

#[derive(Serialize)]
struct Status<'a> {
    time: f64,
    phase: Phase,
    iteration: u64,
    of: u64,
    finished: usize,
    total: usize,
    successes: usize,
    desktops: &'a [DesktopLine],
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct DesktopLine {
    desktop: usize,
    host: Option<String>,
    state: DesktopState,
    task: Option<String>,
    episode: Option<String>,
    turn: usize,
    since: f64,
    screen: Option<String>,
}

/// Keeps the state of a run up to date.
pub struct Live {
    run: PathBuf,
    board: Arc<Board>,
    /// Iterations in all.
    of: u64,
    desktops: Vec<DesktopLine>,
    screens: BTreeMap<usize, EpisodeScreen>,
    /// When the thumbnail of a desktop was written, and of which screenshot.
    thumbnails: BTreeMap<usize, (Instant, String)>,
    looked: Option<Instant>,
    written: Option<(Instant, Progress, Vec<DesktopLine>)>,
}

impl Live {
    /// For a run of this many iterations; thumbnails of an earlier process are removed.
    pub fn new(run: PathBuf, board: Arc<Board>, of: u64) -> Self {
        let _ = fs::remove_dir_all(run.join("live"));
        board.ask();
        let (screens, thumbnails) = (BTreeMap::new(), BTreeMap::new());
        Self { run, board, of, desktops: vec![], screens, thumbnails, looked: None, written: None }
    }

    /// Whether it is time to look again.
    pub(super) fn is_due(&self) -> bool {
        self.looked.is_none_or(|looked| looked.elapsed() >= EVERY)
    }

    /// The host of a desktop, as far as it is known.
    pub(super) fn host_of(&self, desktop: usize) -> Option<String> {
        self.desktops.iter().find(|line| line.desktop == desktop)?.host.clone()
    }

    /// Writes what has changed, if it is time.
    pub fn update(&mut self, progress: &Progress) -> Result<(), RunError> {
        if !self.is_due() {
            return Ok(());
        }
        self.looked = Some(Instant::now());
        if let Some(now) = self.board.take() {
            self.desktops = lines(&self.desktops, &now, unix_time());
            let screens = now.into_iter().filter_map(|one| Some((one.desktop, one.screen?)));
            self.screens = screens.collect();
        }
        self.board.ask();
        self.write_thumbnails()?;
        let same = |(at, before, desktops): &(Instant, Progress, Vec<DesktopLine>)| {
            before == progress && *desktops == self.desktops && at.elapsed() < UNCHANGED
        };
        if self.written.as_ref().is_some_and(same) {
            return Ok(());
        }
        self.write(progress)
    }

    /// Writes the last state: ended, no desktops.
    pub(super) fn end(&mut self, progress: &Progress) -> Result<(), RunError> {
        self.desktops.clear();
        self.write(&Progress { phase: Phase::Ended, ..progress.clone() })
    }

    fn write(&mut self, progress: &Progress) -> Result<(), RunError> {
        let path = self.run.join("status.json");
        let &Progress { phase, iteration, finished, total, successes } = progress;
        let (time, of, desktops) = (unix_time(), self.of, self.desktops.as_slice());
        let status = Status { time, phase, iteration, of, finished, total, successes, desktops };
        let mut text = serde_json::to_vec(&status)
            .map_err(|error| RunError::file(&path, format!("cannot be written: {error}")))?;
        text.push(b'\n');
        replace_file(&path, &text)?;
        self.written = Some((Instant::now(), progress.clone(), self.desktops.clone()));
        Ok(())
    }

    /// The thumbnails that are due longest, a few at a time.
    fn write_thumbnails(&mut self) -> Result<(), RunError> {
        let due = |(desktop, screen): (&usize, &EpisodeScreen)| {
            let before = self.thumbnails.get(desktop);
            let is_new = before.is_none_or(|(_, digest)| *digest != **screen.digest());
            let waited = before.map(|(at, _)| at.elapsed());
            (is_new && waited.is_none_or(|waited| waited >= THUMBNAIL_EVERY)).then_some((*desktop, waited))
        };
        let mut due: Vec<(usize, Option<Duration>)> = self.screens.iter().filter_map(due).collect();
        due.sort_by_key(|(desktop, waited)| (std::cmp::Reverse(waited.unwrap_or(Duration::MAX)), *desktop));
        for (desktop, _) in due.into_iter().take(THUMBNAILS) {
            let Some(screen) = self.screens.get(&desktop) else { continue };
            let path = thumbnail_path(&self.run, desktop);
            // a screenshot that cannot be encoded is the collector's to report
            if let Some(png) = thumbnail(screen) {
                path.parent().map_or(Ok(()), make_folder)?;
                replace_file(&path, &png)?;
            }
            self.thumbnails.insert(desktop, (Instant::now(), screen.digest().to_string()));
        }
        Ok(())
    }
}

fn thumbnail_path(run: &Path, desktop: usize) -> PathBuf {
    run.join("live").join(format!("desktop-{desktop:03}.png"))
}

/// A screenshot as a PNG of at most [`THUMBNAIL_WIDTH`] pixels in width.
fn thumbnail(screen: &EpisodeScreen) -> Option<Vec<u8>> {
    let (width, height) = screen.size();
    if width <= THUMBNAIL_WIDTH {
        return screen.png().ok().map(|png| png.to_vec());
    }
    let small = (u64::from(height) * u64::from(THUMBNAIL_WIDTH)).div_ceil(u64::from(width));
    encode_png(&image::imageops::thumbnail(&*screen.image().ok()?, THUMBNAIL_WIDTH, small.max(1) as u32)).ok()
}

/// The desktops now; each has been as it is since it was first seen so.
fn lines(before: &[DesktopLine], now: &[DesktopNow], time: f64) -> Vec<DesktopLine> {
    let known: BTreeMap<usize, &DesktopLine> = before.iter().map(|line| (line.desktop, line)).collect();
    let line = |one: &DesktopNow| {
        let episode = one.episode.as_ref().map(ToString::to_string);
        let same = known
            .get(&one.desktop)
            .filter(|line| (line.state, line.turn) == (one.state, one.turn) && line.episode == episode);
        DesktopLine {
            desktop: one.desktop,
            host: one.host.clone(),
            state: one.state,
            task: one.task.as_ref().map(ToString::to_string),
            episode,
            turn: one.turn,
            since: same.map_or(time, |line| line.since),
            screen: one.screen.as_ref().map(|screen| screen.digest().to_string()),
        }
    };
    now.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arpo_core::task::TaskId;
    use image::RgbImage;

    fn now(state: DesktopState, turn: usize) -> DesktopNow {
        let (task, screen) = (Some(TaskId::new("t")), None);
        DesktopNow { desktop: 3, host: Some("h".into()), state, task, episode: None, turn, screen }
    }

    #[test]
    fn a_state_begins_when_it_is_first_seen() {
        let first = lines(&[], &[now(DesktopState::Waiting, 1)], 10.0);
        let second = lines(&first, &[now(DesktopState::Waiting, 1)], 11.0);
        assert_eq!(second, first);
        let third = lines(&second, &[now(DesktopState::Acting, 1)], 12.0);
        assert_eq!((third[0].since, third[0].host.as_deref()), (12.0, Some("h")));
        let fourth = lines(&third, &[now(DesktopState::Acting, 2)], 13.0);
        assert_eq!((fourth[0].since, fourth[0].turn), (13.0, 2));
    }

    #[test]
    fn large_screens_become_small_and_small_ones_stay() {
        let shown = |width, height| {
            let image = RgbImage::from_fn(width, height, |x, y| image::Rgb([x as u8, y as u8, 7]));
            let png = thumbnail(&EpisodeScreen::new(Arc::new(image), None)).unwrap();
            let image = image::load_from_memory(&png).unwrap();
            (image.width(), image.height())
        };
        assert_eq!(shown(1920, 1080), (480, 270));
        assert_eq!(shown(168, 140), (168, 140));
        assert_eq!(shown(4000, 1), (480, 1));
    }
}
