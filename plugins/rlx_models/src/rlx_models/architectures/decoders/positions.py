"""Positions in the layers of a decoder: layer types, rotations, and linear biases of scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from rlx_core.errors import Fact
from rlx_models.architectures.decoders.options import SizeOptions
from rlx_models.architectures.decoders.spec import DecoderSpec
from rlx_models.checkpoints import Config
from rlx_models.layers.rope import rotary

FULL: Final = "full_attention"
LOCAL: Final = "sliding_attention"

Rotation = Callable[[Any, Any], Any]
"""From queries or keys and positions to rotated ones."""


def layer_types(spec: DecoderSpec, config: Config, count: int) -> list[str]:
    """Return `sliding_attention` or `full_attention` for each layer."""
    option = config.values.get("layer_types")
    if spec.window is None:
        for name in option if isinstance(option, list) else ():
            Config({"layer_types": name}, config.faults).choice("layer_types", FULL)
        return [FULL] * count
    if spec.window.full_every is None:
        return [LOCAL] * count
    full_every = spec.window.full_every
    every = full_every if isinstance(full_every, int) else config.size_of(full_every)
    names = option or [LOCAL if (n + 1) % every else FULL for n in range(count)]
    if not isinstance(names, list) or len(names) != count:
        config.faults.append(Fact("layer_types", f"{names!r}, and must be {count} names"))
        return [FULL] * count
    return [Config({"layer_types": name}, config.faults).choice("layer_types", LOCAL, FULL) for name in names]


def rotations(
    spec: DecoderSpec, config: Config, sizes: SizeOptions, types: list[str], max_positions: int
) -> list[Rotation | None]:
    """Return the rotation of each layer, or `None` for a layer that does not rotate."""
    if spec.rope is None or spec.latent_attention is not None:
        return [None] * len(types)
    by_type = {
        name: rotary(Config(options, config.faults), sizes.head_size(), max_positions, style=spec.rope.style)
        for name, options in _rope_options(spec, config, types).items()
    }
    is_rotated = _rotated_layers(spec, config, len(types))
    return [by_type[name] if rotates else None for name, rotates in zip(types, is_rotated, strict=True)]


def _rope_options(spec: DecoderSpec, config: Config, types: list[str]) -> dict[str, dict[str, Any]]:
    """Return the options of rope for each layer type."""
    rope = spec.rope
    assert rope is not None, "only decoders with rope have rotations"
    renamed = {name: config.values[alias] for name, alias in rope.aliases.items() if alias in config.values}
    options = {**rope.defaults, **renamed, **config.values}
    nested = Config(options, config.faults).table("rope_parameters")
    nested_types = {name for name, value in nested.items() if isinstance(value, dict)}
    known_types = () if rope.local_theta is None else (FULL, LOCAL)
    if nested_types.difference(known_types) or (known_types and nested and not nested_types):
        text = f"{', '.join(nested)}; supported layer types are {', '.join(known_types) or 'none'}"
        config.faults.append(Fact("rope_parameters", text))
    if rope.local_theta is None:
        return dict.fromkeys(types, options)
    theta = options.get(rope.local_theta.name, rope.local_theta.default)
    local = {"rope_theta": theta, "rope_type": "default", **(nested.get(LOCAL) or {})}
    by_type = {
        LOCAL: {**options, "rope_scaling": None, "rope_parameters": local},
        FULL: {**options, "rope_parameters": nested.get(FULL)},
    }
    return {name: by_type[name] for name in dict.fromkeys(types)}


def _rotated_layers(spec: DecoderSpec, config: Config, count: int) -> list[bool]:
    """Return whether each layer rotates."""
    if spec.rope is None or spec.rope.skipped is None:
        return [True] * count
    name, interval = spec.rope.skipped
    flags = config.values.get(name)
    if flags is None:
        every = config.size_of(interval)
        return [(n + 1) % every != 0 for n in range(count)]
    if not isinstance(flags, list) or len(flags) < count:
        config.faults.append(Fact(name, f"{flags!r}, and must be {count} numbers"))
        return [True] * count
    return [bool(flag) for flag in flags[:count]]


def alibi_slopes(num_heads: int) -> np.ndarray:
    """Return the slope of the bias by distance for each head, f32[heads].

    Slopes of a power of two of heads are a geometric sequence that ends at 2⁻⁸; the other heads get every second one of twice
    as many.

    Source:
        Press, Smith, Lewis 2022, "Train Short, Test Long", arXiv:2108.12409.
    """
    even = 1 << (num_heads.bit_length() - 1)
    slopes = 2.0 ** (-8.0 / even * np.arange(1, even + 1))
    more = 2.0 ** (-4.0 / even * np.arange(1, 2 * (num_heads - even) + 1, 2))
    return np.concatenate([slopes, more]).astype(np.float32)
