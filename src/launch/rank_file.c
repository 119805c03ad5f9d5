#include "launch/rank_file.h"

#include "base/clock.h"
#include "base/json.h"
#include "program/names.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANK_FILE_MAX_BYTES = 1 << 30 };

static size_t header_bytes(const struct rank_file_header *h) {
    size_t bytes = sizeof *h + (size_t)h->ops * h->op_bytes;
    return round_up(bytes, RANK_FILE_PAGE);
}

static bool form_is_known(const struct rank_file_header *h) {
    return h->version == RANK_FILE_VERSION && h->record_bytes == sizeof(struct rank_record) &&
           h->streams == STREAMS_MAX && h->axes == AXIS_COUNT && h->op_bytes == RANK_FILE_OP_BYTES;
}

// Whether the numbers of a header of known form add up to the file's length.
static bool lengths_agree(const struct rank_file_header *h, size_t length) {
    return h->ranks >= 1 && h->ranks <= RANK_FILE_MAX_BYTES / h->record_bytes && h->ops <= 65536 &&
           h->header_bytes == header_bytes(h) && length == h->header_bytes + (size_t)h->ranks * h->record_bytes;
}

static bool begins_as_one(const void *bytes, size_t length) {
    return length >= sizeof(struct rank_file_header) && memcmp(bytes, RANK_FILE_MAGIC, strlen(RANK_FILE_MAGIC)) == 0;
}

char *rank_file_path(const char *directory) {
    return mem_printf("%s/" RANK_FILE_NAME, directory);
}

// ---- writing

static trireme_status fill_file(int file, const char *path, uint64_t identity, const struct mesh *mesh,
                                const struct op_table *ops, trireme_error *error) {
    struct rank_file_header header = {.magic = RANK_FILE_MAGIC,
                                      .version = RANK_FILE_VERSION,
                                      .record_bytes = sizeof(struct rank_record),
                                      .ranks = (uint32_t)mesh_ranks(mesh),
                                      .streams = STREAMS_MAX,
                                      .axes = AXIS_COUNT,
                                      .ops = OP_COUNT,
                                      .op_bytes = RANK_FILE_OP_BYTES,
                                      .pid = getpid(),
                                      .identity = identity};
    memcpy(header.degree, mesh->degree, sizeof mesh->degree);
    header.header_bytes = (uint32_t)header_bytes(&header);
    char names[OP_COUNT][RANK_FILE_OP_BYTES] = {0};
    for (int op = 0; op < OP_COUNT; op++)
        snprintf(names[op], sizeof names[op], "%s", ops->op[op].name);
    if (file_write(file, &header, sizeof header) < sizeof header ||
        file_write(file, names, sizeof names) < sizeof names)
        FAIL(TRIREME_ERROR_IO, "%s: cannot write: %s", path, strerror(errno));
    // Without room on the disk for its pages, writing to the mapping would end the process: so take the room now.
    off_t records = (off_t)header.record_bytes * header.ranks;
    int failed = posix_fallocate(file, 0, (off_t)header.header_bytes + records);
    if (failed)
        FAIL(TRIREME_ERROR_IO, "%s: cannot write: %s", path, strerror(failed));
    return TRIREME_OK;
}

// Random; where the kernel has no random numbers yet, from clock and process.
static uint64_t new_identity(void) {
    uint64_t identity;
    if (getrandom(&identity, sizeof identity, GRND_NONBLOCK) == (ssize_t)sizeof identity)
        return identity;
    return (uint64_t)clock_real() ^ (uint64_t)getpid() << 40;
}

trireme_status rank_file_create(int *lock, uint64_t *identity, const char *directory, const struct mesh *mesh,
                                const struct op_table *ops, trireme_error *error) {
    char *path = rank_file_path(directory);
    unlink(path); // readers of the file before keep it
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    trireme_status status = TRIREME_OK;
    if (file < 0)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot create: %s", path, strerror(errno));
    else if (!file_lock(file))
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot lock: %s", path, strerror(errno));
    else
        status = fill_file(file, path, *identity = new_identity(), mesh, ops, error);
    if (status == TRIREME_OK) {
        *lock = file;
    } else {
        unlink(path);
        if (file >= 0)
            close(file);
    }
    free(path);
    return status;
}

