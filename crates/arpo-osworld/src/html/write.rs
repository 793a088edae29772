//! HTML in lines, as lxml's `tostring(element, pretty_print=True)` writes it.

use super::elements::{is_block, is_empty};
use super::{Html, Kind};

/// The text of an element and what is in it. Line breaks stand around blocks, never beside text.
pub fn pretty(html: &Html, number: usize) -> String {
    let mut out = String::new();
    write(html, number, &mut out);
    out.push('\n');
    out
}

fn write(html: &Html, number: usize, out: &mut String) {
    let node = html.node(number);
    match &node.kind {
        Kind::Text(text) => push_escaped(out, text, None),
        Kind::Comment(text) => out.extend(["<!--", text, "-->"]),
        Kind::Instruction(text) => out.extend(["<?", text, ">"]),
        Kind::Document | Kind::Doctype(_) => {}
        Kind::Element(name, attributes) => {
            out.extend(["<", name]);
            for (key, value) in attributes {
                out.extend([" ", key]);
                if let Some(value) = value {
                    let quote = if value.contains('"') && !value.contains('\'') { '\'' } else { '"' };
                    out.extend(['=', quote]);
                    push_escaped(out, value, Some(quote));
                    out.push(quote);
                }
            }
            out.push('>');
            if !is_empty(name) {
                write_content(html, number, out);
            }
        }
    }
}

fn write_content(html: &Html, number: usize, out: &mut String) {
    let (name, children) = (html.name(number), &html.node(number).children);
    let (Some(first), Some(last)) = (children.first(), children.last()) else {
        // an empty item of a list is the one element whose end is left out
        if name != "li" {
            out.extend(["</", name, ">"]);
        }
        return;
    };
    let is_text = |child: usize| matches!(html.node(child).kind, Kind::Text(_));
    // p, pre and param
    let breaks = is_block(name) && children.len() > 1 && !name.starts_with('p');
    if breaks && !is_text(*first) {
        out.push('\n');
    }
    for (at, child) in children.iter().enumerate() {
        match &html.node(*child).kind {
            Kind::Text(text) if matches!(name, "script" | "style") => out.push_str(text),
            _ => write(html, *child, out),
        }
        let next_is_node = children.get(at + 1).is_some_and(|next| !is_text(*next));
        if next_is_node && is_block(html.name(*child)) && !name.starts_with('p') {
            out.push('\n');
        }
    }
    if breaks && !is_text(*last) {
        out.push('\n');
    }
    out.extend(["</", name, ">"]);
}

fn push_escaped(out: &mut String, text: &str, quote: Option<char>) {
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\r' => out.push_str("&#13;"),
            '"' if quote == Some('"') => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
}
