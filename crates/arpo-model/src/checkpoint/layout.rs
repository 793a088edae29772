//! Which tensors of the checkpoint files form which parameters in memory.

use crate::config::{ModelConfig, TextConfig, VisionConfig};

/// Tensor cores need widths that are multiples of this.
const WIDTH_MULTIPLE: i64 = 8;

/// One parameter in memory: a matrix or a vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterLayout {
    /// Its name in memory.
    pub name: String,
    /// Its shape in memory.
    pub shape: Vec<i64>,
    /// The file tensors it is made of, stacked by rows; the padding between them is zero and stays zero.
    pub pieces: Vec<Piece>,
}

impl ParameterLayout {
    /// Whether it belongs to the vision tower.
    pub fn is_vision(&self) -> bool {
        self.pieces.iter().all(Piece::is_vision)
    }

    /// Whether its gradient is accumulated in f32, whatever the type of the weights. Over 64 micro-batches,
    /// accumulating in bf16 is off by less than 1 % of the norm in the listed matrices of the language model, which are
    /// most of a model, and by more in all others: up to 1.5 % in the head, to which every token contributes
    /// (`arpo bench sums`).
    pub fn accumulates_in_f32(&self) -> bool {
        const BF16: [&str; 3] = [".out.weight", ".gate_up.weight", ".down.weight"];
        self.is_vision() || !BF16.iter().any(|ending| self.name.ends_with(ending))
    }
}

/// One tensor of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Its name in the files, as published checkpoints have it: `model.layers...`, `visual...`, `lm_head...`.
    pub name: String,
    /// Its shape in the files; the first dimension is rows, the others are columns.
    pub shape: Vec<i64>,
    /// Its first row in memory.
    pub row: i64,
}

impl Piece {
    /// Columns it fills in memory.
    pub fn columns(&self) -> i64 {
        self.shape[1..].iter().product()
    }

    /// The name that transformers 5 uses in memory and in some files.
    pub fn other_name(&self) -> String {
        match self.name.split_once('.') {
            Some(("model", rest)) => format!("model.language_model.{rest}"),
            Some(("visual", _)) => format!("model.{}", self.name),
            _ => self.name.clone(),
        }
    }

    /// Whether it belongs to the vision tower.
    pub fn is_vision(&self) -> bool {
        self.name.starts_with("visual.")
    }
}

/// The vision tower's MLP width in memory.
pub(crate) fn padded(width: i64) -> i64 {
    (width + WIDTH_MULTIPLE - 1) / WIDTH_MULTIPLE * WIDTH_MULTIPLE
}

/// Every parameter of a model, in a fixed order.
pub fn parameters(config: &ModelConfig) -> Vec<ParameterLayout> {
    let mut list = Vec::new();
    vision(&config.vision, &mut list);
    text(&config.text, &mut list);
    list
}

fn vision(config: &VisionConfig, list: &mut Vec<ParameterLayout>) {
    let VisionConfig { hidden, output, patch, temporal_patch, channels, .. } = *config;
    let inner = padded(config.intermediate);
    let merged = hidden * config.merge * config.merge;
    let embed = [hidden, channels, temporal_patch, patch, patch];
    list.push(whole("vision.patch", "visual.patch_embed.proj.weight", &embed));
    for block in 0..config.blocks {
        let (memory, file) = (format!("vision.{block}"), format!("visual.blocks.{block}"));
        let piece = |name: &str, shape: &[i64], row| Piece {
            name: format!("{file}.{name}"),
            shape: shape.to_vec(),
            row,
        };
        let single = |name: &str, file_name: &str, shape: &[i64]| {
            whole(&format!("{memory}.{name}"), &format!("{file}.{file_name}"), shape)
        };
        let width = config.intermediate;
        list.push(single("norm1", "norm1.weight", &[hidden]));
        list.push(single("qkv.weight", "attn.qkv.weight", &[3 * hidden, hidden]));
        list.push(single("qkv.bias", "attn.qkv.bias", &[3 * hidden]));
        list.push(single("proj.weight", "attn.proj.weight", &[hidden, hidden]));
        list.push(single("proj.bias", "attn.proj.bias", &[hidden]));
        list.push(single("norm2", "norm2.weight", &[hidden]));
        list.push(ParameterLayout {
            name: format!("{memory}.gate_up.weight"),
            shape: vec![2 * inner, hidden],
            pieces: vec![
                piece("mlp.gate_proj.weight", &[width, hidden], 0),
                piece("mlp.up_proj.weight", &[width, hidden], inner),
            ],
        });
        list.push(ParameterLayout {
            name: format!("{memory}.gate_up.bias"),
            shape: vec![2 * inner],
            pieces: vec![
                piece("mlp.gate_proj.bias", &[width], 0),
                piece("mlp.up_proj.bias", &[width], inner),
            ],
        });
        list.push(ParameterLayout {
            name: format!("{memory}.down.weight"),
            shape: vec![hidden, inner],
            pieces: vec![piece("mlp.down_proj.weight", &[hidden, width], 0)],
        });
        list.push(single("down.bias", "mlp.down_proj.bias", &[hidden]));
    }
    list.push(whole("vision.merger.norm", "visual.merger.ln_q.weight", &[hidden]));
    list.push(whole("vision.merger.0.weight", "visual.merger.mlp.0.weight", &[merged, merged]));
    list.push(whole("vision.merger.0.bias", "visual.merger.mlp.0.bias", &[merged]));
    list.push(whole("vision.merger.2.weight", "visual.merger.mlp.2.weight", &[output, merged]));
    list.push(whole("vision.merger.2.bias", "visual.merger.mlp.2.bias", &[output]));
}

