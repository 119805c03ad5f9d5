"""Bad input: one line of error, a non-zero status, nothing written, nothing lost."""

import json
import os
import re
import resource
import shutil
import struct
import subprocess
import time

import tool
from tool import edit_weights, untouched


def test_settings():
    train = ["train", "c.yaml"]
    untouched(2, r"optimzer\.lr.*optimizer\.lr", *train, "--optimzer.lr=3")
    untouched(2, r"optimizer\.lrr.*nearest is optimizer\.lr", *train, "optimizer.lrr=3")
    untouched(2, r"optimizer\.lr.*abc.*a number", *train, "--optimizer.lr", "abc")
    untouched(2, r"training\.steps.*1\.5.*whole number", *train, "--training.steps=1.5")
    untouched(2, r"training\.steps", *train, "--training.steps=5s")
    untouched(2, r"training\.dtype.*f32, bf16, f64", *train, "--training.dtype=fp8")
    untouched(2, r"data\.split", *train, "--data.split=[0.5, 0.6]")
    untouched(2, r"needs a value", *train, "--optimizer.lr")
    untouched(2, r"command line: model\.num_attention_heads: given 3, which does not divide hidden_size 16", *train,
              "--model.num_attention_heads=3")
    untouched(2, r"^trireme train: command line: model: num_key_value_heads 3 does not divide", *train,
              "--model.num_key_value_heads=3")
    untouched(2, "global_batch_size: given 5, which does not split over 2 data-parallel ranks: 4 and 6 do", *train,
              "--ranks=2", "--training.global_batch_size=5")
    # A refused run has nothing to say about its warm-up.
    untouched(2, r"^trireme train: command line: parallelism\.tensor_parallel_degree: given 3", *train,
              "--tensor_parallel_degree=3", "--lr_scheduler.warmup_steps=7")
    untouched(2, r'profiling\.trace_ranks: given none, expected ranks, as 0,1, or all', *train,
              "--profiling.trace_ranks=none")
    untouched(2, r"micro_batch_size.*3.*global_batch_size.*4", *train, "--training.micro_batch_size=3")
    untouched(2, r"trace_step: given 7, but the run ends with step 6", *train, "--profiling.trace_step=7")
    for path, why in ("nosuch", "No such file"), ("c.yaml", "Not a directory"):
        untouched(2, rf"optimizer\.offload_directory: given {path}, where no file can be made: {why}", *train,
                  "--optimizer.offload=file", f"--optimizer.offload_directory={path}")
    untouched(2, r"nosuch.*help models", "show", "memory", "--model.preset=nosuch")
    untouched(2, r"model\.family: given llama, but model\.preset .*leave one of them out", *train,
              "--model.preset=gpt2-124m")
    tool.write("bad.yaml", tool.CONFIG.replace("optimizer:\n  lr:", "optimizer:\n  learing_rate:"))
    untouched(2, r"bad\.yaml.*12.*learing_rate.*lr", "train", "bad.yaml")
    tool.write("bad.yaml", "model: [\n")
    untouched(2, r"bad\.yaml", "train", "bad.yaml")
    untouched(2, r"nosuch\.yaml", "train", "nosuch.yaml")
    for command in ["train"], ["verify"], ["show", "memory"], ["bench", "step"], ["simulate", "cluster=h100"]:
        untouched(2, r"llama3-8b: cannot open: .*--model\.preset=llama3-8b", *command, "llama3-8b")
    # A misspelt key of a command, or another system's name for it, is not taken for a key of the configuration.
    for command in ["plan", "gpt2-124m", "cluster=h100"], ["simulate", "c.yaml", "cluster=h100"]:
        for given in ["gpus=8"], ["--devces", "8"], ["device=8"]:
            name = given[0].strip("-").split("=")[0]
            untouched(2, rf'no key "{name}": did you mean devices= \(devices of the cluster\)\?', *command, *given)
        untouched(2, r'no key "nodes": did you mean devices= ', *command, "nodes=8")
        for given in ["best=3"], ["--best", "3"]:
            untouched(2, r'no key "best" \(given: "3"\): its own keys are cluster, devices, .*; `trireme help config` ',
                      *command, *given)
    untouched(2, r'no key "cluter": did you mean cluster= ', "plan", "gpt2-124m", "cluter=h100")
    untouched(2, r'no key "out": did you mean save= ', "plan", "gpt2-124m", "cluster=h100", "out=p.yaml")
    untouched(2, r'no key "num_microbatches" .*did you mean microbatches; ', "simulate", "schedule=1f1b", "stages=2",
              "num_microbatches=4")
    untouched(2, r"usage: trireme eval", "eval")
    # An unknown key is reported before what is missing besides.
    untouched(2, r"input: unknown key, given t\.txt; inputs are named without", "prepare", "--input", "t.txt")
    untouched(2, r"output_prefix: unknown key, given x; use data\.path", "prepare", "--output_prefix=x")
    untouched(2, r"ckpt: unknown key", "eval", "--ckpt", "run")
    untouched(2, r"num_samples: unknown key", "generate", "--num_samples=3")
    untouched(2, r"unexpected \"again\"", *train, "again")
    untouched(2, r"steps: unknown key, given 1; use training\.steps or validation\.steps", *train, "steps=1")
    untouched(2, r"model: is a section, given gpt2-124m; its keys are model\.preset, ", "train", "--model=gpt2-124m")
    untouched(2, r"program, memory, timeline, mesh or ranks", "show", "nothing", "c.yaml")
    untouched(2, r"peak, step or calibrate", "bench", "nothing")
    untouched(2, r"unknown key", "help", "nonsense")
    untouched(2, r"none/ranks\.bin: no such file: none is no run directory, or ", "show", "ranks", "none")
    # No argument is silently ignored.
    for given in ["--training.sepes=1"], ["--training.steps", "1"], ["training.steps=1"]:
        for command in ["show", "ranks", "run"], ["help"], ["help", "train"], ["help", "models"]:
            untouched(2, rf'unexpected "{given[0]}": .* takes no settings', *command, *given)
    untouched(2, r'unexpected "--x=y": help train takes no settings', "help", "train", "--x=y")
    untouched(2, r'unexpected "train"; usage: trireme help \[.*schedules\|.*exit_codes\] \| completion bash\|zsh$',
              "help", "show", "train")
    untouched(2, r'no key "best": its own keys are ', "plan", "gpt2-124m", "cluster=h100", "--best")
    for topic in [], ["train"], ["clusters"], ["schedules"], ["context_parallel"], ["exit_codes"]:
        untouched(2, r"help .*is text: leave --json out", "help", *topic, "--json")
    tool.good("train", "--help", "--json")
    tool.good("--help", "--json")
    code, out, err = tool.run("trian", "c.yaml")
    assert code == 2 and not out and "did you mean train?" in err and err.count("\n") == 1, err
    code, out, err = tool.run("sample", "run")
    assert code == 2 and err == "trireme: there is no command sample; `trireme help` lists all\n", err
    code, out, err = tool.run("--ranks=2", "train", "c.yaml")
    assert code == 2 and err == "trireme: a command comes before --ranks=2; `trireme help` lists all\n", err
    for more in ["b.bin"], ["b.bin", "c.bin"]:
        untouched(2, r'unexpected "b\.bin": give several token files as one pattern, in quotes', "train", "--data.path",
                  "a.bin", *more)
    # Words of other programs.
    untouched(2, r'unexpected "-i": a setting is written --section\.key=value', "train", "-i", "t/*.bin", "-b", "4")
    untouched(2, r"config: unknown key, given c.yaml; a configuration file is named without a key", "train",
              "--config=c.yaml")
    untouched(4, r"not a token file: .*nanoGPT.*uint16:t.txt; `trireme prepare` makes token files", *train,
              "data.path=t.txt")
    os.makedirs("a_run")
    tool.write("a_run/config.yaml", tool.CONFIG)
    for command in ["train"], ["show", "memory"], ["verify"]:
        untouched(2, r"a_run/? is a run.s directory: its configuration is a_run/?/config\.yaml", *command, "a_run/")
    # A model's config.json of Hugging Face is not a configuration: its keys are not reported one by one.
    os.makedirs("a_model")
    tool.write("a_model/config.json", '{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}')
    for command in ["train"], ["plan", "cluster=h100"], ["simulate", "cluster=h100"], ["show", "memory"]:
        untouched(2, r"a_model describes a model: its sizes are given by --model\.config=a_model, its weights too by "
                  r"--model\.init_from$", *command, "a_model")
        untouched(2, r"its sizes are given by --model\.config=a_model/config\.json$", *command, "a_model/config.json")
    tool.write("own.json", '{"model": {"family": "llama"}}')
    untouched(2, r"num_hidden_layers", "verify", "own.json")
    for name in "show", "verify", "bench":
        what = {"show": ["memory"], "bench": ["step"], "verify": []}[name]
        untouched(2, r"num_attention_heads: given 3", name, *what, "c.yaml", "--model.num_attention_heads=3")


