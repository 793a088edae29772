//! Collecting on toy desktops: the orders, failures and recovery.

use crate::toy::{Behaviour, CallContext, collect, factory, groups, options, policy, trajectories};
use arpo_core::config::Order;
use arpo_core::trajectory::{Outcome, PolicyVersion, Trajectory};
use arpo_train::TrainError;
use arpo_train::collect::{CollectEvent, CollectOptions, Collector, DesktopFailure, FailureKind};
use arpo_train::episode::{History, TranscriptSlice};
use arpo_train::policy::{GenerationRequest, Policy, RequestId, Response, ScriptedPolicy};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(crate) const ORDERS: [Order; 3] = [Order::Rounds, Order::Arrival, Order::LockStep];

/// A delay of a few milliseconds, different for every call.
fn delayed(now: &CallContext) -> Behaviour {
    let mixed = now.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(u32::from(now.steps) * 7) >> 40;
    Behaviour::After(Duration::from_micros((mixed + now.slot as u64 * 977) % 3000))
}

#[test]
fn episodes_do_not_depend_on_order_desktops_or_timing() {
    let expected = collect(factory(|_| Behaviour::Well), 1, options(Order::Rounds), groups(3, 5, 0)).unwrap();
    let trajectories_of = trajectories(&expected);
    let sizes: Vec<usize> = trajectories_of.iter().map(Vec::len).collect();
    assert_eq!(sizes, [5, 5, 5]);
    let outcomes = |wanted: fn(&Outcome) -> bool| {
        trajectories_of.iter().flatten().filter(|one| wanted(&one.outcome)).count()
    };
    assert!(outcomes(|one| matches!(one, Outcome::Finished {})) > 0);
    assert!(outcomes(|one| matches!(one, Outcome::StepLimit {})) > 0);
    assert!(outcomes(|one| matches!(one, Outcome::Unparsable { .. })) > 0);
    for order in ORDERS {
        for desktops in [1, 3, 8, 40] {
            let collected = collect(factory(delayed), desktops, options(order), groups(3, 5, 0)).unwrap();
            assert_eq!(trajectories(&collected), trajectories_of, "{order:?} on {desktops}");
        }
    }
    let steps: usize = trajectories_of.iter().flatten().map(|one| one.steps.len()).sum();
    assert_eq!((expected.report.episodes, expected.report.steps, expected.report.lost), (15, steps, 0));
}

/// As in the released code, optionally: the desktop is evaluated even if the last response is unparsable.
#[test]
fn an_episode_with_an_unparsable_end_is_evaluated_if_configured() {
    let unparsable = |evaluate_unparsable: bool| {
        let options = CollectOptions { evaluate_unparsable, ..options(Order::Arrival) };
        let collected = collect(factory(|_| Behaviour::Well), 4, options, groups(3, 5, 0)).unwrap();
        let of = |one: &Trajectory| matches!(one.outcome, Outcome::Unparsable { .. }) && !one.well_formed;
        trajectories(&collected).into_iter().flatten().filter(of).collect::<Vec<_>>()
    };
    let [unscored, evaluated] = [false, true].map(unparsable);
    assert!(!evaluated.is_empty() && evaluated.len() == unscored.len());
    assert!(unscored.iter().all(|one| one.score == 0.0) && evaluated.iter().any(|one| one.score > 0.0));
}

/// A policy whose every response reaches the limit of tokens.
struct CutOff(ScriptedPolicy);

impl Policy for CutOff {
    fn submit(&mut self, request: GenerationRequest) -> Result<(), TrainError> {
        self.0.submit(request)
    }

    fn pending(&self) -> usize {
        self.0.pending()
    }

    fn step(&mut self) -> Result<Vec<(RequestId, Response)>, TrainError> {
        let responses = self.0.step()?.into_iter();
        Ok(responses.map(|(id, response)| (id, Response { complete: false, ..response })).collect())
    }

    fn cancel_all(&mut self) {
        self.0.cancel_all();
    }

    fn version(&self) -> PolicyVersion {
        self.0.version()
    }

    fn transcript(&self, history: &History) -> Result<Vec<TranscriptSlice>, TrainError> {
        self.0.transcript(history)
    }
}

