"""What tests of ranks that are processes share. They need Open MPI's mpirun, and a trireme that was built with it."""

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile

import tool

MPIRUN = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
TESTS = os.path.join(os.environ["TRIREME_BUILD"], "tests")
# ob1 is what Open MPI chooses where there is no fabric: finding that out would double the time that processes take to
# start. Settings that Open MPI 4 reads from OMPI_MCA_*, the mpirun of version 5 reads from PRTE_MCA_*.
os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                  PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe", OMPI_MCA_pml="ob1")
if tool.SANITIZED:
    # mpirun gives ranks a second to end by themselves when one of them is gone; and MPI leaves memory behind.
    os.environ.update(OMPI_MCA_odls_base_sigkill_timeout="5", ASAN_OPTIONS="detect_leaks=0")


def start(ranks, *command, **environment):
    # By default all mpiruns of a user make and remove the same directory, and fail where another makes it meanwhile.
    session = tempfile.mkdtemp(prefix="trireme-mpi-")
    atexit.register(shutil.rmtree, session, ignore_errors=True)
    return subprocess.Popen([MPIRUN, "-n", str(ranks), *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, errors="replace",
                            env={**os.environ, "OMPI_MCA_orte_tmpdir_base": session, **environment})


def run(ranks, *arguments):
    """Runs trireme with these arguments on so many ranks."""
    return tool.finish(start(ranks, tool.BINARY, *arguments))


def good(ranks, *arguments):
    code, out, err = run(ranks, *arguments)
    assert code == 0, (arguments, code, err)
    return out


def tests_pass(text, ranks):
    """Whether all tests of a test program passed on so many ranks."""
    counts = [int(count) for count in re.findall(r"Running (\d+) test", text)]
    return len(counts) == ranks and text.count("[       OK ]") == sum(counts)


def told(err):
    """The lines of errors that ranks print, without those of mpirun."""
    return [line for line in err.splitlines() if line.startswith("trireme ")]


def skip_without():
    """Ends the test program as skipped where processes cannot be started, or would not be ranks of one run."""
    version = subprocess.run([MPIRUN, "--version"], capture_output=True, text=True, check=False) if MPIRUN else None
    reason = None
    if not version or "open-mpi.org" not in version.stdout:
        reason = "there is no mpirun of Open MPI"
    else:
        _, _, err = run(2, "train", "none.yaml")
        if "built with" in err:
            reason = told(err)[0]
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
