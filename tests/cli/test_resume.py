"""A run that was stopped and went on ends with the bits of one that was not; damaged checkpoints are passed over."""

import contextlib
import fcntl
import glob
import json
import os
import re
import shutil
import signal
import stat
import struct
import subprocess
import time

import tool


def same_end(a, b, step):
    assert tool.weights(a, step)[0] == tool.weights(b, step)[0]
    timed = ("tokens_per_second", "mfu", "peak_bytes", "time")
    plain = [[{k: v for k, v in line.items() if k not in timed and not k.endswith("seconds")}
              for line in tool.metrics(d)] for d in (a, b)]
    assert plain[0] == plain[1], plain


def test_older_checkpoint():
    for dtype in "f32", "bf16":
        tool.good("train", "c.yaml", f"--training.dtype={dtype}", f"--run.directory=whole-{dtype}")
        # Checkpoints of every step; without the newer ones the run goes on from an older one and repeats the rest.
        arguments = ["train", "c.yaml", f"--training.dtype={dtype}", "--checkpoint.interval=1",
                     "--checkpoint.keep_latest_k=0", f"--run.directory=parts-{dtype}"]
        tool.good(*arguments)
        assert len(os.listdir(f"parts-{dtype}/checkpoint")) == 6
        for step in 3, 4, 5, 6:
            os.rename(f"parts-{dtype}/checkpoint/step-{step}", f"parts-{dtype}/checkpoint/away-{step}")
        out = tool.good(*arguments)
        assert f"going on from parts-{dtype}/checkpoint/step-2" in out, out
        same_end(f"whole-{dtype}", f"parts-{dtype}", 6)


def test_ends_early():
    """A loss that no longer falls ends the run, and what was counted of that survives: by min_delta only the first of
    these losses is better than all before."""
    early = ["--validation.freq=1", "--validation.patience=3", "--validation.min_delta=9"]
    for name, ranks in ("early", ()), ("early2", ("--ranks=2",)):
        tool.good("train", "c.yaml", *early, f"--run.directory={name}", "--training.steps=2", *ranks)
        for again in range(2):
            code, out, err = tool.run("train", "c.yaml", *early, f"--run.directory={name}", *ranks)
            assert code == 0 and max(os.listdir(f"{name}/checkpoint")) == "step-4", (code, out, err)
            best = tool.metrics(name)[0]["val_loss"]
            assert f"ends early, after step 4 of 6: for 3 validations the loss has not been 9 below the best one, " \
                   f"{best:.4f}" in err, err
            assert f"the model is in {name}/checkpoint/step-4" in out and "validation loss" in out, out
        assert len(tool.metrics(name)) == 4
        # More patience, more steps; and one that is always better never ends early.
        tool.good("train", "c.yaml", *early, f"--run.directory={name}", "--validation.patience=4", *ranks)
        assert max(os.listdir(f"{name}/checkpoint")) == "step-5"
        tool.good("train", "c.yaml", *early[:2], f"--run.directory={name}", "--validation.patience=5", *ranks)
        assert max(os.listdir(f"{name}/checkpoint")) == "step-6"
    # From the best loss on, not from the last one: those of steps 1 and 3 are better, those of 2, 4 and 5 are not.
    delta = 0.2
    tool.good("train", "c.yaml", *early[:1], "--validation.patience=2", f"--validation.min_delta={delta}",
              "--run.directory=best")
    losses = [line["val_loss"] for line in tool.metrics("best")]
    assert losses[0] - losses[1] < delta and losses[1] - losses[2] < delta < losses[0] - losses[2], losses
    assert losses[2] - losses[4] < delta and len(losses) == 5, losses
    tool.refused(2, r"validation.patience: given 3, but nothing is validated before the last step", "train", "c.yaml",
                 "--validation.patience=3", "--validation.freq=0", "--run.directory=none")


def test_states_in_a_file():
    # Where the optimizer's states are is nothing that a checkpoint knows; on the way back the mesh may differ, too.
    for ranks in (), ("--ranks=2", "--parallelism.data_parallel_shard_degree=2", "--parallelism.zero_stage=1"):
        tool.good("train", "c.yaml", f"--run.directory=plain{len(ranks)}", *ranks)
        parts = ["train", "c.yaml", "--checkpoint.interval=2", "--checkpoint.keep_latest_k=0",
                 f"--run.directory=offload{len(ranks)}", *ranks]
        tool.good(*parts, "--optimizer.offload=file")
        same_end(f"plain{len(ranks)}", f"offload{len(ranks)}", 6)
        for away in 4, 6:
            os.rename(f"offload{len(ranks)}/checkpoint/step-{away}", f"offload{len(ranks)}/checkpoint/away-{away}")
        tool.good(*parts) # in memory again
        same_end(f"plain{len(ranks)}", f"offload{len(ranks)}", 6)
    # From two ranks to one with the states in a file: those of memory.
    for name, more in ("one", ()), ("other", ("--optimizer.offload=file",)):
        shutil.copytree("offload3", name)
        for step in 4, 6:
            shutil.rmtree(f"{name}/checkpoint/step-{step}")
        tool.good("train", "c.yaml", f"--run.directory={name}", *more)
    same_end("one", "other", 6)


def test_by_its_directory():
    """Where neither a file nor a model is named, the run in run.directory goes on as it was configured."""
    tool.good("train", "c.yaml", "--run.directory=own", "--optimizer.lr=0.02", "--validation.freq=0")
    _, out, _ = tool.run("train", "--run.directory=own")
    assert "all 6 steps are done" in out and "own/checkpoint/step-6" in out, out
    tool.good("train", "--run.directory=own", "--training.steps=8", "--validation.freq=0")
    assert "lr: 0.02 " in tool.read("own/config.yaml").decode() and os.path.isdir("own/checkpoint/step-8")
    os.rename("own", "moved")
    tool.good("train", "--run.directory=moved", "--training.steps=9")
    assert os.path.isdir("moved/checkpoint/step-9") and not os.path.exists("own")
    os.rename("moved", "run")  # the default
    tool.good("train", "training.steps=10")
    assert os.path.isdir("run/checkpoint/step-10")
    tool.refused(2, "data.path is not given", "train", "--run.directory=nosuch")


