// Which of the directories step-1, step-2, ... are kept, and the removal of the others.
//
// Kept are the `latest` newest, each whose number is a multiple of `every`, and the `best` with the least loss. Only
// complete ones count: a damaged one takes nobody's place among the latest and the best.
//
// A disk may damage what it was given, and sizes do not tell. So nothing goes before all of the latest and the best,
// for which it makes room, have been verified by content; each is verified once, unless somebody says that it was
// (retention_know). What turns out to be damaged does not count, and an older one has its place. So however many are
// damaged, `latest` others are whole, or nothing goes.
//
// Whatever the rules say, these stay: what is newer than the last that is asked about; what is newer than any of the
// latest that count, though damaged; what cannot be read now; what holds files that its manifest does not list; what a
// process holds (directory_hold). Damaged ones go like others, but not those that `every` keeps: what they still have
// may be wanted.
#ifndef CKPT_RETENTION_H
#define CKPT_RETENTION_H

#include "ckpt/directory.h"

struct retention_rules {
    size_t latest; // 0: all are kept
    int64_t every; // 0: none
    size_t best;
};

// Why a directory stays.
enum retention_reason {
    RETENTION_ALL = 1 << 0, // no rule is given
    RETENTION_LATEST = 1 << 1,
    RETENTION_EVERY = 1 << 2,
    RETENTION_BEST = 1 << 3,
    RETENTION_NEWER = 1 << 4,
    RETENTION_UNREADABLE = 1 << 5,
    RETENTION_FOREIGN = 1 << 6, // other files are in it
    RETENTION_HELD = 1 << 7,
};

struct retention_entry {
    int64_t number;
    char *path;
    double loss;   // NaN: not known, or `best` is 0
    char *damage;  // what is known to be wrong with it, or to stand in the way of reading it; NULL: nothing
    unsigned kept; // enum retention_reason; 0: it goes
};
struct retention_list {
    VEC(struct retention_entry); // the largest number first
};

// What is known of the content of a directory.
struct retention_known {
    char *path, *damage; // damage NULL: it is whole
};

// Zero-initialise; then set the first members. One thread at a time may use it.
struct retention {
    const char *parent; // of the directories; must outlive it
    struct retention_rules rules;
    // The loss of a directory, NaN where it is not known; NULL: of none it is.
    double (*loss)(void *user, const struct directory_numbered *directory);
    // Asked before anything is removed; NULL: always.
    trireme_status (*may_remove)(void *user, trireme_error *error);
    // Asked before the content of a directory is read; where true, nothing more is read or removed. NULL: never.
    bool (*stops)(void *user);
    void *user;
    VEC(struct retention_known) known;
};

// That the directory of this number was verified by content just now, or read back as it was saved.
void retention_know(struct retention *r, int64_t number);
// What becomes of all of them, of which those up to number `last` count. Reads content as said above, of which `watch`
// (may be NULL) is told; removes nothing. *stopped: it was (`stops`), so the list is empty. Caller releases *out.
trireme_status retention_decide(struct retention *r, int64_t last, const struct checksum_watch *watch,
                                struct retention_list *out, bool *stopped, trireme_error *error);
// The same by sizes and what is known alone: no content is read.
trireme_status retention_guess(struct retention *r, int64_t last, struct retention_list *out, trireme_error *error);
// Removes what goes. What a process holds is marked so.
trireme_status retention_remove(struct retention *r, struct retention_list *list, trireme_error *error);
void retention_list_release(struct retention_list *list);
void retention_release(struct retention *r);

#endif
