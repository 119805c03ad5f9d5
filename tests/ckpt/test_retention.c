// ckpt/retention.h: which directories are kept, and that none is removed for the sake of a damaged one.
#include "support/checkpoint.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *step_in(const char *folder, int number) {
    char name[32];
    snprintf(name, sizeof name, "step-%d", number);
    return path_in(folder, name);
}

static void save_steps(const char *folder, int first, int last) {
    for (int i = first; i <= last; i++)
        assert_sample_saved(step_in(folder, i), i);
}

// Which of step-1 to step-60 are there, as "3,8,12".
static const char *steps_in(const char *folder) {
    static char text[256];
    size_t n = 0;
    *text = '\0';
    for (int i = 1; i <= 60; i++)
        if (path_exists(step_in(folder, i)))
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%d", n ? "," : "", i);
    return text;
}

static void flip(const char *folder, int number) {
    const char *path = path_in(step_in(folder, number), "model-00002-of-00002.safetensors");
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    path_flip_bit(path, st.st_size - 1, 3);
}

static void cut(const char *folder, int number) {
    assert_int_equal(truncate(path_in(step_in(folder, number), "below/b.txt"), 0), 0);
}

static void prune(struct retention *r, int64_t last) {
    struct retention_list list;
    trireme_error error = {0};
    bool stopped;
    assert_ok(retention_decide(r, last, NULL, &list, &stopped, &error), &error);
    assert_ok(retention_remove(r, &list, &error), &error);
    retention_list_release(&list);
}

static void test_latest(void **state) {
    const char *folder = *state;
    trireme_error error = {0};
    save_steps(folder, 1, 12);
    assert_sample_saved(path_in(folder, "best"), 1);
    cut(folder, 12);                                          // newest: stays
    cut(folder, 10);                                          // among those kept: stays
    cut(folder, 2);                                           // old: goes
    path_write(path_in(step_in(folder, 3), "notes"), "mine"); // stays
    assert_ok(sample_prune(folder, 12, 0, &error), &error);
    assert_int_equal(folder_count(folder), 13);
    assert_ok(sample_prune(folder, 12, 3, &error), &error);
    assert_string_equal(steps_in(folder), "3,8,9,10,11,12");
    int hold = directory_hold(step_in(folder, 8));
    assert_true(hold >= 0);
    assert_ok(sample_prune(folder, 12, 1, &error), &error);
    // As long as somebody reads it; a save of the same name does not wait for that.
    assert_string_equal(steps_in(folder), "3,8,11,12");
    assert_int_equal(sample_version(step_in(folder, 8)), 8);
    assert_sample_saved(step_in(folder, 8), 9);
    directory_let_go(hold);
    hold = directory_hold(step_in(folder, 8));
    assert_ok(sample_prune(folder, 12, 1, &error), &error);
    assert_string_equal(steps_in(folder), "3,8,11,12");
    directory_let_go(hold);
    assert_ok(sample_prune(folder, 12, 1, &error), &error);
    assert_string_equal(steps_in(folder), "3,11,12");
    assert_int_equal(directory_hold(step_in(folder, 8)), -1);
    // The last save is kept, whatever directories have higher numbers.
    save_steps(folder, 7, 7);
    assert_ok(sample_prune(folder, 7, 1, &error), &error);
    assert_string_equal(steps_in(folder), "3,7,11,12");
    assert_int_equal(folder_count(folder), 5);
    assert_ok(sample_prune(path_in(folder, "missing"), 12, 1, &error), &error);
}

static void test_every(void **state) {
    const char *folder = *state;
    struct retention r = {.parent = folder, .rules = {.latest = 2, .every = 5}};
    save_steps(folder, 1, 12);
    cut(folder, 5); // what it still has may be wanted
    prune(&r, 12);
    assert_string_equal(steps_in(folder), "5,10,11,12");
    // They are no places among the latest.
    r.rules.latest = 1;
    save_steps(folder, 13, 16);
    prune(&r, 16);
    assert_string_equal(steps_in(folder), "5,10,15,16");
    retention_release(&r);
}

// Of steps 1 to 9.
static const double LOSSES[] = {NAN, 4, 1, 2, NAN, 2, INFINITY, 3, 1.5, 9};

static double loss_of(void *user, const struct directory_numbered *directory) {
    (void)user;
    return directory->number < (int64_t)ARRAY_LENGTH(LOSSES) ? LOSSES[directory->number] : NAN;
}

static void test_best(void **state) {
    const char *folder = *state;
    struct retention r = {.parent = folder, .rules = {.latest = 1, .best = 3}, .loss = loss_of};
    save_steps(folder, 1, 10);
    flip(folder, 2); // the very best
    struct retention_list list;
    trireme_error error = {0};
    assert_ok(retention_guess(&r, 10, &list, &error), &error);
    assert_int_equal(list.count, 10);
    assert_int_equal(list.item[0].kept, RETENTION_LATEST);
    assert_int_equal(list.item[8].kept, RETENTION_BEST); // by its size
    assert_int_equal(list.item[4].kept, 0);              // its loss is infinite
    assert_int_equal(list.item[2].number, 8);
    assert_true(list.item[2].loss == 1.5);
    retention_list_release(&list);
    prune(&r, 10);
    // Of two equal ones the newer; in the place of step 2 the older.
    assert_string_equal(steps_in(folder), "3,5,8,10");
    // Once a better one comes, the worst of them goes.
    save_steps(folder, 7, 7);
    r.rules.best = 2;
    prune(&r, 10);
    assert_string_equal(steps_in(folder), "5,8,10");
    // A loss that is infinite, or was not measured, is none of the best, however few others there are.
    save_steps(folder, 4, 4);
    save_steps(folder, 6, 6);
    r.rules.best = 5;
    prune(&r, 10);
    assert_string_equal(steps_in(folder), "5,8,10");
    retention_release(&r);
}

