"""Analysis of chains of arithmetic: the constant that a value repeats, the factors of a product, the summands of a sum.

Recognition looks for mathematics, and one formula is written in several ways. These functions give the parts of a chain in
one form and remember which nodes they passed through, so that a rule can require that no other node needs those.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from attrs import evolve, field

from rlx_core.ir.graph import Node, Value
from rlx_core.ir.op import Op
from rlx_core.ir.types import Shape
from rlx_core.ops.arithmetic import divide, multiply, pow, square
from rlx_core.ops.movement import Narrow
from rlx_core.ops.selection import StopGradient
from rlx_core.ops.structural import Expand, Reshape
from rlx_core.passes.engine.patterns import scalar_of
from rlx_core.system.records import frozen


def constant_of(value: Value | None) -> float | None:
    """The number that a real constant repeats, as the dtype holds it; `None` for anything else."""
    constant = None if value is None else scalar_of(value)
    if constant is None or constant.dtype == np.bool_ or np.iscomplexobj(constant):
        return None
    return float(constant)


def is_constant(value: Value | None, number: float) -> bool:
    """Return whether `value` repeats `number`, to the last bit that its dtype holds."""
    constant = constant_of(value)
    return value is not None and constant is not None and constant == float(np.asarray(number, value.dtype.numpy))


@frozen(eq=False)
class Factors:
    """A decomposed product: `constant · Π values`, and the nodes that multiply.

    Attributes:
        constants: Constant factors as written; for a division, the divisor's reciprocal, rounded to the dtype.
        values: The other factors, with repetitions.
        nodes: The multiplications and divisions passed through, the outermost first.
    """

    constants: tuple[float, ...] = ()
    values: tuple[Value, ...] = ()
    nodes: tuple[Node, ...] = field(default=())

    def __add__(self, other: Factors) -> Factors:
        return Factors((*self.constants, *other.constants), (*self.values, *other.values), (*self.nodes, *other.nodes))

    @property
    def constant(self) -> float:
        return float(np.prod(self.constants)) if self.constants else 1.0


DEEPEST: Final = 10
"""Products nested deeper are not decomposed: no pattern has them, and each may read the one below twice."""


def factors_of(value: Value, atoms: Sequence[Value] = (), depth: int = 0) -> Factors:
    """Return the factors of `value`, through nested products and divisions by constants; `atoms` are not decomposed."""
    node = value.node
    number = constant_of(value)
    if number is not None:
        return Factors((number,))
    if any(value is atom for atom in atoms) or len(node.operands) != 2 or depth == DEEPEST:
        return Factors((), (value,))
    left, right = node.present()
    here = Factors(nodes=(node,))
    if type(node.op) is multiply.op:
        return here + factors_of(left, atoms, depth + 1) + factors_of(right, atoms, depth + 1)
    divisor = constant_of(right) if type(node.op) is divide.op else None
    if divisor:
        reciprocal = float((1 / np.asarray(divisor)).astype(value.dtype.numpy))
        return evolve(here, constants=(reciprocal,)) + factors_of(left, atoms, depth + 1)
    return Factors((), (value,))


def power_of(factors: Factors, x: Value) -> tuple[int, tuple[Node, ...]] | None:
    """The `n` for which the values of a product are `xⁿ`, and all nodes passed through; `None` if they are anything else."""
    total, nodes = 0, list(factors.nodes)
    for value in factors.values:
        exponent = 1 if value is x else whole_power(value, x)
        if exponent is None:
            return None
        if value is not x:
            nodes.append(value.node)
        total += exponent
    return total, tuple(nodes)


def whole_power(value: Value, x: Value) -> int | None:
    """The exponent of a node that is a whole power of `x`."""
    node = value.node
    if type(node.op) is square.op and node.operands[0] is x:
        return 2
    if type(node.op) is pow.op and node.operands[0] is x:
        exponent = constant_of(node.operands[1])
        return int(exponent) if exponent is not None and exponent == int(exponent) and exponent > 0 else None
    return None


def kept_dims(value: Value, reduction: type, axes: tuple[int, ...], rank: int) -> Node | None:
    """The node of a reduction over `axes` that `value` broadcasts back along them; through reshapes and expansions.

    `value` has to lie along the operand of the reduction as a result with `keep_dim` does.
    """
    node = value.node
    while isinstance(node.op, Reshape | Expand) and node.operands[0] is not None:
        node = node.operands[0].node
    if not isinstance(node.op, reduction) or node.operands[0] is None or node.operands[0].ndim != rank:
        return None
    reduced_axes = tuple(sorted(a % rank for a in node.op.attributes()["axes"]))
    return node if reduced_axes == axes and lies_along(value, node.operands[0].shape, axes) else None


def lies_along(value: Value, shape: Shape, axes: tuple[int, ...]) -> bool:
    """Return whether a value with one element a row of `shape`, in order, has the dims of a `keep_dim` reduction over `axes`.

    It may be repeated along `shape`. Its layout is checked before that: the dims of a square do not tell rows from columns.
    """
    kept_shape = tuple(1 if i in axes else d for i, d in enumerate(shape))
    if aligned(value, len(shape)) not in (kept_shape, shape):
        return False
    while isinstance(value.node.op, Expand | StopGradient) and value.node.operands[0] is not None:
        value = value.node.operands[0]
    return aligned(value, len(shape)) == kept_shape


def aligned(value: Value, rank: int) -> Shape:
    """The dims of a value as broadcasting to `rank` axes aligns them."""
    return (*(1,) * (rank - value.ndim), *value.shape)


def between(value: Value, end: Node) -> tuple[Node, ...]:
    """The nodes from the one that gives `value` down to `end`, through first operands, `end` included."""
    nodes = [value.node]
    while nodes[-1] is not end:
        first = nodes[-1].operands[0]
        assert first is not None, "movement ops have an operand"
        nodes.append(first.node)
    return tuple(nodes)


def behind(value: Value, views: tuple[type[Op], ...]) -> tuple[Node, tuple[Node, ...]]:
    """Return the node that produces the elements of `value`, and the nodes between: `views`, and slices that keep everything."""
    node = value.node
    passed: tuple[Node, ...] = ()
    while node.operands and node.operands[0] is not None and (isinstance(node.op, views) or is_whole(node)):
        node, passed = node.operands[0].node, (*passed, node)
    return node, passed


def is_whole(node: Node) -> bool:
    """Return whether a node is a slice of everything, as indexing an axis of one element makes."""
    return isinstance(node.op, Narrow) and node.type == node.operand_types[0]
