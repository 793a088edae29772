//! Step advantages of GiGPO (Feng et al. 2025): which of the actions at the same screen was better?
//!
//! The steps of a group that stand at the same screenshot, whichever rollouts they belong to, form a sub-group. Each has
//! the discounted return `discount^(turns still to come) x reward` of its rollout, and the returns of a sub-group are
//! compared as rewards are in a group. A screen that only one step saw gives 0: there is nothing to compare.
//!
//! All rollouts of a group begin at the same screen, so the first step always has a sub-group. A rollout that returns to a
//! screen is in its sub-group several times, which makes detours worse than the direct way: with a discount below 1 a
//! group in which all succeed teaches, too.

use crate::advantage::{AdvantageKind, group_advantages};
use std::collections::BTreeMap;

/// The steps of a rollout, as they are compared.
#[derive(Debug, Clone, PartialEq)]
pub struct RolloutSteps<'a> {
    /// The digest of each step's screenshot, in order.
    pub screens: Vec<&'a str>,
    /// The rollout's reward.
    pub reward: f64,
}

/// The advantage of each step of each rollout within the group's steps at the same screen.
pub fn step_advantages(group: &[RolloutSteps], kind: AdvantageKind, discount: f64) -> Vec<Vec<f64>> {
    let mut advantages: Vec<Vec<f64>> =
        group.iter().map(|rollout| vec![0.0; rollout.screens.len()]).collect();
    let mut at_screen: BTreeMap<&str, Vec<(usize, usize)>> = BTreeMap::new();
    for (number, rollout) in group.iter().enumerate() {
        for (step, screen) in rollout.screens.iter().enumerate() {
            at_screen.entry(screen).or_default().push((number, step));
        }
    }
    for steps in at_screen.values() {
        let step_return = |&(number, step): &(usize, usize)| {
            let later = group[number].screens.len() - 1 - step;
            group[number].reward * discount.powi(i32::try_from(later).unwrap_or(i32::MAX))
        };
        let returns: Vec<f64> = steps.iter().map(step_return).collect();
        for (&(number, step), advantage) in steps.iter().zip(group_advantages(&returns, kind)) {
            advantages[number][step] = advantage;
        }
    }
    advantages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rollout<'a>(screens: &[&'a str], reward: f64) -> RolloutSteps<'a> {
        RolloutSteps { screens: screens.to_vec(), reward }
    }

    fn close(actual: &[Vec<f64>], expected: &[&[f64]]) {
        let near = |(a, b): (&Vec<f64>, &&[f64])| {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| (a - b).abs() < 1e-9)
        };
        assert!(actual.len() == expected.len() && actual.iter().zip(expected).all(near), "{actual:?}");
    }

    /// Returns at discount 1/2: the first rollout 1/4, 1/2, 1; the second 0, 0; the third 1/2, 1.
    #[test]
    fn by_hand() {
        let group = [rollout(&["a", "b", "c"], 1.0), rollout(&["a", "b"], 0.0), rollout(&["a", "d"], 1.0)];
        // at a: 1/4, 0, 1/2 with mean 1/4; at b: 1/2 and 0 with mean 1/4; c and d were seen once
        let centred = step_advantages(&group, AdvantageKind::DrGrpo, 0.5);
        close(&centred, &[&[0.0, 0.25, 0.0], &[-0.25, -0.25], &[0.25, 0.0]]);
        // leave-one-out: n / (n - 1) times as much, 3/2 at a and 2 at b
        let leave_one_out = step_advantages(&group, AdvantageKind::Rloo, 0.5);
        close(&leave_one_out, &[&[0.0, 0.5, 0.0], &[-0.375, -0.5], &[0.375, 0.0]]);
    }

    /// Both succeed, one after a detour back to the first screen: the detour is worse, and the way out of it is not.
    #[test]
    fn a_detour_is_worse_than_the_direct_way() {
        let group = [rollout(&["a", "b"], 1.0), rollout(&["a", "x", "a", "b"], 1.0)];
        let advantages = step_advantages(&group, AdvantageKind::DrGrpo, 0.5);
        // at a: 1/2, 1/8, 1/2 with mean 3/8; at b: 1 and 1
        close(&advantages, &[&[0.125, 0.0], &[-0.25, 0.0, 0.125, 0.0]]);
        // without a discount all steps are equal
        let equal = step_advantages(&group, AdvantageKind::Grpo, 1.0);
        close(&equal, &[&[0.0; 2], &[0.0; 4]]);
    }

    #[test]
    fn nothing_to_compare_is_exactly_zero() {
        assert!(step_advantages(&[], AdvantageKind::Grpo, 0.9).is_empty());
        let group = [rollout(&["a"], 0.0), rollout(&["a", "b"], 0.0), rollout(&[], 1.0)];
        assert_eq!(step_advantages(&group, AdvantageKind::Grpo, 0.9), [vec![0.0], vec![0.0; 2], vec![]]);
    }
}
