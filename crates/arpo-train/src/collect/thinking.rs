//! The policy while episodes are collected, so that desktops are looked after on another thread while it thinks.
//!
//! Questions that are sent together are in the same pass; those that come during a pass join the next one.

use crate::TrainError;
use crate::policy::{Answer, Policy, Question, Ticket};
use arpo_agent::geometry::Size;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

/// An answer, and the size of the picture that its places are in.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) ticket: Ticket,
    pub(super) answer: Answer,
    pub(super) seen: Size,
}

/// What the policy tells, and in which collection: a pass may end after the collection it was for was given up.
#[derive(Debug)]
pub(super) struct Thought {
    pub(super) collection: u64,
    pub(super) what: Told,
}

/// What the policy tells.
#[derive(Debug)]
pub(super) enum Told {
    /// What a pass completed, and how long it took with the questions before it.
    Pass { answered: Vec<Answered>, busy: Duration },
    /// It cannot go on.
    Failed(TrainError),
    /// It thinks no more.
    Gone,
}

/// Tells when it thinks no more, whyever.
struct Farewell<'a, Event: From<Thought>> {
    events: &'a Sender<Event>,
    collection: u64,
}

impl<Event: From<Thought>> Drop for Farewell<'_, Event> {
    fn drop(&mut self) {
        let _ = self.events.send(Thought { collection: self.collection, what: Told::Gone }.into());
    }
}

/// Answers questions until nobody asks any more, or the policy fails.
pub(super) fn think<Event: From<Thought>>(
    policy: &mut dyn Policy,
    questions: &Receiver<Vec<Question>>,
    events: &Sender<Event>,
    collection: u64,
) {
    let _farewell = Farewell { events, collection };
    let mut seen = HashMap::new();
    loop {
        let batch = if policy.unanswered() == 0 {
            questions.recv().map_err(|_| TryRecvError::Disconnected)
        } else {
            questions.try_recv()
        };
        let started = Instant::now();
        let result = match batch {
            // all that has come is asked before the pass
            Ok(batch) => match ask(policy, batch, &mut seen) {
                Ok(()) => continue,
                Err(error) => Err(error),
            },
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => pass(policy, &mut seen),
        };
        match result {
            Ok(answered) => {
                let what = Told::Pass { answered, busy: started.elapsed() };
                let _ = events.send(Thought { collection, what }.into());
            }
            Err(error) => {
                let _ = events.send(Thought { collection, what: Told::Failed(error) }.into());
                return;
            }
        }
    }
}

fn ask(
    policy: &mut dyn Policy,
    batch: Vec<Question>,
    seen: &mut HashMap<Ticket, Size>,
) -> Result<(), TrainError> {
    for question in batch {
        if let Some(screen) = question.history.screens.last() {
            let (width, height) = screen.image.dimensions();
            seen.insert(question.ticket, policy.seen_size(Size { width, height })?);
        }
        policy.ask(question)?;
    }
    Ok(())
}

fn pass(policy: &mut dyn Policy, seen: &mut HashMap<Ticket, Size>) -> Result<Vec<Answered>, TrainError> {
    let answers = policy.advance()?.into_iter();
    answers
        .map(|(ticket, answer)| {
            let unasked = || TrainError::Options("the policy answered what nobody asked".into());
            let seen = seen.remove(&ticket).ok_or_else(unasked)?;
            Ok(Answered { ticket, answer, seen })
        })
        .collect()
}
