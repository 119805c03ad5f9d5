#include "parallel/recompute.h"

#include "parallel/rewrite.h"

struct recomputation {
    struct program *program;
    struct rewrite backward;
    const struct op_table *table;
    const struct recompute_layers *layers;
    const struct template *forward;
    int *replaced; // [known]: the buffer that holds the recomputed value, or NONE
    size_t known;  // how many buffers there were before the rewrite
    bool *chosen;  // [forward instructions]: selective recomputation runs it again, although that costs operations
    // By root buffer: the forward instructions that write it or a slice of it are maker[first_maker[b]] up to
    // maker[first_maker[b + 1]].
    int *first_maker, *maker;
    int *reader; // by root buffer: the one layer whose forward reads it or a slice of it, or UNREAD or MANY
    bool *rows;  // by root buffer: it says how many rows there are, as other ranks have been told
};

static enum config_recompute mode_of(const struct recomputation *r, const struct instruction *f) {
    const struct recompute_layers *l = r->layers;
    int place = f->layer - l->first;
    if (f->layer == NONE || place < 0 || place >= l->full + l->selective)
        return l->rest;
    return place < l->full ? CONFIG_RECOMPUTE_FULL : CONFIG_RECOMPUTE_SELECTIVE;
}

enum { UNREAD = -3, MANY = -2 }; // in `reader`

static void find_readers(struct recomputation *r) {
    r->reader = mem_alloc(r->known * sizeof *r->reader);
    for (size_t b = 0; b < r->known; b++)
        r->reader[b] = UNREAD;
    for (size_t i = 0; i < r->forward->instructions.count; i++) {
        const struct instruction *f = &r->forward->instructions.item[i];
        for (int k = 0; k < f->inputs; k++) {
            if (f->in[k].buffer == NONE)
                continue;
            int *reader = &r->reader[program_root(r->program, f->in[k].buffer)];
            *reader = *reader == UNREAD || *reader == f->layer ? f->layer : MANY;
        }
    }
}

static void recompute_find_rows(struct recomputation *r) {
    r->rows = mem_alloc(r->known * sizeof *r->rows);
    for (size_t i = 0; i < r->forward->instructions.count; i++) {
        const struct instruction *f = &r->forward->instructions.item[i];
        for (int k = 0; k < f->inputs + f->outputs; k++) {
            const int extent = instruction_extent_at(r->program, f, k);
            if (extent != NONE)
                r->rows[program_root(r->program, extent)] = true;
            if (op_operand_at(&r->table->op[f->op], k)->counts)
                r->rows[program_root(r->program, f->in[k].buffer)] = true;
        }
    }
}

// An instruction that writes a buffer twice is listed twice.
static void find_makers(struct recomputation *r) {
    size_t count = r->forward->instructions.count;
    r->first_maker = mem_alloc((r->known + 1) * sizeof *r->first_maker);
    r->maker = mem_alloc((count * OP_MAX_OUT + 1) * sizeof *r->maker);
    for (int writes = 0; writes < 2; writes++) { // counts first
        for (size_t i = count; i-- > 0;) {
            const struct instruction *f = &r->forward->instructions.item[i];
            for (int k = 0; k < f->outputs; k++)
                if (f->out[k].buffer != NONE && writes)
                    r->maker[--r->first_maker[program_root(r->program, f->out[k].buffer)]] = (int)i;
                else if (f->out[k].buffer != NONE)
                    r->first_maker[program_root(r->program, f->out[k].buffer)]++;
        }
        for (size_t b = 1; b <= r->known && !writes; b++)
            r->first_maker[b] += r->first_maker[b - 1];
    }
}

// Whether some other layer of the forward pass reads `root` or a slice of it.
static bool leaves_layer(const struct recomputation *r, int root, int layer) {
    return r->reader[root] != UNREAD && r->reader[root] != layer;
}

// Whether the op passes the residual stream on: making that again would need all layers before it.
static bool continues_stream(const struct op_info *info) {
    for (int i = 0; i < info->inputs; i++)
        if (info->identity[i])
            return true;
    return false;
}

// Whether the op works on each element of its output some fixed number of times.
static bool is_pointwise(const struct op_info *info) {
    const char *s = info->flops + strspn(info->flops, "0123456789");
    size_t letters = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
    return letters > 0 && s[letters] == 0 && (int)letters == info->out[0].ndim;
}

