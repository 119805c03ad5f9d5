// Reads a step of a tokenizer from a line of JSON, and applies it to the text behind that line. The first byte says
// whether it is a normalizer, a pre-tokenizer or a decoder, whose tokens are the text's lines.
#include "base/utf8.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"

static void check_text(const char *text, size_t length) {
    CHECK(length == 0 || utf8_prefix(text, length) == length);
}

static void fuzz_normalizer(const json_t *step, struct text_work *work, const char *text, size_t length,
                            trireme_error *error) {
    struct normalizer *n = NULL;
    struct text out = {0};
    if (normalizer_create(&n, step, "fuzz", error) == TRIREME_OK &&
        normalizer_apply(n, work, text, length, false, &out, error) == TRIREME_OK)
        check_text(out.text, out.length);
    normalizer_free(n);
    text_release(&out);
}

static void fuzz_pre_tokenizer(const json_t *step, struct text_work *work, const char *text, size_t length,
                               trireme_error *error) {
    struct pre_tokenizer *p = NULL;
    struct pieces out = {0};
    if (pre_tokenizer_create(&p, step, "fuzz", error) == TRIREME_OK &&
        pre_tokenizer_cut(p, work, text, length, true, &out, error) == TRIREME_OK) {
        for (size_t i = 0; i < out.end.count; i++) {
            CHECK(out.end.item[i] > pieces_begin(&out, i));
            check_text(out.bytes.text + pieces_begin(&out, i), out.end.item[i] - pieces_begin(&out, i));
        }
        CHECK(pieces_begin(&out, out.end.count) == out.bytes.length);
    }
    pre_tokenizer_free(p);
    pieces_release(&out);
}

static void fuzz_decoder(const json_t *step, const char *text, size_t length, trireme_error *error) {
    struct decoder *d = NULL;
    struct pieces tokens = {0};
    struct text out = {0};
    for (const char *at = text, *end = text + length; at < end;) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        pieces_add(&tokens, at, (size_t)((line ? line : end) - at));
        at = line ? line + 1 : end;
    }
    if (decoder_create(&d, step, "fuzz", error) == TRIREME_OK)
        decoder_apply(d, &tokens, &out);
    decoder_free(d);
    pieces_release(&tokens);
    text_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *line = (const char *)data + 1, *end = size ? memchr(data, '\n', size) : NULL;
    trireme_error error = {0};
    json_t *step = NULL;
    if (!end || end < line || json_parse(line, (size_t)(end - line), "fuzz", &step, &error) != TRIREME_OK)
        return 0;
    struct text_work *work = text_work_create();
    const char *text = end + 1;
    const size_t length = size - (size_t)(text - (const char *)data), whole = utf8_prefix(text, length);
    if (data[0] % 3 == 0)
        fuzz_normalizer(step, work, text, whole, &error);
    else if (data[0] % 3 == 1)
        fuzz_pre_tokenizer(step, work, text, whole, &error);
    else
        fuzz_decoder(step, text, length, &error);
    CHECK(!strchr(error.message, '\n'));
    json_decref(step);
    text_work_free(work);
    return 0;
}
