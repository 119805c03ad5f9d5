// Times how the blocks of a checkpoint reach the disk and come back, beside `cp` of a file of the same size:
//
//   blocks DIRECTORY [GIGABYTES]     default 1.5
//
// prints a line for each way and each number of blocks under way, WAY DEPTH WRITE SYNC READ in seconds, medians of
// rounds in which all take turns. Each block is copied and hashed before it is written, and hashed when it is read
// back. "cached" goes through the system's cache, as blocks that are not aligned in memory do.
#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/region.h"
#include "base/xxh3.h"
#include "ckpt/block_writer.h"

enum { ROUNDS = 5, BLOCK = 1 << 24, DEPTHS = 4, WAYS = 4, PHASES = 3, SOURCES = 8 };

static const struct {
    const char *name;
    enum block_way way;
    int apart; // bytes that buffers lie behind a page's begin
} ways[WAYS] = {
    {"plain", BLOCK_PLAIN, 0},
    {"uring", BLOCK_URING, 0},
    {"plain-cached", BLOCK_PLAIN, 512},
    {"uring-cached", BLOCK_URING, 512},
};

static char *source, *slot; // [SOURCES][BLOCK], [DEPTHS][BLOCK + BLOCK_ALIGNMENT]

static void must(trireme_status status, const trireme_error *error) {
    if (status != TRIREME_OK) {
        fprintf(stderr, "%s\n", error->message);
        exit(1);
    }
}

static double seconds_since(int64_t begin) {
    return 1e-9 * (double)(clock_now() - begin);
}

static void pass(int way, int depth, const char *path, int64_t blocks, double seconds[PHASES]) {
    trireme_error error;
    struct block_writer *w = block_writer_create(1, depth, ways[way].way);
    uint64_t *sum = mem_alloc((size_t)blocks * sizeof *sum);
    must(block_writer_open(w, 0, path, &error), &error);
    int64_t begin = clock_now();
    for (int64_t b = 0; b < blocks; b++) {
        if (b >= depth)
            must(block_writer_end(w, &error), &error);
        char *to = slot + b % depth * (BLOCK + BLOCK_ALIGNMENT) + ways[way].apart;
        memcpy(to, source + b % SOURCES * BLOCK, BLOCK);
        sum[b] = xxh3_of(to, BLOCK);
        block_writer_write(w, 0, (uint64_t)b * BLOCK, to, BLOCK);
    }
    while (block_writer_under_way(w) > 0)
        must(block_writer_end(w, &error), &error);
    seconds[0] = seconds_since(begin);
    begin = clock_now();
    must(block_writer_sync(w, 0, &error), &error);
    seconds[1] = seconds_since(begin);
    begin = clock_now();
    for (int64_t b = 0; b < blocks + depth; b++) {
        if (b >= depth) {
            must(block_writer_end(w, &error), &error);
            const char *got = slot + (b - depth) % depth * (BLOCK + BLOCK_ALIGNMENT) + ways[way].apart;
            if (xxh3_of(got, BLOCK) != sum[b - depth]) {
                fprintf(stderr, "%s: block %lld differs\n", path, (long long)(b - depth));
                exit(1);
            }
        }
        if (b < blocks)
            block_writer_read(w, 0, (uint64_t)b * BLOCK, slot + b % depth * (BLOCK + BLOCK_ALIGNMENT) + ways[way].apart,
                              BLOCK);
    }
    seconds[2] = seconds_since(begin);
    must(block_writer_close(w, &error), &error);
    block_writer_free(w);
    free(sum);
}

static void command(const char *format, const char *path) {
    char *line = mem_printf(format, path, path);
    if (system(line) != 0)
        exit(1);
    free(line);
}

static void make_file(const char *path, int64_t bytes) {
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (file < 0 || (fallocate(file, 0, 0, bytes) != 0 && ftruncate(file, bytes) != 0)) {
        perror(path);
        exit(1);
    }
    close(file);
}

static double median(double *values) {
    sort_doubles(values, ROUNDS);
    return values[ROUNDS / 2];
}

int main(int count, char **argument) {
    static double seconds[WAYS][DEPTHS][PHASES][ROUNDS], copy[ROUNDS];
    if (count < 2 || count > 3) {
        fprintf(stderr, "usage: blocks DIRECTORY [GIGABYTES]\n");
        return 1;
    }
    const int64_t blocks = divide_up((int64_t)(1e9 * (count > 2 ? atof(argument[2]) : 1.5)), BLOCK);
    char *path = mem_printf("%s/blocks-%d", argument[1], (int)getpid());
    struct region memory;
    trireme_error error;
    must(region_create(&memory, (size_t)SOURCES * BLOCK + (size_t)DEPTHS * (BLOCK + BLOCK_ALIGNMENT), true,
                       "a benchmark", &error),
         &error);
    source = memory.base;
    slot = source + (size_t)SOURCES * BLOCK;
    for (int64_t i = 0; i < SOURCES * (int64_t)BLOCK / 8; i++)
        ((uint64_t *)source)[i] = (uint64_t)i * 0x9e3779b97f4a7c15u;
    for (int round = 0; round < ROUNDS; round++) {
        make_file(path, blocks * BLOCK);
        for (int way = 0; way < WAYS; way++)
            for (int depth = 1; depth <= DEPTHS; depth++) {
                double now[PHASES];
                command("rm %s && sync -f $(dirname %s)", path);
                make_file(path, blocks * BLOCK);
                pass(way, depth, path, blocks, now);
                for (int p = 0; p < PHASES; p++)
                    seconds[way][depth - 1][p][round] = now[p];
            }
        command("cat %s >/dev/null", path); // as what is copied from memory
        const int64_t begin = clock_now();
        command("cp %s %s.copy", path);
        command("sync %s.copy", path);
        copy[round] = seconds_since(begin);
        command("rm %s %s.copy", path);
    }
    printf("%-12s %5s %7s %7s %7s\n", "way", "depth", "write", "sync", "read");
    for (int way = 0; way < WAYS; way++)
        for (int depth = 0; depth < DEPTHS; depth++)
            printf("%-12s %5d %7.2f %7.2f %7.2f\n", ways[way].name, depth + 1, median(seconds[way][depth][0]),
                   median(seconds[way][depth][1]), median(seconds[way][depth][2]));
    printf("%-12s %5s %7.2f\n", "cp and sync", "", median(copy));
    region_release(&memory);
    free(path);
    return 0;
}
