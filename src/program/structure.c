// That a program's tables are well formed, so that nothing after it need look whether an index, a shape or a dtype
// makes sense.
#include "program/structure.h"
#include "program/footprint.h"

#include <ctype.h>

struct site program_site(const struct program *program, const struct op_table *table, int template, int instruction,
                         int microbatch) {
    struct site site;
    const struct template *t = &program->templates.item[template];
    int n = snprintf(site.text, sizeof site.text, "%.80s[%d] %s", t->name, instruction,
                     table->op[t->instructions.item[instruction].op].name);
    if (microbatch != NONE)
        snprintf(site.text + n, sizeof site.text - (size_t)n, " (microbatch %d)", microbatch);
    return site;
}

const char *program_buffer_name(const struct program *program, int buffer) {
    return buffer == NONE ? "nothing" : program->buffers.item[buffer].name;
}

// ---- structure

static trireme_status structure_check_names(const struct program *program, trireme_error *error) {
    size_t n = program->buffers.count;
    char **names = mem_alloc(n * sizeof *names), *twice = NULL;
    for (size_t i = 0; i < n; i++)
        names[i] = program->buffers.item[i].name;
    qsort(names, n, sizeof *names, text_compare);
    for (size_t i = 1; i < n && !twice; i++)
        if (strcmp(names[i], names[i - 1]) == 0)
            twice = names[i];
    free(names);
    if (twice)
        REFUSE("two buffers are named %s", twice);
    return TRIREME_OK;
}

// Whether a buffer that is looked at from outside the program has memory of its own for as long as it may be.
static bool structure_is_kept(const struct buffer *b) {
    switch (b->kind) {
    case KIND_INPUT:
        return b->scope == SCOPE_STEP || b->scope == SCOPE_MICROBATCH;
    case KIND_OUTPUT:
        return b->scope == SCOPE_STEP;
    case KIND_OPTIM:
    case KIND_CACHE: // or a copy of what is kept, in another space
        return b->scope == SCOPE_STATE || b->recomputes != NONE;
    default:
        return true;
    }
}

static trireme_status structure_check_declared(const struct buffer *b, trireme_error *error) {
    if (!structure_is_kept(b))
        REFUSE("buffer %s is not kept as long as it is needed outside the program's instructions", b->name);
    if (!memory_spaces[b->space].addressable && (b->kind == KIND_INPUT || b->kind == KIND_OUTPUT))
        REFUSE("buffer %s is for the host, but lies in the space %s, where nothing has an address", b->name,
               memory_spaces[b->space].name);
    // A template without a microbatch reads all instances: only the host can have written them all by then.
    if (b->scope == SCOPE_MICROBATCH && b->kind != KIND_INPUT)
        REFUSE("buffer %s belongs to each microbatch for the whole step, but is not an input", b->name);
    for (int a = 0; a < AXIS_COUNT; a++) {
        if (b->placement[a] < PLACE_OWN || b->placement[a] > b->ndim)
            REFUSE("buffer %s is split along %s over a dim that it does not have", b->name, axis_name((enum axis)a));
        if (b->placement[a] == PLACE_OWN && !(AXES(a) & AXES_OWN))
            REFUSE("buffer %s is declared each rank's own along %s, where ranks share all that they have", b->name,
                   axis_name((enum axis)a));
    }
    if (b->own && (b->kind != KIND_PARAM || b->scope != SCOPE_STATE || b->parent != NONE))
        REFUSE("buffer %s is not a unit of parameters, so ranks cannot keep their own parts of it", b->name);
    return TRIREME_OK;
}

// Rows are as many as one number of another buffer says, which is not bounded itself. Only values that a rank works on
// in a step are.
static trireme_status structure_check_bound(const struct program *program, const struct buffer *b,
                                            trireme_error *error) {
    if (b->parent != NONE && program->buffers.item[b->parent].extent != NONE)
        REFUSE("buffer %s is a slice of %s, of whose rows only some exist", b->name,
               program->buffers.item[b->parent].name);
    if (b->extent == NONE)
        return TRIREME_OK;
    if (b->extent < 0 || b->extent >= (int)program->buffers.count)
        REFUSE("buffer %s has an extent that does not exist", b->name);
    const struct buffer *extent = &program->buffers.item[b->extent];
    if (extent->dtype != DTYPE_I32 || buffer_count(extent) != 1 || extent->extent != NONE)
        REFUSE("buffer %s: its extent %s is not one i32", b->name, extent->name);
    if (b->parent != NONE || (b->kind != KIND_ACT && b->kind != KIND_INPUT && b->kind != KIND_OUTPUT))
        REFUSE("buffer %s has an extent, but is a slice, or kept between steps", b->name);
    if (b->expect < 0 || b->expect > b->dim[0])
        REFUSE("buffer %s expects %lld rows, but has room for %lld", b->name, (long long)b->expect,
               (long long)b->dim[0]);
    return TRIREME_OK;
}

