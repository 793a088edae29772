//! Rank 0: the learner that the trainer sees. It hands out work, computes its own share and the loss of everybody's, and
//! saves what all ranks have.

use super::SharedRanks;
use super::division::{SliceCosts, divide};
use super::messages::{Answer, Command, from_bytes, to_bytes};
use super::others::OtherRanks;
use crate::TrainError;
use crate::learner::local::LocalLearner;
use crate::learner::micro_batches::{MicroBatches, SliceIndex, slices_of};
use crate::learner::{
    Learner, LearnerInfo, LossOfSpan, Scorer, TrainedSpan, UpdateReport, loss_of, unknown_log_probs,
};
use crate::policy::WeightUpdate;
use crate::run::training_state::TrainedModel;
use crate::screens::Screens;
use arpo_core::trajectory::Trajectory;
use arpo_model::training::step::{HasRanks, LossGradient};
use arpo_ranks::Collectives;
use std::collections::BTreeMap;
use std::path::Path;
use tch::Tensor;

/// A learner that is several processes, seen from rank 0.
pub struct RankedLearner {
    local: LocalLearner,
    ranks: SharedRanks,
    costs: SliceCosts,
}

/// Work that is divided: the micro-batches of each rank.
struct Division {
    number: u64,
    batches: Vec<Vec<Vec<SliceIndex>>>,
}

impl Division {
    fn rounds(&self) -> usize {
        self.batches.iter().map(Vec::len).max().unwrap_or(0)
    }
}

impl RankedLearner {
    /// The learner of rank 0, whose optimiser has its shard of the moments, and the other ranks.
    pub fn new(local: LocalLearner, ranks: SharedRanks) -> Self {
        let costs = SliceCosts::of(local.updater.trainable().model().config());
        Self { local, ranks, costs }
    }
}

impl HasRanks for OtherRanks {
    fn ranks(&mut self) -> &mut dyn Collectives<Tensor> {
        self.tensors.as_mut()
    }
}

impl OtherRanks {
    /// Divides the slices, and hands the other ranks theirs.
    fn hand_out(
        &mut self,
        (micro_batches, costs): (&MicroBatches, SliceCosts),
        trajectories: &[&Trajectory],
        screens: &Screens,
        work: impl Fn(&Division, Vec<Vec<SliceIndex>>) -> Command,
    ) -> Result<Division, TrainError> {
        let shares = divide(trajectories, slices_of(trajectories), costs, self.tensors.size());
        let plan = |share: Vec<SliceIndex>| micro_batches.plan(trajectories, share);
        let batches = shares.into_iter().map(plan).collect();
        let division = Division { number: self.next_number(), batches };
        for rank in self.numbers() {
            let batches = self.hand_over(rank, trajectories, screens, &division.batches[rank])?;
            self.send(rank, &work(&division, batches), vec![])?;
        }
        Ok(division)
    }

    /// Sends a rank what its micro-batches are made of; returns them with its own numbers of the trajectories.
    fn hand_over(
        &mut self,
        rank: usize,
        trajectories: &[&Trajectory],
        screens: &Screens,
        batches: &[Vec<SliceIndex>],
    ) -> Result<Vec<Vec<SliceIndex>>, TrainError> {
        self.make_room(rank)?;
        let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
        let mut theirs = batches.to_vec();
        for (at, slice) in theirs.iter_mut().flatten() {
            let trajectory = trajectories[*at];
            let known = numbers.len();
            let number = *numbers.entry(*at).or_insert(known);
            if number == known {
                self.send(rank, &Command::Trajectory(Box::new(trajectory.clone())), vec![])?;
            }
            let view = trajectory.views().nth(*slice);
            let live = view.map_or(0..0, |view| view.live);
            for step in &trajectory.steps[live] {
                let screenshot = &step.observation.screenshot;
                self.show(rank, screenshot, || screens.png(screenshot))?;
            }
            *at = number;
        }
        Ok(theirs)
    }

