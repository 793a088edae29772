// Tokens drawn by `draw.cu`, beside the same in f64: also with a logit that is no number, and with a dictated token.

#include "chip.h"
#include "kernel.cu"

// Forbidden are two, and all from `last` on in as many groups as are told of.
static bool drawn_well(int vocabulary, int last, int groups) {
    const double draws[] = {0.0, 0.25, 0.5, 0.999999, 1 - 1.0 / (1ull << 52), 0.3, 0.7};
    const int count = 7, broken = 5, said = 6;
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    bf16 *logits = take<bf16>(count * vocabulary);
    for (int i = 0; i < count * vocabulary; i++) logits[i] = rounded(3 * normal(random));
    logits[broken * vocabulary + 7] = 0x7fc0;
    // so unlikely that f32 knows nothing of it, not even where the first token is wanted that has a share
    for (int g = 0; g < Slice(0, vocabulary / 8).end; g++)
        for (int i = 0; i < 8; i++) logits[g * 8 + i] = rounded(-60);
    auto is_forbidden = [&](int token) { return token == 1 || token == 5 || token >= last; };
    unsigned char *forbidden = take<unsigned char>(groups);
    for (int token = 0; token < groups * 8; token++) forbidden[token / 8] |= is_forbidden(token) << token % 8;
    double *drawn = take<double>(2 * count);
    Rows rows{};
    for (int row = 0; row < count; row++) {
        rows.temperature[row] = 0.5f + 0.2f * row;
        rows.dictated[row] = row == said ? 9 : -1;
        rows.draw[row] = draws[row];
        drawn[2 * row] = drawn[2 * row + 1] = -77;
    }
    Exponentials *slices = take<Exponentials>(count * SLICES);
    if (!launch(count * SLICES, THREADS, 0,
                [&] { sum_slices((Eight *)logits, forbidden, slices, groups, vocabulary / 8, rows); }) ||
        !launch(count, THREADS, 0,
                [&] { draw_tokens((Eight *)logits, forbidden, slices, drawn, groups, vocabulary / 8, rows); }))
        return false;
    bool well = true;
    for (int row = 0; row < count; row++) {
        std::vector<double> x(vocabulary);
        double whole = 0, all = 0, running = 0;
        for (int i = 0; i < vocabulary; i++) {
            x[i] = i < groups * 8 && is_forbidden(i) ? -1e30 : (double)(wide(logits[row * vocabulary + i]) / rows.temperature[row]);
            whole += exp(x[i]);
        }
        auto share = [&](int i) { return (double)(float)exp(x[i] - log(whole)); };
        for (int i = 0; i < vocabulary; i++) all += share(i);
        int expected = -1;
        while (running <= draws[row] * all && expected + 1 < vocabulary) running += share(++expected);
        if (row == said) expected = 9;
        double token = drawn[2 * row], logp = drawn[2 * row + 1];
        bool right = row == broken ? std::isnan(token) && std::isnan(logp)
                                   : token == expected && fabs(logp - (x[expected] - log(whole))) < 1e-4;
        if (!right) printf("  row %d: token %g, expected %d; %g\n", row, token, expected, logp);
        well &= right;
    }
    printf("drawing from %d tokens: %s\n", vocabulary, well ? "right" : "WRONG");
    fflush(stdout);
    return well;
}

int main() {
    make_memory(16 << 20);
    bool well = true;
    well &= drawn_well(64, 63, 8);
    well &= drawn_well(4096, 4096, 1);
    well &= drawn_well(20000, 3000, 2500);
    well &= drawn_well(80000, 79000, 10000);     // several groups for each thread
    return !well;
}
