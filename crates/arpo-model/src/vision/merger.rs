//! The merger: the patches of a feature, side by side, through an MLP to the width of the language model.

use crate::layers::linear::Linear;
use crate::layers::norm::Norm;
use tch::Tensor;

#[derive(Debug)]
pub(super) struct Merger {
    /// Of single patches, or of all patches of a feature side by side.
    pub(super) norm: Norm,
    pub(super) norms_features: bool,
    pub(super) up: Linear,
    pub(super) down: Linear,
    /// Width of the patches of a feature side by side.
    pub(super) width: i64,
}

/// Activations saved for the backward pass.
pub(super) struct SavedMerger {
    input: Tensor,
    merged: Tensor,
    inner: Tensor,
}

impl Merger {
    /// From patches `[patches, hidden]` to features `[features, output]`.
    pub(super) fn forward(&self, x: &Tensor) -> Tensor {
        self.down.forward(&self.up.forward(&self.merge(x)).gelu("none"))
    }

    pub(super) fn forward_saving(&self, x: &Tensor) -> (Tensor, SavedMerger) {
        let merged = self.merge(x);
        let inner = self.up.forward(&merged);
        let features = self.down.forward(&inner.gelu("none"));
        (features, SavedMerger { input: x.shallow_clone(), merged, inner })
    }

    /// dL/d(patches) from dL/d(features); accumulates the parameters' gradients.
    pub(super) fn backward(&self, saved: SavedMerger, gradient: &Tensor) -> Tensor {
        let SavedMerger { input, merged, inner } = saved;
        let d_activated = self.down.backward(&inner.gelu("none"), gradient);
        let d_inner = inner.gelu_backward(&d_activated, "none");
        let d_merged = self.up.backward(&merged, &d_inner);
        let normed = self.normed(&input);
        self.norm.backward(&normed, &d_merged.view_as(&normed), None).view_as(&input)
    }

    fn merge(&self, x: &Tensor) -> Tensor {
        self.norm.forward(&self.normed(x)).view([-1, self.width])
    }

    /// What is normed, in rows.
    fn normed(&self, x: &Tensor) -> Tensor {
        if self.norms_features { x.view([-1, self.width]) } else { x.shallow_clone() }
    }
}
