//! Metrics on text documents: whether two have the same text, and how one is formatted.

use super::call::{text, yes};
use super::{Call, Metric, Score, metric};
use crate::error::MetricError;
use crate::state::{FileState, State};
use crate::text::{python, similarity};
use crate::word::docx::{Document, Run};
use crate::word::odt;
use crate::xml::{parse, xml_text};
use serde_json::Value;

pub(super) const METRICS: &[Metric] = &[
    metric("check_highlighted_words", check_highlighted_words),
    metric("check_italic_font_size_14", check_italic_font_size_14),
    metric("check_tabstops", check_tabstops),
    metric("compare_contains_image", compare_contains_image),
    metric("compare_docx_files", compare_docx_files),
    metric("compare_docx_files_and_ignore_new_lines", compare_docx_files_and_ignore_new_lines),
    metric("compare_docx_images", compare_docx_images),
    metric("compare_docx_lines", compare_docx_lines),
    metric("compare_docx_tables", compare_docx_tables),
    metric("compare_font_names", compare_font_names),
    metric("compare_init_lines", compare_init_lines),
    metric("compare_insert_equation", compare_insert_equation),
    metric("compare_line_spacing", compare_line_spacing),
    metric("compare_references", compare_references),
    metric("compare_subscript_contains", compare_subscript_contains),
    metric("compare_unique_train_records", compare_unique_train_records),
    metric("contains_page_break", contains_page_break),
    metric("evaluate_colored_words_in_tables", evaluate_colored_words_in_tables),
    metric("evaluate_strike_through_last_paragraph", evaluate_strike_through_last_paragraph),
    metric("find_default_font", find_default_font),
    metric("fuzzy_place_math", fuzzy_place_math),
    metric("has_page_numbers_in_footers", has_page_numbers_in_footers),
    metric("is_first_line_centered", is_first_line_centered),
];

fn open(state: &State) -> Result<Document, MetricError> {
    Document::open(&state.file()?.bytes)
}

/// The result's document; none where the original returns 0: no file, or one that cannot be opened.
fn one(call: &Call<'_>) -> Option<Document> {
    open(call.result).ok()
}

/// Both documents; none where the original returns 0.
fn both(call: &Call<'_>) -> Result<Option<(Document, Document)>, MetricError> {
    Ok(open(call.result).ok().zip(open(call.expected()?).ok()))
}

/// The same paragraphs: by default as one text with blanks collapsed, else one by one; or how alike they are.
fn compare_docx_files(call: &Call<'_>) -> Score {
    if call.lacks_a_file()? {
        return Ok(0.0);
    }
    let later = !call.is_arpo_era();
    let [ignore_case, ignore_order, content_only] =
        ["ignore_case", "ignore_order", "content_only"].map(|name| call.flag(name, false));
    let [fuzzy, delete_empty] =
        ["fuzzy_match", "delete_empty_lines"].map(|name| later && call.flag(name, false));
    let Some((mut first, mut second)) = paragraphs_of_both(call)? else { return Ok(0.0) };
    for list in [&mut first, &mut second] {
        if ignore_order {
            list.sort();
        }
        if delete_empty {
            list.retain(|paragraph| !python::strip(paragraph).is_empty());
        }
    }
    let cased = |text: String| if ignore_case { text.to_lowercase() } else { text };
    if content_only || call.flag("ignore_blanks", true) {
        let whole = |list: &[String]| cased(python::collapse_space(&list.join("\n")));
        let (first, second) = (whole(&first), whole(&second));
        if content_only || fuzzy {
            return Ok(similarity::ratio(&first, &second) / 100.0);
        }
        return Ok(yes(first == second));
    }
    if first.len() != second.len() {
        return Ok(0.0);
    }
    let pairs = first.into_iter().map(cased).zip(second.into_iter().map(cased));
    if fuzzy {
        let ratios: Vec<f64> = pairs.map(|(a, b)| similarity::ratio(&a, &b) / 100.0).collect();
        return Ok(if ratios.is_empty() { 1.0 } else { ratios.iter().sum::<f64>() / ratios.len() as f64 });
    }
    Ok(yes(pairs.into_iter().all(|(a, b)| a == b)))
}

