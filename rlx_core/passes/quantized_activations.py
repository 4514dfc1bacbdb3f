"""Products of f32 activations with dequantised weights as products of codes: activations are rounded to i8 in blocks.

A weight of most quantisation schemes is `codes·scales + offsets`, with one scale and one offset for each block of the contracted
axis. Activations have one scale for each row and block, `s = max|x| / 127`, computed in every run, and codes `round(x / s)`;
`BlockScaledMatMul` multiplies the codes, with exact sums in each block. The form is recognised in the program, whichever scheme
it comes from.
"""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

import numpy as np
from attrs import field as attribute
from attrs.validators import ge

from rlx_core.ir.dtypes import f16, f32, i8, u8
from rlx_core.ir.graph import Constant, Graph, Node, Param, Value, probe
from rlx_core.ir.types import TensorType
from rlx_core.ops.arithmetic import add, multiply, subtract
from rlx_core.ops.bitwise import bitwise_and, bitwise_left_shift, bitwise_or, bitwise_right_shift
from rlx_core.ops.block_scaled import BlockScaledMatMul
from rlx_core.ops.conversion import Cast, as_dtype
from rlx_core.ops.fused import FusedMatMulBiasAct, activated
from rlx_core.ops.linalg import MatMul, reshaped
from rlx_core.ops.movement import Narrow
from rlx_core.ops.selection import Where
from rlx_core.ops.structural import Reshape, Transpose
from rlx_core.passes.dynamic_int8 import codes as codes_of_rows
from rlx_core.passes.engine.base import LOWERED, Context, Conversion, Pass, Result, define_pass, each_graph, field
from rlx_core.passes.engine.bound_values import bound_nodes, leaves_of
from rlx_core.passes.engine.conversions import converted
from rlx_core.passes.engine.fusion import both_orders, refusal_of
from rlx_core.system.records import frozen

MOST_BITS_OPS = 16
"""Operations in a row by which codes of a scheme are made from bytes, at most: K-quants have nine."""

SMALL_COLUMNS = 64
"""Columns of a weight below which a product is kept by default: rounding its rows takes as long as it saves."""


@define_pass("quantized-activations")
class QuantizedActivations(Pass):
    """Multiply codes where a weight is dequantised in blocks along the contracted axis, with activations rounded to i8.

    The report of the compilation lists each product that is converted, with the bytes of its weight before and after, and each
    product by a matrix that is not, with the reason.

    Attributes:
        min_columns: The smallest n of a product `[.., m, k] @ [k, n]` that is converted.
    """

    requires: ClassVar = frozenset({LOWERED})
    gives_up: ClassVar = "rounding to eight bits"

    min_columns: int = field(default=SMALL_COLUMNS, validator=ge(1))

    def run(self, graph: Graph, context: Context) -> Result:
        return each_graph(graph, lambda each: ActivationQuantization(each, context, self).result)


