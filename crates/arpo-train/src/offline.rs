//! Learning from episodes that were collected before: rejection sampling (imitate the successes), DPO (prefer a success
//! over a failure of the same task) and KTO (successes are desirable, failures undesirable).

use crate::TrainError;
use crate::layout::Layout;
use crate::lesson::mean;
use arpo_core::config::Config;
use arpo_core::loss::offline::{OfflineSample, dpo_loss, kto_loss, kto_reference_point};
use arpo_core::loss::token_scales;
use arpo_core::random::{Purpose, stream};
use arpo_core::task::TaskId;
use arpo_core::trajectory::{TokenId, Trajectory};
use arpo_model::learner::step::Updater;
use rand::RngExt;
use rand::seq::SliceRandom;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How episodes are learnt from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Imitate the successes.
    Rejection,
    /// Prefer a success over a failure of the same task.
    Dpo,
    /// Successes are desirable, failures undesirable.
    Kto,
}

/// What an epoch came to.
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

/// Episodes with what is needed to learn from them by a method.
#[derive(Debug)]
pub struct Offline<'a> {
    method: Method,
    config: &'a Config,
    trajectories: Vec<&'a Trajectory>,
    /// What is learnt from together: one trajectory, or a success and a failure.
    units: Vec<Vec<usize>>,
    /// Log-probabilities of each trajectory under the model at the beginning.
    reference: Vec<Vec<f32>>,
    /// For KTO: each trajectory after another task's prompt, and its log-probabilities at the beginning.
    mismatched: Vec<(Trajectory, Vec<f32>)>,
}

/// A loss that is known before the update, and dL/dlogp, one number for all tokens of a trajectory.
struct Pull {
    loss: f64,
    gradients: Vec<f64>,
}

fn sum(logp: &[f32]) -> f64 {
    logp.iter().map(|&logp| f64::from(logp)).sum()
}

impl<'a> Offline<'a> {
    /// Looks through the episodes; the updater's model is the reference.
    pub fn new(
        method: Method,
        episodes: &'a [Arc<Trajectory>],
        updater: &Updater,
        layout: &Layout,
        image_token: u32,
        config: &'a Config,
    ) -> Result<Self, TrainError> {
        let trajectories: Vec<&Trajectory> =
            episodes.iter().map(Arc::as_ref).filter(|one| one.trained_tokens() > 0).collect();
        let succeeded = |at: &usize| trajectories[*at].score > config.replay.success_above;
        let all = 0..trajectories.len();
        let units = match method {
            Method::Rejection => all.filter(succeeded).map(|at| vec![at]).collect(),
            Method::Dpo => pairs(&trajectories, succeeded, config.seed),
            Method::Kto => all.map(|at| vec![at]).collect::<Vec<_>>(),
        };
        if units.is_empty() {
            return Err(TrainError::Options(format!(
                "nothing to learn from in {} episodes: expected {}",
                trajectories.len(),
                match method {
                    Method::Rejection => "successes",
                    Method::Dpo => "a task with both successes and failures",
                    Method::Kto => "episodes",
                }
            )));
        }
        let learner = updater.learner();
        let reference =
            if method == Method::Rejection { vec![] } else { layout.scores(learner, &trajectories)? };
        let mismatched =
            if method == Method::Kto { mismatched(&trajectories, image_token, config.seed) } else { vec![] };
        let views: Vec<&Trajectory> = mismatched.iter().collect();
        let scores = layout.scores(learner, &views)?;
        let mismatched = mismatched.into_iter().zip(scores).collect();
        Ok(Self { method, config, trajectories, units, reference, mismatched })
    }

    /// Goes through everything once; `progress` hears of the updates made and of all.
    pub fn epoch(
        &self,
        number: usize,
        updater: &mut Updater,
        layout: &Layout,
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
            let report = self.update(&units, rate, updater, layout)?;
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
        updater: &mut Updater,
        layout: &Layout,
    ) -> Result<(f64, f64), TrainError> {
        let numbers: Vec<usize> = units.iter().flat_map(|unit| unit.iter().copied()).collect();
        let together: Vec<&Trajectory> = numbers.iter().map(|&at| self.trajectories[at]).collect();
        let Pull { loss, gradients } = self.pull(units, &numbers, &together, updater, layout)?;
        let report = layout.update(updater, &together, rate, |part, new| {
            let gradient = gradients[part.trajectory];
            // imitation is the sum itself; of the others the loss is known already
            let value = if self.method == Method::Rejection { gradient * sum(new) } else { 0.0 };
            (value, vec![gradient as f32; new.len()])
        })?;
        Ok((loss + report.loss, report.gradient_norm.unwrap_or(0.0)))
    }

