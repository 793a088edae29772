//! Rules as the task file gives them, and rules with a date that depends on today.

use super::fields::Fields;
use super::{Context, GetterEntry, getter};
use crate::error::GetterError;
use crate::guest::Command;
use crate::state::State;
use arpo_core::generation::Generation;
use jiff::ToSpan;
use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use serde_json::Value;

pub(super) const GETTERS: &[GetterEntry] = &[
    getter("rule", rule),
    getter("rule_relativeTime", rule_relative_time),
    getter("time_diff_range", time_diff_range),
];

fn rule(_: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    Ok(State::from(fields.value("rules")?.clone()))
}

fn time_diff_range(_: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    Ok(fields.get("diff_range_in_minutes").cloned().into())
}

/// The rule with its templates of dates filled in.
fn rule_relative_time(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    let mut rules = fields.value("rules")?.clone();
    let today = today(context, &rules)?;
    let word = |name: &str| rules["relativeTime"].get(name).and_then(Value::as_str).map(str::to_owned);
    let from = word("from").ok_or_else(|| fields.wrong("relativeTime.from is missing"))?;
    let unknown = |word: &str| GetterError::Raises(format!("relative time {word:?} is not known"));
    let first = from_day(&from, today).ok_or_else(|| unknown(&from))?;
    match word("to") {
        None => fill(&mut rules, &["time"], first),
        Some(to) => {
            let last = to_day(&to, &from, first, today).ok_or_else(|| unknown(&to))?;
            let is_split = |word: &str| word.ends_with(" split");
            fill(
                &mut rules,
                if is_split(&from) { &["puDay", "puMonth", "puYear"] } else { &["from"] },
                first,
            );
            fill(&mut rules, if is_split(&to) { &["doDay", "doMonth", "doYear"] } else { &["to"] }, last);
        }
    }
    Ok(State::Json(rules))
}

/// ARPO era: the host's date. Verified: the date in the rule's time zone, or else the guest's.
fn today(context: &Context<'_>, rules: &Value) -> Result<Date, GetterError> {
    if context.generation == Generation::ArpoEra {
        return Ok(context.now.date());
    }
    if let Some(zone) = rules["timezone"].as_str() {
        // An unknown zone is UTC, as in the original.
        let zone = TimeZone::get(zone).unwrap_or(TimeZone::UTC);
        return Ok(context.now.with_time_zone(zone).date());
    }
    let printed = context.guest.run(&Command::words(&["date", "+%Y-%m-%d"]))?.map(|output| output.stdout);
    let date = printed.and_then(|text| text.trim().parse().ok());
    Ok(date.unwrap_or_else(|| context.now.date()))
}

/// Days since Monday.
fn weekday(day: Date) -> i64 {
    i64::from(day.weekday().to_monday_zero_offset())
}

fn after(day: Date, days: i64) -> Option<Date> {
    day.checked_add(days.days()).ok()
}

fn next_month(today: Date, day: i8) -> Option<Date> {
    let first = today.first_of_month().checked_add(1.month()).ok()?;
    Date::new(first.year(), first.month(), day).ok()
}

/// The first Monday that many months later. The original counts months modulo twelve, so that December has none.
fn first_monday(today: Date, months: i8) -> Option<Date> {
    let year = if today.month() > 12 - months { today.year() + 1 } else { today.year() };
    let first = Date::new(year, (today.month() + months) % 12, 1).ok()?;
    first.nth_weekday_of_month(1, Weekday::Monday).ok()
}

fn from_day(word: &str, today: Date) -> Option<Date> {
    let now = weekday(today);
    match word {
        "tomorrow" => after(today, 1),
        "this month" => Some(today),
        "5th next month" => next_month(today, 5),
        "10th next month" => next_month(today, 10),
        "11th next month" => next_month(today, 11),
        "this Saturday" => after(today, 5 - now),
        "this Sunday" => after(today, 6 - now),
        "next Monday" | "next Monday split" => after(today, 7 - now),
        "next Friday" | "next Friday split" => after(today, if now < 4 { 4 - now } else { 11 - now }),
        "next Saturday" => after(today, if now < 5 { 5 - now } else { 12 - now }),
        "next Sunday" => after(today, if now < 6 { 6 - now } else { 7 }),
        "next week Friday" => after(today, 11 - now),
        "next week Saturday" => after(today, 12 - now),
        "next week Sunday" => after(today, 13 - now),
        "first monday four months later" => first_monday(today, 4),
        "first monday eight months later" => first_monday(today, 8),
        _ => None,
    }
}

/// The end of a span lies in the same week as its beginning.
fn to_day(word: &str, from: &str, first: Date, today: Date) -> Option<Date> {
    match (word, from) {
        ("next Friday" | "next Friday split", "next Monday" | "next Monday split") => after(first, 4),
        ("next Sunday", "next Friday" | "next Saturday")
        | ("next week Sunday", "next week Friday" | "next week Saturday") => after(first, 6 - weekday(first)),
        _ => from_day(word, today),
    }
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

fn fill(rules: &mut Value, keys: &[&str], day: Date) {
    for key in keys {
        if let Some(Value::String(template)) = rules["expected"].get_mut(*key) {
            *template = filled(template, day);
        }
    }
}

/// Each template once, as the original replaces them.
fn filled(template: &str, day: Date) -> String {
    let month = MONTHS[usize::from(day.month().unsigned_abs()) - 1];
    let name = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"][weekday(day) as usize];
    let parts = [
        ("{DoW}", name.to_owned()),
        ("{Month}", month[..3].to_owned()),
        ("{DayD}", day.day().to_string()),
        ("{Year}", day.year().to_string()),
        ("{Month0D}", format!("{:02}", day.month())),
        ("{month}", month.to_lowercase()),
        ("{MonthFull}", month.to_owned()),
        ("{Day0D}", format!("{:02}", day.day())),
        ("{MonthD}", day.month().to_string()),
    ];
    parts.iter().fold(template.to_owned(), |text, (from, to)| text.replacen(from, to, 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    #[test]
    fn words_are_days() {
        let thursday = date(2025, 5, 15);
        for (word, day) in [
            ("tomorrow", date(2025, 5, 16)),
            ("5th next month", date(2025, 6, 5)),
            ("this Saturday", date(2025, 5, 17)),
            ("next Monday", date(2025, 5, 19)),
            ("next Friday", date(2025, 5, 16)),
            ("next week Sunday", date(2025, 5, 25)),
            ("first monday four months later", date(2025, 9, 1)),
            ("first monday eight months later", date(2026, 1, 5)),
        ] {
            assert_eq!(from_day(word, thursday), Some(day), "{word}");
        }
        assert_eq!(from_day("next Friday", date(2025, 5, 16)), Some(date(2025, 5, 23)));
        assert_eq!(from_day("first monday four months later", date(2025, 8, 1)), None);
        let monday = from_day("next Monday", thursday).unwrap();
        assert_eq!(to_day("next Friday", "next Monday", monday, thursday), Some(date(2025, 5, 23)));
    }

    #[test]
    fn templates_are_filled_once() {
        let day = date(2025, 3, 5);
        assert_eq!(filled("{DoW}, {Month} {DayD}, {Year} {Year}", day), "Wed, Mar 5, 2025 {Year}");
        assert_eq!(filled("{month}/{MonthFull}/{Month0D}/{Day0D}/{MonthD}", day), "march/March/03/05/3");
    }
}
