"""trireme plan: the plans that it finds."""

import tool

MODEL = ("llama-5m", "cluster=h100", "devices=2", "global_batch_size=4", "seq_len=256",
         "model.vocab_size=256")

UNEQUAL = """
devices:
  large: {peak: {f32: 150 TFLOP/s, bf16: 300 TFLOP/s}, memory: 80 GB, bandwidth: 2000 GB/s, launch: 1 us,
          efficiency: {other: {memory: 0.8}, matmul: {compute: 0.8}}}
  small: {peak: {f32: 50 TFLOP/s, bf16: 100 TFLOP/s}, memory: 32 GB, bandwidth: 2000 GB/s, launch: 1 us,
          efficiency: {other: {memory: 0.8}, matmul: {compute: 0.8}}}
nodes:
  - {device: large, nodes: 1, devices: 2}
  - {device: small, nodes: 1, devices: 2}
links:
  - {name: all, spans: all, latency: 5 us, bandwidth: 20 GB/s}
"""


@tool.not_sanitized
def test_a_limit_of_activations():
    words = (*MODEL, "mode=none", "pipeline_parallel_activation_limit=2")
    for more in [], ["pipeline_parallel_schedule=auto"]:
        plans = tool.good_json("plan", *words, *more)["plans"]
        pipelines = [p for p in plans if p["pipeline_parallel_degree"] > 1]
        assert pipelines and all(p["pipeline_parallel_schedule"] == "auto" for p in pipelines), plans
        assert len(pipelines) < len(plans), plans
    two = "pipeline_parallel_degree=2", "micro_batch_size=1"
    best = tool.good_json("plan", *words, *two, "save=limited.yaml")["plans"][0]
    assert tool.good_json("simulate", "limited.yaml", "cluster=h100")["step_seconds"] == best["step_seconds"]
    # Where only one microbatch is held at a time, no two stages work at the same time.
    least = tool.good_json("plan", *MODEL, "mode=none", "pipeline_parallel_activation_limit=1", *two)["plans"][0]
    assert least["step_seconds"] > 1.2 * best["step_seconds"], (least, best)


def test_room_of_ranks_that_share_a_device():
    plans = tool.good_json("plan", "llama-5m", "cluster=cpu", "ranks=2", "global_batch_size=2", "seq_len=64",
                           "training.threads=4", "save=two.yaml")["plans"]
    simulated = tool.good_json("simulate", "two.yaml", "cluster=cpu")
    classes = simulated["classes"]
    assert plans[0]["device_bytes"] == min(c["device_bytes"] for c in classes), (plans[0], classes)
    # Each thread works in memory of its own.
    assert plans[0]["peak_bytes"] == simulated["peak_bytes"], (plans[0], simulated)
    # CPUs make as few logits at once as by default.
    assert not any("logits_rows" in p for p in plans), plans


def test_what_tensor_ranks_exchange_beside_products():
    words = ("llama-5m", "cluster=h100", "devices=4", "global_batch_size=8", "seq_len=1024", "tensor_parallel_degree=4")
    best = tool.good_json("plan", *words, "save=overlapped.yaml")["plans"][0]
    apart = tool.good_json("plan", *words, "tensor_parallel_overlap=false")["plans"][0]
    assert best["tensor_parallel_overlap"] and not apart["tensor_parallel_overlap"], (best, apart)
    assert best["exposed_seconds"]["tp"] < apart["exposed_seconds"]["tp"], (best, apart)
    assert best["step_seconds"] < apart["step_seconds"], (best, apart)
    assert tool.good_json("simulate", "overlapped.yaml", "cluster=h100")["step_seconds"] == best["step_seconds"]


