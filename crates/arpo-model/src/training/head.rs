//! From hidden states to log-probabilities of the agent's tokens, and backward, a chunk of rows at a time: logits of a
//! whole episode would take gigabytes, and only these rows are needed.

use super::packed::Packed;
use super::{PassOptions, TokenScores};
use crate::distribution::Forbidden;
use crate::model::Model;
use tch::{Kind, Tensor};

#[derive(Debug)]
pub(super) struct Head {
    temperature: Tensor,
    forbidden: Forbidden,
    rows: i64,
}

impl Head {
    pub(super) fn new(model: &Model, options: &PassOptions) -> Self {
        let temperature = Tensor::from(options.temperature as f32).to_device(model.device());
        let forbidden = Forbidden::new(&options.forbidden, model.device(), model.weights().kernels());
        Self { temperature, forbidden, rows: options.logit_rows }
    }

    /// Log-probabilities and entropies of the trained tokens, from the hidden states before them.
    pub(super) fn scores(&self, model: &Model, hidden: &Tensor, packed: &Packed) -> TokenScores {
        let (mut logps, mut entropies) = (Vec::new(), Vec::new());
        for (hidden, targets) in self.chunks(hidden, &packed.targets) {
            let all = self.log_distribution(model, &hidden);
            logps.push(all.gather(1, &targets.unsqueeze(1), false).squeeze_dim(1));
            entropies.push(-(all.exp() * all).sum_dim_intlist([1i64].as_slice(), false, None::<Kind>));
        }
        let by_episode = |parts: &[Tensor]| -> Vec<Vec<f32>> {
            let values: Vec<f32> = match parts {
                [] => vec![],
                parts => Tensor::cat(parts, 0).try_into().expect("one value for each token"),
            };
            let mut rest = values.as_slice();
            let take = |&count: &usize| {
                let (episode, others) = rest.split_at(count);
                rest = others;
                episode.to_vec()
            };
            packed.counts.iter().map(take).collect()
        };
        TokenScores { logp: by_episode(&logps), entropy: by_episode(&entropies) }
    }

    /// dL/d(hidden) for L = sum(coefficient * logp); accumulates the head's gradient.
    pub(super) fn backward(
        &self,
        model: &Model,
        hidden: &Tensor,
        packed: &Packed,
        coefficients: &[f32],
    ) -> Tensor {
        let coefficients = Tensor::from_slice(coefficients).to_device(hidden.device());
        let mut start = 0;
        let mut gradients = Vec::new();
        for (hidden, targets) in self.chunks(hidden, &packed.targets) {
            let rows = hidden.size()[0];
            let coefficient = coefficients.narrow(0, start, rows).unsqueeze(1) / &self.temperature;
            start += rows;
            // dlogp/dlogits = onehot - p
            let probabilities = self.log_distribution(model, &hidden).exp();
            let d_logits =
                (probabilities * -&coefficient).scatter_add(1, &targets.unsqueeze(1), &coefficient);
            gradients.push(model.text().logits_backward(&hidden, &d_logits.to_kind(hidden.kind())));
        }
        match gradients.as_slice() {
            [] => hidden.zeros_like(),
            gradients => Tensor::cat(gradients, 0),
        }
    }

    fn log_distribution(&self, model: &Model, hidden: &Tensor) -> Tensor {
        self.forbidden.log_distribution(&model.text().logits(hidden), &self.temperature)
    }

    fn chunks(&self, hidden: &Tensor, targets: &Tensor) -> Vec<(Tensor, Tensor)> {
        let total = targets.size()[0];
        let chunk = |start: i64| {
            let rows = self.rows.min(total - start);
            (hidden.narrow(0, start, rows), targets.narrow(0, start, rows))
        };
        (0..total).step_by(self.rows as usize).map(chunk).collect()
    }
}
