// What islands do when they meet (ref_take and those after it), with the same bits: in double, each element by
// itself.
#include "kernels/cpu/pointwise.h"

#include "base/bf16.h"
#include "base/math.h"
#include "kernels/codec_loops.h"
#include "kernels/cpu/rows.h"

#include <math.h>

struct average {
    bool bf16;
    const void *p;
    const uint16_t *rem;
    const float *value, *taken, *anchor, *velocity;
    void *p1;
    uint16_t *rem1;
    float *value1, *anchor1, *velocity1;
    double by; // the weight; the total
    double lr, momentum, mix;
    bool nesterov;
};

static struct average average_of(const struct call *call) {
    const struct tensor *p = &call->in[0];
    return (struct average){.bf16 = p->dtype == DTYPE_BF16,
                            .p = p->data,
                            .rem = call->in[1].data,
                            .p1 = call->out[0].data,
                            .rem1 = call->out[1].data};
}

static inline float average_master(const struct average *a, int64_t i, bool bf16) {
    return bf16 ? master_join(((const uint16_t *)a->p)[i], a->rem[i]) : ((const float *)a->p)[i];
}

static inline void average_set(const struct average *a, int64_t i, float x, bool bf16) {
    if (bf16)
        master_split(x, (uint16_t *)a->p1 + i, a->rem1 + i);
    else
        ((float *)a->p1)[i] = x;
}

static inline void take_range(const struct average *a, int64_t from, int64_t to, bool bf16, bool anchor) {
    for (int64_t i = from; i < to; i++) {
        const float x = average_master(a, i, bf16);
        const double known = a->taken ? (double)a->taken[i] : 0;
        a->value1[i] = anchor ? (float)((double)a->anchor[i] - known - (double)x) : x;
    }
}

static void take_elements(const void *args, int64_t from, int64_t to) {
    const struct average *a = args;
    if (a->bf16)
        a->anchor ? take_range(a, from, to, true, true) : take_range(a, from, to, true, false);
    else
        a->anchor ? take_range(a, from, to, false, true) : take_range(a, from, to, false, false);
}

// in: p rem anchor taken; out: taken, which may be the other
void ISA(cpu_take)(const struct call *call) {
    struct average a = average_of(call);
    a.anchor = call->in[2].data;
    a.taken = call->in[3].data;
    a.value1 = call->out[0].data;
    run_split(call, call->in[0].dim[0], call->in[0].dim[0], take_elements, &a);
}

static void weigh_elements(const void *args, int64_t from, int64_t to) {
    const struct average *a = args;
    if (a->by == 0)
        memset(a->value1 + from, 0, (size_t)(to - from) * sizeof *a->value1);
    for (int64_t i = from; i < to && a->by != 0; i++)
        a->value1[i] = (float)(a->by * (double)a->taken[i]);
}

// in: taken weight; out: value total
void ISA(cpu_weigh)(const struct call *call) {
    const struct average a = {
        .taken = call->in[0].data, .value1 = call->out[0].data, .by = *(const double *)call->in[1].data};
    run_split(call, call->in[0].dim[0], call->in[0].dim[0], weigh_elements, &a);
    if (call->out[1].data)
        *(double *)call->out[1].data = a.by;
}

// ---- codes, piece by piece

struct codes {
    enum codec codec;
    int64_t count, islands, stride; // values; codes of one island lie so far behind those of the one before
    const uint8_t *codes[2];        // the islands', and what is from another one
    const double *weight[2];
    const float *value, *taken, *own;
    uint8_t *code;
    float *value1, *taken1;
};

static int64_t code_pieces(const struct codes *c) {
    return divide_up(c->count, CODEC_PIECE);
}

static int64_t piece_count(const struct codes *c, int64_t piece) {
    return MIN(CODEC_PIECE, c->count - piece * CODEC_PIECE);
}

static int64_t code_at(const struct codes *c, int64_t piece) {
    return codec_bytes(c->codec, piece * CODEC_PIECE, false);
}

static void compress_pieces(const void *args, int64_t from, int64_t to) {
    const struct codes *c = args;
    codec_loops(c->codec)->encode(c->taken + from * CODEC_PIECE, MIN(to * CODEC_PIECE, c->count) - from * CODEC_PIECE,
                                  c->code + code_at(c, from));
}

