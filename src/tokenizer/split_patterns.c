#include "tokenizer/split_patterns.h"

#include "tokenizer/description.h"
#include "tokenizer/expression.h"

// Letters, with one other character before them; digits; other characters, with the line ends after them; blanks.
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORDS(digits)                                     \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits \
                 "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

// None of them matches a letter together with a space or line end behind it, and none looks behind, or ahead but from
// white space (pattern_seam).
static const struct split_pattern {
    const char *name, *pattern;
} PATTERNS[] = {
    {"gpt2", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
    {"cl100k", WORDS("\\p{N}{1,3}")},
    {"o200k", "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" CONTRACTIONS "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER
              "*" CONTRACTIONS "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {"llama3", WORDS("\\p{N}{1,3}")},
    {"qwen2", WORDS("\\p{N}")},
    {"tekken", "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER
               "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
};

const char *split_pattern_find(const char *name) {
    for (size_t i = 0; i < ARRAY_LENGTH(PATTERNS); i++)
        if (strcmp(PATTERNS[i].name, name) == 0)
            return PATTERNS[i].pattern;
    return NULL;
}

const char *split_pattern_name(const char *pattern) {
    for (size_t i = 0; i < ARRAY_LENGTH(PATTERNS); i++)
        if (strcmp(PATTERNS[i].pattern, pattern) == 0)
            return PATTERNS[i].name;
    return NULL;
}

static trireme_status split_pattern_check(const char *given, const char *key, trireme_error *error) {
    struct expression *expression;
    const trireme_status status = expression_create(&expression, given, strlen(given), error);
    if (status != TRIREME_OK)
        return error_prefix(error, status, "%s", key);
    expression_free(expression);
    return TRIREME_OK;
}

trireme_status split_pattern_read(const char *given, const char *key, const char **out, trireme_error *error) {
    static const char NAME[] = "abcdefghijklmnopqrstuvwxyz0123456789_-.";
    *out = split_pattern_find(given);
    if (*out)
        return TRIREME_OK;
    *out = given;
    if (given[strspn(given, NAME)])
        return split_pattern_check(given, key, error);
    struct text names = {0};
    for (size_t i = 0; i < ARRAY_LENGTH(PATTERNS); i++)
        text_add(&names, "%s%s", i ? ", " : "", PATTERNS[i].name);
    char shown[JSON_EXCERPT_BYTES];
    const trireme_status status = error_set(error, TRIREME_ERROR_USAGE,
                                            "%s=%s: no pattern has this name: give one of %s, or a regular expression",
                                            key, json_excerpt(given, shown), names.text);
    text_release(&names);
    return status;
}

json_t *split_pattern_json(const char *pattern) {
    if (strcmp(pattern, PATTERNS[0].pattern) == 0) // which ByteLevel has
        return description_byte_level(true);
    return description_sequence("pretokenizers",
                                json_pack("[o, o]", description_split(pattern), description_byte_level(false)));
}
