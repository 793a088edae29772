//! What a line of a game means: short words for people, or an action as the agent writes it.

use arpo_agent::parse::{ParseError, parse};
use arpo_core::action::{Action, Direction, ModelBox};
use arpo_env::keys::is_key;
use std::fmt::Write;

/// What the player wants.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Wish {
    Act(Action),
    Look,
    Help,
    Quit,
    Nothing,
}

/// Each word: how a line with it looks, what it does.
const FORMS: [(&str, &str, &str); 15] = [
    ("click", "click 120 80", "click there"),
    ("double", "double 120 80", "click twice"),
    ("right", "right 120 80", "click with the right button"),
    ("move", "move 120 80", "move the pointer there"),
    ("drag", "drag 10 20 120 80", "press, move, release"),
    ("select", "select 10 20 120 80", "the same, over text"),
    ("scroll", "scroll 120 80 down", "turn the wheel: up, down, left, right"),
    ("type", "type hello world", "type text; \\n at its end presses enter"),
    ("key", "key ctrl+s", "press a key, or keys together"),
    ("wait", "wait", "let time pass"),
    ("finished", "finished", "say that the task is done: ends the game"),
    ("call_user", "call_user", "say that it cannot be done: ends the game"),
    ("look", "look", "list what is on the screen"),
    ("help", "help", "this list"),
    ("quit", "quit", "end the game without an answer"),
];

/// What there is to write.
pub(super) fn help() -> String {
    let mut help = String::new();
    for (_, form, meaning) in FORMS {
        writeln!(help, "  {form:20} {meaning}").expect("strings take all text");
    }
    help + "Numbers are pixels of the picture, from its upper left corner.\n\
            An action as the agent writes it is taken, too: click(start_box='(120,80)')\n"
}

/// The wish of a line on a screen of this size; an error says on one line what would be right.
pub(super) fn wish(line: &str, screen: (u32, u32)) -> Result<Wish, String> {
    let line = line.trim_start().trim_end_matches(['\r', '\n']);
    let wish = if line.starts_with("Thought:") || line.starts_with("Action:") {
        Wish::Act(response(line)?)
    } else if is_call(line) {
        Wish::Act(response(&format!("Action: {line}"))?)
    } else {
        in_words(line)?
    };
    if let Wish::Act(action) = &wish {
        check_places(action, screen)?;
        check_keys(action)?;
    }
    Ok(wish)
}

/// A call: a name with an opening parenthesis right behind it.
fn is_call(line: &str) -> bool {
    let name_end = line.find(|c: char| !(c.is_alphanumeric() || "_.".contains(c)));
    name_end.is_some_and(|end| end > 0 && line[end..].starts_with('('))
}

/// `Thought: ... Action: ...`, as the agent writes it.
fn response(line: &str) -> Result<Action, String> {
    // several actions have a blank line between them, which one line cannot hold
    let action = parse(line).map(|response| response.actions.into_iter().next());
    match action {
        Ok(Some(Action::Other { name, .. })) => Err(match form(&name) {
            Some(form) => format!("{name} lacks an argument and would do nothing; in short: {form}"),
            None => format!("there is no action {name}; `help` lists what there is"),
        }),
        Ok(Some(action)) => Ok(action),
        Ok(None) | Err(ParseError::NoAction) => {
            Err("expected an action after the thought, like Action: wait()".to_owned())
        }
        Err(ParseError::Syntax { expected, found, .. }) => Err(format!("expected {expected}, found {found}")),
        Err(ParseError::Meaning { action, expected, .. }) => Err(match form(&action) {
            Some(form) => format!("{action} needs {expected}; in short: {form}"),
            None => format!("{action} needs {expected}"),
        }),
    }
}

fn form(word: &str) -> Option<&'static str> {
    FORMS.iter().find(|(name, ..)| *name == word).map(|(_, form, _)| *form)
}

