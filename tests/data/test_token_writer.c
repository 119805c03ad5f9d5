// The writer of token files: what it makes, what it leaves alone, and every way in which it can fail.
#include "test_data.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static struct text *calls; // what follows, as it comes; NULL: it is not noted

static void note(const char *what, const char *path) {
    const char *slash = strrchr(path, '/');
    if (calls)
        text_add(calls, "%s %s\n", what, slash ? slash + 1 : path);
}

int fsync(int file) {
    char link[64], path[500] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    assert_true(readlink(link, path, sizeof path - 1) > 0);
    note("sync", path);
    return (int)syscall(SYS_fsync, file);
}

// Of renamings and removals: the first that fails, counted from 0, and how many do, one after another. FAILS_ON: as if
// the process had been killed there.
enum { FAILS_NOT = -1, FAILS_ON = 1000 };
static int failing = FAILS_NOT, failures;

static bool fails(void) {
    const bool now = failing == 0 && failures > 0;
    if (now)
        failures--;
    else if (failing > 0)
        failing--;
    errno = EPERM;
    return now;
}

static void (*locks)(int file); // is called before the next

static int no_locks; // errno of a file system that has none; 0: it has

int flock(int file, int operation) {
    void (*call)(int) = locks;
    if (no_locks) {
        errno = no_locks;
        return -1;
    }
    locks = NULL;
    if (call)
        call(file);
    return (int)syscall(SYS_flock, file, operation);
}

static bool no_file_is_emptied;

int ftruncate(int file, off_t length) {
    errno = EIO;
    return no_file_is_emptied ? -1 : (int)syscall(SYS_ftruncate, file, length);
}

