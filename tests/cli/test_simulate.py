"""Pipeline schedules without a model: costs against closed forms and published tables, and what is refused."""

import importlib.machinery
import importlib.util
import itertools
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as xml

import tool


def simulate(schedule, stages, microbatches, times=(1, 1, 1, 0), **keys):
    keys |= dict(zip(("forward", "backward_input", "backward_weight", "latency"), times))
    return tool.good_json("simulate", f"schedule={schedule}", f"stages={stages}", f"microbatches={microbatches}",
                          *(f"{key}={value}" for key, value in keys.items()))


def near(a, b, tolerance=1e-9):
    assert abs(a - b) <= tolerance * max(1, abs(b)), f"{a} is not {b}"


def test_closed_forms():
    for p, m in (4, 8), (16, 48), (32, 64):
        F, B, W, C = 11.3, 11.2, 8.1, 0.38
        work, last = m * (F + B + W), (p - 1) * (F + B)
        for name in "gpipe", "1f1b":
            result = simulate(name, p, m, (F, B, W, 0))
            near(result["cost"], (m + p - 1) * (F + B + W))
            near(result["bubble"], (p - 1) / (m + p - 1))
        near(simulate("1f1b", p, m, (F, B, W, C))["cost"],
             (m + p - 1) * (F + B + W) + (2 * (p - 1) * m / p + 2 * (p - 2)) * C)
        near(simulate("zb-h1", p, m, (F, B, W, C))["cost"], work + last - (p - 1) * W + 4 * (p - 1) * C)
        if m >= 2 * p - 1:
            near(simulate("zb-h2", p, m, (F, B, W, C))["cost"], work + last - 2 * (p - 1) * W + 2 * (p - 1) * C)
        for v in 2, 3:
            near(simulate("interleaved", p, m, (F, B, W, 0), chunks=v)["bubble"], (p - 1) / (v * m + p - 1))
    for p, m in (8, 8), (16, 5):
        F, B, W = 2, 2.2, 1.5
        near(simulate("1f1b", p, m, (F, B, W, 0))["cost"], (m + p - 1) * (F + B + W))
        for name in "zb-h1", "zb-h2", "auto":
            near(simulate(name, p, m, (F, B, W, 0))["cost"], (m + p - 1) * (F + B) + W)
    # Each rank does all the work of its stage and of its part of the vocabulary, and is idle for the rest.
    spread = {"embed": .5, "loss": 1, "loss_weight": 2, "embed_weight": 4}
    for name in "1f1b", "zb-h1":
        result = simulate(name, 3, 4, **spread)
        near(result["cost"] * (1 - result["bubble"]), 4 * (3 + sum(spread.values())))


def test_activations():
    for p, m in ((8, 24),) if tool.SANITIZED else ((8, 24), (16, 48)):
        for name, expected in (("gpipe", [m] * p), ("1f1b", [p - i for i in range(p)]), ("zb-h1", [p] * p),
                               ("zb-h2", [2 * p - 1] * p)):
            assert simulate(name, p, m)["peak_activations"] == expected, name
        for v in 2, 3:
            near(simulate("interleaved", p, m, chunks=v)["peak_activations"][0], p * (1 + (p - 1) / (p * v)))
        plain = (p - 1) / (m + p - 1)
        for name, limit, bubble in ("zb-v", p, 0), ("v-half", (p + 2) // 2, .6 * plain), ("v-min", (p + 4) // 3,
                                                                                         .8 * plain):
            result = simulate(name, p, m)
            assert max(result["peak_activations"]) <= limit and result["bubble"] <= bubble + 1e-9, (name, result)
    least = {}
    for limit, chunks in itertools.product((8, 16) if tool.SANITIZED else (8, 12, 16, 24), (1, 2)):
        result = simulate("auto", 8, 24, activation_limit=limit, chunks=chunks)
        assert result["chunks"] == chunks and max(result["peak_activations"]) <= limit, result
        assert 0 <= result["bubble"] <= least.get(chunks, 1), result
        least[chunks] = result["bubble"]


