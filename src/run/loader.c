#include "run/loader.h"

#include "base/clock.h"
#include "base/parallel_for.h"
#include "base/region.h"
#include "comm/gate.h"
#include "launch/ranks.h"

enum loader_input { INPUT_TOKENS, INPUT_TARGETS, INPUT_STARTS, INPUT_POSITIONS, INPUTS };

// A batch that has been read, and waits for its program to end the run with the one before.
struct staged {
    const struct engine_program *program; // NULL: the engine has none for this split
    int32_t *values;                      // [microbatches][INPUTS][each]
    int64_t each;
    struct sampler_counts counts;
    trireme_error error; // with which reading has failed; else its status is OK
};

struct loader {
    struct sampler samplers[2]; // by enum sampler_split
    const struct engine *engine;
    struct communicator *control, *island;
    const atomic_bool *stop;
    bool counts_memory;
    struct staged staged[2]; // by enum sampler_split
    // What was asked for; written before `asked` changes.
    enum sampler_split split;
    int64_t batch;
    enum loader_with with;
    bool ending;
    // What has come of it; written before `done` changes.
    struct control sums;
    trireme_status status;
    trireme_error error;
    struct gate asked, done; // count calls
    _Atomic int64_t wanted;  // since when the rank waits for the call (communicator_wanted); 0 before
    pthread_t thread;
};

static int32_t *staged_input(const struct staged *s, int microbatch, enum loader_input input) {
    return s->values + (microbatch * INPUTS + (int)input) * s->each;
}

double loader_memory(const struct loader *l) {
    return l->counts_memory ? (double)memory_peak() : 0;
}

static bool loader_asked(const struct loader *l) {
    return l->stop && *l->stop;
}

void loader_say(const struct loader *l, struct control *own) {
    own->stops += loader_asked(l);
    own->bytes += loader_memory(l);
}

static struct communicator *loader_agrees_over(const struct loader *l) {
    return l->with == LOADER_ALL ? l->control : l->island;
}

// ---- on the thread

static trireme_status loader_read(const struct loader *l, struct staged *s, trireme_error *error) {
    const struct batch_shape *batch = &s->program->compiled->spec.batch;
    const struct sampler *sampler = &l->samplers[l->split];
    const struct engine_rows rows = engine_rows(l->engine, s->program->compiled);
    s->counts = (struct sampler_counts){0};
    for (int m = 0; m < batch->microbatches; m++) {
        const struct sampler_batch to = {.places = rows.places,
                                         .part = rows.part,
                                         .tokens = staged_input(s, m, INPUT_TOKENS),
                                         .targets = staged_input(s, m, INPUT_TARGETS),
                                         .starts = staged_input(s, m, INPUT_STARTS),
                                         .positions = staged_input(s, m, INPUT_POSITIONS)};
        struct sampler_counts counts;
        TRY(sampler_fill(sampler, l->split, l->batch,
                         engine_first_sequence(l->engine, s->program->compiled) + m * batch->sequences,
                         batch->sequences, &to, &counts, error));
        if (rows.first > 0) // another rank counts those of the part
            continue;
        s->counts.targets += counts.targets;
        s->counts.text_bytes += counts.text_bytes;
    }
    return TRIREME_OK;
}

static void loader_work(struct loader *l) {
    struct staged *s = &l->staged[l->split];
    s->error.status = TRIREME_OK;
    if (l->batch != LOADER_NO_BATCH)
        l->sums.failures += loader_read(l, s, &s->error) != TRIREME_OK;
    loader_say(l, &l->sums);
    l->status = ranks_sum(loader_agrees_over(l), &l->sums.stops, CONTROLS, &l->error);
}

static void *loader_run(void *argument) {
    struct loader *l = argument;
    for (uint32_t call = 1;; call++) {
        gate_wait(&l->asked, call - 1, 0, 0);
        if (l->ending)
            return NULL;
        loader_work(l);
        atomic_store(&l->done.word, call);
        gate_wake(&l->done);
    }
}

// ---- on the rank's thread

static void loader_post(struct loader *l) {
    atomic_fetch_add(&l->asked.word, 1);
    gate_wake(&l->asked);
}

void loader_set_origin(struct loader *l, struct sampler_origin origin) {
    l->samplers[SAMPLER_TRAIN].options.origin = origin;
}

// Whether a batch takes less time to read than a thread takes to wake.
static bool loader_reads_little(const struct staged *s) {
    enum { FEW = 2048 }; // tokens
    return s->each * s->program->compiled->spec.batch.microbatches <= FEW;
}

