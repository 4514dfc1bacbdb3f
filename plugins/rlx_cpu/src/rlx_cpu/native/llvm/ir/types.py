"""Types of LLVM's language, and how their numbers are spelt."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final


class Type:
    """A type; two that are spelt alike are the same."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Type) and self.text == other.text)

    def __hash__(self) -> int:
        return hash(self.text)

    def number(self, value: Any) -> str:
        """A Python number as a constant of this type."""
        raise AssertionError(f"no number is of type {self.text}")


class IntType(Type):
    __slots__ = ("width",)

    def __init__(self, width: int) -> None:
        super().__init__(f"i{width}")
        self.width = width

    def number(self, value: Any) -> str:
        return str(int(value))


class HalfType(Type):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("half")

    def number(self, value: Any) -> str:
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04x}"


class FloatType(Type):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("float")

    def number(self, value: Any) -> str:
        # A float is spelt as the double that it is.
        return _double(struct.unpack("<f", struct.pack("<f", value))[0])


class DoubleType(Type):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("double")

    def number(self, value: Any) -> str:
        return _double(value)


def _double(value: float) -> str:
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016x}"


class PointerType(Type):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("ptr")


class VoidType(Type):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("void")


class VectorType(Type):
    __slots__ = ("count", "element")

    def __init__(self, element: Type, count: int) -> None:
        super().__init__(f"<{count} x {element.text}>")
        self.element = element
        self.count = count


class ArrayType(Type):
    __slots__ = ("count", "element")

    def __init__(self, element: Type, count: int) -> None:
        super().__init__(f"[{count} x {element.text}]")
        self.element = element
        self.count = count


class FunctionType(Type):
    __slots__ = ("args", "result")

    def __init__(self, result: Type, args: Sequence[Type]) -> None:
        super().__init__(f"{result.text} ({', '.join(a.text for a in args)})")
        self.result = result
        self.args = tuple(args)


BIT: Final = IntType(1)
POINTER: Final = PointerType()
