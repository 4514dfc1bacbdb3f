"""Functions for all sizes: they agree with code for the size, and a size that is new compiles nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sized import Case, agree, check, joined, weights, words_of

import rlx_core as rlx
from rlx_core import nn
from rlx_core.errors import IndexRangeError
from rlx_core.ops.cumulative import cummax, cumsum
from rlx_cpu.native.sharing import everything_is_shared

FEW = (5, 1, 17, 64, 0)
"""The first is bound first; then one, a tile and one, and none."""

MANY = (*FEW, 2, 3, 7, 8, 9, 15, 16, 33, 100, 129, 600)
"""Around the heights of tiles, the lanes of vectors and their multiples."""

W1, B1, W2, B2, W3 = weights(64, 200), weights(200), weights(200, 10), weights(10), weights(2500, 33)
W4 = weights(39, 20)


def mlp(x: Any) -> Any:
    return nn.softmax(nn.linear(nn.gelu(nn.linear(x, W1, B1)), W2, B2))


def weighted_attention(q: Any, k: Any, v: Any, g: Any) -> Any:
    return rlx.sum(nn.attention(q, k, v, num_heads=3, is_causal=True) * g)


def of_attention(**more: Any) -> Any:
    """The cotangents of an attention's operands, the bias among them if there is one."""

    def weighted(q: Any, k: Any, v: Any, bias: Any, g: Any) -> Any:
        return rlx.sum(nn.attention(q, k, v, num_heads=3, bias=bias, **more) * g)

    def cotangents(q: Any, k: Any, v: Any, g: Any, *bias: Any) -> Any:
        of = (0, 1, 2, 3)[: 3 + len(bias)]
        return rlx.grad(weighted, of)(q, k, v, *(bias or (None,)), g)

    return cotangents


def added_at(x: Any, i: Any, g: Any) -> Any:
    """The cotangent of a table that is read at indices, none of which is outside."""
    inside = rlx.minimum(i, x.shape[0] - 1)
    return rlx.grad(lambda x: rlx.sum(rlx.take(x, inside, axis=0) * g))(x)


def with_a_row(x: Any) -> Any:
    """A table with one more row, in which an index can be."""
    return rlx.pad(x, ((0, 1), (0, 0)))


def loss(w: Any, x: Any, y: Any) -> Any:
    return nn.cross_entropy(nn.linear(nn.gelu(nn.linear(x, w, B1)), W2, B2), y)


