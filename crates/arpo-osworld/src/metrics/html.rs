//! Metrics on HTML: pages node by node, and books, which are archives of pages.

use super::call::yes;
use super::{Call, Metric, Score, metric};
use crate::error::MetricError;
use crate::html::{self, Html, Kind};
use crate::package::Package;
use crate::state::State;
use crate::text::{python, similarity};
use std::collections::BTreeMap;

pub(super) const METRICS: &[Metric] =
    &[metric("compare_epub", compare_epub), metric("compare_htmls", compare_htmls)];

/// The nodes of two pages are equal, as far as the shorter one goes.
///
/// Verified: `ignore_sdnum` leaves out the attribute with which Calc says how a number is shown. The ARPO era has no options.
fn compare_htmls(call: &Call<'_>) -> Score {
    if call.is_arpo_era() && !call.options.is_empty() {
        return Err(MetricError::raises("compare_htmls has no options"));
    }
    let read = |state: &State| html::parse(&state.text()?);
    let (found, wanted) = (read(call.result)?, read(call.expected()?)?);
    let ignored = call.flag("ignore_sdnum", false).then_some("sdnum");
    Ok(yes(html::same_nodes(&found, &wanted, ignored)))
}

/// How alike the parts of two books are, pair by pair in the order of their names.
///
/// ARPO era: the product, so that a result that is no archive scores 1, having no parts. Verified: the sum over the number of
/// the result's parts.
fn compare_epub(call: &Call<'_>) -> Score {
    if call.result.is_none() {
        return Ok(0.0);
    }
    let (found, wanted) = (parts(call, call.result)?, parts(call, call.expected()?)?);
    let scores = found
        .values()
        .zip(wanted.values())
        .map(|(a, b)| similarity::sequence_ratio(&python::split_lines(a), &python::split_lines(b)));
    if call.is_arpo_era() {
        return Ok(scores.product());
    }
    let total: f64 = scores.sum();
    Ok(if found.is_empty() { 0.0 } else { total / found.len() as f64 })
}

/// The table of contents, the package and the pages of a book, each without what differs from one conversion to the next.
fn parts(call: &Call<'_>, book: &State) -> Result<BTreeMap<String, String>, MetricError> {
    let mut parts = BTreeMap::new();
    let Ok(package) = Package::open(&book.file()?.bytes) else { return Ok(parts) };
    let text = |name: &str| -> Result<String, MetricError> {
        String::from_utf8(package.read(name)?)
            .map_err(|error| MetricError::raises(format!("{name}: {error}")))
    };
    for (name, left_out) in [("toc.ncx", "navPoint"), ("content.opf", "dc:identifier")] {
        // Verified goes without; the ARPO era raises, as reading a part that is missing does
        if call.is_arpo_era() || package.has(name) {
            let text = text(name)?;
            let lines = python::split_lines(&text).into_iter().filter(|line| !line.contains(left_out));
            parts.insert(name.to_owned(), lines.collect::<Vec<&str>>().join("\n"));
        }
    }
    let is_page = |name: &&String| name.rsplit_once('.').is_some_and(|(_, ending)| ending == "html");
    for name in package.names().iter().filter(is_page) {
        if name.contains('/') {
            return Err(MetricError::raises(format!("no folder to write {name} to")));
        }
        parts.insert(name.clone(), page(&text(name)?.replace(['\n', '\r'], ""))?);
    }
    Ok(parts)
}

/// A page as `lxml.html` writes it again, in lines.
fn page(text: &str) -> Result<String, MetricError> {
    let mut html = html::parse(&as_decoded(text))?;
    let root = html.root().ok_or_else(|| MetricError::raises("an empty page"))?;
    let start = text.trim_start().to_ascii_lowercase();
    let is_whole = start.starts_with("<html") || start.starts_with("<!doctype");
    let written = if is_whole { root } else { piece(&mut html, root) };
    Ok(without_content_type(&html::pretty(&html, written)))
}

/// What stands for a page without a head: the one node of its body, or the body as a plain element.
fn piece(html: &mut Html, root: usize) -> usize {
    let named = |html: &Html, name: &str| html.elements(root).find(|element| html.name(*element) == name);
    let (Some(body), None) = (named(html, "body"), named(html, "head")) else { return root };
    let (mut nodes, mut has_text) = (Vec::new(), false);
    for child in &html.node(body).children {
        match &html.node(*child).kind {
            Kind::Text(text) => has_text |= !python::strip(text).is_empty(),
            _ => nodes.push(*child),
        }
    }
    if let ([only], false) = (&nodes[..], has_text) {
        return *only;
    }
    let has_block = html.below(body).into_iter().any(|node| BLOCKS.contains(&html.name(node)));
    html.rename(body, if has_block { "div" } else { "span" });
    body
}

/// What lxml takes for blocks.
const BLOCKS: [&str; 40] = [
    "address",
    "blockquote",
    "caption",
    "center",
    "col",
    "colgroup",
    "dd",
    "del",
    "dir",
    "div",
    "dl",
    "dt",
    "fieldset",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "ins",
    "isindex",
    "legend",
    "li",
    "menu",
    "noscript",
    "ol",
    "optgroup",
    "option",
    "p",
    "pre",
    "table",
    "tbody",
    "td",
    "tfoot",
    "th",
    "thead",
    "tr",
    "ul",
];

/// lxml leaves out what says the encoding.
fn without_content_type(written: &str) -> String {
    let mut pieces = written.split("<meta http-equiv=\"Content-Type\"");
    let mut kept = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        kept.push_str(piece.split_once('>').map_or("", |(_, rest)| rest));
    }
    kept
}

/// libxml2 takes bytes for Latin-1 unless the page says what they are before the first that is not ASCII; or behind it, in
/// the long form.
fn as_decoded(text: &str) -> String {
    let Some(first) = text.bytes().position(|byte| !byte.is_ascii()) else { return text.to_owned() };
    let lower = text.to_ascii_lowercase();
    let (before, after) = lower.split_at(first);
    let long = after.split_once("http-equiv").and_then(|(_, rest)| rest.split_once("content"));
    let declared = [Some(before), long.map(|(_, rest)| rest)];
    let is_utf8 = declared
        .into_iter()
        .flatten()
        .find_map(|text| text.split_once("charset="))
        .is_some_and(|(_, charset)| charset.trim_start_matches(['"', '\'']).starts_with("utf-8"));
    if is_utf8 || text.starts_with("<?xm") { text.to_owned() } else { text.bytes().map(char::from).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_decoded_as_they_say() {
        assert_eq!(as_decoded("<p>é"), "<p>Ã©");
        for declared in ["<?xml encoding='utf-8'?><p>é", "<meta charset=\"UTF-8\"><p>é"] {
            assert_eq!(as_decoded(declared), declared);
        }
        let late = "<title>é</title><meta charset=utf-8>";
        assert_ne!(as_decoded(late), late);
    }

    #[test]
    fn a_piece_of_a_page_is_written_alone() {
        assert_eq!(page("<p>a</p>").unwrap(), "<p>a</p>\n");
        assert_eq!(page("<p>a</p>b").unwrap(), "<div>\n<p>a</p>b</div>\n");
        assert_eq!(page("<html><p>a</p>").unwrap(), "<html><body><p>a</p></body></html>\n");
        assert!(page("<!-- a -->").is_err());
    }
}
