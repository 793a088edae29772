//! A model's dimensions, from `config.json`: the parts that its architecture reads ([`crate::architecture`]), and those
//! that all have in common.

use crate::ModelError;
use crate::architecture::{self, Architecture, Section};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;

/// Everything that decides shapes and arithmetic.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// The family the model belongs to.
    pub architecture: &'static dyn Architecture,
    /// The language model.
    pub text: TextConfig,
    /// The vision tower.
    pub vision: VisionConfig,
    /// Placeholder for one feature of an image.
    pub image_token: u32,
    /// Placeholder for one feature of a video.
    pub video_token: u32,
    /// Opens an image.
    pub vision_start_token: u32,
    /// Closes an image.
    pub vision_end_token: u32,
    /// The file as it was read, so that fields we do not use are saved again.
    source: Map<String, Value>,
}

/// The language model: a decoder with grouped-query attention, M-RoPE and gated MLPs.
#[derive(Debug, Clone, PartialEq)]
pub struct TextConfig {
    /// Width of a hidden state.
    pub hidden: i64,
    /// Decoder layers.
    pub layers: usize,
    /// Attention heads.
    pub heads: i64,
    /// Key and value heads, each shared by a group of attention heads (GQA).
    pub kv_heads: i64,
    /// Width of a head.
    pub head_width: i64,
    /// Whether queries, keys and values have a bias.
    pub qkv_bias: bool,
    /// Whether every head of queries and keys is normed before RoPE.
    pub qk_norm: bool,
    /// Width inside the gated MLP.
    pub intermediate: i64,
    /// Size of the vocabulary.
    pub vocabulary: i64,
    /// Added to the variance in norms.
    pub norm_epsilon: f64,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// The axis that each rotary frequency rotates by: time, height or width.
    pub rope_axes: Vec<usize>,
    /// The output head is the input embedding.
    pub tied_head: bool,
}

impl TextConfig {
    /// The widths of its blocks.
    pub fn block_widths(&self) -> BlockWidths {
        BlockWidths {
            hidden: self.hidden,
            queries: self.heads * self.head_width,
            keys: self.kv_heads * self.head_width,
            inner: 2 * self.intermediate,
            heads: self.heads,
            qk_norm: self.qk_norm,
        }
    }
}

/// The vision tower: blocks of attention and MLP over patches, and a merger of patches into features.
#[derive(Debug, Clone, PartialEq)]
pub struct VisionConfig {
    /// Width of a hidden state.
    pub hidden: i64,
    /// Blocks.
    pub blocks: usize,
    /// Attention heads.
    pub heads: i64,
    /// Width inside the MLP.
    pub intermediate: i64,
    /// Width of a feature handed to the language model.
    pub output: i64,
    /// Side of a patch, in pixels.
    pub patch: i64,
    /// Frames in a patch; an image is repeated to fill them.
    pub temporal_patch: i64,
    /// Patches per side that become one feature.
    pub merge: i64,
    /// Colour channels.
    pub channels: i64,
    /// The kind of its norms.
    pub norm: NormKind,
    /// The kind of its MLPs.
    pub mlp: MlpKind,
    /// Attention within windows, except in some blocks; without it all blocks see the whole image.
    pub windows: Option<Windows>,
    /// Side of the table of learned positions, which are interpolated to the image's size and added to its patches.
    pub position_table: Option<i64>,
    /// Blocks whose output is merged into features of their own, which the decoder adds after its first layers
    /// (DeepStack).
    pub deepstack: Vec<usize>,
}

/// Windowed attention.
#[derive(Debug, Clone, PartialEq)]
pub struct Windows {
    /// Side of a window, in pixels.
    pub side: i64,
    /// Blocks whose attention sees the whole image.
    pub full_attention: Vec<usize>,
}

/// Kinds of norms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormKind {
    /// x / rms(x) * w.
    Rms,
    /// (x - mean) / deviation * w + b.
    Layer,
}

