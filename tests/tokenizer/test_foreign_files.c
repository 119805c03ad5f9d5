// Models of sentencepiece, ranks of tiktoken and tekken.json: what their parts are, and what is refused.
#include "base/base64.h"
#include "data/test_data.h"
#include "tokenizer/protobuf.h"
#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/tekken.h"
#include "tokenizer/tiktoken_ranks.h"

#include <math.h>

// ---- models of sentencepiece, written by hand

static void add_varint(struct text *t, uint64_t value) {
    for (; value >= 0x80; value >>= 7)
        text_add_bytes(t, (char[]){(char)(value | 0x80)}, 1);
    text_add_bytes(t, (char[]){(char)value}, 1);
}

static void add_number(struct text *t, unsigned field, uint64_t value) {
    add_varint(t, field << 3 | PROTOBUF_VARINT);
    add_varint(t, value);
}

static void add_string(struct text *t, unsigned field, const char *bytes, size_t length) {
    add_varint(t, field << 3 | PROTOBUF_BYTES);
    add_varint(t, length);
    text_add_bytes(t, bytes, length);
}

static void add_float(struct text *t, unsigned field, float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    add_varint(t, field << 3 | PROTOBUF_32_BITS);
    for (int i = 0; i < 4; i++)
        text_add_bytes(t, (char[]){(char)(bits >> 8 * i)}, 1);
}

static void add_message(struct text *t, unsigned field, struct text *message) {
    add_string(t, field, message->text ? message->text : "", message->length);
    text_release(message);
}

enum { NORMAL = 1, UNKNOWN, CONTROL, DEFINED, UNUSED, BYTE };

static void add_piece(struct text *t, const char *text, float score, unsigned type) {
    struct text piece = {0};
    add_string(&piece, 1, text, strlen(text));
    add_float(&piece, 2, score);
    if (type != NORMAL)
        add_number(&piece, 3, type);
    add_message(t, 1, &piece);
}

enum { UNIGRAM = 1, BPE };

static void add_trainer(struct text *t, unsigned kind) {
    struct text trainer = {0};
    add_number(&trainer, 3, kind);
    add_message(t, 2, &trainer);
}

static void add_normalizer(struct text *t, bool prefix, bool trims) {
    struct text normalizer = {0};
    add_number(&normalizer, 3, prefix);
    add_number(&normalizer, 4, trims);
    add_message(t, 3, &normalizer);
}

static struct text small_model(unsigned kind) {
    struct text t = {0};
    add_piece(&t, "<unk>", 0, UNKNOWN);
    add_piece(&t, "<s>", 0, CONTROL);
    add_piece(&t, "</s>", 0, CONTROL);
    add_piece(&t, "ab", -2, NORMAL);
    add_piece(&t, "bc", -1, NORMAL);
    add_piece(&t, "abc", -1, NORMAL);
    add_piece(&t, "a", -3, NORMAL);
    add_piece(&t, "b", -4, NORMAL);
    add_piece(&t, "c", -5, NORMAL);
    add_piece(&t, "aba", 0, DEFINED);
    add_trainer(&t, kind);
    add_normalizer(&t, true, false);
    return t;
}

static struct tokenizer_parts parse(struct text *t) {
    struct tokenizer_parts parts;
    assert_true(sentencepiece_model_is(t->text, t->length));
    assert_ok(sentencepiece_model_parse(&parts, t->text, t->length, "m", &error));
    text_release(t);
    return parts;
}

static void assert_member(const struct tokenizer_parts *parts, const char *member, const char *expected) {
    char *text = json_dumps(json_object_get(parts->description, member), JSON_ENCODE_ANY | JSON_SORT_KEYS);
    assert_string_equal(text, expected);
    free(text);
}

