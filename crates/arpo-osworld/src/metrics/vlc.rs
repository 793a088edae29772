//! Metrics on VLC: what it plays, and its settings file `vlcrc`.

use super::call::yes;
use super::{Call, Metric, Score, metric};
use crate::error::MetricError;
use crate::text::url::Address;
use crate::xml::{child, children, parse, xml_text};
use roxmltree::{Document, Node};
use serde_json::Value;

pub(super) const METRICS: &[Metric] = &[
    metric("check_global_key_play_pause", check_global_key_play_pause),
    metric("check_one_instance_when_started_from_file", check_one_instance_when_started_from_file),
    metric("check_play_and_exit", check_play_and_exit),
    metric("check_qt_bgcone", check_qt_bgcone),
    metric("check_qt_max_volume", check_qt_max_volume),
    metric("check_qt_minimal_view", check_qt_minimal_view),
    metric("check_qt_slider_colours", check_qt_slider_colours),
    metric("compare_audios", compare_audios),
    metric("is_vlc_fullscreen", is_vlc_fullscreen),
    metric("is_vlc_playing", is_vlc_playing),
    metric("is_vlc_recordings_folder", is_vlc_recordings_folder),
];

/// VLC is playing the file or the stream of the rule, by its status in XML.
fn is_vlc_playing(call: &Call<'_>) -> Score {
    let content = xml_text(&call.result.file()?.bytes)?;
    let document = parse(&content)?;
    let state = child(document.root_element(), "state");
    let state = state.ok_or_else(|| MetricError::raises("no state"))?;
    if state.text() != Some("playing") {
        return Ok(0.0);
    }
    let early = call.is_arpo_era();
    match call.rule_text("type")? {
        "file_name" => {
            let names: &[&str] =
                if early { &["filename"] } else { &["filename", "title", "uri", "location", "name"] };
            let found = information(&document, "meta", names);
            match found {
                Some(found) => Ok(yes(found.ends_with(call.rule_text("file_name")?))),
                None if early => Err(MetricError::raises("no file name")),
                None => Ok(0.0),
            }
        }
        "url" => {
            let wanted = call.rule_text("url")?;
            if early {
                let found =
                    information(&document, "meta", &["url"]).ok_or_else(|| MetricError::raises("no url"))?;
                return Ok(yes(found.ends_with(wanted)));
            }
            let found = information(&document, "meta", &["url", "URI", "location", "title", "filename"])
                .or_else(|| information(&document, "Stream 0", &["Codec", "Type", "Language"]));
            Ok(yes(found.is_some_and(|found| is_same_stream(&found, wanted))))
        }
        _ => Ok(0.0),
    }
}

/// The first of these entries of a category that has a text.
fn information(document: &Document<'_>, category: &str, names: &[&str]) -> Option<String> {
    let named = |node: &Node, tag: &str, name: &str| {
        node.tag_name().name() == tag && node.attribute("name") == Some(name)
    };
    let entry = |name: &&str| {
        let lists = children(document.root_element(), "information");
        let categories =
            lists.flat_map(|list| list.children()).filter(|node| named(node, "category", category));
        let mut entries = categories.flat_map(|one| one.children()).filter(|node| named(node, "info", name));
        entries.next()?.text().filter(|text| !text.is_empty()).map(str::to_owned)
    };
    names.iter().find_map(entry)
}

/// The address is in what VLC shows, or VLC shows its last part, or one of the same host with that path.
fn is_same_stream(found: &str, wanted: &str) -> bool {
    let address = Address::parse(wanted);
    let last = address.path.rsplit('/').next().unwrap_or_default();
    let same_host = || {
        let shown = Address::parse(found);
        found.contains("://") && shown.netloc == address.netloc && shown.path.contains(&address.path)
    };
    found.contains(wanted) || found == last || same_host()
}

fn settings_text(call: &Call<'_>) -> Result<String, MetricError> {
    let bytes = &call.result.file()?.bytes;
    String::from_utf8(bytes.to_vec()).map_err(|error| MetricError::raises(error.to_string()))
}

/// The recordings' folder; comment lines do not count here, and the first other line decides.
fn is_vlc_recordings_folder(call: &Call<'_>) -> Score {
    let wanted = call.rule_text("recording_file_path")?;
    let content = settings_text(call)?;
    let mut lines = content.split('\n').filter(|line| !line.starts_with('#'));
    let line = lines.find(|line| line.contains("input-record-path"));
    Ok(yes(line.is_some_and(|line| last_part(line) == wanted)))
}

fn last_part(line: &str) -> &str {
    line.rsplit('=').next().unwrap_or_default().trim()
}

