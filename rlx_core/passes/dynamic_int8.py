"""Dynamic quantisation: products of f32 activations and bound f32 weights as products of i8 with sums in i32.

Codes of the weight are computed when parameters are bound, those of the activations in every run, with one scale for each row:
`y[i, j] = (Σ_k p[i, k]·q[k, j])·s[i]·t[j]` with `s[i] = max_k |x[i, k]| / 127`, `p = round(x / s)`, and the same for the columns
of the weight. The sums are exact, so that every processor computes the same codes, sums and results.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import ClassVar

from attrs.validators import ge

from rlx_core.ir.dtypes import f32, i8, i32
from rlx_core.ir.graph import Graph, Node, Param, Value, probe
from rlx_core.ops.arithmetic import maximum
from rlx_core.ops.conversion import cast
from rlx_core.ops.fused import FusedMatMulBiasAct, activated
from rlx_core.ops.fused_matmul_prologue import FusedMatMulPrologue
from rlx_core.ops.linalg import MatMul
from rlx_core.ops.piecewise import round as rounded
from rlx_core.ops.reduction import Max, Min
from rlx_core.passes.engine.base import LOWERED, Context, Conversion, Pass, Result, define_pass, each_graph, field
from rlx_core.passes.engine.bound_values import bound_nodes, leaves_of
from rlx_core.passes.engine.conversions import converted
from rlx_core.passes.engine.fusion import refusal_of
from rlx_core.system.records import frozen

LIMIT = 127
"""The largest code; codes are symmetric, so that no zero point is needed."""

MAX_TERMS = (2**31 - 1) // LIMIT**2
"""Terms of a sum that i32 holds exactly: 133,144."""

SMALL_TERMS = 64
"""Terms and columns up to which a product is kept by default: quantising its rows takes as long as it saves."""


@define_pass("dynamic-int8")
class DynamicInt8(Pass):
    """Multiply f32 activations and bound f32 weights `[k, n]` as i8, if the target multiplies i8 faster than f32.

    The report of the compilation lists each product that is converted, with the bytes that its weight takes before and after, and
    each one that is not, with the reason. Gradients of the program, where it contains them, are quantised in the same way.

    Attributes:
        min_terms: The smallest k of a product that is converted.
        min_columns: The smallest n.
    """

    requires: ClassVar = frozenset({LOWERED})
    gives_up: ClassVar = "rounding to eight bits"

    min_terms: int = field(default=SMALL_TERMS, validator=ge(1))
    min_columns: int = field(default=SMALL_TERMS, validator=ge(1))

    def run(self, graph: Graph, context: Context) -> Result:
        return each_graph(graph, lambda each: Quantisation(each, context, self).result)


@frozen(slots=False, eq=False)
class Quantisation:
    """One graph while its products are converted."""

    graph: Graph
    context: Context
    options: DynamicInt8

    @cached_property
    def bound(self) -> set[Node]:
        return bound_nodes(self.graph)

    @property
    def result(self) -> Result:
        """The graph with converted products, and an entry for every product of floats."""
        reasons = {n: self.reason_against(n) for n in self.graph.nodes if is_product(n)}
        entries = [entry_of(node, reason) for node, reason in reasons.items()]
        return converted(self.graph, self.options.name, reasons, entries, quantised)

    def reason_against(self, node: Node) -> str | None:
        """Return why a product is kept; see `reason_to_keep`."""
        options = self.options
        return reason_to_keep(node, self.bound, self.context, options.min_terms, options.min_columns, MAX_TERMS)


def reason_to_keep(
    node: Node, bound: Collection[Node], context: Context, min_terms: int, min_columns: int, max_terms: int
) -> str | None:
    """Return why a product of floats is not computed in i8, as "its .." or "the ..": a clause; `None` if it can be.

    Args:
        node: The product, as of `is_product`.
        bound: The nodes that are known when parameters are bound.
        context: Of the pass.
        min_terms, min_columns: The sizes of the smallest weight that is converted.
        max_terms: The most products of codes of which i32 holds the sum.
    """
    if isinstance(node.op, FusedMatMulPrologue):
        return "its weight is computed from narrower numbers"
    x, weight, *_ = node.present()
    if x.dtype is not f32:
        return f"its operands are {x.dtype}"
    if weight.ndim != 2 or weight.node not in bound:
        return "its right operand is no weight that is known when parameters are bound"
    terms, columns = weight.type.static_shape
    if terms < min_terms or columns < min_columns:
        return f"its weight is small, [{terms}, {columns}]"
    if terms > max_terms:
        return f"i32 does not hold sums of {terms} products of codes"
    target = context.target
    if target is None:
        return None
    refusal = refusal_of(context, probe(MatMul(acc_dtype=i32), (x.type.with_dtype(i8), weight.type.with_dtype(i8))))
    if refusal is not None:
        return refusal.reason
    return None if i8 in target.fast_products else f"{target.name} multiplies f32 faster than i8"


def is_product(node: Node) -> bool:
    """Return whether a node is a product of floats by a matrix, with its bias and activation or a computed weight."""
    if isinstance(node.op, MatMul):
        return node.op.acc_dtype is None and node.type.dtype.is_float
    return isinstance(node.op, FusedMatMulBiasAct | FusedMatMulPrologue)


def entry_of(node: Node, reason: str | None, name: str = DynamicInt8.name, **details: float) -> Conversion:
    """Return the report's entry for a product, by the pass of a name."""
    x, *weight = node.present()
    if isinstance(node.op, FusedMatMulBiasAct):
        weight.pop()
    labels = dict.fromkeys(label for w in weight for label in labels_of(w))
    names = f" ({', '.join(labels)})" if labels else ""
    what = f"product {x.type} @ {', '.join(str(w.type) for w in weight)}{names}"
    before = after = sum(w.type.static_nbytes for w in weight if w.type.is_static)
    if reason is None:
        (columns,) = (w.type.static_shape[-1] for w in weight)
        after = before // f32.itemsize + columns * f32.itemsize
    return Conversion(name, node.label, what, reason, before, after, details)


def labels_of(weight: Value) -> list[str]:
    """Return the labels of the parameters that a weight is computed from, in their order."""
    params = {v.node for v in leaves_of(weight) if isinstance(v.node.op, Param)}
    return [n.label for n in sorted(params, key=lambda n: n.index)]


def quantised(node: Node, x: Value, weight: Value, *bias: Value) -> Value:
    """Return the result of a product from codes of its operands."""
    (p, s), (q, t) = codes(x, axis=-1), codes(weight, axis=0)
    sums = MatMul(acc_dtype=i32)(p, q)
    y = cast(sums, to=f32) * s * t
    if isinstance(node.op, FusedMatMulBiasAct):
        y = activated(y + bias[0], node.op.activation)
    return y


def codes(x: Value, axis: int) -> tuple[Value, Value]:
    """Return symmetric codes in i8 with one scale for all elements along an axis, which the scales keep with size 1.

    A cast saturates and takes NaN to 0: elements of zeros have code 0, and the scale of a row with NaN or an infinity has it.
    """
    # Not the maximum of |x|, which the computation of x would return as a second result.
    largest, smallest = (extreme((axis,), keep_dim=True)(x) for extreme in (Max, Min))
    scales = maximum(largest, -smallest) / float(LIMIT)
    return cast(rounded(x / scales), to=i8), scales
