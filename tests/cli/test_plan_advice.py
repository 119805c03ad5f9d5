"""trireme plan: what it advises where none fits, and which settings leave no plan at all."""

import re

import tool

MODEL = ("llama-5m", "cluster=h100", "devices=2", "global_batch_size=4", "seq_len=256",
         "model.vocab_size=256")
EIGHT = ("llama3-8b", "devices=8", "cluster=a100", "global_batch_size=64")
DATA = ("tensor_parallel_degree=1", "pipeline_parallel_degree=1")
TEN_LAYERS = ("model.family=llama", "model.num_hidden_layers=10", "model.hidden_size=256",
              "model.num_attention_heads=4", "model.vocab_size=1024", "cluster=h100", "global_batch_size=8",
              "seq_len=256")

LITTLE = """
devices:
  large: {peak: {f32: 150 TFLOP/s, bf16: 300 TFLOP/s}, memory: 0.9 GB, bandwidth: 2000 GB/s, launch: 1 us,
          efficiency: {other: {memory: 0.8}, matmul: {compute: 0.8}}}
nodes:
  - {device: large, nodes: 1, devices: 16}
links:
  - {name: all, spans: all, latency: 5 us, bandwidth: 20 GB/s}
"""


def changes(*words):
    """What would make a plan fit, where none does."""
    code, out, _ = tool.run("plan", *words, "--json")
    answer = tool.strict_json(out)
    assert code == 2 and not answer["fits"], words
    return [change.removeprefix("fits with ") for change in answer["changes"]]


def test_short_sequences_are_advised():
    tool.write("tight.yaml", """
devices:
  x: {peak: {f32: 0.1 TFLOP/s, bf16: 0.2 TFLOP/s}, memory: 3 MB, runtime_memory: 1 MB, bandwidth: 50 GB/s,
      launch: 1 us, efficiency: {other: {memory: 0.8}}}
nodes:
  - {device: x, nodes: 3, devices: 2}
links:
  - {name: all, spans: all, latency: 5 us, bandwidth: 1 GB/s}
""")
    tool.write("tight.model.yaml", "model: {family: gpt2, num_hidden_layers: 9, hidden_size: 48, "
               "num_attention_heads: 6, vocab_size: 5003, tie_word_embeddings: true}\n")
    words = ("tight.model.yaml", "cluster=tight.yaml", "devices=6", "global_batch_size=18",
             "pipeline_parallel_degree=3", "tensor_parallel_degree=2", "pipeline_parallel_schedule=1f1b", "mode=full",
             "micro_batch_size=1")
    code, out, _ = tool.run("plan", *words, "seq_len=64")
    length = re.search(r"fits with training.seq_len=(\d+)\n", out)
    assert code == 2 and length and 32 <= int(length[1]) < 64, out
    assert tool.good_json("plan", *words, f"seq_len={length[1]}")["fits"]


@tool.not_sanitized
def test_more_devices_are_advised_by_nodes():
    tool.write("many.model.yaml", "model: {family: gpt2, num_hidden_layers: 4, hidden_size: 256, "
               "num_attention_heads: 4, vocab_size: 256}\n")
    words = ("many.model.yaml", "cluster=many.yaml", "global_batch_size=240", "seq_len=16", "tensor_parallel_degree=1",
             "pipeline_parallel_degree=1", "data_parallel_replicate_degree=1", "zero_stage=3", "micro_batch_size=1",
             "data_parallel_unit_layers=1", "data_parallel_prefetch=1", "mode=full", "training.dtype=f32")

    def write(node, memory):
        tool.write("many.yaml", f"""
devices:
  x: {{peak: {{f32: 1 TFLOP/s}}, memory: {memory} B, bandwidth: 50 GB/s, launch: 1 us,
      efficiency: {{other: {{memory: 0.8}}}}}}
nodes:
  - {{device: x, nodes: {32 // node}, devices: {node}}}
links:
  - {{name: all, spans: all, latency: 5 us, bandwidth: 1 GB/s}}
""")

    write(4, 10**9)
    least = {n: min(plan["peak_bytes"] for plan in tool.good_json("plan", *words, f"devices={n}")["plans"])
             for n in (8, 10, 12, 16)}
    assert least[8] > least[10] > least[12] > least[16], least
    # Whole nodes are advised even if fewer devices are enough; single devices if less than a node is missing.
    for node, memory, devices, expected in ((4, least[10], 4, 12), (4, least[12], 4, 12), (4, least[12] - 1, 4, 16),
                                            (1, least[10], 4, 10), (16, least[10], 8, 10), (2, least[10], 5, 10),
                                            (4, least[8], 3, 8)):
        write(node, memory)
        code, out, _ = tool.run("plan", *words, f"devices={devices}")
        assert code == 2 and f"fits with devices={expected}\n" in out, (node, memory, devices, out)


