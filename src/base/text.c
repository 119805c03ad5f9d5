#include "base/text.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// ---- growing strings

// Room for `more` bytes and the NUL.
static void text_reserve(struct text *t, size_t more) {
    CHECK(more < SIZE_MAX / 4 && t->length < SIZE_MAX / 4);
    size_t needed = t->length + more + 1;
    if (needed <= t->capacity)
        return;
    t->capacity = MAX(needed, MAX(64, 2 * t->capacity));
    t->text = mem_resize(t->text, t->capacity);
}

void text_add_bytes(struct text *t, const char *bytes, size_t length) {
    text_reserve(t, length);
    if (length)
        memcpy(t->text + t->length, bytes, length);
    t->length += length;
    t->text[t->length] = '\0';
}

void text_add(struct text *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    CHECK(length >= 0);
    text_reserve(t, (size_t)length);
    va_start(args, format);
    vsnprintf(t->text + t->length, (size_t)length + 1, format, args);
    va_end(args);
    t->length += (size_t)length;
}

// Whether these bytes are the beginning of a character whose rest is missing.
static bool is_cut(const char *bytes, size_t length) {
    struct utf8_checker utf8 = {0};
    return utf8_check(&utf8, bytes, length) && !utf8_finish(&utf8);
}

void text_add_utf8(struct text *t, const char *bytes, size_t length) {
    for (size_t at = 0; at < length;) {
        const size_t whole = utf8_prefix(bytes + at, length - at);
        text_add_bytes(t, bytes + at, whole);
        at += whole;
        if (at == length)
            break;
        text_add_bytes(t, UTF8_REPLACEMENT, sizeof UTF8_REPLACEMENT - 1);
        at += utf8_ill_formed(bytes + at, length - at);
    }
}

size_t text_add_shown(struct text *t, const char *bytes, size_t length, bool ends) {
    size_t at = 0;
    while (at < length) {
        size_t plain = 0;
        while (at + plain < length && bytes[at + plain] >= ' ' && bytes[at + plain] < '\x7F')
            plain++;
        text_add_bytes(t, bytes + at, plain);
        at += plain;
        if (at == length)
            break;
        const char *next = bytes + at;
        size_t left = length - at;
        uint32_t code;
        size_t n = utf8_decode(next, left, &code);
        if (!ends && (n == 0 ? is_cut(next, left) : code == '\r' && left == 1))
            break;
        if (n > 0 && (code == '\t' || code == '\n' || (code == '\r' && left > 1 && next[1] == '\n'))) {
            text_add_bytes(t, next, n);
            at += n;
            continue;
        }
        char shown[UTF8_SHOWN_MAX];
        at += utf8_show(next, left, shown);
        text_add_bytes(t, shown, strlen(shown));
    }
    return at;
}

void text_add_line(struct text *t, const char *line) {
    char shown[UTF8_SHOWN_MAX];
    while (*line) {
        line += utf8_show(line, UTF8_BYTES_MAX, shown);
        text_add_bytes(t, shown, strlen(shown));
    }
}

void text_add_numbers(struct text *t, const int *number, int count) {
    for (int i = 0; i < count; i++)
        text_add(t, "%s%d", i ? "," : "", number[i]);
}

void text_release(struct text *t) {
    free(t->text);
    *t = (struct text){0};
}

// ---- whole files

// How long the program at a pipe's other end may take to open it: a shell may have started both together.
enum { PARTNER_MILLISECONDS = 1000, MILLISECOND = 1000000 };

// Whether somebody has an empty pipe open for writing: only then is there something to wait for.
static bool text_is_written(int pipe) {
    int copy[2];
    if (pipe2(copy, O_CLOEXEC) != 0)
        return true;
    const bool written = tee(pipe, copy[1], 1, SPLICE_F_NONBLOCK) != 0;
    close(copy[0]);
    close(copy[1]);
    return written;
}

