// Ranks save their parts of a model into the files of a checkpoint: the bytes are those that one rank makes, values may
// change once they are copied, what a disk has changed is not published; and whatever call fails, or wherever the
// process ends, the checkpoint before is whole, and the next save succeeds.
#include "support/faults.h"
#include "support/sanitized.h"
#include "support/spread.h"
#include "support/team.h"

#include "base/clock.h"
#include "base/reserve.h"
#include "ckpt/output.h"
#include "ckpt/saver.h"
#include "ckpt/state_files.h"
#include "ckpt/tree.h"
#include "ckpt/uring.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// Ranks of this process that save a model together, as rank 0 tells.
struct scene {
    const char *folder;
    struct spread spread;
    struct image image;
    struct holders holders;
    struct holdings own[8]; // of each rank
    char *whole;            // all files
    size_t bytes;
    int64_t block_bytes, buffer_bytes;
    int64_t other_bytes; // of the blocks of a second plan; 0: there is none
    int now;             // the plan of the next save
    bool scribbles;
    // What is saved: step-N.
    int64_t step;
    // Rank 0's.
    struct directory *directory;
    atomic_int blocked;          // publishing waits as long as this is set
    atomic_int looked;           // the ranks that have seen it wait
    struct save_plan plan[8][2]; // each rank's
    // Of each rank's last save, or of making its saver.
    trireme_status status[8];
    trireme_error error[8];
    // What is done by all ranks.
    void (*act)(struct scene *scene, struct teammate *mate, struct saver *saver, struct communicator *all);
};

static void scene_create(struct scene *s, const char *folder, enum small model, int tensor, int shards, int replicas) {
    *s = (struct scene){.folder = folder, .block_bytes = 8192, .step = 1};
    spread_create(&s->spread, small_models[model].json, DTYPE_F32);
    spread_over(&s->spread, 1, 1, 1);
    spread_image(&s->spread, &s->image);
    s->whole = spread_files(&s->spread, &s->image, 1 << 30, &s->bytes);
    spread_over(&s->spread, tensor, shards, replicas);
    spread_holders(&s->spread, &s->holders);
    for (int r = 0; r < s->spread.ranks; r++)
        spread_own(&s->spread, r, &s->own[r]);
}

static void scene_release(struct scene *s) {
    holders_release(&s->holders);
    for (int r = 0; r < s->spread.ranks; r++)
        holdings_release(&s->own[r]);
    image_release(&s->image);
    free(s->whole);
    spread_release(&s->spread);
}

static const char *step_path(const struct scene *s, int64_t step) {
    char name[32];
    snprintf(name, sizeof name, "step-%lld", (long long)step);
    return path_in(s->folder, name);
}

// ---- rank 0's part

static trireme_status scene_open(void *user, char **path, trireme_error *error) {
    struct scene *s = user;
    char *final = mem_printf("%s/step-%lld", s->folder, (long long)s->step);
    trireme_status status = directory_begin(final, DIRECTORY_SET_ASIDE, &s->directory, error);
    free(final);
    if (status != TRIREME_OK)
        return status;
    *path = mem_strdup(directory_path(s->directory));
    char *below = mem_printf("%s/" STATE_FOLDER, *path);
    if (mkdir(below, 0777) != 0)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot create: %s", below, strerror(errno));
    free(below);
    return status;
}

static trireme_status scene_publish(void *user, const uint64_t *sum, trireme_error *error) {
    struct scene *s = user;
    while (s->blocked)
        team_sleep_ms(1);
    const struct save_plan *plan = &s->plan[0][s->now];
    const int64_t block_bytes = s->now ? s->other_bytes : s->block_bytes;
    trireme_status status = output_write(directory_path(s->directory), "config.json", "{}", 2, error);
    for (size_t i = 0; i < image_files(&s->image); i++) {
        const struct safetensors_planned *planned = image_file(&s->image, i);
        struct checksum_file file = {
            .name = planned->name, .bytes = planned->bytes, .block_bytes = (uint64_t)block_bytes};
        for (size_t b = 0; b < plan->block.count; b++)
            if (plan->block.item[b].file == i)
                VEC_PUSH(&file.block, sum[b]);
        directory_record(s->directory, &file);
        VEC_RELEASE(&file.block);
    }
    if (status == TRIREME_OK)
        return directory_commit(s->directory, error);
    directory_abort(s->directory);
    return status;
}

