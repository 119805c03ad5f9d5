#include "config/outline.h"

#include "config/reader.h"

#include <ctype.h>
#include <math.h>

// ---- from text

struct open {
    int node, last; // the last child so far
};

struct builder {
    struct outline *outline;
    struct reader *reader;
    struct open stack[OUTLINE_DEPTH_MAX];
    int depth;
    char *key; // of the next value, in a mapping
    int key_line;
};

static int line_here(const struct reader *r) {
    return (int)r->event.start_mark.line + 1;
}

static int add_node(struct builder *b, enum outline_form form) {
    struct outline_node node = {.form = form, .line = line_here(b->reader), .key = b->key, .parent = -1, .child = -1};
    int number = (int)b->outline->nodes.count;
    node.next = -1;
    if (b->key)
        node.line = b->key_line;
    b->key = NULL;
    if (b->depth) {
        struct open *open = &b->stack[b->depth - 1];
        node.parent = open->node;
        if (open->last < 0) {
            b->outline->nodes.item[open->node].child = number;
        } else {
            b->outline->nodes.item[open->last].next = number;
            node.position = b->outline->nodes.item[open->last].position + 1;
        }
        open->last = number;
    }
    VEC_PUSH(&b->outline->nodes, node);
    return number;
}

static trireme_status open_node(struct builder *b, enum outline_form form, trireme_error *error) {
    if (b->depth == OUTLINE_DEPTH_MAX)
        FAIL(TRIREME_ERROR_USAGE, "%s: lists and mappings within one another deeper than %d", b->reader->where,
             OUTLINE_DEPTH_MAX);
    int node = add_node(b, form);
    b->stack[b->depth++] = (struct open){node, -1};
    return TRIREME_OK;
}

static trireme_status outline_read_key(struct builder *b, trireme_error *error) {
    const yaml_event_t *event = &b->reader->event;
    if (event->type != YAML_SCALAR_EVENT)
        FAIL(TRIREME_ERROR_USAGE, "%s: a key is a word, not a list or mapping", b->reader->where);
    const char *key = (const char *)event->data.scalar.value;
    char excerpt[KEY_EXCERPT];
    if (strlen(key) != event->data.scalar.length)
        FAIL(TRIREME_ERROR_USAGE, "%s: the text holds a NUL character", b->reader->where);
    int last = b->stack[b->depth - 1].last;
    if (last >= 0 && b->outline->nodes.item[last].position + 1 == OUTLINE_KEYS_MAX)
        FAIL(TRIREME_ERROR_USAGE, "%s: more than %d keys", b->reader->where, OUTLINE_KEYS_MAX);
    int before = outline_member(b->outline, b->stack[b->depth - 1].node, key);
    if (before >= 0)
        FAIL(TRIREME_ERROR_USAGE, "%s: %s: given twice (before: line %d)", b->reader->where, key_excerpt(key, excerpt),
             b->outline->nodes.item[before].line);
    b->key = mem_strdup(key);
    b->key_line = line_here(b->reader);
    return TRIREME_OK;
}

static trireme_status read_scalar(struct builder *b, trireme_error *error) {
    const char *text = (const char *)b->reader->event.data.scalar.value;
    if (strlen(text) != b->reader->event.data.scalar.length)
        FAIL(TRIREME_ERROR_USAGE, "%s: the text holds a NUL character", b->reader->where);
    int node = add_node(b, OUTLINE_SCALAR);
    b->outline->nodes.item[node].text = mem_strdup(text);
    return TRIREME_OK;
}

// One event inside the document.
static trireme_status take_event(struct builder *b, trireme_error *error) {
    if (b->outline->nodes.count == OUTLINE_NODES_MAX)
        FAIL(TRIREME_ERROR_USAGE, "%s: more than %d values", b->reader->where, OUTLINE_NODES_MAX);
    yaml_event_type_t type = b->reader->event.type;
    if (type == YAML_MAPPING_END_EVENT || type == YAML_SEQUENCE_END_EVENT) {
        b->depth--;
        return TRIREME_OK;
    }
    bool in_mapping = b->depth && b->outline->nodes.item[b->stack[b->depth - 1].node].form == OUTLINE_MAPPING;
    if (in_mapping && !b->key)
        return outline_read_key(b, error);
    if (type == YAML_SCALAR_EVENT)
        return read_scalar(b, error);
    return open_node(b, type == YAML_MAPPING_START_EVENT ? OUTLINE_MAPPING : OUTLINE_LIST, error);
}

