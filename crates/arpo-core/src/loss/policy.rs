//! The policy loss of GRPO and ARPO, and of GSPO and SAPO.
//!
//! It is the weighted sum over tokens of an [`objective`](super::objective) of the token's advantage and of a probability
//! [`ratio`](super::ratio), plus a KL term; by default the paper's equation with the released code's additions (EasyR1's
//! `compute_policy_loss`).
//!
//! The old log-probabilities are those of the current policy before the update, also for replayed trajectories, so ratios
//! start at 1. Where another policy sampled the tokens (a stale sampler, a stored success), [`PolicySample::behaviour`]
//! holds its log-probabilities, and each token is weighted by `min(exp(old - behaviour), truncation)`, where the ratio of
//! probabilities is that of the same level as in the objective.
//!
//! With a ratio of whole sequences, the gradient of each of its tokens is the objective's derivative by the log-ratio
//! times the token's own weight. Where all tokens of a sequence have one advantage this is the exact gradient: every
//! token moves the ratio of n tokens by 1/n. Where they differ (step advantages under a trajectory's ratio) it is
//! GSPO-token of the paper, which lets each token answer for its own advantage only.

use super::kl::{KlKind, kl};
use super::normaliser::{Normaliser, token_scales};
use super::objective::{Objective, token_objective};
use super::ratio::{RatioLevel, TrajectoryMeans, TurnTokens, log_ratios, turn_lengths};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The policy loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LossConfig {
    /// What keeps the policy near the old one.
    pub objective: Objective,
    /// What has a probability ratio of its own.
    pub ratio: RatioLevel,
    /// Temperature of the soft gate for positive advantages: the higher, the sooner the gradient fades.
    #[schemars(range(min = 0.01, max = 1000.0))]
    pub tau_positive: f64,
    /// Temperature of the soft gate for other advantages.
    #[schemars(range(min = 0.01, max = 1000.0))]
    pub tau_negative: f64,
    /// Lower clip: a token has no gradient once its probability ratio has fallen below 1 - `clip_low`.
    #[schemars(range(min = 0.0, max = 0.99))]
    pub clip_low: f64,
    /// Upper clip: a token has no gradient once its probability ratio has risen above 1 + `clip_high`.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub clip_high: f64,
    /// Dual clip: for negative advantages the ratio is capped at this value, above 1. 0 switches it off, as in the paper; the
    /// released code uses 3.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub clip_dual: f64,
    /// The divisor of a trajectory's sum over tokens.
    pub normaliser: Normaliser,
    /// The divisor of `normaliser = "constant"`, in tokens.
    #[schemars(range(min = 1))]
    pub constant_tokens: usize,
    /// The KL estimator of the penalty against the reference model.
    pub kl: KlKind,
    /// Weight of the KL penalty. With 0, as in ARPO, no reference model is loaded.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub kl_coefficient: f64,
    /// Source of the old log-probabilities of fresh tokens. Those of replayed tokens are always recomputed.
    pub old: OldLogp,
    /// Truncated importance sampling: a fresh token has the weight min(exp(old - sampler), this), where sampler is the
    /// log-probability it was sampled with. 0 switches it off.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub importance_truncation: f64,
}

impl Default for LossConfig {
    fn default() -> Self {
        Self {
            objective: Objective::Clip,
            ratio: RatioLevel::Token,
            tau_positive: 1.0,
            tau_negative: 1.05,
            clip_low: 0.2,
            clip_high: 0.3,
            clip_dual: 0.0,
            normaliser: Normaliser::Trajectory,
            constant_tokens: 1024,
            kl: KlKind::LowVarKl,
            kl_coefficient: 0.0,
            old: OldLogp::Learner,
            importance_truncation: 0.0,
        }
    }
}

/// Where the old log-probabilities come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OldLogp {
    /// Those of the sampler: no extra forward pass is needed, and the ratio corrects for a stale sampler.
    Sampler,
    /// Recomputed by the learner before the first update of the iteration, as in the released code.
    Learner,
}

