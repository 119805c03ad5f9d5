"""What trireme plan answers, lists and saves, and what it refuses."""

import os
import re
import time

import tool

MODEL = ("llama-5m", "cluster=h100", "devices=2", "global_batch_size=4", "seq_len=256",
         "model.vocab_size=256")


# A device with little memory; MEMORY is what it has.
TIGHT = """
devices:
  one: {peak: {f32: 20 TFLOP/s, bf16: 50 TFLOP/s}, memory: MEMORY, bandwidth: 300 GB/s, launch: 3 us,
        efficiency: {other: {memory: 0.8}, matmul: {compute: 0.7}}}
nodes: [{device: one, nodes: 1, devices: 2}]
links: [{name: all, spans: all, latency: 5 us, bandwidth: 2 GB/s}]
"""


def check_figures(plan, simulated):
    """The figures of a plan are those of the configuration that it is saved as."""
    for key in "step_seconds", "tokens_per_second", "mfu", "peak_bytes", "device_bytes", "headroom_bytes":
        assert plan[key] == simulated[key], (key, plan, simulated)
    computing = sum(c["ranks"] * c["computing_seconds"] for c in simulated["classes"]) / simulated["ranks"]
    shares = {"computing": computing / plan["step_seconds"], "bubble": simulated["bubble"], **simulated["exposed"]}
    seconds = {"computing": plan["computing_seconds"], "bubble": plan["bubble_seconds"], **plan["exposed_seconds"]}
    assert seconds.keys() == shares.keys(), (seconds, shares)
    for part, share in shares.items():
        assert abs(seconds[part] / plan["step_seconds"] - share) < 1e-9, (part, seconds, shares)
    stage, = (c["stage"] for c in simulated["classes"] if c["rank"] == simulated["tightest_rank"])
    assert plan["tightest_stage"] == stage and plan["estimated_seconds"] != plan["step_seconds"], (plan, stage)


@tool.not_sanitized
def test_figures():
    tool.write("tight.yaml", TIGHT.replace("MEMORY", "62 MB"))
    uneven = ("pipeline_parallel_degree=2", "pipeline_parallel_layout=1,5", "pipeline_parallel_schedule=1f1b",
              "micro_batch_size=2", "vocabulary_parallel=false")
    for cluster, more in ("h100", uneven), ("tight.yaml", ("tensor_parallel_degree=1", "pipeline_parallel_degree=1")):
        words = ("plan", MODEL[0], f"cluster={cluster}", *MODEL[2:], "mode=none", *more)
        result, text = tool.good_json(*words, "save=one.yaml"), tool.good(*words)
        best = result["plans"][0]
        check_figures(best, tool.good_json("simulate", "one.yaml", f"cluster={cluster}"))
        # Some of the plans need more than the devices have, and are not simulated.
        assert 0 < result["simulated"] <= result["promising"] <= result["choices"], result
        assert (result["promising"] < result["choices"]) == (cluster == "tight.yaml"), result
        assert re.search(rf": {result['choices']} plans?, {result['promising']} of them may fit, "
                         rf"{result['simulated']} simulated ", text), (text, result)
        unit, size = ("GB", 1e9) if cluster == "h100" else ("MB", 1e6)
        assert f"% {best['headroom_bytes'] / size:6.1f} {unit}  {best['plan']}" in text, (text, best)
        computing, bubble = (100 * best[f"{part}_seconds"] / best["step_seconds"] for part in ("computing", "bubble"))
        assert f"\nthe best: computing {computing:.1f}%, bubble {bubble:.1f}%, exposed " in text, (text, best)
    # Where nothing fits, the largest part is the one that is named.
    tool.write("tight.yaml", TIGHT.replace("MEMORY", "20 MB"))
    words = "plan", MODEL[0], "cluster=tight.yaml", *MODEL[2:], "mode=none", *uneven
    closest = tool.strict_json(tool.run(*words, "--json")[1])["closest"]
    largest = max(closest["memory"], key=closest["memory"].get)
    text = tool.run(*words)[1]
    assert f": {largest} takes {closest['memory'][largest] / 1e6:.1f} MB of 20.0 MB; the largest buffer" in text, text


