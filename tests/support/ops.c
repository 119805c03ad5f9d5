// Instances: operands in guarded memory, made from a line of text.
#include "support/ops.h"

#include "base/rng.h"
#include "kernels/ref/tensor.h"
#include "program/places.h"
#include "support/ops_internal.h"

#include <ctype.h>
#include <math.h>

enum { GUARD = 256, FILLER = 0xff, ROW_GAP = 5 };

// ---- reading a case

struct spec {
    const struct op_info *info, *forward; // forward: NULL but for backward ops
    int64_t extent[DIM_LETTERS];
    int64_t first, end; // values of the operands of these names
    union attribute attribute[OP_MAX_ATTRIBUTES], forward_attribute[OP_MAX_ATTRIBUTES];
};

static bool has_letter(const struct op_info *info, char letter) {
    for (int i = 0; i < info->inputs + info->outputs; i++) {
        const struct op_operand *operand = i < info->inputs ? &info->in[i] : &info->out[i - info->inputs];
        if (memchr(operand->dim, letter, (size_t)operand->ndim))
            return true;
    }
    return false;
}

static bool has_input(const struct op_info *info, const char *name) {
    for (int i = 0; i < info->inputs; i++)
        if (strcmp(info->in[i].name, name) == 0)
            return true;
    return false;
}

// The operands whose value a case gives.
static bool set_value(struct spec *spec, const char *name, double value) {
    int64_t *to = strcmp(name, "first") == 0 ? &spec->first : strcmp(name, "end") == 0 ? &spec->end : NULL;
    if (!to || !has_input(spec->info, name))
        return false;
    *to = (int64_t)value;
    return true;
}

static bool set_attribute(const struct op_info *info, union attribute *attribute, const char *name, double value) {
    for (int i = 0; i < info->attributes; i++)
        if (strcmp(info->attribute[i].name, name) == 0) {
            if (info->attribute[i].is_float)
                attribute[i].f = value;
            else
                attribute[i].i = (int64_t)value;
            return true;
        }
    return false;
}

static trireme_status spec_read(struct spec *spec, const struct op_table *table, const char *text,
                                trireme_error *error) {
    char name[32];
    int used = 0;
    if (sscanf(text, "%31s%n", name, &used) != 1 || op_find(table, name) == OP_COUNT)
        FAIL(TRIREME_ERROR_USAGE, "'%s' does not begin with the name of an op", text);
    spec->info = &table->op[op_find(table, name)];
    spec->forward = spec->info->role == ROLE_BACKWARD ? &table->op[spec->info->forward] : NULL;
    for (const char *at = text + used; *at; at += used) {
        double value;
        if (sscanf(at, " %31[a-zA-Z_0-9]=%lf%n", name, &value, &used) != 2)
            FAIL(TRIREME_ERROR_USAGE, "'%s': expected NAME=NUMBER at '%s'", text, at);
        bool known = false;
        if (!name[1] && (has_letter(spec->info, name[0]) || (spec->forward && has_letter(spec->forward, name[0])))) {
            spec->extent[(int)name[0]] = (int64_t)value;
            known = true;
        }
        known |= set_value(spec, name, value);
        known |= set_attribute(spec->info, spec->attribute, name, value);
        if (spec->forward)
            known |= set_attribute(spec->forward, spec->forward_attribute, name, value);
        if (!known)
            FAIL(TRIREME_ERROR_USAGE, "'%s': %s has neither dim nor attribute '%s'", text, spec->info->name, name);
    }
    // The rank's part of a whole that has no extent of its own is all of it.
    for (int l = 'a'; l <= 'z'; l++)
        if (!spec->extent[l] && spec->extent[toupper(l)] && has_letter(spec->info, (char)l))
            spec->extent[l] = spec->extent[toupper(l)];
    spec->extent['1'] = 1;
    return TRIREME_OK;
}

enum op op_case_op(const struct op_table *table, const struct op_case *c) {
    char name[32];
    return sscanf(c->spec, "%31s", name) == 1 ? op_find(table, name) : OP_COUNT;
}

// The bit that says whether an operand is absent: its own, or that of the input with which it is there.
static int deciding(const struct op_info *info, const struct op_operand *operand, int own) {
    static const struct {
        const char *name, *with;
    } TOGETHER[] = {
        {"before_lse", "before"}, {"other_v", "before_v"}, {"sum_v", "before_v"}, {"own_do", "do"}, {"own_lse", "lse"}};
    for (size_t k = 0; k < ARRAY_LENGTH(TOGETHER); k++)
        for (int i = 0; i < info->inputs && strcmp(operand->name, TOGETHER[k].name) == 0; i++)
            if (strcmp(info->in[i].name, TOGETHER[k].with) == 0)
                return i;
    return own;
}

