#include "compile/passes.h"

#include "base/reserve.h"
#include "kernels/call.h"
#include "model/emit.h"

// ---- weight gradients in a template of their own

int pass_split(struct program *program, int backward) {
    const struct template *from = &program->templates.item[backward];
    char *name = mem_printf("weight%s", from->name + strlen("backward"));
    int weight = program_template(program, name, PHASE_WEIGHT, from->chunk);
    free(name);
    struct template *t = &program->templates.item[backward];
    size_t kept = 0;
    for (size_t i = 0; i < t->instructions.count; i++) {
        struct instruction *instruction = &t->instructions.item[i];
        if (instruction->phase == PHASE_WEIGHT && instruction->layer != NONE)
            VEC_PUSH(&program->templates.item[weight].instructions, *instruction);
        else
            t->instructions.item[kept++] = *instruction;
    }
    t->instructions.count = kept;
    return weight;
}

// ---- fusion

static bool same_reference(struct op_reference a, struct op_reference b) {
    return a.output == b.output && a.gradient == b.gradient && a.pass == b.pass && a.index == b.index;
}

// The operand of `instruction` that its adjoint calls `reference`; NULL when it has none.
static const struct operand *find_read(const struct op_info *info, const struct instruction *instruction,
                                       struct op_reference reference) {
    for (int i = 0; i < info->inputs; i++)
        if (same_reference(info->reads[i], reference))
            return &instruction->in[i];
    return NULL;
}

static const struct operand *find_contribution(const struct op_info *info, const struct instruction *instruction,
                                               int index) {
    for (int i = 0; i < info->outputs; i++)
        if (info->contributes[i].index == index)
            return &instruction->out[i];
    return NULL;
}

// Makes `fused` of a and b, as op `whole`. What both read must be the same; what only one reads comes from that one.
static bool passes_merge(struct program *program, const struct op_info *whole, const struct op_info *a_info,
                         const struct instruction *a, const struct op_info *b_info, const struct instruction *b,
                         struct instruction *fused) {
    struct operand in[OP_MAX_IN], out[OP_MAX_OUT];
    if (a->accumulate != ACCUMULATE_NO)
        return false;
    for (int i = 0; i < whole->inputs; i++) {
        const struct operand *from_a = find_read(a_info, a, whole->reads[i]),
                             *from_b = find_read(b_info, b, whole->reads[i]);
        if ((!from_a && !from_b) || (from_a && from_b && !operand_equal(from_a, from_b)))
            return false;
        in[i] = from_a ? *from_a : *from_b;
    }
    for (int i = 0; i < whole->outputs; i++) {
        const struct operand *from_a = find_contribution(a_info, a, whole->contributes[i].index),
                             *from_b = find_contribution(b_info, b, whole->contributes[i].index);
        if (!from_a == !from_b)
            return false;
        out[i] = from_a ? *from_a : *from_b;
    }
    *fused = *a;
    fused->op = whole->op;
    fused->phase = PHASE_BACKWARD;
    fused->accumulate = b->accumulate; // only weight gradients accumulate in a fused op
    program_give_operands(program, fused, whole->inputs, in, whole->outputs, out);
    return true;
}

static bool passes_waits(const struct instruction *instruction) {
    for (int s = 0; s < STREAMS_MAX; s++)
        if (instruction->wait[s])
            return true;
    return false;
}

static bool try_fuse(struct program *program, const struct op_table *table, const struct instruction *a,
                     const struct instruction *b, struct instruction *fused) {
    const struct op_info *a_info = &table->op[a->op], *b_info = &table->op[b->op];
    if (a_info->role != ROLE_BACKWARD || b_info->role != ROLE_BACKWARD || a_info->forward != b_info->forward ||
        a->stream != b->stream || passes_waits(a) || passes_waits(b))
        return false;
    for (int op = 0; op < OP_COUNT; op++) {
        const struct op_info *whole = &table->op[op];
        if (whole->role == ROLE_BACKWARD && whole->fused && whole->forward == a_info->forward &&
            passes_merge(program, whole, a_info, a, b_info, b, fused))
            return true;
    }
    return false;
}

