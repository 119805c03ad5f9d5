// The text form of a program. One line per buffer, instruction and invocation; fields that have their usual value are
// left out.
//
//   program train microbatches 8
//   mesh pp 2
//   arena state 51456 fixed 2496 scratch 2496+3072 step 15040
//   arena file state 6144 fixed 0 scratch 0+0 step 0
//   pool 0 chunk 0 at 5568 9920: 0 1 0 1 0 1 0 1
//   buffer %24 f32 grad state [48,12] @18944 of %21+640 gradient %7 place pp stage "grad.layers.0.mlp.up.weight"
//   buffer %0 f32 param state [768] @0 place island own "embed.parameters"
//   buffer %34 f32 optim state [768] @25600 as m for %0 "embed.m"
//   buffer %70 f32 act slot [64,48] @0 extent %69 expect 40 "rows"
//   buffer %35 f32 optim state [768] space file @0 as v for %0 "embed.v"
//   template 1 forward "forward"
//     %63[8,48] = matmul %60[8,12] %7[48,12] %15[48] - phase forward layer 0
//     = send %65[96] phase forward stream to_next group pp peer 1 wait compute
//   invoke 1 microbatch 0 first
//
// An operand is %buffer[extents], then (strides) unless contiguous, then +offset unless 0, then @axes*step where it
// begins at the rank's index; `-` is an absent one. One rank has no line `mesh`. The first line `arena` is of the
// device; spaces without buffers have none. A pool's line has where its slots lie, in the device and in each other
// space whose step arena has any bytes (`at 5568 9920 file 0 512:`), and the slot of each microbatch.
#include "program/names.h"

static void print_dims(struct text *out, int ndim, const int64_t *dim) {
    for (int i = 0; i < ndim; i++)
        text_add(out, "%s%lld", i ? "," : "", (long long)dim[i]);
}

static void print_operand(struct text *out, const struct operand *o) {
    if (o->buffer == NONE) {
        text_add(out, " -");
        return;
    }
    text_add(out, " %%%d[", o->buffer);
    print_dims(out, o->ndim, o->dim);
    text_add(out, "]");
    int64_t stride = 1;
    bool contiguous = true;
    for (int i = o->ndim - 1; i >= 0; i--) {
        contiguous &= o->stride[i] == stride;
        stride *= o->dim[i];
    }
    if (!contiguous) {
        text_add(out, "(");
        print_dims(out, o->ndim, o->stride);
        text_add(out, ")");
    }
    if (o->offset)
        text_add(out, "+%lld", (long long)o->offset);
    if (o->along) {
        char axes[AXES_TEXT];
        text_add(out, "@%s*%lld", axes_print(o->along, axes), (long long)o->step);
    }
}

static void print_instruction(struct text *out, const struct program *program, const struct op_table *table,
                              const struct instruction *in) {
    const struct op_info *info = &table->op[in->op];
    text_add(out, " ");
    for (int i = 0; i < in->outputs; i++)
        print_operand(out, &in->out[i]);
    text_add(out, " = %s", info->name);
    for (int i = 0; i < in->inputs; i++)
        print_operand(out, &in->in[i]);
    for (int i = 0; i < info->attributes; i++) {
        if (info->attribute[i].optional && in->attribute[i].i == 0)
            continue;
        if (info->attribute[i].is_float)
            text_add(out, " %s %.17g", info->attribute[i].name, in->attribute[i].f);
        else
            text_add(out, " %s %lld", info->attribute[i].name, (long long)in->attribute[i].i);
    }
    text_add(out, " phase %s", PHASE_WORDS[in->phase]);
    if (in->layer != NONE)
        text_add(out, " layer %d", in->layer);
    if (in->stream != STREAM_COMPUTE)
        text_add(out, " stream %s", program->streams.item[in->stream].name);
    if (in->group) {
        char axes[AXES_TEXT];
        text_add(out, " group %s", axes_print(in->group, axes));
    }
    if (in->peer)
        text_add(out, " peer %d%s", in->peer, in->open ? " open" : "");
    if (in->when != WHEN_ALWAYS)
        text_add(out, " %s", WHEN_WORDS[in->when]);
    if (in->accumulate != ACCUMULATE_NO)
        text_add(out, " accumulate %s", ACCUMULATE_WORDS[in->accumulate]);
    if (in->workspace != NONE)
        text_add(out, " workspace %%%d", in->workspace);
    if (in->predicate != NONE)
        text_add(out, " if %%%d", in->predicate);
    if (in->passes)
        text_add(out, " else %s", info->in[instruction_otherwise(in)].name);
    if (in->set)
        text_add(out, " set %d of %s", in->set, table->op[in->stands_for].name);
    for (size_t s = 0; s < program->streams.count; s++) {
        const char *name = program->streams.item[s].name;
        if (in->wait[s] == WAIT_SLOT)
            text_add(out, " wait %s-slot", name);
        else if (in->wait[s] == WAIT_OWN)
            text_add(out, " wait %s-own", name);
        else if (in->wait[s] && wait_lag(in->wait[s]) == 0)
            text_add(out, " wait %s", name);
        else if (in->wait[s])
            text_add(out, " wait %s-%d", name, wait_lag(in->wait[s]));
    }
    text_add(out, "\n");
}

