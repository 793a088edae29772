//! A micro-batch as packed tensors: concatenated episodes, or, where they share prefixes, only the tokens that each
//! adds to those before it.

use super::{MicroBatch, PassOptions, SequenceInput};
use crate::ModelError;
use crate::model::{Model, ModelInput};
use crate::positions::{Grid, Positions};
use crate::text::{EmbeddedGradient, TextLayout};
use tch::Tensor;

/// The tensors, on the model's device.
#[derive(Debug)]
pub(crate) struct Packed {
    /// M-RoPE positions of the tokens that each episode adds.
    positions: Vec<Positions>,
    /// For each of them the rows of everything its last token attends to, if prefixes are shared.
    visible: Option<Vec<Vec<i64>>>,
    /// All tokens.
    pub(super) tokens: Tensor,
    /// Rows of image placeholders ...
    pub(super) image_rows: Tensor,
    /// ... and the image feature that goes there.
    pub(super) image_features: Tensor,
    /// Number of features of all images.
    features: i64,
    /// Rows of text tokens.
    text_rows: Tensor,
    /// Rows whose next token is trained.
    pub(super) before_trained: Tensor,
    /// The trained tokens.
    pub(super) targets: Tensor,
    /// Number of trained tokens of each episode.
    pub(super) counts: Vec<usize>,
}

/// An episode that is packed already.
struct PackedEpisode {
    /// The identity of each of its tokens: a text token, or a feature of an image.
    keys: Vec<u64>,
    /// The row of each of its tokens.
    rows: Vec<i64>,
}

/// A key with this bit is an image feature.
const FEATURE: u64 = 1 << 40;

impl Packed {
    pub(super) fn new(model: &Model, batch: &MicroBatch, options: &PassOptions) -> Result<Self, ModelError> {
        let (image_token, merge) = (model.config().image_token, model.config().vision.merge as usize);
        let mut first_features = vec![0];
        for image in batch.images {
            first_features.push(first_features[first_features.len() - 1] + image.grid.features(merge) as u64);
        }
        let (mut positions, mut visible) = (Vec::new(), Vec::new());
        let (mut tokens, mut image_rows, mut image_features) = (Vec::new(), Vec::new(), Vec::new());
        let (mut text_rows, mut before_trained, mut targets) = (Vec::new(), Vec::new(), Vec::new());
        let mut counts = Vec::new();
        let mut packed: Vec<PackedEpisode> = Vec::new();
        for episode in batch.sequences {
            check(episode, batch.images.len())?;
            let grids: Vec<Grid> = episode.images.iter().map(|&image| batch.images[image].grid).collect();
            let mut new_positions = model.positions(&ModelInput { tokens: episode.tokens, grids: &grids })?;
            let mut features =
                episode.images.iter().flat_map(|&one| first_features[one]..first_features[one + 1]);
            let key = |&token: &u32| {
                let feature = (token == image_token).then(|| features.next()).flatten();
                feature.map_or(u64::from(token), |feature| FEATURE | feature)
            };
            let keys: Vec<u64> = episode.tokens.iter().map(key).collect();
            let mut rows = if options.share_prefixes { shared_prefix(&packed, &keys) } else { vec![] };
            let shared = rows.len();
            for &key in &keys[shared..] {
                let row = tokens.len() as i64;
                rows.push(row);
                if key & FEATURE == 0 {
                    text_rows.push(row);
                    tokens.push(key as i64);
                } else {
                    image_rows.push(row);
                    image_features.push((key & !FEATURE) as i64);
                    tokens.push(i64::from(image_token));
                }
            }
            let length = keys.len();
            let padding = if options.share_prefixes {
                0
            } else {
                length.next_multiple_of(options.pad_to_multiple.max(1)) - length
            };
            tokens.resize(tokens.len() + padding, PADDING_TOKEN);
            if shared < length {
                for axis in &mut new_positions.axes {
                    axis.drain(..shared);
                    axis.extend((0..padding).map(|offset| new_positions.next + offset as i64));
                }
                positions.push(new_positions);
                visible.push(rows.clone());
            }
            let trained: Vec<usize> = (0..length).filter(|&token| episode.trained[token]).collect();
            before_trained.extend(trained.iter().map(|&token| rows[token - 1]));
            targets.extend(trained.iter().map(|&token| i64::from(episode.tokens[token])));
            counts.push(trained.len());
            packed.push(PackedEpisode { keys, rows });
        }
        let tensor = |values: &[i64]| Tensor::from_slice(values).to_device(model.device());
        Ok(Self {
            positions,
            visible: options.share_prefixes.then_some(visible),
            tokens: tensor(&tokens),
            image_rows: tensor(&image_rows),
            image_features: tensor(&image_features),
            features: first_features[first_features.len() - 1] as i64,
            text_rows: tensor(&text_rows),
            before_trained: tensor(&before_trained),
            targets: tensor(&targets),
            counts,
        })
    }

    pub(super) fn layout(&self, model: &Model) -> TextLayout {
        let text = model.text();
        match &self.visible {
            None => text.layout(&self.positions, model.device()),
            Some(visible) => text.layout_with_shared_prefix(&self.positions, visible, model.device()),
        }
    }

    pub(super) fn embed_backward(&self, model: &Model, gradient: &Tensor) {
        let tokens = self.tokens.index_select(0, &self.text_rows);
        model.text().embed_backward(&tokens, &gradient.index_select(0, &self.text_rows));
    }

    /// A feature's gradient is the sum over all rows that show it: `[features, levels * hidden]`.
    pub(super) fn feature_gradients(&self, gradient: &EmbeddedGradient) -> Tensor {
        let mut levels = vec![gradient.tokens.index_select(0, &self.image_rows)];
        levels.extend(gradient.deepstack.iter().map(Tensor::shallow_clone));
        let shown =
            if let [only] = levels.as_slice() { only.shallow_clone() } else { Tensor::cat(&levels, 1) };
        let mut total = Tensor::zeros([self.features, shown.size()[1]], (shown.kind(), shown.device()));
        total.index_add_(0, &self.image_features, &shown)
    }
}

/// Rows of the longest prefix that an episode shares with one before it.
fn shared_prefix(before: &[PackedEpisode], keys: &[u64]) -> Vec<i64> {
    let shared_length =
        |one: &PackedEpisode| one.keys.iter().zip(keys).take_while(|(theirs, ours)| theirs == ours).count();
    let longest = before.iter().map(|one| (shared_length(one), one)).max_by_key(|(length, _)| *length);
    longest.map_or_else(Vec::new, |(length, one)| one.rows[..length].to_vec())
}

/// Any token: nothing attends to it.
const PADDING_TOKEN: i64 = 0;

fn check(episode: &SequenceInput, images: usize) -> Result<(), ModelError> {
    let (tokens, trained) = (episode.tokens.len(), episode.trained.len());
    if tokens != trained {
        return Err(ModelError::Input(format!("a mask of {trained} for {tokens} tokens")));
    }
    if episode.trained.first() == Some(&true) {
        return Err(ModelError::Input(
            "the first token of an episode cannot be trained: nothing predicts it".into(),
        ));
    }
    match episode.images.iter().find(|&&image| image >= images) {
        Some(image) => Err(ModelError::Input(format!("an episode shows image {image} of {images}"))),
        None => Ok(()),
    }
}
