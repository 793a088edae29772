//! The record of an episode, written while it runs.
//!
//! The score comes last and is written atomically: a folder with a score is complete, and a folder without one is
//! started again. Other files of a task's folder are not touched.
//!
//! A call that came back too late still belongs to its attempt: once the next attempt has begun, it writes nothing.

use super::{ACTIONS_FILE, LOG_FILE, RECORDING_FILE, SCORE_FILE};
use jiff::Zoned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One pass over a list of tasks. Clones share the count of attempts.
#[derive(Debug, Clone)]
pub struct Trial {
    folder: PathBuf,
    attempts: Arc<Mutex<BTreeMap<PathBuf, Attempts>>>,
}

/// How many attempts of a task have begun. Held while something is written into the task's folder.
type Attempts = Arc<Mutex<u64>>;

/// The file that is locked while somebody writes.
const LOCK_FILE: &str = ".lock";

/// The right to write into a trial's folder.
#[derive(Debug)]
pub struct Claim(#[expect(dead_code, reason = "closing it releases the lock")] File);

/// A recorded action.
#[derive(Debug, Clone, PartialEq)]
pub struct StepRecord<'a> {
    /// The response it is from, counted from 1.
    pub turn: usize,
    /// The code sent to the desktop.
    pub action: &'a str,
    /// The agent's response.
    pub response: &'a str,
    /// The agent ended the episode with it.
    pub done: bool,
    /// `{"done": true}`, `{"fail": true}` or nothing.
    pub info: Value,
    /// The screen after it, as PNG.
    pub screenshot: &'a [u8],
}

impl Trial {
    /// The folder of a trial under a folder of results.
    pub fn new(root: &Path, observation: &str, model: &str, trial: &str) -> Self {
        let folder = root.join("pyautogui").join(observation).join(model).join(trial);
        Self { folder, attempts: Arc::default() }
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The right to write into the folder, until it is dropped; one process has it at a time. The operating system holds
    /// the lock, so it ends with the process, however that ends.
    pub fn claim(&self) -> io::Result<Claim> {
        fs::create_dir_all(&self.folder)?;
        let path = self.folder.join(LOCK_FILE);
        let mut file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = fs::read_to_string(&path).unwrap_or_default();
                let problem = format!("{} is being written by {}", self.folder.display(), holder.trim());
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, problem));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        file.set_len(0)?;
        writeln!(
            file,
            "process {} since {}",
            std::process::id(),
            Zoned::now().strftime("%Y-%m-%d %H:%M:%S")
        )?;
        Ok(Claim(file))
    }

    /// The folder of a task, by its id or by `domain/id`.
    fn task(&self, domain: &str, task: &str) -> PathBuf {
        let id = task.strip_prefix(domain).and_then(|rest| rest.strip_prefix('/')).unwrap_or(task);
        self.folder.join(domain).join(id)
    }

    /// The task has its score.
    pub fn is_finished(&self, domain: &str, task: &str) -> bool {
        self.task(domain, task).join(SCORE_FILE).is_file()
    }

    fn attempts(&self, folder: &Path) -> Attempts {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(attempts.entry(folder.to_path_buf()).or_default())
    }

    /// Starts the record of a task; the files of an unfinished attempt are removed, and nothing more is written of it.
    pub fn begin(&self, domain: &str, task: &str) -> io::Result<Record> {
        let folder = self.task(domain, task);
        let attempts = self.attempts(&folder);
        let mut begun = attempts.lock().unwrap_or_else(PoisonError::into_inner);
        *begun += 1;
        let attempt = *begun;
        fs::create_dir_all(&folder)?;
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if is_ours(&path) {
                fs::remove_file(path)?;
            }
        }
        drop(begun);
        Ok(Record { folder, attempt, attempts })
    }

    /// Writes the score of a task that its desktop did not evaluate.
    pub fn finish(&self, domain: &str, task: &str, score: f64) -> io::Result<()> {
        let folder = self.task(domain, task);
        let attempts = self.attempts(&folder);
        let attempt = *attempts.lock().unwrap_or_else(PoisonError::into_inner);
        Record { folder, attempt, attempts }.score(score)
    }
}

fn is_ours(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_screenshot = name.starts_with("step_") && name.ends_with(".png");
    is_screenshot || [ACTIONS_FILE, LOG_FILE, RECORDING_FILE, SCORE_FILE].contains(&name.as_ref())
}

/// An attempt of a task, and the folder of the task.
#[derive(Debug)]
pub struct Record {
    folder: PathBuf,
    attempt: u64,
    attempts: Attempts,
}