# Qi et al. 2024, "Zero Bubble Pipeline Parallelism", tables 5 and 6: p, m; F, B, W, C; bubbles of 1F1B, interleaved
# (and its chunks), ZB-H1, ZB-H2, ZB-2p.
PUBLISHED = [
    (8, 24, (18.522, 18.086, 9.337, .601), .2431, .1055, 3, .1585, .1083, .0433),
    (8, 32, (18.513, 18.086, 9.331, .626), .1985, .0818, 3, .1242, .0837, .0039),
    (8, 64, (18.546, 18.097, 9.321, .762), .1240, .0443, 3, .0674, .0444, .0026),
    (8, 24, (29.718, 29.444, 19.927, .527), .2347, .0808, 4, .1323, .0698, .0029),
]


def test_published_bubbles():
    for p, m, times, of_1f1b, of_interleaved, v, of_h1, of_h2, of_2p in PUBLISHED[::3 if tool.SANITIZED else 1]:
        for name, expected in ("1f1b", of_1f1b), ("zb-h1", of_h1), ("zb-h2", of_h2):
            near(simulate(name, p, m, times)["bubble"], expected, .5001e-4)
        F, B, W, C = times
        near(simulate("interleaved", p, m, (F / v, B / v, W / v, C), chunks=v)["bubble"], of_interleaved, .004)
        result = simulate("auto", p, m, times)
        assert result["bubble"] <= of_2p + .5e-4 and max(result["peak_activations"]) <= 2 * p, result


def test_saved():
    """A schedule that is saved reads back as the same."""
    times = ["forward=2", "backward_input=3", "backward_weight=1", "latency=0.25"]
    for name, more in (("1f1b", []), ("interleaved", ["chunks=3"]), ("zb-v", []), ("hanayo", ["waves=2"]),
                       ("auto", []), ("zb-h1", ["embed=1", "loss=2"])):
        if name == "auto" and tool.SANITIZED:  # is searched for
            continue
        made = ["simulate", "stages=3", "microbatches=7", *times, *more]
        made = tool.good_json(*made, f"schedule={name}", "save=s.txt")
        spread = [key for key in more if key.startswith(("embed", "loss"))]
        read = tool.good_json("simulate", "schedule=s.txt", *times, *spread)
        # With auto a microbatch counts for half between the two parts of its backward.
        for key in ("cost", "bubble") if name == "auto" else ("cost", "bubble", "peak_activations"):
            assert made[key] == read[key], (name, key, made[key], read[key])
    tool.write("bad.txt", "F0 B0\nF0 X0\n")
    tool.refused(2, r"simulate: schedule=bad\.txt: line 2: expected a pass", "simulate", "schedule=bad.txt")
    tool.refused(2, r"save=nowhere/s.txt: cannot be written there: No such file", "simulate", "schedule=1f1b",
                 "stages=2", "microbatches=2", "save=nowhere/s.txt")
    # What is not a regular file is not replaced by one.
    os.mkfifo("pipe")
    reader = subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    tool.good("simulate", "schedule=1f1b", "stages=2", "microbatches=1", "save=pipe")
    assert tool.finish(reader)[1] == "F0 B0\nF0 B0\n" and not os.path.isfile("pipe")
    out = tool.good("simulate", "schedule=1f1b", "stages=2", "microbatches=1", "save=/dev/stdout")
    with open("out.txt", "w", encoding="utf-8") as file:
        subprocess.run([tool.BINARY, "simulate", "schedule=1f1b", "stages=2", "microbatches=1", "save=/dev/stdout"],
                       stdout=file, check=True)
    assert out == tool.read("out.txt").decode() and "F0 B0\nF0 B0\n" in out, out


