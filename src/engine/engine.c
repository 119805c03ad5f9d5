#include "engine/engine.h"

#include "base/amount.h"
#include "base/crew.h"
#include "compile/options.h"
#include "engine/stages.h"
#include "kernels/bf16.h"
#include "kernels/machine.h"
#include "launch/ranks.h"
#include "memory/memory_plan.h"

int engine_threads(const struct config *config, int ranks) {
    int given = (int)config->training.threads, wanted = given > 0 ? given : MAX(1, usable_cores() / ranks);
    int most = threads_most();
    return MIN(wanted, most);
}

trireme_status engine_compile(struct engine *e, const struct config *config, const struct model_config *model,
                              const struct parallel *plan, enum engine_use use, int rank, trireme_error *error) {
    const struct config_training *t = &config->training;
    struct parallel parallel;
    if (plan)
        parallel = *plan;
    else
        TRY(parallel_resolve(&parallel, config, model, error));
    *e = (struct engine){.model = *model,
                         .optimizer = optimizer_config_resolve(config),
                         .dtype = model_dtype(config),
                         .kernels = options_kernels(config),
                         .threads = engine_threads(config, mesh_ranks(&parallel.mesh)),
                         .parallel = parallel,
                         .owns_plan = !plan,
                         .member = {.rank = rank},
                         .micro_batch_size = parallel.micro_batch_size,
                         .seq_len = t->seq_len,
                         .microbatches = parallel.microbatches,
                         .trains = use != ENGINE_EVALUATE,
                         .evaluates = use != ENGINE_STEP};
    e->ops = op_table_create();
    e->parallel.stage = mesh_coordinate(&e->parallel.mesh, rank, AXIS_PP);
    options_tables(&e->table, &e->local, model, &e->parallel, rank);
    struct compile_options options = options_create(config, &e->model, &e->local, e->ops, &e->parallel, e->threads);
    trireme_status status = TRIREME_OK;
    if (e->trains)
        status = compile_train(&e->train, &options, error);
    if (status == TRIREME_OK && e->evaluates)
        status = compile_evaluate(&e->evaluate, &options, error);
    if (status != TRIREME_OK)
        engine_release(e);
    return status;
}

// Whether both ranks, of one stage, hold the same parts of the parameters.
static bool same_parts(const struct parallel *plan, int a, int b) {
    return mesh_index(&plan->mesh, a, AXES_TENSOR) == mesh_index(&plan->mesh, b, AXES_TENSOR) &&
           parallel_vocabulary_index(plan, a) == parallel_vocabulary_index(plan, b);
}

// Makes the engine of a rank of the lender's stage. What is not the member's own remains the lender's, which must
// outlive the engine.
static void engine_borrow(struct engine *e, const struct engine *lender, const struct member *member) {
    *e = *lender;
    e->lender = lender;
    e->member = *member;
    CHECK(mesh_coordinate(&e->parallel.mesh, member->rank, AXIS_PP) == e->parallel.stage);
    if (!same_parts(&e->parallel, member->rank, lender->member.rank))
        options_local_table(&e->local, &e->table, &e->model, &e->parallel, member->rank);
}

int64_t engine_first_sequence(const struct engine *e) {
    return mesh_index(&e->parallel.mesh, e->member.rank, AXES_SEQUENCES) * e->microbatches * e->micro_batch_size;
}

static const struct compiled *main_program(const struct engine *e) {
    return e->trains ? &e->train : &e->evaluate;
}

static int largest_state_buffer(const struct program *p) {
    int largest = NONE;
    for (int i = 0; i < (int)p->buffers.count; i++) {
        const struct buffer *b = &p->buffers.item[i];
        if (b->scope == SCOPE_STATE && b->parent == NONE &&
            (largest == NONE || buffer_bytes(b) > buffer_bytes(&p->buffers.item[largest])))
            largest = i;
    }
    return largest;
}

