//! The other ranks as rank 0 sees them: the connection with each, and which screenshots it has. If all ranks learn and sample,
//! the learner and the rollout policy share them: in a synchronous run one of the two is at work at a time. If some only learn
//! and the others only sample, each of the two has its own.

use super::RankTensors;
use super::messages::{Answer, Command, tokens_to_bytes};
use crate::TrainError;
use crate::episode::EpisodeScreen;
use crate::policy::engine::Prompt;
use arpo_core::trajectory::{ImageRef, PolicyVersion};
use arpo_model::checkpoint::Weights;
use arpo_model::training::shard;
use arpo_ranks::{Message, RankError, Sentinel};
use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The other ranks of a run; clones share them. The last one that is dropped tells them that the run is over.
#[derive(Debug, Clone)]
pub struct SharedRanks(Arc<Mutex<OtherRanks>>);

impl SharedRanks {
    /// Ranks that have the model. Each keeps at most about so many bytes of screenshots; `processes` are dropped when the
    /// ranks have been told that the run is over.
    pub fn new(tensors: Box<dyn RankTensors>, screens_budget: usize, processes: Box<dyn Any + Send>) -> Self {
        let shown = vec![ShownScreens::default(); tensors.size()];
        let ranks = OtherRanks { tensors, number: 0, shown, screens_budget, processes };
        Self(Arc::new(Mutex::new(ranks)))
    }

    /// How many ranks there are, this one included.
    pub fn size(&self) -> usize {
        self.lock().tensors.size()
    }

    /// Sees when they have ended, also while somebody else works with them.
    pub fn sentinel(&self) -> Sentinel {
        self.lock().tensors.group().sentinel()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, OtherRanks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connections with the other ranks, and what each of them has.
pub(crate) struct OtherRanks {
    pub(crate) tensors: Box<dyn RankTensors>,
    /// The number of the last work or request.
    number: u64,
    /// Screenshots that each rank has, by rank.
    shown: Vec<ShownScreens>,
    screens_budget: usize,
    /// Declared after the tensors, whose group is dropped first.
    #[expect(dead_code, reason = "held, not read")]
    processes: Box<dyn Any + Send>,
}

#[derive(Debug, Clone, Default)]
struct ShownScreens {
    digests: HashSet<String>,
    bytes: usize,
}

impl OtherRanks {
    /// The numbers of the other ranks.
    pub(crate) fn numbers(&self) -> Range<usize> {
        1..self.tensors.size()
    }

    /// The name of a rank in the run.
    pub(crate) fn name(&self, rank: usize) -> String {
        self.tensors.group().name(rank)
    }

    /// When a rank was last known to have completed a step of its work.
    pub(crate) fn progressed(&self, rank: usize) -> Result<Option<Instant>, RankError> {
        self.tensors.group().progressed(rank)
    }

    /// Longest wait for another rank that makes no progress.
    pub(crate) fn deadline(&self) -> Duration {
        self.tensors.group().deadline()
    }

    /// The number of the next work or request: no other has it, so that what is left of cancelled ones is recognised.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    pub(crate) fn send(&self, rank: usize, command: &Command, payload: Vec<u8>) -> Result<(), RankError> {
        self.tensors.group().send(rank, command, payload)
    }

    /// Sends a command to all of them.
    pub(crate) fn send_all(&self, command: &Command) -> Result<(), RankError> {
        self.numbers().try_for_each(|rank| self.send(rank, command, vec![]))
    }

    /// The answer of a rank to this work; what is left of cancelled work is passed over.
    pub(super) fn answer(&self, rank: usize, number: u64) -> Result<(Answer, Message), RankError> {
        let group = self.tensors.group();
        loop {
            let message = group.receive(rank, Some(group.deadline()))?;
            let answer: Answer = message.fields()?;
            if answer.number() == number {
                return Ok((answer, message));
            }
        }
    }

    /// The next answer of a rank, if there is one already.
    pub(crate) fn try_answer(&self, rank: usize) -> Result<Option<(Answer, Message)>, RankError> {
        let Some(message) = self.tensors.group().try_receive(rank)? else { return Ok(None) };
        Ok(Some((message.fields()?, message)))
    }

    /// Ends the run because of a rank.
    pub(crate) fn give_up(&self, reason: &str) -> RankError {
        let group = self.tensors.group();
        group.end(reason);
        // somebody may have known better before
        group.check().err().unwrap_or_else(|| RankError::Lost(reason.to_owned()))
    }

    /// Makes a rank forget its screenshots if they have become too many. What was shown before this is not there after it.
    pub(super) fn make_room(&mut self, rank: usize) -> Result<(), RankError> {
        if self.shown[rank].bytes > self.screens_budget {
            self.shown[rank] = ShownScreens::default();
            self.send(rank, &Command::ForgetScreens {}, vec![])?;
        }
        Ok(())
    }

    /// Gives a rank a screenshot as a PNG, unless it has it.
    pub(super) fn show(
        &mut self,
        rank: usize,
        screenshot: &ImageRef,
        png: impl FnOnce() -> Result<Arc<[u8]>, TrainError>,
    ) -> Result<(), TrainError> {
        if self.shown[rank].digests.contains(&screenshot.digest) {
            return Ok(());
        }
        let png = png()?;
        self.send(rank, &Command::Screen(screenshot.clone()), png.to_vec())?;
        let shown = &mut self.shown[rank];
        shown.bytes += png.len();
        shown.digests.insert(screenshot.digest.clone());
        Ok(())
    }

    /// Gives all ranks, which only sample, weights of this version.
    pub(crate) fn send_weights(
        &mut self,
        weights: &Weights,
        version: PolicyVersion,
    ) -> Result<(), TrainError> {
        self.send_all(&Command::TakeWeights { version })?;
        Ok(shard::broadcast(weights, self.tensors.as_mut())?)
    }

    /// Sends a rank a request, which it begins with the next [`Command::Generate`]; returns its number.
    pub(crate) fn request(&mut self, rank: usize, prompt: &Prompt) -> Result<u64, TrainError> {
        self.make_room(rank)?;
        let screens: Vec<ImageRef> = prompt.screens.iter().map(EpisodeScreen::reference).collect();
        for (screenshot, screen) in screens.iter().zip(&prompt.screens) {
            self.show(rank, screenshot, || Ok(screen.png()?))?;
        }
        let number = self.next_number();
        let screens = screens.into_iter().map(|screenshot| screenshot.digest).collect();
        let command = Command::Request { number, screens, sampling: prompt.sampling };
        self.send(rank, &command, tokens_to_bytes(&prompt.tokens))?;
        Ok(number)
    }
}

impl fmt::Debug for OtherRanks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtherRanks").field("tensors", &self.tensors).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arpo_model::training::ranks::HostTensors;
    use arpo_ranks::GroupOptions;
    use arpo_ranks::rendezvous::{Rendezvous, join};

