// Token files: what the writer leaves on the disk, what the readers accept, and every way in which files can be wrong.
#include "data/token_set.h"
#include "support/sanitized.h"
#include "test_data.h"

#include <fcntl.h>
#include <sys/resource.h>

// Document starts of the set by asking for one after another; returns how many.
static size_t list_documents(const struct token_set *set, int64_t *starts, size_t capacity) {
    size_t count = 0;
    for (int64_t from = 0, tokens = token_set_tokens(set); from < tokens;) {
        int64_t found;
        assert_ok(token_set_next_document(set, from, tokens, &found, &error));
        if (found == tokens)
            break;
        assert_true(found >= from && count < capacity);
        starts[count++] = found;
        from = found + 1;
    }
    return count;
}

// ---- Megatron

static void test_bytes_on_disk(void **state) {
    const char *prefix = in(state, "t");
    assert_ok(write_documents(prefix, 300, 0, (int[]){2, 1}, 2, &error));
    static const uint8_t bin[] = {0, 0, 1, 0, 2, 0};
    static const uint8_t index[] = {
        'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0, //
        1,   0,   0,   0,   0,   0,   0,   0,    // version
        8,                                       // uint16
        2,   0,   0,   0,   0,   0,   0,   0,    // sequences
        3,   0,   0,   0,   0,   0,   0,   0,    // entries of the document index
        2,   0,   0,   0,   1,   0,   0,   0,    // lengths
        0,   0,   0,   0,   0,   0,   0,   0,    // pointers
        4,   0,   0,   0,   0,   0,   0,   0,    //
        0,   0,   0,   0,   0,   0,   0,   0,    // document index
        1,   0,   0,   0,   0,   0,   0,   0,    //
        2,   0,   0,   0,   0,   0,   0,   0,
    };
    size_t length;
    char *found = get(in(state, "t.bin"), &length);
    assert_int_equal(length, sizeof bin);
    assert_memory_equal(found, bin, sizeof bin);
    free(found);
    found = get(in(state, "t.idx"), &length);
    assert_int_equal(length, sizeof index);
    assert_memory_equal(found, index, sizeof index);
    free(found);
    assert_int_equal(count_entries(((struct folder *)*state)->path), 3);
}

static void check_round_trip(void **state, int32_t vocab_size, int32_t sequence_limit, int width) {
    enum { DOCUMENTS = 300, MOST = 40000 };
    const char *prefix = in(state, "round");
    int lengths[DOCUMENTS];
    int64_t starts[DOCUMENTS], found[DOCUMENTS], total = 0;
    size_t count = 0;
    for (int d = 0; d < DOCUMENTS; d++) {
        lengths[d] = d % 7 == 0 ? 0 : d * d % 97 + 1;
        if (lengths[d])
            starts[count++] = total;
        total += lengths[d];
    }
    assert_ok(write_documents(prefix, vocab_size, sequence_limit, lengths, DOCUMENTS, &error));
    size_t bytes;
    char *bin = get(in(state, "round.bin"), &bytes);
    free(bin);
    assert_int_equal(bytes, total * width);
    const char *names[] = {prefix, in(state, "round.bin"), in(state, "round.idx")};
    for (size_t n = 0; n < ARRAY_LENGTH(names); n++) {
        struct token_set *set;
        assert_ok(token_set_open(names[n], &set, &error));
        assert_int_equal(token_set_tokens(set), total);
        static int32_t tokens[MOST];
        assert_ok(token_set_read(set, 0, total, vocab_size, tokens, &error));
        for (int64_t i = 0; i < total; i++)
            assert_int_equal(tokens[i], i % vocab_size);
        assert_ok(token_set_read(set, 1234, 1240, vocab_size, tokens, &error));
        assert_int_equal(tokens[0], 1234 % vocab_size);
        assert_ok(token_set_read(set, total, total, vocab_size, tokens, &error));
        assert_int_equal(list_documents(set, found, DOCUMENTS), count);
        assert_memory_equal(found, starts, count * sizeof *starts);
        // Any window: the first start in it, or its end.
        for (int64_t from = 0; from < total; from += 13)
            for (int64_t limit = from; limit < MIN(total, from + 200); limit += 7) {
                int64_t next, expected = limit;
                for (size_t d = count; d-- > 0;)
                    if (starts[d] >= from && starts[d] < limit)
                        expected = starts[d];
                assert_ok(token_set_next_document(set, from, limit, &next, &error));
                assert_int_equal(next, expected);
            }
        assert_false(token_set_delimited(set, 0));
        token_set_close(set);
    }
}

