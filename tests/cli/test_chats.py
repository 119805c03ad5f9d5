"""Chats: of a run that is trained on them only answers are predicted, whatever the mesh; what templates refuse is told
with file and line."""

import json
import math
import random

import tool

COUNT, ANSWER = 150, "yes!"
CONFIG = """\
model: {family: llama, num_hidden_layers: 1, hidden_size: 16, num_attention_heads: 2}
training: {steps: 60, seq_len: 64, global_batch_size: 8, threads: 1}
optimizer: {lr: 2e-2}
data: {path: text/answers}
run: {directory: run}
"""
# What is marked is predicted: of %s messages; an answer ends with a line.
TEMPLATE = "{%% for m in messages %%}{%% if m.role in %s %%}{%% generation %%}{{ m.content + '\\n' }}" \
           "{%% endgeneration %%}{%% else %%}{{ m.content + '\\n' }}{%% endif %%}{%% endfor %%}"


def chat(question):
    return json.dumps({"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": ANSWER}]})


tool.enter_scratch()
chance = random.Random(1)
tool.write("chats.jsonl", "".join(chat("".join(chance.choices("abcdefghijklmnop", k=16))) + "\n"
                                  for _ in range(COUNT)))
tool.write("chats.yaml", CONFIG)
for name, roles in ("answers", ["assistant"]), ("questions", ["user"]), ("all", ["assistant", "user"]):
    tool.write(f"{name}.jinja", TEMPLATE % roles)
    made = tool.good_json("prepare", "chats.jsonl", f"--data.path=text/{name}", f"--data.chat_template={name}.jinja")
    assert made["chats"] == COUNT and made["answer_tokens"] == COUNT * {"answers": 5, "questions": 17, "all": 22}[name]

# Questions cannot be learnt, answers can.
tool.good("train", "chats.yaml")
losses = {name: tool.good_json("eval", "run", f"data.path=text/{name}") for name in ("answers", "questions", "all")}
sums = {name: result["loss"] * result["tokens"] for name, result in losses.items()}
assert losses["answers"]["tokens"] == 5 * COUNT and losses["questions"]["tokens"] == 16 * COUNT, losses
assert losses["answers"]["loss"] < 0.3 and losses["questions"]["loss"] > math.log(16), losses
assert math.isclose(sums["answers"] + sums["questions"], sums["all"], rel_tol=1e-6), losses

# On other meshes it is the same.
losses = []
for number, mesh in enumerate(([], ["--ranks=2"], ["--ranks=2", "--context_parallel_degree=2"],
                               ["--ranks=2", "--tensor_parallel_degree=2"])):
    tool.good("train", "chats.yaml", "--training.steps=3", *mesh, f"--run.directory=mesh{number}")
    losses.append([line["loss"] for line in tool.metrics(f"mesh{number}") if "loss" in line])
    same = [math.isclose(one, other, rel_tol=1e-5) for one, other in zip(losses[0], losses[-1])]
    assert losses[0] and all(same) and len(losses[-1]) == len(losses[0]), (mesh, losses)

tool.write("bad.jsonl", chat("q") + "\n" + json.dumps({"messages": [{"role": "tool", "content": ""}]}) + "\n")
tool.refused(2, 'bad.jsonl line 2: the chat template gemma line 1: the chat is refused: "the role tool is not part of ',
             "prepare", "bad.jsonl", "--data.path=text/bad", "--data.chat_template=gemma")
tool.refused(2, "there is no chat template \"lama3\" .did you mean llama3", "prepare", "bad.jsonl",
             "--data.path=text/bad", "--data.chat_template=lama3")
