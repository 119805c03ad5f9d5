"""Ranks as processes under mpirun: collectives, bad starts, ranks that are killed, stopped or slow, going on later."""

import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.environ["TRIREME_SOURCE"], "tests", "cli"))
import mpi  # noqa: E402
import tool  # noqa: E402

LAYERS = ["--model.num_hidden_layers=2"]
# Rank 0 here, the others elsewhere.
RANK = '#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 0 ] || { cd "$ELSEWHERE" || exit 1; }\nexec "$@"\n'
# mpirun gives ranks a second to end by themselves when one of them is gone: little for them to say why, beside others.
PATIENCE = {"OMPI_MCA_odls_base_sigkill_timeout": "5"}
# Learning rates do not depend on how many steps a run has.
RUN = ["train", "c.yaml", *LAYERS, "--validation.freq=0", "--checkpoint.interval=20",
       "--lr_scheduler.decay_type=constant"]


def refused(ranks, code, pattern, *arguments):
    begin = time.monotonic()
    got, _, err = mpi.run(ranks, *arguments)
    assert got == code and time.monotonic() - begin < 30, (arguments, got, err)
    assert len(mpi.told(err)) == 1 and re.search(pattern, mpi.told(err)[0]), (pattern, err)


# ---- collectives: the tests of test_comm and test_comm_faults, ranks being processes

def team(program, ranks, test="*", only=""):
    environment = {"TEAM_PROCESSES": str(ranks), "TEAM_TEST": test}
    if only:
        environment["TEAM_ONLY"] = str(only)
    begin = time.monotonic()
    process = mpi.start(ranks, os.path.join(mpi.TESTS, program), **environment)
    code, out, err = tool.finish(process)
    assert "ERROR" not in out + err and "[  PASSED  ] 0" not in out + err, (program, ranks, test, only, out, err)
    assert time.monotonic() - begin < 60, (program, ranks, test, only)
    return code, (out + err).count("[       OK ]")


def test_collectives():
    for ranks in (3,) if tool.SANITIZED else (2, 3, 4):
        code, passed = team("test_unit_comm", ranks)
        assert code == 0 and passed == 5 * ranks, (ranks, code, passed)


def test_ranks_that_agree():
    for test, ranks in (("groups_of_one_name_are_told_apart_by_order", 4), ("communicators_are_independent", 4),
                        ("sends_and_receives_match_in_order", 3), ("sixteen_ranks_on_two_cores_make_progress", 16),
                        ("repeated_sums_have_the_same_bits_on_all_ranks", 5), ("who_waits_sleeps", 2),
                        ("who_is_stopped_with_all_others_is_not_late", 2)):
        code, passed = team("test_unit_comm_faults", ranks, test)
        assert code == 0 and passed == ranks, (test, code, passed)


def test_ranks_that_do_not():
    # A broken world ends the program on all ranks, so each of these is a run of its own.
    for test, ranks, teams in (("mismatched_calls_break_the_world_and_are_named", 3, 10),
                               ("a_receive_of_another_size_than_the_send_is_refused", 2, 1),
                               ("groups_that_do_not_match_are_refused_at_once", 3, 2),
                               ("groups_that_do_not_match_are_refused_at_once", 2, 4),
                               ("a_deadline_names_group_rank_and_who_is_missing", 4, 2),
                               ("deadlines_hold_for_opening_and_sending", 3, 2),
                               ("deadlines_count_from_when_a_call_is_wanted", 2, 4),
                               ("breaking_wakes_all", 4, 1), ("nobody_uses_a_buffer_after_its_call", 3, 1)):
        for only in range(1, 1 + (1 if tool.SANITIZED else teams)):
            _, passed = team("test_unit_comm_faults", ranks, test, only)
            assert passed > 0, (test, only)


def test_programs_that_differ():
    for odd in (3,) if tool.SANITIZED else (-1, 1, 3):
        process = mpi.start(4, os.path.join(mpi.TESTS, "test_fault_programs"), TEAM_PROCESSES="4", TEAM_ODD=str(odd))
        code, out, err = tool.finish(process)
        assert (out + err).count("[       OK ]") == 4 and out.count("told") == (odd >= 0), (odd, code, out, err)


