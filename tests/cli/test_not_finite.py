"""Losses, gradients and weights that are not finite: for one step, for some, or for good."""

import os
import re
import shutil
import struct

import tool
from tool import edit_weights, untouched


def test_not_finite():
    arguments = ["train", "c.yaml", "--optimizer.name=sgd", "--optimizer.lr=1000", "--training.max_norm=0",
                 "--training.max_nonfinite_steps=2", "--training.steps=200"]
    code, out, err = tool.run(*arguments)
    lines = err.splitlines()
    assert code == 6 and "not finite for 2 steps in a row" in lines[-1] and "optimizer.lr" in lines[-1], err
    assert all("is skipped" in line for line in lines[:-1]) and "-nan" not in out + err, err
    for line in tool.metrics("run"):
        assert line.get("skipped", False) == (line["loss"] is None or line["grad_norm"] is None), line


def test_no_model():
    """Weights that are not numbers, or too large to compute with: every command that uses them says so, and none
    reports a success."""
    tool.good("train", "c.yaml", "--run.directory=first")
    shutil.copytree("first/checkpoint/step-6", "broken")
    os.remove("broken/manifest.json")

    def spoil(number):
        def norm(tensors):
            shape, data = tensors["model.norm.weight"]
            tensors["model.norm.weight"] = (shape, struct.pack("<f", number) * (len(data) // 4))
        edit_weights("broken", norm)

    spoil(float("nan"))
    for command in (["eval", "broken", "data.path=text/t"], ["generate", "broken", "--prompt=The"],
                    ["train", "c.yaml", "--model.init_from=broken"]):
        untouched(4, 'tensor "model.norm.weight": holds a number that is not finite', *command)
    spoil(3e38)
    untouched(6, "loss is not finite", "eval", "broken", "data.path=text/t")
    untouched(6, "not finite", "generate", "broken", "--prompt=The")
    code, out, err = tool.run("train", "c.yaml", "--model.init_from=broken")
    assert code == 6 and "in the last 6 of 6 steps" in err.splitlines()[-1], (code, err)
    assert "validation loss" not in out, out
    evaluated = [line for line in tool.metrics("run") if "val_loss" in line]
    assert [line["step"] for line in evaluated] == [3, 6] and all(line["val_loss"] is None for line in evaluated)
    # Started again, the run has nothing to do, and is still an error.
    tool.refused(6, "in the last 6 of 6 steps", "train", "c.yaml", "--model.init_from=broken")


def spoil_rare(tensors):
    """Spoils every batch that has a Z in it: the mean of that token's row becomes too large."""
    shape, data = tensors["transformer.wte.weight"]
    at, row = 4 * shape[1] * ord("Z"), struct.pack("<f", 5e37) * shape[1]
    tensors["transformer.wte.weight"] = (shape, data[:at] + row + data[at + len(row):])


def test_validation_alone():
    """A model whose loss is not finite on the validation data alone is an error, too."""
    tool.write("rare.txt", "The quick brown fox jumps over the lazy dog. " * 90 + "Z" * 1000)
    tool.good("prepare", "rare.txt", "--data.path=text/rare")
    train = ["train", "c.yaml", "--data.path=text/rare", "--data.split=[0.8, 0.2]", "--model.family=gpt2",
             "--model.tie_word_embeddings=false", "--validation.freq=0"]
    tool.good(*train, "--training.steps=1", "--run.directory=first")
    shutil.copytree("first/checkpoint/step-1", "broken")
    os.remove("broken/manifest.json")
    edit_weights("broken", spoil_rare)
    for _ in range(2):
        code, _, err = tool.run(*train, "--model.init_from=broken", "--training.steps=2")
        told = "the validation loss of the model in run/checkpoint/step-2 is not finite"
        assert code == 6 and told in err.splitlines()[-1], (code, err)


def checkpoints(run):
    return sorted(int(name.removeprefix("step-")) for name in os.listdir(f"{run}/checkpoint"))


def test_skipped_until_it_ends():
    """However often a run is started that finds no finite step, the checkpoint from before stays, and is named."""
    arguments = ["train", "c.yaml", "--optimizer.name=sgd", "--training.max_norm=0", "--validation.freq=0",
                 "--checkpoint.interval=1", "--checkpoint.keep_latest_k=3", "--training.max_nonfinite_steps=5",
                 "--lr_scheduler.decay_type=constant"]
    tool.good(*arguments, "--training.steps=4")
    told = "rank 0: failed .*\\n    loss or gradient was not finite for 5 steps in a row"
    for i in range(2):
        code, _, err = tool.run(*arguments, "--training.steps=100", "--optimizer.lr=1000")
        if i == 0:
            sound = tool.metrics("run")[-1]["step"] - 5
        assert code == 6 and f"5 steps in a row, up to step {sound + 5} " in err.splitlines()[-1], (code, err)
        assert err.endswith(f"the last checkpoint from before them is that of step {sound}\n"), err
        assert checkpoints("run") == [sound - 2, sound - 1, sound]
        assert re.search(told, tool.good("show", "ranks", "run"))
    # A run that ends with its last step saves that one besides the others.
    told = f"from before them is that of step {sound}: remove newer ones to go on from it\n"
    for _ in range(2):
        code, _, err = tool.run(*arguments, f"--training.steps={sound + 4}", "--optimizer.lr=1000")
        assert code == 6 and f"in the last 4 of {sound + 4} steps" in err and err.endswith(told), (code, err)
        assert checkpoints("run") == [sound - 2, sound - 1, sound, sound + 4]
    code, _, err = tool.run(*arguments, "--training.steps=100", "--optimizer.lr=1000")
    assert code == 6 and f"5 steps in a row, up to step {sound + 5} " in err and err.endswith(told), (code, err)
    shutil.rmtree(f"run/checkpoint/step-{sound + 4}")
    code, out, err = tool.run(*arguments, "--training.steps=100", "--optimizer.lr=1000")
    assert code == 6 and f"going on from run/checkpoint/step-{sound}\n" in out, (code, out)
    assert err.endswith(f"from before them is that of step {sound}\n"), err


def train_on_rare(text):
    """A run that skips every batch with a Z in it."""
    tool.write("rare.txt", text)
    tool.good("prepare", "rare.txt", "--data.path=text/rare")
    train = ["train", "c.yaml", "--data.path=text/rare", "--data.split=[1, 0]", "--validation.freq=0",
             "--lr_scheduler.decay_type=constant", "--model.family=gpt2", "--model.tie_word_embeddings=false"]
    tool.good(*train, "--training.steps=1", "--run.directory=first")
    shutil.copytree("first/checkpoint/step-1", "broken")
    os.remove("broken/manifest.json")
    edit_weights("broken", spoil_rare)
    return [*train, "--model.init_from=broken", "--training.max_nonfinite_steps=1000"]


def test_skipped_by_one_island():
    """It is reported as it would be if islands told one another after every step, as they do where each is saved."""
    train = [*train_on_rare(("The quick brown fox jumps over the lazy dog. " * 8 + "Z") * 40), "--training.steps=40",
             "--parallelism.island_degree=2", "--outer.method=diloco", "--outer.sync_steps=8"]
    tool.good(*train, "--run.directory=told_later")
    tool.good(*train, "--run.directory=told_at_once", "--checkpoint.interval=1")
    later, at_once = ([(line["step"], line["loss"], line["grad_norm"], line.get("skipped"))
                       for line in tool.metrics(run)] for run in ("told_later", "told_at_once"))
    assert later == at_once, (later, at_once)
    # Steps are skipped by either: the norm is that of the first island.
    skipped = [norm for _, loss, norm, skips in later if skips and loss is None]
    assert None in skipped and any(skipped) and len(skipped) < 40, later
    # Each island goes on with as many updates as it has done.
    again = [*train, "--checkpoint.interval=20", "--checkpoint.keep_latest_k=0", "--run.directory=again"]
    tool.good(*again, "--training.steps=20")
    tool.good(*again)
    assert tool.weights("again", 40)[0] == tool.weights("told_later", 40)[0]
    # Two in a row end it, whichever islands skipped them.
    first = next(step for step in range(2, 41) if all(later[k][3] for k in (step - 2, step - 1)))
    code, _, err = tool.run(*train, "--training.max_nonfinite_steps=2", "--run.directory=ends")
    assert code == 6 and f"for 2 steps in a row, up to step {first} " in err.splitlines()[-1], (code, err)
    assert [line["step"] for line in tool.metrics("ends")] == list(range(1, first + 1))


def test_islands_join_that_have_skipped_steps():
    """The squares that others go on with are of as many updates as the first island had done since they met."""
    train = [*train_on_rare(("The quick brown fox jumps over the lazy dog. " * 8 + "Z") * 40), "--training.seed=1",
             "--optimizer.name=scaled", "--outer.method=local_scaled", "--outer.weights=equal", "--outer.sync_steps=8",
             "--checkpoint.keep_latest_k=0"]
    tool.good(*train, "--training.steps=22", "--parallelism.island_degree=2")
    assert tool.run(*train, "--training.steps=23", "--parallelism.island_degree=4")[0] in (0, 6)  # the last is skipped
    before, after = ([float(x) for x in tool.state(f"run/checkpoint/step-{step}")[0].split()] for step in (22, 23))
    updates, since = (before[4], before[7]), before[11]
    assert updates[0] < updates[1] and since < updates[0] and before[10::2] == [2, 2], before
    assert after[17::2] == [updates[1] - (updates[0] - since)] * 4, (before, after)


def test_skipped_for_a_while():
    """What is due while steps are skipped is saved after them, and a run that was stopped among them goes on."""
    train = train_on_rare(("The quick brown fox jumps over the lazy dog. " * 8 + "Z") * 12)
    train += ["--checkpoint.interval=2"]
    tool.run(*train, "--training.steps=40", "--checkpoint.keep_latest_k=0", "--run.directory=whole")
    finite = [0] + [line["step"] for line in tool.metrics("whole") if not line.get("skipped")]
    saved = [0]
    for step in finite:
        if step // 2 > saved[-1] // 2:
            saved.append(step)
    assert any(step % 2 for step in saved) and any(step - 1 not in finite for step in saved[1:]), (saved, finite)
    assert checkpoints("whole") == sorted({*saved[1:], 40})
    last = next(step for step in range(39, 0, -1) if step not in finite and step - 1 not in finite)
    before = max(step for step in saved if step < last)
    code, _, err = tool.run(*train, f"--training.steps={last}", "--checkpoint.keep_latest_k=1")
    assert code == 6 and f"from before them is that of step {before}: remove newer" in err.splitlines()[-1], (code, err)
    assert checkpoints("run") == [before, last]
    tool.run(*train, "--training.steps=40", "--checkpoint.keep_latest_k=1")
    newest = max(saved)
    assert newest > last and checkpoints("run") == sorted({newest, 40})
    assert tool.weights("run", 40)[0] == tool.weights("whole", 40)[0]


tool.main(globals())
