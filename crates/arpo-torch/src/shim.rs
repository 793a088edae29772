//! Parts of libtorch that tch does not bind, through a few lines of C++ (`shim.cpp`).

use crate::kernels::Kernels;
use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use tch::{Device, Kind, Tensor};
use torch_sys::C_tensor;

const ERROR_LENGTH: usize = 512;

unsafe extern "C" {
    fn arpo_attention_bottom_right(
        out: *mut *mut C_tensor,
        q: *const C_tensor,
        k: *const C_tensor,
        v: *const C_tensor,
        error: *mut c_char,
        error_length: usize,
    ) -> c_int;
    fn arpo_split_attention(
        out: *mut *mut C_tensor,
        q: *const C_tensor,
        prefix_k: *const C_tensor,
        prefix_v: *const C_tensor,
        k: *const C_tensor,
        v: *const C_tensor,
        error: *mut c_char,
        error_length: usize,
    ) -> c_int;
    fn arpo_attention(
        out: *mut *mut C_tensor,
        kernel: *mut i64,
        q: *const C_tensor,
        k: *const C_tensor,
        v: *const C_tensor,
        causal: bool,
        error: *mut c_char,
        error_length: usize,
    ) -> c_int;
    fn arpo_attention_backward(
        out: *mut *mut C_tensor,
        kernel: i64,
        gradient: *const C_tensor,
        q: *const C_tensor,
        k: *const C_tensor,
        v: *const C_tensor,
        result: *const C_tensor,
        lse: *const C_tensor,
        causal: bool,
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
    fn arpo_allow_tf32(error: *mut c_char, error_length: usize) -> c_int;
}

/// Whether [`causal_bottom_right`] supports such tensors.
pub fn supports_bottom_right(kind: Kind, device: Device) -> bool {
    matches!(device, Device::Cuda(_)) && matches!(kind, Kind::BFloat16 | Kind::Half)
}

/// Causal attention of the last tokens of a sequence, the mask aligned bottom-right: q `[1, heads, new, width]` over
/// keys and values `[1, kv_heads, tokens, width]`. `prefix` holds keys and values before these, which all queries see:
/// attending to it separately is faster, if it comes in few distinct lengths. The result is shaped like q.
pub fn causal_bottom_right(
    kernels: &Kernels,
    q: &Tensor,
    prefix: Option<&[Tensor; 2]>,
    [k, v]: [&Tensor; 2],
) -> Tensor {
    let Some([prefix_k, prefix_v]) = prefix else { return flash(q, k, v) };
    match split_attention(q, [prefix_k, prefix_v], [k, v]) {
        Some(parts) => {
            let paged = kernels.paged(&parts.suffix);
            let merged = paged.and_then(|paged| paged.merge_attention_states(&parts));
            merged.unwrap_or_else(|| merge_plain(&parts))
        }
        None => flash(q, &Tensor::cat(&[prefix_k, k], 2), &Tensor::cat(&[prefix_v, v], 2)),
    }
}

fn flash(q: &Tensor, k: &Tensor, v: &Tensor) -> Tensor {
    let mut out = ptr::null_mut();
    // SAFETY: live tensors, an output pointer, a buffer of the given length.
    checked("attention", |error| unsafe {
        arpo_attention_bottom_right(&raw mut out, q.as_ptr(), k.as_ptr(), v.as_ptr(), error, ERROR_LENGTH)
    })
    .unwrap_or_else(|error| panic!("{error}"));
    // SAFETY: a tensor on the heap that nothing else owns.
    unsafe { Tensor::from_ptr(out) }
}

/// Attention over a prefix and over a suffix of the keys, before they are merged.
#[derive(Debug)]
pub(crate) struct SplitAttention {
    /// `[1, heads, queries, width]` each.
    pub(crate) prefix: Tensor,
    pub(crate) suffix: Tensor,
    /// Their log-sum-exp, f32 `[heads, queries]`.
    pub(crate) prefix_lse: Tensor,
    pub(crate) suffix_lse: Tensor,
}

/// `None` where cuDNN cannot be used.
fn split_attention(
    q: &Tensor,
    [prefix_k, prefix_v]: [&Tensor; 2],
    [k, v]: [&Tensor; 2],
) -> Option<SplitAttention> {
    let mut out = [ptr::null_mut(); 4];
    // SAFETY: live tensors, four output pointers, a buffer of the given length.
    checked("attention", |error| unsafe {
        let (prefix_k, prefix_v) = (prefix_k.as_ptr(), prefix_v.as_ptr());
        let (q, k, v, out) = (q.as_ptr(), k.as_ptr(), v.as_ptr(), out.as_mut_ptr());
        arpo_split_attention(out, q, prefix_k, prefix_v, k, v, error, ERROR_LENGTH)
    })
    .unwrap_or_else(|error| panic!("{error}"));
    if out.iter().any(|tensor| tensor.is_null()) {
        return None;
    }
    // SAFETY: tensors on the heap that nothing else owns.
    let [prefix, prefix_lse, suffix, suffix_lse] = out.map(|tensor| unsafe { Tensor::from_ptr(tensor) });
    Some(SplitAttention { prefix, suffix, prefix_lse, suffix_lse })
}

/// Merges them by their log-sum-exp.
fn merge_plain(SplitAttention { prefix, suffix, prefix_lse, suffix_lse }: &SplitAttention) -> Tensor {
    let prefix_weight = (prefix_lse - suffix_lse).sigmoid().unsqueeze(-1);
    let to_f32 = |tensor: &Tensor| tensor.to_kind(Kind::Float);
    to_f32(suffix).lerp_tensor(&to_f32(prefix), &prefix_weight).to_kind(prefix.kind())
}

/// What the backward pass of [`attention`] needs besides its result, its queries, keys and values.
#[derive(Debug)]
pub struct AttentionStatistics {
    lse: Tensor,
    /// The kernel that computed it.
    kernel: i64,
    causal: bool,
}

/// Attention of q `[sequences, heads, tokens, width]` over keys and values, which may have fewer heads: a result shaped like
/// q. `None` where libtorch has no kernel for these tensors whose result is enough for the backward pass.
pub fn attention([q, k, v]: [&Tensor; 3], causal: bool) -> Option<(Tensor, AttentionStatistics)> {
    let (mut out, mut kernel) = ([ptr::null_mut(); 2], 0);
    // SAFETY: live tensors, two output pointers and one for a number, a buffer of the given length.
    checked("attention", |error| unsafe {
        let (q, k, v, out) = (q.as_ptr(), k.as_ptr(), v.as_ptr(), out.as_mut_ptr());
        arpo_attention(out, &raw mut kernel, q, k, v, causal, error, ERROR_LENGTH)
    })
    .unwrap_or_else(|error| panic!("{error}"));
    if out.iter().any(|tensor| tensor.is_null()) {
        return None;
    }
    // SAFETY: tensors on the heap that nothing else owns.
    let [result, lse] = out.map(|tensor| unsafe { Tensor::from_ptr(tensor) });
    Some((result, AttentionStatistics { lse, kernel, causal }))
}

impl AttentionStatistics {
    /// dL/d(q, k, v) from dL/d(result), and from what [`attention`] was given and gave.
    pub fn backward(&self, [q, k, v]: [&Tensor; 3], result: &Tensor, gradient: &Tensor) -> [Tensor; 3] {
        let Self { lse, kernel, causal } = self;
        let mut out = [ptr::null_mut(); 3];
        // SAFETY: live tensors, three output pointers, a buffer of the given length.
        checked("the backward pass of attention", |error| unsafe {
            let (gradient, result, lse) = (gradient.as_ptr(), result.as_ptr(), lse.as_ptr());
            let (q, k, v, out) = (q.as_ptr(), k.as_ptr(), v.as_ptr(), out.as_mut_ptr());
            arpo_attention_backward(
                out,
                *kernel,
                gradient,
                q,
                k,
                v,
                result,
                lse,
                *causal,
                error,
                ERROR_LENGTH,
            )
        })
        .unwrap_or_else(|error| panic!("{error}"));
        // SAFETY: tensors on the heap that nothing else owns.
        out.map(|tensor| unsafe { Tensor::from_ptr(tensor) })
    }
}

/// dL/d(inputs) from dL/d(output), through the autograd graph between them, which is freed.
pub fn gradients<const COUNT: usize>(
    output: &Tensor,
    inputs: &[Tensor; COUNT],
    gradient: &Tensor,
) -> [Tensor; COUNT] {
    let (mut out, inputs) = ([ptr::null_mut(); COUNT], inputs.each_ref().map(Tensor::as_ptr));
    // SAFETY: live tensors, an output pointer per input, a buffer of the given length.
    checked("gradients", |error| unsafe {
        let (output, gradient) = (output.as_ptr(), gradient.as_ptr());
        let (out, inputs) = (out.as_mut_ptr(), inputs.as_ptr());
        arpo_gradients(out, output, inputs, COUNT, gradient, error, ERROR_LENGTH)
    })
    .unwrap_or_else(|error| panic!("{error}"));
    // SAFETY: tensors on the heap that nothing else owns.
    out.map(|tensor| unsafe { Tensor::from_ptr(tensor) })
}

/// Peak memory allocated on a GPU, and reserved by libtorch's allocator, in bytes.
pub fn cuda_peak_bytes(device: usize) -> Result<(u64, u64), String> {
    let (mut allocated, mut reserved) = (0, 0);
    // SAFETY: two output pointers, a buffer of the given length.
    checked("memory statistics", |error| unsafe {
        arpo_cuda_peak_bytes(&raw mut allocated, &raw mut reserved, device as c_int, error, ERROR_LENGTH)
    })?;
    Ok((allocated, reserved))
}

/// A copy of a host tensor in pinned memory: it is copied to a GPU several times as fast.
pub fn pinned(tensor: &Tensor) -> Result<Tensor, String> {
    let mut out = ptr::null_mut();
    // SAFETY: a live tensor, an output pointer, a buffer of the given length.
    checked("pinned memory", |error| unsafe {
        arpo_pinned(&raw mut out, tensor.as_ptr(), error, ERROR_LENGTH)
    })?;
    // SAFETY: a tensor on the heap that nothing else owns.
    Ok(unsafe { Tensor::from_ptr(out) })
}

/// Lets GPUs multiply f32 matrices in TF32 (10 mantissa bits) from now on, several times as fast.
pub fn allow_tf32() -> Result<(), String> {
    // SAFETY: a buffer of the given length.
    checked("TF32 matmul", |error| unsafe { arpo_allow_tf32(error, ERROR_LENGTH) })
}

fn checked(what: &str, call: impl FnOnce(*mut c_char) -> c_int) -> Result<(), String> {
    let mut error = [0; ERROR_LENGTH];
    if call(error.as_mut_ptr()) == 0 {
        return Ok(());
    }
    // SAFETY: snprintf terminates what it writes, and the buffer was zeroed.
    let message = unsafe { CStr::from_ptr(error.as_ptr()) };
    Err(format!("{what}: {}", message.to_string_lossy()))
}
