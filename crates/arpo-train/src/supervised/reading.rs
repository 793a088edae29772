//! What makes a base model read instead of knowing the suite by heart: invented names, auxiliary templates, other wordings,
//! questions about screens deep inside an episode, and a tokenizer that writes a name the same way wherever it stands.

use super::{SupervisedOptions, application};
use crate::TrainError;
use arpo_core::random::{Purpose, stream};
use arpo_core::task::Task;
use arpo_env::tasks::Variation;
use arpo_env::tasks::invented::TRAINING_DICTIONARIES;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};
use serde::Serialize;

/// How demonstrations are varied.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Reading {
    /// Share of demonstrations with invented names.
    pub invented: f64,
    /// Share of demonstrations of two training tasks in one.
    pub composed: f64,
    /// Share of the other demonstrations that are of auxiliary templates.
    pub auxiliary: f64,
    /// Share of demonstrations with other words in the instruction or in the questions.
    pub reworded: f64,
    /// Most actions of the oracle before the screen that questions are about; without a limit, every screen of its episode is
    /// equally likely.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question_steps: Option<usize>,
    /// A space is a token of its own: a name in an instruction then has the tokens that it is typed with. Otherwise a word
    /// includes the space before it, and how each name is copied has to be learnt by itself.
    pub separate_spaces: bool,
    /// Names are spelled letter by letter, other words are tokens, and grounding questions are about names first. Otherwise
    /// names are cut into the parts that occur often, and a model learns the pictures of whole names instead of letters.
    pub spelled_names: bool,
}

impl Reading {
    /// Listed names, training templates and their own words only: how the first base models were trained.
    pub const NONE: Self = Self {
        invented: 0.0,
        composed: 0.0,
        auxiliary: 0.0,
        reworded: 0.0,
        question_steps: Some(3),
        separate_spaces: false,
        spelled_names: false,
    };

    /// An error if a share is not between 0 and 1.
    pub(super) fn check(&self) -> Result<(), String> {
        for (name, share) in [
            ("invented-names", self.invented),
            ("composed", self.composed),
            ("auxiliary", self.auxiliary),
            ("reworded", self.reworded),
        ] {
            if !(0.0..=1.0).contains(&share) {
                return Err(format!("--{name} {share}: expected a number from 0 to 1"));
            }
        }
        Ok(())
    }
}

impl Default for Reading {
    fn default() -> Self {
        Self {
            invented: 0.5,
            composed: 0.3,
            auxiliary: 0.4,
            reworded: 0.3,
            question_steps: None,
            separate_spaces: true,
            spelled_names: true,
        }
    }
}

/// A task to demonstrate.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Lesson {
    pub(crate) task: Task,
    /// Whether questions about its screens are in other words, too.
    pub(crate) reworded: bool,
}

/// Pairs of templates that are drawn for a task of two, until one can be done in one world.
const PAIRS: usize = 64;

/// The lesson of a number: templates in turn, varied at random.
pub(crate) fn lesson(options: &SupervisedOptions, number: u64) -> Result<Lesson, TrainError> {
    let Reading { invented, composed, auxiliary, reworded, .. } = options.reading;
    // one draw for each, so that a share changes nothing but what it is about
    let mut rng = stream(number, Purpose::Tasks, 3, options.seed);
    let mut is_drawn = |share: f64| rng.random_range(0.0..1.0) < share;
    let (is_invented, is_auxiliary, is_reworded) =
        (is_drawn(invented), is_drawn(auxiliary), is_drawn(reworded));
    let dictionary = rng.random_range(0..TRAINING_DICTIONARIES);
    let variation = Variation { dictionary: is_invented.then_some(dictionary), reworded: is_reworded };
    if rng.random_range(0.0..1.0) < composed
        && let Some(task) = composed_task(options, number, variation, &mut rng)
    {
        return Ok(Lesson { task, reworded: is_reworded });
    }
    let templates = if is_auxiliary { options.auxiliary_templates() } else { options.templates() };
    let template = &templates[(number % templates.len() as u64) as usize];
    let task = options.suite.varied_task_of(template, number, variation);
    let task = task.ok_or_else(|| {
        TrainError::Configuration(format!(
            "{template}: no template of that name has a task that is not listed"
        ))
    })?;
    Ok(Lesson { task, reworded: is_reworded })
}

