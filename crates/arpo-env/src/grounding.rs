//! Grounding questions about a screen with their answers, from the widget tree: where is LABEL, what is at x,y.

use crate::layout::Widget;
use arpo_core::action::{Action, ModelBox};
use rand::Rng;
use rand::RngExt;
use rand::seq::SliceRandom;

/// A grounding question about a screen.
#[derive(Debug, Clone, PartialEq)]
pub struct GroundingQuestion {
    /// The question: `find Save`, `read 84,47`.
    pub text: String,
    /// The right answer.
    pub answer: GroundingAnswer,
}

/// The answer to a grounding question.
#[derive(Debug, Clone, PartialEq)]
pub enum GroundingAnswer {
    /// A click on the widget's centre.
    Act(Action),
    /// The widget's label.
    Label(String),
}

/// The fraction of questions that ask where a label is; the others ask for the label at a point.
const FIND_SHARE: f64 = 0.7;

/// Up to `count` questions about different widgets, all of them clickable and with a unique label.
pub fn questions(widgets: &[Widget], count: usize, rng: &mut impl Rng) -> Vec<GroundingQuestion> {
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
                GroundingQuestion {
                    text: format!("find {}", widget.label),
                    answer: GroundingAnswer::Act(click),
                }
            } else {
                GroundingQuestion {
                    text: format!("read {x},{y}"),
                    answer: GroundingAnswer::Label(widget.label.clone()),
                }
            }
        })
        .collect()
}

/// The label of the widget at a point; of the topmost one where several overlap.
pub fn label_at(widgets: &[Widget], x: f64, y: f64) -> Option<&str> {
    let inside = |widget: &&Widget| {
        let [left, top, right, bottom] = widget.rect.map(f64::from);
        (left..right).contains(&x) && (top..bottom).contains(&y)
    };
    widgets.iter().rev().find(inside).map(|widget| widget.label.as_str())
}