def test_text():
    tool.write("empty.txt", "")
    tool.write("bytes.txt", b"abc\xff\xfedef")
    tool.write("fields.jsonl", '{"text": "a"}\n{"nope": "b"}\n')
    tool.write("broken.jsonl", '{"text": "a"}\n{"text": \n')
    tool.write("half.jsonl", '{"text": "a"}\n\n{"text": "\\ud800"}\n')
    tool.write("nan.jsonl", '{"text": "a"}\n{"text": "b", "score": NaN}\n')
    os.mkdir("nothing")
    os.mkdir("loop")
    tool.write("loop/a.txt", "a")
    os.symlink(".", "loop/back")
    for prefix in "--data.path=out/p", "--data.path=text/t": # a new one, and one that is there already
        untouched(2, r"missing\.txt", "prepare", "missing.txt", prefix)
        untouched(2, r"empty\.txt.*empty", "prepare", "empty.txt", prefix)
        untouched(4, r"bytes\.txt.*UTF-8 at byte 3", "prepare", "bytes.txt", prefix)
        untouched(4, r"bytes\.txt.*UTF-8", "prepare", "t.txt", "bytes.txt", prefix)
        untouched(4, r"fields\.jsonl line 2.*\"text\"", "prepare", "fields.jsonl", prefix)
        untouched(4, r"broken\.jsonl line 2", "prepare", "broken.jsonl", prefix)
        untouched(4, r"half\.jsonl line 3: byte .*ud800", "prepare", "half.jsonl", prefix)
        untouched(2, r"nothing.*no \.txt", "prepare", "nothing", prefix)
        untouched(2, r": loop/back: is a symbolic link that leads back", "prepare", "loop", prefix)
    untouched(2, r"data\.path", "prepare", "t.txt")
    untouched(3, r"t\.txt", "prepare", "t.txt", "--data.path=t.txt/p")


