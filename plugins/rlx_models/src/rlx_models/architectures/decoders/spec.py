"""`DecoderSpec`: a decoder as data: names of its tensors, norms, positions, attention, feed-forward networks and multipliers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from attrs import field, frozen

from rlx_models.checkpoints import Option

LLAMA_NAMES: Final = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "out": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
    "attention_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
"""Names in a layer of Llama, and of most decoders after it."""

Projections = Literal["separate", "concatenated", "by-head", "by-group"]


@frozen
class Multiplier:
    """A multiplier: the number of an option, raised to a power.

    Attributes:
        name, default: The option; see `Option`.
        power: The exponent.
        index, count: For an option with `count` numbers, the index of this one.
    """

    name: str
    default: float | None = None
    power: float = 1.0
    index: int = 0
    count: int | None = None


@frozen
class NormSpec:
    """A norm over features.

    Attributes:
        kind: `rms` (Zhang, Sennrich 2019, arXiv:1910.07467) or `layer` (Ba et al. 2016, arXiv:1607.06450).
        eps: Added to the mean of squares, or to the variance.
        offset: Added to the stored weight.
        has_bias: Whether a layer norm has a bias.
    """

    kind: Literal["rms", "layer"] = "rms"
    eps: Option = field(factory=lambda: Option("rms_norm_eps", 1e-6))
    offset: float = 0.0
    has_bias: bool = False


@frozen
class RopeSpec:
    """Rotary position embeddings.

    Attributes:
        style: The features that form a pair; see `rotary`.
        defaults: Options if the file has none.
        aliases: Names in the file, by the standard name.
        local_theta: The base of layers with a window, whose rope has the default type; `None`: all layers rotate alike.
        skipped: The option with a 0 for each layer that does not rotate, and the option n: by default, every n-th does not.
    """

    style: Literal["half", "interleaved"] = "half"
    defaults: Mapping[str, Any] = field(factory=dict)
    aliases: Mapping[str, str] = field(factory=dict)
    local_theta: Option | None = None
    skipped: tuple[str, Option] | None = None


@frozen
class PositionTable:
    """Learned absolute positions.

    Attributes:
        name: The name of the table.
        offset: The row of the first position.
    """

    name: str
    offset: int = 0


@frozen
class HeadNormSpec:
    """Norms of queries and keys.

    Attributes:
        over: `head`: each head, with one weight for all; `heads`: each head, with its weight in a table f32[heads, head_size];
            `listed`: each head, with its weight in a separate tensor; `features`: all heads as one vector.
        enabled: The option that enables the norms; `None`: they are always there.
        names: Names of the norms of queries and keys.
    """

    over: Literal["head", "heads", "listed", "features"]
    enabled: Option | None = None
    names: tuple[str, str] = ("self_attn.q_norm", "self_attn.k_norm")


@frozen
class WindowSpec:
    """Sliding-window attention.

    Attributes:
        size: The number of positions that a query attends to, up to and including its own; `null` in the file is all.
        full_every: Every n-th layer attends to all positions unless the file has `layer_types`; `None`: no layer does.
    """

    size: Option = field(factory=lambda: Option("sliding_window"))
    full_every: Option | int | None = None


@frozen
class SharedExpertSpec:
    """An expert that processes all tokens.

    Attributes:
        name: Its name.
        intermediate_size: Its features; `None`: those of an expert times the number of shared experts.
        num_experts: The number of shared experts.
        gate: The linear layer whose sigmoid is its multiplier.
    """

    name: str
    intermediate_size: Option | None = None
    num_experts: Option | None = None
    gate: str | None = None


@frozen(kw_only=True)
class ExpertsSpec:
    """A mixture of experts in place of the feed-forward network of a layer.

    Attributes:
        num_experts, experts_per_token: The numbers of experts, and of those that a token is routed to.
        intermediate_size: Features within an expert.
        name: Its name in a layer.
        router: The name of the linear layer that scores experts.
        names: Names of the projections `gate`, `up` and `down` of an expert.
        scoring: `softmax` over all experts, or `sigmoid` of each with groups and a correction of the choice (DeepSeek-V3).
        is_normalised: Whether the weights of a token's experts sum to 1.
        is_packed: Whether the experts are one tensor with interleaved gates and ups, biases, and clamped values (gpt-oss).
        shared: An expert that processes all tokens.
        layer_step: Every n-th layer has a mixture.
        dense_layers: The option with the indices of layers without one.
        first_layer: The option with the number of leading layers without one.
    """

    num_experts: Option
    experts_per_token: Option
    intermediate_size: Option
    name: str = "mlp"
    router: str = "gate"
    names: Mapping[str, str] = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
    scoring: Literal["softmax", "sigmoid"] = "softmax"
    is_normalised: bool | Option = True
    is_packed: bool = False
    shared: SharedExpertSpec | None = None
    layer_step: Option | None = None
    dense_layers: str | None = None
    first_layer: Option | None = None


@frozen
class LatentAttentionSpec:
    """Multi-head latent attention: keys and values of all heads are products of one latent vector, which the cache has.

    Source:
        DeepSeek-AI 2024, "DeepSeek-V2", arXiv:2405.04434, section 2.1.
    """

    eps: float = 1e-6


@frozen(kw_only=True)
class DecoderSpec:
    """An architecture of decoders.

    A layer is `h + attention_post_norm(attention(attention_norm(h)))`, then `h + ffn_post_norm(ffn(ffn_norm(h)))`, each norm if
    `names` has it; `attention_sum_norm` and `ffn_sum_norm` are norms of the sums. With `is_parallel`, attention and feed-forward
    network have the same `h`.

    Attributes:
        names: Names in a layer: `q`, `k` and `v`, or `qkv`; `out`; `up` and `down`, with a gate also `gate`, or `gate_up` and
            `down`; norms.
        embedding, lm_head, lm_head_bias: Names of the embedding, of the projection to logits and of its bias.
        embedding_norm, final_norm: Names of the norms of embeddings and of the last hidden states; `None`: there is none.
        layer_list: The name in front of the index of a layer.
        prefix: Prefix of names in checkpoints, which may be absent.
        options: Names of options in the file, by the standard name.
        embedding_size: Features of embeddings; if they differ from those of layers, `project_in` and `project_out` map them.
        intermediate_factor: `intermediate_size` over `hidden_size` if the file has no option for it.
        num_kv_heads: Heads of keys and values if the file has no option for them; `None`: those of queries.
        head_size: Features of a head if the file has no option for them; `None`: `hidden_size` over heads.
        norm: Of layers and the last hidden states.
        is_parallel: Whether attention and feed-forward network have the same input.
        projections: Order of queries, keys and values in the projection `qkv`.
        biases: Whether the groups `qkv`, `out` and `ffn` of projections have biases.
        is_transposed: Whether weights are `[inputs, outputs]`.
        head_norm: Norms of queries and keys.
        rope, position_table, has_alibi: The encoding of positions: rotation, a table, or linear biases of scores.
        window: Sliding-window attention.
        has_sinks: Whether each head has an attention sink `self_attn.sinks`.
        score_scale: The multiplier of scores; by default 1/√head_size.
        score_softcap, logits_softcap: c in `c·tanh(x / c)` of scores and logits.
        latent_attention: Multi-head latent attention in place of the projections of queries, keys and values.
        act: The activation of feed-forward networks.
        experts: A mixture of experts in place of the feed-forward network.
        has_mamba: Whether a Mamba-2 mixer `mamba` runs in parallel to attention on the same input; the outputs are added.
        multipliers: Of `embedding`s; of `residual`s (outputs of attention and feed-forward network); of `logits`; of `keys`; of
            `attention_input`, `attention_output` and `mamba_output`; of gates before the activation (`gate`) and of the output of
            the feed-forward network (`ffn`).
        tie_word_embeddings: Whether the projection to logits is the embedding.
        required: Values that options must have; other values change results and are rejected.
        unused: Prefixes and suffixes of tensors in checkpoints that are not read.
    """

    names: Mapping[str, str] = field(factory=lambda: LLAMA_NAMES)
    embedding: str = "embed_tokens"
    embedding_norm: str | None = None
    final_norm: str | None = "norm"
    lm_head: str = "lm_head"
    lm_head_bias: str | None = None
    layer_list: str = "layers"
    prefix: str = "model."
    options: Mapping[str, str] = field(factory=dict)
    embedding_size: Option | None = None
    intermediate_factor: int | None = None
    num_kv_heads: int | None = None
    head_size: int | None = None
    norm: NormSpec = field(factory=NormSpec)
    is_parallel: bool | Option = False
    projections: Projections = "separate"
    biases: Mapping[str, bool | Option] = field(factory=dict)
    is_transposed: bool = False
    head_norm: HeadNormSpec | None = None
    rope: RopeSpec | None = field(factory=RopeSpec)
    position_table: PositionTable | None = None
    has_alibi: bool = False
    window: WindowSpec | None = None
    has_sinks: bool = False
    score_scale: Multiplier | None = None
    score_softcap: Option | None = None
    latent_attention: LatentAttentionSpec | None = None
    act: Option | str = field(factory=lambda: Option("hidden_act", "silu"))
    experts: ExpertsSpec | None = None
    has_mamba: bool = False
    multipliers: Mapping[str, Multiplier] = field(factory=dict)
    logits_softcap: Option | None = None
    tie_word_embeddings: bool | Option = field(factory=lambda: Option("tie_word_embeddings", False))
    required: Mapping[str, tuple[Any, ...]] = field(factory=dict)
    unused: tuple[str, ...] = ()
