// A decoder is a chain of steps, each of which makes a list of texts of a list of texts. Texts need not be UTF-8.
#include "tokenizer/decoder.h"

#include "tokenizer/byte_characters.h"
#include "tokenizer/metaspace.h"
#include "tokenizer/step_types.h"

struct decode_step {
    void (*apply)(const struct decode_step *s, const struct pieces *in, struct pieces *out);
    char *text, *content; // what is looked for, and what is put in its place
    int64_t start, stop;  // how many characters at most are taken from the ends
    bool drop_first, cleanup;
};

struct decoder {
    VEC(struct decode_step);
    double growth; // how many times as long a text may become by what replaces parts of it
};

struct decoded {
    const char *bytes;
    size_t length;
};

static struct decoded text_at(const struct pieces *in, size_t i) {
    const size_t begin = pieces_begin(in, i);
    // Without bytes there is no array.
    return (struct decoded){in->bytes.text ? in->bytes.text + begin : "", in->end.item[i] - begin};
}

// Ends the piece that has been added to out->bytes.
static void end_piece(struct pieces *out) {
    VEC_PUSH(&out->end, out->bytes.length);
}

// Adds text[0, length) with `content` in the place of each `looked_for`.
static void add_with_replaced(struct pieces *out, struct decoded text, const char *looked_for, const char *content) {
    const size_t bytes = strlen(looked_for), content_bytes = strlen(content);
    const char *at = text.bytes, *end = at + text.length;
    for (const char *found; bytes && (found = memmem(at, (size_t)(end - at), looked_for, bytes)); at = found + bytes) {
        text_add_bytes(&out->bytes, at, (size_t)(found - at));
        text_add_bytes(&out->bytes, content, content_bytes);
    }
    text_add_bytes(&out->bytes, at, (size_t)(end - at));
}

// ---- steps

static void decode_byte_level(const struct decode_step *s, const struct pieces *in, struct pieces *out) {
    (void)s;
    for (size_t i = 0; i < in->end.count; i++) {
        struct decoded t = text_at(in, i);
        if (!byte_characters_read(t.bytes, t.length, &out->bytes))
            text_add_bytes(&out->bytes, t.bytes, t.length);
    }
    end_piece(out);
}

static void decode_metaspace(const struct decode_step *s, const struct pieces *in, struct pieces *out) {
    for (size_t i = 0; i < in->end.count; i++) {
        add_with_replaced(out, text_at(in, i), s->text, i == 0 && s->drop_first ? "" : " ");
        end_piece(out);
    }
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
}

// The byte that <0xNN> stands for; -1 for another text. Rust's number parser, which `tokenizers` calls, takes "+7",
// too.
static int byte_of_fallback(struct decoded t) {
    if (t.length != 6 || memcmp(t.bytes, "<0x", 3) != 0 || t.bytes[5] != '>')
        return -1;
    int high = t.bytes[3] == '+' ? 0 : hex_digit(t.bytes[3]), low = hex_digit(t.bytes[4]);
    return high < 0 || low < 0 ? -1 : 16 * high + low;
}

// Bytes that follow one another are one text, which need not be UTF-8.
static void decode_byte_fallback(const struct decode_step *s, const struct pieces *in, struct pieces *out) {
    (void)s;
    bool bytes = false;
    for (size_t i = 0; i < in->end.count; i++) {
        struct decoded t = text_at(in, i);
        int byte = byte_of_fallback(t);
        if (byte < 0 && bytes)
            end_piece(out);
        bytes = byte >= 0;
        if (bytes)
            text_add_bytes(&out->bytes, &(char){(char)byte}, 1);
        else
            pieces_add(out, t.bytes, t.length);
    }
    if (bytes)
        end_piece(out);
}

static void decode_fuse(const struct decode_step *s, const struct pieces *in, struct pieces *out) {
    (void)s;
    text_add_bytes(&out->bytes, in->bytes.text, in->bytes.length);
    end_piece(out);
}

