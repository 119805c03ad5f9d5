#include "engine/engine.h"

#include "base/amount.h"
#include "base/bf16.h"
#include "base/parallel_for.h"
#include "base/reserve.h"
#include "engine/compare.h"
#include "engine/process_memory.h"
#include "kernels/machine.h"
#include "launch/ranks.h"
#include "memory/memory_plan.h"

// ---- programs

// Whether both ranks, of one stage, hold the same parts of the parameters.
static bool same_parts(const struct parallel *plan, int a, int b) {
    return mesh_index(&plan->mesh, a, AXES_TENSOR) == mesh_index(&plan->mesh, b, AXES_TENSOR) &&
           parallel_vocabulary_index(plan, a) == parallel_vocabulary_index(plan, b);
}

// Makes the engine of a rank, from stages of which the rank's is compiled.
static void engine_attach(struct engine *e, struct stages *s, bool owns, const struct member *member) {
    const struct stage *stage = &s->stage[mesh_coordinate(&s->plan.mesh, member->rank, AXIS_PP)];
    *e = (struct engine){.stages = s,
                         .owns_stages = owns,
                         .stage = stage,
                         .ops = s->options.ops,
                         .model = &s->model,
                         .table = &s->table,
                         .parallel = &stage->parallel,
                         .local = stage->state.local,
                         .member = *member};
    const int first = mesh_member(&s->plan.mesh, 0, AXES(AXIS_PP), stage->parallel.stage);
    if (!same_parts(e->parallel, member->rank, first))
        local_parameters(&e->local, e->table, s->config, e->model, e->parallel, member->rank);
    for (size_t i = 0; i < s->specs.count; i++)
        VEC_PUSH(&e->programs, (struct engine_program){.compiled = stage->programs.item[i]});
}

static void stages_free(void *stages) {
    stages_release(stages);
    free(stages);
}

trireme_status engine_compile(struct engine *e, const struct config *config, const struct model_config *model,
                              const struct parallel *plan, struct program_specs specs, int rank, trireme_error *error) {
    struct stages *s = mem_alloc(sizeof *s);
    trireme_status status = stages_create(s, config, model, plan, specs, NULL, error);
    if (status == TRIREME_OK)
        status = stages_compile(s, mesh_coordinate(&s->plan.mesh, rank, AXIS_PP), error);
    if (status == TRIREME_OK)
        engine_attach(e, s, true, &(struct member){.rank = rank});
    else
        stages_free(s);
    return status;
}

struct engine_program *engine_find_part(const struct engine *e, enum program_kind kind, int part) {
    for (size_t i = 0; i < e->programs.count; i++) {
        const struct program_spec *spec = &e->programs.item[i].compiled->spec;
        if (spec->kind == kind && spec->part == part)
            return &e->programs.item[i];
    }
    return NULL;
}

struct engine_program *engine_find(const struct engine *e, enum program_kind kind) {
    return engine_find_part(e, kind, 0);
}

const struct compiled *engine_compiled(const struct engine *e, enum program_kind kind) {
    return engine_find(e, kind)->compiled;
}

struct executor *engine_executor(const struct engine *e, enum program_kind kind) {
    return engine_find(e, kind)->executor;
}

static int64_t sequences_of(const struct compiled *c) {
    return c->spec.batch.microbatches * c->spec.batch.sequences;
}

int64_t engine_first_sequence(const struct engine *e, const struct compiled *c) {
    return mesh_index(&e->parallel->mesh, e->member.rank, AXES_BATCH) * sequences_of(c);
}

int64_t engine_tokens(const struct engine *e, const struct compiled *c) {
    return sequences_of(c) * c->spec.batch.seq_len * mesh_group_size(&e->parallel->mesh, AXES_BATCH);
}

double engine_flops(const struct engine *e, const struct compiled *c) {
    return model_flops(e->model, engine_tokens(e, c), c->spec.batch.seq_len);
}

