//! The accessibility tree as an XML document in OSWorld's form: a role is an element, properties are attributes in the
//! namespaces of the interfaces they come from.

use std::fmt::Write;

/// A namespace of the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespace {
    /// No namespace.
    None,
    /// States.
    State,
    /// What a toolkit adds.
    Attribute,
    /// Position and size.
    Component,
    /// Numbers.
    Value,
    /// Actions.
    Action,
}

impl Namespace {
    fn prefix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::State => "st:",
            Self::Attribute => "attr:",
            Self::Component => "cp:",
            Self::Value => "val:",
            Self::Action => "act:",
        }
    }
}

/// Prefixes with the ends of their addresses; clients declare them all, so all are declared here.
const NAMESPACES: [(&str, &str); 8] = [
    ("st", "state"),
    ("attr", "attributes"),
    ("cp", "component"),
    ("doc", "document"),
    ("docattr", "document/attributes"),
    ("txt", "text"),
    ("val", "value"),
    ("act", "action"),
];
const ADDRESS: &str = "https://accessibility.ubuntu.example.org/ns/";

/// An accessible object and its children.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    /// What it is.
    pub role: String,
    /// Its text.
    pub text: String,
    /// Its children.
    pub children: Vec<Node>,
    attributes: Vec<(Namespace, String, String)>,
}

impl Node {
    /// A node of a role, without attributes.
    pub fn new(role: &str) -> Self {
        Self { role: role.trim().to_owned(), ..Self::default() }
    }

    /// Sets an attribute; the last value wins.
    pub fn set(&mut self, namespace: Namespace, name: &str, value: impl Into<String>) {
        let value = value.into();
        match self.attributes.iter_mut().find(|(given, known, _)| *given == namespace && known == name) {
            Some(known) => known.2 = value,
            None => self.attributes.push((namespace, name.to_owned(), value)),
        }
    }

    /// The value of an attribute.
    pub fn get(&self, namespace: Namespace, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(given, known, _)| *given == namespace && known == name);
        found.map(|(_, _, value)| value.as_str())
    }

    /// Whether a state holds.
    pub fn is(&self, state: &str) -> bool {
        self.get(Namespace::State, state).is_some()
    }

    /// It and all its descendants, breadth first.
    pub fn all(&self) -> Vec<&Self> {
        let mut all = vec![self];
        let mut at = 0;
        while let Some(node) = all.get(at).copied() {
            all.extend(&node.children);
            at += 1;
        }
        all
    }

    /// The document with this as its root.
    pub fn document(&self) -> String {
        let mut declared = String::new();
        for (prefix, end) in NAMESPACES {
            write!(declared, " xmlns:{prefix}=\"{ADDRESS}{end}\"").expect("writing to memory succeeds");
        }
        let mut text = String::new();
        self.write(&mut text, &declared);
        text
    }

    fn write(&self, text: &mut String, declared: &str) {
        let tag = name_of(if self.role.is_empty() { "unknown" } else { &self.role });
        text.extend(["<", &tag, declared]);
        for (namespace, name, value) in &self.attributes {
            text.extend([" ", namespace.prefix(), &name_of(name), "=\""]);
            escape(value, text);
            text.push('"');
        }
        if self.text.is_empty() && self.children.is_empty() {
            text.push_str("/>");
            return;
        }
        text.push('>');
        escape(&self.text, text);
        for child in &self.children {
            child.write(text, "");
        }
        text.extend(["</", &tag, ">"]);
    }
}

/// A valid XML name: applications may send others, and one of them must not break the document.
fn name_of(given: &str) -> String {
    let is_first = |letter: char| {
        matches!(letter,
            '_' | 'A'..='Z' | 'a'..='z' | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}'
            | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}' | '\u{200c}'..='\u{200d}' | '\u{2070}'..='\u{218f}'
            | '\u{2c00}'..='\u{2fef}' | '\u{3001}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}'
            | '\u{fdf0}'..='\u{fffd}' | '\u{10000}'..='\u{effff}')
    };
    let is_allowed = |letter: char| is_first(letter) || letter.is_ascii_digit() || "-.".contains(letter);
    let name: String = given.chars().map(|letter| if is_allowed(letter) { letter } else { '-' }).collect();
    if name.starts_with(is_first) { name } else { format!("_{name}") }
}

/// Escapes text for XML; characters that XML forbids are dropped.
fn escape(given: &str, text: &mut String) {
    for character in given.chars() {
        match character {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&quot;"),
            // a parser would turn these into blanks in an attribute
            '\n' => text.push_str("&#10;"),
            '\t' => text.push_str("&#9;"),
            '\r' => text.push_str("&#13;"),
            '\0'..='\x1f' | '\u{fffe}' | '\u{ffff}' => {}
            other => text.push(other),
        }
    }
}

/// A number as Python shows it.
pub fn number(value: f64) -> String {
    const LEAST_PLAIN: f64 = 1e-4;
    const FIRST_LONG: f64 = 1e16;
    let size = value.abs();
    if value.is_nan() {
        "nan".into()
    } else if size == 0.0 || size.is_infinite() || (LEAST_PLAIN..FIRST_LONG).contains(&size) {
        format!("{value:?}")
    } else {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let sign = if exponent.starts_with('-') { '-' } else { '+' };
        format!("{digits}e{sign}{:0>2}", exponent.trim_start_matches('-'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ST: &str = "https://accessibility.ubuntu.example.org/ns/state";

    #[test]
    fn a_document_in_osworlds_form() {
        let mut button = Node::new("push button");
        button.set(Namespace::None, "name", "Save & \"close\"");
        button.set(Namespace::State, "focused", "true");
        button.set(Namespace::Component, "screencoord", "(1, 2)");
        button.text = "a<b\n".into();
        let mut root = Node::new("desktop frame");
        root.children = vec![button, Node::new("")];
        let text = root.document();
        let document = roxmltree::Document::parse(&text).unwrap();
        assert_eq!(document.root_element().tag_name().name(), "desktop-frame");
        let button = document.root_element().first_element_child().unwrap();
        assert_eq!(button.tag_name().name(), "push-button");
        assert_eq!(button.attribute("name"), Some("Save & \"close\""));
        assert_eq!(button.attribute((ST, "focused")), Some("true"));
        assert_eq!(button.text(), Some("a<b\n"));
        assert_eq!(button.next_sibling_element().unwrap().tag_name().name(), "unknown");
        assert_eq!(document.root_element().namespaces().count(), NAMESPACES.len());
    }

    #[test]
    fn numbers_are_shown_as_by_python() {
        for (value, shown) in [
            (0.0, "0.0"),
            (100.0, "100.0"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e-5, "1.5e-05"),
            (1.797e308, "1.797e+308"),
            (f64::INFINITY, "inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(number(value), shown);
        }
    }

    proptest! {
        #[test]
        fn any_text_gives_a_valid_document(role in ".{0,8}", name in ".{0,8}", value in ".{0,20}") {
            let mut node = Node::new(&role);
            node.set(Namespace::Attribute, &name, value.clone());
            node.text = value;
            let text = node.document();
            prop_assert!(roxmltree::Document::parse(&text).is_ok(), "{}", text);
        }
    }
}
