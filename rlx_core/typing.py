"""Types to annotate programs with: arguments and results of array functions, whether traced or run on NumPy.

A function under `rlx.jit` is called once with values that have no elements yet, and outside with arrays of rlx or NumPy. `Array`
has the operations of both, so one annotation is true of both; no class derives from it.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:  # names for annotations: at run time `import rlx_core` stays as light as it is
    import numpy as np
    from typing_extensions import Buffer

    from rlx_core.ir.dtypes import DType
    from rlx_core.ir.graph import Value

__all__ = ["Array", "ArrayLike", "DTypeLike", "PyTree"]


if TYPE_CHECKING:
    Structural: TypeAlias = object
else:
    Structural = Protocol


class AbstractArray(Structural):
    """The common interface of traced values and NumPy arrays: a type, and the operators of the Python Array API.

    Elements are not among it: `x.tolist()` needs them, and a traced value has none. `np.asarray(result)` is the NumPy array
    that a compiled function returned.
    """

    @property
    def dtype(self) -> Any: ...
    @property
    def shape(self) -> tuple[Any, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> Any: ...
    @property
    def T(self) -> AbstractArray: ...

    def astype(self, dtype: Any, /) -> AbstractArray: ...
    def reshape(self, *shape: Any) -> AbstractArray: ...
    def transpose(self, *axes: Any) -> AbstractArray: ...
    def sum(self, axis: Any = None) -> Any: ...
    def mean(self, axis: Any = None) -> Any: ...
    def max(self, axis: Any = None) -> Any: ...
    def min(self, axis: Any = None) -> Any: ...

    def __add__(self, other: Any, /) -> AbstractArray: ...

    # The other binary operators have the same signature.
    __sub__ = __mul__ = __matmul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = __add__
    __radd__ = __rsub__ = __rmul__ = __rmatmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = __add__
    __and__ = __or__ = __xor__ = __rand__ = __ror__ = __rxor__ = __add__
    __lshift__ = __rshift__ = __rlshift__ = __rrshift__ = __add__
    __lt__ = __le__ = __gt__ = __ge__ = __add__

    def __eq__(self, other: object, /) -> AbstractArray: ...  # type: ignore[override]  # element-wise, like the others
    def __ne__(self, other: object, /) -> AbstractArray: ...  # type: ignore[override]
    def __neg__(self) -> AbstractArray: ...

    __pos__ = __abs__ = __invert__ = __neg__

    def __getitem__(self, key: Any, /) -> AbstractArray: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...

    # A traced value refuses these with an error that explains why; NumPy arrays return a result.
    def __array__(self) -> Any: ...
    def __bool__(self) -> bool: ...
    def __int__(self) -> int: ...
    def __float__(self) -> float: ...


# A type checker would compare NumPy's arrays with a protocol method by method, and they fail that: their operators are overloaded
# for single dtypes (`~` is for integers and booleans only), and checking this takes minutes. So to a type checker this is
# a class like any, and an `Array` is "anything, and at least that": NumPy's arrays, tensors with DLPack and traced values may be
# passed, and the use of one inside the function is checked.
if TYPE_CHECKING:
    Array: TypeAlias = Any | AbstractArray
else:
    Array = runtime_checkable(AbstractArray)


class SupportsDLPack(Protocol):
    """An array of another library that shares its memory: PyTorch's, JAX's, a device library's."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...


# At run time the rest is `Any`: the definitions are imported by the modules that use them, and `ArrayLike | None` still has a
# value.
if TYPE_CHECKING:
    # Three levels, spelt out: a text is a sequence of sequences of sequences of …, and no array.
    Nested: TypeAlias = (
        complex | Sequence[complex] | Sequence[Sequence[complex]] | Sequence[Sequence[Sequence[complex]]]
    )
    ArrayObject: TypeAlias = np.ndarray[Any, Any] | np.generic | Value | AbstractArray

    ArrayLike: TypeAlias = ArrayObject | SupportsDLPack | Buffer | Nested
    """What an operand may be: an `Array`, a number, nested lists of numbers, or what has DLPack or a buffer."""

    DTypeLike: TypeAlias = DType | str | type[Any] | np.dtype[Any]
    """What names a dtype: `rlx.f32`, "f32", `np.float32`, `np.dtype("float32")`."""

    PyTree: TypeAlias = "ArrayObject | complex | Sequence[PyTree] | Mapping[Any, PyTree] | None"
    """Nested lists, tuples and dictionaries of arrays, as compiled functions take and return them."""
else:
    ArrayLike = DTypeLike = PyTree = Any
