"""Names in GGUF files, by architecture: keys of the metadata, and tensors, with the names of checkpoints for them.

Source:
    gguf/constants.py of the package gguf 0.19, and convert_hf_to_gguf.py of github.com/ggml-org/llama.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from attrs import field, frozen

OPTIONS: Final[Mapping[str, str]] = {
    "vocab_size": "vocab_size",
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "context_length": "max_position_embeddings",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.sliding_window": "sliding_window",
    "rope.freq_base": "rope_theta",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
"""Options of `config.json` by the keys of the metadata, which begin with the architecture."""

ROPE_OPTIONS: Final[Mapping[str, str]] = {
    "rope.scaling.type": "rope_type",
    "rope.scaling.factor": "factor",
    "rope.scaling.original_context_length": "original_max_position_embeddings",
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
}
"""Options of `rope_parameters`."""

TENSORS: Final[Mapping[str, str]] = {"token_embd": "embed_tokens", "output_norm": "norm", "output": "lm_head"}
FILE_TENSORS: Final = {known: name for name, known in TENSORS.items()}
LAYER_TENSORS: Final[Mapping[str, str]] = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""Tensors of a layer, by the name between `blk.N.` and `.weight` or `.bias`."""

LAYER_NAME: Final = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
ROPE_DIVISORS: Final = "rope_freqs.weight"
"""Divisors of the frequencies of rope (Llama 3.1), which the metadata do not describe."""


@frozen(kw_only=True)
class GgufExperts:
    """Mixtures of experts in the files of an architecture.

    Attributes:
        model_type: The model type of files that state a number of experts.
        count: The option of `config.json` with that number.
        implied: Options that files do not state, and their values.
    """

    model_type: str
    count: str = "num_experts"
    implied: Mapping[str, Any] = field(factory=dict)


@frozen(kw_only=True)
class GgufArchitecture:
    """How files of an architecture differ from checkpoints of a model type.

    Attributes:
        model_type: The model type.
        layer_tensors: Tensors of a layer, in addition to `LAYER_TENSORS` or in place of some.
        has_paired_rows: Whether the rows of queries and keys are ordered for interleaved rotation: rows 2i and 2i + 1 of a head
            are rows i and i + n/2 of the checkpoint.
        norm_offset: What was added to the weights of norms.
        experts: The differences of files with a mixture of experts, if the architecture has such files.
    """

    model_type: str
    layer_tensors: Mapping[str, str] = field(factory=dict)
    has_paired_rows: bool = False
    norm_offset: float = 0.0
    experts: GgufExperts | None = None

    def tensor_name(self, name: str) -> str | None:
        """Return the name in checkpoints, without the prefix `model.`; `None` for a tensor that they do not have."""
        part, _, suffix = name.rpartition(".")
        if part in TENSORS and suffix == "weight":
            return f"{TENSORS[part]}.weight"
        match = LAYER_NAME.fullmatch(name)
        if match is None:
            return None
        layer, part, suffix = match.groups()
        known = self.layer_tensors.get(part, LAYER_TENSORS.get(part))
        return None if known is None else f"layers.{layer}.{known}.{suffix}"

    def file_name(self, name: str) -> str | None:
        """Return the name in files for a name in checkpoints; the inverse of `tensor_name`."""
        part, _, suffix = name.rpartition(".")
        if part in FILE_TENSORS:
            return f"{FILE_TENSORS[part]}.{suffix}" if suffix == "weight" else None
        _, layer, part = (*part.split(".", 2), "", "")[:3]
        names = {known: short for short, known in {**LAYER_TENSORS, **self.layer_tensors}.items()}
        result = f"blk.{layer}.{names.get(part)}.{suffix}"
        return result if self.tensor_name(result) == name else None


EXPERT_COUNT: Final = "expert_count"
EXPERT_OPTIONS: Final[Mapping[str, str]] = {
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
}
"""Options of mixtures of experts in addition to their number, as in `OPTIONS`."""

MIXTRAL_TENSORS: Final = {
    "ffn_gate_inp": "block_sparse_moe.gate",
    "ffn_gate_exps": "block_sparse_moe.experts.w1",
    "ffn_up_exps": "block_sparse_moe.experts.w3",
    "ffn_down_exps": "block_sparse_moe.experts.w2",
}
QWEN_TENSORS: Final = {
    "ffn_gate_inp": "mlp.gate",
    **{f"ffn_{part}_exps": f"mlp.experts.{part}_proj" for part in ("gate", "up", "down")},
}
SHARED_TENSORS: Final = {
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    **{f"ffn_{part}_shexp": f"mlp.shared_expert.{part}_proj" for part in ("gate", "up", "down")},
}
SHARED_GATE: Final = "mlp.shared_expert_gate.weight"
"""The end of the name of a matrix with one row, which files have as a vector."""

GEMMA2_NORMS: Final = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
ARCHITECTURES: Final[Mapping[str, GgufArchitecture]] = {
    "llama": GgufArchitecture(
        model_type="llama",
        has_paired_rows=True,
        layer_tensors=MIXTRAL_TENSORS,
        experts=GgufExperts(model_type="mixtral", count="num_local_experts"),
    ),
    "qwen2": GgufArchitecture(model_type="qwen2"),
    "qwen2moe": GgufArchitecture(
        model_type="qwen2_moe",
        layer_tensors={**QWEN_TENSORS, **SHARED_TENSORS},
        experts=GgufExperts(model_type="qwen2_moe", implied={"norm_topk_prob": False}),
    ),
    "qwen3": GgufArchitecture(model_type="qwen3"),
    "qwen3moe": GgufArchitecture(
        model_type="qwen3_moe",
        layer_tensors=QWEN_TENSORS,
        experts=GgufExperts(model_type="qwen3_moe", implied={"norm_topk_prob": True}),
    ),
    "gemma": GgufArchitecture(model_type="gemma", norm_offset=1.0),
    "gemma2": GgufArchitecture(model_type="gemma2", norm_offset=1.0, layer_tensors=GEMMA2_NORMS),
    "phi3": GgufArchitecture(
        model_type="phi3", layer_tensors={"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
    ),
}
"""The architectures that `rlx.load` reads, by `general.architecture`."""
LABELS: Final = {
    **{row.model_type: label for label, row in ARCHITECTURES.items()},
    **{row.experts.model_type: label for label, row in ARCHITECTURES.items() if row.experts is not None},
    "mistral": "llama",
}
"""`general.architecture` by model type."""
