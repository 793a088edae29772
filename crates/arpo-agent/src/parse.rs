//! Parses a response into a thought and actions: `Thought: ... Action: ...`, the format of UI-TARS.
//!
//! As tolerant as the reference where that is a rule (several thought markers, unescaped quotes in typed text, boxes of two
//! or four numbers). Where the reference crashes (coordinates still wrapped in box tokens, and `press`) this parser
//! accepts the response. Anything else is an error with position and reason; it ends the episode.

use crate::{grammar, vocabulary};
use arpo_core::action::Action;

/// A parsed response.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// The thought, if there is one.
    pub thought: Option<String>,
    /// The actions, in order; at least one.
    pub actions: Vec<Action>,
}

/// Why a response could not be parsed. Positions count characters from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// There is no `Action:`.
    #[error("the response has no \"Action:\"")]
    NoAction,
    /// There is no tool call.
    #[error("the response has no <tool_call> of computer_use")]
    NoCall,
    /// The text is not a call.
    #[error("at character {at}: expected {expected}, found {found}")]
    Syntax {
        /// Where.
        at: usize,
        /// What would be right.
        expected: String,
        /// What is there.
        found: String,
    },
    /// An argument of the call is missing or malformed.
    #[error("at character {at}: {action} needs {expected}")]
    Meaning {
        /// Where the call begins.
        at: usize,
        /// Its name.
        action: String,
        /// What would be right.
        expected: String,
    },
}

/// The marker before the actions.
const ACTION: &str = "Action:";

/// Parses a response.
///
/// ```
/// use arpo_agent::parse::parse;
/// use arpo_core::action::{Action, ModelBox};
///
/// let response = parse("Thought: the button\nAction: click(start_box='(10,20)')")?;
/// assert_eq!(response.thought.as_deref(), Some("the button"));
/// assert_eq!(response.actions, [Action::Click { start_box: ModelBox::point(10.0, 20.0) }]);
/// # Ok::<(), arpo_agent::parse::ParseError>(())
/// ```
pub fn parse(response: &str) -> Result<Response, ParseError> {
    let response = response.trim_end();
    // the last marker counts: a model may write several thoughts and actions
    let start = response.rfind(ACTION).ok_or(ParseError::NoAction)? + ACTION.len();
    let actions: Result<Vec<Action>, ParseError> =
        grammar::calls(response, start)?.iter().map(|call| vocabulary::action(call, response)).collect();
    Ok(Response { thought: thought(response.trim_start()), actions: actions? })
}

/// What is wrong at a byte position of a response.
pub(crate) fn syntax_error(response: &str, at: usize, expected: &str) -> ParseError {
    const SHOWN: usize = 20;
    let rest = &response[at..];
    let mut found: String = rest.chars().take(SHOWN).collect();
    if found.len() < rest.len() {
        found.push_str("...");
    }
    let found = if rest.is_empty() { "the end".to_owned() } else { format!("{found:?}") };
    ParseError::Syntax { at: response[..at].chars().count(), expected: expected.to_owned(), found }
}

