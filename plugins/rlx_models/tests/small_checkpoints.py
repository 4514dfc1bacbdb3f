"""Random checkpoints of small configurations, written without Transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_models.architectures import ARCHITECTURES
from rlx_models.checkpoints import Config

__all__ = ["CONFIGS", "written"]

LLAMA = {
    "model_type": "llama", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64,
}  # fmt: skip
T5 = {
    "model_type": "t5", "vocab_size": 11, "d_model": 8, "d_kv": 4, "d_ff": 12, "num_layers": 1, "num_heads": 2,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 10, "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": False, "pad_token_id": 0,
}  # fmt: skip

VIT = {
    "model_type": "vit", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12,
    "image_size": 8, "patch_size": 4, "num_channels": 1,
}  # fmt: skip
WHISPER = {
    "model_type": "whisper", "vocab_size": 11, "d_model": 8, "num_mel_bins": 3, "max_source_positions": 5,
    "max_target_positions": 64, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 12,
    "decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 12,
}  # fmt: skip

CLIP = {
    "model_type": "clip", "projection_dim": 6,
    "text_config": {"vocab_size": 11, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
                    "num_attention_heads": 2, "max_position_embeddings": 16, "eos_token_id": 10},
    "vision_config": {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
                      "image_size": 8, "patch_size": 4, "num_channels": 1},
}  # fmt: skip

DEEPSEEK = {
    **LLAMA, "model_type": "deepseek_v3", "kv_lora_rank": 6, "q_lora_rank": 5, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2,
    "v_head_dim": 3, "n_routed_experts": 4, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 5,
    "first_k_dense_replace": 1,
}  # fmt: skip

CONFIGS: dict[str, dict[str, Any]] = {
    "deepseek_v3": DEEPSEEK,
    "mamba": {"model_type": "mamba", "vocab_size": 11, "hidden_size": 8, "num_hidden_layers": 2, "state_size": 3},
    "bloom": {"model_type": "bloom", "vocab_size": 11, "hidden_size": 8, "n_layer": 2, "n_head": 2},
    "clip": CLIP,
    "mixtral": {**LLAMA, "model_type": "mixtral", "num_local_experts": 3, "sliding_window": 3},
    "gpt2": {"model_type": "gpt2", "vocab_size": 11, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 64},
    "llama": LLAMA,
    "t5": T5,
    "vit": VIT,
    "vit classifier": {
        **VIT,
        "architectures": ["ViTForImageClassification"],
        "id2label": {"0": "a", "1": "b", "2": "c"},
    },
    "whisper": WHISPER,
    "t5 encoder": {**T5, "architectures": ["T5EncoderModel"]},
}


def written(folder: Path, config: dict[str, Any], *, without: tuple[str, ...] = ()) -> Path:
    """Write a checkpoint of a configuration without the tensors in `without`, and return the folder."""
    rng = np.random.default_rng(0)
    shapes = ARCHITECTURES[config["model_type"]](Config(config)).shapes
    tensors = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    tensors = {name: each for name, each in tensors.items() if name not in without}
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    rlx.save(folder / "model.safetensors", tensors)
    return folder
