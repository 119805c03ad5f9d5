#include "support/checkpoint.h"
#include "support/tensors.h"

#include "base/text.h"
#include "ckpt/output.h"
#include "ckpt/safetensors.h"
#include "ckpt/tree.h"
#include "data/prepare.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int folder_create(void **state) {
    const char *where = getenv("TMPDIR");
    char *folder = mem_printf("%s/trireme-directory-XXXXXX", where ? where : "/tmp");
    *state = folder;
    return mkdtemp(folder) ? 0 : -1;
}

void assert_ok(trireme_status status, const trireme_error *error) {
    if (status != TRIREME_OK)
        fail_msg("%s", error->message);
}

void assert_says(const char *message, const char *part) {
    if (!strstr(message, part))
        fail_msg("\"%s\" is not in \"%s\"", part, message);
    assert_null(strchr(message, '\n'));
}

void assert_refused(trireme_status status, trireme_status expected, const trireme_error *error, const char *part) {
    assert_says(error->message, part);
    assert_int_equal(status, expected);
}

static VEC(char *) paths;

const char *path_in(const char *folder, const char *name) {
    VEC_PUSH(&paths, mem_printf("%s/%s", folder, name));
    return paths.item[paths.count - 1];
}

int folder_remove(void **state) {
    int failed = tree_remove(*state, NULL) != TRIREME_OK;
    free(*state);
    for (size_t i = 0; i < paths.count; i++)
        free(paths.item[i]);
    VEC_RELEASE(&paths);
    return failed;
}

void path_write(const char *path, const char *content) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(content, file);
    assert_int_equal(fclose(file), 0);
}

void path_flip_bit(const char *path, off_t at, int bit) {
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseeko(file, at, SEEK_SET), 0);
    const int byte = fgetc(file);
    assert_int_not_equal(byte, EOF);
    assert_int_equal(fseeko(file, at, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 1 << bit, file), byte ^ 1 << bit);
    assert_int_equal(fclose(file), 0);
}

bool path_exists(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0;
}

int64_t thread_bytes_read(void) {
    long long bytes = -1;
    FILE *file = fopen("/proc/thread-self/io", "r");
    if (file && fscanf(file, "rchar: %lld", &bytes) != 1)
        bytes = -1;
    if (file)
        fclose(file);
    return bytes;
}

size_t folder_count(const char *folder) {
    size_t count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        count += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(dir);
    return count;
}

void assert_on_full_disk(size_t bytes, int (*body)(const char *folder), const char *folder) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        struct rlimit limit = {bytes, bytes};
        signal(SIGXFSZ, SIG_IGN);
        _exit(setrlimit(RLIMIT_FSIZE, &limit) != 0 ? 1 : body(folder));
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

void prepare_text(const char *folder, const char *text) {
    trireme_error error = {0};
    const char *input = path_in(folder, "input.txt");
    path_write(input, text);
    struct tokenizer *tokenizer = tokenizer_create_bytes(TOKENIZER_BYTES_ALONE);
    struct prepare_options options = {
        .inputs = &input, .input_count = 1, .prefix = path_in(folder, "tokens"), .tokenizer = tokenizer};
    struct prepare_result result;
    assert_ok(prepare_tokens(&options, &result, &error), &error);
    tokenizer_free(tokenizer);
}

// Two files, each of a header and one tensor. In blocks of SAMPLE_BLOCK_BYTES the first block is of the header alone.
static trireme_status write_model(struct directory *d, int version, trireme_error *error) {
    const int32_t data[] = {version, version, version};
    const struct sample_tensor tensor[] = {{"one", SAFETENSORS_I32, 1, {3}, data},
                                           {"two", SAFETENSORS_I32, 1, {3}, data}};
    struct safetensors_layout layout;
    tensors_declare(&layout, "model", 12, tensor, ARRAY_LENGTH(tensor));
    return tensors_write(&layout, directory_path(d), tensor, d, SAMPLE_BLOCK_BYTES, error);
}

trireme_status sample_write(struct directory *d, const char *folder, const char *name, const char *content, bool record,
                            trireme_error *error) {
    struct output *o = NULL;
    struct checksum_file file;
    TRY(output_create(folder, name, 0, &o, error));
    trireme_status status = output_add(o, content, strlen(content), error);
    if (status != TRIREME_OK) {
        output_abort(o);
        return status;
    }
    TRY(output_finish(o, &file, error));
    if (record)
        directory_record(d, &file);
    checksum_file_release(&file);
    return TRIREME_OK;
}

trireme_status sample_save(const char *path, int version, enum directory_taken taken, trireme_error *error) {
    struct directory *d = NULL;
    TRY(directory_begin(path, taken, &d, error));
    char content[20], below[500];
    snprintf(content, sizeof content, "%d", version);
    snprintf(below, sizeof below, "%s/below", directory_path(d));
    trireme_status status = sample_write(d, directory_path(d), "a.txt", content, true, error);
    if (status == TRIREME_OK && mkdir(below, 0777) != 0)
        status = error_set(error, TRIREME_ERROR_IO, "mkdir failed");
    if (status == TRIREME_OK)
        status = sample_write(d, below, "b.txt", content, false, error);
    if (status == TRIREME_OK)
        status = write_model(d, version, error);
    if (status != TRIREME_OK) {
        directory_abort(d);
        return status;
    }
    return directory_commit(d, error);
}

void assert_sample_saved(const char *path, int version) {
    trireme_error error = {0};
    assert_ok(sample_save(path, version, DIRECTORY_SET_ASIDE, &error), &error);
}

int sample_version(const char *path) {
    static const char *const NAME[] = {"a.txt", "below/b.txt"};
    int version = 0;
    trireme_error error = {0};
    for (size_t i = 0; i < ARRAY_LENGTH(NAME); i++) {
        char *content = NULL;
        size_t length;
        assert_ok(file_read(path_in(path, NAME[i]), 100, &content, &length, &error), &error);
        assert_true(!version || version == atoi(content));
        version = atoi(content);
        free(content);
    }
    struct safetensors *s = NULL;
    assert_ok(safetensors_open(path, &s, &error), &error);
    assert_int_equal(s->tensor.count, 2);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(((const int32_t *)s->tensor.item[i].data)[2], version);
    safetensors_close(s);
    return version;
}

trireme_status sample_prune(const char *folder, int64_t last, size_t latest, trireme_error *error) {
    struct retention r = {.parent = folder, .rules = {.latest = latest}};
    struct retention_list list;
    bool stopped;
    trireme_status status = retention_decide(&r, last, NULL, &list, &stopped, error);
    if (status == TRIREME_OK)
        status = retention_remove(&r, &list, error);
    retention_list_release(&list);
    retention_release(&r);
    return status;
}
