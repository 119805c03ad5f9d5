// Ranks as threads of a test; with TEAM_PROCESSES=n under an MPI launcher, as the n processes of one world. A thread
// may not fail a cmocka test itself: it notes what is wrong, and team_run fails once all threads have ended.
#ifndef SUPPORT_TEAM_H
#define SUPPORT_TEAM_H

#include "comm/comm.h"

struct member; // exec/exec.h

struct teammate {
    struct world *world;
    int rank, ranks;
    void *context;
    char wrong[400]; // empty: nothing
};

// Notes the first thing that is wrong; true if that is so now.
bool teammate_wrong(struct teammate *mate, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Notes it unless `status` is OK.
bool teammate_failed(struct teammate *mate, trireme_status status, const trireme_error *error);
// The communicator of all ranks, named "all". NULL: wrong.
struct communicator *teammate_open(struct teammate *mate);
// Opens one of `size` members, and frees it.
trireme_status teammate_open_members(struct teammate *mate, int size, const int *members, const char *name,
                                     trireme_error *error);
// Wrong unless the error is TRIREME_ERROR_LOST and holds all the words: TEAMMATE_LOST(mate, &error, "word", ...).
void teammate_lost(struct teammate *mate, const trireme_error *error, const char *const *words, size_t count);
#define TEAMMATE_LOST(mate, error, ...) \
    teammate_lost(mate, error, (const char *const[]){__VA_ARGS__}, ARRAY_LENGTH(((const char *const[]){__VA_ARGS__})))
void team_sleep_ms(int ms);
// Until the world is broken: for ranks that are to come too late, however busy the machine is.
void teammate_await_break(struct teammate *mate);

// Runs `body` on `ranks` threads with a world of as many ranks; fails the test if one of them found something wrong.
// Threads and processes start late where the machine is busy: a short deadline is for the body to set, once it has
// opened a group of all.
void team_run(int ranks, double deadline, void (*body)(struct teammate *mate), void *context);
// How many processes the team is made of; 0: none, ranks are threads.
int team_processes(void);
// Runs `body` on each of `ranks` ranks as ranks_run does (train/ranks.h), or, of as many processes, as this one's.
trireme_status team_ranks_run(int ranks, double deadline,
                              trireme_status (*body)(void *user, const struct member *member, trireme_error *error),
                              void *user, trireme_error *error);
// Of processes: value[i] becomes the largest that one of them has, or not a number where one has none.
trireme_status team_most(double *value, int64_t count, trireme_error *error);
// Ends the world of processes, where there is one. Before the program returns.
void team_end(void);

#endif
