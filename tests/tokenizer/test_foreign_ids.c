// Ids that text gets from models of sentencepiece and ranks of tiktoken: those of these libraries, in files.jsonl
// (tools/reference/tokenizer_files.py). The steps are run one by one, without looking for special tokens in the text,
// which the libraries do not do.
#include "base/base64.h"
#include "data/test_data.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/test_files.h"
#include "tokenizer/tiktoken_ranks.h"
#include "tokenizer/unigram.h"

struct steps {
    struct tokenizer_parts parts;
    struct normalizer *normalizer;
    struct pre_tokenizer *cut;
    struct bpe *bpe;
    struct unigram *unigram;
    struct decoder *decoder;
    struct text_work *work;
    struct text normal;
    struct pieces pieces;
    struct token_list ids;
};

static void steps_create(struct steps *s) {
    const json_t *description = s->parts.description;
    s->work = text_work_create();
    assert_ok(normalizer_create(&s->normalizer, json_object_get(description, "normalizer"), "t", &error));
    assert_ok(pre_tokenizer_create(&s->cut, json_object_get(description, "pre_tokenizer"), "t", &error));
    assert_ok(decoder_create(&s->decoder, json_object_get(description, "decoder"), "t", &error));
    if (s->parts.scores.count)
        assert_ok(unigram_create(&s->unigram, &s->parts, "t", &error));
    else
        assert_ok(bpe_create(&s->bpe, &s->parts, "t", &error));
}

static void steps_release(struct steps *s) {
    text_work_free(s->work);
    normalizer_free(s->normalizer);
    pre_tokenizer_free(s->cut);
    decoder_free(s->decoder);
    bpe_free(s->bpe);
    unigram_free(s->unigram);
    text_release(&s->normal);
    pieces_release(&s->pieces);
    VEC_RELEASE(&s->ids);
    tokenizer_parts_release(&s->parts);
}

static void encode(struct steps *s, const char *text) {
    struct bpe_work bpe = {0};
    struct unigram_work unigram = {0};
    s->normal.length = s->ids.count = 0;
    pieces_clear(&s->pieces);
    assert_ok(normalizer_apply(s->normalizer, s->work, text, strlen(text), false, &s->normal, &error));
    if (s->normal.length)
        assert_ok(pre_tokenizer_cut(s->cut, s->work, s->normal.text, s->normal.length, true, &s->pieces, &error));
    for (size_t i = 0; i < s->pieces.end.count; i++) {
        const size_t begin = pieces_begin(&s->pieces, i), length = s->pieces.end.item[i] - begin;
        const char *piece = s->pieces.bytes.text + begin;
        if (s->unigram)
            assert_ok(unigram_encode(s->unigram, &unigram, piece, length, &s->ids, &error));
        else
            assert_ok(bpe_encode(s->bpe, &bpe, piece, length, &s->ids, &error));
    }
    bpe_work_release(&bpe);
    unigram_work_release(&unigram);
}

static void assert_decoded(const struct steps *s, const char *expected) {
    struct pieces tokens = {0};
    struct text text = {0};
    for (size_t i = 0; i < s->ids.count; i++) {
        const struct token_bytes token = token_table_token(s->parts.tokens, s->ids.item[i]);
        pieces_add(&tokens, token.bytes, token.length);
    }
    decoder_apply(s->decoder, &tokens, &text);
    assert_string_equal(text.text ? text.text : "", expected);
    text_release(&text);
    pieces_release(&tokens);
}

static void check_texts(struct steps *s, const json_t *line) {
    const json_t *texts = json_object_get(line, "texts"), *decoded = json_object_get(line, "decoded");
    const char *name = json_string_value(json_object_get(line, "name"));
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *expected = json_array_get(json_object_get(line, "ids"), i);
        const char *text = json_string_value(json_array_get(texts, i));
        encode(s, text);
        for (size_t k = 0; k < MAX(s->ids.count, json_array_size(expected)); k++)
            if (k >= s->ids.count || k >= json_array_size(expected) ||
                s->ids.item[k] != json_integer_value(json_array_get(expected, k)))
                fail_msg("%s: text %zu \"%s\": token %zu is %d of %zu, not %lld of %zu", name, i, text, k,
                         k < s->ids.count ? s->ids.item[k] : -1, s->ids.count,
                         (long long)json_integer_value(json_array_get(expected, k)), json_array_size(expected));
        assert_decoded(s, json_string_value(json_array_get(decoded, i)));
    }
}

static char *file_of(const json_t *line, size_t *length) {
    char *bytes = base64_decode(json_string_value(json_object_get(line, "file")), length);
    assert_non_null(bytes);
    return bytes;
}

static void check_sentencepiece(const json_t *line) {
    struct steps s = {0};
    size_t length;
    char *bytes = file_of(line, &length);
    assert_true(sentencepiece_model_is(bytes, length));
    assert_ok(sentencepiece_model_parse(&s.parts, bytes, length, "m", &error));
    assert_string_equal(s.parts.bos, json_string_value(json_object_get(line, "bos")));
    assert_string_equal(s.parts.eos, json_string_value(json_object_get(line, "eos")));
    steps_create(&s);
    check_texts(&s, line);
    steps_release(&s);
    free(bytes);
}

static void check_tiktoken(const json_t *line) {
    struct steps s = {0};
    size_t length;
    char *bytes = file_of(line, &length);
    assert_true(tiktoken_ranks_are(bytes, length));
    assert_ok(tiktoken_ranks_parse(&s.parts, bytes, length, json_string_value(json_object_get(line, "pattern")), "r",
                                   &error));
    steps_create(&s);
    check_texts(&s, line);
    steps_release(&s);
    free(bytes);
}

static void test_ids_of_sentencepiece(void **state) {
    (void)state;
    assert_int_equal(files_each("sentencepiece", check_sentencepiece), 11);
}

static void test_ids_of_tiktoken(void **state) {
    (void)state;
    assert_int_equal(files_each("tiktoken", check_tiktoken), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_of_sentencepiece),
        cmocka_unit_test(test_ids_of_tiktoken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
