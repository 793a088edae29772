//! The styles of a workbook: number formats, fonts and fills of its cells.

use crate::error::MetricError;
use crate::package::Package;
use crate::sheet::dates::{self, builtin_format};
use crate::xml::{child, children, parse};
use roxmltree::Node;
use serde_json::{Value, json};

/// A font, as far as rules ask for it. Absent parts are null, as in openpyxl.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Font {
    /// `name`.
    pub name: Value,
    /// `family`.
    pub family: Value,
    /// `color.rgb`; `None` if there is not a colour at all, where asking raises.
    pub color: Option<Value>,
    /// `bold`.
    pub bold: Value,
    /// `italic`.
    pub italic: Value,
    /// `underline`.
    pub underline: Value,
    /// `size`.
    pub size: Value,
}

/// A fill.
#[derive(Debug, Clone, PartialEq)]
pub struct Fill {
    /// `patternFill` or `gradientFill`.
    pub tag: String,
    /// Front colour.
    pub front: Value,
    /// Back colour.
    pub back: Value,
}

impl Default for Fill {
    fn default() -> Self {
        Self { tag: "patternFill".into(), front: json!(NO_COLOR), back: json!(NO_COLOR) }
    }
}

/// What openpyxl says where a file gives no colour.
const NO_COLOR: &str = "00000000";

/// What a cell's style index stands for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CellStyle {
    /// The number format.
    pub format: String,
    /// Into the fonts.
    pub font: usize,
    /// Into the fills.
    pub fill: usize,
    /// Whether numbers are dates.
    pub is_date: bool,
    /// Whether dates are spans.
    pub is_span: bool,
}

/// The styles part of a workbook.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Styles {
    /// By style index.
    pub cells: Vec<CellStyle>,
    /// Fonts.
    pub fonts: Vec<Font>,
    /// Fills.
    pub fills: Vec<Fill>,
    /// What conditions make of a cell's style.
    pub differential: Vec<DifferentialStyle>,
}

/// The parts of a style that a condition changes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DifferentialStyle {
    /// The number format.
    pub format: Option<String>,
    /// The font.
    pub font: Option<Font>,
    /// The fill.
    pub fill: Option<Fill>,
}

impl Styles {
    /// Reads the part, or the defaults of a workbook without one.
    pub fn read(package: &Package, part: &str) -> Result<Self, MetricError> {
        if !package.has(part) {
            return Ok(Self::default());
        }
        let text = package.xml(part)?;
        let document = parse(&text)?;
        let root = document.root_element();
        let section = |name: &str| children(root, name).next().into_iter().flat_map(|node| node.children());
        let custom: Vec<(u32, String)> = section("numFmts")
            .filter_map(|node| {
                Some((node.attribute("numFmtId")?.parse().ok()?, node.attribute("formatCode")?.to_owned()))
            })
            .collect();
        let format_of = |id: u32| {
            let known = custom.iter().find(|(number, _)| *number == id).map(|(_, format)| format.clone());
            known.or_else(|| builtin_format(id).map(str::to_owned)).unwrap_or_else(|| "General".into())
        };
        let number =
            |node: Node, name: &str| node.attribute(name).and_then(|text| text.parse().ok()).unwrap_or(0);
        let cells = section("cellXfs").filter(|node| node.tag_name().name() == "xf").map(|node| {
            let format = format_of(number(node, "numFmtId"));
            let is_date = dates::is_date_format(&format);
            let is_span = is_date && dates::is_span_format(&format);
            let (font, fill) = (number(node, "fontId") as usize, number(node, "fillId") as usize);
            CellStyle { format, font, fill, is_date, is_span }
        });
        Ok(Self {
            cells: cells.collect(),
            fonts: section("fonts").filter(|node| node.tag_name().name() == "font").map(font).collect(),
            fills: section("fills").filter(|node| node.tag_name().name() == "fill").map(fill).collect(),
            differential: section("dxfs")
                .filter(|node| node.tag_name().name() == "dxf")
                .map(|node| DifferentialStyle {
                    format: children(node, "numFmt")
                        .next()
                        .and_then(|node| node.attribute("formatCode"))
                        .map(str::to_owned),
                    font: child(node, "font").map(font),
                    fill: child(node, "fill").map(fill),
                })
                .collect(),
        })
    }

    /// The style of an index; the default style where the file has none.
    pub fn cell(&self, index: usize) -> CellStyle {
        self.cells
            .get(index)
            .cloned()
            .unwrap_or_else(|| CellStyle { format: "General".into(), ..Default::default() })
    }
}

fn font(node: Node) -> Font {
    let child = |name: &str| child(node, name);
    let text = |name: &str| {
        child(name).and_then(|node| node.attribute("val")).map_or(Value::Null, |text| json!(text))
    };
    let number = |name: &str| {
        let text = child(name).and_then(|node| node.attribute("val"));
        text.and_then(|text| text.parse::<f64>().ok()).map_or(Value::Null, |number| json!(number))
    };
    let flag = |name: &str| {
        json!(child(name).is_some_and(|node| !matches!(node.attribute("val"), Some("0" | "false"))))
    };
    Font {
        name: text("name"),
        family: number("family"),
        color: child("color").map(|node| color(Some(node))),
        bold: flag("b"),
        italic: flag("i"),
        underline: child("u").map_or(Value::Null, |node| json!(node.attribute("val").unwrap_or("single"))),
        size: number("sz"),
    }
}

fn fill(node: Node) -> Fill {
    let Some(kind) = node.children().find(Node::is_element) else { return Fill::default() };
    Fill {
        tag: kind.tag_name().name().to_owned(),
        front: color(child(kind, "fgColor")),
        back: color(child(kind, "bgColor")),
    }
}

/// `color.rgb`: eight digits, or, for indexed, theme and automatic colours, something equal only to itself, as
/// openpyxl gives its descriptor there.
fn color(node: Option<Node>) -> Value {
    let Some(node) = node else { return json!(NO_COLOR) };
    if node.has_attribute("indexed") || node.has_attribute("theme") {
        return json!({"not_rgb": true});
    }
    match node.attribute("rgb") {
        Some(rgb) if rgb.len() == 6 => json!(format!("00{rgb}")),
        Some(rgb) => json!(rgb),
        None if node.has_attribute("auto") => json!({"not_rgb": true}),
        None => json!(NO_COLOR),
    }
}
