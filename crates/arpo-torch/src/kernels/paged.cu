// Paged attention for decoding: one query token per sequence over keys and values in pages.
//
// Memory bound: every key and value is read once, by one warp, straight into the register layout of the tensor cores
// (`tile.cu`).
//
// A sequence is split into chunks, one block each (flash decoding); `paged_combine` merges the chunks' partial results.

// WARPS and SLICES are constants of the launches.

// Splits a fused qkv projection, norms the heads of queries and keys if weights are given, applies RoPE to them, and writes
// keys and values into their pages. One block per token, one warp per head, at most 32 at a time.
extern "C" __global__ void __launch_bounds__(1024)
    rotary_into_pages(const bf16 *qkv, const float *cosine, const float *sine, const bf16 *q_weight,
                      const bf16 *k_weight, bf16 *q, bf16 *keys, bf16 *values, const i64 *pages, const i64 *offsets,
                      int heads, int kv_heads, int half, int page_tokens, float epsilon) {
    i64 token = blockIdx.x;
    int total_heads = heads + 2 * kv_heads, width = 2 * half, lane = threadIdx.x & 31;
    i64 first = pages[token] * kv_heads * page_tokens + offsets[token];
    for (int head = threadIdx.x >> 5; head < total_heads; head += blockDim.x >> 5) {
        const bf16 *in = qkv + (token * total_heads + head) * width, *weight = nullptr;
        bool rotates = head < heads + kv_heads;
        float scale = 1.0f;
        if (q_weight && rotates) {
            weight = head < heads ? q_weight : k_weight;
            float squares = 0.0f;
            for (int i = lane; i < width; i += 32) { float x = to_f32(in[i]); squares += x * x; }
            for (int offset = 16; offset; offset >>= 1) squares += __shfl_xor_sync(~0u, squares, offset);
            scale = rsqrtf(squares / (float)width + epsilon);
        }
        bf16 *out;
        if (head < heads) out = q + (token * heads + head) * width;
        else if (rotates) out = keys + (first + (i64)(head - heads) * page_tokens) * width;
        else out = values + (first + (i64)(head - heads - kv_heads) * page_tokens) * width;
        for (int i = lane; i < half; i += 32) {
            bf16 real = in[i], imaginary = in[half + i];
            if (weight) {
                real = normed(real, scale, weight[i]);
                imaginary = normed(imaginary, scale, weight[half + i]);
            }
            if (rotates) {
                float c = cosine[token * half + i], s = sine[token * half + i];
                float a = to_f32(real), b = to_f32(imaginary);
                real = to_bf16(a * c - b * s);
                imaginary = to_bf16(b * c + a * s);
            }
            out[i] = real;
            out[half + i] = imaginary;
        }
    }
}

// partial: a partial result for every (sequence, head, chunk).
extern "C" __global__ void __launch_bounds__(WARPS * 32)
    paged_attention(const bf16 *q, const bf16 *keys, const bf16 *values, const int *table, const int *lengths,
                    float *partial, int table_width, int page_tokens, int kv_heads, int group, int chunks,
                    int chunk_tokens, float scale) {
    __shared__ float warp_partials[WARPS * WARP_PARTIAL];
    int chunk = blockIdx.x % chunks, kv_head = blockIdx.x / chunks % kv_heads;
    int sequence = blockIdx.x / chunks / kv_heads;
    int begin = chunk * chunk_tokens, end = min(lengths[sequence], begin + chunk_tokens);
    if (begin >= end) return;
    int warp = threadIdx.x >> 5;
    i64 first_head = (i64)sequence * kv_heads * group + kv_head * group;

    Attention attention(q + first_head * WIDTH, group);
    for (int base = begin + warp * TILE; base < end; base += WARPS * TILE) {
        int page = table[(i64)sequence * table_width + base / page_tokens];
        i64 first = (((i64)page * kv_heads + kv_head) * page_tokens + base % page_tokens) * WIDTH;
        u32 probability[2];
        Keys tile_keys(keys + first);
        Values tile_values(values + first, end - base);
        attention.score(tile_keys, end - base, scale, probability);
        attention.add(tile_values, probability);
    }
    attention.store(warp_partials + warp * WARP_PARTIAL);
    __syncthreads();
    combine_warps<WARPS>(warp_partials, group, partial + (first_head * chunks + chunk) * PARTIAL, chunks * PARTIAL);
}