    /// Computes the losses of a round for the ranks that have a micro-batch in it, in the order of the ranks. After that every
    /// rank goes on to the backward pass, also those that have nothing to compute: gradients may be summed in it.
    fn serve(
        &self,
        division: &Division,
        round: usize,
        trajectories: &[&Trajectory],
        tally: &mut Tally,
        loss: &mut LossOfSpan,
    ) -> Result<(), TrainError> {
        let number = division.number;
        for rank in self.numbers() {
            let answered = match division.batches[rank].get(round) {
                None => None,
                Some(batch) => match self.answer(rank, number)? {
                    (Answer::Scores { .. }, message) => Some((batch, message)),
                    _ => None,
                },
            };
            let Some((batch, message)) = answered else {
                self.send(rank, &Command::Pass { number }, vec![])?;
                continue;
            };
            let spans = spans(trajectories, batch)?;
            let scores = from_bytes(&message.payload);
            let (logp, entropy) = scores.split_at(scores.len() / 2);
            let LossGradient { value, coefficients } = loss_of(&spans, &by_span(&spans, logp)?, loss);
            tally.loss += value;
            tally.entropy.extend(entropy);
            let mut payload = value.to_le_bytes().to_vec();
            payload.extend(to_bytes(&coefficients.concat()));
            self.send(rank, &Command::Loss { number }, payload)?;
        }
        Ok(())
    }
}

/// What is summed over all micro-batches of an update.
#[derive(Default)]
struct Tally {
    loss: f64,
    entropy: Vec<f32>,
}

/// The trained tokens of the slices of a micro-batch.
fn spans(trajectories: &[&Trajectory], batch: &[SliceIndex]) -> Result<Vec<TrainedSpan>, TrainError> {
    let span = |&(at, slice): &SliceIndex| {
        let view = trajectories[at].views().nth(slice);
        let view =
            view.ok_or_else(|| TrainError::Internal(format!("{}: no slice {slice}", trajectories[at].id)))?;
        Ok(TrainedSpan { trajectory: at, trained: view.trained })
    };
    batch.iter().map(span).collect()
}

/// Values of all spans, one after the other, by span.
fn by_span<'v>(spans: &[TrainedSpan], values: &'v [f32]) -> Result<Vec<&'v [f32]>, TrainError> {
    let needed: usize = spans.iter().map(|span| span.trained.len()).sum();
    if values.len() != needed {
        return Err(TrainError::Internal(format!("{} values of {needed} trained tokens", values.len())));
    }
    let mut rest = values;
    let take = |span: &TrainedSpan| {
        let (own, others) = rest.split_at(span.trained.len());
        rest = others;
        own
    };
    Ok(spans.iter().map(take).collect())
}

impl Learner for RankedLearner {
    fn info(&self) -> LearnerInfo {
        let info = self.local.info();
        let ranks = self.ranks.size();
        LearnerInfo { device: format!("{ranks} ranks, {}", info.device), ..info }
    }

    fn log_probs(
        &mut self,
        scorer: Scorer,
        trajectories: &[&Trajectory],
        screens: &Screens,
    ) -> Result<Vec<Vec<f32>>, TrainError> {
        let mut log_probs = unknown_log_probs(trajectories);
        if trajectories.is_empty() {
            return Ok(log_probs);
        }
        let mut ranks = self.ranks.lock();
        let work =
            |division: &Division, batches| Command::LogProbs { number: division.number, scorer, batches };
        let how = (&self.local.micro_batches, self.costs);
        let division = ranks.hand_out(how, trajectories, screens, work)?;
        let model = self.local.model(scorer)?;
        let device = model.model().device();
        let own = &division.batches[0];
        let computed =
            self.local.micro_batches.each_of(device, trajectories, screens, own, |spans, batch| {
                for (span, logp) in spans.iter().zip(model.scores(&batch)?.logp) {
                    log_probs[span.trajectory][span.trained.clone()].copy_from_slice(&logp);
                }
                Ok(())
            });
        if let Err(TrainError::Interrupted) = computed {
            ranks.send_all(&Command::Cancel { number: division.number })?;
        }
        computed?;
        for rank in ranks.numbers() {
            let (_, message) = ranks.answer(rank, division.number)?;
            let spans = spans(trajectories, &division.batches[rank].concat())?;
            for (span, logp) in spans.iter().zip(by_span(&spans, &from_bytes(&message.payload))?) {
                log_probs[span.trajectory][span.trained.clone()].copy_from_slice(logp);
            }
        }
        Ok(log_probs)
    }