static void scene_discard(void *user) {
    directory_abort(((struct scene *)user)->directory);
}

// ---- all ranks

static void values_scribble(const struct scene *s, int rank) {
    for (size_t i = 0; i < s->own[rank].count; i++) {
        const struct holding *h = &s->own[rank].item[i];
        char *data = (char *)h->data;
        for (int64_t k = 0; k < (h->held.end - h->held.begin) * dtype_size(s->spread.dtype[h->group]); k++)
            data[k] = (char)~data[k];
    }
}

static void scene_begin(struct scene *s, const struct saver_work *work, struct saver *saver, int rank) {
    assert_false(saver_is_under_way(saver));
    saver_begin(saver, &s->plan[rank][s->now], work);
    assert_true(saver_await_copied(saver, INFINITY));
    if (s->scribbles)
        values_scribble(s, rank);
}

static void scene_end(struct scene *s, struct saver *saver, int rank) {
    s->error[rank] = (trireme_error){0};
    s->status[rank] = saver_end(saver, &s->error[rank]);
    if (s->scribbles)
        values_scribble(s, rank);
}

static void scene_save(struct scene *s, struct teammate *mate, struct saver *saver, struct communicator *all) {
    (void)all;
    const struct saver_work work = {s, scene_open, scene_publish, scene_discard};
    scene_begin(s, &work, saver, mate->rank);
    scene_end(s, saver, mate->rank);
}

static void scene_body(struct teammate *mate) {
    struct scene *s = mate->context;
    struct communicator *all = teammate_open(mate), *saving = teammate_open(mate);
    struct save_plan *plan = s->plan[mate->rank];
    const size_t plans = s->other_bytes ? 2 : 1;
    struct saver *saver;
    for (size_t i = 0; i < plans; i++)
        save_plan_create(&plan[i], &s->image, &s->holders, &s->own[mate->rank], s->spread.values, mate->rank,
                         i ? s->other_bytes : s->block_bytes);
    s->error[mate->rank] = (trireme_error){0};
    s->status[mate->rank] =
        saver_create(&saver, plan, plans, mate->ranks > 1 ? saving : NULL, s->buffer_bytes, &s->error[mate->rank]);
    if (s->status[mate->rank] == TRIREME_OK) {
        s->act(s, mate, saver, all);
        saver_free(saver);
    }
    for (size_t i = 0; i < plans; i++)
        save_plan_release(&plan[i]);
    communicator_free(saving);
    communicator_free(all);
}

static void scene_run(struct scene *s,
                      void (*act)(struct scene *, struct teammate *, struct saver *, struct communicator *)) {
    s->act = act;
    team_run(s->spread.ranks, 20, scene_body, s);
}

// ---- what is there afterwards

static void assert_whole(const struct scene *s, int64_t step) {
    trireme_error error = {0};
    const char *path = step_path(s, step), *expected = s->whole;
    assert_ok(directory_verify(path, MANIFEST_CONTENT, NULL, &error), &error);
    for (size_t i = 0; i < image_files(&s->image); expected += image_file(&s->image, i++)->bytes) {
        const size_t bytes = image_file(&s->image, i)->bytes;
        char *got = mem_alloc(bytes + 1);
        const int file = open(path_in(path, image_file(&s->image, i)->name), O_RDONLY);
        assert_int_equal(read(file, got, bytes + 1), bytes);
        close(file);
        if (memcmp(got, expected, bytes) != 0)
            fail_msg("step %lld: %s differs", (long long)step, image_file(&s->image, i)->name);
        free(got);
    }
}

static void assert_all_saved(const struct scene *s) {
    for (int r = 0; r < s->spread.ranks; r++)
        assert_ok(s->status[r], &s->error[r]);
    assert_whole(s, s->step);
}

// All ranks tell the same failure.
static void assert_all_failed(const struct scene *s, const char *part) {
    for (int r = 0; r < s->spread.ranks; r++) {
        assert_refused(s->status[r], TRIREME_ERROR_IO, &s->error[r], part);
        assert_string_equal(s->error[r].message, s->error[0].message);
    }
}

// ---- saves

static bool has_uring(void) {
    struct uring *u = uring_create(1);
    uring_free(u);
    return u != NULL;
}

