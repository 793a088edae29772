//! Learning from episodes that were collected before: rejection sampling (imitate the successes), DPO (prefer a success
//! over a failure of the same task) and KTO (successes are desirable, failures undesirable).

use crate::TrainError;
use crate::batch::mean;
use crate::learner::{Learner, Scorer, SpanLoss};
use crate::screens::Screens;
use arpo_core::config::Config;
use arpo_core::loss::offline::{OfflineSample, dpo_loss, kto_loss, kto_reference_point, supervised_loss};
use arpo_core::loss::token_scales;
use arpo_core::random::{Purpose, stream};
use arpo_core::task::TaskId;
use arpo_core::trajectory::{TokenId, Trajectory};
use rand::RngExt;
use rand::seq::SliceRandom;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The training method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Imitate the successes.
    Rejection,
    /// Prefer a success over a failure of the same task.
    Dpo,
    /// Successes are desirable, failures undesirable.
    Kto,
}

/// Statistics of an epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Epoch {
    /// From 1.
    pub number: usize,
    /// Updates made.
    pub updates: usize,
    /// Mean loss.
    pub loss: f64,
    /// Mean norm of the gradient before clipping.
    pub gradient_norm: f64,
}

/// Episodes prepared for a method.
#[derive(Debug)]
pub struct Offline<'a> {
    method: Method,
    config: &'a Config,
    trajectories: Vec<&'a Trajectory>,
    /// Indices of the trajectories in each sample: one trajectory, or a success and a failure.
    units: Vec<Vec<usize>>,
    /// Log-probabilities of each trajectory under the initial model.
    reference: Vec<Vec<f32>>,
    /// For KTO: each trajectory after another task's prompt, and its log-probabilities under the initial model.
    mismatched: Vec<(Trajectory, Vec<f32>)>,
}

/// A loss that is known before the update, and dL/dlogp, one value for all tokens of a trajectory.
struct KnownLoss {
    loss: f64,
    gradients: Vec<f64>,
}

impl<'a> Offline<'a> {
    /// Sorts the episodes; the learner's model as it is now is the reference.
    pub fn new(
        method: Method,
        episodes: &'a [Arc<Trajectory>],
        learner: &mut dyn Learner,
        screens: &Screens,
        image_token: u32,
        config: &'a Config,
    ) -> Result<Self, TrainError> {
        let trajectories: Vec<&Trajectory> =
            episodes.iter().map(Arc::as_ref).filter(|one| one.trained_tokens() > 0).collect();
        let succeeded = |at: &usize| config.reward.is_success(trajectories[*at].score);
        let all = 0..trajectories.len();
        let units = match method {
            Method::Rejection => all.filter(succeeded).map(|at| vec![at]).collect(),
            Method::Dpo => pairs(&trajectories, succeeded, config.seed),
            Method::Kto => all.map(|at| vec![at]).collect::<Vec<_>>(),
        };
        if units.is_empty() {
            return Err(TrainError::Configuration(format!(
                "nothing to learn from in {} episodes: expected {}",
                trajectories.len(),
                match method {
                    Method::Rejection => "successes",
                    Method::Dpo => "a task with both successes and failures",
                    Method::Kto => "episodes",
                }
            )));
        }
        let reference = match method {
            Method::Rejection => vec![],
            Method::Dpo | Method::Kto => learner.log_probs(Scorer::Policy, &trajectories, screens)?,
        };
        let mismatched =
            if method == Method::Kto { mismatched(&trajectories, image_token, config.seed) } else { vec![] };
        let views: Vec<&Trajectory> = mismatched.iter().collect();
        let scores = learner.log_probs(Scorer::Policy, &views, screens)?;
        let mismatched = mismatched.into_iter().zip(scores).collect();
        Ok(Self { method, config, trajectories, units, reference, mismatched })
    }

