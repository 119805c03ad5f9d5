"""Islands: what is validated, other islands than before, states in a file."""

import json
import math
import re
import shutil
import struct

import tool

TWO = "--parallelism.island_degree=2"
EXACT = ["--training.dtype=f64", "--training.kernels=reference"]


def test_validation_is_of_a_checkpoint():
    """A validation loss is that of the model in the checkpoint of its step; to measure it changes no bit of a run."""
    bf16, four, layers = "--training.dtype=bf16", "--ranks=4", "--model.num_hidden_layers=2"
    cases = [
        ("local_sgd", "--outer.sync_steps=5"),
        ("local_sgd", "--outer.sync_steps=3", "--outer.delay_steps=2", bf16, "--outer.weights=equal"),
        ("diloco", "--outer.sync_steps=4", four, "--tensor_parallel_degree=2"),
        ("streaming_diloco", "--outer.sync_steps=4", "--outer.delay_steps=2", layers, four,
         "--pipeline_parallel_degree=2", "--model.tie_word_embeddings=true"),
        ("streaming_diloco", "--outer.sync_steps=4", "--outer.delay_steps=1", layers,
         "--training.freeze=*norm*", "--outer.optimizer=none", "--outer.mix=0"),
        ("eager_diloco", "--outer.sync_steps=2", four, "--parallelism.zero_stage=1", bf16),
        ("gossip", "--outer.sync_steps=2", "--parallelism.island_degree=4", bf16),
        ("co2", "--outer.sync_steps=2", four, "--parallelism.zero_stage=2"),
        ("co2", "--outer.sync_steps=2", four, "--parallelism.zero_stage=3", bf16)]
    for method, *more in cases[::4] if tool.SANITIZED else cases:
        run = ["train", "c.yaml", TWO, f"--outer.method={method}", *more, "--training.steps=5",
               "--checkpoint.interval=1", "--checkpoint.keep_latest_k=0"]
        tool.good(*run, "--validation.freq=1", "--run.directory=validated")
        tool.good(*run, "--validation.freq=0", "--run.directory=plain")
        saved = [tool.state(f"{d}/checkpoint/step-5") for d in ("validated", "plain")]
        assert saved[0] == saved[1], (method, more)
        for m in tool.metrics("validated")[2::2]:
            said = tool.good_json("eval", f"validated/checkpoint/step-{m['step']}", "data.path=text/t",
                                  "data.split=[0.8, 0.2]", "validation.steps=2", "training.global_batch_size=4",
                                  *([bf16] if bf16 in more else []))
            assert abs(said["loss"] - m["val_loss"]) <= 1e-6 * m["val_loss"], (method, more, m, said)
        shutil.rmtree("validated"), shutil.rmtree("plain")


def numbers(path):
    """Of a checkpoint in f64: the numbers of its training state, and of how far its islands have come."""
    tensors = tool.tensors(tool.read(f"{path}/training/state.safetensors"))
    return ({name: struct.unpack(f"<{len(data) // 8}d", data) for name, (_, data) in tensors.items()},
            [float(x) for x in tool.state(path)[0].split()])


def prepare_texts():
    """text/u: islands are trained on different numbers of targets."""
    tool.write("u.jsonl", "".join(json.dumps({"text": "abcdefghijklmnopqrstuvw"[:1 + 7 * i % 23]}) + "\n"
                                  for i in range(400)))
    tool.good("prepare", "u.jsonl", "--data.path=text/u")


