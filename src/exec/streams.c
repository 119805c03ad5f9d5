// Streams: compute runs on the caller's thread, every other stream that the program uses on a thread of its own, except
// for what compute's thread does on its behalf. Each thread walks the schedule and runs its own instructions; a wait
// compares how many instructions of another stream are done with how many come before in that walk.
#include "exec/executor.h"

#include "base/clock.h"
#include "base/parallel_for.h"
#include "kernels/machine.h"

enum { SPIN_NANOSECONDS = 5000 };

// Wakes only the threads that wait for what `stream` has just done.
static void streams_announce(struct streams *s, int stream) {
    if (atomic_load(&s->sleepers) == 0)
        return;
    int64_t done = atomic_load(&s->stream[stream].done);
    bool wakes[STREAMS_MAX];
    pthread_mutex_lock(&s->mutex);
    for (int i = 0; i < STREAMS_MAX; i++)
        wakes[i] = s->stream[i].awaited == stream && s->stream[i].target <= done;
    pthread_mutex_unlock(&s->mutex);
    for (int i = 0; i < STREAMS_MAX; i++)
        if (wakes[i])
            pthread_cond_signal(&s->stream[i].woken);
}

static void streams_fail(struct streams *s, const trireme_error *error) {
    pthread_mutex_lock(&s->mutex);
    if (!atomic_load(&s->failed)) {
        s->error = *error;
        atomic_store(&s->failed, true);
    }
    for (int i = 0; i < STREAMS_MAX; i++)
        pthread_cond_signal(&s->stream[i].woken);
    pthread_mutex_unlock(&s->mutex);
}

static bool streams_reached(const struct streams *s, int stream, int64_t target) {
    return atomic_load(&s->stream[stream].done) >= target || atomic_load(&s->failed);
}

// Counts who waits for a stream: what it waits for from other ranks is late only if something waits for the stream.
static void streams_want(struct streams *s, int stream, int more) {
    struct stream_state *state = &s->stream[stream];
    if (state->waiters == 0)
        atomic_store(&state->wanted, clock_now());
    state->waiters += more;
    if (state->waiters == 0)
        atomic_store(&state->wanted, 0);
}

static void want_all(struct streams *s, int more) {
    for (int i = 0; i < STREAMS_MAX; i++)
        streams_want(s, i, more);
}

static void count_waiting(struct counter *counter, int stream) {
    counter->awaited = stream;
    counter->since = clock_now();
    counter->state = COUNTER_WAITING;
}

// Lets the thread of `own` wait until `target` instructions of a stream are done: of another, or of its own, some of
// which compute's thread runs.
static void streams_wait_for(struct streams *s, int own, int stream, int64_t target) {
    struct stream_state *self = &s->stream[own];
    if (streams_reached(s, stream, target))
        return;
    for (int64_t start = clock_now(); clock_now() - start < SPIN_NANOSECONDS;)
        if (streams_reached(s, stream, target))
            return;
    pthread_mutex_lock(&s->mutex);
    atomic_fetch_add(&s->sleepers, 1);
    self->awaited = stream;
    self->target = target;
    if (stream != own) // else this rank has something left to do for it
        streams_want(s, stream, 1);
    while (!streams_reached(s, stream, target))
        pthread_cond_wait(&self->woken, &s->mutex);
    self->awaited = NONE;
    if (stream != own)
        streams_want(s, stream, -1);
    atomic_fetch_sub(&s->sleepers, 1);
    pthread_mutex_unlock(&s->mutex);
}

