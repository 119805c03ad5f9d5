// Finds ranks that keep MPI from starting, among this machine's processes only: the launcher has put job and rank into
// the environment of each process that it has started here.
#include "comm/mpi/unstarted.h"

#include "base/base.h"

#include <dirent.h>
#include <unistd.h>

struct fellow {
    long rank;
    int process;
    bool stopped, starts; // stopped as by SIGSTOP; runs this program, so that it can start MPI
    char program[32];
};
typedef VEC(struct fellow) fellows;

static FILE *unstarted_open_of(int process, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", process, name);
    return fopen(path, "re");
}

static bool is_of_job(int process, const char *job, long *rank) {
    FILE *file = unstarted_open_of(process, "environ");
    char *entry = NULL;
    size_t room = 0;
    bool same_job = false;
    *rank = -1;
    while (file && getdelim(&entry, &room, 0, file) > 0) {
        const char *value = strchr(entry, '=');
        if (!value++)
            continue;
        if (strncmp(entry, "PMIX_NAMESPACE=", (size_t)(value - entry)) == 0)
            same_job = strcmp(value, job) == 0;
        if (strncmp(entry, "PMIX_RANK=", (size_t)(value - entry)) == 0)
            *rank = strtol(value, NULL, 10);
    }
    free(entry);
    if (file)
        fclose(file);
    return same_job && *rank >= 0;
}

// Fills in what a process does; false where it has ended.
static bool unstarted_look_at(struct fellow *f) {
    char path[64], own[1024] = "", other[1024] = "", state = 'Z';
    FILE *file = unstarted_open_of(f->process, "stat"); // "123 (program) S ..."
    if (file && fscanf(file, "%*d (%31[^)]) %c", f->program, &state) < 2)
        state = 'Z';
    if (file)
        fclose(file);
    snprintf(path, sizeof path, "/proc/%d/exe", f->process);
    f->starts = readlink("/proc/self/exe", own, sizeof own - 1) > 0 && readlink(path, other, sizeof other - 1) > 0 &&
                strcmp(own, other) == 0;
    f->stopped = state == 'T' || state == 't';
    return state != 'Z' && state != 'X';
}

static void find_fellows(fellows *out, const char *job) {
    DIR *directory = opendir("/proc");
    for (struct dirent *d; directory && (d = readdir(directory));) {
        struct fellow f = {.process = atoi(d->d_name)};
        if (f.process > 0 && is_of_job(f.process, job, &f.rank) && unstarted_look_at(&f))
            VEC_PUSH(out, f);
    }
    if (directory)
        closedir(directory);
}

// Whether a rank has a process that can start MPI. It may have several processes, such as a shell and what that
// started.
static bool unstarted_starts(const fellows *all, long rank) {
    for (size_t i = 0; i < all->count; i++)
        if (all->item[i].rank == rank && all->item[i].starts && !all->item[i].stopped)
            return true;
    return false;
}

static bool has_process(const fellows *all, long rank) {
    for (size_t i = 0; i < all->count; i++)
        if (all->item[i].rank == rank)
            return true;
    return false;
}

// How many ranks this machine must have if it runs the whole job; else 0.
static long ranks_here(void) {
    const char *all = getenv("OMPI_COMM_WORLD_SIZE"), *here = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    return all && here && strcmp(all, here) == 0 ? strtol(all, NULL, 10) : 0;
}

void unstarted_print(char *text, size_t limit) {
    const char *job = getenv("PMIX_NAMESPACE");
    fellows all = {0};
    size_t n = 0;
    if (job)
        find_fellows(&all, job);
    for (size_t i = 0; i < all.count && n < limit; i++) {
        const struct fellow *f = &all.item[i];
        if (unstarted_starts(&all, f->rank))
            continue;
        n += (size_t)snprintf(text + n, limit - n, "%srank %ld (process %d) ", n ? ", " : "", f->rank, f->process);
        if (n < limit && f->stopped)
            n += (size_t)snprintf(text + n, limit - n, "is stopped");
        else if (n < limit)
            n += (size_t)snprintf(text + n, limit - n, "runs %s", f->program);
    }
    for (long rank = 0; all.count > 0 && rank < ranks_here() && n < limit; rank++)
        if (!has_process(&all, rank))
            n += (size_t)snprintf(text + n, limit - n, "%srank %ld has no process here", n ? ", " : "", rank);
    if (n == 0)
        snprintf(text, limit, "one of them hangs, has ended, or runs something else");
    VEC_RELEASE(&all);
}