def test_logits_that_are_made_at_once():
    words = ("gpt2-124m", "cluster=h100", "devices=1", "global_batch_size=16", "seq_len=1024")
    best = tool.good_json("plan", *words, "save=logits.yaml")["plans"][0]
    assert best["logits_rows"] == 16 * 1024 and best["plan"].endswith("no recompute, all logits at once"), best
    assert tool.good_json("simulate", "logits.yaml", "cluster=h100")["step_seconds"] == best["step_seconds"]
    few = tool.good_json("plan", *words, "training.logits_rows=0")["plans"]
    assert few[0]["step_seconds"] > 1.02 * best["step_seconds"] and all(p["logits_rows"] == 0 for p in few), few
    # Plans are compared with many rows, not only improved by them afterwards: here another plan is best with few.
    words = ("llama3.2-1b", "cluster=h100", "devices=8", "global_batch_size=128", "seq_len=4096", "mode=none",
             "pipeline_parallel_schedule=interleaved", "pipeline_parallel_chunks=8", "tensor_parallel_degree=1",
             "micro_batch_size=4", "zero_stage=1")
    best, few = (tool.good_json("plan", *words, *more)["plans"][0] for more in ([], ["training.logits_rows=0"]))
    assert best["pipeline_parallel_degree"] == 1 < few["pipeline_parallel_degree"], (best, few)
    # Where stages share the vocabulary, all rows of a part may be made at once by default: nothing is to be improved.
    result = tool.good_json("plan", "model.family=llama", "model.num_hidden_layers=4", "model.hidden_size=2048",
                            "model.num_attention_heads=16", "model.vocab_size=64000", "cluster=h100", "devices=4",
                            "seq_len=1024", "global_batch_size=4", "pipeline_parallel_degree=4",
                            "pipeline_parallel_schedule=1f1b", "vocabulary_parallel=true", "mode=none")
    assert not any("logits_rows" in p for p in result["plans"]) and result["ways_simulated"] == 0, result


# Nodes of six devices: of three stages of four ranks, the second lies on both nodes.
NODES_OF_SIX = """
devices:
  x: {peak: {f32: 75 TFLOP/s, bf16: 300 TFLOP/s}, memory: 24 GB, bandwidth: 2000 GB/s, launch: 2 us,
      efficiency: {other: {memory: 0.7}, matmul: {compute: 0.6}}}
nodes:
  - {device: x, nodes: 2, devices: 6}
links:
  - {name: in, spans: node, latency: 4 us, bandwidth: 100 GB/s}
  - {name: out, spans: all, latency: 7 us, bandwidth: 3 GB/s, adapters: 1}
"""
# A cluster on which 1F1B was estimated to be better than ZB-H2, on other meshes.
SLOW_LINKS = """
devices:
  x: {peak: {f32: 25 TFLOP/s, bf16: 100 TFLOP/s}, memory: 1 GB, runtime_memory: 10 MB, bandwidth: 300 GB/s,
      launch: 2 us, efficiency: {other: {memory: 0.7, half_bytes: 4 MB},
      matmul: {compute: 0.7, half: {m: 100, n: 100, k: 150}}, attention: {compute: 0.4}}}
nodes:
  - {device: x, nodes: 4, devices: 8}
links:
  - {name: in, spans: node, start: 6 us, latency: 4 us, bandwidth: 20 GB/s}
  - {name: out, spans: all, start: 6 us, latency: 7 us, bandwidth: 1 GB/s, adapters: 1}
collectives: pipelined
"""


@tool.not_sanitized
def test_all_logits_in_little_room():
    # A 32nd of the memory has no room for more logits than are made by default.
    tool.write("little.yaml", """
devices:
  one: {peak: {f32: 20 TFLOP/s, bf16: 50 TFLOP/s}, memory: 1 GB, bandwidth: 300 GB/s, launch: 3 us,
        efficiency: {other: {memory: 0.8}, matmul: {compute: 0.7}}}
nodes: [{device: one, nodes: 1, devices: 4}]
links: [{name: all, spans: all, latency: 1 us, bandwidth: 300 GB/s}]
""")
    words = ("plan", "model.family=llama", "model.num_hidden_layers=8", "model.hidden_size=128",
             "model.num_attention_heads=2", "model.vocab_size=262144", "seq_len=512", "global_batch_size=8",
             "model.tie_word_embeddings=false", "cluster=little.yaml", "mode=none", "tensor_parallel_degree=1",
             "pipeline_parallel_degree=1", "zero_stage=1")
    all_rows = ("logits_rows=512", "micro_batch_size=1")
    best, whole = (tool.good_json(*words, *more)["plans"][0] for more in ((), all_rows))
    assert best["step_seconds"] <= 1.001 * whole["step_seconds"], (best, whole)