static void decode_strip(const struct decode_step *s, const struct pieces *in, struct pieces *out) {
    const size_t bytes = strlen(s->text);
    for (size_t i = 0; i < in->end.count; i++) {
        struct decoded t = text_at(in, i);
        for (int64_t n = 0; n < s->start && t.length >= bytes && memcmp(t.bytes, s->text, bytes) == 0; n++)
            t.bytes += bytes, t.length -= bytes;
        for (int64_t n = 0; n < s->stop && t.length >= bytes; n++) {
            if (memcmp(t.bytes + t.length - bytes, s->text, bytes) != 0)
                break;
            t.length -= bytes;
        }
        pieces_add(out, t.bytes, t.length);
    }
}

static void decode_replace(const struct decode_step *s, const struct pieces *in, struct pieces *out) {
    for (size_t i = 0; i < in->end.count; i++) {
        add_with_replaced(out, text_at(in, i), s->text, s->content);
        end_piece(out);
    }
}

static void decode_bpe(const struct decode_step *s, const struct pieces *in, struct pieces *out) {
    for (size_t i = 0; i < in->end.count; i++) {
        add_with_replaced(out, text_at(in, i), s->text, i + 1 < in->end.count ? " " : "");
        end_piece(out);
    }
}

// Blanks that English does not write before punctuation and the ends of contracted words.
static void clean_up(struct text *t, size_t begin) {
    static const char *const REPLACED[][2] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    struct pieces from = {0}, to = {0};
    text_add_bytes(&from.bytes, t->text + begin, t->length - begin);
    for (size_t i = 0; i < ARRAY_LENGTH(REPLACED) && from.bytes.length; i++) {
        pieces_clear(&to);
        add_with_replaced(&to, (struct decoded){from.bytes.text, from.bytes.length}, REPLACED[i][0], REPLACED[i][1]);
        struct pieces turn = from;
        from = to;
        to = turn;
    }
    t->length = begin;
    text_add_bytes(t, from.bytes.text, from.bytes.length);
    pieces_release(&from);
    pieces_release(&to);
}

static void decode_word_piece(const struct decode_step *s, const struct pieces *in, struct pieces *out) {
    const size_t bytes = strlen(s->text);
    for (size_t i = 0; i < in->end.count; i++) {
        struct decoded t = text_at(in, i);
        const size_t begin = out->bytes.length;
        const bool continues = t.length >= bytes && memcmp(t.bytes, s->text, bytes) == 0;
        if (i > 0 && continues)
            t.bytes += bytes, t.length -= bytes;
        else if (i > 0)
            text_add_bytes(&out->bytes, " ", 1);
        text_add_bytes(&out->bytes, t.bytes, t.length);
        if (s->cleanup)
            clean_up(&out->bytes, begin);
        end_piece(out);
    }
}

// ---- types

static trireme_status read_metaspace_decoder(struct decode_step *s, const json_t *step, const char *where,
                                             trireme_error *error) {
    struct metaspace m;
    TRY(metaspace_read(&m, step, where, error));
    s->text = mem_strdup(m.replacement);
    s->drop_first = m.scheme != METASPACE_NEVER;
    return TRIREME_OK;
}

static trireme_status read_strip_decoder(struct decode_step *s, const json_t *step, const char *where,
                                         trireme_error *error) {
    const char *content;
    TRY(step_read_character(step, where, "content", &content, error));
    s->text = mem_strdup(content);
    TRY(json_read_integer(step, where, "start", JSON_REQUIRED, 0, INT64_MAX, &s->start, error));
    return json_read_integer(step, where, "stop", JSON_REQUIRED, 0, INT64_MAX, &s->stop, error);
}

static trireme_status read_replace_decoder(struct decode_step *s, const json_t *step, const char *where,
                                           trireme_error *error) {
    const char *text, *content;
    const json_t *pattern;
    TRY(json_read_object(step, where, "pattern", JSON_REQUIRED, &pattern, error));
    if (json_object_get(pattern, "Regex"))
        FAIL(TRIREME_ERROR_USAGE, "%s: Replace with a \"Regex\" is not known in decoders; a \"String\" is", where);
    TRY(json_read_string(pattern, where, "String", JSON_REQUIRED, &text, error));
    if (!*text)
        FAIL(TRIREME_ERROR_USAGE, "%s: Replace has an empty \"String\"", where);
    TRY(json_read_string(step, where, "content", JSON_REQUIRED, &content, error));
    s->text = mem_strdup(text);
    s->content = mem_strdup(content);
    return TRIREME_OK;
}

