"""Sequences of which each rank has a part: trained, evaluated, resumed on other meshes, simulated, refused."""

import array
import itertools
import json
import re

import tool

CP = "--parallelism.context_parallel_degree="
METHOD = "--parallelism.context_parallel_method="
RING = METHOD + "ring"
LAYOUT = "--parallelism.context_parallel_layout="
INNER = "--parallelism.context_parallel_inner_degree="
EXACT = ["--training.dtype=f64", "--training.kernels=reference"]


def metrics(directory):
    return [json.loads(line) for line in tool.read(f"{directory}/metrics.jsonl").decode().splitlines()]


def close(a, b):
    return abs(a - b) <= 1e-9 * abs(b)


def parameters(directory):
    return {name: array.array("d", values)
            for name, (_, values) in tool.tensors(tool.weights(directory, 6)[0]).items()}


def same(one, other):
    for a, b in zip(metrics(one), metrics(other), strict=True):
        assert a["tokens"] == b["tokens"] and ("val_loss" in a) == ("val_loss" in b), (other, a, b)
        for key in "loss", "grad_norm", "val_loss":
            assert key not in a or close(a[key], b[key]), (other, key, a, b)
    for (key, a), b in zip(parameters(one).items(), parameters(other).values(), strict=True):
        assert max(abs(x - y) for x, y in zip(a, b, strict=True)) < 1e-9, (other, key)


def test_training():
    tool.good("train", "c.yaml", *EXACT, "--run.directory=one")
    for name, mesh in (("parts", [CP + "2"]), ("more", [CP + "4", "--parallelism.zero_stage=1"]),
                       ("beside", [CP + "2", "--ranks=8", "--parallelism.tensor_parallel_degree=2",
                                   "--parallelism.zero_stage=2"])):
        tool.good("train", "c.yaml", *EXACT, *mesh, f"--run.directory={name}")
        same("one", name)
    # A run goes on with other parts of sequences.
    tool.good("train", "c.yaml", *EXACT, CP + "2", "--training.steps=3", "--lr_scheduler.decay_steps=6",
              "--run.directory=halves")
    tool.good("train", "c.yaml", *EXACT, CP + "4", "--lr_scheduler.decay_steps=6", "--run.directory=halves")
    assert close(metrics("halves")[-1]["loss"], metrics("one")[-1]["loss"])


def test_layouts():
    """Parts need not be equally long: the last tokens are then padding, wherever they lie."""
    tool.write("d.jsonl", "".join(json.dumps({"text": "fox and dog " * (n % 7) + str(n)}) + "\n" for n in range(60)))
    tool.good("prepare", "d.jsonl", "--data.path=text/d")
    run = ["train", "c.yaml", *EXACT, "--data.path=text/d", "--training.seq_len=20"]
    tool.good(*run, "--run.directory=one")
    for degree, *mesh in ((3,), (7, "--zero_stage=1"), (2, METHOD + "ulysses"), (3, RING),
                          (3, RING, LAYOUT + "contiguous"), (2, RING, LAYOUT + "striped"),
                          (3, RING, LAYOUT + "striped", "--parallelism.context_parallel_stripe=3"),
                          (4, METHOD + "hybrid", "--parallelism.context_parallel_ulysses_degree=2"),
                          (3, METHOD + "burst"), (2, METHOD + "burst", LAYOUT + "striped"), (3, METHOD + "tokenring"),
                          (4, METHOD + "burst", INNER + "2"), (6, RING, INNER + "3", "--zero_stage=2"),
                          (4, METHOD + "tokenring", LAYOUT + "contiguous"), (3, METHOD + "lightseq"),
                          (4, METHOD + "lightseq", "--zero_stage=1")):
        name = "".join([str(degree), *mesh]).replace("/", "")
        tool.good(*run, f"{CP}{degree}", *mesh, f"--run.directory={name}")
        same("one", name)
    # Tokens that see themselves alone.
    own = [*run, "--model.family=llama", "--model.sliding_window=1"]
    tool.good(*own, "--run.directory=own")
    for method in ("ring", "burst", "tokenring", "lightseq"):
        tool.good(*own, CP + "3", METHOD + method, f"--run.directory=own-{method}")
        same("own", f"own-{method}")
    # A run goes on with other parts.
    tool.good(*run, CP + "3", RING, "--training.steps=3", "--lr_scheduler.decay_steps=6", "--run.directory=on")
    tool.good(*run, CP + "2", RING, LAYOUT + "striped", "--training.steps=5", "--lr_scheduler.decay_steps=6",
              "--run.directory=on")
    tool.good(*run, CP + "3", "--lr_scheduler.decay_steps=6", "--run.directory=on")
    assert close(metrics("on")[-1]["loss"], metrics("one")[-1]["loss"])
    one, parts = (tool.good_json("eval", "one", "data.path=text/d", *EXACT, *mesh)
                  for mesh in ([], [CP + "3", RING, LAYOUT + "zigzag"]))
    assert close(one["loss"], parts["loss"]) and close(one["bits_per_byte"], parts["bits_per_byte"]), (one, parts)
    assert one["tokens"] == parts["tokens"]


