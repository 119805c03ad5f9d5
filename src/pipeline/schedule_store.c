#include "pipeline/schedule_store.h"

#include <pthread.h>

// The most passes of all schedules in a store: 48 MB.
static const size_t PASSES = 4000000;

struct stored {
    struct schedule_recipe recipe; // its name is owned
    struct schedule schedule;
    size_t passes;
};

struct schedule_store {
    pthread_mutex_t lock;
    VEC(struct stored) all; // oldest first
    size_t passes;
};

struct schedule_store *schedule_store_create(void) {
    struct schedule_store *store = mem_alloc(sizeof *store);
    pthread_mutex_init(&store->lock, NULL);
    return store;
}

static void stored_release(struct stored *s) {
    free((char *)s->recipe.name);
    schedule_release(&s->schedule);
}

void schedule_store_free(struct schedule_store *store) {
    if (!store)
        return;
    for (size_t i = 0; i < store->all.count; i++)
        stored_release(&store->all.item[i]);
    VEC_RELEASE(&store->all);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

static bool same_times(const struct schedule_times *a, const struct schedule_times *b) {
    return a->forward == b->forward && a->backward_input == b->backward_input &&
           a->backward_weight == b->backward_weight && a->latency == b->latency && a->embed == b->embed &&
           a->loss == b->loss && a->loss_weight == b->loss_weight && a->embed_weight == b->embed_weight &&
           a->link == b->link;
}

static bool same_options(const struct schedule_options *a, const struct schedule_options *b) {
    return a->chunks == b->chunks && a->waves == b->waves && a->activation_limit == b->activation_limit &&
           a->weight_share == b->weight_share && a->search_passes == b->search_passes &&
           same_times(&a->times, &b->times);
}

static bool same_recipe(const struct schedule_recipe *a, const struct schedule_recipe *b) {
    return strcmp(a->name, b->name) == 0 && a->stages == b->stages && a->microbatches == b->microbatches &&
           a->vocabulary == b->vocabulary && same_options(&a->options, &b->options) &&
           same_times(&a->spread, &b->spread);
}

// With the lock held.
static const struct schedule *store_find(const struct schedule_store *store, const struct schedule_recipe *recipe) {
    for (size_t i = store->all.count; i-- > 0;)
        if (same_recipe(&store->all.item[i].recipe, recipe))
            return &store->all.item[i].schedule;
    return NULL;
}

bool schedule_store_find(struct schedule_store *store, const struct schedule_recipe *recipe, struct schedule *out) {
    pthread_mutex_lock(&store->lock);
    const struct schedule *found = store_find(store, recipe);
    if (found)
        *out = schedule_copy(found);
    pthread_mutex_unlock(&store->lock);
    return found;
}

static void forget_oldest(struct schedule_store *store) {
    struct stored *oldest = store->all.item;
    store->passes -= oldest->passes;
    stored_release(oldest);
    memmove(oldest, oldest + 1, --store->all.count * sizeof *oldest);
}

void schedule_store_add(struct schedule_store *store, const struct schedule_recipe *recipe,
                        const struct schedule *schedule) {
    size_t passes = 0;
    for (int r = 0; r < schedule->stages; r++)
        passes += schedule->rank[r].count;
    pthread_mutex_lock(&store->lock);
    if (passes <= PASSES && !store_find(store, recipe)) {
        while (store->passes + passes > PASSES)
            forget_oldest(store);
        struct stored new = {*recipe, schedule_copy(schedule), passes};
        new.recipe.name = mem_strdup(recipe->name);
        VEC_PUSH(&store->all, new);
        store->passes += passes;
    }
    pthread_mutex_unlock(&store->lock);
}
