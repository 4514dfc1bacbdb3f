"""Arguments and results of an emitter of native code: the only interface between kernels and the program runtime.

An emitter adds one function to an LLVM module:

    void name(i8** buffers, i64 tid, i64 nthreads)

`buffers` contains a pointer for every operand in order (null for an absent one), then for every result, then the workspace,
then one for each pack and each hoisted operand, then the status words; the last four only if they were requested. Pointers of
strided views point to their first element. The function is called `nthreads` times with every `tid` below, by the threads in
any order; the runtime puts a barrier after each step, none inside one. A call computes its part of the kernel's work, and the
partition must not change any bit of the result: reductions combine in an order that depends only on the shapes.

If the work should be split into more parts than there are threads, `Emitted.parts` is set and the function takes a fourth
argument:

    void name(i8** buffers, i64 part, i64 parts, i64 thread)

Scratch memory then belongs to the thread, not to the part. A function of an op with nested graphs takes a fifth argument, the
address of the team of waiting threads (`llvm.team`; 0 if there are none), and sets `Emitted.shares`.

A dynamic-shape function (`SizedForm`) reads its run-time sizes from memory in front of `buffers`, the first word nearest.

The only guaranteed alignment is the element size: arena slots, packs and workspaces start at multiples of 64 bytes, arrays of
callers do not. Every load and store states its alignment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
from attrs import field
from numpy.lib.stride_tricks import as_strided

from rlx_core.codegen.places import Fault, Layout
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.graph import Node
from rlx_core.ir.lir import Step
from rlx_core.run.memory import allocate
from rlx_core.system.records import evolve, frozen
from rlx_cpu import native

if TYPE_CHECKING:
    from rlx_cpu.native.llvm import ir
    from rlx_cpu.native.llvm.isa import Isa

ALIGNMENT = 64
"""Bytes to which workspaces and packs are aligned: a cache line, and the widest vector."""

MOST_PARTS = 64
"""Maximum number of parts of a step, and thus of threads of a program: claimed parts are bits of one word."""


MAX_COPY_NBYTES: Final = 1 << 17
"""Bytes of the dense copies through which strided operands are packed: they stay in L2, and the heap keeps none of them."""


def aligned(nbytes: int) -> int:
    """Return `nbytes` rounded up to a multiple of the alignment."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


@frozen
class OperandView:
    """The view of a loop's operand that is read by a step inside the loop.

    Attributes:
        shape, strides, offset: Layout in bytes from the operand's first element.
        rounds: Number of leading axes that are loop iterations, each of which has a separate pack.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    rounds: int = 0

    @property
    def count(self) -> int:
        """Number of packs."""
        return prod(self.shape[: self.rounds])

    def has_columns_first(self, array: np.ndarray) -> bool:
        """Whether it is a matrix, each of whose columns has the elements at one place on the first axis of an operand."""
        is_matrix = len(self.shape) == 2 and not self.rounds and not self.offset and array.ndim > 0
        return is_matrix and self.shape[1] == len(array) and self.strides[1] * len(array) == array.nbytes

    def of(self, array: np.ndarray) -> np.ndarray:
        """Return the view of an operand with a dense layout; of one with strides, the view of a dense copy."""
        start = np.ascontiguousarray(array).reshape(-1).view(np.uint8)[self.offset :].view(array.dtype)
        return as_strided(start, self.shape, self.strides, writeable=False)


@frozen
class Pack:
    """An operand in another arrangement, made once when parameters are bound.

    Attributes:
        operand: Index of the operand; its place `is_bound`.
        nbytes: Bytes of the packed buffer.
        form: Its arrangement: a name in `packs.FORMS`, because a cached kernel comes without its emitter.
        sizes: The numbers of that form.
        replaces: Whether the kernel reads the packed buffer alone, so that the operand itself is not touched in a run.
        view: The part of the operand that is packed; all of it by default.
    """

    operand: int
    nbytes: int
    form: str
    sizes: tuple[int, ...]
    replaces: bool = True
    view: OperandView | None = None

    @property
    def capacity(self) -> int:
        """Bytes to set aside, so that what follows is aligned too."""
        return aligned(self.nbytes) * (1 if self.view is None else self.view.count)

    def pack(self, array: np.ndarray, place: np.ndarray | None = None) -> np.ndarray:
        """Return the operand (strided, if `place` is) as packed bytes that start at a multiple of `ALIGNMENT`.

        Args:
            array: The operand.
            place: Destination; by default newly allocated memory.
        """
        nbytes = self.nbytes if self.view is None else self.capacity
        packed = allocate(nbytes, ALIGNMENT) if place is None else place[:nbytes]
        if self.view is None:
            native.packs.FORMS[self.form](array, self.sizes, packed)
            return packed
        if not array.flags.c_contiguous and self.view.has_columns_first(array):
            self._pack_copies(array, self.view, packed)
            return packed
        seen, stride = self.view.of(array), aligned(self.nbytes)
        for number, round_ in enumerate(np.ndindex(*self.view.shape[: self.view.rounds])):
            native.packs.FORMS[self.form](seen[round_], self.sizes, packed[number * stride :][: self.nbytes])
        return packed

    def _pack_copies(self, array: np.ndarray, view: OperandView, packed: np.ndarray) -> None:
        """Pack a strided operand through dense copies of a few panels, instead of a copy of all of it."""
        by_column, packed_by_column = view.strides[1], self.nbytes // sum(self.sizes)
        most, column, number = max(1, MAX_COPY_NBYTES // by_column), 0, 0
        while number < len(self.sizes):
            widths = [self.sizes[number]]
            while number + len(widths) < len(self.sizes) and sum(widths) + self.sizes[number + len(widths)] <= most:
                widths.append(self.sizes[number + len(widths)])
            part, end = array[column : column + sum(widths)], column + sum(widths)
            matrix = evolve(view, shape=(view.shape[0], len(part))).of(part)
            place = packed[column * packed_by_column : end * packed_by_column]
            native.packs.FORMS[self.form](matrix, tuple(widths), place)
            column, number = end, number + len(widths)


@frozen
class HoistedPack:
    """An operand in another arrangement, made by native code before the first round of the loop that its step is in.

    Attributes:
        operand: Index of the operand; its place `is_held`.
        nbytes: Bytes of the packed buffer.
        function: The function that packs it: called as the step's own function, over parts.
    """

    operand: int
    nbytes: int
    function: str


STATUS_LEFT: Final = -1
"""The first status word of a loop that ended because a signal's handler raised."""

