//! Two documents node by node, as Beautiful Soup holds them: white space alone is one blank or one line break, and
//! classes are words.

use super::{Html, Kind};
use crate::text::python;

/// Attributes whose value is a list of words, by element; `*` is any.
const LISTS: &[(&str, &[&str])] = &[
    ("*", &["class", "accesskey", "dropzone"]),
    ("a", &["rel", "rev"]),
    ("area", &["rel"]),
    ("form", &["accept-charset"]),
    ("icon", &["sizes"]),
    ("iframe", &["sandbox"]),
    ("link", &["rel", "rev"]),
    ("object", &["archive"]),
    ("output", &["for"]),
    ("td", &["headers"]),
    ("th", &["headers"]),
];

/// Whether all pairs of nodes are equal, in the order of the files: elements with their whole text and their attributes,
/// without the one that is ignored; any other node by its text. What one document has more at its end does not count.
pub fn same_nodes(a: &Html, b: &Html, ignored: Option<&str>) -> bool {
    let (a, b) = (Soup::of(a), Soup::of(b));
    a.nodes.iter().zip(&b.nodes).all(|(one, other)| a.is_same(*one, &b, *other, ignored))
}

struct Soup<'a> {
    html: &'a Html,
    nodes: Vec<usize>,
    /// By node: whether white space counts there.
    keeps_space: Vec<bool>,
}

impl<'a> Soup<'a> {
    fn of(html: &'a Html) -> Self {
        let nodes = html.below(0);
        let mut keeps_space = vec![false; nodes.iter().max().map_or(1, |last| last + 1)];
        for number in &nodes {
            // a parent comes before what is in it
            let keeps = keeps_space[*number] || matches!(html.name(*number), "pre" | "textarea");
            for child in &html.node(*number).children {
                keeps_space[*child] = keeps;
            }
        }
        Self { html, nodes, keeps_space }
    }

    fn is_same(&self, number: usize, other: &Self, at: usize, ignored: Option<&str>) -> bool {
        match (&self.html.node(number).kind, &other.html.node(at).kind) {
            (Kind::Element(name, attributes), Kind::Element(other_name, other_attributes)) => {
                let same = |attributes| {
                    sorted(name, attributes, None) == sorted(name, other_attributes, None)
                        || ignored.is_some_and(|key| {
                            sorted(name, attributes, Some(key)) == sorted(name, other_attributes, Some(key))
                        })
                };
                name == other_name
                    && same(attributes)
                    && python::strip(&self.text(number)) == python::strip(&other.text(at))
            }
            (Kind::Element(..), _) | (_, Kind::Element(..)) => false,
            _ => self.string(number) == other.string(at),
        }
    }

    /// The text of a node that is no element.
    fn string(&self, number: usize) -> &str {
        match &self.html.node(number).kind {
            Kind::Text(text) | Kind::Comment(text) | Kind::Instruction(text) | Kind::Doctype(text) => {
                let is_space =
                    text.chars().all(|letter| matches!(letter, ' ' | '\n' | '\t' | '\u{c}' | '\r'));
                match (is_space && !self.keeps_space[number], text.contains('\n')) {
                    (false, _) => text,
                    (true, true) => "\n",
                    (true, false) => " ",
                }
            }
            Kind::Document | Kind::Element(..) => "",
        }
    }

    /// All text in an element. That of scripts, styles and templates is their own only.
    fn text(&self, number: usize) -> String {
        let mut text = String::new();
        let mut open = vec![number];
        let is_apart = |name: &str| matches!(name, "script" | "style" | "template");
        while let Some(next) = open.pop() {
            if let Kind::Text(_) = self.html.node(next).kind {
                text.push_str(self.string(next));
            } else if next == number || !is_apart(self.html.name(next)) {
                open.extend(self.html.node(next).children.iter().rev());
            }
        }
        text
    }
}

/// Attributes by name, with lists as words in their order.
fn sorted<'a>(
    element: &str,
    attributes: &'a [(String, Option<String>)],
    ignored: Option<&str>,
) -> Vec<(&'a str, Vec<&'a str>)> {
    let is_list = |name: &str| {
        let of = LISTS.iter().filter(|(one, _)| *one == "*" || *one == element);
        of.flat_map(|(_, names)| *names).any(|one| *one == name)
    };
    let kept = attributes.iter().filter(|(name, _)| Some(name.as_str()) != ignored);
    let mut sorted: Vec<(&str, Vec<&str>)> = kept
        .map(|(name, value)| {
            let value = value.as_deref().unwrap_or_default();
            (name.as_str(), if is_list(name) { python::words(value).collect() } else { vec![value] })
        })
        .collect();
    sorted.sort_unstable();
    sorted
}