// The remainder of a bf16 parameter is there or not by dtype, not by choice.
unsigned op_optional(const struct op_info *info) {
    unsigned set = 0;
    for (int i = 0; i < info->inputs; i++)
        set |= info->in[i].optional && info->in[i].dtype != 'U' ? 1u << deciding(info, &info->in[i], i) : 0;
    for (int i = 0; i < info->outputs; i++)
        set |= info->out[i].optional && info->out[i].dtype != 'U' ? 1u << deciding(info, &info->out[i], 16 + i) : 0;
    return set;
}

// ---- memory

static enum dtype operand_dtype(char kind, enum dtype model) {
    switch (kind) {
    case 'P':
    case 'X':
        return model;
    case 'A':
        return dtype_accumulate(model);
    case 'S':
        return DTYPE_F64;
    case 'I':
        return DTYPE_I32;
    default:
        return DTYPE_U16;
    }
}

// Activations come in any row stride; weights, statistics and caches are contiguous.
static bool may_be_strided(const struct op_operand *operand) {
    static const char *const contiguous[] = {"w", "wq", "wk", "kc", "vc", "kc1", "vc1"};
    if (operand->dtype != 'P' || operand->ndim < 2)
        return false;
    for (size_t i = 0; i < ARRAY_LENGTH(contiguous); i++)
        if (strcmp(operand->name, contiguous[i]) == 0)
            return false;
    return true;
}

// Shape and strides; false where the case gives no extent for a letter. A row is what one token has: of the operands
// [b,T,h,D] and [m,h,D] all heads.
static bool describe(struct tensor *t, const struct op_operand *operand, const struct spec *spec,
                     const struct op_options *options) {
    *t = (struct tensor){.dtype = operand_dtype(operand->dtype, options->model), .ndim = operand->ndim};
    int64_t step = 1;
    for (int d = operand->ndim - 1; d >= 0; d--) {
        t->dim[d] = spec->extent[(int)operand->dim[d]];
        if (t->dim[d] <= 0)
            return false;
        int first_of_row = operand->ndim == 4 ? 2 : 1;
        t->stride[d] = step;
        step *= t->dim[d];
        if (options->strided && may_be_strided(operand) && d == first_of_row)
            step += ROW_GAP;
    }
    return true;
}

// Elements that a tensor's first one lies behind an aligned address: views begin anywhere.
static int64_t shift(const struct op_operand *operand, const struct op_options *options) {
    return options->strided && may_be_strided(operand) ? 3 : 0;
}

static void memory_create(struct op_memory *memory, size_t bytes) {
    memory->bytes = GUARD + bytes + GUARD;
    memory->base = aligned_alloc(64, round_up(memory->bytes, 64));
    memory->before = malloc(memory->bytes);
    CHECK(memory->base && memory->before);
    memset(memory->base, FILLER, memory->bytes);
}

static void memory_copy(struct op_memory *to, const struct op_memory *from) {
    if (!from->base)
        return;
    memory_create(to, from->bytes - 2 * GUARD);
    memcpy(to->base, from->base, from->bytes);
}

static void memory_release(struct op_memory *memory) {
    free(memory->base);
    free(memory->before);
    *memory = (struct op_memory){0};
}

int64_t tensor_elements(const struct tensor *t) {
    int64_t count = 1;
    for (int d = 0; d < t->ndim; d++)
        count *= t->dim[d];
    return count;
}

int64_t tensor_run(const struct tensor *t) {
    CHECK(t->ndim == 0 || t->stride[t->ndim - 1] == 1);
    return t->ndim == 0 ? 1 : t->dim[t->ndim - 1];
}

int64_t tensor_position(const struct tensor *t, int64_t index) {
    int64_t at = 0;
    for (int d = t->ndim - 1; d >= 0; d--) {
        at += index % t->dim[d] * t->stride[d];
        index /= t->dim[d];
    }
    return at;
}

static size_t extent_bytes(const struct tensor *t) {
    return (size_t)((tensor_position(t, tensor_elements(t) - 1) + 1) * dtype_size(t->dtype));
}

