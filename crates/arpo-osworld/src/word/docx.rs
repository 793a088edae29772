//! A docx document as python-docx shows it: paragraphs of the body, their runs, tables, images, sections.
//!
//! Only a run's or a paragraph's own formatting counts; what it inherits from a style does not, as in python-docx.

use crate::error::MetricError;
use crate::package::Package;
use crate::state::Bytes;
use crate::xml::{child_in, parse};
use roxmltree::Node;

const W: &str = "http://schemas.openxmlformats.org/wordprocessingml/2006/main";
const EMU_PER_TWIP: f64 = 635.0;
const EMU_PER_LINE: f64 = 152_400.0;

/// A run of equal formatting.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Run {
    /// Its text; tabs and line breaks are in it, page breaks are not.
    pub text: String,
    /// The font named for it.
    pub font: Option<String>,
    /// Size in points.
    pub size_pt: Option<f64>,
    /// Italic, if set.
    pub italic: Option<bool>,
    /// Struck through, if set.
    pub strike: Option<bool>,
    /// Subscript, if set.
    pub subscript: Option<bool>,
    /// Colour, as six digits; automatic is none.
    pub color: Option<String>,
    /// Breaks to a new page in it.
    pub page_breaks: usize,
    /// Whether it contains an image.
    pub has_graphic: bool,
    /// Whether it contains an embedded object, such as an equation.
    pub has_object: bool,
}

/// A stop of the tabulator.
#[derive(Debug, Clone, PartialEq)]
pub struct TabStop {
    /// `left`, `center`, `clear`, ...
    pub alignment: String,
    /// From the margin.
    pub position_emu: f64,
}

/// A paragraph.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Paragraph {
    /// Its text, links included.
    pub text: String,
    /// Its runs, those in links left out.
    pub runs: Vec<Run>,
    /// `center`, ..., if set.
    pub alignment: Option<String>,
    /// Lines as a multiple, or a height in EMU: one number, as python-docx compares them.
    pub line_spacing: Option<f64>,
    /// Its own tabulator stops, by position.
    pub tabs: Vec<TabStop>,
}

/// A table as a grid: merged cells appear at each position they cover.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// Columns of the grid.
    pub columns: usize,
    /// Rows.
    pub rows: usize,
    /// Cells row by row; fewer than rows times columns in a ragged table.
    pub cells: Vec<Vec<Paragraph>>,
}

/// The part of a section that metrics use.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Section {
    /// Page width less both margins.
    pub text_width_emu: Option<f64>,
    /// The first paragraph of its footer, of an earlier section's where it has none of its own.
    pub footer: String,
}

/// A document.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Document {
    /// Paragraphs directly in the body.
    pub paragraphs: Vec<Paragraph>,
    /// Tables directly in the body.
    pub tables: Vec<Table>,
    /// Sections.
    pub sections: Vec<Section>,
    /// Images the document points to, in the order of their relations.
    pub images: Vec<Vec<u8>>,
}

impl Document {
    /// Opens a document.
    pub fn open(bytes: &Bytes) -> Result<Self, MetricError> {
        let package = Package::open(bytes)?;
        let main = package.relations("")?.target("officeDocument").map(str::to_owned);
        let main = main.ok_or_else(|| MetricError::raises("an archive without a document"))?;
        let text = package.xml(&main)?;
        let parsed = parse(&text)?;
        let body = parsed.root_element().children().find(|node| is(*node, "body"));
        let body = body.ok_or_else(|| MetricError::raises("a document without a body"))?;
        let relations = package.relations(&main)?;
        let mut document = Self::default();
        for node in body.children() {
            match node.tag_name().name() {
                "p" if node.tag_name().namespace() == Some(W) => document.paragraphs.push(paragraph(node)),
                "tbl" => document.tables.push(table(node)),
                _ => {}
            }
        }
        for relation in relations.iter().filter(|one| one.kind.contains("image") && !one.external) {
            document.images.push(package.read(&relation.target)?);
        }
        let mut footer = String::new();
        for node in body.descendants().filter(|node| is(*node, "sectPr")) {
            let reference = node
                .children()
                .find(|child| is(*child, "footerReference") && value_of(*child, "type") == Some("default"));
            let link = reference
                .and_then(|node| node.attributes().find(|one| one.name() == "id").map(|one| one.value()));
            if let Some(part) = link.and_then(|id| relations.get(id)) {
                footer = first_paragraph(&package.xml(&part.target)?)?;
            }
            document.sections.push(Section { text_width_emu: text_width(node), footer: footer.clone() });
        }
        Ok(document)
    }

    /// The texts of the paragraphs.
    pub fn texts(&self) -> Vec<&str> {
        self.paragraphs.iter().map(|paragraph| paragraph.text.as_str()).collect()
    }
}

impl Table {
    /// The text of a cell, its paragraphs on lines; a cell that a ragged table lacks raises.
    pub fn cell_text(&self, row: usize, column: usize) -> Result<String, MetricError> {
        let cell = self
            .cells
            .get(row * self.columns + column)
            .ok_or_else(|| MetricError::raises("a ragged table"))?;
        Ok(cell.iter().map(|paragraph| paragraph.text.as_str()).collect::<Vec<_>>().join("\n"))
    }
}

fn is(node: Node, name: &str) -> bool {
    node.has_tag_name((W, name))
}

fn value_of<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    node.attribute((W, name))
}

fn on_off(node: Node) -> bool {
    !matches!(value_of(node, "val"), Some("0" | "false" | "off"))
}

