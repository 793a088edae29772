//! Advantages, losses, KL estimates and gradients against the released code (`policy_loss.json`).

use crate::golden::{assert_close, read};
use arpo_core::advantage::{AdvantageKind, group_advantages};
use arpo_core::loss::kl::kl;
use arpo_core::loss::{KlKind, LossConfig, Normaliser, PolicyLoss, PolicySample, policy_loss};
use serde::Deserialize;
use std::collections::BTreeMap;

/// One value per position of a padded batch: [trajectory][position].
type Padded = Vec<Vec<f64>>;

#[derive(Deserialize)]
struct Case {
    group_size: usize,
    uid: Vec<String>,
    reward: Vec<f64>,
    mask: Padded,
    advantage: Padded,
    rloo_advantage: Padded,
    old_logp: Padded,
    new_logp: Padded,
    ref_logp: Padded,
    clip_low: f64,
    clip_high: f64,
    clip_dual: f64,
    token_mean: TokenMean,
    token_mean_with_kl: WithKl,
    trajectory_mean: TrajectoryMean,
    kl: BTreeMap<String, Padded>,
}

#[derive(Deserialize)]
struct TokenMean {
    loss: f64,
    clipfrac_higher: f64,
    clipfrac_lower: f64,
    ppo_kl: f64,
    grad_new_logp: Padded,
}

#[derive(Deserialize)]
struct WithKl {
    kl_coef: f64,
    kl_kind: KlKind,
    loss: f64,
    grad_new_logp: Padded,
}

#[derive(Deserialize)]
struct TrajectoryMean {
    loss_each: Vec<f64>,
    loss: f64,
    grad_new_logp: Padded,
}

impl Case {
    fn cases() -> Vec<Self> {
        let cases: Vec<Self> = read("policy_loss.json");
        assert!(!cases.is_empty());
        cases
    }

    /// The trained values of every trajectory.
    fn trained(&self, padded: &Padded) -> Vec<Vec<f32>> {
        let row = |(row, mask): (&Vec<f64>, &Vec<f64>)| -> Vec<f32> {
            row.iter().zip(mask).filter(|(_, mask)| **mask > 0.0).map(|(value, _)| *value as f32).collect()
        };
        padded.iter().zip(&self.mask).map(row).collect()
    }

    fn config(&self, normaliser: Normaliser) -> LossConfig {
        let (clip_low, clip_high, clip_dual) = (self.clip_low, self.clip_high, self.clip_dual);
        LossConfig { clip_low, clip_high, clip_dual, normaliser, ..LossConfig::default() }
    }

    /// Our loss on the reference's advantages.
    fn loss(&self, config: &LossConfig) -> PolicyLoss {
        let (new, old) = (self.trained(&self.new_logp), self.trained(&self.old_logp));
        let (reference, advantages) = (self.trained(&self.ref_logp), self.trained(&self.advantage));
        let samples: Vec<PolicySample> = (0..new.len())
            .map(|row| PolicySample {
                advantage: advantages[row].first().copied().map_or(0.0, f64::from),
                new_logp: &new[row],
                old_logp: &old[row],
                reference_logp: Some(&reference[row]),
                ..PolicySample::default()
            })
            .collect();
        policy_loss(&samples, config)
    }

    /// `scale` is the size of the terms whose difference a gradient is.
    /// The size of the terms whose mean a loss is: mean of |advantage| x ratio.
    fn loss_scale(&self) -> f64 {
        self.mean_over_tokens(|row, token| {
            self.advantage[row][token].abs() * (self.new_logp[row][token] - self.old_logp[row][token]).exp()
        })
    }

    fn mean_over_tokens(&self, value: impl Fn(usize, usize) -> f64) -> f64 {
        let trained: Vec<f64> = (0..self.mask.len())
            .flat_map(|row| (0..self.mask[row].len()).map(move |token| (row, token)))
            .filter(|&(row, token)| self.mask[row][token] > 0.0)
            .map(|(row, token)| value(row, token))
            .collect();
        trained.iter().sum::<f64>() / trained.len() as f64
    }

    fn check_gradient(&self, actual: &PolicyLoss, expected: &Padded, scale: f64) {
        for (row, (actual, expected)) in actual.gradient.iter().zip(self.trained(expected)).enumerate() {
            assert_eq!(actual.len(), expected.len());
            for (token, (actual, expected)) in actual.iter().zip(expected).enumerate() {
                let what = format!("gradient of token {token} of trajectory {row}");
                assert_close(f64::from(*actual), f64::from(expected), scale, &what);
            }
        }
        let outside = expected.iter().zip(&self.mask).flat_map(|(row, mask)| row.iter().zip(mask));
        assert!(outside.filter(|(_, mask)| **mask == 0.0).all(|(gradient, _)| *gradient == 0.0));
    }
}

