// Building programs: buffers, operands, instructions, and what follows from one row of ops.def.
#include "program/program.h"

#include <ctype.h>
#include <math.h>

const struct space_info memory_spaces[SPACE_COUNT] = {
#define SPACE(symbol, name, addressable) {name, addressable},
#include "program/spaces.def"
#undef SPACE
};

void program_init(struct program *program, const char *name, int microbatches) {
    *program = (struct program){.name = mem_strdup(name), .mesh = mesh_single(), .microbatches = microbatches};
    program_stream(program, "compute", 0);
    int *slot = mem_alloc((size_t)microbatches * sizeof *slot);
    program_pool(program, 0, 0, 1, slot);
    free(slot);
}

void program_drop_pools(struct program *program, size_t count) {
    for (size_t i = count; i < program->pools.count; i++) {
        free(program->pools.item[i].slot);
        for (int s = 0; s < SPACE_COUNT; s++)
            free(program->pools.item[i].base[s]);
    }
    program->pools.count = MIN(program->pools.count, count);
}

void program_release(struct program *program) {
    for (size_t i = 0; i < program->buffers.count; i++)
        free(program->buffers.item[i].name);
    for (size_t i = 0; i < program->templates.count; i++) {
        free(program->templates.item[i].name);
        VEC_RELEASE(&program->templates.item[i].instructions);
    }
    for (size_t i = 0; i < program->operands.count; i++)
        free(program->operands.item[i]);
    program_drop_pools(program, 0);
    VEC_RELEASE(&program->operands);
    for (size_t i = 0; i < program->streams.count; i++)
        free(program->streams.item[i].name);
    VEC_RELEASE(&program->streams);
    VEC_RELEASE(&program->pools);
    VEC_RELEASE(&program->buffers);
    VEC_RELEASE(&program->terms);
    VEC_RELEASE(&program->templates);
    VEC_RELEASE(&program->schedule);
    free(program->name);
    *program = (struct program){0};
}

// ---- streams

int program_find_stream(const struct program *program, const char *name) {
    for (size_t i = 0; i < program->streams.count; i++)
        if (strcmp(program->streams.item[i].name, name) == 0)
            return (int)i;
    return NONE;
}

int program_stream(struct program *program, const char *name, unsigned properties) {
    const int found = program_find_stream(program, name);
    if (found != NONE) {
        CHECK(program->streams.item[found].properties == properties);
        return found;
    }
    CHECK(program->streams.count < STREAMS_MAX && strlen(name) < STREAM_NAME);
    VEC_PUSH(&program->streams, (struct stream){mem_strdup(name), properties});
    return (int)program->streams.count - 1;
}

int program_channel(struct program *program, const char *sends, const char *receives, unsigned properties) {
    const int stream = program_stream(program, sends, properties | STREAM_SENDS);
    CHECK(program_stream(program, receives, properties | STREAM_RECEIVES) == stream + 1);
    return stream;
}

bool program_streams_equal(const struct program *a, const struct program *b) {
    bool equal = a->streams.count == b->streams.count;
    for (size_t i = 0; equal && i < a->streams.count; i++)
        equal = a->streams.item[i].properties == b->streams.item[i].properties &&
                strcmp(a->streams.item[i].name, b->streams.item[i].name) == 0;
    return equal;
}

// ---- buffers

int program_find(const struct program *program, const char *name) {
    for (size_t i = 0; i < program->buffers.count; i++)
        if (strcmp(program->buffers.item[i].name, name) == 0)
            return (int)i;
    return NONE;
}

static int add_buffer(struct program *program, struct buffer buffer, const char *name, int ndim, const int64_t *dim) {
    CHECK(ndim >= 1 && ndim <= OP_MAX_DIMS);
    buffer.name = mem_strdup(name);
    buffer.ndim = ndim;
    memcpy(buffer.dim, dim, (size_t)ndim * sizeof *dim);
    buffer.gradient_of = buffer.recomputes = buffer.belongs_to = buffer.extent = NONE;
    buffer.expect = dim[0];
    buffer.offset = -1;
    VEC_PUSH(&program->buffers, buffer);
    return (int)program->buffers.count - 1;
}

