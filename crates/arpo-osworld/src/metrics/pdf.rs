//! Metrics on PDF documents.

use super::call::yes;
use super::{Call, Metric, Score, metric};
use crate::error::MetricError;
use crate::pdf::Pdf;
use crate::state::State;
use crate::text::{python, similarity};

pub(super) const METRICS: &[Metric] =
    &[metric("check_pdf_pages", check_pdf_pages), metric("compare_pdfs", compare_pdfs)];

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
