//! A sheet as `pandas.read_excel` gives it: a header row, then typed columns.

use crate::error::MetricError;
use crate::sheet::book::Book;
use crate::sheet::cell::Datum;
use crate::sheet::numeric::{Column, same_object};
use crate::text::python;

/// More than this would not fit in memory; a hostile sheet claims it with one far cell.
const CELLS_LIMIT: usize = 20_000_000;

/// A table with named columns.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// The names, texts or numbers.
    pub names: Vec<Datum>,
    /// One for each name.
    pub columns: Vec<Column>,
    /// How many rows.
    pub rows: usize,
}

impl Frame {
    /// The frame of a sheet; none if there is no such sheet.
    pub fn read(book: &Book, sheet: &str) -> Result<Option<Self>, MetricError> {
        let Some(sheet) = book.sheet(sheet)? else { return Ok(None) };
        let mut table: Vec<Vec<Datum>> = Vec::new();
        for (position, cell) in &sheet.cells {
            let datum = cell.datum(book)?;
            if datum == Datum::Empty {
                continue;
            }
            let (row, column) = (position.row as usize - 1, position.column as usize - 1);
            if table.len() <= row {
                table.resize(row + 1, Vec::new());
            }
            if table[row].len() <= column {
                table[row].resize(column + 1, Datum::Empty);
            }
            table[row][column] = datum;
        }
        let width = table.iter().map(Vec::len).max().unwrap_or(0);
        if width.saturating_mul(table.len()) > CELLS_LIMIT {
            return Err(MetricError::raises(format!("a sheet of {} by {width} cells", table.len())));
        }
        Ok(Some(Self::from_table(table)))
    }

    /// The first row names the columns, the rest fills them.
    fn from_table(mut table: Vec<Vec<Datum>>) -> Self {
        let width = table.iter().map(Vec::len).max().unwrap_or(0);
        for row in &mut table {
            row.resize(width, Datum::Empty);
        }
        if table.is_empty() {
            return Self { names: Vec::new(), columns: Vec::new(), rows: 0 };
        }
        let names = unique_names(table.remove(0));
        let rows = table.len();
        let mut columns: Vec<Vec<Datum>> = (0..width).map(|_| Vec::with_capacity(rows)).collect();
        for row in table {
            for (column, datum) in columns.iter_mut().zip(row) {
                column.push(datum);
            }
        }
        Self { names, columns: columns.into_iter().map(Column::infer).collect(), rows }
    }

    /// Numbers rounded.
    #[must_use]
    pub fn rounded(self, decimals: i32) -> Self {
        let columns = self.columns.into_iter().map(|column| column.rounded(decimals)).collect();
        Self { columns, ..self }
    }

    /// pandas' `DataFrame.equals`.
    pub fn equals(&self, other: &Self) -> bool {
        self.rows == other.rows
            && self.names.len() == other.names.len()
            && self.names.iter().zip(&other.names).all(|(a, b)| same_object(a, b))
            && self.columns.iter().zip(&other.columns).all(|(a, b)| a.equals(b))
    }

    /// The last row as texts, as `df.iloc[-1].astype(str)` gives it: one type for the whole row.
    pub fn last_row_texts(&self) -> Option<Vec<String>> {
        let last = self.rows.checked_sub(1)?;
        let all_numbers =
            self.columns.iter().all(|column| matches!(column, Column::Whole(_) | Column::Real(_)));
        let any_real = self.columns.iter().any(|column| matches!(column, Column::Real(_)));
        let as_real = all_numbers && any_real;
        Some(self.columns.iter().map(|column| text_at(column, last, as_real)).collect())
    }
}

fn text_at(column: &Column, row: usize, as_real: bool) -> String {
    match column {
        Column::Whole(values) if as_real => python::float_text(values[row] as f64),
        Column::Whole(values) => values[row].to_string(),
        Column::Real(values) => python::float_text(values[row]),
        Column::Truth(values) => if values[row] { "True" } else { "False" }.into(),
        Column::Dates(values) | Column::Spans(values) => values[row].map_or_else(|| "NaT".into(), date_text),
        Column::Objects(values) => name_text(&values[row]),
    }
}

