// Files and directories: src/base/, and what is written in pieces (ckpt/output.h).
#include "base/text.h"
#include "ckpt/output.h"

#include "support/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void assert_content(const char *path, const char *expected) {
    char *bytes;
    size_t length;
    assert_int_equal(file_read(path, 1 << 20, &bytes, &length, NULL), TRIREME_OK);
    assert_int_equal(length, strlen(expected));
    assert_string_equal(bytes, expected);
    free(bytes);
}

static void file_read_gives_what_was_written(void **state) {
    char *path = mem_printf("%s/file", (char *)*state);
    assert_int_equal(file_write_atomic(path, "some\0bytes", 10, NULL), TRIREME_OK);
    char *bytes;
    size_t length;
    assert_int_equal(file_read(path, 10, &bytes, &length, NULL), TRIREME_OK);
    assert_int_equal(length, 10);
    assert_memory_equal(bytes, "some\0bytes", 11);
    free(bytes);

    size_t large = 300001;
    char *content = mem_alloc(large);
    for (size_t i = 0; i < large; i++)
        content[i] = (char)(i * 2654435761u >> 13);
    assert_int_equal(file_write_atomic(path, content, large, NULL), TRIREME_OK);
    assert_int_equal(file_read(path, SIZE_MAX / 4, &bytes, &length, NULL), TRIREME_OK);
    assert_int_equal(length, large);
    assert_memory_equal(bytes, content, large);
    free(bytes);
    free(content);

    assert_int_equal(file_write_atomic(path, "", 0, NULL), TRIREME_OK);
    assert_content(path, "");
    free(path);
}

static void file_read_reads_what_has_no_size(void **state) {
    (void)state;
    char *bytes;
    size_t length;
    assert_int_equal(file_read("/proc/self/status", 1 << 20, &bytes, &length, NULL), TRIREME_OK);
    assert_true(length > 100);
    assert_non_null(strstr(bytes, "Name:"));
    free(bytes);

    // More than the first guess, under the largest limit there is.
    enum { LARGE = 20000 };
    int ends[2];
    char content[LARGE];
    memset(content, 'x', LARGE);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(file_write(ends[1], content, LARGE), LARGE);
    close(ends[1]);
    char *path = mem_printf("/dev/fd/%d", ends[0]);
    assert_int_equal(file_read(path, SIZE_MAX, &bytes, &length, NULL), TRIREME_OK);
    assert_int_equal(length, LARGE);
    assert_memory_equal(bytes, content, LARGE);
    close(ends[0]);
    free(path);
    free(bytes);
}

static void file_read_refuses(void **state) {
    char *path = mem_printf("%s/file", (char *)*state), *bytes = "untouched";
    size_t length = 99;
    trireme_error error = {0};
    assert_int_equal(file_read(path, 10, &bytes, &length, &error), TRIREME_ERROR_IO);
    assert_non_null(strstr(error.message, path));
    assert_non_null(strstr(error.message, "No such file"));

    assert_int_equal(file_read(*state, 10, &bytes, &length, &error), TRIREME_ERROR_IO);
    assert_non_null(strstr(error.message, "directory"));

    assert_int_equal(file_write_atomic(path, "12345678901", 11, NULL), TRIREME_OK);
    assert_int_equal(file_read(path, 10, &bytes, &length, &error), TRIREME_ERROR_CORRUPT);
    assert_non_null(strstr(error.message, "10 bytes"));
    // A file without a size is bounded too.
    assert_int_equal(file_read("/dev/zero", 100000, &bytes, &length, &error), TRIREME_ERROR_CORRUPT);
    assert_string_equal(bytes, "untouched");
    assert_int_equal(length, 99);
    free(path);
}

static void file_write_replaces_and_leaves_nothing_else(void **state) {
    char *path = mem_printf("%s/file", (char *)*state), *temporary = mem_printf("%s.tmp", path);
    assert_int_equal(file_write_atomic(path, "old", 3, NULL), TRIREME_OK);
    assert_int_equal(file_write_atomic(path, "newer", 5, NULL), TRIREME_OK);
    assert_content(path, "newer");
    assert_false(path_exists(temporary));

    // A leftover of a killed writer that is longer than the new content does no harm.
    int file = open(temporary, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(file, "leftover", 8), 8);
    close(file);
    assert_int_equal(file_write_atomic(path, "new", 3, NULL), TRIREME_OK);
    assert_content(path, "new");
    assert_false(path_exists(temporary));
    free(temporary);
    free(path);
}

