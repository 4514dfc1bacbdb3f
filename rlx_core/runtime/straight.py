"""The fast path of calls, without checks: from a function's arguments to its program's entry, and from the outputs to its result.

A call takes the fast path if it is by position, has the compiled structure, and the entry accepts its leaves. For all other
calls the result is `NotImplemented`; they take the checked path, which converts, copies or reports the error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import numpy as np
import optree
from attrs import field

from rlx_core.ir.array import HostArray
from rlx_core.ir.op import exact
from rlx_core.system.records import define, frozen
from rlx_core.transforms.trace import Leaf
from rlx_core.trees.flatten import Tree

RUNS_BEFORE_ENTRY: Final = 2
"""Checked runs of a program before its entry is created, so that a program that runs once does not pay for one."""


@define(eq=False)
class Door:
    """The entry of the program that ran last, for the weights that are bound now.

    Mutable, because it is closed when weights change and opened again by the next run; one attribute is all of its state, so
    concurrent readers see one program or none.
    """

    entry: Callable[..., Any] | None = None


@frozen(eq=False)
class StraightCall:
    """The fast path of one compiled variant.

    Attributes:
        entry_cell: Holds the entry.
        structure: Structure of the arguments, as a tuple.
        is_flat: Whether each argument is one array.
        inputs: Indices of the leaves that are inputs, in the program's order.
        statics: Leaves that are constants of the program: number, type, and a token that distinguishes the value from all others.
        scalars: Numbers of the inputs without axes: an entry takes arrays alone, and NumPy's scalars are made into such.
        donated: Numbers of the inputs that runs overwrite.
        pack: From the outputs to the result.
        lifted: Arrays that the program reads in addition to the arguments.
        is_plain: Whether the arguments are the entry's inputs as they are.
    """

    entry_cell: Door
    structure: optree.PyTreeSpec
    is_flat: bool
    inputs: tuple[int, ...]
    statics: tuple[tuple[int, type, Any], ...]
    scalars: tuple[int, ...]
    donated: tuple[int, ...]
    pack: Callable[[tuple[Any, ...]], Any]
    lifted: tuple[Any, ...] = ()
    is_plain: bool = field(init=False)

    @is_plain.default
    def _is_plain(self) -> bool:
        return self.is_flat and not (self.scalars or self.donated or self.lifted)

    @classmethod
    def of(
        cls, fast_entry: Door, arguments: Tree, leaves: Sequence[Leaf], results: Tree, donated: Collection[str] = ()
    ) -> StraightCall:
        """The fast path of a function whose arguments' leaves are `leaves`.

        Args:
            donated: The names of the leaves that are donated.
        """
        inputs = tuple(i for i, leaf in enumerate(leaves) if leaf.role == "input")
        statics = tuple(
            (i, type(leaf.static), exact(leaf.static)) for i, leaf in enumerate(leaves) if leaf.role == "static"
        )
        is_flat = not statics and all(child.is_leaf() for child in arguments.structure.children())
        types = [leaves[i].type for i in inputs]
        scalars = tuple(n for n, type in enumerate(types) if type is not None and type.rank == 0)
        overwritten = tuple(n for n, i in enumerate(inputs) if leaves[i].name in donated)
        return cls(fast_entry, arguments.structure, is_flat, inputs, statics, scalars, overwritten, results.packer())

    def call(self, args: tuple[Any, ...]) -> Any:
        """Return the result of a call, or `NotImplemented` for the checked path. Not `__call__`, which takes 0.05 µs longer."""
        entry = self.entry_cell.entry
        if entry is None:
            return NotImplemented
        inputs: Sequence[Any] | None = args if self.is_plain else self._inputs(args)
        if inputs is None:
            return NotImplemented
        outputs = entry(*inputs)
        return NotImplemented if outputs is NotImplemented else self.pack(outputs)

    def _inputs(self, args: tuple[Any, ...]) -> list[Any] | None:
        """The entry's inputs: the leaves of the arguments that it takes; `None` if the checked path has to look at them."""
        inputs = self._leaves(args)
        if inputs is None:
            return None
        for number in self.donated:
            if type(inputs[number]) is not HostArray:
                return None  # the checked path copies arrays that must not be overwritten
        for number in self.scalars:
            if isinstance(inputs[number], np.generic):
                inputs[number] = np.asarray(inputs[number])
        inputs += self.lifted
        return inputs

    def _leaves(self, args: tuple[Any, ...]) -> list[Any] | None:
        """Return the inputs among the leaves of the arguments; `None` if the structure is not the compiled one."""
        if self.is_flat:
            return list(args) if len(args) == len(self.inputs) else None
        tree: Any = args
        try:
            leaves, structure = optree.tree_flatten(tree)
        except RecursionError:
            return None  # the checked path reports the error
        if structure != self.structure:
            return None
        if not self.statics:
            return leaves
        for number, kind, value in self.statics:
            if type(leaves[number]) is not kind or exact(leaves[number]) != value:
                return None
        return [leaves[i] for i in self.inputs]