struct engine_rows engine_rows(const struct engine *e, const struct compiled *c) {
    const struct parallel *p = e->parallel;
    const int64_t seq_len = c->spec.batch.seq_len, rows = parallel_rows(p, seq_len);
    return (struct engine_rows){parallel_places(p, seq_len), mesh_index(&p->mesh, e->member.rank, parallel_parts(p)),
                                mesh_index(&p->mesh, e->member.rank, p->exchange) * rows, rows};
}

// ---- memory

// Appends "state 1.2 GB, the largest embed 300.0 MB; step 3.4 GB, the largest at its peak logits.rows0 128.0 MB, ...",
// about the stage's first program.
static void describe_memory(const struct stages *s, const struct stage *stage, struct text *out) {
    const struct program *p = &stage->programs.item[0]->program;
    const struct state_table *state = &stage->state.table;
    text_add(out, "state %s", amount(stage_state_bytes(stage, SPACE_DEVICE)).text);
    const struct state_entry *largest = NULL;
    for (size_t i = 0; i < state->entries.count; i++)
        if (!largest || state_entry_bytes(&state->entries.item[i]) > state_entry_bytes(largest))
            largest = &state->entries.item[i];
    if (largest)
        text_add(out, ", the largest %s %s", largest->name, amount(state_entry_bytes(largest)).text);
    text_add(out, "; step %s, the largest at its peak", amount(p->arena[SPACE_DEVICE].step_bytes).text);
    struct memory_profile profile;
    program_memory_profile(p, s->options.ops, &profile);
    for (size_t i = 0; i < MIN(profile.at_peak.count, (size_t)3); i++) {
        const struct memory_holder *h = &profile.at_peak.item[i];
        text_add(out, "%s %s %s", i ? "," : "", p->buffers.item[h->buffer].name, amount(h->bytes).text);
    }
    memory_profile_release(&profile);
}

// What may help. If the state alone does not fit, only a smaller model does, or bf16, whose state takes more than half
// as much; otherwise a smaller step.
static const char *memory_advice(const struct stage *stage, size_t state, size_t available) {
    switch (stage->programs.item[0]->spec.kind) {
    case PROGRAM_TRAIN:
        if (state > available)
            return stage->state.dtype == DTYPE_BF16 || state / 2 > available
                       ? "take a smaller model"
                       : "set training.dtype to bf16, or take a smaller model";
        return "lower training.micro_batch_size or training.seq_len, or set activation_checkpoint.mode";
    case PROGRAM_GENERATE:
        return state > available ? "take a smaller model" : "lower generate.max_new_tokens";
    default:
        return state > available ? "take a smaller model" : "lower training.micro_batch_size or training.seq_len";
    }
}

static size_t stage_bytes(const struct stage *stage) {
    return (size_t)stage_state_bytes(stage, SPACE_DEVICE) + (size_t)stage_step_bytes(stage, SPACE_DEVICE);
}

size_t engine_bytes(const struct engine *e) {
    return stage_bytes(e->stage);
}

// Checks `arenas` bytes, which `ranks` ranks need together, and what processes need besides; rank `rank` of stage
// `stage` is one of those that need most.
static trireme_status check_memory(const struct stages *s, int stage, int rank, size_t arenas, size_t available,
                                   int ranks, trireme_error *error) {
    const struct stage *most = &s->stage[stage];
    const size_t besides = process_memory(s, ranks, arenas);
    if (arenas <= available && besides <= available - arenas)
        return TRIREME_OK;
    struct text what = {0};
    bool many = s->ranks > 1;
    if (many)
        text_add(&what, "rank %d: ", rank);
    describe_memory(s, most, &what);
    char of[48];
    snprintf(of, sizeof of, "%s", many ? "a rank alone needs" : "it needs");
    if (ranks > 1)
        snprintf(of, sizeof of, "its %d ranks together need", ranks);
    error_set(error, TRIREME_ERROR_MEMORY,
              "the %s does not fit: %s %.3f GB and %.3f GB are available, less %.3f GB for what processes take besides "
              "(%s); %s",
              program_kinds[most->programs.item[0]->spec.kind].title, of, 1e-9 * (double)arenas,
              1e-9 * (double)available, 1e-9 * (double)besides, what.text,
              memory_advice(most, (size_t)stage_state_bytes(most, SPACE_DEVICE) * (size_t)ranks, available));
    text_release(&what);
    return TRIREME_ERROR_MEMORY;
}

