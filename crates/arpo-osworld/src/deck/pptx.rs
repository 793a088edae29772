//! A presentation: its slides with their shapes, notes, backgrounds and bullets.

use super::shape::{A, Frame, P, Placeholder, Shape, plain_color, shapes};
use crate::error::MetricError;
use crate::package::Package;
use crate::state::Bytes;
use crate::xml::{child_in, parse};
use roxmltree::{Document, Node};

/// The size of python-pptx's default presentation, which it loads where there is no file.
const DEFAULT_SIZE_EMU: (i64, i64) = (9_144_000, 6_858_000);

/// A paragraph's bullet, of any paragraph anywhere on a slide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bullet {
    /// The paragraph's number among the nodes of the slide's XML.
    pub node: u32,
    /// Whether the paragraph has properties.
    pub has_properties: bool,
    /// `lvl`, if there are properties with it.
    pub level: Option<String>,
    /// The letter, or "No Bullet".
    pub letter: String,
    /// The paragraph's text; none if a part of it is empty, where the original raises.
    pub text: Option<String>,
    /// The bullet's colour, or "No Color".
    pub color: String,
}

/// The background of a slide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Background {
    /// A plain colour.
    Plain(String),
    /// A solid theme colour: reading its value raises.
    Theme,
    /// Not set: inherited from the master.
    Inherited,
    /// An image, a gradient, a pattern.
    Other,
}

/// A slide.
#[derive(Debug, Clone, PartialEq)]
pub struct Slide {
    /// Its shapes.
    pub shapes: Vec<Shape>,
    /// Its notes; none if it has a notes page without a placeholder for them, where python-pptx raises.
    pub notes: Option<String>,
    /// Its own background.
    pub background: Background,
    /// Its master's.
    pub master_background: Background,
    /// Bullets of all its paragraphs.
    pub bullets: Vec<Bullet>,
    /// The bytes of its pictures, by relation.
    pub pictures: Vec<(String, Vec<u8>)>,
}

/// A presentation.
#[derive(Debug, Clone, PartialEq)]
pub struct Deck {
    /// Slides in order.
    pub slides: Vec<Slide>,
    /// Width and height of a slide.
    pub size_emu: (i64, i64),
}

impl Default for Deck {
    /// What python-pptx loads where it is given no file.
    fn default() -> Self {
        Self { slides: Vec::new(), size_emu: DEFAULT_SIZE_EMU }
    }
}

impl Deck {
    /// Opens a presentation.
    pub fn open(bytes: &Bytes) -> Result<Self, MetricError> {
        let package = Package::open(bytes)?;
        let main = package.relations("")?.target("officeDocument").map(str::to_owned);
        let main = main.ok_or_else(|| MetricError::raises("an archive without a presentation"))?;
        let text = package.xml(&main)?;
        let document = parse(&text)?;
        let root = document.root_element();
        let relations = package.relations(&main)?;
        let mut slides = Vec::new();
        for node in child_in(root, P, "sldIdLst").into_iter().flat_map(|list| list.children()) {
            let link = node.attributes().find(|one| one.name() == "id" && one.namespace().is_some());
            if let Some(link) = link {
                let relation = relations
                    .get(link.value())
                    .ok_or_else(|| MetricError::raises("a slide that is not there"))?;
                slides.push(slide(&package, &relation.target)?);
            }
        }
        let side = |name: &str| child_in(root, P, "sldSz")?.attribute(name)?.parse().ok();
        let size_emu = side("cx").zip(side("cy")).unwrap_or(DEFAULT_SIZE_EMU);
        Ok(Self { slides, size_emu })
    }
}

fn slide(package: &Package, part: &str) -> Result<Slide, MetricError> {
    let text = package.xml(part)?;
    let document = parse(&text)?;
    let relations = package.relations(part)?;
    let layout = relations.target("slideLayout").map(str::to_owned);
    let master = match &layout {
        Some(layout) => package.relations(layout)?.target("slideMaster").map(str::to_owned),
        None => None,
    };
    let read =
        |part: &Option<String>| part.as_ref().map_or_else(|| Ok("<none/>".into()), |part| package.xml(part));
    let (layout_text, master_text) = (read(&layout)?, read(&master)?);
    let (layout, master) = (parse(&layout_text)?, parse(&master_text)?);
    let mut slide_shapes = tree_shapes(&document);
    let (layout_shapes, master_shapes) = (tree_shapes(&layout), tree_shapes(&master));
    for shape in &mut slide_shapes {
        if let Some(placeholder) = shape.placeholder.clone() {
            inherit(&mut shape.frame, &placeholder, &layout_shapes, &master_shapes);
        }
    }
    let notes = match relations.target("notesSlide") {
        Some(notes) if package.has(notes) => notes_text(&package.xml(notes)?)?,
        _ => Some(String::new()),
    };
    let mut pictures = Vec::new();
    for id in slide_shapes.iter().filter_map(|shape| shape.picture.as_ref()) {
        if let Some(relation) = relations.get(id).filter(|relation| !relation.external) {
            pictures.push((id.clone(), package.read(&relation.target)?));
        }
    }
    Ok(Slide {
        shapes: slide_shapes,
        notes,
        background: background(&document),
        master_background: background(&master),
        bullets: bullets(&document),
        pictures,
    })
}

