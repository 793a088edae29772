//! Metrics on images: structural similarity, brightness, colours, size. The result comes first, then what it is
//! compared with.

use super::call::yes;
use super::{Call, Metric, Score, metric};
use crate::error::MetricError;
use crate::ocr;
use crate::pillow::ssim::{similarity, similarity_of_columns};
use crate::pillow::{Mode, PillowImage, mean, xwd};
use crate::state::State;
use serde_json::Value;
use std::collections::BTreeMap;

pub(super) const METRICS: &[Metric] = &[
    metric("check_brightness_decrease_and_structure_sim", check_brightness_decrease_and_structure_sim),
    metric("check_contrast_increase_and_structure_sim", check_contrast_increase_and_structure_sim),
    metric("check_file_exists_and_structure_sim", check_file_exists_and_structure_sim),
    metric("check_green_background", check_green_background),
    metric("check_image_file_size", check_image_file_size),
    metric("check_image_mirror", check_image_mirror),
    metric("check_image_size", check_image_size),
    metric("check_palette_and_structure_sim", check_palette_and_structure_sim),
    metric("check_saturation_increase_and_structure_sim", check_saturation_increase_and_structure_sim),
    metric("check_structure_sim", check_structure_sim),
    metric("check_structure_sim_resized", check_structure_sim_resized),
    metric("check_structure_sim_with_threshold", check_structure_sim_with_threshold),
    metric("check_textbox_on_leftside", check_textbox_on_leftside),
    metric("check_triangle_position", check_triangle_position),
    metric("compare_image_list", compare_image_list),
    metric("compare_image_text", compare_image_text),
    metric("compare_images", compare_images),
];

fn open(state: &State) -> Result<PillowImage, MetricError> {
    PillowImage::decode(&state.file()?.bytes)
}

/// Both images; none where either is absent, which scores 0.
fn both(call: &Call<'_>) -> Result<Option<(PillowImage, PillowImage)>, MetricError> {
    let expected = call.expected()?;
    if call.result.is_none() || expected.is_none() {
        return Ok(None);
    }
    Ok(Some((open(call.result)?, open(expected)?)))
}

/// Whether the structure is the same.
///
/// ARPO era: images as they are; different sizes or modes raise, and a grey one is compared by columns.
/// Verified: both as RGB; different sizes and images below 7 pixels are different.
fn same_structure(
    call: &Call<'_>,
    a: &PillowImage,
    b: &PillowImage,
    threshold: f64,
) -> Result<bool, MetricError> {
    if call.is_arpo_era() {
        return match palettes(a, b)? {
            Palettes::None => Ok(similarity_of_columns(a, b)? >= threshold),
            Palettes::Both => Ok(similarity(&a.to_rgb(), &b.to_rgb())? >= threshold),
            Palettes::OneAndGrey => Ok(false),
        };
    }
    Ok(similarity(&a.to_rgb(), &b.to_rgb()).is_ok_and(|similarity| similarity >= threshold))
}

/// Which of two images have a palette.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Palettes {
    None,
    Both,
    /// The numbers of its colours are compared with shades of grey: different.
    OneAndGrey,
}

/// The ARPO era compares the numbers of a palette's colours, one plane: a pair with colours in the other image raises.
fn palettes(a: &PillowImage, b: &PillowImage) -> Result<Palettes, MetricError> {
    match (a.is_palette, b.is_palette) {
        (false, false) => Ok(Palettes::None),
        (true, true) => Ok(Palettes::Both),
        (true, false) if b.mode == Mode::L => Ok(Palettes::OneAndGrey),
        (false, true) if a.mode == Mode::L => Ok(Palettes::OneAndGrey),
        _ => Err(MetricError::raises("images of different shapes")),
    }
}

const ALIKE: f64 = 0.9;

fn check_structure_sim(call: &Call<'_>) -> Score {
    match both(call) {
        Ok(Some((a, b))) => Ok(yes(same_structure(call, &a, &b, ALIKE)?)),
        Ok(None) => Ok(0.0),
        Err(_) if !call.is_arpo_era() => Ok(0.0),
        Err(error) => Err(error),
    }
}

/// Verified: a lower limit, which the options may set.
fn check_structure_sim_with_threshold(call: &Call<'_>) -> Score {
    let Some((a, b)) = both(call)? else { return Ok(0.0) };
    Ok(yes(same_structure(call, &a, &b, call.number("ssim_threshold").unwrap_or(0.85))?))
}