@tool.not_sanitized
def test_as_many_logits_as_fit():
    # Larger microbatches, where not all logits fit, but more than a small part of the memory would hold.
    tool.write("some.yaml", """
devices:
  one: {peak: {f32: 100 TFLOP/s, bf16: 200 TFLOP/s}, memory: 4 GB, runtime_memory: 10 MB, bandwidth: 100 GB/s,
        launch: 3 us, efficiency: {other: {memory: 0.8}, matmul: {compute: 0.7}}}
nodes: [{device: one, nodes: 1, devices: 4}]
links: [{name: all, spans: all, latency: 2 us, bandwidth: 100 GB/s}]
""")
    words = ("plan", "model.family=llama", "model.num_hidden_layers=12", "model.hidden_size=512",
             "model.num_attention_heads=8", "model.vocab_size=262144", "seq_len=2048", "global_batch_size=32",
             "cluster=some.yaml", "mode=none", "tensor_parallel_degree=1", "pipeline_parallel_degree=1", "zero_stage=2")
    best, some = (tool.good_json(*words, *more)["plans"][0] for more in ((), ("logits_rows=2048",)))
    assert best["step_seconds"] <= 1.001 * some["step_seconds"], (best, some)
    assert best["plan"].endswith(", logits of 2048 rows at once"), best


@tool.not_sanitized
def test_logits_that_stages_keep():
    # With a vocabulary over stages, all logits of some microbatches are kept, in however many pieces they are made.
    tool.write("narrow.yaml", """
devices:
  x: {peak: {f32: 19.5 TFLOP/s, bf16: 312 TFLOP/s}, memory: 8 GB, runtime_memory: 1.5 GB, bandwidth: 900 GB/s,
      launch: 1 us, efficiency: {other: {memory: 0.8}, matmul: {compute: 0.6, half: {m: 150, n: 150, k: 100}}}}
nodes: [{device: x, nodes: 1, devices: 8}]
links: [{name: all, spans: all, start: 5 us, latency: 2 us, bandwidth: 12 GB/s, algorithm: direct}]
""")
    words = ("plan", "model.family=gpt2", "model.num_hidden_layers=2", "model.hidden_size=1024",
             "model.num_attention_heads=8", "model.vocab_size=262144", "model.tie_word_embeddings=true",
             "seq_len=32768", "global_batch_size=5", "cluster=narrow.yaml")
    best, few = (tool.good_json(*words, *more)["plans"][0]["step_seconds"] for more in ((), ("logits_rows=0",)))
    assert best <= 1.001 * few, (best, few)


def test_microbatches_of_short_sequences():
    """With short sequences microbatches have as many as keep a device busy, however many that are."""
    words = "global_batch_size=4096", "seq_len=32"
    best = tool.good_json("plan", "llama-5m", "cluster=h100", "devices=1", *words, "save=short.yaml")["plans"][0]
    times = [tool.good_json("simulate", "short.yaml", "cluster=h100", f"--training.micro_batch_size={size}",
                            f"--training.logits_rows={32 * size}")["step_seconds"] for size in (64, 512, 4096)]
    assert best["step_seconds"] <= 1.001 * min(times) < .7 * times[0], (best, times)
    # A batch of 7 divides into microbatches of 1 or 7, and 1 is few.
    words = ("model.family=gpt2", "model.num_hidden_layers=2", "model.hidden_size=512", "model.num_attention_heads=4",
             "model.vocab_size=50257", "cluster=h100-compiled", "devices=4", "seq_len=32768", "global_batch_size=7")
    best, one = (tool.good_json("plan", *words, *more)["plans"][0]["step_seconds"]
                 for more in ((), ("micro_batch_size=7",)))
    assert best <= 1.001 * one, (best, one)


def test_layers_in_unlike_modes_that_seem_not_to_fit():
    tool.write("tight.yaml", """
devices:
  x: {peak: {f32: 30 TFLOP/s}, memory: 104 MB, runtime_memory: 10 MB, bandwidth: 500 GB/s, launch: 3 us,
      efficiency: {other: {memory: 0.8, half_bytes: 1 MB}, matmul: {compute: 0.7}, attention: {compute: 0.4}}}
nodes: [{device: x, nodes: 2, devices: 3}]
links:
  - {name: in, spans: node, start: 5 us, latency: 1 us, bandwidth: 20 GB/s}
  - {name: out, spans: all, latency: 5 us, bandwidth: 1 GB/s, adapters: 2}
""")
    words = ("model.family=gpt2", "model.num_hidden_layers=5", "model.hidden_size=256", "model.num_attention_heads=4",
             "model.vocab_size=4000", "seq_len=1024", "global_batch_size=4", "training.dtype=f32", "cluster=tight.yaml",
             "devices=6", "pipeline_parallel_degree=3", "tensor_parallel_degree=2", "micro_batch_size=2",
             "pipeline_parallel_schedule=zb-h2")
    best, mixed = (tool.good_json("plan", *words, *more)["plans"][0]["step_seconds"]
                   for more in ((), ("pipeline_parallel_layout=2,2,1", "full_layers=2,1,0")))
    assert best <= 1.001 * mixed, (best, mixed)


