"""Properties of the interpreter on which native code depends: offsets of fields of arrays and tuples, and called functions.

The layouts are those of CPython's and NumPy's stable interfaces. They are verified once per process: objects whose fields are
known are read through these offsets, and a mismatch is the reason for not using native entries.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import numpy as np

from rlx_core.ir.array import HostArray

OBJECT_TYPE: Final = 8
"""Bytes from an object's start to its type."""

TUPLE_SIZE, TUPLE_ITEMS = 16, 24
"""Bytes from a tuple's start to its length, and to its first item."""


class ArrayFields:
    """Bytes from an array's start to its fields (`PyArrayObject_fields`)."""

    data: Final = 16
    ndim: Final = 24  # 32 bits
    dims: Final = 32
    base: Final = 48
    descr: Final = 56
    flags: Final = 64  # 32 bits


ARRAY: Final = ArrayFields

C_CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400

NEW_ARRAY: Final = "rlx_new_array"
"""Name in native code of NumPy's `PyArray_NewFromDescr`, which has no symbol."""

SET_ALLOCATOR: Final = "rlx_set_allocator"
"""Name in native code of NumPy's `PyDataMem_SetHandler`, which returns the previous handler."""

_ARRAY_TYPE_SLOT, _NEW_FROM_DESCR_SLOT, _SET_HANDLER_SLOT = 2, 94, 304

FUNCTIONS: Final = (
    *("PyTuple_New", "Py_IncRef", "Py_DecRef", "PyErr_Clear", "PyObject_CallNoArgs"),
    *("PyType_GenericAlloc", "PyType_IsSubtype"),
    *("PyEval_SaveThread", "PyEval_RestoreThread", "PyGILState_Ensure", "PyGILState_Release"),
    *("PyThread_get_thread_ident", "PyErr_CheckSignals", "PyErr_Fetch"),
)


@cache
def reason_against() -> str | None:
    """Return why native code cannot take this interpreter's arrays; `None` if it can."""
    if sys.implementation.name != "cpython":
        return f"{sys.implementation.name} is not CPython"
    if "free-threading" in sys.version:  # the build's configuration also has this, but reading it takes a millisecond
        return "an interpreter without a global lock lays out objects in another way"
    if ctypes.sizeof(ctypes.c_void_p) != 8 or sys.byteorder != "little":
        return "layouts are known for 64-bit little-endian machines"
    return next(_differences(), None)


def _differences() -> Iterator[str]:
    """Yield the deviations from the expected layout; normally none."""
    missing = [name for name in FUNCTIONS if getattr(ctypes.pythonapi, name, None) is None]
    if missing:
        yield f"the interpreter has no {', '.join(missing)}"
        return
    pair = ("first", "second")
    if (word(id(pair) + TUPLE_SIZE), word(id(pair) + TUPLE_ITEMS)) != (2, id(pair[0])):
        yield "tuples have another layout"
    for probe in (np.zeros((2, 3), np.float32), np.zeros(5, np.int64)[::2], np.zeros((), np.bool_)):
        actual = read_array(probe)
        base = 0 if probe.base is None else id(probe.base)
        expected = (id(np.ndarray), probe.ctypes.data, probe.ndim, probe.shape, base, id(probe.dtype), probe.flags.num)
        if actual != expected:
            yield "NumPy's arrays have another layout"
            return
    wrapper, offset = HostArray(np.zeros(1)), elements_offset()
    if offset is None or reference_count(word(id(wrapper) + offset)) != 1:
        yield "arrays of rlx have another layout"
        return
    table = api_table()
    if table is None or word(table + 8 * _ARRAY_TYPE_SLOT) != id(np.ndarray):
        yield "NumPy's table of functions is not where it is known to be"
        return
    if not makes_arrays(word(table + 8 * _NEW_FROM_DESCR_SLOT)):
        yield "NumPy makes arrays in another way"


def read_array(array: np.ndarray) -> tuple[Any, ...]:
    """An array's type, address, rank, dims, base, descriptor and flags, as native code sees them."""
    object_address = id(array)
    rank = ctypes.c_int32.from_address(object_address + ARRAY.ndim).value
    dims = word(object_address + ARRAY.dims)
    return (
        word(object_address + OBJECT_TYPE),
        word(object_address + ARRAY.data),
        rank,
        tuple(word(dims + 8 * i) for i in range(min(max(rank, 0), 8))),
        word(object_address + ARRAY.base),
        word(object_address + ARRAY.descr),
        ctypes.c_int32.from_address(object_address + ARRAY.flags).value,
    )


@cache
def elements_offset() -> int | None:
    """Bytes from the start of a `HostArray` to the reference to its NumPy array; `None` if there is no such reference."""
    elements = np.zeros(1)
    probe = HostArray(elements)
    offsets = range(OBJECT_TYPE + 8, HostArray.__basicsize__, 8)
    return next((each for each in offsets if word(id(probe) + each) == id(elements)), None)


def reference_count(address: int) -> int:
    """References to the object at an address, as native code reads them."""
    return ctypes.c_int32.from_address(address).value


def makes_arrays(function: int) -> bool:
    """Return whether the function at an address is the one that makes an array of a descriptor."""
    kind = ctypes.PYFUNCTYPE(
        ctypes.py_object, *[ctypes.py_object] * 2, ctypes.c_int, *[ctypes.c_void_p] * 3, ctypes.c_int, ctypes.c_void_p
    )
    dims, dtype = (ctypes.c_int64 * 2)(2, 3), np.dtype(np.int32)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(dtype))  # it takes a reference over
    array = kind(function)(np.ndarray, dtype, 2, ctypes.addressof(dims), None, None, 0, None)
    return type(array) is np.ndarray and array.shape == (2, 3) and array.dtype is dtype and array.flags.owndata


def word(address: int) -> int:
    """The 64-bit word at an address."""
    return ctypes.c_int64.from_address(address).value


@cache
def api_table() -> int | None:
    """Return the address of NumPy's table of functions."""
    from numpy._core import _multiarray_umath  # type: ignore[attr-defined]

    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    capsule = getattr(_multiarray_umath, "_ARRAY_API", None)
    return None if capsule is None else get(capsule, None)


@cache
def addresses() -> Mapping[str, int]:
    """Function → address."""
    table = api_table()
    assert table is not None and reason_against() is None, "asked for only where everything is as known"  # noqa: PT018
    symbols = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in FUNCTIONS}
    functions = {NEW_ARRAY: _NEW_FROM_DESCR_SLOT, SET_ALLOCATOR: _SET_HANDLER_SLOT}
    return {**symbols, **{name: word(table + 8 * slot) for name, slot in functions.items()}}
