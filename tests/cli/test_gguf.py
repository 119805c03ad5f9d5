"""GGUF files against others' readers of them: the Python package gguf (llama.cpp's own), for names and numbers in each
dtype, and `transformers`, whose model of the file must answer as that of the directory does, and cut text alike.
Skipped where python3 lacks one of them."""

import importlib.util
import os
import shutil
import sys

import tool

if not all(map(importlib.util.find_spec, ("torch", "transformers", "gguf"))):
    print("skipped: python3 has no torch, transformers or gguf")
    sys.exit(77)

import gguf
import safetensors.torch
import torch
import transformers

SIZES = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64, "vocab_size": 300, "tie_word_embeddings": False,
         "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
# What `transformers` does not read of a file is as it has it by itself.
GEMMA = {"head_dim": 256, "query_pre_attn_scalar": 256, "tie_word_embeddings": True, "sliding_window": 16}
FAMILIES = {"llama": {"rope_theta": 500.0}, "mistral": {"sliding_window": None}, "qwen2": {},
            "qwen3": {"head_dim": 128}, "phi3": {}, "gemma2": GEMMA, "gemma3_text": {**GEMMA, "num_hidden_layers": 6},
            "stablelm": {}, "gpt2": {"max_position_embeddings": 1024}}
# It reads no files of these.
OTHERS = {"gemma": {**GEMMA, "head_dim": 16}, "olmo2": {}, "gpt_neox": {}, "smollm3": {"num_hidden_layers": 4}}


def make(family):
    """Writes a random model to the directory `family`."""
    config = transformers.AutoConfig.for_model(family, **{**SIZES, **{**FAMILIES, **OTHERS}[family]})
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for value in model.parameters():
        value.data += 0.1 * torch.randn_like(value)
    model.save_pretrained(family)
    shutil.copy("tokens/tokenizer.json", family)
    shutil.copy("tokens/tokenizer_config.json", family)


def logits(directory, tokens, **options):
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32,
                                                              attn_implementation="eager", **options)
    with torch.no_grad():
        return model(tokens).logits


def check_numbers(family, dtype):
    """Names, keys and numbers as the package has them."""
    kind = gguf.GGMLQuantizationType[dtype.upper()]
    tool.good("convert", family, f"{family}.{dtype}.gguf", f"--dtype={dtype}")
    reader = gguf.GGUFReader(f"{family}.{dtype}.gguf")
    architecture = reader.fields["general.architecture"].contents()
    number = next(number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(number, 4)
    theirs = {}
    for name, value in safetensors.torch.load_file(f"{family}/model.safetensors").items():
        value = value.float().numpy() + (architecture == "gemma" and "norm" in name)
        # The pairs that turn lie side by side.
        if architecture in ("llama", "smollm3") and ("q_proj" in name or "k_proj" in name):
            heads = SIZES["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
            value = value.reshape(heads, 2, -1, value.shape[1]).swapaxes(1, 2).reshape(value.shape)
        # All queries come first.
        if "query_key_value" in name:
            parts = value.reshape(SIZES["num_attention_heads"], 3, -1, *value.shape[1:])
            value = parts.swapaxes(0, 1).reshape(value.shape)
        if family == "gpt2" and name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
            value = value.T
        theirs[names.get_name(name, (".weight", ".bias"))] = value
    assert {t.name for t in reader.tensors} == theirs.keys(), (family, theirs.keys())
    said = reader.fields["general.file_type"].contents()
    assert gguf.LlamaFileType(said).name.removeprefix("MOSTLY_").removeprefix("ALL_") == dtype.upper(), (dtype, said)
    for tensor in reader.tensors:
        value = theirs[tensor.name]
        whole = len(value.shape) < 2 or tensor.name == "position_embd.weight"
        expected = gguf.GGMLQuantizationType.F32 if whole else kind
        assert tensor.tensor_type == expected and list(tensor.shape) == list(value.shape)[::-1], (family, tensor)
        assert tensor.data.tobytes() == gguf.quants.quantize(value, expected).tobytes(), (family, dtype, tensor.name)


tool.enter_scratch()
tool.write("text.txt", "the quick brown fox jumps over the lazy dog, na\u00efve as it is. " * 40)
tool.good("tokenizer", "train", "text.txt", "--output=tokens", "--vocab_size=300")
for family in FAMILIES:
    make(family)
    tool.good("convert", family, f"{family}.gguf")
    tokens = torch.randint(0, 300, (2, 40))
    worst = (logits(family, tokens) - logits(".", tokens, gguf_file=f"{family}.gguf")).abs().max()
    assert worst < 1e-5, (family, worst)
    print(f"{family}: logits within {worst:.2g}")
for family in OTHERS:
    make(family)
    check_numbers(family, "q8_0")
for family in "llama", "gpt2":
    for dtype in "f32", "f16", "bf16", "q8_0":
        check_numbers(family, dtype)
# The tokenizer of the file: one with merges, and bytes.
tool.good("prepare", "text.txt", "--data.path=text/t")
tool.write("c.yaml", tool.CONFIG)
tool.good("train", "c.yaml", "--training.steps=1", "--run.directory=bytes")
tool.good("convert", "bytes", "bytes.gguf")
for directory, name in ("llama", "llama.gguf"), ("bytes/checkpoint/step-1", "bytes.gguf"):
    ours = transformers.AutoTokenizer.from_pretrained(directory)
    theirs = transformers.AutoTokenizer.from_pretrained(".", gguf_file=name)
    for text in "the quick na\u00efve fox 12345  x", "\n\n the dog's<|eos|> a", "\u65e5\u672c \u00e9", "":
        assert ours(text)["input_ids"] == theirs(text)["input_ids"], (name, text)
