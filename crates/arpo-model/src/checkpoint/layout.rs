//! Which tensors of the checkpoint files form which parameters in memory.

use crate::config::{ModelConfig, TextConfig};

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

    /// The block of the language model that it belongs to, if any.
    pub fn block(&self) -> Option<usize> {
        self.name.strip_prefix("text.")?.split_once('.')?.0.parse().ok()
    }

    /// Whether it is the language model's head; one that is tied to the embedding has no parameter of its own.
    pub fn is_head(&self) -> bool {
        self.name == "text.head"
    }

    /// What its gradient shares a buffer with, if layers pass theirs on: the same parameter, which is as large, of every other
    /// block, because the sums of one block's gradients are on their way while the next one's are computed; and the embedding
    /// with the head.
    pub fn buffer(&self) -> (usize, &str) {
        if self.is_head() {
            return (0, "text.embed");
        }
        match self.block() {
            Some(block) => (block % 2, self.name.splitn(3, '.').last().unwrap_or(&self.name)),
            None => (0, self.name.as_str()),
        }
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
    /// Its name in the files, as published checkpoints of its family have it.
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

    /// The other name that files may have it under: `model.layers` and `visual` are `model.language_model.layers` and
    /// `model.visual` in newer versions of transformers.
    pub fn other_name(&self) -> String {
        let name = &self.name;
        match name.strip_prefix("model.") {
            Some(rest) if rest.starts_with("visual.") => rest.to_owned(),
            Some(rest) => match rest.strip_prefix("language_model.") {
                Some(rest) => format!("model.{rest}"),
                None => format!("model.language_model.{rest}"),
            },
            None if name.starts_with("visual.") => format!("model.{name}"),
            None => name.clone(),
        }
    }

    /// Whether it belongs to the vision tower.
    pub fn is_vision(&self) -> bool {
        self.name.starts_with("visual.") || self.name.starts_with("model.visual.")
    }
}

/// Every parameter of a model, in a fixed order.
pub fn parameters(config: &ModelConfig) -> Vec<ParameterLayout> {
    config.architecture.parameters(config)
}

/// The parameters of one module: the names in memory and in the files begin with its own.
pub(crate) struct Module<'a> {
    memory: String,
    file: String,
    list: &'a mut Vec<ParameterLayout>,
}

impl<'a> Module<'a> {
    pub(crate) fn new(memory: &str, file: &str, list: &'a mut Vec<ParameterLayout>) -> Self {
        Self { memory: memory.to_owned(), file: file.to_owned(), list }
    }

    /// A parameter that is one tensor of the files; more than two dimensions become columns.
    pub(crate) fn whole(&mut self, name: &str, file_name: &str, shape: &[i64]) {
        let piece = self.piece(file_name, shape.to_vec(), 0);
        let shape = if shape.len() > 1 { vec![shape[0], piece.columns()] } else { shape.to_vec() };
        self.push(name, shape, vec![piece]);
    }

    /// A matrix with more columns in memory than in the files.
    pub(crate) fn padded(&mut self, name: &str, file_name: &str, shape: [i64; 2], columns: i64) {
        let piece = self.piece(file_name, shape.to_vec(), 0);
        self.push(name, vec![shape[0], columns], vec![piece]);
    }

    /// Tensors of the files stacked by rows: for each its name, its rows, and the rows it has in memory. Matrices have
    /// columns, vectors have none.
    pub(crate) fn stacked(&mut self, name: &str, columns: Option<i64>, pieces: &[(String, i64, i64)]) {
        let mut rows = 0;
        let shape = |rows: i64| std::iter::once(rows).chain(columns).collect::<Vec<_>>();
        let mut stacked = Vec::new();
        for (file_name, own, padded) in pieces {
            stacked.push(self.piece(file_name, shape(*own), rows));
            rows += padded;
        }
        self.push(name, shape(rows), stacked);
    }

    fn piece(&self, name: &str, shape: Vec<i64>, row: i64) -> Piece {
        Piece { name: format!("{}.{name}", self.file), shape, row }
    }

    fn push(&mut self, name: &str, shape: Vec<i64>, pieces: Vec<Piece>) {
        self.list.push(ParameterLayout { name: format!("{}.{name}", self.memory), shape, pieces });
    }
}

/// The decoder's parameters; `prefix` is its name in the files.
pub(crate) fn text(config: &TextConfig, prefix: &str, list: &mut Vec<ParameterLayout>) {
    let TextConfig { hidden, intermediate, vocabulary, head_width, .. } = *config;
    let (queries, keys) = (config.heads * head_width, config.kv_heads * head_width);
    Module::new("text", prefix, list).whole("embed", "embed_tokens.weight", &[vocabulary, hidden]);
    for index in 0..config.layers {
        let mut layer = Module::new(&format!("text.{index}"), &format!("{prefix}.layers.{index}"), list);
        layer.whole("norm1", "input_layernorm.weight", &[hidden]);
        let qkv = |kind: &str| {
            [("q", queries), ("k", keys), ("v", keys)]
                .map(|(one, rows)| (format!("self_attn.{one}_proj.{kind}"), rows, rows))
        };
        layer.stacked("qkv.weight", Some(hidden), &qkv("weight"));
        if config.qkv_bias {
            layer.stacked("qkv.bias", None, &qkv("bias"));
        }
        if config.qk_norm {
            layer.whole("q_norm", "self_attn.q_norm.weight", &[head_width]);
            layer.whole("k_norm", "self_attn.k_norm.weight", &[head_width]);
        }
        layer.whole("out.weight", "self_attn.o_proj.weight", &[hidden, queries]);
        layer.whole("norm2", "post_attention_layernorm.weight", &[hidden]);
        let gate_up =
            ["gate", "up"].map(|one| (format!("mlp.{one}_proj.weight"), intermediate, intermediate));
        layer.stacked("gate_up.weight", Some(hidden), &gate_up);
        layer.whole("down.weight", "mlp.down_proj.weight", &[hidden, intermediate]);
    }
    Module::new("text", prefix, list).whole("norm", "norm.weight", &[hidden]);
    if !config.tied_head {
        Module::new("text", "lm_head", list).whole("head", "weight", &[vocabulary, hidden]);
    }
}