def test_answers():
    result = tool.good_json("plan", *MODEL, "save=best.yaml")
    plans = result["plans"]
    assert result["fits"] and 1 < len(plans) <= 10
    assert [p["step_seconds"] for p in plans] == sorted(p["step_seconds"] for p in plans)
    assert all(p["headroom_bytes"] == p["device_bytes"] - p["peak_bytes"] >= 0 for p in plans)
    assert all("worse_by" in p for p in plans[1:])
    again = tool.good_json("simulate", "best.yaml", "cluster=h100")
    check_figures(plans[0], again)
    tool.good("verify", "best.yaml")
    same = tool.good_json("plan", "best.yaml", "cluster=h100")
    assert len(same["plans"]) == 1 and same["plans"][0]["step_seconds"] == plans[0]["step_seconds"]
    few = "mode=none", "micro_batch_size=4", "tensor_parallel_degree=2"
    assert "pipeline_parallel_degree" in tool.good("plan", *MODEL, *few, "save=/dev/stdout")
    # With rows that tensor ranks split and with whole rows; or as the key says.
    free, split, whole = (tool.good_json("plan", *MODEL, *few, *given)["plans"]
                          for given in ((), ("sequence_parallel=true",), ("sequence_parallel=false",)))
    assert {plan["sequence_parallel"] for plan in split} == {True}, split
    assert {plan["sequence_parallel"] for plan in whole} == {False}, whole
    assert split[0]["step_seconds"] != whole[0]["step_seconds"], (split, whole)
    assert free[0]["step_seconds"] == min(split[0]["step_seconds"], whole[0]["step_seconds"]), (free, split, whole)


@tool.not_sanitized
def test_plans_that_are_listed():
    """Of each family the fastest plan is listed, and slower ones that free memory; the rest are counted."""
    tool.write("tight4.yaml", """
devices:
  one: {peak: {f32: 20 TFLOP/s, bf16: 50 TFLOP/s}, memory: 2 GB, bandwidth: 300 GB/s, launch: 3 us,
        efficiency: {other: {memory: 0.8}, matmul: {compute: 0.7}}}
nodes: [{device: one, nodes: 1, devices: 4}]
links: [{name: all, spans: all, latency: 1 us, bandwidth: 50 GB/s}]
""")
    words = ("gpt2-124m", "cluster=tight4.yaml", "seq_len=256", "mode=none", "seconds=200")
    data = ("global_batch_size=16", "tensor_parallel_degree=1", "pipeline_parallel_degree=1")

    def family(plan):
        return (plan["tensor_parallel_degree"], plan["pipeline_parallel_degree"], plan["micro_batch_size"],
                plan["pipeline_parallel_degree"] > 1 and plan["pipeline_parallel_schedule"])
    for more in ("global_batch_size=8",), data:
        plans = tool.good_json("plan", *words, *more)["plans"]
        assert len({plan["plan"] for plan in plans}) == len(plans), plans
        last = {}
        for plan in plans:
            before = last.get(family(plan))
            if before:
                assert plans[plan["more_free_than"]] == before, plan
                freed = plan["headroom_bytes"] - before["headroom_bytes"]
                assert freed >= .1 * plan["device_bytes"], (plan, before)
            else:
                assert "more_free_than" not in plan, plan
            last[family(plan)] = plan
        assert plans[0]["variants"] > 0 and 0 <= plans[0]["variants_within"] <= .01, plans[0]
        assert all(("variants_within" in plan) == (plan["variants"] > 0) for plan in plans), plans
        # Other families are searched where the fastest plans belong to few.
        assert more == data or len(plans) == 10, plans
    assert any("more_free_than" in plan for plan in plans), plans
    lines = tool.good("plan", *words, *data).split("\n")
    first, second, third = (next(line for line in lines if line.startswith(f" {n} ")) for n in (1, 2, 3))
    assert re.search(r"; \d+ like it within 0\.\d%$", first), first
    assert re.search(r"; exposed fsdp \+\S+ s; frees 3\d\d\.\d MB more than 2$", third), (second, third)


