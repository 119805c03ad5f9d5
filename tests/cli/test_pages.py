"""The commands that README.md and the pages for users print, run as they stand there, but for fewer steps."""

import os
import re
import shlex
import shutil
import struct

import tool

PAGES = ("README.md", "docs/training.md", "docs/ranks.md", "docs/finetuning.md")
# Of a long run or a search only the beginning; of GPT-2 a small one.
SHORTER = {
    "train": ("--training.steps=1",),
    "plan": ("seconds=1",),
}
SMALLER = ("--model.num_hidden_layers=1", "--model.hidden_size=32", "--model.num_attention_heads=2",
           "--training.seq_len=32", "--training.global_batch_size=2")


def page(name):
    return tool.read(os.path.join(os.environ.get("TRIREME_SOURCE", "."), name)).decode()


def commands():
    """The lines of code that begin with trireme, without comment and redirection, each as words."""
    for name in PAGES:
        for line in re.findall(r"^ {4}(trireme .*)$", re.sub(r"\\\n\s*", "", page(name)), re.M):
            yield shlex.split(re.sub(r"\s>\S+", "", line), comments=True)[1:]


def prepare_files():
    text = "".join(f"{i} times {i} is {i * i}. " for i in range(2000))
    tool.write("book.txt", text)
    os.makedirs("notes")
    tool.write("notes/a.txt", text[::-1])
    tool.good("prepare", "book.txt", "notes", "--data.path=text/other")
    tool.write("chats.jsonl", '{"messages": [{"role": "user", "content": "3 times 3?"}, '
               '{"role": "assistant", "content": "9"}]}\n' * 40)
    tool.write("questions.jsonl", '{"query": "3 times", "choices": ["3", "4"], "gold": 0}\n')
    for prefix in "tokens/mine", "text/wiki", "text/code":
        tool.good("prepare", "book.txt", f"--data.path={prefix}")
    os.makedirs("shards")
    header = struct.pack("<256i", 20240520, 1, 4000, *[0] * 253)
    with open("shards/a.bin", "wb") as file:
        file.write(header + struct.pack("<4000H", *[i * i % 50257 for i in range(4000)]))
    os.makedirs("examples")
    shutil.copy(os.path.join(os.environ.get("TRIREME_SOURCE", "."), "examples/shakespeare.yaml"), "examples")
    config = re.search(r"\n\n((?: {4}.*\n)+)", page("docs/training.md")[page("docs/training.md").index("one rank"):])
    tool.write("config.yaml", re.sub(r"^ {4}", "", config.group(1), flags=re.M))


@tool.not_sanitized
def test_commands_of_pages():
    prepare_files()
    tried = set()
    for words in commands():
        if words[:2] in (["bench", "calibrate"], ["prepare", "-"]):
            continue # a quarter of an hour; text from another program
        if words[-1].startswith("<"):
            continue # of standard input; test_chats.py has them
        if "--model.preset=gpt2-124m" in words:
            words = words + list(SMALLER)
        if "--model.init_from=a/hugging-face/directory" in words and not os.path.exists("a/hugging-face"):
            os.makedirs("a/hugging-face")
            steps = os.listdir("runs/mine/checkpoint")
            shutil.copytree(f"runs/mine/checkpoint/{steps[0]}", "a/hugging-face/directory")
            tool.write("a/hugging-face/directory/chat_template.jinja",
                       "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
                       "{% if add_generation_prompt %}assistant: {% endif %}")
        if "--model.init_from=a/hugging-face/directory" in words or "--model.init_from=runs/notes" in words:
            words = words + ["--training.seq_len=64"] # as many positions as that model has
        if words[0] == "train" and words[1] == "config.yaml":
            shutil.rmtree("runs/small", ignore_errors=True)
        code, out, err = tool.run(*words, *SHORTER.get(words[0], ()))
        assert code == (9 if words[:2] == ["checkpoint", "diff"] else 0), (words, code, out, err) # 9: they differ
        tried.add(words[0])
    every = "prepare train generate eval show verify simulate plan bench help checkpoint tokenizer convert"
    assert tried == set(every.split()), tried


tool.main(globals())
