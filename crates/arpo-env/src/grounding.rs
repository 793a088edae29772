//! Questions about a screen with their answers, from the widget tree: where is LABEL, what is at x,y.

use crate::layout::Widget;
use arpo_core::action::{Action, ModelBox};
use rand::Rng;
use rand::RngExt;
use rand::seq::SliceRandom;

/// A question about a screen.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// As it is put: `find Save`, `read 84,47`.
    pub text: String,
    /// The right answer.
    pub answer: Answer,
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// A click on the widget's middle.
    Act(Action),
    /// What the widget says.
    Label(String),
}

/// The share of questions that ask where something is; the others ask what is somewhere.
const FIND_SHARE: f64 = 0.7;

/// Up to `count` questions about different widgets: usable ones whose label no other widget has.
pub fn questions(widgets: &[Widget], count: usize, rng: &mut impl Rng) -> Vec<Question> {
    let named = |label: &str| widgets.iter().filter(|widget| widget.label == label).count();
    let unique =
        |widget: &&Widget| widget.is_clickable() && !widget.label.is_empty() && named(&widget.label) == 1;
    let mut choices: Vec<&Widget> = widgets.iter().filter(unique).collect();
    choices.shuffle(rng);
    choices.truncate(count);
    choices
        .into_iter()
        .map(|widget| {
            let (x, y) = widget.centre();
            if rng.random_bool(FIND_SHARE) {
                let click = Action::Click { start_box: ModelBox::point(x, y) };
                Question { text: format!("find {}", widget.label), answer: Answer::Act(click) }
            } else {
                Question { text: format!("read {x},{y}"), answer: Answer::Label(widget.label.clone()) }
            }
        })
        .collect()
}

/// What a widget at a place says; the topmost one where several lie there.
pub fn label_at(widgets: &[Widget], x: f64, y: f64) -> Option<&str> {
    let inside = |widget: &&Widget| {
        let [left, top, right, bottom] = widget.rect.map(f64::from);
        (left..right).contains(&x) && (top..bottom).contains(&y)
    };
    widgets.iter().rev().find(inside).map(|widget| widget.label.as_str())
}
