#include "run/pruner.h"

#include "base/parallel_for.h"
#include "run/checkpoint.h"
#include "run/checkpoint_retention.h"

#include <stdatomic.h>

struct pruner {
    const struct run_directory *directory;
    char *parent;
    struct retention retention;
    struct checkpoint_losses losses;
    pthread_t thread;
    bool joined;
    atomic_bool now;

    // Under the lock.
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t last; // up to which checkpoints are to be removed; -1: nothing is to be done
    VEC(int64_t) whole;
    bool ends;
    char *remark;
};

static double pruner_loss(void *user, const struct directory_numbered *checkpoint) {
    return checkpoint_loss(&((struct pruner *)user)->losses, checkpoint);
}

static trireme_status pruner_may_remove(void *user, trireme_error *error) {
    return run_directory_check(((struct pruner *)user)->directory, error);
}

static bool pruner_stops(void *user) {
    return ((struct pruner *)user)->now;
}

static void pruner_remark(struct pruner *p, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = mem_vprintf(format, args);
    va_end(args);
    pthread_mutex_lock(&p->lock);
    char *before = p->remark;
    p->remark = before ? mem_printf("%s; %s", before, text) : mem_strdup(text);
    pthread_mutex_unlock(&p->lock);
    free(before);
    free(text);
}

// Tells of the damage that was found since `known` directories were known.
static void remark_damage(struct pruner *p, size_t known) {
    for (size_t i = known; i < p->retention.known.count; i++)
        if (p->retention.known.item[i].damage)
            pruner_remark(p, "checkpoint %s is damaged, and an older one is kept in its place: %s",
                          p->retention.known.item[i].path, p->retention.known.item[i].damage);
}

static void pruner_prune(struct pruner *p, int64_t last) {
    struct retention_list list;
    trireme_error why;
    bool stopped;
    const size_t known = p->retention.known.count;
    trireme_status status = retention_decide(&p->retention, last, NULL, &list, &stopped, &why);
    remark_damage(p, known);
    if (status == TRIREME_OK)
        status = retention_remove(&p->retention, &list, &why);
    if (status != TRIREME_OK)
        pruner_remark(p, "older checkpoints are not all removed: %s", why.message);
    retention_list_release(&list);
    checkpoint_losses_release(&p->losses); // the run may add others until the next time
}

static void *pruner_run(void *argument) {
    struct pruner *p = argument;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (p->last < 0 && !p->ends)
            pthread_cond_wait(&p->changed, &p->lock);
        if (p->last < 0)
            break;
        const int64_t last = p->last;
        p->last = -1;
        for (size_t i = 0; i < p->whole.count; i++)
            retention_know(&p->retention, p->whole.item[i]);
        p->whole.count = 0;
        pthread_mutex_unlock(&p->lock);
        pruner_prune(p, last);
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

trireme_status pruner_create(struct pruner **out, const struct config *config, const struct run_directory *directory,
                             trireme_error *error) {
    struct pruner *p = mem_alloc(sizeof *p);
    *p = (struct pruner){.directory = directory, .parent = mem_printf(CHECKPOINTS_PATH, directory->path), .last = -1};
    p->losses.run_directory = directory->path;
    p->retention = (struct retention){.parent = p->parent,
                                      .rules = checkpoint_rules(config),
                                      .loss = pruner_loss,
                                      .may_remove = pruner_may_remove,
                                      .stops = pruner_stops,
                                      .user = p};
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    const trireme_status status =
        thread_start(&p->thread, pruner_run, p, "the thread that removes older checkpoints", error);
    p->joined = status != TRIREME_OK;
    if (status == TRIREME_OK)
        *out = p;
    else
        pruner_free(p);
    return status;
}

void pruner_begin(struct pruner *p, int64_t last, int64_t whole) {
    pthread_mutex_lock(&p->lock);
    p->last = MAX(last, 0);
    if (whole >= 0)
        VEC_PUSH(&p->whole, whole);
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

char *pruner_take_remark(struct pruner *p) {
    pthread_mutex_lock(&p->lock);
    char *remark = p->remark;
    p->remark = NULL;
    pthread_mutex_unlock(&p->lock);
    return remark;
}

void pruner_end(struct pruner *p, bool now) {
    if (p->joined)
        return;
    p->now |= now;
    pthread_mutex_lock(&p->lock);
    p->ends = true;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    p->joined = true;
}

void pruner_free(struct pruner *p) {
    if (!p)
        return;
    pruner_end(p, true);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->changed);
    VEC_RELEASE(&p->whole);
    retention_release(&p->retention);
    checkpoint_losses_release(&p->losses);
    free(p->remark);
    free(p->parent);
    free(p);
}
