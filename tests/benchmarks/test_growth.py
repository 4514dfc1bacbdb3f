"""The programs whose first calls are drawn over their length: the same mathematics for rlx and JAX, as long as was asked for."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_core as rlx
from benchmarks import growth
from benchmarks.growth import Point, picture


@pytest.mark.parametrize("program", [*growth.PROGRAMS, "gru-grad"])
def test_a_program_has_about_as_many_nodes_as_asked(program: str) -> None:
    nodes = growth.nodes_of(program, growth.steps_for(program, 400))
    assert 300 < nodes < 500


@pytest.mark.parametrize("program", growth.PROGRAMS)
def test_a_program_computes_with_numpy_what_it_computes_with_rlx(program: str) -> None:
    class Namespace:
        """What the programs need of an array namespace, from NumPy."""

        def __getattr__(self, name: str) -> object:
            return getattr(np, {"permute_dims": "transpose"}.get(name, name))

    expected_of, arrays = growth.PROGRAMS[program](Namespace(), 3)
    function, _ = growth.PROGRAMS[program](rlx, 3)
    np.testing.assert_allclose(rlx.jit(function)(*arrays), expected_of(*arrays), rtol=1e-4)  # f32, a few hundred sums


def test_a_first_call_is_timed_in_this_process_too() -> None:
    found = growth.first_call("rlx", "chain-grad", 5)
    assert found["seconds"] > 0
    assert found["cpu_seconds"] > 0


def test_the_picture_has_a_panel_a_program_and_a_line_a_system() -> None:
    lengths = (100, 1000, 20_000)
    points = [
        Point(p, s, n, n, n / 1000, n / 1000) for p in ("chain", "gru") for s in ("rlx", "jax.jit") for n in lengths
    ]
    drawn = picture(points)
    assert drawn.count('class="line rlx"') == drawn.count('class="line jax"') == 2
    assert "gru: seconds of the first call over nodes" in drawn
