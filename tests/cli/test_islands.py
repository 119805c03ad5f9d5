"""Islands: trained, compared with data parallel, resumed, shown, simulated, refused."""

import json
import shutil

import tool

ISLANDS = ["--parallelism.island_degree=2", "--outer.method=local_sgd"]
EXACT = ["--training.dtype=f64", "--training.kernels=reference"]
PLAIN = ["--optimizer.name=sgd", "--optimizer.momentum=0", "--training.max_norm=0", "--optimizer.lr=0.1"]


def close(a, b):
    return abs(a - b) <= 1e-9 * abs(b)


def state(path):
    """What a checkpoint has of the training state, and how far the islands have come."""
    data = tool.read(f"{path}/training/state.safetensors")
    length = int.from_bytes(data[:8], "little")
    progress = json.loads(tool.read(f"{path}/training/progress.json"))
    return progress.get("islands"), sorted(json.loads(data[8:8 + length])), data[8 + length:]


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
    assert state(a) == state(b), more
    return state(f"{name}/checkpoint/step-5")


def test_resuming():
    islands, names, _ = resumed("between", "--outer.sync_steps=3")
    assert islands.startswith("2 0 0 "), islands
    assert any(n.startswith("island.1.parameters.") for n in names), names
    # An exchange that was under way is in the checkpoint.
    islands, names, _ = resumed("under_way", "--outer.sync_steps=3", "--outer.delay_steps=3", "--ranks=4",
                                "--training.dtype=bf16")
    assert islands.startswith("2 6 "), islands
    assert any(n.startswith("island.0.outer.taken.") for n in names), names
    tool.refused(2, "parallelism.island_degree", "train", "c.yaml", "--parallelism.island_degree=4",
                 "--outer.method=local_sgd", "--run.directory=between", "--training.steps=9")
    tool.refused(2, "outer.method", "train", "c.yaml", "--run.directory=between", "--training.steps=9")


def test_weights_to_start_from():
    """All islands have them: what they save without learning anything are the weights, to the last bit."""
    tool.good("train", "c.yaml", "--run.directory=first")
    tool.good("train", "c.yaml", *ISLANDS, "--model.init_from=first", "--optimizer.lr=0", "--training.steps=1",
              "--validation.freq=0", "--run.directory=of_first")
    assert tool.weights("first", 6)[0] == tool.weights("of_first", 1)[0]


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
        assert {"train", "evaluate", "outer_take", "outer_exchange", "outer_settle"} == set(said), said
        text = tool.good("show", "program", "c.yaml", *mesh, "--show.program=outer_exchange")
        lines = [line for line in text.splitlines() if "= all_reduce" in line]
        assert lines and all("group island" in line and "stream outer" in line for line in lines), text
        assert "island" not in tool.good("show", "program", "c.yaml", *mesh).split("template 0")[1]
        assert ("taken" in tool.good("show", "program", "c.yaml", *mesh, "--show.program=outer_take")) == (delay > 0)
    tool.refused(2, "train, evaluate", "show", "program", "c.yaml", "--show.program=outer_take")
    said = tool.good_json("simulate", "c.yaml", "--ranks=4", *ISLANDS, "cluster=h100")
    assert said["outer_exchange_seconds"] > 0 and said["outer_settle_seconds"] > 0, said
    plain = tool.good_json("simulate", "c.yaml", "--ranks=2", "--training.global_batch_size=2", "cluster=h100")
    assert "outer_exchange_seconds" not in plain, plain
    # An island's rank has one more value for each element of its part, two where islands go on meanwhile.
    shown = [tool.good_json("show", "memory", "c.yaml", *mesh)["state_bytes"]
             for mesh in (["--ranks=2", "--training.global_batch_size=2"], ["--ranks=4", *ISLANDS],
                          ["--ranks=4", *ISLANDS, "--outer.delay_steps=1"])]
    assert shown[0] < shown[1] < shown[2] and abs(shown[2] + shown[0] - 2 * shown[1]) <= 128, shown
    assert said["peak_bytes"] - plain["peak_bytes"] == shown[1] - shown[0], (said, plain, shown)


