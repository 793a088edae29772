//! `compare_table`: rules on a spreadsheet, one after the other, all of which must hold.

use super::call::{text, yes};
use super::lines::lenient_text;
use super::{Call, Metric, Score, metric};
use crate::error::MetricError;
use crate::sheet::Described;
use crate::sheet::book::{Book, Sheet};
use crate::sheet::cell::{lone_value, style_value};
use crate::sheet::chart::charts;
use crate::sheet::condition::{active_cells, conditional_value};
use crate::sheet::frame::Frame;
use crate::sheet::pivot::pivot_tables;
use crate::sheet::range::{CellPosition, Ranges};
use crate::sheet::sparkline::sparklines;
use crate::state::{FileState, State};
use crate::text::{python, similarity, value_rule};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(super) const METRICS: &[Metric] = &[
    metric("compare_conference_city_in_order", compare_conference_city_in_order),
    metric("compare_table", compare_table),
];

/// A hostile sheet claims to be larger with one far cell.
const STYLED_CELLS_LIMIT: u64 = 2_000_000;

/// Both books of a comparison; the expected one may be absent.
struct Books<'a> {
    call: &'a Call<'a>,
    result: (Book, &'a FileState),
    expected: Option<(Book, &'a FileState)>,
}

/// A book with its file, and the name of a sheet in it, which may not be there.
struct Chosen<'a> {
    book: &'a Book,
    file: &'a FileState,
    sheet: String,
}

/// A result that is missing or damaged scores 0; an expected book that is raises.
fn compare_table(call: &Call<'_>) -> Score {
    let State::File(result) = call.result else { return Ok(0.0) };
    let Ok(book) = Book::open(&result.bytes) else { return Ok(0.0) };
    let expected = match call.expected {
        None | Some(State::Null) => None,
        Some(state) => {
            let file = state.file()?;
            Some((Book::open(&file.bytes)?, file))
        }
    };
    let books = Books { call, result: (book, result), expected };
    let rules = call.options.get("rules").and_then(Value::as_array);
    for rule in rules.ok_or_else(|| MetricError::raises("no rules"))? {
        if !books.holds(rule)? {
            return Ok(0.0);
        }
    }
    Ok(1.0)
}

impl<'a> Books<'a> {
    fn holds(&'a self, rule: &Value) -> Result<bool, MetricError> {
        match text(&rule["type"])? {
            "sheet_name" => {
                let expected = self.expected.as_ref().map(|(book, _)| book.names());
                Ok(expected.is_some_and(|names| names == self.result.0.names()))
            }
            "sheet_data" => self.same_data(rule),
            "sheet_print" => self.same_print(rule),
            "sheet_fuzzy" => self.alike(rule),
            "freeze" => {
                let (Some(first), second) =
                    (self.sheet(rule, "sheet_idx0")?, self.sheet(rule, "sheet_idx1")?)
                else {
                    return Ok(false);
                };
                Ok(first.freeze == second.ok_or_else(no_sheet)?.freeze)
            }
            "zoom" => {
                let Some(sheet) = self.sheet(rule, "sheet_idx")? else { return Ok(false) };
                let zoom = sheet.zoom.filter(|zoom| *zoom != 0.0).unwrap_or(100.0);
                value_rule::meets(&json!(zoom), rule)
            }
            "row_props" => self.same_properties(rule, |sheet| {
                sheet.rows.iter().map(|(row, properties)| (row.to_string(), properties.clone())).collect()
            }),
            "col_props" => self.same_properties(rule, |sheet| sheet.columns.clone()),
            "data_validation" => self.validated(rule),
            "check_cell" => match self.cell_holds(rule) {
                Err(MetricError::Raises(_)) if !self.call.is_arpo_era() => Ok(false),
                other => other,
            },
            "style" => self.same_styles(rule),
            "chart" => self.same_parts(rule, "chart_props", charts),
            "pivot_table" => self.same_parts(rule, "pivot_props", pivot_tables),
            "sparkline" => {
                let read = |key: &str| {
                    let chosen = self.choose(rule, key)?;
                    sparklines(chosen.book, &chosen.sheet)
                };
                Ok(read("sheet_idx0")? == read("sheet_idx1")?)
            }
            "filter" => {
                let read = |key: &str| Ok(self.sheet(rule, key)?.map(|sheet| sheet.filter));
                let (first, second): (Result<_, MetricError>, _) = (read("sheet_idx0"), read("sheet_idx1"));
                Ok(first? == second?)
            }
            other => Err(MetricError::raises(format!("no such rule: {other}"))),
        }
    }

