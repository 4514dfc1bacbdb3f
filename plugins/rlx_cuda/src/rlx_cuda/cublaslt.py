"""cuBLASLt through ctypes: one matrix product with its epilogue, on memory and a stream of the caller.

The library's matrices are column-major. A row-major matrix is the transpose of a column-major one, so `y = x·w` is computed as
`yᵀ = wᵀ·xᵀ`: the library's A is w, its B is x, and a bias is added to its rows; the gradient of a bias is written to the address
of the bias. This module does not import CuPy. Products are described as data: only `Plan` and `multiply` call the library.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterator
from ctypes import (
    POINTER,
    byref,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from functools import cached_property, partial
from typing import Any, Final

from attrs import define, field, frozen

from rlx_core.device.libraries import first_that_loads
from rlx_core.errors import Fact, KernelBuildError
from rlx_cuda.libraries import paths_of

# Constants of cublasLt.h and library_types.h, where their names have the prefixes CUDA_, CUBLAS_ and CUBLASLT_.
R_32F, R_64F, R_16F, R_16BF = 0, 1, 2, 14
COMPUTE_32F, COMPUTE_64F, COMPUTE_32F_FAST_TF32 = 68, 70, 77
EPILOGUE_DEFAULT, EPILOGUE_RELU, EPILOGUE_BIAS, EPILOGUE_GELU, EPILOGUE_AUX, EPILOGUE_DGELU = 1, 2, 4, 32, 128, 192
EPILOGUE_DGELU_BGRAD, EPILOGUE_BGRADA, EPILOGUE_BGRADB = 208, 256, 512
LAYOUT_BATCH_COUNT, LAYOUT_STRIDED_BATCH_OFFSET = 5, 6
DESC_TRANSA, DESC_TRANSB, DESC_EPILOGUE, DESC_BIAS_POINTER = 3, 4, 7, 8
DESC_EPILOGUE_AUX_POINTER, DESC_EPILOGUE_AUX_LD, DESC_EPILOGUE_AUX_BATCH_STRIDE = 11, 12, 13
PREF_MAX_WORKSPACE_BYTES, PREF_REDUCTION_SCHEME_MASK, PREF_MIN_ALIGNMENT_A_BYTES = 1, 3, 5
REDUCTION_SCHEME_COMPUTE_TYPE = 2

PACKAGES: Final = ("nvidia-cublas", "nvidia-cublas-cu12")
"""Wheels that contain the library."""

ALIGNMENT: Final = 256
"""The largest alignment of a matrix, in bytes, that affects which algorithms are available."""


@frozen
class Matrix:
    """A column-major matrix, or a strided batch of matrices.

    Attributes:
        dtype: The library's number of the dtype.
        rows, columns: The size.
        ld: The leading dimension: elements from one column to the next.
        is_transposed: Whether the transpose is multiplied.
        batch: The number of matrices.
        stride: Elements from one matrix of the batch to the next.
    """

    dtype: int
    rows: int
    columns: int
    ld: int
    is_transposed: bool = False
    batch: int = 1
    stride: int = 0


@frozen
class Product:
    """`D = epilogue(A·B + C)`.

    Attributes:
        compute, scale: The library's numbers of the accumulation type, and of the dtype of the scale factors 1 and 0.
        a, b, d: The matrices.
        c: The matrix that is added to the sums, or `None`.
        epilogue: The library's number of the epilogue.
        aux: Leading dimension and batch stride, in elements, of the auxiliary matrix that the epilogue stores or loads.
    """

    compute: int
    scale: int
    a: Matrix
    b: Matrix
    d: Matrix
    c: Matrix | None = None
    epilogue: int = EPILOGUE_DEFAULT
    aux: tuple[int, int] | None = None


@frozen
class Addresses:
    """The addresses of all matrices; 0 for absent ones."""

    a: int
    b: int
    d: int
    c: int = 0
    bias: int = 0
    aux: int = 0

    def alignments(self) -> tuple[int, ...]:
        """Return the alignment of each address in bytes, at most `ALIGNMENT`."""
        return tuple(
            min(address & -address, ALIGNMENT)
            for address in (self.a, self.b, self.c or self.d, self.d, self.bias, self.aux)
        )


class Algorithm(ctypes.Structure):
    """A result of the heuristic (`cublasLtMatmulHeuristicResult_t`): algorithm, its workspace in bytes, and its status."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


