// RoPE on the heads of a fused qkv projection, where a model has them with the norm of every head of queries and keys, and
// the backward pass of both.
//
// A thread has one vector of a head's first half and the same one of its second, so that its values are rotated in pairs.
// `groups` is the number of vectors in half a head, and of neighbouring threads that share the head.

// 8 bytes, for heads whose halves are no multiple of eight values.
struct alignas(8) Bf16x4 { bf16 at[4]; };

template <typename Vector> __device__ __forceinline__ constexpr int length() { return sizeof(Vector) / sizeof(bf16); }

template <typename Vector>
__device__ __forceinline__ void rotate(Vector &real, Vector &imaginary, const float *cosine, const float *sine,
                                       float sign) {
    for (int i = 0; i < length<Vector>(); i++) {
        float c = cosine[i], s = sign * sine[i], a = to_f32(real.at[i]), b = to_f32(imaginary.at[i]);
        real.at[i] = to_bf16(a * c - b * s);
        imaginary.at[i] = to_bf16(b * c + a * s);
    }
}

// The sum over the threads of a head, whose number divides 32. All threads of a warp take part.
__device__ __forceinline__ float head_sum(float value, int groups) {
    for (int offset = groups >> 1; offset; offset >>= 1) value += __shfl_xor_sync(~0u, value, offset);
    return value;
}

// Splits a fused qkv projection into queries, keys and values, norms the heads of the first two if weights are given, and
// applies RoPE to them. One block per token.
template <typename Vector>
__device__ __forceinline__ void split_token(const Vector *qkv, const float *cosine, const float *sine,
                                            const Vector *q_weight, const Vector *k_weight, Vector *q, Vector *k,
                                            Vector *v, int heads, int kv_heads, int groups, float epsilon) {
    i64 token = blockIdx.x;
    int total = (heads + 2 * kv_heads) * groups;
    const Vector *row = qkv + token * total * 2;
    for (int begin = 0; begin < total; begin += blockDim.x) {
        int at = begin + threadIdx.x, head = at / groups, g = at % groups;
        bool rotates = head < heads + kv_heads;
        Vector real = {}, imaginary = {};
        if (at < total) {
            real = row[head * 2 * groups + g];
            imaginary = row[head * 2 * groups + groups + g];
        }
        if (q_weight) {
            float squares = 0.0f;
            for (int i = 0; i < length<Vector>(); i++) {
                float a = to_f32(real.at[i]), b = to_f32(imaginary.at[i]);
                squares += a * a + b * b;
            }
            squares = head_sum(squares, groups);
            if (rotates) {
                float scale = rsqrtf(squares / (float)(2 * groups * length<Vector>()) + epsilon);
                const Vector *weight = head < heads ? q_weight : k_weight;
                Vector real_weight = weight[g], imaginary_weight = weight[groups + g];
                for (int i = 0; i < length<Vector>(); i++) {
                    real.at[i] = normed(real.at[i], scale, real_weight.at[i]);
                    imaginary.at[i] = normed(imaginary.at[i], scale, imaginary_weight.at[i]);
                }
            }
        }
        if (at >= total) continue;
        Vector *out;
        if (head < heads) out = q + (token * heads + head) * 2 * groups;
        else if (rotates) out = k + (token * kv_heads + head - heads) * 2 * groups;
        else out = v + (token * kv_heads + head - heads - kv_heads) * 2 * groups;
        i64 angle = (token * groups + g) * length<Vector>();
        if (rotates) rotate(real, imaginary, cosine + angle, sine + angle, 1.0f);
        out[g] = real;
        out[groups + g] = imaginary;
    }
}

extern "C" __global__ void __launch_bounds__(1024)
    rotary_split(const Bf16x8 *qkv, const float *cosine, const float *sine, Bf16x8 *q, Bf16x8 *k, Bf16x8 *v, int heads,
                 int kv_heads, int groups) {
    const Bf16x8 *none = nullptr;
    split_token(qkv, cosine, sine, none, none, q, k, v, heads, kv_heads, groups, 0.0f);
}

extern "C" __global__ void __launch_bounds__(1024)
    rotary_split_in_fours(const Bf16x4 *qkv, const float *cosine, const float *sine, Bf16x4 *q, Bf16x4 *k, Bf16x4 *v,
                          int heads, int kv_heads, int groups) {
    const Bf16x4 *none = nullptr;
    split_token(qkv, cosine, sine, none, none, q, k, v, heads, kv_heads, groups, 0.0f);
}

extern "C" __global__ void __launch_bounds__(1024)
    rotary_norm_split(const Bf16x8 *qkv, const float *cosine, const float *sine, const Bf16x8 *q_weight,
                      const Bf16x8 *k_weight, Bf16x8 *q, Bf16x8 *k, Bf16x8 *v, int heads, int kv_heads, int groups,
                      float epsilon) {
    split_token(qkv, cosine, sine, q_weight, k_weight, q, k, v, heads, kv_heads, groups, epsilon);
}

// Where the gradient of a head of queries, keys or values begins.
template <typename Vector>
__device__ __forceinline__ const Vector *head_of(const Vector *dq, const Vector *dk, const Vector *dv, i64 token,
                                                 int head, int heads, int kv_heads, int groups) {
    if (head < heads) return dq + (token * heads + head) * 2 * groups;
    if (head < heads + kv_heads) return dk + (token * kv_heads + head - heads) * 2 * groups;
    return dv + (token * kv_heads + head - heads - kv_heads) * 2 * groups;
}

