"""The scores of `trireme eval` on questions and texts are those of EleutherAI's lm-evaluation-harness, which opens the
model through `transformers`. Skipped where python3 has no lm_eval."""

import importlib.util
import json
import os
import random
import subprocess
import sys

import tool

WORDS = "the a quick brown fox jumps over lazy dog and runs home über naïve 東京 river".split()

# Writes what the harness says of questions (log-likelihoods, scores) and texts to a file, as JSON.
HARNESS = """
import json, os, sys
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_DATASETS_CACHE="cache", TOKENIZERS_PARALLELISM="0")
import torch
torch.set_num_threads(1)
import lm_eval
from lm_eval.tasks import TaskManager
out = lm_eval.simple_evaluate(
    model="hf", model_args={"pretrained": sys.argv[1], "dtype": "float32"}, tasks=["questions", "texts"], device="cpu",
    batch_size=4, task_manager=TaskManager(include_path="tasks", include_defaults=False), log_samples=True,
    bootstrap_iters=2)
lls = [[float(choice[0][0]) for choice in s["resps"]]
       for s in sorted(out["samples"]["questions"], key=lambda s: s["doc_id"])]
greedy = [[bool(choice[0][1]) for choice in s["resps"]]
          for s in sorted(out["samples"]["questions"], key=lambda s: s["doc_id"])]
json.dump({"results": out["results"], "lls": lls, "greedy": greedy}, open("said.json", "w"), default=str)
"""

TASK = """task: questions
dataset_path: json
dataset_kwargs: {data_files: {test: questions.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: query
doc_to_choice: choices
doc_to_target: gold
metric_list: [{metric: acc}, {metric: acc_norm}, {metric: acc_bytes}]
"""
ROLLING = """task: texts
dataset_path: json
dataset_kwargs: {data_files: {test: texts.jsonl}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}, {metric: bits_per_byte}]
"""


def sentence(rng, count):
    return " ".join(rng.choice(WORDS) for _ in range(count))


def write_material():
    rng = random.Random(3)
    questions = []
    for number in range(24):
        # Blanks at the end, long ones that are cut from the left, choices that share their beginning, and none before.
        query = sentence(rng, rng.choice([1, 4, 12, 60])) + rng.choice(["", "", " ", " \n", "\u3000"])
        begin = rng.choice(["", "the quick "])
        choices = [begin + sentence(rng, rng.randint(1, 6)) for _ in range(rng.randint(2, 5))]
        questions.append({"query": "" if number == 5 else query, "choices": choices,
                          "gold": rng.randrange(len(choices))})
    tool.write("questions.jsonl", "".join(json.dumps(q) + "\n" for q in questions))
    texts = [sentence(rng, 200), " a  quick\n\nfox ", "dog"]
    tool.write("texts.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in texts))
    os.makedirs("tasks")
    tool.write("tasks/questions.yaml", TASK)
    tool.write("tasks/texts.yaml", ROLLING)
    tool.write("train.txt", "\n".join(sentence(rng, 12) for _ in range(400)))
    return questions


def compare(model):
    subprocess.run([sys.executable, "-c", HARNESS, model], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.PIPE)
    said = json.loads(tool.read("said.json"))
    made = tool.good_json("eval", model, "--multiple_choice=questions.jsonl", "--output=answers.jsonl")
    answers = [json.loads(line) for line in tool.read("answers.jsonl").decode().splitlines()]
    worst = max(abs(a - b) for answer, lls in zip(answers, said["lls"], strict=True)
                for a, b in zip(answer["log_likelihoods"], lls, strict=True))
    assert worst < 2e-4, (model, worst)
    assert [a["greedy"] for a in answers] == said["greedy"], model
    scores = said["results"]["questions"]
    for name in "acc", "acc_norm", "acc_bytes":
        for ours, theirs in (name, f"{name},none"), (f"{name}_stderr", f"{name}_stderr,none"):
            assert abs(made[ours] - float(scores[theirs])) < 1e-9, (model, ours, made, scores)
    made = tool.good_json("eval", model, "--text=texts.jsonl")
    scores = said["results"]["texts"]
    for name in "word_perplexity", "byte_perplexity", "bits_per_byte":
        assert abs(made[name] / float(scores[f"{name},none"]) - 1) < 1e-5, (model, name, made, scores)
    print(f"{model}: log-likelihoods within {worst:.2g}")


def test_scores():
    write_material()
    tool.good("tokenizer", "train", "train.txt", "--output=tokens", "--vocab_size=350")
    tool.good("prepare", "train.txt", "--data.path=text/merged", "--data.tokenizer=tokens")
    tool.good("prepare", "train.txt", "--data.path=text/bytes")
    for name, family, text in ("llama", "llama", "merged"), ("gpt2", "gpt2", "merged"), ("bytes", "llama", "bytes"):
        tool.good("train", "c.yaml", f"--data.path=text/{text}", f"--model.family={family}", "--training.steps=60",
                  "--model.max_position_embeddings=64", f"--run.directory={name}")
        compare(f"{name}/checkpoint/step-60")


if not importlib.util.find_spec("lm_eval"):
    print("skipped: python3 has no lm_eval")
    sys.exit(77)
tool.main(globals())
