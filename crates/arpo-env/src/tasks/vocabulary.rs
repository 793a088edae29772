//! Every word on the screen or in an instruction of the pocket suite: what a word-level tokenizer has to cover; and which words
//! are names.
//!
//! A word is a run of letters; digits and signs stand for themselves, one by one.

use crate::tasks::builder::{TaskBuilder, Template, Variation};
use crate::tasks::words::{POCKET, words};
use crate::tasks::{Suite, devices, files, office};
use crate::world::App;
use std::collections::BTreeSet;

/// Labels of the applications' widgets.
const LABELS: &str = "About Add All Apply Archive Back Buy Cancel Choose Close Code Delete Drop Edit File Find From \
    H Home Inbox M Mix More Move Name New Next No Notice OK Off On Open Pause Play Post Van Bike Re Rename Reply Save \
    SaveAs Send Sent Sort Store Sum Text Thanks To Top Up Volume With Yes List digits missing one A B C find read";

/// Instructions sampled per template: more than enough to cover both forms of templates that have two.
const DRAWS: u64 = 32;

/// The words of a text: runs of letters.
pub fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_alphabetic()).filter(|word| !word.is_empty())
}

/// Every word of the pocket suite, sorted.
pub fn pocket_words() -> Vec<String> {
    let mut words: BTreeSet<String> = words_of(LABELS).map(str::to_owned).collect();
    let mut add = |text: &str| words.extend(words_of(text).map(str::to_owned));
    for app in App::ALL {
        add(app.name(true));
    }
    for text in POCKET.settings().chain(POCKET.names()).chain(POCKET.notices.iter().copied()) {
        add(text);
    }
    let training = [devices::TRAINING, files::TRAINING, office::TRAINING].into_iter().flatten();
    let held_out = [devices::HELD_OUT, files::HELD_OUT, office::HELD_OUT].into_iter().flatten();
    let mut add_instructions = |template: &Template, held_out: bool| {
        for seed in 0..DRAWS {
            let task =
                TaskBuilder::build(template, true, held_out, seed, String::new(), Variation::default());
            add(&task.instruction);
        }
    };
    training.for_each(|template| add_instructions(template, false));
    held_out.for_each(|template| add_instructions(template, true));
    words.into_iter().collect()
}

/// Words that are in names, but also around them, on buttons or in instructions.
const GLUE: [&str; 6] = ["of", "the", "txt", "example", "com", "Archive"];

impl Suite {
    /// The words of the names that its worlds are filled with: of files, people, songs and so on, as they are written and in
    /// lower case. Words that settings have, written the same way, are left out: these are the same in every world.
    pub fn names(self) -> BTreeSet<String> {
        let words = words(self == Self::Pocket);
        let settings: BTreeSet<&str> = words.settings().flat_map(words_of).chain(GLUE).collect();
        let names = words.names().flat_map(words_of).filter(|word| !settings.contains(word));
        names.flat_map(|word| [word.to_owned(), word.to_lowercase()]).collect()
    }
}