def joined(method, old, new, settled, *more, meshes=((), ())):
    """Trains with some islands, and with others, on other meshes, a step that learns nothing; first moments become
    0.9 times, second 0.95 times what they were."""
    run = ["train", "c.yaml", *EXACT, "--data.path=text/u", f"--outer.method={method}", "--outer.weights=targets",
           "--checkpoint.keep_latest_k=0", f"--run.directory={method}-{old}-{new}", *more]
    tool.good(*run, f"--parallelism.island_degree={old}", *meshes[0], "--training.steps=5")
    said = tool.run(*run, f"--parallelism.island_degree={new}", "--training.steps=6", "--optimizer.lr=0",
                    "--training.max_norm=1e-300", "--validation.freq=0", *meshes[1])
    assert said[0] == 0 and re.search(rf"^with {new} islands? in place of {old}: ", said[2], re.M), said
    assert ("exchanged is settled" in said[2]) == settled, said
    (before, progress), (after, _) = (numbers(f"{method}-{old}-{new}/checkpoint/step-{n}") for n in (5, 6))
    fragments, under_way = int(progress[1]), int(progress[2]) - 1
    island = [progress[4 + (2 + fragments) * i:][:2 + fragments] for i in range(old)]
    targets, total = [sum(i[2:]) for i in island], sum(i[1] for i in island)
    assert settled == (under_way >= 0) and (old == 1 or len(set(targets)) > 1), progress
    if "--outer.weights=equal" in more:
        targets = [1] * old

    def mean(name):
        of = [before.get(f"island.{i}.{name}") or before[name] for i in range(old)]
        return [math.fsum(t * x for t, x in zip(targets, xs)) / sum(targets) for xs in zip(*of)]

    def outer(name):
        layer = re.match(r"layers\.(\d+)\.", name)
        settles = under_way >= 0 and (int(layer[1]) if layer else 0) % fragments == under_way
        value = [x / total for x in before[f"outer.value.{name}"]] if settles else None
        if method == "local_sgd":
            own = zip(mean(f"parameters.{name}"), mean(f"outer.taken.{name}"), value)
            return [p - taken + v for p, taken, v in own]
        anchor, velocity = mean(f"outer.anchor.{name}"), mean(f"outer.velocity.{name}")
        if not settles:
            return anchor
        if method == "eager_diloco":  # an island's own part is of what it has learnt since: nothing
            value = [x - x / old for x in value]
        velocity = [0.9 * v + x for v, x in zip(velocity, value)]
        return [x - 0.7 * (g + 0.9 * v) for x, g, v in zip(anchor, value, velocity)]
    names = {n.split("adamw.m.")[1] for n in before if "adamw.m." in n}
    for name in names:
        expected = {f"adamw.m.{name}": [0.9 * x for x in mean(f"adamw.m.{name}")],
                    f"adamw.v.{name}": [0.95 * x for x in mean(f"adamw.v.{name}")]}
        if method != "local_sgd" or settled:  # else the model's files have the mean
            expected[f"parameters.{name}"] = outer(name)
        for what, xs in expected.items():
            for i in range(new):
                got = after.get(f"island.{i}.{what}") or after[what]
                assert all(abs(x - y) <= 1e-14 + 1e-12 * abs(x) for x, y in zip(xs, got, strict=True)), (what, i)
    if not settled and method != "gossip":  # which has a mean of anchors, in another order
        directory = f"{method}-{old}-{new}"
        assert tool.weights(directory, 5)[0] == tool.weights(directory, 6)[0]


def test_other_islands():
    """What was exchanged is settled, all start from the outer parameters, and inner moments are the mean."""
    prepare_texts()
    outer = ["--outer.lr=0.7", "--outer.momentum=0.9", "--outer.nesterov=true"]
    joined("local_sgd", 1, 4, False, "--outer.sync_steps=9")
    joined("local_sgd", 4, 1, False, "--outer.sync_steps=9")
    joined("local_sgd", 4, 2, True, "--outer.sync_steps=4", "--outer.delay_steps=3")
    joined("diloco", 2, 4, False, "--outer.sync_steps=4", *outer)
    joined("diloco", 1, 2, False, "--outer.sync_steps=4", *outer)
    joined("streaming_diloco", 2, 1, True, "--outer.sync_steps=8", "--outer.delay_steps=3", *outer,
           "--model.num_hidden_layers=2", "--outer.fragments=2",
           meshes=(["--pipeline_parallel_degree=2"], ["--tensor_parallel_degree=2", "--ranks=4"]))
    joined("co2", 4, 2, True, "--outer.sync_steps=4", *outer,
           meshes=(["--tensor_parallel_degree=2"], ["--ranks=4", "--parallelism.zero_stage=2"]))
    joined("eager_diloco", 2, 4, True, "--outer.sync_steps=4", "--outer.weights=equal", *outer)
    joined("gossip", 4, 2, False, "--outer.sync_steps=4")


