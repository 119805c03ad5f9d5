"""Every command once, as a user would call it: what it prints, and the documented keys of its JSON."""

import json
import os

import tool


def test_prepare():
    tool.write("a.jsonl", '{"text": "one"}\n{"text": "zwei \\u00fc"}\n')
    os.makedirs("more/deep")
    tool.write("more/deep/b.txt", "drei")
    result = tool.good_json("prepare", "a.jsonl", "more", "--data.path=out/p")
    assert result["files"] == 2 and result["documents"] == 3 and result["vocab_size"] == 256, result
    assert result["tokens"] == result["text_bytes"] == 3 + 7 + 4, result
    assert os.path.getsize("out/p.bin") == 2 * 14
    plain = tool.good("prepare", "a.jsonl", "more", "--data.path=out/q")
    assert plain.count("\n") == 1 and "14 tokens of 3 documents" in plain, plain
    assert tool.read("out/p.bin") == tool.read("out/q.bin") and tool.read("out/p.idx") == tool.read("out/q.idx")


def test_train():
    result = tool.good_json("train", "c.yaml")
    assert set(result) == {"step", "loss", "val_loss", "checkpoint"} and result["step"] == 6, result
    lines = tool.metrics("run")
    keys = ["step", "loss", "grad_norm", "lr", "tokens", "tokens_per_second", "mfu", "peak_bytes"]
    assert [line["step"] for line in lines] == list(range(1, 7))
    for line in lines:
        evaluated = line["step"] % 3 == 0
        assert set(line) == set(keys + ["val_loss"] if evaluated else keys), line
        assert line["tokens"] == line["step"] * 64 and line["peak_bytes"] > 0 and line["tokens_per_second"] > 0
    assert lines[-1]["loss"] < lines[0]["loss"] and lines[-1]["loss"] == result["loss"], lines
    names = set(os.listdir("run/checkpoint/step-6"))
    assert {"config.json", "model.safetensors", "tokenizer.json", "state.safetensors"} <= names, names
    config = json.loads(tool.read("run/checkpoint/step-6/config.json"))
    assert config["vocab_size"] == 256 and config["hidden_size"] == 16 and config["model_type"] == "llama", config
    # Into a pipe: plain lines, no control characters, the validation loss last.
    code, out, err = tool.run("train", "c.yaml", "--run.directory=plain")
    assert code == 0 and "\r" not in out + err and "\033" not in out + err
    last = out.splitlines()[-1]
    assert last.startswith("validation loss ") and abs(float(last.split()[-1]) - result["val_loss"]) < 1e-4, out
    # The resolved configuration makes the same run.
    tool.good("train", "plain/config.yaml", "--run.directory=again")
    assert tool.weights("plain", 6)[0] == tool.weights("again", 6)[0]


def test_eval_and_generate():
    tool.good("train", "c.yaml")
    result = tool.good_json("eval", "run", "data.path=text/t")
    assert set(result) == {"loss", "perplexity", "bits_per_byte", "tokens"}, result
    assert abs(result["bits_per_byte"] - result["loss"] / 0.6931471805599453) < 1e-9, result
    assert result == tool.good_json("eval", "run/checkpoint/step-6", "--data.path", "text/t")
    # Four kinds of choosing; the seed repeats.
    for choice in ["--temperature=0"], ["--seed=3"], ["--seed=3", "--top_k=5"], ["--seed=3", "--top_p=0.5"]:
        arguments = ["generate", "run", "--prompt", "The qu", "--max_new_tokens=9", *choice]
        first, second = tool.good_json(*arguments), tool.good_json(*arguments)
        assert set(first) == {"prompt", "text", "tokens", "tokens_per_second"}, first
        assert first["prompt"] == "The qu" and len(first["tokens"]) == 9, first
        assert first["tokens"] == second["tokens"] and first["text"] == second["text"]
    plain = tool.good("generate", "run", "--prompt=The qu", "--max_new_tokens=9", "--temperature=0")
    assert plain.startswith("The qu"), plain
    # Unless told how much, it writes as far as the model has positions: 16 here.
    assert len(tool.good_json("generate", "run", "--prompt=The qu")["tokens"]) == 10
    tool.refused(2, "16 positions", "generate", "run", "--prompt=The qu", "--max_new_tokens=11")


def test_show():
    program = tool.good("show", "program", "c.yaml")
    assert program.startswith("program train ") and "matmul" in program
    memory = tool.good_json("show", "memory", "c.yaml")
    assert memory["predicted_bytes"] == memory["state_bytes"] + memory["step_bytes"]
    assert max(memory["live_bytes"]) == memory["peak_live_bytes"] <= memory["step_bytes"]
    sizes = [tensor["bytes"] for tensor in memory["at_peak"]]
    assert sizes and sizes == sorted(sizes, reverse=True) and all(t["name"] for t in memory["at_peak"])
    assert "live at the peak" in tool.good("show", "memory", "c.yaml")
    trace = tool.strict_json(tool.good("show", "timeline", "c.yaml"))
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert events and all(e["dur"] >= 0 and e["ts"] >= 0 and e["name"] for e in events)
    tool.good("train", "c.yaml", "--profiling.trace_step=2")
    assert tool.strict_json(tool.read("run/trace/step-2.json"))["traceEvents"]


def test_verify():
    programs = tool.good_json("verify", "c.yaml")
    assert [p["program"] for p in programs] == ["train", "evaluate"] and all(p["sound"] for p in programs), programs
    assert "sound" in tool.good("verify", "c.yaml", "--activation_checkpoint.mode=full")


def test_bench():
    step = tool.good_json("bench", "step", "c.yaml")
    assert {"tokens_per_second", "mfu", "peak_flops", "predicted_bytes", "resident_bytes"} <= set(step), step
    assert step["tokens_per_second"] > 0 and step["peak_flops"] > 0 and step["resident_bytes"] > 0
    peak = tool.good_json("bench", "peak")
    assert peak["f32_flops"] > 0 and peak["bf16_flops"] > 0 and peak["threads"] > 0, peak


def test_help():
    overview = tool.good("help")
    for command in "prepare", "train", "eval", "generate", "show", "verify", "bench":
        assert f"\n  {command:9} " in overview
        assert f"trireme {command} " in tool.good("help", command) == tool.good(command, "--help")
    keys = {key["key"] for key in tool.good_json("help", "config")}
    assert {"data.path", "training.steps", "optimizer.lr", "model.preset"} <= keys
    assert all(key in tool.good("help", "config") for key in keys)
    assert "gpt2-124m" in tool.good("help", "models") and "optimizer.lr" in tool.good("help", "optimizer.lr")
    assert tool.good("--version").startswith("trireme ")


tool.main(globals())