def test_token_files():
    untouched(2, r"nowhere\.bin", "train", "c.yaml", "--data.path=nowhere")
    tool.good("train", "c.yaml")
    for name in "bin", "idx":
        for cut in 1, 5, 40:
            shutil.copytree("text", "cut", dirs_exist_ok=True)
            os.truncate(f"cut/t.{name}", os.path.getsize(f"cut/t.{name}") - cut)
            for arguments in ["train", "c.yaml", "run.directory=new"], ["eval", "run"]:
                pattern = rf"cut/t\.{name}: \d+ bytes.*(expected|tells of|too short)"
                untouched(4, pattern, *arguments, "--data.path=cut/t")
            shutil.rmtree("cut")
    # Tokens outside of the model's vocabulary.
    shutil.copytree("text", "high")
    tool.write("high/t.bin", tool.read("text/t.bin").replace(b"f\0", b"f\1"))
    os.remove("high/t.sums")
    for arguments in ["train", "c.yaml", "run.directory=new"], ["eval", "run"]:
        code, out, err = tool.run(*arguments, "--data.path=high/t")
        assert code == 4 and "high/t.bin" in err.splitlines()[-1] and "vocabulary" in err, (arguments, code, err)
    # The tokens that validations will need are read before the first step.
    tool.plant_token()
    on_bad = ["train", "c.yaml", "run.directory=on_bad", "--data.validation_path=bad/t", "--data.split=[1, 0]"]
    untouched(4, "bad/t.bin: token .*position 1000 ", *on_bad, "--validation.steps=16")
    tool.good(*on_bad, "--validation.steps=15")


def test_nothing_to_predict():
    """Documents of one token have nothing to predict."""
    documents = 500 * '{"text": "a"}\n'
    tool.write("one.jsonl", documents)
    # The bytes of older versions, without tokens that begin and end texts.
    tool.good("train", "c.yaml", "--run.directory=whole")
    tokenizer = json.loads(tool.read("whole/checkpoint/step-6/tokenizer.json"))
    tool.write("bytes.json", json.dumps({**tokenizer, "added_tokens": [], "post_processor": None}))
    assert tool.good_json("prepare", "one.jsonl", "--data.path=one/t", "--data.tokenizer=bytes.json")["tokens"] == 500
    untouched(2, "the training data has no token to predict", "train", "c.yaml", "--data.path=one/t")
    untouched(2, "the validation data has no token to predict", "train", "c.yaml",
              "--data.validation_path=one/t", "--data.split=[1, 0]")
    tool.write("few.jsonl", documents + '{"text": "bc"}\n' + documents)
    tool.good("prepare", "few.jsonl", "--data.path=few/t", "--data.tokenizer=bytes.json")
    few = ["train", "c.yaml", "--data.path=few/t", "--data.split=[1, 0]", "--validation.freq=0", "--metrics.log_freq=1",
           "--training.global_batch_size=2"]
    # Neither of the two windows of the first step has a target; of all some sixty windows one has.
    code, out, err = tool.run(*few, "--training.steps=1")
    assert code == 6 and "no step of 1 met a token to predict" in err.splitlines()[-1], (code, err)
    assert "loss: no targets  " in out and tool.metrics("run")[0]["loss"] is None, out
    out = tool.good(*few, "--training.steps=40", "--run.directory=new")
    losses = [line["loss"] for line in tool.metrics("new")]
    assert "loss: no targets  " in out and 1 <= sum(loss is not None for loss in losses) <= 4, losses


