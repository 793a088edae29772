//! Scores of the scripted policies over a suite: what `docs/environments.md` states.

use crate::embedded::EmbeddedDesktop;
use crate::environment::EnvironmentError;
use crate::evaluator::Evaluator;
use crate::look::ScreenOptions;
use crate::oracle::Oracle;
use crate::policies::{CLUMSINESS, Scripted, run_episode};
use crate::tasks::Suite;
use serde::Serialize;

/// A scripted policy by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyKind {
    /// Straight to the goal.
    Oracle,
    /// The oracle, with a detour before one action in five.
    Detours,
    /// The oracle, with a mistake before one action in ten.
    Clumsy,
    /// Anything, anywhere.
    Random,
}

impl PolicyKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Oracle, Self::Detours, Self::Clumsy, Self::Random];

    /// Its name in tables.
    pub fn key(self) -> &'static str {
        match self {
            Self::Oracle => "oracle",
            Self::Detours => "detours",
            Self::Clumsy => "clumsy",
            Self::Random => "random",
        }
    }

    /// The policy, with a seed.
    pub fn policy(self, seed: u64) -> Scripted {
        match self {
            Self::Oracle => Scripted::oracle(),
            Self::Detours => Scripted::Oracle(Oracle::with_detours(seed, 0.2)),
            Self::Clumsy => Scripted::clumsy(seed, CLUMSINESS),
            Self::Random => Scripted::random(seed),
        }
    }
}

/// Mean scores, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Scores {
    /// Of tasks that can be done.
    pub feasible: f64,
    /// Of tasks that cannot.
    pub infeasible: f64,
    /// Of all.
    pub all: f64,
    /// Actions per episode.
    pub actions: f64,
}

/// Steps an episode may take.
pub const MAX_STEPS: usize = 30;

/// Runs all listed tasks of a suite with seeds 0, 1, ...
pub fn scores(
    suite: Suite,
    options: ScreenOptions,
    kind: PolicyKind,
    seeds: u64,
) -> Result<Scores, EnvironmentError> {
    let mut environment = EmbeddedDesktop::new(options)?;
    let (mut feasible, mut infeasible, mut actions) = (Vec::new(), Vec::new(), 0);
    for (index, task) in suite.all_tasks().enumerate() {
        for seed in 0..seeds {
            let mut policy = kind.policy(seed * 1000 + index as u64);
            let result = run_episode(&mut environment, task, seed, &mut policy, MAX_STEPS)?;
            actions += result.actions.len();
            let group = if Evaluator::of(task)?.infeasible { &mut infeasible } else { &mut feasible };
            group.push(result.score);
        }
    }
    let mean = |scores: &[f64]| 100.0 * scores.iter().sum::<f64>() / scores.len() as f64;
    let all = [feasible.as_slice(), infeasible.as_slice()].concat();
    Ok(Scores {
        feasible: mean(&feasible),
        infeasible: mean(&infeasible),
        all: mean(&all),
        actions: actions as f64 / all.len() as f64,
    })
}
