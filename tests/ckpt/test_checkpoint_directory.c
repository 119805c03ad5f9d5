// ckpt/directory.h: saving, replacing, finding. test_checkpoint_faults.c has crashes and failures.
#include "base/text.h"
#include "ckpt/tree.h"
#include "support/checkpoint.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_spare(const char *name) {
    return strcmp(name, "a.txt") == 0;
}

static void test_saves(void **state) {
    const char *folder = *state, *path = path_in(folder, "new/checkpoint/step-100");
    trireme_error error = {0};
    assert_refused(directory_verify(path, MANIFEST_CONTENT, NULL, &error), TRIREME_ERROR_IO, &error,
                   "step-100: cannot open");
    assert_ok(sample_save(path, 7, DIRECTORY_REFUSE, &error), &error);
    assert_ok(directory_verify(path, MANIFEST_CONTENT, NULL, &error), &error);
    assert_int_equal(sample_version(path), 7);
    // A spare file may be missing, but must be whole where it is not.
    const struct manifest_check without = {.content = true, .spare = is_spare};
    assert_ok(directory_verify(path, without, NULL, &error), &error);
    path_flip_bit(path_in(path, "a.txt"), 0, 0);
    assert_refused(directory_verify(path, without, NULL, &error), TRIREME_ERROR_CORRUPT, &error, "a.txt: content");
    assert_int_equal(unlink(path_in(path, "a.txt")), 0);
    assert_ok(directory_verify(path, without, NULL, &error), &error);
    assert_refused(directory_verify(path, MANIFEST_SIZES, NULL, &error), TRIREME_ERROR_CORRUPT, &error, "a.txt: mis");
    assert_ok(sample_save(path, 7, DIRECTORY_REFUSE, &error), &error);
    assert_int_equal(folder_count(path_in(folder, "new/checkpoint")), 1);
    assert_true(directory_is_ours(path, &error));

    struct manifest m = {0};
    assert_ok(manifest_read(path, &m, &error), &error);
    assert_int_equal(m.file.count, 5);
    assert_string_equal(m.file.item[0].name, "a.txt");
    assert_string_equal(manifest_find(&m, "below/b.txt")->hex, manifest_find(&m, "a.txt")->hex);
    assert_int_equal(manifest_find(&m, "below/b.txt")->bytes, 1);
    const struct checksum_file *second = manifest_find(&m, "model-00002-of-00002.safetensors");
    assert_int_equal(second->block.count, (second->bytes + SAMPLE_BLOCK_BYTES - 1) / SAMPLE_BLOCK_BYTES);
    assert_null(manifest_find(&m, "nothing"));
    manifest_release(&m);
}

static void test_path_forms(void **state) {
    trireme_error error = {0};
    struct directory *d = NULL;
    static const char *const BAD[] = {"", "/", "a/..", ".", "..", "a/./"};
    for (size_t i = 0; i < ARRAY_LENGTH(BAD); i++)
        assert_refused(directory_begin(BAD[i], DIRECTORY_REFUSE, &d, &error), TRIREME_ERROR_USAGE, &error,
                       "needs a name of its own");
    assert_int_equal(chdir(*state), 0);
    assert_ok(sample_save("plain", 1, DIRECTORY_REFUSE, &error), &error);
    assert_ok(sample_save("below//slashes//", 2, DIRECTORY_REFUSE, &error), &error);
    assert_int_equal(sample_version("plain"), 1);
    assert_int_equal(sample_version("below/slashes"), 2);
    assert_int_equal(chdir("/"), 0);
}

static void test_abort_leaves_nothing(void **state) {
    const char *folder = *state;
    trireme_error error = {0};
    struct directory *d = NULL;
    assert_sample_saved(path_in(folder, "step-1"), 1);
    assert_ok(directory_begin(path_in(folder, "step-1"), DIRECTORY_REFUSE, &d, &error), &error);
    assert_int_equal(mkdir(path_in(directory_path(d), "deep"), 0700), 0);
    path_write(path_in(directory_path(d), "deep/file"), "x");
    assert_int_equal(symlink("/", path_in(directory_path(d), "link")), 0);
    assert_int_equal(folder_count(folder), 2);
    directory_abort(d);
    directory_abort(NULL);
    assert_int_equal(folder_count(folder), 1);
    assert_int_equal(sample_version(path_in(folder, "step-1")), 1);
}

