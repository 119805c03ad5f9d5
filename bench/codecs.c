// Times encoding, decoding, and decoding to add, of vectors that no cache holds, against memcpy of as many bytes by as
// many threads, in turns in the same run: prints the fastest of each and their ratio. What is read or written counts
// once for each.
//
//   codecs [THREADS [INSTRUCTION-SET]]     default: all processors, the best set
#include <omp.h>
#include <unistd.h>

#include "base/clock.h"
#include "kernels/cpu/fast_codecs.h"

enum { REPEATS = 15, PART = 1 << 16 };
static const int64_t COUNT = 64 << 20;

enum what { ENCODE, DECODE, DECODE_ADD, COPY, WHATS };

struct bench {
    int threads;
    enum codec codec;
    const struct codec_loops *loops;
    float *x, *y;
    uint8_t *code;
};

static double seconds(const struct bench *b, enum what what) {
    const int64_t start = clock_now();
#pragma omp parallel for num_threads(b->threads) schedule(static)
    for (int64_t at = 0; at < COUNT; at += PART) {
        uint8_t *code = b->code + codec_bytes(b->codec, at, false);
        switch (what) {
        case ENCODE:
            b->loops->encode(b->x + at, PART, code);
            break;
        case DECODE:
            b->loops->decode(code, PART, b->y + at);
            break;
        case DECODE_ADD:
            b->loops->decode_add(code, PART, 0.25f, b->y + at);
            break;
        default:
            memcpy(b->y + at, b->x + at, PART * sizeof *b->x);
        }
    }
    return (double)(clock_now() - start) * 1e-9;
}

int main(int argc, char **argv) {
    struct bench b = {.threads = argc > 1 ? atoi(argv[1]) : (int)sysconf(_SC_NPROCESSORS_ONLN)};
    enum isa isa = isa_best();
    for (enum isa i = 0; i < ISA_COUNT && argc > 2; i++)
        if (strcmp(isa_name(i), argv[2]) == 0)
            isa = i;
    const size_t bytes = (size_t)COUNT * sizeof *b.x;
    b.x = mem_aligned(4096, bytes);
    b.y = mem_aligned(4096, bytes);
    b.code = mem_aligned(4096, bytes);
    for (int64_t i = 0; i < COUNT; i++)
        b.x[i] = (float)(i * 7919 % 10007) / 10007 - 0.5f;
    memset(b.y, 0, bytes);
    memset(b.code, 0, bytes);
    printf("%s, %d threads, %lld values\n", isa_name(isa), b.threads, (long long)COUNT);
    printf("%-16s %8s %8s %8s %6s\n", "", "ms", "GB/s", "memcpy", "ratio");
    for (b.codec = 0; b.codec < CODEC_COUNT; b.codec++) {
        static const char *const WORDS[] = {"encode", "decode", "decode_add"};
        b.loops = cpu_codec_loops_for(b.codec, isa);
        double best[WHATS];
        for (int r = 0; r < REPEATS; r++)
            for (enum what what = 0; what < WHATS; what++) {
                const double now = seconds(&b, what);
                best[what] = r == 0 ? now : MIN(best[what], now);
            }
        const double copied = 2 * (double)bytes / best[COPY], codes = (double)codec_bytes(b.codec, COUNT, false);
        for (enum what what = 0; what < COPY; what++) {
            const double rate = ((what == DECODE_ADD ? 2 : 1) * (double)bytes + codes) / best[what];
            printf("%-5s%-11s %8.1f %8.2f %8.2f %6.2f\n", codec_format(b.codec)->name, WORDS[what], best[what] * 1e3,
                   rate * 1e-9, copied * 1e-9, rate / copied);
        }
    }
    return 0;
}
