#include "support/meshes_internal.h"

#include "base/bf16.h"
#include "base/rng.h"
#include "engine/outer_step.h"
#include "model/lora.h"
#include "support/team.h"

#include <math.h>
#include <pthread.h>
#include <unistd.h>

#define RATE 1e-2
enum { DEADLINE = 120 }; // seconds

// ---- batches

static struct batch make_batch(struct shape shape, int64_t vocab_size, uint64_t seed) {
    struct batch b = batch_create(shape.sequences, shape.seq_len, vocab_size, seed);
    for (int i = 6 * shape.seq_len; i < 9 * shape.seq_len; i++)
        b.targets[i] = -1;
    return b;
}

// ---- one run

// Of one rank: all steps' gradients and parameters, whole.
struct reference {
    char *key;
    double loss[MESH_STEPS + 1], norm[MESH_STEPS]; // the last loss is that of the evaluation
    double rms[MESH_STEPS];
    double **value[MESH_STEPS][2]; // [gradient, parameter][parameters of the model]
    double *largest[MESH_STEPS][2];
    size_t parameters;
};

struct job {
    struct model_config model;
    const struct spec *spec;
    const char *schedule; // path, where it is a file
    struct config config;
    struct parallel plan;
    struct parameter_table whole;
    double **initial; // [parameters of the model]
    struct shape shape;
    struct batch batch[MESH_STEPS];
    int steps;
    double *losses;                  // [steps] of rank 0, or NULL
    struct reference *record;        // one rank: to be filled, or NULL
    const struct reference *against; // or NULL
    char *state[MESH_RANKS];         // where wanted: each rank's at the end, losses and norms in front of it
    size_t state_bytes[MESH_RANKS];
    bool keep_state;
    pthread_mutex_t mutex;
    struct distance distance;
    bool **held[2]; // elements that some rank has compared
    // Of several islands: the loss and the number of targets of each.
    double island[MESH_STEPS + 1][MESH_RANKS][2];
};

static bool is_plain(const struct spec *spec) {
    return spec->plain || spec->island > 1;
}

static trireme_status load_config(const struct job *job, struct config *config, trireme_error *error) {
    const struct spec *s = job->spec;
    const char *all[40];
    size_t n = 0;
#define SET(...) (CHECK(n < ARRAY_LENGTH(all)), all[n++] = mem_printf(__VA_ARGS__))
    SET("run.directory=unused");
    SET("training.threads=1");
    SET("training.dtype=%s", text_or(s->dtype, "f64"));
    SET("training.seq_len=%d", job->shape.seq_len);
    SET("training.global_batch_size=%d", job->shape.sequences);
    SET("training.micro_batch_size=%d", spec_micro_batch_size(s, job->shape));
    SET("training.logits_rows=%d", s->logits_rows);
    SET("training.max_norm=%s", is_plain(s) ? "0" : "0.1");
    SET("optimizer.name=%s", is_plain(s) ? "sgd" : text_or(s->optimizer, "adamw"));
    if (is_plain(s))
        SET("optimizer.momentum=0");
    if (s->island > 1) {
        SET("parallelism.island_degree=%d", s->island);
        SET("outer.method=local_sgd");
    }
    // Some gradients are zero except for rounding: a smaller eps would show only the rounding.
    SET("optimizer.eps=1e-4");
    if (s->freeze)
        SET("training.freeze=%s", s->freeze);
    SET("activation_checkpoint.mode=%s", text_or(s->recompute, "none"));
    SET("activation_checkpoint.full_layers=%s", text_or(s->full_layers, ""));
    SET("activation_checkpoint.selective_layers=%s", text_or(s->selective_layers, ""));
    SET("parallelism.data_parallel_replicate_degree=%d", degree(s->dp));
    SET("parallelism.data_parallel_shard_degree=%d", degree(s->fsdp));
    SET("parallelism.context_parallel_degree=%d", degree(s->cp));
    if (s->ring || s->exchange)
        SET("parallelism.context_parallel_method=%s", !s->ring      ? "ulysses"
                                                      : s->exchange ? "hybrid"
                                                                    : text_or(s->way, "ring"));
    if (s->ring)
        SET("parallelism.context_parallel_layout=%s", s->ring);
    if (s->inner_ring)
        SET("parallelism.context_parallel_inner_degree=%d", s->inner_ring);
    if (s->ring && s->exchange)
        SET("parallelism.context_parallel_ulysses_degree=%d", s->exchange);
    if (s->ring && spec_layout(s) > 0)
        SET("parallelism.context_parallel_stripe=%d", (int)spec_layout(s));
    SET("parallelism.tensor_parallel_degree=%d", degree(s->tp));
    SET("parallelism.pipeline_parallel_degree=%d", degree(s->pp));
    SET("parallelism.sequence_parallel=%s", s->no_sequence ? "false" : "true");
    SET("parallelism.tensor_parallel_overlap=%s", s->overlap ? "true" : "false");
    SET("parallelism.reduce_dtype=%s", text_or(s->reduce, "f32"));
    if (s->prefetch)
        SET("parallelism.data_parallel_prefetch=%d", MAX(s->prefetch, 0));
    if (s->unit_layers)
        SET("parallelism.data_parallel_unit_layers=%d", MAX(s->unit_layers, 0));
    if (s->zero || s->cp > 1)
        SET("parallelism.zero_stage=%d", s->zero);
    if (s->pp > 1 && s->schedule && strcmp(s->schedule, AUTO_OF_TWO) == 0) {
        SET("parallelism.pipeline_parallel_schedule=%s", "auto");
        SET("parallelism.pipeline_parallel_chunks=%d", spec_chunks(s));
    } else if (s->pp > 1) {
        SET("parallelism.pipeline_parallel_schedule=%s", job->schedule ? job->schedule : text_or(s->schedule, "1f1b"));
    }
    if (s->vocabulary)
        SET("parallelism.vocabulary_parallel=true");
    if (*s->layout)
        SET("parallelism.pipeline_parallel_layout=%s", s->layout);
#undef SET
    trireme_status status = config_load(config, NULL, all, n, error);
    for (size_t i = 0; i < n; i++)
        free((char *)all[i]);
    return status;
}

