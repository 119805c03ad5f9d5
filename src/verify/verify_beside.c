// Proves that two programs may run at one time.
#include "program/channels.h"
#include "program/structure.h"
#include "verify/verify.h"

// A root buffer of the state that a program reads or writes.
struct touched {
    enum memory_space space;
    int64_t begin, end;
    int buffer;
    bool written;
};
struct touched_list {
    VEC(struct touched);
};

static void beside_touch(struct touched_list *list, int *entry, const struct program *p, const struct operand *operand,
                         bool written) {
    if (operand->buffer == NONE)
        return;
    const int root = program_root(p, operand->buffer);
    const struct buffer *b = &p->buffers.item[root];
    if (b->scope != SCOPE_STATE)
        return;
    if (!entry[root]) {
        VEC_PUSH(list, (struct touched){b->space, b->offset, b->offset + buffer_bytes(b), root, false});
        entry[root] = (int)list->count;
    }
    list->item[entry[root] - 1].written |= written;
}

static void find_touched(struct touched_list *list, const struct program *p) {
    int *entry = mem_alloc(p->buffers.count * sizeof *entry); // 1 + its number in the list
    FOR_INSTRUCTIONS(i, p) {
        for (int k = 0; k < i->inputs; k++)
            beside_touch(list, entry, p, &i->in[k], false);
        for (int k = 0; k < i->outputs; k++)
            beside_touch(list, entry, p, &i->out[k], true);
        if (i->predicate != NONE)
            beside_touch(list, entry, p, &(struct operand){.buffer = i->predicate}, false);
    }
    free(entry);
}

static trireme_status check_touched(const struct program *a, const struct touched_list *of_a, const struct program *b,
                                    const struct touched_list *of_b, trireme_error *error) {
    for (size_t i = 0; i < of_a->count; i++)
        for (size_t k = 0; k < of_b->count; k++) {
            const struct touched *x = &of_a->item[i], *y = &of_b->item[k];
            if (x->space == y->space && x->begin < y->end && y->begin < x->end && (x->written || y->written))
                REFUSE("%s beside %s: %s is %s by one and %s by the other", a->name, b->name,
                       b->buffers.item[y->buffer].name, x->written ? "written" : "read",
                       y->written ? "written" : "read");
        }
    return TRIREME_OK;
}

static trireme_status check_streams(const struct program *a, const struct program *b, const struct op_table *table,
                                    trireme_error *error) {
    for (size_t i = STREAM_COMPUTE + 1; i < a->streams.count; i++)
        if (program_find_stream(b, a->streams.item[i].name) != NONE)
            REFUSE("%s beside %s: both have the stream %s", a->name, b->name, a->streams.item[i].name);
    struct channels of_a, of_b;
    channels_create(&of_a, a, table);
    channels_create(&of_b, b, table);
    trireme_status status = TRIREME_OK;
    char text[AXES_TEXT];
    for (size_t i = 0; i < of_a.list.count && status == TRIREME_OK; i++)
        if (channels_find(&of_b, of_a.list.item[i]) != NONE)
            status = error_set(error, TRIREME_ERROR_PROGRAM, "%s beside %s: both communicate over %s on channel %d",
                               a->name, b->name, axes_print(of_a.list.item[i].group, text), of_a.list.item[i].number);
    channels_release(&of_a);
    channels_release(&of_b);
    return status;
}

trireme_status program_beside(const struct program *a, const struct program *b, const struct op_table *table,
                              trireme_error *error) {
    struct touched_list of_a = {0}, of_b = {0};
    find_touched(&of_a, a);
    find_touched(&of_b, b);
    trireme_status status = check_touched(a, &of_a, b, &of_b, error);
    VEC_RELEASE(&of_a);
    VEC_RELEASE(&of_b);
    return status == TRIREME_OK ? check_streams(a, b, table, error) : status;
}
