//! Attention within packed sequences of tokens: windows, images, episodes.

use tch::{Device, Kind, Tensor};

/// Sequences packed into one tensor, and which of their tokens attend to each other.
#[derive(Debug)]
pub(crate) struct PackedSequences {
    /// Lengths of the concatenated sequences; a token attends to its own sequence only.
    pub(crate) lengths: Vec<i64>,
    /// It attends only to itself and the tokens before it.
    pub(crate) causal: bool,
    /// The order that makes the sequences contiguous, if they are not.
    pub(crate) order: Option<Order>,
    /// The prefixes they share with others, which they attend to as well.
    pub(crate) shared_prefix: Option<SharedPrefix>,
}

/// Causal sequences that each attend to a prefix as well, which they share with other sequences and which is computed
/// once.
#[derive(Debug)]
pub(crate) struct SharedPrefix {
    /// Rows of everything a sequence attends to, itself at the end, sequence by sequence ...
    indices: Tensor,
    /// ... and how many they are.
    lengths: Vec<i64>,
    /// The causal mask of each sequence, `[query heads per kv head * tokens, visible]`.
    masks: Vec<Tensor>,
}

impl SharedPrefix {
    /// For sequences of the lengths `own` that attend to the rows `visible`; `heads` query heads share a kv head.
    pub(crate) fn new(own: &[i64], visible: &[Vec<i64>], heads: i64, device: Device) -> Self {
        let lengths: Vec<i64> = visible.iter().map(|visible| visible.len() as i64).collect();
        let mask = |(&own, &all): (&i64, &i64)| {
            let last = Tensor::arange_start(all - own, all, (Kind::Int64, device)).unsqueeze(1);
            Tensor::arange(all, (Kind::Int64, device)).unsqueeze(0).le_tensor(&last).repeat([heads, 1])
        };
        let masks = own.iter().zip(&lengths).map(mask).collect();
        Self { indices: Tensor::from_slice(&visible.concat()).to_device(device), lengths, masks }
    }

    fn attention(&self, q: &Tensor, k: &Tensor, v: &Tensor, own: &[i64]) -> Tensor {
        let (heads, kv_heads, width) = (q.size()[1], k.size()[1], q.size()[2]);
        let queries = q.split_with_sizes(own, 0);
        let [keys, values] =
            [k, v].map(|x| x.index_select(0, &self.indices).split_with_sizes(&self.lengths, 0));
        let sequence = |number: usize| {
            let tokens = own[number];
            // the query heads that share a kv head are rows of one matmul
            let q = queries[number].transpose(0, 1).reshape([1, kv_heads, heads / kv_heads * tokens, width]);
            let [k, v] = [&keys[number], &values[number]].map(|x| x.transpose(0, 1).unsqueeze(0));
            let mask = Some(&self.masks[number]);
            let attended = Tensor::scaled_dot_product_attention(&q, &k, &v, mask, 0.0, false, None, false);
            attended.reshape([heads, tokens, width]).transpose(0, 1).reshape([tokens, -1])
        };
        Tensor::cat(&(0..own.len()).map(sequence).collect::<Vec<_>>(), 0)
    }
}

/// A permutation of tokens in groups of `unit`.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) unit: i64,
    /// The unit at every position of the new order ...
    pub(crate) indices: Tensor,
    /// ... and the inverse permutation.
    pub(crate) inverse: Tensor,
}

impl Order {
    pub(crate) fn new(unit: i64, indices: &[i64], device: Device) -> Self {
        let indices = Tensor::from_slice(indices).to_device(device);
        let inverse = indices.argsort(0, false);
        Self { unit, indices, inverse }
    }

    pub(crate) fn apply(&self, x: &Tensor) -> Tensor {
        self.select(x, &self.indices)
    }

    pub(crate) fn undo(&self, x: &Tensor) -> Tensor {
        self.select(x, &self.inverse)
    }

