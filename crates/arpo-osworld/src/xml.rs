//! XML: decoded and parsed within limits, and searched by the names of elements.

use crate::error::MetricError;
use roxmltree::Node;

/// Deeper or larger XML is refused.
const NODES_LIMIT: u32 = 4_000_000;
const DEPTH_LIMIT: usize = 400;

/// The first child of a name, whatever its namespace.
pub fn child<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    node.children().find(|child| child.tag_name().name() == name)
}

/// The first child of a name in a namespace.
pub fn child_in<'a, 'input>(node: Node<'a, 'input>, space: &str, name: &str) -> Option<Node<'a, 'input>> {
    node.children().find(|child| child.has_tag_name((space, name)))
}

/// The children of a name, whatever their namespace.
pub fn children<'a, 'input>(node: Node<'a, 'input>, name: &str) -> impl Iterator<Item = Node<'a, 'input>> {
    node.children().filter(move |child| child.tag_name().name() == name)
}

/// A node, if it has this name, and all below it that have, in the order of the file.
pub fn descendants<'a, 'input>(node: Node<'a, 'input>, name: &str) -> impl Iterator<Item = Node<'a, 'input>> {
    node.descendants().filter(move |inner| inner.tag_name().name() == name)
}

/// Bytes of an XML document as text: UTF-8, or UTF-16 with its mark.
pub fn xml_text(bytes: &[u8]) -> Result<String, MetricError> {
    let utf16 = |order: fn([u8; 2]) -> u16| {
        let units = bytes[2..].chunks_exact(2).map(|pair| order([pair[0], pair[1]]));
        char::decode_utf16(units)
            .collect::<Result<String, _>>()
            .map_err(|error| MetricError::raises(error.to_string()))
    };
    match bytes {
        [0xff, 0xfe, ..] => utf16(u16::from_le_bytes),
        [0xfe, 0xff, ..] => utf16(u16::from_be_bytes),
        _ => {
            let text = std::str::from_utf8(bytes)
                .map_err(|error| MetricError::raises(format!("not UTF-8: {error}")))?;
            Ok(text.trim_start_matches('\u{feff}').to_owned())
        }
    }
}

/// Parses XML within the limits.
pub fn parse(text: &str) -> Result<roxmltree::Document<'_>, MetricError> {
    if too_deep(text) {
        return Err(MetricError::raises("XML nested too deeply"));
    }
    let options =
        roxmltree::ParsingOptions { allow_dtd: false, nodes_limit: NODES_LIMIT, ..Default::default() };
    roxmltree::Document::parse_with_options(text, options)
        .map_err(|error| MetricError::raises(format!("not XML: {error}")))
}

/// A bound on the nesting from the tags alone: the parser recurses, and a deep document would overflow the stack.
fn too_deep(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(found) = bytes[at..].iter().position(|byte| *byte == b'<') {
        at += found + 1;
        match bytes.get(at) {
            Some(b'/') => depth = depth.saturating_sub(1),
            Some(b'!' | b'?') | None => {}
            Some(_) => {
                let end =
                    bytes[at..].iter().position(|byte| *byte == b'>').map_or(bytes.len(), |end| at + end);
                if bytes.get(end.saturating_sub(1)) != Some(&b'/') {
                    depth += 1;
                }
                if depth > DEPTH_LIMIT {
                    return true;
                }
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_by_name_and_namespace() {
        let document = parse("<a xmlns:n='space'><b x='1'/><n:b x='2'/><c><b x='3'/></c></a>").unwrap();
        let root = document.root_element();
        let of = |node: Option<Node>| node.and_then(|node| node.attribute("x").map(str::to_owned));
        assert_eq!(
            (of(child(root, "b")), of(child_in(root, "space", "b"))),
            (Some("1".into()), Some("2".into()))
        );
        assert_eq!((children(root, "b").count(), descendants(root, "b").count()), (2, 3));
        assert!(child(root, "d").is_none() && descendants(root, "a").count() == 1);
    }

    #[test]
    fn deep_and_hostile_xml_is_an_error() {
        let deep = "<a>".repeat(100_000) + &"</a>".repeat(100_000);
        assert!(parse(&deep).is_err());
        let laughs = "<!DOCTYPE x [<!ENTITY a \"ha\">]><x>&a;</x>";
        assert!(parse(laughs).is_err());
        assert!(parse("<a><b/></a>").is_ok());
    }

    #[test]
    fn utf16_text_is_decoded() {
        let bytes: Vec<u8> =
            [0xff, 0xfe].into_iter().chain("<a/>".encode_utf16().flat_map(u16::to_le_bytes)).collect();
        assert_eq!(xml_text(&bytes).unwrap(), "<a/>");
    }
}