static void test_round_trip(void **state) {
    check_round_trip(state, 256, 0, 2);
    check_round_trip(state, 65499, 0, 2);
    check_round_trip(state, 65500, 0, 4);
    check_round_trip(state, 256, 10, 2); // documents of several sequences
    check_round_trip(state, 200000, 1, 4);
}

// More tokens than the writer's buffer, in one call.
static void test_large_pieces(void **state) {
    enum { COUNT = 1500001 };
    int32_t *tokens = mem_alloc(COUNT * sizeof *tokens), *read = mem_alloc(COUNT * sizeof *read);
    for (int i = 0; i < COUNT; i++)
        tokens[i] = (i * 7) % 50000;
    struct token_writer *w;
    assert_ok(token_writer_create(in(state, "large"), 50257, 1000000, &w, &error));
    assert_ok(token_writer_add(w, tokens, COUNT, &error));
    assert_ok(token_writer_end_document(w, &error));
    assert_int_equal(token_writer_tokens(w), COUNT);
    assert_int_equal(token_writer_documents(w), 1);
    assert_ok(token_writer_finish(w, NULL, &error));
    struct token_set *set;
    assert_ok(token_set_open(in(state, "large"), &set, &error));
    assert_ok(token_set_read(set, 0, COUNT, 50257, read, &error));
    assert_memory_equal(tokens, read, COUNT * sizeof *tokens);
    // Wherever it is met first.
    assert_refused(token_set_read(set, 0, COUNT, 49999, read, &error), TRIREME_ERROR_CORRUPT,
                   "token 49999 at position 42857 ");
    int64_t found[4];
    assert_int_equal(list_documents(set, found, 4), 1);
    token_set_close(set);
    free(tokens);
    free(read);
}

// The parts of an index, to be spoilt one at a time.
struct index {
    uint8_t bytes[34 + 3 * 12 + 4 * 8 + 8];
    size_t length;
};
enum { LENGTHS = 34, POINTERS = LENGTHS + 3 * 4, DOCUMENTS = POINTERS + 3 * 8 };

// Three documents of 4, 2 and 3 tokens.
static struct index good_index(int dtype, int width) {
    struct index x = {.length = 34 + 3 * 12 + 4 * 8};
    int32_t lengths[] = {4, 2, 3};
    int64_t version = 1, sequences = 3, entries = 4, pointers[] = {0, 4 * width, 6 * width}, documents[] = {0, 1, 2, 3};
    memcpy(x.bytes, "MMIDIDX\0", 9);
    memcpy(x.bytes + 9, &version, 8);
    x.bytes[17] = (uint8_t)dtype;
    memcpy(x.bytes + 18, &sequences, 8);
    memcpy(x.bytes + 26, &entries, 8);
    memcpy(x.bytes + LENGTHS, lengths, sizeof lengths);
    memcpy(x.bytes + POINTERS, pointers, sizeof pointers);
    memcpy(x.bytes + DOCUMENTS, documents, sizeof documents);
    return x;
}

static void put_pair(void **state, const struct index *x, size_t bin_bytes) {
    static const uint8_t bin[100];
    put(in(state, "x.idx"), x->bytes, x->length);
    put(in(state, "x.bin"), bin, bin_bytes);
}

static void test_dtypes(void **state) {
    static const struct { int code, width; } good[] = {{1, 1}, {8, 2}, {4, 4}, {5, 8}};
    for (size_t i = 0; i < ARRAY_LENGTH(good); i++) {
        struct index x = good_index(good[i].code, good[i].width);
        put_pair(state, &x, 0);
        uint8_t bin[9 * 8] = {0};
        for (int t = 0; t < 9; t++)
            bin[t * good[i].width] = (uint8_t)(10 * t);
        put(in(state, "x.bin"), bin, 9 * (size_t)good[i].width);
        struct token_set *set;
        assert_ok(token_set_open(in(state, "x"), &set, &error));
        int32_t tokens[9];
        assert_ok(token_set_read(set, 0, 9, 81, tokens, &error));
        for (int t = 0; t < 9; t++)
            assert_int_equal(tokens[t], 10 * t);
        char place[80];
        snprintf(place, sizeof place, "token 80 at position 8 (byte %d)", 8 * good[i].width);
        assert_refused(token_set_read(set, 0, 9, 80, tokens, &error), TRIREME_ERROR_CORRUPT, place);
        token_set_close(set);
    }
    static const int bad[] = {0, 2, 3, 6, 7, 9, 255};
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        struct index x = good_index(bad[i], 2);
        put_pair(state, &x, 18);
        struct token_set *set;
        assert_refused(token_set_open(in(state, "x"), &set, &error), TRIREME_ERROR_CORRUPT, "byte 17: dtype code");
    }
}

