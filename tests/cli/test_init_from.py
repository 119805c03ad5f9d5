"""Runs that start from the weights of another, whole or without its training state."""

import json
import os
import re
import shutil
import struct

import tool


def test_without_state():
    tool.good("train", "c.yaml", "--training.steps=4")
    tool.good("train", "c.yaml")
    os.remove("run/checkpoint/step-6/training/state.safetensors")
    shutil.copytree("run/checkpoint/step-6", "model")
    for path in "run", "model":
        tool.good("eval", path, "data.path=text/t", "--training.seq_len=16")
        tool.good("generate", path, "--prompt=The", "--max_new_tokens=4")
        tool.good("train", "c.yaml", f"--model.init_from={path}", f"--run.directory=of-{path}")
    assert tool.weights("of-run", 6)[0] == tool.weights("of-model", 6)[0]
    # What is read must be whole, and of the training state its progress; a run only goes on if all of it is.
    tool.flip("model/model.safetensors", -1)
    tool.refused(4, "model.safetensors: .*tensors .model.embed_tokens.weight. to .*are damaged", "eval",
                 "model", "data.path=text/t")
    tool.flip("of-run/checkpoint/step-6/training/state.safetensors", -1)
    tool.good("eval", "of-run/checkpoint/step-6", "data.path=text/t")
    tool.good("generate", "of-run", "--prompt=The", "--max_new_tokens=4")
    tool.good("train", "c.yaml", "--model.init_from=of-run", "--run.directory=of-damaged")
    tool.flip("of-run/checkpoint/step-6/training/progress.json", 100)
    tool.refused(4, "training/progress.json.*is damaged", "eval", "of-run/checkpoint/step-6", "data.path=text/t")
    code, out, err = tool.run("train", "c.yaml")
    assert code == 0 and "going on from run/checkpoint/step-4" in out, (code, out, err)
    assert "step-6 is passed over: run/checkpoint/step-6/training/state.safetensors: missing" in err, err
    for step in 4, 6:
        os.remove(f"run/checkpoint/step-{step}/training/state.safetensors")
    code, _, err = tool.run("train", "c.yaml")
    last = err.splitlines()[-1]
    assert code == 4 and "no checkpoint in run is complete" in last and "state.safetensors: missing" in last, err


def test_bf16_from_f32():
    """The weights in bf16 and their remainders are the weights in f32, to the last bit."""
    tool.good("train", "c.yaml", "--run.directory=f32")
    tool.good("train", "c.yaml", "--training.dtype=bf16", "--training.steps=1", "--optimizer.lr=0",
              "--model.init_from=f32")
    of_f32 = tool.tensors(tool.read("f32/checkpoint/step-6/model.safetensors"))
    high = tool.tensors(tool.read("run/checkpoint/step-1/model.safetensors"))
    state = tool.tensors(tool.read("run/checkpoint/step-1/training/state.safetensors"))
    low = {name.removeprefix("remainder."): content for name, (_, content) in state.items() if "remainder" in name}
    embedding, remainder = high["model.embed_tokens.weight"][1], low["embed.weight"]
    count = len(embedding) // 2
    whole = [(h << 16) + l & 0xffffffff for h, l in zip(struct.unpack(f"<{count}H", embedding),
                                                       struct.unpack(f"<{count}h", remainder))]
    assert struct.pack(f"<{count}I", *whole) == of_f32["model.embed_tokens.weight"][1]


def test_dropout():
    """A model that asks for dropout is trained without where the configuration says so, and refused otherwise."""
    tool.good("train", "c.yaml", "--model.family=gpt2", "--run.directory=plain", "--training.steps=1")
    config = tool.strict_json(tool.read("plain/checkpoint/step-1/config.json"))
    assert config["attn_pdrop"] == 0, config
    os.makedirs("dropping")
    tool.write("dropping/config.json", json.dumps({**config, "attn_pdrop": 0.1, "resid_pdrop": 0.25}))
    train = ["train", "--data.path=text/t", "--training.steps=1", "--training.seq_len=16", "--training.threads=1",
             "--training.global_batch_size=2"]
    tool.refused(2, "model.dropout: by default configured, but dropping asks for attn_pdrop 0.1, resid_pdrop "
                 "0.25, and dropout is not supported: set it to none to train without", *train,
                 "--model.config=dropping", "--run.directory=refused")
    assert not os.path.exists("refused")
    tool.good(*train, "--model.config=dropping", "--model.dropout=none", "--run.directory=without")
    tool.good(*train, "--model.config=plain/checkpoint/step-1", "--run.directory=from-plain")


def test_without_source():
    """A run goes on with its own model, whatever has become of the one that it started from."""
    tool.good("train", "c.yaml", "--run.directory=first")
    shutil.copytree("first/checkpoint/step-6", "source")
    tool.write("d.yaml", tool.CONFIG[tool.CONFIG.index("training:"):])
    tool.refused(2, "no model is named", "train", "d.yaml")
    train = ["train", "d.yaml", "--lr_scheduler.decay_type=constant", "--checkpoint.interval=2"]
    tool.good(*train, "--model.init_from=source", "--training.steps=8", "--run.directory=whole")
    tool.good(*train, "--model.init_from=source", "--training.steps=2")
    os.rename("source", "away")
    out = tool.good(*train, "--model.init_from=source", "--training.steps=4")
    assert "going on from run/checkpoint/step-2" in out, out
    kept = tool.snapshot("run")
    tool.refused(2, "model.init_from: given away, but the run in run goes on with weights of its own", *train,
                 "--model.init_from=away", "--training.steps=4")
    for setting in "model.hidden_size=32", "model.preset=gpt2-124m":
        tool.refused(2, "the weights are of another", *train, f"--{setting}", "--training.steps=4")
    assert tool.snapshot("run") == kept
    # Nor does it have to be given again, on any of several ranks.
    shutil.copytree("run", "many")
    for more in ["--ranks=2", "--run.directory=many"], ["--training.steps=8"]:
        out = tool.good(*train, *more)
        assert "checkpoint/step-4\n" in out and "going on from" in out, out
    for name in [*os.listdir("whole/checkpoint/step-8"), "training/state.safetensors"]:
        if name not in ("training", "manifest.json"):
            assert tool.read(f"whole/checkpoint/step-8/{name}") == tool.read(f"run/checkpoint/step-8/{name}"), name
    # The run's own model is that of the newest checkpoint that is whole.
    tool.flip("run/checkpoint/step-8/config.json", 0)
    code, out, err = tool.run(*train, "--training.steps=8")
    assert code == 0 and "step-8 is passed over" in err and "going on from run/checkpoint/step-6" in out, (out, err)
    # For a damaged checkpoint the message says that it is damaged, not that there is no model.
    tool.flip("run/checkpoint/step-8/config.json", 0)
    for step in os.listdir("run/checkpoint"):
        os.truncate(f"run/checkpoint/{step}/training/state.safetensors", 100)
    for more in [], ["--model.init_from=source"]:
        code, _, err = tool.run(*train, *more)
        assert code == 4 and "no checkpoint in run is complete" in err.splitlines()[-1], (code, err)
    for step in os.listdir("run/checkpoint"):
        tool.write(f"run/checkpoint/{step}/config.json", "{")
    code, _, err = tool.run(*train)
    assert code == 4 and re.search(r"run/checkpoint/step-\d/config\.json", err.splitlines()[-1]), (code, err)


tool.main(globals())
