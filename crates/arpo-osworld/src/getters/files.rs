//! Files: of the guest, of the internet, of the cache, and inside presentations.

use super::fields::Fields;
use super::{Context, GetterEntry, getter};
use crate::error::{GetterError, MetricError};
use crate::package::{Package, resolved};
use crate::sheet::book::Book;
use crate::sheet::frame::Frame;
use crate::state::{Bytes, FileState, State};
use crate::xml::{descendants, parse};
use arpo_core::generation::Generation;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const GETTERS: &[GetterEntry] = &[
    getter("audio_in_slide", audio_in_slide),
    getter("background_image_in_slide", background_image_in_slide),
    getter("cache_file", cache_file),
    getter("cloud_file", cloud_file),
    getter("content_from_vm_file", content_from_vm_file),
    getter("gimp_config_file", gimp_config_file),
    getter("vlc_config", vlc_config),
    getter("vlc_playing_info", vlc_playing_info),
    getter("vm_file", vm_file),
    getter("vm_wallpaper", vm_wallpaper),
];

/// The last component of a path.
pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// The files that `gives` selects (by default the first) out of several; the others are their siblings.
fn chosen(fields: &Fields<'_>, names: &[&str], contents: Vec<Option<Bytes>>) -> State {
    let gives: Vec<u64> = match fields.get("gives").and_then(|gives| gives.as_array()) {
        Some(gives) => gives.iter().filter_map(serde_json::Value::as_u64).collect(),
        None => vec![0],
    };
    let name_of = |name: &&str| base_name(name).to_owned();
    let there =
        names.iter().zip(&contents).filter_map(|(name, content)| Some((name_of(name), content.clone()?)));
    let siblings: Arc<BTreeMap<String, Bytes>> = Arc::new(there.collect());
    let given = names.iter().zip(contents).enumerate().filter(|(at, _)| gives.contains(&(*at as u64)));
    let mut states: Vec<State> = given
        .map(|(_, (name, content))| match content {
            Some(bytes) => State::File(FileState { name: name_of(name), bytes, siblings: siblings.clone() }),
            None => State::Null,
        })
        .collect();
    if states.len() == 1 { states.remove(0) } else { State::Many(states) }
}

fn vm_file(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    let (paths, names) = (fields.texts("path")?, fields.texts("dest")?);
    let dated = dated_path(context, fields, &paths)?;
    let paths = if let Some(dated) = &dated { vec![dated.as_str()] } else { paths };
    let read = |path: &&str| Ok(context.guest.read_file(path)?.map(Bytes::from));
    let contents = paths.iter().take(names.len()).map(read).collect::<Result<Vec<_>, GetterError>>()?;
    Ok(chosen(fields, &names, contents))
}

/// The path of one file whose name has the host's date before its first dot, with `time_suffix` of the ARPO era. Verified dates
/// only the name in its cache.
fn dated_path(
    context: &Context<'_>,
    fields: &Fields<'_>,
    paths: &[&str],
) -> Result<Option<String>, GetterError> {
    let is_dated = fields.flag("time_suffix") && !fields.flag("multi");
    let mut parts = paths.iter().flat_map(|path| path.split('.'));
    let (Some(start), Some(ending), true, Generation::ArpoEra) =
        (parts.next(), parts.next(), is_dated, context.generation)
    else {
        return Ok(None);
    };
    let format = if fields.get("time_format").is_some() { fields.text("time_format")? } else { "%Y_%m_%d" };
    let date = jiff::fmt::strtime::format(format, &context.now);
    let date = date.map_err(|error| fields.wrong(format!("time_format {format:?}: {error}")))?;
    Ok(Some(format!("{start}{date}.{ending}")))
}

fn cloud_file(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    let (urls, names) = (fields.texts("path")?, fields.texts("dest")?);
    let read = |(url, name): (&&str, &&str)| {
        let content = context.cache.obtain_for_evaluator(context.task, url, name, context.deadline)?;
        Ok(Some(Bytes::from(content)))
    };
    let contents = urls.iter().zip(&names).map(read).collect::<Result<Vec<_>, GetterError>>()?;
    Ok(chosen(fields, &names, contents))
}

/// The output that an `execute` step stored; an error of the evaluation if it did not.
fn cache_file(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    let name = fields.text("path")?;
    let path = context.cache.output_path(context.task, name);
    match std::fs::read(&path) {
        Ok(content) => Ok(State::File(FileState::new(base_name(name), content))),
        Err(error) => Err(GetterError::Raises(format!("{}: {error}", path.display()))),
    }
}

fn raised(error: &MetricError) -> GetterError {
    GetterError::Raises(error.to_string())
}

