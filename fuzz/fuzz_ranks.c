// Where ranks stand, from hostile bytes. What is accepted must print, as text and as one JSON object.
#include "base/json.h"
#include "launch/rank_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    trireme_error error = {.status = TRIREME_OK};
    struct rank_view view;
    char *bytes = mem_alloc(size);
    memcpy(bytes, data, size);
    trireme_status status = rank_view_parse(&view, bytes, size, "ranks.bin", &error);
    if (status != TRIREME_OK) {
        CHECK(error.status == status && error.message[0]);
        free(bytes);
        return 0;
    }
    struct text text = {0}, json = {0};
    rank_view_print(&view, view.latest, false, &text);
    json_begin_object(&json, NULL);
    rank_view_print(&view, view.latest, true, &json);
    json_end_object(&json);
    json_t *object;
    CHECK(json_parse(json.text, json.length, "ranks", &object, &error) == TRIREME_OK);
    json_decref(object);
    text_release(&text);
    text_release(&json);
    rank_view_release(&view);
    return 0;
}
