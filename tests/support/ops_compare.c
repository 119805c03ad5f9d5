// Compares a kernel with the reference, and the reference in one dtype with itself in f64.
#include "kernels/ref/tensor.h"
#include "support/ops_internal.h"

#include <math.h>

// Largest difference accepted, as a part of the largest magnitude in the reference's output. The reference sums in
// double and rounds once. f32: 64 roundings' worth, for sums in another order and elementary functions of a few units
// in the last place. bf16: one unit in the last place, for a rounding that falls to the other side. f64: scalars summed
// in another order. NaN is never right.
static double tolerance(enum dtype dtype) {
    switch (dtype) {
    case DTYPE_F32:
        return 64 * 0x1p-24;
    case DTYPE_BF16:
        return 0x1p-7;
    case DTYPE_F64:
        return 0x1p-40;
    default:
        return 0;
    }
}

static bool is_remainder(const struct op_operand *operand) {
    return operand->dtype == 'U';
}

// What lies at a position of output `i`; a bf16 parameter with a remainder is compared as the f32 that the two make.
static double output_value(const struct op_instance *instance, int i, int64_t at, enum dtype *dtype) {
    const struct tensor *t = &instance->call.out[i];
    *dtype = t->dtype;
    if (i + 1 < instance->info->outputs && is_remainder(&instance->info->out[i + 1])) {
        const struct tensor *rem = &instance->call.out[i + 1];
        *dtype = DTYPE_F32;
        if (rem->data)
            return master_join(((const uint16_t *)t->data)[at], ((const uint16_t *)rem->data)[at]);
    }
    return tensor_get(t, at);
}

static double largest_magnitude(const struct op_instance *instance, int i) {
    double largest = 0;
    enum dtype dtype;
    const struct tensor *t = &instance->call.out[i];
    const int64_t count = tensor_elements(t), run = tensor_run(t);
    for (int64_t first = 0; first < count; first += run) {
        int64_t at = tensor_position(t, first);
        for (int64_t k = 0; k < run; k++) {
            double y = output_value(instance, i, at + k, &dtype);
            largest = isfinite(y) ? fmax(largest, fabs(y)) : largest;
        }
    }
    return largest;
}

// `part`: of the tolerance; 0 asks for equality; `accepted`: as in op_options. Outputs that are absent on one side are
// absent on the other. Where all of an output is zero because what it sums cancels (the gradient of a query that sees
// one key), the other outputs set the scale.
static trireme_status compare_outputs(const struct op_instance *got, const struct op_instance *expected, double part,
                                      double accepted_f32, trireme_error *error) {
    for (int i = 0; i < got->info->outputs; i++) {
        const struct op_operand *operand = &got->info->out[i];
        if (!got->call.out[i].data || is_remainder(operand))
            continue;
        double largest = largest_magnitude(expected, i);
        for (int other = 0; largest == 0 && other < got->info->outputs; other++)
            if (expected->call.out[other].data && !is_remainder(&got->info->out[other]))
                largest = largest_magnitude(expected, other);
        const struct tensor *x_of = &got->call.out[i], *y_of = &expected->call.out[i];
        const int64_t count = tensor_elements(x_of), run = tensor_run(x_of);
        for (int64_t first = 0; first < count; first += run) {
            int64_t x_at = tensor_position(x_of, first), y_at = tensor_position(y_of, first);
            for (int64_t k = 0; k < run; k++) {
                enum dtype dtype, expected_dtype;
                double x = output_value(got, i, x_at + k, &dtype);
                double y = output_value(expected, i, y_at + k, &expected_dtype);
                const bool given = dtype == DTYPE_F32 && accepted_f32 > 0;
                double accepted = part * (given ? accepted_f32 : tolerance(dtype)) * largest;
                if (!(x == y || fabs(x - y) <= accepted))
                    FAIL(TRIREME_ERROR_CORRUPT,
                         "%s[%lld] is %.9g, should be %.9g (off by %.3g, accepted %.3g of largest %.3g)", operand->name,
                         (long long)(first + k), x, y, fabs(x - y), accepted, largest);
            }
        }
    }
    return TRIREME_OK;
}

int64_t op_instance_differs(const struct op_instance *a, const struct op_instance *b, int output) {
    const struct tensor *t = &a->call.out[output];
    const uint8_t *x = t->data, *y = b->call.out[output].data;
    if (!x)
        return NONE;
    const int64_t count = tensor_elements(t), run = tensor_run(t);
    const size_t size = (size_t)dtype_size(t->dtype);
    for (int64_t first = 0; first < count; first += run) {
        size_t at = (size_t)tensor_position(t, first) * size;
        if (memcmp(x + at, y + at, (size_t)run * size) == 0)
            continue;
        int64_t k = 0;
        while (memcmp(x + at + (size_t)k * size, y + at + (size_t)k * size, size) == 0)
            k++;
        return first + k;
    }
    return NONE;
}

