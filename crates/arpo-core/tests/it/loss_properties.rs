//! Properties of advantages and losses.

use arpo_core::advantage::{AdvantageKind, group_advantages};
use arpo_core::loss::offline::{DpoConfig, KtoConfig, OfflineSample, dpo_loss, kto_loss, supervised_loss};
use arpo_core::loss::policy::Behaviour;
use arpo_core::loss::ratio::TurnTokens;
use arpo_core::loss::{
    KlKind, LossConfig, LossStatistics, Normaliser, Objective, PolicySample, RatioLevel, policy_loss,
    sample_loss, token_scales,
};
use proptest::prelude::*;

fn any_advantage_kind() -> impl Strategy<Value = AdvantageKind> {
    prop_oneof![Just(AdvantageKind::Grpo), Just(AdvantageKind::DrGrpo), Just(AdvantageKind::Rloo)]
}

fn any_loss_config() -> impl Strategy<Value = LossConfig> {
    let normaliser =
        prop_oneof![Just(Normaliser::Trajectory), Just(Normaliser::Token), Just(Normaliser::Constant)];
    let kl = prop_oneof![Just(KlKind::Kl), Just(KlKind::Abs), Just(KlKind::Mse), Just(KlKind::LowVarKl)];
    let dual = prop_oneof![Just(0.0), 1.5..10.0];
    (0.05..0.5, 0.05..0.5, dual, normaliser, kl, prop_oneof![Just(0.0), 0.001..1.0]).prop_map(
        |(clip_low, clip_high, clip_dual, normaliser, kl, kl_coefficient)| LossConfig {
            clip_low,
            clip_high,
            clip_dual,
            normaliser,
            constant_tokens: 64,
            kl,
            kl_coefficient,
            ..LossConfig::default()
        },
    )
}

/// One trajectory: its advantage, and (new, old, reference, behaviour) for every token.
type Tokens = (f64, Vec<(f32, f32, f32, f32)>);

fn any_trajectory() -> impl Strategy<Value = Tokens> {
    let logp = || -4.0f32..-0.01;
    (-2.0..2.0, prop::collection::vec((logp(), logp(), logp(), logp()), 0..6))
}

/// Calls `f` with the samples of a batch; `behaviour` switches importance weights on.
fn with_samples<R>(batch: &[Tokens], behaviour: bool, f: impl FnOnce(&[PolicySample]) -> R) -> R {
    let column = |pick: fn(&(f32, f32, f32, f32)) -> f32| -> Vec<Vec<f32>> {
        batch.iter().map(|(_, tokens)| tokens.iter().map(pick).collect()).collect()
    };
    let (new, old, reference, sampler) = (column(|t| t.0), column(|t| t.1), column(|t| t.2), column(|t| t.3));
    let samples: Vec<PolicySample> = (0..batch.len())
        .map(|row| PolicySample {
            advantage: batch[row].0,
            new_logp: &new[row],
            old_logp: &old[row],
            reference_logp: Some(&reference[row]),
            behaviour: behaviour.then(|| Behaviour { logp: &sampler[row], truncation: 2.0 }),
            ..PolicySample::default()
        })
        .collect();
    f(&samples)
}