def test_directories():
    os.mkdir("foreign")
    tool.write("foreign/lock", "mine")
    tool.write("foreign/thesis.txt", "mine too")
    tool.good("train", "c.yaml", "--run.directory=foreign")
    assert tool.read("foreign/thesis.txt") == b"mine too"
    # What a start that was cut short leaves.
    os.mkdir("begun")
    for name in "lock", "ranks.bin":
        tool.write(f"begun/{name}", "")
    tool.good("train", "c.yaml", "--run.directory=begun")
    os.symlink("nowhere", "link")
    here = sorted(os.listdir("."))
    tool.refused(3, "link: cannot create the directory: a symbolic link of that name leads nowhere", "train", "c.yaml",
                 "--run.directory=link")
    assert sorted(os.listdir(".")) == here
    os.remove("link")
    os.mkdir("taken")
    tool.write("taken/metrics.jsonl", "mine")
    untouched(2, r"taken holds metrics.jsonl, but is no run's", "train", "c.yaml", "--run.directory=taken")
    os.rename("foreign/config.yaml", "away")
    untouched(2, r"foreign holds checkpoint, but is no run's \(that would have config.yaml", "train", "c.yaml",
              "--run.directory=foreign")
    os.rename("away", "foreign/config.yaml")
    assert "all 6 steps are done" in tool.good("train", "c.yaml", "--run.directory=foreign")
    untouched(3, r"t\.txt", "train", "c.yaml", "--run.directory=t.txt")
    untouched(3, r"t\.txt", "train", "c.yaml", "--run.directory=t.txt/run")
    for command in ["eval", "text", "data.path=text/t"], ["generate", "text"]:
        untouched(2, r"neither a model.*nor a run", *command)
    untouched(2, r": nowhere: no such directory$", "generate", "nowhere")
    untouched(2, r": t\.txt is a file: give the model's or the run's directory$", "generate", "t.txt")
    for command in ["generate"], ["train"], ["eval"], ["verify"], ["prepare", "t.txt"], ["show", "ranks"]:
        untouched(2, rf'^trireme {command[0]}: unexpected ""; usage: trireme {command[0]} ', *command, "")
    tool.good("train", "c.yaml", "--run.directory=whole")
    untouched(2, r"whole/checkpoint holds the checkpoints of a run: give .* the run directory above it", "generate",
              "whole/checkpoint")
    # A user who names a checkpoint means its run, or a run that starts from it.
    untouched(2, r"whole/checkpoint/step-6 holds a model: to go on .*model.init_from=whole/checkpoint/step-6$", "train",
              "c.yaml", "--run.directory=whole/checkpoint/step-6")
    untouched(2, r"whole/checkpoint holds the checkpoints of a run: name the directory above it$", "train", "c.yaml",
              "--run.directory=whole/checkpoint")
    # A directory in the place of a checkpoint is set aside, not lost.
    os.makedirs("run/checkpoint/step-6")
    tool.write("run/checkpoint/step-6/mine", "mine")
    tool.write("run/lock", "")
    tool.write("run/config.yaml", "")
    untouched(4, r"step-6", "generate", "run")


def test_foreign_tokens():
    """Token files that `trireme prepare` did not make have no tokenizer; a model on them trains, but writes no text."""
    # llm.c's shards name the tokenizer of their tokens.
    for name, magic, version, code in ("gpt2", 20240520, 1, "H"), ("llama3", 20240801, 7, "I"):
        tool.write(f"{name}.bin", struct.pack(f"<256i100{code}", magic, version, 100, *[0] * 253, *[1] * 100))
    for pair in ("gpt2.bin", "text/t"), ("text/t", "gpt2.bin"):
        untouched(2, r"gpt2\.bin holds tokens of GPT-2, but text/t\.bin those of the bytes tok", "train", "c.yaml",
                  "--model.vocab_size=256", f"--data.path={pair[0]}", "--data.split=[1, 0]",
                  f"--data.validation_path={pair[1]}")
    os.remove("text/t.json")
    untouched(2, r"c\.yaml:\d+: data\.path: given text/t, but token files .* set model\.vocab_size", "train", "c.yaml")
    tool.good("train", "c.yaml", "--model.vocab_size=258")
    tool.good("eval", "run", "data.path=gpt2.bin")
    # Tokens alone, as nanoGPT writes them; one that is in no vocabulary is named before a run begins.
    tool.write("nano.bin", struct.pack("<2000H", *[i % 250 for i in range(2000)]))
    tool.good("train", "c.yaml", "--model.vocab_size=256", "--data.path=uint16:nano.bin", "--run.directory=nano")
    tool.write("other.bin", struct.pack("<2000H", *[250 if i == 1000 else i % 200 for i in range(2000)]))
    untouched(4, r"other\.bin: token 250 at position 1000 \(byte 2000\) is outside of the vocabulary of 240", "train",
              "c.yaml", "--model.vocab_size=240", "--data.path=uint16:other.bin", "--run.directory=none")
    untouched(2, r"step-6 has no tokenizer\.json: .* `trireme prepare` did not make, and cannot generate", "generate",
              "run")
    untouched(2, r"gpt2\.bin holds tokens of GPT-2, but llama3\.bin those of Llama 3", "train", "c.yaml",
              "--model.vocab_size=256", "--data.path=gpt2.bin", "--data.split=[1, 0]",
              "--data.validation_path=llama3.bin", "--run.directory=none")


def test_several_token_files():
    """A pattern of prepared files works like one file; a separate text to validate on has a tokenizer, too."""
    tool.write("u.txt", "Pack my box with five dozen liquor jugs. " * 100)
    tool.good("prepare", "u.txt", "--data.path=text/u")
    trained = tool.good_json("train", "c.yaml", "--data.path=text/*.bin")
    assert os.path.exists(trained["checkpoint"] + "/tokenizer.json")
    assert tool.good_json("eval", "run", "data.path=text/*.bin")["bits_per_byte"] > 0
    own = tool.good_json("eval", "run", "data.path=text/t", "data.validation_path=text/u")
    assert own["bits_per_byte"] == tool.good_json("eval", "run", "data.path=text/u")["bits_per_byte"]
    os.rename("text/u.json", "u.json")
    untouched(2, r"text/t\.bin was made by `trireme prepare`, text/u\.bin was not", "train", "c.yaml",
              "--data.path=text/*.bin", "--run.directory=none")
    tool.write("text/u.json", tool.read("u.json").replace(b'"tokens": 4102', b'"tokens": 4103'))
    untouched(4, r"text/u\.json: tells of 4103 tokens, but the token files hold 4102", "train", "c.yaml",
              "--data.split=[1, 0]", "--data.validation_path=text/u", "--run.directory=none")
    untouched(2, "run.directory: given \"\", expected a path", "train", "c.yaml", "--run.directory=")