/// A length in twips, or with its unit, as EMU.
fn length_emu(text: &str) -> Option<f64> {
    if let Ok(twips) = text.parse::<f64>() {
        return Some(twips * EMU_PER_TWIP);
    }
    let (number, unit) = text.split_at_checked(text.len().checked_sub(2)?)?;
    let scale = match unit {
        "mm" => 36_000.0,
        "cm" => 360_000.0,
        "in" => 914_400.0,
        "pt" => 12_700.0,
        "pc" | "pi" => 152_400.0,
        _ => return None,
    };
    number.parse::<f64>().ok().map(|number| (number * scale).round())
}

fn text_width(section: Node) -> Option<f64> {
    let page = value_of(child_in(section, W, "pgSz")?, "w").and_then(length_emu)?;
    let margins = child_in(section, W, "pgMar")?;
    let margin = |name: &str| value_of(margins, name).and_then(length_emu);
    Some(page - margin("left")? - margin("right")?)
}

fn first_paragraph(text: &str) -> Result<String, MetricError> {
    let document = parse(text)?;
    let first = child_in(document.root_element(), W, "p");
    Ok(first.map(|node| paragraph(node).text).unwrap_or_default())
}

fn paragraph(node: Node) -> Paragraph {
    let mut out = Paragraph::default();
    for inner in node.children() {
        if is(inner, "r") {
            let run = run(inner);
            out.text.push_str(&run.text);
            out.runs.push(run);
        } else if is(inner, "hyperlink") {
            out.text.extend(inner.children().filter(|child| is(*child, "r")).map(|child| run_text(child)));
        }
    }
    let Some(properties) = child_in(node, W, "pPr") else { return out };
    out.alignment = child_in(properties, W, "jc").and_then(|jc| value_of(jc, "val")).map(str::to_owned);
    if let Some(spacing) = child_in(properties, W, "spacing")
        && let Some(line) = value_of(spacing, "line").and_then(length_emu)
    {
        let is_height = matches!(value_of(spacing, "lineRule"), Some("exact" | "atLeast"));
        out.line_spacing = Some(if is_height { line } else { line / EMU_PER_LINE });
    }
    for tab in child_in(properties, W, "tabs")
        .into_iter()
        .flat_map(|tabs| tabs.children())
        .filter(|tab| is(*tab, "tab"))
    {
        let alignment = value_of(tab, "val").unwrap_or("left").to_owned();
        let position_emu = value_of(tab, "pos").and_then(length_emu).unwrap_or(0.0);
        out.tabs.push(TabStop { alignment, position_emu });
    }
    out
}

fn run_text(node: Node) -> String {
    let mut text = String::new();
    for inner in node.children() {
        match inner.tag_name().name() {
            "t" => text.extend(inner.children().filter_map(|child| child.text())),
            "tab" | "ptab" => text.push('\t'),
            "cr" => text.push('\n'),
            "br" if matches!(value_of(inner, "type"), None | Some("textWrapping")) => text.push('\n'),
            "noBreakHyphen" => text.push('-'),
            _ => {}
        }
    }
    text
}

fn run(node: Node) -> Run {
    let has = |name: &str| node.descendants().any(|inner| inner.tag_name().name() == name);
    let is_page_break = |inner: &Node| is(*inner, "br") && value_of(*inner, "type") == Some("page");
    let mut out = Run {
        text: run_text(node),
        page_breaks: node.descendants().filter(is_page_break).count(),
        has_graphic: has("graphicData"),
        has_object: has("object"),
        ..Run::default()
    };
    let Some(properties) = child_in(node, W, "rPr") else { return out };
    let value = |name: &str| child_in(properties, W, name).and_then(|node| value_of(node, "val"));
    out.font =
        child_in(properties, W, "rFonts").and_then(|fonts| value_of(fonts, "ascii")).map(str::to_owned);
    out.size_pt = value("sz").and_then(|half| half.parse::<f64>().ok()).map(|half| half / 2.0);
    out.italic = child_in(properties, W, "i").map(on_off);
    out.strike = child_in(properties, W, "strike").map(on_off);
    out.subscript = value("vertAlign").map(|align| align == "subscript");
    out.color = value("color").filter(|color| *color != "auto").map(str::to_owned);
    out
}

fn table(node: Node) -> Table {
    let columns = child_in(node, W, "tblGrid")
        .map_or(0, |grid| grid.children().filter(|one| is(*one, "gridCol")).count());
    let mut out = Table { columns, ..Table::default() };
    for row in node.children().filter(|row| is(*row, "tr")) {
        out.rows += 1;
        for cell in row.children().filter(|cell| is(*cell, "tc")) {
            let properties = child_in(cell, W, "tcPr");
            let span = properties
                .and_then(|node| child_in(node, W, "gridSpan"))
                .and_then(|node| value_of(node, "val"));
            let span: usize = span.and_then(|span| span.parse().ok()).unwrap_or(1).min(1000);
            let merge = properties.and_then(|node| child_in(node, W, "vMerge"));
            let continues =
                merge.is_some_and(|node| value_of(node, "val").unwrap_or("continue") == "continue");
            let own: Vec<Paragraph> =
                cell.children().filter(|inner| is(*inner, "p")).map(paragraph).collect();
            for _ in 0..span {
                let above = out.cells.len().checked_sub(columns).filter(|_| continues && columns > 0);
                out.cells.push(above.map_or_else(|| own.clone(), |above| out.cells[above].clone()));
            }
        }
    }
    out
}
