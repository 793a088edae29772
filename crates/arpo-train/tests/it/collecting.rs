//! Collecting on toy desktops: the orders, what fails and how it goes on.

use crate::toy::{Deed, Occasion, collect, factory, groups, options, policy, trajectories};
use arpo_core::config::Order;
use arpo_core::trajectory::{Outcome, PolicyVersion, Trajectory};
use arpo_train::TrainError;
use arpo_train::collect::{CollectEvent, CollectOptions, Collector, DesktopFailure, FailureKind};
use arpo_train::episode::{History, TranscriptSlice};
use arpo_train::policy::{Answer, Policy, Question, ScriptedPolicy, Ticket};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const ORDERS: [Order; 3] = [Order::Rounds, Order::Arrival, Order::LockStep];

/// A few thousandths of a second, different for every call.
fn dawdle(now: &Occasion) -> Deed {
    let mixed = now.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(u32::from(now.steps) * 7) >> 40;
    Deed::After(Duration::from_micros((mixed + now.place as u64 * 977) % 3000))
}

#[test]
fn the_same_is_collected_whatever_the_order_the_desktops_and_their_times() {
    let expected = collect(factory(|_| Deed::Well), 1, options(Order::Rounds), groups(3, 5, 0)).unwrap();
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
            let collected = collect(factory(dawdle), desktops, options(order), groups(3, 5, 0)).unwrap();
            assert_eq!(trajectories(&collected), trajectories_of, "{order:?} on {desktops}");
        }
    }
    let steps: usize = trajectories_of.iter().flatten().map(|one| one.steps.len()).sum();
    assert_eq!((expected.report.episodes, expected.report.steps, expected.report.lost), (15, steps, 0));
}

/// As in the released code, if that is wanted: the desktop is judged, whatever the last words were.
#[test]
fn an_episode_that_ends_without_an_action_is_judged_if_wanted() {
    let unparsable = |judge_unparsable: bool| {
        let options = CollectOptions { judge_unparsable, ..options(Order::Arrival) };
        let collected = collect(factory(|_| Deed::Well), 4, options, groups(3, 5, 0)).unwrap();
        let of = |one: &Trajectory| matches!(one.outcome, Outcome::Unparsable { .. }) && !one.well_formed;
        trajectories(&collected).into_iter().flatten().filter(of).collect::<Vec<_>>()
    };
    let [given_up, judged] = [false, true].map(unparsable);
    assert!(!judged.is_empty() && judged.len() == given_up.len());
    assert!(given_up.iter().all(|one| one.score == 0.0) && judged.iter().any(|one| one.score > 0.0));
}

/// A policy whose every response reaches the limit of tokens.
struct CutOff(ScriptedPolicy);

impl Policy for CutOff {
    fn ask(&mut self, question: Question) -> Result<(), TrainError> {
        self.0.ask(question)
    }

    fn unanswered(&self) -> usize {
        self.0.unanswered()
    }

    fn advance(&mut self) -> Result<Vec<(Ticket, Answer)>, TrainError> {
        let answers = self.0.advance()?.into_iter();
        Ok(answers.map(|(ticket, answer)| (ticket, Answer { complete: false, ..answer })).collect())
    }

    fn abandon(&mut self) {
        self.0.abandon();
    }

    fn version(&self) -> PolicyVersion {
        self.0.version()
    }

    fn transcript(&self, history: &History) -> Result<Vec<TranscriptSlice>, TrainError> {
        self.0.transcript(history)
    }
}

/// A response that reached the limit of tokens is read as far as it goes.
#[test]
fn a_response_that_was_cut_off_is_read_if_it_can_be() {
    let played = |words: &'static str| {
        let script = move |_: &History| Ok(words.to_owned());
        let mut policy = CutOff(ScriptedPolicy::new(script, Duration::ZERO));
        let mut collector = Collector::new(factory(|_| Deed::Well), 1, options(Order::Rounds));
        let collected = collector.collect(&mut policy, groups(1, 2, 0), &mut |_| {}).unwrap();
        trajectories(&collected).remove(0).remove(0)
    };
    let read = played("Action: finished()");
    assert_eq!((read.outcome, read.steps.len()), (Outcome::Finished {}, 1));
    let Outcome::Unparsable { reason } = played("Thought: and so on").outcome else { panic!("read") };
    assert_eq!(reason, "too long: no end within 18 tokens; the response has no \"Action:\"");
}

