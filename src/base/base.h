// base/: what every other folder may use: errors, memory, text, JSON, hashes, random numbers, clock, threads. Includes
// no other folder.
//
// Error handling. A function that can fail returns trireme_status and takes `trireme_error *error` last; on failure it
// fills *error through FAIL or error_set and leaves its outputs untouched. TRY passes a failure on; where something
// must be released first, use `goto` to labels in reverse order of acquisition. CHECK is for bugs (broken invariants),
// kept in release builds; never for bad input.
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
// Of two keys, for qsort: -1, 0 or 1. COMPARE(x->a, y->a) ?: COMPARE(x->b, y->b) where the first may be equal.
#define COMPARE(a, b) (((a) > (b)) - ((a) < (b)))
void sort_ints(int *item, size_t count);       // the least first
void sort_doubles(double *item, size_t count); // the same; no NaN
// How many of `by` cover n, and the first multiple from n on; n >= 0.
static inline int64_t divide_up(int64_t n, int64_t by) {
    return (n + by - 1) / by;
}
static inline int64_t round_up(int64_t n, int64_t multiple) {
    return divide_up(n, multiple) * multiple;
}
// Where `condition`, which speaks of number `i`, holds for the first of `count` and for none behind them: how many
// those are (C++'s partition_point).
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

// `error` may be NULL in these two: then the status alone is returned.
// Fills *error and returns `status`, so that a caller can write `return error_set(...)`.
trireme_status error_set(trireme_error *error, trireme_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Puts "prefix: " before the message that is already there, and returns `status`, which came with it.
trireme_status error_prefix(trireme_error *error, trireme_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define FAIL(status, ...) return error_set(error, (status), __VA_ARGS__)
#define TRY(expression)                           \
    do {                                          \
        trireme_status try_status = (expression); \
        if (try_status != TRIREME_OK)             \
            return try_status;                    \
    } while (0)

_Noreturn void bug(const char *file, int line, const char *what);
#define CHECK(condition) ((condition) ? (void)0 : bug(__FILE__, __LINE__, #condition))

// Bookkeeping memory: never returns NULL (running out of it ends the process, with a line that says so).
// Large regions (arenas, file buffers) go through region_create, which reports failure.
void *mem_alloc(size_t bytes);                     // zeroed
void *mem_resize(void *p, size_t bytes);           // contents kept, tail not zeroed
void *mem_aligned(size_t alignment, size_t bytes); // not zeroed
char *mem_strdup(const char *s);
char *mem_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *mem_vprintf(const char *format, va_list args);

// Growable array: struct { T *item; size_t count, capacity; }. A member without a name, `VEC(T);`, makes the structure
// around it one. VEC_PUSH and VEC_RESERVE evaluate to nothing.
#define VEC(T)           \
    struct {             \
        T *item;         \
        size_t count;    \
        size_t capacity; \
    }
// Room for `n` items in all, and for as many again as there was: room for one more at a time costs little.
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
// qsort, which must not be given the NULL of an array that never had anything.
#define VEC_SORT(v, compare) ((v)->count ? qsort((v)->item, (v)->count, sizeof *(v)->item, (compare)) : (void)0)
#define VEC_RELEASE(v) (free((v)->item), (v)->item = NULL, (v)->count = (v)->capacity = 0)

#endif
