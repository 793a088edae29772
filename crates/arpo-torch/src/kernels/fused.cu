// Passes over bf16 tensors that libtorch would make of many: each reads its inputs once, computes in f32 and writes
// its outputs once. The plain versions, in libtorch calls, are the reference they are tested against.

// Up or down with the probability of the distance: random bits are added below the ones that stay.
__device__ __forceinline__ bf16 narrow_stochastically(float x, u32 noise) {
    return (bf16)((__float_as_uint(x) + (noise & 0xffffu)) >> 16);
}

#define HELD 2  // groups of eight that a thread has of a norm's row

// A block has several rows, `warps` warps for each; every thread of a row gets the row's sums.
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
    rms_norm(const Eight *x, const Eight *w, Eight *y, i64 rows, int groups, int warps, float epsilon) {
    __shared__ float2 shared[32];
    int threads = 32 * warps, first = threadIdx.x % threads;
    i64 row = blockIdx.x * (i64)(blockDim.x / threads) + threadIdx.x / threads;
    int there = row < rows ? groups : 0;
    Eight held[HELD];
    float squares = 0.0f;
    #pragma unroll
    for (int k = 0; k < HELD; k++) {
        int g = first + k * threads;
        if (g >= there) continue;
        held[k] = x[row * groups + g];
        for (int i = 0; i < 8; i++) { float value = wide(held[k].at[i]); squares += value * value; }
    }
    float scale = rsqrtf(row_sums({squares, 0.0f}, shared, warps).x / (float)(groups * 8) + epsilon);
    #pragma unroll
    for (int k = 0; k < HELD; k++) {
        int g = first + k * threads;
        if (g >= there) continue;
        Eight weight = w[g];
        for (int i = 0; i < 8; i++)
            held[k].at[i] = narrow(wide(narrow(wide(held[k].at[i]) * scale)) * wide(weight.at[i]));
        y[row * groups + g] = held[k];
    }
}

// dx = residual + dL/dx. Each of a block's places for rows also leaves the weight's gradient, summed over the rows it had.
extern "C" __global__ void __launch_bounds__(1024, 1)
    rms_norm_backward(const Eight *x, const Eight *w, const Eight *dy, const Eight *residual, Eight *dx, float *dw,
                      i64 rows, int groups, int warps, float epsilon) {
    __shared__ float2 shared[32];
    int threads = 32 * warps, first = threadIdx.x % threads;
    i64 places = blockDim.x / threads, place = blockIdx.x * places + threadIdx.x / threads;
    float dw_part[HELD][8] = {};
    for (i64 begin = blockIdx.x * places; begin < rows; begin += gridDim.x * places) {
        i64 row = begin + threadIdx.x / threads;
        int there = row < rows ? groups : 0;
        Eight xs[HELD], ds[HELD];
        float2 sums = {0.0f, 0.0f};     // of squares, and along the gradient
        #pragma unroll
        for (int k = 0; k < HELD; k++) {
            int g = first + k * threads;
            if (g >= there) continue;
            xs[k] = x[row * groups + g];
            ds[k] = dy[row * groups + g];
            Eight weight = w[g];
            for (int i = 0; i < 8; i++) {
                float value = wide(xs[k].at[i]);
                sums.x += value * value;
                sums.y += wide(ds[k].at[i]) * wide(weight.at[i]) * value;
            }
        }
        sums = row_sums(sums, shared, warps);
        float scale = rsqrtf(sums.x / (float)(groups * 8) + epsilon);
        float along = sums.y * scale / (float)(groups * 8);
        #pragma unroll
        for (int k = 0; k < HELD; k++) {
            int g = first + k * threads;
            if (g >= there) continue;
            Eight weight = w[g], out, beside;
            if (residual) beside = residual[row * groups + g];
            for (int i = 0; i < 8; i++) {
                float normed = wide(xs[k].at[i]) * scale, d = wide(ds[k].at[i]);
                dw_part[k][i] += d * normed;
                float value = (d * wide(weight.at[i]) - normed * along) * scale;
                out.at[i] = narrow(residual ? wide(beside.at[i]) + wide(narrow(value)) : value);
            }
            dx[row * groups + g] = out;
        }
    }
    #pragma unroll
    for (int k = 0; k < HELD; k++) {
        int g = first + k * threads;
        if (g >= groups) continue;
        for (int i = 0; i < 8; i++) dw[(place * groups + g) * 8 + i] = dw_part[k][i];
    }
}