bool rank_file_is_alive(const char *directory) {
    char *path = rank_file_path(directory);
    bool alive = file_is_locked(path);
    free(path);
    return alive;
}

// Maps the rank's record alone: what a process maps counts as its memory once for each of its ranks that maps it.
static trireme_status rank_file_map(struct rank_file *out, int file, const char *path, uint64_t identity, int rank,
                                    struct rank_record **record, trireme_error *error) {
    struct rank_file_header h;
    off_t length = lseek(file, 0, SEEK_END);
    ssize_t got = pread(file, &h, sizeof h, 0);
    if (length < 0 || got < 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot read: %s", path, strerror(errno));
    if (length == 0) // a file that another machine has just made may look so
        FAIL(TRIREME_ERROR_IO, "%s: is empty", path);
    if (!begins_as_one(&h, (size_t)got) || !form_is_known(&h) || !lengths_agree(&h, (size_t)length) ||
        h.identity != identity || rank >= (int)h.ranks)
        FAIL(TRIREME_ERROR_CORRUPT, "%s is not this run's", path);
    size_t at = h.header_bytes + (size_t)rank * h.record_bytes, before = at % (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = before + h.record_bytes;
    char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)(at - before));
    if (start == MAP_FAILED)
        FAIL(TRIREME_ERROR_IO, "%s: cannot map: %s", path, strerror(errno));
    *out = (struct rank_file){start, bytes, (int64_t)(at + h.record_bytes)};
    *record = (struct rank_record *)(start + before);
    return TRIREME_OK;
}

// Whether it is certain that the directory does not exist. A network file system may answer from what it saw a minute
// ago; to make something it must ask its server.
static bool is_absent_directory(const char *directory) {
    if (mkdir(directory, 0777) == 0) {
        rmdir(directory);
        return true;
    }
    if (errno != ENOENT)
        return false;
    char *parent = mem_strdup(directory);
    size_t length = strlen(parent);
    while (length > 1 && parent[length - 1] == '/')
        length--;
    while (length > 0 && parent[length - 1] != '/')
        length--;
    parent[length] = '\0';
    bool absent = length > 1 && is_absent_directory(parent);
    free(parent);
    return absent;
}

// The same for the file in the directory.
static bool is_absent(const char *directory, const char *path) {
    if (is_absent_directory(directory))
        return true;
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0)
        return false;
    close(file);
    unlink(path);
    return true;
}

// Renewed with each change, since the two clocks drift apart when the machine sleeps or its clock is set.
static void keep_epoch(struct rank_record *record) {
    record->epoch = clock_real() - clock_now();
}

trireme_status rank_file_open(struct rank_file *out, const char *directory, uint64_t identity, int rank,
                              struct rank_record **record, trireme_error *error) {
    char *path = rank_file_path(directory);
    bool absent = false;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        absent = errno == ENOTDIR || is_absent(directory, path);
        file = open(path, O_RDWR | O_CLOEXEC);
    }
    trireme_status status = TRIREME_OK;
    if (file < 0)
        status = error_set(error, absent ? TRIREME_ERROR_CORRUPT : TRIREME_ERROR_IO, "%s: cannot open: %s", path,
                           strerror(errno));
    else
        status = rank_file_map(out, file, path, identity, rank, record, error);
    if (file >= 0)
        close(file);
    free(path);
    if (status == TRIREME_OK)
        keep_epoch(*record);
    return status;
}

void rank_file_close(struct rank_file *file) {
    if (file->map)
        munmap(file->map, file->bytes);
    *file = (struct rank_file){0};
}

void rank_record_set(struct rank_record *record, enum rank_activity activity) {
    keep_epoch(record);
    record->changed = clock_now();
    record->activity = (int32_t)activity;
}

void rank_record_fail(struct rank_record *record, const char *message) {
    snprintf(record->error, sizeof record->error, "%s", message);
    rank_record_set(record, RANK_FAILED);
}

// ---- reading

