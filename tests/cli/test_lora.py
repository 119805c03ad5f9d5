"""Adapters: trained on a model that stays as it is, saved as PEFT has them, used, continued, refused."""

import json
import os
import shutil
import struct

import tool

NAMES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTED = ["train", "c.yaml", "--model.init_from=base", "--lora.rank=2", "--optimizer.lr=0.05",
           "--lr_scheduler.decay_type=constant", "--checkpoint.interval=3"]


def adapters(directory, step):
    return tool.read(f"{directory}/checkpoint/step-{step}/adapter_model.safetensors")


def state(directory, step):
    return tool.read(f"{directory}/checkpoint/step-{step}/training/state.safetensors")


def loss(directory, *more):
    return tool.good_json("eval", directory, "data.path=text/t", "--training.seq_len=16", *more)["loss"]


def make_base():
    tool.good("train", "c.yaml", "--run.directory=first")
    shutil.copytree("first/checkpoint/step-6", "base")
    shutil.rmtree("base/training")
    os.remove("base/manifest.json")


def write_safetensors(path, tensors):
    """tensors: {name: (shape, floats)}, as other programs write them."""
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        content = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    tool.write(path, struct.pack("<Q", len(text)) + text + data)


def test_trained():
    make_base()
    before = tool.read("base/model.safetensors")
    tool.good(*ADAPTED, "--run.directory=whole")
    assert tool.read("base/model.safetensors") == before
    saved = "whole/checkpoint/step-6"
    assert not os.path.exists(f"{saved}/model.safetensors") and os.path.exists(f"{saved}/config.json")
    said = json.loads(tool.read(f"{saved}/adapter_config.json"))
    assert said["peft_type"] == "LORA" and said["r"] == 2 and said["lora_alpha"] == 4, said
    assert said["base_model_name_or_path"] == os.path.realpath("base"), said
    assert sorted(said["target_modules"]) == sorted(NAMES) and not said["fan_in_fan_out"], said
    held = tool.tensors(adapters("whole", 6))
    name = "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight"
    assert len(held) == 14 and tuple(held[name][0])[0] == 2, held
    assert all("lora" in name for name in tool.tensors(state("whole", 6)))
    # The first step's loss is that of the base; afterwards adapters fit these tokens better.
    plain = tool.metrics("whole")
    tool.good("train", "c.yaml", "--model.init_from=base", "--run.directory=tuned", "--training.steps=1")
    assert plain[0]["loss"] == tool.metrics("tuned")[0]["loss"]
    assert loss("whole") < loss("base") - 0.0005, (loss("whole"), loss("base"))


def test_memory():
    sizes = [tool.good_json("show", "memory", "c.yaml", *more) for more in ((), ("--lora.rank=2",))]
    for key in "gradient_bytes", "optimizer_bytes":
        assert 0 < 3 * sizes[1][key] < sizes[0][key], (key, sizes)
    assert sizes[0]["parameter_bytes"] < sizes[1]["parameter_bytes"] < sizes[0]["parameter_bytes"] * 1.2, sizes


def test_goes_on():
    make_base()
    tool.good(*ADAPTED, "--run.directory=whole")
    tool.good(*ADAPTED, "--training.steps=3", "--run.directory=parts")
    tool.good(*ADAPTED, "--run.directory=parts")
    assert adapters("whole", 6) == adapters("parts", 6) and state("whole", 6) == state("parts", 6)
    # In bf16 the base is rounded alike each time; islands have adapters of their own, and one base.
    for name, *more in (("bf16", "--training.dtype=bf16"),
                        ("islands", "--parallelism.island_degree=2", "--outer.method=local_sgd",
                         "--outer.sync_steps=4")):
        run = [*ADAPTED, *more, "--checkpoint.keep_latest_k=0", f"--run.directory={name}"]
        tool.good(*run)
        kept = adapters(name, 6), state(name, 6)
        shutil.rmtree(f"{name}/checkpoint/step-6")
        tool.good(*run)
        assert kept == (adapters(name, 6), state(name, 6)), name
    # The bytes of what is saved say nothing of the mesh; another mesh takes them.
    tool.good(*ADAPTED, "--training.steps=9", "--run.directory=parts", "--ranks=2",
              "--parallelism.tensor_parallel_degree=2")
    tool.refused(2, "lora.rank: given 3, but the adapters in parts/checkpoint/step-9 are others", *ADAPTED[:3],
                 "--lora.rank=3", "--run.directory=parts", "--training.steps=10")
    tool.refused(2, "their lora.rank is 0, the model's 2", *ADAPTED[:2], "--lora.rank=2", "--run.directory=first",
                 "--training.steps=8")