// Values that hide nothing, as engine_scatter's.
static double **scattered(const struct parameter_table *table, uint64_t seed) {
    double **out = mem_alloc(table->parameters.count * sizeof *out);
    for (size_t i = 0; i < table->parameters.count; i++) {
        const struct parameter *p = &table->parameters.item[i];
        out[i] = mem_alloc((size_t)parameter_count(p) * sizeof(double));
        double width = p->init == INIT_NORMAL ? 0.6 : 0.4, centre = p->init == INIT_ONE ? 1 : 0;
        for (int64_t j = 0; j < parameter_rows(p) * p->dim[1]; j++)
            out[i][j] = centre + width * (rng_uniform(seed, rng_stream(p->name), (uint64_t)j) - 0.5);
    }
    return out;
}

void mesh_set(struct engine *e, double *const *values_of) {
    for (size_t i = 0; i < e->local.parameters.count; i++) {
        const struct parameter *p = &e->local.parameters.item[i], *whole = &e->table->parameters.item[p->whole];
        double *values = mem_alloc((size_t)parameter_count(p) * sizeof *values);
        parameter_take(p, whole, (struct parameter_span){0, parameter_count(whole)}, values_of[p->whole],
                       (struct parameter_span){0, parameter_count(p)}, values, sizeof *values);
        struct engine_part to = engine_part(e, ENGINE_PARAMETERS, i), low = engine_part(e, ENGINE_REMAINDERS, i);
        for (int64_t k = to.begin; k < to.end; k++)
            value_store(to.data, to.dtype, k - to.begin, values[k]);
        for (int64_t k = low.begin; k < low.end; k++) {
            uint16_t high;
            master_split((float)values[k], &high, (uint16_t *)low.data + k - low.begin);
        }
        free(values);
    }
}

static void initialise(const struct job *job, struct engine *e) {
    engine_initialise(e, 1, NULL);
    mesh_set(e, job->initial);
}

