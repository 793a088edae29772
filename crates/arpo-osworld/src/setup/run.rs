//! Runs set-up steps on a guest.
//!
//! In the ARPO era a step that the guest refuses leaves a note and the next one runs, as its controller only logs it;
//! for Verified it ends the set-up. In both, a failed or late download, an unreachable browser and a guest that does not
//! respond end it, and so does everything that fails at Google.

use super::{SetupStep, Until};
use crate::download::Cache;
use crate::error::{DownloadError, GuestError, SetupError};
use crate::google::Accounts;
use crate::guest::{Command, CommandLine, Guest, Output, Tab};
use crate::task::Step;
use crate::text::url::same_address;
use arpo_core::generation::Generation;
use jiff::Timestamp;
use std::fs;
use std::time::{Duration, Instant};

/// The context of set-up steps.
pub struct Preparation<'a> {
    /// The desktop.
    pub guest: &'a dyn Guest,
    /// Files of the internet, and the folder outputs are stored in.
    pub cache: &'a Cache,
    /// The user's own accounts.
    pub accounts: &'a Accounts,
    /// The task's id.
    pub task: &'a str,
    /// Which generation of the controller to imitate.
    pub generation: Generation,
    /// Verified: the browser goes through the guest's proxy.
    pub proxy: bool,
    /// The guest's password, for commands that ask for it.
    pub password: &'a str,
    /// The guest's screen, for commands that name it.
    pub screen: (u32, u32),
    /// The host's time.
    pub now: Timestamp,
    /// Nothing is waited for beyond it.
    pub deadline: Instant,
}

/// The outcome of the set-up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prepared {
    /// Steps that the guest refused, with its messages.
    pub refused: Vec<String>,
}

/// Between attempts of a repeated command, and how often it may fail.
const UNTIL_INTERVAL: Duration = Duration::from_millis(300);
const UNTIL_FAILURES: usize = 5;
/// Limit of attempts of a command that neither fails nor satisfies its conditions.
const UNTIL_TRIES: usize = 1000;
/// Attempts to reach the browser, and the time between.
const BROWSER_TRIES: usize = 15;
const BROWSER_INTERVAL: Duration = Duration::from_secs(5);
/// Chrome's history without a visit, as OSWorld keeps it.
const EMPTY_HISTORY: &str = "https://huggingface.co/datasets/xlangai/ubuntu_osworld_file_cache/resolve/main/chrome/44ee5668-ecd5-4366-a6ce-c1c9b8d4e938/history_empty.sqlite?download=true";
const HISTORY_FILE: &str = "history_new.sqlite";

/// Why a step failed.
pub(super) enum Failure {
    /// The guest refused.
    Refused(String),
    /// The desktop or Google does not respond, or a file did not come in time.
    Lost(String),
    /// The set-up cannot continue.
    Fatal(String),
}

impl From<GuestError> for Failure {
    fn from(error: GuestError) -> Self {
        match error {
            GuestError::Refused { .. } | GuestError::TooLarge { .. } => Self::Refused(error.to_string()),
            GuestError::Unreachable { .. } => Self::Lost(error.to_string()),
        }
    }
}

impl From<DownloadError> for Failure {
    fn from(error: DownloadError) -> Self {
        match error {
            DownloadError::Late { .. } => Self::Lost(error.to_string()),
            DownloadError::Offline { .. }
            | DownloadError::Fetch { .. }
            | DownloadError::Checksum { .. }
            | DownloadError::Cache { .. } => Self::Fatal(error.to_string()),
        }
    }
}

