//! Attention saved for its backward pass. libtorch has kernels whose backward pass needs the result and the log-sum-exps
//! besides queries, keys and values; these can be computed again, or kept, apart from the result. Where libtorch would use
//! another kernel, an autograd graph is kept.

use super::attention::{Batch, PackedSequences, attention_in_order};
use arpo_torch::shim::{self, AttentionStatistics};
use tch::{Device, Kind, Tensor};

/// How attention can be saved for its backward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SavedAs {
    /// By its result and log-sum-exps, from which the backward pass starts, given queries, keys and values again.
    AttentionResult,
    /// As an autograd graph, which holds queries, keys and values.
    Graph,
}

impl SavedAs {
    /// Without shared prefixes. On GPUs attention in f32 is a kernel whose result is not enough, and heads whose width is not
    /// a multiple of 8 would have to be padded. What else libtorch decides by, such as the GPU's generation, is not looked at:
    /// if it decides for another kernel, a graph is kept that was not planned for.
    pub(crate) fn of(kind: Kind, device: Device, head_width: i64) -> Self {
        let has_kernel = matches!(kind, Kind::BFloat16 | Kind::Half) && head_width % 8 == 0;
        let enough = device == Device::Cpu || has_kernel;
        if enough { Self::AttentionResult } else { Self::Graph }
    }
}

/// Attention saved for its backward pass, over contiguous sequences.
#[derive(Debug)]
pub(crate) enum SavedAttention {
    /// See [`SavedAs::AttentionResult`].
    Result { output: Tensor, statistics: Vec<AttentionStatistics> },
    /// See [`SavedAs::Graph`].
    Graph { output: Tensor, inputs: [Tensor; 3] },
}

impl SavedAttention {
    pub(crate) fn new(q: &Tensor, k: &Tensor, v: &Tensor, sequences: &PackedSequences) -> Self {
        let inputs = [q, k, v].map(|x| sequences.reorder(x));
        Self::by_result(&inputs, sequences).unwrap_or_else(|| Self::by_graph(&inputs, sequences))
    }

    /// `None` where the kernel that libtorch would use cannot do it.
    fn by_result(inputs: &[Tensor; 3], sequences: &PackedSequences) -> Option<Self> {
        if sequences.shared_prefix.is_some() {
            return None;
        }
        let batches = sequences.batches();
        let splits = inputs.each_ref().map(|x| Batch::split(&batches, x));
        let (mut outputs, mut statistics) = (vec![], vec![]);
        for (number, batch) in batches.iter().enumerate() {
            let inputs = splits.each_ref().map(|splits| batch.by_head(&splits[number]));
            let (output, one) = shim::attention(inputs.each_ref(), sequences.causal)?;
            outputs.push(batch.by_token(&output).flatten(1, 2));
            statistics.push(one);
        }
        Some(Self::Result { output: Batch::join(outputs), statistics })
    }

    fn by_graph(inputs: &[Tensor; 3], sequences: &PackedSequences) -> Self {
        let inputs = inputs.each_ref().map(|x| x.detach().set_requires_grad(true));
        let output = tch::with_grad(|| attention_in_order(&inputs[0], &inputs[1], &inputs[2], sequences));
        Self::Graph { output, inputs }
    }

    pub(crate) fn saved_as(&self) -> SavedAs {
        match self {
            Self::Result { .. } => SavedAs::AttentionResult,
            Self::Graph { .. } => SavedAs::Graph,
        }
    }

    pub(crate) fn output(&self, sequences: &PackedSequences) -> Tensor {
        let (Self::Result { output, .. } | Self::Graph { output, .. }) = self;
        sequences.restore_order(&output.detach())
    }

    /// dL/d(q, k, v) from dL/do. `inputs` gives q, k and v as they were, where they have not been saved.
    pub(crate) fn backward(
        self,
        inputs: impl FnOnce() -> [Tensor; 3],
        d_output: &Tensor,
        sequences: &PackedSequences,
    ) -> [Tensor; 3] {
        let d_output = sequences.reorder(d_output);
        let gradients = match self {
            Self::Graph { output, inputs } => shim::gradients(&output, &inputs, &d_output),
            Self::Result { output, statistics } => {
                let inputs = inputs().map(|x| sequences.reorder(&x));
                from_result(&inputs, &output, &statistics, &d_output, &sequences.batches())
            }
        };
        gradients.map(|gradient| sequences.restore_order(&gradient))
    }
}