static void test_negative_tokens(void **state) {
    struct index x = good_index(4, 4);
    put_pair(state, &x, 36);
    int32_t bin[9] = {0, 1, 2, 3, 4, -7, 6, 7, 8}, tokens[9];
    put(in(state, "x.bin"), bin, sizeof bin);
    struct token_set *set;
    assert_ok(token_set_open(in(state, "x"), &set, &error));
    assert_refused(token_set_read(set, 3, 9, INT32_MAX, tokens, &error), TRIREME_ERROR_CORRUPT,
                   "x.bin: token -7 at position 5 (byte 20) is outside of the vocabulary of 2147483647");
    assert_ok(token_set_read(set, 0, 5, 5, tokens, &error));
    token_set_close(set);
    x = good_index(5, 8);
    int64_t wide[9] = {0, 1, INT64_C(1) << 32, 3, 4, -7, 6, 7, 8};
    put(in(state, "x.idx"), x.bytes, x.length);
    put(in(state, "x.bin"), wide, sizeof wide);
    assert_ok(token_set_open(in(state, "x"), &set, &error));
    assert_refused(token_set_read(set, 0, 9, 100, tokens, &error), TRIREME_ERROR_CORRUPT,
                   "token 4294967296 at position 2 (byte 16)");
    assert_refused(token_set_read(set, 5, 9, 100, tokens, &error), TRIREME_ERROR_CORRUPT, "token -7 at position 5");
    token_set_close(set);
}

static void refuse_index(void **state, size_t at, int64_t value, size_t size, const char *part) {
    struct index x = good_index(8, 2);
    memcpy(x.bytes + at, &value, size);
    put_pair(state, &x, 18);
    struct token_set *set = NULL;
    assert_refused(token_set_open(in(state, "x"), &set, &error), TRIREME_ERROR_CORRUPT, part);
    assert_null(set);
}

