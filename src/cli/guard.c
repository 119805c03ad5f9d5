// What keeps a run alive when another program shortens a file that it has mapped, or fills its disk (SIGBUS).
#include "cli/cli.h"
#include "cli/console.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// Never freed: the handler may read it at any time.
struct guarded {
    char *at;
    atomic_size_t bytes; // 0: no longer mapped
    char *path;
    int64_t end; // of the mapping in the file
    struct guarded *next;
};

static struct guarded *_Atomic guarded;
static atomic_flag told = ATOMIC_FLAG_INIT, installed = ATOMIC_FLAG_INIT;
static struct sigaction before;

#define GOES_ON ": the run goes on, but that file records nothing more of it\n"

// In a handler: stat may be called there.
static void guard_tell(const struct guarded *g) {
    struct stat st;
    if (atomic_flag_test_and_set(&told))
        return;
    const bool shortened = stat(g->path, &st) == 0 && st.st_size < g->end;
    console_note(shortened ? "ranks.bin of the run was shortened by another program" GOES_ON
                           : "ranks.bin of the run cannot be written, as on a disk that is full or fails" GOES_ON);
}

static void on_bus_error(int number, siginfo_t *info, void *context) {
    (void)context;
    int kept = errno;
    for (struct guarded *g = atomic_load(&guarded); g; g = g->next) {
        size_t bytes = atomic_load(&g->bytes);
        if ((uintptr_t)info->si_addr - (uintptr_t)g->at >= bytes ||
            mmap(g->at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
            continue;
        guard_tell(g);
        errno = kept;
        return;
    }
    sigaction(number, &before, NULL); // the access is made again, and so is the signal
}

static void guard_add(char *at, size_t bytes, const char *path, int64_t end) {
    struct guarded *g = mem_alloc(sizeof *g);
    g->at = at;
    g->path = mem_strdup(path);
    g->end = end;
    atomic_init(&g->bytes, bytes);
    g->next = atomic_load(&guarded);
    while (!atomic_compare_exchange_weak(&guarded, &g->next, g))
        ;
    if (atomic_flag_test_and_set(&installed))
        return;
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, NULL, &before);
    sigaction(SIGBUS, &action, NULL);
}

void guard_mapped(void *user, void *at, size_t bytes, const char *path, int64_t end) {
    (void)user;
    if (bytes) {
        guard_add(at, bytes, path, end);
        return;
    }
    for (struct guarded *g = atomic_load(&guarded); g; g = g->next)
        if (g->at == at)
            atomic_store(&g->bytes, 0);
}
