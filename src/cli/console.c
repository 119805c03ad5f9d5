#include "cli/console.h"

#include "base/amount.h"
#include "base/clock.h"
#include "base/parallel_for.h"

#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROOM = 1 << 18 };    // bytes that wait in a queue at most, besides results
enum { MOST_PATIENCE = 5 }; // seconds that console_end waits at most, while lines are read
static const int64_t SECOND = 1000000000, ASIDE = 100000000; // nanoseconds; the second that streams wait for each other

struct line {
    struct line *next;
    enum console_stream stream;
    enum console_kind kind;
    int64_t added; // clock_now
    int64_t after; // lines of the other queue that come before it
    size_t length;
    char text[];
};

struct queue {
    const struct queue *other; // NULL: there is one queue
    sem_t wake;
    pthread_t thread;
    // Guarded by the console's lock.
    struct line *first, **end;
    size_t bytes;                     // of lines that may be dropped
    bool full;                        // until half of the room is free again: so losses are told of seldom
    bool writing;                     // a line that is no longer in the list is being written
    int64_t added, written;           // lines
    int64_t dropped[CONSOLE_STREAMS]; // since that was last told
};

static struct {
    bool begun;
    pthread_mutex_t lock;
    pthread_cond_t moved; // a line was written
    struct queue queue[CONSOLE_STREAMS];
    struct queue *of[CONSOLE_STREAMS];
    int failed[CONSOLE_STREAMS]; // errno with which a write has failed: nothing more is written there
} console;

static const char *_Atomic note;

static int console_file(enum console_stream stream) {
    return stream == CONSOLE_OUTPUT ? STDOUT_FILENO : STDERR_FILENO;
}

// ---- queues; the lock is held

static void queue_push(struct queue *q, struct line *line) {
    line->next = NULL;
    *q->end = line;
    q->end = &line->next;
    q->bytes += line->kind == CONSOLE_RESULT ? 0 : line->length;
}

static void queue_append(struct queue *q, enum console_stream stream, enum console_kind kind, const char *text,
                         size_t length) {
    struct line *line = mem_alloc(sizeof *line + length);
    *line = (struct line){.stream = stream,
                          .kind = kind,
                          .added = clock_now(),
                          .after = q->other ? q->other->added : 0,
                          .length = length};
    memcpy(line->text, text, length);
    q->added++;
    queue_push(q, line);
}

static void queue_tell_dropped(struct queue *q) {
    for (int i = 0; i < CONSOLE_STREAMS; i++) {
        char text[128];
        if (!q->dropped[i])
            continue;
        const int length = snprintf(text, sizeof text, "(%s left out here: nobody read them in time)\n",
                                    counted(q->dropped[i], "line").text);
        q->dropped[i] = 0;
        queue_append(q, (enum console_stream)i, CONSOLE_RESULT, text, (size_t)length);
    }
}

static bool queue_add(struct queue *q, enum console_stream stream, enum console_kind kind, const char *text,
                      size_t length) {
    errno = console.failed[stream];
    if (errno || (kind == CONSOLE_FRAME && (q->first || q->writing)))
        return false;
    if (kind == CONSOLE_LINE) {
        q->full = q->bytes + length > (size_t)(q->full ? ROOM / 2 : ROOM);
        q->dropped[stream] += q->full;
        if (q->full)
            return false;
    }
    queue_tell_dropped(q);
    queue_append(q, stream, kind, text, length);
    return true;
}

static struct line *queue_take(struct queue *q) {
    struct line *line = q->first;
    if (!line)
        return NULL;
    q->first = line->next;
    if (!q->first)
        q->end = &q->first;
    q->bytes -= line->kind == CONSOLE_RESULT ? 0 : line->length;
    return line;
}

// Drops what may be dropped.
static void queue_clear(struct queue *q) {
    struct line *kept = NULL, **end = &kept;
    for (struct line *line; (line = queue_take(q));) {
        if (line->kind == CONSOLE_RESULT) {
            *end = line;
            end = &line->next;
            *end = NULL;
            continue;
        }
        q->dropped[line->stream] += line->kind == CONSOLE_LINE;
        q->written++;
        free(line);
    }
    queue_tell_dropped(q);
    for (struct line *line = kept, *next; line; line = next) {
        next = line->next;
        queue_push(q, line);
    }
}

// ---- writing

static bool await_moved(int64_t until) {
    const struct timespec time = {.tv_sec = until / SECOND, .tv_nsec = until % SECOND};
    return pthread_cond_timedwait(&console.moved, &console.lock, &time) == 0;
}

// Returns 0, or errno. Whoever shares the terminal may have made it return at once where others would wait.
static int console_put(int file, const char *text, size_t length) {
    for (size_t done = 0; done < length;) {
        const ssize_t put = write(file, text + done, length - done);
        if (put < 0 && errno == EAGAIN)
            poll(&(struct pollfd){.fd = file, .events = POLLOUT}, 1, -1);
        else if (put < 0 && errno != EINTR)
            return errno;
        done += (size_t)MAX(put, 0);
    }
    return 0;
}

// Waits for lines of the other stream that came before this one, unless that stream is held up.
static void queue_await_other(const struct queue *q, const struct line *line) {
    while (q->other && q->other->written < line->after)
        if (!await_moved(line->added + ASIDE))
            return;
}

