"""A part of the table of test_ranks.c, with ranks that are processes under mpirun."""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.environ["TRIREME_SOURCE"], "tests", "cli"))
import mpi  # noqa: E402
import tool  # noqa: E402


def test_four_processes():
    code, out, err = tool.finish(mpi.start(4, os.path.join(mpi.TESTS, "test_equiv_ranks"), TEAM_PROCESSES="4"))
    rows = re.findall(r"(\d+) of (\d+) meshes tried, 0 differ", out)
    assert code == 0 and len(rows) == 4, (code, out, err)
    assert all(tried == rows and int(rows) >= 5 for tried, rows in rows), out
    print(f"{rows[0][0]} meshes")


if __name__ == "__main__":
    tool.enter_scratch()
    mpi.skip_without()
    tool.main({"test_four_processes": test_four_processes})