// One block per (sequence, head), with SLICES x WIDTH threads: each slice accumulates every SLICES-th chunk, one thread
// per value. Done serially, many chunks would take as long as attention itself.
extern "C" __global__ void __launch_bounds__(SLICES * WIDTH)
    paged_combine(const float *partial, const int *lengths, bf16 *y, int heads, int chunks, int chunk_tokens) {
    __shared__ float outputs[SLICES][WIDTH], denominators[SLICES], maxima[SLICES * WIDTH / 32];
    int used = (lengths[blockIdx.x / heads] + chunk_tokens - 1) / chunk_tokens;
    int slice = threadIdx.x / WIDTH, column = threadIdx.x % WIDTH;
    const float *from = partial + (i64)blockIdx.x * chunks * PARTIAL;
    float row_max = MASKED;
    for (int c = threadIdx.x; c < used; c += SLICES * WIDTH) row_max = fmaxf(row_max, from[c * PARTIAL + WIDTH]);
    for (int offset = 16; offset; offset >>= 1) row_max = fmaxf(row_max, __shfl_xor_sync(~0u, row_max, offset));
    if ((threadIdx.x & 31) == 0) maxima[threadIdx.x >> 5] = row_max;
    __syncthreads();
    for (int w = 0; w < SLICES * WIDTH / 32; w++) row_max = fmaxf(row_max, maxima[w]);
    float denominator = 0.0f, output = 0.0f;
#pragma unroll 4
    for (int c = slice; c < used; c += SLICES) {
        const float *chunk = from + (i64)c * PARTIAL;
        float scale = exp2f(chunk[WIDTH] - row_max);
        denominator += scale * chunk[WIDTH + 1];
        output += scale * chunk[column];
    }
    outputs[slice][column] = output;
    if (column == 0) denominators[slice] = denominator;
    __syncthreads();
    if (slice > 0) return;
    for (int other = 1; other < SLICES; other++) {
        output += outputs[other][column];
        denominator += denominators[other];
    }
    y[(i64)blockIdx.x * WIDTH + column] = to_bf16(output / denominator);
}

// Makes the pages of a sequence contiguous: [kv heads, pages * tokens, width]. One block per page and head.
extern "C" __global__ void gather_pages(const U32x4 *keys, const U32x4 *values, const i64 *pages, U32x4 *k, U32x4 *v,
                                        int count, int kv_heads, int page_vectors) {
    int page = blockIdx.x % count, head = blockIdx.x / count;
    i64 from = (pages[page] * kv_heads + head) * page_vectors, to = ((i64)head * count + page) * page_vectors;
    for (int i = threadIdx.x; i < page_vectors; i += blockDim.x) {
        k[to + i] = keys[from + i];
        v[to + i] = values[from + i];
    }
}

// Merges attention over a prefix and over a suffix of the keys by their log-sum-exp: [tokens, heads, width]. One block
// per token; strides are in units of eight values.
extern "C" __global__ void merge_attention_states(const U32x4 *prefix, const U32x4 *suffix, const float *prefix_lse,
                                                  const float *suffix_lse, U32x4 *y, int heads, int head_vectors,
                                                  i64 prefix_head, i64 prefix_token, i64 suffix_head, i64 suffix_token,
                                                  i64 prefix_lse_head, i64 suffix_lse_head) {
    i64 token = blockIdx.x;
    for (int at = threadIdx.x; at < heads * head_vectors; at += blockDim.x) {
        int head = at / head_vectors, i = at % head_vectors;
        float difference = suffix_lse[head * suffix_lse_head + token] - prefix_lse[head * prefix_lse_head + token];
        float prefix_weight = 1.0f / (1.0f + __expf(difference));
        U32x4 a = prefix[head * prefix_head + token * prefix_token + i];
        U32x4 b = suffix[head * suffix_head + token * suffix_token + i];
        for (int j = 0; j < 4; j++) {
            float low = lower(b.at[j]), high = upper(b.at[j]);
            low += prefix_weight * (lower(a.at[j]) - low);
            high += prefix_weight * (upper(a.at[j]) - high);
            a.at[j] = to_bf16(low) | (u32)to_bf16(high) << 16;
        }
        y[token * heads * head_vectors + at] = a;
    }
}
