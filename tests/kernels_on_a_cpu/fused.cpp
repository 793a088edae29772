// Norms, RoPE and GELU, by `norm.cu`, `rotary.cu` and `fused.cu`, compared with the same in f64, forward and backward, at
// sizes that are not multiples of a warp. Outputs begin as NaN, so that a value that is not written fails.

#include "chip.h"
#include "kernel.cu"

static std::mt19937 generator(5);
static std::normal_distribution<float> normal;

static bf16 *random_values(size_t count, float scale = 1, float shift = 0) {
    bf16 *values = allocate<bf16>(count);
    for (size_t i = 0; i < count; i++) values[i] = rounded(scale * normal(generator) + shift);
    return values;
}

template <class T> static T *unwritten(size_t count) {
    T *values = allocate<T>(count);
    memset(values, 0xff, count * sizeof(T));
    return values;
}

static double value(bf16 x) { return to_f32(x); }
static double value(float x) { return x; }

// The largest difference of two arrays, relative to the value or to the root mean square of all; NaN if there is one.
template <class T> static double error(const T *actual, const std::vector<double> &expected) {
    double squares = 0, largest = 0;
    for (double x : expected) squares += x * x;
    double typical = sqrt(squares / expected.size());
    for (size_t i = 0; i < expected.size(); i++) {
        double relative = fabs(value(actual[i]) - expected[i]) / fmax(fabs(expected[i]), typical);
        if (!(relative <= largest)) largest = relative;
    }
    return largest;
}

static bool report(const std::string &what, bool ran, std::initializer_list<double> errors) {
    bool passed = ran;
    printf("%s: max error", what.c_str());
    for (double one : errors) {
        passed &= one < 0.03;      // results are bf16, and so are some of the steps; also false for NaN
        printf(" %.4f", one);
    }
    printf(": %s\n", passed ? "passed" : "FAILED");
    fflush(stdout);
    return passed;
}

// dx, dw and db of a layer norm, whose mean is not 0; the residual is added to dx.
static bool layer_norm_is_correct(int rows, int width, bool with_residual) {
    const int blocks = 3, warps = (width + 32 * 8 * GROUPS_PER_THREAD - 1) / (32 * 8 * GROUPS_PER_THREAD);
    const int row_slots = max(8 / warps, 1), slots = blocks * row_slots;
    const double epsilon = 1e-6;
    bf16 *x = random_values(rows * width, 2, 5), *w = random_values(width, 1, 1), *dy = allocate<bf16>(rows * width);
    // correlated with x, so that no mean in the formula is small
    for (int i = 0; i < rows * width; i++) dy[i] = rounded(normal(generator) + 0.3f * to_f32(x[i]));
    bf16 *residual = with_residual ? random_values(rows * width) : nullptr, *dx = unwritten<bf16>(rows * width);
    float *dw = unwritten<float>(slots * width), *db = unwritten<float>(slots * width);
    bool ran = launch(blocks, 32 * warps * row_slots, 0, [&] {
        layer_norm_backward((Bf16x8 *)x, (Bf16x8 *)w, (Bf16x8 *)dy, (Bf16x8 *)residual, (Bf16x8 *)dx, dw, db, rows, width / 8,
                            warps, epsilon);
    });
    std::vector<double> expected(rows * width), expected_dw(width), expected_db(width);
    for (int row = 0; row < rows; row++) {
        const bf16 *xs = x + row * width, *ds = dy + row * width;
        double mean = 0, variance = 0, d_mean = 0, projection = 0;
        for (int i = 0; i < width; i++) mean += value(xs[i]) / width, d_mean += value(ds[i]) * value(w[i]) / width;
        for (int i = 0; i < width; i++) variance += pow(value(xs[i]) - mean, 2) / width;
        double scale = 1 / sqrt(variance + epsilon);
        for (int i = 0; i < width; i++) projection += value(ds[i]) * value(w[i]) * (value(xs[i]) - mean) * scale / width;
        for (int i = 0; i < width; i++) {
            double normed = (value(xs[i]) - mean) * scale;
            expected[row * width + i] = (value(ds[i]) * value(w[i]) - d_mean - normed * projection) * scale +
                                        (residual ? value(residual[row * width + i]) : 0);
            expected_dw[i] += value(ds[i]) * normed;
            expected_db[i] += value(ds[i]);
        }
    }
    for (int slot = 1; slot < slots; slot++)
        for (int i = 0; i < width; i++) dw[i] += dw[slot * width + i], db[i] += db[slot * width + i];
    return report("layer norm of " + std::to_string(rows) + " x " + std::to_string(width), ran,
                  {error(dx, expected), error(dw, expected_dw), error(db, expected_db)});
}

