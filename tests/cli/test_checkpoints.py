"""What of a run's checkpoints is kept, and the command that looks after them."""

import fcntl
import glob
import hashlib
import json
import math
import os
import shutil
import signal
import struct

import tool

# Every second step is saved, every third one validated, so that only steps 6 and 12 have a loss of their own.
TRAIN = ["train", "c.yaml", "--training.steps=13", "--checkpoint.interval=2"]


def kept(run="run"):
    return sorted(int(name.removeprefix("step-")) for name in os.listdir(f"{run}/checkpoint"))


def saved_loss(step, run="run"):
    with open(f"{run}/checkpoint/step-{step}/training/progress.json", encoding="utf-8") as file:
        return json.load(file).get("val_loss")


def amend(checkpoint, name, content):
    """Replaces a small file of a checkpoint, and what the manifest says of it."""
    path = f"{checkpoint}/manifest.json"
    old, text = tool.read(f"{checkpoint}/{name}"), tool.read(path)
    entry = '"name":"%s","bytes":%d,"blake2b":"%s"'
    before = (entry % (name, len(old), digest(old))).encode()
    assert text.count(before) == 1, text
    text = text.replace(before, (entry % (name, len(content), digest(content))).encode())
    body = text[:text.rindex(b',"blake2b":"')]
    tool.write(path, body + b',"blake2b":"' + digest(body).encode() + b'"}\n')
    tool.write(f"{checkpoint}/{name}", content)


def digest(content):
    return hashlib.blake2b(content, digest_size=32).hexdigest()


def losses(run="run"):
    return {line["step"]: line["val_loss"] for line in tool.metrics(run) if "val_loss" in line}


def test_rules():
    tool.good(*TRAIN, "--checkpoint.keep_latest_k=2", "--checkpoint.keep_every=4")
    assert kept() == [4, 8, 12, 13]
    # The validation loss of a step is in its checkpoint.
    assert losses().keys() == {3, 6, 9, 12, 13}
    for step in kept():
        assert saved_loss(step) == losses().get(step), step
    assert saved_loss(4) is None and saved_loss(13) is not None


def test_best():
    """With a learning rate that is far too high at the end, the best checkpoints are those before."""
    arguments = [*TRAIN, "--validation.freq=2", "--checkpoint.keep_latest_k=1", "--checkpoint.keep_best_k=2",
                 "--lr_scheduler.warmup_steps=30", "--lr_scheduler.decay_type=constant", "--optimizer.lr=10"]
    tool.good(*arguments, "--run.directory=all", "--checkpoint.keep_best_k=0", "--checkpoint.keep_latest_k=0")
    expected = sorted(losses("all"), key=losses("all").get)[:2]
    assert 13 not in expected, losses("all")
    tool.good(*arguments)
    assert kept() == sorted([*expected, 13]), (kept(), losses())
    # A loss that was measured after the checkpoint was saved counts as well: it is in metrics.jsonl.
    os.rename("all", "later")
    for step in range(2, 14, 2):
        progress = json.loads(tool.read(f"later/checkpoint/step-{step}/training/progress.json"))
        del progress["val_loss"]
        amend(f"later/checkpoint/step-{step}", "training/progress.json", json.dumps(progress).encode())
    tool.good(*arguments, "--run.directory=later")
    assert kept("later") == sorted([*expected, 13])


def test_best_is_explained():
    """If validation never falls on a saved step, one line says so."""
    def told(*more):
        shutil.rmtree("run", ignore_errors=True)
        _, _, err = tool.run("train", "c.yaml", "--checkpoint.keep_best_k=1", *more)
        return [line for line in err.splitlines() if "keep_best_k" in line]
    assert told("--checkpoint.interval=3") == []
    assert told("--checkpoint.interval=2", "--training.steps=7") == []
    for more in ["--checkpoint.interval=4"], ["--checkpoint.interval=2", "--training.steps=6"], \
            ["--checkpoint.interval=3", "--validation.freq=0"], ["--checkpoint.interval=0"]:
        line, = told(*more)
        assert "can only choose the last checkpoint" in line, line
    line, = told("--checkpoint.interval=3", "--validation.freq=0", "--data.split=[1, 0]")
    assert "keeps nothing: there are no tokens to validate on" in line, line
    # Beside a rule that keeps all.
    shutil.rmtree("run")
    _, _, err = tool.run("train", "c.yaml", "--checkpoint.keep_every=2", "--checkpoint.keep_latest_k=0")
    assert "checkpoint.keep_every 2 (checkpoint.keep_latest_k is 0)" in err, err


