//! The few lines of Python that OSWorld's clients send for every action, read strictly: imports, settings, texts that stand
//! alone (UI-TARS's agent sends its thoughts as one), variables, and calls of `pyautogui`, `pyperclip.copy` and `time.sleep`
//! with literal arguments, variables and sums of them. They run natively, so that a guest needs no Python.
//! A script with anything else is left to a real Python as a whole: half a script is never run.
//!
//! | to change | look in |
//! |---|---|
//! | which calls there are and what they take | this file |
//! | what an argument may be | `expression` |
//! | how text becomes tokens and literals | `tokens` |

mod expression;
mod tokens;

use std::collections::HashMap;
use std::time::Duration;
use tokens::{Token, tokens};

/// A button of the mouse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Button {
    /// The primary button.
    Left,
    /// The wheel.
    Middle,
    /// The secondary button.
    Right,
}

/// A point on the screen; a missing coordinate is the pointer's.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ScreenPoint {
    /// From the left.
    pub x: Option<f64>,
    /// From the top.
    pub y: Option<f64>,
}

/// An effect on the desktop.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Move the pointer.
    Move {
        /// The target.
        to: ScreenPoint,
        /// In this time.
        duration: Duration,
    },
    /// Press and release a button.
    Click {
        /// There.
        at: ScreenPoint,
        /// Which.
        button: Button,
        /// How often.
        clicks: u32,
        /// Between clicks.
        interval: Duration,
    },
    /// Move with a button held.
    Drag {
        /// To there.
        to: ScreenPoint,
        /// In this time.
        duration: Duration,
        /// Which.
        button: Button,
    },
    /// Press a button and keep it, or let it go.
    Hold {
        /// There.
        at: ScreenPoint,
        /// Which.
        button: Button,
        /// Press it.
        down: bool,
    },
    /// Turn the wheel.
    Scroll {
        /// There.
        at: ScreenPoint,
        /// Up, or to the right.
        clicks: i64,
        /// Sideways.
        sideways: bool,
    },
    /// Type text, a character at a time.
    Write {
        /// The text.
        text: String,
        /// Between characters.
        interval: Duration,
    },
    /// Press and release keys one after the other.
    Press {
        /// By pyautogui's names.
        keys: Vec<String>,
        /// Number of repetitions.
        presses: u32,
        /// Between keys.
        interval: Duration,
    },
    /// Press a key and keep it, or let it go.
    Key {
        /// By pyautogui's name.
        key: String,
        /// Press it.
        down: bool,
    },
    /// Press keys one after the other and release them in the opposite order.
    Hotkey {
        /// By pyautogui's names.
        keys: Vec<String>,
    },
    /// Put a text into the clipboard.
    Copy {
        /// The text.
        text: String,
    },
    /// Sleep.
    Sleep(Duration),
    /// Sets the pause after each following call of pyautogui.
    Pause(Duration),
}

/// A value in a call.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Number(f64),
    Text(String),
    Truth(bool),
    Nothing,
    List(Vec<Value>),
    /// The easing of a move; only its end matters here.
    Easing,
}

/// The longest duration of one call; a longer one is a mistake.
const MAX_SECONDS: f64 = 3600.0;

/// The effects of a script, in order; none if it contains anything unsupported.
pub fn read(source: &str) -> Option<Vec<Effect>> {
    let mut reader = Reader { tokens: tokens(source)?, at: 0, variables: HashMap::new() };
    let mut effects = Vec::new();
    loop {
        while reader.take(&Token::End) {}
        if reader.at == reader.tokens.len() {
            return Some(effects);
        }
        effects.extend(reader.statement()?);
        if reader.at < reader.tokens.len() && reader.peek() != Some(&Token::End) {
            return None;
        }
    }
}

/// The modules that are known here.
fn is_module(name: &str) -> bool {
    matches!(name, "pyautogui" | "pyperclip" | "time")
}

struct Reader {
    tokens: Vec<Token>,
    at: usize,
    variables: HashMap<String, Value>,
}

