"""The decoders: a row for each `model_type`, or a function of the configuration where options change the row.

Source: the configurations and modules of these names in Transformers 5.24.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from attrs import evolve

from rlx_models.architectures.decoders.architecture import decoder_of
from rlx_models.architectures.decoders.spec import (
    LLAMA_NAMES,
    ConfigFactor,
    DecoderKind,
    HeadNorm,
    Latent,
    Learned,
    Mixture,
    Norm,
    RopeKind,
    SharedExpert,
    Window,
)
from rlx_models.checkpoints.config import Config, Option
from rlx_models.layers.linear import Architecture

__all__ = ["DECODERS"]

ATTENTION_BIAS = Option("attention_bias", False)
PROJECTED: Final = {"qkv": ATTENTION_BIAS, "out": ATTENTION_BIAS}
EVERYWHERE: Final = {"qkv": True, "out": True, "net": True}
TIED: Final = Option("tie_word_embeddings", True)
LOCAL: Final = {"use_sliding_window": (False, None)}
"""Windows that are switched on by a second option are refused."""

LAYER_NORM: Final = Norm("layer", Option("layer_norm_eps", 1e-5), has_bias=True)
FUSED_NET: Final = {"gate_up": "mlp.gate_up_proj", "down": "mlp.down_proj"}


def without(names: dict[str, str], *parts: str) -> dict[str, str]:
    return {part: name for part, name in names.items() if part not in parts}


LLAMA: Final = DecoderKind(biases={**PROJECTED, "net": Option("mlp_bias", False)})

GEMMA_NAMES: Final = {
    **LLAMA_NAMES,
    "post_a": "post_attention_layernorm",
    "norm_b": "pre_feedforward_layernorm",
    "post_b": "post_feedforward_layernorm",
}
GEMMA: Final = DecoderKind(
    norm=Norm(offset=1.0),
    head_size=256,
    # The first files state "gelu" as `hidden_act`, and mean this.
    act="gelu_pytorch_tanh",
    biases=PROJECTED,
    factors={"embed": ConfigFactor("hidden_size", power=0.5)},
    tied=TIED,
    expected={"hidden_activation": (None, "gelu_pytorch_tanh")},
)
GEMMA2: Final = evolve(
    GEMMA,
    names=GEMMA_NAMES,
    scale=ConfigFactor("query_pre_attn_scalar", 256.0, -0.5),
    cap=Option("attn_logit_softcapping", 50.0),
    logits_cap=Option("final_logit_softcapping", 30.0),
    window=Window(Option("sliding_window", 4096), full_every=2),
)
GEMMA3: Final = evolve(
    GEMMA2,
    head_norm=HeadNorm("head"),
    cap=None,
    logits_cap=Option("final_logit_softcapping"),
    rope=RopeKind(defaults={"rope_theta": 1_000_000.0}, local_theta=Option("rope_local_base_freq", 10_000.0)),
    window=Window(Option("sliding_window", 4096), full_every=Option("sliding_window_pattern", 6)),
    expected={
        "hidden_activation": ("gelu_pytorch_tanh", None),
        "use_bidirectional_attention": (False, None),
        # Transformers has the option and does not use it, so what a file means by it is not known.
        "attn_logit_softcapping": (None,),
    },
)
MIXTRAL: Final = DecoderKind(
    norm=Norm(eps=Option("rms_norm_eps", 1e-5)),
    rope=RopeKind(defaults={"rope_theta": 1_000_000.0}),
    window=Window(),
    mixture=Mixture(
        name="block_sparse_moe",
        names={"gate": "w1", "up": "w3", "down": "w2"},
        count=Option("num_local_experts", 8),
        chosen=Option("num_experts_per_tok", 2),
        inner=Option("intermediate_size"),
    ),
)
QWEN2: Final = DecoderKind(biases={"qkv": True}, expected=LOCAL)
QWEN3: Final = DecoderKind(biases=PROJECTED, head_norm=HeadNorm("head"), expected=LOCAL)
SPARSE: Final = Mixture(
    count=Option("num_experts", 128),
    chosen=Option("num_experts_per_tok", 8),
    inner=Option("moe_intermediate_size", 768),
    is_normalised=Option("norm_topk_prob", False),
    every=Option("decoder_sparse_step", 1),
    dense_layers="mlp_only_layers",
)
QWEN2_MOE: Final = evolve(
    QWEN2,
    biases={"qkv": Option("qkv_bias", True)},
    mixture=evolve(
        SPARSE,
        count=Option("num_experts", 60),
        chosen=Option("num_experts_per_tok", 4),
        inner=Option("moe_intermediate_size", 1408),
        shared=SharedExpert(
            "shared_expert", Option("shared_expert_intermediate_size", 5632), gate="shared_expert_gate"
        ),
    ),
)


def qwen3_moe(config: Config) -> DecoderKind:
    """Return Qwen 3's row with experts, whose number has two names."""
    name = "num_experts" if "num_experts" in config.rows else "num_local_experts"
    return evolve(QWEN3, mixture=evolve(SPARSE, count=Option(name, 128)))


