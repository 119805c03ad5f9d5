// Nothing is allocated during a step: malloc and its kin, and mmap, are replaced by ones that count.
#include "support/models.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) || \
    __has_feature(thread_sanitizer) || !defined(__GLIBC__)
int main(void) {
    return 77; // a sanitizer has replaced malloc already; other C libraries have no other name for theirs
}
#else

#define SEEN_BY_LIBRARIES __attribute__((visibility("default")))

static atomic_bool counting;
static atomic_int allocations;

// LLVM's OpenMP allocates and frees memory of its own for each loop with a dynamic schedule.
static bool is_llvm_openmp(const void *caller) {
    Dl_info info;
    return dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, "/libomp.so");
}

static void count_for(const void *caller) {
    if (atomic_load(&counting) && !is_llvm_openmp(caller))
        atomic_fetch_add(&allocations, 1);
}
#define count() count_for(__builtin_return_address(0))

// glibc's own functions, under their second names.
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

SEEN_BY_LIBRARIES void *malloc(size_t bytes) {
    count();
    return __libc_malloc(bytes);
}

SEEN_BY_LIBRARIES void *calloc(size_t n, size_t bytes) {
    count();
    return __libc_calloc(n, bytes);
}

SEEN_BY_LIBRARIES void *realloc(void *p, size_t bytes) {
    count();
    return __libc_realloc(p, bytes);
}

SEEN_BY_LIBRARIES void *memalign(size_t alignment, size_t bytes);
SEEN_BY_LIBRARIES void *memalign(size_t alignment, size_t bytes) {
    count();
    return __libc_memalign(alignment, bytes);
}

SEEN_BY_LIBRARIES void *aligned_alloc(size_t alignment, size_t bytes) {
    count();
    return __libc_memalign(alignment, bytes);
}

SEEN_BY_LIBRARIES int posix_memalign(void **out, size_t alignment, size_t bytes) {
    count();
    void *p = __libc_memalign(alignment, bytes);
    if (p)
        *out = p;
    return p ? 0 : ENOMEM;
}

SEEN_BY_LIBRARIES void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset);
SEEN_BY_LIBRARIES void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
    count();
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
}

// The counter works, also for what another library allocates.
static void test_counter(void **state) {
    (void)state;
    atomic_store(&allocations, 0);
    atomic_store(&counting, true);
    void *volatile copy = strdup("allocated inside the C library"); // or what nobody reads would not be asked for
    void *p = NULL;
    int failed = posix_memalign(&p, 64, 100);
    void *volatile aligned = p;
    atomic_store(&counting, false);
    assert_int_equal(failed, 0);
    assert_int_equal(atomic_load(&allocations), 2);
    free(copy);
    free(aligned);
}

static void check(enum small small, const char *dtype, const char *kernels, const char *recompute) {
    struct model_config model;
    struct config config;
    struct engine e;
    small_config(&model, small_models[small].json);
    const char *overrides[] = {
        dtype, kernels, recompute, "training.seq_len=64", "training.global_batch_size=4", "training.micro_batch_size=2",
        NULL};
    engine_open(&e, &config, &model, overrides);
    struct batch batch = batch_create(4, 64, model.vocab_size, 3);
    assert_true(batch_train(&e, &batch, 1e-3).finite); // starts the threads
    batch_evaluate(&e, &batch);
    for (int step = 0; step < 3; step++) {
        atomic_store(&allocations, 0);
        atomic_store(&counting, true);
        struct engine_result trained = batch_train(&e, &batch, 1e-3);
        batch_evaluate(&e, &batch);
        atomic_store(&counting, false);
        assert_true(trained.finite);
        if (atomic_load(&allocations))
            fail_msg("%s, %s, %s: %d allocations during a step", small_models[small].name, dtype, kernels,
                     atomic_load(&allocations));
    }
    batch_release(&batch);
    engine_release(&e);
    config_release(&config);
}

static void test_steps(void **state) {
    static const char *const DTYPES[] = {"training.dtype=f32", "training.dtype=bf16", "training.dtype=f64"};
    for (size_t i = 0; i < ARRAY_LENGTH(DTYPES); i++) {
        enum small small = (enum small)(intptr_t)*state;
        check(small, DTYPES[i], "training.kernels=fast", "activation_checkpoint.mode=none");
        check(small, DTYPES[i], "training.kernels=fast", "activation_checkpoint.mode=full");
        check(small, DTYPES[i], "training.kernels=reference", "activation_checkpoint.mode=none");
    }
}

int main(void) {
    struct CMUnitTest tests[SMALL_COUNT + 1];
    for (int i = 0; i < SMALL_COUNT; i++)
        tests[i] = (struct CMUnitTest){small_models[i].name, test_steps, NULL, NULL, (void *)(intptr_t)i};
    tests[SMALL_COUNT] = (struct CMUnitTest){"counter", test_counter, NULL, NULL, NULL};
    return cmocka_run_group_tests_name("allocation", tests, NULL, NULL);
}
#endif
