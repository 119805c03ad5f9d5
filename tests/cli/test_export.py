"""trireme plan export=: flags for Megatron-LM, TOML for TorchTitan."""

import json

import tool

MODEL = ("llama-5m", "cluster=h100", "devices=2", "global_batch_size=4", "seq_len=256",
         "model.vocab_size=256")


def test_exports():
    words = *MODEL, "tensor_parallel_degree=2", "mode=none", "micro_batch_size=4"
    flags = tool.good("plan", *words, "export=megatron")
    assert "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 1" in flags
    connections = "# to be set: CUDA_DEVICE_MAX_CONNECTIONS=1 in the environment"
    assert connections in flags, flags
    # Documents are kept apart.
    assert "--reset-position-ids --reset-attention-mask --eod-mask-loss" in flags, flags
    assert connections not in tool.good("plan", *MODEL, "tensor_parallel_degree=1", "export=megatron")
    toml = tool.good("plan", *words, "--export=torchtitan")
    assert "tensor_parallel_degree = 2" in toml and "global_batch_size = 4" in toml
    assert '# to be set: attn_type = "flex" and attn_mask_type = "block_causal"' in toml, toml
    for to, text in ("megatron", flags), ("torchtitan", toml):
        answer = tool.good_json("plan", *words, f"export={to}")
        assert answer["export"] == text and answer["fits"], answer


