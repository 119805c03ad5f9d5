"""trireme bench calibrate under mpirun: the links between processes, as a cluster that simulate takes."""

import mpi
import tool


def test_links():
    mpi.good(2, "bench", "calibrate", "cluster=cpu", "out=both.yaml")
    answer = tool.good_json("simulate", "--model.preset=llama-5m", "cluster=both.yaml", "--ranks=2")
    assert answer["ranks"] == 2 and answer["step_seconds"] > 0
    assert "name: processes" in tool.read("both.yaml").decode()


def test_refusals():
    code, _, err = mpi.run(2, "bench", "calibrate", "out=none.yaml")
    assert code == 2 and len(mpi.told(err)) == 1 and "calibrate without mpirun first" in err, err


if __name__ == "__main__":
    mpi.skip_without()
    tool.main(globals())