struct Heads { int tokens, heads, kv_heads, width; };

// RoPE of heads, with the norms of queries and keys if they are wanted, and its backward pass.
static bool rotary_is_correct(const Heads &test, bool norms) {
    auto [tokens, heads, kv_heads, width] = test;
    const int total = heads + 2 * kv_heads, rotates = heads + kv_heads, half = width / 2;
    const bool in_eights = width % 16 == 0;
    const int groups = half / (in_eights ? 8 : 4), threads = min((total * groups + 31) / 32 * 32, 1024);
    const double epsilon = 1e-6;
    bf16 *qkv = random_values(tokens * total * width), *out = unwritten<bf16>(tokens * total * width);
    bf16 *weights = random_values(2 * width, 0.1, 1), *gradient = random_values(tokens * total * width);
    bf16 *d_qkv = unwritten<bf16>(tokens * total * width);
    float *cosine = allocate<float>(tokens * half), *sine = allocate<float>(tokens * half);
    for (int i = 0; i < tokens * half; i++) {
        float angle = 3 * normal(generator);
        cosine[i] = cosf(angle), sine[i] = sinf(angle);
    }
    // queries, keys and values are tensors of their own
    bf16 *k_weight = weights + width, *k = out + tokens * heads * width, *v = k + tokens * kv_heads * width;
    bf16 *dk = gradient + tokens * heads * width, *dv = dk + tokens * kv_heads * width;
    auto at = [&](int token, int head) -> size_t {
        if (head < heads) return (token * heads + head) * width;
        int first = head < rotates ? heads : rotates;
        return (size_t)tokens * first * width + (token * kv_heads + head - first) * width;
    };
    bool ran = launch(tokens, threads, 0, [&] {
        if (norms)
            rotary_norm_split((Bf16x8 *)qkv, cosine, sine, (Bf16x8 *)weights, (Bf16x8 *)k_weight, (Bf16x8 *)out, (Bf16x8 *)k,
                              (Bf16x8 *)v, heads, kv_heads, groups, epsilon);
        else if (in_eights)
            rotary_split((Bf16x8 *)qkv, cosine, sine, (Bf16x8 *)out, (Bf16x8 *)k, (Bf16x8 *)v, heads, kv_heads, groups);
        else
            rotary_split_in_fours((Bf16x4 *)qkv, cosine, sine, (Bf16x4 *)out, (Bf16x4 *)k, (Bf16x4 *)v, heads, kv_heads, groups);
    });
    const int slots = min(tokens, 5), slot_threads = (total * groups + 31) / 32 * 32;
    float *dw = unwritten<float>(slots * rotates * width);
    ran &= launch(norms ? (slots * slot_threads + 255) / 256 : tokens, norms ? 256 : threads, 0, [&] {
        if (norms)
            rotary_norm_join((Bf16x8 *)gradient, (Bf16x8 *)dk, (Bf16x8 *)dv, cosine, sine, (Bf16x8 *)qkv, (Bf16x8 *)weights,
                             (Bf16x8 *)k_weight, (Bf16x8 *)d_qkv, dw, tokens, slots, heads, kv_heads, groups, epsilon);
        else if (in_eights)
            rotary_join((Bf16x8 *)gradient, (Bf16x8 *)dk, (Bf16x8 *)dv, cosine, sine, (Bf16x8 *)d_qkv, heads, kv_heads, groups);
        else
            rotary_join_in_fours((Bf16x4 *)gradient, (Bf16x4 *)dk, (Bf16x4 *)dv, cosine, sine, (Bf16x4 *)d_qkv, heads, kv_heads,
                                 groups);
    });
    std::vector<double> expected(tokens * total * width), d_expected(tokens * total * width), dw_expected(2 * width);
    for (int token = 0; token < tokens; token++)
        for (int head = 0; head < total; head++) {
            const bf16 *in = qkv + (token * total + head) * width, *d = gradient + at(token, head);
            const bf16 *weight = weights + (head < heads ? 0 : width);
            std::vector<double> x(width), dx(width);
            double squares = 0, projection = 0;
            for (int i = 0; i < width; i++) squares += value(in[i]) * value(in[i]) / width;
            double scale = norms ? 1 / sqrt(squares + epsilon) : 1;
            for (int i = 0; i < width; i++) {
                int pair = i % half;
                double c = cosine[token * half + pair], s = sine[token * half + pair], sign = i < half ? -1 : 1;
                auto normed = [&](int j) { return value(in[j]) * scale * (norms ? value(weight[j]) : 1); };
                int other = (i + half) % width;
                x[i] = head < rotates ? normed(i) * c + sign * normed(other) * s : value(in[i]);
                dx[i] = head < rotates ? value(d[i]) * c - sign * value(d[other]) * s : value(d[i]);
            }
            if (norms && head < rotates) {
                for (int i = 0; i < width; i++) projection += dx[i] * value(weight[i]) * value(in[i]) * scale / width;
                for (int i = 0; i < width; i++) {
                    dw_expected[(head < heads ? 0 : width) + i] += dx[i] * value(in[i]) * scale;
                    dx[i] = (dx[i] * value(weight[i]) - value(in[i]) * scale * projection) * scale;
                }
            }
            std::copy(x.begin(), x.end(), expected.begin() + at(token, head));
            std::copy(dx.begin(), dx.end(), d_expected.begin() + (token * total + head) * width);
        }
    std::vector<float> weight_sums(2 * width);
    for (int row = 0; norms && row < slots * rotates; row++)
        for (int i = 0; i < width; i++) weight_sums[(row % rotates < heads ? 0 : width) + i] += dw[row * width + i];
    std::string what = std::to_string(tokens) + " tokens, " + std::to_string(heads) + " + 2 x " + std::to_string(kv_heads) +
                       " heads of " + std::to_string(width) + (norms ? ", normed" : "");
    return report("RoPE of " + what, ran,
                  {error(out, expected), error(d_qkv, d_expected), norms ? error(weight_sums.data(), dw_expected) : 0});
}

