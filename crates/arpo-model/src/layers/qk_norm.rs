//! RMSNorm of every head of queries and keys, before RoPE; values are left as they are.

use super::norm::RmsNorm;
use arpo_torch::kernels::HeadNorms;
use tch::Tensor;

#[derive(Debug)]
pub(crate) struct QkNorm {
    pub(crate) q: RmsNorm,
    pub(crate) k: RmsNorm,
    /// Widths of all heads' queries, keys and values.
    pub(crate) widths: [i64; 3],
}

impl QkNorm {
    /// From a fused qkv projection `[tokens, heads * width]` to the same.
    pub(crate) fn forward(&self, qkv: &Tensor) -> Tensor {
        let [q, k, v] = self.split(qkv);
        let normed = |norm: &RmsNorm, x: &Tensor| norm.forward(&by_head(norm, x)).view_as(x);
        Tensor::cat(&[normed(&self.q, &q), normed(&self.k, &k), v], 1)
    }

    /// dL/d(qkv) from the projection before the norms and the gradient after them; accumulates the weights' gradients.
    pub(crate) fn backward(&self, qkv: &Tensor, gradient: &Tensor) -> Tensor {
        let [dq, dk, dv] = self.split(gradient);
        let [q, k, _] = self.split(qkv);
        let backward = |norm: &RmsNorm, x: &Tensor, dy: &Tensor| {
            norm.backward(&by_head(norm, x), &by_head(norm, dy), None).view_as(dy)
        };
        let (dq, dk) = (backward(&self.q, &q, &dq), backward(&self.k, &k, &dk));
        Tensor::cat(&[dq, dk, dv], 1)
    }

    /// For the kernels that norm and apply RoPE in one pass.
    pub(crate) fn weights(&self) -> HeadNorms<'_> {
        HeadNorms { q: &self.q.weight.value, k: &self.k.weight.value, epsilon: self.q.epsilon }
    }

    /// Adds to the weights' gradients.
    pub(crate) fn accumulate(&self, [q, k]: &[Tensor; 2]) {
        self.q.weight.accumulate(q);
        self.k.weight.accumulate(k);
    }

    fn split(&self, qkv: &Tensor) -> [Tensor; 3] {
        qkv.split_with_sizes(self.widths, 1).try_into().expect("queries, keys and values")
    }
}

/// One row for each head of each token.
fn by_head(norm: &RmsNorm, x: &Tensor) -> Tensor {
    x.reshape([-1, norm.weight.value.size()[0]])
}
