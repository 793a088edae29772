//! The shim over libtorch: everything about it that is not tensors.
//!
//! One program serves machines with and without a GPU. It is linked against libtorch's CPU half only; the CUDA
//! half is opened at start where it can be ([`runtime::start`]), and registers itself with the CPU half. Which
//! libtorch is used is decided by `LIBTORCH`, then by the folder the build used.
//!
//! This is the only crate of the workspace that may write `unsafe`.

pub mod driver;
pub mod given;
pub mod kernels;
pub mod mapped;
pub mod runtime;
pub mod shim;
