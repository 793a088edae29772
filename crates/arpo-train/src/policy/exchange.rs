//! Requests to servers, each on a thread of its own, which may wait and try again. A request is answered at most once: its
//! thread makes one attempt after the other, and an answer to a request that was cancelled meanwhile is dropped.

use super::RequestId;
use crate::TrainError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// How long a step waits for an answer, so that requests that arrive meanwhile are sent.
const STEP_TIMEOUT: Duration = Duration::from_millis(50);

/// The round of a request, its id and its answer; none if its thread panicked.
type Answered<Answer> = (u64, RequestId, Option<Answer>);

/// The pending requests of a policy, and their answers.
#[derive(Debug)]
pub(super) struct Exchange<Answer> {
    pending: usize,
    /// Requests of earlier rounds are cancelled.
    round: Arc<AtomicU64>,
    sender: Sender<Answered<Answer>>,
    answers: Receiver<Answered<Answer>>,
}

/// Whether a request is still wanted.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    round: u64,
    current: Arc<AtomicU64>,
}

impl Wanted {
    /// False once it is cancelled.
    pub(super) fn is_wanted(&self) -> bool {
        self.round == self.current.load(Ordering::Relaxed)
    }

    /// Waits for so long, while it is wanted.
    pub(super) fn rest(&self, delay: Duration) {
        let until = Instant::now() + delay;
        while self.is_wanted() && Instant::now() < until {
            std::thread::sleep(until.saturating_duration_since(Instant::now()).min(STEP_TIMEOUT));
        }
    }
}

impl<Answer: Send + 'static> Exchange<Answer> {
    pub(super) fn new() -> Self {
        let (sender, answers) = channel();
        Self { pending: 0, round: Arc::default(), sender, answers }
    }

    pub(super) fn pending(&self) -> usize {
        self.pending
    }

    /// Answers a request on a new thread.
    pub(super) fn send(
        &mut self,
        id: RequestId,
        answer: impl FnOnce(&Wanted) -> Answer + Send + 'static,
    ) -> Result<(), TrainError> {
        let wanted = Wanted { round: self.round.load(Ordering::Relaxed), current: Arc::clone(&self.round) };
        let sender = self.sender.clone();
        let run = move || {
            let answer = catch_unwind(AssertUnwindSafe(|| answer(&wanted))).ok();
            drop(sender.send((wanted.round, id, answer)));
        };
        std::thread::Builder::new()
            .name("request".into())
            .spawn(run)
            .map_err(|error| TrainError::Io(format!("no thread for a request: {error}")))?;
        self.pending += 1;
        Ok(())
    }

    /// The answers that have come, after a short wait for the first.
    pub(super) fn receive(&mut self) -> Result<Vec<(RequestId, Answer)>, TrainError> {
        let Ok(first) = self.answers.recv_timeout(STEP_TIMEOUT) else { return Ok(vec![]) };
        let round = self.round.load(Ordering::Relaxed);
        let all = std::iter::once(first).chain(self.answers.try_iter());
        let current: Vec<_> =
            all.filter(|(of, ..)| *of == round).map(|(_, id, answer)| Some((id, answer?))).collect();
        self.pending -= current.len();
        let answers: Option<Vec<_>> = current.into_iter().collect();
        answers.ok_or_else(|| TrainError::Internal("the thread of a request panicked".into()))
    }

    /// Drops all pending requests.
    pub(super) fn cancel_all(&mut self) {
        self.round.fetch_add(1, Ordering::Relaxed);
        self.pending = 0;
    }
}
