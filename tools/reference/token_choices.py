#!/usr/bin/env python3
"""Writes tests/generate/choices.jsonl: the chances of tokens that the logits processors of `transformers` make.

    python tools/reference/token_choices.py >tests/generate/choices.jsonl     # in an environment with `transformers`

Each line has settings, logits, the tokens of the text so far, and the probability of each token."""

import json
import random

import torch
from transformers.generation import logits_process as processors

random.seed(7)


def chances(logits, seen, settings):
    ids, scores = torch.tensor([seen], dtype=torch.int64), torch.tensor([logits], dtype=torch.float64)
    steps = []
    if "repetition_penalty" in settings:
        steps.append(processors.RepetitionPenaltyLogitsProcessor(settings["repetition_penalty"]))
    if "temperature" in settings:
        steps.append(processors.TemperatureLogitsWarper(settings["temperature"]))
    if "top_k" in settings:
        steps.append(processors.TopKLogitsWarper(settings["top_k"]))
    if "top_p" in settings:
        steps.append(processors.TopPLogitsWarper(settings["top_p"]))
    if "min_p" in settings:
        steps.append(processors.MinPLogitsWarper(settings["min_p"]))
    for step in steps:
        scores = step(ids, scores)
    return torch.softmax(scores[0], -1).tolist()


def main():
    values = {"temperature": [0.3, 0.8, 2.5], "top_k": [1, 4, 7, 30], "top_p": [0.1, 0.5, 0.9, 0.999],
              "min_p": [0.02, 0.2, 0.9], "repetition_penalty": [0.7, 1.3]}
    for number in range(60):
        count = random.choice([1, 5, 12, 20])
        # Halves, so that some tokens are equally likely; but not at the edge of a nucleus, where any may go.
        logits = [random.randint(-12, 12) / 2 if number % 3 == 0 else random.gauss(0, 3) for _ in range(count)]
        names = [name for name in values if random.random() < 0.5 and not (name == "top_p" and number % 3 == 0)]
        settings = {name: random.choice(values[name]) for name in names}
        seen = [random.randrange(count) for _ in range(random.randint(1, 6))]
        print(json.dumps({**settings, "logits": logits, "seen": seen, "chances": chances(logits, seen, settings)}))


main()
