"""What the tests of the command line share: a scratch directory, the program, and checks of how it ends."""

import atexit
import contextlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

BINARY = os.environ.get("TRIREME_BINARY") or sys.exit("TRIREME_BINARY is not set: run by ctest")
SANITIZED = bool(os.environ.get("TRIREME_SANITIZE"))
TIMEOUT = 240

# For simulate: four devices on a slow network.
CLUSTER = """\
devices:
  d:
    peak: {f32: 200 GFLOP/s}
    memory: 24 GB
    bandwidth: 40 GB/s
    efficiency: {other: {memory: 0.6}, matmul: {compute: 0.85}, attention: {compute: 0.6}}
nodes: [{device: d, nodes: 4, devices: 1}]
links: [{name: wan, spans: all, latency: 50 us, bandwidth: 125 MB/s}]
"""

CONFIG = """\
model:
  family: llama
  num_hidden_layers: 1
  hidden_size: 16
  num_attention_heads: 2
training:
  steps: 6
  seq_len: 16
  global_batch_size: 4
  threads: 1
optimizer:
  lr: 1e-2
data:
  path: text/t
  split: [0.8, 0.2]
validation:
  freq: 3
  steps: 2
run:
  directory: run
"""


def enter_scratch():
    """Makes a directory that is removed at the end, and enters it."""
    path = tempfile.mkdtemp(prefix="trireme-cli-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    os.chdir(path)


def enter_prepared():
    """The same with a configuration c.yaml and token files text/t."""
    enter_scratch()
    write("c.yaml", CONFIG)
    write("t.txt", "The quick brown fox jumps over the lazy dog. " * 100)
    good("prepare", "t.txt", "--data.path=text/t")


def write(path, content):
    with open(path, "wb") as f:
        f.write(content if isinstance(content, bytes) else content.encode())


def fill_pipe(writing):
    """Leaves no room in a pipe for a line. Returns with its end as it was: who writes there then waits."""
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(4096))
    os.set_blocking(writing, True)


def full_pipe():
    """Returns both ends of a pipe that has no room for a line."""
    reading, writing = os.pipe()
    fill_pipe(writing)
    return reading, writing


def read(path):
    with open(path, "rb") as f:
        return f.read()