static trireme_status check_buffer(const struct program *program, int number, trireme_error *error) {
    const struct buffer *b = &program->buffers.item[number];
    if ((unsigned)b->space >= SPACE_COUNT)
        REFUSE("buffer %s lies in a space that does not exist", b->name);
    TRY(structure_check_declared(b, error));
    int count = (int)program->buffers.count;
    if (b->ndim < 1 || b->ndim > OP_MAX_DIMS)
        REFUSE("buffer %s has %d dims", b->name, b->ndim);
    for (int i = 0; i < b->ndim; i++)
        if (b->dim[i] < 1)
            REFUSE("buffer %s has an extent of %lld", b->name, (long long)b->dim[i]);
    if (b->gradient_of < NONE || b->gradient_of >= count || b->recomputes < NONE || b->recomputes >= count ||
        b->belongs_to < NONE || b->belongs_to >= count)
        REFUSE("buffer %s refers to a buffer that does not exist", b->name);
    if (b->recomputes >= number)
        REFUSE("buffer %s recomputes a buffer that is not listed before it", b->name);
    if (b->gradient_of != NONE && b->recomputes != NONE)
        REFUSE("buffer %s is declared both a gradient and a recomputed buffer", b->name);
    if (b->recomputes != NONE && b->kind != program->buffers.item[b->recomputes].kind)
        REFUSE("buffer %s recomputes %s, but is of another kind", b->name, program->buffers.item[b->recomputes].name);
    if (b->parent < NONE || b->parent >= number)
        REFUSE("buffer %s is a slice of a buffer that is not listed before it", b->name);
    TRY(structure_check_bound(program, b, error));
    if (b->parent == NONE)
        return TRIREME_OK;
    const struct buffer *p = &program->buffers.item[b->parent];
    if (b->kind != p->kind)
        REFUSE("buffer %s is a slice of %s, but of another kind", b->name, p->name);
    if (b->dtype != p->dtype || b->scope != p->scope || b->space != p->space || b->pool != p->pool ||
        b->parent_offset < 0 || b->parent_offset + buffer_count(b) > buffer_count(p))
        REFUSE("buffer %s is a slice of %s, but does not fit in it", b->name, p->name);
    return TRIREME_OK;
}

// An instruction, and the one of its operands that is being checked.
struct checked {
    const struct program *program;
    const struct op_table *table;
    const struct template *template;
    const struct instruction *instruction;
    const struct op_info *info;
    const char *site;
    bool all_microbatches;
    enum dtype model, any; // the dtype of P operands, and of X operands: DTYPE_COUNT as long as it is unknown
    const struct op_operand *row;
    const struct operand *operand;
    const struct buffer *buffer;
};

// P fixes the model's dtype the first time it is met; A must be what it accumulates in.
static trireme_status check_dtype(struct checked *k, trireme_error *error) {
    const struct buffer *b = k->buffer;
    enum dtype expected = b->dtype;
    switch (k->row->dtype) {
    case 'P':
        if (k->model == DTYPE_COUNT)
            k->model = b->dtype;
        expected = k->model;
        if (b->dtype != DTYPE_F32 && b->dtype != DTYPE_BF16 && b->dtype != DTYPE_F64)
            REFUSE("%s: operand %s (%s) is %s, which no model computes in", k->site, k->row->name, b->name,
                   dtype_name(b->dtype));
        break;
    case 'A':
        expected =
            k->model == DTYPE_COUNT ? (b->dtype == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32) : dtype_accumulate(k->model);
        break;
    case 'S':
        expected = DTYPE_F64;
        break;
    case 'I':
        expected = DTYPE_I32;
        break;
    case 'U':
        expected = DTYPE_U16;
        break;
    case 'B':
        expected = DTYPE_U8;
        break;
    case 'X':
        if (k->any == DTYPE_COUNT)
            k->any = b->dtype;
        expected = k->any;
        break;
    }
    if (b->dtype != expected)
        REFUSE("%s: operand %s (%s) is %s, expected %s", k->site, k->row->name, b->name, dtype_name(b->dtype),
               dtype_name(expected));
    return TRIREME_OK;
}

static trireme_status check_scope(const struct checked *k, trireme_error *error) {
    const struct buffer *b = k->buffer;
    if (b->kind == KIND_WORK)
        REFUSE("%s: operand %s is a workspace, %s", k->site, k->row->name, b->name);
    if (b->scope == SCOPE_SLOT && k->all_microbatches)
        REFUSE("%s: operand %s (%s) belongs to one microbatch, the template to all", k->site, k->row->name, b->name);
    if (b->kind == KIND_INPUT && b->scope == SCOPE_STEP && !k->all_microbatches && k->program->microbatches > 1)
        REFUSE("%s: operand %s (%s) is one input for all microbatches", k->site, k->row->name, b->name);
    return TRIREME_OK;
}

