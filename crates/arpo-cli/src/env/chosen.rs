//! Which tasks are meant: the listed ones or those of the user's files; and one of them, set up on a screen.

use super::{deadline, one_of};
use crate::Failure;
use arpo_core::task::Task;
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::environment::{Environment, Screen};
use arpo_env::evaluator::Evaluator;
use arpo_env::look::{Font, Theme};
use arpo_env::tasks::{Part, Suite, generated, own};
use clap::Args;
use std::path::PathBuf;

/// Names that are offered for one that does not exist.
const OFFERED_NAMES: usize = 3;

/// Where tasks come from.
#[derive(Args)]
pub(super) struct Source {
    /// Only tasks of this suite; the screen for tasks of your own (pocket, if not given)
    #[arg(long, value_parser = one_of(&Suite::ALL, Suite::key))]
    suite: Option<Suite>,
    /// Tasks of your own: a JSON file, or a folder of them
    #[arg(long, value_name = "PATH")]
    tasks: Option<PathBuf>,
}

/// A task and where it is listed, or whose templates it is of; own tasks are of neither.
pub(super) struct Chosen {
    pub(super) task: Task,
    pub(super) listed: Option<(Suite, Part)>,
}

impl Source {
    /// All tasks that are meant, of one part or both. Own tasks have been tried: they can be set up and judged.
    pub(super) fn all(&self, part: Option<Part>) -> Result<Vec<Chosen>, Failure> {
        if let Some(path) = &self.tasks {
            let tasks = own::read(path, self.own_suite().screen())
                .map_err(|problem| Failure::Usage(format!("--tasks {problem}")))?;
            return Ok(tasks.into_iter().map(|task| Chosen { task, listed: None }).collect());
        }
        let mut chosen = Vec::new();
        for suite in Suite::ALL.into_iter().filter(|suite| self.suite.is_none_or(|only| only == *suite)) {
            for part in Part::ALL.into_iter().filter(|each| part.is_none_or(|only| only == *each)) {
                let listed = Some((suite, part));
                chosen.extend(suite.tasks(part).iter().map(|task| Chosen { task: task.clone(), listed }));
            }
        }
        Ok(chosen)
    }

    fn own_suite(&self) -> Suite {
        self.suite.unwrap_or(Suite::Pocket)
    }

    fn one(&self, id: &str) -> Result<Chosen, Failure> {
        let mut all = self.all(None)?;
        if let Some(place) = all.iter().position(|chosen| chosen.task.id.as_str() == id) {
            return Ok(all.swap_remove(place));
        }
        if let Some(chosen) = self.generated(id) {
            return Ok(chosen);
        }
        let names: Vec<&str> = all.iter().map(|chosen| chosen.task.id.as_str()).collect();
        let hint = match near(id, &names).as_slice() {
            [] => "there are none".to_owned(),
            [others @ .., last] if !others.is_empty() => {
                format!("did you mean {} or {last}?", others.join(", "))
            }
            one => format!("did you mean {}?", one.join("")),
        };
        Err(Failure::Usage(format!("--task {id}: there is no such task; {hint}")))
    }

    /// A task that is in no list but follows from its name: generated, or unseen.
    fn generated(&self, id: &str) -> Option<Chosen> {
        let (suite, task) = generated::find(id)?;
        let meant = self.tasks.is_none() && self.suite.is_none_or(|only| only == suite);
        meant.then(|| Chosen { task, listed: Some((suite, Part::Train)) })
    }
}

/// The names most like one that does not exist: those it is a part of, then those the fewest letters away.
fn near<'a>(name: &str, names: &[&'a str]) -> Vec<&'a str> {
    let mut near = names.to_vec();
    near.sort_by_cached_key(|known| (!known.contains(name), strsim::damerau_levenshtein(known, name)));
    near.truncate(OFFERED_NAMES);
    near
}

/// One task on a screen.
#[derive(Args)]
pub(super) struct EpisodeArguments {
    /// The task, as `arpo env list` names it, or a generated one, as metrics name it
    #[arg(long, value_name = "ID")]
    task: String,
    #[command(flatten)]
    source: Source,
    /// Decides what the task leaves open: names, places, colours
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) seed: u64,
    /// Size of the screen in pixels, instead of the suite's
    #[arg(long, num_args = 2, value_names = ["WIDTH", "HEIGHT"])]
    size: Option<Vec<u32>>,
    /// Colours of the screen, instead of the suite's
    #[arg(long, value_parser = one_of(&Theme::ALL, Theme::key))]
    theme: Option<Theme>,
    /// Font of a desktop screen, instead of the seed's
    #[arg(long, value_parser = one_of(&Font::ALL, Font::key))]
    font: Option<Font>,
    /// The same order and places whatever the seed
    #[arg(long)]
    no_jitter: bool,
}

/// An episode that has begun.
pub(super) struct Begun {
    pub(super) task: Task,
    pub(super) environment: EmbeddedDesktop,
    pub(super) screen: Screen,
}

impl EpisodeArguments {
    /// Sets the task up.
    pub(super) fn begin(&self) -> Result<Begun, Failure> {
        let Chosen { task, listed } = self.source.one(&self.task)?;
        let mut options = listed.map_or(self.source.own_suite(), |(suite, _)| suite).screen();
        if let Some(&[width, height]) = self.size.as_deref() {
            (options.width, options.height) = (width, height);
        }
        options.theme = self.theme.or(options.theme);
        options.font = self.font.or(options.font);
        options.jitter &= !self.no_jitter;
        options.check().map_err(|reason| Failure::Usage(format!("--size: {reason}")))?;
        let mut environment = EmbeddedDesktop::new(options).map_err(Failure::failed)?;
        let screen = environment.reset(&task, self.seed, deadline()).map_err(Failure::failed)?;
        Ok(Begun { task, environment, screen })
    }
}

impl Begun {
    /// What the person sees first: the task's name, what it asks, the screen.
    pub(super) fn introduction(&self, seed: u64) -> String {
        let Task { id, instruction, .. } = &self.task;
        let (width, height) = self.screen.image.dimensions();
        let theme = self.environment.desktop().map_or("", |desktop| desktop.look.theme.key());
        format!("{id}, seed {seed}, {width}x{height} pixels, {theme}\n{instruction}\n")
    }
}

impl Chosen {
    /// True where the right answer is to call the user.
    pub(super) fn is_infeasible(&self) -> bool {
        Evaluator::of(&self.task).is_ok_and(|evaluator| evaluator.infeasible)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_hold_the_word_come_first() {
        let names =
            ["pocket-mail-write-0", "pocket-files-rename-0", "pocket-files-rename-10", "pocket-shop-0"];
        assert_eq!(near("files-rename", &names)[..2], ["pocket-files-rename-0", "pocket-files-rename-10"]);
        assert_eq!(near("pocket-shpo-0", &names)[0], "pocket-shop-0");
        assert!(near("x", &[]).is_empty());
    }
}
