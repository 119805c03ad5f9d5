"""Models in other numbers, other files, and the formats of other programs."""

import json
import math
import os
import shutil
import struct

import tool

# Of no family that is known: zeros of both signs, ties of bf16 and f16, subnormals of f16, a scalar, integers.
VALUES = [0.0, -0.0, 1.0, -1.00390625, 1.01171875, 1.00048828125, 1.00146484375, 65519.0, -6.1e-05, 2.98e-08, 3e-08,
          5.96e-08, 1e-30, 3.14159274, -1e-7, 0.1]
NAMES = {"F32": "f", "F16": "e", "F64": "d", "I64": "q", "BF16": "H"}


def write_unknown(path):
    os.mkdir(path)
    packed = struct.pack(f"<{len(VALUES)}f", *VALUES)
    tool.write_tensors(f"{path}/model.safetensors", {
        "a.weight": ("F32", [4, 4], packed), "b": ("F64", [2], struct.pack("<2d", 1 / 3, 1e-300)),
        "c": ("I64", [1], struct.pack("<q", -7)), "d": ("F32", [], struct.pack("<f", 2.5))}, {"format": "pt", "x": "y"})
    tool.write(f"{path}/config.json", '{"model_type": "unknown", "torch_dtype": "float32", "mine": {"k": [1, 2.5]}}')
    tool.write(f"{path}/notes.md", "notes")
    tool.write(f"{path}/tokenizer.json", "{}")
    os.mkdir(f"{path}/folder")


def read_all(directory):
    """{name: (shape, bytes)} of all files of a directory."""
    found = {}
    for name in sorted(os.listdir(directory)):
        if name.endswith(".safetensors"):
            found.update(tool.tensors(tool.read(f"{directory}/{name}")))
    return found


def to_bf16(value):
    """A float, rounded to nearest, ties to even, as the bits of bf16."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16


def test_dtypes():
    write_unknown("unknown")
    source = read_all("unknown")
    for dtype, name, word in ("bf16", "BF16", "bfloat16"), ("f16", "F16", "float16"), ("f32", "F32", "float32"):
        out = f"as_{dtype}"
        assert tool.good_json("convert", "unknown", out, f"--dtype={dtype}") == {"path": out, "tensors": 4}
        assert set(os.listdir(out)) == {"config.json", "manifest.json", "model.safetensors", "notes.md",
                                        "tokenizer.json"}, os.listdir(out)
        config = json.loads(tool.read(f"{out}/config.json"))
        assert config == {"model_type": "unknown", "torch_dtype": word, "mine": {"k": [1, 2.5]}}, config
        encode = to_bf16 if dtype == "bf16" else lambda value: value
        expected = struct.pack(f"<{len(VALUES)}{NAMES[name]}",
                               *(encode(value) for value in struct.unpack("<16f", source["a.weight"][1])))
        found = read_all(out)
        assert found["a.weight"] == ([4, 4], expected), (dtype, found["a.weight"])
        assert found["c"] == source["c"] and found["d"][0] == [], found
        third = struct.unpack("<f", struct.pack("<f", 1 / 3))[0]
        assert found["b"][1] == struct.pack(f"<2{NAMES[name]}", encode(third), 0), (dtype, found["b"])
        assert b'"x":"y"' in tool.read(f"{out}/model.safetensors").replace(b" ", b"")
    tool.good("convert", "unknown", "kept")
    assert read_all("kept") == source
    assert tool.read("kept/config.json") == tool.read("unknown/config.json")
    # What another dtype has given stays so in a wider one.
    tool.good("convert", "as_f16", "wide", "--dtype=f32")
    tool.good("convert", "wide", "again", "--convert.dtype=f16")
    assert read_all("again") == read_all("as_f16")


def test_shards():
    """A run's newest checkpoint in shards, and together again: the same bytes, without training state."""
    tool.good("train", "c.yaml")
    checkpoint = "run/checkpoint/step-6"
    tool.good("convert", "run", "shards", "--shard_size=10KB")
    shards = [name for name in os.listdir("shards") if name.endswith(".safetensors")]
    assert len(shards) > 3 and "model.safetensors.index.json" in os.listdir("shards"), shards
    assert not os.path.exists("shards/training") and read_all("shards") == read_all(checkpoint)
    tool.good("convert", "shards", "whole")
    assert tool.read("whole/model.safetensors") == tool.read(f"{checkpoint}/model.safetensors")
    assert tool.read("whole/tokenizer.json") == tool.read(f"{checkpoint}/tokenizer.json")
    generate = ["--prompt=The", "--max_new_tokens=5", "--temperature=0"]
    assert tool.good("generate", "whole", *generate) == tool.good("generate", "run", *generate)