def test_does_not_fit():
    size = [f"--model.{key}=0" for key in ("num_hidden_layers", "hidden_size", "num_attention_heads")]
    begin = time.monotonic()
    line = untouched(5, r"needs [0-9.]+ GB and [0-9.]+ GB are available.* at its peak \S+ [0-9.]+ [MGT]B", "train",
                     "c.yaml", "--model.family=auto", *size, "--model.preset=llama3.1-405b")
    assert time.monotonic() - begin < 60 and ("layers." in line or "embed" in line), line
    line = untouched(5, r"does not fit.*training\.micro_batch_size", "train", "c.yaml",
                     "--training.global_batch_size=4000000")
    assert re.search(r"state [0-9.]+ kB, the largest \S+ [0-9.]+ k?B; step [0-9.]+ GB", line), line
    # A model that does not fit into memory with any dtype.
    tool.refused(5, r"does not fit.*; take a smaller model$", "bench", "step", "--model.preset=llama3.1-405b")


LEAST = 1100 # bytes of a file: LLVM's OpenMP, which clang brings, does not start with less than 1024


def limit(size):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_disk_full():
    # A run that cannot even write its configuration leaves no directory behind.
    untouched(3, r"new/config\.yaml", "train", "c.yaml", "--run.directory=new", preexec_fn=limit(LEAST))
    kept = tool.snapshot("text")
    tool.write("long.txt", "some text that is long enough\n" * 2000)
    untouched(3, r"text/\S*t\.bin", "prepare", "long.txt", "--data.path=text/t", preexec_fn=limit(20000))
    untouched(3, r"out/\S*p\.bin", "prepare", "long.txt", "--data.path=out/p", preexec_fn=limit(20000))
    assert tool.snapshot("text") == kept
    arguments = ["train", "c.yaml", "--checkpoint.keep_latest_k=1"]
    code, _, err = tool.run(*arguments, "--run.directory=empty", preexec_fn=limit(30000))
    assert code == 3 and re.search(r"step 6 is not saved \(nothing is saved, the same command begins again\): "
                                   r"empty/checkpoint/\S+: cannot (reserve|write)", err.splitlines()[-1]), (code, err)
    # The checkpoint of step 2 stays when that of step 4 cannot be written, and the run goes on from it.
    tool.good("train", "c.yaml", "--run.directory=whole")
    tool.good(*arguments, "--training.steps=2", "--lr_scheduler.decay_steps=6")
    kept = tool.snapshot("run/checkpoint")
    code, out, err = tool.run(*arguments, preexec_fn=limit(30000))
    assert code == 3 and "run/checkpoint" in err.splitlines()[-1], (code, err)
    assert tool.snapshot("run/checkpoint") == kept
    tool.good(*arguments)
    assert tool.weights("run", 6)[0] == tool.weights("whole", 6)[0]
    # If the line of a step cannot be written, the run goes on without.
    room = len(tool.read("run/config.yaml")) + 4000
    for more, words, saved in ((["--metrics.enable_tensorboard=false"], r"metrics\.jsonl", "goes on from step 6, once"),
                               (["--run.directory=new"], r"new/tb/events\.\S*", "nothing is saved")):
        code, _, err = tool.run(*arguments, *more, "--training.steps=200", "--checkpoint.interval=0",
                                "--validation.freq=0", preexec_fn=limit(room))
        assert code == 3 and re.search(rf"step 200 is not saved \(.*{saved}", err.splitlines()[-1]), (code, err)
        # It says so once; a shorter line may find room yet, and that is said as well.
        left_out = re.findall(rf"{words}: cannot write: File too large: left out from step \d+", err)
        assert len(left_out) == 1 + len(re.findall(rf"{words}: goes on with step \d+", err)), err
    # What dead processes left is removed before anything is written: it may be what fills the disk.
    dead = f"run/checkpoint/.tmp-step-8-{os.getpid()}"
    os.mkdir(dead)
    code, _, err = tool.run(*arguments, preexec_fn=limit(LEAST))
    assert code == 3 and "run/config.yaml" in err and not os.path.exists(dead), (code, err)
    more = "--training.steps=8", "--checkpoint.interval=1"
    tool.good("train", "c.yaml", *more)
    tool.run(*arguments, *more, preexec_fn=limit(LEAST))
    assert os.listdir("run/checkpoint") == ["step-8"]