static void save_twice(struct scene *s, struct teammate *mate, struct saver *saver, struct communicator *all) {
    trireme_error error;
    assert_false(saver_is_under_way(saver));
    scene_save(s, mate, saver, all);
    assert_true(saver_is_done(saver));
    teammate_failed(mate, s->status[mate->rank], &s->error[mate->rank]);
    teammate_failed(mate, comm_barrier(all, &error), &error);
    if (mate->rank == 0)
        s->step++;
    teammate_failed(mate, comm_barrier(all, &error), &error);
    scene_save(s, mate, saver, all);
}

// Blocks that begin at any place, buffers that hold one or all, however ranks share the values.
static void test_bytes(void **state) {
    static const struct {
        enum small model;
        int tensor, shards, replicas;
    } SPREADS[] = {{SMALL_GPT2, 1, 1, 1}, {SMALL_LLAMA, 1, 1, 1}, {SMALL_LLAMA, 1, 3, 1},
                   {SMALL_GPT2, 2, 2, 1}, {SMALL_LLAMA, 2, 1, 2}, {SMALL_GPT2, 2, 2, 2}};
    static const int64_t BLOCKS[] = {4096, 5000, 1 << 15, 1 << 24}, BUFFERS[] = {0, 20000, 1 << 20};
    for (size_t k = 0; k < ARRAY_LENGTH(SPREADS); k++)
        for (size_t b = 0; b < ARRAY_LENGTH(BLOCKS); b++) {
            struct scene s;
            scene_create(&s, *state, SPREADS[k].model, SPREADS[k].tensor, SPREADS[k].shards, SPREADS[k].replicas);
            s.block_bytes = BLOCKS[b];
            s.buffer_bytes = BUFFERS[(k + b) % ARRAY_LENGTH(BUFFERS)];
            s.scribbles = true;
            faults_plain((k + b) % 2);
            scene_run(&s, save_twice);
            assert_all_saved(&s);
            assert_whole(&s, 1);
            assert_int_equal(folder_count(*state), 2);
            for (int step = 1; step <= 2; step++)
                assert_ok(tree_remove(step_path(&s, step), NULL), NULL);
            scene_release(&s);
        }
    faults_plain(false);
}

static void save_by_turns(struct scene *s, struct teammate *mate, struct saver *saver, struct communicator *all) {
    enum { SAVES = 4 };
    trireme_error error;
    const long taken = faults_count(FAULT_MAP), threads = faults_count(FAULT_THREAD);
    for (int i = 0; i < SAVES; i++) {
        teammate_failed(mate, comm_barrier(all, &error), &error);
        if (mate->rank == 0) {
            s->now = i % 2;
            s->step = i + 1;
        }
        teammate_failed(mate, comm_barrier(all, &error), &error);
        scene_save(s, mate, saver, all);
        teammate_failed(mate, s->status[mate->rank], &s->error[mate->rank]);
    }
    teammate_failed(mate, comm_barrier(all, &error), &error);
    if (faults_count(FAULT_THREAD) != threads || (mate->ranks == 1 && faults_count(FAULT_MAP) != taken))
        teammate_wrong(mate, "a save starts threads or takes memory");
}

// One saver saves by the smaller plan and by the larger one, and takes nothing for that once it is made.
static void test_plans_by_turns(void **state) {
    for (int ranks = 1; ranks <= 3; ranks += 2) {
        struct scene s;
        scene_create(&s, *state, SMALL_LLAMA, 1, ranks, 1);
        s.block_bytes = 4096;
        s.other_bytes = 1 << 15;
        s.scribbles = true;
        scene_run(&s, save_by_turns);
        for (int step = 1; step <= 4; step++) {
            assert_whole(&s, step);
            assert_ok(tree_remove(step_path(&s, step), NULL), NULL);
        }
        scene_release(&s);
    }
}

// ---- deadlines

static void await_end(struct scene *s, struct teammate *mate, struct saver *saver, struct communicator *all) {
    const struct saver_work work = {s, scene_open, scene_publish, scene_discard};
    char what[SAVER_WHAT] = "";
    (void)all;
    saver_what(saver, what);
    if (strcmp(what, "nothing"))
        teammate_wrong(mate, "before: %s", what);
    scene_begin(s, &work, saver, mate->rank);
    const char *expected = mate->rank == 0 ? "publishing" : "waiting for rank 0 to publish";
    for (int ms = 0; ms < 20000 && strcmp(what, expected); ms++) {
        team_sleep_ms(1);
        saver_what(saver, what);
    }
    if (strcmp(what, expected))
        teammate_wrong(mate, "%s", what);
    if (saver_is_done(saver) || saver_await_end(saver, 0.02) || !saver_is_under_way(saver))
        teammate_wrong(mate, "it has ended");
    s->looked++;
    for (int ms = 0; mate->rank == 0 && ms < 20000 && s->looked < mate->ranks; ms++)
        team_sleep_ms(1);
    if (mate->rank == 0)
        s->blocked = false;
    if (!saver_await_end(saver, 20) || !saver_is_done(saver))
        teammate_wrong(mate, "it does not end");
    scene_end(s, saver, mate->rank);
}

