//! A model's dimensions, from `config.json` in either layout: transformers 5 (`text_config`, `vision_config`,
//! `rope_parameters`) and 4.x (flat, `rope_scaling`, defaults left out).

mod unsupported;

use crate::ModelError;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;

/// Everything that decides shapes and arithmetic.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
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

/// The language model's dimensions.
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
    /// Width inside the gated MLP.
    pub intermediate: i64,
    /// Size of the vocabulary.
    pub vocabulary: i64,
    /// Added to the variance in norms.
    pub norm_epsilon: f64,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// How many rotary frequencies rotate by time, height and width.
    pub mrope_section: [usize; 3],
    /// The output head is the input embedding.
    pub tied_head: bool,
}

impl TextConfig {
    /// Width of a head.
    pub fn head_width(&self) -> i64 {
        self.hidden / self.heads
    }
}

/// The vision tower's dimensions.
#[derive(Debug, Clone, PartialEq)]
pub struct VisionConfig {
    /// Width of a hidden state.
    pub hidden: i64,
    /// Blocks.
    pub blocks: usize,
    /// Attention heads.
    pub heads: i64,
    /// Width inside the gated MLP.
    pub intermediate: i64,
    /// Width of a feature handed to the language model.
    pub output: i64,
    /// Side of a patch, in pixels.
    pub patch: i64,
    /// Frames in a patch; an image is repeated to fill them.
    pub temporal_patch: i64,
    /// Patches per side that become one feature.
    pub merge: i64,
    /// Side of an attention window, in pixels.
    pub window: i64,
    /// Blocks whose attention sees the whole image.
    pub full_attention: Vec<usize>,
    /// Colour channels.
    pub channels: i64,
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

    /// Features per side of an attention window.
    pub fn window_features(&self) -> i64 {
        self.window / self.merge / self.patch
    }
}

/// The model's class in transformers and vLLM.
const ARCHITECTURE: &str = "Qwen2_5_VLForConditionalGeneration";

/// Large enough for every real model, small enough that the product of two does not overflow.
const LARGEST_DIMENSION: u64 = 1 << 24;

/// The published 7B; UI-TARS-1.5-7B has the same shapes.
pub fn qwen2_5_vl_7b() -> ModelConfig {
    let text = json!({
        "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
        "intermediate_size": 18944, "vocab_size": 152_064, "rms_norm_eps": 1e-6,
        "rope_parameters": {"mrope_section": [16, 24, 24], "rope_theta": 1e6, "rope_type": "default"},
    });
    parse(json!({"model_type": "qwen2_5_vl", "text_config": text, "vision_config": {}}))
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
    small(&text, &vision)
}

/// A model for the desktop profile of the embedded desktop: 30 million parameters.
pub fn desktop() -> ModelConfig {
    let text = json!({
        "hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 2,
        "intermediate_size": 1408, "vocab_size": 4096, "rms_norm_eps": 1e-6, "tie_word_embeddings": true,
        "rope_parameters": {"mrope_section": [8, 12, 12], "rope_theta": 1e4, "rope_type": "default"},
    });
    let vision = json!({
        "hidden_size": 256, "depth": 6, "num_heads": 8, "intermediate_size": 768, "out_hidden_size": 512,
        "fullatt_block_indexes": [2, 5],
    });
    small(&text, &vision)
}

/// A model with our own tokenizer.
fn small(text: &Value, vision: &Value) -> ModelConfig {
    let config = json!({
        "model_type": "qwen2_5_vl", "text_config": text, "vision_config": vision,
        "image_token_id": 5, "video_token_id": 6, "vision_start_token_id": 7, "vision_end_token_id": 8,
    });
    parse(config).expect("a model of our own")
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
    let root = Section { name: "", map: &source };
    let kind = source.get("model_type").and_then(Value::as_str).unwrap_or("");
    if kind != "qwen2_5_vl" {
        return Err(format!("`model_type` is {kind:?}: expected \"qwen2_5_vl\""));
    }
    // 4.x keeps the language model's values at the top
    let text = root.section("text_config").unwrap_or(Section { name: "", map: &source });
    let vision = root.section("vision_config").ok_or("`vision_config` is missing")?;
    unsupported::check(&text, &vision)?;
    let config = ModelConfig {
        text: text_config(&text, &root)?,
        vision: vision_config(&vision)?,
        image_token: root.token("image_token_id", 151_655)?,
        video_token: root.token("video_token_id", 151_656)?,
        vision_start_token: root.token("vision_start_token_id", 151_652)?,
        vision_end_token: root.token("vision_end_token_id", 151_653)?,
        source: source.clone(),
    };
    config.check()?;
    Ok(config)
}

fn text_config(text: &Section, root: &Section) -> Result<TextConfig, String> {
    let rope = text.section("rope_parameters").or_else(|| text.section("rope_scaling"));
    let theta = rope.as_ref().and_then(|rope| rope.map.get("rope_theta"));
    let theta = theta.or_else(|| text.map.get("rope_theta")).and_then(Value::as_f64).unwrap_or(1_000_000.0);
    let section = rope.as_ref().and_then(|rope| rope.map.get("mrope_section"));
    let section = section.ok_or("`mrope_section` is missing in `rope_parameters` or `rope_scaling`")?;
    let mrope_section: [usize; 3] = serde_json::from_value(section.clone())
        .map_err(|_| format!("`mrope_section` is {section}: expected three whole numbers"))?;
    // 5.x writes it in both places, 4.x only at the top
    let tied_head =
        root.flag("tie_word_embeddings").or_else(|| text.flag("tie_word_embeddings")).unwrap_or(false);
    Ok(TextConfig {
        hidden: text.dimension("hidden_size", None)?,
        layers: text.dimension("num_hidden_layers", None)? as usize,
        heads: text.dimension("num_attention_heads", None)?,
        kv_heads: text.dimension("num_key_value_heads", None)?,
        intermediate: text.dimension("intermediate_size", None)?,
        vocabulary: text.dimension("vocab_size", None)?,
        norm_epsilon: text.map.get("rms_norm_eps").and_then(Value::as_f64).unwrap_or(1e-6),
        rope_theta: theta,
        mrope_section,
        tied_head,
    })
}

