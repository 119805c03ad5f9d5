// What all ranks of a wire do together before there are communicators, and after the last of them.
#include "comm/messages/messages.h"

#include <time.h>

static const struct timespec PAUSE = {.tv_nsec = 20000};

static trireme_status meeting_fail(const struct wire *wire, trireme_error *error) {
    FAIL(TRIREME_ERROR_LOST, "the ranks cannot reach one another through %s", wire->name);
}

static trireme_status meeting_await(struct wire *wire, struct wire_request request[2], trireme_error *error) {
    char reason[WIRE_REASON];
    for (int done[2]; request[0].bits || request[1].bits;) {
        const int count = wire->functions->test(wire, request, 2, done, reason);
        if (count < 0)
            return meeting_fail(wire, error);
        if (count == 0)
            nanosleep(&PAUSE, NULL);
    }
    return TRIREME_OK;
}

// Around the ring: each rank hands on what it was handed last.
trireme_status meeting_exchange(struct wire *wire, const void *own, void *all, int64_t bytes, trireme_error *error) {
    const int rank = wire->rank, ranks = wire->ranks, next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
    char *block = all;
    memcpy(block + rank * bytes, own, (size_t)bytes);
    for (int k = 0; k < ranks - 1; k++) {
        struct wire_request request[2] = {{0}, {0}};
        char *out = block + (rank + ranks - k) % ranks * bytes, *in = block + (last + ranks - k) % ranks * bytes;
        if (!wire->functions->receive(wire, last, TAG_MEET, in, bytes, &request[0]) ||
            !wire->functions->send(wire, next, TAG_MEET, out, bytes, &request[1]))
            return meeting_fail(wire, error);
        TRY(meeting_await(wire, request, error));
    }
    return TRIREME_OK;
}

// ---- the last meeting: all tell rank 0 that they have come, which then tells all

static bool meeting_post(struct meeting *m, int rank, bool receives) {
    const struct wire_functions *functions = m->wire->functions;
    m->left++;
    return (receives ? functions->receive(m->wire, rank, TAG_MEET, &m->byte[rank], 1, &m->request[rank])
                     : functions->send(m->wire, rank, TAG_MEET, &m->byte[rank], 1, &m->request[rank]));
}

static bool meeting_post_all(struct meeting *m, bool receives) {
    bool posted = true;
    for (int r = 1; r < m->wire->ranks; r++)
        posted &= meeting_post(m, r, receives);
    return posted;
}

bool meeting_begin(struct meeting *m, struct wire *wire) {
    const size_t ranks = (size_t)wire->ranks;
    *m = (struct meeting){.wire = wire};
    m->request = mem_alloc(ranks * sizeof *m->request);
    m->done = mem_alloc(ranks * sizeof *m->done);
    m->byte = mem_alloc(ranks);
    return wire->rank == 0 ? meeting_post_all(m, true) : meeting_post(m, 0, false);
}

int meeting_test(struct meeting *m) {
    char reason[WIRE_REASON];
    for (;;) {
        const int done = m->left ? m->wire->functions->test(m->wire, m->request, m->wire->ranks, m->done, reason) : 0;
        if (done < 0)
            return -1;
        m->left -= done;
        if (m->left > 0)
            return 0;
        if (m->answers)
            return 1;
        m->answers = true;
        if (!(m->wire->rank == 0 ? meeting_post_all(m, false) : meeting_post(m, 0, true)))
            return -1;
    }
}

void meeting_release(struct meeting *m) {
    free(m->request);
    free(m->done);
    free(m->byte);
}