static void test_bpe(void **state) {
    (void)state;
    struct text t = small_model(BPE);
    add_piece(&t, "abac", -6, NORMAL);
    struct tokenizer_parts parts = parse(&t);
    assert_int_equal(token_table_size(parts.tokens), 11);
    // bc and abc have one score; aba is not made by merges, and nothing is made of it.
    static const struct token_merge MERGES[] = {{7, 8}, {6, 4}, {3, 8}, {6, 7}};
    static const int32_t RANKS[] = {0, 0, 0, 2};
    assert_int_equal(parts.merges.count, ARRAY_LENGTH(MERGES));
    assert_int_equal(parts.ranks.count, ARRAY_LENGTH(RANKS));
    assert_memory_equal(parts.ranks.item, RANKS, sizeof RANKS);
    for (size_t i = 0; i < ARRAY_LENGTH(MERGES); i++) {
        const bool abc = i == 1 || i == 2; // these two in either order
        const struct token_merge m = parts.merges.item[i];
        assert_true((m.left == MERGES[i].left && m.right == MERGES[i].right) ||
                    (abc && m.left == MERGES[3 - i].left && m.right == MERGES[3 - i].right));
    }
    assert_string_equal(parts.bos, "<s>");
    assert_string_equal(parts.eos, "</s>");
    assert_member(&parts, "model",
                  "{\"byte_fallback\": false, \"continuing_subword_prefix\": null, \"dropout\": null, "
                  "\"end_of_word_suffix\": null, \"fuse_unk\": true, \"ignore_merges\": true, \"type\": \"BPE\", "
                  "\"unk_token\": \"<unk>\"}");
    assert_member(&parts, "pre_tokenizer",
                  "{\"behavior\": \"Isolated\", \"invert\": false, \"pattern\": {\"Regex\": \"aba\"}, \"type\": "
                  "\"Split\"}");
    tokenizer_parts_release(&parts);
}

static void test_unigram(void **state) {
    (void)state;
    struct text t = small_model(UNIGRAM);
    struct tokenizer_parts parts = parse(&t);
    assert_int_equal(parts.scores.count, 10);
    assert_true(parts.scores.item[3] == -2 && parts.scores.item[9] == 0.2f && isinf(parts.scores.item[1]) &&
                parts.float_scores);
    assert_member(&parts, "model", "{\"byte_fallback\": false, \"type\": \"Unigram\", \"unk_id\": 0}");
    assert_member(&parts, "pre_tokenizer", "null");
    assert_member(&parts, "post_processor", "null");
    assert_int_equal(json_array_size(json_object_get(parts.description, "added_tokens")), 2);
    tokenizer_parts_release(&parts);
}

// Fields in another order, with others among them, of all kinds.
static void test_any_order(void **state) {
    (void)state;
    struct text t = {0}, piece = {0};
    add_piece(&t, "<unk>", 0, UNKNOWN);
    add_normalizer(&t, false, false);
    add_number(&t, 77, UINT64_MAX);
    add_trainer(&t, BPE);
    add_float(&t, 78, 1);
    add_string(&t, 4, "self-test", 9);
    add_varint(&t, 79 << 3 | PROTOBUF_64_BITS);
    text_add_bytes(&t, "12345678", 8);
    add_number(&piece, 3, NORMAL);
    add_number(&piece, 200, 5);
    add_float(&piece, 2, -7);
    add_string(&piece, 1, "z", 1);
    add_message(&t, 1, &piece);
    struct tokenizer_parts parts = parse(&t);
    assert_int_equal(token_table_find(parts.tokens, "z", 1), 1);
    assert_member(&parts, "normalizer",
                  "{\"normalizers\": [{\"content\": \"\xE2\x96\x81\", \"pattern\": {\"String\": \" \"}, \"type\": "
                  "\"Replace\"}], \"type\": \"Sequence\"}");
    assert_null(parts.bos);
    tokenizer_parts_release(&parts);
}

static void refuse(struct text t, trireme_status status, const char *part) {
    struct tokenizer_parts parts;
    assert_refused(sentencepiece_model_parse(&parts, t.text, t.length, "m", &error), status, part);
    text_release(&t);
}

