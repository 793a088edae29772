// Fused element-wise kernels for bf16 tensors: each reads its inputs once, computes in f32 and writes its outputs once.
// The plain versions, in libtorch calls, are the reference they are tested against.

// Stochastic rounding: random bits are added to the mantissa bits that bf16 drops.
__device__ __forceinline__ bf16 to_bf16_stochastic(float x, u32 noise) {
    return (bf16)((__float_as_uint(x) + (noise & 0xffffu)) >> 16);
}

// GROUPS_PER_THREAD, a constant of the launches: groups of eight values of a norm's row in a thread's registers.

// A block has several rows, with `warps` warps for each. Every thread of a row gets the row's sums.
__device__ __forceinline__ float2 row_sums(float2 value, float2 *shared, int warps) {
    for (int offset = 16; offset; offset >>= 1) {
        value.x += __shfl_xor_sync(~0u, value.x, offset);
        value.y += __shfl_xor_sync(~0u, value.y, offset);
    }
    if (warps == 1) return value;
    int warp = threadIdx.x >> 5, first = warp / warps * warps;
    __syncthreads();
    if ((threadIdx.x & 31) == 0) shared[warp] = value;
    __syncthreads();
    value = shared[first];
    for (int other = first + 1; other < first + warps; other++) {
        value.x += shared[other].x;
        value.y += shared[other].y;
    }
    return value;
}

// y = x / rms(x) * w.
extern "C" __global__ void __launch_bounds__(1024, 2)
    rms_norm(const Bf16x8 *x, const Bf16x8 *w, Bf16x8 *y, i64 rows, int groups, int warps, float epsilon) {
    __shared__ float2 shared[32];
    int threads = 32 * warps, first = threadIdx.x % threads;
    i64 row = blockIdx.x * (i64)(blockDim.x / threads) + threadIdx.x / threads;
    int valid = row < rows ? groups : 0;
    Bf16x8 values[GROUPS_PER_THREAD];
    float squares = 0.0f;
    #pragma unroll
    for (int k = 0; k < GROUPS_PER_THREAD; k++) {
        int g = first + k * threads;
        if (g >= valid) continue;
        values[k] = x[row * groups + g];
        for (int i = 0; i < 8; i++) { float value = to_f32(values[k].at[i]); squares += value * value; }
    }
    float scale = rsqrtf(row_sums({squares, 0.0f}, shared, warps).x / (float)(groups * 8) + epsilon);
    #pragma unroll
    for (int k = 0; k < GROUPS_PER_THREAD; k++) {
        int g = first + k * threads;
        if (g >= valid) continue;
        Bf16x8 weight = w[g];
        for (int i = 0; i < 8; i++)
            values[k].at[i] = to_bf16(to_f32(to_bf16(to_f32(values[k].at[i]) * scale)) * to_f32(weight.at[i]));
        y[row * groups + g] = values[k];
    }
}

// dx = residual + dL/dx. Each row slot of a block also writes the weight's gradient, summed over the rows it processed.
extern "C" __global__ void __launch_bounds__(1024, 1)
    rms_norm_backward(const Bf16x8 *x, const Bf16x8 *w, const Bf16x8 *dy, const Bf16x8 *residual, Bf16x8 *dx, float *dw,
                      i64 rows, int groups, int warps, float epsilon) {
    __shared__ float2 shared[32];
    int threads = 32 * warps, first = threadIdx.x % threads;
    i64 row_slots = blockDim.x / threads, row_slot = blockIdx.x * row_slots + threadIdx.x / threads;
    float dw_partial[GROUPS_PER_THREAD][8] = {};
    for (i64 begin = blockIdx.x * row_slots; begin < rows; begin += gridDim.x * row_slots) {
        i64 row = begin + threadIdx.x / threads;
        int valid = row < rows ? groups : 0;
        Bf16x8 xs[GROUPS_PER_THREAD], ds[GROUPS_PER_THREAD];
        float2 sums = {0.0f, 0.0f};     // of squares, and of x * w * dy
        #pragma unroll
        for (int k = 0; k < GROUPS_PER_THREAD; k++) {
            int g = first + k * threads;
            if (g >= valid) continue;
            xs[k] = x[row * groups + g];
            ds[k] = dy[row * groups + g];
            Bf16x8 weight = w[g];
            for (int i = 0; i < 8; i++) {
                float value = to_f32(xs[k].at[i]);
                sums.x += value * value;
                sums.y += to_f32(ds[k].at[i]) * to_f32(weight.at[i]) * value;
            }
        }
        sums = row_sums(sums, shared, warps);
        float scale = rsqrtf(sums.x / (float)(groups * 8) + epsilon);
        float projection = sums.y * scale / (float)(groups * 8);
        #pragma unroll
        for (int k = 0; k < GROUPS_PER_THREAD; k++) {
            int g = first + k * threads;
            if (g >= valid) continue;
            Bf16x8 weight = w[g], out, skip;
            if (residual) skip = residual[row * groups + g];
            for (int i = 0; i < 8; i++) {
                float normed = to_f32(xs[k].at[i]) * scale, d = to_f32(ds[k].at[i]);
                dw_partial[k][i] += d * normed;
                float value = (d * to_f32(weight.at[i]) - normed * projection) * scale;
                out.at[i] = to_bf16(residual ? to_f32(skip.at[i]) + to_f32(to_bf16(value)) : value);
            }
            dx[row * groups + g] = out;
        }
    }
    #pragma unroll
    for (int k = 0; k < GROUPS_PER_THREAD; k++) {
        int g = first + k * threads;
        if (g >= groups) continue;
        for (int i = 0; i < 8; i++) dw[(row_slot * groups + g) * 8 + i] = dw_partial[k][i];
    }
}

