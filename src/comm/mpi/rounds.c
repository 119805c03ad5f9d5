// Rounds: sets of messages that are complete together (processes.h).
#include "comm/mpi/mpi_world.h"

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
        if (c->pending.item[i] == MPI_REQUEST_NULL)
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

static void rounds_add(struct process_communicator *c, int member, bool receives, int code, MPI_Request request) {
    if (code != MPI_SUCCESS) {
        round_refuse(c, "MPI cannot %s rank %d", receives ? "receive from" : "send to", c->rank[member]);
        return;
    }
    VEC_PUSH(&c->pending, request);
    VEC_PUSH(&c->way, (struct way){member, receives, c->is_ahead});
    c->left++;
    c->awaited += !c->is_ahead;
}

static int64_t rounds_message_bytes(const struct process_communicator *c, int member, int64_t bytes) {
    const int *node = c->world->node;
    bool near = node[c->rank[member]] == node[c->rank[c->base.index]];
    return near || bytes > NETWORK_MOST ? MESSAGE_BYTES : NETWORK_MESSAGE;
}

void round_send(struct process_communicator *c, int member, enum message kind, const void *data, int64_t bytes) {
    int64_t most = rounds_message_bytes(c, member, bytes);
    for (int64_t at = 0; at < bytes; at += most) {
        MPI_Request request = MPI_REQUEST_NULL;
        int n = (int)MIN(bytes - at, most);
        int code =
            MPI_Isend((const char *)data + at, n, MPI_BYTE, c->rank[member], tag_of(c, kind), c->world->comm, &request);
        rounds_add(c, member, false, code, request);
    }
}

void round_receive(struct process_communicator *c, int member, enum message kind, void *data, int64_t bytes) {
    int64_t most = rounds_message_bytes(c, member, bytes);
    for (int64_t at = 0; at < bytes; at += most) {
        MPI_Request request = MPI_REQUEST_NULL;
        int n = (int)MIN(bytes - at, most);
        int code =
            MPI_Irecv((char *)data + at, n, MPI_BYTE, c->rank[member], tag_of(c, kind), c->world->comm, &request);
        rounds_add(c, member, true, code, request);
    }
}

bool round_advance(struct process_communicator *c) {
    for (bool moved = false;; moved = true) {
        if (c->left > 0) {
            VEC_RESERVE(&c->completed, c->pending.count);
            int done = 0;
            int code =
                MPI_Testsome((int)c->pending.count, c->pending.item, &done, c->completed.item, MPI_STATUSES_IGNORE);
            if (code != MPI_SUCCESS && !c->lost) {
                char text[MPI_MAX_ERROR_STRING];
                int length = 0;
                MPI_Error_string(code, text, &length);
                round_refuse(c, "MPI says: %.200s", text);
                return true;
            }
            if (done == MPI_UNDEFINED) {
                c->left = c->awaited = 0;
            } else {
                c->left -= done;
                for (int i = 0; i < done; i++)
                    c->awaited -= !c->way.item[c->completed.item[i]].ahead;
            }
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

int missing_print(const struct process_communicator *c, char text[MISSING_TEXT]) {
    struct missing missing = {0};
    bool receives = false;
    for (size_t i = 0; i < c->way.count; i++)
        receives |= c->way.item[i].receives && c->pending.item[i] != MPI_REQUEST_NULL;
    for (int m = 0; m < c->base.size; m++) {
        bool waits = false;
        for (size_t i = 0; i < c->way.count; i++)
            waits |= c->way.item[i].member == m && c->way.item[i].receives == receives &&
                     c->pending.item[i] != MPI_REQUEST_NULL;
        if (waits)
            missing_add(&missing, c->rank[m]);
    }
    missing_text(&missing, text);
    return missing.count;
}

trireme_status process_lost(const struct process_communicator *c, const struct comm_call *call, const char *missing,
                            trireme_error *error) {
    char text[COMM_CALL_TEXT];
    struct process_world *w = c->world;
    pthread_mutex_lock(&w->lock);
    trireme_status status =
        error_set(error, TRIREME_ERROR_LOST, "group %s: rank %d cannot go on with %s%s%s: %s", c->name,
                  w->base.place.rank, comm_call_print(call, text), *missing ? ", waiting for" : "", missing, w->reason);
    pthread_mutex_unlock(&w->lock);
    return status;
}

void round_refuse(struct process_communicator *c, const char *format, ...) {
    char reason[BREAK_TEXT];
    size_t n = (size_t)snprintf(reason, sizeof reason, "group %.40s: ", c->name);
    va_list args;
    va_start(args, format);
    vsnprintf(reason + n, sizeof reason - n, format, args);
    va_end(args);
    process_world_break(&c->world->base, reason);
    world_reason(&c->world->base, reason, sizeof reason); // the first reason, which may be another rank's
    c->status = error_set(c->error, TRIREME_ERROR_LOST, "%s", reason);
    c->lost = true;
}
