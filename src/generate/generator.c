#include "generate/generator.h"

#include "base/json.h"
#include "base/rng.h"
#include "generate/decoding.h"
#include "generate/token_choice.h"

enum { ROWS_AT_ONCE = 64 }; // tokens that are fed at once, over all texts

// The programs: for a piece of each text, and for a token of each.
enum { PIECES, TOKENS, PROGRAMS };

struct generator_text {
    int32_t *window;           // [context]: the tokens that it sees
    int64_t count, fed;        // of them; in the cache
    int64_t tokens, forgotten; // of the whole text
    uint64_t random;           // stream of its random numbers
    double *logits;            // [vocab_size], after its last token
    bool *seen;                // [vocab_size]: which tokens it has
};

struct generator {
    const struct config *config;
    struct decoding decoding;
    int64_t context;
    int32_t choices;              // tokens below this may be chosen
    int32_t bos;                  // -1: none
    VEC(int64_t) ends;            // tokens that end texts
    struct generator_text *texts; // [decoding.texts]
    struct decoding_part *parts;  // the same
    struct token_chances chances;
};

// ---- making

// Adds the eos_token_id of generation_config.json, a number or a list, where there is one.
static trireme_status generator_read_ends(struct generator *g, const char *directory, trireme_error *error) {
    enum { LIMIT = 1 << 20 };
    json_t *root = NULL;
    char *path = mem_printf("%s/generation_config.json", directory);
    trireme_status status = file_missing(path) ? TRIREME_OK : json_parse_file(path, LIMIT, &root, error);
    const json_t *ids = json_object_get(root, "eos_token_id");
    for (size_t i = 0; i < json_array_size(ids); i++)
        if (json_is_integer(json_array_get(ids, i)))
            VEC_PUSH(&g->ends, json_integer_value(json_array_get(ids, i)));
    if (json_is_integer(ids))
        VEC_PUSH(&g->ends, json_integer_value(ids));
    json_decref(root);
    free(path);
    return status;
}

static trireme_status generator_open(struct generator *g, const char *directory, const struct tokenizer *tokenizer,
                                     int64_t texts, trireme_error *error) {
    struct model_config model;
    TRY(model_config_read_on(&model, directory, g->config->lora.base_model, error));
    g->context = MIN(g->context, model.max_position_embeddings);
    if (g->config->generate.context_length > 0)
        g->context = MIN(g->context, g->config->generate.context_length);
    const int64_t rows = MIN(MAX(1, ROWS_AT_ONCE / texts), g->context);
    const struct decoding_program programs[PROGRAMS] = {[PIECES] = {.rows = rows}, [TOKENS] = {.rows = 1}};
    TRY(decoding_open(&g->decoding, g->config, directory, texts, g->context, programs, rows > 1 ? PROGRAMS : 1, error));
    const size_t vocab_size = (size_t)model.vocab_size;
    g->choices = (int32_t)(tokenizer ? MIN(model.vocab_size, tokenizer_vocab_size(tokenizer)) : model.vocab_size);
    g->bos = tokenizer ? tokenizer_bos(tokenizer) : -1;
    VEC_PUSH(&g->ends, model.eos_token_id);
    for (int i = 0; i < model.more_eos; i++)
        VEC_PUSH(&g->ends, model.more_eos_token_id[i]);
    if (tokenizer)
        VEC_PUSH(&g->ends, tokenizer_eos(tokenizer));
    g->parts = mem_alloc((size_t)texts * sizeof *g->parts);
    g->texts = mem_alloc((size_t)texts * sizeof *g->texts);
    for (int64_t i = 0; i < texts; i++) {
        g->texts[i].window = mem_alloc((size_t)g->context * sizeof *g->texts[i].window);
        g->texts[i].logits = mem_alloc(vocab_size * sizeof *g->texts[i].logits);
        g->texts[i].seen = mem_alloc(vocab_size * sizeof *g->texts[i].seen);
    }
    // Adapters say nothing of ends.
    return generator_read_ends(g, model.lora.rank > 0 ? model.lora.base : directory, error);
}

trireme_status generator_create(struct generator **out, const struct config *config, const char *directory,
                                const struct tokenizer *tokenizer, int64_t texts, int64_t context,
                                trireme_error *error) {
    struct generator *g = mem_alloc(sizeof *g);
    *g = (struct generator){.config = config, .context = context};
    trireme_status status = generator_open(g, directory, tokenizer, texts, error);
    if (status == TRIREME_OK)
        *out = g;
    else
        generator_free(g);
    return status;
}

