// The cache of schedules that were made.
#include "pipeline/schedule_store.h"

#include "test_schedule.h"

static struct schedule_recipe recipe_of(const char *name, int stages, int microbatches) {
    return (struct schedule_recipe){.name = name, .stages = stages, .microbatches = microbatches};
}

static bool is_there(struct schedule_store *store, struct schedule_recipe recipe) {
    struct schedule s;
    const bool found = schedule_store_find(store, &recipe, &s);
    if (found)
        schedule_release(&s);
    return found;
}

static void same_recipe(void **unused) {
    (void)unused;
    struct schedule_store *store = schedule_store_create();
    struct schedule_recipe recipe = recipe_of("auto", 3, 5);
    recipe.options = (struct schedule_options){.chunks = 1, .activation_limit = 4, .search_passes = 1000};
    recipe.options.times = (struct schedule_times){.forward = 1, .backward_input = 1, .backward_weight = 1};
    assert_false(is_there(store, recipe));
    struct schedule made = created_with(recipe.name, recipe.stages, recipe.microbatches, recipe.options), found;
    schedule_spread_vocabulary(&made, &recipe.options.times);
    schedule_store_add(store, &recipe, &made);
    assert_true(schedule_store_find(store, &recipe, &found));
    assert_true(found.vocabulary);
    assert_int_equal(found.options.activation_limit, 4);
    for (int r = 0; r < made.stages; r++) {
        assert_int_equal(found.rank[r].count, made.rank[r].count);
        assert_memory_equal(found.rank[r].item, made.rank[r].item, made.rank[r].count * sizeof *made.rank[r].item);
    }
    schedule_release(&found);
    schedule_release(&made);
    // All parts of the recipe count.
    struct schedule_recipe other[10];
    for (size_t i = 0; i < ARRAY_LENGTH(other); i++)
        other[i] = recipe;
    other[0].name = "zb-h2";
    other[1].stages++;
    other[2].microbatches++;
    other[3].vocabulary = true;
    other[4].spread.loss = 1;
    other[5].options.chunks++;
    other[6].options.activation_limit++;
    other[7].options.weight_share = 1;
    other[8].options.search_passes++;
    other[9].options.times.latency = 1;
    for (size_t i = 0; i < ARRAY_LENGTH(other); i++)
        assert_false(is_there(store, other[i]));
    assert_true(is_there(store, recipe));
    schedule_store_free(store);
}

static void oldest_are_forgotten(void **unused) {
    (void)unused;
    enum { MANY = 250000, KEPT = 4 }; // of 2 stages, a forward and a backward of each: a million
    struct schedule_store *store = schedule_store_create();
    struct schedule made = created("1f1b", 2, MANY);
    for (int i = 0; i <= KEPT; i++) {
        struct schedule_recipe recipe = recipe_of("1f1b", 2, MANY);
        recipe.options.waves = i;
        schedule_store_add(store, &recipe, &made);
        schedule_store_add(store, &recipe, &made); // is there
    }
    for (int i = 0; i <= KEPT; i++) {
        struct schedule_recipe recipe = recipe_of("1f1b", 2, MANY);
        recipe.options.waves = i;
        assert_int_equal(is_there(store, recipe), i > 0);
    }
    schedule_release(&made);
    // A schedule that is larger than the whole store is not kept, and drops no other.
    made = created("1f1b", 2, (KEPT + 1) * MANY);
    const struct schedule_recipe more = recipe_of("1f1b", 2, (KEPT + 1) * MANY);
    schedule_store_add(store, &more, &made);
    assert_false(is_there(store, more));
    schedule_release(&made);
    struct schedule_recipe last = recipe_of("1f1b", 2, MANY);
    last.options.waves = KEPT;
    assert_true(is_there(store, last));
    schedule_store_free(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_recipe), cmocka_unit_test(oldest_are_forgotten)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
