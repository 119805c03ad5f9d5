#!/usr/bin/env python3
"""Times the generation of one text in bf16 against what the memory allows, where each token reads all weights once.

    generate.py [--binary=build/trireme] [--tokens=64] [--rounds=5] [--llama-bench=PROGRAM --gguf=FILE] [--keep=DIR]

The model has random weights in the shape of Qwen 2.5 0.5B (0.99 GB). Rounds of this program, of the memory's bandwidth
(`trireme bench peak`) and of llama.cpp's `llama-bench` on a file made of the same model (`--keep=DIR` leaves it) take
turns; a line gives the median and the best of each."""
import argparse
import array
import json
import os
import random
import shutil
import statistics
import struct
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WIDTH, LAYERS, HEADS, KV_HEADS, INNER, VOCABULARY = 896, 24, 14, 2, 4864, 151936
CONFIG = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": WIDTH,
          "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
          "intermediate_size": INNER, "vocab_size": VOCABULARY, "max_position_embeddings": 2048, "hidden_act": "silu",
          "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": True, "torch_dtype": "bfloat16"}


def shapes():
    kv = KV_HEADS * WIDTH // HEADS
    yield "model.embed_tokens.weight", [VOCABULARY, WIDTH]
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", [WIDTH]
        yield at + "post_attention_layernorm.weight", [WIDTH]
        for name, rows in ("q", WIDTH), ("k", kv), ("v", kv):
            yield f"{at}self_attn.{name}_proj.weight", [rows, WIDTH]
            yield f"{at}self_attn.{name}_proj.bias", [rows]
        yield at + "self_attn.o_proj.weight", [WIDTH, WIDTH]
        yield at + "mlp.gate_proj.weight", [INNER, WIDTH]
        yield at + "mlp.up_proj.weight", [INNER, WIDTH]
        yield at + "mlp.down_proj.weight", [WIDTH, INNER]
    yield "model.norm.weight", [WIDTH]


def write_model(folder, binary):
    """Returns the bytes of the weights."""
    rng = random.Random(1)
    noise = array.array("H", (struct.unpack("<I", struct.pack("<f", rng.gauss(0, 0.02)))[0] >> 16
                              for _ in range(1 << 18))).tobytes()
    header, at = {}, 0
    for name, shape in shapes():
        size = 2 * (shape[0] * shape[1] if len(shape) > 1 else shape[0])
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, of in header.items():
            left = of["data_offsets"][1] - of["data_offsets"][0]
            block = b"\x80\x3f" * (len(noise) // 2) if "norm" in name else noise
            while left:
                file.write(block[:left])
                left -= min(left, len(block))
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(CONFIG, file)
    shutil.copy(os.path.join(ROOT, "README.md"), os.path.join(folder, "text.txt"))
    subprocess.run([binary, "tokenizer", "train", os.path.join(folder, "text.txt"), f"--output={folder}/t",
                    "--vocab_size=512"], check=True, stdout=subprocess.DEVNULL)
    for name in os.listdir(os.path.join(folder, "t")):
        shutil.copy(os.path.join(folder, "t", name), folder)
    return at


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.path.join(ROOT, "build", "trireme"))
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--llama-bench", help="llama.cpp's program")
    parser.add_argument("--gguf", help="the model for it")
    parser.add_argument("--keep", help="where the model goes; by default it is removed")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.keep or scratch
        os.makedirs(folder, exist_ok=True)
        size = write_model(folder, given.binary)
        generate = [given.binary, "generate", folder, "--prompt=The", f"--max_new_tokens={given.tokens}",
                    "--temperature=0", "--training.dtype=bf16", "--json"]
        measured = {"trireme": [], "memory": [], "llama.cpp": []}
        for _ in range(given.rounds):
            out = subprocess.run([given.binary, "bench", "peak", "--json"], check=True, stdout=subprocess.PIPE).stdout
            measured["memory"].append(json.loads(out)["memory_bandwidth"] / size)
            out = subprocess.run(generate, check=True, stdout=subprocess.PIPE).stdout
            measured["trireme"].append(json.loads(out)["tokens_per_second"])
            if given.llama_bench:
                out = subprocess.run([given.llama_bench, "-m", given.gguf, "-p", "0", "-n", str(given.tokens),
                                      "-r", "1", "-o", "json"], check=True, stdout=subprocess.PIPE).stdout
                measured["llama.cpp"].append(json.loads(out)[0]["avg_ts"])
    memory = statistics.median(measured["memory"])
    print(f"{size / 1e9:.3f} GB of weights; tokens per second, median (best)")
    for name, values in measured.items():
        if values:
            print(f"{name:10} {statistics.median(values):8.2f} ({max(values):.2f})  "
                  f"{statistics.median(values) / memory:.1%} of the memory's")


main()
