#include "run/corpus.h"

#include "base/hash.h"
#include "run/checkpoint.h"

static trireme_status corpus_find_tokenizer(const struct token_set *set, struct tokenizer **out, trireme_error *error) {
    struct token_manifest manifest;
    bool found;
    TRY(token_manifest_of_set(set, &manifest, &found, error));
    return found ? token_manifest_tokenizer(&manifest, token_set_shard_path(set, 0), out, error) : TRIREME_OK;
}

// Refuses token files that name another tokenizer than the one with which `trireme prepare` has made the `prepared`
// files of the same corpus.
static trireme_status check_named(const struct token_set *named, const struct token_set *prepared,
                                  const struct tokenizer *tokenizer, trireme_error *error) {
    const char *name = token_set_tokenizer(named);
    if (name && tokenizer)
        FAIL(TRIREME_ERROR_USAGE,
             "%s holds tokens of %s, but %s those of the %s tokenizer: a run has tokens of one tokenizer",
             token_set_shard_path(named, 0), name, token_set_shard_path(prepared, 0), tokenizer_kind(tokenizer));
    return TRIREME_OK;
}

const char *corpus_key(const struct config *config) {
    return *config->data.mixture ? "data.mixture" : "data.path";
}

bool corpus_given(const struct config *config) {
    return *config->data.path || *config->data.mixture;
}

// Opens the tokens that a key names; where there are none, the key is named too.
static trireme_status open_tokens(const struct config *config, const char *key, const char *path,
                                  struct token_set **out, trireme_error *error) {
    trireme_status status = token_set_open(path, out, error);
    if (status == TRIREME_ERROR_USAGE)
        error_prefix(error, status, "%s: %s", config_origin(config, key), key);
    return status;
}

// Opens the sources of data.mixture.
static trireme_status open_mixture(const struct config *config, struct token_set **out, trireme_error *error) {
    struct mixture mixture;
    if (*config->data.path)
        return config_refuse(config, "data.mixture", error, "but data.path is given, too: give one of them");
    trireme_status status = mixture_parse(config->data.mixture, &mixture, error);
    if (status == TRIREME_OK) {
        status = token_set_open_sources((const char *const *)mixture.path, mixture.count, out, error);
        mixture_release(&mixture);
    }
    if (status == TRIREME_ERROR_USAGE)
        error_prefix(error, status, "%s: data.mixture", config_origin(config, "data.mixture"));
    return status;
}

trireme_status corpus_open(struct corpus *c, const struct config *config, trireme_error *error) {
    *c = (struct corpus){0};
    if (!corpus_given(config))
        FAIL(TRIREME_ERROR_USAGE, "data.path is not given: the prefix of token files that `trireme prepare` wrote");
    trireme_status status = *config->data.mixture ? open_mixture(config, &c->set, error)
                                                  : open_tokens(config, "data.path", config->data.path, &c->set, error);
    if (status == TRIREME_OK && *config->data.validation_path)
        status = open_tokens(config, "data.validation_path", config->data.validation_path, &c->validation_set, error);
    if (status == TRIREME_OK && c->validation_set)
        status = token_set_same_tokenizer(c->set, c->validation_set, error);
    if (status == TRIREME_OK)
        status = corpus_find_tokenizer(c->set, &c->tokenizer, error);
    if (status == TRIREME_OK && c->validation_set)
        status = corpus_find_tokenizer(c->validation_set, &c->validation_tokenizer, error);
    if (status == TRIREME_OK && c->validation_set)
        status = check_named(c->set, c->validation_set, c->validation_tokenizer, error);
    if (status == TRIREME_OK && c->validation_set)
        status = check_named(c->validation_set, c->set, c->tokenizer, error);
    if (status != TRIREME_OK)
        corpus_close(c);
    return status;
}

void corpus_close(struct corpus *c) {
    if (c->validation.source[0].row[0] != c->train.source[0].row[0])
        sampler_release(&c->validation);
    sampler_release(&c->train);
    token_set_close(c->set);
    token_set_close(c->validation_set);
    tokenizer_free(c->tokenizer);
    tokenizer_free(c->validation_tokenizer);
    *c = (struct corpus){0};
}

int64_t corpus_vocab_size(const struct corpus *c) {
    return c->tokenizer ? tokenizer_vocab_size(c->tokenizer) : 0;
}

