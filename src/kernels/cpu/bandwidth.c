#include "kernels/machine.h"

#include "base/clock.h"
#include "base/parallel_for.h"
#include "base/region.h"

#include <math.h>

enum { RUNS = 8, BLOCK = 4096 };
// Bytes that are timed: several times what caches hold; servers have up to 32 MiB of them for each core.
enum { BYTES_LEAST = 256 << 20, BYTES_EACH = 64 << 20 };

// Eight sums, so that none waits for another.
static uint64_t bandwidth_sum_of(const uint64_t *data, size_t count) {
    uint64_t sum[8] = {0};
    for (size_t i = 0; i + 8 <= count; i += 8)
        for (size_t k = 0; k < 8; k++)
            sum[k] += data[i + k];
    for (size_t k = 1; k < 8; k++)
        sum[0] += sum[k];
    return sum[0];
}

// Pages are first touched by the threads that use them, and all are written to: for pages that are only read, the
// system has a single one of zeros, which caches hold.
static void bandwidth_take(char *data, size_t half, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t at = 0; at < half / BLOCK; at++) {
        memset(data + at * BLOCK, 1, BLOCK);
        memset(data + half + at * BLOCK, 1, BLOCK);
    }
}

// Seconds in which the threads read both halves, or copy the first to the second. Each has its own part of either.
static double bandwidth_run(char *data, size_t half, int threads, bool copies) {
    int64_t begin = 0, end = 0;
    uint64_t total = 0;
#pragma omp parallel num_threads(threads) reduction(+ : total)
    {
#pragma omp barrier
#pragma omp master
        begin = clock_now();
#pragma omp for schedule(static)
        for (size_t at = 0; at < half / BLOCK; at++) {
            char *first = data + at * BLOCK, *second = first + half;
            if (copies)
                memcpy(second, first, BLOCK);
            else
                total += bandwidth_sum_of((uint64_t *)(void *)first, BLOCK / 8) +
                         bandwidth_sum_of((uint64_t *)(void *)second, BLOCK / 8);
        }
#pragma omp master
        end = clock_now();
    }
    __asm__ volatile("" : : "r"(total) : "memory");
    return 1e-9 * (double)MAX(end - begin, 1);
}

trireme_status memory_bandwidth(int threads, double *bytes_per_second, trireme_error *error) {
    const int cores = usable_cores();
    threads = MIN(threads, cores); // with more, some would begin before the timed part
    const size_t wanted = MAX((size_t)BYTES_LEAST, (size_t)threads * BYTES_EACH), available = memory_available() / 8;
    const size_t bytes = MIN(wanted, available) / (2 * BLOCK) * (2 * BLOCK);
    struct region region;
    TRY(region_create(&region, MAX(bytes, (size_t)2 * BLOCK), false, "measuring the memory", error));
    size_t half = region.bytes / 2;
    bandwidth_take(region.base, half, threads);
    double seconds = INFINITY; // whatever else the machine does only slows a run
    for (int i = 0; i < RUNS; i++) {
        double copying = bandwidth_run(region.base, half, threads, true),
               reading = bandwidth_run(region.base, half, threads, false);
        seconds = MIN(seconds, MIN(copying, reading));
    }
    *bytes_per_second = (double)region.bytes / seconds;
    region_release(&region);
    return TRIREME_OK;
}
