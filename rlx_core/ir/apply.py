"""Applying an op: to values it becomes a node, to arrays it is evaluated at once.

Every op goes through this single entry point, from user code, from decompositions and from rules alike: it determines the
graph, lifts scalars and arrays into constants, promotes, and emits.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

import attrs
import numpy as np

from rlx_core.errors import ConfigError, RlxError, TraceError, UnknownNameError, WrongInputCountError, nearest
from rlx_core.errors.lacks import in_our_words
from rlx_core.ir.array import HostArray, is_array
from rlx_core.ir.declared import check_declared
from rlx_core.ir.dims import Expr, collecting_guards, require
from rlx_core.ir.dtypes import DType, dtype, weak_dtype
from rlx_core.ir.graph import Builder, Value, ambient_builder, as_results, building, leaked, operator
from rlx_core.ir.op import APPLIED, Op
from rlx_core.ir.protocols import Travels
from rlx_core.ir.types import spec
from rlx_core.system.floating import in_standard_modes

_Scalar = (bool, int, float, complex)


def apply(op: Op, operands: Sequence[Any], *, name: str | None = None) -> Any:
    """The result of `op`, or a tuple of its results.

    Values and an ambient builder make a node. With neither, arrays are evaluated by the reference interpreter.
    """
    builder = _builder_for(operands)
    if builder is None:
        return _evaluate(op, operands)
    if builder.untyped is not None:
        values = [x if x is None or isinstance(x, Value) else builder.constant(x) for x in operands]
        return builder.emit(op, values, name=name, types=builder.untyped)[0]
    with building(builder):
        lifted = lift(builder, operands)
        if op.prepare is not None:
            builder.expect_operands(op, lifted)
            lifted = list(as_results(op.prepare(*lifted)))
        results = builder.emit(op, lifted, name=name)
    return results[0] if len(results) == 1 else results


APPLIED[Op] = apply


def _builder_for(operands: Sequence[Any]) -> Builder | None:
    ambient = ambient_builder()
    if ambient is not None:
        return ambient
    for each in operands:
        if isinstance(each, Value):
            if each.node.owner.trace_has_ended:
                raise leaked(each)
            return each.node.owner
    return None


def lift(builder: Builder, operands: Sequence[Any]) -> list[Value | None]:
    """Operands as values of `builder`: arrays become constants, Python scalars take the tensors' dtype."""
    present: list[DType] = [x.dtype for x in operands if isinstance(x, Value)]
    present += [dtype(x.dtype) for x in operands if is_array(x)]
    return [_lift_one(builder, x, present) for x in operands]


def _lift_one(builder: Builder, operand: Any, present: Sequence[DType]) -> Value | None:
    if operand is None or isinstance(operand, Value):
        return operand
    if type(operand) in _Scalar:
        return builder.constant(operand, weak_dtype(operand, present))
    if isinstance(operand, Expr):
        return _lift_size(builder, operand, weak_dtype(0, present))
    return array_value(builder, operand)


def array_value(builder: Builder, data: Any) -> Value:
    """Return an array as a value of `builder`: a constant, or an input where the trace reads the array in every call."""
    lifted = builder.lifted(data)
    return builder.constant(as_array(data)) if lifted is None else lifted


def _lift_size(builder: Builder, size: Expr, to: DType) -> Value:
    """Return a symbolic size as a value: weakly typed like a Python integer, and like one it must fit the dtype."""
    if to.is_integer and to.itemsize < 8:
        with collecting_guards() as guards:
            require(">=", int(np.iinfo(to.numpy).max), size)
        builder.add_guards(guards)
    value: Value = operator("astype")(operator("dim_value")(size=size), to)
    return value


_ARRAYS = "pass NumPy, DLPack or buffer-protocol arrays, numbers, or nested lists of numbers"