    fn update(
        &mut self,
        trajectories: &[&Trajectory],
        screens: &Screens,
        learning_rate: f64,
        loss: &mut LossOfSpan,
    ) -> Result<UpdateReport, TrainError> {
        let mut ranks = self.ranks.lock();
        let work = |division: &Division, batches| Command::Update {
            number: division.number,
            batches,
            rounds: division.rounds(),
        };
        let how = (&self.local.micro_batches, self.costs);
        let division = ranks.hand_out(how, trajectories, screens, work)?;
        let number = division.number;
        let LocalLearner { updater, micro_batches, .. } = &mut self.local;
        let mut update = updater.begin();
        let device = update.trainable().model().device();
        let (mut round, mut tally) = (0, Tally::default());
        let mut compute = || {
            micro_batches.each_of(device, trajectories, screens, &division.batches[0], |spans, batch| {
                if round + 1 == division.rounds() {
                    update.begin_last_round();
                }
                let computed =
                    update.try_add_with(&mut *ranks, batch, |ranks: &mut OtherRanks, scores| {
                        let own = loss_of(spans, &scores.logp, loss);
                        tally.loss += own.value;
                        tally.entropy.extend(scores.entropy.iter().flatten());
                        ranks.serve(&division, round, trajectories, &mut tally, loss)?;
                        Ok::<_, TrainError>(own)
                    })?;
                if !computed {
                    ranks.serve(&division, round, trajectories, &mut tally, loss)?;
                    update.add_nothing(ranks.tensors.as_mut())?;
                }
                round += 1;
                Ok(())
            })?;
            // those of ranks with more micro-batches
            while round < division.rounds() {
                if micro_batches.stop.requested() {
                    return Err(TrainError::Interrupted);
                }
                ranks.serve(&division, round, trajectories, &mut tally, loss)?;
                if round + 1 == division.rounds() {
                    update.begin_last_round();
                }
                update.add_nothing(ranks.tensors.as_mut())?;
                round += 1;
            }
            Ok(())
        };
        let computed = compute();
        if let Err(TrainError::Interrupted) = computed {
            ranks.send_all(&Command::Cancel { number })?;
        }
        computed?;
        ranks.send_all(&Command::Finish { number, learning_rate })?;
        let report = update.finish_with(learning_rate, ranks.tensors.as_mut())?;
        Ok(UpdateReport {
            loss: tally.loss,
            gradient_norm: report.gradient_norm,
            applied: report.applied,
            entropy: tally.entropy,
        })
    }

    fn weights(&self) -> WeightUpdate {
        self.local.weights()
    }

    fn skipped(&self) -> u64 {
        self.local.skipped()
    }

    fn save(&self, checkpoint: &Path) -> Result<(), TrainError> {
        let mut ranks = self.ranks.lock();
        ranks.send_all(&Command::GatherMoments {})?;
        let model = self.local.updater.trainable().model();
        let own = self.local.updater.optimiser();
        let whole = own.gathered(model.weights(), ranks.tensors.as_mut())?;
        TrainedModel {
            config: model.config(),
            weights: model.weights(),
            side_files: &self.local.side_files,
            optimiser: whole.as_ref().unwrap_or(own),
        }
        .save(checkpoint)
    }
}
