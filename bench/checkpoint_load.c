// How long it takes to go on from a checkpoint - all ranks verify it, and each loads what it has of it - against
// reading its bytes from first to last.
//
//   checkpoint_load [--cold] CHECKPOINT [KEY=VALUE ...]      keys as for `trireme train`: the mesh that loads it
//
// With --cold the system's cache is dropped before each measurement, which needs root. The best of three is printed:
// seconds, and bytes of the files that all ranks have read together (without what is read to verify them).
#include "base/clock.h"
#include "base/text.h"
#include "ckpt/tree.h"
#include "launch/ranks.h"
#include "run/checkpoint.h"
#include "run/verification.h"

#include <fcntl.h>
#include <unistd.h>

enum { TIMES = 3, PIECE = 1 << 20 };

struct measured {
    double reading, verifying, loading;
};

struct bench {
    const char *path;
    struct config config;
    struct model_config model;
    struct state_progress progress;
    bool cold;
    struct measured best;
    int64_t read; // bytes, while loading
};

static double seconds_since(int64_t begin) {
    return (double)(clock_now() - begin) * 1e-9;
}

static double least(double a, double b) {
    return a > 0 && a < b ? a : b;
}

static void drop_caches(const struct bench *b) {
    const int file = b->cold ? open("/proc/sys/vm/drop_caches", O_WRONLY) : -1;
    sync();
    if (b->cold && (file < 0 || write(file, "3", 1) != 1)) {
        perror("cannot drop the cache");
        exit(1);
    }
    if (file >= 0)
        close(file);
}

// Bytes that this thread has read, as the system counts them.
static int64_t bytes_read(void) {
    long long bytes = 0;
    FILE *file = fopen("/proc/thread-self/io", "r");
    if (!file || fscanf(file, "rchar: %lld", &bytes) != 1)
        bytes = 0;
    if (file)
        fclose(file);
    return bytes;
}

static trireme_status read_all(const struct bench *b, trireme_error *error) {
    struct tree tree = {0};
    char *buffer = mem_alloc(PIECE);
    TRY(tree_list(b->path, &tree, error));
    for (size_t i = 0; i < tree.entry.count; i++) {
        char *path = mem_printf("%s/%s", b->path, tree.entry.item[i].name);
        const int file = tree.entry.item[i].directory ? -1 : open(path, O_RDONLY);
        while (file >= 0 && read(file, buffer, PIECE) > 0)
            continue;
        if (file >= 0)
            close(file);
        free(path);
    }
    tree_release(&tree);
    free(buffer);
    return TRIREME_OK;
}

static trireme_status measure_once(struct bench *b, struct engine *engine, struct communicator *all, bool leads,
                                   trireme_error *error) {
    if (leads) {
        drop_caches(b);
        const int64_t begin = clock_now();
        TRY(read_all(b, error));
        b->best.reading = least(b->best.reading, seconds_since(begin));
        drop_caches(b);
    }
    TRY(ranks_meet(all, error));
    int64_t begin = clock_now();
    TRY(verification_together(b->path, MANIFEST_CONTENT, all, error));
    if (leads)
        b->best.verifying = least(b->best.verifying, seconds_since(begin));
    begin = clock_now();
    double read = -(double)bytes_read();
    TRY(checkpoint_load(engine, all, b->path, &b->progress, error));
    read += (double)bytes_read();
    TRY(ranks_sum(all, &read, 1, error));
    if (leads) {
        b->best.loading = least(b->best.loading, seconds_since(begin));
        b->read = (int64_t)read;
    }
    return TRIREME_OK;
}

static trireme_status measure(void *user, const struct member *member, trireme_error *error) {
    struct bench *b = user;
    struct engine engine;
    struct communicator *all;
    TRY(engine_create(&engine, &b->config, &b->model, NULL, TRAIN_ALONE, member, error));
    TRY(ranks_control(&all, member, mesh_ranks(&engine.parallel->mesh), error));
    for (int i = 0; i < TIMES; i++)
        TRY(measure_once(b, &engine, all, !member || member->rank == 0, error));
    communicator_free(all);
    engine_release(&engine);
    return TRIREME_OK;
}

static trireme_status bench_run(struct bench *b, const char *const *keys, size_t count, trireme_error *error) {
    struct parallel plan;
    TRY(state_files_progress(b->path, &b->progress, error));
    TRY(config_load_text(&b->config, b->path, b->progress.config, strlen(b->progress.config), keys, count, error));
    TRY(model_config_read(&b->model, b->path, error));
    TRY(parallel_resolve(&plan, &b->config, &b->model, error));
    const int ranks = mesh_ranks(&plan.mesh);
    TRY(ranks_run(ranks, 300, measure, b, error));
    const struct measured *m = &b->best;
    printf("%d ranks: reading %.2f s, verifying %.2f s, loading %.2f s (%lld bytes): %.2f of reading\n", ranks,
           m->reading, m->verifying, m->loading, (long long)b->read, (m->verifying + m->loading) / m->reading);
    parallel_release(&plan);
    return TRIREME_OK;
}

int main(int count, char **argument) {
    struct bench b = {.cold = count > 1 && strcmp(argument[1], "--cold") == 0};
    const int first = b.cold ? 2 : 1;
    trireme_error error;
    if (first >= count) {
        fprintf(stderr, "usage: %s [--cold] CHECKPOINT [KEY=VALUE ...]\n", *argument);
        return 2;
    }
    b.path = argument[first];
    if (bench_run(&b, (const char *const *)argument + first + 1, (size_t)(count - first - 1), &error) == TRIREME_OK)
        return 0;
    fprintf(stderr, "%s\n", error.message);
    return 1;
}
