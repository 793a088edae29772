//! Collecting on embedded desktops with the oracle as policy, without and with faults.

use arpo_core::config::{FaultsConfig, Order};
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::environment::{Environment, EnvironmentError};
use arpo_env::faults::{Fault, FaultCounts, FaultyDesktop};
use arpo_env::tasks::{Split, Suite};
use arpo_train::collect::{CollectOptions, Collector, FailureKind, GroupPlan, GroupSize, Planner, Worlds};
use arpo_train::policy::ScriptedPolicy;
use std::sync::Arc;
use std::time::Duration;

const SUITE: Suite = Suite::Pocket;

fn plans(tasks: usize, group_size: usize, refills: usize) -> Vec<GroupPlan> {
    let planner = Planner { seed: 3, step: 1, worlds: Worlds::Own, faulty: false };
    let size = GroupSize::new(group_size, refills, 15);
    let tasks = SUITE.tasks(Split::Train)[..tasks].iter().enumerate();
    tasks.map(|(number, task)| planner.group(&Arc::new(task.clone()), number as u64, size)).collect()
}

fn oracle() -> ScriptedPolicy {
    ScriptedPolicy::oracle(SUITE.screen(), Duration::ZERO)
}

fn embedded() -> Result<EmbeddedDesktop, EnvironmentError> {
    EmbeddedDesktop::new(SUITE.screen())
}

#[test]
fn the_oracle_solves_its_tasks() {
    for order in [Order::Rounds, Order::Arrival] {
        let factory = |_| Ok(Box::new(embedded()?) as Box<dyn Environment>);
        let mut collector = Collector::new(Arc::new(factory), 7, crate::toy::options(order));
        let collected = collector.collect(&mut oracle(), plans(16, 2, 0), &mut |_| {}).unwrap();
        let scores: Vec<f64> = collected
            .groups
            .iter()
            .flat_map(|group| &group.episodes)
            .map(|one| one.trajectory.score)
            .collect();
        assert_eq!(scores, [1.0; 32]);
        let report = &collected.report;
        assert!(report.desktop_utilisation > 0.0 && report.desktop_utilisation <= 1.0, "{report:?}");
        assert!(report.policy_utilisation > 0.0 && report.policy_utilisation <= 1.0, "{report:?}");
    }
}

#[test]
fn collecting_survives_faults_and_counts_every_one() {
    let faults = FaultsConfig {
        crash: 0.01,
        hang: 0.003,
        slow: 0.01,
        slow_seconds: 0.001,
        black_screen: 0.013,
        truncated_screen: 0.013,
        evaluator_error: 0.05,
    };
    let mut collected = vec![];
    for order in [Order::Rounds, Order::Arrival] {
        let counts = Arc::new(FaultCounts::default());
        let (counted, config) = (Arc::clone(&counts), faults.clone());
        let factory = move |_| {
            let faulty = FaultyDesktop::new(embedded()?, config.clone(), 11, Arc::clone(&counted));
            Ok(Box::new(faulty) as Box<dyn Environment>)
        };
        let limit = Duration::from_secs(1);
        let options =
            CollectOptions { reset: limit, step: limit, evaluate: limit, ..crate::toy::options(order) };
        let mut collector = Collector::new(Arc::new(factory), 8, options);
        let mut plans = plans(24, 4, 4);
        for plan in plans.iter_mut().flat_map(|group| group.episodes.iter_mut().chain(&mut group.refills)) {
            plan.world_seed &= u64::from(u32::MAX); // the lower half, which is all that a faulty desktop passes on
        }
        let result = collector.collect(&mut oracle(), plans, &mut |_| {}).unwrap();
        let report = &result.report;
        let injected = |fault| counts.injected().get(&fault).copied().unwrap_or(0);
        let failed = |kind| report.failures.get(&kind).copied().unwrap_or(0);
        for (fault, kind) in [
            (Fault::Crash, FailureKind::Broken),
            (Fault::Hang, FailureKind::Overrun),
            (Fault::BlackScreen, FailureKind::BlackScreen),
            (Fault::TruncatedScreen, FailureKind::WrongSize),
            (Fault::EvaluatorError, FailureKind::Evaluator),
        ] {
            assert!(injected(fault) > 0, "{fault:?} was never injected");
            assert_eq!(injected(fault), failed(kind), "{fault:?}");
        }
        assert!(injected(Fault::Slow) > 0);
        let all: u64 = report.failures.values().sum();
        assert_eq!(all, report.lost as u64);
        assert_eq!(report.episodes + report.lost, 24 * 4 + report.refilled);
        assert!(result.groups.iter().flat_map(|group| &group.episodes).all(|one| {
            one.trajectory.outcome.is_trainable() && (one.trajectory.score - 1.0).abs() < 1e-9
        }));
        collected.push((report.failures.clone(), crate::toy::trajectories(&result)));
    }
    // the same faults hit the same episodes in any order
    assert_eq!(collected[0], collected[1]);
}
