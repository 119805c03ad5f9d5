// The tokens of a tokenizer: the bytes of each, found by id, and ids, found by bytes.
#ifndef TOKENIZER_TOKEN_TABLE_H
#define TOKENIZER_TOKEN_TABLE_H

#include "base/base.h"

// Bytes that a token is; borrowed from the table, not NUL-terminated.
struct token_bytes {
    const char *bytes; // NULL: no token has that id
    uint32_t length;
};

struct token_table;

struct token_table *token_table_create(void);
void token_table_free(struct token_table *t);

// Adds a token; its bytes are copied. Ids may come in any order and leave gaps; those from 2^20 on may be at most 16
// times as large as the number of tokens so far (a file cannot make memory of nothing: USAGE). False in *added where
// the bytes or the id are there already: then nothing changes.
trireme_status token_table_add(struct token_table *t, const char *bytes, size_t length, int32_t id, bool *added,
                               trireme_error *error);
// The largest id plus 1.
int32_t token_table_size(const struct token_table *t);
// How many tokens there are.
int32_t token_table_count(const struct token_table *t);
struct token_bytes token_table_token(const struct token_table *t, int32_t id);
// The id of a token, -1 if there is none.
int32_t token_table_find(const struct token_table *t, const char *bytes, size_t length);

#endif