def test_linear_attention():
    """States go from part to part, into documents that began in an earlier one, beside softmax attention or not."""
    tool.write("d.jsonl", "".join(json.dumps({"text": "fox and dog " * (n % 7) + str(n)}) + "\n" for n in range(60)))
    tool.good("prepare", "d.jsonl", "--data.path=text/d")
    for name, types in ("linear", "linear_attention"), ("mixed", "linear_attention,full_attention"):
        run = ["train", "c.yaml", *EXACT, "--data.path=text/d", "--training.seq_len=20",
               "--model.num_hidden_layers=2", f"--model.layer_types={types}", "--model.linear_attention_heads=2"]
        tool.good(*run, f"--run.directory={name}")
        for degree, *mesh in ((3,), (4, RING, "--activation_checkpoint.mode=full"), (7, "--zero_stage=1"),
                              (2, "--ranks=4", "--parallelism.tensor_parallel_degree=2")):
            parts = "".join([name, str(degree), *mesh]).replace("/", "")
            tool.good(*run, f"{CP}{degree}", *mesh, f"--run.directory={parts}")
            same(name, parts)
    # As with one rank, in f32 and by the fast kernels, too.
    run = [*run[:2], *run[4:], "--training.dtype=f32"]
    tool.good(*run, "--run.directory=f32")
    tool.good(*run, CP + "3", "--run.directory=f32.3")
    for a, b in zip(metrics("f32"), metrics("f32.3"), strict=True):
        assert abs(a["loss"] - b["loss"]) < 1e-5 * a["loss"], (a, b)
    tool.refused(2, "context_parallel_layout: given zigzag, but states of linear attention go from neighbour to "
                 "neighbour: set it to contiguous", *run, CP + "2", RING, LAYOUT + "zigzag", "--run.directory=refused")
    tool.refused(2, "context_parallel_method: given ulysses, but ranks that exchange tokens for heads know no linear "
                 "attention", *run,
                 CP + "2", METHOD + "ulysses", "--run.directory=refused")


def test_evaluation():
    tool.good("train", "c.yaml", "--run.directory=one")
    one = tool.good_json("eval", "one", "data.path=text/t", *EXACT)
    parts = tool.good_json("eval", "one", "data.path=text/t", *EXACT, CP + "4")
    assert close(one["loss"], parts["loss"]) and close(one["bits_per_byte"], parts["bits_per_byte"]), (one, parts)
    assert one["tokens"] == parts["tokens"]


def test_programs():
    for more in ([], ["--activation_checkpoint.mode=full"], ["--activation_checkpoint.mode=selective"]):
        text = tool.good("show", "program", "c.yaml", CP + "2", "--training.micro_batch_size=2", *more)
        gathers = sum("= all_gather %" in line and "group cp" in line and "layer 0" in line
                      for line in text.splitlines())
        # A gather for each sequence of the microbatch, and once more where it is repeated.
        assert gathers == (4 if more else 2), (more, gathers)
    tool.good("show", "memory", "c.yaml", CP + "2")
    tool.good("verify", "c.yaml", CP + "2", "--ranks=8", "--parallelism.pipeline_parallel_degree=1")


LAYERS, HEADS, WIDTH, TOKENS = 3, 8, 64, 256


