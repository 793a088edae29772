// What all sources begin with. No headers: bf16 is the upper half of an f32.

typedef unsigned short bf16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

__device__ __forceinline__ float wide(bf16 x) { return __uint_as_float((u32)x << 16); }

// To nearest, halves to even; what is no number stays none.
__device__ __forceinline__ bf16 narrow(float x) {
    u32 bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (bf16)((bits >> 16) | 64u);
    return (bf16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

__device__ __forceinline__ float silu(float x) { return x / (1.0f + __expf(-x)); }

