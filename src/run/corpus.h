// The tokens of a run: token files, the tokenizer that made them, the sampler over them.
#ifndef RUN_CORPUS_H
#define RUN_CORPUS_H

#include "config/config.h"
#include "data/sampler.h"
#include "data/token_manifest.h"
#include "engine/engine.h"

struct corpus {
    struct token_set *set, *validation_set;             // the second only with data.validation_path
    struct tokenizer *tokenizer, *validation_tokenizer; // NULL for token files that name none
    struct sampler train, validation;
    bool has_validation;
};

// Opens the files of config->data. On failure there is nothing to close.
trireme_status corpus_open(struct corpus *corpus, const struct config *config, trireme_error *error);
// Makes the samplers, once the model's vocabulary is known. Refuses data in which no token is a target.
trireme_status corpus_sample(struct corpus *corpus, const struct config *config, int64_t vocab_size, bool evaluate_only,
                             trireme_error *error);
void corpus_close(struct corpus *corpus);
// The tokenizer's number of tokens; 0 without a tokenizer.
int64_t corpus_vocab_size(const struct corpus *corpus);
// Refuses tokens made by another tokenizer than that of the model in `directory` ("": no model), where both are known.
trireme_status corpus_check_model(const struct corpus *corpus, const struct config *config, const char *directory,
                                  trireme_error *error);
// Appends the number of tokens and a hash, in words, that identify these tokens. In sets of more than 64M tokens only a
// sample is hashed.
trireme_status corpus_identify(const struct token_set *set, struct text *out, trireme_error *error);
// CORRUPT where a file of the training data was written to since it was opened, and `identity` no longer ends with what
// corpus_identify appends now.
trireme_status corpus_check_unchanged(const struct corpus *corpus, const char *identity, trireme_error *error);

// Fills the inputs of the engine's programs with global batch `step` (from 0).
trireme_status corpus_fill_train(const struct corpus *corpus, struct engine *engine, int64_t step,
                                 trireme_error *error);

struct corpus_loss {
    double loss; // nats per target
    int64_t targets;
    int64_t text_bytes; // bytes of text that the targets of this rank stand for; 0 without a tokenizer
};
// Called before each batch with how many of `total` are done. Its failure ends the validation, on all ranks alike: it
// returns TRIREME_ERROR_INTERRUPTED to stop.
typedef trireme_status corpus_goes_on(void *user, int64_t done, int64_t total, trireme_error *error);
// The mean loss over the first `batches` global batches of the validation part (0: all). `goes_on` as above.
// TRIREME_ERROR_USAGE where they have no target.
trireme_status corpus_validate(const struct corpus *corpus, struct engine *engine, int64_t batches,
                               struct corpus_loss *out, corpus_goes_on *goes_on, void *user, trireme_error *error);

#endif
