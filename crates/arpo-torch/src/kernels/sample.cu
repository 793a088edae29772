// From logits to tokens: temperature, forbidden tokens, log-softmax and sampling, for which libtorch needs fifteen
// kernels. Every row's vocabulary is split into slices: `sum_slices` has one block per slice, because the exponentials
// of 152 064 logits take a single multiprocessor a hundredth of a whole decoding step; `sample_tokens` then scans one
// slice of each row.

// Constants of the launches: THREADS of a block, SLICES of a row (one lane of a warp each), MAX_ROWS per launch (their
// parameters are passed by value).
#define FORBIDDEN (-1e30f)  // a logit low enough that its probability is exactly 0
#define NEGLIGIBLE 1e-37    // a slice with less probability may hold only tokens whose probability is 0 in f32

struct Rows {
    float temperature[MAX_ROWS];
    int forced[MAX_ROWS];       // the token to take instead of sampling, or -1
    double uniform[MAX_ROWS];   // uniform in [0, 1)
};

struct Row {
    const Bf16x8 *logits;
    const unsigned char *forbidden;     // a bit for each token, up to the last forbidden one
    int forbidden_groups;
    float temperature;

    __device__ __forceinline__ void scaled_logits(int g, float *x) const {
        Bf16x8 group = logits[g];
        u32 bits = g < forbidden_groups ? forbidden[g] : 0;
        for (int i = 0; i < 8; i++) x[i] = bits >> i & 1 ? FORBIDDEN : to_f32(group.at[i]) / temperature;
    }
};

// Groups of eight tokens.
struct Slice {
    int begin, end;
    __device__ __forceinline__ Slice(int index, int groups) {
        int each = (groups + SLICES - 1) / SLICES;
        begin = min(index * each, groups);
        end = min(begin + each, groups);
    }
};

// A slice's sum of exponentials, relative to its largest logit.
struct alignas(16) SliceSum { double max_logit, sum; };

struct PrefixSums { double exclusive, inclusive, total; };

// Prefix sums over the lanes of a warp. They are added serially, so that the inclusive sum of one lane is bit for bit
// the exclusive sum of the next.
__device__ __forceinline__ PrefixSums warp_scan(double value) {
    PrefixSums scan{0.0, 0.0, 0.0};
    for (int lane = 0; lane < 32; lane++) {
        if (lane == (threadIdx.x & 31)) scan.exclusive = scan.total;
        scan.total += __shfl_sync(~0u, value, lane);
        if (lane == (threadIdx.x & 31)) scan.inclusive = scan.total;
    }
    return scan;
}

// The same over the threads of a block.
__device__ __forceinline__ PrefixSums block_scan(double value, double *shared) {
    int warp = threadIdx.x >> 5;
    PrefixSums scan = warp_scan(value);
    if ((threadIdx.x & 31) == 0) shared[warp] = scan.total;
    __syncthreads();
    double exclusive = 0.0, total = 0.0;
    for (int other = 0; other < THREADS / 32; other++) {
        if (other == warp) exclusive = total;
        total += shared[other];
    }
    return {exclusive + scan.exclusive, exclusive + scan.inclusive, total};
}

__device__ __forceinline__ float warp_max(float value) {
    for (int offset = 16; offset; offset >>= 1) value = fmaxf(value, __shfl_xor_sync(~0u, value, offset));
    return value;
}

