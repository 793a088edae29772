//! Getters by name: from a guest, the cache or the rule itself to a state.

#![expect(clippy::unnecessary_wraps, reason = "every getter has the table's signature")]

mod chrome_profile;
mod commands;
mod dates;
mod drive;
mod fields;
mod files;
mod pages;
mod recreation;
mod tabs;
mod website;

use crate::download::Cache;
use crate::error::GetterError;
use crate::google::Accounts;
use crate::guest::Guest;
use crate::state::State;
use crate::task::Getter;
use arpo_core::generation::Generation;
use fields::Fields;
use jiff::Zoned;
use std::cell::RefCell;
use std::time::Instant;

/// The context of getters.
pub struct Context<'a> {
    /// The desktop.
    pub guest: &'a dyn Guest,
    /// Files of the internet, and what set-up steps have stored.
    pub cache: &'a Cache,
    /// The user's own accounts.
    pub accounts: &'a Accounts,
    /// The task's id.
    pub task: &'a str,
    /// Which generation of getters to use.
    pub generation: Generation,
    /// The host's time.
    pub now: Zoned,
    /// Nothing is waited for beyond it.
    pub deadline: Instant,
    /// Why something is none, where that is not plain: for whoever reads the score.
    pub notes: RefCell<Vec<String>>,
}

/// A getter with its name in task files.
pub struct GetterEntry {
    /// The name.
    pub name: &'static str,
    function: fn(&Context<'_>, &Fields<'_>) -> Result<State, GetterError>,
}

const fn getter(
    name: &'static str,
    function: fn(&Context<'_>, &Fields<'_>) -> Result<State, GetterError>,
) -> GetterEntry {
    GetterEntry { name, function }
}

/// Every table with the name of its domain.
pub const TABLES: &[(&str, &[GetterEntry])] = &[
    ("chrome profile", chrome_profile::GETTERS),
    ("commands and settings", commands::GETTERS),
    ("files", files::GETTERS),
    ("google drive", drive::GETTERS),
    ("pages", pages::GETTERS),
    ("rules", dates::GETTERS),
    ("tabs", tabs::GETTERS),
];

/// The getter of a name.
pub fn find(name: &str) -> Option<&'static GetterEntry> {
    TABLES.iter().flat_map(|(_, getters)| getters.iter()).find(|getter| getter.name == name)
}

/// The state that a task file's getter returns.
pub fn get(context: &Context<'_>, getter: &Getter) -> Result<State, GetterError> {
    let entry = find(&getter.kind).ok_or_else(|| GetterError::Unknown(getter.kind.clone()))?;
    (entry.function)(context, &Fields { getter: entry.name, fields: &getter.fields })
}
