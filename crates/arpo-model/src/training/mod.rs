//! A training step: log-probabilities of the agent's tokens, and the gradients of a loss given as one coefficient per
//! token (see `arpo_core::loss`).
//!
//! A micro-batch holds packed episodes. Its images are encoded once, however many episodes show them. Logits are
//! computed only at the agent's tokens, a chunk at a time (`head`). A memory budget decides which activations are kept
//! between the passes ([`plan`]).

pub mod adamw;
mod gradients;
mod head;
mod incident;
pub mod nccl;
mod optimiser_file;
mod packed;
pub mod plan;
pub mod ranks;
mod rounding;
pub mod shard;
pub mod step;

use crate::ModelError;
use crate::layers::block::Keep;
use crate::model::Model;
use crate::positions::Grid;
use crate::text::{Embedded, SavedText, TextLayout};
use crate::vision::SavedVision;
use arpo_ranks::Collectives;
use gradients::{Bucket, GradientSums};
use head::Head;
use packed::Packed;
use plan::Plan;
use shard::Shard;
use tch::{Device, Tensor, no_grad};

/// An image of a micro-batch.
#[derive(Debug)]
pub struct ImageInput {
    /// Its pixels or features.
    pub content: ImageContent,
    /// Its size in patches.
    pub grid: Grid,
}

/// An image as the vision tower's input or output.
#[derive(Debug)]
pub enum ImageContent {
    /// `[patches, channels * patch * patch]`, from the image processor.
    Pixels(Tensor),
    /// `[features, levels * hidden]`: the vision tower's cached output. Valid only while the tower is frozen.
    Features(Tensor),
}

impl ImageInput {
    /// From the image processor's output.
    pub fn of_pixels(pixels: Tensor, grid: Grid) -> Self {
        Self { content: ImageContent::Pixels(pixels), grid }
    }

    /// Its patches, unless only its features are known.
    pub fn pixels(&self) -> Option<&Tensor> {
        match &self.content {
            ImageContent::Pixels(pixels) => Some(pixels),
            ImageContent::Features(_) => None,
        }
    }
}

/// One sequence of a micro-batch: an episode, or a slice of one.
#[derive(Debug, Clone)]
pub struct SequenceInput<'a> {
    /// The whole sequence.
    pub tokens: &'a [u32],
    /// Its images, by their indices in the micro-batch, in the order of their placeholders.
    pub images: &'a [usize],
    /// Whether each token is the agent's. The first never is: nothing predicts it.
    pub trained: &'a [bool],
}

/// Sequences computed together.
#[derive(Debug, Clone, Copy)]
pub struct MicroBatch<'a> {
    /// Packed in this order.
    pub sequences: &'a [SequenceInput<'a>],
    /// Each image once, however many sequences show it.
    pub images: &'a [ImageInput],
}

/// The model's scores of the agent's tokens, by episode.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenScores {
    /// Log-probability of each trained token.
    pub logp: Vec<Vec<f32>>,
    /// Entropy of the distribution of each trained token.
    pub entropy: Vec<Vec<f32>>,
}

/// How the forward and backward passes are computed.
#[derive(Debug, Clone, PartialEq)]
pub struct PassOptions {
    /// The sampler's temperature: log-probabilities are those of the distribution that was sampled from.
    pub temperature: f64,
    /// Tokens that may not occur in a response; the sampler masks them too.
    pub forbidden: Vec<u32>,
    /// Bytes that may be kept between the forward and the backward pass.
    pub activation_bytes: u64,
    /// Number of the agent's tokens whose logits are computed at a time.
    pub logit_rows: i64,
    /// Episodes are padded to a multiple of this many tokens: more of them are then equally long and batched together.
    /// Padding does not change an episode's results. 1 pads nothing.
    pub pad_to_multiple: usize,
    /// Prefixes that episodes of a micro-batch share are computed once. Pays off where rollouts of the same task often
    /// agree for some turns; the attention it needs is slower on GPUs. Nothing is padded then.
    pub share_prefixes: bool,
}

/// A model with what its forward and backward passes need. To be trained, its weights must have gradients.
#[derive(Debug)]
pub struct TrainableModel {
    model: Model,
    head: Head,
    options: PassOptions,
    /// The vision tower gets no gradients, although its weights could have some.
    frozen_vision: bool,
}

/// A forward pass, with the activations for its backward pass.
pub struct ForwardPass<'a> {
    trainable: &'a TrainableModel,
    batch: MicroBatch<'a>,
    packed: Packed,
    layout: TextLayout,
    hidden: Tensor, // at the tokens before trained ones
    text: SavedText,
    vision: Option<SavedVision>,
    plan: Plan,
    scores: TokenScores,
}