# Liu et al. 2023, "Hanayo", where backward takes twice as long as forward: about (2p - 2) / (3pw + p - 1).
def test_hanayo():
    for p, waves in (4, 1), (8, 2):
        result = simulate("hanayo", p, p, waves=waves)
        about = (2 * p - 2) / (3 * p * waves + p - 1)
        assert result["chunks"] == 2 * waves and .75 * about <= result["bubble"] <= about + .01, result


def test_files_and_tables():
    tool.write("two.txt", "F0 F1 B0 B1\nF0 I0 W0 F1 B1\n")
    result = tool.good_json("simulate", "schedule=two.txt", "--forward=2", "--backward_input", "3",
                            "backward_weight=1", "latency=0.5")
    assert (result["stages"], result["microbatches"], result["peak_activations"]) == (2, 2, [2, 1]), result
    near(result["cost"], 19)
    tool.write("marked.txt", b"\xef\xbb\xbfF0 F1 B0 B1\r\nF0 I0 W0 F1 B1\r\n")  # by an editor of Windows
    assert tool.good_json("simulate", "schedule=marked.txt", "forward=2", "backward_input=3", "backward_weight=1",
                          "latency=0.5") == {**result, "schedule": "marked.txt"}
    out = tool.good("simulate", "schedule=1f1b", "stages=2", "microbatches=2")
    lines = out.splitlines()
    assert lines[0] == "1f1b: 2 stages, 2 microbatches, 1 chunk a rank", out
    assert "cost 9, bubble 0.3333, activations of at most 2 microbatches" in out, out
    # Rank, begin, end, idle, activations.
    assert lines[4].split() == ["0", "0", "9", "3", "2"] and lines[5].split() == ["1", "1", "7", "0", "1"], out
    rows = [words[1] for words in map(str.split, lines) if len(words) == 2 and set(words[1]) <= set("FB.")]
    assert [[key for key, _ in itertools.groupby(row)] for row in rows] == [list("F.B.B"), list(".FBFB.")], out
    # A column shows what takes most of it: passes that end, or begin, within .3 of a column leave it idle.
    out = tool.good("simulate", "schedule=gpipe", "stages=2", "microbatches=1", "forward=1", "backward_input=1",
                    "backward_weight=0", "latency=0.0576")
    assert f"   0  {24 * 'F'}{52 * '.'}{24 * 'B'}\n" in out, out
    assert len(tool.good("simulate", "schedule=gpipe", "stages=300", "microbatches=2").splitlines()) < 110


def test_picture():
    """Every pass is a box at its time, as long as it takes; the last one ends at the right edge."""
    keys = "stages=3", "microbatches=4", "forward=2", "backward_input=3", "backward_weight=1", "latency=0.5"
    tool.good("simulate", "schedule=zb-h1", *keys, "svg=p.svg")
    root = xml.fromstring(tool.read("p.svg"))
    paths = [path for path in root.iter("{http://www.w3.org/2000/svg}path") if "fill" in path.attrib]
    boxes = {}
    for path in paths[1:]: # behind the rows' ground
        for x, y, width in re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v", path.get("d")):
            boxes.setdefault(float(y), []).append((float(x), float(width), path.get("fill")))
    ground = re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v", paths[0].get("d"))
    left, whole = float(ground[0][0]), float(ground[0][2])
    assert sorted(boxes) == sorted(float(y) for _, y, _ in ground) and all(len(b) == 12 for b in boxes.values())
    # The closed form: the first rank begins first and ends last.
    cost = 4 * 6 + 2 * (2 + 3 - 1) + 4 * 2 * .5
    scale, first = whole / cost, sorted(boxes[min(boxes)])
    for (x, width, _), begin, time in zip(first, (0, 2, 4), (2, 2, 2)):
        assert abs(x - left - begin * scale) < .1 and 0 <= time * scale - width < 1, first
    assert abs(first[-1][0] + first[-1][1] - left - whole) < 1, first
    assert len({fill for row in boxes.values() for _, _, fill in row}) == 3
    words = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert [words.count(str(number)) for number in (0, 3)] == [9 + 2, 9], words # and a rank, and the axis
    assert {"forward", "backward, input", "backward, weights", "idle", "time"} <= set(words), words
    # The picture in docs/ is drawn by the command in README.
    source = os.environ.get("TRIREME_SOURCE", ".")
    command = re.search(r"trireme (simulate .*svg=pipeline\.svg)\s*\\\n(.*)", tool.read(f"{source}/README.md").decode())
    tool.good(*" ".join(command.groups()).split())
    assert tool.read("pipeline.svg") == tool.read(f"{source}/docs/pipeline.svg")
    odd = os.fsdecode(b"a\xff\x01\xc3\xa9\xef\xbf\xbf<.txt")
    tool.write(odd, "F0 B0\n")
    tool.good("simulate", f"schedule={odd}", "svg=odd.svg")
    title = [text.text for text in xml.fromstring(tool.read("odd.svg")).iter("{http://www.w3.org/2000/svg}text")][0]
    assert title.startswith("a? \u00e9?<.txt"), title
    tool.refused(2, r"svg=nowhere/p.svg: cannot be written there: No such file", "simulate", "schedule=1f1b", *keys,
                 "svg=nowhere/p.svg")
    tool.refused(2, r"too many for a picture", "simulate", "schedule=1f1b", "stages=64", "microbatches=8192",
                 "svg=p.svg")


