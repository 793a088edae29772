//! A micro-batch as the tensors that lay it out: episodes one behind the other, or, where they share beginnings, only
//! what each adds to those before it.

use super::{Episode, LearnerOptions, MicroBatch};
use crate::ModelError;
use crate::model::{Model, Sequence};
use crate::positions::{Grid, Positions};
use crate::text::TextLayout;
use tch::Tensor;

/// The tensors, on the model's device.
#[derive(Debug)]
pub(crate) struct Packed {
    /// Places on the three axes, by run: the tokens that an episode adds.
    positions: Vec<Positions>,
    /// For every run, where everything lies that its last token sees, if runs go on where others part.
    seen: Option<Vec<Vec<i64>>>,
    /// All tokens.
    pub(super) tokens: Tensor,
    /// Where placeholders stand among them ...
    pub(super) image_places: Tensor,
    /// ... and which feature of the pictures goes there.
    pub(super) image_features: Tensor,
    /// How many features the pictures have.
    features: i64,
    /// Where ordinary tokens stand.
    text_places: Tensor,
    /// The places whose next token is trained.
    pub(super) before_trained: Tensor,
    /// The trained tokens.
    pub(super) targets: Tensor,
    /// How many of them each episode has.
    pub(super) counts: Vec<usize>,
}

/// What was laid out of an episode.
struct LaidOut {
    /// What stands at each of its tokens: a word, or a feature of a picture.
    keys: Vec<u64>,
    /// Where each of its tokens lies.
    places: Vec<i64>,
}

/// A key with this bit is a picture's feature.
const FEATURE: u64 = 1 << 40;

impl Packed {
    pub(super) fn new(
        model: &Model,
        batch: &MicroBatch,
        options: &LearnerOptions,
    ) -> Result<Self, ModelError> {
        let (image, merge) = (model.config().image_token, model.config().vision.merge as usize);
        let mut first_features = vec![0];
        for picture in batch.pictures {
            first_features
                .push(first_features[first_features.len() - 1] + picture.grid.features(merge) as u64);
        }
        let (mut positions, mut seen) = (Vec::new(), Vec::new());
        let (mut tokens, mut image_places, mut image_features) = (Vec::new(), Vec::new(), Vec::new());
        let (mut text_places, mut before_trained, mut targets) = (Vec::new(), Vec::new(), Vec::new());
        let mut counts = Vec::new();
        let mut laid_out: Vec<LaidOut> = Vec::new();
        for episode in batch.episodes {
            check(episode, batch.pictures.len())?;
            let grids: Vec<Grid> =
                episode.pictures.iter().map(|&picture| batch.pictures[picture].grid).collect();
            let mut stand = model.positions(&Sequence { tokens: episode.tokens, grids: &grids })?;
            let mut features =
                episode.pictures.iter().flat_map(|&one| first_features[one]..first_features[one + 1]);
            let key = |&token: &u32| {
                let feature = (token == image).then(|| features.next()).flatten();
                feature.map_or(u64::from(token), |feature| FEATURE | feature)
            };
            let keys: Vec<u64> = episode.tokens.iter().map(key).collect();
            let mut places = if options.share_beginnings { common(&laid_out, &keys) } else { vec![] };
            let known = places.len();
            for &key in &keys[known..] {
                let place = tokens.len() as i64;
                places.push(place);
                if key & FEATURE == 0 {
                    text_places.push(place);
                    tokens.push(key as i64);
                } else {
                    image_places.push(place);
                    image_features.push((key & !FEATURE) as i64);
                    tokens.push(i64::from(image));
                }
            }
            let length = keys.len();
            let filling = if options.share_beginnings {
                0
            } else {
                length.next_multiple_of(options.length_step.max(1)) - length
            };
            tokens.resize(tokens.len() + filling, FILLING_TOKEN);
            if known < length {
                for axis in &mut stand.axes {
                    axis.drain(..known);
                    axis.extend((0..filling).map(|place| stand.next + place as i64));
                }
                positions.push(stand);
                seen.push(places.clone());
            }
            let trained: Vec<usize> = (0..length).filter(|&place| episode.trained[place]).collect();
            before_trained.extend(trained.iter().map(|&place| places[place - 1]));
            targets.extend(trained.iter().map(|&place| i64::from(episode.tokens[place])));
            counts.push(trained.len());
            laid_out.push(LaidOut { keys, places });
        }
        let tensor = |numbers: &[i64]| Tensor::from_slice(numbers).to_device(model.device());
        Ok(Self {
            positions,
            seen: options.share_beginnings.then_some(seen),
            tokens: tensor(&tokens),
            image_places: tensor(&image_places),
            image_features: tensor(&image_features),
            features: first_features[first_features.len() - 1] as i64,
            text_places: tensor(&text_places),
            before_trained: tensor(&before_trained),
            targets: tensor(&targets),
            counts,
        })
    }

    pub(super) fn layout(&self, model: &Model) -> TextLayout {
        let text = model.text();
        match &self.seen {
            None => text.layout(&self.positions, model.device()),
            Some(seen) => text.layout_going_on(&self.positions, seen, model.device()),
        }
    }

    pub(super) fn embed_backward(&self, model: &Model, gradient: &Tensor) {
        let tokens = self.tokens.index_select(0, &self.text_places);
        model.text().embed_backward(&tokens, &gradient.index_select(0, &self.text_places));
    }

    /// A feature's gradient is the sum over all places that show it.
    pub(super) fn feature_gradients(&self, gradient: &Tensor) -> Tensor {
        let shown = gradient.index_select(0, &self.image_places);
        let total = Tensor::zeros([self.features, gradient.size()[1]], (gradient.kind(), gradient.device()));
        total.index_add(0, &self.image_features, &shown)
    }
}

/// Where the longest beginning lies that an episode has in common with one before it.
fn common(before: &[LaidOut], keys: &[u64]) -> Vec<i64> {
    let alike = |one: &LaidOut| one.keys.iter().zip(keys).take_while(|(theirs, ours)| theirs == ours).count();
    let longest = before.iter().map(|one| (alike(one), one)).max_by_key(|(length, _)| *length);
    longest.map_or_else(Vec::new, |(length, one)| one.places[..length].to_vec())
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
