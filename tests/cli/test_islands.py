"""Islands: trained, compared with data parallel, resumed, shown, simulated, refused."""

import shutil
import struct

import tool

ISLANDS = ["--parallelism.island_degree=2", "--outer.method=local_sgd"]
EXACT = ["--training.dtype=f64", "--training.kernels=reference"]
SCALED = ["--optimizer.name=scaled"]
PLAIN = ["--optimizer.name=sgd", "--optimizer.momentum=0", "--training.max_norm=0", "--optimizer.lr=0.1"]


def close(a, b):
    return abs(a - b) <= 1e-9 * abs(b)


def test_averaging_each_step_is_data_parallel():
    tool.good("train", "c.yaml", *EXACT, *PLAIN, "--ranks=2", "--parallelism.zero_stage=0", "--run.directory=dp")
    tool.good("train", "c.yaml", *EXACT, *PLAIN, *ISLANDS, "--outer.sync_steps=1", "--run.directory=islands")
    for a, b in zip(tool.metrics("dp"), tool.metrics("islands"), strict=True):
        assert close(a["loss"], b["loss"]) and a["tokens"] == b["tokens"], (a, b)
        assert ("val_loss" in a) == ("val_loss" in b)
        assert a.get("val_loss") is None or close(a["val_loss"], b["val_loss"]), (a, b)
    # The norm is that of the first island.
    assert not close(tool.metrics("dp")[-1]["grad_norm"], tool.metrics("islands")[-1]["grad_norm"])


def resumed(name, *more):
    """Trains, and from the checkpoint of step 5 again; both must end with the same bits."""
    run = ["train", "c.yaml", *ISLANDS, *more, "--training.steps=8", "--checkpoint.interval=5",
           "--checkpoint.keep_latest_k=0"]
    tool.good(*run, f"--run.directory={name}")
    shutil.copytree(name, f"{name}.again")
    shutil.rmtree(f"{name}.again/checkpoint/step-8")
    tool.good(*run, f"--run.directory={name}.again")
    a, b = (f"{d}/checkpoint/step-8" for d in (name, f"{name}.again"))
    assert tool.read(f"{a}/model.safetensors") == tool.read(f"{b}/model.safetensors"), more
    assert tool.state(a) == tool.state(b), more
    of_islands = ("step", "loss", "val_loss", "grad_norm", "lr", "tokens")
    a, b = ([[line.get(key) for key in of_islands] for line in tool.metrics(d)] for d in (name, f"{name}.again"))
    assert a == b and [line[0] for line in a] == list(range(1, 9)), (a, b)
    return tool.state(f"{name}/checkpoint/step-5")


def test_resuming():
    islands, names, _ = resumed("between", "--outer.sync_steps=3")
    assert islands.startswith("2 1 0 0 "), islands  # islands, fragments; nothing is under way
    assert any(n.startswith("island.1.parameters.") for n in names), names
    # An exchange that was under way is in the checkpoint.
    islands, names, _ = resumed("under_way", "--outer.sync_steps=3", "--outer.delay_steps=3", "--ranks=4",
                                "--training.dtype=bf16")
    assert islands.startswith("2 1 1 6 "), islands
    assert any(n.startswith("island.0.outer.taken.") for n in names), names
    tool.refused(2, "outer.method", "train", "c.yaml", "--run.directory=between", "--training.steps=9")


def test_weights_to_start_from():
    """All islands have them: what they save without learning anything are the weights, to the last bit."""
    tool.good("train", "c.yaml", "--run.directory=first")
    tool.good("train", "c.yaml", *ISLANDS, "--model.init_from=first", "--optimizer.lr=0", "--training.steps=1",
              "--validation.freq=0", "--run.directory=of_first")
    assert tool.weights("first", 6)[0] == tool.weights("of_first", 1)[0]


def test_methods_resume():
    """The same bits, wherever a run of whatever method was interrupted."""
    for method, more in (("diloco", []), ("streaming_diloco", ["--model.num_hidden_layers=2", "--outer.delay_steps=1"]),
                         ("eager_diloco", []), ("co2", ["--training.dtype=bf16"]), ("qsr", []),
                         ("gossip", ["--parallelism.island_degree=4", "--outer.sync_steps=3"]),
                         ("local_scaled",
                          [*SCALED, "--training.dtype=bf16", "--ranks=4", "--parallelism.zero_stage=2"])):
        sync = "--outer.sync_steps=4" if method == "streaming_diloco" else "--outer.sync_steps=2"
        resumed(method, f"--outer.method={method}", sync, *more)