def test_published_steps():
    """The shipped A100 cluster gives the step times of Megatron-LM that tools/fit_cluster lists."""
    fit = load_fit()
    for row in fit.published_rows()[::3 if tool.SANITIZED else 1]:
        result = tool.good_json("simulate", *(f"--{key}" for key in row.keys), "cluster=a100")
        assert abs(result["step_seconds"] / row.seconds - 1) < .08, (row.name, row.seconds, result["step_seconds"])


def load_fit():
    path = os.path.join(os.environ.get("TRIREME_SOURCE", "."), "tools", "fit_cluster")
    loader = importlib.machinery.SourceFileLoader("fit_cluster", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("fit_cluster", loader))
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.dirname(path)) # for what it has in common with others
    loader.exec_module(module)
    return module


@tool.not_sanitized
def test_fit_cluster():
    """The fit recovers constants from steps that were simulated with them."""
    fit = load_fit()
    rows = [fit.MegatronRow(t, d, p, 1, 8, b, h, 2, 16, 1024, 1.0)
            for t, d, p in ((1, 1, 1), (2, 1, 1), (4, 1, 1), (1, 2, 2)) for b, h in ((1, 512), (1, 2048), (4, 2048))]
    simulator = fit.Simulator(fit.A100, tool.BINARY, 2)
    truth = {name: start * (1.1 if number % 2 else .9) for number, (name, start) in
             enumerate(fit.A100.start().items())}
    for future, row in zip(simulator.steps(truth, rows), rows):
        row.seconds = future.result()
    found = fit.fit(simulator, rows, 3)
    errors = fit.logs(simulator.steps(found, rows), rows)
    assert max(map(abs, errors)) < .02, (truth, found, errors)


def test_fit_cluster_refuses():
    """For a file that is missing, or a wrong one, one line says which file is wanted."""
    fit = load_fit()
    tool.write("other.csv", "a,b\n1,2\n")
    tool.write("empty.csv", "a,b\n")
    for name, why in (("none.csv", "none.csv: No such file"), ("other.csv", "other.csv:2: "), ("empty.csv", "no rows")):
        try:
            fit.read_rows(name)
        except SystemExit as end:
            assert why in str(end) and "github.com/VIA-Research/vTrain" in str(end), end
        else:
            raise AssertionError(name)