/// A response that reached the token limit is parsed as far as it goes.
#[test]
fn a_response_that_was_cut_off_is_parsed_if_possible() {
    let trajectory = |text: &'static str| {
        let script = move |_: &History| Ok(text.to_owned());
        let mut policy = CutOff(ScriptedPolicy::new(script, Duration::ZERO));
        let mut collector = Collector::new(factory(|_| Behaviour::Well), 1, options(Order::Rounds));
        let collected = collector.collect(&mut policy, groups(1, 2, 0), &mut |_| {}).unwrap();
        trajectories(&collected).remove(0).remove(0)
    };
    let parsed = trajectory("Action: finished()");
    assert_eq!((parsed.outcome, parsed.steps.len()), (Outcome::Finished {}, 1));
    let Outcome::Unparsable { reason } = trajectory("Thought: and so on").outcome else { panic!("parsed") };
    assert_eq!(reason, "too long: no end within 18 tokens; the response has no \"Action:\"");
}

/// In rounds, the batches of requests depend on the episodes alone.
#[test]
fn rounds_request_in_the_same_order_whatever_the_timing() {
    let requested = |rule: fn(&CallContext) -> Behaviour| {
        let log = Arc::new(Mutex::new(vec![]));
        let seen = Arc::clone(&log);
        let script = move |history: &arpo_train::episode::History| {
            seen.lock().unwrap().push((history.plan.id.clone(), history.responses.len()));
            let ends = history.responses.len() as u64 >= history.plan.sampling_seed % 4;
            Ok(if ends { "Action: finished()" } else { "Action: wait()" }.to_owned())
        };
        let mut policy = arpo_train::policy::ScriptedPolicy::new(script, Duration::ZERO);
        let mut collector = Collector::new(factory(rule), 4, options(Order::Rounds));
        let collected = collector.collect(&mut policy, groups(3, 5, 0), &mut |_| {}).unwrap();
        (log.lock().unwrap().clone(), collected.report.passes)
    };
    let expected = requested(|_| Behaviour::Well);
    assert!(expected.0.len() > 15);
    for _ in 0..3 {
        assert_eq!(requested(delayed), expected);
    }
}

#[test]
fn a_desktop_that_hangs_is_abandoned_and_replaced() {
    for (call, order) in [("reset", Order::Rounds), ("step", Order::Arrival), ("evaluate", Order::LockStep)] {
        let hangs = AtomicUsize::new(0);
        // the desktop that is called first: on a busy machine a fixed one might get no call at all
        let rule = move |now: &CallContext| {
            if now.call == call && hangs.fetch_add(1, Ordering::Relaxed) == 0 {
                Behaviour::Hang
            } else {
                Behaviour::Well
            }
        };
        let limit = Duration::from_secs(1);
        let options = CollectOptions { reset: limit, step: limit, evaluate: limit, ..options(order) };
        let collected = collect(factory(rule), 3, options, groups(2, 4, 2)).unwrap();
        let report = &collected.report;
        assert_eq!(report.failures, BTreeMap::from([(FailureKind::Overrun, 1)]), "{call}");
        assert_eq!(
            (report.replacements, report.episodes, report.lost, report.refilled),
            (1, 8, 1, 1),
            "{call}"
        );
        let lost: Vec<_> = collected.groups.iter().flat_map(|group| &group.lost).collect();
        let outcome = &lost[0].episode.trajectory.outcome;
        assert!(
            matches!(outcome, Outcome::EnvironmentError { reason } if reason.starts_with("overrun: desktop ") && reason.contains(" did not respond within")),
            "{outcome:?}"
        );
    }
}

#[test]
fn without_any_desktop_it_ends_with_a_clear_error() {
    for order in ORDERS {
        for call in ["start", "reset"] {
            let rule =
                move |now: &CallContext| if now.call == call { Behaviour::Break } else { Behaviour::Well };
            let error = collect(factory(rule), 2, options(order), groups(2, 4, 50)).unwrap_err().to_string();
            assert_eq!(
                error,
                "all 2 desktops are quarantined; the last failure: the environment broke: as the test says"
            );
        }
    }
}

