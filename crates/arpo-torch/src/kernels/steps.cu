// What the steps of a layer are made of, for `token.cu`: blocks that meet, products of a row, norms.

#define THREADS (WARPS * 32)
#define HELD 4       // groups of eight that a thread has of a row of the hidden width

// What blocks leave for each other.
struct Between {
    bf16 *qkv, *attended, *stream, *gated;
    float *partial;             // [heads, chunks + 1, PARTIAL]: sums, the exponent they are relative to, their weight
    bf16 *logits;
    u32 *met;                   // how often a block has come to a meeting
    u32 already;                // before this token
};

// All blocks have come here, and see what the others wrote before.
__device__ __forceinline__ void meet(const Between &between, u32 &target) {
    __syncthreads();
    target += gridDim.x;
    if (threadIdx.x == 0) {
        u32 seen;
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" :: "l"(between.met) : "memory");
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(between.met) : "memory");
        while ((int)(seen - target) < 0);
    }
    __syncthreads();
}

__device__ __forceinline__ float warp_sum(float value) {
    for (int offset = 16; offset; offset >>= 1) value += __shfl_xor_sync(~0u, value, offset);
    return value;
}

__device__ __forceinline__ float squares(u32 pair) { return lower(pair) * lower(pair) + upper(pair) * upper(pair); }

// The sum of products of two pieces, eight numbers of each unit for every thread. Every four threads have a row of the one
// matrix and the same column of the other, so that what is wanted stands where the two meet; the rest is not looked at.
__device__ __forceinline__ float whole_product(const uint4 *w, const uint4 *x) {
    float sums[UNITS][4] = {};
    #pragma unroll
    for (int i = 0; i < UNITS; i++) multiply(sums[i], w[i].x, 0, w[i].y, 0, x[i].x, x[i].y);
    #pragma unroll
    for (int i = 0; i < UNITS; i++) multiply(sums[i], w[i].z, 0, w[i].w, 0, x[i].z, x[i].w);
    int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
    float sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < UNITS; i++) sum += g & 1 ? sums[i][1] : sums[i][0];
    return warp_sum(t == g >> 1 ? sum : 0.0f);
}

// The sums of this block's pieces of a product with x.
__device__ __forceinline__ void product(Ring &ring, const Part &part, const bf16 *x, float *sums) {
    int lane = threadIdx.x & 31;
    Way way(part);
    uint4 numbers[UNITS];
    #pragma unroll
    for (int i = 0; i < UNITS; i++)
        numbers[i] = i * 32 + lane < way.length ? ((const uint4 *)x)[way.begin + i * 32 + lane] : uint4{};
    for (; way.goes_on(part); way.go_on(part)) {
        const uint4 *piece = (const uint4 *)ring.take();
        uint4 weights[UNITS];
        #pragma unroll
        for (int i = 0; i < UNITS; i++) weights[i] = i * 32 + lane < way.length ? piece[i * 32 + lane] : uint4{};
        ring.pass_on();
        float sum = whole_product(weights, numbers);
        if (lane == 0) sums[way.local * part.pieces + way.piece] = sum;
    }
    __syncthreads();
}

__device__ __forceinline__ float sum_of(const Part &part, const float *sums, int local) {
    float sum = 0.0f;
    #pragma unroll
    for (int piece = 0; piece < WARPS; piece++)
        if (piece * part.piece_groups < part.groups) sum += sums[local * part.pieces + piece];
    return sum;
}

// A thread's part of a row.
struct Held {
    uint4 at[HELD];
    __device__ __forceinline__ Held(const bf16 *from, int numbers) {
        #pragma unroll
        for (int i = 0; i < HELD; i++) {
            int g = threadIdx.x + i * THREADS;
            at[i] = g < numbers / 8 ? ((const uint4 *)from)[g] : uint4{};
        }
    }
};

// Numbers of other blocks into shared memory, normed.
__device__ __forceinline__ void bring_normed(const bf16 *from, const Held &weight, bf16 *x, float *scratch, int numbers,
                                             float epsilon) {
    Held held(from, numbers);
    float sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < HELD && threadIdx.x + i * THREADS < numbers / 8; i++)
        sum += squares(held.at[i].x) + squares(held.at[i].y) + squares(held.at[i].z) + squares(held.at[i].w);
    sum = warp_sum(sum);
    if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = sum;
    __syncthreads();
    sum = 0.0f;
    for (int warp = 0; warp < WARPS; warp++) sum += scratch[warp];
    float scale = rsqrtf(sum / (float)numbers + epsilon);
    auto normed = [&](u32 pair, u32 factor) {
        return narrow(wide(narrow(lower(pair) * scale)) * lower(factor)) |
               (u32)narrow(wide(narrow(upper(pair) * scale)) * upper(factor)) << 16;
    };
    #pragma unroll
    for (int i = 0; i < HELD && threadIdx.x + i * THREADS < numbers / 8; i++) {
        uint4 a = held.at[i], b = weight.at[i];
        ((uint4 *)x)[threadIdx.x + i * THREADS] = {normed(a.x, b.x), normed(a.y, b.y), normed(a.z, b.z), normed(a.w, b.w)};
    }
    __syncthreads();
}