/// The paragraphs of two documents.
type TextPair = (Vec<String>, Vec<String>);

/// Both are .docx or both .odt by their names, and open; anything else has nothing to compare.
fn paragraphs_of_both(call: &Call<'_>) -> Result<Option<TextPair>, MetricError> {
    let (State::File(first), State::File(second)) = (call.result, call.expected()?) else { return Ok(None) };
    let ends = |end: &str| first.name.ends_with(end) && second.name.ends_with(end);
    let read: fn(&FileState) -> Option<Vec<String>> = if ends(".docx") {
        |file| Some(Document::open(&file.bytes).ok()?.paragraphs.into_iter().map(|one| one.text).collect())
    } else if ends(".odt") {
        |file| Some(odt::Document::open(&file.bytes).ok()?.paragraphs)
    } else {
        return Ok(None);
    };
    Ok(read(first).zip(read(second)))
}

/// The comparison that other metrics begin with, with its defaults.
fn same_content(call: &Call<'_>) -> Result<bool, MetricError> {
    let defaults = serde_json::Map::new();
    let plain = Call { options: &defaults, ..*call };
    Ok(compare_docx_files(&plain)? != 0.0)
}

/// The same text with the same line spacing, paragraph by paragraph.
fn compare_line_spacing(call: &Call<'_>) -> Score {
    let Some((first, second)) = both(call)? else { return Ok(0.0) };
    let spacing =
        |document: &Document| document.paragraphs.iter().map(|one| one.line_spacing).collect::<Vec<_>>();
    Ok(yes(same_content(call)? && spacing(&first) == spacing(&second)))
}

/// Every run names the font.
fn compare_font_names(call: &Call<'_>) -> Score {
    let Some(document) = one(call) else { return Ok(0.0) };
    let font = call.rule_text("font_name")?;
    Ok(yes(runs(&document).all(|run| run.font.as_deref() == Some(font))))
}

fn runs(document: &Document) -> impl Iterator<Item = &Run> {
    document.paragraphs.iter().flat_map(|paragraph| &paragraph.runs)
}

/// Pairs of runs at the same position in both documents, up to the shorter one.
fn run_pairs<'a>(first: &'a Document, second: &'a Document) -> impl Iterator<Item = (&'a Run, &'a Run)> {
    let paragraphs = first.paragraphs.iter().zip(&second.paragraphs);
    paragraphs.flat_map(|(first, second)| first.runs.iter().zip(&second.runs))
}

/// Some run is below the line in both.
fn compare_subscript_contains(call: &Call<'_>) -> Score {
    let Some((first, second)) = both(call)? else { return Ok(0.0) };
    Ok(yes(run_pairs(&first, &second).any(|(a, b)| a.subscript == Some(true) && b.subscript == Some(true))))
}

/// Runs at the same position both have an image or both have none.
fn compare_contains_image(call: &Call<'_>) -> Score {
    let Some((first, second)) = both(call)? else { return Ok(0.0) };
    Ok(yes(run_pairs(&first, &second).all(|(a, b)| a.has_graphic == b.has_graphic)))
}

/// The same text, and an embedded object at the same position.
fn compare_insert_equation(call: &Call<'_>) -> Score {
    let Some((first, second)) = both(call)? else { return Ok(0.0) };
    Ok(yes(same_content(call)? && run_pairs(&first, &second).any(|(a, b)| a.has_object && b.has_object)))
}

/// There is a page break, and as many as the rule asks for, if it does.
fn contains_page_break(call: &Call<'_>) -> Score {
    let Some(document) = one(call) else { return Ok(0.0) };
    let count: usize = runs(&document).map(|run| run.page_breaks).sum();
    let wanted =
        call.expected.and_then(|state| state.json().ok()).and_then(|rule| rule.get("page_break_count"));
    Ok(yes(count > 0 && wanted.is_none_or(|wanted| python::number(wanted) == Some(count as f64))))
}