def test_checkpoints_on_another_disk():
    """Before a run begins, its checkpoint/ may be made a link to where there is room; but not to what is there."""
    os.makedirs("linked")
    os.makedirs("disk")
    os.symlink("../disk", "linked/checkpoint")
    tool.good("train", "c.yaml", "--run.directory=linked", "--training.steps=2")
    tool.good("train", "c.yaml", "--run.directory=linked", "--training.steps=3")
    assert os.path.islink("linked/checkpoint") and sorted(os.listdir("disk")) == ["step-2", "step-3"]
    os.makedirs("second")
    os.symlink("../disk", "second/checkpoint")
    tool.refused(2, "run.directory second holds checkpoint, but is no run.s", "train", "c.yaml",
                 "--run.directory=second")


def test_a_copy():
    tool.good("train", "c.yaml")
    os.remove("run/lock")  # empty files get lost
    assert "going on from run/checkpoint/step-6" in tool.good("train", "c.yaml", "--training.steps=7")
    shutil.rmtree("run/checkpoint")
    code, _, err = tool.run("train", "c.yaml", "--training.steps=7")
    assert code == 0 and "run holds no checkpoint: from the first step on, again" in err, (code, err)
    assert [line["step"] for line in tool.metrics("run")] == list(range(1, 8))


def test_lines_that_are_no_steps():
    """Lines between those of steps do not keep these from staying."""
    train = ["train", "c.yaml", "--checkpoint.interval=2", "--checkpoint.keep_latest_k=0", "--validation.freq=0"]
    tool.good(*train)
    shutil.rmtree("run/checkpoint/step-6")
    lines = tool.read("run/metrics.jsonl").splitlines(True)
    notes = [b"# restarted here\n", lines[1][:30] + b"\0\n", b'{"note": 1}\n']

    def go_on(content, checkpoint, stays, told):
        tool.write("run/metrics.jsonl", content)
        code, out, err = tool.run(*train)
        assert code == 0 and f"going on from run/checkpoint/step-{checkpoint}" in out, (code, out, err)
        assert re.findall("run/metrics.jsonl.*", err) == told, err
        now = tool.read("run/metrics.jsonl").splitlines(True)
        assert now[:len(stays)] == stays, now
        assert [tool.strict_json(line)["step"] for line in now[len(stays):]] == [*range(checkpoint + 1, 7)], now
        shutil.rmtree("run/checkpoint/step-6")

    # Steps 5 and 6 are done again, wherever their lines are.
    go_on(b"".join([*lines[:2], notes[0], *lines[2:]]), 4, [*lines[:2], notes[0], *lines[2:4]],
          ["run/metrics.jsonl: 1 line is no step's and stays, the first is line 3"])
    go_on(b"".join([notes[2], *lines[:5], notes[1], lines[5], notes[0]]), 4, [notes[2], *lines[:4], notes[1], notes[0]],
          ["run/metrics.jsonl: 3 lines are no step's and stay, the first is line 1"])
    # A last line without its end.
    go_on(b"".join(lines[:4]) + lines[4][:20], 4, lines[:4],
          ["run/metrics.jsonl: the last line was cut short and is dropped"])
    go_on(b"".join(lines[:4])[:-1], 4, lines[:4], [])
    shutil.rmtree("run/checkpoint/step-4")
    go_on(b"".join([*lines[:2], notes[0], lines[4][:20]]), 2, [*lines[:2], notes[0]],
          ["run/metrics.jsonl: 1 line is no step's and stays, the first is line 3; the last line was cut short and is "
           "dropped"])

    # A machine that stopped may have lost lines of steps that are saved.
    lost = "there is no line of step 4, from which the run goes on"
    go_on(b"".join(lines[:3]), 4, lines[:3], [f"run/metrics.jsonl: {lost}"])
    go_on(b"".join(lines[:3]) + lines[3][:20], 4, lines[:3],
          [f"run/metrics.jsonl: the last line was cut short and is dropped; {lost}"])
    go_on(b"", 4, [], [f"run/metrics.jsonl: {lost}"])



def plant(kind):
    """Puts something into the place of run/metrics.jsonl that cannot be used as such."""
    if os.path.lexists("run/metrics.jsonl"):
        os.remove("run/metrics.jsonl")
    tool.write("victim", "of somebody else\n")
    if kind == "link":
        os.symlink(os.path.abspath("victim"), "run/metrics.jsonl")
    elif kind == "hard link":
        os.link("victim", "run/metrics.jsonl")
    elif kind == "device":
        os.symlink("/dev/zero", "run/metrics.jsonl")
    elif kind == "pipe":
        os.mkfifo("run/metrics.jsonl")
    else:
        os.mkdir("run/metrics.jsonl")


PLANTED = {"link": "is a symbolic link", "hard link": "is a link to another file", "device": "is a symbolic link",
           "pipe": "is not a regular file", "directory": "cannot open: Is a directory"}


def test_metrics_that_cannot_be_used():
    """Whatever has the name of metrics.jsonl stays, is not opened, and does not keep a run from going on."""
    train = ["train", "c.yaml", "--validation.freq=0"]
    for step, (kind, words) in enumerate(PLANTED.items(), 2):
        tool.good(*train, "--training.steps=1") if step == 2 else None
        plant(kind)
        before = os.lstat("run/metrics.jsonl")
        code, out, err = tool.run(*train, f"--training.steps={step}")
        told = f"run/metrics.jsonl: {words}: it stays as metrics.jsonl.aside-{step - 1}, and a new file begins"
        assert code == 0 and "going on from" in out and told in err, (kind, code, out, err)
        assert [line["step"] for line in tool.metrics("run")] == [step], kind
        assert os.lstat(f"run/metrics.jsonl.aside-{step - 1}").st_ino == before.st_ino
        assert tool.read("victim") == b"of somebody else\n", kind


