#include "generate/continuation.h"

#include "ckpt/directory.h"
#include "run/checkpoint.h"
#include "tokenizer/encoder.h"

const char *text_end_word(enum text_end end) {
    static const char *const WORD[] = {[TEXT_END_EOS] = "eos",
                                       [TEXT_END_STOP] = "stop",
                                       [TEXT_END_LENGTH] = "length",
                                       [TEXT_END_INTERRUPTED] = "interrupted"};
    return WORD[end];
}

void continued_text_release(struct continued_text *t) {
    VEC_RELEASE(&t->prompt);
    VEC_RELEASE(&t->tokens);
    token_stream_release(&t->stream);
    text_release(&t->gate.held);
    text_release(&t->said);
}

// ---- opening

trireme_status continuation_open(struct continuation *c, const struct config *config, const char *path,
                                 trireme_error *error) {
    *c = (struct continuation){.config = config, .hold = -1};
    TRY(stop_strings_read(&c->stops, config, error));
    TRY(checkpoint_resolve(path, &c->directory, &c->hold, error));
    return checkpoint_load_tokenizer(&c->tokenizer, c->directory, config->lora.base_model, error);
}

trireme_status continuation_encode(const struct continuation *c, const char *prompt, size_t length,
                                   struct token_list *out, trireme_error *error) {
    struct encoder *encoder = encoder_create(c->tokenizer);
    const size_t before = out->count;
    trireme_status status = encoder_encode(encoder, prompt, length, ENCODER_PROMPT, out, error);
    if (status == TRIREME_OK && out->count == before)
        status = encoder_encode(encoder, "\n", 1, ENCODER_PROMPT, out, error);
    encoder_free(encoder);
    if (status == TRIREME_OK && out->count == before)
        FAIL(TRIREME_ERROR_USAGE, "the prompt has no tokens: give another one");
    return status;
}

trireme_status continuation_load(struct continuation *c, size_t texts, size_t longest, trireme_error *error) {
    // The last new token is not fed.
    const int64_t context = (int64_t)longest + MAX(0, c->config->generate.max_new_tokens - 1);
    TRY(generator_create(&c->generator, c->config, c->directory, c->tokenizer, (int64_t)texts, context, error));
    directory_let_go(c->hold);
    c->hold = -1;
    return TRIREME_OK;
}

void continuation_release(struct continuation *c) {
    if (c->directory)
        directory_let_go(c->hold);
    generator_free(c->generator);
    tokenizer_free(c->tokenizer);
    stop_strings_release(&c->stops);
    free(c->directory);
    *c = (struct continuation){0};
}

// ---- running

// A text that is under way.
struct running {
    const struct continuation *c;
    const struct continuation_sink *sink;
    struct continued_text *t;
    size_t number;
    bool ended;
    struct text bytes, told; // of one token
};

static trireme_status running_tell(struct running *r, trireme_error *error) {
    trireme_status status = TRIREME_OK;
    if (r->told.length) {
        text_add_bytes(&r->t->said, r->told.text, r->told.length);
        status = r->sink->add(r->sink->user, r->number, r->told.text, r->told.length, error);
    }
    r->told.length = 0;
    return status;
}

static trireme_status running_end(struct running *r, enum text_end end, trireme_error *error) {
    r->ended = true;
    r->t->end = end;
    r->t->forgotten = generator_forgotten(r->c->generator, (int64_t)r->number);
    if (end != TEXT_END_STOP)
        stop_gate_end(&r->t->gate, &r->told);
    return running_tell(r, error);
}

static trireme_status running_begin(struct running *r, trireme_error *error) {
    struct continued_text *t = r->t;
    if (t->known == 0)
        generator_begin(r->c->generator, (int64_t)r->number, t->sample);
    TRY(generator_add(r->c->generator, (int64_t)r->number, t->prompt.item + t->known, t->prompt.count - t->known,
                      error));
    t->stream.tokenizer = r->c->tokenizer;
    TRY(token_stream_add(&t->stream, t->prompt.item, t->prompt.count, &r->bytes, error));
    if (r->c->config->generate.max_new_tokens == 0)
        return running_end(r, TEXT_END_LENGTH, error);
    return TRIREME_OK;
}

// Chooses the next token of a text.
static trireme_status running_step(struct running *r, trireme_error *error) {
    struct continued_text *t = r->t;
    bool ends;
    const int32_t token = generator_choose(r->c->generator, (int64_t)r->number, &ends);
    if (ends)
        return running_end(r, TEXT_END_EOS, error);
    VEC_PUSH(&t->tokens, token);
    r->bytes.length = 0;
    TRY(token_stream_add(&t->stream, &token, 1, &r->bytes, error));
    stop_gate_add(&t->gate, &r->c->stops, r->bytes.text, r->bytes.length, &r->told);
    if (t->gate.stopped)
        return running_end(r, TEXT_END_STOP, error);
    TRY(running_tell(r, error));
    if ((int64_t)t->tokens.count == r->c->config->generate.max_new_tokens)
        return running_end(r, TEXT_END_LENGTH, error);
    return generator_add(r->c->generator, (int64_t)r->number, &token, 1, error);
}

static trireme_status running_all(const struct continuation *c, struct running *all, size_t count,
                                  const atomic_bool *stop, trireme_error *error) {
    size_t left = 0;
    for (size_t i = 0; i < count; i++) {
        TRY(running_begin(&all[i], error));
        left += !all[i].ended;
    }
    while (left > 0) {
        if (!*stop)
            TRY(generator_run(c->generator, error));
        left = 0;
        for (size_t i = 0; i < count; i++) {
            if (all[i].ended)
                continue;
            TRY(*stop ? running_end(&all[i], TEXT_END_INTERRUPTED, error) : running_step(&all[i], error));
            left += !all[i].ended;
        }
    }
    return TRIREME_OK;
}

trireme_status continuation_run(const struct continuation *c, struct continued_text *texts, size_t count,
                                const struct continuation_sink *sink, trireme_error *error) {
    struct running *all = mem_alloc(MAX(count, (size_t)1) * sizeof *all);
    for (size_t i = 0; i < count; i++)
        all[i] = (struct running){.c = c, .sink = sink, .t = &texts[i], .number = i};
    trireme_status status = running_all(c, all, count, sink->stop, error);
    for (size_t i = 0; i < count; i++) {
        text_release(&all[i].bytes);
        text_release(&all[i].told);
    }
    free(all);
    return status;
}