static void print_buffer(struct text *out, const struct program *program, int number) {
    const struct buffer *b = &program->buffers.item[number];
    text_add(out, "buffer %%%d %s %s %s [", number, dtype_name(b->dtype), KIND_WORDS[b->kind], SCOPE_WORDS[b->scope]);
    print_dims(out, b->ndim, b->dim);
    text_add(out, "]");
    if (b->space != SPACE_DEVICE)
        text_add(out, " space %s", memory_spaces[b->space].name);
    if (b->offset >= 0)
        text_add(out, " @%lld", (long long)b->offset);
    if (b->parent != NONE)
        text_add(out, " of %%%d+%lld", b->parent, (long long)b->parent_offset);
    if (b->gradient_of != NONE)
        text_add(out, " gradient %%%d", b->gradient_of);
    if (b->recomputes != NONE)
        text_add(out, " recomputes %%%d", b->recomputes);
    if (b->pool)
        text_add(out, " pool %d", b->pool);
    if (*b->as)
        text_add(out, " as %s", b->as);
    if (b->belongs_to != NONE)
        text_add(out, " for %%%d", b->belongs_to);
    if (b->extent != NONE)
        text_add(out, " extent %%%d", b->extent);
    if (b->extent != NONE && b->expect != b->dim[0])
        text_add(out, " expect %lld", (long long)b->expect);
    if (b->own) {
        char axes[AXES_TEXT];
        text_add(out, " own %s", axes_print(b->own, axes));
    }
    for (int a = 0; a < AXIS_COUNT; a++)
        if (b->placement[a] >= PLACE_SHARD(0))
            text_add(out, " place %s %d", axis_name((enum axis)a), b->placement[a] - PLACE_SHARD(0));
        else if (b->placement[a] != PLACE_REPLICATE)
            text_add(out, " place %s %s", axis_name((enum axis)a),
                     b->placement[a] == PLACE_SUM   ? "sum"
                     : b->placement[a] == PLACE_MAX ? "max"
                     : AXES(a) & AXES_STAGE         ? "stage"
                                                    : "own");
    text_add(out, " \"%s\"\n", b->name);
}

void program_print(const struct program *p, const struct op_table *table, struct text *out) {
    text_add(out, "program %s microbatches %d\n", p->name, p->microbatches);
    if (mesh_ranks(&p->mesh) > 1) {
        text_add(out, "mesh");
        for (int a = 0; a < AXIS_COUNT; a++)
            if (p->mesh.degree[a] > 1)
                text_add(out, " %s %d", axis_name((enum axis)a), p->mesh.degree[a]);
        text_add(out, "\n");
    }
    for (int s = 0; s < SPACE_COUNT; s++) {
        const struct arena *a = &p->arena[s];
        if (s != SPACE_DEVICE && a->state_bytes == 0 && a->step_bytes == 0)
            continue;
        text_add(out, "arena%s%s state %lld fixed %lld scratch %lld+%lld step %lld\n", s == SPACE_DEVICE ? "" : " ",
                 s == SPACE_DEVICE ? "" : memory_spaces[s].name, (long long)a->state_bytes, (long long)a->fixed_bytes,
                 (long long)a->scratch_base, (long long)a->scratch_bytes, (long long)a->step_bytes);
    }
    for (size_t s = STREAM_COMPUTE + 1; s < p->streams.count; s++) {
        text_add(out, "stream %s", p->streams.item[s].name);
        for (int bit = 0; bit < STREAM_PROPERTIES; bit++)
            if (p->streams.item[s].properties & 1u << bit)
                text_add(out, " %s", STREAM_WORDS[bit]);
        text_add(out, "\n");
    }
    for (size_t i = 0; i < p->pools.count; i++) {
        const struct pool *pool = &p->pools.item[i];
        text_add(out, "pool %zu chunk %d", i, pool->chunk);
        if (pool->part_of != NONE)
            text_add(out, " part of %d", pool->part_of);
        text_add(out, " at");
        for (int k = 0; k < SPACE_COUNT; k++) {
            if (k != SPACE_DEVICE && p->arena[k].step_bytes > 0)
                text_add(out, " %s", memory_spaces[k].name);
            for (int s = 0; s < pool->slots && (k == SPACE_DEVICE || p->arena[k].step_bytes > 0); s++)
                text_add(out, " %lld", (long long)pool->base[k][s]);
        }
        text_add(out, ":");
        for (int m = 0; m < p->microbatches; m++)
            text_add(out, " %d", pool->slot[m]);
        text_add(out, "\n");
    }
    for (size_t i = 0; i < p->buffers.count; i++)
        print_buffer(out, p, (int)i);
    for (size_t i = 0; i < p->terms.count; i++)
        text_add(out, "term %%%d weight %.17g\n", p->terms.item[i].scale, p->terms.item[i].weight);
    for (size_t t = 0; t < p->templates.count; t++) {
        const struct template *template = &p->templates.item[t];
        text_add(out, "template %zu %s", t, PHASE_WORDS[template->phase]);
        if (template->chunk)
            text_add(out, " chunk %d", template->chunk);
        text_add(out, " \"%s\"\n", template->name);
        for (size_t i = 0; i < template->instructions.count; i++)
            print_instruction(out, p, table, &template->instructions.item[i]);
    }
    for (size_t i = 0; i < p->schedule.count; i++) {
        struct invocation v = p->schedule.item[i];
        text_add(out, "invoke %d", v.template);
        if (v.microbatch != NONE)
            text_add(out, " microbatch %d", v.microbatch);
        text_add(out, "%s%s\n", v.first ? " first" : "", v.last ? " last" : "");
    }
}
