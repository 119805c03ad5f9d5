// The tokens of a run: token files, the tokenizer that made them, the sampler over them.
#ifndef RUN_CORPUS_H
#define RUN_CORPUS_H

#include "config/config.h"
#include "data/sampler.h"
#include "data/token_manifest.h"
#include "model/model.h"

// Of "training" or "validation" data.
#define CORPUS_NO_TARGETS "the %s data has no token to predict: its documents are of one token each"

struct corpus {
    struct token_set *set, *validation_set;             // the second only with data.validation_path
    struct tokenizer *tokenizer, *validation_tokenizer; // NULL for token files that name none
    struct sampler train, validation;
    bool has_validation;
};

// The key that names the tokens of a run: data.path or data.mixture.
const char *corpus_key(const struct config *config);
// Whether one of them is given.
bool corpus_given(const struct config *config);
// Opens the files of config->data. On failure there is nothing to close.
trireme_status corpus_open(struct corpus *corpus, const struct config *config, trireme_error *error);
// Makes the samplers, once the model's vocabulary is known. Refuses data in which no token is a target.
trireme_status corpus_sample(struct corpus *corpus, const struct config *config, int64_t vocab_size, bool evaluate_only,
                             trireme_error *error);
void corpus_close(struct corpus *corpus);
// The tokenizer's number of tokens; 0 without a tokenizer.
int64_t corpus_vocab_size(const struct corpus *corpus);
// Gives a model the tokens with which the tokenizer begins and ends texts: a new one where the tokenizer has them, one
// with weights, where it has none itself.
void corpus_name_ends(const struct corpus *corpus, bool new_model, struct model_config *model);
// Refuses tokens made by another tokenizer than that of the model in `directory` ("": no model), where both are known;
// unless one `continues` the other (tokenizer_continues), if that is allowed.
trireme_status corpus_check_model(const struct corpus *corpus, const struct config *config, const char *directory,
                                  bool continues, trireme_error *error);
// Appends the number of tokens and a checksum, in words, that identify these tokens and their documents. Of a large set
// without checksums, only of some. `like`: words that identified tokens before, perhaps those of an older version, to
// be compared with; NULL: none.
trireme_status corpus_identify(const struct token_set *set, const char *like, struct text *out, trireme_error *error);
// CORRUPT where a file was written to since it was opened, and what was expected of it is no longer so.
trireme_status corpus_check_unchanged(const struct corpus *corpus, trireme_error *error);

// How many batches to validate on: `asked`, 0 for all, or as many as there are.
int64_t corpus_validation_batches(const struct corpus *corpus, int64_t asked);

#endif