// Gives a tensor guarded memory of its own.
static void place(struct op_memory *memory, struct tensor *t, int64_t first) {
    size_t skipped = (size_t)(first * dtype_size(t->dtype));
    memory_create(memory, skipped + extent_bytes(t));
    t->data = memory->base + GUARD + skipped;
}

// ---- values

// Which places of a sequence the rows of queries have: those of one part, those of all parts after one another (the op
// that attends over them as a whole), or the places from `first` on.
struct query_places {
    struct places places;
    int64_t part, first;
};

static int64_t attribute_value(const struct spec *spec, const char *name, int64_t otherwise) {
    for (int i = 0; i < spec->info->attributes; i++)
        if (strcmp(spec->info->attribute[i].name, name) == 0)
            return spec->attribute[i].i;
    return otherwise;
}

static struct query_places query_places(const struct spec *spec, int64_t rows) {
    const int64_t parts = attribute_value(spec, "parts", 0), layout = attribute_value(spec, "layout", 0);
    if (parts == 0)
        return (struct query_places){{PLACES_CONTIGUOUS, 1, spec->first + rows}, 0, spec->first};
    if (attribute_value(spec, "keys", NONE) == NONE)
        return (struct query_places){{layout, parts, rows / parts}, NONE, 0};
    const int64_t queries = attribute_value(spec, "queries", 0);
    return (struct query_places){{layout, parts, rows}, (spec->first / rows + parts - queries) % parts, 0};
}

static int64_t query_place(const struct query_places *q, int64_t row) {
    if (q->part == NONE)
        return place_of(&q->places, row / q->places.rows, row % q->places.rows);
    return place_of(&q->places, q->part, q->first + row);
}

// Documents of the places from the first query's on, or of all: the first may have begun before.
static void fill_starts(const struct tensor *t, const struct spec *spec, uint64_t seed) {
    const struct query_places q = query_places(spec, t->dim[1]);
    const int64_t places = q.places.parts * q.places.rows;
    int64_t *start = mem_alloc((size_t)places * sizeof *start);
    for (int64_t b = 0; b < t->dim[0]; b++) {
        for (int64_t p = 0; p < q.first; p++)
            start[p] = q.first / 3;
        for (int64_t p = q.first; p < places; p++) {
            const uint64_t at = (uint64_t)(b * (places - q.first) + p - q.first);
            const bool begins = rng_uniform(seed, rng_stream("starts"), at) < 0.15;
            start[p] = begins ? p : p == q.first ? q.first / 3 : start[p - 1];
        }
        for (int64_t i = 0; i < t->dim[1]; i++)
            tensor_set(t, at2(t, b, i), (double)start[query_place(&q, i)]);
    }
    free(start);
}

// Numbers that add up to `rows`; some are 0.
static void fill_counts(const struct tensor *t, int64_t rows, uint64_t seed) {
    const int64_t count = tensor_elements(t);
    for (int64_t i = 0; i < count; i++)
        ((int32_t *)t->data)[i] = 0;
    for (int64_t m = 0; m < rows; m++) {
        const double at = rng_uniform(seed, rng_stream("counts"), (uint64_t)m);
        ((int32_t *)t->data)[(int64_t)(at * at * (double)count)]++;
    }
}

static double scalar_value(const char *name, int64_t n) {
    static const struct {
        const char *name;
        double value;
    } values[] = {{"count", 17},   {"scale", 0.37}, {"sum", 12.5}, {"loss", 2.25},  {"t", 4},
                  {"lr", 0.01},    {"weight", 3},   {"total", 6},  {"factor", 0.7}, {"a", 1.5},
                  {"b", 2.5},      {"c", 0.125},    {"d", 7},      {"e", 0.5},      {"last", 3},
                  {"excess", 0.5}, {"moved", 1.25}, {"since", 1},  {"rounds", 2}};
    for (size_t i = 0; i < ARRAY_LENGTH(values); i++)
        if (strcmp(values[i].name, name) == 0)
            return values[i].value;
    CHECK(strcmp(name, "decayed") == 0);
    return (double)(n - n / 3);
}

// The values of an operand: at_0 + per_u * u for u uniform in [0, 1), perhaps rounded down, at least `least`.
struct range {
    double at_0, per_u;
    bool whole;
    double least;
};

