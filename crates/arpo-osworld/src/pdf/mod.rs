//! PDF documents: their pages, their text, and in `images` and `drawing` what else they show.
//!
//! The original reads text with `PyMuPDF`. Here text runs are taken in the order of the page's content, a new line
//! where the baseline moves: both sides of a comparison are read alike, so that equal documents score 1; the
//! similarity of unequal ones may differ from the original's in the last digits.

mod budget;
mod drawing;
mod images;

pub use drawing::Drawing;

use crate::error::MetricError;
use budget::Budget;
use lopdf::content::Content;
use lopdf::{Dictionary, Document, Encoding, LoadOptions, Object, ObjectId, Stream};
use std::collections::BTreeMap;

const STREAM_LIMIT_BYTES: usize = 64 << 20;
/// Of a page or a form: its operators take many times as much.
const CONTENT_LIMIT_BYTES: usize = 16 << 20;
const TEXT_LIMIT_BYTES: usize = 16 << 20;
/// Pages drawn inside pages: deeper ones are left out.
const FORM_DEPTH_LIMIT: usize = 4;

/// An opened PDF.
pub struct Pdf(Document);

impl Pdf {
    /// Opens a PDF.
    pub fn open(bytes: &[u8]) -> Result<Self, MetricError> {
        let broken = |error: &dyn std::fmt::Display| MetricError::raises(format!("not a PDF: {error}"));
        let moved = with_encryption_apart(bytes);
        let options =
            LoadOptions { max_decompressed_size: Some(STREAM_LIMIT_BYTES), ..LoadOptions::default() };
        let document = Document::load_mem_with_options(moved.as_deref().unwrap_or(bytes), options)
            .map_err(|error| broken(&error))?;
        // One that opens with the empty password is no longer encrypted here.
        if document.is_encrypted() { Err(broken(&"it needs a password")) } else { Ok(Self(document)) }
    }

    /// How many pages it has.
    pub fn pages(&self) -> usize {
        self.0.get_pages().len()
    }

    /// The text of all pages, blanks at the ends taken off.
    pub fn text(&self) -> String {
        let mut reader =
            TextReader { document: &self.0, text: String::new(), baseline: None, budget: Budget::default() };
        for page in self.0.get_pages().into_values() {
            reader.read_page(page);
            reader.end_line();
            if reader.text.len() > TEXT_LIMIT_BYTES {
                break;
            }
        }
        crate::text::python::strip(&reader.text).to_owned()
    }
}

