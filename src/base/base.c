#include "base/base.h"

#include "base/reserve.h"
#include "base/utf8.h"

#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

// Long enough for two paths. Errors are told where there is no memory left, so nothing is allocated.
enum { WHOLE_MESSAGE = 1 << 14 };

// A message is one line, whatever is quoted in it. Of one that is too long, the middle is left out: it begins with what
// is wrong, often a path, and ends with why.
static void base_fill(trireme_error *error, const char *whole) {
    static const char LEFT_OUT[] = " ... ";
    const size_t most = sizeof error->message - 1, head = (most - strlen(LEFT_OUT)) / 2,
                 tail = most - strlen(LEFT_OUT) - head;
    char shown[UTF8_SHOWN_MAX];
    size_t used = 0, left = 0; // bytes written, bytes to come
    for (const char *s = whole; *s; left += strlen(shown))
        s += utf8_show(s, UTF8_BYTES_MAX, shown);
    const bool cut = left > most;
    bool leaves_out = false;
    for (const char *s = whole; *s;) {
        s += utf8_show(s, UTF8_BYTES_MAX, shown);
        const size_t length = strlen(shown);
        const bool out = cut && left > tail && (leaves_out || used + length > head);
        const char *piece = !out ? shown : leaves_out ? "" : LEFT_OUT;
        memcpy(error->message + used, piece, strlen(piece));
        used += strlen(piece);
        left -= length;
        leaves_out |= out;
    }
    error->message[used] = '\0';
}

trireme_status error_set(trireme_error *error, trireme_status status, const char *format, ...) {
    if (!error)
        return status;
    char whole[WHOLE_MESSAGE];
    va_list args;
    va_start(args, format);
    vsnprintf(whole, sizeof whole, format, args);
    va_end(args);
    error->status = status;
    error->reserved = ERROR_REPORTED_HERE;
    base_fill(error, whole);
    return status;
}

trireme_status error_prefix(trireme_error *error, trireme_status status, const char *format, ...) {
    if (!error)
        return status;
    char whole[WHOLE_MESSAGE];
    const size_t most = sizeof whole - sizeof error->message - strlen(": ");
    va_list args;
    va_start(args, format);
    vsnprintf(whole, most, format, args);
    va_end(args);
    const size_t length = strlen(whole);
    snprintf(whole + length, sizeof whole - length, ": %s", error->message);
    base_fill(error, whole);
    return status;
}

trireme_error *error_copy(const trireme_error *error) {
    return memcpy(mem_alloc(sizeof *error), error, sizeof *error);
}

void bug(const char *file, int line, const char *what) {
    fprintf(stderr, "trireme: bug at %s:%d: %s does not hold\n", file, line, what);
    abort();
}

// Restores SIGABRT's default first: MPI, which catches the signal, would print a place in the source, and none is to
// blame.
static void memory_abort(size_t bytes) {
    (void)bytes;
    signal(SIGABRT, SIG_DFL);
    abort();
}

static _Atomic(void (*)(size_t)) at_end = memory_abort;

void mem_at_end(void (*end)(size_t bytes)) {
    at_end = end;
}

// Returns where the allocation is worth another try.
static void memory_refused(size_t bytes) {
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (reserve_use(bytes))
        return;
    while (atomic_flag_test_and_set(&told)) // another thread has said so, and ends the process
        pause();
    fprintf(
        stderr,
        "trireme: out of memory: %zu bytes more are refused: raise the limit (ulimit -v, ulimit -d, or a job's), or "
        "ask for less\n",
        bytes);
    at_end(bytes);
    memory_abort(bytes);
}

void *mem_alloc(size_t bytes) {
    void *p;
    while (!(p = calloc(1, bytes ? bytes : 1)))
        memory_refused(bytes);
    return p;
}

void *mem_aligned(size_t alignment, size_t bytes) {
    void *p;
    while (!(p = aligned_alloc(alignment, (size_t)round_up((int64_t)bytes, (int64_t)alignment))))
        memory_refused(bytes);
    return p;
}

void *mem_resize(void *p, size_t bytes) {
    void *q;
    while (!(q = realloc(p, bytes ? bytes : 1)))
        memory_refused(bytes);
    return q;
}

char *mem_strdup(const char *s) {
    size_t n = strlen(s) + 1;
    return memcpy(mem_alloc(n), s, n);
}

char *mem_vprintf(const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    CHECK(length >= 0);
    char *text = mem_alloc((size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

char *mem_printf(const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = mem_vprintf(format, args);
    va_end(args);
    return text;
}

static int compare_ints(const void *a, const void *b) {
    return COMPARE(*(const int *)a, *(const int *)b);
}

void sort_ints(int *item, size_t count) {
    if (count)
        qsort(item, count, sizeof *item, compare_ints);
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return COMPARE(x, y);
}

void sort_doubles(double *item, size_t count) {
    if (count)
        qsort(item, count, sizeof *item, compare_doubles);
}
