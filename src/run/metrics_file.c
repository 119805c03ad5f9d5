#include "run/metrics_file.h"

#include "base/json.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#define METRICS_NAME "metrics.jsonl"
enum { ASIDE_MOST = 1000 };

// ---- lines

struct sifted {
    off_t bytes, end;       // of the lines that stay, and where the last of them ends: equal if all others come after
    int64_t strange, first; // how many of them are not a step's, and the number of the first of those
    bool cut;               // the last line is not a step's and has no end: a crash cut it short
    bool reached;           // the last step has a line; it may not if the machine stopped before all was on the disk
    bool unvalidated;       // the last step's line has no val_loss
};

// The step that a line is about, -1 where it is about none. Caller releases *object.
static int64_t step_of(const char *line, size_t length, json_t **object) {
    int64_t step = -1;
    trireme_error ignored;
    *object = NULL;
    if (json_parse(line, length, "metrics.jsonl", object, &ignored) == TRIREME_OK)
        json_read_integer(*object, "metrics.jsonl", "step", JSON_REQUIRED, 0, INT64_MAX, &step, &ignored);
    return step;
}

static bool is_unvalidated(const json_t *line) {
    return json_object_get(line, "loss") && !json_object_get(line, "val_loss");
}

// Appends the line with val_loss, where metrics_add puts it.
static void add_validated(struct text *out, json_t *line, double val_loss) {
    const char *key;
    json_t *value;
    json_begin_object(out, NULL);
    json_object_foreach(line, key, value) {
        json_add_value(out, key, value);
        if (strcmp(key, "loss") == 0)
            json_add_number(out, "val_loss", val_loss);
    }
    json_end_object(out);
}

// Examines all lines. Those of steps after `step` are to go; those that somebody else wrote stay. Lines that stay are
// appended to `out` unless that is NULL, where lines of `step` without val_loss get it unless it is NaN.
static trireme_status sift_metrics(const struct metrics_file *m, int64_t step, double val_loss, struct sifted *found,
                                   struct text *out, trireme_error *error) {
    char *line = NULL;
    size_t capacity = 0;
    off_t at = 0;
    int64_t number = 1;
    *found = (struct sifted){0};
    rewind(m->file);
    json_t *object = NULL;
    for (ssize_t n; (n = getline(&line, &capacity, m->file)) > 0; number++, json_decref(object)) {
        int64_t of = step_of(line, (size_t)n, &object);
        bool ends = line[n - 1] == '\n', unvalidated = of == step && is_unvalidated(object);
        at += n;
        found->cut = of < 0 && !ends;
        if (of > step || found->cut)
            continue;
        if (of < 0 && found->strange++ == 0)
            found->first = number;
        found->bytes += n + !ends;
        found->end = at;
        found->reached |= of == step;
        found->unvalidated |= unvalidated;
        if (!out)
            continue;
        if (unvalidated && !isnan(val_loss))
            add_validated(out, object, val_loss);
        else
            text_add_bytes(out, line, (size_t)(ends ? n - 1 : n));
        text_add(out, "\n");
    }
    free(line);
    if (!feof(m->file))
        FAIL(TRIREME_ERROR_IO, "%s: cannot read: %s", m->path, strerror(errno));
    return TRIREME_OK;
}

// ---- the file

void metrics_tell(struct metrics_file *m, char *text) {
    char *before = m->remark;
    m->remark = before ? mem_printf("%s; %s", before, text) : mem_strdup(text);
    free(before);
    free(text);
}

// The same; the text goes on behind the file's path.
static void metrics_remark(struct metrics_file *m, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = mem_vprintf(format, args);
    va_end(args);
    metrics_tell(m, mem_printf("%s%s", m->remark ? METRICS_NAME : m->path, text));
    free(text);
}

// Whether it is the file, or what has its name, that keeps it from being opened; not, for one, a lack of descriptors.
static bool is_unusable(int code) {
    const int codes[] = {EACCES, EPERM, ELOOP, EISDIR, ENXIO, ENODEV, EIO};
    for (size_t i = 0; i < ARRAY_LENGTH(codes); i++)
        if (code == codes[i])
            return true;
    return false;
}