def as_array(data: Any) -> np.ndarray:
    """`data` as a NumPy array without copying where that is possible: arrays, DLPack, the buffer protocol, sequences.

    Raises:
        DtypeError, TraceError: It is not such an object, or its elements have a dtype that rlx does not have.
    """
    if type(data) is HostArray:
        return data._array
    if isinstance(data, Value):
        data._refuse("a NumPy array")
    if isinstance(data, Expr):
        raise TraceError(
            f"operand: the size {data} is known to a program that is traced, and is no array",
            hint="rlx.asarray(size) is the size as a value of that program",
        )
    if isinstance(data, str | bytes):
        raise TraceError(f"operand: {data!r} is text, not an array", hint=_hint_for_text(data))
    if type(data) is not np.ndarray and isinstance(data, np.ma.MaskedArray):  # `np.ma` is imported when it is named
        raise TraceError("operand: a masked array's mask would be lost", hint="pass data.filled(value)")
    if isinstance(data, np.ndarray):
        return np.asarray(data)  # a subclass may give operators another meaning
    if hasattr(data, "__dlpack__") and not isinstance(data, np.generic):
        try:
            return described(np.from_dlpack(data), data)
        except ValueError as error:
            raise TraceError(
                f"operand: {type(data).__name__} is not an array",
                hint=f"its DLPack export is at fault, whose description cannot be true: {error}",
            ) from None
        except (BufferError, RuntimeError, TypeError):
            pass  # e.g. read-only or bfloat16 exports; __array__ below copies, which is allowed here
    try:
        array = np.asarray(data)
    except (ValueError, TypeError, RuntimeError) as error:  # ragged lists; libraries that refuse to share their memory
        raise TraceError(
            f"operand: {type(data).__name__} is not an array ({error})", hint=_hint_for_tensor(data) or _ARRAYS
        ) from None
    if array.dtype == object:
        raise TraceError(f"operand: {type(data).__name__} is not an array", hint=_hint_for_object(array))
    dtype(array.dtype)
    return array


def described(array: np.ndarray, exporter: Any) -> np.ndarray:
    """Return an array over memory that another library describes by DLPack, after the checks that are possible.

    The size of that memory is unknown: it is checked that there is an address, that all elements have one, and that it is the
    host's memory.

    Raises:
        ValueError: One of these is not so.
    """
    where = getattr(exporter, "__dlpack_device__", None)
    if where is not None and where()[0] not in _HOST_MEMORY:
        raise ValueError(f"it lies on the host, and is said to lie on device {where()}")
    if array.flags.owndata:  # NumPy allocates memory, and does not write it, where the address is 0
        if array.size:
            raise ValueError(f"the address of {array.size} elements is 0")
        return array
    low, high = byte_bounds(array)
    if array.size and not 0 < low < high <= _ADDRESSES:
        raise ValueError(f"elements lie from address {low:#x} to {high:#x}")
    return array


def byte_bounds(array: np.ndarray) -> tuple[int, int]:
    """Return the address of an array's first byte, and the one after its last: Python integers, which do not overflow."""
    start: int = array.__array_interface__["data"][0]
    steps = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    return start + sum(s for s in steps if s < 0), start + sum(s for s in steps if s > 0) + array.itemsize


def _hint_for_text(text: str | bytes) -> str:
    """Return a hint for a text in place of an array: where it is a type, most likely a spec is meant."""
    if isinstance(text, str):
        with contextlib.suppress(RlxError):
            return f'for an array of this type that is yet to come: rlx.spec("{spec(text)}")'
    return _ARRAYS


_HOST_MEMORY = (1, 3)
"""DLPack's numbers for memory that the host can read: its own, and its own pinned for a device."""

_ADDRESSES: Final = 1 << 57
"""Addresses that a 64-bit processor translates at most (x86-64 with five levels of tables)."""


def _hint_for_tensor(data: Any) -> str | None:
    """Return a hint with the methods that convert another library's tensor that does not export its memory."""
    steps = []
    if getattr(data, "requires_grad", False) is True:
        steps.append(".detach()")
    if str(getattr(data, "layout", "torch.strided")) != "torch.strided":
        steps.append(".to_dense()")
    where = getattr(data, "__dlpack_device__", None)
    if where is not None and where()[0] not in _HOST_MEMORY:
        steps.append(".cpu()")
    if str(getattr(data, "dtype", "")) == "torch.bfloat16":
        steps.append(".float()")
    return f"pass x{''.join(steps)} instead of x" if steps else None


def _hint_for_object(array: np.ndarray) -> str:
    """Return a hint for a sequence, or another object, that NumPy stores as objects."""
    inside = array.item() if array.shape == () else next(iter(array.flat), None)
    return f"an element is a {type(inside).__name__}; {_ARRAYS}" if array.shape else _ARRAYS