CASES = {
    "mlp": Case(mlp, ["f32[n, 64]"]),
    "product": Case(lambda x: x @ W1, ["f32[n, 3, 64]"]),
    "product and what follows": Case(lambda x, r: rlx.tanh(x @ W1 + B1 + r) * r, ["f32[n, 64]", "f32[n, 200]"]),
    "deep product and what follows": Case(lambda x, r: (x @ W3) * r + r, ["f32[n, 2500]", "f32[n, 33]"]),
    "narrow product whose depth is no whole round": Case(lambda x: x @ W4, ["f32[n, 39]"]),
    "deep product": Case(lambda x: x @ W3, ["f32[n, 2500]"]),
    "product of doubles": Case(lambda x: x @ W1.astype(np.float64), ["f64[n, 64]"]),
    "element by element": Case(lambda x, y: rlx.tanh(x) * y, ["f32[n]", "f32[n]"]),
    "rows": Case(lambda x: nn.softmax(x), ["f32[n, 50]"]),
    "norm": Case(lambda x: nn.layer_norm(x, B1, B1), ["f32[2, n, 200]"]),
    "rows side by side": Case(
        lambda x: rlx.sum(x, axis=0), ["f32[5, n]"], adds_up=True
    ),  # one of them is a row like any
    "columns": Case(lambda x: rlx.sum(x, axis=0), ["f32[n, 37]"], adds_up=True),
    "middle": Case(lambda x: rlx.sum(x, axis=1), ["f32[3, n, 20]"], adds_up=True),
    "unknown rows": Case(lambda x: nn.softmax(x), ["f32[3, n]"], adds_up=True),
    "broadcast": Case(lambda x, y: x + y, ["f32[4, n, 8]", "f32[n, 8]"]),
    "slice": Case(lambda x: x[:, :2] * x[:, 1:3], ["f32[n, 5]"]),
    "mean": Case(lambda x: rlx.sum(x) / (x.shape[0] + 1), ["f32[n]"], adds_up=True),
    "positions": Case(lambda x: x + rlx.arange(x.shape[0]), ["f32[n]"]),
    "gather": Case(lambda x, i: rlx.take(x, i, axis=0), ["f32[9, 24]", "i64[n, 2]"]),
    "gather with a fill": Case(
        lambda x, i: rlx.gather(x, i - 2, axis=0, out_of_bounds="fill", fill_value=0.5),
        ["f32[n, 24]", "i64[n, 2]"],
        may_be_none=False,
    ),
    "gather in lines with a fill": Case(
        lambda x, i: rlx.gather(x, i, axis=1, out_of_bounds="fill", fill_value=-1),
        ["f32[3, n, 5]", "i32[n]"],
        may_be_none=False,
    ),
    "attention": Case(
        lambda q, k, v: nn.attention(q, k, v, num_heads=3), ["f32[2, n, 96]"] * 3, may_be_none=False, few=2
    ),
    "causal attention": Case(lambda q, k, v: nn.attention(q, k, v, num_heads=3, is_causal=True), ["f32[n, 6, 96]"] * 3),
    "growing cache": Case(
        lambda q, k, v: nn.attention(q, k, v, num_heads=3, is_causal=True),
        ["f32[2, 1, 96]", "f32[2, n, 96]", "f32[2, n, 96]"],
        may_be_none=False,
    ),
    "attention with a mask": Case(
        lambda q, k, v, m: nn.attention(q, k, v, num_heads=3, mask=m),
        [*["f32[2, n, 96]"] * 3, "bool[2, n]"],
        may_be_none=False,
        few=2,
    ),
    "attention over valid keys": Case(
        lambda q, k, v, n: nn.attention(q, k, v, num_heads=3, is_causal=True, key_value_seq_lengths=5 * n),
        ["f32[2, n, 96]", *["f32[2, 40, 96]"] * 2, "i64[2]"],
        ways=2,
        few=2,
    ),
    "attention of a token over valid keys": Case(
        lambda q, k, v, n: nn.attention(q, k, v, num_heads=3, is_causal=True, key_value_seq_lengths=5 * n),
        ["f32[2, 1, 96]", *["f32[2, n, 96]"] * 2, "i64[2]"],
        may_be_none=False,
    ),
    "size": Case(lambda x: rlx.sum(x) * 0 + x.shape[0], ["f32[n]"]),
    "first rows": Case(lambda x: rlx.tanh(x[-2:]) * 2, ["f32[n, 5]"], may_be_none=False),
    "product with an operand": Case(lambda x, w: x @ w, ["f32[n, 64]", "f32[64, 40]"]),
    "product with a large operand": Case(lambda x, w: rlx.relu(x @ w), ["f32[n, 700]", "f32[700, 900]"], ways=3),
    "product with a transposed operand": Case(lambda x, w: (x @ w.T) * 2, ["f32[n, 3, 64]", "f32[40, 64]"], ways=2),
    "gradient of weights": Case(lambda x, g: x.T @ g, ["f32[n, 64]", "f32[n, 40]"], may_be_none=False),
    "gradient of wide weights": Case(lambda x, g: x.T @ g, ["f32[n, 600]", "f32[n, 500]"], may_be_none=False, ways=2),
    "step of weights": Case(
        lambda x, g, w: w - rlx.reshape(x, (-1, 20)).T @ rlx.reshape(g, (-1, 33)) * 0.5,
        ["f32[n, 7, 20]", "f32[n, 7, 33]", "f32[20, 33]"],
        may_be_none=False,
    ),
    "gradient of weights in doubles": Case(lambda x, g: x.T @ g, ["f64[n, 20]", "f64[n, 40]"], may_be_none=False),
    "products along what is unknown": Case(
        lambda x, g, w: w + x @ g * 2, ["f32[18, n]", "f32[n, 27]", "f32[18, 27]"], may_be_none=False, ways=3
    ),
    "products along rows": Case(lambda x, g: x @ g.T, ["f32[50, n]", "f32[70, n]"], may_be_none=False, ways=3),
    "batch of products": Case(lambda x, y: x @ y, ["f32[n, 12, 30]", "f32[n, 30, 50]"], ways=3),
    "batch of one factor": Case(
        lambda x, w, b: rlx.relu(w @ x + rlx.reshape(b, (16, 1))) * 2,
        ["f32[n, 72, 36]", "f32[16, 72]", "f32[16]"],
        ways=3,
    ),
    "concatenation": Case(
        lambda x, y: rlx.concat([x, y], axis=1), ["f32[2, n, 24]", "f32[2, 1, 24]"], may_be_none=False
    ),
    "concatenation of columns": Case(
        lambda x, y: rlx.concat([x, y], axis=1), ["f32[9, n]", "f32[9, 40]"], may_be_none=False, ways=2
    ),
    "growing rows of complex numbers": Case(
        lambda x, y: rlx.concat([x, y]), ["c128[n, 5]", "c128[2, 5]"], may_be_none=False
    ),
    "padding": Case(lambda x: rlx.pad(x, ((1, 2), (0, 0))), ["f32[n, 24]"], may_be_none=False),
    "cotangents of attention": Case(
        lambda q, k, v, g: sum(rlx.grad(weighted_attention, (0, 1, 2))(q, k, v, g)),
        ["f32[n, 24, 96]"] * 4,
        may_be_none=False,
        ways=2,
    ),
    "cotangents of attention of unknown length": Case(
        of_attention(is_causal=True), ["f32[2, n, 96]"] * 4, may_be_none=False, few=16, ways=2
    ),
    "cotangents of attention over unknown keys": Case(
        of_attention(), ["f32[9, 5, 96]", *["f32[9, n, 96]"] * 2, "f32[9, 5, 96]"], may_be_none=False, few=16
    ),
    "cotangents of attention with a bias": Case(
        of_attention(), [*["f32[2, n, 96]"] * 4, "f32[3, n, n]"], may_be_none=False, few=16, ways=2
    ),
    "cotangent of a table": Case(added_at, ["f32[9, 24]", "i64[n, 2]", "f32[n, 2, 24]"]),
    "cotangent of a wide table of halves": Case(added_at, ["f16[9, 700]", "i32[2, n]", "f16[2, n, 700]"]),
    "cotangent of a large table": Case(
        added_at, ["f32[5000, 130]", "i64[n, 30]", "f32[n, 30, 130]"], may_be_none=False, ways=2
    ),
    "cotangent of an unknown table": Case(
        lambda x, i, g: added_at(with_a_row(x), i, g), ["f32[n, 40]", "i64[7]", "f32[7, 40]"], may_be_none=False
    ),
    "places of a table": Case(
        lambda x, i, y: rlx.scatter(with_a_row(x), rlx.minimum(i, x.shape[0]), y),
        ["f32[n, 5]", "i64[7]", "f32[7, 5]"],
        may_be_none=False,
    ),
    "lines in order": Case(lambda x: rlx.sort(x), ["f32[n, 3, 300]"]),
    "short lines in order": Case(lambda x: rlx.argsort(x), ["i64[n, 40]"]),
    "columns in order": Case(lambda x: rlx.sort(x, axis=1), ["f16[n, 70, 9]"]),
    "the first few": Case(lambda x: rlx.top_k(x, 5), ["f32[n, 2000]"]),
    "running sums": Case(lambda x: cumsum(x, axis=1), ["f32[n, 300]"]),
    "running sums of unknown length": Case(lambda x: cumsum(x, axis=1, reverse=True), ["f32[21, n]"]),
    "running maxima of unknown length": Case(lambda x: cummax(x, axis=1), ["i64[5, n, 40]"]),
    "running sums of halves": Case(lambda x: cumsum(x, axis=0), ["bf16[n, 3, 7]"]),
    "positions of extremes": Case(lambda x: rlx.argmax(x, axis=1), ["f32[n, 300]"]),
    "positions of extremes side by side": Case(lambda x: rlx.argmin(x, axis=1), ["i32[n, 30, 7]"]),
    "squares that are transposed": Case(
        lambda x, y: rlx.tanh(rlx.permute_dims(x, (0, 2, 1))) * y, ["f32[n, 16, 70]", "f32[n, 70, 16]"]
    ),
    "step of training": Case(
        lambda w, x, y: w - rlx.grad(loss)(w, x, y) * 0.1,
        ["f32[64, 200]", "f32[n, 64]", "i64[n]"],
        may_be_none=False,
    ),
    "choice": Case(lambda x: rlx.where(x > 0, x, 0.0), ["f32[n, 3]"]),
}


