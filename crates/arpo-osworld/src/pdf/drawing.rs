//! What the pages of a PDF draw, in a form in which pages that look alike are equal.
//!
//! The original renders pages and compares their pixels. Here pages are equal if they have the same size and draw the same
//! things at the same places: images by their pixels, whatever they are called and however they are packed; anything else by
//! its operators and the resources these name.

use super::images::{decoded, drawn, is_kind, resources_of};
use super::{FORM_DEPTH_LIMIT, IDENTITY, Pdf, STREAM_LIMIT_BYTES, matrix_of, multiply};
use crate::error::MetricError;
use crate::pillow::PillowImage;
use lopdf::content::{Content, Operation};
use lopdf::{Dictionary, Document, Object, ObjectId, Stream};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Objects that resources lead to: deeper ones are taken as equal.
const OBJECT_DEPTH_LIMIT: usize = 8;

/// What one page draws.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drawing {
    /// Its box and how it is turned, in thousandths of a point and in degrees.
    size: Vec<i64>,
    /// Its marks in order, each by a number for what it is and where.
    marks: Vec<u64>,
}

impl Pdf {
    /// What every page draws.
    pub fn drawings(&self) -> Vec<Drawing> {
        let document = &self.0;
        let of_page = |page: ObjectId| {
            let mut marks = Vec::new();
            let resources: Vec<&Dictionary> = resources_of(document, page);
            if let Ok(content) = document.get_page_content_with_limit(page, STREAM_LIMIT_BYTES) {
                Painter { document, marks: &mut marks }.paint(
                    &content,
                    resources.first().copied(),
                    IDENTITY,
                    0,
                );
            }
            Drawing { size: size(document, page), marks }
        };
        document.get_pages().into_values().map(of_page).collect()
    }
}

/// The box that is shown, and the turn; both may be inherited.
fn size(document: &Document, page: ObjectId) -> Vec<i64> {
    let (mut shown, mut turn) = (None, None);
    let mut node = document.get_dictionary(page).ok();
    let mut is_cropped = false;
    for _ in 0..OBJECT_DEPTH_LIMIT {
        let Some(dictionary) = node else { break };
        for (key, crops) in [(b"CropBox".as_slice(), true), (b"MediaBox".as_slice(), false)] {
            if let Ok(corners) = dictionary.get_deref(key, document).and_then(Object::as_array)
                && (shown.is_none() || (crops && !is_cropped))
            {
                shown = Some(
                    corners
                        .iter()
                        .map(|end| thousandths(end.as_float().map_or(0.0, f64::from)))
                        .collect::<Vec<i64>>(),
                );
                is_cropped = crops;
            }
        }
        turn = turn.or_else(|| dictionary.get_deref(b"Rotate", document).and_then(Object::as_i64).ok());
        node = dictionary.get_deref(b"Parent", document).and_then(Object::as_dict).ok();
    }
    let corners = shown.unwrap_or_default();
    let side = |at: usize| {
        corners.get(at + 2).zip(corners.get(at)).map_or(0, |(end, start)| end.wrapping_sub(*start))
    };
    vec![side(0), side(1), turn.unwrap_or(0).rem_euclid(360)]
}

fn thousandths(number: f64) -> i64 {
    (number * 1000.0).round() as i64
}

struct Painter<'a> {
    document: &'a Document,
    marks: &'a mut Vec<u64>,
}

