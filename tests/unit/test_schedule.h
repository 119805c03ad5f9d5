// What the tests of pipeline schedules share: tables by name and by text, and some that the library does not make.
#ifndef TESTS_UNIT_TEST_SCHEDULE_H
#define TESTS_UNIT_TEST_SCHEDULE_H

#include "parallel/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static inline void assert_ok(trireme_status status, const trireme_error *error) {
    if (status != TRIREME_OK)
        fail_msg("status %d: %s", status, error->message);
}

static inline struct schedule created(const char *name, int stages, int microbatches) {
    struct schedule s;
    trireme_error error = {0};
    assert_ok(schedule_create(&s, name, stages, microbatches, 1, &error), &error);
    return s;
}

static inline struct schedule parsed(const char *text) {
    struct schedule s;
    trireme_error error = {0};
    assert_ok(schedule_parse(&s, text, strlen(text), &error), &error);
    return s;
}

// ---- schedules of one's own, made with the same two functions that the library's are

// ZB-H1 (depth 1) and ZB-H2 (depth 2) of Qi et al., "Zero Bubble Pipeline Parallelism".
static inline struct schedule zero_bubble(int p, int m, int depth) {
    struct schedule s;
    schedule_begin(&s, p, m, 1, NULL);
    for (int i = 0; i < p; i++) {
        int ahead = MIN(depth * (p - 1 - i), m), w = 0, b = 0;
        for (int f = 0; f < ahead; f++)
            schedule_add(&s, i, PASS_FORWARD, 0, f);
        for (int f = ahead; f < m; f++) {
            schedule_add(&s, i, PASS_FORWARD, 0, f);
            schedule_add(&s, i, PASS_BACKWARD_INPUT, 0, b++);
            if (b - w > depth * i)
                schedule_add(&s, i, PASS_BACKWARD_WEIGHT, 0, w++);
        }
        while (b < m) {
            schedule_add(&s, i, PASS_BACKWARD_INPUT, 0, b++);
            schedule_add(&s, i, PASS_BACKWARD_WEIGHT, 0, w++);
        }
        while (w < m)
            schedule_add(&s, i, PASS_BACKWARD_WEIGHT, 0, w++);
    }
    return s;
}

// Megatron-LM's interleaved 1F1B; p divides m.
static inline struct schedule interleaved(int p, int m, int v) {
    struct schedule s;
    schedule_begin(&s, p, m, v, NULL);
    for (int i = 0; i < p; i++) {
        int all = m * v, ahead = MIN(2 * (p - 1 - i) + (v - 1) * p, all);
        for (int k = 0; k < all + ahead; k++) {
            int b = k - ahead;
            if (k < all)
                schedule_add(&s, i, PASS_FORWARD, k % (p * v) / p, k / (p * v) * p + k % p);
            if (b >= 0)
                schedule_add(&s, i, PASS_BACKWARD, v - 1 - b % (p * v) / p, b / (p * v) * p + b % p);
        }
    }
    return s;
}

// Two ranks, folded, one of them with backwards in parts.
#define V_TEXT                                  \
    "placement 0 1 1 0\n"                       \
    "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 B0.0 B1.0\n" \
    "F0.0 F0.1 F1.0 I0.1 F1.1 I0.0 W0.1 B1.1 W0.0 B1.0\n"

#endif