static void test_refused_models(void **state) {
    (void)state;
    struct text t, inside = {0};
#define REFUSE(kind, status, part, ...) \
    do {                                \
        t = small_model(kind);          \
        __VA_ARGS__;                    \
        refuse(t, status, part);        \
    } while (0)
    REFUSE(3, TRIREME_ERROR_USAGE, "m: a model of type WORD; only Unigram and BPE are supported", (void)0);
    REFUSE(9, TRIREME_ERROR_CORRUPT, "model_type is 9, which is not known", (void)0);
    REFUSE(BPE, TRIREME_ERROR_USAGE, "piece 10, \"q\", is marked as unused", add_piece(&t, "q", 0, UNUSED));
    REFUSE(BPE, TRIREME_ERROR_CORRUPT, "pieces 0 and 10 are both the unknown piece", add_piece(&t, "q", 0, UNKNOWN));
    REFUSE(BPE, TRIREME_ERROR_CORRUPT, "piece 10, \"ab\", is there twice", add_piece(&t, "ab", 0, NORMAL));
    REFUSE(BPE, TRIREME_ERROR_CORRUPT, "piece 10 is no UTF-8 text", add_piece(&t, "\xFF", 0, NORMAL));
    REFUSE(BPE, TRIREME_ERROR_CORRUPT, "piece 10 is no UTF-8 text", add_piece(&t, "", 0, NORMAL));
    REFUSE(UNIGRAM, TRIREME_ERROR_CORRUPT, "the score of piece 10, \"q\", is not finite",
           add_piece(&t, "q", -1.0f / 0.0f, NORMAL));
    REFUSE(BPE, TRIREME_ERROR_CORRUPT, "\"<0x41>\", is said to be a byte, and the model uses no bytes",
           add_piece(&t, "<0x41>", 0, BYTE));
    REFUSE(BPE, TRIREME_ERROR_CORRUPT, "it falls back to bytes, and has no piece for byte <0x00>",
           add_number(&inside, 35, 1);
           add_message(&t, 2, &inside));
    REFUSE(BPE, TRIREME_ERROR_CORRUPT, "\"<0xZZ>\", is said to be a byte, and spells none", add_number(&inside, 35, 1);
           add_message(&t, 2, &inside); add_piece(&t, "<0xZZ>", 0, BYTE));
    REFUSE(BPE, TRIREME_ERROR_USAGE, "token 10, \"xb\", is made of a character that is no token",
           add_piece(&t, "xb", -9, NORMAL));
    REFUSE(BPE, TRIREME_ERROR_USAGE, "denormalizer_spec", add_string(&inside, 2, "rules", 5);
           add_message(&t, 5, &inside));
    REFUSE(BPE, TRIREME_ERROR_CORRUPT, "the type of the field piece is not that of sentencepiece",
           add_number(&inside, 1, 1);
           add_message(&t, 1, &inside));
    REFUSE(BPE, TRIREME_ERROR_CORRUPT, "field 1 is no message", add_number(&t, 1, 1));
    REFUSE(BPE, TRIREME_ERROR_CORRUPT, "no field of a protobuf message, or one that is cut short",
           add_varint(&t, 1 << 3 | PROTOBUF_BYTES);
           add_varint(&t, UINT64_MAX));
    REFUSE(BPE, TRIREME_ERROR_CORRUPT, "no field of a protobuf message, or one that is cut short",
           add_varint(&t, 99 << 3 | PROTOBUF_BYTES);
           add_varint(&t, 1));
    t = (struct text){0};
    add_trainer(&t, BPE);
    refuse(t, TRIREME_ERROR_CORRUPT, "it has 0 pieces");
    assert_false(sentencepiece_model_is("{\"version\": 1}", 14));
    assert_false(sentencepiece_model_is("", 0));
}

// A model that is cut off, anywhere: refused, or a model of fewer pieces.
static void test_cut_models(void **state) {
    (void)state;
    struct text t = small_model(BPE);
    for (size_t length = 0; length < t.length; length++) {
        char *exactly = mem_alloc(length + 1);
        memcpy(exactly, t.text, length);
        exactly = mem_resize(exactly, MAX(length, (size_t)1));
        struct tokenizer_parts parts;
        trireme_error error = {0};
        if (sentencepiece_model_parse(&parts, exactly, length, "m", &error) == TRIREME_OK)
            tokenizer_parts_release(&parts);
        else
            assert_true(*error.message);
        free(exactly);
    }
    text_release(&t);
}

// ---- ranks of tiktoken

static void add_rank(struct text *t, const char *bytes, size_t length, int rank) {
    base64_add(t, bytes, length);
    text_add(t, " %d\n", rank);
}

// All bytes, then as many tokens of two and three bytes as it takes.
static struct text ranks_of(int count) {
    struct text t = {0};
    for (int i = 0; i < count; i++) {
        const int n = i < 256 ? i : i - 256;
        const char bytes[3] = {(char)(n & 0xFF), (char)(n >> 8), (char)(n >> 16)};
        add_rank(&t, bytes, i < 256 ? 1 : i < 256 + 65536 ? 2 : 3, i);
    }
    return t;
}

