#include "tokenizer/step_types.h"

#include "base/utf8.h"

struct steps_reader {
    const struct step_kind *kind;
    trireme_status (*add)(void *user, size_t row, const json_t *step, const char *where, trireme_error *error);
    void *user;
    int count;
    trireme_error *error;
};

bool step_type_is(const json_t *member, const char *type) {
    const char *value = json_string_value(json_object_get(member, "type"));
    return value && strcmp(value, type) == 0;
}

static trireme_status refuse_members(const json_t *step, const char *where, const char *type, const char *members,
                                     trireme_error *error) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)step, key, value) {
        if (strcmp(key, "type") == 0 || (!strchr(key, ' ') && *key && text_lists(members, key)))
            continue;
        char name[JSON_EXCERPT_BYTES];
        FAIL(TRIREME_ERROR_USAGE, "%s: %s has the setting %s, which is not known", where, type,
             json_excerpt(key, name));
    }
    return TRIREME_OK;
}

static trireme_status steps_read_one(struct steps_reader *r, const json_t *step, const char *where) {
    trireme_error *error = r->error;
    const struct step_kind *kind = r->kind;
    const char *type;
    TRY(json_read_string(step, where, "type", JSON_REQUIRED, &type, error));
    if (strcmp(type, "Sequence") == 0) {
        const json_t *list, *inner;
        size_t i;
        TRY(refuse_members(step, where, type, kind->sequence, error));
        TRY(json_read_array(step, where, kind->sequence, JSON_REQUIRED, &list, error));
        json_array_foreach(list, i, inner) TRY(steps_read_one(r, inner, where));
        return TRIREME_OK;
    }
    size_t row = 0;
    const struct step_type *at = NULL;
    for (; row < kind->count; row++) {
        at = (const struct step_type *)((const char *)kind->first + row * kind->stride);
        if (strcmp(at->name, type) == 0)
            break;
    }
    char name[JSON_EXCERPT_BYTES];
    if (row == kind->count)
        FAIL(TRIREME_ERROR_USAGE, "%s: the %s %s is not known", where, kind->name, json_excerpt(type, name));
    if (++r->count > STEPS_IN_CHAIN_MAX)
        FAIL(TRIREME_ERROR_USAGE, "%s: the %s has more than %d steps", where, kind->name, STEPS_IN_CHAIN_MAX);
    TRY(refuse_members(step, where, type, at->members, error));
    return r->add(r->user, row, step, where, error);
}

trireme_status steps_read(const struct step_kind *kind, const json_t *description, const char *where,
                          trireme_status (*add)(void *user, size_t row, const json_t *step, const char *where,
                                                trireme_error *error),
                          void *user, trireme_error *error) {
    struct steps_reader r = {.kind = kind, .add = add, .user = user, .error = error};
    char *place = mem_printf("%s: \"%s\"", where, kind->name);
    trireme_status status = steps_read_one(&r, description, place);
    free(place);
    return status;
}

trireme_status steps_refuse_growth(const char *kind, trireme_error *error) {
    FAIL(TRIREME_ERROR_USAGE, "the %s makes a text more than %d times as long", kind, STEPS_GROWTH_MAX);
}

trireme_status step_read_character(const json_t *step, const char *where, const char *key, const char **out,
                                   trireme_error *error) {
    uint32_t code;
    TRY(json_read_string(step, where, key, JSON_REQUIRED, out, error));
    size_t length = strlen(*out);
    char found[JSON_EXCERPT_BYTES];
    if (!length || utf8_decode(*out, length, &code) != length)
        FAIL(TRIREME_ERROR_USAGE, "%s: \"%s\" must be one character, found %s", where, key, json_excerpt(*out, found));
    return TRIREME_OK;
}

trireme_status step_read_word(const json_t *step, const char *where, const char *key, enum json_need need,
                              const char *const *words, int count, int *out, trireme_error *error) {
    const char *word = NULL;
    TRY(json_read_string(step, where, key, need, &word, error));
    if (!word)
        return TRIREME_OK;
    for (int i = 0; i < count; i++)
        if (strcmp(words[i], word) == 0) {
            *out = i;
            return TRIREME_OK;
        }
    char found[JSON_EXCERPT_BYTES];
    FAIL(TRIREME_ERROR_USAGE, "%s: \"%s\": %s is not known", where, key, json_excerpt(word, found));
}