static bool recompute_is_kept(const struct recomputation *r, size_t instruction) {
    const struct instruction *f = &r->forward->instructions.item[instruction];
    const struct op_info *info = &r->table->op[f->op];
    if (r->chosen[instruction])
        return false;
    if (continues_stream(info))
        return true;
    // Except in mode none, gathers are repeated: what comes from a group of ranks is the largest part of what would be
    // kept.
    return !is_pointwise(info) && (mode_of(r, f) == CONFIG_RECOMPUTE_NONE || f->op != OP_ALL_GATHER);
}

// Where ranks share sequences, attention is what takes longest, and communicates: what it makes is kept in every mode
// (Li et al., "DistFlashAttn", arXiv 2310.03294, section 3.3).
static bool keeps_attention(const struct recomputation *r, const struct instruction *f) {
    return r->table->op[f->op].family == FAMILY_ATTENTION && mesh_present(&r->program->mesh, AXES_PARTS);
}

// Whether backward may not read `root` and must compute it again.
static bool recompute_dropped(const struct recomputation *r, int root) {
    if (r->program->buffers.item[root].kind != KIND_ACT || r->rows[root])
        return false;
    if (r->first_maker[root] == r->first_maker[root + 1])
        return false; // the forward template does not make it
    int first = r->maker[r->first_maker[root]];
    const struct instruction *f = &r->forward->instructions.item[first];
    if ((f->layer == NONE && r->layers->at_once) || keeps_attention(r, f))
        return false;
    return mode_of(r, f) == CONFIG_RECOMPUTE_FULL ? !leaves_layer(r, root, f->layer)
                                                  : !recompute_is_kept(r, (size_t)first);
}

static int recompute_replace(struct recomputation *r, int buffer);

static void replace_inputs(struct recomputation *r, struct instruction *instruction) {
    for (int i = 0; i < instruction->inputs; i++)
        if (instruction->in[i].buffer != NONE)
            instruction->in[i].buffer = recompute_replace(r, instruction->in[i].buffer);
}

// The buffer for what is computed again; a slice is one of its root's.
static int recompute_again(struct recomputation *r, int buffer) {
    if (r->replaced[buffer] == NONE) {
        const int root = program_root(r->program, buffer), parent = root == buffer ? NONE : recompute_again(r, root);
        r->replaced[buffer] = program_again(r->program, buffer, parent);
    }
    return r->replaced[buffer];
}

static void replace_root(struct recomputation *r, int root) {
    if (r->replaced[root] != NONE)
        return;
    for (int m = r->first_maker[root], before = NONE; m < r->first_maker[root + 1]; before = r->maker[m++]) {
        if (r->maker[m] == before)
            continue;
        struct instruction f = r->forward->instructions.item[r->maker[m]];
        program_give_operands(r->program, &f, f.inputs, f.in, f.outputs, f.out);
        replace_inputs(r, &f);
        for (int k = 0; k < f.outputs; k++)
            if (f.out[k].buffer != NONE)
                f.out[k].buffer = recompute_again(r, f.out[k].buffer);
        f.phase = PHASE_BACKWARD;
        VEC_PUSH(&r->backward.out, f);
    }
}

static int recompute_replace(struct recomputation *r, int buffer) {
    if ((size_t)buffer >= r->known)
        return buffer;
    int root = program_root(r->program, buffer);
    if (!recompute_dropped(r, root))
        return buffer;
    replace_root(r, root);
    return recompute_again(r, buffer);
}

// ---- choosing what selective recomputation runs again

// The share of a step's operations that it may add: with everything else that a step does, less than a twentieth of its
// time.
static const double BUDGET = 0.03;

struct candidate {
    size_t instruction;
    double cost, gain; // operations; bytes that need not be kept
};

// In operations of matrix products: attention does half as many operations in the same time.
static double recompute_cost_of(const struct recomputation *r, const struct instruction *in) {
    bool attends = r->table->op[in->op].family == FAMILY_ATTENTION;
    return instruction_flops(r->program, r->table, in) * (attends ? 2 : 1);
}

