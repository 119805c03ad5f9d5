"""Saves that go on in the background, and saves that fail."""
import os
import re
import shutil
import signal
import time

import tool

ENDLESS = ["train", "c.yaml", "--training.steps=1000000", "--lr_scheduler.decay_type=constant", "--validation.freq=0"]


def files(checkpoint):
    """The content of all files but the one that has the run's configuration, and the manifest, which has its sum."""
    out = {}
    for folder, _, names in os.walk(checkpoint):
        for name in names:
            path = os.path.join(folder, name)
            if name not in ("progress.json", "manifest.json"):
                out[os.path.relpath(path, checkpoint)] = tool.read(path)
    return out


def test_bits():
    """A save in the background has the bits of one that training waits for, whatever room it has."""
    train = ["train", "c.yaml", "--checkpoint.interval=1", "--checkpoint.keep_latest_k=0", "--model.hidden_size=160",
             "--model.num_attention_heads=4", "--training.steps=6"]
    for i, mesh in enumerate([[], ["--ranks=4", "--parallelism.data_parallel_shard_degree=2",
                                   "--parallelism.tensor_parallel_degree=2"]]):
        tool.good(*train, *mesh, "--checkpoint.async_save=false", f"--run.directory=waits{i}")
        for room in 1, 256:
            tool.good(*train, *mesh, f"--checkpoint.buffer_mib={room}", f"--run.directory=goes_on{i}-{room}")
            for step in range(1, 7):
                a, b = (files(f"{run}/checkpoint/step-{step}") for run in (f"waits{i}", f"goes_on{i}-{room}"))
                assert len(a) >= 6 and a == b, (i, room, step)


def begin(*arguments):
    process = tool.start(*ENDLESS, *arguments)
    tool.await_step(process, "run")
    while not os.path.isdir("run/checkpoint"):
        assert process.poll() is None, tool.finish(process)
        time.sleep(0.01)
    return process


def take_away():
    """The directory of checkpoints, as if its disk was gone."""
    os.rename("run/checkpoint", "away")
    tool.write("run/checkpoint", "")


def give_back():
    os.remove("run/checkpoint")
    os.rename("away", "run/checkpoint")


def test_tried_again():
    """A disk that is gone for a while costs no step."""
    process = begin("--checkpoint.interval=20", "--checkpoint.max_failures=0")
    take_away()
    time.sleep(1)
    give_back()
    saved = set(os.listdir("run/checkpoint"))
    deadline = time.monotonic() + 30
    while set(os.listdir("run/checkpoint")) <= saved and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    code, out, err = tool.finish(process)
    assert code == 75, (code, out, err)
    first = re.search(r"step (\d+) is not saved: .*; it is tried again\n", err)
    then = re.search(r"step (\d+) is not saved: .*; training goes on, and saves again after step (\d+)\n", err)
    assert first and then and int(then[2]) % 20 == 0 and int(then[2]) > int(then[1]) >= int(first[1]), err
    assert len(tool.metrics("run")) == int(re.search(r"stopped after step (\d+)", err)[1]), err