static void queue_write(struct queue *q, struct line *line) {
    const enum console_stream stream = line->stream;
    int failed = console.failed[stream];
    q->writing = true;
    queue_await_other(q, line);
    pthread_mutex_unlock(&console.lock);
    if (!failed)
        failed = console_put(console_file(stream), line->text, line->length);
    free(line);
    pthread_mutex_lock(&console.lock);
    q->writing = false;
    console.failed[stream] = failed;
    q->written++;
    pthread_cond_broadcast(&console.moved);
}

static void *queue_run(void *argument) {
    struct queue *q = argument;
    while (sem_wait(&q->wake) == 0 || errno == EINTR) {
        pthread_mutex_lock(&console.lock);
        const char *text = q == console.of[CONSOLE_ERRORS] ? atomic_exchange(&note, NULL) : NULL;
        if (text)
            queue_add(q, CONSOLE_ERRORS, CONSOLE_RESULT, text, strlen(text));
        for (struct line *line; (line = queue_take(q));) {
            queue_write(q, line);
            if (!q->first)
                queue_tell_dropped(q);
        }
        pthread_mutex_unlock(&console.lock);
    }
    return NULL;
}

// ---- for the commands

static bool lead_to_one_place(void) {
    struct stat out, err;
    return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 && out.st_dev == err.st_dev &&
           out.st_ino == err.st_ino;
}

trireme_status console_begin(trireme_error *error) {
    const int queues = lead_to_one_place() ? 1 : CONSOLE_STREAMS;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&console.lock, NULL);
    pthread_cond_init(&console.moved, &attributes);
    pthread_condattr_destroy(&attributes);
    for (int i = 0; i < CONSOLE_STREAMS; i++)
        console.of[i] = &console.queue[queues == 1 ? 0 : i];
    for (int i = 0; i < queues; i++) {
        struct queue *q = &console.queue[i];
        *q = (struct queue){.other = queues == 1 ? NULL : &console.queue[!i], .end = &q->first};
        sem_init(&q->wake, 0, 0);
    }
    fflush(stdout);
    for (int i = 0; i < queues; i++)
        TRY(thread_start(&console.queue[i].thread, queue_run, &console.queue[i], "the thread that writes lines",
                         error));
    console.begun = true;
    return TRIREME_OK;
}

bool console_add(enum console_stream stream, enum console_kind kind, const char *text, size_t length) {
    FILE *direct = stream == CONSOLE_OUTPUT ? stdout : stderr;
    if (!console.begun)
        return fwrite(text, 1, length, direct) == length && (stream == CONSOLE_OUTPUT || fflush(direct) == 0);
    struct queue *q = console.of[stream];
    pthread_mutex_lock(&console.lock);
    const bool added = queue_add(q, stream, kind, text, length);
    pthread_mutex_unlock(&console.lock);
    sem_post(&q->wake);
    return added;
}

bool console_tell(enum console_stream stream, enum console_kind kind, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = mem_vprintf(format, args);
    va_end(args);
    const bool added = console_add(stream, kind, text, strlen(text));
    free(text);
    return added;
}

void console_note(const char *text) {
    if (console.begun) {
        atomic_store(&note, text);
        sem_post(&console.of[CONSOLE_ERRORS]->wake);
    } else if (poll(&(struct pollfd){.fd = STDERR_FILENO, .events = POLLOUT}, 1, 0) == 1) {
        console_put(STDERR_FILENO, text, strlen(text));
    }
}

static bool console_is_empty(void) {
    bool empty = true;
    for (int i = 0; i < CONSOLE_STREAMS; i++)
        empty &= !console.of[i]->first && !console.of[i]->writing;
    return empty;
}

static int64_t console_written(void) {
    int64_t lines = 0;
    for (int i = 0; i < CONSOLE_STREAMS; i++)
        lines += console.queue[i].written;
    return lines;
}

// Waits until all is written; false where no line was for `patience`, or `most` has passed.
static bool console_await(int64_t patience, int64_t most) {
    const int64_t end = clock_now() + most;
    int64_t lines = console_written(), until = MIN(end, clock_now() + patience);
    while (!console_is_empty()) {
        if (!await_moved(until))
            return console_is_empty();
        if (console_written() > lines)
            until = MIN(end, clock_now() + patience);
        lines = console_written();
    }
    return true;
}

trireme_status console_end(int patience, trireme_error *error) {
    if (!console.begun) {
        if (fflush(stdout) != 0)
            FAIL(TRIREME_ERROR_IO, "standard output: cannot write: %s", strerror(errno));
        return TRIREME_OK;
    }
    const bool for_ever = patience == CONSOLE_FOR_EVER;
    const int64_t wait = for_ever ? INT64_MAX / 4 : patience * SECOND, most = for_ever ? wait : MOST_PATIENCE * SECOND;
    pthread_mutex_lock(&console.lock);
    bool done = console_await(wait, most);
    for (int i = 0; i < CONSOLE_STREAMS && !done; i++)
        queue_clear(console.of[i]);
    done = done || console_await(wait, most);
    const struct queue *out = console.of[CONSOLE_OUTPUT];
    const int failed = console.failed[CONSOLE_OUTPUT];
    done |= !out->first && !out->writing;
    pthread_mutex_unlock(&console.lock);
    if (failed)
        FAIL(TRIREME_ERROR_IO, "standard output: cannot write: %s", strerror(failed));
    if (!done)
        FAIL(TRIREME_ERROR_IO, "standard output: cannot write: nobody reads it");
    return TRIREME_OK;
}
