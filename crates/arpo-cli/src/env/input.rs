//! Parses the input lines of `arpo env play`: short commands, or actions in the agent's format.

use arpo_agent::parse::{ParseError, parse};
use arpo_core::action::{Action, Direction, ModelBox};
use arpo_env::keys::is_key;
use std::fmt::Write;

/// A parsed line.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Input {
    Act(Action),
    Look,
    Help,
    Quit,
    Empty,
}

/// Every command: its name, an example, what it does.
const FORMS: [(&str, &str, &str); 15] = [
    ("click", "click 120 80", "click there"),
    ("double", "double 120 80", "click twice"),
    ("right", "right 120 80", "click with the right button"),
    ("move", "move 120 80", "move the pointer there"),
    ("drag", "drag 10 20 120 80", "press, move, release"),
    ("select", "select 10 20 120 80", "the same, over text"),
    ("scroll", "scroll 120 80 down", "scroll up, down, left or right"),
    ("type", "type hello world", "type text; \\n at its end presses enter"),
    ("key", "key ctrl+s", "press a key or a key combination"),
    ("wait", "wait", "let time pass"),
    ("finished", "finished", "end the episode: the task is done"),
    ("call_user", "call_user", "end the episode: the task cannot be done"),
    ("look", "look", "list the widgets on the screen"),
    ("help", "help", "this list"),
    ("quit", "quit", "stop without ending the episode"),
];

/// The list of commands.
pub(super) fn help() -> String {
    let mut help = String::new();
    for (_, form, meaning) in FORMS {
        writeln!(help, "  {form:20} {meaning}").expect("strings take all text");
    }
    help + "Numbers are pixels of the screenshot, from its upper left corner.\n\
            Actions in the agent's format work, too: click(start_box='(120,80)')\n"
}

/// Parses a line for a screen of this size; an error is one line that says what was expected.
pub(super) fn parse_line(line: &str, screen: (u32, u32)) -> Result<Input, String> {
    let line = line.trim_start().trim_end_matches(['\r', '\n']);
    let input = if line.starts_with("Thought:") || line.starts_with("Action:") {
        Input::Act(response(line)?)
    } else if is_call(line) {
        Input::Act(response(&format!("Action: {line}"))?)
    } else {
        command(line)?
    };
    if let Input::Act(action) = &input {
        check_points(action, screen)?;
        check_keys(action)?;
    }
    Ok(input)
}

/// A call: a name directly followed by an opening parenthesis.
fn is_call(line: &str) -> bool {
    let name_end = line.find(|c: char| !(c.is_alphanumeric() || "_.".contains(c)));
    name_end.is_some_and(|end| end > 0 && line[end..].starts_with('('))
}

/// Parses `Thought: ... Action: ...`, the agent's format.
fn response(line: &str) -> Result<Action, String> {
    // several actions are separated by blank lines, so one line has one action
    let action = parse(line).map(|response| response.actions.into_iter().next());
    match action {
        Ok(Some(Action::Other { name, .. })) => Err(match form(&name) {
            Some(form) => format!("{name} lacks an argument and would do nothing; short form: {form}"),
            None => format!("there is no action {name}; `help` lists the commands"),
        }),
        Ok(Some(action)) => Ok(action),
        Ok(None) | Err(ParseError::NoAction | ParseError::NoCall) => {
            Err("expected an action after the thought, like Action: wait()".to_owned())
        }
        Err(ParseError::Syntax { expected, found, .. }) => Err(format!("expected {expected}, found {found}")),
        Err(ParseError::Meaning { action, expected, .. }) => Err(match form(&action) {
            Some(form) => format!("{action} needs {expected}; short form: {form}"),
            None => format!("{action} needs {expected}"),
        }),
    }
}

fn form(word: &str) -> Option<&'static str> {
    FORMS.iter().find(|(name, ..)| *name == word).map(|(_, form, _)| *form)
}

fn command(line: &str) -> Result<Input, String> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    if word.is_empty() {
        return Ok(Input::Empty);
    }
    let form = form(word).ok_or_else(|| unknown(word))?;
    let expected = || format!("expected a line like: {form}");
    let arguments: Vec<&str> = rest.split([' ', '\t', ',']).filter(|argument| !argument.is_empty()).collect();
    let point = || {
        Ok(match points(&arguments).as_deref() {
            Some(&[point]) => point,
            _ => return Err(expected()),
        })
    };
    let two_points = || {
        Ok(match points(&arguments).as_deref() {
            Some(&[start, end]) => (start, end),
            _ => return Err(expected()),
        })
    };
    let alone = |input: Input| if arguments.is_empty() { Ok(input) } else { Err(expected()) };
    Ok(Input::Act(match word {
        "click" => Action::Click { start_box: point()? },
        "double" => Action::LeftDouble { start_box: point()? },
        "right" => Action::RightSingle { start_box: point()? },
        "move" => Action::Hover { start_box: point()? },
        "drag" => {
            let (start_box, end_box) = two_points()?;
            Action::Drag { start_box, end_box }
        }
        "select" => {
            let (start_box, end_box) = two_points()?;
            Action::Select { start_box, end_box }
        }
        "scroll" => scroll(&arguments).ok_or_else(expected)?,
        "type" if rest.is_empty() => return Err(expected()),
        "type" => Action::Type { content: rest.to_owned() },
        "key" => key_press(rest).ok_or_else(expected)?,
        "finished" => {
            let content = rest.trim();
            Action::Finished { content: (!content.is_empty()).then(|| content.to_owned()) }
        }
        "wait" => return alone(Input::Act(Action::Wait {})),
        "call_user" => return alone(Input::Act(Action::CallUser {})),
        "look" => return alone(Input::Look),
        "help" => return Ok(Input::Help),
        _ => return alone(Input::Quit),
    }))
}

