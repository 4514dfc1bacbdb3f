"""Rotary embedding against complex multiplication, which is what it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx_core.ops.rope import rope, rope_backward

RNG = np.random.default_rng(5)


def rotated(x: np.ndarray, angles: np.ndarray, n_rot: int, style: str) -> np.ndarray:
    """`[b, h, s, d]` with each pair as a complex number, turned by `angles[s, pair]` (or `[b, s, pair]`)."""
    y, half = x.copy(), n_rot // 2
    first, second = (
        (slice(0, half), slice(half, n_rot)) if style == "half" else (slice(0, n_rot, 2), slice(1, n_rot, 2))
    )
    turn = np.exp(1j * angles[..., :half])
    z = (x[..., first] + 1j * x[..., second]) * (turn if angles.ndim == 2 else turn[:, None])
    y[..., first], y[..., second] = z.real, z.imag
    return y


@pytest.mark.parametrize("style", ["half", "interleaved"])
@pytest.mark.parametrize("n_rot", [6, 4, 2])
def test_pairs_turn_by_the_angle_of_their_position_and_the_rest_is_copied(style: Any, n_rot: int) -> None:
    x, angles = RNG.normal(size=(2, 3, 4, 6)), RNG.uniform(-3, 3, (5, 3))
    y = rope(x, np.cos(angles), np.sin(angles), head_dim=6, n_rot=n_rot, layout="bhsd", style=style)
    np.testing.assert_allclose(y, rotated(x, angles[:4], n_rot, style), rtol=1e-12, atol=1e-14)


def test_layouts_agree_where_sequence_and_heads_have_one_size() -> None:
    x, angles = RNG.normal(size=(2, 3, 3, 4)), RNG.uniform(-3, 3, (3, 2))
    tables = np.cos(angles), np.sin(angles)
    y = rope(x, *tables, head_dim=4, layout="bhsd")
    swapped = np.swapaxes(x, 1, 2)
    np.testing.assert_allclose(rope(swapped, *tables, head_dim=4, layout="bshd"), np.swapaxes(y, 1, 2), rtol=1e-14)
    flat = rope(swapped.reshape(2, 3, 12), *tables, head_dim=4)
    np.testing.assert_allclose(flat, np.swapaxes(y, 1, 2).reshape(2, 3, 12), rtol=1e-14)


def test_positions_choose_the_rows_of_the_tables() -> None:
    x, angles = RNG.normal(size=(2, 3, 4, 6)), RNG.uniform(-3, 3, (9, 3))
    positions = np.array([[8, 0, 0, 3], [1, 2, 3, 4]], np.uint8)
    y = rope(x, np.cos(angles), np.sin(angles), positions, head_dim=6, layout="bhsd")
    np.testing.assert_allclose(y, rotated(x, angles[positions], 6, "half"), rtol=1e-12, atol=1e-14)


def test_the_backward_op_is_the_inverse_rotation() -> None:
    x, angles = RNG.normal(size=(2, 3, 12)), RNG.uniform(-3, 3, (3, 3))
    tables = np.cos(angles), np.sin(angles)
    settings: dict[str, Any] = {"head_dim": 6, "n_rot": 4, "style": "interleaved"}
    np.testing.assert_allclose(rope_backward(rope(x, *tables, **settings), *tables, **settings), x, rtol=1e-12)
