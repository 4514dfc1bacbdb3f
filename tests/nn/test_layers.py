"""The functions models are written with: what they record, what they read off their operands, what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import (
    ConfigError,
    DtypeError,
    IndexRangeError,
    ShapeError,
    WrongInputCountError,
)
from rlx_core.ir.block import Block
from rlx_core.ir.graph import Builder, Value
from rlx_core.ir.types import spec
from rlx_core.ops.attention import Attention
from rlx_core.ops.blocks import LinearBlock
from rlx_core.ops.loss import softmax_cross_entropy_with_logits

RNG = np.random.default_rng(4)


def inputs(builder: Builder, **types: str) -> list[Value]:
    return [builder.input(name, spec(t)) for name, t in types.items()]


def test_linear_records_a_block_that_says_whether_it_has_a_bias() -> None:
    x, w, b = inputs(Builder(), x="f32[3, 4]", w="f32[4, 5]", b="f32[5]")
    assert nn.linear(x, w, b, activation="gelu", name="up").node.op == LinearBlock(activation="gelu", has_bias=True)
    assert nn.linear(x, w).node.op == LinearBlock()


def test_linear_takes_a_single_vector_and_arrays_at_once() -> None:
    x, w, b = RNG.normal(size=4), RNG.normal(size=(4, 2)), RNG.normal(size=2)
    np.testing.assert_allclose(nn.linear(x, w, b), x @ w + b, rtol=1e-14)


def test_layers_that_hir_knows_are_blocks() -> None:
    x, up, gate, down, g = inputs(
        Builder(), x="f32[3, 4]", up="f32[4, 6]", gate="f32[4, 6]", down="f32[6, 4]", g="f32[4]"
    )
    for y in (nn.swiglu(x, up, gate, down), nn.residual_rms_norm(x, x, g), *nn.shared_linear_pair(x, up, gate)):
        assert isinstance(y.node.op, Block)


@pytest.mark.parametrize(("layout", "shape"), [("bhsd", "f32[B, 4, S, 8]"), ("bshd", "f32[B, S, 4, 8]")])
def test_attention_reads_heads_and_their_size_off_the_operands(layout: Any, shape: str) -> None:
    q, k = inputs(Builder(), q=shape, k=shape.replace("4", "2"))
    op = nn.attention(q, k, k, layout=layout, causal=True).node.op
    assert op == Attention(num_heads=4, head_dim=8, num_kv_heads=2, layout=layout, mask_kind="causal")


def test_attention_on_packed_heads_must_be_told_how_many() -> None:
    (q,) = inputs(Builder(), q="f32[2, 3, 8]")
    with pytest.raises(ShapeError) as caught:
        nn.attention(q, q, q)
    assert caught.value.hint == "pass num_heads="
    assert nn.attention(q, q, q, num_heads=2, window=1).node.op.mask_kind == "sliding_window"


def test_embedding_takes_whole_rows_and_refuses_what_is_no_row() -> None:
    table = RNG.normal(size=(5, 3))
    ids = np.array([[4, 0, 4], [1, 1, 2]])
    np.testing.assert_array_equal(nn.embedding(ids, table), table[ids])
    with pytest.raises(IndexRangeError, match="index 5"):
        nn.embedding(np.array([5]), table)
    with pytest.raises(DtypeError, match="integer"):
        nn.embedding(np.array([1.0]), table)


def test_one_hot_has_a_row_of_zeros_for_an_id_outside() -> None:
    assert nn.one_hot(np.array([1, 3]), 3, dtype="i32").tolist() == [[0, 1, 0], [0, 0, 0]]


@pytest.mark.parametrize("ignore_index", [None, 2])
def test_cross_entropy_takes_any_leading_axes_and_averages_the_rows_that_count(ignore_index: int | None) -> None:
    logits, labels = RNG.normal(size=(2, 3, 4)), np.array([[0, 2, 1], [2, 3, 2]])
    rows = softmax_cross_entropy_with_logits(logits.reshape(6, 4), labels.ravel(), ignore_index=ignore_index)
    counted = 6 if ignore_index is None else 3
    np.testing.assert_allclose(nn.cross_entropy(logits, labels, ignore_index=ignore_index), rows.sum() / counted)
    none = nn.cross_entropy(logits, labels, ignore_index=ignore_index, reduction="none")
    np.testing.assert_allclose(none, rows.reshape(2, 3))
    np.testing.assert_allclose(nn.cross_entropy(logits, labels, ignore_index=ignore_index, reduction="sum"), rows.sum())


def test_cross_entropy_of_nothing_but_ignored_rows_is_zero() -> None:
    assert nn.cross_entropy(np.zeros((2, 3)), np.array([1, 1]), ignore_index=1) == 0


def test_cross_entropy_refuses_other_reductions_and_shapes() -> None:
    with pytest.raises(ConfigError, match="mean, sum or none"):
        nn.cross_entropy(np.zeros((2, 3)), np.array([1, 1]), reduction="avg")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="do not match"):
        nn.cross_entropy(np.zeros((2, 3)), np.array([1, 1, 1]))


def test_cross_entropy_of_an_unknown_batch_is_a_scalar() -> None:
    logits, labels = inputs(Builder(), logits="f32[BATCH, SEQ, 10]", labels="i64[BATCH, SEQ]")
    assert nn.cross_entropy(logits, labels).type == spec("f32[]")
    assert nn.cross_entropy(logits, labels, ignore_index=0).type == spec("f32[]")


def test_approximate_gelu_is_another_function() -> None:
    x = np.linspace(-3, 3, 50)
    apart = np.abs(nn.gelu(x) - nn.gelu(x, approximate=True)).max()
    assert 1e-5 < apart < 1e-3


def test_a_group_norm_without_groups_says_that_they_must_be_given() -> None:
    with pytest.raises(WrongInputCountError, match="groups= must be given"):
        nn.group_norm(np.ones((2, 4), np.float32))
    with pytest.raises(ShapeError, match="num_heads"):
        nn.attention(*[np.ones((2, 3, 4), np.float32)] * 3)


@pytest.mark.parametrize("layout", ["bshd", "bhsd", "bsd"])
def test_rope_computes_its_tables_of_theta(layout):
    rng = np.random.default_rng(3)
    x = rng.normal(size={"bshd": (2, 5, 3, 8), "bhsd": (2, 3, 5, 8), "bsd": (2, 5, 24)}[layout])
    angles = np.arange(9)[:, None] * 500.0 ** (-2 * np.arange(4) / 6)
    positions = rng.integers(0, 9, (2, 5))
    settings = {"layout": layout, "head_dim": 8, "n_rot": 6}
    for given in (None, positions):
        found = nn.rope(x, positions=given, theta=500.0, **settings)
        np.testing.assert_allclose(found, nn.rope(x, np.cos(angles), np.sin(angles), given, **settings), atol=1e-12)


def test_rope_takes_tables_or_theta():
    x = np.ones((1, 2, 1, 4), np.float32)
    for given in ({}, {"cos": x[0, :, 0, :2]}, {"cos": x[0, :, 0, :2], "sin": x[0, :, 0, :2], "theta": 1e4}):
        with pytest.raises(ConfigError, match="or theta"):
            nn.rope(x, layout="bshd", **given)
    with pytest.raises(ConfigError, match="above 0"):
        nn.rope(x, layout="bshd", theta=0.0)
    with pytest.raises(ShapeError, match=r"positions must be \[1, 2\], not \[2\]"):
        nn.rope(x, positions=np.arange(2), layout="bshd", theta=1e4)


def test_log_mel_has_a_floor_below_which_nothing_moves():
    rng = np.random.default_rng(4)
    spectrum, bank = rng.uniform(0, 2, (2, 3, 5)).astype("f4"), rng.uniform(0, 1, (4, 5)).astype("f4")
    spectrum[0, 1] = 0
    wanted = np.log10(np.maximum(spectrum @ bank.T, 1e-3))
    np.testing.assert_allclose(nn.log_mel(spectrum, bank, floor=1e-3, base=10.0), wanted, atol=1e-6)
    np.testing.assert_allclose(
        nn.log_mel(spectrum.astype("f2"), bank), np.log(np.maximum(spectrum @ bank.T, 1e-10)), atol=2e-2, rtol=2e-3
    )
    slopes = rlx.grad(lambda s: rlx.sum(nn.log_mel(s, bank)))(spectrum)
    assert np.all(slopes[0, 1] == 0)
    assert np.all(slopes[1] > 0)
    with pytest.raises(ShapeError, match="with the bins of the spectrum"):
        nn.log_mel(spectrum, bank[:, :4])
    with pytest.raises(DtypeError, match="must be real"):
        nn.log_mel(spectrum + 1j, bank)
    with pytest.raises(ConfigError, match="floor must be above 0"):
        nn.log_mel(spectrum, bank, floor=0.0)
