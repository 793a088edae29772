//! One cell, and the three ways the original's libraries read its value.

use crate::error::MetricError;
use crate::sheet::book::{Book, rich_text};
use crate::sheet::dates::{Moment, moment};
use crate::sheet::range::CellPosition;
use crate::text::python;
use crate::xml::{child, descendants, parse};
use arpo_core::generation::Generation;
use roxmltree::Node;
use serde_json::{Value, json};
use std::collections::HashMap;

/// A cell as the file has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RawCell {
    /// The type: `n`, `s`, `str`, `b`, `e`, `inlineStr`, `d`.
    pub kind: String,
    /// The stored value, of a formula its last result.
    pub value: Option<String>,
    /// Whether there is a formula.
    pub has_formula: bool,
    /// The text of an inline string.
    pub inline: Option<String>,
    /// Into the styles.
    pub style: usize,
}

/// A value as pandas gets it from openpyxl.
#[derive(Debug, Clone, PartialEq)]
pub enum Datum {
    /// Nothing, or an empty text.
    Empty,
    /// A missing value: an error in the sheet.
    Missing,
    /// Text.
    Text(String),
    /// A whole number.
    Whole(i64),
    /// Any other number.
    Real(f64),
    /// A truth value.
    Truth(bool),
    /// A date or a time.
    Moment(Moment),
}

impl RawCell {
    /// Reads a `c` element.
    pub fn read(node: Node) -> Self {
        Self {
            kind: node.attribute("t").unwrap_or("n").to_owned(),
            value: child(node, "v").and_then(|node| node.text()).map(str::to_owned),
            has_formula: child(node, "f").is_some(),
            inline: child(node, "is").map(rich_text),
            style: node.attribute("s").and_then(|text| text.parse().ok()).unwrap_or(0),
        }
    }

    /// Whether openpyxl, reading formulas as they are, gives the cell a value.
    pub fn has_value(&self) -> bool {
        self.has_formula || self.value.is_some() || self.inline.is_some()
    }

    /// The value as `pandas.read_excel` sees it.
    pub fn datum(&self, book: &Book) -> Result<Datum, MetricError> {
        let Some(value) = &self.value else {
            return Ok(match &self.inline {
                Some(text) if !text.is_empty() => Datum::Text(text.clone()),
                _ => Datum::Empty,
            });
        };
        let broken = || MetricError::raises(format!("a cell of type {} holds {value:?}", self.kind));
        let text = |text: &str| if text.is_empty() { Datum::Empty } else { Datum::Text(text.to_owned()) };
        match self.kind.as_str() {
            "s" => {
                let index: usize = value.trim().parse().map_err(|_| broken())?;
                Ok(text(book.shared.get(index).ok_or_else(broken)?))
            }
            "b" => Ok(Datum::Truth(value.trim() != "0")),
            "e" => Ok(Datum::Missing),
            "n" => self.number(value, book).ok_or_else(broken),
            _ => Ok(text(value)),
        }
    }

    fn number(&self, value: &str, book: &Book) -> Option<Datum> {
        let real = python::parse_float(value)?;
        let style = book.styles.cell(self.style);
        if style.is_date {
            // A number beyond the calendar is an error cell in openpyxl, which pandas takes for missing.
            return Some(moment(real, style.is_span, book.since_1904).map_or(Datum::Missing, Datum::Moment));
        }
        let is_whole = real.is_finite() && (real - real.trunc()).abs() <= 0.0 && real.abs() < 9.2e18;
        Some(if is_whole { Datum::Whole(real as i64) } else { Datum::Real(real) })
    }
}

/// Values by their cell; a cell that raises does so only where it is looked at.
pub type LoneValues = HashMap<CellPosition, Result<Value, MetricError>>;

/// The value as OSWorld's own reader of one cell gives it.
///
/// It looks for the part by the sheet's number, not by its relation; numbers are always floats; booleans are
/// null; and in the ARPO era so are inline texts and errors.
pub fn lone_value(
    book: &Book,
    sheet: &str,
    position: &str,
    generation: Generation,
) -> Result<Value, MetricError> {
    let Some(text) = lone_part(book, sheet, generation)? else { return Ok(Value::Null) };
    let document = parse(&text)?;
    let is_it = |node: &Node| node.tag_name().name() == "c" && node.attribute("r") == Some(position);
    document.descendants().find(is_it).map_or(Ok(Value::Null), |cell| value_of(cell, book, generation))
}