def await_own_metrics(process):
    """Waits until a training has a metrics.jsonl of its own again."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            found = os.lstat("run/metrics.jsonl")
            if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_size > 0:
                return
        assert process.poll() is None, tool.finish(process)
        time.sleep(0.01)
    process.kill()  # or it would outlive the test
    assert False, os.listdir("run")


def test_metrics_taken_away():
    """While a run writes metrics.jsonl, it is removed, rotated, and replaced by what must not be opened."""
    process = tool.start("train", "c.yaml", "--training.steps=100000000", "--validation.freq=0",
                         "--checkpoint.interval=0")
    tool.await_step(process, "run")
    for kind in ("removed", "rotated", *PLANTED):
        if kind == "removed":
            os.remove("run/metrics.jsonl")
        elif kind == "rotated":
            os.rename("run/metrics.jsonl", "run/old.jsonl")
        else:
            os.rename("run/metrics.jsonl", f"run/{kind}.jsonl")
            with contextlib.suppress(OSError):  # the run was faster
                plant(kind)
        await_own_metrics(process)
    process.send_signal(signal.SIGINT)
    code, _, err = tool.finish(process)
    told = re.findall(r"^run/metrics\.jsonl: .*was removed or renamed; another begins with step \d+$", err, re.M)
    assert code == 75 and len(told) >= 2, (code, err)
    assert tool.read("victim") == b"of somebody else\n"
    last = tool.metrics("run")
    assert [line["step"] for line in last] == list(range(last[0]["step"], last[-1]["step"] + 1))
    old = [tool.strict_json(line) for line in tool.read("run/old.jsonl").splitlines()]
    assert old[0]["step"] <= old[-1]["step"] < last[0]["step"] and f"step {last[-1]['step']} of" in err, err


def test_planted_temporaries():
    """What has the name of a temporary file is removed, not written through."""
    tool.good("train", "c.yaml", "--training.steps=1")
    tool.write("victim", "of somebody else\n")
    os.link("victim", "run/config.yaml.tmp")
    tool.good("train", "c.yaml", "--training.steps=2")
    assert tool.read("victim") == b"of somebody else\n" and not os.path.lexists("run/config.yaml.tmp")
    assert os.stat("victim").st_nlink == 1


def test_reading_what_goes():
    """A run removes its older checkpoints, but not the one that another program has begun to read."""
    tool.good("train", "c.yaml", "--training.steps=1")
    process = tool.start("train", "c.yaml", "--training.steps=1000000", "--validation.freq=0",
                         "--checkpoint.interval=1", "--checkpoint.keep_latest_k=1")
    for i in range(3 if tool.SANITIZED else 10):
        tool.good("generate", "run", "--prompt=The", "--max_new_tokens=1")
        tool.good("train", "c.yaml", "--training.steps=1", "--model.init_from=run", f"--run.directory=from{i}")
    process.send_signal(signal.SIGINT)
    assert tool.finish(process)[0] == 75
    assert len(os.listdir("run/checkpoint")) == 1, os.listdir("run/checkpoint")


def test_reading_where_a_run_starts():
    """Starting from a run's weights does not hold anything that a start of that run needs."""
    tool.good("train", "c.yaml")
    directory = os.open("run", os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)
    tool.good("train", "c.yaml", "--model.init_from=run", "--run.directory=other")
    os.close(directory)


def test_interrupt():
    steps = 1000000 # of which a hundredth is long enough to measure kernels, however busy the machine is
    arguments = ["train", "c.yaml", f"--training.steps={steps}", "--validation.freq=0", "--checkpoint.interval=0"]
    process = tool.start(*arguments)
    tool.await_step(process, "run")
    # While it runs, its directory is taken.
    tool.refused(7, "run is in use by another run", *arguments)
    assert tool.read(f"/proc/{process.pid}/comm") == b"trireme\n" # though the program has started itself again
    process.send_signal(signal.SIGINT)
    code, _, err = tool.finish(process)
    assert code == 75 and "stopped after step" in err, (code, err)
    done = tool.metrics("run")[-1]["step"]
    assert 0 < done < steps and os.listdir("run/checkpoint") == [f"step-{done}"], done
    # A run of this length measures which ways of running kernels are fastest, and a run that goes on knows them.
    kernels = tool.read("run/kernels.json")
    known = tool.strict_json(kernels)["kernels"]
    assert known and all(k["seconds"][k["way"]] > 0 and k["seconds"]["rule"] > 0 for k in known), known
    # Goes on for three more steps, like an undisturbed run.
    end = f"--training.steps={done + 3}"
    fixed = ["--lr_scheduler.decay_type=constant", "--validation.freq=0", end]
    tool.good("train", "c.yaml", *fixed)
    assert tool.metrics("run")[-1]["step"] == done + 3
    assert tool.read("run/kernels.json") == kernels


@tool.not_sanitized
def test_interrupt_validation():
    """A run that is to stop does not finish a validation: it is done when the run goes on."""
    tool.write("large.txt", "The quick brown fox jumps over the lazy dog. " * 100000)
    tool.good("prepare", "large.txt", "--data.path=text/large")

    def interrupted(run, *arguments):
        process = tool.start(*arguments, "--validation.steps=1000000", f"--run.directory={run}")
        while "validating" not in tool.run("show", "ranks", run)[1]:
            assert process.poll() is None, tool.finish(process)
        process.send_signal(signal.SIGINT)
        return tool.finish(process)

    for number, ranks in enumerate(([], ["--ranks=2"])):
        run = f"run{number}"
        arguments = ["train", "c.yaml", "--data.path=text/large", "--validation.freq=1", *ranks]
        code, out, err = interrupted(f"last{number}", *arguments, "--training.steps=1")
        told = "asked to stop before val_loss of step 1 was measured: the same command does that"
        assert code == 0 and err.splitlines().count(told) == 1 and "validation loss" not in out, (code, out, err)
        code, _, err = interrupted(run, *arguments)
        assert code == 75 and "stopped after step 1 of 6; all is saved" in err and told not in err, (code, err)
        assert [(line["step"], "val_loss" in line) for line in tool.metrics(run)] == [(1, False)]
        assert os.listdir(f"{run}/checkpoint") == ["step-1"]
        arguments.append("--validation.steps=2")
        code, _, err = tool.run(*arguments, f"--run.directory={run}")
        assert code == 0 and len(re.findall("^val_loss of step 1, not measured before: ", err, re.M)) == 1, (code, err)
        tool.good(*arguments, f"--run.directory=whole{number}")
        same_end(f"whole{number}", run, 6)


