//! Metrics on archives: their files one by one.

use super::call::yes;
use super::{Call, Metric, Score, find, metric};
use crate::archive::Archive;
use crate::error::MetricError;
use crate::package::Package;
use crate::pdf::Pdf;
use crate::state::{FileState, State};
use crate::text::similarity;
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) const METRICS: &[Metric] =
    &[metric("compare_archive", compare_archive), metric("compare_zip_files", compare_zip_files)];

/// The mean score of the files of a folder in both archives, by the metric of their type. Different names score 0.
fn compare_archive(call: &Call<'_>) -> Score {
    if call.result.is_falsy() {
        return Ok(0.0);
    }
    let option = |name: &str, default: &'static str| {
        call.options.get(name).and_then(Value::as_str).unwrap_or(default).to_owned()
    };
    let folder = option("file_path", "");
    let open = |state: &State| Archive::open(state.file()?)?.listed(&folder);
    let (found, wanted) = (open(call.result)?, open(call.expected()?)?);
    if !found.keys().eq(wanted.keys()) {
        return Ok(0.0);
    }
    let kind = option("file_type", "text");
    let func = match kind.as_str() {
        "text" => "compare_text_file",
        "pdf" => "compare_pdfs",
        "docx" => "compare_docx_files",
        "ppt" => "compare_pptx_files",
        "image" => "compare_images",
        "csv" => "compare_csv",
        "table" => "compare_table",
        "audio" => "compare_audios",
        other => return Err(MetricError::raises(format!("no such type of file: {other}"))),
    };
    let metric = find(func).ok_or_else(|| MetricError::Unknown(func.into()))?;
    if found.is_empty() {
        return Err(MetricError::raises("division by zero: no files"));
    }
    let mut options = call.options.clone();
    options.retain(|name, _| name != "file_path" && name != "file_type");
    let mut total = 0.0;
    for (name, content) in &found {
        let state = |content: Option<&Option<Vec<u8>>>| match content.and_then(Option::as_ref) {
            Some(bytes) => State::File(FileState::new(name.clone(), bytes.clone())),
            // a folder cannot be opened as a file
            None => State::Absent(name.clone()),
        };
        let (result, expected) = (state(Some(content)), state(wanted.get(name)));
        total += (metric.function)(&Call {
            result: &result,
            expected: Some(&expected),
            options: &options,
            settings: call.settings,
        })?;
    }
    Ok(total / found.len() as f64)
}

/// The same names and the same contents; of PDF documents, nearly the same text.
fn compare_zip_files(call: &Call<'_>) -> Score {
    if call.result.is_falsy() {
        return Ok(0.0);
    }
    let (found, wanted) =
        (Package::open(&call.result.file()?.bytes)?, Package::open(&call.expected()?.file()?.bytes)?);
    let names = |package: &Package| package.names().iter().cloned().collect::<BTreeSet<String>>();
    if names(&found) != names(&wanted) {
        return Ok(0.0);
    }
    for name in names(&found).iter().filter(|name| !name.ends_with('/')) {
        let (a, b) = (found.read(name)?, wanted.read(name)?);
        let same = if name.to_lowercase().ends_with(".pdf") {
            let letters = |bytes: &[u8]| Ok(Pdf::open(bytes)?.text().chars().collect::<Vec<char>>());
            let (a, b): (Result<_, MetricError>, _) = (letters(&a), letters(&b));
            similarity::sequence_ratio(&a?, &b?) >= 0.95
        } else {
            a == b
        };
        if !same {
            return Ok(0.0);
        }
    }
    Ok(yes(true))
}