# ---- training

def same_weights(a, b, step):
    return all(tool.tensors(tool.read(f"{run}/checkpoint/step-{step}/{name}")) == other
               for name in ("model.safetensors", "state.safetensors")
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
        shown = tool.good("show", "ranks", f"processes{number}")
        assert shown.count(": ended, last step done") == 4, shown


def test_bench():
    shown = tool.strict_json(mpi.good(2, "bench", "step", "c.yaml", "--training.steps=2", "--json"))
    assert shown["ranks"] == 2 and shown["steps"] == 2 and shown["step_seconds"] > 0, shown
    assert shown["resident_bytes"] > shown["predicted_bytes"] > 0, shown


def test_bad_starts():
    refused(2, 2, r"parallelism\.ranks: given 3, but 2 processes were started", "train", "c.yaml", "--ranks=3")
    for ranks in (2, 1):
        refused(ranks, 2, r"training\.threads: given 999, but.*room for \d+ thr", "train", "c.yaml",
                "--training.threads=999")
    if os.cpu_count() >= 4:
        refused(2, 2, r"training\.threads: given 2, but .*is bound to 1 core: start with `mpirun --map-by slot:PE=2`",
                "train", "c.yaml", "--training.threads=2")
    refused(2, 2, r"usage: trireme train", "train", "c.yaml", "d.yaml")
    refused(2, 2, r"peak, step or calibrate, not \"speed\"", "bench", "speed")
    refused(2, 2, r"prepare runs as one process, but the launcher started 2: ", "prepare", "c.yaml", "--data.path=no/t")
    # One rank alone.
    process = mpi.start(1, tool.BINARY, "train", "c.yaml", ":", "-n", "1", tool.BINARY, "verify", "c.yaml")
    code, _, err = tool.finish(process)
    assert code == 2 and len(mpi.told(err)) == 1 and "verify runs as one process, but" in mpi.told(err)[0], (code, err)
    # Launchers that MPI knows nothing of.
    for number, name in ((4, "OMPI_COMM_WORLD_SIZE"), (3, "PMI_SIZE"), (5, "SLURM_NTASKS")):
        mend = rf"`(mpirun\.openmpi|srun --mpi=pmix) -n {number} trireme"
        tool.refused(2, rf"{number} (processes|tasks), but MPI sees 1 rank: .*{mend}", "train", "c.yaml",
                     env={**os.environ, name: str(number)})
    refused(2, 2, r"unknown key", "train", "c.yaml", "--training.stepz=3")
    refused(2, 1, r"text/none", "train", "c.yaml", "--data.path=text/none")
    refused(4, 2, r"4 heads|2 heads", "train", "c.yaml", "--tensor_parallel_degree=4")
    # Ranks that were not given the same.
    tool.write("t2.txt", "Jackdaws love my big sphinx of quartz. " * 100)
    tool.good("prepare", "t2.txt", "--data.path=other/t")
    tool.write("rank.sh", RANK)
    os.chmod("rank.sh", 0o755)
    os.mkdir("elsewhere")
    shutil.copytree("other", "elsewhere/text")
    tool.write("elsewhere/c.yaml", tool.CONFIG)
    disagree("elsewhere", r'the ranks disagree: rank 0 has "data\.path: tokens 0 to \d+ of \d+ tokens.*'
             r'rank 1 on .* has "data\.path: ')
    tool.write("elsewhere/c.yaml", tool.CONFIG.replace("lr: 1e-2", "lr: 2e-2"))
    disagree("elsewhere", r'the ranks disagree: rank 0 has "lr: 0\.01", rank 1 on .* has "lr: 0\.02"')
    # One token of thousands.
    shutil.copytree("text", "elsewhere/text", dirs_exist_ok=True)
    tool.write("elsewhere/c.yaml", tool.CONFIG)
    tokens = bytearray(tool.read("elsewhere/text/t.bin"))
    tokens[len(tokens) // 3 & ~1] ^= 1
    tool.write("elsewhere/text/t.bin", bytes(tokens))
    disagree("elsewhere", r'the ranks disagree: rank 0 has "data\.path: tokens')


def test_other_weights_to_start_from():
    shutil.copytree("text", "elsewhere/text")
    tool.write("rank.sh", RANK)
    os.chmod("rank.sh", 0o755)
    tool.good("train", "c.yaml", "--training.steps=1", "--run.directory=first")
    tool.good("train", "c.yaml", "--training.steps=1", "--run.directory=second", "--training.seed=8")
    for directory, run in ((".", "first"), ("elsewhere", "second")):
        tool.write(directory + "/c.yaml", tool.CONFIG.replace("model:", "model:\n  init_from: weights"))
        shutil.copytree(run + "/checkpoint/step-1", directory + "/weights")
    disagree("elsewhere", r'rank 0 has "model\.init_from: weights, a hash of its weights [0-9a-f]{16}", rank 1 on')


def test_two_runs_of_one_name():
    shutil.copytree("text", "elsewhere/text")
    tool.write("elsewhere/c.yaml", tool.CONFIG)
    tool.write("rank.sh", RANK)
    os.chmod("rank.sh", 0o755)
    tool.good("train", "c.yaml")
    kept = tool.snapshot("run")
    disagree("elsewhere", r"run\.directory: .* rank 1 finds none of rank 0's checkpoints there")
    here = os.getcwd()
    os.chdir("elsewhere")
    tool.good("train", "c.yaml", "--optimizer.lr=1e-3")
    os.chdir(here)
    disagree("elsewhere", r"run\.directory: .* rank 1 finds another checkpoint than rank 0 there")
    assert {name: kept[name] for name in kept if "checkpoint" in name} == {
        name: now for name, now in tool.snapshot("run").items() if "checkpoint" in name}
    shutil.rmtree("run")
    disagree("elsewhere", r"run\.directory: .* rank 1 found a checkpoint and rank 0 then none")
    for directory in ".", "elsewhere":
        tool.write(directory + "/c.yaml", tool.CONFIG.replace("model:", "model:\n  init_from: elsewhere/run"))
    disagree("elsewhere", r'rank 0 has "model\.init_from: elsewhere/run/.*rank 1 .*"model.*weights of its own"')


def test_a_rank_that_does_not_start():
    # MPI's start has 20 seconds, however short the deadline is.
    begin = time.monotonic()
    process = subprocess.Popen([mpi.MPIRUN, "-n", "1", tool.BINARY, "train", "c.yaml", "--comm.train_timeout_seconds=1",
                                ":", "-n", "1", "sleep", "100"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    code, _, err = tool.finish(process)
    assert code != 0 and 15 < time.monotonic() - begin < 50, (code, err)
    assert len(mpi.told(err)) == 1 and "MPI has not started on all ranks within 20 s" in mpi.told(err)[0], err


def disagree(directory, pattern):
    process = mpi.start(2, os.path.abspath("rank.sh"), tool.BINARY, "train", "c.yaml",
                        ELSEWHERE=os.path.abspath(directory))
    code, _, err = tool.finish(process)
    assert code == 2 and len(mpi.told(err)) == 1 and re.search(pattern, mpi.told(err)[0]), (code, err)


def ranks_of(process):
    """The processes that mpirun has started, by rank."""
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


def in_training(ranks, *arguments):
    process = mpi.start(ranks, tool.BINARY, *RUN, "--training.steps=100000", *arguments, **PATIENCE)
    while not checkpoints():
        assert process.poll() is None, tool.finish(process)
        time.sleep(0.01)
    found = ranks_of(process)
    assert len(found) == ranks, found
    return process, found


def check_going_on(ranks, *arguments):
    """The run goes on from its newest checkpoint to the bits of one that nothing has disturbed."""
    last = checkpoints()[-1]
    arguments = [*RUN, *arguments, f"--training.steps={last + 5}"]
    out = mpi.good(ranks, *arguments)
    assert f"going on from run/checkpoint/step-{last}" in out, out
    mpi.good(ranks, *arguments, "--run.directory=straight")
    assert same_weights("run", "straight", last + 5)


def check_survivors(process, gone, survivors, seconds):
    begin = time.monotonic()
    code, _, err = tool.finish(process)
    assert code != 0 and time.monotonic() - begin < seconds, (code, time.monotonic() - begin, err)
    lines = mpi.told(err)
    for rank in survivors:
        mine = [line for line in lines if f": rank {rank}, last step done " in line]
        # Between steps no instruction runs: then it is the communicator of what all ranks agree on.
        where = r": (stream \S+, \S+\[\d+\] \S+ over \S+.*: group \S+: |group control: )"
        assert len(mine) == 1 and re.search(where, mine[0]), (rank, err)
    assert any(re.search(rf"ranks? .*\b{gone}\b", line.split("group ", 1)[1]) for line in lines), err
    shown = tool.good("show", "ranks", "run")
    assert all(f"rank {rank}: failed for" in shown for rank in survivors), shown
    return err


def test_killed():
    for ranks, gone, mesh in ((3, 1, ["--training.global_batch_size=3"]),
                              (4, 0, ["--tensor_parallel_degree=2", "--pipeline_parallel_degree=2"])):
        process, found = in_training(ranks, *mesh)
        os.kill(found[gone], signal.SIGKILL)
        check_survivors(process, gone, [rank for rank in range(ranks) if rank != gone], 10)
        check_going_on(ranks, *mesh)
        shutil.rmtree("run")
        shutil.rmtree("straight")


def test_bad_token():
    """One rank meets it and tells; all save what was done before."""
    tool.plant_token()
    for ranks, mesh in ((2, []), (4, ["--pipeline_parallel_degree=2"])):
        shutil.rmtree("run", ignore_errors=True)
        code, _, err = mpi.run(ranks, *RUN, *mesh, "--data.path=bad/t",
                               "--training.steps=200")
        assert code == 1 and mpi.told(err) and all("at position 1000 " in line for line in mpi.told(err)), (code, err)
        assert checkpoints()[-1] == tool.metrics("run")[-1]["step"], err


def test_stopped():
    process, found = in_training(2, "--comm.train_timeout_seconds=2")
    os.kill(found[0], signal.SIGSTOP)
    err = check_survivors(process, 0, [1], 15)
    # mpirun lets it go on for its last words.
    assert "rank 0 was stopped for 2." in err, err
    check_going_on(2)


def test_suspended():
    """A run that is stopped as a whole, for longer than ranks wait for others, goes on."""
    process, found = in_training(2, "--comm.train_timeout_seconds=2")
    for number, pause in ((signal.SIGSTOP, 4), (signal.SIGCONT, 3), (signal.SIGTERM, 0)):
        for rank in found.values():
            os.kill(rank, number)
        time.sleep(pause)
    code, _, err = tool.finish(process)
    assert code == 75 and len(mpi.told(err)) == 1 and "stopped after step" in err, (code, err)


def test_stopped_at_the_end():
    """The other one leaves; the one that was stopped does, too, where mpirun lets it go on for long enough."""
    begin = time.monotonic()
    code, out, err = tool.finish(mpi.start(2, os.path.join(mpi.TESTS, "test_fault_last_call"), TEAM_PROCESSES="2"))
    assert out in ("has ended\n", "has ended\n" * 2) and time.monotonic() - begin < 30, (code, out, err)


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


if __name__ == "__main__":
    tool.enter_scratch()
    mpi.skip_without()
    tests = dict(globals())
    if tool.SANITIZED:  # processes start slowly then, and these go ways that the others go too
        for repeated in (test_stopped, test_suspended, test_stopped_at_the_end, test_bad_token, test_slow, test_signals,
                         test_bench, test_bad_starts, test_a_rank_that_does_not_start):
            del tests[repeated.__name__]
    tool.main(tests)
