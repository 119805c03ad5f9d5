// The regular expressions by which known tokenizers cut text into the pieces of which byte-level BPE makes tokens.
#ifndef TOKENIZER_SPLIT_PATTERNS_H
#define TOKENIZER_SPLIT_PATTERNS_H

#include "base/json.h"

// The pattern with this name (gpt2, cl100k, o200k, llama3, qwen2, tekken); NULL: there is none.
const char *split_pattern_find(const char *name);
// The name of a pattern that has one, else NULL.
const char *split_pattern_name(const char *pattern);
// The same for what a user gives as `key`, a name or a pattern: *out is a constant, or `given`. What looks like a name
// and is none is refused (USAGE), and so is a pattern at fault, with the byte.
trireme_status split_pattern_read(const char *given, const char *key, const char **out, trireme_error *error);
// The member "pre_tokenizer" of tokenizer.json for byte-level BPE over the pieces of a pattern.
json_t *split_pattern_json(const char *pattern);

#endif