@tool.not_sanitized
def test_no_time():
    """Without time one plan is still found: where all compile in no time, the one that seems best, not the simplest."""
    words = "qwen3-0.6b", "cluster=a100", "devices=4", "global_batch_size=16", "seq_len=1024"
    soon, best = tool.good_json("plan", *words, "seconds=0.001"), tool.good_json("plan", *words)
    assert soon["simulated"] == 1 and not soon["complete"], soon
    assert soon["plans"][0]["step_seconds"] < 1.2 * best["plans"][0]["step_seconds"], (soon, best["plans"][0])


@tool.not_sanitized
def test_many_microbatches():
    """However many there are, the time is kept, and nothing is lost to what is found for few."""
    eight = ["llama3-8b", "devices=8", "cluster=h100", "seq_len=8192"]
    one = [*eight, "mode=none", "training.micro_batch_size=1", "pipeline_parallel_schedule=1f1b"]
    tool.good("plan", *one, "global_batch_size=64", "seconds=4", "save=few.yaml")
    begin = time.monotonic()
    many = tool.good_json("plan", *one, "global_batch_size=4096", "seconds=4", "save=many.yaml")
    assert time.monotonic() - begin < 60
    best = many["plans"][0]
    priced, own = (tool.good_json("simulate", file, "cluster=h100", "training.global_batch_size=4096")
                   for file in ("few.yaml", "many.yaml"))
    assert best["step_seconds"] < 1.005 * priced["step_seconds"], (best, priced["step_seconds"])
    # A few were simulated; the rest follows.
    assert own["fits"] and best["simulated_microbatches"] < 64, best
    assert abs(best["step_seconds"] / own["step_seconds"] - 1) < .005, (best, own["step_seconds"])
    assert abs(best["mfu"] / own["mfu"] - 1) < .005, (best, own["mfu"])
    assert abs(best["peak_bytes"] / own["peak_bytes"] - 1) < .05, (best, own["peak_bytes"])
    # The batch alone takes more memory than there is.
    begin = time.monotonic()
    code, _, err = tool.run("plan", *eight, "global_batch_size=16777216", "seconds=2")
    assert code > 0 and "no plan for 8 ranks was found that fits" in err and time.monotonic() - begin < 90, (code, err)


