//! The pieces of an HTML file as libxml2 reads them: names, attributes, references, and what stands outside of elements.
//! What they mean for the tree is decided elsewhere.

use super::entities::named;
use std::collections::HashSet;

/// Names with their values, in order; some have none.
pub(super) type Attributes = Vec<(String, Option<String>)>;

/// A place in a text.
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at >= self.text.len()
    }

    /// Skips bytes that have been looked at.
    pub(super) fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    pub(super) fn starts(&self, word: &str) -> bool {
        let found = self.text.as_bytes().get(self.at..self.at + word.len());
        found.is_some_and(|found| found.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// The text before a word, which is skipped with it; or all of the rest.
    pub(super) fn until(&mut self, word: &str) -> &'a str {
        let rest = self.rest();
        let (text, skipped) = match rest.find(word) {
            Some(end) => (&rest[..end], end + word.len()),
            None => (rest, rest.len()),
        };
        self.at += skipped;
        text
    }

    /// The bytes that meet a condition, which are skipped.
    pub(super) fn take_while(&mut self, holds: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|letter| !holds(letter)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    pub(super) fn skip_blanks(&mut self) {
        self.take_while(is_blank);
    }

    pub(super) fn name(&mut self) -> Option<String> {
        let first = self.rest().chars().next()?;
        let is_first = first.is_ascii_alphabetic() || matches!(first, '_' | ':' | '.');
        let is_part =
            |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, ':' | '-' | '_' | '.');
        is_first.then(|| self.take_while(is_part).to_ascii_lowercase())
    }

    /// Up to the `>` or `/>` of the tag. Of two of one name, the first counts.
    pub(super) fn attributes(&mut self) -> Attributes {
        let mut attributes = Attributes::new();
        let mut names = HashSet::new();
        loop {
            self.skip_blanks();
            match (self.byte(0), self.byte(1)) {
                (None | Some(b'>'), _) | (Some(b'/'), Some(b'>')) => return attributes,
                _ => {}
            }
            let Some(name) = self.name() else {
                let bogus = self.take_while(|letter| !is_blank(letter) && letter != '>');
                // the slash of `/>` is the tag's
                self.at -= usize::from(bogus.ends_with('/') && self.byte(0) == Some(b'>'));
                continue;
            };
            self.skip_blanks();
            let value = if self.byte(0) == Some(b'=') {
                self.at += 1;
                self.skip_blanks();
                Some(self.value())
            } else {
                None
            };
            if names.insert(name.clone()) {
                attributes.push((name, value));
            }
        }
    }

    fn value(&mut self) -> String {
        let quote = self.byte(0).filter(|byte| matches!(byte, b'"' | b'\'')).map(char::from);
        self.at += usize::from(quote.is_some());
        let ends = |letter: char| match quote {
            Some(quote) => letter == quote,
            None => letter == '>' || is_blank(letter),
        };
        let mut value = String::new();
        loop {
            value.push_str(self.take_while(|letter| letter != '&' && !ends(letter)));
            if self.byte(0) != Some(b'&') {
                break;
            }
            value.push_str(&self.reference());
        }
        self.at += usize::from(quote.is_some() && self.at < self.text.len());
        value
    }

    /// A character by its number or its name; what is neither stays as it is. A name needs its semicolon.
    pub(super) fn reference(&mut self) -> String {
        self.at += 1;
        if self.byte(0) == Some(b'#') {
            self.at += 1;
            let is_hexadecimal = self.byte(0).is_some_and(|byte| byte.eq_ignore_ascii_case(&b'x'));
            self.at += usize::from(is_hexadecimal);
            let radix = if is_hexadecimal { 16 } else { 10 };
            let digits = self.take_while(|letter| letter.is_digit(radix));
            self.at += usize::from(self.byte(0) == Some(b';'));
            let letter =
                u32::from_str_radix(digits, radix).ok().filter(|code| *code >= 32 || is_control(*code));
            return letter.and_then(char::from_u32).map(String::from).unwrap_or_default();
        }
        let starts = self.rest().starts_with(|letter: char| letter.is_alphabetic() || letter == '_');
        let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, ':' | '-' | '_' | '.');
        let name = if starts { self.take_while(is_part) } else { "" };
        match named(name).filter(|_| self.byte(0) == Some(b';')) {
            Some(letter) => {
                self.at += 1;
                letter.into()
            }
            None => format!("&{name}"),
        }
    }

    /// The text before an end tag, which is not skipped; or all of the rest.
    pub(super) fn before_tag(&mut self, end: &str) -> &'a str {
        let rest = self.rest();
        let is_end = |at: &usize| {
            rest.as_bytes()[*at..]
                .get(..end.len())
                .is_some_and(|found| found.eq_ignore_ascii_case(end.as_bytes()))
        };
        let length = rest.match_indices("</").map(|(at, _)| at).find(is_end).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    /// One without an end takes the rest of the file with it.
    pub(super) fn comment(&mut self) -> Option<&'a str> {
        self.at += "<!--".len();
        let is_whole = self.rest().contains("-->");
        let text = self.until("-->");
        is_whole.then_some(text)
    }

    pub(super) fn instruction(&mut self) -> Option<String> {
        self.at += "<?".len();
        let target =
            self.take_while(|letter| letter.is_alphanumeric() || matches!(letter, ':' | '-' | '_' | '.'));
        if target.is_empty() {
            return None;
        }
        let content = self.until(">").trim_start_matches(is_blank);
        Some(format!("{target} {content}"))
    }

    /// The name, and the public and system identifiers in double quotes.
    pub(super) fn doctype(&mut self) -> String {
        self.at += "<!doctype".len();
        let content = self.until(">");
        let (name, rest) =
            content.trim_start_matches(is_blank).split_once(is_blank).unwrap_or((content.trim(), ""));
        let rest = rest.trim_start_matches(is_blank);
        let (word, rest) = rest.split_at_checked("PUBLIC".len()).unwrap_or_default();
        let (first, rest) = literal(rest);
        match (word.to_ascii_uppercase().as_str(), first) {
            ("PUBLIC", Some(public)) => match literal(rest).0 {
                Some(system) => format!("{name} PUBLIC \"{public}\" \"{system}\""),
                None => format!("{name} PUBLIC \"{public}\""),
            },
            ("SYSTEM", Some(system)) => format!("{name} SYSTEM \"{system}\""),
            _ => name.to_owned(),
        }
    }
}

/// A text in quotes, and what follows.
fn literal(text: &str) -> (Option<&str>, &str) {
    let text = text.trim_start_matches(is_blank);
    let Some(quote) = text.chars().next().filter(|letter| matches!(letter, '"' | '\'')) else {
        return (None, text);
    };
    match text[1..].split_once(quote) {
        Some((inside, rest)) => (Some(inside), rest),
        None => (None, text),
    }
}

pub(super) fn is_blank(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\n' | '\r')
}

/// The control characters that a document may hold.
fn is_control(code: u32) -> bool {
    matches!(code, 9 | 10 | 13)
}
