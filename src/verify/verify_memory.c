// Runs the schedule on names instead of numbers. Every root buffer's instance holds the list of its parts that have
// been written in this lifetime. Writing to an instance for the first time takes its bytes from whatever instance held
// them; a read must find its part written and its bytes still its own. That one rule covers reading before writing,
// freeing too early and overlapping memory. A write over something that nobody has read would lose it, and is refused
// too; so is a write over something that has been read, where the rest of the verifier takes a name for one value.
//
// Streams: each has a vector clock (Fidge 1988, Mattern 1989); an access must be ordered after those it conflicts with,
// including those to buffers whose bytes others have taken in part.
#include "program/slices.h"
#include "verify/history.h"
#include "verify/leftovers.h"
#include "verify/proofs.h"

struct instance {
    int root;
    int64_t begin, end; // bytes within its arena; of step arenas, as if those of all spaces lay one after another
    bool state;         // which arena of its buffer's space
    bool alive;         // holds its bytes
    int order, above;   // among all by address: itself, and the first that begins where it ends or later
    int owner;          // microbatch whose values it holds, of LOCAL: invocation; NONE: no microbatch's
    int made_for;       // microbatch that last began to write it; NONE: none has
    bool reduced;       // gradients that are only there for a while: have been added to those that stay
    bool changed;       // copies of what is kept: has been updated, and not been moved to where it is kept
    int32_t version;    // how often it has been written
    struct guard {      // it holds something only where this predicate, as it was then, is not 0
        int predicate;  // NONE: in any case
        const struct instance *instance; // of the predicate
        int32_t version;
    } guard;
    struct bound {                     // it has as many rows as this extent said then
        const struct instance *extent; // NULL: nobody has looked yet
        int32_t version;
    } bound;
    enum op maker; // of what it holds, before others added to it or passed it on
    struct written written;
    const char *taken_by;                             // buffer that took its bytes, for messages
    int32_t wrote[STREAMS_MAX], touched[STREAMS_MAX]; // clocks of the last write and access on each stream
};

struct bounds {
    int64_t begin, end;
    int instance;
};

struct memory_check {
    const struct program *program;
    const struct op_table *table;
    struct instance *instances;
    int *first; // root buffer -> its first instance
    int count;
    // SLOT and LOCAL instances by address, and the numbers of those that hold their bytes, which are disjoint.
    struct bounds *by_address;
    struct number_set live;
    struct leftovers leftovers;              // of instances that others have taken in part
    struct history history[STREAMS_MAX];     // what each knew of the others when it had done its n-th instruction
    bool many_streams;                       // else history is not kept
    bool learned[STREAMS_MAX];               // something of others, since its last instruction
    int32_t clock[STREAMS_MAX][STREAMS_MAX]; // what each stream knows of each: instructions that are done
    struct invocation now;
    int instruction; // of its template
    size_t invocation;
    struct slot_waits waits;
    struct slices slices;
    bool follows;     // there is a loss: a name stands for one value of a microbatch, which others follow by its name
    bool *required;   // GRAD roots of the state: whether reads of the whole need only the slices
    VEC(int) passing; // GRAD roots that exist only for an invocation or a microbatch, copies of what is kept
};

static struct site memory_here(const struct memory_check *c) {
    return program_site(c->program, c->table, c->now.template, c->instruction, c->now.microbatch);
}

static int instances_of(const struct program *p, const struct buffer *b) {
    return b->scope == SCOPE_MICROBATCH ? p->microbatches : b->scope == SCOPE_SLOT ? p->pools.item[b->pool].slots : 1;
}

// Where the step arena of a space begins, if those of all spaces lay one after another.
static int64_t step_begin(const struct program *p, enum memory_space space) {
    int64_t begin = 0;
    for (int s = 0; s < (int)space; s++)
        begin += align_up(p->arena[s].step_bytes);
    return begin;
}

// From the start of its arena.
static int64_t instance_offset(const struct program *p, const struct buffer *b, int which) {
    switch (b->scope) {
    case SCOPE_MICROBATCH:
        return b->offset + which * buffer_microbatch_stride(b) * dtype_size(b->dtype);
    case SCOPE_SLOT:
        return p->pools.item[b->pool].base[b->space][which] + b->offset;
    case SCOPE_LOCAL:
        return p->arena[b->space].scratch_base + b->offset;
    default:
        return b->offset;
    }
}

static bool planned_alone(const struct buffer *b) {
    return b->scope == SCOPE_STATE || b->scope == SCOPE_STEP || b->scope == SCOPE_MICROBATCH;
}

static void memory_write_all(struct instance *instance, const struct buffer *b) {
    const struct footprint all = {0, 0, 1, 0, buffer_count(b)};
    written_add(&instance->written, all);
    written_mark_read(&instance->written, &all);
}