def test_refusals():
    def refused(pattern, *words):
        tool.refused(2, pattern, "plan", *words)
    refused(r'no model is called "llama3-71b"; the nearest is llama3-70b', "llama3-71b", *MODEL[1:])
    refused(r'no model is called "nomodel"; all are in `trireme help models`', "nomodel", *MODEL[1:])
    for preset in "llama-5m", "llama-15m":
        refused(rf"model.preset: given {preset}, but the model is llama-5m already: leave one out", *MODEL,
                f"model.preset={preset}")
    refused(r"h100", "llama-5m", "cluster=h10", *MODEL[2:])
    refused(r"devices=99999: h100 has 32768", "llama-5m", "cluster=h100", "devices=99999")
    refused(r"the mesh has 4 ranks \(fsdp 4\), but h100 has 2 devices", *MODEL, "ranks=4")
    # Other batch sizes would not help.
    refused(r"^trireme plan: the mesh has 4 ranks \(fsdp 4\), but cpu has 1 device of too few cores to share$",
            "llama-5m", "cluster=cpu", "ranks=4", "global_batch_size=6", "seq_len=64")
    refused(r'devices="two": expected a whole number', "llama-5m", "cluster=h100", "devices=two")
    refused(r"export=nemo: expected megatron or torchtitan", *MODEL, "export=nemo")
    refused(r"seq_length", *MODEL[:4], "seq_length=256")
    refused(r"usage: trireme plan")
    refused(r"cluster= is missing; clusters are .*h100.*, or give the path of a file", "llama-5m", "devices=2")
    refused(r"global_batch_size: given 3, .*splits evenly", "llama-5m", "cluster=h100", "devices=7",
            "global_batch_size=3", "tensor_parallel_degree=1")
    # The nearest batch sizes that work.
    for batch, works in (16, "es that could be split are of 14 and 21"), (3, " that could be split is of 7"):
        refused(rf"global_batch_size: given {batch}, .*splits evenly; the nearest batch{works} sequences$",
                "llama-5m", "cluster=h100", "devices=7", f"global_batch_size={batch}", "tensor_parallel_degree=1")
    refused("4 heads cannot be split over 7 ranks; more data parallel ranks do not split the batch; the nearest .* are "
            "of 14 and 21 sequences$", "llama-5m", "cluster=h100", "devices=7", "global_batch_size=16")
    refused("micro_batch_size: given 4, .*; the nearest batch that could be split is of 32 sequences$", "llama-5m",
            "cluster=h100", "devices=8", "global_batch_size=8", "micro_batch_size=4", "data_parallel_shard_degree=8")
    assert tool.good_json("plan", "llama-5m", "cluster=h100", "devices=7", "global_batch_size=14", "mode=none")["fits"]
    # The message names the key that rules out all plans.
    refused(r"tensor_parallel_degree: given 3, but 2 ranks cannot be divided into groups of 3", *MODEL,
            "tensor_parallel_degree=3")
    refused(r"data_parallel_shard_degree: given 2, but 2 ranks cannot be divided into groups of 4", *MODEL,
            "pipeline_parallel_degree=2", "data_parallel_shard_degree=2")
    refused(r"tensor_parallel_degree: given 2, but 1 rank cannot be divided into groups of 2", *MODEL[:2], "devices=1",
            "tensor_parallel_degree=2")
    refused(r"command line: .*tensor_parallel_degree: given 8, but a model of 4 heads cannot be split over 8 ",
            *MODEL[:2], "devices=8", "tensor_parallel_degree=8")
    set_data = ["data_parallel_shard_degree=1", "data_parallel_replicate_degree=1"]
    refused(r"replicate_degree: given 1, but with it the degrees multiply to 4, and the ranks are 8", *MODEL[:2],
            "devices=8", "tensor_parallel_degree=2", "pipeline_parallel_degree=2", *set_data)
    refused(r"replicate_degree: given 1, but the degrees leave 64 ranks to tensor parallel, more than 16",
            *MODEL[:2], "devices=64", "pipeline_parallel_degree=1", *set_data)
    refused(r"replicate_degree: given 1, but the degrees leave 8 stages, and the model has 6 layers", *MODEL[:2],
            "devices=8", "tensor_parallel_degree=1", *set_data)
    refused(r"pipeline_parallel_degree: given 8, but the model has 6 layers", *MODEL[:2], "devices=8",
            "pipeline_parallel_degree=8")
    refused(r"micro_batch_size: given 4, which divides the sequences of no data parallel rank", *MODEL,
            "micro_batch_size=4", "data_parallel_shard_degree=2")
    refused(r"micro_batch_size: given 3, which divides the sequences of no data parallel rank", *MODEL[:2], "devices=8",
            "micro_batch_size=3")  # tensor parallel degrees that are impossible are not what rules all out
    refused(r"pipeline_parallel_chunks: given 4, which no schedule that the configuration allows has for 6 layers",
            *MODEL, "pipeline_parallel_chunks=4", "pipeline_parallel_degree=2")
    # What `verify` refuses, in the same words.
    refused(r"pipeline_parallel_degree: given 4, but the model has 6 layers for the 8 virtual stages of 2 chunks",
            *MODEL[:2], "devices=4", "pipeline_parallel_degree=4", "pipeline_parallel_schedule=v-min")
    refused(r"pipeline_parallel_chunks: given 3, but pipeline schedule 1f1b has 1 chunk to a rank", *MODEL,
            "pipeline_parallel_degree=2", "pipeline_parallel_schedule=1f1b", "pipeline_parallel_chunks=3")
    for none in "pipeline_parallel_degree=1", "tensor_parallel_degree=2":
        refused(r"pipeline_parallel_chunks: given 2, but pipeline_parallel_degree is 1", *MODEL, none,
                "pipeline_parallel_chunks=2")
        refused(r"activation_limit: given 3, but pipeline_parallel_degree is 1", *MODEL, none,
                "pipeline_parallel_activation_limit=3")
    refused(r"zero_stage: given 0, which shards nothing, but data_parallel_shard_degree is 2: use", *MODEL,
            "zero_stage=0", "data_parallel_shard_degree=2")
    refused(r"zero_stage: given 2, but the other degrees leave no ranks to shard over", *MODEL, "zero_stage=2",
            "tensor_parallel_degree=2")
    # Where all choices are refused, the message is that of the plainest.
    refused(r'full_layers: given "100", but no stage has more than 3 layers', *MODEL, "pipeline_parallel_degree=2",
            "full_layers=100")
    layout = ["pipeline_parallel_degree=2", "pipeline_parallel_layout=1,2,3"]
    refused(r'layout: given "1,2,3", but no schedule that the configuration allows has 3 virtual stages', *MODEL,
            "pipeline_parallel_schedule=1f1b", *layout)
    refused(r'layout: given "3,4", expected 2 numbers whose sum is 6, the layers of the model', *MODEL,
            "pipeline_parallel_degree=2", "pipeline_parallel_layout=3,4")
    refused(r"vocabulary_parallel: given true, but pipeline_parallel_degree is 1", *MODEL, "vocabulary_parallel=true",
            "pipeline_parallel_degree=1")
    refused(r"schedule: given zb-w, which is neither a file nor one of gpipe, ", *MODEL,
            "pipeline_parallel_schedule=zb-w")
    # Values that the user has set are reported as the user's.
    tool.write("crossed", "F0 F1 B0 B1\nF1 B1 F0 B0\n")
    refused(r"possible: command line: parallelism.pipeline_parallel_schedule: given crossed, where rank 0", *MODEL,
            "pipeline_parallel_degree=2", "micro_batch_size=2", "pipeline_parallel_schedule=crossed", "mode=none")
    refused(r"tensor_parallel_degree: given 0, expected 1 or more", *MODEL, "tensor_parallel_degree=0")
    refused(r"save=none/best.yaml: cannot be written there: No such file", *MODEL, "save=none/best.yaml")
    refused(r"the mesh has 2 ranks \(fsdp 2\), but h100 has 1 device", *MODEL[:2], "devices=1", "ranks=2")
    mine = "nodes: [{device: x, nodes: 1, devices: 2}]\n"
    tool.write("mine.yaml", mine)
    refused(r"save=mine.yaml: this file exists and is no configuration", MODEL[0], "cluster=mine.yaml",
            *MODEL[2:], "save=mine.yaml")
    assert tool.read("mine.yaml").decode() == mine
    refused(r"devices=2: cpu has 1; their cores may have a rank each: ranks=2", "llama-5m", "cluster=cpu", "devices=2")