def start(*arguments, **options):
    # What a search finds must not depend on how busy the machine is.
    if arguments[0] == "plan" and "--help" not in arguments and not any("seconds=" in word for word in arguments):
        arguments = "plan", f"seconds={TIMEOUT}", *arguments[1:]
    return subprocess.Popen([BINARY, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, errors="replace", **options)


def finish(process):
    try:
        out, err = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()  # or it would outlive the test
        raise
    return process.returncode, out, err


def run(*arguments, **options):
    return finish(start(*arguments, **options))


def good(*arguments, **options):
    """Runs a command that must succeed; returns its standard output."""
    code, out, err = run(*arguments, **options)
    assert code == 0, f"{arguments}: exit {code}, {err}"
    return out


def good_json(*arguments):
    """Runs a command that must print one JSON value on one line and nothing else; returns the value."""
    out = good(*arguments, "--json")
    assert out.count("\n") == 1 and out.endswith("\n"), f"{arguments}: not one line: {out[:200]}"
    return strict_json(out)


def strict_json(text):
    def refuse(name):
        raise ValueError(f"{name} is not JSON")
    return json.loads(text, parse_constant=refuse)


def refused(code, pattern, *arguments, **options):
    """Runs a command that must be refused: with this exit status, and one line of errors, which matches."""
    got, out, err = run(*arguments, **options)
    assert got == code, f"{arguments}: exit {got}, expected {code}; {err}"
    lines = err.splitlines()
    assert len(lines) == 1, f"{arguments}: not one line of error: {err}"
    assert lines[0].startswith(f"trireme {arguments[0]}: "), lines[0]
    assert re.search(pattern, lines[0]), f"{arguments}: {lines[0]!r} does not match {pattern!r}"
    return lines[0]


def snapshot(path):
    """Returns every file below path with its content, and every directory."""
    found = {}
    for directory, _, files in os.walk(path):
        found[directory] = None
        for name in files:
            found[os.path.join(directory, name)] = read(os.path.join(directory, name))
    return found


def flip(path, at):
    """Changes one byte of a file; a negative place counts from its end."""
    data = bytearray(read(path))
    data[at] ^= 0x40
    write(path, bytes(data))


def plant_token():
    """Writes token files bad/t, like text/t except for one token that is not a byte."""
    shutil.copytree("text", "bad")
    data = bytearray(read("bad/t.bin"))
    data[2001] = 1 # the high byte of token 1000
    write("bad/t.bin", bytes(data))
    os.remove("bad/t.sums")


def metrics(directory):
    with open(os.path.join(directory, "metrics.jsonl")) as f:
        return [strict_json(line) for line in f]


def weights(directory, step):
    checkpoint = f"{directory}/checkpoint/step-{step}"
    return read(f"{checkpoint}/model.safetensors"), read(f"{checkpoint}/training/state.safetensors")


def tensors(file):
    """Returns what the bytes of a safetensors file hold: {name: (shape, bytes)}."""
    length = int.from_bytes(file[:8], "little")
    header, body = json.loads(file[8:8 + length]), file[8 + length:]
    return {name: (entry["shape"], body[slice(*entry["data_offsets"])])
            for name, entry in header.items() if name != "__metadata__"}


def state(checkpoint):
    """What a checkpoint has of the training state, and how far its islands have come."""
    data = read(f"{checkpoint}/training/state.safetensors")
    length = int.from_bytes(data[:8], "little")
    progress = json.loads(read(f"{checkpoint}/training/progress.json"))
    return progress.get("islands"), sorted(json.loads(data[8:8 + length])), data[8 + length:]


def cores():
    """How many cores we may use; hardware threads of a core do not count."""
    siblings = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    paths = {number: siblings.format(number) for number in os.sched_getaffinity(0)}
    return len({read(path) if os.path.exists(path) else number for number, path in paths.items()})


def untouched(code, pattern, *arguments, **options):
    """Runs a command that must be refused (refused), and must leave the whole directory as it was."""
    before = snapshot(".")
    line = refused(code, pattern, *arguments, **options)
    assert snapshot(".") == before, f"{arguments}: files changed"
    return line


def edit_weights(directory, change):
    """Rewrites model.safetensors with what `change` makes of {name: (shape, bytes)}, all in f32."""
    path = f"{directory}/model.safetensors"
    weights = tensors(read(path))
    change(weights)
    at, header, body = 0, {}, b""
    for name, (shape, content) in weights.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(content)]}
        at += len(content)
        body += content
    text = json.dumps(header).encode()
    write(path, struct.pack("<Q", len(text)) + text + body)


def not_sanitized(test):
    """Skips a test, and says so, where sanitizers would make it take long."""
    if not SANITIZED:
        return test
    print(f"{test.__name__}: left out, as it takes long with sanitizers", flush=True)
    return None


def await_step(process, run):
    """Waits until a training in a run directory has done a step."""
    while not (os.path.exists(f"{run}/metrics.jsonl") and os.path.getsize(f"{run}/metrics.jsonl") > 0):
        assert process.poll() is None, finish(process)
        time.sleep(0.01)


def write_tensors(path, tensors, metadata=None):
    """Writes {name: (dtype, shape, bytes)} as a safetensors file."""
    at, header, body = 0, {"__metadata__": metadata} if metadata else {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(content)]}
        at += len(content)
        body += content
    text = json.dumps(header).encode()
    write(path, struct.pack("<Q", len(text)) + text + body)


def main(namespace):
    """Runs every function named test_*, each in a fresh prepared directory."""
    for name, function in list(namespace.items()):
        if name.startswith("test_") and callable(function):
            enter_prepared()
            begin = time.monotonic()
            function()
            print(f"{name}: passed, {time.monotonic() - begin:.1f} s", flush=True)
