"""Random texts against the libraries that tokenizers come from, where these are installed: the same ids, and the same
text of ids. Unicode is another version there, so code points that are not assigned in all versions are left out.

TRIREME_TOKENIZERS names further files, or directories of files, separated by blanks: tokenizer.json (`tokenizers`),
sentencepiece's .model (`sentencepiece`), tiktoken's ranks (`tiktoken`, of the encodings that it knows) and tekken.json
(`mistral_common`). TRIREME_TEXTS says how many texts each one gets."""

import functools
import json
import os
import random
import subprocess
import sys
import unicodedata

import nasty
import tool

try:
    import tokenizers
except ImportError:
    print("skipped: the Python package tokenizers is not installed")
    sys.exit(77)

SOURCE = os.environ["TRIREME_SOURCE"]
COUNT = int(os.environ.get("TRIREME_TEXTS", "3000"))


class Json:
    """A tokenizer.json."""

    def __init__(self, path):
        self.library = tokenizers.Tokenizer.from_file(path)
        self.library.no_truncation()
        self.library.no_padding()
        self.added = [token.content for token in self.library.get_added_tokens_decoder().values()]
        self.size = self.library.get_vocab_size()
        self.template = self.shows = True

    def encode(self, texts, special):
        return [made.ids for made in self.library.encode_batch(texts, add_special_tokens=special)]

    def decode(self, lists, special):
        return self.library.decode_batch(lists, skip_special_tokens=not special)


class Sentencepiece:
    """A .model. The library does not find its control tokens in a text, nor shows them."""

    def __init__(self, path):
        import sentencepiece
        self.library = sentencepiece.SentencePieceProcessor(model_file=path)
        self.size = self.library.get_piece_size()
        self.hidden = [self.library.id_to_piece(i) for i in range(self.size) if self.library.is_control(i)]
        self.added = []
        self.template = self.shows = False

    def encode(self, texts, special):
        return self.library.encode(texts)

    def decode(self, lists, special):
        return self.library.decode(lists)


class Ranks:
    """tiktoken's ranks, of an encoding that the library knows by the number of its tokens."""

    def __init__(self, path):
        import tiktoken
        import tiktoken.load
        from tiktoken_ext import openai_public
        ranks = tiktoken.load.load_tiktoken_bpe(path)
        openai_public.load_tiktoken_bpe = lambda *unused, **named: ranks
        known = {50280: openai_public.p50k_base, 100256: openai_public.cl100k_base, 199998: openai_public.o200k_base}
        self.library = tiktoken.Encoding(**known[len(ranks)]())
        self.size = len(ranks)
        self.added = sorted(self.library.special_tokens_set)
        self.template, self.shows = False, True

    def encode(self, texts, special):
        return self.library.encode_batch(texts, allowed_special="all", num_threads=1)

    def decode(self, lists, special):
        hidden = set() if special else {self.library.encode_single_token(token) for token in self.added}
        return [self.library.decode([token for token in ids if token not in hidden]) for ids in lists]


class Tekken:
    """A tekken.json, which does not look for special tokens in text."""

    def __init__(self, path):
        from mistral_common.tokens.tokenizers.tekken import SpecialTokenPolicy, Tekkenizer
        self.policies = [SpecialTokenPolicy.IGNORE, SpecialTokenPolicy.KEEP]
        self.library = Tekkenizer.from_file(path)
        self.size = self.library.n_words
        self.added = ["(INST)"]
        self.template, self.shows = False, True

    def encode(self, texts, special):
        return [self.library.encode(text, bos=False, eos=False) for text in texts]

    def decode(self, lists, special):
        return [self.library.decode(ids, self.policies[special]) for ids in lists]


def open_library(path):
    content = tool.read(path)
    if content.lstrip().startswith(b"{"):
        return Tekken(path) if b'"token_bytes"' in content[:4096] else Json(path)
    return Ranks(path) if content.split(b"\n", 1)[0].count(b" ") == 1 else Sentencepiece(path)


def run(what, path, lines, *flags):
    done = subprocess.run([tool.BINARY, "tokenizer", what, path, *flags], input=lines, capture_output=True)
    assert done.returncode == 0, (path, done.stderr)
    return done.stdout


def encode(text, path, *flags):
    return [list(map(int, line.split())) for line in run("encode", path, text.encode(), *flags).decode().splitlines()]


def decode(lists, path, *flags):
    out = run("decode", path, "".join(" ".join(map(str, ids)) + "\n" for ids in lists).encode(), "--lines", *flags)
    return out.decode(errors="replace").split("\n")[:-1]


def check(name, path):
    library = open_library(path)
    chance = random.Random(name)
    specials = chance.sample(library.added, min(50, len(library.added)))
    texts = [text for text in nasty.texts(name, COUNT, specials) if all(map(is_known, text))]
    lines = [text for text in texts if "\n" not in text]
    broken = [text for text in texts if "\n" in text]
    joined = ["\n".join(broken[i::10]) for i in range(10)]
    assert len(lines) > COUNT / 2 and all(joined)
    for special in [False, True] if library.template else [False]:
        flags = ["--special"] if special else []
        expected = library.encode(lines, special)
        for text, got, want in zip(lines, encode("\n".join(lines) + "\n", path, "--lines", *flags), expected):
            assert got == want, (name, text, got, want)
        for text, want in zip(joined, library.encode(joined, special)):
            assert encode(text, path, *flags) == [want], (name, text)
    random_ids = [[chance.randrange(library.size) for _ in range(chance.randint(0, 12))] for _ in range(COUNT // 4)]
    for special in [False, True] if library.shows else [False]:
        flags = ["--special"] if special else []
        lists = [(ids, text) for given in (expected, random_ids)
                 for ids, text in zip(given, library.decode(given, special)) if not set("\n\ufffd") & set(text)]
        for (ids, want), got in zip(lists, decode([ids for ids, _ in lists], path, *flags)):
            assert got == want, (name, ids, got, want)


NFKD = tokenizers.normalizers.NFKD()


@functools.cache
def is_known(character):
    """To Unicode as Python has it, and as the normalizers of `tokenizers` have it, which is older: these give what is
    new to them back as it is, and behind other marks in no order."""
    pair = "\u0345" + character
    return unicodedata.category(character) != "Cn" and NFKD.normalize_str(pair) == unicodedata.normalize("NFKD", pair)


def further():
    for given in os.environ.get("TRIREME_TOKENIZERS", "").split():
        yield from sorted(os.path.join(given, name) for name in os.listdir(given)) if os.path.isdir(given) else [given]


tool.enter_scratch()
with open(f"{SOURCE}/tests/tokenizer/models.jsonl", encoding="utf-8") as file:
    for model in map(json.loads, file):
        tool.write("tokenizer.json", model["tokenizer"])
        check(model["name"], "tokenizer.json")
for path in further():
    check(path, path)
