"""Programs with data-dependent sizes: as few parts as possible, and steps on the host between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import ShapeError, UnsupportedError, WrongInputCountError
from rlx_core.importing.host_steps import HostStep

from .toy import partitioned, program

NODES = program("""
    h = double x
    places = nonzero h
    chosen = take h places
    total = sum chosen
""")


@pytest.fixture(scope="module")
def compiled() -> Any:
    return partitioned("toy", NODES, ["chosen", "total", "places"], x="f32[n]").compile()


@pytest.mark.parametrize("x", [[0, 3, 0, 4], [0, 0], []])
def test_results_have_the_size_that_the_data_determine(compiled: Any, x: list[float]) -> None:
    chosen, total, places = compiled(np.float32(x))
    expected = 2 * np.float32(x)
    np.testing.assert_array_equal(chosen, expected[expected != 0])
    assert float(total) == expected.sum()
    np.testing.assert_array_equal(places, np.flatnonzero(x))


def test_independent_steps_share_their_programs() -> None:
    nodes = program("""
        a = nonzero x
        b = double a
        c = nonzero y
        d = double c
        e = nonzero d
        f = double e
    """)
    compiled = partitioned("toy", nodes, ["b", "f"], x="f32[n]", y="f32[n]").compile()
    kinds = [type(each).__name__ for each in compiled.stages]
    assert kinds == ["HostStep", "HostStep", "ProgramPart", "HostStep", "ProgramPart"]
    b, f = compiled(np.float32([0, 1]), np.float32([1, 1]))
    assert np.asarray(b).tolist() == [2]
    assert np.asarray(f).tolist() == [2]


def test_the_report_and_the_errors_of_transformations_name_the_steps(compiled: Any) -> None:
    assert "2 programs, and 1 steps on the host" in str(compiled.report)
    assert "on the host: line places" in str(compiled.report)

    model = partitioned("toy", NODES, ["total"], x="f32[n]")
    with pytest.raises(UnsupportedError, match="more than one program") as caught:
        rlx.grad(lambda x: model.function({}, x))(np.ones(2, np.float32))
    assert "line places" in str(caught.value)
    with pytest.raises(UnsupportedError, match="a file holds one program") as caught:
        rlx.to_bytes(model)
    assert "line places" in str(caught.value)


def test_wrong_calls_are_errors_of_the_model(compiled: Any) -> None:
    with pytest.raises(WrongInputCountError, match="missing a required argument: 'x'"):
        compiled()
    with pytest.raises(ShapeError, match=r"x must be f32\[n\]"):
        compiled(np.ones((2, 2), np.float32))


def test_operands_of_a_step_that_do_not_fit_are_an_error_with_its_node() -> None:
    step = HostStep("line h", "h", ("a", "b"), (), np.matmul)
    with pytest.raises(ShapeError, match="line h: its operands do not fit") as caught:
        step.run(np.ones((2, 3)), np.ones((2, 3)))
    assert "[2, 3], [2, 3]" in str(caught.value)