def test_settings_of_no_use():
    tool.good("train", "c.yaml")
    untouched(2, "model.hidden_size: eval does not use this key; it takes data.path, data.mixture, "
              "data.split, .*_threads, parallelism", "eval", "run", "data.path=text/t", "--model.hidden_size=77")
    # A key that a command cannot use is not ignored either where others of its section can be used.
    untouched(2, "training.steps: eval does not use this key", "eval", "run", "data.path=text/t", "--training.steps=7")
    untouched(2, r"training.seq_len: generate does not use this key; it takes generate\.\*, training\.dtype, ",
              "generate", "run", "--prompt=a", "--training.seq_len=8")
    untouched(2, r"data.split: prepare does not use this key; it takes data\.path, data\.tokenizer, "
              r"data\.text_field, data\.chat_template, data\.bad_lines, tokenizer\.pattern$", "prepare", "t.txt",
              "--data.path=text/u", "--data.split=[0.9, 0.1]")
    untouched(2, "optimizer.lr: generate does not use this key", "generate", "run", "--prompt=a", "--optimizer.lr=1")
    untouched(2, "training.steps: prepare does not use this key", "prepare", "t.txt", "--data.path=text/u",
              "--training.steps=7")
    code, _, err = tool.run("train", "c.yaml", "--training.steps=7", "--optimizer.lr=2e-2")
    told = "with other settings from here on: training.steps 7 (before: 6), optimizer.lr 0.02 (before: 0.01)\n"
    assert code == 0 and told in err, err
    # The tokens behind val_loss are not tokens that a run trains on, so they may change.
    tool.good("train", "c.yaml", "--data.split=[1, 0]", "--data.validation_path=text/t", "--run.directory=other")
    shutil.copytree("text", "moved")
    code, _, err = tool.run("train", "c.yaml", "--data.split=[1, 0]", "--data.validation_path=moved/t",
                            "--validation.freq=2", "--training.steps=7", "--run.directory=other")
    told = ("with other settings from here on: training.steps 7 (before: 6), data.validation_path moved/t "
            "(before: text/t), validation.freq 2 (before: 3)\n")
    assert code == 0 and told in err, err
    # The mesh, the dtype in which gradients travel, and recomputation.
    code, _, err = tool.run("train", "c.yaml", "--reduce_dtype=bf16", "--ranks=2", "--training.steps=8",
                            "--activation_checkpoint.mode=full")
    told = ("with other settings from here on: training.steps 8 (before: 7), optimizer.lr 0.01 (before: 0.02), "
            "activation_checkpoint.mode full (before: none), parallelism.ranks 2 (before: 0), "
            "parallelism.reduce_dtype bf16 (before: f32)\n")
    assert code == 0 and told in err, err


def test_long_paths():
    # The path in the result is the checkpoint's, to the last byte that there is room for.
    longest = "/".join(["d" * 99] * 4 + ["d" * (511 - 400 - len("/checkpoint/step-6"))])
    untouched(2, "run.directory: given .*, which is too long by 1: a checkpoint's path has at most 511 bytes", "train",
              "c.yaml", f"--run.directory={longest}d")
    untouched(2, "which is too long by 1", "train", "c.yaml", f"--run.directory={longest}", "--training.steps=10")
    trained = tool.good_json("train", "c.yaml", f"--run.directory={longest}")
    assert trained["checkpoint"] == f"{longest}/checkpoint/step-6" and len(trained["checkpoint"]) == 511, trained
    assert os.path.exists(trained["checkpoint"] + "/config.json")