static void test_malformed_at_open(void **state) {
    struct token_set *set = NULL;
    struct index x = good_index(8, 2);
    put_pair(state, &x, 18);
    assert_ok(token_set_open(in(state, "x"), &set, &error));
    token_set_close(set);
    set = NULL;

    refuse_index(state, 0, 'm', 1, "x.idx byte 0: not a Megatron index");
    refuse_index(state, 8, 1, 1, "x.idx byte 0: not a Megatron index");
    refuse_index(state, 9, 2, 8, "x.idx byte 9: the version is 2, expected 1");
    refuse_index(state, 18, 4, 8, "102 bytes, but its header tells of 4 sequences and 4 document entries");
    refuse_index(state, 18, 4, 8, "= 114 bytes");
    refuse_index(state, 26, 3, 8, "= 94 bytes");
    refuse_index(state, 18, 0, 8, "expected 34 +");
    refuse_index(state, 18, -1, 8, "tells of -1 sequences");
    refuse_index(state, 18, INT64_MAX, 8, "tells of 9223372036854775807 sequences");
    refuse_index(state, 26, INT64_MAX / 2, 8, "document entries");
    refuse_index(state, 26, INT64_MIN, 8, "document entries");
    refuse_index(state, POINTERS, 2, 8, "x.idx byte 46: the pointer to sequence 0 is 2, expected 0");
    refuse_index(state, POINTERS + 16, 13, 8, "x.idx byte 62: sequence 2 begins at byte 13");
    refuse_index(state, POINTERS + 16, -2, 8, "sequence 2 begins at byte -2");
    refuse_index(state, POINTERS + 16, INT64_MAX - 1, 8, "sequence 2 begins at byte");
    refuse_index(state, POINTERS + 16, 10, 8, "18 bytes, but");
    refuse_index(state, LENGTHS + 8, -3, 4, "x.idx byte 42: the length of sequence 2 is negative (-3)");
    refuse_index(state, LENGTHS + 8, 4, 4, "tells of 20");
    refuse_index(state, LENGTHS + 8, INT32_MAX, 4, "tells of 4294967306");
    // In the middle, too, where no document is looked for yet.
    refuse_index(state, LENGTHS, 5, 4, "x.idx byte 54: the pointer to a sequence is 8, expected 10");
    refuse_index(state, LENGTHS + 4, -2, 4, "x.idx byte 38: the length of sequence 1 is negative (-2)");
    refuse_index(state, LENGTHS + 4, INT32_MAX, 4, "x.idx byte 62: the pointer to a sequence is 12, expected ");
    refuse_index(state, POINTERS + 8, 10, 8, "x.idx byte 54: the pointer to a sequence is 10, expected 8");
    refuse_index(state, DOCUMENTS, 1, 8, "x.idx byte 70: the first document's sequence is 1, expected 0");
    refuse_index(state, DOCUMENTS + 24, 2, 8, "x.idx byte 94: the end of the document index is 2, expected 3");
    refuse_index(state, DOCUMENTS + 8, 4, 8,
                 "x.idx byte 86: document 2 begins with sequence 2, but the one before it with 4");
    refuse_index(state, DOCUMENTS + 16, -1, 8,
                 "x.idx byte 86: document 2 begins with sequence -1, but the one before it with 1");

    // Documents without sequences are in order.
    x = good_index(8, 2);
    memcpy(x.bytes + DOCUMENTS + 8, &(int64_t){2}, 8);
    put_pair(state, &x, 18);
    assert_ok(token_set_open(in(state, "x"), &set, &error));
    int64_t starts[3];
    assert_int_equal(list_documents(set, starts, 3), 2);
    assert_memory_equal(starts, ((int64_t[]){0, 6}), 2 * sizeof *starts);
    token_set_close(set);
    set = NULL;

    // Every truncation of the index, and any other size of the tokens.
    for (x.length = 1; x.length < sizeof x.bytes; x.length++) {
        if (x.length == sizeof x.bytes - 8)
            continue;
        put_pair(state, &x, 18);
        assert_refused(token_set_open(in(state, "x"), &set, &error), TRIREME_ERROR_CORRUPT,
                       x.length < 34 ? "too short for the header of 34 bytes" : "expected 34 +");
    }
    x = good_index(8, 2);
    for (size_t bytes = 1; bytes < 40; bytes++) {
        if (bytes == 18)
            continue;
        put_pair(state, &x, bytes);
        assert_refused(token_set_open(in(state, "x"), &set, &error), TRIREME_ERROR_CORRUPT, "x.bin: ");
    }
    put_pair(state, &x, 0);
    assert_refused(token_set_open(in(state, "x"), &set, &error), TRIREME_ERROR_CORRUPT,
                   "x.bin: the token file is empty");
    x.length = 0;
    put_pair(state, &x, 18);
    assert_refused(token_set_open(in(state, "x"), &set, &error), TRIREME_ERROR_CORRUPT,
                   "x.idx: the token file is empty");
    assert_null(set);
}

// What was not checked when the file was opened, or is written into it later, is checked when it is needed.
static void refuse_access(void **state, size_t at, int64_t value, size_t size, const char *part) {
    struct index x = good_index(8, 2);
    struct token_set *set;
    put_pair(state, &x, 18);
    assert_ok(token_set_open(in(state, "x"), &set, &error));
    memcpy(x.bytes + at, &value, size);
    put_pair(state, &x, 18);
    int64_t found = -1;
    assert_refused(token_set_next_document(set, 1, 9, &found, &error), TRIREME_ERROR_CORRUPT, part);
    assert_int_equal(found, -1);
    token_set_close(set);
}

static bool add_position(void *user, int64_t position) {
    *(int64_t *)user += position;
    return true;
}

// Documents that are put into another order after the file was opened.
static void refuse_documents(void **state) {
    struct index x = good_index(8, 2);
    struct token_set *set;
    int64_t sum = 0;
    put_pair(state, &x, 18);
    assert_ok(token_set_open(in(state, "x"), &set, &error));
    assert_ok(token_set_documents(set, 0, 9, add_position, &sum, &error));
    assert_int_equal(sum, 10);
    memcpy(x.bytes + DOCUMENTS, &(int64_t){2}, 8);
    put_pair(state, &x, 18);
    assert_refused(token_set_documents(set, 0, 9, add_position, &sum, &error), TRIREME_ERROR_CORRUPT,
                   "x.idx byte 78: document 1 begins before the one before it");
    token_set_close(set);
}

