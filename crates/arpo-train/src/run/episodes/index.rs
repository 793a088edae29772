//! `episodes/index.jsonl`: a line for each episode that is kept, so that a viewer finds episodes without reading them.
//!
//! Lines are appended, each whole; a file that was removed is named by a line of its own. A run that resumes replaces the index
//! by one of what is still there, and so does a file that takes the place of another.

use super::budget::EpisodeFile;
use crate::run::RunError;
use crate::run::durable::{make_folder, write_file};
use arpo_core::task::TaskId;
use arpo_core::trajectory::{EpisodeId, Outcome, Trajectory};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Where an episode comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EpisodeOrigin {
    /// Collected for its iteration.
    Fresh,
    /// A stored success that took the place of a member of a group.
    Replayed,
    /// Collected to evaluate the agent.
    Evaluation,
}

/// What is known of an episode besides its trajectory.
#[derive(Debug, Clone, PartialEq)]
pub struct EpisodeAbout {
    /// Where it comes from.
    pub origin: EpisodeOrigin,
    /// The set of tasks that was evaluated.
    pub set: Option<&'static str>,
    /// What the agent was asked for.
    pub instruction: Option<String>,
    /// The task's application.
    pub application: Option<String>,
    /// Its group among those of the iteration.
    pub group: Option<usize>,
    /// What it was trained with.
    pub reward: Option<f64>,
    /// Relative to its group; `None` if it was not trained on.
    pub advantage: Option<f64>,
    /// When it was handed over, in Unix seconds.
    pub time: f64,
}

/// The line of an episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IndexLine {
    /// The episode's name.
    pub id: EpisodeId,
    /// The iteration it was trained in, or after which it was evaluated.
    pub iteration: u64,
    /// Where it comes from.
    pub origin: EpisodeOrigin,
    /// The set of tasks that was evaluated.
    pub set: Option<String>,
    /// Its task.
    pub task: TaskId,
    /// What the agent was asked for.
    pub instruction: Option<String>,
    /// The task's application.
    pub application: Option<String>,
    /// Its group among those of the iteration.
    pub group: Option<usize>,
    /// The version of the weights that acted.
    pub version: u64,
    /// Responses.
    pub turns: usize,
    /// Tokens of the responses.
    pub tokens: usize,
    /// The evaluator's score.
    pub score: f64,
    /// What it was trained with.
    pub reward: Option<f64>,
    /// Relative to its group; `None` if it was not trained on.
    pub advantage: Option<f64>,
    /// How it ended.
    pub outcome: String,
    /// Why, if that is not clear from the outcome.
    pub reason: Option<String>,
    /// When it was handed over, in Unix seconds.
    pub time: f64,
    /// The digest of its first screenshot.
    pub first_screen: Option<String>,
    /// The file that holds its trajectory.
    pub file: String,
    /// Where its line begins there.
    pub offset: u64,
    /// Bytes of its line, the line break left out.
    pub length: u64,
}

impl IndexLine {
    /// The line of a trajectory that is stored at this place.
    pub(super) fn new(
        trajectory: &Trajectory,
        about: &EpisodeAbout,
        file: EpisodeFile,
        offset: u64,
        length: u64,
    ) -> Self {
        let (outcome, reason) = match &trajectory.outcome {
            Outcome::Finished {} => ("finished", None),
            Outcome::StepLimit {} => ("step_limit", None),
            Outcome::Unparsable { reason } => ("unparsable", Some(reason.clone())),
            Outcome::EnvironmentError { reason } => ("environment_error", Some(reason.clone())),
        };
        Self {
            id: trajectory.id.clone(),
            iteration: file.number,
            origin: about.origin,
            set: about.set.map(str::to_owned),
            task: trajectory.task.clone(),
            instruction: about.instruction.clone(),
            application: about.application.clone(),
            group: about.group,
            version: trajectory.policy_version.0,
            turns: trajectory.steps.len(),
            tokens: trajectory.trained_tokens(),
            score: trajectory.score,
            reward: about.reward,
            advantage: about.advantage,
            outcome: outcome.to_owned(),
            reason,
            time: about.time,
            first_screen: trajectory.steps.first().map(|step| step.observation.screenshot.digest.clone()),
            file: file.to_string(),
            offset,
            length,
        }
    }
}

/// The index, open for more lines.
#[derive(Debug)]
pub(super) struct Index {
    path: PathBuf,
    length: u64,
}

impl Index {
    /// Opens the index and leaves only the whole lines of files that `kept` wants; returns the files they name.
    pub(super) fn repaired(
        folder: &Path,
        kept: impl Fn(EpisodeFile) -> bool,
    ) -> Result<(Self, Vec<EpisodeFile>), RunError> {
        let path = folder.join("index.jsonl");
        let bytes =
            if path.exists() { fs::read(&path).map_err(RunError::io(&path, "read"))? } else { vec![] };
        let file_of = |line: &[u8]| -> Option<EpisodeFile> {
            let line: Value = serde_json::from_slice(line).ok()?;
            line["file"].as_str()?.parse().ok()
        };
        let (mut whole, mut files) = (Vec::with_capacity(bytes.len()), vec![]);
        for line in bytes.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            if let Some(file) = file_of(line).filter(|file| kept(*file)) {
                whole.extend_from_slice(line);
                if files.last() != Some(&file) {
                    files.push(file);
                }
            }
        }
        if whole != bytes {
            write_file(&path, &whole)?;
        }
        files.sort_unstable();
        files.dedup();
        Ok((Self { path, length: whole.len() as u64 }, files))
    }

    /// The lines of a file.
    pub(super) fn lines(&self, file: EpisodeFile) -> Result<Vec<IndexLine>, RunError> {
        let text = fs::read_to_string(&self.path).map_err(RunError::io(&self.path, "read"))?;
        let name = file.to_string();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<IndexLine>(line).ok());
        Ok(lines.filter(|line| line.file == name).collect())
    }

    /// Appends lines in one write. If they cannot be written, the index stays as it was.
    pub(super) fn append<T: Serialize>(&mut self, lines: &[T]) -> Result<(), RunError> {
        let wrong = |error| RunError::file(&self.path, format!("a line cannot be written: {error}"));
        let mut bytes = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut bytes, line).map_err(wrong)?;
            bytes.push(b'\n');
        }
        make_folder(self.path.parent().unwrap_or(Path::new(".")))?;
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(&self.path)
            .map_err(RunError::io(&self.path, "opened"))?;
        if let Err(error) = file.write_all(&bytes) {
            let _ = file.set_len(self.length);
            return Err(RunError::io(&self.path, "written")(error));
        }
        self.length += bytes.len() as u64;
        Ok(())
    }
}