@frozen(eq=False)
class BlockForm:
    """A matrix `[n, k]` as `(codes - zero_point)·scales ± offset`, all of them in the order of its elements.

    Attributes:
        codes: i8 or u8, with as many elements as the matrix.
        block: Elements of a block.
        scales: f16 or f32, one for each block.
        zero_point: f32, one number, or one for each block; `None` for 0.
        offset: f32, one for each block; `None` for 0.
        is_subtracted: Whether the offset is.
    """

    codes: Value
    block: int
    scales: Value
    zero_point: Value | None = None
    offset: Value | None = None
    is_subtracted: bool = False

    @cached_property
    def bits(self) -> int:
        """Bits of a code, as many as are known to be enough."""
        return 8 if self.codes.dtype is i8 else max(2, largest(self.codes).bit_length())

    @property
    def op(self) -> BlockScaledMatMul:
        """The product by such a matrix."""
        return BlockScaledMatMul(bits=self.bits, zero=self.zero)

    @cached_property
    def zero(self) -> int:
        """The zero point, if it is one known integer that codes of u8 may have; else 0."""
        number = None if self.zero_point is None or self.codes.dtype is i8 else number_of(self.zero_point)
        return int(number) if number is not None and number in range(256) else 0

    @property
    def has_offsets(self) -> bool:
        return self.offset is not None or (self.zero_point is not None and not self.zero)

    def types(self, n: int, k: int) -> tuple[TensorType, ...]:
        """Return the types of `operands`."""
        blocks = n, k // self.block
        codes = TensorType(self.codes.dtype, (n, k // self.op.per_byte))
        offsets = (TensorType(f32, blocks),) if self.has_offsets else ()
        return (codes, TensorType(self.scales.dtype, blocks), *offsets)

    def operands(self, n: int, k: int) -> tuple[Value, ...]:
        """Return the weight, the scales and the offsets, if there are any, of the product."""
        shape = n, k // self.block
        codes, scales, offsets = reshaped(self.codes, (n, k)), reshaped(self.scales, shape), None
        if self.op.per_byte == 2:
            pairs = reshaped(codes, (n, k // 2, 2))
            codes = bitwise_or(pairs[..., 0], bitwise_left_shift(pairs[..., 1], np.uint8(4)))
        if self.zero_point is not None and not self.zero:
            zero_point = reshaped(self.zero_point, shape if self.zero_point.type.size != 1 else ())
            offsets = -zero_point * as_dtype(scales, f32)
        if self.offset is not None:
            offset = reshaped(self.offset, shape)
            offset = -offset if self.is_subtracted else offset
            offsets = offset if offsets is None else offsets + offset
        return (codes, scales) if offsets is None else (codes, scales, offsets)


@frozen(slots=False, eq=False)
class ActivationQuantization:
    """One graph while its products are converted."""

    graph: Graph
    context: Context
    options: QuantizedActivations
    rounded: dict[tuple[Value, int], tuple[Value, Value]] = attribute(factory=dict, init=False)

    @cached_property
    def bound(self) -> set[Node]:
        return bound_nodes(self.graph)

    @property
    def result(self) -> Result:
        """The graph with converted products, and an entry for every product of floats by a matrix."""
        reasons = {n: self.reason_against(n) for n in self.graph.nodes if is_product(n)}
        entries = [entry_of(node, reason) for node, reason in reasons.items()]
        return converted(self.graph, self.options.name, reasons, entries, self.product_of_codes)

    def reason_against(self, node: Node) -> str | None:
        """Return why a product is kept, as "its .." or "the ..": a clause; `None` if it is converted."""
        x, weight, *_ = node.present()
        if x.dtype is not f32:
            return f"its operands are {x.dtype}"
        if weight.node not in self.bound or not weight.type.is_static:
            return "its right operand is no weight that is known when parameters are bound"
        form = block_form(weight)
        if form is None:
            return "its weight is not computed from codes and scales of blocks along the contracted axis"
        k, n = weight.type.static_shape
        if n < self.options.min_columns:
            return f"its weight is small, [{k}, {n}]"
        scales = TensorType(f32, (*x.shape[:-1], k // form.block))
        refusal = refusal_of(self.context, probe(form.op, (x.type.with_dtype(i8), scales, *form.types(n, k))))
        return None if refusal is None else refusal.reason

    def product_of_codes(self, node: Node, x: Value, weight: Value, *bias: Value) -> Value:
        """Return the result of a product by a weight of blocks from codes of its operands."""
        form, (k, n) = block_form(weight), weight.type.static_shape
        assert form is not None, "it is a copy of one that was matched"
        key = x, form.block
        if key not in self.rounded:  # several products of one operand share its codes
            blocks = k // form.block
            codes, scales = codes_of_rows(reshaped(x, (*x.shape[:-1], blocks, form.block)), axis=-1)
            self.rounded[key] = reshaped(codes, x.shape), reshaped(scales, (*x.shape[:-1], blocks))
        y = form.op(*self.rounded[key], *form.operands(n, k))
        return activated(y + bias[0], node.op.activation) if isinstance(node.op, FusedMatMulBiasAct) else y


def is_product(node: Node) -> bool:
    """Return whether a node is a product of floats by a matrix, perhaps with its bias and activation."""
    if not isinstance(node.op, MatMul | FusedMatMulBiasAct) or (isinstance(node.op, MatMul) and node.op.acc_dtype):
        return False
    _, weight, *_ = node.present()
    return node.type.dtype.is_float and weight.ndim == 2


def entry_of(node: Node, reason: str | None) -> Conversion:
    """Return the report's entry for a product."""
    x, weight, *_ = node.present()
    params = sorted({v.node for v in leaves_of(weight) if isinstance(v.node.op, Param)}, key=lambda n: n.index)
    names = f" ({', '.join(n.label for n in params)})" if params else ""
    before = sum(n.type.static_nbytes for n in params if n.type.is_static)
    after = before
    if reason is None:
        form, (k, n) = block_form(weight), weight.type.static_shape
        assert form is not None, "it is converted"
        after = sum(t.static_nbytes for t in form.types(n, k))
    what = f"product {x.type} @ {weight.type}{names}"
    return Conversion(QuantizedActivations.name, node.label, what, reason, before, after)


# ------------------------------------------------------------------------------------- the form of a weight


def block_form(weight: Value) -> BlockForm | None:
    """Return the form of a weight `[k, n]`, the transpose of a matrix in blocks, or `None` if it is not computed like that."""
    if not isinstance(weight.node.op, Transpose):
        return None
    (matrix,) = weight.node.present()
    blocks = without_reshapes(matrix)
    if blocks.dtype is not f32 or blocks.ndim == 0:
        return None
    size, k = blocks.type.static_shape[-1], matrix.type.static_shape[-1]
    if not size or k % size:
        return None
    return with_offset(blocks) or scaled(blocks)


def with_offset(value: Value) -> BlockForm | None:
    """Return the form of a sum or a difference of scaled codes and a number for each block."""
    if isinstance(value.node.op, subtract.op):
        product, offset = value.node.present()
        return scaled(product, offset, is_subtracted=True) if is_of_blocks(offset, value) else None
    if isinstance(value.node.op, add.op):
        for product, offset in both_orders(value.node):
            form = scaled(product, offset) if is_of_blocks(offset, value) else None
            if form is not None:
                return form
    return None


def scaled(value: Value, offset: Value | None = None, *, is_subtracted: bool = False) -> BlockForm | None:
    """Return the form of codes, perhaps less a zero point, times a scale for each block."""
    if not isinstance(value.node.op, multiply.op):
        return None
    for centred, scales in both_orders(value.node):
        zero_point: Value | None = None
        wide = centred
        if isinstance(centred.node.op, subtract.op):
            wide, zero_point = centred.node.present()
            if zero_point.type.size != 1 and not is_of_blocks(zero_point, value):
                continue
        if not isinstance(wide.node.op, Cast) or wide.shape != value.shape or not is_of_blocks(scales, value):
            continue
        (codes,) = wide.node.present()
        if codes.dtype in (i8, u8):
            block = value.type.static_shape[-1]
            return BlockForm(codes, block, narrow_scales(scales), zero_point, offset, is_subtracted)
    return None


def is_of_blocks(value: Value, like: Value) -> bool:
    """Return whether a value is one number for each block of another, whose last axis is a block."""
    return value.dtype is f32 and value.shape == (*like.shape[:-1], 1)


def narrow_scales(scales: Value) -> Value:
    """Return scales as f16, if they are a cast of that."""
    source = without_reshapes(scales)
    if isinstance(source.node.op, Cast):
        (source,) = source.node.present()
    return source if source.dtype is f16 else scales


def without_reshapes(value: Value) -> Value:
    """Return the value of which another is a reshape."""
    while isinstance(value.node.op, Reshape):
        (value,) = value.node.present()
    return value


def number_of(value: Value) -> float | None:
    """Return the one number of a constant, or `None`."""
    op = without_reshapes(value).node.op
    return op.value.array.item() if isinstance(op, Constant) and op.value.array.size == 1 else None


def largest(value: Value, depth: int = MOST_BITS_OPS) -> int:
    """Return an upper bound of integers without sign, from the operations on bits that compute them, up to `depth` in a row."""
    op, limit = value.node.op, int(np.iinfo(value.dtype.numpy).max)
    if isinstance(op, Constant):
        return int(op.value.array.max(initial=0))
    if not depth or not isinstance(op, BITS):
        return limit
    bounds = [largest(v, depth - 1) for v in value.node.present() if v.dtype is value.dtype]
    if isinstance(op, bitwise_and.op):
        return min(bounds)
    if isinstance(op, bitwise_or.op):
        return (1 << max(bounds).bit_length()) - 1
    if isinstance(op, bitwise_left_shift.op):
        return min(limit, bounds[0] << min(bounds[1], 8))
    return max(bounds[:1] if isinstance(op, bitwise_right_shift.op) else bounds, default=limit)


BITS = (
    *(bitwise_and.op, bitwise_or.op, bitwise_left_shift.op, bitwise_right_shift.op),
    *(Where, Reshape, Transpose, Narrow),
)
"""Ops whose results `largest` bounds by their operands."""
