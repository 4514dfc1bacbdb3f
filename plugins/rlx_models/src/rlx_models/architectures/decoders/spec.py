"""`DecoderKind`: a decoder as data. A row states the names of its tensors, its norms, positions, attention, net and factors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from attrs import field, frozen

from rlx_models.checkpoints.config import Option

__all__ = [
    "LLAMA_NAMES",
    "ConfigFactor",
    "DecoderKind",
    "HeadNorm",
    "Latent",
    "Learned",
    "Mixture",
    "Norm",
    "Projections",
    "RopeKind",
    "SharedExpert",
    "Window",
]

LLAMA_NAMES: Final = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "out": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
    "norm_a": "input_layernorm",
    "norm_b": "post_attention_layernorm",
}
"""The names of Llama's parts of a layer, and of most decoders after it."""

Projections = Literal["separate", "concatenated", "by-head", "by-group"]


@frozen
class ConfigFactor:
    """A multiplier: the number of an option, raised to a power.

    Attributes:
        name, default: The option; see `Option`.
        power: The exponent.
        index: Of an option with several numbers, which one.
        count: How many there are.
    """

    name: str
    default: float | None = None
    power: float = 1.0
    index: int = 0
    count: int | None = None


@frozen
class Norm:
    """A norm over features.

    Attributes:
        kind: `rms` (Zhang, Sennrich 2019, arXiv:1910.07467) or `layer` (Ba et al. 2016, arXiv:1607.06450).
        eps: Added to the mean of squares, or to the variance.
        offset: Added to the stored gain.
        has_bias: Whether a layer norm has a bias.
    """

    kind: Literal["rms", "layer"] = "rms"
    eps: Option = field(factory=lambda: Option("rms_norm_eps", 1e-6))
    offset: float = 0.0
    has_bias: bool = False


@frozen
class RopeKind:
    """Rotary position embeddings (Su et al. 2021, arXiv:2104.09864).

    Attributes:
        style: The features that form a pair; see `rotary`.
        defaults: Options where the file has none.
        aliases: Names in the file, by the standard name.
        local_theta: Of layers with a window, the base, whose rope is the default kind; `None` where all layers rotate alike.
        skipped: The option with a 0 for each layer that does not rotate; and that whose default skips every n-th.
    """

    style: Literal["half", "interleaved"] = "half"
    defaults: Mapping[str, Any] = field(factory=dict)
    aliases: Mapping[str, str] = field(factory=dict)
    local_theta: Option | None = None
    skipped: tuple[str, Option] | None = None


@frozen
class Learned:
    """A table of positions.

    Attributes:
        name: Of the table.
        first: The row of the first position.
    """

    name: str
    first: int = 0


@frozen
class HeadNorm:
    """Norms of queries and keys.

    Attributes:
        over: `head`: each head, with one gain; `heads`: each head, with a gain of its own in a table f32[heads, head]; `listed`:
            the same, with a tensor a head; `features`: all heads together.
        when: Whether there are such norms.
        names: The names of those of queries and keys.
    """

    over: Literal["head", "heads", "listed", "features"]
    when: Option | None = None
    names: tuple[str, str] = ("self_attn.q_norm", "self_attn.k_norm")


@frozen
class Window:
    """A bound on the distance of keys.

    Attributes:
        size: How many positions, its own included, a query sees; `None` in the file is all.
        full_every: Every n-th layer sees all positions unless the file has `layer_types`; `None`: no layer does.
    """

    size: Option = field(factory=lambda: Option("sliding_window"))
    full_every: Option | int | None = None


@frozen
class SharedExpert:
    """An expert of all tokens.

    Attributes:
        name: Its name.
        inner: The features within it; `None`: those of an expert, times the number of shared ones.
        count: The number of shared ones.
        gate: The linear layer whose sigmoid multiplies it.
    """

    name: str
    inner: Option | None = None
    count: Option | None = None
    gate: str | None = None


@frozen(kw_only=True)
class Mixture:
    """A mixture of experts in place of the net of a layer.

    Attributes:
        name: Its name in a layer.
        router: The name of the linear layer that scores experts.
        count: The number of experts.
        chosen: The number that a token passes through.
        inner: Features within an expert.
        names: Of the products `gate`, `up` and `down` of an expert.
        score: `softmax` over all experts, or `sigmoid` of each with groups and a correction of the choice (DeepSeek-V3).
        is_normalised: Whether the weights of the chosen experts sum to 1.
        is_packed: Whether the experts are one tensor with gates and ups in turn, with biases, and clamped (gpt-oss).
        shared: An expert of all tokens.
        every: Every n-th layer has a mixture.
        dense_layers: The option with the numbers of layers that have none.
        first: The option with the number of layers without one at the start.
    """

    count: Option
    chosen: Option
    inner: Option
    name: str = "mlp"
    router: str = "gate"
    names: Mapping[str, str] = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
    score: Literal["softmax", "sigmoid"] = "softmax"
    is_normalised: bool | Option = True
    is_packed: bool = False
    shared: SharedExpert | None = None
    every: Option | None = None
    dense_layers: str | None = None
    first: Option | None = None