NO_NUMBER: Final = (1 << 63) - 1
"""The second status word before a fault, so that threads that store the lowest number they meet need not know of each other."""

STATUS_ASK, STATUS_RECORD = 16, 24
"""Bytes to the status words by which a loop asks."""


@frozen
class Emitted:
    """The result of an emitter, as data: an object cache stores it with the code.

    Attributes:
        function: The name of the function in the module.
        packs: Operands that are packed when they are bound.
        held: Operands that are packed before a loop; they follow the packs in the buffers.
        workspace: Scratch bytes for each thread; thread `tid` owns `workspace + shared_stride + tid * workspace_stride`, both
            rounded up to multiples of `ALIGNMENT`. Contents do not survive the step.
        shared_workspace: Scratch bytes for all threads together, at the beginning.
        fault: What to raise for an offending number, if the function reports run-time faults: the last buffer is then
            `i64[4]`. The first word is 0 and the second `NO_NUMBER` until a fault; the function then stores the number into
            the second, and 1, or the kind that it is among the fault's `kinds`, into the first.
        polls: Whether the function polls for signals and returns early if a handler raises. The last buffer is then status
            words too; the third is the address of a function that is called with the fourth as its argument (0: none). If it
            returns 1, the kernel stores `STATUS_LEFT` into the first word and returns.
        uses_threads: Whether splitting over threads helps; if not, one thread executes it all.
        shares: Whether that thread shares nested steps with the waiting threads.
        parts: The preferred number of parts (at most 64), for dynamic load balancing; 0 for one per thread.
        prologue: A function that is called in the same way before, with a barrier in between: it packs operands that all parts
            read.
        notes: Choices for reports (tile shapes, for example): numbers and words.
        foreign: Symbols of functions of other libraries that it calls, each with the name that loads its address.
        flops: Estimated operations of a loop kernel on one element; `None` for other kernels.
        words: Sizes that are passed in every call, as text, in the order of their words in memory (`llvm.sizes`).
    """

    function: str
    packs: tuple[Pack, ...] = ()
    held: tuple[HoistedPack, ...] = ()
    workspace: int = 0
    shared_workspace: int = 0
    fault: Fault | None = None
    polls: bool = False
    uses_threads: bool = True
    shares: bool = False
    parts: int = 0
    prologue: str | None = None
    notes: Mapping[str, Any] = field(factory=dict)
    flops: int | None = field(default=None, repr=False)
    words: tuple[str, ...] = field(default=(), repr=False)
    foreign: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def has_status(self) -> bool:
        """Whether the function reports run-time faults, or that it was left."""
        return self.fault is not None or self.polls

    @property
    def has_workspace(self) -> bool:
        return self.workspace > 0 or self.shared_workspace > 0

    @property
    def workspace_stride(self) -> int:
        """Bytes from one thread's workspace to the next."""
        return aligned(self.workspace)

    @property
    def shared_stride(self) -> int:
        """Bytes in front of the threads' workspaces."""
        return aligned(self.shared_workspace)


