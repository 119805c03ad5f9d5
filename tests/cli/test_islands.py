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
    data = tool.read(f"{path}/state.safetensors")
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    return header["__metadata__"].get("islands"), sorted(header), data[8 + length:]


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


tool.main(globals())
