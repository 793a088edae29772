// The products of one row: y = x Wᵀ for a single x, which is what a single new token costs. Every weight is read once
// and used once, so reading is all there is to it: a warp for each row of W, sixteen bytes a thread, several reads on
// their way at a time. x is small enough to stay in the first cache.

#define ROWS 4       // of W for each block, a warp each
#define IN_FLIGHT 4  // reads of a thread


// Weights are not needed again: they leave the first cache to x.
__device__ __forceinline__ uint4 read_once(const uint4 *at) {
    uint4 x;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(at));
    return x;
}

__device__ __forceinline__ float dot(uint4 w, uint4 x, float sum) {
    sum = fmaf(lower(w.x), lower(x.x), sum);
    sum = fmaf(upper(w.x), upper(x.x), sum);
    sum = fmaf(lower(w.y), lower(x.y), sum);
    sum = fmaf(upper(w.y), upper(x.y), sum);
    sum = fmaf(lower(w.z), lower(x.z), sum);
    sum = fmaf(upper(w.z), upper(x.z), sum);
    sum = fmaf(lower(w.w), lower(x.w), sum);
    return fmaf(upper(w.w), upper(x.w), sum);
}

// A row of W times x, both of `groups` times eight numbers; every thread of the warp has the sum.
__device__ __forceinline__ float row_times(const uint4 *row, const uint4 *x, int groups) {
    float sum = 0.0f;
    int at = threadIdx.x & 31;
    for (; at + 32 * (IN_FLIGHT - 1) < groups; at += 32 * IN_FLIGHT) {
        uint4 weights[IN_FLIGHT];
        #pragma unroll
        for (int i = 0; i < IN_FLIGHT; i++) weights[i] = read_once(row + at + 32 * i);
        #pragma unroll
        for (int i = 0; i < IN_FLIGHT; i++) sum = dot(weights[i], x[at + 32 * i], sum);
    }
    for (; at < groups; at += 32) sum = dot(read_once(row + at), x[at], sum);
    for (int offset = 16; offset; offset >>= 1) sum += __shfl_xor_sync(~0u, sum, offset);
    return sum;
}

// y = x Wᵀ + more, where there is more.
extern "C" __global__ void __launch_bounds__(32 * ROWS)
row_product(const uint4 *w, const uint4 *x, const bf16 *more, bf16 *y, int rows, int groups) {
    int row = blockIdx.x * ROWS + (threadIdx.x >> 5);
    if (row >= rows) return;
    float sum = row_times(w + (i64)row * groups, x, groups);
    if ((threadIdx.x & 31) == 0) y[row] = narrow(more ? sum + wide(more[row]) : sum);
}

// silu(gate) * up, gate and up being the two halves of x Wᵀ; rounded wherever the plain version writes something.
extern "C" __global__ void __launch_bounds__(32 * ROWS)
row_gated(const uint4 *w, const uint4 *x, bf16 *y, int rows, int groups) {
    int row = blockIdx.x * ROWS + (threadIdx.x >> 5);
    if (row >= rows) return;
    float gate = wide(narrow(row_times(w + (i64)row * groups, x, groups)));
    float up = wide(narrow(row_times(w + (i64)(rows + row) * groups, x, groups)));
    if ((threadIdx.x & 31) == 0) y[row] = narrow(wide(narrow(silu(gate))) * up);
}