/// The backward pass from a result, batch by batch.
fn from_result(
    inputs: &[Tensor; 3],
    output: &Tensor,
    statistics: &[AttentionStatistics],
    d_output: &Tensor,
    batches: &[Batch],
) -> [Tensor; 3] {
    let size = inputs[0].size();
    let [outputs, d_outputs] = [output, d_output].map(|x| Batch::split(batches, &x.view(size.as_slice())));
    let splits = inputs.each_ref().map(|x| Batch::split(batches, x));
    let mut gradients = [vec![], vec![], vec![]];
    for (number, (batch, statistics)) in batches.iter().zip(statistics).enumerate() {
        let inputs = splits.each_ref().map(|splits| batch.by_head(&splits[number]));
        let [output, d_output] = [&outputs, &d_outputs].map(|splits| batch.by_head(&splits[number]));
        let parts = statistics.backward(inputs.each_ref(), &output, &d_output);
        for (gradient, part) in gradients.iter_mut().zip(parts) {
            gradient.push(batch.by_token(&part));
        }
    }
    gradients.map(Batch::join)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::attention::Order;

    const HEADS: i64 = 4;
    const WIDTH: i64 = 8;

    fn random(tokens: i64, heads: i64) -> Tensor {
        Tensor::randn([tokens, heads, WIDTH], (Kind::Float, Device::Cpu))
    }

    fn assert_same(what: &str, one: &Tensor, other: &Tensor) {
        assert_eq!(one.size(), other.size(), "{what}");
        let difference = (one - other).abs().max().double_value(&[]);
        assert!(difference <= 1e-6 * other.abs().max().double_value(&[]), "{what}: {difference}");
    }

    /// Windows of several lengths that are not contiguous; an episode beside another; one image.
    #[test]
    fn a_result_is_as_good_as_a_graph() {
        tch::manual_seed(5);
        let order = Order::new(2, &[4, 0, 7, 1, 5, 3, 6, 2], Device::Cpu);
        let windows = (vec![4, 4, 6, 2], false, Some(order), HEADS);
        for (lengths, causal, order, kv_heads) in
            [windows, (vec![9, 5], true, None, 2), (vec![33], false, None, HEADS)]
        {
            let what = format!("{lengths:?}, causal: {causal}");
            let tokens: i64 = lengths.iter().sum();
            let sequences = PackedSequences { lengths, causal, order, shared_prefix: None };
            let inputs = [random(tokens, HEADS), random(tokens, kv_heads), random(tokens, kv_heads)];
            let gradient = random(tokens, HEADS).flatten(1, 2);
            let [q, k, v] = &inputs;
            let result = SavedAttention::new(q, k, v, &sequences);
            assert_eq!(result.saved_as(), SavedAs::AttentionResult, "{what}");
            let graph =
                SavedAttention::by_graph(&inputs.each_ref().map(|x| sequences.reorder(x)), &sequences);
            assert_same(&what, &result.output(&sequences), &graph.output(&sequences));
            let again = || inputs.each_ref().map(Tensor::shallow_clone);
            let gradients = result.backward(again, &gradient, &sequences);
            let expected = graph.backward(|| panic!("a graph has its inputs"), &gradient, &sequences);
            for (gradient, expected) in gradients.iter().zip(&expected) {
                assert_same(&what, gradient, expected);
            }
        }
    }

    #[test]
    fn a_graph_is_saved_where_a_result_is_not_enough() {
        let gpu = Device::Cuda(0);
        assert_eq!(SavedAs::of(Kind::Float, Device::Cpu, 28), SavedAs::AttentionResult);
        assert_eq!(SavedAs::of(Kind::BFloat16, gpu, 72), SavedAs::AttentionResult);
        assert_eq!(SavedAs::of(Kind::BFloat16, gpu, 28), SavedAs::Graph);
        assert_eq!(SavedAs::of(Kind::Float, gpu, 72), SavedAs::Graph);
    }
}