/// The first paragraph is centred by its own formatting; a document without one raises.
fn is_first_line_centered(call: &Call<'_>) -> Score {
    let Some(document) = one(call) else { return Ok(0.0) };
    let first = document.paragraphs.first().ok_or_else(|| MetricError::raises("no paragraph"))?;
    Ok(yes(first.alignment.as_deref() == Some("center")))
}

/// The same text, and every run of the last paragraph struck through; a last paragraph without runs passes.
fn evaluate_strike_through_last_paragraph(call: &Call<'_>) -> Score {
    if call.lacks_a_file()? || !same_content(call)? {
        return Ok(0.0);
    }
    let Some(document) = one(call) else { return Ok(0.0) };
    let last = document.paragraphs.last().ok_or_else(|| MetricError::raises("no paragraph"))?;
    Ok(yes(last.runs.iter().all(|run| run.strike == Some(true))))
}

/// The same text, and every italic run of 14 points.
fn check_italic_font_size_14(call: &Call<'_>) -> Score {
    if call.lacks_a_file()? || !same_content(call)? {
        return Ok(0.0);
    }
    let Some(document) = one(call) else { return Ok(0.0) };
    let is_14 = |run: &Run| run.size_pt.is_some_and(|size| (size - 14.0).abs() < 1e-9);
    Ok(yes(runs(&document).filter(|run| run.italic == Some(true)).all(is_14)))
}

/// The same text, and no span of the result painted yellow. The original opens the result as odt whatever it is,
/// so that a docx raises.
fn check_highlighted_words(call: &Call<'_>) -> Score {
    if call.lacks_a_file()? || !same_content(call)? {
        return Ok(0.0);
    }
    let document = odt::Document::open(&call.result.file()?.bytes)?;
    Ok(yes(!document.has_yellow_span))
}

/// The same tables, cell by cell.
fn compare_docx_tables(call: &Call<'_>) -> Score {
    let Some((first, second)) = both(call)? else { return Ok(0.0) };
    if first.tables.len() != second.tables.len() {
        return Ok(0.0);
    }
    for (first, second) in first.tables.iter().zip(&second.tables) {
        if (first.rows, first.columns) != (second.rows, second.columns) {
            return Ok(0.0);
        }
        for row in 0..first.rows {
            for column in 0..first.columns {
                let (a, b) = (first.cell_text(row, column)?, second.cell_text(row, column)?);
                if python::strip(&a) != python::strip(&b) {
                    return Ok(0.0);
                }
            }
        }
    }
    Ok(1.0)
}

/// The same images, by their pixels.
fn compare_docx_images(call: &Call<'_>) -> Score {
    let Some((first, second)) = both(call)? else { return Ok(0.0) };
    if first.images.len() != second.images.len() {
        return Ok(0.0);
    }
    let pixels =
        |bytes: &[u8]| crate::pillow::PillowImage::decode(bytes).map(crate::pillow::PillowImage::raw_bytes);
    for (a, b) in first.images.iter().zip(&second.images) {
        if pixels(a)? != pixels(b)? {
            return Ok(0.0);
        }
    }
    Ok(1.0)
}

/// The same set of lines, empty ones aside.
fn compare_docx_lines(call: &Call<'_>) -> Score {
    let Some((first, second)) = both(call)? else { return Ok(0.0) };
    let lines = |document: &Document| {
        let mut lines: Vec<String> =
            document.texts().into_iter().map(|text| python::strip(text).to_owned()).collect();
        lines.retain(|line| !line.is_empty());
        lines.sort();
        lines.dedup();
        lines
    };
    Ok(yes(lines(&first) == lines(&second)))
}

/// The same paragraphs, up to the shorter document.
fn compare_init_lines(call: &Call<'_>) -> Score {
    let Some((first, second)) = both(call)? else { return Ok(0.0) };
    Ok(yes(first.texts().iter().zip(second.texts()).all(|(a, b)| *a == b)))
}

