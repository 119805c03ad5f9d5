#include "ckpt/retention.h"

#include <math.h>

static struct retention_known *known_find(const struct retention *r, const char *path) {
    for (size_t i = 0; i < r->known.count; i++)
        if (strcmp(r->known.item[i].path, path) == 0)
            return &r->known.item[i];
    return NULL;
}

// `damage` NULL: it is whole.
static void known_set(struct retention *r, const char *path, const char *damage) {
    struct retention_known *known = known_find(r, path);
    if (!known) {
        VEC_PUSH(&r->known, (struct retention_known){.path = mem_strdup(path)});
        known = &r->known.item[r->known.count - 1];
    }
    free(known->damage);
    known->damage = damage ? mem_strdup(damage) : NULL;
}

static void known_forget(struct retention *r, const char *path) {
    struct retention_known *known = known_find(r, path);
    if (!known)
        return;
    free(known->path);
    free(known->damage);
    *known = r->known.item[--r->known.count];
}

void retention_know(struct retention *r, int64_t number) {
    char *path = mem_printf("%s/step-%lld", r->parent, (long long)number);
    known_set(r, path, NULL);
    free(path);
}

void retention_release(struct retention *r) {
    for (size_t i = 0; i < r->known.count; i++) {
        free(r->known.item[i].path);
        free(r->known.item[i].damage);
    }
    VEC_RELEASE(&r->known);
}

void retention_list_release(struct retention_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        free(list->item[i].path);
        free(list->item[i].damage);
    }
    VEC_RELEASE(list);
}

// ---- what counts

// An entry that is about to be judged, and whether that was done already.
struct judged {
    struct retention_entry *entry;
    bool examined, unreadable;
};

struct judgement {
    const struct retention *retention;
    int64_t last;
    VEC(struct judged) all; // as in the list
};

static void judge_damage(struct judged *j, trireme_status status, const char *message) {
    j->examined = true;
    j->unreadable = status != TRIREME_OK && status != TRIREME_ERROR_CORRUPT;
    free(j->entry->damage);
    j->entry->damage = status == TRIREME_OK ? NULL : mem_strdup(message);
}

// Whether a directory is complete as far as is known: by its sizes, unless its content is known to be damaged.
static bool counts(const struct retention *r, struct judged *j) {
    if (!j->examined) {
        const struct retention_known *known = known_find(r, j->entry->path);
        trireme_error why = {0};
        const trireme_status status = known && known->damage
                                          ? error_set(&why, TRIREME_ERROR_CORRUPT, "%s", known->damage)
                                          : directory_verify(j->entry->path, MANIFEST_SIZES, NULL, &why);
        judge_damage(j, status, why.message);
    }
    return !j->entry->damage;
}

static int compare_losses(const void *a, const void *b) {
    const struct retention_entry *x = (*(struct judged *const *)a)->entry, *y = (*(struct judged *const *)b)->entry;
    return COMPARE(x->loss, y->loss) ?: COMPARE(y->number, x->number);
}

static void keep_latest(struct judgement *j) {
    const struct retention *r = j->retention;
    size_t latest = 0;
    for (size_t i = 0; i < j->all.count; i++) {
        struct judged *one = &j->all.item[i];
        struct retention_entry *e = one->entry;
        const int64_t every = r->rules.every;
        e->kept = e->number > j->last ? RETENTION_NEWER : r->rules.latest == 0 ? RETENTION_ALL : 0;
        if (every > 0 && e->number % every == 0)
            e->kept |= RETENTION_EVERY;
        if (e->number > j->last || r->rules.latest == 0 || latest == r->rules.latest)
            continue;
        const bool sound = counts(r, one);
        latest += sound;
        e->kept |= sound ? RETENTION_LATEST : RETENTION_NEWER;
    }
}

