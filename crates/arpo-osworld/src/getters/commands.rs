//! Output of commands, and the guest's own queries.

use super::fields::Fields;
use super::{Context, GetterEntry, getter};
use crate::error::GetterError;
use crate::guest::{Command, Output};
use crate::state::{FileState, State};
use serde_json::{Map, Value};
use std::time::Duration;

pub(super) const GETTERS: &[GetterEntry] = &[
    getter("accessibility_tree", accessibility_tree),
    getter("default_video_player", default_video_player),
    getter("list_directory", list_directory),
    getter("shortcuts_on_desktop", shortcuts_on_desktop),
    getter("vm_command_error", vm_command_error),
    getter("vm_command_line", vm_command_line),
    getter("vm_screen_size", vm_screen_size),
    getter("vm_terminal_output", vm_terminal_output),
    getter("vm_window_size", vm_window_size),
    getter("vscode_config", vscode_config),
];

/// A text, or nothing.
fn text_state(text: Option<String>) -> State {
    text.map_or(State::Null, |text| State::Json(Value::String(text)))
}

fn output(context: &Context<'_>, fields: &Fields<'_>) -> Result<Option<Output>, GetterError> {
    let command = Command::parse(fields.fields).map_err(|problem| fields.wrong(problem))?;
    Ok(context.guest.run(&command)?)
}

fn vm_command_line(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    Ok(text_state(output(context, fields)?.map(|output| output.stdout)))
}

fn vm_command_error(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    Ok(text_state(output(context, fields)?.map(|output| output.stderr)))
}

fn vm_terminal_output(context: &Context<'_>, _: &Fields<'_>) -> Result<State, GetterError> {
    Ok(text_state(context.guest.terminal_output()?))
}

fn accessibility_tree(context: &Context<'_>, _: &Fields<'_>) -> Result<State, GetterError> {
    Ok(text_state(context.guest.accessibility_tree()?))
}

fn vm_screen_size(context: &Context<'_>, _: &Fields<'_>) -> Result<State, GetterError> {
    Ok(context.guest.screen_size()?.into())
}

fn vm_window_size(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    Ok(context.guest.window_size(fields.text("app_class_name")?)?.into())
}

fn list_directory(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    Ok(context.guest.list_directory(fields.text("path")?)?.into())
}

/// Types of video that have a default application; the original queries each twice, which changes no majority,
/// except the last but two.
const VIDEO_TYPES: &[&str] = &[
    "3gp",
    "3gpp",
    "3gpp2",
    "avi",
    "divx",
    "dv",
    "fli",
    "flv",
    "mp2t",
    "mp4",
    "mp4v-es",
    "mpeg",
    "mpeg-system",
    "msvideo",
    "ogg",
    "quicktime",
    "vnd.divx",
    "vnd.mpegurl",
    "vnd.rn-realvideo",
    "webm",
    "x-anim",
    "x-avi",
    "x-flc",
    "x-fli",
    "x-flv",
    "x-m4v",
    "x-matroska",
    "x-mpeg",
    "x-mpeg-system",
    "x-mpeg2",
    "x-ms-asf",
    "x-ms-asf-plugin",
    "x-ms-asx",
    "x-ms-wm",
    "x-ms-wmv",
    "x-ms-wmx",
    "x-ms-wvx",
    "x-msvideo",
    "x-nsv",
    "x-ogm",
    "x-ogm+ogg",
    "x-theora",
    "x-theora+ogg",
];

/// The application that most types of video open with; the first one on a tie.
fn default_video_player(context: &Context<'_>, _: &Fields<'_>) -> Result<State, GetterError> {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for kind in VIDEO_TYPES {
        let weight = if *kind == "x-ogm+ogg" { 1 } else { 2 };
        let command = Command::words(&["xdg-mime", "query", "default", &format!("video/{kind}")]);
        let Some(application) =
            context.guest.run(&command)?.map(|output| output.stdout).filter(|text| !text.is_empty())
        else {
            continue;
        };
        match counts.iter_mut().find(|(known, _)| *known == application) {
            Some((_, count)) => *count += weight,
            None => counts.push((application, weight)),
        }
    }
    let most = counts.iter().map(|(_, count)| *count).max();
    let first =
        counts.into_iter().find(|(_, count)| Some(*count) == most).map(|(application, _)| application);
    Ok(text_state(Some(first.unwrap_or_else(|| "unknown".into()))))
}

/// Name and content of each `.desktop` file on the desktop.
fn shortcuts_on_desktop(context: &Context<'_>, _: &Fields<'_>) -> Result<State, GetterError> {
    let nothing = || GetterError::Raises("the desktop's folder cannot be listed".into());
    let folder = context.guest.desktop_path()?.ok_or_else(nothing)?;
    let tree = context.guest.list_directory(&folder)?.ok_or_else(nothing)?;
    let mut shortcuts = Map::new();
    for node in tree["children"].as_array().ok_or_else(nothing)? {
        let Some(name) = node["name"].as_str().filter(|name| name.ends_with(".desktop")) else { continue };
        let content = context.guest.read_file(&format!("~/Desktop/{name}"))?;
        let content = content.ok_or_else(|| GetterError::Raises(format!("{name} cannot be read")))?;
        shortcuts.insert(name.to_owned(), String::from_utf8_lossy(&content).into_owned().into());
    }
    Ok(State::Json(Value::Object(shortcuts)))
}

/// Has a Visual Studio Code extension write a file, through its command palette, then reads the file.
fn vscode_config(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    let command = fields.text("vscode_extension_command")?;
    for action in [
        "pyautogui.hotkey('ctrl', 'shift', 'p')".to_owned(),
        format!("pyautogui.typewrite('{command}')"),
        "pyautogui.press('enter')".to_owned(),
    ] {
        let code = format!("import pyautogui; import time; pyautogui.FAILSAFE = False; {action}");
        context.guest.run(&Command::words(&["python", "-c", &code]))?;
    }
    context.guest.pause(Duration::from_secs(1));
    let content = context.guest.read_file(fields.text("path")?)?;
    let name = super::files::base_name(fields.text("dest")?);
    Ok(content.map_or(State::Null, |content| State::File(FileState::new(name, content))))
}