// What a process may still take for `ranks` ranks, once it has address space for the stacks of their threads.
static size_t memory_for_ranks(const struct stages *s, int ranks) {
    const size_t mappable = memory_mappable(), left = memory_below("", MEMORY_LEFT), stacks = process_stacks(s, ranks);
    return MIN(left, mappable == SIZE_MAX ? SIZE_MAX : mappable - MIN(mappable, stacks));
}

static trireme_status check_own_memory(const struct engine *e, trireme_error *error) {
    return check_memory(e->stages, e->parallel->stage, e->member.rank, engine_bytes(e), memory_for_ranks(e->stages, 1),
                        1, error);
}

static trireme_status check_all_memory(const struct stages *s, const struct world_place *place, trireme_error *error) {
    int most = 0, each = s->ranks / s->count;
    size_t needed = 0;
    for (int i = 0; i < s->count; i++) {
        needed += stage_bytes(&s->stage[i]) * (size_t)each;
        if (stage_bytes(&s->stage[i]) > stage_bytes(&s->stage[most]))
            most = i;
    }
    const int rank = mesh_member(&s->plan.mesh, 0, AXES(AXIS_PP), most);
    if (!place)
        return check_memory(s, most, rank, needed, memory_for_ranks(s, s->ranks), s->ranks, error);
    // The limits of what may be mapped are each process's own, and each has taken its memory within them. With
    // processes on several nodes, those of one node, as if all needed as much as the largest: which stages a node has
    // depends on the launcher.
    if (place->nodes > 1)
        needed = stage_bytes(&s->stage[most]) * (size_t)place->node_ranks;
    return check_memory(s, most, rank, needed, memory_below("", MEMORY_LEFT), place->node_ranks, error);
}

enum { ARENA_ALIGNMENT = 4096 };

static size_t engine_aligned(size_t bytes) {
    return round_up(bytes, ARENA_ALIGNMENT);
}

static size_t arena_room(const struct stage *stage) {
    return engine_aligned((size_t)stage_state_bytes(stage, SPACE_DEVICE)) +
           engine_aligned((size_t)stage_step_bytes(stage, SPACE_DEVICE));
}

static void place_arenas(struct engine *e, char *at) {
    e->state = at;
    e->step = at + engine_aligned((size_t)stage_state_bytes(e->stage, SPACE_DEVICE));
}

// Takes the memory of the only rank of this process, without touching a page.
static trireme_status engine_take_memory(struct engine *e, trireme_error *error) {
    TRY(check_own_memory(e, error));
    TRY(region_create(&e->memory, arena_room(e->stage), false, "the memory of the run", error));
    place_arenas(e, e->memory.base);
    return TRIREME_OK;
}

static size_t room_up_to(const struct stages *s, int rank) {
    size_t bytes = 0;
    for (int r = 0; r < rank; r++)
        bytes += arena_room(&s->stage[mesh_coordinate(&s->plan.mesh, r, AXIS_PP)]);
    return bytes;
}

static void release_memory(void *memory) {
    region_release(memory);
    free(memory);
}

// Takes the memory of ranks that are threads in one region, one after the other: with a region for each rank, each
// region would end in a huge page that is hardly used.
static trireme_status share_memory(struct engine *e, struct communicator *all, trireme_error *error) {
    char *base = NULL;
    if (e->member.rank == 0) {
        TRY(check_own_memory(e, error));
        TRY(check_all_memory(e->stages, NULL, error));
        struct region *memory = mem_alloc(sizeof *memory);
        world_keep(e->member.world, memory, release_memory);
        TRY(region_create(memory, room_up_to(e->stages, e->stages->ranks), false, "the memory of the run", error));
        base = memory->base;
    }
    TRY(ranks_share(all, &base, sizeof base, error));
    place_arenas(e, base + room_up_to(e->stages, e->member.rank));
    return TRIREME_OK;
}