impl Reader {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned()?;
        self.at += 1;
        Some(token)
    }

    fn take(&mut self, wanted: &Token) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn name(&mut self) -> Option<String> {
        match self.next()? {
            Token::Name(name) => Some(name),
            _ => None,
        }
    }

    fn statement(&mut self) -> Option<Vec<Effect>> {
        if matches!(self.peek(), Some(Token::Text(_))) {
            self.value()?;
            return Some(vec![]);
        }
        let first = self.name()?;
        if first == "import" {
            loop {
                if !is_module(&self.name()?) {
                    return None;
                }
                if !self.take(&Token::Mark(',')) {
                    return Some(vec![]);
                }
            }
        }
        if !is_module(&first) && self.take(&Token::Mark('=')) {
            let value = self.value()?;
            self.variables.insert(first, value);
            return Some(vec![]);
        }
        if !self.take(&Token::Mark('.')) {
            return None;
        }
        let second = self.name()?;
        if self.take(&Token::Mark('=')) {
            return match (first.as_str(), second.as_str(), self.value()?) {
                ("pyautogui", "FAILSAFE", _) => Some(vec![]),
                ("pyautogui", "PAUSE", Value::Number(seconds)) => {
                    Some(vec![Effect::Pause(seconds_of(seconds)?)])
                }
                _ => None,
            };
        }
        let arguments = self.arguments()?;
        match first.as_str() {
            "pyautogui" => pyautogui(&second, arguments),
            "pyperclip" if second == "copy" => {
                let mut arguments = arguments;
                let text = arguments.text("text", 0)?;
                arguments.end(vec![Effect::Copy { text }])
            }
            "time" if second == "sleep" => {
                let mut arguments = arguments;
                let seconds = arguments.number("secs", 0)??;
                arguments.end(vec![Effect::Sleep(seconds_of(seconds)?)])
            }
            _ => None,
        }
    }

    fn arguments(&mut self) -> Option<Arguments> {
        let mut arguments = Arguments { positional: vec![], named: vec![] };
        if !self.take(&Token::Mark('(')) {
            return None;
        }
        while !self.take(&Token::Mark(')')) {
            let is_named =
                matches!(self.tokens.get(self.at..self.at + 2), Some([Token::Name(_), Token::Mark('=')]));
            if is_named {
                let name = self.name()?;
                self.at += 1;
                arguments.named.push((name, self.value()?));
            } else if arguments.named.is_empty() {
                let value = self.value()?;
                arguments.positional.push(Some(value));
            } else {
                return None;
            }
            if !self.take(&Token::Mark(',')) && self.peek() != Some(&Token::Mark(')')) {
                return None;
            }
        }
        Some(arguments)
    }
}

/// The arguments of a call, each to be taken once.
struct Arguments {
    positional: Vec<Option<Value>>,
    named: Vec<(String, Value)>,
}

impl Arguments {
    /// An argument by name or position.
    fn any(&mut self, name: &str, position: usize) -> Option<Value> {
        if let Some(at) = self.named.iter().position(|(given, _)| given == name) {
            return Some(self.named.remove(at).1);
        }
        self.positional.get_mut(position).and_then(Option::take)
    }

    /// A number: outer none if it is something else, inner none if it is missing.
    #[expect(clippy::option_option, reason = "unsupported and missing are different")]
    fn number(&mut self, name: &str, position: usize) -> Option<Option<f64>> {
        match self.any(name, position) {
            None | Some(Value::Nothing) => Some(None),
            Some(Value::Number(number)) if number.is_finite() => Some(Some(number)),
            Some(_) => None,
        }
    }

