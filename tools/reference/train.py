"""Optimizers, clipping and learning-rate schedules as Trireme's, step by step on a model of model.py."""
import math

import torch

# Keys and defaults of `trireme help config`, those that matter here.
DEFAULTS = {
    "training.steps": 1000, "training.max_norm": 1.0,
    "optimizer.name": "adamw", "optimizer.lr": 3e-4, "optimizer.beta1": 0.9, "optimizer.beta2": 0.95,
    "optimizer.eps": 1e-8, "optimizer.weight_decay": 0.1, "optimizer.momentum": 0.9,
    "lr_scheduler.warmup_steps": 0, "lr_scheduler.decay_type": "cosine", "lr_scheduler.decay_steps": 0,
    "lr_scheduler.decay_ratio": 0.2, "lr_scheduler.min_lr_factor": 0.1,
}


def read_settings(overrides):
    """The defaults, with section.key=value in `overrides`."""
    settings = dict(DEFAULTS)
    for override in overrides:
        key, _, value = override.partition("=")
        if key not in settings:
            raise ValueError(f"unknown key {key}; known are {', '.join(settings)}")
        settings[key] = type(settings[key])(value)
    if settings["optimizer.name"] == "muon" and not any(o.startswith("optimizer.momentum=") for o in overrides):
        settings["optimizer.momentum"] = 0.95
    return settings


def learning_rate(settings, step):
    """Of step `step`, counted from 1."""
    lr, low = settings["optimizer.lr"], settings["lr_scheduler.min_lr_factor"]
    warmup, kind = settings["lr_scheduler.warmup_steps"], settings["lr_scheduler.decay_type"]
    if step <= warmup:
        return lr * step / warmup
    end = settings["lr_scheduler.decay_steps"] or settings["training.steps"]
    begin = warmup
    if kind == "wsd":
        begin = max(begin, end - math.floor(settings["lr_scheduler.decay_ratio"] * end + 0.5))
    progress = min(max((step - 1 - begin) / (end - begin), 0.0), 1.0) if end > begin else float(step > end)
    if kind == "cosine":
        return lr * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * progress)))
    if kind in ("linear", "wsd"):
        return lr * (low + (1 - low) * (1 - progress))
    if kind != "constant":
        raise ValueError(f"lr_scheduler.decay_type {kind} is not known")
    return lr


def orthogonal(x, iterations=5):
    """Newton and Schulz's iteration with Jordan's coefficients (2024): all singular values come near 1."""
    x = x / (x.norm() + 1e-7)
    if x.size(0) > x.size(1):
        return orthogonal(x.T, iterations).T
    for _ in range(iterations):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


def is_hidden_matrix(name, p):
    return p.dim() == 2 and not any(word in name for word in ("embed_tokens", "lm_head", "wte", "wpe"))


class Optimizer:
    """Updates in double; states are kept in the parameters' dtype (float32 for bf16, whose masters they are)."""

    def __init__(self, parameters, settings):
        self.parameters, self.settings, self.t = parameters, settings, 0
        self.m = {name: torch.zeros_like(p) for name, p in parameters.items()}
        self.v = {name: torch.zeros_like(p) for name, p in parameters.items()}

    def step(self, lr):
        """Clips, updates and returns the norm before clipping."""
        gradients = {name: p.grad.double() for name, p in self.parameters.items()}
        norm = math.sqrt(sum(float(g.pow(2).sum()) for g in gradients.values()))
        max_norm = self.settings["training.max_norm"]
        factor = min(1.0, max_norm / (norm + 1e-6)) if max_norm > 0 else 1.0
        self.t += 1
        update = {"adamw": self.adamw, "lion": self.lion, "sgd": self.sgd,
                  "muon": self.muon}[self.settings["optimizer.name"]]
        with torch.no_grad():
            for name, p in self.parameters.items():
                decay = self.settings["optimizer.weight_decay"] if p.dim() > 1 else 0.0
                p.copy_(update(name, p.double(), gradients[name] * factor, lr, decay))
                p.grad = None
        return norm

    def adamw(self, name, x, g, lr, decay):
        beta1, beta2 = self.settings["optimizer.beta1"], self.settings["optimizer.beta2"]
        m = beta1 * self.m[name].double() + (1 - beta1) * g
        v = beta2 * self.v[name].double() + (1 - beta2) * g * g
        self.m[name].copy_(m)
        self.v[name].copy_(v)
        x = x - lr * decay * x
        root = v.sqrt() / math.sqrt(1 - beta2 ** self.t)
        return x - lr * (m / (1 - beta1 ** self.t)) / (root + self.settings["optimizer.eps"])

    def lion(self, name, x, g, lr, decay):
        beta1, beta2 = self.settings["optimizer.beta1"], self.settings["optimizer.beta2"]
        m = self.m[name].double()
        self.m[name].copy_(beta2 * m + (1 - beta2) * g)
        return x - lr * (torch.sign(beta1 * m + (1 - beta1) * g) + decay * x)

    def muon(self, name, x, g, lr, decay):
        if not is_hidden_matrix(name, x):
            return self.adamw(name, x, g, lr, decay)
        momentum = self.settings["optimizer.momentum"]
        m = momentum * self.m[name].double() + g
        self.m[name].copy_(m)
        return x - lr * (0.2 * math.sqrt(max(x.shape)) * orthogonal(g + momentum * m) + decay * x)

    def sgd(self, name, x, g, lr, decay):
        m = self.settings["optimizer.momentum"] * self.m[name].double() + g + decay * x
        self.m[name].copy_(m)
        return x - lr * m


def train(model, batches, settings):
    """One step per entry of the batches' first dimension; losses, norms and learning rates of each."""
    optimizer = Optimizer(model.parameters, settings)
    log = {"loss": [], "grad_norm": [], "lr": []}
    for i in range(batches["tokens"].shape[0]):
        loss, _ = model.loss({name: array[i] for name, array in batches.items()})
        loss.backward()
        lr = learning_rate(settings, i + 1)
        log["grad_norm"].append(optimizer.step(lr))
        log["loss"].append(float(loss.detach()))
        log["lr"].append(lr)
    return log