// One block per slice of each row. `groups` is the vocabulary size divided by eight.
extern "C" __global__ void __launch_bounds__(THREADS)
    sum_slices(const Bf16x8 *logits, const unsigned char *forbidden, SliceSum *slices, int forbidden_groups, int groups,
               Rows rows) {
    __shared__ float maxima[THREADS / 32];
    __shared__ double shared[THREADS / 32];
    int index = blockIdx.x / SLICES;
    Slice slice(blockIdx.x % SLICES, groups);
    Row row{logits + (i64)index * groups, forbidden, forbidden_groups, rows.temperature[index]};
    float x[8], max_logit = FORBIDDEN, sum = 0.0f;
    for (int g = slice.begin + threadIdx.x; g < slice.end; g += THREADS) {
        row.scaled_logits(g, x);
        float new_max = max_logit;
        for (int i = 0; i < 8; i++) new_max = fmaxf(new_max, x[i]);
        sum *= expf(max_logit - new_max);
        for (int i = 0; i < 8; i++) sum += expf(x[i] - new_max);
        max_logit = new_max;
    }
    float slice_max = warp_max(max_logit);
    if ((threadIdx.x & 31) == 0) maxima[threadIdx.x >> 5] = slice_max;
    __syncthreads();
    for (int warp = 0; warp < THREADS / 32; warp++) slice_max = fmaxf(slice_max, maxima[warp]);
    double total = block_scan((double)sum * (double)expf(max_logit - slice_max), shared).total;
    if (threadIdx.x == 0) slices[blockIdx.x] = {slice_max, total};
}

// sampled: for each row the token and its log-probability. One block per row.
extern "C" __global__ void __launch_bounds__(THREADS)
    sample_tokens(const Bf16x8 *logits, const unsigned char *forbidden, const SliceSum *slices, double *sampled,
                  int forbidden_groups, int groups, Rows rows) {
    __shared__ double shared[THREADS / 32];
    int index = blockIdx.x, forced = rows.forced[index];
    Row row{logits + (i64)index * groups, forbidden, forbidden_groups, rows.temperature[index]};

    // the same in every warp, one slice per lane: the log-sum-exp of the row, and the slices' probabilities
    SliceSum mine = slices[index * SLICES + (threadIdx.x & 31)];
    float max_logit = warp_max((float)mine.max_logit);
    float lse = max_logit + (float)log(warp_scan(mine.sum * exp(mine.max_logit - max_logit)).total);
    double probability = mine.sum * exp(mine.max_logit - lse);
    PrefixSums slice_scan = warp_scan(probability < NEGLIGIBLE ? 0.0 : probability);
    float x[8];
    if (!(slice_scan.total > 0.0) || isinf(slice_scan.total)) {     // NaN or infinite logits
        if (threadIdx.x == 0) sampled[2 * index] = sampled[2 * index + 1] = nan("");
        return;
    }
    if (forced >= 0) {
        if (threadIdx.x > 0) return;
        row.scaled_logits(forced >> 3, x);
        sampled[2 * index] = forced;
        sampled[2 * index + 1] = x[forced & 7] - lse;
        return;
    }
    // below the total, also where rounding lifts a uniform close to 1
    double target = fmin(rows.uniform[index] * slice_scan.total, nextafter(slice_scan.total, 0.0));
    u32 owners = __ballot_sync(~0u, slice_scan.exclusive <= target && target < slice_scan.inclusive);
    int lane = __ffs(owners) - 1;
    target -= __shfl_sync(~0u, slice_scan.exclusive, lane);

    // prefix sums in the order of tokens: each thread has a contiguous part of the slice
    Slice slice(lane, groups);
    int span = (slice.end - slice.begin + THREADS - 1) / THREADS;
    int begin = min(slice.begin + (int)threadIdx.x * span, slice.end), end = min(begin + span, slice.end);
    double thread_sum = 0.0;
    for (int g = begin; g < end; g++) {
        row.scaled_logits(g, x);
        for (int i = 0; i < 8; i++) thread_sum += (double)expf(x[i] - lse);
    }
    PrefixSums scan = block_scan(thread_sum, shared);
    // the slice's probability was summed in another order: this total may be smaller
    target = fmin(target, nextafter(scan.total, 0.0));
    if (target < scan.exclusive || target >= scan.inclusive) return;
    // the first token whose prefix sum passes the target, or the last one with a probability if rounding keeps it below
    int token = -1;
    float logp = 0.0f;
    double running = scan.exclusive;
    for (int g = begin; g < end; g++) {
        row.scaled_logits(g, x);
        for (int i = 0; i < 8; i++) {
            float p = expf(x[i] - lse);
            if (p == 0.0f || (token >= 0 && running > target)) continue;
            running += (double)p;
            token = g * 8 + i;
            logp = x[i] - lse;
        }
    }
    sampled[2 * index] = token;
    sampled[2 * index + 1] = logp;
}