static void test_replaces_only_ours(void **state) {
    const char *folder = *state, *path = path_in(folder, "out");
    trireme_error error = {0};
    assert_int_equal(mkdir(path, 0700), 0);
    assert_ok(sample_save(path, 1, DIRECTORY_REFUSE, &error), &error);
    assert_ok(sample_save(path, 2, DIRECTORY_REFUSE, &error), &error);
    assert_int_equal(sample_version(path), 2);
    assert_ok(sample_save(path, 1, DIRECTORY_SET_ASIDE, &error), &error);
    assert_int_equal(sample_version(path), 1);
    assert_int_equal(folder_count(folder), 1);

    // A file of the user's inside.
    path_write(path_in(path, "below/notes"), "mine");
    assert_false(directory_is_ours(path, &error));
    assert_says(error.message, "/out: holds below/notes, which Trireme did not write");
    assert_refused(sample_save(path, 3, DIRECTORY_REFUSE, &error), TRIREME_ERROR_USAGE, &error,
                   "/out: will not be replaced (");
    struct directory *d = NULL; // before anything is written, not only at the end
    assert_refused(directory_begin(path, DIRECTORY_REFUSE, &d, &error), TRIREME_ERROR_USAGE, &error,
                   "/out: will not be replaced (");
    assert_int_equal(sample_version(path), 1);
    assert_int_equal(folder_count(folder), 1);
    assert_ok(sample_save(path, 3, DIRECTORY_SET_ASIDE, &error), &error);
    assert_int_equal(sample_version(path), 3);
    assert_int_equal(sample_version(path_in(folder, "out.aside-1")), 1);
    assert_true(path_exists(path_in(folder, "out.aside-1/below/notes")));

    // Anything else under the name.
    assert_int_equal(unlink(path_in(path, "manifest.json")), 0);
    assert_refused(sample_save(path, 4, DIRECTORY_REFUSE, &error), TRIREME_ERROR_USAGE, &error, "no manifest.json");
    assert_ok(sample_save(path, 4, DIRECTORY_SET_ASIDE, &error), &error);
    assert_int_equal(sample_version(path_in(folder, "out.aside-2")), 3);
    path_write(path_in(folder, "file"), "mine");
    assert_refused(sample_save(path_in(folder, "file"), 4, DIRECTORY_REFUSE, &error), TRIREME_ERROR_USAGE, &error,
                   "not a directory");
    assert_ok(sample_save(path_in(folder, "file"), 4, DIRECTORY_SET_ASIDE, &error), &error);
    assert_true(path_exists(path_in(folder, "file.aside-1")));
    assert_int_equal(symlink("out", path_in(folder, "link")), 0);
    assert_refused(sample_save(path_in(folder, "link"), 4, DIRECTORY_REFUSE, &error), TRIREME_ERROR_USAGE, &error,
                   "not a directory");
    assert_int_equal(sample_version(path), 4);

    // A name that is taken between begin and commit.
    assert_ok(directory_begin(path_in(folder, "late"), DIRECTORY_REFUSE, &d, &error), &error);
    assert_int_equal(mkdir(path_in(folder, "late"), 0700), 0);
    path_write(path_in(folder, "late/notes"), "mine");
    size_t entries = folder_count(folder);
    assert_refused(directory_commit(d, &error), TRIREME_ERROR_USAGE, &error, "/late: will not be replaced");
    assert_true(path_exists(path_in(folder, "late/notes")));
    assert_int_equal(folder_count(folder), entries - 1);
}

static void commit_refused(const char *path, struct directory *d, trireme_status status, const char *part) {
    trireme_error error = {0};
    assert_refused(directory_commit(d, &error), status, &error, part);
    assert_false(path_exists(path));
}