fn check_file_exists_and_structure_sim(call: &Call<'_>) -> Score {
    if matches!(call.result, State::Absent(_)) {
        return Ok(0.0);
    }
    let Some((a, b)) = both(call)? else { return Ok(0.0) };
    Ok(yes(same_structure(call, &a, &b, ALIKE)?))
}

/// The structure after the result is resized to the other's size. Verified: of a result with transparency, only
/// the part that is not transparent.
fn check_structure_sim_resized(call: &Call<'_>) -> Score {
    let Some((a, b)) = both(call)? else { return Ok(0.0) };
    if call.is_arpo_era() {
        let resized = PillowImage { is_palette: a.is_palette, ..a.bicubic(b.width, b.height) };
        return Ok(yes(same_structure(call, &resized, &b, ALIKE)?));
    }
    let content = if matches!(a.mode, Mode::La | Mode::Rgba) {
        match a.opaque_bounds() {
            Some(bounds) => a.cropped(bounds).to_rgb(),
            None => return Ok(0.0),
        }
    } else {
        a
    };
    Ok(yes(same_structure(call, &content.bicubic(b.width, b.height), &b, ALIKE)?))
}

/// Darker than the other, and alike once both are scaled to the same brightness.
fn check_brightness_decrease_and_structure_sim(call: &Call<'_>) -> Score {
    let Some((a, b)) = both(call)? else { return Ok(0.0) };
    if [call.result, call.expected()?].into_iter().any(is_deep) {
        return Err(MetricError::raises("an image of sixteen bits cannot be scaled"));
    }
    // Pillow scales the numbers of a palette's colours, which leaves no likeness.
    let no_likeness = if call.is_arpo_era() {
        palettes(&a, &b)? == Palettes::OneAndGrey
    } else {
        a.is_palette || b.is_palette
    };
    if no_likeness {
        return Ok(0.0);
    }
    let darker = b.brightness() > a.brightness();
    let limit = if call.is_arpo_era() { 0.03 } else { call.number("threshold").unwrap_or(0.03) };
    let (mut a, mut b) = (at_brightness(&a, 128.0)?, at_brightness(&b, 128.0)?);
    if !call.is_arpo_era() {
        a = a.lanczos(b.width, b.height).to_rgb();
        b = b.to_rgb();
    }
    if (a.width, a.height, a.mode) != (b.width, b.height, b.mode) {
        return Err(MetricError::raises("images of different shapes"));
    }
    let squares =
        a.pixels.iter().zip(&b.pixels).map(|(a, b)| ((f64::from(*a) - f64::from(*b)) / 255.0).powi(2));
    let difference = squares.sum::<f64>() / a.pixels.len() as f64;
    Ok(yes(darker && difference < limit))
}

/// A grey PNG of sixteen bits.
fn is_deep(state: &State) -> bool {
    let bytes = state.file().map(|file| file.bytes.clone());
    bytes.is_ok_and(|bytes| bytes.starts_with(b"\x89PNG") && bytes.get(24..26) == Some(&[16, 0]))
}

/// Scales every byte, alpha too, to bring the mean grey to the target. A black image raises.
fn at_brightness(image: &PillowImage, target: f64) -> Result<PillowImage, MetricError> {
    let brightness = image.brightness();
    if brightness == 0.0 {
        return Err(MetricError::raises("division by zero: a black image"));
    }
    let factor = target / brightness;
    let pixels = image.pixels.iter().map(|byte| (f64::from(*byte) * factor).min(255.0) as u8).collect();
    Ok(PillowImage { pixels, ..image.clone() })
}

/// More saturated than the other, with the same hues and values.
fn check_saturation_increase_and_structure_sim(call: &Call<'_>) -> Score {
    let Some((a, b)) = both(call)? else { return Ok(0.0) };
    let ([a_hue, a_saturation, a_value], [b_hue, b_saturation, b_value]) = (a.to_hsv(), b.to_hsv());
    let more = mean(&b_saturation) < mean(&a_saturation);
    let same_hue = same_structure(call, &a.of_plane(a_hue), &b.of_plane(b_hue), ALIKE)?;
    let same_value = same_structure(call, &a.of_plane(a_value), &b.of_plane(b_value), ALIKE)?;
    Ok(yes(more && same_hue && same_value))
}

