#include "support/by_hand.h"

#include "memory/memory_plan.h"
#include "support/test.h"
#include "verify/verify.h"

struct program program_by_hand(const struct op_table *ops, const char *head, const char *body) {
    struct program p;
    trireme_error error = {0};
    char *text = mem_printf("program t microbatches 1\n%sarena state 0 fixed 0 scratch 0+0 step 0\n"
                            "pool 0 chunk 0 at 0: 0\n%sinvoke 0 microbatch 0 first last\n",
                            head, body);
    if (program_parse(&p, ops, text, strlen(text), &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    free(text);
    return p;
}

struct operand add_rows(struct program *p, const char *name, enum buffer_kind kind, enum buffer_scope scope) {
    return operand_whole(p, program_buffer(p, name, DTYPE_F32, kind, scope, 2, (int64_t[]){8, 16}));
}

void place_state(struct program *p) {
    int64_t end = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < p->buffers.count; i++) {
            struct buffer *b = &p->buffers.item[i];
            if (b->scope != SCOPE_STATE || b->parent != NONE || (b->offset >= 0) != (pass == 0))
                continue;
            b->offset = pass ? end : b->offset;
            end = MAX(end, b->offset + align_up(buffer_bytes(b)));
        }
}

void check_round_trip(const struct program *p, const struct op_table *ops) {
    struct text first = {0}, second = {0};
    trireme_error error = {0};
    struct program back;
    program_print(p, ops, &first);
    if (program_parse(&back, ops, first.text, first.length, &error) != TRIREME_OK)
        fail_msg("%s: %s", p->name, error.message);
    program_print(&back, ops, &second);
    assert_string_equal(first.text, second.text);
    if (program_verify(&back, ops, &error) != TRIREME_OK)
        fail_msg("%s: %s", p->name, error.message);
    assert_int_equal(program_length(&back), program_length(p));
    assert_int_equal(back.buffers.count, p->buffers.count);
    for (size_t i = 0; i < p->buffers.count; i++)
        assert_int_equal(back.buffers.item[i].offset, p->buffers.item[i].offset);
    // A new plan lays it out as before.
    assert_int_equal(program_plan(&back, ops, NULL, &error), TRIREME_OK);
    struct text third = {0};
    program_print(&back, ops, &third);
    assert_string_equal(first.text, third.text);
    program_release(&back);
    text_release(&first);
    text_release(&second);
    text_release(&third);
}

void assert_words(trireme_status status, const trireme_error *error, const char *what, const char *buffer) {
    assert_int_equal(status, TRIREME_ERROR_PROGRAM);
    if (!strstr(error->message, what) || !strstr(error->message, buffer))
        fail_msg("expected a message with \"%s\" and \"%s\", got: %s", what, buffer, error->message);
}

void assert_refused_anew(struct program *p, const struct op_table *ops, const char *what, const char *buffer) {
    trireme_error error = {0};
    place_state(p);
    trireme_status status = program_plan(p, ops, NULL, &error); // looks at the structure alone
    if (status == TRIREME_OK)
        status = program_verify(p, ops, &error);
    assert_words(status, &error, what, buffer);
}

void assert_program_refused(struct program *p, const struct op_table *ops, const char *what, const char *buffer) {
    assert_refused_anew(p, ops, what, buffer);
    program_release(p);
}
