//! `compare_pptx_files`: two presentations, slide by slide, shape by shape, run by run.

use super::call::yes;
use super::{Call, Score};
use crate::deck::pptx::{Background, Bullet, Deck, Slide};
use crate::deck::shape::{Kind, Paragraph, Run, Shape};
use crate::error::MetricError;
use crate::state::State;
use crate::text::python;
use std::collections::HashSet;

/// What to compare: `examine_...` in the options.
struct ExamineOptions {
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

impl ExamineOptions {
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

    /// ARPO era: equal. Verified: within half a percent of the larger; a number and none raise.
    fn near(&self, a: Option<i64>, b: Option<i64>) -> Result<bool, MetricError> {
        if a == b || self.early {
            return Ok(a == b);
        }
        let (Some(a), Some(b)) = (a, b) else {
            return if a == Some(0) || b == Some(0) { Ok(false) } else { Err(no_position()) };
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

fn no_position() -> MetricError {
    MetricError::raises("a shape without a position")
}

/// A missing result is python-pptx's empty presentation; a missing file raises.
pub(super) fn compare_pptx_files(call: &Call<'_>) -> Score {
    let open =
        |state: &State| if state.is_none() { Ok(Deck::default()) } else { Deck::open(&state.file()?.bytes) };
    let (first, second) = (open(call.result)?, open(call.expected()?)?);
    let options = ExamineOptions::new(call);
    if first.slides.len() != second.slides.len() && options.on("number_of_slides") {
        return Ok(0.0);
    }
    for (number, (first, second)) in first.slides.iter().zip(&second.slides).enumerate() {
        if !same_slide(&options, number + 1, first, second)? {
            return Ok(0.0);
        }
    }
    Ok(yes(true))
}

fn same_slide(options: &ExamineOptions, number: usize, a: &Slide, b: &Slide) -> Result<bool, MetricError> {
    // In the ARPO era the background query returns nothing for any slide.
    if !options.early && background(a)? != background(b)? && options.on("background_color") {
        return Ok(false);
    }
    let notes = |slide: &Slide| {
        slide
            .notes
            .clone()
            .map(|text| python::strip(&text).to_owned())
            .ok_or_else(|| MetricError::raises("no placeholder for notes"))
    };
    if notes(a)? != notes(b)? && options.on("note") {
        return Ok(false);
    }
    if !options.early && a.shapes.len() != b.shapes.len() {
        return Ok(false);
    }
    let (mut a_read, mut b_read) = (ReadSlide::new(a), ReadSlide::new(b));
    for (first, second) in a.shapes.iter().zip(&b.shapes) {
        if !same_shape(options, number, (&mut a_read, first), (&mut b_read, second))? {
            return Ok(false);
        }
    }
    Ok(options.early || same_text_shapes(options, a, b)?)
}

/// A slide and the paragraphs whose level was read. Where a paragraph has no properties, the original's reading gives it empty
/// ones, and its comparison of bullets sees the slide as it is by then.
struct ReadSlide<'a> {
    slide: &'a Slide,
    paragraphs: HashSet<u32>,
}

impl<'a> ReadSlide<'a> {
    fn new(slide: &'a Slide) -> Self {
        Self { slide, paragraphs: HashSet::new() }
    }

    /// `lvl`; "No Level" of a paragraph without properties.
    fn level(&self, bullet: &'a Bullet) -> Option<&'a str> {
        let has_properties = bullet.has_properties || self.paragraphs.contains(&bullet.node);
        if has_properties { bullet.level.as_deref() } else { Some("No Level") }
    }
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
    options: &ExamineOptions,
    number: usize,
    (slide_a, a): (&mut ReadSlide<'_>, &Shape),
    (slide_b, b): (&mut ReadSlide<'_>, &Shape),
) -> Result<bool, MetricError> {
    if !options.early {
        a.known_kind()?;
        b.known_kind()?;
    }
    if !positions_hold(options, number, a, b)? {
        return Ok(false);
    }
    if !options.early && a.kind == Kind::Table && !same_table(options, a, b)? {
        return Ok(false);
    }
    let (Some(first), Some(second)) = (&a.paragraphs, &b.paragraphs) else { return Ok(true) };
    let stripped = |shape: &Shape| python::strip(&shape.text().unwrap_or_default()).to_owned();
    if stripped(a) != stripped(b) && options.on("text") {
        return Ok(false);
    }
    if !options.early && first.len() != second.len() {
        return Ok(false);
    }
    for (first, second) in first.iter().zip(second) {
        if !same_paragraph(options, first, second)? {
            return Ok(false);
        }
        slide_a.paragraphs.insert(first.node);
        slide_b.paragraphs.insert(second.node);
        let runs = first.runs.len().min(second.runs.len());
        if runs > 0 && options.on("bullets") && !same_bullets(options, slide_a, slide_b)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The rules on positions, most of them made for one task each.
fn positions_hold(
    options: &ExamineOptions,
    number: usize,
    a: &Shape,
    b: &Shape,
) -> Result<bool, MetricError> {
    let same = || options.same_frame(a, b);
    let compare = |at: usize| a.frame[at].zip(b.frame[at]).ok_or_else(no_position);
    let (have_text, text) = (a.paragraphs.is_some() && b.paragraphs.is_some(), a.text().unwrap_or_default());
    let same_text = have_text && a.text() == b.text();
    let no_text = a.paragraphs.is_none() && b.paragraphs.is_none();
    let both_are = |kind: Kind| Ok::<_, MetricError>(a.known_kind()? == kind && b.known_kind()? == kind);
    if options.on("title_bottom_position") {
        if same_text {
            if text == "Product Comparison" && is_above(compare(1)?, 3_600_000) {
                return Ok(false);
            }
        } else if !same()? {
            return Ok(false);
        }
    }
    if options.on("table_bottom_position") {
        if number == 3 && both_are(Kind::Table)? {
            if is_above(compare(1)?, 3_600_000) {
                return Ok(false);
            }
        } else if !same()? {
            return Ok(false);
        }
    }
    if options.on("right_position") && number == 2 && no_text && is_above(compare(0)?, 4_320_000) {
        return Ok(false);
    }
    if options.on("top_position") {
        if number == 2 && both_are(Kind::Picture)? {
            let (first, second) = compare(1)?;
            if first >= second || first > 1_980_000 {
                return Ok(false);
            }
        } else if options.early && !same()? {
            return Ok(false);
        }
    }
    if options.on("shape_for_shift_size")
        && !same()?
        && !(same_text && text == "Elaborate on what you want to discuss.")
    {
        return Ok(false);
    }
    if !same()? && options.on("shape") {
        return Ok(false);
    }
    if options.on("image_size") {
        let sizes = || {
            Ok::<_, MetricError>(
                options.near(a.frame[2], b.frame[2])? && options.near(a.frame[3], b.frame[3])?,
            )
        };
        if !(if both_are(Kind::Picture)? { sizes()? } else { same()? }) {
            return Ok(false);
        }
    }
    if options.on("modify_height") {
        let only_height = no_text || both_are(Kind::Freeform)?;
        if !(if only_height { options.near(a.frame[3], b.frame[3])? } else { same()? }) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Not moved beyond its old position, or not far enough.
fn is_above((now, before): (i64, i64), least: i64) -> bool {
    now <= before || now < least
}

/// A value that the format does not have raises.
fn same_alignment(options: &ExamineOptions, a: &Paragraph, b: &Paragraph) -> Result<bool, MetricError> {
    const KNOWN: [&str; 7] = ["l", "ctr", "r", "just", "justLow", "dist", "thaiDist"];
    if let Some(unknown) =
        [a, b].iter().filter_map(|one| one.alignment.as_deref()).find(|one| !KNOWN.contains(one))
    {
        return Err(MetricError::raises(format!("no such alignment: {unknown}")));
    }
    let effective =
        |paragraph: &Paragraph| paragraph.alignment.clone().or_else(|| (!options.early).then(|| "l".into()));
    Ok(effective(a) == effective(b))
}

/// The ARPO era looks at the alignment even where it is not to be examined.
fn same_paragraph(options: &ExamineOptions, a: &Paragraph, b: &Paragraph) -> Result<bool, MetricError> {
    let examined = options.on("alignment");
    let same_alignment = !(examined || options.early) || same_alignment(options, a, b)?;
    if (examined && !same_alignment)
        || (options.on("text") && a.text != b.text)
        || (options.on("indent") && a.level != b.level)
        || (!options.early && a.runs.len() != b.runs.len())
    {
        return Ok(false);
    }
    Ok(a.runs.iter().zip(&b.runs).all(|(a, b)| same_run(options, a, b)))
}

fn same_run(options: &ExamineOptions, a: &Run, b: &Run) -> bool {
    let differs = (options.on("font_name") && a.font != b.font)
        || (options.on("font_size") && a.size != b.size)
        || (options.on("font_bold") && !same_flag(options, a.bold, b.bold))
        || (options.on("font_italic") && !same_flag(options, a.italic, b.italic))
        || (options.on("color_rgb") && other_color(a, b))
        || (options.on("font_underline") && !same_underline(options, a, b))
        || (options.on("strike_through") && strike(a) != strike(b));
    !differs
}

fn strike(run: &Run) -> &str {
    run.strike.as_deref().unwrap_or("noStrike")
}

/// Verified: unset counts as false.
fn same_flag(options: &ExamineOptions, a: Option<bool>, b: Option<bool>) -> bool {
    if options.early { a == b } else { a.unwrap_or(false) == b.unwrap_or(false) }
}

/// Only plain colours are compared, and only where both are.
fn other_color(a: &Run, b: &Run) -> bool {
    matches!((&a.color, &b.color), (Some(a), Some(b)) if a != b)
}

/// Verified: unset differs from a single line, but from no other underlining.
fn same_underline(options: &ExamineOptions, a: &Run, b: &Run) -> bool {
    match (a.underline.as_deref(), b.underline.as_deref()) {
        (None, Some(line)) | (Some(line), None) if !options.early => line != "sng",
        (a, b) => a == b,
    }
}

/// Verified: tables cell by cell. Bold, italic and underline count whatever the options say.
fn same_table(options: &ExamineOptions, a: &Shape, b: &Shape) -> Result<bool, MetricError> {
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
                !(options.on("color_rgb") && other_color(a, b))
                    && same_flag(options, a.bold, b.bold)
                    && same_flag(options, a.italic, b.italic)
                    && same_underline(options, a, b)
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
fn same_bullets(options: &ExamineOptions, a: &ReadSlide<'_>, b: &ReadSlide<'_>) -> Result<bool, MetricError> {
    let broken = a.slide.bullets.iter().chain(&b.slide.bullets).any(|bullet| bullet.text.is_none());
    if options.early {
        return if broken {
            Err(MetricError::raises("an empty part of a text"))
        } else {
            Ok(every_bullet(a).eq(every_bullet(b)))
        };
    }
    Ok(broken || bullets_with_text(a).eq(bullets_with_text(b)))
}

/// Level, letter, text and colour.
fn every_bullet<'a>(
    read: &'a ReadSlide<'_>,
) -> impl Iterator<Item = (Option<&'a str>, &'a str, Option<&'a str>, &'a str)> {
    let bullets = read.slide.bullets.iter();
    bullets.map(move |bullet| {
        (read.level(bullet), bullet.letter.as_str(), bullet.text.as_deref(), bullet.color.as_str())
    })
}

/// Level, none being the first; letter, text.
fn bullets_with_text<'a>(read: &'a ReadSlide<'_>) -> impl Iterator<Item = (&'a str, &'a str, &'a str)> {
    let bullets = read.slide.bullets.iter();
    bullets.filter_map(move |bullet| {
        let text = bullet.text.as_deref().filter(|text| !python::strip(text).is_empty())?;
        Some((read.level(bullet).unwrap_or("0"), bullet.letter.as_str(), text))
    })
}

/// Verified: shapes with text, those in groups too, once more: their number, texts and alignments.
fn same_text_shapes(options: &ExamineOptions, a: &Slide, b: &Slide) -> Result<bool, MetricError> {
    let texts = |slide: &Slide| slide.shapes.iter().flat_map(Shape::texts).cloned().collect::<Vec<Shape>>();
    let (first, second) = (texts(a), texts(b));
    if first.len() != second.len() || !options.on("alignment") {
        return Ok(first.len() == second.len());
    }
    for (a, b) in first.iter().zip(&second) {
        let stripped = |shape: &Shape| python::strip(&shape.text().unwrap_or_default()).to_owned();
        let (Some(first), Some(second)) = (&a.paragraphs, &b.paragraphs) else { continue };
        if (options.on("text") && stripped(a) != stripped(b)) || first.len() != second.len() {
            return Ok(false);
        }
        for (a, b) in first.iter().zip(second) {
            if !same_alignment(options, a, b)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
