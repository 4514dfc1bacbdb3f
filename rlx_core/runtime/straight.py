"""Calls that need no checking: from a function's arguments to its program's entry, and from the outputs to its result.

A call is straight if it is by position, has the structure that was compiled, and the entry takes what is in it. Everything else
is `NotImplemented`, and takes the checked path, which converts, copies or says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import optree

from rlx_core.ir.array import HostArray, donate_together
from rlx_core.ir.op import exact
from rlx_core.system.records import define, frozen
from rlx_core.transforms.trace import Leaf
from rlx_core.trees.flatten import Tree

__all__ = ["RUNS_BEFORE_ENTRY", "Door", "StraightCall"]

RUNS_BEFORE_ENTRY: Final = 2
"""Checked runs of a program before its entry is made: whoever runs it once does not pay for that."""


_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@define(eq=False)
class Door:
    """The entry of the program that ran last, for the weights that are bound now.

    Mutable, because it is closed when weights change and opened again by the next run; one attribute is all of its state, so
    whoever reads it while that happens sees one program or none.
    """

    entry: Callable[..., Any] | None = None


@frozen(eq=False)
class StraightCall:
    """The fast path of one compiled variant.

    Attributes:
        door: Where the entry is.
        structure: That of the arguments, as a tuple.
        is_flat: Whether each argument is one array.
        inputs: Which leaves are inputs, in the order of the program's.
        statics: Leaves that are constants of the program: number, type, and what tells the value from any other.
        has_scalars: Whether some inputs have no axes: an entry takes arrays alone, and NumPy's scalars are made into such.
        donated: Inputs that runs overwrite, by number, with what errors say of them.
        pack: From the outputs to the result.
        lifted: Arrays that the program reads besides the arguments.
    """

    door: Door
    structure: optree.PyTreeSpec
    is_flat: bool
    inputs: tuple[int, ...]
    statics: tuple[tuple[int, type, Any], ...]
    has_scalars: bool
    donated: tuple[tuple[int, str], ...]
    pack: Callable[[tuple[Any, ...]], Any]
    lifted: tuple[Any, ...] = ()

    @classmethod
    def of(
        cls, door: Door, arguments: Tree, leaves: Sequence[Leaf], results: Tree, donated: Mapping[str, str] = _NOTHING
    ) -> StraightCall:
        """The fast path of a function whose arguments' leaves are `leaves`.

        Args:
            donated: The leaves that are donated, by name, each with what errors say of it.
        """
        inputs = tuple(i for i, leaf in enumerate(leaves) if leaf.role == "input")
        statics = tuple(
            (i, type(leaf.static), exact(leaf.static)) for i, leaf in enumerate(leaves) if leaf.role == "static"
        )
        is_flat = not statics and all(child.is_leaf() for child in arguments.structure.children())
        has_scalars = any(leaf.type is not None and leaf.type.rank == 0 for leaf in leaves)
        taken = tuple((n, donated[leaves[i].name]) for n, i in enumerate(inputs) if leaves[i].name in donated)
        return cls(door, arguments.structure, is_flat, inputs, statics, has_scalars, taken, results.packer())

    def __call__(self, args: tuple[Any, ...]) -> Any:
        entry = self.door.entry
        if entry is None:
            return NotImplemented
        given: Sequence[Any] | None = args if self.is_flat else self._inputs(args)
        if given is None:
            return NotImplemented
        if self.has_scalars:
            given = [np.asarray(each) if isinstance(each, np.generic) else each for each in given]
        if self.donated:
            outputs = self._donating(entry, list(given))
        else:
            outputs = entry(*[each._array if type(each) is HostArray else each for each in (*given, *self.lifted)])
        if outputs is NotImplemented:
            return NotImplemented
        return self.pack(tuple([HostArray(each) if type(each) is np.ndarray else each for each in outputs]))

    def _donating(self, entry: Callable[..., Any], given: list[Any]) -> Any:
        """Call an entry that overwrites some of its arguments: arrays that are donated now, and nothing else."""
        if not all(type(given[number]) is HostArray for number, _ in self.donated):
            return NotImplemented  # the checked path copies what may not be overwritten
        arrays = [
            each._array if type(each) is HostArray else each for each in given
        ]  # before one is donated that is there twice
        for number, _ in self.donated:
            arrays[number] = None  # so that nothing else refers to what is donated
        taken = donate_together([given[number] for number, _ in self.donated], [name for _, name in self.donated])
        for (number, _), elements in zip(self.donated, taken, strict=True):
            arrays[number] = elements
        outputs = entry(*arrays)
        if outputs is NotImplemented:
            for number, _ in self.donated:
                given[number].take_back(arrays[number])
        return outputs

    def _inputs(self, args: tuple[Any, ...]) -> Sequence[Any] | None:
        """The inputs among the leaves of the arguments; `None` if these are not those that were compiled."""
        tree: Any = args
        try:
            leaves, structure = optree.tree_flatten(tree)
        except RecursionError:
            return None  # the long way says what is wrong
        if structure != self.structure:
            return None
        if not self.statics:
            return leaves
        for number, kind, value in self.statics:
            if type(leaves[number]) is not kind or exact(leaves[number]) != value:
                return None
        return [leaves[i] for i in self.inputs]