// Applies RoPE to eight pairs of values.
__device__ __forceinline__ void rotate(Bf16x8 &real, Bf16x8 &imaginary, const float *cosine, const float *sine,
                                       float sign) {
    for (int i = 0; i < 8; i++) {
        float c = cosine[i], s = sign * sine[i], a = to_f32(real.at[i]), b = to_f32(imaginary.at[i]);
        real.at[i] = to_bf16(a * c - b * s);
        imaginary.at[i] = to_bf16(b * c + a * s);
    }
}

// Splits a fused qkv projection into queries, keys and values and applies RoPE to the first two. One block per token;
// `groups` is half a head's width divided by eight.
extern "C" __global__ void __launch_bounds__(1024)
    rotary_split(const Bf16x8 *qkv, const float *cosine, const float *sine, Bf16x8 *q, Bf16x8 *k, Bf16x8 *v, int heads,
                 int kv_heads, int groups) {
    i64 token = blockIdx.x;
    int total_heads = heads + 2 * kv_heads;
    const Bf16x8 *row = qkv + token * total_heads * 2 * groups;
    for (int at = threadIdx.x; at < total_heads * groups; at += blockDim.x) {
        int head = at / groups, g = at % groups;
        Bf16x8 real = row[head * 2 * groups + g], imaginary = row[head * 2 * groups + groups + g];
        Bf16x8 *out;
        if (head < heads) out = q + (token * heads + head) * 2 * groups;
        else if (head < heads + kv_heads) out = k + (token * kv_heads + head - heads) * 2 * groups;
        else out = v + (token * kv_heads + head - heads - kv_heads) * 2 * groups;
        i64 angle = (token * groups + g) * 8;
        if (head < heads + kv_heads) rotate(real, imaginary, cosine + angle, sine + angle, 1.0f);
        out[g] = real;
        out[groups + g] = imaginary;
    }
}

// The backward pass of rotary_split: undoes the rotation and concatenates the gradients.
extern "C" __global__ void __launch_bounds__(1024)
    rotary_join(const Bf16x8 *dq, const Bf16x8 *dk, const Bf16x8 *dv, const float *cosine, const float *sine,
                Bf16x8 *dqkv, int heads, int kv_heads, int groups) {
    i64 token = blockIdx.x;
    int total_heads = heads + 2 * kv_heads;
    Bf16x8 *row = dqkv + token * total_heads * 2 * groups;
    for (int at = threadIdx.x; at < total_heads * groups; at += blockDim.x) {
        int head = at / groups, g = at % groups;
        const Bf16x8 *in;
        if (head < heads) in = dq + (token * heads + head) * 2 * groups;
        else if (head < heads + kv_heads) in = dk + (token * kv_heads + head - heads) * 2 * groups;
        else in = dv + (token * kv_heads + head - heads - kv_heads) * 2 * groups;
        Bf16x8 real = in[g], imaginary = in[groups + g];
        i64 angle = (token * groups + g) * 8;
        if (head < heads + kv_heads) rotate(real, imaginary, cosine + angle, sine + angle, -1.0f);
        row[head * 2 * groups + g] = real;
        row[head * 2 * groups + groups + g] = imaginary;
    }
}

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
