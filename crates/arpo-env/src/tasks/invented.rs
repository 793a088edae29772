//! Dictionaries of invented names: the lists of a suite with other names in them. A model that has to read a name to
//! find it, and to spell it to type it, cannot know the lists by heart.
//!
//! Most names are random syllables; in the dictionaries for training some are words that no list has. Settings keep their names, because nothing on the
//! screen tells which page a setting is on.

use crate::tasks::vocabulary::{pocket_words, words_of};
use crate::tasks::wordings;
use crate::tasks::words::{DESKTOP, Words, words};
use arpo_core::random::{Purpose, stream};
use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// Dictionaries of each suite.
pub const DICTIONARIES: u16 = 272;

/// The first of them are for training. The others are kept for judging whether a model reads: they share no name with these.
pub const TRAINING_DICTIONARIES: u16 = 256;

const ONSETS: [&str; 18] =
    ["b", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "y", "z"];
const VOWELS: [&str; 5] = ["a", "e", "i", "o", "u"];
const CODAS: [&str; 8] = ["k", "l", "m", "n", "p", "r", "s", "t"];

/// How often a syllable ends with a consonant.
const CLOSED: f64 = 0.3;

/// How often a name is a plain word instead of syllables.
const PLAIN: f64 = 0.2;

/// Plain words that are in no list of a suite, on no button and in no instruction.
const PLAIN_WORDS: [&str; 72] = [
    "apple", "axe", "band", "barn", "bean", "bell", "beet", "bone", "bowl", "bush", "camp", "card", "cave",
    "chef", "clay", "coat", "coin", "cord", "crab", "crow", "dune", "dice", "door", "drum", "duck", "dust",
    "farm", "fern", "flag", "fog", "fork", "fox", "frog", "gate", "goat", "hail", "hand", "harp", "hawk",
    "hill", "horn", "iron", "jam", "jar", "kite", "knot", "lake", "leaf", "lime", "lion", "mask", "mint",
    "moss", "nest", "oak", "oven", "palm", "pear", "pig", "pond", "quilt", "rock", "rope", "sand", "seed",
    "ship", "silk", "soap", "swan", "tent", "vase", "wolf",
];

/// A pocket cell holds six characters, and a folder is shown with a slash.
const LONGEST_IN_A_CELL: usize = 5;

const LONGEST: usize = 9;

/// A dictionary of a suite. Each is made once and kept: the lists of words live as long as the program.
pub(crate) fn dictionary(pocket: bool, number: u16) -> Result<&'static Words, String> {
    static MADE: [[OnceLock<Words>; DICTIONARIES as usize]; 2] =
        [const { [const { OnceLock::new() }; DICTIONARIES as usize] }; 2];
    let slot = MADE[usize::from(pocket)]
        .get(usize::from(number))
        .ok_or_else(|| format!("there is no dictionary {number}: expected 0 to {}", DICTIONARIES - 1))?;
    Ok(slot.get_or_init(|| invent(pocket, number)))
}

fn invent(pocket: bool, number: u16) -> Words {
    let listed = words(pocket);
    let rng = stream(u64::from(number), Purpose::Tasks, 2, u64::from(pocket));
    let longest = if pocket { LONGEST_IN_A_CELL } else { LONGEST };
    let refused = (number >= TRAINING_DICTIONARIES).then(|| training_names(pocket));
    let mut names = Names { rng, longest, used: BTreeSet::new(), refused };
    if pocket {
        return Words {
            folders: names.like(listed.folders, Names::name),
            files: names.like(listed.files, Names::name),
            texts: names.like(listed.texts, Names::name),
            people: names.like(listed.people, Names::capital),
            subjects: names.like(listed.subjects, Names::capital),
            songs: names.like(listed.songs, Names::capital),
            products: names.like(listed.products, Names::capital),
            missing: names.like(listed.missing, Names::capital),
            ..*listed
        };
    }
    Words {
        folders: names.like(listed.folders, Names::capital),
        files: names.like(listed.files, |names| format!("{}.txt", names.name())),
        texts: names.like(listed.texts, Names::name),
        people: names.like(listed.people, |names| format!("{}@example.com", names.name())),
        subjects: names.like(listed.subjects, |names| format!("{} {}", names.capital(), names.name())),
        songs: names.like(listed.songs, |names| format!("{} {}", names.capital(), names.capital())),
        products: names.like(listed.products, |names| format!("{} {}", names.capital(), names.name())),
        missing: names.like(listed.missing, |names| format!("{} {}", names.capital(), names.name())),
        ..*listed
    }
}

/// The names of one dictionary, all of them different.
struct Names {
    rng: ChaCha8Rng,
    longest: usize,
    used: BTreeSet<String>,
    /// Names of other dictionaries that this one must not have; it has no plain words then, which all share.
    refused: Option<&'static BTreeSet<String>>,
}

