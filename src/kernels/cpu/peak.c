#include "kernels/cpu/peak.h"

#include "base/clock.h"
#include "base/parallel_for.h"

#include <math.h>

static int64_t peak_run_loop(enum isa isa, bool bf16, int64_t iterations) {
    switch (isa) {
#ifdef TRIREME_ISA_VARIANTS
    case ISA_AVX2:
        return peak_loop_avx2(bf16, iterations);
    case ISA_AVX512:
        return peak_loop_avx512(bf16, iterations);
    case ISA_AVX512_BF16:
        return peak_loop_avx512bf16(bf16, iterations);
    case ISA_AMX:
        return peak_loop_amx(bf16, iterations);
#endif
    default:
        return peak_loop_base(bf16, iterations);
    }
}

// Operations per second of all threads together, each running `iterations`.
static double peak_rate(enum isa isa, bool bf16, int threads, int64_t iterations) {
    int64_t start = 0, end = 0, flops = 0;
#pragma omp parallel num_threads(threads) reduction(+ : flops)
    {
#pragma omp barrier
#pragma omp master
        start = clock_now();
        flops = iterations * peak_run_loop(isa, bf16, iterations);
#pragma omp barrier
#pragma omp master
        end = clock_now();
    }
    return (double)flops / (double)MAX(end - start, 1) * 1e9;
}

double peak_flops_for(enum dtype dtype, int threads, double flops, enum isa isa) {
    enum { RUNS = 15 };
    const double share = 0.01, least = 0.002, most = 0.02; // seconds of a run; threads begin within 0.1 ms
    CHECK(isa_usable(isa));
    bool bf16 = dtype == DTYPE_BF16;
    int cores = usable_cores();
    threads = MIN(threads, cores); // with more, some would begin before or end after the timed part
    double each = (double)peak_run_loop(isa, bf16, 0) * threads;
    // One thread alone tells how long an iteration takes: starting several costs more than a short run.
    double known = peak_rate(isa, bf16, 1, 20000) * threads,
           best = 0; // whatever else the machine does only slows a run
    for (int i = 0; i < RUNS; i++) {
        double seconds = fmin(fmax(share / RUNS * flops / known, least), most);
        best = fmax(best, peak_rate(isa, bf16, threads, (int64_t)(known * seconds / each) + 1));
        known = fmax(known, best);
    }
    return dtype == DTYPE_F64 ? best / 2 : best;
}

double peak_flops(enum dtype dtype, int threads, double flops) {
    return peak_flops_for(dtype, threads, flops, isa_best());
}
