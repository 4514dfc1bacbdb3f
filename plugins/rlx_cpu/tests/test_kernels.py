"""Every kernel of the table, on the samples that every op brings along, against the float64 interpreter.

The error model is that of `rlx_core.testing.yardstick`: a few times the error of the same program in NumPy, and a few ulp.
The samples of one op are one program, so that they are compiled together; each is judged by its own yardstick.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from harness import WIDTHS

import rlx_cpu.plugin
from rlx_core.ir.dtypes import bf16
from rlx_core.ir.graph import Builder, Graph, as_results, building
from rlx_core.ir.op import Op, operand_names
from rlx_core.ops import standard_ops
from rlx_core.pipeline.compile import compile_graph
from rlx_core.plugins import PluginHost
from rlx_core.runtime.executable import Executable
from rlx_core.testing.cases import OpProgram, programs
from rlx_core.testing.yardstick import Yardstick, yardstick
from rlx_cpu.kernels import kernels
from rlx_cpu.native.llvm.isa import available
from rlx_cpu.native.sharing import everything_is_shared

HOST = PluginHost([rlx_cpu.plugin])
CASES = [p for p in programs(standard_ops()) if p.is_static]

NOT_REACHED_BY_SAMPLES: dict[str, str] = {}
"""Kernel → why no sample of any op reaches it."""

TOGETHER = 40  # samples: what fails is found in a program that can still be read


def batches() -> Iterator[list[OpProgram]]:
    """The samples of each op, in groups."""
    for _, same in groupby(CASES, lambda p: p.op):
        found = list(same)
        for first in range(0, len(found), TOGETHER):
            yield found[first : first + TOGETHER]


BATCHES = list(batches())


def together(samples: Sequence[OpProgram]) -> Graph:
    """One program that calls the op once for each sample."""
    builder = Builder("law")
    results: list[Any] = []
    with building(builder):
        for number, program in enumerate(samples):
            case = program.case
            names = operand_names(case.op, len(case.sample.types))
            operands = [
                None if t is None else builder.input(f"s{number}_{n}", t)
                for n, t in zip(names, case.sample.types, strict=True)
            ]
            results += as_results(case.op(**case.sample.attributes)(*operands))
    return builder.finish(results)


@lru_cache(maxsize=2)
def batch(number: int) -> tuple[Graph, list[dict[str, np.ndarray]], list[Yardstick]]:
    """The program of a batch, and for each sample its arrays and what they have to give; all ways ask for it in a row."""
    samples = BATCHES[number]
    drawn = [dict(zip(p.graph.input_types, p.draw(), strict=True)) for p in samples]
    return together(samples), drawn, [yardstick(p.graph, a) for p, a in zip(samples, drawn, strict=True)]


WAYS = {isa.name: {"cpu.isa": isa.name, "cpu.threads": 2} for isa in available()} | {"numpy": {"cpu.tier": "numpy"}}
"""The NumPy tier, and native code on every instruction set that this machine has, narrower ones forced."""


def ways(samples: Sequence[OpProgram]) -> list[str]:
    """What runs a batch in a way of its own: sets of one width print other code for products of bf16 alone."""
    has_bf16 = any(type.dtype is bf16 for p in samples for type in p.graph.input_types.values())
    return list(WAYS) if has_bf16 else [*(isa.name for isa in WIDTHS), "numpy"]


@pytest.mark.parametrize(
    ("op", "number", "way"),
    [(samples[0].op, n, way) for n, samples in enumerate(BATCHES) for way in ways(samples)],
    ids=[f"{samples[0].op.name}-{n}-{way}" for n, samples in enumerate(BATCHES) for way in ways(samples)],
)
def test_every_sample_agrees_with_the_interpreter_whatever_the_strides(op: type[Op], number: int, way: str) -> None:
    graph, drawn, judges = batch(number)
    assert any(isinstance(node.op, op) for node in graph.nodes)
    fed = {f"s{i}_{name}": array for i, arrays in enumerate(drawn) for name, array in arrays.items()}
    # No rewriting, so that each op meets its own kernel.
    config = {"use": "none", "options": WAYS[way]}
    with everything_is_shared() if way != "numpy" else nullcontext():
        executable = Executable(compile_graph(graph, target="cpu", host=HOST, config=config))
        results = executable.run(fed)

    found = iter(results)
    for program, judge in zip(BATCHES[number], judges, strict=True):
        wrong = judge.complaint([next(found) for _ in judge.outputs])  # dtypes and shapes as well
        assert wrong is None, f"{program}: {wrong}"

    again = executable.run({name: strided(array) for name, array in fed.items()})
    for a, b in zip(again, results, strict=True):
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
