"""The decoders: a row for each `model_type`, or a function of the configuration where options change the row.

Source: the configurations and modules of these names in Transformers 5.24.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from attrs import evolve

from rlx_models.architectures.architecture import Architecture
from rlx_models.architectures.decoders.architecture import decoder
from rlx_models.architectures.decoders.spec import (
    LLAMA_NAMES,
    DecoderSpec,
    ExpertsSpec,
    HeadNormSpec,
    LatentAttentionSpec,
    Multiplier,
    NormSpec,
    PositionTable,
    RopeSpec,
    SharedExpertSpec,
    WindowSpec,
)
from rlx_models.checkpoints import Config, Option

ATTENTION_BIAS = Option("attention_bias", False)
PROJECTED: Final = {"qkv": ATTENTION_BIAS, "out": ATTENTION_BIAS}
EVERYWHERE: Final = {"qkv": True, "out": True, "ffn": True}
TIED: Final = Option("tie_word_embeddings", True)
LOCAL: Final = {"use_sliding_window": (False, None)}
"""Windows that are switched on by a second option are refused."""

LAYER_NORM: Final = NormSpec("layer", Option("layer_norm_eps", 1e-5), has_bias=True)
FUSED_NET: Final = {"gate_up": "mlp.gate_up_proj", "down": "mlp.down_proj"}


def without(names: dict[str, str], *parts: str) -> dict[str, str]:
    return {part: name for part, name in names.items() if part not in parts}


LLAMA: Final = DecoderSpec(biases={**PROJECTED, "ffn": Option("mlp_bias", False)})

GEMMA_NAMES: Final = {
    **LLAMA_NAMES,
    "attention_post_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "ffn_post_norm": "post_feedforward_layernorm",
}
GEMMA: Final = DecoderSpec(
    norm=NormSpec(offset=1.0),
    head_size=256,
    # The first files state "gelu" as `hidden_act`, and mean this.
    act="gelu_pytorch_tanh",
    biases=PROJECTED,
    multipliers={"embedding": Multiplier("hidden_size", power=0.5)},
    tie_word_embeddings=TIED,
    required={"hidden_activation": (None, "gelu_pytorch_tanh")},
)
GEMMA2: Final = evolve(
    GEMMA,
    names=GEMMA_NAMES,
    score_scale=Multiplier("query_pre_attn_scalar", 256.0, -0.5),
    score_softcap=Option("attn_logit_softcapping", 50.0),
    logits_softcap=Option("final_logit_softcapping", 30.0),
    window=WindowSpec(Option("sliding_window", 4096), full_every=2),
)
GEMMA3: Final = evolve(
    GEMMA2,
    head_norm=HeadNormSpec("head"),
    score_softcap=None,
    logits_softcap=Option("final_logit_softcapping"),
    rope=RopeSpec(defaults={"rope_theta": 1_000_000.0}, local_theta=Option("rope_local_base_freq", 10_000.0)),
    window=WindowSpec(Option("sliding_window", 4096), full_every=Option("sliding_window_pattern", 6)),
    required={
        "hidden_activation": ("gelu_pytorch_tanh", None),
        "use_bidirectional_attention": (False, None),
        # Transformers has the option and does not use it, so what a file means by it is not known.
        "attn_logit_softcapping": (None,),
    },
)
MIXTRAL: Final = DecoderSpec(
    norm=NormSpec(eps=Option("rms_norm_eps", 1e-5)),
    rope=RopeSpec(defaults={"rope_theta": 1_000_000.0}),
    window=WindowSpec(),
    experts=ExpertsSpec(
        name="block_sparse_moe",
        names={"gate": "w1", "up": "w3", "down": "w2"},
        num_experts=Option("num_local_experts", 8),
        experts_per_token=Option("num_experts_per_tok", 2),
        intermediate_size=Option("intermediate_size"),
    ),
)
QWEN2: Final = DecoderSpec(biases={"qkv": True}, required=LOCAL)
QWEN3: Final = DecoderSpec(biases=PROJECTED, head_norm=HeadNormSpec("head"), required=LOCAL)
SPARSE: Final = ExpertsSpec(
    num_experts=Option("num_experts", 128),
    experts_per_token=Option("num_experts_per_tok", 8),
    intermediate_size=Option("moe_intermediate_size", 768),
    is_normalised=Option("norm_topk_prob", False),
    layer_step=Option("decoder_sparse_step", 1),
    dense_layers="mlp_only_layers",
)
QWEN2_MOE: Final = evolve(
    QWEN2,
    biases={"qkv": Option("qkv_bias", True)},
    experts=evolve(
        SPARSE,
        num_experts=Option("num_experts", 60),
        experts_per_token=Option("num_experts_per_tok", 4),
        intermediate_size=Option("moe_intermediate_size", 1408),
        shared=SharedExpertSpec(
            "shared_expert", Option("shared_expert_intermediate_size", 5632), gate="shared_expert_gate"
        ),
    ),
)


def qwen3_moe(config: Config) -> DecoderSpec:
    """Return Qwen 3's row with experts, whose number has two names."""
    name = "num_experts" if "num_experts" in config.values else "num_local_experts"
    return evolve(QWEN3, experts=evolve(SPARSE, num_experts=Option(name, 128)))