int program_buffer(struct program *program, const char *name, enum dtype dtype, enum buffer_kind kind,
                   enum buffer_scope scope, int ndim, const int64_t *dim) {
    return add_buffer(program, (struct buffer){.dtype = dtype, .kind = kind, .scope = scope, .parent = NONE}, name,
                      ndim, dim);
}

int program_slice(struct program *program, int parent, const char *name, int64_t offset, int ndim, const int64_t *dim) {
    const struct buffer *p = &program->buffers.item[parent];
    struct buffer slice = {.dtype = p->dtype,
                           .kind = p->kind,
                           .scope = p->scope,
                           .space = p->space,
                           .parent = parent,
                           .parent_offset = offset};
    int buffer = add_buffer(program, slice, name, ndim, dim);
    CHECK(offset >= 0 &&
          offset + buffer_count(&program->buffers.item[buffer]) <= buffer_count(&program->buffers.item[parent]));
    return buffer;
}

int program_again(struct program *program, int buffer, int parent) {
    const struct buffer b = program->buffers.item[buffer];
    CHECK((b.parent == NONE) == (parent == NONE));
    char *name = mem_printf("%s.again", b.name);
    int again = b.parent == NONE
                    ? program_buffer(program, name, b.dtype, b.kind, SCOPE_LOCAL, b.ndim, b.dim)
                    : program_slice(program, parent, name, program_root_offset(program, buffer), b.ndim, b.dim);
    free(name);
    struct buffer *copy = &program->buffers.item[again];
    copy->recomputes = buffer;
    copy->extent = b.extent;
    copy->expect = b.expect;
    memcpy(copy->placement, b.placement, sizeof b.placement);
    return again;
}

int program_original(const struct program *program, int buffer) {
    while (buffer != NONE && program->buffers.item[buffer].recomputes != NONE)
        buffer = program->buffers.item[buffer].recomputes;
    return buffer;
}

void program_split(struct program *program, int buffer, int dim, axis_set along) {
    for (int a = 0; a < AXIS_COUNT; a++)
        if (mesh_present(&program->mesh, along & AXES(a)))
            program->buffers.item[buffer].placement[a] = (int8_t)PLACE_SHARD(dim);
}

void program_split_rows(struct program *program, int buffer, axis_set along) {
    program_split(program, buffer, 0, along);
}

void program_declare(struct program *program, int buffer, const char *as, int belongs_to) {
    struct buffer *b = &program->buffers.item[buffer];
    CHECK(strlen(as) < sizeof b->as);
    strcpy(b->as, as);
    b->belongs_to = belongs_to;
}

void program_bound(struct program *program, int buffer, int extent, int64_t expect) {
    struct buffer *b = &program->buffers.item[buffer];
    CHECK(b->parent == NONE && expect >= 0 && expect <= b->dim[0]);
    b->extent = extent;
    b->expect = expect;
}

int program_set(struct program *program) {
    return ++program->sets;
}

void program_term(struct program *program, int scale, double weight) {
    VEC_PUSH(&program->terms, (struct loss_term){scale, weight});
}

int program_root(const struct program *program, int buffer) {
    while (program->buffers.item[buffer].parent != NONE)
        buffer = program->buffers.item[buffer].parent;
    return buffer;
}

int64_t program_root_offset(const struct program *program, int buffer) {
    int64_t offset = 0;
    for (; program->buffers.item[buffer].parent != NONE; buffer = program->buffers.item[buffer].parent)
        offset += program->buffers.item[buffer].parent_offset;
    return offset;
}

int64_t buffer_count(const struct buffer *buffer) {
    int64_t n = 1;
    for (int i = 0; i < buffer->ndim; i++)
        n *= buffer->dim[i];
    return n;
}

int64_t buffer_bytes(const struct buffer *buffer) {
    return buffer_count(buffer) * dtype_size(buffer->dtype);
}

int64_t align_up(int64_t bytes) {
    return round_up(bytes, BUFFER_ALIGNMENT);
}

int64_t buffer_microbatch_stride(const struct buffer *buffer) {
    return align_up(buffer_bytes(buffer)) / dtype_size(buffer->dtype);
}

// ---- operands

