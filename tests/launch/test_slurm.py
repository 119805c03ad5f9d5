"""examples/train.slurm and srun under a Slurm on this machine alone, which tools/slurm_node starts and stops."""

import os
import re
import subprocess
import sys
import time

import mpi
import tool

NODE = os.path.join(os.environ["TRIREME_SOURCE"], "tools", "slurm_node")
JOB = os.path.join(os.environ["TRIREME_SOURCE"], "examples", "train.slurm")
RUN = ["c.yaml", "--model.num_hidden_layers=2", "--validation.freq=0", "--checkpoint.interval=1000"]


def command(*words):
    result = subprocess.run(words, capture_output=True, text=True, check=False, timeout=tool.TIMEOUT)
    return result.returncode, result.stdout, result.stderr


def wait_for(what, condition):
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < 120, what
        time.sleep(0.2)


def steps():
    return tool.read("run/metrics.jsonl").count(b"\n") if os.path.exists("run/metrics.jsonl") else 0


def test_srun():
    # -O: two ranks on a machine of one core, too.
    code, out, err = command("srun", "--mpi=pmix", "-O", "-n", "2", tool.BINARY, "train", *RUN)
    assert code == 0 and "2 ranks (fsdp 2)" in out and "1 node, 1 thread each" in out, (code, out, err)
    for kind in ("none", "pmi2"):
        code, _, err = command("srun", f"--mpi={kind}", "-O", "-n", "2", tool.BINARY, "train", *RUN)
        told = mpi.told(err)
        assert code == 2 and len(told) == 1 and "`srun --mpi=pmix -n 2 trireme ...`" in told[0], (kind, code, err)


def submit(log):
    ranks = min(2, len(os.sched_getaffinity(0)))  # a job waits for as many processors
    code, out, err = command("sbatch", f"--ntasks-per-node={ranks}", f"--output={log}", JOB, *RUN,
                             "--training.steps=1000000")
    assert code == 0, err
    return re.search(r"job (\d+)", out)[1]


def says(log, what):
    return os.path.exists(log) and what in tool.read(log)


def test_job():
    """A job is told to end, saves, and queues itself again. Slurm then waits two minutes: here another job goes on."""
    os.environ["TRIREME"] = tool.BINARY
    job = submit("log")
    wait_for("the first steps", lambda: steps() > 5)
    assert command("scancel", "--signal=USR1", job)[0] == 0
    wait_for("the end", lambda: says("log", b"stopped after step"))
    wait_for("the queue", lambda: re.search(r"JobState=PENDING(?s:.*)Restarts=1",
                                            command("scontrol", "show", "job", job)[1]))
    command("scancel", job)
    job = submit("log2")
    wait_for("going on", lambda: says("log2", b"going on from run/checkpoint/step-"))
    command("scancel", job)


if __name__ == "__main__":
    if sys.argv[1:] == ["inside"]:  # SLURM_CONF may be set by a cluster, which is not to be tried
        tool.main(globals())
        sys.exit(0)
    tool.enter_scratch()
    mpi.skip_without()
    sys.exit(subprocess.run([NODE, sys.executable, os.path.abspath(__file__), "inside"], check=False).returncode)