def test_what_is_given_is_told():
    first = tool.good("plan", *MODEL, "full_layers=2", "data_parallel_shard_degree=2", "save=first.yaml")
    assert first.endswith("\nthe best is written to first.yaml\n"), first
    assert first.startswith("2 ranks on h100, a step of 4 sequences of 256 tokens in bf16: "), first
    assert "full_layers 2, of the rest no recompute" in first, first
    answer = tool.good_json("plan", *MODEL, "full_layers=2", "data_parallel_shard_degree=2")
    assert answer["seq_len"] == 256 and answer["dtype"] == "bf16"
    assert all(plan["full_layers"] == "2" for plan in answer["plans"])
    # Layers that the user has recomputed count in estimates: plans that fit with them are found.
    three = tool.good_json("plan", "gpt2-124m", "cluster=a100", "devices=4", "global_batch_size=32", "seq_len=1024",
                           "pipeline_parallel_degree=4", "micro_batch_size=4", "mode=none", "full_layers=3",
                           "pipeline_parallel_schedule=1f1b", "vocabulary_parallel=false")["plans"][0]
    assert .97 < three["estimated_seconds"] / three["step_seconds"] < 1.03, three
    if not tool.SANITIZED:
        assert tool.good_json("plan", "llama3-8b", "devices=8", "cluster=a100", "global_batch_size=64", "seq_len=8192",
                              "pipeline_parallel_degree=8", "micro_batch_size=8", "mode=none", "full_layers=1")["fits"]
    # Keys that are set are not searched.
    assert "\nkept as set: data_parallel_shard_degree 2, full_layers \"2\"\n" in first, first
    tool.write("open.yaml", "parallelism:\n  data_parallel_shard_degree: -1\n  pipeline_parallel_chunks: 0\n"
                            "training:\n  micro_batch_size: 0\n  logits_rows: 0\n"
                            "activation_checkpoint:\n  mode: none\n  full_layers: \"\"\n"
                            "model:\n  preset: llama-5m\n")
    assert "\nkept as set: logits_rows 0, mode none\n\n" in tool.good("plan", "open.yaml", "cluster=h100", "devices=2")
    answer = tool.good_json("plan", "open.yaml", "cluster=h100", "devices=2", "pipeline_parallel_degree=2",
                            "pipeline_parallel_layout=4,2", "tensor_parallel_overlap=false")
    assert answer["kept"] == {"pipeline_parallel_degree": 2, "pipeline_parallel_layout": "4,2", "recompute": "none",
                              "logits_rows": 0, "tensor_parallel_overlap": False}, answer["kept"]
    for plan in answer["plans"]:
        assert answer["kept"].items() <= plan.items(), plan
    for one in (("zero_stage=3", "micro_batch_size=1", "tensor_parallel_degree=1", "pipeline_parallel_degree=1"),
                ("tensor_parallel_overlap=true", "micro_batch_size=4", "tensor_parallel_degree=2")):
        answer = tool.good_json("plan", *MODEL, "mode=none", *one)
        assert len(answer["kept"]) == len(one) + 1, answer["kept"]
        for plan in answer["plans"]:
            assert answer["kept"].items() <= plan.items(), (answer["kept"], plan)
    # Nor where they are slower than the rest and only listed.
    plans = tool.good_json("plan", *MODEL, "micro_batch_size=2", "mode=none", "pipeline_parallel_degree=1",
                           "sequence_parallel=true")["plans"]
    assert {(p["tensor_parallel_degree"], p["sequence_parallel"]) for p in plans} == {(1, False), (2, True)}, plans
    # Layers that are balanced are said to be, as in a configuration.
    tool.write("five.yaml", "model: {family: llama, num_hidden_layers: 5, hidden_size: 128, num_attention_heads: 4, "
               "vocab_size: 64}\n")
    plan = tool.good_json("plan", "five.yaml", *MODEL[1:3], "global_batch_size=8", "seq_len=64", "micro_batch_size=1",
                          "mode=none", "pipeline_parallel_degree=2", "pipeline_parallel_schedule=zb-v",
                          "vocabulary_parallel=false")["plans"][0]
    assert "balanced layers" in plan["plan"] and plan["pipeline_parallel_layout"], plan
    # One of each.
    one = ("plan", "llama-5m", "cluster=h100", "devices=1", "global_batch_size=1", "micro_batch_size=1", "mode=none",
           "logits_rows=0")
    assert ", a step of 1 sequence of 1024 tokens in bf16: 1 plan, 1 of them may fit, 1 simu" in tool.good(*one)
    tool.refused(2, "no plan for 1 rank is possible: ", *one, "full_layers=1-2")
    # Keys of pipelines that rule out all of them.
    none = tool.good("plan", *MODEL, "mode=none", "pipeline_parallel_chunks=3", "pipeline_parallel_schedule=zb-v")
    assert ("\nno pipeline is possible with parallelism.pipeline_parallel_chunks 3, "
            "parallelism.pipeline_parallel_schedule zb-v: only plans without one\n") in none, none
    assert "no pipeline" not in tool.good("plan", *MODEL, "mode=none", "pipeline_parallel_schedule=zb-v")
    # Plans that hardly differ are one line.
    alike = tool.good("plan", "llama-5m", "cluster=cpu", "ranks=2", "global_batch_size=16", "seq_len=256",
                      "data_parallel_shard_degree=2", "micro_batch_size=8", "mode=none")
    assert re.search(r"; \d+ like it within 0\.\d%\n\nthe best", alike) and "e-1" not in alike, alike
    assert re.search(r": 3 plans, 3 of them may fit, 3 simulated and \d+ ways to better them in ", alike), alike


