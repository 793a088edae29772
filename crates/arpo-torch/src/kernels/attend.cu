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
    bf16 *q, *own;              // queries; the token's own key and value
    i64 own_place;              // where they go
    float *left;                // what warps leave for each other
    const float *cosine, *sine;
};

// The token's own key and value: into their page, and seen by the token itself as a chunk of one.
__device__ __forceinline__ void attend_to_itself(const Surroundings &at, const Block &block, float *to, int group, int stride) {
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const bf16 *key = at.own, *value = key + WIDTH;
    if (threadIdx.x < WIDTH) {
        block.keys[at.own_place + threadIdx.x] = key[threadIdx.x];
        block.values[at.own_place + threadIdx.x] = value[threadIdx.x];
    }
    for (int member = warp; member < group; member += WARPS) {
        float score = 0.0f;
        for (int i = lane; i < WIDTH; i += 32) score += wide(at.q[member * WIDTH + i]) * wide(key[i]);
        score = warp_sum(score) * at.model.scale;
        float *its = to + member * stride;
        for (int i = lane; i < WIDTH; i += 32) its[i] = wide(value[i]);
        if (lane == 0) { its[WIDTH] = score; its[WIDTH + 1] = 1.0f; }
    }
}

// This block's tiles of the older keys and values; one block of each head also has the new ones.
__device__ __forceinline__ void attend(const Surroundings &at, const Block &block) {
    const Model &model = at.model;
    const Tiles &tiles = at.tiles;
    int warp = threadIdx.x >> 5, group = model.heads / model.shared_heads, stride = (tiles.chunks + 1) * PARTIAL;
    const bf16 *queries = at.between.qkv + tiles.head * group * WIDTH;
    float *partial = at.between.partial + tiles.head * group * stride;
    #pragma unroll 2
    for (int pair = threadIdx.x; pair < group * WIDTH / 2; pair += THREADS) {
        int member = pair / (WIDTH / 2);
        turn(queries + member * WIDTH, at.q + member * WIDTH, at.cosine, at.sine, pair % (WIDTH / 2));
    }
    if (tiles.chunk == 0 && threadIdx.x < WIDTH) {
        const bf16 *key = at.between.qkv + (model.heads + tiles.head) * WIDTH, *value = key + model.shared_heads * WIDTH;
        if (threadIdx.x < WIDTH / 2) turn(key, at.own, at.cosine, at.sine, threadIdx.x);
        at.own[WIDTH + threadIdx.x] = value[threadIdx.x];
    }
    __syncthreads();
    if (tiles.chunk == 0) attend_to_itself(at, block, partial + tiles.chunks * PARTIAL, group, stride);
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
    attention.leave(at.left + warp * LEFT);
    __syncthreads();
    put_together<WARPS>(at.left, group, partial + tiles.chunk * PARTIAL, stride);
}

// Chunks put together: 32 numbers of a head for each block, every warp with a share of the chunks.
__device__ __forceinline__ void combine(const Surroundings &at) {
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, last = at.tiles.chunks;
    for (int unit = blockIdx.x; unit < at.model.heads * WIDTH / 32; unit += gridDim.x) {
        const float *from = at.between.partial + (i64)(unit / 4) * (last + 1) * PARTIAL;
        float top = NONE, total = 0.0f, sum = 0.0f;
        for (int c = warp; c <= last; c += 4 * WARPS) {
            float exponents[4], weights[4], numbers[4], before = top;
            #pragma unroll
            for (int i = 0; i < 4; i++) {
                bool there = c + i * WARPS <= last;
                const float *chunk = from + (c + i * WARPS) * PARTIAL;
                exponents[i] = there ? chunk[WIDTH] : NONE;
                weights[i] = there ? chunk[WIDTH + 1] : 0.0f;
                numbers[i] = there ? chunk[unit % 4 * 32 + lane] : 0.0f;
            }
            #pragma unroll
            for (int i = 0; i < 4; i++) top = fmaxf(top, exponents[i]);
            total *= exp2f(before - top);
            sum *= exp2f(before - top);
            #pragma unroll
            for (int i = 0; i < 4; i++) {
                float share = exp2f(exponents[i] - top);
                total += share * weights[i];
                sum += share * numbers[i];
            }
        }
        float *left = at.left + warp * 96 + lane;      // three rows of 32 for each warp
        left[0] = sum;
        left[32] = total;
        left[64] = top;
        __syncthreads();
        if (warp == 0) {
            for (int other = 1; other < WARPS; other++) top = fmaxf(top, left[other * 96 + 64]);
            sum = total = 0.0f;
            for (int other = 0; other < WARPS; other++) {
                float share = exp2f(left[other * 96 + 64] - top);
                sum += share * left[other * 96];
                total += share * left[other * 96 + 32];
            }
            at.between.attended[unit * 32 + lane] = narrow(sum / total);
        }
        __syncthreads();
    }
}
