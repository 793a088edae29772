//! Regular expressions as Python's `re` reads them, with a limit on backtracking.
//!
//! Patterns come from task files and texts from the guest; neither may cause unbounded backtracking.

use crate::error::MetricError;
use fancy_regex::{Regex, RegexBuilder};

const BACKTRACKING_STEPS: usize = 2_000_000;

/// A compiled pattern.
pub struct Pattern(Regex);

impl Pattern {
    /// Compiles a pattern with flags named as in Python: `S`, `DOTALL`, `I`, ...
    pub fn new(pattern: &str, flags: &[&str]) -> Result<Self, MetricError> {
        let mut letters = String::new();
        for flag in flags {
            letters.push(match *flag {
                "I" | "IGNORECASE" => 'i',
                "S" | "DOTALL" => 's',
                "M" | "MULTILINE" => 'm',
                "X" | "VERBOSE" => 'x',
                "A" | "ASCII" | "U" | "UNICODE" => continue,
                other => return Err(MetricError::raises(format!("re has no flag {other}"))),
            });
        }
        let prefix = if letters.is_empty() { String::new() } else { format!("(?{letters})") };
        let text = prefix + &translated(pattern, letters.contains('m'));
        let built = RegexBuilder::new(&text).backtrack_limit(BACKTRACKING_STEPS).build();
        built.map(Self).map_err(|error| MetricError::raises(format!("pattern {pattern:?}: {error}")))
    }

    /// Whether it matches anywhere.
    pub fn is_in(&self, text: &str) -> Result<bool, MetricError> {
        self.0
            .is_match(text)
            .map_err(|error| MetricError::raises(format!("pattern {}: {error}", self.0.as_str())))
    }
}

/// Python's `$` also matches before a last line end, and its `\Z` only at the very end.
fn translated(pattern: &str, multiline: bool) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut in_class = false;
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('Z') if !in_class => out.push_str("\\z"),
                Some(escaped) => out.extend(['\\', escaped]),
                None => out.push('\\'),
            },
            '[' if !in_class => {
                in_class = true;
                out.push('[');
            }
            '[' => out.push_str("\\["),
            ']' if in_class && !out.ends_with('[') && !out.ends_with("[^") => {
                in_class = false;
                out.push(']');
            }
            ']' if in_class => out.push_str("\\]"),
            '$' if !in_class && !multiline => out.push_str("(?=\\n?\\z)"),
            other => out.push(other),
        }
    }
    out
}

/// Python's `re.search(pattern, text) is not None`.
pub fn found(pattern: &str, text: &str) -> Result<bool, MetricError> {
    Pattern::new(pattern, &[])?.is_in(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_the_task_files_mean_the_same() {
        assert!(found(r"\bCOMPANY/?(?!\.msf)", "COMPANY/\n").unwrap());
        assert!(!found(r"^COMPANY(?!\.msf)", "COMPANY.msf\n").unwrap());
        assert!(found(r"^chrome://settings/appearance/?$", "chrome://settings/appearance\n").unwrap());
        assert!(found(r"[[]a[]]", "[a]").unwrap());
    }

    #[test]
    fn flags_are_python_s() {
        assert!(Pattern::new("a.b", &["S"]).unwrap().is_in("a\nb").unwrap());
        assert!(!Pattern::new("a.b", &[]).unwrap().is_in("a\nb").unwrap());
        assert!(Pattern::new("a", &["NONE"]).is_err());
    }

    #[test]
    fn a_runaway_pattern_is_an_error() {
        let text = "a".repeat(64) + "!";
        assert!(found(r"(?=(a+)+$)(a+)+\1$", &text).is_err() || !found(r"(a+)+$", &text).unwrap());
    }
}
