//! OSWorld's result folders, whoever wrote them, as episodes: `<anything>/<domain>/<task>/` with `traj.jsonl`, `result.txt` and
//! `step_*.png`. Any folder above the domains can be opened; folders of domains with the same parent are one trial.
//!
//! A recorded screenshot shows the screen *after* an action, so the screen that a turn saw is the one before it.

pub mod code;

use crate::ViewError;
use crate::episode::{Episode, ShownScreen, ShownStep, thought};
use crate::run::index::{Ending, Index, Origin, Row};
use crate::run::info::text;
use arpo_lines::LineFile;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A line for every action.
const ACTIONS_FILE: &str = "traj.jsonl";
/// The score, the last file of a finished task.
const SCORE_FILE: &str = "result.txt";
/// `<action space>/<observation>/<model>/<trial>/<domain>/<task>` below the folder of all results.
const MAX_DEPTH: usize = 7;

/// A folder of results.
#[derive(Debug, Clone)]
pub struct Results {
    root: PathBuf,
    /// Its episodes.
    pub index: Index,
    /// The folder of each row.
    folders: Vec<PathBuf>,
    /// The folders of the rows, and the state of their record and their score.
    seen: Vec<(PathBuf, [Option<FileState>; 2])>,
    /// Screenshots that a page may ask for. They stay when the folders are read again: somebody may be looking at them.
    screens: HashMap<String, PathBuf>,
    bad: u64,
}

/// Bytes and time of change: what differs if a file was written anew.
type FileState = (u64, Option<SystemTime>);

fn file_state(path: &Path) -> Option<FileState> {
    let file = fs::metadata(path).ok()?;
    file.is_file().then(|| (file.len(), file.modified().ok()))
}

/// Whether a folder holds results: a record of an episode is somewhere in it.
pub fn is_results(folder: &Path) -> bool {
    let mut found = vec![];
    walk(folder, MAX_DEPTH, &mut found, true);
    !found.is_empty()
}

fn walk(folder: &Path, deeper: usize, found: &mut Vec<PathBuf>, first_only: bool) {
    if folder.join(ACTIONS_FILE).is_file() || folder.join(SCORE_FILE).is_file() {
        found.push(folder.to_path_buf());
        return;
    }
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut inner: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    inner.sort();
    for path in inner {
        if deeper > 0 && (!first_only || found.is_empty()) && path.is_dir() && !path.is_symlink() {
            walk(&path, deeper - 1, found, first_only);
        }
    }
}

/// The lines of an episode's record.
struct Recorded {
    lines: Vec<Value>,
    bad: u64,
}

fn recorded(folder: &Path) -> Recorded {
    let mut lines = vec![];
    let mut file = LineFile::new(&folder.join(ACTIONS_FILE));
    let read =
        file.follow(|| {}, |_, line| serde_json::from_slice(line).map(|line| lines.push(line)).is_ok());
    // OSWorld's scripts write the line break first or last, so that a whole line may lack its own
    let unfinished = file.unfinished_bytes();
    let mut bad = file.bad() + u64::from(read.is_err());
    if unfinished > 0 {
        let last =
            text(&folder.join(ACTIONS_FILE)).and_then(|text| text.lines().last().map(serde_json::from_str));
        match last {
            Some(Ok(line)) => lines.push(line),
            _ => bad += 1,
        }
    }
    Recorded { lines, bad }
}

