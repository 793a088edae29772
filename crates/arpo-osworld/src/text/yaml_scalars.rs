//! The scalars of YAML 1.1 without quotes, as `PyYAML` resolves them.

use super::yaml::{MERGE, VALUE};
use crate::error::MetricError;
use jiff::civil::Date;
use serde_json::Value;
use std::ops::RangeInclusive;

/// The value of a scalar without quotes. One that looks like a date and is none is an error.
pub(super) fn plain(text: &str) -> Result<Value, MetricError> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Ok(Value::Bool(true));
        }
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Ok(Value::Bool(false));
        }
        "<<" => return Ok(MERGE.into()),
        "=" => return Ok(VALUE.into()),
        _ => {}
    }
    let (sign, bare) = match text.as_bytes()[0] {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    if matches!(bare, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Ok(Value::String(format!("\0{text}")));
    }
    match is_real_time(text) {
        Some(true) => return Ok(Value::String(format!("\0{text}"))),
        Some(false) => return Err(MetricError::raises(format!("{text} is in no calendar"))),
        None => {}
    }
    if let Some(whole) = whole(bare) {
        let signed = whole.checked_mul(sign).filter(|number| i64::try_from(*number).is_ok());
        return Ok(signed
            .map_or_else(|| Value::from(whole as f64 * sign as f64), |number| Value::from(number as i64)));
    }
    let number = float(text, bare).or_else(|| Some(sixtieths(bare)? * sign as f64));
    Ok(number.map_or_else(|| text.into(), Value::from))
}

fn whole(bare: &str) -> Option<i128> {
    let digits = |text: &str, radix: u32| {
        let is_number =
            !text.is_empty() && text.chars().all(|letter| letter == '_' || letter.is_digit(radix));
        is_number.then(|| i128::from_str_radix(&text.replace('_', ""), radix).ok()).flatten()
    };
    let (first, rest) = bare.split_at_checked(1)?;
    match (first, rest.as_bytes().first()) {
        ("0", None) => Some(0),
        ("0", Some(b'b')) => digits(&rest[1..], 2),
        ("0", Some(b'x')) => digits(&rest[1..], 16),
        ("0", Some(_)) => digits(rest, 8),
        _ if !first.starts_with(|letter: char| letter.is_ascii_digit()) => None,
        _ => {
            let mut parts = bare.split(':');
            let hours = digits(parts.next()?, 10)?;
            parts.try_fold(hours, |sum, part| {
                let part: i128 = part.parse().ok().filter(|_| is_sixtieth(part))?;
                sum.checked_mul(60)?.checked_add(part)
            })
        }
    }
}

fn is_sixtieth(part: &str) -> bool {
    (1..=2).contains(&part.len())
        && part.parse::<u8>().is_ok_and(|number| number < 60)
        && !part.starts_with('+')
}

