//! Folders of results read and counted: by domain, by group of domains, and over trials.
//!
//! Any folder above the domains can be given. Folders of domains with the same parent are one trial.

use super::SCORE_FILE;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// OSWorld's domains in the order of its tables, and the groups they are summed up in.
const DOMAINS: [(&str, Option<&str>); 10] = [
    ("os", None),
    ("libreoffice_calc", Some("Office")),
    ("libreoffice_impress", Some("Office")),
    ("libreoffice_writer", Some("Office")),
    ("vlc", Some("Daily")),
    ("thunderbird", Some("Daily")),
    ("chrome", Some("Daily")),
    ("gimp", Some("Professional")),
    ("vs_code", Some("Professional")),
    ("multi_apps", None),
];
const GROUPS: [&str; 3] = ["Office", "Daily", "Professional"];
/// `<action space>/<observation>/<model>/<trial>/<domain>/<task>` below the folder of all results.
const MAX_DEPTH: usize = 6;
/// A task counts as solved above this, as in ARPO's summary.
const SOLVED_ABOVE: f64 = 0.5;

/// The scores of a trial by domain and task.
pub type Scores = BTreeMap<String, BTreeMap<String, f64>>;

/// Results of one or several trials.
#[derive(Debug, Clone, PartialEq)]
pub struct Results {
    /// By the folder of each trial.
    pub trials: BTreeMap<PathBuf, Scores>,
}

/// A number of tasks and their mean score.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Share {
    /// Tasks with a score.
    pub tasks: usize,
    /// Their mean score.
    pub mean: f64,
}

/// A summary of results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Domains and their share, in OSWorld's order.
    pub domains: Vec<(String, Share)>,
    /// Groups of domains.
    pub groups: Vec<(String, Share)>,
    /// All tasks.
    pub all: Share,
    /// Trials and the share of each.
    pub trials: Vec<(String, Share)>,
    /// With several trials: the share of tasks that at least one of k trials solves, for each k; tasks without a score
    /// in a trial count as not solved there.
    pub pass_at: BTreeMap<usize, f64>,
}

impl Results {
    /// Reads a folder and all below it.
    pub fn read(folder: &Path) -> Result<Self, String> {
        let mut results = Self { trials: BTreeMap::new() };
        results.walk(folder, MAX_DEPTH)?;
        let models: BTreeSet<&Path> = results.trials.keys().filter_map(|trial| trial.parent()).collect();
        if models.len() > 1 {
            let names: Vec<String> = models.iter().map(|model| model.display().to_string()).collect();
            return Err(format!("results of several models, expected one of {}", names.join(", ")));
        }
        if results.trials.is_empty() {
            return Err(format!(
                "{}: no {SCORE_FILE} in it; expected a folder of results, or one above it",
                folder.display()
            ));
        }
        Ok(results)
    }

