//! An odt document as odfpy shows it: its paragraphs, and which spans have which style.

use crate::error::MetricError;
use crate::package::Package;
use crate::state::Bytes;
use crate::xml::parse;
use roxmltree::{Document as Xml, Node};

const TEXT: &str = "urn:oasis:names:tc:opendocument:xmlns:text:1.0";
const STYLE: &str = "urn:oasis:names:tc:opendocument:xmlns:style:1.0";
const FO: &str = "urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0";
const OFFICE: &str = "urn:oasis:names:tc:opendocument:xmlns:office:1.0";

/// A document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Document {
    /// The texts of its paragraphs, those of headers and footers first; headings are not among them.
    pub paragraphs: Vec<String>,
    /// Whether some span's own style paints its background `#ffff00`.
    pub has_yellow_span: bool,
}

impl Document {
    /// Opens a document.
    pub fn open(bytes: &Bytes) -> Result<Self, MetricError> {
        let package = Package::open(bytes)?;
        let read = |name: &str| if package.has(name) { package.xml(name) } else { Ok("<none/>".into()) };
        let (styles, content) = (read("styles.xml")?, package.xml("content.xml")?);
        let (styles, content) = (parse(&styles)?, parse(&content)?);
        let mut out = Self::default();
        let masters = section(&styles, "master-styles");
        for part in masters.into_iter().chain(section(&content, "body")) {
            let paragraphs = part.descendants().filter(|node| node.has_tag_name((TEXT, "p")));
            out.paragraphs.extend(paragraphs.map(paragraph_text));
        }
        let automatic = [&styles, &content].map(|document| section(document, "automatic-styles"));
        let yellow: Vec<&str> =
            automatic.iter().flatten().flat_map(Node::children).filter_map(yellow_name).collect();
        let spans = [&styles, &content].into_iter().flat_map(|document| document.descendants());
        let mut names = spans
            .filter(|node| node.has_tag_name((TEXT, "span")))
            .filter_map(|node| node.attribute((TEXT, "style-name")));
        out.has_yellow_span = names.any(|name| yellow.contains(&name));
        Ok(out)
    }
}

fn section<'a, 'input>(document: &'a Xml<'input>, name: &str) -> Option<Node<'a, 'input>> {
    document.root_element().children().find(|node| node.has_tag_name((OFFICE, name)))
}

/// A style's name, if one of its properties paints the background yellow.
fn yellow_name<'a>(style: Node<'a, '_>) -> Option<&'a str> {
    let mut properties = style.children();
    properties.find(|node| node.attribute((FO, "background-color")) == Some("#ffff00"))?;
    style.attribute((STYLE, "name"))
}

/// Text directly in a paragraph or directly in a span of it; what lies deeper is left out, as in the original.
fn paragraph_text(paragraph: Node) -> String {
    let direct = |node: Node| {
        node.children()
            .filter(Node::is_text)
            .filter_map(|child| child.text().map(str::to_owned))
            .collect::<String>()
    };
    let mut text = String::new();
    for child in paragraph.children() {
        if child.is_text() {
            text.push_str(child.text().unwrap_or_default());
        } else if child.has_tag_name((TEXT, "span")) {
            text.push_str(&direct(child));
        }
    }
    text
}