// A relative path without a slash: its directory, which is synced, is the working directory.
static void file_write_in_the_working_directory(void **state) {
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(*state), 0);
    assert_int_equal(file_write_atomic("bare", "x", 1, NULL), TRIREME_OK);
    assert_content("bare", "x");
    assert_int_equal(chdir(before), 0);
}

// The size limit of files stands for a disk that fills up after some bytes; it would last, hence the child process.
static void file_write_keeps_the_old_file_when_the_disk_fills(void **state) {
    char *path = mem_printf("%s/file", (char *)*state), *temporary = mem_printf("%s.tmp", path);
    assert_int_equal(file_write_atomic(path, "old", 3, NULL), TRIREME_OK);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){1000, 1000});
        char content[5000] = {1};
        trireme_error error = {0};
        trireme_status status = file_write_atomic(path, content, sizeof content, &error);
        _exit(status != TRIREME_ERROR_IO ? 1 : !strstr(error.message, "at byte 1000 of 5000") ? 2 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_content(path, "old");
    assert_false(path_exists(temporary));
    free(temporary);
    free(path);
}

static void file_write_fails_cleanly(void **state) {
    char *path = mem_printf("%s/file", (char *)*state), *temporary = mem_printf("%s.tmp", path);
    char *inside = mem_printf("%s/inside", path);
    trireme_error error = {0};

    // The temporary name is taken by a directory.
    assert_int_equal(file_write_atomic(path, "old", 3, NULL), TRIREME_OK);
    assert_int_equal(mkdir(temporary, 0700), 0);
    assert_int_equal(file_write_atomic(path, "new", 3, &error), TRIREME_ERROR_IO);
    assert_non_null(strstr(error.message, temporary));
    assert_content(path, "old");
    assert_int_equal(rmdir(temporary), 0);

    // The last name is: the rename fails after everything was written.
    assert_int_equal(unlink(path), 0);
    assert_int_equal(directory_create(inside, NULL), TRIREME_OK);
    assert_int_equal(file_write_atomic(path, "new", 3, &error), TRIREME_ERROR_IO);
    assert_non_null(strstr(error.message, "rename"));
    assert_true(path_exists(inside));
    assert_false(path_exists(temporary));

    // No such directory.
    char *nowhere = mem_printf("%s/no/such/file", (char *)*state);
    assert_int_equal(file_write_atomic(nowhere, "new", 3, &error), TRIREME_ERROR_IO);
    free(nowhere);
    free(inside);
    free(temporary);
    free(path);
}

static bool nothing_is_synced;

int fsync(int file) {
    if (!nothing_is_synced)
        return (int)syscall(SYS_fsync, file);
    errno = EIO;
    return -1;
}

// What is not known to be on the disk replaces nothing.
static void file_write_keeps_the_old_file_when_the_disk_fails(void **state) {
    char *path = mem_printf("%s/file", (char *)*state), *temporary = mem_printf("%s.tmp", path);
    trireme_error error = {0};
    assert_int_equal(file_write_atomic(path, "old", 3, NULL), TRIREME_OK);
    nothing_is_synced = true;
    trireme_status status = file_write_atomic(path, "new", 3, &error);
    nothing_is_synced = false;
    assert_refused(status, TRIREME_ERROR_IO, &error, "cannot sync");
    assert_content(path, "old");
    assert_false(path_exists(temporary));
    free(temporary);
    free(path);
}

// The temporary name may be somebody's link, or another name of a file: neither is written through.
static void file_write_follows_no_link(void **state) {
    char *path = mem_printf("%s/file", (char *)*state), *temporary = mem_printf("%s.tmp", path);
    char *victim = mem_printf("%s/victim", (char *)*state);
    assert_int_equal(file_write_atomic(victim, "mine", 4, NULL), TRIREME_OK);
    for (int hard = 0; hard < 2; hard++) {
        assert_int_equal(hard ? link(victim, temporary) : symlink(victim, temporary), 0);
        assert_int_equal(file_write_atomic(path, "new", 3, NULL), TRIREME_OK);
        assert_content(victim, "mine");
        assert_content(path, "new");
        assert_false(path_exists(temporary));
    }
    free(victim);
    free(temporary);
    free(path);
}

