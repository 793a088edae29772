//! The configuration reference, generated from the schema, so that it cannot differ from the code.

use super::{Layer, check, presets, resolve};
use serde_json::Value as Json;
use std::fmt::Write;

/// `docs/configuration.md`, whole.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Configuration\n\n\
         Generated from the program's own types: `arpo config reference > docs/configuration.md`.\n\n\
         Layers, in this order, later ones override earlier ones: the defaults below, `--preset NAME`, `--config FILE.toml` \
         (may be repeated), `--set key=value` (may be repeated). `arpo train --dry-run` prints the resolved configuration, \
         as TOML or with `--json`.\n\n",
    );
    let names: Vec<String> = presets::PRESETS.iter().map(|(name, _)| format!("`{name}`")).collect();
    let default = presets::PRESETS[0].0;
    let _ = writeln!(
        page,
        "Presets: {}; see `configs/`. Without `--preset` a run uses `{default}`; the third column shows its values where \
         they differ from the defaults.\n",
        names.join(", ")
    );
    let preset =
        Layer::preset(default).and_then(|layer| resolve(&[layer])).expect("shipped presets are tested");
    let preset = serde_json::to_value(preset).expect("a configuration can be written as JSON");
    section(&mut page, "", check::schema().as_value(), &preset);
    page
}

fn section(page: &mut String, path: &str, schema: &Json, preset: &Json) {
    let is_section = |schema: &Json| schema.get("properties").is_some();
    let (sections, keys): (Vec<_>, Vec<_>) =
        check::properties(schema).into_iter().partition(|(_, schema)| is_section(schema));
    if !keys.is_empty() {
        let title = if path.is_empty() { "Top level".to_owned() } else { format!("`[{path}]`") };
        let _ = writeln!(page, "## {title}\n\n{}\n", description(schema));
        let _ = writeln!(
            page,
            "| key | default | `{}` | takes | meaning |\n|---|---|---|---|---|",
            presets::PRESETS[0].0
        );
        for (name, schema) in keys {
            let (default, takes, meaning) = (&schema["default"], takes(schema), description(schema));
            let changed =
                if &preset[name] == default { String::new() } else { format!("`{}`", preset[name]) };
            let _ = writeln!(page, "| `{name}` | `{default}` | {changed} | {takes} | {meaning} |");
        }
        page.push('\n');
    }
    for (name, schema) in sections {
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        section(page, &path, schema, &preset[name]);
    }
}

fn takes(schema: &Json) -> String {
    let choices = check::choices(schema);
    if choices.is_empty() {
        return check::expected(schema);
    }
    let each = |(choice, meaning): &(&str, &str)| format!("`\"{choice}\"`: {}", one_line(meaning));
    choices.iter().map(each).collect::<Vec<_>>().join("<br>")
}

fn description(schema: &Json) -> String {
    one_line(schema["description"].as_str().unwrap_or(""))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
