//! Episodes whose policy gives no response: they are lost, and replaced as long as there are refills.

use crate::collecting::ORDERS;
use crate::toy::{Behaviour, factory, groups, options, policy};
use arpo_core::config::Order;
use arpo_core::trajectory::PolicyVersion;
use arpo_train::TrainError;
use arpo_train::collect::{CollectEvent, Collector, FailureKind, Remedy};
use arpo_train::episode::{History, TranscriptSlice};
use arpo_train::policy::{GenerationRequest, Policy, RequestId, Response, ScriptedPolicy};
use std::sync::Mutex;

/// Gives up the first request of every third episode.
struct LosesRequests {
    script: ScriptedPolicy,
    submitted: usize,
    lost: Vec<(RequestId, String)>,
}

impl Policy for LosesRequests {
    fn submit(&mut self, request: GenerationRequest) -> Result<(), TrainError> {
        if !request.history.responses.is_empty() {
            return self.script.submit(request);
        }
        self.submitted += 1;
        if self.submitted.is_multiple_of(3) {
            self.lost.push((request.id, "no server".into()));
            return Ok(());
        }
        self.script.submit(request)
    }

    fn pending(&self) -> usize {
        self.script.pending() + self.lost.len()
    }

    fn step(&mut self) -> Result<Vec<(RequestId, Response)>, TrainError> {
        self.script.step()
    }

    fn take_lost(&mut self) -> Vec<(RequestId, String)> {
        std::mem::take(&mut self.lost)
    }

    fn cancel_all(&mut self) {
        self.script.cancel_all();
    }

    fn version(&self) -> PolicyVersion {
        self.script.version()
    }

    fn transcript(&self, history: &History) -> Result<Vec<TranscriptSlice>, TrainError> {
        self.script.transcript(history)
    }
}

/// Its desktop is not replaced, and a refill takes its place.
#[test]
fn an_episode_without_a_response_is_lost_and_replaced() {
    for order in ORDERS {
        let mut policy = LosesRequests { script: policy(), submitted: 0, lost: vec![] };
        let mut collector = Collector::new(factory(|_| Behaviour::Well), 3, options(order));
        let failures = Mutex::new(vec![]);
        let collected = collector
            .collect(&mut policy, groups(2, 4, 4), &mut |event| {
                if let CollectEvent::Failed(failure) = event {
                    failures.lock().unwrap().push(failure);
                }
            })
            .unwrap();
        let report = &collected.report;
        assert_eq!((report.episodes, report.replacements, report.partial_groups), (8, 0, 0), "{order:?}");
        assert!(report.lost > 0 && report.lost == report.refilled, "{order:?} {report:?}");
        assert_eq!(report.failures[&FailureKind::NoResponse], report.lost as u64);
        let failures = failures.into_inner().unwrap();
        assert!(failures.iter().all(|failure| failure.reason == "no server"), "{failures:?}");
        assert!(failures.iter().all(|failure| failure.remedy == Remedy::EpisodeReplaced), "{failures:?}");
    }
}

/// The first lost episode of a group gets the only refill, and the next one none.
#[test]
fn a_remedy_promises_a_refill_only_if_there_is_one() {
    let mut policy = LosesRequests { script: policy(), submitted: 0, lost: vec![] };
    let mut collector = Collector::new(factory(|_| Behaviour::Well), 8, options(Order::Rounds));
    let remedies = Mutex::new(vec![]);
    let collected = collector
        .collect(&mut policy, groups(1, 8, 1), &mut |event| {
            if let CollectEvent::Failed(failure) = event {
                remedies.lock().unwrap().push(failure.remedy);
            }
        })
        .unwrap();
    let report = &collected.report;
    let mut expected = vec![Remedy::EpisodeDropped; report.lost];
    expected[0] = Remedy::EpisodeReplaced;
    assert_eq!(remedies.into_inner().unwrap(), expected);
    assert_eq!((report.refilled, report.partial_groups), (1, 1));
}
