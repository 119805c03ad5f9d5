// The programs of outer steps.
#include "compile/outer.h"

#include "codec/codec.h"
#include "compile/compile.h"
#include "optim/outer_schedule.h"
#include "optim/unit_sums.h"

static int outer_fragments(const struct config *config, bool wanted) {
    return wanted ? (int)config->outer.fragments : 0;
}

int outer_meets(const struct config *config, bool evaluates) {
    (void)evaluates;
    return outer_fragments(config, outer_arrival(config) == ARRIVAL_AT_ONCE) * outer_distances(config);
}

int outer_takes(const struct config *config, bool evaluates) {
    (void)evaluates;
    return outer_fragments(config, outer_arrival(config) == ARRIVAL_LATER);
}

int outer_turns(const struct config *config, bool evaluates) {
    (void)evaluates;
    return outer_fragments(config, outer_arrival(config) == ARRIVAL_A_ROUND);
}

int outer_exchanges(const struct config *config, bool evaluates) {
    return outer_takes(config, evaluates) + outer_turns(config, evaluates);
}

static bool outer_steps(const struct config *config) {
    return config->outer.optimizer != CONFIG_OUTER_OPTIMIZER_NONE;
}

static bool outer_rescales(const struct config *config) {
    return config->optimizer.name == CONFIG_OPTIMIZER_SCALED;
}

// Where there is an anchor, or islands have parameters of their own.
int outer_shows(const struct config *config, bool evaluates) {
    return evaluates && outer_arrival(config) != ARRIVAL_NEVER &&
           (outer_steps(config) || config->parallelism.island_degree > 1);
}

// ---- the state

static int *outer_add(struct stage_state *s, const char *operand, enum state_role role, enum memory_space space,
                      const int *over) {
    char suffix[24];
    snprintf(suffix, sizeof suffix, "outer.%s", operand);
    const struct model_units *units = &s->units;
    const struct unit_values values = {suffix, dtype_accumulate(s->dtype), role, 1, operand, space, over};
    int *entry = mem_alloc((size_t)units->units * sizeof *entry);
    for (int u = 0; u < units->units; u++)
        entry[u] = parameter_unit_frozen(units->table, u)
                       ? NONE
                       : model_units_add(units, &s->table, u, &values, s->model.unit[u]);
    return entry;
}

static int outer_add_scalar(struct stage_state *s, const char *name, const char *as, enum state_role role) {
    const struct state_entry entry = {
        .name = name, .dtype = DTYPE_F64, .role = role, .ndim = 1, .dim = {1}, .as = as, .owner = NONE};
    return state_add(&s->table, &entry);
}

// One of each fragment.
static int *outer_add_scalars(struct stage_state *s, const struct config *config, const char *as,
                              enum state_role role) {
    int *entry = mem_alloc((size_t)config->outer.fragments * sizeof *entry);
    for (int f = 0; f < (int)config->outer.fragments; f++) {
        char *name = mem_printf("outer.%s.%d", as, f);
        entry[f] = outer_add_scalar(s, name, as, role);
        free(name);
    }
    return entry;
}

void keep_outer(struct stage_state *s, const struct config *config, const struct model_config *model,
                const struct program_spec *spec) {
    (void)model, (void)spec;
    struct outer_entries *o = &s->outer;
    const bool meets = outer_arrival(config) == ARRIVAL_AT_ONCE;
    const enum memory_space space = config->outer.offload == CONFIG_OFFLOAD_FILE ? SPACE_FILE : SPACE_DEVICE;
    const enum state_role of_steps = outer_anchors_own(config) ? STATE_OPTIMIZER : STATE_SHARED;
    if (o->anchor || o->value || o->rounds)
        return;
    if (outer_steps(config))
        o->anchor = outer_add(s, "anchor", of_steps, space, NULL);
    if (outer_steps(config) && config->outer.momentum > 0)
        o->velocity = outer_add(s, "velocity", of_steps, space, NULL);
    if (outer_steps(config) && config->outer.penalty > 0) {
        o->excess = outer_add_scalars(s, config, "excess", of_steps);
        o->last = outer_add_scalars(s, config, "last", of_steps);
    }
    if (outer_rescales(config)) {
        o->rounds = outer_add_scalars(s, config, "rounds", STATE_SHARED);
        o->since = outer_add_scalars(s, config, "since", STATE_OPTIMIZER);
    }
    if (meets)
        return;
    o->taken = outer_add(s, "taken", STATE_OPTIMIZER, space, NULL);
    o->value = outer_add(s, "value", STATE_SHARED, space, NULL);
    o->total = outer_add_scalar(s, "outer.total", "total", STATE_SHARED);
}

