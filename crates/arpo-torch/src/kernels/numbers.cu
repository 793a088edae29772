// What all sources begin with. No headers: bf16 is the upper half of an f32.

typedef unsigned short bf16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// What a thread reads at a time, as numbers and as pairs of them.
struct alignas(16) Eight { bf16 at[8]; };
struct alignas(16) Words { u32 at[4]; };

__device__ __forceinline__ float lower(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float upper(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
__device__ __forceinline__ float wide(bf16 x) { return __uint_as_float((u32)x << 16); }

// To nearest, halves to even; what is no number stays none. One instruction, from
// compute capability 8.0 on, which is also where chips begin to compute in bf16.
__device__ __forceinline__ bf16 narrow(float x) {
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float silu(float x) { return x / (1.0f + __expf(-x)); }