static void streams_count(struct counter *c, const struct instruction *in, const struct invocation *v, int invocation,
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

// Runs an instruction of another stream on compute's thread; meanwhile compute counts as waiting for that stream.
static trireme_status run_for(struct executor *e, const struct resolved *r, const struct invocation *v,
                              trireme_error *error) {
    struct streams *s = e->streams;
    int stream = r->instruction->stream;
    pthread_mutex_lock(&s->mutex);
    streams_want(s, stream, 1);
    pthread_mutex_unlock(&s->mutex);
    trireme_status status = instruction_execute(e, r, v, error);
    pthread_mutex_lock(&s->mutex);
    streams_want(s, stream, -1);
    pthread_mutex_unlock(&s->mutex);
    return status;
}

// Runs an instruction on the thread of `own`. *begin: when all its waits were over, where somebody asks for it. If
// another stream has failed, it gives up: TRIREME_ERROR_LOST, with *error as it was.
static trireme_status run_one(struct executor *e, int own, int index, size_t invocation, int64_t *begin,
                              trireme_error *error) {
    const struct invocation *v = &e->program->schedule.item[invocation];
    const struct resolved_template *t = &e->templates[v->template];
    const struct resolved *r = &t->item[index];
    int stream = r->instruction->stream;
    struct counter *counter = &e->streams->counters->of[stream];
    for (int s = 0; s < STREAMS_MAX; s++)
        if (r->instruction->wait[s] && s != stream && s != own) {
            int64_t before = slot_waits_before(&e->slot_waits, invocation, s) + resolved_before(e, t, index, s);
            int64_t count = slot_waits_count(&e->slot_waits, e->program, invocation, r->instruction, s, before);
            if (streams_reached(e->streams, s, count))
                continue;
            count_waiting(counter, s);
            streams_wait_for(e->streams, own, s, count);
        }
    if (atomic_load(&e->streams->failed))
        return TRIREME_ERROR_LOST;
    if (r->communicator || e->trace)
        *begin = clock_now();
    if (r->communicator)
        counter->since = *begin;
    counter->state = r->communicator ? COUNTER_MEETING : COUNTER_RUNNING;
    return r->computes ? run_for(e, r, v, error) : instruction_execute(e, r, v, error);
}

// Puts "stream tensor, forward[7] all_reduce over tp of microbatch 1: " before the message.
static void say_where(const struct executor *e, int stream, const struct invocation *v, int index,
                      trireme_error *error) {
    const struct template *t = &e->program->templates.item[v->template];
    const struct instruction *in = &t->instructions.item[index];
    char group[AXES_TEXT], microbatch[32] = "";
    if (v->microbatch != NONE)
        snprintf(microbatch, sizeof microbatch, " of microbatch %d", v->microbatch);
    const bool over = e->table->op[in->op].role == ROLE_COMMUNICATION;
    error_prefix(error, error->status, "stream %s, %s[%d] %s%s%s%s", e->program->streams.item[stream].name, t->name,
                 index, e->table->op[in->op].name, over ? " over " : "", over ? axes_print(in->group, group) : "",
                 microbatch);
}

static void streams_walk(struct executor *e, int own) {
    struct streams *s = e->streams;
    struct counter *counters = s->counters->of;
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
                streams_count(&counters[own], t->item[index].instruction, v, (int)k, index);
                count_waiting(&counters[own], stream);
            }
            if (e->counted[stream])
                streams_wait_for(s, own, stream,
                                 slot_waits_before(&e->slot_waits, k, stream) + resolved_before(e, t, index, stream));
            if (atomic_load(&s->failed)) // it may be another's turn, who writes the stream's counter
                return;
            streams_count(&counters[stream], t->item[index].instruction, v, (int)k, index);
            if (run_one(e, own, index, k, &begin, &error) != TRIREME_OK) {
                if (error.status != TRIREME_OK) // else it gave up since another stream failed
                    say_where(e, stream, v, index, &error);
                // Streams of this rank that wait for other ranks would do so for ever.
                if (error.status != TRIREME_OK && error.status != TRIREME_ERROR_LOST && s->member.world)
                    world_break(s->member.world, COMM_FAILED, s->member.rank, error.message);
                streams_fail(s, &error);
                return;
            }
            if (e->trace)
                e->trace->events.item[position + index] = (struct trace_event){(int)k, index, begin, clock_now()};
            counters[stream].state = counters[own].state = COUNTER_IDLE; // before others may go on with it
            if (e->counted[stream]) {
                atomic_fetch_add(&s->stream[stream].done, 1);
                streams_announce(s, stream);
            }
        }
        position += t->count;
    }
}

struct worker {
    struct streams *streams;
    int stream;
    int64_t seen; // runs that had begun when it last looked
};

static void *streams_work(void *argument) {
    struct worker worker = *(struct worker *)argument;
    free(argument);
    struct streams *s = worker.streams;
    for (;;) {
        pthread_mutex_lock(&s->mutex);
        while (s->runs == worker.seen && !s->stop)
            pthread_cond_wait(&s->changed, &s->mutex);
        worker.seen = s->runs;
        struct executor *running = s->running;
        bool stop = s->stop;
        pthread_mutex_unlock(&s->mutex);
        if (stop)
            return NULL;
        streams_walk(running, worker.stream);
        pthread_mutex_lock(&s->mutex);
        s->finished++;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->mutex);
    }
}

static int streams_workers(const struct streams *s) {
    int count = 0;
    for (int i = 0; i < STREAMS_MAX; i++)
        count += s->stream[i].threaded;
    return count;
}

