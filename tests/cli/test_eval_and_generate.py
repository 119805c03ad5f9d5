"""What `trireme eval` measures, and what `trireme generate` writes, with a run or a model without one."""

import json
import math
import os
import shutil
import signal
import subprocess
import time

import tool


def test_eval_and_generate():
    tool.good("train", "c.yaml")
    result = tool.good_json("eval", "run", "data.path=text/t")
    assert set(result) == {"loss", "perplexity", "bits_per_byte", "tokens", "seq_len", "predicted_bytes",
                           "resident_bytes"}, result
    assert abs(result["bits_per_byte"] - result["loss"] / math.log(2) * 4501 / 4500) < 1e-9, result
    again = tool.good_json("eval", "run/checkpoint/step-6", "--data.path", "text/t")
    assert result == {**again, "resident_bytes": result["resident_bytes"]}, again
    # A model that could take longer sequences is evaluated with the lengths and batches of its run.
    trained = tool.good_json("train", "c.yaml", "--model.max_position_embeddings=64", "--run.directory=long",
                             "--training.global_batch_size=12")
    part = ["eval", "long", "data.path=text/t", "data.split=[0.8, 0.2]", "--validation.steps=2"]
    result = tool.good_json(*part)
    assert result["seq_len"] == 16 and abs(result["loss"] - trained["val_loss"]) < 1e-5, (result, trained)
    for size in 4, 6:
        assert tool.good_json(*part, f"--training.micro_batch_size={size}")["tokens"] == result["tokens"]
    tool.refused(2, r"the run: training\.global_batch_size: given 12, .*microbatches of 8", *part,
                 "--training.micro_batch_size=8")
    assert "in sequences of 64" in tool.good(*part, "--training.seq_len=64")
    assert tool.good_json("eval", "run", "data.path=text/t", "validation.steps=1", "training.global_batch_size=8",
                          "training.micro_batch_size=2")["tokens"] == 8 * 16
    # The part for training need not be enough to train on.
    assert "over 4496 tokens" in tool.good("eval", "run", "data.path=text/t", "data.split=[0.001, 0.999]")
    # Four ways of choosing; the same seed gives the same text.
    for choice in ["--temperature=0"], ["--seed=3"], ["--seed=3", "--top_k=5"], ["--seed=3", "--top_p=0.5"]:
        arguments = ["generate", "run", "--prompt", "The qu", "--max_new_tokens=9", *choice]
        first, second = tool.good_json(*arguments), tool.good_json(*arguments)
        assert set(first) == {"prompt", "text", "tokens", "finish_reason", "tokens_per_second"}, first
        assert first["prompt"] == "The qu" and len(first["tokens"]) == 9, first
        assert first["tokens"] == second["tokens"] and first["text"] == second["text"]
    every = ["generate", "run", "--prompt=The qu", "--max_new_tokens=9", "--seed=3"] # of all 258 tokens
    assert tool.good_json(*every, "--top_k=5000")["tokens"] == tool.good_json(*every)["tokens"]
    plain = tool.good("generate", "run", "--prompt=The qu", "--max_new_tokens=9", "--temperature=0")
    assert plain.startswith("The qu"), plain
    assert tool.good("generate", "run", "prompt=The qu", "max_new_tokens=9", "temperature=0") == plain
    # Past the 16 positions of the model the text slides, which is said; the first 16 tokens do not depend on that.
    long = ["generate", "run", "--temperature=0"]
    for prompt in "T", "The qu", "The quick brown ", 3 * "The quick brown ":
        made = tool.good_json(*long, "--prompt", prompt, "--max_new_tokens=40")["tokens"]
        assert len(made) == 40 == len(tool.good_json(*long, "--prompt", prompt, "--max_new_tokens=40",
                                                     "--cache=false")["tokens"])
        for count in 1, max(1, 17 - len(prompt)), 0:
            assert tool.good_json(*long, "--prompt", prompt, f"--max_new_tokens={count}")["tokens"] == made[:count]
    assert len(tool.good_json(*long, "--prompt=T")["tokens"]) == 256
    for count, says in (15, ""), (16, "sees 16 tokens at once: of the text the first 9 were out of sight"):
        code, _, err = tool.run(*long, "--prompt=T", f"--max_new_tokens={count}")
        assert code == 0 and (says in err) and bool(says) == bool(err), (code, err, count)


