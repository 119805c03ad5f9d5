// Every way in which a kernel can run a call gives the bits of its default way, on every instruction set, and stays
// within its operands and workspace. Products prefetch everything that they should.
#include "kernels/choices.h"
#include "kernels/cpu/ask.h"
#include "kernels/cpu/isa.h"
#include "support/op_table.h"
#include "support/ops.h"
#include "support/sanitized.h"

#include "support/test.h"

struct outputs {
    uint8_t *bytes[OP_MAX_OUT];
};

static struct outputs copy_outputs(const struct op_instance *instance) {
    struct outputs copy = {0};
    for (int i = 0; i < instance->info->outputs; i++)
        if (instance->out[i].base) {
            copy.bytes[i] = mem_alloc(instance->out[i].bytes);
            memcpy(copy.bytes[i], instance->out[i].base, instance->out[i].bytes);
        }
    return copy;
}

static void restore_outputs(const struct op_instance *instance, const struct outputs *copy) {
    for (int i = 0; i < instance->info->outputs; i++)
        if (copy->bytes[i])
            memcpy(instance->out[i].base, copy->bytes[i], instance->out[i].bytes);
}

static bool same_outputs(const struct op_instance *instance, const struct outputs *copy) {
    bool same = true;
    for (int i = 0; i < instance->info->outputs; i++)
        same &= !copy->bytes[i] || memcmp(instance->out[i].base, copy->bytes[i], instance->out[i].bytes) == 0;
    return same;
}

static void release_outputs(struct outputs *copy) {
    for (int i = 0; i < OP_MAX_OUT; i++)
        free(copy->bytes[i]);
}

