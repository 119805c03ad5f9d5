#!/usr/bin/env python3
"""Loss, gradients and training runs of a Hugging Face directory in plain PyTorch: what Trireme is compared with.

  run.py grads --model DIR --batch FILE --out FILE.safetensors [--dtype f32|f64|bf16] [--logits] [--by transformers]
      Gradients of the mean loss under Hugging Face's names (F32, or F64), the loss as the F64 tensor "loss", and
      with --logits the logits as "logits". The batch has the integer arrays `tokens` and `targets` (batch, time),
      a negative target being masked, and perhaps `starts` (the first position that each token may attend to; 0 when
      absent) and `positions` (time - starts when absent), as .npz or .safetensors.
      With --by transformers they are what `transformers` computes; documents must then not be packed.
  run.py train --model DIR --batch FILE --out FILE.json [--dtype ...] [--save FILE.safetensors] [section.key=value ...]
      One optimizer step per entry of the arrays' first dimension (steps, batch, time): `loss`, `grad_norm` and `lr` of
      each as JSON, and with --save the parameters at the end. Keys and defaults are those of `trireme help config`.
  run.py -
      Such commands from standard input, one to a line; each has done when it has printed its line.

It needs PyTorch 1.13 or later, for instance Debian's python3-torch.
"""
import argparse
import json
import shlex
import sys

import torch

from model import DTYPES, Model
from tensors import read_batch, read_model, write_safetensors
from train import read_settings, train


def run_grads(model, arguments):
    loss, logits = model.loss(read_batch(arguments.batch))
    loss.backward()
    tensors = {"loss": loss.detach().double().reshape(1)}
    if arguments.logits:
        tensors["logits"] = logits.detach()
    tensors.update({name: p.grad for name, p in model.parameters.items()})
    write_safetensors(arguments.out, tensors)
    print(f"loss {float(loss.detach()):.9f}")


def run_train(model, arguments):
    log = train(model, read_batch(arguments.batch), read_settings(arguments.settings))
    with open(arguments.out, "w", encoding="utf-8") as file:
        json.dump(log, file)
    if arguments.save:
        write_safetensors(arguments.save, dict(model.parameters.items()))
    print(f"loss {log['loss'][0]:.6f} to {log['loss'][-1]:.6f} in {len(log['loss'])} steps")


def parser_of_commands():
    parser = argparse.ArgumentParser(description="the reference that Trireme is compared with")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("grads", "train"):
        command = commands.add_parser(name)
        command.add_argument("--model", required=True)
        command.add_argument("--batch", required=True)
        command.add_argument("--out", required=True)
        command.add_argument("--dtype", choices=sorted(DTYPES), default="f32")
    commands.choices["grads"].add_argument("--logits", action="store_true")
    commands.choices["grads"].add_argument("--by", choices=["transformers"])
    commands.choices["train"].add_argument("--save")
    commands.choices["train"].add_argument("settings", nargs="*")
    return parser


def run(arguments):
    torch.manual_seed(0)
    if arguments.command == "grads" and arguments.by:
        from in_transformers import TransformersModel
        model = TransformersModel(arguments.model, arguments.dtype)
    else:
        model = Model(*read_model(arguments.model), arguments.dtype)
    (run_grads if arguments.command == "grads" else run_train)(model, arguments)
    sys.stdout.flush()


def main():
    parser = parser_of_commands()
    for words in map(shlex.split, sys.stdin) if sys.argv[1:] == ["-"] else [sys.argv[1:]]:
        run(parser.parse_args(words))


if __name__ == "__main__":
    main()