void pass_fuse(struct program *program, const struct op_table *table) {
    for (size_t t = 0; t < program->templates.count; t++) {
        struct template *template = &program->templates.item[t];
        size_t kept = 0;
        for (size_t i = 0; i < template->instructions.count; i++) {
            struct instruction *item = template->instructions.item, fused;
            if (kept && try_fuse(program, table, &item[kept - 1], &item[i], &fused))
                item[kept - 1] = fused;
            else
                item[kept++] = item[i];
        }
        template->instructions.count = kept;
    }
}

// ---- communication ahead of weight gradients

static bool passes_writes_what(const struct program *p, const struct instruction *a, const struct instruction *b) {
    for (int i = 0; i < a->outputs; i++)
        for (int k = 0; k < instruction_buffers(b) && a->out[i].buffer != NONE; k++) {
            const int buffer = instruction_buffer_at(p, b, k);
            if (buffer != NONE && program_root(p, buffer) == program_root(p, a->out[i].buffer))
                return true;
        }
    return false;
}

// Whether the order of `a` and `b` does not matter: neither writes what the other touches.
static bool passes_commute(const struct program *p, const struct instruction *a, const struct instruction *b) {
    return !passes_writes_what(p, a, b) && !passes_writes_what(p, b, a);
}

static bool passes_recomputes(const struct program *p, const struct instruction *in) {
    for (int i = 0; i < in->outputs; i++)
        if (in->out[i].buffer != NONE && p->buffers.item[in->out[i].buffer].recomputes == NONE)
            return false;
    return in->outputs > 0;
}

static void passes_move(struct instruction *item, size_t from, size_t to) {
    struct instruction moved = item[from];
    for (; from < to; from++)
        item[from] = item[from + 1];
    for (; from > to; from--)
        item[from] = item[from - 1];
    item[to] = moved;
}

// Where instruction i is followed by recomputation for a weight gradient, up to something that tensor ranks gather,
// moves it behind that: it then runs while ranks gather.
static void let_gather_first(const struct program *p, struct instruction *item, size_t count, size_t i) {
    if (item[i].stream != STREAM_COMPUTE || passes_recomputes(p, &item[i]))
        return;
    for (size_t k = i + 1; k < count && passes_recomputes(p, &item[k]) && passes_commute(p, &item[i], &item[k]); k++)
        if (stream_is(p, item[k].stream, STREAM_PROMPT)) {
            passes_move(item, i, k);
            return;
        }
}

static void exchange_early(const struct program *p, struct instruction *item, size_t i) {
    size_t to = i;
    while (to > 0 && item[to - 1].phase == PHASE_WEIGHT && item[to - 1].stream == STREAM_COMPUTE &&
           passes_commute(p, &item[to - 1], &item[i]))
        to--;
    passes_move(item, i, to);
}

void pass_overlap(struct program *program) {
    for (size_t t = 0; t < program->templates.count; t++) {
        struct template *template = &program->templates.item[t];
        struct instruction *item = template->instructions.item;
        for (size_t i = template->instructions.count; i-- > 0;)
            let_gather_first(program, item, template->instructions.count, i);
        for (size_t i = 0; i < template->instructions.count; i++)
            if (stream_is(program, item[i].stream, STREAM_PROMPT) && item[i].phase == PHASE_BACKWARD &&
                !passes_recomputes(program, &item[i]))
                exchange_early(program, item, i);
    }
}

// ---- messages in parts

static void gather_message(struct program *program, int template, struct operand part, enum phase phase) {
    program_communicate(program, template, OP_ALL_GATHER, phase, tensor_stream(program), part.along, part,
                        operand_whole(program, part.buffer));
}

