#include "train/engine.h"

#include "kernels/bf16.h"

#include <sched.h>

int engine_threads(const struct config *config) {
    if (config->training.threads > 0)
        return (int)config->training.threads;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    return MAX(1, CPU_COUNT(&set));
}

enum dtype engine_dtype(const struct config *config) {
    static const enum dtype DTYPES[] = {
        [CONFIG_DTYPE_F32] = DTYPE_F32, [CONFIG_DTYPE_BF16] = DTYPE_BF16, [CONFIG_DTYPE_F64] = DTYPE_F64};
    return DTYPES[config->training.dtype];
}

static enum recompute recompute_mode(const struct config *config) {
    static const enum recompute MODES[] = {[CONFIG_RECOMPUTE_NONE] = RECOMPUTE_NONE,
                                           [CONFIG_RECOMPUTE_SELECTIVE] = RECOMPUTE_SELECTIVE,
                                           [CONFIG_RECOMPUTE_FULL] = RECOMPUTE_FULL};
    return MODES[config->activation_checkpoint.mode];
}

trireme_status engine_compile(struct engine *e, const struct config *config, const struct model_config *model,
                              enum engine_use use, trireme_error *error) {
    const struct config_training *t = &config->training;
    if (t->global_batch_size % t->micro_batch_size)
        return config_refuse(config, "training.micro_batch_size", error,
                             "which does not divide training.global_batch_size %lld", (long long)t->global_batch_size);
    *e = (struct engine){.model = *model,
                         .optimizer = optimizer_config_resolve(config),
                         .dtype = engine_dtype(config),
                         .kernels = t->kernels == CONFIG_KERNELS_REFERENCE ? KERNELS_REFERENCE : KERNELS_FAST,
                         .threads = engine_threads(config),
                         .micro_batch_size = t->micro_batch_size,
                         .seq_len = t->seq_len,
                         .microbatches = (int)(t->global_batch_size / t->micro_batch_size),
                         .trains = use == ENGINE_TRAIN};
    e->ops = op_table_create();
    parameter_table_create(&e->table, model);
    struct compile_options options = {.model = &e->model,
                                      .table = &e->table,
                                      .ops = e->ops,
                                      .dtype = e->dtype,
                                      .micro_batch_size = e->micro_batch_size,
                                      .seq_len = e->seq_len,
                                      .microbatches = e->microbatches,
                                      .logits_rows = t->logits_rows,
                                      .recompute = recompute_mode(config),
                                      .optimizer = e->optimizer,
                                      .kernels = e->kernels,
                                      .threads = e->threads};
    trireme_status status = TRIREME_OK;
    if (e->trains)
        status = compile_train(&e->train, &options, error);
    if (status == TRIREME_OK)
        status = compile_evaluate(&e->evaluate, &options, error);
    if (status != TRIREME_OK)
        engine_release(e);
    return status;
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

void engine_describe_memory(const struct engine *e, struct text *out) {
    const struct program *p = &main_program(e)->program;
    text_add(out, "state %.3f GB", 1e-9 * (double)p->state_bytes);
    int largest = largest_state_buffer(p);
    if (largest != NONE) {
        const struct buffer *b = &p->buffers.item[largest];
        text_add(out, ", the largest %s %.3f GB", b->name, 1e-9 * (double)buffer_bytes(b));
    }
    text_add(out, "; step %.3f GB, the largest at its peak", 1e-9 * (double)p->step_bytes);
    struct memory_profile profile;
    program_memory_profile(p, e->ops, &profile);
    for (size_t i = 0; i < MIN(profile.at_peak.count, (size_t)3); i++) {
        const struct buffer *b = &p->buffers.item[profile.at_peak.item[i]];
        text_add(out, "%s %s %.3f GB", i ? "," : "", b->name, 1e-9 * (double)buffer_bytes(b));
    }
    memory_profile_release(&profile);
}

// What may help: of the state only another type or model, of the step what makes it shorter.
static const char *memory_advice(const struct engine *e, size_t state, size_t available) {
    if (!e->trains)
        return state > available ? "take a smaller model" : "lower training.micro_batch_size or training.seq_len";
    if (state > available)
        return e->dtype == DTYPE_BF16 ? "take a smaller model" : "set training.dtype to bf16, or take a smaller model";
    return "lower training.micro_batch_size or training.seq_len, or set activation_checkpoint.mode";
}

static trireme_status take_memory(struct engine *e, trireme_error *error) {
    const struct program *p = &main_program(e)->program;
    size_t state = (size_t)p->state_bytes, step = (size_t)MAX(p->step_bytes, e->evaluate.program.step_bytes);
    size_t available = memory_available();
    if (state + step > available) {
        struct text what = {0};
        engine_describe_memory(e, &what);
        error_set(error, TRIREME_ERROR_MEMORY,
                  "the %s does not fit: it needs %.3f GB and %.3f GB are available (%s); %s",
                  e->trains ? "training step" : "evaluation", 1e-9 * (double)(state + step), 1e-9 * (double)available,
                  what.text, memory_advice(e, state, available));
        text_release(&what);
        return TRIREME_ERROR_MEMORY;
    }
    TRY(region_create(&e->state, state, false, "the state of the run", error));
    return region_create(&e->step, step, false, "the memory of a step", error);
}

trireme_status engine_create(struct engine *e, const struct config *config, const struct model_config *model,
                             enum engine_use use, trireme_error *error) {
    TRY(engine_compile(e, config, model, use, error));
    trireme_status status = take_memory(e, error);
    if (status == TRIREME_OK && e->trains)
        status = executor_create(&e->train_executor, &e->train.program, e->ops, e->kernels, e->threads, e->state.base,
                                 e->step.base, error);
    if (status == TRIREME_OK)
        status = executor_create(&e->evaluate_executor, &e->evaluate.program, e->ops, e->kernels, e->threads,
                                 e->state.base, e->step.base, error);
    if (status != TRIREME_OK)
        engine_release(e);
    return status;
}

void engine_release(struct engine *e) {
    executor_free(e->train_executor);
    executor_free(e->evaluate_executor);
    region_release(&e->state);
    region_release(&e->step);
    compiled_release(&e->train);
    compiled_release(&e->evaluate);
    parameter_table_release(&e->table);
    free(e->ops);
    *e = (struct engine){0};
}

void *engine_address(const struct engine *e, int buffer, int microbatch) {
    return executor_address(e->trains ? e->train_executor : e->evaluate_executor, buffer, microbatch);
}

// ---- values

enum { INITIAL_CHUNK = 4096 };

static void store(void *out, uint16_t *remainder, enum dtype dtype, int64_t at, const double *values, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        switch (dtype) {
        case DTYPE_F64:
            ((double *)out)[at + i] = values[i];
            break;
        case DTYPE_BF16: {
            uint16_t low;
            master_split((float)values[i], (uint16_t *)out + at + i, &low);
            if (remainder)
                remainder[at + i] = low;
            break;
        }
        default:
            ((float *)out)[at + i] = (float)values[i];
        }
}

static void initialise_parameter(struct engine *e, int number, uint64_t seed) {
    const struct parameter *p = &e->table.parameters.item[number];
    const struct compiled *c = main_program(e);
    const struct program *program = &c->program;
    int buffer = c->model.parameter[number];
    uint16_t *remainder = NULL;
    if (e->trains && c->optimizer.remainder)
        remainder =
            (uint16_t *)engine_address(e, c->optimizer.remainder[p->unit], 0) + program_root_offset(program, buffer);
    int64_t count = buffer_count(&program->buffers.item[buffer]);
    for (int64_t at = 0; at < count; at += INITIAL_CHUNK) {
        double values[INITIAL_CHUNK];
        int64_t n = MIN((int64_t)INITIAL_CHUNK, count - at);
        parameter_initial_range(p, seed, at, n, values);
        store(engine_address(e, buffer, 0), remainder, e->dtype, at, values, n);
    }
}

void engine_constants(struct engine *e) {
    const struct compiled *c = main_program(e);
    if (c->model.rope != NONE) {
        const struct buffer *b = &c->program.buffers.item[c->model.rope];
        model_fill_rope(&e->model, b->dim[0], b->dtype, engine_address(e, c->model.rope, 0));
    }
    for (int u = 0; e->trains && u < c->model.units; u++)
        *(double *)engine_address(e, c->optimizer.decayed[u], 0) = (double)c->model.decayed[u];
}

void engine_initialise(struct engine *e, uint64_t seed) {
    memset(e->state.base, 0, (size_t)main_program(e)->program.state_bytes);
    for (int i = 0; i < (int)e->table.parameters.count; i++)
        initialise_parameter(e, i, seed);
    engine_constants(e);
}

// ---- steps

struct engine_result engine_step(struct engine *e, double lr, struct trace *trace) {
    const struct compiled *c = &e->train;
    *(double *)executor_address(e->train_executor, c->lr, 0) = lr;
    executor_run(e->train_executor, trace);
    return (struct engine_result){
        .loss = *(const double *)executor_address(e->train_executor, c->loss, 0),
        .count = *(const double *)executor_address(e->train_executor, c->count, 0),
        .grad_norm = *(const double *)executor_address(e->train_executor, c->outputs.norm, 0),
        .clip_factor = *(const double *)executor_address(e->train_executor, c->outputs.factor, 0),
        .finite = *(const int32_t *)executor_address(e->train_executor, c->outputs.finite, 0) != 0};
}

struct engine_result engine_evaluate(struct engine *e) {
    const struct compiled *c = &e->evaluate;
    executor_run(e->evaluate_executor, NULL);
    return (struct engine_result){.loss = *(const double *)executor_address(e->evaluate_executor, c->loss, 0),
                                  .count = *(const double *)executor_address(e->evaluate_executor, c->count, 0),
                                  .finite = true};
}
