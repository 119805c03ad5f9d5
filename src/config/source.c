#include "config/source.h"

#include "config/reader.h"

enum { LIST_MAX_WORDS = 64, REFUSALS_TOLD = 5 };

// ---- setting a key

static trireme_status key_set(struct config *config, const char *where, bool overrides, const char *section,
                              const char *name, const struct given *given, trireme_error *error) {
    const struct key *key = key_find(section, name);
    if (!key) {
        struct text value = {0};
        given_describe(&value, given);
        trireme_status status = key_refuse_unknown(where, section, name, value.text, error);
        text_release(&value);
        return status;
    }
    // An override replaces what a file or an earlier override said; a file says nothing twice.
    char **origin = &config->origin[key - key_table];
    if (*origin && !overrides)
        FAIL(TRIREME_ERROR_USAGE, "%s: %s.%s: given twice (before: %s)", where, section, name, *origin);
    TRY(value_set(config, key, where, given, error));
    free(*origin);
    *origin = mem_strdup(where);
    return TRIREME_OK;
}

void source_note(struct source_refusals *refusals, const trireme_error *error) {
    if (refusals->count == 0)
        refusals->first = *error;
    else if (refusals->count < REFUSALS_TOLD)
        text_add(&refusals->more, "; also %s", error->message);
    refusals->count++;
}

trireme_status source_refuse(struct source_refusals *r, trireme_error *error) {
    const int told = MIN(r->count, (int)REFUSALS_TOLD), left = r->count - told;
    char rest[32] = "";
    if (left)
        snprintf(rest, sizeof rest, "; and %d more", left);
    if (r->count)
        error_set(error, r->first.status, "%s%s%s", r->first.message, r->more.length ? r->more.text : "", rest);
    text_release(&r->more);
    return r->count ? r->first.status : TRIREME_OK;
}

// ---- YAML
// Three levels and no more: sections, keys, and a scalar or a list of scalars. So nothing recurses, and memory is
// bounded by the text and by the number of keys.

// The current event's scalar as a word. `what` names its place for messages.
static trireme_status source_read_word(struct reader *r, const char *what, struct given *out, trireme_error *error) {
    char excerpt[KEY_EXCERPT];
    const char *value = (const char *)r->event.data.scalar.value;
    if (r->event.type != YAML_SCALAR_EVENT)
        FAIL(TRIREME_ERROR_USAGE, "%s: %s: expected a plain word or number, not a list or mapping", r->where,
             key_excerpt(what, excerpt));
    if (strlen(value) != r->event.data.scalar.length)
        FAIL(TRIREME_ERROR_USAGE, "%s: %s: the text holds a NUL character", r->where, key_excerpt(what, excerpt));
    bool quoted = r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    VEC_PUSH(&out->words, (struct given_word){mem_strdup(value), quoted});
    return TRIREME_OK;
}

// The value that begins at the current event, up to its last event. Of a mapping it only notes that it is one.
static trireme_status source_read_value(struct reader *r, const char *key, struct given *out, trireme_error *error) {
    if (r->event.type == YAML_MAPPING_START_EVENT) {
        out->form = GIVEN_MAPPING;
        return TRIREME_OK;
    }
    if (r->event.type != YAML_SEQUENCE_START_EVENT) {
        out->form = GIVEN_SCALAR;
        return source_read_word(r, key, out, error);
    }
    out->form = GIVEN_LIST;
    for (;;) {
        TRY(reader_next(r, error));
        if (r->event.type == YAML_SEQUENCE_END_EVENT)
            return TRIREME_OK;
        if (out->words.count == LIST_MAX_WORDS) {
            char excerpt[KEY_EXCERPT];
            FAIL(TRIREME_ERROR_USAGE, "%s: %s: a list of more than %d", r->where, key_excerpt(key, excerpt),
                 LIST_MAX_WORDS);
        }
        TRY(source_read_word(r, key, out, error));
    }
}