def test_positions_follow_the_length_that_is_advised():
    tool.write("one.yaml", """
devices:
  x: {peak: {f32: 1 TFLOP/s, bf16: 2 TFLOP/s, f64: 1 TFLOP/s}, memory: 40 MB, bandwidth: 50 GB/s, launch: 1 us,
      efficiency: {other: {memory: 0.8}}}
nodes:
  - {device: x, nodes: 1, devices: 1}
links:
  - {name: all, spans: all, latency: 5 us, bandwidth: 1 GB/s}
""")
    tool.write("one.model.yaml", "model: {family: gpt2, num_hidden_layers: 1, hidden_size: 256, "
               "num_attention_heads: 4, vocab_size: 256}\n")
    words = ("plan", "one.model.yaml", "cluster=one.yaml", "devices=1", "mode=full", "micro_batch_size=1",
             "global_batch_size=1")
    out = tool.run(*words, "seq_len=8192")[1]
    length = re.search(r"fits with training.seq_len=(\d+)\n", out)
    # By eighths of 1024.
    assert length and 1024 < int(length[1]) < 2048, out
    assert tool.run(*words, f"seq_len={length[1]}")[0] == 0, out
    assert tool.run(*words, f"seq_len={int(length[1]) + 128}")[0] == 2, out
    # On a larger device of another cluster everything fits, if it computes in that dtype at all.
    others = [re.findall("fits with cluster=(.*)", tool.run(*words, "seq_len=8192", f"training.dtype={dtype}")[1])
              for dtype in ("f32", "f64")]
    assert others[1] == ["a100", "a100-flash", "h100", "h100-compiled"], others
    assert sorted(others[1] + ["cpu"]) == others[0], others
    # With 8192 positions the model does not fit at any length.
    out = tool.run(*words, "seq_len=8192", "model.max_position_embeddings=8192")[1]
    assert "nothing fits" in out and "fits with training.seq_len" not in out, out


