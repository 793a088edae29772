//! Layers of configuration, and how they are merged.

use super::{Config, ConfigError, check, presets};
use toml::{Table, Value};

/// Keys of earlier versions that have no meaning any more: the configurations stored in run folders still have them.
const RETIRED: [(&str, &str); 1] = [("osworld", "python")];

/// Keys of `[tasks]` that say where the training tasks come from.
const SOURCES: [&str; 4] = ["files", "list", "generated", "endless"];

/// One layer, with the name it has in error messages.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    name: String,
    table: Table,
    is_preset: bool,
}

impl Layer {
    /// A preset by name.
    pub fn preset(name: &str) -> Result<Self, ConfigError> {
        let Some(texts) = presets::preset(name) else {
            let known: Vec<&str> = presets::PRESETS.iter().map(|(known, _)| *known).collect();
            let problem = format!("there is no preset {name:?}: expected one of {}", known.join(", "));
            return Err(ConfigError { layer: "--preset".into(), problem });
        };
        let mut preset = Self { name: format!("preset {name}"), table: Table::new(), is_preset: true };
        for text in texts {
            merge(&mut preset.table, Self::toml(&preset.name, text)?.table);
        }
        Ok(preset)
    }

    /// TOML text; `name` is the file's.
    pub fn toml(name: &str, text: &str) -> Result<Self, ConfigError> {
        let mut table = text.parse::<Table>().map_err(|error| {
            let before = &text[..error.span().map_or(0, |span| span.start)];
            let line = before.matches('\n').count() + 1;
            let message = error.message().replace('\n', ", ");
            ConfigError { layer: name.into(), problem: format!("line {line} is not TOML: {message}") }
        })?;
        for (section, key) in RETIRED {
            if let Some(Value::Table(section)) = table.get_mut(section) {
                section.remove(key);
            }
        }
        Ok(Self { name: name.into(), table, is_preset: false })
    }

    /// `a.b=c`: the value is read as TOML where it can be, as plain text otherwise.
    pub fn set(assignment: &str) -> Result<Self, ConfigError> {
        // an error is one line, whatever the input
        let name = format!("--set {}", assignment.replace(char::is_control, " "));
        let wrong = |problem: &str| ConfigError { layer: name.clone(), problem: problem.into() };
        let (path, text) = assignment.split_once('=').ok_or_else(|| wrong("expected key=value"))?;
        let keys: Vec<&str> = path.split('.').map(str::trim).collect();
        if keys.iter().any(|key| key.is_empty()) {
            return Err(wrong("expected key=value with a key like loss.clip_high"));
        }
        let value = format!("value = {text}").parse::<Table>().ok().and_then(|mut table| {
            // text that closes the value and then defines further keys is a plain string, not TOML
            if table.len() == 1 { table.remove("value") } else { None }
        });
        let mut value = value.unwrap_or_else(|| Value::String(text.trim().into()));
        for key in keys.into_iter().rev() {
            value = Value::Table(Table::from_iter([(key.to_owned(), value)]));
        }
        let Value::Table(table) = value else { unreachable!("split yields at least one key") };
        Ok(Self { name, table, is_preset: false })
    }

    /// The same with another name: that of the option through which it was given.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: name.replace(char::is_control, " "), ..self }
    }
}

/// Merges the layers over the defaults; later layers override earlier ones, and a preset's source of tasks gives way to any
/// other that is named.
pub fn resolve(layers: &[Layer]) -> Result<Config, ConfigError> {
    let mut merged = Table::new();
    // sources of tasks that so far only a preset has set
    let mut preset_sources: Vec<&str> = vec![];
    for layer in layers {
        let mut table = layer.table.clone();
        check::wrap_lists(&mut table);
        check::against_schema(&table)
            .map_err(|problem| ConfigError { layer: layer.name.clone(), problem })?;
        let sets = |key: &str| tasks_of(&table).is_some_and(|tasks| tasks.contains_key(key));
        if layer.is_preset {
            preset_sources.extend(SOURCES.into_iter().filter(|key| sets(key)));
        } else {
            preset_sources.retain(|key| !sets(key));
            let replaced = replaced_sources(&table);
            if let Some(Value::Table(tasks)) = merged.get_mut("tasks") {
                for key in preset_sources.extract_if(.., |key| replaced.contains(key)) {
                    tasks.remove(key);
                }
            }
        }
        merge(&mut merged, table);
    }
    let whole = |problem: String| ConfigError { layer: "configuration".into(), problem };
    let config: Config = Value::Table(merged).try_into().map_err(|error: toml::de::Error| {
        // the schema accepted what the types reject; still one line
        whole(error.message().replace('\n', ", "))
    })?;
    config.check_combinations().map_err(whole)?;
    Ok(config)
}

fn tasks_of(table: &Table) -> Option<&Table> {
    table.get("tasks").and_then(Value::as_table)
}

/// The sources of a preset that a layer replaces: all if it names one, those of generated tasks if it wants a number of the
/// listed ones or a suite without templates.
fn replaced_sources(table: &Table) -> &'static [&'static str] {
    let is_named = |value: &Value| match value {
        Value::String(text) => !text.is_empty(),
        Value::Integer(count) => *count > 0,
        Value::Boolean(wanted) => *wanted,
        _ => false,
    };
    let names = |key: &str| tasks_of(table).and_then(|tasks| tasks.get(key)).is_some_and(is_named);
    let suite = tasks_of(table).and_then(|tasks| tasks.get("suite")).and_then(Value::as_str);
    if SOURCES.into_iter().any(names) {
        &SOURCES
    } else if names("count") || suite == Some("osworld") {
        &["generated", "endless"]
    } else {
        &[]
    }
}

fn merge(below: &mut Table, above: Table) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => merge(below, above),
            (_, value) => {
                below.insert(key, value);
            }
        }
    }
}
