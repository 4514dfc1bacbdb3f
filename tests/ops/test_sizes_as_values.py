"""Sizes that are not known yet, used as numbers: they become values of the program, or the refusal says what to write."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import GuardError, ShapeError, TraceError
from rlx_core.ir.bind import bind
from rlx_core.ir.dims import DimBinding

TABLE = np.arange(60, dtype=np.float32).reshape(20, 3)
X = np.arange(15, dtype=np.float32).reshape(5, 3)

WORKS: dict[str, Callable[[Any], Any]] = {
    "a mean": lambda x: rlx.sum(x) / x.shape[0],
    "a size over a value": lambda x: x.shape[0] / (rlx.sum(x) + 1),
    "size * value": lambda x: x.shape[0] * x,
    "value - size": lambda x: x - (2 * x.shape[0] - 1),
    "a NumPy integer * size": lambda x: rlx.zeros((np.int64(2) * x.shape[0], x.shape[0] + np.int8(1))),
    "size ** 2": lambda x: x + x.shape[0] ** 2,
    "size // 2": lambda x: x * (x.shape[0] // 2),
    "size % 2": lambda x: x * (x.shape[0] % 2),
    "divmod": lambda x: x * divmod(x.shape[0], 3)[1] + divmod(9, x.shape[0])[0],
    "round, ceil, abs": lambda x: x * (round(x.shape[0]) + math.ceil(x.shape[0]) + abs(-x.shape[0])),
    "a shape of a rounded half": lambda x: rlx.zeros((x.shape[0] // 2, x.shape[0] % 2)),
    "an argument of a function": lambda x: rlx.maximum(x, x.shape[0]),
    "asarray": lambda x: x / rlx.sqrt(rlx.asarray(x.shape[0], dtype=rlx.float32)),
    "a choice": lambda x: rlx.where(rlx.asarray(x.shape[0]) > 3, x, -x),
    "an integer stays one": lambda x: rlx.arange(x.shape[0]) * x.shape[0],
    "full": lambda x: rlx.full((2,), x.shape[0]),
    "the result": lambda x: (x.shape[0], rlx.asarray(x.size)),
    "an index": lambda x: x[x.shape[0] - 1],
    "an index from the end": lambda x: x[-x.shape[0]],
    "a slice": lambda x: x[x.shape[0] - 2 :],
    "a slice from the end": lambda x: x[-x.shape[0] : 2],
    "a slice of a table": lambda x: rlx.asarray(TABLE)[x.shape[0] : x.shape[0] + 1] + x[0],
    "a row of a table": lambda x: rlx.asarray(TABLE)[x.shape[0]] * x.shape[0],
    "a decided comparison": lambda x: x if x.shape[0] >= 0 and x.shape[0] + 1 > 0 and not x.shape[0] < 0 else -x,
}


def leaves(found: Any) -> list[Any]:
    return list(found) if isinstance(found, list | tuple) else [found]


@pytest.mark.parametrize("name", WORKS)
def test_a_size_is_a_number_of_the_program(name: str) -> None:
    function = WORKS[name]
    symbolic = rlx.trace(function, rlx.spec("f32[n, 3]"))
    known = rlx.trace(function, rlx.spec("f32[5, 3]"))

    bound, _ = bind(symbolic, DimBinding.of(n=5))
    for one, other in zip(rlx.interpret(bound, {"x": X}), rlx.interpret(known, {"x": X}), strict=True):
        assert (np.asarray(one).dtype, np.shape(one)) == (np.asarray(other).dtype, np.shape(other))
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["a slice of a table", "a row of a table", "the result"])
def test_a_program_is_compiled_once_for_all_sizes(name: str) -> None:
    pytest.importorskip("rlx_cpu", reason="it compiles for the CPU: rlx-cpu is not installed")
    compiled = rlx.compile(WORKS[name], rlx.spec("f32[n, 3]"))
    for n in (5, 2):
        x = X[:n]
        wanted = rlx.interpret(rlx.trace(WORKS[name], x), {"x": x})
        for one, other in zip(leaves(compiled(x)), wanted, strict=True):
            np.testing.assert_array_equal(one, other)


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "if": (lambda x: x if x.shape[0] > 3 else -x, "n > 3 is not known"),
    "if, the other way round": (lambda x: x if x.shape[0] < 3 else -x, "3 > n is not known"),
    "min": (lambda x: x * min(x.shape[0], 3), "not known"),
    "range": (lambda x: [x for _ in range(x.shape[0])], "n is not known yet"),
    "an index of a NumPy array": (lambda x: x + TABLE[x.shape[0] : x.shape[0] + 1], "n is not known yet"),
    "float": (lambda x: x * float(x.shape[0]), "n is not known yet"),
    "1 / size": (lambda x: x * (1 / x.shape[0]), "1 / n is not known"),
    "size * 0.5": (lambda x: x * (x.shape[0] * 0.5), r"n \* 0.5 is not known"),
    "size ** -0.5": (lambda x: x * x.shape[0] ** -0.5, r"n \*\* -0.5 is not known"),
    "2 ** size": (lambda x: x * 2 ** x.shape[0], r"2 \*\* n is not known"),
    "size / 2": (lambda x: x * (x.shape[0] / 2), "n / 2 is not known"),
    "size & 1": (lambda x: x * (x.shape[0] & 1), "n & 1 is not known"),
    "1 << size": (lambda x: x * (1 << x.shape[0]), "1 << n is not known"),
    "int": (lambda x: x * int(x.shape[0]), "n is not known yet"),
    "math.sqrt": (lambda x: x * math.sqrt(x.shape[0]), "n is not known yet"),
    "array * size": (lambda x: x * (np.ones(3, np.float32) * x.shape[0]), "not known"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_a_known_size_says_what_to_write(name: str) -> None:
    function, says = REFUSED[name]
    with pytest.raises(ShapeError, match=says) as caught:
        rlx.trace(function, rlx.spec("f32[n, 3]"))
    assert "rlx.asarray(size)" in str(caught.value.hint)


def test_a_hint_says_what_serves_in_place_of_what_was_asked() -> None:
    found = {}
    for name in ("1 / size", "if", "range"):
        with pytest.raises(ShapeError) as caught:
            rlx.trace(REFUSED[name][0], rlx.spec("f32[n, 3]"))
        found[name] = str(caught.value.hint)
    assert "`x / size`" in found["1 / size"]
    assert "rlx.where(rlx.asarray(size) > 3, a, b)" in found["if"]
    assert "rlx.arange(size)" in found["range"]
    assert "rlx.asarray(table)[size : size + 1]" in found["range"]


def test_a_size_beside_a_narrow_integer_must_fit_it() -> None:
    graph = rlx.trace(lambda x: x + x.shape[0], rlx.spec("i8[n]"))
    assert graph.output_types[0] == rlx.spec("i8[n]")
    bind(graph, DimBinding.of(n=127))
    with pytest.raises(GuardError, match="127 >= n"):
        bind(graph, DimBinding.of(n=128))


def test_a_size_means_nothing_outside_of_a_program() -> None:
    with pytest.raises(TraceError, match="the size n is known to a program"):
        rlx.add(np.ones(3), rlx.symbol("n"))
    with pytest.raises(TraceError, match="the size n is known to a program that is traced, and is no array"):
        rlx.trace(lambda x: x @ x.shape[0], rlx.spec("f32[n, 3]"))


def test_a_mean_of_unknown_size_has_its_gradient() -> None:
    graph = rlx.trace(rlx.grad(lambda x: rlx.sum(x * x) / x.shape[0]), rlx.spec("f32[n, 3]"))
    bound, _ = bind(graph, DimBinding.of(n=5))
    np.testing.assert_allclose(rlx.interpret(bound, {"x": X})[0], 2 * X / 5, rtol=1e-6)