def test_init_from():
    tool.good("train", "c.yaml", "--run.directory=first")
    name = "model.layers.0.self_attn.q_proj.weight"

    def drop(tensors):
        del tensors[name]

    def add(tensors):
        tensors["model.layers.7.extra.weight"] = ([2], bytes(8))

    def reshape(tensors):
        tensors[name] = ([16, 8], tensors[name][1][:512])

    for i, (change, pattern) in enumerate([(drop, name), (add, "model.layers.7.extra.weight"),
                                           (reshape, name + r".*16.*8")]):
        path = f"weights-{i}"
        shutil.copytree("first/checkpoint/step-6", path)
        os.remove(f"{path}/manifest.json")
        edit_weights(path, change)
        untouched(4, pattern, "train", "c.yaml", f"--model.init_from={path}", "--run.directory=new")
    # A run says what it is about to do before anything large is loaded.
    code, out, _ = tool.run("train", "c.yaml", "--model.init_from=weights-0", "--run.directory=new")
    assert code == 4 and "M parameters, 1 thread" in out, out
    untouched(2, "command line: model.init_from: given nowhere, where there is nothing: a model of a hub", "train",
              "c.yaml", "--model.init_from=nowhere", "--run.directory=new")
    tool.write("x.gguf", b"GGUF\3\0\0\0")
    tool.write("ckpt.pt", b"PK\3\4")
    for path, what in (("x.gguf", "is a GGUF file"), ("ckpt.pt", "is a PyTorch checkpoint"),
                       ("first/checkpoint/step-6/model.safetensors", "is a safetensors file: give the directory"),
                       ("first/checkpoint/step-6/config.json", "is a file: give the model's directory")):
        untouched(2, what, "train", "c.yaml", f"--model.init_from={path}", "--run.directory=new")
    untouched(2, "x.gguf is a GGUF file", "train", "data.path=text/t", "--model.config=x.gguf")
    tool.write("config.yaml", "model: {preset: llama-5m}\ndata:\n  path: text/t\n  validation_path: none\n")
    untouched(2, "config.yaml:4: data.validation_path: none.bin: no such file, so there are no tokens", "train",
              "config.yaml")
    tool.write("config.yaml", "model:\n  config: nowhere\ndata:\n  path: text/t\n")
    untouched(2, "config.yaml:2: model.config: nowhere: no such file or directory", "train", "config.yaml")
    shutil.copytree("first/checkpoint/step-6", "damaged")
    tool.flip("damaged/model.safetensors", -100)
    untouched(4, "damaged/model.safetensors: .* are damaged", "train", "c.yaml", "--model.init_from=damaged",
              "--run.directory=new")
    code, _, err = tool.run("train", "c.yaml", "--model.init_from=first", "--run.directory=of-run")
    assert code == 0 and "starting from the weights in first/checkpoint/step-6" in err, err
    assert "is not quite what" not in err, err
    code, _, err = tool.run("train", "c.yaml", "--model.init_from=first", "--run.directory=turned",
                            "--model.rope_theta=500", "--training.steps=1")
    assert code == 0 and "is not quite what the weights are of: rope_theta 500 (theirs: 10000)\n" in err, err
    code, _, err = tool.run("train", "c.yaml", "--model.init_from=first", "--run.directory=third", "model.family=gpt2")
    assert code == 2 and "another architecture" in err and "is not quite what" not in err, err
    # A name and sizes do not say which tokens begin and end the texts that the weights know.
    shutil.copytree("first/checkpoint/step-6", "ends")
    config = json.loads(tool.read("ends/config.json"))
    tool.write("ends/config.json", json.dumps({**config, "bos_token_id": 9, "eos_token_id": [10, 13]}))
    tool.good("train", "c.yaml", "--model.init_from=ends", "--run.directory=with-ends", "--training.steps=1")
    config = json.loads(tool.read("with-ends/checkpoint/step-1/config.json"))
    assert (config["bos_token_id"], config["eos_token_id"]) == (9, [10, 13]), config
    assert tool.good("verify", "--model.init_from=first", "--training.seq_len=8")
    tool.good("train", "c.yaml", "--model.init_from=first/checkpoint/step-6", "--run.directory=new")
    assert [line["loss"] for line in tool.metrics("of-run")] == [line["loss"] for line in tool.metrics("new")]
    tool.good("train", "c.yaml", "--run.directory=first", "--training.steps=7", "--checkpoint.keep_latest_k=0")
    os.truncate("first/checkpoint/step-7/model.safetensors", 1000)
    untouched(4, "step-7.*the newest complete checkpoint is first/checkpoint/step-6", "train", "c.yaml",
              "--model.init_from=first", "--run.directory=third")
    shutil.rmtree("first/checkpoint")
    tool.good("train", "c.yaml", "--model.init_from=first", "--run.directory=of-run", "--training.steps=7")
    assert tool.metrics("new")[0]["loss"] < tool.metrics("first")[0]["loss"]
    # A run that exists has weights of its own; with the same words it is the same run.
    untouched(2, "model.init_from: given nowhere, but the run in new goes on with", "train", "c.yaml",
              "--run.directory=new", "--model.init_from=nowhere")
    tool.good("train", "c.yaml", "--model.init_from=first/checkpoint/step-6", "--run.directory=new")


def test_tokenizer_of_the_model():
    """Tokens of another tokenizer than the model's are refused; where tokens name none, the model keeps its own."""
    tool.good("train", "c.yaml", "--run.directory=bytes")
    shutil.copytree("bytes/checkpoint/step-6", "other")
    tokenizer = json.loads(tool.read("other/tokenizer.json"))
    tokenizer["model"]["merges"] = [["a", "b"]]
    tool.write("other/tokenizer.json", json.dumps(tokenizer))
    others = ("special_tokens_map.json", "added_tokens.json", "vocab.json", "generation_config.json", "merges.txt",
              "tokenizer.model", "chat_template.jinja")
    for name in others:
        tool.write(f"other/{name}", "{}" if name.endswith(".json") else "a b")
    os.remove("other/manifest.json")
    words = "data.path: given text/t, whose tokens are those of the bytes tokenizer, but the model in other has another"
    untouched(2, words, "train", "c.yaml", "--model.init_from=other", "--run.directory=new")
    untouched(2, words, "eval", "other", "data.path=text/t", "--training.seq_len=8")
    tool.write("gpt2.bin", struct.pack("<256i100H", 20240520, 1, 100, *[0] * 253, *[1] * 100))
    untouched(2, "given gpt2.bin, whose tokens are those of GPT-2, but the model in bytes/checkpoint/step-6 has",
              "eval", "bytes", "data.path=gpt2.bin")
    for end in "bin", "idx":
        shutil.copy(f"text/t.{end}", f"text/plain.{end}")
    untouched(2, words.replace("data.path", "data.validation_path"), "train", "c.yaml", "--model.init_from=other",
              "--run.directory=new", "--model.vocab_size=258", "--data.path=text/plain", "--data.split=[1, 0]",
              "--data.validation_path=text/t")
    train = ["train", "c.yaml", "--data.path=text/plain", "--model.vocab_size=258", "--run.directory=new"]
    tool.good(*train, "--model.init_from=other")
    tool.good(*train, "--training.steps=7")

    def check(checkpoint):
        for name in "tokenizer.json", "tokenizer_config.json", *others:
            assert tool.read(f"{checkpoint}/{name}") == tool.read(f"other/{name}"), (checkpoint, name)

    check("new/checkpoint/step-6")
    check("new/checkpoint/step-7")
    # So does a model from which only the sizes are taken, unless its vocabulary differs.
    tool.write("d.yaml", tool.CONFIG[tool.CONFIG.index("training:"):])
    shutil.copytree("other", ".", dirs_exist_ok=True)
    train = ["train", "d.yaml", "--data.path=text/plain"]
    for number, path in enumerate(("other", "other/", "other/config.json", "config.json", os.path.abspath("other"))):
        tool.good(*train, f"--model.config={path}", f"--run.directory=sizes{number}")
        check(f"sizes{number}/checkpoint/step-6")
    tool.good(*train, "--model.config=other", "--model.vocab_size=300", "--run.directory=larger")
    assert not [name for name in os.listdir("larger/checkpoint/step-6") if "token" in name]