/// Runs steps in order. All are parsed before the first runs.
pub fn run(preparation: &Preparation<'_>, steps: &[Step]) -> Result<Prepared, SetupError> {
    let parse = |(index, step): (usize, &Step)| {
        SetupStep::parse(step).map_err(|problem| SetupError::Config { index, problem })
    };
    let parsed: Vec<SetupStep> = steps.iter().enumerate().map(parse).collect::<Result<_, _>>()?;
    let mut prepared = Prepared::default();
    for (index, step) in parsed.iter().enumerate() {
        let failed = |problem: String| SetupError::Failed { index, step: steps[index].kind.clone(), problem };
        match preparation.step(step) {
            Ok(()) => {}
            Err(Failure::Refused(problem)) if preparation.generation == Generation::ArpoEra => {
                prepared.refused.push(failed(problem).to_string());
            }
            Err(Failure::Refused(problem) | Failure::Fatal(problem)) => return Err(failed(problem)),
            Err(Failure::Lost(problem)) => {
                return Err(SetupError::Lost { index, step: steps[index].kind.clone(), problem });
            }
        }
    }
    Ok(prepared)
}

impl Preparation<'_> {
    fn step(&self, step: &SetupStep) -> Result<(), Failure> {
        match step {
            SetupStep::Download(files) => {
                for (url, path) in files {
                    let content = self.cache.obtain(self.task, url, path, self.deadline)?;
                    self.guest.write_file(path, &content)?;
                }
            }
            SetupStep::UploadFile(files) => {
                for (local, path) in files {
                    let content =
                        fs::read(local).map_err(|error| Failure::Fatal(format!("{local}: {error}")))?;
                    self.guest.write_file(path, &content)?;
                }
            }
            SetupStep::Launch(command) => self.guest.launch(&self.proxied(command))?,
            SetupStep::Execute { command, stdout, stderr, until } => {
                self.execute(command, stdout.as_deref(), stderr.as_deref(), until)?;
            }
            SetupStep::Open(path) => self.guest.open_file(path)?,
            SetupStep::ActivateWindow(window) => self.guest.activate_window(window)?,
            SetupStep::CloseWindow(window) => self.guest.close_window(window)?,
            SetupStep::Sleep(time) => self.guest.pause(*time),
            SetupStep::ChangeWallpaper(path) => self.guest.change_wallpaper(path)?,
            SetupStep::ChromeOpenTabs(urls) => self.open_tabs(urls)?,
            SetupStep::ChromeCloseTabs(urls) => self.close_tabs(urls)?,
            SetupStep::UpdateBrowseHistory(visits) => self.add_history(visits)?,
            SetupStep::GoogleDrive { settings, operations } => self.change_drive(settings, operations)?,
            SetupStep::Login(settings) => self.log_in(settings)?,
        }
        Ok(())
    }

    fn proxied(&self, command: &Command) -> Command {
        match &command.line {
            CommandLine::Words(words) if self.proxy && words[0] == "google-chrome" => {
                let mut words = words.clone();
                words.push("--proxy-server=http://127.0.0.1:18888".into());
                Command { line: CommandLine::Words(words), shell: command.shell }
            }
            _ => command.clone(),
        }
    }

    /// Fills in the placeholders for password and screen in commands of Verified's task files.
    fn filled(&self, command: &Command) -> Command {
        let (width, height) = self.screen;
        let names = [
            ("{CLIENT_PASSWORD}", self.password.to_owned()),
            ("{SCREEN_WIDTH_HALF}", (width / 2).to_string()),
            ("{SCREEN_HEIGHT_HALF}", (height / 2).to_string()),
            ("{SCREEN_WIDTH}", width.to_string()),
            ("{SCREEN_HEIGHT}", height.to_string()),
        ];
        command
            .map(|text| names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value)))
    }

    fn execute(
        &self,
        command: &Command,
        stdout: Option<&str>,
        stderr: Option<&str>,
        until: &Until,
    ) -> Result<(), Failure> {
        let command = self.filled(command);
        let mut failures = 0;
        for _ in 0..UNTIL_TRIES {
            match self.guest.run(&command)? {
                Some(output) => {
                    self.store(stdout, &output.stdout)?;
                    self.store(stderr, &output.stderr)?;
                    if until.is_met(&output) {
                        return Ok(());
                    }
                }
                None if *until == Until::default() => {
                    return Err(Failure::Refused("the command could not be run".into()));
                }
                None => {}
            }
            failures += 1;
            if failures >= UNTIL_FAILURES {
                return Ok(());
            }
            self.guest.pause(UNTIL_INTERVAL);
        }
        Ok(())
    }

    fn store(&self, name: Option<&str>, content: &str) -> Result<(), Failure> {
        let Some(name) = name else { return Ok(()) };
        let path = self.cache.output_path(self.task, name);
        let written =
            path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, content));
        written.map_err(|error| Failure::Fatal(format!("{}: {error}", path.display())))
    }

    /// The tabs of the browser, once it responds.
    pub(super) fn tabs(&self) -> Result<Vec<Tab>, Failure> {
        let mut last = String::new();
        for attempt in 0..BROWSER_TRIES {
            if attempt > 0 {
                self.guest.pause(BROWSER_INTERVAL);
            }
            match self.guest.browser().tabs() {
                Ok(tabs) => return Ok(tabs),
                Err(error) => last = error.to_string(),
            }
        }
        Err(Failure::Lost(format!("the browser does not respond: {last}")))
    }

    /// Each address in a new tab; after the first, the tab that was there before is closed.
    fn open_tabs(&self, urls: &[String]) -> Result<(), Failure> {
        let before = self.tabs()?;
        for (index, url) in urls.iter().enumerate() {
            // A page that does not load is left as it is.
            let _ = self.guest.browser().open(url);
            if let (0, Some(first)) = (index, before.last()) {
                self.guest.browser().close(&first.id)?;
            }
        }
        Ok(())
    }

    fn close_tabs(&self, urls: &[String]) -> Result<(), Failure> {
        self.guest.pause(BROWSER_INTERVAL);
        let mut tabs = self.tabs()?;
        for url in urls {
            if let Some(at) = tabs.iter().position(|tab| same_address(&tab.url, url, self.generation)) {
                self.guest.browser().close(&tabs.remove(at).id)?;
            }
        }
        Ok(())
    }

    /// Writes visits into an empty history, which replaces the guest's.
    fn add_history(&self, visits: &[(String, String, Duration)]) -> Result<(), Failure> {
        const MICROSECONDS_1601_TO_1970: i64 = 11_644_473_600_000_000;
        const TYPED_LINK: i64 = 805_306_368;
        let empty = self.cache.obtain_for_evaluator(self.task, EMPTY_HISTORY, HISTORY_FILE, self.deadline)?;
        let changed = crate::database::changed(&empty, |history| {
            for (url, title, ago) in visits {
                let at = self.now.as_microsecond() - ago.as_micros() as i64 + MICROSECONDS_1601_TO_1970;
                history.execute(
                    "INSERT INTO urls (url, title, visit_count, typed_count, last_visit_time, hidden) VALUES (?, ?, 1, 0, ?, 0)",
                    (url, title, at),
                )?;
                history.execute(
                    "INSERT INTO visits (url, visit_time, from_visit, transition, segment_id, visit_duration) VALUES (?, ?, 0, ?, 0, 0)",
                    (history.last_insert_rowid(), at, TYPED_LINK),
                )?;
            }
            Ok(())
        });
        let content = changed.map_err(Failure::Fatal)?;
        let home = self.guest.run(&Command { line: CommandLine::Text("echo $HOME".into()), shell: true })?;
        let home = home.map(|output| output.stdout.trim().to_owned()).filter(|home| !home.is_empty());
        let path =
            format!("{}/.config/google-chrome/Default/History", home.as_deref().unwrap_or("/home/user"));
        Ok(self.guest.write_file(&path, &content)?)
    }
}

impl Until {
    /// Whether any condition holds; true without conditions.
    fn is_met(&self, output: &Output) -> bool {
        *self == Self::default()
            || self.returncode == Some(output.returncode)
            || self.stdout.as_ref().is_some_and(|part| output.stdout.contains(part.as_str()))
            || self.stderr.as_ref().is_some_and(|part| output.stderr.contains(part.as_str()))
    }
}