PHI3: Final = DecoderKind(
    names={**without(LLAMA_NAMES, *"qkv", "gate", "up"), "qkv": "self_attn.qkv_proj", **FUSED_NET},
    projections="concatenated",
    norm=Norm(eps=Option("rms_norm_eps", 1e-5)),
    window=Window(),
)
OLMO2: Final = DecoderKind(
    names={**without(LLAMA_NAMES, "norm_a", "norm_b"), "post_a": "post_attention_layernorm",
           "post_b": "post_feedforward_layernorm"},
    norm=Norm(eps=Option("rms_norm_eps", 1e-5)),
    biases=PROJECTED,
    head_norm=HeadNorm("features"),
)  # fmt: skip
GRANITE: Final = evolve(
    LLAMA,
    scale=ConfigFactor("attention_multiplier", 1.0),
    factors={
        "embed": ConfigFactor("embedding_multiplier", 1.0),
        "residual": ConfigFactor("residual_multiplier", 1.0),
        "logits": ConfigFactor("logits_scaling", 1.0, -1.0),
    },
)
SMOLLM3: Final = evolve(
    LLAMA,
    rope=RopeKind(
        defaults={"rope_theta": 2_000_000.0}, skipped=("no_rope_layers", Option("no_rope_layer_interval", 4))
    ),
    tied=TIED,
    expected=LOCAL,
)
STARCODER2: Final = DecoderKind(
    names={**without(LLAMA_NAMES, "gate"), "up": "mlp.c_fc", "down": "mlp.c_proj"},
    norm=Norm("layer", Option("norm_epsilon", 1e-5), has_bias=True),
    biases=dict.fromkeys(("qkv", "out", "net"), Option("use_bias", True)),
    act=Option("hidden_act", "gelu_pytorch_tanh"),
    window=Window(),
    tied=TIED,
)
COHERE: Final = DecoderKind(
    names=without(LLAMA_NAMES, "norm_b") | {"norm_b": "input_layernorm"},
    norm=Norm("layer", Option("layer_norm_eps", 1e-5)),
    is_parallel=True,
    biases=PROJECTED,
    rope=RopeKind("interleaved", {"rope_theta": 500_000.0}),
    head_norm=HeadNorm("heads", Option("use_qk_norm", False)),
    factors={"logits": ConfigFactor("logit_scale", 0.0625)},
    tied=TIED,
)
GLM4: Final = DecoderKind(
    names={**without(LLAMA_NAMES, "gate", "up"), **FUSED_NET, "post_a": "post_self_attn_layernorm",
           "post_b": "post_mlp_layernorm"},
    norm=Norm(eps=Option("rms_norm_eps", 1.5625e-7)),
    head_size=128,
    biases={"qkv": Option("attention_bias", True)},
    rope=RopeKind("interleaved", {"partial_rotary_factor": 0.5}),
)  # fmt: skip
GPT_OSS: Final = DecoderKind(
    norm=Norm(eps=Option("rms_norm_eps", 1e-5)),
    head_size=64,
    biases=dict.fromkeys(("qkv", "out"), Option("attention_bias", True)),
    rope=RopeKind(
        defaults={
            "rope_theta": 150_000.0,
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 32.0,
                "truncate": False,
                "original_max_position_embeddings": 4096,
            },
        }
    ),
    window=Window(Option("sliding_window", 128), full_every=2),
    has_sinks=True,
    mixture=Mixture(
        count=Option("num_local_experts", 128),
        chosen=Option("num_experts_per_tok", 4),
        inner=Option("intermediate_size", 2880),
        router="router",
        is_packed=True,
    ),
)
DEEPSEEK_V3: Final = DecoderKind(
    biases={"out": ATTENTION_BIAS},
    latent=Latent(),
    expected={"scoring_func": ("sigmoid", None), "topk_method": ("noaux_tc", None), "moe_layer_freq": (1, None)},
    mixture=Mixture(
        count=Option("n_routed_experts", 256),
        chosen=Option("num_experts_per_tok", 8),
        inner=Option("moe_intermediate_size", 2048),
        score="sigmoid",
        is_normalised=Option("norm_topk_prob", True),
        shared=SharedExpert("shared_experts", count=Option("n_shared_experts", 1)),
        first=Option("first_k_dense_replace", 3),
    ),
)