bool file_missing(const char *path) {
    return access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

trireme_status file_open(const char *path, int *file, trireme_error *error) {
    const int opened = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (opened < 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot open: %m", path);
    struct stat info;
    struct pollfd content = {.fd = opened, .events = POLLIN};
    if (fstat(opened, &info) == 0 && S_ISFIFO(info.st_mode) && poll(&content, 1, PARTNER_MILLISECONDS) == 0 &&
        !text_is_written(opened)) {
        close(opened);
        FAIL(TRIREME_ERROR_IO, "%s: cannot read: it is a pipe that nobody writes to", path);
    }
    fcntl(opened, F_SETFL, 0); // whoever writes may take any time
    *file = opened;
    return TRIREME_OK;
}

trireme_status file_read(const char *path, size_t limit, char **out, size_t *length, trireme_error *error) {
    trireme_status status = TRIREME_OK;
    char *bytes = NULL;
    int file;
    TRY(file_open(path, &file, error));
    struct stat info;
    if (fstat(file, &info) != 0) {
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot examine: %m", path);
        goto close_file;
    }
    if (S_ISDIR(info.st_mode)) {
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot read: it is a directory, not a file", path);
        goto close_file;
    }
    limit = MIN(limit, SIZE_MAX / 4); // no memory has more, and twice as much does not overflow
    // The size is a first guess only: pipes and files of /proc have none, and a file may grow while it is read.
    size_t capacity = info.st_size > 0 ? (size_t)info.st_size : 4096, count = 0;
    capacity = MIN(capacity, limit) + 1;
    for (;;) {
        char *resized = realloc(bytes, capacity + 1);
        if (!resized) {
            status = error_set(error, TRIREME_ERROR_MEMORY, "%s: cannot read: no memory for %zu bytes", path, capacity);
            goto free_bytes;
        }
        bytes = resized;
        ssize_t got = read(file, bytes + count, capacity - count);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            status = error_set(error, TRIREME_ERROR_IO, "%s: cannot read at byte %zu: %m", path, count);
            goto free_bytes;
        }
        if (got == 0)
            break;
        count += (size_t)got;
        if (count > limit) {
            status =
                error_set(error, TRIREME_ERROR_CORRUPT, "%s: is larger than the %zu bytes accepted here", path, limit);
            goto free_bytes;
        }
        if (count == capacity)
            capacity = MIN(2 * capacity, limit + 1);
    }
    bytes[count] = '\0';
    *out = bytes;
    *length = count;
    goto close_file;

free_bytes:
    free(bytes);
close_file:
    close(file);
    return status;
}

trireme_status file_read_named(const char *path, size_t limit, char **out, size_t *length, trireme_error *error) {
    trireme_status status = file_read(path, limit, out, length, error);
    if (status != TRIREME_ERROR_IO)
        return status;
    if (error)
        error->status = TRIREME_ERROR_USAGE;
    return TRIREME_ERROR_USAGE;
}

size_t file_write(int file, const void *bytes, size_t length) {
    size_t done = 0;
    while (done < length) {
        // Linux writes at most 0x7ffff000 bytes at a time; 1 GiB keeps every piece page-aligned.
        ssize_t put = write(file, (const char *)bytes + done, MIN(length - done, (size_t)1 << 30));
        if (put < 0 && errno == EINTR)
            continue;
        if (put == 0)
            errno = EIO;
        if (put <= 0)
            break;
        done += (size_t)put;
    }
    return done;
}

trireme_status file_sync_directory(const char *path, trireme_error *error) {
    const char *slash = strrchr(path, '/');
    char *directory = slash ? mem_printf("%.*s", (int)MAX(slash - path, 1), path) : mem_strdup(".");
    trireme_status status = TRIREME_OK;
    int file = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // EINVAL: a file system that cannot sync directories. EACCES: a directory that may be written to, but not listed.
    if (file < 0 ? errno != EACCES : fsync(file) != 0 && errno != EINVAL)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot sync: %m", directory);
    if (file >= 0)
        close(file);
    free(directory);
    return status;
}

// Handled apart from devices, since it may lead to a file.
static bool is_stdout(const char *path) {
    return strcmp(path, "/dev/stdout") == 0;
}

trireme_status file_each_line(const char *path, size_t limit,
                              trireme_status (*each)(void *user, const struct file_line *line, trireme_error *error),
                              void *user, trireme_error *error) {
    char *bytes;
    size_t length, number = 0;
    trireme_status status = TRIREME_OK;
    TRY(file_read_named(path, limit, &bytes, &length, error));
    const char *const end = bytes + length;
    for (const char *at = bytes + utf8_mark(bytes, length); at < end && status == TRIREME_OK;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at)) ?: end;
        struct file_line line = {.text = at, .length = (size_t)(stop - at), .number = ++number};
        line.length -= line.length > 0 && at[line.length - 1] == '\r';
        if (strspn(at, " \t\r") < line.length) { // what was read ends with a NUL
            char *where = mem_printf("%s:%zu", path, number);
            line.where = where;
            status = each(user, &line, error);
            free(where);
        }
        at = stop + 1;
    }
    free(bytes);
    return status;
}

