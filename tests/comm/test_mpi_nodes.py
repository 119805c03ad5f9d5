"""Collectives over several nodes under mpirun: on one machine, whose ranks are told that they are on several nodes."""

import os

import mpi
import tool


def team(ranks, locals_told, locals_used):
    """Runs comm.collectives on ranks that are told that every `locals_told` of them are on a node. `locals_used`: the
    members of each node, by which sums are ordered; all ranks where nodes do not have equally many."""
    script = f'TRIREME_NODE=$((OMPI_COMM_WORLD_RANK / {locals_told})) exec "$0"'
    process = mpi.start(ranks, "sh", "-c", script, os.path.join(mpi.TESTS, "test_comm_collectives"),
                        TEAM_PROCESSES=str(ranks), TEAM_LOCALS=str(locals_used))
    code, out, err = tool.finish(process)
    assert code == 0 and mpi.tests_pass(out + err, ranks), (ranks, locals_told, code, out, err)


def mismatches():
    """Calls that differ between ranks on nodes of their own. A broken world ends the program, so each is a run."""
    for only in range(1, 1 + (1 if tool.SANITIZED else 10)):
        process = mpi.start(3, "sh", "-c", 'TRIREME_NODE=$OMPI_COMM_WORLD_RANK exec "$0"',
                            os.path.join(mpi.TESTS, "test_comm_mismatched_calls"), TEAM_PROCESSES="3",
                            TEAM_ONLY=str(only), TEAM_TEST="mismatched_calls_break_the_world_and_are_named")
        _, out, err = tool.finish(process)
        assert "ERROR" not in out + err and "a team of 3\n" in out and "[       OK ]" in out + err, (only, out, err)


if __name__ == "__main__":
    tool.enter_scratch()
    mpi.skip_without()
    team(4, 2, 2)  # 2 nodes of 2
    team(6, 2, 2)
    team(6, 3, 3)
    team(5, 2, 5)  # 2, 2 and 1
    team(3, 1, 3)  # nodes of one
    if not tool.SANITIZED:
        team(10, 5, 5)
    mismatches()
