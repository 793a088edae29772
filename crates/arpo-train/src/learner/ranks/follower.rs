//! A rank other than rank 0: it does what rank 0 says until the run is over. While it has requests it samples, one pass after
//! the other, and looks for commands between two passes. After every micro-batch and every pass it says that it makes progress.

use super::RankTensors;
use super::messages::{Answer, Command, from_bytes, to_bytes, tokens_from_bytes};
use crate::TrainError;
use crate::collect::MEMORY_ADVICE;
use crate::learner::local::LocalLearner;
use crate::learner::micro_batches::SliceIndex;
use crate::learner::{Scorer, TrainedSpan};
use crate::memory::guarded;
use crate::policy::engine::Prompt;
use crate::policy::{EnginePolicy, Policy, RequestId, RolloutPolicy, WeightUpdate};
use crate::screens::Screens;
use arpo_core::trajectory::Trajectory;
use arpo_model::training::shard;
use arpo_model::training::step::{HasRanks, LossGradient};
use arpo_ranks::{Collectives, Message, RankError};
use std::collections::VecDeque;
use tch::Tensor;

/// Follows rank 0 until the run is over: with a model and its shard of the optimiser, unless this rank only samples; and with
/// what it samples with, on the same weights if it also learns, unless it only learns.
pub fn follow(
    mut learner: Option<LocalLearner>,
    sampler: Option<EnginePolicy>,
    tensors: Box<dyn RankTensors>,
) -> Result<(), TrainError> {
    let mut follower = Follower {
        tensors,
        pending: VecDeque::new(),
        trajectories: vec![],
        screens: Screens::default(),
        sampler,
        requests: vec![],
    };
    let advice = "a smaller `model.memory_gib`, `agent.max_screenshots` or `agent.max_tokens`";
    let followed = guarded("learning", advice, || follower.until_the_end(learner.as_mut()));
    if follower.tensors.group().is_over() {
        return Ok(());
    }
    if let Err(error) = &followed {
        // the others have to know; for a problem that came from them this has no effect
        follower.tensors.abort(&error.to_string());
    }
    followed
}

struct Follower {
    tensors: Box<dyn RankTensors>,
    /// Messages that were looked at before their time.
    pending: VecDeque<Message>,
    /// Those of the next work.
    trajectories: Vec<Trajectory>,
    screens: Screens,
    sampler: Option<EnginePolicy>,
    /// Requests that wait for the last one of their batch.
    requests: Vec<(RequestId, Prompt)>,
}

impl HasRanks for Follower {
    fn ranks(&mut self) -> &mut dyn Collectives<Tensor> {
        self.tensors.as_mut()
    }
}

impl Follower {
    fn until_the_end(&mut self, mut learner: Option<&mut LocalLearner>) -> Result<(), TrainError> {
        loop {
            let Some((command, message)) = self.next_or_sample()? else { continue };
            let unable = || TrainError::Internal("rank 0 asks a rank to learn that only samples".into());
            match command {
                Command::Trajectory(trajectory) => {
                    trajectory.check()?;
                    self.trajectories.push(*trajectory);
                }
                Command::Screen(screenshot) => self.screens.insert(&screenshot, message.payload.into()),
                Command::ForgetScreens {} => self.screens = Screens::default(),
                Command::LogProbs { number, scorer, batches } => {
                    let trajectories = std::mem::take(&mut self.trajectories);
                    let learner = learner.as_deref().ok_or_else(unable)?;
                    self.log_probs(learner, &trajectories, (number, scorer), &batches)?;
                }
                Command::Update { number, batches, rounds } => {
                    let trajectories = std::mem::take(&mut self.trajectories);
                    let learner = learner.as_deref_mut().ok_or_else(unable)?;
                    self.update(learner, &trajectories, (number, rounds), &batches)?;
                }
                Command::GatherMoments {} => {
                    let learner = learner.as_deref().ok_or_else(unable)?;
                    let weights = learner.updater.trainable().model().weights();
                    learner.updater.optimiser().gathered(weights, self.tensors.as_mut())?;
                }
                // the work was abandoned before this rank looked
                Command::Cancel { .. } => {}
                Command::Loss { .. } | Command::Pass { .. } | Command::Finish { .. } => {
                    return Err(TrainError::Internal("rank 0 goes on with work that does not exist".into()));
                }
                about_sampling => self.sample(about_sampling, &message)?,
            }
        }
    }