static trireme_status memory_create(struct memory_check *c, trireme_error *error) {
    const struct program *p = c->program;
    c->first = mem_alloc(p->buffers.count * sizeof(int));
    for (size_t i = 0; i < p->buffers.count; i++)
        if (p->buffers.item[i].parent == NONE) {
            c->first[i] = c->count;
            c->count += instances_of(p, &p->buffers.item[i]);
        }
    c->instances = mem_alloc((size_t)c->count * sizeof *c->instances);
    for (size_t i = 0; i < p->buffers.count; i++) {
        const struct buffer *b = &p->buffers.item[i];
        if (b->parent != NONE) {
            int root = program_root(p, (int)i);
            if (b->offset != p->buffers.item[root].offset + program_root_offset(p, (int)i) * dtype_size(b->dtype))
                REFUSE("buffer %s does not lie at byte %lld of %s, of which it is a slice", b->name,
                       (long long)(program_root_offset(p, (int)i) * dtype_size(b->dtype)), p->buffers.item[root].name);
            continue;
        }
        if (b->offset < 0 || b->offset % BUFFER_ALIGNMENT)
            REFUSE("buffer %s has no aligned offset: the program has not been planned", b->name);
        for (int k = 0; k < instances_of(p, b); k++) {
            struct instance *instance = &c->instances[c->first[i] + k];
            const bool state = b->scope == SCOPE_STATE;
            const struct arena *arena = &p->arena[b->space];
            const int64_t bytes = align_up(buffer_bytes(b)), room = state ? arena->state_bytes : arena->step_bytes,
                          from = state ? 0 : step_begin(p, b->space), begin = from + instance_offset(p, b, k);
            *instance = (struct instance){.root = (int)i,
                                          .begin = begin,
                                          .end = begin + bytes,
                                          .owner = NONE,
                                          .made_for = NONE,
                                          .guard = {.predicate = NONE}};
            instance->state = state;
            instance->alive = planned_alone(b);
            if (instance->end - from > room)
                REFUSE("buffer %s ends at byte %lld of an arena of %lld", b->name, (long long)(instance->end - from),
                       (long long)room);
            // What the host or the last step wrote. Gradients are made anew in each step.
            if (b->kind == KIND_INPUT || b->kind == KIND_CACHE ||
                (b->scope == SCOPE_STATE && (b->kind == KIND_PARAM || b->kind == KIND_OPTIM)))
                memory_write_all(instance, b);
        }
    }
    return TRIREME_OK;
}

static int compare_bounds(const void *a, const void *b) {
    int64_t x = ((const struct bounds *)a)->begin, y = ((const struct bounds *)b)->begin;
    return COMPARE(x, y);
}

// Buffers of a space that live throughout overlap neither one another nor what others have.
static trireme_status check_fixed(struct memory_check *c, enum memory_space space, bool state, trireme_error *error) {
    const struct program *p = c->program;
    VEC(struct bounds) fixed = {0};
    for (int i = 0; i < c->count; i++)
        if (c->instances[i].state == state && c->instances[i].alive &&
            p->buffers.item[c->instances[i].root].space == space)
            VEC_PUSH(&fixed, (struct bounds){c->instances[i].begin, c->instances[i].end, i});
    VEC_SORT(&fixed, compare_bounds);
    int a = NONE, b = NONE;
    for (size_t i = 1; i < fixed.count && a == NONE; i++)
        if (fixed.item[i].begin < fixed.item[i - 1].end)
            a = fixed.item[i - 1].instance, b = fixed.item[i].instance;
    // The region of SLOT and LOCAL buffers begins after them.
    int64_t top = fixed.count ? fixed.item[fixed.count - 1].end - step_begin(p, space) : 0;
    int last = fixed.count ? fixed.item[fixed.count - 1].instance : NONE;
    VEC_RELEASE(&fixed);
    if (a != NONE)
        REFUSE("buffers %s and %s overlap in memory", program_buffer_name(p, c->instances[a].root),
               program_buffer_name(p, c->instances[b].root));
    bool overlap = !state && top > p->arena[space].scratch_base;
    // Parts of pools have slots in the first space only.
    for (size_t i = 0; i < p->pools.count && !state; i++)
        for (int s = 0; s < p->pools.item[i].slots && (space == SPACE_DEVICE || p->pools.item[i].part_of == NONE); s++)
            overlap |= top > p->pools.item[i].base[space][s];
    if (overlap && last != NONE)
        REFUSE("buffer %s overlaps the region of activations", program_buffer_name(p, c->instances[last].root));
    return TRIREME_OK;
}