// Gradients are made anew in each step: between two steps their memory is free.
void keep_shown(struct stage_state *s, const struct config *config, const struct model_config *model,
                const struct program_spec *spec) {
    (void)config, (void)model, (void)spec;
    if (!s->outer.kept)
        s->outer.kept = outer_add(s, "kept", STATE_OPTIMIZER, SPACE_DEVICE, s->optimizer.gradient);
}

void outer_entries_release(struct outer_entries *entries) {
    free(entries->anchor);
    free(entries->velocity);
    free(entries->taken);
    free(entries->value);
    free(entries->kept);
    free(entries->excess);
    free(entries->last);
    free(entries->rounds);
    free(entries->since);
    *entries = (struct outer_entries){0};
}

static void place_own(const struct mesh *mesh, int8_t placement[AXIS_COUNT]) {
    for (int a = 0; a < AXIS_COUNT; a++)
        if (mesh_present(mesh, AXES_ISLAND & AXES(a)) && placement[a] == PLACE_REPLICATE)
            placement[a] = PLACE_OWN;
}

void outer_place_state(struct state_table *state, const struct mesh *mesh) {
    for (size_t i = 0; i < state->entries.count; i++) {
        const enum state_role role = state->entries.item[i].role;
        if (role != STATE_CONSTANT && role != STATE_FROZEN && role != STATE_SHARED)
            place_own(mesh, state->entries.item[i].placement);
    }
}

void outer_place_program(struct program *p, int alike) {
    for (size_t i = 0; i < p->buffers.count; i++)
        if (p->buffers.item[i].scope != SCOPE_STATE && (int)i != alike)
            place_own(&p->mesh, p->buffers.item[i].placement);
}

// ---- what programs are made of

// Where the program finds a state that lies where no kernel reaches it.
struct outer_copy {
    int away, here; // buffers
    bool brought, changed;
};

struct outer {
    struct compiled compiled;
    const struct compile_options *options;
    const struct stage_state *state;
    const struct config *config;
    enum codec codec;
    int fragment, template, stream;
    // Where pairs meet: how far around the ring an island sends, and the stream it does so on; else 0.
    int distance, ring;
    struct operand weight, from_weight, total, excess; // absent as long as the program has no use for them
    struct operand updates, rounds; // likewise: those of the round on all islands, times their weights
    struct unit_sums moved;         // squares of the distance that anchors move, where there is a penalty
    VEC(struct outer_copy) copies;
};

// What is done with one unit. Absent is what the program does not have of it.
struct outer_unit {
    const char *name;
    int unit;
    struct operand p, rem, anchor, velocity, taken, value, kept, other;
    struct operand squares, divisor, sum; // of the optimizer; the sum of the squares
};

static void outer_begin(struct outer *o, const struct compile_options *options, const struct program_spec *spec,
                        const char *name) {
    *o = (struct outer){.options = options,
                        .state = options->state,
                        .config = options->config,
                        .codec = (enum codec)options->config->outer.codec,
                        .fragment = spec->part % (int)options->config->outer.fragments,
                        .stream = NONE,
                        .weight = operand_none(),
                        .from_weight = operand_none(),
                        .total = operand_none(),
                        .excess = operand_none(),
                        .updates = operand_none(),
                        .rounds = operand_none()};
    compiled_begin(&o->compiled, options, spec);
    o->template = program_template(&o->compiled.program, name, PHASE_OPTIMIZER, 0);
    o->moved = unit_sums_create(&o->compiled.program, o->template, &o->state->units, "outer.moved");
    if (o->config->outer.offload != CONFIG_OFFLOAD_NONE && !program_is_beside(spec->kind))
        transfer_stream(&o->compiled.program); // on all stages
}

// The streams of a program that exchanges: the same on all stages, also where a fragment has nothing of one.
static void outer_streams(struct outer *o) {
    struct program *p = &o->compiled.program;
    if (!program_is_beside(o->compiled.spec.kind))
        compile_streams(p, o->options);
    if (mesh_present(&p->mesh, AXES_ISLAND))
        o->stream = program_stream(p, "outer", STREAM_BULK);
    if (mesh_present(&p->mesh, AXES_ISLAND) && o->config->outer.reduce == CONFIG_OUTER_REDUCE_PAIRS) {
        o->ring = program_channel(p, "outer_to_peer", "outer_from_peer", 0);
        o->distance = 1 << o->compiled.spec.part / (int)o->config->outer.fragments;
    }
    if (program_is_beside(o->compiled.spec.kind) && o->config->outer.offload != CONFIG_OFFLOAD_NONE)
        program_stream(p, "outer_transfer", 0);
}

// ---- states that lie elsewhere