static void build_contiguous(struct operand *operand) {
    int64_t stride = 1;
    for (int i = operand->ndim - 1; i >= 0; i--) {
        operand->stride[i] = stride;
        stride *= operand->dim[i];
    }
}

struct operand operand_whole(const struct program *program, int buffer) {
    const struct buffer *b = &program->buffers.item[buffer];
    struct operand operand = {.buffer = buffer, .ndim = b->ndim};
    memcpy(operand.dim, b->dim, sizeof operand.dim);
    build_contiguous(&operand);
    return operand;
}

struct operand operand_microbatches(const struct program *program, int buffer) {
    const struct buffer *b = &program->buffers.item[buffer];
    CHECK(b->scope == SCOPE_MICROBATCH && b->parent == NONE);
    return (struct operand){.buffer = buffer,
                            .ndim = 2,
                            .dim = {program->microbatches, buffer_count(b)},
                            .stride = {buffer_microbatch_stride(b), 1}};
}

struct operand operand_shape(struct operand operand, int ndim, const int64_t *dim) {
    struct operand shaped = {
        .buffer = operand.buffer, .offset = operand.offset, .ndim = ndim, .along = operand.along, .step = operand.step};
    memcpy(shaped.dim, dim, (size_t)ndim * sizeof *dim);
    build_contiguous(&shaped);
    CHECK(operand_count(&shaped) == operand_count(&operand));
    return shaped;
}

// Merges dims [from, to) into one; false where their strides do not allow it. A dim of one element has stride 0.
static bool merge_dims(const struct operand *operand, int from, int to, int64_t *dim, int64_t *stride) {
    *dim = 1;
    *stride = 0;
    for (int i = to; i-- > from;) {
        if (operand->dim[i] == 1)
            continue;
        if (*dim > 1 && operand->stride[i] != *dim * *stride)
            return false;
        if (*dim == 1)
            *stride = operand->stride[i];
        *dim *= operand->dim[i];
    }
    return true;
}

bool operand_matrix(const struct operand *operand, int rows, struct operand *matrix) {
    struct operand m = {.buffer = operand->buffer,
                        .offset = operand->offset,
                        .ndim = 2,
                        .along = operand->along,
                        .step = operand->step};
    if (!merge_dims(operand, 0, rows, &m.dim[0], &m.stride[0]) ||
        !merge_dims(operand, rows, operand->ndim, &m.dim[1], &m.stride[1]))
        return false;
    if (m.dim[1] == 1)
        m.stride[1] = 1;
    if (m.dim[0] == 1)
        m.stride[0] = m.dim[1];
    *matrix = m;
    return m.stride[1] == 1;
}

struct operand operand_part(const struct program *program, struct operand operand, axis_set along) {
    int64_t whole = operand_count(&operand), parts = mesh_group_size(&program->mesh, along);
    CHECK(whole % parts == 0);
    struct operand part = operand_shape(operand, 1, &whole);
    part.dim[0] = whole / parts;
    part.along = mesh_present(&program->mesh, along);
    part.step = part.along ? part.dim[0] : 0;
    return part;
}

struct operand operand_none(void) {
    return (struct operand){.buffer = NONE};
}

bool operand_equal(const struct operand *a, const struct operand *b) {
    if (a->buffer != b->buffer)
        return false;
    if (a->buffer == NONE)
        return true;
    return a->offset == b->offset && a->along == b->along && a->step == b->step && a->ndim == b->ndim &&
           memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof a->dim[0]) == 0 &&
           memcmp(a->stride, b->stride, (size_t)a->ndim * sizeof a->stride[0]) == 0;
}

int64_t operand_count(const struct operand *operand) {
    int64_t n = 1;
    for (int i = 0; i < operand->ndim; i++)
        n *= operand->dim[i];
    return n;
}

int64_t operand_per_row(const struct program *program, const struct operand *operand) {
    const struct buffer *b = &program->buffers.item[operand->buffer];
    const int64_t rows = b->dim[0], row = buffer_count(b) / rows, per = operand->dim[0] / rows;
    int64_t last = operand->offset; // of the elements of one index
    for (int i = 1; i < operand->ndim; i++)
        last += (operand->dim[i] - 1) * operand->stride[i];
    if (operand->along || operand->dim[0] % rows || per == 0 || row % per || last >= row / per ||
        (operand->dim[0] > 1 && operand->stride[0] != row / per))
        return 0;
    return per;
}

