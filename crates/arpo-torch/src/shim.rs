//! What libtorch has and tch does not bind, through a few lines of C++ (`shim.cpp`).

use crate::kernels::paged;
use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use tch::{Device, Kind, Tensor};
use torch_sys::C_tensor;

const ERROR_LENGTH: usize = 512;

unsafe extern "C" {
    fn arpo_attention_from_the_end(
        out: *mut *mut C_tensor,
        q: *const C_tensor,
        k: *const C_tensor,
        v: *const C_tensor,
        error: *mut c_char,
        error_length: usize,
    ) -> c_int;
    fn arpo_attention_apart(
        out: *mut *mut C_tensor,
        q: *const C_tensor,
        older_k: *const C_tensor,
        older_v: *const C_tensor,
        k: *const C_tensor,
        v: *const C_tensor,
        error: *mut c_char,
        error_length: usize,
    ) -> c_int;
    fn arpo_gradients(
        out: *mut *mut C_tensor,
        output: *const C_tensor,
        inputs: *const *const C_tensor,
        count: usize,
        gradient: *const C_tensor,
        error: *mut c_char,
        error_length: usize,
    ) -> c_int;
    fn arpo_cuda_peak_bytes(
        allocated: *mut u64,
        reserved: *mut u64,
        device: c_int,
        error: *mut c_char,
        error_length: usize,
    ) -> c_int;
    fn arpo_pinned(
        out: *mut *mut C_tensor,
        tensor: *const C_tensor,
        error: *mut c_char,
        error_length: usize,
    ) -> c_int;
    fn arpo_multiply_f32_as_tf32(error: *mut c_char, error_length: usize) -> c_int;
}

/// Whether [`causal_from_the_end`] can work on such tensors.
pub fn counts_from_the_end(kind: Kind, device: Device) -> bool {
    matches!(device, Device::Cuda(_)) && matches!(kind, Kind::BFloat16 | Kind::Half)
}

/// Attention of the last tokens of a sequence: q `[1, heads, new, width]` over keys and values
/// `[1, shared, tokens, width]`, each seeing up to itself. `older` are keys and values before these: it is quicker to have
/// them apart, in as few different lengths as can be. The result is shaped as q.
pub fn causal_from_the_end(q: &Tensor, older: Option<&[Tensor; 2]>, [k, v]: [&Tensor; 2]) -> Tensor {
    let Some([older_k, older_v]) = older else { return flash(q, k, v) };
    match attention_apart(q, [older_k, older_v], [k, v]) {
        Some(parts) => paged::joined(&parts).unwrap_or_else(|| plainly_joined(&parts)),
        None => flash(q, &Tensor::cat(&[older_k, k], 2), &Tensor::cat(&[older_v, v], 2)),
    }
}

fn flash(q: &Tensor, k: &Tensor, v: &Tensor) -> Tensor {
    let mut out = ptr::null_mut();
    // SAFETY: live tensors, a place for the result, a buffer of the length told.
    checked("attention", |error| unsafe {
        arpo_attention_from_the_end(&raw mut out, q.as_ptr(), k.as_ptr(), v.as_ptr(), error, ERROR_LENGTH)
    })
    .unwrap_or_else(|problem| panic!("{problem}"));
    // SAFETY: a tensor on the heap that nobody else owns.
    unsafe { Tensor::from_ptr(out) }
}

/// Attention over older keys and over newer ones.
#[derive(Debug)]
pub(crate) struct Apart {
    /// `[1, heads, queries, width]` each.
    pub(crate) older: Tensor,
    pub(crate) newer: Tensor,
    /// The logarithms of the sums they were divided by, f32 `[heads, queries]`.
    pub(crate) older_sums: Tensor,
    pub(crate) newer_sums: Tensor,
}

