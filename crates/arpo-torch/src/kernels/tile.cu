// A warp's attention over tiles of 16 keys and values of one kv head, for `paged.cu`. The query heads that share a kv
// head are the rows of one matmul. The 128 values of a head are permuted to suit 16-byte loads, which does not change
// their dot products.

// Constants of the launches: WIDTH of a head, tokens of a TILE, GROUP: the most query heads per kv head.
#define PARTIAL (WIDTH + 2)     // a partial result: unnormalised output, running maximum (base 2), softmax denominator
#define PITCH (WIDTH + 1)       // of a head in shared memory, padded to avoid bank conflicts
#define WARP_PARTIAL (GROUP * (PITCH + 2))      // values of a warp's partial result in shared memory
#define MASKED (-1e30f)

// 16 x 16 times 16 x 8; rows of the first and columns of the second operand are pairs of bf16.
__device__ __forceinline__ void multiply(float *c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// A thread's fragment of a tile's keys.
struct Keys {
    U32x4 at[2][4];             // [tile of 8 keys][quarter of the head]
    __device__ __forceinline__ Keys(const bf16 *keys) {
        int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
        for (int j = 0; j < 2; j++)
            for (int b = 0; b < 4; b++) at[j][b] = *(const U32x4 *)(keys + (j * 8 + g) * WIDTH + b * 32 + t * 8);
    }
};

// A thread's fragment of a tile's values. Only the first `valid` tokens count: memory past the end may hold NaN.
struct Values {
    U32x4 at[2][4];             // [half of the head][token]
    __device__ __forceinline__ Values(const bf16 *values, int valid) {
        int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
        for (int h = 0; h < 2; h++)
            for (int r = 0; r < 4; r++) {   // tokens 2t, 2t + 1, 2t + 8, 2t + 9
                int token = t * 2 + (r & 1) + (r >> 1) * 8;
                at[h][r] = token < valid ? *(const U32x4 *)(values + token * WIDTH + h * 64 + g * 8) : U32x4{};
            }
    }
};

struct Attention {
    U32x4 query[4];
    float out[2][4][4];         // [half][pair of values][mma accumulator]
    float row_max, denominator; // of query g

    // For `group` heads starting at `q`.
    __device__ __forceinline__ Attention(const bf16 *q, int group) : out{}, row_max(MASKED), denominator(0.0f) {
        int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
        for (int b = 0; b < 4; b++) query[b] = g < group ? *(const U32x4 *)(q + g * WIDTH + b * 32 + t * 8) : U32x4{};
    }

    // Scores of a tile's keys, as probabilities relative to `row_max`; tokens from `valid` on are masked.
    __device__ __forceinline__ void score(const Keys &keys, int valid, float scale, u32 *probability) {
        int lane = threadIdx.x & 31, t = lane & 3;
        float score[2][4] = {}, score2[2][4] = {};   // [tile of 8 keys][keys 2t, 2t + 1 of query g, then unused rows]
        for (int j = 0; j < 2; j++)
            for (int b = 0; b < 4; b++) {
                const U32x4 &key = keys.at[j][b];
                multiply(score[j], query[b].at[0], 0, query[b].at[1], 0, key.at[0], key.at[1]);
                multiply(score2[j], query[b].at[2], 0, query[b].at[3], 0, key.at[2], key.at[3]);
            }
        float tile_max = MASKED;
        for (int j = 0; j < 2; j++)
            for (int i = 0; i < 2; i++) {
                score[j][i] = j * 8 + t * 2 + i < valid ? (score[j][i] + score2[j][i]) * scale : MASKED;
                tile_max = fmaxf(tile_max, score[j][i]);
            }
        tile_max = fmaxf(tile_max, __shfl_xor_sync(~0u, tile_max, 1));
        tile_max = fmaxf(tile_max, __shfl_xor_sync(~0u, tile_max, 2));
        if (__any_sync(~0u, tile_max > row_max)) {
            float new_max = fmaxf(row_max, tile_max), rescale = exp2f(row_max - new_max);
            row_max = new_max;
            denominator *= rescale;
            // the accumulator's columns are queries 2t and 2t + 1
            float first = __shfl_sync(~0u, rescale, t * 8), second = __shfl_sync(~0u, rescale, t * 8 + 4);
            for (int h = 0; h < 2; h++)
                for (int i = 0; i < 4; i++)
                    for (int r = 0; r < 4; r++) out[h][i][r] *= r & 1 ? second : first;
        }
        for (int j = 0; j < 2; j++) {
            float p0 = exp2f(score[j][0] - row_max), p1 = exp2f(score[j][1] - row_max);
            denominator += p0 + p1;
            probability[j] = to_bf16(p0) | (u32)to_bf16(p1) << 16;
        }
    }

    // Accumulates the tile's values, weighted by these probabilities.
    __device__ __forceinline__ void add(const Values &values, const u32 *probability) {
        for (int h = 0; h < 2; h++)
            for (int i = 0; i < 4; i++) {
                u32 a = values.at[h][0].at[i], b = values.at[h][1].at[i];
                u32 c = values.at[h][2].at[i], d = values.at[h][3].at[i];
                multiply(out[h][i], __byte_perm(a, b, 0x5410), __byte_perm(a, b, 0x7632),
                         __byte_perm(c, d, 0x5410), __byte_perm(c, d, 0x7632), probability[0], probability[1]);
            }
    }

    // For combine_warps: outputs [GROUP][PITCH], then maxima and denominators of the group.
    __device__ __forceinline__ void store(float *warp_partials) {
        int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
        denominator += __shfl_xor_sync(~0u, denominator, 1);
        denominator += __shfl_xor_sync(~0u, denominator, 2);
        if (t == 0) {
            warp_partials[GROUP * PITCH + g] = row_max;
            warp_partials[GROUP * PITCH + GROUP + g] = denominator;
        }
        for (int h = 0; h < 2; h++)
            for (int i = 0; i < 4; i++)
                for (int r = 0; r < 4; r++)
                    warp_partials[(t * 2 + (r & 1)) * PITCH + h * 64 + g * 8 + i * 2 + (r >> 1)] = out[h][i][r];
    }
};

// Merges the partial results of all warps of a block: one partial result per head of the group, `stride` apart.
template <int warps>
__device__ __forceinline__ void combine_warps(const float *warp_partials, int group, float *partial, int stride) {
    for (int index = threadIdx.x; index < group * WIDTH; index += warps * 32) {
        int member = index / WIDTH, i = index % WIDTH;
        float global_max = MASKED, total_denominator = 0.0f, output = 0.0f;
        for (int w = 0; w < warps; w++)
            global_max = fmaxf(global_max, warp_partials[w * WARP_PARTIAL + GROUP * PITCH + member]);
        for (int w = 0; w < warps; w++) {
            const float *from = warp_partials + w * WARP_PARTIAL;
            float scale = exp2f(from[GROUP * PITCH + member] - global_max);
            total_denominator += scale * from[GROUP * PITCH + GROUP + member];
            output += scale * from[member * PITCH + i];
        }
        float *to = partial + (i64)member * stride;
        to[i] = output;
        if (i == 0) { to[WIDTH] = global_max; to[WIDTH + 1] = total_denominator; }
    }
}
