"""Writes tests/tokenizer/steps.jsonl: what `tokenizers` makes of text by each normalizer, pre-tokenizer and decoder.

    python tools/reference/tokenizer_steps.py >tests/tokenizer/steps.jsonl     # in an environment with `tokenizers`

The first line has the texts: some to be read by people, many random ones, and ranges of code points. Each other line is
a step with the results of the former, and checksums (BLAKE2b) of those of the latter. Code points are left out that
some of the library's tables, which follow several versions of Unicode, do not know.
"""
import base64
import hashlib
import json
import random
import struct
import unicodedata

from tokenizers import Tokenizer

READABLE = [
    "Hello, world! It's  the 2nd of   May.\n\n  We'LL see: x1=12345;\r\n\ttab ",
    " leading", "trailing \n", "   ", "a", "\n\n\n", "e\u0301\u0327 \u00e9 \u1e9b\u0323 \u212b \u0130I\u0131\u017f",
    "\ud55c\uae00 \u1112\u1161\u11ab \uac00\u11a8",
    "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd \u0645\u0631\u062d\u0628\u0627 \u0661\u0662",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd it'\u017f",
    "\u4e2d\u6587\uff0c\u65e5\u672c\u8a9e\u3000\u30ab\u30bf\u30ab\u30ca \uff76\uff9e\uff21\uff11",
    "\ufb01\ufb03 \u00bd \u2460 \u2167 \u01c4\u01c5 \u03a3\u03c2 STRASSE \u1e9e",
    "\u2581a\u2581\u2581b _x_ -- $5 <0x41> /\\ (q)[w]{e} #1", "\u200b\ufeff\u00a0\u180e\u2028x\u0085y\u202f",
]
SPECIAL = READABLE + [
    "\r\n", "\n", "\r", " ", "\t", "'s", "'S", "'\u017f", "'ll", "'VE", "\u0301\u0327", "\u200d", "\u200c",
    "123", "\u2581", "Word", " the", " \u00dcBER", "\u0645\u0631", "_", "...", "\u0928\u092e\u0938\u094d\u0924\u0947",
    "\u0f73", "\u1f88", "\u0149", "\u0600a", "\U0001d400", "\U00020000", "\x01\x7f", "\u02b0", "\u20dd"]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
          r"|\s+(?!\S)|\s")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
