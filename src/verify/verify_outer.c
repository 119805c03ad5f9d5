// Proves of the parts of an outer step that each parameter of the program goes through them once, in their order, as
// itself. What is done with a parameter are stations, of which a program has some, the same of all its parameters:
//   keep (its value is set aside), show (it becomes its anchor), take (what it is, or how far from its anchor),
//   compress, weigh, measure (its squares are weighed), eager, outer (its anchor moves), settle, rescale (what divides
//   its gradients follows from the squares); restore (what was kept)
// Each station works on all of what a rank updates of the parameter: on the state that belongs to it, or on what an
// earlier station has made of it. That the weighed values and the weights are summed over the islands, once and over no
// other ranks, is proved by what ranks hold (verify_placement.c): only `weigh` makes terms of a sum of what is an
// island's own, and nothing but a reduction along that axis takes them; and the anchors that islands share are proved
// there to be the same on all of them. Where codes travel, what is weighed are those that all islands have made of the
// parameter, gathered once and decoded as they were encoded; or the island's own and what has come around a ring from
// one other, which is what that has sent of the same parameter with the weight that it has for all. Then the anchor
// that an optimizer is pulled to is that island's of the parameter. Where means are divided by how far anchors have
// moved, the sums of that count each anchor once; that they are summed over the ranks is proved by what these hold.
#include "verify/verify_update.h"

#include "codec/codec.h"
#include "program/channels.h"

enum station {
    STATION_KEEP,
    STATION_SHOW,
    STATION_TAKE,
    STATION_COMPRESS,
    STATION_WEIGH,
    STATION_MEASURE,
    STATION_EAGER,
    STATION_OUTER,
    STATION_SETTLE,
    STATION_RESCALE,
    STATION_RESTORE,
    STATIONS
};
enum { KEEP = 1 << STATION_KEEP, SHOW = 1 << STATION_SHOW, TAKE = 1 << STATION_TAKE, WEIGH = 1 << STATION_WEIGH };
enum { EAGER = 1 << STATION_EAGER, OUTER = 1 << STATION_OUTER, SETTLE = 1 << STATION_SETTLE };
enum { COMPRESS = 1 << STATION_COMPRESS, RESTORE = 1 << STATION_RESTORE };
enum { MEASURE = 1 << STATION_MEASURE, RESCALE = 1 << STATION_RESCALE };
static const enum op_role ROLES[] = {ROLE_TAKE,  ROLE_COMPRESS, ROLE_WEIGH,    ROLE_EAGER,
                                     ROLE_OUTER, ROLE_SETTLE,   ROLE_STALENESS};

// The stations that a program may have; what it weighs it may compress before.
static const unsigned PROGRAMS[] = {
    TAKE | WEIGH | SETTLE,
    TAKE | WEIGH | OUTER | SETTLE, // a meeting
    TAKE | WEIGH | MEASURE | SETTLE | RESCALE,
    TAKE | WEIGH | MEASURE | OUTER | SETTLE | RESCALE, // and one of islands that divide by the same
    TAKE,
    WEIGH, // its parts
    SETTLE,
    OUTER | SETTLE,
    TAKE | OUTER | SETTLE,
    TAKE | EAGER | OUTER | SETTLE, // a turn
    KEEP | SHOW,
    KEEP | TAKE | WEIGH | SETTLE,
    KEEP | SHOW | TAKE | WEIGH | SETTLE, // begin and
    RESTORE,                             // end of an evaluation
};

// What is known of a root.
struct passed {
    unsigned stations; // of a parameter: those that it has been through
    int made_of;       // of what a station has made: the parameter; else NONE
    enum station by;
    enum codec codec; // of codes
    bool used;        // of a state: a station has read or written it
    int moves;        // of a sum of distances: what has been added to it
    bool judged;      // and that `staleness` has read it
};

struct outer_check {
    const struct update_check *c;
    const struct found *at;
    struct passed *root; // [buffers]
    int total;           // what means are made with; NONE: none is yet
    int excess;          // by which means are divided; NONE: none is yet
    bool moves, judged;  // some anchor has moved; `staleness` has run
    int weights;         // of all islands, where codes are weighed with them; NONE: none are yet
    int updates;         // what sums of squares are divided by; NONE: none is yet
    int peer;            // how far around the ring what has come was; 0: nothing has come
};

