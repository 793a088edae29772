// Passes over bf16 tensors that libtorch would make of many: each reads its inputs once, computes in f32 and writes
// its outputs once. The plain versions, in libtorch calls, are the reference they are tested against.

struct alignas(16) Eight { bf16 at[8]; };

// Up or down with the probability of the distance: random bits are added below the ones that stay.
__device__ __forceinline__ bf16 narrow_stochastically(float x, u32 noise) {
    return (bf16)((__float_as_uint(x) + (noise & 0xffffu)) >> 16);
}

__device__ __forceinline__ float block_sum(float value, float *shared) {
    for (int offset = 16; offset; offset >>= 1) value += __shfl_xor_sync(~0u, value, offset);
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    __syncthreads();
    if (lane == 0) shared[warp] = value;
    __syncthreads();
    value = lane < warps ? shared[lane] : 0.0f;
    for (int offset = 16; offset; offset >>= 1) value += __shfl_xor_sync(~0u, value, offset);
    return value;
}

// y = x / rms(x) * w, a block for each row.
extern "C" __global__ void rms_norm(const Eight *x, const Eight *w, Eight *y, i64 groups, float epsilon) {
    __shared__ float shared[32];
    const Eight *row = x + blockIdx.x * groups;
    float squares = 0.0f;
    for (i64 g = threadIdx.x; g < groups; g += blockDim.x) {
        Eight part = row[g];
        for (int i = 0; i < 8; i++) { float value = wide(part.at[i]); squares += value * value; }
    }
    float scale = rsqrtf(block_sum(squares, shared) / (float)(groups * 8) + epsilon);
    for (i64 g = threadIdx.x; g < groups; g += blockDim.x) {
        Eight part = row[g], weight = w[g];
        for (int i = 0; i < 8; i++) part.at[i] = narrow(wide(narrow(wide(part.at[i]) * scale)) * wide(weight.at[i]));
        y[blockIdx.x * groups + g] = part;
    }
}

// dx = residual + dL/dx; each block also sums the weight's gradient over its rows. A thread has at most two groups.
extern "C" __global__ void rms_norm_backward(const Eight *x, const Eight *w, const Eight *dy, const Eight *residual,
                                             Eight *dx, float *dw, i64 rows, i64 groups, float epsilon) {
    __shared__ float shared[32];
    float dw_part[2][8] = {};
    for (i64 r = blockIdx.x; r < rows; r += gridDim.x) {
        Eight xs[2], ds[2];
        float squares = 0.0f, along = 0.0f;
        for (int k = 0; k < 2; k++) {
            i64 g = threadIdx.x + (i64)k * blockDim.x;
            if (g >= groups) continue;
            xs[k] = x[r * groups + g];
            ds[k] = dy[r * groups + g];
            Eight weight = w[g];
            for (int i = 0; i < 8; i++) {
                float value = wide(xs[k].at[i]);
                squares += value * value;
                along += wide(ds[k].at[i]) * wide(weight.at[i]) * value;
            }
        }
        float scale = rsqrtf(block_sum(squares, shared) / (float)(groups * 8) + epsilon);
        along = block_sum(along, shared) * scale / (float)(groups * 8);
        for (int k = 0; k < 2; k++) {
            i64 g = threadIdx.x + (i64)k * blockDim.x;
            if (g >= groups) continue;
            Eight weight = w[g], out, beside;
            if (residual) beside = residual[r * groups + g];
            for (int i = 0; i < 8; i++) {
                float normed = wide(xs[k].at[i]) * scale, d = wide(ds[k].at[i]);
                dw_part[k][i] += d * normed;
                float value = (d * wide(weight.at[i]) - normed * along) * scale;
                out.at[i] = narrow(residual ? wide(beside.at[i]) + wide(narrow(value)) : value);
            }
            dx[r * groups + g] = out;
        }
    }
    for (int k = 0; k < 2; k++) {
        i64 g = threadIdx.x + (i64)k * blockDim.x;
        if (g >= groups) continue;
        for (int i = 0; i < 8; i++) dw[(blockIdx.x * groups + g) * 8 + i] = dw_part[k][i];
    }
}

// Queries, keys and values apart, the first two turned to their places. A block for each token, a thread for pairs.
extern "C" __global__ void rotary_split(const bf16 *qkv, const float *cosine, const float *sine, bf16 *q, bf16 *k,
                                        bf16 *v, int heads, int shared_heads, int half) {
    i64 token = blockIdx.x;
    int all = heads + 2 * shared_heads;
    const bf16 *row = qkv + token * all * 2 * half;
    for (int pair = threadIdx.x; pair < all * half; pair += blockDim.x) {
        int head = pair / half, i = pair % half;
        bf16 real = row[head * 2 * half + i], imaginary = row[head * 2 * half + half + i];
        bf16 *out;
        if (head < heads) out = q + (token * heads + head) * 2 * half;
        else if (head < heads + shared_heads) out = k + (token * shared_heads + head - heads) * 2 * half;
        else out = v + (token * shared_heads + head - heads - shared_heads) * 2 * half;
        if (head < heads + shared_heads) {
            float c = cosine[token * half + i], s = sine[token * half + i], a = wide(real), b = wide(imaginary);
            real = narrow(a * c - b * s);
            imaginary = narrow(b * c + a * s);
        }
        out[i] = real;
        out[half + i] = imaginary;
    }
}

