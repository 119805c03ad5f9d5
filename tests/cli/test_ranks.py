"""Training on many ranks from the command line: meshes, checkpoints across them, stopping, where ranks stand."""

import os
import re
import signal

import tool
from tool import untouched

LAYERS = ["--model.num_hidden_layers=2"]
TRAIN = ["train", "c.yaml", *LAYERS]


def test_meshes():
    one = tool.good(*TRAIN, "--run.directory=one")
    assert "1 thread on " in one and "rank" not in one, one
    losses = [line["loss"] for line in tool.metrics("one")]
    meshes = {"fsdp 2": ["--ranks=2"], "fsdp 2 zero": ["--ranks", "2", "--zero_stage=1"],
              "dp 2": ["--parallelism.ranks=2", "--data_parallel_replicate_degree=-1"],
              "dp 2 zero": ["--ranks=2", "--zero_stage=0"],
              "dp 2 zero zero": ["--ranks=2", "--zero_stage=0", "--data_parallel_shard_degree=1"],
              "tp 2": ["--tensor_parallel_degree=2"], "pp 2": ["--pipeline_parallel_degree=2"],
              "pp 2 x fsdp 2 x tp 2": ["--ranks=8", "--tensor_parallel_degree=2", "--pipeline_parallel_degree=2"]}
    for number, (mesh, arguments) in enumerate(meshes.items()):
        out = tool.good(*TRAIN, *arguments, f"--run.directory=run{number}")
        assert f"ranks ({mesh.replace(' zero', '')}) on " in out and "1 thread each" in out, out
        got = [line["loss"] for line in tool.metrics(f"run{number}")]
        assert len(got) == len(losses) and all(abs(a - b) < 1e-4 for a, b in zip(got, losses)), (mesh, got, losses)
        shown = tool.good("show", "ranks", f"run{number}")
        assert shown.count(": ended, last step done") == int(re.search(r"(\d+) ranks", out)[1]), shown
        assert "last step done 6" in shown and "not running" in shown, shown
    assert tool.good("show", "ranks", "one").count("rank 0: ended, last step done") == 1
    tool.refused(2, "training.dtype: given bf16, but the run in one was started with f32", *TRAIN,
                 "--run.directory=one", "--training.dtype=bf16")
    # The configuration that a run has written, with every key, does not fix more than was given: other meshes work.
    for name in ("one", "run0"):
        for mesh in ("--ranks=4", "--tensor_parallel_degree=2", "--pipeline_parallel_degree=2"):
            assert "sound" in tool.good("verify", f"{name}/config.yaml", mesh)


def computing(events, rank, phase, microbatch):
    """When a rank's compute stream begins and ends a pass of a microbatch."""
    own = [e for e in events if e["ph"] == "X" and e["pid"] == rank and e["tid"] == 0 and
           e["cat"].startswith(phase) and e["args"].get("microbatch") == microbatch]
    return min(e["ts"] for e in own), max(e["ts"] + e["dur"] for e in own)


def test_traces():
    mesh = ["--pipeline_parallel_degree=2", "--training.micro_batch_size=1", "--pipeline_parallel_schedule=1f1b"]
    tool.good(*TRAIN, *mesh, "--profiling.trace_step=2")
    for text in (tool.read("run/trace/step-2.json"), tool.good("show", "timeline", *TRAIN[1:], *mesh)):
        events = tool.strict_json(text)["traceEvents"]
        assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {"rank 0", "rank 1"}
        assert all(e["ts"] >= 0 and e["dur"] >= 0 for e in events if e["ph"] == "X")
        for microbatch in range(2):
            first, second = (computing(events, rank, "forward", microbatch) for rank in (0, 1))
            assert second[0] >= first[1], (first, second)
            first, second = (computing(events, rank, "backward", microbatch) for rank in (0, 1))
            assert first[0] >= second[1], (first, second)
    one = tool.strict_json(tool.good("show", "timeline", *TRAIN[1:], *mesh, "--profiling.trace_ranks=1"))
    assert {e["pid"] for e in one["traceEvents"]} == {1}
    untouched(2, r'profiling.trace_ranks: given "2", expected ranks from 0 to 1', *TRAIN, *mesh,
            "--profiling.trace_ranks=2", "--profiling.trace_step=1", "--run.directory=none")


