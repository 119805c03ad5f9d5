// Checks that messages of a schedule can be told apart by their order alone.
#include "pipeline/schedule.h"

// A message: activations that leave a virtual stage, or gradients that come to it, of one microbatch.
struct parcel {
    int stage, microbatch;
};
struct parcels {
    VEC(struct parcel);
};

// What rank `from` sends rank `to` on one channel, in the order in which one of the two (`own`) does its passes.
static void list_parcels(const struct schedule *s, int own, int from, int to, bool gradients, struct parcels *out) {
    int last = s->stages * s->chunks - 1;
    out->count = 0;
    for (size_t i = 0; i < s->rank[own].count; i++) {
        struct pass pass = s->rank[own].item[i];
        bool forward = pass.kind == PASS_FORWARD;
        if (pass.kind >= PASS_BACKWARD_WEIGHT || forward == gradients)
            continue;
        int stage = s->virtual_stage[own * s->chunks + pass.chunk];
        // The stage whose output this pass sends or takes, or the gradient of whose output.
        int of = stage - ((own == from) == gradients);
        if (of < 0 || of >= last)
            continue;
        int source = s->place[gradients ? of + 1 : of].rank, target = s->place[gradients ? of : of + 1].rank;
        if (source == from && target == to && source != target)
            VEC_PUSH(out, (struct parcel){of, pass.microbatch});
    }
}

static trireme_status check_hops(const struct schedule *s, trireme_error *error) {
    for (int v = 0; v + 1 < s->stages * s->chunks; v++) {
        int hop = ((s->place[v + 1].rank - s->place[v].rank) % s->stages + s->stages) % s->stages;
        if (hop > 1 && hop < s->stages - 1)
            FAIL(TRIREME_ERROR_USAGE,
                 "its virtual stage %d is on rank %d and the one before on rank %d: neighbours, or "
                 "the same rank, are needed",
                 v + 1, s->place[v + 1].rank, s->place[v].rank);
    }
    return TRIREME_OK;
}

trireme_status schedule_check_messages(const struct schedule *s, trireme_error *error) {
    TRY(check_hops(s, error));
    struct parcels sent = {0}, taken = {0};
    trireme_status status = TRIREME_OK;
    for (int i = 0; i < 4 * s->stages && status == TRIREME_OK; i++) {
        int from = i / 4, to = (from + (i & 1 ? 1 : s->stages - 1)) % s->stages;
        bool gradients = i & 2;
        list_parcels(s, from, from, to, gradients, &sent);
        list_parcels(s, to, from, to, gradients, &taken);
        CHECK(sent.count == taken.count);
        for (size_t k = 0; k < sent.count && status == TRIREME_OK; k++) {
            struct parcel a = sent.item[k], b = taken.item[k];
            if (a.stage == b.stage && a.microbatch == b.microbatch)
                continue;
            char mine[PASS_TEXT], theirs[PASS_TEXT];
            enum pass_kind kind = gradients ? PASS_BACKWARD : PASS_FORWARD;
            int chunk = s->place[gradients ? a.stage + 1 : a.stage].chunk,
                other = s->place[gradients ? b.stage : b.stage + 1].chunk;
            status =
                error_set(error, TRIREME_ERROR_USAGE, "rank %d does %s when rank %d does %s: the same order is needed",
                          from, pass_print(s, (struct pass){kind, chunk, a.microbatch}, mine), to,
                          pass_print(s, (struct pass){kind, other, b.microbatch}, theirs));
        }
    }
    VEC_RELEASE(&sent);
    VEC_RELEASE(&taken);
    return status;
}
