#include "support/fake_wire.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "comm/messages/messages.h"
#include "support/test.h"

struct posted {
    struct posted *next;
    int owner, from, to, tag;
    bool sends, done;
    char *data;
    int64_t bytes;
};

struct fake_wires {
    pthread_mutex_t lock;
    struct posted *posted; // in this order; those that are done, too, until their owner sees it
    struct fake_wire_count count;
    bool too_long; // a message had no room
};

struct fake_wire {
    struct wire base;
    struct fake_wires *all;
    char node[16];
    int rank, ranks;
    atomic_bool is_cut;
};

static struct fake_wire *fake_of(struct wire *wire) {
    return (struct fake_wire *)wire;
}

static trireme_status fake_start(struct wire *base, trireme_error *error) {
    (void)error;
    base->rank = fake_of(base)->rank;
    base->ranks = fake_of(base)->ranks;
    base->last_tag = 1 << 20;
    return TRIREME_OK;
}

static void fake_unstarted(const struct wire *wire, char *text, size_t limit) {
    (void)wire;
    snprintf(text, limit, "nobody");
}

static bool is_other_end(const struct posted *a, const struct posted *b) {
    return !a->done && a->sends != b->sends && a->tag == b->tag && a->to == b->to &&
           (a->from == b->from || a->from == WIRE_ANY || b->from == WIRE_ANY);
}

static void deliver(struct fake_wires *all, struct posted *a, struct posted *b) {
    const struct posted *sent = a->sends ? a : b, *received = a->sends ? b : a;
    all->too_long |= sent->bytes > received->bytes;
    memcpy(received->data, sent->data, (size_t)MIN(sent->bytes, received->bytes));
    a->done = b->done = true;
}

static bool post(struct wire *wire, struct posted posted, struct wire_request *out) {
    struct fake_wires *all = fake_of(wire)->all;
    struct posted *p = mem_alloc(sizeof *p);
    *p = posted;
    p->owner = wire->rank;
    pthread_mutex_lock(&all->lock);
    struct posted **last = &all->posted, *other = NULL;
    for (; *last; last = &(*last)->next)
        if (!other && is_other_end(*last, p))
            other = *last;
    *last = p;
    if (other)
        deliver(all, p, other);
    if (p->sends) {
        all->count.messages++;
        all->count.bytes += p->bytes;
        all->count.longest = MAX(all->count.longest, p->bytes);
    }
    pthread_mutex_unlock(&all->lock);
    out->bits = (uint64_t)(uintptr_t)p;
    return true;
}

static bool fake_send(struct wire *wire, int rank, int tag, const void *data, int64_t bytes, struct wire_request *out) {
    struct posted p = {.from = wire->rank, .to = rank, .tag = tag, .data = (char *)data, .bytes = bytes};
    p.sends = true;
    return post(wire, p, out);
}

static bool fake_receive(struct wire *wire, int rank, int tag, void *data, int64_t bytes, struct wire_request *out) {
    return post(wire, (struct posted){.from = rank, .to = wire->rank, .tag = tag, .data = data, .bytes = bytes}, out);
}

// Frees one message or, where that is NULL, all of its owner's.
static void forget(struct fake_wires *all, int owner, const struct posted *one) {
    for (struct posted **at = &all->posted; *at;) {
        struct posted *p = *at;
        if (one ? p == one : p->owner == owner) {
            *at = p->next;
            free(p);
        } else {
            at = &p->next;
        }
    }
}

static int fake_test(struct wire *wire, struct wire_request *request, int count, int *done, char reason[WIRE_REASON]) {
    struct fake_wires *all = fake_of(wire)->all;
    int complete = 0;
    if (atomic_load(&fake_of(wire)->is_cut)) {
        snprintf(reason, WIRE_REASON, "the fake cable is cut");
        return -1;
    }
    pthread_mutex_lock(&all->lock);
    for (int i = 0; i < count; i++) {
        struct posted *p = (struct posted *)(uintptr_t)request[i].bits;
        if (!p || !p->done)
            continue;
        forget(all, wire->rank, p);
        request[i].bits = 0;
        done[complete++] = i;
    }
    pthread_mutex_unlock(&all->lock);
    return complete;
}