/// The last row of a spreadsheet, as texts.
fn content_from_vm_file(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    let path = fields.text("path")?;
    let (kind, content) = (fields.text("file_type")?, fields.text("file_content")?);
    if kind != "xlsx" {
        return Err(GetterError::Raises(format!("file type {kind} is not supported")));
    }
    if content != "last_row" {
        return Ok(State::Null);
    }
    let bytes =
        context.guest.read_file(path)?.ok_or_else(|| GetterError::Raises(format!("no file {path}")))?;
    let book = Book::open(&bytes.into()).map_err(|error| raised(&error))?;
    let first = book.sheets.first().map(|sheet| sheet.name.clone()).unwrap_or_default();
    let frame = Frame::read(&book, &first).map_err(|error| raised(&error))?;
    let row = frame
        .and_then(|frame| frame.last_row_texts())
        .ok_or_else(|| GetterError::Raises("no last row".into()))?;
    Ok(State::Json(json!(row)))
}

/// A file of GIMP's settings; an empty one is none.
fn gimp_config_file(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    let path = format!("~/.config/GIMP/2.10/{}", fields.text("file_name")?);
    let content = context.guest.read_file(&path)?.filter(|content| !content.is_empty());
    Ok(content.map_or(State::Null, |content| {
        State::File(FileState::new(base_name(fields.text("dest").unwrap_or(&path)), content))
    }))
}

fn vlc_config(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    let content = context.guest.read_file("~/.config/vlc/vlcrc")?;
    let content = content.ok_or_else(|| GetterError::Raises("VLC has no settings file".into()))?;
    Ok(State::File(FileState::new(base_name(fields.text("dest")?), content)))
}

fn vlc_playing_info(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    let status = context.guest.vlc_status()?;
    let name = base_name(fields.text("dest")?);
    Ok(status.map_or(State::Null, |status| State::File(FileState::new(name, status))))
}

/// The wallpaper. Verified: an empty file where there is none; in the ARPO era that raises.
fn vm_wallpaper(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    let content = match (context.guest.wallpaper()?, context.generation) {
        (Some(content), _) => content,
        (None, Generation::Verified) => Vec::new(),
        (None, Generation::ArpoEra) => return Err(GetterError::Raises("no wallpaper".into())),
    };
    Ok(State::File(FileState::new(base_name(fields.text("dest")?), content)))
}

/// A file that a slide points to: inside the presentation, or by `file://` in the guest.
fn pointed_to(
    context: &Context<'_>,
    fields: &Fields<'_>,
    is_it: impl Fn(&str, &str) -> bool,
) -> Result<State, GetterError> {
    let (package, number) = presentation(context, fields)?;
    let name = format!("ppt/slides/_rels/slide{number}.xml.rels");
    if !package.has(&name) {
        return Ok(State::Null);
    }
    let text = package.xml(&name).map_err(|error| raised(&error))?;
    let document = parse(&text).map_err(|error| raised(&error))?;
    let nodes = document.root_element().children();
    let attribute =
        |node: &roxmltree::Node<'_, '_>, key: &str| node.attribute(key).unwrap_or_default().to_owned();
    let found = nodes
        .filter(roxmltree::Node::is_element)
        .find(|node| is_it(&attribute(node, "Type"), &attribute(node, "Id")));
    let Some(target) = found.map(|node| attribute(&node, "Target")) else { return Ok(State::Null) };
    if target.starts_with("..") {
        let part = resolved("ppt/slides", &target);
        let content = package.read(&part).map_err(|error| raised(&error))?;
        return Ok(State::File(FileState::new(base_name(&part), content)));
    }
    let path = target
        .strip_prefix("file://")
        .ok_or_else(|| GetterError::Raises(format!("slide points to {target}")))?;
    let content = context.guest.read_file(path)?;
    let name = base_name(fields.text("dest")?);
    Ok(content.map_or(State::Null, |content| State::File(FileState::new(name, content))))
}

fn presentation(context: &Context<'_>, fields: &Fields<'_>) -> Result<(Package, i64), GetterError> {
    let path = fields.text("ppt_file_path")?;
    let bytes =
        context.guest.read_file(path)?.ok_or_else(|| GetterError::Raises(format!("no file {path}")))?;
    Ok((Package::open(&bytes.into()).map_err(|error| raised(&error))?, fields.whole("slide_index")? + 1))
}

fn audio_in_slide(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    pointed_to(context, fields, |kind, _| kind.contains("audio"))
}

fn background_image_in_slide(context: &Context<'_>, fields: &Fields<'_>) -> Result<State, GetterError> {
    let (package, number) = presentation(context, fields)?;
    let name = format!("ppt/slides/slide{number}.xml");
    if !package.has(&name) {
        return Ok(State::Null);
    }
    let text = package.xml(&name).map_err(|error| raised(&error))?;
    let document = parse(&text).map_err(|error| raised(&error))?;
    let backgrounds = descendants(document.root(), "bgPr");
    let mut images =
        backgrounds.flat_map(|node| node.descendants()).filter(|node| node.tag_name().name() == "blip");
    let id = images.find_map(|node| {
        node.attributes().find(|one| one.name() == "embed").map(|one| one.value().to_owned())
    });
    let Some(id) = id else { return Ok(State::Null) };
    pointed_to(context, fields, |kind, other| kind.contains("image") && other == id)
}
