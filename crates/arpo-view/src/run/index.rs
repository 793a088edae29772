//! The index of a run's episodes: a short row for each, in memory; the episodes themselves stay on disk.
//!
//! Names that repeat (tasks, files) are kept once, so that 100 000 rows need some tens of megabytes.

use arpo_lines::{Growth, LineFile};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::path::Path;

/// Where an episode of a batch comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Collected in its iteration.
    #[default]
    Fresh,
    /// From the replay buffer.
    Replayed,
    /// Of an evaluation.
    Evaluation,
}

/// How an episode ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The agent ended it.
    #[default]
    Finished,
    /// It reached the step limit.
    StepLimit,
    /// A response could not be parsed.
    Unparsable,
    /// The desktop failed.
    EnvironmentError,
}

/// One episode of the index.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its name.
    pub id: Box<str>,
    /// The iteration whose batch it is in, or after which it was evaluated.
    pub iteration: u64,
    /// Where it comes from.
    pub origin: Origin,
    /// Of an evaluation: the set of tasks.
    pub set: Option<Box<str>>,
    /// Its task, in [`Index::tasks`].
    pub task: u32,
    /// Its group within the iteration.
    pub group: Option<u64>,
    /// The weights that acted.
    pub version: u64,
    /// Turns.
    pub turns: u32,
    /// Tokens.
    pub tokens: u64,
    /// The evaluator's score.
    pub score: f64,
    /// The reward, if it was trained on.
    pub reward: Option<f64>,
    /// The advantage, if it was trained on.
    pub advantage: Option<f64>,
    /// How it ended.
    pub outcome: Ending,
    /// Why, if it was a failure.
    pub reason: Option<Box<str>>,
    /// Unix time of its end; 0 if it is not known.
    pub time: f64,
    /// The digest of its first screenshot.
    pub first_screen: Option<Box<str>>,
    /// Its file, in [`Index::files`].
    pub file: u32,
    /// Where it begins there.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// What is known of a task.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskNames {
    /// Its name.
    pub task: Box<str>,
    /// What the user asks for.
    pub instruction: Option<Box<str>>,
    /// Its application.
    pub application: Option<Box<str>>,
}

/// Whether a person who looks for these words, in small letters, may mean a task.
pub(crate) fn is_meant(
    words: &str,
    task: &str,
    instruction: Option<&str>,
    application: Option<&str>,
) -> bool {
    let mut texts = [Some(task), instruction, application].into_iter().flatten();
    texts.any(|text| text.to_lowercase().contains(words))
}

/// A file with episodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpisodeFile {
    /// Its name in the folder of episodes.
    pub name: Box<str>,
    /// It was removed to make room.
    pub dropped: bool,
}

/// The index.
#[derive(Debug, Clone, Default)]
pub struct Index {
    /// In the order they were kept.
    pub rows: Vec<Row>,
    /// Tasks by number.
    pub tasks: Vec<TaskNames>,
    /// Files by number.
    pub files: Vec<EpisodeFile>,
    task_numbers: HashMap<Box<str>, u32>,
    file_numbers: HashMap<Box<str>, u32>,
}

/// A line of `index.jsonl`. What a line leaves out is unknown, not wrong.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Line<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    iteration: u64,
    origin: Origin,
    #[serde(borrow)]
    set: Option<Cow<'a, str>>,
    #[serde(borrow)]
    task: Cow<'a, str>,
    #[serde(borrow)]
    instruction: Option<Cow<'a, str>>,
    #[serde(borrow)]
    application: Option<Cow<'a, str>>,
    group: Option<u64>,
    version: u64,
    turns: u32,
    tokens: u64,
    score: f64,
    reward: Option<f64>,
    advantage: Option<f64>,
    outcome: Ending,
    #[serde(borrow)]
    reason: Option<Cow<'a, str>>,
    time: f64,
    #[serde(borrow)]
    first_screen: Option<Cow<'a, str>>,
    #[serde(borrow)]
    file: Cow<'a, str>,
    offset: u64,
    length: u64,
    #[serde(borrow)]
    dropped: Option<Cow<'a, str>>,
}

impl Index {
    /// The number of a task, which is new or known.
    pub fn task_number(&mut self, name: &str, instruction: Option<&str>, application: Option<&str>) -> u32 {
        let number = if let Some(&number) = self.task_numbers.get(name) {
            number
        } else {
            let number = self.tasks.len() as u32;
            self.task_numbers.insert(name.into(), number);
            self.tasks.push(TaskNames { task: name.into(), ..TaskNames::default() });
            number
        };
        let known = &mut self.tasks[number as usize];
        if known.instruction.is_none() {
            known.instruction = instruction.map(Into::into);
        }
        if known.application.is_none() {
            known.application = application.filter(|name| !name.is_empty()).map(Into::into);
        }
        number
    }

