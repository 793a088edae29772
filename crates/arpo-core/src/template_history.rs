//! The latest rollouts of every template, for runs that visit a task once or twice and so learn little about a single one:
//! tasks of a template are alike, and where some of them succeed and others fail, groups teach.
//!
//! The estimate of a template's success is the mean of a Beta posterior over its window, with a uniform prior.

use crate::selection::dynamic_weight;
use crate::task_sampler::TaskSamplingConfig;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Whether the latest rollouts of each template succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TemplateHistory {
    /// Oldest first.
    latest: BTreeMap<String, VecDeque<bool>>,
}

impl TemplateHistory {
    /// Records a rollout of a task of this template.
    pub fn record(&mut self, template: &str, success: bool, config: &TaskSamplingConfig) {
        let latest = self.latest.entry(template.to_owned()).or_default();
        latest.push_back(success);
        while latest.len() > config.window {
            latest.pop_front();
        }
    }

    /// Nothing is recorded.
    pub fn is_empty(&self) -> bool {
        self.latest.is_empty()
    }

    /// How often a task of this template is sampled, relative to others.
    pub fn weight(&self, template: &str, config: &TaskSamplingConfig) -> f64 {
        let (successes, rollouts) = self.counts(template);
        dynamic_weight(successes, rollouts, config)
    }

    fn counts(&self, template: &str) -> (usize, usize) {
        let count =
            |latest: &VecDeque<bool>| (latest.iter().filter(|&&success| success).count(), latest.len());
        self.latest.get(template).map_or((0, 0), count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_in_between_come_first() {
        let config = TaskSamplingConfig {
            window: 8,
            unsolved_weight: 0.1,
            solved_weight: 0.02,
            ..TaskSamplingConfig::default()
        };
        let mut history = TemplateHistory::default();
        let mut record = |template: &str, successes: usize, failures: usize| {
            (0..successes).for_each(|_| history.record(template, true, &config));
            (0..failures).for_each(|_| history.record(template, false, &config));
        };
        record("solved", 8, 0);
        record("never", 0, 8);
        record("half", 4, 4);
        // the window forgets: sixteen failures, then eight successes
        record("learnt", 0, 16);
        record("learnt", 8, 0);
        let weight = |template| history.weight(template, &config);
        assert!((weight("half") - 1.0).abs() < 1e-12 && (weight("unknown") - 1.0).abs() < 1e-12);
        // p = 1/10 after Laplace smoothing: 4 x 0.1 x 0.9
        assert!((weight("never") - 0.36).abs() < 1e-12);
        assert_eq!(
            (weight("solved").to_bits(), weight("learnt").to_bits()),
            (0.02f64.to_bits(), 0.02f64.to_bits())
        );
        let json = serde_json::to_string(&history).unwrap();
        assert_eq!(serde_json::from_str::<TemplateHistory>(&json).unwrap(), history);
    }
}