static void test_commit_refuses(void **state) {
    const char *folder = *state, *path = path_in(folder, "step-1");
    trireme_error error = {0};
    struct directory *d = NULL;
    assert_ok(directory_begin(path, DIRECTORY_REFUSE, &d, &error), &error);
    path_write(path_in(directory_path(d), "manifest.json"), "{}");
    commit_refused(path, d, TRIREME_ERROR_USAGE, "manifest.json: the name is taken");

    assert_ok(directory_begin(path, DIRECTORY_REFUSE, &d, &error), &error);
    assert_int_equal(symlink("/etc/passwd", path_in(directory_path(d), "link")), 0);
    commit_refused(path, d, TRIREME_ERROR_USAGE, "link: neither a file nor a directory");

    for (int longer = 0; longer < 2; longer++) {
        assert_ok(directory_begin(path, DIRECTORY_REFUSE, &d, &error), &error);
        assert_ok(sample_write(d, directory_path(d), "a", "abc", true, &error), &error);
        path_write(path_in(directory_path(d), "a"), longer ? "abcd" : "ab");
        commit_refused(path, d, TRIREME_ERROR_IO,
                       longer ? "/a: changed while it was saved: 4 bytes, 3 were written"
                              : "/a: changed while it was saved: 2 bytes, 3 were written");
    }

    assert_ok(directory_begin(path, DIRECTORY_REFUSE, &d, &error), &error);
    assert_ok(sample_write(d, directory_path(d), "a", "abc", true, &error), &error);
    assert_int_equal(unlink(path_in(directory_path(d), "a")), 0);
    commit_refused(path, d, TRIREME_ERROR_IO, "1 files were written, 0 are there");
    assert_int_equal(folder_count(folder), 0);

    // Recorded twice: the last counts.
    assert_ok(directory_begin(path, DIRECTORY_REFUSE, &d, &error), &error);
    assert_ok(sample_write(d, directory_path(d), "a", "abc", true, &error), &error);
    assert_ok(sample_write(d, directory_path(d), "a", "abcd", true, &error), &error);
    assert_ok(directory_commit(d, &error), &error);
    assert_ok(directory_verify(path, MANIFEST_CONTENT, NULL, &error), &error);
}

// Damages step-N, a copy of step-1, in another way for each N.
static void damage(const char *folder, int kind) {
    const char *path = path_in(folder, "step-9");
    assert_sample_saved(path, 1);
    switch (kind) {
    case 0:
        assert_int_equal(unlink(path_in(path, "manifest.json")), 0);
        break;
    case 1:
        assert_int_equal(truncate(path_in(path, "manifest.json"), 100), 0);
        break;
    case 2:
        assert_int_equal(unlink(path_in(path, "below/b.txt")), 0);
        break;
    case 3:
        path_write(path_in(path, "a.txt"), "12");
        break;
    case 4:
        assert_int_equal(truncate(path_in(path, "model-00002-of-00002.safetensors"), 70), 0);
        break;
    case 5:
        path_flip_bit(path_in(path, "a.txt"), 0, 0);
        break;
    case 6:
        path_flip_bit(path_in(path, "model-00001-of-00002.safetensors"), 8, 0);
        break;
    case 7: {
        struct stat st;
        assert_int_equal(stat(path_in(path, "model-00001-of-00002.safetensors"), &st), 0);
        path_flip_bit(path_in(path, "model-00001-of-00002.safetensors"), st.st_size - 1, 0);
        break;
    }
    case 8:
        assert_int_equal(unlink(path_in(path, "a.txt")), 0);
        assert_int_equal(mkdir(path_in(path, "a.txt"), 0700), 0);
        break;
    case 9:
        assert_int_equal(truncate(path_in(path, "model-00002-of-00002.safetensors"), 72), 0);
        break;
    default:
        assert_ok(tree_remove(path, NULL), NULL);
        path_write(path, "a file");
        break;
    }
}

