#include "tokenizer/added_tokens.h"

#include "tokenizer/byte_trie.h"
#include "tokenizer/unicode.h"

enum { CONTENT_MAX = 4096 }; // bytes of a token, by which the time for a text is bounded

// The tokens that are looked for in one form of the text.
struct added_set {
    struct byte_trie trie; // values: indices of tokens
    bool any;
};

struct added_tokens {
    VEC(struct added_token) tokens; // by id
    struct added_set sets[2];       // not normalized, normalized
    size_t reach;                   // bytes of the longest one, in either form
};

size_t added_tokens_count(const struct added_tokens *a) {
    return a->tokens.count;
}

const struct added_token *added_tokens_at(const struct added_tokens *a, size_t i) {
    return &a->tokens.item[i];
}

const struct added_token *added_tokens_find_id(const struct added_tokens *a, int32_t id) {
    const size_t at = PARTITION_POINT(i, a->tokens.count, a->tokens.item[i].id < id);
    return at < a->tokens.count && a->tokens.item[at].id == id ? &a->tokens.item[at] : NULL;
}

const struct added_token *added_tokens_find(const struct added_tokens *a, const char *content) {
    for (size_t i = 0; i < a->tokens.count; i++)
        if (strcmp(a->tokens.item[i].content, content) == 0)
            return &a->tokens.item[i];
    return NULL;
}

// ---- making

static trireme_status added_read(struct added_token *t, const json_t *description, const char *where,
                                 trireme_error *error) {
    const char *content = NULL;
    int64_t id = 0;
    TRY(json_read_string(description, where, "content", JSON_REQUIRED, &content, error));
    TRY(json_read_integer(description, where, "id", JSON_REQUIRED, 0, INT32_MAX - 1, &id, error));
    TRY(json_read_boolean(description, where, "single_word", JSON_REQUIRED, &t->single_word, error));
    TRY(json_read_boolean(description, where, "lstrip", JSON_REQUIRED, &t->lstrip, error));
    TRY(json_read_boolean(description, where, "rstrip", JSON_REQUIRED, &t->rstrip, error));
    TRY(json_read_boolean(description, where, "normalized", JSON_REQUIRED, &t->normalized, error));
    TRY(json_read_boolean(description, where, "special", JSON_REQUIRED, &t->special, error));
    t->id = (int32_t)id;
    t->length = strlen(content);
    if (t->length == 0 || t->length > CONTENT_MAX)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: token %d has %zu bytes, expected 1 to %d", where, t->id, t->length,
             CONTENT_MAX);
    t->content = mem_strdup(content);
    return TRIREME_OK;
}

// What `tokenizers` does with the ids of a file: nothing. It gives them itself.
static trireme_status added_check_id(const struct added_token *t, const struct token_table *vocabulary, int32_t *next,
                                     const char *where, trireme_error *error) {
    char excerpt[JSON_EXCERPT_BYTES];
    const int32_t known = token_table_find(vocabulary, t->content, t->length), expected = known >= 0 ? known : *next;
    if (t->id != expected)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: %s has the id %d, but %s %d", where, json_excerpt(t->content, excerpt), t->id,
             known >= 0 ? "in the vocabulary" : "the next one is", expected);
    if (known < 0 && token_table_token(vocabulary, t->id).bytes)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: %s has the id %d of another token of the vocabulary", where,
             json_excerpt(t->content, excerpt), t->id);
    *next += known < 0;
    return TRIREME_OK;
}

static int added_compare(const void *a, const void *b) {
    const struct added_token *x = a, *y = b;
    return COMPARE(x->id, y->id);
}

static trireme_status added_prepare(struct added_tokens *a, const struct normalizer *normalizer, const char *where,
                                    trireme_error *error) {
    struct text_work *work = text_work_create();
    trireme_status status = TRIREME_OK;
    for (size_t i = 0; i < a->tokens.count && status == TRIREME_OK; i++) {
        struct added_token *t = &a->tokens.item[i];
        struct added_set *set = &a->sets[t->normalized];
        struct text normal = {0};
        char excerpt[JSON_EXCERPT_BYTES];
        const char *sought = t->content;
        size_t length = t->length;
        if (t->normalized) {
            status = normalizer_apply(normalizer, work, t->content, t->length, false, &normal, error);
            t->normal = normal.text ? normal.text : mem_strdup("");
            t->normal_length = normal.length;
            sought = t->normal, length = t->normal_length;
        }
        set->any = true;
        a->reach = MAX(a->reach, length);
        if (status == TRIREME_OK && !byte_trie_add(&set->trie, sought, length, (int32_t)i))
            status = error_set(error, TRIREME_ERROR_CORRUPT, "%s: %s is there twice, or is nothing once normalized",
                               where, json_excerpt(t->content, excerpt));
    }
    text_work_free(work);
    return status;
}

static trireme_status added_read_all(struct added_tokens *a, const json_t *description,
                                     const struct token_table *vocabulary, const char *where, trireme_error *error) {
    int32_t next = token_table_count(vocabulary);
    if (description && !json_is_null(description) && !json_is_array(description))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: must be an array", where);
    for (size_t i = 0; i < json_array_size(description); i++) {
        VEC_PUSH(&a->tokens, (struct added_token){0});
        struct added_token *t = &a->tokens.item[a->tokens.count - 1];
        TRY(added_read(t, json_array_get(description, i), where, error));
        TRY(added_check_id(t, vocabulary, &next, where, error));
    }
    VEC_SORT(&a->tokens, added_compare);
    for (size_t i = 1; i < a->tokens.count; i++)
        if (a->tokens.item[i].id == a->tokens.item[i - 1].id)
            FAIL(TRIREME_ERROR_CORRUPT, "%s: the id %d is there twice", where, a->tokens.item[i].id);
    return TRIREME_OK;
}