/// What the policy is asked together, in rounds, is decided by the episodes alone.
#[test]
fn rounds_ask_in_the_same_order_however_desktops_are_timed() {
    let asked = |rule: fn(&Occasion) -> Deed| {
        let log = Arc::new(Mutex::new(vec![]));
        let seen = Arc::clone(&log);
        let script = move |history: &arpo_train::episode::History| {
            seen.lock().unwrap().push((history.plan.id.clone(), history.answers.len()));
            let ends = history.answers.len() as u64 >= history.plan.sampling_seed % 4;
            Ok(if ends { "Action: finished()" } else { "Action: wait()" }.to_owned())
        };
        let mut policy = arpo_train::policy::ScriptedPolicy::new(script, Duration::ZERO);
        let mut collector = Collector::new(factory(rule), 4, options(Order::Rounds));
        let collected = collector.collect(&mut policy, groups(3, 5, 0), &mut |_| {}).unwrap();
        (log.lock().unwrap().clone(), collected.report.passes)
    };
    let expected = asked(|_| Deed::Well);
    assert!(expected.0.len() > 15);
    for _ in 0..3 {
        assert_eq!(asked(dawdle), expected);
    }
}

#[test]
fn a_desktop_that_hangs_is_given_up_and_replaced() {
    for (call, order) in [("reset", Order::Rounds), ("step", Order::Arrival), ("evaluate", Order::LockStep)] {
        let hangs = AtomicUsize::new(0);
        // whichever desktop is asked first: on a busy machine one of them may get nothing to do
        let rule = move |now: &Occasion| {
            if now.call == call && hangs.fetch_add(1, Ordering::Relaxed) == 0 {
                Deed::Hang
            } else {
                Deed::Well
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
        let outcome = &lost[0].played.trajectory.outcome;
        assert!(
            matches!(outcome, Outcome::EnvironmentError { reason } if reason.starts_with("overrun: desktop ") && reason.contains(" did not answer within")),
            "{outcome:?}"
        );
    }
}

#[test]
fn without_any_desktop_it_ends_with_a_clear_error() {
    for order in ORDERS {
        for call in ["start", "reset"] {
            let rule = move |now: &Occasion| if now.call == call { Deed::Break } else { Deed::Well };
            let error = collect(factory(rule), 2, options(order), groups(2, 4, 50)).unwrap_err().to_string();
            assert_eq!(
                error,
                "none of 2 desktops can be had any more; the last failure: the environment broke: as the test says"
            );
        }
    }
}

#[test]
fn one_healthy_desktop_is_enough() {
    for order in ORDERS {
        let rule = |now: &Occasion| match (now.place, now.call) {
            (0, "start") | (1, "reset") => Deed::Break,
            (3, "step") => Deed::Panic,
            _ => Deed::Well,
        };
        let mut collector = Collector::new(factory(rule), 4, options(order));
        let collected = collector.collect(&mut policy(), groups(2, 4, 9), &mut |_| {}).unwrap();
        let report = &collected.report;
        assert_eq!(report.episodes, 8, "{order:?}");
        assert!(report.quarantined <= 3 && report.partial_groups == 0, "{report:?}");
        // the next collection gives each of them another chance, and goes on
        let again = collector.collect(&mut policy(), groups(2, 4, 9), &mut |_| {}).unwrap();
        assert_eq!(again.report.episodes, 8, "{order:?}");
        assert_eq!(trajectories(&again).len(), 2);
    }
}

#[test]
fn desktops_that_keep_failing_are_no_more_replaced() {
    let starts = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&starts);
    let rule = move |now: &Occasion| {
        if now.place == 1 && now.call == "start" {
            seen.fetch_add(1, Ordering::Relaxed);
            return Deed::Break;
        }
        Deed::After(Duration::from_millis(2))
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
    // three of the first group, and its first spare
    let mut bad: Vec<u64> = plans[0].episodes[1..].iter().map(|plan| plan.world_seed).collect();
    bad.push(plans[0].spares[0].world_seed);
    for order in ORDERS {
        let bad = bad.clone();
        let rule = move |now: &Occasion| {
            if now.steps == 1 && bad.contains(&now.seed) { Deed::Break } else { Deed::Well }
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
        // an episode whose first answer ends it does not come to the step that fails
        assert!(lost >= 2, "{lost}");
        assert_eq!(report.refilled, lost.min(2));
        assert_eq!(ids(0).len(), 4 + report.refilled - lost);
        assert_eq!(report.partial_groups, usize::from(lost > 2));
        for one in &collected.groups[0].lost {
            assert_eq!(one.kind, FailureKind::Broken);
            assert_eq!(one.played.trajectory.check(), Ok(()));
            assert_eq!(one.played.screens.len(), one.played.trajectory.steps.len());
            assert!(!one.played.trajectory.outcome.is_trainable());
        }
    }
}

#[test]
fn every_kind_of_failure_is_told_apart() {
    for (call, deed, kind) in [
        ("step", Deed::Break, FailureKind::Broken),
        ("reset", Deed::Panic, FailureKind::Panic),
        ("step", Deed::Black, FailureKind::BlackScreen),
        ("reset", Deed::Black, FailureKind::BlackScreen),
        ("step", Deed::Small, FailureKind::WrongSize),
        ("reset", Deed::Small, FailureKind::WrongSize),
        ("evaluate", Deed::Break, FailureKind::Evaluator),
        ("evaluate", Deed::BadScore, FailureKind::Evaluator),
    ] {
        let happened = AtomicUsize::new(0);
        let rule = move |now: &Occasion| {
            if now.call == call && happened.fetch_add(1, Ordering::Relaxed) == 1 { deed } else { Deed::Well }
        };
        let mut told = vec![];
        let mut collector = Collector::new(factory(rule), 2, options(Order::Arrival));
        let mut tell = |event| {
            if let CollectEvent::Failed(DesktopFailure { kind, .. }) = event {
                told.push(kind);
            }
        };
        let collected = collector.collect(&mut policy(), groups(2, 4, 1), &mut tell).unwrap();
        assert_eq!(collected.report.failures, BTreeMap::from([(kind, 1)]));
        assert_eq!((collected.report.episodes, collected.report.replacements), (8, 1));
        assert_eq!(told, [kind]);
    }
}

#[test]
fn a_bad_task_loses_its_group_and_no_desktop() {
    for order in ORDERS {
        let rule = |now: &Occasion| {
            if now.task == "task 1" && now.call == "reset" { Deed::BadTask } else { Deed::Well }
        };
        let collected = collect(factory(rule), 2, options(order), groups(3, 4, 4)).unwrap();
        let sizes: Vec<usize> = collected.groups.iter().map(|group| group.episodes.len()).collect();
        assert_eq!(sizes, [4, 0, 4]);
        assert_eq!(collected.groups[1].bad_task.as_deref(), Some("task task 1: silly"));
        assert_eq!((collected.report.replacements, collected.report.refilled), (0, 0));
        assert!(collected.groups[1].lost.len() <= 2, "what had not begun is not tried");
    }
}

#[test]
fn desktops_beyond_the_running_episodes_are_reset_ahead() {
    for order in [Order::Rounds, Order::Arrival] {
        let log = Arc::new(Mutex::new(vec![]));
        let seen = Arc::clone(&log);
        let rule = move |now: &Occasion| {
            seen.lock().unwrap().push((now.call, now.seed));
            Deed::Well
        };
        let plans = groups(1, 4, 0);
        let seeds: Vec<u64> = plans[0].episodes.iter().map(|plan| plan.world_seed).collect();
        let options = CollectOptions { running: Some(1), ..options(order) };
        let collected = collect(factory(rule), 2, options, plans).unwrap();
        assert_eq!(collected.report.episodes, 4);
        let log = log.lock().unwrap();
        let at = |call: &str, seed: u64| log.iter().position(|one| *one == (call, seed));
        // the second was reset before the first was judged, and acted only after the first had; by arrival it depends on
        // how threads are timed which is ready first, but only one acts at a time
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
        assert_eq!(resets, 4, "each prepared desktop is used for what it was prepared for");
    }
}

#[test]
fn a_policy_that_fails_ends_the_collection_and_the_next_is_whole() {
    let mut collector = Collector::new(factory(dawdle), 3, options(Order::Arrival));
    let mut count = 0;
    let script = move |_: &arpo_train::episode::History| {
        count += 1;
        if count == 4 {
            Err(TrainError::Options("no more ideas".into()))
        } else {
            Ok("Action: wait()".into())
        }
    };
    let mut failing = arpo_train::policy::ScriptedPolicy::new(script, Duration::ZERO);
    let error = collector.collect(&mut failing, groups(2, 4, 0), &mut |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "no more ideas");
    let collected = collector.collect(&mut policy(), groups(2, 4, 0), &mut |_| {}).unwrap();
    let expected = collect(factory(|_| Deed::Well), 1, options(Order::Rounds), groups(2, 4, 0)).unwrap();
    assert_eq!(trajectories(&collected), trajectories(&expected));
}

/// The policy is on the caller's thread, all else on another.
#[test]
fn a_panic_on_either_thread_reaches_the_caller() {
    let panicking = |script: fn() -> String, progress: fn(CollectEvent)| {
        let script = move |_: &arpo_train::episode::History| Ok(script());
        let mut policy = arpo_train::policy::ScriptedPolicy::new(script, Duration::ZERO);
        let mut collector = Collector::new(factory(|_| Deed::Well), 2, options(Order::Rounds));
        let collected = std::panic::catch_unwind(AssertUnwindSafe(|| {
            collector.collect(&mut policy, groups(1, 2, 0), &mut { progress })
        }));
        *collected.unwrap_err().downcast::<&str>().unwrap()
    };
    assert_eq!(panicking(|| panic!("no more words"), |_| {}), "no more words");
    assert_eq!(panicking(|| "Action: wait()".into(), |_| panic!("nowhere to tell it")), "nowhere to tell it");
}

#[test]
fn desktops_are_reset_for_the_next_collection_while_nobody_waits() {
    for order in ORDERS {
        let log = Arc::new(Mutex::new(vec![]));
        let seen = Arc::clone(&log);
        let rule = move |now: &Occasion| {
            seen.lock().unwrap().push((now.call, now.seed));
            Deed::Well
        };
        let mut collector = Collector::new(factory(rule), 3, options(order));
        collector.prepare(&groups(2, 2, 0));
        collector.collect(&mut policy(), groups(1, 3, 0), &mut |_| {}).unwrap();
        log.lock().unwrap().clear();
        let next = groups(2, 2, 0);
        collector.prepare(&next);
        collector.prepare(&next);
        let resets = || log.lock().unwrap().iter().filter(|one| one.0 == "reset").count();
        // as many as are free: one that starts late is not, so this is not waited for without end
        let patience = Instant::now() + Duration::from_secs(1);
        while resets() < 3 && Instant::now() < patience {
            std::thread::yield_now();
        }
        let collected = collector.collect(&mut policy(), next.clone(), &mut |_| {}).unwrap();
        assert_eq!((resets(), collected.report.episodes), (4, 4), "{order:?}");
        let expected = collect(factory(|_| Deed::Well), 1, options(Order::Rounds), next).unwrap();
        assert_eq!(trajectories(&collected), trajectories(&expected));
        // what was prepared and is not asked for is let go
        collector.prepare(&groups(1, 3, 0));
        let other = collector.collect(&mut policy(), groups(4, 2, 0), &mut |_| {}).unwrap();
        assert_eq!(other.report.episodes, 8, "{order:?}");
    }
}
