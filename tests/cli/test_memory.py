"""A process takes the memory that was predicted: the arenas, and little else."""

import json
import os
import re
import resource
import shutil
import signal
import struct
import sys

import tool

# The programs of these models are small, so the rest of a process shows: code, tables, threads, buffers for printing.
MODEL = ["model.family=llama", "model.num_hidden_layers=6", "model.hidden_size=320", "model.num_attention_heads=5",
         "training.seq_len=128", "training.threads=1", "training.steps=1"]
MODES = ["none", "selective", "full"]
MESHES = [["--ranks=2", "--parallelism.tensor_parallel_degree=2"],
          ["--ranks=2", "--parallelism.data_parallel_shard_degree=2"],
          ["--ranks=4", "--parallelism.pipeline_parallel_degree=2", "--parallelism.data_parallel_shard_degree=2"],
          # Long sequences, so that what each method holds of them shows.
          *(["--ranks=2", "--parallelism.context_parallel_degree=2", f"--parallelism.context_parallel_method={method}",
             "--training.seq_len=1024"] for method in ("gather", "ring", "ulysses"))]


def check(result, ranks, *what):
    predicted, resident = result["predicted_bytes"], result["resident_bytes"]
    allowed = 0.03 * predicted + (24 << 20) + ranks * (8 << 20)
    assert abs(resident - predicted) <= allowed, (predicted, resident, resident - predicted, allowed, what)


def bench(*settings, ranks=1):
    result = tool.good_json("bench", "step", *MODEL, "model.vocab_size=2048", *settings)
    check(result, ranks, *settings)
    return result


def test_modes():
    for dtype in "f32", "bf16":
        taken = [bench("training.micro_batch_size=4", f"training.dtype={dtype}", f"activation_checkpoint.mode={mode}",
                       f"training.kernel_choice={'measured' if (mode, dtype) == ('none', 'bf16') else 'rule'}")
                 for mode in MODES]
        sizes = [result["predicted_bytes"] for result in taken]
        assert sizes == sorted(sizes, reverse=True) and sizes[0] > 1.05 * sizes[2], sizes


def test_ranks():
    """All ranks are one process: the prediction is for all of them together."""
    for mesh in MESHES:
        ranks = int(mesh[0].partition("=")[2])
        result = bench("training.micro_batch_size=1", "training.global_batch_size=4", *mesh, ranks=ranks)
        assert result["ranks"] == ranks, result


def narrow(ranks, layers, *command):
    """Runs a step in which hardly anything but programs, threads and what belongs to these takes memory; returns the
    bytes beyond the prediction, and the prediction."""
    result = tool.good_json(*(command or ("bench", "step")), "model.family=llama",
                            f"model.num_hidden_layers={layers}", "model.hidden_size=64",
                            "model.num_attention_heads=4", "model.vocab_size=512", "training.seq_len=16",
                            "training.micro_batch_size=1", "training.threads=1", f"training.global_batch_size={ranks}",
                            "training.steps=1", "training.kernel_choice=rule",
                            f"--parallelism.data_parallel_shard_degree={ranks}")
    return result["resident_bytes"] - result["predicted_bytes"], result["predicted_bytes"]


def test_many_ranks():
    """What ranks that are threads have in common is there once; each has little of its own besides the arenas."""
    for ranks, layers in (16, 16), (64, 1):
        beyond, predicted = narrow(ranks, layers)
        assert beyond < (20 << 20) + ranks * (1 << 18), (ranks, predicted, beyond)


def test_large_programs():
    """Programs of many ranks, which also validate; of many layers; of many ranks with many layers."""
    tool.write("t.txt", "The quick brown fox jumps over the lazy dog. " * 10000)
    tool.good("prepare", "t.txt", "--data.path=text/t")
    validates = ("train", "data.path=text/t", "data.split=[0.9, 0.1]", "validation.freq=1", "validation.steps=1")
    for ranks, layers, *command in (512, 1, *validates), (1, 2000), (64, 64):
        beyond, predicted = narrow(ranks, layers, *command)
        # A run's ranks have a thread each that reads batches, and two that save, with what these need.
        threads = ranks * 160e3 if command else 0
        assert beyond < 64e6 + 0.03 * predicted + threads, (ranks, layers, command, predicted, beyond)


