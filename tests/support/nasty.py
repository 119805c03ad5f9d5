"""Texts that tokenizers find hard: marks that combine, other directions, emoji, blanks of all kinds, long runs, halves
of special tokens."""
import random

WORDS = ("the of and to in that is was he for it with as his on be at by not are but from or have they which one you "
         "all her she there would their him been has when who will no more if out so said what up about into than them "
         "can only other time new some could these two may first then do any like now over such man even most made "
         "naïve façade Straße Größe 日本 東京 Россия привет Ελλάδα").split()
BITS = [
    list("éüñçàøßœæŁžğ"), list("日本語中文字漢한국어ไทยกขค"),
    ["😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "☃️", "𝔘𝔫𝔦"], ["שלום", "مرحبا", "\u202eabc\u202c", "\u200f"],
    ["\r\n", "\n\n", " \n", "\t", "\u00a0", "\u3000", "\u2028", "\u0085", "\x00", "\x1f", "\x7f", "\u200b", "\ufeff"],
    ["'s", "'T", "'ll", "'ſ", "'RE", "'"], ["½", "Ⅷ", "①", "²", "٣", "१", "𝟘"],
    ["ﬁ", "ﬃ", "İ", "ı", "ſ", "ǅ", "Å", "K", "Ω", "가", "각", "\u1100\u1161\u11a8"],
    ["http://", "a.b@c.de", "def f(x):\n    return x", '{"a": [1, 2]}', "<0x41>", "▁", "▁▁", "Ġ", "Ċ"],
]


def make(chance, specials):
    kind = chance.randrange(20)
    if kind < len(BITS):
        return chance.choice(BITS[kind])
    if kind < 13:
        return chance.choice(["", " "]) + chance.choice(WORDS)
    if kind == 13:
        return chance.choice("ae") + "".join(chance.choice("\u0301\u0308\u0327\u20dd") for _ in range(3))
    if kind == 14:
        return chance.choice("abc \n\t.!-_1'") * chance.randint(1, 20)
    if kind == 15:
        return str(chance.randrange(10 ** chance.randint(1, 12)))
    if kind == 16:
        planes = [(0, 0x2FF), (0x300, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF)]
        return chr(chance.randint(*chance.choice(planes)))
    if kind == 17:
        return chance.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") * chance.randint(1, 4)
    special = chance.choice(specials or ["<unk>"])
    return special if kind == 18 else special[:chance.randint(1, 5)]


def texts(seed, count, specials=()):
    chance = random.Random(seed)
    for _ in range(count):
        parts = chance.randint(0, chance.choice([2, 6, 12, 25]))
        yield "".join(make(chance, list(specials)) for _ in range(parts))