def parameters(path):
    """All parameters of a checkpoint in f64."""
    return [x for _, (_, data) in sorted(tool.tensors(tool.read(f"{path}/model.safetensors")).items())
            for x in struct.unpack(f"<{len(data) // 8}d", data)]


TP, PP = "--tensor_parallel_degree=2", "--pipeline_parallel_degree=2 --model.num_hidden_layers=2"
SAME = [  # one method, the same by other means, and what both have in common
    ("local_sgd --outer.sync_steps=1 --parallelism.island_degree=2",
     "none --parallelism.data_parallel_replicate_degree=2", " ".join(PLAIN)),
    ("streaming_diloco --outer.fragments=1 --outer.delay_steps=0 --outer.mix=0 --outer.codec=none --outer.lr=.7",
     "diloco", "--outer.sync_steps=3 --parallelism.island_degree=2"),
    ("diloco --outer.lr=1 --outer.momentum=0", "local_sgd --outer.weights=equal",
     "--outer.sync_steps=3 --parallelism.island_degree=2"),
    ("qsr --outer.interval_lr=2e-3", "local_sgd",
     "--outer.sync_steps=4 --optimizer.lr=1e-3 --lr_scheduler.warmup_steps=0 --lr_scheduler.decay_type=constant "
     "--parallelism.island_degree=2"),
    ("eager_diloco --outer.lr=.7 --outer.momentum=.9", "diloco",
     "--outer.sync_steps=3 --parallelism.island_degree=1"),
    ("co2 --outer.delay_steps=0 --outer.penalty=0 --outer.clip=0",
     "local_sgd --outer.optimizer=sgd --outer.nesterov=false --outer.lr=1 --outer.momentum=.5 --outer.weights=equal",
     "--outer.sync_steps=3 --parallelism.island_degree=2"),
    ("local_sgd --outer.reduce=pairs", "local_sgd", "--outer.sync_steps=3 --parallelism.island_degree=2"),
    ("gossip", "diloco --outer.momentum=.5 --outer.nesterov=false",
     "--outer.sync_steps=3 --parallelism.island_degree=1"),
]


def test_methods_that_are_the_same():
    """Whatever mesh an island is: losses and parameters, to rounding."""
    meshes = [(TP, 2), (PP, 2), ("--parallelism.zero_stage=1", 2), ("--parallelism.zero_stage=3", 2)]
    for number, (one, other, common) in enumerate(SAME[:2] if tool.SANITIZED else SAME):
        for mesh, ranks in meshes if number == 0 else [meshes[number % 4]]:
            ranks *= 1 if "island_degree=1" in common else 2
            zero = [] if "zero_stage" in mesh else ["--parallelism.zero_stage=0"]
            for method, directory in (one, "one"), (other, "other"):
                tool.good("train", "c.yaml", *EXACT, f"--ranks={ranks}", *mesh.split(), *zero, *common.split(),
                          *f"--outer.method={method}".split(), "--training.steps=12", f"--run.directory={directory}")
            for a, b in zip(tool.metrics("one"), tool.metrics("other"), strict=True):
                assert close(a["loss"], b["loss"]), (one, other, mesh, a, b)
            a, b = parameters("one/checkpoint/step-12"), parameters("other/checkpoint/step-12")
            assert max(abs(x - y) for x, y in zip(a, b, strict=True)) <= 1e-9, (one, other, mesh)
            shutil.rmtree("one"), shutil.rmtree("other")


def test_model_of_a_checkpoint():
    """It is what the outer optimizer has come to, whatever islands have learnt since: nothing, before they meet."""
    for dtype in "f32", "bf16":
        tool.good("train", "c.yaml", f"--training.dtype={dtype}", f"--run.directory=from_{dtype}")
        for method in "diloco", "eager_diloco", "gossip":
            tool.good("train", "c.yaml", ISLANDS[0], f"--outer.method={method}", f"--model.init_from=from_{dtype}",
                      f"--training.dtype={dtype}", "--training.freeze=*norm*", "--validation.freq=0",
                      f"--run.directory={method}_{dtype}")
            assert tool.weights(f"from_{dtype}", 6)[0] == tool.weights(f"{method}_{dtype}", 6)[0], (method, dtype)