static bool rank_file_mesh_of(const struct rank_file_header *h, struct mesh *mesh) {
    int64_t ranks = 1;
    for (int a = 0; a < AXIS_COUNT; a++) {
        mesh->degree[a] = h->degree[a];
        if (h->degree[a] < 1 || h->degree[a] > (int32_t)h->ranks)
            return false;
        ranks *= h->degree[a];
        if (ranks > h->ranks)
            return false;
    }
    return ranks == h->ranks;
}

static bool names_end(const struct rank_view *view) {
    for (int op = 0; op < view->ops; op++)
        if (!memchr(view->op[op], 0, RANK_FILE_OP_BYTES))
            return false;
    return true;
}

// A record's time by clock_real; 0: never.
static int64_t time_of(const struct rank_record *record, int64_t since) {
    int64_t real;
    return since <= 0 || __builtin_add_overflow(since, record->epoch, &real) ? 0 : real;
}

static int64_t rank_file_latest(const struct rank_view *view) {
    int64_t t = 0;
    for (int r = 0; r < view->ranks; r++) {
        const struct rank_record *record = &view->record[r];
        t = MAX(t, time_of(record, record->changed));
        for (int k = 0; k < RANK_FILE_RUNNING * STREAMS_MAX; k++)
            t = MAX(t, time_of(record, record->streams[k / STREAMS_MAX].of[k % STREAMS_MAX].since));
    }
    return t;
}

trireme_status rank_view_parse(struct rank_view *out, char *bytes, size_t length, const char *path,
                               trireme_error *error) {
    struct rank_file_header h;
    if (!begins_as_one(bytes, length))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: does not begin as the ranks of a run do", path);
    memcpy(&h, bytes, sizeof h);
    if (!form_is_known(&h))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: was written by another version of trireme, in form %u where %d is known", path,
             h.version, RANK_FILE_VERSION);
    struct rank_view view = {.pid = h.pid, .ranks = (int)h.ranks, .ops = (int)h.ops, .bytes = bytes};
    if (!lengths_agree(&h, length))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: has %zu bytes, its header speaks of %u ranks and %u ops", path, length,
             h.ranks, h.ops);
    view.op = (const char(*)[RANK_FILE_OP_BYTES])(bytes + sizeof h);
    view.record = (const struct rank_record *)(bytes + h.header_bytes);
    if (!rank_file_mesh_of(&h, &view.mesh) || !names_end(&view))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: degrees of the mesh or names of ops are damaged", path);
    view.latest = rank_file_latest(&view);
    *out = view;
    return TRIREME_OK;
}

trireme_status rank_view_read(struct rank_view *view, const char *directory, trireme_error *error) {
    char *path = rank_file_path(directory), *bytes = NULL;
    size_t length;
    bool missing = access(path, F_OK) != 0 && errno == ENOENT;
    trireme_status status =
        missing ? error_set(error, TRIREME_ERROR_USAGE,
                            "%s: no such file: %s is no run directory, or no run has begun in it", path, directory)
                : file_read(path, RANK_FILE_MAX_BYTES, &bytes, &length, error);
    if (status == TRIREME_OK) {
        status = rank_view_parse(view, bytes, length, path, error);
        if (status != TRIREME_OK)
            free(bytes);
    }
    free(path);
    return status;
}

void rank_view_release(struct rank_view *view) {
    free(view->bytes);
    *view = (struct rank_view){0};
}

// ---- printing

static const char *const ACTIVITIES[RANK_ACTIVITIES] = {
    [RANK_STARTING] = "starting", [RANK_STEPPING] = "in a step", [RANK_VALIDATING] = "validating",
    [RANK_SAVING] = "saving",     [RANK_ENDED] = "ended",        [RANK_FAILED] = "failed"};
static const char *const STATES[COUNTER_STATES] = {[COUNTER_IDLE] = "idle",
                                                   [COUNTER_WAITING] = "waiting",
                                                   [COUNTER_RUNNING] = "running",
                                                   [COUNTER_MEETING] = "communicating"};

static const char *rank_file_word(const char *const *words, int count, int64_t i) {
    return i >= 0 && i < count ? words[i] : "?";
}

