// What libtorch has and tch does not bind: attention whose causal mask counts from the end, a backward pass that begins
// with a gradient, how much memory the allocator has handed out, and how exactly a GPU multiplies f32. Every function
// answers 0, or 1 with a message in `error`.

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

// Attention whose causal mask counts from the end, and the logarithms of the sums it divided by.
static std::pair<at::Tensor, at::Tensor> flash(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v) {
    auto result = at::_scaled_dot_product_flash_attention(q, k, v, 0.0, /*is_causal=*/true, false);
    return {std::get<0>(result), std::get<1>(result)};
}

extern "C" int arpo_attention_from_the_end(at::Tensor **out, const at::Tensor *q, const at::Tensor *k, const at::Tensor *v,
                                           char *error, std::size_t error_length) {
    try {
        *out = new at::Tensor(flash(*q, *k, *v).first);
        return 0;
    } catch (const std::exception &problem) {
        return failed(error, error_length, problem.what());
    }
}

// Attention over keys that every query sees beside that over the rest, each with its sums [heads, queries]: older, older
// sums, newer, newer sums. cuDNN's is nearly twice as fast as the other, but looks for its plan whenever a shape is new,
// 13 ms and more: queries are filled up to a multiple of what it computes at a time. None if it cannot be used.
extern "C" int arpo_attention_apart(at::Tensor **out, const at::Tensor *q, const at::Tensor *older_k,
                                    const at::Tensor *older_v, const at::Tensor *k, const at::Tensor *v, char *error,
                                    std::size_t error_length) {
    static std::atomic<bool> cudnn_can{true};
    if (!cudnn_can) return 0;
    const std::int64_t together = 128;
    try {
        const std::int64_t heads = q->size(1), rows = q->size(2), more = (together - rows % together) % together;
        auto filled = at::constant_pad_nd(*q, {0, 0, 0, more});
        at::Tensor older, older_sums;
        try {
            auto result = at::_scaled_dot_product_cudnn_attention(
                filled, *older_k, *older_v, std::nullopt, /*compute_log_sumexp=*/true, 0.0, /*is_causal=*/false, false);
            older = std::get<0>(result);
            older_sums = std::get<1>(result);
        } catch (const c10::OutOfMemoryError &) {
            throw;
        } catch (const std::exception &problem) {
            // not built in, or not for this device
            cudnn_can = false;
            std::fprintf(stderr, "attention is slower from now on, without cuDNN: %s\n", problem.what());
            return 0;
        }
        auto [newer, newer_sums] = flash(*q, *k, *v);
        at::Tensor parts[] = {older.narrow(2, 0, rows), older_sums.reshape({heads, -1}).narrow(1, 0, rows), newer,
                              newer_sums.reshape({heads, -1}).narrow(1, 0, rows)};
        for (int i = 0; i < 4; i++) out[i] = new at::Tensor(parts[i]);
        return 0;
    } catch (const std::exception &problem) {
        return failed(error, error_length, problem.what());
    }
}

// Through the graph from `count` inputs to an output, which is gone afterwards.
extern "C" int arpo_gradients(at::Tensor **out, const at::Tensor *output, const at::Tensor *const *inputs,
                              std::size_t count, const at::Tensor *gradient, char *error, std::size_t error_length) {
    try {
        std::vector<at::Tensor> of;
        for (std::size_t i = 0; i < count; i++) of.push_back(*inputs[i]);
        auto gradients = torch::autograd::grad({*output}, of, {*gradient});
        for (std::size_t i = 0; i < count; i++) out[i] = new at::Tensor(gradients[i]);
        return 0;
    } catch (const std::exception &problem) {
        return failed(error, error_length, problem.what());
    }
}

extern "C" int arpo_cuda_peak_bytes(std::uint64_t *allocated, std::uint64_t *reserved, int device, char *error,
                                    std::size_t error_length) {
    try {
        auto stats = c10::getDeviceAllocator(c10::DeviceType::CUDA)->getDeviceStats(static_cast<c10::DeviceIndex>(device));
        *allocated = static_cast<std::uint64_t>(stats.allocated_bytes[0].peak);
        *reserved = static_cast<std::uint64_t>(stats.reserved_bytes[0].peak);
        return 0;
    } catch (const std::exception &problem) {
        return failed(error, error_length, problem.what());
    }
}

extern "C" int arpo_multiply_f32_as_tf32(char *error, std::size_t error_length) {
    try {
        at::globalContext().setFloat32MatmulPrecision("high");
        return 0;
    } catch (const std::exception &problem) {
        return failed(error, error_length, problem.what());
    }
}