// Moves a state to its copy, or back.
static void outer_move(struct outer *o, const struct outer_copy *copy, bool back) {
    struct program *p = &o->compiled.program;
    const struct operand away = operand_whole(p, copy->away), here = operand_whole(p, copy->here);
    const int stream =
        program_is_beside(o->compiled.spec.kind) ? program_find_stream(p, "outer_transfer") : transfer_stream(p);
    program_emit(p, o->template, OP_TRANSFER, PHASE_OPTIMIZER, NONE, 1, back ? &here : &away, 1, back ? &away : &here,
                 NULL)
        ->stream = stream;
}

static struct outer_copy *outer_find_copy(struct outer *o, const struct operand *operand) {
    for (size_t i = 0; i < o->copies.count; i++)
        if (o->copies.item[i].here == operand->buffer)
            return &o->copies.item[i];
    return NULL;
}

// What an instruction is about to read is brought.
static void outer_bring(struct outer *o, int inputs, const struct operand *in) {
    for (int i = 0; i < inputs; i++) {
        struct outer_copy *copy = outer_find_copy(o, &in[i]);
        if (copy && !copy->brought)
            outer_move(o, copy, false);
        if (copy)
            copy->brought = true;
    }
}

static void outer_note_changed(struct outer *o, int outputs, const struct operand *out) {
    for (int i = 0; i < outputs; i++) {
        struct outer_copy *copy = outer_find_copy(o, &out[i]);
        if (copy)
            copy->brought = copy->changed = true;
    }
}

// Once nothing more is done with a unit, what has changed goes back.
static void outer_put_back(struct outer *o, const struct outer_unit *u) {
    const struct operand *const states[] = {&u->anchor, &u->velocity, &u->taken, &u->value, &u->squares, &u->divisor};
    for (size_t i = 0; i < ARRAY_LENGTH(states); i++) {
        struct outer_copy *copy = outer_find_copy(o, states[i]);
        if (copy && copy->changed)
            outer_move(o, copy, true);
        if (copy)
            copy->changed = false;
    }
}

static trireme_status outer_finish(struct outer *o, struct compiled *out, const struct compile_options *options,
                                   trireme_error *error) {
    program_invoke(&o->compiled.program, o->template, NONE, false, false);
    VEC_RELEASE(&o->copies);
    TRY(compiled_finish(&o->compiled, options, error));
    *out = o->compiled;
    return TRIREME_OK;
}

// Whether the program is for the unit: units of layers are between that of the embedding and that of the head.
static bool outer_has(const struct outer *o, int unit) {
    const struct parameter_table *table = o->state->units.table;
    const int section = table->parameters.item[table->first[unit]].section;
    const int layer = section >= 1 && section <= o->options->model->num_hidden_layers ? section - 1 : NONE;
    return !parameter_unit_frozen(table, unit) && outer_fragment_of(o->config, layer) == o->fragment;
}
#define FOR_FRAGMENT(o, unit)                                      \
    for (int unit = 0; (unit) < (o)->state->units.units; (unit)++) \
        if (outer_has(o, unit))

static struct operand outer_state(struct outer *o, int entry, int parameters) {
    struct program *p = &o->compiled.program;
    const int away = state_buffer(&o->state->table, p, entry, parameters);
    if (memory_spaces[p->buffers.item[away].space].addressable)
        return operand_whole(p, away);
    const int here = program_again(p, away, NONE);
    program_declare(p, here, o->state->table.entries.item[entry].as, parameters);
    VEC_PUSH(&o->copies, (struct outer_copy){.away = away, .here = here});
    return operand_whole(p, here);
}

// A unit of the program, and what the state has for it. A program that does not touch parameters declares them all the
// same: the rest belongs to them.
struct outer_use {
    bool parameters, anchor, velocity, taken, value, kept, squares;
};
static struct outer_unit outer_unit_of(struct outer *o, int unit, struct outer_use use) {
    const struct stage_state *s = o->state;
    const int parameters = state_buffer(&s->table, &o->compiled.program, s->model.unit[unit], NONE);
    const struct operand none = operand_none();
    struct outer_unit u = {.name = s->units.table->units.item[unit],
                           .unit = unit,
                           .p = none,
                           .rem = none,
                           .anchor = none,
                           .velocity = none,
                           .taken = none,
                           .value = none,
                           .kept = none,
                           .other = none,
                           .squares = none,
                           .divisor = none,
                           .sum = none};
    if (use.parameters)
        u.p = model_units_own(&s->units, &o->compiled.program, unit, parameters);
    if (use.parameters && s->optimizer.remainder)
        u.rem = outer_state(o, s->optimizer.remainder[unit], parameters);
    if (use.anchor && s->outer.anchor)
        u.anchor = outer_state(o, s->outer.anchor[unit], parameters);
    if (use.velocity && s->outer.velocity)
        u.velocity = outer_state(o, s->outer.velocity[unit], parameters);
    if (use.taken)
        u.taken = outer_state(o, s->outer.taken[unit], parameters);
    if (use.value)
        u.value = outer_state(o, s->outer.value[unit], parameters);
    if (use.kept)
        u.kept = outer_state(o, s->outer.kept[unit], parameters);
    if (use.squares) {
        u.squares = outer_state(o, s->optimizer.state[OPTIMIZER_SCALED_SQUARES][unit], parameters);
        u.divisor = outer_state(o, s->optimizer.state[OPTIMIZER_SCALED_DIVISOR][unit], parameters);
    }
    return u;
}

