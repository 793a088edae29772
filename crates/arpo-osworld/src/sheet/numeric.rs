//! How pandas makes typed columns of mixed values, and rounds and compares them.

use crate::sheet::cell::Datum;
use crate::sheet::dates::Moment;

/// Texts that pandas takes for missing values.
const MISSING_TEXTS: &[&str] = &[
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A",
    "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
];

/// A column with its type: columns of different types are never equal, whatever they hold.
#[derive(Debug, Clone, PartialEq)]
pub enum Column {
    /// All whole numbers.
    Whole(Vec<i64>),
    /// Numbers, missing ones as NaN.
    Real(Vec<f64>),
    /// Truth values.
    Truth(Vec<bool>),
    /// Dates, or missing.
    Dates(Vec<Option<i64>>),
    /// Spans of time, or missing.
    Spans(Vec<Option<i64>>),
    /// Anything else, missing values as [`Datum::Missing`].
    Objects(Vec<Datum>),
}

impl Column {
    /// The column pandas infers.
    pub fn infer(values: Vec<Datum>) -> Self {
        if values.is_empty() {
            return Self::Objects(values);
        }
        if let Some(numbers) = numeric(&values) {
            return numbers;
        }
        let values: Vec<Datum> =
            values.into_iter().map(|value| if is_missing(&value) { Datum::Missing } else { value }).collect();
        if let Some(truths) = values.iter().map(truth).collect::<Option<Vec<bool>>>() {
            return Self::Truth(truths);
        }
        let moments = |pick: fn(&Moment) -> Option<i64>| {
            let one = |value: &Datum| match value {
                Datum::Missing => Some(None),
                Datum::Moment(moment) => pick(moment).map(Some),
                _ => None,
            };
            values.iter().map(one).collect::<Option<Vec<Option<i64>>>>()
        };
        let dates = moments(|moment| if let Moment::DateTime(at) = moment { Some(*at) } else { None });
        let spans = || moments(|moment| if let Moment::Span(length) = moment { Some(*length) } else { None });
        if let Some(dates) = dates {
            return Self::Dates(dates);
        }
        if let Some(spans) = spans() {
            return Self::Spans(spans);
        }
        Self::Objects(values)
    }

    /// Rounded to decimals, halves to even as numpy does; a column of mixed objects stays as it is.
    #[must_use]
    pub fn rounded(self, decimals: i32) -> Self {
        let scale = 10_f64.powi(decimals.abs());
        let round = |number: f64| {
            let rounded = if decimals >= 0 {
                (number * scale).round_ties_even() / scale
            } else {
                (number / scale).round_ties_even() * scale
            };
            if rounded.is_finite() { rounded } else { number }
        };
        match self {
            Self::Real(values) => Self::Real(values.into_iter().map(round).collect()),
            Self::Whole(values) if decimals < 0 => {
                Self::Whole(values.into_iter().map(|one| round(one as f64) as i64).collect())
            }
            other => other,
        }
    }

    /// pandas' `equals`: same type, same values, missing values equal.
    pub fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Whole(a), Self::Whole(b)) => a == b,
            (Self::Real(a), Self::Real(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_real(*a, *b))
            }
            (Self::Truth(a), Self::Truth(b)) => a == b,
            (Self::Dates(a), Self::Dates(b)) | (Self::Spans(a), Self::Spans(b)) => a == b,
            (Self::Objects(a), Self::Objects(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_object(a, b))
            }
            _ => false,
        }
    }
}

fn same_real(a: f64, b: f64) -> bool {
    (a.is_nan() && b.is_nan()) || a.total_cmp(&b).is_eq() || (a - b).abs() <= 0.0
}

/// Python's equality of two objects: a truth value is a number, a whole number may equal a real one.
pub fn same_object(a: &Datum, b: &Datum) -> bool {
    let number = |value: &Datum| match value {
        Datum::Whole(number) => Some(*number as f64),
        Datum::Real(number) => Some(*number),
        Datum::Truth(truth) => Some(f64::from(u8::from(*truth))),
        _ => None,
    };
    match (number(a), number(b)) {
        (Some(a), Some(b)) => same_real(a, b),
        (None, None) => a == b,
        _ => false,
    }
}

fn is_missing(value: &Datum) -> bool {
    match value {
        Datum::Empty | Datum::Missing => true,
        Datum::Text(text) => MISSING_TEXTS.contains(&text.as_str()),
        _ => false,
    }
}