def test_damaged_ones_replace_nothing():
    """A disk that changes bits, and leaves sizes as they are, does not have the whole checkpoints removed."""
    tool.good(*TRAIN, "--checkpoint.keep_latest_k=3", "--training.steps=8")
    assert kept() == [4, 6, 8]
    tool.flip("run/checkpoint/step-6/model.safetensors", -1)
    # Resumed from step 8, which is whole: with 10, these are two, the third is to be read before step 4 may go.
    _, _, err = tool.run(*TRAIN, "--checkpoint.keep_latest_k=3", "--training.steps=10")
    assert kept() == [4, 6, 8, 10], kept()
    told = [line for line in err.splitlines() if "step-6 is damaged, and an older one is kept in its place" in line]
    assert len(told) == 1 and "model.safetensors" in told[0], err
    tool.good(*TRAIN, "--checkpoint.keep_latest_k=3", "--training.steps=12")
    assert kept() == [8, 10, 12], kept()


# ---- what other programs meet

def has_model_alone(directory):
    """Whoever takes every *.safetensors of a directory, and whoever goes by the index, gets the model's tensors."""
    index = json.loads(tool.read(f"{directory}/model.safetensors.index.json"))["weight_map"]
    files = {os.path.basename(path) for path in glob.glob(f"{directory}/*.safetensors")}
    assert files == set(index.values()), (files, index)
    for file in files:
        assert set(read_tensors(f"{directory}/{file}")) == {name for name in index if index[name] == file}
    assert not glob.glob(f"{directory}/*.bin") and os.path.isdir(f"{directory}/training")


def test_other_programs():
    for family in "llama", "gpt2":
        tool.good("train", "c.yaml", f"--model.family={family}", f"--run.directory={family}")
        has_model_alone(f"{family}/checkpoint/step-6")
    try:
        import torch
        import transformers
    except ImportError:
        print("not tested: transformers opens it: there is none")
        return
    for family in "llama", "gpt2":
        directory = f"{family}/checkpoint/step-6"
        model, told = transformers.AutoModelForCausalLM.from_pretrained(directory, output_loading_info=True)
        assert not any(told.values()), told
        tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
        tokens = tokenizer("The", return_tensors="pt").input_ids
        with torch.no_grad():
            made = model.generate(tokens, max_new_tokens=8, do_sample=False)[0, tokens.shape[1]:].tolist()
        ours = tool.good_json("generate", family, "--prompt=The", "--max_new_tokens=8", "--temperature=0")["tokens"]
        assert made == ours, (family, made, ours)


# ---- trireme checkpoint

def trained(*more):
    """Trains a small model, with checkpoints of steps 2, 4 and 6."""
    tool.good("train", "c.yaml", "--checkpoint.interval=2", *more)
    assert kept() == [2, 4, 6]


def header_of(path):
    file = tool.read(path)
    length = int.from_bytes(file[:8], "little")
    return json.loads(file[8:8 + length]), file[8 + length:]


def read_tensors(path):
    """Returns {name: (dtype, shape, bytes)}."""
    header, body = header_of(path)
    return {name: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])])
            for name, entry in header.items() if name != "__metadata__"}


def listed(path="run"):
    return tool.good_json("checkpoint", "list", path)["checkpoints"]


