// Norms by rows, forward and backward. A row is read once and stays in registers.

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
        for (int i = 0; i < 8; i++) values[k].at[i] = normed(values[k].at[i], scale, weight.at[i]);
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

// LAYER_NORM_THREADS, a constant of the launches: the most of a block.

// The same for a layer norm, whose forward pass libtorch has in one kernel; its bias has a gradient, too.
extern "C" __global__ void __launch_bounds__(LAYER_NORM_THREADS, 2)
    layer_norm_backward(const Bf16x8 *x, const Bf16x8 *w, const Bf16x8 *dy, const Bf16x8 *residual, Bf16x8 *dx,
                        float *dw, float *db, i64 rows, int groups, int warps, float epsilon) {
    __shared__ float2 shared[32];
    int threads = 32 * warps, first = threadIdx.x % threads;
    i64 row_slots = blockDim.x / threads, row_slot = blockIdx.x * row_slots + threadIdx.x / threads;
    float width = (float)(groups * 8);
    float dw_partial[GROUPS_PER_THREAD][8] = {}, db_partial[GROUPS_PER_THREAD][8] = {};
    for (i64 begin = blockIdx.x * row_slots; begin < rows; begin += gridDim.x * row_slots) {
        i64 row = begin + threadIdx.x / threads;
        int valid = row < rows ? groups : 0;
        Bf16x8 xs[GROUPS_PER_THREAD], ds[GROUPS_PER_THREAD];
        float2 sums = {0.0f, 0.0f};     // of x, and of w * dy
        #pragma unroll
        for (int k = 0; k < GROUPS_PER_THREAD; k++) {
            int g = first + k * threads;
            if (g >= valid) continue;
            xs[k] = x[row * groups + g];
            ds[k] = dy[row * groups + g];
            Bf16x8 weight = w[g];
            for (int i = 0; i < 8; i++) {
                sums.x += to_f32(xs[k].at[i]);
                sums.y += to_f32(ds[k].at[i]) * to_f32(weight.at[i]);
            }
        }
        sums = row_sums(sums, shared, warps);
        float mean = sums.x / width, d_mean = sums.y / width;
        // of the deviations' squares, and of their products with w * dy: exact also where the mean is large
        float2 products = {0.0f, 0.0f};
        #pragma unroll
        for (int k = 0; k < GROUPS_PER_THREAD; k++) {
            int g = first + k * threads;
            if (g >= valid) continue;
            Bf16x8 weight = w[g];
            for (int i = 0; i < 8; i++) {
                float deviation = to_f32(xs[k].at[i]) - mean;
                products.x += deviation * deviation;
                products.y += to_f32(ds[k].at[i]) * to_f32(weight.at[i]) * deviation;
            }
        }
        products = row_sums(products, shared, warps);
        float scale = rsqrtf(products.x / width + epsilon), projection = products.y * scale / width;
        #pragma unroll
        for (int k = 0; k < GROUPS_PER_THREAD; k++) {
            int g = first + k * threads;
            if (g >= valid) continue;
            Bf16x8 weight = w[g], out, skip;
            if (residual) skip = residual[row * groups + g];
            for (int i = 0; i < 8; i++) {
                float normed = (to_f32(xs[k].at[i]) - mean) * scale, d = to_f32(ds[k].at[i]);
                dw_partial[k][i] += d * normed;
                db_partial[k][i] += d;
                float value = (d * to_f32(weight.at[i]) - d_mean - normed * projection) * scale;
                out.at[i] = to_bf16(residual ? to_f32(skip.at[i]) + to_f32(to_bf16(value)) : value);
            }
            dx[row * groups + g] = out;
        }
    }
    #pragma unroll
    for (int k = 0; k < GROUPS_PER_THREAD; k++) {
        int g = first + k * threads;
        if (g >= groups) continue;
        for (int i = 0; i < 8; i++) {
            dw[(row_slot * groups + g) * 8 + i] = dw_partial[k][i];
            db[(row_slot * groups + g) * 8 + i] = db_partial[k][i];
        }
    }
}
