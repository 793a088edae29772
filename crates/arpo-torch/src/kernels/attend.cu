// Attention of one token in a single kernel, for `token.cu`: every block has a part of the keys and values of one shared
// head, `combine` puts the parts together.

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
    Attention attention(at.q, group);
    for (int tile = tiles.begin + warp; tile < tiles.end; tile += WARPS) {
        u32 probability[2];
        int there = at.token.past - tile * TILE;
        Keys keys((const bf16 *)at.ring.take());
        at.ring.pass_on();
        attention.score(keys, there, model.scale, probability);
        Values values((const bf16 *)at.ring.take(), there);
        at.ring.pass_on();
        attention.add(values, probability);
    }
    float *left = (float *)at.x;
    attention.leave(left + warp * LEFT);
    __syncthreads();
    float *partial = at.between.partial + tiles.head * group * (tiles.chunks + 1) * PARTIAL;
    put_together<WARPS>(left, group, partial + tiles.chunk * PARTIAL, (tiles.chunks + 1) * PARTIAL);
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
