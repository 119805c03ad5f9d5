// Ranks as threads of a test or, with TEAM_PROCESSES=n under an MPI launcher, as the n processes of one world. A thread
// may not fail a cmocka test itself: it notes what is wrong, and team_run fails the test once all threads have ended.
#ifndef SUPPORT_TEAM_H
#define SUPPORT_TEAM_H

#include "comm/comm.h"

struct member; // exec/exec.h

struct teammate {
    struct world *world;
    int rank, ranks;
    int locals; // how many ranks share a node; 0: all
    void *context;
    char wrong[400]; // empty: nothing
};

// Notes that something is wrong, unless something was noted before. Returns true.
bool teammate_wrong(struct teammate *mate, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Notes the error unless `status` is OK; whether it is not.
bool teammate_failed(struct teammate *mate, trireme_status status, const trireme_error *error);
// Opens the communicator of all ranks, named "all"; NULL where that fails, which is noted.
struct communicator *teammate_open(struct teammate *mate);
// Opens a communicator of `size` members, and frees it.
trireme_status teammate_open_members(struct teammate *mate, int size, const int *members, const char *name,
                                     trireme_error *error);
// Notes it as wrong unless the error is TRIREME_ERROR_LOST and holds all the words: TEAMMATE_LOST(mate, &error, "word",
// ...).
void teammate_lost(struct teammate *mate, const trireme_error *error, const char *const *words, size_t count);
#define TEAMMATE_LOST(mate, error, ...) \
    teammate_lost(mate, error, (const char *const[]){__VA_ARGS__}, ARRAY_LENGTH(((const char *const[]){__VA_ARGS__})))
void team_sleep_ms(int ms);
// Waits until the world is broken: for ranks that are to come too late, however busy the machine is.
void teammate_await_break(struct teammate *mate);

// Runs `body` on `ranks` threads with a world of as many ranks; fails the test if one of them found something wrong. On
// a busy machine threads and processes start late: the body should set a short deadline only once it has opened a group
// of all.
void team_run(int ranks, double deadline, void (*body)(struct teammate *mate), void *context);
// How many processes the team consists of; 0: ranks are threads.
int team_processes(void);
// Runs `body` on each of `ranks` ranks as ranks_run does (launch/ranks.h), or, where ranks are processes, as this
// one's.
trireme_status team_ranks_run(int ranks, double deadline,
                              trireme_status (*body)(void *user, const struct member *member, trireme_error *error),
                              void *user, trireme_error *error);
// Where ranks are processes: value[i] becomes the largest value that any of them has, and not a number where any value
// is not a number.
trireme_status team_most(double *value, int64_t count, trireme_error *error);
// Ends the world of processes, where there is one. To be called before the program returns.
void team_end(void);

#endif
