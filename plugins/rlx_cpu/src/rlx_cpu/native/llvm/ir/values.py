"""Values: results of instructions, constants, and the two kinds of values that are formatted late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from rlx_cpu.native.llvm.ir.types import POINTER, Type, VectorType

if TYPE_CHECKING:
    from rlx_cpu.native.llvm.ir.functions import Block


class _Undefined:
    """An undefined value."""


Undefined: Final = _Undefined()


class LlvmValue:
    """The result of an instruction, by name."""

    __slots__ = ("text", "type")

    def __init__(self, type: Type, text: str) -> None:
        self.type = type
        self.text = text

    @property
    def typed(self) -> str:
        """The text of an operand with its type."""
        return f"{self.type.text} {self.text}"

    def __repr__(self) -> str:
        return self.typed


class LlvmConstant(LlvmValue):
    """A number, `None` for a null pointer, `Undefined`, or a sequence of numbers or constants for a vector."""

    __slots__ = ("constant",)

    def __init__(self, type: Type, constant: Any) -> None:
        self.constant = constant
        self.type = type
        if constant is Undefined:
            self.text = "undef"
        elif constant is None:
            self.text = "null"
        elif isinstance(type, VectorType):
            self.text = _vector(type, constant)
        else:
            self.text = type.number(constant)


def _vector(type: VectorType, items: Sequence[Any]) -> str:
    assert len(items) == type.count, f"{type} has {type.count} lanes, not {len(items)}"
    first, element = items[0], type.element
    if all(each is first for each in items):
        return f"splat ({element.text} {_element(element, first)})"
    return f"<{', '.join(f'{element.text} {_element(element, each)}' for each in items)}>"


def _element(type: Type, item: Any) -> str:
    return item.text if isinstance(item, LlvmConstant) else type.number(item)


class FunctionArgument(LlvmValue):
    """An argument of a function; it may be named and given attributes before the function's body is built."""

    __slots__ = ("attributes",)

    def __init__(self, type: Type, text: str) -> None:
        super().__init__(type, text)
        self.attributes: list[str] = []

    def named(self, name: str) -> None:
        self.text = f"%{name}"

    def add_attribute(self, attribute: str) -> None:
        self.attributes.append(attribute)


class Phi(LlvmValue):
    """A value that depends on the block that control comes from."""

    __slots__ = ("_edges",)

    def __init__(self, type: Type, text: str) -> None:
        super().__init__(type, text)
        self._edges: list[str] = []

    def add_incoming(self, value: LlvmValue, block: Block) -> None:
        assert value.type == self.type, f"a phi of {self.type}, not {value.type}"
        self._edges.append(f"[ {value.text}, %{block.name} ]")

    def __str__(self) -> str:
        return f"  {self.text} = phi {self.type.text} {', '.join(self._edges)}"


class Alloca(LlvmValue):
    """Memory on the stack.

    Attributes:
        align: In bytes; the type's own if it is not set.
    """

    __slots__ = ("_what", "align")

    def __init__(self, text: str, what: str) -> None:
        super().__init__(POINTER, text)
        self._what = what
        self.align: int | None = None

    def __str__(self) -> str:
        return f"  {self.text} = alloca {self._what}{_aligned(self.align)}"


def _aligned(align: int | None) -> str:
    return "" if align is None else f", align {align}"
