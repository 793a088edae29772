//! The learner's step: log-probabilities of the agent's tokens, and the gradients of a loss given as one coefficient
//! per token (see `arpo_core::loss`).
//!
//! A micro-batch holds whole episodes one behind the other. Its pictures are encoded once, however many episodes show
//! them. Logits exist only at the agent's tokens, and only a chunk of them at a time (`head`). What is kept between
//! the passes follows from a memory budget ([`plan`]).

pub mod adamw;
mod head;
mod incident;
mod optimiser_file;
mod packed;
pub mod plan;
mod rounding;
pub mod step;

use crate::ModelError;
use crate::model::Model;
use crate::positions::Grid;
use crate::text::{SavedText, TextLayout};
use crate::vision::SavedVision;
use head::Head;
use packed::Packed;
use plan::Plan;
use tch::{Device, Tensor, no_grad};

/// A picture of a micro-batch.
#[derive(Debug)]
pub struct Picture {
    /// What is on it.
    pub content: Content,
    /// Its size in patches.
    pub grid: Grid,
}

/// What is on a picture.
#[derive(Debug)]
pub enum Content {
    /// `[patches, channels * patch * patch]`, as the image processor makes them.
    Pixels(Tensor),
    /// `[features, hidden]`: what the vision tower made of it before. Only a tower that is not trained makes the same of
    /// it again.
    Features(Tensor),
}

impl Picture {
    /// From what the image processor makes of it.
    pub fn of_pixels(pixels: Tensor, grid: Grid) -> Self {
        Self { content: Content::Pixels(pixels), grid }
    }

    /// Its patches, unless it is known by its features only.
    pub fn pixels(&self) -> Option<&Tensor> {
        match &self.content {
            Content::Pixels(pixels) => Some(pixels),
            Content::Features(_) => None,
        }
    }
}

/// One sequence of a micro-batch: an episode, or a slice of one.
#[derive(Debug, Clone)]
pub struct Episode<'a> {
    /// The whole sequence.
    pub tokens: &'a [u32],
    /// Its pictures, by their places in the micro-batch, in the order of their placeholders.
    pub pictures: &'a [usize],
    /// For every token, whether it is the agent's. The first never is: nothing predicts it.
    pub trained: &'a [bool],
}

/// Episodes computed together.
#[derive(Debug, Clone, Copy)]
pub struct MicroBatch<'a> {
    /// One behind the other.
    pub episodes: &'a [Episode<'a>],
    /// Each once, however many episodes show it.
    pub pictures: &'a [Picture],
}

/// What the model says of the agent's tokens, by episode.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenScores {
    /// Log-probability of each trained token.
    pub logp: Vec<Vec<f32>>,
    /// Entropy of the distribution it was taken from.
    pub entropy: Vec<Vec<f32>>,
}

/// How the learner computes.
#[derive(Debug, Clone, PartialEq)]
pub struct LearnerOptions {
    /// The sampler's temperature: log-probabilities are those of the distribution that was sampled from.
    pub temperature: f64,
    /// Tokens that may not occur in an action; the sampler leaves them out too.
    pub forbidden: Vec<u32>,
    /// Bytes that may be kept between the forward and the backward pass.
    pub activation_bytes: u64,
    /// Agent's tokens whose logits exist at a time.
    pub logit_rows: i64,
    /// Episodes are filled up to a multiple of so many tokens: more of them are then equally long and computed together.
    /// What stands behind an episode changes nothing in it. 1 fills nothing up.
    pub length_step: usize,
    /// What episodes of a micro-batch have in common at their beginning is computed once. Pays where rollouts of the
    /// same task often go alike for some turns; the attention it needs is slower on GPUs. Nothing is filled up then.
    pub share_beginnings: bool,
}

/// A model with room for gradients.
#[derive(Debug)]
pub struct Learner {
    model: Model,
    head: Head,
    options: LearnerOptions,
}

/// A forward pass whose backward pass is still to come.
pub struct ForwardPass<'a> {
    learner: &'a Learner,
    batch: MicroBatch<'a>,
    packed: Packed,
    layout: TextLayout,
    hidden: Tensor, // at the tokens before trained ones
    text: SavedText,
    vision: Option<SavedVision>,
    plan: Plan,
    scores: TokenScores,
}

