//! `compare_pptx_files`: two presentations, slide by slide, shape by shape, run by run.

use super::call::yes;
use super::{Call, Score};
use crate::deck::pptx::{Background, Bullet, Deck, Slide};
use crate::deck::shape::{Kind, Paragraph, Run, Shape};
use crate::error::MetricError;
use crate::state::State;
use crate::text::python;

/// What is looked at: `examine_...` in the options.
struct Examined {
    early: bool,
    tolerance: f64,
    names: Vec<(&'static str, bool)>,
}

/// Options with their defaults.
const ON: &[&str] = &[
    "number_of_slides",
    "shape",
    "text",
    "indent",
    "font_name",
    "font_size",
    "font_bold",
    "font_italic",
    "color_rgb",
    "font_underline",
    "strike_through",
    "alignment",
    "bullets",
    "background_color",
    "note",
];
const OFF: &[&str] = &[
    "title_bottom_position",
    "table_bottom_position",
    "right_position",
    "top_position",
    "shape_for_shift_size",
    "image_size",
    "modify_height",
];

impl Examined {
    fn new(call: &Call<'_>) -> Self {
        let option =
            |name: &'static str, default: bool| (name, call.flag(&format!("examine_{name}"), default));
        let names =
            ON.iter().map(|name| option(name, true)).chain(OFF.iter().map(|name| option(name, false)));
        let tolerance = call.number("approximately_tolerance").unwrap_or(0.005);
        Self { early: call.is_arpo_era(), tolerance, names: names.collect() }
    }

    fn on(&self, name: &str) -> bool {
        self.names.iter().any(|(other, on)| *other == name && *on)
    }

    /// ARPO era: the same number. Verified: within half a percent of the larger; a number and none raise.
    fn near(&self, a: Option<i64>, b: Option<i64>) -> Result<bool, MetricError> {
        if a == b || self.early {
            return Ok(a == b);
        }
        let (Some(a), Some(b)) = (a, b) else {
            return if a == Some(0) || b == Some(0) { Ok(false) } else { Err(no_place()) };
        };
        if a == 0 || b == 0 {
            return Ok(false);
        }
        let (a, b) = (a as f64, b as f64);
        Ok((a - b).abs() / a.abs().max(b.abs()) <= self.tolerance)
    }

