//! Old log-probabilities, the denominators of the probability ratios: from the sampler, from a forward pass beforehand, or from
//! the first one of the updates.

use crate::TrainError;
use crate::batch::Sample;
use crate::learner::{Learner, Scorer};
use crate::screens::Screens;
use arpo_core::config::Config;
use arpo_core::loss::ratio::{TrajectoryMeans, mean_difference};
use arpo_core::loss::{OldLogp, RatioLevel};
use arpo_core::replay::Origin;
use arpo_core::trajectory::Trajectory;
use std::collections::{BTreeSet, HashMap};

/// The old log-probabilities of a sample, the denominators of its ratios.
pub(super) enum OldLogProbs {
    /// Known beforehand.
    Known(Vec<f32>),
    /// Taken from its first forward pass, while the weights are still the same; NaN until then.
    FirstPass(Vec<f32>),
}

impl OldLogProbs {
    pub(super) fn logp(&self) -> &[f32] {
        match self {
            Self::Known(logp) | Self::FirstPass(logp) => logp,
        }
    }

    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::FirstPass(logp) if logp.iter().any(|logp| logp.is_nan()))
    }

    /// In a form that can be saved: JSON has neither NaN nor infinity.
    pub(super) fn known(self) -> Option<Vec<f32>> {
        match self {
            Self::Known(logp) | Self::FirstPass(logp) => {
                logp.iter().all(|logp| logp.is_finite()).then_some(logp)
            }
        }
    }

    pub(super) fn from_known(known: Option<Vec<f32>>, trajectory: &Trajectory) -> Self {
        match known {
            Some(logp) => Self::Known(logp),
            None => Self::FirstPass(vec![f32::NAN; trajectory.trained_tokens()]),
        }
    }
}

/// Old log-probabilities of all samples; those that cannot take them from the first forward pass are computed.
pub(super) fn old_log_probs(
    learner: &mut dyn Learner,
    samples: &[Sample],
    trajectories: &[&Trajectory],
    screens: &Screens,
    plan: &[Vec<usize>],
    config: &Config,
) -> Result<Vec<OldLogProbs>, TrainError> {
    let first: &[usize] = plan.first().map_or(&[], Vec::as_slice);
    let mut missing = vec![];
    let mut old: Vec<OldLogProbs> = samples
        .iter()
        .enumerate()
        .map(|(number, Sample { member, .. })| {
            if member.origin == (Origin::Fresh {}) && config.loss.old == OldLogp::Sampler {
                return OldLogProbs::Known(member.trajectory.sampler_logp.clone());
            }
            let first_pass = first.contains(&number) && !ratio_spans_slices(trajectories[number], config);
            if !first_pass && has_gradient(&samples[number], config) {
                missing.push(number);
            }
            OldLogProbs::FirstPass(vec![f32::NAN; trajectories[number].trained_tokens()])
        })
        .collect();
    let to_compute: Vec<&Trajectory> = missing.iter().map(|&sample| trajectories[sample]).collect();
    let computed = learner.log_probs(Scorer::Policy, &to_compute, screens)?;
    for (sample, logp) in missing.into_iter().zip(computed) {
        old[sample] = OldLogProbs::Known(logp);
    }
    Ok(old)
}

/// Computes the old log-probabilities that samples of later updates still lack. A skipped update ends with the micro-batch that
/// was not finite, so its other samples have had no forward pass, and the next update changes the weights.
pub(super) fn complete(
    old: &mut [OldLogProbs],
    learner: &mut dyn Learner,
    samples: &[Sample],
    screens: &Screens,
    later: &[Vec<usize>],
    config: &Config,
) -> Result<(), TrainError> {
    let lacks = |sample: &usize| old[*sample].is_missing() && has_gradient(&samples[*sample], config);
    let missing: BTreeSet<usize> = later.iter().flatten().copied().filter(lacks).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let trajectories: Vec<&Trajectory> =
        missing.iter().map(|&sample| samples[sample].member.trajectory.as_ref()).collect();
    let computed = learner.log_probs(Scorer::Policy, &trajectories, screens)?;
    for (sample, logp) in missing.into_iter().zip(computed) {
        if logp.iter().all(|logp| logp.is_finite()) {
            old[sample] = OldLogProbs::Known(logp);
        }
    }
    Ok(())
}

/// Whether the ratio of a trajectory needs the log-probabilities of several slices.
pub(super) fn ratio_spans_slices(trajectory: &Trajectory, config: &Config) -> bool {
    config.loss.ratio == RatioLevel::Trajectory && trajectory.slices.len() > 1
}

/// The means that ratios of whole trajectories need, for those samples of an update that have several slices.
pub(super) fn trajectory_means(
    learner: &mut dyn Learner,
    samples: &[Sample],
    computed: &[(usize, f64)],
    old: &[OldLogProbs],
    screens: &Screens,
    config: &Config,
) -> Result<HashMap<usize, TrajectoryMeans>, TrainError> {
    let trajectory = |sample: usize| samples[sample].member.trajectory.as_ref();
    let sliced: Vec<usize> = computed
        .iter()
        .map(|&(sample, _)| sample)
        .filter(|&sample| ratio_spans_slices(trajectory(sample), config))
        .collect();
    if sliced.is_empty() {
        return Ok(HashMap::new());
    }
    let trajectories: Vec<&Trajectory> = sliced.iter().map(|&sample| trajectory(sample)).collect();
    let new = learner.log_probs(Scorer::Policy, &trajectories, screens)?;
    let means = |(sample, new): (usize, Vec<f32>)| {
        let old = old[sample].logp();
        let behaviour = samples[sample].member.behaviour(&config.loss, &config.replay);
        let means = TrajectoryMeans {
            log_ratio: mean_difference(&new, old),
            log_importance: behaviour.map_or(0.0, |behaviour| mean_difference(old, behaviour.logp)),
        };
        (sample, means)
    };
    Ok(sliced.into_iter().zip(new).map(means).collect())
}

/// Whether a sample contributes to the gradient. With an advantage of 0 every coefficient is 0, unless there is a KL
/// term; such a sample counts in its mini-batch but is not computed.
pub(super) fn has_gradient(sample: &Sample, config: &Config) -> bool {
    sample.has_advantage() || config.loss.kl_coefficient > 0.0
}