static struct instance *instance_of(const struct memory_check *c, int root) {
    const struct buffer *b = &c->program->buffers.item[root];
    int which = 0;
    if (c->now.microbatch != NONE && b->scope == SCOPE_SLOT)
        which = c->program->pools.item[b->pool].slot[c->now.microbatch];
    else if (c->now.microbatch != NONE && b->scope == SCOPE_MICROBATCH)
        which = c->now.microbatch;
    return &c->instances[c->first[root] + which];
}

// ---- who holds which bytes

static void order_by_address(struct memory_check *c) {
    int count = 0;
    c->by_address = mem_alloc((size_t)c->count * sizeof *c->by_address);
    for (int i = 0; i < c->count; i++)
        if (!planned_alone(&c->program->buffers.item[c->instances[i].root]))
            c->by_address[count++] = (struct bounds){c->instances[i].begin, c->instances[i].end, i};
    qsort(c->by_address, (size_t)count, sizeof *c->by_address, compare_bounds);
    for (int i = 0; i < count; i++) {
        struct instance *instance = &c->instances[c->by_address[i].instance];
        instance->order = i;
        instance->above = (int)PARTITION_POINT(k, (size_t)count, c->by_address[k].begin < instance->end);
    }
    number_set_create(&c->live, count);
    int64_t *edge = mem_alloc(2 * (size_t)count * sizeof *edge);
    for (int i = 0; i < count; i++) {
        edge[2 * i] = c->by_address[i].begin;
        edge[2 * i + 1] = c->by_address[i].end;
    }
    leftovers_create(&c->leftovers, edge, 2 * (size_t)count);
    free(edge);
}

static void set_live(struct memory_check *c, struct instance *instance, bool alive) {
    instance->alive = alive;
    if (alive)
        number_set_add(&c->live, instance->order);
    else
        number_set_remove(&c->live, instance->order);
}

// The last live instance before number `end` by address, or NULL.
static struct instance *live_before(const struct memory_check *c, int end) {
    int last = number_set_below(&c->live, end);
    return last == NONE ? NULL : &c->instances[c->by_address[last].instance];
}

static void take_out(struct memory_check *c, struct instance *instance, const char *taker) {
    set_live(c, instance, false);
    instance->taken_by = taker;
    written_clear(&instance->written);
}

// Whether output `out` may take memory of that instance: if the instruction does not use it, or its row allows it.
static bool may_take(const struct memory_check *c, const struct instruction *instruction, int out,
                     const struct instance *from) {
    const struct op_info *info = &c->table->op[instruction->op];
    const int root = from->root;
    if (instance_of(c, root) != from) // another microbatch's
        return true;
    for (int i = 0; i < instruction->inputs; i++) {
        if (instruction->in[i].buffer == NONE || program_root(c->program, instruction->in[i].buffer) != root)
            continue;
        if (out == NONE || info->inplace[out] != i)
            return false;
        const struct instance *to = instance_of(c, program_root(c->program, instruction->out[out].buffer));
        struct footprint read, written; // element for element
        if (from->begin != to->begin || instruction->in[i].along != instruction->out[out].along ||
            !footprint_of(c->program, &instruction->in[i], &read) ||
            !footprint_of(c->program, &instruction->out[out], &written) || !footprint_equal(&read, &written))
            return false;
    }
    for (int i = 0; i < instruction->outputs; i++)
        if (i != out && instruction->out[i].buffer != NONE &&
            program_root(c->program, instruction->out[i].buffer) == root)
            return false;
    return instruction->workspace != root;
}

// Gradients that exist only for an invocation or a microbatch have to be reduced before others take their memory.
static bool memory_passes(const struct buffer *b) {
    return b->parent == NONE && b->kind == KIND_GRAD && (b->scope == SCOPE_LOCAL || b->scope == SCOPE_SLOT);
}

// Whether a root buffer is, or is a copy of, what is kept between steps.
static bool memory_keeps(const struct program *p, int root) {
    return p->buffers.item[program_root(p, program_original(p, root))].scope == SCOPE_STATE;
}

// A copy of what is kept, in another space, has to go back once it is updated.
static bool memory_copies(const struct program *p, int root) {
    return p->buffers.item[root].parent == NONE && p->buffers.item[root].scope != SCOPE_STATE && memory_keeps(p, root);
}

static bool is_lost(const struct memory_check *c, const struct instance *instance) {
    const struct buffer *b = &c->program->buffers.item[instance->root];
    struct footprint all = {0, 0, 1, 0, buffer_count(b)};
    if (memory_copies(c->program, instance->root))
        return instance->changed && written_unread(&instance->written, &all);
    return memory_passes(b) &&
           (written_unread(&instance->written, &all) || (written_read(&instance->written, &all) && !instance->reduced));
}

// What has to be done to such a buffer.
static const char *memory_duty(const struct memory_check *c, int root) {
    return memory_copies(c->program, root) ? "moved back" : "reduced";
}

