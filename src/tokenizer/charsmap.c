#include "tokenizer/charsmap.h"

#include "base/base64.h"
#include "base/utf8.h"
#include "tokenizer/unicode.h"

#include <utf8proc.h>

enum { CLUSTER_BYTES_MAX = 5 }; // of one that is replaced as a whole

struct charsmap {
    char *bytes;    // what was base64
    uint32_t *unit; // the double array
    size_t units;
    const char *replacements; // in `bytes`
    size_t replacements_length;
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
    free(m);
}

static size_t unit_offset(uint32_t unit) {
    return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

// The replacement by the rule of the shortest beginning of key[0, length); NULL if there is none.
static const char *find_rule(const struct charsmap *m, const char *key, size_t length, size_t *replacement_length) {
    size_t node = unit_offset(m->unit[0]);
    for (size_t i = 0; i < length && key[i]; i++) {
        node ^= (uint8_t)key[i];
        if (node >= m->units || (m->unit[node] & 0x800000FF) != (uint8_t)key[i])
            return NULL;
        bool leaf = m->unit[node] & 1u << 8;
        node ^= unit_offset(m->unit[node]);
        if (node >= m->units)
            return NULL;
        if (!leaf)
            continue;
        size_t at = m->unit[node] & 0x7FFFFFFF;
        // The files of others may point anywhere, into a character, too.
        if (at >= m->replacements_length || ((uint8_t)m->replacements[at] & 0xC0) == 0x80)
            return NULL;
        const char *text = m->replacements + at;
        *replacement_length = strnlen(text, m->replacements_length - at);
        return text;
    }
    return NULL;
}

// Adds what a rule makes of text[0, length); false if there is none.
static bool add_replaced(const struct charsmap *m, const char *text, size_t length, struct text *out) {
    size_t replacement_length;
    const char *replacement = find_rule(m, text, length, &replacement_length);
    if (replacement)
        text_add_bytes(out, replacement, replacement_length);
    return replacement != NULL;
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