// Only transfers reach what has no address.
static trireme_status check_reach(const struct checked *k, const char *what, int buffer, trireme_error *error) {
    const enum memory_space space = buffer == NONE ? SPACE_DEVICE : k->program->buffers.item[buffer].space;
    if (!memory_spaces[space].addressable)
        REFUSE("%s: %s (%s) lies in the space %s, which only transfers reach", k->site, what,
               program_buffer_name(k->program, buffer), memory_spaces[space].name);
    return TRIREME_OK;
}

// A transfer moves elements to the same place in a buffer of another space that is declared to hold the same value. So
// all that is proved of the one holds for the other.
static trireme_status check_transfer(const struct checked *k, trireme_error *error) {
    const struct program *p = k->program;
    const struct operand *x = &k->instruction->in[0], *y = &k->instruction->out[0];
    const struct buffer *from = &p->buffers.item[x->buffer], *to = &p->buffers.item[y->buffer];
    struct operand moved = *x;
    moved.buffer = y->buffer;
    if (from->space == to->space)
        REFUSE("%s: %s and %s lie in one space", k->site, from->name, to->name);
    if (program_original(p, x->buffer) != program_original(p, y->buffer) || !operand_equal(&moved, y))
        REFUSE("%s: %s is not declared to hold the elements of %s once more", k->site, to->name, from->name);
    if (strcmp(from->as, to->as) != 0 || from->belongs_to != to->belongs_to)
        REFUSE("%s: %s and %s are declared different things", k->site, from->name, to->name);
    return TRIREME_OK;
}

// The operand lies in its buffer, also on all other ranks if each has its own part of that.
static trireme_status check_extent(const struct checked *k, trireme_error *error) {
    const struct operand *operand = k->operand;
    const struct buffer *b = k->buffer;
    int64_t last = operand->offset, count = buffer_count(b), instances, further;
    if (b->scope == SCOPE_MICROBATCH && k->all_microbatches &&
        (__builtin_mul_overflow((int64_t)k->program->microbatches - 1, buffer_microbatch_stride(b), &instances) ||
         __builtin_add_overflow(count, instances, &count)))
        REFUSE("%s: the instances of %s together exceed the address space", k->site, b->name);
    bool sound = operand->ndim >= 1 && operand->ndim <= OP_MAX_DIMS && operand->offset >= 0;
    for (int i = 0; sound && i < operand->ndim; i++)
        sound = operand->dim[i] >= 1 && operand->stride[i] >= 1 &&
                !__builtin_mul_overflow(operand->dim[i] - 1, operand->stride[i], &further) &&
                !__builtin_add_overflow(last, further, &last);
    if (!sound)
        REFUSE("%s: operand %s (%s) is malformed", k->site, k->row->name, b->name);
    if (last >= count)
        REFUSE("%s: operand %s reaches element %lld of %s, which has %lld", k->site, k->row->name, (long long)last,
               b->name, (long long)count);
    if (operand->dim[operand->ndim - 1] > 1 && operand->stride[operand->ndim - 1] != 1)
        REFUSE("%s: the elements of a row of %s, operand %s, are not contiguous", k->site, b->name, k->row->name);
    int64_t ranks = mesh_group_size(&k->program->mesh, operand->along);
    if (operand->step < 0 || (operand->along == AXES_NONE) != (operand->step == 0) ||
        __builtin_mul_overflow(operand->step, ranks - 1, &further) || further > count - 1 - last)
        REFUSE("%s: operand %s is a part of %s that ends beyond it on the last of %lld ranks", k->site, k->row->name,
               b->name, (long long)ranks);
    struct footprint footprint;
    if (!footprint_of(k->program, operand, &footprint))
        REFUSE("%s: operand %s (%s) is neither contiguous nor a band of columns", k->site, k->row->name, b->name);
    return TRIREME_OK;
}

static trireme_status check_operand(struct checked *k, const struct op_operand *row, const struct operand *operand,
                                    trireme_error *error) {
    if (operand->buffer == NONE && row->optional)
        return TRIREME_OK;
    if (operand->buffer < 0 || operand->buffer >= (int)k->program->buffers.count)
        REFUSE("%s: operand %s is missing", k->site, row->name);
    k->row = row;
    k->operand = operand;
    k->buffer = &k->program->buffers.item[operand->buffer];
    TRY(check_dtype(k, error));
    TRY(check_scope(k, error));
    if (k->info->role != ROLE_TRANSFER)
        TRY(check_reach(k, row->name, operand->buffer, error));
    return check_extent(k, error);
}

static bool valid_buffer(const struct program *program, int buffer) {
    return buffer == NONE || (buffer >= 0 && buffer < (int)program->buffers.count);
}

