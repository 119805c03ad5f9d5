// Reads the text form that print.c describes. Everything is bounded; what is well formed but unsound is left to the
// verifier.
#include "program/names.h"

#include <ctype.h>
#include <errno.h>

enum {
    MAX_BUFFERS = 1 << 22,
    MAX_INSTRUCTIONS = 1 << 24,
    MAX_TEMPLATES = 1 << 16,
    MAX_TERMS = 1 << 16,
    MAX_SETS = 1 << 20,
    MAX_POOLS = 1 << 12,
    MAX_INVOCATIONS = 1 << 24
};

struct parser {
    const char *at, *end; // within the current line
    int line;
    const struct op_table *table;
    struct program *program;
    size_t instructions;
    trireme_error *error;
};

#define BAD(p, ...) return parse_bad(p, __VA_ARGS__)

static trireme_status parse_bad(struct parser *p, const char *expected) {
    int n = (int)MIN(p->end - p->at, 40);
    return error_set(p->error, TRIREME_ERROR_CORRUPT, "line %d: expected %s, found \"%.*s\"", p->line, expected, n,
                     p->at);
}

static void parse_skip(struct parser *p) {
    while (p->at < p->end && *p->at == ' ')
        p->at++;
}

static bool parse_accept(struct parser *p, char c) {
    if (p->at >= p->end || *p->at != c)
        return false;
    p->at++;
    return true;
}

// The next word, if it is `word`.
static bool accept_word(struct parser *p, const char *word) {
    parse_skip(p);
    size_t n = strlen(word);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, word, n) != 0 ||
        (p->at + n < p->end && isalnum((unsigned char)p->at[n])))
        return false;
    p->at += n;
    return true;
}

static trireme_status parse_number(struct parser *p, int64_t low, int64_t high, int64_t *out) {
    parse_skip(p);
    char digits[24];
    size_t n = 0;
    const char *at = p->at;
    if (at < p->end && *at == '-')
        digits[n++] = *at++;
    while (at < p->end && isdigit((unsigned char)*at) && n + 1 < sizeof digits)
        digits[n++] = *at++;
    digits[n] = 0;
    char *stop;
    errno = 0;
    long long value = strtoll(digits, &stop, 10);
    if (n == 0 || *stop || stop == digits || errno || value < low || value > high)
        BAD(p, "a number in range");
    p->at = at;
    *out = value;
    return TRIREME_OK;
}

static trireme_status parse_integer(struct parser *p, int64_t low, int64_t high, int *out) {
    int64_t value;
    TRY(parse_number(p, low, high, &value));
    *out = (int)value;
    return TRIREME_OK;
}

static trireme_status real(struct parser *p, double *out) {
    parse_skip(p);
    char digits[40];
    size_t n = 0;
    while (p->at + n < p->end && p->at[n] != ' ' && n + 1 < sizeof digits) {
        digits[n] = p->at[n];
        n++;
    }
    digits[n] = 0;
    char *stop;
    *out = strtod(digits, &stop);
    if (n == 0 || *stop)
        BAD(p, "a number");
    p->at += n;
    return TRIREME_OK;
}

static trireme_status parse_word(struct parser *p, char *out, size_t size, const char *what) {
    parse_skip(p);
    size_t n = 0;
    while (p->at + n < p->end && (isalnum((unsigned char)p->at[n]) || p->at[n] == '_') && n + 1 < size) {
        out[n] = p->at[n];
        n++;
    }
    out[n] = 0;
    if (n == 0)
        BAD(p, what);
    p->at += n;
    return TRIREME_OK;
}

static trireme_status parse_choice(struct parser *p, const char *const *words, int count, const char *what, int *out) {
    char text[24];
    const char *start = p->at;
    TRY(parse_word(p, text, sizeof text, what));
    for (int i = 0; i < count; i++)
        if (strcmp(words[i], text) == 0) {
            *out = i;
            return TRIREME_OK;
        }
    p->at = start;
    BAD(p, what);
}

