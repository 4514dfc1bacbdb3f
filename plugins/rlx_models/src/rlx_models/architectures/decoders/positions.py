"""How the layers of a decoder know positions: windows by type of layer, rotations, and biases for distances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx_core.errors import Fact
from rlx_models.architectures.decoders.spec import DecoderKind
from rlx_models.architectures.decoders.options import SizeOptions
from rlx_models.checkpoints.config import Config
from rlx_models.layers.rope import rotary

__all__ = ["FULL", "NEAR", "Turn", "layer_types", "rotations", "slopes"]


FULL, NEAR = "full_attention", "sliding_attention"

Turn = Callable[[Any, Any], Any]
"""From queries or keys and positions to rotated ones."""


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


def rotations(kind: DecoderKind, config: Config, size: SizeOptions, types: list[str], room: int) -> list[Turn | None]:
    """Return the rotation of each layer, or `None` for one that does not rotate."""
    rope = kind.rope
    assert rope is not None, "a decoder without rope does not ask"
    renamed = {name: config.rows[other] for name, other in rope.aliases.items() if other in config.rows}
    rows = {**rope.defaults, **renamed, **config.rows}
    head = size("head_dim", kind.head_size or max(1, size("hidden_size") // size("num_attention_heads")))
    nested = Config(rows, config.faults).table("rope_parameters")
    by_type = {name for name, each in nested.items() if isinstance(each, dict)}
    known = () if rope.local_theta is None else (FULL, NEAR)
    if by_type.difference(known) or (known and nested and not by_type):
        stated = f"{', '.join(nested)}; types of layers are {', '.join(known) or 'not known'}"
        config.faults.append(Fact("rope_parameters", stated))
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