static trireme_status outer_refuse(const struct outer_check *o, const char *name, const struct operand *operand,
                                   const char *why) {
    trireme_error *error = o->c->error;
    REFUSE("%s: its %s is %s, which is not %s", update_site(o->c, o->at).text, name, update_name(o->c, operand->buffer),
           why);
}

static bool is_whole(const struct program *p, const struct operand *operand) {
    const struct operand whole = operand_whole(p, operand->buffer);
    return operand_equal(operand, &whole) && p->buffers.item[operand->buffer].parent == NONE;
}

// The number of elements that a rank updates of the parameter.
static int64_t count_updated(const struct program *p, int parameter) {
    const struct operand own = operand_part(p, operand_whole(p, parameter), p->buffers.item[parameter].own);
    return operand_count(&own);
}

// Which parameter an operand stands for: all of its state, or all of what a station has made of it. NONE: of none.
static int parameter_of(const struct outer_check *o, const struct operand *operand) {
    const struct program *p = o->c->program;
    const struct buffer *b = &p->buffers.item[operand->buffer];
    const int parameter = b->kind == KIND_OPTIM ? b->belongs_to : o->root[operand->buffer].made_of;
    if (!is_whole(p, operand) || parameter == NONE || operand_count(operand) != count_updated(p, parameter))
        return NONE;
    return parameter;
}

// The operand, where it is there, must be the parameter's state; or what has been `made` of it by one of those
// stations.
static trireme_status check_state(struct outer_check *o, const char *name, const struct operand *operand, int parameter,
                                  unsigned made) {
    if (operand->buffer == NONE)
        return TRIREME_OK;
    const struct passed *of = &o->root[operand->buffer];
    const bool state = o->c->program->buffers.item[operand->buffer].kind == KIND_OPTIM;
    if (parameter_of(o, operand) != parameter || (!state && !(made & 1u << of->by)))
        return outer_refuse(o, name, operand, "a state of the parameter, or made of it");
    o->root[program_original(o->c->program, operand->buffer)].used = true;
    return TRIREME_OK;
}

// A state of the parameter, or something that this station makes of it.
static trireme_status check_made(struct outer_check *o, const char *name, const struct operand *operand, int parameter,
                                 enum station by) {
    const struct program *p = o->c->program;
    const struct buffer *b = &p->buffers.item[operand->buffer];
    if (b->kind == KIND_OPTIM)
        return check_state(o, name, operand, parameter, 0);
    if (b->scope != SCOPE_LOCAL || !is_whole(p, operand) || operand_count(operand) != count_updated(p, parameter))
        return outer_refuse(o, name, operand, "all of something of the program's own");
    o->root[operand->buffer].made_of = parameter;
    o->root[operand->buffer].by = by;
    return TRIREME_OK;
}

static trireme_status check_same(const struct outer_check *o, const char *name, const struct operand *in,
                                 const struct operand *out) {
    return operand_equal(in, out) ? TRIREME_OK : outer_refuse(o, name, out, "what it was made from");
}

// All of what the rank updates of a parameter; its low halves.
static trireme_status check_parameter(struct outer_check *o, const struct operand *operand, const struct operand *rem,
                                      int *parameter) {
    const struct program *p = o->c->program;
    const struct buffer *b = &p->buffers.item[operand->buffer];
    const struct operand own = operand_part(p, operand_whole(p, operand->buffer), b->own);
    if (b->kind != KIND_PARAM || b->parent != NONE || !operand_equal(operand, &own))
        return outer_refuse(o, "p", operand, "all that a rank updates of a parameter");
    *parameter = operand->buffer;
    return check_state(o, "rem", rem, *parameter, 0);
}

static trireme_status check_total(struct outer_check *o, const struct operand *total) {
    const struct buffer *b = &o->c->program->buffers.item[total->buffer];
    const bool may = b->kind == KIND_OPTIM ? b->belongs_to == NONE : b->scope == SCOPE_LOCAL;
    if (!may || (o->total != NONE && o->total != total->buffer))
        return outer_refuse(o, "total", total, "that of all weights");
    o->total = total->buffer;
    o->root[total->buffer].used = true;
    return TRIREME_OK;
}

// ---- the stations, each of which finds its parameter