    /// The number of a file, which is new or known.
    pub fn file_number(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.file_numbers.get(name) {
            return number;
        }
        let number = self.files.len() as u32;
        self.file_numbers.insert(name.into(), number);
        self.files.push(EpisodeFile { name: name.into(), dropped: false });
        number
    }

    /// The number of a known task.
    pub fn known_task(&self, name: &str) -> Option<u32> {
        self.task_numbers.get(name).copied()
    }

    /// The name of a row's task.
    pub fn task_of(&self, row: &Row) -> &TaskNames {
        &self.tasks[row.task as usize]
    }

    /// The file of a row.
    pub fn file_of(&self, row: &Row) -> &EpisodeFile {
        &self.files[row.file as usize]
    }

    /// Whether the row's episode can still be read.
    pub fn is_kept(&self, row: &Row) -> bool {
        !self.file_of(row).dropped
    }

    /// The row of an episode by its file and name.
    pub fn find(&self, file: &str, id: &str) -> Option<&Row> {
        let file = *self.file_numbers.get(file)?;
        self.rows.iter().rev().find(|row| row.file == file && &*row.id == id)
    }

    /// Takes a line of `index.jsonl`; false if it is none.
    pub fn take_line(&mut self, line: &[u8]) -> bool {
        let Ok(line) = serde_json::from_slice::<Line>(line) else { return false };
        if let Some(dropped) = &line.dropped {
            let number = self.file_number(dropped);
            self.files[number as usize].dropped = true;
            return true;
        }
        if line.id.is_empty() || line.task.is_empty() || !is_file_name(&line.file) {
            return false;
        }
        let boxed = |text: &Option<Cow<str>>| text.as_deref().map(Box::from);
        let row = Row {
            id: (&*line.id).into(),
            iteration: line.iteration,
            origin: line.origin,
            set: boxed(&line.set),
            task: self.task_number(&line.task, line.instruction.as_deref(), line.application.as_deref()),
            group: line.group,
            version: line.version,
            turns: line.turns,
            tokens: line.tokens,
            score: line.score,
            reward: line.reward,
            advantage: line.advantage,
            outcome: line.outcome,
            reason: boxed(&line.reason),
            time: line.time,
            first_screen: boxed(&line.first_screen),
            file: self.file_number(&line.file),
            offset: line.offset,
            length: line.length,
        };
        // a resumed run repeats an iteration that was interrupted, and writes its file anew
        self.files[row.file as usize].dropped = false;
        self.rows.push(row);
        true
    }
}

/// A plain name: nothing that leads out of a folder.
pub(crate) fn is_file_name(name: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(plain)
}

/// The index of a run, with the file it follows.
#[derive(Debug, Clone)]
pub struct IndexFile {
    file: LineFile,
    /// What was read.
    pub index: Index,
}

impl IndexFile {
    /// An index that need not exist yet.
    pub fn new(path: &Path) -> Self {
        Self { file: LineFile::new(path), index: Index::default() }
    }

    /// Reads what is new.
    pub fn refresh(&mut self) -> io::Result<Growth> {
        let index = std::cell::RefCell::new(&mut self.index);
        self.file
            .follow(|| **index.borrow_mut() = Index::default(), |_, line| index.borrow_mut().take_line(line))
    }

    /// Lines that could not be read.
    pub fn bad(&self) -> u64 {
        self.file.bad()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_rows() {
        let mut index = Index::default();
        let line = br#"{"id":"7:t:3","iteration":7,"origin":"replayed","set":null,"task":"t","instruction":"do \"it\"",
            "application":"files","group":2,"version":6,"turns":4,"tokens":900,"score":1.0,"reward":1.0,"advantage":-0.5,
            "outcome":"step_limit","reason":null,"time":12.5,"first_screen":"abc","file":"iteration-000007.jsonl",
            "offset":10,"length":20,"something new":[1]}"#;
        assert!(index.take_line(line));
        let row = index.find("iteration-000007.jsonl", "7:t:3").unwrap();
        assert_eq!(
            (row.origin, row.outcome, row.advantage),
            (Origin::Replayed, Ending::StepLimit, Some(-0.5))
        );
        assert_eq!(index.task_of(row).instruction.as_deref(), Some("do \"it\""));
        assert!(index.is_kept(row));
        assert!(index.take_line(br#"{"dropped":"iteration-000007.jsonl"}"#));
        assert!(!index.is_kept(&index.rows[0]));
        for wrong in [
            r#"{"id":"a","task":"t","file":"../../etc/passwd"}"#,
            r#"{"id":"a","task":"t","file":".hidden"}"#,
            r#"{"id":"","task":"t","file":"f.jsonl"}"#,
            r#"{"id":"a","task":"t","file":"f.jsonl","score":"high"}"#,
            "[]",
            "{",
        ] {
            assert!(!index.take_line(wrong.as_bytes()), "{wrong}");
        }
        assert_eq!(index.rows.len(), 1);
    }
}