    /// The next command; `None` if there was none yet, and this rank has sampled meanwhile.
    fn next_or_sample(&mut self) -> Result<Option<(Command, Message)>, TrainError> {
        let Some(sampler) = self.sampler.as_mut().filter(|sampler| sampler.pending() > 0) else {
            return Ok(Some(self.next()?));
        };
        let group = self.tensors.group();
        if group.is_over() {
            return Err(TrainError::Interrupted);
        }
        let next = self.pending.pop_front().map_or_else(|| group.try_receive(0), |next| Ok(Some(next)))?;
        if let Some(message) = next {
            return Ok(Some((message.fields()?, message)));
        }
        let completed = guarded("collecting", MEMORY_ADVICE, || sampler.step())?;
        group.progress();
        let cache = sampler.cache_use();
        for (RequestId(number), response) in completed {
            let (answer, payload) = Answer::response(number, response, cache);
            self.answer(&answer, payload)?;
        }
        Ok(None)
    }

    /// Does what rank 0 says about sampling.
    fn sample(&mut self, command: Command, message: &Message) -> Result<(), TrainError> {
        let unable = || TrainError::Internal("rank 0 asks a rank to sample that only learns".into());
        let sampler = self.sampler.as_mut().ok_or_else(unable)?;
        match command {
            Command::Request { number, screens, sampling } => {
                let found = screens.iter().map(|digest| {
                    let missing = || TrainError::Internal(format!("rank 0 did not send screenshot {digest}"));
                    self.screens.in_memory(digest).ok_or_else(missing)
                });
                let screens = found.collect::<Result<_, _>>()?;
                let tokens = tokens_from_bytes(&message.payload);
                self.requests.push((RequestId(number), Prompt { tokens, screens, sampling }));
            }
            Command::Generate {} => {
                for (id, prompt) in self.requests.drain(..) {
                    sampler.submit_prompt(id, prompt)?;
                }
            }
            Command::DropRequests {} => {
                self.requests.clear();
                sampler.cancel_all();
            }
            Command::Publish { version } => sampler.publish(WeightUpdate::InPlace, version)?,
            Command::TakeWeights { version } => {
                shard::broadcast(sampler.engine().model().weights(), self.tensors.as_mut())?;
                sampler.publish(WeightUpdate::InPlace, version)?;
            }
            Command::ReleaseMemory {} => sampler.release_memory()?,
            other => return Err(TrainError::Internal(format!("{other:?} is not about sampling"))),
        }
        Ok(())
    }

    fn next(&mut self) -> Result<(Command, Message), RankError> {
        let message = match self.pending.pop_front() {
            Some(message) => message,
            None => self.tensors.group().receive(0, None)?,
        };
        Ok((message.fields()?, message))
    }

    fn answer(&self, answer: &Answer, payload: Vec<u8>) -> Result<(), RankError> {
        self.tensors.group().send(0, answer, payload)
    }