static trireme_status quoted(struct parser *p, char **out) {
    parse_skip(p);
    const char *start = p->at + 1;
    if (!parse_accept(p, '"'))
        BAD(p, "a name in quotes");
    while (p->at < p->end && *p->at != '"')
        p->at++;
    size_t n = (size_t)(p->at - start);
    if (!parse_accept(p, '"'))
        BAD(p, "a closing quote");
    *out = mem_alloc(n + 1);
    memcpy(*out, start, n);
    return TRIREME_OK;
}

static trireme_status parse_dims(struct parser *p, char open, char close, int *ndim, int64_t *dim) {
    if (!parse_accept(p, open))
        BAD(p, "extents");
    int n = 0;
    do {
        if (n == OP_MAX_DIMS)
            BAD(p, "at most four extents");
        TRY(parse_number(p, 0, INT64_MAX, &dim[n++]));
    } while (parse_accept(p, ','));
    if (!parse_accept(p, close))
        BAD(p, "the end of the extents");
    *ndim = n;
    return TRIREME_OK;
}

static trireme_status buffer_number(struct parser *p, int *out) {
    parse_skip(p);
    if (!parse_accept(p, '%'))
        BAD(p, "a buffer");
    return parse_integer(p, 0, MAX_BUFFERS, out);
}

static trireme_status end_of_line(struct parser *p) {
    parse_skip(p);
    if (p->at != p->end)
        BAD(p, "the end of the line");
    return TRIREME_OK;
}

static trireme_status read_axes(struct parser *p, axis_set *out) {
    parse_skip(p);
    size_t n = 0;
    while (p->at + n < p->end &&
           (islower((unsigned char)p->at[n]) || isdigit((unsigned char)p->at[n]) || p->at[n] == '+' || p->at[n] == '.'))
        n++;
    if (!axes_parse(p->at, n, out))
        BAD(p, "axes of the mesh");
    p->at += n;
    return TRIREME_OK;
}

static trireme_status one_axis(struct parser *p, int *out) {
    const char *start = p->at;
    axis_set set;
    TRY(read_axes(p, &set));
    for (int a = 0; a < AXIS_COUNT; a++)
        if (set == AXES(a)) {
            *out = a;
            return TRIREME_OK;
        }
    p->at = start;
    BAD(p, "one axis of the mesh");
}

// ---- lines

static trireme_status parse_placement(struct parser *p, struct buffer *b) {
    while (accept_word(p, "place")) {
        int axis = 0, dim = 0;
        TRY(one_axis(p, &axis));
        if (accept_word(p, "sum")) {
            b->placement[axis] = PLACE_SUM;
        } else if (accept_word(p, "max")) {
            b->placement[axis] = PLACE_MAX;
        } else if (accept_word(p, AXES(axis) & AXES_STAGE ? "stage" : "own")) {
            b->placement[axis] = PLACE_OWN;
        } else {
            TRY(parse_integer(p, 0, b->ndim - 1, &dim));
            b->placement[axis] = PLACE_SHARD(dim);
        }
    }
    return TRIREME_OK;
}

// The number of the space that is named next, which is not the first; SPACE_COUNT: none is.
static enum memory_space accept_space(struct parser *p) {
    for (int s = SPACE_DEVICE + 1; s < SPACE_COUNT; s++)
        if (accept_word(p, memory_spaces[s].name))
            return (enum memory_space)s;
    return SPACE_COUNT;
}