/// A moment as pandas prints it: the date alone only where the whole column has no times, which a row never has.
fn date_text(at: i64) -> String {
    jiff::Timestamp::from_millisecond(at)
        .map(|moment| moment.to_zoned(jiff::tz::TimeZone::UTC).strftime("%Y-%m-%d %H:%M:%S").to_string())
        .unwrap_or_default()
}

/// `Unnamed: 3` for an empty header; a second `a` becomes `a.1`, or the next number that no header has.
fn unique_names(header: Vec<Datum>) -> Vec<Datum> {
    let filled = |(at, name): (usize, Datum)| {
        if name == Datum::Empty { Datum::Text(format!("Unnamed: {at}")) } else { name }
    };
    let mut names: Vec<Datum> = header.into_iter().enumerate().map(filled).collect();
    let mut counts: Vec<(Datum, usize)> = Vec::new();
    for at in 0..names.len() {
        let original = names[at].clone();
        let mut count = count_of(&counts, &original);
        let mut name = original.clone();
        while count > 0 {
            set_count(&mut counts, &original, count + 1);
            name = Datum::Text(format!("{}.{count}", name_text(&original)));
            count = if names.iter().any(|other| same_object(other, &name)) {
                count + 1
            } else {
                count_of(&counts, &name)
            };
        }
        set_count(&mut counts, &name, count + 1);
        names[at] = name;
    }
    names
}

fn count_of(counts: &[(Datum, usize)], name: &Datum) -> usize {
    counts.iter().find(|(known, _)| same_object(known, name)).map_or(0, |(_, count)| *count)
}

fn set_count(counts: &mut Vec<(Datum, usize)>, name: &Datum, count: usize) {
    match counts.iter_mut().find(|(known, _)| same_object(known, name)) {
        Some(entry) => entry.1 = count,
        None => counts.push((name.clone(), count)),
    }
}

fn name_text(name: &Datum) -> String {
    match name {
        Datum::Text(text) => text.clone(),
        Datum::Whole(number) => number.to_string(),
        Datum::Real(number) => python::float_text(*number),
        Datum::Truth(truth) => if *truth { "True" } else { "False" }.into(),
        Datum::Empty | Datum::Missing => "nan".into(),
        Datum::Moment(moment) => match moment {
            crate::sheet::dates::Moment::DateTime(at) => date_text(*at),
            crate::sheet::dates::Moment::Time(at) | crate::sheet::dates::Moment::Span(at) => {
                format!("{:02}:{:02}:{:02}", at / 3_600_000, at / 60_000 % 60, at / 1000 % 60)
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Datum {
        Datum::Text(text.into())
    }

    #[test]
    fn headers_become_unique_as_in_pandas() {
        let header = vec![
            text("a"),
            Datum::Empty,
            text("a"),
            Datum::Whole(1),
            Datum::Real(1.5),
            Datum::Truth(true),
            text("a.1"),
        ];
        let expected = vec![
            text("a"),
            text("Unnamed: 1"),
            text("a.2"),
            Datum::Whole(1),
            Datum::Real(1.5),
            text("True.1"),
            text("a.1"),
        ];
        assert_eq!(unique_names(header), expected);
        assert_eq!(unique_names(vec![Datum::Whole(1), Datum::Whole(1)]), vec![Datum::Whole(1), text("1.1")]);
    }

    #[test]
    fn rows_fill_columns_and_short_rows_are_missing() {
        let frame = Frame::from_table(vec![
            vec![text("a"), text("b")],
            vec![Datum::Whole(1)],
            vec![Datum::Whole(2), text("x")],
        ]);
        assert_eq!(frame.columns[0], Column::Whole(vec![1, 2]));
        assert_eq!(frame.columns[1], Column::Objects(vec![Datum::Missing, text("x")]));
        assert_eq!(frame.last_row_texts(), Some(vec!["2".into(), "x".into()]));
        let shorter =
            Frame::from_table(vec![vec![text("a"), text("b")], vec![Datum::Whole(1), Datum::Empty]]);
        assert!(frame.equals(&frame) && !frame.equals(&shorter));
    }
}
