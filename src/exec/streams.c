// Streams: compute runs on the caller's thread, every other one that the program uses on a thread of its own, but for
// what compute's thread does for it. Each walks the schedule and runs what is its own; waits compare how many
// instructions of another stream are done with how many come before in that walk.
#include "exec/executor.h"

#include "base/clock.h"
#include "program/names.h"

enum { SPIN_NANOSECONDS = 5000 };

// Wakes those alone that have waited for what `stream` has just done.
static void announce(struct executor *e, int stream) {
    if (atomic_load(&e->sleepers) == 0)
        return;
    int64_t done = atomic_load(&e->stream[stream].done);
    bool wakes[STREAM_COUNT];
    pthread_mutex_lock(&e->mutex);
    for (int s = 0; s < STREAM_COUNT; s++)
        wakes[s] = e->stream[s].awaited == stream && e->stream[s].target <= done;
    pthread_mutex_unlock(&e->mutex);
    for (int s = 0; s < STREAM_COUNT; s++)
        if (wakes[s])
            pthread_cond_signal(&e->stream[s].woken);
}

static void fail(struct executor *e, const trireme_error *error) {
    pthread_mutex_lock(&e->mutex);
    if (!atomic_load(&e->failed)) {
        e->error = *error;
        atomic_store(&e->failed, true);
    }
    for (int s = 0; s < STREAM_COUNT; s++)
        pthread_cond_signal(&e->stream[s].woken);
    pthread_mutex_unlock(&e->mutex);
}

static bool reached(const struct executor *e, int stream, int64_t target) {
    return atomic_load(&e->stream[stream].done) >= target || atomic_load(&e->failed);
}

// What a stream waits for from other ranks is late only where this rank has nothing else left to do.
static void want(struct executor *e, int stream, int more) {
    struct stream_state *s = &e->stream[stream];
    if (s->waiters == 0)
        atomic_store(&s->wanted, clock_now());
    s->waiters += more;
    if (s->waiters == 0)
        atomic_store(&s->wanted, 0);
}

static void want_all(struct executor *e, int more) {
    for (int s = 0; s < STREAM_COUNT; s++)
        want(e, s, more);
}

static void count_waiting(struct counter *counter, int stream) {
    counter->awaited = stream;
    counter->since = clock_now();
    counter->state = COUNTER_WAITING;
}

// The thread of `own` waits until so many instructions of another stream are done; or of its own, some of which
// compute's thread does.
static void wait_for(struct executor *e, int own, int stream, int64_t target) {
    struct stream_state *self = &e->stream[own];
    if (reached(e, stream, target))
        return;
    for (int64_t start = clock_now(); clock_now() - start < SPIN_NANOSECONDS;)
        if (reached(e, stream, target))
            return;
    pthread_mutex_lock(&e->mutex);
    atomic_fetch_add(&e->sleepers, 1);
    self->awaited = stream;
    self->target = target;
    if (stream != own) // else it is this rank that has something to do for it first
        want(e, stream, 1);
    while (!reached(e, stream, target))
        pthread_cond_wait(&self->woken, &e->mutex);
    self->awaited = NONE;
    if (stream != own)
        want(e, stream, -1);
    atomic_fetch_sub(&e->sleepers, 1);
    pthread_mutex_unlock(&e->mutex);
}

static void count(struct counter *c, const struct instruction *in, const struct invocation *v, int invocation,
                  int instruction) {
    c->invocation = invocation;
    c->instruction = instruction;
    c->op = (int32_t)in->op;
    c->phase = (int32_t)in->phase;
    c->layer = in->layer;
    c->microbatch = v->microbatch;
    c->group = in->group;
    c->peer = in->peer;
}

