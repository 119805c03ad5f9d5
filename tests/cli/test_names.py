"""Names of files may hold any bytes: what is not UTF-8, ends of lines, controls. They break no line that is written."""

import base64
import json
import os
import re
import subprocess

import tool

# Latin-1; a line end and controls; what YAML and JSON escape, and '=' before a slash; a surrogate and Unicode's ends of
# lines.
NAMES = [b"d\xff\xe9", b"n\nl\x1b[2J\x01\x7f", b"q\"\\ '#:\tx=y", b"u\xc2\x85\xe2\x80\xa8\xed\xa0\x80"]


def shown(name):
    """How people read it, whether alone or inside a line."""
    out = ""
    for character in name.decode("utf-8", "surrogateescape"):
        code = ord(character)
        plain = 0x20 <= code < 0x7F or (code > 0x9F and not 0xDC80 <= code <= 0xDCFF)
        out += character if plain else "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))
    return out


def path_of(value):
    """The bytes of a path in JSON."""
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value.encode()


def call(code, *arguments):
    words = [word if isinstance(word, bytes) else word.encode() for word in arguments]
    done = subprocess.run([tool.BINARY.encode(), *words], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=tool.TIMEOUT)
    assert done.returncode == code, (arguments, done.returncode, done.stderr)
    for stream in done.stdout, done.stderr:
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", stream.decode()), (arguments, stream)
    return done.stdout.decode(), done.stderr.decode()


def written(run, key):
    """The line of config.yaml that has a key, and the bytes of its value; the file is UTF-8, each key on a line."""
    text = tool.read(run + b"/config.yaml").decode()
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028]", text), text
    line, = [line for line in text.split("\n") if line.startswith(f"  {key}: ")]
    value = line.split(": ", 1)[1].rsplit(" # ", 1)[0].strip()
    if value.startswith("!!binary "):
        return line, base64.b64decode(json.loads(value[len("!!binary "):]))
    return line, (json.loads(value) if value.startswith('"') else value).encode()


