// A token by the single kernel of `token.cu`, beside plain arithmetic with the same roundings: logits, and the key and
// value that it leaves in their pages.

#include "chip.h"
#include "kernel.cu"

typedef std::vector<float> Numbers;

struct Case { int layers, hidden, inner, heads, shared_heads, vocabulary, page_tokens, past, blocks; };

static std::mt19937 source(7);

static bf16 *random_numbers(size_t count, float scale, float shift = 0.0f) {
    std::normal_distribution<float> normal;
    bf16 *numbers = take<bf16>(count);
    for (size_t i = 0; i < count; i++) numbers[i] = rounded(shift + scale * normal(source));
    return numbers;
}

static float round_to_bf16(float x) { return wide(rounded(x)); }

static Numbers normed(const Numbers &x, const bf16 *weight, float epsilon) {
    double squares = 0;
    for (float number : x) squares += (double)number * number;
    float scale = 1 / sqrtf(squares / x.size() + epsilon);
    Numbers y(x);
    for (size_t i = 0; i < x.size(); i++) y[i] = round_to_bf16(round_to_bf16(x[i] * scale) * wide(weight[i]));
    return y;
}

static Numbers times(const bf16 *weights, int rows, const Numbers &x) {
    Numbers y;
    for (int row = 0; row < rows; row++) {
        double sum = 0;
        for (size_t i = 0; i < x.size(); i++) sum += (double)wide(weights[row * x.size() + i]) * x[i];
        y.push_back(sum);
    }
    return y;
}

static size_t place(const Case &of, const int *table, int token, int head, int i) {
    size_t page = table[token / of.page_tokens];
    return ((page * of.shared_heads + head) * of.page_tokens + token % of.page_tokens) * WIDTH + i;
}

// Attention of the token's turned queries over what is in the pages, and over its own key and value.
static Numbers attended(const Case &of, const Block &block, const int *table, const Numbers &qkv) {
    int group = of.heads / of.shared_heads;
    Numbers y;
    for (int head = 0; head < of.heads; head++) {
        int shared = head / group;
        const float *q = &qkv[head * WIDTH], *k = &qkv[(of.heads + shared) * WIDTH], *v = k + of.shared_heads * WIDTH;
        auto key = [&](int token, int i) { return token == of.past ? k[i] : wide(block.keys[place(of, table, token, shared, i)]); };
        auto value = [&](int token, int i) { return token == of.past ? v[i] : wide(block.values[place(of, table, token, shared, i)]); };
        std::vector<double> shares(of.past + 1);
        double all = 0;
        for (int token = 0; token <= of.past; token++) {
            double score = 0;
            for (int i = 0; i < WIDTH; i++) score += (double)q[i] * key(token, i);
            all += shares[token] = exp(score / sqrt(WIDTH));
        }
        for (int i = 0; i < WIDTH; i++) {
            double sum = 0;
            for (int token = 0; token <= of.past; token++) sum += shares[token] * value(token, i);
            y.push_back(round_to_bf16(sum / all));
        }
    }
    return y;
}