static double rank_file_seconds(const struct rank_record *record, int64_t now, int64_t since) {
    int64_t then = time_of(record, since);
    return then > 0 && now > then ? 1e-9 * (double)(now - then) : 0;
}

static const char *op_of(const struct rank_view *view, const struct counter *c) {
    return c->op >= 0 && c->op < view->ops ? view->op[c->op] : "?";
}

// A record that is read while it changes, or is damaged, may hold anything.
static const char *stream_name(const struct stream_counters *streams, int stream) {
    const bool known = stream >= 0 && stream < STREAMS_MAX && memchr(streams->name[stream], 0, STREAM_NAME);
    return known && *streams->name[stream] ? streams->name[stream] : "?";
}

static const char *program_name(const struct stream_counters *streams) {
    return *streams->program && memchr(streams->program, 0, COUNTERS_PROGRAM) ? streams->program : "?";
}

// Whether two ranks are in the same meeting. Programs of stages differ, so it is known by what it is, not by where it
// stands in the program.
static bool rank_file_meet(const struct counter *a, const struct counter *b) {
    return b->state == COUNTER_MEETING && a->op == b->op && a->group == b->group && a->phase == b->phase &&
           a->layer == b->layer && a->microbatch == b->microbatch;
}

// Finds the ranks for which a meeting rank may be waiting: its peer, or the members of its group that are not in the
// same meeting of the same step. (In a reduction to one rank and in a broadcast, `peer` is the root, and all meet.)
static void rank_file_missing(const struct rank_view *view, int rank, int running, int stream,
                              void (*add)(void *user, int rank), void *user) {
    const struct stream_counters *streams = &view->record[rank].streams[running];
    const struct counter *c = &streams->of[stream];
    axis_set group = c->group & AXES_ALL;
    int size = mesh_group_size(&view->mesh, group);
    bool rooted = strcmp(op_of(view, c), "reduce") == 0 || strcmp(op_of(view, c), "broadcast") == 0;
    if (c->peer % size && !rooted) {
        add(user, mesh_peer(&view->mesh, rank, group, c->peer));
        return;
    }
    for (int i = 0; i < size; i++) {
        int other = mesh_member(&view->mesh, rank, group, i);
        const struct stream_counters *theirs = &view->record[other].streams[running];
        const bool same =
            strncmp(theirs->program, streams->program, COUNTERS_PROGRAM) == 0 && rank_file_meet(c, &theirs->of[stream]);
        // What runs beside steps is the same whatever step a rank has come to.
        if (!same || (running == 0 && view->record[other].step != view->record[rank].step))
            add(user, other);
    }
}

static void add_text(void *user, int rank) {
    text_add(user, " %d", rank);
}

static void add_json(void *user, int rank) {
    json_add_integer(user, NULL, rank);
}

// Appends words from the file, made safe for a terminal: another program may have written them.
static void add_words(struct text *out, const char *words, size_t most) {
    text_add_shown(out, words, strnlen(words, most), true);
}

static void print_counter(const struct rank_view *view, int rank, int running, int stream, int64_t now,
                          struct text *out) {
    const struct rank_record *record = &view->record[rank];
    const struct stream_counters *streams = &record->streams[running];
    const struct counter *c = &streams->of[stream];
    text_add(out, "    ");
    add_words(out, stream_name(streams, stream), STREAM_NAME);
    text_add(out, "%*s %-13s ", MAX(0, 9 - (int)strlen(stream_name(streams, stream))), "",
             rank_file_word(STATES, COUNTER_STATES, c->state));
    add_words(out, op_of(view, c), RANK_FILE_OP_BYTES);
    text_add(out, " (");
    add_words(out, program_name(streams), COUNTERS_PROGRAM);
    text_add(out, ", invocation %d, instruction %d, %s", c->invocation, c->instruction,
             rank_file_word(PHASE_WORDS, PHASE_COUNT, c->phase));
    if (c->layer != NONE)
        text_add(out, ", layer %d", c->layer);
    if (c->microbatch != NONE)
        text_add(out, ", microbatch %d", c->microbatch);
    text_add(out, ")");
    if (c->state == COUNTER_WAITING) {
        text_add(out, " for stream ");
        add_words(out, stream_name(streams, c->awaited), STREAM_NAME);
        text_add(out, ", %.1f s", rank_file_seconds(record, now, c->since));
    }
    if (c->state == COUNTER_MEETING) {
        char axes[AXES_TEXT];
        struct text ranks = {0};
        rank_file_missing(view, rank, running, stream, add_text, &ranks);
        text_add(out, " over %s, %.1f s", axes_print(c->group & AXES_ALL, axes),
                 rank_file_seconds(record, now, c->since));
        if (ranks.length)
            text_add(out, ", waiting for rank%s", ranks.text);
        text_release(&ranks);
    }
    text_add(out, "\n");
}

