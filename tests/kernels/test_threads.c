// Matrix products and attention give the same bits with any number of threads; and all kernels reuse the same threads.
#include "kernels/cpu/isa.h"
#include "support/ops_internal.h"

#include <dirent.h>

#include "support/test.h"

static bool is_checked(enum op op) {
    return op == OP_MATMUL || op == OP_MATMUL_DX || op == OP_MATMUL_DW || op == OP_ATTENTION ||
           op == OP_ATTENTION_BWD || op == OP_ATTENTION_BLOCK || op == OP_ATTENTION_BLOCK_BWD ||
           op == OP_ATTENTION_SINKS_DW || op == OP_ATTENTION_CACHED;
}

static void assert_same(const struct op_instance *a, const struct op_instance *b, const char *spec, int threads) {
    for (int i = 0; i < a->info->outputs; i++) {
        int64_t e = op_instance_differs(a, b, i);
        if (e != NONE)
            fail_msg("%s: %s[%lld] with %d threads differs from that with one", spec, a->info->out[i].name,
                     (long long)e, threads);
    }
}

static void check_case(const struct op_table *table, const char *spec, enum op op, enum dtype model, enum isa isa) {
    struct kernel kernel = cpu_kernel_table_for(model, isa)[op];
    struct op_instance alone = {0};
    for (int threads = 1; threads <= 7; threads += 2) {
        struct op_options options = {.model = model, .seed = 3, .threads = threads};
        struct op_instance several = {0}, *instance = threads == 1 ? &alone : &several;
        trireme_error error = {0};
        if (op_instance_create(instance, table, spec, &options, &error) != TRIREME_OK ||
            op_instance_run(instance, &kernel, &error) != TRIREME_OK)
            fail_msg("%s", error.message);
        if (threads > 1)
            assert_same(&alone, &several, spec, threads);
        op_instance_release(&several);
    }
    op_instance_release(&alone);
}

static void any_number_of_threads_gives_the_same_bits(void **state) {
    (void)state;
    struct op_table *table = op_table_create();
    int checked = 0;
    for (size_t i = 0; i < op_case_count; i++) {
        enum op op = op_case_op(table, &op_cases[i]);
        if (!is_checked(op) || !(op_cases[i].uses & OPS_COMPARE))
            continue;
        for (enum isa isa = ISA_BASE; isa < ISA_COUNT; isa++)
            for (int m = 0; m < 2 && isa_usable(isa); m++)
                check_case(table, op_cases[i].spec, op, m ? DTYPE_BF16 : DTYPE_F32, isa);
        checked++;
    }
    assert_true(checked > 20);
    free(table);
}

// ---- the team

enum { TEAM = 16 };

struct thread_ids {
    int id[64];
    size_t count;
};

static struct thread_ids thread_ids(void) {
    struct thread_ids ids = {.count = 0};
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *task; (task = readdir(tasks));)
        if (task->d_name[0] != '.') {
            assert_true(ids.count < ARRAY_LENGTH(ids.id));
            ids.id[ids.count++] = atoi(task->d_name);
        }
    closedir(tasks);
    return ids;
}

static void run_with_team(const struct op_table *table, const char *spec) {
    const struct op_case one = {.spec = spec};
    const struct op_options options = {.model = DTYPE_F32, .seed = 3, .threads = TEAM};
    const struct kernel kernel = cpu_kernel_table_for(DTYPE_F32, isa_best())[op_case_op(table, &one)];
    struct op_instance instance;
    trireme_error error;
    if (op_instance_create(&instance, table, spec, &options, &error) != TRIREME_OK ||
        op_instance_run(&instance, &kernel, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    op_instance_release(&instance);
}

// Work for fewer than TEAM threads, but enough to be shared.
static const char *const few[] = {
    "square_sum n=40000",
    "adamw n=40000 beta1=0.9 beta2=0.95 eps=1e-8 weight_decay=0.1",
    "layernorm m=7 C=5000 eps=1e-5",
    "layernorm_bwd m=70 C=771 eps=1e-5",
    "embed_dw v=40 m=600 C=64",
    "matmul m=5 k=768 n=50",
    "matmul m=40 k=768 n=50",
    "matmul_dw m=40 k=768 n=50",
};

// A thread that a smaller team left out would be gone, and another made in its place that is not pinned.
static void small_work_keeps_the_threads(void **state) {
    (void)state;
    struct op_table *table = op_table_create();
    run_with_team(table, "square_sum n=1000000");
    const struct thread_ids team = thread_ids();
    assert_true(team.count >= TEAM);
    for (size_t i = 0; i < ARRAY_LENGTH(few); i++) {
        run_with_team(table, few[i]);
        const struct thread_ids now = thread_ids();
        if (now.count != team.count || memcmp(now.id, team.id, team.count * sizeof *team.id) != 0)
            fail_msg("%s: threads are others afterwards", few[i]);
    }
    free(table);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
                                       cmocka_unit_test(small_work_keeps_the_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