// What is there while the program runs: as many elements as the rank updates of the unit, or one.
static struct operand outer_local(struct outer *o, const struct outer_unit *u, const char *what) {
    char *name = u ? mem_printf("%s.outer.%s", u->name, what) : mem_printf("outer.%s", what);
    const int64_t count = u ? operand_count(&u->p) : 1;
    const int buffer = program_buffer(&o->compiled.program, name, u ? dtype_accumulate(o->state->dtype) : DTYPE_F64,
                                      KIND_ACT, SCOPE_LOCAL, 1, &count);
    free(name);
    return operand_whole(&o->compiled.program, buffer);
}

static struct instruction *outer_emit(struct outer *o, enum op op, int inputs, const struct operand *in, int outputs,
                                      const struct operand *out, const union attribute *attribute) {
    outer_bring(o, inputs, in);
    struct instruction *i =
        program_emit(&o->compiled.program, o->template, op, PHASE_OPTIMIZER, NONE, inputs, in, outputs, out, attribute);
    outer_note_changed(o, outputs, out);
    return i;
}

// With outer.keep_progress an island has begun with the anchor less what it took before.
static void outer_take(struct outer *o, const struct outer_unit *u, struct operand taken) {
    outer_emit(o, OP_TAKE,
               GIVEN(TAKE, [INPUT(TAKE, p)] = u->p, [INPUT(TAKE, rem)] = u->rem, [INPUT(TAKE, anchor)] = u->anchor,
                     [INPUT(TAKE, taken)] = o->config->outer.keep_progress ? u->taken : operand_none()),
               MADE(TAKE, [OUTPUT(TAKE, taken)] = taken), NULL);
}

static void outer_sum(struct outer *o, struct operand operand) {
    if (mesh_present(&o->compiled.program.mesh, AXES_ISLAND))
        program_communicate(&o->compiled.program, o->template, OP_ALL_REDUCE, PHASE_OPTIMIZER, o->stream, AXES_ISLAND,
                            operand, operand);
}

// What every island has of `own`, one row each.
static struct operand outer_gather(struct outer *o, char *name, struct operand own) {
    struct program *p = &o->compiled.program;
    const struct buffer *of = &p->buffers.item[own.buffer];
    const int64_t dim[] = {mesh_group_size(&p->mesh, AXES_ISLAND), operand_count(&own)};
    struct operand all = own;
    if (mesh_present(&p->mesh, AXES_ISLAND)) {
        const int gathered = program_buffer(p, name, of->dtype, KIND_ACT, SCOPE_LOCAL, of->ndim, dim);
        program_declare(p, gathered, p->buffers.item[own.buffer].as, NONE);
        all = operand_whole(p, gathered);
        program_communicate(p, o->template, OP_ALL_GATHER, PHASE_OPTIMIZER, o->stream, AXES_ISLAND, own, all);
    }
    free(name);
    return all;
}

// Sends what the island has around the ring; returns what it receives.
static struct operand outer_swap(struct outer *o, char *name, struct operand own) {
    struct program *p = &o->compiled.program;
    const struct buffer of = p->buffers.item[own.buffer];
    const int received = program_buffer(p, name, of.dtype, KIND_ACT, SCOPE_LOCAL, of.ndim, of.dim);
    const struct operand from = operand_whole(p, received);
    free(name);
    outer_bring(o, 1, &own);
    program_communicate(p, o->template, OP_SEND, PHASE_OPTIMIZER, o->ring, AXES_ISLAND, own, operand_none())->peer =
        o->distance;
    program_communicate(p, o->template, OP_RECEIVE, PHASE_OPTIMIZER, o->ring + 1, AXES_ISLAND, operand_none(), from)
        ->peer = -o->distance;
    return from;
}

// The weight, as a term of the sum of all, or as one of them; and that sum, which the first unit brings.
static void outer_declare_weight(struct outer *o) {
    struct program *p = &o->compiled.program;
    const int weight = program_buffer(p, "outer.weight", DTYPE_F64, KIND_INPUT, SCOPE_STEP, 1, (int64_t[]){1});
    program_declare(p, weight, "weight", NONE);
    if (mesh_present(&p->mesh, AXES_ISLAND) && !o->ring)
        p->buffers.item[weight].placement[AXIS_ISLAND] = o->codec == CODEC_NONE ? PLACE_SUM : PLACE_SHARD(0);
    o->compiled.weight = weight;
    o->weight = operand_whole(p, weight);
    if (o->ring)
        o->from_weight = outer_swap(o, mem_printf("outer.from_weight"), o->weight);
    else if (o->codec != CODEC_NONE)
        o->weight = outer_gather(o, mem_printf("outer.weights"), o->weight);
    if (o->total.buffer == NONE)
        o->total = o->state->outer.value ? outer_state(o, o->state->outer.total, NONE) : outer_local(o, NULL, "total");
}

