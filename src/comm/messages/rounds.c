// Rounds: sets of messages that are complete together (messages.h).
#include "comm/messages/messages.h"

#include "base/clock.h"

void round_begin(struct process_communicator *c, round_function *after) {
    c->after = after;
    c->left = c->awaited = 0;
    c->is_ahead = false;
    c->since = clock_now();
    c->pace = 0;
    c->pending.count = 0;
    c->way.count = 0;
}

void round_ahead(struct process_communicator *c) {
    c->is_ahead = true;
}

void round_follow(struct process_communicator *c, round_function *after) {
    size_t count = 0;
    for (size_t i = 0; i < c->pending.count; i++) {
        if (!c->pending.item[i].bits)
            continue;
        c->pending.item[count] = c->pending.item[i];
        c->way.item[count] = c->way.item[i];
        c->way.item[count++].ahead = false;
    }
    c->pending.count = c->way.count = count;
    c->awaited = c->left;
    c->is_ahead = true;
    int64_t now = clock_now();
    c->pace = now - c->since;
    c->since = now;
    c->after = after;
}

static int tag_of(const struct process_communicator *c, enum message kind) {
    return c->number * MESSAGES + (int)kind;
}

static void rounds_add(struct process_communicator *c, int member, bool receives, bool posted,
                       struct wire_request request) {
    if (!posted) {
        round_refuse(c, COMM_BROKEN, c->base.rank[member], "%s cannot %s rank %d", c->world->wire->name,
                     receives ? "receive from" : "send to", c->base.rank[member]);
        return;
    }
    VEC_PUSH(&c->pending, request);
    VEC_PUSH(&c->way, (struct way){member, receives, c->is_ahead});
    c->left++;
    c->awaited += !c->is_ahead;
}

static int64_t rounds_message_bytes(const struct process_communicator *c, int member, int64_t bytes) {
    const int *node = c->world->neighbours.node;
    const struct wire *wire = c->world->wire;
    bool near = node[c->base.rank[member]] == node[c->base.rank[c->base.index]];
    return near || bytes > wire->far_most ? wire->most : wire->far;
}

void round_send(struct process_communicator *c, int member, enum message kind, const void *data, int64_t bytes) {
    struct wire *wire = c->world->wire;
    int64_t most = rounds_message_bytes(c, member, bytes);
    for (int64_t at = 0; at < bytes; at += most) {
        struct wire_request request = {0};
        bool posted = wire->functions->send(wire, c->base.rank[member], tag_of(c, kind), (const char *)data + at,
                                            MIN(bytes - at, most), &request);
        rounds_add(c, member, false, posted, request);
    }
}

void round_receive(struct process_communicator *c, int member, enum message kind, void *data, int64_t bytes) {
    struct wire *wire = c->world->wire;
    int64_t most = rounds_message_bytes(c, member, bytes);
    for (int64_t at = 0; at < bytes; at += most) {
        struct wire_request request = {0};
        bool posted = wire->functions->receive(wire, c->base.rank[member], tag_of(c, kind), (char *)data + at,
                                               MIN(bytes - at, most), &request);
        rounds_add(c, member, true, posted, request);
    }
}

bool round_advance(struct process_communicator *c) {
    struct wire *wire = c->world->wire;
    for (bool moved = false;; moved = true) {
        if (c->left > 0) {
            char reason[WIRE_REASON];
            VEC_RESERVE(&c->completed, c->pending.count);
            int done = wire->functions->test(wire, c->pending.item, (int)c->pending.count, c->completed.item, reason);
            if (done < 0 && !c->lost) {
                round_refuse(c, COMM_BROKEN, -1, "%s says: %.200s", wire->name, reason);
                return true;
            }
            c->left -= MAX(done, 0);
            for (int i = 0; i < done; i++)
                c->awaited -= !c->way.item[c->completed.item[i]].ahead;
            if (c->awaited > 0 || (c->left > 0 && c->lost))
                return moved || (done > 0 && c->world->base.place.nodes == 1);
        }
        round_function *after = c->after;
        c->after = NULL;
        if (!after || c->lost)
            return true;
        after(c);
    }
}

struct missing round_missing(const struct process_communicator *c) {
    struct missing missing = {0};
    bool receives = false;
    for (size_t i = 0; i < c->way.count; i++)
        receives |= c->way.item[i].receives && c->pending.item[i].bits;
    for (int m = 0; m < c->base.size; m++) {
        bool waits = false;
        for (size_t i = 0; i < c->way.count; i++)
            waits |= c->way.item[i].member == m && c->way.item[i].receives == receives && c->pending.item[i].bits;
        if (waits)
            missing_add(&missing, c->base.rank[m]);
    }
    return missing;
}

void round_refuse(struct process_communicator *c, enum comm_cause cause, int rank, const char *format, ...) {
    char reason[COMM_REASON];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    c->status = communicator_refuse(&c->base, c->error, cause, rank, "%s", reason);
    c->lost = true;
}