def test_list():
    trained("--checkpoint.keep_best_k=1", "--checkpoint.keep_every=2", "--checkpoint.keep_latest_k=1")
    rows = listed()
    assert [row["step"] for row in rows] == [2, 4, 6]
    weights = read_tensors("run/checkpoint/step-2/model.safetensors")
    files = tool.snapshot("run/checkpoint/step-2")
    state = sum(len(content) for name, content in files.items() if content is not None and "/training/" in name)
    for row in rows:
        assert row["dtype"] == "F32" and row["parameters"] == sum(len(t[2]) // 4 for t in weights.values()), row
        assert row["complete"] and row["val_loss"] == losses().get(row["step"]), row
        saved = os.stat(f"{row['path']}/manifest.json").st_mtime
        assert abs(row["time"] - saved) < 1e-3, row
    assert rows[0]["state_bytes"] == state
    assert rows[0]["model_bytes"] == sum(len(content) for content in files.values() if content is not None) - state
    # Only the last step is validated among these.
    assert [row["kept"] for row in rows] == [["every"], ["every"], ["latest", "every", "best"]]
    lines = tool.good("checkpoint", "list", "run").splitlines()
    assert len(lines) == 4 and lines[3].endswith("  latest, every 2, best"), lines
    assert lines[1].split()[-4:] == ["B", "-", "every", "2"] or " -  every 2" in lines[1], lines
    # The same by other paths; one checkpoint, and a model that no run has made.
    assert [row["step"] for row in listed("run/checkpoint")] == [2, 4, 6]
    one, = listed("run/checkpoint/step-6/")
    assert one["step"] == 6 and one["val_loss"] == rows[2]["val_loss"] and "kept" not in one
    shutil.copytree("run/checkpoint/step-6", "model")
    shutil.rmtree("model/training")
    os.remove("model/manifest.json")
    one, = listed("model")
    assert one["step"] is None and one["state_bytes"] == 0 and one["complete"] and one["dtype"] == "F32", one
    # One that is damaged, and one that is being saved; what a dead process has left is none.
    path = "run/checkpoint/step-4/training/state.safetensors"
    os.truncate(path, os.path.getsize(path) - 1)
    os.mkdir(f"run/checkpoint/.tmp-step-8-{os.getpid()}")
    os.mkdir(f"run/checkpoint/.tmp-step-9-{os.getpid()}")
    lock = os.open(f"run/checkpoint/.tmp-step-8-{os.getpid()}", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    result = tool.good_json("checkpoint", "list", "run")
    assert result["being_saved"] == [8]
    assert [row["complete"] for row in result["checkpoints"]] == [True, False, True]
    assert "state.safetensors: truncated" in result["checkpoints"][1]["damage"]
    lines = tool.good("checkpoint", "list", "run").splitlines()
    assert "damaged: run/checkpoint/step-4/training/state.safetensors: truncated" in lines[2], lines
    assert lines[4].split() == ["8", "is", "being", "saved"], lines
    os.close(lock)
    # A run that has saved nothing.
    os.rename("run/checkpoint", "away")
    os.mkdir("run/checkpoint")
    assert tool.good("checkpoint", "list", "run") == "no checkpoints\n"


def test_what_is_no_checkpoint():
    trained()
    os.mkdir("empty")
    for what in "list", "verify":
        tool.refused(2, "nothing: no such directory", "checkpoint", what, "nothing")
        tool.refused(2, "c.yaml is a file: give the directory of a run or of a checkpoint", "checkpoint", what,
                     "c.yaml")
        tool.refused(2, "empty is neither a run, nor does it hold checkpoints", "checkpoint", what, "empty")
    tool.refused(2, "empty: not a run's directory: it has no config.yaml", "checkpoint", "prune", "empty")
    assert os.listdir("empty") == []
    tool.refused(2, "empty is neither a model", "checkpoint", "diff", "empty", "run")
    tool.refused(2, 'checkpoint list takes no settings', "checkpoint", "list", "run", "--checkpoint.keep_every=1")
    tool.refused(2, 'list, verify, diff or prune, not "lits"', "checkpoint", "lits", "run")
    tool.refused(2, "usage: ", "checkpoint", "diff", "run")
    tool.refused(2, 'unexpected "--dry-run"', "checkpoint", "verify", "run", "--dry-run")
    tool.refused(2, "does not use this key; it takes checkpoint.keep_latest_k", "checkpoint", "prune", "run",
                 "--training.steps=3")
    os.rename("run/checkpoint", "away")
    os.mkdir("run/checkpoint")
    tool.refused(2, "run holds no checkpoint", "checkpoint", "verify", "run")


def verified(*paths):
    code, out, err = tool.run("checkpoint", "verify", "--json", *paths)
    return code, tool.strict_json(out)["checkpoints"], err


def names_in(path, begin, end):
    """The tensors of a file that have some of these bytes."""
    header, body = header_of(path)
    first = os.path.getsize(path) - len(body)
    return sorted(name for name, entry in header.items() if name != "__metadata__"
                  and first + entry["data_offsets"][0] < end and first + entry["data_offsets"][1] > begin)


def test_verify():
    # Larger than a block.
    trained("--model.hidden_size=384", "--model.num_hidden_layers=4", "--checkpoint.keep_latest_k=0",
            "--training.seq_len=8", "--validation.freq=0")
    code, found, _ = verified("run")
    assert code == 0 and [one["path"][-6:] for one in found] == ["step-2", "step-4", "step-6"], found
    assert all(one["whole"] and one["damage"] == [] for one in found)
    files = {name: content for name, content in tool.snapshot("run/checkpoint/step-2").items() if content is not None}
    assert found[0]["files"] == len(files) - 1
    assert found[0]["bytes"] == sum(len(files[name]) for name in files if not name.endswith("/manifest.json"))
    assert tool.good("checkpoint", "verify", "run/checkpoint/step-2").startswith("whole: run/checkpoint/step-2, ")
    # Everything that is damaged is found, in the order of files and bytes.
    block = 1 << 24
    model = "run/checkpoint/step-2/model.safetensors"
    state = "run/checkpoint/step-2/training/state.safetensors"
    size = os.path.getsize(state)
    assert os.path.getsize(model) > block and size > 2 * block
    tool.flip(model, block + 5)
    tool.flip(state, 2 * block)
    tool.flip(state, -1)
    tool.flip(state, block - 1)
    os.remove("run/checkpoint/step-2/tokenizer.json")
    code, found, err = verified("run")
    assert code == 4 and "of 3 checkpoints 1 is damaged" in err, err
    assert [one["whole"] for one in found] == [False, True, True]
    last = size // block * block
    expected = [("model.safetensors", block, min(2 * block, os.path.getsize(model))), ("tokenizer.json", 0, 0),
                ("training/state.safetensors", 0, block),
                ("training/state.safetensors", 2 * block, min(3 * block, size)),
                ("training/state.safetensors", last, size)]
    expected = sorted(set(expected))
    assert [(one["file"], one["begin"], one["end"]) for one in found[0]["damage"]] == expected, found[0]["damage"]
    for one in found[0]["damage"]:
        path = f"run/checkpoint/step-2/{one['file']}"
        assert sorted(one["tensors"]) == (names_in(path, one["begin"], one["end"]) if one["end"] else []), one
        assert not one["unreadable"] and path in one["message"], one
    assert "tokenizer.json: missing, expected" in found[0]["damage"][1]["message"]
    code, out, err = tool.run("checkpoint", "verify", "run", "run/checkpoint/step-6")
    assert code == 4 and "of 4 checkpoints 1 is damaged" in err, err
    lines = out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["damaged"] * len(expected) + ["whole"] * 3, lines
    # The list of files itself, and a directory that has none.
    tool.flip("run/checkpoint/step-4/manifest.json", 100)
    tool.flip("run/checkpoint/step-6/config.json", 20)
    code, found, err = verified("run")
    assert code == 4 and "of 3 checkpoints 3 are damaged" in err, err
    assert "manifest.json: " in found[1]["message"] and found[1]["damage"] == []
    os.remove("run/checkpoint/step-6/manifest.json")
    assert "no manifest.json" in verified("run/checkpoint/step-6")[1][0]["message"]


def test_verify_other_kinds_of_files():
    trained("--checkpoint.keep_latest_k=0")
    os.rename("run/checkpoint/step-6", "away")
    os.symlink("nowhere", "run/checkpoint/step-6")
    shutil.rmtree("run/checkpoint/step-4/training")
    tool.write("run/checkpoint/step-4/training", "a file")
    code, found, err = verified("run")
    assert code == 4 and "of 3 checkpoints 2 are damaged" in err, err
    assert [one["whole"] for one in found] == [True, False, False], found
    assert "step-4/training/progress.json: missing" in found[1]["damage"][0]["message"], found
    # A link may lead to a disk that is not there now: only what is damaged for good is passed over.
    train = ["train", "c.yaml", "--training.steps=8"]
    tool.refused(3, "step-6: cannot open: No such file or directory: try again once", *train)
    os.remove("run/checkpoint/step-6")
    code, out, err = tool.run(*train)
    assert code == 0 and "going on from run/checkpoint/step-2" in out and "step-4 is passed over: " in err, (out, err)


def test_verify_edited_config():
    """What may be edited in a config.json may be edited."""
    trained()
    path = "run/checkpoint/step-6/config.json"
    config = json.loads(tool.read(path))
    tool.write(path, json.dumps({**config, "note": "mine"}))
    assert verified("run")[0] == 0
    tool.write(path, json.dumps({**config, "rms_norm_eps": 0.5}))
    code, found, _ = verified("run/checkpoint/step-6")
    assert code == 4 and "describes another model" in found[0]["damage"][0]["message"], found


def test_prune():
    trained("--checkpoint.keep_latest_k=0", "--validation.freq=2")
    prune = ["checkpoint", "prune", "run"]
    before = tool.snapshot(".")
    assert tool.good(*prune, "--dry-run").count("stays: all are kept") == 3
    best = min(losses(), key=losses().get)
    for keys, left in ((["--checkpoint.keep_latest_k=1"], [6]), (["keep_latest_k=2"], [4, 6]),
                       (["--keep_latest_k=1", "--keep_every=2"], [2, 4, 6]),
                       (["keep_latest_k=1", "--checkpoint.keep_best_k=1"], sorted({best, 6}))):
        result = tool.good_json(*prune, "--dry-run", *keys)
        assert result["dry_run"]
        assert [one["step"] for one in result["checkpoints"] if not one["goes"]] == left, result
    assert tool.snapshot(".") == before
    # Where the newest is damaged, what is said to go first is not what goes.
    tool.flip("run/checkpoint/step-6/model.safetensors", -1)
    out = tool.good(*prune, "--checkpoint.keep_latest_k=1", "--dry-run").splitlines()
    assert out[0] == "run/checkpoint/step-2: would go" and out[1] == "run/checkpoint/step-4: stays: latest", out
    assert out[2].startswith("run/checkpoint/step-6: stays: newer than those that count; damaged: run/"), out
    hold = os.open("run/checkpoint/step-2", os.O_RDONLY)
    fcntl.flock(hold, fcntl.LOCK_SH)
    assert "step-2: stays: in use by another process" in tool.good(*prune, "--checkpoint.keep_latest_k=1")
    os.close(hold)
    out = tool.good(*prune, "--checkpoint.keep_latest_k=1").splitlines()
    assert out[0] == "run/checkpoint/step-2: is removed" and kept() == [4, 6], out
    assert not glob.glob("run/checkpoint/.*")
    # The run's own rules, which it then goes on with.
    tool.good("train", "c.yaml", "--checkpoint.interval=2", "--training.steps=8", "--checkpoint.keep_latest_k=2")
    assert kept() == [6, 8]
    assert tool.good(*prune).count("stays: latest") == 2


def test_prune_while_it_trains():
    trained()
    process = tool.start("train", "c.yaml", "--training.steps=1000000", "--validation.freq=0",
                         "--checkpoint.interval=0")
    while not os.path.exists("run/ranks.bin") or len(tool.metrics("run")) < 7:
        assert process.poll() is None, tool.finish(process)
    tool.refused(7, "in use by another run", "checkpoint", "prune", "run", "--checkpoint.keep_latest_k=1")
    assert kept() == [2, 4, 6]
    tool.good("checkpoint", "prune", "run", "--checkpoint.keep_latest_k=1", "--dry-run")
    process.send_signal(signal.SIGINT)
    assert tool.finish(process)[0] == 75


def diff(a, b):
    code, out, err = tool.run("checkpoint", "diff", a, b, "--json")
    assert code in (0, 9), err
    result = tool.strict_json(out)
    assert result["equal"] == (code == 0) == (not result["tensors"] and not result["others"]), result
    return result


def floats(content):
    return struct.unpack(f"<{len(content) // 4}f", content)


def test_diff():
    trained()
    last = "run/checkpoint/step-6"
    tensors = sum(len(read_tensors(f"{last}/{file}.safetensors")) for file in ("model", "training/state"))
    assert tool.good("checkpoint", "diff", "run", last) == f"equal: {tensors} tensors, progress and settings\n"
    # Other steps of a run.
    result = diff("run/checkpoint/step-4", last)
    a, b = (read_tensors(f"run/checkpoint/step-{step}/model.safetensors") for step in (4, 6))
    found = {one["name"]: one for one in result["tensors"] if one["part"] == "model"}
    assert found.keys() == a.keys() and result["compared"] == tensors
    for name, one in found.items():
        x, y = floats(a[name][2]), floats(b[name][2])
        differ = [i for i in range(len(x)) if x[i] != y[i]]
        assert (one["elements"], one["different"], one["first"]) == (len(x), len(differ), differ[0]), one
        assert (one["first_a"], one["first_b"]) == (x[differ[0]], y[differ[0]]), one
        assert one["largest_absolute"] == max(abs(x[i] - y[i]) for i in differ), one
        relative = max(abs(x[i] - y[i]) / max(abs(x[i]), abs(y[i])) for i in differ)
        assert abs(one["largest_relative"] - relative) < 1e-12, one
    others = {one["name"]: (one.get("a"), one.get("b")) for one in result["others"]}
    assert others["step"] == ("4", "6") and others["updates"] == ("4", "6"), others
    assert others["val_loss"][0] is None and float(others["val_loss"][1]) > 0, others
    code, out, _ = tool.run("checkpoint", "diff", "run/checkpoint/step-4", last)
    assert code == 9 and "progress step: 4 and 6\n" in out and " values differ, by up to " in out, out


def edit(path, change):
    tensors = read_tensors(path)
    change(tensors)
    tool.write_tensors(path, tensors)


def test_diff_tensors():
    trained()
    shutil.copytree("run/checkpoint/step-6", "a")
    os.remove("a/manifest.json")
    shutil.copytree("a", "b")
    norm, head, down = "model.norm.weight", "lm_head.weight", "model.layers.0.mlp.down_proj.weight"

    def change(tensors):
        dtype, shape, content = tensors.pop(norm)
        tensors["extra"] = (dtype, shape, content)
        dtype, shape, content = tensors[head]
        tensors[head] = (dtype, shape[::-1], content)
        dtype, shape, content = tensors[down]
        values = list(floats(content))
        values[5], values[shape[1] + 2], values[-1] = -0.0, math.inf, math.nan
        tensors[down] = (dtype, shape, struct.pack(f"<{len(values)}f", *values))
    edit("b/model.safetensors", change)
    edit("a/model.safetensors", lambda tensors: tensors.update(
        {down: (*tensors[down][:2], tensors[down][2][:20] + bytes(4) + tensors[down][2][24:])}))
    result = diff("a", "b")
    assert result["others"] == []
    found = {one["name"]: one for one in result["tensors"]}
    assert {name: one["differs"] for name, one in found.items()} == \
        {norm: "only_a", "extra": "only_b", head: "shape", down: "values"}, found
    assert found[head]["a"] == "F32 [258, 16]" and found[head]["b"] == "F32 [16, 258]", found[head]
    assert found[down]["different"] == 3 and found[down]["first"] == 5, found[down]
    assert found[down]["largest_absolute"] is None, found[down]  # infinite
    _, out, _ = tool.run("checkpoint", "diff", "a", "b")
    assert "only in b (F32 [16])" in out and "the first at [0, 5]: 0 and -0" in out and "by up to inf" in out, out


def test_diff_forms():
    """Dtypes, shards, layouts and prefixes make no difference to values."""
    trained("--training.dtype=bf16")
    last = "run/checkpoint/step-6"
    shutil.copytree(last, "wide")
    os.remove("wide/manifest.json")
    edit("wide/model.safetensors", lambda tensors: tensors.update(
        {name: ("F32", shape, b"".join(b"\0\0" + content[i:i + 2] for i in range(0, len(content), 2)))
         for name, (_, shape, content) in tensors.items()}))
    result = diff(last, "wide")
    assert {(one["differs"], one["different"]) for one in result["tensors"]} == {("dtype", 0)}, result
    # In shards; the state in one file beside the model, as older versions had it.
    shutil.copytree(last, "old")
    os.remove("old/manifest.json")
    tensors = read_tensors("old/model.safetensors")
    os.remove("old/model.safetensors")
    names, where = list(tensors), {}
    for number, part in enumerate((names[:5], names[5:]), 1):
        file = f"model-0000{number}-of-00002.safetensors"
        tool.write_tensors(f"old/{file}", {name: tensors[name] for name in part})
        where |= dict.fromkeys(part, file)
    tool.write("old/model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": where}))
    progress = json.loads(tool.read("old/training/progress.json"))
    metadata = {key: str(value) for key, value in progress.items() if key not in ("format", "version", "val_loss")}
    state = read_tensors("old/training/state.safetensors")
    shutil.rmtree("old/training")
    tool.write_tensors("old/state.safetensors", state, {"trireme_state": "1", **metadata})
    result = diff(last, "old")
    assert result["tensors"] == [], result
    assert [one["name"] for one in result["others"]] == ["val_loss"], result
    # Without the training state, as a model of others; and GPT-2's two ways to name tensors.
    os.remove("old/state.safetensors")
    result = diff(last, "old")
    assert {(one["part"], one["differs"]) for one in result["tensors"]} == {("state", "only_a")}, result
    assert len(result["tensors"]) == len(state)
    tool.good("train", "c.yaml", "--model.family=gpt2", "--run.directory=gpt2", "--training.steps=1")
    shutil.copytree("gpt2/checkpoint/step-1", "bare")
    os.remove("bare/manifest.json")

    def rename(tensors):
        for name in list(tensors):
            tensors[name.removeprefix("transformer.")] = tensors.pop(name)
    edit("bare/model.safetensors", rename)
    assert diff("gpt2", "bare")["equal"] and diff("bare", "gpt2")["equal"]