def test_islands_that_divide_by_the_same():
    """Other islands go on with the divisor that all had, and with the mean of their squares."""
    prepare_texts()
    run = ["train", "c.yaml", *EXACT, "--data.path=text/u", "--outer.method=local_scaled", "--optimizer.name=scaled",
           "--outer.sync_steps=4", "--checkpoint.keep_latest_k=0", "--run.directory=scaled", "--training.freeze=*norm*",
           "--validation.freq=0"]
    tool.good(*run, "--parallelism.island_degree=2", "--training.steps=6")
    tool.good(*run, "--parallelism.island_degree=4", "--training.steps=7", "--training.max_norm=1e-300")
    tool.good(*run, "--parallelism.island_degree=4", "--training.steps=8", "--training.max_norm=1e-300")
    (old, progress), (joined, then), (after, _) = (numbers(f"scaled/checkpoint/step-{n}") for n in (6, 7, 8))
    # Of the last round: targets of the two islands; one meeting, two steps ago.
    assert progress[10:] == [1, 4, 1, 4] and then[16:] == 4 * [1, 4], (progress, then)
    targets = progress[6], progress[9]
    names = [n.removeprefix("scaled.divisor.") for n in old if n.startswith("scaled.divisor.")]
    assert names and not any("norm" in name for name in names) and targets[0] != targets[1], (names, targets)
    for name in names:
        divisor = old[f"scaled.divisor.{name}"]
        squares = [(targets[0] * a + targets[1] * b) / sum(targets) for a, b in
                   zip(*(old[f"island.{i}.scaled.squares.{name}"] for i in range(2)))]
        assert joined[f"scaled.divisor.{name}"] == divisor and any(x not in (0, 1) for x in divisor)
        for i in range(4):
            got = joined[f"island.{i}.scaled.squares.{name}"]
            assert all(abs(x - y) <= 1e-12 * x for x, y in zip(squares, got, strict=True)), (name, i)
            assert not any(after[f"island.{i}.scaled.squares.{name}"])
        # The second meeting is of four steps, of which two have come to nothing.
        b = (0.95 - 0.95**2) / (1 - 0.95**2)
        for d, s, got in zip(divisor, squares, after[f"scaled.divisor.{name}"], strict=True):
            assert abs(math.sqrt(b * d * d + (1 - b) * s / 4) - got) <= 1e-12 * got, name


def test_states_in_a_file():
    """What outer steps keep gives the same bits from there; a run may go on otherwise."""
    for method, *more in (("local_sgd", "--outer.delay_steps=2", "--training.dtype=bf16"),
                          ("diloco", "--ranks=4", "--parallelism.zero_stage=2"),
                          ("streaming_diloco", "--model.num_hidden_layers=2", "--outer.delay_steps=1", "--ranks=4",
                           "--pipeline_parallel_degree=2", "--optimizer.offload=file"),
                          ("eager_diloco", "--ranks=4", "--parallelism.zero_stage=1", "--outer.codec=int8"),
                          ("gossip", "--outer.codec=int8"), ("co2", "--training.dtype=bf16")):
        run = ["train", "c.yaml", TWO, f"--outer.method={method}", "--outer.sync_steps=2", *more,
               "--training.steps=5", "--checkpoint.interval=3", "--checkpoint.keep_latest_k=0"]
        tool.good(*run, f"--run.directory={method}")
        memory = tool.state(f"{method}/checkpoint/step-5")
        for _ in range(2):
            tool.good(*run, f"--run.directory={method}.file", "--outer.offload=file", "--optimizer.offload_directory=.")
            assert tool.state(f"{method}.file/checkpoint/step-5") == memory, (method, more)
            shutil.rmtree(f"{method}.file/checkpoint/step-5")
        tool.good(*run, f"--run.directory={method}.file")
        assert tool.state(f"{method}.file/checkpoint/step-5") == memory, (method, more)
        kept = [tool.good_json("show", "memory", *run[1:], f"--outer.offload={space}")["state_bytes"]
                for space in ("file", "none")]
        assert kept[0] < kept[1] if method != "local_sgd" else kept[0] <= kept[1], (method, kept)


tool.main(globals())