// The way back of gradients: turned back and put side by side.
extern "C" __global__ void rotary_join(const bf16 *dq, const bf16 *dk, const bf16 *dv, const float *cosine,
                                       const float *sine, bf16 *dqkv, int heads, int shared_heads, int half) {
    i64 token = blockIdx.x;
    int all = heads + 2 * shared_heads;
    bf16 *row = dqkv + token * all * 2 * half;
    for (int pair = threadIdx.x; pair < all * half; pair += blockDim.x) {
        int head = pair / half, i = pair % half;
        const bf16 *in;
        if (head < heads) in = dq + (token * heads + head) * 2 * half;
        else if (head < heads + shared_heads) in = dk + (token * shared_heads + head - heads) * 2 * half;
        else in = dv + (token * shared_heads + head - heads - shared_heads) * 2 * half;
        bf16 real = in[i], imaginary = in[half + i];
        if (head < heads + shared_heads) {
            float c = cosine[token * half + i], s = -sine[token * half + i], a = wide(real), b = wide(imaginary);
            real = narrow(a * c - b * s);
            imaginary = narrow(b * c + a * s);
        }
        row[head * 2 * half + i] = real;
        row[head * 2 * half + half + i] = imaginary;
    }
}

__device__ __forceinline__ Eight plus(Eight x, const Eight *bias, i64 g) {
    if (bias) {
        Eight b = bias[g];
        for (int i = 0; i < 8; i++) x.at[i] = narrow(wide(x.at[i]) + wide(b.at[i]));
    }
    return x;
}

// h = silu(gate) * up, each with its bias if there is one; `groups` is eighths of the width.
extern "C" __global__ void swiglu(const Eight *gate_up, const Eight *bias, Eight *h, i64 groups, i64 total) {
    for (i64 at = blockIdx.x * (i64)blockDim.x + threadIdx.x; at < total; at += (i64)gridDim.x * blockDim.x) {
        i64 row = at / groups, g = at % groups;
        Eight gate = plus(gate_up[row * 2 * groups + g], bias, g);
        Eight up = plus(gate_up[row * 2 * groups + groups + g], bias, groups + g);
        for (int i = 0; i < 8; i++) gate.at[i] = narrow(wide(narrow(silu(wide(gate.at[i])))) * wide(up.at[i]));
        h[at] = gate;
    }
}

// h again, and the gradients of gate and up.
extern "C" __global__ void swiglu_backward(const Eight *gate_up, const Eight *bias, const Eight *dh, Eight *h,
                                           Eight *d_gate_up, i64 groups, i64 total) {
    for (i64 at = blockIdx.x * (i64)blockDim.x + threadIdx.x; at < total; at += (i64)gridDim.x * blockDim.x) {
        i64 row = at / groups, g = at % groups;
        Eight gate = plus(gate_up[row * 2 * groups + g], bias, g);
        Eight up = plus(gate_up[row * 2 * groups + groups + g], bias, groups + g), d = dh[at], out;
        for (int i = 0; i < 8; i++) {
            float a = wide(gate.at[i]), b = wide(up.at[i]), dout = wide(d.at[i]);
            float sigmoid = 1.0f / (1.0f + __expf(-a)), value = a * sigmoid;
            out.at[i] = narrow(wide(narrow(value)) * b);
            gate.at[i] = narrow(dout * b * sigmoid * (1.0f + a * (1.0f - sigmoid)));
            up.at[i] = narrow(dout * value);
        }
        h[at] = out;
        d_gate_up[row * 2 * groups + g] = gate;
        d_gate_up[row * 2 * groups + groups + g] = up;
    }
}

__device__ __forceinline__ u64 mixed(u64 x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

// One AdamW update; the gradient is forgotten. Rounding is stochastic, from a stream named by seed and place.
extern "C" __global__ void adamw(Eight *value, Eight *gradient, Eight *mean, Eight *square, i64 groups, float clip,
                                 float beta1, float beta2, float epsilon, float step_size, float root, float decay,
                                 u64 seed) {
    for (i64 at = blockIdx.x * (i64)blockDim.x + threadIdx.x; at < groups; at += (i64)gridDim.x * blockDim.x) {
        Eight w = value[at], g = gradient[at], m = mean[at], s = square[at];
        for (int i = 0; i < 8; i++) {
            float slope = wide(g.at[i]) * clip;
            float new_mean = wide(m.at[i]) * beta1 + slope * (1.0f - beta1);
            float new_square = wide(s.at[i]) * beta2 + slope * slope * (1.0f - beta2);
            float moved = wide(w.at[i]) * decay - new_mean / (sqrtf(new_square) / root + epsilon) * step_size;
            u64 noise = mixed(seed ^ mixed((u64)(at * 8 + i)));
            w.at[i] = narrow_stochastically(moved, (u32)noise);
            m.at[i] = narrow_stochastically(new_mean, (u32)(noise >> 16));
            s.at[i] = narrow_stochastically(new_square, (u32)(noise >> 32));
            g.at[i] = 0;
        }
        value[at] = w;
        gradient[at] = g;
        mean[at] = m;
        square[at] = s;
    }
}