// Appends "state 1.2 GB, the largest embed 300.0 MB; step 3.4 GB, the largest at its peak logits.rows0 128.0 MB, ...",
// about the training step, or the evaluation where there is none.
static void describe_memory(const struct engine *e, struct text *out) {
    const struct program *p = &main_program(e)->program;
    text_add(out, "state %s", amount(p->state_bytes).text);
    int largest = largest_state_buffer(p);
    if (largest != NONE) {
        const struct buffer *b = &p->buffers.item[largest];
        text_add(out, ", the largest %s %s", b->name, amount(buffer_bytes(b)).text);
    }
    text_add(out, "; step %s, the largest at its peak", amount(p->step_bytes).text);
    struct memory_profile profile;
    program_memory_profile(p, e->ops, &profile);
    for (size_t i = 0; i < MIN(profile.at_peak.count, (size_t)3); i++) {
        const struct memory_holder *h = &profile.at_peak.item[i];
        text_add(out, "%s %s %s", i ? "," : "", p->buffers.item[h->buffer].name, amount(h->bytes).text);
    }
    memory_profile_release(&profile);
}

// What may help. If the state alone does not fit, only a smaller model does, or bf16, whose state takes more than half
// as much; otherwise a smaller step.
static const char *memory_advice(const struct engine *e, size_t state, size_t available) {
    if (!e->trains)
        return state > available ? "take a smaller model" : "lower training.micro_batch_size or training.seq_len";
    if (state > available)
        return e->dtype == DTYPE_BF16 || state / 2 > available ? "take a smaller model"
                                                               : "set training.dtype to bf16, or take a smaller model";
    return "lower training.micro_batch_size or training.seq_len, or set activation_checkpoint.mode";
}

static size_t state_bytes(const struct engine *e) {
    return (size_t)main_program(e)->program.state_bytes;
}

static size_t step_bytes(const struct engine *e) {
    return (size_t)MAX(main_program(e)->program.step_bytes, e->evaluate.program.step_bytes);
}

size_t engine_bytes(const struct engine *e) {
    return state_bytes(e) + step_bytes(e);
}

// Checks `needed` bytes, which `ranks` ranks need together; `e` is one of those that need most.
static trireme_status check_memory(const struct engine *e, size_t needed, size_t available, int ranks,
                                   trireme_error *error) {
    if (needed <= available)
        return TRIREME_OK;
    struct text what = {0};
    bool many = mesh_ranks(&e->parallel.mesh) > 1;
    if (many)
        text_add(&what, "rank %d: ", e->member.rank);
    describe_memory(e, &what);
    char of[48];
    snprintf(of, sizeof of, "%s", many ? "a rank alone needs" : "it needs");
    if (ranks > 1)
        snprintf(of, sizeof of, "its %d ranks together need", ranks);
    error_set(error, TRIREME_ERROR_MEMORY, "the %s does not fit: %s %.3f GB and %.3f GB are available (%s); %s",
              e->trains ? "training step" : "evaluation", of, 1e-9 * (double)needed, 1e-9 * (double)available,
              what.text, memory_advice(e, state_bytes(e) * (size_t)ranks, available));
    text_release(&what);
    return TRIREME_ERROR_MEMORY;
}

static trireme_status check_all_memory(const struct stages *stages, const struct world_place *place,
                                       trireme_error *error) {
    const struct engine *most = stages->of[0];
    size_t needed = 0;
    for (int i = 0; i < stages->count; i++) {
        const struct engine *e = stages->of[i];
        needed += engine_bytes(e) * (size_t)(stages->ranks / stages->count);
        if (engine_bytes(e) > engine_bytes(most))
            most = e;
    }
    if (!place)
        return check_memory(most, needed, memory_available(), stages->ranks, error);
    // The limit of the address space is each process's own, and each has taken its memory within it. With processes on
    // several nodes, those of one node, as if all needed as much as the largest: which stages a node has depends on the
    // launcher.
    if (place->nodes > 1)
        needed = engine_bytes(most) * (size_t)place->node_ranks;
    return check_memory(most, needed, memory_below("", MEMORY_LEFT), place->node_ranks, error);
}

// Proves the programs of all ranks, on one rank, before any of them can run.
static trireme_status verify_stages(const struct stages *stages, const struct engine *e, trireme_error *error) {
    if (e->trains)
        TRY(stages_verify(stages, true, error));
    return e->evaluates ? stages_verify(stages, false, error) : TRIREME_OK;
}