def test_commands():
    tool.write("t.txt", "The quick brown fox jumps over the lazy dog. " * 10000)
    tool.good("prepare", "t.txt", "--data.path=text/t")
    data = ["data.path=text/t", "data.split=[0.9, 0.1]"]
    for i, mesh in enumerate([[], MESHES[1]]):
        result = tool.good_json("train", *MODEL, *data, "training.global_batch_size=4",
                                "training.micro_batch_size=2", "validation.freq=1", "validation.steps=1",
                                f"run.directory=run{i}", *mesh)
        check(result, 1 + 2 * i, "train", *mesh)
    check(tool.good_json("eval", "run0", *data, "training.seq_len=128", "validation.steps=2"), 1, "eval")


def test_large_parent():
    """Memory of the process that starts a run is not the run's. Where the child shares it until it executes the
    program, as subprocess does, the system counts it for the child."""
    ballast = bytearray(256 << 20)
    result = tool.good_json("train", *MODEL, "data.path=text/t", "training.global_batch_size=1",
                            "run.directory=child")
    check(result, 1, len(ballast))


def test_loading():
    """Every rank reads a whole checkpoint, piece by piece: nothing of the files stays in memory, and no rank ever has a
    whole parameter of which it keeps a part. With 8 ranks and a step of 64 tokens, whole ones would need more memory
    than is free until the step."""
    tool.write("t.txt", "The quick brown fox jumps over the lazy dog. " * 10000)
    tool.good("prepare", "t.txt", "--data.path=text/t")
    settings = ["model.vocab_size=16384", "data.path=text/t", "training.kernel_choice=rule"]
    shards = [*MODEL[:-1], "training.global_batch_size=4", "training.micro_batch_size=2", "--ranks=2",
              "--parallelism.data_parallel_shard_degree=2"]
    tensors = ["model.family=llama", "model.num_hidden_layers=1", "model.hidden_size=512",
               "model.num_attention_heads=8", "training.seq_len=64", "training.global_batch_size=1",
               "training.micro_batch_size=1", "training.threads=1", "--ranks=8",
               "--parallelism.tensor_parallel_degree=8"]
    for ranks, mesh, dtype in (2, shards, "bf16"), (8, tensors, "f32"), (8, tensors, "bf16"):
        for name, *more in [["run", "training.steps=1"], ["run", "training.steps=2"],
                            ["other", "training.steps=1", f"model.init_from=run{dtype}{ranks}"]]:
            result = tool.good_json("train", *settings, *mesh, *more, f"training.dtype={dtype}",
                                    f"run.directory={name}{dtype}{ranks}")
            check(result, ranks, name, *more, dtype)