@tool.not_sanitized
def test_the_smallest_change_that_fits():
    eight = (*EIGHT, "seq_len=8192", *DATA)
    found = changes(*eight, "micro_batch_size=4", "mode=selective")
    assert found == ["training.micro_batch_size=2", "activation_checkpoint.mode=full",
                     "parallelism.tensor_parallel_degree=2", "parallelism.pipeline_parallel_degree=4",
                     "training.seq_len=5120"], found
    found = changes(*eight, "micro_batch_size=1", "zero_stage=1", "mode=none")
    assert found == ["activation_checkpoint.mode=full", "parallelism.zero_stage=2",
                     "parallelism.tensor_parallel_degree=2", "parallelism.pipeline_parallel_degree=2",
                     "training.seq_len=6144", "devices=32"], found
    found = changes(*eight, "micro_batch_size=1", "zero_stage=0")
    assert "parallelism.zero_stage=1" in found and "devices=16" not in found, found
    found = changes(*eight, "micro_batch_size=2", "zero_stage=2", "mode=none")
    assert "activation_checkpoint.mode=selective" in found and "training.seq_len=7168" in found, found
    # How many layers are recomputed, and rows that are not split.
    found = changes(*eight, "micro_batch_size=2", "zero_stage=2", "mode=none", "full_layers=1")
    assert "activation_checkpoint.full_layers=4" in found, found
    found = changes(*EIGHT, "seq_len=8192", "tensor_parallel_degree=1", "data_parallel_shard_degree=1",
                    "data_parallel_replicate_degree=1", "pipeline_parallel_schedule=1f1b", "micro_batch_size=4",
                    "mode=none", "full_layers=2") # the stages follow
    assert "activation_checkpoint.full_layers=3" in found, found
    tool.write("small.yaml", """
devices:
  x: {peak: {f32: 60 TFLOP/s}, memory: 12 GB, bandwidth: 2000 GB/s, efficiency: {other: {memory: 0.8}}}
nodes:
  - {device: x, nodes: 8, devices: 1}
links:
  - {name: all, spans: all, latency: 3 us, bandwidth: 100 GB/s}
""")
    found = changes("gpt2-774m", "cluster=small.yaml", "devices=1", "global_batch_size=16", "seq_len=1024",
                    "training.dtype=f32", "micro_batch_size=4", "mode=none", "full_layers=2", "sequence_parallel=false")
    assert "devices=2" in found, found # of 9 chunks to a rank, each with two of them
    found = changes(*EIGHT, "seq_len=8192", "tensor_parallel_degree=8", "sequence_parallel=false", "micro_batch_size=8",
                    "mode=none")
    assert "parallelism.sequence_parallel=true" in found, found
    # A mesh whose degrees already multiply to all ranks changes as a whole.
    found = changes(*eight, "micro_batch_size=8", "mode=none", "data_parallel_shard_degree=8",
                    "data_parallel_replicate_degree=1")
    assert "parallelism.tensor_parallel_degree=8 parallelism.data_parallel_shard_degree=1" in found, found
    # A number of devices between one that is too small and its double.
    tool.write("little.yaml", LITTLE)
    words = ("gpt2-124m", "cluster=little.yaml", "global_batch_size=12", "seq_len=256", "mode=full")
    assert changes(*words, "devices=2")[0] == "devices=3"
    assert changes(*words, "ranks=2")[0] == "parallelism.ranks=3"