void corpus_name_ends(const struct corpus *c, bool new_model, struct model_config *model) {
    if (!c->tokenizer)
        return;
    const int32_t bos = tokenizer_bos(c->tokenizer), eos = tokenizer_eos(c->tokenizer);
    if (bos >= 0 && (new_model || model->bos_token_id < 0))
        model->bos_token_id = bos;
    if (eos >= 0 && (new_model || model->eos_token_id < 0))
        model->eos_token_id = eos;
}

// Whether a model's tokens are bytes. Token files that name their tokenizer never name that one.
static bool has_bytes(const char *directory) {
    struct tokenizer *t = NULL;
    bool has = *directory && tokenizer_load(directory, &t, NULL) == TRIREME_OK;
    has = has && strcmp(tokenizer_kind(t), "bytes") == 0;
    tokenizer_free(t);
    return has;
}

static trireme_status corpus_check_tokenizer(const struct corpus *c, const struct config *config, const char *directory,
                                             bool continues, trireme_error *error) {
    const struct {
        const char *key;
        const struct token_set *set;
        const struct tokenizer *tokenizer;
    } OF[] = {{corpus_key(config), c->set, c->tokenizer},
              {"data.validation_path", c->validation_set, c->validation_tokenizer}};
    for (size_t i = 0; i < ARRAY_LENGTH(OF) && OF[i].set; i++) {
        char why[200];
        const char *name = token_set_tokenizer(OF[i].set);
        if (name && has_bytes(directory))
            return config_refuse(config, OF[i].key, error,
                                 "whose tokens are those of %s, but the model in %s has another tokenizer: use token "
                                 "files made with its own, or remove its tokenizer.json to train it on these tokens",
                                 name, directory);
        if (OF[i].tokenizer && *directory && tokenizer_differs(OF[i].tokenizer, directory, why) &&
            !(continues && tokenizer_continues(OF[i].tokenizer, directory)))
            return config_refuse(config, OF[i].key, error,
                                 "whose tokens are those of the %s tokenizer, but the model in %s has another (%s): "
                                 "use token files made with its own, or remove its tokenizer.json to train it on these "
                                 "tokens",
                                 tokenizer_kind(OF[i].tokenizer), directory, why);
    }
    return TRIREME_OK;
}

trireme_status corpus_check_model(const struct corpus *c, const struct config *config, const char *directory,
                                  bool continues, trireme_error *error) {
    char *tokenizer;
    TRY(checkpoint_tokenizer(&tokenizer, directory, config->lora.base_model, error));
    const trireme_status status = corpus_check_tokenizer(c, config, tokenizer, continues, error);
    free(tokenizer);
    return status;
}

int64_t corpus_validation_batches(const struct corpus *c, int64_t asked) {
    int64_t all = sampler_validation_batches(&c->validation);
    return asked ? MIN(asked, all) : all;
}

// Reads the tokens that a run will validate on, and so finds now what would end the run later. It takes little time
// compared with a validation.
static trireme_status corpus_check_validation(const struct corpus *c, const struct config *config,
                                              trireme_error *error) {
    int64_t rows = config->training.global_batch_size, batches = corpus_validation_batches(c, config->validation.steps);
    size_t bytes = (size_t)config->training.seq_len * sizeof(int32_t);
    struct sampler_batch row = {{PLACES_CONTIGUOUS, 1, config->training.seq_len},
                                0,
                                mem_alloc(bytes),
                                mem_alloc(bytes),
                                mem_alloc(bytes),
                                mem_alloc(bytes)};
    trireme_status status = TRIREME_OK;
    int64_t targets = 0;
    for (int64_t i = 0; i < batches * rows && status == TRIREME_OK; i++) {
        struct sampler_counts counts = {0};
        status = sampler_fill(&c->validation, SAMPLER_VALIDATION, i / rows, i % rows, 1, &row, &counts, error);
        targets += counts.targets;
    }
    free(row.tokens);
    free(row.targets);
    free(row.starts);
    free(row.positions);
    return status == TRIREME_OK && targets == 0 ? error_set(error, TRIREME_ERROR_USAGE, CORPUS_NO_TARGETS, "validation")
                                                : status;
}

