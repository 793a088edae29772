//! One desktop: its address, pausing, and removal when it is dropped.

use super::address::Addresses;
use super::docker::QUICK;
use super::error::ProviderError;
use super::fleet::Slot;
use super::hosted::Hosted;
use crate::guest::http::{HttpGuest, RetryPolicy};
use bollard::models::ContainerState;
use bollard::query_parameters::{InspectContainerOptions, LogsOptionsBuilder};
use futures_util::StreamExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Lines of a desktop's log that an error carries, and characters of each.
const LOG_LINES: usize = 5;
const LOG_LINE_CHARS: usize = 200;

/// Time to connect to a local container: its kernel is this machine's, and answers even for a process that is stopped.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A desktop that responded when it was started.
pub struct Desktop {
    addresses: Addresses,
    held: Held,
    paused: AtomicBool,
    token: Option<String>,
}

enum Held {
    Container(ContainerGuard),
    Fixed(Slot),
}

impl Desktop {
    pub(super) fn hosted(addresses: Addresses, guard: ContainerGuard, token: Option<String>) -> Self {
        Self { addresses, held: Held::Container(guard), paused: AtomicBool::new(false), token }
    }

    pub(super) fn fixed(addresses: Addresses, slot: Slot) -> Self {
        Self { addresses, held: Held::Fixed(slot), paused: AtomicBool::new(false), token: None }
    }

    /// Where it listens.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Its name: the container's, or the address of a running guest.
    pub fn name(&self) -> &str {
        match &self.held {
            Held::Container(guard) => &guard.name,
            Held::Fixed(slot) => slot.name(),
        }
    }

    /// The client of its server, with this token or the one that its server was given. When a call has no response, the
    /// engine is asked whether the container still runs: nobody waits for one that does not.
    pub fn guest(&self, retry: RetryPolicy, token: Option<String>) -> HttpGuest {
        let token = token.or_else(|| self.token.clone());
        let Held::Container(guard) = &self.held else {
            return HttpGuest::new(&self.addresses.host, self.addresses.ports(), retry, token);
        };
        let (hosted, name) = (Arc::clone(&guard.hosted), guard.name.clone());
        let connect =
            if hosted.is_local_container() { CONNECT_TIMEOUT.min(retry.connect) } else { retry.connect };
        let retry = RetryPolicy { connect, ..retry };
        HttpGuest::new(&self.addresses.host, self.addresses.ports(), retry, token)
            .asking(move || hosted.why_silent(&name))
    }

    /// Pauses its processes while the policy runs. A running guest is not paused.
    pub fn pause(&self) -> Result<(), ProviderError> {
        self.set_paused(true)
    }

    /// Resumes it.
    pub fn unpause(&self) -> Result<(), ProviderError> {
        self.set_paused(false)
    }

    fn set_paused(&self, paused: bool) -> Result<(), ProviderError> {
        let Held::Container(guard) = &self.held else { return Ok(()) };
        if self.is_paused() == paused {
            return Ok(());
        }
        let (id, engine) = (guard.name.clone(), &guard.hosted.engine);
        let answer = if paused {
            engine.call("pause a desktop", QUICK, |docker| async move { docker.pause_container(&id).await })
        } else {
            engine.call(
                "unpause a desktop",
                QUICK,
                |docker| async move { docker.unpause_container(&id).await },
            )
        };
        guard.explain(answer)?;
        self.paused.store(paused, Ordering::Release);
        Ok(())
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    /// An error that says how it ended, if it has ended. Nothing is known of a running guest.
    pub fn check(&self) -> Result<(), ProviderError> {
        match &self.held {
            Held::Container(guard) => guard.check(),
            Held::Fixed(_) => Ok(()),
        }
    }

    /// Whether it still runs.
    pub fn alive(&self) -> bool {
        self.check().is_ok()
    }

    /// The end of its log, on one line.
    pub fn log_tail(&self) -> String {
        match &self.held {
            Held::Container(guard) => guard.log_tail(),
            Held::Fixed(_) => "unknown, it is not ours".into(),
        }
    }

    /// Removes it and says whether that worked; dropping it removes it, too.
    pub fn stop(self) -> Result<(), ProviderError> {
        match self.held {
            Held::Container(mut guard) => guard.remove(),
            Held::Fixed(_) => Ok(()),
        }
    }

    /// The token its server was given, where that is known here.
    pub(super) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The container and its engine, where it is one.
    pub(super) fn container(&self) -> Option<(&str, &Arc<Hosted>)> {
        match &self.held {
            Held::Container(guard) => Some((&guard.name, &guard.hosted)),
            Held::Fixed(_) => None,
        }
    }
}

/// A container that is removed when this is dropped, also during a panic.
pub(super) struct ContainerGuard {
    hosted: Arc<Hosted>,
    name: String,
    removed: bool,
}

impl ContainerGuard {
    pub(super) fn new(hosted: Arc<Hosted>, name: &str) -> Self {
        Self { hosted, name: name.to_owned(), removed: false }
    }

