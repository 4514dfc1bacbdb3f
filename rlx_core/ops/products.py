"""Products with more structure than `MatMul`: with a low-rank update of the weight, and with one weight per row's expert."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from rlx_core.errors import DtypeError, ShapeError
from rlx_core.hints.keywords import checked_call
from rlx_core.ir.apply import op_function
from rlx_core.ir.dims import Dim, product
from rlx_core.ir.dtypes import FLOATS, INTEGERS
from rlx_core.ir.graph import Value
from rlx_core.ir.op import ZERO, Op, Zero, define_op
from rlx_core.ir.protocols import EncodedArray
from rlx_core.ir.types import TensorType, expect_dtype, expect_rank, expect_shape, same_dim
from rlx_core.ops.arguments import flag
from rlx_core.ops.array_shapes import matrix_transpose
from rlx_core.ops.conversion import as_dtype, bilinear_jvp
from rlx_core.ops.creation import dim_value, iota
from rlx_core.ops.indexing import gather, scatter_add
from rlx_core.ops.kinds import promoted
from rlx_core.ops.linalg import adjoint, mat_mul, merge_leading, product_dtype
from rlx_core.ops.samples import Rejected, Sample
from rlx_core.ops.statistics import wide
from rlx_core.ops.structural import all_batched, reshape

if TYPE_CHECKING:
    from rlx_core.typing import Array, ArrayLike


@define_op(name="lora_matmul")
class LoraMatMul(Op):
    """A product with a weight and a low-rank update of it: `x·w + scale·((x·a)·b)`.

    Shapes:
        x: f[.., k]    w: f[k, n]    a: f[k, r]    b: f[r, n]    ->    y: f[.., n]

    Source:
        Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", arXiv:2106.09685, section 4.1.
    """

    category: ClassVar = "compute"
    scale: float = 1.0

    def prepare(self, x: Value, w: Value, a: Value, b: Value) -> tuple[Value | None, ...]:
        return promoted(x, w, a, b)

    def infer(self, x: TensorType, w: TensorType, a: TensorType, b: TensorType) -> TensorType:
        expect_dtype("x", x, FLOATS, "float")
        for name, factor in (("w", w), ("a", a), ("b", b)):
            expect_dtype(name, factor, (x.dtype,))
            expect_rank(name, factor, 2, 2)
        expect_rank("x", x, 2)
        expect_shape("w", w, (x.shape[-1], w.shape[1]))
        expect_shape("a", a, (x.shape[-1], a.shape[1]))
        expect_shape("b", b, (a.shape[1], w.shape[1]))
        return x.with_shape((*x.shape[:-1], w.shape[1]))

    def decompose(self, x: Value, w: Value, a: Value, b: Value) -> Value:
        data = wide(x)
        update = mat_mul(mat_mul(data, wide(a)), wide(b))
        return as_dtype(mat_mul(data, wide(w)) + update * self.scale, x.dtype)

    def cost(self, x: TensorType, w: TensorType, a: TensorType, b: TensorType) -> Dim:
        k, n, r = w.shape[0], w.shape[1], a.shape[1]
        return 2 * product(x.shape[:-1]) * (k * n + r * (k + n))

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in FLOATS:
            yield Sample(f"{d}[3, 4]", f"{d}[4, 5]", f"{d}[4, 2]", f"{d}[2, 5]", scale=0.5)
        yield Sample("f32[2, 3, 4]", "f32[4, 5]", "f32[4, 1]", "f32[1, 5]")
        yield Rejected("f32[3, 4]", "f32[4, 5]", "f32[4, 2]", "f32[3, 5]", error=ShapeError, says="b must be [2, 5]")
        yield Rejected("f32[3, 4]", "f32[3, 5]", "f32[4, 2]", "f32[2, 5]", error=ShapeError, says="w must be [4, 5]")
        yield Rejected(*["i32[2, 2]"] * 4, error=DtypeError, says="x must be float")


lora_matmul = op_function(LoraMatMul)


@define_op(name="grouped_matmul")
class GroupedMatMul(Op):
    """Each row times the weight of its expert: `y[i] = x[i] · w[idx[i]]`.

    Shapes:
        x: [m, k]    w: [e, k, n]    idx: int[m]    ->    y: [m, n]

    Raises:
        IndexRangeError (at run time): An expert is outside `0..e-1`.
    """

    category: ClassVar = "compute"
    jvp = bilinear_jvp

    def prepare(self, x: Value, w: Value, idx: Value) -> tuple[Value | None, ...]:
        return (*promoted(x, w), idx)

    def infer(self, x: TensorType, w: TensorType, idx: TensorType) -> TensorType:
        expect_rank("x", x, 2, 2)
        expect_rank("w", w, 3, 3)
        dtype = product_dtype(x, w, None)
        if not same_dim(x.shape[1], w.shape[1]):
            raise ShapeError(f"contracted dims differ ({x.shape[1]} != {w.shape[1]})")
        expect_dtype("idx", idx, INTEGERS, "an integer")
        expect_shape("idx", idx, x.shape[:1])
        return TensorType(dtype, (x.shape[0], w.shape[2]))

    def decompose(self, x: Value, w: Value, idx: Value) -> Value:
        rows = reshape(x, (x.shape[0], 1, x.shape[1]))
        return reshape(mat_mul(rows, gather(w, idx, axis=0)), (x.shape[0], w.shape[2]))

    def vjp(self, g: Value, x: Value, w: Value, idx: Value, *, y: Value) -> tuple[Value | Zero, ...]:
        dx = self(g, adjoint(w), idx)
        x_rows, g_rows = (reshape(v, (v.shape[0], 1, v.shape[1])) for v in (x, g))
        products = wide(mat_mul(adjoint(x_rows), g_rows))
        return dx, as_dtype(scatter_add(products, idx, axis=0, size=w.shape[0]), w.dtype), ZERO

    def batch(self, size: Dim, x: Sequence[Value], is_batched: Sequence[bool]) -> Value:
        rows, idx = all_batched(size, [x[0], x[2]], [is_batched[0], is_batched[2]])
        w = x[1]
        if is_batched[1]:
            # Experts of all examples in one table; every example's indices are shifted to its part of it.
            experts = w.shape[1]
            w = reshape(w, (size * experts, *w.shape[2:]))
            first = iota(axis=0, shape=(size, 1)) * dim_value(size=experts)
            idx = as_dtype(idx, first.dtype) + first
        y = self(merge_leading(rows), w, reshape(idx, (size * idx.shape[1],)))
        return reshape(y, (*rows.shape[:2], w.shape[2]))

    def cost(self, x: TensorType, w: TensorType, idx: TensorType) -> Dim:
        return 2 * x.size * w.shape[2]

    @classmethod
    def samples(cls) -> Iterator[Sample | Rejected]:
        for d in ("f32", "f64", "f16", "bf16", "c64", "i32"):
            yield Sample(f"{d}[5, 3]", f"{d}[2, 3, 4]", "i64[5]", ranges={"idx": (0, 1)})
        yield Sample("f64[4, 3]", "f64[3, 3, 2]", "u8[4]", ranges={"idx": (0, 2)})
        yield Sample("f32[0, 3]", "f32[2, 3, 4]", "i64[0]")
        yield Rejected("f32[5, 3]", "f32[2, 4, 4]", "i64[5]", error=ShapeError, says="3 != 4")
        yield Rejected("f32[5, 3]", "f32[2, 3, 4]", "f32[5]", error=DtypeError, says="idx must be an integer")
        yield Rejected("f32[5, 3]", "f32[2, 3, 4]", "i64[4]", error=ShapeError, says="idx must be [5]")


grouped_mat_mul = op_function(GroupedMatMul)


@checked_call
def grouped_matmul(
    x: ArrayLike, w: ArrayLike | EncodedArray, idx: ArrayLike, *, is_transposed: bool = False, name: str | None = None
) -> Array:
    """Each row times the weight of its expert: `y[i] = x[i] · w[idx[i]]`.

    On the CPU, a compiled program reads the weights of the experts that rows have, and of a quantised array its codes and
    scales. Neighbouring rows of one expert are multiplied together, so that many rows are best sorted by expert.

    Args:
        x: Rows `[m, k]`.
        w: Weights `[e, k, n]`, or a quantised array, whose values are computed.
        idx: The expert of each row, `int[m]`.
        is_transposed: Whether weights are `[e, n, k]`, as those of linear layers and of files.

    Raises:
        ShapeError, DtypeError: Operands have other shapes, or experts are not integers.
        IndexRangeError (at run time): An expert is outside `0..e-1`.

    >>> import rlx_core as rlx
    >>> rlx.grouped_matmul(np.float32([[1], [1], [2]]), np.float32([[[3]], [[5]]]), np.int32([1, 0, 1])).tolist()
    [[5.0], [3.0], [10.0]]
    """
    transposed = flag("grouped_matmul: is_transposed", is_transposed)
    weights = w.dequantize() if isinstance(w, EncodedArray) else w
    return cast("Array", grouped_mat_mul(x, matrix_transpose(weights) if transposed else weights, idx, name=name))
