"""Native kernels: which op classes have an emitter, and what each accepts.

A row here becomes a row of the target's `KernelTable`, with a name that begins with `native_`, and the NumPy rows of that table
have lower priority: selection, `rlx why kernel` and the report treat it like any other. The function of such a row is the op's
NumPy implementation, for steps that run outside of native programs; it also has the emitter.

A package registers rows in its own `NativeTable` (decision 0021). They are called `acme.native_…`, so that the name of a kernel
identifies its package without an import.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

import numpy as np
from attrs import evolve, field

from rlx_core.ir.dims import Dim
from rlx_core.ir.graph import Node, as_results
from rlx_core.ir.op import Op, OpModules
from rlx_core.pipeline.kernels import Condition, Kernel, KernelTable
from rlx_core.system.records import define, frozen
from rlx_cpu.native.contract import Emit, EmitSized
from rlx_cpu.tier import reason_without

__all__ = ["PREFIX", "NativeMeaning", "NativeTable", "ProgramEmitters", "adopted", "is_external", "is_native", "native"]

PREFIX = "native_"
_NATIVE = re.compile(rf"([a-z][a-z0-9_-]*\.)?{PREFIX}")
STEP_BACK = 100
"""Reduction of the NumPy rows' priority. Native rows have priority 0, so a plugin's row of higher priority precedes them."""

_E = TypeVar("_E", bound=Emit)


class NativeTable:
    """Emitters by kernel name, with the rows that announce them.

    Args:
        filled_by: The module that registers them all, imported when the first emitter is requested: a program whose code is
            cached needs none. It allows the table to be imported without llvmlite; the table then has no rows. Or the modules
            that register them, imported by the ops of a program.
    """

    def __init__(self, filled_by: str | OpModules | None = None) -> None:
        self._modules = OpModules({filled_by: "Op"}) if isinstance(filled_by, str) else filled_by
        self._rows = KernelTable("cpu", plugin="cpu")
        self._emitters: dict[str, Emit] = {}
        self._sized: dict[str, EmitSized] = {}

    def register(
        self,
        *ops: type[Op],
        dtypes: str | None = None,
        when: Condition | tuple[Condition, ...] = (),
        workspace: Callable[[Node], Dim] | None = None,
        in_place: tuple[int, ...] = (),
        accepts_strides: bool = True,
        completes_parts: bool = False,
        priority: int = 0,
        name: str | None = None,
        is_generated: bool = False,
        is_each_in_place: bool = False,
        writes_strides: bool = False,
        runs_nested: bool = False,
        sized: EmitSized | None = None,
    ) -> Callable[[_E], _E]:
        """Register the decorated emitter for each of `ops`; arguments are those of `KernelTable.register`.

        Args:
            name: Without the prefix; the function's own by default.
            priority: Among native rows.
            sized: Finds the dynamic-shape form.
        """

        def add(emit: _E) -> _E:
            doc = (emit.__doc__ or "").strip().split("\n")[0]
            base = f"{PREFIX}{name or getattr(emit, '__name__', 'kernel')}"
            for op in ops:
                unique = base if len(ops) == 1 else f"{base}[{op.name}]"
                run = NativeMeaning(emit)
                run.__doc__ = doc
                self._rows.register(
                    op,
                    dtypes=dtypes,
                    when=when,
                    workspace=workspace,
                    in_place=in_place,
                    accepts_strides=accepts_strides,
                    completes_parts=completes_parts,
                    priority=priority,
                    name=unique,
                    is_generated=is_generated,
                    is_each_in_place=is_each_in_place,
                    writes_strides=writes_strides,
                    runs_nested=runs_nested,
                    tier="native",
                )(run)
                self._emitters[unique] = emit
                if sized is not None:
                    self._sized[unique] = sized
            return emit

        return add

    def emitter(self, kernel: str) -> Emit | None:
        """The emitter of a kernel by its full name; `None` for a kernel that is not native."""
        self._fill_for(kernel)
        return self._emitters.get(kernel)

    def sized(self, kernel: str) -> EmitSized | None:
        """Return the function that finds a kernel's dynamic-shape forms; `None` for one that is compiled for each size."""
        self._fill_for(kernel)
        return self._sized.get(kernel)

    def rows(self, op: type[Op]) -> list[Kernel]:
        """The native rows for an op, most preferred first."""
        self._fill(op)
        return self._rows.candidates(op)

    def before(self, others: Iterable[Kernel], op: type[Op] | None = None) -> Iterator[Kernel]:
        """The native rows, of one op or all, and those of another table that step back behind them."""
        yield from self if op is None else self.rows(op)
        yield from (evolve(kernel, priority=kernel.priority - STEP_BACK) for kernel in others)

    def __iter__(self) -> Iterator[Kernel]:
        self._fill()
        return iter(self._rows)

    def __len__(self) -> int:
        self._fill()
        return len(self._rows)

    def _fill(self, op: type[Op] | None = None) -> None:
        modules = self._modules
        if modules is not None and reason_without() is None:
            modules.load(op)
            if op is None:
                self._modules = None

    def _fill_for(self, kernel: str) -> None:
        """Import all modules if a kernel is unknown: that of a plan from a cache was not looked up by its op."""
        if kernel not in self._emitters:
            self._fill()


