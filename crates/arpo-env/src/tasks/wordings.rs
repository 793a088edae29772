//! Other words for the instructions of the pocket suite, which has one phrase for each template. An agent that has met
//! several learns what the words mean instead of which template they belong to.
//!
//! Words are replaced in the phrase before the names are put in, so that a name never changes.

use rand::{Rng, RngExt};

/// Words of the phrases and what may stand for them.
const OTHER_WORDS: &[(&str, &[&str])] = &[
    ("open", &["show", "start"]),
    ("turn", &["switch"]),
    ("set", &["change", "adjust"]),
    ("new", &["make", "create"]),
    ("delete", &["remove", "erase"]),
    ("play", &["hear"]),
    ("pause", &["halt"]),
    ("add", &["append"]),
    ("rename", &["relabel"]),
    ("move", &["bring", "carry"]),
    ("copy", &["duplicate"]),
    ("write", &["type"]),
    ("note", &["text"]),
    ("put", &["enter", "place"]),
    ("clear", &["empty"]),
    ("sum", &["total"]),
    ("sort", &["arrange", "order"]),
    ("store", &["keep"]),
    ("mail", &["message"]),
    ("reply", &["answer"]),
    ("buy", &["get"]),
    ("and", &["then", "and then"]),
];

/// How often a word is replaced that can be.
const REPLACED: f64 = 0.5;

/// How often the phrase begins with `please`.
const POLITE: f64 = 0.2;

const PLEASE: &str = "please";

/// A phrase with some of its words replaced; places for names, such as `{0}`, stay.
pub(crate) fn reword(phrase: &str, rng: &mut impl Rng) -> String {
    let mut words: Vec<&str> = if rng.random_bool(POLITE) { vec![PLEASE] } else { vec![] };
    for word in phrase.split(' ') {
        let others =
            OTHER_WORDS.iter().find(|(known, _)| *known == word).map_or(&[][..], |(_, others)| *others);
        let replaced = !others.is_empty() && rng.random_bool(REPLACED);
        words.push(if replaced { others[rng.random_range(0..others.len())] } else { word });
    }
    words.join(" ")
}

/// Every word that a reworded phrase may have beyond those of the phrase.
pub(crate) fn other_words() -> impl Iterator<Item = &'static str> {
    let others = OTHER_WORDS.iter().flat_map(|(_, others)| others.iter()).flat_map(|words| words.split(' '));
    others.chain([PLEASE])
}

#[cfg(test)]
mod tests {
    use super::*;
    use arpo_core::random::{Purpose, stream};
    use std::collections::BTreeSet;

    fn wordings(phrase: &str) -> BTreeSet<String> {
        let mut rng = stream(0, Purpose::Tasks, 9, 0);
        (0..400).map(|_| reword(phrase, &mut rng)).collect()
    }

    #[test]
    fn words_are_replaced_and_places_for_names_stay() {
        let all = wordings("delete {0} in {1}");
        let expected: BTreeSet<String> = ["delete", "remove", "erase"]
            .iter()
            .flat_map(|verb| [format!("{verb} {{0}} in {{1}}"), format!("please {verb} {{0}} in {{1}}")])
            .collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn a_phrase_without_known_words_stays() {
        assert_eq!(wordings("{0} by {1}"), BTreeSet::from(["{0} by {1}".into(), "please {0} by {1}".into()]));
    }

    #[test]
    fn every_word_and_its_replacements_are_named_once() {
        let known: BTreeSet<&str> = OTHER_WORDS.iter().map(|(word, _)| *word).collect();
        assert_eq!(known.len(), OTHER_WORDS.len());
        let all: Vec<&str> = OTHER_WORDS.iter().flat_map(|(_, others)| others.iter().copied()).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "a word that means two things");
    }
}