@tool.not_sanitized
def test_layers_where_stages_have_unlike_links():
    tool.write("six.yaml", NODES_OF_SIX)
    tool.write("six.model.yaml", "model: {family: llama, num_hidden_layers: 12, hidden_size: 2048, "
               "num_attention_heads: 16, num_key_value_heads: 4, vocab_size: 32000}\n")
    words = ("six.model.yaml", "cluster=six.yaml", "devices=12", "seq_len=1024", "global_batch_size=48",
             "data_parallel_shard_degree=4", "pipeline_parallel_degree=3", "pipeline_parallel_schedule=zb-h1",
             "mode=none")
    chosen, balanced = (tool.good_json("plan", *words, "micro_batch_size=4", *more)["plans"][0]
                        for more in ((), ("pipeline_parallel_layout=auto",)))
    assert chosen["step_seconds"] < .7 * balanced["step_seconds"], (chosen, balanced)
    # What else is tried on the best is tried on a plan whose layers moved too.
    assert "units of half a layer" in chosen["plan"], chosen
    # The layers of one plan are not where those of the next begin.
    three, all_plans = (tool.good_json("plan", *words, *more)["plans"] for more in (("micro_batch_size=3",), ()))
    among = min(plan["step_seconds"] for plan in all_plans if plan["micro_batch_size"] == 3)
    assert among <= 1.001 * three[0]["step_seconds"], (three, all_plans)


@tool.not_sanitized
def test_layers_that_stages_cannot_have_as_many_of():
    tool.write("slow.yaml", """
devices:
  a: {peak: {f32: 50 TFLOP/s, bf16: 200 TFLOP/s}, memory: 2 GB, runtime_memory: 100 MB, bandwidth: 1000 GB/s,
      launch: 3 us, efficiency: {other: {memory: 0.8, half_bytes: 2 MB},
      matmul: {compute: 0.7, half: {m: 100, n: 100, k: 150}}, attention: {compute: 0.4}}}
nodes: [{device: a, nodes: 4, devices: 1}]
links: [{name: out, spans: all, latency: 50 us, bandwidth: 1 GB/s}]
""")
    words = ("model.family=llama", "model.num_hidden_layers=6", "model.hidden_size=768",
             "model.num_attention_heads=12", "model.vocab_size=16384", "--training.seq_len=512",
             "--training.global_batch_size=16", "--training.dtype=bf16", "cluster=slow.yaml",
             "pipeline_parallel_degree=4", "pipeline_parallel_schedule=zb-h2", "vocabulary_parallel=true")
    best = tool.good_json("plan", *words)["plans"][0]
    middle = tool.good_json("simulate", *words, "--ranks=4", "--training.micro_batch_size=1",
                            "--activation_checkpoint.mode=full", "pipeline_parallel_layout=1,2,2,1")
    assert best["step_seconds"] <= 1.001 * middle["step_seconds"], (best, middle)


@tool.not_sanitized
def test_layers_of_what_is_not_the_best_before():
    tool.write("racks.yaml", """
devices:
  x: {peak: {f32: 20 TFLOP/s, bf16: 900 TFLOP/s}, memory: 80 GB, bandwidth: 2039 GB/s, launch: 3 us,
      efficiency: {other: {memory: 0.8}, matmul: {compute: 0.6, half: {m: 150, n: 150, k: 100}}}}
nodes:
  - {device: x, nodes: 2, devices: 2}
links:
  - {name: in, spans: node, start: 5 us, latency: 2 us, bandwidth: 64 GB/s}
  - {name: all, spans: all, latency: 7 us, bandwidth: 10 GB/s, adapters: 1}
""")
    words = ("plan", "model.family=gpt2", "model.num_hidden_layers=5", "model.hidden_size=2048",
             "model.num_attention_heads=32", "model.vocab_size=50257", "seq_len=2048", "global_batch_size=7",
             "cluster=racks.yaml")
    best, moved = (tool.good_json(*words, *more)["plans"][0]["step_seconds"]
                   for more in ((), ("pipeline_parallel_degree=4", "pipeline_parallel_layout=1,2,1,1")))
    assert best <= 1.001 * moved, (best, moved)