def test_refusals():
    write_unknown("bad")
    tool.untouched(2, "bad exists: name another directory", "convert", "bad", "bad")
    tool.untouched(2, "dtype=q8_0 is for a .gguf file alone", "convert", "bad", "out", "--dtype=q8_0")
    for size in "5 parsecs", "-1GB", "0", "1e40GB":
        tool.untouched(2, "shard_size: given .* no size such as 5GB", "convert", "bad", "out", f"--shard_size={size}")
    whole = tool.read("bad/model.safetensors")
    tool.write("bad/model.safetensors", whole[:-1])
    tool.untouched(4, "bad/model.safetensors", "convert", "bad", "out")
    tool.write_tensors("bad/model.safetensors", {"w": ("F32", [2], struct.pack("<2f", 1, 65520))})
    tool.untouched(2, 'tensor "w": a number is beyond the range of f16', "convert", "bad", "out", "--dtype=f16")
    tool.write_tensors("bad/model.safetensors", {"w": ("F8_E4M3", [2], b"ab")})
    tool.untouched(2, 'tensor "w" is of dtype F8_E4M3, whose scales are not known', "convert", "bad", "out",
                   "--dtype=f32")
    os.remove("bad/model.safetensors")
    tool.write("bad/pytorch_model.bin", b"PK\3\4")
    tool.untouched(2, "bad/pytorch_model.bin is a PyTorch checkpoint: save the model with", "convert", "bad", "out")
    tool.write("bad/pytorch_model.bin", b"\x80\2ab")
    tool.untouched(2, "bad/pytorch_model.bin is a Python pickle: save the model with", "convert", "bad", "out")
    os.rename("bad/pytorch_model.bin", "bad/model.onnx")
    tool.write("bad/model.onnx", b"\x08\x07")
    tool.untouched(2, "bad holds model.onnx, and no model.safetensors: save the model with", "convert", "bad", "out")
    tool.write("x.gguf", b"GGUF\3\0\0\0")
    tool.untouched(2, "x.gguf is a GGUF file", "convert", "x.gguf", "out")
    tool.write("x.npz", b"PK\3\4" + 26 * b"\0" + b"w.npy")
    tool.untouched(2, "x.npz is a NumPy archive: save its arrays as", "convert", "x.npz", "out")
    tool.untouched(2, "usage: trireme convert IN OUT", "convert", "bad")
    tool.untouched(2, "no such directory", "convert", "nowhere", "out")
    shutil.rmtree("bad")


def read_gguf(path):
    """Returns the keys and the tensors {name: (type, extents, bytes)} of a GGUF file of version 3."""
    file, at = tool.read(path), 24
    sizes = {4: "I", 5: "i", 6: "f", 7: "?", 10: "Q"}
    bits = {0: 32, 1: 16, 8: 8.5, 30: 16}

    def number(kind):
        nonlocal at
        value, = struct.unpack_from("<" + kind, file, at)
        at += struct.calcsize(kind)
        return value

    def text():
        nonlocal at
        length = number("Q")
        at += length
        return file[at - length:at].decode()

    def value(kind):
        if kind == 9:
            inner = number("I")
            return [value(inner) for _ in range(number("Q"))]
        return text() if kind == 8 else number(sizes[kind])

    assert file[:4] == b"GGUF" and file[4:8] == b"\3\0\0\0", file[:8]
    tensors, keys = struct.unpack_from("<QQ", file, 8)
    keys = {text(): value(number("I")) for _ in range(keys)}
    places = []
    for _ in range(tensors):
        name, extents = text(), [number("Q") for _ in range(number("I"))]
        places.append((name, number("I"), extents, number("Q")))
    begin, found = (at + 31) // 32 * 32, {}
    for name, kind, extents, offset in places:
        assert offset % 32 == 0, (name, offset)
        length = int(math.prod(extents) * bits[kind] / 8)
        found[name] = kind, extents, file[begin + offset:begin + offset + length]
        assert len(found[name][2]) == length, name
    return keys, found


def to_q8_0(values):
    """Blocks of 32, as ggml rounds them: half away from zero, all in f32."""
    def f32(value):
        return struct.unpack("<f", struct.pack("<f", value))[0]
    out = b""
    for i in range(0, len(values), 32):
        block = values[i:i + 32]
        scale = f32(max(abs(value) for value in block) / 127)
        inverse = f32(1 / scale) if scale else 0
        scaled = [f32(value * inverse) for value in block]
        out += struct.pack("<e32b", scale, *(int(math.copysign(math.floor(abs(value) + 0.5), value))
                                             for value in scaled))
    return out