// in: taken; out: code
void ISA(cpu_compress)(const struct call *call) {
    const struct codes c = {.codec = (enum codec)call->attribute[0].i,
                            .count = call->in[0].dim[0],
                            .taken = call->in[0].data,
                            .code = call->out[0].data};
    run_split(call, code_pieces(&c), c.count, compress_pieces, &c);
}

static void weigh_pieces(const void *args, int64_t from, int64_t to) {
    const struct codes *c = args;
    const struct codec_loops *loops = codec_loops(c->codec);
    for (int64_t piece = from; piece < to; piece++) {
        float *value = c->value1 + piece * CODEC_PIECE;
        const int64_t count = piece_count(c, piece);
        memset(value, 0, (size_t)count * sizeof *value);
        for (int of = 0; of < 2 && c->codes[of]; of++)
            for (int64_t r = 0; r < c->islands; r++)
                if (c->weight[of][r] != 0)
                    loops->decode_add(c->codes[of] + r * c->stride + code_at(c, piece), count, (float)c->weight[of][r],
                                      value);
    }
}

// in: codes weight from from_weight; out: value total
void ISA(cpu_weigh_codes)(const struct call *call) {
    const struct codes c = {.codec = (enum codec)call->attribute[0].i,
                            .count = call->out[0].dim[0],
                            .islands = call->in[0].dim[0],
                            .stride = call->in[0].stride[0],
                            .codes = {call->in[0].data, call->in[2].data},
                            .weight = {call->in[1].data, call->in[3].data},
                            .value1 = call->out[0].data};
    run_split(call, code_pieces(&c), c.count, weigh_pieces, &c);
    double total = 0;
    for (int of = 0; of < 2 && c.codes[of]; of++)
        for (int64_t r = 0; r < c.islands; r++)
            total += c.weight[of][r];
    if (call->out[1].data)
        *(double *)call->out[1].data = total;
}

static void eager_pieces(const void *args, int64_t from, int64_t to) {
    const struct codes *c = args;
    const struct codec_loops *loops = codec_loops(c->codec);
    for (int64_t piece = from; piece < to; piece++) {
        uint8_t code[CODEC_PIECE * sizeof(float)];
        float sent[CODEC_PIECE];
        const int64_t at = piece * CODEC_PIECE, count = piece_count(c, piece);
        loops->encode(c->taken + at, count, code);
        loops->decode(code, count, sent);
        for (int64_t i = 0; i < count; i++) {
            c->value1[at + i] = (float)((double)c->value[at + i] + ((double)c->own[at + i] - (double)sent[i]));
            c->taken1[at + i] = c->own[at + i];
        }
    }
}

// in: value taken own; out: fresh taken1, which may be taken
void ISA(cpu_eager)(const struct call *call) {
    const struct codes c = {.codec = (enum codec)call->attribute[0].i,
                            .count = call->in[0].dim[0],
                            .value = call->in[0].data,
                            .taken = call->in[1].data,
                            .own = call->in[2].data,
                            .value1 = call->out[0].data,
                            .taken1 = call->out[1].data};
    run_split(call, code_pieces(&c), c.count, eager_pieces, &c);
}

// Squares are summed in blocks, and these in order: the number of threads does not matter.
enum { MOVED_BLOCK = 4096, MOVED_BLOCKS = 256 };
struct outer_sgd {
    struct average a;
    const float *other; // anchor, or NULL
    double clip, pull;  // `pull` by half of the sum of the weights
    int64_t count, block;
    double *moved; // [blocks]
};

// Returns the sum of the squares of the distance, with `moves`.
static inline double outer_sgd_range(const struct outer_sgd *o, int64_t from, int64_t to, bool momentum, bool moves) {
    const struct average *a = &o->a;
    double squares = 0;
    for (int64_t i = from; i < to; i++) {
        const double pulled = o->other ? o->pull * ((double)a->anchor[i] - (double)o->other[i]) : 0,
                     mean = ((double)a->value[i] + pulled) / a->by,
                     sum = a->momentum * (momentum ? (double)a->velocity[i] : 0) + mean,
                     is = sum > o->clip    ? o->clip
                          : sum < -o->clip ? -o->clip
                                           : sum,
                     step = a->lr * (a->nesterov ? mean + a->momentum * is : is);
        a->anchor1[i] = (float)((double)a->anchor[i] - step);
        if (a->velocity1)
            a->velocity1[i] = (float)is;
        squares += moves ? step * step : 0;
    }
    return squares;
}

