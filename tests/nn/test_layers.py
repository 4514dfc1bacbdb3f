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
    op = nn.attention(q, k, k, layout=layout, is_causal=True).node.op
    assert op == Attention(num_heads=4, head_dim=8, num_kv_heads=2, layout=layout, mask_kind="causal")


def test_attention_over_valid_keys_is_attention_over_their_slice() -> None:
    q, k, v = RNG.normal(size=(1, 2, 8)), RNG.normal(size=(1, 6, 8)), RNG.normal(size=(1, 6, 8))

    def loss(q: Any, k: Any, v: Any, **more: Any) -> Any:
        return rlx.sum(nn.attention(q, k, v, num_heads=2, is_causal=True, **more) ** 2)

    found = rlx.value_and_grad(loss, (0, 1, 2))(q, k, v, key_value_seq_lengths=4)
    value, (dq, dk, dv) = rlx.value_and_grad(loss, (0, 1, 2))(q, k[:, :4], v[:, :4])
    np.testing.assert_allclose(found[0], value, rtol=1e-12)
    for one, expected in zip(
        found[1], (dq, np.pad(dk, ((0, 0), (0, 2), (0, 0))), np.pad(dv, ((0, 0), (0, 2), (0, 0)))), strict=True
    ):
        np.testing.assert_allclose(one, expected, rtol=1e-10, atol=1e-14)


def test_lengths_of_keys_are_integers_one_for_each_entry_of_the_batch() -> None:
    q, n, x = inputs(Builder(), q="f32[2, 3, 8]", n="i64[3]", x="f32[2]")
    with pytest.raises(ShapeError, match=r"lengths must be \[\] or \[2\], not \[3\]"):
        nn.attention(q, q, q, num_heads=2, key_value_seq_lengths=n)
    with pytest.raises(DtypeError, match="lengths must be one of i64"):
        nn.attention(q, q, q, num_heads=2, key_value_seq_lengths=x)


def test_attention_over_codes_is_attention_over_codes_times_scales() -> None:
    rng = np.random.default_rng(0)
    q, codes = rng.normal(size=(2, 3, 8)).astype(np.float32), rng.integers(-127, 128, (2, 2, 5, 4)).astype(np.int8)
    scales = rng.uniform(0.01, 0.02, (2, 2, 5, 2)).astype(np.float32)
    k, v = (codes.reshape(2, 2, 5, 2, 2) * scales[..., None]).reshape(2, 2, 5, 4)
    options: dict[str, Any] = {"num_heads": 4, "num_kv_heads": 2, "is_causal": True}

    def loss(q: Any, scales: Any) -> Any:
        return rlx.sum(nn.attention(q, *codes, key_scales=scales[0], value_scales=scales[1], **options) ** 2)

    def expected(q: Any, scales: Any) -> Any:
        k, v = (
            rlx.reshape(rlx.reshape(c, (2, 5, 2, 2)) * s[..., None], (2, 5, 4))
            for c, s in zip(codes, scales, strict=False)
        )
        return rlx.sum(nn.attention(q, k, v, **options) ** 2)

    np.testing.assert_allclose(loss(q, scales), rlx.sum(nn.attention(q, k, v, **options) ** 2), rtol=1e-5)
    found, wanted = (rlx.grad(f, (0, 1))(q, scales) for f in (loss, expected))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    with pytest.raises(ConfigError, match="codes of keys and of values have scales"):
        nn.attention(q, *codes, key_scales=scales[0], **options)
    with pytest.raises(DtypeError, match="k must be"):
        nn.attention(q, k, v, key_scales=scales[0], value_scales=scales[1], **options)


def test_attention_on_packed_heads_must_be_told_how_many() -> None:
    (q,) = inputs(Builder(), q="f32[2, 3, 8]")
    with pytest.raises(ShapeError) as caught:
        nn.attention(q, q, q)
    assert caught.value.hint == "pass num_heads="
    assert nn.attention(q, q, q, num_heads=2, window=1).node.op.mask_kind == "sliding_window"


def test_attention_on_heads_with_an_axis_of_their_own_names_the_layouts_that_have_it() -> None:
    (q,) = inputs(Builder(), q="f32[2, 4, 3, 8]")
    with pytest.raises(ShapeError, match="query has 4 axes, and layout bsd takes") as caught:
        nn.attention(q, q, q)
    assert 'layout="bhsd"' in str(caught.value.hint)


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
    with pytest.raises(WrongInputCountError, match="missing a required argument: 'num_groups'"):
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


