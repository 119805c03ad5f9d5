// cmocka, with the headers that it needs before it; and the larger of two distances.
#ifndef SUPPORT_TEST_H
#define SUPPORT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

// The larger of two distances. One that is not a number is the largest of all.
static inline double farther(double a, double b) {
    return b <= a || a != a ? a : b;
}

#endif
