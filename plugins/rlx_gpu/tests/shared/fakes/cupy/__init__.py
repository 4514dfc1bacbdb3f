"""CuPy's names that rlx uses, over this machine's memory: what a device would do happens when somebody waits, stream by stream.

Streams are lists of what was asked for. Waiting for one runs it, and of the others only what it was told to wait for, so that
an order which nobody asked for is not there. Kernels are CUDA C compiled as C++ (`rlx_gpu.testing.shim`), which is what modules
are loaded from here instead of CUBINs.
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from cupy import cuda

__version__ = "0.0"


class Flags:
    def __init__(self, c_contiguous: bool) -> None:
        self.c_contiguous = c_contiguous


class ndarray:
    def __init__(self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        if self.dtype.kind == "V":
            raise ValueError(f"unsupported dtype {self.dtype}")
        self.size, self.ndim = int(np.prod(self.shape)), len(self.shape)
        dense = np.empty(self.shape, self.dtype).strides
        self.strides = tuple(strides or dense)
        self.data = memptr or cuda.alloc(builtins.max(self.size * self.dtype.itemsize, 1))
        self.flags = Flags(self.strides == dense)

    @property
    def device(self) -> Any:
        return self.data.device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if cuda.world.is_hip:
            raise AttributeError("HIP has no such interface")
        data = (self.data.ptr, False)
        return {"shape": self.shape, "typestr": self.dtype.str, "data": data, "version": 3, "strides": self.strides}

    def __dlpack_device__(self) -> tuple[int, int]:
        return 10 if cuda.world.is_hip else 2, self.data.device_id

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        if stream not in (None, -1):
            cuda.stream_of(stream or 1).wait_event(cuda.get_current_stream().record())
        return "dltensor", self

    def get(self) -> np.ndarray:
        dense, host = ascontiguousarray(self), np.empty(self.shape, self.dtype)
        stream = cuda.get_current_stream()
        cuda.runtime.memcpyAsync(
            host.ctypes.data, dense.data.ptr, host.nbytes, cuda.runtime.memcpyDeviceToHost, stream.ptr
        )
        stream.synchronize()
        return host

    def all(self, axis: Any = None, keepdims: bool = False) -> ndarray:
        return like(np.all)(self, axis=axis, keepdims=keepdims)  # type: ignore[no-any-return]

    def any(self) -> ndarray:
        return like(np.any)(self)  # type: ignore[no-any-return]

    def __bool__(self) -> bool:
        return bool(self.get())

    def swapaxes(self, a: int, b: int) -> ndarray:
        return like(np.swapaxes)(self, a, b)  # type: ignore[no-any-return]

    def copy(self) -> ndarray:
        return computed(np.array, self.shape, self.dtype, self)

    def reshape(self, shape: Any) -> ndarray:
        return computed(lambda x: x.reshape(shape), shape, self.dtype, self)

    def astype(self, dtype: Any, copy: bool = True) -> ndarray:
        return computed(lambda x: x.astype(dtype), self.shape, dtype, self)

    def __getitem__(self, key: Any) -> ndarray:
        """Views by slices, as NumPy makes them."""
        base = np.lib.stride_tricks.as_strided(np.empty(1, self.dtype), self.shape, self.strides)
        view = base[key]
        start = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        return ndarray(
            view.shape, self.dtype, cuda.memory.MemoryPointer(self.data.mem, self.data.offset + start), view.strides
        )


def array(data: np.ndarray) -> ndarray:
    made = ndarray(data.shape, data.dtype)
    held = np.ascontiguousarray(data)
    stream = cuda.get_current_stream()
    cuda.runtime.memcpyAsync(made.data.ptr, held.ctypes.data, held.nbytes, cuda.runtime.memcpyHostToDevice, stream.ptr)
    stream.synchronize()
    return made


def asarray(data: Any) -> ndarray:
    if isinstance(data, ndarray):
        return data
    if isinstance(data, np.ndarray):
        return array(data)
    said = data.__cuda_array_interface__
    dtype, shape = np.dtype(said["typestr"]), said["shape"]
    if said.get("stream"):
        cuda.get_current_stream().wait_event(cuda.stream_of(said["stream"]).record())
    owned = cuda.memory.UnownedMemory(said["data"][0], dtype.itemsize * int(np.prod(shape)), data)
    return ndarray(shape, dtype, cuda.memory.MemoryPointer(owned, 0), said.get("strides"))


def from_dlpack(data: Any) -> ndarray:
    """CuPy's: whoever exports is told the current stream, and has it wait."""
    assert data.__dlpack_device__()[0] in ((10,) if cuda.world.is_hip else (2, 13))
    _, found = data.__dlpack__(stream=cuda.get_current_stream().ptr or (0 if cuda.world.is_hip else 1))
    if found.dtype.kind == "V":
        raise BufferError("unsupported dtype")
    return found  # type: ignore[no-any-return]