static trireme_status read_document(struct builder *b, trireme_error *error) {
    struct reader *r = b->reader;
    TRY(reader_next(r, error)); // the stream begins
    TRY(reader_next(r, error));
    if (r->event.type != YAML_STREAM_END_EVENT)
        TRY(reader_next(r, error)); // past the beginning of the document
    if (r->event.type == YAML_STREAM_END_EVENT || reader_is_empty(r)) {
        add_node(b, OUTLINE_MAPPING);
    } else {
        if (r->event.type != YAML_MAPPING_START_EVENT)
            FAIL(TRIREME_ERROR_USAGE, "%s: expected keys with their values", r->where);
        TRY(take_event(b, error));
        while (b->depth) {
            TRY(reader_next(r, error));
            TRY(take_event(b, error));
        }
    }
    while (r->event.type != YAML_STREAM_END_EVENT) {
        TRY(reader_next(r, error));
        if (r->event.type == YAML_DOCUMENT_START_EVENT)
            FAIL(TRIREME_ERROR_USAGE, "%s: a second document begins; this file is one", r->where);
    }
    return TRIREME_OK;
}

trireme_status outline_parse(struct outline *out, const char *name, const char *yaml, size_t length,
                             trireme_error *error) {
    if (length > OUTLINE_BYTES_MAX)
        FAIL(TRIREME_ERROR_USAGE, "%s: longer than %d bytes", name, OUTLINE_BYTES_MAX);
    struct reader reader;
    TRY(reader_open(&reader, name, yaml, length, error));
    struct outline outline = {.name = mem_strdup(reader.name)};
    struct builder b = {.outline = &outline, .reader = &reader};
    trireme_status status = read_document(&b, error);
    free(b.key);
    reader_close(&reader);
    if (status == TRIREME_OK)
        *out = outline;
    else
        outline_release(&outline);
    return status;
}

void outline_release(struct outline *outline) {
    for (size_t i = 0; i < outline->nodes.count; i++) {
        free(outline->nodes.item[i].key);
        free(outline->nodes.item[i].text);
    }
    VEC_RELEASE(&outline->nodes);
    free(outline->name);
    *outline = (struct outline){0};
}

// ---- looking

int outline_member(const struct outline *outline, int mapping, const char *key) {
    int child = outline->nodes.item[mapping].child;
    while (child >= 0 && (!outline->nodes.item[child].key || strcmp(outline->nodes.item[child].key, key) != 0))
        child = outline->nodes.item[child].next;
    return child;
}

int outline_children(const struct outline *outline, int node) {
    int count = 0;
    for (int child = outline->nodes.item[node].child; child >= 0; child = outline->nodes.item[child].next)
        count++;
    return count;
}

// "links[1].bandwidth"
static void outline_add_path(const struct outline *outline, int node, struct text *out) {
    const struct outline_node *n = &outline->nodes.item[node];
    char excerpt[KEY_EXCERPT];
    if (n->parent < 0)
        return;
    outline_add_path(outline, n->parent, out);
    if (n->key)
        text_add(out, "%s%s", out->length ? "." : "", key_excerpt(n->key, excerpt));
    else
        text_add(out, "[%d]", n->position);
}

trireme_status outline_refuse(const struct outline *outline, int node, trireme_error *error, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *reason = mem_vprintf(format, args);
    va_end(args);
    struct text path = {0};
    outline_add_path(outline, node, &path);
    error_set(error, TRIREME_ERROR_USAGE, "%s:%d: %s%s%s", outline->name, outline->nodes.item[node].line,
              path.length ? path.text : "", path.length ? ": " : "", reason);
    text_release(&path);
    free(reason);
    return TRIREME_ERROR_USAGE;
}

trireme_status outline_expect(const struct outline *outline, int node, enum outline_form form, trireme_error *error) {
    static const char *const WORDS[] = {"a word or number", "a list", "keys with their values, indented below"};
    return outline->nodes.item[node].form == form ? TRIREME_OK
                                                  : outline_refuse(outline, node, error, "expected %s", WORDS[form]);
}