// For ranks that are processes: rank 0 checks memory and proofs for all, and the others compare their programs with
// its.
static trireme_status compare_processes(const struct engine *e, const struct config *config, enum engine_use use,
                                        trireme_error *error) {
    struct stages stages;
    if (e->member.rank != 0)
        return stages_compare(NULL, e, error);
    TRY(stages_compile(&stages, config, &e->model, use, e, error));
    trireme_status status = check_all_memory(&stages, world_place(e->member.world), error);
    if (status == TRIREME_OK)
        status = verify_stages(&stages, e, error);
    if (status == TRIREME_OK)
        status = stages_compare(&stages, e, error);
    stages_release(&stages);
    return status;
}

enum { ARENA_ALIGNMENT = 4096 };

static size_t engine_aligned(size_t bytes) {
    return round_up(bytes, ARENA_ALIGNMENT);
}

static size_t arena_room(const struct engine *e) {
    return engine_aligned(state_bytes(e)) + engine_aligned(step_bytes(e));
}

static void place_arenas(struct engine *e, char *at) {
    e->state = at;
    e->step = at + engine_aligned(state_bytes(e));
}

// Takes the memory of the only rank of this process, without touching a page.
static trireme_status engine_take_memory(struct engine *e, trireme_error *error) {
    TRY(check_memory(e, engine_bytes(e), memory_available(), 1, error));
    TRY(region_create(&e->memory, arena_room(e), false, "the memory of the run", error));
    place_arenas(e, e->memory.base);
    return TRIREME_OK;
}

static size_t room_up_to(const struct stages *s, int rank) {
    size_t bytes = 0;
    for (int r = 0; r < rank; r++)
        bytes += arena_room(s->of[r / (s->ranks / s->count)]);
    return bytes;
}

static void release_memory(void *memory) {
    region_release(memory);
    free(memory);
}

// Takes the memory of ranks that are threads in one region, one after the other: with a region for each rank, each
// region would end in a huge page that is hardly used.
static trireme_status share_memory(struct engine *e, const struct stages *stages, struct communicator *all,
                                   trireme_error *error) {
    char *base = NULL;
    if (e->member.rank == 0) {
        TRY(check_memory(e, engine_bytes(e), memory_available(), 1, error));
        TRY(check_all_memory(stages, NULL, error));
        struct region *memory = mem_alloc(sizeof *memory);
        world_keep(e->member.world, memory, release_memory);
        TRY(region_create(memory, room_up_to(stages, stages->ranks), false, "the memory of the run", error));
        base = memory->base;
    }
    TRY(comm_broadcast(all, &base, sizeof base, 0, error));
    place_arenas(e, base + room_up_to(stages, e->member.rank));
    return TRIREME_OK;
}

// Pins threads: the threads of this process's ranks take its cores in order.
static void engine_pin(struct engine *e) {
    const struct world_place *place = world_place(e->member.world);
    const int ranks = place ? place->core_ranks : mesh_ranks(&e->parallel.mesh);
    const int first = (place ? place->core_rank : e->member.rank) * e->threads;
    int count, *processor = processors_list(&count);
    if (ranks * e->threads == bound_cores() || ranks * e->threads == count)
        streams_pin(e->streams, processor + first);
    free(processor);
}

static trireme_status engine_refuse_many(const struct engine *e, trireme_error *error) {
    if (mesh_ranks(&e->parallel.mesh) == 1)
        return TRIREME_OK;
    char *mesh = mesh_print(&e->parallel.mesh);
    error_set(error, TRIREME_ERROR_USAGE,
              "this command runs on one rank, and the mesh has %d (%s): leave out the degrees of parallelism that make "
              "it larger",
              mesh_ranks(&e->parallel.mesh), mesh);
    free(mesh);
    return TRIREME_ERROR_USAGE;
}