static void test_malformed_at_access(void **state) {
    refuse_access(state, DOCUMENTS + 8, 4, 8, "x.idx byte 78: document 1 begins with sequence 4, expected 0 to 3");
    refuse_access(state, DOCUMENTS + 8, -1, 8, "document 1 begins with sequence -1");
    refuse_access(state, POINTERS + 8, 6, 8, "x.idx byte 54: the pointer to a sequence is 6, expected 8");
    refuse_access(state, POINTERS + 8, 10, 8, "x.idx byte 54: the pointer to a sequence is 10, expected 8");
    refuse_access(state, LENGTHS, 5, 4, "x.idx byte 54: the pointer to a sequence is 8, expected 10");
    refuse_access(state, LENGTHS, -5, 4, "x.idx byte 34: the length of sequence 0 is negative (-5)");
    refuse_documents(state);
}

// A file that changes under its reader: it becomes shorter, or another file takes its name.
static void test_became_shorter(void **state) {
    static const char *const files[] = {"x.bin", "x.idx"};
    struct index x = good_index(8, 2);
    int32_t tokens[9];
    for (size_t i = 0; i < 2 * ARRAY_LENGTH(files); i++) {
        const char *name = files[i / 2];
        const int left = i % 2 ? 10 : 0; // of a page that is still there
        struct token_set *set;
        put_pair(state, &x, 18);
        assert_ok(token_set_open(in(state, "x"), &set, &error));
        assert_ok(token_set_read(set, 0, 9, 65536, tokens, &error));
        assert_int_equal(truncate(in(state, name), left), 0);
        char *part = mem_printf("%s became shorter while it was read (%d bytes, before ", name, left);
        assert_refused(token_set_read(set, 0, 9, 65536, tokens, &error), TRIREME_ERROR_CORRUPT, part);
        free(part);
        put_pair(state, &x, 18);
        assert_ok(token_set_read(set, 0, 9, 65536, tokens, &error));
        put_text(in(state, "short"), "x");
        assert_int_equal(rename(in(state, "short"), in(state, name)), 0);
        assert_ok(token_set_read(set, 0, 9, 65536, tokens, &error));
        token_set_close(set);
    }
}

// Writes into a file in place, a nanosecond after it was last written to.
static void rewrite(const char *path, long at, const void *bytes, size_t length) {
    struct stat info;
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &info), 0);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
    info.st_mtim.tv_nsec = (info.st_mtim.tv_nsec + 1) % 1000000000;
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){info.st_atim, info.st_mtim}, 0), 0);
}

// Files that are written into while they are open, within the second, too.
static void test_rewritten(void **state) {
    struct index x = good_index(8, 2);
    struct token_set *set;
    int32_t tokens[9];
    put_pair(state, &x, 18);
    assert_ok(token_set_open(in(state, "x"), &set, &error));
    assert_ok(token_set_check_unchanged(set, &error));
    rewrite(in(state, "x.bin"), 4, "a", 1); // before it is read: what is read is what counts
    assert_ok(token_set_check_unchanged(set, &error));
    assert_ok(token_set_read(set, 0, 9, 256, tokens, &error));
    assert_int_equal(tokens[2], 'a');
    rewrite(in(state, "x.bin"), 4, "a", 1);
    assert_ok(token_set_check_unchanged(set, &error));
    rewrite(in(state, "x.bin"), 4, "b", 1);
    assert_refused(token_set_check_unchanged(set, &error), TRIREME_ERROR_CORRUPT,
                   "x.bin was written into while the run read it, and bytes 0 to 18 are others now");
    rewrite(in(state, "x.bin"), 4, "a", 1);
    assert_ok(token_set_check_unchanged(set, &error));
    // All documents become one: an index that is right by itself.
    rewrite(in(state, "x.idx"), DOCUMENTS + 8, (int64_t[]){3, 3}, 16);
    assert_refused(token_set_check_unchanged(set, &error), TRIREME_ERROR_CORRUPT,
                   "x.idx was written into while the run read it, and bytes 0 to 102 are others now");
    token_set_close(set);
}