static bool computed_well(const Case &of) {
    int queries = of.heads * WIDTH, all_heads = queries + 2 * of.shared_heads * WIDTH, pages = of.past / of.page_tokens + 3;
    size_t hidden = of.hidden, cache = (size_t)pages * of.shared_heads * of.page_tokens * WIDTH;
    Block *blocks = take<Block>(of.layers);
    for (int layer = 0; layer < of.layers; layer++)
        blocks[layer] = {random_numbers(hidden, 0.1, 1), random_numbers(all_heads * hidden, 0.05), random_numbers(all_heads, 0.1),
                         random_numbers(hidden * queries, 0.05), random_numbers(hidden, 0.1, 1),
                         random_numbers(2 * of.inner * hidden, 0.05), random_numbers(hidden * of.inner, 0.02),
                         random_numbers(cache, 1), random_numbers(cache, 1)};
    float *frequencies = take<float>(WIDTH / 2);
    i64 *axes = take<i64>(WIDTH / 2);
    for (int i = 0; i < WIDTH / 2; i++) frequencies[i] = powf(1e6f, -i / 64.0f), axes[i] = i < 16 ? 0 : i < 40 ? 1 : 2;

    // room in shared memory, as token_sizes.rs counts it
    auto pieces = [](int width) {
        int count = (width * 2 + PIECE - 1) / PIECE;
        while (WARPS % count) count++;
        return count;
    };
    auto sums = [&](int rows, int width) { return (rows + of.blocks - 1) / of.blocks * pieces(width); };
    int most = max({sums(all_heads, of.hidden), sums(of.hidden, queries), 2 * sums(of.inner, of.hidden),
                    sums(of.hidden, of.inner), sums(of.vocabulary, of.hidden)});
    int room = (max(of.hidden * 2 + most * 4, WARPS * LEFT * 4) + 15) / 16 * 16;
    Model model{blocks, random_numbers(hidden, 0.1, 1), random_numbers(of.vocabulary * hidden, 0.05), frequencies, axes,
                of.layers, of.hidden, of.inner, of.heads, of.shared_heads, of.vocabulary, of.page_tokens,
                room, 1e-6f, 1.44269504f / sqrtf(WIDTH)};
    size_t shared_bytes = WARPS * STAGES * PIECE + room + of.layers * sizeof(Block);

    int *table = take<int>(pages);
    for (int i = 0; i < pages; i++) table[i] = i;
    std::shuffle(table, table + pages, source);
    Token token{random_numbers(hidden, 1), table, of.past, {of.past, of.past / 2, of.past / 3}};
    int chunks = of.blocks / of.shared_heads + 1;
    u32 already = ~5u;      // so that it passes 0 on the way
    Between between{take<bf16>(all_heads), take<bf16>(queries), take<bf16>(hidden), take<bf16>(of.inner),
                    take<float>(of.heads * chunks * PARTIAL), take<bf16>(of.vocabulary), take<u32>(1), already};
    *between.met = already;

    Numbers x;
    std::vector<Numbers> left;      // keys and values of each layer
    for (int i = 0; i < of.hidden; i++) x.push_back(wide(token.embedded[i]));
    for (int layer = 0; layer < of.layers; layer++) {
        const Block &block = blocks[layer];
        Numbers qkv = times(block.qkv, all_heads, normed(x, block.norm1, model.epsilon));
        for (int i = 0; i < all_heads; i++) qkv[i] = round_to_bf16(qkv[i] + wide(block.qkv_bias[i]));
        for (int head = 0; head < of.heads + of.shared_heads; head++)
            for (int i = 0; i < WIDTH / 2; i++) {
                float angle = token.positions[axes[i]] * frequencies[i], c = cosf(angle), s = sinf(angle);
                float &real = qkv[head * WIDTH + i], &imaginary = qkv[head * WIDTH + WIDTH / 2 + i], a = real, b = imaginary;
                real = round_to_bf16(a * c - b * s);
                imaginary = round_to_bf16(b * c + a * s);
            }
        left.emplace_back(qkv.begin() + queries, qkv.end());
        Numbers out = times(block.out, of.hidden, attended(of, block, table, qkv));
        for (int i = 0; i < of.hidden; i++) x[i] = round_to_bf16(out[i] + x[i]);
        Numbers gate_up = times(block.gate_up, 2 * of.inner, normed(x, block.norm2, model.epsilon)), gated;
        for (int i = 0; i < of.inner; i++)
            gated.push_back(round_to_bf16(round_to_bf16(silu(round_to_bf16(gate_up[i]))) * round_to_bf16(gate_up[of.inner + i])));
        Numbers down = times(block.down, of.hidden, gated);
        for (int i = 0; i < of.hidden; i++) x[i] = round_to_bf16(down[i] + x[i]);
    }
    Numbers expected = times(model.head, of.vocabulary, normed(x, model.norm, model.epsilon));

    bool ended = launch(of.blocks, THREADS, shared_bytes, [&] { whole_token(model, token, between); });
    double error = 0, size = 0, apart = 0;
    for (int i = 0; i < of.vocabulary; i++) {
        error += pow(wide(between.logits[i]) - expected[i], 2);
        size += pow(expected[i], 2);
    }
    for (int layer = 0; layer < of.layers; layer++)
        for (int head = 0; head < of.shared_heads; head++)
            for (int i = 0; i < WIDTH; i++) {
                size_t at = place(of, table, of.past, head, i);
                const float *key = &left[layer][head * WIDTH + i], *value = key + of.shared_heads * WIDTH;
                apart = fmax(apart, fmax(fabs(wide(blocks[layer].keys[at]) - *key), fabs(wide(blocks[layer].values[at]) - *value)));
            }
    // an ulp of bf16 here and there, from sums in another order
    bool well = ended && sqrt(error / size) < 0.01 && apart < 0.1 && *between.met == already + 6 * of.layers * of.blocks;
    printf("a token, %d wide, %d tokens behind in pages of %d, %d blocks: %.5f of the logits' norm, keys and values %.4f: %s\n",
           of.hidden, of.past, of.page_tokens, of.blocks, sqrt(error / size), apart, well ? "right" : "WRONG");
    fflush(stdout);
    return well;
}

int main() {
    make_memory(256 << 20);
    bool well = true;
    for (const Case &of : {
             Case{2, 256, 512, 4, 2, 64, 16, 0, 4},         // nothing behind it
             Case{2, 264, 520, 4, 2, 61, 16, 5, 4},         // no whole units
             Case{2, 256, 512, 4, 2, 64, 16, 701, 4},       // several tiles for each warp
             Case{1, 256, 512, 14, 2, 64, 64, 16, 8},       // seven queries share a key
             Case{1, 256, 512, 4, 2, 64, 32, 100, 5},       // a block without keys
             Case{1, 64, 11008, 2, 1, 40, 16, 33, 2},       // rows of which the last piece is empty
             Case{1, 64, 64, 2, 2, 8, 16, 5300, 3},         // more tiles for each warp than it has threads
         })
        well &= computed_well(of);
    return !well;
}
