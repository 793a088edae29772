//! What a run writes for a viewer beside its metrics: episodes with their tokens, failures, what is going on now.
//!
//! All of it is written by a thread of its own. Training hands over what it has anyway and never waits: if the thread is
//! behind by too much, episodes are left out; if the disk is full, recording stops, with one notice. What the files hold:
//! `docs/run-folder.md`.
//!
//! | to change | look in |
//! |---|---|
//! | what the thread does with what it is handed | `writer` |
//! | the state of the run and its desktops, thumbnails | [`status`] |
//! | which episodes of an iteration are handed over | `trainer::handover` |

pub mod status;
mod writer;

use super::about::RunAbout;
use super::durable::make_folder;
use super::episodes::budget::EpisodeFile;
use super::episodes::store::{Budget, EpisodeRecord, EpisodeStore, Resumed, up_to};
use super::episodes::tokens::{Decode, Pieces, TokenRecord};
use super::{RunError, RunFolder};
use crate::collect::DesktopFailure;
use crate::collect::board::Board;
use crate::episode::EpisodeScreen;
use arpo_core::config::LoggingConfig;
use serde::Serialize;
use status::{Phase, Progress};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use writer::Writer;

/// Bytes of screenshots that may wait for the thread; more are left out, unless nothing else waits.
const WAITING_BYTES: usize = 512 << 20;

/// Failures that may wait for the thread.
const WAITING_FAILURES: usize = 10_000;

/// Longest wait for the thread at the end of a run.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_mins(1);

/// What is handed to the thread.
enum Message {
    /// Episodes of a file.
    Episodes { file: EpisodeFile, episodes: Vec<EpisodeRecord>, bytes: usize },
    /// A file has all its episodes.
    Complete(EpisodeFile),
    /// The tokens of a file's episodes.
    Tokens(EpisodeFile, Vec<TokenRecord>),
    /// A desktop failed, or a task on it.
    Failure(Failure),
    /// The run has ended.
    End(String),
}

/// A line of `failures.jsonl`, without the host, which the thread knows.
#[derive(Debug, Serialize)]
struct Failure {
    time: f64,
    iteration: u64,
    desktop: usize,
    host: Option<String>,
    kind: &'static str,
    task: Option<String>,
    message: String,
    action: String,
}

/// What the recorder and its thread share.
#[derive(Debug, Default)]
struct Shared {
    progress: Mutex<Progress>,
    waiting_bytes: AtomicUsize,
    waiting_failures: AtomicUsize,
    stopped: AtomicBool,
    notices: Mutex<Vec<String>>,
}

impl Shared {
    fn notice(&self, message: String) {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).push(message);
    }
}

/// Where and how a run is recorded.
pub struct Recording<'a> {
    /// The run folder.
    pub folder: &'a RunFolder,
    /// What is kept.
    pub config: &'a LoggingConfig,
    /// What the run is.
    pub about: RunAbout,
    /// Where the run resumes; `None` if it begins.
    pub resumed: Option<Resumed>,
    /// Decodes tokens.
    pub decode: Decode,
    /// Where to ask what the desktops are doing.
    pub board: Arc<Board>,
}

/// The handle of the thread.
pub struct Recorder {
    messages: Option<Sender<Message>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
    keeps_episodes: bool,
    /// The last file whose episodes were left out, because too much was waiting.
    left_out: Option<EpisodeFile>,
}

impl Recorder {
    /// Starts the thread. Whatever it cannot do becomes a notice.
    pub fn start(recording: Recording) -> Self {
        let shared = Arc::new(Shared::default());
        let Recording { folder, config, about, resumed, decode, board } = recording;
        let keeps_episodes = config.episodes_gib > 0.0;
        let budget =
            Budget { bytes: (config.episodes_gib * f64::from(1 << 30)) as u64, last: config.episodes_last };
        let path = folder.path().to_path_buf();
        let (messages, inbox) = channel();
        let (live, of) = (config.live, about.iterations);
        let own = Arc::clone(&shared);
        let run = move || {
            let store = || -> Result<Option<EpisodeStore>, RunError> {
                if !keeps_episodes && !path.join("episodes").exists() {
                    return Ok(None);
                }
                // also without a budget: what a killed run has left is not of this run
                let store = EpisodeStore::open(&path, budget, up_to(resumed))?;
                Ok(keeps_episodes.then_some(store))
            };
            let writer = Writer::new(path.clone(), store, resumed, about, Pieces::new(decode), own);
            let status = live.then(|| status::Live::new(path.clone(), board, of));
            writer.run(&inbox, status);
        };
        let thread = Builder::new().name("recorder".into()).spawn(run);
        if let Err(error) = &thread {
            shared.notice(format!("nothing is recorded for a viewer: no thread: {error}"));
        }
        let messages = thread.is_ok().then_some(messages);
        Self { messages, thread: thread.ok(), shared, keeps_episodes, left_out: None }
    }

    /// Whether episodes are kept.
    pub fn keeps_episodes(&self) -> bool {
        self.keeps_episodes && self.is_running()
    }

    fn is_running(&self) -> bool {
        self.messages.is_some() && !self.shared.stopped.load(Ordering::Relaxed)
    }