// By compute's thread, of another stream: compute waits for it meanwhile.
static trireme_status run_for(struct executor *e, const struct resolved *r, const struct invocation *v,
                              trireme_error *error) {
    int stream = r->instruction->stream;
    pthread_mutex_lock(&e->mutex);
    want(e, stream, 1);
    pthread_mutex_unlock(&e->mutex);
    trireme_status status = instruction_execute(e, r, v, error);
    pthread_mutex_lock(&e->mutex);
    want(e, stream, -1);
    pthread_mutex_unlock(&e->mutex);
    return status;
}

// By the thread of `own`. *begin is when all waits were over.
static trireme_status run_one(struct executor *e, int own, int index, size_t invocation, int64_t *begin,
                              trireme_error *error) {
    const struct invocation *v = &e->program->schedule.item[invocation];
    const struct resolved_template *t = &e->templates[v->template];
    const struct resolved *r = &t->item[index];
    int stream = r->instruction->stream;
    struct counter *counter = &e->counters[stream];
    for (int s = 0; s < STREAM_COUNT; s++)
        if (r->instruction->wait[s] && s != stream && s != own) {
            int64_t before = slot_waits_before(&e->slot_waits, invocation, s) + resolved_before(e, t, index, s);
            int64_t count = slot_waits_count(&e->slot_waits, e->program, invocation, r->instruction, s, before);
            if (reached(e, s, count))
                continue;
            count_waiting(counter, s);
            wait_for(e, own, s, count);
        }
    if (atomic_load(&e->failed))
        return TRIREME_ERROR_LOST;
    if (r->communicator || e->trace)
        *begin = clock_now();
    if (r->communicator)
        counter->since = *begin;
    counter->state = r->communicator ? COUNTER_MEETING : COUNTER_RUNNING;
    return r->computes ? run_for(e, r, v, error) : instruction_execute(e, r, v, error);
}

// "stream tensor, forward[7] all_reduce over tp of microbatch 1: " before what went wrong.
static void say_where(const struct executor *e, int stream, const struct invocation *v, int index,
                      trireme_error *error) {
    const struct template *t = &e->program->templates.item[v->template];
    const struct instruction *in = &t->instructions.item[index];
    char group[AXES_TEXT], microbatch[32] = "";
    if (v->microbatch != NONE)
        snprintf(microbatch, sizeof microbatch, " of microbatch %d", v->microbatch);
    error_prefix(error, error->status, "stream %s, %s[%d] %s over %s%s", STREAM_WORDS[stream], t->name, index,
                 e->table->op[in->op].name, axes_print(in->group, group), microbatch);
}

static void walk(struct executor *e, int own) {
    const struct program *p = e->program;
    int64_t position = 0;
    trireme_error error = {0};
    for (size_t k = 0; k < p->schedule.count; k++) {
        const struct invocation *v = &p->schedule.item[k];
        struct resolved_template *t = &e->templates[v->template];
        for (size_t i = 0; i < t->of[own].count; i++) {
            int index = t->of[own].item[i], stream = t->item[index].instruction->stream;
            int64_t begin = 0;
            if (stream != own) {
                count(&e->counters[own], t->item[index].instruction, v, (int)k, index);
                count_waiting(&e->counters[own], stream);
            }
            if (e->stream[stream].counted)
                wait_for(e, own, stream,
                         slot_waits_before(&e->slot_waits, k, stream) + resolved_before(e, t, index, stream));
            if (atomic_load(&e->failed)) // it may not be this one's turn, and the stream's counter is another's
                return;
            count(&e->counters[stream], t->item[index].instruction, v, (int)k, index);
            if (run_one(e, own, index, k, &begin, &error) != TRIREME_OK) {
                if (error.status != TRIREME_OK) // else it gave up for another stream's sake
                    say_where(e, stream, v, index, &error);
                fail(e, &error);
                return;
            }
            if (e->trace)
                e->trace->events.item[position + index] = (struct trace_event){(int)k, index, begin, clock_now()};
            e->counters[stream].state = e->counters[own].state = COUNTER_IDLE; // before others may go on with it
            if (e->stream[stream].counted) {
                atomic_fetch_add(&e->stream[stream].done, 1);
                announce(e, stream);
            }
        }
        position += t->count;
    }
}

