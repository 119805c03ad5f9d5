"""Models of which some layers alone have a sliding window, or linear attention: trained, resumed, used, simulated and
planned."""

import json
import os
import shutil

import tool

KEYS = ["--model.num_hidden_layers=4", "--model.qk_norm=true", "--model.sliding_window=4"]
TYPES = "--model.layer_types=2 sliding_attention, full_attention"
WINDOWS = [4, 4, 0, 4]


def config_of(directory):
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
        return json.load(file)


def windows_in(program, op):
    """The windows of that op's instructions, by layer."""
    found = {}
    for line in program.splitlines():
        if f"= {op} " in line:
            words = line.split()
            found[int(words[words.index("layer") + 1])] = int(words[words.index("window") + 1])
    return [found[layer] for layer in sorted(found)]


def test_training():
    train = ["train", "c.yaml", *KEYS, TYPES]
    tool.good(*train, "--run.directory=whole")
    tool.good(*train, "--training.steps=3", "--lr_scheduler.decay_type=constant", "--run.directory=halves")
    # A run goes on with the layers that it has, and only with those.
    config = tool.read("halves/config.yaml").decode()
    assert 'layer_types: "2 sliding_attention, full_attention"' in config or \
        "layer_types: 2 sliding_attention, full_attention" in config, config
    tool.refused(2, "layer_types", "train", "c.yaml", *KEYS, "--model.layer_types=full_attention, sliding_attention",
                 "--run.directory=halves")
    tool.good(*train, "--training.steps=6", "--lr_scheduler.decay_type=constant", "--run.directory=halves")
    tool.good(*train, "--lr_scheduler.decay_type=constant", "--run.directory=whole2")
    assert tool.weights("halves", 6)[0] == tool.weights("whole2", 6)[0]
    tool.good("train", "c.yaml", *KEYS, "--run.directory=all")
    assert tool.weights("whole", 6)[0] != tool.weights("all", 6)[0]
    said = config_of("whole/checkpoint/step-6")
    assert said["layer_types"] == ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
    assert (said["sliding_window"], said["use_sliding_window"], said["max_window_layers"]) == (4, True, 3), said
    assert "layer_types" not in config_of("all/checkpoint/step-6")


def test_use():
    tool.good("train", "c.yaml", *KEYS, TYPES, "--run.directory=whole")
    tool.write("d.yaml", tool.CONFIG[tool.CONFIG.index("training:"):])
    tool.good("generate", "whole", "--prompt=The quick", "--max_new_tokens=6")
    loss = tool.good_json("eval", "whole", "data.path=text/t", "--training.seq_len=16")["loss"]
    # The same weights with other windows are another model, which is said.
    for keys, says in (([], ""),
                       (["--model.layer_types=full_attention"], "sliding_window 0 (theirs: 4)"),
                       (["--model.max_window_layers=1"], "layer_types full_attention, 3 sliding_attention "
                                                         "(theirs: 2 sliding_attention, full_attention)")):
        code, _, err = tool.run("train", "d.yaml", "--model.init_from=whole", *keys, "--run.directory=other",
                                "--optimizer.lr=1e-30", "--training.steps=1")
        assert code == 0 and says in err and ("theirs" in err) == bool(says), err
        again = tool.good_json("eval", "other", "data.path=text/t", "--training.seq_len=16")["loss"]
        assert (again == loss) == (not says), (keys, again, loss)
        shutil.rmtree("other")


def test_programs():
    shape = ["c.yaml", "--training.seq_len=64", *KEYS, TYPES]
    for op in "attention", "attention_bwd":
        assert windows_in(tool.good("show", "program", *shape), op) == WINDOWS
    mesh = ["--ranks=2", "--parallelism.tensor_parallel_degree=2"]
    assert windows_in(tool.good("show", "program", *shape, *mesh), "attention") == WINDOWS
    tool.good("verify", *shape)
    tool.good("verify", *shape, "--ranks=4", "--parallelism.pipeline_parallel_degree=4")