fn text(config: &TextConfig, list: &mut Vec<ParameterLayout>) {
    let TextConfig { hidden, intermediate, vocabulary, .. } = *config;
    let width = config.head_width();
    let (queries, keys) = (config.heads * width, config.kv_heads * width);
    list.push(whole("text.embed", "model.embed_tokens.weight", &[vocabulary, hidden]));
    for layer in 0..config.layers {
        let (memory, file) = (format!("text.{layer}"), format!("model.layers.{layer}"));
        let piece = |name: &str, shape: &[i64], row| Piece {
            name: format!("{file}.{name}"),
            shape: shape.to_vec(),
            row,
        };
        let single = |name: &str, file_name: &str, shape: &[i64]| {
            whole(&format!("{memory}.{name}"), &format!("{file}.{file_name}"), shape)
        };
        list.push(single("norm1", "input_layernorm.weight", &[hidden]));
        list.push(ParameterLayout {
            name: format!("{memory}.qkv.weight"),
            shape: vec![queries + 2 * keys, hidden],
            pieces: vec![
                piece("self_attn.q_proj.weight", &[queries, hidden], 0),
                piece("self_attn.k_proj.weight", &[keys, hidden], queries),
                piece("self_attn.v_proj.weight", &[keys, hidden], queries + keys),
            ],
        });
        list.push(ParameterLayout {
            name: format!("{memory}.qkv.bias"),
            shape: vec![queries + 2 * keys],
            pieces: vec![
                piece("self_attn.q_proj.bias", &[queries], 0),
                piece("self_attn.k_proj.bias", &[keys], queries),
                piece("self_attn.v_proj.bias", &[keys], queries + keys),
            ],
        });
        list.push(single("out.weight", "self_attn.o_proj.weight", &[hidden, queries]));
        list.push(single("norm2", "post_attention_layernorm.weight", &[hidden]));
        list.push(ParameterLayout {
            name: format!("{memory}.gate_up.weight"),
            shape: vec![2 * intermediate, hidden],
            pieces: vec![
                piece("mlp.gate_proj.weight", &[intermediate, hidden], 0),
                piece("mlp.up_proj.weight", &[intermediate, hidden], intermediate),
            ],
        });
        list.push(single("down.weight", "mlp.down_proj.weight", &[hidden, intermediate]));
    }
    list.push(whole("text.norm", "model.norm.weight", &[hidden]));
    if !config.tied_head {
        list.push(whole("text.head", "lm_head.weight", &[vocabulary, hidden]));
    }
}

/// A parameter that is one tensor of the files; more than two dimensions become columns.
fn whole(name: &str, file_name: &str, shape: &[i64]) -> ParameterLayout {
    let piece = Piece { name: file_name.to_owned(), shape: shape.to_vec(), row: 0 };
    let shape = if shape.len() > 1 { vec![shape[0], piece.columns()] } else { shape.to_vec() };
    ParameterLayout { name: name.to_owned(), shape, pieces: vec![piece] }
}
