//! The shim over libtorch: everything `tch` does not cover.
//!
//! One program serves machines with and without a GPU. It is linked against libtorch's CPU library only; the CUDA
//! library is loaded at start where it can be ([`runtime::start`]), and registers itself with the CPU library.
//! `LIBTORCH` decides which libtorch is used, then the folder the build used.
//!
//! This is the only crate of the workspace that may write `unsafe`.

mod context;
pub mod driver;
pub mod kernels;
pub mod mapped;
pub mod nccl;
pub mod runtime;
pub mod shim;
pub mod stream;
pub mod upload;
