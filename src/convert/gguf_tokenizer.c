#include "convert/gguf_tokenizer.h"

#include "base/json.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/split_patterns.h"

#define KEY(name) "tokenizer.ggml." name
enum token_type { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER_DEFINED, TOKEN_UNUSED, TOKEN_BYTE };
enum { CONFIG_LIMIT = 16 << 20 };
static const char SPACE[] = "\xE2\x96\x81"; // U+2581, which spells a space

// ---- how text is cut

// The steps of a part of the description, which may be one or a sequence of them.
static size_t steps_count(const json_t *part, const char *member) {
    const json_t *steps = json_object_get(part, member);
    return json_is_array(steps) ? json_array_size(steps) : json_is_object(part);
}

static const json_t *steps_at(const json_t *part, const char *member, size_t i) {
    const json_t *steps = json_object_get(part, member);
    return json_is_array(steps) ? json_array_get(steps, i) : part;
}

static const char *step_type(const json_t *step) {
    return json_string_value(json_object_get(step, "type")) ?: "";
}

static trireme_status check_normalizer(const json_t *normalizer, const char *where, trireme_error *error) {
    static const char KNOWN[] = "NFC Precompiled Prepend Replace";
    char shown[JSON_EXCERPT_BYTES];
    for (size_t i = 0; i < steps_count(normalizer, "normalizers"); i++) {
        const char *type = step_type(steps_at(normalizer, "normalizers", i));
        if (!text_lists(KNOWN, type))
            FAIL(TRIREME_ERROR_USAGE, "%s: its tokenizer's normalizer %s is none of llama.cpp's", where,
                 json_excerpt(type, shown));
    }
    return TRIREME_OK;
}

// What cuts text: the pattern's name, NULL for none; and whether digits are cut apart before.
struct cuts {
    const char *pattern;
    bool digits;
};

static trireme_status cuts_read(struct cuts *out, const json_t *step, const char *where, trireme_error *error) {
    const char *type = step_type(step);
    char shown[JSON_EXCERPT_BYTES];
    if (strcmp(type, "ByteLevel") == 0 && json_is_false(json_object_get(step, "add_prefix_space"))) {
        if (!json_is_false(json_object_get(step, "use_regex")))
            out->pattern = "gpt2";
        return TRIREME_OK;
    }
    if (strcmp(type, "Digits") == 0 && json_is_true(json_object_get(step, "individual_digits"))) {
        out->digits = true;
        return TRIREME_OK;
    }
    if (strcmp(type, "Split") == 0) {
        const char *regex = json_string_value(json_object_get(json_object_get(step, "pattern"), "Regex"));
        out->pattern = regex ? split_pattern_name(regex) : NULL;
        if (out->pattern)
            return TRIREME_OK;
    }
    FAIL(TRIREME_ERROR_USAGE, "%s: its tokenizer cuts text by %s in a way that llama.cpp does not know", where,
         json_excerpt(type, shown));
}

// llama.cpp's name of a way to cut text, and of whether pieces that are tokens are merged.
static trireme_status find_pre(const struct tokenizer_parts *parts, const char *where, const char **out,
                               trireme_error *error) {
    static const struct {
        const char *pattern;
        bool digits, ignores_merges;
        const char *name;
    } NAMES[] = {{"gpt2", false, false, "gpt-2"},      {"gpt2", true, false, "smollm"},
                 {"qwen2", false, false, "qwen2"},     {"o200k", false, false, "gpt-4o"},
                 {"cl100k", false, true, "llama-bpe"}, {"cl100k", false, false, "smaug-bpe"}};
    const json_t *pre = json_object_get(parts->description, "pre_tokenizer"),
                 *model = json_object_get(parts->description, "model");
    const bool ignores = json_is_true(json_object_get(model, "ignore_merges"));
    struct cuts cuts = {0};
    for (size_t i = 0; i < steps_count(pre, "pretokenizers"); i++)
        TRY(cuts_read(&cuts, steps_at(pre, "pretokenizers", i), where, error));
    if (parts->merges.count == 0)
        cuts = (struct cuts){"gpt2", false}; // tokens are characters, wherever text is cut
    for (size_t i = 0; i < ARRAY_LENGTH(NAMES); i++)
        if (cuts.pattern && strcmp(NAMES[i].pattern, cuts.pattern) == 0 && NAMES[i].digits == cuts.digits &&
            NAMES[i].ignores_merges == ignores) {
            *out = NAMES[i].name;
            return TRIREME_OK;
        }
    FAIL(TRIREME_ERROR_USAGE, "%s: its tokenizer cuts text by %s%s%s, which llama.cpp does not do together", where,
         cuts.pattern ?: "no pattern", cuts.digits ? ", digits apart" : "", ignores ? ", ignores merges" : "");
}

