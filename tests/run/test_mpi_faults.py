"""Runs of test_faults.c, with ranks that are processes under mpirun."""

import atexit
import os
import shutil
import subprocess
import tempfile

import mpi


def main():
    mpi.skip_without()
    session = tempfile.mkdtemp(prefix="trireme-mpi-")
    atexit.register(shutil.rmtree, session, ignore_errors=True)
    subprocess.run([os.path.join(mpi.TESTS, "test_run_faults"), "1", mpi.MPIRUN, "-n", "2"], check=True,
                   env={**os.environ, "OMPI_MCA_orte_tmpdir_base": session})


if __name__ == "__main__":
    main()