// Notes that communication adds gradients to those that stay.
static trireme_status memory_reduce(struct memory_check *c, const struct instruction *instruction,
                                    trireme_error *error) {
    const int root = instruction->inputs && instruction->in[0].buffer != NONE
                         ? program_root(c->program, instruction->in[0].buffer)
                         : NONE;
    if (root == NONE || !memory_passes(&c->program->buffers.item[root]))
        return TRIREME_OK;
    struct instance *instance = instance_of(c, root);
    if (instance->reduced)
        REFUSE("%s: reduces %s a second time", memory_here(c).text, program_buffer_name(c->program, root));
    instance->reduced = true;
    return TRIREME_OK;
}

// Makes the instance hold its bytes, at the expense of those that overlap it. `out`: the output it is, or NONE for
// workspace.
static trireme_status memory_claim(struct memory_check *c, struct instance *instance,
                                   const struct instruction *instruction, int out, trireme_error *error) {
    const char *name = program_buffer_name(c->program, instance->root);
    struct instance *other;
    while ((other = live_before(c, instance->above)) && other->end > instance->begin) {
        if (!may_take(c, instruction, out, other))
            REFUSE("%s: writes %s into memory of %s, which it uses too", memory_here(c).text, name,
                   program_buffer_name(c->program, other->root));
        if (!clocks_ordered(other->touched, c->clock[instruction->stream]))
            REFUSE("%s: reuses memory of %s for %s while another stream may use it", memory_here(c).text,
                   program_buffer_name(c->program, other->root), name);
        if (is_lost(c, other))
            REFUSE("%s: takes the memory of %s, which has not been %s, for %s", memory_here(c).text,
                   program_buffer_name(c->program, other->root), memory_duty(c, other->root), name);
        take_out(c, other, name);
        leftovers_add(&c->leftovers, other->root, other->begin, instance->begin, other->touched);
        leftovers_add(&c->leftovers, other->root, instance->end, other->end, other->touched);
    }
    int left = leftovers_take(&c->leftovers, instance->begin, instance->end, c->clock[instruction->stream]);
    if (left != NONE)
        REFUSE("%s: reuses memory of %s for %s while another stream may use it", memory_here(c).text,
               program_buffer_name(c->program, left), name);
    if (c->follows && out != NONE && c->now.microbatch != NONE && instance->made_for == c->now.microbatch)
        REFUSE("%s: makes another %s for the same microbatch", memory_here(c).text, name);
    instance->made_for = c->now.microbatch;
    instance->reduced = false;
    instance->guard.predicate = NONE;
    instance->bound.extent = NULL;
    set_live(c, instance, true);
    return TRIREME_OK;
}

// Activations of which there is one instance in all: what one microbatch has made, no other may read.
static bool has_one_owner(const struct buffer *b) {
    return b->kind == KIND_ACT && (b->scope == SCOPE_STEP || b->scope == SCOPE_STATE);
}

// A LOCAL buffer starts empty in each invocation, a SLOT buffer with each microbatch of its slot.
static trireme_status memory_renew(struct memory_check *c, struct instance *instance, int invocation,
                                   trireme_error *error) {
    const struct buffer *b = &c->program->buffers.item[instance->root];
    bool owned = b->scope == SCOPE_SLOT || (has_one_owner(b) && instance->owner != NONE);
    int owner = b->scope == SCOPE_LOCAL ? invocation : owned ? c->now.microbatch : instance->owner;
    if (owner == instance->owner)
        return TRIREME_OK;
    if (is_lost(c, instance))
        REFUSE("%s: starts a new %s before the last one is %s", memory_here(c).text, b->name,
               memory_duty(c, instance->root));
    instance->owner = owner;
    instance->guard.predicate = NONE;
    instance->bound.extent = NULL;
    if (planned_alone(b))
        written_clear(&instance->written);
    else if (instance->alive)
        take_out(c, instance, NULL);
    instance->taken_by = NULL;
    return TRIREME_OK;
}

// The predicate of an instruction that runs now, or NONE.
static struct guard guard_of(const struct memory_check *c, int predicate) {
    if (predicate == NONE)
        return (struct guard){.predicate = NONE};
    const struct instance *instance = instance_of(c, program_root(c->program, predicate));
    return (struct guard){predicate, instance, instance->version};
}

static bool same_guard(const struct guard *a, const struct guard *b) {
    return a->predicate == b->predicate &&
           (a->predicate == NONE || (a->instance == b->instance && a->version == b->version));
}

