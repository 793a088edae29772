//! Configuration values that are not supported. They are rejected by name: ignoring them would give wrong results
//! without an error.

use super::Section;
use serde_json::Value;

/// An error that names the first key of the language model with an unsupported value.
pub(super) fn check(text: &Section) -> Result<(), String> {
    activation(text, "silu")?;
    sliding_window(text)?;
    for name in ["rope_parameters", "rope_scaling"] {
        if let Some(rope) = text.section(name) {
            rotary_scaling(text, &rope)?;
        }
    }
    Ok(())
}

/// An error unless the activation, if it is named, is the family's.
pub(super) fn activation(section: &Section, expected: &str) -> Result<(), String> {
    match section.map.get("hidden_act") {
        None => Ok(()),
        Some(value) if value == expected => Ok(()),
        Some(value) => Err(format!("`{}` is {value}: expected {expected:?}", section.path("hidden_act"))),
    }
}

/// `sliding_window` alone has no effect: published models set it without using it.
fn sliding_window(text: &Section) -> Result<(), String> {
    if text.flag("use_sliding_window") == Some(true) {
        let path = text.path("use_sliding_window");
        return Err(format!("`{path}` is true: sliding windows are not supported, expected false"));
    }
    let layers = text.map.get("layer_types").and_then(Value::as_array).into_iter().flatten();
    match layers.into_iter().find(|kind| *kind != "full_attention") {
        None => Ok(()),
        Some(kind) => {
            Err(format!("`{}` has {kind}: expected only \"full_attention\"", text.path("layer_types")))
        }
    }
}

/// Longer contexts by scaled frequencies (`YaRN`, linear, dynamic). Multimodal rotary positions are not a scaling,
/// although 4.x lists them as one.
fn rotary_scaling(text: &Section, rope: &Section) -> Result<(), String> {
    for key in ["rope_type", "type"] {
        let kind = rope.map.get(key);
        if let Some(kind) = kind.filter(|&kind| *kind != "default" && *kind != "mrope") {
            let path = text.path(&format!("{}.{key}", rope.name));
            return Err(format!("`{path}` is {kind}: rotary scaling is not supported, expected \"default\""));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::config::{parse, pocket};
    use serde_json::{Value, json};

    fn rejected(change: impl FnOnce(&mut Value)) -> String {
        let mut value = pocket().to_json("float32");
        change(&mut value);
        parse(value).unwrap_err()
    }

    #[test]
    fn unsupported_values_are_rejected_by_name() {
        let yarn = rejected(|config| config["text_config"]["rope_parameters"]["rope_type"] = json!("yarn"));
        assert_eq!(
            yarn,
            "`text_config.rope_parameters.rope_type` is \"yarn\": rotary scaling is not supported, expected \"default\""
        );
        let sliding = rejected(|config| config["text_config"]["use_sliding_window"] = json!(true));
        assert!(sliding.starts_with("`text_config.use_sliding_window` is true"), "{sliding}");
        let layers = rejected(|config| {
            config["text_config"]["layer_types"] = json!(["full_attention", "sliding_attention"]);
        });
        assert!(layers.starts_with("`text_config.layer_types` has \"sliding_attention\""), "{layers}");
        let act = rejected(|config| config["vision_config"]["hidden_act"] = json!("quick_gelu"));
        assert_eq!(act, "`vision_config.hidden_act` is \"quick_gelu\": expected \"silu\"");
    }

    /// Published files set all of these to supported values.
    #[test]
    fn values_of_published_models_are_accepted() {
        let mut value = pocket().to_json("float32");
        let text = &mut value["text_config"];
        text["use_sliding_window"] = json!(false);
        text["sliding_window"] = json!(32768);
        text["hidden_act"] = json!("silu");
        text["layer_types"] = json!(vec!["full_attention"; 4]);
        let section = text["rope_parameters"]["mrope_section"].clone();
        text["rope_scaling"] = json!({"type": "mrope", "mrope_section": section});
        assert!(parse(value).is_ok());
    }
}
