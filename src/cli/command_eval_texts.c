// trireme eval DIR eval.multiple_choice=FILE or eval.text=FILE: how likely texts are.
#include "base/json.h"
#include "cli/command_eval.h"
#include "cli/keys.h"
#include "data/documents.h"
#include "generate/multiple_choice.h"
#include "launch/processes.h"

#include <errno.h>
#include <math.h>

// Everything of one call.
struct judge {
    const struct config *config;
    const struct arguments *arguments;
    const atomic_bool *stop;
    struct likelihood likelihood;
    struct questions questions;
    struct document_files files;
    FILE *output; // NULL: none
    struct text line;
    // Of questions: how many the model answers rightly.
    int64_t right[CHOICE_SCORES];
    // Of texts: sums over all of them.
    struct text document;
    struct text_likelihood sum;
    int64_t documents;
};

static trireme_status judge_write_line(struct judge *j, trireme_error *error) {
    text_add(&j->line, "\n");
    const bool good = !j->output || fwrite(j->line.text, 1, j->line.length, j->output) == j->line.length;
    j->line.length = 0;
    if (!good)
        FAIL(TRIREME_ERROR_IO, "%s: cannot write: %s", j->config->eval.output, strerror(errno));
    return TRIREME_OK;
}

static trireme_status judge_check_stop(const struct judge *j, trireme_error *error) {
    if (*j->stop)
        FAIL(TRIREME_ERROR_INTERRUPTED, "stopped while evaluating");
    return TRIREME_OK;
}

// ---- questions

static trireme_status judge_add_answer(struct judge *j, size_t number, const struct answer *a, trireme_error *error) {
    const int64_t gold = j->questions.item[number].gold;
    struct text *out = &j->line;
    json_begin_object(out, NULL);
    json_add_integer(out, "line", (int64_t)j->questions.lines.item[number]);
    json_add_integer(out, "gold", gold);
    json_begin_array(out, "log_likelihoods");
    for (size_t i = 0; i < a->choices.count; i++)
        json_add_number(out, NULL, a->choices.item[i].log);
    json_end_array(out);
    json_begin_array(out, "greedy");
    for (size_t i = 0; i < a->choices.count; i++)
        json_add_boolean(out, NULL, a->choices.item[i].greedy);
    json_end_array(out);
    for (int s = 0; s < CHOICE_SCORES; s++) {
        const bool right = (int64_t)a->chosen[s] == gold;
        j->right[s] += right;
        json_add_boolean(out, choice_score_name((enum choice_score)s), right);
    }
    json_end_object(out);
    return judge_write_line(j, error);
}

static trireme_status judge_questions(struct judge *j, trireme_error *error) {
    for (size_t i = 0; i < j->questions.count; i++) {
        struct answer answer;
        TRY(judge_check_stop(j, error));
        progress_line("%zu of %zu questions", i, j->questions.count);
        trireme_status status =
            question_answer(&j->questions, i, j->config->eval.delimiter, &j->likelihood, &answer, error);
        if (status == TRIREME_OK)
            status = judge_add_answer(j, i, &answer, error);
        VEC_RELEASE(&answer.choices);
        TRY(status);
    }
    return TRIREME_OK;
}

// A share of questions, and its standard error: the sample's standard deviation over the root of their number; NaN of
// one question.
struct share {
    double mean, error;
};
static struct share share_of(int64_t right, size_t count) {
    const double n = (double)count, mean = (double)right / n;
    return (struct share){mean, count > 1 ? sqrt(mean * (1 - mean) / (n - 1)) : NAN};
}

static void judge_report_questions(const struct judge *j, struct text *out) {
    const size_t count = j->questions.count;
    for (int s = 0; s < CHOICE_SCORES; s++) {
        const char *name = choice_score_name((enum choice_score)s);
        const struct share share = share_of(j->right[s], count);
        if (j->arguments->json) {
            char *stderr_name = mem_printf("%s_stderr", name);
            json_add_number(out, name, share.mean);
            json_add_number(out, stderr_name, share.error);
            free(stderr_name);
        } else {
            text_add(out, "%s%s %.4f", s ? ", " : "", name, share.mean);
            if (count > 1)
                text_add(out, " +- %.4f", share.error);
        }
    }
    if (j->arguments->json)
        json_add_integer(out, "questions", (int64_t)count);
    else
        text_add(out, " over %s\n", counted((int64_t)count, "question").text);
}

// ---- texts

static trireme_status judge_add_piece(void *user, const char *bytes, size_t length, trireme_error *error) {
    (void)error;
    text_add_bytes(&((struct judge *)user)->document, bytes, length);
    return TRIREME_OK;
}

static trireme_status judge_end_document(void *user, trireme_error *error) {
    struct judge *j = user;
    struct text_likelihood t;
    TRY(judge_check_stop(j, error));
    trireme_status status = likelihood_of_text(&j->likelihood, &j->document, &t, error);
    if (status != TRIREME_OK)
        return error_prefix(error, status, "document %lld", (long long)j->documents + 1);
    j->document.length = 0;
    j->sum.log += t.log;
    j->sum.tokens += t.tokens;
    j->sum.bytes += t.bytes;
    j->sum.words += t.words;
    j->documents++;
    json_begin_object(&j->line, NULL);
    json_add_integer(&j->line, "document", j->documents);
    json_add_number(&j->line, "log_likelihood", t.log);
    json_add_integer(&j->line, "tokens", t.tokens);
    json_add_integer(&j->line, "bytes", t.bytes);
    json_add_integer(&j->line, "words", t.words);
    json_end_object(&j->line);
    return judge_write_line(j, error);
}

