"""From a `DecoderKind` and a configuration to the architecture: the tensors, the layers, and attention over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from attrs import field, frozen

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import Fact
from rlx_torch.pretrained.decoder_kinds import DecoderKind, Factor, HeadNorm, Norm, Projections
from rlx_torch.pretrained.decoders import DecoderAttention, Heads, Logits, Scores, States, decoder
from rlx_torch.pretrained.experts import Experts, experts_of
from rlx_torch.pretrained.folder import Config, Option
from rlx_torch.pretrained.latent_attention import LatentAttention, latent_attention
from rlx_torch.pretrained.parts import ACTIVATIONS, Architecture, Parameters, linear
from rlx_torch.pretrained.rope import rotary
from rlx_torch.pretrained.state_space import StateSpace, state_space

__all__ = ["decoder_of", "slopes"]

FULL, NEAR = "full_attention", "sliding_attention"
GROUPS: Final = {"q": "qkv", "k": "qkv", "v": "qkv", "qkv": "qkv", "out": "out"}
"""Of the parts of a layer, the group whose biases go together; others are of the net."""

Turn = Callable[[Any, Any], Any]
"""From queries or keys and positions to rotated ones."""


def decoder_of(kind: DecoderKind, config: Config) -> Architecture:
    """Return the architecture of a row: ids i64[batch, length] -> logits f32[batch, length, words]."""
    for name, known in kind.expected.items():
        config.known(name, *known, default=known[0])
    size = _Sizes(kind, config)
    d, words, count = size("hidden_size"), size("vocab_size"), size("num_hidden_layers")
    width = d if kind.embed_size is None else config.size(kind.embed_size.name, d)
    positions = None if kind.rope is None and kind.learned is None else size("max_position_embeddings", 2048)
    layer = _layer_of(kind, config, size)
    is_tied = config.option(kind.tied)
    head_name = f"{kind.embed if is_tied else kind.head}.weight"
    shapes: dict[str, tuple[int, ...]] = {f"{kind.embed}.weight": (words, width), head_name: (words, width)}
    for each in (kind.first, kind.last):
        shapes |= {} if each is None else norm_shapes(kind.norm, each, (d,))
    shapes |= {} if kind.head_bias is None else {kind.head_bias: (words,)}
    if width != d:
        shapes |= {"project_in.weight": (d, width), "project_out.weight": (width, d)}
    if kind.learned is not None and positions is not None:
        shapes[f"{kind.learned.name}.weight"] = (positions + kind.learned.first, d)
    for n in range(count):
        shapes |= layer.shapes(f"{kind.stack}.{n}", n)
    eps = config.number(kind.norm.eps.name, kind.norm.eps.default)
    types = layer_types(kind, config, count)
    turns = [None] * count if kind.rope is None or kind.latent else _turns(kind, config, size, types, positions or 1)

    def layers(parameters: Parameters, ids: Any, places: Any, attend: DecoderAttention, states: States) -> Any:
        h = layer.scaled("embed", nn.embedding(ids, parameters[f"{kind.embed}.weight"]))
        h = h if width == d else linear(parameters, "project_in", h)
        if kind.learned is not None:
            h = h + nn.embedding(places + kind.learned.first, parameters[f"{kind.learned.name}.weight"])
        h = h if kind.first is None else normed(kind.norm, parameters, kind.first, h, eps)
        for n in range(count):
            h = layer(parameters, f"{kind.stack}.{n}", n, h, places, attend, turns[n], states)
        h = h if kind.last is None else normed(kind.norm, parameters, kind.last, h, eps)
        return h if width == d else linear(parameters, "project_out", h)

    return decoder(
        shapes,
        kind.prefix,
        layers,
        Logits(
            head_name,
            kind.head_bias,
            layer.factors.get("logits", 1.0),
            cap(config, kind.logits_cap),
        ),
        layer.heads if layer.latent is None else layer.latent.heads,
        count=count,
        positions=positions,
        scores=_scores(kind, config, layer, types, size),
        state=None if layer.mixer is None else layer.mixer.pair,
        unused=(*kind.unused, *_predictors(config, kind, count)),
    )


@frozen
class _Sizes:
    """Sizes by their standard names, which the file may call otherwise."""

    kind: DecoderKind
    config: Config

    def __call__(self, name: str, default: int | None = None) -> int:
        return self.config.size(self.kind.options.get(name, name), default)


@frozen(kw_only=True)
class _Layer:
    """A layer of a row with the sizes of a configuration: `layer(parameters, at, number, h, positions, attend, turn)`."""

    kind: DecoderKind
    d: int
    inner: int
    heads: Heads
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


def _layer_of(kind: DecoderKind, config: Config, size: _Sizes) -> _Layer:
    d, heads = size("hidden_size"), size("num_attention_heads")
    head = size("head_dim", kind.head_size or max(1, d // heads))
    has_norms = kind.head_norm is not None and (kind.head_norm.when is None or config.option(kind.head_norm.when))
    act = kind.act if isinstance(kind.act, str) else config.known(kind.act.name, *ACTIVATIONS, default=kind.act.default)
    layers = size("num_hidden_layers")
    mixture = None if kind.mixture is None else experts_of(kind.mixture, config, d, ACTIVATIONS[act], layers)
    latent = None if kind.latent is None else latent_attention(kind.latent, config, d, heads)
    keys = heads if latent is not None else size("num_key_value_heads", kind.key_heads or heads)
    value = head if latent is None else latent.value_size
    return _Layer(
        kind=kind,
        d=d,
        inner=_inner(kind, size, d, mixture),
        heads=Heads(heads, keys, head, value),
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


def _inner(kind: DecoderKind, size: _Sizes, d: int, mixture: Experts | None) -> int:
    """Return the features within the net; 0 where every layer has a mixture of experts."""
    if mixture is not None and all(mixture.layers):
        return 0
    return size("intermediate_size", None if kind.inner_factor is None else kind.inner_factor * d)


def norm_shapes(kind: Norm, name: str, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the tensors of a norm."""
    return {f"{name}.{part}": shape for part in (("weight", "bias") if kind.has_bias else ("weight",))}


