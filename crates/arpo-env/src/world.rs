//! The world: everything the applications keep, apart from what their windows show at the moment.
//!
//! Plain data keyed by the names people use, so that set-up and evaluators of task files can point into its JSON
//! form: `/settings/Wifi/on`, `/files/docs~1cat`, `/mail/Lunch/folder`.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The applications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum App {
    /// Switches, levels and choices on pages, applied together.
    Settings,
    /// Folders and files.
    Files,
    /// Text files.
    Editor,
    /// Cells, sums, sorting.
    Sheet,
    /// Messages in folders.
    Mail,
    /// Alarms by time.
    Alarms,
    /// Songs, volume, a playlist.
    Player,
    /// A form over several pages that ends in an order.
    Shop,
}

impl App {
    /// All of them, in the order of the task bar.
    pub const ALL: [Self; 8] = [
        Self::Settings,
        Self::Files,
        Self::Editor,
        Self::Sheet,
        Self::Mail,
        Self::Alarms,
        Self::Player,
        Self::Shop,
    ];

    /// Its name in task files and widget ids.
    pub fn key(self) -> &'static str {
        match self {
            Self::Settings => "settings",
            Self::Files => "files",
            Self::Editor => "editor",
            Self::Sheet => "sheet",
            Self::Mail => "mail",
            Self::Alarms => "alarms",
            Self::Player => "player",
            Self::Shop => "shop",
        }
    }

    /// The application of that key.
    pub fn of_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|app| app.key() == key)
    }

    /// Its name on the screen; a pocket cell holds six characters.
    pub fn name(self, pocket: bool) -> &'static str {
        match (self, pocket) {
            (Self::Settings, true) => "Setup",
            (Self::Settings, false) => "Settings",
            (Self::Files, _) => "Files",
            (Self::Editor, true) => "Notes",
            (Self::Editor, false) => "Editor",
            (Self::Sheet, _) => "Sheet",
            (Self::Mail, _) => "Mail",
            (Self::Alarms, true) => "Alarm",
            (Self::Alarms, false) => "Alarms",
            (Self::Player, _) => "Player",
            (Self::Shop, _) => "Shop",
        }
    }
}

impl fmt::Display for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

/// What the applications keep.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct World {
    /// Settings by name.
    pub settings: BTreeMap<String, Setting>,
    /// Names of folders; they are not nested.
    pub folders: BTreeSet<String>,
    /// Contents by path: `name`, or `folder/name`.
    pub files: BTreeMap<String, String>,
    /// Contents by cell: `A1`. Empty cells are absent.
    pub sheet: BTreeMap<String, String>,
    /// Messages by subject.
    pub mail: BTreeMap<String, Message>,
    /// Alarms by time: `07:30`.
    pub alarms: BTreeMap<String, Alarm>,
    /// The media player.
    pub player: Player,
    /// What the shop sells.
    pub products: BTreeSet<String>,
    /// Orders by product.
    pub orders: BTreeMap<String, Order>,
}

/// One setting, on its page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Setting {
    /// On or off.
    Switch {
        /// Where it is shown.
        page: String,
        /// Its state.
        on: bool,
    },
    /// A number from 0.
    Level {
        /// Where it is shown.
        page: String,
        /// Its state.
        value: u32,
        /// The largest value.
        max: u32,
    },
    /// One of several words.
    Choice {
        /// Where it is shown.
        page: String,
        /// Its state.
        value: String,
        /// What can be chosen.
        options: Vec<String>,
        /// Shown as a drop-down list instead of buttons.
        drop: bool,
    },
}

impl Setting {
    /// Where it is shown.
    pub fn page(&self) -> &str {
        match self {
            Self::Switch { page, .. } | Self::Level { page, .. } | Self::Choice { page, .. } => page,
        }
    }
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// `Inbox`, `Sent` or `Archive`.
    pub folder: String,
    /// The other person: who sent it, or whom it was sent to.
    pub person: String,
    /// Its text.
    pub text: String,
}

/// An alarm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alarm {
    /// It will ring.
    pub on: bool,
}

/// The state of the media player.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Player {
    /// All songs.
    pub songs: BTreeSet<String>,
    /// The user's playlist.
    pub list: BTreeSet<String>,
    /// The chosen song; empty for none.
    pub song: String,
    /// It is playing.
    pub playing: bool,
    /// From 0 to 10.
    pub volume: u32,
    /// Songs come in random order.
    pub mix: bool,
}

/// An order placed in the shop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// How many.
    pub quantity: u32,
    /// The recipient.
    pub name: String,
    /// Post code: four digits.
    pub code: String,
    /// The delivery method.
    pub delivery: String,
}

/// The highest volume.
pub const MAX_VOLUME: u32 = 10;

/// Folder and name of a path; the folder is empty for the top.
pub fn split_path(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// The path of a name in a folder; the folder is empty for the top.
pub fn join_path(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}
