"""trireme simulate CONFIG cluster=CLUSTER, and what bench calibrate makes from another machine's figures."""

import json
import os
import re
import tempfile

import tool

SMALL = ["--model.preset=llama-5m", "--training.seq_len=128", "--training.global_batch_size=16",
         "--training.micro_batch_size=1"]
SHIPPED = ["a100", "a100-flash", "cpu", "h100", "h100-compiled"]
MINE = """\
devices:
  d:
    peak: {f32: 10 TFLOP/s, bf16: 100 TFLOP/s}
    memory: 80 GB
    bandwidth: 1 TB/s
    efficiency: {other: {memory: 0.5, compute: 0.5}}
nodes: [{device: d, nodes: 1, devices: 8}]
links: [{name: bus, spans: all, latency: 1 us, bandwidth: 22 GB/s}]
"""


def simulate(*arguments):
    return tool.good_json("simulate", *arguments)


def test_answer():
    words = (*SMALL, "cluster=h100", "--pipeline_parallel_degree=2", "--tensor_parallel_degree=2",
             "--data_parallel_replicate_degree=2")
    answer = simulate(*words)
    assert answer["ranks"] == 8 and answer["fits"] is True, answer
    assert sum(c["ranks"] for c in answer["classes"]) == 8
    for c in answer["classes"]:
        parts = c["computing_seconds"] + c["bubble_seconds"] + sum(c["exposed_seconds"].values())
        assert abs(parts / answer["step_seconds"] - 1) < 1e-9, c
        assert sum(c["memory"].values()) == c["memory_bytes"], c
        assert set(c["exposed_seconds"]) == {"tp", "dp", "pp"}, c
        # Some of what ranks exchange they exchange while they compute.
        assert all(0 < c["exposed_seconds"][axis] < c["communication_seconds"][axis] for axis in ("tp", "dp")), c
    assert answer["peak_bytes"] == max(c["memory_bytes"] for c in answer["classes"])
    assert 0 < answer["mfu"] < 1 and 0 < answer["bubble"] < 1, answer
    # Tensor ranks and stages work on the same tokens.
    assert round(answer["tokens_per_second"] * answer["step_seconds"]) == 16 * 128, answer
    mean = re.search(r"\nmean of the ranks: (.*)\n", tool.good("simulate", *words))[1]
    assert abs(sum(float(share) for share in re.findall(r" ([\d.]+)%", mean)) - 100) < .05, mean


def test_memory_is_the_plan():
    settings = SMALL + ["--training.dtype=bf16", "--activation_checkpoint.mode=full"]
    answer = simulate(*settings, "cluster=a100")
    plan = tool.good_json("show", "memory", *settings, "--training.threads=1")
    held = answer["classes"][0]["memory"]
    assert answer["peak_bytes"] - held["runtime"] == plan["predicted_bytes"]
    assert held["parameters"] >= plan["parameter_bytes"] and held["optimizer"] >= plan["optimizer_bytes"]
    # Each thread works in memory of its own.
    answer = simulate(*SMALL, "cluster=cpu", "--training.threads=4")
    plan = tool.good_json("show", "memory", *SMALL, "--training.threads=4")
    assert answer["peak_bytes"] - answer["classes"][0]["memory"]["runtime"] == plan["predicted_bytes"]


def test_trillion():
    batch = 48 if tool.SANITIZED else 384
    answer = simulate("--model.preset=gpt3-1t", "cluster=a100", "devices=3072", "--training.dtype=bf16",
                      "--training.seq_len=2048", f"--training.global_batch_size={batch}",
                      "--training.micro_batch_size=1", "--tensor_parallel_degree=8", "--pipeline_parallel_degree=64",
                      "--data_parallel_replicate_degree=6", "--activation_checkpoint.mode=full")
    assert answer["ranks"] == 3072 and len(answer["classes"]) == 64, answer["ranks"]