def pair(prefix, tokens):
    """Megatron's, of one document."""
    with open(f"{prefix}.bin", "wb") as file:
        for _ in range(tokens >> 20):
            file.write(struct.pack("<H", 97) * (1 << 20))
    with open(f"{prefix}.idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 1, 2) + struct.pack("<iQQQ", tokens, 0, 0, 1))


def test_large_token_files():
    """What is read of token files, all or here and there to tell them from others, is given back: of a large one, and
    of many that are small."""
    pair("large", 68 << 20)
    pair("small0", 7 << 20)
    for i in range(1, 7):
        for suffix in "bin", "idx":
            os.link(f"small0.{suffix}", f"small{i}.{suffix}")
    for name, path in ("large", "large"), ("small", "small*.bin"):
        for steps in 1, 3:
            result = tool.good_json("train", *MODEL, "training.global_batch_size=8",
                                    "model.vocab_size=256", "training.kernel_choice=rule", f"data.path={path}",
                                    f"run.directory={name}.run", f"training.steps={steps}")
            check(result, 1, name, steps)


def test_saving():
    """No rank puts a parameter together: this embedding is 96 MiB."""
    tool.write("t.txt", "The quick brown fox jumps over the lazy dog. " * 1000)
    tool.good("prepare", "t.txt", "--data.path=text/t")
    for i, axis in enumerate(["tensor_parallel_degree", "data_parallel_shard_degree"]):
        process = tool.start("train", "model.family=llama", "model.num_hidden_layers=1", "model.hidden_size=384",
                             "model.num_attention_heads=6", "model.vocab_size=65536", "training.seq_len=16",
                             "training.global_batch_size=2", "training.steps=1", "training.threads=1",
                             "training.kernel_choice=rule", "data.path=text/t", f"run.directory=saved{i}",
                             "--checkpoint.async_save=false", "--ranks=2", f"--parallelism.{axis}=2", "--json")
        result = tool.strict_json(process.stdout.read())
        _, status, usage = os.wait4(process.pid, 0)
        assert status == 0, status
        # Besides, each rank has what it copies, what others give, and two blocks that it writes.
        blocks = 2 * 4 * (16 << 20)
        check({"predicted_bytes": result["predicted_bytes"] + blocks, "resident_bytes": usage.ru_maxrss << 10}, 2, axis)


def limited(megabytes, what=resource.RLIMIT_AS):
    """Options of a child process that limit its address space, or something else."""
    limit = int(megabytes * (1 << 20))
    return {"preexec_fn": lambda: resource.setrlimit(what, (limit, limit))}


GROUP = f"/sys/fs/cgroup/memory/trireme-test-{os.getpid()}"


def grouped(megabytes):
    """Options of a child process that is in a control group with a limit of its own."""
    for name, value in ("memory.force_empty", 0), ("memory.limit_in_bytes", int(megabytes * (1 << 20))):
        with open(f"{GROUP}/{name}", "w") as file:
            file.write(str(value))

    def enter():
        with open(f"{GROUP}/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))
    return {"preexec_fn": enter}


def test_what_is_admitted_ends():
    """Whatever limits memory: a run is refused with figures, or it trains, validates and saves to its end."""
    tool.write("t.txt", "The quick brown fox jumps over the lazy dog. " * 1000)
    tool.good("prepare", "t.txt", "--data.path=text/t")
    limits = [lambda m: limited(m), lambda m: limited(m, resource.RLIMIT_DATA)]
    try:
        os.mkdir(GROUP)
        limits.append(grouped)
    except OSError:
        print("no control groups can be made here: a limit of one is not tried")
    small = ["model.family=llama", "training.seq_len=64", "training.steps=2", "checkpoint.interval=1",
             "training.kernel_choice=rule", "data.path=text/t", "data.split=[0.9, 0.1]", "validation.steps=1"]
    for ranks, threads, hidden in (1, 2, 16), (4, 1, 320):
        train = ["train", *small, f"model.hidden_size={hidden}", f"model.num_attention_heads={hidden // 16}",
                 "model.num_hidden_layers=2", f"training.threads={threads}", "training.global_batch_size=4",
                 f"--ranks={ranks}"]
        for limit in limits:
            def admitted(megabytes):
                shutil.rmtree("run", ignore_errors=True)
                code, _, err = tool.run(*train, **limit(megabytes))
                if code == 0:
                    return True
                # Where it is far too little the loader, or reading the configuration, has not had enough.
                assert code > 0 and err.count("\n") == 1, (train, megabytes, code, err)
                return False if "does not fit" in err else None
            low, high = 8, 2048
            while high - low > 0.25:
                middle = (low + high) / 2
                low, high = (low, middle) if admitted(middle) else (middle, high)
            for below in 0.5, 1, 2, 4:
                assert admitted(high - below) is False, (train, high, below)
    if len(limits) > 2:
        os.rmdir(GROUP)


def test_small_stacks():
    """A stack that is too small is enlarged where that is allowed, and else refused in words."""
    for ranks in 1, 2:
        for kilobytes in 64, 256, 512:
            small = kilobytes << 10
            for most in resource.RLIM_INFINITY, small:
                def limit():
                    resource.setrlimit(resource.RLIMIT_STACK, (small, most))
                code, _, err = tool.run("train", "c.yaml", "--training.global_batch_size=4", f"--ranks={ranks}",
                                        f"--run.directory=r{ranks}.{kilobytes}.{most}", preexec_fn=limit)
                refused = most == small < 256 << 10 and "raise the limit (ulimit -s)" in err and err.count("\n") == 1
                assert code == 0 or code > 0 and refused, (ranks, kilobytes, most, code, err)


def test_lines_without_memory():
    """With little address space, a long line is refused in words that say that memory is the reason."""
    with open("long.jsonl", "w", encoding="utf-8") as file:
        json.dump({"text": "x" * 20000000}, file)
    codes = set()
    for megabytes in range(32, 160, 8):
        code, _, err = tool.run("prepare", "long.jsonl", "--data.path=long", **limited(megabytes))
        assert code == 0 or "memory" in err and err.count("\n") == 1, (megabytes, code, err)
        codes.add(code)
    assert codes == {0, 5}, codes


def test_too_little_to_time_kernels():
    """A step that fits when kernels run by their rules also fits when they should be timed: then they are not, and the
    run says so."""
    model = ["model.family=llama", "model.num_hidden_layers=6", "model.hidden_size=512", "model.num_attention_heads=8",
             "training.seq_len=128", "training.global_batch_size=4", "training.threads=1"]
    train = ["train", *model, "data.path=text/t", "data.split=[1, 0]"]
    rule = [*train, "training.steps=1", "training.kernel_choice=rule", "run.directory=rule"]
    needs = re.search(r"it needs ([\d.]+) GB", tool.run(*rule, **limited(256))[2])[1]
    least = next(m for m in range(int(1000 * float(needs)), 4096, 48) # timing takes 200 MB
                 if tool.run(*rule, **limited(m))[0] == 0)
    # Long enough to time kernels; another start is too short.
    process = tool.start(*train, "training.steps=100000", "run.directory=run", **limited(least + 48))
    assert "timing kernels needs " in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    code, _, err = tool.finish(process)
    assert code == 75 and "timing" not in err, (code, err)
    code, _, err = tool.run(*train, "training.steps=2", "run.directory=short", **limited(least + 48))
    assert code == 0 and "timing" not in err, (code, err)


def test_ranks_that_do_not_fit_together():
    """Ranks of a pipeline stage share one program, but each needs memory of its own for it."""
    train = ["train", *MODEL, "data.path=text/t", "data.split=[1, 0]", "training.global_batch_size=4",
             "training.micro_batch_size=1", "training.kernel_choice=rule"]
    alone = float(re.search(r"it needs ([\d.]+) GB", tool.run(*train, **limited(128))[2])[1])
    for stages in 1, 2:
        # With room for one of each stage, and for what the process takes besides.
        for megabytes in range(128 + int(1000 * alone), 2048, 48):
            code, _, err = tool.run(*train, f"--ranks={2 * stages}", "--parallelism.data_parallel_replicate_degree=2",
                                    f"--parallelism.pipeline_parallel_degree={stages}", **limited(megabytes))
            need = re.search(fr"its {2 * stages} ranks together need ([\d.]+) GB", err)
            if need or code == 0:
                break
        assert code == 5 and need and 1.9 * alone < float(need[1]) < 2.3 * alone, (stages, code, err, alone)


if tool.SANITIZED:
    print("skipped: sanitizers keep books of their own, many times as large")
    sys.exit(77)
tool.main(globals())
