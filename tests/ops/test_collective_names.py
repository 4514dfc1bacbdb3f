"""Names of axes: which are in scope, and which are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import AxisNameError, RlxError
from rlx_core.ir.graph import Builder, building, ops_inside
from rlx_core.ir.mesh import Mesh, OverNamedAxes, current_mesh
from rlx_core.ops.collectives import AxisIndex, PMax, PSum
from rlx_core.ops.families import Family
from rlx_core.pipeline.compile import compile_graph
from rlx_core.runtime.executable import Executable
from rlx_core.transforms.batch import vmap_graph


def over(function: Callable[..., Any], name: str = "i", **settings: Any) -> Callable[..., Any]:
    return rlx.vmap(function, axis_name=name, **settings)


def facts(error: RlxError) -> dict[str, str]:
    return {fact.label: str(fact.value) for fact in error.facts}


def assert_all(found: Any, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(np.asarray(found), expected)
    assert np.asarray(found).dtype == np.asarray(expected).dtype


class TestNames:
    @pytest.mark.parametrize(
        "collective",
        [
            *(lambda x, n, f=f: f(x, n) for f in (rlx.psum, rlx.pmean, rlx.pmax, rlx.pmin)),
            lambda x, n: rlx.axis_index(n),
            lambda x, n: rlx.axis_size(n),
        ],
        ids=["psum", "pmean", "pmax", "pmin", "axis_index", "axis_size"],
    )
    def test_a_name_that_is_not_in_scope_is_refused_with_those_that_are(self, collective):
        x = np.float32([1, 2])
        for call in (lambda: collective(x, "batch"), lambda: rlx.jit(lambda x: collective(x, "batch"))(x)):
            with pytest.raises(AxisNameError, match="no axis 'batch' is in scope") as caught:
                call()
            assert facts(caught.value)["axes in scope"] == "none"
        with pytest.raises(AxisNameError, match="no axis 'batsch' is in scope") as caught:
            over(over(lambda a: collective(a, ("batch", "batsch")), "batch"), "model")(x[None])
        assert facts(caught.value)["axes in scope"] == "model of size 1, batch of size 2"
        assert caught.value.hint == "did you mean `batch`?"
        for wrong in (3, None, ("batch", 0), b"batch"):
            with pytest.raises(AxisNameError, match="axis_name must be a string or a tuple of strings"):
                over(lambda a, n=wrong: collective(a, n), "batch")(x)
        with pytest.raises(AxisNameError, match="named twice"):
            over(lambda a: collective(a, ("batch", "batch")), "batch")(x)

    def test_an_axis_is_in_scope_inside_of_the_mapping_only(self):
        x = np.float32([1, 2])
        over(lambda a: rlx.psum(a, "i"))(x)
        assert current_mesh() == Mesh()
        with pytest.raises(AxisNameError):
            rlx.jit(lambda x: rlx.psum(over(lambda a: a)(x), "i"))(x)
        with pytest.raises(ZeroDivisionError):
            over(lambda a: 1 / 0)(x)
        assert current_mesh() == Mesh()

    def test_a_name_twice_or_a_name_that_is_none_is_refused_by_vmap(self):
        with pytest.raises(AxisNameError, match="an enclosing vmap has an axis 'i' already"):
            over(over(lambda a: a))(np.zeros((2, 2)))
        for wrong in (3, ("i", "j"), b"i", ["i"]):
            with pytest.raises(AxisNameError, match="axis_name must be a string"):
                rlx.vmap(lambda a: a, axis_name=wrong)
        with pytest.raises(AxisNameError, match="empty"):
            rlx.vmap(lambda a: a, axis_name="")

    def test_a_program_of_its_own_has_none_of_the_axes_around_it(self):
        """It is compiled by itself, and not run for the members of the mapping."""

        def function(a):
            with pytest.raises(AxisNameError, match="no axis 'i'"):
                rlx.compile(lambda y: rlx.psum(y, "i"), rlx.spec("f32[]"))
            return a

        over(function)(np.float32([1, 2]))

    def test_an_op_that_no_mapping_replaces_is_an_error_where_the_trace_ends(self):
        def function(x):
            return PSum(("i",), (2,))(x)

        with pytest.raises(AxisNameError, match="psum: no axis 'i' is in scope") as caught:
            rlx.jit(function)(np.float32(1))
        assert any("test_collective_names.py" in str(fact.where) for fact in caught.value.facts)

    def test_an_op_was_made_for_the_size_of_its_axis(self):
        builder = Builder("sums")
        with building(builder):
            x = builder.input("x", rlx.spec("f32[]"))
            graph = builder.finish([PMax(("i",), (2,))(x), AxisIndex("i", 2)()])
        with pytest.raises(AxisNameError, match="axis 'i' has size 3, and the op was made for 2"):
            vmap_graph(graph, 0, 0, 3, axis_name="i")
        mapped = vmap_graph(graph, 0, [None, 0], 2, axis_name="i")
        found = Executable(compile_graph(mapped)).run_slots([np.float32([4, 3])])
        assert_all(found[0], np.float32(4))
        assert_all(found[1], np.array([0, 1]))

    def test_a_mapping_over_another_axis_leaves_the_op(self):
        builder = Builder("sums")
        with building(builder):
            x = builder.input("x", rlx.spec("f32[]"))
            graph = builder.finish([PSum(("i",), (2,))(x)])
        for name in (None, "j"):
            left = vmap_graph(graph, 0, 0, 3, axis_name=name)
            assert [type(op) for op in ops_inside(left) if isinstance(op, OverNamedAxes)] == [PSum]

    def test_every_op_is_a_barrier(self):
        """One that knows no mapping must not be folded, and members meet in one order."""
        assert all(op.is_barrier for op in Family("collectives"))

    def test_errors_are_of_one_class_that_is_a_name_error(self):
        assert issubclass(AxisNameError, RlxError)
        assert issubclass(AxisNameError, NameError)