fn unknown(word: &str) -> String {
    let near = FORMS
        .iter()
        .map(|(name, form, _)| (strsim::jaro_winkler(name, word), form))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match near {
        Some((_, form)) => format!("there is no command {word:?}; did you mean a line like: {form}"),
        None => format!("there is no command {word:?}; `help` lists the commands"),
    }
}

/// Pairs of coordinates.
fn points(arguments: &[&str]) -> Option<Vec<ModelBox>> {
    let number = |text: &&str| text.parse().ok().filter(|number: &f64| number.is_finite());
    let numbers: Vec<f64> = arguments.iter().map(number).collect::<Option<_>>()?;
    let (pairs, rest) = numbers.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[x, y]| ModelBox::point(*x, *y)).collect())
}

/// A direction, after an optional position.
fn scroll(arguments: &[&str]) -> Option<Action> {
    let (direction, point) = arguments.split_last()?;
    let direction = match *direction {
        "up" => Direction::Up,
        "down" => Direction::Down,
        "left" => Direction::Left,
        "right" => Direction::Right,
        _ => return None,
    };
    let start_box = match points(point)?.as_slice() {
        [] => None,
        [point] => Some(*point),
        _ => return None,
    };
    Some(Action::Scroll { start_box, direction })
}

/// `enter`, `ctrl+s`, `ctrl s`; the key `+` itself comes last.
fn key_press(text: &str) -> Option<Action> {
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

/// The desktop would ignore positions outside the screen; here they are an error.
fn check_points(action: &Action, (width, height): (u32, u32)) -> Result<(), String> {
    let mut action = action.clone();
    for point in action.boxes_mut() {
        let (x, y) = point.centre();
        if !(0.0..f64::from(width)).contains(&x) || !(0.0..f64::from(height)).contains(&y) {
            let (right, bottom) = (width - 1, height - 1);
            return Err(format!("{x} {y} is outside the screen: expected 0 to {right} and 0 to {bottom}"));
        }
    }
    Ok(())
}

/// The desktop would ignore unknown keys; here they are an error.
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

    fn parsed(line: &str) -> Result<Input, String> {
        parse_line(line, (168, 140))
    }

    fn action(line: &str) -> Action {
        match parsed(line) {
            Ok(Input::Act(action)) => action,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn commands_and_calls_mean_the_same() {
        for (command, call) in [
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
            assert_eq!(action(command), action(call), "{command}");
        }
        for (line, input) in
            [("help", Input::Help), ("look", Input::Look), ("quit", Input::Quit), (" \n", Input::Empty)]
        {
            assert_eq!(parsed(line), Ok(input));
        }
    }

    #[test]
    fn errors_say_what_was_expected() {
        for (line, message) in [
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
            ("clik 1 2", "there is no command \"clik\"; did you mean a line like: click 120 80"),
            ("xyzzy", "there is no command \"xyzzy\"; `help` lists the commands"),
            ("click 168 0", "168 0 is outside the screen: expected 0 to 167 and 0 to 139"),
            ("drag 1 2 3 -4", "3 -4 is outside the screen: expected 0 to 167 and 0 to 139"),
            ("click(start_box='(1,999)')", "1 999 is outside the screen: expected 0 to 167 and 0 to 139"),
            ("click(1, 2)", "click needs the argument start_box; short form: click 120 80"),
            ("click(start_box='(1,2)", "expected a value with a closing quote, found \"'(1,2)\""),
            (
                "scroll(start_box='(1,2)')",
                "scroll lacks an argument and would do nothing; short form: scroll 120 80 down",
            ),
            ("dance()", "there is no action dance; `help` lists the commands"),
            ("Thought: hm", "expected an action after the thought, like Action: wait()"),
        ] {
            assert_eq!(parsed(line), Err(message.to_owned()), "{line}");
        }
        let unknown_key = parsed("key ctrl+hyper").unwrap_err();
        assert!(
            unknown_key.starts_with("there is no key \"hyper\": expected a character, or"),
            "{unknown_key}"
        );
    }

    /// The examples in the help can be parsed.
    #[test]
    fn the_examples_in_the_help_are_valid() {
        for (_, form, _) in FORMS {
            assert!(parsed(form).is_ok(), "{form}");
        }
        assert!(help().lines().all(|line| line.chars().count() < 80), "{}", help());
    }
}