static void test_ranks(void **state) {
    (void)state;
    struct text t = ranks_of(256);
    add_rank(&t, "abc", 3, 300);
    text_add(&t, "\r\n\n");
    add_rank(&t, "bc", 2, 258);
    add_rank(&t, " b", 2, 259);
    add_rank(&t, "ab", 2, 256);
    struct tokenizer_parts parts;
    assert_true(tiktoken_ranks_are(t.text, t.length));
    assert_ok(tiktoken_ranks_parse(&parts, t.text, t.length, "x+", "r", &error));
    static const struct token_merge MERGES[] = {{'a', 'b'}, {'b', 'c'}, {' ', 'b'}, {'a', 258}, {256, 'c'}};
    static const int32_t RANKS[] = {256, 258, 259, 300, 300};
    assert_int_equal(parts.merges.count, ARRAY_LENGTH(MERGES));
    assert_memory_equal(parts.merges.item, MERGES, sizeof MERGES);
    assert_memory_equal(parts.ranks.item, RANKS, sizeof RANKS);
    assert_int_equal(token_table_find(parts.tokens,
                                      "\xC4\xA0"
                                      "b",
                                      3),
                     259);
    assert_member(&parts, "pre_tokenizer",
                  "{\"pretokenizers\": [{\"behavior\": \"Isolated\", \"invert\": false, \"pattern\": {\"Regex\": "
                  "\"x+\"}, \"type\": \"Split\"}, {\"add_prefix_space\": false, \"trim_offsets\": true, \"type\": "
                  "\"ByteLevel\", \"use_regex\": false}], \"type\": \"Sequence\"}");
    assert_null(parts.eos);
    tokenizer_parts_release(&parts);
    assert_refused(tiktoken_ranks_parse(&parts, t.text, t.length, NULL, "r", &error), TRIREME_ERROR_USAGE,
                   "r: a file of tiktoken does not say how text is cut, and 260 ranks are those of no known tokenizer");
    assert_refused(tiktoken_ranks_parse(&parts, t.text, t.length, "gpt", "r", &error), TRIREME_ERROR_USAGE,
                   "no pattern has this name");
    text_release(&t);
}

static void test_known_ranks(void **state) {
    (void)state;
    static const struct {
        int ranks;
        const char *bos, *eos;
        int32_t eos_id;
        const char *special;
        int32_t id;
        size_t specials;
    } KNOWN[] = {
        {50256, "<|endoftext|>", "<|endoftext|>", 50256, "<|endoftext|>", 50256, 1},
        {100256, NULL, "<|endoftext|>", 100257, "<|endofprompt|>", 100276, 5},
        {199998, NULL, "<|endoftext|>", 199999, "<|endofprompt|>", 200018, 2},
        {128000, "<|begin_of_text|>", "<|end_of_text|>", 128001, "<|reserved_special_token_247|>", 128255, 256},
        {151643, NULL, "<|endoftext|>", 151643, "<|extra_204|>", 151850, 208},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(KNOWN); i++) {
        struct text t = ranks_of(KNOWN[i].ranks);
        struct tokenizer_parts parts;
        assert_ok(tiktoken_ranks_parse(&parts, t.text, t.length, NULL, "r", &error));
        assert_string_equal(parts.eos, KNOWN[i].eos);
        assert_int_equal(token_table_find(parts.tokens, parts.eos, strlen(parts.eos)), KNOWN[i].eos_id);
        assert_true(KNOWN[i].bos ? parts.bos && strcmp(parts.bos, KNOWN[i].bos) == 0 : !parts.bos);
        assert_int_equal(token_table_find(parts.tokens, KNOWN[i].special, strlen(KNOWN[i].special)), KNOWN[i].id);
        assert_int_equal(json_array_size(json_object_get(parts.description, "added_tokens")), KNOWN[i].specials);
        tokenizer_parts_release(&parts);
        text_release(&t);
    }
}

