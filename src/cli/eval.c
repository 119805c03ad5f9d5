// trireme eval DIR: loss, perplexity and bits per byte.
#include "base/json.h"
#include "ckpt/directory.h"
#include "cli/cli.h"
#include "train/checkpoint.h"
#include "train/corpus.h"

#include <math.h>

static trireme_status show_progress(void *user, int64_t done, int64_t total, trireme_error *error) {
    const atomic_bool *stop = user;
    if (*stop)
        FAIL(TRIREME_ERROR_INTERRUPTED, "stopped while evaluating");
    progress_line("%lld of %lld batches", (long long)done, (long long)total);
    return TRIREME_OK;
}

struct evaluation {
    struct corpus_loss loss;
    size_t predicted, resident; // bytes
};

static trireme_status report(const struct arguments *a, const struct config *config, const struct evaluation *e,
                             trireme_error *error) {
    const struct corpus_loss *r = &e->loss;
    double bits = r->text_bytes ? r->loss * (double)r->targets / (M_LN2 * (double)r->text_bytes) : NAN;
    struct text out = {0};
    if (a->json) {
        json_begin_object(&out, NULL);
        json_add_number(&out, "loss", r->loss);
        json_add_number(&out, "perplexity", exp(r->loss));
        json_add_number(&out, "bits_per_byte", bits);
        json_add_integer(&out, "tokens", r->targets);
        json_add_integer(&out, "seq_len", config->training.seq_len);
        json_add_integer(&out, "predicted_bytes", (int64_t)e->predicted);
        json_add_integer(&out, "resident_bytes", (int64_t)e->resident);
        json_end_object(&out);
        text_add(&out, "\n");
    } else {
        text_add(&out, "loss %.4f nats per token, perplexity %.3f", r->loss, exp(r->loss));
        if (!isnan(bits))
            text_add(&out, ", %.4f bits per byte", bits);
        text_add(&out, " over %s in sequences of %lld\n", counted(r->targets, "token").text,
                 (long long)config->training.seq_len);
    }
    trireme_status status = print_text(&out, error);
    text_release(&out);
    return status;
}

enum { AT_ONCE = 8 }; // sequences, at most

// Unless something else was asked for, as the run that the weights are of validates: with sequences as long, and as
// many in a batch, though not at once.
static void choose_lengths(struct config *config, const struct model_config *model, const char *directory) {
    struct config_training *t = &config->training;
    struct config run;
    bool trained = checkpoint_config(&run, directory);
    if (!config_is_set(config, "training.seq_len"))
        t->seq_len = MIN(model->max_position_embeddings, trained ? run.training.seq_len : t->seq_len);
    if (trained && !config_is_set(config, "training.global_batch_size")) {
        char batch[24];
        trireme_error never; // a run's is one
        snprintf(batch, sizeof batch, "%lld", (long long)run.training.global_batch_size);
        CHECK(config_set(config, "training.global_batch_size", batch, "the run", &never) == TRIREME_OK);
    }
    if (trained && t->micro_batch_size == 0) {
        t->micro_batch_size = MIN(t->global_batch_size, AT_ONCE);
        while (t->global_batch_size % t->micro_batch_size)
            t->micro_batch_size--;
    }
    if (trained)
        config_release(&run);
}

static trireme_status evaluate(struct config *config, const char *path, struct evaluation *out, trireme_error *error) {
    char *directory = NULL;
    struct model_config model;
    struct corpus corpus = {0};
    struct engine engine = {0};
    int hold = -1;
    trireme_status status = checkpoint_resolve(path, &directory, &hold, error);
    if (status == TRIREME_OK)
        status = model_config_read(&model, directory, error);
    if (status == TRIREME_OK) {
        choose_lengths(config, &model, directory);
        status = corpus_open(&corpus, config, error);
    }
    if (status == TRIREME_OK && config->training.seq_len > model.max_position_embeddings)
        status = config_refuse(config, "training.seq_len", error, "but the model has %lld positions",
                               (long long)model.max_position_embeddings);
    if (status == TRIREME_OK)
        status = corpus_check_model(&corpus, config, directory, error);
    if (status == TRIREME_OK)
        status = corpus_sample(&corpus, config, model.vocab_size, true, error);
    if (status == TRIREME_OK)
        status = engine_create(&engine, config, &model, NULL, ENGINE_EVALUATE, NULL, error);
    if (status == TRIREME_OK)
        status = checkpoint_load_model(&engine, NULL, directory, true, error);
    directory_let_go(hold);
    if (status == TRIREME_OK) {
        int64_t batches = config_is_set(config, "validation.steps") ? config->validation.steps : 0;
        status =
            corpus_validate(&corpus, &engine, batches, &out->loss, show_progress, (void *)stop_on_signals(), error);
        out->predicted = engine_bytes(&engine);
        out->resident = memory_resident();
    }
    engine_release(&engine);
    corpus_close(&corpus);
    free(directory);
    return status;
}

static const char KEYS[] = "data.path data.split data.validation_path validation.steps training.seq_len "
                           "training.global_batch_size training.micro_batch_size training.logits_rows training.dtype "
                           "training.kernels training.threads training.pin_threads";

trireme_status command_eval(const struct arguments *a, trireme_error *error) {
    struct config config;
    TRY(arguments_config(a, NULL, NULL, &config, error));
    struct evaluation result;
    trireme_status status = arguments_expect(a, 1, 1, error);
    if (status == TRIREME_OK)
        status = config_expect(&config, KEYS, "eval", error);
    if (status == TRIREME_OK)
        status = evaluate(&config, a->operands.item[0], &result, error);
    progress_clear();
    if (status == TRIREME_ERROR_INTERRUPTED)
        status = TRIREME_ERROR_IO; // nothing is saved, and nothing would go on
    if (status == TRIREME_OK && !isfinite(result.loss.loss))
        status = error_set(error, TRIREME_ERROR_DIVERGED, "the loss is not finite: the weights in %s are no model's",
                           a->operands.item[0]);
    if (status == TRIREME_OK)
        status = report(a, &config, &result, error);
    config_release(&config);
    return status;
}
