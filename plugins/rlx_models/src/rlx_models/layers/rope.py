"""Rotary position embeddings: the tables of a configuration, and the function that applies them to queries and keys."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, Literal

import numpy as np

from rlx_core import nn
from rlx_core.errors import Fact
from rlx_models.checkpoints.config import Config

__all__ = ["attention_factor", "rope_config", "rope_tables", "rotary", "yarn_factor", "yarn_scale"]

KINDS = ("default", "linear", "llama3", "yarn")


def rotary(
    config: Config, head: int, room: int, *, style: Literal["half", "interleaved"] = "half"
) -> Callable[[Any, Any], Any]:
    """Return `rope(x, positions)`, which rotates queries or keys by positions i64[steps], counted from 0, or i64[batch, steps].

    Args:
        head: Features of a head, of which the first `partial_rotary_factor` are rotated.
        room: The most positions.
        style: The features that form a pair: `half` pairs i with i + n/2, `interleaved` 2i with 2i + 1.
    """
    rotated = int(head * rope_config(config).number("partial_rotary_factor", 1.0))
    cos, sin = rope_tables(config, head, room, rotated)

    def rope(x: Any, positions: Any) -> Any:
        rank = len(positions.shape)
        return nn.rope(x, cos, sin, positions if rank == 2 else None, head_dim=head, n_rot=rotated, style=style)

    return rope


def rope_config(config: Config) -> Config:
    """Return the options of rope: those in `rope_parameters`, or `rope_scaling` of older files, with those beside them."""
    stated = config.table("rope_parameters") or config.table("rope_scaling")
    return Config({**config.rows, "rope_type": stated.get("type", "default"), **stated}, config.faults)


MOST_ANGLES: Final = 1 << 29
"""Elements of the tables of a model: 4,194,304 positions of heads of 128."""


def rope_tables(config: Config, head: int, room: int, rotated: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return cosines and sines f32[room, head / 2] of the angles of heads, of which the first `rotated` features are rotated.

    `linear` divides every frequency by a factor. `llama3` divides low frequencies, keeps high ones, and interpolates between
    them (Llama 3.1). `yarn` does so by the index of a pair, and scales the tables by `attention_factor`.

    Source:
        Peng et al. 2023, "YaRN", arXiv:2309.00071, sections 3.2 to 3.4.
    """
    if room * head > MOST_ANGLES:
        stated = f"{room:,} of heads of {head:,}; tables of more than {MOST_ANGLES:,} angles"
        config.faults.append(Fact("positions", stated))
        room, head, rotated = 2, 2, None
    options, n = rope_config(config), rotated or head
    kind = options.known("rope_type", *KINDS)
    base = options.number("rope_theta", 10000.0)
    rates = base ** (-np.arange(0, n, 2) / n)
    if kind == "linear":
        rates = rates / options.number("factor", 1.0)
    if kind == "llama3":
        factor, low, high = (
            options.number(n, d) for n, d in (("factor", 8.0), ("low_freq_factor", 1.0), ("high_freq_factor", 4.0))
        )
        turns = options.number("original_max_position_embeddings", 8192) * rates / (2 * np.pi)
        share = np.clip((turns - low) / (high - low), 0, 1)
        rates = rates * (share + (1 - share) / factor)
    if kind == "yarn":
        share = yarn_shares(options, base, n)
        rates = rates * (share + (1 - share) / yarn_factor(options))
    angles = np.arange(room)[:, None] * np.pad(rates, (0, head // 2 - len(rates)))
    scale = attention_factor(config)
    return (np.cos(angles) * scale).astype(np.float32), (np.sin(angles) * scale).astype(np.float32)


def yarn_factor(options: Config) -> float:
    """Return how many times longer texts are than those of the first training."""
    if options.rows.get("factor") is not None:
        return options.number("factor", 1.0)
    return options.size("max_position_embeddings", 2048) / options.size("original_max_position_embeddings")


def yarn_shares(options: Config, base: float, n: int) -> np.ndarray:
    """Return the share f64[n / 2] of each pair's own frequency: 1 for high frequencies, 0 for low ones, linear between them.

    The bounds are the pairs that make `beta_fast` and `beta_slow` turns over the length of the first training.
    """
    length = options.size("original_max_position_embeddings")

    def pair(turns: float) -> float:
        return n * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair(options.number("beta_fast", 32.0)), pair(options.number("beta_slow", 1.0))
    if options.flag("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, n - 1)
    width = high - low or 1e-3
    return 1 - np.clip((np.arange(n // 2) - low) / width, 0, 1)


def attention_factor(config: Config) -> float:
    """Return by what `yarn` scales cosines and sines; 1 for other kinds.

    It is what the file states, or 0.1·ln(factor) + 1, or the quotient of two such numbers with `mscale` and `mscale_all_dim`.
    """
    options = rope_config(config)
    if options.rows.get("rope_type") != "yarn":
        return 1.0
    if options.rows.get("attention_factor") is not None:
        return options.number("attention_factor", 1.0)
    factor = yarn_factor(options)
    scales = [options.number(name, 0.0) for name in ("mscale", "mscale_all_dim")]
    if all(scales):
        return yarn_scale(factor, scales[0]) / yarn_scale(factor, scales[1])
    return yarn_scale(factor)


def yarn_scale(factor: float, scale: float = 1.0) -> float:
    """Return `0.1·scale·ln(factor) + 1`, the temperature of attention over texts `factor` times longer; 1 for factors up to 1.

    Source:
        Peng et al. 2023, "YaRN", arXiv:2309.00071, section 3.4.
    """
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0
