// Takes the place of all other files of this folder where the build found no MPI.
#include "comm/transport.h"

trireme_status world_create_mpi(struct world **out, double deadline, trireme_error *error) {
    (void)out;
    (void)deadline;
    FAIL(TRIREME_ERROR_USAGE, "this trireme was built without MPI: install libopenmpi-dev and build it again, or start "
                              "it without mpirun and srun, with --ranks for threads of one process");
}

const char *world_mpi_version(void) {
    return NULL;
}
