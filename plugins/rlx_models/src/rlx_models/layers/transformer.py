"""`TransformerLayer`: attention and a feed-forward network with residuals and layer norms, by the names of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from attrs import frozen

from rlx_models.layers.linear import Parameters, layer_norm, layer_norm_shapes, linear, linear_shapes

Attention = Callable[[Any, Any, Any], Any]
"""Attention of queries, keys and values f32[batch, length, heads · head_size]."""

CrossAttention = Callable[[Any], Any]
"""Attention of queries to the keys and values of an encoder."""

BART_NAMES: Final = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "out": "self_attn.out_proj",
    "attention_norm": "self_attn_layer_norm",
    "cross_q": "encoder_attn.q_proj",
    "cross_k": "encoder_attn.k_proj",
    "cross_v": "encoder_attn.v_proj",
    "cross_out": "encoder_attn.out_proj",
    "cross_norm": "encoder_attn_layer_norm",
    "up": "fc1",
    "down": "fc2",
    "ffn_norm": "final_layer_norm",
}
"""Names of BART and Whisper."""


@frozen(kw_only=True)
class TransformerLayer:
    """A transformer layer with layer norms and biases.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762, section 3.1; Xiong et al. 2020, "On Layer
        Normalization in the Transformer Architecture", arXiv:2002.04745 (norms before the sublayers).

    Attributes:
        names: Names of `q`, `k`, `v`, `out`, `up`, `down`, `attention_norm` and `ffn_norm`; with cross-attention also of
            `cross_q`, `cross_k`, `cross_v`, `cross_out` and `cross_norm`.
        hidden_size, intermediate_size: Features of the layer and within the feed-forward network.
        act: Activation of the feed-forward network.
        eps: Of the norms.
        norm: `pre`: norms of the inputs of sublayers; `post`: norms of the residual sums.
        unbiased: Linear layers without a bias.
    """

    names: Mapping[str, str]
    hidden_size: int
    intermediate_size: int
    act: Callable[[Any], Any]
    eps: float
    norm: Literal["pre", "post"] = "pre"
    unbiased: frozenset[str] = frozenset()

    def shapes(self, prefix: str, *, has_cross_attention: bool = False) -> dict[str, tuple[int, ...]]:
        """Return the tensors of the layer `prefix`."""
        d, inner = self.hidden_size, self.intermediate_size
        sizes = dict.fromkeys(("q", "k", "v", "out"), (d, d)) | {"up": (inner, d), "down": (d, inner)}
        norms = ["attention_norm", "ffn_norm"]
        if has_cross_attention:
            sizes |= dict.fromkeys(("cross_q", "cross_k", "cross_v", "cross_out"), (d, d))
            norms.append("cross_norm")
        shapes: dict[str, tuple[int, ...]] = {}
        for part, (outputs, inputs) in sizes.items():
            name = f"{prefix}.{self.names[part]}"
            shapes |= linear_shapes(name, outputs, inputs, has_bias=part not in self.unbiased)
        for part in norms:
            shapes |= layer_norm_shapes(f"{prefix}.{self.names[part]}", d)
        return shapes

    def __call__(
        self, parameters: Parameters, prefix: str, h: Any, attention: Attention, cross: CrossAttention | None = None
    ) -> Any:
        """Return the layer `prefix` of h f32[batch, length, hidden_size]."""

        def project(part: str, x: Any) -> Any:
            return linear(parameters, f"{prefix}.{self.names[part]}", x)

        def norm(part: str, x: Any) -> Any:
            return layer_norm(parameters, f"{prefix}.{self.names[part]}", x, self.eps)

        def self_attention(x: Any) -> Any:
            return project("out", attention(*(project(part, x) for part in "qkv")))

        def feed_forward(x: Any) -> Any:
            return project("down", self.act(project("up", x)))

        def residual(part: str, sublayer: Callable[[Any], Any], x: Any) -> Any:
            return x + sublayer(norm(part, x)) if self.norm == "pre" else norm(part, x + sublayer(x))

        h = residual("attention_norm", self_attention, h)
        if cross is not None:
            h = residual("cross_norm", lambda x: project("cross_out", cross(project("cross_q", x))), h)
        return residual("ffn_norm", feed_forward, h)

    def cross_keys_values(self, parameters: Parameters, prefix: str, encoded: Any) -> tuple[Any, Any]:
        """Return the keys and values of the layer's cross-attention for the encoder's output."""
        k, v = (linear(parameters, f"{prefix}.{self.names[part]}", encoded) for part in ("cross_k", "cross_v"))
        return k, v
