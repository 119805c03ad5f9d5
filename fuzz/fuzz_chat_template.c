// A chat template, and variables in JSON after a line with "variables:" alone: what is accepted is rendered within
// bounds, the same each time, and what it marks lies in the text in order.
#include "base/utf8.h"
#include "chat/jinja.h"

static const char MARK[] = "\nvariables:\n";

static void check_output(const struct jinja_output *out) {
    size_t last = 0;
    for (size_t i = 0; i < out->seams.count; i++) {
        CHECK(out->seams.item[i] >= last && out->seams.item[i] <= out->text.length);
        last = out->seams.item[i];
    }
    for (size_t i = 0; i < out->generation.count; i++)
        CHECK(out->generation.item[i].begin <= out->generation.item[i].end &&
              out->generation.item[i].end <= out->text.length);
}

static void render_twice(const struct jinja *j, const json_t *variables) {
    struct jinja_output one = {0}, two = {0};
    trireme_error error = {0}, other = {0};
    const trireme_status status = jinja_render(j, variables, &one, &error);
    CHECK(status == TRIREME_OK || (status == TRIREME_ERROR_USAGE && !strchr(error.message, '\n')));
    check_output(&one);
    CHECK(jinja_render(j, variables, &two, &other) == status && strcmp(error.message, other.message) == 0);
    CHECK(one.text.length == two.text.length);
    jinja_output_release(&one);
    jinja_output_release(&two);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    const char *mark = memmem(text, size, MARK, sizeof MARK - 1);
    const size_t length = mark ? (size_t)(mark - text) : size, taken = mark ? length + sizeof MARK - 1 : size;
    char *copy = mem_alloc(length + 1);
    memcpy(copy, text, length);
    trireme_error error = {0};
    struct jinja *j;
    json_t *variables = NULL;
    if (utf8_is_valid(copy) && jinja_parse(copy, length, "t", &j, &error) == TRIREME_OK) {
        if (json_parse(text + taken, size - taken, "v", &variables, &error) == TRIREME_OK && json_is_object(variables))
            render_twice(j, variables);
        json_decref(variables);
        jinja_free(j);
    }
    free(copy);
    return 0;
}
