// Fused element-wise kernels for bf16 tensors: each reads its inputs once, computes in f32 and writes its outputs once.
// The plain versions, in libtorch calls, are the reference they are tested against.

// Stochastic rounding: random bits are added to the mantissa bits that bf16 drops.
__device__ __forceinline__ bf16 to_bf16_stochastic(float x, u32 noise) {
    return (bf16)((__float_as_uint(x) + (noise & 0xffffu)) >> 16);
}

// sqrt(2 / pi), and the coefficient of the cube, of GELU in its tanh form.
#define GELU_SLOPE 0.7978845608f
#define GELU_CUBIC 0.044715f

__device__ __forceinline__ Bf16x8 add_bias(Bf16x8 x, const Bf16x8 *bias, i64 g) {
    if (bias) {
        Bf16x8 b = bias[g];
        for (int i = 0; i < 8; i++) x.at[i] = to_bf16(to_f32(x.at[i]) + to_f32(b.at[i]));
    }
    return x;
}

// h = silu(gate) * up, with a bias on both if there is one; `groups` is the width divided by eight.
extern "C" __global__ void swiglu(const Bf16x8 *gate_up, const Bf16x8 *bias, Bf16x8 *h, i64 groups, i64 total) {
    for (i64 at = blockIdx.x * (i64)blockDim.x + threadIdx.x; at < total; at += (i64)gridDim.x * blockDim.x) {
        i64 row = at / groups, g = at % groups;
        Bf16x8 gate = add_bias(gate_up[row * 2 * groups + g], bias, g);
        Bf16x8 up = add_bias(gate_up[row * 2 * groups + groups + g], bias, groups + g);
        for (int i = 0; i < 8; i++) gate.at[i] = to_bf16(to_f32(to_bf16(silu(to_f32(gate.at[i])))) * to_f32(up.at[i]));
        h[at] = gate;
    }
}

// Recomputes h, and writes the gradients of gate and up.
extern "C" __global__ void swiglu_backward(const Bf16x8 *gate_up, const Bf16x8 *bias, const Bf16x8 *dh, Bf16x8 *h,
                                           Bf16x8 *d_gate_up, i64 groups, i64 total) {
    for (i64 at = blockIdx.x * (i64)blockDim.x + threadIdx.x; at < total; at += (i64)gridDim.x * blockDim.x) {
        i64 row = at / groups, g = at % groups;
        Bf16x8 gate = add_bias(gate_up[row * 2 * groups + g], bias, g);
        Bf16x8 up = add_bias(gate_up[row * 2 * groups + groups + g], bias, groups + g), d = dh[at], out;
        for (int i = 0; i < 8; i++) {
            float a = to_f32(gate.at[i]), b = to_f32(up.at[i]), dout = to_f32(d.at[i]);
            float sigmoid = 1.0f / (1.0f + __expf(-a)), value = a * sigmoid;
            out.at[i] = to_bf16(to_f32(to_bf16(value)) * b);
            gate.at[i] = to_bf16(dout * b * sigmoid * (1.0f + a * (1.0f - sigmoid)));
            up.at[i] = to_bf16(dout * value);
        }
        h[at] = out;
        d_gate_up[row * 2 * groups + g] = gate;
        d_gate_up[row * 2 * groups + groups + g] = up;
    }
}

// GELU in its tanh form, x / 2 * (1 + tanh(u)), which is x * sigmoid(2u). Returns the sigmoid.
__device__ __forceinline__ float gelu_gate(float x) {
    return 1.0f / (1.0f + __expf(-2.0f * GELU_SLOPE * (x + GELU_CUBIC * x * x * x)));
}

// h = gelu(x), with a bias on x if there is one; `groups` is the width divided by eight.
extern "C" __global__ void gelu(const Bf16x8 *x, const Bf16x8 *bias, Bf16x8 *h, i64 groups, i64 total) {
    for (i64 at = blockIdx.x * (i64)blockDim.x + threadIdx.x; at < total; at += (i64)gridDim.x * blockDim.x) {
        Bf16x8 values = add_bias(x[at], bias, at % groups);
        for (int i = 0; i < 8; i++) {
            float a = to_f32(values.at[i]);
            values.at[i] = to_bf16(a * gelu_gate(a));
        }
        h[at] = values;
    }
}

