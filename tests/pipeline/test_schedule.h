// What the tests of pipeline schedules share: making schedules by name and from text.
#ifndef TESTS_PIPELINE_TEST_SCHEDULE_H
#define TESTS_PIPELINE_TEST_SCHEDULE_H

#include "pipeline/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static inline void assert_ok(trireme_status status, const trireme_error *error) {
    if (status != TRIREME_OK)
        fail_msg("status %d: %s", status, error->message);
}

static inline struct schedule created_with(const char *name, int stages, int microbatches,
                                           struct schedule_options options) {
    struct schedule s;
    trireme_error error = {0};
    assert_ok(schedule_create(&s, name, stages, microbatches, &options, &error), &error);
    return s;
}

static inline struct schedule created(const char *name, int stages, int microbatches) {
    return created_with(name, stages, microbatches, (struct schedule_options){0});
}

static inline struct schedule interleaved(int stages, int microbatches, int chunks) {
    return created_with("interleaved", stages, microbatches, (struct schedule_options){.chunks = chunks});
}

static inline struct schedule parsed(const char *text) {
    struct schedule s;
    trireme_error error = {0};
    assert_ok(schedule_parse(&s, text, strlen(text), &error), &error);
    return s;
}

// Two ranks, folded, one of them with backwards in parts.
#define V_TEXT                                  \
    "placement 0 1 1 0\n"                       \
    "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 B0.0 B1.0\n" \
    "F0.0 F0.1 F1.0 I0.1 F1.1 I0.0 W0.1 B1.1 W0.0 B1.0\n"

#endif