@frozen
class BufferPositions:
    """Positions of addresses in the `buffers` of a step's function, in the order of the convention above.

    Attributes:
        first: Position of the first operand; the other operands and the results follow.
        workspace, status, arena: `None` for a function without one; nested graphs have an arena.
        packs: Positions of the packs, then of the hoisted operands.
        end: Position after the last address.
    """

    first: int
    workspace: int | None
    packs: range
    status: int | None
    arena: int | None
    end: int

    @classmethod
    def of(
        cls, node: Node, first: int = 0, *, has_workspace: bool, packs: int, has_status: bool, has_arena: bool
    ) -> BufferPositions:
        """Return the positions for a step's node, its first operand at `first`."""
        workspace = first + len(node.operands) + len(node.results)
        start = workspace + has_workspace
        status = start + packs
        arena = status + has_status
        return cls(
            first, workspace if has_workspace else None, range(start, status), status if has_status else None,
            arena if has_arena else None, arena + has_arena,
        )  # fmt: skip

    @classmethod
    def of_step(cls, step: Step, emitted: Emitted, first: int) -> BufferPositions:
        """Return the positions for an emitted function, its first operand at `first`."""
        return cls.of(
            step.node, first, has_workspace=emitted.has_workspace, packs=len(emitted.packs) + len(emitted.held),
            has_status=emitted.has_status, has_arena=bool(step.nested) and step.workspace is not None,
        )  # fmt: skip


class Emit(Protocol):
    """An emitter: adds the function `name` (and private helpers whose names start with it) to `module`."""

    def __call__(self, module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted: ...


EmitStep = Callable[[str, Step, Layout], Emitted]
"""Adds the function of a step of a graph inside another step, under a name, to the module."""


@frozen(eq=False)
class EmitNested:
    """The emitter of steps that hold graphs: it is given their plans too, and how the functions of their steps are added.

    Attributes:
        emit: As `Emit`, with the plans by attribute, the bytes from the step's workspace to theirs, and an `EmitStep`.
    """

    emit: Callable[..., Emitted]

    def __call__(self, module: ir.Module, node: Node, layout: Layout, isa: Isa, name: str) -> Emitted:
        raise AssertionError(f"{node.op.name} is emitted with the plans of its graphs")


@frozen
class Call:
    """The call of a dynamic-shape function for known sizes.

    Attributes:
        sizes: Values of the variables in the size expressions that the function reads.
        workspace, shared_workspace, fault, uses_threads, parts: As in `Emitted`.
    """

    sizes: DimBinding
    workspace: int = 0
    shared_workspace: int = 0
    fault: Fault | None = None
    uses_threads: bool = True
    parts: int = 0


class SizedForm(Protocol):
    """A step of a program with unknown sizes as one function for all of them, as long as its operands lie in one way."""

    @property
    def key(self) -> str:
        """Every input of its code except the instruction set, as text."""

    def call(self, layout: Layout, sizes: DimBinding) -> Call | None:
        """Return the call for these sizes.

        `None` if operands have another layout, or if code for the known size would be faster by more than the stated bound.
        """

    def emit(self, module: ir.Module, name: str) -> Emitted:
        """Add the function to a module, whose `sizes` are the run-time sizes.

        Raises:
            Unsized: No such code exists.
        """


@frozen(eq=False)
class KernelForm:
    """A `SizedForm` as its key and two functions."""

    key: str
    call: Callable[[Layout, DimBinding], Call | None]
    emit: Callable[[ir.Module, str], Emitted]


class EmitSized(Protocol):
    """Finds the form of a step: its node with unknown sizes, where its operands lie for some sizes, and these."""

    def __call__(self, node: Node, layout: Layout, sizes: DimBinding, isa: Isa) -> SizedForm | None: ...
