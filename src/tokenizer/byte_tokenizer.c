// The kind "bytes": as tokenizer.json, a byte-level BPE without merges.
#include "tokenizer/byte_characters.h"
#include "tokenizer/description.h"
#include "tokenizer/step_types.h"
#include "tokenizer/tokenizer_internal.h"

enum { BOS = TOKENIZER_BYTES_ALONE, EOS };
static const char *const ENDS[] = {"<|begin_of_text|>", "<|end_of_text|>"}; // BOS, EOS

// A post-processor that begins each text with BOS.
static json_t *byte_template_json(void) {
    json_t *begin = json_pack("{s{ss si}}", "SpecialToken", "id", ENDS[0], "type_id", 0),
           *text = json_pack("{s{ss si}}", "Sequence", "id", "A", "type_id", 0),
           *second = json_pack("{s{ss si}}", "Sequence", "id", "B", "type_id", 1);
    return json_pack("{ss s[OO] s[ooo] s{s{ss s[i] s[s]}}}", "type", "TemplateProcessing", "single", begin, text,
                     "pair", begin, text, second, "special_tokens", ENDS[0], "id", ENDS[0], "ids", BOS, "tokens",
                     ENDS[0]);
}

struct tokenizer *tokenizer_create_bytes(int32_t vocab_size) {
    CHECK(vocab_size == TOKENIZER_BYTES_ALONE || vocab_size == TOKENIZER_BYTES_AND_ENDS);
    struct tokenizer_parts parts = {.tokens = token_table_create()};
    struct tokenizer *t = NULL;
    trireme_error error;
    for (int32_t byte = 0; byte < TOKENIZER_BYTES_ALONE; byte++) {
        char character[BYTE_CHARACTER_UTF8_MAX];
        const size_t length = byte_character_write((uint8_t)byte, character);
        bool added;
        CHECK(token_table_add(parts.tokens, character, length, byte, &added, &error) == TRIREME_OK && added);
    }
    json_t *specials = json_array();
    parts.description = description_json(specials, json_null(), description_byte_level(false),
                                         description_byte_level(false), description_bpe(json_null(), false, false));
    if (vocab_size == TOKENIZER_BYTES_AND_ENDS) {
        for (size_t i = 0; i < ARRAY_LENGTH(ENDS); i++)
            json_array_append_new(specials, description_special(BOS + (int32_t)i, ENDS[i], strlen(ENDS[i])));
        json_object_set_new(parts.description, "post_processor", byte_template_json());
        parts.bos = mem_strdup(ENDS[0]);
        parts.eos = mem_strdup(ENDS[1]);
    }
    CHECK(tokenizer_create(&t, &parts, NULL, "bytes", &error) == TRIREME_OK && t->type == TOKENIZER_BYTES);
    return t;
}

// ---- recognising

// Whether texts have the ends above, and BOS stands before each; or there are no ends.
static bool ends_are_known(const struct tokenizer *t) {
    const struct token_list *steps = &t->template.steps;
    if (added_tokens_count(t->added) == 0)
        return steps->count == 1;
    if (added_tokens_count(t->added) != ARRAY_LENGTH(ENDS) || steps->count != 2 || steps->item[0] != BOS ||
        t->bos != BOS || t->eos != EOS)
        return false;
    bool same = true;
    for (size_t i = 0; i < ARRAY_LENGTH(ENDS); i++) {
        const struct added_token *end = added_tokens_at(t->added, i);
        same = same && strcmp(end->content, ENDS[i]) == 0 && end->special && !end->normalized && !end->single_word &&
               !end->lstrip && !end->rstrip;
    }
    return same;
}

bool tokenizer_is_bytes(const struct tokenizer *t) {
    const struct tokenizer_parts *p = &t->parts;
    const json_t *split = json_object_get(p->description, "pre_tokenizer"),
                 *model = json_object_get(p->description, "model");
    if (t->type != TOKENIZER_BPE || p->merges.count || token_table_size(p->tokens) != TOKENIZER_BYTES_ALONE ||
        t->normalizer || !ends_are_known(t))
        return false;
    for (int byte = 0; byte < TOKENIZER_BYTES_ALONE; byte++) {
        char character[BYTE_CHARACTER_UTF8_MAX];
        if (token_table_find(p->tokens, character, byte_character_write((uint8_t)byte, character)) != byte)
            return false;
    }
    const char *prefix = json_string_value(json_object_get(model, "continuing_subword_prefix")),
               *suffix = json_string_value(json_object_get(model, "end_of_word_suffix"));
    return step_type_is(split, "ByteLevel") && json_is_false(json_object_get(split, "add_prefix_space")) &&
           step_type_is(json_object_get(p->description, "decoder"), "ByteLevel") && !(prefix && *prefix) &&
           !(suffix && *suffix);
}