static trireme_status check_take(struct outer_check *o, const struct instruction *i, int *parameter) {
    TRY(check_parameter(o, &i->in[INPUT(TAKE, p)], &i->in[INPUT(TAKE, rem)], parameter));
    TRY(check_state(o, "anchor", &i->in[INPUT(TAKE, anchor)], *parameter, 0));
    TRY(check_state(o, "taken", &i->in[INPUT(TAKE, taken)], *parameter, 0));
    return check_made(o, "taken", &i->out[OUTPUT(TAKE, taken)], *parameter, STATION_TAKE);
}

static trireme_status check_codec(const struct outer_check *o, enum codec codec, const struct operand *codes,
                                  int64_t rows, int parameter) {
    const struct program *p = o->c->program;
    const bool f64 = dtype_accumulate(p->buffers.item[parameter].dtype) == DTYPE_F64;
    const bool exists = codec >= 0 && codec < CODEC_COUNT;
    if (!exists || operand_count(codes) != rows * codec_bytes(codec, count_updated(p, parameter), f64))
        return outer_refuse(o, "code", codes, "as large as what its codec makes of the parameter");
    return TRIREME_OK;
}

static trireme_status check_compress(struct outer_check *o, const struct instruction *i, int *parameter) {
    const struct operand *taken = &i->in[INPUT(COMPRESS, taken)], *code = &i->out[OUTPUT(COMPRESS, code)];
    const enum codec codec = (enum codec)i->attribute[ATTRIBUTE(COMPRESS, codec)].i;
    *parameter = parameter_of(o, taken);
    if (*parameter == NONE)
        return outer_refuse(o, "taken", taken, "all that has been taken of a parameter");
    TRY(check_state(o, "taken", taken, *parameter, TAKE));
    TRY(check_codec(o, codec, code, 1, *parameter));
    struct passed *passed = &o->root[code->buffer];
    if (o->c->program->buffers.item[code->buffer].scope != SCOPE_LOCAL || !is_whole(o->c->program, code) ||
        passed->made_of != NONE)
        return outer_refuse(o, "code", code, "all of something of the program's own");
    *passed = (struct passed){.made_of = *parameter, .by = STATION_COMPRESS, .codec = codec};
    return TRIREME_OK;
}

// What of an island's is gathered to `all`, by the only instruction that writes there; that itself where none does. (A
// collective gathers all of it, and over the islands, or what is weighed is not whole: verify_placement.c.)
static trireme_status gathered_from(const struct outer_check *o, const char *name, const struct operand *all,
                                    int *from) {
    const struct program *p = o->c->program;
    int writers = 0;
    *from = all->buffer;
    FOR_INSTRUCTIONS(i, p)
        for (int out = 0; out < i->outputs; out++) {
            if (i->out[out].buffer != all->buffer || i->op == OP_COMPRESS)
                continue;
            if (i->op != OP_ALL_GATHER || !is_whole(p, all) || ++writers > 1)
                return outer_refuse(o, name, all, "what all islands have, gathered once");
            *from = i->in[0].buffer;
        }
    return TRIREME_OK;
}

// What another island has sent of what is its own, in `received`: by a message that is the only one of it.
static trireme_status received_from(struct outer_check *o, const char *name, const struct operand *received,
                                    int *sent) {
    const struct program *p = o->c->program;
    int writers = 0;
    for (size_t t = 0; t < p->templates.count; t++)
        for (size_t k = 0; k < p->templates.item[t].instructions.count; k++) {
            const struct instruction *i = &p->templates.item[t].instructions.item[k];
            for (int out = 0; out < i->outputs; out++) {
                if (i->out[out].buffer != received->buffer)
                    continue;
                const int send = i->op == OP_RECEIVE ? message_other_end(p, (int)t, (int)k) : NONE;
                if (send == NONE || i->group != AXES_ISLAND || (o->peer && i->peer != o->peer) || writers++ > 0)
                    return outer_refuse(o, name, received, "what one other island, always the same, has sent");
                o->peer = i->peer;
                *sent = p->templates.item[t].instructions.item[send].in[INPUT(SEND, x)].buffer;
            }
        }
    if (writers == 0 || !is_whole(p, received))
        return outer_refuse(o, name, received, "what another island has sent");
    return TRIREME_OK;
}

