//! Qwen3-VL, dense, and what was trained from it (GUI-Owl-1.5, EvoCUA, Holo2): heads with a width of their own, queries
//! and keys normed, interleaved M-RoPE; a vision tower with learned positions and DeepStack.

use super::{Architecture, Section, mrope_section, rope_theta, tied_head, unsupported};
use crate::checkpoint::layout::{Module, ParameterLayout, text};
use crate::config::{MlpKind, ModelConfig, NormKind, TextConfig, VisionConfig};
use serde_json::Value;

#[derive(Debug)]
pub(super) struct Qwen3Vl;

impl Architecture for Qwen3Vl {
    fn model_type(&self) -> &'static str {
        "qwen3_vl"
    }

    fn class(&self) -> &'static str {
        "Qwen3VLForConditionalGeneration"
    }

    fn text(&self, text: &Section, root: &Section) -> Result<TextConfig, String> {
        unsupported::check(text)?;
        if text.flag("attention_bias") == Some(true) {
            let path = text.path("attention_bias");
            return Err(format!("`{path}` is true: a bias of queries, keys and values is not supported"));
        }
        Ok(TextConfig {
            hidden: text.dimension("hidden_size", None)?,
            layers: text.dimension("num_hidden_layers", None)? as usize,
            heads: text.dimension("num_attention_heads", None)?,
            kv_heads: text.dimension("num_key_value_heads", None)?,
            head_width: text.dimension("head_dim", Some(128))?,
            qkv_bias: false,
            qk_norm: true,
            intermediate: text.dimension("intermediate_size", None)?,
            vocabulary: text.dimension("vocab_size", None)?,
            norm_epsilon: text.map.get("rms_norm_eps").and_then(Value::as_f64).unwrap_or(1e-6),
            rope_theta: rope_theta(text, 5e6),
            rope_axes: interleaved(mrope_section(text)?),
            tied_head: tied_head(text, root),
        })
    }

    /// Defaults are those of the published 8B.
    fn vision(&self, vision: &Section) -> Result<VisionConfig, String> {
        unsupported::activation(vision, "gelu_pytorch_tanh")?;
        let positions = vision.dimension("num_position_embeddings", Some(2304))?;
        let side = positions.isqrt();
        if side * side != positions {
            let path = vision.path("num_position_embeddings");
            return Err(format!("`{path}` is {positions}: expected a square number"));
        }
        Ok(VisionConfig {
            hidden: vision.dimension("hidden_size", Some(1152))?,
            blocks: vision.dimension("depth", Some(27))? as usize,
            heads: vision.dimension("num_heads", Some(16))?,
            intermediate: vision.dimension("intermediate_size", Some(4304))?,
            output: vision.dimension("out_hidden_size", Some(4096))?,
            patch: vision.dimension("patch_size", Some(16))?,
            temporal_patch: vision.dimension("temporal_patch_size", Some(2))?,
            merge: vision.dimension("spatial_merge_size", Some(2))?,
            channels: vision.dimension("in_channels", Some(3))?,
            norm: NormKind::Layer,
            mlp: MlpKind::GeluTanh,
            windows: None,
            position_table: Some(side),
            deepstack: vision.indices("deepstack_visual_indexes", &[8, 16, 24])?,
        })
    }

    fn parameters(&self, config: &ModelConfig) -> Vec<ParameterLayout> {
        let mut list = Vec::new();
        vision(&config.vision, &mut list);
        text(&config.text, "model.language_model", &mut list);
        list
    }
}

/// Every third frequency rotates by height and every third by width, as far as their sections reach; the others by time.
fn interleaved([time, height, width]: [usize; 3]) -> Vec<usize> {
    let axis = |index: usize| match index % 3 {
        1 if index < 3 * height => 1,
        2 if index < 3 * width => 2,
        _ => 0,
    };
    (0..time + height + width).map(axis).collect()
}

fn vision(config: &VisionConfig, list: &mut Vec<ParameterLayout>) {
    const TOWER: &str = "model.visual";
    let VisionConfig { hidden, output, patch, temporal_patch, channels, .. } = *config;
    let (width, padded) = (config.intermediate, config.padded_intermediate());
    let merged = hidden * config.merge * config.merge;
    let mut tower = Module::new("vision", TOWER, list);
    tower.whole("patch", "patch_embed.proj.weight", &[hidden, channels, temporal_patch, patch, patch]);
    tower.whole("patch.bias", "patch_embed.proj.bias", &[hidden]);
    if let Some(side) = config.position_table {
        tower.whole("positions", "pos_embed.weight", &[side * side, hidden]);
    }
    for index in 0..config.blocks {
        let mut block = Module::new(&format!("vision.{index}"), &format!("{TOWER}.blocks.{index}"), list);
        block.whole("norm1", "norm1.weight", &[hidden]);
        block.whole("norm1.bias", "norm1.bias", &[hidden]);
        block.whole("qkv.weight", "attn.qkv.weight", &[3 * hidden, hidden]);
        block.whole("qkv.bias", "attn.qkv.bias", &[3 * hidden]);
        block.whole("proj.weight", "attn.proj.weight", &[hidden, hidden]);
        block.whole("proj.bias", "attn.proj.bias", &[hidden]);
        block.whole("norm2", "norm2.weight", &[hidden]);
        block.whole("norm2.bias", "norm2.bias", &[hidden]);
        block.stacked("up.weight", Some(hidden), &[("mlp.linear_fc1.weight".into(), width, padded)]);
        block.stacked("up.bias", None, &[("mlp.linear_fc1.bias".into(), width, padded)]);
        block.padded("down.weight", "mlp.linear_fc2.weight", [hidden, width], padded);
        block.whole("down.bias", "mlp.linear_fc2.bias", &[hidden]);
    }
    let mut merger = |memory: String, file: String, normed: i64| {
        let mut merger = Module::new(&memory, &file, list);
        merger.whole("norm", "norm.weight", &[normed]);
        merger.whole("norm.bias", "norm.bias", &[normed]);
        merger.whole("0.weight", "linear_fc1.weight", &[merged, merged]);
        merger.whole("0.bias", "linear_fc1.bias", &[merged]);
        merger.whole("2.weight", "linear_fc2.weight", &[output, merged]);
        merger.whole("2.bias", "linear_fc2.bias", &[output]);
    };
    merger("vision.merger".into(), format!("{TOWER}.merger"), hidden);
    for level in 0..config.deepstack.len() {
        merger(format!("vision.deepstack.{level}"), format!("{TOWER}.deepstack_merger_list.{level}"), merged);
    }
}

#[cfg(test)]
mod tests {
    use super::interleaved;

    /// The published sections: height and width alternate with time up to the sixtieth frequency.
    #[test]
    fn axes_are_interleaved() {
        let axes = interleaved([24, 20, 20]);
        assert_eq!(axes[..7], [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(axes[57..], [0, 1, 2, 0, 0, 0, 0]);
        assert_eq!([0, 1, 2].map(|axis| axes.iter().filter(|&&one| one == axis).count()), [24, 20, 20]);
        assert_eq!(interleaved([5, 4, 3]), [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 0]);
    }
}