def test_a_base_elsewhere():
    make_base()
    tool.good("train", "c.yaml", "--training.seed=7", "--run.directory=second")
    tool.good(*ADAPTED, "--run.directory=moved")
    os.rename("base", "elsewhere")
    words = "adapts .*base, where there is nothing: give the model's directory as lora.base_model"
    shutil.copytree("moved/checkpoint/step-6", "alone")
    os.remove("alone/config.json")
    os.remove("alone/manifest.json")
    tool.refused(2, words, "generate", "alone", "--prompt=The")
    tool.refused(2, words, "generate", "moved", "--prompt=The")
    tool.good("generate", "alone", "--prompt=The", "--max_new_tokens=2", "--lora.base_model=elsewhere")
    assert loss("moved", "--lora.base_model=elsewhere") > 0
    goes_on = ["train", "c.yaml", "--run.directory=moved", "--training.steps=10"]
    tool.refused(2, "were trained on other weights than those in .*second/checkpoint/step-6", *goes_on,
                 "--lora.base_model=second/checkpoint/step-6")
    tool.good(*goes_on, "--lora.base_model=elsewhere")


def made_elsewhere(**members):
    """What PEFT writes: no config.json, no tokenizer, a base by its path."""
    shutil.rmtree("peft", ignore_errors=True)
    os.mkdir("peft")
    config = {"peft_type": "LORA", "base_model_name_or_path": "base", "r": 2, "lora_alpha": 8, "bias": "none",
              "target_modules": ["v_proj"], "inference_mode": True, "use_dora": False, "modules_to_save": None,
              "rank_pattern": {}, "lora_dropout": 0.0, "peft_version": "0.18.0"} | members
    tool.write("peft/adapter_config.json", json.dumps(config))
    prefix = "base_model.model.model.layers.0.self_attn.v_proj.lora_"
    tensors = {f"{prefix}A.weight": ([2, 16], [0.1 * (i % 7 - 3) for i in range(32)]),
               f"{prefix}B.weight": ([16, 2], [0.1 * (i % 5 - 2) for i in range(32)])}
    write_safetensors("peft/adapter_model.safetensors", tensors)
    return tensors


def test_of_others():
    make_base()
    made_elsewhere()
    assert loss("peft") != loss("base")
    assert tool.good("generate", "peft", "--prompt=The", "--max_new_tokens=2")
    tool.good("train", "c.yaml", "--model.init_from=peft", "--optimizer.lr=0", "--training.steps=1",
              "--run.directory=of_peft")
    assert loss("of_peft") == loss("peft")
    assert json.loads(tool.read("of_peft/checkpoint/step-1/adapter_config.json"))["lora_alpha"] == 8
    tool.refused(2, "lora.rank: given 4, but the adapters in peft are others", "train", "c.yaml",
                 "--model.init_from=peft", "--lora.rank=4")
    # Nothing is added where B is zero, however large A.
    tensors = made_elsewhere(use_rslora=True)
    for name in tensors:
        if "_B" in name:
            tensors[name] = ([16, 2], [0.0] * 32)
    write_safetensors("peft/adapter_model.safetensors", tensors)
    assert loss("peft") == loss("base")


