"""Runs of several processes under mpirun that cannot start: bad input, and ranks that were not given the same."""

import os
import re
import shutil
import time

import mpi
import tool

# Rank 0 runs here, the others in another directory.
RANK = '#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 0 ] || { cd "$ELSEWHERE" || exit 1; }\nexec "$@"\n'


def refused(ranks, code, pattern, *arguments):
    begin = time.monotonic()
    got, _, err = mpi.run(ranks, *arguments)
    assert got == code and time.monotonic() - begin < 30, (arguments, got, err)
    assert len(mpi.told(err)) == 1 and re.search(pattern, mpi.told(err)[0]), (pattern, err)


def disagree(directory, pattern, *command):
    process = mpi.start(2, os.path.abspath("rank.sh"), tool.BINARY, *(command or ("train", "c.yaml")),
                        ELSEWHERE=os.path.abspath(directory))
    code, _, err = tool.finish(process)
    assert code == 2 and len(mpi.told(err)) == 1 and re.search(pattern, mpi.told(err)[0]), (code, err)


def by_rank(first, second):
    """Runs two ranks with commands of their own; None: a rank that sleeps. (`mpirun a : b` crashes in Debian 13.)"""
    first, second = (f"exec '{tool.BINARY}' {command}" if command else "exec sleep 100" for command in (first, second))
    return mpi.start(2, "sh", "-c", f'if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then {first}; else {second}; fi')