    /// `0`, `"RI0"`, `"RNname"` of the result, `"EI0"`, `"ENname"` of what is expected. An index too large chooses
    /// a sheet without a name, which is not there.
    fn choose(&'a self, rule: &Value, key: &str) -> Result<Chosen<'a>, MetricError> {
        let at = |book: &Book, index: Option<usize>| {
            index.and_then(|index| book.sheets.get(index)).map(|sheet| sheet.name.clone()).unwrap_or_default()
        };
        let result = |sheet: String| Ok(Chosen { book: &self.result.0, file: self.result.1, sheet });
        let index = &rule[key];
        if let Some(number) = index.as_i64() {
            // Python counts negative numbers from the end.
            let count = self.result.0.sheets.len() as i64;
            let number = if number < 0 { number + count } else { number };
            return result(at(&self.result.0, usize::try_from(number).ok()));
        }
        let index = text(index)?;
        let (kind, rest) = index.split_at_checked(2).ok_or_else(no_sheet)?;
        match kind {
            "RI" => result(at(&self.result.0, rest.parse().ok())),
            "RN" => result(rest.to_owned()),
            "EI" | "EN" => {
                let (book, file) =
                    self.expected.as_ref().ok_or_else(|| MetricError::raises("no expected book"))?;
                let sheet = if kind == "EI" { at(book, rest.parse().ok()) } else { rest.to_owned() };
                Ok(Chosen { book, file, sheet })
            }
            _ => Err(MetricError::raises(format!("{index:?} names no sheet"))),
        }
    }

    fn sheet(&'a self, rule: &Value, key: &str) -> Result<Option<Sheet>, MetricError> {
        let chosen = self.choose(rule, key)?;
        chosen.book.sheet(&chosen.sheet)
    }

    /// pandas frames, rounded, equal.
    fn same_data(&'a self, rule: &Value) -> Result<bool, MetricError> {
        let decimals = rule.get("precision").and_then(Value::as_i64).unwrap_or(4) as i32;
        let read = |key: &str| -> Result<Option<Frame>, MetricError> {
            let chosen = self.choose(rule, key)?;
            Ok(Frame::read(chosen.book, &chosen.sheet)?.map(|frame| frame.rounded(decimals)))
        };
        // Whatever goes wrong in reading the first sheet counts as a sheet that is not there.
        let Ok(Some(first)) = read("sheet_idx0") else { return Ok(false) };
        Ok(first.equals(&read("sheet_idx1")?.ok_or_else(no_sheet)?))
    }

    /// The files `<book>-<sheet>.csv` beside the books, without the empty lines at their ends.
    fn same_print(&'a self, rule: &Value) -> Result<bool, MetricError> {
        let ignore_case = rule.get("ignore_case").is_some_and(python::truthy);
        let read = |key: &str| -> Result<Option<Vec<String>>, MetricError> {
            let chosen = self.choose(rule, key)?;
            let name = format!("{}-{}.csv", chosen.file.stem(), chosen.sheet);
            let Some(bytes) = chosen.file.siblings.get(&name) else { return Ok(None) };
            let state = State::File(FileState::new(name, bytes.clone()));
            let content = if self.call.is_arpo_era() { state.text() } else { lenient_text(&state) };
            let Ok(content) = content else { return Ok(None) };
            let mut lines: Vec<String> = python::split_lines(&content)
                .into_iter()
                .map(|line| python::strip(line).to_owned())
                .collect();
            lines.truncate(lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1));
            if ignore_case {
                lines = lines.iter().map(|line| line.to_lowercase()).collect();
            }
            Ok(Some(lines))
        };
        let Some(first) = read("sheet_idx0")? else { return Ok(false) };
        match read("sheet_idx1")? {
            Some(second) => Ok(first == second),
            // Without `ignore_case` the original compares with `None`, with it it raises.
            None if ignore_case => Err(no_sheet()),
            None => Ok(false),
        }
    }

