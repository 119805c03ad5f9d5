#include "ckpt/saver.h"

#include "base/amount.h"
#include "base/parallel_for.h"
#include "base/region.h"
#include "base/reserve.h"
#include "base/xxh3.h"
#include "ckpt/block_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

// Blocks that are under way to the disk or back, while the next one is made: with more a disk is no faster.
enum { SLOTS = 2 };

enum saver_doing {
    DOING_NOTHING,
    DOING_OPEN,
    DOING_COPY,
    DOING_SEND,
    DOING_RECEIVE,
    DOING_WRITE,
    DOING_SYNC,
    DOING_READ_BACK,
    DOING_AGREE,
    DOING_PUBLISH,
};
struct saver_now {
    enum saver_doing doing;
    size_t block;
    int peer;
};

struct saver {
    const struct save_plan *plan; // of the save under way, or of the last one
    struct communicator *all;
    struct saver_work work;
    struct region memory; // what follows
    // What this rank packs, block after block, each in one piece: the copying thread adds, the writing one takes away.
    char *buffer;
    int64_t buffer_bytes;
    char *given; // what a block is made of
    int64_t given_bytes;
    char *slot; // [SLOTS]: blocks that are made, or read back
    int64_t slot_bytes;
    int64_t *share; // [ranks]
    uint64_t *sum;  // [blocks of the plan that has most]
    char *path;
    struct block_writer *writer;
    // Of the blocks under way to the disk, those that lie in the buffer: where. Else -1. Number n is at n % SLOTS.
    int64_t lies[SLOTS];
    uint64_t written, ended; // how many have been begun, and have ended
    // Between the threads.
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t saves; // that have begun
    bool ends;      // the threads are to end
    size_t copied;  // blocks
    int64_t held;   // where what the buffer holds begins, as counted below
    bool all_copied, given_up;
    struct saver_now now;
    pthread_t copying, writing;
    bool has_copying, has_writing; // threads
    bool under_way;
    _Atomic bool done;
    trireme_status status;
    trireme_error error;
};

static void saver_is_doing(struct saver *s, enum saver_doing doing, size_t block, int peer) {
    pthread_mutex_lock(&s->lock);
    s->now = (struct saver_now){doing, block, peer};
    pthread_mutex_unlock(&s->lock);
}

// Waits for the next save; false: there is none.
static bool saver_await_save(struct saver *s, uint64_t *served) {
    pthread_mutex_lock(&s->lock);
    while (s->saves == *served && !s->ends)
        pthread_cond_wait(&s->changed, &s->lock);
    const bool begins = s->saves != *served;
    *served = s->saves;
    pthread_mutex_unlock(&s->lock);
    return begins;
}

// ---- the buffer

// Blocks lie in the buffer as if it went on for ever, each at a place from which it can be written past the cache, and
// none across an end of the buffer: where `bytes` go that come behind `end`.
static int64_t buffer_place(const struct saver *s, int64_t end, int64_t bytes) {
    const int64_t place = round_up(end, BLOCK_ALIGNMENT), left = s->buffer_bytes - place % s->buffer_bytes;
    return left < bytes ? place + left : place;
}

static char *buffer_at(const struct saver *s, int64_t place) {
    return s->buffer + place % s->buffer_bytes;
}

