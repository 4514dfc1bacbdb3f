"""Tuning of native functions: the schedules of a program's functions, and their measurement.

A candidate is measured as a program of one op on arrays of the same types, with the threads of the program that is compiled,
and with the candidate's machine parameters. Functions that serve all sizes, functions of loops, and those in packages are not
tuned.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final

import numpy as np

from rlx_core.codegen.places import Layout, Place
from rlx_core.ir.graph import Builder, Graph, Value
from rlx_core.ir.lir import Lir
from rlx_core.pipeline.backend import Params, Program, Target
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.pipeline.planning.planner import make_lir
from rlx_core.system.records import evolve, frozen
from rlx_core.tuning.clock import Run
from rlx_core.tuning.problem import Candidate
from rlx_core.tuning.tuner import TunedProblem, Tuner
from rlx_cpu.native.llvm.objects import Function
from rlx_cpu.native.machine import CpuMachine
from rlx_cpu.native.products.candidates import machine_with, product_problem
from rlx_cpu.native.runtime.compiled import Settings

MAX_NBYTES: Final = 1 << 30
"""Bytes of the operands and results of a measured function, at most."""


BuildProgram = Callable[[Lir, Settings], Program]
"""Builds the program of a plan under some settings."""


@frozen(eq=False)
class TunedFunctions:
    """The selected schedules of a program.

    Attributes:
        machines: The machine parameters of functions with another schedule than the default, by `Function.key`.
        problems: The problems with several schedules in the order of the program's steps, each once.
    """

    machines: Mapping[Hashable, CpuMachine]
    problems: tuple[TunedProblem, ...]


@frozen
class NativeTuning:
    """Selects the schedules of native functions: those of matrix products.

    Attributes:
        tuner: Selects among the candidates of a problem.
    """

    tuner: Tuner

    def selected(
        self, functions: Iterable[Function], kernels: KernelTable, settings: Settings, build: BuildProgram | None = None
    ) -> TunedFunctions:
        """Return the schedules of a program's functions.

        Args:
            functions: The functions of its steps.
            kernels: The kernels of its target.
            build: For the measurement of candidates; without it nothing is measured.
        """
        machines: dict[Hashable, CpuMachine] = {}
        problems: dict[str, TunedProblem] = {}
        for function in functions:
            problem = product_problem(function, settings.isa)
            if problem is None:
                continue
            prepare = None
            if build is not None and _nbytes(function.layout) <= MAX_NBYTES:
                prepare = Preparation(function, kernels, settings, build).run_of
            selected = problems.get(problem.line) or self.tuner.selected(problem, prepare)
            problems[problem.line] = selected
            if selected.candidate != problem.default:
                machines[function.key] = machine_with(settings.isa.machine, selected.candidate)
        return TunedFunctions(machines, tuple(problems.values()))


def _nbytes(layout: Layout) -> int:
    return sum(place.type.static_nbytes for place in (*layout.operands, *layout.results) if place is not None)


@frozen(eq=False)
class Preparation:
    """Makes programs that run one function under different machine parameters."""

    function: Function
    kernels: KernelTable
    settings: Settings
    build: BuildProgram

    def run_of(self, candidate: Candidate) -> Run:
        """Compile a candidate and return its run, whose result is discarded."""
        graph, inputs, params = self._graph()
        kernel = self.kernels.get(self.function.kernel)
        target = Target("cpu", kernels=self.kernels)
        lir = make_lir(graph, target, choose=lambda node: kernel if node.op == self.function.node.op else None)
        isa = evolve(self.settings.isa, machine=machine_with(self.settings.isa.machine, candidate))
        program = self.build(lir, evolve(self.settings, isa=isa, tuning=None))
        program.bind(Params(params))
        return lambda: program.run(inputs)

    def _graph(self) -> tuple[Graph, list[np.ndarray], dict[str, np.ndarray]]:
        """The op of the function on inputs, parameters and literals as in its layout, and arrays for them."""
        builder, generator = Builder("tuning"), np.random.default_rng(0)
        inputs: list[np.ndarray] = []
        params: dict[str, np.ndarray] = {}
        operands: list[Value | None] = []
        for number, place in enumerate(self.function.layout.operands):
            name = f"x{number}"
            if place is None:
                operands.append(None)
            elif place.literal is not None:
                operands.append(builder.constant(_filled(place, place.literal)))
            elif place.is_bound:
                params[name] = _drawn(place, generator)
                operands.append(builder.param(name, place.type))
            else:
                inputs.append(_drawn(place, generator))
                operands.append(builder.input(name, place.type))
        return builder.finish(builder.emit(self.function.node.op, operands)), inputs, params


def _filled(place: Place, literal: bytes) -> np.ndarray:
    """An array of which all elements equal a literal."""
    return np.full(place.type.static_shape, np.frombuffer(literal, place.type.dtype.numpy)[0])


def _drawn(place: Place, generator: np.random.Generator) -> np.ndarray:
    """Random elements in [-1, 1); the multiply-adds of a product take equally long for all ordinary numbers."""
    return generator.uniform(-1, 1, place.type.static_shape).astype(place.type.dtype.numpy)
