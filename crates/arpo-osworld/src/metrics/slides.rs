//! Metrics on presentations and on `LibreOffice` Impress.

use super::call::yes;
use super::deck_compare::compare_pptx_files;
use super::{Call, Metric, Score, metric};
use crate::deck::pptx::{Background, Deck, Slide};
use crate::deck::shape::{A, Kind, P, Shape};
use crate::error::MetricError;
use crate::package::Package;
use crate::xml::{parse, xml_text};
use serde_json::Value;

pub(super) const METRICS: &[Metric] = &[
    metric("check_auto_saving_time", check_auto_saving_time),
    metric("check_image_stretch_and_center", check_image_stretch_and_center),
    metric("check_left_panel", check_left_panel),
    metric("check_page_number_colors", check_page_number_colors),
    metric("check_presenter_console_disable", check_presenter_console_disable),
    metric("check_slide_orientation_Portrait", check_slide_orientation_portrait),
    metric("check_strikethrough", check_strikethrough),
    metric("check_transition", check_transition),
    metric("compare_pptx_files", compare_pptx_files),
    metric("evaluate_presentation_fill_to_rgb_distance", evaluate_presentation_fill_to_rgb_distance),
];

fn open(call: &Call<'_>) -> Result<Deck, MetricError> {
    if call.result.is_none() { Ok(Deck::default()) } else { Deck::open(&call.result.file()?.bytes) }
}

/// A slide has the transition; the slide is found by its file's number.
fn check_transition(call: &Call<'_>) -> Score {
    let package = Package::open(&call.result.file()?.bytes)?;
    let index = call
        .rule_field("slide_idx")?
        .as_i64()
        .ok_or_else(|| MetricError::raises("slide_idx is not a number"))?;
    let name = format!("ppt/slides/slide{}.xml", index + 1);
    if !package.has(&name) {
        return Ok(0.0);
    }
    let wanted = call.rule_text("transition_type")?;
    let text = package.xml(&name)?;
    let document = parse(&text)?;
    let transition = document.descendants().find(|node| node.has_tag_name((P, "transition")));
    let inside = transition.into_iter().flat_map(|node| node.descendants().skip(1));
    Ok(yes(inside.into_iter().any(|node| node.has_tag_name((P, wanted)))))
}

/// `LibreOffice` autosaves after the given minutes. A settings file that is missing or not XML is an error, neither 0
/// nor 1.
fn check_auto_saving_time(call: &Call<'_>) -> Score {
    let minutes = call.rule_field("minutes")?;
    let text = xml_text(&call.result.file()?.bytes)?;
    let document = parse(&text)?;
    let path = "/org.openoffice.Office.Common/Save/Document";
    let Some(found) = super::registry::setting(&document, path, "AutoSaveTimeIntervall") else {
        return Ok(0.0);
    };
    let found: i64 =
        found.trim().parse().map_err(|_| MetricError::raises(format!("{found:?} is not a number")))?;
    Ok(yes(crate::text::python::number(minutes) == Some(found as f64)))
}

/// The presenter's console is switched off.
fn check_presenter_console_disable(call: &Call<'_>) -> Score {
    let Ok(file) = call.result.file() else { return Ok(0.0) };
    let Ok(text) = xml_text(&file.bytes) else { return Ok(0.0) };
    let Ok(document) = parse(&text) else { return Ok(0.0) };
    let path = "/org.openoffice.Office.Impress/Misc/Start";
    let found = super::registry::setting(&document, path, "EnablePresenterScreen");
    Ok(yes(found.is_some_and(|value| value.eq_ignore_ascii_case("false"))))
}

const STATE_EARLY: &str = "uri:deskat:state.at-spi.gnome.org";
const COMPONENT_EARLY: &str = "uri:deskat:component.at-spi.gnome.org";

