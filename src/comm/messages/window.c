// Long gathers and all-to-alls: every block goes straight to its place. A member sends to some members at a time,
// beginning with the next in the circle, so that no member is sent to by all at once.
#include "comm/messages/messages.h"

struct blocks {
    const char *(*from)(const struct process_communicator *c, int member, int64_t *bytes);
    char *(*to)(const struct process_communicator *c, int member, int64_t *bytes);
};

static void window_post(struct process_communicator *c, const struct blocks *blocks, round_function *again) {
    int size = c->base.size, index = c->base.index, end = MIN(c->round + WINDOW, size - 1);
    round_begin(c, c->round >= size - 1 ? NULL : again);
    int64_t bytes;
    for (int k = c->round + 1; k <= end; k++) {
        char *to = blocks->to(c, (index + size - k) % size, &bytes);
        round_receive(c, (index + size - k) % size, MESSAGE_DATA, to, bytes);
    }
    for (int k = c->round + 1; k <= end; k++) {
        const char *from = blocks->from(c, (index + k) % size, &bytes);
        round_send(c, (index + k) % size, MESSAGE_DATA, from, bytes);
    }
    if (c->round == 0) {
        char *to = blocks->to(c, index, &bytes);
        const char *from = blocks->from(c, index, &bytes);
        copy_bytes(to, from, bytes, is_streamed(bytes));
        stream_end();
    }
    c->round = end;
}

// ---- all-gather

static const char *own_block(const struct process_communicator *c, int member, int64_t *bytes) {
    (void)member;
    *bytes = comm_call_bytes(c->call);
    return c->call->in;
}

static char *their_block(const struct process_communicator *c, int member, int64_t *bytes) {
    *bytes = comm_call_bytes(c->call);
    return (char *)c->call->out + member * *bytes;
}

void all_gather_window(struct process_communicator *c) {
    static const struct blocks BLOCKS = {own_block, their_block};
    window_post(c, &BLOCKS, all_gather_window);
}

// ---- all-to-all

static const char *even_from(const struct process_communicator *c, int member, int64_t *bytes) {
    *bytes = c->call->count;
    return (const char *)c->call->in + member * *bytes;
}

static char *even_to(const struct process_communicator *c, int member, int64_t *bytes) {
    *bytes = c->call->count;
    return (char *)c->call->out + member * *bytes;
}

void all_to_all_window(struct process_communicator *c) {
    static const struct blocks BLOCKS = {even_from, even_to};
    window_post(c, &BLOCKS, all_to_all_window);
}

static const char *uneven_from(const struct process_communicator *c, int member, int64_t *bytes) {
    *bytes = c->call->in_bytes[member];
    return (const char *)c->call->in + c->call->in_offset[member];
}

static char *uneven_to(const struct process_communicator *c, int member, int64_t *bytes) {
    *bytes = c->call->out_bytes[member];
    return (char *)c->call->out + c->call->out_offset[member];
}

// Whether all blocks are as long as their receivers expect.
static bool sizes_agree(struct process_communicator *c) {
    const struct comm_call *call = c->call;
    for (int i = 0; i < c->base.size; i++) {
        int64_t sent = i == c->base.index ? call->in_bytes[i] : c->in[i].bytes;
        if (sent == call->out_bytes[i])
            continue;
        round_refuse(c, COMM_DIFFERS, c->base.rank[i],
                     "rank %d sends %lld bytes to rank %d, which expects %lld, in all_to_all_v", c->base.rank[i],
                     (long long)sent, c->base.rank[c->base.index], (long long)call->out_bytes[i]);
        return false;
    }
    return true;
}

void all_to_all_v_window(struct process_communicator *c) {
    static const struct blocks BLOCKS = {uneven_from, uneven_to};
    if (c->round > 0 || sizes_agree(c))
        window_post(c, &BLOCKS, all_to_all_v_window);
}
