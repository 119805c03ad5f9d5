#include "kernels/cpu/reduction_loops.h"

#include "base/bf16.h"

// One loop over n elements; `expression` sees the elements a (accumulator), x and y.
#define LOOP_TWO(name, accumulated, element, expression)                                                        \
    static void name(void *restrict accumulator, const void *restrict xs, const void *restrict ys, int64_t n) { \
        accumulated *to = accumulator;                                                                          \
        const element *px = xs, *py = ys;                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                       \
            element x = px[i], y = py[i];                                                                       \
            to[i] = (expression);                                                                               \
        }                                                                                                       \
    }
#define LOOP_ONE(name, accumulated, element, expression)                               \
    static void name(void *restrict accumulator, const void *restrict xs, int64_t n) { \
        accumulated *to = accumulator;                                                 \
        const element *px = xs;                                                        \
        for (int64_t i = 0; i < n; i++) {                                              \
            accumulated a = to[i];                                                     \
            element x = px[i];                                                         \
            to[i] = (expression);                                                      \
        }                                                                              \
    }
#define LOOP_MOVE(name, to_type, from_type, expression)                           \
    static void name(void *restrict tos, const void *restrict froms, int64_t n) { \
        to_type *to = tos;                                                        \
        const from_type *from = froms;                                            \
        for (int64_t i = 0; i < n; i++) {                                         \
            from_type x = from[i];                                                \
            to[i] = (expression);                                                 \
        }                                                                         \
    }
// The later operand where it is greater or a NaN; a NaN that is there already stays, since nothing is greater.
#define MAX_OF(a, x) ((x) > (a) || (x) != (x) ? (x) : (a))

static inline float loops_rounded(float x) {
    return bf16_to_float(bf16_from_float(x));
}

static inline float max_float(float a, float x) {
    return MAX_OF(a, x);
}

static inline double max_double(double a, double x) {
    return MAX_OF(a, x);
}

LOOP_TWO(f32_sum_two, float, float, x + y)
LOOP_TWO(f32_max_two, float, float, max_float(x, y))
LOOP_ONE(f32_sum, float, float, a + x)
LOOP_ONE(f32_max, float, float, max_float(a, x))
LOOP_MOVE(f32_load, float, float, x)

LOOP_TWO(wire_sum_two, float, float, loops_rounded(x) + loops_rounded(y))
LOOP_TWO(wire_max_two, float, float, max_float(loops_rounded(x), loops_rounded(y)))
LOOP_ONE(wire_sum, float, float, a + loops_rounded(x))
LOOP_ONE(wire_max, float, float, max_float(a, loops_rounded(x)))
LOOP_MOVE(wire_load, float, float, loops_rounded(x))

LOOP_TWO(bf16_sum_two, float, uint16_t, bf16_to_float(x) + bf16_to_float(y))
LOOP_TWO(bf16_max_two, float, uint16_t, max_float(bf16_to_float(x), bf16_to_float(y)))
LOOP_ONE(bf16_sum, float, uint16_t, a + bf16_to_float(x))
LOOP_ONE(bf16_max, float, uint16_t, max_float(a, bf16_to_float(x)))
LOOP_MOVE(bf16_load, float, uint16_t, bf16_to_float(x))
LOOP_MOVE(bf16_store, uint16_t, float, bf16_from_float(x))

LOOP_TWO(f64_sum_two, double, double, x + y)
LOOP_TWO(f64_max_two, double, double, max_double(x, y))
LOOP_ONE(f64_sum, double, double, a + x)
LOOP_ONE(f64_max, double, double, max_double(a, x))
LOOP_MOVE(f64_load, double, double, x)

// Unsigned, so that a sum wraps around.
LOOP_TWO(i32_sum_two, uint32_t, uint32_t, x + y)
LOOP_TWO(i32_max_two, int32_t, int32_t, MAX(x, y))
LOOP_ONE(i32_sum, uint32_t, uint32_t, a + x)
LOOP_ONE(i32_max, int32_t, int32_t, MAX(a, x))
LOOP_MOVE(i32_load, uint32_t, uint32_t, x)

static const struct reduction_loops F32 = {.size = 4,
                                           .sum_two = f32_sum_two,
                                           .max_two = f32_max_two,
                                           .sum = f32_sum,
                                           .max = f32_max,
                                           .load = f32_load,
                                           .add = f32_sum};
static const struct reduction_loops F32_WIRE = {.size = 4,
                                                .sum_two = wire_sum_two,
                                                .max_two = wire_max_two,
                                                .sum = wire_sum,
                                                .max = wire_max,
                                                .load = wire_load,
                                                .add = f32_sum,
                                                .store_wire = wire_load};
static const struct reduction_loops BF16 = {.size = 2,
                                            .sum_two = bf16_sum_two,
                                            .max_two = bf16_max_two,
                                            .sum = bf16_sum,
                                            .max = bf16_max,
                                            .load = bf16_load,
                                            .add = bf16_sum,
                                            .store = bf16_store,
                                            .store_wire = bf16_store};
static const struct reduction_loops F64 = {.size = 8,
                                           .sum_two = f64_sum_two,
                                           .max_two = f64_max_two,
                                           .sum = f64_sum,
                                           .max = f64_max,
                                           .load = f64_load,
                                           .add = f64_sum};
static const struct reduction_loops I32 = {.size = 4,
                                           .sum_two = i32_sum_two,
                                           .max_two = i32_max_two,
                                           .sum = i32_sum,
                                           .max = i32_max,
                                           .load = i32_load,
                                           .add = i32_sum};

const struct reduction_loops *ISA(cpu_reduction_loops)(enum dtype dtype, enum dtype wire);

const struct reduction_loops *ISA(cpu_reduction_loops)(enum dtype dtype, enum dtype wire) {
    switch (dtype) {
    case DTYPE_F32:
        return wire == DTYPE_BF16 ? &F32_WIRE : &F32;
    case DTYPE_BF16:
        return &BF16;
    case DTYPE_F64:
        return &F64;
    default:
        CHECK(dtype == DTYPE_I32);
        return &I32;
    }
}