static void test_missing_files(void **state) {
    struct token_set *set;
    assert_refused(token_set_open(in(state, "none"), &set, &error), TRIREME_ERROR_USAGE, "none.bin: no such file");
    assert_refused(token_set_open(in(state, "none"), &set, &error), TRIREME_ERROR_USAGE, "trireme prepare");
    assert_refused(token_set_open(((struct folder *)*state)->path, &set, &error), TRIREME_ERROR_USAGE, "no such file");
    assert_refused(token_set_open(in(state, "none*.bin"), &set, &error), TRIREME_ERROR_USAGE, "no file matches");
    assert_refused(token_set_open(in(state, "nowhere/*.bin"), &set, &error), TRIREME_ERROR_USAGE, "no file matches");
    put_text(in(state, "none.bin"), "text");
    assert_refused(token_set_open(in(state, "none"), &set, &error), TRIREME_ERROR_CORRUPT,
                   "there is no .idx beside it");
    struct index x = good_index(8, 2);
    put(in(state, "y.idx"), x.bytes, x.length);
    assert_refused(token_set_open(in(state, "y"), &set, &error), TRIREME_ERROR_USAGE, "y.bin: no such file");
    // A pipe exists, but is not a token file.
    assert_int_equal(mkfifo(in(state, "y.bin"), 0666), 0);
    const char *names[] = {"y", "y.bin", "y*.bin"};
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        assert_refused(token_set_open(in(state, names[i]), &set, &error), TRIREME_ERROR_USAGE,
                       "y.bin: is not a regular file");
    assert_int_equal(rename(in(state, "y.bin"), in(state, "none.idx")), 0);
    assert_refused(token_set_open(in(state, "none"), &set, &error), TRIREME_ERROR_USAGE,
                   "none.idx: is not a regular file");
}

// ---- llm.c

static void put_llmc(const char *path, int32_t magic, int32_t version, int32_t count, const int32_t *tokens, size_t n) {
    int32_t header[256] = {magic, version, count};
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite(header, sizeof header, 1, file);
    for (size_t i = 0; i < n; i++) {
        uint16_t narrow = (uint16_t)tokens[i];
        if (magic == 20240801)
            fwrite(&tokens[i], 4, 1, file);
        else
            fwrite(&narrow, 2, 1, file);
    }
    assert_int_equal(fclose(file), 0);
}

static void check_llmc(void **state, int32_t magic, int32_t version, int32_t end_of_text) {
    // Three shards; the second begins inside a document, the third with one.
    int32_t tokens[] = {end_of_text, 1, 2, end_of_text, 3, 4, 5, end_of_text, end_of_text, 6, 7, 8};
    put_llmc(in(state, "part_2.bin"), magic, version, 5, tokens + 7, 5);
    put_llmc(in(state, "part_0.bin"), magic, version, 6, tokens, 6);
    put_llmc(in(state, "part_1.bin"), magic, version, 1, tokens + 6, 1);
    struct token_set *set;
    assert_ok(token_set_open(in(state, "part_*.bin"), &set, &error));
    assert_int_equal(token_set_tokens(set), 12);
    int32_t read[12];
    int64_t starts[12];
    assert_ok(token_set_read(set, 0, 12, 130000, read, &error));
    assert_memory_equal(read, tokens, sizeof tokens);
    assert_ok(token_set_read(set, 4, 7, 130000, read, &error));
    assert_memory_equal(read, tokens + 4, 3 * sizeof *tokens);
    assert_int_equal(list_documents(set, starts, 12), 4);
    assert_memory_equal(starts, ((int64_t[]){0, 3, 7, 8}), 4 * sizeof *starts);
    int64_t found;
    assert_ok(token_set_next_document(set, 4, 7, &found, &error));
    assert_int_equal(found, 7);
    assert_true(token_set_delimited(set, 3));
    assert_true(token_set_delimited(set, 8));
    assert_refused(token_set_read(set, 0, 12, 8, read, &error), TRIREME_ERROR_CORRUPT,
                   "part_0.bin: token"); // the first token is the delimiter
    assert_refused(token_set_read(set, 9, 12, 8, read, &error), TRIREME_ERROR_CORRUPT,
                   "part_2.bin: token 8 at position 4");
    token_set_close(set);
    assert_ok(token_set_open(in(state, "part_1.bin"), &set, &error));
    assert_int_equal(token_set_tokens(set), 1);
    token_set_close(set);
}

