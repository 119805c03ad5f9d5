"""The example in the help of every command runs as it is printed, one after the other; and what shells complete."""

import os
import shlex
import shutil
import signal
import subprocess

import tool

SOURCE = os.environ["TRIREME_SOURCE"]


def test_examples():
    os.symlink(f"{SOURCE}/examples", "examples")
    os.mkdir("notes")
    tool.write("book.txt", "It was the best of times, it was the worst of times.\n" * 400)
    tool.write("notes/one.txt", "It was the age of wisdom.\n" * 100)
    commands = [line.split()[0] for line in tool.good("help").splitlines() if line.startswith("  ") and line[2] != " "]
    assert {"prepare", "train", "eval", "generate", "help"} <= set(commands), commands
    for command in commands:
        examples = [line for line in tool.good("help", command).splitlines() if line.startswith("example: trireme ")]
        assert len(examples) == 1, (command, examples)
        words = shlex.split(examples[0])[2:]
        assert words[0] == command
        if command != "train":
            tool.good(*words)
            continue
        process = tool.start(*words) # which would take minutes
        tool.await_step(process, "runs/mine")
        process.send_signal(signal.SIGINT)
        code, _, err = tool.finish(process)
        assert code == 75 and "all is saved" in err, (code, err)


# How bash calls a completion: `=` ends a word.
BASH = r"""
source <("$0" help completion bash)
COMP_LINE=$1 COMP_POINT=${#1}
read -ra COMP_WORDS <<<"${1//=/ = }"
[[ $1 != *' ' ]] || COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
compopt() { :; }
_trireme
printf '%s\n' "${COMPREPLY[@]}"
"""
# And zsh, whose functions for it say what they get.
ZSH = r"""
compset() { :; }
_files() { :; }
compadd() { while [[ $1 == -* && $1 != -- ]]; do [[ $1 == -S ]] && shift; shift; done; shift; print -l -- "$@"; }
words=("${(@s: :)1}") CURRENT=${#words}
source <("$0" help completion zsh)
"""


def completed(shell, line):
    script = {"bash": BASH, "zsh": ZSH}[shell]
    done = subprocess.run([shell, "-c", script, tool.BINARY, line], capture_output=True, text=True,
                          timeout=tool.TIMEOUT, check=True)
    assert not done.stderr, done.stderr
    last = line.split(" ")[-1].split("=")[-1]
    # zsh itself leaves out what does not begin so.
    return sorted(word for word in done.stdout.split() if shell == "bash" or word.startswith(last))


def test_completion():
    for shell in "bash", "zsh":
        if not shutil.which(shell):
            continue
        assert completed(shell, "trireme t") == ["tokenizer", "train"]
        assert completed(shell, "trireme show m") == ["memory", "mesh"]
        assert completed(shell, "trireme simulate c") == ["cluster="]
        assert completed(shell, "trireme tokenizer ") == ["chat", "decode", "encode", "show", "train"]
        assert completed(shell, "trireme train --lr_scheduler.d") == [
            "--lr_scheduler.decay_ratio=", "--lr_scheduler.decay_steps=", "--lr_scheduler.decay_type="]
        assert completed(shell, "trireme train --checkpoint.async") == ["--checkpoint.async_save="]
        for key in "--lr_scheduler.decay_type=", "decay_type=", "lr_scheduler.decay_type=":
            assert completed(shell, f"trireme train {key}c") == ["constant", "cosine"], key
        assert completed(shell, "trireme train --checkpoint.async_save=") == ["false", "true"]
        # A command's own options and keys, which need no section.
        assert completed(shell, "trireme generate run --cha") == ["--chat", "--chat_template="]
        assert completed(shell, "trireme generate run --lin") == []
        assert completed(shell, "trireme tokenizer encode --lin") == ["--lines"]
        assert completed(shell, "trireme convert --js") == ["--json"]
        for key in "--dtype=", "dtype=", "--convert.dtype=":
            assert completed(shell, f"trireme convert a b {key}f") == ["f16", "f32"], key
            assert completed(shell, f"trireme train {key}b") == ["bf16"], key
        assert completed(shell, "trireme simulate cluster=a") == ["a100", "a100-flash"]
        assert completed(shell, "trireme train run.directory=x") == []
        assert completed(shell, "trireme train run/x") == []
    tool.refused(2, "help completion: for bash or zsh, not \"fish\"", "help", "completion", "fish")


tool.main(globals())
