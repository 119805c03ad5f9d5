// How a rank's part in a run begins (run.h).
#include "run/run.h"

#include "base/parallel_for.h"
#include "ckpt/model_files.h"
#include "launch/ranks.h"
#include "model/lora.h"
#include "parallel/context_choice.h"
#include "run/checkpoint.h"
#include "run/checkpoint_retention.h"
#include "run/same_run.h"
#include "run/verification.h"

#include <sys/stat.h>

void run_tell_mapped(const struct run *r, size_t bytes) {
    if (!r->callbacks->mapped)
        return;
    char *path = rank_file_path(r->config->run.directory);
    r->callbacks->mapped(r->callbacks->user, r->ranks.map, bytes, path, r->ranks.end);
    free(path);
}

void run_tell(const struct run *r, const char *format, ...) {
    if (!r->leads || !r->callbacks->message)
        return;
    va_list args;
    va_start(args, format);
    char *text = mem_vprintf(format, args);
    va_end(args);
    r->callbacks->message(r->callbacks->user, text);
    free(text);
}

void run_tell_remark(struct run *r) {
    char *remarks[] = {metrics_take_remark(&r->directory.metrics), r->pruner ? pruner_take_remark(r->pruner) : NULL};
    for (size_t i = 0; i < ARRAY_LENGTH(remarks); i++) {
        if (remarks[i])
            run_tell(r, "%s", remarks[i]);
        free(remarks[i]);
    }
}

static void tell_differences(const struct run *r) {
    struct text other = {0};
    same_run_differences(r->config, &r->progress, &other);
    if (r->data_words.length)
        text_add(&other, "%s%s", other.length ? "; " : "", r->data_words.text);
    if (other.length)
        run_tell(r, "with other settings from here on: %s", other.text);
    text_release(&other);
}

static trireme_status find_checkpoint(struct run *r, trireme_error *error) {
    const struct directory_verifier verifier = verification_lead(r->control);
    struct directory_search search;
    trireme_status status = TRIREME_OK;
    TRY(checkpoint_newest(r->config, MANIFEST_CONTENT, &verifier, &search, error));
    for (size_t i = search.path ? 0 : 1; i < search.skipped.count; i++) // a refusal tells of the first
        run_tell(r, "checkpoint %s is passed over: %s", search.skipped.item[i].path, search.skipped.item[i].reason);
    r->saved_step = -1;
    if (search.path) {
        r->resumed_from = mem_strdup(search.path);
        r->saved_step = search.number;
    } else if (search.skipped.count == 0) {
        if (!r->directory.fresh)
            run_tell(r, "%s holds no checkpoint: from the first step on, again", r->config->run.directory);
    } else {
        status = error_set(error, TRIREME_ERROR_CORRUPT,
                           "no checkpoint in %s is complete (%s): repair or remove them to start afresh",
                           r->config->run.directory, search.skipped.item[0].reason);
    }
    directory_search_release(&search);
    return status;
}

// Appends to *differs in what the tokens are others than those that the run in the checkpoint trains on.
static trireme_status find_other_data(struct run *r, const char *saved, struct text *differs, trireme_error *error) {
    struct text now = {0};
    trireme_error damaged = {0};
    trireme_status status = saved ? same_run_data(r->corpus, saved, &now, error) : TRIREME_OK;
    if (status == TRIREME_OK && saved && strcmp(saved, now.text) != 0)
        text_add(differs, "%s; but the run in %s trains on %s", now.text, r->config->run.directory, saved);
    text_release(&now);
    TRY(status);
    if (differs->length || !saved)
        return TRIREME_OK;
    TRY(data_record_compare(r->config->run.directory, saved, r->corpus->set, ranks_tell_more, r->control, differs,
                            &damaged, error));
    if (differs->length)
        text_add(differs, ", as the run in %s has read them", r->config->run.directory);
    if (damaged.status != TRIREME_OK)
        run_tell(r, "passed over: %s", damaged.message);
    return TRIREME_OK;
}

