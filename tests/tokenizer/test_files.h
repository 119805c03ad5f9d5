// The lines of files.jsonl (tools/reference/tokenizer_files.py): tokenizers in files of other libraries.
#ifndef TESTS_TOKENIZER_TEST_FILES_H
#define TESTS_TOKENIZER_TEST_FILES_H

#include "base/json.h"
#include "support/test.h"

// Calls `check` with each line of a kind. Returns how many there are.
static inline int files_each(const char *kind, void (*check)(const json_t *line)) {
    trireme_error error = {0};
    char *bytes;
    size_t length;
    int count = 0;
    if (file_read(TRIREME_SOURCE "/tests/tokenizer/files.jsonl", 16 << 20, &bytes, &length, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    for (char *line = bytes, *end; (end = strchr(line, '\n')); line = end + 1) {
        json_t *tree;
        if (json_parse(line, (size_t)(end - line), "files.jsonl", &tree, &error) != TRIREME_OK)
            fail_msg("%s", error.message);
        if (strcmp(json_string_value(json_object_get(tree, "kind")), kind) == 0) {
            check(tree);
            count++;
        }
        json_decref(tree);
    }
    free(bytes);
    return count;
}

#endif