def by_numpy(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


def test_instance_norm_is_of_each_channel_of_each_example() -> None:
    x, gamma, beta = RNG.normal(size=(2, 3, 4, 5)), RNG.normal(size=3), RNG.normal(size=3)
    wanted = by_numpy(x, (2, 3)) * gamma[:, None, None] + beta[:, None, None]
    np.testing.assert_allclose(nn.instance_norm(x, gamma, beta), wanted, rtol=1e-10)
    last = nn.instance_norm(np.moveaxis(x, 1, -1), gamma, beta, layout="nhwc")
    np.testing.assert_allclose(np.moveaxis(last, -1, 1), wanted, rtol=1e-10)
    with pytest.raises(ShapeError, match="must have spatial axes"):
        nn.instance_norm(x[:, :, 0, 0])


@pytest.mark.parametrize("size", [1, 4, 5])
def test_local_response_norm_divides_by_neighbouring_channels(size: int) -> None:
    x = RNG.normal(size=(2, 6, 3))
    around = np.pad(x * x, ((0, 0), (size // 2, (size - 1) // 2), (0, 0)))
    means = np.stack([around[:, i : i + size].mean(1) for i in range(6)], 1)
    wanted = x / (2 + 0.5 * means) ** 0.6
    found = nn.local_response_norm(x, size, alpha=0.5, beta=0.6, k=2)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    last = nn.local_response_norm(np.moveaxis(x, 1, -1), size, alpha=0.5, beta=0.6, k=2, layout="nhwc")
    np.testing.assert_allclose(np.moveaxis(last, -1, 1), wanted, rtol=1e-12)


def test_bags_are_reduced_without_what_fills_them_up() -> None:
    table, ids = RNG.normal(size=(5, 3)), np.array([[0, 4, 4], [2, -1, 1], [-1, -1, -1]])
    kept = [[0, 4, 4], [2, 1], []]
    for mode, reduce in {"mean": np.mean, "sum": np.sum, "max": np.max}.items():
        wanted = [reduce(table[rows], axis=0) if rows else np.zeros(3) for rows in kept]
        np.testing.assert_allclose(nn.embedding_bag(ids, table, mode=mode, padding_idx=-1), wanted)  # type: ignore[arg-type]
        np.testing.assert_allclose(nn.embedding_bag(ids[:1], table, mode=mode), wanted[:1])  # type: ignore[arg-type]
    w = RNG.normal(size=(3, 3))
    weighted = nn.embedding_bag(ids, table, mode="sum", per_sample_weights=w, padding_idx=-1)
    np.testing.assert_allclose(weighted[1], w[1, 0] * table[2] + w[1, 2] * table[1])
    gradient = rlx.grad(lambda t: rlx.sum(nn.embedding_bag(ids, t, mode="max", padding_idx=-1)))(table)
    assert gradient.sum() == 6  # one for each feature of the two bags
    with pytest.raises(ConfigError, match="weights are for the mode sum, not mean"):
        nn.embedding_bag(ids, table, per_sample_weights=w)
    with pytest.raises(ShapeError, match=r"weights must be \[3, 3\], not \[3\]"):
        nn.embedding_bag(ids, table, mode="sum", per_sample_weights=w[0])
    with pytest.raises(IndexRangeError):
        nn.embedding_bag(ids, table)


def test_bilinear_features_are_products_of_features() -> None:
    a, b, w = RNG.normal(size=(2, 3, 4)), RNG.normal(size=(2, 3, 5)), RNG.normal(size=(4, 5, 6))
    wanted = np.einsum("...i,ijo,...j->...o", a, w, b)
    np.testing.assert_allclose(nn.bilinear(a, b, w, np.ones(6)), wanted + 1, rtol=1e-12)
    np.testing.assert_allclose(nn.bilinear(a[0, 0], b[0, 0], w), wanted[0, 0], rtol=1e-12)
    with pytest.raises(ShapeError, match="do not fit"):
        nn.bilinear(a, b[:1], w)


def test_attention_with_its_products_is_attention_between_products() -> None:
    x, y = RNG.normal(size=(2, 3, 8)), RNG.normal(size=(2, 5, 8))
    wq, wk, wv, wo = (RNG.normal(size=s) for s in ((8, 8), (8, 4), (8, 4), (8, 6)))
    b = RNG.normal(size=6)
    seen = np.array([[True] * 5, [True] * 2 + [False] * 3])
    found = nn.multi_head_attention(x, y, y, wq, wk, wv, wo, num_heads=4, num_kv_heads=2, b_out=b, mask=seen)
    q, k, v = ((z @ w).reshape(2, -1, w.shape[1] // 2, 2) for z, w in ((x, wq), (y, wk), (y, wv)))
    k, v = np.repeat(k, 2, axis=2), np.repeat(v, 2, axis=2)
    logits = np.where(seen[:, None, None], np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(2), -np.inf)
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    wanted = np.einsum("bhqk,bkhd->bqhd", shares, v).reshape(2, 3, 8) @ wo + b
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    n = 40_000
    x = RNG.normal(size=n)
    y = nn.alpha_dropout(x, rlx.random.key(3), 0.3)
    _, counts = np.unique(y, return_counts=True)
    assert abs(counts.max() / n - 0.3) < 4 * (0.21 / n) ** 0.5
    assert abs(y.mean()) < 5 * n**-0.5
    assert abs(y.var() - 1) < 5 * (3 / n) ** 0.5
    assert np.array_equal(nn.alpha_dropout(x, rlx.random.key(3), 0.3, training=False), x)
    with pytest.raises(ConfigError, match="from 0 to below 1"):
        nn.alpha_dropout(x, rlx.random.key(3), 1.0)