void mesh_fill(const struct engine *e, enum program_kind kind, const struct batch *b) {
    struct executor *executor = engine_executor(e, kind);
    const struct compiled *c = engine_compiled(e, kind);
    const struct batch_shape *shape = &c->spec.batch;
    const struct engine_rows own = engine_rows(e, c);
    const int buffer[] = {c->tokens, c->targets, c->starts, c->positions};
    const int32_t *const from[] = {b->tokens, b->targets, b->starts, b->positions};
    for (int64_t s = 0; s < shape->microbatches * shape->sequences; s++)
        for (size_t i = 0; i < ARRAY_LENGTH(buffer); i++) {
            int32_t *to = executor_address(executor, buffer[i], (int)(s / shape->sequences));
            const bool all = buffer[i] == c->starts;
            const int64_t first = all ? 0 : own.first, rows = all ? own.places.rows : own.rows;
            to += s % shape->sequences * rows;
            for (int64_t row = 0; row < rows; row++) {
                const int64_t place = place_of(&own.places, own.part, first + row);
                const int32_t padding[] = {0, -1, (int32_t)place, 0};
                to[row] = place < shape->seq_len ? from[i][(engine_first_sequence(e, c) + s) * shape->seq_len + place]
                                                 : padding[i];
            }
        }
}

static const enum engine_values VALUES[2] = {ENGINE_GRADIENTS, ENGINE_PARAMETERS};

static void record(const struct job *job, const struct engine *e, int step, const struct engine_result *result) {
    struct reference *r = job->record;
    r->loss[step] = result->loss;
    r->norm[step] = result->grad_norm;
    double sum = 0, count = 0;
    for (int v = 0; v < 2; v++) {
        r->value[step][v] = mem_alloc(r->parameters * sizeof(double *));
        r->largest[step][v] = mem_alloc(r->parameters * sizeof(double));
        for (size_t local = 0; local < r->parameters; local++) {
            const struct parameter *p = &e->local.parameters.item[local];
            const int i = p->whole;
            struct engine_part from = engine_part(e, VALUES[v], local);
            r->value[step][v][i] = mem_alloc((size_t)parameter_count(p) * sizeof(double));
            for (int64_t k = 0; from.data && k < parameter_count(p); k++) {
                double value = value_at(from.data, from.dtype, k);
                r->value[step][v][i][k] = value;
                r->largest[step][v][i] = fmax(r->largest[step][v][i], fabs(value));
                if (v == 0 && k < parameter_rows(&job->whole.parameters.item[i]) * p->dim[1]) {
                    sum += value * value;
                    count++;
                }
            }
        }
    }
    r->rms[step] = sqrt(sum / count);
}

static void note(double distance, const char *name, double *worst, char *where) {
    if (distance <= *worst || *worst != *worst) // not a number is worst of all
        return;
    *worst = distance;
    if (where)
        snprintf(where, sizeof((struct distance *)0)->where[0], "%s", name);
}

static double relative(double a, double b) {
    return fabs(a - b) / fabs(b);
}

// An island's loss is compared together with those of all others (compare_islands).
static void note_loss(struct job *job, const struct engine *e, int step, const struct engine_result *result) {
    double *of = job->island[step][mesh_index(&e->parallel->mesh, e->member.rank, AXES_ISLAND)];
    of[0] = result->count > 0 ? result->loss : 0;
    of[1] = result->count;
    if (job->spec->island <= 1)
        note(relative(result->loss, job->against->loss[step]), "", &job->distance.loss, NULL);
}

static void compare_islands(struct job *job) {
    for (int step = 0; step <= MESH_STEPS && job->spec->island > 1; step++) {
        double sum = 0, targets = 0;
        for (int i = 0; i < job->spec->island; i++) {
            sum += job->island[step][i][0] * job->island[step][i][1];
            targets += job->island[step][i][1];
        }
        note(relative(sum / targets, job->against->loss[step]), "", &job->distance.loss, NULL);
    }
}