// Refuses tokens that are not in the model's vocabulary, before the run reads them one day. Those of a tokenizer are.
static trireme_status check_tokens(struct run *r, trireme_error *error) {
    const struct corpus *c = r->corpus;
    const int32_t vocab_size = (int32_t)r->engine.model->vocab_size;
    if (!c->tokenizer)
        TRY(token_set_check(c->set, vocab_size, ranks_tell_more, r->control, error));
    if (!c->validation_set || c->validation_tokenizer)
        return TRIREME_OK;
    return token_set_check(c->validation_set, vocab_size, ranks_tell_more, r->control, error);
}

// Refuses other tokens than those that the run has been trained on. They may have to be read, for minutes.
static trireme_status check_data(struct run *r, trireme_error *error) {
    if (!r->resumed_from)
        return check_tokens(r, error);
    struct state_progress saved;
    struct text differs = {0};
    TRY(state_files_progress(r->resumed_from, &saved, error));
    trireme_status status = find_other_data(r, saved.data, &differs, error);
    r->other_data = differs.length > 0;
    if (status == TRIREME_OK && r->other_data && r->config->data.on_change == CONFIG_ON_CHANGE_CONTINUE)
        text_add(&r->data_words, "other data: %s; ", differs.text);
    else if (status == TRIREME_OK && r->other_data)
        status = config_refuse(r->config, corpus_key(r->config), error,
                               "%s: set it and data.split back, or let the run go on with them, with "
                               "data.on_change=continue, or start another run.directory with model.init_from=%s",
                               differs.text, r->resumed_from);
    text_release(&differs);
    state_progress_release(&saved);
    return status;
}

// For a run that goes on in the middle of a row of skipped steps: finds the last checkpoint from before them.
static trireme_status find_sound(struct run *r, trireme_error *error) {
    if (!r->progress.skipped_in_a_row)
        return TRIREME_OK;
    if (r->leads) {
        char *parent = mem_printf(CHECKPOINTS_PATH, r->config->run.directory);
        r->sound_step = directory_before(parent, r->progress.step - r->progress.skipped_in_a_row + 1);
        free(parent);
    }
    return ranks_share(r->control, &r->sound_step, sizeof r->sound_step, error);
}

// The first rank on which something holds; -1: on none. All processes come to the same answer; ranks that are threads
// of one know the same anyway.
static trireme_status first_rank(const struct run *r, bool holds, int *rank, trireme_error *error) {
    int32_t most = holds ? -r->engine.member.rank : INT32_MIN;
    if (world_place(r->engine.member.world))
        TRY(ranks_max(r->control, &most, error));
    *rank = most == INT32_MIN ? -1 : -most;
    return TRIREME_OK;
}

// For when rank 0 found no checkpoint: checks that no rank has taken its model from one.
static trireme_status check_no_checkpoint(struct run *r, trireme_error *error) {
    int rank;
    TRY(first_rank(r, !r->start, &rank, error));
    if (rank < 0)
        return TRIREME_OK;
    return config_refuse(r->config, "run.directory", error,
                         "where rank %d found a checkpoint and rank 0 then none: it must be one directory for all "
                         "ranks, and no other's",
                         rank);
}

// Lets a process whose rank does not lead expect of files without checksums what the run has read of them before.
static trireme_status expect_data(struct run *r, trireme_error *error) {
    struct text differs = {0}; // rank 0 has seen to that
    trireme_error damaged;
    if (r->leads || !world_place(r->engine.member.world) || !r->progress.data)
        return TRIREME_OK;
    trireme_status status = data_record_compare(r->config->run.directory, r->progress.data, r->corpus->set, NULL, NULL,
                                                &differs, &damaged, error);
    text_release(&differs);
    return status;
}

