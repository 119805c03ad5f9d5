// The table of ops, for test programs whose tests all read it: run the group with op_table_setup and op_table_teardown.
#ifndef SUPPORT_OP_TABLE_H
#define SUPPORT_OP_TABLE_H

#include "program/ops.h"

static struct op_table *table;

static int op_table_setup(void **state) {
    (void)state;
    table = op_table_create();
    return 0;
}

static int op_table_teardown(void **state) {
    (void)state;
    free(table);
    return 0;
}

#endif
