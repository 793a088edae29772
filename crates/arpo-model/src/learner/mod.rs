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
pub mod plan;
mod rounding;
pub mod step;

use crate::ModelError;
use crate::model::{Model, Sequence};
use crate::positions::Grid;
use crate::text::{SavedText, TextLayout};
use crate::vision::SavedVision;
use head::Head;
use plan::Plan;
use tch::{Tensor, no_grad};

/// A picture of a micro-batch.
#[derive(Debug)]
pub struct Picture {
    /// `[patches, channels * patch * patch]`, as the image processor makes them.
    pub pixels: Tensor,
    /// Its size in patches.
    pub grid: Grid,
}

/// One episode of a micro-batch.
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
            let packed = Packed::new(&self.model, batch, self.options.length_step)?;
            let features = self.features(batch);
            let layout = self.model.text().layout(&packed.positions, self.model.device());
            let embedded = self.embed(&packed, features.as_ref());
            let mut states = self.model.text().hidden_states(embedded, &layout);
            let last = states.pop().expect("there is at least the embedding");
            let hidden = last.index_select(0, &packed.before_trained);
            Ok(self.head.scores(&self.model, &hidden, &packed))
        })
    }

    /// A forward pass that keeps what its backward pass needs.
    pub fn forward<'a>(&'a self, batch: MicroBatch<'a>) -> Result<ForwardPass<'a>, ModelError> {
        no_grad(|| {
            let packed = Packed::new(&self.model, &batch, self.options.length_step)?;
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
            let layout = self.model.text().layout(&packed.positions, self.model.device());
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
        let (pixels, grids) = pixels(batch.pictures)?;
        Some(self.model.vision().forward(&pixels, &grids))
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
            // each token is predicted from one place, so places do not repeat
            let d_last = d_last.index_copy(0, &packed.before_trained, &d_hidden);
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

/// Pictures one behind the other.
fn pixels(pictures: &[Picture]) -> Option<(Tensor, Vec<Grid>)> {
    let pixels: Vec<&Tensor> = pictures.iter().map(|picture| &picture.pixels).collect();
    (!pixels.is_empty())
        .then(|| (Tensor::cat(&pixels, 0), pictures.iter().map(|picture| picture.grid).collect()))
}

/// A micro-batch as the tensors that lay it out, on the model's device.
#[derive(Debug)]
pub(crate) struct Packed {
    /// Places on the three axes, by episode.
    positions: Vec<crate::positions::Positions>,
    /// All tokens.
    tokens: Tensor,
    /// Where placeholders stand among them ...
    image_places: Tensor,
    /// ... and which feature of the pictures goes there.
    image_features: Tensor,
    /// How many features the pictures have.
    features: i64,
    /// Where ordinary tokens stand.
    text_places: Tensor,
    /// The places whose next token is trained.
    before_trained: Tensor,
    /// The trained tokens.
    pub(crate) targets: Tensor,
    /// How many of them each episode has.
    pub(crate) counts: Vec<usize>,
}

impl Packed {
    fn new(model: &Model, batch: &MicroBatch, length_step: usize) -> Result<Self, ModelError> {
        let (image, merge) = (model.config().image_token, model.config().vision.merge as usize);
        let mut first_features = vec![0];
        for picture in batch.pictures {
            first_features
                .push(first_features[first_features.len() - 1] + picture.grid.features(merge) as i64);
        }
        let mut positions = Vec::new();
        let (mut tokens, mut image_places, mut image_features) = (Vec::new(), Vec::new(), Vec::new());
        let (mut text_places, mut before_trained, mut targets) = (Vec::new(), Vec::new(), Vec::new());
        let mut counts = Vec::new();
        for episode in batch.episodes {
            check(episode, batch.pictures.len())?;
            let grids: Vec<Grid> =
                episode.pictures.iter().map(|&picture| batch.pictures[picture].grid).collect();
            let mut places = model.positions(&Sequence { tokens: episode.tokens, grids: &grids })?;
            let length = episode.tokens.len();
            let filling = length.next_multiple_of(length_step.max(1)) - length;
            for axis in &mut places.axes {
                axis.extend((0..filling).map(|place| places.next + place as i64));
            }
            positions.push(places);
            let features = |&picture: &usize| first_features[picture]..first_features[picture + 1];
            image_features.extend(episode.pictures.iter().flat_map(features));
            let first = tokens.len() as i64;
            for (place, &token) in (first..).zip(episode.tokens) {
                if token == image { &mut image_places } else { &mut text_places }.push(place);
                tokens.push(i64::from(token));
            }
            tokens.resize(tokens.len() + filling, FILLING_TOKEN);
            let trained: Vec<usize> =
                (0..episode.tokens.len()).filter(|&place| episode.trained[place]).collect();
            before_trained.extend(trained.iter().map(|&place| first + place as i64 - 1));
            targets.extend(trained.iter().map(|&place| i64::from(episode.tokens[place])));
            counts.push(trained.len());
        }
        let tensor = |numbers: &[i64]| Tensor::from_slice(numbers).to_device(model.device());
        Ok(Self {
            positions,
            tokens: tensor(&tokens),
            image_places: tensor(&image_places),
            image_features: tensor(&image_features),
            features: first_features[first_features.len() - 1],
            text_places: tensor(&text_places),
            before_trained: tensor(&before_trained),
            targets: tensor(&targets),
            counts,
        })
    }

    fn embed_backward(&self, model: &Model, gradient: &Tensor) {
        let tokens = self.tokens.index_select(0, &self.text_places);
        model.text().embed_backward(&tokens, &gradient.index_select(0, &self.text_places));
    }

    /// A feature's gradient is the sum over all places that show it.
    fn feature_gradients(&self, gradient: &Tensor) -> Tensor {
        let shown = gradient.index_select(0, &self.image_places);
        let total = Tensor::zeros([self.features, gradient.size()[1]], (gradient.kind(), gradient.device()));
        total.index_add(0, &self.image_features, &shown)
    }
}

/// Any token: nothing looks at it.
const FILLING_TOKEN: i64 = 0;

fn check(episode: &Episode, pictures: usize) -> Result<(), ModelError> {
    let (tokens, trained) = (episode.tokens.len(), episode.trained.len());
    if tokens != trained {
        return Err(ModelError::Input(format!("a mask of {trained} for {tokens} tokens")));
    }
    if episode.trained.first() == Some(&true) {
        return Err(ModelError::Input(
            "the first token of an episode cannot be trained: nothing predicts it".into(),
        ));
    }
    match episode.pictures.iter().find(|&&picture| picture >= pictures) {
        Some(picture) => Err(ModelError::Input(format!("an episode shows picture {picture} of {pictures}"))),
        None => Ok(()),
    }
}