trireme_status added_tokens_create(struct added_tokens **out, const json_t *description,
                                   const struct token_table *vocabulary, const struct normalizer *normalizer,
                                   const char *where, trireme_error *error) {
    struct added_tokens *a = mem_alloc(sizeof *a);
    char *member = mem_printf("%s: \"added_tokens\"", where);
    for (int i = 0; i < 2; i++)
        byte_trie_init(&a->sets[i].trie);
    trireme_status status = added_read_all(a, description, vocabulary, member, error);
    if (status == TRIREME_OK)
        status = added_prepare(a, normalizer, member, error);
    free(member);
    if (status == TRIREME_OK)
        *out = a;
    else
        added_tokens_free(a);
    return status;
}

void added_tokens_free(struct added_tokens *a) {
    if (!a)
        return;
    for (size_t i = 0; i < a->tokens.count; i++) {
        free(a->tokens.item[i].content);
        free(a->tokens.item[i].normal);
    }
    VEC_RELEASE(&a->tokens);
    for (int i = 0; i < 2; i++)
        byte_trie_release(&a->sets[i].trie);
    free(a);
}

// ---- finding

static bool is_space(uint32_t code) {
    return unicode_is(unicode_categories(), code, UNICODE_WHITE_SPACE);
}

// As \w of regular expressions (UTS 18, annex C): what is alphabetic, marks, digits, connectors, joiners.
static bool is_of_word(uint32_t code) {
    const uint32_t set = UNICODE_LETTERS | UNICODE_MARKS | 1u << CATEGORY_ND | 1u << CATEGORY_NL | 1u << CATEGORY_PC;
    const bool joins = code == 0x200C || code == 0x200D;
    // Alphabetic, but symbols by category: letters in circles and squares.
    const bool framed = (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
                        (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
    return joins || framed || unicode_is(unicode_categories(), code, set);
}

static uint32_t character_before(const char *text, size_t at, size_t *begin) {
    size_t bytes;
    *begin = at - 1;
    while (*begin > 0 && ((uint8_t)text[*begin] & 0xC0) == 0x80)
        --*begin;
    return unicode_decode(text + *begin, &bytes);
}

static bool is_inside_word(const char *text, size_t length, size_t begin, size_t end) {
    size_t other;
    return (begin > 0 && is_of_word(character_before(text, begin, &other))) ||
           (end < length && is_of_word(unicode_decode(text + end, &other)));
}

static size_t space_before(const char *text, size_t at) {
    size_t begin;
    while (at > 0 && is_space(character_before(text, at, &begin)))
        at = begin;
    return at;
}

static size_t space_after(const char *text, size_t length, size_t at) {
    size_t bytes;
    while (at < length && is_space(unicode_decode(text + at, &bytes)))
        at += bytes;
    return at;
}

// The longest token that begins at a byte; NULL: none does.
static const struct added_token *added_longest(const struct added_tokens *a, const struct byte_trie *trie,
                                               const char *text, size_t length, size_t at, size_t *end) {
    const struct added_token *longest = NULL;
    uint32_t node = 0;
    while (at < length && (node = byte_trie_step(trie, node, (uint8_t)text[at])) != 0) {
        at++;
        const int32_t token = trie->values.item[node];
        if (token < 0)
            continue;
        longest = &a->tokens.item[token];
        *end = at;
    }
    return longest;
}

void added_tokens_cut(const struct added_tokens *a, bool normalized, const char *text, size_t length,
                      struct added_parts *out) {
    const struct added_set *set = &a->sets[normalized];
    size_t done = 0, end = 0;
    for (size_t at = 0; set->any && at < length;) {
        const struct added_token *t = NULL;
        if (set->trie.first[(uint8_t)text[at]])
            t = added_longest(a, &set->trie, text, length, at, &end);
        if (!t) {
            at++;
            continue;
        }
        size_t begin = at, stop = end;
        at = end; // also after a token that does not count
        if (t->single_word && is_inside_word(text, length, begin, stop))
            continue;
        if (t->lstrip)
            begin = MAX(space_before(text, begin), done);
        if (t->rstrip)
            stop = space_after(text, length, stop);
        if (done < begin)
            VEC_PUSH(out, (struct added_part){done, begin, -1});
        VEC_PUSH(out, (struct added_part){begin, stop, t->id});
        done = stop;
    }
    if (done < length)
        VEC_PUSH(out, (struct added_part){done, length, -1});
}

bool added_tokens_touch(const struct added_tokens *a, bool normalized, const char *text, size_t length, size_t at) {
    const struct added_set *set = &a->sets[normalized];
    for (size_t begin = at - MIN(at, a->reach); set->any && begin <= at; begin++) {
        uint32_t node = 0;
        size_t i = begin;
        for (; i < length && (node = byte_trie_step(&set->trie, node, (uint8_t)text[i])) != 0; i++)
            if (i + 1 >= at && set->trie.values.item[node] >= 0)
                return true;
        if (i == length)
            return true;
    }
    return false;
}

size_t added_tokens_reach(const struct added_tokens *a) {
    return a->reach;
}