def test_gguf():
    """A byte model of the Llama family: queries and keys by pairs, vectors in f32, and its tokenizer."""
    tool.good("train", "c.yaml", "--run.directory=l", "--model.hidden_size=32", "--model.num_key_value_heads=1",
              "--model.intermediate_size=48")
    theirs = read_all("l/checkpoint/step-6")
    tool.good("convert", "l", "l.gguf")
    keys, found = read_gguf("l.gguf")
    assert keys["general.architecture"] == "llama" and keys["llama.attention.head_count_kv"] == 1, keys
    assert keys["llama.context_length"] == 16 and keys["llama.rope.dimension_count"] == 16, keys
    assert keys["tokenizer.ggml.model"] == "gpt2" and keys["tokenizer.ggml.pre"] == "gpt-2", keys
    assert len(keys["tokenizer.ggml.tokens"]) == 258 and keys["tokenizer.ggml.tokens"][ord("a")] == "a", keys
    assert keys["tokenizer.ggml.token_type"] == 256 * [1] + 2 * [3] and keys["tokenizer.ggml.merges"] == [], keys
    assert [keys[f"tokenizer.ggml.{name}_token_id"] for name in ("bos", "eos", "padding")] == [256, 257, 257], keys
    assert keys["tokenizer.ggml.add_bos_token"] and not keys["tokenizer.ggml.add_eos_token"], keys
    names = {"token_embd.weight": "model.embed_tokens.weight", "output.weight": "lm_head.weight",
             "output_norm.weight": "model.norm.weight", "blk.0.ffn_down.weight": "model.layers.0.mlp.down_proj.weight",
             "blk.0.ffn_norm.weight": "model.layers.0.post_attention_layernorm.weight"}
    assert len(found) == len(theirs), (found.keys(), theirs.keys())
    for ours, name in names.items():
        assert found[ours] == (0, theirs[name][0][::-1], theirs[name][1]), ours
    row = 32 * 4
    for ours, name in ("q", "q_proj"), ("k", "k_proj"):
        shape, content = theirs[f"model.layers.0.self_attn.{name}.weight"]
        rows = [content[row * i:row * (i + 1)] for i in range(shape[0])]
        turned = [rows[head + half * 8 + pair] for head in range(0, shape[0], 16) for pair in range(8)
                  for half in range(2)]
        assert found[f"blk.0.attn_{ours}.weight"][2] == b"".join(turned), ours
    tool.good("convert", "l", "l8.gguf", "--dtype=q8_0")
    keys, quantized = read_gguf("l8.gguf")
    assert keys["general.file_type"] == 7 and quantized["output_norm.weight"] == found["output_norm.weight"], keys
    for name in "token_embd.weight", "blk.0.attn_v.weight":
        values = struct.unpack(f"<{math.prod(found[name][1])}f", found[name][2])
        assert quantized[name][0] == 8 and quantized[name][2] == to_q8_0(values), name
    assert quantized["blk.0.ffn_down.weight"][0] == 1, "rows of 48 numbers are f16"


def test_gguf_of_gpt2():
    """Matrices are turned."""
    tool.good("train", "c.yaml", "--run.directory=g", "--model.family=gpt2")
    tool.good("convert", "g", "g.gguf", "--dtype=f16")
    theirs, (keys, found) = read_all("g/checkpoint/step-6"), read_gguf("g.gguf")
    assert keys["general.architecture"] == "gpt2" and "output.weight" not in found, keys
    shape, content = theirs["transformer.h.0.mlp.c_fc.weight"]
    values = struct.unpack(f"<{math.prod(shape)}f", content)
    turned = [values[column + shape[1] * row] for column in range(shape[1]) for row in range(shape[0])]
    assert found["blk.0.ffn_up.weight"] == (1, shape, struct.pack(f"<{len(turned)}e", *turned)), shape
    assert found["position_embd.weight"][0] == 0 == found["blk.0.ffn_up.bias"][0], found["position_embd.weight"][0]