def held(length, *mesh):
    """What a rank holds at the peak, by name: without what is as large for sequences of any length."""
    def at_peak(tokens):
        said = tool.good_json("show", "memory", "model.family=llama", f"model.num_hidden_layers={LAYERS}",
                              f"model.hidden_size={WIDTH}", f"model.num_attention_heads={HEADS}", "model.vocab_size=64",
                              f"training.seq_len={tokens}", "training.global_batch_size=1", "training.threads=1",
                              "training.kernels=reference", "--parallelism.zero_stage=0", *mesh)
        holders = {holder["name"]: holder["bytes"] for holder in said["at_peak"]}
        assert sum(holders.values()) == said["peak_live_bytes"] <= said["step_bytes"] <= 1.01 * sum(holders.values())
        return holders
    longer = at_peak(2 * length)
    return {name: size for name, size in at_peak(length).items() if longer[name] != size}


def test_memory():
    """Of what one rank holds each of P ranks holds a P-th, to the byte; and whatever else its method is about: keys of
    all ranks, or what it makes for their tokens, and where documents of all tokens begin."""
    one = held(TOKENS)
    beside = {"gather": ("attention.kv.all", 2 * WIDTH * TOKENS), "ulysses": ("attention.made", WIDTH * TOKENS)}
    exchanged = "attention.q.exchanged", "attention.kv.exchanged"
    for ranks, method in itertools.product((2, 4, 8), ("gather", "ulysses", "ring", "burst", "tokenring")):
        own = held(TOKENS, f"{CP}{ranks}", METHOD + method)
        name, elements = beside.get(method, ("", 0))
        for layer in range(LAYERS if name else 0):
            part = 1 if method == "gather" else ranks
            assert own.pop(f"layers.{layer}.{name}") == 4 * elements // part, (method, ranks)
        if method == "ulysses":
            assert own.pop("starts") == 4 * TOKENS, ranks
            for layer in range(LAYERS):
                own[f"layers.{layer}.attention.qkv"] = sum(own.pop(f"layers.{layer}.{part}") for part in exchanged)
            own["starts"] = 4 * TOKENS // ranks
        assert {name: ranks * size for name, size in own.items()} == one, (method, ranks)


def test_simulation():
    """The work of a step is that of its tokens, and ranks have equal parts of it."""
    shape = ["--model.preset=llama3-8b", "cluster=h100", "training.seq_len=8192", "training.global_batch_size=8"]
    flops = {}
    for degree in 1, 4:
        said = tool.good_json("simulate", *shape, "ranks=8", "zero_stage=3", f"context_parallel_degree={degree}")
        flops[degree] = said["mfu"] * said["step_seconds"]
    assert abs(flops[4] / flops[1] - 1) < 1e-9, flops
    # Of 8 ranks in a ring, the last one of a causal mask has 15/8 of the mean; in zigzag all have that.
    long = ["--model.preset=llama3.1-8b", "cluster=h100", "training.seq_len=131072", "training.global_batch_size=1",
            "ranks=8", "zero_stage=3", "context_parallel_degree=8", "context_parallel_method=ring"]
    taken = {layout: tool.good_json("simulate", *long, f"context_parallel_layout={layout}")
             for layout in ("contiguous", "zigzag")}
    seconds = {layout: [one["attention_seconds"] for one in said["classes"]] for layout, said in taken.items()}
    assert len(seconds["zigzag"]) == 1 and len(seconds["contiguous"]) == 8, seconds
    # Buffers of the ring are few, however many layers and ranks there are: keys and values of a part are 67 MB.
    assert taken["zigzag"]["classes"][0]["memory"]["communication"] < 5e9, taken["zigzag"]["classes"]
    # Keys that are gathered are as many for all, but the last rank's queries see most of them.
    long[-1] = "context_parallel_method=gather"
    seconds["gathered"] = [one["attention_seconds"] for one in tool.good_json("simulate", *long)["classes"]]
    for layout in "contiguous", "gathered":
        assert len(seconds[layout]) == 8, (layout, seconds)
        for rank, spent in enumerate(seconds[layout]):
            assert abs(spent / seconds["zigzag"][0] - (2 * rank + 1) / 8) < 0.01, (layout, rank, seconds)
    # A window that is short leaves all but the first rank as much to see.
    window = tool.good_json("simulate", *long, "model.sliding_window=4096")["classes"]
    first, *others = (one["attention_seconds"] for one in window)
    assert first < .9 * others[0] and max(others) < 1.001 * min(others), window


