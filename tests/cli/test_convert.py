"""Models in other numbers, other files, and the formats of other programs."""

import json
import os
import shutil
import struct

import tool

# Of no family that is known: zeros of both signs, ties of bf16 and f16, subnormals of f16, a scalar, integers.
VALUES = [0.0, -0.0, 1.0, -1.00390625, 1.01171875, 1.00048828125, 1.00146484375, 65519.0, -6.1e-05, 2.98e-08, 3e-08,
          5.96e-08, 1e-30, 3.14159274, -1e-7, 0.1]
NAMES = {"F32": "f", "F16": "e", "F64": "d", "I64": "q", "BF16": "H"}


def write_tensors(path, tensors, metadata=None):
    """Writes {name: (dtype, shape, bytes)} as a safetensors file."""
    at, header, body = 0, {"__metadata__": metadata} if metadata else {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(content)]}
        at += len(content)
        body += content
    text = json.dumps(header).encode()
    tool.write(path, struct.pack("<Q", len(text)) + text + body)


def write_unknown(path):
    os.mkdir(path)
    packed = struct.pack(f"<{len(VALUES)}f", *VALUES)
    write_tensors(f"{path}/model.safetensors", {
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
    write_tensors("bad/model.safetensors", {"w": ("F32", [2], struct.pack("<2f", 1, 65520))})
    tool.untouched(2, 'tensor "w": a number is beyond the range of f16', "convert", "bad", "out", "--dtype=f16")
    write_tensors("bad/model.safetensors", {"w": ("F8_E4M3", [2], b"ab")})
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


tool.main(globals())