static trireme_status check_stream(const struct program *program, const struct instruction *instruction,
                                   const char *site, trireme_error *error) {
    const int streams = (int)program->streams.count;
    if (instruction->stream < 0 || instruction->stream >= streams)
        REFUSE("%s: no such stream", site);
    const bool message = op_is_message(instruction->op);
    if (stream_is(program, instruction->stream, STREAM_SENDS) != (message && op_gives_away(instruction->op)) ||
        stream_is(program, instruction->stream, STREAM_RECEIVES) != (message && op_takes_in(instruction->op)))
        REFUSE("%s: is on a stream that is not for it", site);
    for (int s = 0; s < STREAMS_MAX; s++)
        if (instruction->wait[s] && s >= streams)
            REFUSE("%s: waits for a stream that does not exist", site);
    for (int s = 0; s < streams; s++)
        if (instruction->wait[s] == WAIT_SLOT && !instruction_arrives(instruction))
            REFUSE("%s: waits for a slot, but receives nothing", site);
    for (int s = 0; s < streams; s++)
        if (wait_counts(instruction->wait[s]) && wait_lag(instruction->wait[s]) > WAIT_MAX_LAG)
            REFUSE("%s: waits for all but the last %d instructions of a stream, which are too many", site,
                   wait_lag(instruction->wait[s]));
    return TRIREME_OK;
}

// Only messages along one axis, other than that of the stages, end at its ends: both of its ends lie within.
static trireme_status check_open(const struct checked *k, trireme_error *error) {
    const struct instruction *instruction = k->instruction;
    const int size = instruction->group & ~AXES_ALL ? 0 : mesh_group_size(&k->program->mesh, instruction->group);
    if (instruction->open && (!op_is_message(instruction->op) || instruction->group & AXES_STAGE ||
                              instruction->peer == 0 || abs(instruction->peer) >= size))
        REFUSE("%s: is open, but no message to a rank at distance %d along an axis of %d ranks", k->site,
               instruction->peer, size);
    return TRIREME_OK;
}

static trireme_status check_operands(struct checked *k, trireme_error *error) {
    const struct instruction *instruction = k->instruction;
    const struct op_info *info = k->info;
    for (int i = 0; i < info->inputs; i++)
        if (info->in[i].dtype == 'P' && instruction->in[i].buffer >= 0 && k->model == DTYPE_COUNT &&
            valid_buffer(k->program, instruction->in[i].buffer))
            k->model = k->program->buffers.item[instruction->in[i].buffer].dtype;
    for (int i = 0; i < info->inputs; i++)
        TRY(check_operand(k, &info->in[i], &instruction->in[i], error));
    for (int i = 0; i < info->outputs; i++)
        TRY(check_operand(k, &info->out[i], &instruction->out[i], error));
    return TRIREME_OK;
}

// Whether it and its neighbour make the same sums, one of them in last invocations and the other in the rest. That they
// sum the same things is for verify_gradients.c.
static bool is_of_pair(const struct checked *k) {
    const struct instruction *in = k->instruction, *first = k->template->instructions.item;
    const struct instruction *other = in->when == WHEN_LAST ? in - 1 : in + 1;
    if (k->info->role != ROLE_BACKWARD || other < first || other == first + k->template->instructions.count ||
        other->op != in->op || other->when == in->when || other->when == WHEN_ALWAYS ||
        other->accumulate != in->accumulate)
        return false;
    for (int o = 0; o < in->outputs; o++)
        if (!operand_equal(&in->out[o], &other->out[o]))
            return false;
    return true;
}

// Only what can add is told to add; arithmetic runs in every invocation, except setting to zero and what two
// instructions share; communication does not add up what is kept over microbatches, a sum already; only f32 travels as
// bf16.
static trireme_status check_how(const struct checked *k, trireme_error *error) {
    const struct program *program = k->program;
    const struct instruction *instruction = k->instruction;
    const struct op_info *info = k->info;
    bool adds = instruction->accumulate == ACCUMULATE_NO;
    for (int i = 0; i < info->outputs; i++)
        adds |= info->out[i].adds && instruction->out[i].buffer != NONE;
    if (!adds)
        REFUSE("%s: is to accumulate, but has no output that can be added to", k->site);
    int from = info->inputs ? instruction->in[0].buffer : NONE;
    bool passes = from == NONE || program->buffers.item[from].scope == SCOPE_LOCAL ||
                  program->buffers.item[from].scope == SCOPE_SLOT;
    if (info->role == ROLE_COMMUNICATION && instruction->accumulate != ACCUMULATE_NO && !passes)
        REFUSE("%s: adds %s, which is already a sum, a second time", k->site, program_buffer_name(program, from));
    // Whether communication belongs to a pass, in which it is never left out, is for verify_gradients.c.
    bool sums = info->role == ROLE_ZERO ||
                (info->role == ROLE_COMMUNICATION &&
                 !(instruction_completes(instruction) && program->buffers.item[from].kind == KIND_ACT));
    if (instruction->when == WHEN_LAST && !sums && !is_of_pair(k))
        REFUSE("%s: is left out of all invocations but the last", k->site);
    if (instruction->when == WHEN_NOT_LAST && !is_of_pair(k))
        REFUSE("%s: is left out of the last invocation", k->site);
    if (op_traffic[instruction->op].takes == HOLDING_SUM && from != NONE &&
        program->buffers.item[from].dtype == DTYPE_U8)
        REFUSE("%s: adds up %s, which are bytes of codes", k->site, program_buffer_name(program, from));
    const int wire = op_wire(instruction->op);
    if (wire >= 0 && from != NONE && instruction->attribute[wire].i &&
        (op_traffic[instruction->op].takes != HOLDING_SUM || // copies bits
         program->buffers.item[from].dtype != DTYPE_F32))
        REFUSE("%s: %s would travel as bf16", k->site, program_buffer_name(program, from));
    return TRIREME_OK;
}