/// The same file with the description of its encryption as an object of its own, by an update at its end: the reader does not
/// know one that is written into the trailer.
fn with_encryption_apart(bytes: &[u8]) -> Option<Vec<u8>> {
    const KEY: &[u8] = b"/Encrypt";
    let find = |from: usize, word: &[u8]| {
        bytes.get(from..)?.windows(word.len()).rposition(|window| window == word).map(|at| from + at)
    };
    let trailer = find(0, b"trailer")?;
    // not `/EncryptMetadata`
    let key = trailer
        + bytes[trailer..].windows(KEY.len() + 1).position(|window| {
            window.starts_with(KEY) && window.last().is_some_and(|next| b"< \r\n".contains(next))
        })?;
    let start = key
        + KEY.len()
        + bytes[key + KEY.len()..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let end = start + dictionary_length(&bytes[start..])?;
    let tail = String::from_utf8_lossy(&bytes[trailer..]).into_owned();
    let number = |word: &str| -> Option<usize> {
        let (_, after) = tail.rsplit_once(word)?;
        let after = after.trim_start();
        after[..after.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(after.len())].parse().ok()
    };
    let (size, previous) = (number("/Size")?, number("startxref")?);
    let opening = trailer + bytes[trailer..].windows(2).position(|window| window == b"<<")?;
    let closing = opening + dictionary_length(&bytes[opening..])?;
    let mut file = bytes.to_vec();
    let object = file.len() + 1;
    file.extend_from_slice(format!("\n{size} 0 obj\n").as_bytes());
    file.extend_from_slice(&bytes[start..end]);
    let table = file.len() + "\nendobj\n".len();
    file.extend_from_slice(format!("\nendobj\nxref\n{size} 1\n{object:010} 00000 n \ntrailer\n").as_bytes());
    file.extend_from_slice(bytes.get(opening..key)?);
    file.extend_from_slice(format!("/Encrypt {size} 0 R").as_bytes());
    file.extend_from_slice(bytes.get(end..closing - 2)?);
    file.extend_from_slice(
        format!("/Size {}/Prev {previous}>>\nstartxref\n{table}\n%%EOF\n", size + 1).as_bytes(),
    );
    Some(file)
}

/// The length of the dictionary that bytes begin with.
fn dictionary_length(bytes: &[u8]) -> Option<usize> {
    let (mut depth, mut texts, mut at) = (0_usize, 0_usize, 0);
    if !bytes.starts_with(b"<<") {
        return None;
    }
    while at < bytes.len() {
        match (&bytes[at..], texts) {
            ([b'\\', ..], 1..) => at += 1,
            ([b'(', ..], _) => texts += 1,
            ([b')', ..], 1..) => texts -= 1,
            ([b'<', b'<', ..], 0) => (depth, at) = (depth + 1, at + 1),
            // a text in hexadecimal digits
            ([b'<', ..], 0) => at += bytes[at..].iter().position(|byte| *byte == b'>')?,
            ([b'>', b'>', ..], 0) => {
                (depth, at) = (depth - 1, at + 1);
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

struct TextReader<'a> {
    document: &'a Document,
    text: String,
    baseline: Option<f64>,
    /// What comes after it is spent is left out.
    budget: Budget,
}

/// The text state: the matrices and the leading.
#[derive(Clone, Copy)]
struct Pen {
    drawing: [f64; 6],
    line: [f64; 6],
    leading: f64,
}

const IDENTITY: [f64; 6] = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0];

/// Where a page is drawn inside another.
fn matrix_of(form: &Stream) -> [f64; 6] {
    let parts = form.dict.get(b"Matrix").and_then(Object::as_array).ok();
    let numbers: Option<Vec<f64>> =
        parts.and_then(|parts| parts.iter().map(|part| part.as_float().ok().map(f64::from)).collect());
    numbers.and_then(|numbers| numbers.try_into().ok()).unwrap_or(IDENTITY)
}

/// The product of two transformations, the first applied first.
fn multiply(first: [f64; 6], second: [f64; 6]) -> [f64; 6] {
    std::array::from_fn(|at| {
        let (row, column) = (at / 2 * 2, at % 2);
        let moved = if row == 4 { second[4 + column] } else { 0.0 };
        first[row] * second[column] + first[row + 1] * second[2 + column] + moved
    })
}

impl<'a> TextReader<'a> {
    fn read_page(&mut self, page: ObjectId) {
        let Ok(content) = self.document.get_page_content_with_limit(page, CONTENT_LIMIT_BYTES) else {
            return;
        };
        let fonts = self.document.get_page_fonts(page).unwrap_or_default();
        let forms = match self.document.get_page_resources(page) {
            Ok((own, shared)) => {
                let shared = shared.iter().filter_map(|id| self.document.get_dictionary(*id).ok());
                own.into_iter().chain(shared).flat_map(|resources| self.forms(resources)).collect()
            }
            Err(_) => BTreeMap::new(),
        };
        self.read(&content, &fonts, &forms, IDENTITY, 0);
    }

    fn forms(&self, resources: &'a Dictionary) -> BTreeMap<Vec<u8>, &'a Stream> {
        let objects = resources.get_deref(b"XObject", self.document).and_then(Object::as_dict);
        let entries = objects.into_iter().flat_map(Dictionary::iter);
        let forms = entries.filter_map(|(name, object)| {
            let stream = self.document.dereference(object).ok()?.1.as_stream().ok()?;
            let is_form =
                stream.dict.get(b"Subtype").and_then(Object::as_name).is_ok_and(|kind| kind == b"Form");
            is_form.then(|| (name.clone(), stream))
        });
        forms.collect()
    }

    fn read(
        &mut self,
        content: &[u8],
        fonts: &BTreeMap<Vec<u8>, &'a Dictionary>,
        forms: &BTreeMap<Vec<u8>, &'a Stream>,
        drawing: [f64; 6],
        depth: usize,
    ) {
        if self.budget.content(content.len()).is_err() {
            return;
        }
        let Ok(content) = Content::decode(content) else { return };
        let mut encodings: BTreeMap<Vec<u8>, Option<Encoding<'_>>> = BTreeMap::new();
        let mut font: Vec<u8> = Vec::new();
        let mut pen = Pen { drawing, line: IDENTITY, leading: 0.0 };
        let mut saved = Vec::new();
        for operation in &content.operations {
            let number = |at: usize| {
                operation.operands.get(at).and_then(|one| one.as_float().ok()).map_or(0.0, f64::from)
            };
            let matrix = || std::array::from_fn(number);
            let name = || operation.operands.first().and_then(|one| one.as_name().ok());
            match operation.operator.as_str() {
                "q" => saved.push(pen),
                "Q" => pen = saved.pop().unwrap_or(pen),
                "cm" => pen.drawing = multiply(matrix(), pen.drawing),
                "BT" => pen.line = IDENTITY,
                "Tm" => pen.line = matrix(),
                "TL" => pen.leading = number(0),
                "Td" => pen.line = multiply([1.0, 0.0, 0.0, 1.0, number(0), number(1)], pen.line),
                "TD" => {
                    pen.leading = -number(1);
                    pen.line = multiply([1.0, 0.0, 0.0, 1.0, number(0), number(1)], pen.line);
                }
                "T*" => pen.line = multiply([1.0, 0.0, 0.0, 1.0, 0.0, -pen.leading], pen.line),
                "Tf" => {
                    font = name().map(<[u8]>::to_vec).unwrap_or_default();
                    let document = self.document;
                    encodings.entry(font.clone()).or_insert_with(|| {
                        fonts.get(&font).and_then(|font| {
                            font.get_font_encoding_with_limit(document, STREAM_LIMIT_BYTES).ok()
                        })
                    });
                }
                "Tj" | "TJ" | "'" | "\"" => {
                    if operation.operator != "Tj" && operation.operator != "TJ" {
                        pen.line = multiply([1.0, 0.0, 0.0, 1.0, 0.0, -pen.leading], pen.line);
                    }
                    self.move_to(multiply(pen.line, pen.drawing)[5]);
                    let encoding = encodings.get(&font).and_then(Option::as_ref);
                    for operand in &operation.operands {
                        self.show(operand, encoding);
                    }
                }
                "Do" if depth < FORM_DEPTH_LIMIT => {
                    if let Some(form) = name().and_then(|name| forms.get(name)) {
                        self.read_form(form, pen.drawing, depth);
                    }
                }
                _ => {}
            }
            if self.text.len() > TEXT_LIMIT_BYTES || self.budget.step().is_err() {
                return;
            }
        }
    }

    fn read_form(&mut self, form: &'a Stream, drawing: [f64; 6], depth: usize) {
        let Ok(content) = form.decompressed_content_with_limit(CONTENT_LIMIT_BYTES) else {
            // that has its cost, too, each time: where nothing is left, the next operator ends the reading
            let _ = self.budget.decoded(CONTENT_LIMIT_BYTES);
            return;
        };
        let Ok(resources) = form.dict.get_deref(b"Resources", self.document).and_then(Object::as_dict) else {
            return;
        };
        let fonts = resources.get_deref(b"Font", self.document).and_then(Object::as_dict);
        let fonts = fonts.into_iter().flat_map(Dictionary::iter).filter_map(|(name, object)| {
            Some((name.clone(), self.document.dereference(object).ok()?.1.as_dict().ok()?))
        });
        let (fonts, forms) = (fonts.collect(), self.forms(resources));
        self.read(&content, &fonts, &forms, multiply(matrix_of(form), drawing), depth + 1);
    }

    fn move_to(&mut self, baseline: f64) {
        if self.baseline.is_some_and(|last| (last - baseline).abs() > 1.0) {
            self.end_line();
        }
        self.baseline = Some(baseline);
    }

    fn end_line(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.baseline = None;
    }

    fn show(&mut self, operand: &Object, encoding: Option<&Encoding<'_>>) {
        match operand {
            Object::String(bytes, _) => {
                let decoded = encoding.and_then(|encoding| Document::decode_text(encoding, bytes).ok());
                self.text.push_str(
                    &decoded.unwrap_or_else(|| bytes.iter().map(|byte| char::from(*byte)).collect()),
                );
            }
            Object::Array(parts) => parts.iter().for_each(|part| self.show(part, encoding)),
            _ => {}
        }
    }
}