static void test_newest_skips_damaged(void **state) {
    const char *folder = *state;
    static const char *const REASON[] = {
        "/step-9: no manifest.json",
        "/step-9/manifest.json: line ",
        "/step-9/below/b.txt: missing, expected 1 bytes",
        "/step-9/a.txt: longer than it was written: 2 bytes, expected 1",
        "-00002.safetensors: truncated: header takes ",
        "/step-9/a.txt: content is damaged: BLAKE2b expected ",
        "/step-9/model-00001-of-00002.safetensors: bytes 0 to 40 are damaged: XXH3 expected ",
        "/step-9/model-00001-of-00002.safetensors: bytes 80 to 84, tensor \"one\", are damaged: XXH3 expected ",
        "/step-9/a.txt: not a regular file",
        "-00002.safetensors: truncated: tensor \"two\": ends at byte 84 of the file, which has only 72",
        "/step-9: not a directory",
    };
    trireme_error error = {0};
    struct directory_search found = {0};
    assert_ok(directory_newest(path_in(folder, "missing"), MANIFEST_CONTENT, NULL, &found, &error), &error);
    assert_null(found.path);
    assert_sample_saved(path_in(folder, "step-1"), 1);
    for (int kind = 0; kind < (int)ARRAY_LENGTH(REASON); kind++) {
        damage(folder, kind);
        bool content = kind >= 5 && kind <= 7;
        for (int i = 0; i < 2; i++) {
            struct manifest_check check = i ? MANIFEST_CONTENT : MANIFEST_SIZES;
            assert_ok(directory_newest(folder, check, NULL, &found, &error), &error);
            bool seen = !content || check.content;
            assert_int_equal(found.number, seen ? 1 : 9);
            assert_int_equal(found.skipped.count, seen);
            assert_string_equal(found.path, path_in(folder, seen ? "step-1" : "step-9"));
            if (seen) {
                assert_string_equal(found.skipped.item[0].path, path_in(folder, "step-9"));
                assert_says(found.skipped.item[0].reason, REASON[kind]);
                int lock = open(path_in(folder, "step-9"), O_RDONLY);
                assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), 0); // it is held no more
                close(lock);
            }
            alarm(20); // what one reads another can hold too, without waiting
            int too = directory_hold(found.path);
            assert_true(too >= 0);
            directory_let_go(too);
            alarm(0);
            directory_search_release(&found);
        }
        // A damaged directory is not in the way of a new one.
        assert_sample_saved(path_in(folder, "step-9"), 2);
        assert_ok(tree_remove(path_in(folder, "step-9"), NULL), NULL);
    }
    // A directory that cannot be read may be whole.
    assert_int_equal(symlink("nowhere", path_in(folder, "step-9")), 0);
    assert_int_equal(directory_newest(folder, MANIFEST_SIZES, NULL, &found, &error), TRIREME_ERROR_IO);
    assert_null(found.path);
    assert_says(error.message, "/step-9: cannot open: No such file or directory: try again");
    assert_int_equal(unlink(path_in(folder, "step-9")), 0);
    assert_sample_saved(path_in(folder, "step-9"), 1);
    assert_int_equal(unlink(path_in(folder, "step-9/a.txt")), 0);
    assert_int_equal(symlink("a.txt", path_in(folder, "step-9/a.txt")), 0);
    assert_int_equal(directory_newest(folder, MANIFEST_SIZES, NULL, &found, &error), TRIREME_ERROR_IO);
    assert_says(error.message, "/step-9/a.txt: cannot open: Too many levels of symbolic links: try again");
}

static void count_file(void *user) {
    ++*(int *)user;
}

static trireme_status verify_watched(void *user, const char *path, struct manifest_check check, trireme_error *error) {
    return directory_verify(path, check, user, error);
}