def test_an_interval_that_changes():
    # What is under way at step 5 arrives before islands meet again, though it was to arrive later.
    run = ["train", "c.yaml", *ISLANDS, "--outer.delay_steps=4", "--training.steps=8", "--checkpoint.interval=5",
           "--checkpoint.keep_latest_k=0"]
    tool.good(*run, "--outer.sync_steps=4", "--run.directory=earlier")
    shutil.rmtree("earlier/checkpoint/step-8")
    tool.good(*run, "--outer.sync_steps=6", "--run.directory=earlier")
    tool.good(*run, "--outer.sync_steps=100", "--run.directory=never")
    earlier, never = ({m["step"]: m["loss"] for m in tool.metrics(name)} for name in ("earlier", "never"))
    assert all((earlier[step] == never[step]) == (step <= 6) for step in never), (earlier, never)


def test_programs():
    for delay in 0, 2:
        mesh = ["--ranks=4", *ISLANDS, f"--outer.delay_steps={delay}"]
        said = {p["program"]: p for p in tool.good_json("verify", "c.yaml", *mesh)["programs"]}
        parts = {"outer_take", "outer_exchange", "outer_settle"} if delay else {"outer_meet"}
        assert {"train", "evaluate", "outer_show", "outer_hide"} | parts == set(said), said
        exchange = "outer_exchange" if delay else "outer_meet"
        text = tool.good("show", "program", "c.yaml", *mesh, f"--show.program={exchange}")
        lines = [line for line in text.splitlines() if "= all_reduce" in line]
        assert lines and all("group island" in line and "stream outer" in line for line in lines), text
        assert "island" not in tool.good("show", "program", "c.yaml", *mesh).split("template 0")[1]
    tool.refused(2, "train, evaluate", "show", "program", "c.yaml", "--show.program=outer_take")
    said = tool.good_json("simulate", "c.yaml", "--ranks=4", *ISLANDS, "cluster=h100")
    assert said["outer_meet_seconds"] > 0, said
    plain = tool.good_json("simulate", "c.yaml", "--ranks=2", "--training.global_batch_size=2", "cluster=h100")
    assert "outer_meet_seconds" not in plain, plain


