// Parts of libtorch that tch does not bind: attention with a causal mask aligned bottom-right, a backward pass from a
// given gradient, the allocator's peak memory, pinned memory, and the precision of f32 matmuls. Every function returns
// 0, or 1 with a message in `error`.

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/constant_pad_nd.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <torch/csrc/autograd/autograd.h>
#include <utility>
#include <vector>

static int failed(char *error, std::size_t length, const char *why) {
    std::snprintf(error, length, "%s", why);
    return 1;
}

// Attention with a causal mask aligned bottom-right, and its log-sum-exp.
static std::pair<at::Tensor, at::Tensor> flash(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v) {
    auto result = at::_scaled_dot_product_flash_attention(q, k, v, 0.0, /*is_causal=*/true, false);
    return {std::get<0>(result), std::get<1>(result)};
}

extern "C" int arpo_attention_bottom_right(at::Tensor **out, const at::Tensor *q, const at::Tensor *k, const at::Tensor *v,
                                           char *error, std::size_t error_length) {
    try {
        *out = new at::Tensor(flash(*q, *k, *v).first);
        return 0;
    } catch (const std::exception &exception) {
        return failed(error, error_length, exception.what());
    }
}

// The same by cuDNN: nearly twice as fast, but it searches for a plan whenever sizes or strides are new to a thread,
// which takes 13 ms and more. Its causal mask is aligned top-left.
static std::pair<at::Tensor, at::Tensor> cudnn(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, bool causal) {
    auto result = at::_scaled_dot_product_cudnn_attention(q, k, v, std::nullopt, /*compute_log_sumexp=*/true, 0.0, causal, false);
    return {std::get<0>(result), std::get<1>(result)};
}

// Padded with rows of zeros in front, and at the end up to a multiple of `step`, so that few distinct sizes occur.
static at::Tensor padded(const at::Tensor &x, std::int64_t front, std::int64_t step) {
    const std::int64_t rows = front + x.size(2), back = (step - rows % step) % step;
    return at::constant_pad_nd(x, {0, 0, front, back}).contiguous();
}

// Attention over a prefix of keys that every query sees, and over the rest (the suffix), each with its log-sum-exp
// [heads, queries]: prefix, prefix lse, suffix, suffix lse. For the suffix, queries are padded in front to the number
// of keys, which makes both mask alignments the same, unless most rows would be padding. Leaves `out` untouched if
// cuDNN cannot be used.
extern "C" int arpo_split_attention(at::Tensor **out, const at::Tensor *q, const at::Tensor *prefix_k,
                                    const at::Tensor *prefix_v, const at::Tensor *k, const at::Tensor *v, char *error,
                                    std::size_t error_length) {
    static std::atomic<bool> cudnn_works{true};
    if (!cudnn_works) return 0;
    // cuDNN's tile; the suffix is cheap, and twice the step halves the number of distinct sizes
    const std::int64_t step = 128, suffix_step = 256;
    try {
        const std::int64_t heads = q->size(1), rows = q->size(2), missing = k->size(2) - rows, front = missing <= rows ? missing : 0;
        std::pair<at::Tensor, at::Tensor> prefix, suffix;
        try {
            prefix = cudnn(padded(*q, 0, step), *prefix_k, *prefix_v, false);
            if (front == missing)
                suffix = cudnn(padded(*q, missing, suffix_step), padded(*k, 0, suffix_step), padded(*v, 0, suffix_step), true);
        } catch (const c10::OutOfMemoryError &) {
            throw;
        } catch (const std::exception &exception) {
            // not built in, or not supported on this device
            cudnn_works = false;
            std::fprintf(stderr, "cuDNN attention is unavailable, flash attention is used from now on: %s\n", exception.what());
            return 0;
        }
        if (front != missing) suffix = flash(*q, *k, *v);
        auto lse = [&](const at::Tensor &x, std::int64_t first) { return x.reshape({heads, -1}).narrow(1, first, rows); };
        at::Tensor results[] = {prefix.first.narrow(2, 0, rows), lse(prefix.second, 0), suffix.first.narrow(2, front, rows),
                              lse(suffix.second, front)};
        for (int i = 0; i < 4; i++) out[i] = new at::Tensor(results[i]);
        return 0;
    } catch (const std::exception &exception) {
        return failed(error, error_length, exception.what());
    }
}

// Backward through the graph from an output to `count` inputs; the graph is freed.
extern "C" int arpo_gradients(at::Tensor **out, const at::Tensor *output, const at::Tensor *const *inputs,
                              std::size_t count, const at::Tensor *gradient, char *error, std::size_t error_length) {
    try {
        std::vector<at::Tensor> wrt;
        for (std::size_t i = 0; i < count; i++) wrt.push_back(*inputs[i]);
        auto gradients = torch::autograd::grad({*output}, wrt, {*gradient});
        for (std::size_t i = 0; i < count; i++) out[i] = new at::Tensor(gradients[i]);
        return 0;
    } catch (const std::exception &exception) {
        return failed(error, error_length, exception.what());
    }
}

extern "C" int arpo_cuda_peak_bytes(std::uint64_t *allocated, std::uint64_t *reserved, int device, char *error,
                                    std::size_t error_length) {
    try {
        auto stats = c10::getDeviceAllocator(c10::DeviceType::CUDA)->getDeviceStats(static_cast<c10::DeviceIndex>(device));
        *allocated = static_cast<std::uint64_t>(stats.allocated_bytes[0].peak);
        *reserved = static_cast<std::uint64_t>(stats.reserved_bytes[0].peak);
        return 0;
    } catch (const std::exception &exception) {
        return failed(error, error_length, exception.what());
    }
}

extern "C" int arpo_pinned(at::Tensor **out, const at::Tensor *tensor, char *error, std::size_t error_length) {
    try {
        *out = new at::Tensor(tensor->pin_memory());
        return 0;
    } catch (const std::exception &exception) {
        return failed(error, error_length, exception.what());
    }
}

extern "C" int arpo_allow_tf32(char *error, std::size_t error_length) {
    try {
        at::globalContext().setFloat32MatmulPrecision("high");
        return 0;
    } catch (const std::exception &exception) {
        return failed(error, error_length, exception.what());
    }
}
