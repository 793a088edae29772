//! What every desktop is doing now, for whoever asks. Nothing is written until somebody asks, and the collector answers
//! when it comes by; so a run that nobody watches pays for a glance at a flag.

use super::state::{ActiveEpisode, Phase};
use crate::episode::EpisodeScreen;
use arpo_core::task::TaskId;
use arpo_core::trajectory::EpisodeId;
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// What a desktop is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DesktopState {
    /// It has no episode.
    Idle,
    /// It is being prepared for an episode.
    Resetting,
    /// It waits for a response of the policy.
    Waiting,
    /// It executes actions.
    Acting,
    /// Its final state is evaluated.
    Evaluating,
    /// It failed, and another one is being started.
    Failed,
    /// It failed too often and is not replaced in this collection.
    Quarantined,
}

/// A desktop at a moment.
#[derive(Debug, Clone)]
pub struct DesktopNow {
    /// Its slot.
    pub desktop: usize,
    /// The host it is on; `None` for this process.
    pub host: Option<String>,
    /// What it is doing.
    pub state: DesktopState,
    /// The task of its episode.
    pub task: Option<TaskId>,
    /// Its episode.
    pub episode: Option<EpisodeId>,
    /// Responses so far.
    pub turn: usize,
    /// Its last screen.
    pub screen: Option<EpisodeScreen>,
}

impl DesktopNow {
    /// A desktop without an episode.
    pub(super) fn without_episode(desktop: usize, state: DesktopState) -> Self {
        Self { desktop, host: None, state, task: None, episode: None, turn: 0, screen: None }
    }

    /// A desktop with its episode.
    pub(super) fn in_episode(active: &ActiveEpisode) -> Self {
        let state = match active.phase {
            Phase::Resetting => DesktopState::Resetting,
            Phase::Ready | Phase::Generating => DesktopState::Waiting,
            Phase::ToAct(_) | Phase::Acting => DesktopState::Acting,
            Phase::ToEvaluate(_) | Phase::Evaluating(_) => DesktopState::Evaluating,
        };
        Self {
            desktop: active.slot,
            host: None,
            state,
            task: Some(active.history.plan.task.id.clone()),
            episode: Some(active.history.plan.id.clone()),
            turn: active.history.responses.len(),
            screen: active.history.screens.last().cloned(),
        }
    }
}

/// Where the question is put and the answer is left.
#[derive(Debug, Default)]
pub struct Board {
    asked: AtomicBool,
    answer: Mutex<Option<Vec<DesktopNow>>>,
}

impl Board {
    /// Asks for an answer; it is there a moment later, if a collection is running.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// The latest answer, once.
    pub fn take(&self) -> Option<Vec<DesktopNow>> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Answers if somebody has asked.
    pub(super) fn answer_if_asked(&self, answer: impl FnOnce() -> Vec<DesktopNow>) {
        if self.asked.load(Ordering::Relaxed) {
            self.asked.store(false, Ordering::Relaxed);
            *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer());
        }
    }
}