// Notes under which predicate the instance holds what the instruction writes there, to all of it or to a part.
static trireme_status note_guard(struct memory_check *c, struct instance *instance,
                                 const struct instruction *instruction, int out, bool all, trireme_error *error) {
    const bool empty = instance->written.ranges.count == 0 && instance->written.bands.count == 0;
    const bool guarded = instruction->predicate != NONE && !instruction_holds_when_skipped(c->table, instruction, out);
    if (!guarded) {
        instance->version++;
        const bool goes_on = instruction->predicate != NONE && !(out == 0 && instruction->passes); // from what is there
        if ((all || empty) && !goes_on)
            instance->guard.predicate = NONE;
        return TRIREME_OK;
    }
    const struct guard guard = guard_of(c, instruction->predicate);
    instance->version++;
    if (all || empty)
        instance->guard = guard;
    else if (!same_guard(&guard, &instance->guard))
        REFUSE("%s: makes a part of %s, whose other parts are made under another condition", memory_here(c).text,
               program_buffer_name(c->program, instance->root));
    return TRIREME_OK;
}

// `predicate`: that of the instruction, where the operand is read only if it is not 0.
static trireme_status read_part(struct memory_check *c, int stream, const struct operand *operand, int predicate,
                                int invocation, trireme_error *error) {
    const struct program *p = c->program;
    int root = program_root(p, operand->buffer);
    struct instance *instance = instance_of(c, root);
    TRY(memory_renew(c, instance, invocation, error));
    const char *name = p->buffers.item[operand->buffer].name;
    struct footprint where;
    if (!footprint_of_all_ranks(p, operand, &where))
        REFUSE("%s: the ranks' own parts of %s are not contiguous", memory_here(c).text, name);
    if (p->buffers.item[root].scope == SCOPE_MICROBATCH && c->now.microbatch == NONE)
        where = (struct footprint){0, 0, 1, 0,
                                   buffer_count(&p->buffers.item[root])}; // all instances, which the host has written
    if (!instance->alive && instance->taken_by)
        REFUSE("%s: reads %s, whose memory %s has taken: freed too early", memory_here(c).text, name,
               instance->taken_by);
    bool covered = written_covers(&instance->written, &where);
    if (!covered && c->required[root]) {
        covered = true; // between the slices of a flat buffer lies padding that nobody writes
        FOR_SLICES(&c->slices, s, root) {
            struct operand slice = operand_whole(p, s);
            struct footprint part;
            footprint_of(p, &slice, &part);
            if (covered && !written_covers(&instance->written, &part)) {
                covered = false;
                name = p->buffers.item[s].name;
            }
        }
    }
    if (!covered)
        REFUSE("%s: reads %s before it is written", memory_here(c).text, name);
    const struct guard guard = guard_of(c, predicate);
    if (instance->guard.predicate != NONE && !same_guard(&instance->guard, &guard))
        REFUSE("%s: reads %s, which is made only if %s is not 0", memory_here(c).text, name,
               program_buffer_name(p, instance->guard.predicate));
    if (!clocks_ordered(instance->wrote, c->clock[stream]))
        REFUSE("%s: reads %s while another stream may still write it", memory_here(c).text, name);
    written_mark_read(&instance->written, &where);
    instance->touched[stream] = c->clock[stream][stream];
    return TRIREME_OK;
}

// Reads the extent of the k-th operand, if it has one. Unless all of it is made `anew`, it must have as many rows as
// when it was made.
static trireme_status memory_read_extent(struct memory_check *c, const struct instruction *instruction, int k,
                                         bool anew, int invocation, trireme_error *error) {
    const int extent = instruction_extent_at(c->program, instruction, k);
    if (extent == NONE)
        return TRIREME_OK;
    const struct operand whole = operand_whole(c->program, extent);
    const int buffer = instruction_operand_at(instruction, k)->buffer;
    struct instance *instance = instance_of(c, program_root(c->program, buffer));
    TRY(read_part(c, instruction->stream, &whole, instruction->predicate, invocation, error));
    const struct instance *now = instance_of(c, program_root(c->program, extent));
    if (anew || !instance->bound.extent)
        instance->bound = (struct bound){now, now->version};
    if (instance->bound.extent != now || instance->bound.version != now->version)
        REFUSE("%s: %s has as many rows as %s said before, which has changed since", memory_here(c).text,
               program_buffer_name(c->program, buffer), program_buffer_name(c->program, extent));
    return TRIREME_OK;
}

// Whether an output that has an extent is all that there is then of its buffer.
static bool memory_makes_anew(const struct memory_check *c, const struct instruction *instruction, int out) {
    if (instruction_extent_at(c->program, instruction, instruction->inputs + out) == NONE)
        return false;
    const struct operand *operand = &instruction->out[out];
    const int root = program_root(c->program, operand->buffer);
    const struct instance *instance = instance_of(c, root);
    const bool empty = instance->written.ranges.count == 0 && instance->written.bands.count == 0;
    const struct footprint whole = {0, 0, 1, 0, buffer_count(&c->program->buffers.item[root])};
    struct footprint where;
    return !instance->alive || empty ||
           (footprint_of_all_ranks(c->program, operand, &where) && footprint_contains(&where, &whole));
}