impl TrainableModel {
    /// From a model, and how its passes are computed.
    pub fn new(model: Model, options: PassOptions) -> Self {
        let head = Head::new(&model, &options);
        Self { model, head, options, frozen_vision: false }
    }

    /// Whether further passes leave the vision tower as it is, even if its weights have gradients.
    fn set_vision_frozen(&mut self, frozen: bool) {
        self.frozen_vision = frozen;
    }

    /// The model, whose weights hold the gradients.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Log-probabilities and entropies, without a backward pass.
    pub fn scores(&self, batch: &MicroBatch) -> Result<TokenScores, ModelError> {
        no_grad(|| {
            let packed = Packed::new(&self.model, batch, &self.options)?;
            let features = self.features(batch);
            let layout = packed.layout(&self.model);
            let embedded = self.embed(&packed, features.as_ref());
            let last = self.model.text().forward(embedded, &layout);
            let hidden = last.index_select(0, &packed.before_trained);
            Ok(self.head.scores(&self.model, &hidden, &packed))
        })
    }

    /// A forward pass that keeps the activations for its backward pass.
    pub fn forward<'a>(&'a self, batch: MicroBatch<'a>) -> Result<ForwardPass<'a>, ModelError> {
        no_grad(|| {
            if self.trains_vision() && batch.images.iter().any(|image| image.pixels().is_none()) {
                return Err(ModelError::Input(
                    "an image without pixels cannot train the vision tower".into(),
                ));
            }
            let packed = Packed::new(&self.model, &batch, &self.options)?;
            let plan = self.plan(&batch, self.options.activation_bytes);
            let (features, vision) = if self.trains_vision() && plan.keeps_vision() {
                self.features_saving(&batch, &plan)
            } else {
                (self.features(&batch), None)
            };
            let layout = packed.layout(&self.model);
            let embedded = self.embed(&packed, features.as_ref());
            let (last, text) = self.model.text().forward_saving(embedded, &layout, |block| plan.text(block));
            let hidden = last.index_select(0, &packed.before_trained);
            let scores = self.head.scores(&self.model, &hidden, &packed);
            Ok(ForwardPass { trainable: self, batch, packed, layout, hidden, text, vision, plan, scores })
        })
    }

    /// Which activations of a micro-batch are kept if they may take this many bytes.
    pub fn plan(&self, batch: &MicroBatch, activation_bytes: u64) -> Plan {
        Plan::new(&self.model, batch, &self.options, self.trains_vision(), activation_bytes)
    }

    fn trains_vision(&self) -> bool {
        !self.frozen_vision && self.model.weights().trained().any(|(layout, _, _)| layout.is_vision())
    }

    fn features(&self, batch: &MicroBatch) -> Option<Tensor> {
        if batch.images.is_empty() {
            return None;
        }
        let vision = self.model.vision();
        let all_pixels = batch.images.iter().all(|image| image.pixels().is_some());
        if all_pixels && self.model.device() != Device::Cpu {
            let (pixels, grids) = pixels(batch.images)?;
            return Some(vision.forward(&pixels, &grids));
        }
        // on a CPU each separately, so that its last bits do not depend on which others are cached
        let features = batch.images.iter().map(|image| match &image.content {
            ImageContent::Pixels(pixels) => vision.forward(pixels, &[image.grid]),
            ImageContent::Features(features) => features.shallow_clone(),
        });
        Some(Tensor::cat(&features.collect::<Vec<_>>(), 0))
    }

    fn features_saving(&self, batch: &MicroBatch, plan: &Plan) -> (Option<Tensor>, Option<SavedVision>) {
        let Some((pixels, grids)) = pixels(batch.images) else { return (None, None) };
        let (features, saved) = self.model.vision().forward_saving(&pixels, &grids, |_| plan.vision());
        (Some(features), Some(saved))
    }

    fn embed(&self, packed: &Packed, features: Option<&Tensor>) -> Embedded {
        let embedded = self.model.text().embed(&packed.tokens);
        match features {
            None => Embedded::text(embedded),
            Some(features) => {
                let shown = features.index_select(0, &packed.image_features);
                Embedded::with_features(&embedded, &packed.image_rows, &shown)
            }
        }
    }
}