def test_what_others_do_not_do():
    def exported(to, *words):
        return tool.good("plan", "llama-5m", "cluster=h100", "mode=none", "seq_len=256", "micro_batch_size=1", *words,
                         f"export={to}")
    words = ("devices=3", "pipeline_parallel_degree=3", "pipeline_parallel_schedule=interleaved",
             "pipeline_parallel_chunks=2")
    flags = exported("megatron", *words, "global_batch_size=13")
    # The smallest group of 3 or more that leaves none over, or 3 or more: 13 = 5 + 5 + 3.
    assert "--microbatch-group-size-per-virtual-pipeline-stage 5 " in flags, flags
    assert "--attention-dropout 0 --hidden-dropout 0" in flags and "# to be set: --data-path" in flags, flags
    # Llama's matrices all begin alike, unlike there; GPT-2's begin as there.
    assert " --init-method-std 0.02 " in flags and "divided by the root of twice the layers" in flags, flags
    assert "divided" not in tool.good("plan", "gpt2-124m", "cluster=h100", "devices=1", "mode=none", "seq_len=256",
                                      "global_batch_size=1", "export=megatron")
    assert "microbatch-group" not in exported("megatron", *words, "global_batch_size=12")
    # Groups are of the microbatches of one replica, 5 of these 10.
    flags = exported("megatron", *words[2:], "devices=4", "pipeline_parallel_degree=2", "global_batch_size=10",
                     "data_parallel_replicate_degree=2", "vocabulary_parallel=false")
    assert "--microbatch-group-size-per-virtual-pipeline-stage 3 " in flags and "spread" not in flags, flags
    # Chunks that go through all ranks over and over are interleaved there, with the same layers.
    tool.good("simulate", "schedule=interleaved", "stages=2", "chunks=2", "microbatches=5", "save=s.txt")
    two = ("devices=2", "pipeline_parallel_degree=2", "global_batch_size=5")
    own = (*two, "pipeline_parallel_schedule=./s.txt", "pipeline_parallel_layout=1,1,1,3")
    flags, toml = exported("megatron", *own), exported("torchtitan", *own)
    for text in flags, toml:
        assert "not available: the schedule ./s.txt; here 1F1B of several chunks, interleaved, which" in text, text
    assert '-layout "Et*1|t*1|t*1|t*3L"' in flags, flags
    assert "--microbatch-group-size-per-virtual-pipeline-stage 3 " in flags, flags
    assert 'pipeline_parallel_schedule = "Interleaved1F1B"' in toml and '["layers.1"],' in toml, toml
    # For merged chunks, numbers of layers, and of recomputed layers, are for all chunks of a rank together.
    folded = (*two, "pipeline_parallel_schedule=v-half", "pipeline_parallel_layout=1,2,1,2", "full_layers=1,1,1,1")
    flags, toml = exported("megatron", *folded), exported("torchtitan", *folded)
    for text in flags, toml:
        assert "not available: the schedule v-half; here 1F1B of one chunk, which" in text and "fqns" not in text, text
    assert "layout" not in flags and "--recompute-method block --recompute-num-layers 2 " in flags, flags
    # No rank has more recomputed layers there than it has layers.
    more = exported("megatron", *folded[:-2], "pipeline_parallel_layout=1,1,1,3", "full_layers=1,1,1,3")
    assert "--recompute-num-layers 3 " in more and "that differ in what is computed again" not in more, more
    assert 'pipeline_parallel_schedule = "1F1B"' in toml and "layers_per_stage = 3\n" in toml, toml
    # 6 layers over 4 ranks: Megatron-LM refuses that without a layout.
    flags = exported("megatron", "devices=4", "pipeline_parallel_degree=4", "pipeline_parallel_schedule=zb-h1",
                     "pipeline_parallel_layout=", "vocabulary_parallel=false", "global_batch_size=4")
    assert '-layout "Et*2|t*2|t*1|t*1L"' in flags, flags
    # With equally many layers on each stage no layout is needed.
    for schedule, here in ("v-min", "1F1B of one chunk"), ("zb-h1", "1F1B"):
        flags = exported("megatron", "devices=3", "pipeline_parallel_degree=3", "vocabulary_parallel=false",
                         "pipeline_parallel_layout=", f"pipeline_parallel_schedule={schedule}", "global_batch_size=6")
        assert f"not available: the schedule {schedule}; here {here}, which takes other time" in flags, flags
        assert "virtual" not in flags and "layout" not in flags, flags
    assert "not available: interleaved with fewer microbatches (2) than" in exported("megatron", *words,
                                                                                 "global_batch_size=2")
    toml = exported("torchtitan", *words, "global_batch_size=13")
    assert "not available: interleaved with 13 microbatches, which are not 4 equal rounds" in toml, toml
    assert "equal rounds" not in exported("torchtitan", *words, "global_batch_size=12") and "GPT-2" not in toml
    assert "# not available: weights that begin with a standard deviation of 0.02" in toml, toml
    toml = tool.good("plan", "gpt2-124m", "cluster=h100", "devices=1", "mode=none", "seq_len=256",
                     "global_batch_size=1", "export=torchtitan")
    assert "not available: GPT-2" in toml, toml
    toml = exported("torchtitan", "devices=4", "pipeline_parallel_degree=4", "pipeline_parallel_schedule=1f1b",
                    "global_batch_size=2")
    assert "not available: fewer microbatches (2) than stages (4)" in toml, toml
    # Several layers because the search chose so; replicas of shards are instances of the optimizer, without FSDP, too.
    flags = exported("megatron", "devices=4", "data_parallel_replicate_degree=2", "data_parallel_shard_degree=2",
                     "zero_stage=1", "global_batch_size=4")
    assert "# to be set: several layers gathered and reduced together" in flags, flags
    assert "--overlap-param-gather \\\n--num-distributed-optimizer-instances 2 " in flags, flags
    for to in "megatron", "torchtitan":
        spread = exported(to, *two[:2], "pipeline_parallel_schedule=1f1b", "vocabulary_parallel=true",
                          "pipeline_parallel_layout=", "global_batch_size=2", "full_layers=2,1")
        assert "# not available: a vocabulary spread over all stages" in spread, spread
        # Layers that differ only from stage to stage.
        assert "what is computed again (full: 2,1; selective: none; the rest: none); here " in spread, spread
        halves = exported(to, "devices=4", "data_parallel_shard_degree=4", "zero_stage=3", "global_batch_size=4",
                          "data_parallel_unit_layers=0")
        assert "# to be set: half a layer gathered and reduced together" in halves, halves
    toml = exported("torchtitan", "devices=4", "tensor_parallel_degree=2", "data_parallel_replicate_degree=2",
                    "global_batch_size=4")
    assert "not available: replicas without shards beside" in toml, toml
    assert "not available: bf16 in tensor or pipeline parallel ranks without shards, which compute in f32" in toml, toml
    flags = exported("megatron", "devices=2", "zero_stage=2", "tensor_parallel_degree=1", "pipeline_parallel_degree=1",
                     "global_batch_size=2")
    assert "--data-parallel-sharding-strategy optim_grads " in flags, flags
    # Without the former flag, Megatron-FSDP leaves gradients of replicas as they are.
    assert "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather" in flags, flags
    for words in ("tensor_parallel_degree=1",), ("data_parallel_shard_degree=2", "tensor_parallel_degree=2"):
        toml = exported("torchtitan", "devices=4", "global_batch_size=4", "pipeline_parallel_degree=1", "zero_stage=2",
                        *words)
        assert "bf16 in tensor" not in toml and "parameters kept in bf16" in toml, toml


