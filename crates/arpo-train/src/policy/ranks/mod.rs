//! The engines of all ranks as one policy: each samples its share of the episodes with the weights that it trains. Rank 0
//! keeps everything else: desktops, histories, transcripts.
//!
//! A request goes to its rank in tokens, with the screenshots that the rank does not have yet; tokens, log-probabilities and
//! the version of the weights come back. Requests that are submitted together are computed together on each rank, and random
//! numbers depend only on the episode and its turn. So in rounds a run samples the same episodes as with one rank, up to what
//! the rounding of a batch of another size changes, and a run with the same number of ranks the same to the bit.
//!
//! | to change | look in |
//! |---|---|
//! | which rank samples which episode | `homes` |
//! | what the other ranks do | [`crate::learner::ranks::follower`] |

mod homes;

use super::engine::EnginePolicy;
use super::{CacheUse, GenerationRequest, Policy, RequestId, Response, RolloutPolicy, WeightUpdate};
use crate::TrainError;
use crate::episode::{History, TranscriptSlice};
use crate::learner::ranks::SharedRanks;
use crate::learner::ranks::messages::{Answer, Command, response_values};
use arpo_agent::geometry::Size;
use arpo_agent::style::ActionFormat;
use arpo_core::trajectory::{EpisodeId, PolicyVersion};
use homes::Homes;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long a step waits for other ranks, so that requests that arrive meanwhile are sent.
const STEP: Duration = Duration::from_millis(20);

/// How often it looks for their responses.
const GLANCE: Duration = Duration::from_micros(500);

/// The engines of all ranks, seen from rank 0.
#[derive(Debug)]
pub struct RankedPolicy {
    /// Rank 0's own.
    own: EnginePolicy,
    ranks: SharedRanks,
    homes: Homes,
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
    /// The engine of this process, and the other ranks, which have one each.
    pub fn new(own: EnginePolicy, ranks: SharedRanks) -> Self {
        let size = ranks.size();
        Self {
            own,
            ranks,
            homes: Homes::new(size),
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
        let homes = self.homes.of(plans.map(|plan| (&plan.id, &plan.task.id)));
        let mut begin = BTreeSet::new();
        for (request, rank) in submitted.into_iter().zip(homes) {
            if rank == 0 {
                self.own.submit(request)?;
                continue;
            }
            let prompt = self.own.prompt(&request.history)?;
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
                if version != self.own.version() {
                    let (theirs, ours) = (version.0, self.own.version().0);
                    return Err(TrainError::Internal(format!(
                        "rank {rank} sampled with weights of version {theirs}, not {ours}"
                    )));
                }
                let (tokens, logp) = response_values(&message.payload);
                responses.push((id, Response { text, tokens, logp, complete, version }));
            }
            let deadline = ranks.deadline();
            if self.is_asked(rank) && self.heard[rank].elapsed() > deadline {
                let seconds = deadline.as_secs_f64();
                let reason = format!("rank {rank} hangs: no response within {seconds} s");
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
        let mut responses = if self.own.pending() > 0 { self.own.step()? } else { vec![] };
        self.responses[0] += responses.len() as u64;
        let deadline = Instant::now() + STEP;
        loop {
            responses.extend(self.receive()?);
            let idle = responses.is_empty() && self.own.pending() == 0 && !self.asked.is_empty();
            if !idle || Instant::now() > deadline {
                return Ok(responses);
            }
            std::thread::sleep(GLANCE);
        }
    }

    fn ended(&mut self, episode: &EpisodeId) {
        self.homes.remove(episode);
    }

    fn cancel_all(&mut self) {
        self.submitted.clear();
        self.homes.clear();
        self.own.cancel_all();
        if !std::mem::take(&mut self.asked).is_empty() {
            // ranks that cannot be told are noticed by whoever needs them next
            let _ = self.ranks.lock().send_all(&Command::DropRequests {});
        }
    }

    fn max_episodes(&self) -> Option<usize> {
        // the devices of the others are taken to be like this one
        Some(self.own.max_episodes()?.saturating_mul(self.caches.len()))
    }

    fn cache_use(&self) -> CacheUse {
        let add = |sum: CacheUse, one: &CacheUse| CacheUse {
            hits: sum.hits + one.hits,
            recomputed: sum.recomputed + one.recomputed,
        };
        self.caches.iter().fold(self.own.cache_use(), add)
    }

    fn version(&self) -> PolicyVersion {
        self.own.version()
    }

    fn format(&self) -> ActionFormat {
        self.own.format()
    }

    fn seen_size(&self, screen: Size) -> Result<Size, TrainError> {
        self.own.seen_size(screen)
    }

    fn transcript(&self, history: &History) -> Result<Vec<TranscriptSlice>, TrainError> {
        self.own.transcript(history)
    }
}

impl RolloutPolicy for RankedPolicy {
    fn publish(&mut self, weights: WeightUpdate, version: PolicyVersion) -> Result<(), TrainError> {
        if let WeightUpdate::Copy(_) = weights {
            return Err(TrainError::Internal("ranks sample with the weights that they train".into()));
        }
        self.homes.clear();
        self.own.publish(weights, version)?;
        Ok(self.ranks.lock().send_all(&Command::Publish { version })?)
    }

    fn set_temperature(&mut self, temperature: f64) {
        self.own.set_temperature(temperature);
    }

    fn release_memory(&mut self) -> Result<(), TrainError> {
        self.own.release_memory()?;
        Ok(self.ranks.lock().send_all(&Command::ReleaseMemory {})?)
    }
}
