"""trireme plan: what it answers, saves and exports, and what it refuses."""

import tool

MODEL = ("llama-5m", "cluster=h100", "devices=2", "global_batch_size=4", "seq_len=256")


def test_answers():
    result = tool.good_json("plan", *MODEL, "save=best.yaml")
    plans = result["plans"]
    assert result["fits"] and 1 < len(plans) <= 10
    assert [p["step_seconds"] for p in plans] == sorted(p["step_seconds"] for p in plans)
    assert all(p["headroom_bytes"] == p["device_bytes"] - p["peak_bytes"] >= 0 for p in plans)
    assert all("worse_by" in p for p in plans[1:])
    again = tool.good_json("simulate", "best.yaml", "cluster=h100")
    assert again["step_seconds"] == plans[0]["step_seconds"] and again["peak_bytes"] == plans[0]["peak_bytes"]
    tool.good("verify", "best.yaml")
    same = tool.good_json("plan", "best.yaml", "cluster=h100")
    assert len(same["plans"]) == 1 and same["plans"][0]["step_seconds"] == plans[0]["step_seconds"]


def test_exports():
    flags = tool.good("plan", *MODEL, "tensor_parallel_degree=2", "export=megatron")
    assert "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 1" in flags
    toml = tool.good("plan", *MODEL, "tensor_parallel_degree=2", "--export=torchtitan")
    assert "tensor_parallel_degree = 2" in toml and "global_batch_size = 4" in toml


def test_refusals():
    def refused(pattern, *words):
        tool.refused(2, pattern, "plan", *words)
    refused(r'no model is called "llama3-71b"; the nearest is llama3-70b', "llama3-71b", *MODEL[1:])
    refused(r"h100", "llama-5m", "cluster=h10", *MODEL[2:])
    refused(r"devices=99999: h100 has 32768", "llama-5m", "cluster=h100", "devices=99999")
    refused(r'devices="two": expected a whole number', "llama-5m", "cluster=h100", "devices=two")
    refused(r"export=nemo: expected megatron or torchtitan", *MODEL, "export=nemo")
    refused(r"seq_length", *MODEL[:4], "seq_length=256")
    refused(r"usage: trireme plan")
    refused(r"cluster= is missing; clusters are .*h100.*, or give the path of a file", "llama-5m", "devices=2")
    refused(r"global_batch_size: given 3, .*splits evenly", "llama-5m", "cluster=h100", "devices=7",
            "global_batch_size=3", "tensor_parallel_degree=1")
    # The key that rules all out is the one that is named.
    refused(r"tensor_parallel_degree: given 3, but 2 ranks do not divide into groups of 3", *MODEL,
            "tensor_parallel_degree=3")
    refused(r"data_parallel_shard_degree: given 2, but 2 ranks do not divide into groups of 4", *MODEL,
            "pipeline_parallel_degree=2", "data_parallel_shard_degree=2")
    refused(r"pipeline_parallel_degree: given 8, but the model has 6 layers", *MODEL[:2], "devices=8",
            "pipeline_parallel_degree=8")
    refused(r"micro_batch_size: given 4, which divides the sequences of no data parallel rank", *MODEL,
            "micro_batch_size=4", "data_parallel_shard_degree=2")
    refused(r"pipeline_parallel_chunks: given 4, which no schedule that the configuration allows has for 6 layers",
            *MODEL, "pipeline_parallel_chunks=4", "pipeline_parallel_degree=2")
    refused(r"pipeline_parallel_schedule: given v-min, which 6 layers on 4 stages do not suffice for", *MODEL[:2],
            "devices=4", "pipeline_parallel_degree=4", "pipeline_parallel_schedule=v-min")
    refused(r"vocabulary_parallel: given true, but there is no pipeline", *MODEL, "vocabulary_parallel=true",
            "pipeline_parallel_degree=1")
    refused(r"do not go together", *MODEL, "zero_stage=0", "data_parallel_shard_degree=2")
    refused(r"devices=2: cpu has 1; their cores may have a rank each: ranks=2", "llama-5m", "cluster=cpu", "devices=2")


def test_what_is_given_is_told():
    first = tool.good("plan", *MODEL, "full_layers=2", "data_parallel_shard_degree=2", "save=first.yaml")
    assert first.endswith("\nthe best is written to first.yaml\n"), first
    assert first.startswith("2 ranks on h100, a step of 4 sequences of 256 tokens in bf16: "), first
    assert "full_layers 2, of the rest no recompute" in first, first
    answer = tool.good_json("plan", *MODEL, "full_layers=2", "data_parallel_shard_degree=2")
    assert answer["seq_len"] == 256 and answer["dtype"] == "bf16"
    assert all(plan["full_layers"] == "2" for plan in answer["plans"])
    # Keys of pipelines that rule out all of them.
    none = tool.good("plan", *MODEL, "pipeline_parallel_chunks=3", "pipeline_parallel_schedule=zb-v")
    assert ("\nno pipeline is possible with parallelism.pipeline_parallel_chunks 3, "
            "parallelism.pipeline_parallel_schedule zb-v: plans without one alone\n") in none, none
    assert "no pipeline" not in tool.good("plan", *MODEL, "pipeline_parallel_schedule=zb-v")
    # Differences that are rounding are none.
    alike = tool.good("plan", "llama-5m", "cluster=cpu", "ranks=2", "global_batch_size=16", "seq_len=256",
                      "data_parallel_shard_degree=2", "micro_batch_size=8", "mode=none")
    assert "; as fast\n" in alike and "e-1" not in alike, alike


if __name__ == "__main__":
    tool.main(globals())
