"""Sorting: the reference's bits whichever way a row goes, on every instruction set and any number of threads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from exact import agrees, all_agree, drawn
from harness import EVERY_WIDTH, kernel

from rlx_core.ir.dtypes import dtype, i32
from rlx_core.ops.sorting import ORDERED, ArgSort, Sort, TopK
from rlx_core.testing.cases import OpProgram, programs
from rlx_cpu.native.llvm.isa import Isa, available
from rlx_cpu.native.machine import CpuMachine, OrderingSizes, assuming
from rlx_cpu.native.ordering.ranks import is_short
from rlx_cpu.native.ordering.sorting import emit_sort

SAMPLES = [p for p in programs((Sort, ArgSort, TopK)) if p.is_static]
DTYPES = pytest.mark.parametrize("name", [d.name for d in ORDERED])

SHORT, MIDDLE, LONG = 37, 300, 4500
"""Elements of rows that are ordered by counting, by digits of 8 bits and by digits of 11."""


@EVERY_WIDTH
@pytest.mark.parametrize("program", SAMPLES, ids=str)
def test_every_sample_is_sorted_as_numpy_sorts_it(program: OpProgram, isa: Isa) -> None:
    agrees(emit_sort, program.node.op, drawn(program), isa)


def patterns(name: str, n: int) -> Iterator[np.ndarray]:
    """Rows of one dtype: any bits, hardly different ones, sorted and reversed, all equal, zeros and infinities and NaN."""
    rng, kind = np.random.default_rng(n), dtype(name)
    if kind.kind == "bool":
        yield rng.integers(0, 2, n).astype(bool)
        return
    anything = rng.integers(0, 256, (n, kind.itemsize), np.uint8).view(kind.numpy)[:, 0]
    yield anything
    with np.errstate(all="ignore"):
        few = rng.integers(-3, 4, n).astype(np.float64).astype(kind.numpy)
        yield few
        yield np.arange(n).astype(kind.numpy)
        yield np.arange(n)[::-1].astype(kind.numpy)
        yield np.ones(n, kind.numpy)
        if kind.is_float:
            edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1.0], kind.numpy)
            yield rng.choice(edges, n)
        else:
            yield rng.choice(np.array([np.iinfo(kind.numpy).min, -1 & np.iinfo(kind.numpy).max, 0], kind.numpy), n)


@EVERY_WIDTH
@DTYPES
@pytest.mark.parametrize("n", [SHORT, MIDDLE, LONG])
def test_rows_of_any_kind_and_length(n: int, name: str, isa: Isa) -> None:
    x = np.stack(list(patterns(name, n)))
    assert is_short(isa, SHORT) is not is_short(isa, MIDDLE)
    agrees(emit_sort, Sort(), [x], isa)
    agrees(emit_sort, ArgSort(descending=True, index_dtype=i32), [x], isa)


@pytest.mark.medium
@EVERY_WIDTH
@pytest.mark.parametrize("name", ["f32", "f64", "bf16", "i64", "u8"])
@pytest.mark.parametrize("n", [SHORT, MIDDLE])
def test_rows_along_an_axis_that_is_not_the_last(n: int, name: str, isa: Isa) -> None:
    x = np.stack(list(patterns(name, n)), -1)
    agrees(emit_sort, Sort(0), [x], isa)
    agrees(emit_sort, TopK(5, 0), [x], isa)
    agrees(emit_sort, Sort(1, descending=True), [np.stack([x, x])], isa)


@EVERY_WIDTH
@DTYPES
@pytest.mark.parametrize(("k", "largest"), [(1, True), (90, False)])
def test_the_first_few_of_long_rows(k: int, largest: bool, name: str, isa: Isa) -> None:
    x = np.stack(list(patterns(name, 2000)))
    agrees(emit_sort, TopK(k, -1, largest), [x], isa)


@pytest.mark.slow
def test_every_length_of_a_short_row() -> None:
    rng = np.random.default_rng(3)
    for n in (*range(1, 70), 127, 128, 129, 143, 144, 145):
        agrees(emit_sort, Sort(), [rng.integers(-20, 20, (3, n)).astype("f4")])


@pytest.mark.slow
@DTYPES
def test_threads_share_a_long_row(name: str) -> None:
    with assuming(CpuMachine(ordering=OrderingSizes(shared_row=MIDDLE))):
        for n in (MIDDLE, 1111):
            rows = list(patterns(name, n))
            all_agree(emit_sort, Sort(), [[x] for x in rows])
            all_agree(emit_sort, ArgSort(0, descending=True), [[np.stack([x, x[::-1]], -1)] for x in rows])


def test_slices_of_ordinary_rows_are_about_equal() -> None:
    # Seen from outside: a part writes its own slice alone.
    x = np.random.default_rng(5).standard_normal(1 << 16).astype("f4")
    made = kernel(emit_sort, ArgSort(), [x], available()[0])

    assert made.emitted.parts == 0
    assert made.emitted.uses_threads