// ---- instructions

bool program_shares_region(const struct program *program) {
    for (size_t i = 0; i < program->pools.count; i++)
        if (program->pools.item[i].chunk != 0)
            return false;
    return program->pools.item[0].slots == 1;
}

int program_template(struct program *program, const char *name, enum phase phase, int chunk) {
    VEC_PUSH(&program->templates, (struct template){.name = mem_strdup(name), .phase = phase, .chunk = chunk});
    return (int)program->templates.count - 1;
}

enum { OPERANDS_FIRST = 64, OPERANDS_MOST = 1024 }; // in a block: as many as in all before, within these bounds

// Room for `count` operands, no more than one instruction has.
static struct operand *operands_room(struct program *program, size_t count) {
    if (count > program->operands_left) {
        size_t block = OPERANDS_FIRST;
        for (size_t i = 1; i < program->operands.count && block < OPERANDS_MOST; i++)
            block *= 2;
        VEC_PUSH(&program->operands, mem_resize(NULL, (block + 1) * sizeof(struct operand)));
        program->operands_left = block;
    }
    program->operands_left -= count;
    return program->operands.item[program->operands.count - 1] + program->operands_left;
}

void program_give_operands(struct program *program, struct instruction *instruction, int inputs,
                           const struct operand *in, int outputs, const struct operand *out) {
    CHECK(inputs <= OP_MAX_IN && outputs <= OP_MAX_OUT);
    struct operand *room = operands_room(program, (size_t)(inputs + outputs));
    if (inputs)
        memcpy(room, in, (size_t)inputs * sizeof *in);
    if (outputs)
        memcpy(room + inputs, out, (size_t)outputs * sizeof *out);
    instruction->in = room;
    instruction->out = room + inputs;
    instruction->inputs = inputs;
    instruction->outputs = outputs;
}

struct instruction *program_emit(struct program *program, int template, enum op op, enum phase phase, int layer,
                                 int inputs, const struct operand *in, int outputs, const struct operand *out,
                                 const union attribute *attribute) {
    struct instruction instruction = {
        .op = op, .phase = phase, .layer = layer, .stream = STREAM_COMPUTE, .workspace = NONE, .predicate = NONE};
    program_give_operands(program, &instruction, inputs, in, outputs, out);
    if (attribute)
        memcpy(instruction.attribute, attribute, sizeof instruction.attribute);
    struct template *t = &program->templates.item[template];
    VEC_PUSH(&t->instructions, instruction);
    return &t->instructions.item[t->instructions.count - 1];
}

static struct operand build_flat(struct operand operand) {
    int64_t count = operand_count(&operand);
    return operand.ndim == 1 ? operand : operand_shape(operand, 1, &count);
}

struct instruction *program_communicate(struct program *program, int template, enum op op, enum phase phase, int stream,
                                        axis_set group, struct operand in, struct operand out) {
    bool reads = in.buffer != NONE, writes = out.buffer != NONE;
    const bool flat = op_traffic[op].takes != HOLDING_BAND; // else pieces keep their dims
    struct operand from = reads && flat ? build_flat(in) : in, to = writes && flat ? build_flat(out) : out;
    bool rooted = op_is_rooted(op); // one side may be absent
    struct instruction *i =
        program_emit(program, template, op, phase, NONE, reads || rooted, &from, writes || rooted, &to, NULL);
    i->stream = stream;
    i->group = mesh_present(&program->mesh, group);
    return i;
}

void program_pool(struct program *program, int pool, int chunk, int slots, const int *slot) {
    CHECK(pool >= 0 && pool <= (int)program->pools.count);
    if (pool == (int)program->pools.count)
        VEC_PUSH(&program->pools, (struct pool){0});
    struct pool *p = &program->pools.item[pool];
    size_t bytes = (size_t)program->microbatches * sizeof *slot;
    p->chunk = chunk;
    p->part_of = NONE;
    p->slots = slots;
    p->slot = mem_resize(p->slot, bytes);
    memcpy(p->slot, slot, bytes);
    for (int s = 0; s < SPACE_COUNT; s++) {
        free(p->base[s]);
        p->base[s] = mem_alloc((size_t)MAX(slots, 0) * sizeof *p->base[s]);
    }
}

