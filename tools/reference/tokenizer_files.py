"""Writes tests/tokenizer/files.jsonl: small models of sentencepiece and ranks of tiktoken, with the ids that those
libraries give to text, and merges that the trainer of `tokenizers` learns.

    python tools/reference/tokenizer_files.py >tests/tokenizer/files.jsonl
    # in an environment with sentencepiece, protobuf, tiktoken and tokenizers

A line for each: "kind" says of what.
"""
import base64
import io
import json
import random
import tempfile

import sentencepiece
import tiktoken
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

WORDS = """the quick brown fox jumps over the lazy dog while some words that are merged often and others not at all
stand in lines with numbers 12 345 6789 and signs a-b c_d (e) [f] x=1; y+=2 don't we'll I'VE it's isn't über café naïve
Straße 中文 日本語 한국어 русский язык ελληνικά""".split()
POOLS = ["abcdefgh     ", "  \t\n\r  ab", "\u2581\u2581 a ", "éàüßñœ", "e\u0301a\u0308o\u0302\u0323",
         "中文日本語漢字かなカナ한국어", "0123456789.,",
         "\U0001f600\U0001f44d\U0001f3fd\U0001f468\u200d\U0001f469", "שלוםعربي\u200f\u202e", "ｆｕｌｌ①②½ﬁ™",
         "<sep>ing<0x41>", "'\"!?-—…sStTreREvVmMlLdD", "\x01\x7f\xad\u200b\ufeff\u2028"]


def text_of(r):
    kind = r.random()
    if kind < 0.4:
        return r.choice(["", " ", "  "]) + " ".join(r.choice(WORDS) for _ in range(r.randint(1, 12)))
    if kind < 0.8:
        return "".join("".join(r.choice(pool) for _ in range(r.randint(1, 8)))
                       + r.choice(["", "", " " + r.choice(WORDS)]) for pool in r.choices(POOLS, k=r.randint(1, 5)))
    if kind < 0.9:
        return "".join(r.choice("".join(POOLS) + "aest") * r.randint(1, 40) for _ in range(r.randint(1, 3)))
    return "".join(chr(r.choice([r.randrange(0x20, 0x7f), r.randrange(0xa0, 0x250), r.randrange(0x400, 0x500),
                                 r.randrange(0x4e00, 0x9fff), r.randrange(0x1f300, 0x1f600)])) for _ in range(9))


def texts(seed, count):
    r = random.Random(seed)
    return ["", " ", "  ", "\u2581", " a", "a ", "\u2581a \u2581", "a  b", "\n", "<sep>", "x<sep> y", "foo bar",
            "a<unk>b<s></s>c", "<0x41>x <0x0A>", "x①② ①①②",
            " ".join(r.choices(WORDS, k=150)), "aststa" * 60 + "tsa" * 60] + [
        text_of(r) for _ in range(count)]


# Code points in hexadecimal: what is replaced, by what.
RULES = "".join(f"{rule}\n" for rule in [
    "FF21\t41", "2460\t31", "65 301\tE9", "61 308\tE4", "9\t20", "1\t", "BD\t31 2F 32", "A0\t20",
    "65 301 323\t78", "301\t"])
CORPUS = [" ".join(random.Random(i).choices(WORDS, k=12)) for i in range(400)]


def sentencepiece_model(change=None, **options):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=out, minloglevel=2, hard_vocab_limit=False, num_threads=1,
        **options)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(out.getvalue())
    proto.trainer_spec.ClearField("input")
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    for piece in proto.pieces if change else []:
        change(piece)
    return proto.SerializeToString()


def sentencepiece_line(name, model, given):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = [processor.encode(text) for text in given]
    return {"kind": "sentencepiece", "name": name, "file": base64.b64encode(model).decode(), "texts": given, "ids": ids,
            "decoded": [processor.decode(i) for i in ids], "bos": processor.id_to_piece(processor.bos_id()),
            "eos": processor.id_to_piece(processor.eos_id())}


def equal_scores(piece):
    """As in models in use: what is made of blanks is merged last, from left to right; here also other pieces."""
    if piece.type == 1 and len(piece.piece) > 1 and (set(piece.piece) == {"\u2581"} or piece.score < -60):
        piece.score = -1e9


def one_score(piece):
    if piece.type == 1 and len(piece.piece) > 1:
        piece.score = -1


def large_score(piece):
    """A short text's sums come to where the library begins anew."""
    if piece.type == 1:
        piece.score *= 999