PHI3: Final = DecoderSpec(
    names={**without(LLAMA_NAMES, *"qkv", "gate", "up"), "qkv": "self_attn.qkv_proj", **FUSED_NET},
    projections="concatenated",
    norm=NormSpec(eps=Option("rms_norm_eps", 1e-5)),
    window=WindowSpec(),
)
OLMO2: Final = DecoderSpec(
    names={**without(LLAMA_NAMES, "attention_norm", "ffn_norm"), "attention_post_norm": "post_attention_layernorm",
           "ffn_post_norm": "post_feedforward_layernorm"},
    norm=NormSpec(eps=Option("rms_norm_eps", 1e-5)),
    biases=PROJECTED,
    head_norm=HeadNormSpec("features"),
)  # fmt: skip
GRANITE: Final = evolve(
    LLAMA,
    score_scale=Multiplier("attention_multiplier", 1.0),
    multipliers={
        "embedding": Multiplier("embedding_multiplier", 1.0),
        "residual": Multiplier("residual_multiplier", 1.0),
        "logits": Multiplier("logits_scaling", 1.0, -1.0),
    },
)
SMOLLM3: Final = evolve(
    LLAMA,
    rope=RopeSpec(
        defaults={"rope_theta": 2_000_000.0}, skipped=("no_rope_layers", Option("no_rope_layer_interval", 4))
    ),
    tie_word_embeddings=TIED,
    required=LOCAL,
)
STARCODER2: Final = DecoderSpec(
    names={**without(LLAMA_NAMES, "gate"), "up": "mlp.c_fc", "down": "mlp.c_proj"},
    norm=NormSpec("layer", Option("norm_epsilon", 1e-5), has_bias=True),
    biases=dict.fromkeys(("qkv", "out", "ffn"), Option("use_bias", True)),
    act=Option("hidden_act", "gelu_pytorch_tanh"),
    window=WindowSpec(),
    tie_word_embeddings=TIED,
)
COHERE: Final = DecoderSpec(
    names=without(LLAMA_NAMES, "ffn_norm") | {"ffn_norm": "input_layernorm"},
    norm=NormSpec("layer", Option("layer_norm_eps", 1e-5)),
    is_parallel=True,
    biases=PROJECTED,
    rope=RopeSpec("interleaved", {"rope_theta": 500_000.0}),
    head_norm=HeadNormSpec("heads", Option("use_qk_norm", False)),
    multipliers={"logits": Multiplier("logit_scale", 0.0625)},
    tie_word_embeddings=TIED,
)
GLM4: Final = DecoderSpec(
    names={**without(LLAMA_NAMES, "gate", "up"), **FUSED_NET, "attention_post_norm": "post_self_attn_layernorm",
           "ffn_post_norm": "post_mlp_layernorm"},
    norm=NormSpec(eps=Option("rms_norm_eps", 1.5625e-7)),
    head_size=128,
    biases={"qkv": Option("attention_bias", True)},
    rope=RopeSpec("interleaved", {"partial_rotary_factor": 0.5}),
)  # fmt: skip
GPT_OSS: Final = DecoderSpec(
    norm=NormSpec(eps=Option("rms_norm_eps", 1e-5)),
    head_size=64,
    biases=dict.fromkeys(("qkv", "out"), Option("attention_bias", True)),
    rope=RopeSpec(
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
    window=WindowSpec(Option("sliding_window", 128), full_every=2),
    has_sinks=True,
    experts=ExpertsSpec(
        num_experts=Option("num_local_experts", 128),
        experts_per_token=Option("num_experts_per_tok", 4),
        intermediate_size=Option("intermediate_size", 2880),
        router="router",
        is_packed=True,
    ),
)
DEEPSEEK_V3: Final = DecoderSpec(
    biases={"out": ATTENTION_BIAS},
    latent_attention=LatentAttentionSpec(),
    required={"scoring_func": ("sigmoid", None), "topk_method": ("noaux_tc", None), "moe_layer_freq": (1, None)},
    experts=ExpertsSpec(
        num_experts=Option("n_routed_experts", 256),
        experts_per_token=Option("num_experts_per_tok", 8),
        intermediate_size=Option("moe_intermediate_size", 2048),
        scoring="sigmoid",
        is_normalised=Option("norm_topk_prob", True),
        shared=SharedExpertSpec("shared_experts", num_experts=Option("n_shared_experts", 1)),
        first_layer=Option("first_k_dense_replace", 3),
    ),
)


FALCON_H1: Final = evolve(
    LLAMA,
    names={
        **LLAMA_NAMES,
        "gate": "feed_forward.gate_proj",
        "up": "feed_forward.up_proj",
        "down": "feed_forward.down_proj",
        "ffn_norm": "pre_ff_layernorm",
    },
    final_norm="final_layernorm",
    norm=NormSpec(eps=Option("rms_norm_eps", 1e-5)),
    has_mamba=True,
    multipliers={
        "embedding": Multiplier("embedding_multiplier", 1.0),
        "logits": Multiplier("lm_head_multiplier", 1.0),
        "keys": Multiplier("key_multiplier", 1.0),
        "attention_input": Multiplier("attention_in_multiplier", 1.0),
        "attention_output": Multiplier("attention_out_multiplier", 1.0),
        "mamba_output": Multiplier("ssm_out_multiplier", 1.0),
        "gate": Multiplier("mlp_multipliers", 1.0, index=0, count=2),
        "ffn": Multiplier("mlp_multipliers", 1.0, index=1, count=2),
    },
)


def stablelm(config: Config) -> DecoderSpec:
    """Return the row of StableLM, whose parallel layers have one norm."""
    is_parallel = config.flag("use_parallel_residual", False)
    return DecoderSpec(
        names={**LLAMA_NAMES, "ffn_norm": "input_layernorm"} if is_parallel else LLAMA_NAMES,
        norm=LAYER_NORM,
        is_parallel=is_parallel,
        biases={"qkv": Option("use_qkv_bias", False)},
        rope=RopeSpec(defaults={"partial_rotary_factor": 0.25}),
        head_norm=HeadNormSpec(
            "listed", Option("qk_layernorm", False), ("self_attn.q_layernorm", "self_attn.k_layernorm")
        ),
    )


NEOX_NAMES: Final = {
    "qkv": "attention.query_key_value",
    "out": "attention.dense",
    "up": "mlp.dense_h_to_4h",
    "down": "mlp.dense_4h_to_h",
    "attention_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
GPT_NEOX: Final = DecoderSpec(
    names=NEOX_NAMES,
    embedding="embed_in",
    final_norm="final_layer_norm",
    lm_head="embed_out",
    prefix="gpt_neox.",
    norm=LAYER_NORM,
    is_parallel=Option("use_parallel_residual", True),
    projections="by-head",
    biases={**dict.fromkeys(("qkv", "out"), Option("attention_bias", True)), "ffn": True},
    rope=RopeSpec(
        defaults={"partial_rotary_factor": 0.25},
        aliases={"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"},
    ),
    act=Option("hidden_act", "gelu"),
)
PHI: Final = DecoderSpec(
    names={**without(LLAMA_NAMES, "gate"), "out": "self_attn.dense", "up": "mlp.fc1", "down": "mlp.fc2",
           "ffn_norm": "input_layernorm"},
    final_norm="final_layernorm",
    lm_head_bias="lm_head.bias",
    norm=LAYER_NORM,
    is_parallel=True,
    biases=EVERYWHERE,
    rope=RopeSpec(defaults={"partial_rotary_factor": 0.5}),
    act=Option("hidden_act", "gelu_new"),
    tie_word_embeddings=False,
    required={"qk_layernorm": (False,), "tie_word_embeddings": (False,)},
)  # fmt: skip
BLOOM_NAMES: Final = {**NEOX_NAMES, "qkv": "self_attention.query_key_value", "out": "self_attention.dense"}
FALCON: Final = DecoderSpec(
    names=BLOOM_NAMES,
    embedding="word_embeddings",
    final_norm="ln_f",
    layer_list="h",
    prefix="transformer.",
    intermediate_factor=4,
    norm=evolve(LAYER_NORM, eps=Option("layer_norm_epsilon", 1e-5)),
    biases=dict.fromkeys(("qkv", "out", "ffn"), Option("bias", False)),
    act=Option("activation", "gelu"),
    tie_word_embeddings=TIED,
    options={"intermediate_size": "ffn_hidden_size", "num_key_value_heads": "num_kv_heads"},
    required={"alibi": (False, None)},
)


def falcon(config: Config) -> DecoderSpec:
    """Return the row of Falcon: an early or a late architecture, with one head of keys, groups of heads, or a head each."""
    is_late = config.flag("new_decoder_architecture", False)
    is_grouped = is_late or config.flag("multi_query", True)
    is_parallel = is_late or config.flag("parallel_attn", True)
    names = dict(BLOOM_NAMES)
    if is_late and config.size("num_ln_in_parallel_attn", 2) == 2:
        names |= {"attention_norm": "ln_attn", "ffn_norm": "ln_mlp"}
    elif is_parallel:
        names["ffn_norm"] = "input_layernorm"
    kind = evolve(FALCON, names=names, is_parallel=is_parallel, projections="by-group" if is_grouped else "by-head")
    if is_late:
        return kind
    # The early architecture has no option for the number of heads of keys.
    return evolve(kind, num_kv_heads=1 if is_grouped else None, options={"intermediate_size": "ffn_hidden_size"})


def bloom(config: Config) -> DecoderSpec:
    """Return the row of BLOOM, whose options have older names."""
    older = {"num_attention_heads": "n_head", "num_hidden_layers": "n_layer", "hidden_size": "n_embed"}
    return DecoderSpec(
        names=BLOOM_NAMES,
        embedding="word_embeddings",
        embedding_norm="word_embeddings_layernorm",
        final_norm="ln_f",
        layer_list="h",
        prefix="transformer.",
        options={
            name: other for name, other in older.items() if other in config.values and config.values.get(name) is None
        },
        intermediate_factor=4,
        norm=evolve(LAYER_NORM, eps=Option("layer_norm_epsilon", 1e-5)),
        projections="by-head",
        biases=EVERYWHERE,
        rope=None,
        has_alibi=True,
        act="gelu_new",
        tie_word_embeddings=True,
        required={"apply_residual_connection_post_layernorm": (False,), "tie_word_embeddings": (True,)},
    )


GPT2: Final = DecoderSpec(
    names={"qkv": "attn.c_attn", "out": "attn.c_proj", "up": "mlp.c_fc", "down": "mlp.c_proj", "attention_norm": "ln_1",
           "ffn_norm": "ln_2"},
    embedding="wte",
    final_norm="ln_f",
    layer_list="h",
    prefix="transformer.",
    options={
        "hidden_size": "n_embd", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer",
        "intermediate_size": "n_inner", "max_position_embeddings": "n_positions",
    },
    intermediate_factor=4,
    norm=evolve(LAYER_NORM, eps=Option("layer_norm_epsilon", 1e-5)),
    projections="concatenated",
    biases=EVERYWHERE,
    is_transposed=True,
    rope=None,
    position_table=PositionTable("wpe"),
    act=Option("activation_function", "gelu_new"),
    tie_word_embeddings=True,
    required={"scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": (False,), "tie_word_embeddings": (True,)},
)  # fmt: skip

OPT_PARTS: Final = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "out": "self_attn.out_proj",
    "up": "fc1",
    "down": "fc2",
}


def opt(config: Config) -> DecoderSpec:
    """Return the row of OPT, which has its norms before the parts, or in one size behind the sums."""
    is_before = config.flag("do_layer_norm_before", True)
    has_last = is_before and not config.flag("_remove_final_layer_norm", False)
    a, b = ("attention_norm", "ffn_norm") if is_before else ("attention_sum_norm", "ffn_sum_norm")
    always = ("enable_bias", "layer_norm_elementwise_affine", "tie_word_embeddings")
    return DecoderSpec(
        names={**OPT_PARTS, a: "self_attn_layer_norm", b: "final_layer_norm"},
        final_norm="final_layer_norm" if has_last else None,
        prefix="model.decoder.",
        options={"intermediate_size": "ffn_dim"},
        embedding_size=Option("word_embed_proj_dim"),
        norm=evolve(LAYER_NORM, eps=Option("layer_norm_eps", 1e-5)),
        biases=EVERYWHERE,
        rope=None,
        position_table=PositionTable("embed_positions", offset=2),
        act=Option("activation_function", "relu"),
        tie_word_embeddings=True,
        required=dict.fromkeys(always, (True,)),
    )


ROWS: Final[dict[str, DecoderSpec | Callable[[Config], DecoderSpec]]] = {
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
    "mistral": DecoderSpec(window=WindowSpec(Option("sliding_window", 4096))),
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


def reader(row: DecoderSpec | Callable[[Config], DecoderSpec]) -> Callable[[Config], Architecture]:
    """Return the function from a configuration to the architecture of a row."""

    def read(config: Config) -> Architecture:
        return decoder(row if isinstance(row, DecoderSpec) else row(config), config)

    return read


DECODERS: Final[dict[str, Any]] = {name: reader(row) for name, row in ROWS.items()}
"""Functions from configurations to architectures, by `model_type`."""