// For ranks that are threads.
static trireme_status share_programs(struct engine *e, const struct config *config, const struct model_config *model,
                                     const struct parallel *plan, enum engine_use use, const struct member *member,
                                     trireme_error *error) {
    struct stages stages;
    struct communicator *all;
    TRY(stages_share(&stages, &all, config, model, plan, use, member, error));
    engine_borrow(e, stages.of[mesh_coordinate(&stages.of[0]->parallel.mesh, member->rank, AXIS_PP)], member);
    trireme_status status = share_memory(e, &stages, all, error);
    if (status == TRIREME_OK && member->rank == 0)
        status = verify_stages(&stages, e, error);
    communicator_free(all);
    stages_release(&stages);
    return status;
}

// For the only rank of a process.
static trireme_status make_programs(struct engine *e, const struct config *config, const struct model_config *model,
                                    const struct parallel *plan, enum engine_use use, const struct member *member,
                                    trireme_error *error) {
    TRY(engine_compile(e, config, model, plan, use, member ? member->rank : 0, error));
    if (!member)
        TRY(engine_refuse_many(e, error));
    else
        e->member = *member;
    TRY(engine_take_memory(e, error));
    return member && world_place(member->world) ? compare_processes(e, config, use, error) : TRIREME_OK;
}

trireme_status engine_create(struct engine *e, const struct config *config, const struct model_config *model,
                             const struct parallel *plan, enum engine_use use, const struct member *member,
                             trireme_error *error) {
    const bool threads = member && member->world && !world_place(member->world);
    *e = (struct engine){0};
    trireme_status status = threads ? share_programs(e, config, model, plan, use, member, error)
                                    : make_programs(e, config, model, plan, use, member, error);
    if (!threads || member->rank == 0)
        memory_give_back();
    if (status == TRIREME_OK)
        e->streams = streams_create(&e->member, e->threads);
    if (status == TRIREME_OK && e->trains)
        status = executor_create(&e->train_executor, e->streams, &e->train.program, e->ops, e->kernels, e->state,
                                 e->step, error);
    if (status == TRIREME_OK && e->evaluates)
        status = executor_create(&e->evaluate_executor, e->streams, &e->evaluate.program, e->ops, e->kernels, e->state,
                                 e->step, error);
    if (status == TRIREME_OK && config->training.pin_threads)
        engine_pin(e);
    if (status != TRIREME_OK)
        engine_release(e);
    return status;
}

static void release_programs(struct engine *e) {
    compiled_release(&e->train);
    compiled_release(&e->evaluate);
    parameter_table_release(&e->table);
    parameter_table_release(&e->local);
    if (e->owns_plan)
        parallel_release(&e->parallel);
    free(e->ops);
}

void engine_release(struct engine *e) {
    executor_free(e->train_executor);
    executor_free(e->evaluate_executor);
    streams_free(e->streams);
    region_release(&e->memory);
    if (!e->lender)
        release_programs(e);
    else if (e->local.parameters.item != e->lender->local.parameters.item)
        parameter_table_release(&e->local);
    *e = (struct engine){0};
}

void *engine_address(const struct engine *e, int buffer, int microbatch) {
    return executor_address(e->trains ? e->train_executor : e->evaluate_executor, buffer, microbatch);
}

trireme_status engine_peak(const struct engine *e, struct communicator *control, int64_t steps, double *out,
                           trireme_error *error) {
    const struct mesh *mesh = &e->parallel.mesh;
    int ranks = mesh_ranks(mesh);
    const struct world_place *place = world_place(e->member.world);
    int64_t tokens = e->micro_batch_size * e->microbatches * e->seq_len * mesh_group_size(mesh, AXES_SEQUENCES);
    double flops = (double)steps * model_flops(&e->model, tokens, e->seq_len);
    *out = 0;
    if (place) {
        // Ranks that crowd on cores do not always measure at the same moment.
        *out = peak_flops(e->dtype, e->threads, flops / ranks);
        *out *= MIN(1, (double)place->cores / (place->core_ranks * e->threads));
        return ranks_sum(control, out, 1, error);
    }
    if (e->member.rank == 0)
        *out = peak_flops(e->dtype, ranks * e->threads, flops);
    return TRIREME_OK;
}

// ---- values