/// The value of the last line with the key, comments included, or VLC's default.
fn setting(call: &Call<'_>, key: &str, default: &str) -> Result<String, MetricError> {
    let content = settings_text(call)?;
    let last = content.split('\n').rfind(|line| line.contains(key));
    Ok(last.map_or(default, last_part).to_owned())
}

/// A setting equal to the rule's value, given as a number or a text.
fn is_set(call: &Call<'_>, field: &str, found: &str) -> Score {
    let wanted = match call.rule_field(field)? {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_i64() => number.to_string(),
        Value::Bool(truth) => crate::text::python::to_text(&Value::Bool(*truth)),
        _ => return Ok(0.0),
    };
    Ok(yes(found == wanted))
}

fn check_qt_bgcone(call: &Call<'_>) -> Score {
    is_set(call, "expected_qt_bgcone", &setting(call, "qt-bgcone=", "1")?)
}

fn check_qt_max_volume(call: &Call<'_>) -> Score {
    is_set(call, "expected_qt_max_volume", &setting(call, "qt-max-volume=", "125")?)
}

fn check_qt_minimal_view(call: &Call<'_>) -> Score {
    is_set(call, "expected_qt_minimal_view", &setting(call, "qt-minimal-view=", "0")?)
}

fn check_one_instance_when_started_from_file(call: &Call<'_>) -> Score {
    let found = setting(call, "one-instance-when-started-from-file=", "1")?;
    is_set(call, "expected_one_instance_when_started_from_file", &found)
}

/// Verified: whether VLC ends after playing.
fn check_play_and_exit(call: &Call<'_>) -> Score {
    is_set(call, "expected_play_and_exit", &setting(call, "play-and-exit=", "0")?)
}

/// Whether a key is set, whichever.
fn check_global_key_play_pause(call: &Call<'_>) -> Score {
    let found = setting(call, "global-key-play-pause=", "")?;
    is_set(call, "expected_global_key_play_pause", if found.is_empty() { "0" } else { "1" })
}

/// The colours of the volume slider: a given text, or all of them blackish, below 100 each.
fn check_qt_slider_colours(call: &Call<'_>) -> Score {
    let found = setting(call, "qt-slider-colours", "153;210;153;20;210;20;255;199;15;245;39;29")?;
    match call.rule_text("type")? {
        "match" => Ok(yes(call.rule_field("expected_qt_slider_colours")? == &Value::String(found))),
        "blackish" => {
            let values: Option<Vec<i64>> = found.split(';').map(|part| part.trim().parse().ok()).collect();
            let Some(values) = values else { return Ok(0.0) };
            let whole = values.len() / 3 * 3;
            Ok(yes(values[..whole].iter().all(|value| *value < 100)))
        }
        _ => Err(MetricError::raises("the rule's type is neither match nor blackish")),
    }
}

/// The window is as large as the screen. ARPO era: one that is not there raises.
fn is_vlc_fullscreen(call: &Call<'_>) -> Score {
    if !call.is_arpo_era() && (call.result.is_none() || call.expected()?.is_none()) {
        return Ok(0.0);
    }
    let (window, screen) = (call.result.json()?, call.expected()?.json()?);
    let side = |value: &Value, name: &str| {
        value.get(name).and_then(Value::as_f64).ok_or_else(|| MetricError::raises(format!("no {name}")))
    };
    let same_width = side(window, "width")?.total_cmp(&side(screen, "width")?).is_eq();
    Ok(yes(same_width && side(window, "height")?.total_cmp(&side(screen, "height")?).is_eq()))
}

/// The similarity of two recordings.
///
/// ARPO era: the distance is not divided by the path's length, and an unreadable file raises. Verified: two
/// unreadable files are alike, one is not.
fn compare_audios(call: &Call<'_>) -> Score {
    if call.lacks_a_file()? {
        return Ok(0.0);
    }
    let read = |state: &crate::state::State| -> Result<Vec<f32>, MetricError> {
        crate::sound::decode::load(&state.file()?.bytes)
    };
    let (first, second) = (read(call.result), read(call.expected()?));
    if call.is_arpo_era() {
        let (distance, _) = crate::sound::distance(&first?, &second?);
        return Ok((-distance).exp());
    }
    let usable = |samples: Result<Vec<f32>, MetricError>| samples.ok().filter(|samples| !samples.is_empty());
    match (usable(first), usable(second)) {
        (None, None) => Ok(1.0),
        (Some(first), Some(second)) => {
            let (distance, length) = crate::sound::distance(&first, &second);
            Ok((-distance / length as f64).exp())
        }
        _ => Ok(0.0),
    }
}