int program_whole_pool(const struct program *program, int pool) {
    int of = program->pools.item[pool].part_of;
    return of == NONE ? pool : of;
}

void program_join_pools(struct program *program) {
    for (size_t i = 0; i < program->buffers.count; i++)
        program->buffers.item[i].pool = program_whole_pool(program, program->buffers.item[i].pool);
    size_t whole = 0;
    while (whole < program->pools.count && program->pools.item[whole].part_of == NONE)
        whole++;
    program_drop_pools(program, whole);
}

void program_invoke(struct program *program, int template, int microbatch, bool first, bool last) {
    VEC_PUSH(&program->schedule, (struct invocation){template, microbatch, first, last});
}

bool instruction_is_pair(const struct instruction *i) {
    return i->peer && !op_is_message(i->op) && !op_is_rooted(i->op);
}

bool instruction_lingers(const struct program *program, const struct instruction *i) {
    return stream_is(program, i->stream, STREAM_LINGERS);
}

bool instruction_arrives(const struct instruction *i) {
    return op_takes_in(i->op) && (op_is_message(i->op) || (op_is_rooted(i->op) && i->in[0].buffer == NONE));
}

bool instruction_own_part(const struct instruction *i) {
    const bool gathers = op_traffic[i->op].takes == HOLDING_PART;
    if (!gathers && op_traffic[i->op].gives != HOLDING_PART)
        return false;
    const struct operand *part = gathers ? &i->in[0] : &i->out[0], *whole = gathers ? &i->out[0] : &i->in[0];
    return part->along == i->group && part->step == part->dim[0] && part->offset == whole->offset;
}

bool instruction_completes(const struct instruction *i) {
    return op_traffic[i->op].takes == HOLDING_PART && i->in[0].buffer == i->out[0].buffer && instruction_own_part(i);
}

bool instruction_leaves(const struct instruction *i) {
    return op_gives_away(i->op) && (op_is_message(i->op) || (op_is_rooted(i->op) && i->out[0].buffer == NONE));
}

bool instruction_holds_when_skipped(const struct op_table *table, const struct instruction *instruction, int out) {
    const struct op_info *info = &table->op[instruction->op];
    const int from = info->inplace[out];
    if (instruction->predicate == NONE || (out == 0 && instruction->passes))
        return true;
    if (info->role == ROLE_COMMUNICATION)
        return false;
    return (info->out[out].adds && instruction->accumulate == ACCUMULATE_YES) ||
           (from >= 0 && operand_equal(&instruction->out[out], &instruction->in[from]));
}

bool instruction_accumulates(const struct instruction *instruction, const struct invocation *invocation) {
    return instruction->accumulate == ACCUMULATE_YES ||
           (instruction->accumulate == ACCUMULATE_AFTER_FIRST && !invocation->first);
}

int64_t program_length(const struct program *program) {
    int64_t n = 0;
    for (size_t i = 0; i < program->schedule.count; i++)
        n += (int64_t)program->templates.item[program->schedule.item[i].template].instructions.count;
    return n;
}

static bool build_bind(const struct op_operand *row, const struct operand *operand, int64_t extent[DIM_LETTERS]) {
    if (operand->buffer == NONE)
        return row->optional;
    if (operand->ndim != row->ndim)
        return false;
    for (int i = 0; i < row->ndim; i++) {
        if (row->dim[i] == '1') {
            if (operand->dim[i] != 1)
                return false;
            continue;
        }
        int64_t *e = &extent[(unsigned char)row->dim[i]];
        if (*e >= 0 && *e != operand->dim[i])
            return false;
        *e = operand->dim[i];
    }
    return true;
}