// Whether the instruction changes what somebody has read. Where there is a backward pass, a name stands for one value
// as long as its buffer lives, or backward would see another one than forward used. What is kept between steps may be
// continued in place, and sums over a step may be read before all terms are in; no other sum may.
static bool memory_changes(const struct memory_check *c, const struct instruction *in, int out, bool adds) {
    const struct program *p = c->program;
    const struct operand *operand = &in->out[out];
    const int root = program_root(p, operand->buffer), from = c->table->op[in->op].inplace[out];
    const struct buffer *b = &p->buffers.item[root];
    struct footprint where;
    bool goes_on = memory_keeps(p, root) &&
                   (c->table->op[in->op].role == ROLE_TRANSFER || (from >= 0 && operand_equal(operand, &in->in[from])));
    goes_on |= instruction_own_part(in) && program_root(p, in->in[0].buffer) == root;
    bool fixed = adds ? b->kind == KIND_ACT || b->scope == SCOPE_LOCAL || b->scope == SCOPE_SLOT : c->follows;
    return fixed && !goes_on && footprint_of_all_ranks(p, operand, &where) &&
           written_read(&instance_of(c, root)->written, &where);
}

static trireme_status write_part(struct memory_check *c, const struct instruction *instruction, int out,
                                 bool accumulate, int invocation, trireme_error *error) {
    const struct program *p = c->program;
    const struct operand *operand = &instruction->out[out];
    int root = program_root(p, operand->buffer);
    struct instance *instance = instance_of(c, root);
    const struct buffer *b = &p->buffers.item[root];
    const char *name = p->buffers.item[operand->buffer].name;
    const struct op_info *info = &c->table->op[instruction->op];
    bool updates = info->role == ROLE_UPDATE || info->role == ROLE_SETTLE;
    // Parameters are gathered from those kept between steps; these, only from the ranks' own parts of them.
    const struct buffer *from =
        op_traffic[instruction->op].takes == HOLDING_PART ? &p->buffers.item[instruction->in[0].buffer] : NULL;
    bool gathers = from && from->kind == KIND_PARAM && from->scope == SCOPE_STATE &&
                   (b->scope != SCOPE_STATE || (instruction_own_part(instruction) && from == b));
    const bool moves = info->role == ROLE_TRANSFER;
    if (b->kind == KIND_INPUT || (b->kind == KIND_PARAM && !updates && !gathers && !moves))
        REFUSE("%s: writes %s, which only %s may", memory_here(c).text, name,
               b->kind == KIND_INPUT ? "the host" : "an optimizer");
    if (accumulate) {
        TRY(read_part(c, instruction->stream, operand, instruction->predicate, invocation, error));
        if (c->follows && b->kind == KIND_ACT && info->role == ROLE_FORWARD && instance->maker != instruction->op)
            REFUSE("%s: adds to %s, which %s has made", memory_here(c).text, name, c->table->op[instance->maker].name);
    }
    if (!instance->alive)
        TRY(memory_claim(c, instance, instruction, out, error));
    if (!clocks_ordered(instance->touched, c->clock[instruction->stream]))
        REFUSE("%s: writes %s while another stream may still use it", memory_here(c).text, name);
    struct footprint where;
    if (!footprint_of_all_ranks(p, operand, &where))
        REFUSE("%s: the ranks' own parts of %s are not contiguous", memory_here(c).text, name);
    if (!accumulate && written_unread(&instance->written, &where))
        REFUSE("%s: overwrites %s before it is read", memory_here(c).text, name);
    // The instruction's own inputs may lie in the same buffer only where ops.def lets it work in place.
    for (int i = 0; i < instruction->inputs; i++) {
        const struct operand *in = &instruction->in[i];
        struct footprint read;
        if (in->buffer == NONE || program_root(p, in->buffer) != root || !footprint_of_all_ranks(p, in, &read) ||
            !footprint_overlap(&read, &where))
            continue;
        if (instruction_own_part(instruction))
            continue;
        if (info->inplace[out] != i || !footprint_equal(&read, &where))
            REFUSE("%s: writes %s, which it reads as %s", memory_here(c).text, name, info->in[i].name);
        // Gradients are sums, and the terms of each are known (verify_gradients.c).
        if (c->follows && !memory_keeps(p, root) && b->gradient_of == NONE && info->role != ROLE_COMMUNICATION)
            REFUSE("%s: changes %s, which the step has made before", memory_here(c).text, name);
    }
    if (has_one_owner(b))
        instance->owner = c->now.microbatch;
    const bool passes_on =
        (moves || info->role == ROLE_COMMUNICATION) && instruction->inputs && instruction->in[0].buffer != NONE;
    const struct instance *from_instance =
        passes_on ? instance_of(c, program_root(p, instruction->in[0].buffer)) : NULL;
    if (!accumulate)
        instance->maker = passes_on ? from_instance->maker : instruction->op;
    instance->changed = !moves || (from_instance->changed && memory_copies(p, from_instance->root));
    const struct footprint whole = {0, 0, 1, 0, buffer_count(b)};
    TRY(note_guard(c, instance, instruction, out, footprint_contains(&where, &whole), error));
    written_add(&instance->written, where);
    instance->wrote[instruction->stream] = instance->touched[instruction->stream] =
        c->clock[instruction->stream][instruction->stream];
    return TRIREME_OK;
}

