// ranks.bin of a run directory: where every rank stands. Ranks keep it current by plain stores into the mapped file, so
// it can be read while the run lives and after it has died.
//
// Little-endian: the header and the names of ops, then one record per rank. Each record has pages of its own, since
// machines that share a file write whole pages, and would overwrite each other's records with old content. A reader may
// find a record half written.
#ifndef LAUNCH_RANK_FILE_H
#define LAUNCH_RANK_FILE_H

#include "base/text.h"
#include "exec/counters.h"

#define RANK_FILE_NAME "ranks.bin"
#define RANK_FILE_MAGIC "TRIRANKS"
enum {
    RANK_FILE_VERSION = 7,
    RANK_FILE_AXES = 24,
    RANK_FILE_OP_BYTES = 32,
    RANK_FILE_ERROR_BYTES = 944,
    RANK_FILE_PAGE = 4096,
    RANK_FILE_RECORD = 2 * RANK_FILE_PAGE,
    RANK_FILE_RUNNING = 2 // programs that may run at one time: one after another, and one beside them
};

struct rank_file_header {
    char magic[8];
    uint32_t version, header_bytes, record_bytes, ranks, streams, axes, ops, op_bytes;
    int32_t degree[RANK_FILE_AXES]; // of the mesh, in the order of enum axis
    int64_t pid;
    uint64_t identity; // tells this file from all others
    char padding[40];
};
_Static_assert(sizeof(struct rank_file_header) == 192 && (int)AXIS_COUNT <= (int)RANK_FILE_AXES, "as in files");

enum rank_activity {
    RANK_STARTING,
    RANK_STEPPING,
    RANK_VALIDATING,
    RANK_SAVING,
    RANK_ENDED,
    RANK_FAILED,
    RANK_ACTIVITIES
};

struct rank_record {
    int64_t step;    // the last one done
    int64_t changed; // clock_now when the activity last changed
    int32_t activity;
    char error[RANK_FILE_ERROR_BYTES]; // RANK_FAILED
    char padding[4];
    int64_t epoch; // clock_real at the moment when clock_now of the rank's machine was 0
    char more_padding[48];
    struct stream_counters streams[RANK_FILE_RUNNING]; // those of programs that run one after another are the first
    char rest[RANK_FILE_RECORD - 1024 - RANK_FILE_RUNNING * sizeof(struct stream_counters)];
};
_Static_assert(sizeof(struct rank_record) == RANK_FILE_RECORD, "as in files");

// Makes the file anew; no rank may have it open. *lock becomes a descriptor that holds a lock on it, by which others
// see that the run is alive. *identity, never 0, tells the file from all others.
trireme_status rank_file_create(int *lock, uint64_t *identity, const char *directory, const struct mesh *mesh,
                                const struct op_table *ops, trireme_error *error);
// Whether somebody holds that lock.
bool rank_file_is_alive(const char *directory);

struct rank_file {
    void *map; // the part of it that is mapped; NULL: not open
    size_t bytes;
    int64_t end; // of that part in the file
};
// Maps the record of `rank` until rank_file_close. TRIREME_ERROR_CORRUPT where the directory certainly has no file of
// this identity.
trireme_status rank_file_open(struct rank_file *file, const char *directory, uint64_t identity, int rank,
                              struct rank_record **out, trireme_error *error);
void rank_file_close(struct rank_file *file);
// Its path; the caller frees it.
char *rank_file_path(const char *directory);

void rank_record_set(struct rank_record *record, enum rank_activity activity);
void rank_record_fail(struct rank_record *record, const char *message);

// What a file says, checked.
struct rank_view {
    struct mesh mesh;
    int64_t pid;
    int ranks, ops;
    int64_t latest; // the latest of all times in it, by clock_real
    const char (*op)[RANK_FILE_OP_BYTES];
    const struct rank_record *record; // [ranks]
    char *bytes;                      // owned: the file
};
trireme_status rank_view_read(struct rank_view *view, const char *directory, trireme_error *error);
// The same from memory; on success `bytes` becomes the view's. `path` is for messages.
trireme_status rank_view_parse(struct rank_view *view, char *bytes, size_t length, const char *path,
                               trireme_error *error);
void rank_view_release(struct rank_view *view);
// Appends the view for people, or as JSON. `now`: clock_real where the run is alive, else view->latest.
void rank_view_print(const struct rank_view *view, int64_t now, bool json, struct text *out);

#endif
