"""How ranks are arranged: coordinates, groups and neighbours of the ranks of a configuration."""

import xml.etree.ElementTree as xml

import tool

MODEL = ["--model.family=llama", "--model.num_hidden_layers=8", "--model.hidden_size=64",
         "--model.num_attention_heads=8", "--training.seq_len=32", "--training.global_batch_size=64"]
EIGHT = [*MODEL, "--ranks=8", "--tensor_parallel_degree=2", "--pipeline_parallel_degree=2"]
SVG = "{http://www.w3.org/2000/svg}"


def groups(*arguments):
    return {g["axes"]: g for g in tool.good_json("show", "mesh", *arguments)["groups"]}


def test_eight_ranks():
    mesh = tool.good_json("show", "mesh", *EIGHT)
    assert mesh["degrees"] == {"tp": 2, "fsdp": 2, "pp": 2}
    for number, rank in enumerate(mesh["ranks"]):
        place = {"tp": number % 2, "fsdp": number // 2 % 2, "pp": number // 4}
        assert rank["rank"] == number and rank["coordinates"] == place, rank
        assert rank["layers"] == ["0-3", "4-7"][place["pp"]]
        # A pipeline of one chunk has ends.
        assert rank.get("before") == (number - 4 if place["pp"] else None), rank
        assert rank.get("after") == (None if place["pp"] else number + 4), rank
        assert "node" not in rank
        assert rank["groups"]["tp"] == {"index": number % 2, "before": number ^ 1, "after": number ^ 1}
    of = {g["axes"]: g for g in mesh["groups"]}
    assert of["tp"]["members"] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert of["pp"]["members"] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert of["tp+fsdp+pp"]["members"] == [list(range(8))]
    # The programs communicate over what they say.
    ops = {(u["program"], u["op"]) for u in of["pp"]["communication"]}
    assert ops == {(p, op) for p in ("train", "evaluate") for op in ("send", "receive")}
    text = tool.good("show", "mesh", *EIGHT)
    assert "\n    5  1    0  1      1      -  4-7\n" in text, text
    assert "\ntp: 4 groups of 2 ranks, which have parts of each layer: 0,1 2,3 4,5 6,7\n" in text, text


def test_chunks_go_around_the_ends():
    ranks = tool.good_json("show", "mesh", *MODEL, "--ranks=4", "--pipeline_parallel_degree=4",
                           "--pipeline_parallel_schedule=interleaved", "training.micro_batch_size=1")["ranks"]
    assert [r["layers"] for r in ranks] == ["0, 4", "1, 5", "2, 6", "3, 7"], ranks
    assert [(r["before"], r["after"]) for r in ranks] == [(3, 1), (0, 2), (1, 3), (2, 0)], ranks


def test_machines():
    ranks = tool.good_json("show", "mesh", *MODEL, "--ranks=16", "cluster=h100", "devices=16")["ranks"]
    assert [(r["node"], r["device"]) for r in ranks] == [(r // 8, r) for r in range(16)]
    tool.refused(2, "devices= is a number of devices of cluster=CLUSTER, which is missing", "show", "mesh", *EIGHT,
                 "devices=8")
    tool.refused(2, "", "show", "mesh", *MODEL, "--ranks=16", "cluster=h100", "devices=8")


def test_islands_exchange_their_parameters():
    keys = [*MODEL, "--ranks=4", "--island_degree=2", "--outer.method=local_sgd"]
    rope = 4 * 32 * 8  # a table that is no parameter
    for zero, shards in (0, 1), (1, 2):
        more = [*keys, f"--parallelism.zero_stage={zero}"]
        island = groups(*more)["island"]
        assert island["members"] == [[0, 2], [1, 3]]
        use, shown = island["communication"]
        assert use["program"] == "outer_meet" and use["op"] == "all_reduce"
        assert shown == {**use, "program": "outer_show"}  # for a validation
        # Each rank exchanges the f32 parameters that it updates, and once the sum of the weights.
        parameters = tool.good_json("show", "memory", *more)["parameter_bytes"] - rope
        assert use["bytes"] == parameters / shards + 8, (zero, use, parameters)


def test_one_rank_and_many():
    text = tool.good("show", "mesh", *EIGHT, "--rank=5")
    assert text.startswith("rank 5 of 8 ranks (pp 2 x fsdp 2 x tp 2): tp 1, fsdp 0, pp 1, layers 4-7\n"
                           "before it in the pipeline: rank 1\nafter it in the pipeline: nobody\n"), text
    assert "\nfsdp: number 0 of 2, between 7 and 7: 5,7\n" in text, text
    (rank,) = tool.good_json("show", "mesh", *EIGHT, "--rank=5")["ranks"]
    assert rank["rank"] == 5 and groups(*EIGHT, "--rank=5")["tp"]["members"] == [[4, 5]]
    tool.refused(2, r"show\.rank: given 8, but ranks are numbered from 0 to 7$", "show", "mesh", *EIGHT, "--rank=8")
    many = tool.good("show", "mesh", *MODEL, "training.global_batch_size=4096", "--ranks=4096",
                     "--tensor_parallel_degree=8", "--pipeline_parallel_degree=8")
    assert len(many.splitlines()) < 100 and " 512-1023 0-7 " in many, many


def test_pictures():
    tool.good("show", "mesh", *EIGHT, "svg=8.svg")
    words = [t.text for t in xml.fromstring(tool.read("8.svg")).iter(SVG + "text")]
    panels = len(groups(*EIGHT))
    assert words[0] == "pp 2 x fsdp 2 x tp 2" and "tp: 4 groups of 2" in words
    assert all(words.count(str(rank)) == panels for rank in range(8)), words
    keys = [*MODEL, "training.global_batch_size=512", "--ranks=512", "--tensor_parallel_degree=8",
            "--pipeline_parallel_degree=4"]
    tool.good("show", "mesh", *keys, "cluster=h100", "svg=512.svg")
    root = xml.fromstring(tool.read("512.svg"))
    words = [t.text for t in root.iter(SVG + "text")]
    numbers = [int(w) for w in words if w.isdigit()]
    panels = len(groups(*keys)) + 1
    assert "nodes" in words and numbers.count(0) == numbers.count(511) == panels, words
    assert "..." in words and len(numbers) <= 256 * panels, len(numbers)
    tool.refused(2, r"svg=nowhere/p.svg: cannot be written there: No such file", "show", "mesh", *EIGHT,
                 "svg=nowhere/p.svg")


tool.main(globals())