// Makes the file of what lies outside of memory.
static trireme_status engine_take_file(struct engine *e, const struct config *config, trireme_error *error) {
    const int64_t state = stage_state_bytes(e->stage, SPACE_FILE), step = stage_step_bytes(e->stage, SPACE_FILE);
    const char *directory =
        *config->optimizer.offload_directory ? config->optimizer.offload_directory : getenv("TMPDIR");
    if (state + step == 0)
        return TRIREME_OK;
    TRY(unnamed_file_create(&e->file, directory && *directory ? directory : "/tmp", state + step,
                            "what lies outside of memory (optimizer.offload, outer.offload)", error));
    return TRIREME_OK;
}

// Streams for programs of the engine, which may use its file.
static struct streams *engine_streams(const struct engine *e, int threads) {
    struct streams *streams = streams_create(&e->member, threads);
    streams_use_file(streams, SPACE_FILE, (struct space_file){&e->file, 0, stage_state_bytes(e->stage, SPACE_FILE)});
    return streams;
}

// Pins threads: the threads of this process's ranks take its cores in order.
static void engine_pin(struct engine *e) {
    const struct world_place *place = world_place(e->member.world);
    const int ranks = place ? place->core_ranks : mesh_ranks(&e->parallel->mesh);
    const int first = (place ? place->core_rank : e->member.rank) * e->stages->options.threads;
    int count, *processor = processors_list(&count);
    if (ranks * e->stages->options.threads == bound_cores() || ranks * e->stages->options.threads == count)
        streams_pin(e->streams, processor + first);
    free(processor);
}

static trireme_status engine_refuse_many(const struct engine *e, trireme_error *error) {
    if (mesh_ranks(&e->parallel->mesh) == 1)
        return TRIREME_OK;
    char *mesh = mesh_print(&e->parallel->mesh);
    error_set(error, TRIREME_ERROR_USAGE,
              "this command runs on one rank, and the mesh has %d (%s): leave out the degrees of parallelism that make "
              "it larger",
              mesh_ranks(&e->parallel->mesh), mesh);
    free(mesh);
    return TRIREME_ERROR_USAGE;
}

// ---- creation

static trireme_status count_ranks(int *out, const struct config *config, const struct model_config *model,
                                  const struct parallel *plan, trireme_error *error) {
    struct parallel resolved;
    if (!plan)
        TRY(parallel_resolve(&resolved, config, model, error));
    *out = mesh_ranks(plan ? &plan->mesh : &resolved.mesh);
    if (!plan)
        parallel_release(&resolved);
    return TRIREME_OK;
}

// For ranks that are threads: rank 0 compiles the programs of all stages, which all ranks share as long as their world
// lives. *all becomes a communicator of all ranks, which the caller frees, on failure too.
static trireme_status share_stages(struct stages **out, struct communicator **all, const struct config *config,
                                   const struct model_config *model, const struct parallel *plan,
                                   struct program_specs specs, const struct member *member, trireme_error *error) {
    struct stages *s = NULL;
    *all = NULL;
    if (member->rank == 0) {
        s = mem_alloc(sizeof *s);
        trireme_status status = stages_create(s, config, model, plan, specs, NULL, error);
        if (status != TRIREME_OK) {
            free(s);
            return status;
        }
        world_keep(member->world, s, stages_free);
        TRY(stages_compile(s, EVERY_STAGE, error));
    }
    int ranks;
    TRY(count_ranks(&ranks, config, model, plan, error));
    TRY(ranks_control(all, member, ranks, error));
    TRY(ranks_share(*all, &s, sizeof s, error));
    *out = s;
    return TRIREME_OK;
}