static trireme_status parse_buffer(struct parser *p) {
    struct buffer b = {
        .parent = NONE, .gradient_of = NONE, .recomputes = NONE, .belongs_to = NONE, .extent = NONE, .offset = -1};
    int n = 0, kind = 0, scope = 0;
    TRY(buffer_number(p, &n));
    if (n != (int)p->program->buffers.count)
        BAD(p, "buffers numbered in order");
    char text[8];
    TRY(parse_word(p, text, sizeof text, "a dtype"));
    if (!dtype_parse(text, &b.dtype))
        BAD(p, "a dtype before this");
    TRY(parse_choice(p, KIND_WORDS, KIND_COUNT, "a kind of buffer", &kind));
    TRY(parse_choice(p, SCOPE_WORDS, SCOPE_COUNT, "a scope", &scope));
    b.kind = (enum buffer_kind)kind;
    b.scope = (enum buffer_scope)scope;
    parse_skip(p);
    TRY(parse_dims(p, '[', ']', &b.ndim, b.dim));
    int64_t bytes = dtype_size(b.dtype);
    for (int i = 0; i < b.ndim; i++)
        if (b.dim[i] < 1 || __builtin_mul_overflow(bytes, b.dim[i], &bytes) || bytes > INT64_MAX / 8)
            BAD(p, "extents that fit in memory before this");
    if (accept_word(p, "space")) {
        b.space = accept_space(p);
        if (b.space == SPACE_COUNT)
            BAD(p, "a space other than the first");
    }
    parse_skip(p);
    if (parse_accept(p, '@'))
        TRY(parse_number(p, 0, INT64_MAX / 8, &b.offset));
    if (accept_word(p, "of")) {
        TRY(buffer_number(p, &b.parent));
        if (b.parent >= n || !parse_accept(p, '+'))
            BAD(p, "an earlier buffer + offset");
        TRY(parse_number(p, 0, INT64_MAX / 8, &b.parent_offset));
    }
    if (accept_word(p, "gradient"))
        TRY(buffer_number(p, &b.gradient_of));
    if (accept_word(p, "recomputes"))
        TRY(buffer_number(p, &b.recomputes));
    if (accept_word(p, "pool"))
        TRY(parse_integer(p, 0, MAX_POOLS, &b.pool));
    if (accept_word(p, "as"))
        TRY(parse_word(p, b.as, sizeof b.as, "an operand's name"));
    if (accept_word(p, "for"))
        TRY(buffer_number(p, &b.belongs_to));
    b.expect = b.dim[0];
    if (accept_word(p, "extent")) {
        TRY(buffer_number(p, &b.extent));
        if (accept_word(p, "expect"))
            TRY(parse_number(p, 0, b.dim[0], &b.expect));
    }
    if (accept_word(p, "own"))
        TRY(read_axes(p, &b.own));
    TRY(parse_placement(p, &b));
    TRY(quoted(p, &b.name));
    VEC_PUSH(&p->program->buffers, b);
    return end_of_line(p);
}

static trireme_status parse_operand(struct parser *p, struct operand *o) {
    parse_skip(p);
    *o = operand_none();
    if (parse_accept(p, '-'))
        return TRIREME_OK;
    TRY(buffer_number(p, &o->buffer));
    if (o->buffer >= (int)p->program->buffers.count)
        BAD(p, "a buffer of this program before this");
    TRY(parse_dims(p, '[', ']', &o->ndim, o->dim));
    int64_t stride = 1;
    for (int i = o->ndim - 1; i >= 0; i--) {
        o->stride[i] = stride;
        if (__builtin_mul_overflow(stride, o->dim[i], &stride))
            BAD(p, "extents that fit in memory before this");
    }
    if (p->at < p->end && *p->at == '(') {
        int n;
        TRY(parse_dims(p, '(', ')', &n, o->stride));
        if (n != o->ndim)
            BAD(p, "as many strides as extents before this");
    }
    if (parse_accept(p, '+'))
        TRY(parse_number(p, 0, INT64_MAX / 8, &o->offset));
    if (parse_accept(p, '@')) {
        TRY(read_axes(p, &o->along));
        if (!parse_accept(p, '*'))
            BAD(p, "*step");
        TRY(parse_number(p, 1, INT64_MAX / 8, &o->step));
    }
    return TRIREME_OK;
}

static trireme_status read_stream(struct parser *p, int *out) {
    char name[STREAM_NAME];
    const char *start = p->at;
    TRY(parse_word(p, name, sizeof name, "a stream"));
    *out = program_find_stream(p->program, name);
    if (*out != NONE)
        return TRIREME_OK;
    p->at = start;
    BAD(p, "a stream that a line before this declares");
}

static trireme_status parse_otherwise(struct parser *p, struct instruction *in) {
    const struct op_info *info = &p->table->op[in->op];
    char name[sizeof info->in[0].name];
    TRY(parse_word(p, name, sizeof name, "an input's name"));
    for (int i = 0; i < info->inputs; i++)
        if (strcmp(info->in[i].name, name) == 0)
            in->passes = 1 + i;
    if (in->passes == 0)
        BAD(p, "an input of the op before this");
    return TRIREME_OK;
}