    fn walk(&mut self, folder: &Path, deeper: usize) -> Result<(), String> {
        let failed = |error: io::Error| format!("{}: {error}", folder.display());
        let score = folder.join(SCORE_FILE);
        if score.is_file() {
            let value = read_score(&score)?;
            let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if let Some(domain) = folder.parent() {
                let trial = domain.parent().unwrap_or_else(|| Path::new("")).to_path_buf();
                let scores = self.trials.entry(trial).or_default();
                scores.entry(name(domain)).or_default().insert(name(folder), value);
            }
            return Ok(());
        }
        for entry in fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if deeper > 0 && path.is_dir() {
                self.walk(&path, deeper - 1)?;
            }
        }
        Ok(())
    }

    /// The summary. A task of several trials counts once for each.
    pub fn summary(&self) -> Summary {
        let mut domains: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (domain, tasks) in self.trials.values().flatten() {
            domains.entry(domain).or_default().extend(tasks.values());
        }
        let known = |name: &&str| DOMAINS.iter().position(|(domain, _)| domain == name);
        let mut order: Vec<&str> = domains.keys().copied().collect();
        order.sort_by_key(|name| known(name).unwrap_or(DOMAINS.len()));
        let group_of = |domain: &str| known(&domain).and_then(|index| DOMAINS[index].1);
        let of_group = |group: &'static str| {
            let inside = domains.iter().filter(move |(domain, _)| group_of(domain) == Some(group));
            share(inside.flat_map(|(_, scores)| scores).copied())
        };
        let each_trial = |(path, scores): (&PathBuf, &Scores)| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, share(scores.values().flat_map(BTreeMap::values).copied()))
        };
        Summary {
            domains: order
                .iter()
                .map(|name| ((*name).to_owned(), share(domains[name].iter().copied())))
                .collect(),
            groups: GROUPS
                .iter()
                .map(|group| ((*group).to_owned(), of_group(group)))
                .filter(|(_, share)| share.tasks > 0)
                .collect(),
            all: share(domains.values().flatten().copied()),
            trials: self.trials.iter().map(each_trial).collect(),
            pass_at: self.pass_at(),
        }
    }

    fn pass_at(&self) -> BTreeMap<usize, f64> {
        let trials = self.trials.len();
        if trials < 2 {
            return BTreeMap::new();
        }
        let named = |scores: &'_ Scores| -> Vec<(String, String)> {
            let all = scores.iter().flat_map(|(domain, tasks)| tasks.keys().map(move |task| (domain, task)));
            all.map(|(domain, task)| (domain.clone(), task.clone())).collect()
        };
        let tasks: BTreeSet<(String, String)> = self.trials.values().flat_map(named).collect();
        let solved = |(domain, task): &(String, String)| {
            let score = |scores: &&Scores| scores.get(domain)?.get(task).copied();
            self.trials.values().filter(|scores| score(scores).is_some_and(|one| one > SOLVED_ABOVE)).count()
        };
        let counts: Vec<usize> = tasks.iter().map(solved).collect();
        let estimate = |k: usize| {
            let each = counts.iter().filter_map(|&solved| arpo_core::statistics::pass_at(k, solved, trials));
            (k, each.sum::<f64>() / counts.len() as f64)
        };
        (1..=trials).map(estimate).collect()
    }
}

fn share(scores: impl Iterator<Item = f64>) -> Share {
    let scores: Vec<f64> = scores.collect();
    Share { tasks: scores.len(), mean: scores.iter().sum::<f64>() / scores.len().max(1) as f64 }
}

/// A score: a number, or `True` and `False` of old runs.
fn read_score(path: &Path) -> Result<f64, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    match text.trim() {
        "True" => Ok(1.0),
        "False" => Ok(0.0),
        number => number.parse().ok().filter(|score: &f64| score.is_finite()).ok_or_else(|| {
            format!("{}: {number:?} is not a score; expected a number from 0 to 1", path.display())
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, score: &str) {
        let folder = root.join(path);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(SCORE_FILE), score).unwrap();
    }

    #[test]
    fn domains_groups_and_trials_by_hand() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "0/os/a", "1\n");
        write(root, "0/chrome/b", "0.4\n");
        write(root, "0/vlc/c", "False\n");
        write(root, "1/os/a", "0\n");
        write(root, "1/vlc/c", "True\n");
        let summary = Results::read(root).unwrap().summary();
        let names: Vec<&str> = summary.domains.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["os", "vlc", "chrome"]);
        assert_eq!(summary.groups.len(), 1);
        assert_eq!((summary.groups[0].0.as_str(), summary.groups[0].1.tasks), ("Daily", 3));
        assert!((summary.all.mean - 2.4 / 5.0).abs() < 1e-12);
        // a and c are solved in one trial of two, b in none; its trial that is missing counts as not solved
        assert!((summary.pass_at[&1] - 1.0 / 3.0).abs() < 1e-12);
        assert!((summary.pass_at[&2] - 2.0 / 3.0).abs() < 1e-12);
        let one = Results::read(&root.join("0")).unwrap().summary();
        assert!(one.pass_at.is_empty() && one.trials.len() == 1);
    }

    #[test]
    fn models_are_not_mixed() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "ours/0/os/a", "1\n");
        write(root.path(), "theirs/0/os/a", "0\n");
        assert!(Results::read(root.path()).unwrap_err().starts_with("results of several models"));
        assert!(Results::read(&root.path().join("ours")).is_ok());
    }

    #[test]
    fn invalid_results_are_named() {
        let root = tempfile::tempdir().unwrap();
        assert!(Results::read(root.path()).unwrap_err().contains("no result.txt"));
        write(root.path(), "os/a", "good\n");
        assert!(Results::read(root.path()).unwrap_err().contains("\"good\" is not a score"));
    }
}
