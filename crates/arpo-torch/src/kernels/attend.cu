// Attention of one token in a single kernel, for `token.cu`: every block has a part of the keys and values of one shared
// head, `combine` puts the parts together.

// The queries that share a key head, over a part of the older keys: as `paged_attention` does it for several sequences.
struct Attention {
    Words query[4];
    float out[2][4][4];         // [half][pair of numbers][result of a product]
    float exponent, weight;     // of query g

    __device__ __forceinline__ Attention(const bf16 *q) : out{}, exponent(NONE), weight(0.0f) {
        int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
        for (int b = 0; b < 4; b++) query[b] = *(const Words *)(q + g * WIDTH + b * 32 + t * 8);
    }

    // Scores of a tile's keys, as probabilities relative to `exponent`; those behind `there` are none.
    __device__ __forceinline__ void score(Ring &ring, int there, float scale, u32 *probability) {
        int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
        const bf16 *keys = (const bf16 *)ring.take();
        Words key[2][4];
        for (int j = 0; j < 2; j++)
            for (int b = 0; b < 4; b++) key[j][b] = *(const Words *)(keys + (j * 8 + g) * WIDTH + b * 32 + t * 8);
        ring.pass_on();
        float score[2][4] = {}, other[2][4] = {};   // [tile of 8 keys][keys 2t, 2t + 1 of query g, then of nobody]
        for (int j = 0; j < 2; j++)
            for (int b = 0; b < 4; b++) {
                multiply(score[j], query[b].at[0], 0, query[b].at[1], 0, key[j][b].at[0], key[j][b].at[1]);
                multiply(other[j], query[b].at[2], 0, query[b].at[3], 0, key[j][b].at[2], key[j][b].at[3]);
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
    __device__ __forceinline__ void add(Ring &ring, int there, const u32 *probability) {
        int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
        const bf16 *values = (const bf16 *)ring.take();
        Words value[2][4];
        for (int h = 0; h < 2; h++)
            for (int r = 0; r < 4; r++) {   // tokens 2t, 2t + 1, 2t + 8, 2t + 9
                int token = t * 2 + (r & 1) + (r >> 1) * 8;
                // what lies behind the end may be no number
                value[h][r] = token < there ? *(const Words *)(values + token * WIDTH + h * 64 + g * 8) : Words{};
            }
        ring.pass_on();
        for (int h = 0; h < 2; h++)
            for (int i = 0; i < 4; i++) {
                u32 a = value[h][0].at[i], b = value[h][1].at[i], c = value[h][2].at[i], d = value[h][3].at[i];
                multiply(out[h][i], __byte_perm(a, b, 0x5410), __byte_perm(a, b, 0x7632),
                         __byte_perm(c, d, 0x5410), __byte_perm(c, d, 0x7632), probability[0], probability[1]);
            }
    }

    // For the other warps: sums [GROUP][WIDTH], then exponents and weights of the group.
    __device__ __forceinline__ void leave(float *left) {
        int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
        weight += __shfl_xor_sync(~0u, weight, 1);
        weight += __shfl_xor_sync(~0u, weight, 2);
        if (t == 0) {
            left[GROUP * WIDTH + g] = exponent;
            left[GROUP * WIDTH + GROUP + g] = weight;
        }
        for (int h = 0; h < 2; h++)
            for (int i = 0; i < 4; i++)
                for (int r = 0; r < 4; r++)
                    left[(t * 2 + (r & 1)) * WIDTH + h * 64 + g * 8 + i * 2 + (r >> 1)] = out[h][i][r];
    }
};

// A pair of a head's numbers, turned to its place: `from` into `to`.
__device__ __forceinline__ void turn(const bf16 *from, bf16 *to, const float *cosine, const float *sine, int i) {
    float c = cosine[i], s = sine[i], a = wide(from[i]), b = wide(from[WIDTH / 2 + i]);
    to[i] = narrow(a * c - b * s);
    to[WIDTH / 2 + i] = narrow(b * c + a * s);
}

// What is the same for a block's whole way through the token.
struct Surroundings {
    const Model &model;
    const Token &token;
    const Between &between;
    const Tiles &tiles;
    Ring &ring;
    bf16 *x, *q;
    float *sums, *scratch;
    const float *cosine, *sine;
};

// This block's tiles of the older keys and values; one block of each head also has the new ones.
__device__ __forceinline__ void attend(const Surroundings &at, const Block &block) {
    const Model &model = at.model;
    const Tiles &tiles = at.tiles;
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, group = model.heads / model.shared_heads;
    const bf16 *queries = at.between.qkv + tiles.head * group * WIDTH;
    #pragma unroll 2
    for (int pair = threadIdx.x; pair < group * WIDTH / 2; pair += THREADS) {
        int member = pair / (WIDTH / 2);
        turn(queries + member * WIDTH, at.q + member * WIDTH, at.cosine, at.sine, pair % (WIDTH / 2));
    }
    __syncthreads();
    Attention attention(at.q);
    for (int tile = tiles.begin + warp; tile < tiles.end; tile += WARPS) {
        u32 probability[2];
        int there = at.token.past - tile * TILE;
        attention.score(at.ring, there, model.scale, probability);
        attention.add(at.ring, there, probability);
    }
    float *left = (float *)at.x;
    attention.leave(left + warp * LEFT);
    __syncthreads();
    float *partial = at.between.partial + tiles.head * group * (tiles.chunks + 1) * PARTIAL;
    for (int number = threadIdx.x; number < group * WIDTH; number += THREADS) {
        int member = number / WIDTH, i = number % WIDTH;
        float top = NONE, total = 0.0f, sum = 0.0f;
        for (int w = 0; w < WARPS; w++) top = fmaxf(top, left[w * LEFT + GROUP * WIDTH + member]);
        for (int w = 0; w < WARPS; w++) {
            const float *of = left + w * LEFT;
            float share = exp2f(of[GROUP * WIDTH + member] - top);
            total += share * of[GROUP * WIDTH + GROUP + member];
            sum += share * of[member * WIDTH + i];
        }
        float *to = partial + (member * (tiles.chunks + 1) + tiles.chunk) * PARTIAL;
        to[i] = sum;
        if (i == 0) { to[WIDTH] = top; to[WIDTH + 1] = total; }
    }
    if (tiles.chunk > 0) return;

    // the new key and value: into their page, and seen by the token itself as a chunk of one
    const bf16 *key = at.between.qkv + (model.heads + tiles.head) * WIDTH, *value = key + model.shared_heads * WIDTH;
    i64 page = at.token.table[at.token.past / model.page_tokens];
    i64 place = ((page * model.shared_heads + tiles.head) * model.page_tokens + at.token.past % model.page_tokens) * WIDTH;
    bf16 *turned = (bf16 *)at.scratch;
    if (threadIdx.x < WIDTH / 2) turn(key, turned, at.cosine, at.sine, threadIdx.x);
    __syncthreads();
    if (threadIdx.x < WIDTH) {
        block.keys[place + threadIdx.x] = turned[threadIdx.x];
        block.values[place + threadIdx.x] = value[threadIdx.x];
    }
    for (int member = warp; member < group; member += WARPS) {
        float score = 0.0f;
        for (int i = lane; i < WIDTH; i += 32) score += wide(at.q[member * WIDTH + i]) * wide(turned[i]);
        score = warp_sum(score) * model.scale;
        float *to = partial + (member * (tiles.chunks + 1) + tiles.chunks) * PARTIAL;
        for (int i = lane; i < WIDTH; i += 32) to[i] = wide(value[i]);
        if (lane == 0) { to[WIDTH] = score; to[WIDTH + 1] = 1.0f; }
    }
}

// Chunks put together: 32 numbers of a head for each block, every warp with a share of the chunks.
__device__ __forceinline__ void combine(const Surroundings &at) {
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, last = at.tiles.chunks;
    float *left = (float *)at.x;
    for (int unit = blockIdx.x; unit < at.model.heads * WIDTH / 32; unit += gridDim.x) {
        const float *from = at.between.partial + (i64)(unit / 4) * (last + 1) * PARTIAL;
        float top = NONE, total = 0.0f, sum = 0.0f;
        for (int c = lane; c <= last; c += 32) top = fmaxf(top, from[c * PARTIAL + WIDTH]);
        for (int offset = 16; offset; offset >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, offset));
        for (int c = warp; c <= last; c += 4 * WARPS)
            #pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *chunk = from + min(c + i * WARPS, last) * PARTIAL;
                float share = c + i * WARPS <= last ? exp2f(chunk[WIDTH] - top) : 0.0f;
                total += share * chunk[WIDTH + 1];
                sum += share * chunk[unit % 4 * 32 + lane];
            }
        left[warp * 64 + lane] = sum;
        left[warp * 64 + 32 + lane] = total;
        __syncthreads();
        if (warp == 0) {
            for (int other = 1; other < WARPS; other++) {
                sum += left[other * 64 + lane];
                total += left[other * 64 + 32 + lane];
            }
            at.between.attended[unit * 32 + lane] = narrow(sum / total);
        }
        __syncthreads();
    }
}