@tool.not_sanitized
def test_interrupt_start():
    """A run that is to stop does not wait for fresh weights, which take minutes with a large model."""
    def seconds(process):
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        return usage.ru_utime

    arguments = ["train", "c.yaml", "--model.hidden_size=1024", "--model.num_attention_heads=16",
                 "--training.kernel_choice=rule", "--training.steps=1", "--validation.freq=0", "--ranks=2"]
    whole = tool.start(*arguments, "--run.directory=whole")
    undisturbed = seconds(whole)
    assert whole.returncode == 0, tool.finish(whole)
    for _ in range(5):  # this process may be late, too
        shutil.rmtree("run", ignore_errors=True)
        process = tool.start(*arguments, "--run.directory=run")
        while not os.path.exists("run/ranks.bin"):
            assert process.poll() is None, tool.finish(process)
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        used = seconds(process)
        code, _, err = tool.finish(process)
        if code == 75 and used < undisturbed / 2:
            break
    assert code == 75 and "stopped before the first step: nothing is saved" in err, (code, err)
    assert used < undisturbed / 2, (used, undisturbed)
    tool.good(*arguments, "--run.directory=run")  # the same command starts again
    same_end("whole", "run", 1)


def test_interrupt_same_bits():
    arguments = ["train", "c.yaml", "--validation.freq=0", "--lr_scheduler.decay_type=constant",
                 "--training.kernel_choice=rule"]
    process = tool.start(*arguments, "--training.steps=1000000")  # it is stopped however late this is
    tool.await_step(process, "run")
    process.send_signal(signal.SIGTERM)
    code, _, err = tool.finish(process)
    assert code == 75, (code, err)
    steps = tool.metrics("run")[-1]["step"] + 20
    for run in "whole", "run":
        tool.good(*arguments, f"--training.steps={steps}", f"--run.directory={run}")
    same_end("whole", "run", steps)


def test_hang_up():
    """A closed terminal, which system and shell both signal, makes the run save and end; under nohup it goes on."""
    arguments = ["train", "c.yaml", "--validation.freq=0", "--checkpoint.interval=0"]
    steps = 600 if tool.SANITIZED else 3000
    for ignored in False, True:
        run = f"run{int(ignored)}"
        with subprocess.Popen([*(["nohup"] if ignored else []), tool.BINARY, *arguments, f"--run.directory={run}",
                               f"--training.steps={steps if ignored else 1000000}"], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)) as process:
            tool.await_step(process, run)
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGHUP)
            code, _, err = tool.finish(process)
        done = tool.metrics(run)[-1]["step"]
        assert (code, done) == (0, steps) if ignored else code == 75 and 0 < done < 1000000, (ignored, code, err)
        assert os.listdir(f"{run}/checkpoint") == [f"step-{done}"], done


def test_killed():
    interval = 40 if tool.SANITIZED else 100
    arguments = ["train", "c.yaml", f"--checkpoint.interval={interval}", "--lr_scheduler.decay_type=constant",
                 "--training.kernel_choice=rule"]
    process = tool.start(*arguments, "--training.steps=1000000")  # it is killed however late this is
    saved = []
    while not saved:
        assert process.poll() is None, tool.finish(process)
        time.sleep(0.01)
        saved = glob.glob("run/checkpoint/step-*")
    process.kill()
    tool.finish(process)
    steps = max(int(path.rpartition("-")[2]) for path in glob.glob("run/checkpoint/step-*")) + 20
    for run in "whole", "run":
        out = tool.good(*arguments, f"--training.steps={steps}", f"--run.directory={run}")
        assert ("going on from" in out) == (run == "run"), out
    same_end("whole", "run", steps)
    assert not [name for name in os.listdir("run/checkpoint") if not name.startswith("step-")]


def test_killed_at_the_end():
    """A half-removed checkpoint goes when the run is started again, even if there is nothing left to save."""
    tool.good("train", "c.yaml")
    dead = tool.start("--version")
    tool.finish(dead)
    shutil.copytree("run/checkpoint/step-6", f"run/checkpoint/.tmp-step-4-{dead.pid}")
    os.remove(f"run/checkpoint/.tmp-step-4-{dead.pid}/manifest.json")
    assert "all 6 steps are done" in tool.good("train", "c.yaml")
    assert os.listdir("run/checkpoint") == ["step-6"]


def test_fewer_are_kept():
    """A smaller keep_latest_k also applies to a run that has ended."""
    arguments = ["train", "c.yaml", "--checkpoint.interval=2"]
    for keep, left in (0, [2, 4, 6]), (0, [2, 4, 6]), (2, [4, 6]), (2, [4, 6]), (1, [6]):
        code, _, err = tool.run(*arguments, f"--checkpoint.keep_latest_k={keep}")
        # The value before is the one with which the newest checkpoint was saved.
        told = f"with other settings from here on: checkpoint.keep_latest_k {keep} (before: 0)"
        assert code == 0 and err.splitlines().count(told) == (keep > 0), (code, err)
        assert sorted(os.listdir("run/checkpoint")) == [f"step-{step}" for step in left], (keep, left)