/// The same of every cell that a sheet has; where a name comes twice, the first counts.
pub fn lone_values(book: &Book, sheet: &str, generation: Generation) -> Result<LoneValues, MetricError> {
    let mut values = LoneValues::new();
    let Some(text) = lone_part(book, sheet, generation)? else { return Ok(values) };
    let document = parse(&text)?;
    for cell in descendants(document.root(), "c") {
        let name = cell.attribute("r").unwrap_or_default();
        // `a1` and `$A$1` are never asked for
        if let Some(position) = CellPosition::parse(name).filter(|position| position.name() == name) {
            values.entry(position).or_insert_with(|| value_of(cell, book, generation));
        }
    }
    Ok(values)
}

/// The text of the part with a sheet's cells; Verified takes a missing one for empty.
fn lone_part(book: &Book, sheet: &str, generation: Generation) -> Result<Option<String>, MetricError> {
    let Some(entry) = book.entry(sheet) else {
        return match generation {
            Generation::ArpoEra => Err(MetricError::raises(format!("no sheet {sheet:?}"))),
            Generation::Verified => Ok(None),
        };
    };
    let part = format!("xl/worksheets/sheet{}.xml", entry.id);
    if !book.package.has(&part) && generation == Generation::Verified {
        return Ok(None);
    }
    book.package.xml(&part).map(Some)
}

fn value_of(cell: Node<'_, '_>, book: &Book, generation: Generation) -> Result<Value, MetricError> {
    let text = |text: Option<String>| text.map_or(Value::Null, Value::String);
    // A value that is there and empty is Python's `None`, which is no number: that raises. One that is not there is nothing.
    let number = |text: Option<String>| text.ok_or_else(|| MetricError::raises("an empty value"));
    let (value, later) = (child(cell, "v").map(stripped), generation == Generation::Verified);
    Ok(match (cell.attribute("t").unwrap_or("n"), value) {
        ("n", Some(value)) => {
            python::parse_float(&number(value)?).map_or(Value::Null, |number| json!(number))
        }
        ("s", Some(value)) => match number(value)?.parse::<usize>() {
            Ok(index) => {
                let shared = book.lone_shared.as_ref().and_then(|shared| shared.get(index));
                json!(shared.ok_or_else(|| MetricError::raises("no such shared text"))?)
            }
            Err(_) => Value::Null,
        },
        ("str", Some(value)) => text(value),
        ("e", Some(value)) if later => text(value),
        ("inlineStr", _) if later => {
            let inline = child(cell, "is").and_then(|inline| child(inline, "t"));
            inline.map(stripped).map_or(Value::Null, text)
        }
        _ => Value::Null,
    })
}

/// An element's text without blanks around it; none if nothing is left.
fn stripped(node: Node<'_, '_>) -> Option<String> {
    node.text().map(|text| python::strip(text).to_owned()).filter(|text| !text.is_empty())
}

/// A property of a cell's style, by OSWorld's name for it. Most are nothing for a cell without a value.
pub fn style_value(
    book: &Book,
    sheet: &crate::sheet::book::Sheet,
    position: CellPosition,
    property: &str,
    generation: Generation,
) -> Result<Value, MetricError> {
    let empty = RawCell::default();
    let covered = sheet.is_covered(position);
    let cell = sheet.cells.get(&position).filter(|_| !covered).unwrap_or(&empty);
    let style = book.styles.cell(cell.style);
    let font = book.styles.fonts.get(style.font).cloned().unwrap_or_default();
    let fill = book.styles.fills.get(style.fill).cloned().unwrap_or_default();
    let of_value = |value: Value| if cell.has_value() && !covered { value } else { Value::Null };
    Ok(match property {
        "number_format" => {
            let is_number = cell.has_value() && cell.kind == "n" && !cell.has_formula;
            if is_number && !style.is_date { json!(style.format) } else { Value::Null }
        }
        "font_name" => of_value(font.name),
        "font_family" => of_value(font.family),
        "font_bold" => of_value(font.bold),
        "font_italic" => of_value(font.italic),
        "font_underline" => of_value(font.underline),
        "font_size" => of_value(font.size),
        "font_color" if cell.has_value() && !covered => {
            font.color.ok_or_else(|| MetricError::raises("a font without a colour"))?
        }
        "font_color" => Value::Null,
        "fill_type" => json!(fill.tag),
        // The ARPO era reads the back colour, which a plain fill leaves at its default.
        "bgcolor" if generation == Generation::ArpoEra => fill.back,
        "bgcolor" | "fgcolor" => fill.front,
        "hyperlink" => of_value(sheet.links.get(&position.name()).map_or(json!(""), |link| json!(link))),
        "merge" if generation == Generation::Verified => json!(covered),
        other => return Err(MetricError::raises(format!("no such style: {other}"))),
    })
}
