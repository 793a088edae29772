//! The grammar of actions: calls with named string arguments, `name(key='value', ...)`, separated by blank lines. The
//! meaning of the calls is defined in `vocabulary`.
//!
//! Strings are Python's, with one exception: models often leave quotes in the text of `content` unescaped, so such a
//! string only ends at a quote that also ends the call.

use crate::parse::{ParseError, syntax_error};

/// One call as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) name: String,
    /// In the order written, without duplicate names.
    pub(crate) arguments: Vec<(String, String)>,
    /// Where it begins: a byte position in the response.
    pub(crate) at: usize,
}

impl Call {
    pub(crate) fn argument(&self, name: &str) -> Option<&str> {
        self.arguments.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Parses the calls in `response` from byte `start` on; at least one.
pub(crate) fn calls(response: &str, start: usize) -> Result<Vec<Call>, ParseError> {
    let mut cursor = Cursor { text: response, at: start };
    let mut calls = Vec::new();
    loop {
        cursor.skip_whitespace();
        calls.push(cursor.call()?);
        if cursor.at == response.len() {
            return Ok(calls);
        }
    }
}

/// The white space between two tokens.
#[derive(PartialEq)]
enum Gap {
    None,
    BlankLine,
    End,
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl Cursor<'_> {
    fn call(&mut self) -> Result<Call, ParseError> {
        let at = self.at;
        let mut name = self.name("an action like click(start_box='(100,200)')")?;
        while self.take('.') {
            name = self.name("a name after the dot")?;
        }
        self.skip_whitespace();
        self.expect('(', "an opening parenthesis after the action's name")?;
        let arguments = self.arguments()?;
        let end = self.at;
        if self.skip_gap() == Gap::None {
            self.at = end;
            return Err(self.wrong("the end, or a blank line and another action"));
        }
        Ok(Call { name, arguments, at })
    }

    fn arguments(&mut self) -> Result<Vec<(String, String)>, ParseError> {
        let mut arguments: Vec<(String, String)> = Vec::new();
        loop {
            self.skip_whitespace();
            if self.take(')') {
                return Ok(arguments);
            }
            let at = self.at;
            if let Some(argument) = self.argument()? {
                if arguments.iter().any(|(known, _)| *known == argument.0) {
                    self.at = at;
                    return Err(self.wrong("each argument once"));
                }
                arguments.push(argument);
            }
            self.skip_whitespace();
            if !self.take(',') && self.peek() != Some(')') {
                return Err(self.wrong("a comma or a closing parenthesis after the argument"));
            }
        }
    }

    /// A named argument, or nothing for a positional one: the reference ignores those.
    fn argument(&mut self) -> Result<Option<(String, String)>, ParseError> {
        match self.peek() {
            Some('\'' | '"') => return self.string(false).map(|_| None),
            Some('0'..='9' | '-' | '.') => {
                let rest = &self.text[self.at..];
                self.at += rest
                    .find(|c: char| !(c.is_ascii_alphanumeric() || "+-._".contains(c)))
                    .unwrap_or(rest.len());
                return Ok(None);
            }
            _ => {}
        }
        let name = self.name("an argument like start_box='(100,200)'")?;
        self.skip_whitespace();
        self.expect('=', "an equals sign after the argument's name")?;
        self.skip_whitespace();
        let value = self.string(name == "content")?;
        Ok(Some((name, value)))
    }

    fn name(&mut self, expected: &str) -> Result<String, ParseError> {
        let rest = &self.text[self.at..];
        let end =
            rest.find(|c: char| !(c.is_alphabetic() || c.is_ascii_digit() || c == '_')).unwrap_or(rest.len());
        let name = &rest[..end];
        if name.is_empty() || name.starts_with(char::is_numeric) {
            return Err(self.wrong(expected));
        }
        self.at += end;
        Ok(name.to_owned())
    }

    /// A quoted string. A `lenient` one ends only where the call also ends, so that quotes inside need no escape.
    fn string(&mut self, lenient: bool) -> Result<String, ParseError> {
        let Some(quote @ ('\'' | '"')) = self.peek() else {
            return Err(self.wrong("a quoted value"));
        };
        let opening = self.at;
        self.at += 1;
        let mut value = String::new();
        while let Some(c) = self.next() {
            match c {
                '\\' => self.escape(&mut value)?,
                c if c == quote && (!lenient || self.call_ends_here()) => return Ok(value),
                c => value.push(c),
            }
        }
        self.at = opening;
        Err(self.wrong("a value with a closing quote"))
    }

    /// Whether only a closing parenthesis and then a blank line or the end follow.
    fn call_ends_here(&self) -> bool {
        let mut ahead = Cursor { text: self.text, at: self.at };
        ahead.skip_whitespace();
        ahead.take(',');
        ahead.skip_whitespace();
        ahead.take(')') && ahead.skip_gap() != Gap::None
    }

    /// An escape sequence, as in Python: an unknown one stays as it is.
    fn escape(&mut self, value: &mut String) -> Result<(), ParseError> {
        let at = self.at - 1;
        let Some(c) = self.next() else {
            return Ok(());
        };
        match c {
            '\n' => {}
            '\\' | '\'' | '"' => value.push(c),
            'n' => value.push('\n'),
            't' => value.push('\t'),
            'r' => value.push('\r'),
            'a' => value.push('\u{7}'),
            'b' => value.push('\u{8}'),
            'f' => value.push('\u{c}'),
            'v' => value.push('\u{b}'),
            '0'..='7' => {
                let rest = &self.text[at + 1..];
                let digits = rest.bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
                value.push(self.code_point(at, at + 1..at + 1 + digits, 8)?);
            }
            'x' => value.push(self.code_point(at, at + 2..at + 4, 16)?),
            'u' => value.push(self.code_point(at, at + 2..at + 6, 16)?),
            'U' => value.push(self.code_point(at, at + 2..at + 10, 16)?),
            c => value.extend(['\\', c]),
        }
        Ok(())
    }

    /// Reads the digits at `range` and moves past them; `at` is where the escape begins.
    fn code_point(
        &mut self,
        at: usize,
        range: std::ops::Range<usize>,
        radix: u32,
    ) -> Result<char, ParseError> {
        let end = range.end;
        let digits = self.text.get(range).filter(|digits| digits.chars().all(|c| c.is_digit(radix)));
        let number = digits.and_then(|digits| u32::from_str_radix(digits, radix).ok());
        if let Some(c) = number.and_then(char::from_u32) {
            self.at = end;
            return Ok(c);
        }
        self.at = at;
        Err(self.wrong("an escape that names a character"))
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn take(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        if found {
            self.at += c.len_utf8();
        }
        found
    }

    fn expect(&mut self, c: char, expected: &str) -> Result<(), ParseError> {
        if self.take(c) { Ok(()) } else { Err(self.wrong(expected)) }
    }

    fn skip_whitespace(&mut self) -> Gap {
        let rest = &self.text[self.at..];
        let gap = &rest[..rest.len() - rest.trim_start().len()];
        self.at += gap.len();
        if self.at == self.text.len() {
            Gap::End
        } else if gap.matches('\n').count() > 1 {
            Gap::BlankLine
        } else {
            Gap::None
        }
    }

    /// Skips white space after a call, and a comment up to the next blank line, as Python would.
    fn skip_gap(&mut self) -> Gap {
        let gap = self.skip_whitespace();
        if gap == Gap::None && self.peek() == Some('#') {
            let rest = &self.text[self.at..];
            self.at += rest.find("\n\n").unwrap_or(rest.len());
            return self.skip_whitespace();
        }
        gap
    }

    /// The error at the current position.
    fn wrong(&self, expected: &str) -> ParseError {
        syntax_error(self.text, self.at, expected)
    }
}
