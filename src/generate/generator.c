#include "generate/generator.h"

#include "base/math.h"
#include "base/rng.h"
#include "ckpt/directory.h"
#include "engine/engine.h"
#include "kernels/bf16.h"
#include "run/checkpoint.h"
#include "tokenizer/encoder.h"

#include <math.h>

enum { PREFILL_ROWS = 64 }; // tokens of a prompt that are fed at once

struct token_weight {
    double weight;
    int32_t token;
};

// The engine's programs: one for a piece of the prompt, and one for a token; without a cache, one for all tokens.
enum { PREFILL, DECODE };

struct generator {
    const struct config *config;
    struct model_config model;
    struct parallel plan;
    struct engine engine;
    int decode;      // the program that takes one token: DECODE, or PREFILL where that takes no more
    int32_t choices; // tokens below this may be chosen
    int64_t context; // tokens that may be fed
    int32_t *fed;    // [context]
    int64_t count;
    double *logits;
    struct token_weight *weights; // [logits], while a token is chosen
};

static trireme_status generator_compile(struct generator *g, trireme_error *error) {
    const bool cached = g->config->generate.cache;
    // A chunk of the prompt may end beyond the last token: leave room in the cache.
    const int64_t rows = cached ? MIN((int64_t)PREFILL_ROWS, g->context) : g->context;
    const int64_t room = cached ? g->context + rows : 0;
    const struct program_spec specs[] = {
        [PREFILL] = {.kind = PROGRAM_GENERATE, .batch = {1, rows, 1}, .context = room},
        [DECODE] = {.kind = PROGRAM_GENERATE, .batch = {1, 1, 1}, .context = room},
    };
    g->plan = parallel_single(&g->model);
    g->decode = cached && rows > 1 ? DECODE : PREFILL;
    return engine_create(&g->engine, g->config, &g->model, &g->plan,
                         (struct program_specs){.item = specs, .count = (size_t)g->decode + 1}, NULL, error);
}

static trireme_status generator_make(struct generator *g, const char *directory, size_t prompt_tokens,
                                     trireme_error *error) {
    const struct config *config = g->config;
    TRY(model_config_read(&g->model, directory, error));
    // The last new token is not fed.
    g->context = (int64_t)prompt_tokens + MAX(0, config->generate.max_new_tokens - 1);
    if (g->context > g->model.max_position_embeddings)
        FAIL(TRIREME_ERROR_USAGE,
             "generate.max_new_tokens %lld: of the model's %lld positions the prompt takes %zu, which leaves room for "
             "%lld",
             (long long)config->generate.max_new_tokens, (long long)g->model.max_position_embeddings, prompt_tokens,
             (long long)(g->model.max_position_embeddings - (int64_t)prompt_tokens + 1));
    TRY(generator_compile(g, error));
    TRY(checkpoint_load_model(&g->engine, NULL, directory, true, error));
    g->fed = mem_alloc((size_t)g->context * sizeof *g->fed);
    g->logits = mem_alloc((size_t)g->model.padded_vocab_size * sizeof *g->logits);
    g->weights = mem_alloc((size_t)g->model.padded_vocab_size * sizeof *g->weights);
    return TRIREME_OK;
}

static trireme_status generator_fit(struct continuation *c, struct config *config, trireme_error *error) {
    const size_t prompt_tokens = c->prompt.count;
    struct model_config model;
    TRY(model_config_read(&model, c->directory, error));
    int64_t left = model.max_position_embeddings - (int64_t)prompt_tokens + 1; // the last takes no position
    if (left < 1)
        FAIL(TRIREME_ERROR_USAGE,
             "the prompt has %zu tokens, and the model %lld positions, which leaves none to write: shorten the prompt",
             prompt_tokens, (long long)model.max_position_embeddings);
    c->lowered = left < config->generate.max_new_tokens && !config_is_set(config, "generate.max_new_tokens");
    if (c->lowered)
        config->generate.max_new_tokens = left;
    return TRIREME_OK;
}

