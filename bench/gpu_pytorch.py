#!/usr/bin/env python3
"""Measures one GPU with PyTorch, 2.5 or newer; it needs nothing else of Trireme:

    gpu_pytorch.py products gemm.csv      matrix products, as `trireme bench calibrate from=gemm.csv` reads them
    gpu_pytorch.py steps steps.csv        training steps of the models below, as tools/fit_gpu compares them

Steps are forward, backward, clipping and AdamW, as TorchTitan makes them: each block compiled, fused attention, the
loss from all logits of a microbatch at once, fused AdamW; bf16 is autocast over f32 parameters. Each counts as the
median of its repetitions."""
import argparse
import csv
import statistics
import sys
import time

# family, layers, hidden size, heads, key-value heads, inner size, vocabulary, positions; 0: rotary ones
MODELS = {
    "gpt2-124m": ("gpt2", 12, 768, 12, 12, 3072, 50257, 1024),
    "gpt2-355m": ("gpt2", 24, 1024, 16, 16, 4096, 50257, 1024),
    "gpt2-774m": ("gpt2", 36, 1280, 20, 20, 5120, 50257, 1024),
    "gpt2-1558m": ("gpt2", 48, 1600, 25, 25, 6400, 50257, 1024),
    "gpt3-1.7b": ("gpt2", 24, 2304, 24, 24, 9216, 51200, 2048),
    "gpt3-7.5b": ("gpt2", 36, 4096, 32, 32, 16384, 51200, 2048),
    "gpt3-18b": ("gpt2", 40, 6144, 48, 48, 24576, 51200, 2048),
    "tinyllama-1.1b": ("llama", 22, 2048, 32, 4, 5632, 32000, 0),
    "llama2-7b": ("llama", 32, 4096, 32, 32, 11008, 32000, 0),
    "llama2-13b": ("llama", 40, 5120, 40, 40, 13824, 32000, 0),
    "llama2-70b": ("llama", 80, 8192, 64, 8, 28672, 32000, 0),
    "llama3-8b": ("llama", 32, 4096, 32, 8, 14336, 128256, 0),
    "llama3.2-1b": ("llama", 16, 2048, 32, 8, 8192, 128256, 0),
    "llama3.2-3b": ("llama", 28, 3072, 24, 8, 8192, 128256, 0),
}
TIED = {"llama3.2-1b", "llama3.2-3b"} | {name for name in MODELS if name.startswith("gpt")}
ROWS = [  # model, layers (0: all), tokens of a sequence, sequences, dtype, recomputation
    *(("gpt2-124m", 0, 1024, batch, "bf16", "none") for batch in (1, 4, 8, 16, 32, 64)),
    *(("gpt2-355m", 0, 1024, batch, "bf16", "none") for batch in (1, 4, 8, 16)),
    ("gpt2-774m", 0, 1024, 4, "bf16", "none"), ("gpt2-774m", 0, 1024, 8, "bf16", "none"),
    ("gpt2-774m", 0, 1024, 8, "bf16", "full"), ("gpt2-774m", 0, 1024, 32, "bf16", "full"),
    ("gpt2-1558m", 0, 1024, 4, "bf16", "none"), ("gpt2-1558m", 0, 1024, 8, "bf16", "none"),
    ("gpt2-1558m", 0, 1024, 16, "bf16", "full"),
    ("gpt3-1.7b", 0, 2048, 2, "bf16", "none"), ("gpt3-1.7b", 0, 2048, 4, "bf16", "none"),
    ("gpt3-1.7b", 0, 2048, 8, "bf16", "full"), ("gpt3-7.5b", 8, 2048, 4, "bf16", "none"),
    ("gpt3-7.5b", 8, 2048, 8, "bf16", "full"), ("gpt3-18b", 4, 2048, 4, "bf16", "none"),
    ("tinyllama-1.1b", 0, 2048, 1, "bf16", "none"), ("tinyllama-1.1b", 0, 2048, 4, "bf16", "none"),
    ("tinyllama-1.1b", 0, 2048, 8, "bf16", "none"), ("tinyllama-1.1b", 0, 2048, 16, "bf16", "full"),
    ("llama3.2-1b", 0, 2048, 1, "bf16", "none"), ("llama3.2-1b", 0, 2048, 4, "bf16", "none"),
    ("llama3.2-1b", 0, 8192, 1, "bf16", "none"), ("llama3.2-1b", 0, 8192, 2, "bf16", "full"),
    ("llama3.2-1b", 0, 32768, 1, "bf16", "full"), ("llama3.2-3b", 0, 4096, 2, "bf16", "full"),
    ("llama2-7b", 12, 4096, 2, "bf16", "none"), ("llama2-7b", 12, 4096, 4, "bf16", "full"),
    ("llama2-7b", 12, 16384, 1, "bf16", "full"), ("llama2-13b", 8, 4096, 2, "bf16", "none"),
    ("llama2-70b", 2, 4096, 2, "bf16", "none"), ("llama2-70b", 2, 4096, 4, "bf16", "full"),
    ("llama3-8b", 8, 2048, 4, "bf16", "none"), ("llama3-8b", 8, 8192, 1, "bf16", "none"),
    ("llama3-8b", 8, 8192, 2, "bf16", "full"),
    ("gpt2-124m", 0, 1024, 8, "f32", "none"), ("gpt2-355m", 0, 1024, 4, "f32", "none"),
    ("llama3.2-1b", 0, 2048, 1, "f32", "none"),
]
COLUMNS = ["model", "layers", "seq_len", "micro_batch_size", "dtype", "recompute", "seconds", "peak_bytes"]