// Longer than ranks wait for one another.
static void test_deadline(void **state) {
    struct scene s;
    scene_create(&s, *state, SMALL_LLAMA, 1, 2, 1);
    s.blocked = true;
    scene_run(&s, await_end);
    assert_all_saved(&s);
    scene_release(&s);
}

static void save_slowly(struct scene *s, struct teammate *mate, struct saver *saver, struct communicator *all) {
    const struct saver_work work = {s, scene_open, scene_publish, scene_discard};
    char what[SAVER_WHAT];
    bool writes = false, waits = false;
    (void)all;
    world_deadline(mate->world, 0.05);
    scene_begin(s, &work, saver, mate->rank);
    for (int64_t since = clock_now(); !saver_await_end(saver, 0.001);) {
        saver_what(saver, what);
        writes |= strncmp(what, "writing ", 8) == 0 && strstr(what, ".safetensors at ");
        waits |= strncmp(what, "waiting for rank ", 17) == 0;
        if (strcmp(what, "publishing") != 0)
            since = clock_now();
        else if (clock_now() - since > 200000000)
            s->blocked = false;
    }
    if (!writes || !waits)
        teammate_wrong(mate, "it does not say what it does: writes %d, waits %d", writes, waits);
    scene_end(s, saver, mate->rank);
}

// A disk that takes longer than ranks otherwise wait for one another makes nobody lost.
static void test_slow_disk(void **state) {
    struct scene s;
    scene_create(&s, *state, SMALL_LLAMA, 1, 2, 1);
    s.buffer_bytes = 1 << 20; // of all
    s.blocked = true;
    faults_plain(true);
    faults_delay(FAULT_WRITE, 120);
    scene_run(&s, save_slowly);
    faults_delay(FAULT_WRITE, 0);
    faults_plain(false);
    assert_all_saved(&s);
    scene_release(&s);
}

static void copy_at_once(struct scene *s, struct teammate *mate, struct saver *saver, struct communicator *all) {
    const struct saver_work work = {s, scene_open, scene_publish, scene_discard};
    (void)all;
    if (!saver_has_room(saver))
        teammate_wrong(mate, "there is no room for all");
    const long written = faults_count(FAULT_WRITE);
    scene_begin(s, &work, saver, mate->rank); // and waits until all is copied
    if (faults_count(FAULT_WRITE) > written + 3)
        teammate_wrong(mate, "copying has waited for %ld blocks", faults_count(FAULT_WRITE) - written);
    scene_end(s, saver, mate->rank);
}

// With room for all that a rank packs, wherever blocks end, copying does not wait for the disk.
static void test_room(void **state) {
    struct scene s;
    scene_create(&s, *state, SMALL_LLAMA, 1, 1, 1);
    s.buffer_bytes = INT64_MAX; // no more is taken than is of use
    s.block_bytes = 5000;
    faults_plain(true);
    faults_delay(FAULT_WRITE, 50);
    scene_run(&s, copy_at_once);
    faults_delay(FAULT_WRITE, 0);
    faults_plain(false);
    assert_all_saved(&s);
    assert_whole(&s, 1);
    scene_release(&s);
}

// ---- a rank that is lost

static void lose_a_rank(struct scene *s, struct teammate *mate, struct saver *saver, struct communicator *all) {
    if (mate->rank == 1) {
        team_sleep_ms(20);
        world_break(mate->world, COMM_LOST, 1, "rank 1 is gone");
        s->status[1] = TRIREME_ERROR_LOST;
    } else
        scene_save(s, mate, saver, all);
}