# A device's rates beside its peak.
RATES = """launch: 3 us,
      efficiency: {other: {memory: 0.8, half_bytes: 4 MB}, matmul: {compute: 0.7, half: {m: 100, n: 100, k: 150}},
                   attention: {compute: 0.4}}}"""


def best_and_given(cluster, words, given):
    """Seconds of the best plan, and of one that is given."""
    words = (*words, f"cluster={cluster}")
    plans = tool.good_json("plan", *words)["plans"]
    simulated = tool.good_json("simulate", *words, *given)
    assert simulated["fits"], simulated
    return plans[0]["step_seconds"], simulated["step_seconds"]


def write_tight(name, cluster, room, words, given):
    """A cluster whose MEMORY is `room` times what a plan takes, which depends on the kernels and so on the CPU."""
    tool.write(name, cluster.replace("MEMORY", "80 GB"))
    took = tool.good_json("simulate", *words, f"cluster={name}", *given)["peak_bytes"]
    tool.write(name, cluster.replace("MEMORY", f"{room * took / 1e6:.3f} MB"))


def test_what_is_faster_but_does_not_fit():
    """Where there is no room for tensor ranks' overlap, which takes memory, the plan without it is the answer."""
    words = ("model.preset=llama-5m", "training.seq_len=256", "training.global_batch_size=4",
             "training.micro_batch_size=4", "training.dtype=bf16", "activation_checkpoint.mode=none",
             "parallelism.tensor_parallel_degree=2", "cluster=tight.yaml")
    tool.write("tight.yaml", TIGHT.replace("MEMORY", "1 GB"))
    os.environ["TRIREME_ISA"] = "base"  # what kernels of wider sets need differs, and with it whether it takes more
    try:
        least, more = (tool.good_json("simulate", *words, f"parallelism.tensor_parallel_overlap={overlap}")
                       for overlap in ("false", "true"))
        assert least["peak_bytes"] < more["peak_bytes"], (least, more)
        assert more["step_seconds"] < least["step_seconds"], (least, more)
        tool.write("tight.yaml", TIGHT.replace("MEMORY", f"{(least['peak_bytes'] + more['peak_bytes']) // 2} B"))
        best = tool.good_json("plan", *words)["plans"][0]
    finally:
        del os.environ["TRIREME_ISA"]
    assert not best["tensor_parallel_overlap"] and best["headroom_bytes"] >= 0, best
    assert best["step_seconds"] <= 1.01 * least["step_seconds"], (best, least)