def test_diff_settings():
    trained()
    tool.good("train", "c.yaml", "--checkpoint.interval=2", "--run.directory=other", "--optimizer.lr=2e-2")
    others = {(one["part"], one["name"]): (one["a"], one["b"]) for one in diff("run", "other")["others"]}
    assert others["setting", "optimizer.lr"] == ("0.01", "0.02"), others
    assert others["setting", "run.directory"] == ("run", "other"), others
    path = "other/checkpoint/step-6/config.json"
    tool.write(path, tool.read(path).replace(b'"bos_token_id"', b'"bos"') if b"bos_token_id" in tool.read(path)
               else tool.read(path).rstrip().removesuffix(b"}") + b',"note":[1]}')
    names = {one["name"] for one in diff("run", "other")["others"] if one["part"] == "config.json"}
    assert names and names <= {"bos", "bos_token_id", "note"}, names


def test_hostile():
    """Damaged and forged files give one line, and no crash."""
    trained()
    shutil.copytree("run/checkpoint/step-6", "a")
    os.remove("a/manifest.json")
    for name, content in (("model.safetensors", b""), ("model.safetensors", struct.pack("<Q", 1 << 60)),
                          ("model.safetensors", struct.pack("<Q", 2) + b"{}x"), ("config.json", b"[1]"),
                          ("config.json", b"{"), ("training/state.safetensors", b"12345678" * 4)):
        shutil.rmtree("b", ignore_errors=True)
        shutil.copytree("a", "b")
        tool.write(f"b/{name}", content)
        for order in ("a", "b"), ("b", "a"):
            tool.refused(4, f"b/{name}", "checkpoint", "diff", *order)
        listed("b")
    tool.write("b/training/state.safetensors", tool.read("a/training/state.safetensors"))
    tool.write("b/training/progress.json", b'{"step":-1}')
    tool.refused(4, "b/training/progress.json", "checkpoint", "diff", "a", "b")
    assert listed("b")[0]["step"] is None


if __name__ == "__main__":
    tool.main(globals())