static trireme_status parse_set(struct parser *p, struct instruction *in) {
    char name[OP_NAME];
    TRY(parse_integer(p, 1, MAX_SETS, &in->set));
    if (!accept_word(p, "of"))
        BAD(p, "of");
    TRY(parse_word(p, name, sizeof name, "an op"));
    in->stands_for = op_find(p->table, name);
    if (in->stands_for == OP_COUNT)
        BAD(p, "an op before this");
    p->program->sets = MAX(p->program->sets, in->set);
    return TRIREME_OK;
}

static trireme_status parse_tags(struct parser *p, struct instruction *in) {
    int value = 0;
    if (!accept_word(p, "phase"))
        BAD(p, "a phase");
    TRY(parse_choice(p, PHASE_WORDS, PHASE_COUNT, "a phase", &value));
    in->phase = (enum phase)value;
    if (accept_word(p, "layer"))
        TRY(parse_integer(p, 0, INT32_MAX, &in->layer));
    if (accept_word(p, "stream"))
        TRY(read_stream(p, &in->stream));
    if (accept_word(p, "group"))
        TRY(read_axes(p, &in->group));
    if (accept_word(p, "peer")) {
        TRY(parse_integer(p, -(1 << 20), 1 << 20, &in->peer));
        in->open = accept_word(p, "open");
    }
    for (int w = WHEN_LAST; w < WHEN_COUNT && in->when == WHEN_ALWAYS; w++)
        if (accept_word(p, WHEN_WORDS[w]))
            in->when = (enum when)w;
    if (accept_word(p, "accumulate")) {
        TRY(parse_choice(p, ACCUMULATE_WORDS, (int)ARRAY_LENGTH(ACCUMULATE_WORDS), "a way to accumulate", &value));
        in->accumulate = (enum accumulate)value;
    }
    if (accept_word(p, "workspace"))
        TRY(buffer_number(p, &in->workspace));
    if (accept_word(p, "if"))
        TRY(buffer_number(p, &in->predicate));
    if (accept_word(p, "else"))
        TRY(parse_otherwise(p, in));
    if (accept_word(p, "set"))
        TRY(parse_set(p, in));
    while (accept_word(p, "wait")) {
        int stream = 0, lag = 0;
        TRY(read_stream(p, &stream));
        bool some = parse_accept(p, '-'), slot = some && accept_word(p, "slot"),
             own = some && !slot && accept_word(p, "own");
        if (some && !slot && !own)
            TRY(parse_integer(p, 1, WAIT_MAX_LAG, &lag));
        in->wait[stream] = slot ? WAIT_SLOT : own ? WAIT_OWN : wait_for_all_but(lag);
    }
    return end_of_line(p);
}

static trireme_status parse_instruction(struct parser *p) {
    if (p->program->templates.count == 0 || p->instructions++ == MAX_INSTRUCTIONS)
        BAD(p, "a template before this, and fewer instructions");
    struct operand in[OP_MAX_IN] = {0}, out[OP_MAX_OUT] = {0};
    int outputs = 0;
    while (parse_skip(p), !parse_accept(p, '=')) {
        if (outputs == OP_MAX_OUT)
            BAD(p, "\"=\"");
        TRY(parse_operand(p, &out[outputs++]));
    }
    char name[OP_NAME];
    TRY(parse_word(p, name, sizeof name, "an op"));
    enum op op = op_find(p->table, name);
    if (op == OP_COUNT)
        BAD(p, "an op before this");
    const struct op_info *info = &p->table->op[op];
    if (outputs != info->outputs)
        BAD(p, "as many outputs as the op has");
    for (int i = 0; i < info->inputs; i++)
        TRY(parse_operand(p, &in[i]));
    union attribute attribute[OP_MAX_ATTRIBUTES] = {0};
    for (int i = 0; i < info->attributes; i++) {
        const bool given = accept_word(p, info->attribute[i].name);
        if (!given && info->attribute[i].optional)
            continue;
        if (!given)
            BAD(p, "the op's attributes");
        if (info->attribute[i].is_float)
            TRY(real(p, &attribute[i].f));
        else
            TRY(parse_number(p, INT64_MIN + 1, INT64_MAX, &attribute[i].i));
    }
    return parse_tags(p, program_emit(p->program, (int)p->program->templates.count - 1, op, PHASE_INPUT, NONE,
                                      info->inputs, in, outputs, out, attribute));
}