def test_heads_that_others_do_not_split():
    tool.write("odd.yaml", "model: {family: llama, num_hidden_layers: 2, hidden_size: 48, num_attention_heads: 6, "
               "num_key_value_heads: 3, intermediate_size: 683, vocab_size: 64}\n")
    for to, what in ("megatron", "a hidden layer of 683"), ("torchtitan", "3 heads of keys and values"):
        text = tool.good("plan", "odd.yaml", "cluster=h100", "devices=2", "tensor_parallel_degree=2", "seq_len=64",
                         "global_batch_size=2", "mode=none", f"export={to}")
        assert f"# not available: {what} over 2 tensor parallel ranks" in text and " 6 heads" not in text, text
    # Ranks that are more than the heads of keys and values share them only where each has as many ranks.
    tool.write("many.yaml", "model: {family: llama, num_hidden_layers: 1, hidden_size: 96, num_attention_heads: 24, "
               "num_key_value_heads: 8, intermediate_size: 96, vocab_size: 96}\n")
    words = ("many.yaml", "cluster=h100", "devices=12", "tensor_parallel_degree=12", "seq_len=24",
             "global_batch_size=1", "mode=none")
    beside = "# not available: inputs' gradients that tensor parallel ranks exchange beside weights' products"
    for to, overlap in ("megatron", "true"), ("torchtitan", "true"), ("torchtitan", "false"):
        text = tool.good("plan", *words, f"tensor_parallel_overlap={overlap}", f"export={to}")
        assert "# not available: 8 heads of keys and values over 12 tensor parallel ranks" in text, text
        assert (beside in text) == (to == "torchtitan" and overlap == "true"), text


def test_what_others_split_otherwise():
    def exported(to, *words):
        tool.write("few.yaml", "model: {family: llama, num_hidden_layers: 2, hidden_size: 64, num_attention_heads: 8, "
                   "num_key_value_heads: 2, intermediate_size: 64, vocab_size: 64}\n")
        return tool.good("plan", "few.yaml", "cluster=h100", "devices=4", "global_batch_size=2", "mode=none",
                         "tensor_parallel_degree=4", *words, f"export={to}")
    # Two ranks share one head of keys and values: Megatron-LM copies it.
    assert "heads" not in exported("megatron", "seq_len=64").split("--tensor")[0]
    assert "# not available: 2 heads of keys and values over 4" in exported("torchtitan", "seq_len=64")
    # 4 ranks divide the 132 rows of two sequences, not the 66 of each.
    words = "seq_len=66", "micro_batch_size=2"
    uneven = "# not available: sequences of 66 tokens; {} has to divide them"
    flags = exported("megatron", *words, "sequence_parallel=true")
    assert "--sequence-parallel " in flags and uneven.format(4) in flags, flags
    flags = exported("megatron", *words, "sequence_parallel=false")
    assert uneven.format(4) not in flags and "--sequence-parallel" not in flags, flags
    assert uneven.format(8) in exported("torchtitan", *words)
    assert "has to divide" not in exported("megatron", "seq_len=64") + exported("torchtitan", "seq_len=64")


def test_exports_what_is_given():
    def exported(to, model, *words):
        return tool.good("plan", model, "cluster=h100", "devices=1", "seq_len=128", "global_batch_size=2",
                         "micro_batch_size=1", "mode=none", *words, f"export={to}")
    # Recomputed layers.
    assert "--recompute-method block --recompute-num-layers 2" in exported("megatron", "llama-5m", "full_layers=2")
    differ = "layers of a stage that differ in what is computed again (full: {}; selective: {}; the rest: {})"
    flags = exported("megatron", "llama-5m", "full_layers=2", "selective_layers=1")
    assert "--recompute-method block --recompute-num-layers 3 " in flags, flags
    assert differ.format(2, 1, "none") + "; here the first 3 of each virtual stage are in full, which" in flags, flags
    toml = exported("torchtitan", "llama-5m", "full_layers=2", "selective_layers=1")
    assert 'mode = "full"' in toml and differ.format(2, 1, "none") + "; here all layers are in full" in toml, toml
    # A mode that takes no more memory than the plan, and no more time than necessary.
    flags = exported("megatron", "llama-5m", "selective_layers=1")
    assert "--recompute-granularity selective " in flags and "--recompute-method" not in flags, flags
    toml = exported("torchtitan", "llama-5m", "selective_layers=1")
    assert 'mode = "selective"' in toml and "selective_ac_option" in toml, toml
    for text in flags, toml:
        assert differ.format("none", 1, "none") + "; here all layers are selective, not some, which" in text, text
    flags = tool.good("plan", *MODEL[:2], "devices=1", "seq_len=128", "global_batch_size=2", "mode=selective",
                      "full_layers=2", "export=megatron")
    assert "--recompute-method uniform " in flags and differ.format(2, "none", "selective") in flags, flags
    toml = exported("torchtitan", "llama-5m", "full_layers=2")
    assert 'mode = "full"' in toml and "(full: 2; selective: none; the rest: none)" in toml, toml