void generator_free(struct generator *g) {
    if (!g)
        return;
    for (int64_t i = 0; g->texts && i < g->decoding.texts; i++) {
        free(g->texts[i].window);
        free(g->texts[i].logits);
        free(g->texts[i].seen);
    }
    decoding_release(&g->decoding);
    free(g->texts);
    free(g->parts);
    VEC_RELEASE(&g->ends);
    token_chances_release(&g->chances);
    free(g);
}

int64_t generator_context(const struct generator *g) {
    return g->context;
}

// ---- texts

void generator_begin(struct generator *g, int64_t text, int64_t sample) {
    struct generator_text *t = &g->texts[text];
    t->count = t->fed = t->tokens = t->forgotten = 0;
    t->random = rng_stream("generate") + (uint64_t)sample;
    memset(t->seen, 0, (size_t)g->decoding.model.vocab_size * sizeof *t->seen);
}

// Makes room for `count` more tokens, at most the context, by forgetting the earliest: half of the room that these
// leave stays free.
static void text_slide(const struct generator *g, struct generator_text *t, int64_t count) {
    const int64_t begins = t->count > 0 && t->window[0] == g->bos && count < g->context;
    const int64_t left = MAX(begins, (g->context - count) / 2), moved = left - begins;
    memmove(t->window + begins, t->window + t->count - moved, (size_t)moved * sizeof *t->window);
    t->forgotten += t->count - left;
    t->count = left;
    t->fed = MIN(t->fed, begins);
}

trireme_status generator_add(struct generator *g, int64_t text, const int32_t *tokens, size_t count,
                             trireme_error *error) {
    struct generator_text *t = &g->texts[text];
    int64_t n = (int64_t)count;
    TRY(decoding_check(&g->decoding, tokens, count, error));
    for (size_t i = 0; i < count; i++)
        t->seen[tokens[i]] = true;
    t->tokens += n;
    if (t->count == 0 && n > 0 && tokens[0] == g->bos) {
        t->window[t->count++] = *tokens++;
        n--;
    }
    // Of more than a text can see, the last part.
    const int64_t over = MAX(0, n - MAX(1, g->context - (t->count > 0 && t->window[0] == g->bos)));
    tokens += over;
    n -= over;
    t->forgotten += over;
    if (t->count + n > g->context)
        text_slide(g, t, n);
    memcpy(t->window + t->count, tokens, (size_t)n * sizeof *tokens);
    t->count += n;
    return TRIREME_OK;
}

trireme_status generator_run(struct generator *g, trireme_error *error) {
    const bool cached = g->decoding.cached;
    const int64_t rows = cached ? g->decoding.rows : g->context;
    for (;;) {
        int64_t most = 0;
        for (int64_t i = 0; i < g->decoding.texts; i++) {
            struct generator_text *t = &g->texts[i];
            const int64_t at = t->fed == t->count ? t->fed : decoding_resume(&g->decoding, i, t->fed);
            g->parts[i] = (struct decoding_part){t->window + at, at, MIN(t->count - at, rows)};
            most = MAX(most, g->parts[i].count);
        }
        if (most == 0)
            return TRIREME_OK;
        const size_t program = cached && most == 1 && rows > 1 ? TOKENS : PIECES;
        TRY(decoding_run(&g->decoding, program, g->parts, error));
        for (int64_t i = 0; i < g->decoding.texts; i++) {
            struct generator_text *t = &g->texts[i];
            t->fed = g->parts[i].at + g->parts[i].count;
            if (g->parts[i].count > 0 && t->fed == t->count)
                TRY(decoding_logits(&g->decoding, program, i, t->logits, error));
        }
    }
}

void generator_end_with(struct generator *g, int32_t token) {
    VEC_PUSH(&g->ends, token);
}

int64_t generator_forgotten(const struct generator *g, int64_t text) {
    return g->texts[text].forgotten;
}

int32_t generator_choose(struct generator *g, int64_t text, bool *end) {
    const struct generator_text *t = &g->texts[text];
    const struct config_generate *how = &g->config->generate;
    token_chances_make(&g->chances, how, t->logits, g->choices, t->seen);
    const double uniform = rng_uniform((uint64_t)how->seed, t->random, (uint64_t)t->tokens);
    const int32_t token = token_chances_take(&g->chances, uniform);
    *end = false;
    for (size_t i = 0; i < g->ends.count; i++)
        *end |= token == g->ends.item[i];
    return token;
}