static bool corpus_packs_whole(const struct config *config, const struct token_set *set) {
    return config->data.packing == CONFIG_PACKING_WHOLE ||
           (config->data.packing == CONFIG_PACKING_AUTO && token_set_is_masked(set));
}

trireme_status corpus_sample(struct corpus *c, const struct config *config, int64_t vocab_size, bool evaluate_only,
                             trireme_error *error) {
    struct sampler_options options = {.seed = (uint64_t)config->training.seed,
                                      .seq_len = config->training.seq_len,
                                      .global_batch_size = config->training.global_batch_size,
                                      .vocab_size = (int32_t)vocab_size,
                                      .validation_fraction = config->data.split[1],
                                      .evaluate_only = evaluate_only,
                                      .whole = corpus_packs_whole(config, c->set),
                                      .tokenizer = c->tokenizer};
    if (evaluate_only && options.validation_fraction == 0)
        options.validation_fraction = 1;
    if (!evaluate_only && options.validation_fraction == 1)
        return config_refuse(config, "data.split", error, "but that leaves nothing to train on");
    struct mixture mixture = {0}; // corpus_open has read it already
    if (*config->data.mixture)
        TRY(mixture_parse(config->data.mixture, &mixture, error));
    options.weight = mixture.count ? mixture.weight : NULL;
    trireme_status status = TRIREME_OK;
    if (!evaluate_only || !c->validation_set)
        status = sampler_init(&c->train, c->set, &options, error);
    mixture_release(&mixture);
    TRY(status);
    options.weight = NULL;
    bool trains = true;
    if (!evaluate_only)
        TRY(sampler_has_targets(&c->train, SAMPLER_TRAIN, &trains, error));
    if (!trains)
        FAIL(TRIREME_ERROR_USAGE, CORPUS_NO_TARGETS, "training");
    c->validation = c->train;
    c->has_validation = options.validation_fraction > 0;
    if (c->validation_set) {
        options.validation_fraction = 1;
        options.whole = corpus_packs_whole(config, c->validation_set);
        options.tokenizer = c->validation_tokenizer;
        c->has_validation = true;
        TRY(sampler_init(&c->validation, c->validation_set, &options, error));
    }
    return c->has_validation && !evaluate_only ? corpus_check_validation(c, config, error) : TRIREME_OK;
}

// As runs were identified before there were checksums: by all tokens, or 4,096 times 4,096 of more than 64M. What tells
// documents apart does not count.
static trireme_status identify_as_before(const struct token_set *set, struct text *out, trireme_error *error) {
    enum { PIECE = 4096, PIECES = 4096, ALL = 4 * PIECES };
    int64_t tokens = token_set_tokens(set), pieces = divide_up(tokens, PIECE), apart = PIECE;
    bool all = pieces <= ALL;
    if (!all) {
        pieces = PIECES;
        apart = tokens / PIECES;
    }
    uint64_t hash = HASH_NOTHING;
    for (int64_t i = 0; i < pieces; i++) {
        int64_t begin = apart * i, end = MIN(begin + PIECE, tokens);
        int32_t piece[PIECE];
        TRY(token_set_read(set, begin, end, INT32_MAX, piece, error));
        for (int64_t k = 0; k < end - begin; k++)
            hash = hash_add(hash, (uint32_t)piece[k]);
    }
    text_add(out, "%lld tokens with a hash of %s %016llx", (long long)tokens, all ? "all" : "some",
             (unsigned long long)hash);
    return TRIREME_OK;
}

trireme_status corpus_identify(const struct token_set *set, const char *like, struct text *out, trireme_error *error) {
    if (like && strstr(like, " with a hash of "))
        return identify_as_before(set, out, error);
    bool all = like ? strstr(like, " with a checksum of all ") != NULL : token_set_is_known(set);
    uint64_t checksum;
    TRY(token_set_checksum(set, all, &checksum, error));
    all = like ? all : token_set_is_known(set); // those of a small set are known now
    text_add(out, "%lld tokens with a checksum of %s %016llx", (long long)token_set_tokens(set), all ? "all" : "some",
             (unsigned long long)checksum);
    return TRIREME_OK;
}

trireme_status corpus_check_unchanged(const struct corpus *c, trireme_error *error) {
    TRY(token_set_check_unchanged(c->set, error));
    return c->validation_set ? token_set_check_unchanged(c->validation_set, error) : TRIREME_OK;
}
