// Token ids, one after the other.
#ifndef TOKENIZER_TOKEN_LIST_H
#define TOKENIZER_TOKEN_LIST_H

#include "base/base.h"

// Grows with VEC_PUSH; VEC_RELEASE frees.
struct token_list {
    VEC(int32_t);
};

static inline void token_list_append(struct token_list *list, const int32_t *tokens, size_t count) {
    VEC_RESERVE(list, list->count + count);
    if (count)
        memcpy(list->item + list->count, tokens, count * sizeof *tokens);
    list->count += count;
}

#endif