static void test_lost_rank(void **state) {
    struct scene s;
    scene_create(&s, *state, SMALL_LLAMA, 1, 3, 1);
    scene_run(&s, lose_a_rank);
    for (int r = 0; r < 3; r++)
        assert_int_equal(s.status[r], TRIREME_ERROR_LOST);
    assert_says(s.error[0].message, "rank 1 is gone");
    assert_says(s.error[2].message, "rank 1 is gone");
    assert_int_equal(folder_count(*state), 0);
    scene_release(&s);
}

// ---- what a disk changes

static atomic_int reads_left;

// Changes one bit of what the disk has of a file, right before it is read back.
static void flip_a_bit(int file, off_t at) {
    char byte, path[64];
    if (atomic_fetch_sub(&reads_left, 1) != 1)
        return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    const int disk = open(path, O_RDWR);
    if (disk < 0 || pread(disk, &byte, 1, at + 1) != 1)
        abort();
    byte ^= 4;
    if (pwrite(disk, &byte, 1, at + 1) != 1)
        abort();
    close(disk);
}

// All that is written is read back, and none of it from the system's cache.
static void changes_bits(void **state, int ranks, bool plain) {
    struct scene s;
    int blocks = 0, others = 0;
    scene_create(&s, *state, SMALL_LLAMA, 1, ranks, 1);
    s.block_bytes = 1 << 15;
    faults_plain(plain);
    for (int n = 1;; n++) {
        reads_left = n;
        faults_forgotten = flip_a_bit;
        scene_run(&s, scene_save);
        faults_forgotten = NULL;
        if (reads_left > 0)
            break;
        assert_all_failed(&s, "the disk gives back other bytes ");
        const bool of_block = strstr(s.error[0].message, ".safetensors: ") != NULL;
        if (of_block) {
            assert_says(s.error[0].message, strstr(s.error[0].message, "/training/") ? " (adamw.m." : " (model.");
            assert_says(s.error[0].message, ": XXH3 ");
            assert_true(ranks == 1 || strstr(s.error[0].message, "rank "));
        } else
            assert_says(s.error[0].message, others ? "config.json: content is damaged" : "manifest.json: ");
        blocks += of_block;
        others += !of_block;
        assert_int_equal(folder_count(*state), 0);
    }
    assert_all_saved(&s);
    int64_t expected = 0;
    for (size_t i = 0; i < image_files(&s.image); i++)
        expected += divide_up((int64_t)image_file(&s.image, i)->bytes, s.block_bytes);
    assert_int_equal(blocks, expected);
    assert_int_equal(others, 2); // the manifest, config.json
    assert_ok(tree_remove(step_path(&s, 1), NULL), NULL);
    faults_plain(false);
    scene_release(&s);
}

static void test_disk_that_changes_bits(void **state) {
    changes_bits(state, 1, false);
    changes_bits(state, 1, true);
    changes_bits(state, 4, false);
}

// ---- a rank that has no memory or no threads

static void test_savers_that_cannot_be_made(void **state) {
    static const struct {
        enum fault_kind kind;
        int code;
        trireme_status status;
        const char *message;
    } FAULTS[] = {{FAULT_THREAD, EAGAIN, TRIREME_ERROR_IO, ": cannot start the thread that "},
                  {FAULT_MAP, ENOMEM, TRIREME_ERROR_MEMORY, ": the buffer for saving checkpoints needs "}};
    struct scene s;
    scene_create(&s, *state, SMALL_LLAMA, 1, 4, 1);
    for (size_t k = 0; k < ARRAY_LENGTH(FAULTS); k++) {
        int failures = 0;
        // The threads of the ranks come first.
        for (int n = FAULTS[k].kind == FAULT_THREAD ? 5 : 1;; n++) {
            faults_set(1u << FAULTS[k].kind, n, FAULTS[k].code);
            scene_run(&s, scene_save);
            if (!faults_clear())
                break;
            failures++;
            for (int r = 0; r < 4; r++) {
                assert_refused(s.status[r], FAULTS[k].status, &s.error[r], FAULTS[k].message);
                assert_string_equal(s.error[r].message, s.error[0].message);
            }
            assert_says(s.error[0].message, "rank ");
            assert_int_equal(folder_count(*state), 0);
        }
        assert_int_equal(failures, FAULTS[k].kind == FAULT_THREAD ? 8 : 4);
        assert_all_saved(&s);
        assert_ok(tree_remove(step_path(&s, 1), NULL), NULL);
    }
    scene_release(&s);
}

// ---- failures anywhere

struct anywhere {
    struct scene scene;
    enum fault_kind kind;
    int nth, code;
    bool reached;
};

