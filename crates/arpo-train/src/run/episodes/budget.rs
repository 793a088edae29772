//! Which file of episodes goes first when the disk they may use is full. Pure.
//!
//! The files of the last iterations stay as long as there are others. Of the earlier ones, the file goes whose neighbours
//! are closest, so that those that stay are spread over the run.

use std::fmt;
use std::str::FromStr;

/// What the episodes of a file were collected for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// An iteration.
    Training,
    /// The evaluation after an iteration; 0 for the one before training.
    Evaluation,
}

/// The name of a file of episodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpisodeFile {
    /// What its episodes were collected for.
    pub purpose: Purpose,
    /// The iteration.
    pub number: u64,
}

impl EpisodeFile {
    /// The episodes of an iteration.
    pub fn iteration(number: u64) -> Self {
        Self { purpose: Purpose::Training, number }
    }

    /// The episodes of the evaluation after an iteration.
    pub fn evaluation(number: u64) -> Self {
        Self { purpose: Purpose::Evaluation, number }
    }

    /// The name of the file with its tokens.
    pub fn tokens(self) -> String {
        self.to_string().replace(".jsonl", ".tokens.jsonl")
    }
}

impl fmt::Display for EpisodeFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.purpose {
            Purpose::Training => "iteration",
            Purpose::Evaluation => "evaluation",
        };
        write!(f, "{kind}-{:06}.jsonl", self.number)
    }
}

impl FromStr for EpisodeFile {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        let (kind, number) = name.strip_suffix(".jsonl").ok_or(())?.split_once('-').ok_or(())?;
        let purpose = match kind {
            "iteration" => Purpose::Training,
            "evaluation" => Purpose::Evaluation,
            _ => return Err(()),
        };
        let plain = number.len() >= 6 && number.bytes().all(|byte| byte.is_ascii_digit());
        let number = if plain { number.parse().map_err(drop)? } else { return Err(()) };
        Ok(Self { purpose, number })
    }
}

/// The file to remove next, of files with their sizes; `last` iterations stay as long as there are others. `None` if only
/// the newest is left.
pub(super) fn next_to_remove(files: &[(EpisodeFile, u64)], last: usize) -> Option<EpisodeFile> {
    let of = |purpose: Purpose| {
        let mut files: Vec<(u64, u64)> = files
            .iter()
            .filter(|(file, _)| file.purpose == purpose)
            .map(|(file, bytes)| (file.number, *bytes))
            .collect();
        files.sort_unstable();
        files
    };
    let (training, evaluation) = (of(Purpose::Training), of(Purpose::Evaluation));
    let earlier = |files: &[(u64, u64)], last: usize| files[..files.len().saturating_sub(last)].to_vec();
    let bytes = |files: &[(u64, u64)]| files.iter().map(|(_, bytes)| bytes).sum::<u64>();
    // of the two kinds, the one that takes more: neither crowds out the other
    let pick = |training: &[(u64, u64)], evaluation: &[(u64, u64)]| {
        if bytes(training) >= bytes(evaluation) && !training.is_empty() {
            least_missed(training).map(EpisodeFile::iteration)
        } else {
            least_missed(evaluation).map(EpisodeFile::evaluation)
        }
    };
    pick(&earlier(&training, last), &earlier(&evaluation, 1)).or_else(|| match training.as_slice() {
        [] => (evaluation.len() > 1).then(|| EpisodeFile::evaluation(evaluation[0].0)),
        [_] => evaluation.first().map(|(number, _)| EpisodeFile::evaluation(*number)),
        [(oldest, _), ..] => Some(EpisodeFile::iteration(*oldest)),
    })
}

