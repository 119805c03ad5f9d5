// All proofs of one program, in order.
#include "verify/verify.h"

#include "verify/proofs.h"

trireme_status program_verify(const struct program *program, const struct op_table *table, trireme_error *error) {
    TRY(program_check(program, table, error));
    TRY(verify_memory(program, table, error));
    TRY(verify_extents(program, table, error));
    struct sets sets;
    trireme_status status = sets_create(&sets, program, table, error);
    if (status == TRIREME_OK && mesh_ranks(&program->mesh) > 1)
        status = verify_placement(program, table, &sets, error);
    if (status == TRIREME_OK)
        status = verify_sets(&sets, program, table, error);
    if (status == TRIREME_OK)
        status = verify_gradients(program, table, &sets, error);
    if (status == TRIREME_OK)
        status = verify_update(program, table, &sets, error);
    sets_release(&sets);
    return status;
}