fn in_words(line: &str) -> Result<Wish, String> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    if word.is_empty() {
        return Ok(Wish::Nothing);
    }
    let form = form(word).ok_or_else(|| unknown(word))?;
    let expected = || format!("expected a line like: {form}");
    let arguments: Vec<&str> = rest.split([' ', '\t', ',']).filter(|argument| !argument.is_empty()).collect();
    let place = || {
        Ok(match places(&arguments).as_deref() {
            Some(&[place]) => place,
            _ => return Err(expected()),
        })
    };
    let two_places = || {
        Ok(match places(&arguments).as_deref() {
            Some(&[start, end]) => (start, end),
            _ => return Err(expected()),
        })
    };
    let alone = |wish: Wish| if arguments.is_empty() { Ok(wish) } else { Err(expected()) };
    Ok(Wish::Act(match word {
        "click" => Action::Click { start_box: place()? },
        "double" => Action::LeftDouble { start_box: place()? },
        "right" => Action::RightSingle { start_box: place()? },
        "move" => Action::Hover { start_box: place()? },
        "drag" => {
            let (start_box, end_box) = two_places()?;
            Action::Drag { start_box, end_box }
        }
        "select" => {
            let (start_box, end_box) = two_places()?;
            Action::Select { start_box, end_box }
        }
        "scroll" => scroll(&arguments).ok_or_else(expected)?,
        "type" if rest.is_empty() => return Err(expected()),
        "type" => Action::Type { content: rest.to_owned() },
        "key" => pressed(rest).ok_or_else(expected)?,
        "finished" => {
            let content = rest.trim();
            Action::Finished { content: (!content.is_empty()).then(|| content.to_owned()) }
        }
        "wait" => return alone(Wish::Act(Action::Wait {})),
        "call_user" => return alone(Wish::Act(Action::CallUser {})),
        "look" => return alone(Wish::Look),
        "help" => return Ok(Wish::Help),
        _ => return alone(Wish::Quit),
    }))
}

fn unknown(word: &str) -> String {
    let near = FORMS
        .iter()
        .map(|(name, form, _)| (strsim::jaro_winkler(name, word), form))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match near {
        Some((_, form)) => format!("there is no {word:?}; did you mean a line like: {form}"),
        None => format!("there is no {word:?}; `help` lists what there is"),
    }
}

/// Pairs of numbers.
fn places(arguments: &[&str]) -> Option<Vec<ModelBox>> {
    let number = |text: &&str| text.parse().ok().filter(|number: &f64| number.is_finite());
    let numbers: Vec<f64> = arguments.iter().map(number).collect::<Option<_>>()?;
    let (pairs, rest) = numbers.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[x, y]| ModelBox::point(*x, *y)).collect())
}

/// A direction, after a place or where the pointer is.
fn scroll(arguments: &[&str]) -> Option<Action> {
    let (direction, place) = arguments.split_last()?;
    let direction = match *direction {
        "up" => Direction::Up,
        "down" => Direction::Down,
        "left" => Direction::Left,
        "right" => Direction::Right,
        _ => return None,
    };
    let start_box = match places(place)?.as_slice() {
        [] => None,
        [place] => Some(*place),
        _ => return None,
    };
    Some(Action::Scroll { start_box, direction })
}

/// `enter`, `ctrl+s`, `ctrl s`; the key `+` itself comes last.
fn pressed(text: &str) -> Option<Action> {
    let text = text.trim();
    let mut keys: Vec<String> =
        text.split(['+', ' ']).filter(|key| !key.is_empty()).map(str::to_owned).collect();
    if text.ends_with('+') {
        keys.push("+".to_owned());
    }
    match keys.len() {
        0 => None,
        1 => keys.pop().map(|key| Action::Press { key }),
        _ => Some(Action::Hotkey { keys }),
    }
}

/// The desktop would ignore what is outside the screen; a person is told.
fn check_places(action: &Action, (width, height): (u32, u32)) -> Result<(), String> {
    let places = match action {
        Action::Click { start_box }
        | Action::LeftDouble { start_box }
        | Action::RightSingle { start_box }
        | Action::Hover { start_box }
        | Action::Scroll { start_box: Some(start_box), .. } => vec![start_box],
        Action::Drag { start_box, end_box } | Action::Select { start_box, end_box } => {
            vec![start_box, end_box]
        }
        _ => vec![],
    };
    for place in places {
        let (x, y) = place.centre();
        if !(0.0..f64::from(width)).contains(&x) || !(0.0..f64::from(height)).contains(&y) {
            let (right, bottom) = (width - 1, height - 1);
            return Err(format!("{x} {y} is outside the screen: expected 0 to {right} and 0 to {bottom}"));
        }
    }
    Ok(())
}

