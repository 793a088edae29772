//! The decoder's input: token embeddings, and what DeepStack adds to the rows of images after the first blocks.

use tch::Tensor;

/// The input of packed sequences.
#[derive(Debug)]
pub struct Embedded {
    /// Embeddings, with the first level of image features in place of their placeholders: `[tokens, hidden]`.
    pub tokens: Tensor,
    /// Rows of image placeholders, and what is added there after each of the first blocks.
    pub(super) deepstack: Option<DeepStack>,
}

#[derive(Debug)]
pub(super) struct DeepStack {
    rows: Tensor,
    levels: Vec<Tensor>, // [rows, hidden] each
}

/// Gradients of an [`Embedded`].
pub(crate) struct EmbeddedGradient {
    /// Of all rows: `[tokens, hidden]`.
    pub(crate) tokens: Tensor,
    /// Of what was added to the rows of images, level by level.
    pub(crate) deepstack: Vec<Tensor>,
}

impl Embedded {
    /// Text alone.
    pub fn text(tokens: Tensor) -> Self {
        Self { tokens, deepstack: None }
    }

    /// Puts image features, `[rows, levels * hidden]`, into their rows of token embeddings.
    pub fn with_features(tokens: &Tensor, rows: &Tensor, features: &Tensor) -> Self {
        let levels = features.size()[1] / tokens.size()[1];
        let mut levels = features.to_kind(tokens.kind()).chunk(levels, 1);
        let tokens = tokens.index_copy(0, rows, &levels.remove(0));
        let deepstack = (!levels.is_empty()).then(|| DeepStack { rows: rows.shallow_clone(), levels });
        Self { tokens, deepstack }
    }
}

impl DeepStack {
    /// The output of a block, with its level added.
    pub(super) fn add(&self, block: usize, x: Tensor) -> Tensor {
        match self.levels.get(block) {
            Some(level) => x.index_add(0, &self.rows, level),
            None => x,
        }
    }

    /// The gradient of a block's level, from that of its output.
    pub(super) fn level_gradient(&self, block: usize, gradient: &Tensor) -> Option<Tensor> {
        (block < self.levels.len()).then(|| gradient.index_select(0, &self.rows))
    }
}