/// The trained tokens of one trajectory, or of some of its turns; the slices are of the same length.
#[derive(Debug, Clone, Copy, Default)]
pub struct PolicySample<'a> {
    /// The trajectory's advantage, the same for all its tokens.
    pub advantage: f64,
    /// The turns that the tokens belong to, in order; empty if they are one turn without an advantage of its own.
    pub turns: &'a [TurnTokens],
    /// Means over the whole trajectory for [`RatioLevel::Trajectory`]; `None` if these are all its tokens.
    pub whole: Option<TrajectoryMeans>,
    /// Under the weights being updated.
    pub new_logp: &'a [f32],
    /// Under the weights before the update.
    pub old_logp: &'a [f32],
    /// Under the reference model; used only if `kl_coefficient` is not 0.
    pub reference_logp: Option<&'a [f32]>,
    /// The policy that sampled the tokens, and the truncation of the weights; `None` for no correction.
    pub behaviour: Option<Behaviour<'a>>,
}

/// The behaviour policy: it sampled the tokens and is not the old policy.
#[derive(Debug, Clone, Copy)]
pub struct Behaviour<'a> {
    /// Its log-probabilities of the tokens.
    pub logp: &'a [f32],
    /// The maximum weight of a token.
    pub truncation: f64,
}

impl Behaviour<'_> {
    /// For a range of the tokens.
    #[must_use]
    pub fn of(self, tokens: Range<usize>) -> Self {
        Self { logp: &self.logp[tokens], ..self }
    }
}

/// Value, gradient and metrics.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PolicyLoss {
    /// The loss.
    pub value: f64,
    /// dL/dlogp of every token, by trajectory.
    pub gradient: Vec<Vec<f32>>,
    /// Sums over tokens.
    pub statistics: LossStatistics,
}

/// Sums over tokens, so that those of micro-batches add up; the methods are the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossStatistics {
    /// How many tokens.
    pub tokens: usize,
    /// Tokens whose gradient the low or high clip removed.
    pub clipped: usize,
    /// Tokens whose gradient the dual clip removed.
    pub clipped_dual: usize,
    /// Sum of old - new.
    pub old_minus_new: f64,
    /// Sum of the KL estimates against the reference model.
    pub reference_kl: f64,
    /// Sum of importance weights.
    pub importance: f64,
    /// Tokens whose importance weight was truncated.
    pub truncated: usize,
}

impl LossStatistics {
    /// Fraction of tokens clipped by the low or high clip.
    pub fn clip_fraction(&self) -> f64 {
        self.per_token(self.clipped as f64)
    }

    /// Fraction of tokens clipped by the dual clip.
    pub fn clip_fraction_dual(&self) -> f64 {
        self.per_token(self.clipped_dual as f64)
    }

    /// How far the policy has moved in the update: mean of old - new.
    pub fn policy_kl(&self) -> f64 {
        self.per_token(self.old_minus_new)
    }

    /// Mean KL against the reference model.
    pub fn reference_kl(&self) -> f64 {
        self.per_token(self.reference_kl)
    }

    /// Mean importance weight; 1 without correction.
    pub fn mean_importance(&self) -> f64 {
        self.per_token(self.importance)
    }

    /// Fraction of tokens whose importance weight was truncated.
    pub fn truncated_fraction(&self) -> f64 {
        self.per_token(self.truncated as f64)
    }

    /// Adds another micro-batch's sums.
    pub fn add(&mut self, other: &Self) {
        self.tokens += other.tokens;
        self.clipped += other.clipped;
        self.clipped_dual += other.clipped_dual;
        self.old_minus_new += other.old_minus_new;
        self.reference_kl += other.reference_kl;
        self.importance += other.importance;
        self.truncated += other.truncated;
    }

    fn per_token(&self, sum: f64) -> f64 {
        if self.tokens == 0 { 0.0 } else { sum / self.tokens as f64 }
    }
}

/// The loss of a whole optimiser batch.
pub fn policy_loss(batch: &[PolicySample], config: &LossConfig) -> PolicyLoss {
    let lengths: Vec<usize> = batch.iter().map(|sample| sample.new_logp.len()).collect();
    let scales = token_scales(&lengths, config.normaliser, config.constant_tokens);
    let mut loss = PolicyLoss::default();
    for (sample, scale) in batch.iter().zip(scales) {
        let (value, gradient, statistics) = sample_loss(sample, scale, config);
        loss.value += value;
        loss.gradient.push(gradient);
        loss.statistics.add(&statistics);
    }
    loss
}