static trireme_status load_progress(struct run *r, trireme_error *error) {
    if (!r->resumed_from)
        return check_no_checkpoint(r, error);
    TRY(state_files_progress(r->resumed_from, &r->progress, error));
    // What a run saves next, and which checkpoints it removes, depends on the numbers in their names.
    if (r->progress.step != r->saved_step)
        FAIL(TRIREME_ERROR_CORRUPT, "%s holds the state of step %lld: name it step-%lld again, or remove it",
             r->resumed_from, (long long)r->progress.step, (long long)r->progress.step);
    TRY(same_run_check(r->config, &r->progress, r->resumed_from, error));
    TRY(expect_data(r, error));
    const struct sampler_origin origin =
        same_run_origin(r->config, &r->progress, r->corpus, r->other_data, &r->data_words);
    loader_set_origin(r->loader, origin);
    r->progress.data_step = origin.step;
    r->progress.data_sample = origin.sample;
    TRY(island_check(r, error));
    TRY(model_files_check(r->resumed_from, r->engine.model, true, error));
    TRY(model_files_check_base(r->resumed_from, r->engine.model, error));
    if (r->progress.step > r->config->training.steps)
        return config_refuse(r->config, "training.steps", error,
                             "but the run in %s has done %lld: give more, or name another run.directory",
                             r->config->run.directory, (long long)r->progress.step);
    return find_sound(r, error);
}

// Takes the tokenizer beside model.config, unless the run has another vocabulary than the model there.
static trireme_status find_tokenizer_of_config(struct run *r, trireme_error *error) {
    const char *path = r->config->model.config, *slash = strrchr(path, '/');
    struct model_config theirs;
    struct stat st;
    TRY(model_config_read(&theirs, path, error));
    if (theirs.vocab_size != r->engine.model->vocab_size)
        return TRIREME_OK;
    bool is_directory = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    char *beside = is_directory ? mem_strdup(path)
                   : slash      ? mem_printf("%.*s", (int)(slash - path) + 1, path)
                                : mem_strdup(".");
    trireme_status status = tokenizer_files_read(&r->tokenizer, beside, error);
    free(beside);
    return status;
}

// Finds the tokenizer for checkpoints: that of the tokens or, where they name none, the one beside the weights or the
// model.
static trireme_status start_find_tokenizer(struct run *r, trireme_error *error) {
    const char *from = r->resumed_from ? r->resumed_from : r->start;
    if (r->corpus->tokenizer)
        r->tokenizer = tokenizer_files(r->corpus->tokenizer);
    else if (*from) {
        char *directory;
        TRY(checkpoint_tokenizer(&directory, from, r->config->lora.base_model, error));
        trireme_status status = tokenizer_files_read(&r->tokenizer, directory, error);
        free(directory);
        return status;
    } else if (*r->config->model.config)
        return find_tokenizer_of_config(r, error);
    return TRIREME_OK;
}

// Those of a run that begins.
static trireme_status load_weights(struct run *r, trireme_error *error) {
    r->without_values = !engine_initialise(&r->engine, (uint64_t)r->config->training.seed, r->callbacks->stop);
    if (!*r->start)
        return TRIREME_OK;
    TRY(model_files_check(r->start, r->engine.model, false, error));
    if (strcmp(r->start, r->config->model.init_from) != 0)
        run_tell(r, "starting from the weights in %s", r->start);
    struct model_config theirs;
    struct text other = {0};
    TRY(model_config_read_on(&theirs, r->start, r->config->lora.base_model, error));
    if (theirs.vocab_size < r->engine.model->vocab_size)
        run_tell(r, "the vocabulary grows from %lld to %lld tokens: the new ones begin as the mean of the others",
                 (long long)theirs.vocab_size, (long long)r->engine.model->vocab_size);
    else if (theirs.vocab_size > r->engine.model->vocab_size)
        run_tell(r, "the vocabulary shrinks from %lld to %lld tokens: the last ones fall away",
                 (long long)theirs.vocab_size, (long long)r->engine.model->vocab_size);
    model_config_meanings(&theirs, r->engine.model, &other);
    if (other.length)
        run_tell(r, "the model is not quite what the weights are of: %s", other.text);
    text_release(&other);
    TRY(checkpoint_verify_once(r->start, r->control, error));
    return checkpoint_load_model(&r->engine, r->control, r->start, false, error);
}

static trireme_status load_values(struct run *r, trireme_error *error) {
    if (r->resumed_from) {
        TRY(checkpoint_load(&r->engine, r->control, r->resumed_from, &r->progress, error));
        return island_load(r, error);
    }
    TRY(load_weights(r, error));
    island_start(r);
    return TRIREME_OK;
}