/// Defaults are those of the published 7B, which 4.x leaves out of the file.
fn vision_config(vision: &Section) -> Result<VisionConfig, String> {
    let full_attention = match vision.map.get("fullatt_block_indexes") {
        None => vec![7, 15, 23, 31],
        Some(list) => serde_json::from_value(list.clone()).map_err(|_| {
            format!("`vision_config.fullatt_block_indexes` is {list}: expected whole numbers")
        })?,
    };
    let channels = if vision.map.contains_key("in_channels") { "in_channels" } else { "in_chans" };
    let patch = if vision.map.contains_key("patch_size") { "patch_size" } else { "spatial_patch_size" };
    Ok(VisionConfig {
        hidden: vision.dimension("hidden_size", Some(1280))?,
        blocks: vision.dimension("depth", Some(32))? as usize,
        heads: vision.dimension("num_heads", Some(16))?,
        intermediate: vision.dimension("intermediate_size", Some(3420))?,
        output: vision.dimension("out_hidden_size", Some(3584))?,
        patch: vision.dimension(patch, Some(14))?,
        temporal_patch: vision.dimension("temporal_patch_size", Some(2))?,
        merge: vision.dimension("spatial_merge_size", Some(2))?,
        window: vision.dimension("window_size", Some(112))?,
        full_attention,
        channels: vision.dimension(channels, Some(3))?,
    })
}

impl ModelConfig {
    /// Checks the constraints that the shapes rely on.
    fn check(&self) -> Result<(), String> {
        let ModelConfig { text, vision, .. } = self;
        let rule = |holds: bool, problem: String| if holds { Ok(()) } else { Err(problem) };
        let (hidden, heads, groups) = (text.hidden, text.heads, text.kv_heads);
        rule(
            hidden % heads == 0 && (hidden / heads) % 2 == 0,
            format!("a hidden size of {hidden} cannot be split into {heads} heads of even width"),
        )?;
        rule(heads % groups == 0, format!("{heads} heads cannot share {groups} key and value heads"))?;
        let (frequencies, half) = (text.mrope_section.iter().sum::<usize>() as i64, text.head_width() / 2);
        rule(
            frequencies == half,
            format!("`mrope_section` has {frequencies} frequencies: expected half a head, {half}"),
        )?;
        let (hidden_size, heads) = (vision.hidden, vision.heads);
        rule(
            hidden_size % heads == 0 && (hidden_size / heads) % 4 == 0,
            format!(
                "the vision tower's hidden size of {hidden_size} cannot be split into {heads} heads of a multiple of 4"
            ),
        )?;
        rule(
            vision.output == hidden,
            format!("the vision tower's features have a width of {}: expected {hidden}", vision.output),
        )?;
        rule(vision.window_features() > 0, format!("a window of {} pixels holds no feature", vision.window))?;
        rule(
            vision.temporal_patch == 2 && vision.channels == 3,
            "expected patches of 2 frames and 3 channels".into(),
        )?;
        let outside = vision.full_attention.iter().find(|&&block| block >= vision.blocks);
        rule(
            outside.is_none(),
            format!("`fullatt_block_indexes` names block {outside:?} of {}", vision.blocks),
        )
    }

    /// `config.json` in the layout of transformers 5, which transformers 4.x and vLLM read too: the original file, with
    /// the type of the saved tensors under its new and its old name. Without `architectures` vLLM mistakes a checkpoint
    /// for an embedding model.
    pub fn to_json(&self, dtype: &str) -> Value {
        let mut map = self.source.clone();
        map.entry("architectures").or_insert_with(|| json!([ARCHITECTURE]));
        map.insert("dtype".into(), json!(dtype));
        map.insert("torch_dtype".into(), json!(dtype));
        Value::Object(map)
    }
}

/// A part of the file, with its name for error messages.
struct Section<'a> {
    name: &'static str,
    map: &'a Map<String, Value>,
}

impl<'a> Section<'a> {
    fn section(&self, name: &'static str) -> Option<Section<'a>> {
        self.map.get(name)?.as_object().map(|map| Section { name, map })
    }

    fn flag(&self, name: &str) -> Option<bool> {
        self.map.get(name)?.as_bool()
    }

    fn path(&self, name: &str) -> String {
        if self.name.is_empty() { name.to_owned() } else { format!("{}.{name}", self.name) }
    }

    fn dimension(&self, name: &str, default: Option<i64>) -> Result<i64, String> {
        let path = self.path(name);
        match (self.map.get(name), default) {
            (None, Some(default)) => Ok(default),
            (None, None) => Err(format!("`{path}` is missing")),
            (Some(value), _) => match value.as_u64() {
                Some(number @ 1..=LARGEST_DIMENSION) => Ok(number as i64),
                _ => {
                    Err(format!("`{path}` is {value}: expected a whole number from 1 to {LARGEST_DIMENSION}"))
                }
            },
        }
    }

    fn token(&self, name: &str, default: u32) -> Result<u32, String> {
        match self.map.get(name) {
            None => Ok(default),
            Some(value) => serde_json::from_value(value.clone())
                .map_err(|_| format!("`{name}` is {value}: expected a token id")),
        }
    }
}