def test_balance():
    """Early ranks help: of 8 contiguous parts, no rank attends to more than 4 whole others, and its own."""
    long = ["--model.preset=llama3.1-8b", "cluster=h100", "training.seq_len=131072", "training.global_batch_size=1",
            "ranks=8", "zero_stage=3", "context_parallel_degree=8"]
    taken = {method: tool.good_json("simulate", *long, f"context_parallel_method={method}")
             for method in ("ring", "burst", "tokenring", "lightseq")}
    seconds = {method: [one["attention_seconds"] for one in said["classes"]] for method, said in taken.items()}
    zigzag = seconds["ring"][0]
    assert len(seconds["burst"]) == 1 and abs(seconds["burst"][0] / zigzag - 1) < 0.01, seconds
    assert len(seconds["tokenring"]) == 1 and abs(seconds["tokenring"][0] / zigzag - 1) < 0.01, seconds
    assert len(seconds["lightseq"]) == 8, seconds
    # (2 * 4 + 1) / 8 of the mean; ranks that neither fetch nor help in the last step have one part less.
    for rank, spent in enumerate(seconds["lightseq"]):
        assert abs(spent / zigzag - (9 if rank >= 4 else 7) / 8) < 0.02, (rank, seconds)


def test_refusals():
    alone = "context_parallel_layout: given .*, but context_parallel_method is gather, which knows contiguous alone"
    tool.refused(2, alone, "train", "c.yaml", CP + "2", LAYOUT + "zigzag", "--run.directory=refused")
    tool.refused(2, alone, "plan", "llama3-8b", "devices=8", "cluster=h100", CP + "2", LAYOUT + "striped")
    tool.refused(2, "context_parallel_layout: given striped, but context_parallel_method is lightseq, which knows "
                 "contiguous alone: set it to ring", "verify", "c.yaml", CP + "2", METHOD + "lightseq",
                 LAYOUT + "striped")
    tool.refused(2, "context_parallel_inner_degree: given 3, which does not divide the 4 context-parallel ranks",
                 "verify", "c.yaml", CP + "4", RING, INNER + "3")
    tool.refused(2, "context_parallel_inner_degree: given 2, but context_parallel_method is tokenring: ring and burst "
                 "alone have inner rings", "verify", "c.yaml", CP + "4", METHOD + "tokenring", INNER + "2")
    tool.refused(2, alone.replace("gather", "ulysses"), "verify", "c.yaml", CP + "2", METHOD + "ulysses",
                 LAYOUT + "zigzag")
    # Seven parts of 16 tokens have 3 rows, so that six are enough.
    tool.refused(2, "training.seq_len: given 16, of whose tokens the last of 7 context-parallel ranks would have none: "
                 "lower parallelism.context_parallel_degree", "verify", "c.yaml", CP + "7")
    tool.refused(2, "training.seq_len: .* the last of 2 .*: lower parallelism.context_parallel_stripe", "verify",
                 "c.yaml", CP + "2", RING, LAYOUT + "striped", "--parallelism.context_parallel_stripe=16")
    tool.refused(2, "rows, 8 in a microbatch, do not split over 3 tensor-parallel", "verify", "c.yaml", CP + "2",
                 "--model.num_attention_heads=3", "--model.head_dim=4", "--training.micro_batch_size=1",
                 "--parallelism.tensor_parallel_degree=3")
    tool.refused(2, "expected 1 or more", "verify", "c.yaml", CP + "0")
    tool.refused(2, "accepts", "verify", "c.yaml", CP + "2", "--parallelism.context_parallel_method=pass")
    plan = ["plan", "llama3-8b", "devices=8", "cluster=h100"]
    tool.refused(2, "cannot be divided into groups of 3", *plan, "context_parallel_degree=3")
    tool.refused(2, "kept, not searched", *plan, "context_parallel_degree=-1")


