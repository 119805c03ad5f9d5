#!/usr/bin/env python3
"""Writes tests/tokenizer/models.jsonl: small tokenizers that `tokenizers` has trained, and what it makes of texts.

Each line is {"name", "tokenizer": the whole tokenizer.json as a string, "cases": [[text, ids, ids with special tokens,
ids decoded, ids with special tokens decoded with them]]}. Needs the Python package `tokenizers` (0.23).
"""
import json
import os
import random
import sys

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../tests/support"))
import nasty  # noqa: E402

CASES = 40
BYTES = ["<0x%02X>" % byte for byte in range(256)]


def corpus():
    chance = random.Random(7)
    lines = [" ".join(chance.choices(nasty.WORDS, k=12)) for _ in range(400)]
    return lines + list(nasty.texts(8, 200, ["<x>"]))  # not "<unk>", of which a token would be made


def byte_level(vocab_size, **settings):
    t = Tokenizer(models.BPE(**settings))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|end|>"]))
    return t


def old_form(t):
    """As files of the first versions are: merges as strings, models without a type."""
    tree = json.loads(t.to_str())
    del tree["model"]["type"]
    tree["model"]["merges"] = ["#version: 0.2"] + [" ".join(pair) for pair in tree["model"]["merges"]]
    return tree


def added_tokens():
    t = byte_level(420)
    t.normalizer = normalizers.Lowercase()
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True), AddedToken("<r>", rstrip=True)])
    t.add_tokens([AddedToken("word", single_word=True), AddedToken("the", single_word=True, lstrip=True),
                  AddedToken("<|en"), AddedToken("  ", normalized=False), AddedToken("STRASSE")])
    first, last = t.token_to_id("<|end|>"), t.token_to_id("<r>")
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|end|> $A <r>", special_tokens=[("<|end|>", first), ("<r>", last)])])
    return t


def ignores_merges():
    tree = json.loads(byte_level(500).to_str())
    tree["model"]["ignore_merges"] = True
    tree["model"]["merges"] = tree["model"]["merges"][:60]
    return tree


def sentencepiece_like():
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    pieces = [word for line in corpus() for word in line.replace(" ", " \0").split("\0")]
    t.train_from_iterator(pieces, trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<unk>", "<s>", "</s>"] + BYTES, limit_alphabet=80))
    tree = json.loads(t.to_str())
    tree["added_tokens"] = tree["added_tokens"][:3]
    t = Tokenizer.from_str(json.dumps(tree))
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return t


def some_bytes(fuse):
    """Characters of which only some bytes have tokens, so that unknown ones wait while tokens of bytes pass."""
    vocab = {"<unk>": 0, "a": 1, "b": 2, "ab": 3, "aba": 4, "<0xC3>": 5, "<0xA9>": 6, "<0xE2>": 7, "aa": 8, "aaaa": 9}
    return Tokenizer(models.BPE(vocab, [("a", "b"), ("ab", "a"), ("a", "a"), ("aa", "aa")], unk_token="<unk>",
                                fuse_unk=fuse, byte_fallback=True))


def affixes(**settings):
    t = Tokenizer(models.BPE(unk_token="<unk>", **settings))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    if "end_of_word_suffix" in settings:
        t.decoder = decoders.BPEDecoder(settings["end_of_word_suffix"])
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>"], **settings))
    return t


def unigram(cut, byte_fallback=False):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.NFKC()
    if cut:
        t.pre_tokenizer = pre_tokenizers.Metaspace()
        t.decoder = decoders.Metaspace()
    t.train_from_iterator(corpus(), trainers.UnigramTrainer(
        vocab_size=400, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False))
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    if not byte_fallback:
        return t
    tree = json.loads(t.to_str())
    tree["model"]["byte_fallback"] = True
    there = {piece for piece, _ in tree["model"]["vocab"]}
    tree["model"]["vocab"] += [[name, -20.5] for name in BYTES if name not in there]
    return tree


TOKENIZERS = {
    "byte level": lambda: byte_level(500),
    "old form": lambda: old_form(byte_level(400)),
    "added tokens": added_tokens,
    "ignores merges": ignores_merges,
    "sentencepiece-like": sentencepiece_like,
    "some bytes": lambda: some_bytes(False),
    "some bytes, fused": lambda: some_bytes(True),
    "suffix": lambda: affixes(end_of_word_suffix="</w>"),
    "prefix": lambda: affixes(continuing_subword_prefix="##"),
    "unigram": lambda: unigram(True),
    "unigram of whole texts": lambda: unigram(False),
    "unigram with bytes": lambda: unigram(True, True),
}


def cases(t):
    specials = [token.content for token in t.get_added_tokens_decoder().values()]
    runs = ["a" * 300, "ab" * 200, " " * 257, "é" * 90, "-" * 129]
    for text in list(nasty.texts(9, CASES, specials)) + runs:
        alone, around = t.encode(text, add_special_tokens=False).ids, t.encode(text).ids
        yield [text, alone, around, t.decode(alone), t.decode(around, skip_special_tokens=False)]


def main():
    with open(os.path.join(HERE, "../../tests/tokenizer/models.jsonl"), "w", encoding="utf-8") as out:
        for name, make in TOKENIZERS.items():
            made = make()
            text = json.dumps(made) if isinstance(made, dict) else made.to_str()
            line = {"name": name, "tokenizer": text, "cases": list(cases(Tokenizer.from_str(text)))}
            out.write(json.dumps(line, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
