#!/usr/bin/env python3
"""Times training steps (forward, backward, AdamW) of GPT-2 124M in plain PyTorch, any version from 1.13 on.

    gpt2_pytorch.py [--dtype=f32|bf16] [--batch=4] [--seq_len=1024] [--attention=plain|sdpa] [--compile] [--seconds=20]

bf16 is autocast over f32 parameters. After one step that does not count, steps run until the seconds are over, two at
least. Prints one JSON object. bench/run calls this with the settings that it compares; the environment chooses BLAS
and threads."""
import argparse
import contextlib
import json
import math
import os
import resource
import time

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, POSITIONS, LAYERS, HEADS, WIDTH = 50257, 1024, 12, 12, 768


class Attention(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.kind = kind
        mask = torch.full((POSITIONS, POSITIONS), -math.inf).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x):
        batch, seq_len, _ = x.shape
        q, k, v = (part.view(batch, seq_len, HEADS, -1).transpose(1, 2) for part in self.qkv(x).split(WIDTH, dim=2))
        if self.kind == "sdpa":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(2, 3)
            scores = scores + self.mask[:seq_len, :seq_len].to(scores.dtype)
            y = scores.softmax(dim=-1).to(v.dtype) @ v
        return self.out(y.transpose(1, 2).reshape(batch, seq_len, WIDTH))


class Block(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention(kind)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.blocks = nn.ModuleList(Block(kind) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, inputs, targets):
        x = self.tokens(inputs) + self.positions(torch.arange(inputs.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


def make_optimizer(model):
    for fast in ({"fused": True}, {"foreach": True}, {}):  # the fastest that the version has for CPUs
        with contextlib.suppress(TypeError, RuntimeError, ValueError):
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, **fast)
            return optimizer, next(iter(fast), "plain")
    raise SystemExit("this PyTorch has no AdamW that works")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq_len", type=int, default=1024)
    parser.add_argument("--attention", choices=("plain", "sdpa"), default="plain")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--seconds", type=float, default=20)
    a = parser.parse_args()
    if a.attention == "sdpa" and not hasattr(F, "scaled_dot_product_attention"):
        raise SystemExit("this PyTorch has no scaled_dot_product_attention")
    if a.compile and not hasattr(torch, "compile"):
        raise SystemExit("this PyTorch has no torch.compile")

    torch.manual_seed(1)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0))))
    model = GPT2(a.attention)
    optimizer, kind = make_optimizer(model)
    forward = torch.compile(model) if a.compile else model
    text = torch.randint(VOCABULARY, (a.batch, a.seq_len + 1))
    inputs, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()

    def step():
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.dtype == "bf16"):
            loss = forward(inputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if not math.isfinite(loss.item()):
            raise SystemExit(f"the loss is {loss.item()}")
        return time.perf_counter() - begin

    first, steps = step(), []
    while len(steps) < 2 or sum(steps) < a.seconds:
        steps.append(step())
    print(json.dumps({
        "version": torch.__version__, "mkl": torch.backends.mkl.is_available(), "threads": torch.get_num_threads(),
        "optimizer": kind, "first_seconds": first, "step_seconds": steps, "tokens": a.batch * a.seq_len,
        "resident_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))


if __name__ == "__main__":
    main()
