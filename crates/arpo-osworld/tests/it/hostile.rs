//! Damaged and hostile input is an error or a low score: no panic, no hang, no flood of memory.

use crate::golden::{cases, folder, media_cases};
use arpo_core::generation::Generation;
use arpo_osworld::error::MetricError;
use arpo_osworld::metrics::{self, Settings};
use arpo_osworld::state::{FileState, State};
use lopdf::{Dictionary, Document, Object, ObjectId, Stream, dictionary};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::io::{Cursor, Write};
use zip::write::SimpleFileOptions;

fn both() -> [Settings<'static>; 2] {
    [Generation::ArpoEra, Generation::Verified].map(|generation| Settings { generation, sandbox: None })
}

/// A metric, a file's name and bytes, what is expected, and options.
type Sample = (String, String, Vec<u8>, Value, Map<String, Value>);

/// One case of each metric with a file, as something to damage.
fn samples() -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    for (case, _) in cases().into_iter().chain(media_cases()) {
        let Some(name) = case.result.get("file").and_then(Value::as_str) else { continue };
        let Ok(bytes) = std::fs::read(folder().join(name)) else { continue };
        if !samples.iter().any(|(func, ..)| *func == case.func) {
            let name = name.rsplit('/').next().unwrap().to_owned();
            samples.push((case.func, name, bytes, case.expected, case.options));
        }
    }
    assert!(samples.len() > 40);
    samples
}

fn expected_state(value: &Value) -> Option<State> {
    match value.get("file").and_then(Value::as_str) {
        Some(name) => Some(State::File(FileState::new(
            name.rsplit('/').next().unwrap(),
            std::fs::read(folder().join(name)).ok()?,
        ))),
        None => (!value.is_null()).then(|| State::from(value.clone())),
    }
}

#[test]
fn every_file_may_be_cut_anywhere() {
    for (func, name, bytes, expected, options) in samples() {
        let expected = expected_state(&expected);
        for part in 0..12 {
            let cut = bytes[..bytes.len() * part / 12].to_vec();
            let state = State::File(FileState::new(name.clone(), cut));
            for settings in both() {
                let score = metrics::score(&func, &state, expected.as_ref(), &options, &settings);
                assert!(
                    score.as_ref().is_ok_and(|score| (-1.0..=1.0).contains(score)) || score.is_err(),
                    "{func}: {score:?}"
                );
            }
        }
    }
}

#[test]
fn every_metric_takes_any_value() {
    let values = [
        json!(null),
        json!([]),
        json!({}),
        json!("x"),
        json!(-1.5),
        json!([{"a": [null]}]),
        json!({"expected": 5, "type": [], "expect": "x"}),
    ];
    for (_, table) in metrics::TABLES {
        for metric in *table {
            for result in &values {
                for expected in &values {
                    let (result, expected) = (State::from(result.clone()), State::from(expected.clone()));
                    for settings in both() {
                        let _ = metrics::score(metric.name, &result, Some(&expected), &Map::new(), &settings);
                        let _ = metrics::score(metric.name, &result, None, &Map::new(), &settings);
                    }
                }
            }
        }
    }
}