/// Kinds of MLPs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MlpKind {
    /// silu(gate) * up.
    SwiGlu,
    /// GELU in its tanh form.
    GeluTanh,
}

impl VisionConfig {
    /// Width of a head.
    pub fn head_width(&self) -> i64 {
        self.hidden / self.heads
    }

    /// Values in a patch of one frame.
    pub fn patch_values(&self) -> i64 {
        self.channels * self.patch * self.patch
    }

    /// Tensors of features of an image, each as wide as a hidden state of the language model: those in place of its
    /// placeholders, and what DeepStack adds after the first layers.
    pub fn levels(&self) -> usize {
        1 + self.deepstack.len()
    }

    /// Width inside the MLP in memory, padded for tensor cores; gate and up are side by side.
    pub fn inner(&self) -> i64 {
        let projections = match self.mlp {
            MlpKind::SwiGlu => 2,
            MlpKind::GeluTanh => 1,
        };
        projections * self.padded_intermediate()
    }

    /// Width of one projection inside the MLP, padded for tensor cores.
    pub(crate) fn padded_intermediate(&self) -> i64 {
        /// Tensor cores need widths that are multiples of this.
        const WIDTH_MULTIPLE: i64 = 8;
        (self.intermediate + WIDTH_MULTIPLE - 1) / WIDTH_MULTIPLE * WIDTH_MULTIPLE
    }

    /// The widths of its blocks.
    pub fn block_widths(&self) -> BlockWidths {
        let Self { hidden, heads, .. } = *self;
        BlockWidths { hidden, queries: hidden, keys: hidden, inner: self.inner(), heads, qk_norm: false }
    }
}

/// The widths of a transformer block's activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockWidths {
    /// Of a hidden state.
    pub hidden: i64,
    /// Of all heads' queries.
    pub queries: i64,
    /// Of all heads' keys, and of their values.
    pub keys: i64,
    /// Inside the MLP, gate and up together.
    pub inner: i64,
    /// Heads of queries.
    pub heads: i64,
    /// Queries and keys are normed, so that the backward pass needs them before and after.
    pub qk_norm: bool,
}

/// The published 7B; UI-TARS-1.5-7B has the same shapes.
pub fn qwen2_5_vl_7b() -> ModelConfig {
    let text = json!({
        "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
        "intermediate_size": 18944, "vocab_size": 152_064, "rms_norm_eps": 1e-6,
        "rope_parameters": {"mrope_section": [16, 24, 24], "rope_theta": 1e6, "rope_type": "default"},
    });
    // in full: transformers' default is another hidden size
    let vision = json!({
        "depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "out_hidden_size": 3584,
        "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 112,
        "fullatt_block_indexes": [7, 15, 23, 31],
    });
    parse(json!({"model_type": "qwen2_5_vl", "text_config": text, "vision_config": vision}))
        .expect("a published model")
}

/// The published Qwen3-VL 8B; EvoCUA-8B has the same shapes.
pub fn qwen3_vl_8b() -> ModelConfig {
    let text = json!({
        "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
        "intermediate_size": 12288, "vocab_size": 151_936, "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "mrope_section": [24, 20, 20], "mrope_interleaved": true, "rope_theta": 5e6, "rope_type": "default",
        },
    });
    let vision = json!({
        "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "out_hidden_size": 4096,
        "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2, "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [8, 16, 24],
    });
    parse(json!({"model_type": "qwen3_vl", "text_config": text, "vision_config": vision}))
        .expect("a published model")
}