    /// An error that says how it ended, if it has ended.
    pub(super) fn check(&self) -> Result<(), ProviderError> {
        self.hosted.check(&self.name).map(drop)
    }

    fn log_tail(&self) -> String {
        self.hosted.log_tail(&self.name)
    }

    /// Replaces an engine's error with the desktop's end where it has ended.
    fn explain(&self, answer: Result<(), ProviderError>) -> Result<(), ProviderError> {
        if matches!(answer, Err(ProviderError::Engine { .. })) {
            self.check()?;
        }
        answer
    }

    fn remove(&mut self) -> Result<(), ProviderError> {
        self.removed = true;
        self.hosted.engine.remove_container(&self.name)
    }
}

impl Drop for ContainerGuard {
    fn drop(&mut self) {
        if !self.removed {
            // A container that stays is found by its labels, by this provider at its end or by the next one.
            let _ = self.remove();
        }
    }
}

impl Hosted {
    /// The state of a container that runs; an error that says how it ended, if it has ended.
    fn check(&self, name: &str) -> Result<ContainerState, ProviderError> {
        let id = name.to_owned();
        let found = self.engine.call_if_found("describe a desktop", QUICK, |docker| async move {
            docker.inspect_container(&id, None::<InspectContainerOptions>).await
        })?;
        let state = found.map(|found| found.state.unwrap_or_default());
        let how = match &state {
            None => Some("somebody removed its container".to_owned()),
            Some(state) => end_of(state),
        };
        match how {
            None => Ok(state.unwrap_or_default()),
            Some(how) => Err(ProviderError::Gone { name: name.to_owned(), how, log: self.log_tail(name) }),
        }
    }

    /// Why a desktop that should respond does not, if the engine knows.
    fn why_silent(&self, name: &str) -> Option<String> {
        match self.check(name) {
            Ok(state) if state.paused == Some(true) => {
                Some(format!("desktop {name} is paused, and not by this program"))
            }
            Err(error @ ProviderError::Gone { .. }) => Some(error.to_string()),
            // a busy engine says nothing about the desktop
            Ok(_) | Err(_) => None,
        }
    }

    /// The end of a container's log, on one line.
    fn log_tail(&self, name: &str) -> String {
        let id = name.to_owned();
        let options =
            LogsOptionsBuilder::default().stdout(true).stderr(true).tail(&LOG_LINES.to_string()).build();
        let log = self.engine.call("read a desktop's log", QUICK, |docker| async move {
            let mut lines = String::new();
            let mut stream = std::pin::pin!(docker.logs(&id, Some(options)));
            while let Some(part) = stream.next().await {
                lines.push_str(&String::from_utf8_lossy(part?.as_ref()));
            }
            Ok(lines)
        });
        last_lines(&log.unwrap_or_default())
    }
}

/// How a container ended; none while it runs.
fn end_of(state: &ContainerState) -> Option<String> {
    if state.running == Some(true) {
        return None;
    }
    let code = state.exit_code.unwrap_or_default();
    if state.oom_killed == Some(true) {
        return Some(format!("out of memory (exit code {code}): raise its memory limit"));
    }
    match state.error.as_deref().filter(|error| !error.is_empty()) {
        Some(error) => Some(format!("exit code {code}: {error}")),
        None if code == 137 => Some("exit code 137: somebody killed it, or it ran out of memory".into()),
        None => Some(format!("exit code {code}")),
    }
}

/// The last lines of a log, each cut, in one.
fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let tail = &lines[lines.len().saturating_sub(LOG_LINES)..];
    if tail.is_empty() {
        return "none".into();
    }
    let cut = tail.iter().map(|line| line.chars().take(LOG_LINE_CHARS).collect::<String>());
    cut.collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_named() {
        let ended = |exit_code, oom_killed| ContainerState {
            running: Some(false),
            exit_code: Some(exit_code),
            oom_killed: Some(oom_killed),
            error: Some(String::new()),
            ..ContainerState::default()
        };
        assert_eq!(end_of(&ContainerState { running: Some(true), ..ended(0, false) }), None);
        assert_eq!(end_of(&ended(1, false)).as_deref(), Some("exit code 1"));
        assert!(end_of(&ended(137, false)).is_some_and(|how| how.contains("killed")));
        assert!(end_of(&ended(137, true)).is_some_and(|how| how.starts_with("out of memory")));
    }

    #[test]
    fn the_log_tail_is_one_short_line() {
        assert_eq!(last_lines(""), "none");
        assert_eq!(last_lines("1\n2\n3\n\n4\r\n5\n6\n"), "2 | 3 | 4 | 5 | 6");
        assert_eq!(last_lines(&"x".repeat(999)).len(), LOG_LINE_CHARS);
    }
}
