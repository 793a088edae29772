// Paged attention and the combination of its chunks, by `paged.cu`, compared with the same in f64: sequences of several
// lengths in shuffled pages, with NaN past their ends. And what is written into pages: keys, normed and rotated, and values.

#include "chip.h"
#include "kernel.cu"

struct Case { int kv_heads, group, page_tokens, chunk_tokens; std::vector<int> lengths; };

static std::mt19937 generator(11);

static bf16 *random_values(size_t count) {
    std::normal_distribution<float> normal;
    bf16 *values = allocate<bf16>(count);
    for (size_t i = 0; i < count; i++) values[i] = rounded(normal(generator));
    return values;
}

static bool attends_correctly(const Case &test) {
    int sequences = test.lengths.size(), longest = *std::max_element(test.lengths.begin(), test.lengths.end());
    int heads = test.kv_heads * test.group, table_width = (longest + test.page_tokens - 1) / test.page_tokens;
    int chunks = (longest + test.chunk_tokens - 1) / test.chunk_tokens, pages = sequences * table_width;
    size_t cache = (size_t)pages * test.kv_heads * test.page_tokens * WIDTH;
    bf16 *q = random_values(sequences * heads * WIDTH), *keys = random_values(cache), *values = random_values(cache);
    int *table = allocate<int>(pages), *lengths = allocate<int>(sequences);
    for (int i = 0; i < pages; i++) table[i] = i;
    std::shuffle(table, table + pages, generator);
    std::copy(test.lengths.begin(), test.lengths.end(), lengths);
    auto offset = [&](int sequence, int token, int kv_head) {
        size_t page = table[sequence * table_width + token / test.page_tokens];
        return ((page * test.kv_heads + kv_head) * test.page_tokens + token % test.page_tokens) * WIDTH;
    };
    for (int sequence = 0; sequence < sequences; sequence++)
        for (int token = lengths[sequence]; token < table_width * test.page_tokens; token++)
            for (int kv_head = 0; kv_head < test.kv_heads; kv_head++)
                for (int i = 0; i < WIDTH; i++)
                    keys[offset(sequence, token, kv_head) + i] = values[offset(sequence, token, kv_head) + i] = 0x7fc0;

    float *partial = allocate<float>((size_t)sequences * heads * chunks * PARTIAL);
    bf16 *y = allocate<bf16>(sequences * heads * WIDTH);
    bool passed = launch(sequences * test.kv_heads * chunks, WARPS * 32, 0, [&] {
        paged_attention(q, keys, values, table, lengths, partial, table_width, test.page_tokens, test.kv_heads, test.group, chunks,
                        test.chunk_tokens, 1.44269504f / sqrtf(WIDTH));
    });
    passed &= launch(sequences * heads, SLICES * WIDTH, 0,
                     [&] { paged_combine(partial, lengths, y, heads, chunks, test.chunk_tokens); });
    double max_error = 0;
    for (int row = 0; row < sequences * heads; row++) {
        int sequence = row / heads, kv_head = row % heads / test.group;
        std::vector<double> output(WIDTH);
        double denominator = 0;
        for (int token = 0; token < lengths[sequence]; token++) {
            size_t first = offset(sequence, token, kv_head);
            double score = 0;
            for (int i = 0; i < WIDTH; i++) score += (double)to_f32(q[row * WIDTH + i]) * to_f32(keys[first + i]);
            double probability = exp(score / sqrt(WIDTH));
            denominator += probability;
            for (int i = 0; i < WIDTH; i++) output[i] += probability * to_f32(values[first + i]);
        }
        for (int i = 0; i < WIDTH; i++) {
            double difference = fabs(to_f32(y[row * WIDTH + i]) - output[i] / denominator);
            passed &= difference < 0.02;      // probabilities and results are bf16; also false for NaN
            max_error = fmax(max_error, difference);
        }
    }
    printf("attention of %d sequences, %d query heads per kv head, pages of %d, %d chunks: max error %.4f: %s\n", sequences, test.group,
           test.page_tokens, chunks, max_error, passed ? "passed" : "FAILED");
    fflush(stdout);
    return passed;
}

static bool pages_are_written(int heads, int kv_heads, int half, bool norms) {
    const int tokens = 5, pages = 3, page_tokens = 16, width = 2 * half, total = heads + 2 * kv_heads;
    const float epsilon = 1e-6;
    bf16 *qkv = random_values(tokens * total * width), *weights = random_values(2 * width), *q = allocate<bf16>(tokens * heads * width);
    bf16 *keys = allocate<bf16>(pages * kv_heads * page_tokens * width), *values = allocate<bf16>(pages * kv_heads * page_tokens * width);
    float *cosine = allocate<float>(tokens * half), *sine = allocate<float>(tokens * half);
    i64 *page_of = allocate<i64>(tokens), *offset_of = allocate<i64>(tokens);
    for (int token = 0; token < tokens; token++) page_of[token] = token * 2 % pages, offset_of[token] = token * 7 % page_tokens;
    for (int i = 0; i < tokens * half; i++) cosine[i] = cosf(i), sine[i] = sinf(i);
    bool passed = launch(tokens, 128, 0, [&] {
        rotary_into_pages(qkv, cosine, sine, norms ? weights : nullptr, weights + width, q, keys, values, page_of, offset_of, heads,
                          kv_heads, half, page_tokens, epsilon);
    });
    double max_error = 0;
    for (int token = 0; token < tokens; token++)
        for (int head = 0; head < total; head++) {
            bool rotates = head < heads + kv_heads;
            const bf16 *in = qkv + (token * total + head) * width, *weight = weights + (head < heads ? 0 : width), *out;
            size_t slot = page_of[token] * kv_heads * page_tokens + offset_of[token];
            if (head < heads) out = q + (token * heads + head) * width;
            else if (rotates) out = keys + (slot + (head - heads) * page_tokens) * width;
            else out = values + (slot + (head - heads - kv_heads) * page_tokens) * width;
            double squares = 0;
            for (int i = 0; i < width; i++) squares += (double)to_f32(in[i]) * to_f32(in[i]) / width;
            auto normed = [&](int i) { return norms ? to_f32(in[i]) / sqrt(squares + epsilon) * to_f32(weight[i]) : to_f32(in[i]); };
            for (int i = 0; i < width; i++) {
                double c = cosine[token * half + i % half], s = sine[token * half + i % half];
                double rotated = normed(i) * c + (i < half ? -s : s) * normed((i + half) % width);
                double difference = fabs(to_f32(out[i]) - (rotates ? rotated : to_f32(in[i])));
                passed &= difference < 0.06;      // values of up to 10 are rounded to bf16 three times; also false for NaN
                max_error = fmax(max_error, difference);
            }
        }
    printf("pages of %d + 2 x %d heads of %d%s: max error %.4f: %s\n", heads, kv_heads, width, norms ? ", normed" : "", max_error,
           passed ? "passed" : "FAILED");
    fflush(stdout);
    return passed;
}

int main() {
    init_memory(64 << 20);
    bool passed = true;
    for (bool norms : {false, true}) {
        passed &= pages_are_written(6, 2, 24, norms);
        passed &= pages_are_written(4, 1, 64, norms);
    }
    for (const Case &test : {
             Case{1, 1, 16, 64, {1}},
             Case{2, 3, 16, 64, {5, 200}},          // chunks beyond the end of a shorter sequence
             Case{1, 8, 64, 320, {701}},            // several tiles per warp
         })
        passed &= attends_correctly(test);
    return !passed;
}