def test_too_many_failures():
    os.mkdir("other")
    for more, words, saved in (([], r"step (\d+) is not saved \((nothing is saved|the same command goes on)", False),
                               (["--checkpoint.emergency_directory=other"],
                                r"step (\d+) is saved in other/checkpoint/step-\d+ alone, from where", True)):
        shutil.rmtree("run", ignore_errors=True)
        process = begin("--checkpoint.interval=20", "--checkpoint.max_failures=2", *more)
        take_away()
        code, out, err = tool.finish(process)
        give_back()
        found = re.search(words, err.splitlines()[-1])
        assert code == 3 and found, (code, err)
        assert err.count("; training goes on, and saves again after step ") == 1, err
        assert "for the last time if that fails" in err, err
        assert os.path.isdir(f"other/checkpoint/step-{found[1]}") == saved
    # The same command goes on from there, as if nothing had been.
    done = int(found[1])
    end = ["train", "c.yaml", f"--training.steps={done + 3}", "--lr_scheduler.decay_type=constant",
           "--validation.freq=0", "--checkpoint.emergency_directory=other"]
    out = tool.good(*end)
    assert f"going on from other/checkpoint/step-{done}" in out and f"run/checkpoint/step-{done + 3}" in out, out
    whole = [*end, "--run.directory=whole"]
    tool.refused(2, "checkpoint.emergency_directory: .*no run is in run.directory whole", *whole)
    tool.good(*whole[:-2], "--run.directory=whole")
    assert tool.weights("whole", done + 3) == tool.weights("run", done + 3)
    # It is this run's alone.
    shutil.copytree("whole", "second")
    shutil.rmtree(f"second/checkpoint/step-{done + 3}")
    tool.refused(2, "checkpoint.emergency_directory: .* by a run in another directory than second: each", *end,
                 "--run.directory=second")
    # Now that the run has a later one, that is taken.
    assert "other/" not in tool.good(*end) and os.path.isdir(f"other/checkpoint/step-{done}")


def save_in_emergency():
    """Stops a run whose directory takes no checkpoint; returns the step that other/ then has."""
    process = begin("--checkpoint.interval=20", "--checkpoint.emergency_directory=" + os.path.abspath("other"))
    take_away()
    process.send_signal(signal.SIGINT)
    code, out, err = tool.finish(process)
    give_back()
    assert code == 3, (code, err)
    return int(re.search(r"step (\d+) is saved in .*/other/checkpoint/step-\d+ alone, from where", err)[1])


def test_whose_emergency():
    """A run takes its own save, by whatever name it is called; not that of one called the same in another place."""
    os.mkdir("other")
    step = save_in_emergency()
    train = ["train", "c.yaml", "--lr_scheduler.decay_type=constant", "--validation.freq=0",
             "--checkpoint.emergency_directory=" + os.path.abspath("other")]
    os.mkdir("place")
    shutil.copytree("text", "place/text")
    shutil.copy("c.yaml", "place")
    tool.good(*train[:-1], "--training.steps=2", cwd="place")
    refusal = r"checkpoint.emergency_directory: .*by a run in another directory than {0}: .* move it to {0}/checkpoint"
    tool.refused(2, refusal.format("run"), *train, f"--training.steps={step + 1}", cwd="place")
    os.rename("run", "moved")
    tool.refused(2, refusal.format("moved"), *train, f"--training.steps={step + 1}", "--run.directory=moved")
    os.rename("moved", "run")
    # Nothing is left to do but to have the checkpoint in its place.
    shutil.copytree("run", "copy")
    result = tool.strict_json(tool.good(*train, f"--training.steps={step}", "--run.directory=./run", "--json"))
    assert result["checkpoint"] == f"./run/checkpoint/step-{step}", result
    assert files(f"run/checkpoint/step-{step}") == files(f"other/checkpoint/step-{step}")
    # One that is damaged is told of, and is no reason to begin anew.
    shutil.rmtree("run")
    os.rename("copy", "run")
    shutil.rmtree("run/checkpoint")
    os.truncate(f"other/checkpoint/step-{step}/model.safetensors", 5000)
    tool.refused(4, r"no checkpoint in run is complete \(.*/other/checkpoint/step-.*: truncated", *train,
                 f"--training.steps={step + 1}")


def test_directories():
    tool.untouched(2, "checkpoint.emergency_directory: given nowhere, where no file can be made: No such", "train",
                   "c.yaml", "--checkpoint.emergency_directory=nowhere", "--run.directory=new")
    tool.untouched(2, "checkpoint.emergency_directory: given c.yaml, where no file can be made: Not a dir", "train",
                   "c.yaml", "--checkpoint.emergency_directory=c.yaml", "--run.directory=new")
    os.mkdir("new")
    for name in "new", "./new/", os.path.abspath("new"):
        tool.untouched(2, f'checkpoint.emergency_directory: given "?{name}"?, which is run.directory', "train",
                       "c.yaml", f"--checkpoint.emergency_directory={name}", "--run.directory=new")


tool.main(globals())
