//! A run folder, read as it grows. Nothing is ever written into it.
//!
//! | to change | look in |
//! |---|---|
//! | metrics as columns | [`metrics`] |
//! | the index of episodes | [`index`]; without one: [`old_episodes`] |
//! | evaluations | [`evaluations`] |
//! | the state of a run | [`info`] |
//! | the matrix of tasks | [`tasks`] |
//! | the replay buffer | [`replay`] |
//! | screenshots and thumbnails | [`screens`] |

pub mod evaluations;
pub mod index;
pub mod info;
pub mod metrics;
pub mod old_episodes;
pub mod replay;
pub mod screens;
pub mod tasks;

use crate::ViewError;
use crate::episode::marks::ActionSpace;
use crate::episode::stored::StoredEpisode;
use crate::episode::{Episode, tokens};
use crate::results::{Results, is_results};
use arpo_lines::{Growth, LineFile, line_at};
use evaluations::Evaluations;
use index::{Index, IndexFile, Row};
use info::{Info, State, now};
use metrics::Metrics;
use old_episodes::OldEpisodes;
use serde::Serialize;
use serde_json::Value;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// Failures that are kept in memory, the last ones.
const KEPT_FAILURES: usize = 200;

/// A run, or a folder of results, and what has been read of it.
#[derive(Debug)]
pub struct Run {
    path: PathBuf,
    /// Its metrics.
    pub metrics: Metrics,
    /// What it says of itself.
    pub info: Info,
    /// Its evaluations.
    pub evaluations: Evaluations,
    episodes: Episodes,
    failures: Failures,
    /// Counts changes of the episodes.
    episode_changes: u64,
}

#[derive(Debug)]
enum Episodes {
    Indexed(Box<IndexFile>),
    Old(Box<OldEpisodes>),
    Results(Box<Results>),
}

#[derive(Debug)]
struct Failures {
    file: LineFile,
    count: u64,
    last: VecDeque<Value>,
}

/// How far a run has been read: changes whenever there is something new to show.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Progress {
    /// Lines of metrics.
    pub rows: usize,
    /// Changes when they were read again.
    pub generation: u64,
    /// Episodes in the index.
    pub episodes: usize,
    /// Changes with them.
    pub episode_changes: u64,
    /// Desktop failures.
    pub failures: u64,
    /// Evaluations.
    pub evaluations: usize,
    /// The time of its live state.
    pub status_time: f64,
    /// Its state.
    pub state: State,
    /// Lines that could not be read.
    pub bad_lines: u64,
}

/// Whether a folder is a run.
pub fn is_run(folder: &Path) -> bool {
    ["config.toml", "metrics.jsonl", "run.json"].iter().any(|name| folder.join(name).is_file())
}

impl Run {
    /// Opens a run folder or a folder of OSWorld's results, and reads it.
    pub fn open(path: &Path) -> Result<Self, ViewError> {
        if !path.is_dir() {
            return Err(ViewError::file(path, "no such folder; expected a run folder or OSWorld's results"));
        }
        let episodes = path.join("episodes");
        let source = if is_run(path) {
            Episodes::Old(Box::new(OldEpisodes::new(&episodes)))
        } else if is_results(path) {
            Episodes::Results(Box::new(Results::new(path)))
        } else {
            let expected =
                "expected config.toml or metrics.jsonl of a run, or OSWorld's results (traj.jsonl) in it";
            return Err(ViewError::file(path, expected));
        };
        let mut run = Self {
            path: path.to_path_buf(),
            metrics: Metrics::new(&path.join("metrics.jsonl")),
            info: Info::default(),
            evaluations: Evaluations::new(&path.join("evaluations")),
            episodes: source,
            failures: Failures {
                file: LineFile::new(&path.join("failures.jsonl")),
                count: 0,
                last: VecDeque::new(),
            },
            episode_changes: 0,
        };
        run.refresh()?;
        Ok(run)
    }