// A disk that damages what it is given leaves sizes as they are.
static void test_damaged_content(void **state) {
    const char *folder = *state;
    struct retention r = {.parent = folder, .rules = {.latest = 2}};
    save_steps(folder, 1, 5);
    flip(folder, 5);
    flip(folder, 4);
    prune(&r, 5);
    assert_string_equal(steps_in(folder), "2,3,4,5");
    assert_int_equal(r.known.count, 4);
    // However many more it damages, two whole ones stay.
    for (int i = 6; i <= 12; i++) {
        save_steps(folder, i, i);
        flip(folder, i);
        prune(&r, i);
    }
    assert_string_equal(steps_in(folder), "2,3,4,5,6,7,8,9,10,11,12");
    // When the disk has been replaced, the damaged ones go with those that were kept in their place.
    save_steps(folder, 13, 14);
    prune(&r, 14);
    assert_string_equal(steps_in(folder), "13,14");
    assert_int_equal(r.known.count, 2);
    retention_release(&r);
}

// What the run has verified itself is not read again.
static void test_known_content(void **state) {
    const char *folder = *state;
    struct retention r = {.parent = folder, .rules = {.latest = 2}};
    save_steps(folder, 1, 4);
    flip(folder, 4);
    retention_know(&r, 4); // were it read, its damage would be found
    flip(folder, 3);
    prune(&r, 4);
    assert_string_equal(steps_in(folder), "2,3,4");
    retention_release(&r);
}

static void count_reads(void *user) {
    ++*(int *)user;
}

static bool always(void *user) {
    (void)user;
    return true;
}

static trireme_status never_remove(void *user, trireme_error *error) {
    (void)user;
    FAIL(TRIREME_ERROR_IO, "not now");
}

static void test_reads_and_asks(void **state) {
    const char *folder = *state;
    struct retention r = {.parent = folder, .rules = {.latest = 3, .every = 2}};
    struct retention_list list;
    trireme_error error = {0};
    bool stopped;
    int reads = 0;
    const struct checksum_watch watch = {count_reads, &reads};
    save_steps(folder, 1, 3);
    // Nothing is read where nothing goes.
    assert_ok(retention_decide(&r, 3, &watch, &list, &stopped, &error), &error);
    assert_int_equal(reads, 0);
    retention_list_release(&list);
    save_steps(folder, 4, 4);
    r.stops = always;
    assert_ok(retention_decide(&r, 4, &watch, &list, &stopped, &error), &error);
    assert_true(stopped);
    assert_int_equal(reads + (int)list.count, 0);
    r.stops = NULL;
    r.may_remove = never_remove;
    assert_ok(retention_decide(&r, 4, &watch, &list, &stopped, &error), &error);
    assert_int_equal(reads, 3 * 5); // files of the latest three
    assert_int_equal(list.item[3].kept, 0);
    assert_refused(retention_remove(&r, &list, &error), TRIREME_ERROR_IO, &error, "not now");
    assert_string_equal(steps_in(folder), "1,2,3,4");
    r.may_remove = NULL;
    int hold = directory_hold(step_in(folder, 1));
    assert_ok(retention_remove(&r, &list, &error), &error);
    assert_int_equal(list.item[3].kept, RETENTION_HELD);
    directory_let_go(hold);
    retention_list_release(&list);
    retention_release(&r);
}

// What cannot be read now may be whole: it neither counts nor goes.
static void test_unreadable(void **state) {
    const char *folder = *state;
    struct retention r = {.parent = folder, .rules = {.latest = 2}};
    save_steps(folder, 1, 5);
    for (int i = 2; i <= 4; i += 2) {
        assert_int_equal(unlink(path_in(step_in(folder, i), "manifest.json")), 0);
        assert_int_equal(mkdir(path_in(step_in(folder, i), "manifest.json"), 0700), 0); // reading it fails
    }
    struct retention_list list;
    trireme_error error = {0};
    assert_ok(retention_guess(&r, 5, &list, &error), &error);
    assert_int_equal(list.item[1].kept, RETENTION_NEWER | RETENTION_UNREADABLE);
    assert_true(list.item[1].damage && list.item[2].kept == RETENTION_LATEST);
    retention_list_release(&list);
    prune(&r, 5);
    assert_string_equal(steps_in(folder), "2,3,4,5");
    retention_release(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_latest),          IN_FOLDER(test_every),         IN_FOLDER(test_best),
        IN_FOLDER(test_damaged_content), IN_FOLDER(test_known_content), IN_FOLDER(test_reads_and_asks),
        IN_FOLDER(test_unreadable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