def test_going_on_elsewhere():
    tool.good(*TRAIN, "--run.directory=straight", "--training.dtype=f64")
    arguments = [*TRAIN, "--training.dtype=f64"]
    # Keeping only the checkpoint of step 3 is like stopping half way.
    tool.good(*arguments, "--checkpoint.interval=3", "--ranks=4", "--tensor_parallel_degree=2")
    os.rename("run/checkpoint/step-6", "run/away")
    out = tool.good(*arguments, "--ranks=2", "--pipeline_parallel_degree=2")
    assert "going on from run/checkpoint/step-3" in out and "pp 2" in out, out
    for a, b in zip(tool.metrics("straight"), tool.metrics("run")):
        assert abs(a["loss"] - b["loss"]) < 1e-9, (a, b)


def test_eval():
    """A model that one rank has trained is evaluated by many, and the other way round."""
    tool.good(*TRAIN, "--ranks=2", "--tensor_parallel_degree=2")
    evaluate = ["eval", "run", "data.path=text/t"]
    one = tool.good_json(*evaluate)
    for mesh in (["--ranks=2"], ["--ranks=4", "--tensor_parallel_degree=2", "--zero_stage=1"],
                 ["--ranks=4", "--pipeline_parallel_degree=2", "--training.micro_batch_size=1"],
                 ["--pipeline_parallel_degree=2", "--vocabulary_parallel=true"]):
        many = tool.good_json(*evaluate, *mesh)
        assert many["tokens"] == one["tokens"] and many["seq_len"] == one["seq_len"], (mesh, many, one)
        assert all(abs(many[key] - one[key]) < 1e-5 for key in ("loss", "bits_per_byte")), (mesh, many, one)
    tool.refused(2, r"global_batch_size: given \d+, which does not split over 7 data-parallel ranks: 7 does",
                 *evaluate, "--ranks=7")
    tool.refused(2, "optimizer.lr: eval does not use this key", *evaluate, "--optimizer.lr=1")
    # In a job's script it is one process, however many tasks the job has.
    script = {**os.environ, "SLURM_NTASKS": "2", "SLURM_PROCID": "0"}
    assert tool.strict_json(tool.good(*evaluate, "--json", env=script))["loss"] == one["loss"]
    # There a number of ranks means threads; without it, somebody forgot srun.
    tool.good(*TRAIN, "--ranks=2", "--run.directory=script", env=script)
    assert os.path.isdir("script/checkpoint")
    tool.refused(2, "Slurm has 2 tasks, but MPI sees 1 rank: start with `srun ", *TRAIN, "--run.directory=none",
                 env={**script, "ASAN_OPTIONS": "detect_leaks=0"})  # MPI's own


def test_interrupt():
    process = tool.start(*TRAIN, "--ranks=2", "--training.steps=1000000", "--validation.freq=0",
                         "--checkpoint.interval=0")
    tool.await_step(process, "run")
    tool.refused(7, "run is in use by another run", *TRAIN, "--ranks=2")
    shown = tool.good("show", "ranks", "run")
    assert "running as process" in shown and shown.count("in a step") == 2, shown
    process.send_signal(signal.SIGINT)
    code, _, err = tool.finish(process)
    assert code == 75 and "stopped after step" in err, (code, err)
    done = tool.metrics("run")[-1]["step"]
    tool.good(*TRAIN, "--ranks=2", "--tensor_parallel_degree=2", f"--training.steps={done + 2}", "--validation.freq=0")
    assert tool.metrics("run")[-1]["step"] == done + 2


def test_bad_token():
    """One rank meets a bad token; all save what was done before."""
    tool.plant_token()
    for number, mesh in enumerate((["--ranks=4"], ["--ranks=4", "--pipeline_parallel_degree=2", "--zero_stage=1"])):
        run = f"run{number}"
        code, _, err = tool.run(*TRAIN, *mesh, "--data.path=bad/t", "--training.steps=200", "--checkpoint.interval=0",
                                f"--run.directory={run}")
        assert code == 4 and "at position 1000 " in err.splitlines()[-1], err
        done = tool.metrics(run)[-1]["step"]
        assert 0 < done < 199 and os.listdir(f"{run}/checkpoint") == [f"step-{done}"], done
        assert "at position 1000 " in tool.good("show", "ranks", run)


def test_killed():
    process = tool.start(*TRAIN, "--ranks=2", "--training.steps=1000000", "--validation.freq=0",
                         "--checkpoint.interval=0")
    tool.await_step(process, "run")
    process.kill()
    tool.finish(process)
    shown = tool.good_json("show", "ranks", "run")
    assert shown["runs"] is False and shown["mesh"] == "fsdp 2" and len(shown["ranks"]) == 2, shown
    assert all(rank["activity"] == "in a step" for rank in shown["ranks"]), shown