#[test]
fn one_healthy_desktop_is_enough() {
    for order in ORDERS {
        let rule = |now: &CallContext| match (now.slot, now.call) {
            (0, "start") | (1, "reset") => Behaviour::Break,
            (3, "step") => Behaviour::Panic,
            _ => Behaviour::Well,
        };
        let mut collector = Collector::new(factory(rule), 4, options(order));
        let collected = collector.collect(&mut policy(), groups(2, 4, 9), &mut |_| {}).unwrap();
        let report = &collected.report;
        assert_eq!(report.episodes, 8, "{order:?}");
        assert!(report.quarantined <= 3 && report.partial_groups == 0, "{report:?}");
        // the next collection tries each of them again and works as well
        let again = collector.collect(&mut policy(), groups(2, 4, 9), &mut |_| {}).unwrap();
        assert_eq!(again.report.episodes, 8, "{order:?}");
        assert_eq!(trajectories(&again).len(), 2);
    }
}

#[test]
fn desktops_that_keep_failing_are_quarantined() {
    let starts = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&starts);
    let rule = move |now: &CallContext| {
        if now.slot == 1 && now.call == "start" {
            seen.fetch_add(1, Ordering::Relaxed);
            return Behaviour::Break;
        }
        Behaviour::After(Duration::from_millis(2))
    };
    let mut collector = Collector::new(factory(rule), 2, options(Order::Rounds));
    let report = collector.collect(&mut policy(), groups(2, 8, 0), &mut |_| {}).unwrap().report;
    assert_eq!((report.quarantined, starts.load(Ordering::Relaxed)), (1, 3));
    assert_eq!(report.failures, BTreeMap::from([(FailureKind::Start, 3)]));
    collector.collect(&mut policy(), groups(2, 8, 0), &mut |_| {}).unwrap();
    assert_eq!(starts.load(Ordering::Relaxed), 4);
}

#[test]
fn lost_episodes_are_refilled_and_then_the_group_stays_smaller() {
    let plans = groups(2, 4, 2);
    // three of the first group, and its first refill
    let mut bad: Vec<u64> = plans[0].episodes[1..].iter().map(|plan| plan.world_seed).collect();
    bad.push(plans[0].refills[0].world_seed);
    for order in ORDERS {
        let bad = bad.clone();
        let rule = move |now: &CallContext| {
            if now.steps == 1 && bad.contains(&now.seed) { Behaviour::Break } else { Behaviour::Well }
        };
        let options = CollectOptions { quarantine_after: 100, ..options(order) };
        let collected = collect(factory(rule), 3, options, plans.clone()).unwrap();
        let report = &collected.report;
        let ids = |number: usize| {
            let ids = collected.groups[number].episodes.iter().map(|one| one.trajectory.id.to_string());
            ids.collect::<Vec<_>>()
        };
        assert_eq!(ids(1), ["2:task 1:0", "2:task 1:1", "2:task 1:2", "2:task 1:3"]);
        let lost = collected.groups[0].lost.len();
        // an episode whose first response ends it never reaches the step that fails
        assert!(lost >= 2, "{lost}");
        assert_eq!(report.refilled, lost.min(2));
        assert_eq!(ids(0).len(), 4 + report.refilled - lost);
        assert_eq!(report.partial_groups, usize::from(lost > 2));
        for one in &collected.groups[0].lost {
            assert_eq!(one.kind, FailureKind::Broken);
            assert_eq!(one.episode.trajectory.check(), Ok(()));
            assert_eq!(one.episode.screens.len(), one.episode.trajectory.steps.len());
            assert!(!one.episode.trajectory.outcome.is_trainable());
        }
    }
}

#[test]
fn every_kind_of_failure_is_distinguished() {
    for (call, behaviour, kind) in [
        ("step", Behaviour::Break, FailureKind::Broken),
        ("reset", Behaviour::Panic, FailureKind::Panic),
        ("step", Behaviour::Black, FailureKind::BlackScreen),
        ("reset", Behaviour::Black, FailureKind::BlackScreen),
        ("step", Behaviour::Small, FailureKind::WrongSize),
        ("reset", Behaviour::Small, FailureKind::WrongSize),
        ("evaluate", Behaviour::Break, FailureKind::Evaluator),
        ("evaluate", Behaviour::BadScore, FailureKind::Evaluator),
    ] {
        let happened = AtomicUsize::new(0);
        let rule = move |now: &CallContext| {
            if now.call == call && happened.fetch_add(1, Ordering::Relaxed) == 1 {
                behaviour
            } else {
                Behaviour::Well
            }
        };
        let mut reported = vec![];
        let mut collector = Collector::new(factory(rule), 2, options(Order::Arrival));
        let mut observer = |event| {
            if let CollectEvent::Failed(DesktopFailure { kind, .. }) = event {
                reported.push(kind);
            }
        };
        let collected = collector.collect(&mut policy(), groups(2, 4, 1), &mut observer).unwrap();
        assert_eq!(collected.report.failures, BTreeMap::from([(kind, 1)]));
        assert_eq!((collected.report.episodes, collected.report.replacements), (8, 1));
        assert_eq!(reported, [kind]);
    }
}

