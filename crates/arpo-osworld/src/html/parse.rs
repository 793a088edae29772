//! libxml2's reader of HTML: tags open and close elements on a stack, and nothing is an error but excess.

use super::elements::{ends_before, is_empty, rank};
use super::scan::{Attributes, Scanner, is_blank};
use super::{Html, Kind};
use crate::error::MetricError;

/// Elements inside each other: deeper ones are refused.
const DEPTH_LIMIT: usize = 250;
const NODES_LIMIT: usize = 4_000_000;

/// Reads a document.
pub fn parse(text: &str) -> Result<Html, MetricError> {
    let mut parser = Parser {
        scanner: Scanner::new(text),
        html: Html::empty(),
        open: Vec::new(),
        has_head: false,
        has_body: false,
        dropped: 0,
    };
    parser.scanner.skip_blanks();
    while !parser.scanner.is_at_end() {
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
    scanner: Scanner<'a>,
    html: Html,
    open: Vec<usize>,
    has_head: bool,
    has_body: bool,
    /// Second beginnings of `html`, `head` and `body`, whose ends do not count either.
    dropped: usize,
}

impl Parser<'_> {
    fn step(&mut self) {
        let current = self.current();
        if matches!(current, "script" | "style") && !self.scanner.starts("</") {
            return self.raw_text(&format!("</{current}"));
        }
        match (self.scanner.byte(0), self.scanner.byte(1)) {
            (Some(b'<'), Some(b'/')) => self.end_tag(),
            (Some(b'<'), Some(b'!')) if self.scanner.starts("<!doctype") => self.doctype(),
            (Some(b'<'), Some(b'!')) if self.scanner.starts("<!--") => self.comment(),
            (Some(b'<'), Some(b'!')) => drop(self.scanner.until(">")),
            (Some(b'<'), Some(b'?')) => self.instruction(),
            (Some(b'<'), Some(next)) if next.is_ascii_alphabetic() || matches!(next, b'_' | b':') => {
                self.start_tag();
            }
            (Some(b'<'), _) => {
                self.scanner.skip(1);
                self.add_text("<");
            }
            (Some(b'&'), _) => {
                let text = self.scanner.reference();
                self.imply_paragraph();
                self.add_text(&text);
            }
            _ => {
                let text = self.scanner.take_while(|letter| letter != '<' && letter != '&');
                let is_between_tags = text.chars().all(is_blank) && self.scanner.byte(0) != Some(b'&');
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
            self.scanner.skip_blanks();
        }
    }

    fn push(&mut self, name: &str, attributes: Attributes) {
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

    fn start_tag(&mut self) {
        self.scanner.skip(1);
        let Some(name) = self.scanner.name() else { return };
        self.end_those_before(&name);
        self.imply_parents(&name);
        let is_dropped = match name.as_str() {
            "html" => !self.open.is_empty(),
            "head" => self.open.len() != 1,
            "body" => self.is_open("body"),
            _ => false,
        };
        let attributes = self.scanner.attributes();
        let is_closed = self.scanner.byte(0) == Some(b'/');
        self.scanner.until(">");
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

    fn end_tag(&mut self) {
        self.scanner.skip(2);
        let Some(name) = self.scanner.name() else { return };
        self.scanner.until(">");
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
        let text = self.scanner.before_tag(end);
        self.add_text(text);
    }

    fn comment(&mut self) {
        if let Some(text) = self.scanner.comment() {
            self.add_aside(Kind::Comment(text.to_owned()));
        }
    }

    fn instruction(&mut self) {
        if let Some(text) = self.scanner.instruction() {
            self.add_aside(Kind::Instruction(text));
        }
    }

    fn doctype(&mut self) {
        let text = self.scanner.doctype();
        self.add_aside(Kind::Doctype(text));
    }
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