/// The number between the closest neighbours, the earliest of equals; with fewer than three the latest.
fn least_missed(files: &[(u64, u64)]) -> Option<u64> {
    let inner = files.windows(3).map(|three| (three[2].0 - three[0].0, three[1].0));
    inner.min().map(|(_, number)| number).or(files.last().map(|(number, _)| *number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_read_back() {
        for file in
            [EpisodeFile::iteration(7), EpisodeFile::evaluation(0), EpisodeFile::iteration(12_345_678)]
        {
            assert_eq!(file.to_string().parse(), Ok(file));
            assert!(file.tokens().parse::<EpisodeFile>().is_err());
        }
        assert_eq!(EpisodeFile::iteration(7).tokens(), "iteration-000007.tokens.jsonl");
        for other in [
            "index.jsonl",
            "iteration-7.jsonl",
            "iteration-00000x.jsonl",
            "iteration-000007",
            "x-000007.jsonl",
        ] {
            assert_eq!(other.parse::<EpisodeFile>(), Err(()), "{other}");
        }
    }

    /// Files of equal size, with room for `room`: what stays after each of `count` iterations.
    fn kept(count: u64, room: usize, last: usize) -> Vec<u64> {
        let mut files = vec![];
        for number in 1..=count {
            files.push((EpisodeFile::iteration(number), 10));
            while files.len() > room
                && let Some(gone) = next_to_remove(&files, last)
            {
                files.retain(|(file, _)| *file != gone);
            }
        }
        files.into_iter().map(|(file, _)| file.number).collect()
    }

    #[test]
    fn the_last_stay_and_the_earlier_ones_are_spread() {
        assert_eq!(kept(3, 12, 4), [1, 2, 3]);
        let stays = kept(100, 12, 4);
        assert_eq!(stays[8..], [97, 98, 99, 100]);
        assert_eq!(stays[0], 1);
        let widest = stays.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(widest <= 32, "{stays:?}");
        // less room than for the last ones: the newest of them
        assert_eq!(kept(100, 3, 4), [98, 99, 100]);
        assert_eq!(kept(100, 1, 4), [100]);
        assert_eq!(kept(5, 0, 4), [5], "the newest always stays");
    }

    #[test]
    fn training_and_evaluation_share_the_room() {
        let mut files = vec![];
        for number in 1..=200 {
            files.push((EpisodeFile::iteration(number), 10));
            if number % 10 == 0 {
                files.push((EpisodeFile::evaluation(number), 30));
            }
            while files.iter().map(|(_, bytes)| bytes).sum::<u64>() > 400
                && let Some(gone) = next_to_remove(&files, 5)
            {
                files.retain(|(file, _)| *file != gone);
            }
        }
        let evaluations = files.iter().filter(|(file, _)| file.purpose == Purpose::Evaluation).count();
        let earlier = files.len() - evaluations - 5;
        assert!((4..=8).contains(&evaluations) && earlier >= 10, "{files:?}");
        assert!(files.contains(&(EpisodeFile::evaluation(200), 30)));
    }

    proptest! {
        /// Whatever there is, it ends with one file, removes each once, and the last iterations go last.
        #[test]
        fn removing_goes_on_to_the_newest(numbers in proptest::collection::btree_set((any::<bool>(), 0_u64..500), 1..40), last in 1_usize..8) {
            let mut files: Vec<(EpisodeFile, u64)> = numbers
                .into_iter()
                .map(|(training, number)| {
                    let file = if training { EpisodeFile::iteration(number) } else { EpisodeFile::evaluation(number) };
                    (file, number % 7)
                })
                .collect();
            while let Some(gone) = next_to_remove(&files, last) {
                let mut training: Vec<u64> = files.iter().filter(|(file, _)| file.purpose == Purpose::Training).map(|(file, _)| file.number).collect();
                training.sort_unstable();
                let is_last = gone.purpose == Purpose::Training && training.iter().rev().take(last).any(|number| *number == gone.number);
                if is_last {
                    prop_assert!(training.len() <= last);
                }
                let before = files.len();
                files.retain(|(file, _)| *file != gone);
                prop_assert_eq!(files.len(), before - 1);
            }
            prop_assert_eq!(files.len(), 1);
        }
    }
}
