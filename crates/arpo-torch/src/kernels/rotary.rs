//! RoPE, and the norms of the heads of queries and keys before it. See `rotary.cu`.

use super::fused::{Fused, THREADS};
use super::module::{Argument, expect};
use tch::{Kind, Tensor};

/// Tokens of the backward pass through norms that are computed at a time; each has a partial sum of the weights' gradients.
const TOKEN_SLOTS: i64 = 132 * 4;

/// RMS norms of every head of queries and keys.
#[derive(Debug, Clone, Copy)]
pub struct HeadNorms<'a> {
    /// Weight of the queries' norm, as wide as a head.
    pub q: &'a Tensor,
    /// Weight of the keys' norm.
    pub k: &'a Tensor,
    /// Added to the mean square.
    pub epsilon: f64,
}

impl HeadNorms<'_> {
    pub(super) fn expect(self, width: i64) {
        expect("the weight of the queries' norm", self.q, Kind::BFloat16, width);
        expect("the weight of the keys' norm", self.k, Kind::BFloat16, width);
    }
}

impl Fused<'_> {
    /// Splits a fused qkv projection into queries, keys and values `[tokens, heads, width]`, RoPE applied to the first
    /// two. Cosines and sines are `[tokens, width / 2]` in f32; a head's width is a multiple of 8.
    pub fn rotary_split(
        self,
        qkv: &Tensor,
        cosine: &Tensor,
        sine: &Tensor,
        heads: i64,
        kv_heads: i64,
    ) -> [Tensor; 3] {
        let split = Split::new(qkv, cosine, sine, heads, kv_heads);
        let Launch { in_eights, groups, threads } = Launch::new(split.width, heads + 2 * kv_heads);
        let [q, k, v] = &split.outputs;
        let arguments = [
            Argument::tensor(qkv),
            Argument::tensor(cosine),
            Argument::tensor(sine),
            Argument::tensor(q),
            Argument::tensor(k),
            Argument::tensor(v),
            Argument::I32(heads as i32),
            Argument::I32(kv_heads as i32),
            groups,
        ];
        let kernel = if in_eights { "rotary_split" } else { "rotary_split_in_fours" };
        // SAFETY: rotary_split(qkv, cosine, sine, q, k, v, heads, kv heads, groups), a block per token; sizes checked.
        unsafe { self.module.launch(kernel, split.tokens as u32, threads, &arguments) };
        split.outputs
    }

    /// The same, with the heads of queries and keys normed before; `None` if the kernel does not support their width.
    pub fn rotary_norm_split(
        self,
        qkv: &Tensor,
        cosine: &Tensor,
        sine: &Tensor,
        heads: i64,
        kv_heads: i64,
        norms: HeadNorms,
    ) -> Option<[Tensor; 3]> {
        if !is_normed(qkv.size()[1] / (heads + 2 * kv_heads)) {
            return None;
        }
        let split = Split::new(qkv, cosine, sine, heads, kv_heads);
        norms.expect(split.width);
        let Launch { groups, threads, .. } = Launch::new(split.width, heads + 2 * kv_heads);
        let [q, k, v] = &split.outputs;
        let arguments = [
            Argument::tensor(qkv),
            Argument::tensor(cosine),
            Argument::tensor(sine),
            Argument::tensor(norms.q),
            Argument::tensor(norms.k),
            Argument::tensor(q),
            Argument::tensor(k),
            Argument::tensor(v),
            Argument::I32(heads as i32),
            Argument::I32(kv_heads as i32),
            groups,
            Argument::F32(norms.epsilon as f32),
        ];
        // SAFETY: rotary_norm_split(qkv, cosine, sine, q weight, k weight, q, k, v, heads, kv heads, groups, epsilon), a
        // block per token; sizes checked, and the threads of a head are a power of two within a warp.
        unsafe { self.module.launch("rotary_norm_split", split.tokens as u32, threads, &arguments) };
        Some(split.outputs)
    }

    /// The gradient of the qkv projection from those of queries, keys and values:
    /// `[tokens, (heads + 2 kv_heads) * width]`.
    pub fn rotary_join(self, gradients: &[Tensor; 3], cosine: &Tensor, sine: &Tensor) -> Tensor {
        let Join { gradients: [dq, dk, dv], joined, tokens, heads, kv_heads, width } =
            Join::new(gradients, cosine, sine);
        let Launch { in_eights, groups, threads } = Launch::new(width, heads + 2 * kv_heads);
        let arguments = [
            Argument::tensor(&dq),
            Argument::tensor(&dk),
            Argument::tensor(&dv),
            Argument::tensor(cosine),
            Argument::tensor(sine),
            Argument::tensor(&joined),
            Argument::I32(heads as i32),
            Argument::I32(kv_heads as i32),
            groups,
        ];
        let kernel = if in_eights { "rotary_join" } else { "rotary_join_in_fours" };
        // SAFETY: rotary_join(dq, dk, dv, cosine, sine, dqkv, heads, kv heads, groups), a block per token; sizes checked.
        unsafe { self.module.launch(kernel, tokens as u32, threads, &arguments) };
        joined
    }

    /// The same through the norms of queries and keys, from the projection before them; and the gradients of the norms'
    /// weights in f32. `None` if the kernel does not support the heads' width.
    pub fn rotary_norm_join(
        self,
        gradients: &[Tensor; 3],
        cosine: &Tensor,
        sine: &Tensor,
        qkv: &Tensor,
        norms: HeadNorms,
    ) -> Option<(Tensor, [Tensor; 2])> {
        if !is_normed(gradients[0].size()[2]) {
            return None;
        }
        let Join { gradients: [dq, dk, dv], joined, tokens, heads, kv_heads, width } =
            Join::new(gradients, cosine, sine);
        norms.expect(width);
        expect("the qkv projection", qkv, Kind::BFloat16, tokens * (heads + 2 * kv_heads) * width);
        let slots = tokens.min(TOKEN_SLOTS);
        let partial = Tensor::empty([slots, heads + kv_heads, width], (Kind::Float, dq.device()));
        let Launch { groups, .. } = Launch::new(width, heads + 2 * kv_heads);
        let arguments = [
            Argument::tensor(&dq),
            Argument::tensor(&dk),
            Argument::tensor(&dv),
            Argument::tensor(cosine),
            Argument::tensor(sine),
            Argument::tensor(qkv),
            Argument::tensor(norms.q),
            Argument::tensor(norms.k),
            Argument::tensor(&joined),
            Argument::tensor(&partial),
            Argument::I64(tokens),
            Argument::I32(slots as i32),
            Argument::I32(heads as i32),
            Argument::I32(kv_heads as i32),
            groups,
            Argument::F32(norms.epsilon as f32),
        ];
        // a thread for every eight pairs of a slot, in whole warps
        let slot_threads = ((heads + 2 * kv_heads) * width / 16) as u32;
        let blocks = (slots as u32 * slot_threads.next_multiple_of(32)).div_ceil(THREADS);
        // SAFETY: rotary_norm_join(dq, dk, dv, cosine, sine, qkv, q weight, k weight, dqkv, dw, tokens, slots, heads,
        // kv heads, groups, epsilon); sizes checked, dw has a row for each head of each slot, and the threads of a head are
        // a power of two within a warp.
        unsafe { self.module.launch("rotary_norm_join", blocks, THREADS, &arguments) };
        let sum = |first: i64, heads: i64| {
            partial.narrow(1, first, heads).sum_dim_intlist([0i64, 1].as_slice(), false, None::<Kind>)
        };
        Some((joined, [sum(0, heads), sum(heads, kv_heads)]))
    }
}

