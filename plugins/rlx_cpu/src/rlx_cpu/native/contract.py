"""What an emitter of native code is given and what it gives back: the one interface between kernels and the program runtime.

An emitter adds one function to an LLVM module:

    void name(i8** buffers, i64 tid, i64 nthreads)

`buffers` holds a pointer for every operand in order (null for an absent one), then for every result, then the workspace,
then one for each pack, then the status words, the last three only if they were asked for. Pointers of strided views point at
their first element. All `nthreads` threads call it with their own `tid`; the runtime puts a barrier after each step, none
inside one. A thread works on its part of whatever the kernel is split into, and the split must not change a bit of the
result: reductions combine in an order that depends on the shapes alone.

Nothing may be assumed of alignment beyond the element size: arena slots, packs and workspaces start at multiples of
64 bytes, arrays of callers do not. Every load and store says its alignment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from attrs import field, frozen

from rlx_core.ir.graph import Node
from rlx_core.ir.strides import Strides, dense_strides, is_dense
from rlx_core.ir.types import TensorType

if TYPE_CHECKING:
    from llvmlite import ir

    from rlx_cpu.native.isa import Isa

__all__ = ["ALIGNMENT", "Emit", "Emitted", "Layout", "Pack", "Place"]

ALIGNMENT = 64
"""Bytes to which workspaces and packs are aligned: a cache line, and the widest vector."""


@frozen
class Place:
    """One operand or result as its kernel sees it.

    Attributes:
        type: Its type, with known dims.
        strides: In bytes, one an axis; 0 where it is broadcast.
        is_bound: Whether it is a parameter or a constant, the same in every run: such an operand may be packed.
        literal: The bytes of the one element that all of it is, where that is known when the kernel is emitted.
    """

    type: TensorType
    strides: Strides
    is_bound: bool = False
    literal: bytes | None = None

    @property
    def is_dense(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        return is_dense(self.type, self.strides)

    @property
    def number(self) -> bool | int | float | complex | None:
        """The element of a literal."""
        if self.literal is None:
            return None
        found: bool | int | float | complex = np.frombuffer(self.literal, self.type.dtype.numpy)[0].item()
        return found

    @classmethod
    def dense(cls, type: TensorType) -> Place:
        """A row-major buffer of its own."""
        return cls(type, dense_strides(type))


@frozen
class Layout:
    """Where a step's operands and results lie. Equal ops with equal layouts share one function."""

    operands: tuple[Place | None, ...]
    results: tuple[Place, ...]


@frozen(eq=False)
class Pack:
    """An operand in another arrangement, made once when parameters are bound.

    Attributes:
        operand: Which operand; its place `is_bound`.
        nbytes: Bytes of the packed buffer.
        pack: From the operand as an array (strided, if its place is) to the packed elements, of `nbytes` in all.
        replaces: Whether the kernel reads the packed buffer alone, so that the operand itself is not touched in a run.
    """

    operand: int
    nbytes: int
    pack: Callable[[np.ndarray], np.ndarray]
    replaces: bool = True


@frozen(eq=False)
class Emitted:
    """What an emitter made.

    Attributes:
        function: The name of the function in the module.
        packs: Operands that are packed when they are bound.
        workspace: Scratch bytes for each thread; thread `tid` owns `workspace + tid * bytes`, with `bytes` rounded up to
            a multiple of `ALIGNMENT` by `workspace_stride`. Contents do not survive the step.
        shared_workspace: Scratch bytes for all threads together, after those of the last thread.
        has_status: Whether the function reports run-time faults: the last buffer is `i64[4]`. The first word is 0 until a
            fault; the function then stores the offending number into the second and 1 into the first. The third is the
            function's own: 0 when a step begins, and to be left at 0.
        fault: Turns the offending number into the exception to raise.
        uses_threads: Whether splitting over threads helps; if not, only thread 0 is asked.
        notes: Choices worth reporting (tile shapes, say).
    """

    function: str
    packs: tuple[Pack, ...] = ()
    workspace: int = 0
    shared_workspace: int = 0
    has_status: bool = False
    fault: Callable[[int], Exception] | None = None
    uses_threads: bool = True
    notes: Mapping[str, Any] = field(factory=dict)

    @property
    def has_workspace(self) -> bool:
        return self.workspace > 0 or self.shared_workspace > 0

    @property
    def workspace_stride(self) -> int:
        """Bytes from one thread's workspace to the next."""
        return -(-self.workspace // ALIGNMENT) * ALIGNMENT


class Emit(Protocol):
    """An emitter: adds the function `name` (and private helpers whose names start with it) to `module`."""

    def __call__(self, module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted: ...