// Codes of the same parameter from another island, with its weight; or else all islands' have been gathered.
static trireme_status check_from(struct outer_check *o, const struct instruction *i) {
    const struct operand *codes = &i->in[INPUT(WEIGH_CODES, codes)], *weight = &i->in[INPUT(WEIGH_CODES, weight)],
                         *from = &i->in[INPUT(WEIGH_CODES, from)],
                         *from_weight = &i->in[INPUT(WEIGH_CODES, from_weight)];
    int code, own;
    if (from->buffer == NONE && from_weight->buffer == NONE) {
        const int islands = mesh_group_size(&o->c->program->mesh, AXES_ISLAND);
        return codes->dim[0] == islands ? TRIREME_OK : outer_refuse(o, "codes", codes, "what all islands have");
    }
    if (from->buffer == NONE || from_weight->buffer == NONE)
        return outer_refuse(o, "codes", codes, "what its peer has, with its weight");
    TRY(received_from(o, "from", from, &code));
    TRY(received_from(o, "from_weight", from_weight, &own));
    if (code != codes->buffer)
        return outer_refuse(o, "from", from, "what its peer has made of the parameter");
    return own == weight->buffer ? TRIREME_OK : outer_refuse(o, "from_weight", from_weight, "its peer's weight");
}

static trireme_status check_weigh_codes(struct outer_check *o, const struct instruction *i, int *parameter) {
    const struct operand *codes = &i->in[INPUT(WEIGH_CODES, codes)], *weight = &i->in[INPUT(WEIGH_CODES, weight)],
                         *total = &i->out[OUTPUT(WEIGH_CODES, total)];
    const enum codec codec = (enum codec)i->attribute[ATTRIBUTE(WEIGH_CODES, codec)].i;
    int code, own;
    TRY(gathered_from(o, "codes", codes, &code));
    TRY(gathered_from(o, "weight", weight, &own));
    const struct passed *passed = &o->root[code];
    *parameter = passed->made_of;
    if (*parameter == NONE || passed->by != STATION_COMPRESS || passed->codec != codec)
        return outer_refuse(o, "codes", codes, "what its codec has made of a parameter");
    TRY(check_codec(o, codec, codes, codes->dim[0], *parameter));
    if (o->c->program->buffers.item[own].kind != KIND_INPUT || (o->weights != NONE && o->weights != weight->buffer))
        return outer_refuse(o, "weight", weight, "an input, the same for all");
    o->weights = weight->buffer;
    TRY(check_from(o, i));
    if (total->buffer != NONE)
        TRY(check_total(o, total));
    return check_made(o, "value", &i->out[OUTPUT(WEIGH_CODES, value)], *parameter, STATION_WEIGH);
}

// Another state of the parameter than its low halves.
static trireme_status check_kept(struct outer_check *o, const struct operand *kept, int parameter) {
    if (o->c->program->buffers.item[kept->buffer].kind != KIND_OPTIM)
        return outer_refuse(o, "kept", kept, "a state");
    return check_state(o, "kept", kept, parameter, 0);
}

static trireme_status check_keep(struct outer_check *o, const struct instruction *i, int *parameter) {
    TRY(check_parameter(o, &i->in[INPUT(KEEP, p)], &i->in[INPUT(KEEP, rem)], parameter));
    return check_kept(o, &i->out[OUTPUT(KEEP, kept)], *parameter);
}

static trireme_status check_weigh(struct outer_check *o, const struct instruction *i, int *parameter) {
    const struct program *p = o->c->program;
    const struct operand *taken = &i->in[INPUT(WEIGH, taken)], *weight = &i->in[INPUT(WEIGH, weight)],
                         *total = &i->out[OUTPUT(WEIGH, total)];
    *parameter = parameter_of(o, taken);
    if (*parameter == NONE)
        return outer_refuse(o, "taken", taken, "all that has been taken of a parameter");
    if (p->buffers.item[weight->buffer].kind != KIND_INPUT)
        return outer_refuse(o, "weight", weight, "an input");
    TRY(check_state(o, "taken", taken, *parameter, TAKE));
    if (total->buffer != NONE)
        TRY(check_total(o, total));
    return check_made(o, "value", &i->out[OUTPUT(WEIGH, value)], *parameter, STATION_WEIGH);
}

