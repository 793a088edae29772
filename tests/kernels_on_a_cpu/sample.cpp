// Tokens sampled by `sample.cu`, compared with the same in f64: also with a NaN logit, and with a forced token.

#include "chip.h"
#include "kernel.cu"

// Two tokens are forbidden, and all from `last` on within the first `groups` groups of eight.
static bool samples_correctly(int vocabulary, int last, int groups) {
    const double uniforms[] = {0.0, 0.25, 0.5, 0.999999, 1 - 1.0 / (1ull << 52), 0.3, 0.7};
    const int count = 7, nan_row = 5, forced_row = 6;
    std::mt19937 generator(3);
    std::normal_distribution<float> normal;
    bf16 *logits = allocate<bf16>(count * vocabulary);
    for (int i = 0; i < count * vocabulary; i++) logits[i] = rounded(3 * normal(generator));
    logits[nan_row * vocabulary + 7] = 0x7fc0;
    // a slice so unlikely that its probability vanishes in f32: sampling must skip it even for a uniform of 0
    for (int g = 0; g < Slice(0, vocabulary / 8).end; g++)
        for (int i = 0; i < 8; i++) logits[g * 8 + i] = rounded(-60);
    auto is_forbidden = [&](int token) { return token == 1 || token == 5 || token >= last; };
    unsigned char *forbidden = allocate<unsigned char>(groups);
    for (int token = 0; token < groups * 8; token++) forbidden[token / 8] |= is_forbidden(token) << token % 8;
    double *sampled = allocate<double>(2 * count);
    Rows rows{};
    for (int row = 0; row < count; row++) {
        rows.temperature[row] = 0.5f + 0.2f * row;
        rows.forced[row] = row == forced_row ? 9 : -1;
        rows.uniform[row] = uniforms[row];
        sampled[2 * row] = sampled[2 * row + 1] = -77;
    }
    SliceSum *slices = allocate<SliceSum>(count * SLICES);
    if (!launch(count * SLICES, THREADS, 0,
                [&] { sum_slices((Bf16x8 *)logits, forbidden, slices, groups, vocabulary / 8, rows); }) ||
        !launch(count, THREADS, 0,
                [&] { sample_tokens((Bf16x8 *)logits, forbidden, slices, sampled, groups, vocabulary / 8, rows); }))
        return false;
    bool passed = true;
    for (int row = 0; row < count; row++) {
        std::vector<double> x(vocabulary);
        double sum = 0, total = 0, running = 0;
        for (int i = 0; i < vocabulary; i++) {
            x[i] = i < groups * 8 && is_forbidden(i) ? -1e30 : (double)(to_f32(logits[row * vocabulary + i]) / rows.temperature[row]);
            sum += exp(x[i]);
        }
        auto probability = [&](int i) { return (double)(float)exp(x[i] - log(sum)); };
        for (int i = 0; i < vocabulary; i++) total += probability(i);
        int expected = -1;
        while (running <= uniforms[row] * total && expected + 1 < vocabulary) running += probability(++expected);
        if (row == forced_row) expected = 9;
        double token = sampled[2 * row], logp = sampled[2 * row + 1];
        bool correct = row == nan_row ? std::isnan(token) && std::isnan(logp)
                                      : token == expected && fabs(logp - (x[expected] - log(sum))) < 1e-4;
        if (!correct) printf("  row %d: token %g, expected %d; %g\n", row, token, expected, logp);
        passed &= correct;
    }
    printf("sampling from %d tokens: %s\n", vocabulary, passed ? "passed" : "FAILED");
    fflush(stdout);
    return passed;
}

int main() {
    init_memory(16 << 20);
    bool passed = true;
    passed &= samples_correctly(64, 63, 8);
    passed &= samples_correctly(4096, 4096, 1);
    passed &= samples_correctly(20000, 3000, 2500);
    passed &= samples_correctly(80000, 79000, 10000);     // several groups per thread
    return !passed;
}
