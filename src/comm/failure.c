// How worlds and communicators fail, and what calls say then.
#include "comm/transport.h"

static struct comm_failure failure_of(enum comm_cause cause, int rank, const char *reason) {
    struct comm_failure failure = {.cause = cause, .rank = rank};
    snprintf(failure.reason, sizeof failure.reason, "%s", reason);
    return failure;
}

static bool failure_tell(const struct comm_failure *failure, struct comm_failure *out) {
    if (out)
        *out = *failure;
    return failure->cause != COMM_WHOLE;
}

bool world_set_policy(struct world *world, enum world_policy policy) {
    if (policy == WORLD_GOES_ON && !world->transport->fail)
        return false;
    atomic_store(&world->policy, (int)policy);
    return true;
}

void world_break(struct world *world, enum comm_cause cause, int rank, const char *reason) {
    pthread_mutex_lock(&world->lock);
    if (!atomic_load(&world->broken)) {
        world->failure = failure_of(cause, rank, reason);
        atomic_store(&world->broken, true);
        world->transport->broken(world);
    }
    pthread_mutex_unlock(&world->lock);
}

void world_lose(struct world *world, int rank, const char *reason) {
    if (atomic_load(&world->policy) == WORLD_ENDS) {
        world_break(world, COMM_LOST, rank, reason);
        return;
    }
    const struct comm_failure failure = failure_of(COMM_LOST, rank, reason);
    pthread_mutex_lock(&world->lock);
    world->transport->lose(world, &failure);
    pthread_mutex_unlock(&world->lock);
}

bool world_failure(struct world *world, struct comm_failure *out) {
    pthread_mutex_lock(&world->lock);
    const bool broken = failure_tell(&world->failure, out);
    pthread_mutex_unlock(&world->lock);
    return broken;
}

int world_speaker(const struct world *world) {
    const int speaker = atomic_load(&world->speaker);
    return speaker == INT_MAX ? -1 : speaker;
}

bool communicator_failure(const struct communicator *c, struct comm_failure *out) {
    if (!c->world->transport->failure)
        return world_failure(c->world, out);
    pthread_mutex_lock(&c->world->lock);
    const bool failed = failure_tell(c->world->transport->failure(c), out);
    pthread_mutex_unlock(&c->world->lock);
    return failed;
}

static void failure_note(struct communicator *c, enum comm_cause cause, int rank, const char *format, va_list args) {
    char reason[COMM_REASON];
    size_t n = (size_t)snprintf(reason, sizeof reason, "group %.40s: ", c->name);
    vsnprintf(reason + n, sizeof reason - n, format, args);
    if (atomic_load(&c->world->policy) == WORLD_ENDS) {
        world_break(c->world, cause, rank, reason);
        return;
    }
    const struct comm_failure failure = failure_of(cause, rank, reason);
    pthread_mutex_lock(&c->world->lock);
    c->world->transport->fail(c, &failure);
    pthread_mutex_unlock(&c->world->lock);
}

void communicator_fail(struct communicator *c, enum comm_cause cause, int rank, const char *format, ...) {
    va_list args;
    va_start(args, format);
    failure_note(c, cause, rank, format, args);
    va_end(args);
}

trireme_status communicator_refuse(struct communicator *c, trireme_error *error, enum comm_cause cause, int rank,
                                   const char *format, ...) {
    struct comm_failure failure;
    va_list args;
    va_start(args, format);
    failure_note(c, cause, rank, format, args);
    va_end(args);
    communicator_failure(c, &failure);
    FAIL(TRIREME_ERROR_LOST, "%s", failure.reason);
}

trireme_status communicator_lost(const struct communicator *c, const struct comm_call *call,
                                 const struct missing *missing, trireme_error *error) {
    char text[COMM_CALL_TEXT], waited[MISSING_TEXT] = "";
    const bool waits = missing && missing->count > 0;
    struct comm_failure failure;
    communicator_failure(c, &failure);
    if (waits)
        missing_text(missing, waited);
    FAIL(TRIREME_ERROR_LOST, "group %s: rank %d cannot go on with %s%s%s: %s", c->name, c->rank[c->index],
         comm_call_print(call, text), waits ? ", waiting for" : "", waited, failure.reason);
}
