#include "tokenizer/token_stream.h"

enum {
    TOKENS_MOST = 256, // of which the text is made anew for each further token
    TOKENS_KEPT = 16,  // of them, once there are more: what comes next is decoded after these
};

static trireme_status token_stream_decode(struct token_stream *s, trireme_error *error) {
    s->text.length = 0;
    return tokenizer_decode(s->tokenizer, s->tokens.item, s->tokens.count, false, &s->text, error);
}

trireme_status token_stream_add(struct token_stream *s, const int32_t *tokens, size_t count, struct text *out,
                                trireme_error *error) {
    const size_t before = s->tokens.count;
    token_list_append(&s->tokens, tokens, count);
    trireme_status status = token_stream_decode(s, error);
    if (status != TRIREME_OK) {
        s->tokens.count = before;
        return status;
    }
    if (s->text.length > s->told)
        text_add_bytes(out, s->text.text + s->told, s->text.length - s->told);
    if (s->tokens.count > TOKENS_MOST) {
        memmove(s->tokens.item, s->tokens.item + s->tokens.count - TOKENS_KEPT, TOKENS_KEPT * sizeof *s->tokens.item);
        s->tokens.count = TOKENS_KEPT;
        TRY(token_stream_decode(s, error));
    }
    s->told = s->text.length;
    return TRIREME_OK;
}

void token_stream_release(struct token_stream *s) {
    VEC_RELEASE(&s->tokens);
    text_release(&s->text);
}
