"""Rows of the kernel table for matrix products by cuBLASLt with its epilogues; the option `cuda.products` enables them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from attrs import define, field

from rlx_core.codegen.places import Layout, Place
from rlx_core.emit.emitters import Call, Emitted
from rlx_core.emit.table import LIBRARY, DeviceTable
from rlx_core.ir.dtypes import DType, u8
from rlx_core.ir.graph import Node
from rlx_core.ir.op import Op
from rlx_core.ir.types import TensorType
from rlx_core.ops.fused_loop import FusedLoop
from rlx_core.ops.fused_matmul_epilogue import FusedMatMulEpilogue
from rlx_core.ops.linalg import MatMul
from rlx_core.pipeline.kernels import Condition
from rlx_cuda.cublaslt import Addresses, CublasLt, Plan
from rlx_cuda.epilogues import Epilogue, epilogue_of, refusal
from rlx_cuda.product_layouts import Part, Products, products_of

LT: Final = CublasLt()
"""The library, which is loaded by the first product."""

WORKSPACE: Final = 32 << 20
"""Bytes of workspace for partial sums: cuBLAS's default on sm_90. The steps of a program share it."""


def library_product_rows(table: DeviceTable, dtypes: Iterable[DType], *, tf32: bool = False) -> None:
    """Add the rows for products with priority over the generated ones, which remain as the fallback.

    Args:
        dtypes: Operand dtypes.
        tf32: Whether factors of f32 are rounded to ten bits of mantissa; the rows' names then end in `_tf32`.
    """
    is_offered = Condition("what cuBLASLt computes", lambda node: refusal(node) is None, refusal)

    def add(op: type[Op], name: str) -> None:
        def product(node: Node, layout: Layout) -> Emitted:
            """cuBLASLt, with sums in f32, or in f64 of f64."""
            epilogue = epilogue_of(node)
            assert isinstance(epilogue, Epilogue), "the row refuses others"
            return emitted(name, products_of(layout, epilogue, tf32=tf32), (*layout.operands, *layout.results))

        table.emitter(op, dtypes=dtypes, when=is_offered, priority=1, name=name, tier=LIBRARY)(product)

    suffix = "_tf32" if tf32 else ""
    add(MatMul, f"library_product{suffix}")
    add(FusedMatMulEpilogue, f"library_product_epilogue{suffix}")
    if not tf32:  # the library does not document how the sums are rounded
        add(FusedLoop, "library_product_sums")


def emitted(name: str, products: Products, values: Sequence[object]) -> Emitted:
    """Return the single call of a step; without copies it only enqueues work, so that it can be captured in a graph.

    Args:
        values: The step's operands and results; the workspace's buffer number follows theirs.
    """
    workspace = Place.dense(TensorType(u8, (WORKSPACE,)))
    buffers = (*(part.number for part in products.parts), len(values))
    places = (*(part.place for part in products.parts), workspace)
    may_wait = any(part.is_apart for part in products.parts)
    call = Call(name, 1, 1, buffers, places=places, run=Multiplying(products), may_wait=may_wait)
    return Emitted((), (call,), (WORKSPACE,))


@define(eq=False)
class Multiplying:
    """A callable that enqueues the products of a step on CuPy's current stream.

    Attributes:
        products: The products to compute.
        plans: The library's descriptors by device number.
    """

    products: Products
    plans: dict[int, Plan] = field(factory=dict)

    def __call__(self, cupy: Any, *arrays: Any) -> None:
        """Enqueue the products; `arrays` has an array for each part, then the workspace."""
        *matrices, workspace = arrays
        stream, device = cupy.cuda.get_current_stream().ptr, cupy.cuda.Device().id
        if device not in self.plans:
            self.plans[device] = Plan(LT, self.products.product)
        parts = self.products.parts
        taken = [_taken(cupy, part, array) for part, array in zip(parts, matrices, strict=True)]
        for offsets in self.products.rounds:
            addresses = {p.role: t.data.ptr + o for p, t, o in zip(parts, taken, offsets, strict=True)}
            self.plans[device].multiply(Addresses(**addresses), workspace.data.ptr, WORKSPACE, device, stream)
        for part, array, result in zip(parts, matrices, taken, strict=True):
            if part.is_apart and part.is_written:
                cupy.copyto(array, result)


def _taken(cupy: Any, part: Part, array: Any) -> Any:
    """Return the array that is passed to the library: `array` itself, or a dense copy or buffer."""
    if not part.is_apart:
        return array
    return cupy.ndarray(array.shape, array.dtype) if part.is_written else array.copy()