// A save with a fault, and one without.
static void save_with_fault(struct scene *s, struct teammate *mate, struct saver *saver, struct communicator *all) {
    struct anywhere *a = (struct anywhere *)s;
    trireme_error error;
    if (mate->rank == 0)
        faults_set(1u << a->kind, a->nth, a->code);
    teammate_failed(mate, comm_barrier(all, &error), &error);
    scene_save(s, mate, saver, all);
    teammate_failed(mate, comm_barrier(all, &error), &error);
    if (mate->rank == 0)
        a->reached = faults_clear();
}

static void save_after_fault(struct scene *s, struct teammate *mate, struct saver *saver, struct communicator *all) {
    struct anywhere *a = (struct anywhere *)s;
    trireme_error error;
    save_with_fault(s, mate, saver, all);
    if (mate->rank == 0) {
        const bool failed = s->status[0] != TRIREME_OK;
        for (int r = 1; r < mate->ranks; r++)
            if (failed ? strcmp(s->error[r].message, s->error[0].message) != 0 : s->status[r] != TRIREME_OK)
                teammate_wrong(mate, "rank %d: %s", r, s->error[r].message);
        if (failed && (!a->reached || strchr(s->error[0].message, '\n') || !s->error[0].message[0]))
            teammate_wrong(mate, "fails by itself: %s", s->error[0].message);
        // What fails passingly must not be passed over where bytes may be missing.
        const unsigned strict =
            1u << FAULT_READ | 1u << FAULT_WRITE | 1u << FAULT_TRANSFER | 1u << FAULT_SYNC | 1u << FAULT_RESERVE;
        if (a->reached && !failed && strict & 1u << a->kind)
            teammate_wrong(mate, "call %d of %s fails, and nothing is said", a->nth, fault_kind_names[a->kind]);
        // A temporary is left only where it cannot be removed; the new one has its name where only the folder above it
        // could not be synced.
        const bool is_named = path_exists(step_path(s, 2)), may_stay = a->kind == FAULT_NAME || a->kind == FAULT_OPEN;
        const size_t expected = 1 + is_named;
        if (is_named && failed && a->kind != FAULT_SYNC && a->kind != FAULT_OPEN)
            teammate_wrong(mate, "call %d of %s fails once all is done", a->nth, fault_kind_names[a->kind]);
        if (folder_count(s->folder) != expected && !may_stay)
            teammate_wrong(mate, "call %d of %s leaves something", a->nth, fault_kind_names[a->kind]);
        s->step = 3;
        // What was refused memory was given the reserve; the call that goes on takes a new one.
        reserve_give();
        teammate_failed(mate, reserve_take(&error), &error);
    }
    teammate_failed(mate, comm_barrier(all, &error), &error);
    scene_save(s, mate, saver, all);
}

// Returns how many saves failed.
static int fail_everywhere(void **state, int ranks, bool plain, enum fault_kind kind, int code) {
    struct anywhere a = {.kind = kind, .code = code, .reached = true};
    struct scene *s = &a.scene;
    int failures = 0;
    const int stride = (kind == FAULT_NAME ? 1 : SANITIZED ? 7 : ranks > 1 ? 3 : 1) * (kind == FAULT_ALLOCATE ? 7 : 1);
    trireme_error error = {0};
    scene_create(s, *state, SMALL_LLAMA, 1, ranks, 1);
    s->block_bytes = 1 << 14;
    faults_plain(plain);
    assert_ok(reserve_take(&error), &error);
    scene_run(s, scene_save);
    for (a.nth = 1; a.reached; a.nth += stride) {
        s->step = 2;
        scene_run(s, save_after_fault);
        assert_all_saved(s);
        assert_whole(s, 1);
        if (path_exists(step_path(s, 2)))
            assert_whole(s, 2);
        else
            failures++;
        assert_int_equal(folder_count(*state), 2 + path_exists(step_path(s, 2)));
        assert_ok(tree_remove(step_path(s, 2), NULL), NULL);
        assert_ok(tree_remove(step_path(s, 3), NULL), NULL);
    }
    reserve_give();
    faults_plain(false);
    assert_ok(tree_remove(step_path(s, 1), NULL), NULL);
    scene_release(s);
    return failures;
}

// The kinds of calls that are made in another way without io_uring.
static const unsigned WAYS = 1u << FAULT_READ | 1u << FAULT_WRITE | 1u << FAULT_TRANSFER;