QUICK = (
    "deep product and what follows",
    "element by element",
    "rows",
    "norm",
    "middle",
    "gather",
    "growing cache",
    "concatenation",
    "gradient of weights",
)
"""What stands for its kind where there is little time."""

NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES]


@pytest.mark.medium
@pytest.mark.parametrize("name", NAMES)
def test_a_new_size_compiles_nothing_and_agrees_with_code_for_it(name: str, compiled: list[int]) -> None:
    check(CASES[name], FEW, compiled)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_is_so_for_many_sizes(name: str, compiled: list[int]) -> None:
    check(CASES[name], MANY, compiled)


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("name", CASES)
def test_the_size_that_comes_first_may_be_a_small_one(name: str, first: int) -> None:
    case = CASES[name]
    function = case.for_all()
    for n in (first, 9, 40):
        inputs = case.arrays(n)
        agree(case, joined(function(*inputs)), joined(case.for_size(n)(*inputs)), n)


@pytest.mark.parametrize("wanted", ["results", pytest.param("cotangents", marks=pytest.mark.slow)])
def test_attention_whose_rows_lie_an_unknown_distance_apart_is_compiled_for_the_size(wanted: str) -> None:
    """Positions first and the batch after them, as torch's own layers keep them."""
    of = {
        "results": nn.attention,
        "cotangents": rlx.grad(lambda *qkv, **more: rlx.sum(nn.attention(*qkv, **more)), (0, 1, 2)),
    }

    def attended(q: Any, k: Any, v: Any) -> Any:
        return of[wanted](*(rlx.permute_dims(x, (1, 0, 2)) for x in (q, k, v)), num_heads=3)

    case = Case(attended, ["f32[7, n, 96]"] * 3)
    function = case.for_all()
    for n in (5, 2):
        inputs = case.arrays(n)
        np.testing.assert_allclose(joined(function(*inputs)), joined(case.for_size(n)(*inputs)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [pytest.param("mlp", marks=pytest.mark.slow), "norm", "middle"])
def test_the_number_of_threads_changes_no_bit(name: str) -> None:
    case = CASES[name]
    with everything_is_shared():
        alone = case.for_all(config={"options": {"cpu.threads": 1}})
        together = case.for_all(config={"options": {"cpu.threads": 3}})
        for n in (5, 1, 40, 129, 0):
            inputs = case.arrays(n)
            np.testing.assert_array_equal(joined(together(*inputs)), joined(alone(*inputs)))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_written_outside(name: str) -> None:
    case = CASES[name]
    plain, guarded = case.for_all(), case.for_all(config={"options": {"cpu.poison": True}})
    for n in (5, 1, 17):
        inputs = case.arrays(n)
        np.testing.assert_array_equal(joined(guarded(*inputs)), joined(plain(*inputs)))


def test_two_threads_bind_sizes_at_one_time() -> None:
    case = CASES["rows"]
    function = case.for_all()
    inputs = {n: case.arrays(n) for n in range(1, 25)}
    wanted = {n: np.array(function(*each)) for n, each in inputs.items()}
    again, found = case.for_all(), {}

    def run(sizes: Iterator[int]) -> None:
        for n in sizes:
            found[n] = np.array(again(*inputs[n]))

    threads = [threading.Thread(target=run, args=(iter(range(1 + k, 25, 2)),)) for k in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for n, each in wanted.items():
        np.testing.assert_array_equal(found[n], each)


def test_an_index_outside_names_the_size_of_the_call() -> None:
    function = rlx.compile(
        lambda x, i: rlx.take(x, i, axis=0), rlx.spec("f32[n, 3]"), rlx.spec("i64[2]"), target="cpu"
    )  # fmt: skip
    for n in (4, 6):
        with pytest.raises(IndexRangeError, match=f"outside an axis of {n} elements"):
            function(weights(n, 3), np.array([0, n]))


LONG = {
    "all": (Case(lambda x: rlx.sum(x), ["f32[n]"], adds_up=True), (100_000, 300_001, 70_003)),
    "rows": (Case(lambda x: rlx.max(x, axis=-1), ["f32[3, n]"]), (100_000, 300_001, 70_003)),
    "columns": (Case(lambda x: rlx.sum(x, axis=0), ["f32[n, 37]"]), (5000, 12_345, 3001)),
    "unknown columns": (Case(lambda x: rlx.max(x, axis=0), ["f32[5001, n]"]), (40, 7, 100)),
    "columns of two axes": (Case(lambda x, y: rlx.sum(x * y, axis=(0, 1)), ["f32[n, 50, 37]"] * 2), (100, 299, 87)),
    "axes inside": (Case(lambda x: rlx.sum(x, axis=(0, 2)), ["f32[n, 3, 4]"], adds_up=True), (10_000, 20_001, 9000)),
}
"""Reductions of few rows, whose chunks are counted."""


@pytest.mark.parametrize("name", [n if n == "columns" else pytest.param(n, marks=pytest.mark.slow) for n in LONG])
def test_rows_that_are_cut_into_chunks_are_for_all_sizes(name: str, compiled: list[int]) -> None:
    case, sizes = LONG[name]
    check(case, sizes, compiled)
    with everything_is_shared():
        alone = case.for_all(config={"options": {"cpu.threads": 1}})
        together = case.for_all(config={"options": {"cpu.threads": 3}})
        for n in sizes:
            inputs = case.arrays(n)
            np.testing.assert_array_equal(together(*inputs), alone(*inputs))


@pytest.mark.parametrize("dtype", [pytest.param(d, marks=pytest.mark.slow) for d in ("f32", "i64", "bf16")])
def test_lines_of_unknown_length_are_put_in_order(dtype: str, compiled: list[int]) -> None:
    check(Case(lambda x: rlx.argsort(x), [f"{dtype}[3, n]"]), (200, 3999, 301), compiled)
    check(Case(lambda x: rlx.sort(x, descending=True), [f"{dtype}[9, n]"]), (4000, 40_000), compiled)


def test_short_rows_and_long_ones_are_two_functions(compiled: list[int]) -> None:
    function = CASES["mean"].for_all()
    for n, is_new in ((100, True), (300_000, True), (90, False), (200_000, False), (1, False)):
        compiled.clear()
        assert function(np.ones(n, np.float32)) == pytest.approx(n / (n + 1), rel=1e-4)
        assert bool(compiled) is is_new
        assert all(words_of(function))


def test_the_report_and_the_listing_say_so() -> None:
    case = CASES["rows"]
    function = case.for_all()
    function(*case.arrays(5))
    assert "1 of 1 steps for all sizes" in function.executable.report.code
    assert "_of_all_sizes" in function.executable.emit("llvm")


def test_a_step_without_unknown_sizes_is_made_once(compiled: list[int]) -> None:
    table = weights(40, 30)
    function = rlx.compile(
        lambda x, y: x + rlx.sum(rlx.sort(y), axis=0), rlx.spec("f32[n, 30]"), rlx.spec("f32[40, 30]"), target="cpu"
    )  # fmt: skip
    for n in (3, 5, 8):
        compiled.clear()
        x = weights(n, 30)
        np.testing.assert_allclose(function(x, table), x + np.sort(table).sum(0), rtol=1e-5, atol=1e-5)
        assert n == 3 or not compiled


def test_sizes_that_are_called_like_our_own_numbers_are_no_sizes_of_a_form() -> None:
    function = rlx.compile(lambda x: rlx.sum(x, axis=1), rlx.spec("f32[_rlx_0, _rlx_1, 20]"), target="cpu")
    for shape in ((2, 3, 20), (4, 5, 20)):
        x = weights(*shape)
        np.testing.assert_allclose(function(x), x.sum(1), rtol=1e-5, atol=1e-5)
        assert not any(words_of(function))
