// Memory read ahead of its use, for `token.cu`: all that a token needs is cut into pieces of up to four kilobytes, which
// every warp gets through a ring in shared memory, in the order in which it will use them. As soon as a place in the ring
// is free the next piece is asked for, also if it belongs to a later step.

#define WARPS 10
#define STAGES 4     // places in a warp's ring
#define PIECE 4096   // bytes; also what the keys of a tile take, and its values
#define UNITS (PIECE / 512)

struct Block {
    const bf16 *norm1, *qkv, *qkv_bias, *out, *norm2, *gate_up, *down;
    bf16 *keys, *values;        // [pages, shared heads, page tokens, WIDTH]
};

struct Model {
    const Block *blocks;
    const bf16 *norm, *head;
    const float *frequencies;   // [WIDTH / 2]
    const i64 *axes;            // [WIDTH / 2]: which position each follows
    int layers, hidden, inner, heads, shared_heads, vocabulary, page_tokens;
    int room;                   // bytes of shared memory behind the rings: for a row and sums, or what attention leaves
    float epsilon, scale;
};

struct Token {
    const bf16 *embedded;       // [hidden]
    const int *table;           // pages of the sequence
    int past;                   // tokens before this one
    int positions[3];
};

enum Step { QKV, ATTENTION, OUT, GATE_UP, DOWN, HEAD };

// A block's part of a product: rows `block`, `block` + blocks, ... of the weights. Each is cut into as many pieces as
// there are warps, or a divisor of it, so that a warp always has the same piece of rows, and its numbers of x stay in
// registers.
struct Part {
    const bf16 *weights;
    int rows, groups, pieces, piece_groups;     // groups of eight numbers
    int block_rows, local_rows;
    bool paired;                                // each row with the one `rows` behind it

    __device__ __forceinline__ Part() {}
    __device__ __forceinline__ Part(const bf16 *weights, int rows, int width, bool paired)
        : weights(weights), rows(rows), groups(width / 8), paired(paired) {
        pieces = (groups * 16 + PIECE - 1) / PIECE;
        while (WARPS % pieces) pieces++;        // the host has seen to it that there are not more than warps
        piece_groups = ((groups + pieces - 1) / pieces + 31) / 32 * 32;
        block_rows = (rows - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;
        local_rows = paired ? 2 * block_rows : block_rows;
    }
};

__device__ __forceinline__ Part part_of(const Model &model, const Block &block, int step) {
    int hidden = model.hidden, queries = model.heads * WIDTH;
    switch (step) {
        case QKV: return Part(block.qkv, queries + 2 * model.shared_heads * WIDTH, hidden, false);
        case OUT: return Part(block.out, hidden, queries, false);
        case GATE_UP: return Part(block.gate_up, model.inner, hidden, true);
        case DOWN: return Part(block.down, hidden, model.inner, false);
        default: return Part(model.head, model.vocabulary, hidden, false);
    }
}

// A warp's way through a part.
struct Way {
    int local, piece, begin, length;
    __device__ __forceinline__ Way() {}
    __device__ __forceinline__ Way(const Part &part) {
        int warp = threadIdx.x >> 5;
        local = warp / part.pieces;
        piece = warp % part.pieces;
        begin = min(piece * part.piece_groups, part.groups);
        length = min(part.piece_groups, part.groups - begin);
    }
    __device__ __forceinline__ bool goes_on(const Part &part) const { return length && local < part.local_rows; }
    __device__ __forceinline__ void go_on(const Part &part) { local += WARPS / part.pieces; }
    __device__ __forceinline__ const bf16 *from(const Part &part) const {
        int row = part.paired ? (local >> 1) * (int)gridDim.x + (local & 1) * part.rows : local * (int)gridDim.x;
        return part.weights + ((i64)(row + (int)blockIdx.x) * part.groups + begin) * 8;
    }
};

// The keys and values that a block attends to: tiles of one shared head, which its warps take in turn.
struct Tiles {
    int head, chunk, chunks, begin, end;
    int page;                   // of the warp's tile with this thread's number

    __device__ __forceinline__ Tiles(const Model &model, const Token &token) {
        chunks = gridDim.x / model.shared_heads;
        head = blockIdx.x / chunks;
        chunk = blockIdx.x % chunks;
        i64 tiles = head < model.shared_heads ? (token.past + TILE - 1) / TILE : 0;
        begin = (int)(tiles * chunk / chunks);
        end = (int)(tiles * (chunk + 1) / chunks);
        int warp = threadIdx.x >> 5, mine = begin + warp + (threadIdx.x & 31) * WARPS;
        page = mine < end ? token.table[mine * TILE / model.page_tokens] : 0;
    }

