"""Runs of test_faults.c, with ranks that are processes under mpirun."""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile

import mpi


def main():
    mpi.skip_without()
    if os.environ.get("TRIREME_SANITIZE"):
        sys.exit(77)  # test_run_faults has run there
    session = tempfile.mkdtemp(prefix="trireme-mpi-")
    atexit.register(shutil.rmtree, session, ignore_errors=True)
    subprocess.run([os.path.join(mpi.TESTS, "test_run_faults"), "1", mpi.MPIRUN, "-n", "2"], check=True,
                   env={**os.environ, "OMPI_MCA_orte_tmpdir_base": session})


if __name__ == "__main__":
    main()