// Checks that all processes find the same checkpoint: with other working directories, or on other machines' disks, they
// may find another run's by the same name. All come to the same answer.
static trireme_status check_same_checkpoint(struct run *r, trireme_error *error) {
    const struct world_place *place = world_place(r->engine.member.world);
    char own[CHECKSUM_HEX] = "";
    if (!place)
        return TRIREME_OK;
    char(*all)[CHECKSUM_HEX] = mem_alloc((size_t)place->ranks * sizeof *all);
    manifest_identify(r->resumed_from, own);
    trireme_status status = comm_all_gather_bytes(r->control, own, all, sizeof own, error);
    for (int rank = 1; rank < place->ranks && status == TRIREME_OK; rank++)
        if (memcmp(all[rank], all[0], sizeof own) != 0)
            status = config_refuse(r->config, "run.directory", error,
                                   "but rank %d finds %s there: it must be one directory for all ranks", rank,
                                   all[rank][0] ? "another checkpoint than rank 0" : "none of rank 0's checkpoints");
    free(all);
    return status;
}

// Tells all ranks what rank 0 found.
static trireme_status share_checkpoint(struct run *r, trireme_error *error) {
    if (!r->control)
        return TRIREME_OK;
    int64_t found[3] = {r->saved_step, r->resumed_from ? (int64_t)strlen(r->resumed_from) + 1 : 0, r->other_data};
    TRY(comm_broadcast(r->control, found, sizeof found, 0, error));
    r->saved_step = found[0];
    r->other_data = found[2];
    if (!found[1])
        return TRIREME_OK;
    if (!r->leads)
        r->resumed_from = mem_alloc((size_t)found[1]);
    TRY(comm_broadcast(r->control, r->resumed_from, found[1], 0, error));
    return check_same_checkpoint(r, error);
}

static trireme_status start_open_directory(struct run *r, trireme_error *error) {
    // Once all ranks are here, everything that can be refused without touching the run directory has been.
    TRY(ranks_meet(r->control, error));
    if (!r->leads) {
        const struct ranks_part part = verification_part(r->control);
        TRY(ranks_await_end(r->control, &part, error));
        return share_checkpoint(r, error);
    }
    TRY(run_directory_open(&r->directory, r->config->run.directory, error));
    TRY(find_checkpoint(r, error)); // which may read for minutes
    TRY(check_data(r, error));
    TRY(run_directory_check(&r->directory, error));
    TRY(ranks_tell_end(r->control, error));
    checkpoint_sweep(r->config->run.directory); // before anything is written: it may be what fills the disk
    return share_checkpoint(r, error);
}

// Checks that all ranks find the file that rank 0 has made.
static trireme_status check_one_directory(struct run *r, bool found, trireme_error *error) {
    int rank;
    TRY(first_rank(r, !found && world_place(r->engine.member.world) && !r->leads, &rank, error));
    if (rank < 0)
        return TRIREME_OK;
    return config_refuse(r->config, "run.directory", error,
                         "but rank %d does not find what rank 0 writes there: it must be one directory for all ranks",
                         rank);
}

// Makes ranks.bin, which from here on tells of this run, its start included. If counters cannot be kept there, the run
// goes on without: *why says why.
static trireme_status keep_counters(struct run *r, trireme_error *why, trireme_error *error) {
    const char *directory = r->config->run.directory;
    struct rank_record *record;
    uint64_t identity = 0; // none
    trireme_status kept = TRIREME_OK;
    if (r->leads) {
        kept = rank_file_create(&r->ranks_lock, &identity, directory, &r->engine.parallel->mesh, r->engine.ops, why);
        identity = kept == TRIREME_OK ? identity : 0;
    }
    TRY(ranks_share(r->control, &identity, sizeof identity, error));
    if (identity) {
        kept = rank_file_open(&r->ranks, directory, identity, r->engine.member.rank, &record, why);
        TRY(check_one_directory(r, kept != TRIREME_ERROR_CORRUPT, error));
    }
    if (identity && kept == TRIREME_OK) {
        r->record = record;
        run_tell_mapped(r, r->ranks.bytes);
    }
    r->record->step = r->progress.step;
    _Static_assert((int)ENGINE_COUNTERS <= (int)RANK_FILE_RUNNING, "each has a place in the file");
    engine_count_in(&r->engine, r->record->streams);
    rank_record_set(r->record, RANK_STARTING);
    return TRIREME_OK;
}