@define(eq=False, slots=False)
class CublasLt:
    """The cuBLASLt library.

    Attributes:
        paths: Candidate paths of the library, best first.
    """

    paths: Callable[[], Iterator[str]] = field(factory=lambda: partial(paths_of, "cublasLt", PACKAGES))
    _handles: dict[int, c_void_p] = field(factory=dict, init=False)

    @cached_property
    def library(self) -> Any:
        """The first library of `paths` that loads.

        Raises:
            DeviceUnavailableError: No library loads.
        """
        missing = "cuda: cuBLASLt, which multiplies matrices where an option says so,"
        library = first_that_loads(self.paths(), missing, "python -m pip install nvidia-cublas")
        library.cublasLtGetStatusName.restype = c_char_p
        library.cublasLtMatrixLayoutCreate.argtypes = [POINTER(c_void_p), c_int, c_uint64, c_uint64, c_int64]
        return library

    def handle(self, device: int) -> c_void_p:
        """Return the library handle for a device, which must be the current one; threads may share the handle."""
        if device not in self._handles:
            handle = c_void_p()
            self.call("Create", byref(handle))
            self._handles[device] = handle
        return self._handles[device]

    def call(self, name: str, *arguments: object) -> None:
        """Call a function of the library.

        Raises:
            KernelBuildError: The function returns an error status.
        """
        status = getattr(self.library, f"cublasLt{name}")(*arguments)
        if status:
            status_name = self.library.cublasLtGetStatusName(c_int(status)).decode()
            raise KernelBuildError(
                "cuda: cuBLASLt does not multiply",
                Fact(f"cublasLt{name}", status_name),
                hint='cuda.products = "generated"',
            )

    def made(self, what: str, *arguments: object) -> c_void_p:
        """Create a descriptor."""
        descriptor = c_void_p()
        self.call(f"{what}Create", byref(descriptor), *arguments)
        return descriptor

    def set(self, what: str, descriptor: c_void_p, attribute: int, value: Any) -> None:
        """Set an attribute of a descriptor to a value of ctypes."""
        self.call(f"{what}SetAttribute", descriptor, c_int(attribute), byref(value), c_size_t(ctypes.sizeof(value)))

    def matrix(self, matrix: Matrix) -> c_void_p:
        """Return the layout descriptor of a matrix."""
        sizes = c_uint64(matrix.rows), c_uint64(matrix.columns), c_int64(matrix.ld)
        layout = self.made("MatrixLayout", c_int(matrix.dtype), *sizes)
        if matrix.batch > 1:
            self.set("MatrixLayout", layout, LAYOUT_BATCH_COUNT, c_int32(matrix.batch))
            self.set("MatrixLayout", layout, LAYOUT_STRIDED_BATCH_OFFSET, c_int64(matrix.stride))
        return layout