void pass_scatter(struct program *program) {
    const axis_set tensor = mesh_present(&program->mesh, AXES_TENSOR);
    const int ranks = mesh_group_size(&program->mesh, tensor);
    for (size_t t = 0; t < program->templates.count && tensor; t++) {
        struct template *template = &program->templates.item[t];
        struct template old = *template;
        template->instructions.item = NULL;
        template->instructions.count = template->instructions.capacity = 0;
        for (size_t i = 0; i < old.instructions.count; i++) {
            struct instruction in = old.instructions.item[i];
            struct operand *message = !(in.group & AXES_STAGE) ? NULL
                                      : in.op == OP_SEND       ? &in.in[INPUT(SEND, x)]
                                      : in.op == OP_RECEIVE    ? &in.out[OUTPUT(RECEIVE, x)]
                                                               : NULL;
            const bool cut = message && operand_count(message) % ranks == 0;
            if (cut)
                *message = operand_part(program, *message, tensor);
            VEC_PUSH(&template->instructions, in);
            if (cut && in.op == OP_RECEIVE)
                gather_message(program, (int)t, *message, in.phase);
        }
        free(old.instructions.item);
    }
}

// ---- scopes

// In `seen_in`, in place of a template: the buffer has its scope already.
enum { FIXED = -2 };

// A gradient that one chunk hands to another goes to the pool of the earlier chunk, whose slot is held longer.
static void note_use(struct program *program, int *seen_in, int buffer, int template, bool piped) {
    if (buffer == NONE)
        return;
    int root = program_root(program, buffer), chunk = program->templates.item[template].chunk;
    struct buffer *b = &program->buffers.item[root];
    if (seen_in[root] == FIXED)
        return;
    if (piped || (seen_in[root] != NONE && seen_in[root] != template))
        b->scope = SCOPE_SLOT;
    b->pool = seen_in[root] == NONE ? chunk : MIN(b->pool, chunk);
    seen_in[root] = template;
}

void pass_scopes(struct program *program) {
    int *seen_in = mem_alloc(program->buffers.count * sizeof(int));
    for (size_t i = 0; i < program->buffers.count; i++) {
        const struct buffer *b = &program->buffers.item[i];
        seen_in[i] = b->scope == SCOPE_LOCAL && b->kind == KIND_ACT ? NONE : FIXED;
    }
    for (size_t t = 0; t < program->templates.count; t++) {
        const struct template *template = &program->templates.item[t];
        for (size_t i = 0; i < template->instructions.count; i++) {
            const struct instruction *instruction = &template->instructions.item[i];
            // A message may be under way while other microbatches run.
            bool piped = instruction_lingers(program, instruction);
            for (int k = 0; k < instruction_buffers(instruction); k++)
                note_use(program, seen_in, instruction_buffer_at(program, instruction, k), (int)t, piped);
        }
    }
    for (size_t i = 0; i < program->buffers.count; i++) {
        struct buffer *b = &program->buffers.item[i];
        const struct buffer *root = &program->buffers.item[program_root(program, (int)i)];
        b->scope = root->scope;
        b->pool = root->scope == SCOPE_SLOT ? root->pool : 0;
    }
    free(seen_in);
}

// ---- workspaces

trireme_status pass_workspaces(struct program *program, const struct op_table *table, enum kernel_set set, int threads,
                               trireme_error *error) {
    for (size_t t = 0; t < program->templates.count; t++) {
        struct template *template = &program->templates.item[t];
        TRY(reserve_check(error));
        for (size_t i = 0; i < template->instructions.count; i++) {
            struct instruction *instruction = &template->instructions.item[i];
            struct kernel kernel = kernel_find(instruction->op, instruction_dtype(program, table, instruction), set);
            if (!kernel.prepare)
                continue;
            struct call call;
            call_describe(&call, program, instruction, threads);
            void *prepared = NULL;
            int64_t bytes = 0;
            trireme_status status = instruction_prepare(&kernel, &call, program, instruction, &prepared, &bytes, error);
            if (status != TRIREME_OK)
                return error_prefix(error, status, "template %s, instruction %zu (%s)", template->name, i,
                                    table->op[instruction->op].name);
            if (kernel.release)
                kernel.release(prepared);
            if (bytes == 0)
                continue;
            // u16 is the smallest dtype there is; workspaces are bytes.
            int64_t count = (bytes + 1) / 2;
            char *name = mem_printf("work.%s.%zu.%s", template->name, i, table->op[instruction->op].name);
            instruction->workspace = program_buffer(program, name, DTYPE_U16, KIND_WORK, SCOPE_LOCAL, 1, &count);
            free(name);
        }
    }
    return TRIREME_OK;
}