def test_refusals():
    def refused(pattern, *words):
        tool.refused(2, pattern, "simulate", *words)
    numbers = "stages=4", "microbatches=4"
    refused(r'"zbh1".*zb-h1, .*did you mean zb-h1\?', "schedule=zbh1", *numbers)
    refused(r'no key "stage" \(given: "4"\).*did you mean stages; there are: schedule, ', "schedule=1f1b", "stage=4")
    for letter, key in {"p": "stages", "m": "microbatches", "v": "chunks", "F": "forward", "B": "backward_input",
                        "W": "backward_weight", "C": "latency"}.items():
        refused(f'no key "{letter}" \\(given: "4"\\).*did you mean {key}; there are: ', "schedule=1f1b", f"{letter}=4")
    refused(r'no key "s" \(given: "4"\) with schedule=; there are: ', "schedule=1f1b", *numbers, "s=4")
    refused(r'no key "training.steps"', "schedule=1f1b", *numbers, "training.steps=4")
    refused(r'unexpected "c.yaml"', "schedule=1f1b", *numbers, "c.yaml")
    refused(r"microbatches is missing", "schedule=1f1b", "stages=4")
    refused(r"backward_weight is missing", "schedule=1f1b", *numbers, "forward=1", "backward_input=1")
    refused(r"are all 0", "schedule=1f1b", *numbers, "forward=0", "backward_input=0", "backward_weight=0")
    for value in "-4", "0", "4.0", "four", "", "65537", "99999999999999999999", "0x4", " 4":
        refused(r'stages=".*": expected a whole number from 1 to 65536', "schedule=1f1b", f"stages={value}",
                "microbatches=4")
    for value in "-1", "nan", "inf", "1.1e12", "1e400", "1e", "1,5", "0x1p3":
        refused(r'latency=".*": expected a number from 0 to ', "schedule=1f1b", *numbers, f"latency={value}")
    refused(r"more than the \d+ passes", "schedule=1f1b", "stages=60000", "microbatches=1000000")
    refused(r"1 chunk to a rank, not 2", "schedule=zb-h1", *numbers, "chunks=2")
    os.mkdir("folder")
    os.symlink(".", "folder/here")
    tool.write("there", "")
    for svg, save in ("x", "x"), ("x", "./x"), ("folder/x", "folder/here//x"), ("there", "./there"):
        refused(rf"svg={svg} and save={save} are one file", "schedule=1f1b", *numbers, f"svg={svg}", f"save={save}")
    assert "at most 1 microbatch\n" in tool.good("simulate", "schedule=1f1b", "stages=1", "microbatches=1", "svg=x",
                                                 "save=folder/x")
    tool.good("simulate", "schedule=1f1b", *numbers, "svg=/dev/null", "save=/dev/null")
    refused(r"no activation limit", "schedule=1f1b", *numbers, "activation_limit=3")
    refused(r"two chunks to a rank and wave", "schedule=hanayo", *numbers, "waves=2", "chunks=2")
    tool.write("bad.txt", "B0 F0\n")
    refused(r"bad.txt: rank 0 \(line 1\): B0 comes before F0", "schedule=bad.txt")
    tool.write("cycle.txt", "placement 0 1 1 0\nF0.0 F0.1 B0.1 B0.0\nF0.1 F0.0 B0.1 B0.0\n")
    refused(r"cycle.txt: the schedule cannot finish", "schedule=cycle.txt")
    tool.write("crossed.txt", "F0 F1 B0 B1\nF1 B1 F0 B0\n")
    refused(r"crossed.txt: rank 0 does F0 when rank 1 does F1: the same order is needed", "schedule=crossed.txt")
    refused(r"is for 1 stage, the run has 4", "schedule=" + tool_schedule(), *numbers)
    for key in "waves", "activation_limit":
        refused(r"is not hanayo, which has waves=, nor auto", "schedule=" + tool_schedule(), f"{key}=1")


def tool_schedule():
    tool.write("one.txt", "F0 B0\n")
    return "one.txt"


if __name__ == "__main__":
    tool.main(globals())
