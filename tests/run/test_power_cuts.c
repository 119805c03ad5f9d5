// A run whose machine loses its power: at any moment what was not synced may be lost, or be there in part. Whatever is
// left, the newest checkpoint that has its name is whole, it is the last one that the run has said to be saved or a
// newer one, and the same command goes on from there to the bits of a run that was never disturbed.
#include "support/faults.h"
#include "support/power.h"
#include "support/runs.h"
#include "support/sanitized.h"

#include "ckpt/tree.h"

#include <unistd.h>

enum { RESUMES = SANITIZED ? 90 : 23, CUTS = SANITIZED ? 5 : 1 }; // each how many changes

static const char *const OVERRIDES[] = {RUNS_LLAMA,
                                        "model.num_hidden_layers=1",
                                        "training.steps=6",
                                        "training.threads=1",
                                        "training.kernels=reference",
                                        "validation.freq=0",
                                        NULL};

static struct power *power;

// The step in "saved FOLDER/run/checkpoint/step-2".
static void take_promise(void *user, const char *text) {
    (void)user;
    if (strncmp(text, "saved ", 6) == 0)
        power_promise(power, atoi(strrchr(text, '-') + 1));
}

static void train(const char *folder, const char *const *extra, struct runs_watch *watch) {
    struct train_result result;
    trireme_error error = {0};
    assert_ok(runs_train(folder, OVERRIDES, extra, watch, &result, &error), &error);
}

static void assert_as_undisturbed(const char *folder, int64_t step) {
    static const char *const FILES[] = {"model.safetensors", "training/state.safetensors", "config.json"};
    char own[64], expected[64];
    snprintf(own, sizeof own, "run/checkpoint/step-%lld", (long long)step);
    snprintf(expected, sizeof expected, "whole/checkpoint/step-%lld", (long long)step);
    for (size_t i = 0; i < ARRAY_LENGTH(FILES); i++)
        assert_same_file(folder, own, expected, FILES[i]);
}

// The newest checkpoint; -1: there is none.
static int64_t newest(const char *folder) {
    struct directory_search found = {0};
    trireme_error error = {0};
    assert_ok(directory_newest(path_in(folder, "run/checkpoint"), MANIFEST_CONTENT, NULL, &found, &error), &error);
    if (found.skipped.count)
        fail_msg("a damaged checkpoint is left: %s", found.skipped.item[0].reason);
    const int64_t number = found.path ? found.number : -1;
    directory_search_release(&found);
    return number;
}

static void cut_everywhere(const char *folder, const char *ranks, const char *async) {
    const char *whole[] = {ranks, async, "checkpoint.interval=1", "checkpoint.keep_latest_k=0", NULL},
               *saves[] = {ranks, async, "checkpoint.interval=2", "checkpoint.keep_latest_k=1", NULL};
    struct runs_watch watch = {0}, promises = {.message = take_promise};
    const char *run = path_in(folder, "run");
    int resumes = 0, olds = 0, news = 0;
    runs_prepare(folder);
    faults_plain(true);
    train(folder, whole, &watch);
    assert_int_equal(rename(run, path_in(folder, "whole")), 0);
    power = power_record(folder);
    train(folder, saves, &promises);
    const size_t changes = power_stop(power);
    for (size_t i = 0; i < changes; i++) {
        const int64_t promised = power_play(power);
        if (i % CUTS)
            continue;
        for (int loss = 0; loss < POWER_LOSSES; loss++) {
            const char *cut = path_in(folder, "cut");
            power_cut(power, (enum power_loss)loss, i, cut);
            assert_ok(tree_remove(run, NULL), NULL);
            char *left = mem_printf("%s/run", cut);
            if (path_exists(left))
                assert_int_equal(rename(left, run), 0);
            free(left);
            assert_ok(tree_remove(cut, NULL), NULL);
            const int64_t found = newest(folder);
            if (found < promised)
                fail_msg("after change %zu step %lld is gone: step %lld is the newest", i, (long long)promised,
                         (long long)found);
            if (found >= 0)
                assert_as_undisturbed(folder, found);
            olds += found == promised;
            news += found > promised;
            if ((i + (size_t)loss) % RESUMES)
                continue;
            train(folder, saves, &watch);
            assert_as_undisturbed(folder, 6);
            resumes++;
        }
    }
    print_message("%s, %s: %zu changes; the last checkpoint %d times, a newer one %d times; %d runs go on\n", ranks,
                  async, changes, olds, news, resumes);
    assert_true(olds > 0 && news > 0 && resumes > 0);
    power_free(power);
    faults_plain(false);
}

static void one_rank_that_waits(void **state) {
    cut_everywhere(*state, "parallelism.ranks=1", "checkpoint.async_save=false");
}

static void one_rank_that_goes_on(void **state) {
    cut_everywhere(*state, "parallelism.ranks=1", "checkpoint.async_save=true");
}

static void two_ranks(void **state) {
    cut_everywhere(*state, "parallelism.ranks=2", "checkpoint.async_save=true");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(one_rank_that_waits),
        IN_FOLDER(one_rank_that_goes_on),
        IN_FOLDER(two_ranks),
    };
    return cmocka_run_group_tests_name("power_cuts", tests, NULL, NULL);
}