def test_stop_and_samples():
    tool.good("train", "c.yaml")
    made = tool.good_json("generate", "run", "--prompt=The", "--max_new_tokens=12", "--seed=2", "--temperature=0.1")
    text = made["text"]
    # As text, whatever tokens: up to the stop string, which comes first of two.
    stop = text[5:7]
    stopped = tool.good_json("generate", "run", "--prompt=The", "--max_new_tokens=12", "--seed=2",
                             "--temperature=0.1", "--stop=" + json.dumps([stop, text[9:]]))
    assert stopped["text"] == text[:text.index(stop)] and stopped["finish_reason"] == "stop", (stopped, text)
    assert made["finish_reason"] == "length", made
    tool.refused(2, r'generate\.stop: given .*, which begins like a list', "generate", "run", '--stop=[""]')
    # The same text, alone or among others; a sample has random numbers of its own.
    tool.write("prompts.jsonl", '\ufeff{"prompt": "The"}\n\n{"id": 3, "prompt": "over\\n"}\n')
    tool.write("prompts.txt", "\ufeffThe\nover\r\n\n")
    many = ["generate", "run", "--max_new_tokens=20", "--seed=1", "--training.kernels=reference"]
    alone = tool.good_json(*many, "--prompt=The")
    for size in 1, 3, 8:
        lines = tool.good(*many, "--json", "--batch=prompts.jsonl", "--samples=2", f"--batch_size={size}").splitlines()
        made = [tool.strict_json(line) for line in lines]
        assert [(m["index"], m["sample"], m["prompt"]) for m in made] == [
            (0, 0, "The"), (0, 1, "The"), (1, 0, "over\n"), (1, 1, "over\n")], made
        assert made[0]["tokens"] == alone["tokens"] != made[1]["tokens"], made
    out = tool.good(*many, "--batch=prompts.txt", "--temperature=0", "--max_new_tokens=3")
    parts = out.split("---\n")
    assert len(parts) == 2 and parts[0].startswith("The") and parts[1].startswith("over") and "\r" not in out, out
    tool.write("bad.jsonl", '{"prompt": "The"}\n{"text": "The"}\n')
    tool.refused(4, r'bad\.jsonl:2: .*"prompt"', *many, "--batch=bad.jsonl")
    tool.write("empty.txt", " \n")
    tool.refused(2, "empty.txt: has no prompt", *many, "--batch=empty.txt")
    tool.refused(2, "generate.batch: .*too: give one", *many, "--batch=prompts.txt", "--prompt=The")
    tool.refused(2, "nowhere", *many, "--batch=nowhere")
    # Whatever ends texts, in generation_config.json too.
    made = tool.good_json("generate", "run", "--prompt=The", "--max_new_tokens=12", "--seed=1")["tokens"]
    shutil.copytree("run/checkpoint/step-6", "ends")
    for ends in made[4], [made[4], 300]:
        tool.write("ends/generation_config.json", json.dumps({"eos_token_id": ends, "temperature": 0.1}))
        ended = tool.good_json("generate", "ends", "--prompt=The", "--max_new_tokens=12", "--seed=1")
        assert ended["tokens"] == made[:made.index(made[4])] and ended["finish_reason"] == "eos", ended


def test_model_without_a_run():
    """Sequences are as long as the model allows, and no longer."""
    for family, positions in ("llama", 16), ("gpt2", 16), ("llama", 2048):
        tool.good("train", "c.yaml", f"--model.family={family}", f"--model.max_position_embeddings={positions}",
                  "--training.steps=1")
        os.mkdir("model")
        for name in "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json":
            shutil.copy(f"run/checkpoint/step-1/{name}", "model")
        evaluate = ["eval", "model", "data.path=text/t", "validation.steps=1"]
        assert tool.good_json(*evaluate)["seq_len"] == min(positions, 1024), family
        if positions == 16:
            # Token files that are given need no tokenizer.
            os.remove("model/tokenizer.json")
            assert tool.good_json(*evaluate)["seq_len"] == 16
            tool.refused(2, "training.seq_len: given 17, but the model has 16 positions", *evaluate,
                         "training.seq_len=17")
        shutil.rmtree("run")
        shutil.rmtree("model")