    // Where a token's key is in its page, and its value.
    __device__ __forceinline__ i64 place(const Model &model, i64 page, int token) const {
        return ((page * model.shared_heads + head) * model.page_tokens + token % model.page_tokens) * WIDTH;
    }

    // Where a tile of this warp begins.
    __device__ __forceinline__ i64 place_of(const Model &model, const Token &token, int tile) const {
        int number = (tile - begin) / WARPS, first = tile * TILE;
        return place(model, number < 32 ? __shfl_sync(~0u, page, number) : token.table[first / model.page_tokens], first);
    }
};

// All that a warp needs, piece by piece.
struct Plan {
    int layer, step;
    Part part;
    Way way;
    int tile;
    bool values;                // of the tile, whose keys came before
    i64 place;                  // of the tile in its pages

    // The next piece's place in memory and its bytes; none behind the last.
    __device__ __forceinline__ u32 next(const Model &model, const Token &token, const Block *blocks, const Tiles &tiles,
                                        const bf16 *&from) {
        while (step == ATTENTION ? tile >= tiles.end : !way.goes_on(part)) {
            if (step == HEAD) return 0;
            step++;
            if (step == HEAD && layer + 1 < model.layers) { layer++; step = QKV; }
            begin(model, blocks, tiles);
        }
        if (step != ATTENTION) {
            from = way.from(part);
            way.go_on(part);
            return way.length * 16;
        }
        if (values) tile += WARPS;
        else place = tiles.place_of(model, token, tile);
        from = (values ? blocks[layer].values : blocks[layer].keys) + place;
        values = !values;
        return PIECE;
    }

    __device__ __forceinline__ void begin(const Model &model, const Block *blocks, const Tiles &tiles) {
        if (step == ATTENTION) {
            tile = tiles.begin + (threadIdx.x >> 5);
            values = false;
        } else {
            part = part_of(model, blocks[layer], step);
            way = Way(part);
        }
    }
};

__device__ __forceinline__ u32 shared_address(const void *at) { return (u32)__cvta_generic_to_shared(at); }

__device__ __forceinline__ void wait_for(u32 barrier, u32 parity) {
    asm volatile("{\n.reg .pred there;\nagain:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\n@there bra done;\nbra again;\ndone:\n}"
                 :: "r"(barrier), "r"(parity) : "memory");
}

// A warp's ring.
struct Ring {
    const Model &model;
    const Token &token;
    const Block *blocks;
    const Tiles &tiles;
    char *pieces;
    u32 full;                   // a barrier for each place: its piece has come
    int at;
    u32 parity;                 // of its barriers
    Plan plan;
    const bf16 *from;           // what will be asked for next
    u32 bytes;

    __device__ __forceinline__ Ring(const Model &model, const Token &token, const Block *blocks, const Tiles &tiles,
                                    char *rings, u64 *all_barriers)
        : model(model), token(token), blocks(blocks), tiles(tiles), at(0), parity(0) {
        int warp = threadIdx.x >> 5;
        pieces = rings + warp * STAGES * PIECE;
        full = shared_address(all_barriers + warp * STAGES);
        plan.layer = plan.step = 0;
        plan.begin(model, blocks, tiles);
        look_ahead();
        for (int stage = 0; stage < STAGES; stage++) { ask(stage); look_ahead(); }
    }

    __device__ __forceinline__ void look_ahead() { bytes = plan.next(model, token, blocks, tiles, from); }

    __device__ __forceinline__ void ask(int stage) {
        if ((threadIdx.x & 31) || !bytes) return;
        u32 barrier = full + stage * 8, to = shared_address(pieces + stage * PIECE);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     :: "r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
    }

    // The piece in use, when it is there.
    __device__ __forceinline__ const char *take() {
        wait_for(full + at * 8, parity);
        return pieces + at * PIECE;
    }

    // It has been read. The fence waits for that: reads queue up, and the next piece could come before them.
    __device__ __forceinline__ void pass_on() {
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        ask(at);
        look_ahead();
        if (++at == STAGES) { at = 0; parity ^= 1; }
    }
};