// One `key: value` of a section; the current event is the key.
static trireme_status source_read_key(struct reader *r, struct config *config, const char *section,
                                      struct source_refusals *refusals, trireme_error *error) {
    char where[WHERE_BYTES];
    struct given name = {0}, value = {0};
    memcpy(where, r->where, sizeof where);
    trireme_status status = source_read_word(r, section, &name, error);
    r->takes_binary = true;
    if (status == TRIREME_OK)
        status = reader_next(r, error);
    r->takes_binary = false;
    if (status == TRIREME_OK)
        status = source_read_value(r, name.words.item[0].text, &value, error);
    trireme_error refused;
    if (status == TRIREME_OK &&
        key_set(config, where, false, section, name.words.item[0].text, &value, &refused) != TRIREME_OK)
        source_note(refusals, &refused);
    if (status == TRIREME_OK && value.form == GIVEN_MAPPING)
        status = reader_skip(r, error);
    given_release(&value);
    given_release(&name);
    return status;
}

// The keys of a section, from the event after its name.
static trireme_status read_keys(struct reader *r, struct config *config, const char *where, const char *section,
                                struct source_refusals *refusals, trireme_error *error) {
    if (reader_is_empty(r))
        return TRIREME_OK;
    if (r->event.type != YAML_MAPPING_START_EVENT)
        FAIL(TRIREME_ERROR_USAGE, "%s: %s: is a section; its keys go below it, indented", where, section);
    for (;;) {
        TRY(reader_next(r, error));
        if (r->event.type == YAML_MAPPING_END_EVENT)
            return TRIREME_OK;
        TRY(source_read_key(r, config, section, refusals, error));
    }
}

// Refuses a name that stands in the place of a section and is none, and goes on to the end of its value.
static trireme_status refuse_outer_name(struct reader *r, const char *where, const char *name,
                                        struct source_refusals *refusals, trireme_error *error) {
    const struct key *key = key_find_full(name);
    const bool mapping = r->event.type == YAML_MAPPING_START_EVENT;
    struct given value = {0};
    struct text shown = {0};
    trireme_error refused;
    trireme_status status = source_read_value(r, name, &value, error);
    if (key)
        error_set(&refused, TRIREME_ERROR_USAGE,
                  "%s: %s: write `%s:` on a line, and below it, indented, `%s:` with its value", where, name,
                  key->section, key->name);
    else if (mapping)
        key_refuse_section(where, name, &refused);
    if (status == TRIREME_OK && !key && !mapping) {
        given_describe(&shown, &value);
        key_refuse_unknown(where, "", name, shown.text, &refused);
    }
    if (status == TRIREME_OK)
        source_note(refusals, &refused);
    if (status == TRIREME_OK && mapping)
        status = reader_skip(r, error);
    text_release(&shown);
    given_release(&value);
    return status;
}

// One section; the current event is its name, which joins those that were seen before.
static trireme_status read_section(struct reader *r, struct config *config, struct given *seen,
                                   struct source_refusals *refusals, trireme_error *error) {
    char where[WHERE_BYTES];
    memcpy(where, r->where, sizeof where);
    TRY(source_read_word(r, "section", seen, error));
    const char *name = seen->words.item[seen->words.count - 1].text;
    for (size_t i = 0; i + 1 < seen->words.count; i++)
        if (strcmp(seen->words.item[i].text, name) == 0)
            FAIL(TRIREME_ERROR_USAGE, "%s: %s: a second section of this name; join the two", where, name);
    TRY(reader_next(r, error));
    if (key_section_find(name))
        return read_keys(r, config, where, name, refusals, error);
    return refuse_outer_name(r, where, name, refusals, error);
}

// All sections, from the event that begins the outer mapping to the one that ends it.
static trireme_status read_sections(struct reader *r, struct config *config, struct source_refusals *refusals,
                                    trireme_error *error) {
    struct given seen = {0};
    trireme_status status = reader_next(r, error);
    while (status == TRIREME_OK && r->event.type != YAML_MAPPING_END_EVENT) {
        status = read_section(r, config, &seen, refusals, error);
        if (status == TRIREME_OK)
            status = reader_next(r, error);
    }
    given_release(&seen);
    return status;
}

