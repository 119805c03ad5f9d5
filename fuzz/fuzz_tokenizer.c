// A tokenizer's file of any form, and a text after a line with "text:" alone: what is accepted encodes the text,
// decodes what that gives, is written and read again as the same tokenizer.
#include "tokenizer/encoder.h"
#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/tekken.h"
#include "tokenizer/tiktoken_ranks.h"

static const char MARK[] = "\ntext:\n";

static trireme_status read_parts(struct tokenizer_parts *out, const char *file, size_t length, trireme_error *error) {
    if (sentencepiece_model_is(file, length))
        return sentencepiece_model_parse(out, file, length, "f", error);
    if (tiktoken_ranks_are(file, length))
        return tiktoken_ranks_parse(out, file, length, "gpt2", "f", error);
    if (tekken_is(file, length))
        return tekken_parse(out, file, length, "f", error);
    return tokenizer_parts_parse(out, file, length, "f", error);
}

static void encode_and_decode(const struct tokenizer *t, const char *text, size_t length) {
    struct encoder *e = encoder_create(t);
    struct token_list ids = {0};
    struct text decoded = {0};
    trireme_error error;
    if (encoder_encode(e, text, length, ENCODER_DOCUMENT, &ids, &error) == TRIREME_OK) {
        for (size_t i = 0; i < ids.count; i++)
            CHECK(ids.item[i] >= 0 && ids.item[i] < tokenizer_vocab_size(t));
        CHECK(tokenizer_decode(t, ids.item, ids.count, true, &decoded, &error) == TRIREME_OK);
    }
    text_release(&decoded);
    VEC_RELEASE(&ids);
    encoder_free(e);
}

static void write_and_read(const struct tokenizer *t) {
    const struct tokenizer_parts *parts = tokenizer_parts_of(t);
    struct text json = {0};
    struct tokenizer_parts again;
    struct tokenizer *other = NULL;
    trireme_error error;
    char one[CHECKSUM_HEX], two[CHECKSUM_HEX];
    if (parts->ranks.count || parts->float_scores) // which tokenizer.json cannot say
        return;
    tokenizer_parts_write(parts, &json);
    CHECK(tokenizer_parts_parse(&again, json.text, json.length, "w", &error) == TRIREME_OK);
    CHECK(tokenizer_create(&other, &again, NULL, "w", &error) == TRIREME_OK);
    tokenizer_checksum(t, one);
    tokenizer_checksum(other, two);
    CHECK(strcmp(one, two) == 0);
    tokenizer_free(other);
    text_release(&json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *input = mem_alloc(size + 1); // with a NUL, as file_read gives it
    memcpy(input, data, size);
    const char *mark = memmem(input, size, MARK, sizeof MARK - 1), *text = mark ? mark + sizeof MARK - 1 : input + size;
    const size_t length = mark ? (size_t)(mark - input) : size;
    char *file = mem_alloc(length + 1);
    memcpy(file, input, length);
    struct tokenizer_parts parts = {0};
    struct tokenizer *t = NULL;
    trireme_error error;
    if (read_parts(&parts, file, length, &error) == TRIREME_OK &&
        tokenizer_create(&t, &parts, NULL, "f", &error) == TRIREME_OK) {
        encode_and_decode(t, text, size - (size_t)(text - input));
        write_and_read(t);
    }
    tokenizer_free(t);
    free(file);
    free(input);
    return 0;
}
