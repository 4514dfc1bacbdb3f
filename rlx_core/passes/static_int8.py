"""Static quantisation: products of activations in measured ranges and bound f32 weights as products of i8 with sums in i32.

An activation has one scale s and one zero point z, `p = round(x / s) + z`, both constants of the program; a column of the weight
has one scale, as in `dynamic_int8.py`. `y[i, j] = (Σ_k p[i, k]·q[k, j] - z·Σ_k q[k, j])·s·t[j]`: the second sum is computed when
the weight is bound. `rlx.quantization.calibrate` measures the ranges, in the program as it is before this pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from typing import Any, ClassVar

import numpy as np
from attrs import field as attribute
from attrs.validators import ge

from rlx_core.errors import ConfigError, Fact
from rlx_core.ir.dtypes import f32, i8, i32
from rlx_core.ir.graph import Graph, Node, Value, probe
from rlx_core.ops.activation import relu
from rlx_core.ops.conversion import cast
from rlx_core.ops.fused import FusedMatMulBiasAct, activated
from rlx_core.ops.fused_matmul_prologue import FusedMatMulPrologue
from rlx_core.ops.linalg import MatMul
from rlx_core.ops.movement import Concat
from rlx_core.ops.piecewise import round as rounded
from rlx_core.ops.pooling.extremes import MaxPool
from rlx_core.ops.structural import Expand, Reshape, Transpose, sum_axes
from rlx_core.passes.dynamic_int8 import SMALL_TERMS, entry_of, is_product, labels_of, reason_to_keep
from rlx_core.passes.dynamic_int8 import codes as codes_of_columns
from rlx_core.passes.engine.base import LOWERED, Context, Conversion, Pass, Result, define_pass, field
from rlx_core.passes.engine.bound_values import bound_nodes
from rlx_core.passes.engine.conversions import converted
from rlx_core.passes.engine.fusion import refusal_of
from rlx_core.system.records import frozen

STEPS = 255
"""Steps of a range: codes are -128 to 127."""

LOWEST = -128
"""The smallest code of an activation."""

MAX_TERMS = (2**31 - 1) // (STEPS * 127)
"""Terms of a sum of products of codes less zero points that i32 holds exactly: 66,311."""

MOST_MOVES = 64
"""Ops in a row that move codes instead of f32, at most."""

PERMUTING = (Reshape, Transpose, Concat, MaxPool)
"""Ops that give the same result before and after a monotone function of each element, such as rounding to codes."""


def is_finite(record: object, attribute: Any, value: float) -> None:
    """A validator: the value is a number of f32."""
    if not abs(value) <= float(np.finfo(np.float32).max):
        raise ValueError(f"'{attribute.name}' must be a finite f32 number: {value}")


def at_most_zero(value: float) -> float:
    """Return a lower bound that includes 0."""
    return min(float(value), 0.0)


def at_least_zero(value: float) -> float:
    """Return an upper bound that includes 0."""
    return max(float(value), 0.0)


def is_fraction(record: object, attribute: Any, value: float) -> None:
    """A validator: the value is between 0 and 1."""
    if not 0 <= value <= 1:
        raise ValueError(f"'{attribute.name}' must be between 0 and 1: {value}")


@frozen
class OperandRange:
    """The range of an activation that codes represent. It is extended to contain 0, which a code represents exactly.

    Attributes:
        low, high: The bounds, in units of the activation.
        clipped: The fraction of the measured values that are outside.
    """

    low: float = attribute(converter=at_most_zero, validator=is_finite)
    high: float = attribute(converter=at_least_zero, validator=is_finite)
    clipped: float = attribute(default=0.0, converter=float, validator=is_fraction)

    @property
    def scale(self) -> float:
        """The difference of the values of adjacent codes, a number of f32; 1 if the range is 0 or too small for one."""
        scale = np.float32((self.high - self.low) / STEPS)
        return float(scale) if scale >= np.finfo(np.float32).tiny else 1.0

    @property
    def zero_point(self) -> int:
        """The code of 0."""
        return max(LOWEST, min(LOWEST + STEPS, LOWEST - round(self.low / self.scale)))


@define_pass("static-int8")
class StaticInt8(Pass):
    """Multiply f32 activations in given ranges and bound f32 weights `[k, n]` as i8, if the target multiplies i8 faster.

    `rlx.quantization.calibrate` returns the options `ranges` and `program`. Values outside of a range are clipped to it, and NaN
    becomes a number. The report of the compilation lists each product with the scale and the zero point of its activations, the
    fraction of the measured values that are clipped, and the reason if it is kept.

    Attributes:
        ranges: The range of the left operand of each product of the program, by the name of the product.
        program: The outline of the program that was calibrated; of any program if it is empty.
        min_terms: The smallest k of a product that is converted.
        min_columns: The smallest n.
    """

    requires: ClassVar = frozenset({LOWERED})
    gives_up: ClassVar = "rounding to eight bits, saturation, and NaN"

    ranges: Mapping[str, OperandRange] = field(factory=dict, hash=False)
    program: str = ""
    min_terms: int = field(default=SMALL_TERMS, validator=ge(1))
    min_columns: int = field(default=SMALL_TERMS, validator=ge(1))

    def run(self, graph: Graph, context: Context) -> Result:
        return StaticQuantisation(graph, context, self).result


@frozen(slots=False, eq=False)
class StaticQuantisation:
    """A program while its products are converted."""

    graph: Graph
    context: Context
    options: StaticInt8
    rounded: dict[tuple[Value, OperandRange], Value] = attribute(factory=dict, init=False)

    @cached_property
    def bound(self) -> set[Node]:
        return bound_nodes(self.graph)

    @cached_property
    def ranges(self) -> dict[Node, OperandRange]:
        """The range of each product that has one.

        Raises:
            ConfigError: The program has other products than the one that was calibrated.
        """
        named, options = products_of(self.graph), self.options
        if named and not options.ranges:
            raise ConfigError(
                f"static-int8: there are no ranges for the {len(named)} products of {self.graph.name}",
                hint="rlx.quantization.calibrate(..).entry is the pass with its ranges",
            )
        facts = [Fact("without a range", name) for name in named if name not in options.ranges][:MAX_FACTS]
        facts += [Fact("not in the program", name) for name in options.ranges if name not in named][:MAX_FACTS]
        if not facts and options.program and options.program != (outline := outline_of(self.graph)):
            facts = [Fact("its outline", outline), Fact("calibrated", options.program)]
        if facts:
            raise ConfigError(
                f"static-int8: the ranges are of another program than {self.graph.name}",
                *facts,
                hint="calibrate with the function, the configuration and the target that are compiled",
            )
        return {node: options.ranges[name] for name, node in named.items()}

    @property
    def result(self) -> Result:
        """The program with converted products, and an entry for every product of floats."""
        products = [n for n in self.graph.nodes if is_product(n)]
        reasons = {n: self.reason_against(n) for n in products}
        entries = [self.entry(n, reasons[n]) for n in products]
        entries += [entry_of(n, OF_BODY, StaticInt8.name) for n in products_in_bodies(self.graph)]
        return converted(self.graph, self.options.name, reasons, entries, self.product_of_codes)

    def reason_against(self, node: Node) -> str | None:
        options = self.options
        limits = options.min_terms, options.min_columns, MAX_TERMS
        reason = reason_to_keep(node, self.bound, self.context, *limits)
        if reason is None and node not in self.ranges:
            return "both operands are known when parameters are bound"
        return reason

    def entry(self, node: Node, reason: str | None) -> Conversion:
        """Return the report's entry for a product of the program itself."""
        known = self.ranges.get(node)
        details = (
            {} if known is None else {"scale": known.scale, "zero point": known.zero_point, "clipped": known.clipped}
        )
        return entry_of(node, reason, StaticInt8.name, **details)

    def product_of_codes(self, node: Node, x: Value, weight: Value, *bias: Value) -> Value:
        """Return the result of a product from codes of its operands."""
        known = self.ranges[node]
        q, t = codes_of_columns(weight, axis=0)
        sums = MatMul(acc_dtype=i32)(self.codes(next(node.present()), x, known), q)
        if known.zero_point:
            sums = sums - sum_axes(cast(q, to=i32), axes=(0,)) * np.int32(known.zero_point)
        y = cast(sums, to=f32) * (t * np.float32(known.scale))
        return activated(y + bias[0], node.op.activation) if isinstance(node.op, FusedMatMulBiasAct) else y

    def codes(self, old: Value, new: Value, known: OperandRange, depth: int = MOST_MOVES) -> Value:
        """Return the codes of a value, computed before the ops that only move its elements, if nothing else reads their results.

        Args:
            old, new: The value in the given graph, and its copy.
            known: Its range.
            depth: The most ops in a row.
        """
        key = new, known
        if key not in self.rounded:
            moved = self.moved_codes(old, new, known, depth - 1) if depth else None
            self.rounded[key] = codes_of(new, known) if moved is None else moved
        return self.rounded[key]

    def moved_codes(self, old: Value, new: Value, known: OperandRange, depth: int) -> Value | None:
        """Return the codes of a value from those of the values that it is computed from, or `None` where that is not possible."""
        op = new.node.op
        if len(self.graph.uses[old]) != 1 or any(old is each for each in self.graph.outputs):
            return None
        if isinstance(op, relu.op) and known.zero_point == LOWEST:
            return codes_of(next(new.node.present()), known)  # negative numbers have the smallest code
        if not isinstance(op, PERMUTING) or op is not old.node.op:
            return None
        operands = list(new.node.present())
        if refusal_of(self.context, probe(op, [v.type.with_dtype(i8) for v in operands])) is not None:
            return None
        return op(*(self.codes(*pair, known, depth) for pair in zip(old.node.present(), operands, strict=True)))