static trireme_status compare_bits(const struct op_instance *a, const struct op_instance *b, trireme_error *error) {
    for (int i = 0; i < a->info->outputs; i++) {
        int64_t e = op_instance_differs(a, b, i);
        if (e != NONE)
            FAIL(TRIREME_ERROR_CORRUPT, "two runs differ in %s[%lld]", a->info->out[i].name, (long long)e);
    }
    return TRIREME_OK;
}

static trireme_status describe_failure(const char *spec, const struct op_options *o, trireme_status status,
                                       trireme_error *error) {
    if (status != TRIREME_OK)
        error_prefix(error, status, "%s (%s, %d threads%s%s%s, absent %#x)", spec, dtype_name(o->model), o->threads,
                     o->accumulate ? ", accumulating" : "", o->strided ? ", strided" : "",
                     o->inplace ? ", in place" : "", o->absent);
    return status;
}

trireme_status op_compare(const struct op_table *table, const char *spec, const struct op_options *options,
                          const struct kernel *kernel, bool exact, trireme_error *error) {
    struct op_instance first = {0}, second = {0}, expected = {0};
    struct op_options plain = *options;
    plain.strided = plain.inplace = false;
    plain.threads = 1;
    trireme_status status = op_instance_create(&first, table, spec, options, error);
    if (status == TRIREME_OK) {
        op_instance_copy(&second, &first);
        status = op_instance_create(&expected, table, spec, &plain, error);
    }
    if (status == TRIREME_OK)
        status = op_instance_run(&first, kernel, error);
    if (status == TRIREME_OK)
        status = op_instance_run(&second, kernel, error);
    if (status == TRIREME_OK) {
        struct kernel reference = reference_of(expected.info->op);
        status = op_instance_run(&expected, &reference, error);
    }
    if (status == TRIREME_OK)
        status = compare_bits(&first, &second, error);
    if (status == TRIREME_OK)
        status = compare_outputs(&first, &expected, exact ? 0 : 1, options->accepted, error);
    op_instance_release(&first);
    op_instance_release(&second);
    op_instance_release(&expected);
    return describe_failure(spec, options, status, error);
}

// Gives `wide` the values that `narrow` has for inputs; a remainder becomes part of the parameter before it.
static void copy_inputs(const struct op_instance *narrow, const struct op_instance *wide) {
    for (int i = 0; i < narrow->info->inputs; i++) {
        const struct tensor *from = &narrow->call.in[i], *to = &wide->call.in[i];
        if (!to->data)
            continue;
        const struct tensor *rem =
            i + 1 < narrow->info->inputs && is_remainder(&narrow->info->in[i + 1]) ? &narrow->call.in[i + 1] : NULL;
        if (!rem || !rem->data)
            tensor_copy(from, to);
        else
            for (int64_t e = 0; e < tensor_elements(to); e++)
                ((double *)to->data)[e] =
                    master_join(((const uint16_t *)from->data)[e], ((const uint16_t *)rem->data)[e]);
    }
}

trireme_status op_compare_dtypes(const struct op_table *table, const char *spec, enum dtype model,
                                 trireme_error *error) {
    struct op_options options = {.model = model, .threads = 1, .seed = 3};
    struct op_options wide_options = options;
    wide_options.model = DTYPE_F64;
    struct op_instance narrow = {0}, wide = {0};
    trireme_status status = op_instance_create(&narrow, table, spec, &options, error);
    if (status == TRIREME_OK)
        status = op_instance_create(&wide, table, spec, &wide_options, error);
    if (status == TRIREME_OK) {
        copy_inputs(&narrow, &wide);
        struct kernel reference = reference_of(narrow.info->op);
        status = op_instance_run(&narrow, &reference, error);
        if (status == TRIREME_OK)
            status = op_instance_run(&wide, &reference, error);
    }
    // bf16: a quarter of the tolerance is one rounding; f32: a sixteenth is four (sums of few terms in the output
    // itself).
    if (status == TRIREME_OK)
        status = compare_outputs(&narrow, &wide, model == DTYPE_BF16 ? 0.5 : 1.0 / 16, 0, error);
    op_instance_release(&narrow);
    op_instance_release(&wide);
    return describe_failure(spec, &options, status, error);
}