def test_gguf_refusals():
    tool.good("train", "c.yaml", "--run.directory=s", "--training.steps=1")
    shutil.copytree("s/checkpoint/step-1", "m")
    os.remove("m/manifest.json")
    tool.write("there.gguf", "mine")
    tool.untouched(2, "there.gguf exists: name another file", "convert", "m", "there.gguf")
    config = json.loads(tool.read("m/config.json"))
    for change, words in (
            ({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"],
              "rope_parameters": {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
                                  "high_freq_factor": 4.0, "original_max_position_embeddings": 8}},
             'scaled by llama3, which llama.cpp\'s "qwen2" has not'),
            ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0, "attention_factor": 1.5,
                                  "original_max_position_embeddings": 8}}, "scaled by yarn with attention_factor"),
            ({"model_type": "gemma", "architectures": ["GemmaForCausalLM"], "hidden_activation": "gelu_pytorch_tanh",
              "tie_word_embeddings": False}, "the output head is another matrix than the embedding"),
            ({"model_type": "mamba", "architectures": ["MambaForCausalLM"]}, "[Mm]amba")):
        tool.write("m/config.json", json.dumps({**{key: value for key, value in config.items() if "rope" not in key},
                                                **change}))
        tool.untouched(2 if "mamba" not in words else 4, words, "convert", "m", "m.gguf")
    tool.write("m/config.json", json.dumps(config))
    tokenizer = json.loads(tool.read("m/tokenizer.json"))
    for change, words in (
            ({"normalizer": {"type": "Lowercase"}}, 'normalizer "Lowercase" is none of llama.cpp'),
            ({"pre_tokenizer": {"type": "Whitespace"}}, "cuts text by")):
        tool.write("m/tokenizer.json", json.dumps({**tokenizer, **change}))
        tool.untouched(2, words, "convert", "m", "m.gguf")
    os.remove("m/tokenizer.json")
    tool.untouched(2, "m has no tokenizer.json", "convert", "m", "m.gguf")


def test_llmc():
    """GPT-2 as llm.c has it, and back: the same bytes. Its order and its matrices, told from train_gpt2.py."""
    tool.good("train", "c.yaml", "--run.directory=c", "--model.family=gpt2", "--model.num_hidden_layers=2")
    tool.good("convert", "c", "c.bin")
    theirs, file = read_all("c/checkpoint/step-6"), tool.read("c.bin")
    assert struct.unpack("<8i", file[:32]) == (20240326, 3, 16, 258, 2, 2, 16, 384), file[:32]
    expected = theirs["transformer.wte.weight"][1] + bytes((384 - 258) * 16 * 4) + theirs["transformer.wpe.weight"][1]
    for kind in ("ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight",
                 "attn.c_proj.bias", "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias",
                 "mlp.c_proj.weight", "mlp.c_proj.bias"):
        for layer in range(2):
            shape, content = theirs[f"transformer.h.{layer}.{kind}"]
            if len(shape) == 2:
                values = struct.unpack(f"<{math.prod(shape)}f", content)
                turned = [values[row * shape[1] + column] for column in range(shape[1]) for row in range(shape[0])]
                content = struct.pack(f"<{len(turned)}f", *turned)
            expected += content
    expected += theirs["transformer.ln_f.weight"][1] + theirs["transformer.ln_f.bias"][1]
    assert file[1024:] == expected, (len(file), len(expected))
    tool.good("convert", "c.bin", "back")
    assert read_all("back") == theirs
    config = json.loads(tool.read("back/config.json"))
    assert config["n_layer"] == 2 and config["vocab_size"] == 258 and config["torch_dtype"] == "float32", config
    shutil.copy("c/checkpoint/step-6/tokenizer.json", "back")
    shutil.copy("c/checkpoint/step-6/tokenizer_config.json", "back")
    os.remove("back/manifest.json")
    generate = ["--prompt=The", "--max_new_tokens=9", "--temperature=0"]
    assert tool.good("generate", "back", *generate) == tool.good("generate", "c", *generate)
    # In bf16, by itself and through a directory.
    tool.good("convert", "c", "half.bin", "--dtype=bf16")
    tool.good("convert", "c.bin", "half", "--dtype=bf16")
    tool.good("convert", "half", "again.bin")
    assert tool.read("half.bin") == tool.read("again.bin") and tool.read("half.bin")[4:8] == b"\5\0\0\0"
    assert json.loads(tool.read("half/config.json"))["torch_dtype"] == "bfloat16"
    for name, content, words in (
            ("short.bin", file[:1000], "ends within its header"),
            ("cut.bin", file[:-1], "bytes, where its header says"),
            ("version.bin", file[:4] + b"\1" + file[5:], "of version 1; 3"),
            ("none.bin", file[:12] + bytes(4) + file[16:], "number 3 of its header is 0"),
            ("heads.bin", file[:20] + b"\7" + file[21:], "its header says width 16, heads 7"),
            ("huge.bin", file[:24] + b"\0\0\0\1" + file[28:], "bytes, where its header says")):
        tool.write(name, content)
        tool.untouched(4, f"{name}: .*{words}", "convert", name, "out")
    tool.untouched(2, "c.bin is a model file of llm.c: convert it to a directory", "convert", "c.bin", "out.gguf")
    tool.untouched(2, "llm.c has f32 and bf16", "convert", "c", "out.bin", "--dtype=f16")
    tool.good("train", "c.yaml", "--run.directory=rotary", "--training.steps=1")
    tool.untouched(2, "is no GPT-2, and llm.c has only such models", "convert", "rotary", "out.bin")


tool.main(globals())
