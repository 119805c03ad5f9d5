"""Tokenizers other than bytes: `trireme tokenizer`, and their tokens from text to a trained model and back to text."""

import base64
import json
import os
import subprocess

import tool

SOURCE = os.environ["TRIREME_SOURCE"]


def lines_of(name):
    with open(f"{SOURCE}/tests/tokenizer/{name}", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


MODELS = {model["name"]: model for model in lines_of("models.jsonl")}
EQUAL_SCORES = next(entry["file"] for entry in lines_of("files.jsonl") if entry["name"] == "bpe, equal scores")


def put_files():
    """Tokenizers in directories bytes and pieces, and as a file equal.model; a text."""
    os.mkdir("bytes")
    os.mkdir("pieces")
    tool.write("bytes/tokenizer.json", MODELS["byte level"]["tokenizer"])
    tool.write("bytes/tokenizer_config.json", json.dumps({"eos_token": "<|end|>", "model_max_length": int(1e30)}))
    tool.write("pieces/tokenizer.json", MODELS["sentencepiece-like"]["tokenizer"])
    tool.write("equal.model", base64.b64decode(EQUAL_SCORES))
    tool.write("runs.txt", "the signs over numbers   while    runs  of       blanks " * 40)


def pipe(text, *arguments):
    """What `trireme tokenizer` makes of standard input, which must be taken."""
    done = subprocess.run([tool.BINARY, "tokenizer", *arguments], input=text, capture_output=True, timeout=tool.TIMEOUT)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout


def pipe_refused(text, pattern, *arguments):
    done = subprocess.run([tool.BINARY, "tokenizer", *arguments], input=text, capture_output=True, timeout=tool.TIMEOUT)
    assert done.returncode == 2 and pattern in done.stderr.decode(), (arguments, done)
    assert done.stderr.count(b"\n") == 1, done.stderr


def ids_of(out):
    return [int(word) for word in out.split()]


def test_encode_decode():
    put_files()
    for folder, name in ("bytes", "byte level"), ("pieces/tokenizer.json", "sentencepiece-like"):
        for text, alone, around, decoded, _ in MODELS[name]["cases"][:12]:
            out = pipe(text.encode(), "encode", folder)
            assert out.count(b"\n") == 1 and ids_of(out) == alone, (name, text)
            assert ids_of(pipe(text.encode(), "encode", folder, "--special")) == around, (name, text)
            if "\ufffd" not in decoded:
                assert pipe(out, "decode", folder) == decoded.encode(), (name, text)
    assert ids_of(pipe(b"\xff", "encode", "bytes")) == ids_of(pipe("\ufffd".encode(), "encode", "bytes"))
    assert pipe(b"", "encode", "bytes") == b"\n" and pipe(b"", "decode", "bytes") == b""
    made = json.loads(pipe(b"the", "encode", "bytes", "--json"))
    assert made["ids"] == ids_of(pipe(b"the", "encode", "bytes")), made
    assert json.loads(pipe(json.dumps(made["ids"]).strip("[]").replace(",", "").encode(), "decode", "bytes",
                           "--json")) == {"text": "the"}


def test_lines():
    put_files()
    lines = pipe(b"the\n\n and\r\nend", "encode", "bytes", "--lines")
    apart = [pipe(text, "encode", "bytes") for text in (b"the", b"", b" and\r", b"end")]
    assert lines == b"".join(apart), (lines, apart)
    assert pipe(lines, "decode", "bytes", "--lines") == b"the\n\n and\r\nend\n"
    pipe_refused(lines + b"\n1 the\n", 'standard input line 6: byte 2: expected a token id, found "the"', "decode",
                 "bytes", "--lines")
    # Lines that are longer than what is read at once, or end with it.
    long = b"the " * 40000 + b"\n" + b"a" * ((1 << 16) - 1) + b"\n" * 3 + b"b" * (1 << 16)
    assert pipe(pipe(long, "encode", "bytes", "--lines"), "decode", "bytes", "--lines") == long + b"\n"


def test_special():
    put_files()
    assert ids_of(pipe(b"<|end|>", "encode", "bytes")) == [0]
    assert pipe(b"0", "decode", "bytes") == b"" and pipe(b"0", "decode", "bytes", "--special") == b"<|end|>"


def test_show():
    put_files()
    out = tool.good("tokenizer", "show", "bytes")
    for part in "BPE: ids below 500", "eos: 0 \"<|end|>\"", "pre_tokenizer: ByteLevel", "special: 0", "Unicode 1":
        assert part in out, (part, out)
    shown = tool.good_json("tokenizer", "show", "pieces")
    assert shown["kind"] == "BPE" and shown["vocab_size"] == 700 and shown["eos_token_id"] == -1, shown
    assert [token["content"] for token in shown["added_tokens"]] == ["<unk>", "<s>", "</s>"], shown


def test_refused():
    put_files()
    pipe_refused(b"1 x", 'byte 2: expected a token id, found "x"', "decode", "bytes")
    pipe_refused(b"1 99999999999", "expected a token id", "decode", "bytes")
    pipe_refused(b"1 500", "token 500 at index 1", "decode", "bytes")
    pipe_refused(b"", "usage: trireme tokenizer", "encode")
    pipe_refused(b"", "encode, decode", "sing", "bytes")
    pipe_refused(b"", "takes only --json", "show", "bytes", "--lines")
    tool.refused(2, 'unexpected "--lines": only `trireme tokenizer` has it', "generate", "run", "--lines")


def test_chat_template():
    """A template that chats were made with by its name goes where the tokens go, and comes before the tokenizer's."""
    put_files()
    tool.write("chats.jsonl", '{"messages": [{"role": "user", "content": "a"}]}\n')
    tool.write("bytes/tokenizer_config.json", json.dumps({"chat_template": "older"}))
    tool.write("bytes/chat_template.jinja", "own {{ messages[0].content }}")
    tool.write("mine.jinja", "mine {{ messages[0].content }}")
    for settings, text in ([], "own a\n"), (["--data.chat_template=mine.jinja"], "mine a\n"):
        tool.good("prepare", "chats.jsonl", "--data.path=chats/t", "--data.tokenizer=bytes", *settings)
        assert pipe(tool.read("chats.jsonl"), "chat", "chats/t.tokenizer").decode() == text
    # Where there is no chat, it stays as it was.
    tool.good("prepare", "runs.txt", "--data.path=chats/t", "--data.tokenizer=bytes", "--data.chat_template=mine.jinja")
    assert tool.read("chats/t.tokenizer/chat_template.jinja") == tool.read("bytes/chat_template.jinja")


CONFIG = ["--model.family=llama", "--model.num_hidden_layers=1", "--model.hidden_size=16",
          "--model.num_attention_heads=2", "--training.steps=2", "--training.seq_len=16",
          "--training.global_batch_size=2", "--training.threads=1"]


def check_trained(tokenizer, name, eos):
    """Text, tokens, a model, and text again."""
    tool.good("prepare", "runs.txt", f"--data.path={name}/t", f"--data.tokenizer={tokenizer}")
    manifest = json.loads(tool.read(f"{name}/t.json"))
    assert manifest["tokenizer"]["kind"] == "BPE", manifest
    tool.good("train", *CONFIG, f"--data.path={name}/t", f"--run.directory={name}/run")
    model = f"{name}/run/checkpoint/step-2"
    assert tool.good("tokenizer", "show", f"{name}/run") == tool.good("tokenizer", "show", model)
    assert json.loads(tool.read(f"{model}/config.json"))["eos_token_id"] == eos
    for file in os.listdir(f"{name}/t.tokenizer"):
        assert tool.read(f"{model}/{file}") == tool.read(f"{name}/t.tokenizer/{file}"), file
    assert tool.good_json("eval", f"{name}/run", f"data.path={name}/t")["bits_per_byte"] > 0
    # Whether text is printed as it comes or at once, it is the text of all tokens together.
    made = tool.good_json("generate", f"{name}/run", "--prompt=the signs", "--max_new_tokens=6")
    printed = tool.good("generate", f"{name}/run", "--prompt=the signs", "--max_new_tokens=6")
    prompt = ids_of(pipe(b"the signs", "encode", f"{name}/t.tokenizer", "--special"))
    ids = " ".join(map(str, prompt + made["tokens"])).encode()
    whole = pipe(ids, "decode", f"{name}/t.tokenizer").decode(errors="replace")
    assert printed == whole + "\n" and whole == "the signs" + made["text"], (printed, whole, made)
    # The same tokenizer, elsewhere, is known; bytes are refused.
    tool.good("train", *CONFIG, f"--data.path={name}/t", f"--model.init_from={model}", f"--run.directory={name}/more",
              "--model.family=auto", "--model.num_hidden_layers=0", "--model.hidden_size=0",
              "--model.num_attention_heads=0")
    return manifest


def test_trained():
    put_files()
    manifest = check_trained("bytes", "out1", 0)
    # A document ends with the token for that, once.
    tokens = tool.read("out1/t.bin")
    assert tokens[-2:] == b"\0\0" and tokens[:-2].count(b"\0\0\0") == 0 and manifest["documents"] == 1
    check_trained("pieces", "out2", None)


def test_trained_with_file_of_another_form():
    """Merges of one rank cannot be said in tokenizer.json: the file itself is kept, too."""
    put_files()
    check_trained("equal.model", "out3", 2)
    kept = sorted(os.listdir("out3/t.tokenizer"))
    assert kept == ["tokenizer.json", "tokenizer.source", "tokenizer_config.json"], kept
    assert tool.read("out3/t.tokenizer/tokenizer.source") == tool.read("equal.model")
    text = tool.read("runs.txt")
    assert pipe(text, "encode", "out3/t.tokenizer") == pipe(text, "encode", "equal.model")


def test_ranks_of_no_known_tokenizer():
    """Their pattern is asked for, and kept beside them."""
    put_files()
    ranks = [bytes([i]) for i in range(256)] + [b"th", b" s", b"e s", b"the"]
    tool.write("my.tiktoken", "".join(f"{base64.b64encode(token).decode()} {i}\n" for i, token in enumerate(ranks)))
    pipe_refused(b"", "260 ranks are those of no known tokenizer: give --tokenizer.pattern=cl100k", "show",
                 "my.tiktoken")
    for pattern, ids in ("gpt2", [259, 257, 105]), (r"[a-z ]+", [256, 258, 105]):
        assert ids_of(pipe(b"the si", "encode", "my.tiktoken", f"--pattern={pattern}")) == ids
        lines = b'{"prompt": "the", "completion": " si"}\n{"text": "the si", "messages": 1}\n'
        chats = pipe(lines, "chat", "my.tiktoken", "--json", f"--pattern={pattern}").splitlines()
        assert [json.loads(chat)["ids"] for chat in chats] == [ids, ids], (pattern, chats)
        assert json.loads(chats[1])["answers"] == [1, 1, 1], chats
        tool.good("prepare", "runs.txt", "--data.path=kept/t", "--data.tokenizer=my.tiktoken",
                  f"--tokenizer.pattern={pattern}")
        assert ids_of(pipe(b"the si", "encode", "kept/t.tokenizer")) == ids
    tool.good("train", *CONFIG, "--data.path=kept/t", "--run.directory=kept/run")
    assert ids_of(pipe(b"the si", "encode", "kept/run/checkpoint/step-2")) == ids
    assert ids_of(pipe(b"the si", "encode", "kept/t.tokenizer", "--pattern=gpt2")) == [259, 257, 105]
    pipe_refused(b'{"content": 3}', 'line 1: the field "content" must be a string', "chat", "bytes",
                 "--data.text_field=content")
    pipe_refused(b"", "bytes/tokenizer.json says itself how text is cut", "encode", "bytes", "--pattern=gpt2")
    pipe_refused(b"", 'tokenizer.pattern: pattern "(a": byte 0: ( without )', "encode", "my.tiktoken", "--pattern=(a")
    tool.refused(2, "tokenizer.pattern: given gpt2, for tiktoken's ranks", "prepare", "runs.txt", "--data.path=new/t",
                 "--tokenizer.pattern=gpt2")
    # A pattern that takes too long.
    tool.write("long.jsonl", json.dumps({"text": "a"}) + "\n\n" + json.dumps({"text": "a" * 100000 + "b"}) + "\n")
    tool.refused(2, r"long\.jsonl: document 2: pattern .*: takes too long at byte 0 of the text", "prepare",
                 "runs.txt", "long.jsonl", "--data.path=new/t", "--data.tokenizer=my.tiktoken",
                 "--tokenizer.pattern=(a+)+$")
    assert not os.path.exists("new")
    # One of its own form is said to be that.
    os.mkdir("old")
    tool.write("old/vocab.json", "{}")
    pipe_refused(b"", "old has a vocab.json, but no tokenizer.json, into which transformers turns it", "show", "old")
    tool.write("rwkv.txt", "1 '\\x00' 1\n2 '\\x01' 1\n")
    pipe_refused(b"", "rwkv.txt: a vocabulary of RWKV", "show", "rwkv.txt")
    pipe_refused(b"", "runs.txt: no tokenizer: expected a tokenizer.json", "show", "runs.txt")


def test_other_tokenizer_refused():
    put_files()
    tool.good("prepare", "runs.txt", "--data.path=other/t", "--data.tokenizer=bytes")
    tool.write("other/t.tokenizer/tokenizer.json", MODELS["ignores merges"]["tokenizer"])
    tool.refused(4, "t.bin: the tokens were made with another tokenizer", "train", *CONFIG, "--data.path=other/t",
                 "--run.directory=other/run")
    os.remove("other/t.tokenizer/tokenizer.json")
    os.remove("other/t.tokenizer/tokenizer_config.json")
    os.rmdir("other/t.tokenizer")
    tool.refused(2, "t.tokenizer is missing", "train", *CONFIG, "--data.path=other/t", "--run.directory=other/run")
    # Bytes again: the tokenizer of before goes.
    tool.good("prepare", "runs.txt", "--data.path=other/t", "--data.tokenizer=pieces")
    tool.good("prepare", "runs.txt", "--data.path=other/t")
    assert not os.path.exists("other/t.tokenizer")


def test_learnt():
    """A tokenizer that is learnt from text speaks it in fewer tokens, and goes through prepare, train and generate."""
    out = tool.strict_json(tool.good("tokenizer", "train", "t.txt", "--output=mine", "--vocab_size=300", "--json"))
    assert out["path"] == "mine" and out["vocab_size"] == out["merges"] + 256 + 2 <= 300, out
    text = tool.read("t.txt").decode()
    ids = pipe(text.encode(), "encode", "mine").split()
    assert 0 < len(ids) < len(text) / 2
    tool.good("prepare", "t.txt", "--data.path=text/mine", "--data.tokenizer=mine")
    tokens = tool.read("text/mine.bin")
    assert [int(i) for i in ids] + [1] == list(memoryview(tokens).cast("H")) # <|eos|> ends the document
    tool.good("train", "c.yaml", "--data.path=text/mine", "--run.directory=mine.run")
    assert tool.good("generate", "mine.run", "--prompt=The", "--max_new_tokens=4").startswith("The")
    # The same text gives the same tokenizer; nothing is replaced, and what is wrong is said before anything is read.
    tool.good("tokenizer", "train", "t.txt", "--output=again", "--vocab_size=300")
    assert tool.read("mine/tokenizer.json") == tool.read("again/tokenizer.json")
    tool.good("tokenizer", "train", "t.txt", "--output=bare", "--vocab_size=270", "--bos=", "--eos=",
              "--pattern=llama3")
    assert tool.strict_json(tool.good("tokenizer", "show", "bare", "--json"))["added_tokens"] == []
    kept = tool.snapshot(".")
    for words, why in ((["--output=mine"], "tokenizer.output: given mine, where a tokenizer.json is"),
                       ([], "name the directory to write: --output=DIR"),
                       (["--output=new", "--vocab_size=257"], "257"), (["--output=new", "--pattern=gpt9"], "gpt9"),
                       (["--output=new", "--pattern=(a"], r"tokenizer.pattern: pattern ..a.: byte 0: \( without"),
                       (["--output=new", "--lr=1"], "optimizer.lr: tokenizer train does not use this key")):
        tool.refused(2, why, "tokenizer", "train", "t.txt", *words)
    tool.refused(2, "nowhere.txt", "tokenizer", "train", "nowhere.txt", "--output=new")
    tool.refused(2, "tokenizer.vocab_size: tokenizer show does not use this key", "tokenizer", "show", "mine",
                 "--vocab_size=300")
    assert tool.snapshot(".") == kept


tool.main(globals())
