// Normalizers, pre-tokenizers and decoders are chains of steps, each of a type that tokenizer.json names. Each of the
// three has a table of types, whose rows begin with this structure; here is what their reading has in common.
#ifndef TOKENIZER_STEP_TYPES_H
#define TOKENIZER_STEP_TYPES_H

#include "base/json.h"

struct step_type {
    const char *name;    // as "type" has it
    const char *members; // that it may have beside "type"; separated by spaces
};

// The steps that may stand in a chain, sequences within sequences counted out.
enum { STEPS_IN_CHAIN_MAX = 256 };
// A text may become so many times as long, and some bytes more. Nothing that is of use comes near; hostile steps double
// a text again and again.
enum { STEPS_GROWTH_MAX = 64, STEPS_GROWTH_BYTES = 1 << 20 };
// The bytes that may become of `length`.
static inline size_t steps_limit(size_t length) {
    return length * STEPS_GROWTH_MAX + STEPS_GROWTH_BYTES;
}
// USAGE: what `kind` makes of a text is longer than that.
trireme_status steps_refuse_growth(const char *kind, trireme_error *error);

// What a chain is made of.
struct step_kind {
    const char *name;              // "normalizer": for messages
    const char *sequence;          // the member of "Sequence" that lists the steps
    const struct step_type *first; // of `count` rows of `stride` bytes each; those after the first are reached by it
    size_t count, stride;
};

// Calls add(user, row, step) for each step of `description`, in order, `row` being that of its type in the kind's
// table. A type, or a member, that is not known is refused by name (USAGE). `where` names the file.
trireme_status steps_read(const struct step_kind *kind, const json_t *description, const char *where,
                          trireme_status (*add)(void *user, size_t row, const json_t *step, const char *where,
                                                trireme_error *error),
                          void *user, trireme_error *error);

// Whether a member of tokenizer.json has this type.
bool step_type_is(const json_t *member, const char *type);
// Members that are one character, or one of a list of words (whose index is given); both must be there.
trireme_status step_read_character(const json_t *step, const char *where, const char *key, const char **out,
                                   trireme_error *error);
trireme_status step_read_word(const json_t *step, const char *where, const char *key, enum json_need need,
                              const char *const *words, int count, int *out, trireme_error *error);

#endif