    /// Reads what is new.
    pub fn refresh(&mut self) -> Result<(), ViewError> {
        self.info = Info::read(&self.path);
        self.metrics.refresh().map_err(ViewError::io(&self.path.join("metrics.jsonl"), "read"))?;
        self.evaluations.refresh();
        let folder = self.path.join("episodes");
        let index = folder.join("index.jsonl");
        if let Episodes::Old(_) = self.episodes
            && index.is_file()
        {
            self.episodes = Episodes::Indexed(Box::new(IndexFile::new(&index)));
        }
        let changed = match &mut self.episodes {
            Episodes::Indexed(file) => {
                let growth = file.refresh().map_err(ViewError::io(&index, "read"))?;
                growth != Growth::None
            }
            Episodes::Old(old) => old.refresh().map_err(ViewError::io(&folder, "read"))?,
            Episodes::Results(results) => results.refresh(),
        };
        self.episode_changes += u64::from(changed);
        self.failures.refresh().map_err(ViewError::io(&self.path.join("failures.jsonl"), "read"))
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its episodes.
    pub fn index(&self) -> &Index {
        match &self.episodes {
            Episodes::Indexed(file) => &file.index,
            Episodes::Old(old) => &old.index,
            Episodes::Results(results) => &results.index,
        }
    }

    /// Whether it is a folder of OSWorld's results.
    pub fn is_results(&self) -> bool {
        matches!(self.episodes, Episodes::Results(_))
    }

    /// Its state now.
    pub fn state(&self) -> State {
        if self.is_results() { State::Results } else { self.info.state(&self.metrics, now()) }
    }

    /// Lines that could not be read, in all its files.
    pub fn bad_lines(&self) -> u64 {
        let episodes = match &self.episodes {
            Episodes::Indexed(file) => file.bad(),
            Episodes::Old(old) => old.bad(),
            Episodes::Results(results) => results.bad(),
        };
        self.metrics.bad() + episodes + self.failures.file.bad()
    }

    /// Its last failures, the newest first, and how many there were.
    pub fn failures(&self) -> (impl Iterator<Item = &Value>, u64) {
        (self.failures.last.iter().rev(), self.failures.count)
    }

    /// How far it has been read.
    pub fn progress(&self) -> Progress {
        Progress {
            rows: self.metrics.rows(),
            generation: self.metrics.generation(),
            episodes: self.index().rows.len(),
            episode_changes: self.episode_changes,
            failures: self.failures.count,
            evaluations: self.evaluations.by_iteration.len(),
            status_time: self.info.status["time"].as_f64().unwrap_or(0.0),
            state: self.state(),
            bad_lines: self.bad_lines(),
        }
    }

    /// The turns of an episode, read from its file by its offset.
    pub fn episode(&mut self, file: &str, id: &str) -> Result<(Row, Episode), ViewError> {
        let missing = || ViewError::Missing(format!("there is no episode {id} in {file}"));
        let row = self.index().find(file, id).cloned().ok_or_else(missing)?;
        if let Episodes::Results(results) = &mut self.episodes {
            let episode = results.episode(&row)?;
            return Ok((row, episode));
        }
        if !self.index().is_kept(&row) {
            let problem = "was removed to make room for newer ones (the run's disk budget for episodes)";
            return Err(ViewError::Missing(format!("{file} {problem}")));
        }
        let path = self.path.join("episodes").join(file);
        let line = line_at(&path, row.offset, row.length).map_err(ViewError::io(&path, "read"))?;
        let stored: StoredEpisode = serde_json::from_slice(&line).map_err(|error| {
            ViewError::file(&path, format!("byte {}: not an episode: {error}", row.offset))
        })?;
        let tokens = tokens::read(&path.with_extension("tokens.jsonl"), id);
        Ok((row, Episode::of(&stored, &ActionSpace::of_config(&self.info.config), tokens)))
    }

    /// The file of a screenshot by its digest; `None` if there is none.
    pub fn screen_path(&self, digest: &str) -> Result<Option<PathBuf>, ViewError> {
        screens::check_digest(digest)?;
        if let Episodes::Results(results) = &self.episodes {
            return Ok(results.screen_path(digest).map(Path::to_path_buf));
        }
        let found = ["episodes/screens", "screens"].iter().flat_map(|folder| {
            let folder = self.path.join(folder);
            [folder.join(&digest[..2]).join(format!("{digest}.png")), folder.join(format!("{digest}.png"))]
        });
        Ok(found.into_iter().find(|path| path.is_file()))
    }

    /// The last screenshot of a desktop.
    pub fn live_path(&self, desktop: u32) -> PathBuf {
        self.path.join("live").join(format!("desktop-{desktop:03}.png"))
    }
}

impl Failures {
    fn refresh(&mut self) -> std::io::Result<()> {
        let Self { file, count, last } = self;
        let (mut restarted, mut new) = (false, vec![]);
        file.follow(
            || restarted = true,
            |_, line| match serde_json::from_slice::<Value>(line) {
                Ok(failure @ Value::Object(_)) => {
                    new.push(failure);
                    true
                }
                _ => false,
            },
        )?;
        if restarted {
            (*count, *last) = (0, VecDeque::new());
        }
        *count += new.len() as u64;
        last.extend(new);
        last.drain(..last.len().saturating_sub(KEPT_FAILURES));
        Ok(())
    }
}
