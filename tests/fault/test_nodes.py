"""Collectives over nodes under mpirun: one machine, whose ranks are told that they are on several nodes."""

import os
import shutil
import subprocess
import sys

MPIRUN = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
TEST = os.path.join(os.environ["TRIREME_BUILD"], "tests", "test_unit_comm")
os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")


def team(ranks, locals_told, locals_used):
    """`locals_used`: members of each node in the order of sums, all where the nodes are not alike."""
    environment = {**os.environ, "TEAM_PROCESSES": str(ranks), "TEAM_LOCALS": str(locals_used), "ASAN_OPTIONS": ""}
    script = f'TRIREME_NODE=$((OMPI_COMM_WORLD_RANK / {locals_told})) exec "$0"'
    done = subprocess.run([MPIRUN, "-n", str(ranks), "sh", "-c", script, TEST], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=120,
                          env=environment, check=False)
    if "built without MPI" in done.stdout:
        sys.exit(77)
    assert done.returncode == 0, (ranks, locals_told, done.stdout)
    assert done.stdout.count("[       OK ]") == 5 * ranks, (ranks, locals_told, done.stdout)


if __name__ == "__main__":
    if not MPIRUN:
        print("skipped: there is no mpirun")
        sys.exit(77)
    team(4, 2, 2)  # 2 nodes of 2
    team(6, 2, 2)
    team(6, 3, 3)
    team(5, 2, 5)  # 2, 2 and 1
    team(3, 1, 3)  # nodes of one