static trireme_status judge_advance(void *user, size_t bytes, trireme_error *error) {
    (void)bytes;
    const struct judge *j = user;
    progress_line("%s", counted(j->documents, "document").text);
    return judge_check_stop(j, error);
}

static trireme_status judge_texts(struct judge *j, trireme_error *error) {
    const struct document_sink sink = {
        .user = j, .add = judge_add_piece, .end = judge_end_document, .advance = judge_advance};
    const struct document_options options = {0};
    for (size_t i = 0; i < j->files.count; i++)
        TRY(document_file_read(&j->files.item[i], &options, &sink, error));
    if (j->sum.tokens == 0)
        FAIL(TRIREME_ERROR_USAGE, "%s: has no text", j->config->eval.text);
    return TRIREME_OK;
}

static void judge_report_texts(const struct judge *j, struct text *out) {
    const struct text_likelihood *s = &j->sum;
    const double nats = -s->log, loss = nats / (double)s->tokens, bits = nats / (M_LN2 * (double)s->bytes),
                 by_byte = exp(nats / (double)s->bytes), by_word = exp(nats / (double)s->words);
    if (j->arguments->json) {
        json_add_number(out, "loss", loss);
        json_add_number(out, "perplexity", exp(loss));
        json_add_number(out, "bits_per_byte", bits);
        json_add_number(out, "byte_perplexity", by_byte);
        json_add_number(out, "word_perplexity", by_word);
        json_add_integer(out, "tokens", s->tokens);
        json_add_integer(out, "documents", j->documents);
        return;
    }
    text_add(out, "loss %.4f nats per token, perplexity %.3f", loss, exp(loss));
    text_add(out, ", %.4f bits per byte, perplexity %.4f by byte and %.3f by word over %s of %s\n", bits, by_byte,
             by_word, counted(s->tokens, "token").text, counted(j->documents, "document").text);
}

// ---- all of it

// What is read would be lost if it was written, too.
static trireme_status judge_check_output(const struct judge *j, trireme_error *error) {
    const struct config_eval *c = &j->config->eval;
    bool read = *c->multiple_choice && same_file(c->output, c->multiple_choice);
    for (size_t i = 0; i < j->files.count; i++)
        read |= same_file(c->output, j->files.item[i].path);
    return read ? config_refuse(j->config, "eval.output", error, "which is read") : TRIREME_OK;
}

static trireme_status judge_open(struct judge *j, trireme_error *error) {
    const struct config_eval *c = &j->config->eval;
    if (*c->text && *c->multiple_choice)
        return config_refuse(j->config, "eval.text", error, "but there is eval.multiple_choice, too: give one of them");
    if (*c->output)
        TRY(check_output("eval.output", c->output, error));
    if (*c->multiple_choice)
        TRY(questions_read(&j->questions, c->multiple_choice, error));
    else
        TRY(document_files_add(&j->files, c->text, error));
    if (*c->output)
        TRY(judge_check_output(j, error));
    TRY(likelihood_open(&j->likelihood, j->config, j->arguments->operands.item[0], error));
    if (*c->output && !(j->output = fopen(c->output, "w")))
        FAIL(TRIREME_ERROR_USAGE, "eval.output=%s: cannot be written there: %s", c->output, strerror(errno));
    return TRIREME_OK;
}

static trireme_status judge_all(struct judge *j, trireme_error *error) {
    const bool asks = *j->config->eval.multiple_choice;
    struct text out = {0};
    TRY(judge_open(j, error));
    TRY(asks ? judge_questions(j, error) : judge_texts(j, error));
    if (j->output && fflush(j->output))
        FAIL(TRIREME_ERROR_IO, "%s: cannot write: %s", j->config->eval.output, strerror(errno));
    progress_clear();
    if (j->arguments->json)
        json_begin_object(&out, NULL);
    if (asks)
        judge_report_questions(j, &out);
    else
        judge_report_texts(j, &out);
    if (j->arguments->json) {
        json_end_object(&out);
        text_add(&out, "\n");
    }
    trireme_status status = print_text(&out, error);
    text_release(&out);
    return status;
}

static const char KEYS[] = "eval.* training.seq_len training.dtype training.kernels training.threads lora.base_model";

trireme_status eval_texts(const struct arguments *a, const struct config *config, const atomic_bool *stop,
                          trireme_error *error) {
    struct judge j = {.config = config, .arguments = a, .stop = stop};
    struct launcher launcher = launcher_find();
    const int processes = launcher_processes(&launcher);
    trireme_status status = config_expect(config, KEYS, "eval with eval.multiple_choice or eval.text", error);
    if (status == TRIREME_OK && processes > 1)
        status = error_set(error, TRIREME_ERROR_USAGE,
                           "eval.multiple_choice and eval.text take one process, and there are %d", processes);
    if (status != TRIREME_OK)
        return arguments_refuse(a, status, error);
    status = judge_all(&j, error);
    progress_clear();
    if (j.output)
        fclose(j.output);
    likelihood_release(&j.likelihood);
    questions_release(&j.questions);
    document_files_release(&j.files);
    text_release(&j.line);
    text_release(&j.document);
    return status;
}