void loader_begin(struct loader *l, enum sampler_split split, int64_t batch, enum loader_with with,
                  const struct control *own) {
    l->split = split;
    l->batch = batch;
    l->with = with;
    l->sums = *own;
    atomic_store(&l->wanted, 0);
    if (!loader_agrees_over(l) && loader_reads_little(&l->staged[split]))
        loader_work(l);
    else
        loader_post(l);
}

static void loader_await(struct loader *l) {
    const uint32_t asked = atomic_load(&l->asked.word);
    atomic_store(&l->wanted, clock_now());
    while (atomic_load(&l->done.word) != asked)
        gate_wait(&l->done, asked - 1, 0, 0);
}

trireme_status loader_end(struct loader *l, struct control *all, trireme_error *error) {
    loader_await(l);
    *all = l->sums;
    return l->status == TRIREME_OK ? TRIREME_OK : error_repeat(error, &l->error);
}

bool loader_stops(const struct loader *l, const struct control *all) {
    return all->stops > 0 || (!l->control && loader_asked(l));
}

// Copies an input of a microbatch: the rank's own rows of each sequence, or all of the starts.
static void loader_put(const struct staged *s, int microbatch, enum loader_input input, int32_t *to,
                       const struct engine_rows *own) {
    const bool all = input == INPUT_STARTS;
    const int64_t rows = all ? own->places.rows : own->rows;
    const int32_t *from = staged_input(s, microbatch, input) + (all ? 0 : own->first);
    for (int64_t k = 0; k < s->program->compiled->spec.batch.sequences; k++)
        memcpy(to + k * rows, from + k * own->places.rows, (size_t)rows * sizeof *to);
}

void loader_take(struct loader *l, enum sampler_split split, struct sampler_counts *counts) {
    const struct staged *s = &l->staged[split];
    const struct compiled *c = s->program->compiled;
    const struct engine_rows own = engine_rows(l->engine, c);
    const int buffer[INPUTS] = {[INPUT_TOKENS] = c->tokens,
                                [INPUT_TARGETS] = c->targets,
                                [INPUT_STARTS] = c->starts,
                                [INPUT_POSITIONS] = c->positions};
    for (int m = 0; m < c->spec.batch.microbatches; m++)
        for (enum loader_input i = 0; i < INPUTS; i++)
            loader_put(s, m, i, executor_address(s->program->executor, buffer[i], m), &own);
    *counts = s->counts;
}

trireme_status loader_fail(const struct loader *l, enum sampler_split split, trireme_error *error) {
    const trireme_error *own = &l->staged[split].error;
    return own->status == TRIREME_OK ? ranks_meet(l->control, error) : error_repeat(error, own);
}

// ---- creation

static void staged_create(struct staged *s, const struct engine *engine, enum program_kind kind) {
    s->program = engine_find(engine, kind);
    if (!s->program)
        return;
    const struct batch_shape *batch = &s->program->compiled->spec.batch;
    s->each = batch->sequences * engine_rows(engine, s->program->compiled).places.rows;
    s->values = mem_alloc((size_t)(batch->microbatches * INPUTS * s->each) * sizeof *s->values);
}

static void loader_release(struct loader *l) {
    for (size_t i = 0; i < ARRAY_LENGTH(l->staged); i++)
        free(l->staged[i].values);
    free(l);
}

static void loader_set_wanted(const struct loader *l, const _Atomic int64_t *since) {
    if (l->control)
        communicator_wanted(l->control, false, since);
    if (l->island)
        communicator_wanted(l->island, false, since);
}

trireme_status loader_create(struct loader **out, const struct corpus *corpus, const struct engine *engine,
                             struct communicator *control, struct communicator *island, const atomic_bool *stop,
                             trireme_error *error) {
    struct loader *l = mem_alloc(sizeof *l);
    *l = (struct loader){.engine = engine,
                         .control = control,
                         .island = island,
                         .stop = stop,
                         .counts_memory = world_place(engine->member.world) && engine->member.rank > 0,
                         .wanted = clock_now()};
    if (corpus) {
        l->samplers[SAMPLER_TRAIN] = corpus->train;
        l->samplers[SAMPLER_VALIDATION] = corpus->validation;
    }
    staged_create(&l->staged[SAMPLER_TRAIN], engine, PROGRAM_TRAIN);
    staged_create(&l->staged[SAMPLER_VALIDATION], engine, PROGRAM_EVALUATE);
    loader_set_wanted(l, &l->wanted);
    trireme_status status = thread_start(&l->thread, loader_run, l, "the thread that reads batches", error);
    if (status == TRIREME_OK)
        *out = l;
    else
        loader_release(l);
    return status;
}

void loader_free(struct loader *l) {
    if (!l)
        return;
    loader_await(l);
    l->ending = true;
    loader_post(l);
    pthread_join(l->thread, NULL);
    loader_set_wanted(l, NULL);
    loader_release(l);
}
