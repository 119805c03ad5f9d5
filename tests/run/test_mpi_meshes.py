"""A part of the table of test_meshes.c, and runs with islands, with ranks that are processes under mpirun."""

import os
import re

import mpi
import tool


def test_four_processes():
    code, out, err = tool.finish(mpi.start(4, os.path.join(mpi.TESTS, "test_run_meshes"), TEAM_PROCESSES="4"))
    rows = re.findall(r"(\d+) of (\d+) meshes tried, 0 differ", out)
    assert code == 0 and len(rows) == 4, (code, out, err)
    assert all(tried == rows and int(rows) >= 5 for tried, rows in rows), out
    print(f"{rows[0][0]} meshes")


def test_islands():
    """They give the bits of threads, whether steps run while they exchange or not."""
    for name, more in (("now", ["--outer.sync_steps=2"]), ("later", ["--outer.sync_steps=3", "--outer.delay_steps=2"])):
        run = ["train", "c.yaml", "--ranks=4", "--parallelism.island_degree=2", "--outer.method=local_sgd", *more]
        tool.good(*run, f"--run.directory={name}")
        mpi.good(4, *run, f"--run.directory={name}.processes")
        both = name, f"{name}.processes"
        a, b = (tool.read(f"{directory}/checkpoint/step-6/model.safetensors") for directory in both)
        assert a == b, name
        losses = [[line["loss"] for line in tool.metrics(directory)] for directory in both]
        assert losses[0] == losses[1], losses


if __name__ == "__main__":
    tool.enter_scratch()
    mpi.skip_without()
    tool.main({"test_four_processes": test_four_processes, "test_islands": test_islands})
