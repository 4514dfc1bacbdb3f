"""Arrays in the host's memory: the results of functions outside of a program.

An array wraps a NumPy array, which it shows read-only and without a copy (`np.asarray(x)`). It is no NumPy array itself, for two
reasons: its operators promote and round as those of a program do, and one that was donated to a program must refuse every use,
which a class derived from `numpy.ndarray` cannot, because NumPy's C code reads its memory without asking.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import optree

from rlx_core.errors import DonatedError, IndexRangeError, TraceError
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_core.ir.graph import ArrayMethods, Value, ambient_builder, operator
from rlx_core.ir.types import TensorType

_LINE_WIDTH: Final = 88


_OPERATORS: Final = {
    **{name: name for name in ("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "matmul")},
    **{name: name for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "equal", "not_equal", "less", "less_equal")},
    **{name: name for name in ("greater", "greater_equal")},
    "power": "pow",
    "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift",
}
"""NumPy's functions of Python's binary operators → the operators."""


class Donated:
    """Replaces the elements of a donated array: the call that it was donated to, and its former type."""

    __slots__ = ("dtype", "shape", "to")

    def __init__(self, to: str, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self.to, self.dtype, self.shape = to, dtype, shape

    @property
    def type(self) -> TensorType:
        """The type of the elements that it had: made for errors alone, because donating takes part in every step."""
        return TensorType(dtype_of(self.dtype), self.shape)


class HostArray(ArrayMethods):
    """An array in the host's memory, which does not change; see `ArrayMethods` for operators and methods.

    `np.asarray(x)` shows the elements without a copy; NumPy, SciPy and whatever takes array-likes accept it, DLPack shares its
    memory. `x[key] = y` rebinds the object to other elements; values computed from it before keep theirs.
    """

    __slots__ = ("__weakref__", "_data")

    def __init__(self, data: np.ndarray) -> None:
        self._data: np.ndarray | Donated = data

    # ------------------------------------------------------------------------------ properties

    @property
    def _array(self) -> np.ndarray:
        """The elements.

        Raises:
            DonatedError: They were given to a program that may have overwritten them.
        """
        data = self._data
        if type(data) is Donated:
            raise donated_error(data.to, data.type)
        return data  # type: ignore[return-value]

    @property
    def dtype(self) -> np.dtype:
        """NumPy's dtype of the elements, which equals rlx's."""
        return self._array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    @property
    def ndim(self) -> int:
        return self._array.ndim

    @property
    def size(self) -> int:
        return self._array.size

    @property
    def itemsize(self) -> int:
        return self._array.itemsize

    @property
    def nbytes(self) -> int:
        return self._array.nbytes

    @property
    def type(self) -> TensorType:
        """rlx's type: `f32[3, 4]`."""
        return TensorType(dtype_of(self.dtype), self.shape)

    @property
    def is_donated(self) -> bool:
        """Whether its elements were given to a program, so that every other use of it raises."""
        return type(self._data) is Donated

    def block_until_ready(self) -> HostArray:
        """Return this array: programs on the host have ended when they return."""
        self._array  # noqa: B018  raises if it was donated
        return self

    # ------------------------------------------------------------------------------- elements

    def __getitem__(self, key: Any) -> Any:
        """Return the elements that a key selects, as in NumPy; a boolean array selects one element for each true.

        With a value of a program in the key, the result is one too.

        Raises:
            IndexRangeError: A position is outside its axis, or there are more than axes.
        """
        builder = ambient_builder()
        if builder is not None and any(isinstance(k, Value) for k in (key if isinstance(key, tuple) else (key,))):
            return operator("getitem")(builder.constant(self._array), key)
        try:
            return HostArray(np.asarray(self._array[as_index(key)]))
        except IndexError as error:
            raise IndexRangeError(f"getitem: {error}") from None

    def __setitem__(self, key: Any, value: Any) -> None:
        updated = operator("at")(self)[key].set(value)
        if not isinstance(updated, HostArray):
            raise TraceError(
                "setitem: an array that was made outside of the program cannot take elements of a value of it",
                hint="x = x.at[key].set(y)",
            )
        self._data = updated._array

    def item(self, *index: Any) -> Any:
        """The only element, or the one at `index`, as a Python number."""
        return self._array.item(*index)

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
        return self._array.tolist()

    def tobytes(self) -> bytes:
        """The elements as bytes, in C order."""
        return self._array.tobytes()

    def copy(self, order: str = "C") -> HostArray:
        """Return a copy with separate memory."""
        return HostArray(self._array.copy(order="C"))

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> HostArray:
        return self.copy()

    def __reduce__(self) -> Any:
        return HostArray, (self._array,)

    def __bool__(self) -> bool:
        return bool(self._array)

    def __int__(self) -> int:
        return int(self._array)

    def __float__(self) -> float:
        return float(self._array)

    def __complex__(self) -> complex:
        return complex(self._array)

    def __index__(self) -> int:
        return self._array.__index__()

    def __round__(self, digits: int | None = None) -> Any:
        return round(self._array.item(), digits) if self.ndim == 0 else operator("round")(self)

    def __contains__(self, element: Any) -> bool:
        return unwrapped(element) in self._array

    __hash__ = None  # type: ignore[assignment]  # `==` is element-wise

    def __format__(self, how: str) -> str:
        return format(self._array if self.ndim else self._array[()], how)

    def __str__(self) -> str:
        return repr(self) if self.is_donated else str(self._array)

    def __repr__(self) -> str:
        data = self._data
        if type(data) is Donated:
            return f"<donated array {data.type}>"
        text = np.array_repr(self._array, max_line_width=_LINE_WIDTH)
        return text.replace("array(", "Array(", 1)

    # ---------------------------------------------------------------------- for other libraries

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        shown = read_only_view(self._array)
        if dtype is not None and np.dtype(dtype) != shown.dtype:
            if copy is False:
                raise ValueError(f"an array of {shown.dtype} cannot become one of {np.dtype(dtype)} without a copy")
            return shown.astype(dtype)
        return shown.copy() if copy else shown

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        """NumPy's result; but `ndarray + x` is the operator of `x`, so that it promotes as `x + ndarray` does."""
        name = _OPERATORS.get(ufunc.__name__)
        if name is not None and method == "__call__" and out is None and not options:
            return operator(name)(*inputs)
        if out is not None:
            if any(type(each) is HostArray for each in out):
                return NotImplemented  # arrays are immutable; NumPy raises the error
            options["out"] = out
        return getattr(ufunc, method)(*map(unwrapped, inputs), **{k: unwrapped(v) for k, v in options.items()})

    def __array_function__(self, function: Callable[..., Any], types: Iterable[Any], args: Any, kwargs: Any) -> Any:
        """Return the result of a NumPy function on the elements: NumPy arrays, not arrays of rlx."""
        if any(issubclass(each, Value) for each in types):
            return NotImplemented  # a value has no elements, and raises the error
        return function(*optree.tree_map(unwrapped, args), **optree.tree_map(unwrapped, kwargs))

    # There is no `__array_interface__`: NumPy's array would refer to this object alone, and not to the memory, which a
    # donation passes on.

    def __buffer__(self, flags: int) -> memoryview:
        return read_only_view(self._array).data

    def __dlpack__(self, **options: Any) -> Any:
        array = self._array
        return (array if array.flags.writeable else array.copy()).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()

    # --------------------------------------------------------------------------------- donation

    def donate(self, to: str) -> np.ndarray:
        """Return the elements for a donation: the array itself if no other object refers to it, else a copy. Later uses raise.

        Raises:
            DonatedError: They were given away before.
        """
        with _donating:
            array = self._array
            self._data = Donated(to, array.dtype, array.shape)
        # Memory that the caller may still see through a view (NumPy's, a slice's, DLPack's) must not be overwritten. A view
        # refers
        # to its base array, which is otherwise referred to here and by the call below.
        is_own = array.base is None or not isinstance(array.base, np.ndarray)
        return array if is_own and sys.getrefcount(array) <= _REFERENCES and array.flags.writeable else array.copy()

    def take_back(self, array: np.ndarray) -> None:
        """Undo a donation to a program that did not run."""
        self._data = array


