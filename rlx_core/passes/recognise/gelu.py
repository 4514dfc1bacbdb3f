"""Recognition of GELU in its two forms, which are two different functions.

    ½·x·(1 + erf(x/√2))        ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))

Factors may stand in any order. Constants have to be those of the formula to the last bit that the dtype holds: with others it
is another function, and it stays as it was written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rlx_core.ir.dtypes import FLOATS
from rlx_core.ir.graph import Node, Value
from rlx_core.ops.activation import erf, erfc, gelu, gelu_approx, sigmoid, silu, tanh
from rlx_core.ops.arithmetic import add, divide, multiply
from rlx_core.passes.engine.fusion import both_orders, declined_if_kept, fusion_of
from rlx_core.passes.engine.rules import Declined, Match, RewriteRule, rewrite, ruleset
from rlx_core.passes.recognise.chains import factors_of, is_constant, power_of

SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


@ruleset("recognise-gelu")
def recognise_gelu(x: Any) -> Iterator[RewriteRule]:
    """Recognise `½x(1 + erf(x/√2))` as gelu, the tanh formula as gelu_approx, and `x·σ(x)` as silu."""
    for op in (multiply.op, divide.op):
        name = "product" if op is multiply.op else "quotient"
        rule = rewrite(f"gelu-{name}", op).to(as_gelu).giving_up("the last bits")
        yield rule.sampled(x="f32[5]", make=lambda x, op=op: exact_form(x, op is divide.op)).sampled(
            x="f64[5]", make=lambda x, op=op: tanh_form(x, op is divide.op)
        )
    yield rewrite("silu", x * sigmoid(x)).to(silu(x)).sampled(x="f32[3, 4]")


def exact_form(x: Value, is_halved: bool) -> Value:
    grown = x * (1 + erf(x / math.sqrt(2)))
    return grown / 2 if is_halved else grown * 0.5


def tanh_form(x: Value, is_halved: bool) -> Value:
    grown = x * (1 + tanh(SQRT_2_OVER_PI * (x + 0.044715 * (x * x * x))))
    return grown / 2 if is_halved else grown * 0.5


def as_gelu(match: Match) -> Value | Declined | None:
    root = match.root.result
    if root.dtype not in FLOATS:
        return None
    # x can only be derived from the inner function: x may be a product itself, which must not be decomposed.
    for grown in factors_of(root).values:
        for x in arguments_of(grown):
            factors = factors_of(root, (x,))
            if factors.constant != 0.5 or {*factors.values} != {x, grown} or len(factors.values) != 2:
                continue
            form = grown_function(x, grown)
            if form is None:
                continue
            function, inner = form
            nodes = [n for n in (*factors.nodes, *inner) if n is not match.root]
            declined = declined_if_kept(match.graph, nodes, [*nodes, match.root])
            return declined or function(match.new(x))
    return None


def arguments_of(grown: Value, depth: int = 4) -> Iterator[Value]:
    """Values of the same type that `grown` may be a function of, the nearest first."""
    function = grown if type(grown.node.op) is erfc.op else plus_one(grown)
    if function is None or type(function.node.op) not in (erf.op, erfc.op, tanh.op):
        return
    level = [v for v in function.node.present() if v.type == grown.type]
    for _ in range(depth):
        level = list(dict.fromkeys(v for n in level for v in n.node.present() if v.type == grown.type))
        yield from level


def grown_function(x: Value, grown: Value) -> tuple[Any, tuple[Node, ...]] | None:
    """The function `½·x·grown` of x is, with the nodes between; `None` if it is neither form of GELU."""
    if grown.type != x.type:
        return None
    if type(grown.node.op) is erfc.op and grown.node.operands[0] is not None:
        below = linear_nodes(grown.node.operands[0], x, -math.sqrt(0.5))
        return None if below is None else (gelu, (grown.node, *below))
    function = plus_one(grown)
    argument = None if function is None else function.node.operands[0]
    if function is None or argument is None:
        return None
    through = (grown.node, function.node)
    if type(function.node.op) is erf.op:
        below = linear_nodes(argument, x, math.sqrt(0.5))
        return None if below is None else (gelu, (*through, *below))
    if type(function.node.op) is tanh.op:
        below = tanh_argument(argument, x)
        return None if below is None else (gelu_approx, (*through, *below))
    return None


def plus_one(value: Value) -> Value | None:
    """`u` of `1 + u`."""
    if type(value.node.op) is not add.op:
        return None
    left, right = value.node.operands
    return right if is_constant(left, 1) else left if is_constant(right, 1) else None


def linear_nodes(value: Value, x: Value, slope: float) -> tuple[Node, ...] | None:
    """The nodes of `slope·x`, written as a product, or as a quotient by the reciprocal."""
    node = value.node
    if len(node.operands) != 2:
        return None
    left, right = node.operands
    if type(node.op) is multiply.op:
        is_it = (left is x and is_constant(right, slope)) or (right is x and is_constant(left, slope))
        return (node,) if is_it else None
    is_it = type(node.op) is divide.op and left is x and is_constant(right, math.copysign(math.sqrt(2), slope))
    return (node,) if is_it else None


def tanh_argument(value: Value, x: Value) -> tuple[Node, ...] | None:
    """The nodes of `√(2/π)·(x + 0.044715·x³)`, also with x outside of the bracket."""
    outer = factors_of(value, (x,))
    if len(outer.constants) != 1 or not equals(outer.constants[0], SQRT_2_OVER_PI, x):
        return None
    is_outside = len(outer.values) == 2 and any(v is x for v in outer.values)
    others = [v for v in outer.values if v is not x] if is_outside else list(outer.values)
    if len(others) != 1 or type(others[0].node.op) is not add.op:
        return None
    for first, cubic in both_orders(others[0].node):
        if not (is_constant(first, 1) if is_outside else first is x):
            continue
        factors = factors_of(cubic, (x,))
        power = power_of(factors, x)
        if len(factors.constants) != 1 or not equals(factors.constants[0], 0.044715, x):
            continue
        if power is not None and power[0] == (2 if is_outside else 3):
            return (*outer.nodes, others[0].node, *power[1])
    return None


def equals(actual: float, number: float, x: Value) -> bool:
    """Return whether a constant is `number` to the last bit of the dtype of x."""
    return actual == float(x.dtype.numpy.type(number))


RecogniseGelu = fusion_of(recognise_gelu, (gelu.op, gelu_approx.op, silu.op))