// The range that the operand has by its meaning. Where a table's rows begin at `first`, ids name rows of other ranks
// too, before and behind its own. A fifth of the targets are -1.
static struct range range_of(const struct op_operand *operand, const struct spec *spec) {
    double vocab = 50;
    for (int i = 0; i < spec->info->attributes; i++)
        if (strcmp(spec->info->attribute[i].name, "vocab") == 0)
            vocab = (double)spec->attribute[i].i;
    const double rows = (double)(spec->extent['v'] + 2 * spec->first), positions = (double)spec->extent['S'];
    const struct {
        const char *name;
        struct range range;
    } named[] = {
        {"ids", {0, rows, true, 0}},
        {"first", {(double)spec->first, 0, false, 0}},
        {"end", {(double)spec->end, 0, false, 0}},
        {"pos", {0, positions, true, 0}},
        {"targets", {-0.25 * vocab, 1.25 * vocab, true, -1}},
        {"at", {0, positions > 0 ? positions - (double)spec->extent['m'] + 1 : 3, true, 0}},
        {"given", {0, (double)spec->extent['m'] + 1, true, 0}},
        {"counts", {0, 9, true, 0}},
        {"nll", {-4, 8, false, -4}},
        {"logits", {-4, 8, false, -4}},
        {"picked", {-4, 8, false, -4}},
        {"own", {1, 3, false, 1}}, // maxima, sums, picked
        {"max", {4, 1, false, 4}},
        {"sum", {1, 20, false, 1}},
        {"s", {1, 20, false, 1}},
        {"decay", {-0.3, 0.3, false, -1}},
    };
    const char *name = operand->name;
    if (operand->dtype == 'S')
        return (struct range){scalar_value(name, spec->extent['n']), 0, false, -INFINITY};
    if (operand->dtype == 'U')
        return (struct range){0, 65536, true, 0};
    if (operand->dtype == 'A' &&
        (strcmp(name, "v") == 0 || strcmp(name, "squares") == 0 || strcmp(name, "divisor") == 0))
        return (struct range){0, 0.1, false, 0};
    for (size_t i = 0; i < ARRAY_LENGTH(named); i++)
        if (strcmp(named[i].name, name) == 0)
            return named[i].range;
    return (struct range){-1, 2, false, -1};
}

// Random values; the same for the same seed, whatever the layout.
static void fill(const struct tensor *t, const struct op_operand *operand, const struct spec *spec, uint64_t seed) {
    if (strcmp(operand->name, "starts") == 0) {
        fill_starts(t, spec, seed);
        return;
    }
    if (operand->counts) {
        fill_counts(t, spec->extent[(int)operand->counts], seed);
        return;
    }
    const struct range range = range_of(operand, spec);
    const uint64_t stream = rng_stream(operand->name);
    const int64_t count = tensor_elements(t), run = tensor_run(t);
    for (int64_t i = 0; i < count; i += run) {
        int64_t at = tensor_position(t, i);
        for (int64_t k = 0; k < run; k++) {
            double x = range.at_0 + range.per_u * rng_uniform(seed, stream, (uint64_t)(i + k));
            tensor_set(t, at + k, fmax(range.whole ? floor(x) : x, range.least));
        }
    }
}

void tensor_copy(const struct tensor *from, const struct tensor *to) {
    const int64_t count = tensor_elements(to), run = tensor_run(to);
    for (int64_t i = 0; i < count; i += run) {
        int64_t from_at = tensor_position(from, i), to_at = tensor_position(to, i);
        for (int64_t k = 0; k < run; k++)
            tensor_set(to, to_at + k, tensor_get(from, from_at + k));
    }
}

// ---- instances

static bool is_present(const struct op_operand *operand, const struct op_options *options, int bit) {
    if (operand->optional && operand->dtype == 'U')
        return options->model == DTYPE_BF16;
    return !(operand->optional && options->absent >> bit & 1);
}