def test_layers_of_stages_that_send():
    """The first stage, which has the embedding, has most to send: it is better off with fewer layers."""
    tool.write("sending.yaml", f"""
devices:
  x: {{peak: {{f32: 75 TFLOP/s, bf16: 300 TFLOP/s}}, memory: 0.6 GB, bandwidth: 500 GB/s, {RATES}
nodes: [{{device: x, nodes: 12, devices: 1}}]
links:
  - {{name: rack, spans: 2 nodes, latency: 5 us, bandwidth: 40 GB/s}}
  - {{name: out, spans: all, latency: 5 us, bandwidth: 1 GB/s, adapters: 1}}
""")
    words = ("model.family=gpt2", "model.num_hidden_layers=4", "model.hidden_size=256", "model.num_attention_heads=4",
             "model.vocab_size=4000", "training.seq_len=1024", "training.global_batch_size=24",
             "activation_checkpoint.mode=none", "training.micro_batch_size=1", "training.dtype=f32",
             "parallelism.pipeline_parallel_degree=2", "parallelism.tensor_parallel_degree=1",
             "parallelism.data_parallel_shard_degree=6", "parallelism.zero_stage=1",
             "parallelism.pipeline_parallel_schedule=zb-h2")
    best, moved = best_and_given("sending.yaml", words, ["parallelism.pipeline_parallel_layout=1,3"])
    assert best <= moved, (best, moved)


