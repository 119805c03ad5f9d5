#!/usr/bin/env python3
"""Prints what `transformers` makes of every scaling of rotary positions: the table of tests/model/test_rope.c.

A line has the length of the text, the attention factor, and the frequency of each pair of features.
"""
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

FACTORS = {"short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
           "long_factor": [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]}
SCALINGS = [
    (64, {"rope_type": "linear", "factor": 3.0}),
    (64, {"rope_type": "dynamic", "factor": 3.0}),
    (100, {"rope_type": "dynamic", "factor": 3.0}),
    (64, {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}),
    (64, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}),
    (64, {"rope_type": "yarn", "factor": 4.0, "beta_fast": 4.0, "beta_slow": 0.5, "mscale": 1.5, "mscale_all_dim": 0.7,
          "truncate": False, "original_max_position_embeddings": 32}),
    (64, {"rope_type": "yarn", "factor": 2.0, "attention_factor": 1.3, "original_max_position_embeddings": 32}),
    (64, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2000}),
    (16, {"rope_type": "longrope", "original_max_position_embeddings": 16, **FACTORS}),
    (17, {"rope_type": "longrope", "original_max_position_embeddings": 16, **FACTORS}),
    (17, {"rope_type": "longrope", "original_max_position_embeddings": 16, "attention_factor": 1.2, **FACTORS}),
    (17, {"rope_type": "longrope", "original_max_position_embeddings": 16, "factor": 8.0, **FACTORS}),
]

for length, scaling in SCALINGS:
    config = LlamaConfig(hidden_size=64, num_attention_heads=4, max_position_embeddings=64,
                         rope_parameters={"rope_theta": 500.0, **scaling})
    frequencies, factor = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, None, seq_len=length)
    pairs = ", ".join(f"{frequency:.9g}" for frequency in frequencies.tolist())
    print(f"{scaling['rope_type']} {length}: {float(factor):.9g}; {pairs}")