static trireme_status create(struct op_instance *instance, const struct spec *spec, const struct op_options *options,
                             trireme_error *error) {
    const struct op_info *info = spec->info;
    *instance = (struct op_instance){.info = info};
    struct spec present = *spec;
    for (int i = 0; i < info->inputs; i++)
        if (strcmp(info->in[i].name, "first") == 0 && !is_present(&info->in[i], options, i))
            present.first = 0;
    spec = &present;
    struct call *call = &instance->call;
    *call = (struct call){.op = info->op, .inputs = info->inputs, .outputs = info->outputs};
    call->threads = options->threads;
    for (int i = 0; i < info->outputs; i++)
        call->accumulate |= options->accumulate && info->out[i].adds;
    memcpy(call->attribute, spec->attribute, sizeof call->attribute);
    for (int i = 0; i < info->inputs; i++) {
        if (!is_present(&info->in[i], options, deciding(info, &info->in[i], i)))
            continue;
        if (!describe(&call->in[i], &info->in[i], spec, options))
            FAIL(TRIREME_ERROR_USAGE, "%s: a dim of %s has no extent", info->name, info->in[i].name);
        place(&instance->in[i], &call->in[i], shift(&info->in[i], options));
        fill(&call->in[i], &info->in[i], spec, options->seed);
    }
    for (int i = 0; i < info->outputs; i++) {
        if (!is_present(&info->out[i], options, deciding(info, &info->out[i], 16 + i)))
            continue;
        if (!describe(&call->out[i], &info->out[i], spec, options))
            FAIL(TRIREME_ERROR_USAGE, "%s: a dim of %s has no extent", info->name, info->out[i].name);
        bool onto = options->accumulate && info->out[i].adds;
        int source = info->inplace[i];
        if (options->inplace && source >= 0 && call->in[source].data && !onto) {
            instance->out[i].shared = &instance->in[source];
            call->out[i].data = call->in[source].data;
            continue;
        }
        place(&instance->out[i], &call->out[i], shift(&info->out[i], options));
        if (onto)
            fill(&call->out[i], &info->out[i], spec, options->seed);
    }
    return TRIREME_OK;
}

struct kernel reference_of(enum op op) {
    return kernel_find(op, DTYPE_F64, KERNELS_REFERENCE);
}

// As op_instance_forward, but that outputs are not computed.
static trireme_status create_forward(struct op_instance *forward, const struct op_table *table, const char *text,
                                     const struct op_options *options, trireme_error *error) {
    struct spec spec = {0};
    *forward = (struct op_instance){0};
    TRY(spec_read(&spec, table, text, error));
    CHECK(spec.forward);
    struct op_options plain = {.model = options->model, .threads = 1, .seed = options->seed};
    for (int i = 0; i < spec.info->inputs; i++) {
        const struct op_reference *read = &spec.info->reads[i];
        if (!read->gradient && !read->output && !is_present(&spec.info->in[i], options, i))
            plain.absent |= 1u << read->index;
    }
    spec.info = spec.forward;
    memcpy(spec.attribute, spec.forward_attribute, sizeof spec.attribute);
    return create(forward, &spec, &plain, error);
}

trireme_status op_instance_forward(struct op_instance *forward, const struct op_table *table, const char *text,
                                   const struct op_options *options, trireme_error *error) {
    TRY(create_forward(forward, table, text, options, error));
    const struct kernel reference = reference_of(forward->info->op);
    return op_instance_run(forward, &reference, error);
}

static bool reads_outputs(const struct op_info *info) {
    for (int i = 0; i < info->inputs; i++)
        if (info->reads[i].output && !info->reads[i].gradient)
            return true;
    return false;
}

trireme_status op_instance_create(struct op_instance *instance, const struct op_table *table, const char *text,
                                  const struct op_options *options, trireme_error *error) {
    struct spec spec = {0};
    *instance = (struct op_instance){0};
    TRY(spec_read(&spec, table, text, error));
    TRY(create(instance, &spec, options, error));
    if (!spec.forward)
        return TRIREME_OK;
    struct op_instance forward;
    trireme_status status = reads_outputs(instance->info) ? op_instance_forward(&forward, table, text, options, error)
                                                          : create_forward(&forward, table, text, options, error);
    for (int i = 0; status == TRIREME_OK && i < instance->info->inputs; i++) {
        const struct op_reference *read = &instance->info->reads[i];
        if (!read->gradient && instance->call.in[i].data)
            tensor_copy(read->output ? &forward.call.out[read->index] : &forward.call.in[read->index],
                        &instance->call.in[i]);
    }
    op_instance_release(&forward);
    return status;
}

// Takes a tensor from its place in one memory to the same place in another.
static void move(struct tensor *t, const struct op_memory *from, const struct op_memory *to) {
    if (t->data)
        t->data = to->base + ((uint8_t *)t->data - from->base);
}

void op_instance_copy(struct op_instance *to, const struct op_instance *from) {
    CHECK(!from->workspace.base && !from->call.prepared);
    *to = (struct op_instance){.info = from->info, .call = from->call};
    for (int i = 0; i < from->info->inputs; i++) {
        memory_copy(&to->in[i], &from->in[i]);
        move(&to->call.in[i], &from->in[i], &to->in[i]);
    }
    for (int i = 0; i < from->info->outputs; i++) {
        const struct op_memory *shared = from->out[i].shared;
        memory_copy(&to->out[i], &from->out[i]);
        if (shared)
            to->out[i].shared = &to->in[shared - from->in];
        move(&to->call.out[i], shared ? shared : &from->out[i], shared ? to->out[i].shared : &to->out[i]);
    }
}

