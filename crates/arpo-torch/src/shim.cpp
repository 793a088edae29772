// Parts of libtorch that tch does not bind: attention with a causal mask aligned bottom-right, attention with its
// log-sum-exp and its backward pass from both, a backward pass from a given gradient, the allocator's peak memory, pinned
// memory, and the precision of f32 matmuls. Every function returns 0, or 1 with a message in `error`.

#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/GradMode.h>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <torch/csrc/autograd/autograd.h>
#include <tuple>
#include <utility>
#include <vector>

static int failed(char *error, std::size_t length, const char *why) {
    std::snprintf(error, length, "%s", why);
    return 1;
}

// Flash attention, and its log-sum-exp. Its causal mask is aligned bottom-right.
static std::pair<at::Tensor, at::Tensor> flash(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, bool causal) {
    auto result = at::_scaled_dot_product_flash_attention(q, k, v, 0.0, causal, false);
    return {std::get<0>(result), std::get<1>(result)};
}

extern "C" int arpo_attention_bottom_right(at::Tensor **out, const at::Tensor *q, const at::Tensor *k, const at::Tensor *v,
                                           char *error, std::size_t error_length) {
    try {
        *out = new at::Tensor(flash(*q, *k, *v, true).first);
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
        if (front != missing) suffix = flash(*q, *k, *v, true);
        auto lse = [&](const at::Tensor &x, std::int64_t first) { return x.reshape({heads, -1}).narrow(1, first, rows); };
        at::Tensor results[] = {prefix.first.narrow(2, 0, rows), lse(prefix.second, 0), suffix.first.narrow(2, front, rows),
                              lse(suffix.second, front)};
        for (int i = 0; i < 4; i++) out[i] = new at::Tensor(results[i]);
        return 0;
    } catch (const std::exception &exception) {
        return failed(error, error_length, exception.what());
    }
}

static bool is_cudnn(std::int64_t kernel) { return kernel == static_cast<std::int64_t>(at::SDPBackend::cudnn_attention); }

// Attention of q over as many keys and values, by the kernel that libtorch chooses for training: its result and its
// log-sum-exp, in the kernel's own layout, and the kernel's number. Leaves `out` untouched if that kernel has none.
extern "C" int arpo_attention(at::Tensor **out, std::int64_t *kernel, const at::Tensor *q, const at::Tensor *k,
                              const at::Tensor *v, bool causal, char *error, std::size_t error_length) {
    try {
        {
            // some kernels have no backward pass for some widths
            c10::AutoGradMode with_gradients(true);
            const at::Tensor trained = q->detach().set_requires_grad(true);
            *kernel = at::_fused_sdp_choice(trained, *k, *v, std::nullopt, 0.0, causal, std::nullopt, q->size(1) != k->size(1));
        }
        std::pair<at::Tensor, at::Tensor> result;
        if (is_cudnn(*kernel)) {
            result = cudnn(*q, *k, *v, causal);
        } else if (*kernel != static_cast<std::int64_t>(at::SDPBackend::flash_attention)) {
            return 0;
        } else if (!q->is_cuda()) {
            auto cpu = at::_scaled_dot_product_flash_attention_for_cpu(*q, *k, *v, 0.0, causal);
            result = {std::get<0>(cpu), std::get<1>(cpu)};
        } else if (q->size(3) % 8 == 0) {
            result = flash(*q, *k, *v, causal);
        } else {
            return 0;     // heads would have to be padded
        }
        out[0] = new at::Tensor(result.first);
        out[1] = new at::Tensor(result.second);
        return 0;
    } catch (const std::exception &exception) {
        return failed(error, error_length, exception.what());
    }
}

// The gradients of queries, keys and values, from that of the result, and from what `arpo_attention` gave.
extern "C" int arpo_attention_backward(at::Tensor **out, std::int64_t kernel, const at::Tensor *gradient, const at::Tensor *q,
                                       const at::Tensor *k, const at::Tensor *v, const at::Tensor *result,
                                       const at::Tensor *lse, bool causal, char *error, std::size_t error_length) {
    try {
        std::tuple<at::Tensor, at::Tensor, at::Tensor> gradients;
        const std::int64_t queries = q->size(2), keys = k->size(2);
        const at::Tensor none;
        if (!q->is_cuda()) {
            gradients = at::_scaled_dot_product_flash_attention_for_cpu_backward(*gradient, *q, *k, *v, *result, *lse, 0.0, causal);
        } else {
            // the random numbers of dropout, which there is not
            const at::Tensor unused = at::empty({}, q->options().dtype(at::kLong));
            gradients = is_cudnn(kernel)
                            ? at::_scaled_dot_product_cudnn_attention_backward(*gradient, *q, *k, *v, *result, *lse, unused, unused,
                                                                               none, none, none, queries, keys, 0.0, causal)
                            : at::_scaled_dot_product_flash_attention_backward(*gradient, *q, *k, *v, *result, *lse, none, none,
                                                                               queries, keys, 0.0, causal, unused, unused);
        }
        out[0] = new at::Tensor(std::get<0>(gradients));
        out[1] = new at::Tensor(std::get<1>(gradients));
        out[2] = new at::Tensor(std::get<2>(gradients));
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