    fn text(&mut self, name: &str, position: usize) -> Option<String> {
        match self.any(name, position)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    fn duration(&mut self, name: &str, position: usize) -> Option<Duration> {
        seconds_of(self.number(name, position)?.unwrap_or(0.0))
    }

    fn count(&mut self, name: &str, position: usize, default: u32) -> Option<u32> {
        let count = self.number(name, position)?.unwrap_or(f64::from(default));
        (count.fract() == 0.0 && (0.0..=1000.0).contains(&count)).then_some(count as u32)
    }

    /// A point as two numbers or one pair.
    fn point(&mut self, first: usize) -> Option<ScreenPoint> {
        if let Some(Some(Value::List(pair))) = self.positional.get(first)
            && let [Value::Number(x), Value::Number(y)] = pair.as_slice()
        {
            let point = ScreenPoint { x: Some(*x), y: Some(*y) };
            self.positional[first] = None;
            return Some(point);
        }
        Some(ScreenPoint { x: self.number("x", first)?, y: self.number("y", first + 1)? })
    }

    fn button(&mut self, position: usize) -> Option<Button> {
        match self.any("button", position) {
            None => Some(Button::Left),
            Some(Value::Text(name)) => match name.as_str() {
                "left" | "primary" => Some(Button::Left),
                "middle" => Some(Button::Middle),
                "right" | "secondary" => Some(Button::Right),
                _ => None,
            },
            Some(_) => None,
        }
    }

    /// An easing, which is ignored.
    fn easing(&mut self, position: usize) -> Option<()> {
        matches!(self.any("tween", position), None | Some(Value::Nothing | Value::Easing)).then_some(())
    }

    /// Names of keys, from one text or a list of them.
    fn keys(&mut self, name: &str, position: usize) -> Option<Vec<String>> {
        let text = |value: Value| if let Value::Text(text) = value { Some(text) } else { None };
        match self.any(name, position)? {
            Value::Text(key) => Some(vec![key]),
            Value::List(keys) => keys.into_iter().map(text).collect(),
            _ => None,
        }
    }

    /// Ends a call: arguments left over are unsupported, except how pyautogui logs and pauses.
    fn end(mut self, effects: Vec<Effect>) -> Option<Vec<Effect>> {
        self.named.retain(|(name, _)| !matches!(name.as_str(), "logScreenshot" | "_pause"));
        (self.named.is_empty() && self.positional.iter().all(Option::is_none)).then_some(effects)
    }
}

fn seconds_of(seconds: f64) -> Option<Duration> {
    (0.0..=MAX_SECONDS).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

fn pyautogui(name: &str, mut arguments: Arguments) -> Option<Vec<Effect>> {
    let effect = match name {
        "click" => {
            let at = arguments.point(0)?;
            let (clicks, interval) = (arguments.count("clicks", 2, 1)?, arguments.duration("interval", 3)?);
            let button = arguments.button(4)?;
            arguments.duration("duration", 5)?;
            Effect::Click { at, button, clicks, interval }
        }
        "doubleClick" | "tripleClick" | "rightClick" | "middleClick" | "leftClick" => {
            let at = arguments.point(0)?;
            let interval = arguments.duration("interval", 2)?;
            let given = if name.ends_with("eClick") && name != "middleClick" {
                arguments.button(3)?
            } else {
                Button::Left
            };
            let (button, clicks) = match name {
                "doubleClick" => (given, 2),
                "tripleClick" => (given, 3),
                "rightClick" => (Button::Right, 1),
                "middleClick" => (Button::Middle, 1),
                _ => (Button::Left, 1),
            };
            arguments.duration("duration", 4)?;
            Effect::Click { at, button, clicks, interval }
        }
        "moveTo" => {
            arguments.easing(3)?;
            Effect::Move { to: arguments.point(0)?, duration: arguments.duration("duration", 2)? }
        }
        "dragTo" => {
            arguments.easing(3)?;
            // without it, a drag holds no button
            if !matches!(arguments.any("mouseDownUp", 7), None | Some(Value::Truth(true))) {
                return None;
            }
            let (to, duration) = (arguments.point(0)?, arguments.duration("duration", 2)?);
            Effect::Drag { to, duration, button: arguments.button(4)? }
        }
        "mouseDown" | "mouseUp" => {
            let at = arguments.point(0)?;
            Effect::Hold { at, button: arguments.button(2)?, down: name == "mouseDown" }
        }
        "scroll" | "vscroll" | "hscroll" => {
            let clicks = arguments.number("clicks", 0)??;
            let at = arguments.point(1)?;
            let whole = (clicks.fract() == 0.0 && clicks.abs() <= 10_000.0).then_some(clicks as i64)?;
            Effect::Scroll { at, clicks: whole, sideways: name == "hscroll" }
        }
        "write" | "typewrite" => {
            let interval = arguments.duration("interval", 1)?;
            match arguments.any("message", 0)? {
                Value::Text(text) => Effect::Write { text, interval },
                // a list is of keys
                keys @ Value::List(_) => {
                    arguments.positional = vec![Some(keys)];
                    Effect::Press { keys: arguments.keys("message", 0)?, presses: 1, interval }
                }
                _ => return None,
            }
        }
        "press" => {
            let keys = arguments.keys("keys", 0)?;
            let presses = arguments.count("presses", 1, 1)?;
            Effect::Press { keys, presses, interval: arguments.duration("interval", 2)? }
        }
        "keyDown" | "keyUp" => Effect::Key { key: arguments.text("key", 0)?, down: name == "keyDown" },
        "hotkey" => {
            arguments.duration("interval", usize::MAX)?;
            let lists = (0..arguments.positional.len()).map(|position| arguments.keys("", position));
            Effect::Hotkey { keys: lists.collect::<Option<Vec<_>>>()?.concat() }
        }
        "sleep" => Effect::Sleep(seconds_of(arguments.number("seconds", 0)??)?),
        _ => return None,
    };
    arguments.end(vec![effect])
}

#[cfg(test)]
mod tests;
