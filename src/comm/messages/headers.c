// The headers that begin every call.
#include "comm/messages/messages.h"

static struct comm_call call_of(const struct header *header) {
    return (struct comm_call){.operation = (enum operation)header->operation,
                              .dtype = (enum dtype)header->dtype,
                              .wire = (enum dtype)header->wire,
                              .reduction = (enum reduction)header->reduction,
                              .peer = header->peer,
                              .count = header->count};
}

static const char *header_print(const struct header *header, char text[COMM_CALL_TEXT]) {
    struct comm_call call = call_of(header);
    return comm_call_print(&call, text);
}

// Copies the data that go to `member` with the header, if any; returns their bytes.
static int64_t headers_enclose(const struct process_communicator *c, struct header *header, int member) {
    const struct comm_call *call = c->call;
    int64_t bytes = comm_call_bytes(call);
    if (!headers_carry(call) || bytes == 0 || (call->operation == OPERATION_BROADCAST && call->peer != c->base.index))
        return 0;
    bool apart = call->operation == OPERATION_REDUCE_SCATTER || call->operation == OPERATION_ALL_TO_ALL;
    memcpy(header->data, (const char *)call->in + (apart ? member * bytes : 0), (size_t)bytes);
    return bytes;
}

static struct header header_of(const struct comm_call *call) {
    return (struct header){.operation = (int32_t)call->operation,
                           .dtype = (int32_t)call->dtype,
                           .wire = (int32_t)call->wire,
                           .reduction = (int32_t)call->reduction,
                           .peer = call->peer,
                           .count = call->count};
}

static void write_header(struct header *to, const struct comm_call *call) {
    struct header head = header_of(call);
    memcpy(to, &head, offsetof(struct header, data));
}

// The first member whose call differs from that of member 0; 0: none.
static int odd_one(const struct process_communicator *c) {
    struct comm_call first = c->base.index == 0 ? *c->call : call_of(&c->in[0]);
    for (int i = 1; i < c->base.size; i++) {
        struct comm_call other = i == c->base.index ? *c->call : call_of(&c->in[i]);
        if (!comm_calls_agree(&first, &other))
            return i;
    }
    return 0;
}

static void compare_headers(struct process_communicator *c) {
    int odd = odd_one(c);
    if (odd) {
        char text[2][COMM_CALL_TEXT];
        const int of[2] = {0, odd};
        for (int k = 0; k < 2; k++) {
            if (of[k] == c->base.index)
                comm_call_print(c->call, text[k]);
            else
                header_print(&c->in[of[k]], text[k]);
        }
        round_refuse(c, COMM_DIFFERS, c->base.rank[odd], "rank %d calls %s, but rank %d calls %s", c->base.rank[0],
                     text[0], c->base.rank[odd], text[1]);
        return;
    }
    for (int i = 0; i < c->base.size; i++)
        c->contribution[i] = i == c->base.index ? c->call->in : c->in[i].data;
    c->round = 0;
    algorithm_of(c)(c);
}

static void headers_exchange(struct process_communicator *c) {
    round_begin(c, compare_headers);
    int size = c->base.size, index = c->base.index;
    for (int k = 1; k < size; k++)
        round_receive(c, (index + size - k) % size, MESSAGE_HEADER, &c->in[(index + size - k) % size], HEADER_BYTES);
    for (int k = 1; k < size; k++) {
        int to = (index + k) % size;
        write_header(&c->out[to], c->call);
        if (c->call->operation == OPERATION_ALL_TO_ALL_V)
            c->out[to].bytes = c->call->in_bytes[to];
        int64_t bytes = c->call->operation == OPERATION_OPEN ? c->call->count : headers_enclose(c, &c->out[to], to);
        if (c->call->operation == OPERATION_OPEN)
            memcpy(c->out[to].data, c->call->in, (size_t)bytes);
        round_send(c, to, MESSAGE_HEADER, &c->out[to], (int64_t)offsetof(struct header, data) + bytes);
    }
}

// ---- between two

static void message_is_taken(struct process_communicator *c) {
    round_begin(c, NULL);
}

static void message_is_here(struct process_communicator *c) {
    round_begin(c, message_is_taken);
    round_send(c, c->call->peer, MESSAGE_TAKEN, &c->taken, 1);
}

static void message_comes(struct process_communicator *c) {
    const struct comm_call *call = c->call;
    const struct header *header = &c->in[call->peer];
    struct comm_call theirs = call_of(header);
    char text[2][COMM_CALL_TEXT];
    int from = c->base.rank[call->peer], own = c->base.rank[c->base.index];
    if (theirs.operation != OPERATION_SEND) {
        round_refuse(c, COMM_DIFFERS, from, "rank %d calls %s, but rank %d calls %s", own,
                     comm_call_print(call, text[0]), from, header_print(header, text[1]));
        return;
    }
    if (theirs.count != call->count) {
        round_refuse(c, COMM_DIFFERS, from, "rank %d sends %lld bytes to rank %d, which expects %lld", from,
                     (long long)theirs.count, own, (long long)call->count);
        return;
    }
    round_begin(c, message_is_here);
    if (headers_carry(call))
        copy_bytes(call->out, header->data, call->count, false);
    else
        round_receive(c, call->peer, MESSAGE_DATA, call->out, call->count);
}

static void send_or_receive(struct process_communicator *c) {
    const struct comm_call *call = c->call;
    bool sends = call->operation == OPERATION_SEND;
    round_begin(c, sends ? message_is_taken : message_comes);
    if (!sends) {
        round_receive(c, call->peer, MESSAGE_HEADER, &c->in[call->peer], HEADER_BYTES);
        return;
    }
    struct header *header = &c->out[call->peer];
    write_header(header, call);
    int64_t head = (int64_t)offsetof(struct header, data), bytes = headers_enclose(c, header, call->peer);
    round_receive(c, call->peer, MESSAGE_TAKEN, &c->taken, 1);
    round_send(c, call->peer, MESSAGE_HEADER, header, head + bytes);
    if (!headers_carry(call))
        round_send(c, call->peer, MESSAGE_DATA, call->in, call->count);
}

void call_begin(struct process_communicator *c) {
    if (c->call->operation == OPERATION_SEND || c->call->operation == OPERATION_RECEIVE)
        send_or_receive(c);
    else
        headers_exchange(c);
}