    /// Sets what the run is doing.
    pub fn phase(&self, phase: Phase, iteration: u64, total: usize) {
        self.update(|progress| *progress = Progress { phase, iteration, total, ..Progress::default() });
    }

    /// Updates how far it has come.
    pub fn progress(&self, finished: usize, successes: usize) {
        self.update(|progress| (progress.finished, progress.successes) = (finished, successes));
    }

    fn update(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.shared.progress.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Hands over episodes of a file; they are left out if too much is waiting.
    pub fn episodes(&mut self, file: EpisodeFile, episodes: Vec<EpisodeRecord>) {
        if !self.keeps_episodes() {
            return;
        }
        let screens = episodes.iter().flat_map(|episode| episode.screens.iter().flatten());
        let bytes: usize = screens.map(EpisodeScreen::bytes).sum();
        let waiting = self.shared.waiting_bytes.load(Ordering::Relaxed);
        if waiting > 0 && waiting + bytes > WAITING_BYTES {
            if self.left_out.replace(file).is_none() {
                self.shared.notice(format!(
                    "recording does not keep up: episodes of {file} are left out; `logging.episodes_gib` = 0 keeps none"
                ));
            }
            return;
        }
        self.shared.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.send(Message::Episodes { file, episodes, bytes });
    }

    /// A file has all its episodes.
    pub fn complete(&self, file: EpisodeFile) {
        if self.keeps_episodes() {
            self.send(Message::Complete(file));
        }
    }

    /// Hands over the tokens of a file's episodes.
    pub fn tokens(&self, file: EpisodeFile, records: Vec<TokenRecord>) {
        if self.keeps_episodes() && self.left_out != Some(file) {
            self.send(Message::Tokens(file, records));
        }
    }

    /// Hands over a failure.
    pub fn failure(&self, iteration: u64, failure: &DesktopFailure) {
        if !self.is_running() || self.shared.waiting_failures.load(Ordering::Relaxed) > WAITING_FAILURES {
            return;
        }
        self.shared.waiting_failures.fetch_add(1, Ordering::Relaxed);
        self.send(Message::Failure(Failure {
            time: super::about::unix_time(),
            iteration,
            desktop: failure.desktop,
            host: None,
            kind: failure.kind.name(),
            task: failure.task.as_ref().map(ToString::to_string),
            message: failure.reason.clone(),
            action: failure.remedy.to_string(),
        }));
    }

    fn send(&self, message: Message) {
        if let Some(messages) = &self.messages {
            // a thread that has ended takes nothing
            let _ = messages.send(message);
        }
    }

    /// Messages for the user since the last call.
    pub fn notices(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes what is waiting, and how the run ended; the notices that are left.
    pub fn close(&mut self, ending: &str) -> Vec<String> {
        self.send(Message::End(ending.to_owned()));
        self.messages = None;
        if let Some(thread) = self.thread.take() {
            let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(2));
            }
            if !thread.is_finished() {
                let seconds = SHUTDOWN_TIMEOUT.as_secs();
                self.shared.notice(format!(
                    "the last episodes are not recorded: the disk took more than {seconds} s"
                ));
            } else if thread.join().is_err() {
                self.shared.notice("recording ended early: its thread panicked".into());
            }
        }
        self.notices()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if self.thread.is_some() {
            let reason = if std::thread::panicking() { "the program panicked" } else { "it was given up" };
            self.close(&format!("failed: {reason}"));
        }
    }
}

/// Creates the folder of a file.
fn folder_of(path: &std::path::Path) -> Result<(), RunError> {
    path.parent().map_or(Ok(()), make_folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the thread would be handed, and the handle.
    fn recorder() -> (Recorder, std::sync::mpsc::Receiver<Message>) {
        let (messages, inbox) = channel();
        let shared = Arc::new(Shared::default());
        (
            Recorder { messages: Some(messages), thread: None, shared, keeps_episodes: true, left_out: None },
            inbox,
        )
    }

    #[test]
    fn the_tokens_of_episodes_that_were_left_out_are_left_out_too() {
        let (mut recorder, inbox) = recorder();
        let (first, second) = (EpisodeFile::iteration(7), EpisodeFile::iteration(8));
        recorder.shared.waiting_bytes.store(WAITING_BYTES + 1, Ordering::Relaxed);
        recorder.episodes(first, vec![]);
        recorder.tokens(first, vec![]);
        assert!(inbox.try_recv().is_err(), "nothing of it is handed over");
        let notices = recorder.notices();
        assert!(notices.len() == 1 && notices[0].contains("episodes of iteration-000007.jsonl are left out"));
        // the thread has caught up
        recorder.shared.waiting_bytes.store(0, Ordering::Relaxed);
        recorder.episodes(second, vec![]);
        recorder.tokens(second, vec![]);
        let handed_over: Vec<Message> = inbox.try_iter().collect();
        assert!(matches!(
            handed_over[..],
            [Message::Episodes { file, .. }, Message::Tokens(also, _)] if file == second && also == second
        ));
        // said once, however often it happens
        recorder.shared.waiting_bytes.store(WAITING_BYTES + 1, Ordering::Relaxed);
        recorder.episodes(EpisodeFile::iteration(9), vec![]);
        assert!(recorder.notices().is_empty() && inbox.try_recv().is_err());
    }
}
