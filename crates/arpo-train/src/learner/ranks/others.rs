//! The other ranks as rank 0 sees them: the connection with each, and which screenshots it has. The learner and the rollout
//! policy share them: in a synchronous run one of the two is at work at a time.

use super::RankTensors;
use super::messages::{Answer, Command, tokens_to_bytes};
use crate::TrainError;
use crate::episode::EpisodeScreen;
use crate::policy::engine::Prompt;
use arpo_core::trajectory::ImageRef;
use arpo_ranks::{Message, RankError};
use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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

    /// Longest wait for another rank.
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

    /// Sends a rank a request, which it begins with the next [`Command::Generate`]; returns its number.
    pub(crate) fn request(&mut self, rank: usize, prompt: &Prompt) -> Result<u64, TrainError> {
        self.make_room(rank)?;
        let screens: Vec<ImageRef> = prompt.screens.iter().map(EpisodeScreen::reference).collect();
        for (screenshot, screen) in screens.iter().zip(&prompt.screens) {
            self.show(rank, screenshot, || Ok(screen.png()?))?;
        }
        let number = self.next_number();
        let screens = screens.into_iter().map(|screenshot| screenshot.digest).collect();
        let command = Command::Request { number, screens, terms: prompt.terms };
        self.send(rank, &command, tokens_to_bytes(&prompt.tokens))?;
        Ok(number)
    }
}

impl fmt::Debug for OtherRanks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtherRanks").field("tensors", &self.tensors).finish_non_exhaustive()
    }
}