def test_not_finite():
    train = [*TRAIN, "--ranks=4", "--pipeline_parallel_degree=2", "--optimizer.name=sgd", "--optimizer.lr=1000",
             "--training.max_norm=0", "--training.max_nonfinite_steps=2", "--lr_scheduler.decay_type=constant"]
    told = r"not finite for 2 steps in a row.*nothing was saved before them$"
    code, out, err = tool.run(*train, "--training.steps=200")
    assert code == 6 and re.search(told, err.splitlines()[-1]), err
    # The run ends and saves between two regular checkpoints, and goes on from there.
    between = tool.metrics("run")[-1]["step"] - 1
    code, out, err = tool.run(*train, f"--training.steps={between}")
    assert code == 6 and f"in the last 1 of {between} steps" in err.splitlines()[-1], err
    assert tool.good("show", "ranks", "run").count(f"not finite in the last 1 of {between} steps") == 4
    code, out, err = tool.run(*train, "--training.steps=200")
    assert code == 6 and f"going on from run/checkpoint/step-{between}" in out, (code, out)
    assert re.search(told, err.splitlines()[-1]), err


def test_bad_meshes():
    ranks = r"parallelism\.ranks: given 8"
    untouched(2, ranks + r".*3.*do not divide", *TRAIN, "--ranks=8", "--tensor_parallel_degree=3")
    untouched(2, ranks + r".*multiply to 2", *TRAIN, "--ranks=8", "--data_parallel_shard_degree=2")
    untouched(2, r"zero_stage: given 2, but.*no ranks to shard over", *TRAIN, "--ranks=2", "--tensor_parallel_degree=2",
              "--zero_stage=2")
    untouched(2, r"zero_stage: given 0, which shards nothing.*degree is 2", *TRAIN, "--zero_stage=0",
              "--data_parallel_shard_degree=2")
    untouched(2, r"tensor_parallel_degree.*-1.*is -1 already", *TRAIN, "--tensor_parallel_degree=-1",
              "--data_parallel_replicate_degree=-1")
    untouched(2, r"pipeline_parallel_degree: given 3.*2 layers", *TRAIN, "--pipeline_parallel_degree=3")
    untouched(2, r"pipeline_parallel_degree: given -1, but the model has 2 layers for 8 stages", *TRAIN, "--ranks=8",
              "--pipeline_parallel_degree=-1")
    untouched(2, r"command line: .*tensor_parallel_degree: given 4, but.*2 heads.*4 ranks", *TRAIN,
              "--tensor_parallel_degree=4")
    untouched(2, r"c\.yaml:\d+: training\.global_batch_size: given 4.*3 data-parallel ranks", *TRAIN, "--ranks=3")
    untouched(2, r"global_batch_size.*microbatches of 4.*2 data-parallel", *TRAIN, "--ranks=2",
              "--training.micro_batch_size=4")
    untouched(2, r"global_batch_size: given 12.*microbatches of 4.*2 data-parallel", *TRAIN, "--ranks=2",
              "--training.global_batch_size=12", "--training.micro_batch_size=4")
    untouched(2, r"seq_len: given 16, whose rows, 16 in a microbatch.*3 tensor", *TRAIN, "--tensor_parallel_degree=3",
              "--model.num_attention_heads=3", "--model.hidden_size=24", "--training.micro_batch_size=1")
    untouched(2, r"pipeline_parallel_layout: given \"0,2\".*1 or more", *TRAIN, "--pipeline_parallel_degree=2",
              "--pipeline_parallel_layout=0,2")
    untouched(2, r"pipeline_parallel_layout: given \"2,1\".*sum is 2", *TRAIN, "--pipeline_parallel_degree=2",
              "--pipeline_parallel_layout=2,1")
    untouched(2, r"pipeline_parallel_degree: given 32768, .* for the 2147483648 virtual stages of 65536 chunks", *TRAIN,
              "--pipeline_parallel_degree=32768", "--pipeline_parallel_chunks=65536",
              "--pipeline_parallel_schedule=interleaved")
    untouched(2, r"data_parallel_shard_degree: given 0, expected 1 or more, or -1", *TRAIN,
              "--data_parallel_shard_degree=0")
    # Keys of pipelines, without a pipeline.
    untouched(2, r"pipeline_parallel_schedule: given zb-vv, which is neither a file nor one of", *TRAIN,
              "--pipeline_parallel_schedule=zb-vv")
    untouched(2, r"pipeline_parallel_chunks: given 4, but pipeline_parallel_degree is 1", *TRAIN,
              "--pipeline_parallel_chunks=4")
    untouched(2, r"activation_limit: given 3, but pipeline_parallel_degree is 1", *TRAIN,
              "--pipeline_parallel_activation_limit=3")
    untouched(2, "the mesh has 2000 ranks, and one process has room for 1024", *TRAIN, "--ranks=2000",
              "--training.global_batch_size=2000")
    untouched(2, r"pipeline_parallel_layout.*of which there is 1", *TRAIN, "--pipeline_parallel_layout=1,1")
    untouched(5, r"does not fit: (a rank alone needs|its 2 ranks together need) [0-9.]+ GB.*rank \d: state", *TRAIN,
              "--ranks=2", "--training.global_batch_size=2000000")


