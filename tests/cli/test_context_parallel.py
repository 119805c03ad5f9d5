"""Sequences of which each rank has a part: trained, evaluated, resumed on other meshes, simulated, refused."""

import json

import tool

CP = "--parallelism.context_parallel_degree="
EXACT = ["--training.dtype=f64", "--training.kernels=reference"]


def metrics(directory):
    return [json.loads(line) for line in tool.read(f"{directory}/metrics.jsonl").decode().splitlines()]


def close(a, b):
    return abs(a - b) <= 1e-9 * abs(b)


def test_training():
    tool.good("train", "c.yaml", *EXACT, "--run.directory=one")
    for name, mesh in (("parts", [CP + "2"]), ("more", [CP + "4", "--parallelism.zero_stage=1"]),
                       ("beside", [CP + "2", "--ranks=8", "--parallelism.tensor_parallel_degree=2",
                                   "--parallelism.zero_stage=2"])):
        tool.good("train", "c.yaml", *EXACT, *mesh, f"--run.directory={name}")
        for a, b in zip(metrics("one"), metrics(name), strict=True):
            assert close(a["loss"], b["loss"]) and close(a["grad_norm"], b["grad_norm"]), (name, a, b)
            assert ("val_loss" in a) == ("val_loss" in b)
            assert "val_loss" not in a or close(a["val_loss"], b["val_loss"]), (name, a, b)
    # A run goes on with other parts of sequences.
    tool.good("train", "c.yaml", *EXACT, CP + "2", "--training.steps=3", "--lr_scheduler.decay_steps=6",
              "--run.directory=halves")
    tool.good("train", "c.yaml", *EXACT, CP + "4", "--lr_scheduler.decay_steps=6", "--run.directory=halves")
    assert close(metrics("halves")[-1]["loss"], metrics("one")[-1]["loss"])


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


def test_simulation():
    """The work of a step is that of its tokens, and ranks have equal parts of it."""
    shape = ["--model.preset=llama3-8b", "cluster=h100", "training.seq_len=8192", "training.global_batch_size=8"]
    flops = {}
    for degree in 1, 4:
        said = tool.good_json("simulate", *shape, "ranks=8", "zero_stage=3", f"context_parallel_degree={degree}")
        flops[degree] = said["mfu"] * said["step_seconds"]
    assert abs(flops[4] / flops[1] - 1) < 1e-9, flops


def test_refusals():
    tool.refused(2, "training.seq_len", "train", "c.yaml", CP + "3", "--run.directory=refused")
    tool.refused(2, "do not split over 3 context-parallel ranks", "verify", "c.yaml", CP + "3")
    tool.refused(2, "rows, 8 in a microbatch, do not split over 3 tensor-parallel", "verify", "c.yaml", CP + "2",
                 "--model.num_attention_heads=3", "--model.head_dim=4", "--training.micro_batch_size=1",
                 "--parallelism.tensor_parallel_degree=3")
    tool.refused(2, "expected 1 or more", "verify", "c.yaml", CP + "0")
    tool.refused(2, "accepts", "verify", "c.yaml", CP + "2", "--parallelism.context_parallel_method=ring")
    plan = ["plan", "llama3-8b", "devices=8", "cluster=h100"]
    tool.refused(2, "cannot be divided into groups of 3", *plan, "context_parallel_degree=3")
    tool.refused(2, "kept, not searched", *plan, "context_parallel_degree=-1")


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
    odd = [word.replace("16384", "16388") for word in plan]
    assert "16384 tokens" not in flags and "16388 tokens" in tool.good(*odd, "export=megatron")
    toml = tool.good(*plan, "export=torchtitan")
    assert "context_parallel_degree = 4\n" in toml and "rotate_method = \"allgather\"" in toml, toml


tool.main(globals())