// As many tokens as are scanned in several pieces.
static void check_long(void **state) {
    enum { PIECE = 1 << 18, TOKENS = 2 * PIECE + 7 };
    static const int64_t STARTS[] = {0, 5, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, TOKENS - 1};
    int32_t *tokens = mem_alloc(TOKENS * sizeof *tokens);
    struct token_set *set;
    int64_t found[ARRAY_LENGTH(STARTS)];
    for (size_t i = 0; i < ARRAY_LENGTH(STARTS); i++)
        tokens[STARTS[i]] = 50256;
    put_llmc(in(state, "long.bin"), 20240520, 1, TOKENS, tokens, TOKENS);
    assert_ok(token_set_open(in(state, "long.bin"), &set, &error));
    assert_int_equal(list_documents(set, found, ARRAY_LENGTH(found)), ARRAY_LENGTH(STARTS));
    assert_memory_equal(found, STARTS, sizeof STARTS);
    int64_t sum = 0;
    assert_ok(token_set_documents(set, 1, TOKENS, add_position, &sum, &error));
    assert_int_equal(sum, 5 + 5 * PIECE + TOKENS - 1);
    token_set_close(set);
    free(tokens);
}

static void test_llmc(void **state) {
    check_long(state);
    check_llmc(state, 20240520, 1, 50256);
    check_llmc(state, 20240801, 7, 128000);
}

// Shards of two tokenizers in one set.
static void test_llmc_mixed(void **state) {
    int32_t tokens[] = {1, 2, 3};
    struct index x = good_index(8, 2);
    struct token_set *set = NULL;
    put_llmc(in(state, "s1.bin"), 20240520, 1, 3, tokens, 3);
    put_llmc(in(state, "s2.bin"), 20240520, 1, 3, tokens, 3);
    put_llmc(in(state, "s4.bin"), 20240801, 7, 3, tokens, 3);
    char *part =
        mem_printf("%s holds tokens of GPT-2, but %s those of Llama 3", in(state, "s1.bin"), in(state, "s4.bin"));
    assert_refused(token_set_open(in(state, "s*.bin"), &set, &error), TRIREME_ERROR_USAGE, part);
    // Whose tokens Megatron's pair holds is not known.
    put(in(state, "s0.idx"), x.bytes, x.length);
    put(in(state, "s0.bin"), x.bytes, 18);
    assert_refused(token_set_open(in(state, "s*.bin"), &set, &error), TRIREME_ERROR_USAGE, part);
    free(part);
    assert_null(set);
    assert_ok(token_set_open(in(state, "s[0-2].bin"), &set, &error));
    assert_int_equal(token_set_tokens(set), 15);
    assert_false(token_set_delimited(set, 0));
    assert_true(token_set_delimited(set, 9));
    token_set_close(set);
}

