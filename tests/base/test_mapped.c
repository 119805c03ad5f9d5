// Files that other programs cut short while they are mapped.
#include "base/mapped.h"
#include "base/region.h"
#include "base/text.h"
#include "ckpt/safetensors.h"
#include "data/token_writer.h"
#include "run/corpus.h"
#include "support/checkpoint.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

// Whoever has a file open may find that another program has cut it short: what is left can be read.
static void what_is_left_of_tensors_is_read(void **state) {
    trireme_error error = {0};
    static const char TABLE[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[196608],\"data_offsets\":[0,196608]}}";
    enum { HEADER = 72, BYTES = 3 * 65536 };
    char *path = mem_printf("%s/cut.safetensors", (const char *)*state), *image = mem_alloc(8 + HEADER + BYTES);
    const uint64_t length = HEADER;
    memset(image, ' ', 8 + HEADER);
    memcpy(image, &length, 8);
    memcpy(image + 8, TABLE, sizeof TABLE - 1);
    for (int i = 0; i < BYTES; i++)
        image[8 + HEADER + i] = (char)(i % 251);
    assert_ok(file_write_atomic(path, image, 8 + HEADER + BYTES, &error), &error);
    struct safetensors *s = NULL, *in_memory = NULL;
    assert_ok(safetensors_open(path, &s, &error), &error);
    assert_ok(safetensors_open_memory(image, 8 + HEADER + BYTES, "image", &in_memory, &error), &error);
    unsigned char *read = mem_alloc(BYTES);
    struct safetensors *const both[] = {s, in_memory};
    for (int i = 0; i < 2; i++) {
        const struct safetensors_tensor *t = safetensors_find(both[i], "a");
        assert_ok(safetensors_read(both[i], t, 0, BYTES, read, &error), &error);
        assert_memory_equal(read, image + 8 + HEADER, BYTES);
        assert_ok(safetensors_read(both[i], t, 70001, 3, read, &error), &error);
        assert_memory_equal(read, image + 8 + HEADER + 70001, 3);
        assert_ok(safetensors_read(both[i], t, BYTES, 0, read, &error), &error);
    }
    const struct safetensors_tensor *t = safetensors_find(s, "a");
    assert_int_equal(truncate(path, 65536), 0);
    assert_ok(safetensors_read(s, t, 0, 65536 - 8 - HEADER, read, &error), &error);
    assert_memory_equal(read, image + 8 + HEADER, 65536 - 8 - HEADER);
    const uint64_t beyond[][2] = {{0, BYTES}, {0, 65536}, {65536 - 8 - HEADER, 1}, {BYTES - 1, 1}};
    for (size_t i = 0; i < ARRAY_LENGTH(beyond); i++)
        assert_refused(safetensors_read(s, t, beyond[i][0], beyond[i][1], read, &error), TRIREME_ERROR_CORRUPT, &error,
                       "cut.safetensors became shorter while it was read");
    safetensors_close(s);
    safetensors_close(in_memory);
    free(read);
    free(image);
    free(path);
}

static void what_is_left_of_a_file_is_copied(void **state) {
    enum { PAGE = 65536, PAGES = 3 };
    char *path = mem_printf("%s/cut", (const char *)*state), *bytes = mem_alloc(PAGES * PAGE),
         *copy = mem_alloc(PAGES * PAGE);
    trireme_error error = {0};
    for (int i = 0; i < PAGES * PAGE; i++)
        bytes[i] = (char)(i % 251);
    assert_ok(file_write_atomic(path, bytes, PAGES * PAGE, &error), &error);
    int file = open(path, O_RDONLY);
    const char *map = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, file, 0);
    assert_true(map != MAP_FAILED);
    assert_true(mapped_copy(map, PAGES * PAGE, copy));
    assert_memory_equal(copy, bytes, PAGES * PAGE);
    assert_true(mapped_copy(map + PAGE - 1, 0, copy));
    assert_int_equal(truncate(path, PAGE), 0);
    assert_true(mapped_copy(map + 3, PAGE - 3, copy));
    assert_memory_equal(copy, bytes + 3, PAGE - 3);
    assert_false(mapped_copy(map + PAGE, 1, copy));
    assert_false(mapped_copy(map + PAGE - 1, 2, copy));
    assert_false(mapped_copy(map, PAGES * PAGE, copy));
    munmap((void *)map, PAGES * PAGE);
    close(file);
    free(copy);
    free(bytes);
    free(path);
}