// The cost of all instructions in mode selective.
static double cost_of_all(const struct recomputation *r, const struct template *t) {
    double cost = 0;
    for (size_t i = 0; i < t->instructions.count; i++)
        if (mode_of(r, &t->instructions.item[i]) == CONFIG_RECOMPUTE_SELECTIVE)
            cost += recompute_cost_of(r, &t->instructions.item[i]);
    return cost;
}

// Bytes that the instruction made and backward reads; 0 where they cannot be made again inside the layer.
static double gain_of(const struct recomputation *r, const struct instruction *f, const bool *is_read) {
    const struct op_info *info = &r->table->op[f->op];
    double gain = 0;
    for (int i = 0; i < f->inputs; i++)
        if (info->identity[i] && f->in[i].buffer != NONE)
            return 0;
    for (int i = 0; i < f->outputs; i++) {
        int root = f->out[i].buffer == NONE ? NONE : program_root(r->program, f->out[i].buffer);
        if (root == NONE)
            continue;
        const struct buffer *b = &r->program->buffers.item[root];
        if (b->kind != KIND_ACT || leaves_layer(r, root, f->layer))
            return 0;
        gain += is_read[root] ? (double)buffer_bytes(b) : 0;
    }
    return gain;
}

static int compare_candidates(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    double first = x->gain * y->cost, second = y->gain * x->cost;
    return COMPARE(second, first) ?: COMPARE(x->instruction, y->instruction);
}

// Chooses greedily within the budget: first what saves most bytes for its cost; of equals the earliest, which is run
// again when little else is still kept.
static void recompute_choose(struct recomputation *r, const struct template *backward) {
    VEC(struct candidate) candidates = {0};
    bool *is_read = mem_alloc(r->known * sizeof *is_read);
    for (size_t i = 0; i < backward->instructions.count; i++) {
        const struct instruction *in = &backward->instructions.item[i];
        for (int k = 0; k < in->inputs; k++)
            if (in->in[k].buffer != NONE)
                is_read[program_root(r->program, in->in[k].buffer)] = true;
    }
    for (size_t i = 0; i < r->forward->instructions.count; i++) {
        const struct instruction *f = &r->forward->instructions.item[i];
        const struct op_info *info = &r->table->op[f->op];
        if (f->layer == NONE || mode_of(r, f) != CONFIG_RECOMPUTE_SELECTIVE || info->role == ROLE_COMMUNICATION ||
            is_pointwise(info) || keeps_attention(r, f))
            continue;
        struct candidate c = {i, recompute_cost_of(r, f), gain_of(r, f, is_read)};
        if (c.cost > 0 && c.gain > 0)
            VEC_PUSH(&candidates, c);
    }
    VEC_SORT(&candidates, compare_candidates);
    double left = BUDGET * (cost_of_all(r, r->forward) + cost_of_all(r, backward));
    for (size_t i = 0; i < candidates.count; i++)
        if (candidates.item[i].cost <= left) {
            r->chosen[candidates.item[i].instruction] = true;
            left -= candidates.item[i].cost;
        }
    free(is_read);
    VEC_RELEASE(&candidates);
}

void recompute_rewrite(struct program *program, const struct op_table *table, int forward, int backward,
                       const struct recompute_layers *layers) {
    struct recomputation r = {
        .program = program, .table = table, .layers = layers, .forward = &program->templates.item[forward]};
    r.known = program->buffers.count;
    r.replaced = mem_alloc(r.known * sizeof(int));
    for (size_t i = 0; i < r.known; i++)
        r.replaced[i] = NONE;
    r.chosen = mem_alloc((r.forward->instructions.count + 1) * sizeof *r.chosen);
    find_readers(&r);
    recompute_find_rows(&r);
    find_makers(&r);
    const struct template *b = &program->templates.item[backward];
    recompute_choose(&r, b);
    rewrite_begin(&r.backward, program, backward);
    for (size_t i = 0; i < b->instructions.count; i++) {
        struct instruction instruction = b->instructions.item[i];
        replace_inputs(&r, &instruction);
        VEC_PUSH(&r.backward.out, instruction);
    }
    rewrite_finish(&r.backward);
    free(r.replaced);
    free(r.chosen);
    free(r.reader);
    free(r.rows);
    free(r.first_maker);
    free(r.maker);
}
