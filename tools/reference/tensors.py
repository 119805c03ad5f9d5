"""Tensors in files: the safetensors format, by hand, so that the reference shares no code with what it judges."""
import json
import os
import struct

import numpy
import torch

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def read_safetensors(path):
    """All tensors of one file, by name."""
    with open(path, "rb") as file:
        content = bytearray(file.read())
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8:8 + length].decode())
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        if begin == end:
            tensors[name] = torch.empty(entry["shape"], dtype=DTYPES[entry["dtype"]])
        else:  # through a copy, since the bytes may lie unaligned
            flat = torch.frombuffer(bytearray(content[begin:end]), dtype=DTYPES[entry["dtype"]])
            tensors[name] = flat.reshape(entry["shape"])
    return tensors


def write_safetensors(path, tensors, metadata=None):
    header, blobs, offset = {"__metadata__": {"format": "pt", **(metadata or {})}}, [], 0
    for name, tensor in tensors.items():
        tensor = tensor.detach().contiguous().cpu()
        blob = tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for blob in blobs:
            file.write(blob)


def read_model(directory):
    """config.json and all tensors of a Hugging Face directory, in one file or several."""
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    index = os.path.join(directory, "model.safetensors.index.json")
    if not os.path.exists(index):
        return config, read_safetensors(os.path.join(directory, "model.safetensors"))
    with open(index, encoding="utf-8") as file:
        shards = sorted(set(json.load(file)["weight_map"].values()))
    tensors = {}
    for shard in shards:
        tensors.update(read_safetensors(os.path.join(directory, shard)))
    return config, tensors


def read_batch(path):
    """Integer arrays by name, from .npz or .safetensors."""
    if path.endswith(".npz"):
        with numpy.load(path) as arrays:
            return {name: torch.from_numpy(arrays[name].astype(numpy.int64)) for name in arrays.files}
    return {name: tensor.to(torch.int64) for name, tensor in read_safetensors(path).items()}
