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

// Attention by cuDNN, and the same sums: nearly twice as fast, but it looks for its plan whenever sizes or strides are new to
// a thread, 13 ms and more. Its causal mask counts from the beginning.
static std::pair<at::Tensor, at::Tensor> cudnn(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, bool causal) {
    auto result = at::_scaled_dot_product_cudnn_attention(q, k, v, std::nullopt, /*compute_log_sumexp=*/true, 0.0, causal, false);
    return {std::get<0>(result), std::get<1>(result)};
}

// With rows of zeros in front, and behind up to a multiple of `step`, so that few sizes are new.
static at::Tensor filled(const at::Tensor &x, std::int64_t in_front, std::int64_t step) {
    const std::int64_t rows = in_front + x.size(2), behind = (step - rows % step) % step;
    return at::constant_pad_nd(x, {0, 0, in_front, behind}).contiguous();
}

// Attention over keys that every query sees beside that over the rest, each with its sums [heads, queries]: older, older
// sums, newer, newer sums. For the newer ones queries are filled up in front, unless that were most of them, so that there
// are as many as keys and a mask is the same from both ends. None if cuDNN cannot be used.
extern "C" int arpo_attention_apart(at::Tensor **out, const at::Tensor *q, const at::Tensor *older_k,
                                    const at::Tensor *older_v, const at::Tensor *k, const at::Tensor *v, char *error,
                                    std::size_t error_length) {
    static std::atomic<bool> cudnn_can{true};
    if (!cudnn_can) return 0;
    // what cuDNN computes at a time; newer ones are cheap, and seldom new in twice as large steps
    const std::int64_t step = 128, newer_step = 256;
    try {
        const std::int64_t heads = q->size(1), rows = q->size(2), more = k->size(2) - rows, in_front = more <= rows ? more : 0;
        std::pair<at::Tensor, at::Tensor> older, newer;
        try {
            older = cudnn(filled(*q, 0, step), *older_k, *older_v, false);
            if (in_front == more)
                newer = cudnn(filled(*q, more, newer_step), filled(*k, 0, newer_step), filled(*v, 0, newer_step), true);
        } catch (const c10::OutOfMemoryError &) {
            throw;
        } catch (const std::exception &problem) {
            // not built in, or not for this device
            cudnn_can = false;
            std::fprintf(stderr, "attention is slower from now on, without cuDNN: %s\n", problem.what());
            return 0;
        }
        if (in_front != more) newer = flash(*q, *k, *v);
        auto sums = [&](const at::Tensor &x, std::int64_t first) { return x.reshape({heads, -1}).narrow(1, first, rows); };
        at::Tensor parts[] = {older.first.narrow(2, 0, rows), sums(older.second, 0), newer.first.narrow(2, in_front, rows),
                              sums(newer.second, in_front)};
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

extern "C" int arpo_pinned(at::Tensor **out, const at::Tensor *tensor, char *error, std::size_t error_length) {
    try {
        *out = new at::Tensor(tensor->pin_memory());
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