def test_memory():
    """Islands that wait for one another keep nothing for it; those that go on meanwhile keep what they took, and its
    sum. An outer optimizer has an anchor, and a velocity if there is a momentum."""
    def state_bytes(*more):
        return tool.good_json("show", "memory", "c.yaml", *more)["state_bytes"]
    plain = state_bytes("--ranks=2", "--training.global_batch_size=2")
    own = 0
    for method, values in (("local_sgd", 0), ("local_sgd --outer.delay_steps=1", 2), ("diloco", 2),
                           ("local_scaled --optimizer.name=scaled", 0),
                           ("diloco --outer.momentum=0", 1), ("gossip", 2), ("eager_diloco", 4), ("co2", 4),
                           ("streaming_diloco --outer.delay_steps=1", 4)):
        kept = state_bytes("--ranks=4", ISLANDS[0], *f"--outer.method={method}".split(), "--outer.fragments=1") - plain
        own = own or (kept // values if values else 0)  # the rank's part of the parameters, and padding
        scalars = 256 * (values > 0 or "scaled" in method)
        assert abs(kept - values * own) <= scalars, (method, kept, own)


def test_refusals():
    tool.refused(2, "say how islands meet", "verify", "c.yaml", "--parallelism.island_degree=2")
    for why, *keys in (("the next exchange begins 2 steps later", "local_sgd", "sync_steps=2", "delay_steps=3"),
                       (r"2 steps later \(outer.sync_steps / outer.fragments\)", "streaming_diloco", "sync_steps=4",
                        "delay_steps=3"),
                       ("does not divide outer.sync_steps 5", "streaming_diloco", "sync_steps=5"),
                       ("the model has only 2 layers", "diloco", "fragments=4"),
                       ("an interval that is constant", "qsr", "fragments=2"),
                       ("give a number of steps", "streaming_diloco", "delay_steps=-1"),
                       (r"a whole interval long \(-1\)", "eager_diloco", "delay_steps=1"),
                       ("needs optimizer.name=scaled", "local_scaled"),
                       ("outer.eager", "eager_diloco", "optimizer=none"),
                       ("outer.weights=equal", "eager_diloco", "weights=targets"), ("outer.mix", "diloco", "mix=1"),
                       ("islands wait for one another", "gossip", "delay_steps=2"),
                       ("islands wait for one another", "co2", "reduce=pairs")):
        method, *more = keys
        tool.refused(2, why, "verify", "c.yaml", "--model.num_hidden_layers=2", ISLANDS[0], f"--outer.method={method}",
                     *(f"--outer.{key}" for key in more))
    tool.refused(2, "say how, as in outer.method", "verify", "c.yaml", *SCALED)
    for why in "--outer.codec=bf16", "--outer.delay_steps=1", "--outer.fragments=2", "--outer.reduce=pairs":
        tool.refused(2, "meet at once", "verify", "c.yaml", *ISLANDS, *SCALED, "--model.num_hidden_layers=2", why)
    tool.refused(2, "global_batch_size", "verify", "c.yaml", *ISLANDS[1:], "--parallelism.island_degree=3")
    tool.refused(2, "eval reads one model", "eval", "islands", "data.path=text/t", "--parallelism.island_degree=2")


MODEL = ["--model.family=llama", "--model.num_hidden_layers=2", "--model.hidden_size=256",
         "--model.num_attention_heads=4", "--training.seq_len=64", "--training.global_batch_size=8"]


def period(delay, *more):
    said = tool.good_json("simulate", *MODEL, "--ranks=2", *ISLANDS, "--outer.sync_steps=8",
                          f"--outer.delay_steps={delay}", *(more or ["cluster=wan.yaml"]))
    return said, said["period"]["seconds"]


def near(a, b):
    return abs(a - b) <= 1e-6 * b


def test_a_period_is_simulated():
    """From one meeting to the next: what is exchanged takes time only where the steps beside it are shorter."""
    tool.write("wan.yaml", tool.CLUSTER)
    said, seconds = period(0)
    step, meeting = said["step_seconds"], said["outer_meet_seconds"]
    assert near(seconds, meeting + 8 * step), (seconds, said)
    assert said["period"]["steps"] == 8 and near(said["period"]["tokens_per_second"], 8 * 8 * 64 / seconds)
    said, seconds = period(1)
    ends, exchange = said["outer_take_seconds"] + said["outer_settle_seconds"], said["outer_exchange_seconds"]
    assert step < exchange < 7 * step, (step, exchange)
    assert exchange < meeting < 1.01 * (exchange + ends), (meeting, said)
    assert near(seconds, ends + exchange + 7 * step), (seconds, said)
    for delay in 7, 8:
        assert near(period(delay)[1], ends + 8 * step), delay
    # Of many steps only those are simulated beside which something runs.
    text = tool.good("simulate", *MODEL, "--ranks=2", *ISLANDS, "--outer.sync_steps=100000",
                     "--outer.delay_steps=50000", "cluster=wan.yaml", "--json", "trace=t.json")
    many = tool.strict_json(text)["period"]
    assert many["steps"] == 100000 and near(many["seconds"], ends + 100000 * step), many
    assert 2 < tool.read("t.json").count(b'"increment"') < 10
    # Where cores communicate, the steps are longer by what they lose.
    tool.write("cores.yaml", tool.CLUSTER.replace("40 GB/s\n", "40 GB/s\n    communication: 0.5\n"))
    said, seconds = period(7, "cluster=cores.yaml")
    lost = seconds - ends - 8 * said["step_seconds"]
    moved = said["communicated_bytes"]["outer_exchange"]["island"] / 125e6
    assert .4 * moved < lost < .6 * moved, (lost, moved)
    text = tool.good("simulate", *MODEL, "--ranks=2", *ISLANDS, "--outer.sync_steps=8", "cluster=wan.yaml")
    assert "\n8 steps with all this: " in text and " over island\n" in text, text
    text = tool.good("simulate", *MODEL, "--ranks=2", *ISLANDS, "--outer.delay_steps=1", "cluster=wan.yaml")
    assert " over island, which may be beside steps\n" in text, text
    # Stages and tensor ranks each exchange their own part, at the same time; a rank's memory is as before.
    many = ["--ranks=8", *ISLANDS, "--tensor_parallel_degree=2", "--pipeline_parallel_degree=2", "cluster=h100"]
    said = tool.good_json("simulate", *MODEL, *many, "--outer.sync_steps=4", "--outer.delay_steps=2")
    least = 4 * said["step_seconds"] + said["outer_take_seconds"] + said["outer_settle_seconds"]
    assert .98 * least < said["period"]["seconds"] < 1.1 * least, said
    assert "period" not in tool.good_json("simulate", *MODEL, "--ranks=2", "cluster=h100")


def test_islands_have_links_of_their_own():
    """By the formulas of a ring, and of what steps hide: the share of a period in which devices compute."""
    tool.write("wan.yaml", tool.CLUSTER)

    def islands_on(link, islands, sharing, *keys):
        """What is said, and the seconds of a period's steps and of its exchange, by formulas."""
        said = tool.good_json("simulate", *MODEL, "--ranks=4", f"--parallelism.island_degree={islands}", *keys,
                              "cluster=wan.yaml", *link)
        (moved,) = (v["island"] for k, v in said["communicated_bytes"].items() if k != "train")
        # Four units, with tp three more for what is not cut, and the sum of the weights; one link for `sharing` ranks.
        collectives = 5 + 3 * ("--tensor_parallel_degree=2" in keys)
        exchange = 2 * (islands - 1) * (sharing * moved / islands / 1e6 + collectives * .01)
        return said, said["period"]["steps"] * said["step_seconds"], exchange

    link = ["island_bandwidth=8 Mbit/s", "island_latency=10ms"]
    late = ["streaming_diloco", "--outer.fragments=1", "--outer.delay_steps=250", "--outer.codec=none"]
    for keys in ["diloco", "--outer.sync_steps=400"], [*late, "--outer.sync_steps=400"]:
        said, steps, exchange = islands_on(link, 4, 1, f"--outer.method={keys[0]}", *keys[1:])
        hidden = 250 * said["step_seconds"] if len(keys) > 2 else 0
        share = steps / (steps + exchange - hidden)
        assert .1 < share < .9 and abs(said["compute_share"] - share) < 2e-3, (keys, share, said)
    # Where the exchange has ended in time, only what is done before and after it is left.
    said = islands_on(link, 4, 1, "--outer.method=eager_diloco", "--outer.sync_steps=1500")[0]
    assert near(said["compute_share"], 1), said
    # Where cores communicate, steps are longer by what they lose, however many there are beside an exchange.
    tool.write("wan.yaml", tool.CLUSTER.replace("40 GB/s\n", "40 GB/s\n    communication: 0.5\n"))
    said, steps, exchange = islands_on(link, 4, 1, "--outer.method=eager_diloco", "--outer.sync_steps=500")
    seconds = max(steps, exchange) + .5 * min(steps, exchange)
    assert abs(said["period"]["seconds"] - seconds) < 2e-3 * seconds, (seconds, said)
    tool.write("wan.yaml", tool.CLUSTER)
    # An island's link is shared by its ranks, whether these exchange parts of the parameters or all of them.
    tensor = ["--outer.method=diloco", "--tensor_parallel_degree=2"]
    replicas = ["--outer.method=diloco", "--data_parallel_replicate_degree=2"]
    for sharing in tensor, replicas:
        said, _, exchange = islands_on(link, 2, 2, *sharing)
        assert abs(said["outer_meet_seconds"] - exchange) < 3e-3 * exchange, (sharing, exchange, said)
    # Where pairs meet, each unit takes two messages, and the weight one, however far these go.
    pairs = tool.good_json("simulate", *MODEL, "--ranks=4", "--parallelism.island_degree=4", "--outer.method=gossip",
                           "cluster=wan.yaml", *link)
    exchange = pairs["period"]["sent_bytes"]["island"] / 2 / 1e6 + 9 * .01
    assert abs(pairs["outer_meet_seconds"] - exchange) < 3e-3 * exchange, (exchange, pairs)
    # Only what islands exchange goes over it; without a latency there is none.
    other = tool.good_json("simulate", *MODEL, "--ranks=4", *ISLANDS[:1], *replicas, "cluster=wan.yaml")
    assert other["step_seconds"] == said["step_seconds"], (other, said)
    direct, _, exchange = islands_on(link[:1], 2, 2, *replicas)
    assert abs(said["outer_meet_seconds"] - direct["outer_meet_seconds"] - .1) < 1e-6, (said, direct)
    assert islands_on(["island_bandwidth=1e6"], 2, 2, *replicas)[0]["period"] == direct["period"]
    for keys, pattern in ((["island_latency=1ms", *replicas], "island_bandwidth= is missing"),
                          (["island_bandwidth=1 GB", *replicas], "expected a rate in"),
                          (["island_bandwidth=0", *replicas], "expected from 1 kB/s"),
                          (["island_bandwidth=1e6"], "one island alone")):
        degree = "--parallelism.island_degree=2" if len(keys) > 1 else "--data_parallel_replicate_degree=4"
        tool.refused(2, pattern, "simulate", *MODEL, "--ranks=4", degree, "cluster=wan.yaml", *keys)


def test_published_shares():
    """Gbit/s for a share of 50, 80 and 95% with steps of 0.8 s (Douillard et al. 2025, "Streaming DiLoCo", table 4)."""
    big = ["--model.family=llama", "--model.num_hidden_layers=48", "--model.hidden_size=4096",
           "--model.num_attention_heads=32", "--model.intermediate_size=10880", "--model.vocab_size=32000",
           "--training.dtype=bf16", "--training.seq_len=2048", "--training.micro_batch_size=8",
           "--training.global_batch_size=16"]

    def said(rate, peak, *keys):
        tool.write("big.yaml", f"""\
devices: {{d: {{peak: {{bf16: {peak:g} TFLOP/s}}, memory: 1 TB, bandwidth: 1000 TB/s,
              efficiency: {{other: {{memory: 1, compute: 0}}, matmul: {{compute: 1}}, attention: {{compute: 1}}}}}}}}
nodes: [{{device: d, nodes: 2, devices: 1}}]
links: [{{name: wan, spans: all, latency: 0 s, bandwidth: {rate} Gbit/s, algorithm: ring}}]
""")
        return tool.good_json("simulate", *big, *keys, "cluster=big.yaml")

    islands = ["--parallelism.island_degree=2", "--outer.method=diloco", "--outer.sync_steps=100",
               "--outer.codec=bf16"]
    peak = 1000 * said(1, 1000, *islands)["step_seconds"] / .8
    for keys, published in ((["--parallelism.data_parallel_replicate_degree=2", "--parallelism.reduce_dtype=bf16"],
                             (104.8, 222.3, 268.3)), (islands, (1.7, 7.5, 33.9))):
        for rate, share in zip(published, (.5, .8, .95)):
            answer = said(rate, peak, *keys)
            assert abs(answer["compute_share"] - share) < .06, (keys, rate, share, answer)


def test_bytes_of_a_meeting():
    tool.write("wan.yaml", tool.CLUSTER)
    said = tool.good_json("simulate", *MODEL, "--ranks=2", *ISLANDS, "cluster=wan.yaml")
    parameters = tool.good_json("show", "memory", *MODEL, "--ranks=1")["parameter_bytes"] - 4 * 64 * 64
    assert said["communicated_bytes"] == {"outer_meet": {"island": parameters + 8}}, (said, parameters)
    shown = tool.good_json("show", "mesh", *MODEL, "--ranks=2", *ISLANDS)
    (island,) = [g for g in shown["groups"] if g["axes"] == "island"]
    for program in "outer_meet", "outer_show":
        uses = [u["bytes"] for u in island["communication"] if u["program"] == program]
        assert sum(uses) == parameters + 8, (program, island)


def test_bytes_of_steps():
    """What metrics.jsonl says of each step is what is simulated, and what closed forms give."""
    wide = ["c.yaml", "--model.num_hidden_layers=2", "--validation.freq=3", "--training.steps=4"]

    def run(*keys):
        tool.good("train", *wide, *keys, "--run.directory=bytes")
        lines = [line["bytes"] for line in tool.metrics("bytes")]
        shutil.rmtree("bytes")
        return lines, tool.good_json("simulate", *wide, *keys, "cluster=h100")

    four = ["--parallelism.island_degree=4", "--outer.method=local_sgd", "--outer.sync_steps=2"]
    lines, said = run(*four)
    parameters = said["communicated_bytes"]["outer_meet"]["island"] - 8
    meeting = 2 * 3 / 4 * (parameters + 8)
    assert lines == [{"island": 0}, {"island": meeting}] * 2 and said["sent_bytes"] == {"island": 0}, lines
    assert said["period"]["sent_bytes"] == {"island": meeting}, said
    # To one other island, however many there are: how far it has come, its anchor, and its weight.
    lines, said = run(*four, "--outer.method=gossip")
    assert lines == [{"island": 0}, {"island": 2 * parameters + 8}] * 2, (lines, parameters)
    assert said["period"]["steps"] == 4 and said["period"]["sent_bytes"] == {"island": 2 * (2 * parameters + 8)}, said
    # The sums of losses, targets and squares are of four bytes to eight.
    # With so many tokens, gradients of all rows of the embedding are summed.
    lines, said = run("--parallelism.data_parallel_replicate_degree=4", "--training.global_batch_size=128")
    assert lines == [said["sent_bytes"]] * 4, (lines, said)
    assert 0 <= lines[0]["dp"] - 2 * 3 / 4 * parameters < 2 * 3 / 4 * 40, (lines, parameters)
    # One message forward and one back for each microbatch.
    lines, said = run("--parallelism.pipeline_parallel_degree=2", "--training.micro_batch_size=1")
    assert lines == [said["sent_bytes"]] * 4 and 0 <= lines[0]["pp"] - 4 * 16 * 16 * 4 < 40, lines
    # A fragment counts in the step after which it sets out.
    streaming = ["--parallelism.island_degree=2", "--outer.method=streaming_diloco", "--outer.sync_steps=4",
                 "--outer.delay_steps=1", "--parallelism.tensor_parallel_degree=2"]
    lines, said = run(*streaming)
    assert all(line["tp"] == said["sent_bytes"]["tp"] > 0 for line in lines), (lines, said)
    assert [line["island"] > 0 for line in lines] == [False, True, False, True], lines
    assert {a: sum(line[a] for line in lines) for a in ("tp", "island")} == said["period"]["sent_bytes"], (lines, said)
    tool.good("train", *wide, "--run.directory=bytes")
    assert all("bytes" not in line for line in tool.metrics("bytes"))


def test_plan_chooses_an_interval():
    """The first that leaves the share, in the best plan of one island; what is saved is simulated as it was said."""
    tool.write("wan.yaml", tool.CLUSTER)
    link = ["island_bandwidth=1e8", "island_latency=1 ms"]

    def plan(*keys):
        said = tool.good_json("plan", "llama-5m", "cluster=wan.yaml", "devices=4", "global_batch_size=8", "seq_len=64",
                              "seconds=1", "data_parallel_shard_degree=1", "tensor_parallel_degree=1",
                              "pipeline_parallel_degree=1", "mode=none", "save=plan.yaml", *link, *keys)
        islands = said["islands"]
        assert [a["speed"] for a in islands["intervals"]] == sorted(a["speed"] for a in islands["intervals"]), islands
        assert islands["sync_steps"] == islands["intervals"][-1]["sync_steps"], islands
        assert said["ranks"] == 4 / islands["island_degree"], said
        again = tool.good_json("simulate", "plan.yaml", "cluster=wan.yaml", *link)
        last = islands["intervals"][-1]
        assert again["ranks"] == 4 and again["period"]["steps"] == last["sync_steps"], again
        assert near(again["compute_share"], last["compute_share"]), (again, last)
        assert near(last["speed"], last["sync_steps"] * again["step_seconds"] / again["period"]["seconds"]), again
        memory = tool.good_json("show", "memory", "plan.yaml", "--training.threads=1")["predicted_bytes"]
        beside = again["peak_bytes"] - memory  # what exchanges hold while steps run
        assert beside > 0 if "outer_exchange_seconds" in again else beside == 0, (memory, again)
        assert abs(memory - said["plans"][0]["peak_bytes"]) < .02 * memory, (memory, said)
        return islands, [a["sync_steps"] for a in islands["intervals"]]

    islands, tried = plan("island_degree=4", "outer.method=diloco")
    assert tried == [1, 2, 5, 10, 20, 50, 100, 200, 500][:len(tried)] and islands["reached"], islands
    assert islands["intervals"][-2]["speed"] < .95 <= islands["intervals"][-1]["speed"], islands
    fewer = plan("island_degree=4", "outer.method=diloco", "island_share=0.5")[1]
    assert 1 < len(fewer) < len(tried), (fewer, tried)
    # Fragments meet evenly, and none before the one before it has arrived.
    late, tried = plan("island_degree=2", "outer.method=streaming_diloco", "outer.fragments=4", "outer.delay_steps=4")
    assert tried[0] == 20 and late["reached"], late
    # What is set stays, even if it is too short.
    islands, tried = plan("island_degree=2", "outer.method=diloco", "outer.sync_steps=3")
    assert tried == [3] and not islands["reached"], islands
    words = ["plan", "llama-5m", "cluster=wan.yaml", "devices=4", "global_batch_size=8", "seq_len=64"]
    for keys, pattern in ((["island_degree=3", "outer.method=diloco"], "does not divide 4 ranks"),
                          (["island_degree=2"], "say how islands meet"),
                          (["island_degree=-1", "outer.method=diloco"], "expected 1 or more"),
                          (["island_bandwidth=1e6"], "one island alone"),
                          (["island_degree=2", "outer.method=diloco", "export=megatron"], "have no islands"),
                          (["island_degree=4", "global_batch_size=6", "outer.method=diloco"], "a batch of 6 seq"),
                          (["island_degree=2", "outer.method=local_sgd", "outer.delay_steps=2000",
                            "outer.sync_steps=2000", "island_latency=1"], "island_bandwidth= is missing")):
        tool.refused(2, pattern, *words, *keys)


def spans(text):
    """Of rank 0: the first beginning and the last end of each template's events, and the threads they are on."""
    events = tool.strict_json(text)["traceEvents"]
    threads = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 0}
    out = {}
    for e in (e for e in events if e["ph"] == "X" and e["pid"] == 0):
        first, last, names = out.get(e["cat"], (e["ts"], 0, set()))
        out[e["cat"]] = min(first, e["ts"]), max(last, e["ts"] + e["dur"]), names | {threads[e["tid"]]}
    return out


