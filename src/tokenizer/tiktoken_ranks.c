#include "tokenizer/tiktoken_ranks.h"

#include "base/base64.h"
#include "tokenizer/byte_characters.h"
#include "tokenizer/rank_parts.h"
#include "tokenizer/split_patterns.h"

// ---- known files

// Special tokens: single ones by id, and a run of numbered ones ("<|reserved_special_token_%d|>").
struct special_token {
    int32_t id;
    const char *content;
};
struct special_run {
    const char *format;
    int32_t first, id, count;
};
static const struct ranks_kind {
    int32_t ranks;
    const char *name, *pattern;
    bool composes; // text is normalized to NFC before
    const char *bos, *eos;
    struct special_token special[12];
    struct special_run run;
} KINDS[] = {
    {.ranks = 50256,
     .name = "gpt2",
     .pattern = "gpt2",
     .bos = "<|endoftext|>",
     .eos = "<|endoftext|>",
     .special = {{50256, "<|endoftext|>"}}},
    {.ranks = 50280, .name = "p50k", .pattern = "gpt2", .eos = "<|endoftext|>", .special = {{50256, "<|endoftext|>"}}},
    {.ranks = 100256,
     .name = "cl100k",
     .pattern = "cl100k",
     .eos = "<|endoftext|>",
     .special = {{100257, "<|endoftext|>"},
                 {100258, "<|fim_prefix|>"},
                 {100259, "<|fim_middle|>"},
                 {100260, "<|fim_suffix|>"},
                 {100276, "<|endofprompt|>"}}},
    {.ranks = 128000,
     .name = "llama3",
     .pattern = "llama3",
     .bos = "<|begin_of_text|>",
     .eos = "<|end_of_text|>",
     .special = {{128000, "<|begin_of_text|>"},
                 {128001, "<|end_of_text|>"},
                 {128002, "<|reserved_special_token_0|>"},
                 {128003, "<|reserved_special_token_1|>"},
                 {128004, "<|finetune_right_pad_id|>"},
                 {128005, "<|reserved_special_token_2|>"},
                 {128006, "<|start_header_id|>"},
                 {128007, "<|end_header_id|>"},
                 {128008, "<|eom_id|>"},
                 {128009, "<|eot_id|>"},
                 {128010, "<|python_tag|>"}},
     .run = {"<|reserved_special_token_%d|>", 3, 128011, 245}},
    {.ranks = 151643,
     .name = "qwen",
     .pattern = "qwen2",
     .composes = true,
     .eos = "<|endoftext|>",
     .special = {{151643, "<|endoftext|>"}, {151644, "<|im_start|>"}, {151645, "<|im_end|>"}},
     .run = {"<|extra_%d|>", 0, 151646, 205}},
    {.ranks = 199998,
     .name = "o200k",
     .pattern = "o200k",
     .eos = "<|endoftext|>",
     .special = {{199999, "<|endoftext|>"}, {200018, "<|endofprompt|>"}}},
};

static const struct ranks_kind *ranks_kind_find(int32_t ranks) {
    for (size_t i = 0; i < ARRAY_LENGTH(KINDS); i++)
        if (KINDS[i].ranks == ranks)
            return &KINDS[i];
    return NULL;
}

// ---- lines

struct ranks_reader {
    const char *at, *end;
    int64_t line; // of the one that was read last, from 1
    const char *where;
    struct text bytes, spelt; // of a token
};

// The next line that is not blank, without its end; false after the last one.
static bool ranks_line(struct ranks_reader *r, const char **line, size_t *length) {
    while (r->at < r->end) {
        const char *end = memchr(r->at, '\n', (size_t)(r->end - r->at)) ?: r->end;
        *line = r->at;
        *length = (size_t)(end - r->at);
        r->at = end < r->end ? end + 1 : end;
        r->line++;
        if (*length && (*line)[*length - 1] == '\r')
            --*length;
        if (*length)
            return true;
    }
    return false;
}

// "YQ== 64": the token's bytes go to *bytes. What is wrong, or NULL.
static const char *ranks_line_read(const char *line, size_t length, struct text *bytes, int32_t *rank) {
    const char *space = memchr(line, ' ', length), *end = line + length;
    bytes->length = 0;
    if (!space)
        return "expected a token in base64, a space, and a rank";
    if (!base64_read(line, (size_t)(space - line), bytes) || !bytes->length)
        return "the token is not base64";
    int64_t value = 0;
    const char *digit = space + 1;
    for (; digit < end && *digit >= '0' && *digit <= '9' && value < INT32_MAX; digit++)
        value = 10 * value + (*digit - '0');
    if (digit < end || digit == space + 1 || value >= INT32_MAX)
        return "the rank is not a whole number below 2^31 - 1";
    *rank = (int32_t)value;
    return NULL;
}

