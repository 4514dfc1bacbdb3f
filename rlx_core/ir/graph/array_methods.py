"""The operators and methods that every array has: values of a program, arrays in memory, and arrays on devices.

They are declared here, and call the functions of the standard ops by their places (`rlx_core.public.OPERATORS`). So an
expression has one meaning inside and outside of a program: the same dtype, the same promotion, the same elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from rlx_core import hints
from rlx_core.errors import AbsentNameError, TraceError
from rlx_core.ir.dims import Expr
from rlx_core.public import OPERATORS as PLACES
from rlx_core.public import LazyTable

__all__ = ["OPERATORS", "ArrayMethods", "operator"]

OPERATORS: Final[LazyTable[str, Callable[..., Any]]] = LazyTable(PLACES)
"""Operator or method → function of the standard ops, which this layer does not know."""


def operator(name: str) -> Callable[..., Any]:
    """Return the function of an operator or a method. Its module is imported when the first one is used."""
    return OPERATORS[name]


def _operator(name: str, reflected: bool = False) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        # An operand of another library that refuses NumPy's functions has its own operators for arrays.
        if getattr(other, "__array_ufunc__", True) is None and not isinstance(other, ArrayMethods | Expr):
            return NotImplemented
        return operator(name)(other, self) if reflected else operator(name)(self, other)

    return method


def _method(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return operator(name)(self, *args, **kwargs)

    method.__name__, method.__doc__ = name, f"`rlx.{name}` of this array."
    method.__code__ = method.__code__.replace(co_name=name)  # the name that errors show for the call
    return method


class ArrayMethods:
    """Operators and methods of arrays, by the Python Array API and, beyond it, by NumPy.

    A class of arrays adds `dtype`, `shape`, `ndim`, `size`, and methods that depend on the location of its elements.
    """

    __slots__ = ()

    described: ClassVar[str] = "an array"  # name of the class in errors

    if TYPE_CHECKING:  # attributes that array classes define

        @property
        def dtype(self) -> Any: ...
        @property
        def shape(self) -> tuple[Any, ...]: ...
        @property
        def ndim(self) -> int: ...
        @property
        def size(self) -> Any: ...

    else:  # to a type checker, any name would be an attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):  # Python and other libraries look up protocols, often
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise AbsentNameError(
                f"{self.described} has no attribute {name!r}", hint=hints.expected.attribute_hint(type(self), name)
            )

    @property
    def T(self) -> Any:
        """The array with its axes in the opposite order, as in NumPy; `mT` exchanges the last two."""
        return self.transpose()

    @property
    def mT(self) -> Any:
        """The array with its last two axes exchanged."""
        return operator("matrix_transpose")(self)

    @property
    def at(self) -> Any:
        """`x.at[key].set(y)`: another array with other elements at `x[key]`; see `rlx.at`."""
        return operator("at")(self)

    def astype(self, dtype: Any, /, *, copy: bool = True) -> Any:
        """This array in another dtype; arrays do not change, so `copy` has no effect."""
        return operator("astype")(self, dtype)

    def reshape(self, *shape: Any) -> Any:
        """This array with other dims; one of them may be -1."""
        dims = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        return operator("reshape")(self, tuple(dims))

    def transpose(self, *axes: Any) -> Any:
        """This array with its axes permuted; reversed if none are given."""
        perm = axes[0] if len(axes) == 1 and isinstance(axes[0], Sequence) else axes
        return operator("permute_dims")(self, tuple(perm) or tuple(reversed(range(self.ndim))))

    @property
    def device(self) -> Any:
        """The device of the array: in a program the target that it is compiled for."""
        return operator("device")(self)

    def to_device(self, device: object, /, *, stream: object = None) -> Any:
        """Return this array, if that is its device."""
        return operator("to_device")(self, device)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The namespace of functions that take arrays, by the Python Array API."""
        return operator("array_namespace")(api_version)

    # NumPy's methods of arrays; their functions have the names of the Python Array API.
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

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TraceError(f"iteration: a scalar ({self.dtype}) cannot be iterated")
        return (self[i] for i in range(self.__len__()))

    def __len__(self) -> int:
        if not self.shape:
            raise TraceError(f"len: a scalar ({self.dtype}) has no length")
        return int(self.shape[0].__index__())