static void print_text(const struct rank_view *view, int64_t now, struct text *out) {
    for (int r = 0; r < view->ranks; r++) {
        const struct rank_record *record = &view->record[r];
        text_add(out, "rank %d: %s", r, rank_file_word(ACTIVITIES, RANK_ACTIVITIES, record->activity));
        if (record->activity != RANK_ENDED)
            text_add(out, " for %.1f s", rank_file_seconds(record, now, record->changed));
        text_add(out, ", last step done %lld\n", (long long)record->step);
        if (record->activity == RANK_FAILED) {
            text_add(out, "    ");
            add_words(out, record->error, sizeof record->error);
            text_add(out, "\n");
        }
        for (int k = 0; k < RANK_FILE_RUNNING * STREAMS_MAX; k++)
            if (record->streams[k / STREAMS_MAX].of[k % STREAMS_MAX].state != COUNTER_IDLE)
                print_counter(view, r, k / STREAMS_MAX, k % STREAMS_MAX, now, out);
    }
}

static void rank_file_print_json(const struct rank_view *view, int64_t now, struct text *out) {
    json_begin_array(out, "ranks");
    for (int r = 0; r < view->ranks; r++) {
        const struct rank_record *record = &view->record[r];
        json_begin_object(out, NULL);
        json_add_integer(out, "rank", r);
        json_add_string(out, "activity", rank_file_word(ACTIVITIES, RANK_ACTIVITIES, record->activity));
        json_add_number(out, "seconds", rank_file_seconds(record, now, record->changed));
        json_add_integer(out, "last_step", record->step);
        if (record->activity == RANK_FAILED) {
            char *message = mem_printf("%.*s", (int)strnlen(record->error, sizeof record->error), record->error);
            json_add_string(out, "error", message);
            free(message);
        }
        json_begin_array(out, "streams");
        for (int k = 0; k < RANK_FILE_RUNNING * STREAMS_MAX; k++) {
            const int running = k / STREAMS_MAX, s = k % STREAMS_MAX;
            const struct stream_counters *streams = &record->streams[running];
            const struct counter *c = &streams->of[s];
            char axes[AXES_TEXT];
            if (c->state == COUNTER_IDLE)
                continue;
            json_begin_object(out, NULL);
            json_add_string(out, "program", program_name(streams));
            json_add_string(out, "stream", stream_name(streams, s));
            json_add_string(out, "state", rank_file_word(STATES, COUNTER_STATES, c->state));
            json_add_string(out, "op", op_of(view, c));
            json_add_integer(out, "invocation", c->invocation);
            json_add_integer(out, "instruction", c->instruction);
            json_add_string(out, "phase", rank_file_word(PHASE_WORDS, PHASE_COUNT, c->phase));
            json_add_integer(out, "layer", c->layer);
            json_add_integer(out, "microbatch", c->microbatch);
            if (c->state == COUNTER_WAITING)
                json_add_string(out, "awaits", stream_name(streams, c->awaited));
            if (c->state == COUNTER_MEETING) {
                json_add_string(out, "group", axes_print(c->group & AXES_ALL, axes));
                json_begin_array(out, "missing");
                rank_file_missing(view, r, running, s, add_json, out);
                json_end_array(out);
            }
            json_end_object(out);
        }
        json_end_array(out);
        json_end_object(out);
    }
    json_end_array(out);
}

void rank_view_print(const struct rank_view *view, int64_t now, bool json, struct text *out) {
    if (json)
        rank_file_print_json(view, now, out);
    else
        print_text(view, now, out);
}
