//! The engines of several ranks as one policy: each samples its share of the episodes. Rank 0 keeps everything else: desktops,
//! histories, transcripts. Either all ranks of a run sample, each with the weights that it trains; or some only sample, with
//! weights that rank 0 broadcasts, and rank 0 is among those that only learn (`learn.gpus`).
//!
//! A request goes to its rank in tokens, with the screenshots that the rank does not have yet; tokens, log-probabilities and
//! the version of the weights come back. Requests that are submitted together are computed together on each rank, and random
//! numbers depend only on the episode and its turn. So in rounds a run samples the same episodes as with one rank, up to what
//! the rounding of a batch of another size changes, and a run with the same number of ranks the same to the bit.
//!
//! | to change | look in |
//! |---|---|
//! | which rank samples which episode | `assignment` |
//! | what the other ranks do | [`crate::learner::ranks::follower`] |

mod assignment;

use super::engine::{EnginePolicy, Prompt, ResponseOptions};
use super::{
    CacheUse, GenerationRequest, Policy, RequestId, Response, RolloutPolicy, WeightUpdate, transcription,
};
use crate::TrainError;
use crate::agent::Agent;
use crate::episode::{History, TranscriptSlice};
use crate::learner::ranks::SharedRanks;
use crate::learner::ranks::messages::{Answer, Command, response_values};
use arpo_agent::geometry::Size;
use arpo_agent::style::ActionFormat;
use arpo_core::trajectory::{EpisodeId, PolicyVersion};
use arpo_model::checkpoint::Weights;
use assignment::Assignment;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a step waits for other ranks, so that requests that arrive meanwhile are sent.
const STEP_TIMEOUT: Duration = Duration::from_millis(20);

/// How often it looks for their responses.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// What rank 0 does itself.
#[derive(Debug)]
enum Own {
    /// It samples, too, with the weights that it trains.
    Samples(Box<EnginePolicy>),
    /// It only learns, and these are the weights that it trains.
    Learns(Weights),
}

impl Own {
    /// The first rank that samples.
    fn first(&self) -> usize {
        match self {
            Self::Samples(_) => 0,
            Self::Learns(_) => 1,
        }
    }

    /// Requests that rank 0 has itself.
    fn pending(&self) -> usize {
        match self {
            Self::Samples(own) => own.pending(),
            Self::Learns(_) => 0,
        }
    }
}

/// The engines of several ranks, seen from rank 0.
#[derive(Debug)]
pub struct RankedPolicy {
    own: Own,
    agent: Arc<Agent>,
    options: ResponseOptions,
    version: PolicyVersion,
    /// Episodes that fit into the caches of all ranks at once.
    max_episodes: Option<usize>,
    ranks: SharedRanks,
    assignment: Assignment,
    /// Requests since the last step.
    submitted: Vec<GenerationRequest>,
    /// Requests that other ranks have, by their numbers.
    asked: BTreeMap<u64, Asked>,
    /// When each rank last gave a sign of its sampling: a response, or its first request before that.
    heard: Vec<Instant>,
    /// How well the cache of each rank has worked; rank 0's own engine knows its own.
    caches: Vec<CacheUse>,
    /// Responses of each rank.
    responses: Vec<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Asked {
    rank: usize,
    id: RequestId,
}

impl RankedPolicy {
    /// The engine of this process, and the other ranks, which have one each and are taken to have devices like this one.
    pub fn new(own: EnginePolicy, ranks: SharedRanks) -> Self {
        let (agent, options, version) = (Arc::clone(own.agent()), own.responses, own.version());
        let max_episodes = own.max_episodes();
        Self::of(Own::Samples(Box::new(own)), agent, options, version, max_episodes, ranks)
    }

