// All-reduces of middle length on a node, piece by piece: member i reduces part i. A member's window has a place for
// its contribution to the part of each other member, and one for the part that it has reduced, which is not needed
// where others can read that part in place. One place each is enough: before a member fills a place again, it waits
// until the others have taken the step that follows reading it.
#include "comm/near/near.h"

// Longer calls are faster by reading alone (near_direct.c).
enum { LONGEST = 8 << 20 };

static int64_t place_bytes(const struct near *n) {
    return NEAR_WINDOW / n->base->size / NEAR_LINE * NEAR_LINE;
}

// The place where `from` keeps its data for `to`; with from == to, the place of the part that it has reduced.
static char *pieces_place(const struct near *n, int from, int to) {
    int size = n->base->size;
    return n->member[from].window + (to - from + 2 * size - 1) % size * place_bytes(n);
}

// Piece `number` of a member's part: returns how many elements it has, and sets *begin to the first.
static int64_t piece_at(const struct near *n, const struct comm_call *call, int member, int64_t number,
                        int64_t *begin) {
    int64_t size = dtype_size(call->dtype), most = place_bytes(n) / size;
    *begin = part_begin(call->count, size, n->base->size, member) + number * most;
    return MAX(0, MIN(part_begin(call->count, size, n->base->size, member + 1) - *begin, most));
}

static void pieces_contribute(struct near *n, const struct comm_call *call, int64_t number) {
    int64_t size = dtype_size(call->dtype), begin;
    for (int k = 1; k < n->base->size; k++) {
        int to = (n->base->index + k) % n->base->size;
        int64_t count = piece_at(n, call, to, number, &begin);
        copy_bytes(pieces_place(n, n->base->index, to), (const char *)call->in + begin * size, count * size, false);
    }
}

static void contribute_first(struct near *n, const struct comm_call *call) {
    pieces_contribute(n, call, 0);
}

static void pieces_reduce(struct near *n, const struct comm_call *call, int64_t number) {
    int64_t size = dtype_size(call->dtype), begin, count = piece_at(n, call, n->base->index, number, &begin);
    for (int m = 0; m < n->base->size; m++)
        n->contribution[m] = pieces_place(n, m, n->base->index);
    n->contribution[n->base->index] = (const char *)call->in + begin * size;
    char *out = (char *)call->out + begin * size;
    reduce_elements(call, true, n->contribution, n->base->size, 0, count, out, false, n->chunk);
    if (!n->neighbours->reads)
        copy_bytes(pieces_place(n, n->base->index, n->base->index), out, count * size, false);
}

static void take_piece(struct near *n, const struct comm_call *call, int64_t number) {
    int64_t size = dtype_size(call->dtype), begin;
    for (int k = 1; k < n->base->size; k++) {
        int from = (n->base->index + k) % n->base->size;
        int64_t count = piece_at(n, call, from, number, &begin);
        copy_bytes((char *)call->out + begin * size, pieces_place(n, from, from), count * size, false);
    }
}

// Returns when the others, too, have read what they need.
static trireme_status pieces_read_parts(struct near *n, const struct comm_call *call, trireme_error *error) {
    int64_t size = dtype_size(call->dtype);
    for (int k = 1; k < n->base->size; k++) {
        int from = (n->base->index + k) % n->base->size;
        int64_t begin = part_begin(call->count, size, n->base->size, from) * size;
        int64_t end = part_begin(call->count, size, n->base->size, from + 1) * size;
        const char *theirs = (const char *)near_slot(n, from)->out + begin;
        TRY(near_read(n, from, (char *)call->out + begin, theirs, end - begin, error));
    }
    return near_meet(n, call, error);
}

// In a call in place, results overwrite this member's contributions.
static trireme_status pieces_all_reduce(struct near *n, const struct comm_call *call, trireme_error *error) {
    int64_t pieces = 0, begin;
    for (int m = 0; m < n->base->size; m++)
        while (piece_at(n, call, m, pieces, &begin) > 0)
            pieces++;
    for (int64_t number = 0; number < pieces; number++) {
        if (number > 0) {
            pieces_contribute(n, call, number);
            TRY(near_meet(n, call, error));
        }
        pieces_reduce(n, call, number);
        TRY(near_meet(n, call, error));
        if (!n->neighbours->reads)
            take_piece(n, call, number);
    }
    return n->neighbours->reads ? pieces_read_parts(n, call, error) : TRIREME_OK;
}

bool near_pieces(const struct near *n, const struct comm_call *call, struct near_way *way) {
    *way = (struct near_way){contribute_first, pieces_all_reduce};
    return call->operation == OPERATION_ALL_REDUCE &&
           (call->count * dtype_size(call->dtype) <= LONGEST || !n->neighbours->reads);
}
