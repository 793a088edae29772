//! The browser's profile on the guest's disk.

use super::fields::Fields;
use super::{Context, GetterEntry, getter};
use crate::error::GetterError;
use crate::state::State;
use crate::text::python;
use serde_json::{Value, json};

pub(super) const GETTERS: &[GetterEntry] = &[
    getter("bookmarks", bookmarks),
    getter("chrome_appearance_mode_ui", chrome_appearance_mode_ui),
    getter("chrome_font_size", chrome_font_size),
    getter("cookie_data", cookie_data),
    getter("data_delete_automacally", data_delete_automacally),
    getter("default_search_engine", default_search_engine),
    getter("enable_do_not_track", enable_do_not_track),
    getter("enable_enhanced_safety_browsing", enable_enhanced_safety_browsing),
    getter("enable_safe_browsing", enable_safe_browsing),
    getter("enabled_experiments", enabled_experiments),
    getter("find_installed_extension_name", find_installed_extension_name),
    getter("find_unpacked_extension_path", find_unpacked_extension_path),
    getter("history", history),
    getter("new_startup_page", new_startup_page),
    getter("profile_name", profile_name),
];

const PROFILE: &str = "~/.config/google-chrome";
/// What several of the original's getters return on any error.
const ON_ERROR: &str = "Google";

fn read(context: &Context<'_>, file: &str) -> Result<Option<Vec<u8>>, GetterError> {
    Ok(context.guest.read_file(&format!("{PROFILE}/{file}"))?)
}

/// A JSON file; none if it is missing or not an object.
fn read_json(context: &Context<'_>, file: &str) -> Result<Option<Value>, GetterError> {
    let content = read(context, file)?;
    Ok(content.and_then(|content| serde_json::from_slice(&content).ok()).filter(Value::is_object))
}

/// A value of the preferences, or a fallback text where they cannot be read.
fn preference(
    context: &Context<'_>,
    on_error: &str,
    read: impl FnOnce(&Value) -> Option<Value>,
) -> Result<State, GetterError> {
    let preferences = read_json(context, "Default/Preferences")?;
    Ok(State::Json(preferences.as_ref().and_then(read).unwrap_or_else(|| json!(on_error))))
}

fn truth_text(truth: bool) -> Option<Value> {
    Some(json!(if truth { "true" } else { "false" }))
}

fn default_search_engine(context: &Context<'_>, _: &Fields<'_>) -> Result<State, GetterError> {
    preference(context, ON_ERROR, |preferences| {
        preferences.pointer("/default_search_provider_data/template_url_data/short_name").cloned()
    })
}

/// The profile's name; none if it has none.
fn profile_name(context: &Context<'_>, _: &Fields<'_>) -> Result<State, GetterError> {
    let preferences = read_json(context, "Default/Preferences")?;
    Ok(preferences.and_then(|preferences| preferences.pointer("/profile/name").cloned()).into())
}

fn chrome_font_size(context: &Context<'_>, _: &Fields<'_>) -> Result<State, GetterError> {
    let preferences = read_json(context, "Default/Preferences")?;
    let default = json!({"default_fixed_font_size": 13, "default_font_size": 16, "minimum_font_size": 13});
    let sizes = preferences.and_then(|preferences| preferences.pointer("/webkit/webprefs").cloned());
    Ok(State::Json(sizes.unwrap_or(default)))
}

fn enable_do_not_track(context: &Context<'_>, _: &Fields<'_>) -> Result<State, GetterError> {
    preference(context, "false", |preferences| {
        truth_text(preferences.get("enable_do_not_track").is_some_and(python::truthy))
    })
}

fn enable_enhanced_safety_browsing(context: &Context<'_>, _: &Fields<'_>) -> Result<State, GetterError> {
    preference(context, ON_ERROR, |preferences| {
        truth_text(preferences.pointer("/safebrowsing/enhanced").is_some_and(python::truthy))
    })
}

