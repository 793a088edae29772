// Attention of one query token per sequence over keys and values that lie in pages.
//
// Memory bound: every key and value is read once, by one warp, straight into the registers that the matrix units
// take. The query heads that share a key head are the rows of one product. For that the 128 numbers of a head are
// taken in an order that suits 16-byte loads; a sum does not mind.
//
// A sequence is cut into chunks, a block for each; `paged_combine` puts the chunks' results together.

#define WIDTH 128
#define WARPS 4
#define TILE 16
#define SLICES 8
#define NONE (-1e30f)

// 16 x 16 times 16 x 8, rows of the first and columns of the second in pairs of bf16.
__device__ __forceinline__ void multiply(float *c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

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

// partial: for every (sequence, head, chunk) 128 sums, then the exponent they are relative to and their weight.
extern "C" __global__ void __launch_bounds__(WARPS * 32)
    paged_attention(const bf16 *q, const bf16 *keys, const bf16 *values, const int *table, const int *lengths,
                    float *partial, int table_width, int page_tokens, int shared_heads, int group, int chunks,
                    int chunk_tokens, float scale) {
    __shared__ float sums[WARPS][8][WIDTH];
    __shared__ float exponents[WARPS][8], weights[WARPS][8];
    int chunk = blockIdx.x % chunks, shared_head = blockIdx.x / chunks % shared_heads;
    int sequence = blockIdx.x / chunks / shared_heads;
    int begin = chunk * chunk_tokens, end = min(lengths[sequence], begin + chunk_tokens);
    if (begin >= end) return;
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    int heads = shared_heads * group;

    Words query[4] = {};
    if (g < group) {
        const bf16 *row = q + ((i64)sequence * heads + shared_head * group + g) * WIDTH;
        for (int b = 0; b < 4; b++) query[b] = *(const Words *)(row + b * 32 + t * 8);
    }
    float out[2][4][4] = {};                // [half][pair of numbers][result of a product]
    float exponent = NONE, weight = 0.0f;   // of query g
    for (int base = begin + warp * TILE; base < end; base += WARPS * TILE) {
        int page = table[(i64)sequence * table_width + base / page_tokens];
        i64 first = (((i64)page * shared_heads + shared_head) * page_tokens + base % page_tokens) * WIDTH;
        Words key[2][4], value[2][4];
        for (int j = 0; j < 2; j++)
            for (int b = 0; b < 4; b++)
                key[j][b] = *(const Words *)(keys + first + (j * 8 + g) * WIDTH + b * 32 + t * 8);
        for (int h = 0; h < 2; h++)
            for (int r = 0; r < 4; r++)     // tokens 2t, 2t + 1, 2t + 8, 2t + 9
                value[h][r] = *(const Words *)(values + first + (t * 2 + (r & 1) + (r >> 1) * 8) * WIDTH + h * 64 + g * 8);
        if (base + TILE > end)              // what lies behind the end may be no number
            for (int r = 0; r < 4; r++)
                if (base + t * 2 + (r & 1) + (r >> 1) * 8 >= end) value[0][r] = value[1][r] = Words{};

        float score[2][4] = {};             // [tile of 8 keys][keys 2t, 2t + 1 of query g, then of nobody]
        for (int j = 0; j < 2; j++)
            for (int b = 0; b < 4; b++) {
                multiply(score[j], query[b].at[0], 0, query[b].at[1], 0, key[j][b].at[0], key[j][b].at[1]);
                multiply(score[j], query[b].at[2], 0, query[b].at[3], 0, key[j][b].at[2], key[j][b].at[3]);
            }
        float largest = NONE;
        for (int j = 0; j < 2; j++)
            for (int i = 0; i < 2; i++) {
                bool there = base + j * 8 + t * 2 + i < end;
                score[j][i] = there ? score[j][i] * scale : NONE;
                largest = fmaxf(largest, score[j][i]);
            }
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
        if (__any_sync(~0u, largest > exponent)) {
            float next = fmaxf(exponent, largest), shrink = exp2f(exponent - next);
            exponent = next;
            weight *= shrink;
            // a product's columns are queries 2t and 2t + 1
            float first_shrink = __shfl_sync(~0u, shrink, t * 8), second_shrink = __shfl_sync(~0u, shrink, t * 8 + 4);
            for (int h = 0; h < 2; h++)
                for (int i = 0; i < 4; i++) {
                    out[h][i][0] *= first_shrink; out[h][i][1] *= second_shrink;
                    out[h][i][2] *= first_shrink; out[h][i][3] *= second_shrink;
                }
        }
        u32 probability[2];
        for (int j = 0; j < 2; j++) {
            float p0 = exp2f(score[j][0] - exponent), p1 = exp2f(score[j][1] - exponent);
            weight += p0 + p1;
            probability[j] = narrow(p0) | (u32)narrow(p1) << 16;
        }
        for (int h = 0; h < 2; h++)
            for (int i = 0; i < 4; i++) {
                u32 a = value[h][0].at[i], b = value[h][1].at[i], c = value[h][2].at[i], d = value[h][3].at[i];
                multiply(out[h][i], __byte_perm(a, b, 0x5410), __byte_perm(a, b, 0x7632),
                         __byte_perm(c, d, 0x5410), __byte_perm(c, d, 0x7632), probability[0], probability[1]);
            }
    }
    weight += __shfl_xor_sync(~0u, weight, 1);
    weight += __shfl_xor_sync(~0u, weight, 2);
    if (t == 0) {
        exponents[warp][g] = exponent;
        weights[warp][g] = weight;
    }
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < 4; i++)
            for (int r = 0; r < 4; r++)
                sums[warp][t * 2 + (r & 1)][h * 64 + g * 8 + i * 2 + (r >> 1)] = out[h][i][r];
    __syncthreads();
    for (int member = 0; member < group; member++) {
        float top = NONE, total = 0.0f, sum = 0.0f;
        for (int w = 0; w < WARPS; w++) top = fmaxf(top, exponents[w][member]);
        for (int w = 0; w < WARPS; w++) {
            float share = exp2f(exponents[w][member] - top);
            total += share * weights[w][member];
            sum += share * sums[w][member][threadIdx.x];
        }
        i64 place = ((i64)sequence * heads + shared_head * group + member) * chunks + chunk;
        float *to = partial + place * (WIDTH + 2);
        to[threadIdx.x] = sum;
        if (threadIdx.x == 0) {
            to[WIDTH] = top;
            to[WIDTH + 1] = total;
        }
    }
}