struct worker {
    struct executor *executor;
    int stream;
};

static void *work(void *argument) {
    struct worker worker = *(struct worker *)argument;
    free(argument);
    struct executor *e = worker.executor;
    for (int64_t seen = 0;;) {
        pthread_mutex_lock(&e->mutex);
        while (e->runs == seen && !e->stop)
            pthread_cond_wait(&e->changed, &e->mutex);
        seen = e->runs;
        bool stop = e->stop;
        pthread_mutex_unlock(&e->mutex);
        if (stop)
            return NULL;
        walk(e, worker.stream);
        pthread_mutex_lock(&e->mutex);
        e->finished++;
        pthread_cond_broadcast(&e->changed);
        pthread_mutex_unlock(&e->mutex);
    }
}

static int workers(const struct executor *e) {
    int count = 0;
    for (int s = 0; s < STREAM_COUNT; s++)
        count += e->stream[s].threaded;
    return count;
}

trireme_status streams_start(struct executor *e, trireme_error *error) {
    pthread_mutex_init(&e->mutex, NULL);
    pthread_cond_init(&e->changed, NULL);
    for (int s = 0; s < STREAM_COUNT; s++) {
        pthread_cond_init(&e->stream[s].woken, NULL);
        e->stream[s].awaited = NONE;
    }
    bool many = false;
    for (int s = 0; s < STREAM_COUNT; s++)
        if (s != STREAM_COMPUTE)
            many |= e->stream[s].counted = slot_waits_before(&e->slot_waits, e->program->schedule.count, s) > 0;
    e->stream[STREAM_COMPUTE].counted = many;
    for (int s = 0; s < STREAM_COUNT; s++) {
        for (size_t t = 0; t < e->program->templates.count && s != STREAM_COMPUTE; t++)
            e->stream[s].threaded |= e->templates[t].of[s].count > 0;
        if (!e->stream[s].threaded)
            continue;
        struct worker *worker = mem_alloc(sizeof *worker);
        *worker = (struct worker){e, s};
        if (pthread_create(&e->stream[s].thread, NULL, work, worker)) {
            free(worker);
            e->stream[s].threaded = false;
            FAIL(TRIREME_ERROR_IO, "cannot start a thread");
        }
    }
    return TRIREME_OK;
}

void streams_stop(struct executor *e) {
    pthread_mutex_lock(&e->mutex);
    e->stop = true;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->mutex);
    for (int s = 0; s < STREAM_COUNT; s++)
        if (e->stream[s].threaded)
            pthread_join(e->stream[s].thread, NULL);
    pthread_mutex_destroy(&e->mutex);
    pthread_cond_destroy(&e->changed);
    for (int s = 0; s < STREAM_COUNT; s++)
        pthread_cond_destroy(&e->stream[s].woken);
}

trireme_status streams_run(struct executor *e, struct trace *trace, trireme_error *error) {
    e->trace = trace;
    for (int s = 0; s < STREAM_COUNT; s++)
        atomic_store(&e->stream[s].done, 0);
    int others = workers(e);
    if (others) {
        pthread_mutex_lock(&e->mutex);
        e->runs++;
        e->finished = 0;
        pthread_cond_broadcast(&e->changed);
        pthread_mutex_unlock(&e->mutex);
    }
    walk(e, STREAM_COMPUTE);
    if (others) {
        pthread_mutex_lock(&e->mutex);
        want_all(e, 1);
        while (e->finished < others)
            pthread_cond_wait(&e->changed, &e->mutex);
        want_all(e, -1);
        pthread_mutex_unlock(&e->mutex);
    }
    if (trace)
        trace->events.count = (size_t)program_length(e->program);
    if (atomic_load(&e->failed)) {
        *error = e->error;
        return e->error.status;
    }
    return TRIREME_OK;
}