@tool.not_sanitized
def test_what_little_room_leaves():
    # Fits only with units of half a layer; and the configuration that a run has written, with every key, is a plan.
    tight = tool.good_json("plan", "llama3-405b", "cluster=h100", "devices=1024", "global_batch_size=1024",
                           "seq_len=8192", "tensor_parallel_degree=1", "pipeline_parallel_degree=1",
                           "micro_batch_size=1")
    assert tight["fits"] and any("half a layer" in p["plan"] for p in tight["plans"]), tight
    assert tool.good_json("plan", *MODEL, "data_parallel_replicate_degree=2", "zero_stage=3")["fits"]
    # The plans that seem smallest do not fit; of very many that seem larger, some do.
    tool.write("room.yaml", """
devices:
  x: {peak: {f32: 19 TFLOP/s, bf16: 200 TFLOP/s}, memory: 370 MB, bandwidth: 1500 GB/s, launch: 1 us,
      efficiency: {other: {memory: 0.8}, matmul: {compute: 0.7}}}
nodes:
  - {device: x, nodes: 2, devices: 8}
links:
  - {name: in, spans: node, latency: 4 us, bandwidth: 200 GB/s}
  - {name: out, spans: all, latency: 7 us, bandwidth: 20 GB/s}
""")
    tool.write("room.model.yaml", "model: {family: llama, num_hidden_layers: 16, hidden_size: 1024, "
               "num_attention_heads: 16, num_key_value_heads: 4, vocab_size: 64000}\n")
    words = ("room.model.yaml", "cluster=room.yaml", "devices=16", "global_batch_size=16", "seq_len=1024",
             "tensor_parallel_degree=4")
    assert tool.good_json("plan", *words)["fits"]
    # How much is short is about the mode that is set.
    schedule = ("pipeline_parallel_degree=4", "pipeline_parallel_schedule=1f1b")
    code, out, _ = tool.run("plan", *words, *schedule, "mode=selective")
    short = re.search(r"nothing fits: ([\d.]+) MB short .* selective recompute\)", out)
    assert code == 2 and short and float(short[1]) < 33, out
    # An even layout does not fit in this mode; one with fewer layers on the first and last stage does.
    words += *schedule, "mode=full"
    # Plans that seem to need least do not fit; where there is no time to try others, nothing is claimed about them.
    code, out, err = tool.run("plan", *words, "pipeline_parallel_layout=4,4,4,4", "seconds=0.001")
    assert code == 2 and re.match(r"of \d+ plans \d+ were tried and do not fit, others may: ", out), (code, out)
    # There is time for one change at most, too.
    assert out.count("fits with") <= 1 and "\ntime was up before all changes were tried\n" in out, out
    assert re.fullmatch(r"trireme plan: no plan for 16 ranks was found that fits .*\n", err), err
    best = tool.good_json("plan", *words, "save=room.best.yaml")["plans"][0]
    assert best["pipeline_parallel_layout"] not in ("", "auto") and best["recompute"] == "full", best
    assert tool.good_json("simulate", "room.best.yaml", "cluster=room.yaml")["fits"]


@tool.not_sanitized
def test_what_each_change_may_be():
    # Units of half a layer count for what is short, with any ZeRO stage; so does the mode that is set.
    selective = (*EIGHT, *DATA, "micro_batch_size=4", "mode=selective", "zero_stage=2")
    code, out, _ = tool.run("plan", *selective, "seq_len=4160")
    assert code == 2 and "units of half a layer" in out, out
    assert "parallelism.zero_stage=3" in changes(*selective, "seq_len=4608")
    assert changes(*EIGHT, *DATA, "seq_len=8192", "micro_batch_size=4", "zero_stage=2", "selective_layers=2") == [
        "training.micro_batch_size=1", "fits without activation_checkpoint.selective_layers",
        "parallelism.tensor_parallel_degree=4", "training.seq_len=3584"]
    # Microbatches still divide the batch, and degrees the ranks.
    found = changes(*EIGHT, *DATA, "seq_len=4096", "micro_batch_size=8", "mode=none", "zero_stage=3")
    assert found[0] == "training.micro_batch_size=4", found
    found = changes(*EIGHT, "seq_len=2048", "data_parallel_replicate_degree=8")
    assert found[0] == "parallelism.data_parallel_replicate_degree=4", found
    # A length between half and all of what was asked for.
    found = changes(*EIGHT, *DATA, "seq_len=2432", "micro_batch_size=8", "mode=none")
    assert "training.seq_len=2280" in found, found
    tool.write("six.yaml", LITTLE.replace("0.9 GB", "0.4 GB").replace("devices: 16", "devices: 6"))
    found = changes("gpt2-124m", "cluster=six.yaml", "global_batch_size=12", "seq_len=256", "mode=full", "devices=2")
    assert "devices=6" in found, found # as many as there are, which are no double of two