/// A qkv projection to be split, its size checked, and the memory of what it is split into.
struct Split {
    outputs: [Tensor; 3],
    tokens: i64,
    width: i64,
}

impl Split {
    fn new(qkv: &Tensor, cosine: &Tensor, sine: &Tensor, heads: i64, kv_heads: i64) -> Self {
        let tokens = qkv.size()[0];
        let width = qkv.size()[1] / (heads + 2 * kv_heads);
        expect("the qkv projection", qkv, Kind::BFloat16, tokens * (heads + 2 * kv_heads) * width);
        expect_angles(cosine, sine, tokens * width / 2);
        let empty = |heads: i64| Tensor::empty([tokens, heads, width], (qkv.kind(), qkv.device()));
        Self { outputs: [empty(heads), empty(kv_heads), empty(kv_heads)], tokens, width }
    }
}

/// Gradients of queries, keys and values to be joined, their sizes checked, and the memory of the result.
struct Join {
    gradients: [Tensor; 3],
    joined: Tensor,
    tokens: i64,
    heads: i64,
    kv_heads: i64,
    width: i64,
}

impl Join {
    fn new(gradients: &[Tensor; 3], cosine: &Tensor, sine: &Tensor) -> Self {
        let gradients = gradients.each_ref().map(Tensor::contiguous);
        let [dq, dk, dv] = &gradients;
        let (tokens, heads, width, kv_heads) = (dq.size()[0], dq.size()[1], dq.size()[2], dk.size()[1]);
        expect("the gradient of queries", dq, Kind::BFloat16, tokens * heads * width);
        for gradient in [dk, dv] {
            expect("a gradient of keys or values", gradient, Kind::BFloat16, tokens * kv_heads * width);
        }
        expect_angles(cosine, sine, tokens * width / 2);
        let joined = Tensor::empty([tokens, (heads + 2 * kv_heads) * width], (dq.kind(), dq.device()));
        Self { gradients, joined, tokens, heads, kv_heads, width }
    }
}

/// Vectors of eight values, or of four where half a head is no multiple of eight.
struct Launch {
    in_eights: bool,
    /// Vectors of half a head.
    groups: Argument,
    /// Of a block for one token: one for every vector of pairs, up to the limit.
    threads: u32,
}

impl Launch {
    fn new(width: i64, heads: i64) -> Self {
        assert_eq!(width % 8, 0, "fused RoPE needs head widths that are multiples of 8");
        let in_eights = width % 16 == 0;
        let groups = width / if in_eights { 16 } else { 8 };
        let threads = ((groups * heads) as u32).next_multiple_of(32).min(1024);
        Self { in_eights, groups: Argument::I32(groups as i32), threads }
    }
}

/// Whether the kernels norm heads of this width: the threads of one are a power of two within a warp.
fn is_normed(width: i64) -> bool {
    let groups = width / 16;
    width % 16 == 0 && groups <= 32 && (groups as u64).is_power_of_two()
}

fn expect_angles(cosine: &Tensor, sine: &Tensor, values: i64) {
    expect("the cosines", cosine, Kind::Float, values);
    expect("the sines", sine, Kind::Float, values);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_a_power_of_two_are_normed() {
        let widths: Vec<i64> = (8..=1024).step_by(8).filter(|&width| is_normed(width)).collect();
        assert_eq!(widths, [16, 32, 64, 128, 256, 512]);
    }

    #[test]
    fn a_token_has_a_thread_for_each_vector_of_pairs() {
        for (width, heads, in_eights, threads) in
            [(128, 48, true, 384), (72, 48, false, 448), (8, 3, false, 32)]
        {
            let launch = Launch::new(width, heads);
            assert_eq!((launch.in_eights, launch.threads), (in_eights, threads));
        }
    }
}
