"""Training does not wait for whoever reads what it says: a pipe or a terminal that is held, slow or gone."""

import ctypes
import glob
import os
import pty
import re
import shutil
import signal
import subprocess
import termios
import time

import tool

TRAIN = ["train", "c.yaml", "--validation.freq=0", "--metrics.log_freq=1", "--checkpoint.interval=0"]
ENDLESS = [*TRAIN, "--training.steps=100000000"]
LEFT_OUT = r"\((\d+) lines? left out here: nobody read them in time\)"
QUEUE_LINES = 2500  # more than the pipe and the program's own queue have room for


def begin(*arguments, **streams):
    shutil.rmtree("run", ignore_errors=True)
    return subprocess.Popen([tool.BINARY, *arguments], stdin=subprocess.DEVNULL, **streams)


def await_steps(process, least):
    deadline = time.monotonic() + tool.TIMEOUT
    while not os.path.exists("run/metrics.jsonl") or tool.read("run/metrics.jsonl").count(b"\n") < least:
        assert process.poll() is None and time.monotonic() < deadline, process.poll()
        time.sleep(0.02)


def ends(process, code):
    """Checks that a process ends by itself, and soon."""
    try:
        got = process.wait(60)
    finally:
        process.kill()  # or it would outlive the test
    assert got == code, got


def ends_saved(process):
    ends(process, 75)
    step = tool.metrics("run")[-1]["step"]
    assert os.listdir("run/checkpoint") == [f"step-{step}"], (step, os.listdir("run/checkpoint"))


def test_nobody_reads():
    for number, more, err_too in ((signal.SIGTERM, [], True), (signal.SIGUSR1, ["--ranks=2"], True),
                                  (signal.SIGINT, ["--json"], False)):
        reading, writing = tool.full_pipe()
        process = begin(*ENDLESS, *more, stdout=writing, stderr=writing if err_too else subprocess.PIPE)
        await_steps(process, 200 if more else QUEUE_LINES)
        process.send_signal(number)
        ends_saved(process)
        # The other stream is not held up by the full one.
        assert err_too or b"\ntrireme train: stopped after step " in process.stderr.read()
        os.close(reading)
        os.close(writing)


def test_nobody_reads_the_end():
    """What nobody has read in the end could not be written."""
    reading, writing = tool.full_pipe()
    process = begin(*TRAIN, stdout=writing, stderr=subprocess.PIPE)
    ends(process, 3)
    assert process.stderr.read().endswith(b"trireme train: standard output: cannot write: nobody reads it\n")
    assert os.path.exists("run/checkpoint/step-6/model.safetensors")
    os.close(reading)
    os.close(writing)


def test_reads_late():
    """Who reads late gets all lines, or how many are missing in each place, and the end in any case."""
    steps = QUEUE_LINES + 500
    process = begin(*TRAIN, f"--training.steps={steps}", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    await_steps(process, steps - 100)
    out = process.stdout.read().decode()
    ends(process, 0)
    last, missing, gaps = 0, 0, 0
    for line in out.splitlines():
        step, left_out = re.match(r"step: (\d+)/", line), re.fullmatch(LEFT_OUT, line)
        if left_out:
            missing += int(left_out[1])
            gaps += 1
        elif step:
            assert int(step[1]) == last + missing + 1, (line, last, missing)
            last, missing = int(step[1]), 0
    assert last == steps and gaps == 1 and missing == 0, (last, gaps, missing)
    assert re.search(rf"\nthe model is in run/checkpoint/step-{steps}\nvalidation loss \d\.\d+\n$", out), out[-200:]


def test_reads_slowly():
    """A reader that keeps reading gets everything, in order."""
    process = begin(*TRAIN, "--training.steps=2000", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    out = b""
    while piece := os.read(process.stdout.fileno(), 4096):
        out += piece
        time.sleep(0.01)
    ends(process, 0)
    assert [int(step) for step in re.findall(rb"^step: (\d+)/", out, re.MULTILINE)] == list(range(1, 2001)), out[-500:]


def test_held_terminal():
    """Ctrl-S on a terminal, on which the live line is drawn."""
    main, side = pty.openpty()
    termios.tcflow(side, termios.TCOOFF)
    process = begin(*ENDLESS, stdout=side, stderr=side)
    await_steps(process, 200)
    process.send_signal(signal.SIGTERM)
    ends_saved(process)
    os.close(main)
    os.close(side)


def hold_busiest_thread(process):
    """Stops the thread that has computed most for good, as a debugger does; None where that is not allowed."""
    seize, interrupt = 0x4206, 0x4207
    used = {}
    for path in glob.glob(f"/proc/{process.pid}/task/*/stat"):
        used[int(path.split("/")[4])] = int(tool.read(path).rsplit(b")", 1)[1].split()[11])
    thread = max((t for t in used if t != process.pid), key=used.get)
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long] * 4
    return thread if ptrace(seize, thread, 0, 0) == 0 and ptrace(interrupt, thread, 0, 0) == 0 else None


def await_end_of_held(process, thread):
    """A process whose thread is held does not count as ended until that has been noticed."""
    clones_too, deadline = 0x40000000, time.monotonic() + 60
    while not os.WIFSTOPPED(os.waitpid(thread, clones_too)[1]):
        pass
    while os.waitpid(thread, os.WNOHANG | clones_too) == (0, 0):
        if time.monotonic() > deadline:
            process.kill()
        time.sleep(0.1)


def test_hung_rank():
    """A rank hangs while nobody reads: the run ends all the same."""
    reading, writing = tool.full_pipe()
    process = begin(*ENDLESS, "--ranks=2", "--comm.train_timeout_seconds=2", stdout=writing, stderr=subprocess.PIPE,
                    env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})  # which would hold all threads itself
    await_steps(process, 500)
    thread = hold_busiest_thread(process)
    if not thread:
        print("left out: threads may not be held here", flush=True)
        process.kill()
        return
    await_end_of_held(process, thread)
    ends(process, 8)
    lines = process.stderr.read().decode().splitlines()
    assert len(lines) == 1 and re.search(r"^trireme train: .*rank \d", lines[0]), lines
    os.close(reading)
    os.close(writing)


def test_order():
    """What both streams hold back for the same reader comes in order."""
    reading, writing = tool.full_pipe()
    process = begin(*ENDLESS, "--checkpoint.interval=10", stdout=writing, stderr=writing)
    os.close(writing)
    await_steps(process, 300)
    process.send_signal(signal.SIGTERM)
    with open(reading, "rb") as out:
        lines = out.read().lstrip(b"\0").decode().splitlines()
    ends(process, 75)
    step = last = 0
    for line in lines:
        if found := re.match(r"step: +(\d+)/", line):
            step = int(found[1])
        elif found := re.fullmatch(r"saved run/checkpoint/step-(\d+)", line):
            # It is done some steps later, but before the next one begins.
            assert last < int(found[1]) <= step <= int(found[1]) + 10, (line, step)
            last = int(found[1])
    assert sum(line.startswith("saved ") for line in lines) >= 30, lines


if __name__ == "__main__":
    tool.main(globals())
