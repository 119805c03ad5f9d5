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
    refused(r"usage: trireme plan", "llama-5m")
    refused(r"global_batch_size: given 3, .*splits evenly", "llama-5m", "cluster=h100", "devices=7",
            "global_batch_size=3", "tensor_parallel_degree=1")


if __name__ == "__main__":
    tool.main(globals())