// The backward pass without norms: undoes the rotation and concatenates the gradients. One block per token.
template <typename Vector>
__device__ __forceinline__ void join_token(const Vector *dq, const Vector *dk, const Vector *dv, const float *cosine,
                                           const float *sine, Vector *dqkv, int heads, int kv_heads, int groups) {
    i64 token = blockIdx.x;
    int total = (heads + 2 * kv_heads) * groups;
    Vector *row = dqkv + token * total * 2;
    for (int at = threadIdx.x; at < total; at += blockDim.x) {
        int head = at / groups, g = at % groups;
        const Vector *in = head_of(dq, dk, dv, token, head, heads, kv_heads, groups);
        Vector real = in[g], imaginary = in[groups + g];
        i64 angle = (token * groups + g) * length<Vector>();
        if (head < heads + kv_heads) rotate(real, imaginary, cosine + angle, sine + angle, -1.0f);
        row[head * 2 * groups + g] = real;
        row[head * 2 * groups + groups + g] = imaginary;
    }
}

extern "C" __global__ void __launch_bounds__(1024)
    rotary_join(const Bf16x8 *dq, const Bf16x8 *dk, const Bf16x8 *dv, const float *cosine, const float *sine,
                Bf16x8 *dqkv, int heads, int kv_heads, int groups) {
    join_token(dq, dk, dv, cosine, sine, dqkv, heads, kv_heads, groups);
}

extern "C" __global__ void __launch_bounds__(1024)
    rotary_join_in_fours(const Bf16x4 *dq, const Bf16x4 *dk, const Bf16x4 *dv, const float *cosine, const float *sine,
                         Bf16x4 *dqkv, int heads, int kv_heads, int groups) {
    join_token(dq, dk, dv, cosine, sine, dqkv, heads, kv_heads, groups);
}

// The backward pass with norms, from the projection before them (`qkv`). Tokens are shared by `slots`, of whole
// warps each, so that a thread has the same part of the same head in all its tokens; it writes that part's sum of the
// weight's gradient, a row for every slot and head.
extern "C" __global__ void __launch_bounds__(256, 2)
    rotary_norm_join(const Bf16x8 *dq, const Bf16x8 *dk, const Bf16x8 *dv, const float *cosine, const float *sine,
                     const Bf16x8 *qkv, const Bf16x8 *q_weight, const Bf16x8 *k_weight, Bf16x8 *dqkv, float *dw,
                     i64 tokens, int slots, int heads, int kv_heads, int groups, float epsilon) {
    int norms = heads + kv_heads, threads = ((norms + kv_heads) * groups + 31) / 32 * 32;
    int at = blockIdx.x * blockDim.x + threadIdx.x, slot = at / threads;
    if (slot >= slots) return;
    int head = at % threads / groups, g = at % threads % groups;
    bool exists = head < norms + kv_heads, has_norm = head < norms;
    float width = (float)(2 * groups * 8);
    Bf16x8 weight[2] = {};
    if (has_norm) {
        const Bf16x8 *weights = head < heads ? q_weight : k_weight;
        weight[0] = weights[g];
        weight[1] = weights[groups + g];
    }
    float dw_partial[2][8] = {};
    for (i64 token = slot; token < tokens; token += slots) {
        Bf16x8 d[2] = {}, x[2] = {};
        if (exists) {
            const Bf16x8 *in = head_of(dq, dk, dv, token, head, heads, kv_heads, groups);
            d[0] = in[g];
            d[1] = in[groups + g];
        }
        if (has_norm) {
            const Bf16x8 *in = qkv + (token * (norms + kv_heads) + head) * 2 * groups;
            x[0] = in[g];
            x[1] = in[groups + g];
            i64 angle = (token * groups + g) * 8;
            rotate(d[0], d[1], cosine + angle, sine + angle, -1.0f);
        }
        float squares = 0.0f, products = 0.0f;      // products of x, w and the gradient
        for (int half = 0; half < 2; half++)
            for (int i = 0; i < 8; i++) {
                float value = to_f32(x[half].at[i]);
                squares += value * value;
                products += to_f32(d[half].at[i]) * to_f32(weight[half].at[i]) * value;
            }
        squares = head_sum(squares, groups);
        products = head_sum(products, groups);
        if (!exists) continue;
        if (has_norm) {
            float scale = rsqrtf(squares / width + epsilon), projection = products * scale / width;
            for (int half = 0; half < 2; half++)
                for (int i = 0; i < 8; i++) {
                    float normed = to_f32(x[half].at[i]) * scale, gradient = to_f32(d[half].at[i]);
                    dw_partial[half][i] += gradient * normed;
                    d[half].at[i] = to_bf16((gradient * to_f32(weight[half].at[i]) - normed * projection) * scale);
                }
        }
        Bf16x8 *row = dqkv + (token * (norms + kv_heads) + head) * 2 * groups;
        row[g] = d[0];
        row[groups + g] = d[1];
    }
    if (!has_norm) return;
    float *out = dw + ((i64)slot * norms + head) * 2 * groups * 8;
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < 8; i++) out[(half * groups + g) * 8 + i] = dw_partial[half][i];
}