@frozen
class Latent:
    """Multi-head latent attention: keys and values of all heads are products of one latent vector, which is what a cache keeps.

    Source:
        DeepSeek-AI 2024, "DeepSeek-V2", arXiv:2405.04434, section 2.1.
    """

    eps: float = 1e-6


@frozen(kw_only=True)
class DecoderKind:
    """An architecture of decoders.

    A layer is `h + post_a(attention(norm_a(h)))`, then `h + post_b(net(norm_b(h)))`, each norm where `names` has it; `sum_a` and
    `sum_b` are norms of the sums. With `is_parallel`, both parts have the same `h`.

    Attributes:
        names: Of the parts of a layer: `q`, `k` and `v` or `qkv`; `out`; `up` and `down`, or with a gate `gate`, `up` and `down`
            or `gate_up` and `down`; norms.
        embed, last, head, head_bias: The embedding, the last norm (`None`: there is none), the product of logits and its bias.
        first: A norm of embeddings.
        stack: The name before the number of a layer.
        prefix: The prefix that checkpoints may put before names.
        options: Names of options in the file, by the standard name.
        embed_size: The features of embeddings, projected to those of layers where they differ by `project_in` and `project_out`.
        inner_factor: Features within the net over those between layers, where the file does not state them.
        key_heads: The number of heads of keys and values where the file has no option for it; `None`: that of queries.
        head_size: Features of a head where the file does not state them; `None`: features over heads.
        norm: Of layers and the last.
        is_parallel: Whether attention and net have the same input.
        projections: Order of queries, keys and values in the product `qkv`.
        biases: Of the groups `qkv`, `out` and `net`, whether the products have biases.
        is_turned: Whether weights are `[inputs, outputs]`.
        head_norm: Norms of queries and keys.
        rope, learned, has_slopes: How positions are told: rotation, a table, or biases of scores for distances.
        window: A bound on the distance of keys.
        has_sinks: Whether each head has a score `self_attn.sinks` for no key.
        scale, cap: Of scores, the multiplier (default: one over the root of a head's features) and c in `c·tanh(scores / c)`.
        latent: Multi-head latent attention in place of the products of queries, keys and values.
        act: Of the net.
        mixture: A mixture of experts in place of the net.
        has_state_space: Whether a state space `mamba` is beside attention; both are given the same, and their sum is added.
        factors: Multipliers of `embed`ddings, `residual`s (what a part adds), `logits`, `keys`, what attention is given and gives
            (`attention_in`, `attention_out`), what the state space gives (`mamba_out`), gates before the activation (`gate`),
            and what the net gives (`net`).
        logits_cap: c in `c·tanh(logits / c)`.
        tied: Whether logits are products with the embedding.
        expected: Values that options must have; others change results, and are refused.
        unused: Beginnings or ends of names of tensors that checkpoints may have besides.
    """

    names: Mapping[str, str] = field(factory=lambda: LLAMA_NAMES)
    embed: str = "embed_tokens"
    first: str | None = None
    last: str | None = "norm"
    head: str = "lm_head"
    head_bias: str | None = None
    stack: str = "layers"
    prefix: str = "model."
    options: Mapping[str, str] = field(factory=dict)
    embed_size: Option | None = None
    inner_factor: int | None = None
    key_heads: int | None = None
    head_size: int | None = None
    norm: Norm = field(factory=Norm)
    is_parallel: bool | Option = False
    projections: Projections = "separate"
    biases: Mapping[str, bool | Option] = field(factory=dict)
    is_turned: bool = False
    head_norm: HeadNorm | None = None
    rope: RopeKind | None = field(factory=RopeKind)
    learned: Learned | None = None
    has_slopes: bool = False
    window: Window | None = None
    has_sinks: bool = False
    scale: ConfigFactor | None = None
    cap: Option | None = None
    latent: Latent | None = None
    act: Option | str = field(factory=lambda: Option("hidden_act", "silu"))
    mixture: Mixture | None = None
    has_state_space: bool = False
    factors: Mapping[str, ConfigFactor] = field(factory=dict)
    logits_cap: Option | None = None
    tied: bool | Option = field(factory=lambda: Option("tie_word_embeddings", False))
    expected: Mapping[str, tuple[Any, ...]] = field(factory=dict)
    unused: tuple[str, ...] = ()
