"""Execution without an installed backend: programs run on the reference interpreter, node by node with NumPy, with one warning.

It is not a plugin, because it is never chosen: a backend that is installed is preferred to it whatever its priority, and
where one is installed and cannot be used, the reason is an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from rlx_core.ir.graph import Node, leaf_name
from rlx_core.ir.interpret import interpret
from rlx_core.ir.lir import Lir
from rlx_core.ir.op import Op
from rlx_core.pipeline.backend import Backend, Program, Target
from rlx_core.pipeline.kernels import KernelTable, condition, run_reference

INTERPRETER: Final = "interpreter"
"""The name of the target."""

_kernels: Final = KernelTable(INTERPRETER, plugin="rlx")


@condition("a NumPy meaning")
def has_reference(node: Node) -> bool:
    """Ask whether an op can be evaluated as it is; others are decomposed."""
    return node.op.reference is not None


_kernels.register(Op, name="reference", when=has_reference, accepts_strides=True)(run_reference)


class InterpretedProgram(Program):
    """The graph of a plan, interpreted in every run."""

    def __init__(self, lir: Lir, params: Mapping[str, np.ndarray] | None = None) -> None:
        self._lir = lir
        self._params = dict(params or {})
        self._names = [leaf_name(entry.value) for entry in lir.manifest.inputs]

    def bind(self, params: Mapping[str, np.ndarray]) -> None:
        self._params.update(params)

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        results = interpret(self._lir.graph, dict(zip(self._names, inputs, strict=True)), self._params)
        return [np.array(result) for result in results]  # one may be an argument or a constant

    def clone(self) -> InterpretedProgram:
        return InterpretedProgram(self._lir, self._params)


class Interpreter(Backend):
    """The reference interpreter as a backend."""

    target = Target(INTERPRETER, _kernels, alignment=16)

    def compile(self, lir: Lir, target: Target, options: Mapping[str, Any]) -> Program:
        return InterpretedProgram(lir)


_has_warned = False


def warn_of_interpreter(command: str | None) -> None:
    """Warn once in a process that programs are interpreted; `command` installs a backend."""
    global _has_warned
    if not _has_warned:
        _has_warned = True
        remedy = f"; {command} installs a compiler" if command else ""
        warnings.warn(
            f"no backend is installed, so programs run on the reference interpreter, which is slow{remedy}",
            RuntimeWarning,
            stacklevel=2,
        )