// What says how many indices of a letter's dim exist: `extent`, each row of which is `per` of them.
struct letter_bound {
    int extent; // NONE: all of them exist
    int64_t per;
};

// An operand that has an extent has all rows that there are. The letter of its first dim is then bounded in all
// operands that have it, by one number, and is of a dim of which any part may be worked on by itself.
static trireme_status structure_bind_extent(const struct checked *k, int number, struct letter_bound *bound,
                                            trireme_error *error) {
    const struct op_operand *row = op_operand_at(k->info, number);
    const struct operand *operand = instruction_operand_at(k->instruction, number);
    const int extent = instruction_extent_at(k->program, k->instruction, number);
    if (extent == NONE)
        return TRIREME_OK;
    const char *name = program_buffer_name(k->program, operand->buffer);
    const int64_t per = k->all_microbatches ? 0 : operand_per_row(k->program, operand);
    if (per == 0)
        REFUSE("%s: operand %s is some of %s, of whose rows only as many exist as %s says", k->site, row->name, name,
               program_buffer_name(k->program, extent));
    if (!islower((unsigned char)row->dim[0]) ||
        (k->info->role == ROLE_COMMUNICATION && op_traffic[k->instruction->op].takes != HOLDING_ROWS))
        REFUSE("%s: needs all rows of %s, of which only as many exist as %s says", k->site, name,
               program_buffer_name(k->program, extent));
    struct letter_bound *b = &bound[(int)row->dim[0]];
    if (b->per && (b->extent != extent || b->per != per))
        REFUSE("%s: %s has as many rows as %s says, another operand as many as %s", k->site, name,
               program_buffer_name(k->program, extent), program_buffer_name(k->program, b->extent));
    *b = (struct letter_bound){extent, per};
    return TRIREME_OK;
}

// Whether some operand has an extent, or says how many rows there are.
static bool structure_has_extents(const struct checked *k) {
    for (int n = 0; n < k->info->inputs + k->info->outputs; n++)
        if (op_operand_at(k->info, n)->counts || instruction_extent_at(k->program, k->instruction, n) != NONE)
            return true;
    return false;
}

static trireme_status structure_check_extents(const struct checked *k, trireme_error *error) {
    if (!structure_has_extents(k))
        return TRIREME_OK;
    struct letter_bound bound[DIM_LETTERS] = {{0, 0}};
    const int operands = k->info->inputs + k->info->outputs;
    for (int n = 0; n < operands; n++)
        TRY(structure_bind_extent(k, n, bound, error));
    for (int n = 0; n < operands; n++) {
        const struct op_operand *row = op_operand_at(k->info, n);
        const struct operand *operand = instruction_operand_at(k->instruction, n);
        const char *name = program_buffer_name(k->program, operand->buffer);
        if (operand->buffer == NONE)
            continue;
        for (int d = 0; d < row->ndim; d++) {
            const struct letter_bound *b = &bound[(int)row->dim[d]],
                                      *after = &bound[(int)row->follows[d]]; // [0]: bounds nothing
            if (after->per || (b->per && (d > 0 || instruction_extent_at(k->program, k->instruction, n) == NONE)))
                REFUSE("%s: %s has all of its %c, another operand as many as %s says", k->site, name, row->dim[d],
                       program_buffer_name(k->program, (after->per ? after : b)->extent));
        }
        if (row->counts && !bound[(int)row->counts].per)
            REFUSE("%s: %s says how many rows there are, but its %c has no extent", k->site, name, row->counts);
    }
    return TRIREME_OK;
}