// What this rank holds of the values against the reference's, padding against zero.
static void compare(struct job *job, const struct engine *e, int step, const struct engine_result *result) {
    const struct reference *r = job->against;
    pthread_mutex_lock(&job->mutex);
    const bool islands = job->spec->island > 1;
    note_loss(job, e, step, result);
    if (!islands)
        note(relative(result->grad_norm, r->norm[step]), "", &job->distance.loss, NULL);
    for (int v = islands; v < 2; v++)
        for (size_t i = 0; i < e->local.parameters.count; i++) {
            const struct parameter *p = &e->local.parameters.item[i], *whole = &e->table->parameters.item[p->whole];
            struct engine_part part = engine_part(e, VALUES[v], i);
            if (part.begin >= part.end)
                continue;
            double *expected = mem_alloc((size_t)(part.end - part.begin) * sizeof *expected), apart = 0;
            parameter_take(p, whole, (struct parameter_span){0, parameter_count(whole)}, r->value[step][v][p->whole],
                           (struct parameter_span){part.begin, part.end}, expected, sizeof *expected);
            for (int64_t k = 0; k < part.end - part.begin; k++)
                apart = farther(apart, fabs(value_at(part.data, part.dtype, k) - expected[k]));
            double floor = v == 0 ? r->rms[step] : RATE;
            note(apart / fmax(r->largest[step][v][p->whole], floor), p->name,
                 v == 0 ? &job->distance.gradient : &job->distance.parameter, job->distance.where[v]);
            const struct parameter_window all = {0, whole->dim[0], 0, whole->dim[1]};
            struct parameter_runs runs = parameter_runs(p, (struct parameter_span){part.begin, part.end}, &all);
            for (struct parameter_run run; parameter_next(&runs, &run);)
                memset(&job->held[v][p->whole][run.window], true, (size_t)run.count);
            free(expected);
        }
    pthread_mutex_unlock(&job->mutex);
}

static trireme_status train(struct job *job, struct engine *e, trireme_error *error) {
    double results[MESH_STEPS][2] = {0};
    for (int step = 0; step < job->steps; step++) {
        struct engine_result r;
        mesh_fill(e, PROGRAM_TRAIN, &job->batch[step % MESH_STEPS]);
        TRY(engine_step(e, job->against || job->record || job->keep_state ? RATE : 3e-3, NULL, &r, error));
        if (!r.finite || !(r.grad_norm > 0 || (is_plain(job->spec) && r.count == 0)))
            FAIL(TRIREME_ERROR_PROGRAM, "step %d was not done: loss %g, norm %g", step, r.loss, r.grad_norm);
        if (job->spec->island > 1) {
            TRY(outer_step_begin(e, 0, r.count, error));
        }
        if (job->losses && e->member.rank == 0)
            job->losses[step] = r.loss;
        if (job->record)
            record(job, e, step, &r);
        if (job->against)
            compare(job, e, step, &r);
        results[step % MESH_STEPS][0] = r.loss;
        results[step % MESH_STEPS][1] = r.grad_norm;
    }
    if (job->keep_state) {
        size_t bytes = (size_t)engine_compiled(e, PROGRAM_TRAIN)->program.arena[SPACE_DEVICE].state_bytes;
        char *copy = mem_alloc(sizeof results + bytes);
        memcpy(copy, results, sizeof results);
        memcpy(copy + sizeof results, e->state, bytes);
        job->state[e->member.rank] = copy;
        job->state_bytes[e->member.rank] = sizeof results + bytes;
    }
    struct engine_result r;
    mesh_fill(e, PROGRAM_EVALUATE, &job->batch[0]);
    TRY(engine_evaluate(e, &r, error));
    if (job->record)
        job->record->loss[MESH_STEPS] = r.loss;
    if (job->against) {
        pthread_mutex_lock(&job->mutex);
        note_loss(job, e, MESH_STEPS, &r);
        pthread_mutex_unlock(&job->mutex);
    }
    return TRIREME_OK;
}

static trireme_status run_rank(void *user, const struct member *member, trireme_error *error) {
    struct job *job = user;
    struct engine e;
    TRY(engine_create(&e, &job->config, &job->model, &job->plan, TRAIN_AND_EVALUATE, member, error));
    initialise(job, &e);
    trireme_status status = train(job, &e, error);
    engine_release(&e);
    return status;
}

// ---- a job

static void job_begin(struct job *job, const struct model_config *model, const struct spec *spec, struct shape shape) {
    *job = (struct job){.model = *model, .spec = spec, .shape = shape, .steps = MESH_STEPS};
    trireme_error error;
    if (spec->lora) {
        job->model.lora = (struct lora){.rank = 3, .alpha = 6};
        CHECK(lora_set_targets(&job->model, spec->lora, &error) == TRIREME_OK);
    }
    parameter_table_create(&job->whole, &job->model);
    CHECK(parameter_table_freeze(&job->whole, text_or(spec->freeze, ""), &error) == TRIREME_OK);
    job->initial = scattered(&job->whole, 5);
    for (int i = 0; i < MESH_STEPS; i++)
        job->batch[i] = make_batch(shape, model->vocab_size, (uint64_t)(3 + i));
    pthread_mutex_init(&job->mutex, NULL);
}