static trireme_status check_eager(struct outer_check *o, const struct instruction *i, int *parameter) {
    const struct operand *own = &i->in[INPUT(EAGER, own)], *taken = &i->in[INPUT(EAGER, taken)];
    *parameter = parameter_of(o, own);
    if (*parameter == NONE)
        return outer_refuse(o, "own", own, "all that has been taken of a parameter");
    TRY(check_state(o, "own", own, *parameter, TAKE));
    TRY(check_state(o, "value", &i->in[INPUT(EAGER, value)], *parameter, 0));
    TRY(check_state(o, "taken", taken, *parameter, 0));
    TRY(check_same(o, "taken1", taken, &i->out[OUTPUT(EAGER, taken1)]));
    return check_made(o, "fresh", &i->out[OUTPUT(EAGER, fresh)], *parameter, STATION_EAGER);
}

// A scalar that belongs to no parameter: a state, or the program's own.
static trireme_status check_scalar(struct outer_check *o, const char *name, const struct operand *scalar, bool state) {
    const struct buffer *b = &o->c->program->buffers.item[scalar->buffer];
    const bool is_state = b->kind == KIND_OPTIM && b->belongs_to == NONE;
    if (!is_whole(o->c->program, scalar) || (state ? !is_state : b->scope != SCOPE_LOCAL))
        return outer_refuse(o, name, scalar, state ? "a state of the program's" : "the program's own");
    o->root[scalar->buffer].used = true;
    return TRIREME_OK;
}

// Means are divided by one excess, or by none. Then each distance is added to a sum that is judged later; but of a
// parameter that both ends of a pipeline have one end may leave it out.
static trireme_status check_moves(struct outer_check *o, const struct instruction *i, int parameter) {
    const struct program *p = o->c->program;
    const struct operand *excess = &i->in[INPUT(OUTER_SGD, excess)], *moved = &i->out[OUTPUT(OUTER_SGD, moved)];
    const bool at_both_ends =
        p->mesh.degree[AXIS_PP] > 1 && p->buffers.item[parameter].placement[AXIS_PP] == PLACE_REPLICATE;
    if (o->moves && o->excess != excess->buffer)
        return outer_refuse(o, "excess", excess, "that of the others");
    o->moves = true;
    o->excess = excess->buffer;
    if (excess->buffer == NONE)
        return moved->buffer == NONE ? TRIREME_OK : outer_refuse(o, "moved", moved, "of any use");
    TRY(check_scalar(o, "excess", excess, true));
    if (moved->buffer == NONE)
        return at_both_ends ? TRIREME_OK : outer_refuse(o, "moved", moved, "a sum");
    TRY(check_scalar(o, "moved", moved, false));
    o->root[moved->buffer].moves++; // that none is overwritten is proved of memory
    return o->judged ? outer_refuse(o, "moved", moved, "a sum that is judged later") : TRIREME_OK;
}

// All sums, each once.
static trireme_status check_staleness(struct outer_check *o, const struct instruction *i) {
    const struct program *p = o->c->program;
    const struct operand *last = &i->in[INPUT(STALENESS, last)], *excess = &i->out[OUTPUT(STALENESS, excess)];
    for (int k = 0; k < INPUT(STALENESS, last); k++) {
        const struct operand *sum = &i->in[k];
        if (sum->buffer == NONE)
            continue;
        TRY(check_scalar(o, "sum", sum, false));
        if (o->root[sum->buffer].judged || (o->root[sum->buffer].moves == 0 && p->mesh.degree[AXIS_PP] == 1))
            return outer_refuse(o, "sum", sum, "of distances");
        o->root[sum->buffer].judged = true;
    }
    for (size_t k = 0; k < p->buffers.count; k++)
        if (o->root[k].moves > 0 && !o->root[k].judged)
            return outer_refuse(o, "sum", &i->in[0], "all of the distances");
    if (o->judged || (o->moves && o->excess != excess->buffer))
        return outer_refuse(o, "excess", excess, "by what means are divided, set once");
    o->judged = true;
    TRY(check_scalar(o, "excess", excess, true));
    TRY(check_scalar(o, "last", last, true));
    return check_same(o, "last1", last, &i->out[OUTPUT(STALENESS, last1)]);
}