_donating: Final = threading.Lock()  # of several threads that donate one array, one has it


def _references() -> int:
    """References to an array that only a local name holds, as `sys.getrefcount` counts them in this interpreter."""
    array = np.empty(0)
    return sys.getrefcount(array)


_REFERENCES: Final = _references()


def donate_together(arrays: Sequence[HostArray], to: Sequence[str]) -> list[np.ndarray]:
    """Donate arrays to one call: all of them, or none.

    Args:
        arrays: The arrays, to whose elements the caller has no other reference.
        to: Descriptions of each array for errors.

    Raises:
        DonatedError: One was donated before, or is there twice. The others are as they were.
    """
    taken: list[np.ndarray] = []
    for number, (array, name) in enumerate(zip(arrays, to, strict=True)):
        try:
            taken.append(array.donate(name))
        except DonatedError:
            for each, elements in zip(arrays, taken, strict=False):
                each.take_back(elements)
            first = next((i for i in range(number) if arrays[i] is array), None)
            if first is None:
                raise
            raise DonatedError(
                f"one array ({array.type}) cannot be donated twice ({to[first]}, and {name})",
                hint="pass x.copy() for one of them",
            ) from None
    return taken


def donation_text(argument: str, program: str) -> str:
    """Return the description of a donated array for errors: its argument and the program."""
    return f"argument {argument} of {program}"