static trireme_status ranks_read(struct ranks_reader *r, struct token_table *tokens, trireme_error *error) {
    const char *line;
    size_t length;
    while (ranks_line(r, &line, &length)) {
        int32_t rank;
        bool added = true;
        const char *wrong = ranks_line_read(line, length, &r->bytes, &rank);
        if (!wrong) {
            r->spelt.length = 0;
            byte_characters_spell(r->bytes.text, r->bytes.length, &r->spelt);
            trireme_status status = token_table_add(tokens, r->spelt.text, r->spelt.length, rank, &added, error);
            if (status != TRIREME_OK)
                return error_prefix(error, status, "%s: line %lld", r->where, (long long)r->line);
        }
        if (!wrong && !added)
            wrong = "the token, or its rank, is there twice";
        char shown[JSON_EXCERPT_BYTES];
        if (wrong)
            FAIL(TRIREME_ERROR_CORRUPT, "%s: line %lld, %s: %s", r->where, (long long)r->line,
                 json_excerpt_bytes(line, length, shown), wrong);
    }
    return TRIREME_OK;
}

bool tiktoken_ranks_are(const char *bytes, size_t length) {
    struct ranks_reader r = {.at = bytes, .end = bytes + MIN(length, (size_t)4096)};
    const char *line;
    size_t line_length;
    int32_t rank;
    const bool are = ranks_line(&r, &line, &line_length) && !ranks_line_read(line, line_length, &r.bytes, &rank);
    text_release(&r.bytes);
    return are;
}

// ---- parts

static trireme_status specials_add(struct tokenizer_parts *parts, json_t *specials, const struct ranks_kind *kind,
                                   const char *where, trireme_error *error) {
    for (size_t i = 0; i < ARRAY_LENGTH(kind->special) && kind->special[i].content; i++)
        TRY(rank_parts_add_special(parts, specials, kind->special[i].id, kind->special[i].content, where, error));
    for (int32_t i = 0; i < kind->run.count; i++) {
        char content[64];
        snprintf(content, sizeof content, kind->run.format, kind->run.first + i);
        TRY(rank_parts_add_special(parts, specials, kind->run.id + i, content, where, error));
    }
    return TRIREME_OK;
}

static trireme_status ranks_describe(struct tokenizer_parts *parts, const char *given, const char *where,
                                     trireme_error *error) {
    const int32_t count = token_table_count(parts->tokens);
    const struct ranks_kind *kind = ranks_kind_find(count);
    const char *pattern;
    if (!kind && !given)
        FAIL(TRIREME_ERROR_USAGE,
             "%s: a file of tiktoken does not say how text is cut, and %d ranks are those of no known tokenizer: give "
             "--tokenizer.pattern=cl100k, another name, or a regular expression",
             where, count);
    TRY(split_pattern_read(given ? given : kind->pattern, "tokenizer.pattern", &pattern, error));
    json_t *specials = rank_parts_describe(parts, pattern, kind && kind->composes);
    if (!kind)
        return TRIREME_OK;
    parts->bos = kind->bos ? mem_strdup(kind->bos) : NULL;
    parts->eos = mem_strdup(kind->eos);
    return specials_add(parts, specials, kind, where, error);
}

trireme_status tiktoken_ranks_parse(struct tokenizer_parts *out, const char *bytes, size_t length, const char *pattern,
                                    const char *where, trireme_error *error) {
    struct ranks_reader reader = {.at = bytes, .end = bytes + length, .where = where};
    *out = (struct tokenizer_parts){.tokens = token_table_create()};
    trireme_status status = ranks_read(&reader, out->tokens, error);
    if (status == TRIREME_OK)
        status = rank_parts_merge(out, where, error);
    if (status == TRIREME_OK)
        status = ranks_describe(out, pattern, where, error);
    if (status != TRIREME_OK)
        tokenizer_parts_release(out);
    text_release(&reader.bytes);
    text_release(&reader.spelt);
    return status;
}
