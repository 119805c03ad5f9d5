"""Training with ranks that are processes under mpirun: ranks that are killed, stopped or slow, and going on later."""

import glob
import os
import re
import shutil
import signal
import time

import mpi
import tool

LAYERS = ["--model.num_hidden_layers=2"]
# Learning rates do not depend on how many steps a run has.
UNSAVED = ["train", "c.yaml", *LAYERS, "--validation.freq=0", "--lr_scheduler.decay_type=constant"]
RUN = [*UNSAVED, "--checkpoint.interval=20"]


def same_weights(a, b, step):
    return all(tool.tensors(tool.read(f"{run}/checkpoint/step-{step}/{name}")) == other
               for name in ("model.safetensors", "training/state.safetensors")
               for run, other in [(a, tool.tensors(tool.read(f"{b}/checkpoint/step-{step}/{name}")))])


def test_bits_of_threads():
    for number, mesh in enumerate(([], ["--tensor_parallel_degree=2"], ["--pipeline_parallel_degree=4"],
                                   ["--pipeline_parallel_degree=2", "--zero_stage=1", "--training.dtype=bf16",
                                    "--parallelism.reduce_dtype=bf16"])):
        arguments = ["train", "c.yaml", "--model.num_hidden_layers=4", *mesh]
        tool.good(*arguments, "--ranks=4", f"--run.directory=threads{number}")
        out = mpi.good(4, *arguments, f"--run.directory=processes{number}")
        assert re.search(r"4 ranks \(.*\) on \d+ cores? of 1 node, 1 thread each", out), out
        assert out.count("step: 6/6") == 1, out
        assert same_weights(f"threads{number}", f"processes{number}", 6), mesh
        # Already the first step tells of the memory of all processes.
        peaks = [[line["peak_bytes"] for line in tool.metrics(f"{kind}{number}")] for kind in ("threads", "processes")]
        assert peaks[1] == sorted(peaks[1]) and peaks[1][0] > 2 * peaks[0][0], peaks
        shown = tool.good("show", "ranks", f"processes{number}")
        assert shown.count(": ended, last step done") == 4, shown


def test_eval():
    tool.good("train", "c.yaml", *LAYERS)
    for mesh in [], ["--tensor_parallel_degree=2", "--pipeline_parallel_degree=2"]:
        evaluate = ["eval", "run", "data.path=text/t", "--ranks=4", "training.global_batch_size=4", *mesh, "--json"]
        threads, processes = (tool.strict_json(out) for out in (tool.good(*evaluate), mpi.good(4, *evaluate)))
        for key in "loss", "tokens", "bits_per_byte", "predicted_bytes":
            assert threads[key] == processes[key], (key, threads, processes)
        assert processes["resident_bytes"] > processes["predicted_bytes"] > 0, processes
    # One rank alone reports an error.
    for code, pattern, more in ((2, "no.bin: no such file", ["data.path=no"]),
                                (2, "optimizer.lr: eval", ["optimizer.lr=1"]),
                                (4, r"run/checkpoint/step-6/model.safetensors: .*, tensors .* are damaged", [])):
        if not more:
            tool.flip("run/checkpoint/step-6/model.safetensors", -100)
        got, _, err = mpi.run(2, "eval", "run", *(more or ["data.path=text/t"]))
        assert got == code and len(mpi.told(err)) == 1 and re.search(pattern, mpi.told(err)[0]), (more, got, err)


def test_bench():
    shown = tool.strict_json(mpi.good(2, "bench", "step", "c.yaml", "--training.steps=2", "--json"))
    assert shown["ranks"] == 2 and shown["steps"] == 2 and shown["step_seconds"] > 0, shown
    assert shown["resident_bytes"] > shown["predicted_bytes"] > 0, shown


def patience(seconds):
    """The environment in which mpirun gives ranks so many seconds to end by themselves when one of them is gone. The
    usual second is little for them to say why, and less while other tests run."""
    return {"OMPI_MCA_odls_base_sigkill_timeout": str(seconds)}


