"""Attention and its cotangents as native kernels against float64, with the error of NumPy's own float32 as the measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from harness import EVERY_WIDTH, kernel

from rlx_core.ir.dtypes import dtype
from rlx_core.ir.graph import as_results
from rlx_core.ir.op import Op
from rlx_core.ops.attention import Attention, AttentionBackward
from rlx_core.ops.quantized_attention import QuantizedAttention
from rlx_cpu.native.attention.attention_rows import attention, attention_backward, quantized_attention
from rlx_cpu.native.contract import Emit
from rlx_cpu.native.llvm.isa import Isa, available
from rlx_cpu.native.machine import MACHINE

BF16 = dtype("bf16").numpy
EVERY_FLOAT = pytest.mark.parametrize(
    "of", [np.float32, np.float64, np.float16, BF16], ids=lambda of: np.dtype(of).name
)


def in_registers(*arrays: np.ndarray | None) -> list[np.ndarray | None]:
    """What kernels compute with: halves are f32."""
    return [x if x is None or x.dtype.kind in "bi" else x.astype(dtype(x.dtype).accumulator.numpy) for x in arrays]


def rounding(of: Any, exact: np.ndarray) -> np.ndarray:
    """What storing a result in halves may cost: half an ulp, of the smallest normal number at least; nothing for floats."""
    kind = dtype(of)
    if not kind.is_narrow:
        return np.zeros(exact.shape)
    unit, least = {"f16": (2.0**-11, 2.0**-14), "bf16": (2.0**-8, 2.0**-126)}[kind.name]
    return unit * (1 + 2.0**-8) * np.maximum(np.abs(exact), least)


def agrees(isa: Isa, emit: Emit, op: Op, operands: Sequence[np.ndarray | None], ulps: int) -> tuple[np.ndarray, ...]:
    """The kernel's results, after comparing them with the op's meaning in float64.

    An error is at most four times NumPy's own, `ulps` of the largest element, and what storing in halves costs.
    """
    meaning: Any = op
    wide = [x if x is None or x.dtype.kind in "bi" else x.astype(np.float64) for x in operands]
    with np.errstate(all="ignore"):
        exact = as_results(meaning(*wide))
        single = as_results(meaning(*in_registers(*operands)))
    made = kernel(emit, op, operands, isa)
    found = made(*operands)
    for one, e, s in zip(found, exact, single, strict=True):
        assert one.shape == e.shape
        assert np.array_equal(np.isnan(one), np.isnan(e))
        scale = max(np.nanmax(np.abs(e), initial=0.0), 1.0)
        bound = 4 * np.nanmax(np.abs(s - e), initial=0.0) + ulps * np.finfo(s.dtype).eps * scale
        error = np.abs(one.astype(e.dtype) - e)
        assert np.nanmax(error - rounding(one.dtype, e), initial=0.0) <= bound
    for threads in (2, 3):
        for again, one in zip(made(*operands, threads=threads), found, strict=True):
            assert np.array_equal(again, one, equal_nan=True), "threads change no bit"
    return found


def forward(isa: Isa, op: Attention, *operands: np.ndarray | None) -> tuple[np.ndarray, ...]:
    """The result: weights, their total and the sum over values are each a few ulp off."""
    return agrees(isa, attention, op, operands, ulps=16)


def backward(isa: Isa, op: Attention, *operands: np.ndarray | None) -> tuple[np.ndarray, ...]:
    """The cotangents of q, k and v, and of the bias if there is one, for a random one of the result."""
    q, k, v, *rest = operands
    assert q is not None
    dy = np.random.default_rng(9).standard_normal(np.asarray(op(*operands)).shape).astype(q.dtype)
    return agrees(isa, attention_backward, AttentionBackward(**op.attributes()), (q, k, v, dy, *rest), ulps=32)


Direction = Callable[..., tuple[np.ndarray, ...]]
EITHER_WAY = pytest.mark.parametrize("direction", [forward, backward], ids=lambda direction: direction.__name__)


def operands(
    op: Attention, batch: int, queries: int, keys: int, width: int | None = None, of: Any = np.float32, seed: int = 0
) -> list[np.ndarray]:
    """q, k and v in the op's layout."""
    rng = np.random.default_rng(seed)
    width = op.head_dim if width is None else width
    made = []
    for positions, heads, features in (
        (queries, op.num_heads, op.head_dim),
        (keys, op.kv_heads, op.head_dim),
        (keys, op.kv_heads, width),
    ):
        shape = {
            "bsd": (batch, positions, heads * features),
            "bshd": (batch, positions, heads, features),
            "bhsd": (batch, heads, positions, features),
        }[op.layout]
        made.append(rng.standard_normal(shape).astype(of))
    return made