// Measures and chooses kernels before the arenas are touched, so that its memory does not add to the run's peak.
static void choose_kernels(struct run *r, struct tuning *tuning) {
    const struct config *config = r->config;
    int64_t steps = config->training.steps - MAX(r->saved_step, 0);
    if (config->training.kernel_choice == CONFIG_KERNEL_CHOICE_MEASURED)
        tuning_choose(tuning, &r->engine, config->run.directory, steps, NULL);
}

void run_prune(const struct run *r, int64_t last, int64_t whole) {
    pruner_begin(r->pruner, last, whole);
}

// For a run that goes on, which may have nothing left to do, and then saves nothing more. Checkpoints from within a row
// of skipped steps do not count among those that are kept. The one from which it goes on was verified, but may lie in
// checkpoint.emergency_directory.
static void prune_at_start(const struct run *r) {
    if (r->saved_step < 0)
        return;
    run_prune(r, r->progress.step - r->progress.skipped_in_a_row, r->saving.elsewhere ? -1 : r->saved_step);
}

static void tell_no_best(const struct run *r) {
    struct text why = {0};
    checkpoint_explain_best(r->config, r->corpus->has_validation, r->progress.step, &why);
    if (why.length)
        run_tell(r, "%s", why.text);
    text_release(&why);
}

static void tell_no_trace(const struct run *r) {
    int64_t step = r->config->profiling.trace_step;
    if (step && step <= r->progress.step && !run_directory_has_trace(&r->directory, step))
        run_tell(r, "no trace is written: step %lld, which profiling.trace_step names, is done", (long long)step);
}

// Each checkpoint has it written again.
static void run_keep_data_record(struct run *r) {
    trireme_error why;
    if (data_record_write(r->config->run.directory, r->data, r->corpus->set, &r->data_known, &why) != TRIREME_OK)
        run_tell(r, "checksums of the data are not kept yet: %s", why.message);
}

static trireme_status begin_directory(struct run *r, struct tuning *tuning, const trireme_error *no_counters,
                                      trireme_error *error) {
    if (r->leads) {
        TRY(run_directory_check(&r->directory, error));
        TRY(pruner_create(&r->pruner, r->config, &r->directory, error));
        prune_at_start(r);
        TRY(run_directory_begin(&r->directory, r->config, r->progress.step, error));
        // Of a run that goes on, the record is the checkpoint's until there is another one.
        if (!r->resumed_from)
            run_keep_data_record(r);
    }
    TRY(ranks_meet(r->control, error));
    if (!r->leads)
        return TRIREME_OK;
    run_tell_remark(r);
    tell_no_trace(r);
    tell_no_best(r);
    if (no_counters->status != TRIREME_OK)
        run_tell(r, "`trireme show ranks` will not work here: %s", no_counters->message);
    if (tuning->passed_over)
        run_tell(r, "passed over: %s", tuning->passed_over);
    if (tuning->untimed)
        run_tell(r, "kernels run by their rules where no measured choice is stored: %s", tuning->untimed);
    return tuning_store(tuning, r->config->run.directory, error);
}

static void tell_context(const struct run *r) {
    struct text chosen = {0};
    context_choice_print(r->config, r->engine.parallel, &chosen);
    if (chosen.length)
        run_tell(r, "%s", chosen.text);
    text_release(&chosen);
}