/// Verified: either kind of protection.
fn enable_safe_browsing(context: &Context<'_>, _: &Fields<'_>) -> Result<State, GetterError> {
    preference(context, "false", |preferences| {
        let is_on =
            |name: &str| preferences.pointer(&format!("/safebrowsing/{name}")).is_some_and(python::truthy);
        truth_text(is_on("enhanced") || is_on("enabled"))
    })
}

/// Whether the browser starts with a new tab: 5, or not set.
fn new_startup_page(context: &Context<'_>, _: &Fields<'_>) -> Result<State, GetterError> {
    preference(context, ON_ERROR, |preferences| match preferences.get("session") {
        None => truth_text(true),
        Some(session) => {
            truth_text(session.get("restore_on_startup").is_some_and(|code| python::equal(code, &json!(5))))
        }
    })
}

/// Whether the profile has content settings at all, which is what the original checks.
fn data_delete_automacally(context: &Context<'_>, _: &Fields<'_>) -> Result<State, GetterError> {
    preference(context, ON_ERROR, |preferences| {
        let profile = preferences.get("profile")?;
        truth_text(profile.get("default_content_setting_values").is_some_and(|values| !values.is_null()))
    })
}

/// Verified: light, dark or system, from the profile: 1, 2, or 0 and unset.
fn chrome_appearance_mode_ui(context: &Context<'_>, _: &Fields<'_>) -> Result<State, GetterError> {
    preference(context, "system", |preferences| {
        let scheme = ["/browser/theme/color_scheme2", "/browser/theme/color_scheme"]
            .iter()
            .find_map(|path| preferences.pointer(path)?.as_i64());
        Some(json!(match scheme {
            Some(1) => "light",
            Some(2) => "dark",
            _ => "system",
        }))
    })
}

fn each_extension(context: &Context<'_>, path: &str) -> Result<State, GetterError> {
    preference(context, ON_ERROR, |preferences| {
        let extensions = preferences.pointer("/extensions/settings").and_then(Value::as_object);
        let values = extensions.into_iter().flatten().map(|(_, extension)| extension.pointer(path).cloned());
        values.collect::<Option<Vec<Value>>>().map(Value::Array)
    })
}

fn find_unpacked_extension_path(context: &Context<'_>, _: &Fields<'_>) -> Result<State, GetterError> {
    each_extension(context, "/path")
}

fn find_installed_extension_name(context: &Context<'_>, _: &Fields<'_>) -> Result<State, GetterError> {
    each_extension(context, "/manifest/name")
}

fn enabled_experiments(context: &Context<'_>, _: &Fields<'_>) -> Result<State, GetterError> {
    let state = read_json(context, "Local State")?;
    let experiments = state.and_then(|state| state.pointer("/browser/enabled_labs_experiments").cloned());
    Ok(State::Json(experiments.unwrap_or_else(|| json!([]))))
}

/// The roots of the bookmarks; an empty list without a file, and a damaged file raises.
fn bookmarks(context: &Context<'_>, _: &Fields<'_>) -> Result<State, GetterError> {
    let Some(content) = read(context, "Default/Bookmarks")?.filter(|content| !content.is_empty()) else {
        return Ok(State::Json(json!([])));
    };
    let bookmarks: Value = serde_json::from_slice(&content)
        .map_err(|error| GetterError::Raises(format!("bookmarks: {error}")))?;
    Ok(State::Json(bookmarks.get("roots").cloned().unwrap_or_else(|| json!({}))))
}

/// Rows of a database of the profile; null if it cannot be read.
fn query(context: &Context<'_>, file: &str, query: &str) -> Result<State, GetterError> {
    let Some(content) = read(context, file)? else { return Ok(State::Null) };
    let rows = crate::database::rows(&content, query).ok();
    Ok(rows.map(|rows| json!(rows)).into())
}

fn cookie_data(context: &Context<'_>, _: &Fields<'_>) -> Result<State, GetterError> {
    query(context, "Default/Cookies", "SELECT * FROM cookies")
}

fn history(context: &Context<'_>, _: &Fields<'_>) -> Result<State, GetterError> {
    query(context, "Default/History", "SELECT url, title, last_visit_time FROM urls")
}