void op_instance_release(struct op_instance *instance) {
    for (int i = 0; i < OP_MAX_IN; i++)
        memory_release(&instance->in[i]);
    for (int i = 0; i < OP_MAX_OUT; i++)
        memory_release(&instance->out[i]);
    memory_release(&instance->workspace);
    *instance = (struct op_instance){0};
}

// ---- running

static void remember(struct op_memory *memory) {
    if (memory->base)
        memcpy(memory->before, memory->base, memory->bytes);
}

// Marks the bytes of a tensor's elements in a map of its memory.
static void allow(uint8_t *allowed, const struct op_memory *memory, const struct tensor *t) {
    size_t size = (size_t)dtype_size(t->dtype);
    size_t from = (size_t)((uint8_t *)t->data - memory->base);
    const int64_t count = tensor_elements(t), run = tensor_run(t);
    for (int64_t i = 0; i < count; i += run)
        memset(allowed + from + (size_t)tensor_position(t, i) * size, 1, (size_t)run * size);
}

// Everything in `memory` but the elements of outputs that lie there must be as it was.
static trireme_status check_untouched(const struct op_instance *instance, const struct op_memory *memory,
                                      const char *name, trireme_error *error) {
    if (!memory->base || memcmp(memory->base, memory->before, memory->bytes) == 0)
        return TRIREME_OK;
    uint8_t *allowed = mem_alloc(memory->bytes);
    for (int i = 0; i < instance->info->outputs; i++)
        if (instance->call.out[i].data && (memory == &instance->out[i] || memory == instance->out[i].shared))
            allow(allowed, memory, &instance->call.out[i]);
    if (memory == &instance->workspace)
        memset(allowed + GUARD, 1, memory->bytes - 2 * GUARD);
    size_t at = 0;
    while (at < memory->bytes && (allowed[at] || memory->base[at] == memory->before[at]))
        at++;
    free(allowed);
    if (at < memory->bytes)
        FAIL(TRIREME_ERROR_CORRUPT,
             "%s wrote where it must not: byte %lld of %s's memory (its first element lies at 0)", instance->info->name,
             (long long)at - GUARD, name);
    return TRIREME_OK;
}

static trireme_status check_instance(const struct op_instance *instance, trireme_error *error) {
    for (int i = 0; i < instance->info->inputs; i++)
        TRY(check_untouched(instance, &instance->in[i], instance->info->in[i].name, error));
    for (int i = 0; i < instance->info->outputs; i++)
        TRY(check_untouched(instance, &instance->out[i], instance->info->out[i].name, error));
    return check_untouched(instance, &instance->workspace, "workspace", error);
}

// As an executor prepares: operands that are there have data that must not be followed, and a call that ever
// accumulates is announced as accumulating.
trireme_status op_instance_prepare(struct op_instance *instance, const struct kernel *kernel, trireme_error *error) {
    struct call blind = instance->call;
    static const char present;
    for (int i = 0; i < blind.inputs; i++)
        blind.in[i].data = blind.in[i].data ? (void *)&present : NULL;
    for (int i = 0; i < blind.outputs; i++) {
        blind.out[i].data = blind.out[i].data ? (void *)&present : NULL;
        blind.accumulate |= instance->info->out[i].adds;
    }
    int64_t bytes = 0;
    if (kernel->prepare)
        TRY(kernel->prepare(&blind, &instance->call.prepared, &bytes, error));
    memory_release(&instance->workspace);
    if (bytes > 0) {
        memory_create(&instance->workspace, (size_t)bytes);
        instance->call.workspace = instance->workspace.base + GUARD;
        instance->call.workspace_bytes = bytes;
    }
    return TRIREME_OK;
}

trireme_status op_instance_run(struct op_instance *instance, const struct kernel *kernel, trireme_error *error) {
    TRY(op_instance_prepare(instance, kernel, error));
    for (int i = 0; i < instance->info->inputs; i++)
        remember(&instance->in[i]);
    for (int i = 0; i < instance->info->outputs; i++)
        remember(&instance->out[i]);
    remember(&instance->workspace);
    kernel->run(&instance->call);
    if (kernel->release && instance->call.prepared)
        kernel->release(instance->call.prepared);
    instance->call.prepared = NULL;
    return check_instance(instance, error);
}
