//! Task selection: the listed tasks or those of the user's files; and one of them, set up on a screen.

use super::deadline;
use crate::Failure;
use crate::choices::one_of;
use arpo_core::task::Task;
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::environment::{Environment, Screen};
use arpo_env::evaluator::Evaluator;
use arpo_env::look::{Font, Theme};
use arpo_env::tasks::{Split, Suite, custom, generated};
use clap::Args;
use std::path::PathBuf;

/// Number of suggestions for an unknown task.
const SUGGESTIONS: usize = 3;

/// Where tasks come from.
#[derive(Args)]
pub(super) struct Source {
    /// Only tasks of this suite; for --tasks, the suite whose screen is used [default there: pocket]
    #[arg(long, value_parser = one_of(&Suite::ALL, Suite::key))]
    suite: Option<Suite>,
    /// Your own tasks: a JSON file, or a folder of them
    #[arg(long, value_name = "PATH")]
    tasks: Option<PathBuf>,
}

/// A task with its suite and split; tasks of the user's files have neither.
pub(super) struct SelectedTask {
    pub(super) task: Task,
    pub(super) listed: Option<(Suite, Split)>,
}

impl Source {
    /// All selected tasks, of one split or both. Tasks of the user's files have been set up and evaluated once.
    pub(super) fn all(&self, part: Option<Split>) -> Result<Vec<SelectedTask>, Failure> {
        if let Some(path) = &self.tasks {
            let tasks = custom::read(path, self.own_suite().screen())
                .map_err(|problem| Failure::Usage(format!("--tasks {problem}")))?;
            return Ok(tasks.into_iter().map(|task| SelectedTask { task, listed: None }).collect());
        }
        let mut selected = Vec::new();
        for suite in Suite::ALL.into_iter().filter(|suite| self.suite.is_none_or(|only| only == *suite)) {
            for part in Split::ALL.into_iter().filter(|each| part.is_none_or(|only| only == *each)) {
                let listed = Some((suite, part));
                selected
                    .extend(suite.tasks(part).iter().map(|task| SelectedTask { task: task.clone(), listed }));
            }
        }
        Ok(selected)
    }

    fn own_suite(&self) -> Suite {
        self.suite.unwrap_or(Suite::Pocket)
    }

    fn one(&self, id: &str) -> Result<SelectedTask, Failure> {
        let mut all = self.all(None)?;
        if let Some(index) = all.iter().position(|selected| selected.task.id.as_str() == id) {
            return Ok(all.swap_remove(index));
        }
        if let Some(selected) = self.generated(id) {
            return Ok(selected);
        }
        let names: Vec<&str> = all.iter().map(|selected| selected.task.id.as_str()).collect();
        let hint = match similar(id, &names).as_slice() {
            [] => "there are none".to_owned(),
            [others @ .., last] if !others.is_empty() => {
                format!("did you mean {} or {last}?", others.join(", "))
            }
            one => format!("did you mean {}?", one.join("")),
        };
        Err(Failure::Usage(format!("--task {id}: there is no such task; {hint}")))
    }

    /// A task that is not listed but follows from its name: generated, or unseen.
    fn generated(&self, id: &str) -> Option<SelectedTask> {
        let (suite, task) = generated::find(id)?;
        let matches = self.tasks.is_none() && self.suite.is_none_or(|only| only == suite);
        matches.then(|| SelectedTask { task, listed: Some((suite, Split::Train)) })
    }
}

/// The names most similar to an unknown one: those that contain it, then those with the smallest edit distance.
fn similar<'a>(name: &str, names: &[&'a str]) -> Vec<&'a str> {
    let mut similar = names.to_vec();
    similar.sort_by_cached_key(|known| (!known.contains(name), strsim::damerau_levenshtein(known, name)));
    similar.truncate(SUGGESTIONS);
    similar
}

/// One task, and its screen.
#[derive(Args)]
pub(super) struct EpisodeArguments {
    /// The task's id, as in `arpo env list`, or the id of a generated task, as in metrics
    #[arg(long, value_name = "ID")]
    task: String,
    #[command(flatten)]
    source: Source,
    /// Random seed for what the task leaves open: names, positions, colours
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) seed: u64,
    /// Screen size in pixels [default: the suite's]
    #[arg(long, num_args = 2, value_names = ["WIDTH", "HEIGHT"])]
    size: Option<Vec<u32>>,
    /// Colour theme [default: the suite's]
    #[arg(long, value_parser = one_of(&Theme::ALL, Theme::key))]
    theme: Option<Theme>,
    /// Font of a desktop screen [default: from the seed]
    #[arg(long, value_parser = one_of(&Font::ALL, Font::key))]
    font: Option<Font>,
    /// Do not vary order and positions with the seed
    #[arg(long)]
    no_jitter: bool,
}

/// An episode after its reset.
pub(super) struct StartedEpisode {
    pub(super) task: Task,
    pub(super) environment: EmbeddedDesktop,
    pub(super) screen: Screen,
}

impl EpisodeArguments {
    /// Sets up the task.
    pub(super) fn start(&self) -> Result<StartedEpisode, Failure> {
        let SelectedTask { task, listed } = self.source.one(&self.task)?;
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
        Ok(StartedEpisode { task, environment, screen })
    }
}

impl StartedEpisode {
    /// The first lines of output: the task's id, the screen, the instruction.
    pub(super) fn introduction(&self, seed: u64) -> String {
        let Task { id, instruction, .. } = &self.task;
        let (width, height) = self.screen.size();
        let theme = self.environment.desktop().map_or("", |desktop| desktop.look.theme.key());
        format!("{id}, seed {seed}, {width}x{height} pixels, {theme}\n{instruction}\n")
    }
}

impl SelectedTask {
    /// True if the right action is `call_user()`.
    pub(super) fn is_infeasible(&self) -> bool {
        Evaluator::of(&self.task).is_ok_and(|evaluator| evaluator.infeasible)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_contain_the_word_come_first() {
        let names =
            ["pocket-mail-write-0", "pocket-files-rename-0", "pocket-files-rename-10", "pocket-shop-0"];
        assert_eq!(similar("files-rename", &names)[..2], ["pocket-files-rename-0", "pocket-files-rename-10"]);
        assert_eq!(similar("pocket-shpo-0", &names)[0], "pocket-shop-0");
        assert!(similar("x", &[]).is_empty());
    }
}
