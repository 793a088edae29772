//! The thread that records a run: takes what it is handed, and keeps the state of the run up to date meanwhile.

use super::status::Live;
use super::{Failure, Message, Shared, folder_of};
use crate::run::RunError;
use crate::run::about::{RunAbout, unix_time};
use crate::run::durable::write_file;
use crate::run::episodes::store::{EpisodeDraft, EpisodeStore, Resumed};
use crate::run::episodes::tokens::{Pieces, lines};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// How often the state is looked at while nothing is handed over.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// What the thread works with.
pub(super) struct Writer {
    run: PathBuf,
    store: Option<EpisodeStore>,
    draft: Option<EpisodeDraft>,
    pieces: Pieces,
    shared: Arc<Shared>,
}

impl Writer {
    /// Says what the run is, and cuts off what a killed run has left after where this one resumes.
    pub(super) fn new(
        run: PathBuf,
        open: impl FnOnce() -> Result<Option<EpisodeStore>, RunError>,
        resumed: Option<Resumed>,
        about: RunAbout,
        pieces: Pieces,
        shared: Arc<Shared>,
    ) -> Self {
        let mut writer = Self { run, store: None, draft: None, pieces, shared };
        let begun = || -> Result<Option<EpisodeStore>, RunError> {
            about.begun(&RunAbout::read(&writer.run), unix_time()).write_into(&writer.run)?;
            cut_failures(&writer.run, resumed)?;
            open()
        };
        match begun() {
            Ok(store) => writer.store = store,
            Err(error) => writer.stop(&error),
        }
        writer
    }

    /// Works until the run has ended.
    pub(super) fn run(mut self, inbox: &Receiver<Message>, mut live: Option<Live>) {
        loop {
            match inbox.recv_timeout(POLL_INTERVAL) {
                Ok(Message::End(ending)) => {
                    self.end(&ending, live.as_mut());
                    return;
                }
                Ok(message) => {
                    if let Err(error) = self.take(message, live.as_mut()) {
                        self.stop(&error);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.tick(live.as_mut());
        }
    }

    fn is_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::Relaxed)
    }

    /// Records nothing more.
    fn stop(&self, error: &RunError) {
        if !self.shared.stopped.swap(true, Ordering::Relaxed) {
            self.shared.notice(format!("recording for viewers has stopped, training goes on: {error}"));
        }
    }

    fn take(&mut self, message: Message, live: Option<&mut Live>) -> Result<(), RunError> {
        match message {
            Message::Episodes { bytes, .. } if self.is_stopped() => {
                self.shared.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
                Ok(())
            }
            _ if self.is_stopped() => Ok(()),
            Message::Episodes { file, episodes, bytes } => {
                let draft = self.draft.take_if(|draft| draft.file() == file);
                let mut draft = draft.unwrap_or_else(|| EpisodeDraft::new(file));
                let mut tick = ticker(&self.shared, live);
                let added = match &mut self.store {
                    Some(store) => store.add(&mut draft, &episodes, &mut tick),
                    None => Ok(()),
                };
                self.draft = Some(draft);
                self.shared.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
                added
            }
            Message::Complete(file) => {
                match (&mut self.store, self.draft.take_if(|draft| draft.file() == file)) {
                    (Some(store), Some(draft)) => store.finish(draft),
                    _ => Ok(()),
                }
            }
            Message::Tokens(file, records) => {
                let Some(store) = self.store.as_mut().filter(|store| store.has(file)) else { return Ok(()) };
                let lines = lines(&records, &mut self.pieces)
                    .map_err(|error| RunError::file(&self.run.join(file.tokens()), error.to_string()))?;
                store.write_tokens(file, &lines)
            }
            Message::Failure(mut failure) => {
                self.shared.waiting_failures.fetch_sub(1, Ordering::Relaxed);
                failure.host = live.and_then(|live| live.host_of(failure.desktop));
                append_failure(&self.run, &failure)
            }
            Message::End(_) => Ok(()),
        }
    }

    fn tick(&self, live: Option<&mut Live>) {
        if !self.is_stopped()
            && let Some(live) = live
            && let Err(error) = live.update(&self.progress())
        {
            self.stop(&error);
        }
    }

    fn progress(&self) -> super::Progress {
        self.shared.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn end(&self, ending: &str, live: Option<&mut Live>) {
        // a disk that was full may have room for a line now
        let about = RunAbout::read(&self.run);
        let about = RunAbout { ended: Some(unix_time()), ending: Some(ending.to_owned()), ..about };
        let state = live.map_or(Ok(()), |live| live.end(&self.progress()));
        if let Err(error) = about.write_into(&self.run).and(state) {
            self.stop(&error);
        }
    }
}

/// Keeps the state up to date between screenshots; a problem with it shows at the next tick of the thread itself.
fn ticker<'a>(shared: &'a Shared, mut live: Option<&'a mut Live>) -> impl FnMut() + 'a {
    move || {
        if let Some(live) = live.as_deref_mut().filter(|live| live.is_due()) {
            let progress = shared.progress.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let _ = live.update(&progress);
        }
    }
}

fn failures(run: &Path) -> PathBuf {
    run.join("failures.jsonl")
}

fn append_failure(run: &Path, failure: &Failure) -> Result<(), RunError> {
    let path = failures(run);
    folder_of(&path)?;
    let mut line = serde_json::to_vec(failure)
        .map_err(|error| RunError::file(&path, format!("a line cannot be written: {error}")))?;
    line.push(b'\n');
    let mut file =
        File::options().create(true).append(true).open(&path).map_err(RunError::io(&path, "opened"))?;
    file.write_all(&line).map_err(RunError::io(&path, "written"))
}

/// Leaves out the failures of iterations that are repeated, and what is not a whole line.
fn cut_failures(run: &Path, resumed: Option<Resumed>) -> Result<(), RunError> {
    let path = failures(run);
    let Ok(bytes) = fs::read(&path) else { return Ok(()) };
    let stays = |line: &&[u8]| {
        let parsed = serde_json::from_slice::<Value>(line).ok().filter(|_| line.ends_with(b"\n"));
        let of = parsed.and_then(|line| line["iteration"].as_u64());
        of.zip(resumed).is_some_and(|(of, resumed)| of <= resumed.collected())
    };
    let left: Vec<u8> =
        bytes.split_inclusive(|&byte| byte == b'\n').filter(stays).flatten().copied().collect();
    if left == bytes { Ok(()) } else { write_file(&path, &left) }
}
