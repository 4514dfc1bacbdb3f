"""The kernel table's rows for products by cuBLASLt, where an option says so, with what follows as the library computes it."""

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
from rlx_core.pipeline.select.kernels import Condition
from rlx_cuda.cublaslt import Addresses, CublasLt, Plan
from rlx_cuda.epilogues import Epilogue, epilogue_of, refusal
from rlx_cuda.product_layouts import Part, Products, products_of

__all__ = ["LT", "library_product_rows"]

LT: Final = CublasLt()
"""The library, which is loaded when a product is asked for."""

WORKSPACE: Final = 32 << 20
"""Bytes for partial sums: what cuBLAS takes for itself on sm_90. The steps of a program share them."""


def library_product_rows(table: DeviceTable, dtypes: Iterable[DType], *, tf32: bool = False) -> None:
    """Add the rows for products, in front of the generated ones, which compute what these refuse.

    Args:
        dtypes: Of operands.
        tf32: Whether factors of f32 are rounded to ten bits of mantissa; the rows are called so.
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
    if not tf32:  # nothing says how the sums would be rounded
        add(FusedLoop, "library_product_sums")


def emitted(name: str, products: Products, own: Sequence[object]) -> Emitted:
    """The one call that a step becomes; where nothing has to be copied it only asks for work, so that it may be recorded.

    Args:
        own: The step's operands and results, after which its workspace is numbered.
    """
    room = Place.dense(TensorType(u8, (WORKSPACE,)))
    buffers = (*(part.number for part in products.parts), len(own))
    places = (*(part.place for part in products.parts), room)
    may_wait = any(part.is_apart for part in products.parts)
    call = Call(name, 1, 1, buffers, places=places, run=Multiplying(products), may_wait=may_wait)
    return Emitted((), (call,), (WORKSPACE,))


@define(eq=False)
class Multiplying:
    """Products that are asked for on CuPy's current stream.

    Attributes:
        plans: The library's descriptors, by the number of a device.
    """

    products: Products
    plans: dict[int, Plan] = field(factory=dict)

    def __call__(self, cupy: Any, *arrays: Any) -> None:
        """Ask for them, given an array for each part and the workspace."""
        *given, workspace = arrays
        stream, device = cupy.cuda.get_current_stream().ptr, cupy.cuda.Device().id
        if device not in self.plans:
            self.plans[device] = Plan(LT, self.products.product)
        parts = self.products.parts
        taken = [_taken(cupy, part, array) for part, array in zip(parts, given, strict=True)]
        for offsets in self.products.rounds:
            at = {p.role: t.data.ptr + o for p, t, o in zip(parts, taken, offsets, strict=True)}
            self.plans[device].multiply(Addresses(**at), workspace.data.ptr, WORKSPACE, device, stream)
        for part, array, made in zip(parts, given, taken, strict=True):
            if part.is_apart and part.is_written:
                cupy.copyto(array, made)


def _taken(cupy: Any, part: Part, array: Any) -> Any:
    """What the library is given of an array."""
    if not part.is_apart:
        return array
    return cupy.ndarray(array.shape, array.dtype) if part.is_written else array.copy()
