// trireme eval DIR: loss, perplexity and bits per byte.
#include "cli/command_eval.h"
#include "base/json.h"
#include "cli/console.h"
#include "run/evaluation.h"

#include <math.h>

static void eval_show_progress(int64_t done, int64_t total) {
    progress_line("%lld of %lld batches", (long long)done, (long long)total);
}

static trireme_status eval_report(const struct arguments *a, const struct evaluation *e, trireme_error *error) {
    const struct validation_loss *r = &e->loss;
    double bits = r->text_bytes ? r->loss * (double)r->targets / (M_LN2 * (double)r->text_bytes) : NAN;
    struct text out = {0};
    if (a->json) {
        json_begin_object(&out, NULL);
        json_add_number(&out, "loss", r->loss);
        json_add_number(&out, "perplexity", exp(r->loss));
        json_add_number(&out, "bits_per_byte", bits);
        json_add_integer(&out, "tokens", r->targets);
        json_add_integer(&out, "seq_len", e->seq_len);
        json_add_integer(&out, "predicted_bytes", (int64_t)e->predicted);
        json_add_integer(&out, "resident_bytes", (int64_t)e->resident);
        json_end_object(&out);
        text_add(&out, "\n");
    } else {
        text_add(&out, "loss %.4f nats per token, perplexity %.3f", r->loss, exp(r->loss));
        if (!isnan(bits))
            text_add(&out, ", %.4f bits per byte", bits);
        text_add(&out, " over %s in sequences of %lld\n", counted(r->targets, "token").text, (long long)e->seq_len);
    }
    trireme_status status = print_text(&out, error);
    text_release(&out);
    return status;
}

static const char KEYS[] =
    "data.path data.mixture data.split data.validation_path validation.steps "
    "training.seq_len training.global_batch_size training.micro_batch_size training.logits_rows training.dtype "
    "training.kernels training.threads training.pin_threads parallelism.* comm.* lora.base_model";

static trireme_status eval_tokens(const struct arguments *a, const struct config *config, const atomic_bool *stop,
                                  trireme_error *error) {
    const struct evaluation_watch watch = {eval_show_progress, stop};
    struct evaluation result;
    if (config_expect(config, KEYS, "eval", error) != TRIREME_OK)
        return arguments_refuse(a, error->status, error);
    if (config->parallelism.island_degree != 1)
        return config_refuse(config, "parallelism.island_degree", error, "but eval reads one model: it has no islands");
    TRY(console_begin(error)); // other ranks do not wait until somebody reads how far this one is
    trireme_status status = evaluation_run(&result, config, a->operands.item[0], &watch, error);
    progress_clear();
    TRY(status);
    if (result.rank > 0)
        return TRIREME_OK;
    if (!isfinite(result.loss.loss))
        FAIL(TRIREME_ERROR_DIVERGED, "the loss is not finite with the weights in %s", a->operands.item[0]);
    return eval_report(a, &result, error);
}

trireme_status command_eval(const struct arguments *a, trireme_error *error) {
    struct config config;
    TRY(arguments_config(a, NULL, &config, error));
    const atomic_bool *stop = stop_on_signals();
    trireme_status status = arguments_expect(a, 1, 1, error);
    if (status == TRIREME_OK)
        status = *config.eval.text || *config.eval.multiple_choice ? eval_texts(a, &config, stop, error)
                                                                   : eval_tokens(a, &config, stop, error);
    config_release(&config);
    return status;
}
