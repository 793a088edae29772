// From logits to tokens: temperature, forbidden tokens, the logarithm of the distribution and a draw from it, which
// libtorch makes of fifteen passes. A block for each row.

#define THREADS 1024
#define MOST_ROWS 64        // of a launch: how they are drawn goes along with it
#define FORBIDDEN (-1e30f)  // low enough that its probability is exactly 0

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

struct Sums { double before, with, all; };

// The sums of the threads before this one, of those and this one, and of all. They are added one after the other, so that
// one thread ends to the bit where the next begins.
__device__ __forceinline__ Sums running_sums(double value, double *shared) {
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    double in_warp = 0.0;
    for (int other = 0; other < 32; other++) {
        double its = __shfl_sync(~0u, value, other);
        if (other < lane) in_warp += its;
    }
    if (lane == 31) shared[warp] = in_warp + value;
    __syncthreads();
    double before = 0.0, all = 0.0;
    for (int other = 0; other < THREADS / 32; other++) {
        if (other == warp) before = all;
        all += shared[other];
    }
    return {before + in_warp, before + (in_warp + value), all};
}

// drawn: for each row the token and its log-probability. `groups` is eighths of the vocabulary.
extern "C" __global__ void __launch_bounds__(THREADS)
    draw_tokens(const Eight *logits, const unsigned char *forbidden, double *drawn, int forbidden_groups, int groups,
                Rows rows) {
    __shared__ float tops[THREADS / 32];
    __shared__ double shared[THREADS / 32];
    int number = blockIdx.x;
    Row row{logits + (i64)number * groups, forbidden, forbidden_groups, rows.temperature[number]};

    // the logarithm of the sum of exponentials
    float x[8], top = FORBIDDEN, sum = 0.0f;
    for (int g = threadIdx.x; g < groups; g += THREADS) {
        row.eight(g, x);
        float next = top;
        for (int i = 0; i < 8; i++) next = fmaxf(next, x[i]);
        sum *= __expf(top - next);
        for (int i = 0; i < 8; i++) sum += expf(x[i] - next);
        top = next;
    }
    float whole_top = top;
    for (int offset = 16; offset; offset >>= 1) whole_top = fmaxf(whole_top, __shfl_xor_sync(~0u, whole_top, offset));
    if ((threadIdx.x & 31) == 0) tops[threadIdx.x >> 5] = whole_top;
    __syncthreads();
    for (int warp = 0; warp < THREADS / 32; warp++) whole_top = fmaxf(whole_top, tops[warp]);
    double all = running_sums((double)sum * (double)expf(top - whole_top), shared).all;
    float whole = whole_top + (float)log(all);
    __syncthreads();

    // running sums in the order of tokens: each thread has a stretch of them
    int stretch = (groups + THREADS - 1) / THREADS, begin = threadIdx.x * stretch, end = min(begin + stretch, groups);
    double mine = 0.0;
    for (int g = begin; g < end; g++) {
        row.eight(g, x);
        for (int i = 0; i < 8; i++) mine += (double)expf(x[i] - whole);
    }
    Sums sums = running_sums(mine, shared);
    if (!(sums.all > 0.0) || isinf(sums.all)) {     // logits that are no numbers
        if (threadIdx.x == 0) drawn[2 * number] = drawn[2 * number + 1] = nan("");
        return;
    }
    double wanted = rows.draw[number] * sums.all, running = sums.before;
    int dictated = rows.dictated[number];
    if (dictated >= 0 && threadIdx.x == 0) {
        row.eight(dictated >> 3, x);
        drawn[2 * number] = dictated;
        drawn[2 * number + 1] = x[dictated & 7] - whole;
    }
    if (dictated >= 0 || wanted < sums.before || wanted >= sums.with) return;
    // the first whose running sum passes what is wanted, or the last there is, if rounding keeps it below
    int token = -1;
    float logp = 0.0f;
    for (int g = begin; g < end; g++) {
        row.eight(g, x);
        for (int i = 0; i < 8; i++) {
            float share = expf(x[i] - whole);
            if (share == 0.0f || (token >= 0 && running > wanted)) continue;
            running += (double)share;
            token = g * 8 + i;
            logp = x[i] - whole;
        }
    }
    drawn[2 * number] = token;
    drawn[2 * number + 1] = logp;
}
