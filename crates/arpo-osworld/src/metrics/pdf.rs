//! Metrics on PDF documents.

use super::call::yes;
use super::{Call, Metric, Score, metric};
use crate::error::MetricError;
use crate::pdf::Pdf;
use crate::pillow::phash::{distance, perceptual_hash};
use crate::state::State;
use crate::text::{python, similarity};

pub(super) const METRICS: &[Metric] = &[
    metric("check_pdf_pages", check_pdf_pages),
    metric("compare_pdf_images", compare_pdf_images),
    metric("compare_pdfs", compare_pdfs),
];

/// The number of pages in relation to the rule's number.
fn check_pdf_pages(call: &Call<'_>) -> Score {
    if call.result.is_none() {
        return Ok(0.0);
    }
    let pages = Pdf::open(&call.result.file()?.bytes)?.pages() as f64;
    let wanted = python::number(call.rule_field("ref_value")?)
        .ok_or_else(|| MetricError::raises("ref_value is not a number"))?;
    let order = pages.total_cmp(&wanted);
    match call.rule_text("relation")? {
        "eq" => Ok(yes(order.is_eq())),
        "ne" => Ok(yes(order.is_ne())),
        "lt" => Ok(yes(order.is_lt())),
        "le" => Ok(yes(order.is_le())),
        "gt" => Ok(yes(order.is_gt())),
        "ge" => Ok(yes(order.is_ge())),
        other => Err(MetricError::raises(format!("no such relation: {other}"))),
    }
}

/// ARPO era: all pages look alike. Verified: the part of the images that look alike, of as many images.
fn compare_pdf_images(call: &Call<'_>) -> Score {
    if call.lacks_a_file()? {
        return Ok(0.0);
    }
    let open = |state: &State| Pdf::open(&state.file()?.bytes);
    if call.is_arpo_era() {
        return Ok(yes(open(call.result)?.drawings()? == open(call.expected()?)?.drawings()?));
    }
    let hashes = |state: &State| -> Result<Vec<u64>, MetricError> { open(state)?.images(perceptual_hash) };
    if [call.result, call.expected()?].iter().any(|state| matches!(state, State::Absent(_))) {
        return Ok(0.0);
    }
    let wanted = hashes(call.expected()?)?;
    let found = match hashes(call.result) {
        // a kind of image that the expected document has not
        Err(MetricError::Unsupported(_)) => return Ok(0.0),
        other => other?,
    };
    if found.len() != wanted.len() {
        return Ok(0.0);
    }
    if found.is_empty() {
        return Ok(1.0);
    }
    let alike = found.iter().zip(&wanted).filter(|(a, b)| distance(**a, **b) <= HASH_LIMIT).count();
    Ok(alike as f64 / found.len() as f64)
}

/// Images whose hashes differ in more bits are different.
const HASH_LIMIT: u32 = 5;

/// How alike the texts are, the mean over the expected documents. A document that cannot be read adds 0; a missing
/// result is an empty document.
fn compare_pdfs(call: &Call<'_>) -> Score {
    let expected = call.expected()?;
    let results = if matches!(expected, State::Many(_)) {
        call.result.each()
    } else {
        std::slice::from_ref(call.result)
    };
    let read = |state: &State| -> Result<String, MetricError> {
        if state.is_none() {
            return Ok(String::new());
        }
        let file = state.file()?;
        // PyMuPDF opens a text file as a document of its lines.
        if file.has_ending("txt") {
            return Ok(python::strip(&state.text()?).to_owned());
        }
        Ok(Pdf::open(&file.bytes)?.text())
    };
    let likeness = |(result, expected): (&State, &State)| -> Result<f64, MetricError> {
        Ok(similarity::ratio(&read(result)?, &read(expected)?) / 100.0)
    };
    let expected = expected.each();
    if expected.is_empty() {
        return Err(MetricError::raises("division by zero: nothing is expected"));
    }
    let total: f64 = results.iter().zip(expected).map(|pair| likeness(pair).unwrap_or(0.0)).sum();
    Ok(total / expected.len() as f64)
}