def test_bad_schedules():
    schedules = {"F0 F1 B0": r"line 1.*no B1", "F0 B0 F1 B1\nB0 F0 F1 B1": r"line 2.*B0 comes before F0",
                 "F0 B0 F1 B1\nF0 F1 B1 B0": r"cannot finish.*waits at",
                 "F0 B0\nF0 B0": r"for 1 microbatch, the run has 2",
                 "F0 F1 B0 B1\nF1 B1 F0 B0": r"rank 0 does F0 when rank 1 does F1",
                 "F1 F0 B0 B1\nF1 B1 F0 B0": r"rank 1 does B1 when rank 0 does B0",
                 "E0 E1 F0 F1 L0 T0 B0 L1 T1 B1 G0 G1\nE0 E1 F0 L0 T0 B0 F1 L1 T1 B1 G0 G1":
                     r"passes of a spread vocabulary: set vocabulary_parallel",
                 "": r"without passes", "\x00\xff": r"line 1"}
    arguments = [*TRAIN, "--pipeline_parallel_degree=2", "--training.micro_batch_size=2"]
    for text, pattern in schedules.items():
        tool.write("schedule", text)
        untouched(2, r"pipeline_parallel_schedule: given schedule.*" + pattern, *arguments,
                  "--pipeline_parallel_schedule=schedule")
    untouched(2, r"no pipeline schedule is called \"zigzag\".*gpipe, 1f1b", *arguments,
              "--pipeline_parallel_schedule=zigzag")
    tool.write("schedule", "F0 F1 B1 B0 # mine\nF0 F1 B1 B0\n")
    tool.good(*arguments, "--pipeline_parallel_schedule=schedule")
    tool.write("schedule", "placement 0 1 1 0\n" + "F0.0 F0.1 B0.1 B0.0 F1.0 F1.1 B1.1 B1.0\n" * 2)
    untouched(2, r"pipeline_parallel_degree: given 2.*2 layers for the 4 virtual stages of 2 chunks", *arguments,
              "--pipeline_parallel_schedule=schedule")
    tool.write("schedule", "placement 0 2 1 3\n" + "F0 B0\n" * 4)
    untouched(2, "stage 1 is on rank 2 and the one before on rank 0: neighbours, or the same rank", "train", "c.yaml",
              "--model.num_hidden_layers=4", "--pipeline_parallel_degree=4", "--training.micro_batch_size=4",
              "--pipeline_parallel_schedule=schedule")
    tool.write("schedule", "F0 F1 I0 W0 B1\nF0 B0 F1 I1 W1\n")
    tool.good(*arguments, "--pipeline_parallel_schedule=schedule", "--run.directory=split")


def test_the_key_that_a_schedule_refuses():
    two = ("train", "c.yaml", "--model.num_hidden_layers=6", "--pipeline_parallel_degree=2")
    untouched(2, r"chunks: given 3, but pipeline schedule 1f1b has 1 chunk to a rank, not 3", *two,
              "--pipeline_parallel_chunks=3")
    untouched(2, r"chunks: given 3, but pipeline schedule hanayo has an even number of chunks to a rank, not 3",
              *two, "--pipeline_parallel_schedule=hanayo", "--pipeline_parallel_chunks=3")
    untouched(2, r"activation_limit: given 3, but pipeline_parallel_schedule is 1f1b: auto alone has", *two,
              "--pipeline_parallel_activation_limit=3")
    tool.write("schedule", "F0 F1 B0 B1\n" * 2)
    of_file = (*two, "--training.micro_batch_size=2", "--pipeline_parallel_schedule=schedule")
    untouched(2, r"chunks: given 3, but schedule has 1 to a rank", *of_file, "--pipeline_parallel_chunks=3")
    untouched(2, r"activation_limit: given 3, but pipeline_parallel_schedule is schedule: auto alone", *of_file,
              "--pipeline_parallel_activation_limit=3")
    tool.good("verify", *of_file[1:], "--pipeline_parallel_chunks=1")