def test_damaged_newest():
    arguments = ["train", "c.yaml", "--checkpoint.interval=2", "--checkpoint.keep_latest_k=2"]
    tool.good(*arguments)
    before = tool.weights("run", 6)
    assert sorted(os.listdir("run/checkpoint")) == ["step-4", "step-6"]
    # A flipped byte: the older checkpoint takes over, and the message names file and tensor.
    tool.flip("run/checkpoint/step-6/model.safetensors", -100)
    tool.refused(4, r'step-6.*bytes 0 to \d+, tensors "[a-z0-9_.]+" to "[a-z0-9_.]+", are damaged: .*; '
                 "the newest complete checkpoint is run/checkpoint/step-4", "eval", "run", "data.path=text/t")
    code, out, err = tool.run(*arguments)
    assert code == 0 and "going on from run/checkpoint/step-4" in out, (out, err)
    passed = [line for line in err.splitlines() if "passed over" in line]
    assert len(passed) == 1 and "step-6" in passed[0] and ', tensors "' in passed[0], err
    assert tool.weights("run", 6)[0] == before[0]
    # A checkpoint that cannot be read, for one because a disk is missing, may be whole.
    os.rename("run/checkpoint/step-6", "away")
    os.symlink("nowhere", "run/checkpoint/step-6")
    for command in arguments, ["eval", "run", "data.path=text/t"]:
        tool.refused(3, "step-6: cannot open: No such file or directory: try again once it can be read, or move "
                     "run/checkpoint/step-6 away for the one before it", *command)
    os.remove("run/checkpoint/step-6")
    os.rename("away", "run/checkpoint/step-6")
    # The last checkpoint is kept even beside a damaged one with a higher number.
    tool.flip("run/checkpoint/step-6/model.safetensors", -100)
    tool.good("train", "c.yaml", "--training.steps=5", "--checkpoint.keep_latest_k=1")
    assert sorted(os.listdir("run/checkpoint")) == ["step-5", "step-6"]
    tool.good(*arguments)
    assert sorted(os.listdir("run/checkpoint")) == ["step-5", "step-6"]
    # A truncated one, and no other left.
    for step in 5, 6:
        path = f"run/checkpoint/step-{step}/training/state.safetensors"
        os.truncate(path, os.path.getsize(path) - 1)
    kept = tool.snapshot("run")
    code, out, err = tool.run(*arguments)
    assert code == 4 and "no checkpoint in run is complete" in err.splitlines()[-1], (code, err)
    assert err.count(": truncated: ") == 2, err  # each is told of once
    tool.refused(4, "step-6/.*safetensors: truncated", "eval", "run", "data.path=text/t")
    assert tool.snapshot("run") == kept


def test_moved():
    tool.good("train", "c.yaml", "--training.steps=2")
    os.rename("run", "moved")
    code, out, err = tool.run("train", "moved/config.yaml", "--run.directory=moved", "--training.steps=3")
    assert code == 0 and "going on from moved" in out and "names another" not in err, (out, err)
    code, out, err = tool.run("train", "moved/config.yaml", "--run.directory=elsewhere")
    assert code == 0 and "going on" not in out, (out, err)
    assert "moved/config.yaml is in the directory of a run but names another: this run is in elsewhere" in err, err


def begun(run, *arguments):
    process = tool.start("train", "c.yaml", "--training.steps=1000000", "--validation.freq=0",
                         "--checkpoint.interval=0", f"--run.directory={run}", *arguments)
    tool.await_step(process, run)
    return process


def stop(process):
    """Stops a process. Once the signal is sent, a system call that has begun may still see what comes next."""
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)


def test_file_of_ranks_shortened():
    """A run does not end because ranks.bin, which only serves to watch it, is cut short."""
    for i, ranks in enumerate([[], ["--ranks=2"]]):
        process = begun(f"short{i}", *ranks)
        os.truncate(f"short{i}/ranks.bin", 0)
        steps = len(tool.read(f"short{i}/metrics.jsonl"))
        while len(tool.read(f"short{i}/metrics.jsonl")) <= steps + 4096:
            assert process.poll() is None, tool.finish(process)
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        code, _, err = tool.finish(process)
        assert code == 75 and err.count("ranks.bin of the run was shortened") == 1, (code, err)