// An anchor is pulled to that of the parameter on the island from which the mean has something, or to none.
static trireme_status check_pull(struct outer_check *o, const struct instruction *i) {
    const struct operand *anchor = &i->in[INPUT(OUTER_SGD, anchor)], *other = &i->in[INPUT(OUTER_SGD, other)];
    const bool pulls = i->attribute[ATTRIBUTE(OUTER_SGD, pull)].f != 0;
    int sent = NONE;
    if (other->buffer != NONE)
        TRY(received_from(o, "other", other, &sent));
    if (pulls != (other->buffer != NONE) || (pulls && sent != anchor->buffer))
        return outer_refuse(o, "other", other, "its peer's anchor of the parameter");
    return TRIREME_OK;
}

static trireme_status check_outer_sgd(struct outer_check *o, const struct instruction *i, int *parameter) {
    const struct operand *anchor = &i->in[INPUT(OUTER_SGD, anchor)], *velocity = &i->in[INPUT(OUTER_SGD, velocity)];
    *parameter = parameter_of(o, anchor);
    if (*parameter == NONE)
        return outer_refuse(o, "anchor", anchor, "all of a parameter's");
    TRY(check_state(o, "anchor", anchor, *parameter, 0));
    TRY(check_state(o, "velocity", velocity, *parameter, 0));
    TRY(check_state(o, "value", &i->in[INPUT(OUTER_SGD, value)], *parameter, WEIGH | EAGER));
    TRY(check_total(o, &i->in[INPUT(OUTER_SGD, total)]));
    TRY(check_moves(o, i, *parameter));
    TRY(check_pull(o, i));
    TRY(check_same(o, "anchor1", anchor, &i->out[OUTPUT(OUTER_SGD, anchor1)]));
    return check_same(o, "velocity1", velocity, &i->out[OUTPUT(OUTER_SGD, velocity1)]);
}

// The parameter is set, in place.
static trireme_status check_set(struct outer_check *o, const struct instruction *i, int p, int rem, int *parameter) {
    const struct op_info *info = &o->c->table->op[i->op];
    TRY(check_parameter(o, &i->in[p], &i->in[rem], parameter));
    for (int out = 0; out < info->outputs; out++)
        TRY(check_same(o, info->out[out].name, &i->in[info->inplace[out]], &i->out[out]));
    return TRIREME_OK;
}

static trireme_status check_adopt(struct outer_check *o, const struct instruction *i, int *parameter) {
    TRY(check_set(o, i, INPUT(ADOPT, p), INPUT(ADOPT, rem), parameter));
    TRY(check_state(o, "taken", &i->in[INPUT(ADOPT, taken)], *parameter, 0));
    return check_state(o, "anchor", &i->in[INPUT(ADOPT, anchor)], *parameter, 0);
}

static trireme_status check_restore(struct outer_check *o, const struct instruction *i, int *parameter) {
    TRY(check_set(o, i, INPUT(RESTORE, p), INPUT(RESTORE, rem), parameter));
    return check_kept(o, &i->in[INPUT(RESTORE, kept)], *parameter);
}

static trireme_status check_settle(struct outer_check *o, const struct instruction *i, int *parameter) {
    TRY(check_set(o, i, INPUT(SETTLE, p), INPUT(SETTLE, rem), parameter));
    TRY(check_state(o, "value", &i->in[INPUT(SETTLE, value)], *parameter, WEIGH));
    TRY(check_state(o, "taken", &i->in[INPUT(SETTLE, taken)], *parameter, 0));
    return check_total(o, &i->in[INPUT(SETTLE, total)]);
}

