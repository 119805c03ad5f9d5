#include "cli/standard_input.h"

#include <errno.h>
#include <unistd.h>

enum { BLOCK_BYTES = 1 << 16 };

struct input {
    char block[BLOCK_BYTES];
    size_t limit;
    struct text held; // of the text in progress
    int64_t line;     // its number, from 1; 0: the text is all of the input
    standard_input_work *work;
    void *user;
};

// *got = 0 at the end of the input.
static trireme_status input_read(struct input *in, size_t *got, trireme_error *error) {
    ssize_t n;
    do
        n = read(STDIN_FILENO, in->block, sizeof in->block);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        FAIL(TRIREME_ERROR_IO, "standard input: cannot read: %s", strerror(errno));
    *got = (size_t)n;
    return TRIREME_OK;
}

static trireme_status input_hold(struct input *in, const char *bytes, size_t length, trireme_error *error) {
    char line[40] = "";
    if (in->line)
        snprintf(line, sizeof line, " line %lld", (long long)in->line);
    if (in->held.length + length > in->limit)
        FAIL(TRIREME_ERROR_USAGE, "standard input%s: is longer than %zu bytes", line, in->limit);
    text_add_bytes(&in->held, bytes, length);
    return TRIREME_OK;
}

// Does the work for what is held.
static trireme_status input_work(struct input *in, trireme_error *error) {
    const trireme_status status = in->work(in->user, in->held.text ? in->held.text : "", in->held.length, error);
    if (status == TRIREME_ERROR_USAGE || status == TRIREME_ERROR_CORRUPT)
        error_prefix(error, status, in->line ? "standard input line %lld" : "standard input", (long long)in->line);
    in->held.length = 0;
    return status;
}

static trireme_status input_take_lines(struct input *in, size_t got, trireme_error *error) {
    const char *at = in->block, *const stop = in->block + got;
    for (const char *end; (end = memchr(at, '\n', (size_t)(stop - at))); at = end + 1) {
        TRY(input_hold(in, at, (size_t)(end - at), error));
        TRY(input_work(in, error));
        in->line++;
    }
    return input_hold(in, at, (size_t)(stop - at), error);
}

static trireme_status input_run(struct input *in, trireme_error *error) {
    for (size_t got = 0;;) {
        TRY(input_read(in, &got, error));
        if (got == 0)
            return in->line && in->held.length == 0 ? TRIREME_OK : input_work(in, error);
        TRY(in->line ? input_take_lines(in, got, error) : input_hold(in, in->block, got, error));
    }
}

static trireme_status input_begin(size_t limit, int64_t line, standard_input_work *work, void *user,
                                  trireme_error *error) {
    struct input *in = mem_alloc(sizeof *in);
    *in = (struct input){.limit = limit, .line = line, .work = work, .user = user};
    const trireme_status status = input_run(in, error);
    text_release(&in->held);
    free(in);
    return status;
}

trireme_status standard_input_whole(size_t limit, standard_input_work *work, void *user, trireme_error *error) {
    return input_begin(limit, 0, work, user, error);
}

trireme_status standard_input_lines(size_t limit, standard_input_work *work, void *user, trireme_error *error) {
    return input_begin(limit, 1, work, user, error);
}
