// What the tests of data/ share: a temporary directory, files in it, token files, and checks of messages.
#ifndef TESTS_DATA_TEST_DATA_H
#define TESTS_DATA_TEST_DATA_H

#include "base/text.h"
#include "data/token_writer.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

struct folder {
    char path[200];
    VEC(char *) names; // of `in`
};

static inline int folder_setup(void **state) {
    struct folder *f = mem_alloc(sizeof *f);
    const char *root = getenv("TMPDIR");
    snprintf(f->path, sizeof f->path, "%s/trireme-data-XXXXXX", root && strlen(root) < 100 ? root : "/tmp");
    *state = f;
    return mkdtemp(f->path) ? 0 : -1;
}

static inline void folder_remove(const char *path) {
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char *inside = mem_printf("%s/%s", path, entry->d_name);
        struct stat info;
        assert_int_equal(lstat(inside, &info), 0);
        if (S_ISDIR(info.st_mode))
            folder_remove(inside);
        else
            assert_int_equal(unlink(inside), 0);
        free(inside);
    }
    closedir(directory);
    assert_int_equal(rmdir(path), 0);
}

static inline int folder_teardown(void **state) {
    struct folder *f = *state;
    folder_remove(f->path);
    for (size_t i = 0; i < f->names.count; i++)
        free(f->names.item[i]);
    VEC_RELEASE(&f->names);
    free(f);
    return 0;
}

// The path of `name` in the folder; lives as long as the folder.
static inline const char *in(void **state, const char *name) {
    struct folder *f = *state;
    VEC_PUSH(&f->names, mem_printf("%s/%s", f->path, name));
    return f->names.item[f->names.count - 1];
}

static inline void put(const char *path, const void *bytes, size_t length) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static inline void put_text(const char *path, const char *text) {
    put(path, text, strlen(text));
}

// The whole file; caller frees.
static inline char *get(const char *path, size_t *length) {
    trireme_error error = {0};
    char *bytes = NULL;
    if (file_read(path, (size_t)1 << 30, &bytes, length, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    return bytes;
}

static inline bool exists(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

static inline int count_entries(const char *path) {
    DIR *directory = opendir(path);
    assert_non_null(directory);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(directory));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(directory);
    return count;
}

#define assert_ok(expression)              \
    do {                                   \
        trireme_error error = {0};         \
        if ((expression) != TRIREME_OK)    \
            fail_msg("%s", error.message); \
    } while (0)

// Asserts that the expression, which uses `&error`, fails with this status and a one-line message that holds `part`.
#define assert_refused(expression, wanted, part)                                          \
    do {                                                                                  \
        trireme_error error = {0};                                                        \
        assert_int_equal((expression), (wanted));                                         \
        assert_int_equal(error.status, (wanted));                                         \
        if (!strstr(error.message, (part)) || strchr(error.message, '\n'))                \
            fail_msg("expected one line with \"%s\", got \"%s\"", (part), error.message); \
    } while (0)

// Writes documents of these lengths, with tokens counting up modulo the vocabulary.
static inline trireme_status write_documents(const char *prefix, int32_t vocab_size, int32_t sequence_limit,
                                             const int *lengths, size_t count, trireme_error *error) {
    struct token_writer *w;
    TRY(token_writer_create(prefix, vocab_size, sequence_limit, &w, error));
    int32_t next = 0;
    for (size_t d = 0; d < count; d++) {
        for (int i = 0; i < lengths[d]; i++) {
            int32_t token = next++ % vocab_size;
            trireme_status status = token_writer_add(w, &token, 1, error);
            if (status != TRIREME_OK) {
                token_writer_discard(w);
                return status;
            }
        }
        assert_int_equal(token_writer_end_document(w, error), TRIREME_OK);
    }
    return token_writer_finish(w, NULL, error);
}

#endif
