//! The policy while episodes are collected: it generates on the caller's thread while desktops are managed on another.
//!
//! Requests that are sent together are computed in the same step; those that arrive during a step join the next one.

use crate::TrainError;
use crate::policy::{GenerationRequest, Policy, RequestId, Response};
use arpo_agent::geometry::Size;
use arpo_agent::style::ActionFormat;
use arpo_core::trajectory::EpisodeId;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

/// What the policy is told.
#[derive(Debug)]
pub(super) enum Told {
    /// Requests that are computed together.
    Requests(Vec<GenerationRequest>),
    /// This episode has ended.
    Ended(EpisodeId),
}

/// A response, how it is written, and the size of the image that the policy saw.
#[derive(Debug)]
pub(super) struct GeneratedResponse {
    pub(super) id: RequestId,
    pub(super) response: Response,
    pub(super) format: ActionFormat,
    pub(super) seen: Size,
}

/// An event of the policy, and its collection: a step may end after its collection was abandoned.
#[derive(Debug)]
pub(super) struct PolicyEvent {
    pub(super) collection: u64,
    pub(super) what: PolicyReport,
}

/// An event of the policy.
#[derive(Debug)]
pub(super) enum PolicyReport {
    /// Requests that a step completed, those that will have no response and why, and its duration.
    Step { completed: Vec<GeneratedResponse>, lost: Vec<(RequestId, String)>, busy: Duration },
    /// It failed.
    Failed(TrainError),
    /// It has stopped generating.
    Stopped,
}

/// Reports that the policy has stopped, whatever the reason.
struct StoppedOnDrop<'a, Event: From<PolicyEvent>> {
    events: &'a Sender<Event>,
    collection: u64,
}

impl<Event: From<PolicyEvent>> Drop for StoppedOnDrop<'_, Event> {
    fn drop(&mut self) {
        let event = PolicyEvent { collection: self.collection, what: PolicyReport::Stopped };
        let _ = self.events.send(event.into());
    }
}

/// Completes requests until the sender is gone or the policy fails.
pub(super) fn serve<Event: From<PolicyEvent>>(
    policy: &mut dyn Policy,
    inbox: &Receiver<Told>,
    events: &Sender<Event>,
    collection: u64,
) {
    let _stopped = StoppedOnDrop { events, collection };
    let mut seen = HashMap::new();
    loop {
        let told = if policy.pending() == 0 {
            inbox.recv().map_err(|_| TryRecvError::Disconnected)
        } else {
            inbox.try_recv()
        };
        let started = Instant::now();
        let result = match told {
            Ok(Told::Ended(episode)) => {
                policy.ended(&episode);
                continue;
            }
            // everything that has arrived is submitted before the step
            Ok(Told::Requests(batch)) => match submit(policy, batch, &mut seen) {
                Ok(()) => continue,
                Err(error) => Err(error),
            },
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => step(policy, &mut seen),
        };
        match result {
            Ok(completed) => {
                let lost = policy.take_lost();
                for (id, _) in &lost {
                    seen.remove(id);
                }
                let what = PolicyReport::Step { completed, lost, busy: started.elapsed() };
                let _ = events.send(PolicyEvent { collection, what }.into());
            }
            Err(error) => {
                let _ = events.send(PolicyEvent { collection, what: PolicyReport::Failed(error) }.into());
                return;
            }
        }
    }
}

fn submit(
    policy: &mut dyn Policy,
    batch: Vec<GenerationRequest>,
    seen: &mut HashMap<RequestId, Size>,
) -> Result<(), TrainError> {
    for request in batch {
        if let Some(screen) = request.history.screens.last() {
            let (width, height) = screen.size();
            seen.insert(request.id, policy.seen_size(Size { width, height })?);
        }
        policy.submit(request)?;
    }
    Ok(())
}

fn step(
    policy: &mut dyn Policy,
    seen: &mut HashMap<RequestId, Size>,
) -> Result<Vec<GeneratedResponse>, TrainError> {
    let format = policy.format();
    let completed = policy.step()?.into_iter();
    completed
        .map(|(id, response)| {
            let unknown = || TrainError::Internal("the policy completed an unknown request".into());
            let seen = seen.remove(&id).ok_or_else(unknown)?;
            Ok(GeneratedResponse { id, response, format, seen })
        })
        .collect()
}