static void test_llmc_malformed(void **state) {
    const char *path = in(state, "s.bin");
    int32_t tokens[] = {1, 2, 3};
    struct token_set *set = NULL;
    static const struct {
        int32_t magic, version, count;
        const char *part;
    } bad[] = {
        {20240521, 1, 3, "its first 4 bytes are 20240521, expected 20240520 or 20240801"},
        {20240520, 7, 3, "byte 4: the version is 7, expected 1"},
        {20240801, 1, 3, "byte 4: the version is 1, expected 7"},
        {20240520, 1, 4, "1030 bytes, but its header (byte 8) tells of 4 tokens of 2 bytes, expected 1032 bytes"},
        {20240520, 1, 2, "expected 1028 bytes"},
        {20240520, 1, 0, "tells of 0 tokens, expected 1 or more"},
        {20240520, 1, -3, "tells of -3 tokens"},
        {20240801, 7, INT32_MAX, "expected 8589935612 bytes"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        put_llmc(path, bad[i].magic, bad[i].version, bad[i].count, tokens, 3);
        assert_refused(token_set_open(path, &set, &error), TRIREME_ERROR_CORRUPT, bad[i].part);
    }
    put_llmc(path, 20240520, 1, 3, tokens, 3);
    for (int length = 1029; length > 0; length -= length > 1020 ? 1 : 101) {
        assert_int_equal(truncate(path, length), 0);
        assert_refused(token_set_open(path, &set, &error), TRIREME_ERROR_CORRUPT, "s.bin");
    }
    assert_refused(token_set_open(path, &set, &error), TRIREME_ERROR_CORRUPT, "too short for the header");
    put_text(in(state, "sx.txt"), "x");
    assert_refused(token_set_open(in(state, "sx*"), &set, &error), TRIREME_ERROR_USAGE, "not a .bin");
    assert_null(set);
}

static bool take_more(void *user, int64_t position) {
    int64_t *all = user;
    all[++all[0]] = position;
    return true;
}

// Files of tokens and nothing else, where that is said of them: each is one document.
static void test_tokens_alone(void **state) {
    enum { COUNT = 10000000 };
    struct token_set *set;
    uint16_t *narrow = mem_alloc(COUNT * sizeof *narrow);
    int64_t starts[4] = {0};
    int32_t tokens[4];
    for (int i = 0; i < COUNT; i++)
        narrow[i] = (uint16_t)(i % 50000);
    narrow[9000000] = 50256;
    put(in(state, "n1.bin"), narrow, 2 * COUNT);
    put(in(state, "n2.bin"), (int16_t[]){1, 2, 3}, 6);
    char *pattern = mem_printf("uint16:%s", in(state, "n*.bin")), *one = mem_printf("uint16:%s", in(state, "n2"));
    assert_ok(token_set_open(pattern, &set, &error));
    assert_int_equal(token_set_tokens(set), COUNT + 3);
    assert_ok(token_set_documents(set, 0, COUNT + 3, take_more, starts, &error));
    assert_memory_equal(starts, ((int64_t[]){2, 0, COUNT}), 3 * sizeof *starts);
    assert_false(token_set_delimited(set, 0));
    assert_ok(token_set_read(set, COUNT - 1, COUNT + 3, 65536, tokens, &error));
    assert_memory_equal(tokens, ((int32_t[]){(COUNT - 1) % 50000, 1, 2, 3}), sizeof tokens);
    assert_ok(token_set_check(set, 50257, NULL, NULL, &error));
    assert_ok(token_set_check(set, 65536, NULL, NULL, &error));
    assert_refused(token_set_check(set, 50256, NULL, NULL, &error), TRIREME_ERROR_CORRUPT,
                   "n1.bin: token 50256 at position 9000000 (byte 18000000) is outside of the vocabulary of 50256");
    assert_refused(token_set_check(set, 3, NULL, NULL, &error), TRIREME_ERROR_CORRUPT,
                   "n1.bin: token 3 at position 3 ");
    token_set_close(set);
    assert_refused(token_set_open(in(state, "n2.bin"), &set, &error), TRIREME_ERROR_CORRUPT, "too short");
    assert_refused(token_set_open(in(state, "n1.bin"), &set, &error), TRIREME_ERROR_CORRUPT, "data.path=uint16:/");
    assert_ok(token_set_open(one, &set, &error));
    token_set_close(set);
    put(in(state, "n2.bin"), "12345", 5);
    assert_refused(token_set_open(one, &set, &error), TRIREME_ERROR_CORRUPT, "5 bytes, expected tokens of 2 bytes");
    put(in(state, "n2.idx"), "", 0);
    assert_refused(token_set_open(one, &set, &error), TRIREME_ERROR_USAGE, "leave out uint16:");
    free(pattern);
    free(one);
    free(narrow);
}

// As in a set with more files than a process may map.
static trireme_status open_without_room(const char *path, struct token_set **set, trireme_error *error) {
    struct rlimit before, least;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    least = (struct rlimit){1 << 20, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &least), 0);
    trireme_status status = token_set_open(path, set, error);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    return status;
}

static void test_no_room_to_map(void **state) {
    struct token_set *set = NULL;
    struct index x = good_index(8, 2);
    if (SANITIZED) // which maps memory of its own
        skip();
    put_pair(state, &x, 18);
    assert_refused(open_without_room(in(state, "x"), &set, &error), TRIREME_ERROR_IO,
                   "x.bin: cannot map 18 bytes: Cannot allocate memory: a process may have");
    assert_null(set);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_setup, folder_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_bytes_on_disk),
        TEST(test_round_trip),
        TEST(test_large_pieces),
        TEST(test_dtypes),
        TEST(test_negative_tokens),
        TEST(test_malformed_at_open),
        TEST(test_malformed_at_access),
        TEST(test_became_shorter),
        TEST(test_rewritten),
        TEST(test_missing_files),
        TEST(test_llmc),
        TEST(test_llmc_mixed),
        TEST(test_llmc_malformed),
        TEST(test_tokens_alone),
        TEST(test_no_room_to_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
