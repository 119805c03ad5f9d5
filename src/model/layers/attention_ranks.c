#include "model/layers/attention_ranks.h"

struct operand attention_heads_of(const struct emitter *e, int qkv, int64_t length, int64_t first, int64_t heads) {
    int64_t width = e->program->buffers.item[qkv].dim[1], size = e->config->head_dim;
    struct operand view = {.buffer = qkv, .offset = first * size, .ndim = 4};
    memcpy(view.dim, (int64_t[]){e->batch->sequences, length, heads, size}, 4 * sizeof(int64_t));
    memcpy(view.stride, (int64_t[]){length * width, width, size, 1}, 4 * sizeof(int64_t));
    return view;
}

// Sequence `number` of a buffer that has `length` rows of each.
static int ranks_sequence_of(const struct emitter *e, int buffer, int64_t number, int64_t length) {
    const struct buffer b = e->program->buffers.item[buffer];
    if (e->batch->sequences == 1)
        return buffer;
    char *name = mem_printf("%s.%lld", b.name, (long long)number);
    int slice = program_slice(e->program, buffer, name, number * length * b.dim[1], 2, (int64_t[]){length, b.dim[1]});
    free(name);
    return slice;
}

struct projections attention_gather(struct emitter *e, int layer, struct projections in) {
    const struct model_config *c = e->config;
    const int64_t heads = 2 * e->split->kv_heads, width = heads * c->head_dim;
    int own = in.others;
    if (in.queries == in.others) {
        own = emit_new_activation(e, layer, "attention.kv.own", emit_row_count(e), width);
        const int64_t dim[3] = {e->batch->sequences, e->seq_rows, width};
        const struct operand packed = attention_heads_of(e, in.others, e->seq_rows, e->split->heads, heads);
        struct operand from = {.buffer = packed.buffer, .offset = packed.offset, .ndim = 3};
        memcpy(from.dim, dim, sizeof dim);
        memcpy(from.stride, (int64_t[]){packed.stride[0], packed.stride[1], 1}, sizeof dim);
        emit_forward(e, OP_COPY, layer, 1, &from, 1,
                     (struct operand[]){operand_shape(emit_whole_operand(e, own), 3, dim)}, NULL);
    }
    const int64_t rows = e->places.parts * e->seq_rows;
    int all = emit_new_activation(e, layer, "attention.kv.all", e->batch->sequences * rows, width);
    for (int64_t s = 0; s < e->batch->sequences; s++)
        program_communicate(e->program, e->template, OP_ALL_GATHER, PHASE_FORWARD, tensor_stream(e->program),
                            AXES_PARTS, emit_whole_operand(e, ranks_sequence_of(e, own, s, e->seq_rows)),
                            emit_whole_operand(e, ranks_sequence_of(e, all, s, rows)))
            ->layer = layer;
    return (struct projections){in.queries, all, in.rows, rows, in.heads, in.kv_heads};
}

// ---- tokens for heads

// Which heads each of `parts` ranks has: neighbours, as many as any other or one less, for which the last one stands
// twice; and of keys and values those that they see, one for each `heads / kv_heads` of queries.
struct shares {
    int64_t parts, heads, kv_heads;
    int64_t all, all_kv;
    int64_t size; // of a head
};

static int64_t first_head(const struct shares *s, int64_t part) {
    return part * s->all / s->parts;
}

// Head number `head` of a rank's queries, of those that there are, and of its keys.
static int64_t query_head(const struct shares *s, int64_t part, int64_t head) {
    return MIN(first_head(s, part) + head, first_head(s, part + 1) - 1);
}

static int64_t key_head(const struct shares *s, int64_t part, int64_t head) {
    return query_head(s, part, head * (s->heads / s->kv_heads)) / (s->all / s->all_kv);
}

// Whether all queries for which a rank has one head of keys see that one.
static bool sees_own_keys(const struct shares *s) {
    for (int64_t j = 0; j < s->parts; j++)
        for (int64_t m = 0; m < s->heads; m++)
            if (query_head(s, j, m) / (s->all / s->all_kv) != key_head(s, j, m / (s->heads / s->kv_heads)))
                return false;
    return true;
}

static struct shares shares_of(const struct emitter *e, int64_t heads, int64_t kv_heads) {
    struct shares s = {.parts = mesh_group_size(&e->program->mesh, e->exchange),
                       .kv_heads = 1,
                       .all = heads,
                       .all_kv = kv_heads,
                       .size = e->config->head_dim};
    s.heads = divide_up(heads, s.parts);
    while (s.heads % s.kv_heads || !sees_own_keys(&s))
        s.kv_heads++;
    return s;
}

// Some columns of the rows of one sequence: where they begin in a buffer, and elements from row to row.
struct columns {
    int buffer;
    int64_t offset, row;
};

static void copy_columns(struct emitter *e, int layer, struct columns from, struct columns to, int64_t count) {
    const struct columns side[2] = {from, to};
    struct operand view[2];
    for (int i = 0; i < 2; i++) {
        view[i] = (struct operand){.buffer = side[i].buffer, .offset = side[i].offset, .ndim = 3};
        memcpy(view[i].dim, (int64_t[]){1, e->seq_rows, count}, 3 * sizeof(int64_t));
        memcpy(view[i].stride, (int64_t[]){e->seq_rows * side[i].row, side[i].row, 1}, 3 * sizeof(int64_t));
    }
    emit_forward(e, OP_COPY, layer, 1, &view[0], 1, &view[1], NULL);
}

