#include "kernels/cpu/isa.h"

#include "base/clock.h"
#include "base/text.h"
#include "kernels/cpu/fast_codecs.h"
#include "kernels/cpu/peak.h"
#include "kernels/cpu/reduction_loops.h"

#include <stdatomic.h>
#if defined(TRIREME_ISA_VARIANTS) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

// TRIREME_ISA_VARIANTS: cmake/isa.cmake compiles the x86 copies.
const struct kernel *cpu_table_base(enum dtype model);
const struct reduction_loops *cpu_reduction_loops_base(enum dtype dtype, enum dtype wire);
const struct codec_loops *cpu_codec_loops_base(enum codec codec);
#ifdef TRIREME_ISA_VARIANTS
const struct kernel *cpu_table_avx2(enum dtype model);
const struct kernel *cpu_table_avx512(enum dtype model);
const struct kernel *cpu_table_avx512bf16(enum dtype model);
const struct kernel *cpu_table_amx(enum dtype model);
const struct reduction_loops *cpu_reduction_loops_avx2(enum dtype dtype, enum dtype wire);
const struct reduction_loops *cpu_reduction_loops_avx512(enum dtype dtype, enum dtype wire);
const struct reduction_loops *cpu_reduction_loops_avx512bf16(enum dtype dtype, enum dtype wire);
const struct codec_loops *cpu_codec_loops_avx2(enum codec codec);
const struct codec_loops *cpu_codec_loops_avx512(enum codec codec);
const struct codec_loops *cpu_codec_loops_avx512bf16(enum codec codec);
#endif

const char *isa_name(enum isa isa) {
    static const char *const NAMES[ISA_COUNT] = {"base", "avx2", "avx512", "avx512bf16", "amx"};
    return isa < ISA_COUNT ? NAMES[isa] : "unknown";
}

#ifdef TRIREME_ISA_VARIANTS
// The registers of matrix units are 8 KiB, so Linux keeps them only for processes that ask (x86's arch_prctl).
static bool ask_for_matrix_units(void) {
#ifdef __linux__
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & AMX_BF16) && (d & AMX_TILE) &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0;
#else
    return false;
#endif
}

// Operations per second of one thread, for a moment: `before` or more.
static double bf16_rate(int64_t (*loop)(bool bf16, int64_t iterations), double before) {
    enum { ITERATIONS = 1000 };
    const int64_t begin = clock_now(), flops = ITERATIONS * loop(true, ITERATIONS);
    const double rate = (double)flops / (double)MAX(clock_now() - begin, 1);
    return MAX(before, rate);
}

// Whether products of bf16 pairs are faster than multiply-adds of f32. On AMD's cores they are twice as fast; on
// Intel's, which leave them to the matrix units, half as fast.
static bool isa_compare_pairs(void) {
    enum { ROUNDS = 20 }; // what interrupts some of them does not matter
    double pairs = 0, single = 0;
    for (int i = 0; i < ROUNDS; i++) {
        single = bf16_rate(peak_loop_avx512, single);
        pairs = bf16_rate(peak_loop_avx512bf16, pairs);
    }
    return pairs > single;
}

// Asks once: kernels are looked up for every instruction of a program.
static bool ask_once(atomic_int *known, bool (*ask)(void)) {
    enum { UNKNOWN, NO, YES };
    int answer = atomic_load(known);
    if (answer == UNKNOWN) {
        answer = ask() ? YES : NO;
        atomic_store(known, answer);
    }
    return answer == YES;
}

static bool has_matrix_units(void) {
    static atomic_int known;
    return ask_once(&known, ask_for_matrix_units);
}

static bool pairs_are_faster(void) {
    static atomic_int known;
    return ask_once(&known, isa_compare_pairs);
}
#endif

bool isa_usable(enum isa isa) {
    if (isa == ISA_BASE)
        return true;
#ifdef TRIREME_ISA_VARIANTS
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return false;
    if (isa == ISA_AVX2)
        return true;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return false;
    if (isa == ISA_AVX512)
        return true;
    return __builtin_cpu_supports("avx512bf16") && (isa == ISA_AVX512_BF16 || (isa == ISA_AMX && has_matrix_units()));
#else
    return false;
#endif
}