static void outer_sgd_blocks(const void *args, int64_t from, int64_t to) {
    const struct outer_sgd *o = args;
    for (int64_t block = from; block < to; block++) {
        const int64_t begin = block * o->block, end = MIN(begin + o->block, o->count);
        o->moved[block] =
            o->a.velocity ? outer_sgd_range(o, begin, end, true, true) : outer_sgd_range(o, begin, end, false, true);
    }
}

static void outer_sgd_elements(const void *args, int64_t from, int64_t to) {
    const struct outer_sgd *o = args;
    o->a.velocity ? outer_sgd_range(o, from, to, true, false) : outer_sgd_range(o, from, to, false, false);
}

// Of `count` elements, where the output is not the input.
static void keep_elements(void *to, const void *from, int64_t count, size_t size) {
    if (to != from)
        memcpy(to, from, (size_t)count * size);
}

// in: anchor value total velocity excess other; out: anchor1 velocity1, which may be anchor and velocity, and moved
void ISA(cpu_outer_sgd)(const struct call *call) {
    double partial[MOVED_BLOCKS], sum = 0, *moved = call->out[2].data;
    const double *excess = call->in[4].data;
    struct outer_sgd o = {.a = {.anchor = call->in[0].data,
                                .value = call->in[1].data,
                                .by = *(const double *)call->in[2].data * (excess ? 1 + *excess : 1),
                                .velocity = call->in[3].data,
                                .anchor1 = call->out[0].data,
                                .velocity1 = call->out[1].data,
                                .lr = call->attribute[0].f,
                                .momentum = call->attribute[1].f,
                                .nesterov = call->attribute[2].i != 0},
                          .other = call->in[5].data,
                          .clip = call->attribute[3].f > 0 ? call->attribute[3].f : INFINITY,
                          .pull = call->attribute[4].f * *(const double *)call->in[2].data / 2,
                          .count = call->in[0].dim[0],
                          .moved = partial};
    if (o.a.by == 0) {
        keep_elements(o.a.anchor1, o.a.anchor, o.count, sizeof *o.a.anchor);
        if (o.a.velocity && o.a.velocity1)
            keep_elements(o.a.velocity1, o.a.velocity, o.count, sizeof *o.a.velocity);
        else if (o.a.velocity1)
            memset(o.a.velocity1, 0, (size_t)o.count * sizeof *o.a.velocity1);
    } else if (moved) {
        const int64_t blocks = blocks_of(o.count, MOVED_BLOCK, MOVED_BLOCKS, &o.block);
        run_split(call, blocks, o.count, outer_sgd_blocks, &o);
        for (int64_t block = 0; block < blocks; block++)
            sum += partial[block];
    } else {
        run_split(call, o.count, o.count, outer_sgd_elements, &o);
    }
    if (moved)
        *moved = (call->accumulate ? *moved : 0) + sum;
}

static inline void settle_range(const struct average *a, int64_t from, int64_t to, bool bf16, bool taken) {
    for (int64_t i = from; i < to; i++) {
        const double x = (double)average_master(a, i, bf16), learnt = taken ? x - (double)a->taken[i] : 0;
        average_set(a, i, (float)((double)a->value[i] / a->by + learnt), bf16);
    }
}

static void settle_elements(const void *args, int64_t from, int64_t to) {
    const struct average *a = args;
    if (a->bf16)
        a->taken ? settle_range(a, from, to, true, true) : settle_range(a, from, to, true, false);
    else
        a->taken ? settle_range(a, from, to, false, true) : settle_range(a, from, to, false, false);
}