def test_slow_link():
    """Over 1 Gbit/s data-parallel ranks compute as if each were alone, provided that computing takes as long as
    sending: the embedding, a third of all bytes, travels only while they compute, and nothing waits for its
    gradient."""
    tool.write("slow.yaml", tool.CLUSTER)
    keys = ["--model.preset=gpt2-124m", "--training.dtype=f32", "--training.micro_batch_size=2", "cluster=slow.yaml"]
    replicas, shards = ["--data_parallel_replicate_degree=2"], ["--data_parallel_shard_degree=2"]
    moments = [*shards, "--parallelism.zero_stage=1"]
    for tied in "true", "false":
        tie = f"--model.tie_word_embeddings={tied}"
        alone = simulate(*keys, tie, "--training.global_batch_size=2", "devices=1")["step_seconds"]
        for microbatches, mesh in (1, replicas), (1, moments), (1, shards), (2, replicas), (4, shards):
            step = simulate(*keys, tie, f"--training.global_batch_size={4 * microbatches}", *mesh)["step_seconds"]
            assert step < 1.04 * microbatches * alone, (tied, microbatches, mesh, step / alone)
    # Replicas over the slow link, each of two ranks over a fast one.
    tool.write("islands.yaml", tool.CLUSTER.replace("nodes: 4, devices: 1", "nodes: 2, devices: 2").replace(
        "links: [", "links: [{name: fast, spans: node, latency: 5 us, bandwidth: 5 GB/s}, ").replace(
            "125 MB/s", "125 MB/s, adapters: 1"))
    alone = simulate(*keys, "--training.global_batch_size=2", "devices=1")["step_seconds"]
    keys[3] = "cluster=islands.yaml"
    for zero in 1, 3:
        step = simulate(*keys, "--training.global_batch_size=8", *replicas, *shards,
                        f"--parallelism.zero_stage={zero}")["step_seconds"]
        assert step < 1.05 * alone, (zero, step / alone)
    # With more ranks, whose rows all travel to all, half as many bytes as the table.
    keys[2:] = "--training.micro_batch_size=4", "cluster=slow.yaml"
    alone = simulate(*keys, "--training.global_batch_size=4", "devices=1")["step_seconds"]
    step = simulate(*keys, "--training.global_batch_size=16", "--data_parallel_shard_degree=4",
                    "--parallelism.zero_stage=1")["step_seconds"]
    assert step < 1.04 * alone, step / alone


def test_traces():
    with tempfile.TemporaryDirectory() as directory:
        trace, picture = os.path.join(directory, "t.json"), os.path.join(directory, "p.svg")
        tool.good("simulate", *SMALL, "cluster=h100", "--pipeline_parallel_degree=2", f"trace={trace}",
                  f"svg={picture}", "trace_ranks=all")
        events = json.load(open(trace, encoding="utf-8"))["traceEvents"]
        assert {e["pid"] for e in events} == {0, 1}
        assert any(e["name"] == "receive" for e in events)
        # One after the other, to the nanosecond.
        times = sorted((e["pid"], e["tid"], round(1e3 * e["ts"]), round(1e3 * e["dur"])) for e in events
                       if e["ph"] == "X")
        assert all(a[2] + a[3] <= b[2] for a, b in zip(times, times[1:]) if a[:2] == b[:2])
        assert open(picture, encoding="utf-8").read().startswith("<")
        # It ends when the step does, also where computing pays at the end for transfers beside it (`communication`).
        for mesh in ["--pipeline_parallel_degree=2"], ["--data_parallel_shard_degree=2"]:
            answer = simulate(*SMALL, "cluster=h100", *mesh, f"trace={trace}")
            events = json.load(open(trace, encoding="utf-8"))["traceEvents"]
            end = max(e["ts"] + e["dur"] for e in events if e["ph"] == "X")
            assert abs(1e-6 * end - answer["step_seconds"]) < 2e-9, (mesh, end, answer)


def test_stragglers():
    tool.write("even.yaml", MINE)
    tool.write("slow.yaml", MINE + "stragglers: [{device: 5, slower: 100}]\n")
    settings = SMALL + ["--data_parallel_replicate_degree=8"]
    even, slow = simulate(*settings, "cluster=even.yaml"), simulate(*settings, "cluster=slow.yaml")
    assert 5 < slow["step_seconds"] / even["step_seconds"] < 100
    assert sorted(c["ranks"] for c in slow["classes"]) == [1, 7]


