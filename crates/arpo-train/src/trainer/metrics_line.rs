//! An iteration's line in `metrics.jsonl`. Names are grouped by topic; everything that depends on the clock or the
//! machine is under `time/` or, for the hosts of desktops, under `cluster/`, so that the rest can be compared between runs
//! with the same seed.

use crate::batch::{BatchReport, mean};
use crate::collect::CollectReport;
use crate::memory::resident_mib;
use crate::run::about::unix_time;
use crate::run::events::Evaluation;
use crate::updates::LearnReport;
use arpo_env::faults::Fault;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The data of an iteration's metrics.
#[derive(Debug)]
pub(super) struct Iteration<'a> {
    pub(super) number: u64,
    pub(super) batch: &'a BatchReport,
    pub(super) learnt: &'a LearnReport,
    pub(super) collected: &'a CollectReport,
    /// Mean score of each collected task.
    pub(super) tasks: &'a BTreeMap<String, f64>,
    /// Policy versions between the sampler's weights and the learner's, before the updates.
    pub(super) staleness: u64,
    pub(super) stored: usize,
    /// Faults injected since the previous line.
    pub(super) faults: &'a BTreeMap<Fault, u64>,
    pub(super) evaluation: Option<&'a Evaluation>,
    pub(super) seconds: Seconds,
}

/// Where an iteration's time went.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seconds {
    pub(super) all: f64,
    pub(super) collect: f64,
    pub(super) learn: f64,
    pub(super) evaluate: f64,
}

/// The line of an iteration.
pub(super) fn line(iteration: &Iteration) -> Map<String, Value> {
    let Iteration { batch, learnt, collected, seconds, .. } = iteration;
    let statistics = &learnt.statistics;
    let ages = batch.replay_ages.iter().map(|&age| age as f64);
    let mut line = Map::new();
    let mut put = |name: &str, value: Value| {
        line.insert(name.to_owned(), value);
    };
    put("iteration", json!(iteration.number));
    put("reward/score", json!(batch.score));
    put("reward/mean", json!(batch.reward));
    put("reward/std", json!(batch.reward_std));
    put("reward/format", json!(batch.format));
    put("groups/all", json!(batch.groups));
    put("groups/spread", json!(batch.spread));
    put("groups/informative", json!(batch.informative));
    put("groups/invalid", json!(batch.groups - batch.informative));
    put("groups/left_out", json!(batch.left_out));
    put("groups/all_failed", json!(batch.all_failed));
    put("groups/all_solved", json!(batch.all_solved));
    put("replay/injected", json!(batch.replay_ages.len()));
    put("replay/age", json!(mean(ages)));
    put("replay/stored", json!(iteration.stored));
    put("episode/turns", json!(batch.turns));
    put("episode/tokens", json!(batch.tokens));
    put("episode/trained_tokens", json!(batch.trained_tokens));
    put("loss/value", json!(learnt.loss));
    put("loss/clip_fraction", json!(statistics.clip_fraction()));
    put("loss/clip_fraction_dual", json!(statistics.clip_fraction_dual()));
    put("loss/kl", json!(statistics.policy_kl()));
    put("loss/reference_kl", json!(statistics.reference_kl()));
    put("loss/importance", json!(statistics.mean_importance()));
    put("loss/importance_truncated", json!(statistics.truncated_fraction()));
    put("policy/entropy", json!(learnt.entropy));
    put("policy/mismatch", json!(learnt.mismatch.mean()));
    put("policy/mismatch_largest", json!(learnt.mismatch.largest));
    put("policy/staleness", json!(iteration.staleness));
    put("update/count", json!(learnt.updates));
    put("update/skipped", json!(learnt.skipped));
    put("update/gradient_norm", json!(learnt.gradient_norm));
    put("update/learning_rate", json!(learnt.learning_rate));
    put("update/tokens", json!(learnt.tokens));
    put("collect/episodes", json!(collected.episodes));
    put("collect/lost", json!(collected.lost));
    put("collect/unplayable", json!(collected.unplayable));
    put("collect/refilled", json!(collected.refilled));
    put("collect/cache_found", json!(collected.cache_hit_rate()));
    put("collect/partial_groups", json!(collected.partial_groups));
    for (kind, count) in &collected.failures {
        put(&format!("failures/{}", kind.name()), json!(count));
    }
    for (fault, count) in iteration.faults {
        put(&format!("faults/{}", fault.key()), json!(count));
    }
    if let Some(mib) = resident_mib() {
        put("time/resident_mib", json!(mib.round()));
    }
    put("time/wall", json!(unix_time()));
    put("time/iteration", json!(seconds.all));
    put("time/collect", json!(seconds.collect));
    put("time/learn", json!(seconds.learn));
    put("time/evaluate", json!(seconds.evaluate));
    let informative = per_second(batch.informative, seconds.collect + seconds.learn);
    put("time/informative_groups_per_second", json!(informative));
    put("time/sampled_tokens_per_second", json!(per_second(collected.tokens, seconds.collect)));
    put("time/learnt_tokens_per_second", json!(per_second(learnt.tokens, seconds.learn)));
    put("time/desktop_utilisation", json!(collected.desktop_utilisation));
    put("time/policy_utilisation", json!(collected.policy_utilisation));
    for (host, report) in &collected.hosts {
        put(&format!("cluster/{host}/failures"), json!(report.failures));
        put(&format!("cluster/{host}/utilisation"), json!(report.utilisation()));
    }
    if let Some(evaluation) = iteration.evaluation {
        for (name, value) in evaluation_metrics(evaluation) {
            put(&name, value);
        }
    }
    put("tasks", json!(iteration.tasks));
    line
}

/// What a line says about an evaluation.
pub(super) fn evaluation_metrics(evaluation: &Evaluation) -> Vec<(String, Value)> {
    let mut metrics = vec![("evaluation/lost".to_owned(), json!(evaluation.lost))];
    for (suite, success) in &evaluation.suites {
        metrics.push((format!("evaluation/{suite}"), json!(success.mean)));
        metrics.push((format!("evaluation/{suite}/low"), json!(success.low)));
        metrics.push((format!("evaluation/{suite}/high"), json!(success.high)));
    }
    metrics
}

/// 0 if no time has passed.
pub(super) fn per_second(count: usize, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}
