//! What the pages of a PDF draw, in a form in which pages that look alike are equal.
//!
//! The original renders pages and compares their pixels. Here pages are equal if they have the same size and draw the same
//! things at the same places: images by their pixels, whatever they are called and however they are packed; anything else by
//! its operators and the resources these name.

use super::budget::Budget;
use super::images::{decoded, drawn_as, is_kind, resources_of};
use super::{CONTENT_LIMIT_BYTES, FORM_DEPTH_LIMIT, IDENTITY, Pdf, STREAM_LIMIT_BYTES, matrix_of, multiply};
use crate::error::MetricError;
use lopdf::content::{Content, Operation};
use lopdf::{Dictionary, Document, Object, ObjectId, Stream};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Objects that resources lead to: deeper ones are taken as equal.
const OBJECT_DEPTH_LIMIT: usize = 32;

/// Nodes above a page that it inherits from.
const TREE_DEPTH_LIMIT: usize = 8;

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
    pub fn drawings(&self) -> Result<Vec<Drawing>, MetricError> {
        let document = &self.0;
        let mut painter = Painter {
            document,
            marks: Vec::new(),
            objects: HashMap::new(),
            images: HashMap::new(),
            open: Vec::new(),
            budget: Budget::default(),
        };
        let of_page = |page: ObjectId| -> Result<Drawing, MetricError> {
            let content = document
                .get_page_content_with_limit(page, CONTENT_LIMIT_BYTES)
                .map_err(|error| MetricError::raises(format!("the content of a PDF page: {error}")))?;
            painter.paint(&content, resources_of(document, page).first().copied(), IDENTITY)?;
            Ok(Drawing { size: size(document, page), marks: std::mem::take(&mut painter.marks) })
        };
        document.get_pages().into_values().map(of_page).collect()
    }
}