static void test_newest_reads_numbers(void **state) {
    const char *folder = *state;
    trireme_error error = {0};
    struct directory_search found = {0};
    assert_sample_saved(path_in(folder, "step-9"), 9);
    assert_sample_saved(path_in(folder, "step-10"), 10);
    assert_sample_saved(path_in(folder, "step-0000000000011"), 11);
    assert_sample_saved(path_in(folder, "step-"), 1);
    assert_sample_saved(path_in(folder, "step-99x"), 1);
    assert_sample_saved(path_in(folder, "step--99"), 1);
    assert_sample_saved(path_in(folder, "steps-99"), 1);
    assert_sample_saved(path_in(folder, "step-9999999999999999999"), 1);
    assert_sample_saved(path_in(folder, ".tmp-step-99-999999999"), 1);
    assert_ok(directory_newest(folder, MANIFEST_CONTENT, NULL, &found, &error), &error);
    assert_int_equal(found.number, 11);
    assert_string_equal(found.path, path_in(folder, "step-0000000000011"));
    assert_int_equal(found.skipped.count, 0);
    directory_search_release(&found);
    // The watch is told of each file that is read: all files here, none where sizes are enough.
    for (int i = 0; i < 2; i++) {
        int files = 0;
        const struct checksum_watch watch = {count_file, &files};
        const struct manifest_check check = i ? MANIFEST_CONTENT : MANIFEST_SIZES;
        const struct directory_verifier verifier = {verify_watched, (void *)&watch};
        assert_ok(directory_newest(folder, check, &verifier, &found, &error), &error);
        struct manifest manifest = {0};
        assert_ok(manifest_read(found.path, &manifest, &error), &error);
        assert_true(manifest.file.count > 1);
        assert_int_equal(files, i ? manifest.file.count : 0);
        manifest_release(&manifest);
        directory_search_release(&found);
    }
    assert_int_equal(directory_before(folder, INT64_MAX), 11);
    assert_int_equal(directory_before(folder, 11), 10);
    assert_int_equal(truncate(path_in(folder, "step-10/below/b.txt"), 0), 0);
    assert_int_equal(directory_before(folder, 11), 9);
    assert_int_equal(directory_before(folder, 9), -1);
    assert_int_equal(directory_before(path_in(folder, "missing"), 9), -1);
    path_write(path_in(folder, "file"), "");
    assert_refused(directory_newest(path_in(folder, "file"), MANIFEST_SIZES, NULL, &found, &error), TRIREME_ERROR_IO,
                   &error, "cannot list");
}

// A large file takes long to read: the watch is told of every 64 MiB.
static void test_large_files_are_told_of(void **state) {
    const char *path = path_in(*state, "step-1");
    trireme_error error = {0};
    struct directory *d = NULL;
    int times = 0;
    const struct checksum_watch watch = {count_file, &times};
    assert_ok(directory_begin(path, DIRECTORY_REFUSE, &d, &error), &error);
    path_write(path_in(directory_path(d), "large"), "");
    assert_int_equal(truncate(path_in(directory_path(d), "large"), (1 << 26) + 1), 0);
    assert_ok(directory_commit(d, &error), &error);
    assert_ok(directory_verify(path, MANIFEST_CONTENT, &watch, &error), &error);
    assert_int_equal(times, 2);
}

static void test_sweeps_the_dead_only(void **state) {
    const char *folder = *state;
    trireme_error error = {0};
    struct directory *mine = NULL, *other = NULL;
    char name[64];
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) { // lives in the middle of a save
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct directory *d = NULL;
        char ok = directory_begin(path_in(folder, "step-5"), DIRECTORY_REFUSE, &d, NULL) == TRIREME_OK;
        if (write(ready[1], &ok, 1) == 1)
            pause();
        _exit(0);
    }
    char ok = 0;
    assert_int_equal(read(ready[0], &ok, 1), 1);
    assert_true(ok);
    pid_t dead = fork();
    if (!dead)
        _exit(0);
    assert_int_equal(waitpid(dead, NULL, 0), dead);

    assert_sample_saved(path_in(folder, "step-4"), 1); // so that nothing takes its name back

    static const char *const GONE[] = {".tmp-step-3-%d", ".tmp-step--%d", ".old-step-4-%d"};
    static const char *const STAYS[] = {".tmp-other-3-%d", ".tmp-step-x-%d", ".tmp-step-3-%dx",
                                        ".tmp-step-3",     ".tmp-step-3.%d", "tmp-step-3-%d"};
    for (size_t i = 0; i < ARRAY_LENGTH(GONE); i++) {
        snprintf(name, sizeof name, GONE[i], (int)dead);
        assert_int_equal(mkdir(path_in(folder, name), 0700), 0);
        path_write(path_in(path_in(folder, name), "half"), "x");
    }
    for (size_t i = 0; i < ARRAY_LENGTH(STAYS); i++) {
        snprintf(name, sizeof name, STAYS[i], (int)dead);
        assert_int_equal(mkdir(path_in(folder, name), 0700), 0);
    }
    // The number of this process, as a dead one in another container may have had it, and one that is somebody's again.
    const pid_t again_alive[] = {getpid(), child};
    for (size_t i = 0; i < ARRAY_LENGTH(again_alive); i++) {
        snprintf(name, sizeof name, ".tmp-step-6-%d", (int)again_alive[i]);
        assert_int_equal(mkdir(path_in(folder, name), 0700), 0);
    }

    // Who only looks for the newest deletes nothing.
    struct directory_search found = {0};
    const size_t before = folder_count(folder);
    assert_ok(directory_newest(folder, MANIFEST_SIZES, NULL, &found, &error), &error);
    directory_search_release(&found);
    assert_int_equal(folder_count(folder), before);

    assert_ok(directory_begin(path_in(folder, "step-7"), DIRECTORY_REFUSE, &mine, &error), &error);
    assert_ok(directory_begin(path_in(folder, "step-8"), DIRECTORY_REFUSE, &other, &error), &error);
    struct directory *again = NULL;
    assert_refused(directory_begin(path_in(folder, "step-8"), DIRECTORY_REFUSE, &again, &error), TRIREME_ERROR_BUSY,
                   &error, "already");
    assert_true(path_exists(directory_path(mine)) && path_exists(directory_path(other)));
    snprintf(name, sizeof name, ".tmp-step-5-%d", (int)child);
    assert_true(path_exists(path_in(folder, name)));
    assert_int_equal(folder_count(folder), 1 + 1 + 2 + ARRAY_LENGTH(STAYS));
    assert_ok(directory_commit(mine, &error), &error);
    directory_abort(other);

    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_sample_saved(path_in(folder, "step-9"), 1);
    assert_false(path_exists(path_in(folder, name)));
    close(ready[0]);
    close(ready[1]);
}