def test_unequal_memory():
    device = "{peak: {f32: 10 TFLOP/s}, bandwidth: 1 TB/s, efficiency: {other: {memory: 0.5}}, memory: %s}"
    cluster = ("devices:\n  a: %s\n  b: %s\n"
               "nodes: [{device: a, nodes: 1, devices: 1}, {device: b, nodes: 1, devices: 1}]\n"
               "links: [{name: bus, spans: all, latency: 1 us, bandwidth: 22 GB/s}]\n")
    settings = ["--model.preset=gpt2-124m", "--training.seq_len=512", "--training.global_batch_size=2",
                "--training.micro_batch_size=1", "--data_parallel_replicate_degree=2"]
    # Ranks of one stage, each with its own device's room and runtime.
    for room, fits in ("10.5 GB", False), ("80 GB", True):
        tool.write("mixed.yaml", cluster % (device % f"{room}, runtime_memory: 10 GB", device % "4 GB"))
        answer = simulate(*settings, "cluster=mixed.yaml")
        one, other = answer["classes"]
        assert answer["fits"] == fits and one["memory_bytes"] == other["memory_bytes"] + 10**10, answer
        assert (one["memory"]["runtime"], other["memory"]["runtime"]) == (10**10, 0), answer
        room = {c["rank"]: c["device_bytes"] - c["memory_bytes"] for c in answer["classes"]}
        assert answer["headroom_bytes"] == min(room.values()) == room[answer["tightest_rank"]], answer
        # The figures of the rank with the least room left, whose device may be the smaller one, here as in plans.
        tightest = one if answer["tightest_rank"] == one["rank"] else other
        assert (answer["peak_bytes"], answer["device_bytes"]) == (tightest["memory_bytes"], tightest["device_bytes"])
        assert answer["fits"] == (answer["headroom_bytes"] >= 0), answer
        planned = tool.run("plan", *settings, "cluster=mixed.yaml", "mode=none", "zero_stage=0",
                           "save=mixed.best.yaml", "--json")
        assert (planned[0] == 0) == fits, planned
        if fits:
            best = json.loads(planned[1])["plans"][0]
            again = tool.good_json("simulate", "mixed.best.yaml", "cluster=mixed.yaml")
            for key in "step_seconds", "peak_bytes", "device_bytes", "headroom_bytes":
                assert best[key] == again[key], (key, best, again)


def test_kernels_of_attention():
    """Attention on 2 or 6 matrices takes 5 kernels: 4 more launches, and 4 times more of the least; on 4, one
    kernel."""
    host = MINE.replace("compute: 0.5}", "compute: 0.5, least: 1 ms, launch: 100 us}%s")
    tool.write("one.yaml", host % "")
    tool.write("five.yaml", host % ", attention: {fused: {multiple_of: 4, else: 5}}")
    for heads, batch, apart in (2, 1, True), (2, 2, False), (4, 1, False), (6, 1, True), (6, 2, False):
        settings = ["--model.family=gpt2", f"--model.hidden_size={16 * heads}", "--model.num_hidden_layers=3",
                    f"--model.num_attention_heads={heads}", "--model.vocab_size=64", "--training.seq_len=8",
                    f"--training.global_batch_size={batch}", f"--training.micro_batch_size={batch}"]
        one, five = (simulate(*settings, f"cluster={name}.yaml")["step_seconds"] for name in ("one", "five"))
        # Forward and backward of three layers.
        assert abs(five - one - 6 * apart * 4 * 1.1e-3) < 1e-8, (heads, batch, one, five)


def test_devices():
    """Where devices were asked for, those that are not used are named."""
    for more, told in (["devices=8"], True), (["devices=8", "--ranks=8"], False), ([], False):
        out = tool.good("simulate", *SMALL, "cluster=h100", *more)
        assert ("that is 1 of the 8 devices: --ranks=8 asks for all" in out) == told, (more, out)


