//! Qwen2.5-VL, and what was trained from it (UI-TARS-1.5): `config.json` in either layout, transformers 5 (`text_config`,
//! `vision_config`, `rope_parameters`) and 4.x (flat, `rope_scaling`, defaults left out).

use super::{Architecture, Section, mrope_section, rope_theta, tied_head, unsupported};
use crate::checkpoint::layout::{Module, ParameterLayout, text};
use crate::config::{MlpKind, ModelConfig, NormKind, TextConfig, VisionConfig, Windows};
use serde_json::Value;

#[derive(Debug)]
pub(super) struct Qwen25Vl;

impl Architecture for Qwen25Vl {
    fn model_type(&self) -> &'static str {
        "qwen2_5_vl"
    }

    fn class(&self) -> &'static str {
        "Qwen2_5_VLForConditionalGeneration"
    }

    fn text(&self, text: &Section, root: &Section) -> Result<TextConfig, String> {
        unsupported::check(text)?;
        let (hidden, heads) =
            (text.dimension("hidden_size", None)?, text.dimension("num_attention_heads", None)?);
        if hidden % heads != 0 {
            return Err(format!("a hidden size of {hidden} cannot be split into {heads} heads"));
        }
        // time first, then height, then width
        let axes = |(axis, count): (usize, usize)| std::iter::repeat_n(axis, count);
        Ok(TextConfig {
            hidden,
            layers: text.dimension("num_hidden_layers", None)? as usize,
            heads,
            kv_heads: text.dimension("num_key_value_heads", None)?,
            head_width: hidden / heads,
            qkv_bias: true,
            qk_norm: false,
            intermediate: text.dimension("intermediate_size", None)?,
            vocabulary: text.dimension("vocab_size", None)?,
            norm_epsilon: text.map.get("rms_norm_eps").and_then(Value::as_f64).unwrap_or(1e-6),
            rope_theta: rope_theta(text, 1e6),
            rope_axes: mrope_section(text)?.into_iter().enumerate().flat_map(axes).collect(),
            tied_head: tied_head(text, root),
        })
    }

    /// Defaults are those of the published 7B, which 4.x leaves out of the file.
    fn vision(&self, vision: &Section) -> Result<VisionConfig, String> {
        unsupported::activation(vision, "silu")?;
        let channels = if vision.map.contains_key("in_channels") { "in_channels" } else { "in_chans" };
        let patch = if vision.map.contains_key("patch_size") { "patch_size" } else { "spatial_patch_size" };
        let (patch, merge) =
            (vision.dimension(patch, Some(14))?, vision.dimension("spatial_merge_size", Some(2))?);
        let windows = Windows {
            side: vision.dimension("window_size", Some(112))?,
            full_attention: vision.indices("fullatt_block_indexes", &[7, 15, 23, 31])?,
        };
        if windows.side < patch * merge {
            return Err(format!("a window of {} pixels holds no feature", windows.side));
        }
        Ok(VisionConfig {
            hidden: vision.dimension("hidden_size", Some(1280))?,
            blocks: vision.dimension("depth", Some(32))? as usize,
            heads: vision.dimension("num_heads", Some(16))?,
            intermediate: vision.dimension("intermediate_size", Some(3420))?,
            output: vision.dimension("out_hidden_size", Some(3584))?,
            patch,
            temporal_patch: vision.dimension("temporal_patch_size", Some(2))?,
            merge,
            channels: vision.dimension(channels, Some(3))?,
            norm: NormKind::Rms,
            mlp: MlpKind::SwiGlu,
            windows: Some(windows),
            position_table: None,
            deepstack: vec![],
        })
    }

    fn parameters(&self, config: &ModelConfig) -> Vec<ParameterLayout> {
        let mut list = Vec::new();
        vision(&config.vision, &mut list);
        text(&config.text, "model", &mut list);
        list
    }
}

fn vision(config: &VisionConfig, list: &mut Vec<ParameterLayout>) {
    let VisionConfig { hidden, output, patch, temporal_patch, channels, .. } = *config;
    let (width, padded) = (config.intermediate, config.padded_intermediate());
    let merged = hidden * config.merge * config.merge;
    let mut tower = Module::new("vision", "visual", list);
    tower.whole("patch", "patch_embed.proj.weight", &[hidden, channels, temporal_patch, patch, patch]);
    for index in 0..config.blocks {
        let mut block = Module::new(&format!("vision.{index}"), &format!("visual.blocks.{index}"), list);
        block.whole("norm1", "norm1.weight", &[hidden]);
        block.whole("qkv.weight", "attn.qkv.weight", &[3 * hidden, hidden]);
        block.whole("qkv.bias", "attn.qkv.bias", &[3 * hidden]);
        block.whole("proj.weight", "attn.proj.weight", &[hidden, hidden]);
        block.whole("proj.bias", "attn.proj.bias", &[hidden]);
        block.whole("norm2", "norm2.weight", &[hidden]);
        let gate_up =
            |kind: &str| ["gate", "up"].map(|one| (format!("mlp.{one}_proj.{kind}"), width, padded));
        block.stacked("gate_up.weight", Some(hidden), &gate_up("weight"));
        block.stacked("gate_up.bias", None, &gate_up("bias"));
        block.padded("down.weight", "mlp.down_proj.weight", [hidden, width], padded);
        block.whole("down.bias", "mlp.down_proj.bias", &[hidden]);
    }
    let mut merger = Module::new("vision.merger", "visual.merger", list);
    merger.whole("norm", "ln_q.weight", &[hidden]);
    merger.whole("0.weight", "mlp.0.weight", &[merged, merged]);
    merger.whole("0.bias", "mlp.0.bias", &[merged]);
    merger.whole("2.weight", "mlp.2.weight", &[output, merged]);
    merger.whole("2.bias", "mlp.2.bias", &[output]);
}