def test_methods():
    """Every method is listed, with the layouts that a run may have with it, its default first."""
    listed = tool.good("help", "context_parallel")
    accepted = {key: re.search(r"accepts one of (.*)", tool.good("help", f"context_parallel_{key}"))[1].split(", ")
                for key in ("method", "layout")}
    methods = dict(re.findall(r"^(\w+): ([a-z, ]+)(?:; [a-z ]+)*\n  forward .*\n  backward .*$",
                              listed, re.M))
    assert sorted([*methods, "auto"]) == sorted(accepted["method"]), (listed, accepted)
    for method, layouts in methods.items():
        layouts = layouts.split(", ")
        for layout in [*accepted["layout"], ""]:
            command = ["show", "mesh", "c.yaml", CP + "2", METHOD + method, *([LAYOUT + layout] if layout else [])]
            if layout and layout not in layouts:
                said = tool.refused(2, f"context_parallel_method is {method}, which knows {', '.join(layouts)} alone",
                                    *command)
                others = {other for other, known in methods.items() if layout in known.split(", ")}
                assert set(re.split(", | or ", said.strip().rpartition("set it to ")[2])) == others, said
            else:
                tool.good(*command)
        # Where none is given, ranks have the tokens of the first.
        first, given = (tool.good("show", "program", "c.yaml", CP + "2", METHOD + method, *more)
                        for more in ([LAYOUT + layouts[0]], []))
        assert first == given, method
    assert len({layouts for layouts in methods.values()}) > 1, methods


def test_plans():
    """Ranks that share sequences are kept in every plan; estimates are as near to simulated steps as others'."""
    plan = ["plan", "llama3.2-1b", "devices=8", "cluster=h100", "seq_len=16384", "global_batch_size=8", "mode=none",
            "micro_batch_size=1", "tensor_parallel_degree=1", "pipeline_parallel_degree=1", "context_parallel_degree=4"]
    said = tool.good_json(*plan)
    stages = set()
    for answer in said["plans"]:
        assert "cp 4" in answer["plan"], answer["plan"]
        assert answer["data_parallel_shard_degree"] * answer["data_parallel_replicate_degree"] == 2, answer
        assert abs(answer["estimated_seconds"] / answer["step_seconds"] - 1) < .1, answer
        stages.add(answer["zero_stage"])
    assert stages - {0}, stages  # states are sharded over these ranks too
    tool.good(*plan, "save=plan.yaml")
    kept = tool.good_json("simulate", "plan.yaml", "cluster=h100")
    assert abs(kept["step_seconds"] / said["plans"][0]["step_seconds"] - 1) < 1e-9, kept
    flags = tool.good(*plan, "export=megatron")
    assert "--context-parallel-size 4 --cp-comm-type all_gather" in flags, flags
    tool.good(*plan[:-1], "context_parallel_degree=1", "context_parallel_method=hybrid")
    tool.refused(2, "context_parallel_ulysses_degree: given 3, which does not divide the 4 context-parallel ranks",
                 *plan, "context_parallel_method=hybrid", "context_parallel_ulysses_degree=3")
    # The rank that has most work decides, however long the others wait for it.
    long = [*plan, "seq_len=131072", "mode=full"]
    for method in ["gather"], ["ring", "context_parallel_layout=contiguous"]:
        for answer in tool.good_json(*long, f"context_parallel_method={method[0]}", *method[1:])["plans"]:
            assert abs(answer["estimated_seconds"] / answer["step_seconds"] - 1) < .004, answer
    ring = [*plan, "context_parallel_method=ring"]
    assert "--cp-comm-type p2p " in tool.good(*ring, "export=megatron")
    assert "rotate_method = \"alltoall\"" in tool.good(*ring, "export=torchtitan")
    assert "# not available: context parallel ranks that attend as burst does" in tool.good(
        *plan, "context_parallel_method=burst", "export=megatron")
    odd = [word.replace("16384", "16388") for word in plan]
    assert "16384 tokens" not in flags and "16388 tokens" in tool.good(*odd, "export=megatron")
    toml = tool.good(*plan, "export=torchtitan")
    assert "context_parallel_degree = 4\n" in toml and "rotate_method = \"allgather\"" in toml, toml


tool.main(globals())