/// Impress shows its left panel, by the accessibility tree.
///
/// ARPO era: a visible `split-pane` at (0, 0) in a panel of a root pane, with namespaces of an older server.
/// Verified: a `document-frame` named "Slides View".
fn check_left_panel(call: &Call<'_>) -> Score {
    let tree = call.result.json()?;
    let tree = tree.as_str().ok_or_else(|| MetricError::raises("no accessibility tree"))?;
    let document = parse(tree)?;
    let mut nodes = document.descendants();
    if !call.is_arpo_era() {
        let is_view = |node: roxmltree::Node| {
            node.tag_name().name() == "document-frame" && node.attribute("name") == Some("Slides View")
        };
        return Ok(yes(nodes.any(is_view)));
    }
    Ok(yes(nodes.any(|node| {
        let mut above = node.ancestors().skip(1).skip_while(|one| one.tag_name().name() != "panel").skip(1);
        node.tag_name().name() == "split-pane"
            && above.any(|one| one.tag_name().name() == "root-pane")
            && node.attribute((COMPONENT_EARLY, "parentcoord")) == Some("(0, 0)")
            && node.attribute((STATE_EARLY, "visible")).is_some_and(|visible| !visible.is_empty())
    })))
}

/// Slides higher than wide.
fn check_slide_orientation_portrait(call: &Call<'_>) -> Score {
    let (width, height) = open(call)?.size_emu;
    Ok(yes(width < height))
}

/// The first runs of the given paragraphs are struck through.
fn check_strikethrough(call: &Call<'_>) -> Score {
    let deck = open(call)?;
    let indices = |name: &str| -> Result<Vec<usize>, MetricError> {
        call.rule_field(name)?;
        Ok(call
            .rule_list(name)?
            .iter()
            .filter_map(|index| index.as_u64().map(|index| index as usize))
            .collect())
    };
    let (slides, shapes, paragraphs) =
        (indices("slide_index_s")?, indices("shape_index_s")?, indices("paragraph_index_s")?);
    let is_struck = |slide: &usize, shape: &usize, paragraph: &usize| {
        let shape = deck.slides.get(*slide)?.shapes.get(*shape)?;
        Some(shape.paragraphs.as_ref()?.get(*paragraph)?.runs.first()?.strike.is_some())
    };
    let all = slides.iter().all(|slide| {
        shapes.iter().all(|shape| {
            paragraphs.iter().all(|paragraph| is_struck(slide, shape, paragraph).unwrap_or(false))
        })
    });
    Ok(yes(all))
}

/// One less the mean distance of the slides' background colours to a colour.
fn evaluate_presentation_fill_to_rgb_distance(call: &Call<'_>) -> Score {
    let color = |name: &str| -> Result<Option<[f64; 3]>, MetricError> {
        match call.rule()?.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                let parts: Vec<f64> =
                    value.as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
                parts.try_into().map(Some).map_err(|_| MetricError::raises(format!("{name} is not a colour")))
            }
        }
    };
    let wanted = color("rgb")?.ok_or_else(|| MetricError::raises("the rule has no rgb"))?;
    let original = if call.is_arpo_era() { None } else { color("original_rgb")? };
    let deck = open(call)?;
    let distance = |slide: &Slide| -> Result<f64, MetricError> {
        let background = if slide.background == Background::Inherited {
            &slide.master_background
        } else {
            &slide.background
        };
        let found = match background {
            Background::Plain(color) => rgb(color)?,
            Background::Theme if call.is_arpo_era() => {
                return Err(MetricError::raises("a background of the theme"));
            }
            _ => return Ok(1.0),
        };
        if original == Some(found) {
            return Ok(1.0);
        }
        let squares: f64 = found.iter().zip(wanted).map(|(a, b)| (a - b).powi(2)).sum();
        Ok(squares.sqrt() / (3.0_f64 * 255.0 * 255.0).sqrt())
    };
    if deck.slides.is_empty() {
        return Err(MetricError::raises("division by zero: no slides"));
    }
    let total = deck.slides.iter().map(distance).sum::<Result<f64, _>>()?;
    Ok(1.0 - total / deck.slides.len() as f64)
}

