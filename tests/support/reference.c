#include "support/reference.h"
#include "support/tensors.h"

#include "ckpt/safetensors.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    pid_t process;
    FILE *commands, *lines;
} reference;

bool has_modules(const char *python, const char *modules) {
    char *command = mem_printf("%s -c 'import importlib.util as u, sys; "
                               "sys.exit(not all(map(u.find_spec, \"%s\".split())))' 2>/dev/null",
                               python, modules);
    bool has = system(command) == 0;
    free(command);
    return has;
}

const char *find_python(const char *modules) {
    static const char *const CANDIDATES[] = {"python3", "/usr/bin/python3"};
    for (size_t i = 0; i < ARRAY_LENGTH(CANDIDATES); i++)
        if (has_modules(CANDIDATES[i], modules))
            return CANDIDATES[i];
    return NULL;
}

bool reference_start(const char *python, const char *source) {
    signal(SIGPIPE, SIG_IGN); // where it has ended, that is told
    char *script = mem_printf("%s/tools/reference/run.py", source);
    char *const argv[] = {(char *)python, script, "-", NULL};
    int in[2], out[2];
    assert_true(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    bool started = posix_spawnp(&reference.process, python, &actions, NULL, argv, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    free(script);
    close(in[0]);
    close(out[1]);
    reference.commands = fdopen(in[1], "w");
    reference.lines = fdopen(out[0], "r");
    return started;
}

bool reference_end(void) {
    int status;
    fclose(reference.commands);
    fclose(reference.lines);
    return waitpid(reference.process, &status, 0) == reference.process && status == 0;
}

void reference_run(const char *format, ...) {
    char line[256];
    va_list args;
    va_start(args, format);
    vfprintf(reference.commands, format, args);
    va_end(args);
    fputc('\n', reference.commands);
    if (fflush(reference.commands) || !fgets(line, sizeof line, reference.lines))
        fail_msg("the reference has failed");
}

void save_batches(const char *folder, const struct batch *batch, int64_t count) {
    static const char *const NAMES[] = {"tokens", "targets", "starts", "positions"};
    const size_t elements = (size_t)(batch->sequences * batch->seq_len);
    trireme_error error = {0};
    struct sample_tensor tensor[ARRAY_LENGTH(NAMES)];
    struct safetensors_layout layout;
    int32_t *all = mem_alloc(ARRAY_LENGTH(NAMES) * (size_t)count * elements * sizeof *all), *to = all;
    for (size_t k = 0; k < ARRAY_LENGTH(NAMES); k++) {
        tensor[k] = (struct sample_tensor){.name = NAMES[k], .dtype = SAFETENSORS_I32, .data = to};
        const int64_t shape[] = {count, batch->sequences, batch->seq_len};
        tensor[k].ndim = count > 1 ? 3 : 2;
        memcpy(tensor[k].shape, count > 1 ? shape : shape + 1, (size_t)tensor[k].ndim * sizeof *shape);
        for (int64_t i = 0; i < count; i++, to += elements) {
            const int32_t *const data[] = {batch[i].tokens, batch[i].targets, batch[i].starts, batch[i].positions};
            memcpy(to, data[k], elements * sizeof *to);
        }
    }
    tensors_declare(&layout, "batch", 0, tensor, ARRAY_LENGTH(NAMES));
    assert_ok(tensors_write(&layout, folder, tensor, NULL, 0, &error), &error);
    free(all);
}

// Compares a tensor of transformers with the rows of our parameter that correspond to it.
static void compare_piece(const struct engine *e, size_t number, const struct parameter_piece *piece,
                          const struct safetensors *file, double rms, double tolerance) {
    const struct parameter *p = &e->table->parameters.item[number];
    const struct safetensors_tensor *t = safetensors_find(file, piece->name);
    if (!t)
        fail_msg("the reference has no gradient of %s", piece->name);
    int64_t rows = piece->rows, columns = p->dim[1], count = rows * columns;
    assert_int_equal(t->dtype, SAFETENSORS_F32);
    assert_int_equal(t->bytes, count * 4);
    struct tensor_values g = engine_gradient(e, number);
    double *ours = mem_alloc((size_t)count * sizeof *ours), *theirs = mem_alloc((size_t)count * sizeof *theirs);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            // Where q, k and v lie head by head, ours is all of q, then all of k, and of v.
            const int64_t size = piece->heads ? rows / (3 * piece->heads) : rows;
            const int64_t row =
                piece->heads ? (r / size % piece->heads * 3 + r / size / piece->heads) * size + r % size : r;
            int64_t at = piece->transposed ? c * rows + r : row * columns + c;
            float value;
            memcpy(&value, (const char *)t->data + at * 4, sizeof value);
            theirs[r * columns + c] = value;
            ours[r * columns + c] = value_at(g.data, g.dtype, (piece->row + r) * columns + c);
        }
    assert_close(piece->name, ours, theirs, count, tolerance, rms);
    free(ours);
    free(theirs);
}

void compare_gradients(const struct engine *e, const struct engine_result *result, const char *path, double tolerance) {
    trireme_error error = {0};
    struct safetensors *file;
    assert_ok(safetensors_open(path, &file, &error), &error);
    const struct safetensors_tensor *loss = safetensors_find(file, "loss");
    double expected;
    assert_true(loss && loss->dtype == SAFETENSORS_F64 && loss->bytes == sizeof expected);
    memcpy(&expected, loss->data, sizeof expected);
    assert_close("loss", &result->loss, &expected, 1, tolerance, 0);
    // The gradient is clipped within the update, never where it is accumulated.
    double rms = engine_gradient_rms(e);
    size_t compared = safetensors_find(file, "logits") ? 2 : 1;
    for (size_t i = 0; i < e->table->parameters.count; i++)
        for (int j = 0; !e->table->parameters.item[i].frozen && j < e->table->parameters.item[i].pieces;
             j++, compared++)
            compare_piece(e, i, &e->table->parameters.item[i].piece[j], file, rms, tolerance);
    assert_int_equal(compared, file->tensor.count);
    safetensors_close(file);
}