fn archive(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in parts {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

#[test]
fn a_bomb_does_not_go_off() {
    let rels = br#"<Relationships><Relationship Id="r" Type="x/officeDocument" Target="word/document.xml"/></Relationships>"#;
    let bomb = archive(&[("_rels/.rels", rels), ("word/document.xml", &vec![b' '; 140 << 20])]);
    assert!(bomb.len() < 1 << 20);
    let state = State::File(FileState::new("a.docx", bomb));
    let score =
        metrics::score("is_first_line_centered", &state, None, &Map::new(), &Settings::default()).unwrap();
    assert!(score.abs() < f64::EPSILON);
}

/// A book with one sheet and one style of conditional formats, a red fill.
fn book(sheet: &str) -> State {
    let workbook = br#"<workbook xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets><sheet name="S" sheetId="1" r:id="r"/></sheets></workbook>"#;
    let styles = br#"<styleSheet><dxfs><dxf><fill><patternFill><bgColor rgb="FFFF0000"/></patternFill></fill></dxf></dxfs></styleSheet>"#;
    let bytes = archive(&[
        ("_rels/.rels", br#"<Relationships><Relationship Id="r" Type="x/officeDocument" Target="xl/workbook.xml"/></Relationships>"#),
        ("xl/workbook.xml", workbook),
        ("xl/_rels/workbook.xml.rels", br#"<Relationships><Relationship Id="r" Type="x/worksheet" Target="worksheets/sheet1.xml"/></Relationships>"#),
        ("xl/styles.xml", styles),
        ("xl/worksheets/sheet1.xml", format!("<worksheet>{sheet}</worksheet>").as_bytes()),
    ]);
    State::File(FileState::new("a.xlsx", bytes))
}

#[test]
fn a_sheet_with_one_far_cell_is_refused() {
    let state = book(r#"<sheetData><row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData>"#);
    for rule in [
        json!({"type": "sheet_data", "sheet_idx0": 0, "sheet_idx1": "EI0"}),
        json!({"type": "style", "props": ["bgcolor"], "sheet_idx0": 0, "sheet_idx1": "EI0"}),
    ] {
        let options = json!({"rules": [rule]}).as_object().unwrap().clone();
        let score = metrics::score("compare_table", &state, Some(&state), &options, &Settings::default());
        assert!(!score.is_ok_and(|score| score > 0.5));
    }
}

#[test]
fn a_condition_on_a_column_is_judged_and_no_result_makes_a_task_unusable() {
    let with = |formula: &str, range: &str| {
        book(&format!(
            r#"<sheetData><row r="1"><c r="A1"><v>5</v></c></row></sheetData>
               <conditionalFormatting sqref="{range}"><cfRule type="expression" dxfId="0"><formula>{formula}</formula></cfRule>
               </conditionalFormatting>"#
        ))
    };
    let (column, everything) = ("A1:A1048576", "A1:XFD1048576");
    let rule = json!({"type": "style", "props": ["bgcolor"], "sheet_idx0": 0, "sheet_idx1": "EI0"});
    let options = json!({"rules": [rule]}).as_object().unwrap().clone();
    for settings in both() {
        let score = |result: &State, expected: &State| {
            metrics::score("compare_table", result, Some(expected), &options, &settings)
        };
        let gold = with("A1&gt;4", column);
        assert!(score(&with("A1=5", column), &gold).is_ok_and(|score| score > 0.5));
        assert!(score(&with("A1&gt;9", column), &gold).is_ok_and(|score| score < 0.5));
        let odd = with("SUM(A1:A3)&gt;2", "A1");
        assert!(matches!(score(&odd, &gold), Err(MetricError::Raises(_))));
        assert!(matches!(score(&gold, &odd), Err(MetricError::Unsupported(_))));
        assert!(matches!(score(&odd, &odd), Err(MetricError::Unsupported(_))));
        if settings.generation == Generation::ArpoEra {
            assert!(matches!(score(&with("A1=5", everything), &gold), Err(MetricError::Raises(_))));
        }
    }
}

/// A page that draws this content with these forms and images.
fn pdf(mut document: Document, content: &str, drawn: Dictionary) -> State {
    let pages = document.new_object_id();
    let content = document.add_object(Stream::new(Dictionary::new(), content.as_bytes().to_vec()));
    let corners: Vec<Object> = [0, 0, 600, 800].map(Object::Integer).to_vec();
    let page = document.add_object(dictionary! {
        "Type" => "Page", "Parent" => pages, "Contents" => content, "MediaBox" => corners,
        "Resources" => dictionary! { "XObject" => drawn },
    });
    let kids: Vec<Object> = vec![page.into()];
    document.set_object(pages, dictionary! { "Type" => "Pages", "Kids" => kids, "Count" => 1 });
    let catalog = document.add_object(dictionary! { "Type" => "Catalog", "Pages" => pages });
    document.trailer.set("Root", catalog);
    let mut bytes = Vec::new();
    document.save_to(&mut bytes).unwrap();
    State::File(FileState::new("a.pdf", bytes))
}

/// A form that draws another many times.
fn form(draws: ObjectId) -> Stream {
    let resources = dictionary! { "XObject" => dictionary! { "F" => draws } };
    let form = dictionary! { "Type" => "XObject", "Subtype" => "Form", "Resources" => resources };
    Stream::new(form, "/F Do\n".repeat(1000).into_bytes())
}

fn with_itself(func: &str, state: &State, settings: &Settings<'_>) -> Result<f64, MetricError> {
    metrics::score(func, state, Some(state), &Map::new(), settings)
}

#[test]
fn a_form_that_draws_itself_is_drawn_once() {
    let mut document = Document::with_version("1.5");
    let id = document.new_object_id();
    document.set_object(id, form(id));
    let state = pdf(document, "/F Do", dictionary! { "F" => id });
    for settings in both() {
        let score = with_itself("compare_pdf_images", &state, &settings);
        assert!(score.as_ref().is_ok_and(|score| *score > 0.5), "{score:?}");
    }
    assert!(with_itself("compare_pdfs", &state, &Settings::default()).is_ok());
}

#[test]
fn forms_that_draw_forms_many_times_are_refused() {
    let mut document = Document::with_version("1.5");
    let ids: Vec<ObjectId> = (0..5).map(|_| document.new_object_id()).collect();
    for pair in ids.windows(2) {
        document.set_object(pair[0], form(pair[1]));
    }
    let last = dictionary! { "Type" => "XObject", "Subtype" => "Form" };
    document.set_object(ids[4], Stream::new(last, b"0 0 1 1 re f".to_vec()));
    let state = pdf(document, &"/F Do\n".repeat(1000), dictionary! { "F" => ids[0] });
    let [arpo_era, verified] = both();
    let refused = with_itself("compare_pdf_images", &state, &arpo_era);
    assert!(matches!(refused, Err(MetricError::Raises(_))), "{refused:?}");
    assert!(with_itself("compare_pdf_images", &state, &verified).is_ok());
    assert!(with_itself("compare_pdfs", &state, &verified).is_ok());
}

#[test]
fn a_large_image_that_has_many_names_is_decoded_once() {
    let mut document = Document::with_version("1.5");
    let described = dictionary! {
        "Type" => "XObject", "Subtype" => "Image", "Width" => 4000, "Height" => 4000,
        "BitsPerComponent" => 8, "ColorSpace" => "DeviceGray",
    };
    let mut image = Stream::new(described, vec![90; 16_000_000]);
    image.compress().unwrap();
    let id = document.add_object(image);
    let mut drawn = Dictionary::new();
    let mut draw = |number: usize| {
        drawn.set(format!("I{number}"), id);
        format!("/I{number} Do\n")
    };
    let content = (0..2000).map(&mut draw).collect::<Vec<String>>().concat();
    let state = pdf(document, &content, drawn);
    for settings in both() {
        let score = with_itself("compare_pdf_images", &state, &settings);
        assert!(score.as_ref().is_ok_and(|score| *score > 0.5), "{score:?}");
    }
}

#[test]
fn aliases_of_a_long_text_are_refused() {
    let text = format!("- &a {}\n{}", "x".repeat(1 << 20), "- *a\n".repeat(100_000));
    let state = State::File(FileState::new("a.yaml", text.into_bytes()));
    let expected = State::from(json!({"expect": []}));
    let options = json!({"is_yaml": true}).as_object().unwrap().clone();
    for settings in both() {
        let score = metrics::score("check_json", &state, Some(&expected), &options, &settings);
        assert!(!score.is_ok_and(|score| score > 0.5));
    }
}

#[test]
fn a_tag_of_many_attributes_is_read() {
    let attributes = (0..200_000).map(|number| format!(" a{number}")).collect::<Vec<String>>().concat();
    let state = State::File(FileState::new("a.html", format!("<p{attributes}>x</p>").into_bytes()));
    for settings in both() {
        let score = with_itself("compare_htmls", &state, &settings);
        assert!(score.as_ref().is_ok_and(|score| *score > 0.5), "{score:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn bytes_may_be_changed_anywhere(choice in 0_usize..1000, at in 0_usize..100_000, value: u8) {
        let samples = samples();
        let (func, name, mut bytes, expected, options) = samples[choice % samples.len()].clone();
        let index = at % bytes.len();
        bytes[index] = value;
        let state = State::File(FileState::new(name, bytes));
        for settings in both() {
            let _ = metrics::score(&func, &state, expected_state(&expected).as_ref(), &options, &settings);
        }
    }
}
