// All-reduces of middle length on a node, piece by piece: member i reduces part i. A member's window has a place for
// its contribution to the part of each other member, and one for the part that it has reduced, which is not needed
// where others can read that part in place. One place each is enough: before a member fills a place again, it waits
// until the others have taken the step that follows reading it.
#include "comm/mpi/near.h"

// Longer calls are faster by reading alone (near_direct.c).
enum { LONGEST = 8 << 20 };

static int64_t place_bytes(const struct process_communicator *c) {
    return NEAR_WINDOW / c->base.size / NEAR_LINE * NEAR_LINE;
}

// The place where `from` keeps its data for `to`; with from == to, the place of the part that it has reduced.
static char *pieces_place(const struct process_communicator *c, int from, int to) {
    int size = c->base.size;
    return c->near->member[from].window + (to - from + 2 * size - 1) % size * place_bytes(c);
}

// Piece `number` of a member's part: returns how many elements it has, and sets *begin to the first.
static int64_t piece_at(const struct process_communicator *c, const struct comm_call *call, int member, int64_t number,
                        int64_t *begin) {
    int64_t size = dtype_size(call->dtype), most = place_bytes(c) / size;
    *begin = part_begin(call->count, size, c->base.size, member) + number * most;
    return MAX(0, MIN(part_begin(call->count, size, c->base.size, member + 1) - *begin, most));
}

static void pieces_contribute(struct process_communicator *c, const struct comm_call *call, int64_t number) {
    int64_t size = dtype_size(call->dtype), begin;
    for (int k = 1; k < c->base.size; k++) {
        int to = (c->base.index + k) % c->base.size;
        int64_t count = piece_at(c, call, to, number, &begin);
        copy_bytes(pieces_place(c, c->base.index, to), (const char *)call->in + begin * size, count * size, false);
    }
}

static void contribute_first(struct process_communicator *c, const struct comm_call *call) {
    pieces_contribute(c, call, 0);
}

static void pieces_reduce(struct process_communicator *c, const struct comm_call *call, int64_t number) {
    int64_t size = dtype_size(call->dtype), begin, count = piece_at(c, call, c->base.index, number, &begin);
    for (int m = 0; m < c->base.size; m++)
        c->contribution[m] = pieces_place(c, m, c->base.index);
    c->contribution[c->base.index] = (const char *)call->in + begin * size;
    char *out = (char *)call->out + begin * size;
    reduce_elements(call, true, c->contribution, c->base.size, 0, count, out, false, c->chunk);
    if (!c->world->reads)
        copy_bytes(pieces_place(c, c->base.index, c->base.index), out, count * size, false);
}

static void take_piece(struct process_communicator *c, const struct comm_call *call, int64_t number) {
    int64_t size = dtype_size(call->dtype), begin;
    for (int k = 1; k < c->base.size; k++) {
        int from = (c->base.index + k) % c->base.size;
        int64_t count = piece_at(c, call, from, number, &begin);
        copy_bytes((char *)call->out + begin * size, pieces_place(c, from, from), count * size, false);
    }
}

// Returns when the others, too, have read what they need.
static trireme_status pieces_read_parts(struct process_communicator *c, const struct comm_call *call,
                                        trireme_error *error) {
    int64_t size = dtype_size(call->dtype);
    for (int k = 1; k < c->base.size; k++) {
        int from = (c->base.index + k) % c->base.size;
        int64_t begin = part_begin(call->count, size, c->base.size, from) * size;
        int64_t end = part_begin(call->count, size, c->base.size, from + 1) * size;
        const char *theirs = (const char *)near_slot(c, from)->out + begin;
        TRY(near_read(c, from, (char *)call->out + begin, theirs, end - begin, error));
    }
    return near_meet(c, call, error);
}

// In a call in place, results overwrite this member's contributions.
static trireme_status pieces_all_reduce(struct process_communicator *c, const struct comm_call *call,
                                        trireme_error *error) {
    int64_t pieces = 0, begin;
    for (int m = 0; m < c->base.size; m++)
        while (piece_at(c, call, m, pieces, &begin) > 0)
            pieces++;
    for (int64_t number = 0; number < pieces; number++) {
        if (number > 0) {
            pieces_contribute(c, call, number);
            TRY(near_meet(c, call, error));
        }
        pieces_reduce(c, call, number);
        TRY(near_meet(c, call, error));
        if (!c->world->reads)
            take_piece(c, call, number);
    }
    return c->world->reads ? pieces_read_parts(c, call, error) : TRIREME_OK;
}

bool near_pieces(const struct process_communicator *c, const struct comm_call *call, struct near_way *way) {
    *way = (struct near_way){contribute_first, pieces_all_reduce};
    return call->operation == OPERATION_ALL_REDUCE &&
           (call->count * dtype_size(call->dtype) <= LONGEST || !c->world->reads);
}