bool instruction_extents(const struct op_table *table, const struct instruction *instruction,
                         int64_t extent[DIM_LETTERS], const char **what) {
    const struct op_info *info = &table->op[instruction->op];
    for (int i = 0; i < 128; i++)
        extent[i] = -1;
    *what = "operands";
    if (instruction->inputs != info->inputs || instruction->outputs != info->outputs)
        return false;
    for (int i = 0; i < info->inputs; i++) {
        *what = info->in[i].name;
        if (!build_bind(&info->in[i], &instruction->in[i], extent))
            return false;
    }
    for (int i = 0; i < info->outputs; i++) {
        *what = info->out[i].name;
        if (!build_bind(&info->out[i], &instruction->out[i], extent))
            return false;
    }
    return true;
}

// As many indices of the operand's first dim as there usually are.
static int64_t first_expected(const struct program *program, const struct operand *operand) {
    const struct buffer *b = &program->buffers.item[operand->buffer];
    return b->extent == NONE ? operand->dim[0] : operand->dim[0] / b->dim[0] * b->expect;
}

int64_t operand_expected(const struct program *program, const struct operand *operand) {
    return operand_count(operand) / operand->dim[0] * first_expected(program, operand);
}

void instruction_expected(const struct program *program, const struct op_table *table,
                          const struct instruction *instruction, int64_t extent[DIM_LETTERS]) {
    const char *what;
    CHECK(instruction_extents(table, instruction, extent, &what));
    for (int k = 0; k < instruction->inputs + instruction->outputs; k++) {
        const struct operand *operand = instruction_operand_at(instruction, k);
        if (instruction_extent_at(program, instruction, k) != NONE)
            extent[(unsigned char)op_operand_at(&table->op[instruction->op], k)->dim[0]] =
                first_expected(program, operand);
    }
}

double instruction_flops(const struct program *program, const struct op_table *table,
                         const struct instruction *instruction) {
    int64_t extent[DIM_LETTERS];
    instruction_expected(program, table, instruction, extent);
    double least = INFINITY, total = 0;
    for (const char *s = table->op[instruction->op].flops; *s;) {
        double product = isdigit((unsigned char)*s) ? (double)strtol(s, (char **)&s, 10) : 1;
        for (; isalpha((unsigned char)*s); s++)
            product *= (double)extent[(unsigned char)*s];
        total += product;
        if (*s == '|') {
            least = MIN(least, total);
            total = 0;
        }
        if (*s)
            s++;
    }
    return MIN(least, total);
}

// Whether indices choose the rows of input or output `row`: its first letter stands nowhere else in the signature, and
// the letter of the indices does not stand in it.
static bool is_looked_up(const struct op_info *info, const struct op_operand *row, char indices) {
    int seen = 0;
    for (int i = 0; i < info->inputs + info->outputs; i++) {
        const struct op_operand *other = op_operand_at(info, i);
        for (int k = 0; k < other->ndim; k++) {
            seen += other->dim[k] == row->dim[0];
            if (other == row && other->dim[k] == indices)
                return false;
        }
    }
    return row->ndim > 1 && seen == 1;
}

double instruction_bytes(const struct program *program, const struct op_table *table,
                         const struct instruction *instruction, const struct invocation *invocation) {
    const struct op_info *info = &table->op[instruction->op];
    bool accumulates = instruction_accumulates(instruction, invocation);
    char letter = 0;
    int64_t indices = 0;
    for (int i = 0; i < info->inputs && !letter; i++)
        if (info->in[i].dtype == 'I' && info->in[i].ndim == 1 && info->in[i].dim[0] != '1' && !info->in[i].counts) {
            letter = info->in[i].dim[0];
            indices = instruction->in[i].dim[0];
        }
    double total = 0;
    for (int i = 0; i < instruction->inputs + instruction->outputs; i++) {
        bool input = i < instruction->inputs;
        const struct operand *operand = instruction_operand_at(instruction, i);
        const struct op_operand *row = op_operand_at(info, i);
        if (operand->buffer == NONE)
            continue;
        double bytes =
            (double)(operand_expected(program, operand) * dtype_size(program->buffers.item[operand->buffer].dtype));
        bool adds = !input && accumulates && row->adds;
        if (letter && operand->dim[0] > indices && (input || adds) && is_looked_up(info, row, letter))
            bytes *= (double)indices / (double)operand->dim[0];
        total += adds ? 2 * bytes : bytes;
    }
    return total;
}
