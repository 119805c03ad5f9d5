// Times collectives between ranks that are threads of this process: one line per operation and size,
//
//   OPERATION BYTES MICROSECONDS GB/S SHARE
//
// where BYTES is the longer of a rank's input and output, MICROSECONDS the median of several batches of calls, GB/S
// counts what the ranks together must read and write, and SHARE is that over what as many threads reach with memcpy of
// large arrays, measured in between (above 1 if the caches hold the data). collectives_mpi.c measures the same way;
// the script beside it runs both.
//
//   collectives [RANKS]              threads of this process; default 2
//   collectives mpi [LARGEST-BYTES]  under mpirun: processes, this one among them
#include <pthread.h>

#include "base/clock.h"
#include "base/parallel_for.h"
#include "base/region.h"
#include "comm/comm.h"

enum { BATCHES = 15, COPIES = 9, MAX_RANKS = 64 };
static const size_t LARGEST = (size_t)256 << 20;
static const double BATCH_TIME = 2e6; // nanoseconds

static const char *const names[] = {"all_reduce", "all_reduce_in_place", "all_gather", "reduce_scatter"};

struct rank {
    struct world *world;
    int index, ranks;
    bool is_process; // else a thread
    size_t largest;
    struct region in, out;
};

// What all ranks together must read and write.
static double traffic(size_t operation, double bytes, int ranks) {
    return operation < 2 ? 2 * ranks * bytes : (ranks + 1) * bytes;
}

static double median(double *values, int count) {
    sort_doubles(values, (size_t)count);
    return values[count / 2];
}

static void must(trireme_status status, const trireme_error *error) {
    if (status != TRIREME_OK) {
        fprintf(stderr, "%s\n", error->message);
        exit(1);
    }
}

static void call(struct communicator *c, size_t operation, const struct rank *rank, size_t bytes) {
    trireme_error error;
    int64_t all = (int64_t)(bytes / 4), part = all / rank->ranks;
    const void *in = operation == 1 ? rank->out.base : rank->in.base;
    if (operation < 2)
        must(comm_all_reduce(c, in, rank->out.base, all, DTYPE_F32, REDUCE_SUM, DTYPE_F32, &error), &error);
    else if (operation == 2)
        must(comm_all_gather(c, in, rank->out.base, part, DTYPE_F32, &error), &error);
    else
        must(comm_reduce_scatter(c, in, rank->out.base, part, DTYPE_F32, REDUCE_SUM, DTYPE_F32, false, &error), &error);
}

// Nanoseconds of one of `calls` calls.
static double batch(struct communicator *c, size_t operation, const struct rank *rank, size_t bytes, int calls) {
    trireme_error error;
    must(comm_barrier(c, &error), &error);
    int64_t start = clock_now();
    for (int i = 0; i < calls; i++)
        call(c, operation, rank, bytes);
    return (double)(clock_now() - start) / calls;
}

// Nanoseconds to copy LARGEST bytes per rank.
static double copy(struct communicator *c, const struct rank *rank) {
    trireme_error error;
    must(comm_barrier(c, &error), &error);
    int64_t start = clock_now();
    memcpy(rank->out.base, rank->in.base, LARGEST);
    must(comm_barrier(c, &error), &error);
    return (double)(clock_now() - start);
}

// Rank i to the i-th core, as mpirun does it, where there are as many.
static void bind_to_core(int rank) {
    int count, *processor = processors_list(&count);
    if (rank < count)
        processors_keep_to(processor + rank, 1);
    free(processor);
}

static void *run(void *argument) {
    const struct rank *rank = argument;
    if (!rank->is_process)
        bind_to_core(rank->index);
    int members[MAX_RANKS];
    for (int i = 0; i < rank->ranks; i++)
        members[i] = i;
    trireme_error error;
    struct communicator *c;
    must(communicator_open(&c, rank->world, rank->index, rank->ranks, members, "all", &error), &error);
    memset(rank->in.base, 0, LARGEST);
    memset(rank->out.base, 0, LARGEST);
    for (size_t operation = 0; operation < ARRAY_LENGTH(names); operation++) {
        double times[MAX(BATCHES, COPIES)];
        for (int i = 0; i < COPIES; i++)
            times[i] = copy(c, rank);
        double bandwidth = 2.0 * rank->ranks * (double)LARGEST / median(times, COPIES);
        if (rank->index == 0)
            printf("# memcpy %.1f GB/s\n", bandwidth);
        for (size_t bytes = 1024; bytes <= rank->largest; bytes *= 4) {
            int32_t calls = (int32_t)(BATCH_TIME / batch(c, operation, rank, bytes, 3)) + 1;
            must(comm_broadcast(c, &calls, sizeof calls, 0, &error), &error);
            for (int i = 0; i < BATCHES; i++)
                times[i] = batch(c, operation, rank, bytes, calls);
            double taken = median(times, BATCHES), rate = traffic(operation, (double)bytes, rank->ranks) / taken;
            if (rank->index == 0)
                printf("%-20s %10zu %11.2f %7.1f %6.2f\n", names[operation], bytes, taken * 1e-3, rate,
                       rate / bandwidth);
            fflush(stdout);
        }
    }
    communicator_free(c);
    return NULL;
}

static void make_memory(struct rank *rank) {
    trireme_error error;
    must(region_create(&rank->in, LARGEST, false, "input", &error), &error);
    must(region_create(&rank->out, LARGEST, false, "output", &error), &error);
}

static int run_process(size_t largest) {
    trireme_error error;
    struct world *world;
    must(world_create_mpi(&world, 0, &error), &error);
    const struct world_place *place = world_place(world);
    CHECK(place->ranks <= MAX_RANKS);
    struct rank rank = {world, place->rank, place->ranks, true, MIN(largest, LARGEST), {0}, {0}};
    make_memory(&rank);
    run(&rank);
    world_free(world);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "mpi") == 0)
        return run_process(argc > 2 ? strtoull(argv[2], NULL, 10) : LARGEST);
    int ranks = argc > 1 ? atoi(argv[1]) : 2;
    CHECK(ranks >= 1 && ranks <= MAX_RANKS);
    trireme_error error;
    struct world *world;
    struct rank rank[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    must(world_create_threads(&world, ranks, 0, &error), &error);
    for (int i = 0; i < ranks; i++) {
        rank[i] = (struct rank){.world = world, .index = i, .ranks = ranks, .largest = LARGEST};
        make_memory(&rank[i]);
    }
    for (int i = 0; i < ranks; i++)
        CHECK(pthread_create(&threads[i], NULL, run, &rank[i]) == 0);
    for (int i = 0; i < ranks; i++) {
        pthread_join(threads[i], NULL);
        region_release(&rank[i].in);
        region_release(&rank[i].out);
    }
    world_free(world);
    return 0;
}