static void fake_cancel(struct wire *wire, struct wire_request *request) {
    struct fake_wires *all = fake_of(wire)->all;
    pthread_mutex_lock(&all->lock);
    ((struct posted *)(uintptr_t)request->bits)->done = true;
    pthread_mutex_unlock(&all->lock);
}

static void fake_end(struct wire *wire) {
    (void)wire;
}

static void fake_release(struct wire *wire) {
    struct fake_wires *all = fake_of(wire)->all;
    pthread_mutex_lock(&all->lock);
    forget(all, wire->rank, NULL);
    pthread_mutex_unlock(&all->lock);
    free(wire);
}

static const struct wire_functions FAKE = {
    .start = fake_start,
    .unstarted = fake_unstarted,
    .send = fake_send,
    .receive = fake_receive,
    .test = fake_test,
    .cancel = fake_cancel,
    .end = fake_end,
    .release = fake_release,
};

struct fake_start {
    pthread_t thread;
    struct teammate mate;
    struct wire *wire;
    double deadline;
    void (*body)(struct teammate *mate);
};

static void *fake_rank(void *argument) {
    struct fake_start *s = argument;
    trireme_error error;
    if (teammate_failed(&s->mate, world_create_messages(&s->mate.world, s->wire, s->deadline, &error), &error))
        return NULL;
    s->body(&s->mate);
    world_free(s->mate.world);
    return NULL;
}

static struct wire *fake_create(struct fake_wires *all, int rank, int ranks, int locals, int64_t most) {
    struct fake_wire *wire = mem_alloc(sizeof *wire);
    snprintf(wire->node, sizeof wire->node, "%d", rank / locals);
    wire->base = (struct wire){.functions = &FAKE,
                               .name = "the fake wire",
                               .node = wire->node,
                               .most = most,
                               .far = most / 3,
                               .far_most = 5 * most};
    wire->all = all;
    wire->rank = rank;
    wire->ranks = ranks;
    return &wire->base;
}

struct fake_wire_count fake_wire_run(int ranks, int locals, int64_t most, double deadline,
                                     void (*body)(struct teammate *mate), void *context) {
    struct fake_wires all = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct fake_start *start = mem_alloc((size_t)ranks * sizeof *start);
    char wrong[sizeof start->mate.wrong + 40] = "";
    for (int r = 0; r < ranks; r++) {
        start[r] = (struct fake_start){.wire = fake_create(&all, r, ranks, locals, most), .deadline = deadline};
        start[r].body = body;
        start[r].mate = (struct teammate){.rank = r, .ranks = ranks, .locals = locals, .context = context};
        assert_int_equal(pthread_create(&start[r].thread, NULL, fake_rank, &start[r]), 0);
    }
    for (int r = 0; r < ranks; r++) {
        pthread_join(start[r].thread, NULL);
        if (start[r].mate.wrong[0] && !wrong[0])
            snprintf(wrong, sizeof wrong, "rank %d of %d: %s", r, ranks, start[r].mate.wrong);
    }
    free(start);
    assert_null(all.posted);
    assert_false(all.too_long);
    if (wrong[0])
        fail_msg("%s", wrong);
    return all.count;
}

struct fake_wire_count fake_wire_so_far(const struct teammate *mate) {
    struct fake_wires *all = fake_of(((const struct process_world *)mate->world)->wire)->all;
    pthread_mutex_lock(&all->lock);
    const struct fake_wire_count count = all->count;
    pthread_mutex_unlock(&all->lock);
    return count;
}

void fake_wire_cut(struct teammate *mate) {
    const struct process_world *world = (const struct process_world *)mate->world;
    atomic_store(&fake_of(world->wire)->is_cut, true);
}