bool file_is_device(const char *path) {
    struct stat info;
    return is_stdout(path) || (stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode));
}

trireme_status file_open_device(const char *path, int *file, trireme_error *error) {
    if (is_stdout(path)) {
        if ((*file = dup(STDOUT_FILENO)) < 0)
            FAIL(TRIREME_ERROR_IO, "%s: cannot open: %m", path);
        return TRIREME_OK;
    }
    struct stat info;
    const bool pipe = stat(path, &info) == 0 && S_ISFIFO(info.st_mode);
    const int64_t until = clock_now() + (int64_t)PARTNER_MILLISECONDS * MILLISECOND;
    int opened;
    while ((opened = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)) < 0 && pipe && errno == ENXIO &&
           clock_now() < until)
        nanosleep(&(struct timespec){.tv_nsec = MILLISECOND}, NULL);
    if (opened < 0 && pipe && errno == ENXIO)
        FAIL(TRIREME_ERROR_IO, "%s: cannot write: it is a pipe that nobody reads", path);
    if (opened < 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot open: %m", path);
    fcntl(opened, F_SETFL, 0); // whoever reads may take any time
    *file = opened;
    return TRIREME_OK;
}

static trireme_status write_device(const char *path, const void *bytes, size_t length, trireme_error *error) {
    int file;
    TRY(file_open_device(path, &file, error));
    trireme_status status = TRIREME_OK;
    if (file_write(file, bytes, length) < length)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot write: %m", path);
    if (close(file) != 0 && status == TRIREME_OK)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot close: %m", path);
    return status;
}

// Makes a file that was not there before: what is left of a process that died, or was planted, is removed, not opened.
static int create_anew(const char *path) {
    enum { MOST_TRIES = 100 };
    int file = -1;
    for (int i = 0; i < MOST_TRIES && file < 0; i++) {
        file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file < 0 && (errno != EEXIST || unlink(path) != 0))
            break;
    }
    return file;
}

trireme_status file_append(int file, const char *path, const void *bytes, size_t length, trireme_error *error) {
    const off_t end = lseek(file, 0, SEEK_END);
    if (end >= 0 && file_write(file, bytes, length) == length)
        return TRIREME_OK;
    error_set(error, TRIREME_ERROR_IO, "%s: cannot write: %m", path);
    if (end >= 0 && ftruncate(file, end) == 0)
        lseek(file, end, SEEK_SET);
    return TRIREME_ERROR_IO;
}

trireme_status file_write_atomic(const char *path, const void *bytes, size_t length, trireme_error *error) {
    if (file_is_device(path))
        return write_device(path, bytes, length, error);
    char *temporary = mem_printf("%s.tmp", path);
    trireme_status status = TRIREME_OK;
    int file = create_anew(temporary);
    if (file < 0) {
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot create: %m", temporary);
        goto free_name;
    }
    size_t written = file_write(file, bytes, length);
    if (written < length)
        status =
            error_set(error, TRIREME_ERROR_IO, "%s: cannot write at byte %zu of %zu: %m", temporary, written, length);
    if (status == TRIREME_OK && fsync(file) != 0)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot sync: %m", temporary);
    if (close(file) != 0 && status == TRIREME_OK)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot close: %m", temporary);
    if (status == TRIREME_OK && rename(temporary, path) != 0)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot rename to %s: %m", temporary, path);
    if (status != TRIREME_OK)
        unlink(temporary);
    else
        status = file_sync_directory(path, error);
free_name:
    free(temporary);
    return status;
}

// ---- directories