    fn same_frame(&self, a: &Shape, b: &Shape) -> Result<bool, MetricError> {
        for (a, b) in a.frame.iter().zip(b.frame) {
            if !self.near(*a, b)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn no_place() -> MetricError {
    MetricError::raises("a shape without a place")
}

/// A missing result is python-pptx's empty presentation; a missing file raises.
pub(super) fn compare_pptx_files(call: &Call<'_>) -> Score {
    let open =
        |state: &State| if state.is_none() { Ok(Deck::default()) } else { Deck::open(&state.file()?.bytes) };
    let (first, second) = (open(call.result)?, open(call.expected()?)?);
    let examined = Examined::new(call);
    if first.slides.len() != second.slides.len() && examined.on("number_of_slides") {
        return Ok(0.0);
    }
    for (number, (first, second)) in first.slides.iter().zip(&second.slides).enumerate() {
        if !same_slide(&examined, number + 1, first, second)? {
            return Ok(0.0);
        }
    }
    Ok(yes(true))
}

fn same_slide(examined: &Examined, number: usize, a: &Slide, b: &Slide) -> Result<bool, MetricError> {
    // The ARPO era's question for the background answers nothing for any slide.
    if !examined.early && background(a)? != background(b)? && examined.on("background_color") {
        return Ok(false);
    }
    let notes = |slide: &Slide| {
        slide
            .notes
            .clone()
            .map(|text| python::strip(&text).to_owned())
            .ok_or_else(|| MetricError::raises("no place for notes"))
    };
    if notes(a)? != notes(b)? && examined.on("note") {
        return Ok(false);
    }
    if !examined.early && a.shapes.len() != b.shapes.len() {
        return Ok(false);
    }
    for (first, second) in a.shapes.iter().zip(&b.shapes) {
        if !same_shape(examined, number, (a, first), (b, second))? {
            return Ok(false);
        }
    }
    Ok(examined.early || same_text_shapes(examined, a, b))
}

fn background(slide: &Slide) -> Result<Option<&str>, MetricError> {
    let shown =
        if slide.background == Background::Inherited { &slide.master_background } else { &slide.background };
    match shown {
        Background::Plain(color) => Ok(Some(color.as_str())),
        Background::Theme => Err(MetricError::raises("a background of the theme")),
        Background::Inherited | Background::Other => Ok(None),
    }
}

fn same_shape(
    examined: &Examined,
    number: usize,
    (slide_a, a): (&Slide, &Shape),
    (slide_b, b): (&Slide, &Shape),
) -> Result<bool, MetricError> {
    if !examined.early {
        a.known_kind()?;
        b.known_kind()?;
    }
    if !in_place(examined, number, a, b)? {
        return Ok(false);
    }
    if !examined.early && a.kind == Kind::Table && !same_table(examined, a, b)? {
        return Ok(false);
    }
    let (Some(first), Some(second)) = (&a.paragraphs, &b.paragraphs) else { return Ok(true) };
    let stripped = |shape: &Shape| python::strip(&shape.text().unwrap_or_default()).to_owned();
    if stripped(a) != stripped(b) && examined.on("text") {
        return Ok(false);
    }
    if !examined.early && first.len() != second.len() {
        return Ok(false);
    }
    for (first, second) in first.iter().zip(second) {
        if !same_paragraph(examined, first, second) {
            return Ok(false);
        }
        let runs = first.runs.len().min(second.runs.len());
        if runs > 0 && examined.on("bullets") && !same_bullets(examined, &slide_a.bullets, &slide_b.bullets)?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The rules on places, most of them made for one task each.
fn in_place(examined: &Examined, number: usize, a: &Shape, b: &Shape) -> Result<bool, MetricError> {
    let same = || examined.same_frame(a, b);
    let compare = |at: usize| a.frame[at].zip(b.frame[at]).ok_or_else(no_place);
    let (can_say, text) = (a.paragraphs.is_some() && b.paragraphs.is_some(), a.text().unwrap_or_default());
    let same_text = can_say && a.text() == b.text();
    let neither_says = a.paragraphs.is_none() && b.paragraphs.is_none();
    let both_are = |kind: Kind| Ok::<_, MetricError>(a.known_kind()? == kind && b.known_kind()? == kind);
    if examined.on("title_bottom_position") {
        if same_text {
            if text == "Product Comparison" && is_above(compare(1)?, 3_600_000) {
                return Ok(false);
            }
        } else if !same()? {
            return Ok(false);
        }
    }
    if examined.on("table_bottom_position") {
        if number == 3 && both_are(Kind::Table)? {
            if is_above(compare(1)?, 3_600_000) {
                return Ok(false);
            }
        } else if !same()? {
            return Ok(false);
        }
    }
    if examined.on("right_position") && number == 2 && neither_says && is_above(compare(0)?, 4_320_000) {
        return Ok(false);
    }
    if examined.on("top_position") {
        if number == 2 && both_are(Kind::Picture)? {
            let (first, second) = compare(1)?;
            if first >= second || first > 1_980_000 {
                return Ok(false);
            }
        } else if examined.early && !same()? {
            return Ok(false);
        }
    }
    if examined.on("shape_for_shift_size")
        && !same()?
        && !(same_text && text == "Elaborate on what you want to discuss.")
    {
        return Ok(false);
    }
    if !same()? && examined.on("shape") {
        return Ok(false);
    }
    if examined.on("image_size") {
        let sizes = || {
            Ok::<_, MetricError>(
                examined.near(a.frame[2], b.frame[2])? && examined.near(a.frame[3], b.frame[3])?,
            )
        };
        if !(if both_are(Kind::Picture)? { sizes()? } else { same()? }) {
            return Ok(false);
        }
    }
    if examined.on("modify_height") {
        let only_height = neither_says || both_are(Kind::Freeform)?;
        if !(if only_height { examined.near(a.frame[3], b.frame[3])? } else { same()? }) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Not beyond what it was, or not far enough.
fn is_above((now, before): (i64, i64), least: i64) -> bool {
    now <= before || now < least
}

fn same_alignment(examined: &Examined, a: &Paragraph, b: &Paragraph) -> bool {
    let effective =
        |paragraph: &Paragraph| paragraph.alignment.clone().or_else(|| (!examined.early).then(|| "l".into()));
    effective(a) == effective(b)
}

fn same_paragraph(examined: &Examined, a: &Paragraph, b: &Paragraph) -> bool {
    if (examined.on("alignment") && !same_alignment(examined, a, b))
        || (examined.on("text") && a.text != b.text)
        || (examined.on("indent") && a.level != b.level)
        || (!examined.early && a.runs.len() != b.runs.len())
    {
        return false;
    }
    a.runs.iter().zip(&b.runs).all(|(a, b)| same_run(examined, a, b))
}

fn same_run(examined: &Examined, a: &Run, b: &Run) -> bool {
    let differs = (examined.on("font_name") && a.font != b.font)
        || (examined.on("font_size") && a.size != b.size)
        || (examined.on("font_bold") && !same_flag(examined, a.bold, b.bold))
        || (examined.on("font_italic") && !same_flag(examined, a.italic, b.italic))
        || (examined.on("color_rgb") && other_color(a, b))
        || (examined.on("font_underline") && !same_underline(examined, a, b))
        || (examined.on("strike_through") && a.strike != b.strike);
    !differs
}

/// Verified: saying nothing is saying no.
fn same_flag(examined: &Examined, a: Option<bool>, b: Option<bool>) -> bool {
    if examined.early { a == b } else { a.unwrap_or(false) == b.unwrap_or(false) }
}

/// Only plain colours are compared, and only where both are.
fn other_color(a: &Run, b: &Run) -> bool {
    matches!((&a.color, &b.color), (Some(a), Some(b)) if a != b)
}

/// Verified: saying nothing differs from a single line, but from no other underlining.
fn same_underline(examined: &Examined, a: &Run, b: &Run) -> bool {
    match (a.underline.as_deref(), b.underline.as_deref()) {
        (None, Some(line)) | (Some(line), None) if !examined.early => line != "sng",
        (a, b) => a == b,
    }
}

/// Verified: tables cell by cell. Bold, italic and underline count whatever the options say.
fn same_table(examined: &Examined, a: &Shape, b: &Shape) -> Result<bool, MetricError> {
    let (Some(first), Some(second)) = (&a.table, &b.table) else {
        return Err(MetricError::raises("a shape without a table"));
    };
    if first.rows.len() != second.rows.len() || first.columns != second.columns {
        return Ok(false);
    }
    for (first, second) in first.rows.iter().flatten().zip(second.rows.iter().flatten()) {
        if first.len() != second.len() {
            return Ok(false);
        }
        for (first, second) in first.iter().zip(second) {
            let same = |(a, b): (&Run, &Run)| {
                !(examined.on("color_rgb") && other_color(a, b))
                    && same_flag(examined, a.bold, b.bold)
                    && same_flag(examined, a.italic, b.italic)
                    && same_underline(examined, a, b)
            };
            if first.runs.len() != second.runs.len() || !first.runs.iter().zip(&second.runs).all(same) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// All paragraphs of both slides, tables and groups among them.
///
/// ARPO era: level, letter, text and colour, empty paragraphs too; an empty part of a text raises. Verified: only
/// paragraphs with text, no colour; where the original would raise it lets the comparison pass.
fn same_bullets(examined: &Examined, a: &[Bullet], b: &[Bullet]) -> Result<bool, MetricError> {
    let broken = a.iter().chain(b).any(|bullet| bullet.text.is_none());
    if examined.early {
        return if broken { Err(MetricError::raises("an empty part of a text")) } else { Ok(a == b) };
    }
    if broken {
        return Ok(true);
    }
    let full = |bullets: &[Bullet]| {
        let kept = bullets
            .iter()
            .filter(|bullet| bullet.text.as_deref().is_some_and(|text| !python::strip(text).is_empty()));
        kept.map(|bullet| {
            (bullet.text.clone(), bullet.letter.clone(), bullet.level.clone().unwrap_or_else(|| "0".into()))
        })
        .collect::<Vec<_>>()
    };
    Ok(full(a) == full(b))
}

/// Verified: shapes with text, those in groups too, once more: their number, texts and alignments.
fn same_text_shapes(examined: &Examined, a: &Slide, b: &Slide) -> bool {
    let texts = |slide: &Slide| slide.shapes.iter().flat_map(Shape::texts).cloned().collect::<Vec<Shape>>();
    let (first, second) = (texts(a), texts(b));
    if first.len() != second.len() {
        return false;
    }
    if !examined.on("alignment") {
        return true;
    }
    first.iter().zip(&second).all(|(a, b)| {
        let stripped = |shape: &Shape| python::strip(&shape.text().unwrap_or_default()).to_owned();
        let (Some(first), Some(second)) = (&a.paragraphs, &b.paragraphs) else { return true };
        (!examined.on("text") || stripped(a) == stripped(b))
            && first.len() == second.len()
            && first.iter().zip(second).all(|(a, b)| same_alignment(examined, a, b))
    })
}