static void directory_create_makes_parents(void **state) {
    const char *forms[] = {"%s/a/b/c", "%s/d/", "%s//e//f//", "%s", "/", "%s/a/./../g"};
    for (size_t i = 0; i < ARRAY_LENGTH(forms); i++) {
        struct text path = {0};
        const char *hole = strstr(forms[i], "%s");
        text_add(&path, "%s%s", hole ? (char *)*state : forms[i], hole ? forms[i] + 2 : "");
        for (int twice = 0; twice < 2; twice++)
            assert_int_equal(directory_create(path.text, NULL), TRIREME_OK);
        struct stat info;
        assert_int_equal(stat(path.text, &info), 0);
        assert_true(S_ISDIR(info.st_mode));
        text_release(&path);
    }
}

static void directory_create_refuses(void **state) {
    char *file = mem_printf("%s/file", (char *)*state), *below = mem_printf("%s/below/it", file);
    char *link = mem_printf("%s/link", (char *)*state);
    trireme_error error = {0};
    assert_int_equal(file_write_atomic(file, "x", 1, NULL), TRIREME_OK);
    assert_int_equal(directory_create(file, &error), TRIREME_ERROR_IO);
    assert_non_null(strstr(error.message, "a file of that name"));
    assert_int_equal(directory_create(below, &error), TRIREME_ERROR_IO);
    assert_non_null(strstr(error.message, file));
    assert_int_equal(directory_create("", &error), TRIREME_ERROR_USAGE);
    assert_content(file, "x");
    assert_int_equal(symlink("link", link), 0);
    assert_int_equal(directory_create(link, &error), TRIREME_ERROR_IO);
    assert_non_null(strstr(error.message, strerror(ELOOP)));
    free(link);
    free(below);
    free(file);
}

// Pieces that fill the buffer, or all but a byte of it, or more.
static void output_keeps_the_order(void **state) {
    enum { BUFFER = 65536, MOST = 4 * BUFFER };
    static const size_t SIZES[] = {1, 2, BUFFER - 2, BUFFER - 1, BUFFER, BUFFER + 1};
    char *content = mem_alloc(MOST), *read, *path = mem_printf("%s/pieces", (char *)*state);
    for (size_t i = 0; i < MOST; i++)
        content[i] = (char)(i * 2654435761u >> 13);
    for (size_t first = 0; first < ARRAY_LENGTH(SIZES); first++)
        for (size_t second = 0; second < ARRAY_LENGTH(SIZES); second++) {
            const size_t piece[] = {SIZES[first], SIZES[second], 3};
            struct output *o;
            struct checksum_file file = {0};
            trireme_error error = {0};
            size_t bytes = 0, length;
            assert_ok(output_create(*state, "pieces", 0, &o, &error), &error);
            for (size_t i = 0; i < ARRAY_LENGTH(piece); bytes += piece[i++])
                assert_ok(output_add(o, content + bytes, piece[i], &error), &error);
            assert_ok(output_finish(o, &file, &error), &error);
            assert_ok(file_read(path, MOST, &read, &length, &error), &error);
            assert_true(file.bytes == bytes && length == bytes);
            assert_memory_equal(read, content, bytes);
            free(read);
            checksum_file_release(&file);
        }
    free(path);
    free(content);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(file_read_gives_what_was_written),
        cmocka_unit_test(file_read_reads_what_has_no_size),
        IN_FOLDER(file_read_refuses),
        IN_FOLDER(file_write_replaces_and_leaves_nothing_else),
        IN_FOLDER(file_write_in_the_working_directory),
        IN_FOLDER(file_write_keeps_the_old_file_when_the_disk_fills),
        IN_FOLDER(file_write_keeps_the_old_file_when_the_disk_fails),
        IN_FOLDER(file_write_fails_cleanly),
        IN_FOLDER(file_write_follows_no_link),
        IN_FOLDER(directory_create_makes_parents),
        IN_FOLDER(directory_create_refuses),
        IN_FOLDER(output_keeps_the_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