static void test_failure_anywhere(void **state) {
    static const int RANKS[] = {1, 4};
    for (size_t k = 0; k < ARRAY_LENGTH(RANKS); k++)
        for (int plain = 0; plain < 2; plain++)
            for (enum fault_kind kind = 0; kind < FAULT_KINDS; kind++) {
                if (plain && !(WAYS & 1u << kind))
                    continue;
                const int code = kind == FAULT_ALLOCATE || kind == FAULT_MAP    ? ENOMEM
                                 : kind == FAULT_WRITE || kind == FAULT_RESERVE ? ENOSPC
                                                                                : EIO;
                const int failures = fail_everywhere(state, RANKS[k], plain, kind, code);
                print_message("%d ranks, %s, %s: %d\n", RANKS[k], plain ? "plain" : "uring", fault_kind_names[kind],
                              failures);
                const bool never =
                    kind == FAULT_MAP || kind == FAULT_THREAD || (kind == FAULT_TRANSFER && (plain || !has_uring()));
                assert_true(never ? failures == 0 : failures > 0);
            }
}

// ---- ends anywhere

// Ends the process at the nth call of a save of step-2; returns whether it was reached.
static bool end_at(struct anywhere *a) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        scene_run(&a->scene, save_with_fault);
        _exit(a->scene.status[0] != TRIREME_OK);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == FAULT_ENDED || WEXITSTATUS(status) == 0));
    return WEXITSTATUS(status) == FAULT_ENDED;
}

static void end_everywhere(void **state, int ranks, bool plain) {
    static const enum fault_kind KINDS[] = {FAULT_OPEN,    FAULT_WRITE,  FAULT_TRANSFER, FAULT_SYNC,
                                            FAULT_RESERVE, FAULT_RENAME, FAULT_NAME,     FAULT_CLOSE};
    struct anywhere a = {0};
    struct scene *s = &a.scene;
    int olds = 0, news = 0;
    scene_create(s, *state, SMALL_LLAMA, 1, ranks, 1);
    s->block_bytes = 1 << 14;
    faults_plain(plain);
    scene_run(s, scene_save);
    for (size_t k = 0; k < ARRAY_LENGTH(KINDS); k++) {
        bool ended = !plain || WAYS & 1u << KINDS[k];
        a.kind = KINDS[k];
        for (a.nth = 1; ended; a.nth += SANITIZED ? 5 : 2 * ranks - 1) {
            struct directory_search found = {0};
            trireme_error error = {0};
            s->step = 2;
            ended = end_at(&a);
            assert_ok(directory_newest(*state, MANIFEST_CONTENT, NULL, &found, &error), &error);
            assert_int_equal(found.skipped.count, 0);
            assert_true(found.number == 2 || (found.number == 1 && ended));
            olds += found.number == 1;
            news += found.number == 2;
            assert_whole(s, found.number);
            assert_whole(s, 1);
            directory_search_release(&found);
            s->step = 3; // clears up
            scene_run(s, scene_save);
            assert_all_saved(s);
            assert_int_equal(folder_count(*state), 2 + path_exists(step_path(s, 2)));
            assert_ok(tree_remove(step_path(s, 2), NULL), NULL);
            assert_ok(tree_remove(step_path(s, 3), NULL), NULL);
        }
    }
    faults_plain(false);
    print_message("%d ranks, %s: %d old, %d new\n", ranks, plain ? "plain" : "uring", olds, news);
    assert_true(olds > 1 && news > 0);
    assert_ok(tree_remove(step_path(s, 1), NULL), NULL);
    scene_release(s);
}

static void test_end_anywhere(void **state) {
    for (int plain = 0; plain < 2; plain++) {
        end_everywhere(state, 1, plain);
        end_everywhere(state, 4, plain);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_bytes),
        IN_FOLDER(test_plans_by_turns),
        IN_FOLDER(test_deadline),
        IN_FOLDER(test_slow_disk),
        IN_FOLDER(test_room),
        IN_FOLDER(test_lost_rank),
        IN_FOLDER(test_disk_that_changes_bits),
        IN_FOLDER(test_savers_that_cannot_be_made),
        IN_FOLDER(test_failure_anywhere),
        IN_FOLDER(test_end_anywhere),
    };
    return cmocka_run_group_tests_name("saver", tests, NULL, NULL);
}