#[test]
fn a_bad_task_loses_its_group_and_no_desktop() {
    for order in ORDERS {
        let rule = |now: &CallContext| {
            if now.task == "task 1" && now.call == "reset" { Behaviour::BadTask } else { Behaviour::Well }
        };
        let collected = collect(factory(rule), 2, options(order), groups(3, 4, 4)).unwrap();
        let sizes: Vec<usize> = collected.groups.iter().map(|group| group.episodes.len()).collect();
        assert_eq!(sizes, [4, 0, 4]);
        assert_eq!(collected.groups[1].bad_task.as_deref(), Some("task task 1: silly"));
        assert_eq!((collected.report.replacements, collected.report.refilled), (0, 0));
        assert!(collected.groups[1].lost.len() <= 2, "the remaining episodes are dropped");
    }
}

#[test]
fn desktops_beyond_the_running_episodes_are_reset_ahead() {
    for order in [Order::Rounds, Order::Arrival] {
        let log = Arc::new(Mutex::new(vec![]));
        let seen = Arc::clone(&log);
        let rule = move |now: &CallContext| {
            seen.lock().unwrap().push((now.call, now.seed));
            Behaviour::Well
        };
        let plans = groups(1, 4, 0);
        let seeds: Vec<u64> = plans[0].episodes.iter().map(|plan| plan.world_seed).collect();
        let options = CollectOptions { running: Some(1), ..options(order) };
        let collected = collect(factory(rule), 2, options, plans).unwrap();
        assert_eq!(collected.report.episodes, 4);
        let log = log.lock().unwrap();
        let at = |call: &str, seed: u64| log.iter().position(|one| *one == (call, seed));
        // the second was reset before the first was evaluated, and acted only after the first had; by arrival, thread
        // timing decides which is ready first, but only one acts at a time
        let last = |seed: u64| log.iter().rposition(|one| *one == ("step", seed));
        let acts_before = |one: u64, other: u64| match (last(one), at("step", other)) {
            (Some(one), Some(other)) => one < other,
            _ => true,
        };
        if order == Order::Rounds {
            assert!(at("reset", seeds[1]) < at("evaluate", seeds[0]));
            assert!(acts_before(seeds[0], seeds[1]));
        }
        assert!(acts_before(seeds[0], seeds[1]) || acts_before(seeds[1], seeds[0]), "{order:?}");
        let resets = log.iter().filter(|one| one.0 == "reset").count();
        assert_eq!(resets, 4, "each prepared desktop is used for its planned episode");
    }
}

#[test]
fn a_limit_of_no_running_episodes_is_a_limit_of_one() {
    let options = CollectOptions { running: Some(0), ..options(Order::Rounds) };
    let collected = collect(factory(|_| Behaviour::Well), 2, options, groups(1, 4, 0)).unwrap();
    assert_eq!(collected.report.episodes, 4);
}

#[test]
fn a_policy_that_fails_ends_the_collection_and_the_next_is_complete() {
    let mut collector = Collector::new(factory(delayed), 3, options(Order::Arrival));
    let mut count = 0;
    let script = move |_: &arpo_train::episode::History| {
        count += 1;
        if count == 4 {
            Err(TrainError::Internal("the script failed".into()))
        } else {
            Ok("Action: wait()".into())
        }
    };
    let mut failing = arpo_train::policy::ScriptedPolicy::new(script, Duration::ZERO);
    let error = collector.collect(&mut failing, groups(2, 4, 0), &mut |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "internal error: the script failed");
    assert!(
        collector.take_ended(&failing).unwrap().is_empty(),
        "only a collection that was stopped leaves some"
    );
    let collected = collector.collect(&mut policy(), groups(2, 4, 0), &mut |_| {}).unwrap();
    let expected = collect(factory(|_| Behaviour::Well), 1, options(Order::Rounds), groups(2, 4, 0)).unwrap();
    assert_eq!(trajectories(&collected), trajectories(&expected));
}