int rename(const char *from, const char *to) {
    if (fails())
        return -1;
    note("name", to);
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlink(const char *path) {
    if (fails())
        return -1;
    note("remove", path);
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

static void test_no_documents(void **state) {
    assert_refused(write_documents(in(state, "e"), 256, 0, (int[]){0, 0}, 2, &error), TRIREME_ERROR_USAGE,
                   "no document");
    assert_int_equal(count_entries(((struct folder *)*state)->path), 0);
    assert_refused(write_documents("", 256, 0, NULL, 0, &error), TRIREME_ERROR_USAGE, "expected a prefix");
    assert_refused(write_documents(in(state, "a/"), 256, 0, NULL, 0, &error), TRIREME_ERROR_USAGE, "expected a prefix");
}

static void test_discard(void **state) {
    struct token_writer *w;
    assert_ok(token_writer_create(in(state, "a/b/c"), 256, 0, &w, &error));
    assert_ok(token_writer_add(w, &(int32_t){1}, 1, &error));
    assert_true(exists(in(state, "a/b/c.bin.tmp")));
    token_writer_discard(w);
    assert_int_equal(count_entries(((struct folder *)*state)->path), 0);
    token_writer_discard(NULL);
    // Directories that were there, or that others use by now, stay.
    assert_int_equal(mkdir(in(state, "a"), 0777), 0);
    assert_ok(token_writer_create(in(state, "a/b/c"), 256, 0, &w, &error));
    put_text(in(state, "a/b/other"), "x");
    token_writer_discard(w);
    assert_true(exists(in(state, "a/b/other")));
    assert_int_equal(count_entries(in(state, "a/b")), 1);
}

static void test_directories_made(void **state) {
    assert_ok(write_documents(in(state, "a/b/c"), 256, 0, (int[]){3}, 1, &error));
    assert_int_equal(count_entries(in(state, "a/b")), 3);
    put_text(in(state, "file"), "x");
    assert_refused(write_documents(in(state, "file/c"), 256, 0, (int[]){3}, 1, &error), TRIREME_ERROR_IO, "file/c");
}

static void test_overwriting(void **state) {
    // Its own files are replaced, an old manifest with them.
    assert_ok(write_documents(in(state, "t"), 256, 0, (int[]){3}, 1, &error));
    put_text(in(state, "t.json"), "{\"format\": \"trireme-tokens\"}");
    assert_ok(write_documents(in(state, "t.bin"), 256, 0, (int[]){5}, 1, &error));
    assert_false(exists(in(state, "t.json")));
    struct token_set *set;
    assert_ok(token_set_open(in(state, "t"), &set, &error));
    assert_int_equal(token_set_tokens(set), 5);
    token_set_close(set);
    // What a killed writer left is taken over.
    put_text(in(state, "t.bin.tmp"), "half of something longer than the new file");
    assert_ok(write_documents(in(state, "t"), 256, 0, (int[]){7}, 1, &error));
    assert_ok(token_set_open(in(state, "t"), &set, &error));
    assert_int_equal(token_set_tokens(set), 7);
    token_set_close(set);
    assert_int_equal(rename(in(state, "t.idx"), in(state, "t.idx.tmp")), 0); // killed before the last of its renames
    assert_ok(write_documents(in(state, "t"), 256, 0, (int[]){9}, 1, &error));
    assert_int_equal(count_entries(((struct folder *)*state)->path), 3);
    // Anything else stays.
    static const struct {
        const char *name, *content, *part;
    } foreign[] = {
        {"a.bin", "someone's program", "a.bin: is in the way"},
        {"b.idx", "someone's index", "b.idx: is in the way"},
        {"c.json", "{\"someone\": \"else\"}", "c.json: is in the way"},
        {"d.json", "not JSON", "d.json: is in the way"},
        {"f.sums", "{\"format\": \"sums\"}", "f.sums: is in the way"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(foreign); i++) {
        char prefix[2] = {foreign[i].name[0], 0};
        put_text(in(state, foreign[i].name), foreign[i].content);
        int before = count_entries(((struct folder *)*state)->path);
        assert_refused(write_documents(in(state, prefix), 256, 0, (int[]){3}, 1, &error), TRIREME_ERROR_USAGE,
                       foreign[i].part);
        size_t length;
        char *content = get(in(state, foreign[i].name), &length);
        assert_string_equal(content, foreign[i].content);
        free(content);
        assert_int_equal(count_entries(((struct folder *)*state)->path), before);
    }
    assert_int_equal(mkdir(in(state, "e.bin"), 0777), 0);
    assert_refused(write_documents(in(state, "e"), 256, 0, (int[]){3}, 1, &error), TRIREME_ERROR_USAGE, "in the way");
}

static bool keeps_tokenizer; // whether sets have one, whose only file holds the number of their tokens

// Writes one document of `count` tokens, all of which are `count`, and their manifest; `first` and `many` as above for
// the time when the files are put in place.
static trireme_status write_equal_failing(const char *prefix, int32_t count, int first, int many,
                                          trireme_error *error) {
    const struct token_manifest manifest = {
        .tokenizer_kind = "bytes", .vocab_size = 256, .tokens = count, .documents = 1};
    struct token_writer *w;
    TRY(token_writer_create(prefix, 256, 0, &w, error));
    for (int i = 0; i < count; i++)
        assert_int_equal(token_writer_add(w, &count, 1, error), TRIREME_OK);
    assert_int_equal(token_writer_end_document(w, error), TRIREME_OK);
    struct tokenizer_files files = {0};
    tokenizer_files_add(&files, "tokenizer.json", mem_printf("%d", count), 1);
    if (keeps_tokenizer)
        token_writer_keep(w, &files);
    failing = first;
    failures = many;
    trireme_status status = token_writer_finish(w, &manifest, error);
    tokenizer_files_release(&files);
    return status;
}

static trireme_status write_equal(const char *prefix, int32_t count, trireme_error *error) {
    return write_equal_failing(prefix, count, FAILS_NOT, 0, error);
}

// Which of these sets is there: whole, with its own manifest. 0: none is.
static int which_set(const char *prefix) {
    struct token_set *set;
    struct token_manifest manifest;
    int32_t tokens[16];
    bool found;
    if (token_set_open(prefix, &set, NULL) != TRIREME_OK)
        return 0;
    const int64_t count = token_set_tokens(set);
    assert_in_range(count, 1, 16);
    assert_ok(token_set_read(set, 0, count, 256, tokens, &error));
    for (int64_t i = 0; i < count; i++)
        assert_int_equal(tokens[i], count);
    assert_ok(token_manifest_read(prefix, count, &manifest, &found, &error));
    assert_true(found);
    token_set_close(set);
    if (keeps_tokenizer) {
        char *path = mem_printf("%s.tokenizer/tokenizer.json", prefix);
        size_t length;
        char *content = get(path, &length);
        assert_int_equal(atoi(content), count);
        free(content);
        free(path);
    }
    return (int)count;
}

enum { OLD = 5, NEW = 7 };

// Replaces the old set; the `first` renaming or removal fails, and `many` in all. Returns whether that many were made.
static bool replace_failing(const char *prefix, int first, int many, trireme_status *status) {
    trireme_error why;
    *status = write_equal_failing(prefix, NEW, first, many, &why);
    const bool made = failures < many;
    failing = FAILS_NOT;
    failures = 0;
    return made;
}

// Whichever renaming or removal fails, or is the last before the process is killed: the old set or the new one is
// there, and can be replaced.
static void test_failing_replacement(void **state) {
    const char *prefix = in(state, "t"), *path = ((struct folder *)*state)->path;
    trireme_status status;
    for (int kill = 0; kill < 2; kill++) {
        int first = 0, failed = 0;
        for (bool made = true; made; first++) {
            assert_ok(write_equal(prefix, OLD, &error));
            assert_int_equal(which_set(prefix), OLD);
            assert_int_equal(count_entries(path), 4);
            made = replace_failing(prefix, first, kill ? FAILS_ON : 1, &status);
            failed += status != TRIREME_OK;
            assert_int_equal(which_set(prefix), status == TRIREME_OK ? NEW : OLD);
            if (!kill && status != TRIREME_OK)
                assert_int_equal(count_entries(path), 4);
        }
        assert_int_equal(failed, 8);        // renamings
        assert_int_equal(first, 8 + 4 + 1); // and removals, which may fail, and none
    }
    // The same where there was no set before: the new one or none.
    static const char *const NAMES[] = {"t.bin", "t.sums", "t.json", "t.idx"};
    for (size_t i = 0; i < ARRAY_LENGTH(NAMES); i++)
        assert_int_equal(unlink(in(state, NAMES[i])), 0);
    for (int first = 0; first < 4; first++) {
        assert_true(replace_failing(prefix, first, 1, &status));
        assert_int_equal(status, TRIREME_ERROR_IO);
        assert_int_equal(count_entries(path), 0);
    }
}

// The same with a tokenizer, which is a directory; and a set without one takes the place of one that has it.
static void test_failing_replacement_of_tokenizer(void **state) {
    const char *prefix = in(state, "t"), *path = ((struct folder *)*state)->path;
    trireme_status status;
    keeps_tokenizer = true;
    for (int kill = 0; kill < 2; kill++) {
        int failed = 0, first = 0;
        for (bool made = true; made; first++) {
            assert_ok(write_equal(prefix, OLD, &error));
            assert_int_equal(which_set(prefix), OLD);
            assert_int_equal(count_entries(path), 5);
            made = replace_failing(prefix, first, kill ? FAILS_ON : 1, &status);
            failed += status != TRIREME_OK;
            assert_int_equal(which_set(prefix), status == TRIREME_OK ? NEW : OLD);
            if (!kill && status != TRIREME_OK)
                assert_int_equal(count_entries(path), 5);
        }
        assert_int_equal(failed, 10 + 1); // renamings of the set, and that of a file of the tokenizer
    }
    keeps_tokenizer = false;
    assert_ok(write_equal(prefix, OLD, &error));
    assert_int_equal(count_entries(path), 4);
    // What is not a tokenizer's directory stays.
    assert_int_equal(mkdir(in(state, "t.tokenizer"), 0777), 0);
    put_text(in(state, "t.tokenizer/notes.txt"), "mine");
    assert_refused(write_equal(prefix, NEW, &error), TRIREME_ERROR_USAGE, "t.tokenizer: is in the way");
    assert_true(exists(in(state, "t.tokenizer/notes.txt")));
    assert_int_equal(which_set(prefix), OLD);
}

// Wherever a machine stops, it leaves the old files, or no index and the old one beside it, or all new files.
static void test_order_on_the_disk(void **state) {
    const char *path = ((struct folder *)*state)->path;
    struct token_manifest manifest = {.tokenizer_kind = "bytes", .vocab_size = 256, .tokens = 1, .documents = 1};
    struct token_writer *w;
    struct text noted = {0};
    assert_ok(write_documents(in(state, "t"), 256, 0, (int[]){3}, 1, &error));
    assert_ok(token_writer_create(in(state, "t"), 256, 0, &w, &error));
    assert_ok(token_writer_add(w, &(int32_t){1}, 1, &error));
    assert_ok(token_writer_end_document(w, &error));
    calls = &noted;
    assert_ok(token_writer_finish(w, &manifest, &error));
    calls = NULL;
    char *expected = mem_printf("sync t.bin.tmp\nsync t.idx.tmp\nsync t.sums.tmp\nsync t.json.tmp\nname t.idx.old\n"
                                "name t.bin.old\nname t.bin\nname t.sums.old\nname t.sums\nname t.json\nname t.idx\n"
                                "sync %s\n"
                                "remove t.bin.old\nremove t.sums.old\nremove t.json.old\nremove t.idx.old\n",
                                strrchr(path, '/') + 1);
    assert_string_equal(noted.text, expected);
    free(expected);
    text_release(&noted);
}

static void test_two_writers(void **state) {
    struct token_writer *first, *second;
    assert_ok(token_writer_create(in(state, "t"), 256, 0, &first, &error));
    assert_refused(token_writer_create(in(state, "t"), 256, 0, &second, &error), TRIREME_ERROR_BUSY, "another process");
    assert_ok(token_writer_add(first, &(int32_t){1}, 1, &error));
    assert_ok(token_writer_end_document(first, &error));
    assert_ok(token_writer_finish(first, NULL, &error));
    assert_ok(write_documents(in(state, "t"), 256, 0, (int[]){2}, 1, &error));
}

// File systems of clusters that lock nothing.
static void test_no_locks(void **state) {
    static const int REASONS[] = {ENOSYS, ENOLCK, EOPNOTSUPP, EINVAL};
    for (size_t i = 0; i < ARRAY_LENGTH(REASONS); i++) {
        no_locks = REASONS[i];
        assert_ok(write_equal(in(state, "t"), 1 + (int32_t)i, &error));
        assert_int_equal(which_set(in(state, "t")), 1 + (int)i);
        // What was cut short is mended only by who is about to write: a reader cannot know.
        assert_int_equal(rename(in(state, "t.idx"), in(state, "t.idx.old")), 0);
        put_text(in(state, "t.idx.tmp"), "half");
        struct token_set *set;
        assert_refused(token_set_open(in(state, "t"), &set, &error), TRIREME_ERROR_BUSY, "or prepare again");
        assert_ok(write_equal(in(state, "t"), 9, &error));
        assert_int_equal(count_entries(((struct folder *)*state)->path), 4);
        assert_int_equal(which_set(in(state, "t")), 9);
        no_locks = 0;
    }
}

static const char *theirs;

static void finish_theirs(int file) {
    char *temporary = mem_printf("%s.tmp", theirs);
    assert_int_equal(write(file, "theirs", 6), 6);
    assert_int_equal(rename(temporary, theirs), 0);
    free(temporary);
}

// A writer that ends between another one's opening and locking of what was the same file.
static void test_two_writers_in_turn(void **state) {
    struct token_writer *w;
    size_t length;
    theirs = in(state, "t.bin");
    locks = finish_theirs;
    assert_ok(token_writer_create(in(state, "t"), 256, 0, &w, &error));
    char *content = get(theirs, &length);
    assert_int_equal(length, 6);
    assert_memory_equal(content, "theirs", 6);
    free(content);
    token_writer_discard(w);
    assert_int_equal(count_entries(((struct folder *)*state)->path), 1);
}

// Limits the size of files as a full disk would, at every place: the old files stay and nothing else is left.
static void test_disk_full(void **state) {
    const char *prefix = in(state, "t"), *path = ((struct folder *)*state)->path;
    assert_ok(write_documents(prefix, 256, 0, (int[]){11}, 1, &error));
    size_t bin_length, index_length;
    char *bin = get(in(state, "t.bin"), &bin_length), *index = get(in(state, "t.idx"), &index_length);
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    int lengths[40];
    for (size_t i = 0; i < ARRAY_LENGTH(lengths); i++)
        lengths[i] = 20; // 1600 bytes of tokens, 34 + 40 x 12 + 41 x 8 = 842 of index
    for (rlim_t bytes = 0; bytes < 1600; bytes += 33) {
        limit = (struct rlimit){.rlim_cur = bytes, .rlim_max = before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        trireme_error error = {0};
        trireme_status status = write_documents(prefix, 256, 0, lengths, ARRAY_LENGTH(lengths), &error);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(status, TRIREME_ERROR_IO);
        assert_non_null(strstr(error.message, "cannot write"));
        assert_int_equal(count_entries(path), 3);
        size_t length;
        char *again = get(in(state, "t.bin"), &length);
        assert_int_equal(length, bin_length);
        assert_memory_equal(again, bin, length);
        free(again);
        again = get(in(state, "t.idx"), &length);
        assert_int_equal(length, index_length);
        assert_memory_equal(again, index, length);
        free(again);
    }
    // Tokens fit, the index of many short documents does not.
    int *short_lengths = mem_alloc(100 * sizeof *short_lengths);
    for (int i = 0; i < 100; i++)
        short_lengths[i] = 1;
    for (rlim_t bytes = 200; bytes < 34 + 100 * 12 + 101 * 8; bytes += 61) {
        limit = (struct rlimit){.rlim_cur = bytes, .rlim_max = before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        trireme_error error = {0};
        trireme_status status = write_documents(prefix, 256, 0, short_lengths, 100, &error);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(status, TRIREME_ERROR_IO);
        assert_non_null(strstr(error.message, "t.idx.tmp: cannot write"));
        assert_int_equal(count_entries(path), 3);
    }
    free(short_lengths);
    free(bin);
    free(index);
}

static void test_file_that_cannot_be_emptied(void **state) {
    struct token_writer *w;
    no_file_is_emptied = true;
    assert_refused(token_writer_create(in(state, "c"), 256, 0, &w, &error), TRIREME_ERROR_IO, "cannot empty");
    no_file_is_emptied = false;
    assert_int_equal(count_entries(((struct folder *)*state)->path), 0);
}

// Tokens [begin, end): documents of two, three and forty tokens in turn, of which the last have several sequences.
static void write_range(struct token_writer *w, int begin, int end) {
    for (int i = begin; i < end; i++) {
        assert_ok(token_writer_add(w, &(int32_t){i % 60000}, 1, &error));
        if (i % 45 == 1 || i % 45 == 4 || i % 45 == 44)
            assert_ok(token_writer_end_document(w, &error));
    }
}

// A writer goes on from where another one saved, within a document too, whatever that one has written since.
static void test_going_on(void **state) {
    enum { COUNT = 45 * 30000 };
    static const char *const ENDINGS[] = {".bin", ".idx", ".sums"};
    static const int SAVES[] = {0, 30, 300000, 45 * 26000 + 7, COUNT};
    struct token_writer *w;
    json_t *position = json_pack("{s:i}", "at", 5), *found;
    assert_ok(token_writer_create(in(state, "whole"), 60000, 7, &w, &error));
    write_range(w, 0, COUNT);
    assert_ok(token_writer_finish(w, NULL, &error));
    for (size_t i = 0; i < ARRAY_LENGTH(SAVES); i++) {
        assert_ok(token_writer_go_on(in(state, "t"), 60000, 7, "some", &w, &found, &error));
        assert_null(found);
        write_range(w, 0, SAVES[i]);
        assert_ok(token_writer_save(w, "some", position, &error));
        write_range(w, SAVES[i], MIN(COUNT, SAVES[i] + (i == 1 ? 900000 : 100)));
        token_writer_leave(w);
        assert_ok(token_writer_go_on(in(state, "t"), 60000, 7, "some", &w, &found, &error));
        assert_true(json_equal(found, position));
        json_decref(found);
        assert_int_equal(token_writer_tokens(w), SAVES[i]);
        write_range(w, SAVES[i], COUNT);
        assert_ok(token_writer_finish(w, NULL, &error));
        for (size_t k = 0; k < ARRAY_LENGTH(ENDINGS); k++) {
            char *paths[] = {mem_printf("%s%s", in(state, "t"), ENDINGS[k]),
                             mem_printf("%s%s", in(state, "whole"), ENDINGS[k])};
            size_t lengths[2];
            char *bytes[] = {get(paths[0], &lengths[0]), get(paths[1], &lengths[1])};
            assert_int_equal(lengths[0], lengths[1]);
            assert_memory_equal(bytes[0], bytes[1], lengths[0]);
            for (int p = 0; p < 2; p++) {
                free(paths[p]);
                free(bytes[p]);
            }
        }
        assert_int_equal(count_entries(((struct folder *)*state)->path), 6);
    }
    // Of another text nothing is used.
    assert_ok(token_writer_go_on(in(state, "t"), 60000, 7, "some", &w, &found, &error));
    write_range(w, 0, 45);
    assert_ok(token_writer_save(w, "some", position, &error));
    token_writer_leave(w);
    assert_ok(token_writer_go_on(in(state, "t"), 60000, 7, "other", &w, &found, &error));
    assert_null(found);
    assert_int_equal(token_writer_tokens(w), 0);
    token_writer_discard(w);
    assert_int_equal(count_entries(((struct folder *)*state)->path), 6);
    json_decref(position);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_setup, folder_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_no_documents),
        TEST(test_discard),
        TEST(test_directories_made),
        TEST(test_overwriting),
        TEST(test_failing_replacement),
        TEST(test_failing_replacement_of_tokenizer),
        TEST(test_order_on_the_disk),
        TEST(test_two_writers),
        TEST(test_two_writers_in_turn),
        TEST(test_disk_full),
        TEST(test_no_locks),
        TEST(test_file_that_cannot_be_emptied),
        TEST(test_going_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
