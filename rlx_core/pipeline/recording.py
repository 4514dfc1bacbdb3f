"""Recorded computations on sizes, so that other sizes need not repeat them.

A computation that runs with `RecordedNumber`s in the place of sizes takes the branches that it takes for their values. The
recording contains its arithmetic, and a guard for each answer that it got: a comparison, or the value itself where C code needed
it. `SizeRecording.compile` returns both as one Python function: for sizes that pass all guards it computes the results by the
same operations. Tracing compilers for Python, such as TorchDynamo, handle symbolic integers in the same way.

Two kinds of answers have no guards. Texts of sizes have none, because they only occur in messages. Hashes of types and layouts
have none, because a recorded number in one has the hash of its expression: such a key is equal to keys with the same expressions
only, so that a cache returns nothing that was computed for plain integers, and later look-ups return nothing recorded.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from rlx_core.ir.dims import DimBinding, RecordedSize, SizeSymbol
from rlx_core.ir.lir import Lir
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.backend import Outline, Program
from rlx_core.system.records import frozen

Number = int | float

_ARITHMETIC: Final[Mapping[str, tuple[str, Callable[[Any, Any], Any]]]] = {
    "add": ("+", operator.add),
    "sub": ("-", operator.sub),
    "mul": ("*", operator.mul),
    "floordiv": ("//", operator.floordiv),
    "truediv": ("/", operator.truediv),
    "mod": ("%", operator.mod),
    "lshift": ("<<", operator.lshift),
    "rshift": (">>", operator.rshift),
    "and": ("&", operator.and_),
    "or": ("|", operator.or_),
    "xor": ("^", operator.xor),
}
_COMPARISONS: Final[Mapping[str, tuple[str, str, Callable[[Any, Any], bool]]]] = {
    "lt": ("<", ">=", operator.lt),
    "le": ("<=", ">", operator.le),
    "gt": (">", "<=", operator.gt),
    "ge": (">=", "<", operator.ge),
    "eq": ("==", "!=", operator.eq),
    "ne": ("!=", "==", operator.ne),
}
_HASHES: Final = ("__hash__", "_hash")
"""The functions that compute the hashes of records and ops."""

_DIVISIONS: Final = ("//", "/", "%")
_SHIFTS: Final = ("<<", ">>")
_NEUTRAL: Final[Mapping[str, tuple[int | None, int | None]]] = {
    "+": (0, 0), "-": (None, 0), "*": (1, 1), "//": (None, 1), "<<": (None, 0), ">>": (None, 0)
}  # fmt: skip
"""Operator → the left and the right operand with which the result is the other operand."""


@frozen(eq=False)
class _Statement:
    """A line of the function: it assigns to `target`, or is a guard without one."""

    text: str
    reads: tuple[str, ...]
    target: str | None = None


class SizeRecording:
    """The operations and the guards of a computation.

    Args:
        count: The number of its sizes, which are the parameters of the function.
    """

    def __init__(self, count: int) -> None:
        self._parameters = [f"s{i}" for i in range(count)]
        self._lines: list[_Statement] = []
        self._numbers: dict[str, RecordedNumber] = {}
        self._guards: dict[str, None] = {}
        self._namespace: dict[str, Any] = {"inf": math.inf, "nan": math.nan}
        self._spelt: dict[int, tuple[Any, str | None]] = {}  # with the object, so that no other gets its identity
        self.is_open = True
        """Whether the computation still runs; after it, recorded numbers are equal to themselves only."""

    def sizes(self, values: Sequence[int]) -> list[RecordedNumber]:
        """Return the sizes for the computation."""
        return [RecordedNumber(self, name, value) for name, value in zip(self._parameters, values, strict=True)]

    @property
    def guards(self) -> tuple[str, ...]:
        """The conditions of other sizes, as Python."""
        return tuple(self._guards)

    def guard(self, text: str, *reads: str) -> None:
        """Require a condition of other sizes."""
        if text not in self._guards:
            self._guards[text] = None
            self._lines.append(_Statement(f"if not {text}: return None", reads))

    def number(self, text: str, value: Number, *reads: str) -> RecordedNumber:
        """Return the result of an operation; equal operations are computed once."""
        result = self._numbers.get(text)
        if result is None:
            result = self._numbers[text] = RecordedNumber(self, self._assign(text, reads), value)
        return result

    def _assign(self, text: str, reads: Sequence[str]) -> str:
        target = f"t{len(self._lines)}"
        self._lines.append(_Statement(f"{target} = {text}", tuple(reads), target))
        return target

    def compile(self, result: object) -> Callable[..., Any]:
        """Return the function of the sizes that computes a result, or returns `None` for sizes that do not pass the guards.

        The recording is empty afterwards.

        Args:
            result: Records, tuples, lists and dicts that contain recorded numbers.
        """
        self.is_open = False
        text = self.expression(result)
        needed = {text}
        lines = [f"    return {text}"]
        for line in reversed(self._lines):
            if line.target is None or line.target in needed:
                needed.update(line.reads)
                lines.append(f"    {line.text}")
        lines.append(f"def recorded({', '.join(self._parameters)}):")
        exec(compile("\n".join(reversed(lines)), "<recorded sizes>", "exec"), self._namespace)
        function: Callable[..., Any] = self._namespace["recorded"]
        for content in (self._lines, self._numbers, self._guards, self._spelt):
            content.clear()  # a cache may contain a key with one of the numbers, and so this object
        return function

    def expression(self, value: Any) -> str:
        """Return a value as Python: a variable, a literal, or a constant of the namespace."""
        text = self._spelling(value)
        if text is not None:
            return text
        if value is None or type(value) in (int, bool, str):
            return repr(value)
        name = f"c{id(value)}"
        self._namespace[name] = value  # which keeps it, and so its identity
        return name

    def _spelling(self, value: Any) -> str | None:
        """Return the variable of a value that contains recorded numbers; `None` for a constant."""
        if type(value) is RecordedNumber:
            return value.name
        known = self._spelt.get(id(value))
        if known is None:
            known = self._spelt[id(value)] = value, self._assigned(value)
        return known[1]

    def _assigned(self, value: Any) -> str | None:
        cls = type(value)
        if isinstance(value, dict):
            parts, form = [*value, *value.values()], "{{{}}}"
        elif isinstance(value, tuple | list):
            parts, form = (
                list(value),
                "[{}]" if cls is list else "({},)" if cls is tuple else f"{self._class(cls)}({{}})",
            )
        elif attrs.has(cls):
            fields = [a for a in attrs.fields(cls) if a.init]
            parts = [getattr(value, a.name) for a in fields]
            form = f"{self._class(cls)}({{}})"
        else:
            return None
        if all(self._spelling(part) is None for part in parts):
            return None
        texts = [self.expression(part) for part in parts]
        if isinstance(value, dict):
            items = [f"{key}: {item}" for key, item in zip(texts[: len(value)], texts[len(value) :], strict=True)]
        elif isinstance(value, tuple | list):
            items = texts
        else:
            items = [f"{a.alias or a.name}={text}" for a, text in zip(fields, texts, strict=True)]
        return self._assign(form.format(", ".join(items)), texts)

    def _class(self, cls: type) -> str:
        self._namespace[f"C{id(cls)}"] = cls
        return f"C{id(cls)}"


class RecordedNumber(RecordedSize):
    """An integer, or a float that was computed from integers, whose operations are recorded.

    It has the class of its value for `isinstance`. It is not a subclass, because C code would read its value unnoticed.
    """

    def __init__(self, recording: SizeRecording, name: str, value: Number) -> None:
        self.recording, self.name, self.value = recording, name, value
        # `size.__index__()` is how rlx reads a size that must be known: the attribute of the instance serves this call only.
        # C code, `range` and `operator.index` call the method of the class.
        vars(self)["__index__"] = self.__pos__

    @property  # type: ignore[misc]  # see above
    def __class__(self) -> type:
        return type(self.value)

    def __hash__(self) -> int:
        if sys._getframe(1).f_code.co_name in _HASHES:  # of a type or a layout that contains it
            return hash((id(self.recording), self.name))
        return hash(self._exactly())

    def called(self, function: Callable[..., Any], numbers: Sequence[Any]) -> Any:
        """See `RecordedSize`."""
        recording, values = self.recording, function(*map(_value, numbers))
        arguments = [recording.expression(number) for number in numbers]
        text = f"{recording.expression(function)}({', '.join(arguments)})"
        if not isinstance(values, tuple):
            return recording.number(text, values, *arguments)
        # A tuple is no number; its elements are.
        parts = recording.number(text, 0, *arguments)
        return tuple([recording.number(f"{parts.name}[{i}]", value, parts.name) for i, value in enumerate(values)])

    def _exactly(self) -> Any:
        """Return the value, which other sizes must have too."""
        if self.recording.is_open:
            self.recording.guard(f"{self.name} == ({self.value!r})", self.name)
        return self.value

    def __index__(self) -> int:
        result: int = self._exactly().__index__()
        return result

    def __int__(self) -> int:
        return int(self._exactly())

    def __float__(self) -> float:
        return float(self._exactly())

    def __bool__(self) -> bool:
        number: Any = self
        return bool(number != 0)

    def __repr__(self) -> str:
        return repr(self.value)

    def __format__(self, form: str) -> str:
        return format(self.value, form)

    def _unary(self, text: str, value: Number) -> RecordedNumber:
        return self.recording.number(text.format(self.name), value, self.name)

    def __pos__(self) -> RecordedNumber:
        return self

    def __neg__(self) -> RecordedNumber:
        return self._unary("-{}", -self.value)

    def __abs__(self) -> RecordedNumber:
        return self._unary("abs({})", abs(self.value))

    def __invert__(self) -> RecordedNumber:
        return self._unary("~{}", ~self.value)  # type: ignore[operator]  # floats have none either

    def __ceil__(self) -> RecordedNumber:
        return self._unary("{}.__ceil__()", self.value.__ceil__())

    def __floor__(self) -> RecordedNumber:
        return self._unary("{}.__floor__()", self.value.__floor__())

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def bit_length(self) -> RecordedNumber:
        """Return `int.bit_length`."""
        return self._unary("{}.bit_length()", self.value.bit_length())  # type: ignore[union-attr]  # floats have none either


def _arithmetic(symbol: str, apply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    neutral = _NEUTRAL.get(symbol, (None, None))

    def operate(left: Any, right: Any) -> Any:
        if not (_is_number(left) and _is_number(right)):
            return NotImplemented
        if type(right) is RecordedNumber and symbol in _SHIFTS:
            right = right._exactly()
        if type(left) is int and left == neutral[0]:
            return right
        if type(left) is RecordedNumber:
            recording = left.recording
            if type(right) is int and right == neutral[1]:
                return left
        elif type(right) is RecordedNumber:
            recording = right.recording
        else:
            return apply(left, right)
        if type(right) is RecordedNumber and symbol in _DIVISIONS:
            recording.guard(f"{right.name} != 0", right.name)
        text = f"{_text(left)} {symbol} {_text(right)}"
        return recording.number(text, apply(_value(left), _value(right)), *_names(left, right))

    return operate


def _comparison(symbol: str, opposite: str, apply: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    def compare(left: RecordedNumber, right: Any) -> Any:
        if left is right:
            return apply(0, 0)
        if not left.recording.is_open or not _is_number(right):
            return NotImplemented
        answer = apply(left.value, _value(right))
        text = f"{left.name} {symbol if answer else opposite} {_text(right)}"
        left.recording.guard(text, *_names(left, right))
        return answer

    return compare


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _text(number: Any) -> str:
    return number.name if type(number) is RecordedNumber else f"({number!r})"


def _value(number: Any) -> Any:
    return number.value if type(number) is RecordedNumber else number


def _names(*numbers: Any) -> list[str]:
    return [number.name for number in numbers if type(number) is RecordedNumber]


def _add_operators() -> None:
    for name, (symbol, apply) in _ARITHMETIC.items():
        operate = _arithmetic(symbol, apply)
        setattr(RecordedNumber, f"__{name}__", operate)
        setattr(RecordedNumber, f"__r{name}__", lambda right, left, operate=operate: operate(left, right))
    for name, (symbol, opposite, compare) in _COMPARISONS.items():
        setattr(RecordedNumber, f"__{name}__", _comparison(symbol, opposite, compare))


_add_operators()


@frozen(eq=False)
class RecordedPlan:
    """The planning of a template as a function of the sizes that pass its guards.

    Attributes:
        symbols: The sizes in the order of the parameters.
        function: Returns the numbers of a program and the types of its outputs, or `None`.
        outline: The program that was recorded.
        guards: The guards, as Python.
    """

    symbols: tuple[SizeSymbol, ...]
    function: Callable[..., tuple[Any, tuple[TensorType, ...]] | None]
    outline: Outline
    guards: tuple[str, ...]

    def program(self, binding: DimBinding, planned: Callable[[], Lir]) -> tuple[Program, tuple[TensorType, ...]] | None:
        """Return the program for a binding and the types of its outputs; `None` if the recording is not valid for the sizes.

        Args:
            binding: The sizes.
            planned: Returns the plan for the binding, if that is needed later.
        """
        sizes = binding.sizes
        if len(sizes) != len(self.symbols) or not self.outline.is_current():
            return None
        computed = self.function(*[sizes[symbol] for symbol in self.symbols])
        return None if computed is None else (self.outline.build(computed[0], planned), computed[1])


def recorded_plan(
    binding: DimBinding, plan: Callable[[DimBinding], Lir], outline: Callable[[Lir], Outline | None]
) -> RecordedPlan | None:
    """Return the recorded planning of a template for the sizes of a binding; `None` if the target does not support it.

    Args:
        binding: The sizes, for which a program exists.
        plan: Plans a binding, and keeps nothing of it.
        outline: The outline of a plan's program.
    """
    symbols = tuple(sorted(binding.sizes))
    recording = SizeRecording(len(symbols))
    sizes = recording.sizes([binding.sizes[symbol] for symbol in symbols])
    lir = plan(DimBinding(dict(zip(symbols, sizes, strict=True))))  # type: ignore[arg-type]  # they are integers to all others
    outlined = outline(lir)
    if outlined is None:
        return None
    guards = recording.guards
    function = recording.compile((outlined.numbers, tuple([value.type for value in lir.graph.outputs])))
    return RecordedPlan(symbols, function, Outline(None, outlined.build, outlined.is_current), guards)