// ---- tokens

// A tokenizer on its way into a file.
struct vocabulary {
    const struct tokenizer_parts *parts;
    const struct added_tokens *added;
    int32_t count;   // of the model
    int32_t unknown; // -1: none
    bool spaces;     // sentencepiece's: tokens have U+2581 and bytes are <0xNN>
};

static int32_t vocabulary_find(const struct vocabulary *v, const char *token) {
    const struct added_token *added = token ? added_tokens_find(v->added, token) : NULL;
    return added ? added->id : token ? token_table_find(v->parts->tokens, token, strlen(token)) : -1;
}

// Tokens that models meant as control tokens without marking them so, as llama.cpp's converter sees it.
static bool looks_special(const char *content) {
    static const char *const NAMES[] = {"<pad>", "<mask>", "<2mass>", "[@BOS@]"};
    for (size_t i = 0; i < ARRAY_LENGTH(NAMES); i++)
        if (strcmp(content, NAMES[i]) == 0)
            return true;
    return (strncmp(content, "<|", 2) == 0 && text_ends(content, "|>")) ||
           (strncmp(content, "<\xEF\xBD\x9C", 4) == 0 && text_ends(content, "\xEF\xBD\x9C>")) ||
           (strncmp(content, "<unused", 7) == 0 && text_ends(content, ">"));
}

static bool is_byte(struct token_bytes token) {
    return token.length == 6 && memcmp(token.bytes, "<0x", 3) == 0 && token.bytes[5] == '>';
}

static enum token_type vocabulary_type(const struct vocabulary *v, int32_t id) {
    const struct added_token *added = added_tokens_find_id(v->added, id);
    const struct token_bytes token = token_table_token(v->parts->tokens, id);
    if (v->spaces && id == v->unknown)
        return TOKEN_UNKNOWN;
    if (added)
        return added->special || looks_special(added->content) ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
    return !token.bytes ? TOKEN_UNUSED : v->spaces && is_byte(token) ? TOKEN_BYTE : TOKEN_NORMAL;
}

static void vocabulary_add_token(const struct vocabulary *v, int32_t id, struct gguf_file *f) {
    const struct added_token *added = added_tokens_find_id(v->added, id);
    const struct token_bytes token = token_table_token(v->parts->tokens, id);
    struct text spelt = {0};
    if (added && vocabulary_type(v, id) == TOKEN_USER_DEFINED) {
        for (const char *rest = added->content, *next; *rest; rest = next) {
            const char *space = strstr(rest, SPACE);
            text_add_bytes(&spelt, rest, space ? (size_t)(space - rest) : strlen(rest));
            text_add(&spelt, space ? " " : "");
            next = space ? space + strlen(SPACE) : rest + strlen(rest);
        }
    } else if (added) {
        text_add_bytes(&spelt, added->content, added->length);
    } else if (token.bytes) {
        text_add_bytes(&spelt, token.bytes, token.length);
    } else {
        text_add(&spelt, "[PAD%d]", id);
    }
    gguf_add_item(f, spelt.text ? spelt.text : "", spelt.length);
    text_release(&spelt);
}