// The sum over the islands of what they have taken, times their weights.
static void outer_sum_up(struct outer *o, const struct outer_unit *u, struct operand total) {
    outer_emit(o, OP_WEIGH, GIVEN(WEIGH, [INPUT(WEIGH, taken)] = u->taken, [INPUT(WEIGH, weight)] = o->weight),
               MADE(WEIGH, [OUTPUT(WEIGH, value)] = u->value, [OUTPUT(WEIGH, total)] = total), NULL);
    if (total.buffer != NONE)
        outer_sum(o, total);
    outer_sum(o, u->value);
}

// The same by codes, which no collective can add up: each island decodes and adds up what all have sent; where pairs
// meet, its own and the other's.
static void outer_exchange_codes(struct outer *o, const struct outer_unit *u, struct operand total) {
    struct program *p = &o->compiled.program;
    const union attribute codec[OP_MAX_ATTRIBUTES] = {[ATTRIBUTE(COMPRESS, codec)].i = o->codec};
    const int64_t dim[] = {
        1, codec_bytes(o->codec, operand_count(&u->taken), dtype_accumulate(o->state->dtype) == DTYPE_F64)};
    char *name = mem_printf("%s.outer.code", u->name);
    const struct operand code =
        operand_whole(p, program_buffer(p, name, DTYPE_U8, KIND_ACT, SCOPE_LOCAL, ARRAY_LENGTH(dim), dim));
    free(name);
    outer_emit(o, OP_COMPRESS, GIVEN(COMPRESS, [INPUT(COMPRESS, taken)] = u->taken),
               MADE(COMPRESS, [OUTPUT(COMPRESS, code)] = code), codec);
    struct operand codes = code, from = operand_none();
    if (o->ring)
        from = outer_swap(o, mem_printf("%s.outer.from", u->name), code);
    else
        codes = outer_gather(o, mem_printf("%s.outer.codes", u->name), code);
    outer_emit(o, OP_WEIGH_CODES,
               GIVEN(WEIGH_CODES, [INPUT(WEIGH_CODES, codes)] = codes, [INPUT(WEIGH_CODES, weight)] = o->weight,
                     [INPUT(WEIGH_CODES, from)] = from, [INPUT(WEIGH_CODES, from_weight)] = o->from_weight),
               MADE(WEIGH_CODES, [OUTPUT(WEIGH_CODES, value)] = u->value, [OUTPUT(WEIGH_CODES, total)] = total), codec);
}

static void outer_exchange(struct outer *o, const struct outer_unit *u) {
    const bool first = o->weight.buffer == NONE;
    if (first)
        outer_declare_weight(o);
    if (o->codec == CODEC_NONE && !o->ring)
        outer_sum_up(o, u, first ? o->total : operand_none());
    else
        outer_exchange_codes(o, u, first ? o->total : operand_none());
}

static struct operand outer_total(struct outer *o) {
    if (o->total.buffer == NONE)
        o->total = outer_state(o, o->state->outer.total, NONE);
    return o->total;
}

static struct operand outer_excess(struct outer *o) {
    if (o->excess.buffer == NONE && o->state->outer.excess)
        o->excess = outer_state(o, o->state->outer.excess[o->fragment], NONE);
    return o->excess;
}

