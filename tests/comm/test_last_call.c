// A rank that is stopped in MPI's last call, in which all other ranks already are. Runs only under an MPI launcher
// (launch/test_mpi_lost_ranks.py), where each rank is a process (TEAM_PROCESSES).
#include <signal.h>

#include "comm/comm.h"
#include "support/team.h"

// Replaces MPI's function, which is also available under its PMPI name.
int MPI_Finalize(void);
int PMPI_Finalize(void) __attribute__((weak));

static int own_rank;

int MPI_Finalize(void) {
    if (own_rank == 1)
        raise(SIGSTOP);
    return PMPI_Finalize();
}

int main(void) {
    if (!team_processes())
        return 77;
    struct world *world;
    trireme_error error;
    if (world_create_mpi(&world, 1, &error) != TRIREME_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    own_rank = world_place(world)->rank;
    world_free(world);
    printf("has ended\n");
    return 0;
}