/// The text between a thought marker and the first `Action:` after it.
fn thought(response: &str) -> Option<String> {
    let marked = if response.starts_with("Reflection:") {
        response.split_once("Reflection: ")?.1.split_once("Action_Summary: ")?.1
    } else if response.starts_with("Action_Summary:") {
        response.split_once("Action_Summary: ")?.1
    } else {
        response.split_once("Thought: ")?.1
    };
    let thought = marked.split(ACTION).next().unwrap_or("").trim();
    (!thought.is_empty()).then(|| thought.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arpo_core::action::{Direction, ModelBox};

    fn actions(text: &str) -> Vec<Action> {
        parse(&format!("Action: {text}")).unwrap_or_else(|error| panic!("{text}: {error}")).actions
    }

    fn typed(content: &str) -> Vec<Action> {
        vec![Action::Type { content: content.into() }]
    }

    #[test]
    fn strings_are_pythons() {
        assert_eq!(actions(r"type(content='a\tb\\n\x41\u00e9\101\d')"), typed("a\tb\\n\u{41}\u{e9}A\\d"));
        assert_eq!(actions(r#"type(content="it's")"#), typed("it's"));
        assert_eq!(actions("type(content='two\n\nparagraphs')"), typed("two\n\nparagraphs"));
        assert_eq!(actions(" type( content = ' x ' , ) "), typed(" x "));
        assert_eq!(actions("pyautogui.type(content='x')"), typed("x"));
    }

    #[test]
    fn quotes_in_typed_text_need_no_escape() {
        assert_eq!(actions("type(content='it's 'fine', (really)')"), typed("it's 'fine', (really)"));
        let two = actions("type(content='it's')\n\ntype(content='a')");
        assert_eq!(two, [typed("it's"), typed("a")].concat());
        assert_eq!(
            actions("finished(content='it's done')"),
            [Action::Finished { content: Some("it's done".into()) }]
        );
    }

    #[test]
    fn scrolls_and_keys() {
        let scroll = |start_box, direction| [Action::Scroll { start_box, direction }];
        assert_eq!(actions("scroll(direction='Down')"), scroll(None, Direction::Down));
        assert_eq!(
            actions("scroll(start_box='<|box_start|>(1, 2)<|box_end|>', direction='left')"),
            scroll(Some(ModelBox::point(1.0, 2.0)), Direction::Left)
        );
        let hotkey = |keys: &[&str]| [Action::Hotkey { keys: keys.iter().map(|&key| key.into()).collect() }];
        assert_eq!(actions("hotkey(key='ctrl shift t')"), hotkey(&["ctrl", "shift", "t"]));
        assert_eq!(actions("hotkey(key='ctrl+c')"), hotkey(&["ctrl", "c"]));
        assert_eq!(actions("hotkey(key='ctrl +')"), hotkey(&["ctrl", "+"]));
        assert_eq!(actions("press(key='enter')"), [Action::Press { key: "enter".into() }]);
    }

    #[test]
    fn errors_have_a_position_and_a_reason() {
        for (text, message) in [
            ("", "the response has no \"Action:\""),
            (
                "Thought: 我\nAction:",
                "at character 18: expected an action like click(start_box='(100,200)'), found the end",
            ),
            (
                "Action: import os",
                "at character 15: expected an opening parenthesis after the action's name, found \"os\"",
            ),
            ("Action: click('(1,2)')", "at character 8: click needs the argument start_box"),
            (
                "Action: click([1, 2])",
                "at character 14: expected an argument like start_box='(100,200)', found \"[1, 2])\"",
            ),
            (
                "Action: click(start_box='(1,2)') and more",
                "at character 32: expected the end, or a blank line and another action, found \" and more\"",
            ),
            (
                "Action: click(start_box='(1,2)')\nwait()",
                "at character 32: expected the end, or a blank line and another action, found \"\\nwait()\"",
            ),
            (
                "Action: click(start_box='(1,2)",
                "at character 24: expected a value with a closing quote, found \"'(1,2)\"",
            ),
            ("Action: click(start_box=5)", "at character 24: expected a quoted value, found \"5)\""),
            (
                "Action: click(a='1' b='2')",
                "at character 20: expected a comma or a closing parenthesis after the argument, found \"b='2')\"",
            ),
            ("Action: click(a='1', a='2')", "at character 21: expected each argument once, found \"a='2')\""),
            (
                "Action: type(content='\\x4')",
                "at character 22: expected an escape that names a character, found \"\\\\x4')\"",
            ),
            ("Action: click()", "at character 8: click needs the argument start_box"),
            (
                "Action: click(start_box='(a,b)')",
                "at character 8: click needs start_box='(x,y)' or start_box='(x1,y1,x2,y2)' with numbers, not \"(a,b)\"",
            ),
            (
                "Action: click(start_box='(1,2,3)')",
                "at character 8: click needs start_box='(x,y)' or start_box='(x1,y1,x2,y2)' with numbers, not \"(1,2,3)\"",
            ),
            ("Action: wait()\n\nhover(x='1')", "at character 16: hover needs the argument start_box"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), message, "{text}");
        }
    }

    /// In these cases the reference does nothing and reports no error.
    #[test]
    fn calls_without_a_needed_argument_do_nothing() {
        for text in [
            "scroll(direction='in')",
            "scroll(start_box='(1,2)')",
            "drag(start_box='(1,2)')",
            "hotkey(key=' ')",
            "press()",
            "keyup(key='')",
            "type()",
        ] {
            assert!(matches!(&actions(text)[..], [Action::Other { .. }]), "{text}");
        }
        for (text, action) in [
            ("wait(5)", Action::Wait {}),
            ("wait() # for the page\nto load", Action::Wait {}),
            ("finished('done')", Action::Finished { content: None }),
            ("press(-1.5e3, 'x', key='a',)", Action::Press { key: "a".into() }),
        ] {
            assert_eq!(actions(text), [action], "{text}");
        }
        assert_eq!(actions("wait() # one\n\nwait()").len(), 2);
    }

    #[test]
    fn thoughts_by_marker() {
        let thought = |text: &str| parse(text).unwrap().thought;
        assert_eq!(
            thought("Thought: one\nAction: wait()\nThought: two\nAction: wait()").as_deref(),
            Some("one")
        );
        assert_eq!(
            thought("Reflection: bad. Action_Summary: again\nAction: wait()").as_deref(),
            Some("again")
        );
        assert_eq!(thought("Action_Summary: go\nAction: wait()").as_deref(), Some("go"));
        assert_eq!(thought("Action: wait()"), None);
    }
}
