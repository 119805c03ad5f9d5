"""Event files: every step's figures, as TensorBoard reads them."""

import glob
import json
import math
import os
import re
import struct

import tool

TAGS = {"loss_metrics/global_avg_loss": "loss", "validation_metrics/loss": "val_loss", "grad_norm": "grad_norm",
        "lr": "lr", "n_tokens_seen": "tokens", "throughput(tps)": "tokens_per_second",
        "time_metrics/end_to_end(s)": "seconds", "time_metrics/data_loading(s)": "wait_seconds",
        "time_metrics/validation(s)": "validation_seconds", "time_metrics/checkpoint(s)": "save_seconds"}


def masked_checksum(data):
    """The masked CRC-32C of records."""
    c = 0xffffffff
    for byte in data:
        c ^= byte
        for _ in range(8):
            c = c >> 1 ^ (0x82f63b78 if c & 1 else 0)
    c ^= 0xffffffff
    return (c >> 15 | c << 17 & 0xffffffff) + 0xa282ead8 & 0xffffffff


def records(data):
    while data:
        (length, of_length), message = struct.unpack("<QI", data[:12]), data[12:]
        message, rest = message[:length], message[length:]
        assert masked_checksum(data[:8]) == of_length and len(message) == length
        assert struct.unpack("<I", rest[:4])[0] == masked_checksum(message)
        yield message
        data = rest[4:]


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def fields(message):
    """The number and value of each field of a protocol buffer."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        if key & 7 == 0:
            value, at = varint(message, at)
        else:
            size = {1: 8, 5: 4}.get(key & 7)
            if size is None:
                assert key & 7 == 2
                size, at = varint(message, at)
            value, at = message[at:at + size], at + size
        yield key >> 3, value


def events(path):
    """Returns the step that the file says it begins with, and (step, tags and values) of each event."""
    steps, start = [], None
    first, *others = (dict(fields(message)) for message in records(tool.read(path)))
    assert first[3] == b"brain.Event:2" and set(first) == {1, 3}
    for event in others:
        assert 1.7e9 < struct.unpack("<d", event[1])[0] < 4e9
        if 7 in event:
            assert dict(fields(event[7])) == {1: 1} and start is None and not steps
            start = event[2]
            continue
        values = [dict(fields(value)) for number, value in fields(event[5]) if number == 1]
        steps.append((event[2], {v[1].decode(): struct.unpack("<f", v[2])[0] for v in values}))
    return start, steps


def test_every_step():
    train = ["train", "c.yaml", "--run.directory=run", "--validation.freq=2", "--validation.steps=1",
             "--data.split=[0.9,0.1]", "--checkpoint.interval=3", "--checkpoint.async_save=false"]
    peak, unit = re.search(r"peak ([\d.]+) ([GT])FLOP/s", tool.good(*train, "--training.steps=5")).groups()
    peak = float(peak) * (1 if unit == "T" else 1e-3)
    tool.good("train", "c.yaml", "--run.directory=none", "--metrics.enable_tensorboard=false", "--training.steps=1")
    assert not os.path.exists("none/tb")
    (file,) = glob.glob("run/tb/events.out.tfevents.*")
    start, steps = events(file)
    expected = tool.metrics("run")
    assert start == 1 and [step for step, _ in steps] == [1, 2, 3, 4, 5]
    for (step, values), line in zip(steps, expected):
        for tag, key in TAGS.items():
            assert (tag in values) == (key in line), (step, tag)
            assert tag not in values or math.isclose(values[tag], line[key], rel_tol=1e-6, abs_tol=1e-6), (step, tag)
        assert values["time_metrics/end_to_end(s)"] > values["time_metrics/data_loading(s)"] >= 0
        assert ("time_metrics/checkpoint(s)" in values) == (step == 4), values
        assert ("time_metrics/validation(s)" in values) == (step in (2, 4, 5)), values
        assert math.isclose(values["memory/max_reserved(GiB)"], line["peak_bytes"] / 2**30, rel_tol=1e-6)
        assert math.isclose(values["mfu(%)"], 100 * line["mfu"], rel_tol=1e-5)
        assert .1 < values["tflops"] / (line["mfu"] * peak) < 10 # the peak may have been timed again
    # There is no peak for the reference kernels.
    tool.good("train", "c.yaml", "--run.directory=reference", "--training.kernels=reference", "--training.steps=1")
    (_, values), = events(*glob.glob("reference/tb/events.out.tfevents.*"))[1]
    assert "loss_metrics/global_avg_loss" in values and not {"mfu(%)", "tflops"} & set(values), values
    # A run that goes on does it in a file of its own, which begins behind what it resumed from, and is read behind it,
    # though the clock may have been set back.
    later = re.sub(r"[.]\d{10}[.].*", ".4000000000.zz", file)
    os.rename(file, later)
    tool.good(*train, "--training.steps=7")
    files = sorted(glob.glob("run/tb/events.out.tfevents.*"))
    assert len(files) == 2 and files[0] == later, files
    start, steps = events(files[1])
    assert start == 6 and [step for step, _ in steps] == [6, 7]


def test_validation_afterwards():
    """A run that was stopped while it validated lacks a validation loss: the run that goes on adds it to the record."""
    train = ["train", "c.yaml", "--run.directory=run", "--validation.freq=2", "--validation.steps=1"]
    tool.good(*train, "--training.steps=4")
    whole = tool.read("run/metrics.jsonl")
    cut = re.sub(rb',"val_loss":[^,]*(?=.*\n$)', b"", whole)
    assert cut.count(b"val_loss") == 1 and whole.count(b"val_loss") == 2, cut
    for stays in b"", b"# a note\n":
        tool.write("run/metrics.jsonl", cut + stays)
        tool.good(*train, "--training.steps=4")
        assert tool.read("run/metrics.jsonl") == whole + stays
        # Once it is recorded it stays as it is.
        tool.good(*train, "--training.steps=4")
        assert tool.read("run/metrics.jsonl") == whole + stays
    val_loss = tool.strict_json(whole.splitlines()[-1])["val_loss"]
    added = [events(file) for file in sorted(glob.glob("run/tb/events.out.tfevents.*"))[1:]]
    assert [start for start, _ in added] == 4 * [5] and [len(steps) for _, steps in added] == [1, 0, 1, 0], added
    for step, values in added[0][1] + added[2][1]:
        assert step == 4 and list(values) == ["validation_metrics/loss"], added
        assert math.isclose(values["validation_metrics/loss"], val_loss, rel_tol=1e-6)


def shown_text(value):
    """The text of a summary for the plugin "text", a string tensor without dimensions."""
    plugin = dict(fields(dict(fields(value[9]))[1]))
    tensor = dict(fields(value[8]))
    assert plugin == {1: b"text"} and tensor[1] == 7 and tensor[2] == b"", value
    return tensor[8]


def test_samples():
    """Prompts are continued after each validation, on any mesh, as the model that is saved then continues them. The
    training does not notice."""
    prompts = ["The", "It was\n"]
    tool.write("p.jsonl", "".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    with_prompts = ["--validation.prompts=p.jsonl", "--validation.sample_tokens=7"]
    for number, mesh in enumerate(([], ["--ranks=2", "--parallelism.tensor_parallel_degree=2"],
                                   ["--ranks=2", "--parallelism.data_parallel_shard_degree=2"],
                                   ["--ranks=2", "--parallelism.island_degree=2", "--outer.method=local_sgd"])):
        train = ["train", "c.yaml", "--training.micro_batch_size=2", *mesh]
        tool.good(*train, f"--run.directory=plain{number}")
        os.makedirs(f"run{number}/samples/checkpoint/step-2") # as a run that was killed leaves it
        code, _, err = tool.run(*train, *with_prompts, f"--run.directory=run{number}")
        os.path.exists(f"run{number}/samples") and os.listdir(f"run{number}/samples")
        assert code == 0 and not os.path.exists(f"run{number}/samples"), err
        assert tool.weights(f"plain{number}", 6) == tool.weights(f"run{number}", 6)
        said = [(int(step), *json.loads(sample)) for step, sample in re.findall(r"sample of step (\d+): (.*)", err)]
        assert [(step, prompt) for step, prompt, _ in said] == [(step, p) for step in (3, 6) for p in prompts], err
        made = tool.good("generate", f"run{number}", "--generate.batch=p.jsonl", "--max_new_tokens=7", "--json")
        assert [text for step, _, text in said if step == 6] == [json.loads(line)["text"] for line in made.splitlines()]
    # TensorBoard has them, too.
    (file,) = glob.glob("run0/tb/events.out.tfevents.*")
    shown = []
    for event in map(dict, map(fields, records(tool.read(file)))):
        values = [dict(fields(value)) for number, value in fields(event.get(5, b"")) if number == 1]
        shown += [(event[2], value[1].decode(), shown_text(value)) for value in values if 8 in value]
    assert [(step, tag) for step, tag, _ in shown] == [(s, f"samples/{i}") for s in (3, 6) for i in (0, 1)], shown
    assert all(text.startswith(b"    The" if tag == "samples/0" else b"    It was\n    ") for _, tag, text in shown)
    tool.refused(2, "validation.prompts: none.txt: ", "train", "c.yaml", "--validation.prompts=none.txt")
    os.remove("text/t.json")
    tool.refused(2, "validation.prompts: given p.jsonl, but the token files do not say which tokenizer", "train",
                 "c.yaml", "--model.vocab_size=256", "--run.directory=none", *with_prompts)


def test_what_cannot_be_written():
    os.makedirs("taken")
    tool.write("taken/tb", "a file of mine")
    tool.refused(2, "taken holds tb, but is no run's", "train", "c.yaml", "--run.directory=taken")
    tool.good("train", "c.yaml", "--run.directory=run", "--training.steps=1", "--metrics.enable_tensorboard=false")
    tool.write("run/tb", "a file of mine")
    # The run goes on without.
    code, _, err = tool.run("train", "c.yaml", "--run.directory=run", "--training.steps=3")
    told = re.findall(r"run/tb: cannot create the directory: .*: (.*)", err)
    assert code == 0 and told == ["it is tried again with the next step", "left out from step 2 on"], err
    assert tool.read("run/tb") == b"a file of mine" and len(tool.metrics("run")) == 3


if __name__ == "__main__":
    tool.main(dict(globals()))