static trireme_status directory_create_one(const char *path, trireme_error *error) {
    if (mkdir(path, 0777) == 0)
        return file_sync_directory(path, error);
    int reason = errno;
    struct stat info;
    if (stat(path, &info) == 0) {
        if (S_ISDIR(info.st_mode))
            return TRIREME_OK;
        FAIL(TRIREME_ERROR_IO, "%s: cannot create the directory: a file of that name is there", path);
    }
    if (reason == EEXIST && errno == ENOENT)
        FAIL(TRIREME_ERROR_IO, "%s: cannot create the directory: a symbolic link of that name leads nowhere", path);
    if (reason != EEXIST) // else stat says what is wrong with what is there
        errno = reason;
    FAIL(TRIREME_ERROR_IO, "%s: cannot create the directory: %m", path);
}

bool file_lock(int file) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(file, F_OFD_SETLK, &whole) == 0;
}

bool file_is_locked(const char *path) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return false;
    bool locked = fcntl(file, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
    close(file);
    return locked;
}

trireme_status directory_create(const char *path, trireme_error *error) {
    if (!*path)
        FAIL(TRIREME_ERROR_USAGE, "cannot create a directory: its path is empty");
    char *part = mem_strdup(path);
    trireme_status status = TRIREME_OK;
    for (char *at = part + 1; status == TRIREME_OK; at++) {
        char here = *at;
        if (here != '/' && here != '\0')
            continue;
        *at = '\0';
        status = directory_create_one(part, error);
        *at = here;
        if (here == '\0')
            break;
    }
    free(part);
    return status;
}

// ---- words

bool text_ends(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

int text_compare(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool text_lists(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *at = strstr(list, word); length && at; at = strstr(at + 1, word))
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

// Damerau-Levenshtein distance in its restricted form (no part is changed twice), for which three rows of the table are
// enough.
size_t text_distance(const char *a, const char *b) {
    size_t rows = strlen(a), columns = strlen(b);
    size_t *table = mem_alloc(3 * (columns + 1) * sizeof *table);
    size_t *before_last = table, *last = table + columns + 1, *row = table + 2 * (columns + 1);
    for (size_t j = 0; j <= columns; j++)
        row[j] = j;
    for (size_t i = 1; i <= rows; i++) {
        size_t *oldest = before_last;
        before_last = last;
        last = row;
        row = oldest;
        row[0] = i;
        for (size_t j = 1; j <= columns; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);
            best = MIN(best, MIN(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = MIN(best, before_last[j - 2] + 1);
            row[j] = best;
        }
    }
    size_t distance = row[columns];
    free(table);
    return distance;
}

size_t text_misspelt_distance(const char *word) {
    size_t length = strlen(word);
    return MIN(MAX((size_t)2, length / 3), length - (length > 0));
}

enum { WORD_MAX_LENGTH = 255 }; // longer words are compared with none

static const char *word_at(const char *const *first, size_t stride, size_t i) {
    return *(const char *const *)(const void *)((const char *)first + i * stride);
}

// The nearest word at a distance below `limit`; NULL: none.
static const char *nearest_within(const char *word, size_t limit, const char *const *first, size_t count,
                                  size_t stride) {
    const char *nearest = NULL;
    if (strlen(word) > WORD_MAX_LENGTH)
        return nearest;
    for (size_t i = 0; i < count; i++) {
        const char *known = word_at(first, stride, i);
        size_t distance = text_distance(word, known);
        if (distance < limit) {
            limit = distance;
            nearest = known;
        }
    }
    return nearest;
}

const char *text_nearest(const char *word, const char *const *first, size_t count, size_t stride) {
    enum { BEGINNING_LEAST = 3 }; // letters: many words begin with fewer
    const char *nearest = nearest_within(word, text_misspelt_distance(word) + 1, first, count, stride);
    const size_t length = strlen(word);
    for (size_t i = 0; i < count && !nearest && length >= BEGINNING_LEAST; i++) {
        const char *known = word_at(first, stride, i);
        nearest = strncmp(known, word, length) == 0 ? known : NULL;
    }
    return nearest;
}

// ---- lists of numbers

int numbers_read(const char *list, int most, int *out) {
    int count = 0;
    while (*list) {
        char *end;
        long n = strtol(list, &end, 10);
        if (end == list || n < 0 || n > INT_MAX || count == most || (*end && (*end != ',' || !end[1])))
            return 0;
        out[count++] = (int)n;
        list = *end ? end + 1 : end;
    }
    return count;
}

int numbers_count(const char *list) {
    int count = *list != 0;
    for (; *list; list++)
        count += *list == ',';
    return count;
}
