//! libxml2's reader of HTML: tags open and close elements on a stack, and nothing is an error but excess.

use super::elements::{ends_before, is_empty, rank};
use super::entities::named;
use super::{Html, Kind};
use crate::error::MetricError;
use std::collections::HashSet;

/// Elements inside each other: deeper ones are refused.
const DEPTH_LIMIT: usize = 250;
const NODES_LIMIT: usize = 4_000_000;

/// Reads a document.
pub fn parse(text: &str) -> Result<Html, MetricError> {
    let mut parser = Parser {
        text,
        at: 0,
        html: Html::empty(),
        open: Vec::new(),
        has_head: false,
        has_body: false,
        dropped: 0,
    };
    parser.skip_blanks();
    while parser.at < text.len() {
        parser.step();
        if parser.open.len() > DEPTH_LIMIT {
            return Err(MetricError::raises("HTML nested too deeply"));
        }
        if parser.html.nodes.len() > NODES_LIMIT {
            return Err(MetricError::raises("HTML of too many nodes"));
        }
    }
    Ok(parser.html)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    html: Html,
    open: Vec<usize>,
    has_head: bool,
    has_body: bool,
    /// Second beginnings of `html`, `head` and `body`, whose ends do not count either.
    dropped: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    fn starts(&self, word: &str) -> bool {
        let found = self.text.as_bytes().get(self.at..self.at + word.len());
        found.is_some_and(|found| found.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// The text before a word, which is skipped with it; or all of the rest.
    fn until(&mut self, word: &str) -> &'a str {
        let rest = self.rest();
        let (text, skipped) = match rest.find(word) {
            Some(end) => (&rest[..end], end + word.len()),
            None => (rest, rest.len()),
        };
        self.at += skipped;
        text
    }

    /// The bytes that meet a condition, which are skipped.
    fn take_while(&mut self, holds: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|letter| !holds(letter)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn skip_blanks(&mut self) {
        self.take_while(is_blank);
    }

    fn step(&mut self) {
        let current = self.current();
        if matches!(current, "script" | "style") && !self.starts("</") {
            return self.raw_text(&format!("</{current}"));
        }
        match (self.byte(0), self.byte(1)) {
            (Some(b'<'), Some(b'/')) => self.end_tag(),
            (Some(b'<'), Some(b'!')) if self.starts("<!doctype") => self.doctype(),
            (Some(b'<'), Some(b'!')) if self.starts("<!--") => self.comment(),
            (Some(b'<'), Some(b'!')) => drop(self.until(">")),
            (Some(b'<'), Some(b'?')) => self.instruction(),
            (Some(b'<'), Some(next)) if next.is_ascii_alphabetic() || matches!(next, b'_' | b':') => {
                self.start_tag();
            }
            (Some(b'<'), _) => {
                self.at += 1;
                self.add_text("<");
            }
            (Some(b'&'), _) => {
                let text = self.reference();
                self.imply_paragraph();
                self.add_text(&text);
            }
            _ => {
                let text = self.take_while(|letter| letter != '<' && letter != '&');
                let is_between_tags = text.chars().all(is_blank) && self.byte(0) != Some(b'&');
                if !is_between_tags {
                    self.imply_paragraph();
                }
                self.add_text(text);
            }
        }
    }

    /// The name of the innermost open element.
    fn current(&self) -> &str {
        self.open.last().map_or("", |number| self.html.name(*number))
    }

    fn is_open(&self, name: &str) -> bool {
        self.open.iter().any(|number| self.html.name(*number) == name)
    }

    fn add(&mut self, kind: Kind) -> usize {
        let parent = self.open.last().copied().unwrap_or(0);
        self.html.add(parent, kind)
    }

    /// Outside of every element there is no text.
    fn add_text(&mut self, text: &str) {
        if !self.open.is_empty() && !text.is_empty() {
            self.add(Kind::Text(text.to_owned()));
        }
    }

    /// Adds what is no content. Before the first element, blanks behind it are none either.
    fn add_aside(&mut self, kind: Kind) {
        self.add(kind);
        if self.html.root().is_none() {
            self.skip_blanks();
        }
    }

    fn push(&mut self, name: &str, attributes: Vec<(String, Option<String>)>) {
        self.has_head |= name == "head";
        self.has_body |= name == "body";
        let number = self.add(Kind::Element(name.to_owned(), attributes));
        self.open.push(number);
    }

    fn end_those_before(&mut self, next: &str) {
        while ends_before(self.current(), next) {
            self.open.pop();
        }
    }

    /// Opens the `html`, `head` or `body` that a new element has to be in.
    fn imply_parents(&mut self, name: &str) {
        if name == "html" {
            return;
        }
        if self.open.is_empty() {
            self.push("html", Vec::new());
        }
        if matches!(name, "body" | "head") {
            return;
        }
        let is_of_head = matches!(name, "script" | "style" | "meta" | "link" | "title" | "base");
        if self.open.len() <= 1 && is_of_head {
            if !self.has_head && !self.has_body {
                self.push("head", Vec::new());
            }
        } else if !matches!(name, "noframes" | "frame" | "frameset")
            && !self.has_body
            && !self.is_open("head")
        {
            self.push("body", Vec::new());
        }
    }

    /// Text in no element, in `html` or in `head` begins a paragraph of the body.
    fn imply_paragraph(&mut self) {
        if matches!(self.current(), "" | "html" | "head") {
            self.end_those_before("p");
            self.imply_parents("p");
            self.push("p", Vec::new());
        }
    }

    fn name(&mut self) -> Option<String> {
        let first = self.rest().chars().next()?;
        let is_first = first.is_ascii_alphabetic() || matches!(first, '_' | ':' | '.');
        let is_part =
            |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, ':' | '-' | '_' | '.');
        is_first.then(|| self.take_while(is_part).to_ascii_lowercase())
    }

    fn start_tag(&mut self) {
        self.at += 1;
        let Some(name) = self.name() else { return };
        self.end_those_before(&name);
        self.imply_parents(&name);
        let is_dropped = match name.as_str() {
            "html" => !self.open.is_empty(),
            "head" => self.open.len() != 1,
            "body" => self.is_open("body"),
            _ => false,
        };
        let attributes = self.attributes();
        let is_closed = self.byte(0) == Some(b'/');
        self.until(">");
        if is_dropped {
            self.dropped += 1;
        } else {
            self.push(&name, attributes);
        }
        // that of a dropped element ends the one around it
        if is_closed || is_empty(&name) {
            self.open.pop();
        }
    }

    /// Up to the `>` or `/>` of the tag. Of two of one name, the first counts.
    fn attributes(&mut self) -> Vec<(String, Option<String>)> {
        let mut attributes: Vec<(String, Option<String>)> = Vec::new();
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
    fn reference(&mut self) -> String {
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

    fn end_tag(&mut self) {
        self.at += 2;
        let Some(name) = self.name() else { return };
        self.until(">");
        if self.dropped > 0 && matches!(name.as_str(), "html" | "head" | "body") {
            self.dropped -= 1;
            return;
        }
        let mut inner = self.open.iter().rev().map(|number| self.html.name(*number));
        let Some(depth) = inner.clone().position(|one| one == name) else { return };
        if inner.by_ref().take(depth).all(|one| rank(one) <= rank(&name)) {
            self.open.truncate(self.open.len() - depth - 1);
        }
    }

    /// A script or a style is text up to its end tag.
    fn raw_text(&mut self, end: &str) {
        let rest = self.rest();
        let is_end = |at: &usize| {
            rest.as_bytes()[*at..]
                .get(..end.len())
                .is_some_and(|found| found.eq_ignore_ascii_case(end.as_bytes()))
        };
        let length = rest.match_indices("</").map(|(at, _)| at).find(is_end).unwrap_or(rest.len());
        self.at += length;
        self.add_text(&rest[..length]);
    }

    /// One without an end takes the rest of the file with it.
    fn comment(&mut self) {
        self.at += "<!--".len();
        let is_whole = self.rest().contains("-->");
        let text = self.until("-->").to_owned();
        if is_whole {
            self.add_aside(Kind::Comment(text));
        }
    }

    fn instruction(&mut self) {
        self.at += "<?".len();
        let target =
            self.take_while(|letter| letter.is_alphanumeric() || matches!(letter, ':' | '-' | '_' | '.'));
        if !target.is_empty() {
            let content = self.until(">").trim_start_matches(is_blank);
            self.add_aside(Kind::Instruction(format!("{target} {content}")));
        }
    }

    /// The name, and the public and system identifiers in double quotes.
    fn doctype(&mut self) {
        self.at += "<!doctype".len();
        let content = self.until(">");
        let (name, rest) =
            content.trim_start_matches(is_blank).split_once(is_blank).unwrap_or((content.trim(), ""));
        let rest = rest.trim_start_matches(is_blank);
        let (word, rest) = rest.split_at_checked("PUBLIC".len()).unwrap_or_default();
        let (first, rest) = literal(rest);
        let text = match (word.to_ascii_uppercase().as_str(), first) {
            ("PUBLIC", Some(public)) => match literal(rest).0 {
                Some(system) => format!("{name} PUBLIC \"{public}\" \"{system}\""),
                None => format!("{name} PUBLIC \"{public}\""),
            },
            ("SYSTEM", Some(system)) => format!("{name} SYSTEM \"{system}\""),
            _ => name.to_owned(),
        };
        self.add_aside(Kind::Doctype(text));
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

fn is_blank(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\n' | '\r')
}

/// The control characters that a document may hold.
fn is_control(code: u32) -> bool {
    matches!(code, 9 | 10 | 13)
}

#[cfg(test)]
mod tests {
    use super::super::pretty;
    use super::*;

    fn written(text: &str) -> String {
        let html = parse(text).unwrap();
        pretty(&html, html.root().unwrap())
    }

    /// lxml 5.3: `tostring(etree.fromstring(text, HTMLParser()), pretty_print=True)`.
    #[test]
    fn trees_are_libxml2_s() {
        for (text, wanted) in [
            ("x", "<html><body><p>x</p></body></html>\n"),
            (
                "<table><tr><td>a<tr><td>b</table>",
                "<html><body><table>\n<tr><td>a</td></tr>\n<tr><td>b</td></tr>\n</table></body></html>\n",
            ),
            ("<b><i>x</b>y</i>", "<html><body>\n<b><i>x</i></b>y</body></html>\n"),
            (
                "<p>a &amp &nbsp; &foo; &#65 b",
                "<html><body><p>a &amp;amp \u{a0} &amp;foo; A b</p></body></html>\n",
            ),
            (
                "<script>a<b</script>c",
                "<html>\n<head><script>a<b</script></head>\n<body><p>c</p></body>\n</html>\n",
            ),
            ("<a href=x b c='d' b=2>", "<html><body><a href=\"x\" b c=\"d\"></a></body></html>\n"),
            (
                "<ul><li>a<ul><li>b</ul><li></ul>",
                "<html><body><ul>\n<li>a<ul><li>b</li></ul>\n</li>\n<li>\n</ul></body></html>\n",
            ),
        ] {
            assert_eq!(written(text), wanted, "{text}");
        }
    }

    #[test]
    fn hostile_pages_end() {
        assert!(parse(&"<div>".repeat(100_000)).is_err());
        for text in [
            "<",
            "</",
            "<!",
            "<?",
            "<a",
            "<a b=",
            "<a b=\"",
            "&",
            "&#",
            "<script>",
            "<!--",
            "<a /",
            "\u{e9}<\u{e9}",
        ] {
            assert!(parse(text).is_ok(), "{text}");
        }
    }
}