    fn select(&self, x: &Tensor, indices: &Tensor) -> Tensor {
        let size = x.size();
        x.reshape([size[0] / self.unit, -1]).index_select(0, indices).view(size.as_slice())
    }
}

impl PackedSequences {
    /// Tokens in the order that makes the sequences contiguous.
    pub(super) fn reorder(&self, x: &Tensor) -> Tensor {
        self.order.as_ref().map_or_else(|| x.shallow_clone(), |order| order.apply(x))
    }

    /// Tokens in their original order.
    pub(super) fn restore_order(&self, x: &Tensor) -> Tensor {
        self.order.as_ref().map_or_else(|| x.shallow_clone(), |order| order.undo(x))
    }

    pub(super) fn batches(&self) -> Vec<Batch> {
        let equal = self.lengths.chunk_by(|a, b| a == b);
        equal.map(|equal| Batch { sequences: equal.len() as i64, length: equal[0] }).collect()
    }
}

/// Consecutive sequences of equal length, which are computed at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    sequences: i64,
    length: i64,
}

impl Batch {
    /// The tokens of each. By splitting, not by narrowing: autograd then concatenates the gradients once, instead of padding
    /// each to the whole.
    pub(super) fn split(batches: &[Self], x: &Tensor) -> Vec<Tensor> {
        match batches {
            [_] => vec![x.shallow_clone()],
            batches => {
                let sizes: Vec<i64> = batches.iter().map(|batch| batch.sequences * batch.length).collect();
                x.split_with_sizes(&sizes, 0)
            }
        }
    }

    /// The inverse of splitting.
    pub(super) fn join(mut parts: Vec<Tensor>) -> Tensor {
        if parts.len() == 1 { parts.remove(0) } else { Tensor::cat(&parts, 0) }
    }

    /// From tokens `[tokens, heads, width]` to `[sequences, heads, length, width]`.
    pub(super) fn by_head(self, x: &Tensor) -> Tensor {
        let size = x.size();
        x.view([self.sequences, self.length, size[1], size[2]]).transpose(1, 2)
    }

    /// The inverse.
    pub(super) fn by_token(self, x: &Tensor) -> Tensor {
        let size = x.size();
        x.transpose(1, 2).reshape([self.sequences * self.length, size[1], size[3]])
    }
}

/// Attention of q, k, v `[tokens, heads, width]`; keys and values may have fewer heads. The result is
/// `[tokens, heads * width]`.
pub(crate) fn attention(q: &Tensor, k: &Tensor, v: &Tensor, sequences: &PackedSequences) -> Tensor {
    let [q, k, v] = [q, k, v].map(|x| sequences.reorder(x));
    sequences.restore_order(&attention_in_order(&q, &k, &v, sequences))
}

/// The same for contiguous sequences.
pub(super) fn attention_in_order(q: &Tensor, k: &Tensor, v: &Tensor, sequences: &PackedSequences) -> Tensor {
    if let Some(shared_prefix) = &sequences.shared_prefix {
        return shared_prefix.attention(q, k, v, &sequences.lengths);
    }
    let group = q.size()[1] / k.size()[1];
    // memory-efficient attention on GPUs supports f32 only without grouped heads
    let repeats_kv = group > 1 && q.kind() == Kind::Float && q.device() != Device::Cpu;
    let [k, v] = [k, v]
        .map(|x| if repeats_kv { x.repeat_interleave_self_int(group, 1, None) } else { x.shallow_clone() });
    let grouped = group > 1 && !repeats_kv;
    let batches = sequences.batches();
    let splits = [q, &k, &v].map(|x| Batch::split(&batches, x));
    let results = batches.iter().enumerate().map(|(number, batch)| {
        let [q, k, v] = splits.each_ref().map(|splits| batch.by_head(&splits[number]));
        let (no_mask, causal) = (None::<&Tensor>, sequences.causal);
        let attended = Tensor::scaled_dot_product_attention(&q, &k, &v, no_mask, 0.0, causal, None, grouped);
        batch.by_token(&attended).flatten(1, 2)
    });
    Batch::join(results.collect())
}