static void keep_best(struct judgement *j) {
    const struct retention *r = j->retention;
    VEC(struct judged *) measured = {0};
    for (size_t i = 0; i < j->all.count && r->rules.best; i++)
        if (j->all.item[i].entry->number <= j->last && isfinite(j->all.item[i].entry->loss))
            VEC_PUSH(&measured, &j->all.item[i]);
    VEC_SORT(&measured, compare_losses);
    size_t best = 0;
    for (size_t i = 0; i < measured.count && best < r->rules.best; i++)
        if (counts(r, measured.item[i])) {
            measured.item[i]->entry->kept |= RETENTION_BEST;
            best++;
        }
    VEC_RELEASE(&measured);
}

// Decides by what is known so far. Returns whether anything goes.
static bool judge(struct judgement *j) {
    bool any = false;
    keep_latest(j);
    keep_best(j);
    for (size_t i = 0; i < j->all.count; i++) {
        struct judged *one = &j->all.item[i];
        if (one->unreadable)
            one->entry->kept |= RETENTION_UNREADABLE;
        else if (!one->entry->kept && !directory_is_ours(one->entry->path, NULL))
            one->entry->kept |= RETENTION_FOREIGN;
        any |= !one->entry->kept;
    }
    return any;
}

// Verifies one of those that others make room for, and whose content is not known. False where there is none.
static bool judge_content(struct retention *r, struct judgement *j, const struct checksum_watch *watch, bool *stopped) {
    for (size_t i = 0; i < j->all.count; i++) {
        struct judged *one = &j->all.item[i];
        const char *path = one->entry->path;
        trireme_error why = {0};
        if (!(one->entry->kept & (RETENTION_LATEST | RETENTION_BEST)) || known_find(r, path))
            continue;
        *stopped = r->stops && r->stops(r->user);
        if (*stopped)
            return false;
        const trireme_status status = directory_verify(path, MANIFEST_CONTENT, watch, &why);
        if (status == TRIREME_OK || status == TRIREME_ERROR_CORRUPT)
            known_set(r, path, status == TRIREME_OK ? NULL : why.message);
        judge_damage(one, status, why.message);
        return true;
    }
    return false;
}

static trireme_status judgement_begin(struct judgement *j, const struct retention *r, int64_t last,
                                      struct retention_list *out, trireme_error *error) {
    struct directory_list all;
    *j = (struct judgement){.retention = r, .last = last};
    *out = (struct retention_list){0};
    TRY(directory_list(r->parent, &all, error));
    for (size_t i = 0; i < all.count; i++) {
        struct directory_numbered *d = &all.item[i];
        const double loss = r->loss && r->rules.best ? r->loss(r->user, d) : NAN;
        VEC_PUSH(out, (struct retention_entry){.number = d->number, .path = d->path, .loss = loss});
        d->path = NULL;
    }
    directory_list_release(&all);
    for (size_t i = 0; i < out->count; i++)
        VEC_PUSH(&j->all, (struct judged){.entry = &out->item[i]});
    return TRIREME_OK;
}

trireme_status retention_guess(struct retention *r, int64_t last, struct retention_list *out, trireme_error *error) {
    struct judgement j;
    TRY(judgement_begin(&j, r, last, out, error));
    judge(&j);
    VEC_RELEASE(&j.all);
    return TRIREME_OK;
}

trireme_status retention_decide(struct retention *r, int64_t last, const struct checksum_watch *watch,
                                struct retention_list *out, bool *stopped, trireme_error *error) {
    struct judgement j;
    *stopped = false;
    TRY(judgement_begin(&j, r, last, out, error));
    while (judge(&j) && judge_content(r, &j, watch, stopped))
        continue;
    VEC_RELEASE(&j.all);
    if (*stopped)
        retention_list_release(out);
    return TRIREME_OK;
}

// ---- removal

trireme_status retention_remove(struct retention *r, struct retention_list *list, trireme_error *error) {
    for (size_t i = 0; i < list->count; i++) {
        struct retention_entry *e = &list->item[i];
        bool held;
        if (e->kept)
            continue;
        if (r->may_remove)
            TRY(r->may_remove(r->user, error));
        TRY(directory_remove(e->path, &held, error));
        if (held)
            e->kept = RETENTION_HELD;
        else
            known_forget(r, e->path);
    }
    return TRIREME_OK;
}
