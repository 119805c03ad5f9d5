// Slots are numbered on and on; number n lies in slot n % slots. Three numbers follow each other: how many were ended,
// begun by a thread, and filled.
#include "base/ordered_work.h"

#include "base/parallel_for.h"

enum { THREADS_MAX = 256 };

struct ordered_thread {
    struct ordered_work *work;
    int index;
    pthread_t thread;
};

struct ordered_work {
    struct ordered_work_options options;
    struct ordered_thread thread[THREADS_MAX];
    int started; // threads; 0: the caller works
    pthread_mutex_t mutex;
    pthread_cond_t filled_more, done_more;
    int64_t ended, begun, filled;
    bool *done; // of each slot
    bool stops;
};

static void *ordered_run(void *argument) {
    const struct ordered_thread *self = argument;
    struct ordered_work *w = self->work;
    pthread_mutex_lock(&w->mutex);
    for (;;) {
        while (!w->stops && w->begun == w->filled)
            pthread_cond_wait(&w->filled_more, &w->mutex);
        if (w->stops)
            break;
        const int slot = (int)(w->begun++ % w->options.slots);
        pthread_mutex_unlock(&w->mutex);
        w->options.work(w->options.user, self->index, slot);
        pthread_mutex_lock(&w->mutex);
        w->done[slot] = true;
        pthread_cond_signal(&w->done_more);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

struct ordered_work *ordered_work_create(const struct ordered_work_options *options) {
    struct ordered_work *w = mem_alloc(sizeof *w);
    CHECK(options->slots > 0);
    w->options = *options;
    w->done = mem_alloc((size_t)options->slots * sizeof *w->done);
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->filled_more, NULL);
    pthread_cond_init(&w->done_more, NULL);
    const int wanted = options->threads > 1 ? MIN(options->threads, THREADS_MAX) : 0;
    for (; w->started < wanted; w->started++) {
        struct ordered_thread *t = &w->thread[w->started];
        *t = (struct ordered_thread){.work = w, .index = w->started};
        if (thread_start(&t->thread, ordered_run, t, "a thread", NULL) != TRIREME_OK)
            break;
    }
    return w;
}

static trireme_status ordered_end_oldest(struct ordered_work *w, trireme_error *error) {
    const int slot = (int)(w->ended % w->options.slots);
    pthread_mutex_lock(&w->mutex);
    while (!w->done[slot])
        pthread_cond_wait(&w->done_more, &w->mutex);
    w->done[slot] = false;
    pthread_mutex_unlock(&w->mutex);
    w->ended++;
    return w->options.end(w->options.user, slot, error);
}

trireme_status ordered_work_next(struct ordered_work *w, int *slot, trireme_error *error) {
    if (w->filled - w->ended == w->options.slots)
        TRY(ordered_end_oldest(w, error));
    *slot = (int)(w->filled % w->options.slots);
    return TRIREME_OK;
}

void ordered_work_start(struct ordered_work *w) {
    const int slot = (int)(w->filled % w->options.slots);
    if (w->started == 0) {
        w->options.work(w->options.user, 0, slot);
        w->done[slot] = true;
        w->filled++;
        return;
    }
    pthread_mutex_lock(&w->mutex);
    w->filled++;
    pthread_cond_signal(&w->filled_more);
    pthread_mutex_unlock(&w->mutex);
}

trireme_status ordered_work_finish(struct ordered_work *w, trireme_error *error) {
    while (w->ended < w->filled)
        TRY(ordered_end_oldest(w, error));
    return TRIREME_OK;
}

void ordered_work_free(struct ordered_work *w) {
    if (!w)
        return;
    pthread_mutex_lock(&w->mutex);
    w->stops = true;
    pthread_cond_broadcast(&w->filled_more);
    pthread_mutex_unlock(&w->mutex);
    for (int i = 0; i < w->started; i++)
        pthread_join(w->thread[i].thread, NULL);
    pthread_cond_destroy(&w->filled_more);
    pthread_cond_destroy(&w->done_more);
    pthread_mutex_destroy(&w->mutex);
    free(w->done);
    free(w);
}
