//! The shapes of a slide: kind, position, text and formatting.

use crate::error::MetricError;
use crate::xml::child_in;
use roxmltree::Node;

/// Drawing elements.
pub const A: &str = "http://schemas.openxmlformats.org/drawingml/2006/main";
/// Presentation elements.
pub const P: &str = "http://schemas.openxmlformats.org/presentationml/2006/main";

/// A run of equal formatting; what is not set is none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Run {
    /// Its text.
    pub text: String,
    /// The Latin font.
    pub font: Option<String>,
    /// Size in hundredths of a point.
    pub size: Option<String>,
    /// Bold.
    pub bold: Option<bool>,
    /// Italic.
    pub italic: Option<bool>,
    /// `none`, `sng`, ...
    pub underline: Option<String>,
    /// A plain colour as six digits; theme colours are none.
    pub color: Option<String>,
    /// `sngStrike`, ..., also `noStrike`, which `LibreOffice` always writes.
    pub strike: Option<String>,
}

/// A paragraph.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Paragraph {
    /// Runs and fields, line breaks as vertical tabs.
    pub text: String,
    /// `l`, `ctr`, ..., if set.
    pub alignment: Option<String>,
    /// Indentation.
    pub level: i64,
    /// Its runs.
    pub runs: Vec<Run>,
    /// Its number among the nodes of the slide's XML.
    pub node: u32,
}

/// A table of a slide.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// Columns of its grid.
    pub columns: usize,
    /// Rows of cells of paragraphs.
    pub rows: Vec<Vec<Vec<Paragraph>>>,
}

/// Left, top, width, height in EMU; none where not set.
pub type Frame = [Option<i64>; 4];

/// python-pptx's shape types, with their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// 1.
    Auto,
    /// 3.
    Chart,
    /// 5: of free form.
    Freeform,
    /// 6.
    Group,
    /// 9: a connector.
    Line,
    /// 13.
    Picture,
    /// 14.
    Placeholder,
    /// 16.
    Media,
    /// 17.
    TextBox,
    /// 19.
    Table,
    /// None of these, for which python-pptx has no number.
    Other,
    /// A shape whose type python-pptx does not know: reading it raises.
    Unknown,
}

/// A placeholder's type and number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placeholder {
    /// `title`, `body`, ...; `obj` if not set.
    pub kind: String,
    /// Which of the layout's it is.
    pub index: String,
}

/// A shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// What it is.
    pub kind: Kind,
    /// Where it is.
    pub frame: Frame,
    /// Its text; none for a shape that cannot have text.
    pub paragraphs: Option<Vec<Paragraph>>,
    /// A table.
    pub table: Option<Table>,
    /// The shapes of a group.
    pub members: Vec<Shape>,
    /// The relation of a picture.
    pub picture: Option<String>,
    /// The placeholder of the layout that it fills, if any.
    pub placeholder: Option<Placeholder>,
}

impl Shape {
    /// Its text, paragraphs on lines.
    pub fn text(&self) -> Option<String> {
        let paragraphs = self.paragraphs.as_ref()?;
        Some(paragraphs.iter().map(|one| one.text.as_str()).collect::<Vec<_>>().join("\n"))
    }

    /// Its type, where python-pptx knows it.
    pub fn known_kind(&self) -> Result<Kind, MetricError> {
        match self.kind {
            Kind::Unknown => Err(MetricError::raises("a shape of an unrecognised type")),
            kind => Ok(kind),
        }
    }

    /// This shape and those within it that can have text.
    pub fn texts(&self) -> Vec<&Shape> {
        let own = self.paragraphs.is_some().then_some(self);
        own.into_iter().chain(self.members.iter().flat_map(Shape::texts)).collect()
    }
}

/// The shapes of a tree or a group.
pub fn shapes(tree: Node) -> Vec<Shape> {
    tree.children().filter(|node| node.tag_name().namespace() == Some(P)).filter_map(shape).collect()
}

fn shape(node: Node) -> Option<Shape> {
    let properties = child_in(node, P, "spPr");
    let placeholder = placeholder(node);
    let mut out = Shape {
        kind: Kind::Other,
        frame: properties.and_then(|node| child_in(node, A, "xfrm")).map_or([None; 4], frame),
        paragraphs: None,
        table: None,
        members: Vec::new(),
        picture: None,
        placeholder,
    };
    match node.tag_name().name() {
        "sp" => {
            out.kind = kind_of_sp(node, &out);
            let body = child_in(node, P, "txBody");
            // Asked for its text, python-pptx gives a shape without one an empty paragraph.
            out.paragraphs = Some(body.map_or_else(|| vec![Paragraph::default()], paragraphs));
        }
        "pic" => {
            let is_media = node.descendants().any(|one| one.has_tag_name((A, "videoFile")));
            out.kind = if is_media { Kind::Media } else { Kind::Picture };
            let blip = node.descendants().find(|one| one.has_tag_name((A, "blip")));
            let embed = blip
                .and_then(|blip| blip.attributes().find(|one| one.name() == "embed").map(|one| one.value()));
            out.picture = embed.map(str::to_owned);
        }
        "grpSp" => {
            out.kind = Kind::Group;
            out.frame = child_in(node, P, "grpSpPr")
                .and_then(|node| child_in(node, A, "xfrm"))
                .map_or([None; 4], frame);
            out.members = shapes(node);
        }
        "graphicFrame" => {
            out.frame = child_in(node, P, "xfrm").map_or([None; 4], frame);
            let data = node.descendants().find(|one| one.has_tag_name((A, "graphicData")));
            match data
                .and_then(|data| data.attribute("uri"))
                .map(|uri| uri.rsplit('/').next().unwrap_or_default())
            {
                Some("table") => {
                    out.kind = Kind::Table;
                    out.table = node.descendants().find(|one| one.has_tag_name((A, "tbl"))).map(table);
                }
                Some("chart") => out.kind = Kind::Chart,
                _ => {}
            }
        }
        "cxnSp" => out.kind = Kind::Line,
        "contentPart" => {}
        _ => return None,
    }
    Some(out)
}

