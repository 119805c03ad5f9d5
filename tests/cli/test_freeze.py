"""training.freeze: what is frozen stays as it was, the rest is trained as ever, and a run goes on so."""

import json

import tool

FREEZE = "--training.freeze=model.embed_tokens.*, *.mlp.*"
PLAIN = ("--optimizer.name=sgd", "--optimizer.momentum=0", "--training.max_norm=0", "--training.steps=1",
         "--validation.freq=0")


def model(directory, step):
    return tool.tensors(tool.weights(directory, step)[0])


def state(directory, step):
    return tool.tensors(tool.weights(directory, step)[1])


def is_frozen(name):
    return "embed_tokens" in name or ".mlp." in name


def test_one_step():
    """One step of plain SGD shows gradients: those that are left are the same bits."""
    tool.good("train", "c.yaml", *PLAIN, "--run.directory=all")
    tool.good("train", "c.yaml", *PLAIN, FREEZE, "--run.directory=some")
    tool.good("train", "c.yaml", *PLAIN, "--optimizer.lr=0", "--run.directory=none")
    every, some, first = model("all", 1), model("some", 1), model("none", 1)
    assert every.keys() == some.keys() == first.keys()
    for name in every:
        assert some[name] == (first if is_frozen(name) else every)[name], name
        assert every[name] != first[name], name


def test_goes_on():
    tool.good("train", "c.yaml", FREEZE, "--run.directory=whole")
    saved = state("whole", 6)
    assert saved and not any(is_frozen(name) for name in saved), saved.keys()
    tool.good("train", "c.yaml", FREEZE, "--training.steps=3", "--lr_scheduler.decay_steps=6", "--run.directory=parts")
    tool.good("train", "c.yaml", FREEZE, "--lr_scheduler.decay_steps=6", "--run.directory=parts")
    assert tool.weights("whole", 6)[0] == tool.weights("parts", 6)[0]
    tool.refused(2, "training.freeze: .*was started with", "train", "c.yaml", "--training.steps=8",
                 "--run.directory=whole")


def test_memory():
    sizes = [json.loads(tool.good("show", "memory", "c.yaml", "--json", *more)) for more in ((), (FREEZE,))]
    for key in "gradient_bytes", "optimizer_bytes":
        assert 0 < sizes[1][key] < sizes[0][key], (key, sizes)
    assert sizes[1]["parameter_bytes"] == sizes[0]["parameter_bytes"], sizes


def test_refused():
    for freeze, words in (("*", "nothing is left to train"), ("zz*", "zz\\*: no tensor of the model has such"),
                          ("*k_proj*", "q_proj.weight is trained as one with its neighbours"),
                          ("*up_proj*", "gate_proj.weight is trained as one with its neighbours")):
        tool.refused(2, f"training.freeze: .*{words}", "train", "c.yaml", f"--training.freeze={freeze}")
    tool.refused(2, "the first stage of the pipeline has nothing to train", "verify", "c.yaml",
                 "--training.freeze=*embed*,*layers.0.*", "--model.num_hidden_layers=2", "--ranks=2",
                 "--parallelism.pipeline_parallel_degree=2")


tool.main(globals())
