// Prepended to every kernel source. No headers: bf16 is the upper half of an f32.

typedef unsigned short bf16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// 16 bytes, the widest load of a thread: as bf16 values, and as pairs of them.
struct alignas(16) Bf16x8 { bf16 at[8]; };
struct alignas(16) U32x4 { u32 at[4]; };

__device__ __forceinline__ float lower(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float upper(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
__device__ __forceinline__ float to_f32(bf16 x) { return __uint_as_float((u32)x << 16); }

// Round to nearest even; NaN stays NaN. One instruction since compute capability 8.0, which is also the first to
// support bf16.
__device__ __forceinline__ bf16 to_bf16(float x) {
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float silu(float x) { return x / (1.0f + __expf(-x)); }

// A value of an RMS norm, x / rms(x) * w, from the inverse of rms(x); rounded to bf16 wherever the plain version is.
__device__ __forceinline__ bf16 normed(bf16 x, float scale, bf16 weight) {
    return to_bf16(to_f32(to_bf16(to_f32(x) * scale)) * to_f32(weight));
}