static void saver_copy_blocks(struct saver *s) {
    const struct save_plan *p = s->plan;
    int64_t end = 0;
    for (size_t b = 0; b < p->block.count; b++) {
        const int64_t packed = p->block.item[b].packed, place = buffer_place(s, end, packed);
        pthread_mutex_lock(&s->lock);
        while (place + packed - s->held > s->buffer_bytes && !s->given_up)
            pthread_cond_wait(&s->changed, &s->lock);
        const bool ends = s->given_up;
        pthread_mutex_unlock(&s->lock);
        if (ends)
            break;
        if (packed > 0)
            save_pack(p, b, buffer_at(s, place));
        end = place + packed;
        pthread_mutex_lock(&s->lock);
        s->copied = b + 1;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
    }
    pthread_mutex_lock(&s->lock);
    s->all_copied = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void *saver_copy(void *argument) {
    struct saver *s = argument;
    for (uint64_t served = 0; saver_await_save(s, &served);)
        saver_copy_blocks(s);
    return NULL;
}

static bool saver_has_block(struct saver *s, size_t block) {
    pthread_mutex_lock(&s->lock);
    const bool has = s->copied > block;
    pthread_mutex_unlock(&s->lock);
    return has;
}

// The buffer holds nothing any more before `place`, except for blocks that are under way.
static void saver_take_away(struct saver *s, int64_t place) {
    for (uint64_t n = s->written; n-- > s->ended;)
        if (s->lies[n % SLOTS] >= 0)
            place = s->lies[n % SLOTS];
    pthread_mutex_lock(&s->lock);
    s->held = place;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void saver_give_up(struct saver *s) {
    pthread_mutex_lock(&s->lock);
    s->given_up = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

// ---- files

static char *saver_file_path(const struct saver *s, size_t file) {
    return mem_printf("%s/%s", s->path, image_file(s->plan->image, file)->name);
}

// The file in its size, and with its room on the disk where the file system can tell: a disk that is too full is found
// before anything is written.
static trireme_status saver_create_file(const char *path, uint64_t bytes, trireme_error *error) {
    const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file < 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot create: %s", path, strerror(errno));
    trireme_status status = TRIREME_OK;
    int failed;
    do
        failed = fallocate(file, 0, 0, (off_t)bytes);
    while (failed && errno == EINTR);
    if (failed && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot reserve %" PRIu64 " bytes: %s", path, bytes,
                           strerror(errno));
    else if (failed && ftruncate(file, (off_t)bytes) != 0)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot create: %s", path, strerror(errno));
    if (close(file) != 0 && status == TRIREME_OK)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot close: %s", path, strerror(errno));
    return status;
}

// On rank 0.
static trireme_status saver_create_files(const struct saver *s, trireme_error *error) {
    trireme_status status = TRIREME_OK;
    for (size_t i = 0; i < image_files(s->plan->image) && status == TRIREME_OK; i++) {
        char *path = saver_file_path(s, i);
        status = saver_create_file(path, image_file(s->plan->image, i)->bytes, error);
        free(path);
    }
    return status;
}

// ---- blocks

static bool saver_writes(const struct saver *s, size_t block) {
    return s->plan->block.item[block].writer == s->plan->rank;
}

static char *saver_slot(const struct saver *s, uint64_t number) {
    return s->slot + (int64_t)(number % SLOTS) * s->slot_bytes;
}

// Waits for the block that has been under way longest. Where another has failed before, that failure stays.
static void saver_end_block(struct saver *s, trireme_error *own) {
    trireme_error failure = {0};
    s->ended++;
    if (block_writer_end(s->writer, &failure) != TRIREME_OK && own->status == TRIREME_OK)
        *own = failure;
}

static void saver_end_blocks(struct saver *s, trireme_error *own) {
    while (s->ended < s->written)
        saver_end_block(s, own);
}

// Waits until a block is copied: its data are at `place`. What is under way may have to end for that, to make room.
static void saver_await_block(struct saver *s, size_t block, int64_t place, trireme_error *own) {
    saver_is_doing(s, DOING_COPY, block, NONE);
    while (s->ended < s->written && !saver_has_block(s, block)) {
        saver_end_block(s, own);
        saver_take_away(s, place);
    }
    pthread_mutex_lock(&s->lock);
    while (s->copied <= block)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

// Fetches what the ranks give for a block that this rank writes and has not whole; `own`: what it gives itself.
static trireme_status saver_collect(struct saver *s, size_t block, const char *own, trireme_error *error) {
    char *to = s->given;
    save_shares(s->plan, block, s->share);
    for (int r = 0; r < s->plan->ranks; to += s->share[r++])
        if (r == s->plan->rank)
            memcpy(to, own, (size_t)s->share[r]);
        else if (s->share[r] > 0) {
            saver_is_doing(s, DOING_RECEIVE, block, r);
            TRY(comm_receive(s->all, to, s->share[r], r, error));
        }
    return TRIREME_OK;
}

static trireme_status saver_open_file(struct saver *s, size_t file, trireme_error *error) {
    if (block_writer_is_open(s->writer, file))
        return TRIREME_OK;
    char *path = saver_file_path(s, file);
    const trireme_status status = block_writer_open(s->writer, file, path, error);
    free(path);
    return status;
}

// `packed`: what this rank has packed, at `place` in the buffer.
static void saver_write_block(struct saver *s, size_t block, const char *packed, int64_t place, trireme_error *own) {
    const struct save_block *b = &s->plan->block.item[block];
    saver_is_doing(s, DOING_WRITE, block, NONE);
    while (s->written - s->ended >= SLOTS)
        saver_end_block(s, own);
    if (own->status != TRIREME_OK || saver_open_file(s, b->file, own) != TRIREME_OK)
        return;
    char *made = saver_slot(s, s->written);
    if (!b->whole)
        save_unpack(s->plan, block, s->given, made);
    const char *data = b->whole ? packed : made;
    s->sum[block] = xxh3_of(data, (size_t)b->bytes);
    block_writer_write(s->writer, b->file, b->begin, data, b->bytes);
    s->lies[s->written++ % SLOTS] = b->whole ? place : -1;
}

// Fails only where another rank is lost; what else goes wrong is put into *own.
static trireme_status saver_pass_block(struct saver *s, size_t block, int64_t place, trireme_error *own,
                                       trireme_error *error) {
    const struct save_block *b = &s->plan->block.item[block];
    const char *packed = buffer_at(s, place);
    if (!saver_writes(s, block)) {
        saver_is_doing(s, DOING_SEND, block, b->writer);
        return b->give > 0 ? comm_send(s->all, packed, b->give, b->writer, error) : TRIREME_OK;
    }
    if (!b->whole)
        TRY(saver_collect(s, block, packed, error));
    if (own->status == TRIREME_OK)
        saver_write_block(s, block, packed, place, own);
    return TRIREME_OK;
}

static trireme_status saver_pass_blocks(struct saver *s, trireme_error *own, trireme_error *error) {
    const struct save_plan *p = s->plan;
    int64_t place = 0;
    s->written = s->ended = 0;
    for (size_t b = 0; b < p->block.count; b++) {
        saver_await_block(s, b, place, own);
        TRY(saver_pass_block(s, b, place, own, error));
        place += p->block.item[b].packed;
        if (b + 1 < p->block.count) // what is left before the buffer's end may be too little for the next one
            place = buffer_place(s, place, p->block.item[b + 1].packed);
        saver_take_away(s, place);
    }
    return TRIREME_OK;
}

// ---- reading back

static trireme_status saver_sync(struct saver *s, trireme_error *error) {
    for (size_t b = 0; b < s->plan->block.count; b++) {
        const size_t file = s->plan->block.item[b].file;
        if (!saver_writes(s, b) || (b > 0 && file == s->plan->block.item[b - 1].file && saver_writes(s, b - 1)))
            continue;
        saver_is_doing(s, DOING_SYNC, b, NONE);
        TRY(block_writer_sync(s->writer, file, error));
    }
    return TRIREME_OK;
}

static trireme_status saver_compare(const struct saver *s, size_t block, const char *data, trireme_error *error) {
    const struct save_block *b = &s->plan->block.item[block];
    const uint64_t found = xxh3_of(data, (size_t)b->bytes), end = b->begin + (uint64_t)b->bytes;
    if (found == s->sum[block])
        return TRIREME_OK;
    const struct image_tensors tensors = image_tensors_in(s->plan->image, b->file, b->begin, end);
    char *path = saver_file_path(s, b->file);
    error_set(error, TRIREME_ERROR_IO,
              "%s: the disk gives back other bytes %" PRIu64 " to %" PRIu64
              " (%s%s%s) than were written: XXH3 %016" PRIx64 " instead of %016" PRIx64 ": check the disk",
              path, b->begin, end, tensors.first ? tensors.first : "the header", tensors.first ? " to " : "",
              tensors.first ? tensors.last : "", found, s->sum[block]);
    free(path);
    return TRIREME_ERROR_IO;
}

static void saver_compare_oldest(struct saver *s, size_t block, trireme_error *own) {
    const char *data = saver_slot(s, s->ended);
    saver_end_block(s, own);
    if (own->status == TRIREME_OK)
        saver_compare(s, block, data, own);
}

// Reads back all blocks that this rank has written.
static void saver_read_back(struct saver *s, trireme_error *own) {
    size_t under_way[SLOTS];
    s->written = s->ended = 0;
    for (size_t b = 0; b < s->plan->block.count && own->status == TRIREME_OK; b++) {
        const struct save_block *block = &s->plan->block.item[b];
        if (!saver_writes(s, b))
            continue;
        saver_is_doing(s, DOING_READ_BACK, b, NONE);
        if (s->written - s->ended >= SLOTS)
            saver_compare_oldest(s, under_way[s->ended % SLOTS], own);
        under_way[s->written % SLOTS] = b;
        block_writer_read(s->writer, block->file, block->begin, saver_slot(s, s->written++), block->bytes);
    }
    while (s->ended < s->written)
        saver_compare_oldest(s, under_way[s->ended % SLOTS], own);
}

// Ends what is under way, has the disk take all, and compares what it has.
static void saver_finish_files(struct saver *s, trireme_error *own) {
    trireme_error failure = {0};
    saver_end_blocks(s, own);
    if (own->status == TRIREME_OK && saver_sync(s, own) == TRIREME_OK)
        saver_read_back(s, own);
    if (block_writer_close(s->writer, &failure) != TRIREME_OK && own->status == TRIREME_OK)
        *own = failure;
    if (own->status == TRIREME_OK)
        reserve_check(own);
}

// ---- what ranks tell one another

enum { TOLD_PATH = 4096 };
struct told {
    int32_t status;
    char text[TOLD_PATH];
};

static trireme_status saver_share(const struct saver *s, struct told *told, trireme_error *error) {
    return s->all ? comm_broadcast(s->all, told, sizeof *told, 0, error) : TRIREME_OK;
}

static struct told told_of(trireme_status status, const char *text) {
    struct told told = {.status = (int32_t)status};
    snprintf(told.text, sizeof told.text, "%s", text);
    return told;
}

// On rank 0.
static trireme_status saver_make_place(struct saver *s, trireme_error *error) {
    TRY(s->work.open(s->work.user, &s->path, error));
    if (strlen(s->path) >= TOLD_PATH)
        FAIL(TRIREME_ERROR_USAGE, "%s: the path is too long", s->path);
    return saver_create_files(s, error);
}

static void saver_discard(struct saver *s) {
    if (s->plan->rank == 0 && s->path)
        s->work.discard(s->work.user);
}

// Rank 0 makes the files, and says where they are. *failed: whether it could not, which *error then tells all ranks.
static trireme_status saver_open(struct saver *s, bool *failed, trireme_error *error) {
    struct told *told = mem_alloc(sizeof *told);
    saver_is_doing(s, DOING_OPEN, 0, NONE);
    if (s->plan->rank == 0) {
        const trireme_status made = saver_make_place(s, error);
        *told = told_of(made, made == TRIREME_OK ? s->path : error->message);
    }
    const trireme_status status = saver_share(s, told, error);
    *failed = status == TRIREME_OK && told->status != TRIREME_OK;
    if (*failed)
        error_set(error, (trireme_status)told->status, "%s", told->text);
    else if (status == TRIREME_OK && s->plan->rank > 0)
        s->path = mem_strdup(told->text);
    if (*failed || status != TRIREME_OK)
        saver_discard(s);
    free(told);
    return status;
}

// Rank 0 gets the sums of the blocks that others have written.
static trireme_status saver_gather_sums(struct saver *s, trireme_error *error) {
    const struct save_plan *p = s->plan;
    for (int r = 1; r < p->ranks; r++) {
        VEC(uint64_t) sums = {0};
        for (size_t b = 0; b < p->block.count; b++)
            if (p->block.item[b].writer == r)
                VEC_PUSH(&sums, s->sum[b]);
        trireme_status status = TRIREME_OK;
        const int64_t bytes = (int64_t)(sums.count * sizeof *sums.item);
        if (bytes > 0 && p->rank == 0)
            status = comm_receive(s->all, sums.item, bytes, r, error);
        else if (bytes > 0 && p->rank == r)
            status = comm_send(s->all, sums.item, bytes, 0, error);
        for (size_t b = 0, k = 0; b < p->block.count; b++)
            if (p->block.item[b].writer == r)
                s->sum[b] = sums.item[k++];
        VEC_RELEASE(&sums);
        TRY(status);
    }
    return TRIREME_OK;
}

// The first rank that has failed says how; all then fail with that.
static trireme_status saver_agree(const struct saver *s, trireme_error *own, trireme_error *error) {
    if (!s->all)
        return TRIREME_OK;
    const int ranks = s->plan->ranks;
    int32_t most = own->status == TRIREME_OK ? 0 : ranks - s->plan->rank; // that of the first is the greatest
    TRY(comm_all_reduce(s->all, &most, &most, 1, DTYPE_I32, REDUCE_MAX, DTYPE_I32, error));
    if (most == 0)
        return TRIREME_OK;
    struct told *told = mem_alloc(sizeof *told);
    *told = told_of(own->status, own->message);
    const trireme_status status = comm_broadcast(s->all, told, sizeof *told, ranks - most, error);
    if (status == TRIREME_OK)
        error_set(own, (trireme_status)told->status, "rank %d: %s", ranks - most, told->text);
    free(told);
    return status;
}

static trireme_status saver_publish(struct saver *s, trireme_error *error) {
    struct told *told = mem_alloc(sizeof *told);
    trireme_error failure = {0};
    saver_is_doing(s, DOING_PUBLISH, 0, NONE);
    if (s->plan->rank == 0)
        *told = told_of(s->work.publish(s->work.user, s->sum, &failure), failure.message);
    trireme_status status = saver_share(s, told, error);
    if (status == TRIREME_OK && told->status != TRIREME_OK)
        status = error_set(error, (trireme_status)told->status, "%s", told->text);
    free(told);
    return status;
}

static trireme_status saver_save(struct saver *s, trireme_error *error) {
    trireme_error own = {0};
    bool failed;
    TRY(saver_open(s, &failed, error));
    if (failed)
        return error->status;
    trireme_status status = saver_pass_blocks(s, &own, error);
    if (status != TRIREME_OK) // nothing need be finished any more
        own = *error;
    saver_finish_files(s, &own);
    saver_is_doing(s, DOING_AGREE, 0, NONE);
    if (status == TRIREME_OK)
        status = saver_gather_sums(s, error);
    if (status == TRIREME_OK)
        status = saver_agree(s, &own, error);
    if (status == TRIREME_OK && own.status == TRIREME_OK)
        return saver_publish(s, error);
    saver_discard(s);
    return status == TRIREME_OK ? error_repeat(error, &own) : status;
}

static void *saver_write(void *argument) {
    struct saver *s = argument;
    for (uint64_t served = 0; saver_await_save(s, &served);) {
        s->status = saver_save(s, &s->error);
        free(s->path);
        s->path = NULL;
        saver_is_doing(s, DOING_NOTHING, 0, NONE);
        saver_give_up(s); // where it has failed: nobody takes what is still copied
        pthread_mutex_lock(&s->lock);
        while (!s->all_copied)
            pthread_cond_wait(&s->changed, &s->lock);
        s->done = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

// ---- the rank's thread

// Bytes of a buffer that takes all blocks as buffer_place has them.
static int64_t saver_room(const struct save_plan *plan) {
    int64_t bytes = 0;
    for (size_t b = 0; b < plan->block.count; b++)
        bytes += round_up(plan->block.item[b].packed, BLOCK_ALIGNMENT);
    return bytes;
}

// Makes the buffers as large as a plan needs them.
static void saver_measure(const struct save_plan *plan, int64_t buffer_bytes, struct saver *out) {
    int64_t most = 1;
    for (size_t b = 0; b < plan->block.count; b++)
        if (plan->block.item[b].writer == plan->rank)
            most = MAX(most, plan->block.item[b].bytes);
    const int64_t wanted = MIN(buffer_bytes, saver_room(plan));
    out->slot_bytes = MAX(out->slot_bytes, round_up(most, BLOCK_ALIGNMENT));
    out->buffer_bytes = MAX(out->buffer_bytes, round_up(MAX(MAX(wanted, plan->most_packed), 1), BLOCK_ALIGNMENT));
    out->given_bytes = MAX(out->given_bytes, plan->most_taken);
}

bool saver_has_room(const struct saver *s) {
    return s->buffer_bytes >= saver_room(s->plan);
}

static trireme_status saver_take_memory(struct saver *s, trireme_error *error) {
    const int64_t bytes = s->buffer_bytes + SLOTS * s->slot_bytes + s->given_bytes;
    TRY(region_create(&s->memory, (size_t)bytes, false, "the buffer for saving checkpoints", error));
    s->buffer = s->memory.base;
    s->slot = s->buffer + s->buffer_bytes;
    s->given = s->slot + SLOTS * s->slot_bytes;
    return TRIREME_OK;
}

static trireme_status saver_start(struct saver *s, trireme_error *error) {
    TRY(saver_take_memory(s, error));
    TRY(thread_start(&s->copying, saver_copy, s, "the thread that copies values for a checkpoint", error));
    s->has_copying = true;
    TRY(thread_start(&s->writing, saver_write, s, "the thread that writes a checkpoint", error));
    s->has_writing = true;
    return TRIREME_OK;
}

// How long others wait for this rank, and it for them, is not for them to say.
static void saver_set_deadline(const struct saver *s, bool any) {
    static const _Atomic int64_t never = 0;
    if (!s->all)
        return;
    communicator_wanted(s->all, false, any ? NULL : &never);
    communicator_wanted(s->all, true, any ? NULL : &never);
}

trireme_status saver_create(struct saver **out, const struct save_plan *plan, size_t plans, struct communicator *all,
                            int64_t buffer_bytes, trireme_error *error) {
    struct saver *s = mem_alloc(sizeof *s);
    size_t files = 0, blocks = 0;
    *s = (struct saver){.plan = plan, .all = all, .share = mem_alloc((size_t)plan->ranks * sizeof *s->share)};
    for (size_t i = 0; i < plans; i++) {
        files = MAX(files, image_files(plan[i].image));
        blocks = MAX(blocks, plan[i].block.count);
        saver_measure(&plan[i], buffer_bytes, s);
    }
    s->sum = mem_alloc(blocks * sizeof *s->sum);
    s->writer = block_writer_create(files, SLOTS, BLOCK_URING);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&s->lock, NULL);
    trireme_error own = {0};
    saver_start(s, &own);
    saver_set_deadline(s, true);
    trireme_status status = saver_agree(s, &own, error);
    if (status == TRIREME_OK && own.status != TRIREME_OK)
        status = error_repeat(error, &own);
    if (status == TRIREME_OK) {
        saver_set_deadline(s, false);
        *out = s;
    } else
        saver_free(s);
    return status;
}

void saver_begin(struct saver *s, const struct save_plan *plan, const struct saver_work *work) {
    CHECK(!s->under_way);
    s->plan = plan;
    s->work = *work;
    s->copied = 0;
    s->held = 0;
    s->all_copied = s->given_up = false;
    s->done = false;
    s->error = (trireme_error){0};
    s->under_way = true;
    pthread_mutex_lock(&s->lock);
    s->saves++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static struct timespec saver_until(double seconds) {
    enum { SECOND = 1000000000 };
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const double whole = floor(MAX(0.0, MIN(seconds, 1e9)));
    until.tv_sec += (time_t)whole;
    until.tv_nsec += (long)((MAX(0.0, MIN(seconds, 1e9)) - whole) * SECOND);
    until.tv_sec += until.tv_nsec / SECOND;
    until.tv_nsec %= SECOND;
    return until;
}

bool saver_await_copied(struct saver *s, double seconds) {
    const struct timespec until = saver_until(seconds);
    if (!s->under_way)
        return true;
    pthread_mutex_lock(&s->lock);
    while (!s->all_copied && pthread_cond_timedwait(&s->changed, &s->lock, &until) == 0)
        continue;
    const bool copied = s->all_copied;
    pthread_mutex_unlock(&s->lock);
    return copied;
}

bool saver_is_copied(struct saver *s) {
    pthread_mutex_lock(&s->lock);
    const bool copied = s->all_copied;
    pthread_mutex_unlock(&s->lock);
    return copied;
}

bool saver_is_under_way(const struct saver *s) {
    return s->under_way;
}

bool saver_is_done(const struct saver *s) {
    return s->done;
}

bool saver_await_end(struct saver *s, double seconds) {
    const struct timespec until = saver_until(seconds);
    pthread_mutex_lock(&s->lock);
    while (!s->done && pthread_cond_timedwait(&s->changed, &s->lock, &until) == 0)
        continue;
    const bool done = s->done;
    pthread_mutex_unlock(&s->lock);
    return done;
}

void saver_what(struct saver *s, char text[SAVER_WHAT]) {
    pthread_mutex_lock(&s->lock);
    const struct saver_now now = s->now;
    pthread_mutex_unlock(&s->lock);
    char place[SAVER_WHAT / 2];
    const struct save_block *b = &s->plan->block.item[now.block];
    const char *name = image_file(s->plan->image, b->file)->name;
    snprintf(place, sizeof place, "%s at %s", name, amount((int64_t)b->begin).text);
    switch (now.doing) {
    case DOING_NOTHING:
        snprintf(text, SAVER_WHAT, "nothing");
        break;
    case DOING_OPEN:
        snprintf(text, SAVER_WHAT, s->plan->rank == 0 ? "making files" : "waiting for rank 0 to make files");
        break;
    case DOING_COPY:
        snprintf(text, SAVER_WHAT, "waiting for values of %s to be copied", place);
        break;
    case DOING_SEND:
        snprintf(text, SAVER_WHAT, "waiting for rank %d to take a part of %s", now.peer, place);
        break;
    case DOING_RECEIVE:
        snprintf(text, SAVER_WHAT, "waiting for rank %d's part of %s", now.peer, place);
        break;
    case DOING_WRITE:
        snprintf(text, SAVER_WHAT, "writing %s", place);
        break;
    case DOING_SYNC:
        snprintf(text, SAVER_WHAT, "syncing %s", name);
        break;
    case DOING_READ_BACK:
        snprintf(text, SAVER_WHAT, "reading back %s", place);
        break;
    case DOING_AGREE:
        snprintf(text, SAVER_WHAT, "waiting for all ranks to have written");
        break;
    case DOING_PUBLISH:
        snprintf(text, SAVER_WHAT, s->plan->rank == 0 ? "publishing" : "waiting for rank 0 to publish");
        break;
    }
}

trireme_status saver_end(struct saver *s, trireme_error *error) {
    CHECK(s->under_way);
    while (!saver_await_end(s, INFINITY))
        continue;
    s->under_way = false;
    return s->status == TRIREME_OK ? TRIREME_OK : error_repeat(error, &s->error);
}

// Without a save under way.
static void saver_stop(struct saver *s) {
    pthread_mutex_lock(&s->lock);
    s->ends = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (s->has_copying)
        pthread_join(s->copying, NULL);
    if (s->has_writing)
        pthread_join(s->writing, NULL);
}

void saver_free(struct saver *s) {
    if (!s)
        return;
    trireme_error ignored;
    if (s->under_way)
        saver_end(s, &ignored);
    saver_stop(s);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    block_writer_free(s->writer);
    region_release(&s->memory);
    free(s->share);
    free(s->sum);
    free(s);
}
