//! Grounding questions about a screen with their answers, from the widget tree: where is LABEL, what is at x,y; and texts to type,
//! because instructions contain words that are not on the screen.

use crate::apps::files::TOP;
use crate::layout::Widget;
use crate::tasks::Suite;
use crate::view::Role;
use arpo_core::action::{Action, ModelBox};
use rand::Rng;
use rand::RngExt;
use rand::seq::{IndexedRandom, SliceRandom};

/// A grounding question about a screen.
#[derive(Debug, Clone, PartialEq)]
pub struct GroundingQuestion {
    /// The question: `find Save`, in other words `press save`, or `read 84,47`, or `type save`.
    pub text: String,
    /// The right answer.
    pub answer: GroundingAnswer,
}

/// The answer to a grounding question.
#[derive(Debug, Clone, PartialEq)]
pub enum GroundingAnswer {
    /// A click on the widget's centre, or typing.
    Act(Action),
    /// The widget's label.
    Label(String),
}

/// The fraction of questions that ask where a label is; the others ask for the label at a point.
const FIND_SHARE: f64 = 0.7;

/// The same for the names in lists, where they are asked about first: whoever reads a name out has to know its letters.
const FIND_NAME_SHARE: f64 = 0.5;

/// What asks where a label is; the first one unless the question is reworded.
pub const FIND_WORDS: [&str; 4] = ["find", "click", "press", "where is"];

/// How often a reworded question has the label in lower case, as the verbs of instructions are.
const LOWER_CASE_SHARE: f64 = 0.5;

/// The longest word to type: as the names of a pocket desktop, and the codes of its orders; and as those of a large one.
const LONGEST_WORD: usize = 6;
const LONGEST_DESKTOP_WORD: usize = 10;

/// The second part of a text to type on a large desktop, such as the ending of a file's name, or the minutes of a time.
const LONGEST_SECOND_PART: usize = 4;
const BETWEEN_PARTS: [char; 3] = [' ', '.', ':'];

/// How questions are chosen and put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asking {
    /// At most this many.
    pub count: usize,
    /// In several ways.
    pub reworded: bool,
    /// About the names in lists first: most widgets of a screen have the same labels in every world.
    pub names_first: bool,
}

/// Questions about different widgets, all of them clickable and with a unique label.
pub fn questions(widgets: &[Widget], asking: Asking, rng: &mut impl Rng) -> Vec<GroundingQuestion> {
    let named = |label: &str| widgets.iter().filter(|widget| widget.label == label).count();
    let unique =
        |widget: &&Widget| widget.is_clickable() && !widget.label.is_empty() && named(&widget.label) == 1;
    let mut choices: Vec<&Widget> = widgets.iter().filter(unique).collect();
    choices.shuffle(rng);
    let is_name = |widget: &Widget| asking.names_first && is_name(widget);
    choices.sort_by_key(|widget| !is_name(widget));
    choices.truncate(asking.count);
    choices
        .into_iter()
        .map(|widget| {
            let finding = if is_name(widget) { FIND_NAME_SHARE } else { FIND_SHARE };
            if !rng.random_bool(finding) {
                read(widget)
            } else if asking.reworded {
                find(widget, in_other_words(&widget.label, widgets, rng))
            } else {
                find(widget, format!("{} {}", FIND_WORDS[0], widget.label))
            }
        })
        .collect()
}

/// Asks to type this many random texts, built like those of a suite's tasks: whoever has met enough of them copies any name and any
/// number, letter by letter.
pub fn texts_to_type(suite: Suite, count: usize, rng: &mut impl Rng) -> Vec<GroundingQuestion> {
    (0..count).map(|_| type_out(&random_text(suite, rng))).collect()
}

fn random_text(suite: Suite, rng: &mut impl Rng) -> String {
    match suite {
        Suite::Pocket => random_word(LONGEST_WORD, rng),
        Suite::Desktop => {
            let mut text = random_word(LONGEST_DESKTOP_WORD, rng);
            if rng.random_bool(0.5) {
                text.extend(BETWEEN_PARTS.choose(rng));
                text.push_str(&random_word(LONGEST_SECOND_PART, rng));
            }
            text
        }
    }
}

/// A number, or a name of random letters.
fn random_word(longest: usize, rng: &mut impl Rng) -> String {
    let length = rng.random_range(1..=longest);
    let letters = if rng.random_bool(1.0 / 3.0) { '0'..='9' } else { 'a'..='z' };
    let mut text: String = (0..length).map(|_| rng.random_range(letters.clone())).collect();
    if rng.random_bool(0.5) {
        text[..1].make_ascii_uppercase();
    }
    text
}

/// Asks where every name in a list is, what is there, and to type it, in the order of the screen.
pub fn questions_about_names(widgets: &[Widget]) -> Vec<[GroundingQuestion; 3]> {
    let names = widgets.iter().filter(|widget| is_name(widget) && widget.is_clickable());
    let ask = |widget: &Widget| {
        let find = find(widget, format!("{} {}", FIND_WORDS[0], widget.label));
        [find, read(widget), type_out(&widget.label)]
    };
    names.map(ask).collect()
}

/// Whether a widget is an entry of a list that shows a name, which differs from world to world: alarms show times, and the top
/// folder is called the same everywhere.
fn is_name(widget: &Widget) -> bool {
    widget.role == Role::Item && widget.label != TOP && !widget.id.starts_with("alarms:")
}

/// Asks where a widget is.
fn find(widget: &Widget, text: String) -> GroundingQuestion {
    let (x, y) = widget.centre();
    GroundingQuestion {
        text,
        answer: GroundingAnswer::Act(Action::Click { start_box: ModelBox::point(x, y) }),
    }
}

/// Asks for the label of a widget.
fn read(widget: &Widget) -> GroundingQuestion {
    let (x, y) = widget.centre();
    GroundingQuestion { text: format!("read {x},{y}"), answer: GroundingAnswer::Label(widget.label.clone()) }
}

/// Asks to type a text.
fn type_out(text: &str) -> GroundingQuestion {
    let action = Action::Type { content: text.to_owned() };
    GroundingQuestion { text: format!("type {text}"), answer: GroundingAnswer::Act(action) }
}

/// Asks for a label in one of several ways; in lower case only if that names no other widget.
fn in_other_words(label: &str, widgets: &[Widget], rng: &mut impl Rng) -> String {
    let words = FIND_WORDS.choose(rng).expect("there are words to ask with");
    let lower = label.to_lowercase();
    let named = widgets.iter().filter(|widget| widget.label.to_lowercase() == lower).count();
    let is_lower = rng.random_bool(LOWER_CASE_SHARE) && named == 1;
    format!("{words} {}", if is_lower { lower.as_str() } else { label })
}

/// The label of the widget at a point; of the topmost one where several overlap.
pub fn label_at(widgets: &[Widget], x: f64, y: f64) -> Option<&str> {
    let inside = |widget: &&Widget| {
        let [left, top, right, bottom] = widget.rect.map(f64::from);
        (left..right).contains(&x) && (top..bottom).contains(&y)
    };
    widgets.iter().rev().find(inside).map(|widget| widget.label.as_str())
}