# ------------------------------------------------------------------------------------- in either direction


@EVERY_WIDTH
@EITHER_WAY
@pytest.mark.parametrize("layout", ["bsd", "bshd", "bhsd"])
@EVERY_FLOAT
def test_every_layout_agrees_with_float64(isa: Isa, direction: Direction, layout: str, of: Any) -> None:
    op = Attention(num_heads=3, head_dim=8, layout=layout)
    direction(isa, op, *operands(op, 2, 17, 33, of=of))


@EVERY_WIDTH
@EITHER_WAY
@pytest.mark.parametrize(
    ("queries", "keys", "head_dim", "width"),
    [
        (1, 1, 1, 1),
        (1, 50, 16, 16),
        (5, 7, 3, 5),
        (16, 16, 32, 32),
        (40, 128, 32, 48),
        (130, 128, 32, 48),
        (9, 1200, 8, 20),
        (100, 31, 64, 7),
    ],
)
def test_odd_sizes_and_several_blocks_agree(
    isa: Isa, direction: Direction, queries: int, keys: int, head_dim: int, width: int
) -> None:
    op = Attention(num_heads=2, head_dim=head_dim)
    direction(isa, op, *operands(op, 1, queries, keys, width))


MASKS: dict[str, dict[str, Any]] = {
    "causal": {"mask_kind": "causal"},
    "window of 1": {"mask_kind": "sliding_window", "window": 0},
    "window of 6": {"mask_kind": "sliding_window", "window": 5},
    "window beyond 32 bits": {"mask_kind": "sliding_window", "window": 3 << 30},
}


@EVERY_WIDTH
@EITHER_WAY
@EVERY_FLOAT
def test_heads_whose_rows_lie_far_apart_are_packed_where_many_tiles_read_them(
    isa: Isa, direction: Direction, of: Any
) -> None:
    op = Attention(num_heads=2, head_dim=24)
    apart = [np.zeros((1, 130, 2048), of)[:, :, :48] for _ in range(3)]
    for place, values in zip(apart, operands(op, 1, 130, 130, of=of), strict=True):
        place[:] = values
    assert 130 * apart[0].strides[1] >= MACHINE.attention.spread_nbytes
    direction(isa, op, *apart)


@EVERY_WIDTH
@EITHER_WAY
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("queries", "keys"), [(20, 20), (7, 40), (40, 7), (100, 7), (130, 150), (30, 1100)])
def test_positional_masks_hide_keys(isa: Isa, direction: Direction, mask: str, queries: int, keys: int) -> None:
    """With more queries than keys the first rows see nothing: they are 0, and so are the cotangents of their queries."""
    op = Attention(num_heads=2, head_dim=8, **MASKS[mask])
    rows, *_ = direction(isa, op, *operands(op, 2, queries, keys))
    if queries > keys:
        assert (rows[:, : queries - keys] == 0).all()


@EVERY_WIDTH
@EITHER_WAY
@pytest.mark.parametrize("kv_heads", [1, 2, 6])
@pytest.mark.parametrize("more", [{"layout": "bhsd"}, {"attn_logit_softcap": 1.5}], ids=str)
def test_heads_share_keys_in_groups(isa: Isa, direction: Direction, kv_heads: int, more: dict[str, Any]) -> None:
    op = Attention(num_heads=6, num_kv_heads=kv_heads, head_dim=8, mask_kind="causal", **more)
    direction(isa, op, *operands(op, 2, 12, 12))


@EVERY_WIDTH
@EITHER_WAY
@pytest.mark.parametrize("sizes", [(0, 2, 3), (1, 0, 3), (1, 3, 0)], ids=str)
@pytest.mark.parametrize("is_biased", [False, True], ids=["plain", "biased"])
def test_nothing_to_attend_to_is_zero(
    isa: Isa, direction: Direction, sizes: tuple[int, int, int], is_biased: bool
) -> None:
    op = Attention(num_heads=2, head_dim=4, layout="bshd")
    bias = (None, np.ones((2, 1, sizes[2]), np.float32)) if is_biased else ()
    assert all((x == 0).all() for x in direction(isa, op, *operands(op, *sizes), *bias))