static trireme_status create_of_threads(struct engine *e, const struct config *config, const struct model_config *model,
                                        const struct parallel *plan, struct program_specs specs,
                                        const struct member *member, trireme_error *error) {
    struct stages *s;
    struct communicator *all;
    trireme_status status = share_stages(&s, &all, config, model, plan, specs, member, error);
    if (status == TRIREME_OK) {
        engine_attach(e, s, false, member);
        status = share_memory(e, all, error);
    }
    if (status == TRIREME_OK && member->rank == 0)
        status = stages_verify(s, error);
    communicator_free(all);
    return status;
}

// For ranks that are processes: rank 0 makes the programs of all, and checks memory and proofs; the others compare
// theirs with its.
static trireme_status check_processes(const struct engine *e, trireme_error *error) {
    if (e->member.rank == 0) {
        TRY(stages_compile(e->stages, EVERY_STAGE, error));
        TRY(check_all_memory(e->stages, world_place(e->member.world), error));
        TRY(stages_verify(e->stages, error));
    }
    TRY(compare_programs(e, error));
    stages_drop_others(e->stages, e->parallel->stage);
    return TRIREME_OK;
}

// For the only rank of a process.
static trireme_status create_of_process(struct engine *e, const struct config *config, const struct model_config *model,
                                        const struct parallel *plan, struct program_specs specs,
                                        const struct member *member, trireme_error *error) {
    TRY(engine_compile(e, config, model, plan, specs, member ? member->rank : 0, error));
    if (!member)
        TRY(engine_refuse_many(e, error));
    else
        e->member = *member;
    TRY(engine_take_memory(e, error));
    return member && world_place(member->world) ? check_processes(e, error) : stages_verify(e->stages, error);
}

// A program that runs beside others leaves the kernels' threads to them. Those of a kind do not run at one time.
static trireme_status create_executor(struct engine *e, size_t number, trireme_error *error) {
    struct engine_program *p = &e->programs.item[number];
    if (program_is_beside(p->compiled->spec.kind))
        p->streams =
            p->compiled->spec.part == 0 ? engine_streams(e, 1) : engine_find(e, p->compiled->spec.kind)->streams;
    return executor_create(&p->executor, p->streams ?: e->streams, &p->compiled->program, e->ops,
                           compile_kernels(e->stages->config), e->state,
                           e->step + stage_step_offset(e->stage, number, SPACE_DEVICE), error);
}

trireme_status engine_create(struct engine *e, const struct config *config, const struct model_config *model,
                             const struct parallel *plan, struct program_specs specs, const struct member *member,
                             trireme_error *error) {
    const bool threads = member && member->world && !world_place(member->world);
    *e = (struct engine){0};
    trireme_status status = threads ? create_of_threads(e, config, model, plan, specs, member, error)
                                    : create_of_process(e, config, model, plan, specs, member, error);
    if (!threads || member->rank == 0)
        memory_give_back();
    if (status == TRIREME_OK)
        status = engine_take_file(e, config, error);
    if (status == TRIREME_OK)
        e->streams = engine_streams(e, e->stages->options.threads);
    for (size_t i = 0; i < e->programs.count && status == TRIREME_OK; i++)
        status = create_executor(e, i, error);
    if (status == TRIREME_OK && config->training.pin_threads)
        engine_pin(e);
    if (status != TRIREME_OK)
        engine_release(e);
    return status;
}

void engine_release(struct engine *e) {
    for (size_t i = 0; i < e->programs.count; i++) {
        struct engine_program *p = &e->programs.item[i];
        if (p->under_way)
            pthread_join(p->thread, NULL);
        executor_free(p->executor);
        if (p->compiled->spec.part == 0)
            streams_free(p->streams);
    }
    VEC_RELEASE(&e->programs);
    streams_free(e->streams);
    region_release(&e->memory);
    unnamed_file_release(&e->file);
    if (e->stage && e->local.parameters.item != e->stage->state.local.parameters.item)
        parameter_table_release(&e->local);
    if (e->owns_stages)
        stages_free(e->stages);
    *e = (struct engine){0};
}