// Copies heads of one sequence into pieces, each rank's into its own: `head_of` says which. Those of a piece that are
// neighbours, as all are then, go together; else each goes by itself, so that all copies are alike.
static void copy_heads_into(struct emitter *e, int layer, const struct shares *s, struct columns from,
                            struct columns to, int64_t heads,
                            int64_t (*head_of)(const struct shares *, int64_t, int64_t)) {
    bool neighbours = true;
    for (int64_t j = 0; j < s->parts; j++)
        for (int64_t m = 0; m < heads; m++)
            neighbours &= head_of(s, j, m) == head_of(s, j, 0) + m;
    const int64_t run = neighbours ? heads : 1, piece = e->seq_rows * to.row;
    for (int64_t j = 0; j < s->parts; j++)
        for (int64_t m = 0; m < heads; m += run)
            copy_columns(e, layer, (struct columns){from.buffer, from.offset + head_of(s, j, m) * s->size, from.row},
                         (struct columns){to.buffer, to.offset + j * piece + m * s->size, to.row}, run * s->size);
}

// Piece j of each rank goes to rank j: of a buffer that has `parts` of them for each sequence, [rows, columns] each.
static int exchange_pieces(struct emitter *e, int layer, int pieces, const char *result, int64_t columns) {
    const int64_t rows = e->places.rows, dim[3] = {rows / e->seq_rows, e->seq_rows, columns};
    const int out = emit_new_activation(e, layer, result, e->batch->sequences * rows, columns);
    for (int64_t s = 0; s < e->batch->sequences; s++) {
        struct operand view[2];
        const int buffer[2] = {pieces, out};
        for (int i = 0; i < 2; i++)
            view[i] = operand_shape(emit_whole_operand(e, ranks_sequence_of(e, buffer[i], s, rows)), 3, dim);
        struct instruction *i =
            program_emit(e->program, e->template, OP_ALL_TO_ALL, PHASE_FORWARD, layer, 1, &view[0], 1, &view[1], NULL);
        i->stream = tensor_stream(e->program);
        i->group = e->exchange;
    }
    return out;
}

static int64_t width_of(const struct emitter *e, int buffer) {
    return e->program->buffers.item[buffer].dim[1];
}

struct projections attention_exchange(struct emitter *e, int layer, struct projections own) {
    const struct shares s = shares_of(e, own.heads, own.kv_heads);
    const int64_t rows = e->places.rows, q_width = width_of(e, own.queries), kv_width = width_of(e, own.others),
                  first = own.queries == own.others ? own.heads : 0, q_columns = s.heads * s.size,
                  kv_columns = 2 * s.kv_heads * s.size;
    const int q = emit_new_activation(e, layer, "attention.q.pieces", e->batch->sequences * rows, q_columns),
              kv = emit_new_activation(e, layer, "attention.kv.pieces", e->batch->sequences * rows, kv_columns);
    for (int64_t n = 0; n < e->batch->sequences; n++) {
        struct columns from = {own.others, n * e->seq_rows * kv_width + first * s.size, kv_width},
                       to = {kv, n * rows * kv_columns, kv_columns};
        copy_heads_into(e, layer, &s, (struct columns){own.queries, n * e->seq_rows * q_width, q_width},
                        (struct columns){q, n * rows * q_columns, q_columns}, s.heads, query_head);
        copy_heads_into(e, layer, &s, from, to, s.kv_heads, key_head);
        from.offset += own.kv_heads * s.size;
        to.offset += s.kv_heads * s.size;
        copy_heads_into(e, layer, &s, from, to, s.kv_heads, key_head);
    }
    const int queries = exchange_pieces(e, layer, q, "attention.q.exchanged", q_columns),
              others = exchange_pieces(e, layer, kv, "attention.kv.exchanged", kv_columns);
    return (struct projections){queries, others, rows, rows, s.heads, s.kv_heads};
}

int attention_return(struct emitter *e, int layer, int made, const struct projections *own) {
    const struct shares s = shares_of(e, own->heads, own->kv_heads);
    const int64_t columns = s.heads * s.size, width = s.parts * columns, rows = emit_row_count(e);
    const int pieces = exchange_pieces(e, layer, made, "attention.returned", columns),
              all = emit_new_activation(e, layer, s.heads * s.parts > s.all ? "attention.padded" : "attention.heads",
                                        rows, width);
    for (int64_t n = 0; n < e->batch->sequences; n++)
        for (int64_t j = 0; j < s.parts; j++)
            copy_columns(e, layer, (struct columns){pieces, (n * s.parts + j) * e->seq_rows * columns, columns},
                         (struct columns){all, n * e->seq_rows * width + j * columns, width}, columns);
    if (s.heads * s.parts == s.all)
        return all;
    const int64_t own_width = s.all * s.size;
    const int o = emit_new_activation(e, layer, "attention.heads", rows, own_width);
    for (int64_t n = 0; n < e->batch->sequences; n++)
        for (int64_t j = 0; j < s.parts; j++)
            for (int64_t head = first_head(&s, j); head < first_head(&s, j + 1); head++)
                copy_columns(
                    e, layer,
                    (struct columns){all, n * e->seq_rows * width + j * columns + (head - first_head(&s, j)) * s.size,
                                     width},
                    (struct columns){o, n * e->seq_rows * own_width + head * s.size, own_width}, s.size);
    return o;
}