def test_timelines_have_meetings():
    keys = ["c.yaml", "--ranks=2", *ISLANDS, "--outer.delay_steps=2"]
    tool.write("wan.yaml", tool.CLUSTER)
    tool.good("simulate", *keys, "cluster=wan.yaml", "trace=t.json")
    for text in tool.good("show", "timeline", *keys), tool.read("t.json").decode():
        at = spans(text)
        assert {"take", "exchange", "settle", "forward", "backward", "optimizer"} <= set(at), at
        assert at["exchange"][2] == {"outer_exchange/compute", "outer_exchange/outer"}, at
        # Steps run while what was taken is exchanged, and parameters settle when both are done.
        assert at["take"][1] <= min(at["exchange"][0], at["forward"][0]), at
        assert max(at["exchange"][1], at["optimizer"][1]) <= at["settle"][0] + 1e-3, at
    waiting = spans(tool.good("show", "timeline", *keys[:-1]))
    assert waiting["meet"][1] <= waiting["forward"][0] and "settle" not in waiting, waiting
    # One program alone, whether a period has it or not.
    assert set(spans(tool.good("show", "timeline", *keys, "--show.program=outer_exchange"))) == {"exchange"}
    assert set(spans(tool.good("show", "timeline", *keys, "--show.program=evaluate"))) == {"input", "forward"}
    tool.refused(2, "this run's programs are train, evaluate$", "show", "timeline", "c.yaml",
                 "--show.program=outer_take")


def test_ranks_say_which_programs_they_run():
    tool.good("train", "c.yaml", *ISLANDS, "--outer.sync_steps=1", "--outer.delay_steps=1", "--validation.freq=0",
              "--run.directory=islands")
    data = tool.read("islands/ranks.bin")
    assert data.count(b"outer_exchange\0") == data.count(b"outer_hide\0") == 2  # of each rank, what it ran last
    tool.good("train", "c.yaml", "--ranks=2", "--run.directory=plain")
    assert b"outer_exchange" not in tool.read("plain/ranks.bin")


def test_memory_of_a_program():
    keys = ["show", "memory", "c.yaml", "--ranks=2", *ISLANDS, "--outer.delay_steps=1"]
    sizes = {p: tool.good_json(*keys, f"--show.program={p}")["step_bytes"] for p in ("train", "outer_exchange")}
    assert tool.good_json(*keys)["step_bytes"] == sizes["train"] > 100 * sizes["outer_exchange"], sizes
    assert "outer.weight" in tool.good(*keys, "--show.program=outer_exchange")


tool.main(globals())