enum { INITIAL_CHUNK = 512 };    // values; small, since a stack keeps the pages that it once had
enum { ZEROED_CHUNK = 1 << 24 }; // bytes

static void engine_store(void *out, enum dtype dtype, int64_t at, const double *values, int64_t count) {
    uint16_t low;
    for (int64_t i = 0; i < count; i++)
        if (dtype == DTYPE_F64)
            ((double *)out)[at + i] = values[i];
        else if (dtype == DTYPE_BF16)
            master_split((float)values[i], (uint16_t *)out + at + i, &low);
        else
            ((float *)out)[at + i] = (float)values[i];
}

static int shard_index(const struct engine *e) {
    return mesh_index(&e->parallel.mesh, e->member.rank, main_program(e)->layout.shards);
}

static const int *buffers_of(const struct compiled *c, enum engine_values what) {
    switch (what) {
    case ENGINE_PARAMETERS:
        return c->model.unit;
    case ENGINE_GRADIENTS:
        return c->optimizer.gradient;
    case ENGINE_REMAINDERS:
        return c->optimizer.remainder;
    case ENGINE_M:
        return c->optimizer.m;
    case ENGINE_V:
        return c->optimizer.v;
    }
    return NULL;
}

struct engine_part engine_part(const struct engine *e, enum engine_values what, size_t local) {
    const struct compiled *c = main_program(e);
    const struct parameter *p = &e->local.parameters.item[local];
    const int *unit = buffers_of(c, what);
    if (!unit)
        return (struct engine_part){0};
    const struct buffer *flat = &c->program.buffers.item[unit[p->unit]];
    int64_t held = buffer_count(flat), first = held < c->model.count[p->unit] ? held * shard_index(e) : 0;
    // Where each rank has reduced or updated only its part of a whole buffer, the rest is not valid.
    if (flat->own || (what == ENGINE_GRADIENTS && c->optimizer.zero_stage == 1)) {
        held /= mesh_group_size(&e->parallel.mesh, c->layout.shards);
        first = held * shard_index(e);
    }
    int64_t offset = program_root_offset(&c->program, c->model.parameter[local]), count = parameter_count(p);
    int64_t begin = MAX(offset, first), end = MIN(offset + count, first + held);
    if (begin >= end)
        return (struct engine_part){.dtype = flat->dtype};
    int64_t base = buffer_count(flat) < c->model.count[p->unit] ? first : 0;
    char *data = engine_address(e, unit[p->unit], 0);
    return (struct engine_part){data + (begin - base) * dtype_size(flat->dtype), flat->dtype, begin - offset,
                                end - offset};
}

// The initial values [at, at + count) of a rank's local parameter.
static void initial_values(const struct engine *e, const struct parameter *p, uint64_t seed, int64_t at, int64_t count,
                           double *out) {
    const struct parameter *whole = &e->table.parameters.item[p->whole];
    memset(out, 0, (size_t)count * sizeof *out);
    for (int i = 0; i < p->regions; i++) {
        const struct parameter_region *r = &p->region[i];
        for (int64_t row = MAX(r->row, at / p->dim[1]); row < r->row + r->rows && row * p->dim[1] < at + count; row++) {
            int64_t begin = MAX(row * p->dim[1] + r->column, at);
            int64_t end = MIN(row * p->dim[1] + r->column + r->columns, at + count);
            int64_t column = begin - row * p->dim[1] - r->column + r->whole_column;
            if (begin < end)
                parameter_initial_range(whole, seed, (r->whole_row + row - r->row) * whole->dim[1] + column,
                                        end - begin, out + begin - at);
        }
    }
}

static bool engine_asked(const atomic_bool *stop) {
    return stop && *stop;
}

