//! What may change when a supervised run is resumed: not what it learns to read, and not the model.

use super::{Precision, Reading, SupervisedOptions};
use crate::run::folder::{ConfigChange, config_changes};

/// Keys, and sections with a trailing `.`, that stay: the tokenizer was made for them, or the phases before would be others.
const FIXED: [&str; 6] = ["suite", "family", "model", "dimensions", "reading.", "letter_updates"];

/// How options differ from those that a run has stored; an error if they differ in what stays. A run from before some options
/// was trained without what they are about.
pub fn changes(stored: &str, options: &SupervisedOptions) -> Result<Vec<ConfigChange>, String> {
    let mut was = stored
        .parse::<toml::Table>()
        .map_err(|error| format!("its config.toml cannot be read: {}", error.message()))?;
    let before = SupervisedOptions {
        reading: Reading::NONE,
        precision: Precision::F32,
        cool_down: 0,
        letter_updates: 0,
        ..options.clone()
    };
    for (key, value) in before.to_toml().parse::<toml::Table>().unwrap_or_default() {
        if ["reading", "precision", "cool_down", "letter_updates"].contains(&key.as_str()) {
            was.entry(key).or_insert(value);
        }
    }
    // these are younger than the rest of the section
    if let Some(toml::Value::Table(reading)) = was.get_mut("reading") {
        reading.entry("composed").or_insert(toml::Value::Float(Reading::NONE.composed));
        reading.entry("spelled_names").or_insert(toml::Value::Boolean(Reading::NONE.spelled_names));
    }
    let was = toml::to_string(&was).map_err(|error| error.to_string())?;
    let changes = config_changes(&was, &options.to_toml());
    let is_fixed = |change: &&ConfigChange| FIXED.iter().any(|fixed| change.key.starts_with(*fixed));
    let refused: Vec<String> = changes.iter().filter(is_fixed).map(ConfigChange::description).collect();
    if refused.is_empty() { Ok(changes) } else { Err(refused.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervised::test_options;

    fn options(reading: Reading, precision: Precision) -> SupervisedOptions {
        SupervisedOptions { precision, ..test_options(reading) }
    }

    #[test]
    fn the_same_options_change_nothing() {
        let options = options(Reading::default(), Precision::Bf16);
        assert_eq!(changes(&options.to_toml(), &options), Ok(vec![]));
    }

    #[test]
    fn more_updates_are_a_change_and_other_reading_is_refused() {
        let begun = options(Reading::default(), Precision::F32);
        let longer = SupervisedOptions { updates: 9, ..begun.clone() };
        let made = changes(&begun.to_toml(), &longer).unwrap();
        assert_eq!(made.iter().map(ConfigChange::description).collect::<Vec<_>>(), ["`updates` = 9, was 2"]);
        let joined = Reading { separate_spaces: false, ..Reading::default() };
        let refused = changes(&begun.to_toml(), &options(joined, Precision::F32)).unwrap_err();
        assert_eq!(refused, "`reading.separate_spaces` = false, was true");
        let other = SupervisedOptions { model: Some("pocket".into()), ..begun.clone() };
        let refused = changes(&begun.to_toml(), &other).unwrap_err();
        assert_eq!(refused, "`model` = \"pocket\", was nothing");
    }

    #[test]
    fn a_run_from_before_reading_was_trained_without() {
        let old = options(Reading::NONE, Precision::F32);
        let mut stored: toml::Table = old.to_toml().parse().unwrap();
        stored.remove("reading");
        stored.remove("precision");
        let stored = toml::to_string(&stored).unwrap();
        assert_eq!(changes(&stored, &old), Ok(vec![]));
        let refused = changes(&stored, &options(Reading::default(), Precision::F32)).unwrap_err();
        assert!(refused.contains("`reading.question_steps` = nothing, was 3"), "{refused}");
        let faster = changes(&stored, &options(Reading::NONE, Precision::Bf16)).unwrap();
        assert_eq!(faster.len(), 1);
    }

    #[test]
    fn a_run_from_before_letters_had_none() {
        let old = options(Reading::default(), Precision::F32);
        let mut stored: toml::Table = old.to_toml().parse().unwrap();
        assert!(stored.remove("letter_updates").is_some());
        let stored = toml::to_string(&stored).unwrap();
        assert_eq!(changes(&stored, &old), Ok(vec![]));
        let refused = changes(&stored, &SupervisedOptions { letter_updates: 200, ..old }).unwrap_err();
        assert_eq!(refused, "`letter_updates` = 200, was 0");
    }

    #[test]
    fn a_run_from_before_composed_tasks_and_cool_down_had_neither() {
        let old = options(Reading { composed: 0.0, ..Reading::default() }, Precision::Bf16);
        let mut stored: toml::Table = old.to_toml().parse().unwrap();
        assert!(stored.remove("cool_down").is_some());
        assert!(stored["reading"].as_table_mut().unwrap().remove("composed").is_some());
        let stored = toml::to_string(&stored).unwrap();
        assert_eq!(changes(&stored, &old), Ok(vec![]));
        let refused = changes(&stored, &options(Reading::default(), Precision::Bf16)).unwrap_err();
        assert_eq!(refused, "`reading.composed` = 0.3, was 0.0");
        let mut older: toml::Table = stored.parse().unwrap();
        assert!(older["reading"].as_table_mut().unwrap().remove("spelled_names").is_some());
        let refused = changes(&toml::to_string(&older).unwrap(), &old).unwrap_err();
        assert_eq!(refused, "`reading.spelled_names` = true, was false");
        let cooling = changes(&stored, &SupervisedOptions { cool_down: 7, ..old }).unwrap();
        assert_eq!(
            cooling.iter().map(ConfigChange::description).collect::<Vec<_>>(),
            ["`cool_down` = 7, was 0"]
        );
    }
}