// in: p rem value total taken; out: p1 rem1, which may be p and rem
void ISA(cpu_settle)(const struct call *call) {
    struct average a = average_of(call);
    const int64_t count = call->in[0].dim[0];
    a.value = call->in[2].data;
    a.by = *(const double *)call->in[3].data;
    a.taken = call->in[4].data;
    if (a.by != 0) {
        run_split(call, count, count, settle_elements, &a);
        return;
    }
    keep_elements(a.p1, a.p, count, (size_t)dtype_size(call->in[0].dtype));
    if (a.rem1)
        keep_elements(a.rem1, a.rem, count, sizeof *a.rem1);
}

static inline void adopt_range(const struct average *a, int64_t from, int64_t to, bool bf16, bool mix) {
    for (int64_t i = from; i < to; i++) {
        const double y = (double)a->anchor[i] - (a->taken ? (double)a->taken[i] : 0);
        average_set(a, i, (float)(mix ? a->mix * (double)average_master(a, i, bf16) + (1 - a->mix) * y : y), bf16);
    }
}

static void adopt_elements(const void *args, int64_t from, int64_t to) {
    const struct average *a = args;
    if (a->bf16)
        a->mix != 0 ? adopt_range(a, from, to, true, true) : adopt_range(a, from, to, true, false);
    else
        a->mix != 0 ? adopt_range(a, from, to, false, true) : adopt_range(a, from, to, false, false);
}

// in: p rem; out: kept
void ISA(cpu_keep)(const struct call *call) {
    struct average a = average_of(call);
    a.value1 = call->out[0].data;
    run_split(call, call->in[0].dim[0], call->in[0].dim[0], take_elements, &a);
}

// in: p rem kept; out: p1 rem1, which may be p and rem
void ISA(cpu_restore)(const struct call *call) {
    struct average a = average_of(call);
    a.anchor = call->in[2].data;
    run_split(call, call->in[0].dim[0], call->in[0].dim[0], adopt_elements, &a);
}

// in: p rem anchor taken; out: p1 rem1, which may be p and rem
void ISA(cpu_adopt)(const struct call *call) {
    struct average a = average_of(call);
    a.anchor = call->in[2].data;
    a.taken = call->in[3].data;
    a.mix = call->attribute[0].f;
    run_split(call, call->in[0].dim[0], call->in[0].dim[0], adopt_elements, &a);
}

static void squares_elements(const void *args, int64_t from, int64_t to) {
    const struct average *a = args;
    weigh_elements(args, from, to);
    memset(a->velocity1 + from, 0, (size_t)(to - from) * sizeof *a->velocity1);
}

// in: squares weight t since; out: value total squares1, which may be squares
void ISA(cpu_weigh_squares)(const struct call *call) {
    const struct average a = {.taken = call->in[0].data,
                              .value1 = call->out[0].data,
                              .velocity1 = call->out[2].data,
                              .by = *(const double *)call->in[1].data};
    const double *t = call->in[2].data, *since = call->in[3].data;
    run_split(call, call->in[0].dim[0], call->in[0].dim[0], squares_elements, &a);
    if (call->out[1].data)
        *(double *)call->out[1].data = a.by * ((t ? *t : 0) - (since ? *since : 0));
}

static void rescale_elements(const void *args, int64_t from, int64_t to) {
    const struct average *a = args;
    for (int64_t i = from; i < to; i++) {
        const double d = (double)a->anchor[i];
        a->anchor1[i] = (float)sqrt(a->mix * (d * d) + (1 - a->mix) * ((double)a->value[i] / a->by));
    }
}

// in: divisor squares total rounds; out: divisor1, which may be divisor
void ISA(cpu_rescale)(const struct call *call) {
    const double beta = call->attribute[0].f, power = math_pow(beta, *(const double *)call->in[3].data + 1);
    const struct average a = {.anchor = call->in[0].data,
                              .value = call->in[1].data,
                              .by = *(const double *)call->in[2].data,
                              .anchor1 = call->out[0].data,
                              .mix = (beta - power) / (1 - power)};
    const int64_t count = call->in[0].dim[0];
    if (a.by == 0)
        keep_elements(a.anchor1, a.anchor, count, sizeof *a.anchor);
    else
        run_split(call, count, count, rescale_elements, &a);
}