static bool initialise_parameter(struct engine *e, size_t number, uint64_t seed, const atomic_bool *stop) {
    const struct parameter *p = &e->local.parameters.item[number];
    struct engine_part to = engine_part(e, ENGINE_PARAMETERS, number);
    struct engine_part low = {0};
    if (e->trains)
        low = engine_part(e, ENGINE_REMAINDERS, number);
    for (int64_t at = to.begin; at < to.end; at += INITIAL_CHUNK) {
        double values[INITIAL_CHUNK];
        if (engine_asked(stop))
            return false;
        int64_t n = MIN((int64_t)INITIAL_CHUNK, to.end - at);
        initial_values(e, p, seed, at, n, values);
        engine_store(to.data, e->dtype, at - to.begin, values, n);
        for (int64_t i = 0; i < n; i++) {
            uint16_t high;
            if (at + i >= low.begin && at + i < low.end)
                master_split((float)values[i], &high, (uint16_t *)low.data + at + i - low.begin);
        }
    }
    return true;
}

void engine_constants(struct engine *e) {
    const struct compiled *c = main_program(e);
    if (c->model.rope != NONE) {
        const struct buffer *b = &c->program.buffers.item[c->model.rope];
        model_fill_rope(&e->model, b->dim[0], b->dtype, engine_address(e, c->model.rope, 0));
    }
    if (c->model.vocab_first != NONE)
        *(int32_t *)engine_address(e, c->model.vocab_first, 0) =
            (int32_t)(parallel_vocabulary_index(&e->parallel, e->member.rank) * e->parallel.split.vocab_size);
    if (c->model.own_first != NONE)
        *(int32_t *)engine_address(e, c->model.own_first, 0) = (int32_t)(shard_index(e) * c->model.own_rows.dim[0]);
    if (c->model.heads_end != NONE)
        *(int32_t *)engine_address(e, c->model.heads_end, 0) =
            (int32_t)(model_split_heads(&e->parallel.split, &e->model,
                                        mesh_index(&e->parallel.mesh, e->member.rank, AXES_TENSOR)) *
                      e->model.head_dim);
    for (int u = 0; e->trains && u < c->model.units; u++) {
        int64_t count = c->model.count[u] / mesh_group_size(&e->parallel.mesh, c->layout.shards);
        int64_t decayed = c->model.decayed[u] - count * shard_index(e);
        *(double *)engine_address(e, c->optimizer.decayed[u], 0) = (double)MAX(0, MIN(decayed, count));
    }
}

// Zeroes the state arena, which takes as long as the system needs to provide its pages.
static bool zero_state(struct engine *e, const atomic_bool *stop) {
    int64_t bytes = main_program(e)->program.state_bytes;
    for (int64_t at = 0; at < bytes; at += ZEROED_CHUNK) {
        if (engine_asked(stop))
            return false;
        memset(e->state + at, 0, (size_t)MIN(bytes - at, (int64_t)ZEROED_CHUNK));
    }
    return true;
}

bool engine_initialise(struct engine *e, uint64_t seed, const atomic_bool *stop) {
    bool all = zero_state(e, stop);
    for (size_t i = 0; i < e->local.parameters.count && all; i++)
        all = initialise_parameter(e, i, seed, stop);
    engine_constants(e);
    return all;
}

// ---- steps

trireme_status engine_step(struct engine *e, double lr, struct trace *trace, struct engine_result *out,
                           trireme_error *error) {
    const struct compiled *c = &e->train;
    *(double *)executor_address(e->train_executor, c->lr, 0) = lr;
    TRY(executor_run(e->train_executor, trace, error));
    *out = (struct engine_result){.loss = *(const double *)executor_address(e->train_executor, c->loss, 0),
                                  .count = *(const double *)executor_address(e->train_executor, c->count, 0),
                                  .grad_norm = *(const double *)executor_address(e->train_executor, c->outputs.norm, 0),
                                  .finite =
                                      *(const int32_t *)executor_address(e->train_executor, c->outputs.finite, 0) != 0};
    return TRIREME_OK;
}

trireme_status engine_evaluate(struct engine *e, struct engine_result *out, trireme_error *error) {
    const struct compiled *c = &e->evaluate;
    TRY(executor_run(e->evaluate_executor, NULL, error));
    *out = (struct engine_result){.loss = *(const double *)executor_address(e->evaluate_executor, c->loss, 0),
                                  .count = *(const double *)executor_address(e->evaluate_executor, c->count, 0),
                                  .finite = true};
    return TRIREME_OK;
}