OF_BODY = "it is in the body of a loop or a branch, where activations are not measured"
MAX_FACTS = 4
"""Names that an error lists of each kind."""


def codes_of(x: Value, known: OperandRange) -> Value:
    """Return the codes of x in i8; they saturate, and NaN has code 0."""
    steps = rounded(x * np.float32(1 / known.scale))
    return cast(steps + float(known.zero_point) if known.zero_point else steps, to=i8)


def products_of(graph: Graph) -> dict[str, Node]:
    """Return the products of f32 activations and bound f32 matrices by name: their parameters, and the shape of the weight.

    Sizes of activations are not part of a name, so that ranges are valid for all of them.
    """
    bound, count = bound_nodes(graph), Counter[str]()
    result: dict[str, Node] = {}
    for node in graph.nodes:
        if not is_product(node) or isinstance(node.op, FusedMatMulPrologue):
            continue
        x, weight, *_ = node.present()
        if x.dtype is f32 and weight.ndim == 2 and weight.node in bound and x.node not in bound:
            labels = ", ".join(label.removeprefix("%") for label in labels_of(weight)) or "constant"
            name = f"{labels} {list(weight.type.static_shape)}"
            count[name] += 1
            result[name if count[name] == 1 else f"{name} ({count[name]})"] = node
    return result


def products_in_bodies(graph: Graph) -> Iterator[Node]:
    """Yield the products of the graphs inside of a graph."""
    for body in graph.bodies:
        yield from (node for node in body.nodes if is_product(node))
        yield from products_in_bodies(body)


def outline_of(graph: Graph) -> str:
    """Return a digest of the ops of a program in their order, without reshapes and broadcasts, which depend on sizes."""
    names = [n.op.name for n in graph.nodes if not n.is_leaf and not isinstance(n.op, Reshape | Expand)]
    return sha256(" ".join(names).encode()).hexdigest()[:16]
