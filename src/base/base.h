// base/: what every other folder may use: errors, memory, text, JSON, hashes, random numbers, clock, threads. Includes
// no other folder of src/.
//
// Error handling. A function that can fail returns trireme_status and takes `trireme_error *error` last; on failure it
// fills *error through FAIL or error_set. Unless its comment says otherwise, its outputs are then not to be used, and
// nothing in them is to be released. TRY passes a failure on; where something must be released first, use `goto` to
// labels in reverse order of acquisition. CHECK is for bugs (broken invariants), kept in release builds; never for bad
// input.
#ifndef BASE_BASE_H
#define BASE_BASE_H

#include "trireme.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARRAY_LENGTH(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
// The order of two keys, for qsort: -1, 0 or 1. With a second key: COMPARE(x->a, y->a) ?: COMPARE(x->b, y->b).
#define COMPARE(a, b) (((a) > (b)) - ((a) < (b)))
void sort_ints(int *item, size_t count);       // ascending
void sort_doubles(double *item, size_t count); // ascending; none may be NaN
// n / by, rounded up, and the smallest multiple that is not below n; n >= 0.
static inline int64_t divide_up(int64_t n, int64_t by) {
    return (n + by - 1) / by;
}
static inline int64_t round_up(int64_t n, int64_t multiple) {
    return divide_up(n, multiple) * multiple;
}
// Binary search (C++'s partition_point): the number of indices i below `count` for which `condition`, an expression in
// i, holds. It must hold for all indices up to some point and for none after it.
#define PARTITION_POINT(i, count, condition)         \
    ({                                               \
        size_t point_low = 0, point_high = (count);  \
        while (point_low < point_high) {             \
            size_t i = (point_low + point_high) / 2; \
            if (condition)                           \
                point_low = i + 1;                   \
            else                                     \
                point_high = i;                      \
        }                                            \
        point_low;                                   \
    })

// In the next two functions `error` may be NULL: then they only return `status`.
// Fills *error and returns `status`, so that a caller can write `return error_set(...)`.
trireme_status error_set(trireme_error *error, trireme_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Puts the formatted text and ": " before the message already in *error, and returns `status`, which came with it.
trireme_status error_prefix(trireme_error *error, trireme_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// A copy to keep; the caller frees.
trireme_error *error_copy(const trireme_error *error);
// Fills *error with one that was kept, and returns its status.
static inline trireme_status error_repeat(trireme_error *error, const trireme_error *kept) {
    *error = *kept;
    return kept->status;
}

// Where ranks are processes: which of them reports a failure, kept in error->reserved. error_set says
// ERROR_REPORTED_HERE.
enum error_reporter {
    ERROR_REPORTED_HERE,
    ERROR_REPORTED_BY_OTHER,    // another rank reports it
    ERROR_REPORTED_BY_LAUNCHER, // the launcher is ending this process, since another one has reported something
};
static inline void error_leave_to(trireme_error *error, enum error_reporter reporter) {
    error->reserved = (int32_t)reporter;
}
static inline void error_leave_to_other(trireme_error *error) {
    error_leave_to(error, ERROR_REPORTED_BY_OTHER);
}
static inline bool error_is_reported_here(const trireme_error *error) {
    return error->reserved == (int32_t)ERROR_REPORTED_HERE;
}

#define FAIL(status, ...) return error_set(error, (status), __VA_ARGS__)
#define TRY(expression)                           \
    do {                                          \
        trireme_status try_status = (expression); \
        if (try_status != TRIREME_OK)             \
            return try_status;                    \
    } while (0)

_Noreturn void bug(const char *file, int line, const char *what);
#define CHECK(condition) ((condition) ? (void)0 : bug(__FILE__, __LINE__, #condition))

// Memory for bookkeeping: never NULL. Where the system refuses it, a call of the library has a reserve with which it
// goes on until it can fail (base/reserve.h); else the process ends, with a line on stderr that says so. Large regions
// (arenas, file buffers) come from region_create, which reports failure.
void *mem_alloc(size_t bytes);                     // zeroed
void *mem_resize(void *p, size_t bytes);           // contents kept, what is added not zeroed
void *mem_aligned(size_t alignment, size_t bytes); // not zeroed
char *mem_strdup(const char *s);
// Sets what ends the process then, given the bytes that were refused; if it returns, or nothing was set: abort().
void mem_at_end(void (*end)(size_t bytes));
char *mem_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *mem_vprintf(const char *format, va_list args);

// Growable array: struct { T *item; size_t count, capacity; }, zero-initialised. An unnamed member `VEC(T);` makes the
// structure around it such an array. VEC_PUSH and VEC_RESERVE are statements, not expressions.
#define VEC(T)           \
    struct {             \
        T *item;         \
        size_t count;    \
        size_t capacity; \
    }
// Makes room for `n` items in all. Capacity at least doubles, so that growing by one item at a time is cheap.
#define VEC_RESERVE(v, n)                                                         \
    do {                                                                          \
        size_t vec_needed = (n);                                                  \
        if (vec_needed > (v)->capacity) {                                         \
            (v)->capacity = MAX(vec_needed, MAX(16, 2 * (v)->capacity));          \
            (v)->item = mem_resize((v)->item, (v)->capacity * sizeof *(v)->item); \
        }                                                                         \
    } while (0)
#define VEC_PUSH(v, ...)                         \
    do {                                         \
        VEC_RESERVE((v), (v)->count + 1);        \
        (v)->item[(v)->count++] = (__VA_ARGS__); \
    } while (0)
// qsort must not be given NULL, which is what an array that never held anything has.
#define VEC_SORT(v, compare) ((v)->count ? qsort((v)->item, (v)->count, sizeof *(v)->item, (compare)) : (void)0)
#define VEC_RELEASE(v) (free((v)->item), (v)->item = NULL, (v)->count = (v)->capacity = 0)

#endif
