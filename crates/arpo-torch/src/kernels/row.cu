// Matrix-vector products: y = x Wᵀ for a single row x, as decoding one new token needs them. Every weight is read once
// and used once, so this is memory bound: one warp per row of W, 16-byte loads, several of them in flight. x is small
// enough to stay in L1.

#define IN_FLIGHT 4  // loads of a thread

// ROWS, a constant of the launches: rows of W per block, one warp each.

// Weights are not needed again, so they bypass L1 and leave it to x.
__device__ __forceinline__ uint4 load_once(const uint4 *at) {
    uint4 x;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(at));
    return x;
}

__device__ __forceinline__ float dot8(uint4 w, uint4 x, float sum) {
    sum = fmaf(lower(w.x), lower(x.x), sum);
    sum = fmaf(upper(w.x), upper(x.x), sum);
    sum = fmaf(lower(w.y), lower(x.y), sum);
    sum = fmaf(upper(w.y), upper(x.y), sum);
    sum = fmaf(lower(w.z), lower(x.z), sum);
    sum = fmaf(upper(w.z), upper(x.z), sum);
    sum = fmaf(lower(w.w), lower(x.w), sum);
    return fmaf(upper(w.w), upper(x.w), sum);
}

// The dot product of a row of W and x, both of `groups` times eight values; every thread of the warp gets the sum.
__device__ __forceinline__ float dot_row(const uint4 *row, const uint4 *x, int groups) {
    float sum = 0.0f;
    int at = threadIdx.x & 31;
    for (; at + 32 * (IN_FLIGHT - 1) < groups; at += 32 * IN_FLIGHT) {
        uint4 weights[IN_FLIGHT];
        #pragma unroll
        for (int i = 0; i < IN_FLIGHT; i++) weights[i] = load_once(row + at + 32 * i);
        #pragma unroll
        for (int i = 0; i < IN_FLIGHT; i++) sum = dot8(weights[i], x[at + 32 * i], sum);
    }
    for (; at < groups; at += 32) sum = dot8(load_once(row + at), x[at], sum);
    for (int offset = 16; offset; offset >>= 1) sum += __shfl_xor_sync(~0u, sum, offset);
    return sum;
}

// y = x Wᵀ, plus `addend` (a bias or a residual) unless it is null.
extern "C" __global__ void __launch_bounds__(32 * ROWS)
row_matmul(const uint4 *w, const uint4 *x, const bf16 *addend, bf16 *y, int rows, int groups) {
    int row = blockIdx.x * ROWS + (threadIdx.x >> 5);
    if (row >= rows) return;
    float sum = dot_row(w + (i64)row * groups, x, groups);
    if ((threadIdx.x & 31) == 0) y[row] = to_bf16(addend ? sum + to_f32(addend[row]) : sum);
}

// silu(gate) * up, gate and up being the two halves of x Wᵀ; rounded to bf16 wherever the plain version is.
extern "C" __global__ void __launch_bounds__(32 * ROWS)
row_swiglu(const uint4 *w, const uint4 *x, bf16 *y, int rows, int groups) {
    int row = blockIdx.x * ROWS + (threadIdx.x >> 5);
    if (row >= rows) return;
    float gate = to_f32(to_bf16(dot_row(w + (i64)row * groups, x, groups)));
    float up = to_f32(to_bf16(dot_row(w + (i64)(rows + row) * groups, x, groups)));
    if ((threadIdx.x & 31) == 0) y[row] = to_bf16(to_f32(to_bf16(silu(gate))) * up);
}
