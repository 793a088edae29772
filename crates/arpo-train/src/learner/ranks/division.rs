//! Which rank computes which slices: as equal as can be by what they cost. Pure.

use crate::learner::micro_batches::SliceIndex;
use arpo_core::trajectory::Trajectory;
use arpo_model::config::ModelConfig;

/// What a slice costs: a share for each of its tokens, and one for each pair of them (attention).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SliceCosts {
    token: f64,
    pair: f64,
}

impl SliceCosts {
    /// The operations of a model's language part, up to a factor: each weight is used once a token, and attention
    /// multiplies each token's query with the keys, and its weights with the values, of the tokens before it.
    pub fn of(model: &ModelConfig) -> Self {
        let text = &model.text;
        let (queries, keys) = (text.heads * text.head_width, text.kv_heads * text.head_width);
        let weights = text.hidden * (2 * queries + 2 * keys + 3 * text.intermediate);
        let layers = text.layers as f64;
        Self { token: layers * weights as f64, pair: layers * queries as f64 }
    }

    fn of_slice(self, tokens: usize) -> f64 {
        let tokens = tokens as f64;
        self.token * tokens + self.pair * tokens * tokens
    }
}

/// The slices of each rank: the most expensive first, each to the rank that has the least so far. A rank may get none.
pub(super) fn divide(
    trajectories: &[&Trajectory],
    mut slices: Vec<SliceIndex>,
    costs: SliceCosts,
    ranks: usize,
) -> Vec<Vec<SliceIndex>> {
    let cost = |&(at, slice): &SliceIndex| costs.of_slice(trajectories[at].slices[slice].tokens.len());
    // stable, so that the division depends on nothing else
    slices.sort_by(|one, other| cost(other).total_cmp(&cost(one)));
    let mut shares = vec![(0.0, vec![]); ranks];
    for slice in slices {
        let mut least = 0;
        for rank in 1..ranks {
            if shares[rank].0 < shares[least].0 {
                least = rank;
            }
        }
        shares[least].0 += cost(&slice);
        shares[least].1.push(slice);
    }
    shares.into_iter().map(|(_, slices)| slices).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learner::micro_batches::slices_of;
    use arpo_core::task::TaskId;
    use arpo_core::trajectory::{EpisodeId, Outcome, PolicyVersion, Slice, TokenId};

    fn trajectory(tokens: &[usize]) -> Trajectory {
        let slice = |&tokens: &usize| Slice { tokens: vec![TokenId(0); tokens], first_live: 0, end: 0 };
        Trajectory {
            id: EpisodeId::new(0, &TaskId::new("t"), 0),
            task: TaskId::new("t"),
            policy_version: PolicyVersion(0),
            slices: tokens.iter().map(slice).collect(),
            steps: vec![],
            sampler_logp: vec![],
            score: 1.0,
            well_formed: true,
            outcome: Outcome::Finished {},
        }
    }

    fn shares(trajectories: &[&Trajectory], costs: SliceCosts, ranks: usize) -> Vec<Vec<SliceIndex>> {
        divide(trajectories, slices_of(trajectories), costs, ranks)
    }

    #[test]
    fn every_slice_is_computed_once_and_shares_are_equal() {
        let long = trajectory(&[500, 400, 300]);
        let others: Vec<Trajectory> = (0..13).map(|number| trajectory(&[100 + 10 * number])).collect();
        let all: Vec<&Trajectory> = others.iter().chain([&long]).collect();
        let costs = SliceCosts::of(&arpo_model::config::qwen2_5_vl_7b());
        for ranks in 1..=4 {
            let shares = shares(&all, costs, ranks);
            let mut found: Vec<SliceIndex> = shares.concat();
            found.sort_unstable();
            assert_eq!(found, slices_of(&all));
            let total = |share: &Vec<SliceIndex>| {
                share
                    .iter()
                    .map(|&(at, slice)| costs.of_slice(all[at].slices[slice].tokens.len()))
                    .sum::<f64>()
            };
            let totals: Vec<f64> = shares.iter().map(total).collect();
            let (most, least) =
                (totals.iter().copied().fold(0.0, f64::max), totals.iter().copied().fold(f64::MAX, f64::min));
            assert!(most < 1.25 * least, "{totals:?}");
        }
    }

    #[test]
    fn a_long_slice_outweighs_many_short_ones_by_its_square() {
        let (long, short) = (trajectory(&[1000]), trajectory(&[100; 12]));
        let pairs_only = SliceCosts { token: 0.0, pair: 1.0 };
        let shares = shares(&[&long, &short], pairs_only, 2);
        assert_eq!((shares[0].len(), shares[1].len()), (1, 12));
        // for the 7B attention costs as much as everything else at about 65 000 tokens
        let costs = SliceCosts::of(&arpo_model::config::qwen2_5_vl_7b());
        assert!((60_000.0..70_000.0).contains(&(costs.token / costs.pair)), "{}", costs.token / costs.pair);
    }

    #[test]
    fn more_ranks_than_slices_leave_some_empty() {
        let one = trajectory(&[10]);
        let costs = SliceCosts { token: 1.0, pair: 1.0 };
        assert_eq!(shares(&[&one], costs, 3), [vec![(0, 0)], vec![], vec![]]);
        assert_eq!(shares(&[], costs, 2), [vec![], vec![]]);
    }
}