def head_norm_shapes(kind: HeadNorm, name: str, heads: int, head: int) -> dict[str, tuple[int, ...]]:
    """Return the tensors of the norm of queries or keys."""
    if kind.over == "listed":
        return {f"{name}.norms.{n}.weight": (head,) for n in range(heads)}
    return {f"{name}.weight": {"head": (head,), "heads": (heads, head), "features": (heads * head,)}[kind.over]}


def plain_norm(kind: Norm) -> Callable[..., Any]:
    return nn.rms_norm if kind.kind == "rms" else nn.layer_norm


def normed(kind: Norm, parameters: Parameters, name: str, x: Any, eps: float) -> Any:
    """Return `x` normed with the stored gain, and bias where there is one."""
    gain = parameters[f"{name}.weight"]
    gain = gain + kind.offset if kind.offset else gain
    return plain_norm(kind)(x, gain, parameters.get(f"{name}.bias"), eps=eps)


def split(order: Projections, x: Any, heads: Heads) -> tuple[Any, Any, Any]:
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


def layer_types(kind: DecoderKind, config: Config, count: int) -> list[str]:
    """Return `sliding_attention` or `full_attention` for each layer."""
    if kind.window is None or kind.window.full_every is None:
        stated = config.rows.get("layer_types") if kind.window is None else None
        for name in stated if isinstance(stated, list) else ():
            Config({"layer_types": name}, config.faults).known("layer_types", FULL)
        return [FULL if kind.window is None else NEAR] * count
    option = kind.window.full_every
    every = option if isinstance(option, int) else config.size(option.name, option.default)
    names = config.rows.get("layer_types") or [NEAR if (n + 1) % every else FULL for n in range(count)]
    if not isinstance(names, list) or len(names) != count:
        config.faults.append(Fact("layer_types", f"{names!r}, and must be {count} names"))
        return [FULL] * count
    return [Config({"layer_types": name}, config.faults).known("layer_types", NEAR, FULL) for name in names]


def _scores(kind: DecoderKind, config: Config, layer: _Layer, types: list[str], size: _Sizes) -> Scores:
    windows: tuple[int | None, ...] = ()
    option = None if kind.window is None else kind.window.size
    if option is not None and config.rows.get(option.name, option.default) is not None:
        window = config.size(option.name, option.default)
        windows = tuple(window if each == NEAR else None for each in types)
    scale = factor_of(config, kind.scale) if layer.latent is None else layer.latent.scale
    costs = slopes(size("num_attention_heads")) if kind.has_slopes else None
    return Scores(windows, scale, cap(config, kind.cap), costs)


