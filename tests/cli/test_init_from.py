"""Runs that start from the weights of another, whole or without its training state."""

import json
import math
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


def floats(content):
    return struct.unpack(f"<{len(content) // 4}f", content)


def check_rows(old, new, name, kept, count, width=16):
    """Rows that both have are the same; new ones are the mean of the old ones."""
    old, new = (floats(tool.tensors(tool.read(f"{path}/model.safetensors"))[name][1]) for path in (old, new))
    assert len(new) == count * width and new[:kept * width] == old[:kept * width]
    mean = [math.fsum(old[column::width]) / (len(old) // width) for column in range(width)]
    for row in range(kept, count):
        assert all(abs(x - m) <= 1e-7 for x, m in zip(new[row * width:(row + 1) * width], mean)), row


def test_vocabulary_of_another_size():
    """A vocabulary grows by tokens that the tokenizer of the weights does not have, which begin as the mean of the
    others; or loses its last ones, where no tokenizer has them."""
    tool.good("tokenizer", "train", "t.txt", "--output=mine", "--vocab_size=280")
    tool.good("prepare", "t.txt", "--data.path=text/mine", "--data.tokenizer=mine")
    made = json.loads(tool.read("mine/tokenizer.json"))
    token = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    for name in "more", "other":
        added = [{"id": 280 + i, "content": f"<|new{i}|>", **token} for i in range(30)]
        first = made["added_tokens"][0]
        if name == "other": # has another one among the tokens
            made["model"]["vocab"]["<|else|>"] = made["model"]["vocab"].pop(first["content"])
            first["content"] = "<|else|>"
        shutil.copytree("mine", name)
        os.remove(f"{name}/tokenizer_config.json")
        tool.write(f"{name}/tokenizer.json", json.dumps({**made, "added_tokens": made["added_tokens"] + added}))
        tool.good("prepare", "t.txt", f"--data.path=text/{name}", f"--data.tokenizer={name}")
    grows = "the vocabulary grows from 280 to 310 tokens"
    for tied in "true", "false":
        tie = f"--model.tie_word_embeddings={tied}"
        still = ["train", "c.yaml", tie, "--training.steps=1", "--optimizer.lr=0", "--model.init_from=base"]
        names = ["model.embed_tokens.weight"] + ["lm_head.weight"] * (tied == "false")
        tool.good("train", "c.yaml", "--data.path=text/mine", "--run.directory=base", tie)
        for name, more in (("one", []), ("two", ["--ranks=2", "--parallelism.tensor_parallel_degree=2"]),
                           ("spread", ["--ranks=2", "--parallelism.data_parallel_shard_degree=2"])):
            code, _, err = tool.run(*still, "--data.path=text/more", f"--run.directory={name}", *more)
            assert code == 0 and grows in err, err
            for tensor in names:
                check_rows("base/checkpoint/step-6", f"{name}/checkpoint/step-1", tensor, 280, 310)
        # In bf16, too, and the run goes on with its own vocabulary and tokenizer.
        tool.good(*still, "--data.path=text/more", "--run.directory=low", "--training.dtype=bf16")
        rows = tool.tensors(tool.read("low/checkpoint/step-1/model.safetensors"))[names[-1]]
        whole = tool.tensors(tool.read("one/checkpoint/step-1/model.safetensors"))[names[-1]]
        for high, x in zip(struct.unpack(f"<{310 * 16}H", rows[1]), floats(whole[1])):
            assert abs(floats(struct.pack("<I", high << 16))[0] - x) <= 0.01 * abs(x)
        tool.good("train", "c.yaml", tie, "--model.init_from=base", "--data.path=text/more", "--run.directory=one")
        assert tool.read("one/checkpoint/step-6/tokenizer.json") == tool.read("more/tokenizer.json")
        assert json.loads(tool.read("one/checkpoint/step-6/config.json"))["vocab_size"] == 310
        tool.good("generate", "one", "--prompt=The", "--max_new_tokens=4")
        # What falls away again.
        code, _, err = tool.run(*still[:-1], "--model.init_from=one", "--model.vocab_size=290", "--data.path=text/mine",
                                "--run.directory=less")
        assert code == 0 and "the vocabulary shrinks from 310 to 290 tokens" in err, err
        for tensor in names:
            check_rows("one/checkpoint/step-6", "less/checkpoint/step-1", tensor, 290, 290)
        tool.refused(2, "model.vocab_size: given 279, but the tokens are numbered up to 279", *still,
                     "--data.path=text/mine", "--model.vocab_size=279", "--run.directory=none")
        tool.refused(2, "data.path: given text/other, .* another", *still, "--data.path=text/other",
                     "--run.directory=none")
        shutil.copytree("base/checkpoint/step-6", "bare")
        for name in "manifest.json", "tokenizer.json", "tokenizer_config.json":
            os.remove(f"bare/{name}")
        still[-1] = "--model.init_from=bare"
        tool.refused(2, "model.init_from: given bare, but the tokens are numbered up to 309, the model there knows 280,"
                        " and there is no tokenizer: .* set model.vocab_size=310", *still, "--data.path=text/more",
                     "--run.directory=none")
        tool.good(*still, "--data.path=text/more", "--run.directory=none", "--model.vocab_size=310")
        for path in "base", "one", "two", "spread", "low", "less", "none", "bare":
            shutil.rmtree(path)


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