class Plan:
    """The library's descriptors of a product.

    Attributes:
        a, b, c, d: Layout descriptors of the matrices.
        operation: The operation descriptor, which includes the addresses of the bias and of the auxiliary matrix.
    """

    def __init__(self, library: CublasLt, product: Product) -> None:
        self.library, self.product = library, product
        self.a, self.b, self.d = (library.matrix(each) for each in (product.a, product.b, product.d))
        self.c = library.matrix(product.c) if product.c is not None else self.d
        self.operation = library.made("MatmulDesc", c_int(product.compute), c_int(product.scale))
        layouts = {each.value for each in (self.a, self.b, self.c, self.d)}
        weakref.finalize(self, _destroy, library, layouts, self.operation).atexit = False
        self._set(DESC_TRANSA, c_int32(product.a.is_transposed))
        self._set(DESC_TRANSB, c_int32(product.b.is_transposed))
        self._set(DESC_EPILOGUE, c_uint32(product.epilogue))
        if product.aux is not None:
            ld, stride = product.aux
            self._set(DESC_EPILOGUE_AUX_LD, c_int64(ld))
            self._set(DESC_EPILOGUE_AUX_BATCH_STRIDE, c_int64(stride))
        wide = c_double if product.scale == R_64F else c_float
        self._one, self._added = wide(1), wide(product.c is not None)
        self._algorithms: dict[tuple[int, ...], Algorithm] = {}

    def multiply(self, addresses: Addresses, workspace: int, nbytes: int, device: int, stream: int) -> None:
        """Enqueue the product on a stream of the current device, without synchronisation and without allocation.

        Args:
            workspace, nbytes: Scratch memory that only this product uses.

        Raises:
            KernelBuildError: The library has no algorithm for the product, or rejects it.
        """
        handle = self.library.handle(device)
        self.point(addresses)
        key = (device, nbytes, *addresses.alignments())
        if key not in self._algorithms:
            self._algorithms[key] = self._chosen(handle, addresses, nbytes)
        self.library.call(
            "Matmul", handle, self.operation,
            byref(self._one), c_void_p(addresses.a), self.a, c_void_p(addresses.b), self.b,
            byref(self._added), c_void_p(addresses.c or addresses.d), self.c, c_void_p(addresses.d), self.d,
            byref(self._algorithms[key]), c_void_p(workspace), c_size_t(nbytes), c_void_p(stream),
        )  # fmt: skip

    def point(self, addresses: Addresses) -> None:
        """Set the addresses of the bias (or its gradient) and of the auxiliary matrix: the heuristic reads their alignment."""
        if addresses.bias:
            self._set(DESC_BIAS_POINTER, c_void_p(addresses.bias))
        if addresses.aux:
            self._set(DESC_EPILOGUE_AUX_POINTER, c_void_p(addresses.aux))

    def preference(self, addresses: Addresses, nbytes: int) -> c_void_p:
        """Return the preference descriptor: workspace limit, reduction scheme and alignments that an algorithm must respect."""
        descriptor = self.library.made("MatmulPreference")
        set = partial(self.library.set, "MatmulPreference", descriptor)
        set(PREF_MAX_WORKSPACE_BYTES, c_uint64(nbytes))
        # Partial sums are reduced in the accumulation type and in a fixed order, never in the dtype of the result.
        set(PREF_REDUCTION_SCHEME_MASK, c_uint32(REDUCTION_SCHEME_COMPUTE_TYPE))
        for number, alignment in enumerate(addresses.alignments()[:4]):
            set(PREF_MIN_ALIGNMENT_A_BYTES + number, c_uint32(alignment))
        return descriptor

    def _chosen(self, handle: c_void_p, addresses: Addresses, nbytes: int) -> Algorithm:
        """Return the algorithm that the library's heuristic ranks first."""
        algorithm, count, preference = Algorithm(), c_int(), self.preference(addresses, nbytes)
        matrices = (self.a, self.b, self.c, self.d)
        name, arguments = "MatmulAlgoGetHeuristic", (preference, c_int(1), byref(algorithm), byref(count))
        try:
            self.library.call(name, handle, self.operation, *matrices, *arguments)
        finally:
            self.library.call("MatmulPreferenceDestroy", preference)
        if count.value == 0 or algorithm.state:
            raise KernelBuildError(
                "cuda: cuBLASLt has no algorithm for a product",
                Fact("product", str(self.product)),
                hint='cuda.products = "generated"',
            )
        return algorithm

    def _set(self, attribute: int, value: Any) -> None:
        self.library.set("MatmulDesc", self.operation, attribute, value)


def _destroy(library: CublasLt, layouts: set[int | None], operation: c_void_p) -> None:
    for each in layouts:
        library.call("MatrixLayoutDestroy", c_void_p(each))
    library.call("MatmulDescDestroy", operation)