void engine_count_in(struct engine *e, struct stream_counters counters[]) {
    int next = 0;
    streams_count_in(e->streams, &counters[next++]);
    for (size_t i = 0; i < e->programs.count; i++)
        if (e->programs.item[i].streams && e->programs.item[i].compiled->spec.part == 0)
            streams_count_in(e->programs.item[i].streams, &counters[next++]);
}

void *engine_state(const struct engine *e, int entry) {
    const struct state_entry *of = &e->stage->state.table.entries.item[entry];
    return (memory_spaces[of->space].addressable ? e->state : e->file.map) + of->offset;
}

void *engine_address(const struct engine *e, int buffer, int microbatch) {
    return executor_address(e->programs.item[0].executor, buffer, microbatch);
}

trireme_status engine_peak(const struct engine *e, struct communicator *control, int64_t steps, double *out,
                           trireme_error *error) {
    const struct mesh *mesh = &e->parallel->mesh;
    int ranks = mesh_ranks(mesh);
    const struct world_place *place = world_place(e->member.world);
    double flops = (double)steps * engine_flops(e, engine_compiled(e, PROGRAM_TRAIN));
    *out = 0;
    if (place) {
        // Ranks that crowd on cores do not always measure at the same moment.
        *out = peak_flops(e->stage->state.dtype, e->stages->options.threads, flops / ranks);
        *out *= MIN(1, (double)place->cores / (place->core_ranks * e->stages->options.threads));
        return ranks_sum(control, out, 1, error);
    }
    if (e->member.rank == 0)
        *out = peak_flops(e->stage->state.dtype, ranks * e->stages->options.threads, flops);
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

// Which of a unit's shards the rank has, and how many there are.
static int shard_index(const struct engine *e, int unit) {
    return mesh_index(&e->parallel->mesh, e->member.rank, e->stage->state.units.axes[unit].shards);
}
static int shard_count(const struct engine *e, int unit) {
    return mesh_group_size(&e->parallel->mesh, e->stage->state.units.axes[unit].shards);
}

// The entries of such values, [units]; NULL: there are none.
static const int *entries_of(const struct stage_state *s, enum engine_values what) {
    switch (what) {
    case ENGINE_PARAMETERS:
        return s->model.unit;
    case ENGINE_GRADIENTS:
        return s->optimizer.gradient;
    case ENGINE_REMAINDERS:
        return s->optimizer.remainder;
    case ENGINE_OUTER_ANCHOR:
        return s->outer.anchor;
    case ENGINE_OUTER_VELOCITY:
        return s->outer.velocity;
    case ENGINE_OUTER_TAKEN:
        return s->outer.taken;
    case ENGINE_OUTER_VALUE:
        return s->outer.value;
    default:
        return s->optimizer.state[what - ENGINE_STATES];
    }
}

struct engine_part engine_part(const struct engine *e, enum engine_values what, size_t local) {
    const struct stage_state *s = &e->stage->state;
    const struct model_units *units = &s->units;
    const struct parameter *p = &e->local.parameters.item[local];
    const int *entries = entries_of(s, what);
    if (!entries || entries[p->unit] == NONE)
        return (struct engine_part){0};
    const struct state_entry *flat = &s->table.entries.item[entries[p->unit]];
    int64_t kept = flat->dim[0], held = kept, first = held < units->count[p->unit] ? held * shard_index(e, p->unit) : 0;
    // Where each rank has reduced or updated only its part of a whole buffer, the rest is not valid.
    if (flat->own || (what == ENGINE_GRADIENTS && units->axes[p->unit].zero_stage == 1)) {
        held /= shard_count(e, p->unit);
        first = held * shard_index(e, p->unit);
    }
    int64_t offset = units->at[local], count = parameter_count(p);
    int64_t begin = MAX(offset, first), end = MIN(offset + count, first + held);
    if (begin >= end)
        return (struct engine_part){.dtype = flat->dtype};
    int64_t base = kept < units->count[p->unit] ? first : 0;
    char *data = engine_state(e, entries[p->unit]);
    return (struct engine_part){data + (begin - base) * dtype_size(flat->dtype), flat->dtype, begin - offset,
                                end - offset};
}

// The initial values [at, at + count) of a rank's local parameter.
static void initial_values(const struct engine *e, const struct parameter *p, uint64_t seed, int64_t at, int64_t count,
                           double *out) {
    const struct parameter *whole = &e->table->parameters.item[p->whole];
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
    struct engine_part low = engine_part(e, ENGINE_REMAINDERS, number);
    for (int64_t at = to.begin; at < to.end; at += INITIAL_CHUNK) {
        double values[INITIAL_CHUNK];
        if (engine_asked(stop))
            return false;
        int64_t n = MIN((int64_t)INITIAL_CHUNK, to.end - at);
        initial_values(e, p, seed, at, n, values);
        engine_store(to.data, e->stage->state.dtype, at - to.begin, values, n);
        for (int64_t i = 0; i < n; i++) {
            uint16_t high;
            if (at + i >= low.begin && at + i < low.end)
                master_split((float)values[i], &high, (uint16_t *)low.data + at + i - low.begin);
        }
    }
    return true;
}

static void set_i32(struct engine *e, int entry, int64_t number) {
    if (entry != NONE)
        *(int32_t *)engine_state(e, entry) = (int32_t)number;
}

void engine_constants(struct engine *e) {
    const struct stage_state *s = &e->stage->state;
    const struct parallel *plan = e->parallel;
    e->last = NULL;
    unnamed_file_forget(&e->file); // the pages that the host has touched
    for (int r = 0; r < ROPES; r++) {
        if (s->model.rope[r] == NONE)
            continue;
        const struct state_entry *rope = &s->table.entries.item[s->model.rope[r]];
        model_fill_rope(e->model, r, rope->dim[0], s->model.length, rope->dtype, engine_state(e, s->model.rope[r]));
    }
    set_i32(e, s->model.vocab_first, parallel_vocabulary_index(plan, e->member.rank) * plan->split.vocab_size);
    const struct engine_rows own = engine_rows(e, e->programs.item[0].compiled);
    set_i32(e, s->model.first_position, own.part * own.places.rows);
    if (s->model.own_first != NONE) {
        const int unit = s->local.parameters.item[parameter_embedding(&s->local)].unit;
        set_i32(e, s->model.own_first, shard_index(e, unit) * (e->model->padded_vocab_size / shard_count(e, unit)));
    }
    set_i32(e, s->model.heads_end,
            model_split_heads(&plan->split, e->model, mesh_index(&plan->mesh, e->member.rank, AXES_TENSOR)) *
                e->model->head_dim);
    for (int u = 0; s->trains && u < s->units.units; u++) {
        if (s->optimizer.decayed[u] == NONE)
            continue;
        int64_t count = s->units.count[u] / shard_count(e, u);
        int64_t decayed = s->units.decayed[u] - count * shard_index(e, u);
        *(double *)engine_state(e, s->optimizer.decayed[u]) = (double)MAX(0, MIN(decayed, count));
    }
}

// Zeroes an arena, which takes as long as the system needs to provide its pages. Of one in a file few are in memory at
// a time.
static bool zero_arena(char *arena, int64_t bytes, const struct unnamed_file *file, const atomic_bool *stop) {
    for (int64_t at = 0; at < bytes; at += ZEROED_CHUNK) {
        if (engine_asked(stop))
            return false;
        memset(arena + at, 0, (size_t)MIN(bytes - at, (int64_t)ZEROED_CHUNK));
        if (file)
            unnamed_file_forget(file);
    }
    return true;
}

bool engine_initialise(struct engine *e, uint64_t seed, const atomic_bool *stop) {
    bool all = zero_arena(e->state, stage_state_bytes(e->stage, SPACE_DEVICE), NULL, stop) &&
               zero_arena(e->file.map, stage_state_bytes(e->stage, SPACE_FILE), &e->file, stop);
    for (size_t i = 0; i < e->local.parameters.count && all; i++)
        all = initialise_parameter(e, i, seed, stop);
    engine_constants(e);
    return all;
}

// ---- steps

// Checks that the program may run now, after what began last and beside what is under way.
static void engine_turn_to(struct engine *e, const struct compiled *compiled) {
    const enum program_kind kind = compiled->spec.kind;
    CHECK(!e->last || program_may_follow(e->last->spec.kind, kind));
    CHECK(!e->shown || program_may_follow(e->shown->spec.kind, kind));
    for (size_t i = 0; i < e->programs.count; i++) {
        struct engine_program *p = &e->programs.item[i];
        CHECK(!p->under_way || program_may_run_beside(kind, p->compiled->spec.kind));
        p->runs += p->compiled == compiled;
    }
    e->last = compiled;
}

trireme_status engine_run(struct engine *e, const struct engine_program *p, struct trace *trace, trireme_error *error) {
    TRY(reserve_check(error));
    engine_turn_to(e, p->compiled);
    return executor_run(p->executor, trace, error);
}

static void *run_beside(void *argument) {
    struct engine_program *p = argument;
    p->status = executor_run(p->executor, p->trace, &p->error);
    return NULL;
}

trireme_status engine_begin(struct engine *e, struct engine_program *p, struct trace *trace, trireme_error *error) {
    CHECK(p->streams);
    engine_turn_to(e, p->compiled);
    p->trace = trace;
    TRY(thread_start(&p->thread, run_beside, p, "a program that runs beside others", error));
    p->under_way = true;
    return TRIREME_OK;
}

trireme_status engine_end(struct engine_program *p, trireme_error *error) {
    CHECK(p->under_way);
    pthread_join(p->thread, NULL);
    p->under_way = false;
    if (p->status != TRIREME_OK)
        *error = p->error;
    return p->status;
}

void engine_before_update(struct engine *e, trireme_status (*call)(void *user, trireme_error *error), void *user) {
    for (size_t i = 0; i < e->programs.count; i++)
        executor_before_update(e->programs.item[i].executor, call, user);
}

void engine_patience(const struct engine *e, axis_set axes, int64_t times) {
    streams_patience(e->streams, axes, times);
    for (size_t i = 0; i < e->programs.count; i++)
        if (e->programs.item[i].streams)
            streams_patience(e->programs.item[i].streams, axes, times);
}

static double result_at(const struct engine_program *p, int buffer) {
    return *(const double *)executor_address(p->executor, buffer, 0);
}

trireme_status engine_step(struct engine *e, double lr, struct trace *trace, struct engine_result *out,
                           trireme_error *error) {
    const struct engine_program *p = engine_find(e, PROGRAM_TRAIN);
    const struct compiled *c = p->compiled;
    *(double *)executor_address(p->executor, c->lr, 0) = lr;
    TRY(engine_run(e, p, trace, error));
    *out = (struct engine_result){.loss = result_at(p, c->loss),
                                  .count = result_at(p, c->count),
                                  .grad_norm = result_at(p, c->outputs.norm),
                                  .finite = *(const int32_t *)executor_address(p->executor, c->outputs.finite, 0) != 0};
    return TRIREME_OK;
}

trireme_status engine_evaluate(struct engine *e, struct engine_result *out, trireme_error *error) {
    const struct engine_program *p = engine_find(e, PROGRAM_EVALUATE);
    TRY(engine_run(e, p, NULL, error));
    *out = (struct engine_result){
        .loss = result_at(p, p->compiled->loss), .count = result_at(p, p->compiled->count), .finite = true};
    return TRIREME_OK;
}
