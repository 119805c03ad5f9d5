// A run's kernels.json, from hostile bytes: what is read prints as what reads the same.
#include "kernels/choices.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct choices choices, again;
    trireme_error error = {.status = TRIREME_OK};
    struct text first = {0}, second = {0};
    choices_create(&choices);
    trireme_status status = choices_parse(&choices, (const char *)data, size, "kernels.json", &error);
    if (status != TRIREME_OK) {
        CHECK(error.status == status && error.message[0] && !strchr(error.message, '\n'));
        CHECK(choices.item.count == 0);
        choices_release(&choices);
        return 0;
    }
    choices_print(&choices, &first);
    choices_create(&again);
    CHECK(choices_parse(&again, first.text, first.length, "kernels.json", &error) == TRIREME_OK);
    choices_print(&again, &second);
    CHECK(strcmp(first.text, second.text) == 0);
    choices_release(&choices);
    choices_release(&again);
    text_release(&first);
    text_release(&second);
    return 0;
}