def test_merged():
    make_base()
    tool.good(*ADAPTED, "--run.directory=whole")
    tool.good("convert", "base", "merged", "--convert.merge=whole")
    plain, merged = (tool.tensors(tool.read(f"{d}/model.safetensors")) for d in ("base", "merged"))
    assert plain.keys() == merged.keys()
    for name in plain:
        assert (plain[name] != merged[name]) == any(n in name for n in NAMES), name
    assert abs(loss("merged") - loss("whole")) < 1e-5 < abs(loss("merged") - loss("base"))
    tool.good("convert", "base", "merged.gguf", "--convert.merge=whole")
    tool.refused(2, "holds adapters: convert the model that they are for, with --convert.merge=whole", "convert",
                 "whole", "other")
    tool.good("train", "c.yaml", "--model.hidden_size=32", "--training.steps=1", "--run.directory=wider")
    tool.refused(2, "their hidden_size is 32, the model's 16", "convert", "wider", "other", "--convert.merge=whole")
    tool.refused(2, "holds no adapter_config.json", "convert", "base", "other", "--convert.merge=first")


def test_patterns():
    make_base()
    chosen = [r"--lora.target_modules=.*\.0\..*(q|down)_proj", '--lora.rank_pattern={"down_proj": 3}',
              '--lora.alpha_pattern={"q_proj": 1}']
    tool.good(*ADAPTED, *chosen, "--run.directory=chosen")
    said = json.loads(tool.read("chosen/checkpoint/step-6/adapter_config.json"))
    down, query = "model.layers.0.mlp.down_proj", "model.layers.0.self_attn.q_proj"
    assert said["rank_pattern"] == {down: 3} and said["alpha_pattern"] == {query: 1}, said
    held = tool.tensors(adapters("chosen", 6))
    shapes = {name.removeprefix("base_model.model."): list(held[name][0]) for name in held}
    assert shapes[f"{down}.lora_A.weight"][0] == 3 and shapes[f"{query}.lora_A.weight"] == [2, 16], shapes
    assert len(shapes) == 4, shapes
    tool.good("convert", "base", "merged", "--convert.merge=chosen")
    assert abs(loss("merged") - loss("chosen")) < 1e-5 < abs(loss("merged") - loss("base"))
    goes_on = [*ADAPTED[:4], "--run.directory=chosen", "--training.steps=7"]
    tool.refused(2, "lora.rank_pattern: given .*, but the adapters in .* are others", *goes_on,
                 '--lora.rank_pattern={"down_proj": 4}')
    tool.good(*goes_on, *chosen)
    for text, words in (('{"zz": 2}', 'rank_pattern: no layer is called "zz"'), ("3", "expected patterns and numbers")):
        tool.refused(2, f"lora.*: .*{words}", *ADAPTED, f"--lora.rank_pattern={text}", "--run.directory=never")


def test_refused():
    make_base()
    base = ["train", "c.yaml", "--run.directory=never"]
    tool.refused(2, "lora.target_modules: no layer is called \"zz\"; a block of this model has self_attn.q_proj, ",
                 *base, "--model.init_from=base", "--lora.rank=2", "--lora.target_modules=v_proj, zz")
    tool.refused(2, "lora.rank: given 2, but adapters need a model to adapt", *base, "--lora.rank=2")
    for members, words in (({"use_dora": True}, "adapter_config.json: \"use_dora\": true is not supported"),
                           ({"base_model_name_or_path": "no/model"}, "adapts no/model, where there is nothing")):
        made_elsewhere(**members)
        tool.refused(2, words, "eval", "peft", "data.path=text/t")
    for members, words in (({"r": 3}, "peft/adapter_model.safetensors: tensor .*v_proj.lora_A.weight\": expected F32 "
                                      "\\[3, 16\\], found F32 \\[2, 16\\]"),
                           ({"target_modules": ["v_proj", "q_proj"]}, "tensor .*q_proj.lora_A.weight\" is missing")):
        made_elsewhere(**members)
        tool.refused(4, words, "eval", "peft", "data.path=text/t")
    tensors = made_elsewhere()
    tensors["base_model.model.lm_head.weight"] = ([1], [0.0])
    write_safetensors("peft/adapter_model.safetensors", tensors)
    tool.refused(4, "adapter_model.safetensors: tensor \"base_model.model.lm_head.weight\" is unexpected", "eval",
                 "peft", "data.path=text/t")
    os.remove("peft/adapter_model.safetensors")
    tool.refused(4, "holds no adapter_model.safetensors", "eval", "peft", "data.path=text/t")


tool.main(globals())