NOT_HAN = r"&&[^\p{Han}]]"
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTION}"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
PATTERNS = [
    GPT2, LLAMA3, LLAMA3.replace("{1,3}", ""), CL100K, O200K, O200K.replace(CONTRACTION, "").replace("{1,3}", ""),
    LLAMA3.replace(r"]?\p{L}+", r"]?[\p{L}\p{M}]+")
    .replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]"),
    r"[\p{Han}]+|" + O200K.replace(UPPER, UPPER[:-1] + NOT_HAN).replace(LOWER, LOWER[:-1] + NOT_HAN),
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+", "[0-9][0-9][0-9]", r"\b\w", r"\W+$", r"^.|\h{2}?",
    r"[[:word:]&&[^\p{Lu}]]+|[\D&&\S]", r"(?<=\s)\S|(?>a|b)c|x(?i)s|T",
    r"a{,2}b|\d{2,3}+|(a|b)*?c", r"[[:punct:]]+|\p{^L}", r"[+-&&[^b]]|a{2,1}|[-[yz]]|{,}|{a}"]
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def pre_tokenizers():
    yield from (split(pattern) for pattern in PATTERNS)
    for behavior in BEHAVIORS:
        yield {"type": "Punctuation", "behavior": behavior}
        for invert in (False, True):
            yield split(r"\s+|[a-c]*", behavior, invert)
            yield split(" ", behavior, invert, "String")
    yield split("", "Isolated", False, "String")
    for space in (False, True):
        for regex in (False, True):
            yield {"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": True, "use_regex": regex}
    for scheme in ("always", "first", "never"):
        for parts in (False, True):
            yield {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": parts}
    yield {"type": "Metaspace", "replacement": "_", "add_prefix_space": True, "str_rep": "_"}
    yield {"type": "Whitespace"}
    yield {"type": "WhitespaceSplit"}
    yield {"type": "BertPreTokenizer"}
    yield {"type": "Digits", "individual_digits": True}
    yield {"type": "Digits", "individual_digits": False}
    yield {"type": "CharDelimiterSplit", "delimiter": "\u0301"}
    yield {"type": "FixedLength", "length": 3}
    yield {"type": "FixedLength"}
    yield sequence("pretokenizers", split(LLAMA3), {"type": "ByteLevel", "add_prefix_space": False,
                                                    "trim_offsets": True, "use_regex": False})
    yield sequence("pretokenizers", {"type": "WhitespaceSplit"},
                   {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first"})
    yield sequence("pretokenizers", split("a|\\s+", "MergedWithNext"),
                   sequence("pretokenizers", {"type": "Punctuation"}, {"type": "Digits", "individual_digits": False}),
                   {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True})


RULES = {"\ufb01": "fi", "e\u0301": "\u00e9", "\uff21": "A", "\u0301": "", "\u2028": " ", "\r": "<cr>", "\r\n": "\n",
         "\uff76\uff9e": "\u30ac", "\u4e2d": "zh", "h": "H", "\u3000": " "}


def charsmap(rules):
    """sentencepiece's form of replacements: a double array of Darts over the bytes of what is replaced, NULs after what
    replaces it. A unit has its label, a bit for "ends here", and the distance to its children, by exclusive or."""
    block = "\0".join(rules.values()) + "\0"
    starts, at = {}, 0
    for key, value in rules.items():
        starts[key.encode()] = at
        at += len(value.encode()) + 1
    units = {}

    def place(position, prefix, label):
        ends = prefix in starts
        labels = sorted({key[len(prefix)] for key in starts if key.startswith(prefix) and key != prefix})
        taken = labels + [0] * ends
        base = next(b for b in range(1, 1 << 20) if all(b ^ c not in units and b ^ c for c in taken))
        units.update((base ^ c, 0) for c in taken)
        units[position] = label | ends << 8 | (position ^ base) << 10
        if ends:
            units[base] = starts[prefix] | 1 << 31
        for c in labels:
            place(base ^ c, prefix + bytes([c]), c)

    place(0, b"", 0)
    array = [units.get(i, 0) for i in range(max(units) + 256)]
    binary = struct.pack(f"<I{len(array)}I", 4 * len(array), *array) + block.encode()
    return base64.b64encode(binary).decode()


def normalizers():
    yield from ({"type": name} for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt",
                                        "ByteLevel"))
    yield {"type": "Prepend", "prepend": "\u2581x"}
    for left, right in ((True, True), (True, False), (False, True)):
        yield {"type": "Strip", "strip_left": left, "strip_right": right}
    for pattern in ({"String": " "}, {"String": ""}, {"Regex": " {2,}"}, {"Regex": "a*"}):
        yield {"type": "Replace", "pattern": pattern, "content": "\u2581"}
    for clean, chinese, accents, lower in ((True, False, False, False), (False, True, False, False),
                                           (False, False, True, False), (True, True, None, True)):
        yield {"type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": chinese, "strip_accents": accents,
               "lowercase": lower}
    yield {"type": "Precompiled", "precompiled_charsmap": charsmap(RULES)}
    yield sequence("normalizers", {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "NFKC"},
                   {"type": "Prepend", "prepend": "\u2581"}, {"type": "Lowercase"},
                   {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}, {"type": "ByteLevel"})
    yield sequence("normalizers", sequence("normalizers", {"type": "Nmt"}, {"type": "NFKD"}), {"type": "StripAccents"})


TOKENS = ["\u2581a", "\u2581", "\u2581\u2581", "<0x41>", "<0xE4>", "<0xB8>", "<0xAD>", "<0x4G>", "<0x+7>",
          "\u0120hello", "\u010a", "ab",
          "##c", "</w>", "x</w>", " .", " n't", "it do not", "H", "HHa", "aHH", "", "\u00e9", "\u4e2d",
          "\u0120", "\u00c3\u00a9", "<|end|>"]


def decoders():
    replace = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
    yield {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    yield replace
    yield {"type": "Fuse"}
    yield {"type": "ByteFallback"}
    yield {"type": "BPEDecoder", "suffix": "</w>"}
    yield {"type": "Strip", "content": "H", "start": 1, "stop": 0}
    for cleanup in (False, True):
        yield {"type": "WordPiece", "prefix": "##", "cleanup": cleanup}
    for scheme in ("always", "first", "never"):
        yield {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": True}
    yield sequence("decoders", replace, {"type": "ByteFallback"}, {"type": "Fuse"},
                   {"type": "Strip", "content": " ", "start": 1, "stop": 0})
    yield sequence("decoders", {"type": "ByteFallback"},
                   {"type": "Replace", "pattern": {"String": "\u4e2d"}, "content": "<>"})
    yield sequence("decoders", {"type": "ByteFallback"},
                   {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"}, {"type": "Fuse"},
                   {"type": "BPEDecoder", "suffix": "a"})


def token_lists():
    """Short lists of tokens, without those whose bytes are no text: the library puts U+FFFD there."""
    source = random.Random(2)
    check = step("decoder", {"type": "ByteFallback"}), step("decoder", next(decoders()))
    lists = [["<0xE4>", "<0xB8>", "<0xAD>", "H"], ["\u2581", "H", "<0x41>"]]
    lists += [[source.choice(TOKENS) for _ in range(source.randrange(1, 8))] for _ in range(1000)]
    return [tokens for tokens in lists if all("\ufffd" not in tool.decode(tokens) for tool in check)]


def sequence(member, *steps):
    return {"type": "Sequence", member: list(steps)}


def step(kind, description):
    parts = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
             "pre_tokenizer": None, "post_processor": None, "decoder": None,
             "model": {"type": "BPE", "vocab": {}, "merges": []}}
    parts[kind] = description
    return getattr(Tokenizer.from_str(json.dumps(parts)), kind)


def apply(kind, tool, text):
    """The results, as a list of texts."""
    if kind == "pre_tokenizer":
        return [piece for piece, _ in tool.pre_tokenize_str(text)]
    return [tool.normalize_str(text)]


def checksum(results):
    """Of lists of texts: each text behind its number of bytes, each list behind its number of texts."""
    state = hashlib.blake2b(digest_size=32)
    for result in results:
        state.update(f"{len(result)};".encode())
        for text in result:
            state.update(f"{len(text.encode())}:".encode() + text.encode())
    return state.hexdigest()


def known_to_all():
    """Code points up to U+FFFF of which all of the library's tables know something."""
    punctuation = step("pre_tokenizer", {"type": "Punctuation", "behavior": "Removed"})
    normal = [(form, step("normalizer", {"type": form})) for form in ("NFD", "NFKD", "NFC", "NFKC")]
    marks = step("normalizer", {"type": "StripAccents"})
    clean = step("normalizer", {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": False,
                                "strip_accents": False, "lowercase": False})
    plain = step("normalizer", {"type": "BertNormalizer", "clean_text": False, "handle_chinese_chars": False,
                                "strip_accents": True, "lowercase": False})
    for code in range(1, 0x10000):
        c = chr(code)
        category = unicodedata.category(c)
        if category in ("Cs", "Cn", "Co"):
            continue
        if (len(punctuation.pre_tokenize_str(c)) == 0) != (category[0] == "P" or c in "$+<=>^`|~"):
            continue
        if any(tool.normalize_str(c) != unicodedata.normalize(form, c) for form, tool in normal):
            continue
        if (marks.normalize_str(c) == "") != (category[0] == "M"):
            continue
        if (plain.normalize_str(c) == "") != (category == "Mn"):
            continue
        if (clean.normalize_str(c) == "") != (category[0] == "C" and c not in "\t\n\r" or c == "\ufffd"):
            continue
        yield code


def ranges_of(codes):
    ranges = []
    for code in codes:
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return ranges


def random_texts(codes):
    source = random.Random(1)
    for _ in range(300):
        yield "".join(source.choice([lambda: source.choice(SPECIAL), lambda: chr(source.choice(codes)),
                                     lambda: chr(source.randrange(0x20, 0x7F)),
                                     lambda: source.choice(" a1\n\u0301\u4e2d") * source.randrange(1, 30)])()
                      for _ in range(source.choice([1, 2, 4, 8])))


def main():
    codes = list(known_to_all())
    ranges, texts = ranges_of(codes), list(random_texts(codes))
    print(json.dumps({"readable": READABLE, "random": texts, "ranges": ranges}))
    whole = ["".join(chr(c) for c in codes), "".join(chr(c) + "a " for c in codes)]
    lists = token_lists()
    print(json.dumps({"lists": lists}))
    for description in decoders():
        tool = step("decoder", description)
        print(json.dumps({"kind": "decoder", "description": description, "lists": [tool.decode(t) for t in lists[:20]],
                          "random": checksum([tool.decode(t)] for t in lists)}))
    for kind, descriptions in (("pre_tokenizer", pre_tokenizers()), ("normalizer", normalizers())):
        for description in descriptions:
            tool = step(kind, description)
            results = [apply(kind, tool, text) for text in READABLE]
            print(json.dumps({"kind": kind, "description": description, "readable": results,
                              "random": checksum(apply(kind, tool, text) for text in texts),
                              "ranges": checksum(apply(kind, tool, text) for text in whole)}))


if __name__ == "__main__":
    main()