static void memory_run_waits(struct memory_check *c, const struct instruction *instruction) {
    int32_t *clock = c->clock[instruction->stream];
    const int streams = c->many_streams ? (int)c->program->streams.count : 0;
    for (int s = 0; s < streams; s++) {
        if (!instruction->wait[s])
            continue;
        const struct history *h = &c->history[s];
        int64_t which = slot_waits_count(&c->waits, c->program, c->invocation, instruction, s, h->steps) - 1;
        if (which < 0)
            continue;
        const int32_t *known = history_at(h, which);
        for (int k = 0; k < STREAMS_MAX; k++)
            clock[k] = MAX(clock[k], known[k]);
        clock[s] = MAX(clock[s], (int32_t)which + 1);
        c->learned[instruction->stream] = true;
    }
    clock[instruction->stream]++;
}

static void note_done(struct memory_check *c, int stream) {
    int32_t others[STREAMS_MAX];
    bool same = !c->learned[stream] && c->history[stream].steps > 0;
    if (!c->many_streams)
        return;
    memcpy(others, c->clock[stream], sizeof others);
    others[stream] = 0; // of itself it knows as many instructions as it has done
    history_add(&c->history[stream], same ? NULL : others);
    c->learned[stream] = false;
}

static trireme_status memory_run(struct memory_check *c, const struct instruction *instruction, int invocation,
                                 trireme_error *error) {
    memory_run_waits(c, instruction);
    if (when_skips(instruction->when, &c->now)) {
        note_done(c, instruction->stream);
        return TRIREME_OK;
    }
    int stream = instruction->stream;
    bool accumulates = instruction_accumulates(instruction, &c->now);
    for (int o = 0; o < instruction->outputs; o++) {
        if (instruction->out[o].buffer == NONE)
            continue;
        TRY(memory_renew(c, instance_of(c, program_root(c->program, instruction->out[o].buffer)), invocation, error));
        if (memory_changes(c, instruction, o, accumulates && c->table->op[instruction->op].out[o].adds))
            REFUSE("%s: changes %s, which has been read before", memory_here(c).text,
                   program_buffer_name(c->program, instruction->out[o].buffer));
    }
    for (int i = 0; i < instruction->inputs; i++)
        if (instruction->in[i].buffer != NONE) {
            TRY(read_part(c, stream, &instruction->in[i],
                          i == instruction_otherwise(instruction) ? NONE : instruction->predicate, invocation, error));
            TRY(memory_read_extent(c, instruction, i, false, invocation, error));
        }
    if (op_traffic[instruction->set ? instruction->stands_for : instruction->op].call != CALL_NONE)
        TRY(memory_reduce(c, instruction, error));
    if (instruction->predicate != NONE) {
        struct operand predicate = operand_whole(c->program, instruction->predicate);
        TRY(read_part(c, stream, &predicate, NONE, invocation, error));
    }
    if (instruction->workspace != NONE) {
        struct instance *workspace = instance_of(c, instruction->workspace);
        TRY(memory_renew(c, workspace, invocation, error));
        if (!workspace->alive)
            TRY(memory_claim(c, workspace, instruction, NONE, error));
        if (!clocks_ordered(workspace->touched, c->clock[stream]))
            REFUSE("%s: works in %s while another stream may still use it", memory_here(c).text,
                   program_buffer_name(c->program, instruction->workspace));
        workspace->touched[stream] = c->clock[stream][stream];
    }
    for (int i = 0; i < instruction->outputs; i++)
        if (instruction->out[i].buffer != NONE) {
            bool accumulate = accumulates && c->table->op[instruction->op].out[i].adds,
                 anew = !accumulate && memory_makes_anew(c, instruction, i);
            TRY(write_part(c, instruction, i, accumulate, invocation, error));
            TRY(memory_read_extent(c, instruction, instruction->inputs + i, anew, invocation, error));
        }
    // On ranks other than the root, the sum is made in the memory of the rank's own term.
    if (op_is_rooted(instruction->op) && instruction->out[0].buffer == NONE) {
        int root = program_root(c->program, instruction->in[0].buffer);
        struct instance *terms = instance_of(c, root);
        if (c->program->buffers.item[root].kind != KIND_ACT)
            REFUSE("%s: sums in %s, which is not an activation", memory_here(c).text,
                   program_buffer_name(c->program, instruction->in[0].buffer));
        if (!clocks_ordered(terms->touched, c->clock[stream]))
            REFUSE("%s: sums in %s while another stream may still use it", memory_here(c).text,
                   program_buffer_name(c->program, instruction->in[0].buffer));
        written_clear(&terms->written);
    }
    note_done(c, stream);
    return TRIREME_OK;
}