static void test_refused_ranks(void **state) {
    (void)state;
    static const struct {
        const char *last, *part;
    } WRONG[] = {
        {"YWI=", "r: line 257, \"YWI=\": expected a token in base64, a space, and a rank"},
        {"YW! 300", "the token is not base64"},
        {" 300", "the token is not base64"},
        {"YWI= 3x", "the rank is not a whole number"},
        {"YWI= -3", "the rank is not a whole number"},
        {"YWI= ", "the rank is not a whole number"},
        {"YWI= 99999999999", "the rank is not a whole number"},
        {"YWI= 2000000000", "line 257: the id 2000000000 is far beyond the number of tokens"},
        {"YQ== 300", "the token, or its rank, is there twice"},
        {"YWI= 7", "the token, or its rank, is there twice"},
    };
    struct tokenizer_parts parts;
    for (size_t i = 0; i < ARRAY_LENGTH(WRONG); i++) {
        struct text t = ranks_of(256);
        text_add(&t, "%s\n", WRONG[i].last);
        assert_refused(tiktoken_ranks_parse(&parts, t.text, t.length, "gpt2", "r", &error),
                       i == 7 ? TRIREME_ERROR_USAGE : TRIREME_ERROR_CORRUPT, WRONG[i].part);
        text_release(&t);
    }
    assert_refused(tiktoken_ranks_parse(&parts, "YQ== 0\n", 7, "gpt2", "r", &error), TRIREME_ERROR_CORRUPT,
                   "byte 0x00 has no rank");
    assert_false(tiktoken_ranks_are("1 'a' 1\n", 8)); // RWKV's vocabulary
    assert_false(tiktoken_ranks_are("{\"a\": 1}", 8));
    assert_false(tiktoken_ranks_are("", 0));
}

// ---- tekken.json

#define TEKKEN_CONFIG "{\"pattern\": \"x+|{\\\"\", \"default_vocab_size\": 263, \"default_num_special_tokens\": 4}"
#define TEKKEN_SPECIALS \
    ", \"special_tokens\": [{\"rank\": 2, \"token_str\": \"<s>\"}, {\"rank\": 0, \"token_str\": \"u\\u0301\"}]"
#define TEKKEN_TOKENS                                                                                                 \
    ", {\"rank\": 256, \"token_bytes\": \"YWI=\", \"token_str\": \"}{\\\"\"}, {\"token_bytes\": \"YWJj\", \"rank\": " \
    "257}"
#define TEKKEN_LAST ", {\"rank\": 258, \"token_bytes\": \"YmM=\"}, \"what is beyond the size does not matter\""

// All bytes, and `tokens` after them.
static struct text tekken_of(const char *config, const char *tokens, const char *rest) {
    struct text t = {0};
    text_add(&t, "{\"config\": %s, \"vocab\": [", config);
    for (int i = 0; i < 256; i++) {
        text_add(&t, "%s\n{\"rank\": %d, \"token_bytes\": \"", i ? "," : "", i);
        base64_add(&t, (char[]){(char)i}, 1);
        text_add(&t, "\", \"token_str\": null}");
    }
    text_add(&t, "%s]%s}", tokens, rest);
    return t;
}

static void test_tekken(void **state) {
    (void)state;
    enum { FIRST = 4 };
    static const struct token_merge MERGES[] = {
        {FIRST + 'a', FIRST + 'b'}, {FIRST + 'a', FIRST + 258}, {FIRST + 256, FIRST + 'c'}, {FIRST + 'b', FIRST + 'c'}};
    static const int32_t RANKS[] = {FIRST + 256, FIRST + 257, FIRST + 257, FIRST + 258};
    static const struct {
        const char *rest, *names[FIRST];
    } SPECIAL[] = {{"", {"<unk>", "<s>", "</s>", "[INST]"}},
                   {", \"special_tokens\": null", {"<unk>", "<s>", "</s>", "[INST]"}},
                   {TEKKEN_SPECIALS, {"u\xCC\x81", "<SPECIAL_1>", "<s>", "<SPECIAL_3>"}}};
    for (size_t i = 0; i < ARRAY_LENGTH(SPECIAL); i++) {
        struct text t = tekken_of(TEKKEN_CONFIG, TEKKEN_TOKENS TEKKEN_LAST, SPECIAL[i].rest);
        struct tokenizer_parts parts;
        assert_true(tekken_is(t.text, t.length));
        assert_ok(tekken_parse(&parts, t.text, t.length, "k", &error));
        assert_int_equal(token_table_size(parts.tokens), 263);
        assert_int_equal(parts.merges.count, ARRAY_LENGTH(MERGES));
        assert_memory_equal(parts.merges.item, MERGES, sizeof MERGES);
        assert_memory_equal(parts.ranks.item, RANKS, sizeof RANKS);
        const json_t *added = json_object_get(parts.description, "added_tokens");
        assert_int_equal(json_array_size(added), FIRST);
        for (int32_t id = 0; id < FIRST; id++)
            assert_int_equal(token_table_find(parts.tokens, SPECIAL[i].names[id], strlen(SPECIAL[i].names[id])), id);
        assert_string_equal(parts.bos, "<s>");
        assert_true(i == 2 ? !parts.eos : strcmp(parts.eos, "</s>") == 0);
        tokenizer_parts_release(&parts);
        text_release(&t);
    }
    assert_false(tekken_is("{\"model\": {\"vocab\": {\"token_bytes\": 1}}, \"vocab\": [], \"config\": {}}", 67));
    assert_false(tekken_is("", 0));
}

