"""Every sample of every op on the narrower instruction sets of this machine, shared among threads, by the error model.

The samples of one op are one program, so that they are compiled together; each is judged by its own yardstick. On the widest
set `test_kernels.py` tries them one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import rlx_cpu.plugin
from rlx_core.ir.graph import Builder, Graph, as_results, building
from rlx_core.ir.op import Op, operand_names
from rlx_core.ops import standard_ops
from rlx_core.pipeline.compile import compile_graph
from rlx_core.plugins import PluginHost
from rlx_core.runtime.executable import Executable
from rlx_core.testing.cases import Program, programs
from rlx_core.testing.yardstick import yardstick
from rlx_cpu.native.isa import available
from rlx_cpu.native.sharing import everything_is_shared

HOST = PluginHost([rlx_cpu.plugin])
TOGETHER = 40  # samples: what fails is found in a program that can still be read


def batches() -> Iterator[tuple[type[Op], list[Program]]]:
    """The samples of each op, in groups."""
    for op in standard_ops():
        found = [p for p in programs((op,)) if p.is_static]
        for first in range(0, len(found), TOGETHER):
            yield op, found[first : first + TOGETHER]


BATCHES = list(batches())


def together(samples: Sequence[Program]) -> Graph:
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


@pytest.mark.parametrize("isa", [isa.name for isa in available()[1:]])
@pytest.mark.parametrize("number", range(len(BATCHES)), ids=lambda n: f"{BATCHES[n][0].name}-{n}")
def test_every_sample_agrees_with_the_interpreter_on_narrower_sets(number: int, isa: str) -> None:
    _, samples = BATCHES[number]
    graph = together(samples)
    config = {"use": "none", "options": {"cpu.isa": isa, "cpu.threads": 2}}
    drawn = [dict(zip(p.graph.input_types, p.draw(), strict=True)) for p in samples]
    with everything_is_shared():
        executable = Executable(compile_graph(graph, target="cpu", host=HOST, config=config))
        found = iter(executable.run({f"s{i}_{n}": a for i, fed in enumerate(drawn) for n, a in fed.items()}))

    for program, fed in zip(samples, drawn, strict=True):
        own = [np.asarray(next(found)) for _ in program.graph.outputs]
        wrong = yardstick(program.graph, fed).complaint(own)
        assert wrong is None, f"{program}: {wrong}"