def test_time():
    """Each layer takes the time of its window, both as simulated and as the planner estimates it."""
    words = ["qwen3-0.6b", "--model.vocab_size=4096", "--model.num_hidden_layers=16", "cluster=h100", "devices=1",
             "global_batch_size=1", "seq_len=32768", "mode=none"]
    seconds = {}
    for name, more in {"full": ["--model.layer_types=full_attention"],
                       "mixed": ["--model.sliding_window=512",
                                 "--model.layer_types=3 sliding_attention, full_attention"],
                       "sliding": ["--model.sliding_window=512"]}.items():
        plan = tool.good_json("plan", *words, *more)["plans"][0]
        seconds[name] = plan["step_seconds"]
        assert abs(plan["estimated_seconds"] / plan["step_seconds"] - 1) < 0.02, (name, plan)
    share = (seconds["mixed"] - seconds["sliding"]) / (seconds["full"] - seconds["sliding"])
    assert abs(share - 1 / 4) < 0.01, seconds
    other = tool.good("plan", *words, "--model.sliding_window=512", "--model.max_window_layers=12",
                      "save=planned.yaml", "export=megatron")
    assert "--window-size 511,0; --window-attn-skip-freq for layers 12 full_attention, 4 sliding_attention" in other
    saved = tool.read("planned.yaml").decode()
    assert "sliding_window: 512" in saved and "max_window_layers: 12" in saved, saved


def test_linear_attention():
    keys = ["--model.num_hidden_layers=3", "--model.layer_types=2 linear_attention, full_attention",
            "--model.linear_attention_heads=2"]
    train = ["train", "c.yaml", *keys, "--lr_scheduler.decay_type=constant"]
    tool.good(*train, "--run.directory=linear")
    tool.good(*train, "--training.steps=3", "--run.directory=parts")
    tool.good(*train, "--training.steps=6", "--run.directory=parts")
    assert tool.weights("linear", 6)[0] == tool.weights("parts", 6)[0]
    said = config_of("linear/checkpoint/step-6")
    assert (said["model_type"], said["num_heads"], said["attn"]["layers"]) == ("gla", 2, [2]), said
    answers = {tool.good("generate", "linear", "--prompt=The quick", "--max_new_tokens=6", "--temperature=0", *more)
               for more in ([], ["--cache=false"])}
    assert len(answers) == 1, answers
    tool.good("eval", "linear", "data.path=text/t", "--training.seq_len=16")
    # The state has gone on with one choice when the next is judged after the same question.
    judged = []
    for order in (0, 1), (1, 0):
        choices = [("fox", "dog")[k] for k in order]
        tool.write("q.jsonl", json.dumps({"query": "the", "choices": choices, "gold": 0}) + "\n")
        tool.good("eval", "linear", "--multiple_choice=q.jsonl", "--output=a.jsonl")
        said = json.loads(tool.read("a.jsonl"))["log_likelihoods"]
        judged.append([said[k] for k in order])
    assert judged[0] == judged[1], judged
    tool.refused(2, "but no layer has linear attention", "verify", "c.yaml", "--model.linear_attention_heads=2")
    tool.refused(2, "do not divide half of hidden_size", "verify", "c.yaml", *keys[:2],
                 "--model.linear_attention_heads=7")
    tool.refused(2, "llama.cpp has no GLAForCausalLM", "convert", "linear", "linear.gguf")


def test_refusals():
    for word, why in (("--model.layer_types=sliding", "expected sliding_attention, full_attention and"),
                      ("--model.layer_types=5 full_attention", "more than the model's 4 layers"),
                      ("--model.max_window_layers=9", "the model has 4 layers")):
        tool.refused(2, why, "train", "c.yaml", *KEYS, word, "--run.directory=refused")
    tool.refused(2, "no model.sliding_window", "train", "c.yaml", "--model.layer_types=sliding_attention")


tool.main(globals())