FALCON_H1: Final = evolve(
    LLAMA,
    names={
        **LLAMA_NAMES,
        "gate": "feed_forward.gate_proj",
        "up": "feed_forward.up_proj",
        "down": "feed_forward.down_proj",
        "norm_b": "pre_ff_layernorm",
    },
    last="final_layernorm",
    norm=Norm(eps=Option("rms_norm_eps", 1e-5)),
    has_state_space=True,
    factors={
        "embed": ConfigFactor("embedding_multiplier", 1.0),
        "logits": ConfigFactor("lm_head_multiplier", 1.0),
        "keys": ConfigFactor("key_multiplier", 1.0),
        "attention_in": ConfigFactor("attention_in_multiplier", 1.0),
        "attention_out": ConfigFactor("attention_out_multiplier", 1.0),
        "mamba_out": ConfigFactor("ssm_out_multiplier", 1.0),
        "gate": ConfigFactor("mlp_multipliers", 1.0, index=0, count=2),
        "net": ConfigFactor("mlp_multipliers", 1.0, index=1, count=2),
    },
)


def stablelm(config: Config) -> DecoderKind:
    """Return the row of StableLM, whose parallel layers have one norm."""
    is_parallel = config.flag("use_parallel_residual", False)
    return DecoderKind(
        names={**LLAMA_NAMES, "norm_b": "input_layernorm"} if is_parallel else LLAMA_NAMES,
        norm=LAYER_NORM,
        is_parallel=is_parallel,
        biases={"qkv": Option("use_qkv_bias", False)},
        rope=RopeKind(defaults={"partial_rotary_factor": 0.25}),
        head_norm=HeadNorm("listed", Option("qk_layernorm", False), ("self_attn.q_layernorm", "self_attn.k_layernorm")),
    )


NEOX_NAMES: Final = {
    "qkv": "attention.query_key_value",
    "out": "attention.dense",
    "up": "mlp.dense_h_to_4h",
    "down": "mlp.dense_4h_to_h",
    "norm_a": "input_layernorm",
    "norm_b": "post_attention_layernorm",
}
GPT_NEOX: Final = DecoderKind(
    names=NEOX_NAMES,
    embed="embed_in",
    last="final_layer_norm",
    head="embed_out",
    prefix="gpt_neox.",
    norm=LAYER_NORM,
    is_parallel=Option("use_parallel_residual", True),
    projections="by-head",
    biases={**dict.fromkeys(("qkv", "out"), Option("attention_bias", True)), "net": True},
    rope=RopeKind(
        defaults={"partial_rotary_factor": 0.25},
        aliases={"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"},
    ),
    act=Option("hidden_act", "gelu"),
)
PHI: Final = DecoderKind(
    names={**without(LLAMA_NAMES, "gate"), "out": "self_attn.dense", "up": "mlp.fc1", "down": "mlp.fc2",
           "norm_b": "input_layernorm"},
    last="final_layernorm",
    head_bias="lm_head.bias",
    norm=LAYER_NORM,
    is_parallel=True,
    biases=EVERYWHERE,
    rope=RopeKind(defaults={"partial_rotary_factor": 0.5}),
    act=Option("hidden_act", "gelu_new"),
    tied=False,
    expected={"qk_layernorm": (False,), "tie_word_embeddings": (False,)},
)  # fmt: skip
BLOOM_NAMES: Final = {**NEOX_NAMES, "qkv": "self_attention.query_key_value", "out": "self_attention.dense"}
FALCON: Final = DecoderKind(
    names=BLOOM_NAMES,
    embed="word_embeddings",
    last="ln_f",
    stack="h",
    prefix="transformer.",
    inner_factor=4,
    norm=evolve(LAYER_NORM, eps=Option("layer_norm_epsilon", 1e-5)),
    biases=dict.fromkeys(("qkv", "out", "net"), Option("bias", False)),
    act=Option("activation", "gelu"),
    tied=TIED,
    options={"intermediate_size": "ffn_hidden_size", "num_key_value_heads": "num_kv_heads"},
    expected={"alibi": (False, None)},
)


def falcon(config: Config) -> DecoderKind:
    """Return the row of Falcon: an early or a late architecture, with one head of keys, groups of heads, or a head each."""
    is_late = config.flag("new_decoder_architecture", False)
    is_grouped = is_late or config.flag("multi_query", True)
    is_parallel = is_late or config.flag("parallel_attn", True)
    names = dict(BLOOM_NAMES)
    if is_late and config.size("num_ln_in_parallel_attn", 2) == 2:
        names |= {"norm_a": "ln_attn", "norm_b": "ln_mlp"}
    elif is_parallel:
        names["norm_b"] = "input_layernorm"
    kind = evolve(FALCON, names=names, is_parallel=is_parallel, projections="by-group" if is_grouped else "by-head")
    if is_late:
        return kind
    # The early architecture has no option for the number of heads of keys.
    return evolve(kind, key_heads=1 if is_grouped else None, options={"intermediate_size": "ffn_hidden_size"})