impl Painter<'_> {
    fn paint(&mut self, content: &[u8], resources: Option<&Dictionary>, start: [f64; 6], depth: usize) {
        let Ok(content) = Content::decode(content) else { return };
        let (mut matrix, mut saved) = (start, Vec::new());
        for operation in &content.operations {
            match operation.operator.as_str() {
                "q" => saved.push(matrix),
                "Q" => matrix = saved.pop().unwrap_or(matrix),
                "cm" => matrix = multiply(numbers(operation), matrix),
                // marks for readers aloud
                "BMC" | "BDC" | "EMC" | "MP" | "DP" | "BX" | "EX" => {}
                "Do" => self.draw(operation, resources, matrix, depth),
                _ => self.mark(operation, resources, matrix),
            }
        }
    }

    fn draw(
        &mut self,
        operation: &Operation,
        resources: Option<&Dictionary>,
        matrix: [f64; 6],
        depth: usize,
    ) {
        let name = operation.operands.first().and_then(|name| name.as_name().ok());
        let document = self.document;
        let mut named = resources.into_iter().flat_map(|resources| drawn(document, resources));
        let Some((_, stream)) = named.find(|(key, _)| Some(*key) == name) else { return };
        if is_kind(stream, b"Image") {
            let mut hasher = DefaultHasher::new();
            hash_matrix(matrix, &mut hasher);
            hash_image(document, stream, &mut hasher);
            self.marks.push(hasher.finish());
        } else if depth < FORM_DEPTH_LIMIT {
            let inner = stream.dict.get_deref(b"Resources", document).and_then(Object::as_dict).ok();
            if let Ok(content) = stream.decompressed_content_with_limit(STREAM_LIMIT_BYTES) {
                self.paint(&content, inner.or(resources), multiply(matrix_of(stream), matrix), depth + 1);
            }
        }
    }

    fn mark(&mut self, operation: &Operation, resources: Option<&Dictionary>, matrix: [f64; 6]) {
        let category: &[u8] = match operation.operator.as_str() {
            "Tf" => b"Font",
            "gs" => b"ExtGState",
            "cs" | "CS" => b"ColorSpace",
            "scn" | "SCN" => b"Pattern",
            "sh" => b"Shading",
            _ => b"",
        };
        let named =
            resources.and_then(|all| all.get_deref(category, self.document).and_then(Object::as_dict).ok());
        let mut hasher = DefaultHasher::new();
        hash_matrix(matrix, &mut hasher);
        operation.operator.hash(&mut hasher);
        for operand in &operation.operands {
            let resource = operand.as_name().ok().and_then(|name| named?.get(name).ok());
            hash_object(self.document, resource.unwrap_or(operand), 0, &mut hasher);
        }
        self.marks.push(hasher.finish());
    }
}

fn numbers(operation: &Operation) -> [f64; 6] {
    std::array::from_fn(|at| {
        operation.operands.get(at).and_then(|one| one.as_float().ok()).map_or(0.0, f64::from)
    })
}

fn hash_matrix(matrix: [f64; 6], hasher: &mut DefaultHasher) {
    matrix.map(thousandths).hash(hasher);
}

/// The pixels and how transparent they are; of an image that cannot be decoded, the file's bytes.
fn hash_image(document: &Document, stream: &Stream, hasher: &mut DefaultHasher) {
    hash_pixels(&decoded(document, stream), stream, hasher);
    if let Ok(mask) = stream.dict.get_deref(b"SMask", document).and_then(Object::as_stream) {
        let image = decoded(document, mask);
        let shows_all = image.as_ref().is_ok_and(|image| image.pixels.iter().all(|byte| *byte == 255));
        if !shows_all {
            hash_pixels(&image, mask, hasher);
        }
    }
}

fn hash_pixels(image: &Result<PillowImage, MetricError>, stream: &Stream, hasher: &mut DefaultHasher) {
    match image {
        Ok(image) => (image.width, image.height, &image.pixels).hash(hasher),
        Err(_) => stream.content.hash(hasher),
    }
}

fn hash_object(document: &Document, object: &Object, depth: usize, hasher: &mut DefaultHasher) {
    let Ok((_, object)) = document.dereference(object) else { return };
    if depth > OBJECT_DEPTH_LIMIT {
        return;
    }
    let entries = |dictionary: &Dictionary, hasher: &mut DefaultHasher| {
        let mut entries: Vec<(&Vec<u8>, &Object)> = dictionary.iter().collect();
        entries.sort_by_key(|(key, _)| *key);
        for (key, value) in entries.into_iter().filter(|(key, _)| key.as_slice() != b"Parent") {
            key.hash(hasher);
            hash_object(document, value, depth + 1, hasher);
        }
    };
    match object {
        Object::Null | Object::Reference(_) => {}
        Object::Boolean(truth) => truth.hash(hasher),
        Object::Integer(number) => number.wrapping_mul(1000).hash(hasher),
        Object::Real(number) => thousandths(f64::from(*number)).hash(hasher),
        Object::Name(bytes) | Object::String(bytes, _) => bytes.hash(hasher),
        Object::Array(items) => items.iter().for_each(|item| hash_object(document, item, depth + 1, hasher)),
        Object::Dictionary(dictionary) => entries(dictionary, hasher),
        Object::Stream(stream) => {
            let content = stream.decompressed_content_with_limit(STREAM_LIMIT_BYTES);
            content.as_ref().unwrap_or(&stream.content).hash(hasher);
        }
    }
}