def test_chunks_that_hold_more():
    """Of a rank's two chunks the first is held by more microbatches: its layers alone are recomputed."""
    cluster = f"""
devices:
  x: {{peak: {{f32: 30 TFLOP/s, bf16: 120 TFLOP/s}}, memory: MEMORY, bandwidth: 2000 GB/s, {RATES}
  y: {{peak: {{f32: 9 TFLOP/s, bf16: 36 TFLOP/s}}, memory: MEMORY, bandwidth: 2000 GB/s, {RATES}
nodes: [{{device: x, nodes: 2, devices: 2}}, {{device: y, nodes: 1, devices: 2}}]
links:
  - {{name: in, spans: node, latency: 1 us, bandwidth: 100 GB/s, algorithm: direct}}
  - {{name: out, spans: all, latency: 20 us, bandwidth: 1 GB/s}}
"""
    words = ("model.family=llama", "model.num_hidden_layers=6", "model.hidden_size=128", "model.num_attention_heads=4",
             "model.vocab_size=4000", "training.seq_len=512", "training.global_batch_size=16",
             "training.micro_batch_size=2", "training.dtype=bf16", "parallelism.pipeline_parallel_degree=3",
             "parallelism.tensor_parallel_degree=1", "parallelism.data_parallel_shard_degree=1",
             "parallelism.data_parallel_replicate_degree=2", "parallelism.pipeline_parallel_schedule=interleaved",
             "parallelism.pipeline_parallel_chunks=2")
    given = ["parallelism.pipeline_parallel_layout=1,1,1,1,1,1", "activation_checkpoint.full_layers=1,1,1,0,0,0",
             "parallelism.data_parallel_unit_layers=0"]
    write_tight("unlike.yaml", cluster, 1.022, words, given)
    best, few = best_and_given("unlike.yaml", words, given)
    assert best <= 1.01 * few, (best, few)


def test_layers_that_fit_recomputed():
    """The first stage, which has most to send, has one layer; the second then has so many that they fit only if they
    are recomputed, and estimates, 8% too high, say that not even then."""
    cluster = f"""
devices:
  x: {{peak: {{f32: 75 TFLOP/s, bf16: 300 TFLOP/s}}, memory: MEMORY, bandwidth: 1500 GB/s, {RATES}
nodes: [{{device: x, nodes: 5, devices: 8}}]
links:
  - {{name: in, spans: node, latency: 1 us, bandwidth: 20 GB/s, algorithm: direct}}
  - {{name: out, spans: all, latency: 20 us, bandwidth: 1 GB/s}}
collectives: in_turn
"""
    words = ("model.family=llama", "model.num_hidden_layers=8", "model.hidden_size=512", "model.num_attention_heads=8",
             "model.vocab_size=4000", "training.seq_len=256", "training.global_batch_size=120",
             "training.micro_batch_size=2", "training.dtype=bf16", "parallelism.pipeline_parallel_degree=4",
             "parallelism.tensor_parallel_degree=1", "parallelism.data_parallel_shard_degree=1",
             "parallelism.data_parallel_replicate_degree=10", "parallelism.pipeline_parallel_schedule=zb-h2",
             "parallelism.pipeline_parallel_chunks=1")
    given = ["parallelism.pipeline_parallel_layout=1,3,2,2", "activation_checkpoint.full_layers=0,3,0,0"]
    write_tight("recomputed.yaml", cluster, 1.0028, words, given)
    best, moved = best_and_given("recomputed.yaml", words, given)
    assert best <= 1.001 * moved, (best, moved)


def test_layers_that_are_measured_recomputed():
    """The last stage fits only recomputed in full, where a correction by its program without that says it does not."""
    tool.write("measured.yaml", f"""
devices:
  x: {{peak: {{f32: 15 TFLOP/s, bf16: 60 TFLOP/s}}, memory: 185.5 MB, bandwidth: 1500 GB/s, {RATES}
nodes: [{{device: x, nodes: 12, devices: 1}}]
links: [{{name: out, spans: all, latency: 5 us, bandwidth: 3 GB/s}}]
""")
    words = ("model.family=llama", "model.num_hidden_layers=4", "model.hidden_size=256", "model.num_attention_heads=4",
             "model.vocab_size=4000", "training.seq_len=1024", "training.global_batch_size=18",
             "training.micro_batch_size=2", "training.dtype=f32", "parallelism.pipeline_parallel_degree=4",
             "parallelism.tensor_parallel_degree=1", "parallelism.data_parallel_shard_degree=1",
             "parallelism.data_parallel_replicate_degree=3", "parallelism.pipeline_parallel_schedule=zb-h2",
             "parallelism.pipeline_parallel_chunks=1")
    best, full = best_and_given("measured.yaml", words, ["activation_checkpoint.full_layers=0,0,0,1"])
    assert best <= full, (best, full)


if __name__ == "__main__":
    tool.main(globals())
