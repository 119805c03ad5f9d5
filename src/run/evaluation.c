#include "run/evaluation.h"

#include "base/region.h"
#include "launch/processes.h"
#include "launch/ranks.h"
#include "run/checkpoint.h"

// What all ranks share, read only.
struct job {
    struct config config;
    const struct evaluation_watch *watch;
    const char *path;
    char *directory; // of the model
    int hold;        // directory_hold of it
    bool verified;   // its content is verified when it is found
    struct model_config model;
    struct corpus corpus;
    struct parallel plan;
    struct evaluation result;
};

// The part of one rank.
struct evaluator {
    struct job *job;
    struct engine engine;
    struct loader *loader;
    struct communicator *control; // all ranks by number; NULL with one rank
    bool leads;
};

// ---- before any rank starts

// Sets sequence length and batch size, unless the user has, to those with which the run that made the weights
// validates.
static void choose_lengths(struct config *config, const struct model_config *model, const char *directory) {
    struct config_training *t = &config->training;
    struct config run;
    bool trained = checkpoint_config(&run, directory);
    if (!config_is_set(config, "training.seq_len"))
        t->seq_len = MIN(model->max_position_embeddings, trained ? run.training.seq_len : t->seq_len);
    if (trained && !config_is_set(config, "training.global_batch_size")) {
        char batch[24];
        trireme_error never; // a run's batch size is valid
        snprintf(batch, sizeof batch, "%lld", (long long)run.training.global_batch_size);
        CHECK(config_set(config, "training.global_batch_size", batch, "the run", &never) == TRIREME_OK);
    }
    if (trained)
        config_release(&run);
}

// Resolves the plan, with small microbatches.
static trireme_status make_plan(struct job *job, trireme_error *error) {
    enum { AT_ONCE = 8 }; // the most sequences of a rank at once, unless the user says how many
    struct config_training *t = &job->config.training;
    TRY(parallel_resolve(&job->plan, &job->config, &job->model, error));
    if (t->micro_batch_size > 0 || job->plan.batch.sequences <= AT_ONCE)
        return TRIREME_OK;
    for (t->micro_batch_size = AT_ONCE; job->plan.batch.sequences % t->micro_batch_size;)
        t->micro_batch_size--;
    parallel_release(&job->plan);
    job->plan = (struct parallel){0};
    return parallel_resolve(&job->plan, &job->config, &job->model, error);
}

static trireme_status prepare_model(struct job *job, trireme_error *error) {
    TRY(job->verified ? checkpoint_resolve(job->path, &job->directory, &job->hold, error)
                      : checkpoint_find(job->path, &job->directory, &job->hold, error));
    TRY(model_config_read_on(&job->model, job->directory, job->config.lora.base_model, error));
    choose_lengths(&job->config, &job->model, job->directory);
    if (job->config.training.seq_len > job->model.max_position_embeddings)
        return config_refuse(&job->config, "training.seq_len", error, "but the model has %lld positions",
                             (long long)job->model.max_position_embeddings);
    return TRIREME_OK;
}

static trireme_status evaluation_prepare(void *user, trireme_error *error) {
    struct job *job = user;
    TRY(prepare_model(job, error));
    TRY(corpus_open(&job->corpus, &job->config, error));
    TRY(corpus_check_model(&job->corpus, &job->config, job->directory, false, error));
    TRY(corpus_sample(&job->corpus, &job->config, job->model.vocab_size, true, error));
    return make_plan(job, error);
}

static trireme_status evaluation_identify(void *user, struct text *out, trireme_error *error) {
    const struct job *job = user;
    const struct corpus *corpus = &job->corpus;
    char hex[CHECKSUM_HEX];
    manifest_identify(job->directory, hex);
    text_add(out, "%s: a hash of its manifest %.16s\ntokens: ", job->directory, *hex ? hex : "none");
    TRY(corpus_identify(corpus->validation_set ? corpus->validation_set : corpus->set, NULL, out, error));
    text_add(out, "\n");
    model_config_write(&job->model, "float32", out);
    return TRIREME_OK;
}

