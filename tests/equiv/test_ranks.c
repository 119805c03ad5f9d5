// Training on any mesh is training on one rank: loss, gradients and parameters agree over several steps, in f64.
#include "support/models.h"

#include "train/ranks.h"

#include <math.h>

enum { SEQUENCES = 8, SEQ_LEN = 24, STEPS = 5 };

static const char *const COMMON[] = {"training.dtype=f64",    "training.seq_len=24", "training.global_batch_size=8",
                                     "training.threads=1",    "training.steps=5",    "optimizer.lr=1e-2",
                                     "training.max_norm=0.5", "run.directory=x"};

// What a run leaves behind, of whole parameters in double.
struct outcome {
    double loss[STEPS], norm[STEPS], evaluated;
    double **parameter, **gradient; // [parameters of the whole model]
};

struct job {
    const struct model_config *model;
    const char *const *overrides;
    size_t overrides_count;
    struct batch batch;
    struct outcome *out;
};

static void give(const struct engine *e, enum engine_values what, double **to) {
    for (size_t i = 0; i < e->local.parameters.count; i++) {
        const struct parameter *p = &e->local.parameters.item[i];
        const struct parameter *whole = &e->table.parameters.item[p->whole];
        struct engine_part part = engine_part(e, what, i);
        if (part.begin < part.end)
            parameter_give(p, whole, part.begin, part.end, part.data, to[p->whole], sizeof(double));
    }
}

static trireme_status fill(const struct engine *e, struct executor *executor, const struct compiled *c,
                           const struct batch *b) {
    int64_t rows = e->micro_batch_size * e->seq_len, first = engine_first_sequence(e) * e->seq_len;
    for (int m = 0; m < e->microbatches; m++) {
        int64_t at = first + m * rows;
        size_t bytes = (size_t)rows * sizeof(int32_t);
        memcpy(executor_address(executor, c->tokens, m), b->tokens + at, bytes);
        memcpy(executor_address(executor, c->targets, m), b->targets + at, bytes);
        memcpy(executor_address(executor, c->starts, m), b->starts + at, bytes);
        memcpy(executor_address(executor, c->positions, m), b->positions + at, bytes);
    }
    return TRIREME_OK;
}

static trireme_status train(void *user, const struct member *member, trireme_error *error) {
    struct job *job = user;
    struct config config;
    TRY(config_load(&config, NULL, job->overrides, job->overrides_count, error));
    struct engine e;
    trireme_status status = engine_create(&e, &config, job->model, ENGINE_TRAIN, member, error);
    if (status != TRIREME_OK) {
        config_release(&config);
        return status;
    }
    engine_initialise(&e, 7);
    for (int step = 0; step < STEPS && status == TRIREME_OK; step++) {
        struct engine_result r;
        fill(&e, e.train_executor, &e.train, &job->batch);
        status = engine_step(&e, 1e-2, NULL, &r, error);
        if (status == TRIREME_OK && (member == NULL || member->rank == 0)) {
            job->out->loss[step] = r.loss;
            job->out->norm[step] = r.grad_norm;
        }
    }
    if (status == TRIREME_OK) {
        give(&e, ENGINE_PARAMETERS, job->out->parameter);
        give(&e, ENGINE_GRADIENTS, job->out->gradient);
        struct engine_result r;
        fill(&e, e.evaluate_executor, &e.evaluate, &job->batch);
        status = engine_evaluate(&e, &r, error);
        job->out->evaluated = r.loss;
    }
    engine_release(&e);
    config_release(&config);
    return status;
}

static struct outcome outcome_create(const struct parameter_table *table) {
    struct outcome o = {0};
    o.parameter = mem_alloc(table->parameters.count * sizeof *o.parameter);
    o.gradient = mem_alloc(table->parameters.count * sizeof *o.gradient);
    for (size_t i = 0; i < table->parameters.count; i++) {
        const struct parameter *p = &table->parameters.item[i];
        o.parameter[i] = mem_alloc((size_t)(p->dim[0] * p->dim[1]) * sizeof(double));
        o.gradient[i] = mem_alloc((size_t)(p->dim[0] * p->dim[1]) * sizeof(double));
    }
    return o;
}

