"""Where operands and results lie, as a kernel sees them, and what a kernel that stopped at a number has to say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_core.contributions.references import import_address
from rlx_core.errors import Fact, FormatError, RlxError
from rlx_core.ir.forms import Json, need, optional, pair
from rlx_core.ir.strides import WIDEST, Strides, dense_strides, is_dense
from rlx_core.ir.types import TensorType
from rlx_core.system.records import evolve, frozen

__all__ = ["WIDEST", "Fault", "Layout", "Place"]


@frozen(eq=True, cache_hash=True)
class Place:
    """One operand or result.

    Attributes:
        type: Its type, with known dims.
        strides: In bytes, one an axis; 0 where it is broadcast.
        is_bound: Whether it is a parameter or a constant, the same in every run: such an operand may be packed.
        is_held: Whether it is the same in every round of the loop that the step is in, and so may be packed before the first.
        is_fresh: Whether each round of that loop has a part of its own of an array here, which no cache holds yet.
        is_inside: Whether it lies in the result already, where `Op.parts` has it.
        literal: The bytes of the one element that all of it is, where that is known when code is made.
        alignment: Bytes that the first element lies at a multiple of; no more than `WIDEST` is asked.
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
        found: bool | int | float = np.frombuffer(self.literal, self.type.dtype.numpy)[0].item()
        return found

    @classmethod
    def dense(cls, type: TensorType) -> Place:
        """A row-major buffer of its own."""
        return cls(type, dense_strides(type))


@frozen(eq=True)
class Layout:
    """Where a step's operands and results lie. Equal ops with equal layouts share one function."""

    operands: tuple[Place | None, ...]
    results: tuple[Place, ...]


@frozen
class Fault:
    """What to raise for the number that a kernel stopped at.

    Attributes:
        message: With `{}` where the number goes; with `dims`, with one for each of them.
        error: The class, as `module:name`.
        dims: The number is the place of an element in an array of this shape, in row-major order, and is said by its indices.
        facts: Of the error, by label; each in the form of `message`, its fields numbered.
        hint: As the class takes it.
        alternatives: Of a function that meets several kinds: what is meant where the first status word is 2, 3 and so on.
    """

    message: str
    error: str = "rlx_core.errors:IndexRangeError"
    dims: tuple[int, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    hint: str | None = None
    alternatives: tuple[Fault, ...] = ()

    @classmethod
    def among(cls, faults: Sequence[Fault]) -> Fault | None:
        """Those of several functions as one function's, if there are any; they have no alternatives of their own."""
        return evolve(faults[0], alternatives=tuple(faults[1:])) if faults else None

    @classmethod
    def from_json(cls, form: Json) -> Fault:
        """The fault that `attrs.asdict` wrote.

        Raises:
            FormatError: It is none.
        """
        further = need(need(form, dict, "a fault").get("alternatives"), list, "alternatives")
        return evolve(cls._one(form), alternatives=tuple(map(cls._one, further)))

    @classmethod
    def _one(cls, form: Json) -> Fault:
        """A fault without its alternatives."""
        row = need(form, dict, "a fault")
        pairs = (pair(each, "a fact") for each in need(row.get("facts"), list, "facts"))
        return cls(
            need(row.get("message"), str, "a message"),
            need(row.get("error"), str, "a class"),
            tuple(need(each, int, "a size") for each in need(row.get("dims"), list, "sizes")),
            tuple((need(label, str, "a label"), need(found, str, "a fact")) for label, found in pairs),
            optional(row.get("hint"), str, "a hint"),
        )

    @property
    def kinds(self) -> tuple[Fault, ...]:
        """What the first status word means from 1 on."""
        return (evolve(self, alternatives=()), *self.alternatives)

    def __call__(self, number: int | None, place: int | None = None) -> RlxError:
        """The exception to raise.

        Args:
            number: `None` where it is not known.
            place: The number of the point at which the kernel met it, where kernels say so.
        """
        said: tuple[object, ...]
        if number is None:
            said = ("(not known)",) * (len(self.dims) or 1)
        else:
            said = tuple(map(int, np.unravel_index(number, self.dims))) if self.dims else (number,)
        error = self.of(*said)
        return error if place is None else error.with_fact(Fact("place", f"point {place} of the kernel"))

    def of(self, *numbers: object) -> RlxError:
        """The exception to raise for what goes into the fields of the message."""
        facts = (Fact(label, found.format(*numbers)) for label, found in self.facts)
        return _class_of(self.error)(self.message.format(*numbers), *facts, hint=self.hint)


def _class_of(address: str) -> type[RlxError]:
    """The class of an error; `RlxError` where its package is not installed, as packaged programs do without those of ops.

    Raises:
        FormatError: There is no such class of errors.
    """
    try:
        found = import_address(address)
    except ModuleNotFoundError:
        return RlxError
    except AttributeError:
        found = None
    if not (isinstance(found, type) and issubclass(found, RlxError)):
        raise FormatError(f"fault: {address} is no class of errors of rlx")
    return found