@tool.not_sanitized
def test_settings_that_are_left_to_the_search():
    tool.write("slow.yaml", """
devices:
  a: {peak: {f32: 20 TFLOP/s, bf16: 100 TFLOP/s}, memory: 3 GB, runtime_memory: 0.3 GB, bandwidth: 600 GB/s,
      efficiency: {other: {memory: 0.8}, matmul: {compute: 0.6}}}
nodes:
  - {device: a, nodes: 2, devices: 2}
links:
  - {name: pcie, spans: node, latency: 10 us, bandwidth: 12 GB/s}
  - {name: eth, spans: all, latency: 50 us, bandwidth: 1 GB/s, adapters: 1}
""")
    tool.write("seven.yaml", "model: {family: llama, num_hidden_layers: 7, hidden_size: 768, num_attention_heads: 12, "
               "num_key_value_heads: 3, vocab_size: 20000}\n")
    fixed = ("seven.yaml", "cluster=slow.yaml", "devices=4", "tensor_parallel_degree=1", "mode=selective",
             "training.threads=1")
    pipeline = ("pipeline_parallel_degree=4", "micro_batch_size=1")
    # A schedule that holds all microbatches, and one that may hold one too many.
    words = (*fixed, *pipeline, "global_batch_size=32", "seq_len=4096", "pipeline_parallel_schedule=gpipe")
    schedule = "parallelism.pipeline_parallel_schedule=1f1b"
    assert schedule in changes(*words) and tool.good_json("plan", *words[:-1], schedule)["fits"]
    auto = (*fixed, *pipeline, "global_batch_size=32", "seq_len=6144", "pipeline_parallel_schedule=auto")
    assert "parallelism.pipeline_parallel_activation_limit=7" in changes(*auto)
    found = tool.good_json("plan", *auto, "pipeline_parallel_activation_limit=7")
    assert found["fits"] and found["kept"]["pipeline_parallel_activation_limit"] == 7
    # What is in no order of memory is left out.
    words = (*fixed, *pipeline, "global_batch_size=16", "seq_len=10752", "pipeline_parallel_schedule=1f1b",
             "pipeline_parallel_layout=4,1,1,1")
    assert "fits without parallelism.pipeline_parallel_layout" in changes(*words)
    assert tool.good_json("plan", *words[:-1])["fits"]
    words = (*fixed, "pipeline_parallel_degree=1", "micro_batch_size=4", "global_batch_size=16", "seq_len=4608",
             "logits_rows=18432")
    assert "fits without training.logits_rows" in changes(*words) and tool.good_json("plan", *words[:-1])["fits"]


@tool.not_sanitized
def test_changes_among_values_that_are_impossible():
    def cluster(name, memory, nodes, bf16=", bf16: 100 TFLOP/s"):
        tool.write(name, f"""
devices:
  g: {{peak: {{f32: 20 TFLOP/s, f64: 5 TFLOP/s{bf16}}}, memory: {memory} GB, bandwidth: 1000 GB/s, launch: 3 us,
      efficiency: {{other: {{memory: 0.8}}, matmul: {{compute: 0.6}}, attention: {{compute: 0.4}}}}}}
nodes:
  - {{device: g, nodes: {nodes}, devices: 4}}
links:
  - {{name: in, spans: node, start: 5 us, latency: 3 us, bandwidth: 50 GB/s, algorithm: ring}}
  - {{name: out, spans: all, latency: 10 us, bandwidth: 1.25 GB/s}}
""")

    common = ("gpt2-355m", "seq_len=1024")
    # Three chunks, which few schedules have.
    cluster("one.yaml", 1, 2)
    assert "training.micro_batch_size=2" in changes(
        *common, "cluster=one.yaml", "global_batch_size=64", "pipeline_parallel_degree=4",
        "pipeline_parallel_chunks=3", "micro_batch_size=16")
    # 8 sequences divide the batch, but not a replica's part of it.
    cluster("two.yaml", 1.97, 2)
    assert "training.micro_batch_size=18" in changes(
        *common, "cluster=two.yaml", "global_batch_size=72", "data_parallel_replicate_degree=2",
        "data_parallel_shard_degree=1", "zero_stage=0", "micro_batch_size=36")
    # No bf16: f64 may still become f32.
    cluster("wide.yaml", 1, 2, bf16="")
    assert "training.dtype=f32" in changes(
        *common, "cluster=wide.yaml", "global_batch_size=16", "tensor_parallel_degree=4", "pipeline_parallel_degree=2",
        "micro_batch_size=1", "training.dtype=f64")
    cluster("four.yaml", 1.85, 1)
    assert "activation_checkpoint.full_layers=2" in changes(
        *common, "cluster=four.yaml", "global_batch_size=8", "pipeline_parallel_degree=4", "micro_batch_size=2",
        "mode=none", "full_layers=1,1,1,1")