@pytest.mark.medium
@EVERY_WIDTH
@EITHER_WAY
def test_slices_of_one_projection_are_read_where_they_lie(isa: Isa, direction: Direction) -> None:
    """What a fused QKV product leaves: three strided views; and values whose features are not contiguous."""
    rng = np.random.default_rng(3)
    op = Attention(num_heads=4, head_dim=8)
    packed = rng.standard_normal((2, 20, 96)).astype(np.float32)
    direction(isa, op, packed[..., :32], packed[..., 32:64], packed[..., 64:])
    apart = rng.standard_normal((2, 20, 64)).astype(np.float32)[..., ::2]
    direction(isa, op, apart, apart, apart)


# ------------------------------------------------------------------------------------------------ forward


def broadcasts(batch: int, heads: int, queries: int, keys: int) -> list[tuple[int, ...]]:
    return [
        (batch, heads, queries, keys),
        (batch, 1, 1, keys),
        (1, heads, queries, 1),
        (heads, 1, keys),
        (keys,),
        (batch, 1, queries, 1),
    ]


@pytest.mark.medium
@EVERY_WIDTH
@pytest.mark.parametrize("shape", [*broadcasts(2, 2, 9, 21), (2, 21)], ids=str)
@pytest.mark.parametrize("of", [bool, np.float32])
def test_a_mask_hides_what_it_does_not_show(isa: Isa, shape: tuple[int, ...], of: Any) -> None:
    """Rows that see nothing are 0 here too; a mask of two axes is one of keys."""
    rng = np.random.default_rng(1)
    op = Attention(num_heads=2, head_dim=8, mask_kind="custom")
    mask = rng.random(shape).astype(np.float32)
    mask[..., 0] = 0
    given = mask >= 0.5 if of is bool else mask
    forward(isa, op, *operands(op, 2, 9, 21), given)