/// More contrast than the other, with a structure still alike.
fn check_contrast_increase_and_structure_sim(call: &Call<'_>) -> Score {
    let Some((a, b)) = both(call)? else { return Ok(0.0) };
    let more = b.contrast() < a.contrast();
    Ok(yes(same_structure(call, &a, &b, 0.65)? && more))
}

/// The other's mirror image.
fn check_image_mirror(call: &Call<'_>) -> Score {
    let Some((a, b)) = both(call)? else { return Ok(0.0) };
    Ok(yes(same_structure(call, &a.mirrored(), &b, 0.99)?))
}

/// An image with a palette, alike the other.
fn check_palette_and_structure_sim(call: &Call<'_>) -> Score {
    let both = match both(call) {
        Err(_) if !call.is_arpo_era() => return Ok(0.0),
        other => other?,
    };
    let Some((a, b)) = both else { return Ok(0.0) };
    Ok(yes(same_structure(call, &a.to_rgb(), &b, ALIKE)? && a.is_palette))
}

/// The left-most dark pixel lies within the left twentieth.
fn check_textbox_on_leftside(call: &Call<'_>) -> Score {
    if call.result.is_none() {
        return Ok(0.0);
    }
    let grey = open(call.result)?.to_grey();
    let rows = grey.pixels.chunks_exact(grey.width);
    let left = rows.filter_map(|row| row.iter().position(|byte| *byte < 128)).min().unwrap_or(grey.width);
    Ok(yes((left as f64) < grey.width as f64 * 0.05))
}

/// The second rarest colour has its centre within a twentieth of the middle.
fn check_triangle_position(call: &Call<'_>) -> Score {
    if call.result.is_none() {
        return Ok(0.0);
    }
    let image = open(call.result)?;
    if image.mode == Mode::L || image.is_palette {
        return Err(MetricError::raises("an image without channels"));
    }
    let mut sums: BTreeMap<&[u8], (usize, f64, f64)> = BTreeMap::new();
    for (at, pixel) in image.by_pixel().enumerate() {
        let (count, rows, columns) = sums.entry(pixel).or_default();
        *count += 1;
        *rows += (at / image.width) as f64;
        *columns += (at % image.width) as f64;
    }
    let mut by_count: Vec<(usize, f64, f64)> = sums.into_values().collect();
    by_count.sort_by_key(|(count, ..)| *count);
    let (count, rows, columns) =
        *by_count.get(1).ok_or_else(|| MetricError::raises("an image of one colour"))?;
    let near = |sum: f64, side: usize| (sum / count as f64 - side as f64 / 2.0).abs() < 0.05 * side as f64;
    Ok(yes(near(rows, image.height) && near(columns, image.width)))
}

/// Where the other is not black, the result is more green than anything else. The original takes the column for
/// the row, so that an image wider or higher than it is the other way raises when it gets there.
fn check_green_background(call: &Call<'_>) -> Score {
    let Some((a, b)) = both(call)? else { return Ok(0.0) };
    let pixel = |image: &PillowImage, row: usize, column: usize| {
        if image.mode.channels() < 3 || image.is_palette || row >= image.height || column >= image.width {
            return Err(MetricError::raises("index out of bounds"));
        }
        let at = (row * image.width + column) * image.mode.channels();
        Ok([image.pixels[at], image.pixels[at + 1], image.pixels[at + 2]])
    };
    for first in 0..b.width {
        for second in 0..b.height {
            if pixel(&b, first, second)? == [0, 0, 0] {
                continue;
            }
            let [red, green, blue] = pixel(&a, first, second)?;
            if green <= red || green <= blue {
                return Ok(0.0);
            }
        }
    }
    Ok(1.0)
}

/// Width and height as the rule says. Verified: of what is not transparent, if the rule says so.
fn check_image_size(call: &Call<'_>) -> Score {
    if call.result.is_none() {
        return Ok(0.0);
    }
    let image = open(call.result)?;
    let rule = call.rule()?;
    let (mut width, mut height) = (image.width, image.height);
    let ignores = rule.get("ignore_transparent").is_some_and(crate::text::python::truthy);
    if !call.is_arpo_era() && ignores && matches!(image.mode, Mode::La | Mode::Rgba) {
        (width, height) = image
            .opaque_bounds()
            .map_or((0, 0), |bounds| (bounds.right - bounds.left, bounds.bottom - bounds.top));
    }
    let agrees = |name: &str, side: usize| match rule.get(name) {
        None | Some(Value::Null) => true,
        Some(wanted) => crate::text::python::number(wanted) == Some(side as f64),
    };
    Ok(yes(agrees("width", width) && agrees("height", height)))
}