def test_sizes_beyond_counting():
    most = ["--model.family=llama", "--model.hidden_size=1048576", "--model.num_attention_heads=65536",
            "--model.num_hidden_layers=1", "--model.vocab_size=16777216", "--training.seq_len=16777216",
            "--training.global_batch_size=16777216"]
    for command in ["verify"], ["show", "memory"], ["simulate", "cluster=h100", "--training.dtype=bf16"]:
        untouched(2, "training.micro_batch_size: .* fit no address space", *command, *most)
    # Each microbatch fits by itself, but not all that are held.
    held = ["--model.hidden_size=1024", "--model.family=llama", "--model.num_attention_heads=4",
            "--model.num_hidden_layers=2", "--model.vocab_size=256", "--training.seq_len=16777216",
            "--training.global_batch_size=16777216", "--training.micro_batch_size=1048576",
            "--parallelism.pipeline_parallel_degree=2", "--parallelism.pipeline_parallel_schedule=gpipe"]
    for command in ["verify"], ["show", "memory"], ["simulate", "cluster=h100"]:
        untouched(5, "activations in 16 slots do not fit any address space", *command, *held)
    fits = ["--model.hidden_size=64", "--training.global_batch_size=1048576", "--training.micro_batch_size=1048576"]
    assert "|" + 50 * "#" + "|" in tool.good("show", "memory", *held[1:-4], *fits)
    pieces = r"training\.logits_rows: given 64, but makes 8388608 pieces of the 536870912 tokens .*: give 32768 or more"
    untouched(2, pieces, "verify", "--model.family=llama", "--model.hidden_size=16", "--model.num_attention_heads=2",
              "--model.num_hidden_layers=1", "--training.seq_len=32", "--training.global_batch_size=16777216",
              "--training.logits_rows=64")
    # However many logits a microbatch has, the program stays small enough to read.
    program = tool.good("show", "program", "--model.family=llama", "--model.hidden_size=64",
                        "--model.num_attention_heads=4", "--model.num_hidden_layers=1", "--model.vocab_size=128256",
                        "--training.seq_len=8192", "--training.global_batch_size=1024")
    assert 900 < len(set(re.findall(r"d\.logits\.rows\d+", program))) <= 1000


def test_nothing_to_train_on():
    untouched(2, r"data.split: given .*, but that leaves nothing to train on", "train", "c.yaml",
              "--data.split=[0,1]", "--run.directory=none")
    tool.good("train", "c.yaml")
    assert "loss" in tool.good("eval", "run", "data.path=text/t", "--data.split=[0,1]")


def test_closed_streams():
    """Files that a run opens do not take the place of streams that are closed."""
    for i, closed in enumerate(["<&- >&- 2>&-", ">&-", "2>&-", "<&- 2>&-", "<&- >&-"]):
        train = (f'"{tool.BINARY}" train c.yaml run.directory=closed{i} checkpoint.interval=1 training.steps=2 '
                 f"{closed}")
        process = subprocess.run(["sh", "-c", train], capture_output=True, text=True, check=False)
        assert process.returncode == (3 if ">&-" in closed.replace("2>&-", "") else 0), (closed, process)
        lines = [json.loads(line) for line in tool.read(f"closed{i}/metrics.jsonl").decode().splitlines()]
        assert [line["step"] for line in lines] == [1, 2], (closed, lines)
        assert not tool.read(f"closed{i}/lock") and b"saved" not in tool.read(f"closed{i}/ranks.bin"), closed
    process = subprocess.run(["sh", "-c", f'"{tool.BINARY}" prepare - data.path=text/none <&-'], capture_output=True,
                             text=True, check=False)
    assert process.returncode == 3 and "standard input: cannot read" in process.stderr, process


tool.main(globals())