// Which classes of units are sharded over which factors, as no key says yet.
static trireme_status shard_classes(struct parallel *plan, const struct spec *spec, trireme_error *error) {
    if (!spec->node)
        return TRIREME_OK;
    TRY(mesh_cut(&plan->mesh, AXES_SHARD, spec->node, error));
    for (int class = 0; class < CLASS_COUNT; class ++)
        if (spec->whole >> class & 1)
            plan->shards[class] = AXES_NONE;
        else if (spec->inner >> class & 1)
            plan->shards[class] = mesh_between(&plan->mesh, AXES_SHARD, 1, spec->node);
    if (spec->inner | spec->whole)
        plan->split.row_ranks = 1;
    return TRIREME_OK;
}

static trireme_status job_run(struct job *job, trireme_error *error) {
    int ranks = spec_ranks(job->spec);
    CHECK(ranks <= MESH_RANKS);
    char *path = spec_write_schedule(job->spec, job->shape);
    job->schedule = path;
    trireme_status status = load_config(job, &job->config, error);
    if (status == TRIREME_OK)
        status = parallel_resolve(&job->plan, &job->config, &job->model, error);
    if (status == TRIREME_OK)
        status = shard_classes(&job->plan, job->spec, error);
    if (status == TRIREME_OK)
        status = ranks > 1 ? team_ranks_run(ranks, DEADLINE, run_rank, job, error) : run_rank(job, NULL, error);
    parallel_release(&job->plan);
    config_release(&job->config);
    if (path)
        unlink(path);
    free(path);
    return status;
}

static void free_each(void *array, size_t count) {
    void **item = array;
    for (size_t i = 0; i < count; i++)
        free(item[i]);
    free(array);
}

static void job_end(struct job *job) {
    pthread_mutex_destroy(&job->mutex);
    for (int i = 0; i < MESH_STEPS; i++)
        batch_release(&job->batch[i]);
    for (int i = 0; i < MESH_RANKS; i++)
        free(job->state[i]);
    free_each(job->initial, job->whole.parameters.count);
    parameter_table_release(&job->whole);
}

// ---- what one rank does, once for each model

static VEC(struct reference) references;

static void reference_release(struct reference *r) {
    for (int step = 0; step < MESH_STEPS; step++)
        for (int v = 0; v < 2; v++) {
            if (r->value[step][v])
                free_each(r->value[step][v], r->parameters);
            free(r->largest[step][v]);
        }
    free(r->key);
}

void mesh_forget(void) {
    for (size_t i = 0; i < references.count; i++)
        reference_release(&references.item[i]);
    VEC_RELEASE(&references);
}

static trireme_status find_reference(const char *name, const struct model_config *model, const struct spec *spec,
                                     const struct reference **out, trireme_error *error) {
    struct shape shape = spec_shape(spec);
    char *key =
        mem_printf("%s/%dx%d/%s/%s%s/%s/%s", name, shape.sequences, shape.seq_len, text_or(spec->optimizer, "adamw"),
                   text_or(spec->dtype, "f64"), is_plain(spec) ? "/plain" : "", text_or(spec->freeze, "nothing frozen"),
                   text_or(spec->lora, "no adapters"));
    for (size_t i = 0; i < references.count; i++)
        if (strcmp(references.item[i].key, key) == 0) {
            free(key);
            *out = &references.item[i];
            return TRIREME_OK;
        }
    struct spec one = {.optimizer = spec->optimizer,
                       .dtype = spec->dtype,
                       .plain = is_plain(spec),
                       .freeze = spec->freeze,
                       .lora = spec->lora};
    struct job job;
    job_begin(&job, model, &one, shape);
    struct reference r = {.key = key, .parameters = job.whole.parameters.count};
    job.record = &r;
    trireme_status status = job_run(&job, error);
    for (int i = 0; i < MESH_STEPS && status == TRIREME_OK; i++)
        if (r.norm[i] <= 0.1 && !is_plain(spec))
            status = error_set(error, TRIREME_ERROR_PROGRAM, "%s: clipping is not active in step %d", name, i);
    job_end(&job);
    if (status != TRIREME_OK) {
        reference_release(&r);
        return status;
    }
    VEC_PUSH(&references, r);
    *out = &references.item[references.count - 1];
    return TRIREME_OK;
}

