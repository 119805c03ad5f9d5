"""data.mixture: several sources with weights, a run on them that stops and goes on, and what is refused."""

import tool

MIXTURE = "--data.mixture=3 text/t, 1 text/other"
TRAIN = ("train", "c.yaml", "--data.path=")


def prepare_other():
    tool.write("other.txt", "She sells sea shells by the sea shore today. " * 50)
    tool.good("prepare", "other.txt", "--data.path=text/other")


def losses(directory):
    return [line["loss"] for line in tool.metrics(directory) if "loss" in line]


def test_goes_on():
    prepare_other()
    tool.good(*TRAIN, MIXTURE, "--run.directory=whole")
    tool.good(*TRAIN, MIXTURE, "--run.directory=parts", "--training.steps=3", "--lr_scheduler.decay_steps=6")
    tool.good(*TRAIN, MIXTURE, "--run.directory=parts", "--lr_scheduler.decay_steps=6")
    assert tool.weights("whole", 6)[0] == tool.weights("parts", 6)[0]
    tool.good(*TRAIN, MIXTURE, "--run.directory=two", "--ranks=2", "--parallelism.data_parallel_replicate_degree=2")
    for a, b in zip(losses("whole"), losses("two"), strict=True):
        assert abs(a - b) < 1e-5, (a, b)
    # One source alone is the run that data.path makes.
    tool.good("train", "c.yaml", "--run.directory=path")
    tool.good(*TRAIN, "--data.mixture=2 text/t", "--run.directory=one")
    assert tool.weights("path", 6)[0] == tool.weights("one", 6)[0]
    assert tool.weights("path", 6)[0] != tool.weights("whole", 6)[0]


def test_changed():
    prepare_other()
    tool.good(*TRAIN, MIXTURE, "--run.directory=run")
    other = "--data.mixture=1 text/t, 1 text/other"
    tool.refused(2, "data.mixture: given .*0.5 from tokens .*0.75 from tokens 0 to", *TRAIN, other,
                 "--training.steps=8")
    _, out, err = tool.run(*TRAIN, other, "--training.steps=8", "--data.on_change=continue")
    assert "the data go on in their order, after as many sequences" in out + err, err


def test_evaluated():
    prepare_other()
    tool.good("train", "c.yaml", "--run.directory=trained")
    whole = {}
    for name in "t", "other":
        whole[name] = tool.strict_json(tool.good("eval", "trained", f"data.path=text/{name}", "--json"))
    both = tool.strict_json(tool.good("eval", "trained", "data.mixture=1 text/t, 1 text/other", "--json"))
    # All tokens of both count, whatever the weights.
    targets = [whole[name]["tokens"] for name in ("t", "other")]
    mean = sum(whole[n]["loss"] * w for n, w in zip(("t", "other"), targets)) / sum(targets)
    assert both["tokens"] == sum(targets) and abs(both["loss"] - mean) < 1e-5, (both, whole)


def test_refused():
    prepare_other()
    tool.refused(2, "data.mixture: .*data.path is given, too", "train", "c.yaml", MIXTURE)
    tool.refused(2, 'data.mixture: "text/t": expected a positive weight', *TRAIN, "--data.mixture=text/t")
    tool.refused(2, "data.mixture: .*nowhere", *TRAIN, "--data.mixture=1 text/t, 1 text/nowhere")
    tool.refused(2, "source 2 of data.mixture: the data are too short", *TRAIN, MIXTURE, "--training.seq_len=3000")


tool.main(globals())