trireme_status generator_create(struct generator **out, const struct config *config, const char *directory,
                                const struct tokenizer *tokenizer, size_t prompt_tokens, trireme_error *error) {
    struct generator *g = mem_alloc(sizeof *g);
    *g = (struct generator){.config = config};
    trireme_status status = generator_make(g, directory, prompt_tokens, error);
    if (status != TRIREME_OK) {
        generator_free(g);
        return status;
    }
    g->choices = (int32_t)g->model.vocab_size;
    if (tokenizer)
        g->choices = MIN(g->choices, tokenizer_vocab_size(tokenizer));
    *out = g;
    return TRIREME_OK;
}

void generator_free(struct generator *g) {
    if (!g)
        return;
    engine_release(&g->engine);
    free(g->fed);
    free(g->logits);
    free(g->weights);
    free(g);
}

// Runs tokens [first, first + count) of g->fed through a program that has at least `count` rows, and takes the last
// token's logits.
static trireme_status generator_run(struct generator *g, int program, int64_t first, int64_t count,
                                    trireme_error *error) {
    const struct engine_program *p = &g->engine.programs.item[program];
    const struct compiled *c = p->compiled;
    const struct executor *executor = p->executor;
    const enum dtype dtype = g->engine.stage->state.dtype;
    int64_t rows = c->spec.batch.seq_len;
    int32_t *tokens = executor_address(executor, c->tokens, 0),
            *positions = executor_address(executor, c->positions, 0);
    for (int64_t i = 0; i < rows; i++) {
        tokens[i] = i < count ? g->fed[first + i] : 0;
        // Rows beyond the last token compute something that nobody reads.
        positions[i] = i < count ? (int32_t)(first + i) : 0;
    }
    if (c->starts != NONE)
        memset(executor_address(executor, c->starts, 0), 0, (size_t)rows * sizeof(int32_t));
    if (c->at != NONE)
        *(int32_t *)executor_address(executor, c->at, 0) = (int32_t)first;
    *(int32_t *)executor_address(executor, c->row, 0) = (int32_t)count - 1;
    TRY(engine_run(&g->engine, p, NULL, error));
    const void *logits = executor_address(executor, c->logits, 0);
    bool finite = true;
    for (int64_t i = 0; i < g->model.vocab_size; i++) {
        g->logits[i] = dtype == DTYPE_F64    ? ((const double *)logits)[i]
                       : dtype == DTYPE_BF16 ? bf16_to_float(((const uint16_t *)logits)[i])
                                             : ((const float *)logits)[i];
        finite = finite && isfinite(g->logits[i]);
    }
    if (!finite)
        FAIL(TRIREME_ERROR_DIVERGED,
             "what the model says of the token at position %lld is not finite: its weights are no model's",
             (long long)(first + count));
    return TRIREME_OK;
}

trireme_status generator_feed(struct generator *g, const int32_t *tokens, size_t count, trireme_error *error) {
    CHECK(count > 0);
    if (g->count + (int64_t)count > g->context)
        FAIL(TRIREME_ERROR_USAGE, "more tokens than the %lld that there is room for", (long long)g->context);
    for (size_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || tokens[i] >= g->model.vocab_size)
            FAIL(TRIREME_ERROR_USAGE, "token %d is not in the model's vocabulary of %lld", tokens[i],
                 (long long)g->model.vocab_size);
        g->fed[g->count + (int64_t)i] = tokens[i];
    }
    int64_t at = g->count;
    g->count += (int64_t)count;
    if (!g->config->generate.cache)
        return generator_run(g, PREFILL, 0, g->count, error);
    while (at < g->count) {
        int64_t n = MIN(g->count - at, (int64_t)PREFILL_ROWS);
        n = MIN(n, g->context);
        TRY(generator_run(g, n == 1 ? g->decode : PREFILL, at, n, error));
        at += n;
    }
    return TRIREME_OK;
}

// ---- choosing

static int compare_weights(const void *a, const void *b) {
    const struct token_weight *x = a, *y = b;
    return COMPARE(y->weight, x->weight) ?: COMPARE(x->token, y->token);
}

