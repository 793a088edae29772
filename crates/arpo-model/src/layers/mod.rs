//! What both towers are made of: a transformer block, and the operations in it, forward and backward.
//!
//! Backward passes are written out instead of left to autograd: so it is decided here, not by a graph, what is kept
//! between the two passes and what is computed again, and gradients go straight into their buffers. Only attention
//! keeps a small graph of its own, because libtorch picks its kernel. The forward operations are plain libtorch calls,
//! so autograd can still run through them, and tests hold the two against each other.

pub(crate) mod attention;
pub(crate) mod block;
pub(crate) mod linear;
pub(crate) mod norm;
pub(crate) mod rotary;
pub(crate) mod swiglu;
