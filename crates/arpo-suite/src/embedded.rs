//! The embedded desktop, as configured.

use crate::EnvironmentSource;
use crate::SuiteError;
use arpo_core::config::{Config, FontChoice, SuiteChoice, ThemeChoice};
use arpo_core::task::Task;
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::environment::{Environment, EnvironmentError};
use arpo_env::look::{Font, ScreenOptions, Theme};
use arpo_env::tasks::{Split, Suite, custom};
use std::path::PathBuf;

/// A suite of the embedded desktop, or the user's own tasks on it.
#[derive(Debug)]
pub struct EmbeddedSource {
    suite: Suite,
    screen: ScreenOptions,
    /// The user's own tasks.
    files: Option<PathBuf>,
}

impl EmbeddedSource {
    /// With the screen and the task files of a configuration.
    pub fn new(config: &Config, suite: Suite) -> Result<Self, SuiteError> {
        let files = (!config.tasks.files.is_empty()).then(|| PathBuf::from(&config.tasks.files));
        Ok(Self { suite, screen: screen(config, suite)?, files })
    }
}

impl EnvironmentSource for EmbeddedSource {
    fn tasks(&self) -> Result<Vec<Task>, SuiteError> {
        match &self.files {
            None => Ok(self.suite.tasks(Split::Train).to_vec()),
            Some(files) => custom::read(files, self.screen.clone())
                .map_err(|problem| SuiteError::Configuration(format!("`tasks.files`: {problem}"))),
        }
    }

    fn held_out(&self) -> Vec<Task> {
        self.suite.tasks(Split::HeldOut).to_vec()
    }

    fn templates(&self) -> Option<Suite> {
        Some(self.suite).filter(|_| self.files.is_none())
    }

    fn make(&self, _: usize) -> Result<Box<dyn Environment>, EnvironmentError> {
        Ok(Box::new(EmbeddedDesktop::new(self.screen.clone())?))
    }
}

/// The suite of the embedded desktop that a configuration names; an error for OSWorld.
pub fn suite(config: &Config) -> Result<Suite, SuiteError> {
    match config.tasks.suite {
        SuiteChoice::Pocket => Ok(Suite::Pocket),
        SuiteChoice::Desktop => Ok(Suite::Desktop),
        SuiteChoice::Osworld => Err(SuiteError::Configuration(
            "`tasks.suite` = \"osworld\" has no embedded desktop: expected \"pocket\" or \"desktop\"".into(),
        )),
    }
}

/// The screen of the episodes: the suite's, with the configuration's overrides.
pub fn screen(config: &Config, suite: Suite) -> Result<ScreenOptions, SuiteError> {
    let mut screen = suite.screen();
    let wanted = &config.screen;
    if wanted.width > 0 {
        screen.width = wanted.width;
    }
    if wanted.height > 0 {
        screen.height = wanted.height;
    }
    screen.theme = match wanted.theme {
        ThemeChoice::Suite => screen.theme,
        ThemeChoice::Light => Some(Theme::Light),
        ThemeChoice::Dark => Some(Theme::Dark),
        ThemeChoice::Vary => None,
    };
    screen.font = match wanted.font {
        FontChoice::Suite => screen.font,
        FontChoice::Pixel => Some(Font::Pixel),
        FontChoice::Proportional => Some(Font::Proportional),
        FontChoice::Monospace => Some(Font::Monospace),
    };
    screen.jitter &= wanted.jitter;
    screen.check().map_err(|problem| SuiteError::Configuration(format!("`[screen]`: {problem}")))?;
    Ok(screen)
}