    /// Micro-batches that take longer than the deadline together are waited for; a rank that completes none is lost.
    #[test]
    fn a_rank_has_the_deadline_for_each_micro_batch() {
        let rendezvous = Rendezvous::listen("test", "127.0.0.1:0".parse().unwrap(), "").unwrap();
        let address = rendezvous.address().to_string();
        let (deadline, limit) = (Duration::from_secs(3), Duration::from_mins(1));
        let other = std::thread::spawn(move || {
            let group = join(&address, "", limit, &mut || Ok(())).unwrap();
            let Ok(Command::LogProbs { number, batches, .. }) = group.receive(0, None).unwrap().fields()
            else {
                panic!()
            };
            for _ in batches {
                std::thread::sleep(2 * deadline / 5);
                group.progress();
            }
            group.send(0, &Answer::LogProbs { number }, vec![]).unwrap();
            // it takes the second work, and does nothing
            group.receive(0, None).unwrap();
            group.receive(0, None).unwrap_err().to_string()
        });
        let options = GroupOptions { deadline, ..GroupOptions::default() };
        let group = rendezvous.gather(2, options, limit, &mut |_| {}, &mut || Ok(())).unwrap();
        let ranks = SharedRanks::new(Box::new(HostTensors::new(group)), 0, Box::new(()));
        let work = |number: u64, batches: usize| {
            let batches = vec![vec![(0, 0)]; batches];
            let command = Command::LogProbs { number, scorer: crate::learner::Scorer::Policy, batches };
            ranks.lock().send(1, &command, vec![]).unwrap();
            let began = Instant::now();
            let answered = ranks.lock().answer(1, number).map(|(answer, _)| answer);
            (answered, began.elapsed())
        };
        let (answered, took) = work(1, 6);
        assert_eq!(answered, Ok(Answer::LogProbs { number: 1 }));
        assert!(took > 2 * deadline, "{took:?}");
        let reason = work(2, 1).0.unwrap_err().to_string();
        assert!(
            reason.starts_with("rank 1 (")
                && reason.ends_with("hangs: neither an answer nor progress within 3 s"),
            "{reason}"
        );
        drop(ranks);
        assert_eq!(other.join().unwrap(), reason);
    }
}
