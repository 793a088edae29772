//! The images that a PDF holds, decoded one after the other.

use super::budget::Budget;
use super::{FORM_DEPTH_LIMIT, Pdf, STREAM_LIMIT_BYTES};
use crate::error::MetricError;
use crate::pillow::{Mode, PillowImage};
use lopdf::{Dictionary, Document, Object, ObjectId, Stream};
use std::collections::HashMap;

/// Images of a document, those that several pages show counted for each.
const IMAGES_LIMIT: usize = 100_000;
/// Pixels of one image.
const PIXELS_LIMIT: usize = 64 << 20;

impl Pdf {
    /// A hash of the images of every page, in the order in which its resources name them; those of pages drawn inside it come
    /// after its own. Each is decoded once, and none is kept.
    pub fn images(&self, hash: fn(&PillowImage) -> u64) -> Result<Vec<u64>, MetricError> {
        let mut gatherer = Gatherer {
            document: &self.0,
            hash,
            found: Vec::new(),
            known: HashMap::new(),
            open: Vec::new(),
            budget: Budget::default(),
        };
        for page in self.0.get_pages().into_values() {
            for resources in resources_of(&self.0, page) {
                gatherer.gather(resources)?;
            }
        }
        Ok(gatherer.found)
    }
}

/// The resources of a page: its own, or those it inherits.
pub(super) fn resources_of(document: &Document, page: ObjectId) -> Vec<&Dictionary> {
    let Ok((own, shared)) = document.get_page_resources(page) else { return Vec::new() };
    let shared = shared.into_iter().filter_map(|id| document.get_dictionary(id).ok());
    own.into_iter().chain(shared).take(1).collect()
}

/// The stream that resources name so for drawing, and its id.
pub(super) fn drawn_as<'a>(
    document: &'a Document,
    resources: &'a Dictionary,
    name: &[u8],
) -> Option<(ObjectId, &'a Stream)> {
    let objects = resources.get_deref(b"XObject", document).and_then(Object::as_dict).ok()?;
    stream(document, objects.get(name).ok()?)
}

/// All streams that resources name for drawing, with their ids.
fn drawn<'a>(
    document: &'a Document,
    resources: &'a Dictionary,
) -> impl Iterator<Item = (ObjectId, &'a Stream)> {
    let objects = resources.get_deref(b"XObject", document).and_then(Object::as_dict);
    objects.into_iter().flat_map(Dictionary::iter).filter_map(|(_, object)| stream(document, object))
}

fn stream<'a>(document: &'a Document, object: &'a Object) -> Option<(ObjectId, &'a Stream)> {
    let (id, object) = document.dereference(object).ok()?;
    Some((id?, object.as_stream().ok()?))
}

/// Whether a stream is an image, or a page drawn inside another.
pub(super) fn is_kind(stream: &Stream, kind: &[u8]) -> bool {
    stream.dict.get(b"Subtype").and_then(Object::as_name).is_ok_and(|name| name == kind)
}

struct Gatherer<'a> {
    document: &'a Document,
    hash: fn(&PillowImage) -> u64,
    found: Vec<u64>,
    /// Hashes by the images' ids.
    known: HashMap<ObjectId, u64>,
    /// The forms around the current one: one that draws itself is not looked into again.
    open: Vec<ObjectId>,
    budget: Budget,
}

impl Gatherer<'_> {
    fn gather(&mut self, resources: &Dictionary) -> Result<(), MetricError> {
        let document = self.document;
        for (id, image) in drawn(document, resources) {
            self.budget.step()?;
            if is_kind(image, b"Image") {
                let hash = self.hash_of(id, image)?;
                self.found.push(hash);
                if self.found.len() > IMAGES_LIMIT {
                    return Err(MetricError::raises("a PDF of too many images"));
                }
            }
        }
        if self.open.len() >= FORM_DEPTH_LIMIT {
            return Ok(());
        }
        for (id, form) in drawn(document, resources) {
            self.budget.step()?;
            if is_kind(form, b"Form")
                && !self.open.contains(&id)
                && let Ok(inner) = form.dict.get_deref(b"Resources", document).and_then(Object::as_dict)
            {
                self.open.push(id);
                self.gather(inner)?;
                self.open.pop();
            }
        }
        Ok(())
    }

    fn hash_of(&mut self, id: ObjectId, image: &Stream) -> Result<u64, MetricError> {
        if let Some(known) = self.known.get(&id) {
            return Ok(*known);
        }
        let image = decoded(self.document, image)?;
        self.budget.decoded(image.pixels.len())?;
        let hash = (self.hash)(&image);
        self.known.insert(id, hash);
        Ok(hash)
    }
}

/// The pixels of an image, its transparency aside.
pub(super) fn decoded(document: &Document, stream: &Stream) -> Result<PillowImage, MetricError> {
    let filters = stream.filters().unwrap_or_default();
    match filters.split_last() {
        Some((&b"DCTDecode", [])) => PillowImage::decode(&stream.content),
        Some((&b"DCTDecode", before)) => {
            let mut file = stream.clone();
            let before = before.iter().map(|name| Object::Name(name.to_vec())).collect();
            file.dict.set("Filter", Object::Array(before));
            PillowImage::decode(&content(&file)?)
        }
        Some((&(b"JPXDecode" | b"CCITTFaxDecode" | b"JBIG2Decode"), _)) => {
            Err(unsupported("whose compression is none of JPEG, Flate, LZW and run lengths"))
        }
        _ => raw(document, stream),
    }
}

fn unsupported(what: &str) -> MetricError {
    MetricError::Unsupported(format!("a PDF image {what}"))
}