def sentencepiece_lines():
    given = texts(1, 150)
    plain = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    blanks = [" " * n + "x" for n in range(1, 40)]
    yield sentencepiece_line("bpe", sentencepiece_model(
        model_type="bpe", vocab_size=420, byte_fallback=True, allow_whitespace_only_pieces=True, **plain), given)
    CORPUS.extend(blanks * 20)
    yield sentencepiece_line("bpe, equal scores", sentencepiece_model(
        equal_scores, model_type="bpe", vocab_size=460, byte_fallback=True, split_by_whitespace=False, **plain),
        given + blanks)
    yield sentencepiece_line("bpe, one score", sentencepiece_model(
        one_score, model_type="bpe", vocab_size=400, byte_fallback=True, split_by_whitespace=False, **plain),
        given + blanks)
    del CORPUS[-len(blanks) * 20:]
    yield sentencepiece_line("bpe, defined by the user", sentencepiece_model(
        model_type="bpe", vocab_size=300,
        user_defined_symbols=["<sep>", "ing", "th", "he", "e (", "\n", "\u2581\u2581"], **plain), given)
    yield sentencepiece_line("bpe, suffix", sentencepiece_model(
        model_type="bpe", vocab_size=200, treat_whitespace_as_suffix=True, normalization_rule_name="identity"),
        [text for text in given if text.strip(" \u2581")])  # the library adds a suffix even to what is empty then
    yield sentencepiece_line("bpe, no prefix", sentencepiece_model(
        model_type="bpe", vocab_size=200, add_dummy_prefix=False, normalization_rule_name="identity",
        unk_surface="?"), given)
    yield sentencepiece_line("unigram", sentencepiece_model(
        model_type="unigram", vocab_size=150, normalization_rule_name="identity"), given)
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        file.write(RULES)
        file.flush()
        yield sentencepiece_line("unigram, rules", sentencepiece_model(
            model_type="unigram", vocab_size=450, byte_fallback=True, normalization_rule_tsv=file.name,
            user_defined_symbols=["<sep>", "ing", "①②"]), given)
    CORPUS.extend("-" * n for n in range(1, 40))
    yield sentencepiece_line("unigram, sums that are equal but for rounding", sentencepiece_model(
        model_type="unigram", vocab_size=120, normalization_rule_name="identity", max_sentencepiece_length=3),
        ["-" * n for n in range(1, 60)])
    # A symbol is preferred to other pieces by so little that it changes how sums are rounded.
    yield sentencepiece_line("unigram, defined by the user", sentencepiece_model(
        model_type="unigram", vocab_size=120, normalization_rule_name="identity", max_sentencepiece_length=3,
        user_defined_symbols=["=", "<sep>", "<sep><sep>"]),
        [sign * k + "-" * n for sign in ("=", "<sep>") for k in (1, 2, 3, 5) for n in range(1, 60, 2)])
    yield sentencepiece_line("unigram, large sums", sentencepiece_model(
        large_score, model_type="unigram", vocab_size=120, normalization_rule_name="identity",
        max_sentencepiece_length=3), ["-" * n for n in range(1, 600, 40)])
    del CORPUS[-39:]


def tiktoken_line(pattern, regex):
    """Ranks that no training made: random tokens, some of which can be made in several ways, some in none."""
    r = random.Random(2)
    tokens = [bytes([b]) for b in range(256)]
    pool = [w.encode() for w in WORDS] + [(" " + w).encode() for w in WORDS]
    pool += [b"aaaa", b"      ", b"ababab", b"--------"]
    for _ in range(3000):
        word = r.choice(pool)
        begin = r.randrange(len(word))
        token = word[begin:begin + r.randint(2, 5)]
        if len(token) > 1 and token not in tokens:
            tokens.append(token)
    head, tail = tokens[:256], tokens[256:]
    r.shuffle(head)
    ranks = {token: rank for rank, token in enumerate(head + tail)}
    encoding = tiktoken.Encoding("test", pat_str=regex, mergeable_ranks=ranks, special_tokens={})
    file = b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items())
    given = texts(3, 150)
    return {"kind": "tiktoken", "name": pattern, "pattern": pattern, "file": base64.b64encode(file).decode(),
            "texts": given, "ids": [encoding.encode(text, disallowed_special=()) for text in given],
            "decoded": given}


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")


def training_line(name, given, pattern, regex, vocab_size, min_frequency, special):
    tokenizer = Tokenizer(models.BPE())
    if pattern == "gpt2":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(regex), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.train_from_iterator(given, trainers.BpeTrainer(
        vocab_size=vocab_size, min_frequency=min_frequency, special_tokens=special, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(tokenizer.to_str())["model"]
    vocab = sorted(model["vocab"], key=model["vocab"].get)
    assert [model["vocab"][token] for token in vocab] == list(range(len(vocab)))
    return {"kind": "training", "name": name, "texts": given, "pattern": pattern, "vocab_size": vocab_size,
            "min_frequency": min_frequency, "special": special, "vocab": vocab,
            "merges": [[model["vocab"][a], model["vocab"][b]] for a, b in model["merges"]]}


def runs(seed, alphabet, count):
    """Runs of characters, in which pairs overlap and have equal counts."""
    r = random.Random(seed)
    return ["".join(r.choice(alphabet) * r.choice([1, 1, 2, 3, 5, 8, 13]) + r.choice(["", "", " ", "\n"])
                    for _ in range(40)) for _ in range(count)]


def training_lines():
    yield training_line("words", CORPUS[:100], "gpt2", GPT2, 500, 2, ["<|bos|>", "<|eos|>", "the", "he", "er"])
    yield training_line("all kinds of text", texts(4, 200), "llama3", LLAMA3, 700, 0, ["<s>", "the"])
    yield training_line("runs", runs(5, "-=.#ab", 60), "gpt2", GPT2, 600, 0, [])
    yield training_line("two letters", runs(6, "ab", 40), "gpt2", GPT2, 2000, 3, ["<|eos|>", "a"])


def main():
    ranks = [tiktoken_line("gpt2", GPT2), tiktoken_line("llama3", LLAMA3)]
    for line in [*sentencepiece_lines(), *ranks, *training_lines()]:
        print(json.dumps(line))


if __name__ == "__main__":
    main()