// Checks all ways of one call; returns which there are.
static unsigned check_call(const char *spec, const struct op_options *options, enum isa isa) {
    struct op_instance instance;
    trireme_error error;
    if (op_instance_create(&instance, table, spec, options, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    const struct kernel *kernel = &cpu_kernel_table_for(options->model, isa)[instance.info->op];
    const unsigned ways = kernel->ways(&instance.call);
    assert_true(ways & 1U << WAY_RULE && ways < 1U << KERNEL_WAYS);
    struct outputs before = copy_outputs(&instance), meant = {0};
    for (enum kernel_way way = WAY_RULE; way < KERNEL_WAYS; way++) {
        if (!(ways >> way & 1))
            continue;
        restore_outputs(&instance, &before);
        instance.call.way = way;
        if (op_instance_run(&instance, kernel, &error) != TRIREME_OK)
            fail_msg("%s %s, %s, %d threads: %s", spec, dtype_name(options->model), kernel_way_name(way),
                     options->threads, error.message);
        if (way == WAY_RULE)
            meant = copy_outputs(&instance);
        else if (!same_outputs(&instance, &meant))
            fail_msg("%s %s, %s, %d threads%s: %s has other bits than the rule", spec, dtype_name(options->model),
                     isa_name(isa), options->threads, options->accumulate ? ", accumulating" : "",
                     kernel_way_name(way));
    }
    release_outputs(&before);
    release_outputs(&meant);
    op_instance_release(&instance);
    return ways;
}

// In half of the cases bias and residual are absent, or the sums of the rows.
static unsigned check_shape(const char *spec, int cases, enum isa isa) {
    unsigned ways = 0;
    for (int k = 0; k < cases; k++) {
        struct op_options options = {.model = k & 1 ? DTYPE_BF16 : DTYPE_F32, .seed = 3, .threads = 1 + k % 3};
        options.accumulate = k >> 1 & 1;
        options.strided = k >> 2 & 1;
        options.absent = k & 4 ? 0x2000c : 0;
        ways |= check_call(spec, &options, isa);
    }
    return ways;
}

static void all_ways_give_the_bits_of_the_rule(void **state) {
    (void)state;
    // Few rows and many, odd extents, one block of k and several, panels shared evenly and not.
    static const char *const specs[] = {
        "matmul m=40 k=200 n=600",   "matmul m=17 k=31 n=49",     "matmul m=67 k=129 n=101",
        "matmul m=530 k=41 n=100",   "matmul m=1 k=33 n=70",      "matmul_dx m=7 n=33 k=25",
        "matmul_dx m=90 n=70 k=151", "matmul_dx m=530 n=19 k=75", "matmul_dw m=33 n=19 k=50",
        "matmul_dw m=75 n=700 k=37", "matmul_dw m=530 n=41 k=70", "logits_times m=35 n=90 k=50",
    };
    static const char *const large[] = {"matmul m=100 k=6301 n=60", "matmul_dw m=3500 n=20 k=650",
                                        "matmul m=1030 k=900 n=600"};
    for (enum isa isa = ISA_BASE; isa < ISA_COUNT; isa++) {
        unsigned ways = 0;
        for (size_t i = 0; i < ARRAY_LENGTH(specs) && isa_usable(isa); i++)
            ways |= check_shape(specs[i], SANITIZED ? 2 : 8, isa);
        for (size_t i = 0; i < ARRAY_LENGTH(large) && isa_usable(isa); i++)
            ways |= check_shape(large[i], 2, isa);
        if (isa_usable(isa))
            assert_int_equal(ways, (1U << KERNEL_WAYS) - 1);
    }
}

static struct tensor nothing(int64_t rows, int64_t columns) {
    return (struct tensor){.dtype = DTYPE_F32, .ndim = 2, .dim = {rows, columns}, .stride = {columns, 1}};
}

// Calls without rows or columns.
static void a_product_of_nothing_has_one_way(void **state) {
    (void)state;
    static const int64_t SIZES[][3] = {{0, 70, 50}, {40, 0, 50}, {40, 0, 0}, {0, 0, 0}}; // m, n, k
    for (size_t i = 0; i < ARRAY_LENGTH(SIZES); i++)
        for (enum isa isa = ISA_BASE; isa < ISA_COUNT; isa++) {
            const int64_t m = SIZES[i][0], n = SIZES[i][1], k = SIZES[i][2];
            struct call call = {.op = OP_MATMUL, .inputs = 2, .outputs = 1, .threads = 2};
            call.in[0] = nothing(m, k), call.in[1] = nothing(n, k), call.out[0] = nothing(m, n);
            if (isa_usable(isa))
                assert_int_equal(cpu_kernel_table_for(DTYPE_F32, isa)[call.op].ways(&call), 1U << WAY_RULE);
        }
}

// Products that prefetch, in turn, parts of what comes next: line after line, each once, to the end.
static void parts_ask_for_all_lines(void **state) {
    (void)state;
    static const int64_t BYTES[] = {64, 4096, 147456, 100000}, PARTS[] = {1, 3, 16}, UNITS[] = {0, 1, 16, 100, 768};
    static const char memory[1];
    for (size_t n = 0; n < ARRAY_LENGTH(BYTES) * ARRAY_LENGTH(PARTS) * ARRAY_LENGTH(UNITS); n++) {
        const int64_t bytes = BYTES[n % 4], parts = PARTS[n / 4 % 3], units = UNITS[n / 12], least = MAX(units, 1);
        int64_t end = 0;
        for (int64_t part = 0; part < parts; part++) {
            struct ask ask = ask_part(memory, bytes, part, parts, units);
            assert_true(ask.lines == 0 ? end >= bytes : ask.next == memory + end);
            for (int64_t k = 0; k < least; k += ASK_UNITS)
                end += ASK_LINE * ask.lines;
        }
        assert_true(end >= bytes && end < bytes + ASK_LINE * parts * (least / ASK_UNITS + 1) + ASK_LINE);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_ways_give_the_bits_of_the_rule),
                                       cmocka_unit_test(a_product_of_nothing_has_one_way),
                                       cmocka_unit_test(parts_ask_for_all_lines)};
    return cmocka_run_group_tests(tests, op_table_setup, op_table_teardown);
}