/// The box that is shown, and the turn; both may be inherited.
fn size(document: &Document, page: ObjectId) -> Vec<i64> {
    let (mut shown, mut turn) = (None, None);
    let mut node = document.get_dictionary(page).ok();
    let mut is_cropped = false;
    for _ in 0..TREE_DEPTH_LIMIT {
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
    marks: Vec<u64>,
    /// Hashes of objects and of images, by their ids.
    objects: HashMap<ObjectId, u64>,
    images: HashMap<ObjectId, u64>,
    /// The forms around the current one: one that draws itself is not drawn again.
    open: Vec<ObjectId>,
    budget: Budget,
}

impl Painter<'_> {
    fn paint(
        &mut self,
        content: &[u8],
        resources: Option<&Dictionary>,
        start: [f64; 6],
    ) -> Result<(), MetricError> {
        self.budget.content(content.len())?;
        let Ok(content) = Content::decode(content) else { return Ok(()) };
        let (mut matrix, mut saved) = (start, Vec::new());
        for operation in &content.operations {
            self.budget.step()?;
            match operation.operator.as_str() {
                "q" => saved.push(matrix),
                "Q" => matrix = saved.pop().unwrap_or(matrix),
                "cm" => matrix = multiply(numbers(operation), matrix),
                // marks for readers aloud
                "BMC" | "BDC" | "EMC" | "MP" | "DP" | "BX" | "EX" => {}
                "Do" => self.draw(operation, resources, matrix)?,
                _ => self.mark(operation, resources, matrix)?,
            }
        }
        Ok(())
    }

    fn draw(
        &mut self,
        operation: &Operation,
        resources: Option<&Dictionary>,
        matrix: [f64; 6],
    ) -> Result<(), MetricError> {
        let document = self.document;
        let name = operation.operands.first().and_then(|name| name.as_name().ok());
        let Some((id, stream)) = name.and_then(|name| drawn_as(document, resources?, name)) else {
            return Ok(());
        };
        if is_kind(stream, b"Image") {
            let mut hasher = DefaultHasher::new();
            hash_matrix(matrix, &mut hasher);
            self.image(id, stream)?.hash(&mut hasher);
            self.marks.push(hasher.finish());
        } else if self.open.len() < FORM_DEPTH_LIMIT && !self.open.contains(&id) {
            let inner = stream.dict.get_deref(b"Resources", document).and_then(Object::as_dict).ok();
            let Ok(content) = stream.decompressed_content_with_limit(CONTENT_LIMIT_BYTES) else {
                // that has its cost, too, each time
                return self.budget.decoded(CONTENT_LIMIT_BYTES);
            };
            self.open.push(id);
            self.paint(&content, inner.or(resources), multiply(matrix_of(stream), matrix))?;
            self.open.pop();
        }
        Ok(())
    }

    fn mark(
        &mut self,
        operation: &Operation,
        resources: Option<&Dictionary>,
        matrix: [f64; 6],
    ) -> Result<(), MetricError> {
        let category: &[u8] = match operation.operator.as_str() {
            "Tf" => b"Font",
            "gs" => b"ExtGState",
            "cs" | "CS" => b"ColorSpace",
            "scn" | "SCN" => b"Pattern",
            "sh" => b"Shading",
            _ => b"",
        };
        let document = self.document;
        let named =
            resources.and_then(|all| all.get_deref(category, document).and_then(Object::as_dict).ok());
        let mut hasher = DefaultHasher::new();
        hash_matrix(matrix, &mut hasher);
        operation.operator.hash(&mut hasher);
        for operand in &operation.operands {
            let resource = operand.as_name().ok().and_then(|name| named?.get(name).ok());
            self.object(resource.unwrap_or(operand), 0)?.hash(&mut hasher);
        }
        self.marks.push(hasher.finish());
        Ok(())
    }

    /// The hash of an image: its pixels and how transparent they are; of one that cannot be decoded, the file's bytes.
    fn image(&mut self, id: ObjectId, stream: &Stream) -> Result<u64, MetricError> {
        if let Some(known) = self.images.get(&id) {
            return Ok(*known);
        }
        let document = self.document;
        let mut hasher = DefaultHasher::new();
        self.pixels(stream, false)?.hash(&mut hasher);
        if let Ok(mask) = stream.dict.get_deref(b"SMask", document).and_then(Object::as_stream)
            && let Some(hash) = self.pixels(mask, true)?
        {
            hash.hash(&mut hasher);
        }
        let hash = hasher.finish();
        self.images.insert(id, hash);
        Ok(hash)
    }

    /// The hash of the pixels of an image; of a mask that hides nothing there is none.
    fn pixels(&mut self, stream: &Stream, is_mask: bool) -> Result<Option<u64>, MetricError> {
        let mut hasher = DefaultHasher::new();
        match decoded(self.document, stream) {
            Ok(image) => {
                self.budget.decoded(image.pixels.len())?;
                if is_mask && image.pixels.iter().all(|byte| *byte == 255) {
                    return Ok(None);
                }
                (image.width, image.height, &image.pixels).hash(&mut hasher);
            }
            Err(_) if is_mask && is_white_fax(stream) => return Ok(None),
            Err(_) => stream.content.hash(&mut hasher),
        }
        Ok(Some(hasher.finish()))
    }

    /// The hash of an object with all that it leads to, whether that is written into it or stands elsewhere.
    fn object(&mut self, object: &Object, depth: usize) -> Result<u64, MetricError> {
        self.budget.step()?;
        let document = self.document;
        let Ok((id, object)) = document.dereference(object) else { return Ok(0) };
        if depth > OBJECT_DEPTH_LIMIT {
            return Ok(0);
        }
        if let Some(id) = id {
            if let Some(known) = self.objects.get(&id) {
                return Ok(*known);
            }
            // where it leads back to itself
            self.objects.insert(id, 0);
        }
        let mut hasher = DefaultHasher::new();
        match object {
            Object::Null | Object::Reference(_) => {}
            Object::Boolean(truth) => truth.hash(&mut hasher),
            Object::Integer(number) => number.wrapping_mul(1000).hash(&mut hasher),
            Object::Real(number) => thousandths(f64::from(*number)).hash(&mut hasher),
            Object::Name(bytes) | Object::String(bytes, _) => bytes.hash(&mut hasher),
            Object::Array(items) => {
                for item in items {
                    self.object(item, depth + 1)?.hash(&mut hasher);
                }
            }
            Object::Dictionary(dictionary) => {
                let mut entries: Vec<(&Vec<u8>, &Object)> =
                    dictionary.iter().filter(|(key, _)| key.as_slice() != b"Parent").collect();
                entries.sort_by_key(|(key, _)| *key);
                for (key, value) in entries {
                    key.hash(&mut hasher);
                    self.object(value, depth + 1)?.hash(&mut hasher);
                }
            }
            Object::Stream(stream) => {
                let content = stream.decompressed_content_with_limit(STREAM_LIMIT_BYTES);
                self.budget.decoded(content.as_ref().map_or(STREAM_LIMIT_BYTES, Vec::len))?;
                content.as_ref().unwrap_or(&stream.content).hash(&mut hasher);
            }
        }
        let hash = hasher.finish();
        if let Some(id) = id {
            self.objects.insert(id, hash);
        }
        Ok(hash)
    }
}

/// Whether an image in the code of fax machines (group 4), which is not decoded here, is white everywhere: every row is as the one
/// above it, which is a single 1. Masks that hide nothing are written in this way.
fn is_white_fax(stream: &Stream) -> bool {
    let is_fax = stream.filters().is_ok_and(|filters| filters == [b"CCITTFaxDecode".as_slice()]);
    let rows =
        stream.dict.get(b"Height").and_then(Object::as_i64).ok().and_then(|rows| usize::try_from(rows).ok());
    let parameters = stream.dict.get(b"DecodeParms").and_then(Object::as_dict).ok();
    let number = |key: &[u8]| parameters.and_then(|all| all.get(key).and_then(Object::as_i64).ok());
    let is_group_4 =
        number(b"K").is_some_and(|k| k < 0) && parameters.is_some_and(|all| !all.has(b"BlackIs1"));
    let is_one = |row: usize| stream.content.get(row / 8).is_some_and(|byte| byte & (0x80 >> (row % 8)) != 0);
    is_fax && is_group_4 && rows.is_some_and(|rows| (0..rows).all(is_one))
}

fn numbers(operation: &Operation) -> [f64; 6] {
    std::array::from_fn(|at| {
        operation.operands.get(at).and_then(|one| one.as_float().ok()).map_or(0.0, f64::from)
    })
}

fn hash_matrix(matrix: [f64; 6], hasher: &mut DefaultHasher) {
    matrix.map(thousandths).hash(hasher);
}