/// True if no clip, clamp or kink is within `margin` of this token, where finite differences fail.
fn is_smooth(advantage: f64, token: (f32, f32, f32, f32), config: &LossConfig, margin: f64) -> bool {
    let ratio = (f64::from(token.0) - f64::from(token.1)).exp();
    let difference = f64::from(token.0) - f64::from(token.2);
    let away = |value: f64, corner: f64| (value - corner).abs() > margin * corner.abs().max(1.0);
    let clips = away(ratio, 1.0 - config.clip_low) && away(ratio, 1.0 + config.clip_high);
    let dual = config.clip_dual == 0.0 || away(ratio, config.clip_dual);
    let k3 = (-difference).exp() + difference - 1.0;
    clips && dual && away(difference, 0.0) && away(k3, 10.0) && advantage.abs() > margin
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn advantages_sum_to_zero(rewards in prop::collection::vec(-1.0..2.0, 0..17), kind in any_advantage_kind()) {
        let advantages = group_advantages(&rewards, kind);
        prop_assert_eq!(advantages.len(), rewards.len());
        let largest = advantages.iter().fold(1.0, |largest: f64, advantage| largest.max(advantage.abs()));
        prop_assert!(advantages.iter().sum::<f64>().abs() < 1e-9 * largest * (rewards.len() as f64 + 1.0));
    }

    #[test]
    fn permuting_a_group_permutes_its_advantages(
        (rewards, order) in prop::collection::vec(-1.0..2.0, 1..17).prop_flat_map(|rewards| {
            let order: Vec<usize> = (0..rewards.len()).collect();
            (Just(rewards), Just(order).prop_shuffle())
        }),
        kind in any_advantage_kind(),
    ) {
        let advantages = group_advantages(&rewards, kind);
        let permuted: Vec<f64> = order.iter().map(|&member| rewards[member]).collect();
        for (advantage, &member) in group_advantages(&permuted, kind).into_iter().zip(&order) {
            prop_assert!((advantage - advantages[member]).abs() < 1e-9);
        }
    }

    #[test]
    fn higher_reward_higher_advantage(rewards in prop::collection::vec(-1.0..2.0, 2..17), kind in any_advantage_kind()) {
        let advantages = group_advantages(&rewards, kind);
        for a in 0..rewards.len() {
            for b in 0..rewards.len() {
                prop_assert!(rewards[a] <= rewards[b] || advantages[a] > advantages[b]);
            }
        }
    }

    /// A token's value stays within the bounds of its clips, and outside them it has no gradient.
    #[test]
    fn clip_bounds_hold(advantage in -2.0..2.0, new in -8.0f32..0.0, old in -8.0f32..0.0, config in any_loss_config()) {
        let config = LossConfig { kl_coefficient: 0.0, ..config };
        let sample = PolicySample {
            advantage, new_logp: &[new], old_logp: &[old], ..PolicySample::default()
        };
        let (value, gradient, _) = sample_loss(&sample, 1.0, &config);
        let ratio = (f64::from(new) - f64::from(old)).exp();
        if advantage >= 0.0 {
            prop_assert!(value >= -advantage * (1.0 + config.clip_high) - 1e-9);
            prop_assert!(ratio <= 1.0 + config.clip_high || gradient[0] == 0.0);
        } else {
            prop_assert!(value >= -advantage * (1.0 - config.clip_low) - 1e-9);
            prop_assert!(ratio >= 1.0 - config.clip_low || gradient[0] == 0.0);
            if config.clip_dual > 0.0 {
                prop_assert!(value <= -advantage * config.clip_dual.max(1.0 - config.clip_low) + 1e-9);
                prop_assert!(ratio <= config.clip_dual || gradient[0] == 0.0);
            }
        }
        prop_assert!(f64::from(gradient[0]) * advantage <= 0.0, "a good token may only become likelier");
    }

    #[test]
    fn finite_differences_agree_with_the_gradient(
        batch in prop::collection::vec(any_trajectory(), 1..4),
        config in any_loss_config(),
        behaviour in any::<bool>(),
    ) {
        let loss = with_samples(&batch, behaviour, |samples| policy_loss(samples, &config));
        for (row, (advantage, tokens)) in batch.iter().enumerate() {
            for (token, &logps) in tokens.iter().enumerate() {
                if !is_smooth(*advantage, logps, &config, 5e-3) {
                    continue;
                }
                let value_at = |new: f32| {
                    let mut moved = batch.clone();
                    moved[row].1[token].0 = new;
                    with_samples(&moved, behaviour, |samples| policy_loss(samples, &config).value)
                };
                let (above, below) = (logps.0 + 1e-3, logps.0 - 1e-3);
                let slope = (value_at(above) - value_at(below)) / (f64::from(above) - f64::from(below));
                let gradient = f64::from(loss.gradient[row][token]);
                prop_assert!((slope - gradient).abs() < 1e-5 * gradient.abs().max(1.0), "{slope} and {gradient}");
            }
        }
    }

    /// The same for the ratios of sequences and for the soft gate: turns have advantages of their own where the ratio is
    /// theirs, and the gradient is exact.
    #[test]
    fn sequence_ratios_and_soft_gates_agree_with_finite_differences(
        (advantage, tokens) in any_trajectory(),
        first_turn in 0usize..6,
        turn_advantages in (-2.0..2.0, -2.0..2.0),
        ratio in prop_oneof![Just(RatioLevel::Token), Just(RatioLevel::Turn), Just(RatioLevel::Trajectory)],
        objective in prop_oneof![Just(Objective::Clip), Just(Objective::SoftGate)],
        behaviour in any::<bool>(),
        config in any_loss_config(),
    ) {
        let config = LossConfig { ratio, objective, clip_dual: 0.0, kl_coefficient: 0.0, ..config };
        let first = first_turn.min(tokens.len());
        let own = if ratio == RatioLevel::Trajectory { (0.0, 0.0) } else { turn_advantages };
        let turns = [
            TurnTokens { count: first, advantage: own.0 },
            TurnTokens { count: tokens.len() - first, advantage: own.1 },
        ];
        let column = |pick: fn(&(f32, f32, f32, f32)) -> f32| -> Vec<f32> { tokens.iter().map(pick).collect() };
        let (new, old, sampler) = (column(|t| t.0), column(|t| t.1), column(|t| t.3));
        let loss = |new: &[f32]| {
            let behaviour = behaviour.then(|| Behaviour { logp: &sampler, truncation: 2.0 });
            let sample = PolicySample {
                advantage, turns: &turns, new_logp: new, old_logp: &old, behaviour, ..PolicySample::default()
            };
            sample_loss(&sample, 0.3, &config)
        };
        let (_, gradient, statistics) = loss(&new);
        for token in 0..new.len() {
            let moved = |by: f32| {
                let mut moved = new.clone();
                moved[token] += by;
                (loss(&moved), f64::from(moved[token]))
            };
            let ((above, high), (below, low)) = (moved(1e-3), moved(-1e-3));
            if above.2.clipped != statistics.clipped || below.2.clipped != statistics.clipped {
                continue; // a clip within reach
            }
            let slope = (above.0 - below.0) / (high - low);
            let gradient = f64::from(gradient[token]);
            prop_assert!((slope - gradient).abs() < 2e-4 * gradient.abs().max(1.0), "{slope} and {gradient}");
        }
    }

    /// Micro-batches use the scales of the whole batch, so splitting it changes nothing.
    #[test]
    fn the_parts_of_a_batch_add_up(batch in prop::collection::vec(any_trajectory(), 0..5), config in any_loss_config()) {
        let whole = with_samples(&batch, false, |samples| policy_loss(samples, &config));
        let lengths: Vec<usize> = batch.iter().map(|(_, tokens)| tokens.len()).collect();
        let scales = token_scales(&lengths, config.normaliser, config.constant_tokens);
        with_samples(&batch, false, |samples| {
            let mut value = 0.0;
            let mut statistics = LossStatistics::default();
            for (row, (sample, scale)) in samples.iter().zip(scales).enumerate() {
                let part = sample_loss(sample, scale, &config);
                value += part.0;
                statistics.add(&part.2);
                prop_assert_eq!(&part.1, &whole.gradient[row]);
            }
            prop_assert!((value - whole.value).abs() < 1e-12);
            prop_assert_eq!(statistics, whole.statistics);
            Ok(())
        })?;
    }

    #[test]
    fn offline_gradients_agree_with_finite_differences(
        (_, chosen) in any_trajectory(),
        (_, rejected) in any_trajectory(),
        beta in 0.05..1.0,
        label_smoothing in 0.0..0.5,
        reference_point in 0.0..2.0,
    ) {
        let columns = |tokens: &[(f32, f32, f32, f32)]| -> (Vec<f32>, Vec<f32>) {
            tokens.iter().map(|token| (token.0, token.2)).unzip()
        };
        let ((chosen, chosen_reference), (rejected, rejected_reference)) = (columns(&chosen), columns(&rejected));
        prop_assume!(!chosen.is_empty() && !rejected.is_empty());
        let moved = |logps: &[f32], by: f32| {
            let mut logps = logps.to_vec();
            logps[0] += by;
            logps
        };
        let slope = |value: &dyn Fn(f32) -> f64, at: f32| {
            let h = 1e-2f32;
            (value(h) - value(-h)) / (f64::from(at + h) - f64::from(at - h))
        };
        let sample = OfflineSample { new_logp: &chosen, reference_logp: &chosen_reference };
        let other = OfflineSample { new_logp: &rejected, reference_logp: &rejected_reference };

        let dpo = DpoConfig { beta, label_smoothing };
        let loss = dpo_loss(&sample, &other, &dpo);
        let chosen_slope = slope(&|by| {
            dpo_loss(&OfflineSample { new_logp: &moved(&chosen, by), ..sample }, &other, &dpo).value
        }, chosen[0]);
        let rejected_slope = slope(&|by| {
            dpo_loss(&sample, &OfflineSample { new_logp: &moved(&rejected, by), ..other }, &dpo).value
        }, rejected[0]);
        prop_assert!((loss.chosen_gradient - chosen_slope).abs() < 1e-4);
        prop_assert!((loss.rejected_gradient - rejected_slope).abs() < 1e-4);

        let kto = KtoConfig { beta, desirable_weight: 1.0, undesirable_weight: 1.3 };
        for desirable in [true, false] {
            let (_, gradient) = kto_loss(&sample, desirable, reference_point, &kto);
            let kto_slope = slope(&|by| {
                let sample = OfflineSample { new_logp: &moved(&chosen, by), ..sample };
                kto_loss(&sample, desirable, reference_point, &kto).0
            }, chosen[0]);
            prop_assert!((gradient - kto_slope).abs() < 1e-4);
        }

        let scale = token_scales(&[chosen.len(), rejected.len()], Normaliser::Trajectory, 1)[0];
        let (_, gradient) = supervised_loss(&chosen, scale);
        let supervised_slope = slope(&|by| supervised_loss(&moved(&chosen, by), scale).0, chosen[0]);
        prop_assert!((gradient - supervised_slope).abs() < 1e-4);
    }
}