// A block for each (sequence, head). Its threads are SLICES of WIDTH: each slice adds up every SLICES-th chunk, a thread
// for each number, because one after the other many chunks would take as long as attention itself.
extern "C" __global__ void __launch_bounds__(SLICES * WIDTH)
    paged_combine(const float *partial, const int *lengths, bf16 *y, int heads, int chunks, int chunk_tokens) {
    __shared__ float sums[SLICES][WIDTH], totals[SLICES], tops[SLICES * WIDTH / 32];
    int used = (lengths[blockIdx.x / heads] + chunk_tokens - 1) / chunk_tokens;
    int slice = threadIdx.x / WIDTH, number = threadIdx.x % WIDTH;
    const float *from = partial + (i64)blockIdx.x * chunks * (WIDTH + 2);
    float top = NONE;
    for (int c = threadIdx.x; c < used; c += SLICES * WIDTH) top = fmaxf(top, from[c * (WIDTH + 2) + WIDTH]);
    for (int offset = 16; offset; offset >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, offset));
    if ((threadIdx.x & 31) == 0) tops[threadIdx.x >> 5] = top;
    __syncthreads();
    for (int w = 0; w < SLICES * WIDTH / 32; w++) top = fmaxf(top, tops[w]);
    float total = 0.0f, sum = 0.0f;
#pragma unroll 4
    for (int c = slice; c < used; c += SLICES) {
        const float *chunk = from + (i64)c * (WIDTH + 2);
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