/// `None` where the library for it is not there.
fn attention_apart(q: &Tensor, [older_k, older_v]: [&Tensor; 2], [k, v]: [&Tensor; 2]) -> Option<Apart> {
    let mut out = [ptr::null_mut(); 4];
    // SAFETY: live tensors, places for four results, a buffer of the length told.
    checked("attention", |error| unsafe {
        let (older_k, older_v) = (older_k.as_ptr(), older_v.as_ptr());
        let (q, k, v, out) = (q.as_ptr(), k.as_ptr(), v.as_ptr(), out.as_mut_ptr());
        arpo_attention_apart(out, q, older_k, older_v, k, v, error, ERROR_LENGTH)
    })
    .unwrap_or_else(|problem| panic!("{problem}"));
    if out.iter().any(|tensor| tensor.is_null()) {
        return None;
    }
    // SAFETY: tensors on the heap that nobody else owns.
    let [older, older_sums, newer, newer_sums] = out.map(|tensor| unsafe { Tensor::from_ptr(tensor) });
    Some(Apart { older, newer, older_sums, newer_sums })
}

/// Each by its share of the whole sum.
fn plainly_joined(Apart { older, newer, older_sums, newer_sums }: &Apart) -> Tensor {
    let share = (older_sums - newer_sums).sigmoid().unsqueeze(-1);
    let wide = |tensor: &Tensor| tensor.to_kind(Kind::Float);
    wide(newer).lerp_tensor(&wide(older), &share).to_kind(older.kind())
}

/// dL/d(inputs) from dL/d(output), through the graph that led from them to it, which is gone afterwards.
pub fn gradients<const COUNT: usize>(
    output: &Tensor,
    inputs: &[Tensor; COUNT],
    gradient: &Tensor,
) -> [Tensor; COUNT] {
    let (mut out, inputs) = ([ptr::null_mut(); COUNT], inputs.each_ref().map(Tensor::as_ptr));
    // SAFETY: live tensors, as many places for results as there are inputs, a buffer of the length told.
    checked("gradients", |error| unsafe {
        let (output, gradient) = (output.as_ptr(), gradient.as_ptr());
        let (out, inputs) = (out.as_mut_ptr(), inputs.as_ptr());
        arpo_gradients(out, output, inputs, COUNT, gradient, error, ERROR_LENGTH)
    })
    .unwrap_or_else(|problem| panic!("{problem}"));
    // SAFETY: tensors on the heap that nobody else owns.
    out.map(|tensor| unsafe { Tensor::from_ptr(tensor) })
}

/// The most memory that was in use on a GPU, and that libtorch had taken for it, in bytes.
pub fn cuda_peak_bytes(device: usize) -> Result<(u64, u64), String> {
    let (mut allocated, mut reserved) = (0, 0);
    // SAFETY: places for two numbers, a buffer of the length told.
    checked("memory statistics", |error| unsafe {
        arpo_cuda_peak_bytes(&raw mut allocated, &raw mut reserved, device as c_int, error, ERROR_LENGTH)
    })?;
    Ok((allocated, reserved))
}

/// A copy of a tensor on the host in memory that stays where it is: it travels to a GPU several times as fast.
pub fn pinned(tensor: &Tensor) -> Result<Tensor, String> {
    let mut out = ptr::null_mut();
    // SAFETY: a live tensor, a place for the result, a buffer of the length told.
    checked("pinned memory", |error| unsafe {
        arpo_pinned(&raw mut out, tensor.as_ptr(), error, ERROR_LENGTH)
    })?;
    // SAFETY: a tensor on the heap that nobody else owns.
    Ok(unsafe { Tensor::from_ptr(out) })
}

/// From now on GPUs multiply matrices of f32 with 10 bits after the point, several times as fast.
pub fn multiply_f32_as_tf32() -> Result<(), String> {
    // SAFETY: a buffer of the length told.
    checked("products of f32", |error| unsafe { arpo_multiply_f32_as_tf32(error, ERROR_LENGTH) })
}

fn checked(what: &str, call: impl FnOnce(*mut c_char) -> c_int) -> Result<(), String> {
    let mut error = [0; ERROR_LENGTH];
    if call(error.as_mut_ptr()) == 0 {
        return Ok(());
    }
    // SAFETY: snprintf ends what it writes, and the buffer began as zeros.
    let message = unsafe { CStr::from_ptr(error.as_ptr()) };
    Err(format!("{what}: {}", message.to_string_lossy()))
}