impl Names {
    /// As many entries as a list has.
    fn like(&mut self, list: &[&str], entry: impl Fn(&mut Self) -> String) -> &'static [&'static str] {
        let kept = |entry: String| -> &'static str { Box::leak(entry.into_boxed_str()) };
        let mut entries = Vec::with_capacity(list.len());
        for _ in list {
            entries.push(kept(entry(self)));
        }
        Box::leak(entries.into_boxed_slice())
    }

    fn name(&mut self) -> String {
        loop {
            let name = if self.refused.is_none() && self.rng.random_bool(PLAIN) {
                (*PLAIN_WORDS.choose(&mut self.rng).expect("there are plain words")).to_owned()
            } else {
                syllables(&mut self.rng, self.longest)
            };
            let is_refused = self.refused.is_some_and(|names| names.contains(&name));
            if !is_refused && !known().contains(&name) && self.used.insert(name.clone()) {
                return name;
            }
        }
    }

    fn capital(&mut self) -> String {
        let name = self.name();
        name[..1].to_uppercase() + &name[1..]
    }
}

/// Random syllables: three letters, or more up to the longest.
fn syllables(rng: &mut ChaCha8Rng, longest: usize) -> String {
    let length = rng.random_range(3..=longest);
    let mut name = String::new();
    while name.len() < length {
        for letters in [&ONSETS[..], &VOWELS[..]] {
            name.push_str(letters.choose(rng).expect("there are letters"));
        }
        if rng.random_bool(CLOSED) {
            name.push_str(CODAS.choose(rng).expect("there are letters"));
        }
    }
    name.truncate(longest);
    name
}

/// Every word of the names of the training dictionaries, in lower case.
fn training_names(pocket: bool) -> &'static BTreeSet<String> {
    static NAMES: [OnceLock<BTreeSet<String>>; 2] = [const { OnceLock::new() }; 2];
    NAMES[usize::from(pocket)].get_or_init(|| {
        let dictionaries = (0..TRAINING_DICTIONARIES).filter_map(|number| dictionary(pocket, number).ok());
        let names = dictionaries.flat_map(Words::names).flat_map(words_of);
        names.map(str::to_lowercase).collect()
    })
}

/// Every word of both suites' lists, of the pocket suite's screens and of reworded instructions, in lower case.
fn known() -> &'static BTreeSet<String> {
    static KNOWN: OnceLock<BTreeSet<String>> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let texts = DESKTOP.names().chain(DESKTOP.notices.iter().copied());
        let listed = texts.flat_map(words_of).chain(wordings::other_words());
        listed.map(str::to_lowercase).chain(pocket_words().iter().map(|word| word.to_lowercase())).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::words::POCKET;

    fn lists(words: &Words) -> [&'static [&'static str]; 8] {
        [
            words.folders,
            words.files,
            words.texts,
            words.people,
            words.subjects,
            words.songs,
            words.products,
            words.missing,
        ]
    }

    #[test]
    fn invented_names_are_in_no_list_and_differ() {
        for (pocket, listed) in [(true, &POCKET), (false, &DESKTOP)] {
            for number in 0..DICTIONARIES {
                let dictionary = dictionary(pocket, number).unwrap();
                let mut names = BTreeSet::new();
                for (list, like) in lists(dictionary).into_iter().zip(lists(listed)) {
                    assert_eq!(list.len(), like.len());
                    for &name in list {
                        let own = name.trim_end_matches(".txt").trim_end_matches("@example.com");
                        for word in words_of(own) {
                            assert!(!known().contains(&word.to_lowercase()), "{name} is listed");
                        }
                        assert!(!pocket || name.len() <= LONGEST_IN_A_CELL, "{name} is cut off");
                        assert!(names.insert(name), "{name} twice in dictionary {number}");
                    }
                }
            }
        }
    }

    #[test]
    fn dictionaries_for_judging_share_no_name_with_those_for_training() {
        for pocket in [true, false] {
            for number in TRAINING_DICTIONARIES..DICTIONARIES {
                for name in dictionary(pocket, number).unwrap().names() {
                    let own = name.trim_end_matches(".txt").trim_end_matches("@example.com");
                    let shared =
                        words_of(own).find(|word| training_names(pocket).contains(&word.to_lowercase()));
                    assert_eq!(shared, None, "{name} of dictionary {number}");
                }
            }
        }
    }

    #[test]
    fn plain_words_are_in_no_list() {
        for word in PLAIN_WORDS {
            assert!(!known().contains(word) && word.len() <= LONGEST_IN_A_CELL, "{word}");
        }
    }

    #[test]
    fn dictionaries_differ_and_are_as_many_as_said() {
        let files = |number| dictionary(true, number).unwrap().files;
        assert_ne!(files(0), files(1));
        assert_eq!(files(7), invent(true, 7).files);
        assert!(dictionary(true, DICTIONARIES).unwrap_err().contains("expected 0 to 271"));
    }
}