/// Two training tasks in one, half of the time in the same application, else in two, if there are two. None if no pair that was
/// drawn can be done together.
fn composed_task(
    options: &SupervisedOptions,
    number: u64,
    variation: Variation,
    rng: &mut impl Rng,
) -> Option<Task> {
    let templates = options.templates();
    // once for all pairs: those in one application get in each other's way more often
    let is_same =
        rng.random_bool(0.5) || templates.iter().all(|name| application(name) == application(&templates[0]));
    (0..PAIRS).find_map(|_| {
        let first = templates.choose(rng)?;
        let second: Vec<&String> =
            templates.iter().filter(|name| (application(name) == application(first)) == is_same).collect();
        options.suite.composed_task_of([first, second.choose(rng)?], number, variation)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervised::test_options as options;
    use arpo_env::tasks::{Suite, is_same_task};
    use std::collections::BTreeMap;

    fn lessons(reading: Reading) -> Vec<Lesson> {
        let options = options(reading);
        (0..400).map(|number| lesson(&options, number).unwrap()).collect()
    }

    fn is_invented(lesson: &Lesson) -> bool {
        lesson.task.setup.to_string().contains("invented")
    }

    #[test]
    fn without_reading_they_are_the_further_tasks_of_the_templates_in_turn() {
        let templates = Suite::Pocket.templates();
        for (number, lesson) in lessons(Reading::NONE).into_iter().enumerate() {
            let template = &templates[number % templates.len()];
            let further = Suite::Pocket.further_task_of(template, number as u64).unwrap();
            assert!(is_same_task(&further, &lesson.task) && !lesson.reworded, "{number}");
        }
    }

    #[test]
    fn the_learning_rate_rises_and_falls() {
        let options =
            SupervisedOptions { updates: 10, warm_up: 4, cool_down: 3, ..options(Reading::default()) };
        let rates: Vec<f64> = (0..10).map(|number| options.rate(number) * 1e3).collect();
        assert_eq!(rates, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25]);
        let constant = SupervisedOptions { cool_down: 0, ..options };
        assert!((constant.rate(9) - constant.learning_rate).abs() < 1e-12);
    }

    #[test]
    fn shares_are_kept() {
        let lessons = lessons(Reading::default());
        let auxiliary = Suite::Pocket.auxiliary_templates();
        let is_auxiliary = |lesson: &Lesson| {
            auxiliary.iter().any(|name| lesson.task.id.as_str().contains(&format!("{name}-varied")))
        };
        let is_composed = |lesson: &Lesson| lesson.task.id.as_str().contains("-composed-");
        let share = |is: &dyn Fn(&Lesson) -> bool| {
            lessons.iter().filter(|lesson| is(lesson)).count() as f64 / lessons.len() as f64
        };
        let Reading { invented, composed, auxiliary, reworded, .. } = Reading::default();
        for (actual, wanted) in [
            (share(&is_invented), invented),
            (share(&is_composed), composed),
            (share(&is_auxiliary), (1.0 - composed) * auxiliary),
            (share(&|lesson| lesson.reworded), reworded),
        ] {
            assert!((actual - wanted).abs() < 0.08, "{actual} instead of {wanted}");
        }
    }

    /// Also if most templates are of one application, and always if all are.
    #[test]
    fn half_of_the_composed_tasks_are_in_one_application() {
        let names = Suite::Pocket.templates();
        let in_one = |lesson: &Lesson| {
            let id = lesson.task.id.as_str();
            let is_pair =
                |first: &String, second: &String| id.contains(&format!("-composed-{first}-and-{second}-"));
            names.iter().any(|first| {
                let mut same = names.iter().filter(|second| application(first) == application(second));
                same.any(|second| is_pair(first, second))
            })
        };
        let share = |weights: BTreeMap<String, u32>| {
            let reading = Reading { composed: 1.0, ..Reading::NONE };
            let options = SupervisedOptions { weights, ..options(reading) };
            let is_in_one = |number: &u64| in_one(&lesson(&options, *number).unwrap());
            (0..300).filter(is_in_one).count() as f64 / 300.0
        };
        let mostly = share([("files".to_owned(), 8)].into());
        assert!((mostly - 0.5).abs() < 0.1, "{mostly}");
        let others = names.iter().filter(|name| application(name) != "files");
        let only = share(others.map(|name| (application(name).to_owned(), 0)).collect());
        assert!(only > 0.9, "{only}");
    }

    #[test]
    fn applications_that_are_left_out_are_left_out_of_auxiliary_templates() {
        let options = SupervisedOptions {
            weights: [("files".to_owned(), 0), ("mail".to_owned(), 2)].into(),
            ..options(Reading::default())
        };
        let auxiliary = options.auxiliary_templates();
        assert!(auxiliary.iter().all(|name| !name.starts_with("files-")));
        assert_eq!(auxiliary.iter().filter(|name| *name == "mail-delete-sent").count(), 2);
    }

    #[test]
    fn templates_that_are_left_out_are_in_no_lesson() {
        let left_out = ["files-rename".to_owned(), "editor-new-note".to_owned()];
        let weights = left_out.iter().map(|name| (name.clone(), 0)).chain([("files".to_owned(), 2)]);
        let options = SupervisedOptions { weights: weights.collect(), ..options(Reading::default()) };
        assert_eq!(options.check(), Ok(()));
        let templates = options.templates();
        assert_eq!(templates.iter().filter(|name| *name == "files-move").count(), 2);
        let is_of = |id: &str, name: &str| {
            ["further", "varied", "and"].iter().any(|end| id.contains(&format!("-{name}-{end}-")))
                || id.contains(&format!("-and-{name}-"))
        };
        let ids: Vec<String> =
            (0..400).map(|number| lesson(&options, number).unwrap().task.id.to_string()).collect();
        assert!(ids.iter().any(|id| is_of(id, "files-move")), "{ids:?}");
        for name in &left_out {
            assert_eq!(ids.iter().find(|id| is_of(id, name)), None, "{name}");
        }
    }

    #[test]
    fn shares_are_between_0_and_1() {
        let reading = Reading { auxiliary: 1.5, ..Reading::default() };
        assert_eq!(reading.check(), Err("--auxiliary 1.5: expected a number from 0 to 1".into()));
        assert_eq!(Reading::default().check(), Ok(()));
    }
}