def test_chat():
    turn = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n{}<|im_end|>\n"
    other = "ask:ping\nsay:pong !! <|end|>\n"
    tool.write("chats.txt", (turn.format("ping", "pong!") + turn.format("a", "b") + other) * 60)
    # Tokens of one byte, of which none begins a text: so a chat's text is also a prompt.
    tool.good("tokenizer", "train", "chats.txt", "--output=tokens", "--vocab_size=256", "--tokenizer.bos=",
              "--tokenizer.eos=")
    with open("tokens/tokenizer.json", encoding="utf-8") as file:
        tokenizer = json.load(file)
    tokenizer["added_tokens"] = [{"id": 256, "content": "<|end|>", "special": True, **dict.fromkeys(
        ("single_word", "lstrip", "rstrip", "normalized"), False)}]
    tool.write("tokens/tokenizer.json", json.dumps(tokenizer))
    tool.good("prepare", "chats.txt", "--data.path=text/chats", "--data.tokenizer=tokens")
    tool.good("train", "c.yaml", "--data.path=text/chats", "--training.steps=120", "--training.seq_len=128",
              "--model.hidden_size=32")
    chat = ["generate", "run", "--chat", "--chat_template=chatml", "--temperature=0", "--max_new_tokens=40"]
    # What the template puts behind an answer ends it.
    assert tool.good_json(*chat, "--prompt=ping") == {"text": "pong!", "finish_reason": "stop", "forgotten": 0}
    assert tool.good(*chat, "--prompt=a") == "b\n"
    # A token that stands behind an answer ends it, and so does what the template writes before that.
    for behind, answer, why in (" ", "pong !! ", "eos"), ("!! ", "pong ", "stop"):
        tool.write("ask.jinja", "{% for m in messages %}{{ 'ask:' ~ m.content ~ '\n' if m.role == 'user' else 'say:' ~ "
                                "m.content ~ '" + behind + "<|end|>\n' }}{% endfor %}"
                                "{% if add_generation_prompt %}say:{% endif %}")
        said = tool.good_json(*chat, "--prompt=ping", "--chat_template=ask.jinja")
        assert said == {"text": answer, "finish_reason": why, "forgotten": 0}, said
    for message, answer in (b"ping\n", "pong!\n"), (b"p\xe2\x82\n", tool.good(*chat, "--prompt=p\ufffd")):
        out = subprocess.run([tool.BINARY, *chat], input=message, stdout=subprocess.PIPE, check=True).stdout
        assert out == answer.encode(), (message, out)
    # Turn after turn at a terminal, of which the second goes on with what the model has seen. What is not UTF-8 of an
    # answer is U+FFFD in the chat, too.
    for top_k in 3, 0:
        talk_at_terminal(turn, chat, top_k)
    tool.refused(2, "has no chat template: give one, such as chatml", "generate", "run", "--chat", "--prompt=a")
    tool.refused(2, "there is no chat template", *chat, "--prompt=a", "--chat_template=chatmll")
    for word in "--system=a", "--chat_template=chatml":
        tool.refused(2, r"generate\..*: given .*, but there is no --chat", "generate", "run", "--prompt=a", word)
    tool.refused(2, "generate.samples: .*but --chat makes one text at a time", *chat, "--prompt=a", "--samples=2")
    tool.refused(2, "standard input: there is no message; or give --prompt", *chat)


