#!/usr/bin/env python3
"""Times the training steps of llm.c's train_gpt2 (f32, 4 rows of 64 tokens), from a checkout that you have.

    llm_c.py CHECKOUT [--steps=4]

Nothing in the checkout changes: its files are copied, built there by its own Makefile with each of gcc and clang, and
fed random weights and tokens of GPT-2 124M's shape. Where <cblas.h> and libopenblas are installed, a second program is
measured: llm.c has no BLAS on CPUs, so its matmul_forward and matmul_backward give way to those of llm_c_blas.c."""
import argparse
import array
import itertools
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import machine

BATCH, SEQ_LEN = 4, 64
LAYERS, WIDTH, POSITIONS, VOCABULARY, PADDED = 12, 768, 1024, 50257, 50304
MODEL_MAGIC, TOKENS_MAGIC = 20240326, 20240520
BLAS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "llm_c_blas.c")


def checkout_at(path):
    """For argparse: a directory that is a checkout of llm.c."""
    if not os.path.exists(os.path.join(path, "train_gpt2.c")):
        raise argparse.ArgumentTypeError(f"{path} has no train_gpt2.c: give a checkout of llm.c")
    return path


def count(text):
    """For argparse: how often something is to be done."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 on")
    return int(text)


def write_weights(path):
    """A model file: 256 integers, then f32 tensors in llm.c's order; norms' weights are 1, the rest is small."""
    c, per_layer = WIDTH, LAYERS * WIDTH
    sizes = [PADDED * c, POSITIONS * c, per_layer, per_layer, 3 * c * per_layer, 3 * per_layer, c * per_layer,
             per_layer, per_layer, per_layer, 4 * c * per_layer, 4 * per_layer, 4 * c * per_layer, per_layer, c, c]
    norms = (2, 8, 14)
    rng = random.Random(1)
    noise = array.array("f", (rng.gauss(0, 0.02) for _ in range(1 << 18)))
    ones = array.array("f", [1]) * len(noise)
    with open(path, "wb") as file:
        header = [MODEL_MAGIC, 3, POSITIONS, VOCABULARY, LAYERS, 12, WIDTH, PADDED]
        file.write(array.array("i", header + [0] * (256 - len(header))).tobytes())
        for index, size in enumerate(sizes):
            block = ones if index in norms else noise
            while size:
                file.write(block[:size].tobytes())
                size -= min(size, len(block))


def write_tokens(path, count):
    rng = random.Random(2)
    with open(path, "wb") as file:
        file.write(array.array("i", [TOKENS_MAGIC, 1, count] + [0] * 253).tobytes())
        file.write(array.array("H", (rng.randrange(VOCABULARY) for _ in range(count))).tobytes())


class Build:
    """One train_gpt2 in a directory of its own, which starts it with settings of the environment."""

    def __init__(self, directory, compiler, settings):
        self.directory, self.compiler, self.settings = directory, compiler, settings

    def describe(self):
        return " ".join([self.compiler] + [f"{name}={value}" for name, value in sorted(self.settings.items())])

    def measure(self, steps):
        """Seconds of so many steps after the first, as llm.c prints them, and the bytes that the process had at most.
        Then the program is ended, since it would run 41 steps."""
        command = ["stdbuf", "-oL", "./train_gpt2"]
        seconds = []
        with subprocess.Popen(command, cwd=self.directory, env={**os.environ, **self.settings},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            output = []
            for line in process.stdout:
                output.append(line)
                took = re.match(r"step (\d+):.*took ([0-9.]+) ms", line)
                if took and took[1] != "0":
                    seconds.append(float(took[2]) / 1000)
                if len(seconds) == steps:
                    break
            resident = peak_resident(process.pid)
            process.kill()
        if len(seconds) < steps:
            raise RuntimeError("train_gpt2 ended early: " + "".join(output[-5:]))
        return seconds, resident


def peak_resident(pid):
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            return 1024 * int(re.search(r"VmHWM:\s*(\d+)", file.read())[1])
    except (OSError, TypeError):
        return 0


def replace_matmul(path):
    """Renames the definitions of the two functions in a copy and declares them instead."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    definition = re.compile(r"^void (matmul_(?:forward|backward))\(([^)]*)\) \{", re.M)
    text, count = definition.subn(r"void \1(\2);\nvoid own_\1(\2) {", text)
    if count != 2:
        sys.exit("this llm.c's matmul_forward and matmul_backward look different: no BLAS can replace them")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def make(directory, compiler, *variables):
    """llm.c's own rule and flags; what it says goes nowhere, whether it works is seen from the result."""
    result = subprocess.run(["make", "train_gpt2", f"CC={compiler}", *variables], cwd=directory, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return result.returncode == 0


class LlmC:
    """Builds of a checkout in a temporary directory: `plain` has OpenMP alone, `blas` OpenBLAS too, and `told` is that
    with OpenBLAS told that there is AVX-512: before 0.3.22 it takes Zen 4 and later for an older one."""

    def __init__(self, checkout, threads):
        self.temporary = tempfile.TemporaryDirectory(prefix="llm_c.")
        self.version = subprocess.run(["git", "-C", checkout, "rev-parse", "--short", "HEAD"], text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout.strip()
        shared = os.path.join(self.temporary.name, "shared")
        os.makedirs(shared)
        write_weights(os.path.join(shared, "weights.bin"))
        for split in ("train", "val"):
            write_tokens(os.path.join(shared, split), 100 * BATCH * SEQ_LEN)
        self.plain, self.blas, self.told = [], [], []
        threads = {"OMP_NUM_THREADS": str(threads)}
        for compiler in filter(shutil.which, ("gcc", "clang")):
            directory = self.copy(checkout, compiler)
            if make(directory, compiler):
                self.plain.append(Build(directory, compiler, threads))
            directory = self.copy(checkout, compiler + "-blas")
            replace_matmul(os.path.join(directory, "train_gpt2.c"))
            if make(directory, compiler, f"LDFLAGS={BLAS}", "LDLIBS=-lm -lgomp -lopenblas"):
                self.blas.append(Build(directory, compiler, threads))
                if machine.has_avx512():
                    self.told.append(Build(directory, compiler, {**threads, "OPENBLAS_CORETYPE": "SKYLAKEX"}))
        if not self.plain:
            sys.exit(f"{checkout}: neither gcc nor clang builds train_gpt2")

    def copy(self, checkout, name):
        directory = os.path.join(self.temporary.name, name)
        os.makedirs(os.path.join(directory, "dev/data/tinyshakespeare"))
        for item in ("Makefile", "train_gpt2.c"):
            shutil.copy(os.path.join(checkout, item), directory)
        shutil.copytree(os.path.join(checkout, "llmc"), os.path.join(directory, "llmc"))
        shared = os.path.join(self.temporary.name, "shared")
        os.symlink(os.path.join(shared, "weights.bin"), os.path.join(directory, "gpt2_124M.bin"))
        for split in ("train", "val"):
            os.symlink(os.path.join(shared, split),
                       os.path.join(directory, f"dev/data/tinyshakespeare/tiny_shakespeare_{split}.bin"))
        return directory

    def close(self):
        self.temporary.cleanup()


def fastest(builds):
    """The build whose shortest of two steps is the shortest."""
    return min(builds, key=lambda build: min(build.measure(2)[0]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("checkout", type=checkout_at)
    parser.add_argument("--steps", type=count, default=4)
    arguments = parser.parse_args()
    llm_c = LlmC(arguments.checkout, len(os.sched_getaffinity(0)))
    for build in itertools.chain(llm_c.plain, llm_c.blas, llm_c.told):
        seconds, resident = build.measure(arguments.steps)
        print(f"{os.path.basename(build.directory):12} {BATCH * SEQ_LEN / statistics.median(seconds):7.1f} tokens/s "
              f"{resident / 1e9:5.2f} GB  {build.describe()}")
    llm_c.close()


if __name__ == "__main__":
    main()