def bloom(config: Config) -> DecoderKind:
    """Return the row of BLOOM, whose options have older names."""
    older = {"num_attention_heads": "n_head", "num_hidden_layers": "n_layer", "hidden_size": "n_embed"}
    return DecoderKind(
        names=BLOOM_NAMES,
        embed="word_embeddings",
        first="word_embeddings_layernorm",
        last="ln_f",
        stack="h",
        prefix="transformer.",
        options={
            name: other for name, other in older.items() if other in config.rows and config.rows.get(name) is None
        },
        inner_factor=4,
        norm=evolve(LAYER_NORM, eps=Option("layer_norm_epsilon", 1e-5)),
        projections="by-head",
        biases=EVERYWHERE,
        rope=None,
        has_slopes=True,
        act="gelu_new",
        tied=True,
        expected={"apply_residual_connection_post_layernorm": (False,), "tie_word_embeddings": (True,)},
    )


GPT2: Final = DecoderKind(
    names={"qkv": "attn.c_attn", "out": "attn.c_proj", "up": "mlp.c_fc", "down": "mlp.c_proj", "norm_a": "ln_1",
           "norm_b": "ln_2"},
    embed="wte",
    last="ln_f",
    stack="h",
    prefix="transformer.",
    options={
        "hidden_size": "n_embd", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer",
        "intermediate_size": "n_inner", "max_position_embeddings": "n_positions",
    },
    inner_factor=4,
    norm=evolve(LAYER_NORM, eps=Option("layer_norm_epsilon", 1e-5)),
    projections="concatenated",
    biases=EVERYWHERE,
    is_turned=True,
    rope=None,
    learned=Learned("wpe"),
    act=Option("activation_function", "gelu_new"),
    tied=True,
    expected={"scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": (False,), "tie_word_embeddings": (True,)},
)  # fmt: skip

OPT_PARTS: Final = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "out": "self_attn.out_proj",
    "up": "fc1",
    "down": "fc2",
}


def opt(config: Config) -> DecoderKind:
    """Return the row of OPT, which has its norms before the parts, or in one size behind the sums."""
    is_before = config.flag("do_layer_norm_before", True)
    has_last = is_before and not config.flag("_remove_final_layer_norm", False)
    a, b = ("norm_a", "norm_b") if is_before else ("sum_a", "sum_b")
    always = ("enable_bias", "layer_norm_elementwise_affine", "tie_word_embeddings")
    return DecoderKind(
        names={**OPT_PARTS, a: "self_attn_layer_norm", b: "final_layer_norm"},
        last="final_layer_norm" if has_last else None,
        prefix="model.decoder.",
        options={"intermediate_size": "ffn_dim"},
        embed_size=Option("word_embed_proj_dim"),
        norm=evolve(LAYER_NORM, eps=Option("layer_norm_eps", 1e-5)),
        biases=EVERYWHERE,
        rope=None,
        learned=Learned("embed_positions", first=2),
        act=Option("activation_function", "relu"),
        tied=True,
        expected=dict.fromkeys(always, (True,)),
    )


ROWS: Final[dict[str, DecoderKind | Callable[[Config], DecoderKind]]] = {
    "bloom": bloom,
    "cohere": COHERE,
    "deepseek_v3": DEEPSEEK_V3,
    "falcon": falcon,
    "falcon_h1": FALCON_H1,
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3_text": GEMMA3,
    "glm4": GLM4,
    "gpt2": GPT2,
    "gpt_neox": GPT_NEOX,
    "gpt_oss": GPT_OSS,
    "granite": GRANITE,
    "llama": LLAMA,
    "mistral": DecoderKind(window=Window(Option("sliding_window", 4096))),
    "mixtral": MIXTRAL,
    "olmo2": OLMO2,
    "opt": opt,
    "phi": PHI,
    "phi3": PHI3,
    "qwen2": QWEN2,
    "qwen2_moe": QWEN2_MOE,
    "qwen3": QWEN3,
    "qwen3_moe": qwen3_moe,
    "smollm3": SMOLLM3,
    "stablelm": stablelm,
    "starcoder2": STARCODER2,
}
"""By `model_type`."""


def reader(row: DecoderKind | Callable[[Config], DecoderKind]) -> Callable[[Config], Architecture]:
    """Return the function from a configuration to the architecture of a row."""

    def read(config: Config) -> Architecture:
        return decoder_of(row if isinstance(row, DecoderKind) else row(config), config)

    return read


DECODERS: Final[dict[str, Any]] = {name: reader(row) for name, row in ROWS.items()}
"""Functions from configurations to architectures, by `model_type`."""