static trireme_status structure_check_shapes(const struct checked *k, const struct op_table *table,
                                             trireme_error *error) {
    int64_t extent[DIM_LETTERS];
    const char *what;
    if (!instruction_extents(table, k->instruction, extent, &what))
        REFUSE("%s: the extents of %s do not agree with the other operands", k->site, what);
    char broken[OP_CONDITION_TEXT];
    if (!op_fits(k->info, extent, k->instruction->attribute, broken))
        REFUSE("%s: %s does not hold for its extents and attributes", k->site, broken);
    const struct operand *in = k->instruction->in, *out = k->instruction->out;
    if (k->info->exact && operand_count(in) * dtype_size(k->program->buffers.item[in->buffer].dtype) !=
                              operand_count(out) * dtype_size(k->program->buffers.item[out->buffer].dtype))
        REFUSE("%s: %s does not take as many bytes as %s", k->site, program_buffer_name(k->program, out->buffer),
               program_buffer_name(k->program, in->buffer));
    return structure_check_extents(k, error);
}

// What the first output has where the instruction is skipped must be of its shape.
static trireme_status check_otherwise(const struct checked *k, trireme_error *error) {
    const struct instruction *instruction = k->instruction;
    const int from = instruction_otherwise(instruction);
    if (from == NONE)
        return TRIREME_OK;
    const enum op_role role = k->info->role;
    if (instruction->predicate == NONE || from < 0 || from >= k->info->inputs || k->info->outputs == 0 ||
        instruction->in[from].buffer == NONE || instruction->out[0].buffer == NONE ||
        instruction->accumulate != ACCUMULATE_NO || (role != ROLE_FORWARD && role != ROLE_BACKWARD))
        REFUSE("%s: has nothing to pass through where it is skipped, or is never skipped", k->site);
    const struct operand *in = &instruction->in[from], *out = &instruction->out[0];
    const struct program *program = k->program;
    if (in->ndim != out->ndim || memcmp(in->dim, out->dim, (size_t)in->ndim * sizeof in->dim[0]) != 0 ||
        program->buffers.item[in->buffer].dtype != program->buffers.item[out->buffer].dtype ||
        program->buffers.item[in->buffer].extent != program->buffers.item[out->buffer].extent)
        REFUSE("%s: where it is skipped, %s would become %s, which has another shape or type", k->site,
               program_buffer_name(program, in->buffer), program_buffer_name(program, out->buffer));
    return TRIREME_OK;
}

// What an instruction makes that may be skipped must hold something all the same, or be an activation, which only those
// may read that are skipped together with it (verify_memory.c).
static trireme_status structure_check_predicate(const struct checked *k, trireme_error *error) {
    const struct program *program = k->program;
    const struct instruction *instruction = k->instruction;
    const enum op_role role = k->info->role;
    TRY(check_otherwise(k, error));
    if (instruction->predicate == NONE)
        return TRIREME_OK;
    const struct buffer *predicate = &program->buffers.item[instruction->predicate];
    if (predicate->dtype != DTYPE_I32 || buffer_count(predicate) != 1 || predicate->extent != NONE)
        REFUSE("%s: its predicate %s is not one i32", k->site, predicate->name);
    bool skips = role == ROLE_FORWARD || role == ROLE_BACKWARD || role == ROLE_COMMUNICATION || role == ROLE_DERIVE ||
                 role == ROLE_ZERO;
    for (int o = 0; o < k->info->outputs; o++) {
        if (instruction->out[o].buffer == NONE || instruction_holds_when_skipped(k->table, instruction, o))
            continue;
        const struct buffer *b = &program->buffers.item[instruction->out[o].buffer];
        if (!skips || b->kind != KIND_ACT || (b->scope != SCOPE_LOCAL && b->scope != SCOPE_SLOT))
            REFUSE("%s: may be skipped, but %s would then hold nothing", k->site, b->name);
    }
    return TRIREME_OK;
}

static bool is_gradient(const struct program *program, int buffer) {
    const struct buffer *b = &program->buffers.item[buffer];
    return b->kind == KIND_GRAD || b->gradient_of != NONE;
}