def test_bad_starts():
    refused(2, 2, r"parallelism\.ranks: given 3, but 2 processes were started", "train", "c.yaml", "--ranks=3")
    for ranks in (2, 1):
        refused(ranks, 2, r"training\.threads: given 999, but.*room for \d+ thr", "train", "c.yaml",
                "--training.threads=999")
    if tool.cores() >= 4:
        refused(2, 2, r"training\.threads: given 2, but .*is bound to 1 core: start with `mpirun --map-by slot:PE=2`",
                "train", "c.yaml", "--training.threads=2")
    refused(2, 2, r"usage: trireme train", "train", "c.yaml", "d.yaml")
    refused(2, 2, r"peak, step or calibrate, not \"speed\"", "bench", "speed")
    refused(2, 2, r"prepare runs as one process, but the launcher started 2: ", "prepare", "c.yaml", "--data.path=no/t")
    code, _, err = mpi.run(2, "trane", "c.yaml")
    assert code == 2 and err.count("there is no command trane; did you mean train?") == 1, (code, err)
    for words in ("help", "train"), ("train", "--help"):
        code, out, err = mpi.run(2, *words)
        assert code == 0 and out.count("usage: trireme train") == 1, (code, out, err)
    # One rank alone.
    process = by_rank("train c.yaml", "verify c.yaml")
    code, _, err = tool.finish(process)
    assert code == 2 and len(mpi.told(err)) == 1 and "verify runs as one process, but" in mpi.told(err)[0], (code, err)
    # One of three processes, with another launcher's variables in its environment.
    for rank in 0, 1:
        process = mpi.start(3, "sh", "-c", f'[ $OMPI_COMM_WORLD_RANK != {rank} ] || export OMPI_COMM_WORLD_SIZE=4; '
                            'exec "$@"', "sh", tool.BINARY, "train", "c.yaml", "training.global_batch_size=3")
        begin = time.monotonic()
        code, _, err = tool.finish(process)
        assert code == 2 and time.monotonic() - begin < 30, (code, err)
        assert len(mpi.told(err)) == 1 and "mpirun has started 4 processes, but MPI sees 3 ranks" in err, err
    # Ranks whose CPUs differ.
    one = ['[ "$OMPI_COMM_WORLD_RANK" = 0 ] || export TRIREME_ISA=base; exec "$0" "$@"', tool.BINARY, "train", "c.yaml"]
    code, _, err = tool.finish(mpi.start(2, "sh", "-c", *one, "training.kernels=reference", "training.steps=1"))
    assert code == 0, err
    code, _, err = tool.finish(mpi.start(2, "sh", "-c", *one, "run.directory=other"))
    alike = b" avx2 " not in tool.read("/proc/cpuinfo")
    pattern = r"rank 0 computes with \w+, rank 1 on .* with base, .*set TRIREME_ISA=base in the environment of all"
    assert alike or (code == 2 and len(mpi.told(err)) == 1 and re.search(pattern, err)), (code, err)
    code, _, err = tool.finish(mpi.start(2, tool.BINARY, "train", "c.yaml", "run.directory=both", TRIREME_ISA="base"))
    assert code == 0, err
    code, _, err = tool.finish(mpi.start(2, tool.BINARY, "train", "c.yaml", TRIREME_ISA="mmx"))
    assert code == 2 and len(mpi.told(err)) == 1 and "TRIREME_ISA=mmx in the environment: expected base," in err, err
    # Launchers that MPI does not know.
    for number, name in ((4, "OMPI_COMM_WORLD_SIZE"), (3, "PMI_SIZE"), (5, "SLURM_NTASKS")):
        mend = rf"`(mpirun\.openmpi|srun --mpi=pmix) -n {number} trireme"
        tool.refused(2, rf"{number} (processes|tasks), but MPI sees 1 rank: .*{mend}", "train", "c.yaml",
                     env={**os.environ, name: str(number)})
    of_torchrun = {**os.environ, "WORLD_SIZE": "8", "RANK": "0"}
    for of_slurm in ({}, {"SLURM_NTASKS": "1", "SLURM_PROCID": "0"}, {"SLURM_NTASKS": "2", "SLURM_PROCID": "0"}):
        tool.refused(2, r"torchrun has started 8 processes.*`mpirun -n 8 trireme", "train", "c.yaml",
                     env={**of_torchrun, **of_slurm})
    tool.refused(2, r"Slurm has 2 tasks, but MPI sees 1 rank", "train", "c.yaml",
                 env={**os.environ, "WORLD_SIZE": "2", "RANK": "0", "SLURM_NTASKS": "2", "SLURM_PROCID": "0"})
    refused(2, 2, r"unknown key", "train", "c.yaml", "--training.stepz=3")
    refused(2, 2, r"text/none", "train", "c.yaml", "--data.path=text/none")
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
    disagree("elsewhere", r'the ranks disagree: rank 0 has "optimizer\.lr: 0\.01", rank 1 on .* '
             r'has "optimizer\.lr: 0\.02"')
    # One token of thousands differs.
    shutil.copytree("text", "elsewhere/text", dirs_exist_ok=True)
    tool.write("elsewhere/c.yaml", tool.CONFIG)
    tokens = bytearray(tool.read("elsewhere/text/t.bin"))
    tokens[len(tokens) // 3 & ~1] ^= 1
    tool.write("elsewhere/text/t.bin", bytes(tokens))
    os.remove("elsewhere/text/t.sums")
    disagree("elsewhere", r'the ranks disagree: rank 0 has "data\.path: tokens')
    shutil.rmtree("elsewhere/text")
    shutil.copytree("text", "elsewhere/text")
    shutil.copytree("other", "elsewhere/other")
    shutil.copytree("text", "elsewhere/other", dirs_exist_ok=True)
    disagree("elsewhere", r'the ranks disagree: rank 0 has "data\.validation_path: \d+ tokens', "train", "c.yaml",
             "--data.validation_path=other/t", "--data.split=[1, 0]")


def test_ranks_that_evaluate_something_else():
    tool.write("rank.sh", RANK)
    os.chmod("rank.sh", 0o755)
    os.mkdir("elsewhere")
    shutil.copytree("text", "elsewhere/text")
    tool.good("train", "c.yaml", "--training.steps=1")
    tool.good("train", "c.yaml", "--training.steps=1", "--training.seed=8", "--run.directory=elsewhere/run")
    disagree("elsewhere", r'the ranks disagree: rank 0 has "(model|run|checkpoint)', "eval", "run", "data.path=text/t")
    shutil.rmtree("elsewhere/run")
    shutil.copytree("run", "elsewhere/run")
    mpi.good(2, "eval", "run", "data.path=text/t")
    tool.flip("elsewhere/text/t.bin", -2)
    os.remove("elsewhere/text/t.sums")
    disagree("elsewhere", r'the ranks disagree: rank 0 has "tokens: \d+ tokens', "eval", "run", "data.path=text/t")


def test_memory_of_all_ranks():
    """Ranks that fit one by one, but not together; and a limit of the address space, which each process has for
    itself."""
    train = ["train", "c.yaml", "--model.num_attention_heads=8", "--training.seq_len=8",
             "--training.kernel_choice=rule", "--training.steps=1", "--training.micro_batch_size=1"]
    model = [*train, "--model.hidden_size=1024"]
    huge = tool.refused(5, "the training step does not fit", *train, "--model.hidden_size=16384",
                        "--model.vocab_size=16777216")
    available = 1e9 * float(re.search(r"and ([\d.]+) GB are available", huge)[1])
    of_layers = [tool.good_json("show", "memory", *model[1:], f"--model.num_hidden_layers={layers}")["predicted_bytes"]
                 for layers in (1, 2)]
    deep = [*model, f"--model.num_hidden_layers={int(0.6 * available / (of_layers[1] - of_layers[0]))}"]
    replicas = "--parallelism.data_parallel_replicate_degree="
    refused(2, 5, "its 2 ranks together need .* are available", *deep, replicas + "2")
    nodes = mpi.start(4, "sh", "-c", 'TRIREME_NODE=$((OMPI_COMM_WORLD_RANK / 2)) exec "$0" "$@"', tool.BINARY, *deep,
                      replicas + "4")
    code, _, err = tool.finish(nodes)
    assert code == 5 and len(mpi.told(err)) == 1 and "its 2 ranks together need " in mpi.told(err)[0], (code, err)
    limit = of_layers[1] // 1024 + (1 << 20)
    limited = mpi.start(4, "sh", "-c", f'ulimit -v {limit}; exec "$0" "$@"', tool.BINARY, *model,
                        "--model.num_hidden_layers=2", replicas + "4")
    code, _, err = tool.finish(limited)
    assert code == 0, (code, err)


def test_other_builds():
    """A program that differs from the first only in what it says about its sources."""
    build = re.fullmatch(r"trireme [\d.]+ \((build [0-9a-f]{12}, .+)\)\n", tool.good("--version"))[1]
    other = "build 0123456789ab" + build[len("build 0123456789ab"):]
    program = tool.read(tool.BINARY)
    assert build.encode() in program
    tool.write("other", program.replace(build.encode(), other.encode()))
    os.chmod("other", 0o755)
    command = 'case $OMPI_COMM_WORLD_RANK in 0|3) exec "$@" ;; *) shift; exec ./other "$@" ;; esac'
    for ranks, more in (8, "; ranks 1, 2, 4 to 7 differ from rank 0"), (2, ""):
        code, _, err = tool.finish(mpi.start(ranks, "sh", "-c", command, "sh", tool.BINARY, "train", "c.yaml",
                                             "training.global_batch_size=8"))
        told = mpi.told(err)
        pattern = rf'rank 0 has "trireme [\d.]+, {build}", rank 1 on .* has "trireme [\d.]+, {other}"{more}$'
        assert code == 2 and len(told) == 1 and re.search(pattern, told[0]), (code, err)


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
    disagree("elsewhere", r"run\.directory: .* rank 1 does not find what rank 0 writes there")
    assert not os.path.exists("run") and not os.path.exists("elsewhere/run")
    tool.write("elsewhere/run", "a file")
    disagree("elsewhere", r"run\.directory: .* rank 1 does not find what rank 0 writes there")
    os.remove("elsewhere/run")
    for directory in ".", "elsewhere":
        tool.write(directory + "/c.yaml", tool.CONFIG.replace("directory: run", "directory: its/own/run"))
    disagree("elsewhere", r"run\.directory: .* rank 1 does not find what rank 0 writes there")
    assert not os.path.exists("its/own/run") and not os.path.exists("elsewhere/its")
    for directory in ".", "elsewhere":
        tool.write(directory + "/c.yaml", tool.CONFIG)
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


# Rank 0 starts, rank 1 is another program, rank 2 is stopped before it can start, rank 3 starts from a shell, rank 4
# ends with nothing to complain about. mpirun ends all if that is after another rank has started MPI, so those that will
# wait until mpirun has reaped rank 4.
UNSTARTED = """case $OMPI_COMM_WORLD_RANK in
0|3) until [ -s ended ] && ! kill -0 "$(cat ended)" 2>&-; do sleep .02; done ;;
4) echo $$ > ended.new && mv ended.new ended; exit 0 ;;
esac
case $OMPI_COMM_WORLD_RANK in
0) exec "$@" ;;
1) exec sleep 100 ;;
2) kill -STOP $$ ;;
3) "$@"; exit $? ;;
esac
"""


def test_ranks_that_do_not_start():
    # MPI's start has 20 seconds, however short the deadline is.
    begin = time.monotonic()
    process = mpi.start(5, "sh", "-c", UNSTARTED, "sh", tool.BINARY, "train", "c.yaml",
                        "--comm.train_timeout_seconds=1")
    code, _, err = tool.finish(process)
    assert code != 0 and 15 < time.monotonic() - begin < 50, (code, err)
    told = mpi.told(err)
    assert len(told) == 1 and "MPI has not started on all ranks within 20 s: rank " in told[0], err
    named = re.findall(r"rank (\d) \(process \d+\) (is stopped|runs \w+)", told[0])
    assert sorted(named) == [("1", "runs sleep"), ("2", "is stopped")] and "rank 4 has no process here" in told[0], err
    assert told[0].count("no process") == 1, err


if __name__ == "__main__":
    tool.enter_scratch()
    mpi.skip_without()
    tests = dict(globals())
    if tool.SANITIZED:  # processes start slowly then, and these go ways that the others go too
        for repeated in (test_bad_starts, test_other_builds, test_ranks_that_do_not_start,
                         test_ranks_that_evaluate_something_else):
            del tests[repeated.__name__]
        del tests["test_memory_of_all_ranks"]  # sanitizers keep books of their own, many times as large
    tool.main(tests)