// Makes what a crash leaves behind in the middle of a replacement on a file system that cannot swap names.
static void test_newest_finishes_a_replacement(void **state) {
    const char *folder = *state;
    trireme_error error = {0};
    struct directory_search found = {0};
    pid_t dead = fork();
    if (!dead)
        _exit(0);
    assert_int_equal(waitpid(dead, NULL, 0), dead);
    char old[64];
    snprintf(old, sizeof old, ".old-step-5-%d", (int)dead);
    assert_sample_saved(path_in(folder, "step-5"), 5);
    assert_int_equal(rename(path_in(folder, "step-5"), path_in(folder, old)), 0);
    assert_ok(directory_newest(folder, MANIFEST_CONTENT, NULL, &found, &error), &error);
    assert_int_equal(found.number, 5);
    assert_false(path_exists(path_in(folder, old)));
    directory_search_release(&found);
}

struct holder {
    const char *path;
    _Atomic bool done;
    int hold;
};

static void *hold_it(void *argument) {
    struct holder *h = argument;
    h->hold = directory_hold(h->path);
    h->done = true;
    return NULL;
}

// What another process saves or removes is held once that is over, unless it is gone or another has its name.
static void test_hold_waits_for_who_removes_it(void **state) {
    enum { STAYS, GOES, IS_REPLACED, CASES, PATIENCE_MICROSECONDS = 50000 };
    const char *path = path_in(*state, "step-1"), *away = path_in(*state, "away");
    for (int kind = 0; kind < CASES; kind++) {
        assert_sample_saved(path, 1);
        int lock = open(path, O_RDONLY | O_DIRECTORY);
        assert_int_equal(flock(lock, LOCK_EX), 0);
        struct holder holder = {.path = path};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, hold_it, &holder), 0);
        usleep(PATIENCE_MICROSECONDS);
        assert_false(holder.done);
        if (kind != STAYS)
            assert_int_equal(rename(path, away), 0);
        if (kind == IS_REPLACED)
            assert_sample_saved(path, 2);
        close(lock);
        pthread_join(thread, NULL);
        assert_int_equal(holder.hold >= 0, kind == STAYS);
        directory_let_go(holder.hold);
        if (kind != STAYS)
            assert_ok(tree_remove(away, NULL), NULL);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_saves),
        IN_FOLDER(test_path_forms),
        IN_FOLDER(test_abort_leaves_nothing),
        IN_FOLDER(test_replaces_only_ours),
        IN_FOLDER(test_commit_refuses),
        IN_FOLDER(test_newest_skips_damaged),
        IN_FOLDER(test_newest_reads_numbers),
        IN_FOLDER(test_large_files_are_told_of),
        IN_FOLDER(test_sweeps_the_dead_only),
        IN_FOLDER(test_newest_finishes_a_replacement),
        IN_FOLDER(test_hold_waits_for_who_removes_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
