// Proves that one program may follow another on the same state. What a program finds there it takes to be as it
// declares it, and that it leaves it so is proved of each program by itself (verify_placement.c). So of two programs
// the declarations are compared: by the places in the arenas, whatever the names say, and by the names, wherever they
// are.
#include "program/structure.h"
#include "verify/verify.h"

// A root buffer of the state.
struct kept {
    enum memory_space space;
    int64_t begin, end;
    int buffer;
    bool read;
};
struct kept_list {
    VEC(struct kept);
};

static int compare_places(const void *a, const void *b) {
    const struct kept *x = a, *y = b;
    return COMPARE(x->space, y->space) ?: COMPARE(x->begin, y->begin);
}

static bool ends_before(const struct kept *a, const struct kept *b) {
    return a->space < b->space || (a->space == b->space && a->end <= b->begin);
}

static void find_kept(struct kept_list *list, const struct program *p) {
    bool *read = mem_alloc(p->buffers.count * sizeof *read);
    FOR_INSTRUCTIONS(i, p) {
        for (int k = 0; k < i->inputs; k++)
            if (i->in[k].buffer != NONE)
                read[program_root(p, i->in[k].buffer)] = true;
    }
    for (size_t i = 0; i < p->buffers.count; i++) {
        const struct buffer *b = &p->buffers.item[i];
        if (b->scope == SCOPE_STATE && b->parent == NONE)
            VEC_PUSH(list, (struct kept){b->space, b->offset, b->offset + align_up(buffer_bytes(b)), (int)i, read[i]});
    }
    free(read);
    VEC_SORT(list, compare_places);
}

// Whether a program takes the buffer to hold something before it has written it.
static bool is_expected(const struct program *p, const struct kept *kept) {
    const enum buffer_kind kind = p->buffers.item[kept->buffer].kind;
    return kind == KIND_PARAM || kind == KIND_CACHE || (kind == KIND_OPTIM && kept->read);
}

static const char *owner_name(const struct program *p, const struct buffer *b) {
    return b->belongs_to == NONE ? "" : p->buffers.item[b->belongs_to].name;
}

static trireme_status check_left(const struct program *before, const struct program *after, const struct buffer *left,
                                 const struct buffer *found, trireme_error *error) {
    char text[AXES_TEXT];
    if (strcmp(left->name, found->name) != 0)
        REFUSE("%s after %s: %s lies where %s is kept", after->name, before->name, found->name, left->name);
    if (left->offset != found->offset || left->dtype != found->dtype || left->ndim != found->ndim ||
        memcmp(left->dim, found->dim, (size_t)left->ndim * sizeof *left->dim) != 0)
        REFUSE("%s after %s: %s is of another place or shape", after->name, before->name, found->name);
    if (left->kind != found->kind || strcmp(left->as, found->as) != 0 ||
        strcmp(owner_name(before, left), owner_name(after, found)) != 0)
        REFUSE("%s after %s: %s is declared something else", after->name, before->name, found->name);
    if (left->own & ~found->own)
        REFUSE("%s after %s: of %s only each rank's own part along %s is left, and the whole is expected", after->name,
               before->name, found->name, axes_print(left->own & ~found->own, text));
    for (int a = 0; a < AXIS_COUNT; a++)
        if (left->placement[a] != found->placement[a])
            REFUSE("%s after %s: %s is placed otherwise along %s", after->name, before->name, found->name,
                   axis_name((enum axis)a));
    return TRIREME_OK;
}

// What is expected in a place, against all that `before` keeps there.
static trireme_status check_places(const struct program *before, const struct kept_list *left,
                                   const struct program *after, const struct kept_list *found, trireme_error *error) {
    size_t first = 0;
    for (size_t i = 0; i < found->count; i++) {
        const struct kept *f = &found->item[i];
        if (!is_expected(after, f))
            continue;
        while (first < left->count && ends_before(&left->item[first], f))
            first++;
        for (size_t k = first; k < left->count && !ends_before(f, &left->item[k]); k++)
            TRY(check_left(before, after, &before->buffers.item[left->item[k].buffer], &after->buffers.item[f->buffer],
                           error));
    }
    return TRIREME_OK;
}

struct named {
    const char *name;
    enum memory_space space;
    int64_t begin;
};

static int compare_named(const void *a, const void *b) {
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

// What is expected, against what `before` keeps under the same name somewhere else.
static trireme_status check_names(const struct program *before, const struct kept_list *left,
                                  const struct program *after, const struct kept_list *found, trireme_error *error) {
    struct named *named = mem_alloc(left->count * sizeof *named);
    trireme_status status = TRIREME_OK;
    for (size_t k = 0; k < left->count; k++)
        named[k] =
            (struct named){before->buffers.item[left->item[k].buffer].name, left->item[k].space, left->item[k].begin};
    qsort(named, left->count, sizeof *named, compare_named);
    for (size_t i = 0; i < found->count && status == TRIREME_OK; i++) {
        const struct buffer *b = &after->buffers.item[found->item[i].buffer];
        const size_t at = PARTITION_POINT(k, left->count, strcmp(named[k].name, b->name) < 0);
        const bool is_kept = at < left->count && strcmp(named[at].name, b->name) == 0;
        if (is_expected(after, &found->item[i]) && is_kept &&
            (named[at].begin != b->offset || named[at].space != b->space))
            status = error_set(error, TRIREME_ERROR_PROGRAM, "%s after %s: %s is kept elsewhere", after->name,
                               before->name, b->name);
    }
    free(named);
    return status;
}

trireme_status program_follows(const struct program *before, const struct program *after, trireme_error *error) {
    struct kept_list left = {0}, found = {0};
    find_kept(&left, before);
    find_kept(&found, after);
    trireme_status status = check_places(before, &left, after, &found, error);
    if (status == TRIREME_OK)
        status = check_names(before, &left, after, &found, error);
    VEC_RELEASE(&left);
    VEC_RELEASE(&found);
    return status;
}