// Recomputes h, and writes the gradient of x.
extern "C" __global__ void gelu_backward(const Bf16x8 *x, const Bf16x8 *bias, const Bf16x8 *dh, Bf16x8 *h, Bf16x8 *dx,
                                         i64 groups, i64 total) {
    for (i64 at = blockIdx.x * (i64)blockDim.x + threadIdx.x; at < total; at += (i64)gridDim.x * blockDim.x) {
        Bf16x8 values = add_bias(x[at], bias, at % groups), d = dh[at];
        for (int i = 0; i < 8; i++) {
            float a = to_f32(values.at[i]), gate = gelu_gate(a);
            float slope = 2.0f * GELU_SLOPE * (1.0f + 3.0f * GELU_CUBIC * a * a);
            values.at[i] = to_bf16(a * gate);
            d.at[i] = to_bf16(to_f32(d.at[i]) * gate * (1.0f + a * (1.0f - gate) * slope));
        }
        h[at] = values;
        dx[at] = d;
    }
}

__device__ __forceinline__ u64 splitmix64(u64 x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

struct alignas(16) F32x8 { float at[8]; };
__device__ __forceinline__ float to_f32(float x) { return x; }

struct AdamW {
    float clip, mean_decay, mean_share, square_decay, square_share, inverse_correction, epsilon, step_size, decay;
};

// One AdamW update; the gradient is zeroed. Rounding is stochastic: the noise depends on the seed and the index only.
// Every operation is rounded by itself, without fused multiply-add, so that the result is the plain version's to the bit.
template <typename Gradient>
__device__ __forceinline__ void adamw_update(Bf16x8 *value, Gradient *gradient, Bf16x8 *mean, Bf16x8 *square, i64 groups,
                                             AdamW scalars, u64 seed, i64 first) {
    for (i64 at = blockIdx.x * (i64)blockDim.x + threadIdx.x; at < groups; at += (i64)gridDim.x * blockDim.x) {
        Bf16x8 w = value[at], m = mean[at], s = square[at];
        Gradient g = gradient[at];
        for (int i = 0; i < 8; i++) {
            float grad = __fmul_rn(to_f32(g.at[i]), scalars.clip);
            float new_mean = __fadd_rn(__fmul_rn(to_f32(m.at[i]), scalars.mean_decay), __fmul_rn(grad, scalars.mean_share));
            float new_square = __fadd_rn(__fmul_rn(to_f32(s.at[i]), scalars.square_decay),
                                         __fmul_rn(__fmul_rn(grad, grad), scalars.square_share));
            float denominator =
                __fadd_rn(__fmul_rn(__fsqrt_rn(new_square), scalars.inverse_correction), scalars.epsilon);
            float change = __fmul_rn(__fdiv_rn(new_mean, denominator), scalars.step_size);
            float new_value = __fsub_rn(__fmul_rn(to_f32(w.at[i]), scalars.decay), change);
            u64 noise = splitmix64(seed ^ splitmix64((u64)(first + at * 8 + i)));
            w.at[i] = to_bf16_stochastic(new_value, (u32)noise);
            m.at[i] = to_bf16_stochastic(new_mean, (u32)(noise >> 16));
            s.at[i] = to_bf16_stochastic(new_square, (u32)(noise >> 32));
            g.at[i] = 0;
        }
        value[at] = w;
        gradient[at] = g;
        mean[at] = m;
        square[at] = s;
    }
}

extern "C" __global__ void adamw(Bf16x8 *value, Bf16x8 *gradient, Bf16x8 *mean, Bf16x8 *square, i64 groups,
                                 AdamW scalars, u64 seed, i64 first) {
    adamw_update(value, gradient, mean, square, groups, scalars, seed, first);
}

// The same with a gradient in f32.
extern "C" __global__ void adamw_f32_gradient(Bf16x8 *value, F32x8 *gradient, Bf16x8 *mean, Bf16x8 *square, i64 groups,
                                              AdamW scalars, u64 seed, i64 first) {
    adamw_update(value, gradient, mean, square, groups, scalars, seed, first);
}