@in_standard_modes
def _evaluate(op: Op, operands: Sequence[Any]) -> Any:
    from rlx_core.ir.immediate import evaluate  # here, because most programs evaluate nothing at once

    arguments = [x if x is None or type(x) in _Scalar else as_array(x) for x in operands]
    try:
        results = evaluate(op, arguments)
    except OverflowError as error:  # attributes are integers of any size, and arrays are addressed with 64 bits
        raise ConfigError(f"{op.title}: an attribute of {op} is too large ({error})") from None
    except MemoryError as error:
        raise in_our_words(op.title, error) or error from error.__cause__
    return HostArray(results[0]) if len(results) == 1 else tuple(map(HostArray, results))


_OpT = TypeVar("_OpT", bound=Op)

_AFTER_THE_STAR: Final = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_POSITIONAL)


class OpFunction(Travels, Generic[_OpT]):
    """The function form of an op: operands first, attributes after them or by keyword.

    `layer_norm(x, weight, bias, eps=1e-5)` is `LayerNorm(eps=1e-5)(x, weight, bias)`.
    """

    def __init__(self, op: type[_OpT]) -> None:
        self.op = op
        self.__name__ = op.name.split(".", 1)[1]
        self.__doc__ = op.__doc__
        self.__wrapped__ = op.infer or op.decompose
        self._attributes = tuple(a.name for a in attrs.fields(op))
        self._operands = tuple(o.name for o in op.operands)
        self._is_variadic = any(o.is_variadic for o in op.operands)

    def __call__(self, *arguments: Any, name: str | None = None, **named: Any) -> Any:
        count = len(arguments) if self._is_variadic else len(self._operands)
        operands, extra = list(arguments[:count]), arguments[count:]
        attributes: dict[str, Any] = dict(zip(self._attributes, extra, strict=False))
        if len(extra) > len(self._attributes):
            check_declared(self.op)  # an op without declared operands would be refused for taking none
            raise WrongInputCountError(f"{self.op.title}: takes {self.signature}, not {len(arguments)} arguments")
        for key, value in named.items():
            if key in self._attributes and key not in attributes:
                attributes[key] = value
            elif key in self._operands and len(operands) <= self._operands.index(key):
                operands += [None] * (self._operands.index(key) - len(operands)) + [value]
            else:
                raise UnknownNameError(
                    f"{self.op.title}: takes {self.signature}, not {key}=",
                    hint=nearest(key, (*self._operands, *self._attributes)),
                )
        return apply(self.op(**attributes) if attributes else self._plain, operands, name=name)

    @cached_property
    def _plain(self) -> _OpT:
        """The op with default attributes: one object, so that cached properties of it are computed once."""
        return self.op()

    @property
    def signature(self) -> str:
        """The operands and attributes, as a reader would write them."""
        return f"({', '.join((*self._operands, *(f'{a}=' for a in self._attributes)))})"

    @property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter
        optional = {o.name: None if o.is_optional else kind.empty for o in self.op.operands}
        if self._is_variadic:
            parameters = [kind("operands", kind.VAR_POSITIONAL, annotation="ArrayLike")]
        else:
            parameters = [
                kind(o, kind.POSITIONAL_OR_KEYWORD, default=d, annotation="ArrayLike") for o, d in optional.items()
            ]
        for attribute in attrs.fields(self.op):
            default = default_of(attribute)
            # By position too, where Python's syntax allows it: a required parameter cannot follow an optional one.
            follows = parameters and (
                parameters[-1].kind in _AFTER_THE_STAR or parameters[-1].default is not kind.empty
            )
            by_keyword = self._is_variadic or (
                follows and (default is kind.empty or parameters[-1].kind in _AFTER_THE_STAR)
            )
            place = kind.KEYWORD_ONLY if by_keyword else kind.POSITIONAL_OR_KEYWORD
            shown = attribute.type if attribute.type is not None else kind.empty
            parameters.append(kind(attribute.name, place, default=default, annotation=shown))
        parameters.append(kind("name", kind.KEYWORD_ONLY, default=None, annotation="str | None"))
        return inspect.Signature(parameters, return_annotation="Array")

    def __repr__(self) -> str:
        return f"<function {self.__name__}{self.signature} of {self.op.name}>"


def default_of(attribute: attrs.Attribute[Any]) -> Any:
    """Return the default of an attribute, as a signature shows it."""
    if attribute.default is attrs.NOTHING:
        return inspect.Parameter.empty
    # A default that is created for each op has no value to show.
    return ... if isinstance(attribute.default, attrs.Factory) else attribute.default  # type: ignore[arg-type]


def op_function(op: type[_OpT]) -> OpFunction[_OpT]:
    """The function form of `op`."""
    return OpFunction(op)