// The outer optimizer, and parameters follow the anchor; or they become the mean.
static void outer_settle(struct outer *o, const struct outer_unit *u) {
    const struct config_outer *outer = &o->config->outer;
    const struct operand total = outer_total(o);
    if (u->anchor.buffer == NONE) {
        outer_emit(o, OP_SETTLE,
                   GIVEN(SETTLE, [INPUT(SETTLE, p)] = u->p, [INPUT(SETTLE, rem)] = u->rem,
                         [INPUT(SETTLE, value)] = u->value, [INPUT(SETTLE, total)] = total,
                         [INPUT(SETTLE, taken)] = u->taken),
                   MADE(SETTLE, [OUTPUT(SETTLE, p1)] = u->p, [OUTPUT(SETTLE, rem1)] = u->rem), NULL);
        outer_put_back(o, u);
        return;
    }
    const union attribute sgd[OP_MAX_ATTRIBUTES] = {
        [ATTRIBUTE(OUTER_SGD, lr)].f = outer->lr,
        [ATTRIBUTE(OUTER_SGD, momentum)].f = outer->momentum,
        [ATTRIBUTE(OUTER_SGD, nesterov)].i = outer->nesterov,
        [ATTRIBUTE(OUTER_SGD, clip)].f = outer->clip,
        [ATTRIBUTE(OUTER_SGD, pull)].f = u->other.buffer == NONE ? 0 : outer->pull,
    };
    enum accumulate accumulate = ACCUMULATE_NO;
    struct operand moved = operand_none();
    if (o->state->outer.excess && compile_counted_elsewhere(o->options) != u->unit)
        moved = unit_sums_add(&o->moved, unit_sums_class(&o->moved, u->unit), &accumulate);
    const union attribute adopt[OP_MAX_ATTRIBUTES] = {[ATTRIBUTE(ADOPT, mix)].f = outer->mix};
    outer_emit(o, OP_OUTER_SGD,
               GIVEN(OUTER_SGD, [INPUT(OUTER_SGD, anchor)] = u->anchor, [INPUT(OUTER_SGD, value)] = u->value,
                     [INPUT(OUTER_SGD, total)] = total, [INPUT(OUTER_SGD, velocity)] = u->velocity,
                     [INPUT(OUTER_SGD, excess)] = outer_excess(o), [INPUT(OUTER_SGD, other)] = u->other),
               MADE(OUTER_SGD, [OUTPUT(OUTER_SGD, anchor1)] = u->anchor, [OUTPUT(OUTER_SGD, velocity1)] = u->velocity,
                    [OUTPUT(OUTER_SGD, moved)] = moved),
               sgd)
        ->accumulate = accumulate;
    outer_emit(o, OP_ADOPT,
               GIVEN(ADOPT, [INPUT(ADOPT, p)] = u->p, [INPUT(ADOPT, rem)] = u->rem, [INPUT(ADOPT, anchor)] = u->anchor,
                     [INPUT(ADOPT, taken)] = outer->keep_progress ? u->taken : operand_none()),
               MADE(ADOPT, [OUTPUT(ADOPT, p1)] = u->p, [OUTPUT(ADOPT, rem1)] = u->rem), adopt);
    outer_put_back(o, u);
}

_Static_assert((int)CLASS_COUNT <= (int)INPUT(STALENESS, last), "a sum of each class");

// From how far the anchors have moved follows by what the next mean is divided.
static void outer_judge_moves(struct outer *o) {
    if (!o->state->outer.excess)
        return;
    struct operand in[INPUTS(STALENESS)];
    int sums = 0;
    for (int i = 0; i < INPUTS(STALENESS); i++)
        in[i] = operand_none();
    for (enum parameter_class class = 0; class < CLASS_COUNT; class ++) {
        in[sums] = unit_sums_reduce(&o->moved, class, mesh_present(&o->compiled.program.mesh, AXES_STAGE));
        sums += in[sums].buffer != NONE;
    }
    if (sums == 0)
        return;
    in[INPUT(STALENESS, last)] = outer_state(o, o->state->outer.last[o->fragment], NONE);
    outer_emit(o, OP_STALENESS, INPUTS(STALENESS), in,
               MADE(STALENESS, [OUTPUT(STALENESS, excess)] = outer_excess(o),
                    [OUTPUT(STALENESS, last1)] = in[INPUT(STALENESS, last)]),
               (union attribute[OP_MAX_ATTRIBUTES]){[ATTRIBUTE(STALENESS, penalty)].f = o->config->outer.penalty});
}

// ---- the programs

// What the island's gradients have been is exchanged, and begins anew.
static void outer_measure(struct outer *o, struct outer_unit *u) {
    const struct stage_state *s = o->state;
    const bool first = o->updates.buffer == NONE;
    u->sum = outer_local(o, u, "squares");
    if (first) {
        o->updates = outer_local(o, NULL, "updates");
        o->rounds = outer_state(o, s->outer.rounds[0], NONE);
    }
    outer_emit(o, OP_WEIGH_SQUARES,
               GIVEN(WEIGH_SQUARES, [INPUT(WEIGH_SQUARES, squares)] = u->squares,
                     [INPUT(WEIGH_SQUARES, weight)] = o->weight,
                     [INPUT(WEIGH_SQUARES, t)] = first ? outer_state(o, s->optimizer.t, NONE) : operand_none(),
                     [INPUT(WEIGH_SQUARES, since)] = first ? outer_state(o, s->outer.since[0], NONE) : operand_none()),
               MADE(WEIGH_SQUARES, [OUTPUT(WEIGH_SQUARES, value)] = u->sum,
                    [OUTPUT(WEIGH_SQUARES, total)] = first ? o->updates : operand_none(),
                    [OUTPUT(WEIGH_SQUARES, squares1)] = u->squares),
               NULL);
    if (first)
        outer_sum(o, o->updates);
    outer_sum(o, u->sum);
}