def test_refusals():
    def refused(pattern, *arguments):
        tool.refused(2, pattern, "simulate", *SMALL, *arguments)

    refused("clusters are a100, a100-flash, cpu, h100, h100-compiled", "cluster=h10")
    refused(r"cluster= is missing \(or schedule=.*clusters are a100, a100-flash, cpu, h100, h100-compiled")
    tool.refused(2, "usage", "simulate")
    refused("8 ranks.* has 4 devices", "cluster=h100", "devices=4", "--data_parallel_replicate_degree=8")
    refused("devices", "cluster=h100", "devices=0")
    refused("h100 has", "cluster=h100", "devices=1000000")
    refused("training.dtype: given f64, but cpu has no peak", "cluster=cpu", "--training.dtype=f64")
    refused("absent.yaml", "cluster=./absent.yaml")
    refused("is a directory|Is a directory|directory", "cluster=./")
    tool.write("bad.yaml", "devices:\n  d:\n    memory: 80\n")
    refused("bad.yaml:2: devices.d: peak is missing", "cluster=bad.yaml")
    tool.write("bad.yaml", MINE.replace("80 GB", "80"))
    refused(r"bad.yaml:4: devices.d.memory: given 80 without a unit", "cluster=bad.yaml")
    tool.write("bad.yaml", MINE.replace("22 GB/s", "-22 GB/s"))
    refused(r"bad.yaml:8: links\[0\].bandwidth: given -22 GB/s", "cluster=bad.yaml")
    refused("trace_ranks= chooses the ranks of trace=FILE, which is missing", "cluster=h100", "trace_ranks=0")
    for to in "svg", "trace":
        refused(f"{to}=none/x: cannot be written there: No such file", "cluster=h100", f"{to}=none/x")
        refused(f"{to}=.: cannot be written there: Is a directory", "cluster=h100", f"{to}=.")
    refused("trace_ranks=1: expected ranks from 0 to 0", "cluster=h100", "trace=t.json", "trace_ranks=1")
    tool.refused(2, "the nearest is llama-5m", "simulate", "cluster=h100", "--model.preset=llama-5mm")


def test_help():
    clusters = tool.good("help", "clusters")
    for name in SHIPPED:
        assert name in clusters


def test_import():
    with tempfile.TemporaryDirectory() as directory:
        table, out = os.path.join(directory, "gemm.csv"), os.path.join(directory, "mine.yaml")
        with open(table, "w", encoding="utf-8") as file:
            file.write("m,n,k,dtype,tflops\n")
            for m in (1024, 4096):
                file.write(f"{m},4096,4096,bf16,{60 + m / 1000}\n")
        tool.good("bench", "calibrate", "cluster=a100", f"from={table}", f"out={out}")
        settings = ["--model.preset=llama3-8b", "--training.dtype=bf16", "--training.seq_len=4096",
                    "--training.global_batch_size=1", "--activation_checkpoint.mode=full"]
        slow, usual = simulate(*settings, f"cluster={out}"), simulate(*settings, "cluster=a100")
        assert slow["step_seconds"] > 2 * usual["step_seconds"]
        # Several files, one by one or with commas between.
        collective, both = os.path.join(directory, "broadcast.txt"), os.path.join(directory, "both.yaml")
        with open(collective, "w", encoding="utf-8") as file:
            file.write("#  Rank  0 a\n#  Rank  1 b\n# size count type redop root time algbw busbw\n"
                       "1048576 262144 float none 0 77 13.6 13.6 0\n")
        for files in [f"from={table}", f"from={collective}"], [f"from={table},{collective}"]:
            tool.good("bench", "calibrate", "cluster=a100", *files, f"out={both}")
            with open(both, encoding="utf-8") as file:
                text = file.read()
            assert "[broadcast, 2, " in text and "[1024, 4096, 4096, " in text, text
        # A spreadsheet puts a byte order mark before its table.
        for path in table, collective:
            tool.write(path, b"\xef\xbb\xbf" + tool.read(path))
        tool.good("bench", "calibrate", "cluster=a100", f"from={table}", f"from={collective}", f"out={both}")
        assert tool.read(both).decode() == text
        # A reduce is made as an all_reduce: points for it would never be used.
        reduce = os.path.join(directory, "reduce.txt")
        with open(reduce, "w", encoding="utf-8") as file:
            file.write("# Collective test starting: reduce_perf\n")
            file.write("#  Rank  0 a\n#  Rank  1 b\n# size count type redop root time algbw busbw\n"
                       "1048576 262144 float sum 0 77 13.6 13.6 0\n")
        tool.refused(2, "reduce_perf is not used here", "bench", "calibrate", "cluster=a100", f"from={reduce}",
                     f"out={both}")
        # Output that is cut off, of two runs, in other units, or beyond what a cluster's file can hold.
        ranks, row = "#  Rank  0 a\n#  Rank  1 b\n# busbw\n", "1048576 262144 float none 0 77 13.6 13.6 0\n"
        products = "m,n,k,dtype,{}\n64,64,64,bf16,50\n8192,8192,8192,bf16,{}\n"
        for content, pattern in (
                (ranks + row + row[:30], r":5: expected size, count, type, redop, root, time, algbw and busbw$"),
                (ranks + row.replace(" 0\n", " 12\n"), r":4: 12 elements came out wrong: what does not work is"),
                (ranks + row + ranks + row, r":5: a second run begins: each needs a file of its own$"),
                ("m,n,k,n,dtype,us\n1,1,1,1,bf16,50\n", r":1: two columns n$"),
                (products.format("ms", 4000), r":3: 4 s for what takes a100 0.00\d+ s at best: is the unit"),
                (ranks + f"{1 << 60} {1 << 58} float none 0 {8e10:.0f} 14411.5 14411.5 0\n",
                 r": its figures make no possible cluster: .*expected from 1 B to 1000 TB$"),
                ("".join(f"#  Rank {i} a\n" for i in range(17000)) + "# busbw\n" + row,
                 r": the mesh has 17000 ranks .*, but a100 has 16384 devices$")):
            tool.write(table, content)
            tool.refused(2, re.escape(table) + pattern, "bench", "calibrate", "cluster=a100", f"from={table}")
        tool.write(table, products.format("us", 4000))
        tool.good("bench", "calibrate", "cluster=a100", f"from={table}", f"out={both}")
        tool.refused(2, "cluster is missing", "bench", "calibrate", f"from={table}")
        for count in "models", "steps":
            tool.refused(2, f"{count}=1: from= measures no models", "bench", "calibrate", "cluster=a100",
                         f"from={table}", f"{count}=1")
        # Nothing is measured if the file cannot be written.
        tool.refused(2, r"out=none/c\.yaml: cannot be written there: No such file", "bench", "calibrate",
                     "out=none/c.yaml")