// Refuses gradients that nobody has reduced, and updated copies that nobody has moved back: after an invocation those
// that it alone held, at the end all of them.
static trireme_status check_lost(const struct memory_check *c, bool all, trireme_error *error) {
    for (size_t i = 0; i < c->passing.count; i++) {
        const struct buffer *b = &c->program->buffers.item[c->passing.item[i]];
        const struct instance *instance = &c->instances[c->first[c->passing.item[i]]];
        const bool copies = memory_copies(c->program, c->passing.item[i]);
        for (int k = 0; k < instances_of(c->program, b) && (all || b->scope == SCOPE_LOCAL); k++)
            if (is_lost(c, &instance[k]))
                REFUSE("template %s (microbatch %d): nothing %s %s%s", c->program->templates.item[c->now.template].name,
                       c->now.microbatch, copies ? "moves" : "reduces", b->name, copies ? " back" : "");
    }
    return TRIREME_OK;
}

static trireme_status memory_run_schedule(struct memory_check *c, trireme_error *error) {
    const struct program *p = c->program;
    for (size_t k = 0; k < p->schedule.count; k++) {
        c->now = p->schedule.item[k];
        c->invocation = k;
        const struct template *t = &p->templates.item[c->now.template];
        for (size_t i = 0; i < t->instructions.count; i++) {
            c->instruction = (int)i;
            TRY(memory_run(c, &t->instructions.item[i], (int)k, error));
        }
        TRY(check_lost(c, k + 1 == p->schedule.count, error));
    }
    for (size_t i = 0; i < p->buffers.count; i++) {
        const struct buffer *b = &p->buffers.item[i];
        struct footprint all = {0, 0, 1, 0, buffer_count(b)};
        if (b->kind == KIND_OUTPUT && b->parent == NONE && !written_covers(&c->instances[c->first[i]].written, &all))
            REFUSE("output %s is never written", b->name);
    }
    return TRIREME_OK;
}

static bool has_many_streams(const struct program *p) {
    FOR_INSTRUCTIONS(i, p)
        if (i->stream != STREAM_COMPUTE)
            return true;
    return false;
}

trireme_status verify_memory(const struct program *program, const struct op_table *table, trireme_error *error) {
    struct memory_check c = {.program = program, .table = table};
    c.required = mem_alloc(program->buffers.count * sizeof *c.required);
    for (size_t i = 0; i < program->buffers.count; i++)
        if (program->buffers.item[i].parent != NONE && program->buffers.item[i].kind == KIND_GRAD &&
            program->buffers.item[i].scope == SCOPE_STATE)
            c.required[program_root(program, (int)i)] = true;
    for (size_t i = 0; i < program->buffers.count; i++) {
        c.follows |= program->buffers.item[i].kind == KIND_GRAD || program->buffers.item[i].gradient_of != NONE;
        if (memory_passes(&program->buffers.item[i]) || memory_copies(program, (int)i))
            VEC_PUSH(&c.passing, (int)i);
    }
    FOR_INSTRUCTIONS(in, program)
        c.follows |= table->op[in->op].role == ROLE_TOTAL;
    trireme_status status = memory_create(&c, error);
    for (int s = 0; s < SPACE_COUNT; s++)
        for (int state = 1; state >= 0 && status == TRIREME_OK; state--)
            status = check_fixed(&c, (enum memory_space)s, state, error);
    order_by_address(&c);
    c.many_streams = has_many_streams(program);
    slot_waits_create(&c.waits, program);
    slices_create(&c.slices, program);
    if (status == TRIREME_OK)
        status = memory_run_schedule(&c, error);
    for (int s = 0; s < STREAMS_MAX; s++)
        history_release(&c.history[s]);
    for (int i = 0; i < c.count && c.instances; i++)
        written_release(&c.instances[i].written);
    free(c.instances);
    free(c.first);
    free(c.required);
    VEC_RELEASE(&c.passing);
    slot_waits_release(&c.waits);
    slices_release(&c.slices);
    free(c.by_address);
    number_set_release(&c.live);
    leftovers_release(&c.leftovers);
    return status;
}
