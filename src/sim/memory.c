#include "sim/memory.h"

// Buffers that communication fills.
static bool *find_received(const struct program *p) {
    bool *received = mem_alloc(p->buffers.count);
    FOR_INSTRUCTIONS(in, p)
        if (op_takes_in(in->op) && !op_is_rooted(in->op))
            received[program_root(p, in->out[0].buffer)] = true;
    return received;
}

static enum memory_part memory_part_of(const struct buffer *b, bool received) {
    switch (b->kind) {
    case KIND_INPUT:
    case KIND_OUTPUT:
        return MEMORY_BATCH;
    case KIND_PARAM:
        return b->scope == SCOPE_STATE ? MEMORY_PARAMETERS : MEMORY_COMMUNICATION;
    case KIND_GRAD:
        return MEMORY_GRADIENTS;
    case KIND_OPTIM:
        return MEMORY_OPTIMIZER;
    case KIND_WORK:
        return MEMORY_WORKSPACE;
    default:
        return received ? MEMORY_COMMUNICATION : MEMORY_ACTIVATIONS;
    }
}

void memory_of_program(struct sim_memory *out, const struct program *p, const struct op_table *table) {
    *out = (struct sim_memory){.largest = NONE};
    bool *received = find_received(p);
    for (size_t i = 0; i < p->buffers.count; i++) {
        const struct buffer *b = &p->buffers.item[i];
        if (b->scope == SCOPE_STATE && b->parent == NONE && b->space == SPACE_DEVICE)
            out->part[memory_part_of(b, false)] += buffer_bytes(b);
    }
    struct memory_profile profile;
    program_memory_profile(p, table, &profile);
    if (profile.moments.count)
        out->peak = profile.moments.item[profile.peak];
    int64_t listed = 0, arenas = p->arena[SPACE_DEVICE].state_bytes + p->arena[SPACE_DEVICE].step_bytes;
    for (size_t i = 0; i < profile.at_peak.count; i++) {
        const struct memory_holder *h = &profile.at_peak.item[i];
        out->part[memory_part_of(&p->buffers.item[h->buffer], received[h->buffer])] += h->bytes;
        listed += h->bytes;
    }
    if (profile.at_peak.count)
        out->largest = profile.at_peak.item[0].buffer;
    memory_profile_release(&profile);
    free(received);
    // The rest of what lives at that moment is held for other microbatches.
    out->part[MEMORY_ACTIVATIONS] += out->peak.live - listed;
    out->part[MEMORY_UNUSED] = arenas;
    for (int i = 0; i < MEMORY_UNUSED; i++)
        out->part[MEMORY_UNUSED] -= out->part[i];
    out->total = arenas;
}

void memory_of_stage(struct sim_memory *out, const struct stage *stage, const struct program *step,
                     const struct op_table *table) {
    memory_of_program(out, step, table);
    const struct arena *own = &step->arena[SPACE_DEVICE];
    const int64_t state = stage_state_bytes(stage, SPACE_DEVICE) - own->state_bytes,
                  others = stage_step_bytes(stage, SPACE_DEVICE) - own->step_bytes;
    out->part[MEMORY_OPTIMIZER] += state;
    out->part[MEMORY_COMMUNICATION] += others;
    out->total += state + others;
}

struct sim_memory memory_on(const struct sim_memory *of_program, const struct device *device) {
    struct sim_memory memory = *of_program;
    memory.part[MEMORY_RUNTIME] = device->runtime_memory;
    memory.total += device->runtime_memory;
    return memory;
}

const char *memory_part_name(enum memory_part part) {
    static const char *const NAMES[] = {"parameters", "gradients", "optimizer", "activations", "communication",
                                        "workspace",  "batch",     "unused",    "runtime"};
    return NAMES[part];
}