def ranks_of(process):
    """Returns the processes that mpirun has started, by rank."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            variables = dict(entry.split(b"=", 1) for entry in tool.read(path).split(b"\0") if b"=" in entry)
            parent = int(re.search(r"PPid:\s*(\d+)", tool.read(path.replace("environ", "status")).decode())[1])
        except OSError:
            continue
        if parent == process.pid and b"OMPI_COMM_WORLD_RANK" in variables:
            found[int(variables[b"OMPI_COMM_WORLD_RANK"])] = int(path.split("/")[2])
    return found


def checkpoints():
    names = os.listdir("run/checkpoint") if os.path.isdir("run/checkpoint") else []
    return sorted(int(name[len("step-"):]) for name in names if re.fullmatch(r"step-\d+", name))


def await_training(process, has_begun):
    while not has_begun():
        assert process.poll() is None, tool.finish(process)
        time.sleep(0.01)


def in_training(ranks, *arguments, run=RUN, has_begun=checkpoints, **environment):
    process = mpi.start(ranks, tool.BINARY, *run, "--training.steps=100000", *arguments, **environment)
    await_training(process, has_begun)
    found = ranks_of(process)
    assert len(found) == ranks, found
    return process, found


def in_impatient_training(ranks, seconds, **environment):
    """A training, continued from one by threads, in which ranks wait for one another only so many seconds. It saves
    nothing, so that a slow disk does not count."""
    tool.good(*RUN, f"--ranks={ranks}", "--training.steps=20")
    return in_training(ranks, f"--comm.train_timeout_seconds={seconds}", "--checkpoint.interval=0", run=UNSAVED,
                       has_begun=lambda: tool.read("run/metrics.jsonl").count(b"\n") > 22, **environment)


def check_going_on(ranks, *arguments):
    """Checks that the run goes on from its newest checkpoint and ends with the bits of an undisturbed run."""
    last = checkpoints()[-1]
    arguments = [*RUN, *arguments, f"--training.steps={last + 5}"]
    out = mpi.good(ranks, *arguments)
    assert f"going on from run/checkpoint/step-{last}" in out, out
    mpi.good(ranks, *arguments, "--run.directory=straight")
    assert same_weights("run", "straight", last + 5)


def check_survivors(process, gone, survivors, seconds):
    """Checks what the surviving ranks say. mpirun was started with patience(seconds), and waits that long twice: most
    of the time that all this takes, unless other programs keep ranks from ending."""
    begin = time.monotonic()
    code, _, err = tool.finish(process)
    assert code != 0 and time.monotonic() - begin < 2 * seconds + 30, (code, time.monotonic() - begin, err)
    assert len(mpi.told(err)) == 1, err
    # Read from the run directory: Open MPI 5 leaves half a second for messages, too little while other tests run.
    shown = tool.good("show", "ranks", "run")
    lines = [line for line in shown.splitlines() if "group " in line]
    for rank in survivors:
        mine = [line for line in lines if f" rank {rank}, last step done " in line]
        # Between steps no instruction runs: then the group is the communicator over which all ranks agree.
        where = r": (stream \S+, \S+\[\d+\] \S+ over \S+.*: group \S+: |group control: )"
        assert len(mine) == 1 and re.search(where, mine[0]), (rank, err, shown)
    assert any(re.search(rf"ranks? .*\b{gone}\b", line.split("group ", 1)[1]) for line in lines), shown
    assert all(f"rank {rank}: failed for" in shown for rank in survivors), shown
    return err + shown


def test_killed():
    for ranks, gone, mesh in ((3, 1, ["--training.global_batch_size=3"]),
                              (4, 0, ["--tensor_parallel_degree=2", "--pipeline_parallel_degree=2"])):
        process, found = in_training(ranks, *mesh, **patience(4))
        os.kill(found[gone], signal.SIGKILL)
        check_survivors(process, gone, [rank for rank in range(ranks) if rank != gone], 4)
        check_going_on(ranks, *mesh)
        shutil.rmtree("run")
        shutil.rmtree("straight")


def test_bad_token():
    """One rank meets a bad token and reports it; all save what was done before."""
    tool.plant_token()
    for ranks, mesh in ((2, []), (4, ["--pipeline_parallel_degree=2"])):
        shutil.rmtree("run", ignore_errors=True)
        code, _, err = mpi.run(ranks, *RUN, *mesh, "--data.path=bad/t",
                               "--training.steps=200")
        assert code == 4 and mpi.told(err) and all("at position 1000 " in line for line in mpi.told(err)), (code, err)
        assert checkpoints()[-1] == tool.metrics("run")[-1]["step"], err


def test_last_save_fails():
    """The last save fails when the other ranks have nothing left to do: rank 0 reports it before mpirun ends it."""
    for _ in range(2 if tool.SANITIZED else 4):
        os.mkdir("run")
        for name in "config.yaml", "lock":
            tool.write(f"run/{name}", "")
        os.symlink("nowhere", "run/checkpoint")
        code, _, err = mpi.run(4, *UNSAVED, "--training.steps=3")
        told = mpi.told(err)
        assert code == 3 and len(told) == 1 and "step 3 is not saved " in told[0], (code, err)
        shutil.rmtree("run")


def test_stopped():
    process, found = in_impatient_training(2, 2, **patience(6))
    os.kill(found[0], signal.SIGSTOP)
    err = check_survivors(process, 0, [1], 6)
    # mpirun continues it for its last words, which must not be about the other rank, whatever it sees first.
    assert re.search(r"rank 0 was stopped for [1-9]", err), err
    check_going_on(2)


def test_suspended():
    """A run that is suspended as a whole, for longer than ranks wait for one another, goes on."""
    process, found = in_impatient_training(2, 2)
    for number, pause in ((signal.SIGSTOP, 4), (signal.SIGCONT, 3), (signal.SIGTERM, 0)):
        for rank in found.values():
            os.kill(rank, number)
        time.sleep(pause)
    code, _, err = tool.finish(process)
    assert code == 75 and len(mpi.told(err)) == 1 and "stopped after step" in err, (code, err)


def test_stopped_at_the_end():
    """One of two ranks is stopped in MPI's last call. The other one leaves it; the stopped one, too, where mpirun lets
    it continue for long enough."""
    begin = time.monotonic()
    code, out, err = tool.finish(mpi.start(2, os.path.join(mpi.TESTS, "test_comm_last_call"), TEAM_PROCESSES="2"))
    assert out in ("has ended\n", "has ended\n" * 2) and time.monotonic() - begin < 60, (code, out, err)


def test_slow():
    """A rank that is late, but in time, changes nothing."""
    process, found = in_training(2)
    for _ in range(3):
        os.kill(found[1], signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(found[1], signal.SIGCONT)
        time.sleep(0.1)
    os.kill(found[1], signal.SIGTERM)
    code, _, err = tool.finish(process)
    assert code == 75 and len(mpi.told(err)) == 1 and "stopped after step" in err, (code, err)
    check_going_on(2)


def test_signals():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        shutil.rmtree("run", ignore_errors=True)
        process, found = in_training(2)
        os.kill(found[1], number)
        code, _, err = tool.finish(process)
        assert code == 75 and len(mpi.told(err)) == 1 and "stopped after step" in err, (code, err)


def test_nobody_reads():
    """Nobody reads the pipe that rank 0 writes to: no rank waits for it, and all save when they are asked to stop."""
    os.mkfifo("held")
    reading = os.open("held", os.O_RDWR)
    tool.fill_pipe(reading)
    process = mpi.start(2, "sh", "-c", 'exec "$0" "$@" >held', tool.BINARY, *RUN, "--metrics.log_freq=1",
                        "--training.steps=100000")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(checkpoints()) < 3:
        assert process.poll() is None, tool.finish(process)
        time.sleep(0.01)
    begun = time.monotonic() < deadline
    os.kill(ranks_of(process)[1], signal.SIGTERM if begun else signal.SIGKILL)
    code, _, err = tool.finish(process)
    assert code == 75 and len(mpi.told(err)) == 1 and "stopped after step" in err, (code, err)
    assert checkpoints()[-1] == tool.metrics("run")[-1]["step"]
    os.close(reading)


# Runs a rank and ends the others once it has, as `srun --kill-on-bad-exit` does.
SRUN = """#!/bin/sh
"$@" &
echo $! >pid.$OMPI_COMM_WORLD_RANK
wait $!
echo $? >status.$OMPI_COMM_WORLD_RANK
kill -TERM $(cat pid.*) 2>/dev/null || true
"""


def test_one_status():
    """srun ends with the highest status of all ranks: by it a job's script sees whether everything is saved."""
    tool.write("srun.sh", SRUN)
    os.chmod("srun.sh", 0o755)
    process = mpi.start(3, os.path.abspath("srun.sh"), tool.BINARY, *RUN, "--training.global_batch_size=3",
                        "--training.steps=100000")
    await_training(process, checkpoints)
    os.kill(int(tool.read("pid.1")), signal.SIGUSR1)
    _, _, err = tool.finish(process)
    statuses = [int(tool.read(f"status.{rank}")) for rank in range(3)]
    assert statuses == [75] * 3 and len(mpi.told(err)) == 1 and "stopped after step" in err, (statuses, err)


if __name__ == "__main__":
    tool.enter_scratch()
    mpi.skip_without()
    tests = dict(globals())
    if tool.SANITIZED:  # processes start slowly then, and these go ways that the others go too
        for repeated in (test_stopped, test_suspended, test_stopped_at_the_end, test_bad_token, test_slow, test_signals,
                         test_one_status, test_bench):
            del tests[repeated.__name__]
    tool.main(tests)