def donated_error(to: str, type: TensorType) -> DonatedError:
    """The error for the use of an array that was donated."""
    return DonatedError(
        f"this array ({type}) was donated ({to})",
        hint="the call may have overwritten it: use what it returned, pass x.copy(), or make the function without donate",
    )


def read_only_view(array: np.ndarray) -> np.ndarray:
    """Return the array as one that cannot be written to, in the same memory."""
    view = array.view()
    view.flags.writeable = False
    return view


def wrapped(data: Any) -> Any:
    """Return NumPy's arrays and scalars as arrays; other objects, such as arrays on devices, unchanged."""
    if isinstance(data, np.ndarray):
        return HostArray(data)
    return HostArray(np.asarray(data)) if isinstance(data, np.generic) else data


def unwrapped(data: Any) -> Any:
    """Return the NumPy array that an array wraps; other objects unchanged.

    Raises:
        DonatedError: It was donated.
    """
    return data._array if type(data) is HostArray else data


def is_array(data: Any) -> bool:
    """Return whether an object is an array in the host's memory: of this class, or a NumPy array or scalar."""
    return isinstance(data, np.ndarray | np.generic | HostArray)


def as_index(key: Any) -> Any:
    """An index with NumPy's arrays in place of arrays."""
    if isinstance(key, tuple):
        return tuple([_entry(each) for each in key])
    return _entry(key)


def _entry(entry: Any) -> Any:
    return list(map(unwrapped, entry)) if isinstance(entry, list) else unwrapped(entry)


def is_immutable(array: Any) -> bool:
    """Whether nobody can write to an array: it, and every array or buffer that it is a view of, is read-only."""
    data = unwrapped(array)
    if not isinstance(data, np.ndarray):
        return False
    while isinstance(data, np.ndarray):
        if data.flags.writeable:
            return False
        if data.base is None:
            return True
        data = data.base
    try:
        return memoryview(data).readonly
    except TypeError:  # an owner of memory that is no buffer itself, of which nothing is known
        return False


def usable(array: np.ndarray) -> np.ndarray:
    """The array itself if it is dense and aligned, else a copy that is."""
    return array if array.flags.c_contiguous and array.flags.aligned else np.array(array, order="C", copy=True)