MODULES: Final = OpModules(
    {
        "rlx_cpu.native.loops.rows": "Op",
        "rlx_cpu.native.movement.boxes": (
            "rlx.narrow rlx.expand rlx.transpose rlx.diagonal rlx.sliding_windows rlx.full rlx.reshape "
            "rlx.optimization_barrier rlx.concat rlx.flip rlx.roll rlx.tile rlx.repeat rlx.pad"
        ),
        "rlx_cpu.native.movement.windows": "rlx.dynamic_slice rlx.dynamic_update_slice",
        "rlx_cpu.native.products.gemm": "rlx.matmul rlx.fused_matmul_bias_act",
        "rlx_cpu.native.products.gemm_epilogue": "rlx.fused_matmul_epilogue rlx.folded_matmul",
        "rlx_cpu.native.products.gemm_integer": "rlx.matmul",
        "rlx_cpu.native.products.gemm_prologue": "rlx.fused_matmul_prologue",
        "rlx_cpu.native.attention.forward": "rlx.attention",
        "rlx_cpu.native.attention.backward": "rlx.attention_backward",
        "rlx_cpu.native.attention.rope": "rlx.rope rlx.rope_backward",
        "rlx_cpu.native.control.emit": "rlx.if rlx.while rlx.scan",
        "rlx_cpu.native.fourier.transforms": "rlx.fft",
        "rlx_cpu.native.indexing.gather": "rlx.gather",
        "rlx_cpu.native.indexing.scatter_rows": "rlx.scatter_add rlx.scatter",
        "rlx_cpu.native.ordering.search": "rlx.search_sorted",
        "rlx_cpu.native.ordering.sort_rows": "rlx.sort rlx.arg_sort rlx.top_k",
        "rlx_cpu.native.scans.positions": "rlx.arg_max rlx.arg_min",
        "rlx_cpu.native.scans.running_rows": (
            "rlx.cumsum rlx.cumprod rlx.cummax rlx.cummin rlx.linear_recurrence rlx.cum_log_sum_exp"
        ),
        "rlx_cpu.native.systems.solve": "rlx.dense_solve rlx.batched_dense_solve",
    }
)
"""The modules of native kernels."""

native = NativeTable(MODULES)
"""The rows of this package."""


@define(eq=False, slots=False)
class NativeMeaning:
    """The function of a native row: computes the step by the op's NumPy implementation, and has its emitter."""

    emit: Emit = field(repr=False)

    @property
    def __name__(self) -> str:
        return getattr(self.emit, "__name__", "kernel")

    def __call__(self, op: Any, *operands: np.ndarray | None, out: Any, workspace: Any) -> None:
        results = as_results(op(*operands))
        for place, result in zip(as_results(out), results, strict=True):
            np.copyto(place, result, casting="unsafe")


def is_native(kernel: str) -> bool:
    """Return whether a kernel's name is that of a native row, of this package or of another one."""
    return _NATIVE.match(kernel) is not None


def is_external(kernel: str) -> bool:
    """Return whether the name of a native row is that of another package's."""
    return not kernel.startswith(PREFIX)


def adopted(row: Kernel, is_native_here: bool) -> Kernel | None:
    """Return another package's row for this target: native code if it is a native row, else a NumPy function.

    Without a native tier a native row is omitted: its function is no better than the other rows for its op.
    """
    if isinstance(row.run, NativeMeaning):
        return evolve(row, name=f"{row.plugin}.{row.name}", tier="native") if is_native_here else None
    return evolve(row, tier=None) if row.tier == "native" else row


@frozen
class ProgramEmitters:
    """The emitters of a program: this package's by name, those of others from the rows of the target."""

    builtin: NativeTable
    kernels: KernelTable

    def emitter(self, kernel: str) -> Emit | None:
        """See `NativeTable.emitter`."""
        if not is_external(kernel):
            return self.builtin.emitter(kernel)
        run = self.kernels.get(kernel).run
        return run.emit if isinstance(run, NativeMeaning) else None

    def sized(self, kernel: str) -> EmitSized | None:
        """See `NativeTable.sized`; kernels of others are made for each size."""
        return None if is_external(kernel) else self.builtin.sized(kernel)