/// The policy runs on the caller's thread, the session on another.
#[test]
fn a_panic_on_either_thread_reaches_the_caller() {
    let panicking = |script: fn() -> String, progress: fn(CollectEvent)| {
        let script = move |_: &arpo_train::episode::History| Ok(script());
        let mut policy = arpo_train::policy::ScriptedPolicy::new(script, Duration::ZERO);
        let mut collector = Collector::new(factory(|_| Behaviour::Well), 2, options(Order::Rounds));
        let collected = std::panic::catch_unwind(AssertUnwindSafe(|| {
            collector.collect(&mut policy, groups(1, 2, 0), &mut { progress })
        }));
        *collected.unwrap_err().downcast::<&str>().unwrap()
    };
    assert_eq!(panicking(|| panic!("in the policy"), |_| {}), "in the policy");
    assert_eq!(panicking(|| "Action: wait()".into(), |_| panic!("in the observer")), "in the observer");
}

#[test]
fn desktops_are_reset_in_advance_for_the_next_collection() {
    for order in ORDERS {
        let log = Arc::new(Mutex::new(vec![]));
        let seen = Arc::clone(&log);
        let rule = move |now: &CallContext| {
            seen.lock().unwrap().push((now.call, now.seed));
            Behaviour::Well
        };
        let mut collector = Collector::new(factory(rule), 3, options(order));
        collector.prepare(&groups(2, 2, 0));
        collector.collect(&mut policy(), groups(1, 3, 0), &mut |_| {}).unwrap();
        log.lock().unwrap().clear();
        let next = groups(2, 2, 0);
        collector.prepare(&next);
        collector.prepare(&next);
        let resets = || log.lock().unwrap().iter().filter(|one| one.0 == "reset").count();
        // only free desktops are reset, and one that starts late is not free: so this wait has a limit
        let deadline = Instant::now() + Duration::from_secs(1);
        while resets() < 3 && Instant::now() < deadline {
            std::thread::yield_now();
        }
        let collected = collector.collect(&mut policy(), next.clone(), &mut |_| {}).unwrap();
        assert_eq!((resets(), collected.report.episodes), (4, 4), "{order:?}");
        let expected = collect(factory(|_| Behaviour::Well), 1, options(Order::Rounds), next).unwrap();
        assert_eq!(trajectories(&collected), trajectories(&expected));
        // desktops prepared for episodes that are not collected are released
        collector.prepare(&groups(1, 3, 0));
        let other = collector.collect(&mut policy(), groups(4, 2, 0), &mut |_| {}).unwrap();
        assert_eq!(other.report.episodes, 8, "{order:?}");
    }
}

/// Desktops for which there is room only later.
struct Growing {
    toys: Arc<dyn arpo_suite::EnvironmentSource>,
    room: std::sync::atomic::AtomicUsize,
    made: Mutex<std::collections::BTreeSet<usize>>,
}

impl arpo_suite::EnvironmentSource for Growing {
    fn max_desktops(&self) -> Option<usize> {
        Some(self.room.load(std::sync::atomic::Ordering::Relaxed))
    }

    fn make(
        &self,
        slot: usize,
    ) -> Result<Box<dyn arpo_env::environment::Environment>, arpo_env::environment::EnvironmentError> {
        self.made.lock().unwrap().insert(slot);
        self.toys.make(slot)
    }
}

/// A worker that joins a run adds room to it, as far as desktops are wanted.
#[test]
fn room_that_comes_later_is_used_from_the_next_collection_on() {
    let source =
        Arc::new(Growing { toys: factory(|_| Behaviour::Well), room: 2.into(), made: Mutex::default() });
    let mut collector = Collector::new(Arc::clone(&source) as _, 5, options(Order::Rounds));
    for (room, expected) in [(2, 2), (4, 4), (3, 4), (9, 5)] {
        source.room.store(room, std::sync::atomic::Ordering::Relaxed);
        let collected = collector.collect(&mut policy(), groups(3, 4, 0), &mut |_| {}).unwrap();
        assert_eq!(collected.report.episodes, 12);
        assert_eq!(source.made.lock().unwrap().len(), expected, "room for {room}");
    }
}