static trireme_status start_thread(struct streams *s, int stream, trireme_error *error) {
    struct worker *worker = mem_alloc(sizeof *worker);
    *worker = (struct worker){s, stream, s->runs};
    trireme_status status =
        thread_start(&s->stream[stream].thread, streams_work, worker, "the thread of a stream", error);
    if (status != TRIREME_OK)
        free(worker);
    s->stream[stream].threaded = status == TRIREME_OK;
    return status;
}

// Streams are known by their numbers: all programs must have the same ones, of which some may lack the last.
static trireme_status streams_name(struct streams *s, const struct program *p, trireme_error *error) {
    for (size_t i = 0; i < p->streams.count; i++) {
        char *name = s->counters->name[i];
        if (*name && strcmp(name, p->streams.item[i].name) != 0)
            FAIL(TRIREME_ERROR_PROGRAM, "program %s has the stream %s where another has %s", p->name,
                 p->streams.item[i].name, name);
        snprintf(name, STREAM_NAME, "%s", p->streams.item[i].name);
    }
    return TRIREME_OK;
}

trireme_status streams_start(struct executor *e, trireme_error *error) {
    struct streams *s = e->streams;
    TRY(streams_name(s, e->program, error));
    bool many = false;
    for (int i = 0; i < STREAMS_MAX; i++)
        if (i != STREAM_COMPUTE)
            many |= e->counted[i] = slot_waits_before(&e->slot_waits, e->program->schedule.count, i) > 0;
    e->counted[STREAM_COMPUTE] = many;
    for (int i = 0; i < STREAMS_MAX; i++) {
        bool used = false;
        for (size_t t = 0; t < e->program->templates.count && i != STREAM_COMPUTE; t++)
            used |= e->templates[t].of[i].count > 0;
        if (used && !s->stream[i].threaded)
            TRY(start_thread(s, i, error));
    }
    return TRIREME_OK;
}

struct streams *streams_create(const struct member *member, int threads) {
    struct streams *s = mem_alloc(sizeof *s);
    s->member = member ? *member : (struct member){0};
    s->threads = threads;
    s->counters = &s->own;
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    for (int i = 0; i < STREAMS_MAX; i++) {
        pthread_cond_init(&s->stream[i].woken, NULL);
        s->stream[i].awaited = NONE;
    }
    return s;
}

void streams_free(struct streams *s) {
    if (!s)
        return;
    pthread_mutex_lock(&s->mutex);
    s->stop = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    for (int i = 0; i < STREAMS_MAX; i++)
        if (s->stream[i].threaded)
            pthread_join(s->stream[i].thread, NULL);
    pthread_mutex_destroy(&s->mutex);
    pthread_cond_destroy(&s->changed);
    for (int i = 0; i < STREAMS_MAX; i++)
        pthread_cond_destroy(&s->stream[i].woken);
    channels_close(s);
    free(s->pin.core);
    free(s->pin.usable);
    free(s);
}

void streams_use_file(struct streams *s, enum memory_space space, struct space_file file) {
    s->file[space] = file;
}

void streams_count_in(struct streams *s, struct stream_counters *counters) {
    *counters = *s->counters;
    s->counters = counters;
}

void streams_pin(struct streams *s, const int *core) {
    s->pin.core = mem_alloc((size_t)s->threads * sizeof *core);
    memcpy(s->pin.core, core, (size_t)s->threads * sizeof *core);
    s->pin.usable = processors_list(&s->pin.count);
}

void kernels_pin(struct streams *s) {
    if (s->pin.core)
        threads_pin(s->threads, s->pin.core);
}

void kernels_unpin(struct streams *s) {
    if (s->pin.core)
        threads_unpin(s->threads, s->pin.usable, s->pin.count);
}

trireme_status streams_run(struct executor *e, trireme_error *error) {
    struct streams *s = e->streams;
    for (int i = 0; i < STREAMS_MAX; i++)
        atomic_store(&s->stream[i].done, 0);
    int others = streams_workers(s);
    if (others) {
        pthread_mutex_lock(&s->mutex);
        s->running = e;
        s->runs++;
        s->finished = 0;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->mutex);
    }
    streams_walk(e, STREAM_COMPUTE);
    if (others) {
        pthread_mutex_lock(&s->mutex);
        want_all(s, 1);
        while (s->finished < others)
            pthread_cond_wait(&s->changed, &s->mutex);
        want_all(s, -1);
        pthread_mutex_unlock(&s->mutex);
    }
    if (atomic_load(&s->failed)) {
        *error = s->error;
        return s->error.status;
    }
    return TRIREME_OK;
}