static void vocabulary_add_tokens(const struct vocabulary *v, struct gguf_file *f) {
    int32_t *type = mem_alloc((size_t)v->count * sizeof *type);
    gguf_begin_strings(f, KEY("tokens"), (size_t)v->count);
    for (int32_t id = 0; id < v->count; id++) {
        vocabulary_add_token(v, id, f);
        type[id] = (int32_t)vocabulary_type(v, id);
    }
    gguf_add_i32s(f, KEY("token_type"), type, (size_t)v->count);
    free(type);
}

static void vocabulary_add_merges(const struct vocabulary *v, struct gguf_file *f) {
    struct text line = {0};
    gguf_begin_strings(f, KEY("merges"), v->parts->merges.count);
    for (size_t i = 0; i < v->parts->merges.count; i++) {
        const struct token_merge merge = v->parts->merges.item[i];
        const struct token_bytes left = token_table_token(v->parts->tokens, merge.left),
                                 right = token_table_token(v->parts->tokens, merge.right);
        line.length = 0;
        text_add_bytes(&line, left.bytes, left.length);
        text_add(&line, " ");
        text_add_bytes(&line, right.bytes, right.length);
        gguf_add_item(f, line.text, line.length);
    }
    text_release(&line);
}

// llama.cpp joins two pieces of sentencepiece's where that is a token, the one of the highest score first: minus the
// rank of the first merge that makes a token.
static void vocabulary_add_scores(const struct vocabulary *v, struct gguf_file *f) {
    static const float NEVER = -1e9f, ADDED = -1000, UNUSED = -10000;
    const struct tokenizer_parts *p = v->parts;
    float *score = mem_alloc((size_t)v->count * sizeof *score);
    struct text product = {0};
    for (int32_t id = 0; id < v->count; id++) {
        const enum token_type type = vocabulary_type(v, id);
        const bool pieces = type == TOKEN_NORMAL && token_table_token(p->tokens, id).length > 4;
        score[id] = type == TOKEN_USER_DEFINED ? ADDED : type == TOKEN_UNUSED ? UNUSED : pieces ? NEVER : 0;
    }
    for (size_t i = p->merges.count; i-- > 0;) {
        const struct token_bytes left = token_table_token(p->tokens, p->merges.item[i].left),
                                 right = token_table_token(p->tokens, p->merges.item[i].right);
        product.length = 0;
        text_add_bytes(&product, left.bytes, left.length);
        text_add_bytes(&product, right.bytes, right.length);
        const int32_t id = token_table_find(p->tokens, product.text, product.length);
        if (id >= 0 && id < v->count && vocabulary_type(v, id) == TOKEN_NORMAL)
            score[id] = -(float)(p->ranks.count ? p->ranks.item[i] : (int32_t)i);
    }
    gguf_add_f32s(f, KEY("scores"), score, (size_t)v->count);
    text_release(&product);
    free(score);
}

// ---- beginnings and ends

// Whether text gets a space before it.
static bool begins_with_space(const json_t *description) {
    const json_t *normalizer = json_object_get(description, "normalizer"),
                 *pre = json_object_get(description, "pre_tokenizer");
    for (size_t i = 0; i < steps_count(normalizer, "normalizers"); i++)
        if (strcmp(step_type(steps_at(normalizer, "normalizers", i)), "Prepend") == 0)
            return true;
    for (size_t i = 0; i < steps_count(pre, "pretokenizers"); i++) {
        const json_t *step = steps_at(pre, "pretokenizers", i);
        const char *scheme = json_string_value(json_object_get(step, "prepend_scheme"));
        if (strcmp(step_type(step), "Metaspace") == 0 && !(scheme && strcmp(scheme, "never") == 0))
            return true;
    }
    return false;
}

static void add_id(struct gguf_file *f, const char *key, int64_t id, int32_t count) {
    if (id >= 0 && id < count)
        gguf_add_u32(f, key, id);
}

