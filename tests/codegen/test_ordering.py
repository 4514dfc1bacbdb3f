"""Keys have the order that sorting has, and a sorting by them is what the op means."""

from __future__ import annotations

import numpy as np
import pytest

from rlx_core.codegen.ordering import Extreme, Keys, Search, Sorting
from rlx_core.codegen.scalars.numpy_assembler import NumpyAssembler
from rlx_core.ir.dtypes import dtype
from rlx_core.ir.graph import as_results
from rlx_core.ir.types import spec
from rlx_core.ops.counting import ArgMax, ArgMin
from rlx_core.ops.sorting import ArgSort, SearchSorted, Sort, TopK
from rlx_core.testing.cases import OpProgram, programs

PROGRAMS = [p for p in programs((Sort, ArgSort, TopK)) if p.is_static and not next(p.node.present()).dtype.is_complex]


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_a_sorting_by_keys_is_what_its_op_means(program: OpProgram) -> None:
    node, (x,) = program.node, program.draw()
    sorting = Sorting.of(node.op, next(node.present()).type, node.types[0])
    found = sorting.run(NumpyAssembler(), x)
    exact = as_results(node.op(x))
    for one, meant in zip(found[-len(exact) :] if sorting.has_values else found, exact, strict=True):
        np.testing.assert_array_equal(one.reshape(meant.shape), meant)


EXTREMES = [p for p in programs((ArgMax, ArgMin)) if p.is_static]


@pytest.mark.parametrize("program", EXTREMES, ids=str)
def test_the_first_of_the_least_keys_is_where_the_extreme_is(program: OpProgram) -> None:
    node, (x,) = program.node, program.draw()
    (found,) = Extreme.of(node.op, next(node.present()).type).run(NumpyAssembler(), x)
    (meant,) = as_results(node.op(x))
    np.testing.assert_array_equal(found.reshape(meant.shape), meant)


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
def test_nan_is_the_extreme_either_way(name: str) -> None:
    kind = dtype(name)
    x = np.array([1.0, -np.inf, np.nan, np.inf, -np.nan]).astype(kind.numpy)
    for op in (ArgMax(axis=0), ArgMin(axis=0)):
        assert Extreme.of(op, spec(f"{name}[5]")).run(NumpyAssembler(), x)[0].tolist() == [[[2]]]


@pytest.mark.parametrize("op", [ArgMax(axis=0), ArgMin(axis=0)], ids=lambda op: type(op).__name__)
@pytest.mark.parametrize("name", ["f32", "f64", "i8", "u16", "i64"])
def test_elements_compare_as_their_keys_do(name: str, op: ArgMax | ArgMin) -> None:
    kind = dtype(name).numpy
    floats = [np.nan, -np.nan, -0.0, 0.0, -np.inf, np.inf, 1.0, -1.0]
    x = np.array(floats if dtype(name).is_float else [0, 1, 2, np.iinfo(kind).min, np.iinfo(kind).max], kind)
    extreme, b = Extreme.of(op, spec(f"{name}[{len(x)}]")), NumpyAssembler()
    one, other = (np.ascontiguousarray(each) for each in np.broadcast_arrays(x[:, None], x[None, :]))
    keys = [extreme.keys.of(b, each.view(f"i{x.itemsize}")).view(f"u{x.itemsize}") for each in (one, other)]
    held = [each.view(f"i{x.itemsize}") if each.dtype.kind == "u" else each for each in (one, other)]
    np.testing.assert_array_equal(extreme.is_better(b, *held), keys[0] < keys[1])


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
def test_zeros_are_one_key_and_nan_comes_last_either_way(name: str) -> None:
    kind = dtype(name)
    x = np.array([np.nan, -0.0, 0.0, -np.inf, np.inf, 1.0, -1.0, -np.nan]).astype(kind.numpy)
    bits = x.view(f"i{x.itemsize}")
    up, down = (Keys(kind, is_down).of(NumpyAssembler(), bits).view(f"u{x.itemsize}") for is_down in (False, True))
    assert np.argsort(up, kind="stable").tolist() == [3, 6, 1, 2, 5, 4, 0, 7]
    assert up[1] == up[2]
    assert up[0] == up[7]
    assert (down == ~up).all()


def test_a_sorting_prints_on_a_line() -> None:
    sorting = Sorting.of(TopK(k=3), spec("f32[4, 60]"), spec("f32[4, 3]"))
    assert str(sorting) == "sort f32[4, 60, 1] along 1 descending, the first 3: values and positions i64"


SEARCHES = [p for p in programs((SearchSorted,)) if p.is_static and len({x.dtype for x in p.draw()}) == 1]


@pytest.mark.parametrize("program", SEARCHES, ids=str)
def test_a_search_by_keys_is_what_its_op_means(program: OpProgram) -> None:
    node, operands = program.node, program.draw()
    search = Search.of(node.op, *(v.type for v in node.present()))
    (found,), (meant,) = search.run(NumpyAssembler(), *operands), as_results(node.op(*operands))
    np.testing.assert_array_equal(found.reshape(meant.shape), meant)


def test_a_search_prints_on_a_line() -> None:
    search = Search.of(SearchSorted(side="right"), spec("f32[2, 6]"), spec("f32[2, 3]"))
    assert str(search) == "search f32[2, 6] for 3 values, places after equals: i64"


def test_an_extreme_prints_on_a_line() -> None:
    assert str(Extreme.of(ArgMin(axis=1), spec("f32[2, 3, 4]"))) == "position of min f32[2, 3, 4] along 1: i64"