static void test_refused_tekken(void **state) {
    (void)state;
    static const struct {
        const char *config, *tokens, *rest, *part;
    } WRONG[] = {
        {"{", TEKKEN_TOKENS TEKKEN_LAST, "", "k: "},
        {"3", "", "", "k: \"config\" must be an object"},
        {"{\"default_vocab_size\": 9}", "", "", "k: \"config\": \"pattern\" is missing"},
        {"{\"pattern\": \"x\", \"default_vocab_size\": 9, \"default_num_special_tokens\": 9}", "", "",
         "\"default_num_special_tokens\""},
        {"{\"pattern\": \"x\", \"default_vocab_size\": 2000000000, \"default_num_special_tokens\": 1999999999}", "", "",
         "k: \"vocab\": the id 1999999999 is far beyond the number of tokens"},
        {"{\"pattern\": \"x\", \"default_vocab_size\": 100, \"default_num_special_tokens\": 4}", "", "",
         "k: byte 0x60 has no rank"},
        {TEKKEN_CONFIG, TEKKEN_TOKENS, "", "k: \"vocab\" has 258 tokens, and \"config\" asks for 259"},
        {TEKKEN_CONFIG, TEKKEN_TOKENS ", 3", "", "k: \"vocab\" has 258 tokens"},
        {TEKKEN_CONFIG, TEKKEN_TOKENS ", {\"rank\": 259, \"token_bytes\": \"YmM=\"}", "",
         "k: \"vocab\": entry 258 must have its place, from 0 on, as its \"rank\""},
        {TEKKEN_CONFIG, TEKKEN_TOKENS ", {\"token_bytes\": \"YmM=\"}", "", "entry 258 must have its place"},
        {TEKKEN_CONFIG, TEKKEN_TOKENS ", {\"rank\": 258, \"token_bytes\": \"Y!M=\"}", "",
         "k: \"vocab\": entry 258 must have its bytes in base64 as its \"token_bytes\""},
        {TEKKEN_CONFIG, TEKKEN_TOKENS ", {\"rank\": 258, \"token_bytes\": \"\"}", "", "entry 258 must have its bytes"},
        {TEKKEN_CONFIG, TEKKEN_TOKENS ", {\"rank\": 258, \"token_bytes\": 7}", "", "entry 258 must have its bytes"},
        {TEKKEN_CONFIG, TEKKEN_TOKENS ", {\"rank\": 258, \"token_bytes\": \"YWI=\"}", "",
         "entry 258: the token is there twice"},
        {TEKKEN_CONFIG, TEKKEN_TOKENS TEKKEN_LAST, ", \"special_tokens\": 3", "\"special_tokens\" must be an array"},
        {TEKKEN_CONFIG, TEKKEN_TOKENS TEKKEN_LAST, ", \"special_tokens\": [{\"rank\": 4, \"token_str\": \"<s>\"}]",
         "k: \"special_tokens\": entry 0: \"rank\""},
        {TEKKEN_CONFIG, TEKKEN_TOKENS TEKKEN_LAST, ", \"special_tokens\": [{\"rank\": 1, \"token_str\": \"abc\"}]",
         "the id 1, or the token itself, is there twice"},
        {TEKKEN_CONFIG, TEKKEN_TOKENS TEKKEN_LAST, ", \"config\": 1", "k: \"config\" is there twice"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(WRONG); i++) {
        struct text t = tekken_of(WRONG[i].config, WRONG[i].tokens, WRONG[i].rest);
        struct tokenizer_parts parts;
        assert_refused(tekken_parse(&parts, t.text, t.length, "k", &error),
                       i == 4 ? TRIREME_ERROR_USAGE : TRIREME_ERROR_CORRUPT, WRONG[i].part);
        text_release(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bpe),         cmocka_unit_test(test_unigram),
        cmocka_unit_test(test_any_order),   cmocka_unit_test(test_refused_models),
        cmocka_unit_test(test_cut_models),  cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_known_ranks), cmocka_unit_test(test_refused_ranks),
        cmocka_unit_test(test_tekken),      cmocka_unit_test(test_refused_tekken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