// What was read of a file counts as memory until it is given back; around what is given back, whole blocks are.
static void what_was_read_is_given_back(void **state) {
    enum { MIB = 1 << 20, BYTES = 12 * MIB };
    char *path = mem_printf("%s/large", (const char *)*state), *bytes = mem_aligned(64, BYTES);
    trireme_error error = {0};
    memset(bytes, 7, BYTES);
    assert_ok(file_write_atomic(path, bytes, BYTES, &error), &error);
    int file = open(path, O_RDONLY);
    char *map = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, file, 0);
    assert_true(map != MAP_FAILED);
    static const struct {
        size_t from, bytes;
        long given_back; // MiB
    } CASES[] = {{0, BYTES, 12}, {5 * MIB, 1, 2}, {BYTES - 1, 1, 2}, {4 * MIB, 1, 4}, {3 * MIB, 0, 0}};
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        memcpy(bytes, map, BYTES);
        const long before = (long)memory_resident();
        mapped_forget(map, BYTES, CASES[i].from, CASES[i].bytes);
        assert_in_range(before - (long)memory_resident() + MIB / 2, CASES[i].given_back * MIB,
                        (CASES[i].given_back + 1) * MIB);
        assert_int_equal(map[CASES[i].from], 7);
    }
    munmap(map, BYTES);
    close(file);
    free(bytes);
    free(path);
}

// What a run stores to go on with the same tokens covers all of them, or is not made.
static void what_is_left_of_tokens_is_not_told_from_others(void **state) {
    enum { TOKENS = 100000 };
    char *prefix = mem_printf("%s/t", (const char *)*state), *path = mem_printf("%s.bin", prefix);
    int32_t *tokens = mem_alloc(TOKENS * sizeof *tokens);
    trireme_error error = {0};
    struct token_writer *w;
    struct token_set *set;
    struct text whole = {0}, cut = {0};
    assert_ok(token_writer_create(prefix, 256, 0, &w, &error), &error);
    assert_ok(token_writer_add(w, tokens, TOKENS, &error), &error);
    assert_ok(token_writer_end_document(w, &error), &error);
    assert_ok(token_writer_finish(w, NULL, &error), &error);
    assert_ok(token_set_open(prefix, &set, &error), &error);
    assert_ok(corpus_identify(set, " with a hash of all ", &whole, &error), &error);
    uint64_t hash = 0xCBF29CE484222325; // as in checkpoints of before there were checksums
    for (int i = 0; i < TOKENS; i++)
        hash *= 0x100000001B3;
    char *expected = mem_printf("100000 tokens with a hash of all %016llx", (unsigned long long)hash);
    assert_string_equal(whole.text, expected);
    free(expected);
    assert_int_equal(truncate(path, 65536), 0);
    assert_refused(corpus_identify(set, " with a hash of all ", &cut, &error), TRIREME_ERROR_CORRUPT, &error,
                   "t.bin became shorter while it was read (65536 bytes, before 200000)");
    // The file that tells of documents, under another name.
    char *index = mem_printf("%s.idx", prefix), *other = mem_printf("%s/other", (const char *)*state);
    int32_t token[2];
    assert_ok(file_write_atomic(path, (const char *)tokens, TOKENS * 2, &error), &error);
    token_set_close(set);
    char *sums = mem_printf("%s.sums", prefix);
    assert_int_equal(unlink(sums), 0);
    assert_ok(token_set_open(prefix, &set, &error), &error);
    assert_int_equal(truncate(path, 65536), 0);
    assert_refused(corpus_identify(set, NULL, &cut, &error), TRIREME_ERROR_CORRUPT, &error,
                   "t.bin became shorter while it was read (65536 bytes, before 200000)");
    assert_int_equal(truncate(path, 200000), 0);
    assert_int_equal(rename(index, other), 0);
    assert_ok(token_set_read(set, 0, 2, 256, token, &error), &error);
    assert_int_equal(truncate(other, 0), 0);
    assert_refused(token_set_read(set, 0, 2, 256, token, &error), TRIREME_ERROR_CORRUPT, &error,
                   "t.idx has another name now, and became shorter while it was read");
    token_set_close(set);
    free(sums);
    free(index);
    free(other);
    text_release(&whole);
    text_release(&cut);
    free(tokens);
    free(path);
    free(prefix);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(what_is_left_of_a_file_is_copied),
        IN_FOLDER(what_was_read_is_given_back),
        IN_FOLDER(what_is_left_of_tensors_is_read),
        IN_FOLDER(what_is_left_of_tokens_is_not_told_from_others),
    };
    return cmocka_run_group_tests_name("mapped", tests, NULL, NULL);
}