/// One trajectory's share of a batch's loss: `scale` is its entry of [`token_scales`] over that batch.
pub fn sample_loss(
    sample: &PolicySample,
    scale: f64,
    config: &LossConfig,
) -> (f64, Vec<f32>, LossStatistics) {
    let tokens = sample.new_logp.len();
    assert_eq!(sample.old_logp.len(), tokens, "number of old log-probabilities");
    let has_kl = config.kl_coefficient > 0.0;
    let reference = sample.reference_logp.filter(|_| has_kl);
    assert!(!has_kl || reference.is_some(), "a KL term needs the reference's log-probabilities");
    assert!(reference.is_none_or(|logps| logps.len() == tokens), "number of reference log-probabilities");
    assert!(sample.behaviour.is_none_or(|b| b.logp.len() == tokens), "number of behaviour log-probabilities");

    let whole = sample.whole;
    let ratios = |new: &[f32], old: &[f32], whole| log_ratios(new, old, config.ratio, sample.turns, whole);
    let policy = ratios(sample.new_logp, sample.old_logp, whole.map(|means| means.log_ratio));
    let importance = sample
        .behaviour
        .map(|behaviour| ratios(sample.old_logp, behaviour.logp, whole.map(|means| means.log_importance)));

    let mut statistics = LossStatistics { tokens, ..LossStatistics::default() };
    let mut value = 0.0;
    let mut gradient = Vec::with_capacity(tokens);
    for (token, advantage) in token_advantages(sample).enumerate() {
        let (new, old) = (f64::from(sample.new_logp[token]), f64::from(sample.old_logp[token]));
        let objective = token_objective(policy[token], advantage, config);
        let weight = match (sample.behaviour, &importance) {
            (Some(behaviour), Some(importance)) => {
                let weight = importance[token].exp();
                let truncated = weight > behaviour.truncation;
                statistics.truncated += usize::from(truncated);
                // not `min`, which would turn a NaN weight into the truncation
                if truncated { behaviour.truncation } else { weight }
            }
            _ => 1.0,
        };
        let (mut token_value, mut token_gradient) = (weight * objective.value, weight * objective.derivative);
        if let Some(reference) = reference {
            let (estimate, derivative) = kl(new, f64::from(reference[token]), config.kl);
            token_value += config.kl_coefficient * estimate;
            token_gradient += config.kl_coefficient * derivative;
            statistics.reference_kl += estimate;
        }
        value += scale * token_value;
        gradient.push((scale * token_gradient) as f32);
        statistics.clipped += usize::from(objective.clipped);
        statistics.clipped_dual += usize::from(objective.clipped_dual);
        statistics.old_minus_new += old - new;
        statistics.importance += weight;
    }
    (value, gradient, statistics)
}

