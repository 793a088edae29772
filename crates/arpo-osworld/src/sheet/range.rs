//! Cell coordinates and ranges: `B3`, `A1:C4`, several of them.

use crate::error::MetricError;

/// The position of a cell, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellPosition {
    /// Row.
    pub row: u32,
    /// Column.
    pub column: u32,
}

const MAX_ROW: u32 = 1_048_576;
const MAX_COLUMN: u32 = 16_384;

impl CellPosition {
    /// Reads `B3` or `$B$3`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.replace('$', "");
        let digits = text.find(|letter: char| letter.is_ascii_digit())?;
        let column = column_number(&text[..digits])?;
        let row: u32 = text[digits..].parse().ok()?;
        (1..=MAX_ROW).contains(&row).then_some(Self { row, column })
    }

    /// As a spreadsheet writes it.
    pub fn name(self) -> String {
        format!("{}{}", column_letters(self.column), self.row)
    }
}

/// `A` is 1, `AA` is 27.
pub fn column_number(letters: &str) -> Option<u32> {
    if letters.is_empty() || letters.len() > 3 {
        return None;
    }
    let mut number = 0;
    for letter in letters.chars() {
        let digit = letter.to_ascii_uppercase();
        number = number * 26 + digit.is_ascii_uppercase().then(|| u32::from(digit) - u32::from('A') + 1)?;
    }
    (number <= MAX_COLUMN).then_some(number)
}

/// 1 is `A`, 27 is `AA`.
pub fn column_letters(mut number: u32) -> String {
    let mut letters = Vec::new();
    while number > 0 {
        number -= 1;
        letters.push(char::from(b'A' + (number % 26) as u8));
        number /= 26;
    }
    letters.iter().rev().collect()
}

/// A rectangle of cells, both corners in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellRange {
    /// Top left.
    pub from: CellPosition,
    /// Bottom right.
    pub to: CellPosition,
}

impl CellRange {
    /// Reads `A1:C4`, `A1`, `A:C` or `1:4`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.rsplit_once('!').map_or(text, |(_, range)| range).replace('$', "");
        let (from, to) = text.split_once(':').unwrap_or((&text, &text));
        if let (Some(from), Some(to)) = (CellPosition::parse(from), CellPosition::parse(to)) {
            return (from.row <= to.row && from.column <= to.column).then_some(Self { from, to });
        }
        if let (Some(first), Some(last)) = (column_number(from), column_number(to)) {
            let (from, to) =
                (CellPosition { row: 1, column: first }, CellPosition { row: MAX_ROW, column: last });
            return Some(Self { from, to });
        }
        let (first, last) = (from.parse().ok()?, to.parse().ok()?);
        Some(Self {
            from: CellPosition { row: first, column: 1 },
            to: CellPosition { row: last, column: MAX_COLUMN },
        })
    }

    /// Whether a cell is in it.
    pub fn has(&self, position: CellPosition) -> bool {
        (self.from.row..=self.to.row).contains(&position.row)
            && (self.from.column..=self.to.column).contains(&position.column)
    }

    /// How many cells it has.
    pub fn count(&self) -> u64 {
        u64::from(self.to.row - self.from.row + 1) * u64::from(self.to.column - self.from.column + 1)
    }

    /// Its cells, row by row.
    pub fn cells(&self) -> impl Iterator<Item = CellPosition> + use<> {
        let range = *self;
        (range.from.row..=range.to.row).flat_map(move |row| {
            (range.from.column..=range.to.column).map(move |column| CellPosition { row, column })
        })
    }
}

/// Several ranges, as openpyxl's `MultiCellRange`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranges(pub Vec<CellRange>);

impl Ranges {
    /// Reads ranges with blanks between them.
    pub fn parse(text: &str) -> Result<Self, MetricError> {
        let one = |part: &str| {
            CellRange::parse(part)
                .ok_or_else(|| MetricError::raises(format!("{part:?} is not a range of cells")))
        };
        text.split_whitespace().map(one).collect::<Result<_, _>>().map(Self)
    }

    /// Whether each of the other's ranges lies within one of these.
    pub fn hold(&self, other: &Self) -> bool {
        let within =
            |inner: &CellRange| self.0.iter().any(|outer| outer.has(inner.from) && outer.has(inner.to));
        other.0.iter().all(within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_read_and_list() {
        let range = CellRange::parse("Sheet1!$B$2:C3").unwrap();
        let names: Vec<String> = range.cells().map(CellPosition::name).collect();
        assert_eq!(names, ["B2", "C2", "B3", "C3"]);
        assert!(CellRange::parse("C3:B2").is_none());
        assert!(CellRange::parse("").is_none());
        assert_eq!(CellRange::parse("A:C").unwrap().to.row, MAX_ROW);
        assert!(Ranges::parse("A1:B2 ?").is_err());
    }

    proptest! {
        #[test]
        fn letters_and_numbers_agree(number in 1_u32..=MAX_COLUMN) {
            prop_assert_eq!(column_number(&column_letters(number)), Some(number));
        }

        #[test]
        fn nothing_panics(text in "[A-Z$0-9:! ]{0,12}") {
            let _ = CellRange::parse(&text);
        }
    }
}