// The squares are added up anew from here, as the updates that they are of are counted.
static trireme_status check_weigh_squares(struct outer_check *o, const struct instruction *i, int *parameter) {
    const struct operand *squares = &i->in[INPUT(WEIGH_SQUARES, squares)], *t = &i->in[INPUT(WEIGH_SQUARES, t)],
                         *since = &i->in[INPUT(WEIGH_SQUARES, since)], *total = &i->out[OUTPUT(WEIGH_SQUARES, total)];
    *parameter = parameter_of(o, squares);
    if (*parameter == NONE)
        return outer_refuse(o, "squares", squares, "all of a parameter's");
    TRY(check_state(o, "squares", squares, *parameter, 0));
    TRY(check_same(o, "squares1", squares, &i->out[OUTPUT(WEIGH_SQUARES, squares1)]));
    if ((t->buffer == NONE) != (total->buffer == NONE) || (since->buffer == NONE) != (total->buffer == NONE))
        return outer_refuse(o, "squares", squares, "counted by t, since and total together");
    if (total->buffer != NONE) {
        TRY(check_scalar(o, "total", total, false));
        TRY(check_scalar(o, "t", t, true));
        TRY(check_scalar(o, "since", since, true));
        o->updates = total->buffer;
    }
    return check_made(o, "value", &i->out[OUTPUT(WEIGH_SQUARES, value)], *parameter, STATION_MEASURE);
}

static trireme_status check_rescale(struct outer_check *o, const struct instruction *i, int *parameter) {
    const struct operand *divisor = &i->in[INPUT(RESCALE, divisor)], *squares = &i->in[INPUT(RESCALE, squares)],
                         *total = &i->in[INPUT(RESCALE, total)];
    *parameter = parameter_of(o, divisor);
    if (*parameter == NONE)
        return outer_refuse(o, "divisor", divisor, "all of a parameter's");
    if (total->buffer != o->updates)
        return outer_refuse(o, "total", total, "that of the updates that squares are of");
    if (parameter_of(o, squares) != *parameter || o->root[squares->buffer].by != STATION_MEASURE)
        return outer_refuse(o, "squares", squares, "the sum of the parameter's");
    TRY(check_state(o, "divisor", divisor, *parameter, 0));
    TRY(check_scalar(o, "rounds", &i->in[INPUT(RESCALE, rounds)], true));
    return check_same(o, "divisor1", divisor, &i->out[OUTPUT(RESCALE, divisor1)]);
}

// By their ops. Before an anchor has moved, a parameter adopts it to be shown; then, to settle.
static const struct {
    enum op op;
    enum station station;
    trireme_status (*check)(struct outer_check *, const struct instruction *, int *);
} STATION_OF[] = {{OP_KEEP, STATION_KEEP, check_keep},
                  {OP_TAKE, STATION_TAKE, check_take},
                  {OP_COMPRESS, STATION_COMPRESS, check_compress},
                  {OP_WEIGH, STATION_WEIGH, check_weigh},
                  {OP_WEIGH_CODES, STATION_WEIGH, check_weigh_codes},
                  {OP_EAGER, STATION_EAGER, check_eager},
                  {OP_OUTER_SGD, STATION_OUTER, check_outer_sgd},
                  {OP_SETTLE, STATION_SETTLE, check_settle},
                  {OP_ADOPT, STATION_SETTLE, check_adopt},
                  {OP_WEIGH_SQUARES, STATION_MEASURE, check_weigh_squares},
                  {OP_RESCALE, STATION_RESCALE, check_rescale},
                  {OP_RESTORE, STATION_RESTORE, check_restore}};

// ---- all of them

static trireme_status check_station(struct outer_check *o) {
    const struct update_check *c = o->c;
    trireme_error *error = c->error;
    const enum op op = o->at->instruction->op;
    int parameter, of = 0;
    if (op == OP_STALENESS)
        return check_staleness(o, o->at->instruction);
    while (STATION_OF[of].op != op)
        of++;
    TRY(STATION_OF[of].check(o, o->at->instruction, &parameter));
    unsigned *stations = &o->root[parameter].stations;
    const bool moved = *stations & OUTER;
    const enum station station = op == OP_ADOPT && !moved ? STATION_SHOW : STATION_OF[of].station;
    if (*stations >> station)
        REFUSE("%s: %s has been through that, or what comes behind it, already", update_site(c, o->at).text,
               update_name(c, parameter));
    *stations |= 1u << station;
    if (op == OP_SETTLE && moved)
        REFUSE("%s: %s follows an anchor if that has moved, and else the mean", update_site(c, o->at).text,
               update_name(c, parameter));
    return TRIREME_OK;
}

static bool found_before(const struct found *a, const struct found *b) {
    return !b || a->invocation < b->invocation || (a->invocation == b->invocation && a->index < b->index);
}

