//! Episodes without an index, as `arpo rollout` and older versions wrote them: the index is made by reading their files once.

use super::index::{Index, Origin, Row, is_file_name};
use crate::episode::stored::StoredEpisode;
use arpo_lines::LineFile;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The files of a folder and the index of their episodes.
#[derive(Debug, Clone)]
pub struct OldEpisodes {
    folder: PathBuf,
    files: BTreeMap<String, LineFile>,
    /// The index so far.
    pub index: Index,
}

impl OldEpisodes {
    /// The episodes in a folder that need not exist.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), files: BTreeMap::new(), index: Index::default() }
    }

    /// Reads what is new; returns whether there was anything.
    pub fn refresh(&mut self) -> io::Result<bool> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if is_episode_file(&name) && !self.files.contains_key(&name) {
                self.files.insert(name.clone(), LineFile::new(&self.folder.join(&name)));
            }
        }
        let before = self.index.rows.len();
        for (name, file) in &mut self.files {
            let (iteration, origin) = iteration_of(name);
            let number = self.index.file_number(name);
            let index = std::cell::RefCell::new(&mut self.index);
            file.follow(
                || index.borrow_mut().rows.retain(|row| row.file != number),
                |offset, line| {
                    let Ok(episode) = serde_json::from_slice::<StoredEpisode>(line) else { return false };
                    let mut index = index.borrow_mut();
                    let task = index.task_number(&episode.task, None, None);
                    let (outcome, reason) = episode.ending();
                    index.rows.push(Row {
                        iteration,
                        origin,
                        set: None,
                        task,
                        group: None,
                        version: episode.policy_version,
                        turns: episode.steps.len() as u32,
                        tokens: episode.steps.iter().map(|step| step.span.len() as u64).sum(),
                        score: episode.score,
                        reward: None,
                        advantage: None,
                        outcome,
                        reason: reason.map(Into::into),
                        time: 0.0,
                        first_screen: episode
                            .steps
                            .first()
                            .map(|step| (*step.observation.screenshot.digest).into()),
                        file: number,
                        offset,
                        length: line.len() as u64,
                        id: episode.id.into(),
                    });
                    true
                },
            )?;
        }
        Ok(self.index.rows.len() != before)
    }

    /// Lines that could not be read.
    pub fn bad(&self) -> u64 {
        self.files.values().map(LineFile::bad).sum()
    }
}

fn is_episode_file(name: &str) -> bool {
    is_file_name(name)
        && Path::new(name).extension().is_some_and(|ending| ending == "jsonl")
        && !name.ends_with(".tokens.jsonl")
        && name != "index.jsonl"
}

/// The iteration in a file's name, and what its episodes are.
fn iteration_of(name: &str) -> (u64, Origin) {
    let stem = name.trim_end_matches(".jsonl");
    let origin = if stem.starts_with("evaluation") { Origin::Evaluation } else { Origin::Fresh };
    (stem.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(0), origin)
}
