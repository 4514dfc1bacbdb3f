"""Products of dequantised codes as products of the codes, which are scaled afterwards: regions of ONNX's QuantizeLinear format.

`((p - a)·s) @ ((q - b)·t) = ((p - a) @ (q - b))·(s·t)` with one scale s and one scale t for each column. The right side is exact
up to the scaling; the left side rounds each product and each sum. What follows, for example a bias and the rounding to codes of
the next layer, is the epilogue of the integer product.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rlx_core.ir.dtypes import f32, i8, i32
from rlx_core.ir.graph import Graph, Node, Value, probe
from rlx_core.ir.rewrite import rebuild
from rlx_core.ops.bitwise import bitwise_xor
from rlx_core.ops.conversion import as_dtype
from rlx_core.ops.linalg import MatMul
from rlx_core.ops.structural import Transpose, sum_axes
from rlx_core.passes.dequantised import MAX_TERMS, Dequantised, one_number, scaled_codes, unreshaped
from rlx_core.passes.engine.base import LOWERED, Context, Conversion, Pass, Result, define_pass, each_graph
from rlx_core.passes.engine.fusion import refusal_of
from rlx_core.system.records import evolve


@define_pass("integer-products")
class IntegerProducts(Pass):
    """Multiply codes where both factors of a product or a convolution are dequantised codes, if that is faster than f32.

    The left factor has one scale and zero point, the right one, a matrix, has them for all of it or for each column, or,
    of a convolution, for each result. The report of the compilation lists each of them.
    """

    requires: ClassVar = frozenset({LOWERED})

    def run(self, graph: Graph, context: Context) -> Result:
        return each_graph(graph, lambda each: with_integer_operations(each, context))


def with_integer_operations(graph: Graph, context: Context) -> Result:
    """Return a graph with products and convolutions of codes."""
    products = with_integer_products(graph, context)
    if not any(n.op.name == "rlx.conv" for n in products.graph.nodes):
        return products
    from rlx_core.passes.integer_convolutions import with_integer_convolutions  # for programs that have them

    return products.then(with_integer_convolutions(products.graph, context))


def with_integer_products(graph: Graph, context: Context) -> Result:
    """Return a graph with products of codes, and an entry of the report for each product of dequantised codes."""
    products = {n: p for n in graph.nodes if isinstance(n.op, MatMul) and (p := factors_of(n)) is not None}
    reasons = {n: reason_against(n, *factors, context) for n, factors in products.items()}
    entries = [entry_of(n, *factors, reasons[n]) for n, factors in products.items()]
    if all(reason is not None for reason in reasons.values()):
        return Result(graph, graph.identity, conversions=entries)

    def replace(node: Node, operands: tuple[Value | None, ...]) -> Value | None:
        if reasons.get(node, "") is not None:
            return None
        x, w = (dequantised(v) for v in operands if v is not None)
        assert x is not None and w is not None, "they are copies of those that were matched"  # noqa: PT018
        return product_of_codes(x, w)

    rebuilt, values = rebuild(graph, replace, by=IntegerProducts.name)
    converted = sum(reason is None for reason in reasons.values())
    return Result(rebuilt, values, {"converted": converted}, conversions=entries)


def factors_of(product: Node) -> tuple[Dequantised, Dequantised] | None:
    """Return both factors of a product as codes, or `None` if they are not."""
    x, w = product.present()
    if w.ndim != 2 or x.dtype is not f32 or not w.type.is_static:
        return None
    left, right = dequantised(x), dequantised(w)
    if left is None or right is None or not left.varies_along(columns=False) or not right.varies_along(columns=True):
        return None
    return left, right


def dequantised(value: Value) -> Dequantised | None:
    """Return a value, or a matrix that it is the transpose of, as codes; `None` if it is not computed from codes."""
    value = unreshaped(value)
    if isinstance(value.node.op, Transpose) and value.ndim == 2 and tuple(value.node.op.perm) == (1, 0):
        matrix = scaled_codes(unreshaped(next(value.node.present())))
        return None if matrix is None else evolve(matrix, is_transposed=True)
    return scaled_codes(value)


def reason_against(node: Node, x: Dequantised, w: Dequantised, context: Context) -> str | None:
    """Return why a product of dequantised codes stays one of f32; `None` if the codes are multiplied."""
    terms, target = w.codes.type.static_shape[-1 if w.is_transposed else 0], context.target
    if terms > MAX_TERMS:
        return f"i32 does not hold sums of {terms} products of codes"
    if target is None:
        return None
    types = [v.codes.type.with_shape(v.shape).with_dtype(i8) for v in (x, w)]
    refusal = refusal_of(context, probe(MatMul(acc_dtype=i32), types))
    if refusal is not None:
        return refusal.reason
    return None if i8 in target.fast_products else f"{target.name} multiplies f32 faster than i8"


def entry_of(node: Node, x: Dequantised, w: Dequantised, reason: str | None) -> Conversion:
    """Return the report's entry for a product."""
    nbytes = w.codes.type.static_nbytes
    what = f"product {x.codes.type.with_shape(x.shape)} @ {w.codes.type.with_shape(w.shape)}"
    return Conversion(IntegerProducts.name, node.label, what, reason, nbytes, nbytes)


def product_of_codes(x: Dequantised, w: Dequantised) -> Value:
    """Return the product of two factors from the product of their codes.

    The codes are multiplied as i8; sums of rows and columns account for zero points, as in `rlx.quantization.quantized_matmul`.
    """
    (p, a), (q, b) = signed(x), signed(w)
    sums = MatMul(acc_dtype=i32)(p, q)
    wide = as_dtype(q, i32) if b is None else as_dtype(q, i32) - b
    if b is not None:
        sums = sums - sum_axes(as_dtype(p, i32), axes=(-1,), keep_dim=True) * b
    if a is not None:
        sums = sums - sum_axes(wide, axes=(0,)) * a
    return as_dtype(sums, f32) * (one_number(x.oriented(x.scale)) * w.oriented(w.scale))


def signed(x: Dequantised) -> tuple[Value, Any]:
    """Return codes as i8 and the zero point of these, in i32, or `None` for 0; the difference is the same."""
    zero: Any = None if x.zero is None else as_dtype(x.oriented(x.zero), i32)
    codes = x.oriented(x.codes)
    if codes.dtype is i8:
        return codes, zero
    moved = as_dtype(bitwise_xor(codes, np.uint8(128)), i8)
    return moved, np.int32(-128) if zero is None else zero - np.int32(128)