// Gradients are made for a microbatch; nothing writes gradients or values computed again that does not make such.
static trireme_status check_meaning(const struct checked *k, trireme_error *error) {
    const enum op_role role = k->info->role;
    if (k->all_microbatches && op_role_makes_gradients(role))
        REFUSE("%s: makes gradients, but belongs to no microbatch", k->site);
    bool reads = false; // a gradient
    for (int i = 0; i < k->info->inputs; i++)
        reads |= k->instruction->in[i].buffer != NONE && is_gradient(k->program, k->instruction->in[i].buffer);
    bool makes = op_role_makes_gradients(role) || role == ROLE_ZERO ||
                 (k->instruction->set && (op_role_makes_gradients(k->table->op[k->instruction->stands_for].role) ||
                                          op_traffic[k->instruction->stands_for].call != CALL_NONE)) ||
                 (role == ROLE_COMMUNICATION && (reads || instruction_arrives(k->instruction)));
    for (int o = 0; o < k->info->outputs; o++) {
        if (k->instruction->out[o].buffer == NONE)
            continue;
        const struct buffer *b = &k->program->buffers.item[k->instruction->out[o].buffer];
        if (!makes && is_gradient(k->program, k->instruction->out[o].buffer))
            REFUSE("%s: writes the gradient %s, but does not make gradients", k->site, b->name);
        const bool repeats =
            role == ROLE_FORWARD || role == ROLE_LOSS || role == ROLE_COMMUNICATION || role == ROLE_TRANSFER;
        // An optimizer goes on with a copy of what it keeps.
        const bool kept = b->recomputes != NONE && (b->kind == KIND_OPTIM || b->kind == KIND_PARAM) &&
                          (role == ROLE_UPDATE || role == ROLE_DERIVE || role == ROLE_TAKE || role == ROLE_WEIGH ||
                           role == ROLE_EAGER || role == ROLE_OUTER);
        if (!repeats && !kept && b->recomputes != NONE)
            REFUSE("%s: writes %s, but does not recompute", k->site, b->name);
    }
    return TRIREME_OK;
}

static trireme_status check_instruction(struct checked *k, const struct op_table *table, trireme_error *error) {
    const struct program *program = k->program;
    const struct instruction *instruction = k->instruction;
    if (instruction->inputs != k->info->inputs || instruction->outputs != k->info->outputs)
        REFUSE("%s: has %d inputs and %d outputs, expected %d and %d", k->site, instruction->inputs,
               instruction->outputs, k->info->inputs, k->info->outputs);
    TRY(check_stream(program, instruction, k->site, error));
    if (instruction->set < 0 || instruction->set > program->sets || (unsigned)instruction->stands_for >= OP_COUNT)
        REFUSE("%s: belongs to a set that does not exist", k->site);
    if (!valid_buffer(program, instruction->workspace) || !valid_buffer(program, instruction->predicate))
        REFUSE("%s: its workspace or predicate is a buffer that does not exist", k->site);
    if (instruction->workspace != NONE) {
        const struct buffer *w = &program->buffers.item[instruction->workspace];
        if (w->kind != KIND_WORK || w->parent != NONE || (w->scope == SCOPE_SLOT && k->all_microbatches))
            REFUSE("%s: its workspace %s is not a workspace", k->site, w->name);
    }
    TRY(check_reach(k, "its workspace", instruction->workspace, error));
    TRY(check_reach(k, "its predicate", instruction->predicate, error));
    TRY(check_operands(k, error));
    if (k->info->role == ROLE_TRANSFER)
        TRY(check_transfer(k, error));
    TRY(check_open(k, error));
    TRY(check_how(k, error));
    TRY(check_meaning(k, error));
    TRY(structure_check_shapes(k, table, error));
    return structure_check_predicate(k, error);
}

static trireme_status check_template(const struct program *program, const struct op_table *table, int template,
                                     bool all_microbatches, trireme_error *error) {
    const struct template *t = &program->templates.item[template];
    for (size_t i = 0; i < t->instructions.count; i++) {
        const struct instruction *instruction = &t->instructions.item[i];
        struct site site = program_site(program, table, template, (int)i, NONE);
        struct checked k = {.program = program,
                            .table = table,
                            .template = t,
                            .instruction = instruction,
                            .info = &table->op[instruction->op],
                            .site = site.text,
                            .all_microbatches = all_microbatches,
                            .model = DTYPE_COUNT,
                            .any = DTYPE_COUNT};
        TRY(check_instruction(&k, table, error));
    }
    return TRIREME_OK;
}

// how[templates], zeros before: 1 for a template invoked without a microbatch, 2 for one invoked with one.
static trireme_status structure_check_schedule(const struct program *program, int *how, trireme_error *error) {
    for (size_t i = 0; i < program->schedule.count; i++) {
        struct invocation v = program->schedule.item[i];
        bool known = v.template >= 0 && v.template <(int)program->templates.count;
        if (!known || v.microbatch < NONE || v.microbatch >= program->microbatches)
            REFUSE("invocation %zu of the schedule names a template or microbatch that does not exist", i);
        how[v.template] |= v.microbatch == NONE ? 1 : 2;
        if (how[v.template] == 3)
            REFUSE("template %s is invoked both with and without a microbatch",
                   program->templates.item[v.template].name);
    }
    // Clocks, and times of the step, are 32 bits wide.
    if (program_length(program) > INT32_MAX)
        REFUSE("a step of %lld instructions is too long: %d can be counted", (long long)program_length(program),
               INT32_MAX);
    return TRIREME_OK;
}