/// The desktop would ignore a key that does not exist; a person is told.
fn check_keys(action: &Action) -> Result<(), String> {
    let keys = match action {
        Action::Hotkey { keys } => keys.as_slice(),
        Action::Press { key } | Action::Keydown { key } | Action::Keyup { key } => std::slice::from_ref(key),
        _ => &[],
    };
    match keys.iter().find(|key| !is_key(key)) {
        Some(key) => Err(format!(
            "there is no key {key:?}: expected a character, or a name like enter, tab, escape, down, f2"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wished(line: &str) -> Result<Wish, String> {
        wish(line, (168, 140))
    }

    fn action(line: &str) -> Action {
        match wished(line) {
            Ok(Wish::Act(action)) => action,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn words_and_calls_mean_the_same() {
        for (words, call) in [
            ("click 12 34", "click(start_box='(12,34)')"),
            ("  click 12,34\r\n", "Thought: there\tAction: click(start_box='(12,34)')"),
            ("double 1 2", "left_double(start_box='(1,2)')"),
            ("right 1 2", "right_single(start_box='(1,2)')"),
            ("move 1.5 2", "hover(start_box='(1.5,2)')"),
            ("drag 1 2 3 4", "drag(start_box='(1,2)', end_box='(3,4)')"),
            ("select 1 2 3 4", "select(start_box='(1,2)', end_box='(3,4)')"),
            ("scroll 1 2 down", "scroll(start_box='(1,2)', direction='down')"),
            ("scroll left", "scroll(direction='left')"),
            ("type f(x) it's  é ", "type(content='f(x) it\\'s  é ')"),
            ("key enter", "press(key='enter')"),
            ("key ctrl+s", "hotkey(key='ctrl s')"),
            ("key ctrl++", "hotkey(key='ctrl +')"),
            ("wait", "wait()"),
            ("finished", "finished()"),
            ("finished all done", "finished(content='all done')"),
            ("call_user", "call_user()"),
        ] {
            assert_eq!(action(words), action(call), "{words}");
        }
        for (line, wish) in
            [("help", Wish::Help), ("look", Wish::Look), ("quit", Wish::Quit), (" \n", Wish::Nothing)]
        {
            assert_eq!(wished(line), Ok(wish));
        }
    }

    #[test]
    fn mistakes_are_told_what_would_be_right() {
        for (line, answer) in [
            ("click", "expected a line like: click 120 80"),
            ("click 1", "expected a line like: click 120 80"),
            ("click a b", "expected a line like: click 120 80"),
            ("click nan 1", "expected a line like: click 120 80"),
            ("drag 1 2", "expected a line like: drag 10 20 120 80"),
            ("scroll 1 2", "expected a line like: scroll 120 80 down"),
            ("scroll 1 2 3 4 up", "expected a line like: scroll 120 80 down"),
            ("type", "expected a line like: type hello world"),
            ("key", "expected a line like: key ctrl+s"),
            ("wait 5", "expected a line like: wait"),
            ("clik 1 2", "there is no \"clik\"; did you mean a line like: click 120 80"),
            ("xyzzy", "there is no \"xyzzy\"; `help` lists what there is"),
            ("click 168 0", "168 0 is outside the screen: expected 0 to 167 and 0 to 139"),
            ("drag 1 2 3 -4", "3 -4 is outside the screen: expected 0 to 167 and 0 to 139"),
            ("click(start_box='(1,999)')", "1 999 is outside the screen: expected 0 to 167 and 0 to 139"),
            ("click(1, 2)", "click needs the argument start_box; in short: click 120 80"),
            ("click(start_box='(1,2)", "expected a value with a closing quote, found \"'(1,2)\""),
            (
                "scroll(start_box='(1,2)')",
                "scroll lacks an argument and would do nothing; in short: scroll 120 80 down",
            ),
            ("dance()", "there is no action dance; `help` lists what there is"),
            ("Thought: hm", "expected an action after the thought, like Action: wait()"),
        ] {
            assert_eq!(wished(line), Err(answer.to_owned()), "{line}");
        }
        let unknown_key = wished("key ctrl+hyper").unwrap_err();
        assert!(
            unknown_key.starts_with("there is no key \"hyper\": expected a character, or"),
            "{unknown_key}"
        );
    }

    /// The list a person reads holds lines that work.
    #[test]
    fn the_examples_of_the_help_are_understood() {
        for (_, form, _) in FORMS {
            assert!(wished(form).is_ok(), "{form}");
        }
        assert!(help().lines().all(|line| line.chars().count() < 80), "{}", help());
    }
}
