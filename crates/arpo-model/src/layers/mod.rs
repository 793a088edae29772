//! The building blocks of both towers: a transformer block and its operations, forward and backward.
//!
//! Backward passes are written by hand instead of left to autograd: this controls which activations are kept and which
//! are recomputed, and gradients go straight into their buffers. Only attention is libtorch's in both directions, because
//! libtorch picks its kernel ([`saved_attention`]). The forward operations are plain libtorch calls, so autograd can still
//! run through them, and tests compare the two.

pub(crate) mod attention;
pub(crate) mod block;
pub(crate) mod gelu;
pub(crate) mod layer_norm;
pub(crate) mod linear;
pub(crate) mod mlp;
pub(crate) mod norm;
pub(crate) mod qk_norm;
pub(crate) mod rotary;
pub(crate) mod saved_attention;
pub(crate) mod swiglu;
