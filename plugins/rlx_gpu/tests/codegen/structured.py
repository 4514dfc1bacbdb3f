"""Structured templates: cases with their data and meaning, and how a device's results are held against these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from attrs import evolve, frozen

from plugins.rlx_gpu.tests.codegen.executors import Executor, Programs
from rlx_core.emit.emitters import Emitted, Function
from rlx_core.ir.op import Op
from rlx_core.ops.samples import Sample
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.scalars import scalars_of
from rlx_gpu.codegen.walks import Machine

__all__ = ["SMALL", "USUAL", "Case", "check", "functions_of", "printed", "static_samples"]

Print = Callable[[Any, GpuDialect, Machine, Any], Emitted]

USUAL = Machine()

SMALL = Machine(group=8, shared_nbytes=512, most_groups=3, short_row=4, few_rows=100, long_row=16, part=16)
"""Reaches every stage with lines of some dozens: groups of few threads, of which each has several shares."""


@frozen(eq=False)
class Case:
    """A problem on a machine, and what it makes of some data.

    Attributes:
        tolerance: By how much results may differ, as a share of the largest element; `None` where they are the same bits.
    """

    problem: Any
    print: Print
    machine: Machine
    operands: Sequence[np.ndarray | None]
    expected: Sequence[np.ndarray]
    tolerance: float | None = None

    def printed(self, language: GpuDialect) -> Emitted:
        return printed(self.print, self.problem, language, self.machine)


def printed(print_problem: Print, problem: Any, language: GpuDialect, machine: Machine) -> Emitted:
    return print_problem(problem, language, machine, scalars_of(language))


def functions_of(cases: Sequence[Case], language: GpuDialect) -> list[Function]:
    """What is launched for cases whose elements a language has."""
    return [f for case in having(cases, language) for f in case.printed(language).functions]


def having(cases: Sequence[Case], language: GpuDialect) -> list[Case]:
    """The cases whose elements a language has."""
    names = {dtype.numpy for dtype in language.dtypes}
    return [c for c in cases if all(x is None or x.dtype in names for x in c.operands)]


def check(executor: Executor, cases: Sequence[Case]) -> None:
    """Run cases twice: both times the same bits, which are the meaning's or close to it."""
    cases = [evolve(case, machine=executor.machine(case.machine)) for case in having(cases, executor.language)]
    launched = [case.printed(executor.language) for case in cases]
    programs = executor.programs(launched)
    for case, launch in zip(cases, launched, strict=True):
        found, again = (_executed(programs, launch, case.operands, case.expected) for _ in range(2))
        for number, (x, y, wanted) in enumerate(zip(found, again, case.expected, strict=True)):
            what = f"{case.problem}, result {number}"
            assert x.tobytes() == y.tobytes(), f"{what}: two runs differ"
            _assert_near(what, x, wanted, case.tolerance)


def _executed(
    programs: Programs, launched: Emitted, operands: Sequence[np.ndarray | None], like: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """The results of a template of which the buffers are operands and then results; they are full of 0xAA before."""
    given = [None if x is None or not x.size else _padded(np.ascontiguousarray(x)) for x in operands]
    results = [np.full(max(-(-y.nbytes // 4) * 4, 4), 0xAA, np.uint8) for y in like]
    programs.run(launched, [*given, *results])
    return [r[: y.nbytes].view(y.dtype).reshape(y.shape) for r, y in zip(results, like, strict=True)]


def _padded(x: np.ndarray) -> np.ndarray:
    """The bytes of an array, up to whole words, which is what some devices copy."""
    whole = np.zeros(-(-x.nbytes // 4) * 4, np.uint8)
    whole[: x.nbytes] = x.reshape(-1).view(np.uint8)
    return whole


def _assert_near(what: str, found: np.ndarray, wanted: np.ndarray, tolerance: float | None) -> None:
    if tolerance is None:
        assert found.tobytes() == np.ascontiguousarray(wanted).tobytes(), what
        return
    x, y = found.astype(np.float64), wanted.astype(np.float64)
    most = max(float(np.max(np.abs(y), initial=0.0, where=np.isfinite(y))), 1.0)
    np.testing.assert_allclose(x, y, rtol=4 * tolerance, atol=tolerance * most, err_msg=what)


def static_samples(op: type[Op]) -> Iterator[tuple[Any, Sample]]:
    """The samples of an op, which all have static types, with the op that each is of."""
    for sample in op.samples():
        if isinstance(sample, Sample):
            yield op(**sample.attributes), sample
