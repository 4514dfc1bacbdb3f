"""Every kernel of the table, on the samples that every op brings along, against the float64 interpreter.

The error model is that of `rlx_core.testing.yardstick`: a few times the error of the same program in NumPy, and a few ulp.
"""

from __future__ import annotations

import numpy as np
import pytest

import rlx_cpu.plugin
from rlx_core.ir.dtypes import dtype
from rlx_core.ir.types import TensorType
from rlx_core.ops import standard_ops
from rlx_core.pipeline.compile import compile_graph
from rlx_core.plugins import PluginHost
from rlx_core.runtime.executable import Executable
from rlx_core.testing.cases import Program, programs
from rlx_core.testing.yardstick import yardstick
from rlx_cpu.kernels import kernels

HOST = PluginHost([rlx_cpu.plugin])
TIERS = ("native", "numpy")

CASES = [p for p in programs(standard_ops()) if p.is_static]

NOT_REACHED_BY_SAMPLES: dict[str, str] = {}
"""Kernel → why no sample of any op reaches it."""


def compiled(program: Program, tier: str) -> Executable:
    # No rewriting, so that each op meets its own kernel.
    config = {"use": "none", "options": {"cpu.tier": tier}}
    return Executable(compile_graph(program.graph, target="cpu", host=HOST, config=config))


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("program", CASES, ids=str)
def test_every_sample_agrees_with_the_interpreter_whatever_the_strides(program: Program, tier: str) -> None:
    arrays = program.draw()
    executable = compiled(program, tier)
    found = executable.run(dict(zip(program.graph.input_types, arrays, strict=True)))

    for array, output in zip(found, program.graph.outputs, strict=True):
        assert TensorType(dtype(array.dtype), array.shape) == output.type
    assert yardstick(program.graph, dict(zip(program.graph.input_types, arrays, strict=True))).complaint(found) is None

    again = executable.run(dict(zip(program.graph.input_types, map(strided, arrays), strict=True)))
    for a, b in zip(again, found, strict=True):
        np.testing.assert_array_equal(a, b)


def strided(array: np.ndarray) -> np.ndarray:
    """The same array as a read-only view with gaps along every axis."""
    wider = np.zeros([2 * n + 1 for n in array.shape], array.dtype)
    seen = wider[tuple(slice(1, None, 2) for _ in array.shape)] if array.ndim else wider
    seen[...] = array
    seen.flags.writeable = False
    return seen


def test_every_kernel_is_reached_by_a_sample() -> None:
    nodes = (node for program in CASES for node in program.graph.nodes if not node.is_leaf)
    reached = {chosen.name for node in nodes if (chosen := kernels.choose(node).kernel) is not None}

    assert {kernel.name for kernel in kernels} - reached == NOT_REACHED_BY_SAMPLES.keys()
