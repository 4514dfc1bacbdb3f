"""Rotary position embeddings: the tables of a configuration, and the function that applies them to queries and keys.

Source:
    Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", arXiv:2104.09864.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, Literal

import numpy as np

from rlx_core import nn
from rlx_core.errors import Fact
from rlx_models.checkpoints import Config

ROPE_TYPES: Final = ("default", "linear", "llama3", "yarn", "divided")


def rotary(
    config: Config, head_size: int, max_positions: int, *, style: Literal["half", "interleaved"] = "half"
) -> Callable[[Any, Any], Any]:
    """Return `rope(x, positions)`, which rotates queries or keys by positions i64[length], counted from 0, or i64[batch, length].

    Args:
        head_size: Features of a head, of which the first `partial_rotary_factor` are rotated.
        max_positions: The number of rows of the tables.
        style: The features that form a pair: `half` pairs i with i + n/2, `interleaved` 2i with 2i + 1.
    """
    rotated = int(head_size * rope_config(config).number("partial_rotary_factor", 1.0))
    cos, sin = rope_tables(config, head_size, max_positions, rotated)

    def rope(x: Any, positions: Any) -> Any:
        rank = len(positions.shape)
        return nn.rope(x, cos, sin, positions if rank == 2 else None, head_dim=head_size, n_rot=rotated, style=style)

    return rope


def rope_config(config: Config) -> Config:
    """Return the configuration with the options of `rope_parameters`, or of `rope_scaling` in older files, at its top level."""
    options = config.table("rope_parameters") or config.table("rope_scaling")
    return Config({**config.values, "rope_type": options.get("type", "default"), **options}, config.faults)


MAX_TABLE_SIZE: Final = 1 << 29
"""Maximum number of elements of a table: 4,194,304 positions of heads of 128."""


def rope_tables(
    config: Config, head_size: int, max_positions: int, rotated: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return cosines and sines f32[max_positions, head_size / 2] of the angles of heads.

    `linear` divides every frequency by a factor. `llama3` divides low frequencies, keeps high ones, and interpolates between
    them (Llama 3.1). `yarn` does so by the index of a pair, and scales the tables by `attention_factor`.
    `divided` divides each by a number of its own, as GGUF files of Llama 3.1 state it.

    Args:
        rotated: The number of leading features of a head that are rotated; by default all.

    Source:
        Peng et al. 2023, "YaRN", arXiv:2309.00071, sections 3.2 to 3.4.
    """
    if max_positions * head_size > MAX_TABLE_SIZE:
        text = f"{max_positions:,} of heads of {head_size:,}; tables of more than {MAX_TABLE_SIZE:,} angles"
        config.faults.append(Fact("positions", text))
        max_positions, head_size, rotated = 2, 2, None
    options, n = rope_config(config), rotated or head_size
    rope_type = options.choice("rope_type", *ROPE_TYPES)
    frequencies = rope_frequencies(options, rope_type, n)
    angles = np.arange(max_positions)[:, None] * np.pad(frequencies, (0, head_size // 2 - len(frequencies)))
    scale = attention_factor(config)
    cos, sin = (np.cos(angles) * scale).astype(np.float32), (np.sin(angles) * scale).astype(np.float32)
    cos.flags.writeable = sin.flags.writeable = False  # a constant of all layers is then in memory once
    return cos, sin


def rope_frequencies(options: Config, rope_type: str, n: int) -> np.ndarray:
    """Return the angle per position of each pair, f64[n / 2], for options as `rope_config` returns them."""
    base = options.number("rope_theta", 10000.0)
    frequencies = base ** (-np.arange(0, n, 2) / n)
    if rope_type == "linear":
        frequencies = frequencies / options.number("factor", 1.0)
    if rope_type == "divided":
        frequencies = frequencies / np.array(options.numbers("divisors", (1.0,) * len(frequencies)))
    if rope_type == "llama3":
        factor, low, high = (
            options.number(n, d) for n, d in (("factor", 8.0), ("low_freq_factor", 1.0), ("high_freq_factor", 4.0))
        )
        rotations = options.number("original_max_position_embeddings", 8192) * frequencies / (2 * np.pi)
        share = np.clip((rotations - low) / (high - low), 0, 1)
        frequencies = frequencies * (share + (1 - share) / factor)
    if rope_type == "yarn":
        share = yarn_shares(options, base, n)
        frequencies = frequencies * (share + (1 - share) / yarn_factor(options))
    return frequencies


def yarn_factor(options: Config) -> float:
    """Return the ratio of the maximum length to that of pretraining."""
    if options.values.get("factor") is not None:
        return options.number("factor", 1.0)
    return options.size("max_position_embeddings", 2048) / options.size("original_max_position_embeddings")


def yarn_shares(options: Config, base: float, n: int) -> np.ndarray:
    """Return the share f64[n / 2] of each pair's original frequency: 1 for high frequencies, 0 for low ones, linear between.

    The bounds are the pairs that make `beta_fast` and `beta_slow` rotations over the length of pretraining.
    """
    length = options.size("original_max_position_embeddings")

    def pair(rotations: float) -> float:
        return n * math.log(length / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair(options.number("beta_fast", 32.0)), pair(options.number("beta_slow", 1.0))
    if options.flag("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, n - 1)
    width = high - low or 1e-3
    return 1 - np.clip((np.arange(n // 2) - low) / width, 0, 1)


def attention_factor(config: Config) -> float:
    """Return the scale that `yarn` applies to cosines and sines; 1 for other types.

    It is an option of the file, or 0.1·ln(factor) + 1, or the quotient of two such numbers with `mscale` and `mscale_all_dim`.
    """
    options = rope_config(config)
    if options.values.get("rope_type") != "yarn":
        return 1.0
    if options.values.get("attention_factor") is not None:
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