static trireme_status read_stream(struct reader *r, struct config *config, struct source_refusals *refusals,
                                  trireme_error *error) {
    TRY(reader_next(r, error)); // the stream begins
    TRY(reader_next(r, error));
    if (r->event.type == YAML_STREAM_END_EVENT)
        return TRIREME_OK;
    TRY(reader_next(r, error)); // past the beginning of the document
    if (r->event.type == YAML_MAPPING_START_EVENT)
        TRY(read_sections(r, config, refusals, error));
    else if (!reader_is_empty(r))
        FAIL(TRIREME_ERROR_USAGE, "%s: expected sections such as `training:` with keys below them", r->where);
    TRY(reader_next(r, error)); // the document ends
    TRY(reader_next(r, error));
    if (r->event.type != YAML_STREAM_END_EVENT)
        FAIL(TRIREME_ERROR_USAGE, "%s: a second document begins; a configuration is one", r->where);
    return TRIREME_OK;
}

trireme_status source_read_yaml(struct config *config, const char *name, const char *yaml, size_t length,
                                struct source_refusals *refusals, trireme_error *error) {
    struct reader r;
    TRY(reader_open(&r, name, yaml, length, error));
    trireme_status status = read_stream(&r, config, refusals, error);
    reader_close(&r);
    return status;
}

// ---- settings

trireme_status source_read_override(struct config *config, const char *where, const char *override,
                                    struct source_refusals *refusals, trireme_error *error) {
    char excerpt[KEY_EXCERPT];
    const char *equals = strchr(override, '=');
    if (!equals || equals == override)
        FAIL(TRIREME_ERROR_USAGE, "%s: %s: expected section.key=value", where, key_excerpt(override, excerpt));
    char *section = mem_printf("%.*s", (int)(equals - override), override);
    char *dot = strchr(section, '.');
    const char *name = dot ? dot + 1 : section;
    if (dot)
        *dot = '\0';
    const struct key *key = dot ? key_find(section, name) : key_alone(name);
    struct given given = {0};
    given_parse(&given, key ? key->type : KEY_INTEGER, equals + 1);
    trireme_error refused;
    if (key_set(config, where, true, key ? key->section : dot ? section : "", name, &given, &refused) != TRIREME_OK)
        source_note(refusals, &refused);
    given_release(&given);
    free(section);
    return TRIREME_OK;
}

// One argument, or two: `*next` is the argument after it, and NULL once it was taken as the value.
static trireme_status read_argument(const char *own, const char *argument, const char **next, char **out,
                                    trireme_error *error) {
    char excerpt[KEY_EXCERPT];
    bool dashes = strncmp(argument, "--", 2) == 0;
    const char *body = dashes ? argument + 2 : argument, *equals = strchr(body, '=');
    if (*body == '-' || *body == '\0' || (!dashes && !equals))
        FAIL(TRIREME_ERROR_USAGE, "%s: %s: expected --section.key=value", SOURCE_ARGUMENTS,
             key_excerpt(argument, excerpt));
    char *name = equals ? mem_printf("%.*s", (int)(equals - body), body) : mem_strdup(body);
    const char *value = equals ? equals + 1 : *next && strncmp(*next, "--", 2) != 0 ? *next : NULL;
    if (!equals && value)
        *next = NULL;
    bool is_own = own && key_find(own, name);
    trireme_status status = TRIREME_OK;
    if (value)
        *out = mem_printf("%s%s%s=%s", is_own ? own : "", is_own ? "." : "", name, value);
    else if (is_own || key_find_full(name) || key_alone(name))
        status =
            error_set(error, TRIREME_ERROR_USAGE, "%s: %s: needs a value (one that begins with -- goes after an =)",
                      SOURCE_ARGUMENTS, key_excerpt(argument, excerpt));
    else
        status = key_refuse_unknown_full(SOURCE_ARGUMENTS, name, error);
    free(name);
    return status;
}

trireme_status source_read_arguments(struct source_overrides *out, const char *own, int argc, char *const *argv,
                                     trireme_error *error) {
    for (int i = 0; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : NULL, *after = next;
        char *override = NULL;
        TRY(read_argument(own, argv[i], &after, &override, error));
        VEC_PUSH(&out->list, override);
        i += next != after;
    }
    return TRIREME_OK;
}