@tool.not_sanitized
def test_settings_that_leave_plans():
    """What a search would not try by itself is a plan if it is set."""
    for words in (("llama-5m", "model.num_hidden_layers=16", "cluster=h100", "devices=2", "global_batch_size=16",
                   "seq_len=256", "pipeline_parallel_degree=2", "pipeline_parallel_schedule=hanayo",
                   "pipeline_parallel_chunks=4"),
                  (*TEN_LAYERS, "devices=2", "pipeline_parallel_degree=2", "pipeline_parallel_schedule=interleaved",
                   "pipeline_parallel_chunks=4"),
                  ("llama3-8b", "cluster=h100", "devices=32", "global_batch_size=32", "seq_len=1024",
                   "tensor_parallel_degree=32", "model.num_key_value_heads=32")):
        assert tool.good_json("plan", *words)["fits"], words
    # Tensor ranks split rows if the rows of a microbatch are as many as they need, not those of a sequence.
    best = tool.good_json("plan", "llama3-8b", "cluster=h100", "devices=8", "global_batch_size=16", "seq_len=4095",
                          "tensor_parallel_degree=2", "micro_batch_size=2", "pipeline_parallel_degree=1")["plans"][0]
    assert best["sequence_parallel"], best
    # What is set stays, also where less would free memory.
    tight = tool.good_json("plan", "llama3-405b", "cluster=h100", "devices=1024", "global_batch_size=1024",
                           "seq_len=8192", *DATA, "micro_batch_size=1", "data_parallel_prefetch=2")
    assert tight["fits"] and not any("prefetch of 1" in plan["plan"] for plan in tight["plans"]), tight


def test_settings_that_leave_none():
    """The key that is to blame is named, and the nearest value that is possible."""
    batch = ("llama-5m", "cluster=h100", "devices=8", "global_batch_size=5", "seq_len=256",
             "pipeline_parallel_degree=1")
    tool.refused(2, "global_batch_size: given 5, .* are of 4 and 6 seq", "plan", *batch,
                 "data_parallel_replicate_degree=2")
    tool.refused(2, "global_batch_size: given 5, .* are of 4 and 8 seq", "plan", *batch,
                 "data_parallel_replicate_degree=4")
    single = ("data_parallel_replicate_degree=1", "data_parallel_shard_degree=1")
    tool.refused(2, 'pipeline_parallel_layout: given "5,5", but no schedule .* has 2 virtual stages', "plan",
                 *TEN_LAYERS, *single, "devices=10", "tensor_parallel_degree=1", "pipeline_parallel_layout=5,5")
    tool.refused(2, "the degrees leave 32 ranks to tensor parallel, more than 16", "plan", *TEN_LAYERS, *single,
                 "devices=32", "pipeline_parallel_degree=1")
    tool.refused(2, "activation_limit: given 2, but pipeline_parallel_schedule is 1f1b: auto alone", "plan",
                 *TEN_LAYERS, "devices=2", "pipeline_parallel_schedule=1f1b", "pipeline_parallel_activation_limit=2")
    tool.refused(2, "pipeline_parallel_chunks: given 1, which no schedule", "plan", *TEN_LAYERS, "devices=2",
                 "pipeline_parallel_degree=2", "pipeline_parallel_schedule=interleaved", "pipeline_parallel_chunks=1")


if __name__ == "__main__":
    tool.main(globals())