    /// Ranks that only sample, beside a learner with these weights, which they have in this version. So many episodes fit into
    /// the cache of each of them.
    pub fn sampling_elsewhere(
        (weights, version): (Weights, PolicyVersion),
        agent: Arc<Agent>,
        options: ResponseOptions,
        max_episodes: usize,
        ranks: SharedRanks,
    ) -> Self {
        Self::of(Own::Learns(weights), agent, options, version, Some(max_episodes), ranks)
    }

    fn of(
        own: Own,
        agent: Arc<Agent>,
        options: ResponseOptions,
        version: PolicyVersion,
        max_episodes: Option<usize>,
        ranks: SharedRanks,
    ) -> Self {
        let size = ranks.size();
        let samplers = size - own.first();
        Self {
            own,
            agent,
            options,
            version,
            max_episodes: max_episodes.map(|of_each| of_each.saturating_mul(samplers)),
            ranks,
            assignment: Assignment::new(samplers),
            submitted: vec![],
            asked: BTreeMap::new(),
            heard: vec![Instant::now(); size],
            caches: vec![CacheUse::default(); size],
            responses: vec![0; size],
        }
    }

    /// How many responses each rank has sampled.
    pub fn responses_by_rank(&self) -> &[u64] {
        &self.responses
    }

    fn is_asked(&self, rank: usize) -> bool {
        self.asked.values().any(|asked| asked.rank == rank)
    }

    /// Hands the submitted requests to their ranks.
    fn hand_out(&mut self) -> Result<(), TrainError> {
        let submitted = std::mem::take(&mut self.submitted);
        let plans = submitted.iter().map(|request| &request.history.plan);
        let assigned = self.assignment.of(plans.map(|plan| (&plan.id, &plan.task.id)));
        let first = self.own.first();
        let mut begin = BTreeSet::new();
        for (request, index) in submitted.into_iter().zip(assigned) {
            let rank = first + index;
            if let (0, Own::Samples(own)) = (rank, &mut self.own) {
                own.submit(request)?;
                continue;
            }
            let prompt = Prompt::of(&self.agent, &request.history, self.options)?;
            let number = self.ranks.lock().request(rank, &prompt)?;
            if !self.is_asked(rank) {
                self.heard[rank] = Instant::now();
            }
            self.asked.insert(number, Asked { rank, id: request.id });
            begin.insert(rank);
        }
        let ranks = self.ranks.lock();
        Ok(begin.into_iter().try_for_each(|rank| ranks.send(rank, &Command::Generate {}, vec![]))?)
    }

    /// The responses of the other ranks that have come; an error if one is lost or hangs.
    fn receive(&mut self) -> Result<Vec<(RequestId, Response)>, TrainError> {
        let ranks = self.ranks.lock();
        let mut responses = vec![];
        for rank in ranks.numbers() {
            while let Some((answer, message)) = ranks.try_answer(rank)? {
                let Answer::Response { number, text, complete, version, cache } = answer else { continue };
                self.caches[rank] = cache;
                // what is left of requests that were dropped
                let Some(Asked { id, .. }) = self.asked.remove(&number) else { continue };
                self.heard[rank] = Instant::now();
                self.responses[rank] += 1;
                if version != self.version {
                    let (name, theirs, ours) = (ranks.name(rank), version.0, self.version.0);
                    return Err(TrainError::Internal(format!(
                        "{name} sampled with weights of version {theirs}, not {ours}"
                    )));
                }
                let (tokens, logp) = response_values(&message.payload);
                responses.push((id, Response { text, tokens, logp, complete, version }));
            }
            let (deadline, heard) = (ranks.deadline(), self.heard[rank]);
            let heard = ranks.progressed(rank)?.map_or(heard, |at| at.max(heard));
            if self.is_asked(rank) && heard.elapsed() > deadline {
                let (name, seconds) = (ranks.name(rank), deadline.as_secs_f64());
                let reason = format!("{name} hangs: neither a response nor progress within {seconds} s");
                return Err(ranks.give_up(&reason).into());
            }
        }
        Ok(responses)
    }
}

impl Policy for RankedPolicy {
    fn submit(&mut self, request: GenerationRequest) -> Result<(), TrainError> {
        self.submitted.push(request);
        Ok(())
    }