def test_refusals():
    tool.refused(2, "there is nobody to meet", "verify", "c.yaml", "--outer.method=local_sgd")
    tool.refused(2, "say how islands meet", "verify", "c.yaml", "--parallelism.island_degree=2")
    tool.refused(2, "outer.delay_steps", "verify", "c.yaml", *ISLANDS, "--outer.sync_steps=2", "--outer.delay_steps=3")
    tool.refused(2, "global_batch_size", "verify", "c.yaml", *ISLANDS[1:], "--parallelism.island_degree=3")
    tool.refused(2, "eval reads one model", "eval", "islands", "data.path=text/t", "--parallelism.island_degree=2")
    tool.refused(2, "plan knows one island", "plan", "llama3-8b", "devices=8", "cluster=h100", "island_degree=2")


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
    step, exchange = said["step_seconds"], said["outer_exchange_seconds"]
    ends = said["outer_take_seconds"] + said["outer_settle_seconds"]
    assert step < exchange < 7 * step, (step, exchange)
    assert near(seconds, ends + exchange + 8 * step), (seconds, said)
    assert said["period"]["steps"] == 8 and near(said["period"]["tokens_per_second"], 8 * 8 * 64 / seconds)
    said, seconds = period(1)
    ends = said["outer_take_seconds"] + said["outer_settle_seconds"]
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
    assert "\n8 steps with all this: " in text and " over island, which may be beside steps\n" in text, text
    # Stages and tensor ranks each exchange their own part, at the same time; a rank's memory is as before.
    many = ["--ranks=8", *ISLANDS, "--tensor_parallel_degree=2", "--pipeline_parallel_degree=2", "cluster=h100"]
    said = tool.good_json("simulate", *MODEL, *many, "--outer.sync_steps=4", "--outer.delay_steps=2")
    least = 4 * said["step_seconds"] + said["outer_take_seconds"] + said["outer_settle_seconds"]
    assert .98 * least < said["period"]["seconds"] < 1.1 * least, said
    assert "period" not in tool.good_json("simulate", *MODEL, "--ranks=2", "cluster=h100")


def test_bytes_of_a_meeting():
    tool.write("wan.yaml", tool.CLUSTER)
    said = tool.good_json("simulate", *MODEL, "--ranks=2", *ISLANDS, "cluster=wan.yaml")
    parameters = tool.good_json("show", "memory", *MODEL, "--ranks=1")["parameter_bytes"] - 4 * 64 * 64
    assert said["communicated_bytes"] == {"outer_exchange": {"island": parameters + 8}}, (said, parameters)
    shown = tool.good_json("show", "mesh", *MODEL, "--ranks=2", *ISLANDS)
    (island,) = [g for g in shown["groups"] if g["axes"] == "island"]
    assert sum(u["bytes"] for u in island["communication"]) == parameters + 8, island


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
    assert waiting["exchange"][1] <= waiting["settle"][0] and waiting["settle"][1] <= waiting["forward"][0], waiting
    # One program alone, whether a period has it or not.
    assert set(spans(tool.good("show", "timeline", *keys, "--show.program=outer_exchange"))) == {"exchange"}
    assert set(spans(tool.good("show", "timeline", *keys, "--show.program=evaluate"))) == {"input", "forward"}
    tool.refused(2, "this run's programs are train, evaluate$", "show", "timeline", "c.yaml",
                 "--show.program=outer_take")


def test_ranks_say_which_programs_they_run():
    tool.good("train", "c.yaml", *ISLANDS, "--outer.sync_steps=1", "--validation.freq=0", "--run.directory=islands")
    data = tool.read("islands/ranks.bin")
    assert data.count(b"outer_exchange\0") == data.count(b"evaluate\0") == 2  # of each rank, what it ran last
    tool.good("train", "c.yaml", "--ranks=2", "--run.directory=plain")
    assert b"outer_" not in tool.read("plain/ranks.bin")


def test_memory_of_a_program():
    keys = ["show", "memory", "c.yaml", "--ranks=2", *ISLANDS]
    sizes = {p: tool.good_json(*keys, f"--show.program={p}")["step_bytes"] for p in ("train", "outer_exchange")}
    assert tool.good_json(*keys)["step_bytes"] == sizes["train"] > 100 * sizes["outer_exchange"], sizes
    assert "outer.weight" in tool.good(*keys, "--show.program=outer_exchange")


tool.main(globals())