// What ranks that are processes found, each by itself.
static trireme_status share(struct job *job, trireme_error *error) {
    double *worst[] = {&job->distance.loss, &job->distance.gradient, &job->distance.parameter};
    for (size_t i = 0; i < ARRAY_LENGTH(worst); i++)
        TRY(team_most(worst[i], 1, error));
    for (int v = 0; v < 2; v++)
        for (size_t i = 0; i < job->whole.parameters.count; i++) {
            int64_t count = parameter_count(&job->whole.parameters.item[i]);
            double *held = mem_alloc((size_t)count * sizeof *held);
            for (int64_t k = 0; k < count; k++)
                held[k] = job->held[v][i][k];
            trireme_status status = team_most(held, count, error);
            for (int64_t k = 0; k < count; k++)
                job->held[v][i][k] = held[k] > 0;
            free(held);
            TRY(status);
        }
    return TRIREME_OK;
}

static void check_held(struct job *job) {
    for (int v = job->spec->island > 1; v < 2; v++)
        for (size_t i = 0; i < job->whole.parameters.count; i++) {
            const struct parameter *p = &job->whole.parameters.item[i];
            const bool none = v == 0 && p->frozen; // it has no gradient
            for (int64_t k = 0; k < parameter_rows(p) * p->dim[1] && !none; k++)
                if (!job->held[v][i][k]) {
                    note(INFINITY, p->name, v == 0 ? &job->distance.gradient : &job->distance.parameter,
                         job->distance.where[v]);
                    break;
                }
        }
}

trireme_status mesh_compare(const char *name, const struct model_config *model, const struct spec *spec,
                            struct distance *out, trireme_error *error) {
    struct job job;
    const struct reference *reference;
    TRY(find_reference(name, model, spec, &reference, error));
    job_begin(&job, model, spec, spec_shape(spec));
    job.against = reference;
    for (int v = 0; v < 2; v++) {
        job.held[v] = mem_alloc(job.whole.parameters.count * sizeof(bool *));
        for (size_t i = 0; i < job.whole.parameters.count; i++)
            job.held[v][i] = mem_alloc((size_t)parameter_count(&job.whole.parameters.item[i]));
    }
    trireme_status status = job_run(&job, error);
    if (status == TRIREME_OK && team_processes())
        status = share(&job, error);
    if (status == TRIREME_OK)
        check_held(&job);
    if (status == TRIREME_OK && !team_processes())
        compare_islands(&job);
    *out = job.distance;
    for (int v = 0; v < 2; v++)
        free_each(job.held[v], job.whole.parameters.count);
    job_end(&job);
    return status;
}

trireme_status mesh_losses(const struct model_config *model, const struct spec *spec, int steps, double *losses,
                           trireme_error *error) {
    struct job job;
    job_begin(&job, model, spec, spec_shape(spec));
    job.steps = steps;
    job.losses = losses;
    trireme_status status = job_run(&job, error);
    job_end(&job);
    return status;
}

trireme_status mesh_repeats(const struct model_config *model, const struct spec *spec, bool *same,
                            trireme_error *error) {
    struct job job[2];
    trireme_status status = TRIREME_OK;
    for (int i = 0; i < 2; i++) {
        job_begin(&job[i], model, spec, spec_shape(spec));
        job[i].keep_state = true;
        if (status == TRIREME_OK)
            status = job_run(&job[i], error);
    }
    *same = true;
    for (int r = 0; r < spec_ranks(spec) && status == TRIREME_OK; r++)
        *same = *same && job[0].state_bytes[r] == job[1].state_bytes[r] &&
                memcmp(job[0].state[r], job[1].state[r], job[0].state_bytes[r]) == 0;
    job_end(&job[0]);
    job_end(&job[1]);
    return status;
}