/// The file is smaller than the rule says.
fn check_image_file_size(call: &Call<'_>) -> Score {
    if call.result.is_none() {
        return Ok(0.0);
    }
    let limit = call
        .rule_field("max_size")?
        .as_f64()
        .ok_or_else(|| MetricError::raises("max_size is not a number"))?;
    Ok(yes((call.result.file()?.bytes.len() as f64) < limit))
}

/// The same pixels, image by image.
///
/// Of images with alpha, Pillow looks for differences in alpha alone. ARPO era: different modes raise, and of
/// different sizes the common part counts. Verified: the result is resized and converted first.
fn compare_image_list(call: &Call<'_>) -> Score {
    let expected = call.expected()?;
    for (result, expected) in call.result.each().iter().zip(expected.each()) {
        if result.is_falsy() || expected.is_falsy() {
            return Ok(0.0);
        }
        let (mut a, mut b) = (open(result)?, open(expected)?);
        if call.is_arpo_era() {
            if palettes(&a, &b)? == Palettes::OneAndGrey {
                return Ok(0.0);
            }
            if a.mode != b.mode || is_deep(result) != is_deep(expected) {
                return Err(MetricError::raises("images of different modes"));
            }
            let common = crate::pillow::Bounds {
                left: 0,
                top: 0,
                right: a.width.min(b.width),
                bottom: a.height.min(b.height),
            };
            (a, b) = (a.cropped(common), b.cropped(common));
        } else {
            a = a.lanczos(b.width, b.height);
            a = a.to_mode(b.mode);
        }
        let channels = a.mode.channels();
        let counts = |at: &usize| !matches!(a.mode, Mode::La | Mode::Rgba) || at % channels == channels - 1;
        if (0..a.pixels.len()).filter(counts).any(|at| a.pixels[at] != b.pixels[at]) {
            return Ok(0.0);
        }
    }
    Ok(1.0)
}

/// A text is in the image.
///
/// Verified: a dump of the screen counts as an image, and whatever cannot be read scores 0; in the ARPO era it raises.
fn compare_image_text(call: &Call<'_>) -> Score {
    let is_missing = matches!(call.result, State::Absent(_)) && !call.is_arpo_era();
    if call.result.is_falsy() || is_missing {
        return Ok(0.0);
    }
    let found = || -> Score {
        let bytes = &call.result.file()?.bytes;
        let image = if !call.is_arpo_era() && xwd::is_dump(bytes) {
            xwd::decode(bytes)?
        } else {
            PillowImage::decode(bytes)?
        };
        let kind = call.rule_text("type")?;
        if kind != "text" {
            return Err(MetricError::raises(format!("no such type of rule: {kind}")));
        }
        Ok(yes(ocr::holds(&ocr::words(&image)?, call.rule_text("text")?)))
    };
    match found() {
        Err(MetricError::Raises(_)) if !call.is_arpo_era() => Ok(0.0),
        other => other,
    }
}

/// Similarity of the grey images at the smaller size, "smaller" being Python's order of (width, height).
///
/// ARPO era: its test of the base is the wrong way round, so that the similarity itself is the score where a base
/// is given, and without one it raises. Verified: the score above the base.
fn compare_images(call: &Call<'_>) -> Score {
    if call.lacks_a_file()? {
        return Ok(0.0);
    }
    let base = call.number("reference_base_result");
    let (a, b) = (open(call.result)?.to_grey(), open(call.expected()?)?.to_grey());
    let (width, height) = (a.width, a.height).min((b.width, b.height));
    let similarity = similarity(&a.lanczos(width, height), &b.lanczos(width, height))?;
    match (base, call.is_arpo_era()) {
        (None, true) => Err(MetricError::raises("no base is given")),
        (Some(_), true) | (None, false) => Ok(similarity),
        (Some(base), false) => {
            Ok(if similarity >= base + 0.01 { (similarity - base) / (1.0 - base) } else { 0.0 })
        }
    }
}
