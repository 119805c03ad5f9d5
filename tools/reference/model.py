"""GPT-2, the Llama family and gated linear attention in plain PyTorch: written to be read beside the papers, not to be
fast.

Everything is computed in one dtype. In the mode "bf16" that dtype is float32, and whatever Trireme keeps in bf16
(parameters, activations and the gradients of activations) is rounded to the nearest bf16 where it would be stored;
statistics, softmax, losses and gradients of parameters are not.
"""
import math

import torch
import torch.nn.functional as F

DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.float32}


class RoundActivation(torch.autograd.Function):
    """To bf16 and back, the value on its way forward and its gradient on its way back."""

    @staticmethod
    def forward(ctx, x):
        return x.to(torch.bfloat16).to(x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(torch.bfloat16).to(gradient.dtype)


class RoundParameter(torch.autograd.Function):
    """To bf16 and back; gradients of parameters are kept in float32."""

    @staticmethod
    def forward(ctx, x):
        return x.to(torch.bfloat16).to(x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Config:
    """What config.json says, by one set of names, in either of transformers' spellings of rotary scaling."""

    def __init__(self, values):
        self.architecture = values["architectures"][0]
        self.gpt2 = self.architecture == "GPT2LMHeadModel"
        get = values.get
        self.gla = False
        if self.gpt2:
            self.layers, self.width, self.heads = values["n_layer"], values["n_embd"], values["n_head"]
            self.kv_heads, self.head_dim = self.heads, self.width // self.heads
            self.eps = get("layer_norm_epsilon", 1e-5)
            self.gelu = "none" if get("activation_function", "gelu_new") == "gelu" else "tanh"
            self.tied = get("tie_word_embeddings", True)
            self.bias = get("bias", True)
            self.windows = [0] * self.layers
            return
        self.gla = self.architecture == "GLAForCausalLM"
        if self.gla:
            self.read_gla(values)
            return
        if self.architecture not in ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM",
                                     "MinistralForCausalLM"):
            raise ValueError(f"architecture {self.architecture} is not known")
        self.layers, self.width = values["num_hidden_layers"], values["hidden_size"]
        self.heads = values["num_attention_heads"]
        self.kv_heads = get("num_key_value_heads") or self.heads
        self.head_dim = get("head_dim") or self.width // self.heads
        self.eps = get("rms_norm_eps", 1e-6)
        self.tied = get("tie_word_embeddings", False)
        self.bias = True
        self.windows = self.windows_of_layers(get)
        rope = get("rope_parameters") or get("rope_scaling") or {}
        self.rope_type = rope.get("rope_type", rope.get("type", "default"))
        self.rope_theta = rope.get("rope_theta", get("rope_theta", 10000.0))
        self.rope = rope
        if self.rope_type not in ("default", "linear", "llama3"):
            raise ValueError(f"rotary scaling {self.rope_type} is not known")

    def read_gla(self, values):
        """As flash-linear-attention's GLAConfig: layers have linear attention, but those that `attn` lists."""
        get = values.get
        attention = get("attn") or {}
        self.layers, self.width, self.eps = values["num_hidden_layers"], values["hidden_size"], get("norm_eps", 1e-6)
        self.linear_heads, self.softmax_layers = get("num_heads", 4), attention.get("layers", [])
        self.heads = attention.get("num_heads", self.linear_heads)
        self.kv_heads, self.head_dim = attention.get("num_kv_heads") or self.heads, self.width // self.heads
        self.tied, self.bias = get("tie_word_embeddings", False), True
        self.windows = [attention.get("window_size") or 0] * self.layers
        self.rope_type, self.rope_theta, self.rope = "default", attention.get("rope_theta", 10000.0), {}

    def windows_of_layers(self, get):
        """How many positions a token of each layer sees, 0 for all before it."""
        window = get("sliding_window", 4096) or 0
        qwen = self.architecture.startswith("Qwen")
        if self.architecture == "LlamaForCausalLM" or qwen and not get("use_sliding_window", False):
            return [0] * self.layers
        if get("layer_types") and self.architecture != "MistralForCausalLM":
            return [window if kind == "sliding_attention" else 0 for kind in get("layer_types")]
        first = get("max_window_layers", 28) if qwen else 0
        return [window if layer >= first else 0 for layer in range(self.layers)]


def rope_frequencies(config):
    """Angles per position of each pair of features, in double."""
    pairs = torch.arange(0, config.head_dim, 2, dtype=torch.float64)
    frequencies = config.rope_theta ** (-pairs / config.head_dim)
    if config.rope_type == "linear":
        return frequencies / config.rope["factor"]
    if config.rope_type == "llama3":
        scaled = []
        factor, old = config.rope["factor"], config.rope["original_max_position_embeddings"]
        low, high = config.rope["low_freq_factor"], config.rope["high_freq_factor"]
        for frequency in frequencies.tolist():
            wavelength = 2 * math.pi / frequency
            if wavelength < old / high:
                scaled.append(frequency)
            elif wavelength > old / low:
                scaled.append(frequency / factor)
            else:
                smooth = (old / wavelength - low) / (high - low)
                scaled.append((1 - smooth) * frequency / factor + smooth * frequency)
        return torch.tensor(scaled, dtype=torch.float64)
    return frequencies


class Model:
    """Parameters by Hugging Face's names, each a leaf that gathers gradients, and the loss they give on a batch."""

    def __init__(self, values, tensors, mode):
        self.config = Config(values)
        self.mode, self.dtype = mode, DTYPES[mode]
        if self.config.gpt2 and not any(name.startswith("transformer.") for name in tensors):
            tensors = {f"transformer.{name}": tensor for name, tensor in tensors.items()}
        self.parameters = {}
        for name, tensor in sorted(tensors.items()):
            if name.endswith((".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")):
                continue  # buffers of old versions of transformers
            if name.endswith("lm_head.weight") and self.config.tied:
                continue
            if self.config.gpt2 and name.endswith(".bias") and not self.config.bias:
                continue  # zeros, kept for transformers alone
            self.parameters[name] = tensor.to(self.dtype).clone().requires_grad_()
        self.used = set()

    def parameter(self, name):
        """None where the model has no such parameter."""
        if name not in self.parameters:
            return None
        self.used.add(name)
        parameter = self.parameters[name]
        return RoundParameter.apply(parameter) if self.mode == "bf16" else parameter

    def stored(self, x):
        return RoundActivation.apply(x) if self.mode == "bf16" else x

    def linear(self, x, name, residual=None):
        weight, bias = self.parameter(f"{name}.weight"), self.parameter(f"{name}.bias")
        if self.config.gpt2 and name != "lm_head":
            weight = weight.t()  # Conv1D keeps its matrix [in, out]
        y = F.linear(x, weight, bias)
        return self.stored(y if residual is None else y + residual)

    def norm(self, x, name):
        weight, bias = self.parameter(f"{name}.weight"), self.parameter(f"{name}.bias")
        if self.config.gpt2:
            return self.stored(F.layer_norm(x, (x.shape[-1],), weight, bias, self.config.eps))
        return self.stored(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config.eps) * weight)

    def rotate(self, x, positions):
        """x: (B, T, heads, D). Feature i turns together with feature i + D/2."""
        angles = positions[..., None].double() * rope_frequencies(self.config)
        cos, sin = (table.to(self.dtype)[:, :, None, :] for table in (angles.cos(), angles.sin()))
        a, b = x.chunk(2, dim=-1)
        return self.stored(torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1))

    def attention(self, q, k, v, starts, window):
        """q: (B, T, heads, D), k and v: (B, T, kv_heads, D), starts: (B, T), the first position each token may see."""
        config = self.config
        group = config.heads // config.kv_heads
        k, v = k.repeat_interleave(group, dim=2), v.repeat_interleave(group, dim=2)
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(config.head_dim)
        here = torch.arange(q.shape[2])
        seen = (here[None, :] <= here[:, None]) & (here[None, None, :] >= starts[:, :, None])
        if window:
            seen = seen & (here[None, :] > here[:, None] - window)
        scores = scores.masked_fill(~seen[:, None], -math.inf)
        return self.stored((torch.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2))

    def heads(self, x):
        return x.unflatten(-1, (-1, self.config.head_dim))

    def gpt2_layer(self, x, layer, starts):
        prefix = f"transformer.h.{layer}"
        qkv = self.linear(self.norm(x, f"{prefix}.ln_1"), f"{prefix}.attn.c_attn")
        q, k, v = (self.heads(part) for part in qkv.split(self.config.width, dim=-1))
        mixed = self.attention(q, k, v, starts, self.config.windows[layer])
        x = self.linear(mixed, f"{prefix}.attn.c_proj", x)
        up = self.linear(self.norm(x, f"{prefix}.ln_2"), f"{prefix}.mlp.c_fc")
        return self.linear(self.stored(F.gelu(up, approximate=self.config.gelu)), f"{prefix}.mlp.c_proj", x)

    def llama_layer(self, x, layer, positions, starts):
        prefix = f"model.layers.{layer}"
        normed = self.norm(x, f"{prefix}.input_layernorm")
        q, k, v = (self.heads(self.linear(normed, f"{prefix}.self_attn.{part}_proj")) for part in "qkv")
        if self.config.architecture == "Qwen3ForCausalLM":
            q, k = self.norm(q, f"{prefix}.self_attn.q_norm"), self.norm(k, f"{prefix}.self_attn.k_norm")
        q, k = self.rotate(q, positions), self.rotate(k, positions)
        mixed = self.attention(q, k, v, starts, self.config.windows[layer])
        x = self.linear(mixed, f"{prefix}.self_attn.o_proj", x)
        normed = self.norm(x, f"{prefix}.post_attention_layernorm")
        gate, up = self.linear(normed, f"{prefix}.mlp.gate_proj"), self.linear(normed, f"{prefix}.mlp.up_proj")
        return self.linear(self.stored(F.silu(gate) * up), f"{prefix}.mlp.down_proj", x)

    def linear_attention(self, normed, name, starts):
        """Gated linear attention (Yang et al. 2023, section 4): each token sees those of its document, every feature of
        the keys faded by the gates between the two."""
        heads = self.config.linear_heads
        q, k, v, gate = (self.linear(normed, f"{name}.{part}_proj").unflatten(-1, (heads, -1)) for part in "qkvg")
        decay = self.linear(self.linear(normed, f"{name}.gk_proj.0"), f"{name}.gk_proj.1").unflatten(-1, (heads, -1))
        faded = (F.logsigmoid(decay) / 16).cumsum(1)  # (B, T, heads, D): up to each token
        here = torch.arange(q.shape[1])
        seen = (here[None, None, :] <= here[None, :, None]) & (here[None, None, :] >= starts[:, :, None])
        between = (faded[:, :, None] - faded[:, None]).masked_fill(~seen[..., None, None], -math.inf)
        scores = torch.einsum("bthd,bshd,btshd->bhts", q, k, between.exp()) / math.sqrt(q.shape[-1])
        mixed = self.stored(torch.einsum("bhts,bshd->bthd", scores, v))
        weight = self.parameter(f"{name}.g_norm_swish_gate.weight")
        normed = mixed * torch.rsqrt(mixed.pow(2).mean(-1, keepdim=True) + self.config.eps) * weight
        return self.stored((normed * F.silu(gate)).flatten(2))

    def gla_layer(self, x, layer, positions, starts):
        prefix = f"model.layers.{layer}"
        normed = self.norm(x, f"{prefix}.attn_norm")
        if layer in self.config.softmax_layers:
            q, k, v = (self.heads(self.linear(normed, f"{prefix}.attn.{part}_proj")) for part in "qkv")
            q, k = self.rotate(q, positions), self.rotate(k, positions)
            mixed = self.attention(q, k, v, starts, self.config.windows[layer])
        else:
            mixed = self.linear_attention(normed, f"{prefix}.attn", starts)
        x = self.linear(mixed, f"{prefix}.attn.o_proj", x)
        normed = self.norm(x, f"{prefix}.mlp_norm")
        gate, up = self.linear(normed, f"{prefix}.mlp.gate_proj"), self.linear(normed, f"{prefix}.mlp.up_proj")
        return self.linear(self.stored(F.silu(gate) * up), f"{prefix}.mlp.down_proj", x)

    def logits(self, tokens, positions, starts):
        """(B, T, vocabulary) of tokens (B, T)."""
        config = self.config
        if config.gpt2:
            embed = self.parameter("transformer.wte.weight")
            x = self.stored(embed[tokens] + self.parameter("transformer.wpe.weight")[positions])
            for layer in range(config.layers):
                x = self.gpt2_layer(x, layer, starts)
            x = self.norm(x, "transformer.ln_f")
        else:
            embed = self.parameter("model.embeddings.weight" if config.gla else "model.embed_tokens.weight")
            x = self.stored(embed[tokens])
            for layer in range(config.layers):
                x = (self.gla_layer if config.gla else self.llama_layer)(x, layer, positions, starts)
            x = self.norm(x, "model.norm")
        if config.tied:
            return self.stored(F.linear(x, embed))
        return self.linear(x, "lm_head")

    def loss(self, batch):
        """The mean negative log-likelihood over all targets that are not masked (negative), and the logits."""
        tokens, targets = batch["tokens"], batch["targets"]
        starts = batch.get("starts", torch.zeros_like(tokens))
        positions = batch.get("positions", torch.arange(tokens.shape[-1]) - starts)
        logits = self.logits(tokens, positions, starts)
        nll = F.cross_entropy(logits.flatten(0, 1), targets.flatten().clamp(min=-1), ignore_index=-1, reduction="sum")
        unused = set(self.parameters) - self.used
        if unused:
            raise ValueError(f"tensors that the model does not have: {sorted(unused)[:3]}")
        return nll / max(int((targets >= 0).sum()), 1), logits