static trireme_status check_pools(const struct program *program, trireme_error *error) {
    int pools = (int)program->pools.count;
    if (pools == 0)
        REFUSE("a program needs at least one pool of slots");
    for (int i = 0; i < pools; i++) {
        const struct pool *p = &program->pools.item[i];
        if (p->slots < 1 || p->chunk < 0 || p->chunk > i || program->pools.item[p->chunk].chunk != p->chunk)
            REFUSE("pool %d has %d slots for chunk %d", i, p->slots, p->chunk);
        if (i && p->part_of == NONE && program->pools.item[i - 1].part_of != NONE)
            REFUSE("pool %d is whole, but comes after a part", i);
        if (p->part_of != NONE &&
            (p->part_of < 0 || p->part_of >= i || program->pools.item[p->part_of].part_of != NONE ||
             program->pools.item[p->part_of].chunk != p->chunk))
            REFUSE("pool %d is part of pool %d, which is not one of chunk %d", i, p->part_of, p->chunk);
        for (int s = 0; s < p->slots; s++)
            for (int k = 0; k < SPACE_COUNT; k++)
                if (p->base[k][s] < 0 || p->base[k][s] % BUFFER_ALIGNMENT)
                    REFUSE("slot %d of pool %d lies at byte %lld", s, i, (long long)p->base[k][s]);
        for (int m = 0; m < program->microbatches; m++)
            if (p->slot[m] < 0 || p->slot[m] >= p->slots)
                REFUSE("microbatch %d has slot %d of pool %d, which has %d", m, p->slot[m], i, p->slots);
    }
    for (size_t t = 0; t < program->templates.count; t++) {
        int chunk = program->templates.item[t].chunk;
        if (chunk < 0 || chunk >= pools || program->pools.item[chunk].chunk != chunk)
            REFUSE("template %s is of chunk %d, which does not exist", program->templates.item[t].name, chunk);
    }
    for (size_t i = 0; i < program->buffers.count; i++)
        if (program->buffers.item[i].pool < 0 || program->buffers.item[i].pool >= pools)
            REFUSE("buffer %s is of pool %d, which does not exist", program->buffers.item[i].name,
                   program->buffers.item[i].pool);
    return TRIREME_OK;
}

// Compute comes first; each end of a channel stands beside the other; names differ.
static trireme_status check_streams(const struct program *program, trireme_error *error) {
    const int streams = (int)program->streams.count;
    if (streams < 1 || streams > STREAMS_MAX || program->streams.item[STREAM_COMPUTE].properties)
        REFUSE("a program needs the stream compute, and no more than %d streams", STREAMS_MAX);
    for (int s = 0; s < streams; s++) {
        const struct stream *stream = &program->streams.item[s];
        const bool sends = stream_is(program, s, STREAM_SENDS), receives = stream_is(program, s, STREAM_RECEIVES),
                   after = s > 0 && stream_is(program, s - 1, STREAM_SENDS);
        if (sends && (receives || s + 1 == streams || !stream_is(program, s + 1, STREAM_RECEIVES)))
            REFUSE("stream %s is one end of a channel, but no other end follows it", stream->name);
        if (receives != after)
            REFUSE("stream %s does not stand behind the other end of its channel", stream->name);
        if (stream->properties >> STREAM_PROPERTIES)
            REFUSE("stream %s has properties that do not exist", stream->name);
        if (program_find_stream(program, stream->name) != s)
            REFUSE("two streams are named %s", stream->name);
    }
    return TRIREME_OK;
}

trireme_status program_check(const struct program *program, const struct op_table *table, trireme_error *error) {
    if (program->microbatches < 1)
        REFUSE("a program needs at least one microbatch");
    for (int s = 0; s < SPACE_COUNT; s++)
        if (program->arena[s].scratch_base < 0 || program->arena[s].scratch_base % BUFFER_ALIGNMENT)
            REFUSE("scratch lies at byte %lld", (long long)program->arena[s].scratch_base);
    if (__builtin_popcount(mesh_present(&program->mesh, AXES_ALL)) > AXES_PRESENT_MAX)
        REFUSE("more than %d axes of the mesh have several ranks", AXES_PRESENT_MAX);
    TRY(check_streams(program, error));
    TRY(check_pools(program, error));
    for (size_t i = 0; i < program->buffers.count; i++)
        TRY(check_buffer(program, (int)i, error));
    TRY(structure_check_names(program, error));
    for (size_t i = 0; i < program->terms.count; i++)
        if (program->terms.item[i].scale < 0 || program->terms.item[i].scale >= (int)program->buffers.count)
            REFUSE("a term of the loss has a scale that does not exist");
    int *how = mem_alloc(program->templates.count * sizeof *how);
    trireme_status status = structure_check_schedule(program, how, error);
    for (size_t t = 0; t < program->templates.count && status == TRIREME_OK; t++)
        status = check_template(program, table, (int)t, how[t] == 1, error);
    free(how);
    return status;
}
