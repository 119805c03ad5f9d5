"""Random texts against the `tokenizers` library, where it is installed: tokenizers of models.jsonl give the ids that it
gives. Unicode is another version there, so code points that are not assigned in the one of Python are left out.

TRIREME_TOKENIZERS names further files, separated by blanks; TRIREME_TEXTS says how many texts each one gets."""

import json
import os
import subprocess
import sys
import unicodedata

import nasty
import tool

try:
    from tokenizers import Tokenizer
except ImportError:
    print("skipped: the Python package tokenizers is not installed")
    sys.exit(77)

SOURCE = os.environ["TRIREME_SOURCE"]
COUNT = int(os.environ.get("TRIREME_TEXTS", "3000"))


def encode(text, *arguments):
    done = subprocess.run([tool.BINARY, "tokenizer", "encode", *arguments], input=text.encode(), capture_output=True,
                          check=True)
    return [list(map(int, line.split())) for line in done.stdout.decode().split("\n")[:-1]]


def check(name, path):
    library = Tokenizer.from_file(path)
    library.no_truncation()
    library.no_padding()
    specials = [token.content for token in library.get_added_tokens_decoder().values()][:50]
    texts = [text for text in nasty.texts(name, COUNT, specials) if all(map(is_assigned, text))]
    lines = [text for text in texts if "\n" not in text]
    some = [text for text in texts if "\n" in text][:40]
    assert len(lines) > COUNT / 2 and len(some) > 10
    for special in False, True:
        flags = ["--special"] if special else []
        expected = [made.ids for made in library.encode_batch(lines, add_special_tokens=special)]
        for text, got, want in zip(lines, encode("\n".join(lines) + "\n", path, "--lines", *flags), expected):
            assert got == want, (name, text, got, want)
        for text in some:
            assert encode(text, path, *flags) == [library.encode(text, add_special_tokens=special).ids], (name, text)


def is_assigned(character):
    return unicodedata.category(character) != "Cn" and character != "\u32ff"  # which decomposes since Unicode 12.1


tool.enter_scratch()
with open(f"{SOURCE}/tests/tokenizer/models.jsonl", encoding="utf-8") as file:
    for model in map(json.loads, file):
        tool.write("tokenizer.json", model["tokenizer"])
        check(model["name"], "tokenizer.json")
for further in os.environ.get("TRIREME_TOKENIZERS", "").split():
    check(further, further)
