// JSON from hostile bytes: what is accepted must print, in both forms, to texts that read back as the same tree. Typed
// reading of its members and excerpts of its strings stay within bounds.
#include "base/json.h"
#include "base/utf8.h"

#include <float.h>
#include <math.h>

static void check_message(trireme_status status, const trireme_error *error) {
    if (status == TRIREME_OK)
        return;
    CHECK(error->status == status && error->message[0]);
    for (const char *s = error->message; *s; s++)
        CHECK((unsigned char)*s >= 0x20);
}

static void read_members(const json_t *tree) {
    const char *key, *string;
    json_t *value;
    const json_t *below;
    int64_t integer;
    double number;
    bool boolean;
    char excerpt[JSON_EXCERPT_BYTES];
    trireme_error error = {0};
    json_object_foreach((json_t *)tree, key, value) {
        CHECK(strlen(json_excerpt(key, excerpt)) < sizeof excerpt && utf8_is_valid(excerpt));
        CHECK(strlen(json_excerpt_value(value, excerpt)) < sizeof excerpt && utf8_is_valid(excerpt));
        check_message(json_read_integer(tree, "f", key, JSON_REQUIRED, 1, 100, &integer, &error), &error);
        check_message(json_read_number(tree, "f", key, JSON_OPTIONAL, DBL_MIN, INFINITY, &number, &error), &error);
        check_message(json_read_boolean(tree, "f", key, JSON_REQUIRED, &boolean, &error), &error);
        check_message(json_read_string(tree, "f", key, JSON_REQUIRED, &string, &error), &error);
        char *path = NULL;
        check_message(json_read_path(tree, "f", key, &path, &error), &error);
        free(path);
        check_message(json_read_object(tree, "f", key, JSON_OPTIONAL, &below, &error), &error);
        check_message(json_read_array(tree, "f", key, JSON_REQUIRED, &below, &error), &error);
    }
}

static void check_same(const json_t *tree, const struct text *t) {
    json_t *back = NULL;
    CHECK(json_parse(t->text, t->length, "printed", &back, NULL) == TRIREME_OK);
    CHECK(json_equal(tree, back));
    json_decref(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    trireme_error error = {0};
    json_t *tree = NULL;
    trireme_status status = json_parse((const char *)data, size, "fuzz.json", &tree, &error);
    check_message(status, &error);
    if (status != TRIREME_OK)
        return 0;
    struct text compact = {0}, indented = {0};
    json_add_value(&compact, NULL, tree);
    check_same(tree, &compact);
    json_print(&indented, tree);
    check_same(tree, &indented);
    read_members(tree);
    text_release(&compact);
    text_release(&indented);
    json_decref(tree);
    return 0;
}
