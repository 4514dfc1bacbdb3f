"""Writes at indices: the reference's bits for every number of threads, and what an index outside means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from exact import agrees, drawn
from harness import EVERY_WIDTH

import rlx_core as rlx
import rlx_cpu.plugin
from rlx_core.codegen.indexing import Indexing
from rlx_core.errors import IndexRangeError
from rlx_core.ir.dtypes import ALL, dtype, i32
from rlx_core.ops.indexing import ScatterAdd, scatter_add
from rlx_core.ops.scatter import Scatter
from rlx_core.plugins import PluginHost
from rlx_core.testing.cases import OpProgram, programs
from rlx_cpu.native.indexing import chains
from rlx_cpu.native.indexing.scatter import emit_scatter
from rlx_cpu.native.indexing.scatter_rows import is_combined
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.machine import MACHINE, CpuMachine, IndexingSizes, assuming

HOST = PluginHost([rlx_cpu.plugin])
NO_CACHE = CpuMachine(l2_nbytes=-1, indexing=IndexingSizes(chained_row_nbytes=0))
SAMPLES = [p for p in programs((ScatterAdd, Scatter)) if p.is_static and is_combined.holds(p.node)]


@EVERY_WIDTH
@pytest.mark.parametrize("program", SAMPLES, ids=str)
def test_every_sample_is_written_as_numpy_writes_it(program: OpProgram, isa: Isa) -> None:
    agrees(emit_scatter, program.node.op, drawn(program), isa)


def numbers(rng: np.random.Generator, shape: tuple[int, ...], name: str = "f32") -> np.ndarray:
    return (rng.standard_normal(shape) * 20).astype(dtype(name).numpy)


# (tables before the axis, size, indices, row): threads share tables, columns, or rows.
SIZES = [
    (1, 7, 50, 1),
    (1, 1000, 300, 3),
    (1, 64, 40, 130),
    (1, 9, 33, 700),
    (12, 5, 20, 17),
    (3, 1, 8, 65),
    (2, 0, 0, 4),
]


@pytest.mark.parametrize("mode", ["set", "add", "max", "min"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_duplicates_combine_in_index_order(size: tuple[int, int, int, int], mode: Any) -> None:
    outer, n, count, inner = size
    rng = np.random.default_rng(3)
    x, updates = numbers(rng, (outer, n, inner)), numbers(rng, (outer, count, inner))
    if mode != "set":
        updates[:, ::7] = np.nan
    indices = rng.integers(0, max(n, 1), count).astype("i4")

    agrees(emit_scatter, Scatter(mode, 1), [x, updates, indices])
    agrees(emit_scatter, ScatterAdd(n, 1), [updates, indices])


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_narrow_floats_are_rounded_once(size: tuple[int, int, int, int], name: str) -> None:
    outer, n, count, inner = size
    rng = np.random.default_rng(6)
    x, updates = numbers(rng, (outer, n, inner), name), numbers(rng, (outer, count, inner), name)
    indices = rng.integers(0, max(n, 1), count)

    agrees(emit_scatter, Scatter("add", 1), [x, updates, indices])
    agrees(emit_scatter, ScatterAdd(n, 1), [updates, indices])


@pytest.mark.parametrize("name", [d.name for d in ALL])
def test_elements_of_every_dtype_are_overwritten(name: str) -> None:
    rng = np.random.default_rng(4)
    x, updates = numbers(rng, (11, 37), name), numbers(rng, (30, 37), name)
    agrees(emit_scatter, Scatter(), [x, updates, rng.integers(0, 11, 30).astype("u1")])


def test_indices_of_a_batch_are_its_own() -> None:
    rng = np.random.default_rng(5)
    updates, indices = numbers(rng, (4, 3, 6, 5)), rng.integers(0, 8, (4, 6))
    agrees(emit_scatter, ScatterAdd(8, 2, 1), [updates, indices])


@pytest.mark.parametrize("name", ["i8", "u8", "i64", "u64"])
@pytest.mark.parametrize("oob", ["clip", "fill"])
def test_indices_outside_are_clipped_or_left_out(oob: Any, name: str) -> None:
    info = np.iinfo(dtype(name).numpy)
    indices = np.array([0, info.min, 3, info.max, 2, 1], dtype(name).numpy)
    updates = np.arange(18, dtype="f4").reshape(6, 3)
    agrees(emit_scatter, ScatterAdd(3, oob=oob), [updates, indices])


def scattered(**options: Any) -> Any:
    def write(x: Any, updates: Any, indices: Any) -> Any:
        return Scatter("add")(x, updates, indices)

    specs = rlx.spec("f32[5, 3]"), rlx.spec("f32[n, 3]"), rlx.spec("i64[n]")
    return rlx.compile(write, *specs, host=HOST, target="cpu", **options)


def test_an_index_outside_names_itself_and_the_next_run_is_well() -> None:
    write = scattered()
    x, updates = np.ones((5, 3), "f4"), np.ones((2, 3), "f4")
    for bad in (5, -1):
        with pytest.raises(IndexRangeError, match=f"scatter: index {bad} is outside an axis of 5 elements"):
            write(x, updates, np.array([1, bad]))

    assert write(x, updates, np.array([1, 1]))[1, 0] == 3


def test_a_donated_table_is_written_in_place() -> None:
    def write(x: Any, updates: Any, indices: Any) -> Any:
        return Scatter("add")(x, updates, indices)

    step = rlx.jit(write, donate=("x",), host=HOST, target="cpu")
    x = rlx.asarray(np.ones((5, 3), "f4"))
    place = np.asarray(x).ctypes.data
    y = np.asarray(step(x, np.ones((2, 3), "f4"), np.array([4, 4])))

    assert y.ctypes.data == place
    assert y[:, 0].tolist() == [1, 1, 1, 1, 3]


@pytest.fixture
def _chains_are_worth_it() -> Iterator[None]:
    with assuming(NO_CACHE):
        yield


# (size, indices, row): more updates than rows and fewer; rows of whole lines, of a few vectors and of none.
CHAINED = [(7, 50, 1), (40, 33, 64), (9, 33, 700), (30, 10, 144), (1, 9, 130), (64, 300, 77)]


@EVERY_WIDTH
@pytest.mark.usefixtures("_chains_are_worth_it")
@pytest.mark.parametrize("least", [1, 1 << 40], ids=["streamed", "ordinary"])
@pytest.mark.parametrize("name", ["f32", "f64", "bf16", "i32", "u8", "c64"])
def test_chained_updates_combine_in_index_order(name: str, least: int, isa: Isa) -> None:
    rng = np.random.default_rng(4)
    with assuming(evolve(NO_CACHE, nontemporal_nbytes=least)):
        for n, count, inner in CHAINED:
            indices = rng.integers(0, n, count).astype("i4")
            agrees(emit_scatter, ScatterAdd(n), [numbers(rng, (count, inner), name), indices], isa, shifts=(0, 8))


@pytest.mark.usefixtures("_chains_are_worth_it")
def test_chains_clip_leave_out_or_name_an_index_outside() -> None:
    indices, updates = np.array([0, -9, 3, 100, 2, 1]), np.arange(18, dtype="f4").reshape(6, 3)
    for oob in ("clip", "fill"):
        agrees(emit_scatter, ScatterAdd(3, oob=oob), [updates, indices])
    with pytest.raises(IndexRangeError, match="index -9 is outside an axis of 3 elements"):
        rlx.jit(lambda u, i: scatter_add(u, i, size=3), host=HOST, target="cpu")(updates, indices)


def test_large_tables_of_long_rows_are_chained() -> None:
    def problem(size: int, count: int) -> Indexing:
        return Indexing(1, 1, size, count, 128, i32, "error")

    assert chains.is_worth_chains(problem(1 << 15, 1 << 15), 512, MACHINE)
    assert not chains.is_worth_chains(problem(1 << 10, 1 << 15), 512, MACHINE), "the table stays near"
    assert not chains.is_worth_chains(problem(1 << 15, 1 << 10), 512, MACHINE), "most rows have no update"
    assert not chains.is_worth_chains(problem(1 << 20, 1 << 20), 8, MACHINE), "a line would be fetched for eight bytes"
