#include "data/token_journal.h"

#include "base/base64.h"

#include <unistd.h>

static const size_t JOURNAL_MAX = 64 << 20; // bytes

static const struct journal_member {
    const char *name;
    size_t offset;
} MEMBERS[] = {
    {"bytes", offsetof(struct token_journal, bytes)},
    {"index", offsetof(struct token_journal, index)},
    {"tokens", offsetof(struct token_journal, tokens)},
    {"sequences", offsetof(struct token_journal, sequences)},
    {"documents", offsetof(struct token_journal, documents)},
    {"sequence_length", offsetof(struct token_journal, sequence_length)},
    {"document_tokens", offsetof(struct token_journal, document_tokens)},
};

static int64_t *journal_member(const struct token_journal *j, size_t i) {
    return (int64_t *)((char *)j + MEMBERS[i].offset);
}

static char *journal_path(const char *prefix) {
    return mem_printf("%s.prepare.tmp", prefix);
}

trireme_status token_journal_write(const char *prefix, const struct token_journal *j, trireme_error *error) {
    struct text json = {0}, continued = {0};
    char *path = journal_path(prefix);
    json_begin_object(&json, NULL);
    json_add_string(&json, "format", "trireme-prepare");
    json_add_string(&json, "of", j->of);
    for (size_t i = 0; i < ARRAY_LENGTH(MEMBERS); i++)
        json_add_integer(&json, MEMBERS[i].name, *journal_member(j, i));
    base64_add(&continued, j->continued.text ? j->continued.text : "", j->continued.length);
    json_add_string(&json, "continued", continued.text ? continued.text : "");
    json_add_value(&json, "position", j->position);
    json_end_object(&json);
    text_add(&json, "\n");
    const trireme_status status = file_write_atomic(path, json.text, json.length, error);
    text_release(&json);
    text_release(&continued);
    free(path);
    return status;
}

static trireme_status journal_parse(const json_t *root, const char *of, struct token_journal *out) {
    const char *whose, *continued;
    const json_t *position;
    TRY(json_read_string(root, "", "of", JSON_REQUIRED, &whose, NULL));
    if (strcmp(whose, of) != 0)
        return TRIREME_ERROR_USAGE;
    for (size_t i = 0; i < ARRAY_LENGTH(MEMBERS); i++)
        TRY(json_read_integer(root, "", MEMBERS[i].name, JSON_REQUIRED, 0, INT64_MAX, journal_member(out, i), NULL));
    TRY(json_read_string(root, "", "continued", JSON_REQUIRED, &continued, NULL));
    TRY(json_read_object(root, "", "position", JSON_REQUIRED, &position, NULL));
    if (!base64_read(continued, strlen(continued), &out->continued))
        return TRIREME_ERROR_CORRUPT;
    out->of = mem_strdup(of);
    out->position = json_incref((json_t *)position);
    return TRIREME_OK;
}

bool token_journal_read(const char *prefix, const char *of, struct token_journal *out) {
    char *path = journal_path(prefix);
    json_t *root = NULL;
    *out = (struct token_journal){0};
    bool found = json_parse_file(path, JOURNAL_MAX, &root, NULL) == TRIREME_OK;
    if (found && journal_parse(root, of, out) != TRIREME_OK) {
        token_journal_release(out);
        found = false;
    }
    json_decref(root);
    free(path);
    return found;
}

void token_journal_remove(const char *prefix) {
    char *path = journal_path(prefix), *half = mem_printf("%s.tmp", path);
    if (!file_missing(path))
        unlink(path);
    if (!file_missing(half))
        unlink(half);
    free(half);
    free(path);
}

void token_journal_release(struct token_journal *j) {
    free(j->of);
    json_decref(j->position);
    text_release(&j->continued);
    *j = (struct token_journal){0};
}
