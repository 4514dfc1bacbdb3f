"""Device code of a step as data: functions in the device's language, and their launches.

An emitter creates it from the node and the layout of its operands and results; equal ops at equal offsets in their
buffers give equal functions, which are built once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from attrs import field

from rlx_core.codegen.loops import Kernel
from rlx_core.codegen.places import Fault, Layout, Place
from rlx_core.ir.dtypes import DType
from rlx_core.ir.graph import Node
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.backend import Level
from rlx_core.system.records import frozen


@frozen
class Function:
    """A function of a module: its unique name and its text; `parts` are functions that it calls, by name."""

    name: str
    text: str
    parts: tuple[tuple[str, str], ...] = ()


@frozen
class Call:
    """One launch of a function.

    Attributes:
        function: Its name.
        groups, group_size: The number of groups, and of threads in each.
        buffers: Its arguments, by number: the step's operands, then its results, then its workspaces.
        faults: Faults that its sites report; with any, it gets the status words and the number of the first site.
        places: Layouts of the elements of each buffer, if `function` is in the device's library and takes them as arguments.
        run: Such a function: it gets the library's module and an array of the device for each buffer.
        may_wait: Whether it may wait or allocate, so that it is submitted by itself and nothing is recorded around it.
        dynamic_nbytes: Memory that the threads of a group share in addition to the function's static shared memory.
    """

    function: str
    groups: int
    group_size: int
    buffers: tuple[int, ...]
    faults: tuple[Fault, ...] = ()
    places: tuple[Place, ...] = ()
    run: Callable[..., None] | None = field(default=None, eq=False)
    may_wait: bool = False
    dynamic_nbytes: int = 0


@frozen
class Emitted:
    """The device code of a step.

    Attributes:
        functions: The functions that its calls launch.
        calls: In order.
        workspaces: Bytes of memory that the calls share and that are unused afterwards.
    """

    functions: tuple[Function, ...]
    calls: tuple[Call, ...]
    workspaces: tuple[int, ...] = ()

    @classmethod
    def joined(cls, parts: Iterable[Emitted], workspaces: tuple[int, ...] = ()) -> Emitted:
        """Return the calls of several parts, one part after the other, with each function once.

        Args:
            workspaces: The workspaces that the calls of all parts share.
        """
        parts = tuple(parts)
        functions = {function.name: function for part in parts for function in part.functions}
        return cls(tuple(functions.values()), tuple(call for part in parts for call in part.calls), workspaces)

    @property
    def is_library(self) -> bool:
        """Whether it calls the device's library."""
        return any(call.places for call in self.calls)

    @property
    def may_wait(self) -> bool:
        """Whether a call may wait or allocate, so that the step is submitted by itself."""
        return any(call.may_wait for call in self.calls)


def library_call(name: str, layout: Layout, run: Callable[..., None]) -> Emitted:
    """A function that calls the device's library, given its module, the operands of a step and then its results."""
    places = [(i, p) for i, p in enumerate((*layout.operands, *layout.results)) if p is not None]
    buffers, placed = tuple(i for i, _ in places), tuple(p for _, p in places)
    return Emitted((), (Call(name, 1, 1, buffers, (), placed, run, may_wait=True),))


Emit = Callable[[Node, Layout], Emitted]


class Language(Protocol):
    """A device's language: the kernels it has code for, and how it prints a loop kernel and a module.

    Attributes:
        has_one_entry: Whether a module can have one function only that is launched.
    """

    has_one_entry: bool = False

    @property
    def level(self) -> Level:
        """The name of the language for `emit`."""

    @property
    def identity(self) -> str:
        """Everything except the source that determines the compiler's output: the version of the language, options."""

    def refusal(self, op: Op, types: tuple[TensorType | None, ...]) -> str | None:
        """Return the reason why an op on such operands is no kernel of this language, after "needs …"; `None` if it is one."""

    def lacking(self, dtype: DType) -> str | None:
        """Return the reason why elements of a dtype cannot be accessed, after "needs …"; `None` if they can."""

    def loop(self, kernel: Kernel) -> Emitted:
        """A loop kernel; the buffers of its calls are numbered as those of the kernel."""

    def module(self, functions: Sequence[Function]) -> str:
        """Return a source with some functions."""
