"""Every command once, as a user would call it: what it prints, and the documented keys of its JSON."""

import contextlib
import fcntl
import glob
import gzip
import lzma
import json
import math
import os
import pty
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

import tool


def test_names_without_sections():
    """A key may be given by its name alone, and the same names mean the same to all commands that have a step."""
    commands = (["verify", "c.yaml"], ["show", "memory", "c.yaml"], ["simulate", "c.yaml", "cluster=cpu"],
                ["train", "c.yaml"], ["plan", "c.yaml", "cluster=cpu", "devices=1", "seconds=0.01"])
    names = ["global_batch_size=2", "--seq_len=8", "--tensor_parallel_degree", "1", "lr=1e-3", "mode=full",
             "path=text/t", "directory=alone", "--momentum=0.9"]
    for command in commands:
        tool.good(*command, *names)
        for other in ("--num-layers-per-virtual-pipeline-stage=2", "pipeline_parallel_layers_per_stage=2",
                      "virtual_stages=2", "--virtual-pipeline-model-parallel-size=2"):
            tool.refused(2, r"use parallelism\.pipeline_parallel_chunks", *command, other)
        tool.refused(2, r"steps: unknown key, given 2; use training\.steps or validation\.steps", *command, "steps=2")
    saved = tool.read("alone/config.yaml").decode()
    for line in "global_batch_size: 2 ", "seq_len: 8 ", "mode: full ":
        assert line in saved, (line, saved)


def test_prepare():
    tool.write("a.jsonl", '{"text": "one"}\n{"text": "zwei \\u00fc"}\n')
    os.makedirs("more/deep")
    tool.write("more/deep/b.txt", "drei")
    result = tool.good_json("prepare", "a.jsonl", "more", "--data.path=out/p")
    assert result["files"] == 2 and result["documents"] == 3 and result["vocab_size"] == 258, result
    assert result["text_bytes"] == 3 + 7 + 4 and result["tokens"] == result["text_bytes"] + 2 * 3, result
    begin, end = 256, 257
    assert struct.unpack("<20H", tool.read("out/p.bin")) == (
        begin, *b"one", end, begin, *"zwei \u00fc".encode(), end, begin, *b"drei", end)
    plain = tool.good("prepare", "a.jsonl", "more", "--data.path=out/q")
    assert plain.count("\n") == 1 and "20 tokens of 3 documents" in plain, plain
    assert tool.read("out/p.bin") == tool.read("out/q.bin") and tool.read("out/p.idx") == tool.read("out/q.idx")
    # A prefix may be given as one of its files; the message names the files that were written.
    tool.write("c.jsonl", '{"text": "x"}\n{"text": ""}\n')
    out = tool.good("prepare", "c.jsonl", "--data.path=out/r.bin")
    assert out == ("3 tokens of 1 document in 1 file are in out/r.bin and out/r.idx\n"
                   "left out: 1 document without text\n"), out
    assert os.path.exists("out/r.bin") and not os.path.exists("out/r.bin.bin")


def test_prepare_passes_over():
    os.makedirs("others/in")
    for name in "a.txt", "b.md", "c.MD", "in/e.csv", "in/LICENSE":
        tool.write(f"others/{name}", "words")
    out = tool.good("prepare", "others", "--data.path=out/others").splitlines()
    assert out[1:] == ["passed over, neither .txt nor .jsonl: 2 .md, 1 LICENSE, 1 .csv"], out
    os.remove("others/a.txt")
    tool.refused(2, "no .txt or .jsonl below this directory; there are 2 .md, 1 LICENSE, 1 .csv", "prepare", "others",
                 "--data.path=out/none")


def test_prepare_lines_of_python():
    """Lines as Python's json module writes them, and lines that are bad."""
    lines = [json.dumps({"score": float(score), "raw": "\ud800", "text": score})
             for score in ("nan", "inf", "-inf", "1")]
    lines += ['{"score": 1e400, "score": 2, "text": "\\u00fc"}']
    tool.write("p.jsonl", "\n".join(lines))
    result = tool.good_json("prepare", "p.jsonl", "--data.path=out/p")
    assert result["documents"] == 5 and result["bad_lines"] == 0, result
    tokens = struct.unpack("<23H", tool.read("out/p.bin"))
    assert bytes(token for token in tokens if token < 256).decode() == "naninf-inf1\u00fc", tokens
    tool.write("p.jsonl", "\n".join([lines[0], '{"text": null}', lines[3], '{"text": "cut']))
    tool.refused(4, 'p.jsonl line 2: the field "text" must be a string, found null', "prepare", "p.jsonl",
                 "--data.path=out/p")
    result = tool.good_json("prepare", "p.jsonl", "--data.path=out/p", "--data.bad_lines=skip")
    assert result["documents"] == 2 and result["bad_lines"] == 2, result
    out = tool.good("prepare", "p.jsonl", "--data.path=out/p", "--data.bad_lines=skip").splitlines()
    assert out[1:] == ['left out: 2 bad lines, the first: p.jsonl line 2: the field "text" must be a string, found '
                       "null"], out