static trireme_status tell_start(struct run *r, trireme_error *error) {
    double predicted = (double)engine_bytes(&r->engine);
    TRY(ranks_sum(r->control, &predicted, 1, error));
    TRY(traffic_create(&r->traffic, &r->engine, r->control, error));
    if (compile_kernels(r->config) == KERNELS_FAST)
        TRY(engine_peak(&r->engine, r->control, r->config->training.steps - r->progress.step, &r->peak, error));
    TRY(ranks_meet(r->control, error)); // nobody computes while rank 0 measures
    if (!r->leads)
        return TRIREME_OK;
    const struct world_place *place = world_place(r->engine.member.world);
    int ranks = mesh_ranks(&r->engine.parallel->mesh), cores = place ? place->all_cores : usable_cores();
    const struct compiled *step = engine_compiled(&r->engine, PROGRAM_TRAIN);
    double tokens = (double)r->config->training.steps * (double)engine_tokens(&r->engine, step);
    char *mesh = mesh_print(&r->engine.parallel->mesh);
    struct train_start begin = {.parameters = r->engine.table->total,
                                .trained = parameter_table_trained(r->engine.table),
                                .first_step = r->progress.step + 1,
                                .steps = r->config->training.steps,
                                .resumed_from = r->resumed_from,
                                .epochs = tokens / (double)sampler_train_tokens(&r->corpus->train),
                                .cut_documents = r->corpus->train.cut_documents,
                                .ranks = ranks,
                                .threads = r->engine.stages->options.threads,
                                .cores = cores,
                                .nodes = place ? place->nodes : 1,
                                .mesh = mesh,
                                .microbatches = step->spec.batch.microbatches,
                                .micro_batch_size = step->spec.batch.sequences,
                                .predicted_bytes = (size_t)predicted,
                                .peak_flops = r->peak};
    if (r->callbacks->started)
        r->callbacks->started(r->callbacks->user, &begin);
    free(mesh);
    tell_context(r);
    if (r->resumed_from)
        tell_differences(r);
    return TRIREME_OK;
}

// Sets the text fields of the progress to this run's, on the rank that saves it.
static void say_in_progress(struct run *r) {
    struct text yaml = {0};
    free(r->progress.config);
    free(r->progress.data);
    if (r->leads)
        config_print(&yaml, r->config);
    r->progress.config = yaml.text;
    r->progress.data = r->leads ? mem_strdup(r->data) : NULL;
}

// A model whose config.json asks for dropout is trained without it only by somebody who knows.
static trireme_status check_dropout(const struct config *config, const struct model_config *model,
                                    trireme_error *error) {
    const char *from = *config->model.init_from ? config->model.init_from : config->model.config;
    struct text rates = {0};
    trireme_status status = TRIREME_OK;
    char *own = mem_printf("%s/config.json", from);
    if (*from && config->model.dropout == CONFIG_DROPOUT_CONFIGURED) {
        model_config_dropout(from, &rates);
        if (lora_is_directory(from) && file_missing(own))
            model_config_dropout(model->lora.base, &rates);
    }
    free(own);
    if (rates.length)
        status = config_refuse(config, "model.dropout", error,
                               "but %s asks for %s, and dropout is not supported: set it to none to train without",
                               from, rates.text);
    text_release(&rates);
    return status;
}

trireme_status run_start(struct run *r, const struct model_config *model, const struct parallel *plan,
                         struct tuning *tuning, const struct member *member, trireme_error *error) {
    struct program_specs specs = r->corpus->has_validation ? TRAIN_AND_EVALUATE : TRAIN_ALONE;
    specs.saves = true;
    TRY(check_dropout(r->config, model, error));
    TRY(engine_create(&r->engine, r->config, model, plan, specs, member, error));
    TRY(step_log_create(r, error));
    TRY(loader_create(&r->loader, r->corpus, &r->engine, r->control, r->inner, r->callbacks->stop, error));
    if (r->config->profiling.trace_step)
        TRY(step_trace_create(&r->trace, r->config, &r->engine,
                              &(struct engine_program *){engine_find(&r->engine, PROGRAM_TRAIN)}, 1, r->control,
                              error));
    TRY(start_open_directory(r, error));
    TRY(load_progress(r, error));
    if (r->leads)
        TRY(start_find_tokenizer(r, error));
    TRY(saving_create(r, error));
    trireme_error no_counters = {0};
    TRY(keep_counters(r, &no_counters, error));
    TRY(tell_start(r, error)); // before what may take minutes with a large model
    choose_kernels(r, tuning);
    TRY(load_values(r, error));
    TRY(begin_directory(r, tuning, &no_counters, error));
    say_in_progress(r);
    return r->leads ? data_learner_begin(&r->learner, r->corpus->set, error) : TRIREME_OK;
}