impl Record {
    /// The right to write, for as long as it is held; an error if another attempt has begun.
    fn current(&self) -> io::Result<MutexGuard<'_, u64>> {
        let begun = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        if *begun == self.attempt {
            return Ok(begun);
        }
        let folder = self.folder.display();
        Err(io::Error::other(format!("{folder}: attempt {} is over, {begun} has begun", self.attempt)))
    }

    /// Writes an action and the screen after it.
    pub fn step(&self, step: &StepRecord<'_>, now: &Zoned) -> io::Result<()> {
        // microseconds distinguish the actions of one response, which share their number
        let time = now.strftime("%Y%m%d@%H%M%S%6f").to_string();
        let screenshot = format!("step_{}_{time}.png", step.turn);
        let _current = self.current()?;
        fs::write(self.folder.join(&screenshot), step.screenshot)?;
        self.line(&json!({
            "step_num": step.turn,
            "action_timestamp": time,
            "action": step.action,
            "response": step.response,
            "reward": 0,
            "done": step.done,
            "info": step.info,
            "screenshot_file": screenshot,
        }))
    }

    /// Writes why the episode failed.
    pub fn error(&self, problem: &str) -> io::Result<()> {
        let _current = self.current()?;
        self.line(&json!({"Error": problem}))
    }

    /// Writes a note to the log.
    pub fn note(&self, note: &str, now: &Zoned) -> io::Result<()> {
        let _current = self.current()?;
        let mut file = OpenOptions::new().create(true).append(true).open(self.folder.join(LOG_FILE))?;
        writeln!(file, "{} {note}", now.strftime("%Y-%m-%d %H:%M:%S"))
    }

    /// Writes the recording.
    pub fn recording(&self, video: &[u8]) -> io::Result<()> {
        let _current = self.current()?;
        fs::write(self.folder.join(RECORDING_FILE), video)
    }

    /// Writes the score: the task is finished.
    pub fn score(&self, score: f64) -> io::Result<()> {
        let _current = self.current()?;
        let part = self.folder.join(format!("{SCORE_FILE}.part"));
        fs::write(&part, format!("{score:?}\n"))?;
        fs::rename(part, self.folder.join(SCORE_FILE))
    }

    fn line(&self, line: &Value) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(self.folder.join(ACTIONS_FILE))?;
        writeln!(file, "{line}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_writes_at_a_time() {
        let root = tempfile::tempdir().unwrap();
        let trial = Trial::new(root.path(), "screenshot", "ui-tars", "0");
        let claim = trial.claim().unwrap();
        let error = trial.claim().unwrap_err().to_string();
        assert!(
            error.contains(&format!("ui-tars/0 is being written by process {}", std::process::id())),
            "{error}"
        );
        assert!(Trial::new(root.path(), "screenshot", "ui-tars", "1").claim().is_ok());
        drop(claim);
        assert!(trial.claim().is_ok());
    }

    #[test]
    fn a_task_is_finished_by_its_score_and_an_unfinished_one_begun_anew() {
        let root = tempfile::tempdir().unwrap();
        let trial = Trial::new(root.path(), "screenshot", "ui-tars", "0");
        assert!(trial.folder().ends_with("pyautogui/screenshot/ui-tars/0"));
        let step = StepRecord {
            turn: 1,
            action: "DONE",
            response: "Action: finished()",
            done: true,
            info: json!({"done": true}),
            screenshot: b"png",
        };
        let begin = || trial.begin("os", "task").unwrap();
        begin().step(&step, &Zoned::now()).unwrap();
        fs::write(trial.folder().join("os/task/notes.txt"), "mine").unwrap();
        assert!(!trial.is_finished("os", "task"));

        let record = begin();
        let names = || {
            let entries = fs::read_dir(trial.folder().join("os/task")).unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        assert_eq!(names(), ["notes.txt"]);
        record.step(&step, &Zoned::now()).unwrap();
        record.step(&step, &Zoned::now()).unwrap();
        record.score(1.0).unwrap();
        assert!(trial.is_finished("os", "task"));
        assert_eq!(
            names().len(),
            5,
            "two screenshots, the lines, the score and the user's own: {:?}",
            names()
        );
        let lines = fs::read_to_string(trial.folder().join("os/task/traj.jsonl")).unwrap();
        let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        assert_eq!((&first["step_num"], &first["action"]), (&json!(1), &json!("DONE")));
        assert_eq!(fs::read_to_string(trial.folder().join("os/task/result.txt")).unwrap(), "1.0\n");
    }

    /// A desktop that was given up may still answer when another one already has its task.
    #[test]
    fn an_attempt_that_was_abandoned_writes_nothing_into_the_next_one() {
        let root = tempfile::tempdir().unwrap();
        let trial = Trial::new(root.path(), "screenshot", "ui-tars", "0");
        let late = trial.clone().begin("os", "task").unwrap();
        let other = trial.begin("os", "other").unwrap();
        let next = trial.begin("os", "task").unwrap();
        let (now, info) = (Zoned::now(), json!({}));
        let step = StepRecord { turn: 3, action: "", response: "", done: false, info, screenshot: b"png" };
        let writes = [
            late.step(&step, &now),
            late.error("late"),
            late.note("late", &now),
            late.recording(b"video"),
            late.score(1.0),
        ];
        for written in writes {
            let error = written.unwrap_err().to_string();
            assert!(error.ends_with("os/task: attempt 1 is over, 2 has begun"), "{error}");
        }
        assert_eq!(fs::read_dir(trial.folder().join("os/task")).unwrap().count(), 0);
        next.note("on time", &now).unwrap();
        other.score(0.5).unwrap();
        trial.finish("os", "os/task", 0.0).unwrap();
        assert!(trial.is_finished("os", "task") && trial.is_finished("os", "other"));
    }
}