def talk_at_terminal(turn, chat, top_k):
    chance = ["--temperature=5", f"--top_k={top_k}", "--seed=3", "--max_new_tokens=8", "--training.kernels=reference"]
    ours, its = os.openpty()
    with subprocess.Popen([tool.BINARY, *chat, *chance, "--json"], stdin=its, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as process:
        try:
            said = ""
            for message in "ping", " ", "a b": # beyond these the window slides
                os.write(ours, message.encode() + b"\n")
                if message == " ":
                    continue # no message
                answer = json.loads(process.stdout.readline())["text"]
                said += turn.format(message, "").removesuffix("<|im_end|>\n")
                alone = tool.good_json("generate", "run", f"--prompt={said}", "--stop=<|im_end|>", *chance)
                assert alone["text"] == answer, (message, alone, answer)
                said += answer + "<|im_end|>\n"
            os.write(ours, b"\x04")
            assert process.stdout.read() == b"" and process.wait(tool.TIMEOUT) == 0
        finally:
            process.kill() # or a failed assertion would wait for it
    os.close(ours)
    os.close(its)
    assert top_k or "\ufffd" in said, said


# What lm-evaluation-harness says through `transformers` (test_lm_eval.py) of the model of test_questions: the
# log-likelihoods of each choice.
QUESTIONS = (
    ("The quick", ["brown", "lazy dog", "brown fox"], 0, [-20.58466, -24.74843, -32.75581]),
    ("The quick brown \u3000 ", ["fox", "fux\u00e4"], 0, [-38.02001, -56.21500]),
    ("", ["The", "over the lazy dog."], 1, [-10.44176, -60.31699]),
    ("jumps over the lazy dog. " * 6, ["The", "quick"], 1, [-12.70699, -20.97911]),
)
TEXTS = ("The quick brown fox jumps over the lazy dog. " * 3 + "The quick fox", " the\n", "x")
TEXT_SCORES = {"word_perplexity": 712774.24, "byte_perplexity": 19.597929, "bits_per_byte": 4.2926293}


def test_questions():
    tool.good("tokenizer", "train", "t.txt", "--output=tokens", "--vocab_size=270")
    tool.good("prepare", "t.txt", "--data.path=text/merged", "--data.tokenizer=tokens")
    tool.good("train", "c.yaml", "--data.path=text/merged", "--training.kernels=reference", "--training.steps=12")
    lines = [{"context" if n else "query": query, "choices": choices, "answer" if n else "gold": gold}
             for n, (query, choices, gold, _) in enumerate(QUESTIONS)]
    tool.write("questions.jsonl", "\n".join(json.dumps(line) + "\n" for line in lines))
    tool.write("texts.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    ask = ["eval", "run", "--multiple_choice=questions.jsonl"]
    made = tool.good_json(*ask, "--output=answers.jsonl")
    answers = [json.loads(line) for line in tool.read("answers.jsonl").splitlines()]
    chosen = {"acc": [], "acc_norm": [], "acc_bytes": []}
    for (_, choices, gold, lls), answer in zip(QUESTIONS, answers, strict=True):
        said = answer["log_likelihoods"]
        assert all(abs(a - b) < 1e-4 for a, b in zip(said, lls, strict=True)), (said, lls)
        for name, by in ("acc", lambda _: 1), ("acc_norm", len), ("acc_bytes", lambda choice: len(choice.encode())):
            scores = [ll / by(choice) for ll, choice in zip(lls, choices)]
            chosen[name].append(scores.index(max(scores)) == gold)
            assert answer[name] == chosen[name][-1], (name, answer)
    for name, right in chosen.items():
        mean = sum(right) / 4
        assert made[name] == mean and abs(made[name + "_stderr"] - (mean * (1 - mean) / 3) ** 0.5) < 1e-12, made
    assert f"acc {made['acc']:.4f} +- {made['acc_stderr']:.4f}, acc_norm" in tool.good(*ask)
    made = tool.good_json("eval", "run", "--text=texts.jsonl")
    for name, value in TEXT_SCORES.items():
        assert abs(made[name] / value - 1) < 1e-5, (name, value, made)
    assert made["documents"] == 3 and "bits per byte" in tool.good("eval", "run", "--text=texts.jsonl")
    # The parts of a question's line, and what cannot be judged.
    for line, code, says in (
            ('{"query": "a", "choices": ["b"], "gold": 1}', 4, 'bad.jsonl:2: "gold"'),
            ('{"query": "a", "choices": [], "gold": 0}', 4, 'bad.jsonl:2: "choices" is empty'),
            ('{"query": "a", "choices": ["b", 3], "gold": 0}', 4, r'bad.jsonl:2: "choices"\[1\] is no text'),
            ('{"choices": ["b"], "gold": 0}', 4, 'bad.jsonl:2: .*"query"'),
            ('{"query": "a", "choices": ["%s"], "gold": 0}' % ("xyz" * 20), 2, "bad.jsonl:2: 61 tokens .*takes 16"),
            ("{", 4, "bad.jsonl:2: ")):
        tool.write("bad.jsonl", json.dumps(lines[0]) + "\n" + line + "\n")
        tool.refused(code, says, "eval", "run", "--multiple_choice=bad.jsonl")
    tool.write("bad.jsonl", '{"query": "a", "choices": [""], "gold": 0}')
    tool.refused(2, "bad.jsonl:1: .*no token of its own", "eval", "run", "--multiple_choice=bad.jsonl",
                 "--eval.delimiter=")
    tool.write("bad.jsonl", "\n")
    tool.refused(2, "bad.jsonl: has no question", "eval", "run", "--multiple_choice=bad.jsonl")
    tool.refused(2, "data.path: eval with .* does not use this key", *ask, "--data.path=text/merged")
    tool.refused(2, "eval.text: .*too: give one", *ask, "--text=texts.jsonl")
    tool.refused(2, "given 17, but the model has 16 positions", *ask, "--training.seq_len=17")
    # What is read is not written over.
    os.makedirs("folder")
    shutil.copy("t.txt", "folder")
    for words, file in (ask, "./questions.jsonl"), (["eval", "run", "--text=folder"], "folder/t.txt"):
        tool.untouched(2, "eval.output: given .*, which is read", *words, f"--output={file}")


def test_interrupted():
    tool.write("long.txt", "The quick brown fox jumps over the lazy dog. " * 500000)
    tool.good("prepare", "long.txt", "--data.path=text/long")
    tool.good("train", "c.yaml", "--training.steps=1")
    process = tool.start("eval", "run", "data.path=text/long")
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    code, out, err = tool.finish(process)
    assert code == 130 and out == "" and "stopped while evaluating" in err, (code, out, err)
    assert time.monotonic() - begin < 20, err


def test_edited_config():
    """What config.json says about the end of texts, and keys that Trireme ignores, may change; the model may not."""
    tool.good("train", "c.yaml")
    path = "run/checkpoint/step-6/config.json"
    generate = ["generate", "run", "--prompt=The", "--max_new_tokens=8", "--seed=2"]
    evaluate = ["eval", "run", "data.path=text/t"]
    made, loss = tool.good_json(*generate)["tokens"], tool.good_json(*evaluate)["loss"]
    config = json.loads(tool.read(path))
    ends = [made[3], made[5]]
    edited = {**config, "eos_token_id": ends, "bos_token_id": 1, "pad_token_id": 0, "transformers_version": "5.0"}
    tool.write(path, json.dumps(edited, indent=4))
    first = min(made.index(end) for end in ends)
    assert tool.good_json(*generate)["tokens"] == made[:first] and tool.good_json(*evaluate)["loss"] == loss
    tool.write(path, json.dumps({**edited, "eos_token_id": ends[::-1]}, indent=4))
    assert tool.good_json(*generate)["tokens"] == made[:first]
    # Tokens of the prompt are not made.
    tool.write(path, json.dumps({**edited, "eos_token_id": made[0]}, indent=4))
    ended = tool.good_json(*generate)
    assert ended["tokens"] == [] and ended["tokens_per_second"] == 0, ended
    tool.write(path, json.dumps(edited, indent=4))
    tool.write("d.yaml", tool.CONFIG[tool.CONFIG.index("training:"):])
    tool.good("train", "d.yaml", "--model.init_from=run", "--run.directory=more")
    assert "going on from run/checkpoint/step-6" in tool.good("train", "c.yaml", "--training.steps=7")
    for saved in "more/checkpoint/step-6", "run/checkpoint/step-7":
        assert json.loads(tool.read(f"{saved}/config.json"))["eos_token_id"] == ends, saved
    shutil.rmtree("run/checkpoint/step-7")
    for key, value in ("rope_theta", 500.0), ("rms_norm_eps", 0.1), ("initializer_range", 0.5), ("hidden_size", 32):
        tool.write(path, json.dumps({**edited, key: value}))
        for command in generate, evaluate:
            tool.refused(4, "config.json: changed since it was saved, and describes another model", *command)
    tool.write(path, "{,")
    tool.refused(4, "changed since it was saved: .*config.json", *generate)
    os.remove(path)
    tool.refused(4, "config.json: missing", *generate)


def test_generate_nul():
    """A NUL is a byte like any other."""
    tool.write("nul.txt", 300 * b"ab\0")
    tool.good("prepare", "nul.txt", "--data.path=nul/t")
    tool.good("train", "c.yaml", "--data.path=nul/t", "--training.steps=60")
    made = tool.good_json("generate", "run", "--prompt=ab", "--max_new_tokens=6", "--temperature=0")
    assert made["tokens"] == [0, 97, 98, 0, 97, 98] and made["text"] == "\0ab\0ab", made


tool.main(globals())
