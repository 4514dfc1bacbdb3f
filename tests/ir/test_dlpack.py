"""Memory that another library describes by DLPack: a description that cannot be true is refused."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import rlx_core as rlx
from rlx_core.errors import OutOfMemoryError, TraceError

CPU, CUDA = 1, 2
FLOAT, OPAQUE = 2, 3


class Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class Dtype(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", Dtype),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    _fields_ = (("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Exporter:
    """64 numbers, described as the arguments say; kept for ever, because an array refers to its description."""

    kept: list[Exporter] = []  # noqa: RUF012 - what all of them share

    def __init__(
        self, shape, strides=None, *, device=CPU, claims=None, address=None, kind=(FLOAT, 32, 1), offset=0, ndim=None
    ):
        self.kept.append(self)
        self.numbers = (ctypes.c_float * 64)(*range(64))
        self.sizes = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        self.steps = None if strides is None else (ctypes.c_int64 * len(strides))(*strides)
        self.managed = Managed()
        tensor = self.managed.tensor
        tensor.data = ctypes.addressof(self.numbers) if address is None else address
        tensor.device, tensor.dtype = Device(device, 0), Dtype(*kind)
        tensor.ndim, tensor.shape = len(shape) if ndim is None else ndim, self.sizes
        if self.steps is not None:
            tensor.strides = self.steps
        tensor.byte_offset = offset
        self.claims = device if claims is None else claims

    def __dlpack__(self, **options):
        return new_capsule(ctypes.addressof(self.managed), b"dltensor", None)

    def __dlpack_device__(self):
        return self.claims, 0


@pytest.mark.parametrize(
    ("exporter", "says"),
    [
        (Exporter([-4]), "negative"),
        (Exporter([2, -2]), "negative"),
        (Exporter([1 << 62, 4]), "too big"),
        (Exporter([1 << 61]), "too big"),
        (Exporter([1] * 4, ndim=-1), "dimensions"),
        (Exporter([4], [1 << 60]), "elements lie from address"),
        (Exporter([4], [-(1 << 50)]), "elements lie from address"),
        (Exporter([4], offset=1 << 63), "elements lie from address"),
        (Exporter([4], address=0), "the address of 4 elements is 0"),
        (Exporter([4], claims=CUDA), "is said to lie on device"),
        (Exporter([4], device=CUDA), "not an array"),
        (Exporter([4], device=CUDA, claims=CPU), "not an array"),
        (Exporter([1] * 70), "not an array"),
        (Exporter([4], kind=(FLOAT, 32, 4)), "not an array"),
        (Exporter([4], kind=(FLOAT, 33, 1)), "not an array"),
        (Exporter([4], kind=(OPAQUE, 64, 1)), "not an array"),
        (Exporter([4], kind=(77, 32, 1)), "not an array"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_description_that_cannot_be_true_is_refused(exporter, says):
    for use in (rlx.asarray, rlx.exp, rlx.jit(lambda x: x + 1)):
        with pytest.raises(TraceError, match=says):
            use(exporter)


@pytest.mark.parametrize(
    ("exporter", "expected"),
    [
        (Exporter([4]), [0, 1, 2, 3]),
        (Exporter([2, 2], [8, 1]), [[0, 1], [8, 9]]),
        (Exporter([4], [0]), [0, 0, 0, 0]),
        (Exporter([4], [-1], offset=12), [3, 2, 1, 0]),
        (Exporter([0], address=0), []),
        (Exporter([], offset=8), 2),
    ],
    ids=["plain", "strided", "broadcast", "backwards", "empty", "scalar"],
)
def test_what_can_be_true_is_read(exporter, expected):
    np.testing.assert_array_equal(rlx.asarray(exporter), np.float32(expected))
    np.testing.assert_array_equal(rlx.jit(lambda x: x + 1)(exporter), np.float32(expected) + 1)


def test_results_that_no_memory_holds_are_out_of_memory():
    """A terabyte of one number takes no memory; what is computed of it would."""
    x = np.broadcast_to(np.float32(1), (1 << 45,))
    with pytest.raises(OutOfMemoryError, match="exp"):
        rlx.exp(x)