// What divides gradients from now on.
static void outer_rescale(struct outer *o, const struct outer_unit *u) {
    outer_emit(o, OP_RESCALE,
               GIVEN(RESCALE, [INPUT(RESCALE, divisor)] = u->divisor, [INPUT(RESCALE, squares)] = u->sum,
                     [INPUT(RESCALE, total)] = o->updates, [INPUT(RESCALE, rounds)] = o->rounds),
               MADE(RESCALE, [OUTPUT(RESCALE, divisor1)] = u->divisor),
               (union attribute[OP_MAX_ATTRIBUTES]){[ATTRIBUTE(RESCALE, beta2)].f = o->config->optimizer.beta2});
    outer_put_back(o, u);
}

static void outer_end_meeting(struct outer *o, const struct outer_unit *u) {
    outer_settle(o, u);
    if (outer_rescales(o->config))
        outer_rescale(o, u);
}

// While the sum of one unit is made, the next one is taken and weighed.
trireme_status compile_outer_meet(struct compiled *out, const struct compile_options *options,
                                  const struct program_spec *spec, trireme_error *error) {
    struct outer o;
    struct outer_unit before;
    bool any = false;
    outer_begin(&o, options, spec, "meet");
    outer_streams(&o);
    if (outer_rescales(o.config) && o.config->optimizer.offload != CONFIG_OFFLOAD_NONE)
        transfer_stream(&o.compiled.program);
    FOR_FRAGMENT(&o, unit) {
        struct outer_unit u = outer_unit_of(
            &o, unit,
            (struct outer_use){
                .parameters = true, .anchor = true, .velocity = true, .squares = outer_rescales(o.config)});
        u.taken = u.value = outer_local(&o, &u, "value");
        outer_take(&o, &u, u.taken);
        outer_exchange(&o, &u);
        if (o.ring && u.anchor.buffer != NONE && o.config->outer.pull > 0)
            u.other = outer_swap(&o, mem_printf("%s.outer.other", u.name), u.anchor);
        u.taken = operand_none();
        if (outer_rescales(o.config))
            outer_measure(&o, &u);
        if (any)
            outer_end_meeting(&o, &before);
        before = u;
        any = true;
    }
    if (any)
        outer_end_meeting(&o, &before);
    outer_judge_moves(&o);
    return outer_finish(&o, out, options, error);
}

trireme_status compile_outer_take(struct compiled *out, const struct compile_options *options,
                                  const struct program_spec *spec, trireme_error *error) {
    struct outer o;
    outer_begin(&o, options, spec, "take");
    FOR_FRAGMENT(&o, unit) {
        const struct outer_unit u =
            outer_unit_of(&o, unit, (struct outer_use){.parameters = true, .anchor = true, .taken = true});
        outer_take(&o, &u, u.taken);
        outer_put_back(&o, &u);
    }
    return outer_finish(&o, out, options, error);
}

trireme_status compile_outer_exchange(struct compiled *out, const struct compile_options *options,
                                      const struct program_spec *spec, trireme_error *error) {
    struct outer o;
    outer_begin(&o, options, spec, "exchange");
    outer_streams(&o);
    FOR_FRAGMENT(&o, unit) {
        const struct outer_unit u = outer_unit_of(&o, unit, (struct outer_use){.taken = true, .value = true});
        outer_exchange(&o, &u);
        outer_put_back(&o, &u);
    }
    return outer_finish(&o, out, options, error);
}

trireme_status compile_outer_settle(struct compiled *out, const struct compile_options *options,
                                    const struct program_spec *spec, trireme_error *error) {
    struct outer o;
    const bool steps = outer_steps(options->config);
    outer_begin(&o, options, spec, "settle");
    if (o.state->outer.excess)
        compile_streams(&o.compiled.program, options);
    FOR_FRAGMENT(&o, unit) {
        const struct outer_use use = {
            .parameters = true, .anchor = true, .velocity = true, .value = true, .taken = !steps};
        const struct outer_unit u = outer_unit_of(&o, unit, use);
        outer_settle(&o, &u);
    }
    outer_judge_moves(&o);
    return outer_finish(&o, out, options, error);
}