/// Four trajectories, two of them from a group without spread: they add nothing, and the others have weight 1/4 each.
#[test]
fn uninformative_trajectories_count_in_the_denominator() {
    let logps: Vec<Vec<f32>> = [2, 4, 3, 1].iter().map(|&tokens| vec![-0.5; tokens]).collect();
    let advantages = [1.5, -0.5, 0.0, 0.0];
    let batch: Vec<PolicySample> = logps
        .iter()
        .zip(advantages)
        .map(|(logp, advantage)| PolicySample {
            advantage,
            new_logp: logp,
            old_logp: logp,
            ..PolicySample::default()
        })
        .collect();
    let by_trajectory = policy_loss(&batch, &LossConfig::default());
    assert!((by_trajectory.value + 0.25).abs() < 1e-12, "-1.5 / 4 + 0.5 / 4");
    let expected = [vec![-0.1875; 2], vec![0.031_25; 4], vec![0.0; 3], vec![0.0; 1]];
    assert!(
        by_trajectory.gradient.iter().flatten().zip(expected.concat()).all(|(a, b)| (a - b).abs() < 1e-7)
    );
    let by_token =
        policy_loss(&batch, &LossConfig { normaliser: Normaliser::Token, ..LossConfig::default() });
    assert!((by_token.value + 0.1).abs() < 1e-12, "(-1.5 x 2 + 0.5 x 4) / 10");
    let constant =
        LossConfig { normaliser: Normaliser::Constant, constant_tokens: 10, ..LossConfig::default() };
    assert!((policy_loss(&batch, &constant).value + 0.025).abs() < 1e-12, "(-1.5 x 2 + 0.5 x 4) / 40");
}