def _turns(kind: DecoderKind, config: Config, size: _Sizes, types: list[str], room: int) -> list[Turn | None]:
    """Return the rotation of each layer, or `None` for one that does not rotate."""
    rope = kind.rope
    assert rope is not None, "a decoder without rope does not ask"
    renamed = {name: config.rows[other] for name, other in rope.aliases.items() if other in config.rows}
    rows = {**rope.defaults, **renamed, **config.rows}
    head = size("head_dim", kind.head_size or max(1, size("hidden_size") // size("num_attention_heads")))
    nested = rows.get("rope_parameters") or {}
    by_type = {name for name, each in nested.items() if isinstance(each, dict)}
    known = set() if rope.local_theta is None else {FULL, NEAR}
    if by_type - known or (known and nested and not by_type):
        config.faults.append(
            Fact("rope_parameters", f"{', '.join(nested)}; types of layers are {', '.join(known) or 'not known'}")
        )
    kinds = dict.fromkeys(types, rows)
    if rope.local_theta is not None:
        local = {"rope_theta": rows.get(rope.local_theta.name, rope.local_theta.default), "rope_type": "default"}
        kinds[NEAR] = {**rows, "rope_scaling": None, "rope_parameters": {**local, **(nested.get(NEAR) or {})}}
        kinds[FULL] = {**rows, "rope_parameters": nested.get(FULL)}
    made = {
        name: rotary(Config(each, config.faults), head, room, style=rope.style)
        for name, each in kinds.items()
        if name in types
    }
    return [made[name] if has else None for name, has in zip(types, _rotated(kind, config, len(types)), strict=True)]


def _rotated(kind: DecoderKind, config: Config, count: int) -> list[bool]:
    """Return whether each layer rotates."""
    if kind.rope is None or kind.rope.skipped is None:
        return [True] * count
    name, interval = kind.rope.skipped
    stated = config.rows.get(name)
    if stated is None:
        every = config.size(interval.name, interval.default)
        return [(n + 1) % every != 0 for n in range(count)]
    if not isinstance(stated, list) or len(stated) < count:
        config.faults.append(Fact(name, f"{stated!r}, and must be {count} numbers"))
        return [True] * count
    return [bool(each) for each in stated[:count]]


def _predictors(config: Config, kind: DecoderKind, count: int) -> tuple[str, ...]:
    """Return the names of layers behind the last that predict tokens further on (DeepSeek-V3), which are not read."""
    further = config.rows.get("num_nextn_predict_layers", config.rows.get("num_mtp_layers"))
    return tuple(f"{kind.stack}.{count + n}." for n in range(further)) if isinstance(further, int) else ()


def factor_of(config: Config, factor: Factor | None) -> float | None:
    """Return a multiplier, or `None` where there is none."""
    if factor is None:
        return None
    default = 0.0 if factor.default is None else factor.default
    if factor.count is None:
        value = config.number(factor.name, default)
    else:
        value = config.numbers(factor.name, (default,) * factor.count)[factor.index]
    if value <= 0:
        config.faults.append(Fact(factor.name, f"{value!r}, and must be above 0"))
        return 1.0
    return value**factor.power


def cap(config: Config, option: Option | None) -> float | None:
    """Return a number, or `None` where a configuration states none."""
    if option is None or config.rows.get(option.name, option.default) is None:
        return None
    return config.number(option.name, 1.0 if option.default is None else option.default)


def slopes(heads: int) -> np.ndarray:
    """Return the cost of a step of distance for each head, f32[heads].

    Those of a power of two of heads fall evenly from head to head to 2⁻⁸; the other heads get every second one of twice as many.

    Source:
        Press, Smith, Lewis 2022, "Train Short, Test Long", arXiv:2108.12409.
    """
    even = 1 << (heads.bit_length() - 1)
    own = 2.0 ** (-8.0 / even * np.arange(1, even + 1))
    more = 2.0 ** (-4.0 / even * np.arange(1, 2 * (heads - even) + 1, 2))
    return np.concatenate([own, more]).astype(np.float32)