def products(path, seconds):
    """Products of tokens, of square shapes, and small ones; operands take turns, so that caches do not hold them."""
    import torch
    torch.backends.cuda.matmul.allow_tf32 = False
    shapes = [(size, size, size) for size in (256, 512, 1024, 2048, 4096, 8192, 16384)]
    for tokens in (512, 2048, 8192, 32768):
        for width in (768, 1024, 1600, 2304, 4096, 8192):
            shapes += [(tokens, 3 * width, width), (tokens, 4 * width, width), (tokens, width, 4 * width)]
    with open(path, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["m", "n", "k", "dtype", "us"])
        begin = time.monotonic()
        for dtype, kind in (("bf16", torch.bfloat16), ("f32", torch.float32)):
            for m, n, k in shapes if dtype == "bf16" else shapes[:6] + shapes[7::5]:
                if time.monotonic() - begin > seconds or (dtype == "f32" and m * n * k > 2**39):
                    continue
                sets = max(1, min(8, int(256e6 / (2 * (m * k + k * n + m * n)))))
                operands = [(torch.randn(m, k, device="cuda", dtype=kind), torch.randn(k, n, device="cuda", dtype=kind),
                             torch.empty(m, n, device="cuda", dtype=kind)) for _ in range(sets)]
                for a, b, c in operands:
                    torch.matmul(a, b, out=c)
                repetitions = max(5, min(50, int(2e12 / (m * n * k))))
                events = [torch.cuda.Event(enable_timing=True) for _ in range(repetitions + 1)]
                torch.cuda.synchronize()
                torch.cuda._sleep(10**7)  # the host runs ahead, so that its time is not measured
                events[0].record()
                for i in range(repetitions):
                    a, b, c = operands[i % sets]
                    torch.matmul(a, b, out=c)
                    events[i + 1].record()
                torch.cuda.synchronize()
                took = statistics.median(1000 * first.elapsed_time(last) for first, last in zip(events, events[1:]))
                out.writerow([m, n, k, dtype, f"{took:.2f}"])
                file.flush()
                del operands