/// The smallest model that can read the embedded desktop: 1.7 million parameters.
pub fn pocket() -> ModelConfig {
    let text = json!({
        "hidden_size": 160, "num_hidden_layers": 4, "num_attention_heads": 5, "num_key_value_heads": 1,
        "intermediate_size": 416, "vocab_size": 1280, "rms_norm_eps": 1e-6, "tie_word_embeddings": true,
        "rope_parameters": {"mrope_section": [4, 6, 6], "rope_theta": 1e4, "rope_type": "default"},
    });
    let vision = json!({
        "hidden_size": 112, "depth": 2, "num_heads": 4, "intermediate_size": 224, "out_hidden_size": 160,
        "fullatt_block_indexes": [0, 1],
    });
    small("qwen2_5_vl", &text, &vision)
}

/// A model for the desktop profile of the embedded desktop: 14 million parameters.
pub fn desktop() -> ModelConfig {
    let text = json!({
        "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6, "num_key_value_heads": 2,
        "intermediate_size": 1024, "vocab_size": 4096, "rms_norm_eps": 1e-6, "tie_word_embeddings": true,
        "rope_parameters": {"mrope_section": [8, 12, 12], "rope_theta": 1e4, "rope_type": "default"},
    });
    let vision = json!({
        "hidden_size": 192, "depth": 4, "num_heads": 6, "intermediate_size": 576, "out_hidden_size": 384,
        "fullatt_block_indexes": [1, 3],
    });
    small("qwen2_5_vl", &text, &vision)
}

/// The same as a Qwen3-VL: 2.6 million parameters. Patches of 14 pixels, so that no screen of the pocket suite is resized.
pub fn pocket_qwen3() -> ModelConfig {
    let text = json!({
        "hidden_size": 160, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 48,
        "intermediate_size": 416, "vocab_size": 1280, "rms_norm_eps": 1e-6, "tie_word_embeddings": true,
        "rope_parameters": {
            "mrope_section": [8, 8, 8], "mrope_interleaved": true, "rope_theta": 1e4, "rope_type": "default",
        },
    });
    let vision = json!({
        "hidden_size": 112, "depth": 3, "num_heads": 4, "intermediate_size": 224, "out_hidden_size": 160,
        "patch_size": 14, "num_position_embeddings": 144, "deepstack_visual_indexes": [0, 1],
    });
    let mut config = small("qwen3_vl", &text, &vision);
    // where transformers reads it for this family
    config.source.insert("tie_word_embeddings".into(), json!(true));
    config
}

fn small(model_type: &str, text: &Value, vision: &Value) -> ModelConfig {
    let config = json!({"model_type": model_type, "text_config": text, "vision_config": vision});
    parse_with_own_tokens(config).expect("a model of our own")
}

/// A configuration from its JSON, for a model with our own tokenizer.
pub fn parse_with_own_tokens(mut value: Value) -> Result<ModelConfig, String> {
    let own = [
        ("image_token_id", 5),
        ("video_token_id", 6),
        ("vision_start_token_id", 7),
        ("vision_end_token_id", 8),
    ];
    let others = ["bos_token_id", "eos_token_id", "pad_token_id", "vision_token_id"];
    // those of another tokenizer would be saved with the model
    for key in own.map(|(key, _)| key).into_iter().chain(others) {
        for section in ["", "/text_config"] {
            if let Some(Value::Object(section)) = value.pointer_mut(section) {
                section.remove(key);
            }
        }
    }
    if let Value::Object(config) = &mut value {
        config.extend(own.map(|(key, id)| (key.to_owned(), json!(id))));
    }
    parse(value)
}

/// Reads `config.json` of a folder.
pub fn read(folder: &Path) -> Result<ModelConfig, ModelError> {
    let path = folder.join("config.json");
    let text = fs::read_to_string(&path).map_err(ModelError::io(&path))?;
    let value: Value =
        serde_json::from_str(&text).map_err(|error| ModelError::file(&path, format!("not JSON: {error}")))?;
    parse(value).map_err(|problem| ModelError::file(&path, problem))
}

