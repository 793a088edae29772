//! Attention within runs of tokens: windows, images, sequences.

use arpo_torch::shim;
use tch::{Device, Kind, Tensor};

/// Which tokens see each other.
#[derive(Debug)]
pub(crate) struct Runs {
    /// Lengths of the runs, one behind the other; a token sees its own run only.
    pub(crate) lengths: Vec<i64>,
    /// It sees only what stands before it.
    pub(crate) causal: bool,
    /// Where the runs' tokens are found, if they do not lie one behind the other.
    pub(crate) order: Option<Order>,
    /// What else they see, if they go on where other runs part.
    pub(crate) going_on: Option<GoingOn>,
}

/// Causal runs that each see more than themselves: the beginning they have in common with others.
#[derive(Debug)]
pub(crate) struct GoingOn {
    /// Where everything lies that a run sees, itself at the end, run by run ...
    places: Tensor,
    /// ... and how much it is.
    lengths: Vec<i64>,
    /// For each run `[heads of a key * tokens, seen]`: which of the seen each of its tokens sees.
    masks: Vec<Tensor>,
}

impl GoingOn {
    /// Runs of these lengths; `heads` share a key.
    pub(crate) fn new(own: &[i64], seen: &[Vec<i64>], heads: i64, device: Device) -> Self {
        let lengths: Vec<i64> = seen.iter().map(|seen| seen.len() as i64).collect();
        let mask = |(&own, &all): (&i64, &i64)| {
            let last = Tensor::arange_start(all - own, all, (Kind::Int64, device)).unsqueeze(1);
            Tensor::arange(all, (Kind::Int64, device)).unsqueeze(0).le_tensor(&last).repeat([heads, 1])
        };
        let masks = own.iter().zip(&lengths).map(mask).collect();
        Self { places: Tensor::from_slice(&seen.concat()).to_device(device), lengths, masks }
    }

    fn attention(&self, q: &Tensor, k: &Tensor, v: &Tensor, own: &[i64]) -> Tensor {
        let (heads, shared, width) = (q.size()[1], k.size()[1], q.size()[2]);
        let queries = q.split_with_sizes(own, 0);
        let [keys, values] =
            [k, v].map(|x| x.index_select(0, &self.places).split_with_sizes(&self.lengths, 0));
        let run = |number: usize| {
            let tokens = own[number];
            // the heads that share a key are rows of one product
            let q = queries[number].transpose(0, 1).reshape([1, shared, heads / shared * tokens, width]);
            let [k, v] = [&keys[number], &values[number]].map(|x| x.transpose(0, 1).unsqueeze(0));
            let mask = Some(&self.masks[number]);
            let attended = Tensor::scaled_dot_product_attention(&q, &k, &v, mask, 0.0, false, None, false);
            attended.reshape([heads, tokens, width]).transpose(0, 1).reshape([tokens, -1])
        };
        Tensor::cat(&(0..own.len()).map(run).collect::<Vec<_>>(), 0)
    }
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

impl Runs {
    /// Tokens run by run.
    fn arrange(&self, x: &Tensor) -> Tensor {
        self.order.as_ref().map_or_else(|| x.shallow_clone(), |order| order.apply(x))
    }

    /// Tokens where they stood.
    fn put_back(&self, x: &Tensor) -> Tensor {
        self.order.as_ref().map_or_else(|| x.shallow_clone(), |order| order.undo(x))
    }
}

/// Attention of q, k, v `[tokens, heads, width]`; keys and values may have fewer heads. The result is
/// `[tokens, heads * width]`.
pub(crate) fn attention(q: &Tensor, k: &Tensor, v: &Tensor, runs: &Runs) -> Tensor {
    let [q, k, v] = [q, k, v].map(|x| runs.arrange(x));
    runs.put_back(&attention_in_order(&q, &k, &v, runs))
}

/// The same of tokens that lie run by run. Equal runs that follow each other are one batch.
fn attention_in_order(q: &Tensor, k: &Tensor, v: &Tensor, runs: &Runs) -> Tensor {
    if let Some(going_on) = &runs.going_on {
        return going_on.attention(q, k, v, &runs.lengths);
    }
    let group = q.size()[1] / k.size()[1];
    // a GPU's attention that keeps no scores takes f32 only with a key for every head
    let spreads = group > 1 && q.kind() == Kind::Float && q.device() != Device::Cpu;
    let [k, v] = [k, v]
        .map(|x| if spreads { x.repeat_interleave_self_int(group, 1, None) } else { x.shallow_clone() });
    let grouped = group > 1 && !spreads;
    let batches: Vec<(i64, i64)> =
        runs.lengths.chunk_by(|a, b| a == b).map(|equal| (equal.len() as i64, equal[0])).collect();
    let sizes: Vec<i64> = batches.iter().map(|(count, length)| count * length).collect();
    // split, not narrow: autograd then puts the gradients together once, instead of widening each to the whole
    let parts = [q, &k, &v]
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

/// Attention whose backward pass is still to come: its own little graph, of tokens that lie run by run.
#[derive(Debug)]
pub(crate) struct SavedAttention {
    inputs: [Tensor; 3],
    output: Tensor,
}

impl SavedAttention {
    pub(crate) fn new(q: &Tensor, k: &Tensor, v: &Tensor, runs: &Runs) -> Self {
        let inputs = [q, k, v].map(|x| runs.arrange(x).detach().set_requires_grad(true));
        let output = tch::with_grad(|| attention_in_order(&inputs[0], &inputs[1], &inputs[2], runs));
        Self { inputs, output }
    }

    pub(crate) fn output(&self, runs: &Runs) -> Tensor {
        runs.put_back(&self.output.detach())
    }

    /// dL/d(q, k, v) from dL/do.
    pub(crate) fn backward(self, d_output: &Tensor, runs: &Runs) -> [Tensor; 3] {
        let gradients = shim::gradients(&self.output, &self.inputs, &runs.arrange(d_output));
        gradients.map(|gradient| runs.put_back(&gradient))
    }
}