/// All of it numbers, or texts that are, or missing: a column of numbers. None if anything else is in it.
fn numeric(values: &[Datum]) -> Option<Column> {
    let (mut reals, mut any_real, mut any_whole) = (Vec::with_capacity(values.len()), false, false);
    for value in values {
        reals.push(match value {
            value if is_missing(value) => {
                any_real = true;
                f64::NAN
            }
            Datum::Whole(number) => {
                any_whole = true;
                *number as f64
            }
            Datum::Real(number) => {
                any_real = true;
                *number
            }
            Datum::Truth(truth) => f64::from(u8::from(*truth)),
            Datum::Text(text) => {
                let (number, whole) = number_of_text(text)?;
                any_whole |= whole;
                any_real |= !whole;
                number
            }
            _ => return None,
        });
    }
    if any_real {
        return Some(Column::Real(reals));
    }
    if any_whole {
        let whole = |value: &Datum| match value {
            Datum::Whole(number) => Some(*number),
            Datum::Truth(truth) => Some(i64::from(*truth)),
            Datum::Text(text) => text.trim().trim_start_matches('+').parse().ok(),
            _ => None,
        };
        return values.iter().map(whole).collect::<Option<_>>().map(Column::Whole);
    }
    Some(Column::Truth(reals.into_iter().map(|number| number > 0.5).collect()))
}

/// A text that pandas reads as a number, and whether it is whole.
fn number_of_text(text: &str) -> Option<(f64, bool)> {
    let text = text.trim_matches(|letter: char| letter.is_ascii_whitespace());
    let bare = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(bare.to_ascii_lowercase().as_str(), "inf" | "infinity") {
        return text.parse().ok().map(|number| (number, false));
    }
    if !bare.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.') || bare == "." {
        return None;
    }
    let number: f64 = text.parse().ok()?;
    let whole = bare.bytes().all(|digit| digit.is_ascii_digit());
    let fits = !whole || text.trim_start_matches('+').parse::<i64>().is_ok();
    (number.is_finite() && fits).then_some((number, whole))
}

fn truth(value: &Datum) -> Option<bool> {
    match value {
        Datum::Truth(truth) => Some(*truth),
        Datum::Text(text) => match text.as_str() {
            "True" | "TRUE" | "true" => Some(true),
            "False" | "FALSE" | "false" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Datum {
        Datum::Text(text.into())
    }

    #[test]
    fn columns_get_pandas_types() {
        // pandas 2.2.3: the dtype and values of read_excel for a column of these.
        use Datum::{Empty, Real, Truth, Whole};
        let infer = |values: &[Datum]| Column::infer(values.to_vec());
        assert_eq!(infer(&[Truth(true), Whole(1)]), Column::Whole(vec![1, 1]));
        assert!(infer(&[Truth(true), Empty]).equals(&Column::Real(vec![1.0, f64::NAN])));
        assert_eq!(infer(&[Truth(true), text("x")]), Column::Objects(vec![Truth(true), text("x")]));
        assert_eq!(infer(&[Truth(true), text("TRUE")]), Column::Truth(vec![true, true]));
        assert_eq!(
            infer(&[text("TRUE"), Empty, text("x")]),
            Column::Objects(vec![text("TRUE"), Datum::Missing, text("x")])
        );
        assert_eq!(infer(&[text("7 "), text(" 8")]), Column::Whole(vec![7, 8]));
        assert_eq!(infer(&[text("5."), Real(1.5)]), Column::Real(vec![5.0, 1.5]));
        for other in ["1,000", "0x10", "1_0", "-", ".", "1d5", "NAN", "1 2", "1e", "1e400", "50%"] {
            assert_eq!(infer(&[text(other)]), Column::Objects(vec![text(other)]), "{other}");
        }
        assert!(infer(&[text("NA"), text("n/a")]).equals(&Column::Real(vec![f64::NAN, f64::NAN])));
        let (day, hour) = (Datum::Moment(Moment::DateTime(5)), Datum::Moment(Moment::Time(5)));
        assert_eq!(infer(&[day.clone(), Empty]), Column::Dates(vec![Some(5), None]));
        assert_eq!(infer(&[hour.clone(), Empty]), Column::Objects(vec![hour.clone(), Datum::Missing]));
        assert_eq!(infer(&[day.clone(), hour.clone()]), Column::Objects(vec![day, hour]));
    }

    #[test]
    fn equality_knows_types_and_missing_values() {
        assert!(!Column::Whole(vec![1]).equals(&Column::Real(vec![1.0])));
        let objects = |value: Datum| Column::Objects(vec![value, text("x")]);
        assert!(objects(Datum::Whole(1)).equals(&objects(Datum::Real(1.0))));
        assert!(objects(Datum::Truth(true)).equals(&objects(Datum::Whole(1))));
        assert!(!objects(text("1")).equals(&objects(Datum::Whole(1))));
    }

    #[test]
    fn rounding_is_numpy_s() {
        let rounded = Column::Real(vec![1.000_05, 2.5, f64::NAN, 0.125]).rounded(4);
        assert!(rounded.equals(&Column::Real(vec![1.0001, 2.5, f64::NAN, 0.125])));
        assert!(Column::Real(vec![0.125]).rounded(2).equals(&Column::Real(vec![0.12])));
    }
}
