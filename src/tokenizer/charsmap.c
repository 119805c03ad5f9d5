#include "tokenizer/charsmap.h"

#include "base/base64.h"
#include "base/utf8.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/unicode.h"

#include <utf8proc.h>

enum { CLUSTER_BYTES_MAX = 5 }; // of one that is replaced as a whole

struct charsmap {
    char *bytes;    // what was base64
    uint32_t *unit; // the double array
    size_t units;
    const char *replacements; // in `bytes`
    size_t replacements_length;
    bool longest;
    struct byte_trie kept;
};

static trireme_status charsmap_read(struct charsmap *m, const char *base64, trireme_error *error) {
    size_t length;
    m->bytes = base64_decode(base64, &length);
    if (!m->bytes)
        FAIL(TRIREME_ERROR_USAGE, "the precompiled charsmap is not base64");
    uint32_t trie = 0;
    for (size_t i = 0; i < 4 && length >= 4; i++)
        trie |= (uint32_t)(uint8_t)m->bytes[i] << 8 * i;
    m->units = trie / 4;
    if (length < 4 || trie > length - 4 || m->units == 0)
        FAIL(TRIREME_ERROR_USAGE, "the precompiled charsmap of %zu bytes has no room for its trie of %u", length, trie);
    m->unit = mem_alloc(m->units * sizeof *m->unit);
    for (size_t i = 0; i < 4 * m->units; i++)
        m->unit[i / 4] |= (uint32_t)(uint8_t)m->bytes[4 + i] << 8 * (i % 4);
    m->replacements = m->bytes + 4 + 4 * m->units;
    m->replacements_length = length - 4 - 4 * m->units;
    if (utf8_prefix(m->replacements, m->replacements_length) != m->replacements_length)
        FAIL(TRIREME_ERROR_USAGE, "the replacements of the precompiled charsmap are not UTF-8");
    return TRIREME_OK;
}

trireme_status charsmap_create(struct charsmap **out, const char *base64, trireme_error *error) {
    struct charsmap *m = mem_alloc(sizeof *m);
    byte_trie_init(&m->kept);
    trireme_status status = charsmap_read(m, base64, error);
    if (status == TRIREME_OK)
        *out = m;
    else
        charsmap_free(m);
    return status;
}

void charsmap_free(struct charsmap *m) {
    if (!m)
        return;
    free(m->bytes);
    free(m->unit);
    byte_trie_release(&m->kept);
    free(m);
}

void charsmap_use_longest(struct charsmap *m) {
    m->longest = true;
}

bool charsmap_keep(struct charsmap *m, const char *text, size_t length) {
    m->longest = true;
    return length > 0 && byte_trie_add(&m->kept, text, length, 1);
}

static size_t unit_offset(uint32_t unit) {
    return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

// A rule that was found: the bytes that it replaces, and by what; `text` is NULL where there is none.
struct charsmap_rule {
    size_t key;
    const char *text;
    size_t length;
};

// What a leaf says. The files of others may point anywhere, into a character, too: then there is no rule.
static struct charsmap_rule leaf_rule(const struct charsmap *m, size_t node, size_t key) {
    const size_t at = m->unit[node] & 0x7FFFFFFF;
    if (at >= m->replacements_length || ((uint8_t)m->replacements[at] & 0xC0) == 0x80)
        return (struct charsmap_rule){0};
    const char *text = m->replacements + at;
    return (struct charsmap_rule){key, text, strnlen(text, m->replacements_length - at)};
}

// The rule of the shortest, or the longest, beginning of key[0, length).
static struct charsmap_rule find_rule(const struct charsmap *m, const char *key, size_t length) {
    struct charsmap_rule found = {0};
    size_t node = unit_offset(m->unit[0]);
    for (size_t i = 0; i < length && key[i] && (m->longest || !found.text); i++) {
        node ^= (uint8_t)key[i];
        if (node >= m->units || (m->unit[node] & 0x800000FF) != (uint8_t)key[i])
            break;
        const bool leaf = m->unit[node] & 1u << 8;
        node ^= unit_offset(m->unit[node]);
        if (node >= m->units)
            break;
        if (leaf) {
            const struct charsmap_rule rule = leaf_rule(m, node, i + 1);
            if (!rule.text && !m->longest)
                break;
            found = rule.text ? rule : found;
        }
    }
    return found;
}

// Adds what a rule makes of text[0, length); false if there is none.
static bool add_replaced(const struct charsmap *m, const char *text, size_t length, struct text *out) {
    const struct charsmap_rule rule = find_rule(m, text, length);
    if (rule.text)
        text_add_bytes(out, rule.text, rule.length);
    return rule.text != NULL;
}

// The length of the longest text at text[0, length) that is kept; 0: none.
static size_t find_kept(const struct charsmap *m, const char *text, size_t length) {
    size_t found = 0;
    uint32_t node = 0;
    for (size_t i = 0; i < length && (node = byte_trie_step(&m->kept, node, (uint8_t)text[i])); i++)
        if (m->kept.values.item[node] >= 0)
            found = i + 1;
    return found;
}

static void charsmap_add_longest(const struct charsmap *m, const char *text, size_t length, size_t limit,
                                 struct text *out) {
    for (size_t at = 0, bytes; at < length && out->length <= limit; at += bytes) {
        bytes = find_kept(m, text + at, length - at);
        const struct charsmap_rule rule = bytes ? (struct charsmap_rule){0} : find_rule(m, text + at, length - at);
        if (!bytes && !rule.text)
            unicode_decode(text + at, &bytes);
        if (rule.text)
            text_add_bytes(out, rule.text, rule.length);
        else
            text_add_bytes(out, text + at, bytes);
        bytes += rule.key;
    }
}

static void add_cluster(const struct charsmap *m, const char *text, size_t length, size_t limit, struct text *out) {
    if (length <= CLUSTER_BYTES_MAX && add_replaced(m, text, length, out))
        return;
    for (size_t at = 0, bytes; at < length && out->length <= limit; at += bytes) {
        unicode_decode(text + at, &bytes);
        if (!add_replaced(m, text + at, bytes, out))
            text_add_bytes(out, text + at, bytes);
    }
}

void charsmap_add(const struct charsmap *m, const char *text, size_t length, size_t limit, struct text *out) {
    if (m->longest) {
        charsmap_add_longest(m, text, length, limit, out);
        return;
    }
    size_t start = 0, at = 0, bytes;
    int32_t state = 0;
    uint32_t last = 0;
    for (; at < length && out->length <= limit; at += bytes) {
        uint32_t code = unicode_decode(text + at, &bytes);
        bool ascii = last < 0x80 && code < 0x80; // a quick answer
        if (at > 0 && (ascii ? last != '\r' || code != '\n'
                             : utf8proc_grapheme_break_stateful((int32_t)last, (int32_t)code, &state))) {
            add_cluster(m, text + start, at - start, limit, out);
            start = at;
            state = ascii ? 0 : state;
        }
        last = code;
    }
    if (at > start)
        add_cluster(m, text + start, at - start, limit, out);
}
