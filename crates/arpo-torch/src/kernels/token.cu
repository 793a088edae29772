// One new token of one sequence, from its embedding to its logits, in a single kernel: a block on every multiprocessor,
// which all meet between the steps of a layer.
//
// All of it is reading: every weight, key and value once. Kernels one after the other leave the memory idle whenever one
// ends and the next begins, two hundred times a token. Here pieces of the next step are on their way (`pieces.cu`) while
// blocks still meet, add up or norm.
//
// Numbers are rounded wherever the kernels for many tokens write them, but for the token's own probability, which stays
// f32.

extern "C" __global__ void __launch_bounds__(THREADS, 1) whole_token(Model model, Token token, Between between) {
    extern __shared__ __align__(128) char shared[];
    __shared__ __align__(8) u64 barriers[WARPS * STAGES];
    __shared__ __align__(16) bf16 q[GROUP * WIDTH], own[2 * WIDTH];
    __shared__ float cosine[WIDTH / 2], sine[WIDTH / 2], scratch[WARPS];
    int hidden = model.hidden;

    bf16 *x = (bf16 *)(shared + WARPS * STAGES * PIECE);
    float *sums = (float *)(x + hidden);
    Block *blocks = (Block *)((char *)x + model.room);

    for (int i = threadIdx.x; i < model.layers * (int)(sizeof(Block) / 8); i += THREADS)
        ((u64 *)blocks)[i] = ((const u64 *)model.blocks)[i];
    if (threadIdx.x < WIDTH / 2) {
        float angle = (float)token.positions[model.axes[threadIdx.x]] * model.frequencies[threadIdx.x];
        cosine[threadIdx.x] = cosf(angle);
        sine[threadIdx.x] = sinf(angle);
    }
    if (threadIdx.x < WARPS * STAGES)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(shared_address(barriers + threadIdx.x)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncthreads();
    Tiles tiles(model, token);
    Ring ring(model, token, blocks, tiles, shared, barriers);
    i64 own_place = tiles.place(model, token.table[token.past / model.page_tokens], token.past);
    Surroundings at{model, token, between, tiles, ring, q, own, own_place, (float *)x, cosine, sine};

    // six meetings a layer: the host counts them too
    u32 target = between.already;
    int local = threadIdx.x, row = local * (int)gridDim.x + (int)blockIdx.x;    // a thread's row of all but the widest
    float stream = row < hidden ? wide(token.embedded[row]) : 0.0f;
    Held norm1(blocks[0].norm1, hidden);
    for (int layer = 0; layer < model.layers; layer++) {
        const Block &block = blocks[layer];
        Part part = part_of(model, block, QKV);
        float bias = local < part.local_rows ? wide(block.qkv_bias[row]) : 0.0f;
        bring_normed(layer ? between.stream : token.embedded, norm1, x, scratch, hidden, model.epsilon);
        product(ring, part, x, sums);
        if (local < part.local_rows) between.qkv[row] = narrow(sum_of(part, sums, local) + bias);
        meet(between, target);

        if (tiles.head < model.shared_heads) attend(at, block);
        meet(between, target);
        combine(at);
        meet(between, target);

        part = part_of(model, block, OUT);
        Held norm2(block.norm2, hidden);
        product(ring, part, between.attended, sums);
        auto add_to_stream = [&] {
            if (local >= part.local_rows) return;
            bf16 sum = narrow(sum_of(part, sums, local) + stream);
            between.stream[row] = sum;
            stream = wide(sum);
        };
        add_to_stream();
        meet(between, target);

        part = part_of(model, block, GATE_UP);
        bring_normed(between.stream, norm2, x, scratch, hidden, model.epsilon);
        product(ring, part, x, sums);
        for (int pair = threadIdx.x; pair < part.block_rows; pair += THREADS) {
            float gate = wide(narrow(sum_of(part, sums, 2 * pair))), up = wide(narrow(sum_of(part, sums, 2 * pair + 1)));
            between.gated[pair * gridDim.x + blockIdx.x] = narrow(wide(narrow(silu(gate))) * up);
        }
        meet(between, target);

        part = part_of(model, block, DOWN);
        norm1 = Held(layer + 1 < model.layers ? blocks[layer + 1].norm1 : model.norm, hidden);
        product(ring, part, between.gated, sums);
        add_to_stream();
        meet(between, target);
    }
    bring_normed(between.stream, norm1, x, scratch, hidden, model.epsilon);
    Part head = part_of(model, blocks[0], HEAD);
    product(ring, head, x, sums);
    for (int one = threadIdx.x; one < head.block_rows; one += THREADS)
        between.logits[one * gridDim.x + blockIdx.x] = narrow(sum_of(head, sums, one));
}
