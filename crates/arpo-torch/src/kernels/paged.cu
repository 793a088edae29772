// Attention of one query token per sequence over keys and values that lie in pages.
//
// Memory bound: every key and value is read once, by one warp, straight into the registers that the matrix units
// take (`tile.cu`).
//
// A sequence is cut into chunks, a block for each; `paged_combine` puts the chunks' results together.

#define WARPS 4
#define SLICES 8

// Queries, keys and values apart, the first two turned to their places; keys and values go into their pages. A block
// for each token, a thread for pairs.
extern "C" __global__ void rotary_into_pages(const bf16 *qkv, const float *cosine, const float *sine, bf16 *q,
                                             bf16 *keys, bf16 *values, const i64 *pages, const i64 *places, int heads,
                                             int shared_heads, int half, int page_tokens) {
    i64 token = blockIdx.x;
    int all = heads + 2 * shared_heads, width = 2 * half;
    const bf16 *row = qkv + token * all * width;
    i64 first = pages[token] * shared_heads * page_tokens + places[token];
    for (int pair = threadIdx.x; pair < all * half; pair += blockDim.x) {
        int head = pair / half, i = pair % half;
        bf16 real = row[head * width + i], imaginary = row[head * width + half + i];
        bf16 *out;
        if (head < heads) out = q + (token * heads + head) * width;
        else if (head < heads + shared_heads) out = keys + (first + (i64)(head - heads) * page_tokens) * width;
        else out = values + (first + (i64)(head - heads - shared_heads) * page_tokens) * width;
        if (head < heads + shared_heads) {
            float c = cosine[token * half + i], s = sine[token * half + i], a = wide(real), b = wide(imaginary);
            real = narrow(a * c - b * s);
            imaginary = narrow(b * c + a * s);
        }
        out[i] = real;
        out[half + i] = imaginary;
    }
}

// partial: a result for every (sequence, head, chunk).
extern "C" __global__ void __launch_bounds__(WARPS * 32)
    paged_attention(const bf16 *q, const bf16 *keys, const bf16 *values, const int *table, const int *lengths,
                    float *partial, int table_width, int page_tokens, int shared_heads, int group, int chunks,
                    int chunk_tokens, float scale) {
    __shared__ float left[WARPS * LEFT];
    int chunk = blockIdx.x % chunks, shared_head = blockIdx.x / chunks % shared_heads;
    int sequence = blockIdx.x / chunks / shared_heads;
    int begin = chunk * chunk_tokens, end = min(lengths[sequence], begin + chunk_tokens);
    if (begin >= end) return;
    int warp = threadIdx.x >> 5;
    i64 first_head = (i64)sequence * shared_heads * group + shared_head * group;

    Attention attention(q + first_head * WIDTH, group);
    for (int base = begin + warp * TILE; base < end; base += WARPS * TILE) {
        int page = table[(i64)sequence * table_width + base / page_tokens];
        i64 first = (((i64)page * shared_heads + shared_head) * page_tokens + base % page_tokens) * WIDTH;
        u32 probability[2];
        Keys tile_keys(keys + first);
        Values tile_values(values + first, end - base);
        attention.score(tile_keys, end - base, scale, probability);
        attention.add(tile_values, probability);
    }
    attention.leave(left + warp * LEFT);
    __syncthreads();
    put_together<WARPS>(left, group, partial + (first_head * chunks + chunk) * PARTIAL, chunks * PARTIAL);
}

// A block for each (sequence, head). Its threads are SLICES of WIDTH: each slice adds up every SLICES-th chunk, a thread
// for each number, because one after the other many chunks would take as long as attention itself.
extern "C" __global__ void __launch_bounds__(SLICES * WIDTH)
    paged_combine(const float *partial, const int *lengths, bf16 *y, int heads, int chunks, int chunk_tokens) {
    __shared__ float sums[SLICES][WIDTH], totals[SLICES], tops[SLICES * WIDTH / 32];
    int used = (lengths[blockIdx.x / heads] + chunk_tokens - 1) / chunk_tokens;
    int slice = threadIdx.x / WIDTH, number = threadIdx.x % WIDTH;
    const float *from = partial + (i64)blockIdx.x * chunks * PARTIAL;
    float top = NONE;
    for (int c = threadIdx.x; c < used; c += SLICES * WIDTH) top = fmaxf(top, from[c * PARTIAL + WIDTH]);
    for (int offset = 16; offset; offset >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, offset));
    if ((threadIdx.x & 31) == 0) tops[threadIdx.x >> 5] = top;
    __syncthreads();
    for (int w = 0; w < SLICES * WIDTH / 32; w++) top = fmaxf(top, tops[w]);
    float total = 0.0f, sum = 0.0f;
#pragma unroll 4
    for (int c = slice; c < used; c += SLICES) {
        const float *chunk = from + (i64)c * PARTIAL;
        float share = exp2f(chunk[WIDTH] - top);
        total += share * chunk[WIDTH + 1];
        sum += share * chunk[number];
    }
    sums[slice][number] = sum;
    if (number == 0) totals[slice] = total;
    __syncthreads();
    if (slice > 0) return;
    for (int other = 1; other < SLICES; other++) {
        sum += sums[other][number];
        total += totals[other];
    }
    y[(i64)blockIdx.x * WIDTH + number] = narrow(sum / total);
}

// Pages of a sequence one behind the other, [shared heads, pages * tokens, width]. A block for each page and head.
extern "C" __global__ void gather_pages(const Words *keys, const Words *values, const i64 *pages, Words *k, Words *v,
                                        int count, int shared_heads, int page_words) {
    int number = blockIdx.x % count, head = blockIdx.x / count;
    i64 from = (pages[number] * shared_heads + head) * page_words, to = ((i64)head * count + number) * page_words;
    for (int i = threadIdx.x; i < page_words; i += blockDim.x) {
        k[to + i] = keys[from + i];
        v[to + i] = values[from + i];
    }
}

// Results of attention over older and over newer keys, each by its share of the whole sum: [tokens, heads, width]. A block
// for each token; strides are in eights of numbers.
extern "C" __global__ void attention_join(const Words *older, const Words *newer, const float *older_sums,
                                          const float *newer_sums, Words *y, int heads, int head_words, i64 older_head,
                                          i64 older_token, i64 newer_head, i64 newer_token, i64 older_sums_head,
                                          i64 newer_sums_head) {
    i64 token = blockIdx.x;
    for (int at = threadIdx.x; at < heads * head_words; at += blockDim.x) {
        int head = at / head_words, i = at % head_words;
        float less = newer_sums[head * newer_sums_head + token] - older_sums[head * older_sums_head + token];
        float share = 1.0f / (1.0f + __expf(less));
        Words a = older[head * older_head + token * older_token + i], b = newer[head * newer_head + token * newer_token + i];
        for (int j = 0; j < 4; j++) {
            float low = lower(b.at[j]), high = upper(b.at[j]);
            low += share * (lower(a.at[j]) - low);
            high += share * (upper(a.at[j]) - high);
            a.at[j] = narrow(low) | (u32)narrow(high) << 16;
        }
        y[token * heads * head_words + at] = a;
    }
}