    fn pending(&self) -> usize {
        self.submitted.len() + self.own.pending() + self.asked.len()
    }

    fn step(&mut self) -> Result<Vec<(RequestId, Response)>, TrainError> {
        self.hand_out()?;
        let mut responses = match &mut self.own {
            Own::Samples(own) if own.pending() > 0 => own.step()?,
            _ => vec![],
        };
        self.responses[0] += responses.len() as u64;
        let deadline = Instant::now() + STEP_TIMEOUT;
        loop {
            responses.extend(self.receive()?);
            let idle = responses.is_empty() && self.own.pending() == 0 && !self.asked.is_empty();
            if !idle || Instant::now() > deadline {
                return Ok(responses);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn ended(&mut self, episode: &EpisodeId) {
        self.assignment.remove(episode);
    }

    fn cancel_all(&mut self) {
        self.submitted.clear();
        self.assignment.clear();
        if let Own::Samples(own) = &mut self.own {
            own.cancel_all();
        }
        if !std::mem::take(&mut self.asked).is_empty() {
            // ranks that cannot be told are noticed by whoever needs them next
            let _ = self.ranks.lock().send_all(&Command::DropRequests {});
        }
    }

    fn max_episodes(&self) -> Option<usize> {
        self.max_episodes
    }

    fn cache_use(&self) -> CacheUse {
        let add = |sum: CacheUse, one: &CacheUse| CacheUse {
            hits: sum.hits + one.hits,
            recomputed: sum.recomputed + one.recomputed,
        };
        let own = match &self.own {
            Own::Samples(own) => own.cache_use(),
            Own::Learns(_) => CacheUse::default(),
        };
        self.caches.iter().fold(own, add)
    }

    fn version(&self) -> PolicyVersion {
        self.version
    }

    fn format(&self) -> ActionFormat {
        self.agent.style.format
    }

    fn seen_size(&self, screen: Size) -> Result<Size, TrainError> {
        Ok(self.agent.processor.resized_size(screen)?)
    }

    fn transcript(&self, history: &History) -> Result<Vec<TranscriptSlice>, TrainError> {
        transcription::transcript(&self.agent, history)
    }
}

impl RolloutPolicy for RankedPolicy {
    fn publish(&mut self, weights: WeightUpdate, version: PolicyVersion) -> Result<(), TrainError> {
        self.assignment.clear();
        let mut ranks = self.ranks.lock();
        match (&mut self.own, weights) {
            (Own::Samples(own), WeightUpdate::InPlace) => {
                own.publish(WeightUpdate::InPlace, version)?;
                ranks.send_all(&Command::Publish { version })?;
            }
            (Own::Samples(_), WeightUpdate::Copy(_)) => {
                return Err(TrainError::Internal("ranks sample with the weights that they train".into()));
            }
            (Own::Learns(_), WeightUpdate::Copy(copy)) => ranks.send_weights(&copy, version)?,
            (Own::Learns(trained), WeightUpdate::InPlace) if version != self.version => {
                ranks.send_weights(trained, version)?;
            }
            // they have them
            (Own::Learns(_), WeightUpdate::InPlace) => ranks.send_all(&Command::Publish { version })?,
        }
        drop(ranks);
        self.version = version;
        Ok(())
    }

    fn set_temperature(&mut self, temperature: f64) {
        self.options.temperature = temperature;
        if let Own::Samples(own) = &mut self.own {
            own.set_temperature(temperature);
        }
    }

    fn release_memory(&mut self) -> Result<(), TrainError> {
        let Own::Samples(own) = &mut self.own else {
            // nobody learns on the devices of ranks that only sample
            return Ok(());
        };
        own.release_memory()?;
        Ok(self.ranks.lock().send_all(&Command::ReleaseMemory {})?)
    }
}

#[cfg(test)]
mod tests;
