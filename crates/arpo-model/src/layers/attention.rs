//! Attention within runs of tokens: windows, images, sequences.

use tch::{Kind, Tensor};

/// Which tokens see each other.
#[derive(Debug, Clone)]
pub(crate) struct Runs {
    /// Lengths of the runs, one behind the other; a token sees its own run only.
    pub(crate) lengths: Vec<i64>,
    /// It sees only what stands before it.
    pub(crate) causal: bool,
}

/// Attention of q, k, v `[tokens, heads, width]`; keys and values may have fewer heads. Equal runs that follow each
/// other are one batch. The result is `[tokens, heads * width]`.
pub(crate) fn attention(q: &Tensor, k: &Tensor, v: &Tensor, runs: &Runs) -> Tensor {
    let grouped = q.size()[1] != k.size()[1];
    let mut results = Vec::new();
    let mut start = 0;
    for run in runs.lengths.chunk_by(|a, b| a == b) {
        let (count, length) = (run.len() as i64, run[0]);
        // [runs, heads, length, width]
        let batch = |x: &Tensor| {
            let sizes = x.size();
            x.narrow(0, start, count * length).view([count, length, sizes[1], sizes[2]]).transpose(1, 2)
        };
        let no_mask = None::<&Tensor>;
        let attended = Tensor::scaled_dot_product_attention(
            &batch(q),
            &batch(k),
            &batch(v),
            no_mask,
            0.0,
            runs.causal,
            None,
            grouped,
        );
        results.push(attended.transpose(1, 2).reshape([count * length, -1]));
        start += count * length;
    }
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
        let number = tch::with_grad(|| (&self.output * d_output).sum(Kind::Float));
        let gradients = Tensor::run_backward(&[number], &self.inputs, false, false);
        gradients.try_into().expect("a gradient for each of three inputs")
    }
}
