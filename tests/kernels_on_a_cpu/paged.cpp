// Attention over pages and its chunks put together, by `paged.cu`, beside the same in f64: sequences of several lengths in
// pages that lie anywhere, what is behind their ends being no numbers.

#include "chip.h"
#include "kernel.cu"

struct Case { int shared_heads, group, page_tokens, chunk_tokens; std::vector<int> lengths; };

static std::mt19937 source(11);

static bf16 *random_numbers(size_t count) {
    std::normal_distribution<float> normal;
    bf16 *numbers = take<bf16>(count);
    for (size_t i = 0; i < count; i++) numbers[i] = rounded(normal(source));
    return numbers;
}

static bool attended_well(const Case &of) {
    int sequences = of.lengths.size(), longest = *std::max_element(of.lengths.begin(), of.lengths.end());
    int heads = of.shared_heads * of.group, width = (longest + of.page_tokens - 1) / of.page_tokens;
    int chunks = (longest + of.chunk_tokens - 1) / of.chunk_tokens, pages = sequences * width;
    size_t cache = (size_t)pages * of.shared_heads * of.page_tokens * WIDTH;
    bf16 *q = random_numbers(sequences * heads * WIDTH), *keys = random_numbers(cache), *values = random_numbers(cache);
    int *table = take<int>(pages), *lengths = take<int>(sequences);
    for (int i = 0; i < pages; i++) table[i] = i;
    std::shuffle(table, table + pages, source);
    std::copy(of.lengths.begin(), of.lengths.end(), lengths);
    auto place = [&](int sequence, int token, int shared) {
        size_t page = table[sequence * width + token / of.page_tokens];
        return ((page * of.shared_heads + shared) * of.page_tokens + token % of.page_tokens) * WIDTH;
    };
    for (int sequence = 0; sequence < sequences; sequence++)
        for (int token = lengths[sequence]; token < width * of.page_tokens; token++)
            for (int shared = 0; shared < of.shared_heads; shared++)
                for (int i = 0; i < WIDTH; i++) keys[place(sequence, token, shared) + i] = values[place(sequence, token, shared) + i] = 0x7fc0;

    float *partial = take<float>((size_t)sequences * heads * chunks * PARTIAL);
    bf16 *y = take<bf16>(sequences * heads * WIDTH);
    bool well = launch(sequences * of.shared_heads * chunks, WARPS * 32, 0, [&] {
        paged_attention(q, keys, values, table, lengths, partial, width, of.page_tokens, of.shared_heads, of.group, chunks,
                        of.chunk_tokens, 1.44269504f / sqrtf(WIDTH));
    });
    well &= launch(sequences * heads, SLICES * WIDTH, 0,
                   [&] { paged_combine(partial, lengths, y, heads, chunks, of.chunk_tokens); });
    double apart = 0;
    for (int row = 0; row < sequences * heads; row++) {
        int sequence = row / heads, shared = row % heads / of.group;
        std::vector<double> sums(WIDTH);
        double all = 0;
        for (int token = 0; token < lengths[sequence]; token++) {
            size_t at = place(sequence, token, shared);
            double score = 0;
            for (int i = 0; i < WIDTH; i++) score += (double)wide(q[row * WIDTH + i]) * wide(keys[at + i]);
            double share = exp(score / sqrt(WIDTH));
            all += share;
            for (int i = 0; i < WIDTH; i++) sums[i] += share * wide(values[at + i]);
        }
        for (int i = 0; i < WIDTH; i++) {
            double difference = fabs(wide(y[row * WIDTH + i]) - sums[i] / all);
            well &= difference < 0.02;      // probabilities and results are bf16; also false for what is no number
            apart = fmax(apart, difference);
        }
    }
    printf("attention of %d sequences, %d queries to a key, pages of %d, %d chunks: %.4f apart: %s\n", sequences, of.group,
           of.page_tokens, chunks, apart, well ? "right" : "WRONG");
    fflush(stdout);
    return well;
}

int main() {
    make_memory(64 << 20);
    bool well = true;
    for (const Case &of : {
             Case{1, 1, 16, 64, {1}},
             Case{2, 3, 16, 64, {5, 200}},          // chunks that a shorter sequence does not have
             Case{1, 8, 64, 320, {701}},            // several tiles for each warp
         })
        well &= attended_well(of);
    return !well;
}