@EVERY_WIDTH
@pytest.mark.parametrize("shape", broadcasts(2, 2, 9, 32), ids=str)
def test_a_bias_is_added_after_scale_and_cap(isa: Isa, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    op = Attention(num_heads=2, head_dim=8, mask_kind="bias", attn_logit_softcap=1.5, score_scale=0.4)
    bias = rng.standard_normal(shape).astype(np.float32)
    bias[..., 0] = -np.inf
    forward(isa, op, *operands(op, 2, 9, 32), None, bias)


@EVERY_WIDTH
@pytest.mark.parametrize("empty_row", ["zero", "uniform", "nan"])
@pytest.mark.parametrize("keys", [20, 37, 1200])
@pytest.mark.parametrize("is_apart", [False, True])
def test_rows_without_keys_are_what_the_attribute_says(isa: Isa, empty_row: str, keys: int, is_apart: bool) -> None:
    op = Attention(num_heads=1, head_dim=5, mask_kind="custom", empty_row=empty_row)
    mask = np.ones((1, 1, 5, keys), bool)
    mask[0, 0, 2] = False
    q, k, v = operands(op, 1, 5, keys)
    v = np.repeat(v, 2, axis=-1)[..., ::2] if is_apart else v
    (found,) = forward(isa, op, q, k, v, mask)
    expected = {"zero": np.zeros(5), "uniform": v[0].mean(axis=0), "nan": np.full(5, np.nan)}[empty_row]
    np.testing.assert_allclose(found[0, 2], expected, atol=1e-5)


@EVERY_WIDTH
@pytest.mark.parametrize("queries", [1, 2])
@pytest.mark.parametrize("features", [3, 16, 40])
@pytest.mark.parametrize("kv_heads", [1, 4])
def test_a_few_queries_read_keys_where_they_lie(isa: Isa, queries: int, features: int, kv_heads: int) -> None:
    op = Attention(num_heads=4, num_kv_heads=kv_heads, head_dim=features, mask_kind="causal")
    forward(isa, op, *operands(op, 2, queries, 77))
    packed = np.random.default_rng(1).standard_normal((2, 77, 2 * kv_heads * features)).astype(np.float32)
    q = operands(op, 2, queries, 1)[0]
    forward(isa, op, q, packed[..., : kv_heads * features], packed[..., kv_heads * features :])


@pytest.mark.medium
@EVERY_WIDTH
@pytest.mark.parametrize("of", [np.float16, BF16], ids=["f16", "bf16"])
@pytest.mark.parametrize("queries", [1, 12, 70])
def test_halves_are_widened_masked_and_rounded_once(isa: Isa, of: Any, queries: int) -> None:
    """Few queries and many, several blocks of keys, strided operands, masks and biases of either width."""
    rng = np.random.default_rng(5)
    op = Attention(
        num_heads=4, num_kv_heads=2, head_dim=8, mask_kind="causal", attn_logit_softcap=1.5, empty_row="uniform"
    )
    q = rng.standard_normal((2, queries, 32)).astype(of)
    packed = rng.standard_normal((2, 1100, 32)).astype(of)
    mask = rng.random((2, 1, queries, 1100)).astype(of)
    bias = rng.standard_normal((4, 1, 1100)).astype(np.float32 if queries == 12 else of)
    forward(isa, op, q, packed[..., :16], packed[..., 16:], mask, bias)
    apart = np.repeat(packed, 2, axis=-1)[..., ::2]
    forward(isa, op, q, apart[..., :16], apart[..., 16:], mask >= 0.5)


def test_no_weight_is_dropped_for_being_small() -> None:
    """10 000 keys of equal score weigh 1/10 000 each."""
    op = Attention(num_heads=1, head_dim=4)
    q, k = np.ones((1, 3, 4), np.float32), np.ones((1, 10_000, 4), np.float32)
    v = np.ones((1, 10_000, 4), np.float32)
    (found,) = forward(available()[0], op, q, k, v)
    assert np.allclose(found, 1, rtol=1e-6)


def test_an_infinite_or_nan_score_spoils_its_row_alone() -> None:
    op = Attention(num_heads=1, head_dim=4)
    q, k, v = operands(op, 1, 9, 20)
    q[0, 2, 1], q[0, 5] = np.nan, np.inf
    (found,) = forward(available()[0], op, q, np.abs(k) + 1, v)
    assert np.isnan(found[0, (2, 5), :]).all()
    assert np.isfinite(np.delete(found[0], (2, 5), 0)).all()


# ----------------------------------------------------------------------------------------------- backward


@EVERY_WIDTH
@pytest.mark.parametrize("empty_row", ["zero", "uniform", "nan"])
@pytest.mark.parametrize("of", [bool, np.float32])
def test_cotangents_under_a_mask(isa: Isa, empty_row: str, of: Any) -> None:
    op = Attention(num_heads=2, head_dim=4, mask_kind="custom", empty_row=empty_row)
    mask = np.random.default_rng(4).random((2, 1, 5, 20)) >= 0.3
    mask[0, 0, 2] = False
    backward(isa, op, *operands(op, 2, 5, 20), mask.astype(of))


@pytest.mark.medium
@EVERY_WIDTH
@pytest.mark.parametrize("shape", broadcasts(2, 4, 9, 37), ids=str)
@pytest.mark.parametrize("of", [np.float32, BF16], ids=["f32", "bf16"])
def test_the_cotangent_of_a_bias_is_summed_where_it_was_broadcast(isa: Isa, shape: tuple[int, ...], of: Any) -> None:
    rng = np.random.default_rng(6)
    op = Attention(num_heads=4, num_kv_heads=2, head_dim=8, attn_logit_softcap=1.5, mask_kind="causal")
    bias = rng.standard_normal(shape).astype(of)
    mask = rng.random((2, 37)) >= 0.3
    backward(isa, op, *operands(op, 2, 9, 37, of=of), mask, bias)


@pytest.mark.medium
@EVERY_WIDTH
@pytest.mark.parametrize("of", [np.float16, BF16], ids=["f16", "bf16"])
def test_cotangents_of_halves_in_segments_and_in_bits_apart(isa: Isa, of: Any) -> None:
    """Few key heads, so that segments add up dk and dv apart; a wide bias of halves' accumulator; strided operands."""
    rng = np.random.default_rng(7)
    op = Attention(num_heads=2, num_kv_heads=1, head_dim=8)
    q, k, v = operands(op, 1, 130, 150, of=of)
    bias = rng.standard_normal((2, 130, 150)).astype(np.float32)
    backward(isa, op, q, k, v, None, bias)
    backward(isa, op, *(np.repeat(x, 2, axis=-1)[..., ::2] for x in (q, k, v)))


# ------------------------------------------------------------------------------------------ valid keys


@EVERY_WIDTH
@pytest.mark.parametrize("queries", [1, 2, 7, 40])
@pytest.mark.parametrize("more", [{}, {"mask_kind": "causal"}, {"mask_kind": "sliding_window", "window": 9}], ids=str)
def test_keys_beyond_the_valid_ones_are_not_read(isa: Isa, queries: int, more: dict[str, Any]) -> None:
    op = Attention(num_heads=4, num_kv_heads=2, head_dim=8, **more)
    lengths = np.array([0, 1, 33, 70])
    q, k, v = operands(op, 4, queries, 70)
    found = forward(isa, op, q, k, v, None, None, lengths)[0]
    for x in (k, v):
        for row, length in zip(x, lengths, strict=True):
            row[length:] = np.nan
    (poisoned,) = kernel(attention, op, (q, k, v, None, None, lengths), isa)(q, k, v, None, None, lengths)
    np.testing.assert_array_equal(poisoned, found)


def codes(op: QuantizedAttention, batch: int, keys: int) -> tuple[np.ndarray, ...]:
    """Codes of keys and values, and their scales."""
    rng, heads = np.random.default_rng(5), op.kv_heads
    arrays = rng.integers(-127, 128, (2, batch, keys, heads * op.head_dim)).astype(np.int8)
    return (*arrays, *rng.uniform(0.001, 0.02, (2, batch, keys, heads)).astype(np.float32))


@EVERY_WIDTH
@pytest.mark.parametrize("queries", [1, 2, 7, 40])
@pytest.mark.parametrize("more", [{}, {"mask_kind": "causal"}, {"mask_kind": "sliding_window", "window": 9}], ids=str)
def test_codes_are_read_up_to_the_valid_keys(isa: Isa, queries: int, more: dict[str, Any]) -> None:
    """Heads of 8 features, so that codes of a vector are few; scales beyond the valid keys are NaN the second time."""
    op = QuantizedAttention(num_heads=4, num_kv_heads=2, head_dim=8, attn_logit_softcap=20.0, **more)
    lengths, mask = np.array([0, 1, 33, 70]), np.random.default_rng(3).uniform(size=(4, 70)) < 0.8
    q = np.random.default_rng(4).standard_normal((4, queries, 32)).astype(np.float32)
    arrays = codes(op, 4, 70)
    found = agrees(isa, quantized_attention, op, (q, *arrays, mask, None, lengths), ulps=16)[0]
    for scales in arrays[2:]:
        for row, length in zip(scales, lengths, strict=True):
            row[length:] = np.nan
    operands = (q, *arrays, mask, None, lengths)
    (poisoned,) = kernel(quantized_attention, op, operands, isa)(*operands)
    np.testing.assert_array_equal(poisoned, found)


@EVERY_WIDTH
@pytest.mark.parametrize("queries", [1, 40])
def test_codes_of_heads_that_are_not_neighbours(isa: Isa, queries: int) -> None:
    """Layout bhsd, where scales of a head are contiguous, and every second feature of wider codes."""
    op = QuantizedAttention(num_heads=2, head_dim=7, layout="bhsd")
    rng = np.random.default_rng(6)
    q = rng.standard_normal((2, 2, queries, 7)).astype(np.float32)
    k, v = rng.integers(-127, 128, (2, 2, 2, 37, 14)).astype(np.int8)[..., ::2]
    scales = rng.uniform(0.001, 0.02, (2, 2, 2, 37)).astype(np.float32)
    agrees(isa, quantized_attention, op, (q, k, v, *scales), ulps=16)


@EVERY_WIDTH
def test_one_number_of_valid_keys_is_for_all_entries_and_clamped(isa: Isa) -> None:
    op = Attention(num_heads=2, head_dim=8, mask_kind="causal")
    q, k, v = operands(op, 3, 5, 20)
    mask = np.random.default_rng(3).uniform(size=(3, 20)) < 0.7
    (whole,) = forward(isa, op, q, k, v, mask)
    for length, expected in ((21, whole), (1 << 40, whole), (-(1 << 40), 0 * whole)):
        np.testing.assert_array_equal(forward(isa, op, q, k, v, mask, None, np.array(length))[0], expected)