def test_schedule_files():
    """Schedules from files give one rank's losses, with any placement on neighbours and any order that both share."""
    train = ["train", "c.yaml", "--model.num_hidden_layers=6", "--training.dtype=f64", "--training.global_batch_size=8",
             "--training.micro_batch_size=1"]
    tool.good(*train, "--run.directory=one")
    losses = [line[key] for line in tool.metrics("one") for key in ("loss", "val_loss") if key in line]
    schedules = {
        # Ranks 1 and 2 send each other both ways, rank 0 one way alone.
        (3, ""): "placement 0 0 1 2 1 2\n" + 3 * (" ".join(f"F{m}.{chunk}" for chunk in (0, 1) for m in range(8)) +
                                               "".join(f" B{m}.1 B{m}.0" for m in range(8)) + "\n"),
        # Messages are taken much later than they are sent.
        (2, ""): "placement 1 0 1 0\n"
                 "F0.0 F1.0 F2.0 F3.0 F0.1 B0.1 F4.0 F1.1 B1.1 B0.0 F5.0 B1.0 F6.0 F7.0 F2.1 B2.1 B2.0 "
                 "F3.1 F4.1 B3.1 B4.1 B3.0 B4.0 F5.1 F6.1 F7.1 B5.1 B5.0 B6.1 B7.1 B6.0 B7.0\n"
                 "F0.0 F1.0 F2.0 F3.0 F0.1 F4.0 F1.1 B0.1 F5.0 B1.1 B0.0 F6.0 F7.0 B1.0 F2.1 B2.1 F3.1 "
                 "B2.0 F4.1 B3.1 B4.1 B3.0 B4.0 F5.1 F6.1 F7.1 B5.1 B5.0 B6.1 B7.1 B6.0 B7.0\n",
        # All microbatches are embedded first.
        (2, "v"): 2 * (" ".join(f"{kind}{m}" for kind in "EF" for m in range(8)) +
                       "".join(f" L{m} B{m} T{m} G{m}" for m in range(8)) + "\n"),
        # One rank embeds before the ranks meet for the loss, the other one after.
        (2, "vocabulary"): "E0 F0" + "".join(f" E{m} F{m} L{m - 1} T{m - 1} B{m - 1} G{m - 1}" for m in range(1, 8)) +
                           " L7 T7 B7 G7\nE0 F0" +
                           "".join(f" L{m - 1} E{m} B{m - 1} T{m - 1} F{m} G{m - 1}" for m in range(1, 8)) +
                           " L7 T7 B7 G7\n"}
    for number, ((stages, vocabulary), schedule) in enumerate(schedules.items()):
        tool.write("schedule", schedule)
        tool.good(*train, f"--pipeline_parallel_degree={stages}", "--pipeline_parallel_schedule=schedule",
                  f"--vocabulary_parallel={'true' if vocabulary else 'false'}", f"--run.directory=run{number}")
        got = [line[key] for line in tool.metrics(f"run{number}") for key in ("loss", "val_loss") if key in line]
        assert len(got) == len(losses) and all(abs(a - b) < 1e-9 for a, b in zip(got, losses)), (got, losses)


@tool.not_sanitized
def test_openmp_variables():
    """Those that would keep all threads on one core, or leave some out beside other load, do not."""
    cores = tool.cores()
    peak = tool.strict_json(tool.good("bench", "peak", f"--training.threads={cores + 5}", "--json",
                                      env={**os.environ, "OMP_PLACES": "cores"}))
    assert peak["threads"] == cores, peak
    # The program starts itself again: the variables that it was last loaded with count.
    code, _, told = tool.run("--version", env={**os.environ, "OMP_DISPLAY_ENV": "true", "OMP_DYNAMIC": "true"})
    assert code == 0 and re.findall(r"OMP_DYNAMIC *= *'(\w+)'", told)[-1].lower() == "false", told


if __name__ == "__main__":
    tool.main(globals())
