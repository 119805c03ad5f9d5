// Proves that numbers of rows which an instruction goes by add up to the rows that there are: the extent of these is
// the sum of all of the numbers, and of nothing else (tally.h). That an extent does not change while there are rows is
// for verify_memory.c; that ranks which exchange rows have exchanged the numbers, for verify_communication.c.
#include "verify/proofs.h"
#include "verify/tally.h"

static trireme_status extents_check(const struct program *program, const struct op_table *table,
                                    const struct instruction *i, int counts, const char *site, trireme_error *error) {
    const struct op_info *info = &table->op[i->op];
    const struct op_operand *row = op_operand_at(info, counts);
    const struct operand *numbers = instruction_operand_at(i, counts);
    int extent = NONE;
    for (int k = 0; k < info->inputs + info->outputs; k++)
        if (op_operand_at(info, k)->dim[0] == row->counts && extent == NONE)
            extent = instruction_extent_at(program, i, k);
    const struct operand rows = operand_whole(program, extent); // program_check: they have one
    struct tally of_rows, of_numbers;
    if (!tally_total(program, table, &rows, &of_rows) || !tally_total(program, table, numbers, &of_numbers) ||
        of_rows.of != of_numbers.of || of_rows.exchanged != of_numbers.exchanged)
        REFUSE("%s: the numbers of rows in %s do not add up to %s, the extent of its %c", site,
               program_buffer_name(program, numbers->buffer), program_buffer_name(program, extent), row->counts);
    return TRIREME_OK;
}

trireme_status verify_extents(const struct program *program, const struct op_table *table, trireme_error *error) {
    for (size_t t = 0; t < program->templates.count; t++)
        for (size_t n = 0; n < program->templates.item[t].instructions.count; n++) {
            const struct instruction *i = &program->templates.item[t].instructions.item[n];
            for (int k = 0; k < i->inputs; k++)
                if (table->op[i->op].in[k].counts)
                    TRY(extents_check(program, table, i, k, program_site(program, table, (int)t, (int)n, NONE).text,
                                      error));
        }
    return TRIREME_OK;
}
