//! Attention within runs of tokens: windows, images, sequences.

use tch::{Device, Tensor};

/// Which tokens see each other.
#[derive(Debug)]
pub(crate) struct Runs {
    /// Lengths of the runs, one behind the other; a token sees its own run only.
    pub(crate) lengths: Vec<i64>,
    /// It sees only what stands before it.
    pub(crate) causal: bool,
    /// Where the runs' tokens are found, if they do not lie one behind the other.
    pub(crate) order: Option<Order>,
}

/// Another order of tokens, `unit` of which always stay together.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) unit: i64,
    /// For every place in that order, the unit that stands there ...
    pub(crate) places: Tensor,
    /// ... and the way back.
    pub(crate) back: Tensor,
}

impl Order {
    pub(crate) fn new(unit: i64, places: &[i64], device: Device) -> Self {
        let places = Tensor::from_slice(places).to_device(device);
        let back = places.argsort(0, false);
        Self { unit, places, back }
    }

    pub(crate) fn apply(&self, x: &Tensor) -> Tensor {
        self.select(x, &self.places)
    }

    pub(crate) fn undo(&self, x: &Tensor) -> Tensor {
        self.select(x, &self.back)
    }

    fn select(&self, x: &Tensor, places: &Tensor) -> Tensor {
        let size = x.size();
        x.reshape([size[0] / self.unit, -1]).index_select(0, places).view(size.as_slice())
    }
}

/// Attention of q, k, v `[tokens, heads, width]`; keys and values may have fewer heads. Equal runs that follow each
/// other are one batch. The result is `[tokens, heads * width]`.
pub(crate) fn attention(q: &Tensor, k: &Tensor, v: &Tensor, runs: &Runs) -> Tensor {
    match &runs.order {
        None => attention_in_order(q, k, v, runs),
        Some(order) => {
            let [q, k, v] = [q, k, v].map(|x| order.apply(x));
            order.undo(&attention_in_order(&q, &k, &v, runs))
        }
    }
}

fn attention_in_order(q: &Tensor, k: &Tensor, v: &Tensor, runs: &Runs) -> Tensor {
    let grouped = q.size()[1] != k.size()[1];
    let batches: Vec<(i64, i64)> =
        runs.lengths.chunk_by(|a, b| a == b).map(|equal| (equal.len() as i64, equal[0])).collect();
    let sizes: Vec<i64> = batches.iter().map(|(count, length)| count * length).collect();
    // split, not narrow: autograd then puts the gradients together once, instead of widening each to the whole
    let parts = [q, k, v]
        .map(|x| if sizes.len() == 1 { vec![x.shallow_clone()] } else { x.split_with_sizes(&sizes, 0) });
    let mut results: Vec<Tensor> = batches
        .iter()
        .enumerate()
        .map(|(number, &(count, length))| {
            // [runs, heads, length, width]
            let [q, k, v] = parts.each_ref().map(|parts| {
                let size = parts[number].size();
                parts[number].view([count, length, size[1], size[2]]).transpose(1, 2)
            });
            let no_mask = None::<&Tensor>;
            let attended =
                Tensor::scaled_dot_product_attention(&q, &k, &v, no_mask, 0.0, runs.causal, None, grouped);
            attended.transpose(1, 2).reshape([count * length, -1])
        })
        .collect();
    match results.len() {
        1 => results.remove(0),
        _ => Tensor::cat(&results, 0),
    }
}

/// Attention whose backward pass is still to come: its own little graph.
#[derive(Debug)]
pub(crate) struct SavedAttention {
    inputs: [Tensor; 3],
    output: Tensor,
}

impl SavedAttention {
    pub(crate) fn new(q: &Tensor, k: &Tensor, v: &Tensor, runs: &Runs) -> Self {
        let inputs = [q, k, v].map(|x| x.detach().set_requires_grad(true));
        let output = tch::with_grad(|| attention(&inputs[0], &inputs[1], &inputs[2], runs));
        Self { inputs, output }
    }

    pub(crate) fn output(&self) -> Tensor {
        self.output.detach()
    }

    /// dL/d(q, k, v) from dL/do. tch takes no gradient to start from, so the graph ends in a number whose gradient
    /// with respect to the output it is.
    pub(crate) fn backward(self, d_output: &Tensor) -> [Tensor; 3] {
        let number = tch::with_grad(|| self.output.flatten(0, -1).dot(&d_output.flatten(0, -1)));
        let gradients = Tensor::run_backward(&[number], &self.inputs, false, false);
        gradients.try_into().expect("a gradient for each of three inputs")
    }
}
