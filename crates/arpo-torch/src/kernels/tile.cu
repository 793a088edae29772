// A warp's attention over tiles of 16 keys and values of one shared head, for `paged.cu` and `token.cu`. The query heads
// that share a key head are the rows of one product. For that the 128 numbers of a head are taken in an order that suits
// 16-byte loads; a sum does not mind.

#define WIDTH 128    // of a head
#define TILE 16      // tokens
#define GROUP 8      // most query heads that share a key head
#define PARTIAL (WIDTH + 2)     // a result so far: sums, the exponent they are relative to, their weight
#define PITCH (WIDTH + 1)       // of a head in shared memory, so that a warp's numbers go to many of its banks
#define LEFT (GROUP * (PITCH + 2))      // numbers that a warp leaves of its attention
#define NONE (-1e30f)

// 16 x 16 times 16 x 8, rows of the first and columns of the second in pairs of bf16.
__device__ __forceinline__ void multiply(float *c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// A thread's part of a tile's keys.
struct Keys {
    Words at[2][4];             // [tile of 8 keys][of the head's quarters]
    __device__ __forceinline__ Keys(const bf16 *keys) {
        int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
        for (int j = 0; j < 2; j++)
            for (int b = 0; b < 4; b++) at[j][b] = *(const Words *)(keys + (j * 8 + g) * WIDTH + b * 32 + t * 8);
    }
};

// And of its values, of which only the first `there` count: what lies behind the end may be no number.
struct Values {
    Words at[2][4];             // [half of the head][token]
    __device__ __forceinline__ Values(const bf16 *values, int there) {
        int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
        for (int h = 0; h < 2; h++)
            for (int r = 0; r < 4; r++) {   // tokens 2t, 2t + 1, 2t + 8, 2t + 9
                int token = t * 2 + (r & 1) + (r >> 1) * 8;
                at[h][r] = token < there ? *(const Words *)(values + token * WIDTH + h * 64 + g * 8) : Words{};
            }
    }
};

struct Attention {
    Words query[4];
    float out[2][4][4];         // [half][pair of numbers][result of a product]
    float exponent, weight;     // of query g

    // For the `group` heads from `q` on.
    __device__ __forceinline__ Attention(const bf16 *q, int group) : out{}, exponent(NONE), weight(0.0f) {
        int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
        for (int b = 0; b < 4; b++) query[b] = g < group ? *(const Words *)(q + g * WIDTH + b * 32 + t * 8) : Words{};
    }

    // Scores of a tile's keys, as probabilities relative to `exponent`; those behind `there` are none.
    __device__ __forceinline__ void score(const Keys &keys, int there, float scale, u32 *probability) {
        int lane = threadIdx.x & 31, t = lane & 3;
        float score[2][4] = {}, other[2][4] = {};   // [tile of 8 keys][keys 2t, 2t + 1 of query g, then of nobody]
        for (int j = 0; j < 2; j++)
            for (int b = 0; b < 4; b++) {
                const Words &key = keys.at[j][b];
                multiply(score[j], query[b].at[0], 0, query[b].at[1], 0, key.at[0], key.at[1]);
                multiply(other[j], query[b].at[2], 0, query[b].at[3], 0, key.at[2], key.at[3]);
            }
        float largest = NONE;
        for (int j = 0; j < 2; j++)
            for (int i = 0; i < 2; i++) {
                score[j][i] = j * 8 + t * 2 + i < there ? (score[j][i] + other[j][i]) * scale : NONE;
                largest = fmaxf(largest, score[j][i]);
            }
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
        if (__any_sync(~0u, largest > exponent)) {
            float next = fmaxf(exponent, largest), shrink = exp2f(exponent - next);
            exponent = next;
            weight *= shrink;
            // a product's columns are queries 2t and 2t + 1
            float first = __shfl_sync(~0u, shrink, t * 8), second = __shfl_sync(~0u, shrink, t * 8 + 4);
            for (int h = 0; h < 2; h++)
                for (int i = 0; i < 4; i++)
                    for (int r = 0; r < 4; r++) out[h][i][r] *= r & 1 ? second : first;
        }
        for (int j = 0; j < 2; j++) {
            float p0 = exp2f(score[j][0] - exponent), p1 = exp2f(score[j][1] - exponent);
            weight += p0 + p1;
            probability[j] = narrow(p0) | (u32)narrow(p1) << 16;
        }
    }

    // Its values, by these probabilities.
    __device__ __forceinline__ void add(const Values &values, const u32 *probability) {
        for (int h = 0; h < 2; h++)
            for (int i = 0; i < 4; i++) {
                u32 a = values.at[h][0].at[i], b = values.at[h][1].at[i];
                u32 c = values.at[h][2].at[i], d = values.at[h][3].at[i];
                multiply(out[h][i], __byte_perm(a, b, 0x5410), __byte_perm(a, b, 0x7632),
                         __byte_perm(c, d, 0x5410), __byte_perm(c, d, 0x7632), probability[0], probability[1]);
            }
    }

    // For the other warps: sums [GROUP][PITCH], then exponents and weights of the group.
    __device__ __forceinline__ void leave(float *left) {
        int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
        weight += __shfl_xor_sync(~0u, weight, 1);
        weight += __shfl_xor_sync(~0u, weight, 2);
        if (t == 0) {
            left[GROUP * PITCH + g] = exponent;
            left[GROUP * PITCH + GROUP + g] = weight;
        }
        for (int h = 0; h < 2; h++)
            for (int i = 0; i < 4; i++)
                for (int r = 0; r < 4; r++)
                    left[(t * 2 + (r & 1)) * PITCH + h * 64 + g * 8 + i * 2 + (r >> 1)] = out[h][i][r];
    }
};

// What all warps of a block have left, put together: for each of the `group` heads a result so far, `stride` apart.
template <int warps>
__device__ __forceinline__ void put_together(const float *left, int group, float *partial, int stride) {
    for (int number = threadIdx.x; number < group * WIDTH; number += warps * 32) {
        int member = number / WIDTH, i = number % WIDTH;
        float top = NONE, total = 0.0f, sum = 0.0f;
        for (int w = 0; w < warps; w++) top = fmaxf(top, left[w * LEFT + GROUP * PITCH + member]);
        for (int w = 0; w < warps; w++) {
            const float *of = left + w * LEFT;
            float share = exp2f(of[GROUP * PITCH + member] - top);
            total += share * of[GROUP * PITCH + GROUP + member];
            sum += share * of[member * PITCH + i];
        }
        float *to = partial + (i64)member * stride;
        to[i] = sum;
        if (i == 0) { to[WIDTH] = top; to[WIDTH + 1] = total; }
    }
}