@tool.not_sanitized
def test_layers_from_chunk_to_chunk():
    words = ("plan", "llama3.2-1b", "cluster=h100", "devices=2", "seq_len=2048", "global_batch_size=8", "mode=none",
             "pipeline_parallel_degree=2", "pipeline_parallel_schedule=zb-v", "tensor_parallel_degree=1")
    best, even = (tool.good_json(*words, *more)["plans"][0]["step_seconds"]
                  for more in ((), ("pipeline_parallel_layout=4,4,4,4",)))
    assert best < .985 * even, (best, even)


@tool.not_sanitized
def test_schedules_on_the_best_mesh():
    tool.write("slow.yaml", SLOW_LINKS)
    tool.write("slow.model.yaml", "model: {family: gpt2, num_hidden_layers: 3, hidden_size: 1536, "
               "num_attention_heads: 12, vocab_size: 300, tie_word_embeddings: true}\n")
    words = ("slow.model.yaml", "cluster=slow.yaml", "devices=32", "seq_len=1000", "global_batch_size=12")
    best, one, other = (tool.good_json("plan", *words, *more)["plans"][0]["step_seconds"]
                        for more in ((), ("pipeline_parallel_schedule=zb-h2",), ("micro_batch_size=3",)))
    assert best <= 1.001 * one, (best, one)
    # That plan is a quarter slower than one with single sequences, until its layers are moved.
    assert best <= 1.001 * other, (best, other)


@tool.not_sanitized
def test_estimates_of_a_vocabulary_at_the_ends():
    # On links as slow as these, estimates for a vocabulary over stages are too low by 75%.
    tool.write("tree.yaml", """
devices:
  x: {peak: {f32: 19.5 TFLOP/s, bf16: 312 TFLOP/s}, memory: 5 GB, runtime_memory: 900 MB, bandwidth: 2039 GB/s,
      launch: 3 us, efficiency: {other: {memory: 0.8}, attention: {compute: 0.4},
      matmul: {compute: 0.6, half: {m: 150, n: 150, k: 100}}}}
nodes: [{device: x, nodes: 2, devices: 8}]
links:
  - {name: in, spans: node, start: 5 us, latency: 6 us, bandwidth: 12 GB/s, algorithm: tree}
  - {name: all, spans: all, start: 5 us, latency: 8 us, bandwidth: 1 GB/s, adapters: 4}
""")
    words = ("plan", "model.family=gpt2", "model.num_hidden_layers=2", "model.hidden_size=512",
             "model.num_attention_heads=8", "model.vocab_size=262144", "seq_len=512", "global_batch_size=30",
             "model.tie_word_embeddings=false", "cluster=tree.yaml")
    best, one = (tool.good_json(*words, *more)["plans"][0]["step_seconds"]
                 for more in ((), ("pipeline_parallel_schedule=1f1b",)))
    assert best <= 1.001 * one, (best, one)


# Nodes of one device, on slow links.
LAN = """
devices:
  x: {peak: {f32: 200 GFLOP/s, bf16: 400 GFLOP/s}, memory: 16 GB, runtime_memory: 300 MB, bandwidth: 40 GB/s,
      launch: 1 us, efficiency: {other: {memory: 0.8}, attention: {compute: 0.4},
      matmul: {compute: 0.6, half: {m: 150, n: 150, k: 100}}}}
nodes: [{device: x, nodes: 4, devices: 1}]
links: [{name: lan, spans: all, start: 10 us, latency: 50 us, bandwidth: 125 MB/s, adapters: 1}]
"""


@tool.not_sanitized
def test_tensor_groups_of_single_devices():
    tool.write("lan.yaml", LAN)
    words = ("plan", "model.family=llama", "model.num_hidden_layers=4", "model.hidden_size=3072",
             "model.num_attention_heads=24", "model.num_key_value_heads=4", "model.vocab_size=128256",
             "model.tie_word_embeddings=false", "seq_len=512", "global_batch_size=2", "devices=4", "cluster=lan.yaml")
    best, tensor = (tool.good_json(*words, *more)["plans"][0] for more in ((), ("tensor_parallel_degree=4",)))
    assert best["step_seconds"] <= 1.001 * tensor["step_seconds"], (best, tensor)