    /// Where each trajectory of an update is pulled. DPO and KTO see whole trajectories, pairs of them even, which are too
    /// long to be gone through together: so their log-probabilities are computed in a pass before.
    fn pull(
        &self,
        units: &[&Vec<usize>],
        numbers: &[usize],
        together: &[&Trajectory],
        updater: &Updater,
        layout: &Layout,
    ) -> Result<Pull, TrainError> {
        if self.method == Method::Rejection {
            let lengths: Vec<usize> = together.iter().map(|one| one.trained_tokens()).collect();
            let scales =
                token_scales(&lengths, self.config.loss.normaliser, self.config.loss.constant_tokens);
            return Ok(Pull { loss: 0.0, gradients: scales.into_iter().map(|scale| -scale).collect() });
        }
        let new = layout.scores(updater.learner(), together)?;
        let point = self.reference_point(numbers, updater, layout)?;
        let sample =
            |at: usize| OfflineSample { new_logp: &new[at], reference_logp: &self.reference[numbers[at]] };
        let share = 1.0 / units.len() as f64;
        let mut pull = Pull { loss: 0.0, gradients: Vec::with_capacity(numbers.len()) };
        let members = units.first().map_or(1, |unit| unit.len());
        for first in (0..numbers.len()).step_by(members) {
            if self.method == Method::Dpo {
                let loss = dpo_loss(&sample(first), &sample(first + 1), &self.config.offline.dpo);
                pull.loss += share * loss.value;
                pull.gradients.extend([share * loss.chosen_gradient, share * loss.rejected_gradient]);
            } else {
                let desirable = together[first].score > self.config.replay.success_above;
                let (loss, gradient) = kto_loss(&sample(first), desirable, point, &self.config.offline.kto);
                pull.loss += share * loss;
                pull.gradients.push(share * gradient);
            }
        }
        Ok(pull)
    }

    /// KTO's: how far the model has moved on trajectories after prompts that are not theirs.
    fn reference_point(
        &self,
        numbers: &[usize],
        updater: &Updater,
        layout: &Layout,
    ) -> Result<f64, TrainError> {
        if self.method != Method::Kto {
            return Ok(0.0);
        }
        let views: Vec<&Trajectory> = numbers.iter().map(|&at| &self.mismatched[at].0).collect();
        let scores = layout.scores(updater.learner(), &views)?;
        let samples: Vec<OfflineSample> = numbers
            .iter()
            .zip(&scores)
            .map(|(&at, new_logp)| OfflineSample { new_logp, reference_logp: &self.mismatched[at].1 })
            .collect();
        Ok(kto_reference_point(&samples))
    }
}

/// Each success with a failure of its task, drawn at random; as many pairs as there are of the more frequent kind.
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

/// Every trajectory after the words of another task: what stands before the first picture is exchanged.
fn mismatched(trajectories: &[&Trajectory], image_token: u32, seed: u64) -> Vec<Trajectory> {
    let prompt = |trajectory: &Trajectory| -> Vec<TokenId> {
        let first = trajectory.slices.first().map_or(&[][..], |slice| &slice.tokens);
        let picture = first.iter().position(|token| token.0 == image_token).unwrap_or(0);
        first[..picture.min(trajectory.steps.first().map_or(0, |step| step.span.start))].to_vec()
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
        let (mut own, mut words) = (prompt(trajectory), prompt(other));
        // what both end with stays: it opens the first picture, which later slices have left out
        while !own.is_empty() && own.last() == words.last() {
            own.pop();
            words.pop();
        }
        for slice in &mut changed.slices {
            slice.tokens.splice(..own.len(), words.iter().copied());
        }
        for step in &mut changed.steps {
            step.span.start = step.span.start - own.len() + words.len();
            step.span.end = step.span.end - own.len() + words.len();
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
    fn other_words_come_before_the_same_episode() {
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
    fn which_words_come_before_depends_on_the_seed() {
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