static trireme_status refuse_key(const struct outline *outline, int node, const char *known, trireme_error *error) {
    char *list = mem_strdup(known), *rest = NULL;
    VEC(const char *) words = {0};
    for (char *word = strtok_r(list, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        VEC_PUSH(&words, word);
    const char *nearest = text_nearest(outline->nodes.item[node].key, words.item, words.count, sizeof *words.item);
    if (nearest)
        outline_refuse(outline, node, error, "there is no such key; the nearest is %s (all: %s)", nearest, known);
    else
        outline_refuse(outline, node, error, "there is no such key; there are %s", known);
    VEC_RELEASE(&words);
    free(list);
    return TRIREME_ERROR_USAGE;
}

trireme_status outline_known(const struct outline *outline, int mapping, const char *known, trireme_error *error) {
    TRY(outline_expect(outline, mapping, OUTLINE_MAPPING, error));
    for (int child = outline->nodes.item[mapping].child; child >= 0; child = outline->nodes.item[child].next) {
        const char *key = outline->nodes.item[child].key;
        if (text_lists(known, key))
            continue;
        return refuse_key(outline, child, known, error);
    }
    return TRIREME_OK;
}

// ---- figures

struct unit {
    enum quantity quantity;
    const char *name;
    double factor;
};

static const struct unit UNITS[] = {
    {QUANTITY_BYTES, "B", 1},           {QUANTITY_BYTES, "kB", 1e3},         {QUANTITY_BYTES, "MB", 1e6},
    {QUANTITY_BYTES, "GB", 1e9},        {QUANTITY_BYTES, "TB", 1e12},        {QUANTITY_BYTES, "KiB", 1024},
    {QUANTITY_BYTES, "MiB", 1048576},   {QUANTITY_BYTES, "GiB", 1073741824}, {QUANTITY_BYTES, "TiB", 1099511627776},
    {QUANTITY_RATE, "B/s", 1},          {QUANTITY_RATE, "kB/s", 1e3},        {QUANTITY_RATE, "MB/s", 1e6},
    {QUANTITY_RATE, "GB/s", 1e9},       {QUANTITY_RATE, "TB/s", 1e12},       {QUANTITY_RATE, "kbit/s", 1e3 / 8},
    {QUANTITY_RATE, "Mbit/s", 1e6 / 8}, {QUANTITY_RATE, "Gbit/s", 1e9 / 8},  {QUANTITY_RATE, "Tbit/s", 1e12 / 8},
    {QUANTITY_SECONDS, "s", 1},         {QUANTITY_SECONDS, "ms", 1e-3},      {QUANTITY_SECONDS, "us", 1e-6},
    {QUANTITY_SECONDS, "ns", 1e-9},     {QUANTITY_FLOPS, "FLOP/s", 1},       {QUANTITY_FLOPS, "MFLOP/s", 1e6},
    {QUANTITY_FLOPS, "GFLOP/s", 1e9},   {QUANTITY_FLOPS, "TFLOP/s", 1e12},   {QUANTITY_FLOPS, "PFLOP/s", 1e15},
};

static const char *const UNIT_WORDS[] = {
    [QUANTITY_NUMBER] = "a number without a unit",
    [QUANTITY_BYTES] = "bytes in MB, GB, TB, MiB, GiB or TiB, as in 80 GB",
    [QUANTITY_RATE] = "a rate in MB/s, GB/s, TB/s, Mbit/s or Gbit/s, as in 25 GB/s",
    [QUANTITY_SECONDS] = "a time in s, ms, us or ns, as in 5 us",
    [QUANTITY_FLOPS] = "operations in GFLOP/s, TFLOP/s or PFLOP/s, as in 312 TFLOP/s",
};

// How a figure is written in the largest unit that leaves it above one, for messages.
static void figure_print(enum quantity quantity, double value, char out[48]) {
    const struct unit *best = NULL;
    double size = fabs(value);
    for (size_t i = 0; i < ARRAY_LENGTH(UNITS); i++) {
        const struct unit *u = &UNITS[i];
        if (u->quantity != quantity || strchr(u->name, 'i'))
            continue;
        bool fits = u->factor <= size, fitted = best && best->factor <= size;
        if (!best || (fits && (!fitted || u->factor > best->factor)) || (!fitted && u->factor < best->factor))
            best = u;
    }
    snprintf(out, 48, "%.12g%s%s", best ? value / best->factor : value, best ? " " : "", best ? best->name : "");
}

// False: not a number in plain decimal form.
static bool outline_read_number(const char *text, double *out, const char **rest) {
    const char *first = text + (*text == '-' || *text == '+');
    if (!isdigit((unsigned char)*first) && !(*first == '.' && isdigit((unsigned char)first[1])))
        return false;
    if (first[0] == '0' && (first[1] == 'x' || first[1] == 'X'))
        return false;
    char *end;
    *out = strtod(text, &end);
    *rest = end;
    return isfinite(*out);
}

enum { FIGURE_REASON = 256 };

// False: `reason` says what is wrong with the text.
static bool figure_parse(const char *text, enum quantity quantity, bool bare, double least, double most, double *out,
                         char reason[FIGURE_REASON]) {
    const char *rest = "";
    char excerpt[KEY_EXCERPT];
    double value;
    const bool number = outline_read_number(text, &value, &rest);
    rest += strspn(rest, " ");
    const bool unitless = !*rest && (bare || quantity == QUANTITY_NUMBER);
    const struct unit *unit = NULL;
    for (size_t i = 0; i < ARRAY_LENGTH(UNITS); i++)
        if (UNITS[i].quantity == quantity && strcmp(UNITS[i].name, rest) == 0)
            unit = &UNITS[i];
    if (!number || (!unit && !unitless)) {
        const bool missing = number && !*rest;
        snprintf(reason, FIGURE_REASON, missing ? "given %s without a unit, expected %s" : "given \"%s\", expected %s",
                 key_excerpt(text, excerpt), UNIT_WORDS[quantity]);
        return false;
    }
    value *= unit ? unit->factor : 1;
    if (!(value >= least && value <= most)) {
        char low[48], high[48];
        figure_print(quantity, least, low);
        figure_print(quantity, most, high);
        snprintf(reason, FIGURE_REASON, "given %s, expected from %s to %s", key_excerpt(text, excerpt), low, high);
        return false;
    }
    *out = value;
    return true;
}

trireme_status outline_figure(const struct outline *outline, int node, enum quantity quantity, double least,
                              double most, double *out, trireme_error *error) {
    char reason[FIGURE_REASON];
    TRY(outline_expect(outline, node, OUTLINE_SCALAR, error));
    if (figure_parse(outline->nodes.item[node].text, quantity, false, least, most, out, reason))
        return TRIREME_OK;
    return outline_refuse(outline, node, error, "%s", reason);
}

trireme_status figure_read(const char *name, const char *text, enum quantity quantity, double least, double most,
                           double *out, trireme_error *error) {
    char reason[FIGURE_REASON];
    if (figure_parse(text, quantity, true, least, most, out, reason))
        return TRIREME_OK;
    FAIL(TRIREME_ERROR_USAGE, "%s: %s", name, reason);
}

trireme_status outline_integer(const struct outline *outline, int node, int64_t least, int64_t most, int64_t *out,
                               trireme_error *error) {
    double value;
    TRY(outline_figure(outline, node, QUANTITY_NUMBER, (double)least, (double)most, &value, error));
    if (value != floor(value))
        return outline_refuse(outline, node, error, "given %s, expected a whole number",
                              outline->nodes.item[node].text);
    *out = (int64_t)value;
    return TRIREME_OK;
}

trireme_status outline_need(const struct outline *t, int mapping, const char *key, int *out, trireme_error *error) {
    *out = outline_member(t, mapping, key);
    return *out >= 0 ? TRIREME_OK : outline_refuse(t, mapping, error, "%s is missing", key);
}

trireme_status outline_need_figure(const struct outline *t, int mapping, const char *key, enum quantity quantity,
                                   double least, double most, double *out, trireme_error *error) {
    int node;
    TRY(outline_need(t, mapping, key, &node, error));
    return outline_figure(t, node, quantity, least, most, out, error);
}

trireme_status outline_may_figure(const struct outline *t, int mapping, const char *key, enum quantity quantity,
                                  double least, double most, double *out, trireme_error *error) {
    int node = outline_member(t, mapping, key);
    return node < 0 ? TRIREME_OK : outline_figure(t, node, quantity, least, most, out, error);
}

trireme_status outline_may_integer(const struct outline *t, int mapping, const char *key, int64_t least, int64_t most,
                                   int *out, trireme_error *error) {
    int node = outline_member(t, mapping, key);
    int64_t value = *out;
    if (node >= 0)
        TRY(outline_integer(t, node, least, most, &value, error));
    *out = (int)value;
    return TRIREME_OK;
}

trireme_status outline_need_integer(const struct outline *t, int mapping, const char *key, int64_t least, int64_t most,
                                    int *out, trireme_error *error) {
    int node;
    TRY(outline_need(t, mapping, key, &node, error));
    return outline_may_integer(t, mapping, key, least, most, out, error);
}