#[test]
fn golden_advantages() {
    for (number, case) in Case::cases().iter().enumerate() {
        let mut groups = BTreeMap::<&str, Vec<usize>>::new();
        for (row, uid) in case.uid.iter().enumerate() {
            groups.entry(uid).or_default().push(row);
        }
        for rows in groups.values() {
            assert_eq!(rows.len(), case.group_size);
            let rewards: Vec<f64> = rows.iter().map(|&row| case.reward[row]).collect();
            let largest = rewards.iter().fold(0.0, |largest: f64, reward| largest.max(reward.abs()));
            let mean = rewards.iter().sum::<f64>() / rewards.len() as f64;
            let squares: f64 = rewards.iter().map(|reward| (reward - mean).powi(2)).sum();
            let spread = (squares / (rewards.len() as f64 - 1.0)).sqrt() + 1e-6;
            for (kind, padded) in
                [(AdvantageKind::Grpo, &case.advantage), (AdvantageKind::Rloo, &case.rloo_advantage)]
            {
                for (&row, advantage) in rows.iter().zip(group_advantages(&rewards, kind)) {
                    for (&expected, &mask) in padded[row].iter().zip(&case.mask[row]) {
                        // the reference's rewards are f32: differences of close ones have few significant digits
                        let scale = 0.04 * largest / if kind == AdvantageKind::Grpo { spread } else { 1.0 };
                        let what = format!("case {number}, {kind:?} advantage of trajectory {row}");
                        assert_close(advantage * mask, expected, scale, &what);
                    }
                }
            }
        }
    }
}

#[test]
fn golden_token_mean_loss() {
    for case in Case::cases() {
        let loss = case.loss(&case.config(Normaliser::Token));
        let expected = &case.token_mean;
        assert_close(loss.value, expected.loss, case.loss_scale(), "loss");
        assert_close(loss.statistics.clip_fraction(), expected.clipfrac_higher, 0.0, "clipped higher");
        assert_close(loss.statistics.clip_fraction_dual(), expected.clipfrac_lower, 0.0, "clipped lower");
        let moved =
            case.mean_over_tokens(|row, token| (case.old_logp[row][token] - case.new_logp[row][token]).abs());
        assert_close(loss.statistics.policy_kl(), expected.ppo_kl, moved, "policy kl");
        case.check_gradient(&loss, &expected.grad_new_logp, 0.0);
    }
}

#[test]
fn golden_token_mean_loss_with_kl() {
    for case in Case::cases() {
        let expected = &case.token_mean_with_kl;
        let config = LossConfig {
            kl: expected.kl_kind,
            kl_coefficient: expected.kl_coef,
            ..case.config(Normaliser::Token)
        };
        let loss = case.loss(&config);
        assert_close(loss.value, expected.loss, case.loss_scale() + expected.kl_coef, "loss with kl");
        let tokens = loss.statistics.tokens as f64;
        case.check_gradient(&loss, &expected.grad_new_logp, expected.kl_coef / tokens);
    }
}

#[test]
fn golden_trajectory_mean_loss() {
    for case in Case::cases() {
        let config = case.config(Normaliser::Trajectory);
        let loss = case.loss(&config);
        assert_close(loss.value, case.trajectory_mean.loss, case.loss_scale(), "loss");
        case.check_gradient(&loss, &case.trajectory_mean.grad_new_logp, 0.0);

        let (new, old) = (case.trained(&case.new_logp), case.trained(&case.old_logp));
        let advantages = case.trained(&case.advantage);
        for (row, &expected) in case.trajectory_mean.loss_each.iter().enumerate() {
            let sample = PolicySample {
                advantage: advantages[row].first().copied().map_or(0.0, f64::from),
                new_logp: &new[row],
                old_logp: &old[row],
                ..PolicySample::default()
            };
            assert_close(policy_loss(&[sample], &config).value, expected, 0.0, "loss of one trajectory");
        }
    }
}

#[test]
fn golden_kl_kinds() {
    for case in Case::cases() {
        for (name, expected) in &case.kl {
            let kind: KlKind = serde_json::from_value(name.as_str().into()).expect("a kind we know");
            for (row, expected) in expected.iter().enumerate() {
                for (token, &expected) in expected.iter().enumerate() {
                    let (new, reference) = (case.new_logp[row][token], case.ref_logp[row][token]);
                    let (estimate, _) = kl(f64::from(new as f32), f64::from(reference as f32), kind);
                    // k3 is a difference of values of magnitude 1
                    let scale = if kind == KlKind::LowVarKl { 0.1 } else { 1e-3 };
                    assert_close(estimate, expected, scale, name);
                }
            }
        }
    }
}