def test_exports_the_model():
    llama = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "hidden_size": 16,
             "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 64, "max_position_embeddings": 64}

    def exported(to, model, *words, devices=1):
        if isinstance(model, dict):
            tool.write("model.json", json.dumps({**llama, **model}))
            model = "model.config=model.json"
        return tool.good("plan", model, "cluster=h100", f"devices={devices}", "seq_len=64", "global_batch_size=2",
                         "mode=none", *words, f"export={to}")
    for to in "megatron", "torchtitan":
        assert "# not available: layers with linear attention" in exported(to, "gla-15m")
        rings = ("context_parallel_degree=4", "context_parallel_method=ring")
        ring = exported(to, "llama-5m", *rings, devices=4)
        assert "zigzag" not in ring and "within the ring" not in ring, ring
        ring = exported(to, "llama-5m", *rings, "context_parallel_layout=striped", "context_parallel_inner_degree=2",
                        devices=4)
        assert "# not available: sequences laid out striped over ranks; they are in zigzag there" in ring, ring
        assert "# not available: rings of 2 ranks within the ring" in ring, ring
    # Biases of all linear layers, of those that Megatron-LM can switch separately, and of others.
    assert "bias" not in exported("megatron", "gpt2-124m")
    assert "--disable-bias-linear \\\n" in exported("megatron", "gpt2-124m", "model.bias=false")
    assert "--disable-bias-linear --add-qkv-bias " in exported("megatron", "qwen2-0.5b")
    assert "bias" not in exported("megatron", {"attention_bias": True, "mlp_bias": True})
    flags = exported("megatron", {"attention_bias": True})
    assert "--disable-bias-linear --add-qkv-bias " in flags, flags
    where = "# not available: biases of {}, where not all"
    assert where.format("attention's output") in flags and "feed-forward" not in flags, flags
    flags = exported("megatron", {"mlp_bias": True})
    assert "--add-qkv-bias" not in flags and where.format("the feed-forward") in flags, flags
    # Heads of keys and values that are fewer; where nothing is in 16 bits, and where only gradients travel so.
    flags = exported("megatron", "llama3-8b", "tensor_parallel_degree=8", "training.dtype=f32", devices=8)
    assert "--group-query-attention --num-query-groups 8 " in flags and "bf16" not in flags, flags
    flags = exported("megatron", {}, "training.dtype=f32", "reduce_dtype=bf16")
    assert "--grad-reduce-in-bf16 " in flags and "--bf16" not in flags and "group-query" not in flags, flags
    assert "\n--bf16 " in exported("megatron", {})
    # The head, and norms of queries and keys.
    untied, norms = "--untie-embeddings-and-output-weights ", "--qk-layernorm "
    for preset, has in ("gpt2-124m", ()), ("llama-5m", (untied,)), ("qwen3-0.6b", (norms,)):
        flags = exported("megatron", preset)
        assert [flag in flags for flag in (untied, norms)] == [flag in has for flag in (untied, norms)], flags
    shared = "# not available: an embedding that is the head too"
    assert shared in exported("torchtitan", "llama3.2-1b")
    for preset in "llama-5m", "qwen3-0.6b":
        assert shared not in exported("torchtitan", preset)
    assert shared in exported("torchtitan", "qwen3-0.6b", "pipeline_parallel_degree=2", "micro_batch_size=1",
                              "pipeline_parallel_schedule=1f1b", "vocabulary_parallel=false", devices=2)
    # GELU in either form.
    flags = exported("megatron", "gpt2-124m", "model.activation=gelu")
    assert "--no-bias-gelu-fusion " in flags and "GELU" not in flags, flags
    flags = exported("megatron", "gpt2-124m", "model.bias=false")
    assert "not available: GELU by tanh without biases" in flags and "gelu" not in flags, flags
    # Positions.
    assert "--use-rope-scaling --rope-scaling-factor 32 " in exported("megatron", "llama3.2-1b")
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 32}
    flags = exported("megatron", {"rope_scaling": scaling})
    assert "not available: scaling of rotary frequencies between 1 and 4 turns in 32 positions; here" in flags, flags
    for low, high in (1, 4), (2, 4), (1, 8):
        flags = exported("megatron", {"rope_scaling": {**scaling, "original_max_position_embeddings": 8192,
                                                       "low_freq_factor": low, "high_freq_factor": high}})
        turns = f"not available: scaling of rotary frequencies between {low} and {high} turns in 8192 positions"
        assert (turns in flags) == ((low, high) != (1, 4)) and "--rope-scaling-factor 8 " in flags, flags
    linear = {"rope_type": "linear", "factor": 4.0}
    flags = exported("megatron", {"rope_scaling": linear})
    assert "--rotary-seq-len-interpolation-factor 4 " in flags and "rope-scaling" not in flags, flags
    flags = exported("megatron", {"rope_scaling": {**linear, "factor": 1.5}, "rope_theta": 100.5})
    assert "not available: positions divided by what is no whole number, 1.5" in flags, flags
    assert "not available: a base of rotary frequencies that is no whole number, 100.5" in flags, flags
    window = {"architectures": ["MistralForCausalLM"], "num_key_value_heads": 2, "sliding_window": 8}
    assert "to be set: the sliding window (--window-size 7,0)" in exported("megatron", window)
    # Features that no dense model of TorchTitan has.
    for model, what in (({"mlp_bias": True}, "biases of linear layers"), (window, "a sliding window"),
                        ({"rope_scaling": linear}, "linear scaling of rotary frequencies")):
        assert f"# not available: {what}\n" in exported("torchtitan", model), model
    assert "not available: biases" not in exported("torchtitan", {"rope_scaling": scaling})


