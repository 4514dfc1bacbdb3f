"""Layouts of operands and results as kernels see them and of a plan's values, and errors of kernels that report a number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_core.contributions.references import import_address
from rlx_core.errors import Fact, FormatError, RlxError
from rlx_core.ir.graph import Constant, Param, Value
from rlx_core.ir.lir import Lir, Step, placement
from rlx_core.ir.strides import WIDEST, Strides, dense_strides, is_dense
from rlx_core.ir.types import TensorType
from rlx_core.system.records import evolve, frozen

__all__ = ["WIDEST", "Fault", "Layout", "Place", "Places", "layout_of", "place_of"]


@frozen(eq=True, cache_hash=True)
class Place:
    """One operand or result.

    Attributes:
        type: Its type, with known dims.
        strides: In bytes, one an axis; 0 where it is broadcast.
        is_bound: Whether it is a parameter or a constant, the same in every run: such an operand may be packed.
        is_held: Whether it is invariant in the loop that contains the step, and so may be packed before the first iteration.
        is_fresh: Whether each iteration of that loop accesses a different part of an array here, which no cache contains yet.
        is_inside: Whether it is in the result already, at the position of `Op.parts`.
        literal: The bytes of the one element that all of it equals, if that is known when code is generated.
        alignment: Bytes of which the first element's address is a multiple; at most `WIDEST` is required.
    """

    type: TensorType
    strides: Strides
    is_bound: bool = False
    is_held: bool = False
    is_fresh: bool = False
    is_inside: bool = False
    literal: bytes | None = None
    alignment: int = WIDEST

    @property
    def is_dense(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        return is_dense(self.type, self.strides)

    @property
    def number(self) -> bool | int | float | None:
        """The element of a literal; `None` for a complex one, of which no register holds both parts."""
        if self.literal is None or self.type.dtype.is_complex:
            return None
        value: bool | int | float = np.frombuffer(self.literal, self.type.dtype.numpy)[0].item()
        return value

    @classmethod
    def dense(cls, type: TensorType) -> Place:
        """Return a separate row-major buffer."""
        return cls(type, dense_strides(type))


@frozen(eq=True)
class Layout:
    """The layout of a step's operands and results. Equal ops with equal layouts share one function."""

    operands: tuple[Place | None, ...]
    results: tuple[Place, ...]

    def required(self, *positions: int) -> tuple[Place, ...]:
        """Return the places of operands that the op requires, by their positions; all operands by default."""
        places = [self.operands[i] for i in positions] if positions else self.operands
        assert all(place is not None for place in places), "an op has the operands that it requires"
        return tuple(place for place in places if place is not None)


class Places:
    """The layouts of the values of a plan; each value is looked up once, although several steps read it.

    Args:
        lir: The plan.
    """

    def __init__(self, lir: Lir) -> None:
        self._lir = lir
        self._known: dict[Value, Place] = {}

    def of(self, value: Value) -> Place:
        """Return the layout of a value for its kernel."""
        result = self._known.get(value)
        if result is None:
            result = self._known[value] = place_of(value, self._lir)
        return result

    def layout_of(self, step: Step) -> Layout:
        """Return the layouts of the operands and results of a step."""
        node = step.node
        operands = [None if v is None else self.of(v) for v in node.operands]
        for number in self._lir.parts_in(node):
            place = operands[number]
            assert place is not None, "what lies in a result is there"
            operands[number] = evolve(place, is_inside=True)
        return Layout(tuple(operands), tuple([self.of(v) for v in node.results]))


def place_of(value: Value, lir: Lir) -> Place:
    """Return the layout of a value for its kernel; the value of a one-element constant becomes part of the kernel."""
    place = placement(value, lir.aliases)
    op = place.root.node.op
    is_bound = isinstance(op, Constant | Param) and place.root not in lir.donated
    literal = op.value.array.tobytes() if isinstance(op, Constant) and op.value.array.size == 1 else None
    return Place(value.type, place.strides, is_bound, literal=literal)


def layout_of(step: Step, lir: Lir) -> Layout:
    """Return the layouts of the operands and results of a step."""
    return Places(lir).layout_of(step)


@frozen
class Fault:
    """The error to raise for the number that a kernel reported.

    Attributes:
        message: With `{}` for the number; with `dims`, one for each of them.
        error: The class, as `module:name`.
        dims: If set, the number is the position of an element in an array of this shape, in row-major order, and is shown as
            indices.
        facts: Facts of the error, by label; each in the form of `message`, its fields numbered.
        hint: Hint of the error.
        alternatives: For a function with several kinds of faults: the faults whose first status word is 2, 3 and so on.
    """

    message: str
    error: str = "rlx_core.errors:IndexRangeError"
    dims: tuple[int, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    hint: str | None = None
    alternatives: tuple[Fault, ...] = ()

    @classmethod
    def among(cls, faults: Sequence[Fault]) -> Fault | None:
        """Return the faults of several functions as one function's, if there are any; they have no alternatives themselves."""
        return evolve(faults[0], alternatives=tuple(faults[1:])) if faults else None

    @property
    def kinds(self) -> tuple[Fault, ...]:
        """The faults by the first status word, from 1 on."""
        return (evolve(self, alternatives=()), *self.alternatives)

    def __call__(self, number: int | None, place: int | None = None) -> RlxError:
        """The exception to raise.

        Args:
            number: `None` where it is not known.
            place: The number of the point at which the kernel met it, where kernels say so.
        """
        arguments: tuple[object, ...]
        if number is None:
            arguments = ("(not known)",) * (len(self.dims) or 1)
        else:
            arguments = tuple(map(int, np.unravel_index(number, self.dims))) if self.dims else (number,)
        error = self.of(*arguments)
        return error if place is None else error.with_fact(Fact("place", f"point {place} of the kernel"))

    def of(self, *numbers: object) -> RlxError:
        """The exception to raise for what goes into the fields of the message."""
        facts = (Fact(label, template.format(*numbers)) for label, template in self.facts)
        return _class_of(self.error)(self.message.format(*numbers), *facts, hint=self.hint)


def _class_of(address: str) -> type[RlxError]:
    """The class of an error; `RlxError` where its package is not installed, as packaged programs do without those of ops.

    Raises:
        FormatError: There is no such class of errors.
    """
    try:
        error_class = import_address(address)
    except ModuleNotFoundError:
        return RlxError
    except AttributeError:
        error_class = None
    if not (isinstance(error_class, type) and issubclass(error_class, RlxError)):
        raise FormatError(f"fault: {address} is no class of errors of rlx")
    return error_class