// The token that fills batches: by name in tokenizer_config.json, or by id in config.json; -1: none.
static trireme_status find_padding(const struct vocabulary *v, const char *directory, int64_t *out,
                                   trireme_error *error) {
    char *named = mem_printf("%s/tokenizer_config.json", directory),
         *numbered = mem_printf("%s/config.json", directory);
    json_t *tokenizer = NULL, *model = NULL;
    trireme_status status = file_missing(named) ? TRIREME_OK : json_parse_file(named, CONFIG_LIMIT, &tokenizer, error);
    if (status == TRIREME_OK)
        status = json_parse_file(numbered, CONFIG_LIMIT, &model, error);
    const json_t *pad = json_object_get(tokenizer, "pad_token"), *id = json_object_get(model, "pad_token_id");
    *out = vocabulary_find(v, json_string_value(json_is_object(pad) ? json_object_get(pad, "content") : pad));
    if (*out < 0 && json_is_integer(id))
        *out = json_integer_value(id);
    json_decref(tokenizer);
    json_decref(model);
    free(named);
    free(numbered);
    return status;
}

static trireme_status add_ends(struct gguf_file *f, const struct tokenizer *t, const struct vocabulary *v,
                               const char *directory, const struct model_config *model, trireme_error *error) {
    const struct token_list *steps = &tokenizer_template(t)->steps;
    const int64_t bos = tokenizer_bos(t) >= 0 ? tokenizer_bos(t) : model->bos_token_id,
                  eos = tokenizer_eos(t) >= 0 ? tokenizer_eos(t) : model->eos_token_id;
    int64_t padding;
    TRY(find_padding(v, directory, &padding, error));
    add_id(f, KEY("bos_token_id"), bos, v->count);
    add_id(f, KEY("eos_token_id"), eos, v->count);
    add_id(f, KEY("unknown_token_id"), v->unknown, v->count);
    add_id(f, KEY("padding_token_id"), padding, v->count);
    gguf_add_bool(f, KEY("add_bos_token"), steps->count > 1 && steps->item[0] == bos);
    gguf_add_bool(f, KEY("add_eos_token"), steps->count > 1 && steps->item[steps->count - 1] == eos);
    const char *template = tokenizer_chat_template(t);
    if (template)
        gguf_add_string(f, "tokenizer.chat_template", template, strlen(template));
    return TRIREME_OK;
}

trireme_status gguf_add_tokenizer(struct gguf_file *f, const struct tokenizer *t, const char *directory,
                                  const struct model_config *model, trireme_error *error) {
    const struct tokenizer_parts *parts = tokenizer_parts_of(t);
    const json_t *description = parts->description, *of = json_object_get(description, "model");
    struct vocabulary v = {.parts = parts,
                           .added = tokenizer_added(t),
                           .count = (int32_t)model->vocab_size,
                           .spaces = json_is_true(json_object_get(of, "byte_fallback"))};
    const char *pre = "default", *kind = v.spaces ? "llama" : "gpt2";
    v.unknown = vocabulary_find(&v, json_string_value(json_object_get(of, "unk_token")));
    if (strcmp(tokenizer_kind(t), "Unigram") == 0)
        FAIL(TRIREME_ERROR_USAGE, "%s: its tokenizer is of the kind Unigram; BPE can become GGUF", directory);
    TRY(check_normalizer(json_object_get(description, "normalizer"), directory, error));
    if (!v.spaces)
        TRY(find_pre(parts, directory, &pre, error));
    gguf_add_string(f, KEY("model"), kind, strlen(kind));
    gguf_add_string(f, KEY("pre"), pre, strlen(pre));
    vocabulary_add_tokens(&v, f);
    if (v.spaces) {
        vocabulary_add_scores(&v, f);
        gguf_add_bool(f, KEY("add_space_prefix"), begins_with_space(description));
    } else {
        vocabulary_add_merges(&v, f);
    }
    return add_ends(f, t, &v, directory, model, error);
}