impl ForwardPass<'_> {
    /// The model's scores of the agent's tokens.
    pub fn scores(&self) -> &TokenScores {
        &self.scores
    }

    /// Adds the gradient of `sum(coefficient * logp)` to the weights' gradients. Coefficients are by episode, one for
    /// each trained token.
    pub fn backward(self, coefficients: &[Vec<f32>]) -> Result<(), ModelError> {
        self.backward_in_buckets(coefficients, &mut |_| Ok(()))
    }

    /// The same for one of several ranks, whose gradients are whole: while the pass goes on, they are summed over all ranks, and
    /// each rank has the sums of its shard after it ([`adamw::AdamW::update_summed`]).
    pub fn backward_summing(
        self,
        coefficients: &[Vec<f32>],
        ranks: &mut dyn Collectives<Tensor>,
    ) -> Result<(), ModelError> {
        let trainable = self.trainable;
        let weights = trainable.model.weights();
        let mut sums = GradientSums::new(weights, Shard::of_rank(ranks));
        if sums.shards().is_some() {
            return Err(ModelError::Input("gradients in shards: expected whole ones to be summed".into()));
        }
        self.backward_in_buckets(coefficients, &mut |bucket| sums.begin(bucket, weights, ranks).map(drop))?;
        sums.end(ranks)
    }

    /// The same; `complete` is called when all gradients of a bucket are, before the next bucket's are computed.
    fn backward_in_buckets(
        self,
        coefficients: &[Vec<f32>],
        complete: &mut dyn FnMut(Bucket) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let given: Vec<usize> = coefficients.iter().map(Vec::len).collect();
        let needed: Vec<usize> = self.scores.logp.iter().map(Vec::len).collect();
        if given != needed {
            return Err(ModelError::Input(format!("coefficients for {given:?} tokens: expected {needed:?}")));
        }
        no_grad(|| {
            let Self { trainable, batch, packed, layout, hidden, text, vision, plan, .. } = self;
            let model = &trainable.model;
            let coefficients: Vec<f32> = coefficients.concat();
            let d_hidden = trainable.head.backward(model, &hidden, &packed, &coefficients);
            complete(Bucket::Head)?;
            let tokens = packed.tokens.size()[0];
            let d_last = Tensor::zeros([tokens, d_hidden.size()[1]], (d_hidden.kind(), d_hidden.device()));
            // episodes that diverge predict different tokens from the same row
            let d_last = d_last.index_add(0, &packed.before_trained, &d_hidden);
            let d_embedded =
                model.text().backward(text, &d_last, &layout, |block| complete(Bucket::Block(block)))?;
            packed.embed_backward(model, &d_embedded.tokens);
            if !batch.images.is_empty() && trainable.trains_vision() {
                let d_features = packed.feature_gradients(&d_embedded);
                trainable.vision_backward(&batch, vision, &d_features, &plan);
            }
            complete(Bucket::Rest)
        })
    }
}

impl TrainableModel {
    /// Adds the gradient of a loss of the images' features to the vision tower's gradients; returns the loss.
    fn vision_pass(
        &self,
        images: &[ImageInput],
        loss: impl FnOnce(&Tensor) -> (f64, Tensor),
    ) -> Result<f64, ModelError> {
        let (pixels, grids) =
            pixels(images).filter(|(_, grids)| grids.len() == images.len()).ok_or_else(|| {
                ModelError::Input("no image, or one without pixels, for the vision tower".into())
            })?;
        let vision = self.model.vision();
        let (features, saved) = vision.forward_saving(&pixels, &grids, |_| Keep::Everything);
        let (value, gradient) = loss(&features);
        vision.backward(saved, &gradient);
        Ok(value)
    }

    /// Backward through the vision tower: from kept activations, or recomputed, some images at a time.
    fn vision_backward(
        &self,
        batch: &MicroBatch,
        saved: Option<SavedVision>,
        gradient: &Tensor,
        plan: &Plan,
    ) {
        let vision = self.model.vision();
        if let Some(saved) = saved {
            return vision.backward(saved, gradient);
        }
        let merge = self.model.config().vision.merge as usize;
        let mut start = 0;
        for images in batch.images.chunks(plan.images_per_pass()) {
            let Some((pixels, grids)) = pixels(images) else { continue };
            let features = grids.iter().map(|grid| grid.features(merge) as i64).sum();
            let (_, saved) = vision.forward_saving(&pixels, &grids, |_| plan.vision());
            vision.backward(saved, &gradient.narrow(0, start, features));
            start += features;
        }
    }
}

/// The concatenated pixels of images; `None` without any.
fn pixels(images: &[ImageInput]) -> Option<(Tensor, Vec<Grid>)> {
    let (pixels, grids): (Vec<&Tensor>, Vec<Grid>) =
        images.iter().filter_map(|image| Some((image.pixels()?, image.grid))).unzip();
    (!pixels.is_empty()).then(|| (Tensor::cat(&pixels, 0), grids))
}
