// From logits to tokens: temperature, forbidden tokens, the logarithm of the distribution and a draw from it, which
// libtorch makes of fifteen passes. Every row's vocabulary is cut into slices: `sum_slices` has a block for each, because
// exponentials of 152 064 numbers take one multiprocessor as long as a hundredth of a whole token; `draw_tokens` then looks
// at one slice of each row.

#define THREADS 256
#define SLICES 32           // a lane of a warp for each
#define MOST_ROWS 64        // of a launch: how they are drawn goes along with it
#define FORBIDDEN (-1e30f)  // low enough that its probability is exactly 0
#define NOTHING 1e-37       // a slice with less may have only tokens whose probability as f32 is 0

struct Rows {
    float temperature[MOST_ROWS];
    int dictated[MOST_ROWS];    // the token to take in any case, or -1
    double draw[MOST_ROWS];     // from 0 to below 1
};

struct Row {
    const Eight *logits;
    const unsigned char *forbidden;     // a bit for each token, up to the last that is
    int forbidden_groups;
    float temperature;

    __device__ __forceinline__ void eight(int g, float *x) const {
        Eight eight = logits[g];
        u32 bits = g < forbidden_groups ? forbidden[g] : 0;
        for (int i = 0; i < 8; i++) x[i] = bits >> i & 1 ? FORBIDDEN : wide(eight.at[i]) / temperature;
    }
};

// Groups of eight tokens.
struct Slice {
    int begin, end;
    __device__ __forceinline__ Slice(int number, int groups) {
        int each = (groups + SLICES - 1) / SLICES;
        begin = min(number * each, groups);
        end = min(begin + each, groups);
    }
};

// What a slice has of the sum of exponentials: relative to its largest logit.
struct alignas(16) Exponentials { double top, sum; };

struct Sums { double before, with, all; };

// The sums of the lanes before this one, of those and this one, and of all. They are added one after the other, so that one
// lane ends to the bit where the next begins.
__device__ __forceinline__ Sums warp_sums(double value) {
    Sums sums{0.0, 0.0, 0.0};
    for (int lane = 0; lane < 32; lane++) {
        if (lane == (threadIdx.x & 31)) sums.before = sums.all;
        sums.all += __shfl_sync(~0u, value, lane);
        if (lane == (threadIdx.x & 31)) sums.with = sums.all;
    }
    return sums;
}

// The same over the threads of a block.
__device__ __forceinline__ Sums block_sums(double value, double *shared) {
    int warp = threadIdx.x >> 5;
    Sums sums = warp_sums(value);
    if ((threadIdx.x & 31) == 0) shared[warp] = sums.all;
    __syncthreads();
    double before = 0.0, all = 0.0;
    for (int other = 0; other < THREADS / 32; other++) {
        if (other == warp) before = all;
        all += shared[other];
    }
    return {before + sums.before, before + sums.with, all};
}

__device__ __forceinline__ float warp_top(float value) {
    for (int offset = 16; offset; offset >>= 1) value = fmaxf(value, __shfl_xor_sync(~0u, value, offset));
    return value;
}

// A block for each slice of each row. `groups` is eighths of the vocabulary.
extern "C" __global__ void __launch_bounds__(THREADS)
    sum_slices(const Eight *logits, const unsigned char *forbidden, Exponentials *slices, int forbidden_groups, int groups,
               Rows rows) {
    __shared__ float tops[THREADS / 32];
    __shared__ double shared[THREADS / 32];
    int number = blockIdx.x / SLICES;
    Slice slice(blockIdx.x % SLICES, groups);
    Row row{logits + (i64)number * groups, forbidden, forbidden_groups, rows.temperature[number]};
    float x[8], top = FORBIDDEN, sum = 0.0f;
    for (int g = slice.begin + threadIdx.x; g < slice.end; g += THREADS) {
        row.eight(g, x);
        float next = top;
        for (int i = 0; i < 8; i++) next = fmaxf(next, x[i]);
        sum *= expf(top - next);
        for (int i = 0; i < 8; i++) sum += expf(x[i] - next);
        top = next;
    }
    float slice_top = warp_top(top);
    if ((threadIdx.x & 31) == 0) tops[threadIdx.x >> 5] = slice_top;
    __syncthreads();
    for (int warp = 0; warp < THREADS / 32; warp++) slice_top = fmaxf(slice_top, tops[warp]);
    double all = block_sums((double)sum * (double)expf(top - slice_top), shared).all;
    if (threadIdx.x == 0) slices[blockIdx.x] = {slice_top, all};
}

// drawn: for each row the token and its log-probability. A block for each row.
extern "C" __global__ void __launch_bounds__(THREADS)
    draw_tokens(const Eight *logits, const unsigned char *forbidden, const Exponentials *slices, double *drawn,
                int forbidden_groups, int groups, Rows rows) {
    __shared__ double shared[THREADS / 32];
    int number = blockIdx.x, dictated = rows.dictated[number];
    Row row{logits + (i64)number * groups, forbidden, forbidden_groups, rows.temperature[number]};

    // in every warp the same, a slice for each lane: the logarithm of the whole sum, and the slices' shares of it
    Exponentials mine = slices[number * SLICES + (threadIdx.x & 31)];
    float top = warp_top((float)mine.top);
    float whole = top + (float)log(warp_sums(mine.sum * exp(mine.top - top)).all);
    double share = mine.sum * exp(mine.top - whole);
    Sums shares = warp_sums(share < NOTHING ? 0.0 : share);
    float x[8];
    if (!(shares.all > 0.0) || isinf(shares.all)) {     // logits that are no numbers
        if (threadIdx.x == 0) drawn[2 * number] = drawn[2 * number + 1] = nan("");
        return;
    }
    if (dictated >= 0) {
        if (threadIdx.x > 0) return;
        row.eight(dictated >> 3, x);
        drawn[2 * number] = dictated;
        drawn[2 * number + 1] = x[dictated & 7] - whole;
        return;
    }
    // below all of it, also where a draw close to 1 is rounded
    double wanted = fmin(rows.draw[number] * shares.all, nextafter(shares.all, 0.0));
    u32 holders = __ballot_sync(~0u, shares.before <= wanted && wanted < shares.with);
    int lane = __ffs(holders) - 1;
    wanted -= __shfl_sync(~0u, shares.before, lane);

    // running sums in the order of tokens: each thread has a stretch of the slice
    Slice slice(lane, groups);
    int stretch = (slice.end - slice.begin + THREADS - 1) / THREADS;
    int begin = min(slice.begin + (int)threadIdx.x * stretch, slice.end), end = min(begin + stretch, slice.end);
    double held = 0.0;
    for (int g = begin; g < end; g++) {
        row.eight(g, x);
        for (int i = 0; i < 8; i++) held += (double)expf(x[i] - whole);
    }
    Sums sums = block_sums(held, shared);
    // the slice's share was another sum: this one may end before it
    wanted = fmin(wanted, nextafter(sums.all, 0.0));
    if (wanted < sums.before || wanted >= sums.with) return;
    // the first whose running sum passes what is wanted, or the last there is, if rounding keeps it below
    int token = -1;
    float logp = 0.0f;
    double running = sums.before;
    for (int g = begin; g < end; g++) {
        row.eight(g, x);
        for (int i = 0; i < 8; i++) {
            float its = expf(x[i] - whole);
            if (its == 0.0f || (token >= 0 && running > wanted)) continue;
            running += (double)its;
            token = g * 8 + i;
            logp = x[i] - whole;
        }
    }
    drawn[2 * number] = token;
    drawn[2 * number + 1] = logp;
}
