// What collectives.c measures, done by an MPI between processes: OPERATION BYTES MICROSECONDS.
//
//   collectives_mpi [LARGEST-BYTES]
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BATCHES = 15 };
static const size_t LARGEST = (size_t)256 << 20;
static const double BATCH_TIME = 2e-3; // seconds

static const char *const names[] = {"all_reduce", "all_reduce_in_place", "all_gather", "reduce_scatter"};

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Memory with huge pages, as the arenas of a training run have.
static void *memory(void) {
    void *p = mmap(NULL, LARGEST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        MPI_Abort(MPI_COMM_WORLD, 1);
    madvise(p, LARGEST, MADV_HUGEPAGE);
    return memset(p, 0, LARGEST);
}

static void call(int operation, const void *in, void *out, int all, int part) {
    if (operation == 0)
        MPI_Allreduce(in, out, all, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (operation == 1)
        MPI_Allreduce(MPI_IN_PLACE, out, all, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (operation == 2)
        MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
    else
        MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

// Seconds of one of `calls` calls.
static double batch(int operation, const void *in, void *out, int all, int part, int calls) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < calls; i++)
        call(operation, in, out, all, part);
    return (MPI_Wtime() - start) / calls;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    void *in = memory(), *out = memory();
    size_t largest = argc > 1 ? strtoull(argv[1], NULL, 10) : LARGEST;
    for (int operation = 0; operation < 4; operation++)
        for (size_t bytes = 1024; bytes <= largest && bytes <= LARGEST; bytes *= 4) {
            int all = (int)(bytes / 4), part = all / ranks;
            int calls = (int)(BATCH_TIME / batch(operation, in, out, all, part, 3)) + 1;
            MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
            double times[BATCHES];
            for (int i = 0; i < BATCHES; i++)
                times[i] = batch(operation, in, out, all, part, calls);
            qsort(times, BATCHES, sizeof *times, ascending);
            if (rank == 0)
                printf("%-20s %10zu %11.2f\n", names[operation], bytes, times[BATCHES / 2] * 1e6);
            fflush(stdout);
        }
    munmap(in, LARGEST);
    munmap(out, LARGEST);
    MPI_Finalize();
    return 0;
}