def test_file_of_ranks_on_a_full_disk():
    """A disk that has no room for a page of ranks.bin is not taken for a program that has shortened it."""
    os.mkdir("disk")
    process = subprocess.Popen(["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=4m none disk && exec "$0" "$@"',
                                tool.BINARY, "train", "c.yaml", "--training.steps=1000000", "--validation.freq=0",
                                "--checkpoint.interval=0", "--run.directory=disk/run",
                                "--metrics.enable_tensorboard=false"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    seen = f"/proc/{process.pid}/root{os.getcwd()}/disk"
    deadline = time.monotonic() + 60
    while not os.path.exists(f"{seen}/run/metrics.jsonl") or not os.path.getsize(f"{seen}/run/metrics.jsonl"):
        if process.poll() is not None:
            print("left out: no file system can be mounted here:", tool.finish(process)[2], flush=True)
            return
        assert time.monotonic() < deadline
        time.sleep(0.01)
    stop(process)
    ranks = f"{seen}/run/ranks.bin"
    subprocess.run(["fallocate", "--punch-hole", "--length", str(os.path.getsize(ranks)), ranks], check=True)
    with open(f"{seen}/rest", "wb", buffering=0) as rest, contextlib.suppress(OSError):
        while True:
            rest.write(bytes(4096))
    process.send_signal(signal.SIGCONT)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    code, _, err = tool.finish(process)
    told = "ranks.bin of the run cannot be written, as on a disk that is full or fails: the run goes on"
    # Steps are done without their lines; only at the end there is nothing to be had without the disk.
    assert code == 3 and err.count(told) == 1 and "is not saved (nothing is saved" in err.splitlines()[-1], (code, err)
    assert err.count("metrics.jsonl: cannot write: No space left on device: left out from step ") == 1, err


def test_directory_gone():
    """A run whose directory goes away ends, and touches nothing that takes its place."""
    def ended(process, run):
        code, _, err = tool.finish(process)
        assert code == 3 and f"run.directory {run} is no longer this run's" in err.splitlines()[-1], (code, err)
        assert err.count("trireme train: ") == 1, err
    process = begun("removed")
    shutil.rmtree("removed")
    ended(process, "removed")
    assert not os.path.exists("removed")
    process = begun("renamed")
    os.rename("renamed", "away")
    ended(process, "renamed")
    assert not os.path.exists("renamed") and "checkpoint" not in os.listdir("away")
    for ranks in [], ["--ranks=2"]:
        process = begun("run", *ranks)
        stop(process)
        shutil.rmtree("run")
        tool.good("train", "c.yaml")
        kept = tool.snapshot("run")
        process.send_signal(signal.SIGINT) # nor is it saved there when it is asked to stop
        process.send_signal(signal.SIGCONT)
        ended(process, "run")
        assert tool.snapshot("run") == kept
        shutil.rmtree("run")
    # Another path that still leads to the directory is as good as the first.
    process = begun("linked")
    stop(process)
    os.rename("linked", "elsewhere")
    os.symlink("elsewhere", "linked")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    code, _, err = tool.finish(process)
    assert code == 75 and os.listdir("elsewhere/checkpoint"), (code, err)


def test_renamed():
    tool.good("train", "c.yaml", "--training.steps=4")
    os.rename("run/checkpoint/step-4", "run/checkpoint/step-6")
    kept = tool.snapshot("run")
    for steps in 6, 8:
        tool.refused(4, "run/checkpoint/step-6 holds the state of step 4: name it step-4 again, or remove it", "train",
                     "c.yaml", f"--training.steps={steps}")
    assert tool.snapshot("run") == kept
    os.rename("run/checkpoint/step-6", "run/checkpoint/step-4")
    assert "going on from run/checkpoint/step-4" in tool.good("train", "c.yaml")


def test_checkpoints_that_stay():
    arguments = ["train", "c.yaml", "--checkpoint.keep_latest_k=1"]
    tool.good(*arguments, "--training.steps=2")
    held = "run/checkpoint/step-2/config.json"
    if subprocess.run(["chattr", "+i", held], stderr=subprocess.DEVNULL, check=False).returncode:
        print("not tested: only root may hold a file, and not on every file system")
        return
    try:
        code, out, err = tool.run(*arguments, "--training.steps=4")
    finally:
        for path in glob.glob("run/checkpoint/*2*/config.json") + glob.glob("run/checkpoint/.tmp*/config.json"):
            subprocess.run(["chattr", "-i", path], check=True)
    told = [line for line in err.splitlines() if "older checkpoints are not all removed: " in line]
    assert code == 0 and len(told) == 1 and "cannot remove" in told[0], (code, err)
    assert "step-4" in os.listdir("run/checkpoint"), os.listdir("run/checkpoint")
    assert "all 4 steps are done" in tool.good(*arguments, "--training.steps=4")


def test_bad_token():
    """What was done before the step that meets a bad token is saved."""
    tool.plant_token()
    arguments = ["train", "c.yaml", "--data.path=bad/t", "--checkpoint.interval=0",
                 "--lr_scheduler.decay_type=constant"]
    code, _, err = tool.run(*arguments, "--training.steps=200", "--run.directory=run")
    assert code == 4 and re.search(r"bad/t.bin: token \d+ at position 1000 \(byte 2000\)", err.splitlines()[-1]), err
    done = tool.metrics("run")[-1]["step"]
    assert 0 < done < 199 and os.listdir("run/checkpoint") == [f"step-{done}"], done
    tool.good(*arguments, f"--training.steps={done}", "--run.directory=as_far")
    assert tool.weights("run", done)[0] == tool.weights("as_far", done)[0]
    # The same happens again; and if the very first step meets a bad token, nothing is saved.
    code, _, err = tool.run(*arguments, "--training.steps=200", "--run.directory=run")
    assert code == 4 and "position 1000" in err and os.listdir("run/checkpoint") == [f"step-{done}"], err
    code, _, err = tool.run(*arguments, "--training.global_batch_size=400", "--run.directory=none")
    assert code == 4 and "position 1000" in err and not os.path.exists("none/checkpoint"), err


def test_tokens_cut_short():
    """Token files that are rewritten in place, and become shorter, while they are read."""
    tool.write("long.txt", "The quick brown fox jumps over the lazy dog. " * 10000)
    tool.good("prepare", "long.txt", "--data.path=cut/t")
    whole = tool.read("cut/t.bin")
    train = ["train", "c.yaml", "--data.path=cut/t", "--model.hidden_size=256", "--validation.freq=0"]
    tool.good(*train, "--training.steps=1", "--run.directory=model")
    for command, file, part in (([*train, "--training.steps=1000000"], "run/metrics.jsonl", b"loss"),
                                (["eval", "model", "data.path=cut/t"], "/proc/PID/maps", b"cut/t.bin")):
        process = tool.start(*command)
        file = file.replace("PID", str(process.pid))
        while not (os.path.exists(file) and part in tool.read(file)):
            assert process.poll() is None, tool.finish(process)
            time.sleep(0.01)
        os.truncate("cut/t.bin", 0)
        code, _, err = tool.finish(process)
        assert code == 4 and "cut/t.bin became shorter while it was read" in err, (command, code, err)
        write_into("cut/t.bin", whole)
    # What was done before the damage is saved.
    assert os.listdir("run/checkpoint") == [f"step-{tool.metrics('run')[-1]['step']}"]


def one_document(index):
    """An index of the same tokens that tells of one document."""
    sequences, entries = struct.unpack_from("<QQ", index, 18)
    assert entries > 2
    documents = 34 + 12 * sequences
    return index[:documents + 8] + struct.pack("<q", sequences) * (entries - 1)


def write_into(path, content):
    with open(path, "r+b") as file:
        file.write(content)


def two_documents(prefix):
    text = "The quick brown fox jumps over the lazy dog. "
    tool.write("two.jsonl", "".join(json.dumps({"text": text * count}) + "\n" for count in (60, 40)))
    tool.good("prepare", "two.jsonl", f"--data.path={prefix}")


def test_tokens_rewritten():
    """Token files that are written into while they are read, and keep their size."""
    train = ["train", "c.yaml", "--data.path=other/t", "--validation.freq=0", "--checkpoint.interval=0",
             "--training.steps=1000000"]
    two_documents("other/t")
    tokens, index = tool.read("other/t.bin"), tool.read("other/t.idx")
    same = 75, "all is saved, the same command goes on", True
    for end, kept, new in ("bin", tokens, tokens), ("bin", tokens, tokens[2:] + tokens[:2]), \
                          ("idx", index, index), ("idx", index, one_document(index)):
        changed = rf"other/t\.{end} was written into while the run read it, and bytes 0 to {len(kept)} are others now"
        code, words, saved = same if new == kept else (4, changed, False)
        shutil.rmtree("run", ignore_errors=True)
        process = tool.start(*train)
        tool.await_step(process, "run")
        write_into(f"other/t.{end}", new)
        process.send_signal(signal.SIGINT)
        got, _, err = tool.finish(process)
        last = tool.metrics("run")[-1]["step"]
        line = err.splitlines()[-1]
        assert got == code and re.search(words, line) and f"step {last}" in line, (end, got, err)
        assert os.path.exists(f"run/checkpoint/step-{last}") == saved, os.listdir("run")
        write_into(f"other/t.{end}", kept)


def test_damaged_tokens():
    """A bit that flips is found where it is, by whatever reads it."""
    two_documents("flipped/t")
    sums = tool.read("flipped/t.sums")
    for end, back in ("bin", 2000), ("idx", 16): # another letter; where the second document begins
        kept = tool.read(f"flipped/t.{end}")
        at = len(kept) - back
        tool.write(f"flipped/t.{end}", kept[:at] + bytes([kept[at] ^ 1]) + kept[at + 1:])
        for arguments in ["train", "c.yaml"], ["eval", "model"]:
            if arguments[0] == "eval" and not os.path.exists("model"):
                tool.good("train", "c.yaml", "--run.directory=model")
            got, _, err = tool.run(*arguments, "--data.path=flipped/t")
            words = rf"flipped/t\.{end}: bytes 0 to {len(kept)} are not those that flipped/t\.sums has the checksum of"
            assert got == 4 and re.search(words, err.splitlines()[-1]), (got, err)
        tool.write(f"flipped/t.{end}", kept)
    tool.good("train", "c.yaml", "--data.path=flipped/t", "--run.directory=run2")
    tool.write("flipped/t.sums", sums.replace(b"bytes", b"Bytes"))
    tool.refused(4, "flipped/t.sums", "train", "c.yaml", "--data.path=flipped/t", "--run.directory=run3")


def test_other_documents():
    """The same tokens with another index are other data, whether `prepare` or somebody else has made them."""
    train = ["train", "c.yaml", "--data.path=other/t", "--validation.freq=0", "--data.split=[1, 0]"]
    for foreign in False, True:
        shutil.rmtree("other", ignore_errors=True)
        shutil.rmtree("run", ignore_errors=True)
        two_documents("other/t")
        if foreign:
            os.remove("other/t.sums")
            os.remove("other/t.json")
            train.append("--model.vocab_size=258")
        os.chmod("other", 0o555)  # data that may not be written to
        tool.good(*train)
        kept = tool.snapshot("run")
        os.chmod("other", 0o755)
        index = tool.read("other/t.idx")
        tool.write("other/t.idx", one_document(index))
        if not foreign:
            tool.refused(4, "other/t.idx: bytes 0 to 82 are not those that other/t.sums", *train, "--training.steps=7")
            os.remove("other/t.sums")
        tool.refused(2, "data.path: given .*trains on tokens 0 to .* or start another run.directory", *train,
                     "--training.steps=7")
        assert tool.snapshot("run") == kept
        tool.write("other/t.idx", index)
        tool.good(*train, "--training.steps=7")
        # With a record that is damaged, or none.
        tool.write("run/data.json", tool.read("run/data.json").replace(b"xxh3", b"xxh4"))
        code, _, err = tool.run(*train, "--training.steps=8")
        assert code == 0 and "passed over: run/data.json: " in err, (code, err)
        os.remove("run/data.json")
        tool.good(*train, "--training.steps=9")
        assert os.path.exists("run/data.json")


def test_other_tokens_far_behind():
    """Of more tokens than are looked at one by one at the start, a stretch that is others is noticed wherever it is."""
    count = 70000000
    tool.write("large.bin", struct.pack("<256i2H", 20240520, 1, count, *[0] * 253, 0, 50256))
    os.truncate("large.bin", 1024 + 2 * count)
    train = ["train", "c.yaml", "--data.path=large.bin", "--data.split=[1, 0]", "--validation.freq=0",
             "--model.vocab_size=50257", "--model.hidden_size=4", "--training.threads=1"]
    steps = 0
    while not os.path.exists("run/data.json") or b"0" * 16 in tool.read("run/data.json"):
        steps += 20
        tool.good(*train, f"--training.steps={steps}")
    # Every other block is looked at, whatever the run knows; the rest are compared with its record.
    some, record = "tokens with a checksum of some", r"bytes {} to {} of large\.bin are others than before, as the run"
    for block, words in (26, some), (27, record), (67, record), (133, record):
        end = min(block + 1 << 20, 1024 + 2 * count)
        at = min((block << 20) + 700000, end - 40)
        with open("large.bin", "r+b") as file:
            file.seek(at)
            file.write(bytes([1, 0]) * 10)
        tool.refused(2, "data.path: .*" + words.format(block << 20, end), *train, f"--training.steps={steps + 1}")
        with open("large.bin", "r+b") as file:
            file.seek(at)
            file.write(bytes(20))
    tool.good(*train, f"--training.steps={steps + 1}")


def test_a_run_goes_on_with_other_data():
    """More data, another batch or another length, where a key says so: from a position that follows from the
    checkpoint, however often the run stops afterwards."""
    def go_on(steps, *settings, directory="run", path="more/t"):
        code, _, err = tool.run("train", "c.yaml", f"--training.steps={steps}", f"--data.path={path}",
                                "--checkpoint.keep_latest_k=0", "--lr_scheduler.decay_type=constant",
                                f"--run.directory={directory}", *settings)
        assert code == 0, err
        told = [line for line in err.splitlines() if "with other settings from here on" in line]
        assert len(told) <= 1, err
        return told[0] if told else ""

    shutil.copytree("text", "more")
    go_on(6)
    batch, length, lets = "--training.global_batch_size=7", "--training.seq_len=24", "--data.on_change=continue"
    for setting in batch, length:
        tool.refused(2, "but the run in run was started with .*, or let it go on so, with data.on_change=continue",
                     "train", "c.yaml", "--data.path=more/t", setting, "--training.steps=7")
    told = go_on(8, batch, lets)
    assert "training.global_batch_size 7 (before: 4)" in told, told
    assert told.endswith("; the data go on where they were"), told
    assert "data" not in go_on(9, batch, lets)
    # Of 224 windows, 24 + 21 are taken; then, of 149 longer ones, 14 in the second pass.
    told = go_on(11, batch, length, lets)
    assert told.endswith("; the data are read from their beginning, as pass 2"), told
    tool.write("u.txt", tool.read("t.txt") * 2)
    tool.good("prepare", "u.txt", "--data.path=more/t")
    tool.refused(2, "data.path: given .*let the run go on with them, with data.on_change=continue", "train", "c.yaml",
                 "--data.path=more/t", batch, length, "--training.steps=12")
    shutil.copytree("run", "other")
    told = go_on(13, batch, length, lets)
    assert "other data: tokens 0 to 7202 of 9002 tokens" in told, told
    assert told.endswith("; the data are read from their beginning, as pass 3"), told
    go_on(14, batch, length)
    # In one go, on two ranks as processes have it, the same.
    told = go_on(14, batch, length, lets, "--ranks=2", "--parallelism.data_parallel_replicate_degree=1",
                 "--tensor_parallel_degree=2", directory="other")
    assert told.endswith("as pass 3"), told
    for a, b in zip(tool.metrics("run"), tool.metrics("other"), strict=True):
        assert a["step"] == b["step"] and abs(a["loss"] - b["loss"]) < 1e-4, (a, b)
    # What was read of the run's earlier data does not keep an earlier checkpoint from going on with them.
    for step in 13, 14:
        shutil.rmtree(f"run/checkpoint/step-{step}")
    assert "the data" not in go_on(12, batch, length, path="text/t")


def test_another_batch_goes_on_with_the_data():
    """With so small a rate that nothing is learnt, a step's loss tells which sequences it had."""
    train = ["train", "c.yaml", "--optimizer.lr=1e-30", "--validation.freq=0", "--data.on_change=continue"]
    tool.good(*train, "--training.steps=6")
    tool.good(*train, "--training.steps=8", "--training.global_batch_size=8")  # sequences 24 to 39
    tool.good(*train, "--training.steps=5", "--training.global_batch_size=8", "--run.directory=other")
    for step in 7, 8:
        a, b = tool.metrics("run")[step - 1], tool.metrics("other")[step - 4]
        assert a["loss"] == b["loss"] and a["tokens"] == b["tokens"], (a, b)


def test_damaged_kernels():
    tool.good("train", "c.yaml")
    assert not os.path.exists("run/kernels.json")  # of so short a run, a hundredth is no time
    damaged = b'{"version":1,"kernels":[{"call":1}]}'
    tool.write("run/kernels.json", damaged)
    code, _, err = tool.run("train", "c.yaml", "--training.steps=7", "--training.kernel_choice=rule")
    assert code == 0 and "kernels" not in err and tool.read("run/kernels.json") == damaged, err
    code, _, err = tool.run("train", "c.yaml", "--training.steps=8")
    told = [line for line in err.splitlines() if "kernels.json" in line]
    assert code == 0 and len(told) == 1 and '"call"' in told[0] and "passed over" in told[0], err
    assert tool.strict_json(tool.read("run/kernels.json")) == {"version": 1, "kernels": []}


def test_another_run():
    tool.good("train", "c.yaml")
    kept = tool.snapshot("run")
    for setting in "model.hidden_size=32", "model.num_hidden_layers=2", "model.family=gpt2":
        tool.refused(2, "weights are of another (model|architecture)", "train", "c.yaml", setting)
    for setting in ("training.seed=5", "training.seq_len=8", "training.global_batch_size=8", "optimizer.name=lion",
                    "training.dtype=bf16", "training.kernels=reference"):
        tool.refused(2, setting.split("=")[0], "train", "c.yaml", setting)
    tool.refused(2, "training.steps: given 5, but .* has done 6: give more, or name another", "train", "c.yaml",
                 "training.steps=5")
    # Other tokens, or another part of them: validation data would become training data.
    tool.write("other.txt", "She sells sea shells by the sea shore today. " * 100)
    tool.good("prepare", "other.txt", "--data.path=text/other")
    assert os.path.getsize("text/other.bin") == os.path.getsize("text/t.bin")
    for setting in "data.path=text/other", "data.split=[0.9, 0.1]":
        tool.refused(2, "data.path: given .*trains on tokens 0 to .*model.init_from=run/checkpoint/step-6", "train",
                     "c.yaml", setting)
    tool.good("train", "c.yaml", "training.seed=5", "run.directory=other")
    tool.refused(2, "training.seed: by default 0, but the run in other was started with 5", "train", "c.yaml",
                 "run.directory=other")
    assert tool.snapshot("run") == kept
    # The same tokens in another place are the same.
    os.rename("text", "moved")
    tool.good("train", "c.yaml", "data.path=moved/t", "training.steps=7")


tool.main(globals())
