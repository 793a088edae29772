//! The families of models. A family is its differences: what its `config.json` says, and which tensors its files have.
//!
//! Everything else is shared: the decoder, the vision tower and their layers compute what the dimensions say
//! ([`crate::config`]). A further family is a file here, its entry in `ALL`, and a layer of its own where it has one.

mod qwen2_5_vl;
mod qwen3_vl;
mod section;
mod unsupported;

pub use section::Section;

use crate::checkpoint::layout::ParameterLayout;
use crate::config::{ModelConfig, TextConfig, VisionConfig};
use serde_json::Value;
use std::fmt::Debug;

/// A family of models.
pub trait Architecture: Debug + Send + Sync {
    /// Its `model_type` in `config.json`.
    fn model_type(&self) -> &'static str;

    /// Its class in transformers and vLLM.
    fn class(&self) -> &'static str;

    /// The language model's dimensions.
    fn text(&self, text: &Section, root: &Section) -> Result<TextConfig, String>;

    /// The vision tower's dimensions.
    fn vision(&self, vision: &Section) -> Result<VisionConfig, String>;

    /// Every parameter, in a fixed order.
    fn parameters(&self, config: &ModelConfig) -> Vec<ParameterLayout>;
}

impl PartialEq for dyn Architecture {
    fn eq(&self, other: &Self) -> bool {
        self.model_type() == other.model_type()
    }
}

static ALL: [&dyn Architecture; 2] = [&qwen2_5_vl::Qwen25Vl, &qwen3_vl::Qwen3Vl];

/// The family that a `config.json` names.
pub(crate) fn find(root: &Section) -> Result<&'static dyn Architecture, String> {
    let model_type = root.map.get("model_type").and_then(Value::as_str).unwrap_or("");
    let found = ALL.into_iter().find(|architecture| architecture.model_type() == model_type);
    found.ok_or_else(|| {
        let known: Vec<String> = ALL.iter().map(|one| format!("{:?}", one.model_type())).collect();
        let known = known.join(" or ");
        if model_type.starts_with("qwen3_5") {
            format!(
                "`model_type` is {model_type:?}: Qwen3.5 and its layers with a recurrent state are not supported, expected {known}"
            )
        } else if model_type.ends_with("_moe") {
            format!("`model_type` is {model_type:?}: mixtures of experts are not supported, expected {known}")
        } else {
            format!("`model_type` is {model_type:?}: expected {known}")
        }
    })
}

/// The three numbers of `mrope_section`: rotary frequencies of time, height and width.
fn mrope_section(text: &Section) -> Result<[usize; 3], String> {
    let rope = text.section("rope_parameters").or_else(|| text.section("rope_scaling"));
    let section = rope.as_ref().and_then(|rope| rope.map.get("mrope_section"));
    let section = section.ok_or("`mrope_section` is missing in `rope_parameters` or `rope_scaling`")?;
    serde_json::from_value(section.clone())
        .map_err(|_| format!("`mrope_section` is {section}: expected three whole numbers"))
}

/// The base of the rotary frequencies: beside `mrope_section` in transformers 5, in `text` in 4.x.
fn rope_theta(text: &Section, default: f64) -> f64 {
    let rope = text.section("rope_parameters").or_else(|| text.section("rope_scaling"));
    let theta = rope.as_ref().and_then(|rope| rope.map.get("rope_theta"));
    theta.or_else(|| text.map.get("rope_theta")).and_then(Value::as_f64).unwrap_or(default)
}

/// Whether the output head is the input embedding: transformers 5 says it in both places, 4.x in either.
fn tied_head(text: &Section, root: &Section) -> bool {
    root.flag("tie_word_embeddings").or_else(|| text.flag("tie_word_embeddings")).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use crate::config::{parse, pocket};
    use serde_json::json;

    #[test]
    fn an_unknown_family_is_refused_by_name() {
        let refused = |model_type: &str| {
            let mut value = pocket().to_json("float32");
            value["model_type"] = json!(model_type);
            parse(value).unwrap_err()
        };
        assert_eq!(
            refused("qwen2_vl"),
            "`model_type` is \"qwen2_vl\": expected \"qwen2_5_vl\" or \"qwen3_vl\""
        );
        for model_type in ["qwen3_5", "qwen3_5_moe"] {
            assert!(
                refused(model_type)
                    .contains("Qwen3.5 and its layers with a recurrent state are not supported")
            );
        }
        assert!(refused("qwen3_vl_moe").contains("mixtures of experts are not supported"));
    }
}
