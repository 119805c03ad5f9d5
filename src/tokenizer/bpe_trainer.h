// Trains a byte-level BPE tokenizer on text: counts the pieces into which the text is cut, on all cores, then learns
// merges from the counts (bpe_merges.h). Memory is bounded by distinct pieces, not by text.
//
// The result is that of BpeTrainer of `tokenizers` over the pre-tokenizer ByteLevel, or Split and ByteLevel, given each
// text as a whole (train_from_iterator; its `train` cuts files into lines before).
#ifndef TOKENIZER_BPE_TRAINER_H
#define TOKENIZER_BPE_TRAINER_H

#include "tokenizer/tokenizer_parts.h"

struct bpe_trainer;

struct bpe_trainer_options {
    const char *pattern; // by which text is cut (split_patterns.h)
    int32_t vocab_size;  // special tokens, bytes and merges
    int64_t min_frequency;
    const char *const *special; // tokens that are no text, in order of id, the first ids; none twice
    size_t special_count;
    int threads;
};

// Options are borrowed. USAGE: the pattern is none, or vocab_size has no room for special tokens and bytes.
trireme_status bpe_trainer_create(struct bpe_trainer **out, const struct bpe_trainer_options *options,
                                  trireme_error *error);
void bpe_trainer_free(struct bpe_trainer *t);
// Adds a piece of a text, which is UTF-8 as a whole. Fails where the pattern takes too long.
trireme_status bpe_trainer_add(struct bpe_trainer *t, const char *text, size_t length, trireme_error *error);
// Ends a text: nothing is merged beyond it.
trireme_status bpe_trainer_end_text(struct bpe_trainer *t, trireme_error *error);

// Learns the merges. The caller releases *out. INTERRUPTED: `progress`, which is called now and then with the number of
// tokens so far, and may be NULL, has returned false.
trireme_status bpe_trainer_finish(struct bpe_trainer *t, bool (*progress)(void *user, int32_t tokens), void *user,
                                  struct tokenizer_parts *out, trireme_error *error);

#endif