static trireme_status parse_term(struct parser *p) {
    struct loss_term term = {NONE, 0};
    TRY(buffer_number(p, &term.scale));
    if (!accept_word(p, "weight"))
        BAD(p, "weight");
    TRY(real(p, &term.weight));
    if (p->program->terms.count == MAX_TERMS)
        BAD(p, "fewer terms before this");
    program_term(p->program, term.scale, term.weight);
    return end_of_line(p);
}

static trireme_status parse_template(struct parser *p) {
    int n = 0, phase = 0;
    TRY(parse_integer(p, 0, MAX_TEMPLATES, &n));
    if (n != (int)p->program->templates.count)
        BAD(p, "templates numbered in order");
    TRY(parse_choice(p, PHASE_WORDS, PHASE_COUNT, "a phase", &phase));
    struct template t = {.phase = (enum phase)phase};
    if (accept_word(p, "chunk"))
        TRY(parse_integer(p, 0, MAX_POOLS, &t.chunk));
    TRY(quoted(p, &t.name));
    VEC_PUSH(&p->program->templates, t);
    return end_of_line(p);
}

static trireme_status parse_invocation(struct parser *p) {
    struct invocation v = {.microbatch = NONE};
    if (p->program->schedule.count == MAX_INVOCATIONS)
        BAD(p, "fewer invocations");
    TRY(parse_integer(p, 0, MAX_TEMPLATES, &v.template));
    if (accept_word(p, "microbatch"))
        TRY(parse_integer(p, 0, INT32_MAX, &v.microbatch));
    v.first = accept_word(p, "first");
    v.last = accept_word(p, "last");
    VEC_PUSH(&p->program->schedule, v);
    return end_of_line(p);
}

static trireme_status parse_header(struct parser *p) {
    char name[64];
    TRY(parse_word(p, name, sizeof name, "the program's name"));
    free(p->program->name);
    p->program->name = mem_strdup(name);
    if (!accept_word(p, "microbatches"))
        BAD(p, "microbatches");
    TRY(parse_integer(p, 1, 1 << 20, &p->program->microbatches));
    return end_of_line(p);
}

static trireme_status parse_mesh(struct parser *p) {
    int64_t ranks = 1;
    do {
        int axis = 0, degree = 0;
        TRY(one_axis(p, &axis));
        TRY(parse_integer(p, 1, 1 << 20, &degree));
        ranks *= degree;
        if (ranks > 1 << 20)
            BAD(p, "fewer ranks before this");
        p->program->mesh.degree[axis] = degree;
    } while (parse_skip(p), p->at < p->end);
    return TRIREME_OK;
}

static trireme_status parse_stream(struct parser *p) {
    char name[STREAM_NAME];
    unsigned properties = 0;
    TRY(parse_word(p, name, sizeof name, "the stream's name"));
    while (parse_skip(p), p->at < p->end) {
        int bit = 0;
        TRY(parse_choice(p, STREAM_WORDS, STREAM_PROPERTIES, "a property of a stream", &bit));
        properties |= 1u << bit;
    }
    if (program_find_stream(p->program, name) != NONE || p->program->streams.count == STREAMS_MAX)
        BAD(p, "fewer streams, of different names");
    program_stream(p->program, name, properties);
    return TRIREME_OK;
}

static trireme_status parse_arena(struct parser *p) {
    const enum memory_space other = accept_space(p);
    struct arena *q = &p->program->arena[other == SPACE_COUNT ? SPACE_DEVICE : other];
    const struct {
        const char *word;
        int64_t *first, *second;
    } FIELDS[] = {{"state", &q->state_bytes, NULL},
                  {"fixed", &q->fixed_bytes, NULL},
                  {"scratch", &q->scratch_base, &q->scratch_bytes},
                  {"step", &q->step_bytes, NULL}};
    for (size_t i = 0; i < ARRAY_LENGTH(FIELDS); i++) {
        if (!accept_word(p, FIELDS[i].word))
            BAD(p, FIELDS[i].word);
        TRY(parse_number(p, 0, INT64_MAX / 8, FIELDS[i].first));
        if (!FIELDS[i].second)
            continue;
        if (!parse_accept(p, '+'))
            BAD(p, "+bytes");
        TRY(parse_number(p, 0, INT64_MAX / 8, FIELDS[i].second));
    }
    return end_of_line(p);
}