fn content(stream: &Stream) -> Result<Vec<u8>, MetricError> {
    stream
        .decompressed_content_with_limit(STREAM_LIMIT_BYTES)
        .map_err(|error| MetricError::raises(format!("a PDF image: {error}")))
}

/// What a sample of an image means.
enum Space {
    Grey,
    Rgb,
    Cmyk,
    /// A number of a colour, three bytes each.
    Palette(Vec<u8>),
}

impl Space {
    fn samples(&self) -> usize {
        match self {
            Self::Grey | Self::Palette(_) => 1,
            Self::Rgb => 3,
            Self::Cmyk => 4,
        }
    }

    /// A pixel as red, green and blue; samples are from 0 to 255, those of a palette numbers.
    fn colour(&self, samples: &[u8]) -> [u8; 3] {
        match self {
            Self::Grey => [samples[0]; 3],
            Self::Rgb => [samples[0], samples[1], samples[2]],
            Self::Cmyk => std::array::from_fn(|at| {
                let (ink, black) = (u32::from(samples[at]), u32::from(samples[3]));
                ((255 - ink) * (255 - black) / 255) as u8
            }),
            Self::Palette(colours) => {
                let at = usize::from(samples[0]) * 3;
                std::array::from_fn(|part| colours.get(at + part).copied().unwrap_or(0))
            }
        }
    }
}

/// An image of plain samples, row by row.
fn raw(document: &Document, stream: &Stream) -> Result<PillowImage, MetricError> {
    let broken = || MetricError::raises("a PDF image without a size or with too few samples");
    let number = |key: &[u8]| {
        let value = stream.dict.get_deref(key, document).and_then(Object::as_i64);
        value.ok().and_then(|value| usize::try_from(value).ok())
    };
    if stream.dict.get(b"ImageMask").and_then(Object::as_bool).unwrap_or(false) {
        return Err(unsupported("that is a mask"));
    }
    let bits = number(b"BitsPerComponent").unwrap_or(8);
    let (Some(width), Some(height)) = (number(b"Width"), number(b"Height")) else { return Err(broken()) };
    let described = stream.dict.get_deref(b"ColorSpace", document).map_err(|_| broken())?;
    let space = space(document, described, 0)
        .ok_or_else(|| unsupported("whose colours are neither grey, RGB, CMYK nor a palette"))?;
    if !matches!(bits, 1 | 2 | 4 | 8 | 16) {
        return Err(broken());
    }
    if width.saturating_mul(height) > PIXELS_LIMIT {
        return Err(MetricError::raises("a PDF image of too many pixels"));
    }
    let in_row = width.checked_mul(space.samples()).ok_or_else(broken)?;
    let row_bytes = in_row.checked_mul(bits).ok_or_else(broken)?.div_ceil(8);
    let content = content(stream)?;
    if width == 0 || height == 0 || row_bytes.checked_mul(height).is_none_or(|size| size > content.len()) {
        return Err(broken());
    }
    let decode = stream.dict.get_deref(b"Decode", document).and_then(Object::as_array);
    let is_inverted = decode.is_ok_and(|ends| ends.first().and_then(|end| end.as_float().ok()) == Some(1.0));
    let is_palette = matches!(space, Space::Palette(_));
    let sample = |row: &[u8], at: usize| {
        let value = match bits {
            8 => row[at],
            16 => row[at * 2],
            _ => {
                let shift = 8 - bits - at * bits % 8;
                let value = (row[at * bits / 8] >> shift) & ((1 << bits) - 1);
                if is_palette { value } else { value * (255 / ((1 << bits) - 1)) }
            }
        };
        if is_inverted && !is_palette { 255 - value } else { value }
    };
    let mut pixels = Vec::with_capacity(width * height * 3);
    let mut samples = vec![0; space.samples()];
    for row in content.chunks_exact(row_bytes).take(height) {
        for column in 0..width {
            for (at, one) in samples.iter_mut().enumerate() {
                *one = sample(row, column * space.samples() + at);
            }
            pixels.extend(space.colour(&samples));
        }
    }
    Ok(PillowImage { mode: Mode::Rgb, is_palette: false, width, height, pixels })
}

/// A colour space by its name or its description.
fn space(document: &Document, described: &Object, depth: usize) -> Option<Space> {
    let parts = match described {
        Object::Name(name) => return named(name),
        Object::Array(parts) => parts,
        _ => return None,
    };
    let part = |at: usize| document.dereference(parts.get(at)?).ok().map(|(_, object)| object);
    match part(0)?.as_name().ok()? {
        b"CalGray" => Some(Space::Grey),
        b"CalRGB" => Some(Space::Rgb),
        b"ICCBased" => match part(1)?.as_stream().ok()?.dict.get(b"N").and_then(Object::as_i64).ok()? {
            1 => Some(Space::Grey),
            3 => Some(Space::Rgb),
            4 => Some(Space::Cmyk),
            _ => None,
        },
        b"Indexed" | b"I" if depth == 0 => {
            let base = space(document, part(1)?, depth + 1)?;
            let table = match part(3)? {
                Object::String(bytes, _) => bytes.clone(),
                Object::Stream(stream) => content(stream).ok()?,
                _ => return None,
            };
            Some(Space::Palette(
                table.chunks_exact(base.samples()).flat_map(|one| base.colour(one)).collect(),
            ))
        }
        name => named(name),
    }
}

fn named(name: &[u8]) -> Option<Space> {
    match name {
        b"DeviceGray" | b"G" => Some(Space::Grey),
        b"DeviceRGB" | b"RGB" => Some(Space::Rgb),
        b"DeviceCMYK" | b"CMYK" => Some(Space::Cmyk),
        _ => None,
    }
}
