// The settings of Metaspace, which is a pre-tokenizer and a decoder: spaces are written as a character of their own,
// and the text gets one in front.
#ifndef TOKENIZER_METASPACE_H
#define TOKENIZER_METASPACE_H

#include "base/json.h"

#define METASPACE_MEMBERS "replacement prepend_scheme add_prefix_space split str_rep"

// Before which pieces a space is put.
enum metaspace_scheme { METASPACE_ALWAYS, METASPACE_FIRST, METASPACE_NEVER };

struct metaspace {
    const char *replacement; // one character, borrowed from the JSON
    enum metaspace_scheme scheme;
    bool split; // at the replacement
};

// Reads a step. USAGE: a setting is malformed, or the old "add_prefix_space" contradicts "prepend_scheme".
trireme_status metaspace_read(struct metaspace *out, const json_t *step, const char *where, trireme_error *error);

#endif