impl Results {
    /// The results in a folder.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
            index: Index::default(),
            folders: vec![],
            seen: vec![],
            screens: HashMap::new(),
            bad: 0,
        }
    }

    /// Lines that could not be read.
    pub fn bad(&self) -> u64 {
        self.bad
    }

    /// Reads the folders again if any has changed; returns whether one has.
    pub fn refresh(&mut self) -> bool {
        let mut found = vec![];
        walk(&self.root, MAX_DEPTH, &mut found, false);
        let state = |folder: PathBuf| {
            let states = [ACTIONS_FILE, SCORE_FILE].map(|name| file_state(&folder.join(name)));
            (folder, states)
        };
        let seen: Vec<_> = found.into_iter().map(state).collect();
        if seen == self.seen {
            return false;
        }
        let mut screens = std::mem::take(&mut self.screens);
        screens.retain(|digest, path| screen_digest(path).as_ref() == Some(digest));
        *self = Self { screens, ..Self::new(&self.root) };
        for (folder, _) in &seen {
            self.add(folder);
        }
        self.seen = seen;
        true
    }

    fn add(&mut self, folder: &Path) {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let domain = folder.parent().unwrap_or(folder);
        let trial = domain.parent().unwrap_or(domain);
        let trial = trial.strip_prefix(&self.root).unwrap_or(Path::new("")).display().to_string();
        let (task, application) = (format!("{}/{}", name(domain), name(folder)), name(domain));
        let Recorded { lines, bad } = recorded(folder);
        self.bad += bad;
        let score = text(&folder.join(SCORE_FILE)).and_then(|text| score(&text));
        let error = lines.iter().find_map(|line| line["Error"].as_str());
        let ends =
            |line: &Value| line["done"] == true || matches!(line["action"].as_str(), Some("DONE" | "FAIL"));
        let outcome = match (error, score) {
            (Some(_), None) => Ending::EnvironmentError,
            _ if lines.iter().any(ends) => Ending::Finished,
            _ => Ending::StepLimit,
        };
        let turns = turns(&lines);
        let instruction = lines.iter().find_map(|line| line["instruction"].as_str());
        let number = self.index.task_number(&task, instruction, Some(&application));
        let file = self.index.file_number(if trial.is_empty() { "results" } else { &trial });
        let first = lines.iter().find_map(|line| self.screen(folder, &line["screenshot_file"]));
        self.index.rows.push(Row {
            id: task.into(),
            iteration: u64::from(file),
            origin: Origin::Evaluation,
            set: None,
            task: number,
            group: None,
            version: 0,
            turns: turns.len() as u32,
            tokens: 0,
            score: score.unwrap_or(0.0),
            reward: None,
            advantage: None,
            outcome,
            reason: error.or(score.is_none().then_some("no score: not finished")).map(Into::into),
            time: 0.0,
            first_screen: first.map(|screen| screen.digest.into()),
            file,
            offset: self.folders.len() as u64,
            length: 0,
        });
        self.folders.push(folder.to_path_buf());
    }

    /// A screenshot of an episode, by the name that its record gives it.
    fn screen(&mut self, folder: &Path, name: &Value) -> Option<ShownScreen> {
        let name = name.as_str()?;
        let plain = Path::new(name).file_name()?.to_str()? == name;
        let plain = plain && Path::new(name).extension().is_some_and(|ending| ending == "png");
        let path = folder.join(name);
        if !plain {
            return None;
        }
        let (width, height) = png_size(&path)?;
        let digest = screen_digest(&path)?;
        self.screens.insert(digest.clone(), path);
        Some(ShownScreen { digest, width, height })
    }

    /// The file of a screenshot; `None` if it has been written anew since, because then it is another one.
    pub fn screen_path(&self, digest: &str) -> Option<&Path> {
        let path = self.screens.get(digest)?;
        (screen_digest(path)? == digest).then_some(path)
    }

    /// The turns of an episode.
    pub fn episode(&mut self, row: &Row) -> Result<Episode, ViewError> {
        let missing = || ViewError::Missing(format!("there is no episode {}", row.id));
        let folder = self.folders.get(row.offset as usize).cloned().ok_or_else(missing)?;
        let lines = recorded(&folder).lines;
        // some scripts store the screen before the first action
        let first = ["step_0.png", "initial_state.png"].map(Value::from);
        let mut screen = first.iter().find_map(|name| self.screen(&folder, name));
        let mut steps = vec![];
        for turn in turns(&lines) {
            let response = turn.iter().find_map(|line| written(&line["response"])).unwrap_or_default();
            let after = turn.iter().rev().find_map(|line| self.screen(&folder, &line["screenshot_file"]));
            steps.push(ShownStep {
                screen: std::mem::replace(&mut screen, after),
                thought: thought(&response).map(str::to_owned),
                response,
                actions: turn.iter().map(|line| code::shown(&line["action"])).collect(),
                tokens: None,
            });
        }
        Ok(Episode { steps, last_screen: screen })
    }
}

/// The lines of actions, those of one response together.
fn turns(lines: &[Value]) -> Vec<Vec<&Value>> {
    let mut turns: BTreeMap<(u64, usize), Vec<&Value>> = BTreeMap::new();
    let actions = lines.iter().filter(|line| !line["action"].is_null());
    for (position, line) in actions.enumerate() {
        match line["step_num"].as_u64() {
            Some(number) => turns.entry((number, 0)).or_default().push(line),
            None => turns.entry((u64::MAX, position)).or_default().push(line),
        }
    }
    turns.into_values().collect()
}

/// A response, which some agents record as an object or a list.
fn written(response: &Value) -> Option<String> {
    match response {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => serde_json::to_string_pretty(other).ok(),
    }
}

/// A score: a number, or `True` and `False` of old runs.
fn score(text: &str) -> Option<f64> {
    match text.trim() {
        "True" => Some(1.0),
        "False" => Some(0.0),
        number => number.parse().ok().filter(|score: &f64| score.is_finite()),
    }
}

/// A digest of a screenshot's path and state, so that no path ever comes from a request, and a browser that keeps the image
/// for long does not show it for another one; `None` if there is no such file.
fn screen_digest(path: &Path) -> Option<String> {
    let (bytes, changed) = file_state(path)?;
    let nanoseconds =
        changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map_or(0, |time| time.as_nanos());
    let mut hash = Sha256::new();
    hash.update(path.as_os_str().as_encoded_bytes());
    hash.update(bytes.to_le_bytes());
    hash.update(nanoseconds.to_le_bytes());
    let number = |hash: u128, byte: &u8| hash << 8 | u128::from(*byte);
    Some(format!("{:032x}", hash.finalize().iter().take(16).fold(0, number)))
}

/// Width and height in the header of a PNG.
fn png_size(path: &Path) -> Option<(u32, u32)> {
    let mut header = [0; 24];
    File::open(path).ok()?.read_exact(&mut header).ok()?;
    let side = |from: usize| header[from..from + 4].try_into().ok().map(u32::from_be_bytes);
    header.starts_with(b"\x89PNG").then(|| Some((side(16)?, side(20)?)))?
}