// ---- on every rank

static trireme_status evaluation_load(struct evaluator *e, trireme_error *error) {
    const struct job *job = e->job;
    if (!job->verified)
        TRY(checkpoint_verify_once(job->directory, e->control, error));
    return checkpoint_load_model(&e->engine, e->control, job->directory, true, error);
}

// Adds up what ranks have counted; of ranks that share tokens one counts.
static trireme_status add_up(const struct evaluator *e, struct evaluation *sum, trireme_error *error) {
    const struct engine *engine = &e->engine;
    const int rank = engine->member.rank;
    const bool each = world_place(engine->member.world); // has memory of its own
    const bool first = mesh_index(&engine->parallel->mesh, rank, AXES_ALL & ~AXES_TOKENS) == 0;
    int64_t bytes[3] = {first ? sum->loss.text_bytes : 0, (int64_t)engine_bytes(engine),
                        each || e->leads ? (int64_t)memory_resident() : 0};
    double all[ARRAY_LENGTH(bytes)];
    for (size_t i = 0; i < ARRAY_LENGTH(bytes); i++)
        all[i] = (double)bytes[i];
    TRY(ranks_sum(e->control, all, ARRAY_LENGTH(all), error));
    sum->loss.text_bytes = (int64_t)all[0];
    sum->predicted = (size_t)all[1];
    sum->resident = (size_t)all[2];
    return TRIREME_OK;
}

static trireme_status evaluation_evaluate(struct evaluator *e, trireme_error *error) {
    struct job *job = e->job;
    const struct config *config = &job->config;
    struct evaluation result = {.seq_len = config->training.seq_len};
    TRY(evaluation_load(e, error));
    int64_t batches = config_is_set(config, "validation.steps") ? config->validation.steps : 0;
    TRY(validation_run(&job->corpus, &e->engine, e->loader, e->control, batches, e->leads ? job->watch->progress : NULL,
                       &result.loss, error));
    TRY(add_up(e, &result, error));
    if (e->leads)
        job->result = result;
    return TRIREME_OK;
}

static trireme_status evaluation_run_rank(void *user, const struct member *member, trireme_error *error) {
    struct job *job = user;
    struct evaluator e = {.job = job, .leads = !member || member->rank == 0};
    if (!e.leads && world_place(member->world))
        job->result.rank = member->rank;
    trireme_status status = ranks_control(&e.control, member, mesh_ranks(&job->plan.mesh), error);
    if (status == TRIREME_OK)
        status = engine_create(&e.engine, &job->config, &job->model, &job->plan, EVALUATE_ALONE, member, error);
    if (status == TRIREME_OK)
        status = loader_create(&e.loader, &job->corpus, &e.engine, e.control, e.control, job->watch->stop, error);
    if (status == TRIREME_OK)
        status = evaluation_evaluate(&e, error);
    loader_free(e.loader);
    engine_release(&e.engine);
    communicator_free(e.control);
    return status;
}

// ---- all of it

static trireme_status evaluation_run_job(struct job *job, trireme_error *error) {
    struct launcher launcher = launcher_find();
    const struct processes_work work = {job, evaluation_prepare, evaluation_identify, evaluation_run_rank};
    const bool many = launcher_processes(&launcher) > 1;
    job->verified = !many; // many ranks check it later (checkpoint_verify_once), where they wait long enough
    return processes_or_threads_run(&launcher, many, &job->config, &work, &job->plan.mesh, NULL, error);
}

trireme_status evaluation_run(struct evaluation *out, const struct config *config, const char *path,
                              const struct evaluation_watch *watch, trireme_error *error) {
    struct job job = {.watch = watch, .path = path, .hold = -1};
    config_copy(&job.config, config);
    trireme_status status = evaluation_run_job(&job, error);
    if (status == TRIREME_OK)
        *out = job.result;
    directory_let_go(job.hold);
    corpus_close(&job.corpus);
    parallel_release(&job.plan);
    free(job.directory);
    config_release(&job.config);
    return status;
}