// Eight pairs of numbers, turned.
__device__ __forceinline__ void turn(Eight &real, Eight &imaginary, const float *cosine, const float *sine, float way) {
    for (int i = 0; i < 8; i++) {
        float c = cosine[i], s = way * sine[i], a = wide(real.at[i]), b = wide(imaginary.at[i]);
        real.at[i] = narrow(a * c - b * s);
        imaginary.at[i] = narrow(b * c + a * s);
    }
}

// Queries, keys and values apart, the first two turned to their places. A block for each token; `groups` is eighths of
// half a head.
extern "C" __global__ void __launch_bounds__(1024)
    rotary_split(const Eight *qkv, const float *cosine, const float *sine, Eight *q, Eight *k, Eight *v, int heads,
                 int shared_heads, int groups) {
    i64 token = blockIdx.x;
    int all = heads + 2 * shared_heads;
    const Eight *row = qkv + token * all * 2 * groups;
    for (int at = threadIdx.x; at < all * groups; at += blockDim.x) {
        int head = at / groups, g = at % groups;
        Eight real = row[head * 2 * groups + g], imaginary = row[head * 2 * groups + groups + g];
        Eight *out;
        if (head < heads) out = q + (token * heads + head) * 2 * groups;
        else if (head < heads + shared_heads) out = k + (token * shared_heads + head - heads) * 2 * groups;
        else out = v + (token * shared_heads + head - heads - shared_heads) * 2 * groups;
        i64 angle = (token * groups + g) * 8;
        if (head < heads + shared_heads) turn(real, imaginary, cosine + angle, sine + angle, 1.0f);
        out[g] = real;
        out[groups + g] = imaginary;
    }
}

// The way back of gradients: turned back and put side by side.
extern "C" __global__ void __launch_bounds__(1024)
    rotary_join(const Eight *dq, const Eight *dk, const Eight *dv, const float *cosine, const float *sine, Eight *dqkv,
                int heads, int shared_heads, int groups) {
    i64 token = blockIdx.x;
    int all = heads + 2 * shared_heads;
    Eight *row = dqkv + token * all * 2 * groups;
    for (int at = threadIdx.x; at < all * groups; at += blockDim.x) {
        int head = at / groups, g = at % groups;
        const Eight *in;
        if (head < heads) in = dq + (token * heads + head) * 2 * groups;
        else if (head < heads + shared_heads) in = dk + (token * shared_heads + head - heads) * 2 * groups;
        else in = dv + (token * shared_heads + head - heads - shared_heads) * 2 * groups;
        Eight real = in[g], imaginary = in[groups + g];
        i64 angle = (token * groups + g) * 8;
        if (head < heads + shared_heads) turn(real, imaginary, cosine + angle, sine + angle, -1.0f);
        row[head * 2 * groups + g] = real;
        row[head * 2 * groups + groups + g] = imaginary;
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

struct alignas(16) EightWide { float at[8]; };
__device__ __forceinline__ float wide(float x) { return x; }

// One AdamW update; the gradient is forgotten. Rounding is stochastic, from a stream named by seed and place.
template <typename Gradient>
__device__ __forceinline__ void adamw_of(Eight *value, Gradient *gradient, Eight *mean, Eight *square, i64 groups,
                                         float clip, float beta1, float beta2, float epsilon, float step_size,
                                         float root, float decay, u64 seed) {
    for (i64 at = blockIdx.x * (i64)blockDim.x + threadIdx.x; at < groups; at += (i64)gridDim.x * blockDim.x) {
        Eight w = value[at], m = mean[at], s = square[at];
        Gradient g = gradient[at];
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

extern "C" __global__ void adamw(Eight *value, Eight *gradient, Eight *mean, Eight *square, i64 groups, float clip,
                                 float beta1, float beta2, float epsilon, float step_size, float root, float decay,
                                 u64 seed) {
    adamw_of(value, gradient, mean, square, groups, clip, beta1, beta2, epsilon, step_size, root, decay, seed);
}

// The same from a gradient in f32.
extern "C" __global__ void adamw_wide(Eight *value, EightWide *gradient, Eight *mean, Eight *square, i64 groups,
                                      float clip, float beta1, float beta2, float epsilon, float step_size, float root,
                                      float decay, u64 seed) {
    adamw_of(value, gradient, mean, square, groups, clip, beta1, beta2, epsilon, step_size, root, decay, seed);
}