def test_exports_the_optimizer():
    def exported(to, *words):
        return tool.good("plan", *MODEL[:2], "devices=1", "seq_len=128", "global_batch_size=1", "mode=none",
                         "training.steps=500", *words, f"export={to}")
    flags = exported("megatron", "optimizer.lr=1e-3", "optimizer.beta2=0.99", "max_norm=0.5")
    assert "--optimizer adam --adam-beta1 0.9 --adam-beta2 0.99 --adam-eps 1e-08 " in flags, flags
    assert "--weight-decay 0.1 --clip-grad 0.5 " in flags, flags
    assert ("--train-iters 500 --lr 0.001 --lr-decay-style cosine --lr-decay-iters 500 --min-lr 0.0001 "
            "--lr-warmup-iters 0") in flags, flags
    flags = exported("megatron", "optimizer.name=sgd", "lr_scheduler.decay_type=wsd", "lr_scheduler.warmup_steps=9")
    assert "--optimizer sgd --sgd-momentum 0.9 " in flags and "adam" not in flags, flags
    assert "--lr-decay-style WSD --lr-wsd-decay-style linear --lr-wsd-decay-iters 100 " in flags, flags
    assert "--lr-warmup-iters 9" in flags, flags
    flags = exported("megatron", "lr_scheduler.decay_type=wsd", "lr_scheduler.warmup_steps=900")
    assert "--lr-wsd-decay-iters 0 " in flags and "--lr-warmup-iters 499" in flags, flags
    assert "not available: a warm-up of 900 steps" in flags, flags
    # A decay that is over before the last step, which TorchTitan's is not; it has no rate that stays as it is.
    early = "lr_scheduler.decay_type=wsd", "lr_scheduler.decay_steps=400"
    flags, toml = exported("megatron", *early), exported("torchtitan", *early)
    assert "--lr-wsd-decay-iters 80 --lr-decay-iters 400 " in flags, flags
    assert "# not available: a decay that is over after step 400, not the last" in toml, toml
    assert 'decay_type = "linear"\ndecay_ratio = 0.2\n' in toml, toml
    toml = exported("torchtitan", "lr_scheduler.decay_type=constant", early[1])
    assert 'decay_type = "linear"\ndecay_ratio = 0.0\n' in toml and "a decay" not in toml, toml
    assert "not available: the optimizer lion" in exported("megatron", "optimizer.name=lion")
    toml = exported("torchtitan", "optimizer.lr=1e-3", "optimizer.eps=1e-9", "max_norm=0")
    assert ('[optimizer]\nname = "AdamW"\nlr = 0.001\nbeta1 = 0.9\nbeta2 = 0.95\neps = 1e-09\n'
            'weight_decay = 0.1\n') in toml, toml
    # A norm of 0 would make all gradients 0 there.
    assert "max_norm = 1000000000.0\n" in toml and "steps = 500\n" in toml, toml
    assert '[lr_scheduler]\nwarmup_steps = 0\ndecay_type = "cosine"\nmin_lr_factor = 0.1\n' in toml, toml
    for name in "sgd", "lion":
        toml = exported("torchtitan", f"optimizer.name={name}")
        assert f"not available: the optimizer {name}" in toml and "AdamW" not in toml, toml


if __name__ == "__main__":
    tool.main(globals())
