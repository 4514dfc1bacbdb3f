"""Nodes, and values that name their results.

`Value` carries the operators of Python, so that a rule, a decomposition and a traced program all read as mathematics; `==` is
element-wise like the others, and values are told apart by identity (they are safe as dictionary keys).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

import numpy as np
from attrs import field

from rlx_core.errors import TraceError
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import DType
from rlx_core.ir.graph.elements import needs_elements
from rlx_core.ir.graph.leaves import Argument, Constant
from rlx_core.ir.op import Op
from rlx_core.ir.provenance import Origin
from rlx_core.ir.registered import Registered
from rlx_core.ir.travel import Stays
from rlx_core.ir.types import Shape, TensorType
from rlx_core.system.records import frozen

if TYPE_CHECKING:
    from rlx_core.ir.graph.builder import Builder

__all__ = ["Node", "Value", "operator"]


@frozen(eq=False, repr=False)
class Node(Stays):
    """One op applied to values. `index` is its place in the graph that `owner` builds."""

    op: Op
    operands: tuple[Value | None, ...]
    types: tuple[TensorType, ...]
    owner: Builder
    index: int
    name: str | None = None
    origin: Origin = field(factory=Origin)
    results: tuple[Value, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "results", tuple(Value(self, i) for i in range(len(self.types))))

    @property
    def result(self) -> Value:
        """The only result."""
        assert len(self.results) == 1, f"{self.op.name} has {len(self.results)} results"
        return self.results[0]

    @property
    def type(self) -> TensorType:
        return self.result.type

    @property
    def operand_types(self) -> tuple[TensorType | None, ...]:
        """The types of the operands, None where an optional one is absent: what rules on types are asked with."""
        return tuple(None if v is None else v.type for v in self.operands)

    @property
    def is_leaf(self) -> bool:
        return isinstance(self.op, Argument | Constant)

    @property
    def label(self) -> str:
        """How errors and printers call the node: its name, or its number."""
        return f"%{self.name or self.index}"

    def present(self) -> Iterator[Value]:
        """The operands that are there; optional ones may be absent."""
        return (v for v in self.operands if v is not None)

    def __repr__(self) -> str:
        names = ", ".join("_" if v is None else repr(v) for v in self.operands)
        return f"{self.label} = {self.op!r}({names}) : {', '.join(map(str, self.types))}"


_RETURN: Final = "return it from the traced function, and look at the array that comes back"


def _operator(name: str, reflected: bool = False) -> Callable[[Value, Any], Any]:
    def method(self: Value, other: Any) -> Any:
        return operator(name)(other, self) if reflected else operator(name)(self, other)

    return method


def _method(name: str) -> Callable[..., Any]:
    def method(self: Value, *args: Any, **kwargs: Any) -> Any:
        return operator(name)(self, *args, **kwargs)

    method.__name__, method.__doc__ = name, f"`rlx.{name}` of this value."
    method.__code__ = method.__code__.replace(co_name=name)  # by which errors say what was called
    return method


def operator(name: str) -> Callable[..., Any]:
    """What an operator of Python means on values. Who defines that is loaded with the first operator that is used."""
    return Value.operators[name]


class Value(Stays):
    """One result of a node: what operands refer to, and what a traced function computes with.

    A value never changes. `x[key] = y` makes another one, which the Python object `x` refers to from then on (see
    `Builder.assign`). Operators follow the Python Array API. A value has a type but no elements: converting it to a number,
    a bool or an array raises TraceError.
    """

    __slots__ = ("index", "node")

    operators: ClassVar[Registered[str, Callable[..., Any]]] = Registered(
        "rlx_core.ops.array_api", "rlx_core.ops.linalg"
    )
    """Operator name → function; filled by the package of standard ops, which this layer does not know."""

    def __init__(self, node: Node, index: int) -> None:
        self.node = node
        self.index = index

    @property
    def type(self) -> TensorType:
        return self.node.types[self.index]

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def ndim(self) -> int:
        return self.type.rank

    @property
    def size(self) -> Dim:
        return self.type.size

    @property
    def T(self) -> Any:
        """The transpose of a matrix."""
        return operator("matrix_transpose")(self)

    mT = T

    @property
    def at(self) -> Any:
        """`x.at[key].set(y)`: another value with other elements at `x[key]`; see `rlx.at`."""
        return operator("at")(self)

    def astype(self, to: Any) -> Any:
        """This value in another dtype."""
        return operator("astype")(self, to)

    def reshape(self, *shape: Any) -> Any:
        """This value with other dims; one of them may be -1."""
        dims = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        return operator("reshape")(self, tuple(dims))

    def transpose(self, *axes: Any) -> Any:
        """This value with its axes permuted; reversed if none are given."""
        perm = axes[0] if len(axes) == 1 and isinstance(axes[0], Sequence) else axes
        return operator("permute_dims")(self, tuple(perm) or tuple(reversed(range(self.ndim))))

    @property
    def device(self) -> str:
        """Where the value will be: the target that its program is compiled for."""
        found: str = operator("device")(self)
        return found

    def to_device(self, device: object, /, *, stream: object = None) -> Value:
        """This value, if that is its device; a program has one."""
        found: Value = operator("to_device")(self, device)
        return found

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The namespace of functions that take values, by the Python Array API."""
        return operator("array_namespace")(api_version)

    # What arrays have as methods in NumPy; their functions are called as in the Python Array API.
    sum, prod, mean, std, var = map(_method, ("sum", "prod", "mean", "std", "var"))
    max, min, any, all, argmax, argmin = map(_method, ("max", "min", "any", "all", "argmax", "argmin"))
    clip, round, conj, repeat, take, squeeze = map(_method, ("clip", "round", "conj", "repeat", "take", "squeeze"))
    argsort, cumsum, cumprod, dot = map(_method, ("argsort", "cumulative_sum", "cumulative_prod", "matmul"))
    swapaxes = _method("swapaxes")
    real, imag = property(_method("real")), property(_method("imag"))

    def flatten(self) -> Any:
        """The elements in one line."""
        return self.reshape(-1)

    ravel = flatten

    __add__, __radd__ = _operator("add"), _operator("add", True)
    __sub__, __rsub__ = _operator("subtract"), _operator("subtract", True)
    __mul__, __rmul__ = _operator("multiply"), _operator("multiply", True)
    __truediv__, __rtruediv__ = _operator("divide"), _operator("divide", True)
    __floordiv__, __rfloordiv__ = _operator("floor_divide"), _operator("floor_divide", True)
    __mod__, __rmod__ = _operator("remainder"), _operator("remainder", True)
    __pow__, __rpow__ = _operator("pow"), _operator("pow", True)
    __matmul__, __rmatmul__ = _operator("matmul"), _operator("matmul", True)
    __and__, __rand__ = _operator("bitwise_and"), _operator("bitwise_and", True)
    __or__, __ror__ = _operator("bitwise_or"), _operator("bitwise_or", True)
    __xor__, __rxor__ = _operator("bitwise_xor"), _operator("bitwise_xor", True)
    __lshift__, __rlshift__ = _operator("bitwise_left_shift"), _operator("bitwise_left_shift", True)
    __rshift__, __rrshift__ = _operator("bitwise_right_shift"), _operator("bitwise_right_shift", True)
    __lt__, __le__ = _operator("less"), _operator("less_equal")
    __gt__, __ge__ = _operator("greater"), _operator("greater_equal")
    __eq__, __ne__ = _operator("equal"), _operator("not_equal")
    __getitem__ = _operator("getitem")

    def __neg__(self) -> Any:
        return operator("negative")(self)

    def __pos__(self) -> Any:
        return operator("positive")(self)

    def __abs__(self) -> Any:
        return operator("abs")(self)

    def __invert__(self) -> Any:
        return operator("bitwise_invert")(self)

    __hash__ = object.__hash__

    # NumPy must leave `array + value` to us instead of making an object array of values.
    __array_ufunc__ = None

    def __array_function__(self, function: Callable[..., Any], *rest: object) -> NoReturn:
        self._refuse(f"{function.__module__}.{function.__name__}", function)

    def _refuse(self, wanted: str, function: Any = None, hint: str | None = None) -> NoReturn:
        raise needs_elements(self, wanted, function, hint)

    def __bool__(self) -> bool:
        self._refuse("a truth value")

    def __float__(self) -> float:
        self._refuse("float()")

    def __complex__(self) -> complex:
        self._refuse("complex()")

    def __round__(self, digits: int | None = None) -> NoReturn:
        self._refuse("round()")

    def __format__(self, how: str) -> str:
        return self._refuse(f"the format {how!r}", hint=_RETURN) if how else repr(self)

    def item(self) -> NoReturn:
        """Refused: a value has no elements."""
        self._refuse("item()", hint=_RETURN)

    def tolist(self) -> NoReturn:
        """Refused: a value has no elements."""
        self._refuse("tolist()", hint=_RETURN)

    def __int__(self) -> int:
        self._refuse("int()")

    def __index__(self) -> int:
        self._refuse("an index")

    def __array__(self, *args: object, **kwargs: object) -> np.ndarray:
        self._refuse("a NumPy array")

    def __dlpack__(self, **kwargs: object) -> NoReturn:
        self._refuse("DLPack")

    def __dlpack_device__(self) -> NoReturn:
        self._refuse("DLPack")

    def __setitem__(self, key: Any, value: Any) -> None:
        operator("setitem")(self, key, value)

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TraceError(f"trace: a scalar ({self.type}) cannot be iterated")
        return (self[i] for i in range(self.__len__()))

    def __len__(self) -> int:
        if not self.shape:
            raise TraceError(f"trace: a scalar ({self.type}) has no length")
        return self.shape[0].__index__()

    def __repr__(self) -> str:
        return self.node.label + (f".{self.index}" if len(self.node.types) > 1 else "")
