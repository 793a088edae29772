//! What calls mean: the actions of UI-TARS by name, and what each needs.

use crate::grammar::Call;
use crate::parse::ParseError;
use arpo_core::action::{Action, Direction, ModelBox};

/// Special tokens that may still stand around coordinates.
const BOX_TOKENS: [&str; 2] = ["<|box_start|>", "<|box_end|>"];

/// A call as an action. `response` is only looked at to say where a mistake lies.
pub(crate) fn action(call: &Call, response: &str) -> Result<Action, ParseError> {
    let needs = Needs { call, response };
    Ok(match call.name.as_str() {
        "click" | "left_single" => Action::Click { start_box: needs.place("start_box")? },
        "left_double" => Action::LeftDouble { start_box: needs.place("start_box")? },
        "right_single" => Action::RightSingle { start_box: needs.place("start_box")? },
        "hover" => Action::Hover { start_box: needs.place("start_box")? },
        "drag" => Action::Drag { start_box: needs.place("start_box")?, end_box: needs.place("end_box")? },
        "select" => Action::Select { start_box: needs.place("start_box")?, end_box: needs.place("end_box")? },
        "scroll" => {
            let start_box = call.argument("start_box").map(|_| needs.place("start_box")).transpose()?;
            Action::Scroll { start_box, direction: needs.direction()? }
        }
        "hotkey" => Action::Hotkey { keys: needs.keys()? },
        "press" => Action::Press { key: needs.key(&["key", "press"])? },
        "keydown" => Action::Keydown { key: needs.key(&["key"])? },
        "keyup" => Action::Keyup { key: needs.key(&["key"])? },
        "type" => Action::Type { content: needs.text(&["content"])?.to_owned() },
        "wait" => Action::Wait {},
        "finished" => Action::Finished { content: call.argument("content").map(str::to_owned) },
        "call_user" => Action::CallUser {},
        "error_env" => Action::ErrorEnv {},
        name => Action::Other { name: name.to_owned(), arguments: call.arguments.clone() },
    })
}

struct Needs<'a> {
    call: &'a Call,
    response: &'a str,
}

impl<'a> Needs<'a> {
    /// The first of these arguments that is there.
    fn text(&self, names: &[&str]) -> Result<&'a str, ParseError> {
        let found = names.iter().find_map(|name| self.call.argument(name));
        found.ok_or_else(|| self.wrong(&format!("the argument {}", names[0])))
    }

    fn place(&self, name: &str) -> Result<ModelBox, ParseError> {
        let text = self.text(&[name])?;
        let wrong =
            || self.wrong(&format!("{name}='(x,y)' or {name}='(x1,y1,x2,y2)' with numbers, not {text:?}"));
        let mut numbers = text.to_owned();
        for token in BOX_TOKENS {
            numbers = numbers.replace(token, "");
        }
        let numbers: Option<Vec<f64>> =
            numbers.replace(['(', ')'], "").split(',').map(finite_number).collect();
        match numbers.as_deref() {
            Some(&[x, y]) => Ok(ModelBox::point(x, y)),
            Some(&[x1, y1, x2, y2]) => Ok(ModelBox { x1, y1, x2, y2 }),
            _ => Err(wrong()),
        }
    }

    fn direction(&self) -> Result<Direction, ParseError> {
        let text = self.text(&["direction"])?;
        let named = [
            ("up", Direction::Up),
            ("down", Direction::Down),
            ("left", Direction::Left),
            ("right", Direction::Right),
        ];
        // as the reference: the word may stand among others
        let lower = text.to_lowercase();
        let found = named.into_iter().find(|(name, _)| lower.contains(name));
        let wrong = || self.wrong(&format!("direction='up', 'down', 'left' or 'right', not {text:?}"));
        found.map(|(_, direction)| direction).ok_or_else(wrong)
    }

    /// `ctrl c` or `ctrl+c`.
    fn keys(&self) -> Result<Vec<String>, ParseError> {
        let text = self.text(&["key", "hotkey"])?;
        let keys: Vec<String> = text.split_whitespace().flat_map(joined_by_plus).map(str::to_owned).collect();
        if keys.is_empty() {
            return Err(self.wrong("key='...' with at least one key"));
        }
        Ok(keys)
    }

    fn key(&self, names: &[&str]) -> Result<String, ParseError> {
        let text = self.text(names)?.trim();
        if text.is_empty() {
            return Err(self.wrong("key='...' with a key"));
        }
        Ok(text.to_owned())
    }

    fn wrong(&self, expected: &str) -> ParseError {
        let at = self.response[..self.call.at].chars().count();
        ParseError::Meaning { at, action: self.call.name.clone(), expected: expected.to_owned() }
    }
}

fn finite_number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| number.is_finite())
}

/// The keys of `ctrl+c`; the key `+` itself stays one.
fn joined_by_plus(text: &str) -> Vec<&str> {
    let parts: Vec<&str> = text.split('+').collect();
    if parts.iter().any(|part| part.is_empty()) { vec![text] } else { parts }
}