fn rgb(digits: &str) -> Result<[f64; 3], MetricError> {
    let part =
        |at: usize| digits.get(at..at + 2).and_then(|part| u8::from_str_radix(part, 16).ok()).map(f64::from);
    match (part(0), part(2), part(4)) {
        (Some(red), Some(green), Some(blue)) => Ok([red, green, blue]),
        _ => Err(MetricError::raises(format!("{digits:?} is not a colour"))),
    }
}

/// The picture of the first slide fills it, within half an inch.
fn check_image_stretch_and_center(call: &Call<'_>) -> Score {
    const HALF_INCH_EMU: f64 = 457_200.0;
    let (modified, original) = (open(call)?, Deck::open(&call.expected()?.file()?.bytes)?);
    let first = |deck: &Deck| deck.slides.first().cloned().ok_or_else(|| MetricError::raises("no slide"));
    let (modified, shown) = (first(&modified)?, first(&original)?);
    let pictures = |slide: &Slide| {
        slide.shapes.iter().filter(|shape| shape.kind == Kind::Picture).cloned().collect::<Vec<Shape>>()
    };
    let bytes = |slide: &Slide, shape: &Shape| {
        let id = shape.picture.clone()?;
        slide.pictures.iter().find(|(other, _)| *other == id).map(|(_, bytes)| bytes.clone())
    };
    let wanted = pictures(&shown).first().and_then(|shape| bytes(&shown, shape));
    let found = wanted.and_then(|wanted| {
        pictures(&modified).into_iter().rfind(|shape| bytes(&modified, shape).as_ref() == Some(&wanted))
    });
    let Some(found) = found else {
        return if call.is_arpo_era() { Err(MetricError::raises("no such picture")) } else { Ok(0.0) };
    };
    let [left, top, width, height] = found.frame.map(|side| side.map(|side| side as f64));
    let (Some(left), Some(top), Some(width), Some(height)) = (left, top, width, height) else {
        return Err(MetricError::raises("a picture without a position"));
    };
    let (slide_width, slide_height) = (original.size_emu.0 as f64, original.size_emu.1 as f64);
    let near = |a: f64, b: f64| (a - b).abs() <= HALF_INCH_EMU;
    let fills = near(width, slide_width) && near(height, slide_height);
    Ok(yes(fills && near(left, (slide_width - width) / 2.0) && near(top, (slide_height - height) / 2.0)))
}

/// The last but one plain colour of the first master, cut one digit late as the original cuts it.
fn check_page_number_colors(call: &Call<'_>) -> Score {
    const MARGIN: i64 = 50;
    let package = Package::open(&call.result.file()?.bytes)?;
    let text = package.xml("ppt/slideMasters/slideMaster1.xml")?;
    let document = parse(&text)?;
    let in_fill = |node: &roxmltree::Node| node.ancestors().any(|one| one.has_tag_name((A, "solidFill")));
    let colors: Vec<&str> = document
        .descendants()
        .filter(|node| node.has_tag_name((A, "srgbClr")) && in_fill(node))
        .filter_map(|node| node.attribute("val"))
        .collect();
    let last_but_one = colors
        .len()
        .checked_sub(2)
        .map(|at| colors[at])
        .ok_or_else(|| MetricError::raises("too few colours"))?;
    let part = |from: usize, to: usize| {
        let digits = last_but_one.get(from..to.min(last_but_one.len())).filter(|digits| !digits.is_empty());
        digits
            .and_then(|digits| i64::from_str_radix(digits, 16).ok())
            .ok_or_else(|| MetricError::raises("no colour"))
    };
    let (red, green, blue) = (part(1, 3)?, part(3, 5)?, part(5, 7)?);
    Ok(yes(match call.rule_text("color")? {
        "red" => red > green + MARGIN && red > blue + MARGIN,
        "blue" => blue > green + MARGIN && blue > red + MARGIN,
        "green" => green > red + MARGIN && green > blue + MARGIN,
        "black" => red < MARGIN && green < MARGIN && blue < MARGIN,
        _ => true,
    }))
}
