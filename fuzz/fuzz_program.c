// Programs from hostile text. What is accepted must print to a text that reads back as the same program. Planner,
// profile and verifier must judge whatever comes: a program is sound or refused in words.
#include "memory/memory_plan.h"
#include "program/program.h"
#include "verify/verify.h"

static void check_refused(trireme_status status, const trireme_error *error) {
    CHECK(status == TRIREME_OK || (error->status == status && error->message[0] && !strchr(error->message, '\n')));
}

static void check_round_trip(const struct program *program, const struct op_table *table) {
    struct text first = {0}, second = {0};
    struct program back;
    trireme_error error = {0};
    program_print(program, table, &first);
    CHECK(program_parse(&back, table, first.text, first.length, &error) == TRIREME_OK);
    program_print(&back, table, &second);
    CHECK(first.length == second.length && memcmp(first.text, second.text, first.length) == 0);
    program_release(&back);
    text_release(&first);
    text_release(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct op_table *table;
    if (!table)
        table = op_table_create();
    struct program program;
    trireme_error error = {0};
    trireme_status status = program_parse(&program, table, (const char *)data, size, &error);
    check_refused(status, &error);
    if (status != TRIREME_OK)
        return 0;
    check_round_trip(&program, table);
    // As it stands, with the addresses of the text; then planned.
    status = program_verify(&program, table, &error);
    check_refused(status, &error);
    bool sound = status == TRIREME_OK;
    status = program_plan(&program, table, NULL, &error);
    check_refused(status, &error);
    if (status == TRIREME_OK) {
        status = program_verify(&program, table, &error);
        check_refused(status, &error);
        CHECK(!sound || status == TRIREME_OK); // a new plan never makes a sound program unsound
    }
    program_release(&program);
    return 0;
}