def make_model(name, layers, recompute, device):
    import torch
    from torch import nn
    from torch.nn import functional as F
    from torch.utils.checkpoint import checkpoint
    family, all_layers, width, heads, kv_heads, inner, vocabulary, positions = MODELS[name]
    size, gpt = width // heads, family == "gpt2"

    def norm():
        return nn.LayerNorm(width) if gpt else nn.RMSNorm(width, eps=1e-5)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = norm(), norm()
            self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * size, bias=gpt)
            self.out = nn.Linear(width, width, bias=gpt)
            self.up = nn.Linear(width, inner, bias=gpt)
            self.gate = None if gpt else nn.Linear(width, inner, bias=False)
            self.down = nn.Linear(inner, width, bias=gpt)

        def forward(self, x, cosine, sine):
            batch, tokens, _ = x.shape
            parts = self.qkv(self.norm1(x)).split([heads * size, kv_heads * size, kv_heads * size], dim=2)
            q, k, v = (part.view(batch, tokens, -1, size).transpose(1, 2) for part in parts)
            if not gpt:
                def rotate(t):
                    a, b = t.float().chunk(2, dim=-1)
                    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), dim=-1).to(t.dtype)
                q, k = rotate(q), rotate(k)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv_heads)
            x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, width))
            h = self.norm2(x)
            h = F.gelu(self.up(h), approximate="tanh") if gpt else F.silu(self.gate(h)) * self.up(h)
            return x + self.down(h)

    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.logits = norm(), nn.Linear(width, vocabulary, bias=False)

        def forward(self, x, targets):
            return F.cross_entropy(self.logits(self.norm(x)).view(-1, vocabulary).float(), targets.view(-1))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(vocabulary, width)
            self.positions = nn.Embedding(positions, width) if gpt else None
            self.blocks, self.head = nn.ModuleList(Block() for _ in range(layers or all_layers)), Head()
            if name in TIED:
                self.head.logits.weight = self.tokens.weight
            for parameter in self.parameters():
                if parameter.ndim > 1:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, inputs, targets):
            at = torch.arange(inputs.shape[1], device=inputs.device)
            x, cosine, sine = self.tokens(inputs), None, None
            if gpt:
                x = x + self.positions(at)
            else:
                angles = at[:, None] * 5e5 ** -(torch.arange(size // 2, device=at.device) / (size // 2))
                cosine, sine = angles.cos(), angles.sin()
            for block in self.blocks:
                x = checkpoint(block, x, cosine, sine, use_reentrant=False) if recompute == "full" \
                    else block(x, cosine, sine)
            return self.head(x, targets)

    with torch.device(device):
        model = Model()
    for block in model.blocks:
        block.compile()
    model.head.compile()
    return model


def step_seconds(row, device="cuda"):
    """Seconds of each of some steps, and the most bytes that were allocated."""
    import torch
    name, layers, seq_len, batch, dtype, recompute = row
    torch.manual_seed(1)
    model = make_model(name, layers, recompute, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    text = torch.randint(MODELS[name][6], (batch, seq_len + 1), device=device)
    inputs, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()

    def step():
        begin = time.perf_counter()
        with torch.autocast(device, dtype=torch.bfloat16, enabled=dtype == "bf16"):
            loss = model(inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if not loss.isfinite().item():
            raise RuntimeError("the loss is not finite")
        return time.perf_counter() - begin

    first = [step() for _ in range(3)]
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = [step() for _ in range(max(5, min(30, int(2.5 / first[-1]))))]
    return seconds, torch.cuda.max_memory_allocated() if device == "cuda" else 0


def steps(path, seconds):
    import torch
    torch.set_float32_matmul_precision("highest")
    begin = time.monotonic()
    with open(path, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(COLUMNS)
        for row in ROWS:
            if time.monotonic() - begin > seconds:
                print("no time for", *row, file=sys.stderr)
                continue
            try:
                took, peak = step_seconds(row)
            except RuntimeError as error:  # out of memory is one
                print(*row, str(error).split("\n", maxsplit=1)[0], file=sys.stderr)
                took = None
            torch.compiler.reset()
            torch.cuda.empty_cache()
            if took:
                out.writerow([*row, f"{statistics.median(took):.6f}", peak])
                file.flush()
                print(*row, f"{1000 * statistics.median(took):.2f} ms ({1000 * min(took):.2f} to "
                      f"{1000 * max(took):.2f}), {time.monotonic() - begin:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("products", "steps"))
    parser.add_argument("file")
    parser.add_argument("--seconds", type=float, default=3600, help="after which nothing more is measured")
    arguments = parser.parse_args()
    measure = {"products": products, "steps": steps}[arguments.what]
    measure(arguments.file, arguments.seconds)


if __name__ == "__main__":
    main()
