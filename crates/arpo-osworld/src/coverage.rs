//! Which tasks can be run and evaluated: every metric, getter and set-up step they name is implemented, the programs of this host
//! that metrics run are installed, and the accounts that they use have credentials. Desktops on other hosts judge there: they look
//! for programs and credentials before every episode.

use crate::error::TaskError;
use crate::google::{Accounts, GoogleError};
use crate::host::{Program, TESSERACT};
use crate::metrics::INFEASIBLE;
use crate::needs::{self, Need, TaskNeeds};
use crate::task::TaskFile;
use crate::task::suite::{self, SuiteTask};
use crate::{getters, metrics, setup};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

/// What is implemented and what is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// Tasks that need nothing that is missing.
    pub covered: usize,
    /// All tasks.
    pub total: usize,
    /// By domain.
    pub domains: BTreeMap<String, DomainCoverage>,
    /// What is missing, as `metric NAME`, `getter NAME`, `step NAME`, `program NAME` or `credentials FILE`, with how many tasks
    /// need it.
    pub missing: BTreeMap<String, usize>,
    /// What every task needs, by `domain/id`.
    pub tasks: BTreeMap<String, TaskNeeds>,
}

/// The coverage of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct DomainCoverage {
    /// Tasks that need nothing that is missing.
    pub covered: usize,
    /// Tasks.
    pub total: usize,
    /// What is missing.
    pub missing: BTreeSet<String>,
}

/// The coverage of a folder of task files, or of a list of them.
pub fn of_folder(tasks: &Path, list: Option<&Path>, accounts: &Accounts) -> Result<Coverage, TaskError> {
    Ok(of_tasks(&suite::load(tasks, list)?, accounts))
}

/// The coverage of tasks.
pub fn of_tasks(tasks: &[SuiteTask], accounts: &Accounts) -> Coverage {
    let mut coverage = Coverage {
        covered: 0,
        total: tasks.len(),
        domains: BTreeMap::new(),
        missing: BTreeMap::new(),
        tasks: tasks.iter().map(|task| (task.name(), needs::of(task, accounts))).collect(),
    };
    for task in tasks {
        let lacking = missing_as(&task.task, accounts, file_of);
        let domain = coverage.domains.entry(task.domain.clone()).or_default();
        domain.total += 1;
        if lacking.is_empty() {
            domain.covered += 1;
            coverage.covered += 1;
        }
        for name in lacking {
            domain.missing.insert(name.clone());
            *coverage.missing.entry(name).or_default() += 1;
        }
    }
    coverage
}

/// Loads tasks; an error if one needs something that is missing.
pub fn load_runnable(
    tasks: &Path,
    list: Option<&Path>,
    accounts: &Accounts,
) -> Result<Vec<SuiteTask>, TaskError> {
    runnable(suite::load(tasks, list)?, accounts)
}

/// The tasks, unless one needs something that is missing.
pub fn runnable(tasks: Vec<SuiteTask>, accounts: &Accounts) -> Result<Vec<SuiteTask>, TaskError> {
    for task in &tasks {
        let missing = missing(&task.task, accounts);
        if !missing.is_empty() {
            return Err(TaskError::Missing { task: task.name(), missing: missing.into_iter().collect() });
        }
    }
    Ok(tasks)
}

/// What a task needs that is missing: in this program, on this host or of the user's accounts, with what is wrong with these.
pub fn missing(task: &TaskFile, accounts: &Accounts) -> BTreeSet<String> {
    missing_as(task, accounts, ToString::to_string)
}

/// The file alone, so that tasks that lack the same one are counted together; [`needs`] has the reason.
fn file_of(problem: &GoogleError) -> String {
    problem.settings_file().map_or_else(|| problem.to_string(), |path| path.display().to_string())
}

fn missing_as(
    task: &TaskFile,
    accounts: &Accounts,
    credentials: impl Fn(&GoogleError) -> String,
) -> BTreeSet<String> {
    let absent = programs(task).filter(|program| !program.is_installed());
    let absent = absent
        .map(|program| format!("program {} (on Debian: apt-get install {})", program.name, program.package));
    let problems = accounts.problems(task);
    let unknown = problems.iter().map(|problem| format!("credentials {}", credentials(problem)));
    unimplemented(task).into_iter().chain(absent).chain(unknown).collect()
}

/// The programs of this host that a task's metrics run.
pub fn programs(task: &TaskFile) -> impl Iterator<Item = Program> + '_ {
    task.evaluator.checks.iter().filter(|check| check.func == "compare_image_text").map(|_| TESSERACT).take(1)
}

/// What a task needs that is not implemented.
pub fn unimplemented(task: &TaskFile) -> BTreeSet<String> {
    let steps = task.config.iter().chain(&task.evaluator.postconfig);
    let mut missing: BTreeSet<String> = steps
        .filter(|step| !setup::STEPS.contains(&step.kind.as_str()))
        .map(|step| format!("step {}", step.kind))
        .collect();
    for check in &task.evaluator.checks {
        if check.func != INFEASIBLE && metrics::find(&check.func).is_none() {
            missing.insert(format!("metric {}", check.func));
        }
        for getter in check.result.iter().chain(&check.expected) {
            if getters::find(&getter.kind).is_none() {
                missing.insert(format!("getter {}", getter.kind));
            }
        }
    }
    missing
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<22}{:>9}{:>7}  missing", "domain", "covered", "tasks")?;
        for (name, domain) in &self.domains {
            let missing: Vec<&str> = domain.missing.iter().map(String::as_str).collect();
            writeln!(f, "{name:<22}{:>9}{:>7}  {}", domain.covered, domain.total, missing.join(", "))?;
        }
        writeln!(f, "{:<22}{:>9}{:>7}", "all", self.covered, self.total)?;
        let parts = [
            (Need::Nothing, "judged here, without a network"),
            (Need::Internet, "needs internet"),
            (Need::Credentials, "needs credentials"),
            (Need::VirtualMachine, "needs the virtual machine, or a further application"),
            (Need::Program, "needs a program on this host"),
            (Need::NotImplemented, "not implemented"),
        ];
        for (need, words) in parts {
            let these = || self.tasks.iter().filter(|(_, task)| task.need == need);
            write!(f, "\n{words}: {}", these().count())?;
            for (name, task) in these() {
                let files = if task.files > 0 { format!(" ({} files)", task.files) } else { String::new() };
                let why = if task.why.is_empty() { String::new() } else { format!(": {}", task.why) };
                write!(f, "\n  {name}{files}{why}")?;
            }
        }
        Ok(())
    }
}