// In the order in which they run.
static trireme_status check_stations(struct outer_check *o) {
    const struct update_check *c = o->c;
    size_t next[ARRAY_LENGTH(ROLES)] = {0};
    for (int first = 0; first != NONE;) {
        o->at = NULL;
        first = NONE;
        for (int r = 0; r < (int)ARRAY_LENGTH(ROLES); r++)
            if (next[r] < c->role[ROLES[r]].count && found_before(&c->role[ROLES[r]].item[next[r]], o->at)) {
                o->at = &c->role[ROLES[r]].item[next[r]];
                first = r;
            }
        if (first == NONE)
            break;
        next[first]++;
        TRY(check_station(o));
    }
    return TRIREME_OK;
}

static trireme_status check_complete(const struct outer_check *o) {
    const struct program *p = o->c->program;
    trireme_error *error = o->c->error;
    unsigned stations = 0;
    bool may = false;
    if (o->moves && o->excess != NONE && !o->judged)
        REFUSE("%s does not say by what the next means are divided", p->name);
    for (size_t i = 0; i < p->buffers.count; i++) {
        const struct buffer *b = &p->buffers.item[i];
        if (b->scope != SCOPE_STATE || b->parent != NONE)
            continue;
        if (b->kind == KIND_OPTIM && !o->root[i].used)
            REFUSE("%s has no part in the outer step", b->name);
        if (b->kind != KIND_PARAM)
            continue;
        stations = stations ?: o->root[i].stations;
        if (o->root[i].stations != stations || !stations)
            REFUSE("%s does not go through all of the outer step that others do", b->name);
    }
    const bool compresses = stations & COMPRESS;
    for (size_t i = 0; i < ARRAY_LENGTH(PROGRAMS); i++)
        may |= stations == (PROGRAMS[i] | (compresses && (PROGRAMS[i] & WEIGH) ? COMPRESS : 0));
    may |= stations == 0 && o->judged; // a stage that has nothing of the fragment
    if (!may)
        REFUSE("%s is no part of an outer step", p->name);
    return TRIREME_OK;
}

// States that lie elsewhere are worked on in one copy each, which goes back once nothing more changes it.
static trireme_status check_copies(const struct outer_check *o) {
    const struct program *p = o->c->program;
    trireme_error *error = o->c->error;
    bool *copied = mem_alloc(p->buffers.count * sizeof *copied), *changed = mem_alloc(p->buffers.count);
    const char *twice = NULL, *lost = NULL;
    for (size_t i = 0; i < p->buffers.count; i++) {
        bool *of = &copied[program_original(p, (int)i)];
        if (p->buffers.item[i].recomputes == NONE)
            continue;
        twice = *of ? p->buffers.item[i].name : twice;
        *of = true;
    }
    FOR_INSTRUCTIONS(i, p) {
        const bool moves = o->c->table->op[i->op].role == ROLE_TRANSFER;
        for (int k = 0; k < i->outputs; k++)
            if (i->out[k].buffer != NONE)
                changed[i->out[k].buffer] = !moves;
        if (moves)
            changed[i->in[0].buffer] = false;
    }
    for (size_t i = 0; i < p->buffers.count; i++)
        lost = changed[i] && p->buffers.item[i].recomputes != NONE ? p->buffers.item[i].name : lost;
    free(copied);
    free(changed);
    if (twice)
        REFUSE("%s is a second copy of what is kept", twice);
    if (lost)
        REFUSE("%s is changed, and not moved back", lost);
    return TRIREME_OK;
}

trireme_status verify_outer(const struct update_check *c) {
    size_t stations = 0;
    for (size_t r = 0; r < ARRAY_LENGTH(ROLES); r++)
        stations += c->role[ROLES[r]].count;
    if (stations == 0)
        return TRIREME_OK;
    struct outer_check o = {.c = c,
                            .root = mem_alloc(c->program->buffers.count * sizeof *o.root),
                            .total = NONE,
                            .excess = NONE,
                            .weights = NONE,
                            .updates = NONE};
    for (size_t i = 0; i < c->program->buffers.count; i++)
        o.root[i].made_of = NONE;
    trireme_status status = check_stations(&o);
    if (status == TRIREME_OK)
        status = check_complete(&o);
    if (status == TRIREME_OK)
        status = check_copies(&o);
    free(o.root);
    return status;
}