@tool.not_sanitized
def test_units_of_what_is_not_among_the_best_before():
    tool.write("lan.yaml", LAN)
    words = ("plan", "model.family=llama", "model.num_hidden_layers=4", "model.hidden_size=1024",
             "model.num_attention_heads=8", "model.num_key_value_heads=2", "model.vocab_size=1000",
             "model.tie_word_embeddings=false", "seq_len=512", "global_batch_size=4", "devices=2", "cluster=lan.yaml")
    best, sharded = (tool.good_json(*words, *more)["plans"][0]["step_seconds"]
                     for more in ((), ("zero_stage=1", "pipeline_parallel_degree=1")))
    assert best <= 1.001 * sharded, (best, sharded)


@tool.not_sanitized
def test_unequal_devices():
    # With some devices a third as fast, the last stages get fewer layers, and the same plan is not listed twice.
    tool.write("unequal.yaml", UNEQUAL)
    # The vocabulary is small: otherwise the head alone would be the additional work that the fast stage can do.
    words = ("gpt2-124m", "model.vocab_size=8192", "cluster=unequal.yaml", "global_batch_size=8", "seq_len=1024",
             "pipeline_parallel_degree=2", "micro_batch_size=1")
    result = tool.good_json("plan", *words, "save=best.yaml")
    best = result["plans"][0]
    layers = [int(n) for n in best["pipeline_parallel_layout"].split(",")]
    folded = best["pipeline_parallel_schedule"] in ("zb-v", "v-half", "v-min", "hanayo")
    stages = [0, 0]
    for v, count in enumerate(layers):
        stages[1 - v % 2 if folded and v // 2 % 2 else v % 2] += count
    assert sum(stages) == 12 and stages[0] > 1.5 * stages[1], best
    seen = [(p["step_seconds"], p["peak_bytes"], p["computing_seconds"], p["micro_batch_size"],
             p["data_parallel_shard_degree"], p["tensor_parallel_degree"]) for p in result["plans"]]
    assert len(set(seen)) == len(seen), seen
    again = tool.good_json("simulate", "best.yaml", "cluster=unequal.yaml")
    assert again["step_seconds"] == best["step_seconds"], (again["step_seconds"], best)
    even = tool.good_json("plan", *words, "mode=none", "pipeline_parallel_layout=6,6")
    assert best["step_seconds"] < .9 * even["plans"][0]["step_seconds"], (best, even["plans"][0])


@tool.not_sanitized
def test_estimates_of_unlike_devices():
    # A device is ten times as fast at products and equally fast at all else; links are slow, the same for all devices.
    text = UNEQUAL.replace("f32: 50 TFLOP/s, bf16: 100 TFLOP/s", "f32: 15 TFLOP/s, bf16: 30 TFLOP/s")
    assert text != UNEQUAL
    tool.write("unlike.yaml", text.replace("bandwidth: 20 GB/s", "bandwidth: 1 GB/s"))
    words = ("plan", "gpt2-124m", "cluster=unlike.yaml", "global_batch_size=16", "seq_len=1024", "micro_batch_size=1",
             "mode=none", "pipeline_parallel_schedule=1f1b", "vocabulary_parallel=false",
             "tensor_parallel_overlap=false")
    for tensor, stages in (4, 1), (2, 2), (1, 4):
        # The first and the last stage of a tied model add up their gradients of the embedding.
        for tied in "true", "false":
            result = tool.good_json(*words, f"tensor_parallel_degree={tensor}", f"pipeline_parallel_degree={stages}",
                                    f"model.tie_word_embeddings={tied}")
            best = result["plans"][0]
            assert .85 < best["estimated_seconds"] / best["step_seconds"] < 1.25, (tensor, stages, tied, best)


@tool.not_sanitized
def test_estimates_of_whole_matrices():
    # Ranks that share an optimizer's states all make the same matrices orthogonal, which takes most of the step here.
    best = tool.good_json("plan", "gpt2-124m", "devices=8", "cluster=h100", "optimizer.name=muon",
                          "global_batch_size=16", "seq_len=1024", "micro_batch_size=1", "mode=none",
                          "tensor_parallel_degree=1", "pipeline_parallel_degree=1", "data_parallel_shard_degree=8",
                          "zero_stage=1")["plans"][0]
    assert .85 < best["estimated_seconds"] / best["step_seconds"] < 1.15, best


@tool.not_sanitized
def test_tensor_groups_over_the_edges_of_nodes():
    # Groups of three ranks on nodes of four devices; the first is inside one.
    tool.write("edges.yaml", """
devices:
  one: {peak: {f32: 20 TFLOP/s, bf16: 50 TFLOP/s}, memory: 32 GB, bandwidth: 2000 GB/s, launch: 3 us,
        efficiency: {other: {memory: 0.8}, matmul: {compute: 0.7}}}
nodes: [{device: one, nodes: 3, devices: 4}]
links:
  - {name: inside, spans: node, latency: 3 us, bandwidth: 300 GB/s}
  - {name: outside, spans: all, latency: 10 us, bandwidth: 0.1 GB/s}
""")
    words = ("plan", "model.family=llama", "model.num_hidden_layers=2", "model.hidden_size=384",
             "model.num_attention_heads=6", "model.num_key_value_heads=1", "model.vocab_size=257", "seq_len=128",
             "global_batch_size=24", "cluster=edges.yaml", "mode=none", "zero_stage=1")
    three = tool.good_json(*words, "tensor_parallel_degree=3", "pipeline_parallel_degree=1")["plans"][0]
    assert .9 < three["estimated_seconds"] / three["step_seconds"] < 1.15, three
    # Estimates that are wrong about one mesh do not spoil those of others.
    best, one = (tool.good_json(*words, *more)["plans"][0] for more in ((), ("tensor_parallel_degree=1",)))
    assert best["step_seconds"] <= 1.03 * one["step_seconds"], (best, one)


def test_dtypes_of_devices_in_use():
    tool.write("mixed.yaml", UNEQUAL.replace("small: {peak: {f32: 50 TFLOP/s, bf16: 100 TFLOP/s}",
                                             "small: {peak: {f32: 50 TFLOP/s}"))
    words = ("plan", "llama-5m", "cluster=mixed.yaml", "global_batch_size=4", "seq_len=64", "mode=none",
             "pipeline_parallel_degree=1", "tensor_parallel_degree=1")
    assert tool.good_json(*words, "devices=2")["dtype"] == "bf16"
    assert tool.good_json(*words, "devices=4")["dtype"] == "f32"
    tool.refused(2, "training.dtype: given bf16, but small has no peak for it in mixed.yaml", *words, "devices=4",
                 "dtype=bf16")
    two = ("simulate", "--model.preset=llama-5m", "--model.vocab_size=256", "--training.dtype=bf16",
           "cluster=mixed.yaml")
    assert tool.good_json(*two, "--ranks=2")["fits"]
    tool.refused(2, "training.dtype: given bf16, but small has no peak for it", *two, "--ranks=3",
                 "--training.global_batch_size=3")


@tool.not_sanitized
def test_devices_that_others_are_not():

    def seconds(cluster, *words):
        result = tool.good_json("plan", "gpt2-124m", f"cluster={cluster}", "global_batch_size=4", "seq_len=1024",
                                "mode=none", "pipeline_parallel_schedule=1f1b", *words)
        assert result["fits"], (cluster, words)
        return result["plans"][0]["step_seconds"]
    # Devices that are not used, or are in another stage, do not limit the room of others.
    short = UNEQUAL.replace("memory: 32 GB", "memory: 1 GB")
    tool.write("short.yaml", short)
    tool.write("large.yaml", short.replace("  - {device: small, nodes: 1, devices: 2}\n", ""))
    assert seconds("short.yaml", "devices=2") == seconds("large.yaml", "devices=2")
    assert seconds("short.yaml", "pipeline_parallel_degree=2") > 0
    # A straggler slows its tensor group only once, and the runtime's memory counts only once.
    four = UNEQUAL.replace("  - {device: small, nodes: 1, devices: 2}\n", "").replace("devices: 2}", "devices: 4}")
    tool.write("straggler.yaml", four + "stragglers:\n  - {device: 1, slower: 2}\n")
    free = seconds("straggler.yaml")
    for tensor in 1, 2, 4:
        assert free <= 1.001 * seconds("straggler.yaml", f"tensor_parallel_degree={tensor}"), tensor
    tool.write("less.yaml", four.replace("80 GB", "4 GB"))
    tool.write("runtime.yaml", four.replace("memory: 80 GB", "memory: 8 GB, runtime_memory: 4 GB"))
    assert seconds("less.yaml") == seconds("runtime.yaml")


if __name__ == "__main__":
    tool.main(globals())
