"""Random decoders of small sizes, written as a GGUF file and as the checkpoint of the same weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import rlx_core as rlx
from rlx_models import gguf
from rlx_models.architectures import ARCHITECTURES
from rlx_models.checkpoints import Config
from rlx_models.gguf import names

SIZES: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 5000.0,
}  # fmt: skip
SPARSE = {"tie_word_embeddings": True, "num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 256}
OPTIONS: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": False},
    "mistral": {"tie_word_embeddings": False, "sliding_window": 3},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"tie_word_embeddings": True},
    "gemma": {},
    "gemma2": {
        "sliding_window": 4,
        "query_pre_attn_scalar": 64,
        "attn_logit_softcapping": 20.0,
        "final_logit_softcapping": 5.0,
    },
    "phi3": {"tie_word_embeddings": False},
    "mixtral": {"tie_word_embeddings": False, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": {**SPARSE, "shared_expert_intermediate_size": 512, "norm_topk_prob": False},
    "qwen3_moe": {**SPARSE, "norm_topk_prob": True},
}
"""Options of `config.json`, by model type."""


def config_of(model_type: str, **sizes: int) -> dict[str, Any]:
    """Return the configuration of a small model."""
    return {**SIZES, **OPTIONS[model_type], **sizes, "model_type": model_type}


def stored(values: np.ndarray, scheme: str) -> Any:
    """Return a weight in a scheme, or as f16."""
    return values.astype(np.float16) if scheme == "f16" else rlx.quantization.quantize(values, scheme)


def paired(values: np.ndarray, heads: int) -> np.ndarray:
    """Return rows of queries or keys in the order of llama.cpp's files."""
    return values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def weights(model_type: str, **sizes: int) -> dict[str, np.ndarray]:
    """Return random weights by the names of the architecture."""
    rng = np.random.default_rng(0)
    shapes = ARCHITECTURES[model_type](Config(config_of(model_type, **sizes))).shapes
    return {
        name: (rng.standard_normal(shape) * (0.3 if len(shape) == 1 else 0.1)).astype(np.float32)
        for name, shape in shapes.items()
    }


EXPERT_KEYS = {
    "num_local_experts": "expert_count",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
}
ROUTERS = ("block_sparse_moe.gate", "mlp.gate")


def file_weights(model_type: str, **sizes: int) -> dict[str, np.ndarray]:
    """Return the weights as files have them: those of a projection of all experts are one tensor, and one row is a vector."""
    result: dict[str, np.ndarray] = {}
    values = weights(model_type, **sizes)
    for name, each in values.items():
        if ".experts.0." in name:
            head, tail = name.split(".experts.0.")
            numbered = [f"{head}.experts.{n}.{tail}" for n in range(8)]
            result[f"{head}.experts.{tail}"] = np.stack([values[other] for other in numbered if other in values])
        elif ".experts." not in name:
            result[name] = each.reshape(-1) if "shared_expert_gate" in name else each
    return result


def written_gguf(
    path: Path,
    model_type: str,
    scheme: str,
    *,
    metadata: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
    **sizes: int,
) -> Path:
    """Write a file whose matrices are in a scheme."""
    label = names.LABELS[model_type]
    row, config = names.ARCHITECTURES[label], config_of(model_type, **sizes)
    tensors: dict[str, Any] = {}
    for name, values in file_weights(model_type, **sizes).items():
        short = name.removesuffix(".weight").removesuffix(".bias")
        suffix = name.removeprefix(f"{short}.")
        if short.startswith("layers."):
            _, layer, part = short.split(".", 2)
            table = {**names.LAYER_TENSORS, **row.layer_tensors}
            key = f"blk.{layer}.{next(each for each, known in table.items() if known == part)}.{suffix}"
        else:
            key = f"{next(each for each, known in names.TENSORS.items() if known == short)}.{suffix}"
        ordered = values
        if label == "llama" and short.endswith(("q_proj", "k_proj")):
            ordered = paired(
                values, config["num_attention_heads" if short.endswith("q_proj") else "num_key_value_heads"]
            )
        if values.ndim == 1:
            tensors[key] = ordered + np.float32(row.norm_offset) if short.endswith("norm") else ordered
        else:
            tensors[key] = ordered if short.endswith(ROUTERS) else stored(ordered, scheme)
    keys = {f"{label}.{key}": config[name] for key, name in names.OPTIONS.items() if config.get(name) is not None}
    keys |= {f"{label}.{key}": config[name] for name, key in EXPERT_KEYS.items() if name in config}
    gguf.write(path, {**tensors, **(more or {})}, {"general.architecture": label, **keys, **(metadata or {})})
    return path


def written_checkpoint(folder: Path, model_type: str, scheme: str, **sizes: int) -> Path:
    """Write the checkpoint of the same weights, decoded to f32."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config_of(model_type, **sizes)))
    tensors = {}
    for name, values in weights(model_type, **sizes).items():
        is_stored = values.ndim > 1 and not name.removesuffix(".weight").endswith((*ROUTERS, "shared_expert_gate"))
        kept = stored(values, scheme) if is_stored else values
        tensors[name] = np.asarray(kept.dequantize()) if is_stored and scheme != "f16" else kept.astype(np.float32)
    rlx.save(folder / "model.safetensors", tensors)
    return folder
