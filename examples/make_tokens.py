#!/usr/bin/env python3
"""Makes token files with the tokenizer of a Hugging Face model, to train that model on your own text:

    pip install tokenizers
    python3 examples/make_tokens.py DIRECTORY/tokenizer.json tokens/mine book.txt notes.txt
    trireme train --model.init_from=DIRECTORY --data.path=tokens/mine --run.directory=runs/tuned

Each file is one document. tokens/mine.bin and tokens/mine.idx are Megatron's indexed dataset, whose bytes
src/data/token_shard.h lists."""

import array
import itertools
import os
import struct
import sys

from tokenizers import Tokenizer


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    tokenizer, prefix, texts = Tokenizer.from_file(sys.argv[1]), sys.argv[2], sys.argv[3:]
    wide = tokenizer.get_vocab_size() > 65536
    os.makedirs(os.path.dirname(prefix) or ".", exist_ok=True)
    lengths = []
    # Both files are written beside old ones, which a run may be reading. The old index, and what `trireme prepare`
    # wrote about its tokenizer and its checksums, are removed first: they must not be found with the new tokens.
    with open(prefix + ".bin.tmp", "wb") as out:
        for path in texts:
            try:
                with open(path, encoding="utf-8", newline="") as file:
                    text = file.read()
            except (OSError, UnicodeDecodeError) as error:
                os.remove(out.name)
                sys.exit(f"{path}: {error}; nothing was written")
            tokens = tokenizer.encode(text, add_special_tokens=False).ids
            array.array("i" if wide else "H", tokens).tofile(out)
            lengths.append(len(tokens))
    ends = [0, *itertools.accumulate(lengths)]
    with open(prefix + ".idx.tmp", "wb") as out:
        out.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4 if wide else 8, len(lengths), len(lengths) + 1))
        array.array("i", lengths).tofile(out)
        array.array("q", [end * (4 if wide else 2) for end in ends[:-1]]).tofile(out)
        array.array("q", range(len(lengths) + 1)).tofile(out)
    for old in prefix + ".idx", prefix + ".json", prefix + ".sums":
        if os.path.exists(old):
            os.remove(old)
    os.replace(prefix + ".bin.tmp", prefix + ".bin")
    os.replace(prefix + ".idx.tmp", prefix + ".idx")
    documents = "1 document is" if len(lengths) == 1 else f"{len(lengths)} documents are"
    print(f"{ends[-1]} tokens of {documents} in {prefix}.bin and {prefix}.idx")


if __name__ == "__main__":
    main()