// What has arrived is of the round before the one that ends here. With outer.keep_progress islands go on with what they
// have learnt in between: CO2 (Sun et al. 2024, "CO2: Efficient Distributed Training with Full
// Communication-Computation Overlap") does not converge without. With outer.eager (Kale et al. 2025, "Eager updates for
// overlapped communication and computation in DiLoCo", section 3) the island's own part of what has arrived is replaced
// by what it has come to now.
trireme_status compile_outer_turn(struct compiled *out, const struct compile_options *options,
                                  const struct program_spec *spec, trireme_error *error) {
    struct outer o;
    outer_begin(&o, options, spec, "turn");
    if (o.state->outer.excess)
        compile_streams(&o.compiled.program, options);
    FOR_FRAGMENT(&o, unit) {
        const struct outer_use use = {
            .parameters = true, .anchor = true, .velocity = true, .value = true, .taken = true};
        struct outer_unit u = outer_unit_of(&o, unit, use);
        const struct operand own = options->config->outer.eager ? outer_local(&o, &u, "own") : u.taken;
        outer_take(&o, &u, own);
        if (options->config->outer.eager) {
            const struct operand fresh = outer_local(&o, &u, "fresh");
            outer_emit(&o, OP_EAGER,
                       GIVEN(EAGER, [INPUT(EAGER, value)] = u.value, [INPUT(EAGER, taken)] = u.taken,
                             [INPUT(EAGER, own)] = own),
                       MADE(EAGER, [OUTPUT(EAGER, fresh)] = fresh, [OUTPUT(EAGER, taken1)] = u.taken),
                       (union attribute[OP_MAX_ATTRIBUTES]){[ATTRIBUTE(EAGER, codec)].i = o.codec});
            u.value = fresh;
        }
        outer_settle(&o, &u);
    }
    outer_judge_moves(&o);
    return outer_finish(&o, out, options, error);
}

// ---- evaluations

// All units that are trained.
#define FOR_TRAINED(o, unit)                                       \
    for (int unit = 0; (unit) < (o)->state->units.units; (unit)++) \
        if (!parameter_unit_frozen((o)->state->units.table, unit))

// Sets aside what the parameters are. Those that follow an anchor become that.
static void outer_show(struct outer *o, const struct outer_unit *u) {
    outer_emit(o, OP_KEEP, GIVEN(KEEP, [INPUT(KEEP, p)] = u->p, [INPUT(KEEP, rem)] = u->rem),
               MADE(KEEP, [OUTPUT(KEEP, kept)] = u->kept), NULL);
    if (u->anchor.buffer != NONE)
        outer_emit(o, OP_ADOPT,
                   GIVEN(ADOPT, [INPUT(ADOPT, p)] = u->p, [INPUT(ADOPT, rem)] = u->rem,
                         [INPUT(ADOPT, anchor)] = u->anchor, [INPUT(ADOPT, taken)] = operand_none()),
                   MADE(ADOPT, [OUTPUT(ADOPT, p1)] = u->p, [OUTPUT(ADOPT, rem1)] = u->rem), NULL);
}

// What islands have of their own becomes the mean: on the stream of meetings, or on one that no exchange has, which may
// be under way.
trireme_status compile_outer_show(struct compiled *out, const struct compile_options *options,
                                  const struct program_spec *spec, trireme_error *error) {
    struct outer o;
    struct outer_unit before;
    outer_begin(&o, options, spec, "show");
    const bool mean = (!outer_steps(options->config) || outer_anchors_own(options->config)) &&
                      mesh_present(&o.compiled.program.mesh, AXES_ISLAND);
    bool any = false;
    compile_streams(&o.compiled.program, options);
    if (mean) {
        o.stream =
            program_stream(&o.compiled.program, outer_meets(options->config, true) ? "outer" : "mean", STREAM_BULK);
        o.total = outer_local(&o, NULL, "total");
        o.codec = CODEC_NONE;
    }
    FOR_TRAINED(&o, unit) {
        struct outer_unit u =
            outer_unit_of(&o, unit, (struct outer_use){.parameters = true, .anchor = true, .kept = true});
        outer_show(&o, &u);
        if (!mean)
            continue;
        u.anchor = operand_none();
        u.taken = u.value = outer_local(&o, &u, "value");
        outer_take(&o, &u, u.taken);
        outer_exchange(&o, &u);
        u.taken = operand_none();
        if (any)
            outer_settle(&o, &before);
        before = u;
        any = true;
    }
    if (any)
        outer_settle(&o, &before);
    return outer_finish(&o, out, options, error);
}

trireme_status compile_outer_hide(struct compiled *out, const struct compile_options *options,
                                  const struct program_spec *spec, trireme_error *error) {
    struct outer o;
    outer_begin(&o, options, spec, "hide");
    FOR_TRAINED(&o, unit) {
        const struct outer_unit u = outer_unit_of(&o, unit, (struct outer_use){.parameters = true, .kept = true});
        outer_emit(
            &o, OP_RESTORE,
            GIVEN(RESTORE, [INPUT(RESTORE, p)] = u.p, [INPUT(RESTORE, rem)] = u.rem, [INPUT(RESTORE, kept)] = u.kept),
            MADE(RESTORE, [OUTPUT(RESTORE, p1)] = u.p, [OUTPUT(RESTORE, rem1)] = u.rem), NULL);
    }
    return outer_finish(&o, out, options, error);
}