static void outcome_release(struct outcome *o, size_t parameters) {
    for (size_t i = 0; i < parameters; i++) {
        free(o->parameter[i]);
        free(o->gradient[i]);
    }
    free(o->parameter);
    free(o->gradient);
}

static void run(const struct model_config *model, const char *mesh, int ranks, struct outcome *out) {
    const char *overrides[32];
    size_t count = 0;
    for (; count < ARRAY_LENGTH(COMMON); count++)
        overrides[count] = COMMON[count];
    char *text = mem_strdup(mesh), *save = NULL;
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save))
        overrides[count++] = word;
    struct job job = {model, overrides, count, batch_create(SEQUENCES, SEQ_LEN, model->vocab_size, 3), out};
    trireme_error error = {0};
    trireme_status status = ranks > 1 ? ranks_run(ranks, 20, train, &job, &error) : train(&job, NULL, &error);
    if (status != TRIREME_OK)
        fail_msg("%s: %s", mesh, error.message);
    batch_release(&job.batch);
    free(text);
}

static double worst(const struct parameter_table *table, double **a, double **b, double floor, const char **name) {
    double largest = 0;
    for (size_t i = 0; i < table->parameters.count; i++) {
        const struct parameter *p = &table->parameters.item[i];
        double apart = 0, most = floor;
        for (int64_t k = 0; k < parameter_rows(p) * p->dim[1]; k++) {
            double d = fabs(a[i][k] - b[i][k]);
            apart = d > apart || d != d ? d : apart;
            most = fmax(most, fabs(b[i][k]));
        }
        if (!(apart / most <= largest)) {
            largest = apart / most;
            *name = p->name;
        }
    }
    return largest;
}

static double rms(const struct parameter_table *table, double **a) {
    double sum = 0, count = 0;
    for (size_t i = 0; i < table->parameters.count; i++) {
        const struct parameter *p = &table->parameters.item[i];
        for (int64_t k = 0; k < parameter_rows(p) * p->dim[1]; k++, count++)
            sum += a[i][k] * a[i][k];
    }
    return sqrt(sum / count);
}

static void check(const char *name, const struct model_config *model, const char *mesh, int ranks) {
    struct parameter_table table;
    parameter_table_create(&table, model);
    struct outcome one = outcome_create(&table), many = outcome_create(&table);
    run(model, "", 1, &one);
    run(model, mesh, ranks, &many);
    const char *where[2] = {"", ""};
    double gradients = worst(&table, many.gradient, one.gradient, rms(&table, one.gradient), &where[0]);
    double parameters = worst(&table, many.parameter, one.parameter, 1e-2, &where[1]);
    double loss = 0;
    for (int i = 0; i < STEPS; i++)
        loss = fmax(loss, fabs(many.loss[i] - one.loss[i]) + fabs(many.norm[i] - one.norm[i]));
    loss = fmax(loss, fabs(many.evaluated - one.evaluated));
    bool good = gradients <= 1e-9 && parameters <= 1e-9 && loss <= 1e-9;
    printf("%-10s %-60s loss %.1e gradients %.1e (%s) parameters %.1e (%s) %s\n", name, mesh, loss, gradients,
           gradients > 1e-9 ? where[0] : "", parameters, parameters > 1e-9 ? where[1] : "", good ? "" : "DIFFERS");
    outcome_release(&one, table.parameters.count);
    outcome_release(&many, table.parameters.count);
    parameter_table_release(&table);
}

int main(int argc, char **argv) {
    struct model_config model;
    int which = argc > 1 ? atoi(argv[1]) : SMALL_LLAMA;
    small_config(&model, small_models[which].json);
    check(small_models[which].name, &model, argc > 2 ? argv[2] : "parallelism.data_parallel_replicate_degree=2",
          argc > 3 ? atoi(argv[3]) : 2);
    return 0;
}
