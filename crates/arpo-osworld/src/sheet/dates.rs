//! Which numbers are dates, and which dates they are: openpyxl's rules.

const DAY_MS: i64 = 86_400_000;
/// Days from 1899-12-30, where serial numbers count from, to 1970-01-01; and from 1904-01-01.
const EPOCH_1900_DAYS: i64 = 25_569;
const EPOCH_1904_DAYS: i64 = 24_107;

/// A number with a date's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// A date and a time, in milliseconds since 1970.
    DateTime(i64),
    /// A time of day, in milliseconds since midnight.
    Time(i64),
    /// A span, in milliseconds.
    Span(i64),
}

/// Whether a number format shows a date: it has one of d m h y s outside quotes and brackets, and not after `_` or `\`.
/// Brackets of elapsed time stay, in small letters only, as does what is never closed.
pub fn is_date_format(format: &str) -> bool {
    let mut rest = format.split(';').next().unwrap_or_default();
    let mut before = ' ';
    while let Some(letter) = rest.chars().next() {
        let after = &rest[letter.len_utf8()..];
        let closing = match letter {
            '"' => after.find('"'),
            '[' => {
                after.find(']').filter(|end| !matches!(&after[..*end], "h" | "hh" | "m" | "mm" | "s" | "ss"))
            }
            _ => None,
        };
        if let Some(end) = closing {
            rest = &after[end + 1..];
            continue;
        }
        if "dmhysDMHYS".contains(letter) && !matches!(before, '_' | '\\') {
            return true;
        }
        (before, rest) = (letter, after);
    }
    false
}

/// Whether a date's format shows elapsed time: `[h]`, `[mm]`, `[s]`.
pub fn is_span_format(format: &str) -> bool {
    let format = format.split(';').next().unwrap_or_default();
    let mut rest = format;
    while let Some((_, after)) = rest.split_once('[') {
        let (inside, after) = after.split_once(']').unwrap_or((after, ""));
        if is_elapsed(inside) {
            return true;
        }
        rest = after;
    }
    false
}

fn is_elapsed(inside: &str) -> bool {
    matches!(inside.to_ascii_lowercase().as_str(), "h" | "hh" | "m" | "mm" | "s" | "ss")
}

/// The moment of a serial number. Below 60, the day is one later: 1900 was not a leap year, but serial numbers
/// count it as one. Times are rounded to milliseconds. None where the calendar ends.
pub fn moment(serial: f64, span: bool, since_1904: bool) -> Option<Moment> {
    if !serial.is_finite() || serial.abs() > 2_958_466.0 {
        return None;
    }
    if span {
        return Some(Moment::Span((serial * DAY_MS as f64).round() as i64));
    }
    let day = serial.floor();
    let within = ((serial - day) * DAY_MS as f64).round_ties_even() as i64;
    if (0.0..1.0).contains(&serial) && within < DAY_MS {
        return Some(Moment::Time(within));
    }
    let mut day = day as i64;
    if serial > 0.0 && serial < 60.0 && !since_1904 {
        day += 1;
    }
    let epoch = if since_1904 { EPOCH_1904_DAYS } else { EPOCH_1900_DAYS };
    Some(Moment::DateTime((day - epoch) * DAY_MS + within))
}

/// The format of a built-in number.
pub fn builtin_format(id: u32) -> Option<&'static str> {
    Some(match id {
        0 => "General",
        1 => "0",
        2 => "0.00",
        3 => "#,##0",
        4 => "#,##0.00",
        5 => "\"$\"#,##0_);(\"$\"#,##0)",
        6 => "\"$\"#,##0_);[Red](\"$\"#,##0)",
        7 => "\"$\"#,##0.00_);(\"$\"#,##0.00)",
        8 => "\"$\"#,##0.00_);[Red](\"$\"#,##0.00)",
        9 => "0%",
        10 => "0.00%",
        11 => "0.00E+00",
        12 => "# ?/?",
        13 => "# ??/??",
        14 => "mm-dd-yy",
        15 => "d-mmm-yy",
        16 => "d-mmm",
        17 => "mmm-yy",
        18 => "h:mm AM/PM",
        19 => "h:mm:ss AM/PM",
        20 => "h:mm",
        21 => "h:mm:ss",
        22 => "m/d/yy h:mm",
        37 => "#,##0_);(#,##0)",
        38 => "#,##0_);[Red](#,##0)",
        39 => "#,##0.00_);(#,##0.00)",
        40 => "#,##0.00_);[Red](#,##0.00)",
        41 => r#"_(* #,##0_);_(* \(#,##0\);_(* "-"_);_(@_)"#,
        42 => r#"_("$"* #,##0_);_("$"* \(#,##0\);_("$"* "-"_);_(@_)"#,
        43 => r#"_(* #,##0.00_);_(* \(#,##0.00\);_(* "-"??_);_(@_)"#,
        44 => r#"_("$"* #,##0.00_)_("$"* \(#,##0.00\)_("$"* "-"??_)_(@_)"#,
        45 => "mm:ss",
        46 => "[h]:mm:ss",
        47 => "mmss.0",
        48 => "##0.0E+0",
        49 => "@",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_of_dates_are_known() {
        for format in ["mm-dd-yy", "d-mmm", "h:mm", "[h]:mm:ss", "yyyy\\-mm", "[$-409]d/m;@"] {
            assert!(is_date_format(format), "{format}");
        }
        for format in
            ["General", "0.00", "#,##0", "[Red]0", "\"days\" 0", "0.00%", "@", "0_d", "\\d", "[HH]0"]
        {
            assert!(!is_date_format(format), "{format}");
        }
        assert!(is_span_format("[hh]:mm:ss") && !is_span_format("[Red]h:mm"));
    }

    #[test]
    fn serial_numbers_are_openpyxl_s_moments() {
        // openpyxl 3.1.5: from_excel of each.
        assert_eq!(moment(44_197.0, false, false), Some(Moment::DateTime(1_609_459_200_000)));
        assert_eq!(moment(0.5, false, false), Some(Moment::Time(43_200_000)));
        assert_eq!(moment(1.0, false, false), Some(Moment::DateTime(-2_208_988_800_000)));
        assert_eq!(moment(1.5, true, false), Some(Moment::Span(129_600_000)));
        assert_eq!(moment(1e300, false, false), None);
    }
}
