#include "config/reader.h"

#include "base/base64.h"
#include "base/utf8.h"

#include <inttypes.h>

#define YAML_BINARY_TAG "tag:yaml.org,2002:binary"

static void reader_place(struct reader *r, size_t line) {
    snprintf(r->where, sizeof r->where, "%s:%zu", r->name, line);
}

// 1-based line of a byte.
static size_t reader_line_of(const char *text, size_t at) {
    size_t line = 1;
    for (size_t i = 0; i < at; i++)
        line += text[i] == '\n';
    return line;
}

// Refuses what is not UTF-8, and the characters that YAML forbids, which libyaml would refuse without a line number.
static trireme_status characters_check(const char *name, const char *text, size_t length, trireme_error *error) {
    size_t valid = utf8_prefix(text, length);
    if (valid < length)
        FAIL(TRIREME_ERROR_USAGE,
             "%s:%zu: not UTF-8 text: byte 0x%02x at offset %zu; convert the file; what names a file may be "
             "!!binary and base64",
             name, reader_line_of(text, valid), (unsigned char)text[valid], valid);
    uint32_t code;
    for (size_t at = 0, bytes; at < length; at += bytes) {
        bytes = utf8_decode(text + at, length - at, &code);
        bool control = (code < 0x20 && code != '\t' && code != '\n' && code != '\r') ||
                       (code >= 0x7f && code < 0xa0 && code != 0x85);
        if (control || code == 0xfeff || code == 0xfffe || code == 0xffff)
            FAIL(TRIREME_ERROR_USAGE, "%s:%zu: the character U+%04" PRIX32 " at offset %zu may not stand in YAML", name,
                 reader_line_of(text, at), code, at);
    }
    return TRIREME_OK;
}

trireme_status reader_open(struct reader *r, const char *name, const char *yaml, size_t length, trireme_error *error) {
    memset(r, 0, sizeof *r);
    const size_t mark = utf8_mark(yaml, length);
    yaml += mark;
    length -= mark;
    // The end of a long path says more than its beginning; `where` must hold it all.
    size_t name_length = strlen(name);
    if (name_length > NAME_MAX_SHOWN)
        snprintf(r->name, sizeof r->name, "...%s", name + name_length - NAME_MAX_SHOWN);
    else
        snprintf(r->name, sizeof r->name, "%s", name);
    TRY(characters_check(r->name, yaml, length, error));
    if (!yaml_parser_initialize(&r->parser))
        FAIL(TRIREME_ERROR_MEMORY, "%s: no memory to read it", r->name);
    yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)yaml, length);
    return TRIREME_OK;
}

void reader_close(struct reader *r) {
    yaml_event_delete(&r->event);
    yaml_parser_delete(&r->parser);
}

// Whether a tab indents the line about which libyaml complains; its message often does not say so.
static bool is_indented_by_tab(const yaml_parser_t *parser) {
    const unsigned char *at = parser->input.string.start, *end = parser->input.string.end;
    for (size_t line = parser->problem_mark.line; line > 0 && at < end; at++)
        line -= *at == '\n';
    while (at < end && *at == ' ')
        at++;
    return at < end && *at == '\t';
}

// Puts the bytes of a scalar that is base64 in its place.
static trireme_status reader_decode(struct reader *r, trireme_error *error) {
    size_t length;
    char *bytes = base64_decode((const char *)r->event.data.scalar.value, &length);
    if (!bytes)
        FAIL(TRIREME_ERROR_USAGE, "%s: !!binary: not base64", r->where);
    memcpy(r->event.data.scalar.value, bytes, length + 1); // base64 is longer
    r->event.data.scalar.length = length;
    r->event.data.scalar.style = YAML_DOUBLE_QUOTED_SCALAR_STYLE; // a text, whatever it looks like
    free(bytes);
    return TRIREME_OK;
}

trireme_status reader_next(struct reader *r, trireme_error *error) {
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->parser, &r->event)) {
        if (r->parser.error == YAML_MEMORY_ERROR)
            FAIL(TRIREME_ERROR_MEMORY, "%s: no memory to read it", r->name);
        const char *context = r->parser.context;
        const size_t line = r->parser.problem_mark.line + 1, begin = r->parser.context_mark.line + 1;
        char since[48] = "";
        if (context && begin != line)
            snprintf(since, sizeof since, " that begins in line %zu", begin);
        FAIL(TRIREME_ERROR_USAGE, "%s:%zu: not YAML: %s%s%s%s%s", r->name, line, context ? context : "", since,
             context ? ", " : "", r->parser.problem ? r->parser.problem : "unknown problem",
             is_indented_by_tab(&r->parser) ? "; indent with blanks, not tabs" : "");
    }
    reader_place(r, r->event.start_mark.line + 1);
    const yaml_char_t *anchor = NULL, *tag = NULL;
    switch (r->event.type) {
    case YAML_ALIAS_EVENT:
        FAIL(TRIREME_ERROR_USAGE, "%s: *%.60s: aliases are not accepted, write the value out", r->where,
             (const char *)r->event.data.alias.anchor);
    case YAML_SCALAR_EVENT:
        anchor = r->event.data.scalar.anchor;
        tag = r->event.data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = r->event.data.sequence_start.anchor;
        tag = r->event.data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = r->event.data.mapping_start.anchor;
        tag = r->event.data.mapping_start.tag;
        break;
    default:
        break;
    }
    if (anchor)
        FAIL(TRIREME_ERROR_USAGE, "%s: &%.60s: anchors are not accepted, write the value out", r->where,
             (const char *)anchor);
    if (tag && r->takes_binary && strcmp((const char *)tag, YAML_BINARY_TAG) == 0 && r->event.type == YAML_SCALAR_EVENT)
        return reader_decode(r, error);
    if (tag)
        FAIL(TRIREME_ERROR_USAGE, "%s: %.60s: tags are not accepted, write the value alone", r->where,
             (const char *)tag);
    return TRIREME_OK;
}

bool reader_is_empty(const struct reader *r) {
    return r->event.type == YAML_SCALAR_EVENT && r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           r->event.data.scalar.length == 0;
}

trireme_status reader_skip(struct reader *r, trireme_error *error) {
    for (int depth = 1; depth > 0;) {
        TRY(reader_next(r, error));
        const yaml_event_type_t type = r->event.type;
        depth += type == YAML_MAPPING_START_EVENT || type == YAML_SEQUENCE_START_EVENT;
        depth -= type == YAML_MAPPING_END_EVENT || type == YAML_SEQUENCE_END_EVENT;
    }
    return TRIREME_OK;
}