/// A number with a point; its exponent needs a sign, and one that begins with the point has none.
fn float(text: &str, bare: &str) -> Option<f64> {
    let (number, exponent) = bare.split_once(['e', 'E']).map_or((bare, None), |(a, b)| (a, Some(b)));
    let is_exponent = |exponent: &str| {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let (before, after) = number.split_once('.')?;
    let is_number = |part: &str| part.bytes().all(|byte| byte == b'_' || byte.is_ascii_digit());
    let starts = |part: &str| part.starts_with(|letter: char| letter.is_ascii_digit());
    let is_whole = is_number(before) && is_number(after) && exponent.is_none_or(is_exponent);
    let is_float = is_whole && (starts(before) || (before.is_empty() && starts(after) && text == bare));
    is_float.then(|| text.replace('_', "").parse().ok()).flatten()
}

/// A number with a point in sixtieths: `1:30.5` is 90.5.
fn sixtieths(bare: &str) -> Option<f64> {
    let (whole, after) = bare.split_once('.')?;
    let (first, rest) = whole.split_once(':')?;
    let is_number = |part: &str| part.bytes().all(|byte| byte == b'_' || byte.is_ascii_digit());
    let is_first = is_number(first) && first.starts_with(|letter: char| letter.is_ascii_digit());
    if !is_first || !is_number(after) || !rest.split(':').all(is_sixtieth) {
        return None;
    }
    let bare = bare.replace('_', "");
    let parts: Vec<f64> = bare.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    // from the smallest on, as the original adds them
    let (sum, _) = parts.iter().rev().fold((0.0, 1.0), |(sum, unit), part| (sum + part * unit, unit * 60.0));
    Some(sum)
}

/// Of a date, alone or with the time of day and a zone: whether there is such a day, time and zone. Of anything else, nothing.
fn is_real_time(text: &str) -> Option<bool> {
    let (date, rest) = split_after(text, '-');
    if rest.is_empty() {
        return numbers(date, '-', [4..=4, 2..=2, 2..=2]).map(is_day);
    }
    let day = numbers(date, '-', [4..=4, 1..=2, 1..=2])?;
    let clock = match rest.strip_prefix(['T', 't']) {
        Some(clock) => clock,
        None => rest.strip_prefix([' ', '\t'])?.trim_start_matches([' ', '\t']),
    };
    let (clock, rest) = split_after(clock, ':');
    let [hours, minutes, seconds] = numbers(clock, ':', [1..=2, 2..=2, 2..=2])?;
    let rest = rest
        .strip_prefix('.')
        .map_or(rest, |fraction| fraction.trim_start_matches(|letter: char| letter.is_ascii_digit()));
    let is_zone = is_real_zone(rest)?;
    Some(is_day(day) && hours < 24 && minutes < 60 && seconds < 60 && is_zone)
}

fn is_day([year, month, day]: [i16; 3]) -> bool {
    year > 0 && Date::new(year, month as i8, day as i8).is_ok()
}

/// Of nothing, `Z` or hours and minutes with a sign: whether they are less than a day.
fn is_real_zone(text: &str) -> Option<bool> {
    let zone = text.trim_start_matches([' ', '\t']);
    if text.is_empty() || zone == "Z" {
        return Some(true);
    }
    let offset = zone.strip_prefix(['-', '+'])?;
    let (hours, minutes) = offset.split_once(':').unwrap_or((offset, "00"));
    let ([hours], [minutes]) = (numbers(hours, ':', [1..=2])?, numbers(minutes, ':', [2..=2])?);
    Some(hours * 60 + minutes < 24 * 60)
}

/// The digits and separators that a text begins with, and the rest.
fn split_after(text: &str, separator: char) -> (&str, &str) {
    let ends = |letter: char| !letter.is_ascii_digit() && letter != separator;
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

/// Numbers of so many digits each, with separators between them.
fn numbers<const N: usize>(
    text: &str,
    separator: char,
    lengths: [RangeInclusive<usize>; N],
) -> Option<[i16; N]> {
    let mut parts = text.split(separator);
    let mut found = [0; N];
    for (one, length) in found.iter_mut().zip(lengths) {
        let part = parts.next()?;
        let is_number = length.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        *one = part.parse().ok().filter(|_| is_number)?;
    }
    parts.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `PyYAML` 6.0.3: `safe_load`.
    #[test]
    fn sixtieths_may_have_a_point() {
        for (text, wanted) in [
            ("1:30.5", 90.5),
            ("-1:30.5", -90.5),
            ("+1:30.5", 90.5),
            ("1:30:15.25", 5415.25),
            ("1:30.", 90.0),
            ("1_0:30.5", 630.5),
            ("1:30.5_1", 90.51),
            ("1:5.5", 65.5),
            ("190:20:30.15", 685_230.15),
        ] {
            assert_eq!(plain(text).unwrap(), wanted, "{text}");
        }
        for text in ["1:60.5", "1:.5", ":30.5", "1:_3.5", "1:+3.5", "1:30.5:2"] {
            assert_eq!(plain(text).unwrap(), text);
        }
    }

    #[test]
    fn dates_are_days_of_the_calendar() {
        for text in [
            "0001-01-01",
            "2020-02-29",
            "2001-12-14T21:59:43Z",
            "2001-12-14t21:59:43",
            "2001-12-14 21:59:43.10 -05:00",
            "2001-12-14 21:59:43+1",
            "2001-12-14 21:59:43.",
            "2001-1-1 1:02:03",
        ] {
            assert_eq!(plain(text).unwrap(), format!("\0{text}"));
        }
        for text in [
            "2020-13-45",
            "2020-02-30",
            "2020-00-01",
            "0000-01-01",
            "2001-12-14 25:00:00",
            "2001-12-14 21:60:00",
            "2001-12-14 21:59:61",
            "2001-12-14 21:59:43 -25:00",
        ] {
            assert!(plain(text).is_err(), "{text}");
        }
        for text in ["2001-12-14 1:2:3", "2001-12-14 21:59:43garbage", "2020-1-2", "2020-01-02x"] {
            assert_eq!(plain(text).unwrap(), text);
        }
    }
}