// ISA_COUNT: there is none of that name.
static enum isa isa_find(const char *name) {
    enum isa isa = ISA_BASE;
    while (isa < ISA_COUNT && strcmp(isa_name(isa), name) != 0)
        isa++;
    return isa;
}

trireme_status isa_check_limit(trireme_error *error) {
    const char *limit = getenv(ISA_LIMIT);
    if (!limit || !*limit || isa_find(limit) < ISA_COUNT)
        return TRIREME_OK;
    struct text names = {0};
    for (enum isa isa = ISA_BASE; isa < ISA_COUNT; isa++)
        text_add(&names, "%s%s", isa == ISA_BASE ? "" : isa + 1 < ISA_COUNT ? ", " : " or ", isa_name(isa));
    error_set(error, TRIREME_ERROR_USAGE, "%s=%s in the environment: expected %s", ISA_LIMIT, limit, names.text);
    text_release(&names);
    return TRIREME_ERROR_USAGE;
}

enum isa isa_best(void) {
    const char *limit = getenv(ISA_LIMIT);
    enum isa widest = limit ? isa_find(limit) : ISA_COUNT, best = ISA_BASE;
    for (enum isa isa = ISA_BASE; isa < ISA_COUNT && isa <= widest; isa++)
        if (isa_usable(isa))
            best = isa;
#ifdef TRIREME_ISA_VARIANTS
    if (best == ISA_AVX512_BF16 && widest != ISA_AVX512_BF16 && !pairs_are_faster())
        best = ISA_AVX512;
#endif
    return best;
}

const struct kernel *cpu_kernel_table(enum dtype model) {
    return cpu_kernel_table_for(model, isa_best());
}

const struct kernel *cpu_kernel_table_for(enum dtype model, enum isa isa) {
    CHECK(isa_usable(isa));
    switch (isa) {
#ifdef TRIREME_ISA_VARIANTS
    case ISA_AVX2:
        return cpu_table_avx2(model);
    case ISA_AVX512:
        return cpu_table_avx512(model);
    case ISA_AVX512_BF16:
        return cpu_table_avx512bf16(model);
    case ISA_AMX:
        return cpu_table_amx(model);
#endif
    default:
        return cpu_table_base(model);
    }
}

const struct reduction_loops *reduction_loops(enum dtype dtype, enum dtype wire) {
    return cpu_reduction_loops_for(dtype, wire, isa_best());
}

const struct reduction_loops *cpu_reduction_loops_for(enum dtype dtype, enum dtype wire, enum isa isa) {
    CHECK(isa_usable(isa));
    switch (isa) {
#ifdef TRIREME_ISA_VARIANTS
    case ISA_AVX2:
        return cpu_reduction_loops_avx2(dtype, wire);
    case ISA_AVX512:
        return cpu_reduction_loops_avx512(dtype, wire);
    case ISA_AVX512_BF16:
    case ISA_AMX:
        return cpu_reduction_loops_avx512bf16(dtype, wire);
#endif
    default:
        return cpu_reduction_loops_base(dtype, wire);
    }
}

const struct codec_loops *codec_loops(enum codec codec) {
    return cpu_codec_loops_for(codec, isa_best());
}

const struct codec_loops *cpu_codec_loops_for(enum codec codec, enum isa isa) {
    CHECK(isa_usable(isa));
    switch (isa) {
#ifdef TRIREME_ISA_VARIANTS
    case ISA_AVX2:
        return cpu_codec_loops_avx2(codec);
    case ISA_AVX512:
        return cpu_codec_loops_avx512(codec);
    case ISA_AVX512_BF16:
    case ISA_AMX:
        return cpu_codec_loops_avx512bf16(codec);
#endif
    default:
        return cpu_codec_loops_base(codec);
    }
}