/// The advantage of every token: the trajectory's, plus its turn's.
fn token_advantages<'a>(sample: &PolicySample<'a>) -> impl Iterator<Item = f64> + use<'a> {
    let (all, turns) = (sample.advantage, sample.turns);
    let lengths = turn_lengths(turns, sample.new_logp.len());
    let advantage = move |turn: usize| all + turns.get(turn).map_or(0.0, |turn| turn.advantage);
    lengths.enumerate().flat_map(move |(turn, count)| std::iter::repeat_n(advantage(turn), count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::ratio::mean_difference;

    #[test]
    fn importance_weights_are_truncated() {
        let (new, old) = ([-1.0f32, -1.0], [-1.0f32, -1.0]);
        let behaviour = [-1.0 - 0.5f32.ln(), -1.0 - 8.0f32.ln()]; // weights 0.5 and 8
        let sample = PolicySample {
            advantage: 1.0,
            new_logp: &new,
            old_logp: &old,
            behaviour: Some(Behaviour { logp: &behaviour, truncation: 2.0 }),
            ..PolicySample::default()
        };
        let (value, gradient, statistics) = sample_loss(&sample, 1.0, &LossConfig::default());
        assert!((value + 2.5).abs() < 1e-6);
        assert!((gradient[0] + 0.5).abs() < 1e-6 && (gradient[1] + 2.0).abs() < 1e-6);
        assert!((statistics.mean_importance() - 1.25).abs() < 1e-6);
        assert_eq!(statistics.truncated, 1);
    }

    #[test]
    fn no_tokens_no_loss() {
        let sample = PolicySample { advantage: 1.0, ..PolicySample::default() };
        let loss = policy_loss(&[sample], &LossConfig::default());
        assert_eq!(loss, PolicyLoss { gradient: vec![vec![]], ..PolicyLoss::default() });
        assert!(loss.statistics.policy_kl().abs() < f64::EPSILON);
    }

    /// GSPO by hand: mean log-ratios ln 2 / 2 and -ln 2 / 2 of two tokens each, so ratios sqrt(2) and sqrt(1/2).
    #[test]
    fn a_trajectory_has_one_ratio() {
        let config = LossConfig {
            ratio: RatioLevel::Trajectory,
            clip_low: 0.2,
            clip_high: 0.3,
            ..LossConfig::default()
        };
        let two = 2.0f32.ln();
        let (old, up, down) = ([-2.0f32, -2.0], [-2.0f32, -2.0 + two], [-2.0f32 - two, -2.0]);
        let sample = |advantage, new_logp| PolicySample {
            advantage,
            new_logp,
            old_logp: &old,
            ..PolicySample::default()
        };
        let loss = |sample| policy_loss(&[sample], &config);
        // the good one has passed 1.3 and the bad one 0.8: neither has a gradient, whatever its single tokens did
        let good = loss(sample(1.0, &up));
        assert!(
            (good.value + 1.3).abs() < 1e-7 && good.gradient == [[0.0; 2]] && good.statistics.clipped == 2
        );
        let bad = loss(sample(-1.0, &down));
        assert!((bad.value - 0.8).abs() < 1e-7 && bad.gradient == [[0.0; 2]]);
        // 1/2 of -A sqrt(1/2) each: the ratio of two tokens moves half as much as either of them
        let pushed = loss(sample(1.0, &down));
        assert!((pushed.value + 0.5f64.sqrt()).abs() < 1e-7);
        assert!(pushed.gradient[0].iter().all(|&one| (f64::from(one) + 0.5 * 0.5f64.sqrt()).abs() < 1e-7));
    }

    #[test]
    fn the_slices_of_a_trajectory_add_up() {
        let config = LossConfig { ratio: RatioLevel::Trajectory, ..LossConfig::default() };
        let (new, old) = ([-1.0f32, -0.5, -2.0, -0.75], [-1.25f32, -0.25, -2.0, -1.0]);
        let behaviour = [-1.5f32, -0.5, -2.5, -1.0];
        let all = Behaviour { logp: &behaviour, truncation: 2.0 };
        let sample = |tokens: Range<usize>, whole| PolicySample {
            advantage: 0.5,
            whole,
            new_logp: &new[tokens.clone()],
            old_logp: &old[tokens.clone()],
            behaviour: Some(all.of(tokens)),
            ..PolicySample::default()
        };
        let (value, gradient, _) = sample_loss(&sample(0..4, None), 0.25, &config);
        let means = TrajectoryMeans {
            log_ratio: mean_difference(&new, &old),
            log_importance: mean_difference(&old, &behaviour),
        };
        let parts = [0..1, 1..4].map(|tokens| sample_loss(&sample(tokens, Some(means)), 0.25, &config));
        assert!((parts[0].0 + parts[1].0 - value).abs() < 1e-12);
        assert_eq!([parts[0].1.clone(), parts[1].1.clone()].concat(), gradient);
    }

    #[test]
    fn the_advantage_of_a_turn_is_added() {
        let logp = [-1.0f32; 3];
        let turns = [(2, 0.5), (1, -2.0)].map(|(count, advantage)| TurnTokens { count, advantage });
        let sample = PolicySample {
            advantage: 1.0,
            turns: &turns,
            new_logp: &logp,
            old_logp: &logp,
            ..PolicySample::default()
        };
        let (value, gradient, _) = sample_loss(&sample, 1.0, &LossConfig::default());
        assert_eq!((value.to_bits(), gradient), ((-2.0f64).to_bits(), vec![-1.5, -1.5, 1.0]));
    }
}