    /// Cells of ranges, trimmed and compared as texts.
    fn alike(&'a self, rule: &Value) -> Result<bool, MetricError> {
        let (first, second) = (self.choose(rule, "sheet_idx0")?, self.choose(rule, "sheet_idx1")?);
        let generation = self.call.settings.generation;
        let mut holds = true;
        for part in rule["rules"].as_array().ok_or_else(|| MetricError::raises("no rules"))? {
            let ranges: Vec<&str> = match &part["range"] {
                Value::Array(ranges) => ranges.iter().map(text).collect::<Result<_, _>>()?,
                range => vec![text(range)?],
            };
            for position in
                Ranges::parse(&ranges.join(" "))?.0.iter().flat_map(crate::sheet::range::CellRange::cells)
            {
                let read = |chosen: &Chosen<'_>| -> Result<String, MetricError> {
                    let value = lone_value(chosen.book, &chosen.sheet, &position.name(), generation)?;
                    Ok(trimmed(python::to_text(&value), part))
                };
                let (a, b) = (read(&first)?, read(&second)?);
                holds = holds
                    && match text(&part["type"])? {
                        "includes" => a.contains(&b),
                        "included_by" => b.contains(&a),
                        "fuzzy_match" => {
                            let limit = part.get("threshold").and_then(Value::as_f64).unwrap_or(85.0);
                            similarity::ratio(&a, &b) >= limit
                        }
                        "exact_match" => a == b,
                        other => return Err(MetricError::raises(format!("no such rule: {other}"))),
                    };
            }
        }
        Ok(holds)
    }

    /// Charts or pivot tables, by what they show.
    fn same_parts(
        &'a self,
        rule: &Value,
        names: &str,
        parts: fn(&Book, &str, &[&str]) -> Result<Described, MetricError>,
    ) -> Result<bool, MetricError> {
        let wanted: Vec<&str> =
            rule[names].as_array().into_iter().flatten().map(text).collect::<Result<_, _>>()?;
        let read = |key: &str| {
            let chosen = self.choose(rule, key)?;
            parts(chosen.book, &chosen.sheet, &wanted)
        };
        Ok(read("sheet_idx0")? == read("sheet_idx1")?)
    }

    fn same_properties(
        &'a self,
        rule: &Value,
        entries: fn(&Sheet) -> Described,
    ) -> Result<bool, MetricError> {
        let wanted: Vec<&str> =
            rule["props"].as_array().into_iter().flatten().map(text).collect::<Result<_, _>>()?;
        let read = |key: &str| -> Result<BTreeMap<String, Vec<Value>>, MetricError> {
            let sheet = self.sheet(rule, key)?.unwrap_or_default();
            let mut chosen = BTreeMap::new();
            for (name, properties) in entries(&sheet) {
                let value = |property: &&str| {
                    properties
                        .get(*property)
                        .cloned()
                        .ok_or_else(|| MetricError::raises(format!("no property {property}")))
                };
                chosen.insert(name, wanted.iter().map(value).collect::<Result<_, _>>()?);
            }
            Ok(chosen)
        };
        Ok(read("sheet_idx0")? == read("sheet_idx1")?)
    }

    /// Every validation of the sheet meets one of the wanted descriptions, and there are enough of them.
    fn validated(&'a self, rule: &Value) -> Result<bool, MetricError> {
        let Some(sheet) = self.sheet(rule, "sheet_idx")? else { return Ok(false) };
        let wanted = rule["dv_props"].as_array().ok_or_else(|| MetricError::raises("no dv_props"))?;
        if sheet.validations.len() < wanted.len() {
            return Ok(false);
        }
        for validation in &sheet.validations {
            let mut met = false;
            for description in wanted {
                let mut all = true;
                for (attribute, rule) in description.as_object().into_iter().flatten() {
                    let value = validation.get(attribute).unwrap_or(&Value::Null);
                    all = all && value_rule::meets(value, rule)?;
                }
                met = met || all;
            }
            if !met {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn cell_holds(&'a self, rule: &Value) -> Result<bool, MetricError> {
        let chosen = self.choose(rule, "sheet_idx")?;
        let Some(sheet) = chosen.book.sheet(&chosen.sheet)? else { return Ok(false) };
        let name = text(&rule["coordinate"])?;
        let position = CellPosition::parse(name)
            .ok_or_else(|| MetricError::raises(format!("{name:?} is not a cell")))?;
        let generation = self.call.settings.generation;
        let mut holds = true;
        for (property, rule) in rule["props"].as_object().into_iter().flatten() {
            let value = match property.as_str() {
                "value" => lone_value(chosen.book, &chosen.sheet, name, generation),
                property => style_value(chosen.book, &sheet, position, property, generation),
            };
            let value = match value {
                Err(MetricError::Raises(_)) if !self.call.is_arpo_era() => Value::Null,
                other => other?,
            };
            holds = holds && value_rule::meets(&value, rule)?;
        }
        Ok(holds)
    }

    /// Styles of all cells up to the last, and of those that meet a condition what it makes of them.
    fn same_styles(&'a self, rule: &Value) -> Result<bool, MetricError> {
        let wanted: Vec<&str> =
            rule["props"].as_array().into_iter().flatten().map(text).collect::<Result<_, _>>()?;
        let read = |key: &str| -> Result<BTreeMap<CellPosition, Vec<Value>>, MetricError> {
            let chosen = self.choose(rule, key)?;
            let Some(sheet) = chosen.book.sheet(&chosen.sheet)? else { return Ok(BTreeMap::new()) };
            let range = sheet.used_range();
            if range.count() > STYLED_CELLS_LIMIT {
                return Err(MetricError::raises(format!("{} cells with styles", range.count())));
            }
            let mut styles = BTreeMap::new();
            for position in range.cells() {
                let value = |property: &&str| {
                    style_value(chosen.book, &sheet, position, property, self.call.settings.generation)
                };
                styles.insert(position, wanted.iter().map(value).collect::<Result<_, _>>()?);
            }
            let generation = self.call.settings.generation;
            let active = active_cells(chosen.book, &chosen.sheet, &sheet, generation);
            for (condition, position) in active.map_err(|error| self.judged(&chosen, error))? {
                let value = |property: &&str| {
                    conditional_value(chosen.book, &sheet, position, property, condition, generation)
                };
                styles.insert(position, wanted.iter().map(value).collect::<Result<_, _>>()?);
            }
            Ok(styles)
        };
        match (read("sheet_idx0"), read("sheet_idx1")) {
            // what the expected file needs and is not implemented is missing for every result
            (_, Err(error @ MetricError::Unsupported(_))) => Err(error),
            (first, second) => Ok(first? == second?),
        }
    }

    /// What is not implemented counts as 0 where only the agent's own file has it: no agent makes a task unusable.
    fn judged(&self, chosen: &Chosen<'_>, error: MetricError) -> MetricError {
        match error {
            MetricError::Unsupported(what) if std::ptr::eq(chosen.book, &raw const self.result.0) => {
                MetricError::raises(format!("the result has what is not implemented: {what}"))
            }
            other => other,
        }
    }
}

/// A cell's text made comparable: replacements, trimmed ends, letters left out, case.
fn trimmed(mut value: String, rule: &Value) -> String {
    for pair in rule["normalization"].as_array().into_iter().flatten() {
        if let (Some(from), Some(to)) = (pair[0].as_str(), pair[1].as_str()) {
            value = value.replace(from, to);
        }
    }
    if let Some(letters) = rule["trim_leadings"].as_str() {
        value = String::from(value.trim_start_matches(|letter| letters.contains(letter)));
    }
    if let Some(letters) = rule["trim_trailings"].as_str() {
        value = String::from(value.trim_end_matches(|letter| letters.contains(letter)));
    }
    if let Some(letters) = rule["ignore_chars"].as_str() {
        value.retain(|letter| !letters.contains(letter));
    }
    if rule.get("ignore_case").is_some_and(python::truthy) { value.to_lowercase() } else { value }
}

fn no_sheet() -> MetricError {
    MetricError::raises("no such sheet to compare with")
}

/// The cells C2 to C22 hold the cities, each containing what is expected for its row.
fn compare_conference_city_in_order(call: &Call<'_>) -> Score {
    let book = Book::open(&call.result.file()?.bytes)?;
    let expected = call.rule_list("expected")?;
    let Some(first) = book.sheets.first() else { return Err(no_sheet()) };
    let sheet = book.sheet(&first.name)?.unwrap_or_default();
    for row in 2..=22_u32 {
        let cell = sheet.cells.get(&CellPosition { row, column: 3 });
        let found = cell.map(|cell| cell.datum(&book)).transpose()?;
        let Some(crate::sheet::cell::Datum::Text(found)) = found else { return Ok(0.0) };
        let holds = |city: &Value| city.as_str().is_some_and(|city| found.contains(city));
        let right = match expected.get(row as usize - 2) {
            Some(Value::Array(cities)) => cities.iter().any(holds),
            Some(city) => holds(city),
            None => false,
        };
        if !right {
            return Ok(0.0);
        }
    }
    Ok(yes(true))
}
