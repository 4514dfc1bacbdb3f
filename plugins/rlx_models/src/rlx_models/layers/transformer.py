"""`Block`: a layer of a transformer by the names that a checkpoint has for its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from attrs import frozen

from rlx_models.layers.linear import Parameters, layer_shapes, linear, norm, norm_shapes

__all__ = ["PLAIN", "Attend", "Attention", "Block", "Cross"]

Attention = Callable[[Any, Any, Any], Any]
"""What a layer sees, of its queries, keys and values `[batch, steps, heads · head]`."""

Attend = Callable[[int, Any, Any, Any], Any]
"""The attention of a layer by its number."""

Cross = Callable[[Any], Any]
"""What a layer sees of another text, of its queries."""

PLAIN: Final = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "out": "self_attn.out_proj",
    "norm_a": "self_attn_layer_norm",
    "cross_q": "encoder_attn.q_proj",
    "cross_k": "encoder_attn.k_proj",
    "cross_v": "encoder_attn.v_proj",
    "cross_out": "encoder_attn.out_proj",
    "norm_cross": "encoder_attn_layer_norm",
    "up": "fc1",
    "down": "fc2",
    "norm_b": "final_layer_norm",
}
"""The names of BART and Whisper."""


@frozen(kw_only=True)
class Block:
    """A layer: attention, and a net of two products, each added to what it is given and with a layer norm.

    Attributes:
        names: Of `q`, `k`, `v`, `out`, `up`, `down`, `norm_a` and `norm_b`; of one that sees another text, of `cross_q`,
            `cross_k`, `cross_v`, `cross_out` and `norm_cross` too.
        d, inner: Features between layers, and within the net.
        act: Between the products of the net.
        eps: Of the norms.
        norms: `before` the parts, or `behind` the sums.
        unbiased: Parts without a bias.
    """

    names: Mapping[str, str]
    d: int
    inner: int
    act: Callable[[Any], Any]
    eps: float
    norms: Literal["before", "behind"] = "before"
    unbiased: frozenset[str] = frozenset()

    def shapes(self, at: str, *, has_cross: bool = False) -> dict[str, tuple[int, ...]]:
        """The tensors of the layer called `at`."""
        sizes = dict.fromkeys(("q", "k", "v", "out"), (self.d, self.d))
        sizes |= {"up": (self.inner, self.d), "down": (self.d, self.inner)}
        norms = ["norm_a", "norm_b"]
        if has_cross:
            sizes |= dict.fromkeys(("cross_q", "cross_k", "cross_v", "cross_out"), (self.d, self.d))
            norms.append("norm_cross")
        found: dict[str, tuple[int, ...]] = {}
        for part, (outputs, inputs) in sizes.items():
            found |= layer_shapes(f"{at}.{self.names[part]}", outputs, inputs, has_bias=part not in self.unbiased)
        for name in norms:
            found |= norm_shapes(f"{at}.{self.names[name]}", self.d)
        return found

    def __call__(self, parameters: Parameters, at: str, h: Any, attend: Attention, cross: Cross | None = None) -> Any:
        """The layer called `at` of h f32[batch, steps, d]."""

        def part(name: str, x: Any) -> Any:
            return linear(parameters, f"{at}.{self.names[name]}", x)

        def normed(name: str, x: Any) -> Any:
            return norm(parameters, f"{at}.{self.names[name]}", x, self.eps)

        def seen(x: Any) -> Any:
            return part("out", attend(*(part(name, x) for name in "qkv")))

        def fed(x: Any) -> Any:
            return part("down", self.act(part("up", x)))

        def added(name: str, of: Callable[[Any], Any], x: Any) -> Any:
            return x + of(normed(name, x)) if self.norms == "before" else normed(name, x + of(x))

        h = added("norm_a", seen, h)
        if cross is not None:
            h = added("norm_cross", lambda x: part("cross_out", cross(part("cross_q", x))), h)
        return added("norm_b", fed, h)

    def pair(self, parameters: Parameters, at: str, read: Any) -> tuple[Any, Any]:
        """The keys and values that the layer called `at` has of another text."""
        k, v = (linear(parameters, f"{at}.{self.names[name]}", read) for name in ("cross_k", "cross_v"))
        return k, v
