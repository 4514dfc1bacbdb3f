"""The GPU languages of `rlx_gpu.codegen` as the language of a device."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from rlx_core.codegen import Kernel, formula_of
from rlx_core.codegen.loops import Apply
from rlx_core.emit.emitters import Emitted, Function, Language
from rlx_core.ir.dtypes import DType
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.backend import Level
from rlx_gpu.codegen.kernels import print_loops
from rlx_gpu.codegen.languages import GpuDialect
from rlx_gpu.codegen.products import print_product
from rlx_gpu.codegen.scalars import scalars_of
from rlx_gpu.codegen.sources import source_of
from rlx_gpu.codegen.tiles import TiledProduct
from rlx_gpu.codegen.walks import Machine

_FOR_FAULTS = 2
"""Arguments in addition to buffers: the status words, and the number of the first."""


class GpuLanguage(Language):
    """One of the GPU languages, for devices of one kind.

    Args:
        dialect: The language.
        machine: The device properties that schedules depend on.
        level: The name of the language for `emit`.
        unsupported: Names of dtypes that the device does not support, although the language does.
        features: The device's features.
    """

    def __init__(
        self,
        dialect: GpuDialect,
        machine: Machine,
        level: Level,
        unsupported: Collection[str] = (),
        features: frozenset[str] = frozenset(),
    ) -> None:
        self.dialect, self.machine, self._unsupported, self.features = (
            dialect,
            machine,
            frozenset(unsupported),
            features,
        )
        self.scalars = scalars_of(dialect)
        self.has_one_entry = dialect.one_entry
        self._level = level

    @property
    def level(self) -> Level:
        return self._level

    @property
    def identity(self) -> str:
        return " ".join((self.dialect.name, *self.dialect.options))

    def refusal(self, op: Op, types: tuple[TensorType | None, ...]) -> str | None:
        formula = formula_of(op, types)
        if formula is None:
            return "a meaning that is one loop kernel"
        lacking = {term.dtype.name for term in formula.terms} & self._unsupported
        if lacking:
            return f"dtypes that the device has, not {' '.join(sorted(lacking))}"
        limit = self.dialect.most_arguments
        needed = sum(t is not None for t in types) + len(formula.writes) + _FOR_FAULTS
        if limit is not None and needed > limit:
            return f"at most {limit} arguments of a kernel, not {needed}"
        for term in formula.terms:
            reason = self.dialect.refusal(term.dtype)
            if reason is None and isinstance(term, Apply):
                reason = self.scalars.refusal(term.op, tuple(formula.terms[a].dtype for a in term.args))
            if reason is not None:
                return reason
        return None

    def loop(self, kernel: Kernel) -> Emitted:
        return self.printed(print_loops, kernel)

    def product(self, problem: TiledProduct) -> Emitted:
        """Return the code of a product of matrices with its epilogue."""
        return self.printed(print_product, problem)

    def printed(self, print: Callable[..., Emitted], problem: Any) -> Emitted:
        """Return the code of a problem of `rlx_core.codegen` from its template."""
        return print(problem, self.dialect, self.machine, self.scalars)

    def lacking(self, dtype: DType) -> str | None:
        """Return the reason why values of a dtype cannot be computed, after "needs …"; `None` if they can."""
        return f"{dtype}, which the device has not" if dtype.name in self._unsupported else self.dialect.refusal(dtype)

    def module(self, functions: Sequence[Function]) -> str:
        return source_of(functions, self.dialect)