def wrong_of_this_machine(out):
    """Calibrates this machine; returns what is wrong with the figures, if anything. (Other programs that take the
    processor away for long make them wrong, too.)"""
    said = tool.good("bench", "calibrate", "models=1", "steps=2", f"out={out}")
    assert said == f"{out} is written: trireme simulate CONFIG.yaml cluster={out}\n", said
    cluster = tool.read(out).decode()
    each = re.search(r"took ([\d.]+)% longer in the slowest of 2 rounds than in the fastest, ([\d.]+)% at", cluster)
    assert each and 0 <= float(each[1]) <= float(each[2]), cluster
    assert "matmul" in cluster and "adamw" in cluster
    small = ["--model.preset=llama-5m", "--training.seq_len=128", "--training.micro_batch_size=8",
             "--training.global_batch_size=8"]
    few = ["--training.steps=2", "--training.kernel_choice=rule"]
    one = simulate(*small, f"cluster={out}")
    measured = tool.good_json("bench", "step", *small, *few)
    if not .2 < one["step_seconds"] / measured["step_seconds"] < 5:
        return one["step_seconds"], measured["step_seconds"], cluster
    if tool.cores() < 2:
        return None
    # How long ranks waited for each other in their steps: no two of them arrive at the same time.
    waits = r"(meeting: [\d.]+ [mun]?s|jitter: (0\.\d+|1|\d.*e-.*))"
    if not re.search(rf"cpu-of-2:(\n    .*)*\n    {waits}\n", cluster):
        return cluster
    both = simulate(*small, "--tensor_parallel_degree=2", f"cluster={out}")
    assert both["exposed"]["tp"] > 0 and "tp" not in one["exposed"]
    measured = tool.good_json("bench", "step", *small, *few, "--tensor_parallel_degree=2")
    if not .1 < both["step_seconds"] / measured["step_seconds"] < 10:  # ranks wait for each other's cores
        return both["step_seconds"], measured["step_seconds"], cluster
    return None


@tool.not_sanitized
def test_this_machine_is_measured_and_simulated():
    with tempfile.TemporaryDirectory() as directory:
        out = os.path.join(directory, "this.yaml")
        wrong = [wrong_of_this_machine(out)]
        while wrong[-1] and len(wrong) < 3:
            wrong.append(wrong_of_this_machine(out))
        assert not wrong[-1], wrong


if __name__ == "__main__":
    tool.main(globals())