impl Learner {
    /// A learner; the model's weights must have gradients.
    pub fn new(model: Model, options: LearnerOptions) -> Self {
        let head = Head::new(&model, &options);
        Self { model, head, options }
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

    /// A forward pass that keeps what its backward pass needs.
    pub fn forward<'a>(&'a self, batch: MicroBatch<'a>) -> Result<ForwardPass<'a>, ModelError> {
        no_grad(|| {
            if self.trains_vision() && batch.pictures.iter().any(|picture| picture.pixels().is_none()) {
                return Err(ModelError::Input(
                    "a picture without pixels cannot train the vision tower".into(),
                ));
            }
            let packed = Packed::new(&self.model, &batch, &self.options)?;
            let plan = Plan::new(
                self.model.config(),
                &batch,
                self.model.weights().kind(),
                self.options.activation_bytes,
            );
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
            Ok(ForwardPass { learner: self, batch, packed, layout, hidden, text, vision, plan, scores })
        })
    }

    fn trains_vision(&self) -> bool {
        self.model.weights().trained().any(|(layout, _, _)| layout.is_vision())
    }

    fn features(&self, batch: &MicroBatch) -> Option<Tensor> {
        if batch.pictures.is_empty() {
            return None;
        }
        let vision = self.model.vision();
        let all_pixels = batch.pictures.iter().all(|picture| picture.pixels().is_some());
        if all_pixels && self.model.device() != Device::Cpu {
            let (pixels, grids) = pixels(batch.pictures)?;
            return Some(vision.forward(&pixels, &grids));
        }
        // on a CPU each by itself, so that it does not depend in its last bits on which others are known
        let features = batch.pictures.iter().map(|picture| match &picture.content {
            Content::Pixels(pixels) => vision.forward(pixels, &[picture.grid]),
            Content::Features(features) => features.shallow_clone(),
        });
        Some(Tensor::cat(&features.collect::<Vec<_>>(), 0))
    }

    fn features_saving(&self, batch: &MicroBatch, plan: &Plan) -> (Option<Tensor>, Option<SavedVision>) {
        let Some((pixels, grids)) = pixels(batch.pictures) else { return (None, None) };
        let (features, saved) =
            self.model.vision().forward_saving(&pixels, &grids, |block| plan.vision(block));
        (Some(features), Some(saved))
    }

    fn embed(&self, packed: &Packed, features: Option<&Tensor>) -> Tensor {
        let embedded = self.model.text().embed(&packed.tokens);
        match features {
            None => embedded,
            Some(features) => {
                let shown = features.index_select(0, &packed.image_features).to_kind(embedded.kind());
                embedded.index_copy(0, &packed.image_places, &shown)
            }
        }
    }
}

impl ForwardPass<'_> {
    /// What the model says of the agent's tokens.
    pub fn scores(&self) -> &TokenScores {
        &self.scores
    }

    /// Adds the gradient of `sum(coefficient * logp)` to the weights' gradients. Coefficients are by episode, one for
    /// each trained token.
    pub fn backward(self, coefficients: &[Vec<f32>]) -> Result<(), ModelError> {
        let given: Vec<usize> = coefficients.iter().map(Vec::len).collect();
        let needed: Vec<usize> = self.scores.logp.iter().map(Vec::len).collect();
        if given != needed {
            return Err(ModelError::Input(format!("coefficients for {given:?} tokens: expected {needed:?}")));
        }
        no_grad(|| {
            let Self { learner, batch, packed, layout, hidden, text, vision, plan, .. } = self;
            let model = &learner.model;
            let coefficients: Vec<f32> = coefficients.concat();
            let d_hidden = learner.head.backward(model, &hidden, &packed, &coefficients);
            let tokens = packed.tokens.size()[0];
            let d_last = Tensor::zeros([tokens, d_hidden.size()[1]], (d_hidden.kind(), d_hidden.device()));
            // episodes that part predict different tokens from the place where they do
            let d_last = d_last.index_add(0, &packed.before_trained, &d_hidden);
            let d_embedded = model.text().backward(text, &d_last, &layout);
            packed.embed_backward(model, &d_embedded);
            if !batch.pictures.is_empty() && learner.trains_vision() {
                let d_features = packed.feature_gradients(&d_embedded);
                learner.vision_backward(&batch, vision, &d_features, &plan);
            }
            Ok(())
        })
    }
}

impl Learner {
    /// Through the vision tower: from what was kept, or computed again, some pictures at a time.
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
        for pictures in batch.pictures.chunks(plan.pictures_at_a_time()) {
            let Some((pixels, grids)) = pixels(pictures) else { continue };
            let features = grids.iter().map(|grid| grid.features(merge) as i64).sum();
            let (_, saved) = vision.forward_saving(&pixels, &grids, |block| plan.vision(block));
            vision.backward(saved, &gradient.narrow(0, start, features));
            start += features;
        }
    }
}

/// The pixels of pictures one behind the other; none of none.
fn pixels(pictures: &[Picture]) -> Option<(Tensor, Vec<Grid>)> {
    let (pixels, grids): (Vec<&Tensor>, Vec<Grid>) =
        pictures.iter().filter_map(|picture| Some((picture.pixels()?, picture.grid))).unzip();
    (!pixels.is_empty()).then(|| (Tensor::cat(&pixels, 0), grids))
}
