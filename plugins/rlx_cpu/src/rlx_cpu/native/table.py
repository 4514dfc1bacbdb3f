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
from typing import Any, Final, TypeVar, Unpack

from attrs import evolve

from rlx_core.ir.graph import Node
from rlx_core.ir.op import Op, OpModules
from rlx_core.pipeline.kernels import Emitting, Kernel, KernelTable, TraitWords, emitter_of
from rlx_cpu.native.contract import Emit, EmitSized
from rlx_cpu.tier import reason_without

PREFIX = "native_"
_NATIVE = re.compile(rf"([a-z][a-z0-9_-]*\.)?{PREFIX}")
STEP_BACK = 100
"""Reduction of the NumPy rows' priority. Native rows have priority 0, so a plugin's row of higher priority precedes them."""

_F = TypeVar("_F", bound=Callable[..., Any])
_Op = TypeVar("_Op", bound=Op)


class NativeTable(KernelTable):
    """A kernel table whose rows are emitters.

    Args:
        filled_by: The module that registers them all, imported when a row is first requested: a program whose code is
            cached needs none. It allows the table to be imported without llvmlite; the table then has no rows. Or the modules
            that register them, imported by the ops of a program.
    """

    def __init__(self, filled_by: str | OpModules | None = None) -> None:
        super().__init__("cpu", plugin="cpu", more=self._imported)
        self._modules = OpModules({filled_by: "Op"}) if isinstance(filled_by, str) else filled_by

    def _imported(self, op: type[Op] | None) -> tuple[Kernel, ...]:
        """Import the modules of an op, which register their rows."""
        if self._modules is not None and reason_without() is None:
            self._modules.load(op)
        return ()

    def register(
        self, *ops: type[Op], name: str | None = None, sized: EmitSized | None = None, **traits: Unpack[TraitWords]
    ) -> Callable[[_F], _F]:
        """Register the decorated emitter for each of `ops`; kernels read strided operands unless `traits`, which are those of
        `KernelTable.register`, say otherwise.

        Args:
            name: Without the prefix; the function's own by default.
            sized: Finds the dynamic-shape form.
        """

        def add(emit: _F) -> _F:
            run = Emitting(emit, sized)
            run.__doc__ = emit.__doc__
            all_traits: TraitWords = {"accepts_strides": True, **traits, "tier": "native"}
            self._register(ops, f"{PREFIX}{name or run.__name__}", run, all_traits)
            return emit

        return add

    def before(self, others: Iterable[Kernel], op: type[Op] | None = None) -> Iterator[Kernel]:
        """The native rows, of one op or all, and those of another table that step back behind them."""
        yield from self if op is None else self.candidates(op)
        yield from (evolve(kernel, priority=kernel.priority - STEP_BACK) for kernel in others)


MODULES: Final = OpModules(
    {
        "rlx_cpu.native.loops.rows": "Op",
        "rlx_cpu.native.movement.boxes": (
            "rlx.narrow rlx.expand rlx.transpose rlx.diagonal rlx.sliding_windows rlx.full rlx.reshape "
            "rlx.optimization_barrier rlx.concat rlx.flip rlx.roll rlx.tile rlx.repeat rlx.pad"
        ),
        "rlx_cpu.native.movement.windows": "rlx.dynamic_slice rlx.dynamic_update_slice",
        "rlx_cpu.native.products.block_scaled": "rlx.block_scaled_matmul",
        "rlx_cpu.native.products.gemm": "rlx.matmul rlx.fused_matmul_bias_act",
        "rlx_cpu.native.products.gemm_epilogue": "rlx.fused_matmul_epilogue rlx.folded_matmul",
        "rlx_cpu.native.products.gemm_integer": "rlx.matmul",
        "rlx_cpu.native.products.gemm_prologue": "rlx.fused_matmul_prologue",
        "rlx_cpu.native.products.grouped": "rlx.fused_grouped_matmul",
        "rlx_cpu.native.attention.attention_rows": "rlx.attention rlx.attention_backward rlx.quantized_attention",
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


def op_of(node: Node, kind: type[_Op]) -> _Op:
    """Return the op of a node, of the class that a row is registered for."""
    assert isinstance(node.op, kind), f"registered for {kind.__name__} alone"
    return node.op


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
    if emitter_of(row.run) is not None:
        return evolve(row, name=f"{row.plugin}.{row.name}", tier="native") if is_native_here else None
    return evolve(row, tier=None) if row.tier == "native" else row


def emitter_in(kernels: KernelTable, kernel: str) -> Emit | None:
    """The emitter of a kernel by its full name; `None` for a kernel that is not native."""
    emit: Emit | None = emitter_of(kernels.get(kernel).run)
    return emit


def sized_in(kernels: KernelTable, kernel: str) -> EmitSized | None:
    """The function that finds a kernel's dynamic-shape forms; `None` for a kernel that is compiled for each size, as those of
    other packages are."""
    run = kernels.get(kernel).run
    return None if is_external(kernel) or not isinstance(run, Emitting) else run.sized