def test_names_of_any_bytes():
    for name in NAMES[::3 if tool.SANITIZED else 1]:
        os.makedirs(name)
        data, run = name + b"/t" + name, name + b"/r" + name
        readable = shown(data)
        out, _ = call(0, "prepare", "t.txt", b"--data.path=" + data)
        assert out == f"4502 tokens of 1 document in 1 file are in {readable}.bin and {readable}.idx\n", out
        out, _ = call(0, "prepare", "t.txt", b"--data.path=" + data, "--json")
        assert path_of(tool.strict_json(out)["path"]) == data, out
        for suffix in b".bin", b".idx", b".json":
            assert os.path.exists(data + suffix), data + suffix

        out, err = call(0, "train", "c.yaml", b"--data.path=" + data, b"--run.directory", run)
        assert f"\nthe model is in {shown(run)}/checkpoint/step-6\n" in out, out
        assert err == f"saved {shown(run)}/checkpoint/step-6\n", err
        assert written(run, "path")[1] == data and written(run, "directory")[1] == run, written(run, "path")
        # What was read of the data is known by the files' names.
        record = tool.strict_json(tool.read(run + b"/data.json").decode())
        assert [path_of(file["name"]) for file in record["files"]] == [data + b".bin", data + b".idx"], record

        # Resumed by its own file, by its directory alone, and as another run's beginning.
        out, err = call(0, "train", run + b"/config.yaml", "--training.steps=7")
        assert f"going on from {shown(run)}/checkpoint/step-6\n" in out, out
        assert err.splitlines()[0] == "with other settings from here on: training.steps 7 (before: 6)", err
        out, _ = call(0, "train", b"--run.directory=" + run, "--training.steps=8", "--json")
        assert path_of(tool.strict_json(out)["checkpoint"]) == run + b"/checkpoint/step-8", out
        os.rename(run + b"/metrics.jsonl", run + b"/kept")
        os.symlink("kept", run + b"/metrics.jsonl")
        _, err = call(0, "train", b"--run.directory=" + run, "--training.steps=9")
        assert f"{shown(run)}/metrics.jsonl: is a symbolic link: it stays as metrics.jsonl.aside-1, and " in err, err
        other = run + b"2"
        call(0, "train", b"--data.path=" + data, b"--model.init_from=" + run, b"--run.directory=" + other,
             "--training.steps=2", "--training.seq_len=16", "--training.global_batch_size=4", "--ranks=2",
             "optimizer.offload=file", b"optimizer.offload_directory=" + name, b"data.validation_path=" + data)
        for key, value in ("init_from", run), ("offload_directory", name), ("validation_path", data):
            assert written(other, key)[1] == value, written(other, key)

        call(0, "eval", run, b"--data.path=" + data)
        call(0, "generate", run, "--prompt=The", "--max_new_tokens=4", "--json")
        call(0, "show", "ranks", run)
        call(0, "show", "memory", run + b"/config.yaml")
        call(0, "verify", run + b"/config.yaml")
        call(0, "simulate", run + b"/config.yaml", "cluster=cpu", b"trace=" + name + b"/trace", "--ranks=2")
        tool.write(name + b"/cluster", tool.CLUSTER)
        simulate = ["simulate", "c.yaml", b"cluster=" + name + b"/cluster", "--ranks=2"]
        out, _ = call(0, *simulate)
        assert out.startswith(f"2 ranks (fsdp 2) on {shown(name)}/cluster: "), out
        out, _ = call(0, *simulate, "--json")
        assert path_of(tool.strict_json(out)["cluster"]) == name + b"/cluster", out
        call(0, "plan", run + b"/config.yaml", "cluster=h100", "devices=2", "seconds=0.1", b"save=./" + name + b"/plan")
        assert "  path: " in tool.read(name + b"/plan").decode()
        call(0, "verify", b"./" + name + b"/plan")

        # A schedule may be the path of a file.
        schedule = name + b"/s"
        call(0, "simulate", "schedule=1f1b", "stages=2", "microbatches=4", b"save=" + schedule)
        out, _ = call(0, "simulate", b"schedule=" + schedule, "stages=2", "microbatches=4")
        assert out.startswith(f"{shown(schedule)}: 2 stages, "), out
        out, _ = call(0, "simulate", b"schedule=" + schedule, "stages=2", "microbatches=4", "--json")
        assert path_of(tool.strict_json(out)["schedule"]) == schedule, out
        call(0, "train", "c.yaml", b"--run.directory=" + run + b"3", "--pipeline_parallel_degree=2",
             "--model.num_hidden_layers=2", "--training.micro_batch_size=1",
             b"pipeline_parallel_schedule=" + schedule)

        plan = ["plan", "c.yaml", b"cluster=" + name + b"/cluster", "devices=2", "--pipeline_parallel_degree=2",
                b"pipeline_parallel_schedule=" + schedule, "--model.num_hidden_layers=2",
                "--training.micro_batch_size=1", "--seconds=1"]
        out, _ = call(0, *plan)
        assert out.startswith(f"2 ranks on {shown(name)}/cluster, a step of 4 "), out
        assert f" x pp 2, {shown(schedule)}, " in out, out
        out, _ = call(0, *plan, "export=torchtitan")
        assert f"# not available: the schedule {shown(schedule)}; here 1F1B" in out, out
        out, _ = call(0, *plan, "--json")
        found = tool.strict_json(out)
        assert path_of(found["cluster"]) == name + b"/cluster", found
        assert path_of(found["plans"][0]["pipeline_parallel_schedule"]) == schedule, found

        # Messages are one line each, too.
        for code, arguments, wanted in (
                (2, ["train", "c.yaml", b"--data.path=" + name + b"/none"], f"data.path: {shown(name)}/none"),
                (2, ["train", run + b"/config.yaml", "--training.seed=7"], f"the run in {shown(run)} was started"),
                (2, ["show", "ranks", name], shown(name))):
            out, err = call(code, *arguments)
            assert err.count("\n") == 1 and wanted in err, err


def test_endings():
    os.makedirs("mixed")
    for name in b"a.txt", b"b.\xff\n", b"c.\xff\n", b"d.\xc3\xa9":
        tool.write(b"mixed/" + name, "text")
    out, _ = call(0, "prepare", "mixed", "--data.path=mixed/t")
    passed = out.split("\n")[1].removeprefix("passed over, neither .txt nor .jsonl: ")
    assert out.count("\n") == 2 and sorted(passed.split(", ")) == ["1 .\u00e9", "2 .\\xff\\x0a"], out


def test_what_names_no_file():
    """Other texts are UTF-8, wherever they come from."""
    for key, kind, value in ("data.text_field", "name", b"a\xff"), ("generate.prompt", "text", b"\xed\xa0\x80"):
        _, err = call(2, "train", "c.yaml", f"--{key}=".encode() + value)
        assert err == (f'trireme train: command line: {key}: given the text "{shown(value)}", accepts text ({kind}), '
                       f'in UTF-8\n'), err
    _, err = call(2, "train", "c.yaml", b"--r\xffn.directory=x")
    assert "command line: r\\xffn.directory: unknown key, given x" in err, err
    tool.write("b.yaml", "data: {text_field: !!binary /w==}\n")
    _, err = call(2, "train", "b.yaml")
    assert 'b.yaml:1: data.text_field: given the text "\\xff", accepts text (name), in UTF-8' in err, err


if __name__ == "__main__":
    tool.main(globals())