fn kind_of_sp(node: Node, shape: &Shape) -> Kind {
    let properties = child_in(node, P, "spPr");
    let has = |name: &str| properties.is_some_and(|node| child_in(node, A, name).is_some());
    let own = child_in(node, P, "nvSpPr").and_then(|node| child_in(node, P, "cNvSpPr"));
    let is_box = own.and_then(|node| node.attribute("txBox")).is_some_and(is_true);
    match () {
        () if shape.placeholder.is_some() => Kind::Placeholder,
        () if has("custGeom") => Kind::Freeform,
        () if has("prstGeom") && !is_box => Kind::Auto,
        () if is_box => Kind::TextBox,
        () => Kind::Unknown,
    }
}

fn placeholder(node: Node) -> Option<Placeholder> {
    let names = node.children().find(|child| child.tag_name().name().starts_with("nv"))?;
    let node = child_in(child_in(names, P, "nvPr")?, P, "ph")?;
    let attribute = |name: &str, default: &str| node.attribute(name).unwrap_or(default).to_owned();
    Some(Placeholder { kind: attribute("type", "obj"), index: attribute("idx", "0") })
}

fn frame(node: Node) -> Frame {
    let number = |element: &str, name: &str| child_in(node, A, element)?.attribute(name)?.parse().ok();
    [number("off", "x"), number("off", "y"), number("ext", "cx"), number("ext", "cy")]
}

fn table(node: Node) -> Table {
    let columns = child_in(node, A, "tblGrid")
        .map_or(0, |grid| grid.children().filter(|one| one.has_tag_name((A, "gridCol"))).count());
    let cells = |row: Node| {
        let cells = row.children().filter(|cell| cell.has_tag_name((A, "tc")));
        cells
            .map(|cell| child_in(cell, A, "txBody").map_or_else(|| vec![Paragraph::default()], paragraphs))
            .collect()
    };
    Table { columns, rows: node.children().filter(|row| row.has_tag_name((A, "tr"))).map(cells).collect() }
}

/// The paragraphs of a body of text.
pub fn paragraphs(body: Node) -> Vec<Paragraph> {
    body.children().filter(|node| node.has_tag_name((A, "p"))).map(paragraph).collect()
}

fn paragraph(node: Node) -> Paragraph {
    let mut out = Paragraph { node: node.id().get(), ..Paragraph::default() };
    for inner in node.children().filter(|inner| inner.tag_name().namespace() == Some(A)) {
        match inner.tag_name().name() {
            "r" => {
                let run = run(inner);
                out.text.push_str(&run.text);
                out.runs.push(run);
            }
            "br" => out.text.push('\u{b}'),
            "fld" => {
                out.text.push_str(child_in(inner, A, "t").and_then(|node| node.text()).unwrap_or_default());
            }
            "pPr" => {
                out.alignment = inner.attribute("algn").map(str::to_owned);
                out.level = inner.attribute("lvl").and_then(|text| text.parse().ok()).unwrap_or(0);
            }
            _ => {}
        }
    }
    out
}

fn run(node: Node) -> Run {
    let text = child_in(node, A, "t").and_then(|node| node.text()).unwrap_or_default().to_owned();
    let mut out = Run { text, ..Run::default() };
    let Some(properties) = child_in(node, A, "rPr") else { return out };
    let attribute = |name: &str| properties.attribute(name).map(str::to_owned);
    out.font =
        child_in(properties, A, "latin").and_then(|node| node.attribute("typeface")).map(str::to_owned);
    out.size = attribute("sz");
    out.bold = properties.attribute("b").map(is_true);
    out.italic = properties.attribute("i").map(is_true);
    out.underline = attribute("u");
    out.color = child_in(properties, A, "solidFill").and_then(|fill| plain_color(fill));
    out.strike = attribute("strike");
    out
}

/// The colour of a solid fill, if it is plain.
pub fn plain_color(fill: Node) -> Option<String> {
    child_in(fill, A, "srgbClr").and_then(|node| node.attribute("val")).map(str::to_uppercase)
}

fn is_true(text: &str) -> bool {
    matches!(text, "1" | "true" | "on")
}
