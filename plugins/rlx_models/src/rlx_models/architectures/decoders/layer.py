"""`Layer`: a layer of a decoder by its row, with the sizes of a configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from attrs import field, frozen

import rlx_core as rlx
from rlx_models.architectures.decoders.programs import DecoderAttention, HeadCounts, States
from rlx_models.architectures.decoders.experts import Experts, experts_of
from rlx_models.architectures.decoders.spec import DecoderKind, HeadNorm, Projections
from rlx_models.architectures.decoders.latent_attention import LatentAttention, latent_attention
from rlx_models.architectures.decoders.norms import head_norm_shapes, norm_shapes, normed, plain_norm
from rlx_models.architectures.decoders.options import SizeOptions, factor_of
from rlx_models.architectures.decoders.positions import Turn
from rlx_models.architectures.decoders.mamba2 import StateSpace, state_space
from rlx_models.checkpoints.config import Config
from rlx_models.layers.linear import ACTIVATIONS, Parameters, linear

__all__ = ["Layer", "layer_of"]


GROUPS: Final = {"q": "qkv", "k": "qkv", "v": "qkv", "qkv": "qkv", "out": "out"}
"""Of the parts of a layer, the group whose biases go together; others are of the net."""


@frozen(kw_only=True)
class Layer:
    """A layer of a row with the sizes of a configuration: `layer(parameters, at, number, h, positions, attend, turn)`."""

    kind: DecoderKind
    d: int
    inner: int
    heads: HeadCounts
    eps: float
    act: Callable[[Any], Any] = field(eq=False)
    has_bias: dict[str, bool]
    head_norm: HeadNorm | None
    is_parallel: bool
    factors: dict[str, float]
    mixer: StateSpace | None
    experts: Experts | None
    latent: LatentAttention | None

    def shapes(self, at: str, number: int) -> dict[str, tuple[int, ...]]:
        """Return the tensors of layer `number`, called `at`."""
        names, heads = self.kind.names, self.heads
        q, k = heads.queries * heads.key_size, heads.keys * heads.key_size
        outputs = {"q": q, "k": k, "v": k, "qkv": q + 2 * k, "gate": self.inner, "up": self.inner}
        outputs |= {"gate_up": 2 * self.inner, "out": self.d, "down": self.d}
        inputs = {"out": heads.queries * heads.value_size, "down": self.inner}
        shapes: dict[str, tuple[int, ...]] = {}
        for part in (each for each in outputs if each in names):
            group = GROUPS.get(part, "net")
            if (self.has_experts(number) and group == "net") or (self.latent is not None and group == "qkv"):
                continue
            size = (outputs[part], inputs.get(part, self.d))
            shapes[f"{at}.{names[part]}.weight"] = size[::-1] if self.kind.is_turned else size
            shapes |= {f"{at}.{names[part]}.bias": size[:1]} if self.has_bias[group] else {}
        for part in ("norm_a", "norm_b", "post_a", "post_b", "sum_a", "sum_b"):
            shapes |= norm_shapes(self.kind.norm, f"{at}.{names[part]}", (self.d,)) if part in names else {}
        if self.head_norm is not None:
            for name, count in zip(self.head_norm.names, (heads.queries, heads.keys), strict=True):
                shapes |= head_norm_shapes(self.head_norm, f"{at}.{name}", count, heads.key_size)
        shapes |= {f"{at}.self_attn.sinks": (heads.queries,)} if self.kind.has_sinks else {}
        if self.experts is not None and self.has_experts(number):
            shapes |= self.experts.shapes(at)
        shapes |= {} if self.mixer is None else self.mixer.shapes(f"{at}.mamba")
        return shapes if self.latent is None else shapes | self.latent.shapes(f"{at}.self_attn")

    def scaled(self, name: str, x: Any) -> Any:
        """Return `x` times a multiplier of the row, where it has one."""
        factor = self.factors.get(name, 1.0)
        return x if factor == 1.0 else x * factor

    def has_experts(self, number: int) -> bool:
        return self.experts is not None and self.experts.layers[number]

    def __call__(
        self,
        parameters: Parameters,
        at: str,
        number: int,
        h: Any,
        positions: Any,
        attend: DecoderAttention,
        turn: Turn | None,
        states: States,
    ) -> Any:
        def norm(part: str, x: Any) -> Any:
            name = self.kind.names.get(part)
            return x if name is None else normed(self.kind.norm, parameters, f"{at}.{name}", x, self.eps)

        def scaled(x: Any) -> Any:
            return self.scaled("residual", x)

        given = norm("norm_a", h)
        seen = self._attention(parameters, at, number, self.scaled("attention_in", given), positions, attend, turn)
        seen = scaled(norm("post_a", self.scaled("attention_out", seen)))
        if self.mixer is not None:
            y, state = self.mixer(parameters, f"{at}.mamba", given, states.real, states.before[number])
            states.after.append(state)
            seen = self.scaled("mamba_out", y) + seen
        if self.is_parallel:
            return h + seen + scaled(norm("post_b", self._net(parameters, at, number, norm("norm_b", h))))
        h = norm("sum_a", h + seen)
        return norm("sum_b", h + scaled(norm("post_b", self._net(parameters, at, number, norm("norm_b", h)))))

    def _part(self, parameters: Parameters, at: str, part: str, x: Any) -> Any:
        return linear(parameters, f"{at}.{self.kind.names[part]}", x, is_turned=self.kind.is_turned)

    def _attention(
        self, parameters: Parameters, at: str, number: int, x: Any, positions: Any, attend: DecoderAttention, turn: Any
    ) -> Any:
        if self.latent is not None:
            seen = self.latent(parameters, f"{at}.self_attn", number, x, positions, attend)
            return self._part(parameters, at, "out", seen)
        if self.kind.projections == "separate":
            q, k, v = (self._part(parameters, at, part, x) for part in "qkv")
        else:
            q, k, v = split(self.kind.projections, self._part(parameters, at, "qkv", x), self.heads)
        k = self.scaled("keys", k)
        if self.head_norm is not None:
            pairs = zip((q, k), self.head_norm.names, strict=True)
            q, k = (self._head_normed(parameters, f"{at}.{name}", each) for each, name in pairs)
        if turn is not None:
            q, k = turn(q, positions), turn(k, positions)
        sinks = parameters[f"{at}.self_attn.sinks"] if self.kind.has_sinks else None
        return self._part(parameters, at, "out", attend(number, q, k, v, sinks=sinks))

    def _head_normed(self, parameters: Parameters, name: str, x: Any) -> Any:
        assert self.head_norm is not None, "a layer without such norms does not call this"
        match self.head_norm.over:
            case "features":
                return normed(self.kind.norm, parameters, name, x, self.eps)
            case "head":
                heads = rlx.reshape(x, (*x.shape[:-1], -1, self.heads.key_size))
                return rlx.reshape(normed(self.kind.norm, parameters, name, heads, self.eps), x.shape)
            case over:
                heads = rlx.reshape(x, (*x.shape[:-1], -1, self.heads.key_size))
                y = plain_norm(self.kind.norm)(heads, eps=self.eps)
                listed = (
                    (parameters[f"{name}.norms.{n}.weight"] for n in range(heads.shape[-2])) if over == "listed" else ()
                )
                gains = parameters[f"{name}.weight"] if over == "heads" else rlx.stack(list(listed))
                return rlx.reshape(y * gains, x.shape)

    def _net(self, parameters: Parameters, at: str, number: int, x: Any) -> Any:
        if self.experts is not None and self.experts.layers[number]:
            return self.experts(parameters, at, x)
        if "gate_up" in self.kind.names:
            gate, up = rlx.split(self._part(parameters, at, "gate_up", x), 2, axis=-1)
            return self._part(parameters, at, "down", self.act(gate) * up)
        up = self._part(parameters, at, "up", x)
        if "gate" not in self.kind.names:
            return self._part(parameters, at, "down", self.act(up))
        gate = self.act(self.scaled("gate", self._part(parameters, at, "gate", x)))
        return self.scaled("net", self._part(parameters, at, "down", gate * up))


def layer_of(kind: DecoderKind, config: Config, size: SizeOptions) -> Layer:
    d, heads = size("hidden_size"), size("num_attention_heads")
    head = size("head_dim", kind.head_size or max(1, d // heads))
    has_norms = kind.head_norm is not None and (kind.head_norm.when is None or config.option(kind.head_norm.when))
    act = kind.act if isinstance(kind.act, str) else config.known(kind.act.name, *ACTIVATIONS, default=kind.act.default)
    layers = size("num_hidden_layers")
    mixture = None if kind.mixture is None else experts_of(kind.mixture, config, d, ACTIVATIONS[act], layers)
    latent = None if kind.latent is None else latent_attention(kind.latent, config, d, heads)
    keys = heads if latent is not None else size("num_key_value_heads", kind.key_heads or heads)
    value = head if latent is None else latent.value_size
    return Layer(
        kind=kind,
        d=d,
        inner=_inner(kind, size, d, mixture),
        heads=HeadCounts(heads, keys, head, value),
        eps=config.number(kind.norm.eps.name, kind.norm.eps.default),
        act=ACTIVATIONS[act],
        has_bias={group: config.option(kind.biases.get(group, False)) for group in ("qkv", "out", "net")},
        head_norm=kind.head_norm if has_norms else None,
        is_parallel=config.option(kind.is_parallel),
        factors={name: factor_of(config, each) or 1.0 for name, each in kind.factors.items()},
        mixer=state_space(config, d) if kind.has_state_space else None,
        experts=mixture,
        latent=latent,
    )


def _inner(kind: DecoderKind, size: SizeOptions, d: int, mixture: Experts | None) -> int:
    """Return the features within the net; 0 where every layer has a mixture of experts."""
    if mixture is not None and all(mixture.layers):
        return 0
    return size("intermediate_size", None if kind.inner_factor is None else kind.inner_factor * d)


def split(order: Projections, x: Any, heads: HeadCounts) -> tuple[Any, Any, Any]:
    """Return queries, keys and values of one product.

    `concatenated` has all queries, then all keys, then all values; `by-head` those of a head after those of another; `by-group`
    the queries of a group before its key and its value.
    """
    if order == "concatenated":
        q, k = heads.queries * heads.key_size, heads.keys * heads.key_size
        queries, keys, values = rlx.split(x, [q, q + k], axis=-1)
        return queries, keys, values
    groups = heads.queries if order == "by-head" else heads.keys
    parts = rlx.reshape(x, (*x.shape[:-1], groups, heads.queries // groups + 2, heads.key_size))
    pieces = parts[..., :-2, :], parts[..., -2, :], parts[..., -1, :]
    queries, keys, values = (rlx.reshape(each, (*x.shape[:-1], -1)) for each in pieces)
    return queries, keys, values