static trireme_status parse_pool(struct parser *p) {
    struct program *q = p->program;
    int n = 0, chunk = 0, part_of = NONE;
    TRY(parse_integer(p, 0, MAX_POOLS, &n));
    if (n != (int)q->pools.count)
        BAD(p, "pools numbered in order");
    if (!accept_word(p, "chunk"))
        BAD(p, "chunk");
    TRY(parse_integer(p, 0, MAX_POOLS, &chunk));
    if (accept_word(p, "part")) {
        if (!accept_word(p, "of"))
            BAD(p, "of");
        TRY(parse_integer(p, 0, MAX_POOLS, &part_of));
    }
    if (!accept_word(p, "at"))
        BAD(p, "at");
    struct {
        VEC(int64_t);
    } base[SPACE_COUNT] = {0};
    VEC(int) slot = {0};
    trireme_status status = TRIREME_OK;
    enum memory_space space = SPACE_DEVICE;
    do {
        int64_t at = 0;
        status = parse_number(p, 0, INT64_MAX / 8, &at);
        VEC_PUSH(&base[space], at);
        const enum memory_space other = accept_space(p);
        space = other == SPACE_COUNT ? space : other;
    } while (status == TRIREME_OK && !parse_accept(p, ':'));
    for (int s = SPACE_DEVICE + 1; s < SPACE_COUNT && status == TRIREME_OK; s++)
        if (base[s].count && base[s].count != base[SPACE_DEVICE].count)
            status = parse_bad(p, "as many places as slots before this");
    while (status == TRIREME_OK && (int)slot.count < q->microbatches) {
        int of = 0;
        status = parse_integer(p, 0, (int64_t)base[SPACE_DEVICE].count - 1, &of);
        VEC_PUSH(&slot, of);
    }
    if (status == TRIREME_OK) {
        program_pool(q, n, chunk, (int)base[SPACE_DEVICE].count, slot.item);
        q->pools.item[n].part_of = part_of;
        for (int s = 0; s < SPACE_COUNT; s++)
            for (size_t i = 0; i < base[s].count; i++)
                q->pools.item[n].base[s][i] = base[s].item[i];
    }
    for (int s = 0; s < SPACE_COUNT; s++)
        VEC_RELEASE(&base[s]);
    VEC_RELEASE(&slot);
    TRY(status);
    return end_of_line(p);
}

static trireme_status parse_line(struct parser *p) {
    if (p->line == 1) {
        if (!accept_word(p, "program"))
            BAD(p, "\"program\"");
        return parse_header(p);
    }
    if (accept_word(p, "mesh"))
        return parse_mesh(p);
    if (accept_word(p, "arena"))
        return parse_arena(p);
    if (accept_word(p, "stream"))
        return parse_stream(p);
    if (accept_word(p, "pool"))
        return parse_pool(p);
    if (accept_word(p, "buffer"))
        return parse_buffer(p);
    if (accept_word(p, "term"))
        return parse_term(p);
    if (accept_word(p, "template"))
        return parse_template(p);
    if (accept_word(p, "invoke"))
        return parse_invocation(p);
    return parse_instruction(p);
}

trireme_status program_parse(struct program *out, const struct op_table *table, const char *text, size_t length,
                             trireme_error *error) {
    struct program program;
    program_init(&program, "", 1);
    program_drop_pools(&program, 0);
    struct parser p = {.table = table, .program = &program, .error = error};
    const char *at = text, *end = text + length;
    trireme_status status = TRIREME_OK;
    while (at < end && status == TRIREME_OK) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        p.line++;
        p.at = at;
        p.end = newline ? newline : end;
        status = parse_line(&p);
        at = newline ? newline + 1 : end;
    }
    if (status == TRIREME_OK && p.line == 0)
        status = error_set(error, TRIREME_ERROR_CORRUPT, "line 1: expected \"program\", found nothing");
    if (status != TRIREME_OK) {
        program_release(&program);
        return status;
    }
    *out = program;
    return TRIREME_OK;
}
