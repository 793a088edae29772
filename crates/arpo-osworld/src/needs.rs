//! What a task needs besides this program: a network while it is played, credentials of the user's own account, an application, the
//! virtual machine, another program on this host.

use crate::coverage::{programs, unimplemented};
use crate::fetch;
use crate::google::{self, Accounts};
use crate::host::Program;
use crate::task::suite::SuiteTask;
use crate::task::{Getter, Step};
use serde::Serialize;
use serde_json::Value;

/// Where a task can be played and judged. The first that applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// In the container desktop, without a network.
    Nothing,
    /// With a network for the desktop: it shows pages of the internet.
    Internet,
    /// With the credentials of an account, which are not in the settings files.
    Credentials,
    /// In OSWorld's virtual machine, or a container with a further application.
    VirtualMachine,
    /// With a program that is not installed on this host.
    Program,
    /// With something that is not implemented.
    NotImplemented,
}

/// A task's need and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskNeeds {
    /// The need.
    pub need: Need,
    /// Why, in words.
    pub why: String,
    /// Files to fetch ahead of a run.
    pub files: usize,
}

/// Getters that ask a page of the internet.
const PAGES: [&str; 5] = [
    "info_from_website",
    "pdf_from_url",
    "page_info",
    "gotoRecreationPage_and_get_html_content",
    "active_tab_html_parse",
];

/// What a task needs on this host.
pub fn of(task: &SuiteTask, accounts: &Accounts) -> TaskNeeds {
    of_on(task, accounts, Program::is_installed)
}

/// What a task needs on a host with some programs.
pub fn of_on(task: &SuiteTask, accounts: &Accounts, is_installed: impl Fn(Program) -> bool) -> TaskNeeds {
    let files = fetch::needed(&task.task).len();
    let (need, why) =
        if let lacking @ [_, ..] = &unimplemented(&task.task).into_iter().collect::<Vec<_>>()[..] {
            (Need::NotImplemented, lacking.join(", "))
        } else if let Some(program) = programs(&task.task).find(|program| !is_installed(*program)) {
            (Need::Program, program.missing().to_string())
        } else if let unknown @ [_, ..] = &accounts.problems(&task.task)[..] {
            let why: Vec<String> = unknown.iter().map(ToString::to_string).collect();
            (Need::Credentials, why.join("; "))
        } else if let Some(why) = application(task) {
            (Need::VirtualMachine, why)
        } else if let Some(why) = page(task) {
            (Need::Internet, why)
        } else {
            (Need::Nothing, String::new())
        };
    TaskNeeds { need, why, files }
}

fn steps(task: &SuiteTask) -> impl Iterator<Item = &Step> {
    task.task.config.iter().chain(&task.task.evaluator.postconfig)
}

fn getters(task: &SuiteTask) -> impl Iterator<Item = &Getter> {
    task.task.evaluator.checks.iter().flat_map(|check| check.result.iter().chain(&check.expected))
}

fn application(task: &SuiteTask) -> Option<String> {
    let named = task.task.related_apps.iter().any(|name| matches!(name.as_str(), "vscode" | "vs_code"));
    (named || task.domain == "vs_code")
        .then(|| "Visual Studio Code, which Debian has no package of".to_owned())
}

fn page(task: &SuiteTask) -> Option<String> {
    let is_address = |url: &&str| url.starts_with("http://") || url.starts_with("https://");
    let opened = steps(task).filter(|step| step.kind == "chrome_open_tabs").find_map(|step| {
        let urls = step.parameters.get("urls_to_open").and_then(Value::as_array)?;
        urls.iter().filter_map(Value::as_str).find(is_address).map(str::to_owned)
    });
    if let Some(url) = opened {
        return Some(format!("it opens {url}"));
    }
    if let Some(getter) = getters(task).find(|getter| PAGES.contains(&getter.kind.as_str())) {
        return Some(format!("its evaluator reads a page ({})", getter.kind));
    }
    if google::is_used_by(&task.task) {
        return Some("it uses Google Drive".into());
    }
    let rules =
        getters(task).filter(|getter| getter.kind == "rule").filter_map(|getter| getter.fields.get("rules"));
    let wanted = rules.filter_map(|rules| rules.get("url")?.as_str()).find(is_address)?.to_owned();
    Some(format!("it ends at {wanted}"))
}