static bool gelu_is_correct(int rows, int width, bool with_bias) {
    bf16 *x = random_values(rows * width, 3), *bias = with_bias ? random_values(width) : nullptr;
    bf16 *dh = random_values(rows * width), *h = unwritten<bf16>(rows * width), *dx = unwritten<bf16>(rows * width);
    bf16 *recomputed = unwritten<bf16>(rows * width);
    i64 groups = width / 8;
    bool ran = launch(2, 64, 0, [&] { gelu((Bf16x8 *)x, (Bf16x8 *)bias, (Bf16x8 *)h, groups, rows * groups); });
    ran &= launch(2, 64, 0, [&] {
        gelu_backward((Bf16x8 *)x, (Bf16x8 *)bias, (Bf16x8 *)dh, (Bf16x8 *)recomputed, (Bf16x8 *)dx, groups, rows * groups);
    });
    std::vector<double> expected(rows * width), d_expected(rows * width);
    for (int i = 0; i < rows * width; i++) {
        double a = value(bias ? rounded(value(x[i]) + value(bias[i % width])) : x[i]), slope = sqrt(2 / M_PI);
        double u = tanh(slope * (a + 0.044715 * a * a * a));
        expected[i] = a / 2 * (1 + u);
        d_expected[i] = value(dh[i]) * ((1 + u) / 2 + a / 2 * (1 - u * u) * slope * (1 + 3 * 0.044715 * a * a));
    }
    return report("GELU of " + std::to_string(rows) + " x " + std::to_string(width), ran,
                  {error(h, expected), error(recomputed, expected), error(dx, d_expected)});
}

int main() {
    init_memory(64 << 20);
    bool passed = true;
    for (bool residual : {false, true}) {
        passed &= layer_norm_is_correct(1, 16, residual);
        passed &= layer_norm_is_correct(37, 1152, residual);      // 144 groups, 2 rows in a block
        passed &= layer_norm_is_correct(4, 4608, residual);
    }
    passed &= rotary_is_correct({5, 4, 2, 128}, false);
    passed &= rotary_is_correct({3, 16, 16, 72}, false);          // halves of 36
    passed &= rotary_is_correct({2, 3, 1, 8}, false);
    passed &= rotary_is_correct({7, 32, 8, 128}, true);
    passed &= rotary_is_correct({9, 3, 1, 64}, true);             // half a warp without a head
    passed &= rotary_is_correct({2, 64, 32, 256}, true);          // more vectors of pairs than threads
    for (bool bias : {false, true}) passed &= gelu_is_correct(13, 4304, bias);
    return !passed;
}