// Chooses a token by the logits and `uniform`, in [0, 1). Temperature 0 takes the largest.
static int32_t choose_token(struct generator *g, double uniform) {
    const struct config_generate *how = &g->config->generate;
    const double *logits = g->logits;
    const int32_t count = g->choices;
    struct token_weight *weights = g->weights;
    int32_t best = 0;
    for (int32_t i = 1; i < count; i++)
        if (logits[i] > logits[best])
            best = i;
    if (how->temperature == 0)
        return best;
    for (int32_t i = 0; i < count; i++)
        weights[i] = (struct token_weight){math_exp((logits[i] - logits[best]) / how->temperature), i};
    qsort(weights, (size_t)count, sizeof *weights, compare_weights);
    int64_t kept = how->top_k > 0 ? MIN(how->top_k, (int64_t)count) : count;
    double total = 0;
    for (int64_t i = 0; i < kept; i++)
        total += weights[i].weight;
    // Nucleus sampling (Holtzman et al. 2020): keeps the fewest of the likeliest tokens that together reach top_p.
    double nucleus = 0;
    for (int64_t i = 0; i < kept; i++) {
        nucleus += weights[i].weight;
        if (nucleus >= how->top_p * total) {
            kept = i + 1;
            break;
        }
    }
    double at = uniform * nucleus;
    for (int64_t i = 0; i < kept; i++) {
        at -= weights[i].weight;
        if (at < 0)
            return weights[i].token;
    }
    return weights[kept - 1].token;
}

int32_t generator_choose(struct generator *g, bool *end) {
    const struct config_generate *c = &g->config->generate;
    double uniform = rng_uniform((uint64_t)c->seed, rng_stream("generate"), (uint64_t)g->count);
    int32_t token = choose_token(g, uniform);
    *end = token == g->model.eos_token_id;
    for (int i = 0; i < g->model.more_eos; i++)
        *end |= token == g->model.more_eos_token_id[i];
    return token;
}

// ---- a whole text

// A prompt without text is what the tokenizer puts before a text; where that is nothing, the end of a line.
static trireme_status continuation_encode(struct continuation *c, const char *prompt, size_t length,
                                          trireme_error *error) {
    struct encoder *encoder = encoder_create(c->tokenizer);
    trireme_status status = encoder_encode(encoder, prompt, length, ENCODER_PROMPT, &c->prompt, error);
    if (status == TRIREME_OK && c->prompt.count == 0)
        status = encoder_encode(encoder, "\n", 1, ENCODER_PROMPT, &c->prompt, error);
    encoder_free(encoder);
    if (status == TRIREME_OK && c->prompt.count == 0)
        FAIL(TRIREME_ERROR_USAGE, "the prompt has no tokens: give another one");
    return status;
}

trireme_status continuation_open(struct continuation *c, struct config *config, const char *path, const char *prompt,
                                 size_t length, trireme_error *error) {
    c->config = config;
    int hold;
    TRY(checkpoint_resolve(path, &c->directory, &hold, error));
    trireme_status status = tokenizer_load(c->directory, &c->tokenizer, error);
    if (status == TRIREME_OK)
        status = continuation_encode(c, prompt, length, error);
    if (status == TRIREME_OK)
        status = generator_fit(c, config, error);
    if (status == TRIREME_OK)
        status = generator_create(&c->generator, config, c->directory, c->tokenizer, c->prompt.count, error);
    directory_let_go(hold);
    return status;
}

void continuation_release(struct continuation *c) {
    generator_free(c->generator);
    tokenizer_free(c->tokenizer);
    VEC_RELEASE(&c->prompt);
    free(c->directory);
    *c = (struct continuation){0};
}

trireme_status continuation_run(const struct continuation *c, const struct continuation_sink *sink,
                                trireme_error *error) {
    const int64_t most = c->config->generate.max_new_tokens;
    TRY(generator_feed(c->generator, c->prompt.item, c->prompt.count, error));
    TRY(sink->add(sink->user, c->prompt.item, c->prompt.count, error));
    for (int64_t i = 0; i < most && !*sink->stop; i++) {
        bool end;
        int32_t token = generator_choose(c->generator, &end);
        if (end)
            break;
        TRY(sink->add(sink->user, &token, 1, error));
        if (i + 1 < most && !*sink->stop)
            TRY(generator_feed(c->generator, &token, 1, error));
    }
    return TRIREME_OK;
}
