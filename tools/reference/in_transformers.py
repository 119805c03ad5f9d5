"""The same as model.py's Model, computed by Hugging Face's `transformers`: for the families that it alone knows, and,
with PEFT, for adapters."""
import json
import pathlib

import torch
import torch.nn.functional as F
import transformers

DTYPES = {"f32": torch.float32, "f64": torch.float64}


class TransformersModel:
    """A directory's model and, by the names of its files, the parameters."""

    def __init__(self, directory, mode):
        transformers.logging.set_verbosity_error()
        adapters = pathlib.Path(directory) / "adapter_config.json"
        base = json.loads(adapters.read_text())["base_model_name_or_path"] if adapters.exists() else directory
        self.model, found = transformers.AutoModelForCausalLM.from_pretrained(
            base, dtype=DTYPES[mode], attn_implementation="eager", output_loading_info=True)
        problems = {kind: names for kind, names in found.items() if names}
        if problems:
            raise ValueError(f"{base} is not read as it is meant: {problems}")
        if adapters.exists():
            import peft
            self.model = peft.PeftModel.from_pretrained(self.model, directory, is_trainable=True)
            self.parameters = {name.replace(".default", ""): p
                               for name, p in self.model.named_parameters() if p.requires_grad}
            return
        head = "embed_out" if self.model.config.model_type == "gpt_neox" else "lm_head"
        self.parameters = {name.replace("lm_head", head): p for name, p in self.model.named_parameters()}

    def loss(self, batch):
        tokens, targets = batch["tokens"].long(), batch["targets"].long()
        if int(batch.get("starts", torch.zeros(1)).abs().sum()):
            raise ValueError("documents are packed")
        logits = self.model(tokens, use_cache=False).logits
        nll = F.cross_entropy(logits.flatten(0, 1), targets.flatten().clamp(min=-1), ignore_index=-1, reduction="sum")
        return nll / max(int((targets >= 0).sum()), 1), logits