/// The same text once empty paragraphs are gone.
fn compare_docx_files_and_ignore_new_lines(call: &Call<'_>) -> Score {
    let is_docx = |state: &State| matches!(state, State::File(file) if file.has_ending("docx"));
    if !is_docx(call.result) || !is_docx(call.expected()?) {
        return Ok(0.0);
    }
    let Some((first, second)) = both(call)? else { return Ok(0.0) };
    let full = |document: &Document| {
        document.texts().into_iter().filter(|text| !text.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let (first, second) = (full(&first), full(&second));
    if call.flag("ignore_blanks", true) {
        return Ok(yes(
            python::collapse_space(&first.join("\n")) == python::collapse_space(&second.join("\n"))
        ));
    }
    Ok(yes(first == second))
}

/// How alike the references are, above a base: what the task starts with scores 0.
fn compare_references(call: &Call<'_>) -> Score {
    let Some((first, second)) = both(call)? else { return Ok(0.0) };
    let indicator = call.options.get("reference_indicator").and_then(Value::as_str).unwrap_or("References");
    let base = call.number("reference_base_result").unwrap_or(0.5);
    let after = |document: &Document| {
        let at = document.texts().iter().position(|text| *text == indicator)?;
        let kept =
            document.texts().split_off(at + 1).into_iter().filter(|text| !python::strip(text).is_empty());
        Some(kept.map(str::to_owned).collect::<Vec<_>>())
    };
    let (first, second) = match (after(&first), after(&second)) {
        (None, None) => return Ok(1.0),
        (Some(first), Some(second)) if first.len() == second.len() => (first, second),
        _ => return Ok(0.0),
    };
    if first.is_empty() {
        return Err(MetricError::raises("division by zero: no references"));
    }
    let total: f64 = first.iter().zip(&second).map(|(a, b)| similarity::ratio(a, b) / 100.0).sum();
    let mean = total / first.len() as f64;
    let margin = if call.is_arpo_era() { 0.0 } else { 0.01 };
    Ok(if mean >= base + margin { (mean - base) / (1.0 - base) } else { 0.0 })
}

/// The text is the same, and in tables words that begin with a vowel are red and others blue. A run without a colour of its
/// own raises.
fn evaluate_colored_words_in_tables(call: &Call<'_>) -> Score {
    if call.lacks_a_file()? || !same_content(call)? {
        return Ok(0.0);
    }
    let Ok(document) = Document::open(&call.result.file()?.bytes) else { return Ok(0.0) };
    let limit = call.number("threshold").unwrap_or(3.5);
    let cells = document.tables.iter().flat_map(|table| &table.cells);
    for run in cells.flatten().flat_map(|paragraph| &paragraph.runs) {
        let Some(first) = run.text.chars().next() else { continue };
        let is_vowel = first.to_lowercase().any(|letter| "aeiou".contains(letter));
        let wanted = if is_vowel { [255, 0, 0] } else { [0, 0, 255] };
        let found = run.color.as_deref().and_then(crate::text::color::parse);
        let found = found.ok_or_else(|| MetricError::raises("a word without a colour"))?;
        if crate::text::color::difference(found, wanted) > limit {
            return Ok(0.0);
        }
    }
    Ok(1.0)
}

/// Paragraphs with the same tabulator stops; their distance lowers the score.
fn check_tabstops(call: &Call<'_>) -> Score {
    let Some((first, second)) = both(call)? else { return Ok(0.0) };
    let full = |document: &Document| {
        document
            .paragraphs
            .iter()
            .filter(|one| !python::strip(&one.text).is_empty())
            .cloned()
            .collect::<Vec<_>>()
    };
    let (paragraphs, expected) = (full(&first), full(&second));
    if paragraphs.len() != expected.len() {
        return Ok(0.0);
    }
    if let Some(count) = call.number("word_number_split_by_tabstop") {
        let index = call.number("index").unwrap_or(0.0) as usize;
        for paragraph in &paragraphs {
            let part =
                paragraph.text.split('\t').nth(index).ok_or_else(|| MetricError::raises("too few parts"))?;
            if python::words(part).count() != count as usize {
                return Ok(0.0);
            }
        }
    }
    let width = second.sections.first().and_then(|section| section.text_width_emu);
    let width =
        width.filter(|width| *width != 0.0).ok_or_else(|| MetricError::raises("a page without a width"))?;
    let mut minus = 0.0;
    for (first, second) in paragraphs.iter().zip(&expected) {
        let real = |tabs: &[crate::word::docx::TabStop]| {
            let counts = |tab: &&crate::word::docx::TabStop| {
                tab.alignment != "clear" && !(tab.alignment == "left" && tab.position_emu == 0.0)
            };
            tabs.iter().filter(counts).cloned().collect::<Vec<_>>()
        };
        let (first, second) = (real(&first.tabs), real(&second.tabs));
        if first.len() != second.len() || first.iter().zip(&second).any(|(a, b)| a.alignment != b.alignment) {
            return Ok(0.0);
        }
        minus += first.iter().zip(&second).map(|(a, b)| (a.position_emu - b.position_emu).abs()).sum::<f64>()
            / width;
    }
    if paragraphs.is_empty() {
        return Err(MetricError::raises("division by zero: no paragraphs"));
    }
    Ok(1.0 - minus / paragraphs.len() as f64)
}

/// Every section's footer begins with a paragraph that has a digit.
fn has_page_numbers_in_footers(call: &Call<'_>) -> Score {
    let Some(document) = one(call) else { return Ok(0.0) };
    Ok(yes(document.sections.iter().all(|section| section.footer.chars().any(char::is_numeric))))
}

/// Writer's default font in `LibreOffice`'s settings.
fn find_default_font(call: &Call<'_>) -> Score {
    let wanted = call.rule_text("font_name")?;
    let Ok(file) = call.result.file() else { return Ok(0.0) };
    let Ok(content) = xml_text(&file.bytes) else { return Ok(0.0) };
    let Ok(document) = parse(&content) else { return Ok(0.0) };
    let font = super::registry::setting(&document, "/org.openoffice.Office.Writer/DefaultFont", "Standard");
    Ok(yes(font.as_deref() == Some(wanted)))
}

/// Three words; the mean of their similarity to the closest expected answer.
fn fuzzy_place_math(call: &Call<'_>) -> Score {
    if call.result.is_none() {
        return Ok(0.0);
    }
    let document = open(call.result)?;
    let answers: Vec<&str> = call.rule_list("expected")?.iter().map(text).collect::<Result<_, _>>()?;
    let texts = document.texts();
    let words = texts.iter().flat_map(|text| python::words(text));
    let scores: Vec<f64> = words
        .map(|word| answers.iter().map(|answer| similarity::ratio(word, answer) / 100.0).fold(0.0, f64::max))
        .collect();
    Ok(if scores.len() == 3 { scores.iter().sum::<f64>() / 3.0 } else { 0.0 })
}

/// Lines from the first document, each train once, the same trains and as many lines as expected.
fn compare_unique_train_records(call: &Call<'_>) -> Score {
    let State::Many(expected) = call.expected()? else { return Ok(0.0) };
    let [gold, initial, ..] = expected.as_slice() else { return Ok(0.0) };
    let read = |state: &State| {
        let document = open(state).ok()?;
        let lines = document.texts().into_iter().map(|text| python::strip(text).to_owned());
        let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
        let train = |line: &String| {
            let parts: Vec<&str> = line.split(',').collect();
            (parts.len() == 4).then(|| python::strip(parts[1]).to_owned())
        };
        let trains: Vec<String> = lines.iter().filter_map(train).collect();
        Some((lines, trains))
    };
    let (Some((lines, trains)), Some((gold_lines, gold_trains)), Some((all, _))) =
        (read(call.result), read(gold), read(initial))
    else {
        return Ok(0.0);
    };
    let set = |list: &[String]| list.iter().cloned().collect::<std::collections::BTreeSet<_>>();
    let from_there = set(&lines).is_subset(&set(&all));
    let once = set(&trains).len() == trains.len();
    Ok(yes(from_there && once && set(&trains) == set(&gold_trains) && lines.len() == gold_lines.len()))
}