static trireme_status read_bpe_decoder(struct decode_step *s, const json_t *step, const char *where,
                                       trireme_error *error) {
    const char *suffix;
    TRY(json_read_string(step, where, "suffix", JSON_REQUIRED, &suffix, error));
    if (!*suffix)
        FAIL(TRIREME_ERROR_USAGE, "%s: BPEDecoder has an empty \"suffix\"", where);
    s->text = mem_strdup(suffix);
    return TRIREME_OK;
}

static trireme_status read_word_piece_decoder(struct decode_step *s, const json_t *step, const char *where,
                                              trireme_error *error) {
    const char *prefix;
    TRY(json_read_string(step, where, "prefix", JSON_REQUIRED, &prefix, error));
    s->text = mem_strdup(prefix);
    return json_read_boolean(step, where, "cleanup", JSON_REQUIRED, &s->cleanup, error);
}

static const struct decoder_type {
    struct step_type type;
    void (*apply)(const struct decode_step *s, const struct pieces *in, struct pieces *out);
    trireme_status (*read)(struct decode_step *s, const json_t *step, const char *where, trireme_error *error);
} DECODER_TYPES[] = {
    {{"ByteLevel", "add_prefix_space trim_offsets use_regex"}, decode_byte_level, NULL}, // of no matter here
    {{"Metaspace", METASPACE_MEMBERS}, decode_metaspace, read_metaspace_decoder},
    {{"ByteFallback", ""}, decode_byte_fallback, NULL},
    {{"Fuse", ""}, decode_fuse, NULL},
    {{"Strip", "content start stop"}, decode_strip, read_strip_decoder},
    {{"Replace", "pattern content"}, decode_replace, read_replace_decoder},
    {{"BPEDecoder", "suffix"}, decode_bpe, read_bpe_decoder},
    {{"WordPiece", "prefix cleanup"}, decode_word_piece, read_word_piece_decoder},
};
static const struct step_kind DECODERS = {"decoder", "decoders", &DECODER_TYPES[0].type, ARRAY_LENGTH(DECODER_TYPES),
                                          sizeof *DECODER_TYPES};

static trireme_status add_decoder(void *user, size_t row, const json_t *step, const char *where, trireme_error *error) {
    struct decoder *d = user;
    VEC_PUSH(d, (struct decode_step){.apply = DECODER_TYPES[row].apply});
    struct decode_step *s = &d->item[d->count - 1];
    if (DECODER_TYPES[row].read)
        TRY(DECODER_TYPES[row].read(s, step, where, error));
    if (s->content)
        d->growth *= MAX(1.0, (double)strlen(s->content) / (double)strlen(s->text));
    return d->growth > STEPS_GROWTH_MAX ? steps_refuse_growth(DECODERS.name, error) : TRIREME_OK;
}

// ---- the whole

trireme_status decoder_create(struct decoder **out, const json_t *description, const char *where,
                              trireme_error *error) {
    *out = NULL;
    if (!description || json_is_null(description))
        return TRIREME_OK;
    struct decoder *d = mem_alloc(sizeof *d);
    d->growth = 1;
    trireme_status status = steps_read(&DECODERS, description, where, add_decoder, d, error);
    if (status == TRIREME_OK)
        *out = d;
    else
        decoder_free(d);
    return status;
}

void decoder_free(struct decoder *d) {
    if (!d)
        return;
    for (size_t i = 0; i < d->count; i++) {
        free(d->item[i].text);
        free(d->item[i].content);
    }
    VEC_RELEASE(d);
    free(d);
}

void decoder_apply(const struct decoder *d, const struct pieces *tokens, struct text *out) {
    if (!d) {
        for (size_t i = 0; i < tokens->end.count; i++) {
            struct decoded t = text_at(tokens, i);
            text_add_bytes(out, " ", i > 0);
            text_add_bytes(out, t.bytes, t.length);
        }
        return;
    }
    struct pieces turn[2] = {0};
    const struct pieces *in = tokens;
    for (size_t i = 0; i < d->count; i++) {
        pieces_clear(&turn[i % 2]);
        d->item[i].apply(&d->item[i], in, &turn[i % 2]);
        in = &turn[i % 2];
    }
    text_add_bytes(out, in->bytes.text, in->bytes.length);
    pieces_release(&turn[0]);
    pieces_release(&turn[1]);
}