    /// One pass over all episodes; `progress` gets the updates made and their total.
    pub fn epoch(
        &self,
        number: usize,
        learner: &mut dyn Learner,
        screens: &Screens,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Epoch, TrainError> {
        let mut order: Vec<usize> = (0..self.units.len()).collect();
        order.shuffle(&mut stream(self.config.seed, Purpose::Batches, number as u64, 0));
        // a pair counts as two trajectories
        let members = if self.method == Method::Dpo { 2 } else { 1 };
        let size = (self.config.optimiser.trajectories_per_update / members).max(1);
        let per_epoch = order.len().div_ceil(size);
        let (mut losses, mut norms) = (vec![], vec![]);
        for (count, chosen) in order.chunks(size).enumerate() {
            let units: Vec<&Vec<usize>> = chosen.iter().map(|&unit| &self.units[unit]).collect();
            let update = (number - 1) * per_epoch + count;
            let share = update as f64 / (self.config.offline.epochs * per_epoch) as f64;
            let rate = self.config.optimiser.learning_rate_at(update as u64, share);
            let report = self.update(&units, rate, learner, screens)?;
            losses.push(report.0);
            norms.push(report.1);
            progress(count + 1, per_epoch);
        }
        let updates = losses.len();
        Ok(Epoch { number, updates, loss: mean(losses.into_iter()), gradient_norm: mean(norms.into_iter()) })
    }

    /// One update; its loss and the norm of its gradient.
    fn update(
        &self,
        units: &[&Vec<usize>],
        rate: f64,
        learner: &mut dyn Learner,
        screens: &Screens,
    ) -> Result<(f64, f64), TrainError> {
        let indices: Vec<usize> = units.iter().flat_map(|unit| unit.iter().copied()).collect();
        let together: Vec<&Trajectory> = indices.iter().map(|&at| self.trajectories[at]).collect();
        if self.method == Method::Rejection {
            return self.imitate(&together, rate, learner, screens);
        }
        let KnownLoss { loss, gradients } = self.known_loss(units, &indices, &together, learner, screens)?;
        let report = learner.update(&together, screens, rate, &mut |span, new| SpanLoss {
            value: 0.0,
            coefficients: vec![gradients[span.trajectory] as f32; new.len()],
        })?;
        Ok((loss, report.gradient_norm.unwrap_or(0.0)))
    }

    /// The update of rejection sampling, which needs no pass beforehand.
    fn imitate(
        &self,
        together: &[&Trajectory],
        rate: f64,
        learner: &mut dyn Learner,
        screens: &Screens,
    ) -> Result<(f64, f64), TrainError> {
        let lengths: Vec<usize> = together.iter().map(|one| one.trained_tokens()).collect();
        let scales = token_scales(&lengths, self.config.loss.normaliser, self.config.loss.constant_tokens);
        let report = learner.update(together, screens, rate, &mut |span, new| {
            let (value, gradient) = supervised_loss(new, scales[span.trajectory]);
            SpanLoss { value, coefficients: vec![gradient as f32; new.len()] }
        })?;
        Ok((report.loss, report.gradient_norm.unwrap_or(0.0)))
    }

    /// The loss of an update of DPO or KTO, known before it: it needs the log-probabilities of whole trajectories or pairs of
    /// them, which are too long for one micro-batch, so these are computed in a pass before the update.
    fn known_loss(
        &self,
        units: &[&Vec<usize>],
        indices: &[usize],
        together: &[&Trajectory],
        learner: &mut dyn Learner,
        screens: &Screens,
    ) -> Result<KnownLoss, TrainError> {
        let new = learner.log_probs(Scorer::Policy, together, screens)?;
        let point = self.reference_point(indices, learner, screens)?;
        let sample =
            |at: usize| OfflineSample { new_logp: &new[at], reference_logp: &self.reference[indices[at]] };
        let share = 1.0 / units.len() as f64;
        let mut known = KnownLoss { loss: 0.0, gradients: Vec::with_capacity(indices.len()) };
        let members = units.first().map_or(1, |unit| unit.len());
        for first in (0..indices.len()).step_by(members) {
            if self.method == Method::Dpo {
                let loss = dpo_loss(&sample(first), &sample(first + 1), &self.config.offline.dpo);
                known.loss += share * loss.value;
                known.gradients.extend([share * loss.chosen_gradient, share * loss.rejected_gradient]);
            } else {
                let desirable = self.config.reward.is_success(together[first].score);
                let (loss, gradient) = kto_loss(&sample(first), desirable, point, &self.config.offline.kto);
                known.loss += share * loss;
                known.gradients.push(share * gradient);
            }
        }
        Ok(known)
    }

    /// KTO's reference point: how far the model has moved on trajectories with mismatched prompts.
    fn reference_point(
        &self,
        indices: &[usize],
        learner: &mut dyn Learner,
        screens: &Screens,
    ) -> Result<f64, TrainError> {
        if self.method != Method::Kto {
            return Ok(0.0);
        }
        let views: Vec<&Trajectory> = indices.iter().map(|&at| &self.mismatched[at].0).collect();
        let scores = learner.log_probs(Scorer::Policy, &views, screens)?;
        let samples: Vec<OfflineSample> = indices
            .iter()
            .zip(&scores)
            .map(|(&at, new_logp)| OfflineSample { new_logp, reference_logp: &self.mismatched[at].1 })
            .collect();
        Ok(kto_reference_point(&samples))
    }
}

/// Pairs each success with a random failure of its task; as many pairs as there are of the more frequent kind.
fn pairs(trajectories: &[&Trajectory], succeeded: impl Fn(&usize) -> bool, seed: u64) -> Vec<Vec<usize>> {
    let mut by_task: BTreeMap<&TaskId, [Vec<usize>; 2]> = BTreeMap::new();
    for (at, trajectory) in trajectories.iter().enumerate() {
        by_task.entry(&trajectory.task).or_default()[usize::from(!succeeded(&at))].push(at);
    }
    let mut random = stream(seed, Purpose::Batches, 0, 1);
    let mut pairs = Vec::new();
    for [successes, failures] in
        by_task.values_mut().filter(|kinds| kinds.iter().all(|kind| !kind.is_empty()))
    {
        successes.shuffle(&mut random);
        failures.shuffle(&mut random);
        let count = successes.len().max(failures.len());
        let cycled = successes.iter().cycle().zip(failures.iter().cycle()).take(count);
        pairs.extend(cycled.map(|(&success, &failure)| vec![success, failure]));
    }
    pairs
}

/// Every trajectory with the prompt of another task: the tokens before the first image are exchanged.
fn mismatched(trajectories: &[&Trajectory], image_token: u32, seed: u64) -> Vec<Trajectory> {
    let prompt = |trajectory: &Trajectory| -> Vec<TokenId> {
        let first = trajectory.slices.first().map_or(&[][..], |slice| &slice.tokens);
        let image = first.iter().position(|token| token.0 == image_token).unwrap_or(0);
        first[..image.min(trajectory.steps.first().map_or(0, |step| step.span.start))].to_vec()
    };
    let mut random = stream(seed, Purpose::Batches, 0, 2);
    let exchanged = |trajectory: &&Trajectory| {
        let others: Vec<&&Trajectory> =
            trajectories.iter().filter(|other| other.task != trajectory.task).collect();
        let mut changed = (*trajectory).clone();
        if others.is_empty() {
            return changed;
        }
        let other = others[random.random_range(0..others.len())];
        let (mut own, mut replacement) = (prompt(trajectory), prompt(other));
        // the common suffix stays: it opens the first image, which later slices leave out
        while !own.is_empty() && own.last() == replacement.last() {
            own.pop();
            replacement.pop();
        }
        for slice in &mut changed.slices {
            slice.tokens.splice(..own.len(), replacement.iter().copied());
        }
        for step in &mut changed.steps {
            step.span.start = step.span.start - own.len() + replacement.len();
            step.span.end = step.span.end - own.len() + replacement.len();
        }
        changed
    };
    trajectories.iter().map(exchanged).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arpo_core::trajectory::{
        EpisodeId, ImageRef, Observation, Outcome, PolicyVersion, Slice, Step, TokenSpan,
    };

    fn trajectory(task: &str, score: f64, prompt: &[u32]) -> Trajectory {
        let task = TaskId::new(task);
        let screenshot = ImageRef { digest: "d".into(), width: 28, height: 28 };
        let start = prompt.len() + 1;
        let step = Step {
            observation: Observation { screenshot },
            response: String::new(),
            actions: vec![],
            span: TokenSpan { start, end: start + 2 },
        };
        Trajectory {
            id: EpisodeId::new(0, &task, 0),
            task,
            policy_version: PolicyVersion(0),
            slices: vec![Slice {
                tokens: prompt.iter().chain(&[9, 1, 2]).map(|&token| TokenId(token)).collect(),
                first_live: 0,
                end: 1,
            }],
            steps: vec![step],
            sampler_logp: vec![-0.1, -0.2],
            score,
            well_formed: true,
            outcome: Outcome::Finished {},
        }
    }

    #[test]
    fn pairs_are_of_one_task() {
        let all = [
            trajectory("a", 1.0, &[5]),
            trajectory("a", 0.0, &[5]),
            trajectory("a", 0.0, &[5]),
            trajectory("b", 1.0, &[6, 6]),
            trajectory("c", 0.0, &[7]),
        ];
        let views: Vec<&Trajectory> = all.iter().collect();
        let mut found = pairs(&views, |at| all[*at].score > 0.1, 0);
        found.sort();
        assert_eq!(found, [[0, 1], [0, 2]]);
    }

    #[test]
    fn the_prompt_is_exchanged_and_the_episode_stays() {
        let all = [trajectory("a", 1.0, &[5]), trajectory("b", 0.0, &[6, 6])];
        let views: Vec<&Trajectory> = all.iter().collect();
        let changed = mismatched(&views, 9, 0);
        let tokens = |one: &Trajectory| one.slices[0].tokens.iter().map(|token| token.0).collect::<Vec<_>>();
        assert_eq!(tokens(&changed[0]), [6, 6, 9, 1, 2]);
        assert_eq!(changed[0].steps[0].span, TokenSpan { start: 3, end: 5 });
        assert_eq!(tokens(&changed[1]), [5, 9, 1, 2]);
        assert!(changed.iter().all(|one| one.check().is_ok()));
    }

    #[test]
    fn exchanged_prompts_depend_on_the_seed() {
        let all: Vec<Trajectory> =
            (0..12).map(|task| trajectory(&format!("t{task}"), 1.0, &[10 + task])).collect();
        let views: Vec<&Trajectory> = all.iter().collect();
        let prompts = |seed: u64| -> Vec<u32> {
            mismatched(&views, 9, seed).iter().map(|one| one.slices[0].tokens[0].0).collect()
        };
        assert_eq!(prompts(1), prompts(1));
        assert_ne!(prompts(1), prompts(2));
        assert!((0..12).all(|task| prompts(1)[task] != 10 + task as u32));
    }
}