    /// Whether rank 0 has abandoned this work in the meantime.
    fn is_cancelled(&mut self, number: u64) -> Result<bool, RankError> {
        while let Some(message) = self.tensors.group().try_receive(0)? {
            self.pending.push_back(message);
        }
        for message in &self.pending {
            if message.fields::<Command>()? == (Command::Cancel { number }) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn log_probs(
        &mut self,
        learner: &LocalLearner,
        trajectories: &[Trajectory],
        (number, scorer): (u64, Scorer),
        batches: &[Vec<SliceIndex>],
    ) -> Result<(), TrainError> {
        let trajectories: Vec<&Trajectory> = trajectories.iter().collect();
        let model = learner.model(scorer)?;
        let screens = std::mem::take(&mut self.screens);
        let mut all = vec![];
        let device = model.model().device();
        let computed = learner.micro_batches.each_of(device, &trajectories, &screens, batches, |_, batch| {
            if self.is_cancelled(number)? {
                return Err(TrainError::Interrupted);
            }
            all.extend(model.scores(&batch)?.logp.concat());
            self.tensors.group().progress();
            Ok(())
        });
        self.screens = screens;
        match computed {
            Err(TrainError::Interrupted) => Ok(()),
            computed => {
                computed?;
                Ok(self.answer(&Answer::LogProbs { number }, to_bytes(&all))?)
            }
        }
    }

    fn update(
        &mut self,
        learner: &mut LocalLearner,
        trajectories: &[Trajectory],
        (number, rounds): (u64, usize),
        batches: &[Vec<SliceIndex>],
    ) -> Result<(), TrainError> {
        let trajectories: Vec<&Trajectory> = trajectories.iter().collect();
        let screens = std::mem::take(&mut self.screens);
        let LocalLearner { updater, micro_batches, .. } = learner;
        let mut update = updater.begin();
        let device = update.trainable().model().device();
        let mut round = 0;
        let computed = micro_batches.each_of(device, &trajectories, &screens, batches, |spans, batch| {
            if self.is_cancelled(number)? {
                return Err(TrainError::Interrupted);
            }
            round += 1;
            if round == rounds {
                update.begin_last_round();
            }
            let computed = update.try_add_with(self, batch, |this, scores| {
                let payload = to_bytes(&[scores.logp.concat(), scores.entropy.concat()].concat());
                this.answer(&Answer::Scores { number }, payload)?;
                this.loss(number, spans)
            })?;
            if !computed {
                self.answer(&Answer::NotComputed { number }, vec![])?;
                self.pass(number)?;
                update.add_nothing(self.tensors.as_mut())?;
            }
            self.tensors.group().progress();
            Ok(())
        });
        // rounds in which only others have a micro-batch
        let computed = computed.and_then(|()| {
            (batches.len()..rounds).try_for_each(|round| {
                self.pass(number)?;
                if round + 1 == rounds {
                    update.begin_last_round();
                }
                Ok(update.add_nothing(self.tensors.as_mut())?)
            })
        });
        self.screens = screens;
        match computed {
            // dropping the update zeroes its gradients
            Err(TrainError::Interrupted) => return Ok(()),
            computed => computed?,
        }
        match self.next()?.0 {
            Command::Finish { number: theirs, learning_rate } if theirs == number => {
                update.finish_with(learning_rate, self.tensors.as_mut())?;
                Ok(())
            }
            Command::Cancel { number: theirs } if theirs == number => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Waits until a round goes on without a micro-batch of this rank.
    fn pass(&mut self, number: u64) -> Result<(), TrainError> {
        match self.next()?.0 {
            Command::Pass { number: theirs } if theirs == number => Ok(()),
            Command::Cancel { number: theirs } if theirs == number => Err(TrainError::Interrupted),
            other => Err(unexpected(&other)),
        }
    }

    /// The loss of the micro-batch whose scores rank 0 has just been sent.
    fn loss(&mut self, number: u64, spans: &[TrainedSpan]) -> Result<LossGradient, TrainError> {
        let (command, message) = self.next()?;
        match command {
            Command::Loss { number: theirs } if theirs == number => {}
            Command::Cancel { number: theirs } if theirs == number => return Err(TrainError::Interrupted),
            other => return Err(unexpected(&other)),
        }
        let wrong = || TrainError::Internal("a loss without a value".into());
        let (value, rest) = message.payload.split_first_chunk().ok_or_else(wrong)?;
        let coefficients = from_bytes(rest);
        let mut rest = coefficients.as_slice();
        let mut take = |span: &TrainedSpan| {
            let (own, others) = rest.split_at_checked(span.trained.len())?;
            rest = others;
            Some(own.to_vec())
        };
        let coefficients = spans.iter().map(&mut take).collect::<Option<Vec<Vec<f32>>>>();
        let wrong = || TrainError::Internal("a loss of other tokens".into());
        Ok(LossGradient { value: f64::from_le_bytes(*value), coefficients: coefficients.ok_or_else(wrong)? })
    }
}

fn unexpected(command: &Command) -> TrainError {
    TrainError::Internal(format!("rank 0 sent {command:?} in the middle of an update"))
}