def prepared_from(content, prefix):
    """Runs `prepare` with this standard input; returns exit status, output and errors."""
    process = subprocess.run([tool.BINARY, "prepare", "-", f"--data.path={prefix}"], input=content,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=tool.TIMEOUT, check=False)
    return process.returncode, process.stdout.decode(), process.stderr.decode()


def test_prepare_stream():
    lines = '\n {"text": "one"}\n{"text": "zwei \\u00fc"}\n' * 20000
    for name, content in ("s.jsonl", lines), ("s.txt", "It was {\n" * 20000), ("short.txt", "x"):
        tool.write(name, content)
        tool.good("prepare", name, "--data.path=of/file")
        code, out, err = prepared_from(content.encode(), "of/stream")
        assert code == 0 and "in 1 file are in of/stream.bin" in out and not err, (code, out, err)
        for end in "bin", "idx":
            assert tool.read(f"of/file.{end}") == tool.read(f"of/stream.{end}"), name
    # With other inputs, and a byte at a time.
    with subprocess.Popen([tool.BINARY, "prepare", "s.txt", "-", "--data.path=of/both", "--json"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for byte in b'\xef\xbb\xbf{"text": "abc"}':
            process.stdin.write(bytes([byte]))
            process.stdin.flush()
            time.sleep(0.01)
        process.stdin.close()
        result = tool.strict_json(process.stdout.read())
    assert result["files"] == 2 and result["documents"] == 2 and result["text_bytes"] == 180003, result
    kept = tool.snapshot("of")
    for content, status, words in ((b"", 2, "standard input: the input holds no text"),
                                   (b"{ but no JSON", 4, "standard input line 1: "),
                                   (b"ab\xff", 4, "standard input: not UTF-8 at byte 2")):
        code, out, err = prepared_from(content, "of/none")
        assert code == status and err.startswith(f"trireme prepare: {words}") and not out, (code, out, err)
    out = prepared_from(b"\n" * 500 + b'{"text": "a"}\n', "out/lines")[1]
    assert out.startswith("3 tokens of 1 document "), out
    for content in b'[{"text": "one"}, {"text": "two"}]', b'\n[\n  {"text": "one"}\n]\n':
        code, out, err = prepared_from(content, "of/none")
        assert code == 2 and "standard input: begins like a JSON array of objects" in err and "jq" in err, err
    assert prepared_from(b"[1] a note", "out/note")[0] == 0
    for content, program in ((b"caf\xe9", "iconv"), (lzma.compress(b"some text"), "unxz")):
        assert f"convert the text first, with {program} " in prepared_from(content, "of/none")[2]
    # What is packed is unpacked, whatever it is called.
    for content in gzip.compress(b"some text"), gzip.compress(b"some ") + gzip.compress(b"text"):
        assert prepared_from(content, "out/packed")[1].startswith("11 tokens of 1 document ")
        assert tool.read("out/packed.bin") == b"\0\1s\0o\0m\0e\0 \0t\0e\0x\0t\0\1\1"
    code, out, err = prepared_from(gzip.compress(b"some text")[:-3], "of/none")
    assert code == 4 and "standard input: its gzip is damaged at byte " in err and "ends too early" in err, err
    os.mkdir("packed")
    tool.write("packed/one.JSONL.gz", gzip.compress(b'{"text": "one"}\n{"text": "two"}\n'))
    tool.write("packed/three.txt.gz", gzip.compress(b"three"))
    tool.write("packed/four.md.gz", gzip.compress(b"four"))
    out = tool.good("prepare", "packed", "--data.path=out/folder")
    assert out.startswith("17 tokens of 3 documents in 2 files") and "1 .gz" in out, out
    tool.refused(2, "it cannot be read again", "prepare", "-", "-", "--data.path=of/none")
    # A process that waits for a line can be told to stop.
    with subprocess.Popen([tool.BINARY, "prepare", "-", "--data.path=of/none"], stdin=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        process.stdin.write(b"a line\n")
        process.stdin.flush()
        unread = bytearray(4)
        while fcntl.ioctl(process.stdin, termios.FIONREAD, unread) or any(unread):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(tool.TIMEOUT) == 130 and b"interrupted, nothing was written" in process.stderr.read()
    assert tool.snapshot("of") == kept


TRAINED = {"step", "loss", "val_loss", "checkpoint", "stopped", "predicted_bytes", "resident_bytes"}


def test_train():
    result = tool.good_json("train", "c.yaml")
    assert set(result) == TRAINED, result
    assert result["step"] == 6 and result["stopped"] is False, result
    lines = tool.metrics("run")
    keys = ["step", "loss", "grad_norm", "lr", "tokens", "tokens_per_second", "mfu", "peak_bytes", "time", "seconds",
            "wait_seconds"]
    assert [line["step"] for line in lines] == list(range(1, 7))
    for line in lines:
        evaluated = line["step"] % 3 == 0
        more = ["start_seconds"] * (line["step"] == 1) + ["val_loss", "validation_seconds"] * evaluated
        assert set(line) == set(keys + more), line
        assert line["tokens"] == line["step"] * 64 and line["peak_bytes"] > 0 and line["tokens_per_second"] > 0
    assert lines[-1]["loss"] < lines[0]["loss"] and lines[-1]["loss"] == result["loss"], lines
    names = set(os.listdir("run/checkpoint/step-6"))
    assert {"config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json", "training"} <= names
    config = json.loads(tool.read("run/checkpoint/step-6/config.json"))
    assert config["vocab_size"] == 258 and config["hidden_size"] == 16 and config["model_type"] == "llama", config
    # Lines account for all time: of steps, and of what came between them.
    begin = time.time()
    tool.good("train", "c.yaml", "--training.steps=60", "--validation.freq=30", "--validation.steps=200",
              "--checkpoint.interval=1", "--run.directory=longer")
    ended, longer = time.time(), tool.metrics("longer")
    # By each line the run began when the line says, less the seconds of all so far. A line is dated somewhat later than
    # its seconds end, on a busy machine by much: of ten lines one is not. What lines do not account for moves all that
    # follow.
    began, counted = [], 0
    for line in longer:
        counted += line["seconds"]
        began.append(line["time"] - counted)
    first, last = min(began[:10]), min(began[-10:])
    assert abs(last - first) < 0.05, (first, last, began)
    # The first line has all of the start, of which the lock is a part.
    assert begin - 0.01 < first < os.stat("longer/lock").st_mtime + 0.01, (begin, first)
    assert counted < ended - begin, (counted, ended - begin)
    for line in longer:
        assert math.isclose(64 / line["tokens_per_second"], line["seconds"], rel_tol=1e-2), line
        assert ("save_seconds" in line) == (line["step"] > 1) and ("start_seconds" in line) == (line["step"] == 1), line
        assert ("validation_seconds" in line) == (line["step"] % 30 == 0), line
        parts = sum(line.get(part + "_seconds", 0) for part in ("start", "save", "validation", "wait"))
        assert 0 <= parts <= line["seconds"] + 1e-5, line
    # Without validation.freq only the last step is validated.
    last = tool.good_json("train", "c.yaml", "--validation.freq=0", "--run.directory=seldom")
    losses = [line.get("val_loss") for line in tool.metrics("seldom")]
    assert last["val_loss"] == result["val_loss"] and losses == 5 * [None] + [last["val_loss"]], losses
    # Validation takes as many batches as the key says.
    one = tool.good_json("train", "c.yaml", "--validation.steps=1", "--run.directory=one")
    assert one["loss"] == result["loss"] and one["val_loss"] != result["val_loss"], (one, result)
    # Into a pipe: plain lines, no control characters, the validation loss last.
    code, out, err = tool.run("train", "c.yaml", "--run.directory=plain")
    assert code == 0 and "\r" not in out + err and "\033" not in out + err
    last = out.splitlines()[-1]
    assert last.startswith("validation loss ") and abs(float(last.split()[-1]) - result["val_loss"]) < 1e-4, out
    assert "warm-up" not in err, err
    # A run that ends within its warm-up may be intended: there is a note about it.
    code, _, err = tool.run("train", "c.yaml", "--run.directory=short", "--lr_scheduler.warmup_steps=7")
    assert code == 0 and "lr_scheduler.warmup_steps is 7, training.steps 6" in err, err
    code, _, err = tool.run("train", "c.yaml", "--run.directory=idle", "--momentum=0.5", "--outer.sync_steps=8")
    assert code == 0 and err.count("without effect: optimizer.momentum 0.5 (optimizer.name is adamw), outer.sync_steps "
                                   "8 (outer.method is none)\n") == 1, err
    # Lines are of every third step here, and of those that are validated, and of the last.
    code, out, _ = tool.run("train", "c.yaml", "--run.directory=lines", "--training.steps=8", "--validation.freq=4",
                            "--metrics.log_freq=3")
    assert code == 0 and re.findall(r"^step: (\d)/8  loss: ", out, re.MULTILINE) == ["3", "4", "6", "8"], out
    # Once more: there is nothing to do, and it says so.
    out = tool.good("train", "c.yaml", "--run.directory=plain")
    assert "all 6 steps are done: to go on, raise training.steps\n" in out and out.splitlines()[-1] == last, out
    # The resolved configuration makes the same run.
    tool.good("train", "plain/config.yaml", "--run.directory=again")
    assert tool.weights("plain", 6)[0] == tool.weights("again", 6)[0]


def on_terminal(columns, *arguments):
    """Runs a command on a terminal of this width; returns exit status, frames of the live line, and other lines."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([tool.BINARY, *arguments], stdin=subprocess.DEVNULL, stdout=side, stderr=side)
    os.close(side)
    out = b""
    while True:
        try:
            piece = os.read(main, 65536)
        except OSError: # the other side is closed
            piece = b""
        if not piece:
            break
        out += piece
    os.close(main)
    return process.wait(), out.decode().replace("\r\n", "\n").split("\r\033[K")


def test_generate_on_terminal():
    """What a model writes cannot control the terminal; a pipe gets exactly the bytes that it chose."""
    prompt = "t\033]0;title\007\t\u20ac\u009b2J\r\n"
    tool.write("control.txt", 300 * prompt)
    tool.good("prepare", "control.txt", "--data.path=control/t")
    tool.good("train", "c.yaml", "--data.path=control/t", "--training.steps=60",
              "--model.max_position_embeddings=64")
    arguments = ["generate", "run", f"--prompt={prompt}", "--max_new_tokens=40"]
    made = tool.good_json(*arguments)
    assert "\\x" not in made["text"] and any(ord(c) < 9 or ord(c) == 27 for c in made["text"]), made
    plain = subprocess.run([tool.BINARY, *arguments], stdout=subprocess.PIPE, check=True).stdout
    assert plain == prompt.encode() + bytes(made["tokens"]) + b"\n", plain
    code, [shown] = on_terminal(80, *arguments)
    shown = shown.replace("\r\n", "\n") # of the text; the terminal's own are gone
    assert code == 0 and shown.startswith("t\\x1b]0;title\\x07\t\u20ac\\xc2\\x9b2J\n"), shown
    assert all(c.isprintable() or c in "\t\n" for c in shown), shown


def test_terminal():
    steps = 600 if tool.SANITIZED else 3000
    code, frames = on_terminal(80, "train", "c.yaml", f"--training.steps={steps}", "--validation.freq=0")
    assert code == 0, frames[-1]
    live = [frame for frame in frames[:-1] if frame.startswith("step: ")]
    # A few frames a second, each within the width, with progress, loss, speed and time left.
    assert 1 <= len(live) < 1500, len(live)
    for frame in live:
        assert len(frame) < 80 and "\n" not in frame, frame
        assert all(part in frame for part in (f"/{steps}  loss: ", "  tps: ", "  left: ")), frame
    # What is not erased in the end is about the last step.
    lines = frames[-1].splitlines()
    assert re.match(rf"step: {steps}/{steps}  loss: \d+\.\d+  ", lines[0]), lines
    assert f"the model is in run/checkpoint/step-{steps}" in lines, lines

    # The live line never wraps, however narrow the terminal; one that does not know its width is taken to have 80.
    for columns, room in (20, 19), (2, 1), (0, 79):
        code, frames = on_terminal(columns, "train", "c.yaml", f"--run.directory=narrow{columns}")
        # On a loaded machine frames are left out, whichever they are. Lines that stay end.
        live = [frame for frame in frames[:-1] if frame.startswith("s") and "\n" not in frame]
        assert code == 0 and all(len(frame) <= room for frame in live), (columns, frames)


def stopped(*more):
    """Starts a new run and asks it to stop while it trains; returns its standard output and its last step."""
    shutil.rmtree("run", ignore_errors=True)
    process = tool.start("train", "c.yaml", "--training.steps=10000000", "--validation.freq=0", *more)
    deadline = time.monotonic() + tool.TIMEOUT
    while not os.path.exists("run/metrics.jsonl") or not os.path.getsize("run/metrics.jsonl"):
        assert process.poll() is None and time.monotonic() < deadline, process.poll()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    code, out, err = tool.finish(process)
    assert code == 75 and "stopped after step" in err, (code, err)
    return out, tool.metrics("run")[-1]["step"]


def test_stopped():
    """The last step is printed, wherever the run stops."""
    out, step = stopped("--metrics.log_freq=1000000000")
    assert out.splitlines()[-1].startswith(f"step: {step}/10000000  loss: "), out
    out, step = stopped("--json")
    result = tool.strict_json(out)
    assert set(result) == TRAINED and result["stopped"] is True and result["val_loss"] is None, result
    assert result["step"] == step and result["loss"] == tool.metrics("run")[-1]["loss"], result
    assert result["checkpoint"] == f"run/checkpoint/step-{step}" and os.path.exists(result["checkpoint"]), result


def test_closed_pipe():
    """A reader such as `| head -1` that has read enough is no error."""
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.run([tool.BINARY, "help", "config"], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert process.stderr == b"" and process.returncode == -signal.SIGPIPE, process
    # A training goes on, and says in the end what was not read.
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.run([tool.BINARY, "train", "c.yaml", "--metrics.log_freq=1"], stdout=writing,
                             stderr=subprocess.PIPE, check=False)
    os.close(writing)
    told = b"trireme train: standard output: cannot write: Broken pipe\n"
    assert process.returncode == 3 and process.stderr.endswith(told), process
    assert os.path.exists("run/checkpoint/step-6/model.safetensors")


def catches(process, number):
    """Whether a process has its own handler of a signal."""
    with open(f"/proc/{process.pid}/status", encoding="utf-8") as status:
        caught = re.search(r"^SigCgt:\s*(\w+)$", status.read(), re.MULTILINE)
    return int(caught[1], 16) >> (number - 1) & 1


def test_asked_twice():
    """Who asks twice does not wait for what a process is busy with: here for a pipe that is full and not read."""
    reading, writing = tool.full_pipe()
    with subprocess.Popen([tool.BINARY, "train", "c.yaml"], stdout=writing) as process:
        while not catches(process, signal.SIGTERM):
            assert process.poll() is None, process
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
        assert process.poll() is None, process
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(20) == 128 + signal.SIGTERM, process
        finally:
            process.kill()  # or it would outlive the test
    os.close(reading)
    os.close(writing)


def test_full_output():
    for command in ("help", "config"), ("simulate", "schedule=zb-v", "stages=4", "microbatches=8"), ("--version",):
        with open("/dev/full", "w", encoding="utf-8") as full:
            process = subprocess.run([tool.BINARY, *command], stdout=full, stderr=subprocess.PIPE, check=False)
        assert process.returncode == 3 and process.stderr.endswith(
            b"standard output: cannot write: No space left on device\n"), process


def test_exit_codes():
    """The list that the program prints is that of the man page."""
    listed = tool.good("help", "exit_codes")
    codes = [int(code) for code in re.findall(r"^ *(\d+)  ", listed, re.MULTILINE)]
    page = tool.read(f"{os.environ['TRIREME_SOURCE']}/docs/trireme.1").decode().split(".Sh EXIT STATUS")[1]
    described = [int(code) for line in re.findall(r"^\.It (\d.*)$", page, re.MULTILINE) for code in line.split(" , ")]
    assert described[:-1] == codes and len(set(codes)) == len(codes) == 13, (codes, described)
    assert "; did you mean exit_codes?" in tool.refused(2, "no command or key", "help", "exit_code")


def open_files(process):
    found = []
    for path in glob.glob(f"/proc/{process.pid}/fd/*"):
        with contextlib.suppress(OSError):  # it has been closed
            found.append(os.readlink(path))
    return found


def test_pipes():
    """A pipe without a writer is not waited for; what another program writes is read, however late."""
    os.mkfifo("pipe")
    nobody = "pipe: cannot read: it is a pipe that nobody writes to$"
    model, mesh = "--model.preset=gpt2-124m", ("--parallelism.pipeline_parallel_degree=2", "cluster=h100")
    tool.refused(2, nobody, "train", "pipe")
    tool.refused(3, nobody, "simulate", "--model.config=pipe", "cluster=h100")
    tool.refused(2, nobody, "simulate", model, "cluster=./pipe")
    tool.refused(2, nobody, "simulate", model, "--parallelism.pipeline_parallel_schedule=./pipe", *mesh)
    tool.refused(2, nobody, "bench", "calibrate", "cluster=a100", "from=pipe")
    for command in ("plan", model, "cluster=h100", "devices=1", "save=pipe"), ("bench", "calibrate", "out=pipe"):
        tool.refused(2, "(save|out): pipe: cannot write: it is a pipe that nobody reads$", *command)
    os.mkdir("to")
    tool.good("prepare", "t.txt", "--data.path=to/t")
    os.remove("to/t.idx")
    os.mkfifo("to/t.idx")
    tool.refused(2, "to/t.bin: is in the way", "prepare", "t.txt", "--data.path=to/t")

    tool.write("one.yaml", "model: {preset: gpt2-124m}\n")
    expected = tool.good_json("simulate", "one.yaml", "cluster=h100")["step_seconds"]
    for script in ('exec "$0" simulate <(sleep 1.5; cat one.yaml) cluster=h100 --json',
                   'cat one.yaml | "$0" simulate /dev/stdin cluster=h100 --json'):
        out = subprocess.run(["bash", "-c", script, tool.BINARY], stdout=subprocess.PIPE, timeout=tool.TIMEOUT,
                             check=True).stdout
        assert tool.strict_json(out)["step_seconds"] == expected, (script, out)
    # A pipe without a writer yet is waited for a moment: the waiting process has it open.
    process = tool.start("simulate", "pipe", "cluster=h100", "--json")
    while os.path.abspath("pipe") not in open_files(process):
        assert process.poll() is None, tool.finish(process)
        time.sleep(0.001)
    with open("pipe", "wb") as writing:
        writing.write(tool.read("one.yaml"))
    code, out, err = tool.finish(process)
    assert code == 0 and tool.strict_json(out)["step_seconds"] == expected, (code, out, err)


def test_show():
    program = tool.good("show", "program", "c.yaml")
    assert program.startswith("program train ") and "matmul" in program
    tool.refused(2, "a program is text: leave --json out", "show", "program", "c.yaml", "--json")
    memory = tool.good_json("show", "memory", "c.yaml")
    assert memory["predicted_bytes"] == memory["state_bytes"] + memory["step_bytes"]
    kinds = memory["parameter_bytes"] + memory["gradient_bytes"] + memory["optimizer_bytes"]
    assert 0 <= memory["state_bytes"] - kinds < 4096, memory # but for alignment
    assert max(memory["live_bytes"]) == memory["peak_live_bytes"] <= memory["step_bytes"]
    sizes = [tensor["bytes"] for tensor in memory["at_peak"]]
    assert sizes and sizes == sorted(sizes, reverse=True) and all(t["name"] for t in memory["at_peak"])
    assert sum(sizes) == memory["peak_live_bytes"], memory # of one microbatch at a time
    # What the step's arena takes over that, as a share of it.
    assert abs(memory["waste"] - (memory["step_bytes"] / memory["peak_live_bytes"] - 1)) < 1e-9, memory
    # The batch counts with all of its microbatches.
    many = tool.good_json("show", "memory", "c.yaml", "training.global_batch_size=4096", "training.micro_batch_size=1")
    sizes = [tensor["bytes"] for tensor in many["at_peak"]]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == 4096 * 16 * 4, many["at_peak"][:5]
    # A pipeline holds what it will need of other microbatches.
    stages = ("show", "memory", "c.yaml", "model.num_hidden_layers=2", "--ranks=2", "--pipeline_parallel_degree=2",
              "pipeline_parallel_schedule=gpipe", "training.global_batch_size=8", "training.micro_batch_size=1")
    held = tool.good_json(*stages)
    sizes = sum(tensor["bytes"] for tensor in held["at_peak"])
    others = held["held_for_others_bytes"]
    assert others + sizes == held["peak_live_bytes"] and others > 7 * 30000, held
    assert "kB are held for other microbatches; the largest for this one:" in tool.good(*stages)
    text = tool.good("show", "memory", "c.yaml")
    assert memory["held_for_others_bytes"] == 0 and "held for other" not in text, text
    assert "live at the peak" in text and " 0.0 " not in text and " kB" in text, text
    tool.refused(2, r"show\.rank: given 1, but ranks are numbered from 0 to 0$", "show", "memory", "c.yaml", "--rank=1")
    tool.refused(2, r"show\.rank: given 0, but a timeline has all ranks", "show", "timeline", "c.yaml", "--rank=0")
    tool.good("train", "c.yaml", "training.steps=1")
    assert "rank: 0" in tool.read("run/config.yaml").decode()
    for command in ["show", "program"], ["show", "memory"], ["show", "timeline"], ["verify"]:
        tool.good(*command, "run/config.yaml")
    trace = tool.strict_json(tool.good("show", "timeline", "c.yaml"))
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert events and all(e["dur"] >= 0 and e["ts"] >= 0 and e["name"] for e in events)
    # A step that was done before has no trace, unless its trace was requested in time.
    code, _, err = tool.run("train", "c.yaml", "--training.steps=2", "--profiling.trace_step=1")
    told = "no trace is written: step 1, which profiling.trace_step names, is done"
    assert code == 0 and err.splitlines().count(told) == 1 and not os.path.exists("run/trace"), (code, err)
    for steps in 4, 6:
        code, _, err = tool.run("train", "c.yaml", "--profiling.trace_step=3", f"--training.steps={steps}")
        assert code == 0 and "trace" not in err, (code, err)
    assert tool.strict_json(tool.read("run/trace/step-3.json"))["traceEvents"]


def test_more_tokens_than_the_tokenizer_has():
    tool.good("train", "c.yaml", "--model.vocab_size=5000", "--training.steps=1")
    for seed in range(3):
        made = tool.good_json("generate", "run", "--prompt=hi", "--max_new_tokens=8", f"--seed={seed}")
        assert len(made["tokens"]) == 8 and max(made["tokens"]) < 258, made


def test_verify():
    programs = tool.good_json("verify", "c.yaml")["programs"]
    assert [p["program"] for p in programs] == ["train", "evaluate"] and all(p["sound"] for p in programs), programs
    # A key may come without section and dashes, and the path of a file may contain an '='.
    shutil.copy("c.yaml", "ranks=2")
    assert "ranks" not in tool.good("verify", "ranks=2") and "on 4 ranks" in tool.good("verify", "c.yaml", "ranks=4")
    os.mkdir("lr=3")
    shutil.move("ranks=2", "lr=3/c.yaml")
    # All stages are counted: two of one layer each have more to do than one of one layer.
    two = tool.good_json("verify", "./lr=3/c.yaml", "--pipeline_parallel_degree=2", "--model.num_hidden_layers=2",
                         "--training.micro_batch_size=4")["programs"]
    for one, both in zip(programs, two):
        for count in "instructions", "buffers":
            assert both["programs"] == 2 and both[count] > one[count], (one, both)
    assert "sound" in tool.good("verify", "c.yaml", "--activation_checkpoint.mode=full")
    # No tokens are read, so a vocabulary smaller than that of bytes will do.
    # Groups with more microbatches than stages, with all ranks coming to the loss together; waves.
    pipelines = (5, 2, 9, "interleaved"), (8, 2, 15, "interleaved"), (7, 2, 27, "interleaved"), (3, 4, 7, "hanayo")
    for stages, chunks, microbatches, schedule in pipelines[::3] if tool.SANITIZED else pipelines:
        assert "sound" in tool.good("verify", "c.yaml", f"--model.num_hidden_layers={stages * chunks}",
                                    f"--training.global_batch_size={microbatches}", "--training.micro_batch_size=1",
                                    f"--pipeline_parallel_degree={stages}", f"--pipeline_parallel_chunks={chunks}",
                                    f"--pipeline_parallel_schedule={schedule}", "--vocabulary_parallel=true")
    # Ranks with only one column of a layer, one feature of a head or one row of a microbatch.
    for words in (["--model.intermediate_size=2"], ["--model.intermediate_size=2", "--data_parallel_shard_degree=2"],
                  ["--model.family=gpt2", "--model.hidden_size=2"]):
        assert "sound" in tool.good("verify", "c.yaml", "--tensor_parallel_degree=2", *words)
    assert "sound" in tool.good("verify", "c.yaml", "--model.num_hidden_layers=2", "--training.micro_batch_size=1",
                                "--training.seq_len=1", "--pipeline_parallel_degree=2", "--vocabulary_parallel=true",
                                "--data_parallel_shard_degree=2")
    assert "sound" in tool.good("verify", "c.yaml", "--data.path=", "--model.vocab_size=31", "--data.split=[1, 0]",
                                "--validation.freq=0")
    tool.refused(2, "numbered up to 257", "train", "c.yaml", "--model.vocab_size=31")


def time_to_prove(layers):
    """The least processor seconds to compile and prove the program of a rank of eight, with parts of so many layers."""
    settings = ["--model.family=llama", f"--model.num_hidden_layers={layers}", "--model.num_attention_heads=2",
                "--model.hidden_size=32", "--training.seq_len=16", "--training.kernel_choice=rule", "--ranks=8",
                "--parallelism.data_parallel_shard_degree=8"]
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        tool.good("verify", *settings)
        seconds.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
    return min(seconds)


def test_time_to_prove():
    """The time to prove a program grows with the layers, not with their square."""
    if not tool.SANITIZED:
        few, many = time_to_prove(400), time_to_prove(2400)
        assert many < 10 * few, (few, many)


def test_bench():
    # The machine's peak is timed with every step.
    step = tool.good_json("bench", "step", "c.yaml", f"--training.steps={1 if tool.SANITIZED else 2}")
    assert {"tokens_per_second", "mfu", "peak_flops", "predicted_bytes", "resident_bytes"} <= set(step), step
    assert step["tokens_per_second"] > 0 and step["peak_flops"] > 0 and step["resident_bytes"] > 0
    kernels = step["kernels"]
    assert kernels and all(0 < k["seconds"] <= k["rule_seconds"] and k["call"].startswith("matmul") for k in kernels)
    # The limit is the longer of the times for operations and for bytes, which is that for bytes in an update, unless
    # the peak was timed while others had the cores.
    update, = (op for op in step["ops"] if op["op"] == "adamw")
    bandwidth = update["bytes_per_second"] / step["memory_bandwidth"]
    assert update["of_limit"] > bandwidth * (1 - 1e-6), update
    if 2 * update["flops_per_second"] / step["peak_flops"] < bandwidth:
        assert abs(update["of_limit"] / bandwidth - 1) < 1e-6, update
    one = "bench", "step", "c.yaml", "--training.steps=1"
    assert "kernels" not in tool.good_json(*one, "--training.kernel_choice=rule")
    # Without a model, four sequences of GPT-2 divided among the ranks.
    alone = ("--training.seq_len=8", "--training.steps=1", "--training.kernel_choice=rule",
             "--model.num_hidden_layers=1", "--model.vocab_size=512")
    assert tool.good("bench", "step", "--ranks=2", *alone).startswith("2 ranks (fsdp 2)")
    size = 3 if tool.SANITIZED else 15 # with more rows, operations of products take longer than their bytes
    many = tool.good_json("bench", "step", "--ranks=2", f"--training.micro_batch_size={size}", *alone)
    assert round(many["tokens_per_second"] * many["step_seconds"]) == 2 * size * 8, many
    # A rank has half of the machine.
    for op in many["ops"]:
        of_half = max(op["flops_per_second"] / many["peak_flops"], op["bytes_per_second"] / many["memory_bandwidth"])
        assert op["of_limit"] >= 1.999 * of_half, (op, many)
    if tool.SANITIZED: # what follows is more of the same
        return
    said = tool.good(*one)
    assert f"{len(kernels)} shapes timed in every way" in said, said
    peak = tool.good_json("bench", "peak", "--training.threads=1")
    assert peak["f32_flops"] > 0 and peak["bf16_flops"] > 0 and peak["threads"] == 1, peak
    said = tool.good("bench", "peak", "--training.threads=2", env={**os.environ, "OMP_THREAD_LIMIT": "1"})
    assert said.startswith("peak of 1 thread: "), said


def test_what_cannot_be_opened():
    """What cannot be opened is not called missing. A link to itself stands for a directory that may not be entered."""
    tool.good("train", "c.yaml")
    os.symlink("round", "round")
    shutil.copytree("run/checkpoint/step-6", "model")
    wrong = r": cannot open: Too many levels of symbolic links$"
    for command in ["eval", "run", "data.path=round/t"], ["train", "c.yaml", "data.path=round/t"]:
        tool.refused(3, r"round/t\.bin" + wrong, *command)
    for name in "config.json", "tokenizer.json":
        os.remove("model/" + name)
        os.symlink(name, "model/" + name)
    for command in ["generate", "model"], ["eval", "model", "data.path=text/t"], ["verify", "model.config=model"]:
        tool.refused(3, r"model/config\.json" + wrong, *command)
    os.remove("model/config.json")
    os.remove("model/manifest.json")
    shutil.copy("run/checkpoint/step-6/config.json", "model")
    tool.refused(3, r"model/tokenizer\.json" + wrong, "generate", "model")
    for command in ["generate", "round"], ["eval", "round", "data.path=text/t"]:
        tool.refused(3, "round" + wrong, *command)


def test_help():
    overview = tool.good("help")
    for command in ("prepare", "train", "eval", "generate", "checkpoint", "show", "verify", "simulate", "plan",
                    "bench"):
        assert f"\n  {command:10} " in overview
        assert f"trireme {command} " in tool.good("help", command) == tool.good(command, "--help")
        assert "\nexample: trireme " + command in tool.good("help", command)
    # Descriptions of commands begin in one column, on a new line where the arguments are long.
    columns = {line.index(says) for line in overview.splitlines()
               for says in ("train, or go on", "predict a step", "what the machine") if says in line}
    assert columns == {50}, overview
    keys = {key["key"] for key in tool.good_json("help", "config")["keys"]}
    assert {"data.path", "training.steps", "optimizer.lr", "model.preset"} <= keys
    assert all(key in tool.good("help", "config") for key in keys)
    for line in tool.good("help", "schedules").splitlines()[1:]:
        assert len(line.split()) > 3 and tool.good_json(
            "simulate", f"schedule={line.split()[0]}", "stages=2", "microbatches=4")["cost"] > 0, line
    assert "gpt2-124m" in tool.good("help", "models") and "optimizer.lr" in tool.good("help", "optimizer.lr")
    # A name that only one section has needs no section.
    assert tool.good("help", "dtype") == tool.good("help", "training.dtype")
    tool.refused(2, "steps: unknown key; use training.steps or validation.steps", "help", "steps")
    models = {model["preset"]: model for model in tool.good_json("help", "models")["models"]}
    assert models["gpt2-124m"]["parameters"] == 124439808 and models["gpt2-124m"]["vocab_size"] == 50257, models
    section = tool.good("help", "optimizer")
    assert section.startswith("optimizer: ") and "optimizer.momentum" in section and "training." not in section
    assert tool.good_json("help", "optimizer.lr")["keys"][0]["key"] == "optimizer.lr"
    assert "generate.top_k" in tool.good("help", "generate")
    # A section with a command's name: for people with the command, for programs as any other.
    assert "checkpoint.keep_best_k" in tool.good("help", "checkpoint")
    assert "checkpoint.keep_every" in {key["key"] for key in tool.good_json("help", "checkpoint")["keys"]}
    tool.refused(2, "help train is text", "help", "train", "--json")
    assert tool.refused(2, "unknown key", "help", "nonsense").startswith("trireme help: nonsense: ")
    for topic, meant in ("trian", "train"), ("cluster", "clusters"):
        tool.refused(2, f'no command or key "{topic}"; did you mean {meant}[?]', "help", topic)
    for name, where in ("llama3-8b", "models"), ("h100", "clusters"), ("zb-v", "schedules"):
        tool.refused(2, f'no command or key "{name}", but it is in `trireme help {where}`', "help", name)
    tool.refused(2, "parallel: unknown key; the nearest is the section parallelism ", "help", "parallel")
    assert "trireme --version " in overview and tool.good("--version").startswith("trireme ")


def test_one_process():
    """Commands that run as one process are refused among several, by the first of them, and run in a job's script. Open
    MPI's launcher ends the others once one has failed: a process that is still alive then reports it, too."""
    shown = ("show", "memory", "c.yaml")
    started = []  # all at once: who is not the first waits before it tells
    for rank in "0", "1":
        for launcher in ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": rank},
                         {"SLURM_NTASKS": "2", "SLURM_PROCID": rank, "SLURM_STEP_ID": "0"}):
            for words, what in (shown, "show"), (("bench", "peak"), "peak"):
                told = (f"trireme {words[0]}: {what} runs as one process, but the launcher started 2: "
                        "run it without mpirun or srun\n")
                tells = rank == "0" or "OMPI_COMM_WORLD_RANK" in launcher
                process = tool.start(*words, env={**os.environ, **launcher})
                started.append((process, (2, "", told if tells else ""), launcher))
            tool.good("help", env={**os.environ, **launcher})
    for process, expected, launcher in started:
        answer = tool.finish(process)
        assert answer == expected, (launcher, answer)
    script = {**os.environ, "SLURM_NTASKS": "2", "SLURM_PROCID": "0"}
    assert tool.good(*shown, env=script) == tool.good(*shown)


tool.main(globals())
