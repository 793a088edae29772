// An emulation of the parts of CUDA that the kernels use: a block's threads are threads, and warp instructions
// synchronise with barriers. Blocks are processes, so that static variables are local to a block.

#pragma once
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <csignal>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

typedef unsigned short bf16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
using std::isinf, std::max, std::min, std::nan;

#define __device__
#define __forceinline__ inline
#define __global__
#define __shared__ static
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __expf expf

struct float2 { float x, y; };
struct uint4 { u32 x, y, z, w; };
struct Index { int x; };
static thread_local Index threadIdx;
static Index blockIdx, blockDim, gridDim;

static float __uint_as_float(u32 bits) { float x; memcpy(&x, &bits, 4); return x; }
static u32 __float_as_uint(float x) { u32 bits; memcpy(&bits, &x, 4); return bits; }
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static float __fadd_rn(float x, float y) { return x + y; }
static float __fsub_rn(float x, float y) { return x - y; }
static float __fmul_rn(float x, float y) { return x * y; }
static float __fdiv_rn(float x, float y) { return x / y; }
static float __fsqrt_rn(float x) { return sqrtf(x); }
static bf16 rounded(float x) { u32 bits = __float_as_uint(x); return (bits + 0x7fff + (bits >> 16 & 1)) >> 16; }

static u32 __byte_perm(u32 a, u32 b, u32 selector) {
    u64 both = (u64)b << 32 | a;
    u32 result = 0;
    for (int i = 0; i < 4; i++) result |= (u32)(both >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return result;
}

// ---- a block and its warps ----

static char shared_memory[400000] __attribute__((aligned(128)));
static std::unique_ptr<std::barrier<>> block_barrier;
static std::vector<std::unique_ptr<std::barrier<>>> warp_barriers;
static u64 lane_values[32][32];
static u32 operands[32][32][6];

static void __syncthreads() { block_barrier->arrive_and_wait(); }
static void __syncwarp() { warp_barriers[threadIdx.x >> 5]->arrive_and_wait(); }

template <class T> static T from_lane(T value, int lane) {
    int warp = threadIdx.x >> 5;
    memcpy(&lane_values[warp][threadIdx.x & 31], &value, sizeof value);
    __syncwarp();
    T result;
    memcpy(&result, &lane_values[warp][lane & 31], sizeof result);
    __syncwarp();
    return result;
}
template <class T> static T __shfl_sync(u32, T value, int lane) { return from_lane(value, lane); }
template <class T> static T __shfl_xor_sync(u32, T value, int mask) { return from_lane(value, (threadIdx.x & 31) ^ mask); }

static bool __any_sync(u32, bool value) {
    int warp = threadIdx.x >> 5;
    lane_values[warp][threadIdx.x & 31] = value;
    __syncwarp();
    bool any = false;
    for (u64 lane_value : lane_values[warp]) any |= lane_value != 0;
    __syncwarp();
    return any;
}

static u32 __ballot_sync(u32, bool value) {
    int warp = threadIdx.x >> 5;
    lane_values[warp][threadIdx.x & 31] = value;
    __syncwarp();
    u32 lanes = 0;
    for (int lane = 0; lane < 32; lane++) lanes |= (u32)lane_values[warp][lane] << lane;
    __syncwarp();
    return lanes;
}

static int __ffs(u32 bits) { return __builtin_ffs(bits); }

// mma.m16n8k16, row times column, bf16 to f32.
static void warp_mma(float *c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    u32 mine[6] = {a0, a1, a2, a3, b0, b1};
    memcpy(operands[warp][lane], mine, sizeof mine);
    __syncwarp();
    auto to_float = [](u32 pair, int which) { return __uint_as_float(which ? pair & 0xffff0000u : pair << 16); };
    for (int r = 0; r < 4; r++) {
        int row = (lane >> 2) + (r >> 1) * 8, column = 2 * (lane & 3) + (r & 1);
        for (int k = 0; k < 16; k++)
            c[r] += to_float(operands[warp][row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2], k & 1) *
                    to_float(operands[warp][column * 4 + k % 8 / 2][4 + k / 8], k & 1);
    }
    __syncwarp();
}

// ---- a launch ----

// Blocks that run concurrently, and so the most that can wait for each other.
static const int CONCURRENT_BLOCKS = 16;

// Whether all blocks succeeded and wrote nothing past the end of their shared memory.
static bool launch(int blocks, int threads, size_t shared_bytes, const std::function<void()> &kernel) {
    auto run = [&](int block) {
        // blocks that deadlock are killed when the parent times out
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        blockIdx.x = block;
        blockDim.x = threads;
        gridDim.x = blocks;
        memset(shared_memory, 0xff, sizeof shared_memory);
        block_barrier = std::make_unique<std::barrier<>>(threads);
        for (int warp = 0; warp < threads / 32; warp++) warp_barriers.push_back(std::make_unique<std::barrier<>>(32));
        std::vector<std::thread> all;
        for (int thread = 0; thread < threads; thread++)
            all.emplace_back([&, thread] { threadIdx.x = thread; kernel(); });
        for (std::thread &thread : all) thread.join();
        for (size_t i = shared_bytes; i < sizeof shared_memory; i++)
            if (shared_memory[i] != (char)0xff) _exit(1);
        _exit(0);
    };
    bool passed = true;
    for (int first = 0; first < blocks; first += CONCURRENT_BLOCKS) {
        std::vector<pid_t> running;
        for (int block = first; block < min(first + CONCURRENT_BLOCKS, blocks); block++) {
            pid_t child = fork();
            if (child == 0) run(block);
            running.push_back(child);
        }
        for (pid_t child : running) {
            int status = 0;
            waitpid(child, &status, 0);
            passed &= status == 0;
        }
    }
    return passed;
}

// ---- memory that blocks share ----

static char *memory, *memory_end;

static void init_memory(size_t bytes) {
    memory = (char *)mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memory_end = memory + bytes;
}

template <class T> static T *allocate(size_t count) {
    memory = (char *)(((std::uintptr_t)memory + 63) / 64 * 64);
    T *allocated = (T *)memory;
    memory += count * sizeof(T);
    if (memory > memory_end) { fprintf(stderr, "too little memory\n"); abort(); }
    return allocated;
}