// What is wrong with a file that was opened; NULL: nothing. Reading other files might never end, and what has another
// name may be somebody else's.
static const char *metrics_flaw(int file) {
    struct stat st;
    if (fstat(file, &st) != 0)
        return strerror(errno);
    return !S_ISREG(st.st_mode) ? "is not a regular file" : st.st_nlink > 1 ? "is a link to another file" : NULL;
}

// Opens the file, or makes it. *unusable: what has the name cannot be used.
static trireme_status metrics_open_file(struct metrics_file *m, bool *unusable, trireme_error *error) {
    const int file = open(m->path, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    *unusable = file < 0 && is_unusable(errno);
    if (file < 0 && errno == ELOOP)
        FAIL(TRIREME_ERROR_IO, "%s: is a symbolic link", m->path);
    if (file < 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot open: %s", m->path, strerror(errno));
    const char *flaw = metrics_flaw(file);
    if (flaw) {
        *unusable = true;
        error_set(error, TRIREME_ERROR_IO, "%s: %s", m->path, flaw);
        close(file);
        return TRIREME_ERROR_IO;
    }
    if (m->file)
        fclose(m->file);
    m->file = fdopen(file, "a+");
    m->unnamed = true;
    if (m->file)
        return TRIREME_OK;
    error_set(error, TRIREME_ERROR_IO, "%s: cannot open: %s", m->path, strerror(errno));
    close(file);
    return TRIREME_ERROR_IO;
}

// Renames what has the file's name.
static trireme_status metrics_set_aside(struct metrics_file *m, const trireme_error *reason, trireme_error *error) {
    trireme_status status = TRIREME_ERROR_BUSY;
    for (int i = 1; i <= ASIDE_MOST && status == TRIREME_ERROR_BUSY; i++) {
        char *aside = mem_printf("%s.aside-%d", m->path, i);
        if (renameat2(AT_FDCWD, m->path, AT_FDCWD, aside, RENAME_NOREPLACE) == 0 ||
            (errno == EINVAL && file_missing(aside) && rename(m->path, aside) == 0)) // some file systems only rename
            status = TRIREME_OK;
        else if (errno != EEXIST && errno != EINVAL)
            status = error_set(error, TRIREME_ERROR_IO, "%s; cannot rename it to %s: %s", reason->message, aside,
                               strerror(errno));
        if (status == TRIREME_OK)
            metrics_tell(
                m, mem_printf("%s: it stays as " METRICS_NAME ".aside-%d, and a new file begins", reason->message, i));
        free(aside);
    }
    if (status == TRIREME_ERROR_BUSY)
        FAIL(TRIREME_ERROR_IO, "%s; too many of its kind were set aside: remove some", reason->message);
    return status;
}

static trireme_status metrics_replace(struct metrics_file *m, int64_t step, double val_loss, trireme_error *error) {
    struct sifted found;
    struct text stays = {0};
    bool unusable;
    trireme_status status = sift_metrics(m, step, val_loss, &found, &stays, error);
    if (status == TRIREME_OK)
        status = file_write_atomic(m->path, stays.text, stays.length, error);
    text_release(&stays);
    TRY(status);
    return metrics_open_file(m, &unusable, error);
}

static void metrics_remark_on(struct metrics_file *m, const struct sifted *found, int64_t step) {
    struct text remark = {0};
    if (found->strange)
        text_add(&remark, ": %lld line%s no step's and stay%s, the first is line %lld", (long long)found->strange,
                 found->strange == 1 ? " is" : "s are", found->strange == 1 ? "s" : "", (long long)found->first);
    if (found->cut)
        text_add(&remark, "%s the last line was cut short and is dropped", remark.length ? ";" : ":");
    if (step && !found->reached)
        text_add(&remark, "%s there is no line of step %lld, from which the run goes on", remark.length ? ";" : ":",
                 (long long)step);
    if (remark.length)
        metrics_remark(m, "%s", remark.text);
    text_release(&remark);
}

static trireme_status metrics_rewind(struct metrics_file *m, const struct sifted *found, trireme_error *error) {
    metrics_remark_on(m, found, m->from);
    m->unvalidated = found->unvalidated;
    if (found->bytes != found->end) // lines that go are between lines that stay
        return metrics_replace(m, m->from, NAN, error);
    if (ftruncate(fileno(m->file), found->end) != 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot cut: %s", m->path, strerror(errno));
    fseek(m->file, 0, SEEK_END);
    return TRIREME_OK;
}

// Opens the file and examines its lines.
static trireme_status metrics_read(struct metrics_file *m, struct sifted *found, bool *unusable, trireme_error *error) {
    TRY(metrics_open_file(m, unusable, error));
    *unusable = true; // from here on
    return sift_metrics(m, m->from, NAN, found, NULL, error);
}

static trireme_status metrics_begin(struct metrics_file *m, trireme_error *error) {
    struct sifted found;
    trireme_error reason;
    bool unusable;
    const trireme_status status = metrics_read(m, &found, &unusable, &reason);
    if (status != TRIREME_OK && !unusable)
        return error_repeat(error, &reason);
    if (status != TRIREME_OK) {
        TRY(metrics_set_aside(m, &reason, error));
        TRY(metrics_read(m, &found, &unusable, error));
    }
    return metrics_rewind(m, &found, error);
}

// The same; afterwards the file is as it should be, or not open.
static trireme_status metrics_try(struct metrics_file *m, trireme_error *error) {
    const trireme_status status = metrics_begin(m, error);
    if (status != TRIREME_OK && m->file) {
        fclose(m->file);
        m->file = NULL;
    }
    return status;
}

trireme_status metrics_open(struct metrics_file *m, const char *directory, int64_t step, trireme_error *error) {
    *m = (struct metrics_file){.path = mem_printf("%s/" METRICS_NAME, directory), .from = step};
    return metrics_try(m, error);
}

// If the file that is open has lost its name, opens the one that has it now, or makes one. One that could not be opened
// is tried again.
static trireme_status metrics_keep(struct metrics_file *m, int64_t step, trireme_error *error) {
    struct stat held, named;
    trireme_error reason;
    bool unusable;
    if (!m->file)
        return metrics_try(m, error);
    if (lstat(m->path, &named) == 0 && fstat(fileno(m->file), &held) == 0 && named.st_ino == held.st_ino &&
        named.st_dev == held.st_dev)
        return TRIREME_OK;
    trireme_status status = metrics_open_file(m, &unusable, &reason);
    if (status != TRIREME_OK && !unusable)
        return error_repeat(error, &reason);
    if (status != TRIREME_OK) {
        TRY(metrics_set_aside(m, &reason, error));
        TRY(metrics_open_file(m, &unusable, error));
    }
    metrics_remark(m, ": was removed or renamed; another begins with step %lld", (long long)step);
    return TRIREME_OK;
}

// To the millisecond and the microsecond, which is more than they are worth.
static void add_times(struct text *line, const struct train_step *s) {
    const struct {
        const char *key;
        double seconds;
    } parts[] = {{"start_seconds", s->start_seconds},
                 {"save_seconds", s->save_seconds},
                 {"validation_seconds", s->validation_seconds}};
    json_add_number(line, "time", round(1e3 * s->time) / 1e3);
    json_add_number(line, "seconds", round(1e6 * s->seconds) / 1e6);
    json_add_number(line, "wait_seconds", round(1e6 * s->wait_seconds) / 1e6);
    for (size_t i = 0; i < ARRAY_LENGTH(parts); i++)
        if (parts[i].seconds > 0)
            json_add_number(line, parts[i].key, round(1e6 * parts[i].seconds) / 1e6);
}

static void add_traffic(struct text *line, const struct train_step *s) {
    const axis_set present = mesh_present(s->mesh, AXES_ALL);
    if (!present)
        return;
    json_begin_object(line, "bytes");
    FOR_AXES(a, present)
        json_add_integer(line, axis_name((enum axis)a), s->sent[a]);
    json_end_object(line);
}

trireme_status metrics_add(struct metrics_file *m, const struct train_step *s, trireme_error *error) {
    TRY(metrics_keep(m, s->step, error));
    struct text line = {0};
    json_begin_object(&line, NULL);
    json_add_integer(&line, "step", s->step);
    json_add_number(&line, "loss", s->loss);
    if (!isnan(s->val_loss))
        json_add_number(&line, "val_loss", s->val_loss);
    json_add_number(&line, "grad_norm", s->grad_norm);
    json_add_number(&line, "lr", s->lr);
    json_add_integer(&line, "tokens", s->tokens);
    json_add_number(&line, "tokens_per_second", s->tokens_per_second);
    json_add_number(&line, "mfu", s->mfu);
    json_add_integer(&line, "peak_bytes", (int64_t)s->peak_bytes);
    add_traffic(&line, s);
    add_times(&line, s);
    if (s->skipped)
        json_add_boolean(&line, "skipped", true);
    json_end_object(&line);
    text_add(&line, "\n");
    const trireme_status status = file_append(fileno(m->file), m->path, line.text, line.length, error);
    text_release(&line);
    return status;
}

trireme_status metrics_add_validation(struct metrics_file *m, int64_t step, double val_loss, trireme_error *error) {
    TRY(metrics_keep(m, step, error));
    return metrics_replace(m, step, val_loss, error);
}

struct metrics_mark metrics_mark(struct metrics_file *m) {
    struct metrics_mark mark = {.file = -1};
    if (!m->file)
        return mark;
    mark.file = fcntl(fileno(m->file), F_DUPFD_CLOEXEC, 0);
    mark.code = mark.file < 0 ? errno : 0;
    mark.path = m->unnamed ? mem_strdup(m->path) : NULL;
    m->unnamed = false;
    return mark;
}

char *metrics_sync(struct metrics_mark *mark) {
    trireme_error why;
    char *remark = NULL;
    const int code = mark->file >= 0 && fsync(mark->file) != 0 ? errno : mark->code;
    if (code)
        remark = mem_printf(METRICS_NAME ": cannot sync: %s: a power failure may take its last lines", strerror(code));
    else if (mark->path && file_sync_directory(mark->path, &why) != TRIREME_OK)
        remark = mem_printf(METRICS_NAME ": %s: a power failure may take it", why.message);
    metrics_unmark(mark);
    return remark;
}

void metrics_unmark(struct metrics_mark *mark) {
    if (mark->file >= 0)
        close(mark->file);
    free(mark->path);
    *mark = (struct metrics_mark){.file = -1};
}

char *metrics_take_remark(struct metrics_file *m) {
    char *remark = m->remark;
    m->remark = NULL;
    return remark;
}

void metrics_close(struct metrics_file *m) {
    if (m->file)
        fclose(m->file);
    free(m->remark);
    free(m->path);
    *m = (struct metrics_file){0};
}

// ---- for other readers

static void add_loss(struct metrics_losses *out, const char *line, size_t length) {
    json_t *object = NULL;
    double loss = NAN;
    trireme_error ignored;
    const int64_t step = memmem(line, length, "\"val_loss\"", 10) ? step_of(line, length, &object) : -1;
    if (step >= 0 && json_read_number(object, METRICS_NAME, "val_loss", JSON_OPTIONAL, -INFINITY, INFINITY, &loss,
                                      &ignored) == TRIREME_OK)
        VEC_PUSH(out, (struct metrics_line){step, loss});
    json_decref(object);
}

void metrics_read_losses(const char *directory, struct metrics_losses *out) {
    char *path = mem_printf("%s/" METRICS_NAME, directory), *line = NULL;
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    size_t capacity = 0;
    *out = (struct metrics_losses){0};
    for (ssize_t n; file && !metrics_flaw(fd) && (n = getline(&line, &capacity, file)) > 0;)
        add_loss(out, line, (size_t)n);
    if (file)
        fclose(file);
    free(line);
    free(path);
}

double metrics_loss(const struct metrics_losses *losses, int64_t step) {
    double loss = NAN;
    for (size_t i = 0; i < losses->count; i++)
        if (losses->item[i].step == step)
            loss = losses->item[i].val_loss;
    return loss;
}