def computed(function: Any, shape: Any, dtype: Any, *operands: Any, into: Any = None, name: Any = None) -> ndarray:
    """An array of what a function of NumPy's arrays gives, once the current stream comes to it."""
    made = ndarray(shape, dtype) if into is None else into

    def work() -> None:
        given = [_seen(x) if isinstance(x, ndarray) else x for x in operands]
        _seen(made)[...] = function(*given)

    cuda.world.records.append(("library", getattr(name or function, "__name__", "")))
    cuda.get_current_stream().ask(work)
    return made


def _seen(x: ndarray) -> np.ndarray:
    """The memory of the device as an array of NumPy's, from its lowest byte on."""
    spans = [s * (d - 1) for d, s in zip(x.shape, x.strides, strict=True)] if x.size else []
    low, high = sum(s for s in spans if s < 0), sum(s for s in spans if s > 0)
    raw = cuda.world.at(x.data.ptr + low, high - low + x.dtype.itemsize)
    return np.ndarray(x.shape, x.dtype, raw, -low, x.strides)


nan = float("nan")


def like(function: Any) -> Any:
    """A function of NumPy's on arrays of the device, for the current stream to come to.

    What it gives is known beforehand by trying it on units, which everything in linear algebra is defined for.
    """

    def lazily(*operands: Any, **options: Any) -> Any:
        def units(x: Any) -> Any:
            if not isinstance(x, ndarray):
                return x
            if x.dtype.kind == "i":  # places
                return np.zeros(x.shape, x.dtype)
            return np.zeros(x.shape, x.dtype) + (np.eye(*x.shape[-2:], dtype=x.dtype) if x.ndim > 1 else 1)

        with np.errstate(all="ignore"):
            tried = function(*map(units, operands), **options)
        if not isinstance(tried, tuple):
            return computed(lambda *x: function(*x, **options), tried.shape, tried.dtype, *operands, name=function)
        parts = [
            computed(lambda *x, k=k: function(*x, **options)[k], t.shape, t.dtype, *operands, name=function)
            for k, t in enumerate(tried)
        ]
        return tuple(parts)

    return lazily


isfinite, where, diagonal, sign, abs = map(like, (np.isfinite, np.where, np.diagonal, np.sign, np.abs))
argmax, max, take_along_axis = map(like, (np.argmax, np.max, np.take_along_axis))
for _name in ("__add__", "__mul__", "__rmul__", "__lt__", "__ge__", "__eq__"):
    setattr(ndarray, _name, like(getattr(np.ndarray, _name)))


def eye(n: int, m: int, dtype: Any) -> ndarray:
    return array(np.eye(n, m, dtype=dtype))


def copyto(into: ndarray, x: ndarray) -> None:
    computed(np.array, None, None, x, into=into)


def _divided(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What cuSOLVER leaves: where a matrix is singular it divides by a pivot of 0."""
    found = np.full(b.shape, np.inf, b.dtype)
    for at in np.ndindex(a.shape[:-2]):
        if np.linalg.matrix_rank(a[at]) == a.shape[-1]:
            found[at] = np.linalg.solve(a[at], b[at])
    return found


def factored(function: Any, strict: Any = None) -> Any:
    """A factorization, which waits and fails where it is asked to."""

    def made(*operands: Any, **options: Any) -> Any:
        if cuda.world.raises:
            (strict or function)(*(x.get() for x in operands), **options)
        return like(function)(*operands, **options)

    return staticmethod(made)


class linalg:
    solve = factored(_divided, np.linalg.solve)
    cholesky, qr, eigh, svd, slogdet = (
        factored(getattr(np.linalg, n)) for n in ("cholesky", "qr", "eigh", "svd", "slogdet")
    )


class fft:
    """In the precision of the operand, as cuFFT is."""

    fftn, ifftn, rfftn, irfftn = (staticmethod(like(getattr(np.fft, n))) for n in ("fftn", "ifftn", "rfftn", "irfftn"))


def ascontiguousarray(data: ndarray) -> ndarray:
    if data.flags.c_contiguous:
        return data
    made, stream = ndarray(data.shape, data.dtype), cuda.get_current_stream()

    def move() -> None:
        into, out = (cuda.world.at(x.data.ptr, x.dtype.itemsize) for x in (made, data))
        np.lib.stride_tricks.as_strided(into.view(made.dtype), made.shape, made.strides)[...] = (
            np.lib.stride_tricks.as_strided(out.view(data.dtype), data.shape, data.strides)
        )

    stream.ask(move)
    return made