fn tree_shapes(document: &Document<'_>) -> Vec<Shape> {
    let tree = child_in(document.root_element(), P, "cSld").and_then(|data| child_in(data, P, "spTree"));
    tree.map(shapes).unwrap_or_default()
}

/// A placeholder without its own position inherits it from the layout's placeholder of its index, and that one from
/// the master's placeholder of its type.
fn inherit(frame: &mut Frame, placeholder: &Placeholder, layout: &[Shape], master: &[Shape]) {
    let find = |shapes: &[Shape], fits: &dyn Fn(&Placeholder) -> bool| {
        shapes.iter().find(|shape| shape.placeholder.as_ref().is_some_and(fits)).cloned()
    };
    let Some(above) = find(layout, &|other| other.index == placeholder.index) else { return };
    let kind = above.placeholder.as_ref().map_or("", |placeholder| placeholder.kind.as_str());
    let master_kind = match kind {
        "ctrTitle" | "title" => "title",
        "dt" | "ftr" | "sldNum" => kind,
        _ => "body",
    };
    let top = find(master, &|other| other.kind == master_kind);
    for (at, value) in frame.iter_mut().enumerate() {
        *value = value.or(above.frame[at]).or(top.as_ref().and_then(|top| top.frame[at]));
    }
}

fn notes_text(text: &str) -> Result<Option<String>, MetricError> {
    let document = parse(text)?;
    let body = tree_shapes(&document)
        .into_iter()
        .find(|shape| shape.placeholder.as_ref().is_some_and(|placeholder| placeholder.kind == "body"));
    Ok(body.and_then(|shape| shape.text()))
}

fn background(document: &Document<'_>) -> Background {
    let data = child_in(document.root_element(), P, "cSld");
    let own = data.and_then(|data| child_in(data, P, "bg")).and_then(|node| child_in(node, P, "bgPr"));
    // A background by reference to the theme is replaced by none, as python-pptx does when asked for it.
    let Some(own) = own else { return Background::Inherited };
    let is_fill = |node: &Node| {
        matches!(
            node.tag_name().name(),
            "noFill" | "solidFill" | "gradFill" | "blipFill" | "pattFill" | "grpFill"
        )
    };
    match own.children().find(is_fill) {
        Some(fill) if fill.tag_name().name() == "noFill" => Background::Inherited,
        Some(fill) if fill.tag_name().name() == "solidFill" => {
            plain_color(fill).map_or(Background::Theme, Background::Plain)
        }
        _ => Background::Other,
    }
}

fn bullets(document: &Document<'_>) -> Vec<Bullet> {
    document.descendants().filter(|node| node.has_tag_name((A, "p"))).map(bullet).collect()
}

fn bullet(paragraph: Node) -> Bullet {
    let properties = child_in(paragraph, A, "pPr");
    let letter =
        properties.and_then(|node| child_in(node, A, "buChar")).and_then(|node| node.attribute("char"));
    let color =
        properties.and_then(|node| child_in(node, A, "buClr")).and_then(|node| child_in(node, A, "srgbClr"));
    let parts = paragraph.descendants().filter(|node| node.has_tag_name((A, "t"))).map(|node| node.text());
    Bullet {
        node: paragraph.id().get(),
        has_properties: properties.is_some(),
        level: properties.and_then(|node| node.attribute("lvl")).map(str::to_owned),
        letter: letter.unwrap_or("No Bullet").to_owned(),
        text: parts.collect::<Option<Vec<&str>>>().map(|parts| parts.concat()),
        color: color.and_then(|node| node.attribute("val")).unwrap_or("No Color").to_owned(),
    }
}
