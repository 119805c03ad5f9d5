"""Random chats against `apply_chat_template` of `transformers`, where it is installed: the ids and answers that it
gives, by some tokenizers of models.jsonl.

TRIREME_TEMPLATES names further files with templates, separated by blanks; TRIREME_CHATS says how many chats each one
gets."""

import json
import os
import random
import subprocess
import sys

import tool

try:
    from transformers import PreTrainedTokenizerFast
except ImportError:
    print("skipped: the Python package transformers is not installed")
    sys.exit(77)

SOURCE = os.environ["TRIREME_SOURCE"]
COUNT = int(os.environ.get("TRIREME_CHATS", "60"))
WORDS = ["Hello", "  x ", "\n", "n\u00e9", "\u65e5\u672c", "", "'q'", '"d"', "\U0001f642 ok", "</s>", "<|end|>", "a\tb",
         "the word", "tail\n\n", "e\u0301", " "]
# These have all characters. The tokens that end what is said are special, take the space about them, or neither.
MODELS = {"byte level": {"rstrip": True}, "old form": {"special": False}, "ignores merges": {},
          "sentencepiece-like": {"lstrip": True, "rstrip": True}, "unigram with bytes": {"lstrip": True}}
TEMPLATES = {
    "lines": "{% for m in messages %}{{ m.role }}:\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
             "{{ eos_token }}\n{% endgeneration %}{% else %}{{ m.content }}\n{% endif %}{% endfor %}",
    "inside": "{{ bos_token }}{%- for m in messages %}{%- if m.role == 'assistant' %} a{%- generation %}"
              "{{ m.content | trim }}{%- endgeneration %} .{%- else %}[{{ m.content | trim }}]{%- endif %}"
              "{%- endfor %}",
    "tools": "{%- for t in tools or [] %}{{ t | tojson(indent=1) }}{%- endfor %}{%- for m in messages %}"
             "{%- if m.role == 'assistant' %}{%- generation %}{{ '<|' ~ m.role ~ '|>' ~ m.content }}"
             "{%- for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{%- endfor %}<|end|>\n"
             "{%- endgeneration %}{%- else %}{{ m }}{%- endif %}{%- endfor %}",
    "outside": "{% for m in messages %}{{ m.role }} {% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
               "{% endgeneration %}{% else %}{{ m.content }}{% endif %} <|end|> \n{% endfor %}",
}
chance = random.Random(int(os.environ.get("TRIREME_SEED", "5")))


def text():
    return "".join(chance.choices(WORDS, k=chance.randint(0, 4)))


def chat():
    messages = [{"role": "system", "content": text()}] if chance.random() < 0.3 else []
    for _ in range(chance.randint(1, 4)):
        answer = {"role": "assistant", "content": text()}
        if chance.random() < 0.2:
            value = chance.choice([1, 2.5, True, None, text(), [text()], {"items": text()}])
            answer["tool_calls"] = [{"type": "function", "function": {"name": "f", "arguments": {"a": value}}}]
        messages += [{"role": "user", "content": text()}, answer]
    return messages[:-1] if chance.random() < 0.2 else messages


def check(name, model, template):
    library = PreTrainedTokenizerFast(tokenizer_file="t/tokenizer.json", bos_token="<s>", eos_token="</s>")
    tools = [{"type": "function", "function": {"name": "f", "description": text(), "parameters": {}}}]
    chats, expected = [], []
    for _ in range(COUNT):
        one = {"messages": chat(), "tools": tools if chance.random() < 0.3 else None}
        try:
            made = library.apply_chat_template(one["messages"], tools=one["tools"], chat_template=template,
                                               return_dict=True, return_assistant_tokens_mask=True)
        except Exception:
            continue
        chats.append(json.dumps(one))
        expected.append((made["input_ids"], made["assistant_masks"]))
    tool.write("t.jinja", template)
    done = subprocess.run([tool.BINARY, "tokenizer", "chat", "t", "--json", "--data.chat_template=t.jinja"],
                          input="\n".join(chats).encode(), capture_output=True)
    assert done.returncode == 0, (name, model, done.stderr)
    lines = done.stdout.decode().splitlines()
    assert len(lines) == len(chats) and (chats or name not in TEMPLATES)
    for line, got, want in zip(chats, map(json.loads, lines), expected):
        assert got["ids"] == want[0], (name, model, line, got, want)
        others = [at for at, pair in enumerate(zip(got["answers"], want[1])) if pair[0] != pair[1]]
        assert not others and len(got["answers"]) == len(want[1]), (name, model, line, others)


tool.enter_scratch()
os.mkdir("t")
further = {path: open(path, encoding="utf-8").read() for path in os.environ.get("TRIREME_TEMPLATES", "").split()}
with open(f"{SOURCE}/tests/tokenizer/models.jsonl", encoding="utf-8") as file:
    for line in map(json.loads, file):
        if line["name"] not in MODELS:
            continue
        description = json.loads(line["tokenizer"])
        first = max([token["id"] for token in description["added_tokens"]] + list(description["model"]["vocab"].values()
                    if isinstance(description["model"]["vocab"], dict) else [len(description["model"]["vocab"]) - 1]))
        known = {token["content"] for token in description["added_tokens"]}
        for content in ("<s>", "</s>", "<|end|>"):
            if content not in known and content not in description["model"]["vocab"]:
                first += 1
                description["added_tokens"].append({"id": first, "content": content, "special": True, **dict.fromkeys(
                    ("single_word", "lstrip", "rstrip", "normalized"), False), **MODELS[line["name"]]})
        tool.write("t/tokenizer.json", json.dumps(description))
        tool.write("t/tokenizer_config.json", json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
        for name, template in {**TEMPLATES, **further}.items():
            check(name, line["name"], template)