/// A configuration from its JSON.
pub fn parse(value: Value) -> Result<ModelConfig, String> {
    let Value::Object(source) = value else { return Err("expected a JSON object".into()) };
    let root = Section::root(&source);
    let architecture = architecture::find(&root)?;
    // 4.x of transformers may keep the language model's values at the top
    let text = root.section("text_config").unwrap_or(Section::root(&source));
    let vision = root.section("vision_config").ok_or("`vision_config` is missing")?;
    let config = ModelConfig {
        architecture,
        text: architecture.text(&text, &root)?,
        vision: architecture.vision(&vision)?,
        image_token: root.token("image_token_id", 151_655)?,
        video_token: root.token("video_token_id", 151_656)?,
        vision_start_token: root.token("vision_start_token_id", 151_652)?,
        vision_end_token: root.token("vision_end_token_id", 151_653)?,
        source: source.clone(),
    };
    config.check()?;
    Ok(config)
}

impl ModelConfig {
    /// Checks the constraints that the shapes rely on.
    fn check(&self) -> Result<(), String> {
        let ModelConfig { text, vision, .. } = self;
        let rule = |holds: bool, problem: String| if holds { Ok(()) } else { Err(problem) };
        let (heads, groups, width) = (text.heads, text.kv_heads, text.head_width);
        rule(width % 2 == 0, format!("a head has a width of {width}: expected an even number"))?;
        rule(heads % groups == 0, format!("{heads} heads cannot share {groups} key and value heads"))?;
        let (frequencies, half) = (text.rope_axes.len() as i64, width / 2);
        rule(
            frequencies == half,
            format!("`mrope_section` has {frequencies} frequencies: expected half a head, {half}"),
        )?;
        let (hidden, heads) = (vision.hidden, vision.heads);
        rule(
            hidden % heads == 0 && (hidden / heads) % 4 == 0,
            format!(
                "the vision tower's hidden size of {hidden} cannot be split into {heads} heads of a multiple of 4"
            ),
        )?;
        rule(
            vision.output == text.hidden,
            format!(
                "the vision tower's features have a width of {}: expected {}",
                vision.output, text.hidden
            ),
        )?;
        rule(
            vision.temporal_patch == 2 && vision.channels == 3,
            "expected patches of 2 frames and 3 channels".into(),
        )?;
        let full_attention = vision.windows.iter().flat_map(|windows| &windows.full_attention);
        let outside = full_attention.chain(&vision.deepstack).find(|&&block| block >= vision.blocks);
        rule(
            outside.is_none(),
            format!("block {} of the vision tower is named: it has {}", outside.unwrap_or(&0), vision.blocks),
        )?;
        let repeated =
            vision.deepstack.iter().enumerate().find(|&(at, one)| vision.deepstack[..at].contains(one));
        rule(repeated.is_none(), "`deepstack_visual_indexes` names a block twice".into())?;
        let (levels, layers) = (vision.deepstack.len(), text.layers);
        rule(
            levels <= layers,
            format!(
                "`deepstack_visual_indexes` names {levels} blocks: expected at most {layers}, one a layer"
            ),
        )
    }

    /// `config.json` in the layout of transformers 5, which transformers 4.x and vLLM read too: the original file, with
    /// the type of the saved tensors under its new and its old name. Without `architectures` vLLM mistakes a checkpoint
    /// for an embedding model.
    pub fn to_json(&self, dtype: &str) -> Value {
        let mut map = self.source.clone();
        map.entry("architectures").or_insert_with(|| json!([self.architecture.class()]));
        map.insert("dtype".into(), json!(dtype));
        map.insert("torch_dtype".into(), json!(dtype));
        Value::Object(map)
    }

    /// The same model with an output head of its own, which starts as the input embedding; itself if it has one.
    #[must_use]
    pub fn with_own_head(&self) -> Self {
        let mut value = Value::Object(self.source.clone());
        value["tie_word_embeddings"] = json!(false);
        if let Some(text) = value.get_mut("text_config") {
            text["tie_word_embeddings"] = json!(false);
        }
        parse(value).expect("a configuration that was read before")
    }
}
