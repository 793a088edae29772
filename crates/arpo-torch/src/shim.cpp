// What libtorch has and tch does not bind: attention whose causal mask counts from the end, how much memory the
// allocator has handed out, and how exactly a GPU multiplies f32. Every function answers 0, or 1 with a message in `error`.

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <cstdint>
#include <cstdio>
#include <exception>

static int failed(char *error, std::size_t length, const char *why) {
    std::snprintf(error, length, "%s", why);
    return 1;
}

extern "C" int arpo_flash_attention(at::Tensor **out, const at::Tensor *q, const at::Tensor *k, const at::Tensor *v,
                                    char *error, std::size_t error_length) {
    try {
        auto result = at::_scaled_dot_product_flash_attention(*q, *k, *v, 0.0, /*is_causal=*/true, false);
        *out = new at::Tensor(std::get<0>(result));
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
