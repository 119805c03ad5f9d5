#!/usr/bin/env python3
"""What saving at every step costs: GPT-2 124M, training that does not save, that waits for each save, and that goes on
meanwhile; and where PyTorch has it (2.4 or later), its asynchronous distributed checkpoint.

    checkpoint_save.py [--binary=build/trireme] [--folder=DIR] [--batch=4] [--seq_len=1024] [--dtype=f32] [--steps=8]
                       [--rounds=2] [KEY=VALUE ...]

DIR, on the disk to be measured, gets about 6 GB. The ways take turns in one run. Printed are the medians of the steps'
times, the first two and the last left out, the throughput relative to training that does not save, and for how long a
step waits. KEY=VALUE go to `trireme train`.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

SCRIPT = os.path.abspath(__file__)
sys.path.insert(0, os.path.dirname(SCRIPT))


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default="build/trireme")
    parser.add_argument("--folder", default=".")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq_len", type=int, default=1024)
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--torch", action="store_true", help="only PyTorch, one line of JSON for each way")
    return parser.parse_known_args()


def train(a, more, *settings):
    """Seconds of each step and, of those, for which it waited for saves."""
    shutil.rmtree("run", ignore_errors=True)
    subprocess.run([a.binary, "train", "--model.preset=gpt2-124m", f"--training.dtype={a.dtype}", "--data.path=tokens",
                    f"--training.global_batch_size={a.batch}", f"--training.micro_batch_size={a.batch}",
                    f"--training.seq_len={a.seq_len}", f"--training.steps={a.steps}", "--checkpoint.keep_latest_k=2",
                    "--run.directory=run", *settings, *more], check=True, stdout=subprocess.DEVNULL)
    with open("run/metrics.jsonl", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file][2:-1]
    shutil.rmtree("run")
    return [(line["seconds"], line.get("save_seconds", 0)) for line in lines]


WAYS = {"not saved": ["--checkpoint.interval=0"],
        "waits": ["--checkpoint.interval=1", "--checkpoint.async_save=false"],
        "goes on": ["--checkpoint.interval=1"]}


def pytorch(a):
    """The same model and optimizer under PyTorch: steps without saving, and each with an asynchronous save."""
    import gpt2_pytorch as bench
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    torch.manual_seed(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517", RANK="0", WORLD_SIZE="1")
    dist.init_process_group("gloo")
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = bench.GPT2("sdpa")
    optimizer, _ = bench.make_optimizer(model)
    inputs, targets = torch.randint(bench.VOCABULARY, (2, a.batch, a.seq_len))

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.dtype == "bf16"):
            loss = model(inputs, targets)
        loss.backward()
        optimizer.step()

    for saves in False, True:
        times, waits, under_way = [], [], None
        for i in range(a.steps):
            begin = time.monotonic()
            step()
            done = time.monotonic()
            if saves:
                if under_way:
                    under_way.result()
                for old in range(i - 1):
                    shutil.rmtree(f"torch-{old}", ignore_errors=True)
                under_way = dcp.async_save({"model": model.state_dict(), "optimizer": optimizer.state_dict()},
                                           checkpoint_id=f"torch-{i}")
            waits.append(time.monotonic() - done)
            times.append(time.monotonic() - begin)
        if under_way:
            under_way.result()
        for i in range(a.steps):
            shutil.rmtree(f"torch-{i}", ignore_errors=True)
        print(json.dumps({"way": "PyTorch, " + ("asynchronous" if saves else "not saved"),
                          "steps": list(zip(times, waits))[2:-1]}), flush=True)


def main():
    a, more = arguments()
    a.binary = os.path.abspath(a.binary)
    if a.torch:
        pytorch(a)
        return
    folder = tempfile.mkdtemp(prefix="checkpoint-save-", dir=a.folder)
    os.chdir(folder)
    try:
        with open("text.txt", "w", encoding="utf-8") as file:
            file.write("The quick brown fox jumps over the lazy dog. " * (a.batch * a.seq_len * (a.steps + 1) // 40))
        subprocess.run([a.binary, "prepare", "text.txt", "--data.path=tokens"], check=True, stdout=subprocess.DEVNULL)
        seen = {}
        for _ in range(a.rounds):
            for way, settings in WAYS.items():
                seen.setdefault(way, []).extend(train(a, more, *settings))
            other = subprocess.run([sys.executable, SCRIPT, "--torch", f"--batch={a.batch}", f"--seq_len={a.seq_len}",
                                    f"--dtype={a.dtype}", f"--steps={a.steps}"],
                                   capture_output=True, text=True, check=False)
            for line in other.stdout.splitlines():
                if line.startswith("{"):
                    seen.setdefault(json.loads(line)["way"], []).extend(json.loads(line)["steps"])
            if other.returncode:
                print("PyTorch is left out:", other.stderr.strip().splitlines()[-1:], file=sys.stderr)
        print(f"{'':24}{'s per step':>12}{'throughput':>12}{'waits, s':>10}")
        base = None
        for way, steps in seen.items():
            each = statistics.median(s for s, _ in steps)
            base = each if way.endswith("not saved") else base
            print(f"{way:24}{each:12.3f}{base / each:12.1%}{statistics.median(w for _, w in steps):10.3f}")
    finally:
        os.chdir("/")
        shutil.rmtree(folder)


main()
